/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state machines of the fence (rail_fence.h). The file has a transition
 * table for the initiator, one for the target, and the actions of both.
 *
 * The state changes before the action of the transition runs. An action may
 * report a further event.
 */
#include "prov/rail/conn/rail_announce.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_fence_state.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

/* --- the initiator: actions ---------------------------------------------- */

/* An event while it is being handled. */
struct fence_call {
	struct tei_rail_peer *peer;
	struct rail_fence *fence;
	uint16_t remote;
	struct rail_fence_args args;
};

/* Starts to request the fence of all generations up to c->gen. */
static void fence_start(const struct fence_call *c)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_fence *f = c->fence;

	c->peer->stats.fences++;
	if (f->gen < c->args.gen)
		f->gen = c->args.gen;
	f->tries = 0;
	f->next_ns = 0;
	f->since_ns = 0;
	rail_peer_attend(c->peer);
}

/* Records when FENCE must be sent again. If the fence was extended to a newer
 * generation while FENCE was being sent, FENCE must be sent at once for this
 * generation. */
static void fence_sent(const struct fence_call *c) TEI_REQUIRES(rail_sched_held)
{
	struct rail_fence *f = c->fence;

	if (f->gen != c->args.gen)
		return;
	f->tries = c->args.tries;
	f->next_ns = c->args.next_ns;
	if (!f->since_ns)
		f->since_ns = c->args.now;
}

/* Moves the slices that waited for generations up to gen to the retry list. */
static void fence_release(const struct fence_call *c)
	TEI_REQUIRES(rail_sched_held)
{
	rail_sched_release(c->peer, c->remote, c->args.gen, c->args.done);
}

/* Makes FENCE due at once and resets the number of attempts, because the FENCE
 * messages that were sent while the peer was silent may be lost. */
static void fence_hurry(const struct fence_call *c)
	TEI_REQUIRES(rail_sched_held)
{
	c->fence->tries = 0;
	c->fence->next_ns = 0;
}

/* --- the initiator: transitions ------------------------------------------ */

typedef void (*fence_action_fn)(const struct fence_call *c);

struct fence_transition {
	enum rail_fence_reaction reaction;
	enum rail_fence_state next;
	fence_action_fn action; /* NULL if the transition has no action */
};

#define FENCE_GO(to, action) RAIL_FENCE_TRANSITION, RAIL_FENCE_##to, action
#define FENCE_IGNORE	     RAIL_FENCE_IGNORED, RAIL_FENCE_NONE, NULL
#define FENCE_NEVER	     RAIL_FENCE_IMPOSSIBLE, RAIL_FENCE_NONE, NULL

