/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_PEER_STRUCT_H
#define TEI_PROV_RAIL_CORE_RAIL_PEER_STRUCT_H

/* A remote process as this data plane knows it. */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/list.h"
#include "util/log.h"

struct rail;
struct rail_atomic_book;
struct rail_conn;
struct rail_contact;
struct rail_draining;
struct rail_failure;
struct rail_fence_reply;
struct rail_key_reply;
struct rail_loss;
struct rail_notify_part;
struct rail_renew;
struct rail_reverse;
struct rail_rkey;

/* Part of each peer. */
struct rail_served {
	/* Initiator: the progress thread only. */
	uint64_t sent_tx, sent_rx;	/* totals of the last report, bytes */
	bool due;			/* a report must be sent */
	uint32_t tries;			/* repetitions of that report */

	/* Target: guarded by dp->sched. */
	uint64_t since;			/* start of the peer's counters, 0: none
					 * reported */
	uint64_t base_tx, base_rx;	/* totals of the peer's earlier
					 * counters, bytes */
	uint64_t tx, rx;		/* bytes written and read by the peer */
	uint64_t ns;			/* time of the last report */
};

#define RAIL_PONGS		8	/* unanswered probes per peer */
#define RAIL_AUTH_WORDS		8	/* 64-bit words of the bit map of
					 * message numbers already received */

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
	struct tei_list link;		/* in dp->peers.list */
	struct tei_list attn_link;	/* in dp->peers.attn, or unlinked */
	struct tei_list active_link;	/* in dp->tasks.active, or unlinked */
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
					 * while in dp->peers.attn */
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
					 * counted in dp->peers.n */
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

#endif /* TEI_PROV_RAIL_CORE_RAIL_PEER_STRUCT_H */
