/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the fence's state machines: every state with every event, and the
 * sequences that docs/ARCHITECTURE.md shows. The test calls the functions of
 * the progress thread. */
#include <sched.h>
#include <string.h>

#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_fence.h"
#include "util/clock.h"

#define FENCE_GEN 7 /* the generation that the fence in these tests covers */

/* --- the tables ---------------------------------------------------------- */

/* The transition table of the initiator. Each row is a state and has one letter
 * for each event, in the order of enum rail_fence_event. The letter is the
 * first letter of the next state, '-' if the event is ignored, or '!' if it is
 * impossible. */
static const char *const fence_expected[RAIL_FENCE_STATES] = {
	[RAIL_FENCE_NONE] = "WW-NN!--",	   [RAIL_FENCE_WANTED] = "-WANWUNW",
	[RAIL_FENCE_ASKED] = "-WANAUNA",   [RAIL_FENCE_UNFENCED] = "-UUNU-DU",
	[RAIL_FENCE_DROPPED] = "UU-ND---",
};
static const char fence_letter[RAIL_FENCE_STATES] = "NWAUD";

/* The transition table of the target, in the same notation. N stands for NONE,
 * C for CLOSING, O for OPENING and X for CLOSED. */
static const char *const fence_rx_expected[RAIL_FENCE_RX_STATES] = {
	[RAIL_FENCE_RX_NONE] = "C!!!-",
	[RAIL_FENCE_RX_CLOSING] = "-ONX-",
	[RAIL_FENCE_RX_OPENING] = "-!NX-",
	[RAIL_FENCE_RX_CLOSED] = "-!!!O",
};
static const char fence_rx_letter[RAIL_FENCE_RX_STATES] = "NCOX";

static char fence_mark(enum rail_fence_reaction reaction, char next)
{
	switch (reaction) {
	case RAIL_FENCE_TRANSITION:
		return next;
	case RAIL_FENCE_IGNORED:
		return '-';
	case RAIL_FENCE_IMPOSSIBLE:
		return '!';
	case RAIL_FENCE_UNDEFINED:
		break;
	}
	return '?';
}

static void test_fence_tables_define_every_pair(void)
{
	enum rail_fence_reaction reaction;
	enum rail_fence_rx_state rx_next;
	enum rail_fence_state next;
	int s, e;

	for (s = 0; s < RAIL_FENCE_STATES; s++)
		for (e = 0; e < RAIL_FENCE_EVENTS; e++) {
			next = RAIL_FENCE_NONE;
			reaction = rail_fence_reacts((enum rail_fence_state)s,
						     (enum rail_fence_event)e,
						     &next);
			CU_ASSERT_EQUAL(
				fence_mark(reaction, fence_letter[next]),
				fence_expected[s][e]);
		}
	for (s = 0; s < RAIL_FENCE_RX_STATES; s++)
		for (e = 0; e < RAIL_FENCE_RX_EVENTS; e++) {
			rx_next = RAIL_FENCE_RX_NONE;
			reaction = rail_fence_rx_reacts(
				(enum rail_fence_rx_state)s,
				(enum rail_fence_rx_event)e, &rx_next);
			CU_ASSERT_EQUAL(
				fence_mark(reaction, fence_rx_letter[rx_next]),
				fence_rx_expected[s][e]);
		}
}

/* --- the initiator ------------------------------------------------------- */

/* Reports the event for generation gen to the fence, and then reports the tasks
 * that have ended because of it. */
static void fence_report(struct tei_rail_peer *p, enum rail_fence_event event,
			 uint32_t gen)
{
	struct rail_fence_args args = { .gen = gen, .now = 1, .tries = 1 };
	struct rail_done done;

	rail_done_init(&done);
	args.done = &done;
	rail_sched_enter(p->dp);
	rail_fence_event(p, 0, event, &args);
	rail_sched_leave(p->dp);
	rail_done_run(p->dp, &done);
}

