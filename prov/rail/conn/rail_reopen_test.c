/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of lanes that are opened again. The test acts as the progress
 * thread. */

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/fi_errno.h>
#include <sched.h>

#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/rail_open.h"
#include "prov/rail/rail_peer_run.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"


static bool reopen_await(struct rail *rail)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;

	while (tei_now_ns() < end) {
		rail_fence_run(rail->dp);
		rail_renew_run(rail->dp, tei_now_ns());
		rail_fence_collect(rail);
		if (rail->fence_state == RAIL_FENCE_RX_NONE)
			return true;
		sched_yield();
	}
	return false;
}

static void test_a_fence_is_answered_before_the_next_lane_is_open(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct rail_lane *lane;
	struct test_pair pair;
	uint32_t gen;

	test_pair_open(&pair);
	lane = &pair.rail->rx_lane;
	gen = lane->gen;
	CU_ASSERT_EQUAL(rail_fence_request(pair.rail, gen), 0);
	CU_ASSERT_PTR_NULL(lane->ep);
	CU_ASSERT(rail_fence_rx_any(pair.from.dp));
	while (rail_closing_under_way(lane) && tei_now_ns() < end) {
		rail_fence_run(pair.from.dp);
		sched_yield();
	}
	CU_ASSERT(rail_fence_rx_any(pair.from.dp));
	/* further requests for the same fence get the same answer and close no
	 * lane */
	CU_ASSERT_EQUAL(rail_fence_request(pair.rail, gen), gen + 1);
	CU_ASSERT_EQUAL(rail_fence_request(pair.rail, gen), gen + 1);
	CU_ASSERT_FATAL(reopen_await(pair.rail));
	CU_ASSERT(!rail_fence_rx_any(pair.from.dp));
	CU_ASSERT_PTR_NOT_NULL(lane->ep);
	CU_ASSERT_EQUAL(lane->gen, gen + 1);
	/* a lane of an older generation has been closed already */
	CU_ASSERT_EQUAL(rail_fence_request(pair.rail, gen), gen + 1);
	CU_ASSERT_PTR_NOT_NULL(lane->ep);
	CU_ASSERT(!(rail_health_collect(pair.rail) & RAIL_REOPENED_RX));
	test_pair_close(&pair);
}

/* Checks that the next rx lane gets a new address, although the port of the
 * previous lane is requested first. */
static void test_the_next_rx_lane_gets_a_new_address(void)
{
	const struct sockaddr_in *sin;
	struct tei_rail_addr before;
	struct rail_lane *lane;
	struct test_pair pair;

	test_pair_open(&pair);
	lane = &pair.rail->rx_lane;
	before = lane->addr;
	CU_ASSERT_FATAL(rail_addr_is_ip(&before));
	sin = (const void *)before.bytes;
	pair.from.dp->conf.port = ntohs(sin->sin_port);
	pair.rail->contact.state = RAIL_CONTACT_LANE_LEFT; /* no endpoint
							    * listens at the
							    * contact address */
	rail_fence_request(pair.rail, lane->gen);
	/* generation 0 simulates the first opening, which is the only one that
	 * uses that port */
	__atomic_store_n(&lane->gen, 0, __ATOMIC_RELEASE);
	CU_ASSERT_FATAL(reopen_await(pair.rail));
	CU_ASSERT_PTR_NOT_NULL(lane->ep);
	CU_ASSERT_EQUAL(lane->gen, 1);
	CU_ASSERT(rail_addr_is_ip(&lane->addr));
	CU_ASSERT(!rail_addr_same(&lane->addr, &before));
	test_pair_close(&pair);
}

static void test_a_data_plane_can_close_while_an_rx_lane_opens(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct test_pair pair;

	test_pair_open(&pair);
	rail_fence_request(pair.rail, pair.rail->rx_lane.gen);
	while (!pair.rail->next_rx.under_way && tei_now_ns() < end)
		rail_fence_run(pair.from.dp);
	CU_ASSERT(pair.rail->next_rx.under_way);
	test_pair_close(&pair);
}

/* Returns the active tx lane of the rail, or NULL. */
static struct rail_lane *reopen_active(struct rail *rail)
{
	int i;

	for (i = 0; i < RAIL_LANE_SLOTS; i++)
		if (rail->tx_lanes[i].state == RAIL_LANE_ACTIVE)
			return &rail->tx_lanes[i];
	return NULL;
}

static bool reopen_works(struct test_pair *pair)
{
	bool works;

	rail_sched_enter(pair->from.dp);
	works = rail_health_works(pair->peer, 0);
	rail_sched_leave(pair->from.dp);
	return works;
}

