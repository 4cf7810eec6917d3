/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_INT_H
#define TEI_PROV_MOONRAIL_MOONRAIL_INT_H

/*
 * The libfabric provider "moonrail": FI_EP_RDM endpoints over all rails of the
 * host.
 *
 * A domain is one data plane (prov/rail) with its own incarnation. An endpoint
 * is identified by a number within its domain. Each pair of domains has one
 * stream of messages in each direction (moonrail_wire.h, moonrail_stream.c).
 * The messages of the data plane may be lost, repeated or reordered; the stream
 * delivers them in order and exactly once. A message for a backpressured
 * endpoint waits at its sender (moonrail_flow.c).
 *
 * Two-sided operations: if the bytes fit into one message, they are its payload
 * (DATA). If they do not fit, the sender announces the message (RTS), and the
 * receiver reads the bytes with tasks of the data plane, so all rails carry
 * them. The receiver acknowledges the message with a FIN; one FIN can
 * acknowledge several messages. The order of messages is the order of the
 * stream, which is FI_ORDER_SAS. moonrail_order.c enforces the other orders.
 *
 * One-sided operations: a write or read also consists of tasks of the data
 * plane. A task needs an address and a key of the data plane, so the initiator
 * queries each key of the application once per peer (KEY, KEY_IS). KEY_NOT
 * revokes the answer when the registration is closed. When the bytes are in
 * place, the initiator sends DONE in the stream if the operation has remote CQ
 * data or if the owner of the memory counts operations (FI_RMA_EVENT).
 * Registrations of the application may overlap, but those of the data plane may
 * not: moonrail_pin.c keeps regions that do not overlap and counts their users.
 * Local memory need not be registered. If a rail requires registered local
 * memory, the bytes pass through bounce buffers (moonrail_bounce.c).
 *
 * Atomics are messages of the stream (ATOMIC, ATOMIC_REP). The target executes
 * each atomic when its message is delivered, and so exactly once.
 *
 * An address is a struct moonrail_name: the incarnation, the endpoint number
 * and the fabric address of one rail. The hello of the data plane brings the
 * addresses of the other rails. If the application knows only a socket address,
 * the hello also brings the incarnation.
 *
 * Progress is automatic: the progress thread of the data plane polls the lanes.
 * While the application reads a completion queue, its calls poll the lanes, and
 * the progress thread leaves them to the application.
 *
 * Locks: each domain has one lock, which guards all fields of the domain and
 * its objects, except the fields whose comments name another guard. The data
 * plane may call back at any time, also from inside a call of the provider, and
 * a callback never waits for this lock. If the lock is free, the callback takes
 * it. Otherwise the callback puts its event into the domain's inbox, and the
 * thread that holds the lock handles the inbox before it releases the lock.
 * docs/LOCKING.md states the order of the locks.
 */

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "prov/moonrail/moonrail_name.h"
#include "prov/moonrail/moonrail_wire.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

#define MOONRAIL_VERSION	FI_VERSION(0, 1)
#define MOONRAIL_API		FI_VERSION(1, 17)
#define MOONRAIL_IOV		4	/* iov entries of one operation */
#define MOONRAIL_INJECT		1024	/* largest injected message, bytes */
#define MOONRAIL_QUEUE		4096	/* limit of the operations under way of
					 * an endpoint, and of the messages that
					 * wait for a peer; MPI programs have
					 * thousands */
#define MOONRAIL_RECVS	(4 * MOONRAIL_QUEUE) /* posted receives of an
					      * endpoint */
#define MOONRAIL_WINDOW		64	/* messages sent and not yet
					 * acknowledged */
#define MOONRAIL_ACK_EVERY	16	/* received messages after which an ACK
					 * is sent */
#define MOONRAIL_PING_NS (5 * TEI_NS_PER_MS) /* first PING interval of the timer
					      * of a peer; it doubles */
#define MOONRAIL_SURE_NS (750 * TEI_NS_PER_MS) /* a message exchanged within
						* this time proves that the peer
						* has not timed out; shorter
						* than every MC_SLICE_TIMEOUT */
#define MOONRAIL_ENDS		4	/* messages that one FIN acknowledges */
#define MOONRAIL_HEAD	(TEI_RAIL_MESSAGE_HEAD + sizeof(struct moonrail_wire))
#define MOONRAIL_EAGER	(TEI_RAIL_MESSAGE_MAX - MOONRAIL_HEAD)
#define MOONRAIL_POLICIES	16	/* entries of the size-to-policy
					 * table */
#define MOONRAIL_STRIPES	8	/* rails among which one range is
					 * divided */
#define MOONRAIL_HOLD	(64u << 20)	/* limit of the unexpected messages of
					 * an endpoint, bytes; above it the
					 * senders wait */
#define MOONRAIL_OVER (2 * MOONRAIL_WINDOW) /* messages of each sender that a
					     * backpressured endpoint still
					     * accepts */
/* Values of mr_mode from before libfabric 1.5. Version 2.0 deprecates their
 * names. */
#define MOONRAIL_MR_BASIC	1
#define MOONRAIL_MR_SCALABLE	2
/* FI_MR_DMABUF, which the headers of 1.17 do not define: the attributes
 * describe a DMA buffer instead of an address. */
#define MOONRAIL_DMABUF	(UINT64_C(1) << 40)
/* Protocol of endpoints. Programs such as Mercury store it in an int and reject
 * values that are not positive. The numbers that libfabric assigns are below
 * 100. */
#define MOONRAIL_PROTO	0x6d6f6f6eu	/* protocol number; decimal
					 * 1836019566 */
#define MOONRAIL_PROTO_010 (MOONRAIL_OWN | MOONRAIL_PROTO) /* protocol of
							    * release 0.1.0;
							    * accepted in
							    * hints */
#define MOONRAIL_MESSAGE (UINT64_C(1) << 40)	/* largest operation, bytes */
#define MOONRAIL_OBJECTS 65536	/* limit reported for each kind of object */

/* Flag of the fi_getinfo calls that libfabric itself makes. With it,
 * FI_PROVIDER does not filter the result. This is necessary because FI_PROVIDER
 * may name only moonrail, while the rails need other providers. */
#define MOONRAIL_INFO_FLAGS (UINT64_C(1) << 60)

/* MOONRAIL_ORDER_FREE: message orders that cost nothing, because messages and
 * atomics are executed in the order of their stream. MOONRAIL_ORDER_ASKED:
 * message orders for which operations must wait (moonrail_order.c); an endpoint
 * enforces them only if its hints request them. */
#define MOONRAIL_ORDER_FREE (FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | \
			     FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | \
			     FI_ORDER_ATOMIC_WAW)
#define MOONRAIL_ORDER_ASKED (FI_ORDER_SAW | FI_ORDER_WAW | FI_ORDER_WAS | \
			      FI_ORDER_RAW | FI_ORDER_RAR | FI_ORDER_RAS | \
			      FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | \
			      FI_ORDER_RMA_WAW)

#define MOONRAIL_TX_FLAGS (FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | \
			   FI_TRANSMIT_COMPLETE | MOONRAIL_DELIVERED)
/* These two flags have the same effect: a message is delivered only when it is
 * matched with a receive. */
#define MOONRAIL_DELIVERED (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)
#define MOONRAIL_REFUSED (FI_TRIGGER | FI_COMMIT_COMPLETE)
#define MOONRAIL_RX_FLAGS (FI_COMPLETION | FI_MULTI_RECV)
#define MOONRAIL_TX_CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | \
			  FI_READ | FI_WRITE | FI_FENCE)
#define MOONRAIL_RX_CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | \
			  FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | \
			  FI_DIRECTED_RECV | FI_SOURCE | FI_RMA_EVENT)
#define MOONRAIL_DOMAIN_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define MOONRAIL_CAPS (MOONRAIL_TX_CAPS | MOONRAIL_RX_CAPS | \
		       MOONRAIL_DOMAIN_CAPS)

struct moonrail_block;
struct moonrail_bounces;
struct moonrail_domain;
struct moonrail_ep;
struct moonrail_op;
struct moonrail_peer;

