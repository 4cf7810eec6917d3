/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_TEI_RAIL_H
#define TEI_PROV_RAIL_TEI_RAIL_H

/*
 * The data plane: rails, lanes, paths, slices, the peer protocol and the
 * fence. It is handed a peer's first address and nothing else; everything
 * further (rails, keys, fences) travels in-band.
 *
 * Threads: every call may come from any thread unless it says otherwise. Each
 * data plane runs one progress thread. Callbacks come with no lock held, from
 * the progress thread or from a thread that is inside tei_rail_progress,
 * tei_rail_submit or tei_rail_mr_dereg; they must not block.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"
#include "util/list.h"

struct tei_secret;
struct tei_settings;
struct tei_topo;
struct tei_rail_dp;
struct tei_rail_message;
struct tei_rail_mr;
struct tei_rail_note;
struct tei_rail_outgoing;
struct tei_rail_peer;
struct tei_rail_task;

#define TEI_RAIL_MAX		64	/* rails per process */
#define TEI_RAIL_ADDR_MAX	256	/* bytes of a fabric address */

/*
 * A peer's first address: a target lane of one of its rails. Plain data; what
 * a descriptor publishes. Compatible when protocol, version and addr_format
 * are equal on both sides.
 */
struct tei_rail_addr {
	uint32_t protocol;		/* FI_PROTO_… */
	uint32_t protocol_version;
	uint32_t addr_format;		/* FI_SOCKADDR_IN, … */
	uint32_t len;			/* bytes used */
	uint8_t bytes[TEI_RAIL_ADDR_MAX];
};

/*
 * How a task ended. FENCED failures are final at both ends; UNFENCED means
 * that the target could not be made to promise that.
 */
enum tei_rail_end {
	TEI_RAIL_END_COMPLETED,
	TEI_RAIL_END_FAILED,
	TEI_RAIL_END_UNFENCED,
	TEI_RAIL_END_CANCELED,
};

struct tei_rail_ops {
	/*
	 * The task has ended; once per submitted task. Its memory is the
	 * caller's again when this is called.
	 */
	void (*task_done)(struct tei_rail_task *task, enum tei_rail_end end,
			  const struct tei_err *err);
	/*
	 * A notification has arrived. It is the callee's, and counts as held until
	 * tei_rail_note_release.
	 */
	void (*notify)(void *arg, struct tei_rail_note *note);
	/*
	 * The peer does not answer at its known addresses: look its first
	 * address up again, off this thread, and answer by
	 * tei_rail_peer_resolved, or not at all. peer stays valid until then
	 * by a reference that the callee gives back with tei_rail_peer_put.
	 */
	void (*resolve)(void *arg, struct tei_rail_peer *peer);
	/* Addresses of our rails have changed: publish them again. */
	void (*rails_changed)(void *arg);
	/*
	 * An interface, its link or an address of this host may have changed. The
	 * callee calls tei_rail_dp_devices_changed and tei_rail_dp_refresh from
	 * another thread. NULL: the rails stay those that were found at the start.
	 */
	void (*devices_changed)(void *arg);
	/*
	 * The next two are NULL where tei_rail_send is not used. A message has
	 * come; it is the callee's, to be given back by tei_rail_message_free.
	 */
	void (*message)(void *arg, struct tei_rail_message *message);
	/*
	 * Something about the peer has changed, it was asked for by
	 * tei_rail_attend, or the time has come: on the progress thread.
	 * Returns when to be called next, 0: never.
	 */
	uint64_t (*attend)(void *arg, struct tei_rail_peer *peer, uint64_t now);
};

struct tei_rail_dp_attr {
	const struct tei_settings *settings;	/* outlives the data plane */
	const struct tei_rail_ops *ops;		/* outlives the data plane */
	void *arg;				/* for ops */
	const char *name;			/* this process's name; copied */
	uint64_t incarnation;			/* random, not 0 */
	const struct tei_secret *secret;	/* read during open; NULL:
						 * everybody may be a peer */
	uint64_t info_flags;			/* for fi_getinfo */
	uint16_t port;				/* that IP rails listen at
						 * first, 0: any */
	bool any_local;				/* local memory of tasks need
						 * not be registered, unless
						 * tei_rail_wants says so */
	bool back;				/* many messages are answered by
						 * others: tei_rail_send */
};

