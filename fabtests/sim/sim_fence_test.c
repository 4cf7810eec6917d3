/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests that the acceptor of fence events refuses the orders of events that the
 * model of the fence forbids, also if they are planted in a recorded trace. */
#include <string.h>

#include "fabtests/sim/sim_fence.h"
#include "fabtests/sim/sim_test.h"

#define INITIATOR	1
#define TARGET		2
#define RAIL		3

/* Performs an event of the tested initiator and target. Returns true if the
 * acceptor accepts it. */
static bool fence_does(enum sim_fence_kind kind, uint32_t gen, uint32_t now)
{
	return !sim_fence_accept(&(struct sim_fence_event){
		.kind = kind,
		.initiator = INITIATOR,
		.target = TARGET,
		.rail = RAIL,
		.gen = gen,
		.now = now,
	});
}

#define ACCEPTED(kind, gen, now)	\
	CU_ASSERT_TRUE(fence_does(SIM_FENCE_##kind, gen, now))
#define REFUSED(kind, gen, now)	\
	CU_ASSERT_FALSE(fence_does(SIM_FENCE_##kind, gen, now))

/* A slice that was posted to generation 1 has failed, and FENCE has arrived at
 * the target. */
static void fence_to_asked(void)
{
	sim_fence_begin();
	ACCEPTED(OPENED, 1, 0);
	ACCEPTED(LEARNED, 0, 1);
	ACCEPTED(FAILED, 1, 0);
	ACCEPTED(SENT, 1, 0);
	ACCEPTED(ASKED, 1, 0);
}

static void fence_to_closed(void)
{
	fence_to_asked();
	ACCEPTED(CLOSING, 0, 0);
	ACCEPTED(CLOSED, 0, 0);
}

static void complete_fence_is_accepted(void)
{
	fence_to_closed();
	ACCEPTED(ANSWERED, 1, 2);
	ACCEPTED(SETTLED, 1, 0);
	ACCEPTED(REPLIED, 1, 2);
	ACCEPTED(LEARNED, 0, 2);
	ACCEPTED(RELEASED, 1, 0);
	ACCEPTED(OPENED, 2, 0);
	CU_ASSERT_EQUAL(sim_fence_stats()->requested, 1);
	CU_ASSERT_EQUAL(sim_fence_stats()->closed, 1);
	CU_ASSERT_EQUAL(sim_fence_stats()->events, 13);
	sim_fence_end();
}

static void slice_and_fence_know_closed_generations(void)
{
	fence_to_closed();
	CU_ASSERT_PTR_NULL(sim_fence_cut(INITIATOR, TARGET, RAIL, 1));
	CU_ASSERT_TRUE(sim_fence_outstanding(INITIATOR, TARGET, RAIL));
	ACCEPTED(ANSWERED, 1, 2);
	ACCEPTED(LEARNED, 0, 1);
	CU_ASSERT_TRUE(sim_fence_outstanding(INITIATOR, TARGET, RAIL));
	ACCEPTED(LEARNED, 0, 2);
	CU_ASSERT_FALSE(sim_fence_outstanding(INITIATOR, TARGET, RAIL));
	CU_ASSERT_PTR_NOT_NULL(sim_fence_cut(INITIATOR, TARGET, RAIL, 1));
	CU_ASSERT_PTR_NULL(sim_fence_cut(INITIATOR, TARGET, RAIL, 2));
	/* the initiator does not know which generations of a withdrawn rail are
	 * closed */
	ACCEPTED(RAIL_OVER, 0, 0);
	CU_ASSERT_PTR_NULL(sim_fence_cut(INITIATOR, TARGET, RAIL, 1));
	sim_fence_end();
}

static void answer_before_lane_is_closed_is_refused(void)
{
	fence_to_asked();
	REFUSED(ANSWERED, 1, 2);
	ACCEPTED(CLOSING, 0, 0);
	REFUSED(ANSWERED, 1, 2);
	ACCEPTED(CLOSED, 0, 0);
	ACCEPTED(ANSWERED, 1, 2);
	sim_fence_end();
}

static void answer_without_request_is_refused(void)
{
	fence_to_closed();
	REFUSED(ANSWERED, 2, 3);
	REFUSED(ANSWERED, 1, 3);
	ACCEPTED(ANSWERED, 1, 2);
	ACCEPTED(SETTLED, 1, 0);
	REFUSED(ANSWERED, 1, 2);
	sim_fence_end();
}

static void release_before_answer_is_refused(void)
{
	fence_to_asked();
	REFUSED(RELEASED, 1, 0);
	ACCEPTED(CLOSING, 0, 0);
	ACCEPTED(CLOSED, 0, 0);
	ACCEPTED(ANSWERED, 1, 2);
	REFUSED(RELEASED, 1, 0);
	ACCEPTED(LEARNED, 0, 2);
	ACCEPTED(RELEASED, 1, 0);
	REFUSED(RELEASED, 1, 0);
	sim_fence_end();
}

static void learning_of_open_generation_is_refused(void)
{
	fence_to_asked();
	REFUSED(LEARNED, 0, 2);
	ACCEPTED(CLOSING, 0, 0);
	REFUSED(LEARNED, 0, 2);
	REFUSED(RAIL_OVER, 0, 0);
	REFUSED(OVER, 0, 0);
	sim_fence_end();
}

static void older_answer_ends_no_newer_fence(void)
{
	fence_to_closed();
	ACCEPTED(ANSWERED, 1, 2);
	ACCEPTED(OPENED, 2, 0);
	ACCEPTED(LEARNED, 0, 2);
	ACCEPTED(RELEASED, 1, 0);
	ACCEPTED(FAILED, 2, 0);
	ACCEPTED(SENT, 2, 0);
	/* FENCED of the earlier fence arrives a second time */
	ACCEPTED(REPLIED, 1, 2);
	ACCEPTED(LEARNED, 0, 2);
	REFUSED(RELEASED, 2, 0);
	REFUSED(FORGOTTEN, 0, 0);
	sim_fence_end();
}

static void unfenced_end_needs_an_open_fence(void)
{
	fence_to_closed();
	ACCEPTED(LEARNED, 0, 2);
	REFUSED(UNFENCED, 1, 0);
	sim_fence_end();
	fence_to_asked();
	ACCEPTED(UNFENCED, 1, 0);
	ACCEPTED(SENT, 1, 0);
	CU_ASSERT_EQUAL(sim_fence_stats()->closed, 0);
	ACCEPTED(CLOSED, 0, 0);
	ACCEPTED(LEARNED, 0, 2);
	CU_ASSERT_EQUAL(sim_fence_stats()->closed, 1);
	sim_fence_end();
}

static void silent_process_counts_as_ended_is_refused(void)
{
	fence_to_asked();
	REFUSED(OVER, 0, 0);
	ACCEPTED(CLOSED, 0, 0);
	ACCEPTED(OVER, 0, 0);
	ACCEPTED(RELEASED, 1, 0);
	sim_fence_end();
}

static void bye_before_lane_is_closed_is_refused(void)
{
	fence_to_asked();
	REFUSED(LEFT, 0, 0);
	REFUSED(OVER, 0, 0);
	ACCEPTED(CLOSING, 0, 0);
	REFUSED(LEFT, 0, 0);
	ACCEPTED(CLOSED, 0, 0);
	ACCEPTED(LEFT, 0, 0);
	ACCEPTED(OVER, 0, 0);
	ACCEPTED(RELEASED, 1, 0);
	CU_ASSERT_EQUAL(sim_fence_stats()->over, 1);
	sim_fence_end();
}

static void removed_peer_without_fence_is_ignored(void)
{
	sim_fence_begin();
	ACCEPTED(OPENED, 1, 0);
	ACCEPTED(LEARNED, 0, 1);
	ACCEPTED(OVER, 0, 0);
	ACCEPTED(FAILED, 1, 0);
	REFUSED(OVER, 0, 0);
	REFUSED(RELEASED, 1, 0);
	sim_fence_end();
}

static void answer_may_follow_the_next_request(void)
{
	fence_to_closed();
	ACCEPTED(OPENED, 2, 0);
	ACCEPTED(LEARNED, 0, 2);
	ACCEPTED(RELEASED, 1, 0);
	ACCEPTED(FAILED, 2, 0);
	ACCEPTED(SENT, 2, 0);
	ACCEPTED(ASKED, 2, 0);
	ACCEPTED(ANSWERED, 1, 2);
	REFUSED(ANSWERED, 2, 3);
	ACCEPTED(SETTLED, 1, 0);
	REFUSED(ANSWERED, 1, 2);
	sim_fence_end();
}

static void unsent_messages_are_refused(void)
{
	fence_to_asked();
	REFUSED(REPLIED, 1, 2);
	REFUSED(ASKED, 2, 0);
	REFUSED(SENT, 2, 0);
	sim_fence_end();
}

static void reopened_generation_is_refused(void)
{
	fence_to_asked();
	REFUSED(OPENED, 2, 0);
	ACCEPTED(CLOSING, 0, 0);
	REFUSED(CLOSING, 0, 0);
	REFUSED(OPENED, 2, 0);
	ACCEPTED(CLOSED, 0, 0);
	REFUSED(OPENED, 1, 0);
	ACCEPTED(OPENED, 2, 0);
	sim_fence_end();
}

/* --- planted faults ------------------------------------------------------ */

/*
 * The trace of a simulation with two hosts, each of which closes its rx lane once
 * for the other one, and which then leave. The program has written it:
 * simulate --seed=3 --hosts=2 --rails=1 --sim=9 --errors=30000 --rate=200
 *	--workers=3 --faults=0 --fences=FILE
 */
static const struct sim_fence_event trace[] = {
	{ SIM_FENCE_OPENED, 0, 0x1001, 0, 1, 0 },
	{ SIM_FENCE_OPENED, 0, 0x1002, 0, 1, 0 },
	{ SIM_FENCE_LEARNED, 0x1001, 0x1002, 0, 0, 1 },
	{ SIM_FENCE_LEARNED, 0x1002, 0x1001, 0, 0, 1 },
	{ SIM_FENCE_FAILED, 0x1001, 0x1002, 0, 1, 0 },
	{ SIM_FENCE_SENT, 0x1001, 0x1002, 0, 1, 0 },
	{ SIM_FENCE_SENT, 0x1001, 0x1002, 0, 1, 0 },
	{ SIM_FENCE_ASKED, 0x1001, 0x1002, 0, 1, 0 },
	{ SIM_FENCE_CLOSING, 0, 0x1002, 0, 0, 0 },
	{ SIM_FENCE_CLOSED, 0, 0x1002, 0, 0, 0 },
	{ SIM_FENCE_ANSWERED, 0x1001, 0x1002, 0, 1, 2 },
	{ SIM_FENCE_SETTLED, 0x1001, 0x1002, 0, 1, 0 },
	{ SIM_FENCE_OPENED, 0, 0x1002, 0, 2, 0 },
	{ SIM_FENCE_REPLIED, 0x1001, 0x1002, 0, 1, 2 },
	{ SIM_FENCE_LEARNED, 0x1001, 0x1002, 0, 0, 2 },
	{ SIM_FENCE_LEARNED, 0x1001, 0x1002, 0, 0, 2 },
	{ SIM_FENCE_RELEASED, 0x1001, 0x1002, 0, 1, 0 },
	{ SIM_FENCE_FAILED, 0x1002, 0x1001, 0, 1, 0 },
	{ SIM_FENCE_SENT, 0x1002, 0x1001, 0, 1, 0 },
	{ SIM_FENCE_FAILED, 0x1002, 0x1001, 0, 1, 0 },
	{ SIM_FENCE_SENT, 0x1002, 0x1001, 0, 1, 0 },
	{ SIM_FENCE_ASKED, 0x1002, 0x1001, 0, 1, 0 },
	{ SIM_FENCE_CLOSING, 0, 0x1001, 0, 0, 0 },
	{ SIM_FENCE_CLOSED, 0, 0x1001, 0, 0, 0 },
	{ SIM_FENCE_ANSWERED, 0x1002, 0x1001, 0, 1, 2 },
	{ SIM_FENCE_SETTLED, 0x1002, 0x1001, 0, 1, 0 },
	{ SIM_FENCE_OPENED, 0, 0x1001, 0, 2, 0 },
	{ SIM_FENCE_REPLIED, 0x1002, 0x1001, 0, 1, 2 },
	{ SIM_FENCE_LEARNED, 0x1002, 0x1001, 0, 0, 2 },
	{ SIM_FENCE_LEARNED, 0x1002, 0x1001, 0, 0, 2 },
	{ SIM_FENCE_RELEASED, 0x1002, 0x1001, 0, 1, 0 },
	{ SIM_FENCE_RELEASED, 0x1002, 0x1001, 0, 1, 0 },
	{ SIM_FENCE_CLOSED, 0, 0x1002, 0, 0, 0 },
	{ SIM_FENCE_LEFT, 0x1001, 0x1002, 0, 0, 0 },
	{ SIM_FENCE_CLOSED, 0, 0x1001, 0, 0, 0 },
	{ SIM_FENCE_LEFT, 0x1002, 0x1001, 0, 0, 0 },
};

#define TRACE	(sizeof(trace) / sizeof(trace[0]))

/* Passes the events to a new acceptor. Returns the index of the first event that
 * it refuses, or n if it accepts all. */
static size_t trace_accepted(const struct sim_fence_event *events, size_t n)
{
	size_t i;

	sim_fence_begin();
	for (i = 0; i < n; i++)
		if (sim_fence_accept(&events[i]))
			break;
	sim_fence_end();
	return i;
}

/* Returns the index of the first event of that kind in the trace. */
static size_t trace_first(enum sim_fence_kind kind)
{
	size_t i = 0;

	while (i < TRACE && trace[i].kind != kind)
		i++;
	CU_ASSERT_FATAL(i < TRACE);
	return i;
}

/* Moves the first event of kind `kind` to the place of the first event of kind
 * `before`. Returns true if the acceptor refuses the moved event. */
static bool trace_moved_is_refused(enum sim_fence_kind kind,
				   enum sim_fence_kind before)
{
	size_t from = trace_first(kind), to = trace_first(before);
	struct sim_fence_event planted[TRACE];

	memcpy(planted, trace, sizeof(trace));
	memmove(planted + to + 1, planted + to, (from - to) * sizeof(*planted));
	planted[to] = trace[from];
	return trace_accepted(planted, TRACE) == to;
}

/* Removes the first event of kind `kind`. Returns true if the acceptor then
 * refuses the first event of kind `next`. */
static bool trace_without_is_refused(enum sim_fence_kind kind,
				     enum sim_fence_kind next)
{
	struct sim_fence_event planted[TRACE];
	size_t at = trace_first(kind);

	memcpy(planted, trace, at * sizeof(*planted));
	memcpy(planted + at, trace + at + 1,
	       (TRACE - at - 1) * sizeof(*planted));
	return trace_accepted(planted, TRACE - 1) == trace_first(next) - 1;
}

static void recorded_trace_is_accepted(void)
{
	CU_ASSERT_EQUAL(trace_accepted(trace, TRACE), TRACE);
}

static void planted_answer_before_closing_is_refused(void)
{
	CU_ASSERT_TRUE(trace_moved_is_refused(SIM_FENCE_ANSWERED,
					      SIM_FENCE_CLOSING));
	CU_ASSERT_TRUE(trace_moved_is_refused(SIM_FENCE_ANSWERED,
					      SIM_FENCE_CLOSED));
	CU_ASSERT_TRUE(trace_moved_is_refused(SIM_FENCE_ANSWERED,
					      SIM_FENCE_ASKED));
}

static void planted_post_before_answer_is_refused(void)
{
	CU_ASSERT_TRUE(trace_moved_is_refused(SIM_FENCE_RELEASED,
					      SIM_FENCE_SENT));
	CU_ASSERT_TRUE(trace_moved_is_refused(SIM_FENCE_RELEASED,
					      SIM_FENCE_ANSWERED));
	CU_ASSERT_TRUE(trace_moved_is_refused(SIM_FENCE_RELEASED,
					      SIM_FENCE_REPLIED));
}

static void planted_loss_of_an_event_is_refused(void)
{
	CU_ASSERT_TRUE(trace_without_is_refused(SIM_FENCE_CLOSED,
						SIM_FENCE_ANSWERED));
	CU_ASSERT_TRUE(trace_without_is_refused(SIM_FENCE_ASKED,
						SIM_FENCE_ANSWERED));
	CU_ASSERT_TRUE(trace_without_is_refused(SIM_FENCE_ANSWERED,
						SIM_FENCE_REPLIED));
	CU_ASSERT_TRUE(trace_without_is_refused(SIM_FENCE_FAILED,
						SIM_FENCE_SENT));
}

static void planted_generation_is_refused(void)
{
	static const enum sim_fence_kind kinds[] = {
		SIM_FENCE_OPENED, SIM_FENCE_FAILED, SIM_FENCE_SENT,
		SIM_FENCE_ASKED, SIM_FENCE_ANSWERED, SIM_FENCE_RELEASED,
	};
	struct sim_fence_event planted[TRACE];
	size_t i, at;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		at = trace_first(kinds[i]);
		memcpy(planted, trace, sizeof(trace));
		planted[at].gen++;
		CU_ASSERT_EQUAL(trace_accepted(planted, TRACE), at);
	}
}

/* The target withdraws the rail and closes its lane. A slice that fails later
 * may request a fence, although its generation is closed. */
static void fence_of_withdrawn_rail_is_accepted(void)
{
	sim_fence_begin();
	ACCEPTED(OPENED, 1, 0);
	ACCEPTED(LEARNED, 0, 1);
	REFUSED(SENT, 1, 0);
	ACCEPTED(CLOSING, 0, 0);
	ACCEPTED(CLOSED, 0, 0);
	ACCEPTED(RAIL_OVER, 0, 0);
	REFUSED(SENT, 1, 0);
	ACCEPTED(FAILED, 1, 0);
	ACCEPTED(SENT, 1, 0);
	ACCEPTED(ASKED, 1, 0);
	ACCEPTED(ANSWERED, 1, 2);
	ACCEPTED(REPLIED, 1, 2);
	ACCEPTED(LEARNED, 0, 2);
	ACCEPTED(RELEASED, 1, 0);
	REFUSED(SENT, 1, 0);
	sim_fence_end();
}

const struct tei_test_case sim_fence_cases[] = {
	{ "complete_fence_is_accepted", complete_fence_is_accepted },
	{ "slice_and_fence_know_closed_generations",
	  slice_and_fence_know_closed_generations },
	{ "answer_before_lane_is_closed_is_refused",
	  answer_before_lane_is_closed_is_refused },
	{ "answer_without_request_is_refused",
	  answer_without_request_is_refused },
	{ "release_before_answer_is_refused",
	  release_before_answer_is_refused },
	{ "learning_of_open_generation_is_refused",
	  learning_of_open_generation_is_refused },
	{ "older_answer_ends_no_newer_fence",
	  older_answer_ends_no_newer_fence },
	{ "unfenced_end_needs_an_open_fence",
	  unfenced_end_needs_an_open_fence },
	{ "silent_process_counts_as_ended_is_refused",
	  silent_process_counts_as_ended_is_refused },
	{ "bye_before_lane_is_closed_is_refused",
	  bye_before_lane_is_closed_is_refused },
	{ "fence_of_withdrawn_rail_is_accepted",
	  fence_of_withdrawn_rail_is_accepted },
	{ "removed_peer_without_fence_is_ignored",
	  removed_peer_without_fence_is_ignored },
	{ "answer_may_follow_the_next_request",
	  answer_may_follow_the_next_request },
	{ "recorded_trace_is_accepted", recorded_trace_is_accepted },
	{ "planted_answer_before_closing_is_refused",
	  planted_answer_before_closing_is_refused },
	{ "planted_post_before_answer_is_refused",
	  planted_post_before_answer_is_refused },
	{ "planted_loss_of_an_event_is_refused",
	  planted_loss_of_an_event_is_refused },
	{ "planted_generation_is_refused", planted_generation_is_refused },
	{ "unsent_messages_are_refused", unsent_messages_are_refused },
	{ "reopened_generation_is_refused", reopened_generation_is_refused },
	{ NULL, NULL },
};
