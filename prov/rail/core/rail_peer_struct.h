/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_PEER_STRUCT_H
#define TEI_PROV_RAIL_CORE_RAIL_PEER_STRUCT_H

/* A remote process as this data plane knows it. */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_fence_state.h"
#include "prov/rail/core/rail_peer_parts.h"
#include "prov/rail/tei_rail.h"
#include "util/channel.h"
#include "util/heap.h"
#include "util/list.h"

struct rail_atomic_book;
struct rail_notify_part;

/* Totals of the bytes moved between this process and the peer
 * (peer/rail_served.h). Part of each peer. */
struct rail_served {
	/* as the initiator; used by the progress thread only */
	uint64_t sent_tx, sent_rx;	/* totals that the last report to the
					 * peer contained, bytes */
	bool due;			/* a report of the totals must be sent
					 * to the peer */
	uint32_t tries;			/* number of repetitions of the due
					 * report */

	/* as the target; guarded by dp->sched */
	uint64_t since;			/* time, on the peer's clock, at which
					 * the peer's counters began; 0 if the
					 * peer has sent no report */
	uint64_t base_tx, base_rx;	/* totals, in bytes, of the time before
					 * the peer's counters last began at
					 * 0 */
	uint64_t tx, rx;		/* totals of the bytes that the peer has
					 * written and read */
	uint64_t ns;			/* time at which the peer's last report
					 * of totals arrived */
};

/* A remote rail, as described by the peer's last HELLO or FENCED. Guarded by
 * dp->sched. */
struct rail_remote {
	uint16_t id;			/* index of the rail at the peer */
	uint8_t prefix;
	bool virt_addr;			/* keys are used with
					 * virtual addresses */
	bool gen_keys;			/* the rail's keys change with each lane
					 * generation */
	uint32_t gen;
	uint32_t serial;		/* number of the address in "addr": each
					 * new address gets a number that was
					 * not used before */
	bool away;			/* the peer has closed the rx lane and
					 * is opening it again; until then the
					 * rail has no address */
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
	RAIL_PEER_GONE,		/* the peer takes no new tasks: they fail at
				 * once */
};

/* What is known about a peer in state RAIL_PEER_GONE. */
enum rail_gone {
	RAIL_GONE_PERHAPS,	/* the peer may be alive: posted slices may
				 * still land and wait for their fence */
	RAIL_GONE_OVER,			/* the slices posted to the peer have
					 * landed, or can never land */
	RAIL_GONE_LEFT,		/* the peer has sent BYE: as RAIL_GONE_OVER, and
				 * the peer no longer accesses the memory of
				 * this process */
};

/* Notifications to be sent to a peer (rail_notify.c). Guarded by dp->sched. */
struct rail_notify_out {
	struct tei_list list;		/* unacknowledged notifications in order
					 * (tei_rail_outgoing.link); those that
					 * already have a number come first */
	uint32_t n;			/* number of notifications in "list" */
	uint64_t bytes;			/* total length of the notifications in
					 * "list" */
	uint64_t last;			/* number of the newest notification; 0
					 * if none has got a number yet */
	uint64_t turn;			/* turn of the newest NOTIFY message */
	uint64_t gap_turn;		/* newest turn for which a gap that the
					 * peer reported has been handled */
	uint32_t window;		/* limit of unacknowledged NOTIFY
					 * messages */
	uint32_t tries;			/* number of repeated NOTIFY messages,
					 * and of queries whether the peer can
					 * accept more, that were sent since the
					 * peer last acknowledged something */
	uint64_t since_ns;		/* start of the wait for an answer; if
					 * 0, no answer is awaited */
	uint64_t next_ns;		/* time of the next repetition; if 0, no
					 * repetition is due */
	bool full;			/* the peer has no memory for further
					 * notifications; queries are sent to it
					 * until it has some */
};

/* Notifications received from a peer (rail_notify_recv.c). Guarded by
 * dp->sched. */
