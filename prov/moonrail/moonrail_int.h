/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_INT_H
#define TEI_PROV_MOONRAIL_MOONRAIL_INT_H

/*
 * The libfabric provider "moonrail": FI_EP_RDM over all rails of the machine.
 *
 * A domain is one data plane (prov/rail) with an incarnation of its own. Its
 * endpoints are numbers in it. Between two domains runs a stream of messages
 * each way (moonrail_wire.h, moonrail_peer.c), which makes order and
 * exactly-once out of what the data plane's messages lack. Messages for an
 * endpoint that is full wait with their sender (moonrail_flow.c).
 *
 * Two-sided: what fits into one message goes as its payload (DATA); what does
 * not is announced (RTS), read by the receiver as tasks of the data plane,
 * which is where all rails take part, and acknowledged (FIN, several at once
 * where many are under way). So the order of messages is that of the stream,
 * FI_ORDER_SAS, and no other is claimed.
 *
 * One-sided: a write or read is made of tasks of the data plane too. These
 * know addresses and keys of their own, so the key and offset of the
 * application are looked up once per key and peer (KEY, KEY_IS; KEY_NOT when
 * the registration is closed). Remote CQ data follows in the stream when the
 * bytes are in place (DONE), and so does, where the owner of the memory wants
 * to count what is done to it (FI_RMA_EVENT), the bare fact. Registrations may
 * overlap each other, those of the data plane not: moonrail_pin.c has regions
 * that do not overlap and counts who uses each. Local memory need not be
 * registered: where rails want that, moonrail_bounce.c has some that is.
 *
 * Atomics are messages of the stream (ATOMIC, ATOMIC_REP), which the target
 * executes, and so each once.
 *
 * An address is struct moonrail_name: incarnation, endpoint and the fabric
 * address of one rail. The rest of the rails, and the incarnation where only
 * a socket address is known, come with the data plane's hello.
 *
 * Progress is automatic: the data plane's thread does what no caller does.
 * Whoever reads a completion queue drives the lanes himself, and the thread
 * then leaves them to him.
 *
 * Locks: each domain has one lock, which guards all fields of the domain and its
 * objects, except the fields whose comments name another guard. The data plane may
 * call back at any time, also from inside a call of the provider, and a callback
 * never waits for this lock. If the lock is free, the callback takes it. Otherwise
 * the callback puts its event into the domain's inbox, and the thread that holds the
 * lock handles the inbox before it releases the lock. docs/LOCKING.md states the
 * order of the locks.
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

#include "prov/moonrail/moonrail_wire.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

#define MOONRAIL_VERSION	FI_VERSION(0, 1)
#define MOONRAIL_API		FI_VERSION(1, 17)
#define MOONRAIL_IOV		4	/* pieces of one operation */
#define MOONRAIL_INJECT		1024	/* bytes */
#define MOONRAIL_QUEUE		4096	/* operations of an endpoint, and
					 * messages to a peer, that wait; MPI
					 * programs have thousands */
#define MOONRAIL_RECVS	(4 * MOONRAIL_QUEUE) /* receives of an endpoint */
#define MOONRAIL_WINDOW		64	/* messages sent and not acknowledged */
#define MOONRAIL_ACK_EVERY	16	/* messages */
#define MOONRAIL_ENDS		4	/* of messages that are told at once */
#define MOONRAIL_HEAD	(TEI_RAIL_MESSAGE_HEAD + sizeof(struct moonrail_wire))
#define MOONRAIL_EAGER	(TEI_RAIL_MESSAGE_MAX - MOONRAIL_HEAD)
#define MOONRAIL_POLICIES	16	/* pairs of size and policy */
#define MOONRAIL_STRIPES	8	/* rails that one piece is cut for */
#define MOONRAIL_HOLD	(64u << 20)	/* bytes of messages nobody asked for,
					 * per endpoint; then senders wait */
#define MOONRAIL_OVER (2 * MOONRAIL_WINDOW) /* messages of each that are taken
					 * all the same, until it knows */
/* Registration models of before 1.5, whose names 2.0 deprecates. */
#define MOONRAIL_MR_BASIC	1
#define MOONRAIL_MR_SCALABLE	2
#define MOONRAIL_EP_ANY	0u		/* the oldest endpoint of a domain */
#define MOONRAIL_FAMILY	0x6d72		/* of struct moonrail_name */
/* FI_PROV_SPECIFIC, which some headers of 2.x have no longer */
#define MOONRAIL_OWN	(1u << 31)
/* FI_MR_DMABUF, which 1.17 does not have: no memory, but a descriptor of it */
#define MOONRAIL_DMABUF	(UINT64_C(1) << 40)
#define MOONRAIL_FORMAT	(MOONRAIL_OWN | 0x6d6f6f6eu) /* addr_format of it */
/* Protocol of endpoints: programs such as Mercury hold it in an int and refuse what
 * is not positive. libfabric's own numbers are below 100. */
#define MOONRAIL_PROTO	0x6d6f6f6eu	/* 1836019566 */
#define MOONRAIL_PROTO_010 (MOONRAIL_OWN | MOONRAIL_PROTO) /* of release 0.1.0; taken
							    * in hints */
#define MOONRAIL_MESSAGE (UINT64_C(1) << 40)	/* bytes of one operation */
#define MOONRAIL_OBJECTS 65536	/* of a kind, that a domain is made for */

/* Flag of the calls of fi_getinfo that libfabric makes itself: FI_PROVIDER, which
 * may name moonrail alone, does not hide the providers of the rails. */
#define MOONRAIL_INFO_FLAGS (UINT64_C(1) << 60)

/* Message orders that cost nothing, since messages and atomics are executed in the
 * order of their stream; and those that operations wait for (moonrail_order.c),
 * kept only where hints ask for them. */
#define MOONRAIL_ORDER_FREE (FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | \
			     FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | \
			     FI_ORDER_ATOMIC_WAW)