/* 0 with *dp owned by the caller; no rails yet. */
int tei_rail_dp_open(const struct tei_rail_dp_attr *attr, struct tei_err *err,
		     struct tei_rail_dp **dp);

/*
 * Waits up to drain_ns for the live tasks, then stops calling ops->resolve,
 * ops->rails_changed and ops->devices_changed.
 */
void tei_rail_dp_quiesce(struct tei_rail_dp *dp, uint64_t drain_ns);

/*
 * Drains for up to drain_ns, takes leave of the peers, ends every task still
 * live and stops the thread. Nothing is freed: other calls may still run and
 * move nothing any more. For a process that is about to end, and first in
 * close.
 */
void tei_rail_dp_leave(struct tei_rail_dp *dp, uint64_t drain_ns);

/* Leaves, then frees everything. No other call may run. */
void tei_rail_dp_close(struct tei_rail_dp *dp, uint64_t drain_ns);

/*
 * Returns the transport that a name means: "rdma" for "efa" and "cxi", which
 * are transport rdma with one provider, otherwise the name itself.
 */
const char *tei_rail_transport_of(const char *name);

/*
 * Finds and opens the rails of one transport: "tcp", "rdma" or "shm", or "efa"
 * or "cxi" for rails of transport "rdma" that use that provider. devices
 * is a comma list of interfaces, RDMA devices or addresses, "" for all that
 * are usable. Starts with those that work and logs which did not and why; an
 * error only if none works. Memory registered before is registered on them.
 */
int tei_rail_dp_add_transport(struct tei_rail_dp *dp, const char *transport,
			      const char *devices, struct tei_err *err);

/*
 * Returns true if the interfaces of this host or their addresses differ from those
 * at the last call.
 */
bool tei_rail_dp_devices_changed(struct tei_rail_dp *dp);

/*
 * Searches for devices of a transport again, with the arguments of
 * tei_rail_dp_add_transport, opens rails for those that have none, and registers
 * the registered memory on them.
 *
 * A rail is replaced if there is a better one: a fallback, such as loopback, by
 * the rails of networks, and a rail whose address this host no longer has by another
 * rail on the same device. The old rail is no longer published. It is closed
 * when no peer knows it, or at once if its address is gone.
 *
 * Returns flags. Logs a failure only if the last attempt did not fail as well.
 */
#define TEI_RAIL_REFRESHED	1u	/* the set of published rails has changed */
#define TEI_RAIL_REFRESH_AGAIN	2u	/* something is left to do: call it later */
uint32_t tei_rail_dp_refresh(struct tei_rail_dp *dp, const char *transport,
			     const char *devices);

/*
 * True where any device of the transport is there, of devices where that is
 * not "", else of those of the settings; opens nothing. info_flags: for
 * fi_getinfo.
 */
bool tei_rail_transport_present(const struct tei_settings *settings,
				const char *transport, const char *devices,
				uint64_t info_flags);

/* What the rails that were ever opened ask for as regards memory. */
#define TEI_RAIL_WANTS_LOCAL	1u	/* that of tasks is to be registered */
#define TEI_RAIL_WANTS_PINNED	2u	/* what is registered is pinned, so it has
					 * to be unregistered before it may be
					 * unmapped */
uint32_t tei_rail_wants(struct tei_rail_dp *dp);

/* Waits up to drain_ns until all tasks are the callers' again, then closes the
 * transport's rails. */
int tei_rail_dp_remove_transport(struct tei_rail_dp *dp, const char *transport,
				 uint64_t drain_ns, struct tei_err *err);

/* What topology discovery and descriptors need to know of a rail. */
struct tei_rail_desc {
	bool open;			/* false: uninstalled; keeps its index */
	bool hidden;			/* replaced by another rail: not to be
					 * published */
	char name[64];
	char provider[32];
	char transport[16];
	char address_text[96];
	char pci[32];			/* "0000:81:00.0" or "" */
	char fabric[64];
	int numa;			/* -1 unknown */
	uint64_t speed_bps;		/* link speed, bits/s, 0 unknown */
	struct tei_rail_addr addr;	/* of its target lane, as it is now */
	struct tei_rail_addr known;	/* to be told others: its first one,
					 * where that is held, else addr. On
					 * IP networks it is, and stays good
					 * for messages for as long as the
					 * rail lives */
};