/* How the rails share an operation. */
enum moonrail_policy_kind {
	MOONRAIL_ADAPTIVE,		/* each rail takes slices when it has
					 * room */
	MOONRAIL_FIXED,			/* all operations of an endpoint use one
					 * rail */
	MOONRAIL_ROUND_ROBIN,		/* each operation uses the next rail */
	MOONRAIL_STRIPING,		/* each rail carries an equal part */
};

struct moonrail_policy {
	uint64_t max;			/* largest operation of this entry,
					 * bytes */
	enum moonrail_policy_kind kind;
};

struct moonrail_policies {
	struct moonrail_policy of[MOONRAIL_POLICIES]; /* in ascending order of
						       * max */
	uint32_t n;
};

struct moonrail_fabric {
	struct fid_fabric fid;
	uint32_t refs;			/* domains and event queues; atomic.
					 * Dropped with release and read with
					 * acquire order, so that the thread
					 * that frees the fabric sees all
					 * earlier changes */
};

/* How a program waits for a queue. Part of the queue and guarded by its
 * lock. */
struct moonrail_wait {
	enum fi_wait_obj kind;		/* fixed */
	int fd;				/* eventfd for FI_WAIT_FD, otherwise -1;
					 * fixed */
	bool signaled;			/* fd is readable */
};

/* An event queue. Its entries come from fi_eq_write and from address
 * vectors. */
struct moonrail_eq {
	struct fid_eq fid;
	struct moonrail_fabric *fabric;
	uint32_t refs;			/* address vectors and endpoints;
					 * atomic, with the order of
					 * moonrail_fabric.refs */
	struct tei_mutex lock;
	pthread_cond_t cond;
	struct tei_list events;		/* struct eq_event; guarded by lock */
	struct moonrail_wait wait;	/* guarded by lock */
};

/* A task of the data plane that belongs to an operation. Part of op->tasks.
 * When the task has ended, it waits in the inbox for a thread that holds the
 * domain's lock. */
struct moonrail_task {
	struct tei_rail_task task;
	struct tei_list link;		/* domain->inbox.tasks */
	struct moonrail_op *op;
	enum tei_rail_end end;
};

#define MOONRAIL_HASH	256u

/* Returns the list of a hash table that holds the entries with this key or
 * incarnation. */
static inline struct tei_list *moonrail_bucket(struct tei_list *hash,
					       uint64_t key)
{
	return &hash[(key ^ key >> 32) % MOONRAIL_HASH];
}

/* The receivers of a domain's events. Each function is called with the domain's
 * lock held, by the thread that has it: this may be another thread than the one
 * that added the event, and later. */
struct moonrail_inbox_ops {
	/* Handles a message of the data plane and frees it. */
	void (*message)(struct moonrail_domain *d, struct tei_rail_message *m);
	/* Handles the end of a task. */
	void (*task_done)(struct moonrail_task *task);
	/* Frees the objects that have become unused while the lock was
	 * held. */
	void (*free_unused)(struct moonrail_domain *d);
};

/* The events of a domain that no thread has handled yet, and the threads that
 * wait for a change. */
struct moonrail_inbox {
	const struct moonrail_inbox_ops *ops; /* fixed */
	struct tei_mutex lock;		/* guards messages and tasks; a leaf */
	struct tei_list messages;	/* tei_rail_message.link */
	struct tei_list tasks;		/* moonrail_task.link */
	pthread_cond_t cond;		/* events has changed */
	/* atomic */
	uint32_t sleepers;		/* threads that wait on cond */
	uint32_t n;			/* length of messages and tasks */
	uint64_t events;		/* counter of completions and other
					 * changes */
};

/* Handles a message of the stream of a peer. Returns false if there is no room
 * or memory for the message now; the sender repeats the message. */
typedef bool (*moonrail_message_fn)(struct moonrail_peer *peer,
				    const struct moonrail_wire *w,
				    const uint8_t *payload, uint32_t len);

/*
 * Created by fi_domain, freed by fi_close.
 */
struct moonrail_domain {
	/* fixed */
	struct fid_domain fid;
	struct moonrail_fabric *fabric;
	struct tei_settings settings;
	struct moonrail_policies policies;
	struct tei_rail_dp *dp;
	uint64_t incarnation;
	bool virt_addr, prov_key;	/* properties of the domain's keys, from
					 * mr_mode */
	uint32_t format;		/* addr_format of its addresses */
	struct moonrail_name source;	/* address of the only local rail to
					 * publish; len 0: any rail */
	const moonrail_message_fn *handlers; /* by enum moonrail_wire_op */
	struct moonrail_bounces *bounces; /* NULL: no rail pins memory or
					   * requires registered local memory */
	bool bounces_local;		/* local memory of tasks must be
					 * registered */
	bool closing;			/* the domain is closing: messages are
					 * dropped */

	struct tei_mutex lock;		/* guards the fields below */
	bool counts;			/* a counter of this domain counts
					 * remote accesses: peers must report
					 * their reads and writes of this
					 * domain's memory */
	struct tei_list peers;		/* moonrail_peer.link */
	struct tei_list idle;		/* peers that may have become unused:
					 * .idle_link */
	struct tei_list known[MOONRAIL_HASH]; /* peers whose incarnation is
					       * known, hashed by it:
					       * moonrail_peer.hash_link */
	struct tei_list eps;		/* moonrail_ep.link */
	struct tei_list cntrs;		/* moonrail_cntr.link */
	struct tei_list mrs[MOONRAIL_HASH]; /* by key; moonrail_mr.link */
	struct tei_list keys[MOONRAIL_HASH]; /* keys of peers, by peer and key;
					      * moonrail_key.hash_link */
	struct moonrail_pin **pins;	/* sorted by address */
	uint32_t npins, pins_cap;
	uint32_t ngoing;		/* number of pinned ranges that were
					 * removed from pins and are not
					 * unregistered yet */
	uint64_t pin_clock;
	uint64_t next_id;
	uint32_t next_ep;
	uint32_t turn;			/* next rail for MOONRAIL_ROUND_ROBIN */

	struct moonrail_inbox inbox;

	uint32_t refs;			/* objects opened on the domain;
					 * atomic */
};

/* Stands for domain->lock in clang's thread-safety analysis. Used in
 * annotations only. */
extern struct tei_mutex moonrail_held;

/* --- completions --------------------------------------------------------- */

struct moonrail_entry {
	void *context, *buf;
	uint64_t flags, data, tag;
	size_t len, olen;
	fi_addr_t src;
	int err;
	uint64_t cntr, nth;		/* id of the counter that counted this
					 * error, and the number of the error at
					 * that counter; otherwise 0 */
};

/* Created by fi_cq_open, freed by fi_close. domain->lock guards all fields
 * except those marked atomic. */
struct moonrail_cq {
	struct fid_cq fid;
	struct moonrail_domain *domain;
	enum fi_cq_format format;
	struct moonrail_wait wait;
	bool woken;			/* fi_cq_signal was called */
	uint32_t refs;			/* endpoints and poll sets */
	struct moonrail_entry *ring;	/* completions and errors in order;
					 * grows */
	uint32_t head, cap;
	uint32_t n;			/* entries in ring; read without the
					 * lock */
	uint32_t empty;			/* consecutive polls that found nothing;
					 * atomic */
	bool dozes;			/* a thread sleeps on the descriptor or
					 * is about to, and the data plane has
					 * been notified; atomic */
};

/* Created by fi_cntr_open, freed by fi_close. */
struct moonrail_cntr {
	/* fixed */
	struct fid_cntr fid;
	struct moonrail_domain *domain;
	uint64_t id;
	/* read without a lock, changed under domain->lock */
	uint64_t value, errors;
	/* domain->lock */
	struct tei_list link;		/* domain->cntrs */
	uint64_t notified;		/* number of errors that the application
					 * already knows */
	uint64_t failed, past;		/* failed: operations that have failed,
					 * in total; past: failed when the
					 * application last read all errors */
	uint32_t refs;			/* endpoints, registrations and poll
					 * sets */
};

/* --- addresses ----------------------------------------------------------- */

