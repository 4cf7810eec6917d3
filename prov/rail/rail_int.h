/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_INT_H
#define TEI_PROV_RAIL_RAIL_INT_H

/*
 * The objects of the data plane. docs/GLOSSARY.md defines the terms,
 * docs/LOCKING.md the order of dp->admin, lane->lock and dp->sched.
 *
 * In comments on fields, "thread:" marks a field that only the progress thread
 * uses, "atomic:" a field that is also read without the lock that guards its
 * changes, and "fixed:" a field that never changes after initialization. "The
 * thread" in comments on functions is the progress thread of the data plane; a
 * comment that ends with "The thread." says that only this thread may call the
 * function.
 *
 * Invariants
 *  - A slice is posted a second time only after its first posting was fenced.
 *    So no slice is in flight twice, and COMPLETED needs no further proof.
 *  - A task ends only when none of its slices is posted or awaits a fence, or
 *    when the data plane has stopped waiting for the fence. In the latter case
 *    the task ends as UNFENCED.
 *  - A slice no longer touches local memory once its completion (good or bad)
 *    was read, or once the lane that carried it was closed.
 *  - Tx lanes post RMA and send messages. Rx lanes receive, and only the
 *    progress thread opens and closes them. Another thread that polls an rx
 *    lane handles only user messages, which are for the owner of the data
 *    plane, and defers all other messages to the progress thread. A contact
 *    lane belongs to a domain without registrations, so no RMA can land through
 *    it. A process sends replies over its own tx lane. User messages are the
 *    exception: an rx lane may send them to a tx lane (rail_reverse.c).
 *  - Only the progress thread runs the control state machines (hello, keys,
 *    fence, revocation). State of these machines that other threads read is
 *    guarded by dp->sched.
 */

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "prov/rail/peer/rail_served.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/settings.h"

#define RAIL_API_VERSION	FI_VERSION(1, 17)
#define RAIL_MSG_MAX		16384	/* bytes of a peer message,
					 * header included */
#define RAIL_RX_DEPTH		64	/* receives posted on
					 * a receiving lane */
#define RAIL_TX_MSGS		32	/* send buffers per rail */
#define RAIL_RX_SIZE		((size_t)RAIL_RX_DEPTH * RAIL_MSG_MAX)
#define RAIL_TX_SIZE		((size_t)RAIL_TX_MSGS * RAIL_MSG_MAX)
#define RAIL_BUNDLE		16	/* slices cut under one
					 * lock acquisition */
#define RAIL_CQ_BATCH		32	/* completions read at a time */
#define RAIL_ATOMICS		256	/* unanswered atomics per peer */
#define RAIL_IOV_MAX		16	/* iov entries of one operation */
#define RAIL_KEY_MAX		64	/* bytes of a key, raw keys included */
#define RAIL_PONGS		8	/* unanswered probes per peer */
#define RAIL_AUTH_WORDS		8	/* 64-bit words of the bit map of
					 * message numbers already received */
#define RAIL_STRANGERS		4	/* unauthenticated peers at a time */
#define RAIL_LANE_SLOTS		2	/* one active and one retired lane */
#define RAIL_PEER_QUEUE_MAX	(1u << 20) /* tasks queued per peer */
#define RAIL_FAILED_MAX		8	/* names of devices that could not be
					 * opened, remembered so that each
					 * failure is logged once */
#define RAIL_TRIED_NS		(500 * TEI_NS_PER_MS) /* time for which a
						       * connection attempt
						       * counts as recent */

enum rail_op_kind {
	RAIL_OP_SLICE,
	RAIL_OP_SEND,
	RAIL_OP_RECV,
};

/* The first member of every object that is passed to libfabric as a context. */
struct rail_op {
	struct fi_context2 ctx;
	enum rail_op_kind kind;
};

struct rail_lane;
struct rail;

/*
 * One posted operation: a part of a task, or several adjacent small tasks. The
 * memory belongs to dp->slices (free list). A slice in use is owned by exactly
 * one of: lane->posted (lane lock), peer->retry, peer->awaiting_fence (sched
 * lock), the stack of a thread that is posting.
 */
struct rail_slice {
	struct rail_op op;
	struct tei_list link;
	struct tei_rail_peer *peer;
	struct rail_lane *lane;		/* lane of the last posting */
	struct rail_conn *conn;
	struct tei_rail_task *first;
	struct tei_rail_mr *mr;
	struct rail_rkey *rkey;		/* remote key that the slice uses;
					 * counted in rkey->slices */
	const struct tei_rail_task_ext *ext; /* task extension with several iov
					      * entries, or NULL */
	uint64_t off;			/* with extra: offset of the slice's
					 * first byte in the task */
	char *local;
	uint64_t remote;
	uint64_t len;
	uint64_t rma_addr, rma_key;	/* address and key for the chosen remote
					 * rail */
	uint32_t ntasks;		/* number of tasks: 1, or several whole
					 * tasks that were merged */
	int last_err;			/* FI_E* of the last
					 * failure, positive */
	int prov_err;			/* provider's own error code, or 0 */
	uint64_t seq;			/* lane->posts when the slice was
					 * posted */
	uint32_t remote_gen;		/* lane generation of the target when
					 * the slice was posted */
	uint16_t remote_idx;		/* index into peer->remotes */
	uint8_t retries;
	bool read;
	bool bulk;			/* part of a bulk request
					 * (rail_task_bulk) */
	bool conn_fresh;		/* address handle must be
					 * inserted before posting */
};

/* One registration of memory with a provider. */
struct rail_mr_piece {
	struct fid_mr *mr;
	uint8_t key[RAIL_KEY_MAX];	/* 8 bytes in native
					 * order, or a raw key */
	uint8_t key_len;		/* bytes of key; 0: peers cannot use the
					 * registration */
};

/*
 * Registration of a memory region on one rail. The region is split into parts
 * of 1 << shift bytes; the last one is shorter. With RAIL_MR_WHOLE there is one
 * part.
 */
#define RAIL_MR_WHOLE	63
struct rail_mr_part {
	struct rail_mr_piece *piece;
	uint32_t n;			/* entries of piece,
					 * 0: not registered */
	uint8_t shift;
	uint8_t way;			/* enum tei_rail_way */
	void **desc;			/* local descriptor per entry of piece;
					 * NULL: the rail needs none */
};

/* The ranks of all rails for one NUMA range of a region. */
struct rail_numa_range {
	uint64_t end;			/* offset in the region at which the
					 * range ends */
	uint8_t rank[TEI_RAIL_MAX];	/* dp->sched: 0 preferred,
					 * 1 accessible, 2 unused */
};

enum rail_mr_fence {
	RAIL_MR_NO_FENCE,	/* no fence is needed, or it is complete */
	RAIL_MR_FENCE_WANTED,	/* the progress thread has not started the
				 * fence */
	RAIL_MR_FENCING,	/* the progress thread closes the rx lanes */
};

enum rail_mr_state {
	RAIL_MR_REGISTERING,	/* in dp->mrs, so that overlapping registrations
				 * are refused */
	RAIL_MR_READY,
	RAIL_MR_REVOKING,	/* no new tasks, no new keys */
	RAIL_MR_CLOSED,		/* unregistered; dp->admin guards it as well */
};

/*
 * A registered region. Created by tei_rail_mr_reg, freed by tei_rail_mr_dereg
 * or tei_rail_dp_close. Listed in dp->mrs, sorted by address.
 */
struct tei_rail_mr {
	/* fixed after registration */
	char *addr;
	uint64_t len;
	uint64_t id;			/* never reused */
	bool remote;			/* peers may access it */
	bool read_only;			/* neither peers nor local
					 * reads may write to it */
	bool gpu;			/* GPU memory; a rail without a
					 * registration of the region must not
					 * access it */
	struct tei_rail_device device;	/* closed together with the region */
	char *location;
	struct rail_numa_range *places; /* NUMA ranges in ascending order */
	uint32_t nplaces;

	/* guarded by dp->admin */
	struct rail_mr_part part[TEI_RAIL_MAX];

	/* guarded by dp->sched */
	enum rail_mr_state state;
	uint32_t tasks;			/* unfinished local tasks that use the
					 * region */
	uint64_t *holders;		/* incarnations of the key holders */
	uint32_t nholders, holders_cap;
	uint32_t holders_left;		/* REVOKING: number of key holders that
					 * have not answered */
	bool lost;			/* a peer that is no longer known may
					 * still hold the key */
	struct tei_list revoking;	/* in dp->revoking, or unlinked */
	enum rail_mr_fence fence;	/* REVOKING: whether the rx
					 * lanes must be closed */
};

enum rail_lane_state {
	RAIL_LANE_CLOSED,	/* no endpoint */
	RAIL_LANE_ACTIVE,
	RAIL_LANE_RETIRING,	/* retired: drains or is being closed; takes no
				 * new work */
};

/*
 * State of a lane that a closer thread closes while the progress thread
 * continues its work (rail_closing.c). Embedded in the lane and guarded by its
 * lock, except that fid belongs to the closer thread until `over` is set.
 */
#define RAIL_LANE_FIDS	8
struct rail_closing {
	struct fid *fid[RAIL_LANE_FIDS];
	pthread_t closer;
	bool started;			/* closer is running, or has ended and
					 * was not joined yet */
	bool under_way;			/* atomic: begun, and
					 * not collected yet */
	bool over;			/* atomic: everything has been closed */
};

/*
 * One libfabric RDM endpoint with its CQ, AV and EQ. Embedded in its rail. The
 * progress thread opens and closes it, or the thread that sets up or tears down
 * the data plane. Each opening has a new generation.
 */
struct rail_lane {
	struct rail *rail;		/* fixed */
	bool is_rx;			/* fixed: an rx lane */
	bool first;			/* fixed: a contact lane;
					 * target is set as well */
	uint16_t index;			/* fixed: lane number on the rail */

	struct tei_mutex lock;		/* guards the fields below */
	enum rail_lane_state state;	/* atomic */
	uint32_t gen;			/* atomic: lane generation */
	struct fid_fabric *fabric;	/* own fabric; NULL: the lane uses the
					 * rail's fabric */
	struct fid_domain *domain;	/* own domain; NULL: the lane uses the
					 * rail's domain */
	struct fid_wait *wait;		/* separate wait object of the CQ; NULL:
					 * the CQ has its own */
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_eq *eq;
	struct fid_cntr *cntr;		/* rx lane without wait_fd: counts
					 * remote reads and writes; or NULL */
	uint64_t cntr_seen;
	int wait_fd;			/* descriptor to poll, or -1 */
	struct tei_rail_addr addr;
	struct tei_list posted;		/* list of rail_slice.link */
	/* atomic: */
	uint32_t inflight;		/* slices posted */
	uint64_t inflight_bytes;
	uint64_t tx_bytes, rx_bytes, slices; /* completed since the
					      * lane was created */

	uint64_t drained_ns;		/* RETIRING: time at which the lane is
					 * closed even if operations are still
					 * posted */
	uint64_t busy_ns;		/* start of the current
					 * measuring interval */
	uint64_t served;		/* bytes completed since busy_ns */
	bool whole;			/* the lane was idle before busy_ns */
	uint64_t served_ns;		/* time of the last completion */
	uint64_t posts;			/* slices posted since the
					 * lane was created */
	uint64_t mark_posts, mark_ns;	/* value of posts at time mark_ns */
	uint64_t stuck_posts;		/* posts up to this number have not
					 * completed for a long time */
	uint64_t stuck;			/* bytes of the posts up to stuck_posts
					 * that are still posted */
	uint64_t stuck_bulk;		/* the bulk part of stuck */
	struct rail_slice *alone;	/* slice that was posted on the idle
					 * lane, or NULL; never dereferenced */
	uint64_t alone_ns;		/* time at which alone was posted */
	uint32_t msgs;			/* atomic: messages sent
					 * and not completed */
	uint64_t settle_ns;		/* atomic: after the loss of a
					 * connection, time until which the lane
					 * is polled; 0: no loss */
	bool kick;			/* atomic: poll request: the holder of
					 * the lock must poll once more */
	bool visited;			/* rx lane: the application polls it */
	bool receives;			/* atomic: tx lane: a BACK was sent, so
					 * peers may send user messages to this
					 * lane */
	struct tei_list deferred;	/* rx lane: list of rail_deferred, the
					 * deferred control messages */
	uint32_t naside;		/* atomic: entries of aside */
	bool link_cut;			/* thread: the lane's connections were
					 * cut when the link went down */
	struct rail_slice *check_head;	/* rail_stall.c: oldest posted slice
					 * at the last check */
	uint64_t check_moves;		/* progress counter of the connection of
					 * check_head at the last check */
	struct rail_closing closing;
	struct rail_rx *rx;		/* receive buffers, or NULL */
	struct rail_rx *rx_idle;	/* receive buffers
					 * that are not posted */
	void *rx_mem;
	struct fid_mr *rx_mr;
};

/*
 * A lane that an opener thread opens while the progress thread continues its
 * work (rail_reopen.c). Embedded in its rail. Only the progress thread uses it;
 * lane.lock protects it against tear-down.
 */
struct rail_opening {
	struct rail_lane lane;		/* the opener thread holds lane.lock */
	struct rail_lane *place;	/* closed lane that the new lane will
					 * replace */
	pthread_t opener;
	bool started;			/* opener is running, or has ended and
					 * was not joined yet */
	bool under_way;			/* atomic: begun, and
					 * not collected yet */
	bool over;			/* atomic: the lane is open,
					 * or opening failed */
	struct tei_err err;		/* cause of the failure */
};

