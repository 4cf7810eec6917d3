/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_PEER_PARTS_H
#define TEI_PROV_RAIL_CORE_RAIL_PEER_PARTS_H

/* The parts of struct tei_rail_peer, one for each subject. */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_refusal.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/log.h"
#include "util/range.h"

struct rail;
struct rail_conn;
struct rail_draining;
struct rail_rkey;

#define RAIL_PONGS		8	/* limit of the probes of a peer that
					 * wait for their answer */
#define RAIL_AUTH_WORDS		8	/* length of the bit map of the message
					 * numbers that were received, 64-bit
					 * words */

struct rail_key_want {
	uint64_t addr, len;
	bool active;
	uint32_t tries;
	uint64_t next_ns;
	uint64_t since_ns;		/* time of the first KEY_REQ for this
					 * range; 0 if none has been sent yet */
};

/* The routes to a peer. Guarded by dp->sched. */
struct rail_peer_routes {
	int16_t route[TEI_RAIL_MAX];	/* route of each local rail: index into
					 * peer->remotes; -1 if the rail has no
					 * route */
	bool ranked;			/* for some of the peer's memory, the
					 * ranks of the remote rails differ */
	bool choice;			/* rail_select_remote must select the
					 * remote rail of each slice */
	bool changed;			/* a log line about the routes is due */
	uint64_t logged;		/* thread: hash of the last log line
					 * about the routes */
	struct tei_log_limit report_limit;
};

/*
 * The connections of the rail pairs. Guarded by dp->sched. A connection has the
 * index (rail * lanes + lane) * remotes_cap + remote in "conns". Each
 * rail_conn keeps its address until the peer is freed.
 */
struct rail_peer_pairs {
	bool conns_short;		/* an allocation in rail_conn_table
					 * failed, so this function must be
					 * called again */
	uint32_t turn;			/* counter that selects the remote rail
					 * if MC_PATH_ROUNDROBIN is set */
	struct rail_conn **conns;
	uint32_t rails; /* number of local rails for which "conns" has
			 * entries */
	uint32_t lanes; /* number of tx lanes of each rail for which "conns" has
			 * entries: without extra lanes until a rail pair first
			 * uses one */
	uint16_t remotes_cap;
	bool stuck;			/* a connection to the peer has not been
					 * established in time */
};

/* The tasks and slices for a peer. Guarded by dp->sched. */
struct rail_peer_tasks {
	struct tei_list small;		/* small requests of which a part has
					 * not been cut into slices yet */
	struct tei_list queue;		/* bulk requests of which a part has not
					 * been cut into slices yet */
	uint32_t overtaken;		/* number of small requests that were
					 * served since the last slice of a bulk
					 * request, while bulk requests
					 * waited */
	uint32_t queued;
	struct tei_list live;		/* unfinished tasks in the order of
					 * submission */
	struct tei_list recent_link;	/* in dp->tasks.recent, or unlinked */
	uint64_t moved_ns;		/* time of the last completion; if no
					 * task was unfinished since then, time
					 * of the next submission */
	uint64_t still_ns;		/* last time at which MC_SLICE_TIMEOUT
					 * ended a task */
	struct tei_list retry;		/* slices to be posted again (retry
					 * list) */
	struct tei_list awaiting_fence;	/* slices that must not be posted again
					 * before the target has fenced the old
					 * lane (awaiting-fence list) */
	uint32_t posted;		/* number of slices posted on lanes */
	struct rail_failure {		/* the last slice that failed */
		const struct rail *rail;
		uint64_t ns;		/* time of the failure; 0 if no slice
					 * has failed */
		int err, prov;		/* err: FI_E*; prov: the provider's own
					 * code, or 0 */
		char text[96];		/* the provider's text for the error */
	} last_failure;
	uint64_t served_ns[TEI_RAIL_MAX]; /* time of the last completion on each
					   * local rail, indexed by the rail */
};

/* The renewal of tx lanes because of a peer (rail_renew.h). */
struct rail_peer_renew {
	uint64_t silent_next_ns;	/* thread: earliest time of the next
					 * call of rail_renew_silent */
	struct rail_renew {		/* lane renewals because of
					 * stuck connections */
		uint64_t next_ns;	/* thread: earliest time of the next
					 * renewal */
		uint32_t tries;		/* thread: number of renewals since a
					 * connection last came up */
		bool linked;		/* atomic: a connection of the new lane
					 * to the peer has been established */
	} rails[TEI_RAIL_MAX];		/* indexed by the local rail */
};