struct moonrail_av_entry {
	struct tei_list link;		/* peer->entries */
	struct moonrail_av *av;
	struct moonrail_peer *peer;	/* NULL: the entry is free */
	uint32_t index, ep;
	struct moonrail_name name;	/* as inserted */
	bool socket;			/* inserted as a sockaddr */
	bool refused;			/* the peer has closed the endpoint */
	int err;			/* FI_E* with which the search for the
					 * process failed; ends each operation
					 * until the address is inserted
					 * again */
};

#define MOONRAIL_FOUND	64u

/* Cached result of a search for the address of a peer's endpoint. */
struct moonrail_av_found {
	const struct moonrail_peer *peer; /* compared only, never dereferenced;
					   * NULL: unused */
	uint32_t ep;
	uint64_t changes;		/* moonrail_av.changes at the search */
	fi_addr_t at;			/* result, or FI_ADDR_NOTAVAIL */
};

struct moonrail_av {
	struct fid_av fid;
	struct moonrail_domain *domain;
	struct moonrail_av_entry **entry;
	uint32_t n, cap, refs;
	uint32_t vacant;		/* no entry with a lower index is
					 * free */
	uint32_t named;			/* entries whose address names an
					 * endpoint */
	uint64_t changes;		/* number of changes to the entries so
					 * far */
	struct moonrail_av_found found[MOONRAIL_FOUND]; /* indexed by a hash of
							 * peer and ep */
	uint64_t flags;
	struct moonrail_eq *eq;
};

/* --- memory -------------------------------------------------------------- */

struct moonrail_mr {
	struct fid_mr fid;
	struct moonrail_domain *domain;
	struct tei_list link;
	char *addr;
	/* told: number of peers that the key was sent to. */
	uint64_t len, key, access, notified;
	struct moonrail_cntr *cntr[2];	/* counters of remote reads and remote
					 * writes */
};

/* A pinned range: a registration of the data plane. Pinned ranges never
 * overlap. */
struct moonrail_pin {
	struct tei_list link;		/* in a list of ranges to unregister */
	char *addr;
	uint64_t len, used;
	uint32_t refs;
	uint32_t mrs;			/* number of refs that are registrations
					 * of the application */
	bool coming;			/* is being registered */
	bool old;			/* a part of the range belongs to no
					 * open registration and may have been
					 * unmapped; used only if a rail pins
					 * memory */
};

/* A key of a peer, as the peer described it. */
struct moonrail_key {
	struct tei_list link;		/* peer->keys */
	struct tei_list hash_link;	/* domain->keys */
	struct moonrail_peer *peer;
	uint64_t key, base, len;
	uint32_t access;		/* FI_REMOTE_…; 0: the key is void */
	bool known;			/* the peer has answered */
	bool virt_addr;
	bool events;			/* the owner wants DONE for each
					 * operation */
};

/* --- operations ---------------------------------------------------------- */

enum moonrail_kind {
	MOONRAIL_RECV,
	MOONRAIL_SEND,
	MOONRAIL_RMA,
	MOONRAIL_ATOMIC,		/* iov: results; link: in
					 * peer->waiting */
};

/* What differs between the kinds of operations. The functions that move bytes
 * and those that exchange messages with peers report to the owner of the kind
 * through this table, with the domain's lock held. */
struct moonrail_op_type {
	enum moonrail_kind kind;
	/* Handles the end of the operation's move: op->err is 0 or FI_E*. NULL:
	 * operations of this kind move no bytes. */
	void (*moved)(struct moonrail_op *op);
	/* Starts a move again that has waited for a bounce buffer, which is
	 * op->block now. at: the n remote ranges of the move. */
	void (*restart)(struct moonrail_op *op,
			const struct moonrail_wire_piece *at, uint32_t n);
	/* Ends the wait of the operation, which is in no list any longer, for
	 * an answer of its peer. err: FI_E*, or 0. */
	void (*answered)(struct moonrail_op *op, int err);
};

/* The classes of operations that message orders distinguish. Receives have no
 * class. */
enum moonrail_class {
	MOONRAIL_CLASS_SEND,
	MOONRAIL_CLASS_READ,
	MOONRAIL_CLASS_WRITE,
	MOONRAIL_CLASS_ATOMIC,
	MOONRAIL_CLASSES,
};

/*
 * One operation of the application that is under way. Created by the call of
 * the application, freed when the operation completes.
 */
struct moonrail_op {
	struct tei_list link;		/* ep->recvs[], peer->waiting,
					 * peer->rma, peer->unsure, or in no
					 * list */
	const struct moonrail_op_type *type;
	enum moonrail_kind kind;	/* type->kind */
	struct moonrail_ep *ep;
	struct moonrail_peer *peer;
	void *context;
	uint64_t flags;			/* flags of its completion */
	bool quiet;			/* no completion if it succeeds */
	int err;			/* FI_E* */
	uint32_t niov, nrma;
	struct iovec iov[MOONRAIL_IOV];
	uint64_t total;			/* bytes of iov */
	uint64_t id;
	void *copy;			/* copy of injected bytes, or NULL */
	struct moonrail_block *block;	/* bounce buffer that its bytes pass
					 * through, or NULL */
	uint32_t left;			/* number of tasks under way */
	bool lost;			/* a task has failed */
	bool heard;			/* the peer no longer reads the bytes of
					 * this operation */
	struct moonrail_task *tasks;
	/* receive */
	struct moonrail_peer *from;	/* expected sender; NULL: any */
	uint32_t from_ep;		/* number of the expected endpoint */
	struct moonrail_op *multi;	/* the multi-receive that this is a part
					 * of */
	uint32_t parts;			/* of a multi-receive: number of its
					 * parts under way */
	uint64_t tag, ignore, data, got, cut;
	uint64_t rts_ack;		/* acknowledged number in the RTS of the
					 * message that is being read */
	uint32_t src_ep;
	bool peek;			/* not counted by a counter */
	/* send */
	uint32_t npin;			/* entries of iov that are pinned */
	/* remote memory access */
	struct fi_rma_iov rma[MOONRAIL_IOV];
	bool write, has_data, event;
	bool certain;			/* completes when the peer has
					 * acknowledged DONE */
};

/* An unexpected message. Owned by its endpoint. */
struct moonrail_unexpected {
	struct tei_list link;
	struct moonrail_peer *peer;
	struct moonrail_wire wire;
	uint64_t over;			/* result of moonrail_flow_over; 0:
					 * within the limit */
	uint32_t len;
	uint8_t bytes[];
};

/* What an endpoint's counters count. */
enum moonrail_cntr_of {
	MOONRAIL_CNTR_SEND,
	MOONRAIL_CNTR_RECV,
	MOONRAIL_CNTR_READ,
	MOONRAIL_CNTR_WRITE,
	MOONRAIL_CNTR_REMOTE_READ,
	MOONRAIL_CNTR_REMOTE_WRITE,
	MOONRAIL_CNTRS,
};

/* Created by fi_endpoint, freed by fi_close. domain->lock guards all fields. */
struct moonrail_ep {
	struct fid_ep fid;
	struct tei_list link;		/* domain->eps */
	struct moonrail_domain *domain;
	uint32_t id;
	struct moonrail_av *av;
	struct moonrail_eq *eq;
	struct moonrail_cq *tx_cq, *rx_cq;
	bool tx_selective, rx_selective;
	struct moonrail_cntr *cntr[MOONRAIL_CNTRS];
	uint64_t tx_flags, rx_flags, caps;
	uint64_t order;			/* the orders of MOONRAIL_ORDER_ASKED
					 * that the hints request; fixed */
	bool enabled, closing;
	size_t min_multi;
	uint32_t ntx, nrx;		/* operations under way */
	uint32_t busy;			/* operations that tasks, a bounce
					 * buffer or a read-back check keep from
					 * completing */
	struct tei_list recvs[2];	/* posted receives: [0] untagged, [1]
					 * tagged */
	struct tei_list unexpected[2];	/* unexpected messages: [0] untagged,
					 * [1] tagged */
	struct tei_list claimed;	/* moonrail_unexpected, claimed with
					 * FI_CLAIM */
	uint64_t held;			/* bytes of the unexpected messages */
	uint32_t stops;			/* number of peers for which the
					 * endpoint is backpressured */
};

