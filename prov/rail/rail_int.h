/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_INT_H
#define TEI_PROV_RAIL_RAIL_INT_H

/*
 * The objects of the data plane. docs/LOCKING.md states the order of dp->admin,
 * lane->lock and dp->sched. "Thread" below is the progress thread of the data
 * plane.
 *
 * Invariants
 *  - A slice is posted a second time only after its first posting was fenced,
 *    so nothing is ever in flight twice and COMPLETED needs no further proof.
 *  - A task ends only when none of its slices is posted or awaits a fence, or
 *    when the fence was given up, which is what UNFENCED says.
 *  - A slice is final for local memory once its completion (good or bad) was
 *    read, or once the lane that carried it was closed.
 *  - Initiating lanes send and post RMA; target lanes receive, and only the
 *    thread opens and closes them. Others that read one hand what is not for the
 *    user of the data plane to the thread. What listens at a rail's first address
 *    again is of a domain without registrations: no RMA lands by it. A reply
 *    travels over an initiating lane of the replying side. But messages of the
 *    user may go from a target lane to an initiating one (rail_back.c).
 *  - Control state (hello, keys, fence, revoke) is run by the thread alone;
 *    what others read of it is guarded by dp->sched.
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

#include "prov/rail/rail_wire.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/settings.h"

#define RAIL_API_VERSION	FI_VERSION(1, 17)
#define RAIL_MSG_MAX		16384	/* bytes of one peer message */
#define RAIL_RX_DEPTH		64	/* receives posted on a lane that has them */
#define RAIL_TX_MSGS		32	/* messages in flight per rail */
#define RAIL_RX_SIZE		((size_t)RAIL_RX_DEPTH * RAIL_MSG_MAX)
#define RAIL_TX_SIZE		((size_t)RAIL_TX_MSGS * RAIL_MSG_MAX)
#define RAIL_BUNDLE		16	/* slices cut per turn */
#define RAIL_CQ_BATCH		32	/* completions read at a time */
#define RAIL_ATOMICS		256	/* atomics under way per peer */
#define RAIL_IOV_MAX		16	/* pieces of one operation */
#define RAIL_KEY_MAX		64	/* bytes of one key, raw keys included */
#define RAIL_PONGS		8	/* probes answered at a time, per peer */
#define RAIL_AUTH_WORDS		8	/* of the numbers seen of a peer */
#define RAIL_STRANGERS		4	/* being refused at a time */
#define RAIL_LANE_SLOTS		2	/* active and retiring, per lane */
#define RAIL_PEER_QUEUE_MAX	(1u << 20) /* tasks queued per peer */
#define RAIL_FAILED_MAX		8	/* names of devices that are remembered */
#define RAIL_TRIED_NS		(500 * TEI_NS_PER_MS) /* a path was, lately */

enum rail_op_kind {
	RAIL_OP_SLICE,
	RAIL_OP_SEND,
	RAIL_OP_RECV,
};

/* First in everything that is given to libfabric as a context. */
struct rail_op {
	struct fi_context2 ctx;
	enum rail_op_kind kind;
};

struct rail_lane;
struct rail;

/*
 * One posted piece of a task, or of several adjacent small ones. Owned by
 * dp->slices (free list); off it, by exactly one of lane->posted (lane lock),
 * peer->retry, peer->limbo (sched lock) or the stack of a posting thread.
 */
struct rail_slice {
	struct rail_op op;
	struct tei_list link;
	struct tei_rail_peer *peer;
	struct rail_lane *lane;		/* where it was posted last */
	struct rail_path *path;
	struct tei_rail_task *first;
	struct tei_rail_mr *mr;
	struct rail_rkey *rkey;		/* counted in rkey->slices */
	const struct tei_rail_extra *extra; /* several pieces; NULL: one */
	uint64_t off;			/* with extra: first byte in the task */
	char *local;
	uint64_t remote;
	uint64_t len;
	uint64_t rma_addr, rma_key;	/* for the remote rail chosen */
	uint32_t ntasks;		/* 1, or number of merged whole tasks */
	int last_err;			/* positive FI_E*, of the last failure */
	int prov_err;			/* the provider's own for it, or 0 */
	uint64_t seq;			/* of its lane, when it was posted */
	uint32_t remote_gen;		/* generation it was posted to */
	uint16_t remote_idx;		/* index in peer->remotes */
	uint8_t retries;
	bool read;
	bool large;			/* of a large task (rail_task_large) */
	bool path_fresh;		/* its path needs an address first */
};

/* One registration. */
struct rail_mr_piece {
	struct fid_mr *mr;
	uint8_t key[RAIL_KEY_MAX];	/* 8 bytes, native order, or raw */
	uint8_t key_len;		/* 0: not for peers */
};

/*
 * A memory region as registered on one rail: in pieces of 1 << shift bytes
 * from its start on, the last one shorter. RAIL_MR_WHOLE: one piece.
 */
#define RAIL_MR_WHOLE	63
struct rail_mr_part {
	struct rail_mr_piece *piece;
	uint32_t n;			/* pieces, 0: not registered */
	uint8_t shift;
	uint8_t way;			/* enum tei_rail_way */
	void **desc;			/* local descriptors by piece, or NULL
					 * where the rail needs none */
};

/* Ranks of the rails for one part of a region of several NUMA nodes. */
struct rail_mr_place {
	uint64_t end;			/* offset in the region */
	uint8_t rank[TEI_RAIL_MAX];
};

enum rail_mr_fence {
	RAIL_MR_NO_FENCE,	/* or it is done */
	RAIL_MR_FENCE_WANTED,	/* the thread has not seen it yet */
	RAIL_MR_FENCING,	/* the thread is at it */
};

enum rail_mr_state {
	RAIL_MR_REGISTERING,	/* in the table so that overlaps are seen */
	RAIL_MR_READY,
	RAIL_MR_REVOKING,	/* no new task, no new key */
	RAIL_MR_CLOSED,		/* not registered any more; dp->admin too */
};

/*
 * A registered region. Created by tei_rail_mr_reg, freed by tei_rail_mr_dereg
 * or tei_rail_dp_close. In dp->mrs, sorted by address.
 */
struct tei_rail_mr {
	/* fixed after registration */
	char *addr;
	uint64_t len;
	uint64_t id;			/* never used twice */
	bool remote;
	bool read_only;			/* for peers and for local reads */
	bool gpu;			/* device's; rails without a part of it
					 * leave it alone */
	struct tei_rail_device device;	/* its descriptor is closed with it */
	char *location;
	struct rail_mr_place *places;	/* in order; dp->sched guards ranks: */
	uint32_t nplaces;		/* 0 preferred, 1 accessible, 2 off */

	/* dp->admin */
	struct rail_mr_part part[TEI_RAIL_MAX];

	/* dp->sched */
	enum rail_mr_state state;
	uint32_t tasks;			/* live local tasks that use it */
	uint64_t *holders;		/* incarnations that got the key */
	uint32_t nholders, holders_cap;
	uint32_t holders_left;		/* while revoking: not yet answered */
	bool lost;			/* someone forgotten may hold the key */
	struct tei_list revoking;	/* dp->revoking, or alone */
	enum rail_mr_fence fence;	/* while revoking: close the lanes */
};

enum rail_lane_state {
	RAIL_LANE_CLOSED,	/* no endpoint */
	RAIL_LANE_ACTIVE,
	RAIL_LANE_RETIRING,	/* drains, or is being closed; takes no new
				 * work */
};

/*
 * Closing a lane beside the thread (rail_closing.c). Embedded in the lane,
 * whose lock guards it, but for fid, which is the closer's until it is over.
 */
#define RAIL_LANE_FIDS	8
struct rail_closing {
	struct fid *fid[RAIL_LANE_FIDS];
	pthread_t closer;
	bool started;			/* by closer, not joined */
	bool under_way;			/* atomic: closed, not collected */
	bool over;			/* atomic: nothing is left to be closed */
};

/*
 * One endpoint with its CQ, AV and EQ. Embedded in its rail, opened and closed
 * by the thread (or by set-up and tear-down), each opening a new generation.
 */
struct rail_lane {
	struct rail *rail;		/* fixed */
	bool target;			/* fixed */
	bool first;			/* fixed: target at the rail's first
					 * address, for messages alone */
	uint16_t index;			/* fixed: lane number on the rail */

	struct tei_mutex lock;		/* guards what follows */
	enum rail_lane_state state;	/* read without lock: atomic */
	uint32_t gen;			/* read without lock: atomic */
	struct fid_fabric *fabric;	/* its own, or NULL: the rail's */
	struct fid_domain *domain;	/* likewise */
	struct fid_wait *wait;		/* the queue's, or NULL: its own */
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_eq *eq;
	struct fid_cntr *cntr;		/* target without wait_fd: remote
					 * reads and writes, or NULL */
	uint64_t cntr_seen;
	int wait_fd;			/* -1: none */
	struct tei_rail_addr addr;
	struct tei_list posted;		/* rail_slice.link */
	/* written with the lock held, read without: atomic */
	uint32_t inflight;		/* slices posted */
	uint64_t inflight_bytes;
	uint64_t tx_bytes, rx_bytes, slices; /* completed, ever */

	uint64_t drained_ns;		/* RETIRING: time at which the lane is
					 * closed if operations are posted */
	uint64_t busy_ns;		/* start of the present busy time */
	uint64_t served;		/* bytes completed since busy_ns */
	bool whole;			/* nothing was posted before busy_ns */
	uint64_t served_ns;		/* when the last of them did */
	uint64_t posts;			/* slices, ever */
	uint64_t mark_posts, mark_ns;	/* posts at that time */
	uint64_t stuck_posts;		/* of slices up to that nothing came
					 * for long; they are so many bytes */
	uint64_t stuck;
	uint64_t stuck_large;		/* of large tasks */
	struct rail_slice *alone;	/* posted when nothing else was, or
					 * NULL; only compared */
	uint64_t alone_ns;		/* when that was */
	uint32_t msgs;			/* atomic: messages under way */
	uint64_t settle_ns;		/* read without lock: atomic; a
					 * connection broke, and the lane is
					 * polled until then. 0: none */
	bool kick;			/* atomic: look again after unlock */
	bool visited;			/* target: a caller reads it */
	bool hears;			/* atomic; initiating: peers were told
					 * the way back to it */
	struct tei_list aside;		/* target: rail_aside, for the thread */
	uint32_t naside;		/* read without lock: atomic */
	bool link_cut;			/* thread: cut when the link was lost */
	struct rail_slice *look_head;	/* rail_stall.c: posted first, as the */
	uint64_t look_moves;		/* last look found it, and its path */
	struct rail_closing closing;
	struct rail_rx *rx;		/* receive buffers, or NULL */
	struct rail_rx *rx_idle;	/* of those, that are not posted */
	void *rx_mem;
	struct fid_mr *rx_mr;
};

/*
 * A lane that is opened beside the thread (rail_reopen.c). Embedded in its
 * rail, and the thread's; lane.lock guards it against tear-down.
 */
struct rail_opening {
	struct rail_lane lane;		/* whoever opens it holds its lock */
	struct rail_lane *place;	/* closed; where it goes */
	pthread_t opener;
	bool started;			/* by opener, not joined */
	bool under_way;			/* atomic for readers */
	bool over;			/* atomic: it is open, or failed */
	struct tei_err err;		/* why that */
};