/* Which endpoint listens at the contact address of a rail
 * (rail_contact_lane.c). */
enum rail_contact_lane_state {
	RAIL_CONTACT_LANE_LEFT,	  /* no endpoint, and none is wanted */
	RAIL_CONTACT_LANE_TARGET, /* the first rx lane of the rail */
	RAIL_CONTACT_LANE_WANTED, /* no endpoint yet: the contact lane must be
				   * opened */
	RAIL_CONTACT_LANE_HELD,	  /* the contact lane */
	RAIL_CONTACT_LANE_TAKEN, /* no endpoint of ours: another process listens
				  * there; the opening is retried */
};

/*
 * A message that a caller has read from an rx lane and that the progress thread
 * must handle. Owned by the lane.
 */
struct rail_deferred {
	struct tei_list link;
	uint32_t len;
	uint8_t buf[];
};

/* A receive buffer. Owned by the lane and guarded by its lock. */
struct rail_rx {
	struct rail_op op;
	uint8_t *buf;
	struct rail_rx *next;		/* in lane->rx_idle */
};

/* A send buffer of a rail. dp->sched guards the free list. */
struct rail_tx {
	struct rail_op op;
	struct tei_list link;
	struct rail *rail;
	struct rail_lane *lane;		/* lane that the buffer is posted on, or
					 * NULL */
	struct rail_conn *conn;		/* connection that carries the message
					 * (counted in path->msgs), or NULL */
	uint64_t incarnation;		/* incarnation of the receiving peer */
	uint16_t remote;		/* index into peer->remotes */
	uint8_t *buf;
};

/*
 * One local NIC. Created by tei_rail_dp_add_transport, freed by
 * tei_rail_dp_close. A closed rail keeps its index.
 */
struct rail {
	/* fixed after opening */
	struct tei_rail_dp *dp;
	uint16_t index;
	char name[64];
	char provider[32];
	char transport[16];
	char pci[32];
	int numa;
	uint64_t speed_bps;
	uint8_t prefix;			/* prefix length of the rail's IP
					 * address, bits */
	struct tei_rail_addr own;	/* address of the first rx lane;
					 * all lanes have addresses in
					 * the same network */
	bool fallback;			/* opened only because no better device
					 * was found (rail_found) */
	bool quiet;			/* a failure to open the rail is not
					 * logged */
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *tx_domain; /* domain for tx lanes that have no own
				       * domain */
	struct fid_domain *rx_domain; /* domain for the rx lane; tx_domain
				       * itself if domains are expensive */
	uint64_t mr_mode;
	bool back;			/* tx lanes receive user messages as
					 * well (rail_reverse.c) */
	bool hmem;			/* the rail can access GPU memory */
	const char *no_hmem;		/* reason why the rail cannot access GPU
					 * memory, or NULL */
	uint32_t tx_depth;		/* slices posted per lane, at most */
	uint64_t max_slice;		/* largest message of
					 * the provider, bytes */
	uint8_t mr_shift;		/* dp->admin: log2 of the largest
					 * registration that the device accepted
					 * after it had refused a larger one */
	bool addr_gone;			/* dp->admin: at the last refresh, no
					 * interface had the rail's IP
					 * address */
	uint32_t iov_limit, rma_limit;	/* iov entries of one
					 * operation, at least 1 */

	struct rail_lane *tx_lanes;	/* tx lanes, [ntx *
					 * RAIL_LANE_SLOTS] */
	struct rail_cache *cache;	/* endpoint caches, [ntx] */
	uint32_t ntx;
	struct rail_lane rx_lane;
	struct rail_opening next_rx;
	struct rail_opening *next_tx;	/* [ntx] */
	struct rail_opening first;	/* contact lane; stays in this object
					 * (rail_contact_lane.c) */
	struct fid_fabric *contact_fabric; /* first.lane.lock guards it
					    * and the next field */
	struct fid_domain
		*contact_domain; /* domain of the contact lane; nothing
				  * is registered in it for peers */

	struct rail_tx tx[RAIL_TX_MSGS];
	void *tx_mem;
	struct fid_mr *tx_mr;
	/* guarded by dp->sched */
	struct tei_list tx_free;
	uint32_t tx_left;		/* entries of tx_free */
	struct tei_list reverse_left; /* rail_reverse objects of freed peers */
	uint64_t bulk_bytes;	      /* bulk data in slices that are cut and
				       * have not returned, bytes */
	uint32_t throttled_left;      /* number of whole slices of bulk data
				       * for which the rail stays
				       * throttled; */
	uint64_t throttled_part;      /* bytes already cut of the next slice
				       * of that number */
	uint32_t turn;			/* number of the current
					 * accounting round, from 1 */
	uint32_t participants,
		participants_before;	/* connections that took bulk data, in
					 * this and in the last accounting
					 * round */
	uint64_t taken;			/* bulk bytes cut in this accounting
					 * round */
	uint64_t turn_ns;		/* start of the accounting round
					 * (served_ns of a lane) */

	/* atomic: */
	bool open;
	bool hidden;			/* another rail has replaced this one:
					 * only peers that already know this
					 * rail still use it. Set under
					 * dp->sched */
	uint32_t state;			/* enum te_rail_state */
	uint64_t inflight_max, window;
	uint64_t window_max;
	uint64_t stuck;			/* bytes posted that have stopped
					 * moving, */
	uint64_t stuck_bulk;		/* and the bulk part of them */
	uint64_t base_ns;		/* shortest time of a slice on an idle
					 * lane, 0: unknown */
	uint64_t retries, errors;
	uint64_t rate_bps;		/* service rate, bytes/s */
	uint64_t free_bps;		/* service rate while not
					 * throttled, bytes/s */
	bool throttled;			/* rail_window_throttle has limited the
					 * rail recently */
	bool link_down;			/* the rail's interface has no
					 * carrier */
	bool lost;			/* lost rail: an endpoint could not be
					 * opened */
	uint32_t away;			/* number of tx lanes that were retired
					 * and not yet replaced by an open
					 * lane */
	uint64_t state_changes;
	uint32_t ifindex;		/* index of the rail's interface, 0:
					 * none. An interface that is deleted
					 * and created again has a new index */
	bool wire;			/* fixed: the rail is on an IP network
					 * other than loopback */
	uint64_t lost_next_ns;		/* thread: lost rail: time of the next
					 * attempt to open its lanes */
	uint64_t stuck_ns;		/* thread: last time that a lane
					 * was retired because a
					 * connection was stuck */
	struct rail_opening probe;	/* endpoint of the probes; stays in this
					 * object (rail_probe.c) */
	uint32_t first_state;		/* enum rail_contact_lane_state */
	uint64_t first_next_ns;		/* thread: TAKEN: time of
					 * the next attempt */
	uint32_t first_tries;		/* thread: attempts so far */
	uint64_t probe_begin_ns;	/* thread: start of
					 * the round of probes */
	uint64_t probe_end_ns;		/* thread: end of that round; 0: the
					 * endpoint has just been opened */
	bool probing;			/* thread: the probe endpoint
					 * is open or opening */
	struct tei_log_limit err_limit;
	struct tei_log_repeat err_repeat;
};

/*
 * The address to which an rx lane may send user messages for a peer
 * (rail_reverse.c). Owned by the peer. When the peer is freed, the rail owns
 * this object until the address has been removed from the address vector.
 * Changes need dp->sched and the lock of the rx lane; reading needs only the
 * lock of the rx lane.
 */
struct rail_reverse {
	struct tei_list link;		/* in rail->reverse_left */
	fi_addr_t addr;			/* the peer's address in the AV of the
					 * rx lane */
	uint32_t gen;			/* generation of the rx lane that addr
					 * is valid for, 0: none */
	struct tei_rail_addr to;
	uint64_t received_ns;		/* atomic: time of the last message that
					 * the rx lane received from the peer */
	bool good;			/* atomic: usable */
};

/* A raw key, mapped for one local rail. */
struct rail_raw {
	uint16_t rail;			/* index of the local rail */
	uint16_t part;			/* index into part of the rail_rkey */
	uint64_t key64;
};

/* A remote key: the keys of a peer's region, or of a part of a region, for each
 * of the peer's rails. Guarded by dp->sched. */
struct rail_rkey {
	struct tei_list link;		/* in peer->keys */
	struct rail_rkey *same;		/* next in the bucket
					 * of peer->key_ids */
	struct rail_raw *raw;
	uint32_t nraw;
	uint64_t base, len, id;
	uint32_t slices;		/* unfinished slices that use the remote
					 * key */
	bool read_only;			/* the region must not be written */
	bool revoked;			/* the peer has revoked the key, so it
					 * is not in peer->rkeys; freed when
					 * slices is 0 */
	uint16_t nparts;
	struct rail_rkey_part {
		uint16_t rail_id;	/* index of the rail at the peer */
		uint8_t rank;		/* rank of the rail for the memory at
					 * the peer; 0: preferred */
		uint8_t key_len;
		uint8_t key[RAIL_KEY_MAX];
		uint64_t key64;		/* the key as a number,
					 * unless it is raw */
		uint64_t offset;	/* offset of base in the peer's
					 * registration */
	} part[];
};

/* The revoked keys of one region that slices still use. */
struct rail_draining {
	uint64_t id;			/* id of the region */
	uint32_t keys;
	bool answer;			/* REVOKED must be sent when keys
					 * reaches 0 */
};

/* The fence of one remote rail. Guarded by dp->sched. */
struct rail_fence {
	bool wanted;			/* a FENCE must be sent repeatedly until
					 * the peer has answered */
	bool unfenced;			/* this fence was abandoned: nothing may
					 * be posted to the peer until a later
					 * attempt succeeds */
	uint32_t gen;			/* the fence covers lane generations up
					 * to this one */
	uint32_t tries;
	uint64_t next_ns;
	uint64_t since_ns;		/* time of the first
					 * attempt, 0: none yet */
};

/* A remote rail, as described by the peer's last HELLO or FENCED. Guarded by
 * dp->sched. */
struct rail_remote {
	uint16_t id;			/* index of the rail at the peer */
	uint8_t prefix;
	bool virt_addr;			/* keys are used with
					 * virtual addresses */
	bool gen_keys;			/* a new generation has new keys */
	uint32_t gen;
	uint32_t serial;		/* changes with addr; never reused */
	bool away;			/* the peer has closed the rx lane and
					 * is reopening it; the rail has no
					 * address meanwhile */
	bool hint;			/* this entry is not a rail, but an
					 * address at which the peer was found;
					 * used for hellos only */
	char name[64];
	struct tei_rail_addr addr;
	struct rail_fence fence;
};

/* A socket of a provider. The descriptor number may be reused by another file,
 * so the inode is remembered too. */
struct rail_socket {
	int fd;				/* -1: unknown */
	unsigned long ino;
};

/*
 * A connection: a tx lane and a remote rail. Owned by the peer. The two slots
 * of the tx lane share the connection; it always belongs to the active slot.
 */
struct rail_conn {
	/* fixed */
	struct tei_rail_peer *peer;
	uint16_t remote;		/* index into peer->remotes */

	/* guarded by the lock of the active lane */
	uint32_t lane_gen, remote_serial; /* generation and remote serial that
					   * fi_addr is valid for */
	fi_addr_t fi_addr;
	bool ready;			/* fi_addr is valid */
	bool used;			/* something was posted to fi_addr */
	bool cut;			/* the provider's connection of lane_gen
					 * was cut, and the provider may not
					 * have closed it yet */
	struct rail_socket old;		/* cut: its socket, if known */
	uint64_t old_ns;		/* cut: start of the wait until the
					 * provider has closed it, 0: not
					 * waiting */
	bool connected;			/* an operation has completed on this
					 * connection */
	bool excluded;			/* excluded: just cut because of the
					 * peer, so that errors are not counted
					 * against the rail */
	bool blocked_now;		/* a post of the current bundle has
					 * returned -FI_EAGAIN */
	uint32_t posted;		/* slices posted on the
					 * lane of lane_gen */
	uint64_t moves;			/* atomic: progress counter: incremented
					 * when a slice completes, or is posted
					 * on the idle connection */
	uint64_t check_moves, check_ns; /* thread: value of moves at the last
					 * change that a check has seen, and the
					 * time of that check, */
	uint64_t looked_ns;		/* time of the check that found moves
					 * unchanged, */
	struct rail_conn *check_next;	/* and next entry in the list of that
					 * check (rail_stall.c) */
	uint64_t blocked_ns;		/* no post before this
					 * time, 0: no limit */
	uint64_t since_ns;		/* start of connecting,
					 * 0: not connecting */
	uint64_t asked_ns;		/* time of the last message, 0: none */
	uint32_t backoff_us;
	uint32_t failed_attempts; /* atomic: failed attempts: lanes that
				   * were renewed because this connection
				   * did not connect; set to 0 when it
				   * connects */

	bool suspect;			/* atomic: a send has found that the
					 * connection does not come up; the
					 * progress thread was not notified */

	/* guarded by dp->sched */
	uint32_t inflight;		/* slices cut for the connection and not
					 * yet returned */
	uint64_t bytes;			/* payload of those slices */
	uint64_t bulk_bytes;		/* the bulk part of bytes */
	uint32_t took_in;		/* last accounting round (rail->turn) in
					 * which the connection took bulk data,
					 * 0: none */
	uint32_t room;			/* slices that the provider accepts at a
					 * time, 0: unknown */
	uint32_t fits;			/* slices cut since room was set */
	uint32_t msgs;			/* messages sent and not completed */
	struct rail_cache_slot *slot;	/* place in the endpoint
					 * cache, or NULL */
	struct rail_cache_slot *leaving; /* entry of the evicted connection that
					  * is to be closed, or NULL */
	struct tei_list wait_link;	/* in rail_cache.waiting, or unlinked */
};

