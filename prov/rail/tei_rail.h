/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_TEI_RAIL_H
#define TEI_PROV_RAIL_TEI_RAIL_H

/*
 * The data plane: rails, lanes, connections, slices, the peer protocol and the
 * fence. docs/GLOSSARY.md defines the terms. The only input about a peer is its
 * contact addresses; everything else (rails, keys, fences) is exchanged over
 * the rails.
 *
 * Threads: every function may be called from any thread unless its comment says
 * otherwise. Each data plane runs one progress thread. Callbacks are called
 * without a lock, from the progress thread or from a thread that is inside
 * tei_rail_progress, tei_rail_submit or tei_rail_mr_dereg. Callbacks must not
 * block.
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
struct tei_rail_notification;
struct tei_rail_outgoing;
struct tei_rail_peer;
struct tei_rail_task;

#define TEI_RAIL_MAX		64	/* rails that a data plane opens in its
					 * life, closed ones included */
#define TEI_RAIL_ADDR_MAX	256	/* bytes of a fabric address */

/*
 * The address of an endpoint of a rail; a descriptor publishes contact
 * addresses in this form. Plain data. Two addresses are compatible if their
 * protocol, protocol_version and addr_format are equal.
 */
struct tei_rail_addr {
	uint32_t protocol;		/* FI_PROTO_… */
	uint32_t protocol_version;
	uint32_t addr_format;		/* FI_SOCKADDR_IN, … */
	uint32_t len;			/* bytes used */
	uint8_t bytes[TEI_RAIL_ADDR_MAX];
};

/*
 * How a task ended. After COMPLETED, FAILED and CANCELED, no byte of the task
 * moves any more at either end. UNFENCED: the target did not confirm a fence,
 * so bytes may still land there.
 */
enum tei_rail_end {
	TEI_RAIL_END_COMPLETED,
	TEI_RAIL_END_FAILED,
	TEI_RAIL_END_UNFENCED,
	TEI_RAIL_END_CANCELED,
};

struct tei_rail_ops {
	/*
	 * Reports that a task has ended; called once per submitted task. The
	 * task's memory belongs to the caller of tei_rail_submit again.
	 */
	void (*task_done)(struct tei_rail_task *task, enum tei_rail_end end,
			  const struct tei_err *err);
	/*
	 * Delivers a notification. The callee owns it. The notification counts
	 * against the limits until the callee calls
	 * tei_rail_notification_release.
	 */
	void (*notify)(void *arg, struct tei_rail_notification *note);
	/*
	 * Asks for the peer's contact addresses, because the peer does not
	 * answer at the known ones. The callee looks them up on another thread
	 * and calls tei_rail_peer_resolved; if it finds nothing, it need not
	 * call anything. The callee owns a reference to peer, which it drops
	 * with tei_rail_peer_put.
	 */
	void (*resolve)(void *arg, struct tei_rail_peer *peer);
	/* Reports that addresses of local rails have changed and must be
	 * published again. */
	void (*rails_changed)(void *arg);
	/*
	 * Reports that an interface, its link or an address of this host may
	 * have changed. The callee calls tei_rail_dp_devices_changed and
	 * tei_rail_dp_refresh from another thread. NULL: the rails found at the
	 * start stay.
	 */
	void (*devices_changed)(void *arg);
	/*
	 * Delivers a user message. The callee owns it and frees it with
	 * tei_rail_message_free. This callback and the next one are NULL if
	 * tei_rail_send is not used.
	 */
	void (*message)(void *arg, struct tei_rail_message *message);
	/*
	 * Lets the owner of the data plane do its work for a peer. Is called on
	 * the progress thread when the peer's state has changed, after
	 * tei_rail_attend, or at the time that the last call returned. Returns
	 * the time of the next call, 0: none.
	 */
	uint64_t (*attend)(void *arg, struct tei_rail_peer *peer, uint64_t now);
};