/* Number of rails; indices are stable while the data plane lives. */
size_t tei_rail_count(struct tei_rail_dp *dp);
int tei_rail_describe(struct tei_rail_dp *dp, size_t index,
		      struct tei_rail_desc *desc);

/* As enum te_rail_state of moonrail.h. */
enum tei_rail_state {
	TEI_RAIL_UP,
	TEI_RAIL_SUSPECT,
	TEI_RAIL_DOWN,
	TEI_RAIL_PROBING,
};

struct tei_rail_stats {
	uint32_t state;			/* enum te_rail_state of moonrail.h */
	uint32_t lanes;
	uint64_t tx_bytes, rx_bytes, slices, retries, errors;
	uint64_t inflight_bytes, inflight_max, window;
	double rate;			/* bytes/s, service rate */
	uint64_t state_changes;
};
int tei_rail_get_stats(struct tei_rail_dp *dp, size_t index,
		       struct tei_rail_stats *stats);

/*
 * The priority matrix: topo NIC i is the rail of that name. topo stays the
 * caller's and must outlive the data plane or the next call. NULL: all equal.
 */
void tei_rail_dp_set_topo(struct tei_rail_dp *dp, const struct tei_topo *topo);

/* --- memory -------------------------------------------------------------- */

/*
 * Zeroed pages, not registered, for what rails and something at that location
 * have between them: on the node of the NIC that is nearest to it, where that
 * is known and has room. For munmap; NULL without memory.
 */
void *tei_rail_mem_near(struct tei_rail_dp *dp, const char *location,
			size_t size);

/*
 * Registers [addr, addr + len) on every rail, now and later. -7 for any
 * overlap, also while that one is still being registered. location: text of
 * tei_topo. access: what follows, 0: for local tasks only. *mr is the data
 * plane's.
 */
#define TEI_RAIL_REMOTE		1u	/* peers may read and write it */
#define TEI_RAIL_READ_ONLY	2u	/* nobody may write it */
int tei_rail_mr_reg(struct tei_rail_dp *dp, void *addr, uint64_t len,
		    const char *location, uint32_t access, struct tei_err *err,
		    struct tei_rail_mr **mr);

/* How a rail reaches registered memory. */
enum tei_rail_way {
	TEI_RAIL_WAY_HOST,		/* it is the host's */
	TEI_RAIL_WAY_DMABUF,		/* a GPU's, by a dma-buf of it */
	TEI_RAIL_WAY_PEER,		/* a GPU's, by its address */
};
const char *tei_rail_way_name(enum tei_rail_way way);

/* Whose memory it is, of the GPUs'. */
struct tei_rail_device {
	int cuda;			/* ordinal */
	int dmabuf;			/* descriptor, or -1 */
	uint64_t offset;		/* of the region in that */
};

/*
 * As tei_rail_mr_reg, of memory of a GPU: on all rails that are open, or an
 * error, which is filled in and neither logged nor set, since such memory can
 * go by way of the host's. What was registered stays away from rails that come
 * later and do not take it; scatter/gather and atomics leave it alone. device:
 * the descriptor is the data plane's from a success on.
 */
int tei_rail_mr_reg_gpu(struct tei_rail_dp *dp, void *addr, uint64_t len,
			const char *location, uint32_t access,
			const struct tei_rail_device *device,
			struct tei_err *err, struct tei_rail_mr **mr);

/* Whether no open rail is known to take none; why not is in *err, as above.
 * Cheap: to be asked before memory is made ready for NICs. */
bool tei_rail_may_gpu(struct tei_rail_dp *dp, struct tei_err *err);

/* Whether the range is GPU memory that every open rail, one at least, takes. */
bool tei_rail_mr_direct(struct tei_rail_dp *dp, const void *addr,
			uint64_t len);

/*
 * Unregisters the region that starts at addr. 0 only when no peer can touch
 * it any more: key revoked, connected initiators asked to drain, those that
 * did not answer within MOONRAIL_FENCE_MS fenced. Local tasks on it are waited
 * for up to local_ns, else -4 and nothing has changed. -3 if unknown.
 */