/* A message of the stream. Kept until it is acknowledged. */
struct moonrail_out {
	struct tei_list link;		/* peer->queue, then peer->sent; or
					 * peer->parked */
	struct moonrail_op *op;		/* completes when the message is
					 * acknowledged, or NULL */
	enum moonrail_policy_kind policy;
	uint32_t len;
	struct moonrail_wire wire;
	uint8_t buf[];			/* header of the data plane, wire,
					 * payload */
};

/* An out-of-order message. */
struct moonrail_out_of_order {
	struct tei_list link; /* peer->out_of_order, in order of seq */
	struct tei_rail_message *message;
	uint64_t seq;
};

/* A backpressured endpoint: one of the peer (peer->full), or one of this domain
 * (peer->stopped). */
struct moonrail_backpressured {
	uint32_t ep;
	uint32_t n;			/* in peer->full: number of messages
					 * parked for the endpoint; in
					 * peer->stopped: number of messages
					 * accepted over the limit */
	uint64_t since;			/* in stopped: stop_change when it was
					 * added */
};

/*
 * Another domain, or this domain itself. Created when the domain is first
 * mentioned. moonrail_leave frees the peer when nothing uses it and its streams
 * are no longer needed (peer_is_unneeded); otherwise the peer is freed with the
 * domain. domain->lock guards all fields.
 */
struct moonrail_peer {
	struct tei_list link;
	struct tei_list hash_link;	/* domain->known; in no list without
					 * incarnation */
	struct tei_list idle_link;
	uint32_t uses;			/* addresses, operations, unexpected
					 * messages, and peers whose same is
					 * this one */
	struct moonrail_domain *domain;
	struct tei_rail_peer *rail;	/* the peer of the data plane, with a
					 * reference; NULL: this domain
					 * itself */
	uint64_t incarnation;		/* 0: not known yet */
	struct moonrail_peer *same;	/* the known peer that this resolver has
					 * found, or NULL */
	int err;			/* FI_E* of each operation, or 0 */
	bool resumes;			/* err is a timeout: the streams are
					 * kept, and operations may follow */
	bool silent;			/* nothing has been received since err
					 * was set */
	/* outgoing stream */
	uint64_t next_seq;		/* number of the next message; 1 at
					 * first */
	uint64_t acked;			/* acknowledged number: the peer has
					 * received all messages with lower
					 * numbers */
	uint64_t posted_seq;		/* number of the last message that
					 * carries an operation of this domain;
					 * 0: none */
	uint64_t asked_seq;		/* value of posted_seq at the last
					 * request for an acknowledgement */
	uint64_t key_seq;		/* number of the last message about a
					 * key that a caller waits for, or 0 */
	uint32_t ntx;			/* operations under way */
	uint32_t under[MOONRAIL_CLASSES]; /* operations under way, by class */
	enum moonrail_class turn_class;	/* class of the last operation that was
					 * refused because of an order; this
					 * class has precedence */
	uint64_t turn_ns;		/* time until which other classes are
					 * refused, ns, CLOCK_MONOTONIC; 0:
					 * none */
	struct tei_list entries;	/* the peer's entries in address
					 * vectors */
	struct tei_list queue, sent;	/* moonrail_out: not sent yet; not
					 * acknowledged yet */
	uint32_t nqueue, nsent;
	struct tei_list parked;		/* moonrail_out without a number, for
					 * backpressured endpoints */
	uint32_t nparked, nfull;
	struct moonrail_backpressured *full; /* backpressured endpoints of the
					      * peer */
	uint64_t full_change;		/* version of full, as the peer counts
					 * it */
	uint32_t prefer;		/* rail that carried the last message */
	/* Times in ns, CLOCK_MONOTONIC; 0: none. */
	uint64_t since_ns;		/* start of the silence of a peer that
					 * owes an answer */
	uint64_t gone_ns;		/* the peer has said BYE: end of the
					 * wait for its late messages */
	uint64_t ping_ns, ping_wait_ns;	/* next run of the timer, and its
					 * interval */
	uint64_t ping_seq;		/* all messages below it were sent
					 * before the last PING */
	uint64_t look_acked, look_seq;	/* acked and next_seq at the last run of
					 * the timer */
	uint64_t mark_seq, mark_ns;	/* a message whose acknowledgement is
					 * awaited to measure contact, 0: none;
					 * and a time before it was posted */
	uint64_t heard_us_ns;		/* a message posted after this time has
					 * been acknowledged */
	uint64_t sure_seq;		/* number of the message with which the
					 * present period of contact began:
					 * since the peer received it, it has
					 * heard from this domain without a
					 * pause */
	uint64_t unsure_ns;		/* the peer has failed but may still
					 * read announced messages until this
					 * time */
	struct tei_list waiting;	/* operations that wait for a FIN or an
					 * ATOMIC_REP */
	struct tei_list rma;		/* operations that wait for a key */
	struct tei_list keys;
	/* incoming stream */
	uint64_t expected;		/* number of the next message */
	struct tei_list out_of_order;	/* out-of-order messages,
					 * moonrail_out_of_order.link */
	uint32_t nearly;		/* length of early */
	uint32_t unacked;		/* messages received since the last
					 * ACK */
	uint32_t nstopped;
	struct moonrail_backpressured *stopped; /* backpressured endpoints of
						 * this domain */
	uint64_t stop_change;		/* version of stopped; 0: never
					 * changed */
	uint32_t reading;		/* short announced messages that are
					 * being read */
	struct tei_list unsure;		/* receives whose message has been read
					 * and whose read-back check is not
					 * answered */
	uint32_t nends;			/* messages that have been received and
					 * whose FIN has not been sent */
	struct moonrail_wire_end ends[MOONRAIL_ENDS];
};

/* --- moonrail_domain.c --------------------------------------------------- */
int moonrail_domain_open(struct fid_fabric *fabric, struct fi_info *info,
			 struct fid_domain **domain, void *context);
/* Returns true if a domain with this info would try RDMA devices first:
 * libfabric offers at least one that the settings and the info allow. */
bool moonrail_domain_rdma(const struct tei_settings *s,
			  const struct fi_info *info);

/* --- moonrail_dispatch.c ------------------------------------------------- */
/* The functions that the data plane of each domain calls. */
extern const struct tei_rail_ops moonrail_rail_ops;
extern const struct moonrail_inbox_ops moonrail_inbox_ops;
/* Handlers of the messages of a stream, by enum moonrail_wire_op. The stream
 * itself handles the messages without a handler. */
extern const moonrail_message_fn moonrail_message_handlers[MOONRAIL_WIRE_OPS];

/* --- moonrail_inbox.c ---------------------------------------------------- */
void moonrail_inbox_init(struct moonrail_domain *d,
			 const struct moonrail_inbox_ops *ops);
void moonrail_inbox_fini(struct moonrail_domain *d);
/* Adds an event, and handles the inbox if the domain's lock is free. Called
 * without the lock, by any thread. */
void moonrail_inbox_add_message(struct moonrail_domain *d,
				struct tei_rail_message *m);
void moonrail_inbox_add_task(struct moonrail_domain *d,
			     struct moonrail_task *task);
void moonrail_enter(struct moonrail_domain *d) TEI_ACQUIRE(moonrail_held);
bool moonrail_try_enter(struct moonrail_domain *d)
	TEI_TRY_ACQUIRE(true, moonrail_held);
/* Handles the inbox, frees unused peers, and releases the lock. */
void moonrail_leave(struct moonrail_domain *d) TEI_RELEASE(moonrail_held);
/* Handles all events in the inbox. */
void moonrail_drain(struct moonrail_domain *d) TEI_REQUIRES(moonrail_held);
/*
 * Adds or drops the reference of an object that was opened on the domain.
 * fi_close frees the domain once refs is 0, and moonrail_leave still reads the
 * domain after it has released the lock. So an object drops its reference only
 * after moonrail_leave, and does not touch the domain afterwards.
 */