/* Who has the first address of a rail; rail_first.c. */
enum rail_first_state {
	RAIL_FIRST_LEFT,	/* nobody cares */
	RAIL_FIRST_TARGET,	/* the first target lane */
	RAIL_FIRST_WANTED,	/* nobody, until a lane for messages is open */
	RAIL_FIRST_HELD,	/* that lane */
	RAIL_FIRST_TAKEN,	/* somebody else: it is tried again */
};

/*
 * A message that a caller read off a target lane and that is the thread's to
 * handle. Owned by the lane.
 */
struct rail_aside {
	struct tei_list link;
	uint32_t len;
	uint8_t buf[];
};

/* A receive buffer. Owned by the lane, whose lock guards it. */
struct rail_rx {
	struct rail_op op;
	uint8_t *buf;
	struct rail_rx *next;		/* of lane->rx_idle */
};

/* A send buffer of a rail. Free list under dp->sched. */
struct rail_tx {
	struct rail_op op;
	struct tei_list link;
	struct rail *rail;
	struct rail_lane *lane;		/* where it is posted, or NULL */
	struct rail_path *path;		/* counted in path->msgs, or NULL */
	uint64_t incarnation;		/* of the peer it goes to */
	uint16_t remote;		/* index in peer->remotes */
	uint8_t *buf;
};

/*
 * One local NIC. Created by tei_rail_dp_add_transport, freed by
 * tei_rail_dp_close; closed rails keep their index.
 */
struct rail {
	/* fixed after open */
	struct tei_rail_dp *dp;
	uint16_t index;
	char name[64];
	char provider[32];
	char transport[16];
	char pci[32];
	int numa;
	uint64_t speed_bps;
	uint8_t prefix;			/* prefix length of its IP address */
	struct tei_rail_addr own;	/* of the first target lane: its network
					 * is that of all */
	bool fallback;			/* there was no better device when it was
					 * found (rail_found) */
	bool quiet;			/* failures to open it are not logged */
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *init_domain;	/* of lanes that have none */
	struct fid_domain *target_domain; /* the same where costly */
	uint64_t mr_mode;
	bool back;			/* messages of the user come by initiating
					 * lanes, too: rail_back.c */
	bool hmem;			/* it may take memory of GPUs */
	const char *no_hmem;		/* why not */
	uint32_t tx_depth;		/* slices posted per lane */
	uint64_t max_slice;		/* provider's message limit */
	uint8_t mr_shift;		/* dp->admin: largest registration that
					 * its device took after a refusal */
	bool addr_gone;			/* dp->admin: no interface had its IP
					 * address at the last refresh */
	uint32_t iov_limit, rma_limit;	/* pieces of one operation, 1 and up */

	struct rail_lane *init;		/* [ninit * RAIL_LANE_SLOTS] */
	struct rail_cache *cache;	/* [ninit] */
	uint32_t ninit;
	struct rail_lane target;
	struct rail_opening next_target;
	struct rail_opening *next_init;	/* [ninit] */
	struct rail_opening first;	/* rail_first.c; it stays there */
	struct fid_fabric *first_fabric; /* first.lane.lock, as what follows */
	struct fid_domain *first_domain; /* nothing is ever
					  * registered in it for peers */

	struct rail_tx tx[RAIL_TX_MSGS];
	void *tx_mem;
	struct fid_mr *tx_mr;
	/* dp->sched */
	struct tei_list tx_free;
	uint32_t tx_left;		/* how many these are */
	struct tei_list backs_left;	/* rail_back of peers that are freed */
	uint64_t large_bytes;		/* cut of large tasks, not come back */
	uint32_t beside_left;		/* slices of large tasks yet to be cut
					 * with room for small ones, */
	uint64_t beside_part;		/* and bytes of the next one that were */
	uint32_t turn;			/* of paths that take of these, from 1 */
	uint32_t takers, takers_before;	/* of that turn and of the last one */
	uint64_t taken;			/* bytes, in that turn */
	uint64_t turn_ns;		/* since when, by served_ns of a lane */

	/* atomics */
	bool open;
	bool hidden;			/* replaced by another rail: only peers that
					 * know it still use it. Set with dp->sched */
	uint32_t state;			/* enum te_rail_state */
	uint64_t inflight_max, window;
	uint64_t window_max;
	uint64_t stuck;			/* bytes posted that move no more, */
	uint64_t stuck_large;		/* and those of large tasks */
	uint64_t base_ns;		/* of a slice alone, 0: not known */
	uint64_t retries, errors;
	uint64_t rate_bps;		/* bytes/s, service rate */
	uint64_t free_bps;		/* the same, when it was not held down */
	bool beside;			/* by rail_window_beside, of late */
	bool link_down;			/* its interface carries nothing */
	bool lost;			/* an endpoint could not be opened */
	uint32_t away;			/* initiating lanes that take no work:
					 * retired and not open again */
	uint64_t state_changes;
	uint32_t ifindex;		/* number of its interface, 0: none. It
					 * changes if the interface is made again */
	bool wire;			/* fixed: one, and not loopback */
	uint64_t lost_next_ns;		/* thread */
	uint64_t stuck_ns;		/* thread: the last time that a lane
					 * was retired since a path was stuck */
	struct rail_opening probe;	/* rail_probe.c; it stays there */
	uint32_t first_state;		/* enum rail_first_state */
	uint64_t first_next_ns;		/* thread: taken, tried again then */
	uint32_t first_tries;		/* thread */
	uint64_t probe_begin_ns;	/* thread: of the round */
	uint64_t probe_end_ns;		/* thread; 0: just opened */
	bool probing;			/* thread: the probe is open, or will be */
	struct tei_log_limit err_limit;
	struct tei_log_repeat err_repeat;
};

/*
 * Where a target lane may send messages of the user to a peer. Owned by the peer;
 * then by the rail, whose address vector is to forget it. Written with dp->sched and
 * the target lane's lock held, read with the latter.
 */
struct rail_back {
	struct tei_list link;		/* rail->backs_left */
	fi_addr_t addr;			/* in the target lane's AV */
	uint32_t gen;			/* of that lane, 0: none */
	struct tei_rail_addr to;
	uint64_t heard_ns;		/* atomic: last message by that lane */
	bool good;			/* atomic */
};

/* A raw key as mapped for one local rail. */
struct rail_raw {
	uint16_t rail;			/* local */
	uint16_t part;			/* of the rail_rkey */
	uint64_t key64;
};

/* A key that a peer gave us: one of its regions, or a piece of one. Guarded by
 * dp->sched. */
struct rail_rkey {
	struct tei_list link;		/* peer->keys */
	struct rail_rkey *same;		/* next in its bucket of peer->key_ids */
	struct rail_raw *raw;
	uint32_t nraw;
	uint64_t base, len, id;
	uint32_t slices;		/* cut on it and not finished */
	bool read_only;			/* writes are not for it */
	bool revoked;			/* out of the table; freed when slices
					 * is 0 */
	uint16_t nparts;
	struct rail_rkey_part {
		uint16_t rail_id;	/* peer's rail index */
		uint8_t rank;		/* 0: near the memory there */
		uint8_t key_len;
		uint8_t key[RAIL_KEY_MAX];
		uint64_t key64;		/* as such, unless it is raw */
		uint64_t offset;	/* of base in what was registered */
	} part[];
};

/* Withdrawn keys of one region that slices still use. */
struct rail_draining {
	uint64_t id;			/* of the region */
	uint32_t keys;
	bool answer;			/* REVOKED is owed when keys is 0 */
};

/* What is wanted of the peer about one of its rails. Guarded by dp->sched. */
struct rail_fence {
	bool wanted;			/* a FENCE is to be asked for */
	bool unfenced;			/* given up once: nothing may be posted */
	uint32_t gen;			/* generations up to this one */
	uint32_t tries;
	uint64_t next_ns;
	uint64_t since_ns;		/* first tried, 0: not yet */
};

/* A rail of a peer, as its hello told. Guarded by dp->sched. */
struct rail_remote {
	uint16_t id;			/* the peer's own index */
	uint8_t prefix;
	bool virt_addr;			/* keys are used with addresses */
	bool gen_keys;			/* a new generation has new keys */
	uint32_t gen;
	uint32_t serial;		/* changes with addr; never used twice */
	bool away;			/* closed, and to be opened again: has
					 * no address meanwhile */
	bool hint;			/* no rail, but an address where the
					 * peer was found: for hellos */
	char name[64];
	struct tei_rail_addr addr;
	struct rail_fence fence;
};

/* A provider's socket. Its number may be another file's by now. */
struct rail_socket {
	int fd;				/* -1: not known */
	unsigned long ino;
};

/*
 * (initiating lane, remote rail). Owned by the peer. Both slots of a lane have
 * it in common; it belongs to the one that is active.
 */
struct rail_path {
	/* fixed */
	struct tei_rail_peer *peer;
	uint16_t remote;		/* index in peer->remotes */

	/* the lock of the active lane */
	uint32_t lane_gen, remote_serial;
	fi_addr_t fi_addr;
	bool ready;			/* fi_addr is valid for these gens */
	bool used;			/* something was given to fi_addr */
	bool cut;			/* it had a connection of lane_gen that
					 * may not be wholly gone */
	struct rail_socket old;		/* cut: that one's, as far as known */
	uint64_t old_ns;		/* cut: waited for since, 0: not yet */
	bool connected;			/* something completed on it */
	bool shunned;			/* cut just now, because of the peer: what
					 * breaks is no fault of the wire's */
	bool blocked_now;		/* in this bundle */
	uint32_t posted;		/* slices on the lane of lane_gen */
	uint64_t moves;			/* atomic: grows while it lives */
	uint64_t look_moves, look_ns;	/* rail_stall.c; the thread alone: */
	uint64_t looked_ns;		/* the look that it was found still in, */
	struct rail_path *look_next;	/* and the next one of those */
	uint64_t blocked_ns;		/* no post before this time, 0: free */
	uint64_t since_ns;		/* connecting since, 0: not */
	uint64_t asked_ns;		/* last message, 0: none */
	uint32_t backoff_us;
	uint32_t vain;			/* atomic: lanes retired because it did
					 * not connect, since it last did */

	bool suspect;			/* atomic: a message found it stuck,
					 * and the thread was not told */

	/* dp->sched */
	uint32_t inflight;		/* slices cut for it, not come back */
	uint64_t bytes;			/* of those */
	uint64_t large_bytes;		/* and of large tasks */
	uint32_t took_in;		/* the rail's turn, 0: none yet */
	uint32_t room;			/* slices that the provider takes at a
					 * time, as far as known; 0: not */
	uint32_t fits;			/* cut since that was set */
	uint32_t msgs;			/* under way */
	struct rail_conn *conn;		/* its place in the cache, or NULL */
	struct rail_conn *leaving;	/* to be closed, or NULL */
	struct tei_list wait_link;	/* rail_cache.waiting, or alone */
};

enum rail_peer_state {
	RAIL_PEER_NEW,		/* only the first address is known */
	RAIL_PEER_READY,	/* hello was answered: rails are known */
	RAIL_PEER_GONE,		/* takes nothing new: tasks fail at once */
};

/* What is known of one that is RAIL_PEER_GONE. */
enum rail_gone {
	RAIL_GONE_PERHAPS,	/* it may live: what was posted may land, and
				 * waits for its fence as ever */
	RAIL_GONE_OVER,		/* nothing that was posted lands any more */
	RAIL_GONE_LEFT,		/* nor does it touch our memory: it said so */
};