#define MOONRAIL_ORDER_ASKED (FI_ORDER_SAW | FI_ORDER_WAW | FI_ORDER_WAS | \
			      FI_ORDER_RAW | FI_ORDER_RAR | FI_ORDER_RAS | \
			      FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | \
			      FI_ORDER_RMA_WAW)

#define MOONRAIL_TX_FLAGS (FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | \
			   FI_TRANSMIT_COMPLETE | MOONRAIL_DELIVERED)
/* of a call: what it is delivered into is what it was matched with */
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

/* What fi_getname gives, and an address vector takes besides a sockaddr. Plain
 * data, little-endian but for the fabric address. */
struct moonrail_name {
	uint16_t family;		/* MOONRAIL_FAMILY */
	uint8_t version;		/* 1 */
	uint8_t len;			/* bytes of address in use */
	uint32_t ep;
	uint64_t incarnation;		/* 0: not known, as with a sockaddr */
	uint32_t protocol, protocol_version, format;
	uint8_t address[36];
};
_Static_assert(sizeof(struct moonrail_name) == 64, "name");

struct moonrail_block;
struct moonrail_bounces;
struct moonrail_domain;
struct moonrail_ep;
struct moonrail_op;
struct moonrail_peer;

/* How rails share operations of a size. */
enum moonrail_policy_kind {
	MOONRAIL_ADAPTIVE,		/* rails take what they can */
	MOONRAIL_FIXED,			/* an endpoint has its rail */
	MOONRAIL_ROUND_ROBIN,		/* each operation the next one */
	MOONRAIL_STRIPING,		/* each rail an equal part */
};

struct moonrail_policy {
	uint64_t max;			/* bytes; this many and less */
	enum moonrail_policy_kind kind;
};

struct moonrail_policies {
	struct moonrail_policy of[MOONRAIL_POLICIES]; /* max ascends */
	uint32_t n;
};

struct moonrail_fabric {
	struct fid_fabric fid;
	uint32_t refs;			/* atomic: domains and event queues; who
					 * frees it sees what the last did */
};

/* Part of a queue, whose lock guards it. */
struct moonrail_wait {
	enum fi_wait_obj kind;		/* fixed */
	int fd;				/* FI_WAIT_FD, or -1; fixed */
	bool signaled;			/* fd is readable */
};

/* An event queue. Entries come from fi_eq_write and address vectors. */
struct moonrail_eq {
	struct fid_eq fid;
	struct moonrail_fabric *fabric;
	uint32_t refs;			/* atomic, likewise: address vectors,
					 * endpoints */
	struct tei_mutex lock;
	pthread_cond_t cond;
	struct tei_list events;		/* lock */
	struct moonrail_wait wait;	/* lock */
};

/* Something for whoever has the domain's lock. Owned by the inbox. */
struct moonrail_task {
	struct tei_rail_task task;
	struct tei_list link;		/* domain->inbox_tasks */
	struct moonrail_op *op;
	enum tei_rail_end end;
};

#define MOONRAIL_HASH	256u

/* That of a key or an incarnation. */
static inline struct tei_list *moonrail_bucket(struct tei_list *hash,
					       uint64_t key)
{
	return &hash[(key ^ key >> 32) % MOONRAIL_HASH];
}

/*
 * Made by fi_domain, freed by fi_close.
 */
struct moonrail_domain {
	/* fixed */
	struct fid_domain fid;
	struct moonrail_fabric *fabric;
	struct tei_settings settings;
	struct moonrail_policies policies;
	struct tei_rail_dp *dp;
	uint64_t incarnation;
	bool virt_addr, prov_key;	/* of its registrations */
	uint32_t format;		/* of addresses */
	struct moonrail_name source;	/* len 0: any rail's */
	struct moonrail_bounces *bounces; /* NULL: no rail pins memory */
	bool bounces_local;		/* what is moved has to be registered */
	bool closing;			/* its thread has ended */

	struct tei_mutex lock;		/* guards what follows */
	bool counts;			/* what peers do to its memory */
	struct tei_list peers;		/* moonrail_peer.link */
	struct tei_list idle;		/* of those, that may have to be freed:
					 * .idle_link */
	struct tei_list known[MOONRAIL_HASH]; /* of those, that have an
					 * incarnation: .hash_link */
	struct tei_list eps;		/* moonrail_ep.link */
	struct tei_list cntrs;		/* moonrail_cntr.link */
	struct tei_list mrs[MOONRAIL_HASH]; /* by key; moonrail_mr.link */
	struct tei_list keys[MOONRAIL_HASH]; /* of peers, by peer and key */
	struct moonrail_pin **pins;	/* sorted by address */
	uint32_t npins, pins_cap;
	uint32_t ngoing;		/* are off pins and still registered */
	uint64_t pin_clock;
	uint64_t next_id;
	uint32_t next_ep;
	uint32_t turn;			/* of the rails */

	struct tei_mutex inbox;		/* guards what follows */
	struct tei_list inbox_messages;	/* tei_rail_message.link */
	struct tei_list inbox_tasks;	/* moonrail_task.link */
	pthread_cond_t cond;		/* something has completed */
	uint32_t sleepers;		/* who wait for that; atomic */

	/* atomic */
	uint32_t refs;			/* objects opened on it */
	uint32_t ninbox;
	uint64_t events;		/* things completed */
};

/* domain->lock for clang's analysis. Named in annotations only. */
extern struct tei_mutex moonrail_held;

/* --- completions --------------------------------------------------------- */

struct moonrail_entry {
	void *context, *buf;
	uint64_t flags, data, tag;
	size_t len, olen;
	fi_addr_t src;
	int err;
	uint64_t cntr, nth;		/* its counter's, and which of those that
					 * failed there; else 0 */
};