/* Moves the fence from state NONE to the given state. */
static void fence_drive(struct tei_rail_peer *p, enum rail_fence_state state)
{
	if (state == RAIL_FENCE_NONE)
		return;
	fence_report(p, RAIL_FENCE_EV_FAILED, FENCE_GEN);
	if (state == RAIL_FENCE_ASKED)
		fence_report(p, RAIL_FENCE_EV_SENT, FENCE_GEN);
	if (state == RAIL_FENCE_UNFENCED || state == RAIL_FENCE_DROPPED)
		fence_report(p, RAIL_FENCE_EV_TIMED_OUT, 0);
	if (state == RAIL_FENCE_DROPPED)
		fence_report(p, RAIL_FENCE_EV_UNNEEDED, 0);
}

/* Checks that a fence in the given state reacts to the event as fence_expected
 * says. */
static void fence_check(struct tei_rail_peer *p, enum rail_fence_state state,
			enum rail_fence_event event)
{
	struct rail_fence *f = &p->remotes[0].fence;
	char expected = fence_expected[state][event];
	bool unfenced, any;
	uint32_t gen;

	/* an internal event cannot be reported: report FAILED or CLOSED for
	 * another generation */
	gen = event == RAIL_FENCE_EV_NEWER_FAILED   ? FENCE_GEN + 1
	      : event == RAIL_FENCE_EV_OLDER_CLOSED ? FENCE_GEN - 1
						    : FENCE_GEN;
	if (event == RAIL_FENCE_EV_NEWER_FAILED)
		event = RAIL_FENCE_EV_FAILED;
	if (event == RAIL_FENCE_EV_OLDER_CLOSED)
		event = RAIL_FENCE_EV_CLOSED;
	memset(f, 0, sizeof(*f));
	f->gen = FENCE_GEN;
	p->fence.unfenced = 0;
	fence_drive(p, state);
	CU_ASSERT_EQUAL(f->state, state);
	fence_report(p, event, gen);
	if (expected == '-' || expected == '!')
		expected = fence_letter[state];
	CU_ASSERT_EQUAL(fence_letter[f->state], expected);
	unfenced = f->state == RAIL_FENCE_UNFENCED ||
		   f->state == RAIL_FENCE_DROPPED;
	CU_ASSERT_EQUAL(p->fence.unfenced, unfenced);
	CU_ASSERT_EQUAL(rail_fence_failed(&p->fence), unfenced);
	rail_sched_enter(p->dp);
	any = rail_fence_any(p);
	rail_sched_leave(p->dp);
	CU_ASSERT_EQUAL(any, rail_fence_outstanding(f));
	fence_report(p, RAIL_FENCE_EV_CLOSED, UINT32_MAX);
	CU_ASSERT_EQUAL(f->state, RAIL_FENCE_NONE);
	CU_ASSERT_FALSE(rail_fence_failed(&p->fence));
}

static void test_initiator_fence_handles_every_event_in_every_state(void)
{
	struct test_pair pair;
	int s, e;

	test_pair_open(&pair);
	for (s = 0; s < RAIL_FENCE_STATES; s++)
		for (e = 0; e < RAIL_FENCE_EVENTS; e++)
			fence_check(pair.peer, (enum rail_fence_state)s,
				    (enum rail_fence_event)e);
	test_pair_close(&pair);
}

static void test_fence_that_is_extended_is_sent_at_once(void)
{
	struct rail_fence_args sent = {
		.gen = FENCE_GEN, .now = 5, .tries = 3, .next_ns = 100
	};
	struct test_pair pair;
	struct rail_fence *f;

	test_pair_open(&pair);
	f = &pair.peer->remotes[0].fence;
	fence_report(pair.peer, RAIL_FENCE_EV_FAILED, FENCE_GEN);
	rail_sched_enter(pair.from.dp);
	rail_fence_event(pair.peer, 0, RAIL_FENCE_EV_SENT, &sent);
	CU_ASSERT_EQUAL(f->tries, 3);
	CU_ASSERT_EQUAL(f->next_ns, 100);
	CU_ASSERT_EQUAL(f->since_ns, 5);
	sent.now = 200;
	sent.next_ns = 300;
	rail_fence_event(pair.peer, 0, RAIL_FENCE_EV_SENT, &sent);
	CU_ASSERT_EQUAL(f->next_ns, 300);
	CU_ASSERT_EQUAL(f->since_ns, 5);
	rail_sched_leave(pair.from.dp);
	/* a slice of a newer generation fails while FENCE for the older
	 * generation is being sent */
	fence_report(pair.peer, RAIL_FENCE_EV_FAILED, FENCE_GEN + 1);
	rail_sched_enter(pair.from.dp);
	rail_fence_event(pair.peer, 0, RAIL_FENCE_EV_SENT, &sent);
	CU_ASSERT_EQUAL(f->gen, FENCE_GEN + 1);
	CU_ASSERT_EQUAL(f->tries, 0);
	CU_ASSERT_EQUAL(f->next_ns, 0);
	CU_ASSERT_EQUAL(f->since_ns, 0);
	rail_sched_leave(pair.from.dp);
	fence_report(pair.peer, RAIL_FENCE_EV_CLOSED, FENCE_GEN + 1);
	test_pair_close(&pair);
}

