/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/sim/sim_fence.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim.h"
#include "util/list.h"

#define FENCE_BUCKETS	4096
/* generation that no rx lane has: all generations are closed */
#define FENCE_ALL	UINT32_MAX

/* The states of the model's variable in[].fence. */
enum fence_state { FENCE_NONE, FENCE_ASKED, FENCE_UNFENCED };
/* The states of the model's variable rx[]. */
enum fence_rx { FENCE_RX_CLOSED, FENCE_RX_OPEN, FENCE_RX_CLOSING };

/*
 * The automaton of one initiator and one rail of a target. For the automaton of
 * the rail itself, the initiator is 0.
 */
struct fence_unit {
	struct tei_list link;		/* in fence.bucket[] */
	uint64_t initiator, target;
	uint32_t rail;

	/* of the rail: model variables rx[] and gen[] */
	enum fence_rx rx;
	uint32_t rx_gen;		/* 0: the rail was never open */

	/* of the initiator */
	enum fence_state state;		/* model variable in[].fence */
	uint32_t gen;			/* model variable in[].fence_gen: newest
					 * generation to which a slice failed */
	uint32_t learned;		/* model variable in[].gen: generations
					 * below it are closed */
	bool withdrawn;			/* RAIL_OVER has occurred: the initiator
					 * does not know the generations that it
					 * has closed, so it may still request a
					 * fence for them, which does no
					 * harm */
	uint64_t waiting;		/* number of slices that wait for the
					 * fence (T_FENCING) */
	uint32_t sent;			/* newest generation that a FENCE has
					 * named */
	uint32_t due;			/* model variable due[]: generation of a
					 * FENCE that is not answered, or 0 */
	uint32_t due_before;		/* generation of the FENCE before that
					 * one, if FENCED for it may still be
					 * sent, or 0 */
	uint32_t answered;		/* newest generation that a FENCED has
					 * named */
};

static struct {
	struct tei_list bucket[FENCE_BUCKETS];
	struct sim_fence_stats stats;
} fence;

static struct tei_list *fence_bucket(uint64_t initiator, uint64_t target,
				     uint32_t rail)
{
	uint64_t x = (initiator * 31 + target) * 31 + rail;

	return &fence.bucket[(x * UINT64_C(0x9e3779b97f4a7c15)) >> 52];
}

static struct fence_unit *fence_unit_get(uint64_t initiator, uint64_t target,
					 uint32_t rail)
{
	struct tei_list *bucket = fence_bucket(initiator, target, rail);
	struct fence_unit *u;

	tei_list_foreach (u, bucket, struct fence_unit, link)
		if (u->initiator == initiator && u->target == target &&
		    u->rail == rail)
			return u;
	u = calloc(1, sizeof(*u));
	if (!u)
		sim_fail("no memory for an automaton of the fence");
	u->initiator = initiator;
	u->target = target;
	u->rail = rail;
	tei_list_add_tail(bucket, &u->link);
	return u;
}

void sim_fence_begin(void)
{
	size_t i;

	memset(&fence, 0, sizeof(fence));
	for (i = 0; i < FENCE_BUCKETS; i++)
		tei_list_init(&fence.bucket[i]);
}

void sim_fence_end(void)
{
	struct fence_unit *u;
	size_t i;

	for (i = 0; i < FENCE_BUCKETS; i++)
		while (!tei_list_empty(&fence.bucket[i])) {
			u = tei_list_first(&fence.bucket[i], struct fence_unit,
					   link);
			tei_list_del(&u->link);
			free(u);
		}
}

const struct sim_fence_stats *sim_fence_stats(void)
{
	return &fence.stats;
}

/* --- the initiator's events --- */

/* u: automaton of the initiator; rx: automaton of the target's rail. */
typedef const char *(*fence_step_fn)(struct fence_unit *u,
				     struct fence_unit *rx,
				     const struct sim_fence_event *e);

/* Handles that the initiator knows that all generations below upto are
 * closed. */
static void unit_learn(struct fence_unit *u, uint32_t upto, uint64_t *count)
{
	if (u->learned < upto)
		u->learned = upto;
	if (u->state == FENCE_NONE || u->gen >= upto)
		return;
	u->state = FENCE_NONE;
	(*count)++;
}

