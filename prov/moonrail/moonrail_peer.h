/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_PEER_H
#define TEI_PROV_MOONRAIL_MOONRAIL_PEER_H

/*
 * Peers: the other domains that a domain knows. A peer has the state of both
 * streams.
 */

#include <stdbool.h>
#include <stdint.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_wire.h"
#include "prov/rail/tei_rail.h"
#include "util/channel.h"
#include "util/list.h"

struct moonrail_name;

/* A key of a peer, and the peer's description of it. */
struct moonrail_key {
	struct tei_list link;		/* in peer->keys */
	struct tei_list hash_link;	/* in domain->keys */
	struct moonrail_peer *peer;
	uint64_t key, base, len;
	uint32_t access;		/* access rights FI_REMOTE_…; if 0, the
					 * key is void */
	bool known;			/* the peer has answered */
	bool virt_addr;
	bool events;			/* the owner has requested DONE for each
					 * operation */
};

/* A backpressured endpoint: an endpoint of the peer (in peer->flow.remote) or
 * of this domain (in peer->flow.local). */
struct moonrail_backpressured {
	uint32_t ep;
	uint32_t n;			/* in flow.remote: number of messages
					 * blocked for the endpoint; in
					 * flow.local: number of excess messages
					 * accepted */
	uint64_t since;			/* in flow.local: flow.local_version at
					 * which the endpoint was added */
};

/* The operations under way with a peer. */
struct moonrail_peer_ops {
	uint32_t n;			/* number of operations under way */
	uint32_t of_class[MOONRAIL_CLASSES]; /* number of sends, reads, writes
					      * and atomics under way; indexed
					      * by enum moonrail_class */
	enum moonrail_class preferred_class; /* class of the last operation that
					      * was refused because of an
					      * order */
	uint64_t preferred_ns;		/* time until which other classes are
					 * refused, ns, CLOCK_MONOTONIC; 0 if no
					 * class is preferred */
	struct tei_list waiting;	/* list of moonrail_op.link: sends and
					 * atomics that wait for a FIN or an
					 * ATOMIC_REP */
	struct tei_list waiting_for_key; /* list of moonrail_op.link: operations
					  * that wait for a key */
	uint32_t reading;		/* number of short announced messages
					 * that are being read */
	struct tei_list checking;	/* list of moonrail_op.link: receives
					 * whose message has been read and whose
					 * read-back check is not answered */
};

/* The outgoing stream to a peer. */
struct moonrail_peer_out {
	struct tei_channel_out channel;	/* numbers of the messages */
	uint64_t posted_seq;		/* number of the last message that
					 * carries an operation of this domain;
					 * 0 if there is none */
	uint64_t requested_seq;		/* value of posted_seq at the last
					 * request for an acknowledgement */
	uint64_t key_seq;		/* number of the last message about a
					 * key that a caller waits for, or 0 */
	struct tei_list queue, sent;	/* lists of moonrail_out: messages that
					 * were not sent yet, and messages that
					 * were not acknowledged yet */
	uint32_t rail;			/* index of the rail that carried the
					 * last message */
};

/* The incoming stream from a peer. */
struct moonrail_peer_in {
	struct tei_channel_in channel;	/* numbers of the messages, and the
					 * out-of-order messages
					 * (tei_rail_message) */
	uint32_t unacked;		/* number of messages received since the
					 * last ACK */
};

/* Flow control between a peer and this domain (moonrail_flow.c). */
struct moonrail_peer_flow {
	/* members that this domain uses as a sender */
	struct tei_list blocked;	/* messages (moonrail_out) for
					 * backpressured endpoints, without
					 * numbers */
	uint32_t nblocked;
	uint32_t nremote;
	struct moonrail_backpressured *remote; /* backpressured endpoints of the
						* peer */
	uint64_t remote_version;	/* version number of the list remote,
					 * which the peer has sent with it */
	/* members that this domain uses as a receiver */
	uint32_t nlocal;
	struct moonrail_backpressured *local; /* backpressured endpoints of this
					       * domain */
	uint64_t local_version;		/* version number of the list local; 0
					 * if the list was never changed */
};

/* The timer of a peer (moonrail_timer.c). Times are in ns, CLOCK_MONOTONIC; 0
 * means that no time is set. */
struct moonrail_peer_timer {
	uint64_t next_ns;		/* time of the next run of the timer */
	uint32_t tries;			/* number of PINGs since the last
					 * progress */
	uint64_t silent_ns;		/* start of the silence of a peer that
					 * owes an answer */
	uint64_t bye_ns;		/* the peer has sent BYE: end of the
					 * wait for its late messages */
	uint64_t ping_seq;		/* messages with lower numbers were sent
					 * before the last PING */
	uint64_t last_acked, last_seq;	/* values of out.channel.acked and
					 * out.channel.next at the last run */
};

/* Proof that the peer has received messages from this domain without a pause,
 * so that this domain cannot have timed out at the peer (moonrail_read_back.c).
 * Times in ns, CLOCK_MONOTONIC. */