struct tei_rail_dp_attr {
	const struct tei_settings *settings;	/* must outlive the
						 * data plane */
	const struct tei_rail_ops *ops;		/* must outlive the
						 * data plane */
	void *arg;				/* passed to ops */
	const char *name;			/* this process's name; copied */
	uint64_t incarnation;			/* incarnation of this
						 * process, not 0 */
	const struct tei_secret *secret;	/* read during open; NULL: any
						 * process may be a peer */
	uint64_t info_flags;			/* for fi_getinfo */
	uint16_t port;				/* port of the first rx lanes of
						 * IP rails, 0: any */
	bool any_local;				/* local memory of tasks need
						 * not be registered, unless
						 * tei_rail_wants says so */
	bool back;				/* use reverse-path
						 * sends, because many
						 * messages are answered */
	bool reports;				/* report the moved bytes to
						 * the peers: tei_rail_served */
};

/* Opens a data plane without rails. Returns 0 and sets *dp, which the caller
 * closes with tei_rail_dp_close. */
int tei_rail_dp_open(const struct tei_rail_dp_attr *attr, struct tei_err *err,
		     struct tei_rail_dp **dp);

/*
 * Waits up to drain_ns for the unfinished tasks, then stops calling
 * ops->resolve, ops->rails_changed and ops->devices_changed.
 */
void tei_rail_dp_quiesce(struct tei_rail_dp *dp, uint64_t drain_ns);

/*
 * Waits up to drain_ns for the unfinished tasks, sends BYE to the peers, ends
 * the remaining tasks and stops the progress thread. Frees nothing: other calls
 * may still run, but no data moves any longer. Meant for a process that is
 * about to end; tei_rail_dp_close calls this function first.
 */
void tei_rail_dp_leave(struct tei_rail_dp *dp, uint64_t drain_ns);

/* Calls tei_rail_dp_leave, then frees everything. No other call may be
 * running. */
void tei_rail_dp_close(struct tei_rail_dp *dp, uint64_t drain_ns);

/*
 * Returns the transport of a name: "rdma" for "efa" and "cxi", which are
 * transport rdma with one provider, otherwise the name itself.
 */
const char *tei_rail_transport_of(const char *name);

/*
 * Finds and opens the rails of one transport: "tcp", "rdma" or "shm", or "efa"
 * or "cxi" for rails of transport "rdma" with that provider. devices is a comma
 * list of interfaces, RDMA devices or addresses, "" for all that are usable.
 * Registers all registered memory on the new rails. Logs which devices could
 * not be opened and why. Returns an error only if no device could be opened.
 */
int tei_rail_dp_add_transport(struct tei_rail_dp *dp, const char *transport,
			      const char *devices, struct tei_err *err);

/*
 * Returns true if the interfaces of this host or their addresses have changed
 * since the last call.
 */
bool tei_rail_dp_devices_changed(struct tei_rail_dp *dp);

/*
 * Searches for devices of a transport again, with the arguments of
 * tei_rail_dp_add_transport. Opens rails for devices that have none, and
 * registers all registered memory on them.
 *
 * Replaces a rail if there is a better one: a fallback rail, such as loopback,
 * by the rails of networks; a rail whose address this host no longer has, by
 * another rail on the same device. The old rail is no longer published. It is
 * closed when no peer knows it, or at once if its address is gone.
 *
 * Returns flags. Does not log a failure if the previous attempt failed too.
 */
#define TEI_RAIL_REFRESHED	1u	/* the set of published rails has changed */
#define TEI_RAIL_REFRESH_AGAIN	2u	/* something is left to do:
					 * call again later */
uint32_t tei_rail_dp_refresh(struct tei_rail_dp *dp, const char *transport,
			     const char *devices);

/*
 * Returns true if a device of the transport exists: a device of the list
 * devices, or, if the list is "", a device that the settings name. Opens
 * nothing. info_flags: for fi_getinfo.
 */
bool tei_rail_transport_present(const struct tei_settings *settings,
				const char *transport, const char *devices,
				uint64_t info_flags);

/* Returns what the rails opened so far require of memory, as flags. */
#define TEI_RAIL_WANTS_LOCAL	1u	/* memory of tasks must be registered */
#define TEI_RAIL_WANTS_PINNED	2u	/* registration pins memory, so
					 * it must be unregistered
					 * before it is unmapped */