enum rail_peer_state {
	RAIL_PEER_NEW,		/* the peer has not answered a hello; only its
				 * contact addresses are known */
	RAIL_PEER_READY,	/* the peer's hello has arrived; its rails are
				 * known */
	RAIL_PEER_GONE,		/* the peer takes no new work; tasks for it fail
				 * at once */
};

/* Knowledge about a peer in state RAIL_PEER_GONE. */
enum rail_gone {
	RAIL_GONE_PERHAPS,	/* the peer may be alive: posted slices may
				 * still land and wait for their fence */
	RAIL_GONE_OVER,		/* posted slices have landed or never will */
	RAIL_GONE_LEFT,		/* the peer has sent BYE: it no longer accesses
				 * our memory either */
};

struct rail_key_want {
	uint64_t addr, len;
	bool active;
	uint32_t tries;
	uint64_t next_ns;
	uint64_t since_ns;		/* time of the first
					 * attempt, 0: none yet */
};

/* Notifications to be sent to a peer (rail_notify.c). Guarded by dp->sched. */
struct rail_notify_out {
	struct tei_list list;		/* tei_rail_outgoing.link:
					 * unacknowledged notifications in
					 * order; those that already have a
					 * number come first */
	uint32_t n;			/* entries of list */
	uint64_t bytes;			/* total length of the texts in list */
	uint64_t last;			/* newest number assigned, 0: none */
	uint64_t turn;			/* turn of the newest NOTIFY */
	uint64_t gap_turn;		/* gaps that the peer reported for this
					 * turn or an older one have been
					 * handled */
	uint32_t window;		/* limit of unacknowledged NOTIFY
					 * messages */
	uint32_t tries;			/* number of messages since the last
					 * progress that were repetitions or
					 * queries whether the peer has room */
	uint64_t since_ns;		/* start of waiting for an answer, 0: no
					 * answer is due */
	uint64_t next_ns;		/* time of the next repetition, 0: no
					 * repetition is due */
	bool full;			/* the peer has no room; it is queried
					 * until it has */
};

/* Notifications received from a peer (rail_notify_recv.c). Guarded by
 * dp->sched. */
struct rail_notify_recv {
	uint64_t stream;		/* session in which the peer numbers its
					 * notifications, 0: none */
	uint64_t next;			/* number expected next, 0: unknown */
	uint64_t base;			/* oldest number that the peer still
					 * holds */
	struct rail_notify_part *part;	/* notification assembly, or NULL */
	bool answer_pending;		/* an answer with the next two values is
					 * due: */
	uint16_t code;			/* enum rail_notify_code */
	uint64_t turn;			/* turn of the NOTIFY that is
					 * answered */
	struct tei_list wait_link;	/* in dp->notes.waiting, or unlinked */
	uint32_t wait_name, wait_msg;	/* lengths of the notification
					 * that waits for room */
	uint64_t wait_ns;		/* time of the peer's last request for
					 * room */
};

/*
 * Counts the notifications that are queued for the owner of the data plane or
 * are being assembled. Guarded by dp->sched.
 */
struct rail_notify_budget {
	uint64_t bytes;			/* bytes of notifications that are held,
					 * reserved or being assembled */
	uint32_t notes;
	struct tei_list parts;		   /* rail_notify_part.link:
					    * longest idle first */
	struct tei_list waiting;	   /* rail_notify_recv.wait_link:
					    * longest wait first */
	struct rail_notify_memory *memory; /* sessions of freed peers
					    * (rail_notify_recv.c), or NULL */
	bool shut;			   /* set by tei_rail_notify_stop */
	bool closed;			/* tear-down: no waiting
					 * peer gets room */
	struct tei_log_repeat full_repeat;
	struct tei_log_limit lost_limit;
};

/*
 * Atomics to and from a peer (rail_atomic.c). Guarded by dp->sched, except for
 * the book, which only the progress thread uses.
 */
struct rail_atomics {
	/* as the initiator */
	struct tei_list tasks;		/* tei_rail_task.queue_link: unanswered
					 * atomics in order */
	uint64_t next_seq;
	uint64_t session;		/* session that the peer
					 * gave us, 0: none */
	bool notified;			/* the peer's hello has named the
					 * session */
	bool fresh;			/* some tasks may be unsent */
	uint32_t round;			/* number of ATOMIC messages composed so
					 * far */
	uint32_t tries;
	uint64_t next_ns;		/* time of the next repetition */
	uint64_t since_ns;		/* time of the last answer, 0: no answer
					 * is due */
	/* as the target */
	uint64_t own_session;
	struct rail_atomic_book *book;	/* atomics executed for
					 * the peer, or NULL */
};

/*
 * A remote process. Created by tei_rail_peer_get or when its hello arrives.
 * Freed when it is no longer used, or with the data plane. All fields are
 * guarded by dp->sched unless marked.
 */
struct tei_rail_peer {
	struct tei_rail_dp *dp;		/* fixed */
	uint64_t incarnation;		/* fixed */
	char name[256];
	struct tei_list link;		/* in dp->peers */
	struct tei_list attn_link;	/* in dp->attn, or unlinked */
	struct tei_list active_link;	/* in dp->active, or unlinked */
	struct tei_list hash_link;
	uint32_t refs;			/* references from
					 * outside the data plane */
	enum rail_peer_state state;	/* atomic */
	enum rail_gone gone;		/* only in state RAIL_PEER_GONE */
	uint64_t gone_ns;		/* time at which the peer became GONE */
	bool known_us;			/* the peer has answered or sent a
					 * hello */

	struct tei_rail_addr *firsts;	/* contact addresses from the peer's
					 * last hello; the peer listens there as
					 * long as it lives */
	uint16_t nfirsts;
	uint16_t first_turn;
	uint64_t first_next_ns;		/* no address of firsts is tried before
					 * this time */
	uint64_t not_there_ns;		/* time at which an address of firsts
					 * turned out to belong to another
					 * process; 0: never */
	uint32_t table_seen;		/* newest rail table version received */
	uint32_t table_acked;		/* newest version of our rail table that
					 * the peer has */
	uint64_t notified_rails;	/* bits: local rails that were listed in
					 * a hello to the peer */
	bool want_hello;		/* a hello must be sent so that the peer
					 * becomes READY */
	bool awake;			/* a sign of life after
					 * silence must be handled */
	uint32_t hello_tries;		/* thread: hellos since
					 * the last answer */
	uint64_t hello_next_ns;		/* thread: no hello before this time */
	bool reply_hello;		/* the peer's hello must be answered */
	uint64_t resolve_next_ns;	/* no call of ops->resolve
					 * before this time */
	uint64_t presumed_ns;		/* time at which the peer was
					 * presumed dead; void if alive_ns
					 * is later; 0: never */
	uint64_t presume_next_ns;	/* no check by rail_presume_ask before
					 * this time, unless the peer gave a
					 * sign of life since */
	uint64_t presume_asked_ns;	/* time of the last such check */
	struct tei_rail_addr found_at;	/* address that the owner found, to be
					 * tried; len 0: none */
	uint64_t found_ns;		/* time at which found_at was found with
					 * the peer's incarnation */

	uint32_t found_turn;		/* counter that selects the
					 * address to try next */

	/* The remote rails. Until the hello is answered, the entries are the
	 * contact addresses. */
	struct rail_remote *remotes;
	uint16_t nremotes;
	uint16_t remotes_room;		/* allocated entries */
	struct rail_contact {		/* rail_contact.c; RAIL_PEER_NEW only */
		uint32_t pairs;		/* thread: pairs of rail and address
					 * at the last count */
		uint32_t from;		/* thread: first pair of the current
					 * group */
		uint64_t until_ns;	/* thread: time at which the next group
					 * follows, ns; 0: no group yet */
		uint64_t sent;		/* thread: bit i: the hello was sent to
					 * pair from + i */
		uint32_t rounds;	/* thread: passes over all pairs */
		uint64_t refused;	/* bits: contact addresses at which
					 * another process answers */
	} contact;
	uint16_t its_contact;		/* contact number of the peer's last
					 * hello, from 1; 0: none */
	bool conns_short;		/* an allocation in rail_conn_table
					 * failed; it must be called again */
	uint32_t serial;		/* last serial given to a remote rail */
	int16_t route[TEI_RAIL_MAX];	/* local rail → index
					 * into remotes, or -1 */
	bool ranked;			/* the remote rails differ in rank for
					 * some of the peer's memory */
	bool choice;			/* rail_select_remote.c must select
					 * the remote rail */
	/* paths: the connections, [(rail * lanes_per_rail + lane) * remotes_cap
	 * + remote]; each rail_conn keeps its address until the peer is
	 * freed */
	uint32_t turn;			/* counter for MC_PATH_ROUNDROBIN */
	struct rail_conn **conns;
	uint32_t path_rails;		/* number of local rails that paths has
					 * room for */
	uint16_t remotes_cap;

	struct tei_list small;		/* small requests that are not
					 * completely cut, */
	struct tei_list queue;		/* and bulk requests that are not */
	uint32_t overtaken;		/* small requests served since
					 * the last bulk slice */
	uint32_t queued;
	struct tei_list live;		/* unfinished tasks, in order */
	uint64_t moved_ns;		/* time of the last completion, or of
					 * the first task after an idle time */
	uint64_t still_ns;		/* last time at which MC_SLICE_TIMEOUT
					 * ended a task */
	struct tei_list retry;		/* retry list */
	struct tei_list awaiting_fence; /* awaiting-fence list */
	uint32_t posted;		/* slices posted on lanes */
	uint32_t unfenced;		/* remote rails with an
					 * abandoned fence; nothing is
					 * posted while this is not 0 */
	struct rail_failure {		/* the last slice that failed */
		const struct rail *rail;
		uint64_t ns;		/* time, 0: none */
		int err, prov;		/* FI_E*; the provider's code or 0 */
		char text[96];		/* text of the provider */
	} last_failure;

	struct tei_list keys;		/* all rail_rkey objects, revoked ones
					 * included */
	struct rail_rkey **rkeys;	/* valid keys, sorted by base */
	uint32_t nrkeys, rkeys_cap;
	struct rail_rkey **key_ids;	/* hash table by region id,
					 * rkeys_cap buckets */
	uint32_t key_epoch;		/* a KEY_REP with a lower epoch is
					 * void */
	struct rail_key_want key_want;
	struct rail_draining *draining;	/* revoked keys that slices still use */
	uint32_t ndraining, draining_cap;
	uint64_t *answer_pending; /* region ids for which
				   * REVOKED is due */
	uint32_t nowed, answer_pending_cap;

	/* as the target */
	uint64_t *revokes;		/* region ids that the
					 * peer must drain */
	uint32_t nrevokes, revokes_cap;
	uint64_t revoke_next_ns;
	bool fences_pending;
	struct rail_fence_reply {
		uint32_t gen;
		bool answer_pending;
	} fence_reply[TEI_RAIL_MAX];	/* by our rail */
	uint64_t refuse;		/* thread: incarnation that the peer's
					 * hello names; the hello must be
					 * refused; 0: none */
	enum rail_refusal refusal;	/* thread: reason of the refusal */
	uint8_t refuse_nonce[16];	/* thread: nonce of the refused hello */
	uint16_t refuse_contact;	/* thread: contact
					 * number in that hello */
	bool resolver;			/* resolver: finds the process that
					 * has an address; incarnation 0, not
					 * in the hash table */
	uint64_t found;			/* resolver: incarnation
					 * found, 0: none yet */
	bool unauthenticated;		/* unauthenticated peer: exists only
					 * to be refused; always GONE, not
					 * in the hash table */
	uint64_t unauthenticated_ns;	/* end of the attempts to refuse it */

	/* thread: what authenticates messages from and to the peer */
	uint8_t nonce[16];
	uint8_t its_nonce[16];		/* changed under sched by the thread;
					 * other threads read it under sched */
	uint64_t sent;			/* atomic: number of the
					 * newest message sent */
	uint64_t newest, hello_newest;	/* numbers of messages received */
	uint64_t seen[RAIL_AUTH_WORDS];
	struct rail_key_reply {
		uint64_t addr, len;
		bool answer_pending;
	} key_reply;