/* Limits and delays of log lines about a peer. Guarded by dp->sched. */
struct rail_peer_log {
	struct tei_log_limit err_limit;
	struct tei_log_repeat err_repeat, complete_repeat;
	struct rail_loss {		/* lost connections to be logged */
		uint64_t rails;		/* bits: local rails that lost a
					 * connection */
		uint64_t due_ns;	/* time at which the log line is due; 0
					 * if no line is due */
		uint64_t next_ns;	/* earliest time of the next such log
					 * line */
		int err, prov;		/* error of the first lost connection:
					 * FI_E* and the provider's code */
		char text[96];		/* provider's text for that error */
	} loss;
};

/*
 * Probes to answer, and pings for a sign of life (health/). Guarded by
 * dp->sched.
 */
struct rail_peer_probes {
	uint64_t pongs[RAIL_PONGS];	/* numbers of the probes that must be
					 * answered */
	uint32_t npongs;
	bool pong;			/* a PING with number 0 must be
					 * answered */
	uint64_t life_next_ns;		/* thread: time of the next PING
					 * for a sign of life */
	uint32_t life_tries;		/* thread: number of PINGs for a sign of
					 * life that are unanswered */
};

/*
 * The exchange of hellos. Guarded by dp->sched; fields marked "thread" belong
 * to the progress thread.
 */
struct rail_peer_hello {
	bool known_us;			/* the peer has answered this process's
					 * hello, or has sent a hello itself */
	uint32_t table_seen;		/* newest version of the peer's rail
					 * table that has been received */
	uint32_t table_acked;		/* newest version of this process's rail
					 * table that the peer has
					 * acknowledged */
	uint64_t notified_rails;	/* bits: local rails that were listed in
					 * a hello to the peer */
	bool wanted;			/* a hello must be sent so that the peer
					 * becomes READY */
	uint32_t tries;			/* thread: number of hellos sent since
					 * the peer's last answer */
	uint64_t next_ns;		/* thread: earliest time of the next
					 * hello */
	bool reply;			/* the peer's hello must be answered */
	uint64_t asked_ns;		/* start of waiting for the
					 * answer to a hello */
	bool announce;			/* the local rail table has changed:
					 * send a hello */
	bool again;			/* thread: a hello must be sent again */
	uint16_t refusals;		/* thread: hellos that another process
					 * has refused since the peer's last
					 * hello */
	bool bye_sent;			/* BYE has been sent to the peer, or the
					 * peer has closed its ports; used by
					 * tear-down only */
	bool warm_wanted;		/* a warm-up was requested: every rail
					 * must connect to the peer */
	uint64_t warm_left;		/* thread: bits: local rails that the
					 * warm-up has not connected yet */
};

/*
 * A hello of the peer that must be refused. Guarded by dp->sched; fields
 * marked "thread" belong to the progress thread.
 */
struct rail_peer_refusal {
	uint64_t incarnation;		/* thread: incarnation that the peer's
					 * hello names as its receiver's; 0 if
					 * no hello must be refused */
	enum rail_refusal reason;	/* thread: reason of the refusal */
	uint8_t nonce[16];		/* thread: nonce of the refused hello */
	uint16_t contact;		/* thread: contact number in the refused
					 * hello */
	bool unauthenticated;		/* unauthenticated peer: exists only
					 * to be refused; always GONE, not
					 * in the hash table */
	uint64_t unauthenticated_ns;	/* time at which the attempts to refuse
					 * the hello end */
};

/*
 * The addresses at which a peer is searched. Guarded by dp->sched; fields
 * marked "thread" belong to the progress thread.
 */
struct rail_peer_addrs {
	struct tei_rail_addr *contacts; /* contact addresses from the peer's
					 * last hello; the peer listens there as
					 * long as it lives */
	uint16_t ncontacts;
	uint16_t contact_turn;
	uint64_t contact_next_ns; /* earliest time at which an address of
				   * "contacts" is tried */
	uint64_t not_there_ns;	  /* time at which an address of "contacts"
				   * turned out to belong to another process; 0
				   * if this never happened */
	uint64_t resolve_next_ns;	/* earliest time of the next call of
					 * ops->resolve for the peer */
	struct tei_rail_addr found_at;	/* address that the owner of the data
					 * plane found and that must be tried;
					 * if len is 0, there is none */
	uint64_t found_ns;		/* time at which found_at was found with
					 * the peer's incarnation */
	uint32_t found_turn;		/* counter that selects the next value
					 * of found_at among the addresses that
					 * the owner found */
	struct rail_contact {		/* state of rail_contact.c; used in
					 * state RAIL_PEER_NEW only */
		uint32_t pairs;		/* thread: number of pairs of a local
					 * rail and a contact address, when they
					 * were last counted */
		uint32_t from;		/* thread: index of the first pair of
					 * the group to which the hello is sent
					 * at present */
		uint64_t until_ns;	/* thread: time at which the hello goes
					 * to the next group of pairs, ns; 0 if
					 * it was sent to no group yet */
		uint64_t sent;		/* thread: bit i: the hello was sent to
					 * the pair with index from + i */
		uint32_t rounds;	/* thread: number of completed passes
					 * over all pairs of rail and address */
		uint64_t refused;	/* bits: contact addresses at which
					 * another process has answered */
	} contact;
	uint16_t its_contact; /* contact number in the peer's last hello, from
			       * 1; 0 if there is none */
	bool resolver;	      /* this peer is a resolver: it finds the
			       * process that has an address; its
			       * incarnation is 0 and it is not in the
			       * hash table */
	uint64_t found;	      /* resolver only: incarnation that was found; 0 if
			       * there is none yet */
	uint32_t hint_turn;		/* thread: counter that makes hellos
					 * alternate between the peer's routes
					 * and the remote rail marked as hint */
};