static const char *step_failed(struct fence_unit *u, struct fence_unit *rx,
			       const struct sim_fence_event *e)
{
	(void)rx;
	if (e->gen > u->learned)
		return "the slice was posted to a generation that the initiator does not know";
	u->waiting++;
	if (u->learned > e->gen && !u->withdrawn)
		return NULL;
	if (u->state == FENCE_NONE) {
		u->state = FENCE_ASKED;
		fence.stats.requested++;
	}
	if (u->gen < e->gen)
		u->gen = e->gen;
	return NULL;
}

static const char *step_released(struct fence_unit *u, struct fence_unit *rx,
				 const struct sim_fence_event *e)
{
	(void)rx;
	if (!u->waiting)
		return "no slice waits for the fence";
	if (u->learned <= e->gen)
		return "the initiator does not know that the slice's generation is closed";
	u->waiting--;
	return NULL;
}

static const char *step_unfenced(struct fence_unit *u, struct fence_unit *rx,
				 const struct sim_fence_event *e)
{
	(void)rx;
	if (!u->waiting)
		return "no slice waits for the fence";
	if (u->state == FENCE_NONE || u->learned > e->gen)
		return "the slice's generation is closed, so its task is not unfenced";
	u->state = FENCE_UNFENCED;
	u->waiting--;
	fence.stats.unfenced++;
	return NULL;
}

static const char *step_sent(struct fence_unit *u, struct fence_unit *rx,
			     const struct sim_fence_event *e)
{
	(void)rx;
	if (u->state == FENCE_NONE)
		return "no fence is requested";
	if (e->gen != u->gen)
		return "FENCE does not name the newest generation with a failed slice";
	u->sent = e->gen;
	return NULL;
}

static const char *step_forgotten(struct fence_unit *u, struct fence_unit *rx,
				  const struct sim_fence_event *e)
{
	(void)rx, (void)e;
	if (u->waiting)
		return "a slice waits for the fence";
	if (u->state != FENCE_ASKED)
		return NULL;
	u->state = FENCE_NONE;
	fence.stats.forgotten++;
	return NULL;
}

static const char *step_replied(struct fence_unit *u, struct fence_unit *rx,
				const struct sim_fence_event *e)
{
	(void)rx;
	return e->now > u->answered ? "the target has not sent this FENCED" :
				      NULL;
}

static const char *step_learned(struct fence_unit *u, struct fence_unit *rx,
				const struct sim_fence_event *e)
{
	if (e->now > rx->rx_gen + (rx->rx == FENCE_RX_CLOSED))
		return "the target has not closed this generation";
	unit_learn(u, e->now, &fence.stats.closed);
	return NULL;
}

static const char *step_over(struct fence_unit *u, struct fence_unit *rx,
			     const struct sim_fence_event *e)
{
	(void)e;
	if (rx->rx != FENCE_RX_CLOSED) {
		if (u->waiting || u->state != FENCE_NONE)
			return "the target's process has not ended";
		return NULL;
	}
	unit_learn(u, FENCE_ALL, &fence.stats.over);
	return NULL;
}

static const char *step_rail_over(struct fence_unit *u, struct fence_unit *rx,
				  const struct sim_fence_event *e)
{
	(void)e;
	/* the target may have opened the rail again meanwhile, and then the
	 * generation is newer than those that the initiator knows */
	if (rx->rx != FENCE_RX_CLOSED && u->learned >= rx->rx_gen)
		return "the target has not closed the rail";
	unit_learn(u, rx->rx_gen + (rx->rx == FENCE_RX_CLOSED),
		   &fence.stats.closed);
	u->withdrawn = true;
	return NULL;
}

/* --- the target's events --- */

static const char *step_asked(struct fence_unit *u, struct fence_unit *rx,
			      const struct sim_fence_event *e)
{
	if (e->gen > u->sent)
		return "the initiator has not sent this FENCE";
	if (e->gen > rx->rx_gen)
		return "the generation does not exist yet";
	if (u->due && u->due != e->gen)
		u->due_before = u->due;
	u->due = e->gen;
	return NULL;
}

static const char *step_answered(struct fence_unit *u, struct fence_unit *rx,
				 const struct sim_fence_event *e)
{
	if (!e->gen || (u->due != e->gen && u->due_before != e->gen))
		return "no FENCE for this generation is due";
	if (rx->rx_gen > e->gen) {
		if (e->now != rx->rx_gen)
			return "FENCED does not name the present generation";
	} else {
		if (rx->rx != FENCE_RX_CLOSED)
			return "the target has not closed the lane";
		if (e->now != e->gen + 1)
			return "FENCED does not name the next generation";
	}
	if (u->answered < e->now)
		u->answered = e->now;
	return NULL;
}