/* Made by fi_cq_open, freed by fi_close. Everything under domain->lock. */
struct moonrail_cq {
	struct fid_cq fid;
	struct moonrail_domain *domain;
	enum fi_cq_format format;
	struct moonrail_wait wait;
	bool woken;			/* fi_cq_signal */
	uint32_t refs;			/* endpoints and poll sets */
	struct moonrail_entry *ring;	/* grows; errors are among them */
	uint32_t head, cap;
	uint32_t n;			/* read at any time */
	uint32_t empty;			/* looks in a row that found nothing; atomic */
	bool dozes;			/* somebody sleeps on the descriptor, or is
					 * about to: the data plane was told; atomic */
};

/* Made by fi_cntr_open, freed by fi_close. */
struct moonrail_cntr {
	/* fixed */
	struct fid_cntr fid;
	struct moonrail_domain *domain;
	uint64_t id;
	/* read at any time, changed under domain->lock */
	uint64_t value, errors;
	/* domain->lock */
	struct tei_list link;		/* domain->cntrs */
	uint64_t told;			/* errors that somebody knows of */
	uint64_t failed, past;		/* errors that were counted here, ever;
					 * by the last call that told of all */
	uint32_t refs;			/* who count by it, poll sets */
};

/* --- addresses ----------------------------------------------------------- */

struct moonrail_av_entry {
	struct tei_list link;		/* peer->entries */
	struct moonrail_av *av;
	struct moonrail_peer *peer;	/* NULL: removed */
	uint32_t index, ep;
	struct moonrail_name name;	/* as inserted */
	bool socket;			/* it was a sockaddr */
	bool refused;			/* the endpoint is there no more */
	int err;			/* FI_E* of the search for it: of each
					 * operation, until it is inserted anew */
};

#define MOONRAIL_FOUND	64u

/* Where a peer's endpoint was found. */
struct moonrail_av_found {
	const struct moonrail_peer *peer; /* never dereferenced; NULL: unused */
	uint32_t ep;
	uint64_t changes;		/* of the address vector until then */
	fi_addr_t at;			/* or FI_ADDR_NOTAVAIL */
};

struct moonrail_av {
	struct fid_av fid;
	struct moonrail_domain *domain;
	struct moonrail_av_entry **entry;
	uint32_t n, cap, refs;
	uint32_t vacant;		/* no entry before that one is free */
	uint32_t named;			/* entries that say which endpoint */
	uint64_t changes;		/* of its entries */
	struct moonrail_av_found found[MOONRAIL_FOUND]; /* by peer and ep */
	uint64_t flags;
	struct moonrail_eq *eq;
};

/* --- memory -------------------------------------------------------------- */

struct moonrail_mr {
	struct fid_mr fid;
	struct moonrail_domain *domain;
	struct tei_list link;
	char *addr;
	uint64_t len, key, access, told;
	struct moonrail_cntr *cntr[2];	/* remote reads, writes */
};

/* A registration of the data plane's. Never overlaps another. */
struct moonrail_pin {
	struct tei_list link;		/* of what is about to be let go */
	char *addr;
	uint64_t len, used;
	uint32_t refs;
	uint32_t mrs;			/* of those, the application's
					 * registrations */
	bool coming;			/* is being registered */
	bool old;			/* some of it is nobody's any more, and may be
					 * unmapped: on rails that pin memory */
};

/* A key of a peer's. */
struct moonrail_key {
	struct tei_list link;		/* peer->keys */
	struct tei_list hash_link;	/* domain->keys */
	struct moonrail_peer *peer;
	uint64_t key, base, len;
	uint32_t access;		/* FI_REMOTE_… */
	bool known;			/* it was answered */
	bool virt_addr;
	bool events;			/* its owner counts */
};

/* --- operations ---------------------------------------------------------- */

enum moonrail_kind {
	MOONRAIL_RECV,
	MOONRAIL_SEND,
	MOONRAIL_RMA,
	MOONRAIL_ATOMIC,		/* iov: results; in peer->waiting */
};

/* What message orders distinguish. Receives have none. */
enum moonrail_class {
	MOONRAIL_CLASS_SEND,
	MOONRAIL_CLASS_READ,
	MOONRAIL_CLASS_WRITE,
	MOONRAIL_CLASS_ATOMIC,
	MOONRAIL_CLASSES,
};

/*
 * One operation of the application that is under way. Made by its call; freed
 * when it completes.
 */
struct moonrail_op {
	struct tei_list link;		/* ep->recvs[], peer->waiting or
					 * peer->rma, or alone */
	enum moonrail_kind kind;
	struct moonrail_ep *ep;
	struct moonrail_peer *peer;
	void *context;
	uint64_t flags;			/* of its completion */
	bool quiet;			/* no completion if it succeeds */
	int err;			/* FI_E* */
	uint32_t niov, nrma;
	struct iovec iov[MOONRAIL_IOV];
	uint64_t total;			/* bytes of iov */
	uint64_t id;
	void *copy;			/* of injected bytes, or packed ones */
	struct moonrail_block *block;	/* that its bytes take their way through,
					 * or NULL */
	uint32_t left;			/* tasks under way */
	bool lost;			/* one of them failed */
	bool heard;			/* the peer has no more use for its bytes */
	struct moonrail_task *tasks;
	/* receive */
	struct moonrail_peer *from;	/* NULL: from anyone */
	uint32_t from_ep;		/* of its endpoints */
	struct moonrail_op *multi;	/* the multi-receive it is part of */
	uint32_t parts;			/* multi-receive: those under way */
	uint64_t tag, ignore, data, got, cut;
	uint64_t rts_ack;		/* of what it reads */
	uint32_t src_ep;
	bool peek;			/* is not counted */
	/* send */
	uint32_t npin;			/* pieces pinned */
	/* remote memory access */
	struct fi_rma_iov rma[MOONRAIL_IOV];
	bool write, has_data, event;
	bool certain;			/* ends when DONE is with the peer */
};