struct rail_key_want {
	uint64_t addr, len;
	bool active;
	uint32_t tries;
	uint64_t next_ns;
	uint64_t since_ns;		/* first tried, 0: not yet */
};

/* Notifications to a peer (rail_note.c). Guarded by dp->sched. */
struct rail_note_out {
	struct tei_list list;		/* tei_rail_outgoing.link: not acknowledged,
					 * in order; those with a number first */
	uint32_t n;			/* entries of list */
	uint64_t bytes;			/* of their texts */
	uint64_t last;			/* newest number given, 0: none */
	uint64_t turn;			/* of the newest message */
	uint64_t gap_turn;		/* gaps that this turn or an earlier one met
					 * have been handled */
	uint32_t window;		/* messages that may be unacknowledged */
	uint32_t tries;			/* messages since the last progress that were
					 * repeated, or asked for room */
	uint64_t since_ns;		/* an answer is awaited since, 0: none is */
	uint64_t next_ns;		/* time of the next repetition, 0: none */
	bool full;			/* the peer has no room: it is asked for it */
};

/* Notifications from a peer (rail_note_in.c). Guarded by dp->sched. */
struct rail_note_in {
	uint64_t stream;		/* the sender's session for us, 0: none */
	uint64_t next;			/* number awaited, 0: not known yet */
	uint64_t base;			/* oldest number that the sender holds */
	struct rail_note_part *part;	/* under assembly, or NULL */
	bool owed;			/* an answer is owed: */
	uint16_t code;			/* enum rail_note_code */
	uint64_t turn;			/* of the message that it is about */
	struct tei_list wait_link;	/* dp->notes.waiting, or alone */
	uint32_t wait_name, wait_msg;	/* lengths of the one that waits for room */
	uint64_t wait_ns;		/* when the sender asked last */
};

/*
 * Counts the notifications that are queued for the user of the data plane or under
 * assembly. Guarded by dp->sched.
 */
struct rail_note_budget {
	uint64_t bytes;			/* held, reserved or under assembly */
	uint32_t notes;
	struct tei_list parts;		/* rail_note_part.link: longest idle first */
	struct tei_list waiting;	/* rail_note_in.wait_link: longest first */
	struct rail_note_memory *memory; /* streams of peers that were freed, or
					  * NULL */
	bool shut;			/* tei_rail_notify_shut */
	bool closed;			/* tear-down: no peer is let in */
	struct tei_log_repeat full_repeat;
	struct tei_log_limit lost_limit;
};

/*
 * Atomics with a peer, both ways (rail_atomic.c). Guarded by dp->sched, but
 * for the book, which the thread alone touches.
 */
struct rail_atomics {
	/* initiator */
	struct tei_list tasks;		/* queue_link: not answered, in order */
	uint64_t next_seq;
	uint64_t session;		/* the peer's; 0: it has none */
	bool told;			/* its hello said so */
	bool fresh;			/* some may be unsent */
	uint32_t round;			/* messages composed */
	uint32_t tries;
	uint64_t next_ns;		/* sent again */
	uint64_t since_ns;		/* of the last answer; 0: none awaited */
	/* target */
	uint64_t own_session;
	struct rail_atomic_book *book;	/* what was executed, or NULL */
};

/*
 * A remote process. Created by tei_rail_peer_get or by its hello; freed when
 * nobody refers to it, or with the data plane. Everything is guarded by
 * dp->sched unless marked.
 */
struct tei_rail_peer {
	struct tei_rail_dp *dp;		/* fixed */
	uint64_t incarnation;		/* fixed */
	char name[256];
	struct tei_list link;		/* dp->peers */
	struct tei_list attn_link;	/* dp->attn, or alone */
	struct tei_list active_link;	/* dp->active, or alone */
	struct tei_list hash_link;
	uint32_t refs;			/* users outside the data plane */
	enum rail_peer_state state;	/* read without lock: atomic */
	enum rail_gone gone;		/* when it is RAIL_PEER_GONE */
	uint64_t gone_ns;		/* since then */
	bool known_us;			/* it answered or said hello */

	struct tei_rail_addr *firsts;	/* where it listens for messages as */
	uint16_t nfirsts;		/* long as it lives, as it told */
	uint16_t first_turn;
	uint64_t first_next_ns;		/* to be tried next, not before that */
	uint64_t not_there_ns;		/* one of them was another's; 0: none */
	uint32_t table_seen;		/* newest rail table of the peer */
	uint32_t table_acked;		/* newest of ours that it has */
	uint64_t told_rails;		/* bits: rails of ours that a hello to it
					 * has listed */
	bool want_hello;		/* someone waits for READY */
	bool awake;			/* dp->sched: it gave a sign of life */
	uint32_t hello_tries;		/* thread: hellos since the last answer */
	uint64_t hello_next_ns;		/* thread: no hello before that */
	bool reply_hello;		/* an answer is owed */
	uint64_t resolve_next_ns;	/* ops->resolve is not called before */
	uint64_t presumed_ns;		/* time at which the peer was presumed to
					 * have ended; void if alive_ns is later;
					 * 0: never */
	uint64_t presume_next_ns;	/* no rail_presume_ask before that, unless
					 * the peer gave a sign of life after */
	uint64_t presume_asked_ns;	/* the last one */
	struct tei_rail_addr found_at;	/* len 0: not since that was looked at */
	uint64_t found_ns;		/* last found, still the same process */

	uint32_t found_turn;		/* counter, selects the address of a
					 * descriptor that is tried next */

	/* Until the hello is answered, the contact addresses are the remotes. */
	struct rail_remote *remotes;
	uint16_t nremotes;
	uint16_t remotes_room;		/* allocated entries */
	struct rail_contact {		/* rail_contact.c; RAIL_PEER_NEW only */
		uint32_t pairs;		/* thread: rail and address, last count */
		uint32_t from;		/* thread: first pair of the window */
		uint64_t until_ns;	/* thread: end of the window, 0: none */
		uint64_t sent;		/* thread: bits, pairs of the window that
					 * have taken the hello */
		uint32_t rounds;	/* thread: passes over all pairs */
		uint64_t refused;	/* bits: contact addresses at which
					 * another process answers */
	} contact;
	uint16_t its_contact;		/* number of the contact address that the
					 * peer's last hello was sent to, from 1;
					 * 0: none */
	bool paths_short;		/* an allocation failed in
					 * rail_path_table: call it again */
	uint32_t serial;		/* last one given to a remote */
	int16_t route[TEI_RAIL_MAX];	/* local rail → remotes index, -1 */
	bool ranked;			/* some of its rails are nearer than
					 * others to some memory of its */
	bool choice;			/* rail_aim.c has something to say */
	/* [(rail * lanes_per_rail + lane) * remotes_cap + remote]; a path
	 * once made stays where it is until the peer is freed */
	uint32_t turn;			/* of MC_PATH_ROUNDROBIN */
	struct rail_path **paths;
	uint32_t path_rails;		/* rails the table has room for */
	uint16_t remotes_cap;

	struct tei_list small;		/* tasks of at most one slice, */
	struct tei_list queue;		/* and others, with bytes to cut */
	uint32_t overtaken;		/* times a small one went first */
	uint32_t queued;
	struct tei_list live;		/* tasks not ended, in order */
	uint64_t moved_ns;		/* last time bytes of any completed, or
					 * one came while there was none */
	uint64_t still_ns;		/* MC_SLICE_TIMEOUT has ended one then */
	struct tei_list retry;		/* slices to post (again) */
	struct tei_list limbo;		/* slices that await a fence */
	uint32_t posted;		/* slices on lanes */
	uint32_t unfenced;		/* remotes whose fence was given up;
					 * nothing is posted while not 0 */
	struct rail_broke {		/* the newest slice that broke */
		const struct rail *rail;
		uint64_t ns;		/* 0: none */
		int err, prov;		/* FI_E*, the provider's or 0 */
		char text[96];		/* the provider's */
	} broke;

	struct tei_list keys;		/* all rail_rkey, withdrawn or not */
	struct rail_rkey **rkeys;	/* sorted by base */
	uint32_t nrkeys, rkeys_cap;
	struct rail_rkey **key_ids;	/* hash table by region id, rkeys_cap
					 * buckets */
	uint32_t key_epoch;		/* replies older than this are void */
	struct rail_key_want key_want;
	struct rail_draining *draining;	/* withdrawn keys still in use */
	uint32_t ndraining, draining_cap;
	uint64_t *owed;			/* region ids to answer REVOKED */
	uint32_t nowed, owed_cap;

	/* target side */
	uint64_t *revokes;		/* region ids that it must drain */
	uint32_t nrevokes, revokes_cap;
	uint64_t revoke_next_ns;
	bool fences_owed;
	struct rail_fence_reply {
		uint32_t gen;
		bool owed;
	} fence_reply[TEI_RAIL_MAX];	/* by our rail */
	uint64_t refuse;		/* thread: incarnation that its hello
					 * named, to be refused; 0: none */
	enum rail_refusal refusal;	/* thread: why */
	uint8_t refuse_nonce[16];	/* thread: of the hello that is refused */
	uint16_t refuse_contact;	/* thread: contact number in that hello */
	bool seeker;			/* here only to find the process that
					 * has the first address: in no table,
					 * incarnation 0 */
	uint64_t found;			/* seeker: who it is, 0: not yet */
	bool stranger;			/* here only to be refused: in no
					 * table, GONE from the beginning */
	uint64_t stranger_ns;		/* until when that is tried */

	/* Thread: what proves that messages are its own, and ours. */
	uint8_t nonce[16];
	uint8_t its_nonce[16];		/* written under sched, read so too by
					 * callers' threads */
	uint64_t sent;			/* atomic: number of the newest message */
	uint64_t newest, hello_newest;	/* numbers of its messages */
	uint64_t seen[RAIL_AUTH_WORDS];
	struct rail_key_reply {
		uint64_t addr, len;
		bool owed;
	} key_reply;

	struct rail_atomics atomics;
	struct rail_note_out note_out;
	struct rail_note_in note_in;
	uint64_t due_ns;		/* when it wants to run, on attn */
	uint64_t asked_ns;		/* when want_hello was first served */
	uint32_t msg_turn;		/* thread: of pairs beside the routes */
	uint64_t silent_next_ns;	/* thread: no rail_fence_silent before */
	uint64_t again_ns;		/* thread: no rail has taken a message
					 * since, 0: the last one was taken */
	bool announce;			/* our rail table has changed */
	bool stuck;			/* a path does not connect */
	uint64_t alive_ns;		/* last sign of life */
	uint64_t tried_ns;		/* given a place since, first; older
					 * than alive_ns: not */
	bool rehello;			/* thread: introduce ourselves again */
	uint32_t hint_turn;		/* thread: of hellos, while there is one */
	bool probing;			/* a sign of life is asked for */
	bool evicted;			/* gone, and not counted any more */
	uint64_t probe_ns;		/* probing since */
	uint64_t served_ns[TEI_RAIL_MAX]; /* last slice done, by our rail */
	bool bye_sent;			/* tear-down only */
	struct rail_renew {		/* lanes for paths that are stuck */
		uint64_t next_ns;	/* thread: none before that */
		uint32_t tries;		/* thread */
		bool linked;		/* atomic: a path has connected */
	} renew[TEI_RAIL_MAX];		/* by our rail */
	bool warm_wanted;		/* connect every pair of rails */
	uint64_t warm_left;		/* thread: rails still to connect */
	struct tei_log_limit err_limit;
	struct tei_log_repeat err_repeat, end_repeat;
	struct rail_loss {		/* lost connections to be logged */
		uint64_t rails;		/* bits: our rails that lost one */
		uint64_t due_ns;	/* when to log them, 0: there are none */
		uint64_t next_ns;	/* no such line before */
		int err, prov;		/* of the first: FI_E*, the provider's */
		char text[96];		/* the provider's, of the first */
	} loss;
	struct tei_rail_peer_stats stats; /* its counters */
	bool routes_changed;		/* the log is to say so */
	uint64_t said;			/* thread: hash of what it said last */
	struct tei_log_limit report_limit;