static const char *step_settled(struct fence_unit *u, struct fence_unit *rx,
				const struct sim_fence_event *e)
{
	(void)rx;
	if (u->due == e->gen)
		u->due = 0;
	u->due_before = 0;
	return NULL;
}

static const char *step_left(struct fence_unit *u, struct fence_unit *rx,
			     const struct sim_fence_event *e)
{
	(void)u, (void)e;
	return rx->rx != FENCE_RX_CLOSED ? "the target has not closed the lane" :
					   NULL;
}

static const char *step_closing(struct fence_unit *u, struct fence_unit *rx,
				const struct sim_fence_event *e)
{
	(void)u, (void)e;
	if (rx->rx != FENCE_RX_OPEN)
		return "the lane is not open";
	rx->rx = FENCE_RX_CLOSING;
	return NULL;
}

static const char *step_closed(struct fence_unit *u, struct fence_unit *rx,
			       const struct sim_fence_event *e)
{
	(void)u, (void)e;
	if (rx->rx == FENCE_RX_CLOSED)
		return "the lane is closed already";
	rx->rx = FENCE_RX_CLOSED;
	return NULL;
}

static const char *step_opened(struct fence_unit *u, struct fence_unit *rx,
			       const struct sim_fence_event *e)
{
	(void)u;
	if (rx->rx != FENCE_RX_CLOSED)
		return "the lane of the previous generation is not closed";
	if (e->gen != rx->rx_gen + 1)
		return "the generation does not follow the previous one";
	rx->rx = FENCE_RX_OPEN;
	rx->rx_gen = e->gen;
	return NULL;
}

/* --- all events --- */

static const struct {
	const char *name;
	fence_step_fn step;
} fence_kinds[SIM_FENCE_KINDS] = {
	[SIM_FENCE_FAILED] = { "FAILED", step_failed },
	[SIM_FENCE_RELEASED] = { "RELEASED", step_released },
	[SIM_FENCE_UNFENCED] = { "UNFENCED", step_unfenced },
	[SIM_FENCE_SENT] = { "SENT", step_sent },
	[SIM_FENCE_FORGOTTEN] = { "FORGOTTEN", step_forgotten },
	[SIM_FENCE_REPLIED] = { "REPLIED", step_replied },
	[SIM_FENCE_LEARNED] = { "LEARNED", step_learned },
	[SIM_FENCE_OVER] = { "OVER", step_over },
	[SIM_FENCE_RAIL_OVER] = { "RAIL_OVER", step_rail_over },
	[SIM_FENCE_ASKED] = { "ASKED", step_asked },
	[SIM_FENCE_ANSWERED] = { "ANSWERED", step_answered },
	[SIM_FENCE_SETTLED] = { "SETTLED", step_settled },
	[SIM_FENCE_LEFT] = { "LEFT", step_left },
	[SIM_FENCE_CLOSING] = { "CLOSING", step_closing },
	[SIM_FENCE_CLOSED] = { "CLOSED", step_closed },
	[SIM_FENCE_OPENED] = { "OPENED", step_opened },
};

const char *sim_fence_cut(uint64_t initiator, uint64_t target, uint32_t rail,
			  uint32_t gen)
{
	const struct fence_unit *u = fence_unit_get(initiator, target, rail);

	return gen < u->learned && !u->withdrawn ?
		       "the initiator knows that this generation is closed" :
		       NULL;
}

bool sim_fence_outstanding(uint64_t initiator, uint64_t target, uint32_t rail)
{
	const struct fence_unit *u = fence_unit_get(initiator, target, rail);

	/* If the initiator has freed its peer object of the target and created
	 * another one, the acceptor has no open fence between the two
	 * processes. This is no error, because no slice waits for a fence. */
	return u->state != FENCE_NONE && u->waiting && !u->withdrawn;
}

const char *sim_fence_name(enum sim_fence_kind kind)
{
	return fence_kinds[kind].name;
}

const char *sim_fence_accept(const struct sim_fence_event *event)
{
	const char *broken = fence_kinds[event->kind].step(
		fence_unit_get(event->initiator, event->target, event->rail),
		fence_unit_get(0, event->target, event->rail), event);

	fence.stats.events += !broken;
	return broken;
}