uint32_t tei_rail_wants(struct tei_rail_dp *dp);

/* Waits up to drain_ns until all tasks have ended, then closes the transport's
 * rails. Returns 0, TEI_ERR_INVALID if it has no rail, or TEI_ERR_BUSY if tasks
 * still use the transport. */
int tei_rail_dp_remove_transport(struct tei_rail_dp *dp, const char *transport,
				 uint64_t drain_ns, struct tei_err *err);

/* The properties of a rail that topology discovery and descriptors need. */
struct tei_rail_desc {
	bool open;			/* false: closed; the index stays */
	bool hidden;			/* replaced by another rail;
					 * not to be published */
	char name[64];
	char provider[32];
	char transport[16];
	char address_text[96];
	char pci[32];			/* "0000:81:00.0" or "" */
	char fabric[64];
	int numa;			/* NUMA node, -1 unknown */
	uint64_t speed_bps;		/* link speed, bits/s, 0 unknown */
	struct tei_rail_addr addr;	/* current address of its rx lane */
	struct tei_rail_addr known;	/* address to publish: the contact
					 * address if this process listens
					 * there, else addr. On IP networks this
					 * process listens at the contact
					 * address as long as the rail exists */
};

/* Returns the number of rails. Indices are stable while the data plane
 * lives. */
size_t tei_rail_count(struct tei_rail_dp *dp);
/* Fills desc for one rail. Returns 0, or an error if there is no such rail. */
int tei_rail_describe(struct tei_rail_dp *dp, size_t index,
		      struct tei_rail_desc *desc);

/* The same values as enum te_rail_state of moonrail.h. */
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
	double rate;			/* service rate, bytes/s */
	uint64_t state_changes;
};
int tei_rail_get_stats(struct tei_rail_dp *dp, size_t index,
		       struct tei_rail_stats *stats);

/*
 * Sets the priority matrix: NIC i of topo is the rail with the same name. topo
 * belongs to the caller and must outlive the data plane or the next call.
 * NULL: all rails are equal.
 */
void tei_rail_dp_set_topo(struct tei_rail_dp *dp, const struct tei_topo *topo);

/* --- memory -------------------------------------------------------------- */

/*
 * Allocates zeroed pages that are not registered, for data that moves between
 * the rails and a device at location. The pages lie on the NUMA node of the NIC
 * that is nearest to location, if this node is known and has room. The caller
 * frees them with munmap. Returns NULL if memory is short.
 */
void *tei_rail_mem_near(struct tei_rail_dp *dp, const char *location,
			size_t size);

/*
 * Registers [addr, addr + len) on every rail, including rails opened later.
 * Returns TEI_ERR_OVERLAP if the range overlaps another registered range, or a
 * range whose registration is still in progress. location: a location such as
 * "cpu:0" (tei_topo). access: the flags below; 0: only local tasks use the
 * memory. *mr stays owned by the data plane.
 */
#define TEI_RAIL_REMOTE		1u	/* peers may read and
					 * write the memory */
#define TEI_RAIL_READ_ONLY	2u	/* neither peers nor local
					 * reads may write to it */
int tei_rail_mr_reg(struct tei_rail_dp *dp, void *addr, uint64_t len,
		    const char *location, uint32_t access, struct tei_err *err,
		    struct tei_rail_mr **mr);

/* How a rail accesses registered memory. */
enum tei_rail_way {
	TEI_RAIL_WAY_HOST,		/* host memory */
	TEI_RAIL_WAY_DMABUF,		/* GPU memory through a dma-buf */
	TEI_RAIL_WAY_PEER,		/* GPU memory through its
					 * address (peer memory) */
};
const char *tei_rail_way_name(enum tei_rail_way way);

/* The GPU that memory belongs to. */
struct tei_rail_device {
	int cuda;			/* CUDA ordinal */
	int dmabuf;			/* dma-buf descriptor, or -1 */
	uint64_t offset;		/* of the region in the dma-buf */
};

/*
 * Registers GPU memory on all open rails. On failure this function fills err,
 * but neither logs the error nor sets the thread's last error, because the
 * caller can use GPU staging instead. A rail that is opened later and does not
 * accept the region is not used for it. Scatter/gather requests and atomics
 * cannot use the region. After success the data plane owns the descriptor in
 * device.
 */