int tei_rail_mr_dereg(struct tei_rail_dp *dp, void *addr, uint64_t local_ns,
		      struct tei_err *err);

/*
 * Holds registered local memory for what comes as one task after another, each
 * marked as held: until it is let go, tei_rail_mr_dereg waits as for a task.
 * Several regions that lie side by side will do. write: bytes come into it.
 * -3 if some of it is not registered, or not for that.
 */
int tei_rail_mr_hold(struct tei_rail_dp *dp, const void *addr, uint64_t len,
		     bool write);
void tei_rail_mr_let_go(struct tei_rail_dp *dp, const void *addr,
			uint64_t len);

/* Key of the registered byte at addr on one rail, for descriptors. */
int tei_rail_mr_key(struct tei_rail_dp *dp, const void *addr, size_t rail,
		    uint64_t *key);

/*
 * Bytes from addr on that have the same keys, 0 where nothing is registered. A
 * region that is larger than what a device registers at once has several.
 */
uint64_t tei_rail_mr_piece(struct tei_rail_dp *dp, const void *addr);

/* --- peers --------------------------------------------------------------- */

#define TEI_RAIL_CONTACTS	64	/* contact addresses that are tried */

/*
 * Takes a reference to the peer with that incarnation; creates the peer if it
 * is not known. Sends nothing yet. at: the n contact addresses of the process;
 * those after the first TEI_RAIL_CONTACTS are ignored. All of them are tried
 * until the peer has answered once.
 */
int tei_rail_peer_get(struct tei_rail_dp *dp, const char *name,
		      uint64_t incarnation, const struct tei_rail_addr *at,
		      size_t n, struct tei_err *err,
		      struct tei_rail_peer **peer);
void tei_rail_peer_hold(struct tei_rail_peer *peer);
void tei_rail_peer_put(struct tei_rail_peer *peer);
const char *tei_rail_peer_name(const struct tei_rail_peer *peer);
uint64_t tei_rail_peer_incarnation(const struct tei_rail_peer *peer);

/*
 * Answer to ops->resolve; may block for a moment. Another incarnation means that
 * later tasks must use a new peer. Those of this one end: FAILED where the old
 * process is found to be gone or fences what was posted, else UNFENCED.
 */
void tei_rail_peer_resolved(struct tei_rail_peer *peer, uint64_t incarnation,
			    const struct tei_rail_addr *at, size_t n);

/*
 * Another answer to ops->resolve: the peer's control port refuses connections.
 * Its tasks end as unfenced failures if its rails refuse connections as well and
 * no connection to it is left. Blocks for a moment.
 */
void tei_rail_peer_no_control(struct tei_rail_peer *peer);

/*
 * Someone has seen the process behind the peer end; blocks for a moment. Whom
 * its descriptor names may be another, so that it is believed only where none
 * of the peer's rails listens any more: then its tasks end FAILED. True once the
 * peer is known to be gone.
 */
bool tei_rail_peer_ended(struct tei_rail_peer *peer, const char *why);

/* True when one of our rails can reach that address. */
bool tei_rail_addr_fits(struct tei_rail_dp *dp,
			const struct tei_rail_addr *addr);

/* True while nothing of it is known to be broken; it may not be there yet. */
bool tei_rail_peer_sound(struct tei_rail_peer *peer);

/*
 * True while nothing of it is broken and it gave a sign of life in the last 5
 * milliseconds.
 */
bool tei_rail_peer_healthy(struct tei_rail_peer *peer);

/* One way to a peer: a rail of ours and the rail of the peer it is routed to.
 * The remote rail has no name before the peer was first heard of. */
struct tei_rail_path_info {
	char transport[16];
	char provider[32];
	char rail[64];
	char address[96];		/* of its target lane */
	char remote_rail[64];
	char remote_address[96];
	int numa;			/* of our rail, -1 unknown */
	uint8_t rank;			/* enum tei_topo_rank */
	bool connected;
};

/*
 * The ways to a peer, at most one per rail of ours; how many. Ranks are those
 * for memory at location (NULL: anywhere).
 */
size_t tei_rail_peer_paths(struct tei_rail_peer *peer, const char *location,
			   struct tei_rail_path_info out[TEI_RAIL_MAX]);