	struct rail_atomics atomics;
	struct rail_notify_out note_out;
	struct rail_notify_recv note_in;
	uint64_t due_ns;		/* when it must run,
					 * while in dp->attn */
	uint64_t asked_ns;		/* start of waiting for the
					 * answer to a hello */
	uint32_t msg_turn;		/* thread: counter of
					 * off-route pairs tried */
	uint64_t silent_next_ns;	/* thread: no rail_renew_silent
					 * before this */
	uint64_t again_ns;		/* thread: since when no rail
					 * has taken a message, 0: the
					 * last one was taken */
	bool announce;			/* our rail table has
					 * changed: send a hello */
	bool stuck;			/* a connection does not come up */
	uint64_t alive_ns;		/* time of the last sign of life */
	uint64_t tried_ns;		/* time since which the peer has had a
					 * place in an endpoint cache without
					 * giving a sign of life; void if
					 * alive_ns is later */
	bool rehello;			/* thread: a hello must be sent again */
	uint32_t hint_turn;		/* thread: alternates
					 * between routes and hint */
	bool probing;			/* a sign of life is requested */
	bool evicted;			/* the peer is GONE and no longer
					 * counted in dp->npeers */
	uint64_t probe_ns;		/* time of that request */
	uint64_t served_ns[TEI_RAIL_MAX]; /* time of the last completion, by
					   * local rail */
	bool bye_sent;			/* tear-down only */
	struct rail_renew {		/* lane renewals because of
					 * stuck connections */
		uint64_t next_ns;	/* thread: no renewal before this
					 * time */
		uint32_t tries;		/* thread: renewals since
					 * the last success */
		bool linked;		/* atomic: a connection of the new lane
					 * has come up */
	} renew[TEI_RAIL_MAX];		/* by our rail */
	bool warm_wanted;		/* warm-up: connect every rail */
	uint64_t warm_left;		/* thread: bits, rails
					 * still to connect */
	struct tei_log_limit err_limit;
	struct tei_log_repeat err_repeat, complete_repeat;
	struct rail_loss {		/* lost connections to be logged */
		uint64_t rails;		/* bits: local rails that lost a
					 * connection */
		uint64_t due_ns;	/* time of the log line, 0: none due */
		uint64_t next_ns;	/* no other line before this time */
		int err, prov;		/* of the first: FI_E*;
					 * the provider's code */
		char text[96];		/* of the first: text of the provider */
	} loss;
	struct tei_rail_peer_stats stats; /* counters */
	uint64_t born_ns;		/* fixed: time since which stats
					 * counts */
	struct rail_served served;
	bool routes_changed;		/* a log line about the routes is due */
	uint64_t said;			/* thread: hash of the last log line
					 * about the routes */
	struct tei_log_limit report_limit;

	struct tei_list faults;		/* rail_health.h */
	int32_t received;		/* atomic: local and remote rail that
					 * carried the peer's last message
					 * (rail_msg.c), -1: none */
	struct rail_reverse
		*back[TEI_RAIL_MAX];	/* atomic: by our rail, or NULL */
	uint64_t reverse_rails;		/* bits: our rails for which a
					 * BACK must be sent */
	uint64_t reverse_next_ns;	/* no BACK before this time */
	uint64_t pongs[RAIL_PONGS];	/* numbers of probes to answer */
	uint32_t npongs;
	bool pong;			/* a PING without a number
					 * must be answered */
	uint32_t revoke_tries;		/* thread */
	uint64_t life_next_ns;		/* thread: time of the next PING
					 * for a sign of life */
	uint32_t life_tries;		/* thread: such PINGs
					 * without an answer */
};

#define RAIL_PEER_HASH	1024

struct rail_slice_chunk {
	struct rail_slice_chunk *next;
	struct rail_slice slice[256];
};

/* Approximate accounting of polls by callers: if two callers poll at once, one
 * may not be counted. All fields are atomic. */
struct rail_polls {
	uint64_t calls;
	uint64_t took_ns;		/* total duration of the polls */
	uint64_t since_ns;		/* start of the poll
					 * in progress, or 0 */
};

/* A data plane. Created by tei_rail_dp_open, freed by tei_rail_dp_close. */
struct tei_rail_dp {
	/* fixed */
	const struct tei_settings *settings;
	const struct tei_rail_ops *ops;
	void *arg;
	uint64_t incarnation;
	char name[256];
	bool signs;			/* messages are signed
					 * with a shared secret */
	bool back;			/* reverse-path sends are
					 * wanted (rail_reverse.c) */
	bool reports;			/* peers get the totals of moved
					 * bytes (rail_served.h) */
	uint64_t info_flags;		/* for fi_getinfo */
	uint16_t port;			/* port of the first rx lanes, 0: any */
	uint32_t next_port;		/* atomic: next index in the range of
					 * MOONRAIL_DATA_PORTS */
	struct tei_rail_mr *placeholder; /* placeholder region for unregistered
					  * local memory, or NULL */
	uint32_t wants;			/* atomic: TEI_RAIL_WANTS_… */
	struct tei_mac_key auth;
	int wake_fd;
	pthread_t thread;
	cpu_set_t cpus;			/* CPUs on which the thread may run */
	bool thread_started;
	bool stop;			/* atomic: the thread must end */
	bool quiet;			/* atomic: ops->resolve,
					 * ops->rails_changed and
					 * ops->devices_changed are
					 * no longer called */

	struct tei_mutex admin;		/* held while rails are opened and
					 * memory is registered */
	struct rail *rails[TEI_RAIL_MAX]; /* an entry never changes
					   * once it is set */
	uint32_t nrails;		/* atomic */
	const struct tei_topo *topo;	/* guarded by admin */
	struct {			/* guarded by admin: devices that
					 * could not be opened; repeated
					 * failures are not logged */
		char name[RAIL_FAILED_MAX][64];
		uint32_t n;
	} failed;
	uint64_t devices_seen;		/* guarded by admin: hash of the
					 * interfaces at the last
					 * tei_rail_dp_devices_changed */
	bool warned_full;		/* guarded by admin: a refresh has
					 * logged that no rail is left */

	struct tei_mutex sched;		/* guards the fields below */
	struct tei_rail_mr **mrs;	/* sorted by address; changed only while
					 * dp->admin is held too */
	struct tei_list revoking;	/* tei_rail_mr whose keys
					 * are being revoked */
	struct tei_rail_mr **mrs_mem;	/* allocation that contains
					 * mrs, mrs_cap entries */
	uint32_t nmrs, mrs_cap;
	uint64_t mr_next_id;
	uint64_t sessions;		/* last session given to a peer */
	uint32_t key_epoch;		/* incremented by every revocation */
	pthread_cond_t cond;		/* signaled after revocations,
					 * warm-up and drains */
	uint32_t table;			/* version of our rail table */
	struct tei_list peers;		/* longest silent
					 * first, approximately */
	uint64_t bye_ns;		/* time limit for sending BYE; the same
					 * time again is the limit for its
					 * completion */
	uint64_t stuck_ns;		/* time without progress of a task and
					 * of the rail that it names, after
					 * which the task may use any rail */
	uint64_t probe_ns;		/* silence after which an unused peer is
					 * pinged; the peer is dropped after
					 * another third of this time */
	uint32_t npeers;
	struct tei_log_limit peer_limit;
	uint32_t nstrangers;		/* unauthenticated peers;
					 * not among npeers */
	uint32_t strangers_ever;
	uint64_t unauthenticated_next_ns;
	struct tei_list hash[RAIL_PEER_HASH];
	struct tei_list attn;		/* peers whose state
					 * machines must run */
	struct tei_list active;		/* peers with slices to post */
	uint32_t nactive;		/* atomic */
	bool stirred;			/* tasks were submitted since the last
					 * check of the progress thread */
	uint64_t bulk_left;		/* bytes of bulk requests not yet cut */
	uint32_t nlive;			/* atomic: unfinished
					 * tasks of all peers */
	uint32_t nheld;			/* atomic: unfinished tasks, and
					 * finished tasks not yet handed back to
					 * the caller */
	struct tei_list slices;		/* free slices */
	struct rail_slice_chunk *chunks;
	uint32_t nfencing;		/* atomic: regions that
					 * wait for a fence */
	uint64_t attn_next_ns;		/* atomic: time at which the next
					 * peer in attn is due */
	struct tei_list faults;		/* rail_health.h */
	uint64_t probe_seq;		/* number of the newest probe */
	struct rail_notify_budget notes;

	/* atomic: */
	struct rail_polls polls;	/* polls of tx lanes by callers */
	struct rail_polls rx_polls;	/* polls that included the rx lanes */
	uint32_t nseekers;		/* resolvers */
	uint32_t app_driving;		/* callers that poll in a loop */
	uint32_t dozing;		/* callers that sleep until tasks end */
	uint64_t rests_ns;		/* end of the progress thread's current
					 * long sleep, 0: it does not sleep
					 * long */
	bool thread_trusts;		/* the thread sleeps and leaves lanes to
					 * callers that poll */
	uint32_t turn;			/* index of the rail that is offered
					 * work first */
	bool wake_pending;
	uint64_t open_ns;		/* recent time to open a lane, ns */
	uint32_t nfaults;
	bool health_soon;		/* a probe was answered: run
					 * the health checks */
	bool reopened;			/* a lane has been reopened */
	bool off_route;			/* an off-route connection has a
					 * place in a cache */

	/* thread: */
	int link_fd;			/* -1: none */
	uint64_t link_next_ns;		/* next check of links that are down */
	uint64_t devices_next_ns;	/* without link_fd: next call of
					 * ops->devices_changed */
	uint64_t health_ns;		/* last health check */
	uint64_t tidy_ns;		/* no check of off-route
					 * connections before this */
	uint64_t silent_next_ns;	/* no rail_renew_silent before this */
	uint64_t probe_next_ns;
	uint32_t probing;		/* rails whose probe endpoint is open */
};

/*
 * Stands for dp->sched in clang's lock analysis, which cannot see that peer->dp
 * and lane->rail->dp are one object. Used in annotations only, never defined.
 */
extern struct tei_mutex rail_sched_held;

static inline void rail_sched_enter(struct tei_rail_dp *dp)
	TEI_ACQUIRE(rail_sched_held) TEI_NO_TSA
{
	tei_mutex_lock(&dp->sched);
}

static inline void rail_sched_leave(struct tei_rail_dp *dp)
	TEI_RELEASE(rail_sched_held) TEI_NO_TSA
{
	tei_mutex_unlock(&dp->sched);
}

/* Waits on dp->cond for up to timeout_ns. */
static inline void rail_sched_wait(struct tei_rail_dp *dp, uint64_t timeout_ns)
	TEI_REQUIRES(rail_sched_held) TEI_NO_TSA
{
	tei_mutex_wait(&dp->cond, &dp->sched, timeout_ns);
}

/* Collects what ended or arrived while a lock was held; rail_done_run reports
 * it after the lock has been released. */
struct rail_done {
	struct tei_list tasks;		/* tei_rail_task.live_link:
					 * tasks that ended */
	struct tei_list received;	/* tei_rail_notification.link,
					 * for ops->notify */
	struct tei_list messages;	/* tei_rail_message.link,
					 * for ops->message */
};

/* --- rail_info.c: discovery of devices ----------------------------------- */
struct rail_found {
	char name[64];
	char ifname[64];		/* network interface of the device, or
					 * "" */
	struct fi_info *info;		/* one entry, owned */
	uint8_t prefix;
	bool fallback;			/* opened only if nothing better is
					 * found: loopback, or not the
					 * preferred IP version */
	struct rail_found *next;
};
/* Searches for the devices of a transport. devices: comma list, or "" for all.
 * flags: for fi_getinfo. Returns 0 and a list in *out, which the caller frees
 * with rail_info_free, or an error code. */
int rail_info_find(const struct tei_settings *s, const char *transport,
		   const char *devices, uint64_t flags, struct tei_err *err,
		   struct rail_found **out);
/* Like rail_info_find, but without error records and log lines, for repeated
 * searches. Returns NULL if nothing was found. */
struct rail_found *rail_info_find_again(const struct tei_settings *s,
					const char *transport,
					const char *devices, uint64_t flags);
/* Logs a warning for each interface that could be a rail but lacks a link (or,
 * if the rails in list are fallback rails, an address). follow: the log line
 * says that the interface will be used as soon as it has a link (or an
 * address). */
void rail_info_warn_lacking(const struct tei_settings *s,
			    const struct rail_found *list, bool follow);
void rail_info_free(struct rail_found *list);
/* Returns an fi_info of the same device that also supports GPU memory, or NULL
 * if the provider does not offer this. The caller frees it. */
struct fi_info *rail_info_hmem(const struct fi_info *info, uint64_t flags);
/* Returns true if neither a nor b is NULL and both contain the same IP
 * address. */
bool rail_info_same_ip(const struct sockaddr *a, const struct sockaddr *b);

/* --- rail_dp.c ----------------------------------------------------------- */

/* Advice for the limit TEI_RAIL_MAX. */
#define RAIL_FULL_HINT \
	"each device takes one, and so does each new address; create the engine again, or name fewer devices in MOONRAIL_DEVICES"

/* Opens one more rail and registers all registered regions on it. Does nothing
 * if the device has a rail already. */
int rail_dp_add(struct tei_rail_dp *dp, const struct rail_found *found,
		const char *transport, struct tei_err *err)
	TEI_REQUIRES(dp->admin);
/* Returns true if the device has a rail that need not be replaced. */
bool rail_dp_has(struct tei_rail_dp *dp, const struct rail_found *found,
		 const char *transport) TEI_REQUIRES(dp->admin);
/* Closes one rail while the data plane stays open. Slices posted on the rail
 * are fenced and then posted over other rails; rail_peer_announce notifies the
 * peers. */
void rail_dp_close_rail(struct tei_rail_dp *dp, struct rail *rail)
	TEI_REQUIRES(dp->admin);

/* --- rail_open.c: one rail ----------------------------------------------- */
/* Opens a rail. quiet: a failure fills err and is not logged. */
int rail_open(struct tei_rail_dp *dp, const struct rail_found *found,
	      const char *transport, bool quiet, struct tei_err *err,
	      struct rail **out);
/* Closes the tx lanes only; rail_close closes the rest of the rail. */
void rail_close_initiating(struct rail *rail);
void rail_close(struct rail *rail);
void rail_free(struct rail *rail);
/* Returns the rail with that index. */
struct rail *rail_at(struct tei_rail_dp *dp, uint32_t index);
/* Returns the number of rails, closed ones included. */
uint32_t rail_count(struct tei_rail_dp *dp);
/* Writes a fabric address as text. */
void rail_addr_text(const struct tei_rail_addr *addr, char *buf, size_t len);
bool rail_any_open(struct tei_rail_dp *dp);
/* Return approximate sums over all lanes of the rail: rail_posted_bytes the
 * bytes that are posted now, rail_moved the number of slices completed since
 * the rail was opened. Any thread. */