	struct tei_list faults;		/* rail_health.h */
	int32_t heard;			/* atomic: rails of its last message,
					 * ours and its own (rail_msg.c), -1:
					 * none */
	struct rail_back *back[TEI_RAIL_MAX]; /* by our rail, or NULL; read
					 * without lock: atomic */
	uint64_t back_rails;		/* bits: told the way back to these */
	uint64_t back_next_ns;		/* not again before that */
	uint64_t pongs[RAIL_PONGS];	/* probes to answer */
	uint32_t npongs;
	bool pong;			/* a sign of life is asked for */
	uint32_t revoke_tries;		/* thread */
	uint64_t life_next_ns;		/* thread: ours, asked for */
	uint32_t life_tries;		/* thread */
};

#define RAIL_PEER_HASH	1024

struct rail_slice_chunk {
	struct rail_slice_chunk *next;
	struct rail_slice slice[256];
};

/* Callers who drive lanes, about: of two at once one may go uncounted. Atomics. */
struct rail_looks {
	uint64_t calls;
	uint64_t took_ns;		/* the time that they took */
	uint64_t since_ns;		/* one began then, or 0 */
};

/*
 * A data plane. Created by tei_rail_dp_open, freed by tei_rail_dp_close.
 */
struct tei_rail_dp {
	/* fixed */
	const struct tei_settings *settings;
	const struct tei_rail_ops *ops;
	void *arg;
	uint64_t incarnation;
	char name[256];
	bool signs;			/* there is a secret */
	bool back;			/* rail_back.c is wanted */
	uint64_t info_flags;		/* for fi_getinfo */
	uint16_t port;			/* of the first target lanes, or 0 */
	uint32_t next_port;		/* atomic: next index in the range of
					 * MOONRAIL_DATA_PORTS */
	struct tei_rail_mr *anywhere;	/* stands for local memory that is not
					 * registered, or NULL */
	uint32_t wants;			/* atomic: TEI_RAIL_WANTS_… */
	struct tei_mac_key auth;
	int wake_fd;
	pthread_t thread;
	cpu_set_t cpus;			/* where the thread may run */
	bool thread_started;
	bool stop;			/* atomic */
	bool quiet;			/* atomic: no more up-calls */

	struct tei_mutex admin;		/* rails opened, memory registered */
	struct rail *rails[TEI_RAIL_MAX]; /* entries fixed once set */
	uint32_t nrails;		/* atomic */
	const struct tei_topo *topo;	/* admin */
	struct {			/* admin: devices that could not be opened;
					 * repeated failures are not logged */
		char name[RAIL_FAILED_MAX][64];
		uint32_t n;
	} failed;
	uint64_t devices_seen;		/* admin: hash of the interfaces at the
					 * last tei_rail_dp_devices_changed */

	struct tei_mutex sched;		/* guards what follows */
	struct tei_rail_mr **mrs;	/* sorted by address; changed with
					 * dp->admin held too */
	struct tei_list revoking;	/* tei_rail_mr whose keys are being revoked */
	struct tei_rail_mr **mrs_mem;	/* allocation that contains mrs, mrs_cap
					 * entries */
	uint32_t nmrs, mrs_cap;
	uint64_t mr_next_id;
	uint64_t sessions;		/* last one given to a peer */
	uint32_t key_epoch;		/* raised by every revocation */
	pthread_cond_t cond;		/* revocations, warm-up, removal */
	uint32_t table;			/* version of our rail table */
	struct tei_list peers;		/* longest silent first, about */
	uint64_t bye_ns;		/* to take leave in, twice */
	uint64_t stuck_ns;		/* a task that names its rail goes by
					 * any, once neither it nor that rail
					 * got on for so long */
	uint64_t probe_ns;		/* silent for longer is asked, and
					 * forgotten after a third of it */
	uint32_t npeers;
	struct tei_log_limit peer_limit;
	uint32_t nstrangers;		/* not among npeers */
	uint32_t strangers_ever;
	uint64_t stranger_next_ns;
	struct tei_list hash[RAIL_PEER_HASH];
	struct tei_list attn;		/* peers with control work */
	struct tei_list active;		/* peers with slices to cut */
	uint32_t nactive;		/* read without lock: atomic */
	bool stirred;			/* tasks came since the thread asked */
	uint64_t large_left;		/* bytes of large tasks yet to be cut */
	uint32_t nlive;			/* live tasks, all peers; atomic */
	uint32_t nheld;			/* those, and ended ones that are not
					 * the caller's again yet; atomic */
	struct tei_list slices;		/* free */
	struct rail_slice_chunk *chunks;
	uint32_t nfencing;		/* regions that want a fence; atomic */
	uint64_t attn_next_ns;		/* when the next of attn is due */
	struct tei_list faults;		/* rail_health.h */
	uint64_t probe_seq;		/* of the newest probe */
	struct rail_note_budget notes;

	/* atomics */
	struct rail_looks looks;	/* callers', at initiating lanes */
	struct rail_looks target_looks;	/* those at target lanes as well */
	uint32_t nseekers;		/* peers looked for by address */
	uint32_t driving;		/* callers that drive in a loop */
	uint32_t dozing;		/* callers asleep until tasks end */
	uint64_t rests_ns;		/* when the thread's long sleep ends,
					 * 0: it is not in one */
	bool thread_trusts;		/* it sleeps without the lanes that
					 * callers drive */
	uint32_t turn;			/* rail that is asked first */
	bool wake_pending;
	uint64_t open_ns;		/* what opening a lane takes of late */
	uint32_t nfaults;
	bool health_soon;		/* a probe was answered */
	bool reopened;			/* some lane was */
	bool astray;			/* a path off the routes has a place */

	/* thread */
	int link_fd;			/* -1: none */
	uint64_t link_next_ns;		/* links that are down: next look */
	uint64_t devices_next_ns;	/* without link_fd: next notification */
	uint64_t health_ns;		/* last look at all that */
	uint64_t tidy_ns;		/* no look at paths off the routes */
	uint64_t silent_next_ns;	/* no rail_fence_silent before that */
	uint64_t probe_next_ns;
	uint32_t probing;		/* rails whose probe is open */
};

/*
 * dp->sched for clang's analysis, which cannot see that peer->dp and
 * lane->rail->dp are one object. Named in annotations only, never defined.
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

/* Waits on dp->cond, up to timeout_ns. */
static inline void rail_sched_wait(struct tei_rail_dp *dp, uint64_t timeout_ns)
	TEI_REQUIRES(rail_sched_held) TEI_NO_TSA
{
	tei_mutex_wait(&dp->cond, &dp->sched, timeout_ns);
}

/* Tasks that ended while a lock was held; told when it is not. */
struct rail_done {
	struct tei_list tasks;		/* tei_rail_task.live_link */
	struct tei_list heard;		/* tei_rail_note.link, for ops->notify */
	struct tei_list messages;	/* tei_rail_message.link */
};

/* --- rail_info.c: which rails there are ---------------------------------- */
struct rail_found {
	char name[64];
	char ifname[64];		/* interface that it is on, or "" */
	struct fi_info *info;		/* one entry, owned */
	uint8_t prefix;
	bool fallback;			/* loopback, or of the IP version that is
					 * not preferred: there is nothing else */
	struct rail_found *next;
};
/* flags: for fi_getinfo. */
int rail_info_find(const struct tei_settings *s, const char *transport,
		   const char *devices, uint64_t flags, struct tei_err *err,
		   struct rail_found **out);
/* The same without error records and log lines, for a search that is repeated.
 * Returns NULL if nothing was found. */
struct rail_found *rail_info_find_again(const struct tei_settings *s,
					const char *transport,
					const char *devices, uint64_t flags);
/* Logs one warning for each interface that could be a rail if it had a link and,
 * if the rails in list are a fallback, an address. follow: the interface is used
 * when it has. */
void rail_info_warn_lacking(const struct tei_settings *s,
			    const struct rail_found *list, bool follow);
void rail_info_free(struct rail_found *list);
/* The same device, opened for memory of GPUs too; NULL: it is not offered. */
struct fi_info *rail_info_hmem(const struct fi_info *info, uint64_t flags);
/* Whether both are there and have the same IP address. */
bool rail_info_same_ip(const struct sockaddr *a, const struct sockaddr *b);

/* --- rail_dp.c ----------------------------------------------------------- */
/* Opens one more rail and registers on it what is registered. Does nothing if
 * there is a rail for that device. */
int rail_dp_add(struct tei_rail_dp *dp, const struct rail_found *found,
		const char *transport, struct tei_err *err)
	TEI_REQUIRES(dp->admin);
/* Returns true if the device has a rail that can stay. */
bool rail_dp_has(struct tei_rail_dp *dp, const struct rail_found *found,
		 const char *transport) TEI_REQUIRES(dp->admin);
/* Closes a rail of a data plane that goes on. Slices posted on it are fenced and
 * go over other rails; rail_peer_announce notifies the peers. */
void rail_dp_close_rail(struct tei_rail_dp *dp, struct rail *rail)
	TEI_REQUIRES(dp->admin);

/* --- rail_rail.c: one rail ----------------------------------------------- */
/* quiet: a failure fills err and is not logged. */
int rail_open(struct tei_rail_dp *dp, const struct rail_found *found,
	      const char *transport, bool quiet, struct tei_err *err,
	      struct rail **out);
void rail_close_initiating(struct rail *rail);
void rail_close(struct rail *rail);
void rail_free(struct rail *rail);
struct rail *rail_at(struct tei_rail_dp *dp, uint32_t index);
uint32_t rail_count(struct tei_rail_dp *dp);
/* A fabric address in text. */
void rail_addr_text(const struct tei_rail_addr *addr, char *buf, size_t len);
bool rail_any_open(struct tei_rail_dp *dp);
/* Of all its lanes, about: bytes posted, slices completed ever. Any thread. */
uint64_t rail_posted_bytes(const struct rail *rail);
uint64_t rail_moved(const struct rail *rail);
/* Whether a slice is posted on any rail, about. Any thread. */
bool rail_posted_any(struct tei_rail_dp *dp);

/* --- rail_lane.c: endpoints ---------------------------------------------- */
void rail_lane_init(struct rail_lane *lane, struct rail *rail, bool target,
		    uint16_t index);
int rail_lane_open(struct rail_lane *lane, struct tei_err *err)
	TEI_REQUIRES(lane->lock);
/* Reads the CQ and posts what there is room for; true if anything happened. */
bool rail_lane_poll(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock);
/* It has receive buffers. Fixed. */
bool rail_lane_receives(const struct rail_lane *lane);
/* Whether its descriptor tells all that comes from now on, so that one may sleep
 * on it; false: something has come. */
