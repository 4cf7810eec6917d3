/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_SCHED_RAIL_FENCE_H
#define TEI_PROV_RAIL_SCHED_RAIL_FENCE_H

/*
 * The fence: makes sure that nothing posted earlier can still land.
 *
 * Withdrawing a key is not enough: a provider may check the key once and
 * continue to write. Posted reads and writes cannot be cancelled portably.
 * Closing the endpoint stops them with every provider. So the initiator sends
 * FENCE, which names a rail of the target and a lane generation. The target
 * closes the rx lane of that generation before it answers FENCED. Then it opens
 * the next rx lane and announces it with a hello. The other initiators that use
 * the lane see an error, learn the new generation from the hello and post their
 * slices again.
 *
 * Each side has one state machine. rail_fence.c has both transition tables, and
 * is the only file that changes a state. The other files report events; they
 * query the state through the predicates of core/rail_fence_state.h. No event
 * is reported unless there is a failure.
 *
 * - The initiator has one machine for each remote rail, in struct rail_remote.
 *   It is guarded by dp->sched, and any thread may report an event.
 * - The target has one machine for each local rail, in struct rail. Only the
 *   progress thread reports events, without holding a lock. Which peers must
 *   get FENCED is recorded for each peer (struct rail_fence_peer).
 *
 * Reporting an event cannot fail. An event that the present state does not
 * expect changes nothing and is logged.
 */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_fence_state.h"
#include "util/lock.h"

struct rail;
struct rail_done;

/* --- the initiator ------------------------------------------------------- */

enum rail_fence_event {
	RAIL_FENCE_EV_FAILED, /* a slice that was posted to generation gen has
			       * failed and must wait for the fence */
	RAIL_FENCE_EV_NEWER_FAILED, /* internal: the event FAILED for a
				     * generation that is newer than those that
				     * the fence covers */
	RAIL_FENCE_EV_SENT,   /* FENCE for generation gen was sent, or no rail
			       * has accepted it. Uses the arguments tries,
			       * next_ns and now */
	RAIL_FENCE_EV_CLOSED, /* the target has closed the generations up to
			       * gen, or its process has ended. Uses the
			       * argument done */
	RAIL_FENCE_EV_OLDER_CLOSED, /* internal: the event CLOSED for a
				     * generation that is older than the newest
				     * generation of this fence */
	RAIL_FENCE_EV_TIMED_OUT, /* a task ends as unfenced, because the target
				  * has not answered in time */
	RAIL_FENCE_EV_UNNEEDED,	 /* the peer has been gone for longer than a
				  * time limit, and no task or slice waits for
				  * the fence */
	RAIL_FENCE_EV_ALIVE,	 /* the peer has given a sign of life after a
				  * silence */
	RAIL_FENCE_EVENTS
};

/* Arguments of the events. The comment of an event lists the arguments that the
 * event needs. */
struct rail_fence_args {
	uint32_t gen;	  /* lane generation of the remote rail */
	uint32_t tries;	  /* number of FENCE messages sent so far */
	uint64_t next_ns; /* time at which FENCE must be sent again, ns */
	uint64_t now;
	struct rail_done *done; /* collects the tasks that end */
};

/* Reports an event to the fence of a remote rail. args: arguments of the event;
 * may be NULL if it has none. Any thread. */
void rail_fence_event(struct tei_rail_peer *peer, uint16_t remote,
		      enum rail_fence_event event,
		      const struct rail_fence_args *args)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if a fence of one of the peer's rails is outstanding. */
bool rail_fence_any(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* --- the target ---------------------------------------------------------- */

enum rail_fence_rx_event {
	RAIL_FENCE_RX_EV_REQUESTED, /* the open rx lane must be closed, for a
				     * peer or for a region */
	RAIL_FENCE_RX_EV_CLOSED,    /* the rx lane was closed */
	RAIL_FENCE_RX_EV_OPENED, /* the next rx lane is open and has replaced
				  * the closed one */
	RAIL_FENCE_RX_EV_FAILED, /* the next rx lane could not be opened */
	RAIL_FENCE_RX_EV_RETRY,	 /* it is time to try again to open the lanes
				  * that could not be opened */
	RAIL_FENCE_RX_EVENTS
};

/* Reports an event to the fence of the rail's rx lane. Progress thread, no lock
 * held. */
void rail_fence_rx_event(struct rail *rail, enum rail_fence_rx_event event);
/* Records that the peer must get FENCED for generation gen of the local rail
 * with index "rail". The progress thread closes this generation before it sends
 * FENCED. Any thread. */
void rail_fence_requested(struct tei_rail_peer *peer, uint16_t rail,
			  uint32_t gen) TEI_REQUIRES(rail_sched_held);
/* Records that FENCED need not be sent to the peer any longer for generation
 * gen of the local rail with index "rail": it was sent, or no rail can carry
 * it. Any thread. */
void rail_fence_answered(struct tei_rail_peer *peer, uint16_t rail,
			 uint32_t gen) TEI_REQUIRES(rail_sched_held);
/* Drops all FENCED messages that are due to the peer. Any thread. */
void rail_fence_no_answers(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Makes sure that generation gen of the rail's rx lane gets closed. gen must
 * not be newer than the lane's present generation. Returns the generation that
 * replaces gen, or 0 while the lane is still closing. If the result is 0, each
 * peer for which FENCED is due is attended to when the lane is closed. Progress
 * thread, no lock held. */
uint32_t rail_fence_request(struct rail *rail, uint32_t gen);
/* Collects the rx lanes that closer threads have closed, and reports CLOSED.
 * Progress thread, no lock held. */
void rail_fence_run(struct tei_rail_dp *dp);
/* Collects the lanes of the rail that opener threads have opened, and reports
 * OPENED or FAILED if the rx lane is among them. Progress thread, no lock
 * held. */
void rail_fence_collect(struct rail *rail);
/* Closes every rx lane for the regions whose key holders did not answer.
 * Progress thread, no lock held. */
void rail_fence_regions(struct tei_rail_dp *dp);
/* Returns true if the rx lane of at least one local rail is closed or being
 * closed and the next one is not open yet. Does not count a rail whose next rx
 * lane could not be opened. Progress thread. */
bool rail_fence_rx_any(struct tei_rail_dp *dp);

/* --- the tables, for tests ----------------------------------------------- */

/* How a state reacts to an event. */
enum rail_fence_reaction {
	RAIL_FENCE_UNDEFINED,  /* the transition table has no entry for this
				* state and event: a bug */
	RAIL_FENCE_TRANSITION, /* the state changes, or an action runs */
	RAIL_FENCE_IGNORED,    /* the event has no effect in this state */
	RAIL_FENCE_IMPOSSIBLE, /* the event cannot occur in this state; it is
				* logged */
};

/* Both functions return how a state reacts to an event. If the reaction is a
 * transition, they set *next to the next state. */
enum rail_fence_reaction rail_fence_reacts(enum rail_fence_state state,
					   enum rail_fence_event event,
					   enum rail_fence_state *next);
enum rail_fence_reaction rail_fence_rx_reacts(enum rail_fence_rx_state state,
					      enum rail_fence_rx_event event,
					      enum rail_fence_rx_state *next);

#endif /* TEI_PROV_RAIL_SCHED_RAIL_FENCE_H */