int tei_rail_mr_reg_gpu(struct tei_rail_dp *dp, void *addr, uint64_t len,
			const char *location, uint32_t access,
			const struct tei_rail_device *device,
			struct tei_err *err, struct tei_rail_mr **mr);

/* Returns false and fills err if an open rail is known not to accept GPU
 * memory. Cheap: meant to be called before memory is prepared for NICs. */
bool tei_rail_may_gpu(struct tei_rail_dp *dp, struct tei_err *err);

/* Returns true if the range is GPU memory that every open rail can access, and
 * a rail is open. */
bool tei_rail_mr_direct(struct tei_rail_dp *dp, const void *addr,
			uint64_t len);

/*
 * Unregisters the region that starts at addr. Returns 0 only when no peer can
 * access it any more: its keys were revoked, the key holders were asked to
 * drain, and those that did not answer within MOONRAIL_FENCE_MS were fenced.
 * Waits up to local_ns for local tasks that use the region; if these tasks do
 * not end, returns TEI_ERR_BUSY and the region stays registered. Returns
 * TEI_ERR_NOT_REGISTERED if no region starts at addr.
 */
int tei_rail_mr_dereg(struct tei_rail_dp *dp, void *addr, uint64_t local_ns,
		      struct tei_err *err);

/*
 * Holds registered local memory for a sequence of tasks whose field held is
 * set. Until tei_rail_mr_let_go is called, tei_rail_mr_dereg waits as if a task
 * used the memory. The range may span several adjacent regions. write: the
 * tasks write into the memory. Returns 0, or TEI_ERR_NOT_REGISTERED if a part
 * is not registered, or is read-only.
 */
int tei_rail_mr_hold(struct tei_rail_dp *dp, const void *addr, uint64_t len,
		     bool write);
void tei_rail_mr_let_go(struct tei_rail_dp *dp, const void *addr,
			uint64_t len);

/* Sets *key to the key with which one rail accesses the registered byte at
 * addr; descriptors publish it. */
int tei_rail_mr_key(struct tei_rail_dp *dp, const void *addr, size_t rail,
		    uint64_t *key);

/*
 * Returns the number of bytes from addr on that have the same keys as the byte
 * at addr, or 0 if addr is not registered. A region has several keys per rail
 * if it is larger than one registration of the device can be.
 */
uint64_t tei_rail_mr_piece(struct tei_rail_dp *dp, const void *addr);

/* --- peers --------------------------------------------------------------- */

#define TEI_RAIL_CONTACTS	64	/* contact addresses used per peer */

/*
 * Takes a reference to the peer with that incarnation, and creates the peer if
 * it is unknown. Sends nothing. at: the n contact addresses of the process; at
 * most TEI_RAIL_CONTACTS are used. All of them are tried until the peer has
 * answered once. The caller drops the reference with tei_rail_peer_put.
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
 * Answers ops->resolve with the current incarnation and contact addresses of
 * the process. May block for a moment. If the incarnation differs from the
 * peer's, later tasks must use a new peer object. The tasks of this peer end as
 * FAILED if its process is found to have ended or fences the posted slices,
 * otherwise as UNFENCED.
 */
void tei_rail_peer_resolved(struct tei_rail_peer *peer, uint64_t incarnation,
			    const struct tei_rail_addr *at, size_t n);

/*
 * Answers ops->resolve with the fact that the peer's control port refuses
 * connections. If the peer's rails refuse connections as well and no connection
 * to the peer is left, the peer's tasks end as UNFENCED. Blocks for a moment.
 */
void tei_rail_peer_no_control(struct tei_rail_peer *peer);

/*
 * Reports that the process behind the peer seems to have ended. The caller may
 * have observed another process, so the report is accepted only if none of the
 * peer's rails listens any longer. The peer's tasks then end as FAILED. Returns
 * true if the peer is known to be gone. Blocks for a moment.
 */
bool tei_rail_peer_ended(struct tei_rail_peer *peer, const char *why);