struct rail_notify_recv {
	uint64_t stream;		/* session in which the peer numbers its
					 * notifications; 0 if there is none */
	uint64_t next;			/* number of the notification that is
					 * expected next; 0 if unknown */
	uint64_t base;			/* number of the oldest notification
					 * that the peer still keeps for
					 * repetition */
	struct rail_notify_part *part;	/* notification assembly, or NULL */
	bool answer_pending;		/* an answer with the values in `code`
					 * and `turn` must be sent to the
					 * peer */
	uint16_t code;			/* code of the answer: enum
					 * rail_notify_code */
	uint64_t turn;			/* turn of the NOTIFY that is
					 * answered */
	struct tei_list wait_link;	/* in dp->notes.waiting, or unlinked */
	uint32_t wait_name, wait_msg;	/* lengths of name and text of the
					 * notification that waits for memory */
	uint64_t wait_ns;		/* time of the peer's last query whether
					 * the notification can be accepted */
};

/*
 * Atomics to and from a peer (rail_atomic.c). Guarded by dp->sched, except for
 * "book", which only the progress thread uses.
 */
struct rail_atomics {
	/* as the initiator */
	struct tei_list tasks;		/* unanswered atomics in order
					 * (tei_rail_task.queue_link) */
	struct tei_channel_out out;	/* sequence numbers of the atomics in
					 * "tasks" */
	uint64_t session;		/* session that the peer has given this
					 * process; 0 if there is none */
	bool notified;			/* the peer has named the session in its
					 * hello */
	bool fresh;			/* list `tasks` may contain atomics that
					 * have not been sent */
	uint32_t round;			/* number of ATOMIC messages composed so
					 * far */
	uint32_t tries;
	uint64_t next_ns;		/* time at which unanswered atomics are
					 * sent again */
	uint64_t since_ns;		/* time of the last answer; if 0, no
					 * answer is awaited */
	uint64_t own_session;
	struct rail_atomic_book *book;	/* record of the atomics that this
					 * process has executed for the peer, or
					 * NULL */
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
	struct tei_heap_node timed;	/* in dp->peers.timed, or unlinked; the
					 * key is the time at which the control
					 * state machines must run */
	struct tei_list active_link;	/* in dp->tasks.active, or unlinked */
	struct tei_list hash_link;
	uint32_t refs;			/* number of references from outside the
					 * data plane */
	enum rail_peer_state state;	/* atomic */
	enum rail_gone gone;		/* used only in state RAIL_PEER_GONE */
	uint64_t gone_ns;		/* time at which the peer became GONE */
	struct rail_peer_hello hello;
	struct rail_peer_addrs addrs;
	struct rail_peer_life life;

	/* The remote rails. Until the hello is answered, the entries are the
	 * contact addresses. */
	struct rail_remote *remotes;
	uint16_t nremotes;
	uint16_t remotes_room;		/* number of allocated entries of
					 * "remotes" */
	struct rail_peer_pairs pairs;
	uint32_t serial;		/* newest rail_remote.serial that was
					 * given to a remote rail of the peer */
	struct rail_peer_routes routes;
	struct rail_peer_tasks tasks;
	struct rail_fence_peer fence;
	struct rail_peer_renew renew;
	struct rail_peer_keys keys;
	struct rail_peer_refusal refusal;
	struct rail_peer_auth auth;

	struct rail_atomics atomics;
	struct rail_notify_out note_out;
	struct rail_notify_recv note_in;
	uint64_t alive_ns;		/* time of the last sign of life */
	uint64_t tried_ns;		/* time since which the peer has had a
					 * place in an endpoint cache without
					 * giving a sign of life; void if
					 * alive_ns is later */
	bool evicted;			/* the peer is GONE, and dp->peers.n no
					 * longer counts it */
	struct rail_peer_log log;
	struct tei_rail_peer_stats stats; /* counters that
					   * tei_rail_peer_get_stats reports */
	uint64_t born_ns;		/* fixed: time at which the counters in
					 * "stats" began */
	struct rail_served served;

	struct tei_list faults;		/* faults of the rail pairs with this
					 * peer (rail_health.h) */
	struct rail_peer_reverse reverse;
	struct rail_peer_probes probes;
};

#endif /* TEI_PROV_RAIL_CORE_RAIL_PEER_STRUCT_H */
