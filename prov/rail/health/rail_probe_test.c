/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of probes. The test calls the functions of the progress thread. */

#include <sched.h>
#include <string.h>

#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"


static struct rail_fault *probe_fault(struct test_pair *pair)
{
	struct rail_fault *f;

	rail_sched_enter(pair->from.dp);
	rail_health_down(pair->peer, pair->rail, 0, "by test", false);
	f = tei_list_first(&pair->from.dp->health.faults, struct rail_fault,
			   link);
	rail_sched_leave(pair->from.dp);
	return f;
}

/* Runs one round of probes that is not answered. */
static void probe_round(struct test_pair *pair, struct rail_fault *f)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	uint32_t tries = f->tries;

	f->next_ns = 0;
	/* runs iterations until the probe is sent, then lets the time limit of
	 * the round pass */
	while (!f->seq && tei_now_ns() < end) {
		rail_renew_run(pair->from.dp, tei_now_ns());
		rail_probe_run(pair->rail, tei_now_ns());
		sched_yield();
	}
	CU_ASSERT_FATAL(f->seq != 0);
	rail_probe_run(pair->rail, tei_now_ns() + 100 * TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(f->tries, tries + 1);
	CU_ASSERT_EQUAL(f->seq, 0);
	CU_ASSERT(!pair->rail->probe.active);
	/* before the end of the pause no probe is sent */
	CU_ASSERT_EQUAL(rail_probe_run(pair->rail, f->next_ns - 1), 0);
	CU_ASSERT(!pair->rail->probe.active);
}

/* Returns the state of the lane's connection to the peer, according to the
 * sockets of the lane. */
static enum rail_disconnect probe_others(struct test_pair *pair)
{
	struct rail_lane *lane = rail_msg_lane(pair->rail, 0);
	const struct tei_rail_addr *to = &pair->peer->remotes[0].addr;
	enum rail_disconnect lives;

	CU_ASSERT_PTR_NOT_NULL_FATAL(lane);
	rail_lane_run(lane);
	tei_mutex_lock(&lane->lock);
	lives = rail_disconnect_lives(lane, to->bytes, to->len);
	tei_mutex_unlock(&lane->lock);
	return lives;
}

/* Tests that closing the endpoint of a probe closes only the connection of the
 * probe. If it closed others too, a pair whose probe was answered would fail
 * again at once. */
static void probe_check_others(const char *provider)
{
	struct test_pair pair;
	enum rail_disconnect lives;

	if (!test_pair_open_by(&pair, provider))
		return;
	lives = probe_others(&pair);
	CU_ASSERT_NOT_EQUAL(lives, RAIL_CUT_NONE);
	test_plane_still(&pair.to);
	probe_round(&pair, probe_fault(&pair));
	CU_ASSERT_EQUAL(probe_others(&pair), lives);
	test_pair_close(&pair);
}

static void test_a_round_that_ends_leaves_other_connections(void)
{
	static const char *const provider[] = { "net", "tcp", "tcp;ofi_rxm" };
	size_t i;

	for (i = 0; i < sizeof(provider) / sizeof(provider[0]); i++)
		probe_check_others(provider[i]);
}

/* Ends a round that was not answered. Returns the pause after it, or 0 if the
 * pause differs from base by more than a quarter. */
static uint64_t probe_backoff(struct test_pair *pair, struct rail_fault *f,
			      uint32_t tries, uint64_t base)
{
	uint64_t from, pause;

	f->tries = tries;
	f->seq = 1;
	pair->rail->probe.active = true;
	pair->from.dp->health.probing++;
	from = tei_now_ns();
	rail_probe_stop(pair->rail);
	pause = f->next_ns - from;
	/* f->next_ns was computed a little earlier than this check */
	return pause >= base - base / 4 &&
	       f->next_ns <= tei_now_ns() + base + base / 4 ? pause : 0;
}

/* Tests that the pauses between rounds are long if opening an endpoint takes
 * long: then hundreds of processes may be probing a peer that has no time to
 * answer. */
static void test_rounds_are_rare_if_opening_is_slow(void)
{
	struct test_pair pair;
	struct rail_fault *f;

	test_pair_open(&pair);
	test_plane_still(&pair.to);
	f = probe_fault(&pair);
	pair.from.dp->health.open_ns = 400 * TEI_NS_PER_MS;
	CU_ASSERT(probe_backoff(&pair, f, 20, 1200 * TEI_NS_PER_MS));
	/* after the first rounds the pauses are not longer */
	CU_ASSERT(probe_backoff(&pair, f, 0, 20 * TEI_NS_PER_MS));
	pair.from.dp->health.open_ns = 10 * TEI_NS_PER_SEC;
	CU_ASSERT(probe_backoff(&pair, f, 20, 5 * TEI_NS_PER_SEC));
	test_pair_close(&pair);
}

static bool probe_takes(struct test_pair *pair, struct rail_fault *f,
			uint64_t seq)
{
	uint8_t buf[8];
	struct rail_wire w = { .p = buf, .cap = sizeof(buf) };

	rail_wire_put(&w, seq, 8);
	w.pos = 0;
	f->answered = false;
	rail_sched_enter(pair->from.dp);
	rail_msg_on_pong(pair->peer, &w);
	rail_sched_leave(pair->from.dp);
	return f->answered;
}

static void test_only_answers_to_this_pair_count(void)
{
	uint64_t one = UINT64_C(1) << 16;	/* lowest probe number of the
						 * pair of local rail 0 and
						 * remote rail 0, whose low bits
						 * are 0 */
	struct test_pair pair;
	struct rail_fault *f;

	test_pair_open(&pair);
	f = probe_fault(&pair);
	/* an answer does not count before a probe was sent */
	CU_ASSERT(!probe_takes(&pair, f, one));
	f->seq_first = 5 * one;
	f->seq = 7 * one;
	CU_ASSERT(!probe_takes(&pair, f, 4 * one));
	CU_ASSERT(!probe_takes(&pair, f, 7 * one + 1));
	CU_ASSERT(!probe_takes(&pair, f, 7 * one + 256));
	CU_ASSERT(!probe_takes(&pair, f, 0));
	/* an answer to an earlier probe of the pair counts as well */
	CU_ASSERT(probe_takes(&pair, f, 6 * one));
	CU_ASSERT_EQUAL(f->seq, 0);
	f->answered = false;
	test_pair_close(&pair);
}

const struct tei_test_case rail_probe_cases[] = {
	{ "a_round_that_ends_leaves_other_connections",
	  test_a_round_that_ends_leaves_other_connections },
	{ "rounds_are_rare_if_opening_is_slow",
	  test_rounds_are_rare_if_opening_is_slow },
	{ "only_answers_to_this_pair_count",
	  test_only_answers_to_this_pair_count },
	{ NULL, NULL },
};