/* The same without ranks and whether they are connected, which takes long. */
size_t tei_rail_peer_routes(struct tei_rail_peer *peer,
			    struct tei_rail_path_info out[TEI_RAIL_MAX]);

enum tei_rail_peer_condition {
	TEI_RAIL_PEER_NEW,		/* has not answered yet */
	TEI_RAIL_PEER_READY,
	TEI_RAIL_PEER_FENCING,		/* a fence is awaited */
	TEI_RAIL_PEER_GONE,
};

/* Since the peer was first referred to. */
struct tei_rail_peer_stats {
	uint64_t tx_bytes, rx_bytes;	/* slices completed */
	uint64_t completed, failed, unfenced, canceled;	/* tasks */
	uint64_t retries;		/* slices posted again */
	uint64_t fences;		/* asked for */
	uint64_t alive_ns;		/* last sign of life, 0: none */
	uint32_t queued;		/* tasks not wholly cut */
	uint32_t posted;		/* slices */
	enum tei_rail_peer_condition state;
};
void tei_rail_peer_get_stats(struct tei_rail_peer *peer,
			     struct tei_rail_peer_stats *out);

/* True once the process of this incarnation is known to be gone. */
bool tei_rail_peer_gone(struct tei_rail_peer *peer);

/* The same for one that need not be known any more: then false. */
bool tei_rail_gone(struct tei_rail_dp *dp, uint64_t incarnation);

/* Connects every pair of rails; blocks up to timeout_ns. Idempotent. */
int tei_rail_peer_warmup(struct tei_rail_peer *peer, uint64_t timeout_ns,
			 struct tei_err *err);

/* --- notifications -------------------------------------------------------- */

#define TEI_RAIL_NOTIFY_MAX	1048576	/* bytes of name and message together */

/* A notification that was received, or is meant for this process itself. */
struct tei_rail_note {
	struct tei_list link;		/* the owner's */
	char *name, *msg;		/* each allocated by itself, for free() */
	uint64_t bytes;			/* of both, without terminators */
};
/* Copies both strings. Returns NULL without memory. */
struct tei_rail_note *tei_rail_note_new(const char *name, const char *msg);
/* Frees the note and those strings that are not NULL. */
void tei_rail_note_free(struct tei_rail_note *note);

/*
 * MOONRAIL_NOTIFY_BYTES and MOONRAIL_MAX_NOTIFIES limit what is held for the
 * user of the data plane. Reserve counts a notification of this process to itself;
 * returns 0, or TEI_ERR_TOO_MANY if there is no room now. Release counts off what
 * the user has fetched, also of those that came by ops->notify, and lets the peers
 * that wait for room go on.
 */
int tei_rail_note_reserve(struct tei_rail_dp *dp, uint64_t bytes);
void tei_rail_note_release(struct tei_rail_dp *dp, uint32_t notes,
			   uint64_t bytes);

/*
 * Makes a notification to the peer that is to be queued later. The peer must
 * outlive it until then. Returns 0; or, with err filled in, TEI_ERR_INVALID if it is
 * longer than TEI_RAIL_NOTIFY_MAX, TEI_ERR_TOO_MANY if as many or as many bytes
 * already wait for the peer, or TEI_ERR_MEMORY.
 */
int tei_rail_outgoing_new(struct tei_rail_peer *peer, const char *name,
			  const char *msg, struct tei_err *err,
			  struct tei_rail_outgoing **out);
/*
 * Queues it, which takes it over. It is sent until the peer has acknowledged it, at
 * most once and in the order of queueing. If the peer is lost before, it is dropped
 * with a line in the log.
 */
void tei_rail_outgoing_queue(struct tei_rail_outgoing *out);
/* Frees one that was not queued; NULL is ignored. */
void tei_rail_outgoing_free(struct tei_rail_outgoing *out);

/*
 * Sends a notification and waits for up to timeout_ns until the peer has
 * acknowledged it. Returns 0, or a code with err filled in: those of
 * tei_rail_outgoing_new, TEI_ERR_TOO_MANY if the peer has no room for it,
 * TEI_ERR_TIMED_OUT, TEI_ERR_NO_DEVICE if no rail leads there, TEI_ERR_ENDPOINT or
 * TEI_ERR_CONTEXT if the peer is lost. After an error it is not sent any more.
 * err->unknown says that it may have arrived, or may still arrive once.
 */