uint64_t rail_posted_bytes(const struct rail *rail);
uint64_t rail_moved(const struct rail *rail);
/* Returns true if a slice is posted on any rail, approximately. Any thread. */
bool rail_posted_any(struct tei_rail_dp *dp);

/* --- rail_lane.c: endpoints ---------------------------------------------- */
void rail_lane_init(struct rail_lane *lane, struct rail *rail, bool target,
		    uint16_t index);
/* Opens the endpoint with a new generation. On failure nothing stays open. */
int rail_lane_open(struct rail_lane *lane, struct tei_err *err)
	TEI_REQUIRES(lane->lock);
/* Reads the CQ and posts as many slices as there is room for. Returns true if
 * anything happened. */
bool rail_lane_poll(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock);
/* Returns true if the lane has receive buffers. The result is the same in the
 * lane's whole life. */
bool rail_lane_receives(const struct rail_lane *lane);
/* Returns true if the lane's descriptor will report everything that arrives
 * from now on, so that a thread may sleep on it. Returns false if something has
 * arrived. */
bool rail_lane_sleep_ready(struct rail_lane *lane) TEI_REQUIRES(lane->lock);
/* Returns the fabric of the lane's queues. lane->lock is held. */
struct fid_fabric *rail_lane_fabric(const struct rail_lane *lane);
/* Reads and discards the events of the EQ; logs errors. */
void rail_lane_drain_eq(struct rail_lane *lane) TEI_REQUIRES(lane->lock);

/* --- rail_contact.c: the first hello to a peer ---------------------------- */
/*
 * Sends the hello in buf (len bytes) to the current group of contact addresses
 * of a peer that has not answered yet. Returns 0 if the hello was sent to all
 * addresses of the group, -FI_EAGAIN if some are not connected yet,
 * -FI_EHOSTUNREACH if no local rail can reach any address. The thread.
 */
int rail_contact_hello(struct tei_rail_peer *peer, uint8_t *buf, size_t len,
		       uint64_t now, uint32_t attempt);
/* Records that another process answers at the contact address with that number
 * (from 1; 0: unknown). Returns true if the peer has other addresses that must
 * be tried, or if it has answered meanwhile. */
bool rail_contact_refused(struct tei_rail_peer *peer, uint16_t number)
	TEI_REQUIRES(rail_sched_held);
/* Logs the contact address at which the peer has answered. Must be called while
 * peer->remotes still holds the contact addresses. */
void rail_contact_answered(struct tei_rail_peer *peer, const struct rail *rail,
			   uint16_t number) TEI_REQUIRES(rail_sched_held);

/* --- rail_contact_lane.c: a rail's contact address
 * ------------------------------ */
/* Decides, when the rail is opened, whether this process can still listen at
 * the rail's address after a fence. */
void rail_contact_lane_init(struct rail *rail);
/* Opens the contact lane, because the first rx lane of the rail was closed. The
 * thread calls this function and the next three. */
void rail_contact_lane_left(struct rail *rail);
/* Retries a failed opening of the contact lane when it is due. */
void rail_contact_lane_run(struct rail *rail, uint64_t now);
/* If the opening of a contact lane has ended, handles the result and announces
 * it to the peers. */
void rail_contact_lane_collect(struct rail *rail);
/* Waits until an opening in progress has ended. Called by the thread, or by
 * another thread after the progress thread has stopped. */
void rail_contact_lane_stop(struct rail *rail);
/* Returns true if this process listens at the contact address, or is about to.
 * Any thread. */
bool rail_contact_lane_held(const struct rail *rail);

/* --- rail_reverse.c: reverse-path sends -------------------------------------
 */
/* Returns true if the rail supports reverse-path sends. */
bool rail_reverse_fits(const struct rail *rail);
/* Records that a user message arrived at the rx lane. If the peer could have
 * used the reverse path instead, a BACK is sent to the peer. */
void rail_reverse_missed(struct tei_rail_peer *peer,
			 const struct rail_lane *lane)
	TEI_REQUIRES(rail_sched_held);
/* Records that a message arrived at the rx lane, which shows that the
 * connection to this lane is alive. */
void rail_reverse_received(struct tei_rail_peer *peer,
			   const struct rail_lane *lane)
	TEI_REQUIRES(rail_sched_held);
struct rail_wire;
/* Handles a BACK that the peer sent to that rx lane. */
void rail_reverse_notified(struct tei_rail_peer *peer, struct rail_lane *lane,
			   struct rail_wire *w) TEI_REQUIRES(lane->lock)
	TEI_REQUIRES(rail_sched_held);
/* Sends a user message over the reverse path. Returns 0, -FI_EAGAIN if there
 * is no buffer, or another error if there is no usable reverse path. Any
 * thread. */
int rail_reverse_send(struct tei_rail_peer *peer, struct rail *rail,
		      const void *msg, size_t len);
/* Marks the reverse path unusable, because a message on it failed. */
void rail_reverse_fail(struct tei_rail_peer *peer, const struct rail *rail)
	TEI_REQUIRES(rail_sched_held);