bool rail_lane_calm(struct rail_lane *lane) TEI_REQUIRES(lane->lock);
/* What its queues were opened on, or are to be; with lane->lock. */
struct fid_fabric *rail_lane_fabric(const struct rail_lane *lane);
void rail_lane_drain_eq(struct rail_lane *lane) TEI_REQUIRES(lane->lock);

/* --- rail_contact.c: the first hello to a peer ---------------------------- */
/*
 * Sends the hello in buf (len bytes) to some of the contact addresses of a peer.
 * The peer has not answered yet. Returns 0 if the hello was sent to all addresses
 * of the current window, -FI_EAGAIN if some are not connected yet,
 * -FI_EHOSTUNREACH if no local rail can reach any address. The thread.
 */
int rail_contact_hello(struct tei_rail_peer *peer, uint8_t *buf, size_t len,
		       uint64_t now, uint32_t attempt);
/* Another process answers at contact address number (from 1, 0: not known). Returns
 * true if other addresses are left to try, or if the peer has answered meanwhile. */
bool rail_contact_refused(struct tei_rail_peer *peer, uint16_t number)
	TEI_REQUIRES(rail_sched_held);
/* Logs the contact address at which the peer has answered. Must be called while
 * peer->remotes still holds the contact addresses. */
void rail_contact_answered(struct tei_rail_peer *peer, const struct rail *rail,
			   uint16_t number) TEI_REQUIRES(rail_sched_held);

/* --- rail_first.c: a rail's first address -------------------------------- */
/* The rail is open for the first time: whether its address is to be held. */
void rail_first_init(struct rail *rail);
/* Its target lane is closed. The thread, as with those below. */
void rail_first_left(struct rail *rail);
/* Tries again what failed, when it is time. */
void rail_first_run(struct rail *rail, uint64_t now);
/* What was begun is over, perhaps; peers are told what comes of it. */
void rail_first_collect(struct rail *rail);
/* Waits for what was begun. The thread, or after it has stopped. */
void rail_first_stop(struct rail *rail);
/* It leads to this process, now or in a moment. Any thread. */
bool rail_first_held(const struct rail *rail);

/* --- rail_back.c: messages by connections that the peer made ------------- */
/* Whether the rail is fit for that. */
bool rail_back_fits(const struct rail *rail);
/* A message of the user came by that lane. */
void rail_back_missed(struct tei_rail_peer *peer, const struct rail_lane *lane)
	TEI_REQUIRES(rail_sched_held);
/* So did any: the connection is there. */
void rail_back_heard(struct tei_rail_peer *peer, const struct rail_lane *lane)
	TEI_REQUIRES(rail_sched_held);
struct rail_wire;
void rail_back_told(struct tei_rail_peer *peer, struct rail_lane *lane,
		    struct rail_wire *w)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);
/* 0; -FI_EAGAIN: it is full; other: there is no way back. Any thread. */
int rail_back_send(struct tei_rail_peer *peer, struct rail *rail,
		   const void *msg, size_t len);
/* What was under way is lost. */
void rail_back_broke(struct tei_rail_peer *peer, const struct rail *rail)
	TEI_REQUIRES(rail_sched_held);
/* The peer, or the rail, is about to be freed. */
void rail_back_free(struct tei_rail_peer *peer) TEI_REQUIRES(rail_sched_held);
void rail_back_fini(struct rail *rail);

/* --- rail_closing.c: closing them ---------------------------------------- */
/* Waits for it if that is under way already. Slices still posted are moved to
 * aborted. */
void rail_lane_close(struct rail_lane *lane, struct tei_list *aborted)
	TEI_REQUIRES(lane->lock);
/* Cuts its connections and closes it; one that carries no slices. beside: as
 * rail_closing_start. */
void rail_lane_shut(struct rail_lane *lane, bool beside);
/* Closes it in a thread of its own. It has no endpoint from then on, and is
 * RETIRING until that is collected. */
void rail_closing_start(struct rail_lane *lane) TEI_REQUIRES(lane->lock);
/* Begun, and not collected. Any thread. */
bool rail_closing_under_way(const struct rail_lane *lane);
/* True if that is over now: it is CLOSED, slices still posted are moved to
 * aborted. Wakes the thread when it can be called. */
bool rail_closing_collect(struct rail_lane *lane, struct tei_list *aborted)
	TEI_REQUIRES(lane->lock);

/* --- rail_cloexec.c: descriptors that programs must not inherit ------------ */
/* Marks the descriptors of a lane that has just been opened. */
void rail_cloexec_opened(struct rail_lane *lane) TEI_REQUIRES(lane->lock);
/* Marks those that were added since, and returns their number. */
uint32_t rail_cloexec_lane(struct rail_lane *lane) TEI_EXCLUDES(lane->lock);

/* --- rail_cut.c ---------------------------------------------------------- */
/* Shuts the lane's connections down and progresses the loss, so that its
 * endpoint can be closed. Bounded. */
void rail_cut(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock);
enum rail_cut {
	RAIL_CUT_NONE,		/* there is no connection to that address */
	RAIL_CUT_SOME,
	RAIL_CUT_UNKNOWN,	/* the provider shows no sockets, or one that
				 * has no peer yet or was made by some peer */
};
/* Shuts the lane's connections to that address (a sockaddr) down. *which, if
 * RAIL_CUT_SOME and not NULL: one of them. */
enum rail_cut rail_cut_one(struct rail_lane *lane, const void *addr,
			   size_t len, struct rail_socket *which)
	TEI_REQUIRES(lane->lock);
/* The provider has not closed it yet. */
bool rail_cut_there(const struct rail_socket *which);
/* Whether there is one. */
enum rail_cut rail_cut_look(struct rail_lane *lane, const void *addr,
			    size_t len) TEI_REQUIRES(lane->lock);
/* A lane's connections as one look found them; a look takes milliseconds where
 * there are a thousand. Made, used and freed by the thread. */
struct rail_cut_list {
	struct rail_lane *lane;
	struct rail_cut_seen *seen;	/* in the order of their addresses */
	uint32_t n, cap;
};
/* The thread, which alone closes lanes; the lane is not locked for long. */
void rail_cut_list(struct rail_lane *lane, struct rail_cut_list *list);
void rail_cut_list_free(struct rail_cut_list *list);
/* Whether the kernel heard anything from there in the last milliseconds, or
 * knows that the process there leaves its sockets unread; asked: that was made
 * sure of by a message, so that it counts if all has been acknowledged. */
bool rail_cut_heard(const struct rail_cut_list *list, const void *addr,
		    size_t len, uint32_t ms, bool asked);
/* Bytes that the kernel there has acknowledged, of what is in the list, where that
 * is not all that was sent. */
uint64_t rail_cut_acked(const struct rail_cut_list *list, const void *addr,
			size_t len);
/* As rail_cut_one, and quick where it is in the list of that lane. */
void rail_cut_listed(struct rail_lane *lane, const struct rail_cut_list *list,
		     const void *addr, size_t len) TEI_REQUIRES(lane->lock);
/* Whether there is one to that address that could still carry anything; UNKNOWN:
 * the provider shows no sockets at all, or one that some peer has made. */
enum rail_cut rail_cut_lives(struct rail_lane *lane, const void *addr,
			     size_t len) TEI_REQUIRES(lane->lock);
/* The provider shows sockets, and goes to such addresses by them. */
bool rail_cut_shows(struct rail_lane *lane, const void *addr, size_t len)
	TEI_REQUIRES(lane->lock);
/* Whether there is one to that address whose answer is pending, as
 * rail_tcp_pending says. */
bool rail_cut_pending(struct rail_lane *lane, const void *addr, size_t len)
	TEI_REQUIRES(lane->lock);
/* Returns true if the lane has a connection to that address and each of them is
 * silent, as rail_tcp_silent says. */
bool rail_cut_silent(struct rail_lane *lane, const void *addr, size_t len)
	TEI_REQUIRES(lane->lock);
/* The lane's connections, as far as the provider shows them. */
uint32_t rail_cut_count(struct rail_lane *lane) TEI_REQUIRES(lane->lock);

/* --- rail_tcp.c ---------------------------------------------------------- */
/* The same of one socket; ms 0: nothing is recent. */
bool rail_tcp_heard(int fd, uint32_t ms, bool asked);
/* Bytes that it has acknowledged, ever; 0 where that is all. */
uint64_t rail_tcp_acked(int fd);
/* The kernel there acknowledged all that came by it a while ago, but its process
 * has not answered yet, or only now. */
bool rail_tcp_pending(int fd);
/* Returns true if the other end's kernel has acknowledged nothing through two
 * retransmission timeouts, or has answered none of two window probes. Returns false
 * for a stopped process, because its kernel goes on acknowledging. */
bool rail_tcp_silent(int fd);
/* What the kernel at an address (a sockaddr) does with a connection. */
enum rail_tcp_answer {
	RAIL_TCP_SILENT,	/* nothing within that time, or another error */
	RAIL_TCP_REFUSED,	/* no process listens there */
	RAIL_TCP_ACCEPTED,
};
/* Tries a connection, waits for up to wait_ns, and closes it. */
enum rail_tcp_answer rail_tcp_ask(const void *addr, size_t len,
				  uint64_t wait_ns);

/* --- rail_reg.c: registering on a rail ----------------------------------- */
/* All of these: dp->admin is held, or nobody else knows the rail. */
int rail_mr_open_on(struct tei_rail_mr *mr, struct rail *rail,
		    struct tei_err *err);
void rail_mr_close_on(struct tei_rail_mr *mr, struct rail *rail);
/* rail_mr_open.c: on every rail that is open, or a code and on none. Its ranks
 * are known. */
int rail_mr_open_all(struct tei_rail_dp *dp, struct tei_rail_mr *mr,
		     struct tei_err *err) TEI_REQUIRES(dp->admin);
/* What is bound to the target lane is closed with it, and made anew. */
void rail_mr_unbind(struct rail *rail) TEI_REQUIRES(rail->dp->admin);
void rail_mr_rebind(struct rail *rail) TEI_REQUIRES(rail->dp->admin);
/* --- rail_hmem.c: memory of GPUs ----------------------------------------- */
/* Finds out, before the rail is opened, whether it takes any. */
void rail_hmem_ask(struct rail *rail);
/* tei_err_fail, or what only fills err where the rail is, or was, to be opened
 * with FI_HMEM: for all that may fail because of that. */