int tei_rail_notify(struct tei_rail_peer *peer, const char *name,
		    const char *msg, uint64_t timeout_ns, struct tei_err *err);
/* Ends present and future waits of tei_rail_notify. The queue is still sent. */
void tei_rail_notify_shut(struct tei_rail_dp *dp);

/* --- messages ------------------------------------------------------------ */

/*
 * Bytes to another process, at most once, in no order: they are lost with the
 * lane that carries them. Order and repetition are the caller's business.
 */
#define TEI_RAIL_MESSAGE_HEAD	56	/* bytes of a buffer that are ours */
#define TEI_RAIL_MESSAGE_MAX	16384	/* of a buffer, with its head */

/* One that has come. From ops->message until tei_rail_message_free. */
struct tei_rail_message {
	struct tei_list link;		/* the owner's */
	struct tei_rail_peer *peer;	/* a reference */
	uint32_t len;
	uint8_t data[];
};
void tei_rail_message_free(struct tei_rail_message *message);

/*
 * Sends buf, whose first TEI_RAIL_MESSAGE_HEAD bytes are written here; it is
 * the caller's again on return. *prefer, 0 at first, is the rail that took the
 * last one and is asked first. 0; -FI_EAGAIN: not just now, ops->attend may
 * follow; -FI_EHOSTUNREACH: no rail leads there. back: it may go by a connection that
 * the peer made, behind bytes that the peer is reading.
 */
int tei_rail_send(struct tei_rail_peer *peer, uint8_t *buf, size_t len,
		  bool back, uint32_t *prefer);
/* Messages get lost: none goes by a connection of the peer's until it asks for that
 * again. */
void tei_rail_no_way_back(struct tei_rail_peer *peer);

/* Indices of our rails that lead to a peer; how many. */
uint32_t tei_rail_peer_rails(struct tei_rail_peer *peer,
			     uint8_t rails[TEI_RAIL_MAX]);

/* Has ops->attend called for that peer soon. */
void tei_rail_attend(struct tei_rail_peer *peer);

/* As tei_rail_progress; reads target lanes as well. */
void tei_rail_progress_all(struct tei_rail_dp *dp);

/*
 * A peer of which only an address is known: a reference to what stands for it
 * until tei_rail_peer_found says who it is (0: not yet). Nothing but that, and
 * tei_rail_peer_put, may be asked of it. ops->attend follows when it is found.
 */
int tei_rail_peer_seek(struct tei_rail_dp *dp,
		       const struct tei_rail_addr *first, struct tei_err *err,
		       struct tei_rail_peer **seeker);
uint64_t tei_rail_peer_found(struct tei_rail_peer *seeker);
/* A reference to a peer that is known already, or NULL. */
struct tei_rail_peer *tei_rail_peer_known(struct tei_rail_dp *dp,
					  uint64_t incarnation);

/* --- transfers ----------------------------------------------------------- */

/* A piece of local or remote memory. */
struct tei_rail_piece {
	uint64_t addr, len;		/* len 1 and up */
	uint64_t off;			/* of its first byte in the task */
	struct tei_rail_mr *mr;		/* local: the data plane's */
};

/*
 * What some tasks have beyond one piece on either side: scatter/gather lists,
 * or an atomic operation. Made by the caller; the data plane's from a
 * successful submit on, which frees it after task_done.
 */
struct tei_rail_extra {
	/* set by the caller */
	uint32_t atomic;		/* enum tei_atomic_op, 0: pieces */
	uint32_t nlocal, nremote;	/* pieces; atomics: 0 */
	uint64_t operand, compare;	/* atomics */

	/* atomics: guarded by dp->sched */
	uint64_t seq;			/* 0: none yet */
	uint64_t old;			/* what it found */
	uint32_t round;			/* message that it was new in */
	bool sent;			/* it may be executed */

	/* local ones, then remote ones */
	struct tei_rail_piece piece[];
};