/* Returns true if a local rail can reach the address. */
bool tei_rail_addr_fits(struct tei_rail_dp *dp,
			const struct tei_rail_addr *addr);

/* Returns true if the peer is not gone and no fence of its rails is outstanding
 * or was abandoned. The peer may not have answered yet. */
bool tei_rail_peer_sound(struct tei_rail_peer *peer);

/*
 * Returns true if tei_rail_peer_sound does, the peer has answered and it gave a
 * sign of life in the last 5 milliseconds.
 */
bool tei_rail_peer_healthy(struct tei_rail_peer *peer);

/* A local rail and its route to a peer. The remote rail has no name before the
 * peer has answered. */
struct tei_rail_path_info {
	char transport[16];
	char provider[32];
	char rail[64];
	char address[96];		/* current address of the rx lane */
	char remote_rail[64];
	char remote_address[96];
	int numa;			/* NUMA node of the local rail, -1
					 * unknown */
	uint8_t rank;			/* enum tei_topo_rank */
	bool connected;
};

/*
 * Fills the array out with the routes to a peer, at most one per local rail,
 * and returns their number. The ranks are those for memory at location (NULL:
 * anywhere).
 */
size_t tei_rail_peer_paths(struct tei_rail_peer *peer, const char *location,
			   struct tei_rail_path_info out[TEI_RAIL_MAX]);
/* Does what tei_rail_peer_paths does, but without the ranks and without the
 * slow check of the connections. */
size_t tei_rail_peer_routes(struct tei_rail_peer *peer,
			    struct tei_rail_path_info out[TEI_RAIL_MAX]);

enum tei_rail_peer_condition {
	TEI_RAIL_PEER_NEW,		/* has not answered yet */
	TEI_RAIL_PEER_READY,
	TEI_RAIL_PEER_FENCING,		/* waits for a fence */
	TEI_RAIL_PEER_GONE,
};

/* Counters of a peer since it was created. */
struct tei_rail_peer_stats {
	uint64_t tx_bytes, rx_bytes;	/* bytes of completed slices */
	uint64_t completed, failed, unfenced, canceled;	/* tasks by the way in
							 * which they ended */
	uint64_t retries;		/* slices posted again */
	uint64_t fences;		/* fences requested */
	uint64_t alive_ns;		/* time of the last sign
					 * of life, 0: none */
	uint32_t queued;		/* tasks that are not completely cut */
	uint32_t posted;		/* slices posted */
	enum tei_rail_peer_condition state;
};
void tei_rail_peer_get_stats(struct tei_rail_peer *peer,
			     struct tei_rail_peer_stats *out);

/*
 * Bytes that a peer has written to this process and read from it, as the peer
 * reports them about once a second. They are not verified.
 */
struct tei_rail_served {
	char name[96];			/* as the peer says, "" if unknown */
	uint64_t incarnation;
	uint64_t tx_bytes, rx_bytes;	/* written and read by the peer */
	uint64_t ns;			/* time of the last report */
};
/* Fills up to room elements of out; the peers whose last message is newest come
 * first. Returns the number of peers that have reported bytes. */
size_t tei_rail_served(struct tei_rail_dp *dp, struct tei_rail_served *out,
		       size_t room);

/* Returns true if the process of this incarnation is known to be gone. */
bool tei_rail_peer_gone(struct tei_rail_peer *peer);

/* Returns true if the process of this incarnation is known to be gone. Returns
 * false if the incarnation is no longer known. */
bool tei_rail_gone(struct tei_rail_dp *dp, uint64_t incarnation);

/* Connects every rail with the peer (warm-up). Blocks for up to timeout_ns. May
 * be repeated. */
int tei_rail_peer_warmup(struct tei_rail_peer *peer, uint64_t timeout_ns,
			 struct tei_err *err);

/* --- notifications -------------------------------------------------------- */

#define TEI_RAIL_NOTIFY_MAX	1048576	/* bytes of name and text together */

/* A notification that was received, or that this process sends to itself. */
struct tei_rail_notification {
	struct tei_list link;		/* for the owner's use */
	char *name, *msg;		/* two allocations, for free() */
	uint64_t bytes;			/* length of both strings, without
					 * terminators */
};
/* Copies both strings into a new notification. Returns NULL if memory is
 * short. */