/* A message that nobody asked for yet. Owned by its endpoint. */
struct moonrail_surplus {
	struct tei_list link;
	struct moonrail_peer *peer;
	struct moonrail_wire wire;
	uint64_t over;			/* moonrail_flow_over's, or 0 */
	uint32_t len;
	uint8_t bytes[];
};

/* What an endpoint counts. */
enum moonrail_cntr_of {
	MOONRAIL_CNTR_SEND,
	MOONRAIL_CNTR_RECV,
	MOONRAIL_CNTR_READ,
	MOONRAIL_CNTR_WRITE,
	MOONRAIL_CNTR_REMOTE_READ,
	MOONRAIL_CNTR_REMOTE_WRITE,
	MOONRAIL_CNTRS,
};

/* Made by fi_endpoint, freed by fi_close. Everything under domain->lock. */
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
	uint64_t order;			/* orders of MOONRAIL_ORDER_ASKED that the
					 * hints asked for; fixed */
	bool enabled, closing;
	size_t min_multi;
	uint32_t ntx, nrx;		/* operations under way */
	uint32_t busy;			/* those of them that have tasks */
	struct tei_list recvs[2];	/* posted: messages, tagged */
	struct tei_list surplus[2];	/* come */
	struct tei_list claimed;	/* moonrail_surplus */
	uint64_t held;			/* bytes of surplus */
	uint32_t stops;			/* peers that are told it is full */
};

/* A message of the stream, kept until it is acknowledged. */
struct moonrail_out {
	struct tei_list link;		/* peer->queue, then peer->sent */
	struct moonrail_op *op;		/* completes then, or NULL */
	enum moonrail_policy_kind policy;
	uint32_t len;
	struct moonrail_wire wire;
	uint8_t buf[];			/* head, wire, payload */
};

/* What came before its turn. */
struct moonrail_early {
	struct tei_list link;		/* peer->early, in order */
	struct tei_rail_message *message;
	uint64_t seq;
};

/* One that is full: an endpoint of the peer's, or one here that the peer knows
 * to be. */
struct moonrail_full {
	uint32_t ep;
	uint32_t n;			/* messages for it that wait here, or
					 * that are held although it is */
	uint64_t since;			/* stop_change then, if it is here */
};

/*
 * Another domain, or this one. Made when it is first heard of, freed by
 * moonrail_leave when nobody refers to it and it has gone, or nothing was ever
 * exchanged with it; the rest with the domain. Everything under domain->lock.
 */
struct moonrail_peer {
	struct tei_list link;
	struct tei_list hash_link;	/* alone without an incarnation */
	struct tei_list idle_link;
	uint32_t uses;			/* addresses, operations, messages that
					 * nobody asked for, peers that turned
					 * out to be this one */
	struct moonrail_domain *domain;
	struct tei_rail_peer *rail;	/* a reference; NULL: self */
	uint64_t incarnation;		/* 0: still looked for */
	struct moonrail_peer *same;	/* it turned out to be that one */
	int err;			/* FI_E*: of each operation with it */
	bool resumes;			/* err was a time-out: the streams are
					 * kept, operations may follow */
	bool silent;			/* nothing was heard since that */
	/* out */
	uint64_t next_seq;		/* 1 at first */
	uint64_t acked;			/* all below are with the peer */
	uint64_t posted_seq;		/* of the last that an operation of ours
					 * has sent, or 0 */
	uint64_t asked_seq;		/* posted_seq when a fence last asked
					 * whether that is with it */
	uint64_t key_seq;		/* of the last word that is waited
					 * for about a key, or 0 */
	uint32_t ntx;			/* operations to it under way */
	uint32_t under[MOONRAIL_CLASSES]; /* the same by class */
	enum moonrail_class turn_class;	/* class of the operation that was refused
					 * last to keep an order; it is next */
	uint64_t turn_ns;		/* time until which other classes are
					 * refused, CLOCK_MONOTONIC; 0: none */
	struct tei_list entries;	/* of address vectors that mean it */
	struct tei_list queue, sent;	/* moonrail_out */
	uint32_t nqueue, nsent;
	struct tei_list parked;		/* moonrail_out without a number: those
					 * for endpoints that are full */
	uint32_t nparked, nfull;
	struct moonrail_full *full;	/* endpoints of the peer's */
	uint64_t full_change;		/* of these, as it counts them */
	uint32_t prefer;
	uint64_t since_ns;		/* first sign missed, 0: none */
	uint64_t gone_ns;		/* it took leave: its last words until */
	uint64_t ping_ns, ping_wait_ns;
	uint64_t ping_seq;		/* sent before the ping */
	uint64_t look_acked, look_seq;	/* acked, next_seq at the last look */
	uint64_t mark_seq, mark_ns;	/* one that was posted after that time,
					 * to see when it is with the peer; 0:
					 * none */
	uint64_t heard_us_ns;		/* what was posted after that time is
					 * with the peer */
	uint64_t sure_seq;		/* since it has that one it has heard of
					 * us all the time */
	uint64_t unsure_ns;		/* it has failed, and may still read what
					 * waits: until then. 0: not */
	struct tei_list waiting;	/* ops: a FIN is awaited */
	struct tei_list rma;		/* ops: a key is awaited */
	struct tei_list keys;
	/* in */
	uint64_t expected;
	struct tei_list early;
	uint32_t nearly;
	uint32_t unacked;
	uint32_t nstopped;
	struct moonrail_full *stopped;	/* endpoints here */
	uint64_t stop_change;		/* of these, 0: none ever */
	uint32_t reading;		/* announced messages, brief ones */
	struct tei_list unsure;		/* ops: receives whose message has been
					 * read; does it still wait? */
	uint32_t nends;			/* have been read and not told */
	struct moonrail_wire_end ends[MOONRAIL_ENDS];
};

/* --- moonrail_domain.c: the lock and the inbox --------------------------- */
int moonrail_domain_open(struct fid_fabric *fabric, struct fi_info *info,
			 struct fid_domain **domain, void *context);