static const struct fence_transition
	fence_table[RAIL_FENCE_STATES][RAIL_FENCE_EVENTS] = {
	[RAIL_FENCE_NONE] = {
		[RAIL_FENCE_EV_FAILED] = { FENCE_GO(WANTED, fence_start) },
		[RAIL_FENCE_EV_NEWER_FAILED] =
			{ FENCE_GO(WANTED, fence_start) },
		/* FENCED for an earlier FENCE has arrived while FENCE was being
		 * sent again */
		[RAIL_FENCE_EV_SENT] = { FENCE_IGNORE },
		/* another process has requested the fence, or the target has
		 * replaced the lane for another reason */
		[RAIL_FENCE_EV_CLOSED] = { FENCE_GO(NONE, fence_release) },
		[RAIL_FENCE_EV_OLDER_CLOSED] =
			{ FENCE_GO(NONE, fence_release) },
		/* this event occurs only if a slice of a task waits for the
		 * fence */
		[RAIL_FENCE_EV_TIMED_OUT] = { FENCE_NEVER },
		[RAIL_FENCE_EV_UNNEEDED] = { FENCE_IGNORE },
		[RAIL_FENCE_EV_ALIVE] = { FENCE_IGNORE },
	},
	[RAIL_FENCE_WANTED] = {
		[RAIL_FENCE_EV_FAILED] = { FENCE_IGNORE },
		[RAIL_FENCE_EV_NEWER_FAILED] =
			{ FENCE_GO(WANTED, fence_start) },
		[RAIL_FENCE_EV_SENT] = { FENCE_GO(ASKED, fence_sent) },
		[RAIL_FENCE_EV_CLOSED] = { FENCE_GO(NONE, fence_release) },
		[RAIL_FENCE_EV_OLDER_CLOSED] =
			{ FENCE_GO(WANTED, fence_release) },
		[RAIL_FENCE_EV_TIMED_OUT] = { FENCE_GO(UNFENCED, NULL) },
		[RAIL_FENCE_EV_UNNEEDED] = { FENCE_GO(NONE, NULL) },
		[RAIL_FENCE_EV_ALIVE] = { FENCE_GO(WANTED, fence_hurry) },
	},
	[RAIL_FENCE_ASKED] = {
		[RAIL_FENCE_EV_FAILED] = { FENCE_IGNORE },
		[RAIL_FENCE_EV_NEWER_FAILED] =
			{ FENCE_GO(WANTED, fence_start) },
		[RAIL_FENCE_EV_SENT] = { FENCE_GO(ASKED, fence_sent) },
		[RAIL_FENCE_EV_CLOSED] = { FENCE_GO(NONE, fence_release) },
		[RAIL_FENCE_EV_OLDER_CLOSED] =
			{ FENCE_GO(ASKED, fence_release) },
		[RAIL_FENCE_EV_TIMED_OUT] = { FENCE_GO(UNFENCED, NULL) },
		[RAIL_FENCE_EV_UNNEEDED] = { FENCE_GO(NONE, NULL) },
		[RAIL_FENCE_EV_ALIVE] = { FENCE_GO(ASKED, fence_hurry) },
	},
	[RAIL_FENCE_UNFENCED] = {
		[RAIL_FENCE_EV_FAILED] = { FENCE_IGNORE },
		[RAIL_FENCE_EV_NEWER_FAILED] =
			{ FENCE_GO(UNFENCED, fence_start) },
		[RAIL_FENCE_EV_SENT] = { FENCE_GO(UNFENCED, fence_sent) },
		[RAIL_FENCE_EV_CLOSED] = { FENCE_GO(NONE, fence_release) },
		[RAIL_FENCE_EV_OLDER_CLOSED] =
			{ FENCE_GO(UNFENCED, fence_release) },
		[RAIL_FENCE_EV_TIMED_OUT] = { FENCE_IGNORE },
		[RAIL_FENCE_EV_UNNEEDED] = { FENCE_GO(DROPPED, NULL) },
		[RAIL_FENCE_EV_ALIVE] = { FENCE_GO(UNFENCED, fence_hurry) },
	},
	[RAIL_FENCE_DROPPED] = {
		/* nothing is posted to a peer that is gone, but a slice that
		 * was posted earlier may still fail and needs the fence */
		[RAIL_FENCE_EV_FAILED] = { FENCE_GO(UNFENCED, fence_start) },
		[RAIL_FENCE_EV_NEWER_FAILED] =
			{ FENCE_GO(UNFENCED, fence_start) },
		[RAIL_FENCE_EV_SENT] = { FENCE_IGNORE },
		[RAIL_FENCE_EV_CLOSED] = { FENCE_GO(NONE, fence_release) },
		[RAIL_FENCE_EV_OLDER_CLOSED] =
			{ FENCE_GO(DROPPED, fence_release) },
		[RAIL_FENCE_EV_TIMED_OUT] = { FENCE_IGNORE },
		[RAIL_FENCE_EV_UNNEEDED] = { FENCE_IGNORE },
		[RAIL_FENCE_EV_ALIVE] = { FENCE_IGNORE },
	},
};

static const char *const fence_states[RAIL_FENCE_STATES] = {
	"NONE", "WANTED", "ASKED", "UNFENCED", "DROPPED",
};
static const char *const fence_events[RAIL_FENCE_EVENTS] = {
	"FAILED",	"NEWER_FAILED", "SENT",	    "CLOSED",
	"OLDER_CLOSED", "TIMED_OUT",	"UNNEEDED", "ALIVE",
};

/* Returns the event that the transition tables use. FAILED becomes NEWER_FAILED
 * if gen is newer than the generation of the fence; CLOSED becomes OLDER_CLOSED
 * if gen is older. Returns other events unchanged. */