struct tei_rail_notification *tei_rail_notification_new(const char *name,
							const char *msg);
/* Frees the notification and those of its strings that are not NULL. */
void tei_rail_notification_free(struct tei_rail_notification *note);

/*
 * MOONRAIL_NOTIFY_BYTES and MOONRAIL_MAX_NOTIFIES limit the notifications held
 * for the owner of the data plane. tei_rail_notification_reserve counts a
 * notification that this process sends to itself; it returns 0, or
 * TEI_ERR_TOO_MANY if there is no room now. tei_rail_notification_release must
 * be called for all notifications that the application has fetched, including
 * those from ops->notify. Peers whose notifications wait for room can then
 * deliver them.
 */
int tei_rail_notification_reserve(struct tei_rail_dp *dp, uint64_t bytes);
void tei_rail_notification_release(struct tei_rail_dp *dp, uint32_t notes,
				   uint64_t bytes);

/*
 * Creates a notification to be sent to the peer later. The peer must stay valid
 * until the notification is queued or freed. Returns 0; or, with err filled in,
 * TEI_ERR_INVALID if the notification is longer than TEI_RAIL_NOTIFY_MAX,
 * TEI_ERR_TOO_MANY if too many notifications or bytes already wait for the
 * peer, or TEI_ERR_MEMORY.
 */
int tei_rail_outgoing_new(struct tei_rail_peer *peer, const char *name,
			  const char *msg, struct tei_err *err,
			  struct tei_rail_outgoing **out);
/*
 * Queues a notification and takes ownership of it. The notification is sent
 * repeatedly until the peer has acknowledged it, and the peer delivers it at
 * most once and in order. If the peer is lost before it has acknowledged, the
 * notification is dropped and the loss is logged.
 */
void tei_rail_outgoing_queue(struct tei_rail_outgoing *out);
/* Frees a notification that was not queued; NULL is ignored. */
void tei_rail_outgoing_free(struct tei_rail_outgoing *out);

/*
 * Sends a notification and waits for up to timeout_ns until the peer has
 * acknowledged it. Returns 0, or a code with err filled in: those of
 * tei_rail_outgoing_new, TEI_ERR_TOO_MANY if the peer has no room for it,
 * TEI_ERR_TIMED_OUT, TEI_ERR_NO_DEVICE if no rail reaches the peer,
 * TEI_ERR_ENDPOINT or TEI_ERR_CONTEXT if the peer is lost. After an error the
 * notification is not sent again. If err->unknown is set, the notification may
 * have arrived, or may still arrive once.
 */
int tei_rail_notify(struct tei_rail_peer *peer, const char *name,
		    const char *msg, uint64_t timeout_ns, struct tei_err *err);
/* Makes all current and future calls of tei_rail_notify return without waiting.
 * Queued notifications are still sent. */
void tei_rail_notify_stop(struct tei_rail_dp *dp);

/* --- messages ------------------------------------------------------------ */

/*
 * User messages: bytes to another process, delivered at most once and in no
 * order. If the lane that carries a message is closed, the message is lost. The
 * caller must number and repeat messages itself if it needs order and
 * reliability.
 */
#define TEI_RAIL_MESSAGE_HEAD	56	/* bytes at the start of a buffer that
					 * the data plane writes */
#define TEI_RAIL_MESSAGE_MAX	16384	/* bytes of a buffer,
					 * TEI_RAIL_MESSAGE_HEAD included */

/* A received user message, from ops->message until tei_rail_message_free. */
struct tei_rail_message {
	struct tei_list link;		/* for the owner's use */
	struct tei_rail_peer *peer;	/* the sender, with a reference */
	uint32_t len;
	uint8_t data[];
};
void tei_rail_message_free(struct tei_rail_message *message);