/* Returns true if a domain of that info would first try RDMA devices as rails:
 * libfabric offers at least one that the settings and the info allow. */
bool moonrail_domain_rdma(const struct tei_settings *s,
			  const struct fi_info *info);
void moonrail_enter(struct moonrail_domain *d) TEI_ACQUIRE(moonrail_held);
/* Empties the inbox first. */
void moonrail_leave(struct moonrail_domain *d) TEI_RELEASE(moonrail_held);
void moonrail_drain(struct moonrail_domain *d) TEI_REQUIRES(moonrail_held);
/*
 * An object was opened on it, or closed. Who closes the domain frees it once the
 * last one is, and moonrail_leave looks at it after the unlock: an object lets
 * go of it after that, and touches it no more.
 */
static inline void moonrail_domain_ref(struct moonrail_domain *d)
{
	__atomic_fetch_add(&d->refs, 1, __ATOMIC_RELAXED);
}

static inline void moonrail_domain_unref(struct moonrail_domain *d)
{
	__atomic_fetch_sub(&d->refs, 1, __ATOMIC_RELEASE);
}

/* Something has completed. */
void moonrail_notify(struct moonrail_domain *d);
/* Sleeps until something has completed since events was seen, up to ns, while
 * the data plane's thread does the work. No lock held. */
void moonrail_sleep(struct moonrail_domain *d, uint64_t seen, uint64_t ns);
static inline uint64_t moonrail_events(const struct moonrail_domain *d)
{
	return __atomic_load_n(&d->events, __ATOMIC_SEQ_CST);
}
/* Drives the lanes; no lock held. */
void moonrail_progress(struct moonrail_domain *d);

/* --- moonrail_attr.c, moonrail_init.c ------------------------------------ */
extern struct fi_provider moonrail_provider;
int moonrail_getinfo(uint32_t version, const char *node, const char *service,
		     uint64_t flags, const struct fi_info *hints,
		     struct fi_info **info);
/* One entry, or -FI_ENODATA where the hints cannot be met. */
int moonrail_attr_info(uint32_t version, const struct fi_info *hints,
		       struct fi_info **info);
/* Returns true if a domain's name is not moonrail's but that of the only rail that
 * the domain is to have. */
static inline bool moonrail_domain_device(const char *name)
{
	return name && strcmp(name, "moonrail");
}
/* Rails named by the environment, as a list of devices in out; or NULL. */
const char *moonrail_devices(char *out, size_t cap);

/* --- moonrail_policy.c --------------------------------------------------- */
/* What the environment says; -FI_EINVAL where that makes no sense. */
int moonrail_policies(struct moonrail_policies *policies);
enum moonrail_policy_kind moonrail_policy(const struct moonrail_domain *d,
					  uint64_t size);
/* The rail that an endpoint's next whole operation to a peer goes by: 1 + its
 * index, or 0: any. */
uint32_t moonrail_policy_rail(struct moonrail_peer *peer, uint32_t ep,
			      enum moonrail_policy_kind kind)
	TEI_REQUIRES(moonrail_held);
/* The rails that get an equal part each of so many bytes; how many. */
uint32_t moonrail_policy_parts(struct moonrail_peer *peer, uint64_t len,
			       uint8_t rails[TEI_RAIL_MAX])
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_fabric.c --------------------------------------------------- */
int moonrail_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fid,
			 void *context);
int moonrail_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
		     struct fid_eq **eq, void *context);
void moonrail_eq_add_error(struct moonrail_eq *eq,
			   const struct fi_eq_err_entry *error);
int moonrail_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags);
int moonrail_no_control(struct fid *fid, int command, void *arg);
int moonrail_no_ops(struct fid *fid, const char *name, uint64_t flags,
		    void **ops, void *context);

/* --- moonrail_wait.c ----------------------------------------------------- */
/* -FI_ENOSYS: there is no such object to wait with. */
int moonrail_wait_open(enum fi_wait_obj kind, struct moonrail_wait *w);
void moonrail_wait_close(struct moonrail_wait *w);
/* Something is there to read. */
void moonrail_wait_signal(struct moonrail_wait *w);
/* Nothing is, and somebody is about to sleep until there is. */
void moonrail_wait_calm(struct moonrail_wait *w);
/* FI_GETWAIT and FI_GETWAITOBJ. */
int moonrail_wait_control(const struct moonrail_wait *w, int command,
			  void *arg);

/* --- moonrail_cq.c, moonrail_cntr.c -------------------------------------- */
int moonrail_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
		     struct fid_cq **cq, void *context);
int moonrail_cq_trywait(struct moonrail_cq *cq);
void moonrail_cq_add(struct moonrail_cq *cq, const struct moonrail_entry *e)
	TEI_REQUIRES(moonrail_held);
int moonrail_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		       struct fid_cntr **cntr, void *context);
void moonrail_cntr_add(struct moonrail_cntr *cntr, bool good)
	TEI_REQUIRES(moonrail_held);
/* The program has read the nth that failed there, if it is still open. */
void moonrail_cntr_told(struct moonrail_domain *d, uint64_t id, uint64_t nth)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_poll.c ----------------------------------------------------- */
int moonrail_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		       struct fid_poll **set);

/* --- moonrail_av.c, moonrail_node.c -------------------------------------- */
int moonrail_av_insertsvc(struct fid_av *av, const char *node,
			  const char *service, fi_addr_t *addr, uint64_t flags,
			  void *context);
int moonrail_av_insertsym(struct fid_av *av, const char *node, size_t nodes,
			  const char *service, size_t services, fi_addr_t *addr,
			  uint64_t flags, void *context);
int moonrail_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
		     struct fid_av **av, void *context);
/* NULL: no such address. */
struct moonrail_av_entry *moonrail_av_get(struct moonrail_av *av, fi_addr_t a)
	TEI_REQUIRES(moonrail_held);