static enum rail_fence_event fence_classify(const struct rail_fence *f,
					    enum rail_fence_event event,
					    uint32_t gen)
{
	if (event == RAIL_FENCE_EV_FAILED && gen > f->gen)
		return RAIL_FENCE_EV_NEWER_FAILED;
	if (event == RAIL_FENCE_EV_CLOSED && gen < f->gen)
		return RAIL_FENCE_EV_OLDER_CLOSED;
	return event;
}

static bool fence_is_unfenced(enum rail_fence_state state)
{
	return state == RAIL_FENCE_UNFENCED || state == RAIL_FENCE_DROPPED;
}

/* Changes the state of the fence, and updates how many fences of the peer are
 * UNFENCED or DROPPED. */
static void fence_enter(struct tei_rail_peer *peer, struct rail_fence *f,
			enum rail_fence_state next)
	TEI_REQUIRES(rail_sched_held)
{
	peer->fence.unfenced += fence_is_unfenced(next);
	peer->fence.unfenced -= fence_is_unfenced(f->state);
	f->state = next;
}

void rail_fence_event(struct tei_rail_peer *peer, uint16_t remote,
		      enum rail_fence_event event,
		      const struct rail_fence_args *args)
{
	struct rail_fence *f = &peer->remotes[remote].fence;
	struct fence_call c = { .peer = peer, .fence = f, .remote = remote };
	const struct fence_transition *t;

	if (args)
		c.args = *args;
	event = fence_classify(f, event, c.args.gen);
	t = &fence_table[f->state][event];
	switch (t->reaction) {
	case RAIL_FENCE_TRANSITION:
		fence_enter(peer, f, t->next);
		if (t->action)
			t->action(&c);
		break;
	case RAIL_FENCE_IGNORED:
		break;
	case RAIL_FENCE_UNDEFINED:
	case RAIL_FENCE_IMPOSSIBLE:
		TEI_LOG_LIMITED(&peer->log.err_limit, TEI_LOG_ERROR, "rail",
				"peer %s: fence of remote rail %u: event %s is "
				"impossible in state %s",
				peer->name, remote, fence_events[event],
				fence_states[f->state]);
		break;
	}
}

enum rail_fence_reaction rail_fence_reacts(enum rail_fence_state state,
					   enum rail_fence_event event,
					   enum rail_fence_state *next)
{
	const struct fence_transition *t = &fence_table[state][event];

	if (t->reaction == RAIL_FENCE_TRANSITION)
		*next = t->next;
	return t->reaction;
}

bool rail_fence_any(const struct tei_rail_peer *peer)
{
	uint16_t i;

	for (i = 0; i < peer->nremotes; i++)
		if (rail_fence_outstanding(&peer->remotes[i].fence))
			return true;
	return false;
}

/* --- the target: actions ------------------------------------------------- */

/* Opens the lane if it is closed and its rail is open. Returns false if opening
 * the lane has failed. */
static bool fence_open_lane(struct rail_lane *lane)
{
	struct tei_err err;
	int ret = 0;

	tei_mutex_lock(&lane->lock);
	/* the thread that removes the rail clears rail->open before it closes
	 * the lanes */
	if (!lane->ep && __atomic_load_n(&lane->rail->open, __ATOMIC_ACQUIRE))
		ret = rail_lane_open(lane, &err);
	tei_mutex_unlock(&lane->lock);
	return !ret;
}

/* Opens the rx lane of a rail with FI_MR_ENDPOINT, and renews the registrations
 * that are bound to the endpoint. */
static void fence_open_bound(struct rail *rail) TEI_REQUIRES(rail->dp->admin)
{
	if (fence_open_lane(&rail->rx_lane))
		rail_mr_rebind(rail);
	else
		__atomic_store_n(&rail->link.lost, true, __ATOMIC_RELAXED);
}

/* Reports the result of opening the rx lane of a rail with FI_MR_ENDPOINT:
 * OPENED or FAILED. */
static void fence_report_bound(struct rail *rail)
{
	rail_fence_rx_event(rail, rail->rx_lane.ep ? RAIL_FENCE_RX_EV_OPENED
						   : RAIL_FENCE_RX_EV_FAILED);
}

/*
 * Replaces the rx lane of a rail with FI_MR_ENDPOINT, whose registrations are
 * bound to the endpoint and must be renewed with it. Acquires dp->admin, so it
 * may wait for a registration by another thread. Only devices with
 * FI_MR_ENDPOINT have this delay, and only after a failure.
 */