static inline void moonrail_domain_ref(struct moonrail_domain *d)
{
	__atomic_fetch_add(&d->refs, 1, __ATOMIC_RELAXED);
}

static inline void moonrail_domain_unref(struct moonrail_domain *d)
{
	__atomic_fetch_sub(&d->refs, 1, __ATOMIC_RELEASE);
}

/* Counts a completion or another change and wakes the threads in
 * moonrail_sleep. */
void moonrail_notify(struct moonrail_domain *d);
/* Sleeps until the event counter differs from seen, but at most ns nanoseconds,
 * while the progress thread polls the lanes. Must be called without a lock. */
void moonrail_sleep(struct moonrail_domain *d, uint64_t seen, uint64_t ns);
static inline uint64_t moonrail_events(const struct moonrail_domain *d)
{
	return __atomic_load_n(&d->inbox.events, __ATOMIC_SEQ_CST);
}
/* Polls the lanes. Call without a lock. */
void moonrail_progress(struct moonrail_domain *d);

/* --- moonrail_attr.c, moonrail_init.c ------------------------------------ */
extern struct fi_provider moonrail_provider;
int moonrail_getinfo(uint32_t version, const char *node, const char *service,
		     uint64_t flags, const struct fi_info *hints,
		     struct fi_info **info);
/* Creates one fi_info; the caller frees it. Returns -FI_ENODATA if the hints
 * cannot be met, or -FI_ENOMEM. */
int moonrail_attr_info(uint32_t version, const struct fi_info *hints,
		       struct fi_info **info);

/* --- moonrail_devices.c -------------------------------------------------- */
/* Returns true if a domain's name is not "moonrail" but the name of the only
 * rail that the domain is to have. */
static inline bool moonrail_domain_device(const char *name)
{
	return name && strcmp(name, "moonrail");
}
/* Returns the rails that the environment names, as a list of devices in out, or
 * NULL if it names none. */
const char *moonrail_devices(char *out, size_t cap);
/* Returns 0 if the domain of the info has the name "moonrail", or the name of
 * one interface or RDMA device that can be a rail. Otherwise returns
 * -FI_ENODATA. */
int moonrail_devices_check(const struct fi_info *info,
			   const struct tei_settings *s);

/* --- moonrail_policy.c --------------------------------------------------- */
/* Reads the policies of the environment. Returns 0, or -FI_EINVAL if a value is
 * malformed. */
int moonrail_policies(struct moonrail_policies *policies);
/* Returns the policy for operations of size bytes. */
enum moonrail_policy_kind moonrail_policy(const struct moonrail_domain *d,
					  uint64_t size);
/* Returns 1 + the index of the rail that carries the next undivided operation
 * of an endpoint to a peer, or 0 for any rail. */
uint32_t moonrail_policy_rail(struct moonrail_peer *peer, uint32_t ep,
			      enum moonrail_policy_kind kind)
	TEI_REQUIRES(moonrail_held);
/* Writes the indices of the rails that each carry an equal part of len bytes.
 * Returns their number. */
uint32_t moonrail_policy_parts(struct moonrail_peer *peer, uint64_t len,
			       uint8_t rails[TEI_RAIL_MAX])
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_fabric.c --------------------------------------------------- */
int moonrail_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fid,
			 void *context);

/* --- moonrail_eq.c ------------------------------------------------------- */
int moonrail_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
		     struct fid_eq **eq, void *context);
/* Returns 0 if the queue is empty and its descriptor will report the next
 * event, otherwise -FI_EAGAIN. */
int moonrail_eq_trywait(struct moonrail_eq *eq);
/* Appends an error event; drops it if memory is short. */
void moonrail_eq_add_error(struct moonrail_eq *eq,
			   const struct fi_eq_err_entry *error);

/* --- moonrail_wait.c ----------------------------------------------------- */
/* Returns 0, -FI_ENOSYS if this kind of wait object is not supported, or
 * -FI_EMFILE. */
int moonrail_wait_open(enum fi_wait_obj kind, struct moonrail_wait *w);
void moonrail_wait_close(struct moonrail_wait *w);
/* Makes the descriptor readable: the queue has an entry. */
void moonrail_wait_signal(struct moonrail_wait *w);
/* Makes the descriptor not readable: the queue is empty, and a thread is about
 * to sleep. */
void moonrail_wait_calm(struct moonrail_wait *w);
/* Answers FI_GETWAIT and FI_GETWAITOBJ. */
int moonrail_wait_control(const struct moonrail_wait *w, int command,
			  void *arg);

/* --- moonrail_cq.c, moonrail_cntr.c -------------------------------------- */
int moonrail_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
		     struct fid_cq **cq, void *context);
/* Returns 0 if the queue is empty and its descriptor will report the next
 * entry, otherwise -FI_EAGAIN. */
int moonrail_cq_trywait(struct moonrail_cq *cq);
/* Appends a completion or an error and wakes the threads that wait for it. */
void moonrail_cq_add(struct moonrail_cq *cq, const struct moonrail_entry *e)
	TEI_REQUIRES(moonrail_held);
int moonrail_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		       struct fid_cntr **cntr, void *context);
/* Counts a success or an error. */
void moonrail_cntr_add(struct moonrail_cntr *cntr, bool good)
	TEI_REQUIRES(moonrail_held);
/* Records that the application has read error number nth of the counter with
 * that id, if the counter is still open. */
void moonrail_cntr_told(struct moonrail_domain *d, uint64_t id, uint64_t nth)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_poll.c ----------------------------------------------------- */
int moonrail_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		       struct fid_poll **set);

/* --- moonrail_av.c, moonrail_av_names.c ---------------------------------- */
int moonrail_av_insertsvc(struct fid_av *av, const char *node,
			  const char *service, fi_addr_t *addr, uint64_t flags,
			  void *context);
int moonrail_av_insertsym(struct fid_av *av, const char *node, size_t nodes,
			  const char *service, size_t services, fi_addr_t *addr,
			  uint64_t flags, void *context);
int moonrail_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
		     struct fid_av **av, void *context);
/* Returns the entry of an address, or NULL if there is none. */
struct moonrail_av_entry *moonrail_av_get(struct moonrail_av *av, fi_addr_t a)
	TEI_REQUIRES(moonrail_held);
/* Returns the FI_E* that ends each operation with the entry, or 0. */
static inline int moonrail_av_err(const struct moonrail_av_entry *e)
{
	return e->peer->err ? e->peer->err : e->err;
}
/* Moves all entries of the peer from to the peer to, which is the same
 * process. */
void moonrail_av_merge(struct moonrail_peer *from, struct moonrail_peer *to)
	TEI_REQUIRES(moonrail_held);
/* Marks the addresses of an endpoint that has been closed. */
void moonrail_av_refused(struct moonrail_peer *peer, uint32_t ep)
	TEI_REQUIRES(moonrail_held);
/* Returns the address of a peer's endpoint, or FI_ADDR_NOTAVAIL. av: NULL if no
 * address vector is bound yet. */
fi_addr_t moonrail_av_find(struct moonrail_av *av, struct moonrail_peer *peer,
			   uint32_t ep) TEI_REQUIRES(moonrail_held);
/* Returns true if an address of the peer with endpoint number named stands for
 * the peer's endpoint ep. named may be MOONRAIL_EP_ANY, which stands for every
 * endpoint that has no address of its own. */
bool moonrail_av_is(struct moonrail_av *av, struct moonrail_peer *peer,
		    uint32_t named, uint32_t ep) TEI_REQUIRES(moonrail_held);

/* --- moonrail_pin.c, moonrail_mr.c --------------------------------------- */
extern struct fi_ops_mr moonrail_mr_ops;
/*
 * Registers a range with the data plane, except for the parts that are
 * registered already, and takes a reference to each pinned range that it
 * touches. mr: for a registration of the application; the lock is released
 * while memory is registered. May wait for the progress thread, so only threads
 * of the application call it. Returns:
 *
 *	0		success
 *	-FI_EAGAIN	a part is being registered or unregistered, or a
 *			closed registration of it is still in use
 *	-FI_EBUSY	a part was left by a closed registration, and another
 *			open registration shares its pinned range
 *	-FI_ENOMEM	no memory, or the registration failed
 */