typedef int (*rail_tell)(struct tei_err *err, int code, const char *subsys,
			 const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
rail_tell rail_tell_open(const struct rail *rail);
/* It is to be opened without FI_HMEM, since with that there was an error, why; it
 * was; or there was one again, err, which is told with the first. */
void rail_hmem_leave(struct rail *rail);
void rail_hmem_without(struct rail *rail, const struct tei_err *why);
void rail_hmem_neither(const struct tei_err *why, struct tei_err *err);
/* The rail takes no memory of GPUs: why, as a code. */
int rail_hmem_refuse(const struct rail *rail, struct tei_err *err);
/* Why the region can't go by dma-buf, or NULL. */
const char *rail_hmem_no_dmabuf(const struct tei_rail_mr *mr);
/* A piece of the region; 0 or -FI_E*. */
int rail_hmem_reg(struct fid_domain *domain, const struct tei_rail_mr *mr,
		  enum tei_rail_way way, void *addr, size_t len,
		  uint64_t access, uint64_t key, uint64_t flags,
		  struct fid_mr **out);
/* The rail must not be given any byte of the region. */
static inline bool rail_hmem_foreign(const struct tei_rail_mr *mr,
				     const struct rail *rail)
{
	return mr && mr->gpu && !mr->part[rail->index].n;
}

/* Memory of our own for messages; 0 or -FI_E*. */
int rail_reg_own(struct rail *rail, struct fid_domain *domain, void *mem,
		 size_t len, uint64_t access, struct fid_mr **out);

/* What was tried to register a region on a rail, before it was given up. */
struct rail_reg_tried {
	uint64_t most, least;		/* bytes at a time, first and last */
	uint32_t done, pieces;		/* taken and wanted, of the last size */
};

/* What a refused registration may have met. */
struct rail_limits {
	uint64_t memlock;		/* bytes; UINT64_MAX: none */
	uint64_t pinned_kib;		/* by this process */
	uint64_t count;			/* registrations on the rail */
	uint64_t max_count;		/* of the device; 0: not known */
	uint64_t max_size;		/* bytes at once; 0: not known */
	size_t key_size;		/* bytes of a key that we choose */
};

/* Nothing is asked where ret stands for none. */
void rail_limits_get(const struct rail *rail, int ret, struct rail_limits *out);

/* Which limit it was that ret stands for, and its value; "" where nothing can
 * be said. */
void rail_limits_text(const struct rail_limits *l,
		      const struct rail_reg_tried *t, int ret, char *out,
		      size_t cap);

/* The same for what else pins memory, such as an endpoint's queues. With any
 * lock held. */
void rail_limits_memory(int ret, char *out, size_t cap);

/* Bytes from addr to the end of the piece that holds it. */
static inline uint64_t rail_mr_room(const struct tei_rail_mr *mr,
				    const struct rail_mr_part *part,
				    const char *addr)
{
	uint64_t off = (uint64_t)(addr - mr->addr);

	return (((off >> part->shift) + 1) << part->shift) - off;
}

/* --- rail_mr.c: local memory --------------------------------------------- */
struct tei_rail_mr *rail_mr_find(struct tei_rail_dp *dp, const void *addr,
				 uint64_t len) TEI_REQUIRES(rail_sched_held);
/* The same, also while it is being unregistered: for who holds it. */
struct tei_rail_mr *rail_mr_find_held(struct tei_rail_dp *dp, const void *addr,
				      uint64_t len)
	TEI_REQUIRES(rail_sched_held);
/* Shift of the finest pieces that the region has on any rail. */
uint8_t rail_mr_shift(struct tei_rail_dp *dp, const struct tei_rail_mr *mr);
/* The region's ranks are made anew. */
void rail_mr_rank(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held);
/* Ranks of the rails for the byte at addr. */
const uint8_t *rail_mr_ranks(const struct tei_rail_mr *mr, const char *addr)
	TEI_REQUIRES(rail_sched_held);
void rail_mr_free_all(struct tei_rail_dp *dp);
int rail_mr_open_anywhere(struct tei_rail_dp *dp, struct tei_err *err);
void rail_mr_close_anywhere(struct tei_rail_dp *dp);

/* --- rail_path.c --------------------------------------------------------- */
/* Path of this lane to that remote rail; NULL before rail_path_table. */
struct rail_path *rail_path_get(struct tei_rail_peer *peer,
				struct rail_lane *lane, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);
/* Whether it has an address for the present generations; the lane's lock is held
 * too. */
bool rail_path_is_ready(const struct tei_rail_peer *peer,
			const struct rail_path *path,
			const struct rail_lane *lane, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);
/* Gives the path an address for the present generations. gen: of the remote
 * rail, as it is noted with what is to be posted, -FI_EAGAIN if there is another
 * by now; 0: any. 0 or -FI_E*. */
int rail_path_ready(struct tei_rail_peer *peer, struct rail_path *path,
		    struct rail_lane *lane, uint16_t remote, uint32_t gen)
	TEI_REQUIRES(lane->lock);
/* -FI_EAGAIN was seen: no post before a while. busy: with slices of its own
 * under way. True when it has been connecting for suspiciously long. */
bool rail_path_block(struct rail_path *path, uint64_t now, bool busy);
/* Whether it is connected, as far as can be told; looks at the sockets, since a
 * connection that ends while nothing is posted leaves no completion. */
bool rail_path_lives(struct rail_lane *lane, struct rail_path *path)
	TEI_REQUIRES(lane->lock);
/* Something was posted on it while idle, or came back. The lane is locked. */
static inline void rail_path_moved(struct rail_path *path)
{
	__atomic_store_n(&path->moves, path->moves + 1, __ATOMIC_RELAXED);
}
/* A local rail that fits it, or -1. */
int rail_path_fit_any(struct tei_rail_dp *dp, const struct tei_rail_addr *addr);
/* The remote rail that the next slice of a local one goes to, or -1. */
int16_t rail_path_route(struct tei_rail_peer *peer, const struct rail *rail)
	TEI_REQUIRES(rail_sched_held);
/* Room for every pair of rails, and the routes. The thread or set-up. */
int rail_path_table(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* How well a local rail fits a remote one: 0 not at all, 1 perhaps, by way of
 * a router, 2 the same network, 3 the same address. */
int rail_path_fit(const struct rail *rail, const struct rail_remote *remote);
/* The same, also where it is but a hint. */
int rail_path_reach(const struct rail *rail, const struct rail_remote *remote);
/* Whether there is a choice; whenever routes or ranks have changed. */
void rail_aim_table(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* The remote rail that a slice of a request of that length goes to by the lane:
 * to memory of that key, from memory with these ranks. -1: none. */
int16_t rail_aim(struct tei_rail_peer *peer, struct rail_lane *lane,
		 const struct rail_rkey *key, const uint8_t *ranks,
		 uint64_t length, uint64_t *now)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);
/* A pair has broken, or works again: those rails take another remote rail, or
 * their own again. */
void rail_path_reroute(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* The turn-th remote, or so, that a local rail might reach beside its route, for
 * messages; one in doubt only where the others are as well: the fence that it
 * waits for may get through by no other. -1: there is none. */
int16_t rail_path_other(const struct tei_rail_peer *peer,
			const struct rail *rail, uint32_t turn)
	TEI_REQUIRES(rail_sched_held);
void rail_path_free_all(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* The slice was cut for that path; it came back, broken or not, or was not
 * posted after all. */
void rail_path_take(struct rail_path *path, struct rail_slice *slice)
	TEI_REQUIRES(rail_sched_held);
void rail_path_back(struct rail_slice *slice) TEI_REQUIRES(rail_sched_held);
/* The same for a message. tx->path may be NULL by the time that it is back. */
void rail_path_send(struct rail_path *path, struct rail_tx *tx)
	TEI_REQUIRES(rail_sched_held);
void rail_path_sent(struct rail_tx *tx) TEI_REQUIRES(rail_sched_held);

/* --- rail_window.c (rail_sched.h) ---------------------------------------- */
#define RAIL_WINDOW_MAX		(64u << 20)
#define RAIL_WINDOW_FIRST	(1u << 20)	/* until the rate is known */
void rail_window_init(struct rail *rail, uint64_t max);
/* Bytes that may be in hand, apart from those that are stuck. */
uint64_t rail_window(const struct rail *rail);
/*
 * Bytes of large tasks that a rail may have in hand while small ones come as
 * well. What is posted goes in order, and paths share the wire, so a small one
 * waits for all of it; that is why it is parted between the paths that take of
 * it. Two slices of half the usual size are the least that keeps a wire busy:
 * the next is there while the answer to the one before comes back. So at up to
 * some 1 Gbit/s a small task waits for no more than one slice of
 * MC_SLICE_SIZE, on a faster rail for half a millisecond, or, where small ones
 * come first (MOONRAIL_SMALL_FIRST), for a slice. A long way there and back
 * comes on top. UINT64_MAX: no such limit, on loopback, where it isn't IP, or
 * while the rate is not known.
 */
uint64_t rail_window_beside(const struct rail *rail);
/* Bytes in hand, as far as they move; those of large tasks. */
uint64_t rail_window_held(const struct rail *rail);
uint64_t rail_window_large(const struct rail *rail)
	TEI_REQUIRES(rail_sched_held);
/* Bytes have completed: the rail's service rate, and its window by that. */
void rail_window_measure(struct rail_lane *lane, uint64_t bytes, uint64_t now)
	TEI_REQUIRES(lane->lock);
/* A slice is posted and nothing else is; that slice has come back. */
void rail_window_begin(struct rail_lane *lane, struct rail_slice *slice,
		       uint64_t now) TEI_REQUIRES(lane->lock);
void rail_window_alone(struct rail_lane *lane, uint64_t now)
	TEI_REQUIRES(lane->lock);
/* Nothing is posted any more. */
void rail_window_empty(struct rail_lane *lane) TEI_REQUIRES(lane->lock);

/* --- rail_slice.c, _post.c, _end.c, _retry.c, _sched.c (rail_sched.h) ---- */
struct rail_slice *rail_slice_get(struct tei_rail_dp *dp)
	TEI_REQUIRES(rail_sched_held);
void rail_slice_put(struct tei_rail_dp *dp, struct rail_slice *slice)
	TEI_REQUIRES(rail_sched_held);
/* Cuts and posts until the lane is full or nothing is left. now: the time of a
 * moment ago, where the caller knows it, else 0. */
bool rail_sched_pull(struct rail_lane *lane, uint64_t now,
		     struct rail_done *done) TEI_REQUIRES(lane->lock);
/* Lets every lane pull; the calling thread. now: as above. */
void rail_sched_kick(struct tei_rail_dp *dp, uint64_t now);
/* Polls the lane unless someone else does. True if anything happened. */
bool rail_lane_run(struct rail_lane *lane);
/* There is new work: the lane pulls, or whoever runs it looks again before he
 * leaves. now: as above. */
void rail_lane_kick(struct rail_lane *lane, uint64_t now);
/* It is open and takes work, unless that has just changed. Any thread. */
bool rail_lane_active(const struct rail_lane *lane);
/* A posted slice came back. */
void rail_sched_ok(struct tei_rail_dp *dp, struct rail_slice *slice,
		   uint64_t now, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/*
 * Returns the provider's text if it says more about the error err (FI_E*) than
 * err itself, otherwise "". Sets *prov, the provider's code, to 0 if the code is
 * an errno that has nothing to do with a connection, as ENOENT.
 */
const char *rail_prov_text(int err, int *prov, const char *text);
/* Remembers what the provider said of a slice that broke. */
void rail_sched_broke(struct tei_rail_peer *peer, const struct rail *rail,
		      int err, int prov, const char *text)
	TEI_REQUIRES(rail_sched_held);
/*
 * Notes that a connection to the peer was lost or could not be made over the
 * rail. One log line for all rails follows a little later (rail_loss.c).
 */
void rail_loss_add(struct tei_rail_peer *peer, const struct rail *rail, int err,
		   int prov, const char *text)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if a lost connection of the rail is in the next such line. */
bool rail_loss_noted(const struct tei_rail_peer *peer, const struct rail *rail)
	TEI_REQUIRES(rail_sched_held);
/* Puts the newest such error into the record of an ended task. */
void rail_end_broke(const struct tei_rail_peer *peer, struct tei_err *err)
	TEI_REQUIRES(rail_sched_held);
/* A posted slice failed with err (FI_E*), or its lane was closed. It waits for
 * a fence, then goes on elsewhere. */
void rail_sched_broken(struct tei_rail_dp *dp, struct rail_slice *slice,
		       int err, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Tear-down: the task ends although slices of it were posted. */
void rail_sched_abandon(struct tei_rail_task *task, const struct tei_err *err,
			struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Gives up the fence of a task's slices: they are dropped. */
void rail_sched_give_up(struct tei_rail_peer *peer, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* The key of [addr, len) was refused: what waits for it fails. */
void rail_sched_no_key(struct tei_rail_peer *peer, uint64_t addr, uint64_t len,
		       int code, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* The key of [addr, len) came, and is for reading: writes that wait for it
 * fail. */
void rail_sched_read_only(struct tei_rail_peer *peer, uint64_t addr,
			  uint64_t len, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* The peer fenced that remote rail up to gen: limbo slices go on. */
void rail_sched_fenced(struct tei_rail_peer *peer, uint16_t remote,
		       uint32_t gen, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Ends a task as soon as nothing of it is posted. err is copied. */
void rail_task_end(struct tei_rail_dp *dp, struct tei_rail_task *task,
		   enum tei_rail_end end, const struct tei_err *err,
		   struct rail_done *done) TEI_REQUIRES(rail_sched_held);
void rail_done_init(struct rail_done *done);
void rail_done_run(struct tei_rail_dp *dp, struct rail_done *done);
void rail_peer_activate(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* --- rail_peer.c: peers; rail_ctl.c (rail_ctl.h): their state machines --- */
struct tei_rail_peer *rail_peer_find(struct tei_rail_dp *dp,
				     uint64_t incarnation)
	TEI_REQUIRES(rail_sched_held);
struct tei_rail_peer *rail_peer_new(struct tei_rail_dp *dp, const char *name,
				    uint64_t incarnation)
	TEI_REQUIRES(rail_sched_held);
/* The table of peers is full, and no peer can be evicted if rail_peer_new has just
 * failed; otherwise rail_peer_new fails for lack of memory only. */
bool rail_peer_no_room(const struct tei_rail_dp *dp)
	TEI_REQUIRES(rail_sched_held);
/* Puts the peer on dp->attn, due now, and wakes the thread. */
void rail_peer_attend(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* It gave a sign of life. */
void rail_peer_alive(struct tei_rail_peer *peer, uint64_t now)
	TEI_REQUIRES(rail_sched_held);
/* Asks one of the peers that have been silent for long for a sign of life. The
 * thread, no lock held. */
void rail_peer_probe(struct tei_rail_dp *dp, uint64_t now);
/* Its first hello came. */
void rail_peer_ready(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Its tasks end FAILED, those of which something is posted when that is fenced,
 * or UNFENCED. Unless it is RAIL_GONE_LEFT, whoever unregisters what it has keys
 * of has the lanes fenced. Again: more is known. */
void rail_peer_set_gone(struct tei_rail_peer *peer, const char *why,
			enum rail_gone gone, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Nothing that was posted to it lands any more. */
bool rail_peer_over(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Tasks or slices of it are under way. */
bool rail_peer_busy(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* It is not, and nobody here uses it. */
bool rail_peer_unused(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* It is not known whether the process has gone, but the peer is unused. */
void rail_peer_forget(struct tei_rail_peer *peer, const char *why,
		      struct rail_done *done) TEI_REQUIRES(rail_sched_held);
void rail_peer_free_all(struct tei_rail_dp *dp);
/*
 * Sets the n contact addresses of a peer that has not answered yet; does nothing
 * to other peers. Returns TEI_ERR_MEMORY if the peer cannot be reached for lack
 * of memory; a later call tries again.
 */
int rail_peer_set_contacts(struct tei_rail_peer *peer,
			   const struct tei_rail_addr *at, size_t n)
	TEI_REQUIRES(rail_sched_held);
/* Makes room for n entries of peer->remotes. 0 or TEI_ERR_MEMORY, and nothing
 * has changed. */
int rail_peer_reserve(struct tei_rail_peer *peer, size_t n)
	TEI_REQUIRES(rail_sched_held);
/* Hellos go to found_at, if that is news. The thread. */
void rail_peer_take_hint(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Where it said that it can always be found; n 0: nowhere. Without memory it is
 * what it was. */
void rail_peer_take_firsts(struct tei_rail_peer *peer,
			   const struct tei_rail_addr *at, uint16_t n)
	TEI_REQUIRES(rail_sched_held);
/* Another process answers where it is looked for. True: it told other addresses
 * that are yet to be tried. */
bool rail_peer_not_there(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Of these the next one becomes found_at, unless where it was found last is as
 * yet to be tried. */
void rail_peer_next_first(struct tei_rail_peer *peer, uint64_t now)
	TEI_REQUIRES(rail_sched_held);
/* Returns how many remotes the peer has. Any thread may change the number as long
 * as they are contact addresses; takes sched. */
uint16_t rail_peer_remotes(const struct tei_rail_peer *peer);
/* Hellos go to such an address just now. */
bool rail_peer_searched(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Its index, if there is one that the rail reaches, or -1. */
int16_t rail_peer_hint(const struct tei_rail_peer *peer,
		       const struct rail *rail) TEI_REQUIRES(rail_sched_held);
/* Its rails are known again: nothing goes there any more. The thread. */
void rail_peer_drop_hint(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Our rails have changed: routes are made anew, peers are told. */
void rail_peer_announce(struct tei_rail_dp *dp);
/* Returns true if a local rail reaches the address and the provider of that rail uses
 * sockets that can be seen. */
bool rail_peer_by_socket(struct tei_rail_dp *dp, const struct tei_rail_addr *at);
/* Tear-down: takes leave of the peers; true when all are told. */
bool rail_peer_bye(struct tei_rail_dp *dp);
/* Never heard of, and nobody here has anything for it any more. */
bool rail_peer_forsaken(const struct tei_rail_peer *peer);
/* Frees it then, or if it has gone; true: it is freed. */
bool rail_peer_maybe_free(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Somebody to be refused, first as its address; NULL: too many of them. */
struct tei_rail_peer *rail_peer_stranger(struct tei_rail_dp *dp,
					 uint64_t incarnation,
					 const struct tei_rail_addr *first,
					 enum rail_refusal why)
	TEI_REQUIRES(rail_sched_held);
/* What stands for the process that has that address; a reference. */
struct tei_rail_peer *rail_peer_seeker(struct tei_rail_dp *dp,
				       const struct tei_rail_addr *first)
	TEI_REQUIRES(rail_sched_held);
/* It refused us, and said why. */
void rail_peer_refused(struct tei_rail_peer *peer, const char *why,
		       struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Runs one peer's state machines; the thread, no lock held. Returns when it
 * wants to run again (0: when something changes). */
uint64_t rail_peer_run(struct tei_rail_peer *peer, uint64_t now);

/* --- rail_presume.c: peers that have probably ended ---------------------- */
/* Returns true if the peer has probably ended. */
bool rail_presumed(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Fills the error record of a task that ends because the peer has probably ended. */
void rail_presume_err(const struct tei_rail_peer *peer, struct tei_err *err)
	TEI_REQUIRES(rail_sched_held);
/* Calls ops->resolve if tasks wait for the peer and no connection to it is left. The
 * thread, no lock held. */
void rail_presume_ask(struct tei_rail_peer *peer, uint64_t now);

/* --- rail_key.c: keys asked for, given, revoked -------------------------- */
struct rail_rkey *rail_key_find(struct tei_rail_peer *peer, uint64_t addr)
	TEI_REQUIRES(rail_sched_held);
/* Keys for reading all of it, or for writing it. */
bool rail_key_covers(struct tei_rail_peer *peer, uint64_t addr, uint64_t len,
		     bool read)
	TEI_REQUIRES(rail_sched_held);
/* As above; what is missing first is asked for. */
bool rail_key_covers_or_want(struct tei_rail_peer *peer, uint64_t addr,
			     uint64_t len, bool read)
	TEI_REQUIRES(rail_sched_held);
/* A raw key, mapped for one of our rails. False: that failed. */
bool rail_key_raw(struct rail_rkey *key, uint16_t part,
		  const struct rail *rail, uint64_t *key64)
	TEI_REQUIRES(rail_sched_held);
/* The rail's domain is about to close. */
void rail_key_unmap(struct rail *rail);
/* A region that the peer told us; false: malformed or no memory. */
bool rail_key_add(struct tei_rail_peer *peer, struct rail_rkey *key)
	TEI_REQUIRES(rail_sched_held);
/* The peer takes a region back; answered when nothing is posted on it. */
void rail_key_revoked(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);
/* We take a region back from that peer. 0 or no memory. */
int rail_key_revoke(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);
/* That peer has drained it. */
void rail_key_drained(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);
/* REVOKED is owed to the peer for that region. */
void rail_key_owe(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held);
int rail_key_note_holder(struct tei_rail_mr *mr, uint64_t incarnation)
	TEI_REQUIRES(rail_sched_held);
/* That process holds no key any more, or (not sure) is not known any more. */
void rail_key_holder_gone(struct tei_rail_dp *dp, uint64_t incarnation,
			  bool sure) TEI_REQUIRES(rail_sched_held);
void rail_key_want(struct tei_rail_peer *peer, uint64_t addr, uint64_t len)
	TEI_REQUIRES(rail_sched_held);
void rail_key_slice_done(struct tei_rail_peer *peer, struct rail_rkey *key)
	TEI_REQUIRES(rail_sched_held);
void rail_key_drop_all(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Tear-down: frees them all, used or not. */
void rail_key_free_all(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* --- rail_atomic.c ------------------------------------------------------- */
struct rail_wire;
void rail_atomic_init(struct tei_rail_peer *peer);
void rail_atomic_free(struct tei_rail_peer *peer);
/* A task to be sent. */
void rail_atomic_enqueue(struct tei_rail_task *task)
	TEI_REQUIRES(rail_sched_held);
/* The task is about to end: where it was not sent, it never is. */
void rail_atomic_end(struct tei_rail_task *task)
	TEI_REQUIRES(rail_sched_held);
/* Tear-down: its record tells what is known. */
void rail_atomic_abandon(struct tei_rail_task *task);
/* The peer executes nothing any more. */
void rail_atomic_gone(struct tei_rail_peer *peer, const char *why,
		      struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Ended tasks are not waited for any longer. */
void rail_atomic_give_up(struct tei_rail_peer *peer, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* The session that the peer's hello tells, 0: none. */
void rail_atomic_session(struct tei_rail_peer *peer, uint64_t session,
			 struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Messages; the thread. */
void rail_atomic_asked(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held);
void rail_atomic_answered(struct tei_rail_peer *peer, struct rail_wire *w,
			  struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/* --- rail_fence.c -------------------------------------------------------- */
void rail_fence_want(struct tei_rail_peer *peer, uint16_t remote, uint32_t gen)
	TEI_REQUIRES(rail_sched_held);
/* What a lane that was closed had posted, and is off every list: broken. */
void rail_fence_abort(struct tei_rail_dp *dp, struct tei_list *aborted);
/* Some generation of the peer's is to be fenced, and is not. */
bool rail_fence_wanted(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* The thread, no lock held: */
/* Gets back what is posted to the peer: by cutting the connections of one that is
 * silent, else or where that does not do it by retiring lanes. */
void rail_fence_retire_peer(struct tei_rail_peer *peer, uint64_t now);
/* A path that cannot connect although its peer may be there: some providers
 * refuse a reconnect from an address whose old connection they still hold, so
 * the lane gets a new one, with back-off as long as none connects. */
void rail_fence_maybe_stuck(struct tei_rail_peer *peer, struct rail_lane *lane,
			    struct rail_path *path, uint64_t now);
/* The same for all of the peer's paths that were tried lately. */
void rail_fence_unstick(struct tei_rail_peer *peer, uint64_t now);
/* Replaces the lanes whose connections to the peer show no sign of life, because a
 * firewall or NAT may have dropped their state while new connections would pass. Is
 * called while requests or answers to the peer get lost, and limits its own rate. */
void rail_fence_silent(struct tei_rail_peer *peer, uint64_t now);
/* New work goes to a new endpoint; the old one is closed after drain_ns. */
void rail_fence_renew_lane(struct rail_lane *lane, uint64_t drain_ns);
/* Opens what could not be opened before. */
void rail_fence_reopen(struct rail *rail);
/* Its target lane is open again: tells the peers. */
void rail_fence_reopened(struct rail *rail);
/* Closes retiring lanes that are idle or out of time, and looks after those
 * that are being closed; returns when to come again, 0: not for this. */
uint64_t rail_fence_retiring(struct tei_rail_dp *dp, uint64_t now);
/* Closes the rail's target lane if it is of generation gen or older; its
 * replacement is opened after that. Returns the generation in force from then
 * on; 0: it is not closed yet, and peers that are owed an answer are attended to
 * when it is. */
uint32_t rail_fence_target(struct rail *rail, uint32_t gen);

/* --- rail_msg.c: the peer protocol --------------------------------------- */
enum rail_msg_type {
	RAIL_MSG_HELLO = 1,	/* our rails; flags: reply wanted */
	RAIL_MSG_REFUSE = 2,	/* a hello is refused: enum rail_refusal */
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
	RAIL_MSG_USER = 13,	/* the bytes of tei_rail_send */
	RAIL_MSG_PING = 14,	/* a sign of life, or a probe of the wire */
	RAIL_MSG_PONG = 15,
	RAIL_MSG_BACK = 16,	/* a way for RAIL_MSG_USER */
	RAIL_MSG_NOTE_ACK = 17,
};
/* All of these: the thread, no lock held unless said. */
struct rail_wire;
void rail_msg_begin(struct tei_rail_peer *peer, struct rail_wire *w,
		    uint8_t *buf, enum rail_msg_type type, uint16_t flags);
/* Length of the message, 0 if it did not fit. */
size_t rail_msg_end(struct rail_wire *w);
/* A fabric address; false: there is none, or it is cut off. Any thread. */
void rail_msg_put_addr(struct rail_wire *w, const struct tei_rail_addr *addr);
bool rail_msg_get_addr(struct rail_wire *w, struct tei_rail_addr *addr);
size_t rail_msg_hello(struct tei_rail_peer *peer, bool want_reply,
		      uint8_t *buf);
/* Sends over the first rail from the attempt-th on that takes it. 0,
 * -FI_EAGAIN while connecting or full, other negative: no route. */
int rail_msg_send(struct tei_rail_peer *peer, const void *msg, size_t len,
		  uint32_t attempt);
/* What no rail took: -FI_EHOSTUNREACH where none of ours fits any of the peer's,
 * else -FI_EAGAIN: a link, a route or lanes may come back. Other results as they
 * are. */
int rail_msg_verdict(struct tei_rail_peer *peer, int ret);
int rail_msg_send_on(struct tei_rail_peer *peer, struct rail *rail,
		     uint32_t lane_index, const void *msg, size_t len);
/* The lane of that number that takes work, or NULL. Any thread. */
struct rail_lane *rail_msg_lane(struct rail *rail, uint32_t lane_index);
/* From a target lane to that address of its AV. Any thread; 0, -FI_EAGAIN: no
 * buffer, other negative: no connection. */
int rail_msg_post_back(struct tei_rail_peer *peer, struct rail_lane *lane,
		       fi_addr_t addr, const void *msg, size_t len)
	TEI_REQUIRES(lane->lock);
/* What is known of the connection of the rail's route to the peer. Any thread;
 * looks at all sockets of the lane. */
enum rail_msg_link {
	RAIL_MSG_UNLINKED,
	RAIL_MSG_LINKING,	/* a message is under way by it */
	RAIL_MSG_LINKED,
};
enum rail_msg_link rail_msg_link(struct tei_rail_peer *peer, struct rail *rail,
				 uint32_t lane_index);
/* As above, any thread; what it met, for rail_fence_maybe_stuck. */
int rail_msg_try_on(struct tei_rail_peer *peer, struct rail *rail,
		    uint32_t lane_index, const void *msg, size_t len,
		    struct rail_lane **lane, struct rail_path **path);
/* As that, to that remote rail; -1: by the route. */
int rail_msg_try_pair(struct tei_rail_peer *peer, struct rail *rail,
		      uint32_t lane_index, int16_t remote, const void *msg,
		      size_t len, struct rail_lane **lane,
		      struct rail_path **path);
/* Whether nothing speaks against that rail of ours for messages. */
bool rail_msg_works(struct tei_rail_peer *peer, const struct rail *rail);
/* The same by any endpoint, to an address of its AV. */
int rail_msg_post(struct tei_rail_peer *peer, struct rail_lane *lane,
		  uint16_t remote, fi_addr_t addr, const void *msg, size_t len);
/* Returns the text that a REFUSE carries next to its code. */
const char *rail_msg_refusal_text(enum rail_refusal why);
/* PING and PONG; rail_probe.c. */
void rail_msg_on_ping(struct tei_rail_peer *peer, struct rail_lane *lane,
		      struct rail_wire *w) TEI_REQUIRES(rail_sched_held);
void rail_msg_on_pong(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held);
/* A message came in. The thread, or a caller: then it is set
 * aside unless it is for the user. */
void rail_msg_received(struct rail_lane *lane, const uint8_t *buf, size_t len,
		       struct rail_done *done) TEI_REQUIRES(lane->lock);

/* What callers have set aside. The thread. */
void rail_msg_aside(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock);
void rail_msg_drop_aside(struct rail_lane *lane);

/* --- rail_user.c: messages of the data plane's user ---------------------- */
bool rail_addr_same(const struct tei_rail_addr *a,
		    const struct tei_rail_addr *b);
/* A sockaddr_in or sockaddr_in6, whole. */
bool rail_addr_is_ip(const struct tei_rail_addr *a);

/* --- rail_ports.c -------------------------------------------------------- */

#define RAIL_PORT_TRIES	8	/* attempts if other processes take the ports */

/* Returns true if MOONRAIL_DATA_PORTS is set and holds for the lane's rail. */
bool rail_ports_apply(const struct rail_lane *lane, const struct fi_info *info);
/* Sets the source port of info to a free one. Returns 0 or -FI_EADDRNOTAVAIL. */
int rail_ports_set(const struct rail_lane *lane, struct fi_info *info);
/* Returns true if opening the lane failed because its port was taken meanwhile,
 * and another one is to be tried. */
bool rail_ports_again(const struct rail_lane *lane, int ret, uint32_t tries);
/* Writes a hint if opening a lane failed for want of a port. */
void rail_ports_hint(const struct rail_lane *lane, int ret, char *hint,
		     size_t len);
void rail_user_received(struct tei_rail_peer *peer, const struct rail_wire *w,
			struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* The process of incarnation inc has that address. */
void rail_user_seen(struct tei_rail_dp *dp, uint64_t inc,
		    const struct tei_rail_addr *addr)
	TEI_REQUIRES(rail_sched_held);

/* The buffer is free again. */
void rail_msg_tx_put(struct rail_tx *tx) TEI_REQUIRES(rail_sched_held);
/* True when no message of the rail is under way by an initiating lane. */
bool rail_msg_idle(struct rail *rail);

/* --- rail_auth.c: the shared secret -------------------------------------- */
/* Numbers and signs a whole message to the peer, where there is a secret; sched
 * is not held. */
void rail_auth_sign(struct tei_rail_peer *peer, uint8_t *msg, size_t len);
/* Whether it was signed for us; peer may be NULL. At least a header. */
bool rail_auth_fits(const struct tei_rail_dp *dp,
		    const struct tei_rail_peer *peer, const uint8_t *msg,
		    size_t len);
/* False if that number has been taken, or is too old to know. */
bool rail_auth_once(struct tei_rail_peer *peer, uint64_t number);
/* False if a later hello has come. */
bool rail_auth_newest_hello(struct tei_rail_peer *peer, uint64_t number);

/* --- rail_report.c ------------------------------------------------------- */

/* enum tei_topo_rank of each rail for the location; 0 where nothing is known. */
void rail_report_ranks(struct tei_rail_dp *dp, const char *location,
		       uint8_t ranks[TEI_RAIL_MAX]);

/* --- rail_near.c --------------------------------------------------------- */

/* NUMA node of the rail's NIC, -1 unknown. */
int rail_near_node(const struct rail *rail);
/* Zeroed pages, on the rail's node if there is room; NULL without memory. */
void *rail_near_alloc(const struct rail *rail, size_t size);
void rail_near_free(void *mem, size_t size);	/* NULL is fine */
/* MOONRAIL_PROGRESS_CPUS, before the thread is started: TEI_ERR_INVALID. */
int rail_near_check(struct tei_rail_dp *dp, struct tei_err *err);
/* Binds the thread; again when there are other rails. */
void rail_near_bind(struct tei_rail_dp *dp);

/* --- rail_progress.c ----------------------------------------------------- */

int rail_progress_start(struct tei_rail_dp *dp, struct tei_err *err);
void rail_progress_stop(struct tei_rail_dp *dp);
/* Makes the thread look at dp->attn and the rest soon. Any thread. */
void rail_progress_wake(struct tei_rail_dp *dp);
/* Wakes the thread if it is in a long sleep, because something was posted that
 * has to be watched. Any thread. */
void rail_progress_stir(struct tei_rail_dp *dp);
/* Wakes those who wait on dp->cond. */
void rail_progress_signal(struct tei_rail_dp *dp);
/* Whether callers drive the lanes; the thread's view of it. */
struct rail_drive {
	uint64_t seen;			/* looks->calls at the last measuring */
	uint64_t looked_ns;		/* looks->took_ns then */
	uint64_t since_ns;		/* when that was */
	bool driven;
};
bool rail_drive_look(struct tei_rail_dp *dp, struct rail_drive *drive,
		     uint64_t now);
/* The same of the target lanes. */
bool rail_drive_look_targets(struct tei_rail_dp *dp, struct rail_drive *drive,
			     uint64_t now);
/* A caller looks, from then on. */
static inline void rail_look_begin(struct rail_looks *looks, uint64_t now)
{
	__atomic_store_n(&looks->since_ns, now, __ATOMIC_RELAXED);
}

/* One look is over; it took no time worth counting. */
static inline void rail_look_count(struct rail_looks *looks)
{
	uint64_t calls = __atomic_load_n(&looks->calls, __ATOMIC_RELAXED);

	__atomic_store_n(&looks->calls, calls + 1, __ATOMIC_RELAXED);
}

/* One that began at from is over. */
static inline void rail_look_end(struct rail_looks *looks, uint64_t from,
				 uint64_t now)
{
	uint64_t took = __atomic_load_n(&looks->took_ns, __ATOMIC_RELAXED);

	rail_look_count(looks);
	__atomic_store_n(&looks->took_ns, took + now - from, __ATOMIC_RELAXED);
	__atomic_store_n(&looks->since_ns, 0, __ATOMIC_RELAXED);
}

#endif /* TEI_PROV_RAIL_RAIL_INT_H */