static void fence_renew_bound(struct rail *rail)
{
	tei_mutex_lock(&rail->dp->admin);
	rail_mr_unbind(rail);
	rail_lane_shutdown(&rail->rx_lane, false);
	rail_contact_lane_left(rail);
	fence_open_bound(rail);
	tei_mutex_unlock(&rail->dp->admin);
	/* if the lane is not open yet, it gets the next generation when it is
	 * opened */
	TEI_INFO("rail", "%s: rx lane fenced: its generation is now %u",
		 rail->name, rail->rx_lane.gen + !rail->rx_lane.ep);
	fence_report_bound(rail);
}

/* Closes the rx lane. If registrations are bound to the lane, does so on this
 * thread, otherwise on a closer thread. */
static void fence_close(struct rail *rail)
{
	if (rail->fab.mr_mode & FI_MR_ENDPOINT)
		fence_renew_bound(rail);
	else
		rail_lane_shutdown(&rail->rx_lane, true);
}

/* Starts to open the next rx lane, and makes the progress thread answer the
 * peers that wait for the fence. */
static void fence_closed(struct rail *rail)
{
	struct tei_rail_peer *p;

	TEI_INFO("rail", "%s: rx lane fenced: its generation is now %u",
		 rail->name, rail->rx_lane.gen + 1);
	rail_reopen_start(&rail->rx_lane);
	rail_contact_lane_left(rail);
	rail_sched_enter(rail->dp);
	tei_list_foreach (p, &rail->dp->peers.list, struct tei_rail_peer, link)
		if (rail_fence_answer_due(&p->fence))
			rail_peer_attend(p);
	rail_sched_leave(rail->dp);
}

/* Tries again to open the rx lane. rail_reopen.c limits the rate at which
 * failures are logged. */
static void fence_retry(struct rail *rail)
{
	if (!(rail->fab.mr_mode & FI_MR_ENDPOINT)) {
		rail_reopen_start(&rail->rx_lane);
		return;
	}
	tei_mutex_lock(&rail->dp->admin);
	fence_open_bound(rail);
	tei_mutex_unlock(&rail->dp->admin);
	fence_report_bound(rail);
}

/* Announces the new rail table to the peers. */
static void fence_announce(struct rail *rail)
{
	rail_peer_announce(rail->dp);
}

/* Announces the new address of the rx lane to the peers. */
static void fence_opened(struct rail *rail)
{
	TEI_DEBUG_LOG("rail", "%s: rx lane opened again, generation %u",
		      rail->name, rail->rx_lane.gen);
	fence_announce(rail);
}

/* --- the target: transitions --------------------------------------------- */

typedef void (*fence_rx_action_fn)(struct rail *rail);

struct fence_rx_transition {
	enum rail_fence_reaction reaction;
	enum rail_fence_rx_state next;
	fence_rx_action_fn action; /* NULL if the transition has no action */
};

#define FENCE_RX_GO(to, action) \
	RAIL_FENCE_TRANSITION, RAIL_FENCE_RX_##to, action
#define FENCE_RX_IGNORE RAIL_FENCE_IGNORED, RAIL_FENCE_RX_NONE, NULL
#define FENCE_RX_NEVER	RAIL_FENCE_IMPOSSIBLE, RAIL_FENCE_RX_NONE, NULL