/* FI_E* that each operation with it ends with, or 0. */
static inline int moonrail_av_err(const struct moonrail_av_entry *e)
{
	return e->peer->err ? e->peer->err : e->err;
}
/* What stood for the one stands for the other. */
void moonrail_av_merge(struct moonrail_peer *from, struct moonrail_peer *to)
	TEI_REQUIRES(moonrail_held);
/* That endpoint is there no more. */
void moonrail_av_refused(struct moonrail_peer *peer, uint32_t ep)
	TEI_REQUIRES(moonrail_held);
/* The address of a peer's endpoint, or FI_ADDR_NOTAVAIL. av: NULL, before one
 * is bound. */
fi_addr_t moonrail_av_find(struct moonrail_av *av, struct moonrail_peer *peer,
			   uint32_t ep) TEI_REQUIRES(moonrail_held);
/* Whether that endpoint of a peer's is the one that an address of his stands
 * for, of which named is known. */
bool moonrail_av_is(struct moonrail_av *av, struct moonrail_peer *peer,
		    uint32_t named, uint32_t ep) TEI_REQUIRES(moonrail_held);
/* A sockaddr, or a name, as a name. False: neither. */
bool moonrail_name_from(const void *addr, size_t len, struct moonrail_name *n);
/* AF_INET or AF_INET6 of what moonrail_name_from has made, AF_UNSPEC where the
 * fabric's addresses are no sockets'. */
sa_family_t moonrail_name_family(const struct moonrail_name *n);
/* Whether a rail has that socket's address; port: and listens at its port. */
bool moonrail_name_ours(struct moonrail_domain *d,
			const struct moonrail_name *n, bool port);
/* Address of an endpoint of this domain: that of its source, or of any rail. */
int moonrail_name_of(struct moonrail_domain *d, uint32_t ep,
		     struct moonrail_name *n);
size_t moonrail_sockaddr_len(const void *addr);

/* --- moonrail_pin.c, moonrail_mr.c --------------------------------------- */
extern struct fi_ops_mr moonrail_mr_ops;
/* Has the data plane know that memory. 0 or -FI_E*; -FI_EAGAIN: some of it is
 * about to be let go, or being registered; -FI_EBUSY: some of it is in a region
 * that an earlier registration left, of which another, that is open, has a part.
 * A call of the application, since it may wait for the data plane's thread. mr:
 * for a registration of the application's; the lock is let go of meanwhile. */
int moonrail_pin(struct moonrail_domain *d, const void *addr, uint64_t len,
		 bool mr) TEI_REQUIRES(moonrail_held);
/* One that is in the table no more is about to be unpinned. */
void moonrail_pin_closed(struct moonrail_domain *d, const void *addr,
			 uint64_t len) TEI_REQUIRES(moonrail_held);
/* gone: gets what nobody uses any more, for moonrail_pin_drop; NULL: that is
 * kept, since it is likely to be wanted again, unless rails pin memory. */
void moonrail_unpin(struct moonrail_domain *d, const void *addr, uint64_t len,
		    struct tei_list *gone) TEI_REQUIRES(moonrail_held);
/* These wait for peers, one of which may be stopped: calls of the application
 * make them, without the lock. No peer can touch that memory afterwards. */
void moonrail_pin_drop(struct moonrail_domain *d, struct tei_list *gone);
/* Lets something go where too much is kept. */
void moonrail_pin_trim(struct moonrail_domain *d);
void moonrail_pin_free_all(struct moonrail_domain *d);
/* Whether all of it is one region that may be used as it is. */
bool moonrail_pinned(const struct moonrail_domain *d, const void *addr,
		     uint64_t len) TEI_REQUIRES(moonrail_held);
struct moonrail_mr *moonrail_mr_find(struct moonrail_domain *d, uint64_t key)
	TEI_REQUIRES(moonrail_held);
/* Answers who asked what is registered as that key. */
void moonrail_mr_tell(struct moonrail_peer *peer, uint64_t key)
	TEI_REQUIRES(moonrail_held);
/* Peers say from now on what they have done to memory of this domain. May wait
 * for them, so a call of the application. */
void moonrail_mr_want_events(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);
/*
 * Counts one operation that a peer has done to the memory of n keys through an
 * endpoint. reads: the operation has returned bytes of it; writes: it has changed
 * bytes of it; a fetching atomic does both. As fi_endpoint(3) and fi_mr(3) say,
 * the endpoint counts such an operation as a read only, and a registration's
 * counter of writes counts whatever changes the registration.
 */
void moonrail_mr_count(struct moonrail_domain *d, const struct moonrail_ep *ep,
		       const uint64_t *keys, uint32_t n, bool reads, bool writes)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_bounce.c --------------------------------------------------- */
/* After the rails were opened. 0 or -FI_ENOMEM. */
int moonrail_bounce_open(struct moonrail_domain *d);
/* Before the data plane is closed, and after. */
void moonrail_bounce_stop(struct moonrail_domain *d);
void moonrail_bounce_free(struct moonrail_domain *d);
/* A call of the application's sends iov, for the peer to read. 0: as it is; 1: it
 * is to read *out; or -FI_ENOMEM. */
int moonrail_bounce_send(struct moonrail_op *op, const struct iovec *iov,
			 size_t niov, struct iovec *out)
	TEI_REQUIRES(moonrail_held);
/*
 * What moonrail_move was called with is about to be moved. 0: from or to *out,
 * or, where that has no base, op->iov; 1: moonrail_move is called again; or
 * -FI_ENOMEM.
 */
int moonrail_bounce_move(struct moonrail_op *op,
			 const struct moonrail_wire_piece *at, uint32_t n,
			 bool read, struct iovec *out)
	TEI_REQUIRES(moonrail_held);
/* All of it was read into op->block: gives it to op->iov. */
void moonrail_bounce_read(const struct moonrail_op *op);
/* Nobody here uses it any more, nor a peer where it is clean. */
void moonrail_bounce_put(struct moonrail_domain *d,
			 struct moonrail_block *block, bool clean)
	TEI_REQUIRES(moonrail_held);