/* Releases the reverse path before the peer, or the rail, is freed. */
void rail_reverse_free(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
void rail_reverse_fini(struct rail *rail);

/* --- rail_closing.c: closing lanes --------------------------------------- */
/* Closes the lane; waits if a closer thread is already closing it. Slices still
 * posted are moved to aborted. */
void rail_lane_close(struct rail_lane *lane, struct tei_list *aborted)
	TEI_REQUIRES(lane->lock);
/* Cuts the connections of a lane without slices and closes it. The flag selects
 * an asynchronous close, like that of rail_closing_start. */
void rail_lane_shutdown(struct rail_lane *lane, bool throttled);
/* Starts a closer thread that closes the lane. From now on the lane has no
 * endpoint, and it is RETIRING until rail_closing_collect has succeeded. */
void rail_closing_start(struct rail_lane *lane) TEI_REQUIRES(lane->lock);
/* Returns true if the closing of the lane has begun and its end was not
 * collected yet. Any thread. */
bool rail_closing_under_way(const struct rail_lane *lane);
/* Collects the end of a closing. Returns true if the closer thread has
 * finished: the lane is then CLOSED, and slices still posted are moved to
 * aborted. The closer thread wakes the progress thread when it has finished. */
bool rail_closing_collect(struct rail_lane *lane, struct tei_list *aborted)
	TEI_REQUIRES(lane->lock);

/* --- rail_cloexec.c: descriptors that programs must not inherit ---------- */
/* Sets close-on-exec on the descriptors of a lane that has just been opened. */
void rail_cloexec_opened(struct rail_lane *lane) TEI_REQUIRES(lane->lock);
/* Sets close-on-exec on descriptors that the lane has opened since, and returns
 * their number. */
uint32_t rail_cloexec_lane(struct rail_lane *lane) TEI_EXCLUDES(lane->lock);

/* --- rail_disconnect.c: the sockets of a lane
 * ----------------------------------- */
/* Shuts down all connections of the lane and polls it until the errors have
 * been read, so that its endpoint can be closed. Returns after a bounded
 * time. */
void rail_disconnect(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock);
enum rail_disconnect {
	RAIL_CUT_NONE, /* no connection to that address */
	RAIL_CUT_SOME,
	RAIL_CUT_UNKNOWN, /* unknown: the provider's sockets cannot be
			   * found, or a socket has no remote address yet,
			   * or a socket was accepted from a peer */
};
/* Shuts down the lane's connections to that address (a sockaddr). If the result
 * is RAIL_CUT_SOME and which is not NULL, *which is set to the socket of such a
 * connection. */
enum rail_disconnect rail_disconnect_one(struct rail_lane *lane,
					 const void *addr, size_t len,
					 struct rail_socket *which)
	TEI_REQUIRES(lane->lock);
/* Returns true if the provider has not closed the socket yet. */
bool rail_disconnect_there(const struct rail_socket *which);
/* Returns what rail_disconnect_one would return, but shuts down nothing. */
enum rail_disconnect rail_disconnect_find(struct rail_lane *lane,
					  const void *addr, size_t len)
	TEI_REQUIRES(lane->lock);
/* The connections of a lane as one scan found them. A scan of a thousand
 * connections takes milliseconds. Only the thread makes, uses and frees such
 * lists. */
struct rail_disconnect_list {
	struct rail_lane *lane;
	struct rail_disconnect_seen *seen; /* sorted by address */
	uint32_t n, cap;
};
/* Scans the connections of a lane, which is locked only for a moment. The
 * thread, because only the progress thread closes lanes. */
void rail_disconnect_list(struct rail_lane *lane,
			  struct rail_disconnect_list *list);
void rail_disconnect_list_free(struct rail_disconnect_list *list);
/*
 * Returns true if the kernel received anything from that address in the last ms
 * milliseconds, or knows that the process there does not read its sockets.
 * asked: a message was sent to the address for this check, so the function also
 * returns true if everything has been acknowledged.
 */
bool rail_disconnect_received(const struct rail_disconnect_list *list,
			      const void *addr, size_t len, uint32_t ms,
			      bool asked);
/* Returns the number of bytes that the other end's kernel has acknowledged on
 * the connections of the list to that address. Connections on which it has
 * acknowledged everything are not counted. */
uint64_t rail_disconnect_acked(const struct rail_disconnect_list *list,
			       const void *addr, size_t len);
/* Does what rail_disconnect_one does, but faster if list, a list of this lane,
 * contains the connection. */
void rail_disconnect_listed(struct rail_lane *lane,
			    const struct rail_disconnect_list *list,
			    const void *addr, size_t len)
	TEI_REQUIRES(lane->lock);
/* Returns whether a connection to that address could still carry data.
 * RAIL_CUT_UNKNOWN: the provider's sockets cannot be found, or a socket was
 * accepted from a peer. */
enum rail_disconnect rail_disconnect_lives(struct rail_lane *lane,
					   const void *addr, size_t len)
	TEI_REQUIRES(lane->lock);
/* Returns true if the provider's sockets can be found and it reaches addresses
 * like this one through sockets. */
bool rail_disconnect_shows(struct rail_lane *lane, const void *addr, size_t len)
	TEI_REQUIRES(lane->lock);
/* Returns true if a connection to that address awaits an answer
 * (rail_tcp_pending). */
bool rail_disconnect_pending(struct rail_lane *lane, const void *addr,
			     size_t len) TEI_REQUIRES(lane->lock);
/* Returns true if the lane has a connection to that address and every such
 * connection is silent (rail_tcp_silent). */
bool rail_disconnect_silent(struct rail_lane *lane, const void *addr,
			    size_t len) TEI_REQUIRES(lane->lock);
/* Returns the number of the lane's connections whose sockets can be found. */
uint32_t rail_disconnect_count(struct rail_lane *lane) TEI_REQUIRES(lane->lock);

/* --- rail_tcp.c: the state of a TCP connection --------------------------- */
/* Does what rail_disconnect_received does, for one socket. ms 0: ignores what
 * the kernel has received. */
bool rail_tcp_received(int fd, uint32_t ms, bool asked);
/* Returns the number of bytes that the other end has acknowledged since the
 * connection was made, or 0 if it has acknowledged everything. */
uint64_t rail_tcp_acked(int fd);
/* Returns true if the other end's kernel acknowledged everything some time ago,
 * but the process there has not answered, or has answered only a moment ago. */
bool rail_tcp_pending(int fd);
/*
 * Returns true if the other end's kernel has acknowledged nothing through two
 * retransmission timeouts, or has answered neither of two window probes.
 * Returns false for a stopped process, because its kernel continues to
 * acknowledge.
 */
bool rail_tcp_silent(int fd);
/* How the kernel at an address (a sockaddr) answers an attempt to connect. */
enum rail_tcp_answer {
	RAIL_TCP_SILENT,	/* no answer in time, or another error */
	RAIL_TCP_REFUSED,	/* no process listens there */
	RAIL_TCP_ACCEPTED,
};
/* Tries to connect, waits for up to wait_ns, and closes the connection. */
enum rail_tcp_answer rail_tcp_ask(const void *addr, size_t len,
				  uint64_t wait_ns);

/* --- rail_reg.c: registering on a rail ----------------------------------- */
/* For all functions of this section, the caller holds dp->admin, or the rail is
 * not visible to other threads. */
int rail_mr_open_on(struct tei_rail_mr *mr, struct rail *rail,
		    struct tei_err *err);
void rail_mr_close_on(struct tei_rail_mr *mr, struct rail *rail);
/* Registers the region on all open rails (rail_mr_open.c). The region's ranks
 * must be known. On failure it is registered on no rail and an error code is
 * returned. */
int rail_mr_open_all(struct tei_rail_dp *dp, struct tei_rail_mr *mr,
		     struct tei_err *err) TEI_REQUIRES(dp->admin);
/* Unregister the regions that are bound to the rail's rx lane before the lane
 * is closed, and register them again for the new lane. */
void rail_mr_unbind(struct rail *rail) TEI_REQUIRES(rail->dp->admin);
void rail_mr_rebind(struct rail *rail) TEI_REQUIRES(rail->dp->admin);
/* --- rail_hmem.c: GPU memory --------------------------------------------- */
/* Finds out, before the rail is opened, whether it accepts GPU memory. */
void rail_hmem_ask(struct rail *rail);
/* Returns the function that reports errors of opening the rail: tei_err_fail,
 * or a function that only fills err, if the rail is quiet or if its opening
 * with FI_HMEM is in progress or has failed. */
typedef int (*rail_err_fn)(struct tei_err *err, int code, const char *subsys,
			   const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
rail_err_fn rail_open_err_fn(const struct rail *rail);
/*
 * Report the steps of opening a rail with FI_HMEM: rail_hmem_leave marks that
 * the opening has failed and that the rail is now opened without FI_HMEM;
 * rail_hmem_without logs that the second attempt succeeded, with the error of
 * the first; rail_hmem_neither reports both errors, of the first attempt (why)
 * and of the second (err).
 */
void rail_hmem_leave(struct rail *rail);
void rail_hmem_without(struct rail *rail, const struct tei_err *why);
void rail_hmem_neither(const struct tei_err *why, struct tei_err *err);
/* Fills err with the reason why the rail does not accept GPU memory. Returns
 * the error code. */
int rail_hmem_refuse(const struct rail *rail, struct tei_err *err);
/* Returns the reason why the region cannot be registered through dma-buf, or
 * NULL if it can. */
const char *rail_hmem_no_dmabuf(const struct tei_rail_mr *mr);
/* Registers a part of the region. Returns 0 or -FI_E*. */
int rail_hmem_reg(struct fid_domain *domain, const struct tei_rail_mr *mr,
		  enum tei_rail_way way, void *addr, size_t len,
		  uint64_t access, uint64_t key, uint64_t flags,
		  struct fid_mr **out);
/* Returns true if the rail must not access the region. */
static inline bool rail_hmem_foreign(const struct tei_rail_mr *mr,
				     const struct rail *rail)
{
	return mr && mr->gpu && !mr->part[rail->index].n;
}

/* Registers memory of the data plane itself, for messages. Returns 0 or
 * -FI_E*. */
int rail_reg_own(struct rail *rail, struct fid_domain *domain, void *mem,
		 size_t len, uint64_t access, struct fid_mr **out);

/* The failed attempts to register a region on a rail. */
struct rail_reg_tried {
	uint64_t most, least;		/* bytes per registration, at the first
					 * and at the last attempt */
	uint32_t done, pieces;		/* number of registrations made, and
					 * number needed, at the last size */
};

/* Limits that a failed registration may have reached. */
struct rail_limits {
	uint64_t memlock;		/* locked memory, bytes;
					 * UINT64_MAX: no limit */
	uint64_t pinned_kib;		/* memory pinned by this process, KiB */
	uint64_t count;			/* number of registrations on the
					 * rail */
	uint64_t max_count;		/* limit of the device; 0: unknown */
	uint64_t max_size;		/* limit of bytes per registration; 0:
					 * unknown */
	size_t key_size;		/* bytes of a key that moonrail
					 * chooses */
};

/* Fills out with the limits; with zeros if the error ret is not about a
 * limit. */
void rail_limits_get(const struct rail *rail, int ret, struct rail_limits *out);

/* Writes to out which limit the error ret stands for, and the value of this
 * limit; "" if the limit is unknown. */
void rail_limits_text(const struct rail_limits *l,
		      const struct rail_reg_tried *t, int ret, char *out,
		      size_t cap);

/* Does what rail_limits_text does, but for other pinned memory, such as the
 * queues of an endpoint. May be called with any lock held. */
void rail_limits_memory(int ret, char *out, size_t cap);

/* Returns the number of bytes from addr to the end of the registration that
 * contains it. */
static inline uint64_t rail_mr_room(const struct tei_rail_mr *mr,
				    const struct rail_mr_part *part,
				    const char *addr)
{
	uint64_t off = (uint64_t)(addr - mr->addr);

	return (((off >> part->shift) + 1) << part->shift) - off;
}

/* --- rail_mr.c: local memory --------------------------------------------- */
/* Returns the READY region that contains [addr, addr + len), or NULL. */
struct tei_rail_mr *rail_mr_find(struct tei_rail_dp *dp, const void *addr,
				 uint64_t len) TEI_REQUIRES(rail_sched_held);
/* Does what rail_mr_find does, but also finds a region that is being
 * unregistered. For a caller that holds the region (tei_rail_mr_hold). */
struct tei_rail_mr *rail_mr_find_held(struct tei_rail_dp *dp, const void *addr,
				      uint64_t len)
	TEI_REQUIRES(rail_sched_held);
/* Returns the lowest rail_mr_part.shift of the region on any rail. */
uint8_t rail_mr_shift(struct tei_rail_dp *dp, const struct tei_rail_mr *mr);
/* Computes the region's ranks again. */
void rail_mr_rank(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held);
/* Returns the ranks of the rails for the byte at addr. */
const uint8_t *rail_mr_ranks(const struct tei_rail_mr *mr, const char *addr)
	TEI_REQUIRES(rail_sched_held);
void rail_mr_free_all(struct tei_rail_dp *dp);
int rail_mr_open_placeholder(struct tei_rail_dp *dp, struct tei_err *err);
void rail_mr_close_placeholder(struct tei_rail_dp *dp);

/* --- rail_conn.c: connections and routes --------------------------------- */
/* Returns the connection of this lane to that remote rail, or NULL before
 * rail_conn_table. */
struct rail_conn *rail_conn_get(struct tei_rail_peer *peer,
				struct rail_lane *lane, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if the connection has an address handle for the current
 * generations. The lane's lock is held too. */
bool rail_conn_is_ready(const struct tei_rail_peer *peer,
			const struct rail_conn *conn,
			const struct rail_lane *lane, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);
/* Gives the connection an address handle for the current generations. gen:
 * generation of the remote rail for which a slice was cut, 0: any. Returns 0,
 * -FI_EAGAIN if the remote rail no longer has generation gen, or another
 * -FI_E*. */
int rail_conn_ready(struct tei_rail_peer *peer, struct rail_conn *conn,
		    struct rail_lane *lane, uint16_t remote, uint32_t gen)
	TEI_REQUIRES(lane->lock);
/* Blocks posts to the connection for a while after a post has returned
 * -FI_EAGAIN. busy: slices are posted on the connection, so the reason was a
 * full queue. Returns true if the connection has been connecting for a
 * suspiciously long time. */
bool rail_conn_block(struct rail_conn *conn, uint64_t now, bool busy);
/* Returns true if the connection appears to be up. Checks the connection's
 * sockets, because the loss of an idle connection causes no completion. */
bool rail_conn_lives(struct rail_lane *lane, struct rail_conn *conn)
	TEI_REQUIRES(lane->lock);
/* Increments the progress counter, because a slice was posted on the idle
 * connection, or a slice has completed. The lane's lock is held. */
static inline void rail_conn_moved(struct rail_conn *conn)
{
	__atomic_store_n(&conn->moves, conn->moves + 1, __ATOMIC_RELAXED);
}
/* Returns the index of a local rail that can reach addr, or -1. */
int rail_conn_fit_any(struct tei_rail_dp *dp, const struct tei_rail_addr *addr);
/* Returns the remote rail for the next slice of a local rail, or -1. */
int16_t rail_conn_route(struct tei_rail_peer *peer, const struct rail *rail)
	TEI_REQUIRES(rail_sched_held);
/* Allocates the connections of every pair of rails and chooses the routes.
 * Called by the thread or during set-up. */
int rail_conn_table(struct tei_rail_peer *peer) TEI_REQUIRES(rail_sched_held);
/* Returns how well a local rail can reach a remote rail: 0 not at all or only a
 * hint, 1 perhaps, through a router, 2 same network, 3 same address. */
int rail_conn_fit(const struct rail *rail, const struct rail_remote *remote);
/* Returns what rail_conn_fit returns, but also for a hint. */
int rail_conn_reach(const struct rail *rail, const struct rail_remote *remote);
/* Decides whether remote rails must be selected per slice (rail_select_remote).
 * Must be called whenever routes or ranks have changed. */
void rail_select_table(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/*
 * Selects the remote rail for a slice that the lane will carry. key: remote key
 * of the remote memory; ranks: ranks of the rails for the local memory; length:
 * bytes of the whole request. *now: the time, or 0 until it is needed. Returns
 * -1 if no remote rail can be reached.
 */
int16_t rail_select_remote(struct tei_rail_peer *peer, struct rail_lane *lane,
			   const struct rail_rkey *key, const uint8_t *ranks,
			   uint64_t length, uint64_t *now)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);
/* Chooses the routes again after a pair has failed or recovered: the affected
 * local rails are routed to another remote rail, or back to their usual one. */
void rail_conn_reroute(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/*
 * Returns an off-route remote rail that the local rail might reach, for
 * messages; turn selects one in rotation. A doubtful pair
 * (rail_health_doubtful) is returned only if all other pairs are doubtful as
 * well: it may then be the only way for the fence. Returns -1 if there is none.
 */
int16_t rail_conn_other(const struct tei_rail_peer *peer,
			const struct rail *rail, uint32_t turn)
	TEI_REQUIRES(rail_sched_held);
void rail_conn_free_all(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* rail_conn_take counts a slice on the connection for which it was cut;
 * rail_conn_reverse removes the slice from the count when it has completed,
 * failed or could not be posted. */
void rail_conn_take(struct rail_conn *conn, struct rail_slice *slice)
	TEI_REQUIRES(rail_sched_held);
void rail_conn_reverse(struct rail_slice *slice) TEI_REQUIRES(rail_sched_held);
/* Do what rail_conn_take and rail_conn_reverse do, for a message.
 * rail_conn_sent allows tx->conn to be NULL. */
void rail_conn_send(struct rail_conn *conn, struct rail_tx *tx)
	TEI_REQUIRES(rail_sched_held);
void rail_conn_sent(struct rail_tx *tx) TEI_REQUIRES(rail_sched_held);

/* --- rail_window.c (rail_sched.h) ---------------------------------------- */
#define RAIL_WINDOW_MAX		(64u << 20)
#define RAIL_WINDOW_FIRST	(1u << 20)	/* window, bytes, while the rate
						 * is unknown */
void rail_window_init(struct rail *rail, uint64_t max);
/* Returns the number of bytes that may be posted on the rail; stuck bytes are
 * not counted. */
uint64_t rail_window(const struct rail *rail);
/*
 * Returns the number of bytes of bulk data that may be posted on a rail while
 * small requests are active. Posts complete in order and connections share the
 * wire, so a small request waits for everything posted before it. The limit
 * therefore holds for the rail and is divided among the connections that use
 * it.
 *
 * Two slices of half the usual size are the minimum that keeps a wire busy: the
 * second one is in flight while the first one is acknowledged. So up to about 1
 * Gbit/s a small request waits for at most one slice of MC_SLICE_SIZE. On a
 * faster rail a small request waits for half a millisecond, or with
 * MOONRAIL_SMALL_FIRST for a quarter of a millisecond. The round-trip time is
 * added.
 *
 * Returns UINT64_MAX (no limit) on loopback, on networks other than IP, and
 * while the rate is unknown.
 */
uint64_t rail_window_throttle(const struct rail *rail);
/* Return the number of bytes that are posted on the rail and not stuck:
 * rail_window_held of all data, rail_window_bulk of bulk data only. */
uint64_t rail_window_held(const struct rail *rail);
uint64_t rail_window_bulk(const struct rail *rail)
	TEI_REQUIRES(rail_sched_held);
/* Updates the rail's service rate and its window after bytes have completed. */
void rail_window_measure(struct rail_lane *lane, uint64_t bytes, uint64_t now)
	TEI_REQUIRES(lane->lock);
/* Record that a slice was posted on an idle lane (rail_window_begin), and that
 * this slice has completed (rail_window_alone). */
void rail_window_begin(struct rail_lane *lane, struct rail_slice *slice,
		       uint64_t now) TEI_REQUIRES(lane->lock);
void rail_window_alone(struct rail_lane *lane, uint64_t now)
	TEI_REQUIRES(lane->lock);
/* Records that nothing is posted on the lane any longer. */
void rail_window_empty(struct rail_lane *lane) TEI_REQUIRES(lane->lock);

/* --- rail_slice.c, _post.c, _end.c, _retry.c, _sched.c (rail_sched.h) ---- */
/* Takes a slice from the free list. Returns NULL if memory is short. */
struct rail_slice *rail_slice_get(struct tei_rail_dp *dp)
	TEI_REQUIRES(rail_sched_held);
void rail_slice_put(struct tei_rail_dp *dp, struct rail_slice *slice)
	TEI_REQUIRES(rail_sched_held);
/* Cuts and posts slices until the lane is full or nothing is left. now: a
 * recent time if the caller knows one, else 0. Returns true if anything was
 * posted. */
bool rail_sched_pull(struct rail_lane *lane, uint64_t now,
		     struct rail_done *done) TEI_REQUIRES(lane->lock);
/* Lets every active lane cut and post slices, in the calling thread. now: as
 * above. */
void rail_sched_kick(struct tei_rail_dp *dp, uint64_t now);
/* Polls the lane unless another thread does. Returns true if anything
 * happened. */
bool rail_lane_run(struct rail_lane *lane);
/* Offers new work to the lane: cuts and posts it, or makes the thread that
 * holds the lane's lock poll once more. now: as above. */
void rail_lane_kick(struct rail_lane *lane, uint64_t now);
/* Returns true if the lane is open and takes work. The answer may be outdated
 * at once. Any thread. */
bool rail_lane_active(const struct rail_lane *lane);
/* Handles the successful completion of a slice. */
void rail_slice_complete(struct tei_rail_dp *dp, struct rail_slice *slice,
			 uint64_t now, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/*
 * Returns the provider's text if it says more about the error err (FI_E*) than
 * err itself, otherwise "". Sets *prov, the provider's code, to 0 if the code
 * is an errno that has nothing to do with a connection, such as ENOENT.
 */
const char *rail_prov_text(int err, int *prov, const char *text);
/* Returns a hint: what the user can do about the error fi_err (FI_E*), "" for
 * 0. */
const char *rail_failure_hint(int fi_err);
/* Stores the provider's error of a failed slice in peer->last_failure. */
void rail_peer_remember_failure(struct tei_rail_peer *peer,
				const struct rail *rail, int err, int prov,
				const char *text) TEI_REQUIRES(rail_sched_held);
/*
 * Records that a connection to the peer over the rail was lost or could not be
 * established. A log line for all rails is written a little later
 * (rail_loss.c).
 */
void rail_loss_add(struct tei_rail_peer *peer, const struct rail *rail, int err,
		   int prov, const char *text)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if the next log line of rail_loss.c reports a lost connection of
 * this rail. */
bool rail_loss_noted(const struct tei_rail_peer *peer, const struct rail *rail)
	TEI_REQUIRES(rail_sched_held);
/* Copies the last error remembered by rail_peer_remember_failure into the error
 * record of a task. */
void rail_peer_last_failure(const struct tei_rail_peer *peer,
			    struct tei_err *err) TEI_REQUIRES(rail_sched_held);
/* Handles a slice that failed with err (FI_E*) or whose lane was closed. The
 * slice waits for a fence and is then posted again, on any rail. */
void rail_slice_handle_error(struct tei_rail_dp *dp, struct rail_slice *slice,
			     int err, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Fails all slices in aborted, which were posted on a lane that has been
 * closed. No lock is held. */
void rail_slice_abort_all(struct tei_rail_dp *dp, struct tei_list *aborted);
/* Ends a task during tear-down, even if slices of it are posted. */
void rail_task_drop(struct tei_rail_task *task, const struct tei_err *err,
		    struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Stops waiting for the fences of ended tasks: their slices are dropped and the
 * tasks end as UNFENCED. */
void rail_peer_fail_unfenced(struct tei_rail_peer *peer, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Fails the slices and tasks that wait for the key of [addr, addr + len),
 * because the peer refused it with code. */
void rail_sched_no_key(struct tei_rail_peer *peer, uint64_t addr, uint64_t len,
		       int code, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Fails the writes that wait for the key of [addr, addr + len), because the
 * peer allows only reads of the region. */
void rail_sched_read_only(struct tei_rail_peer *peer, uint64_t addr,
			  uint64_t len, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Handles the end of a fence of that remote rail for generations up to gen:
 * slices that waited for this fence are posted again. */
void rail_sched_fenced(struct tei_rail_peer *peer, uint16_t remote,
		       uint32_t gen, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Ends a task at once or, if slices of the task are posted, as soon as they
 * have returned. Copies err. */
void rail_task_end(struct tei_rail_dp *dp, struct tei_rail_task *task,
		   enum tei_rail_end end, const struct tei_err *err,
		   struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Prepares an empty collection. */
void rail_done_init(struct rail_done *done);
/* Reports the collected tasks, notifications and messages through ops. No lock
 * may be held. */
void rail_done_run(struct tei_rail_dp *dp, struct rail_done *done);
/* Returns true if the peer has nothing to cut and nothing to retry. */
bool rail_slice_none(const struct tei_rail_peer *peer);
/* Puts the peer on dp->active if it has slices to post, or requests a hello if
 * the peer is not READY yet. */
void rail_peer_activate(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* --- rail_peer.c: peers; rail_ctl.c (rail_ctl.h): their state machines --- */
/* Returns the peer with that incarnation, or NULL. */
struct tei_rail_peer *rail_peer_find(struct tei_rail_dp *dp,
				     uint64_t incarnation)
	TEI_REQUIRES(rail_sched_held);
/* Creates a peer, after evicting another one if the table is full. Returns NULL
 * on failure. */
struct tei_rail_peer *rail_peer_new(struct tei_rail_dp *dp, const char *name,
				    uint64_t incarnation)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if the table of peers is full. If rail_peer_new has just failed
 * and this returns false, memory was short. */
bool rail_peer_no_room(const struct tei_rail_dp *dp)
	TEI_REQUIRES(rail_sched_held);
/* Puts the peer on dp->attn, due now, and wakes the thread. */
void rail_peer_attend(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Records a sign of life. */
void rail_peer_alive(struct tei_rail_peer *peer, uint64_t now)
	TEI_REQUIRES(rail_sched_held);
/* Requests a sign of life from one of the peers that have been silent for long.
 * The thread, no lock held. */
void rail_peer_probe(struct tei_rail_dp *dp, uint64_t now);
/* Makes the peer READY when its first hello has arrived. */
void rail_peer_ready(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/*
 * Moves the peer to RAIL_PEER_GONE. The peer's tasks end as FAILED. A task with
 * posted slices ends only after these slices have been fenced, or as UNFENCED
 * if they cannot be fenced. Unless the peer is RAIL_GONE_LEFT, a region whose
 * keys the peer holds can be unregistered only with a fence of our rx lanes.
 * May be called again when more is known about the peer.
 */
void rail_peer_set_gone(struct tei_rail_peer *peer, const char *why,
			enum rail_gone gone, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if no posted slice can land at the peer any more. */
bool rail_peer_over(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if tasks or slices for the peer are in progress. */
bool rail_peer_busy(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if the peer is not busy and has no references. */
bool rail_peer_unused(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Drops an unused peer, although its process may be alive. */
void rail_peer_forget(struct tei_rail_peer *peer, const char *why,
		      struct rail_done *done) TEI_REQUIRES(rail_sched_held);
void rail_peer_free_all(struct tei_rail_dp *dp);
/*
 * Sets the n contact addresses of a peer that has not answered yet; does
 * nothing to other peers. Returns TEI_ERR_MEMORY if the peer cannot be reached
 * for lack of memory; a later call tries again.
 */
int rail_peer_set_contacts(struct tei_rail_peer *peer,
			   const struct tei_rail_addr *at, size_t n)
	TEI_REQUIRES(rail_sched_held);
/* Makes room for n entries of peer->remotes. Returns 0, or TEI_ERR_MEMORY
 * without any change. */
int rail_peer_reserve(struct tei_rail_peer *peer, size_t n)
	TEI_REQUIRES(rail_sched_held);
/* Sends hellos to the address found_at as well, if this address is new (a
 * hint). The thread. */
void rail_peer_take_hint(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Stores the n contact addresses that the peer sent in a hello. If memory is
 * short, the old ones remain. */
void rail_peer_take_firsts(struct tei_rail_peer *peer,
			   const struct tei_rail_addr *at, uint16_t n)
	TEI_REQUIRES(rail_sched_held);
/* Drops the hint, because another process answers at its address. Returns true
 * if the peer has other contact addresses that must be tried. */
bool rail_peer_not_there(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Copies the next address of peer->firsts to found_at, if an attempt is due and
 * found_at is empty. */
void rail_peer_next_first(struct tei_rail_peer *peer, uint64_t now)
	TEI_REQUIRES(rail_sched_held);
/* Returns peer->nremotes. As long as peer->remotes holds contact addresses, any
 * thread may change their number. Acquires dp->sched. */
uint16_t rail_peer_remotes(const struct tei_rail_peer *peer);
/* Returns true if hellos currently go to a hint. */
bool rail_peer_searched(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Returns the index of the hint in peer->remotes if the rail reaches it, or
 * -1. */
int16_t rail_peer_hint(const struct tei_rail_peer *peer,
		       const struct rail *rail) TEI_REQUIRES(rail_sched_held);
/* Removes the hint's address, because the peer's rails are known again. The
 * thread. */
void rail_peer_drop_hint(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Chooses all routes again and sends a hello to the peers, because our rails
 * have changed. Calls ops->rails_changed. */
void rail_peer_announce(struct tei_rail_dp *dp);
/* Returns true if a local rail reaches the address and that rail's provider
 * uses sockets that can be examined. */
bool rail_peer_by_socket(struct tei_rail_dp *dp, const struct tei_rail_addr *at);
/* Sends BYE to the peers, during tear-down. Returns true if BYE was sent to all
 * peers. */
bool rail_peer_bye(struct tei_rail_dp *dp);
/* Returns true if the peer is orphaned: it has never answered, and no user or
 * task refers to it. */
bool rail_peer_orphaned(const struct tei_rail_peer *peer);
/* Frees a peer that is unused and either gone or orphaned. Returns true if it
 * was freed. */
bool rail_peer_maybe_free(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Creates an unauthenticated peer, which exists until its hello has been
 * refused. first: address to which the refusal is sent. Returns NULL if there
 * are too many. */
struct tei_rail_peer *
rail_peer_unauthenticated(struct tei_rail_dp *dp, uint64_t incarnation,
			  const struct tei_rail_addr *first,
			  enum rail_refusal why) TEI_REQUIRES(rail_sched_held);
/* Creates a resolver for the process that has that address. The caller owns a
 * reference to it. Returns NULL if memory is short. */
struct tei_rail_peer *rail_peer_resolver(struct tei_rail_dp *dp,
					 const struct tei_rail_addr *first)
	TEI_REQUIRES(rail_sched_held);
/* Ends the peer's tasks, because the peer has refused our hello. why: text of
 * the refusal. */
void rail_peer_refused(struct tei_rail_peer *peer, const char *why,
		       struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Runs the state machines of a peer. The thread, no lock held. Returns the time
 * at which they must run again, 0: not before something changes. */
uint64_t rail_peer_run(struct tei_rail_peer *peer, uint64_t now);

/* --- rail_presume.c: peers that are presumed dead ------------------------ */
/* Returns true if the peer is presumed dead. */
bool rail_presumed(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Fills the error record of a task that ends because the peer is presumed
 * dead. */
void rail_presume_err(const struct tei_rail_peer *peer, struct tei_err *err)
	TEI_REQUIRES(rail_sched_held);
/* Calls ops->resolve if tasks wait for the peer and no connection to it is
 * left. The thread, no lock held. */
void rail_presume_ask(struct tei_rail_peer *peer, uint64_t now);

/* --- rail_key.c: keys requested, given and revoked ----------------------- */
/* Returns the remote key whose range contains addr, or NULL. */
struct rail_rkey *rail_key_find(struct tei_rail_peer *peer, uint64_t addr)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if keys for the whole range are known, for reading or for
 * writing. */
bool rail_key_covers(struct tei_rail_peer *peer, uint64_t addr, uint64_t len,
		     bool read)
	TEI_REQUIRES(rail_sched_held);
/* Does what rail_key_covers does, and requests the first missing key. */
bool rail_key_covers_or_want(struct tei_rail_peer *peer, uint64_t addr,
			     uint64_t len, bool read)
	TEI_REQUIRES(rail_sched_held);
/* Maps a raw key for one of our rails. Returns false on failure. */
bool rail_key_raw(struct rail_rkey *key, uint16_t part,
		  const struct rail *rail, uint64_t *key64)
	TEI_REQUIRES(rail_sched_held);
/* Unmaps all raw keys of the rail before its domain is closed. */
void rail_key_unmap(struct rail *rail);
/* Adds a key that the peer has sent, and takes ownership of it. Returns false
 * if memory is short; the key is then freed. */
bool rail_key_add(struct tei_rail_peer *peer, struct rail_rkey *key)
	TEI_REQUIRES(rail_sched_held);
/* Withdraws the keys of a region that the peer revokes. REVOKED is sent when no
 * slice uses these keys any longer. */
void rail_key_revoked(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);
/* Revokes our region at the peer. Returns 0 or TEI_ERR_MEMORY. */
int rail_key_revoke(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);
/* Handles REVOKED: the peer has drained our region. */
void rail_key_drained(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);
/* Schedules a REVOKED to the peer for that region. */
void rail_key_owe(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);
/* Records that the process was given the key of the region. Returns 0 or
 * TEI_ERR_MEMORY. */
int rail_key_add_holder(struct tei_rail_mr *mr, uint64_t incarnation)
	TEI_REQUIRES(rail_sched_held);
/* Removes a process from the key holders of all regions. sure: the process
 * certainly holds no key any longer; otherwise it may still hold keys, but the
 * data plane no longer knows it. */
void rail_key_holder_gone(struct tei_rail_dp *dp, uint64_t incarnation,
			  bool sure) TEI_REQUIRES(rail_sched_held);
/* Requests the keys of the range with KEY_REQ. */
void rail_key_want(struct tei_rail_peer *peer, uint64_t addr, uint64_t len)
	TEI_REQUIRES(rail_sched_held);
/* Releases a slice's use of the key. */
void rail_key_slice_done(struct tei_rail_peer *peer, struct rail_rkey *key)
	TEI_REQUIRES(rail_sched_held);
/* Withdraws all keys of the peer. */
void rail_key_drop_all(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Frees all keys during tear-down, used or not. */
void rail_key_free_all(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* --- rail_atomic.c ------------------------------------------------------- */
struct rail_wire;
void rail_atomic_init(struct tei_rail_peer *peer);
void rail_atomic_free(struct tei_rail_peer *peer);
/* Queues an atomic to be sent. */
void rail_atomic_enqueue(struct tei_rail_task *task)
	TEI_REQUIRES(rail_sched_held);
/* Prepares the end of the task: if the atomic has not been sent, it never will
 * be. */
void rail_atomic_end(struct tei_rail_task *task)
	TEI_REQUIRES(rail_sched_held);
/* Completes the task's error record during tear-down. */
void rail_atomic_drop(struct tei_rail_task *task);
/* Ends the atomics that were sent and not answered, because the peer is gone.
 * Whether the peer has executed them is unknown. */
void rail_atomic_gone(struct tei_rail_peer *peer, const char *why,
		      struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Stops waiting for the answers of ended tasks. They end as UNFENCED. */
void rail_atomic_give_up(struct tei_rail_peer *peer, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Stores the session that the peer's hello contains, 0: none. */
void rail_atomic_session(struct tei_rail_peer *peer, uint64_t session,
			 struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Handle ATOMIC and ATOMIC_REP. The thread. */
void rail_atomic_asked(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held);
void rail_atomic_answered(struct tei_rail_peer *peer, struct rail_wire *w,
			  struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/* --- rail_fence.c: the fence --------------------------------------------- */
/* Requests a fence of the remote rail for generations up to gen. */
void rail_fence_want(struct tei_rail_peer *peer, uint16_t remote, uint32_t gen)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if a fence of one of the peer's rails is outstanding. */
bool rail_fence_wanted(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* The functions below are called by the thread without a lock. */
/* Opens the rail's rx lane if it could not be opened before. */
void rail_fence_reopen(struct rail *rail);
/* Announces to the peers that the rail's rx lane is open again. */
void rail_fence_reopened(struct rail *rail);
/* Collects the rx lanes that have been closed, and opens the next ones. */
void rail_fence_run(struct tei_rail_dp *dp);
/*
 * Closes the rail's rx lane if its generation is gen or older, and opens a
 * replacement. Returns the lane generation of the replacement. Returns 0 if the
 * lane is not closed yet; the answers to the peers are then sent when it is
 * closed.
 */
uint32_t rail_fence_target(struct rail *rail, uint32_t gen);

/* --- rail_msg.c: the peer protocol --------------------------------------- */
enum rail_msg_type {
	RAIL_MSG_HELLO = 1,  /* our rail table; flag: a reply is wanted */
	RAIL_MSG_REFUSE = 2, /* refuses a hello: enum rail_refusal */
	RAIL_MSG_KEY_REQ = 3,
	RAIL_MSG_KEY_REP = 4,
	RAIL_MSG_FENCE = 5,
	RAIL_MSG_FENCED = 6,
	RAIL_MSG_REVOKE = 7,
	RAIL_MSG_REVOKED = 8,
	RAIL_MSG_NOTIFY = 9,
	RAIL_MSG_BYE = 10,
	RAIL_MSG_ATOMIC = 11,
	RAIL_MSG_ATOMIC_REP = 12,
	RAIL_MSG_USER = 13, /* the bytes of tei_rail_send */
	RAIL_MSG_PING = 14, /* asks for a sign of life, or probes a pair */
	RAIL_MSG_PONG = 15,
	RAIL_MSG_REVERSE = 16, /* reverse path for RAIL_MSG_USER */
	RAIL_MSG_NOTE_ACK = 17,
	RAIL_MSG_BYTES = 18, /* totals of the sender: rail_served.h */
};
/* The functions below are called by the thread without a lock unless they say
 * otherwise. */
struct rail_wire;
/* Starts a message in buf, which has RAIL_MSG_MAX bytes: writes the header. */
void rail_msg_begin(struct tei_rail_peer *peer, struct rail_wire *w,
		    uint8_t *buf, enum rail_msg_type type, uint16_t flags);
/* Completes the header. Returns the length of the message, 0 if it did not
 * fit. */
size_t rail_msg_end(struct rail_wire *w);
/* Write and read a fabric address. rail_msg_get_addr returns false if the
 * address is missing or truncated. Any thread. */
void rail_msg_put_addr(struct rail_wire *w, const struct tei_rail_addr *addr);
bool rail_msg_get_addr(struct rail_wire *w, struct tei_rail_addr *addr);
/* Composes a HELLO in buf. Returns its length, 0 if it did not fit. */
size_t rail_msg_hello(struct tei_rail_peer *peer, bool want_reply,
		      uint8_t *buf);
/* Sends a message over the first rail that accepts it; attempt rotates the
 * order. Returns 0, -FI_EAGAIN while connections are being made or are full, or
 * another negative error if there is no route. */
int rail_msg_send(struct tei_rail_peer *peer, const void *msg, size_t len,
		  uint32_t attempt);
/* Returns -FI_EHOSTUNREACH only if none of our rails fits any rail of the peer.
 * In all other cases changes -FI_EHOSTUNREACH to -FI_EAGAIN, because a link, a
 * route or a lane may work again later. Other values of ret are returned
 * unchanged. */
int rail_msg_verdict(struct tei_rail_peer *peer, int ret);
/* Sends a message over the route of that rail, through the lane with that
 * number. */
int rail_msg_send_on(struct tei_rail_peer *peer, struct rail *rail,
		     uint32_t lane_index, const void *msg, size_t len);
/* Returns the active lane of that number, or NULL. Any thread. */
struct rail_lane *rail_msg_lane(struct rail *rail, uint32_t lane_index);
/* Sends a message from an rx lane to an address of its AV. Returns 0,
 * -FI_EAGAIN if there is no buffer, or another error if there is no connection.
 * Any thread. */
int rail_msg_post_reverse(struct tei_rail_peer *peer, struct rail_lane *lane,
			  fi_addr_t addr, const void *msg, size_t len)
	TEI_REQUIRES(lane->lock);
/* Returns the state of the connection on the rail's route to the peer. Checks
 * all sockets of the lane. Any thread. */
enum rail_msg_link {
	RAIL_MSG_UNLINKED,
	RAIL_MSG_LINKING,	/* a message is under way on it */
	RAIL_MSG_LINKED,
};
enum rail_msg_link rail_msg_link(struct tei_rail_peer *peer, struct rail *rail,
				 uint32_t lane_index);
/* Does what rail_msg_send_on does, but does not poll the lane and does not call
 * rail_renew_if_stuck: sets *lane and *path with which the caller can do so.
 * Any thread. */
int rail_msg_try_on(struct tei_rail_peer *peer, struct rail *rail,
		    uint32_t lane_index, const void *msg, size_t len,
		    struct rail_lane **lane, struct rail_conn **conn);
/* Does what rail_msg_try_on does, but for a given remote rail; -1: the
 * route. */
int rail_msg_try_pair(struct tei_rail_peer *peer, struct rail *rail,
		      uint32_t lane_index, int16_t remote, const void *msg,
		      size_t len, struct rail_lane **lane,
		      struct rail_conn **conn);
/* Returns true if nothing is known to be wrong with the rail's route to the
 * peer. */
bool rail_msg_works(struct tei_rail_peer *peer, const struct rail *rail);
/* Sends a message through any endpoint, to an address of its AV. */
int rail_msg_post(struct tei_rail_peer *peer, struct rail_lane *lane,
		  uint16_t remote, fi_addr_t addr, const void *msg, size_t len);
/* Returns the text that a REFUSE carries next to its code. */
const char *rail_refusal_text(enum rail_refusal why);
/* Handle PING and PONG (rail_probe.c). */
void rail_msg_on_ping(struct tei_rail_peer *peer, struct rail_lane *lane,
		      struct rail_wire *w) TEI_REQUIRES(rail_sched_held);
void rail_msg_on_pong(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held);
/* Handles a received message. If the caller is not the thread, defers
 * everything but user messages to the thread. */
void rail_msg_received(struct rail_lane *lane, const uint8_t *buf, size_t len,
		       struct rail_done *done) TEI_REQUIRES(lane->lock);

/* rail_msg_defer handles the messages that were deferred to the thread,
 * rail_msg_drop_deferred discards them. The thread. */
void rail_msg_defer(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock);
void rail_msg_drop_deferred(struct rail_lane *lane);

/* --- rail_user_msg.c: user messages ------------------------------------------
 */
/* Returns true if both are the same address. */
bool rail_addr_same(const struct tei_rail_addr *a,
		    const struct tei_rail_addr *b);
/* Returns true for a complete sockaddr_in or sockaddr_in6. */
bool rail_addr_is_ip(const struct tei_rail_addr *a);

/* --- rail_ports.c -------------------------------------------------------- */

#define RAIL_PORT_TRIES	8	/* attempts while other
				 * processes take the ports */

/* Returns true if MOONRAIL_DATA_PORTS is set and applies to the lane's rail. */
bool rail_ports_apply(const struct rail_lane *lane, const struct fi_info *info);
/* Sets the source port of info to a free one. Returns 0 or -FI_EADDRNOTAVAIL. */
int rail_ports_set(const struct rail_lane *lane, struct fi_info *info);
/* Returns true if opening the lane failed because its port was taken meanwhile,
 * and another port must be tried. */
bool rail_ports_again(const struct rail_lane *lane, int ret, uint32_t tries);
/* Writes a hint if opening a lane failed because no port was free. */
void rail_ports_hint(const struct rail_lane *lane, int ret, char *hint,
		     size_t len);
/* Collects a received user message in done. */
void rail_user_received(struct tei_rail_peer *peer, const struct rail_wire *w,
			struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Notifies the resolvers of that address that the process has incarnation
 * inc. */
void rail_user_seen(struct tei_rail_dp *dp, uint64_t inc,
		    const struct tei_rail_addr *addr)
	TEI_REQUIRES(rail_sched_held);

/* Returns the buffer to the free list. */
void rail_msg_tx_put(struct rail_tx *tx) TEI_REQUIRES(rail_sched_held);
/* Returns true if no message of the rail is under way on a tx lane. */
bool rail_msg_idle(struct rail *rail);

/* --- rail_auth.c: the shared secret -------------------------------------- */
/* Numbers and signs a complete message to the peer, if there is a secret. sched
 * is not held. */
void rail_auth_sign(struct tei_rail_peer *peer, uint8_t *msg, size_t len);
/* Returns true if the message was signed for this process. peer may be NULL.
 * The message has at least a header. */
bool rail_auth_fits(const struct tei_rail_dp *dp,
		    const struct tei_rail_peer *peer, const uint8_t *msg,
		    size_t len);
/* Returns false if a message with this number was received before, or if the
 * number is too old to know. */
bool rail_auth_once(struct tei_rail_peer *peer, uint64_t number);
/* Returns false if a later hello has been received. */
bool rail_auth_newest_hello(struct tei_rail_peer *peer, uint64_t number);

/* --- rail_report.c ------------------------------------------------------- */

/* Writes the enum tei_topo_rank of each rail for the location; 0 if unknown. */
void rail_report_ranks(struct tei_rail_dp *dp, const char *location,
		       uint8_t ranks[TEI_RAIL_MAX]);

/* --- rail_numa.c --------------------------------------------------------- */

/* Returns the NUMA node of the rail's NIC, -1 if unknown. */
int rail_numa_node(const struct rail *rail);
/* Allocates zeroed pages, on the rail's node if that has room. Returns NULL if
 * memory is short. rail_numa_free releases them. */
void *rail_numa_alloc(const struct rail *rail, size_t size);
void rail_numa_free(void *mem, size_t size); /* NULL is allowed */
/* Checks MOONRAIL_PROGRESS_CPUS before the thread is started. Returns 0 or
 * TEI_ERR_INVALID. */
int rail_numa_check(struct tei_rail_dp *dp, struct tei_err *err);
/* Binds the thread to its CPUs; called again when rails were added. */
void rail_numa_bind(struct tei_rail_dp *dp);

/* --- rail_progress.c ----------------------------------------------------- */

int rail_progress_start(struct tei_rail_dp *dp, struct tei_err *err);
void rail_progress_stop(struct tei_rail_dp *dp);
/* Makes the thread run its peers and checks soon. Any thread. */
void rail_progress_wake(struct tei_rail_dp *dp);
/* Wakes the thread from a long sleep, because something was posted and must be
 * checked for stalls. Any thread. */
void rail_progress_stir(struct tei_rail_dp *dp);
/* Wakes the threads that wait on dp->cond. */
void rail_progress_signal(struct tei_rail_dp *dp);
/* The thread's view of whether callers poll the lanes often enough. */
struct rail_drive {
	uint64_t seen;			/* value of looks->calls at the last
					 * measurement */
	uint64_t looked_ns;		/* value of looks->took_ns then */
	uint64_t since_ns;		/* time of the last measurement */
	bool app_driven;
};
/* Updates drive for the tx lanes. Returns true if callers poll them often
 * enough. */
bool rail_drive_poll(struct tei_rail_dp *dp, struct rail_drive *drive,
		     uint64_t now);
/* Does what rail_drive_poll does, for the rx lanes. */
bool rail_drive_poll_rx(struct tei_rail_dp *dp, struct rail_drive *drive,
			uint64_t now);
/* Records the start of a poll by a caller. */
static inline void rail_polls_begin(struct rail_polls *polls, uint64_t now)
{
	__atomic_store_n(&polls->since_ns, now, __ATOMIC_RELAXED);
}

/* Counts a poll that took no measurable time. */
static inline void rail_polls_count(struct rail_polls *polls)
{
	uint64_t calls = __atomic_load_n(&polls->calls, __ATOMIC_RELAXED);

	__atomic_store_n(&polls->calls, calls + 1, __ATOMIC_RELAXED);
}

/* Counts a poll that began at the time from. */
static inline void rail_polls_end(struct rail_polls *polls, uint64_t from,
				  uint64_t now)
{
	uint64_t took = __atomic_load_n(&polls->took_ns, __ATOMIC_RELAXED);

	rail_polls_count(polls);
	__atomic_store_n(&polls->took_ns, took + now - from, __ATOMIC_RELAXED);
	__atomic_store_n(&polls->since_ns, 0, __ATOMIC_RELAXED);
}

#endif /* TEI_PROV_RAIL_RAIL_INT_H */