static const struct fence_rx_transition
	fence_rx_table[RAIL_FENCE_RX_STATES][RAIL_FENCE_RX_EVENTS] = {
	[RAIL_FENCE_RX_NONE] = {
		[RAIL_FENCE_RX_EV_REQUESTED] =
			{ FENCE_RX_GO(CLOSING, fence_close) },
		[RAIL_FENCE_RX_EV_CLOSED] = { FENCE_RX_NEVER },
		[RAIL_FENCE_RX_EV_OPENED] = { FENCE_RX_NEVER },
		[RAIL_FENCE_RX_EV_FAILED] = { FENCE_RX_NEVER },
		/* RETRY is reported for each rail that is lost; here a tx lane
		 * is the reason, and the rx lane is open */
		[RAIL_FENCE_RX_EV_RETRY] = { FENCE_RX_IGNORE },
	},
	[RAIL_FENCE_RX_CLOSING] = {
		/* the peer is answered when the lane has been closed */
		[RAIL_FENCE_RX_EV_REQUESTED] = { FENCE_RX_IGNORE },
		[RAIL_FENCE_RX_EV_CLOSED] =
			{ FENCE_RX_GO(OPENING, fence_closed) },
		/* if registrations are bound to the endpoint, the lane is
		 * closed and opened in one step */
		[RAIL_FENCE_RX_EV_OPENED] = { FENCE_RX_GO(NONE, fence_opened) },
		[RAIL_FENCE_RX_EV_FAILED] =
			{ FENCE_RX_GO(CLOSED, fence_announce) },
		[RAIL_FENCE_RX_EV_RETRY] = { FENCE_RX_IGNORE },
	},
	[RAIL_FENCE_RX_OPENING] = {
		/* the requested generation is closed already */
		[RAIL_FENCE_RX_EV_REQUESTED] = { FENCE_RX_IGNORE },
		[RAIL_FENCE_RX_EV_CLOSED] = { FENCE_RX_NEVER },
		[RAIL_FENCE_RX_EV_OPENED] = { FENCE_RX_GO(NONE, fence_opened) },
		[RAIL_FENCE_RX_EV_FAILED] = { FENCE_RX_GO(CLOSED, NULL) },
		[RAIL_FENCE_RX_EV_RETRY] = { FENCE_RX_IGNORE },
	},
	[RAIL_FENCE_RX_CLOSED] = {
		/* the requested generation is closed already */
		[RAIL_FENCE_RX_EV_REQUESTED] = { FENCE_RX_IGNORE },
		[RAIL_FENCE_RX_EV_CLOSED] = { FENCE_RX_NEVER },
		[RAIL_FENCE_RX_EV_OPENED] = { FENCE_RX_NEVER },
		[RAIL_FENCE_RX_EV_FAILED] = { FENCE_RX_NEVER },
		[RAIL_FENCE_RX_EV_RETRY] =
			{ FENCE_RX_GO(OPENING, fence_retry) },
	},
};

static const char *const fence_rx_states[RAIL_FENCE_RX_STATES] = {
	"NONE",
	"CLOSING",
	"OPENING",
	"CLOSED",
};
static const char *const fence_rx_events[RAIL_FENCE_RX_EVENTS] = {
	"REQUESTED", "CLOSED", "OPENED", "FAILED", "RETRY",
};

void rail_fence_rx_event(struct rail *rail, enum rail_fence_rx_event event)
{
	const struct fence_rx_transition *t =
		&fence_rx_table[rail->fence_state][event];

	switch (t->reaction) {
	case RAIL_FENCE_TRANSITION:
		rail->fence_state = t->next;
		if (t->action)
			t->action(rail);
		break;
	case RAIL_FENCE_IGNORED:
		break;
	case RAIL_FENCE_UNDEFINED:
	case RAIL_FENCE_IMPOSSIBLE:
		TEI_LOG_LIMITED(&rail->errors.limit, TEI_LOG_ERROR, "rail",
				"%s: fence of the rx lane: event %s is "
				"impossible in state %s",
				rail->name, fence_rx_events[event],
				fence_rx_states[rail->fence_state]);
		break;
	}
}

enum rail_fence_reaction rail_fence_rx_reacts(enum rail_fence_rx_state state,
					      enum rail_fence_rx_event event,
					      enum rail_fence_rx_state *next)
{
	const struct fence_rx_transition *t = &fence_rx_table[state][event];

	if (t->reaction == RAIL_FENCE_TRANSITION)
		*next = t->next;
	return t->reaction;
}

/* --- the target: requests ------------------------------------------------ */

void rail_fence_requested(struct tei_rail_peer *peer, uint16_t rail,
			  uint32_t gen)
{
	peer->fence.due |= UINT64_C(1) << rail;
	peer->fence.due_gen[rail] = gen;
	rail_peer_attend(peer);
}

void rail_fence_answered(struct tei_rail_peer *peer, uint16_t rail,
			 uint32_t gen)
{
	/* if the peer has named a newer generation meanwhile, FENCED is still
	 * due */
	if (peer->fence.due_gen[rail] == gen)
		peer->fence.due &= ~(UINT64_C(1) << rail);
}