static void test_a_tx_lane_is_opened_by_another_thread(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct rail_lane *old, *lane;
	struct rail_conn *conn;
	struct test_pair pair;
	uint32_t gen;

	test_pair_open(&pair);
	old = reopen_active(pair.rail);
	CU_ASSERT_PTR_NOT_NULL_FATAL(old);
	gen = old->gen;
	CU_ASSERT(reopen_works(&pair));
	rail_renew_lane(old, 0);
	/* the new lane has not replaced the old one yet */
	CU_ASSERT_EQUAL(old->state, RAIL_LANE_RETIRING);
	CU_ASSERT_PTR_NULL(reopen_active(pair.rail));
	CU_ASSERT(!reopen_works(&pair));
	CU_ASSERT_EQUAL(
		rail_msg_try_on(pair.peer, pair.rail, 0, "", 1, &lane, &conn),
		-FI_EAGAIN);
	CU_ASSERT_PTR_NULL(lane);
	/* an opening that is under way is not started again */
	rail_renew_reopen(pair.rail);
	rail_fence_rx_event(pair.rail, RAIL_FENCE_RX_EV_RETRY);
	while (!reopen_active(pair.rail) && tei_now_ns() < end)
		CU_ASSERT(!(rail_health_collect(pair.rail) & RAIL_REOPENED_RX));
	lane = reopen_active(pair.rail);
	CU_ASSERT_PTR_NOT_NULL_FATAL(lane);
	CU_ASSERT(lane != old);
	CU_ASSERT_EQUAL(lane->gen, gen + 1);
	CU_ASSERT(reopen_works(&pair));
	CU_ASSERT(!pair.rail->link.lost);
	while (old->state != RAIL_LANE_CLOSED && tei_now_ns() < end)
		test_pair_turn(&pair, tei_now_ns());
	CU_ASSERT_EQUAL(old->state, RAIL_LANE_CLOSED);
	test_pair_close(&pair);
}

static void test_a_data_plane_can_close_while_a_tx_lane_opens(void)
{
	struct test_pair pair;

	test_pair_open(&pair);
	rail_renew_lane(reopen_active(pair.rail), 0);
	CU_ASSERT(pair.rail->next_tx[0].under_way);
	test_pair_close(&pair);
}

static void test_a_process_that_leaves_while_a_lane_opens_sends_bye(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct tei_rail_peer *peer;
	struct test_pair pair;

	test_pair_open(&pair);
	peer = test_plane_peer(&pair.to, &pair.from);
	pair.from.dp->times.bye_ns = TEST_WAIT_NS;
	rail_renew_lane(reopen_active(pair.rail), 0);
	CU_ASSERT(pair.rail->next_tx[0].under_way);
	__atomic_store_n(&pair.from.dp->thread.stop, true, __ATOMIC_RELEASE);
	tei_rail_peer_put(pair.peer);
	test_plane_close(&pair.from);
	while (!tei_rail_peer_gone(peer) && tei_now_ns() < end)
		sched_yield();
	CU_ASSERT(tei_rail_peer_gone(peer));
	tei_rail_peer_put(peer);
	test_plane_close(&pair.to);
}

static void *reopen_leave(void *dp)
{
	tei_rail_dp_leave(dp, 0);
	return NULL;
}

/* No lane can send BYE until the test lets the lane of "from" be used again. */
static void test_a_process_that_leaves_closes_rx_lanes_before_bye(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct tei_rail_peer *peer;
	struct rail_lane *rx, *tx;
	struct test_pair pair;
	pthread_t thread;
	bool open = true;

	test_pair_open(&pair);
	peer = test_plane_peer(&pair.to, &pair.from);
	rx = &pair.rail->rx_lane;
	tx = reopen_active(pair.rail);
	tei_rail_peer_put(pair.peer);
	pair.from.dp->times.bye_ns = TEST_WAIT_NS;
	tei_mutex_lock(&tx->lock);
	__atomic_store_n(&tx->state, RAIL_LANE_RETIRING, __ATOMIC_RELEASE);
	tei_mutex_unlock(&tx->lock);
	CU_ASSERT_EQUAL_FATAL(
		pthread_create(&thread, NULL, reopen_leave, pair.from.dp), 0);
	while (open && tei_now_ns() < end) {
		tei_mutex_lock(&rx->lock);
		open = rx->ep != NULL;
		tei_mutex_unlock(&rx->lock);
		sched_yield();
	}
	CU_ASSERT_FALSE(open);
	CU_ASSERT_FALSE(tei_rail_peer_gone(peer));
	tei_mutex_lock(&tx->lock);
	__atomic_store_n(&tx->state, RAIL_LANE_ACTIVE, __ATOMIC_RELEASE);
	tei_mutex_unlock(&tx->lock);
	CU_ASSERT_EQUAL(pthread_join(thread, NULL), 0);
	while (!tei_rail_peer_gone(peer) && tei_now_ns() < end)
		sched_yield();
	CU_ASSERT(tei_rail_peer_gone(peer));
	test_plane_close(&pair.from);
	tei_rail_peer_put(peer);
	test_plane_close(&pair.to);
}