struct moonrail_peer_contact {
	uint64_t sent_seq, sent_ns;	/* number of a message whose
					 * acknowledgement is awaited (0 if
					 * there is none), and a time before
					 * this message was posted */
	uint64_t proven_ns;		/* a message posted after this time has
					 * been acknowledged */
	uint64_t first_seq;		/* number of the message with which the
					 * present period of contact began */
	uint64_t reads_until_ns;	/* the peer has failed but may still
					 * read announced messages until this
					 * time; 0 if there are no such
					 * messages */
};

/* Messages that have been received and whose FIN has not been sent. */
struct moonrail_peer_fin {
	uint32_t n;
	struct moonrail_wire_fin of[MOONRAIL_FINS];
};

/*
 * Another domain, or this domain itself. Created when an address or a message
 * first refers to the domain. moonrail_leave frees the peer when nothing uses
 * it and its streams are no longer needed (peer_is_unneeded); otherwise the
 * peer is freed with the domain. domain->lock guards all fields.
 */
struct moonrail_peer {
	struct tei_list link;
	struct tei_list hash_link;	/* in domain->known; in no list if the
					 * incarnation is unknown */
	struct tei_list idle_link;
	uint32_t uses;			/* number of addresses, operations,
					 * unexpected messages, and peers in
					 * replaced_by, that refer to this
					 * object */
	struct moonrail_domain *domain;
	struct tei_rail_peer *rail;	/* the peer of the data plane, with a
					 * reference; NULL means this domain
					 * itself */
	uint64_t incarnation;		/* incarnation of the peer; 0 if it is
					 * not known yet */
	struct moonrail_peer *replaced_by; /* the known peer that this resolver
					    * has found, or NULL */
	int err;			/* error with which each operation for
					 * this peer fails, FI_E*, or 0 */
	bool resumes;			/* err is a timeout: the streams are
					 * kept, and operations may follow */
	bool silent;			/* nothing has been received from the
					 * peer since err was set */
	struct tei_list entries;	/* the peer's entries in address
					 * vectors */
	struct tei_list keys;		/* list of moonrail_key.link */
	struct moonrail_peer_ops ops;
	struct moonrail_peer_out out;
	struct moonrail_peer_in in;
	struct moonrail_peer_flow flow;
	struct moonrail_peer_timer timer;
	struct moonrail_peer_contact contact;
	struct moonrail_peer_fin fin;
};

/* --- moonrail_peer.c ----------------------------------------------------- */
/* Returns the peer with that name, and creates the peer if it is new. Returns
 * NULL if memory is short or no rail can reach the address. */
struct moonrail_peer *moonrail_peer_get(struct moonrail_domain *d,
					const struct moonrail_name *name)
	TEI_REQUIRES(moonrail_held);
/* Returns the peer with that incarnation, or NULL if there is none. */
struct moonrail_peer *moonrail_peer_find(struct moonrail_domain *d,
					 uint64_t inc)
	TEI_REQUIRES(moonrail_held);
/* Creates a peer. Takes ownership of the reference "rail"; NULL means that the
 * peer is this domain itself. inc: the incarnation, or 0 if it is not known. */
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
/* Returns true if the peer probably receives the messages that are sent to it:
 * it has not failed, or it has timed out and something has been received from
 * it since then. */
static inline bool moonrail_peer_receives(const struct moonrail_peer *peer)
{
	return !peer->err || (peer->resumes && !peer->silent);
}
/* Returns true if the streams of the peer have not ended: the peer has not
 * failed, or it has timed out and may resume. */
static inline bool moonrail_peer_lives(const struct moonrail_peer *peer)
{
	return !peer->err || peer->resumes;
}
/* Starts the timer of a peer if it is not running, and wakes the progress
 * thread, which then runs the timer without further calls of this function. */
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
/* Drops the keys that have been requested from the peer and are not known yet,
 * because the requests have been dropped. */
void moonrail_key_forget_unknown(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Moves the keys of a resolver to the peer that it has found. */
void moonrail_key_merge(struct moonrail_peer *from, struct moonrail_peer *to)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_failure.c -------------------------------------------------- */
/* Fails all operations under way with the peer. If err is FI_ETIMEDOUT, the
 * peer can be used again later. */
void moonrail_peer_fail(struct moonrail_peer *peer, int err)
	TEI_REQUIRES(moonrail_held);
/* Fails the operations that wait for an answer of a peer that has failed. */
void moonrail_peer_end_waiting(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_timer.c, moonrail_resolver.c ------------------------------- */
/* Runs the timer of a peer. Returns the time at which it must run again, or 0
 * if nothing is pending. */
uint64_t moonrail_peer_run(struct moonrail_domain *d,
			   struct tei_rail_peer *rail, uint64_t now)
	TEI_REQUIRES(moonrail_held);
/* Returns true if the messages to all peers that still receive have been sent
 * and acknowledged. */
bool moonrail_peer_flushed(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);
/* Sends the missing acknowledgements to all peers. Returns true if all were
 * sent. */
bool moonrail_peer_confirmed(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);
/* Merges a resolver into the peer of the process that it has found, which has
 * incarnation inc. Returns false if this process has left or was dropped in the
 * meantime; the search then continues. */
bool moonrail_peer_found(struct moonrail_peer *peer, uint64_t inc)
	TEI_REQUIRES(moonrail_held);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_PEER_H */