/*
 * Sends the message in buf. This function writes the first
 * TEI_RAIL_MESSAGE_HEAD bytes of buf; the caller may reuse buf on return.
 * *prefer, initially 0, is the rail that accepted the last message; this rail
 * is tried first. Returns 0; -FI_EAGAIN if no rail accepts the message now
 * (ops->attend may be called when to retry); -FI_EHOSTUNREACH if no rail
 * reaches the peer. back: a reverse-path send is allowed, so the message may
 * queue behind data that the peer is reading.
 */
int tei_rail_send(struct tei_rail_peer *peer, uint8_t *buf, size_t len,
		  bool back, uint32_t *prefer);
/* Stops reverse-path sends to the peer until the peer asks for them again.
 * Meant for a caller that finds that messages get lost. */
void tei_rail_no_reverse_path(struct tei_rail_peer *peer);

/* Writes the indices of the local rails that currently carry data to the peer,
 * and returns their number. */
uint32_t tei_rail_peer_rails(struct tei_rail_peer *peer,
			     uint8_t rails[TEI_RAIL_MAX]);

/* Requests a call of ops->attend for the peer soon. */
void tei_rail_attend(struct tei_rail_peer *peer);

/* Does what tei_rail_progress does, and polls the rx lanes as well. */
void tei_rail_progress_all(struct tei_rail_dp *dp);

/*
 * Creates a resolver for a process of which only an address is known, with a
 * reference for the caller. tei_rail_peer_found returns the incarnation of the
 * process, or 0 if it is not known yet; ops->attend is called when the
 * incarnation is known. A resolver may only be passed to tei_rail_peer_found
 * and tei_rail_peer_put.
 */
int tei_rail_peer_seek(struct tei_rail_dp *dp,
		       const struct tei_rail_addr *first, struct tei_err *err,
		       struct tei_rail_peer **resolver);
uint64_t tei_rail_peer_found(struct tei_rail_peer *resolver);
/* Returns a reference to the peer with that incarnation, or NULL if it is
 * unknown. */
struct tei_rail_peer *tei_rail_peer_known(struct tei_rail_dp *dp,
					  uint64_t incarnation);

/* --- transfers ----------------------------------------------------------- */

/* An iov entry: a range of local or remote memory. */
struct tei_rail_iov {
	uint64_t addr, len;		/* len is at least 1 */
	uint64_t off;			/* offset of the entry's first byte in
					 * the task */
	struct tei_rail_mr *mr;		/* region, of local entries only; set by
					 * the data plane */
};

/*
 * A task extension: the iov entries of a scatter/gather request, or an atomic
 * operation. Created by the caller. After a successful tei_rail_submit the data
 * plane owns it, and frees it after task_done.
 */
struct tei_rail_task_ext {
	/* set by the caller */
	uint32_t atomic;		/* enum tei_atomic_op,
					 * 0: scatter/gather */
	uint32_t nlocal, nremote;	/* iov entries; atomics: 0 */
	uint64_t operand, compare;	/* operands of the atomic */

	/* of atomics; guarded by dp->sched */
	uint64_t seq;			/* number, 0: none yet */
	uint64_t old;			/* value before the operation */
	uint32_t round;			/* number of the message that
					 * first carried it */
	bool sent;			/* the target may have executed it */

	/* local entries, then remote ones */
	struct tei_rail_iov piece[];
};

/* Allocates a zeroed extension. Returns NULL if memory is short. The caller
 * frees it with free() if it was not submitted. */
struct tei_rail_task_ext *tei_rail_task_ext_new(uint32_t nlocal,
						uint32_t nremote);
/* Sets off of n entries and returns their total length. */
uint64_t tei_rail_task_ext_lay(struct tei_rail_iov *piece, uint32_t n);

/*
 * One transfer request. Embedded in a task of the caller, which zeroes it and
 * fills in the first group. Owned by the data plane from tei_rail_submit to
 * ops->task_done.
 */