/* Both processes leave. The second one notices that its connection is lost, and
 * has not received BYE. */
static void test_bye_is_not_awaited_if_the_peer_has_closed_its_ports(void)
{
	uint64_t from = tei_now_ns(), end = from + TEST_WAIT_NS;
	struct rail_lane *lane;
	struct test_pair pair;
	struct rail_conn *conn;

	test_pair_open(&pair);
	test_plane_still(&pair.to);
	rail_close_target(rail_at(pair.to.dp, 0));
	while (rail_msg_try_on(pair.peer, pair.rail, 0, "", 1, &lane, &conn) !=
		       -FI_EAGAIN &&
	       tei_now_ns() < end)
		test_pair_turn(&pair, tei_now_ns());
	tei_rail_peer_put(pair.peer);
	pair.from.dp->times.bye_ns = TEST_WAIT_NS;
	test_plane_close(&pair.from);
	CU_ASSERT(tei_now_ns() < from + TEST_WAIT_NS / 2);
	pair.to.dp->times.bye_ns = 0;
	test_plane_close(&pair.to);
}

static int reopen_send(struct test_pair *pair)
{
	uint8_t buf[TEI_RAIL_MESSAGE_HEAD];
	struct rail_lane *lane;
	struct rail_conn *conn;
	uint32_t prefer = 0;
	int ret;

	CU_ASSERT_EQUAL(
		rail_msg_try_on(pair->peer, pair->rail, 0, "", 1, &lane, &conn),
		-FI_EHOSTUNREACH);
	ret = rail_msg_send(pair->peer, "", 1, 0);
	CU_ASSERT_EQUAL(tei_rail_send(pair->peer, buf, sizeof(buf), true,
				       &prefer),
			ret);
	return ret;
}

/* Checks that tasks and messages wait while a rail is lost, because opening its
 * lane is tried again. */
static void test_tasks_wait_for_a_lost_rail(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct rail_lane *lane;
	struct test_pair pair;
	struct test_task t;

	test_pair_open(&pair);
	lane = reopen_active(pair.rail);
	lane->state = RAIL_LANE_RETIRING;
	pair.rail->link.lost = true;
	CU_ASSERT_EQUAL(reopen_send(&pair), -FI_EAGAIN);
	test_task_init(&t, pair.peer, false, pair.src, pair.dst, 1);
	CU_ASSERT_EQUAL(test_submit(pair.from.dp, &t, 1), 0);
	pair.peer->hello.again = true;
	rail_peer_run(pair.peer, tei_now_ns());
	CU_ASSERT_EQUAL(test_ends(&t), 0);
	pair.rail->open = false;
	CU_ASSERT_EQUAL(reopen_send(&pair), -FI_EHOSTUNREACH);
	pair.rail->open = true;
	pair.rail->link.lost = false;
	lane->state = RAIL_LANE_ACTIVE;
	while (!test_ends(&t) && tei_now_ns() < end) {
		rail_sched_kick(pair.from.dp, 0);
		test_pair_turn(&pair, tei_now_ns());
	}
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	test_pair_close(&pair);
}

const struct tei_test_case rail_reopen_cases[] = {
	{ "a_fence_is_answered_before_the_next_lane_is_open",
	  test_a_fence_is_answered_before_the_next_lane_is_open },
	{ "tasks_wait_for_a_lost_rail", test_tasks_wait_for_a_lost_rail },
	{ "a_data_plane_can_close_while_an_rx_lane_opens",
	  test_a_data_plane_can_close_while_an_rx_lane_opens },
	{ "a_data_plane_can_close_while_a_tx_lane_opens",
	  test_a_data_plane_can_close_while_a_tx_lane_opens },
	{ "a_tx_lane_is_opened_by_another_thread",
	  test_a_tx_lane_is_opened_by_another_thread },
	{ "the_next_rx_lane_gets_a_new_address",
	  test_the_next_rx_lane_gets_a_new_address },
	{ "a_process_that_leaves_while_a_lane_opens_sends_bye",
	  test_a_process_that_leaves_while_a_lane_opens_sends_bye },
	{ "a_process_that_leaves_closes_rx_lanes_before_bye",
	  test_a_process_that_leaves_closes_rx_lanes_before_bye },
	{ "bye_is_not_awaited_if_the_peer_has_closed_its_ports",
	  test_bye_is_not_awaited_if_the_peer_has_closed_its_ports },
	{ NULL, NULL },
};