/* Tests the sequence "A fence, at both sides" of docs/ARCHITECTURE.md with real
 * messages. */
static void test_fence_of_answering_target_ends(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct test_pair pair;
	struct rail_fence *f;
	uint32_t gen;

	test_pair_open(&pair);
	f = &pair.peer->remotes[0].fence;
	gen = pair.peer->remotes[0].gen;
	CU_ASSERT(tei_rail_peer_sound(pair.peer));
	fence_report(pair.peer, RAIL_FENCE_EV_FAILED, gen);
	CU_ASSERT_EQUAL(f->state, RAIL_FENCE_WANTED);
	CU_ASSERT_FALSE(tei_rail_peer_sound(pair.peer));
	while (f->state == RAIL_FENCE_WANTED && tei_now_ns() < end)
		test_pair_turn(&pair, tei_now_ns());
	CU_ASSERT_NOT_EQUAL(f->state, RAIL_FENCE_WANTED);
	while (f->state != RAIL_FENCE_NONE && tei_now_ns() < end)
		test_pair_turn(&pair, tei_now_ns());
	CU_ASSERT_EQUAL(f->state, RAIL_FENCE_NONE);
	CU_ASSERT_EQUAL(pair.peer->remotes[0].gen, gen + 1);
	CU_ASSERT(tei_rail_peer_sound(pair.peer));
	test_pair_close(&pair);
}

/* --- the target ---------------------------------------------------------- */

/* Tests that events which are ignored or impossible in a state change
 * nothing. */
static void test_target_fence_keeps_its_state_without_transition(void)
{
	enum rail_fence_rx_state before;
	struct test_pair pair;
	int s, e;

	test_pair_open(&pair);
	for (s = 0; s < RAIL_FENCE_RX_STATES; s++)
		for (e = 0; e < RAIL_FENCE_RX_EVENTS; e++) {
			if (fence_rx_expected[s][e] != '-' &&
			    fence_rx_expected[s][e] != '!')
				continue;
			before = (enum rail_fence_rx_state)s;
			pair.rail->fence_state = before;
			rail_fence_rx_event(pair.rail,
					    (enum rail_fence_rx_event)e);
			CU_ASSERT_EQUAL(pair.rail->fence_state, before);
		}
	pair.rail->fence_state = RAIL_FENCE_RX_NONE;
	CU_ASSERT(pair.rail->rx_lane.ep != NULL);
	test_pair_close(&pair);
}

static bool fence_reaches(struct rail *rail, enum rail_fence_rx_state state)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;

	while (rail->fence_state != state && tei_now_ns() < end) {
		rail_fence_run(rail->dp);
		if (rail->fence_state != state)
			rail_fence_collect(rail);
		sched_yield();
	}
	return rail->fence_state == state;
}