/*
 * Pings for signs of life, presumed death, and the rails that messages use.
 * Guarded by dp->sched; fields marked "thread" belong to the progress thread.
 */
struct rail_peer_life {
	bool revived;			/* a sign of life after
					 * silence must be handled */
	uint64_t presumed_ns;		/* time at which the peer was presumed
					 * dead; void if alive_ns is later; 0 if
					 * this never happened */
	uint64_t presume_next_ns;	/* earliest time of the next check by
					 * rail_presume_ask; void if the peer
					 * gave a sign of life since the last
					 * check */
	uint64_t presume_asked_ns;	/* time of the last check by
					 * rail_presume_ask */
	uint32_t msg_turn;		/* thread: counter that selects the
					 * off-route pair for the next
					 * message */
	uint64_t again_ns;		/* thread: start of the time in which no
					 * rail has accepted a message for the
					 * peer; if 0, the last message was
					 * accepted */
	bool probing;			/* a sign of life is requested */
	uint64_t probe_ns;		/* time at which the sign of life was
					 * requested */
	int32_t received;		/* atomic: local and remote rail that
					 * carried the peer's last message, in
					 * one number (rail_dispatch.c); -1 if
					 * no message has arrived */
};

/*
 * The remote keys of a peer, and the regions that the peer must drain or whose
 * revocation must be answered. Guarded by dp->sched.
 */
struct rail_peer_keys {
	struct tei_list all;		/* all remote keys, including revoked
					 * ones (rail_rkey.link) */
	struct tei_range_table rkeys;	/* remote keys that are not revoked
					 * (rail_rkey.range) */
	struct rail_rkey **ids;		/* hash table of the remote keys by
					 * region id; it has nids buckets */
	uint32_t nids;
	uint32_t epoch;			/* key epoch: a KEY_REP with a lower
					 * epoch is discarded */
	bool forgotten;			/* tei_rail_task.forgotten may be set in
					 * an unfinished task */
	struct tei_list groups;		/* groups of tasks that have used
					 * regions of the peer
					 * (tei_rail_group.link) */
	struct rail_key_want want;
	struct rail_draining *draining;	/* array of the peer's regions whose
					 * keys were withdrawn, but are still
					 * used by slices */
	uint32_t ndraining, draining_cap;
	uint64_t *answer_pending;	/* array of the region ids for which
					 * REVOKED must be sent */
	uint32_t nowed, answer_pending_cap;
	uint64_t *revokes;		/* array of the region ids for which
					 * REVOKE must be sent */
	uint32_t nrevokes, revokes_cap;
	uint64_t revoke_next_ns;
	struct rail_key_reply {
		uint64_t addr, len;
		bool answer_pending;
	} reply;
	uint32_t revoke_tries;		/* thread: number of REVOKE messages
					 * since the peer last answered one */
};

/*
 * Nonces and message numbers that authenticate messages from and to the peer.
 * Used by the progress thread only, except where marked.
 */
struct rail_peer_auth {
	uint8_t nonce[16];
	uint8_t its_nonce[16];		/* the progress thread changes it under
					 * dp->sched, and other threads read it
					 * under dp->sched */
	uint64_t sent;			/* atomic: number of the
					 * newest message sent */
	uint64_t newest, hello_newest;	/* highest message number that was
					 * received, of all messages and of
					 * hellos */
	uint64_t seen[RAIL_AUTH_WORDS];
};

/* The reverse paths to a peer (peer/rail_reverse.c). Guarded by dp->sched. */
struct rail_peer_reverse {
	struct rail_reverse
		*path[TEI_RAIL_MAX]; /* atomic: reverse path of each local rail;
				      * NULL if the rail has none */
	uint64_t rails;		     /* bits: local rails over which REVERSE
				      * must be sent */
	uint64_t next_ns;		/* earliest time of the next REVERSE */
};

#endif /* TEI_PROV_RAIL_CORE_RAIL_PEER_PARTS_H */