int moonrail_pin(struct moonrail_domain *d, const void *addr, uint64_t len,
		 bool mr) TEI_REQUIRES(moonrail_held);
/* Must be called before moonrail_unpin for a registration of the application,
 * after the registration has left domain->mrs. Marks the pinned ranges of which
 * the other open registrations cover only a part (moonrail_pin.old). */
void moonrail_pin_closed(struct moonrail_domain *d, const void *addr,
			 uint64_t len) TEI_REQUIRES(moonrail_held);
/* Drops a reference to each pinned range within the given range. gone: receives
 * the pinned ranges without references, for moonrail_pin_drop. If gone is NULL,
 * these pinned ranges stay registered, because they will probably be used
 * again; if rails pin memory, the bounce thread unregisters them. */
void moonrail_unpin(struct moonrail_domain *d, const void *addr, uint64_t len,
		    struct tei_list *gone) TEI_REQUIRES(moonrail_held);
/* Unregisters the pinned ranges of the list; afterwards no peer can access
 * them. Waits for peers, and a peer may be suspended. Therefore only threads of
 * the application and the bounce thread may call this function, without the
 * lock. */
void moonrail_pin_drop(struct moonrail_domain *d, struct tei_list *gone);
/* Unregisters the pinned range that has been unused for longest if too many are
 * unused. Waits as moonrail_pin_drop does. */
void moonrail_pin_trim(struct moonrail_domain *d);
void moonrail_pin_free_all(struct moonrail_domain *d);
/* Returns true if the range lies in one pinned range that an open registration
 * of the application covers, so that tasks can use it. */
bool moonrail_pinned(const struct moonrail_domain *d, const void *addr,
		     uint64_t len) TEI_REQUIRES(moonrail_held);
/* Returns the open registration with that key, or NULL. */
struct moonrail_mr *moonrail_mr_find(struct moonrail_domain *d, uint64_t key)
	TEI_REQUIRES(moonrail_held);
/* Sends the peer a KEY_IS that describes the registration with this key, or
 * says that there is none. Returns false if memory is short. */
bool moonrail_mr_tell(struct moonrail_peer *peer, uint64_t key)
	TEI_REQUIRES(moonrail_held);
/* Handles KEY: answers the query. */
bool moonrail_mr_query(struct moonrail_peer *peer,
		       const struct moonrail_wire *w, const uint8_t *payload,
		       uint32_t len) TEI_REQUIRES(moonrail_held);
/* Requests all peers to report their reads and writes of this domain's memory.
 * Waits up to 2 s for the peers' acknowledgements and releases the lock
 * meanwhile. Only threads of the application may call this function. */
void moonrail_mr_want_events(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);
/*
 * Counts one operation of a peer through an endpoint of this domain, on the
 * memory of n keys. reads: the operation has returned bytes; writes: it has
 * changed bytes; a fetching atomic does both. According to fi_endpoint(3) and
 * fi_mr(3), the endpoint counts an operation that does both as a read only, and
 * a registration's counter of writes counts every operation that changes the
 * registration.
 */
void moonrail_mr_count(struct moonrail_domain *d, const struct moonrail_ep *ep,
		       const uint64_t *keys, uint32_t n, bool reads,
		       bool writes) TEI_REQUIRES(moonrail_held);

/* --- moonrail_bounce.c --------------------------------------------------- */
/* Starts the bounce thread if a rail needs it. Called after the rails were
 * opened. Returns 0 or -FI_ENOMEM. */
int moonrail_bounce_open(struct moonrail_domain *d);
/* moonrail_bounce_stop stops the bounce thread before the data plane is closed;
 * moonrail_bounce_free frees everything after the data plane was closed. */
void moonrail_bounce_stop(struct moonrail_domain *d);
void moonrail_bounce_free(struct moonrail_domain *d);
/* Prepares the buffer that the peer reads for a message. Returns 0 if the peer
 * reads iov itself, 1 if the peer reads *out, a bounce buffer; or -FI_ENOMEM,
 * or -FI_EAGAIN if memory may become free. Called only by threads of the
 * application. */
int moonrail_bounce_send(struct moonrail_op *op, const struct iovec *iov,
			 size_t niov, struct iovec *out)
	TEI_REQUIRES(moonrail_held);
/*
 * Prepares the local buffer of a move; the arguments are those of
 * moonrail_move. Returns 0 if the bytes move from or to *out, or, if
 * out->iov_base is NULL, op->iov. Returns 1 if no bounce buffer is free: the
 * bounce thread starts the move again later. Otherwise returns -FI_ENOMEM.
 */
int moonrail_bounce_move(struct moonrail_op *op,
			 const struct moonrail_wire_piece *at, uint32_t n,
			 bool read, struct iovec *out)
	TEI_REQUIRES(moonrail_held);
/* Copies the bytes that have been read from op->block to op->iov. */
void moonrail_bounce_read(const struct moonrail_op *op);
/* Gives back a bounce buffer. clean: no peer reads it any more. */
void moonrail_bounce_put(struct moonrail_domain *d,
			 struct moonrail_block *block, bool clean)
	TEI_REQUIRES(moonrail_held);
/* Takes over pinned ranges without references, which the bounce thread
 * unregisters. */
void moonrail_bounce_spent(struct moonrail_domain *d, struct tei_list *pins)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_ep.c ------------------------------------------------------- */
int moonrail_ep_open(struct fid_domain *domain, struct fi_info *info,
		     struct fid_ep **ep, void *context);
/* Returns the endpoint with that number, or NULL. MOONRAIL_EP_ANY: the oldest
 * endpoint that is not being closed. */
static inline struct moonrail_ep *moonrail_ep_find(struct moonrail_domain *d,
						   uint32_t id)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_ep *ep;

	tei_list_foreach(ep, &d->eps, struct moonrail_ep, link)
		if (id == MOONRAIL_EP_ANY ? !ep->closing : ep->id == id)
			return ep;
	return NULL;
}
/* Returns 0 if the endpoint accepts operations of that direction,
 * -FI_EOPBADSTATE before it is enabled, or -FI_ENOCQ if neither a completion
 * queue nor a counter is bound that would report them. */
static inline int moonrail_ep_ready(const struct moonrail_ep *ep, bool recv)
{
	struct moonrail_cntr *const *c = ep->cntr;

	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	if (recv)
		return ep->rx_cq || c[MOONRAIL_CNTR_RECV] ? 0 : -FI_ENOCQ;
	return ep->tx_cq || c[MOONRAIL_CNTR_SEND] || c[MOONRAIL_CNTR_READ] ||
	       c[MOONRAIL_CNTR_WRITE] ? 0 : -FI_ENOCQ;
}

/* --- moonrail_op.c ------------------------------------------------------- */
/* Returns true if the total length exceeds MOONRAIL_MESSAGE or overflows. */
bool moonrail_iov_too_long(const struct iovec *iov, size_t n);
/* moonrail_op_begin counts an operation as under way at its endpoint and its
 * peer; moonrail_op_undo reverses the count. */