static void test_target_closes_then_answers_then_opens_and_announces(void)
{
	struct test_pair pair;
	uint32_t gen, table;
	struct rail *rail;

	test_pair_open(&pair);
	rail = pair.rail;
	gen = rail->rx_lane.gen;
	table = pair.from.dp->peers.table;
	CU_ASSERT_EQUAL(rail->fence_state, RAIL_FENCE_RX_NONE);
	/* a request for an older generation is answered at once, because that
	 * generation is closed already */
	CU_ASSERT_EQUAL(rail_fence_request(rail, gen - 1), gen);
	CU_ASSERT_EQUAL(rail->fence_state, RAIL_FENCE_RX_NONE);
	rail_sched_enter(pair.from.dp);
	rail_fence_requested(pair.peer, 0, gen);
	rail_sched_leave(pair.from.dp);
	CU_ASSERT_EQUAL(rail_fence_request(rail, gen), 0);
	CU_ASSERT_EQUAL(rail->fence_state, RAIL_FENCE_RX_CLOSING);
	CU_ASSERT(rail_fence_rx_any(pair.from.dp));
	CU_ASSERT_FATAL(fence_reaches(rail, RAIL_FENCE_RX_OPENING));
	CU_ASSERT(rail_fence_rx_any(pair.from.dp));
	CU_ASSERT_EQUAL(rail_fence_request(rail, gen), gen + 1);
	CU_ASSERT_EQUAL(pair.from.dp->peers.table, table);
	CU_ASSERT_FATAL(fence_reaches(rail, RAIL_FENCE_RX_NONE));
	CU_ASSERT_EQUAL(rail->rx_lane.gen, gen + 1);
	CU_ASSERT_EQUAL(pair.from.dp->peers.table, table + 1);
	CU_ASSERT_FALSE(rail_fence_rx_any(pair.from.dp));
	/* FENCED is no longer due only when it was sent for the generation that
	 * the peer has named */
	CU_ASSERT(rail_fence_answer_due(&pair.peer->fence));
	rail_sched_enter(pair.from.dp);
	rail_fence_answered(pair.peer, 0, gen + 1);
	CU_ASSERT(rail_fence_answer_due(&pair.peer->fence));
	rail_fence_answered(pair.peer, 0, gen);
	CU_ASSERT_FALSE(rail_fence_answer_due(&pair.peer->fence));
	rail_sched_leave(pair.from.dp);
	test_pair_close(&pair);
}

static void test_failed_opening_of_the_rx_lane_is_retried(void)
{
	struct test_pair pair;
	struct rail *rail;
	uint32_t gen;

	test_pair_open(&pair);
	rail = pair.rail;
	gen = rail->rx_lane.gen;
	rail_fence_request(rail, gen);
	CU_ASSERT_FATAL(fence_reaches(rail, RAIL_FENCE_RX_OPENING));
	while (!rail_health_collect(rail))
		sched_yield();
	/* closes the lane again, as if it could not be opened */
	rail_lane_shutdown(&rail->rx_lane, false);
	rail_fence_rx_event(rail, RAIL_FENCE_RX_EV_FAILED);
	CU_ASSERT_EQUAL(rail->fence_state, RAIL_FENCE_RX_CLOSED);
	CU_ASSERT_FALSE(rail_fence_rx_any(pair.from.dp));
	gen = rail->rx_lane.gen;
	CU_ASSERT_EQUAL(rail_fence_request(rail, gen), gen + 1);
	rail_fence_rx_event(rail, RAIL_FENCE_RX_EV_RETRY);
	CU_ASSERT_EQUAL(rail->fence_state, RAIL_FENCE_RX_OPENING);
	CU_ASSERT_FATAL(fence_reaches(rail, RAIL_FENCE_RX_NONE));
	CU_ASSERT_EQUAL(rail->rx_lane.gen, gen + 1);
	test_pair_close(&pair);
}

const struct tei_test_case rail_fence_cases[] = {
	{ "fence_of_answering_target_ends",
	  test_fence_of_answering_target_ends },
	{ "failed_opening_of_the_rx_lane_is_retried",
	  test_failed_opening_of_the_rx_lane_is_retried },
	{ "fence_tables_define_every_pair",
	  test_fence_tables_define_every_pair },
	{ "fence_that_is_extended_is_sent_at_once",
	  test_fence_that_is_extended_is_sent_at_once },
	{ "initiator_fence_handles_every_event_in_every_state",
	  test_initiator_fence_handles_every_event_in_every_state },
	{ "target_closes_then_answers_then_opens_and_announces",
	  test_target_closes_then_answers_then_opens_and_announces },
	{ "target_fence_keeps_its_state_without_transition",
	  test_target_fence_keeps_its_state_without_transition },
	{ NULL, NULL },
};