/* Takes what nobody uses any more, for moonrail_pin_drop. */
void moonrail_bounce_spent(struct moonrail_domain *d, struct tei_list *pins)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_ep.c, moonrail_order.c ------------------------------------------------------- */
/* Whether it is more than one operation moves, also where the sum wraps. */
bool moonrail_iov_too_long(const struct iovec *iov, size_t n);
int moonrail_ep_open(struct fid_domain *domain, struct fi_info *info,
		     struct fid_ep **ep, void *context);
struct moonrail_ep *moonrail_ep_find(struct moonrail_domain *d, uint32_t id)
	TEI_REQUIRES(moonrail_held);
/* Returns 0 if the endpoint takes operations of that direction, -FI_EOPBADSTATE
 * before it is enabled, or -FI_ENOCQ if neither a completion queue nor a counter is
 * bound that would report them. */
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
/* It is under way to op->peer, or is not after all. */
void moonrail_op_begin(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
void moonrail_op_undo(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
/* Whether all messages of our operations are with it; if not, it is asked to say
 * so soon. */
bool moonrail_peer_settled(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Whether it has to wait for what is under way already. */
static inline bool moonrail_fenced(struct moonrail_peer *peer, uint64_t flags)
	TEI_REQUIRES(moonrail_held)
{
	return flags & FI_FENCE && (peer->ntx || !moonrail_peer_settled(peer));
}
/* Returns true if an operation of that class has to be refused for now, since it
 * might overtake one under way against the orders of the endpoint. */
bool moonrail_order_waits(const struct moonrail_ep *ep,
			  struct moonrail_peer *peer, enum moonrail_class class)
	TEI_REQUIRES(moonrail_held);
/* The operation is over: tells the application, and frees it. */
void moonrail_op_done(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
struct moonrail_op *moonrail_op_new(struct moonrail_ep *ep,
				    enum moonrail_kind kind, void *context);
/* One to that peer, which an application's call began with those flags;
 * silent: an inject. */
struct moonrail_op *moonrail_op_to(struct moonrail_ep *ep,
				   enum moonrail_kind kind,
				   struct moonrail_peer *peer, void *context,
				   uint64_t flags, bool silent)
	TEI_REQUIRES(moonrail_held);
/* It is one with that peer from now on. */
void moonrail_op_with(struct moonrail_op *op, struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
void moonrail_op_free(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);

/* --- moonrail_peer.c: peers and their streams ---------------------------- */
/* The one of that name, made when new; NULL: no memory, or no rail fits. */
struct moonrail_peer *moonrail_peer_get(struct moonrail_domain *d,
					const struct moonrail_name *name)
	TEI_REQUIRES(moonrail_held);
/* Somebody refers to it, or does no more. It stays until moonrail_leave. */
void moonrail_peer_use(struct moonrail_peer *peer) TEI_REQUIRES(moonrail_held);
void moonrail_peer_unuse(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Frees those that nobody needs any more. */
void moonrail_peer_sweep(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);
/* What it is now. */
struct moonrail_peer *moonrail_peer_real(struct moonrail_peer *peer);
/* A message of the stream with room for len bytes of payload; its wire, but
 * for version, seq and ack, is the caller's to fill in. */
struct moonrail_out *moonrail_out_new(enum moonrail_wire_op op, uint32_t len);
static inline uint8_t *moonrail_out_payload(struct moonrail_out *o)
{
	return o->buf + MOONRAIL_HEAD;
}
/* Whether it takes what is sent to it, as far as is known. */
static inline bool moonrail_peer_hears(const struct moonrail_peer *peer)
{
	return !peer->err || (peer->resumes && !peer->silent);
}
/* At the end of what is to be sent, with the next number. */
void moonrail_stream_queue(struct moonrail_peer *peer, struct moonrail_out *out)
	TEI_REQUIRES(moonrail_held);
/* A message of the peer that was read by now, and announced when it waited for
 * number ack, was good while it was read, as its sender cannot have given it up;
 * false: it is to be asked. */
bool moonrail_peer_waits(const struct moonrail_peer *p, uint64_t ack)
	TEI_REQUIRES(moonrail_held);
/* Asks the sender of the message that op has read; moonrail_recv_sure follows. */
void moonrail_peer_ask(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
/* Says what is waited for, and which endpoints are full. */
void moonrail_peer_tell(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Takes it, and sends what the window allows. 0; or -FI_EAGAIN: this domain
 * itself has no room for it, and its operation is as it was. */
int moonrail_stream_send(struct moonrail_peer *peer, struct moonrail_out *out)
	TEI_REQUIRES(moonrail_held);
void moonrail_stream_in(struct moonrail_domain *d, struct tei_rail_message *m)
	TEI_REQUIRES(moonrail_held);
/* Its state machine runs within a few ms. */
void moonrail_peer_soon(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Nothing comes of what is under way with it; after a time-out it may be used
 * again once no address vector has had it. */
void moonrail_peer_fail(struct moonrail_peer *peer, int err)
	TEI_REQUIRES(moonrail_held);
/* Its state machine; returns when to come again, 0: never. */
uint64_t moonrail_peer_run(struct moonrail_domain *d,
			   struct tei_rail_peer *rail, uint64_t now)
	TEI_REQUIRES(moonrail_held);
/* Whether all is with the peers, or never will be. */
bool moonrail_peer_flushed(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);
/* Tells the peers what was taken of them; whether all could be told. */
bool moonrail_peer_confirmed(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);
void moonrail_peer_free_all(struct moonrail_domain *d);

/* --- moonrail_flow.c: endpoints that are full ----------------------------- */
/* A message of the application's to an endpoint; others never wait for room. */
static inline bool moonrail_flow_counts(uint8_t op)
{
	return op == MOONRAIL_WIRE_DATA || op == MOONRAIL_WIRE_RTS;
}
/* Takes one that is for an endpoint of the peer's that is full. */
bool moonrail_flow_park(struct moonrail_peer *peer, struct moonrail_out *out)
	TEI_REQUIRES(moonrail_held);
/* How many wait that a message to that endpoint of the peer's would wait for. */
uint32_t moonrail_flow_waiting(const struct moonrail_peer *peer, uint32_t ep)
	TEI_REQUIRES(moonrail_held);
/* None waits there any more. */
void moonrail_flow_dropped(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* What an ACK has of it, and what that does; whether anything has changed. */
struct moonrail_out *moonrail_flow_ack(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
bool moonrail_flow_heard(struct moonrail_peer *peer,
			 const struct moonrail_wire *w, const uint8_t *payload,
			 uint32_t len) TEI_REQUIRES(moonrail_held);
/* A message has come for an endpoint of ours that is full; 0: it cannot be
 * taken, else what tells of it when it has left. */
uint64_t moonrail_flow_over(struct moonrail_ep *ep, struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Whether this is that domain itself, and takes nothing for that endpoint that is
 * not asked for yet. */
bool moonrail_flow_refuses(const struct moonrail_peer *peer, uint32_t ep)
	TEI_REQUIRES(moonrail_held);
void moonrail_flow_left(struct moonrail_ep *ep, struct moonrail_peer *peer,
			uint64_t over) TEI_REQUIRES(moonrail_held);
/* Some have left it. */
void moonrail_flow_room(struct moonrail_ep *ep) TEI_REQUIRES(moonrail_held);
/* Another endpoint may be the oldest now. */
void moonrail_flow_closed(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_recv.c: what the stream brings ----------------------------- */
/* FI_E* as a peer has said it, who may say anything. */
static inline int moonrail_wire_err(uint64_t err)
{
	return err < FI_ERRNO_MAX ? (int)err : FI_EIO;
}
/* False: there is no room for it just now, it is to come again. */
bool moonrail_deliver(struct moonrail_peer *peer, const struct moonrail_wire *w,
		      const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);
/* Posts a receive, or gives it what has come. Takes op. */
void moonrail_recv_post(struct moonrail_op *op, bool tagged)
	TEI_REQUIRES(moonrail_held);
/* Receives that were posted for somebody who was still looked for are his: gives
 * them what has come from him meanwhile. */
void moonrail_recv_known(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* With FI_PEEK, FI_CLAIM or FI_DISCARD. 0: takes op; or -FI_E*. */
int moonrail_recv_peek(struct moonrail_op *op, bool tagged, uint64_t flags)
	TEI_REQUIRES(moonrail_held);
void moonrail_recv_free_all(struct moonrail_ep *ep)
	TEI_REQUIRES(moonrail_held);
int moonrail_recv_cancel(struct moonrail_ep *ep, void *context)
	TEI_REQUIRES(moonrail_held);
extern struct fi_ops_msg moonrail_msg_ops;
extern struct fi_ops_tagged moonrail_tagged_ops;

/* --- moonrail_coll.c ------------------------------------------------------ */
extern struct fi_ops_collective moonrail_coll_ops;

/* --- moonrail_atomic.c --------------------------------------------------- */
extern struct fi_ops_atomic moonrail_atomic_ops;
int moonrail_atomic_query(struct fid_domain *domain, enum fi_datatype type,
			  enum fi_op op, struct fi_atomic_attr *attr,
			  uint64_t flags);
/* A request; false: no memory, it is to come again. */
bool moonrail_atomic_in(struct moonrail_peer *peer,
			const struct moonrail_wire *w, const uint8_t *payload,
			uint32_t len) TEI_REQUIRES(moonrail_held);
void moonrail_atomic_answer(struct moonrail_peer *peer,
			    const struct moonrail_wire *w,
			    const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_rma.c ------------------------------------------------------ */
extern struct fi_ops_rma moonrail_rma_ops;
/*
 * Moves bytes between iov and pieces of the peer's memory, up to the shorter
 * of the two; op->left counts, and done(op) follows from moonrail_task_done,
 * or from here where nothing is left to wait for.
 */
void moonrail_move(struct moonrail_op *op, const struct moonrail_wire_piece *at,
		   uint32_t n, bool read) TEI_REQUIRES(moonrail_held);
/* Begins it, now or when the keys that it wants are known. */
void moonrail_rma_go(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
void moonrail_task_done(struct moonrail_task *task)
	TEI_REQUIRES(moonrail_held);
void moonrail_move_done(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
struct moonrail_key *moonrail_rma_find_key(struct moonrail_peer *peer,
					   uint64_t key)
	TEI_REQUIRES(moonrail_held);
/* A key is on no list, and is this peer's from here on; or is no more. */
void moonrail_rma_add_key(struct moonrail_peer *peer, struct moonrail_key *key)
	TEI_REQUIRES(moonrail_held);
void moonrail_rma_drop_key(struct moonrail_key *key)
	TEI_REQUIRES(moonrail_held);
/* A key was told, or is void. */
void moonrail_rma_key(struct moonrail_peer *peer, const struct moonrail_wire *w)
	TEI_REQUIRES(moonrail_held);
void moonrail_rma_fail(struct moonrail_peer *peer, int err)
	TEI_REQUIRES(moonrail_held);
/* After the bytes of a received message have been read. */
void moonrail_recv_read(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
/* It was asked whether the message that was read still waited: err 0, it did. */
void moonrail_recv_sure(struct moonrail_op *op, int err)
	TEI_REQUIRES(moonrail_held);
/* Within the domain: the bytes of a message that nobody has received go. */
void moonrail_recv_void(struct moonrail_peer *peer, uint64_t id)
	TEI_REQUIRES(moonrail_held);
/* Tells a peer which of its messages were read, if it does not know yet. */
void moonrail_recv_tell(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_INT_H */