/* Zeroed, or NULL without memory; free() where no submit took it. */
struct tei_rail_extra *tei_rail_extra_new(uint32_t nlocal, uint32_t nremote);
/* Numbers the bytes of n pieces through; returns how many there are. */
uint64_t tei_rail_extra_lay(struct tei_rail_piece *piece, uint32_t n);

/*
 * One transfer request. Embedded in the caller's task, zeroed, the first group
 * filled in, then the data plane's until ops->task_done.
 */
struct tei_rail_task {
	/* set by the caller */
	struct tei_rail_peer *peer;
	uint64_t remote;		/* absolute address at the peer */
	uint64_t length;		/* 1 and up */
	char *local;
	/* 0, or the range at the peer that this is a part of: nothing is moved
	 * before all of that is known to be accessible */
	uint64_t whole, whole_length;
	bool read;
	bool held;			/* local is, by tei_rail_mr_hold, until
					 * the task has ended */
	/* 0, or since when who submits it waits: where nothing has moved to or
	 * from the peer since either, that counts for MC_SLICE_TIMEOUT */
	uint64_t since_ns;
	/*
	 * 0, or 1 + the rail that it goes by, unless that leads nowhere or
	 * nothing has come of the task for half a second.
	 */
	uint8_t rail;
	/* not by the caller: MC_SLICE_TIMEOUT ended it. Under dp->sched, and the
	 * caller's from done on */
	bool silent;
	/*
	 * NULL for most. Several pieces: remote and local are the first ones',
	 * length is the sum. An atomic: length is its width, 4 or 8, remote a
	 * multiple of it; local gets the old number, or is NULL.
	 */
	struct tei_rail_extra *extra;
	/* called in place of ops->task_done, or NULL */
	void (*done)(struct tei_rail_task *task, enum tei_rail_end end,
		     const struct tei_err *err);

	/* guarded by dp->sched */
	struct tei_list queue_link;	/* in peer->queue until all is cut */
	struct tei_list live_link;	/* in peer->live until it ends */
	struct tei_rail_task *merge_next; /* next task of the same slice */
	struct tei_rail_mr *mr;		/* holds local, or NULL: no local */
	uint64_t cut;			/* bytes cut into slices so far */
	uint64_t progress_ns;		/* last time a byte of it completed */
	uint64_t ahead_ns;		/* last progress of a task that was
					 * ahead of it and has ended, 0: none */
	uint32_t slices;		/* cut and not yet finished */
	bool keys_checked;		/* whole target range known good */
	bool unfenced;			/* a slice was given up unfenced */
	uint8_t end_wanted;		/* 0, or enum tei_rail_end + 1 */
	uint8_t end_stage;		/* 1: lanes were retired for it */
	uint64_t end_ns;		/* when the stage began */
	struct tei_err *err;		/* why; owned, freed with the task */

	/* written under dp->sched, read by anyone: atomic */
	uint64_t done_bytes;
};

/*
 * Queues n tasks, in order, then posts what the rails have room for. 0; or a
 * code and nothing taken: -3 a source outside registered memory, -2 queue of
 * that peer full, -6 no rail. Never blocks.
 */
int tei_rail_submit(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		    size_t n);

/* Drives initiating lanes; cheap when there is nothing to do. Never blocks. */
void tei_rail_progress(struct tei_rail_dp *dp);

/*
 * From begin to end a caller calls tei_rail_progress in a loop; the progress
 * thread leaves the initiating lanes to it unless somebody else sleeps.
 */
void tei_rail_drive_begin(struct tei_rail_dp *dp);
void tei_rail_drive_end(struct tei_rail_dp *dp);

/*
 * A caller is going to sleep until tasks end, or is awake again: from doze to
 * awake the progress thread does not count on callers who drive the lanes.
 */
void tei_rail_doze(struct tei_rail_dp *dp);
void tei_rail_awake(struct tei_rail_dp *dp);

/*
 * Ends submitted tasks early, as CANCELED or, with a deadline as the reason,
 * as FAILED; where the peer cannot be fenced in time, UNFENCED. task_done
 * follows, perhaps before this returns. Tasks that have ended but for the call
 * of task_done are left alone; their memory must still be there.
 */
void tei_rail_cancel(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		     size_t n);
void tei_rail_expire(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		     size_t n);

#endif /* TEI_PROV_RAIL_TEI_RAIL_H */