struct tei_rail_task {
	/* set by the caller */
	struct tei_rail_peer *peer;
	uint64_t remote;		/* address in the peer's memory */
	uint64_t length;		/* bytes, at least 1 */
	char *local;
	/* If whole_length is not 0, this task is a part of a request for the
	 * range [whole, whole + whole_length) at the peer: no byte is moved
	 * before the whole range is known to be accessible. */
	uint64_t whole, whole_length;
	bool read;
	bool held;			/* the caller holds local with
					 * tei_rail_mr_hold until the task has
					 * ended */
	/* If not 0, the time since which the submitter has been waiting.
	 * MC_SLICE_TIMEOUT then counts from this time, or from the last
	 * progress of the peer's tasks if that is later. */
	uint64_t since_ns;
	/*
	 * 0, or 1 + index of the rail that should be used. Other rails are used
	 * if this rail does not reach the peer, or after half a second without
	 * progress.
	 */
	uint8_t rail;
	/* Set by the data plane: MC_SLICE_TIMEOUT has ended the task. Guarded
	 * by dp->sched until done is called. */
	bool silent;
	/*
	 * NULL for most tasks. Scatter/gather: remote and local are those of
	 * the first entries, and length is the sum. Atomic: length is its
	 * width, 4 or 8, remote a multiple of it; local receives the old value,
	 * or is NULL.
	 */
	struct tei_rail_task_ext *ext;
	/* called instead of ops->task_done, or NULL */
	void (*done)(struct tei_rail_task *task, enum tei_rail_end end,
		     const struct tei_err *err);

	/* guarded by dp->sched */
	struct tei_list queue_link;	/* in peer->tasks.queue or
					 * peer->tasks.small until completely
					 * cut */
	struct tei_list live_link;	/* in peer->tasks.live until it ends */
	struct tei_rail_task *merge_next; /* next task of the same slice */
	struct tei_rail_mr *mr;		/* region that contains
					 * local, or NULL */
	uint64_t cut;			/* bytes cut into slices */
	uint64_t progress_ns;		/* time of the last progress */
	uint64_t ahead_ns;		/* last progress of an earlier task that
					 * has ended, 0: none */
	uint32_t slices;		/* slices cut and not yet finished */
	bool keys_checked;		/* keys of the whole
					 * target range are known */
	bool unfenced;			/* a slice was dropped
					 * without a fence */
	uint8_t complete_wanted;	/* 0, or 1 + enum tei_rail_end */
	uint8_t complete_stage;		/* 1: the lanes that carry the task's
					 * slices were retired */
	uint64_t complete_ns; /* start of the current complete_stage, ns */
	struct tei_err *err;		/* cause of the end;
					 * freed after task_done */

	/* atomic: written under dp->sched */
	uint64_t done_bytes;
};

/*
 * Queues n tasks in order, then posts as much as the rails have room for.
 * Returns 0, or a code without having queued any task: TEI_ERR_NOT_REGISTERED
 * if local memory is not registered, TEI_ERR_TOO_MANY if a peer's queue is
 * full, TEI_ERR_NO_DEVICE if no rail is open. Never blocks.
 */
int tei_rail_submit(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		    size_t n);

/* Polls the tx lanes. Cheap when there is nothing to do. Never blocks. */
void tei_rail_progress(struct tei_rail_dp *dp);

/*
 * Mark the start and the end of a loop in which a caller calls
 * tei_rail_progress. Meanwhile the progress thread does not poll the tx lanes,
 * unless another caller sleeps.
 */
void tei_rail_drive_begin(struct tei_rail_dp *dp);
void tei_rail_drive_end(struct tei_rail_dp *dp);

/*
 * Announce that a caller goes to sleep until tasks end (tei_rail_sleep_begin),
 * and that it is awake again (tei_rail_sleep_end). While a caller sleeps, the
 * progress thread polls the lanes even if other callers do.
 */
void tei_rail_sleep_begin(struct tei_rail_dp *dp);
void tei_rail_sleep_end(struct tei_rail_dp *dp);

/*
 * End submitted tasks early: tei_rail_cancel as CANCELED, tei_rail_expire as
 * FAILED because of a deadline. If the peer does not answer the fence in time,
 * a task ends as UNFENCED. ops->task_done is called for each task, possibly
 * before the function returns. Tasks that have already ended are not changed;
 * their memory must still exist.
 */
void tei_rail_cancel(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		     size_t n);
void tei_rail_expire(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		     size_t n);

#endif /* TEI_PROV_RAIL_TEI_RAIL_H */