void rail_fence_no_answers(struct tei_rail_peer *peer)
{
	peer->fence.due = 0;
}

/* Returns true if the rx lane of a rail that is being removed is closed. */
static bool fence_removed(struct rail *rail)
{
	bool closed;

	tei_mutex_lock(&rail->rx_lane.lock);
	closed = !rail->rx_lane.ep && !rail_closing_under_way(&rail->rx_lane);
	tei_mutex_unlock(&rail->rx_lane.lock);
	return closed;
}

uint32_t rail_fence_request(struct rail *rail, uint32_t gen)
{
	/* without the lock, because only the progress thread changes the rx
	 * lane of an open rail */
	uint32_t now = rail->rx_lane.gen;

	if (now > gen)
		return now;
	if (!__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
		return fence_removed(rail) ? gen + 1 : 0;
	rail_fence_rx_event(rail, RAIL_FENCE_RX_EV_REQUESTED);
	switch (rail->fence_state) {
	case RAIL_FENCE_RX_CLOSING:
		return 0;
	case RAIL_FENCE_RX_NONE:
		return rail->rx_lane.gen;
	default: /* the lane that is opened next gets the next generation */
		return gen + 1;
	}
}

/* Collects the rx lane if a closer thread has closed it. Returns true if the
 * lane was collected. */
static bool fence_collect_closed(struct rail_lane *lane)
{
	struct tei_list none;
	bool over;

	if (!rail_closing_under_way(lane))
		return false;
	tei_list_init(&none);
	tei_mutex_lock(&lane->lock);
	over = rail_closing_collect(lane, &none);
	tei_mutex_unlock(&lane->lock);
	return over;
}

void rail_fence_run(struct tei_rail_dp *dp)
{
	struct rail *rail;
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		if (fence_collect_closed(&rail->rx_lane))
			rail_fence_rx_event(rail, RAIL_FENCE_RX_EV_CLOSED);
	}
}

void rail_fence_collect(struct rail *rail)
{
	uint32_t what = rail_health_collect(rail);

	if (what & RAIL_REOPENED_RX)
		rail_fence_rx_event(rail, RAIL_FENCE_RX_EV_OPENED);
	if (what & RAIL_REOPEN_RX_FAILED)
		rail_fence_rx_event(rail, RAIL_FENCE_RX_EV_FAILED);
}

bool rail_fence_rx_any(struct tei_rail_dp *dp)
{
	struct rail *rail;
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		if (__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE) &&
		    (rail->fence_state == RAIL_FENCE_RX_CLOSING ||
		     rail->fence_state == RAIL_FENCE_RX_OPENING))
			return true;
	}
	return false;
}

/* Returns true if at least one rx lane is still being closed. */
static bool fence_closes(struct tei_rail_dp *dp)
{
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++)
		if (rail_closing_under_way(&rail_at(dp, i)->rx_lane))
			return true;
	return false;
}

void rail_fence_regions(struct tei_rail_dp *dp)
{
	bool wanted = false;
	uint32_t i;

	if (!__atomic_load_n(&dp->memory.nfencing, __ATOMIC_ACQUIRE))
		return;
	/* a fence does not cover regions that are withdrawn after it has
	 * begun */
	rail_sched_enter(dp);
	for (i = 0; i < dp->memory.mrs.n; i++) {
		if (rail_mr_at(dp, i)->fence != RAIL_MR_FENCE_WANTED)
			continue;
		rail_mr_at(dp, i)->fence = RAIL_MR_FENCING;
		wanted = true;
	}
	rail_sched_leave(dp);
	for (i = 0; wanted && i < rail_count(dp); i++)
		if (rail_at(dp, i)->rx_lane.ep)
			rail_fence_request(rail_at(dp, i),
					   rail_at(dp, i)->rx_lane.gen);
	if (fence_closes(dp))
		return;
	rail_sched_enter(dp);
	for (i = 0; i < dp->memory.mrs.n; i++)
		if (rail_mr_at(dp, i)->fence == RAIL_MR_FENCING)
			rail_mr_at(dp, i)->fence = RAIL_MR_NO_FENCE;
	rail_sched_leave(dp);
	rail_progress_signal(dp);
}