void moonrail_op_begin(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
void moonrail_op_undo(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
/* Reports the end of an operation to the application and frees it. */
void moonrail_op_done(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
/* Sets op->err, then does the same. */
void moonrail_op_end(struct moonrail_op *op, int err)
	TEI_REQUIRES(moonrail_held);
/* Creates an operation without a peer. Returns NULL if memory is short. */
struct moonrail_op *moonrail_op_new(struct moonrail_ep *ep,
				    const struct moonrail_op_type *type,
				    void *context);
/* Creates an operation to a peer. flags: those of the application's call;
 * silent: an inject, which has no completion. */
struct moonrail_op *moonrail_op_to(struct moonrail_ep *ep,
				   const struct moonrail_op_type *type,
				   struct moonrail_peer *peer, void *context,
				   uint64_t flags, bool silent)
	TEI_REQUIRES(moonrail_held);
/* Sets the peer of an operation and moves the reference. */
void moonrail_op_with(struct moonrail_op *op, struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Frees an operation without reporting it. */
void moonrail_op_free(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);

/* --- moonrail_order.c ---------------------------------------------------- */
/* Returns true if the peer has acknowledged all messages that carry operations
 * of this domain. Otherwise requests an acknowledgement from the peer. */
bool moonrail_stream_settled(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Returns true if an operation with these flags must wait for the operations
 * that are under way (FI_FENCE). */
static inline bool moonrail_fenced(struct moonrail_peer *peer, uint64_t flags)
	TEI_REQUIRES(moonrail_held)
{
	return flags & FI_FENCE &&
	       (peer->ntx || !moonrail_stream_settled(peer));
}
/* Returns true if an operation of that class must be refused for now, because
 * it could overtake an operation under way and break an order of the
 * endpoint. */
bool moonrail_order_waits(const struct moonrail_ep *ep,
			  struct moonrail_peer *peer, enum moonrail_class class)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_peer.c ----------------------------------------------------- */
/* Returns the peer with that name, which is created if it is new. Returns NULL
 * if memory is short or no rail can reach the address. */
struct moonrail_peer *moonrail_peer_get(struct moonrail_domain *d,
					const struct moonrail_name *name)
	TEI_REQUIRES(moonrail_held);
/* Returns the peer with that incarnation, or NULL. */
struct moonrail_peer *moonrail_peer_find(struct moonrail_domain *d,
					 uint64_t inc)
	TEI_REQUIRES(moonrail_held);
/* Creates a peer. Takes ownership of the reference rail; NULL: this domain
 * itself. inc: 0 if the incarnation is not known. */
struct moonrail_peer *moonrail_peer_new(struct moonrail_domain *d, uint64_t inc,
					struct tei_rail_peer *rail)
	TEI_REQUIRES(moonrail_held);
/* Sets the incarnation of a peer that had none. */
void moonrail_peer_identify(struct moonrail_peer *peer, uint64_t inc)
	TEI_REQUIRES(moonrail_held);
/* Adds or drops a reference. A peer without references stays valid until
 * moonrail_leave. */
void moonrail_peer_use(struct moonrail_peer *peer) TEI_REQUIRES(moonrail_held);
void moonrail_peer_unuse(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Schedules the check that frees the peer if it is no longer needed. */
void moonrail_peer_check_unused(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Frees the peers that are no longer needed. */
void moonrail_peer_sweep(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);
/* Frees all peers. Called after the last endpoint was closed. */
void moonrail_peer_free_all(struct moonrail_domain *d);
/* Returns the known peer if this peer is a resolver that has found one;
 * otherwise the peer itself. */
struct moonrail_peer *moonrail_peer_real(struct moonrail_peer *peer);
/* Returns true if, as far as is known, the peer still receives the messages
 * that are sent to it. */
static inline bool moonrail_peer_receives(const struct moonrail_peer *peer)
{
	return !peer->err || (peer->resumes && !peer->silent);
}
/* Returns true if the streams of the peer are in use. */
static inline bool moonrail_peer_lives(const struct moonrail_peer *peer)
{
	return !peer->err || peer->resumes;
}
/* Starts the timer of a peer if it is not running, and wakes the progress
 * thread so that it notices. While the timer runs, the progress thread wakes by
 * itself. */
void moonrail_peer_start_timer(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Makes the peer's timer run within MOONRAIL_PING_NS. */
void moonrail_peer_soon(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Resumes the streams of a peer that has timed out, because the peer was
 * inserted again or has given a sign of life. */
void moonrail_peer_resume(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_key.c ------------------------------------------------------ */
/* Returns the peer's key if it is known or has been requested, else NULL. */
struct moonrail_key *moonrail_key_find(struct moonrail_peer *peer, uint64_t key)
	TEI_REQUIRES(moonrail_held);
/* moonrail_key_add adds a key that is in no list to a peer; moonrail_key_drop
 * unlinks and frees a key. */
void moonrail_key_add(struct moonrail_peer *peer, struct moonrail_key *key)
	TEI_REQUIRES(moonrail_held);
void moonrail_key_drop(struct moonrail_key *key) TEI_REQUIRES(moonrail_held);
/* Drops the keys that were requested and not answered, because the requests
 * have been dropped. */
void moonrail_key_forget_unknown(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Moves the keys of a resolver to the peer that it has found. */
void moonrail_key_merge(struct moonrail_peer *from, struct moonrail_peer *to)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_out.c: messages of the outgoing stream --------------------- */
/* Creates a message of the stream with room for len bytes of payload. The
 * caller fills in wire, except version, seq and ack. Returns NULL if memory is
 * short. */
struct moonrail_out *moonrail_out_new(enum moonrail_wire_op op, uint32_t len);
static inline uint8_t *moonrail_out_payload(struct moonrail_out *o)
{
	return o->buf + MOONRAIL_HEAD;
}
/* Returns true for messages that the peer may wait for, or that answer a
 * message of the peer. */
bool moonrail_out_is_answer(uint8_t op);
/* Gives a message the next number and appends it to the queue. */
void moonrail_out_queue(struct moonrail_peer *peer, struct moonrail_out *out)
	TEI_REQUIRES(moonrail_held);
/* Frees a message that is in no list, and fails its operation. */
void moonrail_out_drop(struct moonrail_out *out, int err)
	TEI_REQUIRES(moonrail_held);
/* Frees the messages of a list, and fails their operations. */
void moonrail_out_drop_list(struct tei_list *list, int err)
	TEI_REQUIRES(moonrail_held);
/* Frees all numbered messages, and fails their operations. */
void moonrail_out_drop_all(struct moonrail_peer *peer, int err)
	TEI_REQUIRES(moonrail_held);
/* Empties the messages of a list that carry operations, and fails these
 * operations. Keeps the answers. */
void moonrail_out_empty_list(struct tei_list *list, int err)
	TEI_REQUIRES(moonrail_held);
/* Drops all messages for a peer to which nothing has been sent, and restarts
 * the numbering. */
void moonrail_out_restart(struct moonrail_peer *peer, int err)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_stream.c --------------------------------------------------- */
/* Queues or parks a message and sends as many messages as MOONRAIL_WINDOW
 * allows. Takes ownership of out. Returns 0, or -FI_EAGAIN if the peer is this
 * domain itself and has no room; the operation is then unchanged. */
int moonrail_stream_send(struct moonrail_peer *peer, struct moonrail_out *out)
	TEI_REQUIRES(moonrail_held);
/* Sends queued messages until the window is full or the rails refuse one. */
void moonrail_stream_flush(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Sends a loose message. reverse: the message may use the reverse path. A
 * failure is ignored, because loose messages may be lost. */
void moonrail_stream_post_loose(struct moonrail_peer *peer,
				enum moonrail_wire_op op, uint16_t flags,
				bool reverse) TEI_REQUIRES(moonrail_held);
/* Sends an ACK: the next number that is expected, and the list of backpressured
 * endpoints. */
void moonrail_stream_ack(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Handles a message from the data plane and frees it. */
void moonrail_stream_in(struct moonrail_domain *d, struct tei_rail_message *m)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_failure.c -------------------------------------------------- */
/* Fails all operations under way with the peer. If err is FI_ETIMEDOUT, the
 * peer can be used again later. */
void moonrail_peer_fail(struct moonrail_peer *peer, int err)
	TEI_REQUIRES(moonrail_held);
/* Fails the operations that wait for an answer of a peer that has failed. */
void moonrail_peer_end_waiting(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_read_back.c ------------------------------------------------ */
/* Returns true if an announced message that has been read now was certainly
 * valid during the read, because its sender cannot have timed out since the
 * announcement. ack: the acknowledged number in the RTS of the message. If the
 * function returns false, a read-back check is needed. */
bool moonrail_peer_waits(const struct moonrail_peer *p, uint64_t ack)
	TEI_REQUIRES(moonrail_held);
/* Sends the read-back check for the message that op has read.
 * op->type->answered is called when the answer arrives. */
void moonrail_peer_ask(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
/* Handle STILL and STILL_IS (moonrail_message_fn). */
bool moonrail_read_back_query(struct moonrail_peer *peer,
			      const struct moonrail_wire *w,
			      const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);
bool moonrail_read_back_answer(struct moonrail_peer *peer,
			       const struct moonrail_wire *w,
			       const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_timer.c, moonrail_resolver.c ------------------------------- */
/* Runs the timer of a peer. Returns the time at which it must run again, or 0
 * if nothing is pending. */
uint64_t moonrail_peer_run(struct moonrail_domain *d,
			   struct tei_rail_peer *rail, uint64_t now)
	TEI_REQUIRES(moonrail_held);
/* Returns true if no message to a peer that still receives is unacknowledged or
 * waiting. */
bool moonrail_peer_flushed(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);
/* Sends the missing acknowledgements to all peers. Returns true if all were
 * sent. */
bool moonrail_peer_confirmed(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);
/* Handles that a resolver has found its process, with incarnation inc. Returns
 * false if this process has left or was dropped in the meantime; the search
 * then continues. */
bool moonrail_peer_found(struct moonrail_peer *peer, uint64_t inc)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_flow.c: backpressured endpoints ---------------------------- */
/* Returns true if op is a message of the application to an endpoint. Other
 * messages never wait for room. */
static inline bool moonrail_flow_counts(uint8_t op)
{
	return op == MOONRAIL_WIRE_DATA || op == MOONRAIL_WIRE_RTS;
}
/* Parks a message if its endpoint is backpressured. Returns false if the
 * endpoint is not backpressured. */
bool moonrail_flow_park(struct moonrail_peer *peer, struct moonrail_out *out)
	TEI_REQUIRES(moonrail_held);
/* Returns the number of messages that a new message to that endpoint of the
 * peer would wait for. */
uint32_t moonrail_flow_waiting(const struct moonrail_peer *peer, uint32_t ep)
	TEI_REQUIRES(moonrail_held);
/* Resets the counts of parked messages, which have been freed. */
void moonrail_flow_dropped(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* moonrail_flow_ack creates an ACK with the list of backpressured endpoints;
 * NULL: no memory. moonrail_flow_heard takes over the list of a received ACK
 * and returns true if it has changed. */
struct moonrail_out *moonrail_flow_ack(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
bool moonrail_flow_heard(struct moonrail_peer *peer,
			 const struct moonrail_wire *w, const uint8_t *payload,
			 uint32_t len) TEI_REQUIRES(moonrail_held);
/* Counts a message that has arrived for a backpressured endpoint. Returns 0 if
 * the endpoint cannot accept the message. Otherwise returns the value for
 * moonrail_flow_left. */
uint64_t moonrail_flow_over(struct moonrail_ep *ep, struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Returns true if the peer is this domain itself and the endpoint accepts no
 * further unexpected messages. */
bool moonrail_flow_refuses(const struct moonrail_peer *peer, uint32_t ep)
	TEI_REQUIRES(moonrail_held);
/* Handles the departure of an unexpected message. over: from
 * moonrail_flow_over, or 0. */
void moonrail_flow_left(struct moonrail_ep *ep, struct moonrail_peer *peer,
			uint64_t over) TEI_REQUIRES(moonrail_held);
/* Notifies the senders if unexpected messages have left the endpoint and it has
 * room again. */
void moonrail_flow_room(struct moonrail_ep *ep) TEI_REQUIRES(moonrail_held);
/* Updates the lists of backpressured endpoints after an endpoint was closed:
 * the oldest endpoint may now be another one. */
void moonrail_flow_closed(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_recv.c: incoming messages of the stream -------------------- */
/* Converts an error number that a peer has sent to a valid FI_E*. */
static inline int moonrail_wire_err(uint64_t err)
{
	return err < FI_ERRNO_MAX ? (int)err : FI_EIO;
}
extern const struct moonrail_op_type moonrail_recv_type;
/* Handle DATA and RTS, FIN, and DONE (moonrail_message_fn). */
bool moonrail_recv_message(struct moonrail_peer *peer,
			   const struct moonrail_wire *w,
			   const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);
bool moonrail_recv_fin(struct moonrail_peer *peer,
		       const struct moonrail_wire *w, const uint8_t *payload,
		       uint32_t len) TEI_REQUIRES(moonrail_held);
bool moonrail_recv_done(struct moonrail_peer *peer,
			const struct moonrail_wire *w, const uint8_t *payload,
			uint32_t len) TEI_REQUIRES(moonrail_held);
/* Posts a receive, or completes it with an unexpected message. Takes ownership
 * of op. */
void moonrail_recv_post(struct moonrail_op *op, bool tagged)
	TEI_REQUIRES(moonrail_held);
/* Matches the unexpected messages of a peer with the receives that were posted
 * for its address before its incarnation was known. */
void moonrail_recv_known(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Handles a receive with FI_PEEK, FI_CLAIM or FI_DISCARD. Returns 0 and takes
 * ownership of op, or returns -FI_EINVAL. */
int moonrail_recv_peek(struct moonrail_op *op, bool tagged, uint64_t flags)
	TEI_REQUIRES(moonrail_held);
/* Frees the posted receives and the unexpected messages of an endpoint. */
void moonrail_recv_free_all(struct moonrail_ep *ep)
	TEI_REQUIRES(moonrail_held);
/* Cancels the posted receive with that context. Returns -FI_ENOENT if there is
 * none. */
int moonrail_recv_cancel(struct moonrail_ep *ep, void *context)
	TEI_REQUIRES(moonrail_held);
extern const struct moonrail_op_type moonrail_send_type;
extern struct fi_ops_msg moonrail_msg_ops;
extern struct fi_ops_tagged moonrail_tagged_ops;

/* --- moonrail_unsupported.c ---------------------------------------------- */
/* Functions for the calls that an object does not support; they return
 * -FI_ENOSYS. */
int moonrail_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int moonrail_no_control(struct fid *fid, int command, void *arg);
int moonrail_no_ops(struct fid *fid, const char *name, uint64_t flags,
		    void **ops, void *context);
extern struct fi_ops_collective moonrail_coll_ops;

/* --- moonrail_atomic.c --------------------------------------------------- */
extern struct fi_ops_atomic moonrail_atomic_ops;
int moonrail_atomic_query(struct fid_domain *domain, enum fi_datatype type,
			  enum fi_op op, struct fi_atomic_attr *attr,
			  uint64_t flags);
/* Handles an ATOMIC. Returns false if memory is short; the peer repeats the
 * message. */
bool moonrail_atomic_in(struct moonrail_peer *peer,
			const struct moonrail_wire *w, const uint8_t *payload,
			uint32_t len) TEI_REQUIRES(moonrail_held);
/* Completes the operation that an ATOMIC_REP answers. Returns true. */
bool moonrail_atomic_answer(struct moonrail_peer *peer,
			    const struct moonrail_wire *w,
			    const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_rma.c, moonrail_move.c ------------------------------------- */
extern struct fi_ops_rma moonrail_rma_ops;
/*
 * Moves bytes between op->iov and n ranges of the peer's memory, up to the
 * shorter of the two. op->type->moved is called when no task is left; if no
 * bytes must be moved, it is called before this function returns.
 */
void moonrail_move(struct moonrail_op *op, const struct moonrail_wire_piece *at,
		   uint32_t n, bool read) TEI_REQUIRES(moonrail_held);
/* Handles the end of a task of an operation. */
void moonrail_task_done(struct moonrail_task *task)
	TEI_REQUIRES(moonrail_held);
/* Handles KEY_IS or KEY_NOT. Returns true. */
bool moonrail_rma_key(struct moonrail_peer *peer, const struct moonrail_wire *w,
		      const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);
/* Drops an unexpected message of this domain itself, whose sending endpoint is
 * being closed. */
void moonrail_recv_void(struct moonrail_peer *peer, uint64_t id)
	TEI_REQUIRES(moonrail_held);
/* Sends the FIN that is pending for the peer, if any. */
void moonrail_recv_tell(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_INT_H */
