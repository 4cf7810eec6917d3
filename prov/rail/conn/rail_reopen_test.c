/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of lanes that are opened again. The test acts as the progress
 * thread. */

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
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

/* --- tx lanes that are opened at the first contact ------------------------ */

/* Two data planes with two tx lanes per rail, which have not contacted each
 * other. */
struct first_rig {
	struct test_plane from, to;
	struct tei_rail_peer *peer;
	char src[64], dst[64];
};

static void first_memory(struct test_plane *p, char *mem)
{
	struct tei_rail_mr *mr;
	struct tei_err err;

	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(p->dp, mem, 64, "*",
					      TEI_RAIL_REMOTE, &err, &mr), 0);
}

static void first_begin(struct first_rig *rig)
{
	test_plane_init(&rig->from);
	test_plane_init(&rig->to);
	rig->from.settings.lanes.per_rail = 2;
	test_plane_open(&rig->from, "127.0.0.1,127.0.0.3");
	test_plane_open(&rig->to, "127.0.0.2");
	first_memory(&rig->from, rig->src);
	first_memory(&rig->to, rig->dst);
	rig->peer = test_plane_peer(&rig->from, &rig->to);
}

static void first_end(struct first_rig *rig)
{
	tei_rail_peer_put(rig->peer);
	test_plane_close(&rig->from);
	test_plane_close(&rig->to);
}

/* Returns the number of endpoints of the rail, as the statistics state it. */
static uint32_t first_lanes(struct test_plane *p, size_t rail)
{
	struct tei_rail_stats s;

	CU_ASSERT_EQUAL(tei_rail_get_stats(p->dp, rail, &s), 0);
	CU_ASSERT_EQUAL(s.state, TEI_RAIL_UP);
	return s.lanes;
}

static void test_idle_plane_has_no_tx_lane(void)
{
	uint64_t end = tei_now_ns() + 200 * TEI_NS_PER_MS;
	struct first_rig rig;
	uint32_t i, j;
	struct rail *rail;

	first_begin(&rig);
	while (tei_now_ns() < end)
		tei_rail_progress(rig.from.dp);
	for (i = 0; i < 2; i++) {
		rail = rail_at(rig.from.dp, i);
		CU_ASSERT_EQUAL(first_lanes(&rig.from, i), 1);
		CU_ASSERT_EQUAL(__atomic_load_n(&rail->link.away,
						__ATOMIC_RELAXED), 0);
		for (j = 0; j < 2; j++)
			CU_ASSERT(rail_use_none(rail, j));
		for (j = 0; j < 2 * RAIL_LANE_SLOTS; j++)
			CU_ASSERT_PTR_NULL(rail->tx_lanes[j].ep);
	}
	first_end(&rig);
}

/* Opens or closes the rail for peers, and changes the routes accordingly. */
static void first_rail(struct first_rig *rig, uint32_t i, bool open)
{
	struct rail *rail = rail_at(rig->from.dp, i);

	__atomic_store_n(&rail->open, open, __ATOMIC_RELEASE);
	rail_sched_enter(rig->from.dp);
	rail_conn_table(rig->peer);
	rail_sched_leave(rig->from.dp);
}

static uint32_t first_away(const struct first_rig *rig, uint32_t i)
{
	return __atomic_load_n(&rail_at(rig->from.dp, i)->link.away,
			       __ATOMIC_RELAXED);
}

static void test_first_contact_opens_one_tx_lane(void)
{
	struct first_rig rig;

	first_begin(&rig);
	first_rail(&rig, 0, false);
	test_connect(rig.from.dp, rig.peer, rig.src, rig.dst);
	CU_ASSERT_EQUAL(first_lanes(&rig.to, 0), 2);
	CU_ASSERT_EQUAL(first_lanes(&rig.from, 1), 2);
	CU_ASSERT(rail_use_begun(rail_at(rig.from.dp, 1), 0));
	CU_ASSERT(rail_use_none(rail_at(rig.from.dp, 1), 1));
	CU_ASSERT_EQUAL(first_away(&rig, 1), 0);
	CU_ASSERT(rail_use_none(rail_at(rig.from.dp, 0), 0));
	/* a warm-up opens all tx lanes */
	first_rail(&rig, 0, true);
	CU_ASSERT_EQUAL(tei_rail_peer_warmup(rig.peer, TEST_WAIT_NS, NULL), 0);
	CU_ASSERT_EQUAL(first_lanes(&rig.from, 0), 3);
	CU_ASSERT_EQUAL(first_lanes(&rig.from, 1), 3);
	first_end(&rig);
}

/* Tests that a slice which no open lane takes opens a tx lane: the task names
 * the rail that has none. */
static void test_slice_that_is_left_opens_a_tx_lane(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct first_rig rig;
	struct test_task t;
	struct rail *rail;

	first_begin(&rig);
	rail = rail_at(rig.from.dp, 1);
	rig.from.dp->times.stuck_ns = TEST_WAIT_NS;
	first_rail(&rig, 1, false);
	test_connect(rig.from.dp, rig.peer, rig.src, rig.dst);
	CU_ASSERT(rail_use_none(rail, 0) && rail_use_none(rail, 1));
	first_rail(&rig, 1, true);
	test_task_init(&t, rig.peer, false, rig.src, rig.dst, 1);
	t.task.rail = 2;
	CU_ASSERT_EQUAL(test_submit(rig.from.dp, &t, 1), 0);
	while (!test_ends(&t) && tei_now_ns() < end)
		tei_rail_progress(rig.from.dp);
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	CU_ASSERT(rail_use_begun(rail, 0) || rail_use_begun(rail, 1));
	first_end(&rig);
}

/* Tests that slices open the first tx lane of a rail whose rx lane was lost: they
 * prefer this rail, which counts as working. */
static void test_slice_opens_the_first_tx_lane_of_a_lost_rail(void)
{
	struct first_rig rig;
	struct test_task t;
	struct rail *rail;

	first_begin(&rig);
	rail = rail_at(rig.from.dp, 1);
	first_rail(&rig, 1, false);
	test_connect(rig.from.dp, rig.peer, rig.src, rig.dst);
	test_plane_still(&rig.from);
	__atomic_store_n(&rig.from.dp->thread.stop, false, __ATOMIC_RELEASE);
	first_rail(&rig, 1, true);
	rail->link.lost = true;
	rail_sched_enter(rig.from.dp);
	CU_ASSERT_TRUE(rail_health_works(rig.peer, 1));
	rail_sched_leave(rig.from.dp);
	test_task_init(&t, rig.peer, false, rig.src, rig.dst, 1);
	t.task.rail = 2;
	CU_ASSERT_EQUAL(test_submit(rig.from.dp, &t, 1), 0);
	rail_use_for_tasks(rig.from.dp, true);
	CU_ASSERT_FALSE(rail_use_none(rail, 0) && rail_use_none(rail, 1));
	/* a lost rail with a USED lane gets no further lane */
	rail->next_tx[0].use = RAIL_LANE_USED;
	rail->next_tx[1].use = RAIL_LANE_UNUSED;
	rail_use_for_tasks(rig.from.dp, true);
	CU_ASSERT_TRUE(rail_use_none(rail, 1));
	rail->link.lost = false;
	__atomic_store_n(&rig.from.dp->thread.stop, true, __ATOMIC_RELEASE);
	first_end(&rig);
}

/* Makes the following openings of tx lanes fail if refuse is true: no provider
 * has the name. */
static void first_refuse(struct first_rig *rig, bool refuse)
{
	static char none[] = "none", *name[2];
	struct rail *rail;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		rail = rail_at(rig->from.dp, i);
		if (refuse)
			name[i] = test_rail_rename(rail, none);
		else
			test_rail_rename(rail, name[i]);
	}
}

static bool first_lost(const struct first_rig *rig)
{
	return __atomic_load_n(&rail_at(rig->from.dp, 0)->link.lost,
			       __ATOMIC_RELAXED) ||
	       __atomic_load_n(&rail_at(rig->from.dp, 1)->link.lost,
			       __ATOMIC_RELAXED);
}

static void test_tx_lane_that_cannot_be_opened_is_tried_again(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct tei_rail_stats s;
	struct first_rig rig;
	struct test_task t;

	first_begin(&rig);
	rig.from.settings.failure.slice_timeout_s = 1;
	first_refuse(&rig, true);
	test_task_init(&t, rig.peer, false, rig.src, rig.dst, 1);
	CU_ASSERT_EQUAL(test_submit(rig.from.dp, &t, 1), 0);
	CU_ASSERT(test_wait(&t, 1));
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_FAILED);
	/* the error has the reason */
	CU_ASSERT_PTR_NOT_NULL(strstr(t.text, " tx lane: fi_domain: "));
	CU_ASSERT(!tei_rail_peer_gone(rig.peer));
	CU_ASSERT_EQUAL(tei_rail_get_stats(rig.from.dp, 0, &s), 0);
	CU_ASSERT_EQUAL(s.state, TEI_RAIL_DOWN);
	CU_ASSERT_EQUAL(s.lanes, 1);
	first_refuse(&rig, false);
	rig.from.settings.failure.slice_timeout_s = 60;
	CU_ASSERT_EQUAL(test_run(rig.from.dp, rig.peer, false, rig.src, rig.dst,
				 1), TEI_RAIL_END_COMPLETED);
	while (first_lost(&rig) && tei_now_ns() < end)
		sched_yield();
	CU_ASSERT(!first_lost(&rig));
	CU_ASSERT_EQUAL(first_away(&rig, 0) + first_away(&rig, 1), 0);
	first_end(&rig);
}

static uint32_t first_refused;	/* atomic: number of endpoints that
				 * first_refuse_ep has refused */

static int first_refuse_ep(struct fid_domain *domain, struct fi_info *info,
			   struct fid_ep **ep, void *context)
{
	(void)domain;
	(void)info;
	(void)ep;
	(void)context;
	__atomic_fetch_add(&first_refused, 1, __ATOMIC_RELEASE);
	return -FI_ENOMEM;
}

/* Makes the opening of the tx lane of the first rail fail, and then the opening
 * of its rx lane. The error of tasks still names the reason of the tx lane. */
static void test_rx_failure_keeps_the_error_of_the_tx_lane(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct fi_ops_domain ops, *real;
	struct first_rig rig;
	struct rail *rail;

	first_begin(&rig);
	test_plane_still(&rig.from);
	__atomic_store_n(&rig.from.dp->thread.stop, false, __ATOMIC_RELEASE);
	rail = rail_at(rig.from.dp, 0);
	first_refuse(&rig, true);
	CU_ASSERT_TRUE(rail_use_want(rail, 0));
	while (!rail->link.lost && tei_now_ns() < end)
		rail_reopen_collect(rail);
	CU_ASSERT_PTR_NOT_NULL(strstr(rail->link.lost_text, "tx lane"));
	real = rail->fab.rx_domain->ops;
	ops = *real;
	ops.endpoint = first_refuse_ep;
	rail->fab.rx_domain->ops = &ops;
	rail_fence_request(rail, rail->rx_lane.gen);
	while ((!__atomic_load_n(&first_refused, __ATOMIC_ACQUIRE) ||
		__atomic_load_n(&rail->next_rx.under_way, __ATOMIC_RELAXED)) &&
	       tei_now_ns() < end) {
		rail_fence_run(rig.from.dp);
		rail_fence_collect(rail);
		sched_yield();
	}
	CU_ASSERT_TRUE(__atomic_load_n(&first_refused, __ATOMIC_ACQUIRE) > 0);
	CU_ASSERT_TRUE(rail->link.lost);
	CU_ASSERT_PTR_NOT_NULL(strstr(rail->link.lost_text, "tx lane"));
	rail->fab.rx_domain->ops = real;
	first_refuse(&rig, false);
	__atomic_store_n(&rig.from.dp->thread.stop, true, __ATOMIC_RELEASE);
	first_end(&rig);
}

static void test_plane_closes_while_its_first_tx_lane_opens(void)
{
	struct first_rig rig;
	uint32_t i;

	for (i = 0; i < 3; i++) {
		first_begin(&rig);
		rig.from.dp->times.bye_ns = TEST_WAIT_NS;
		if (i == 2)	/* nothing starts to open the lane */
			test_plane_still(&rig.from);
		CU_ASSERT_EQUAL(rail_use_want(rail_at(rig.from.dp, 0), 0),
				i != 2);
		while (i == 1 && __atomic_load_n(
					 &rail_at(rig.from.dp, 0)->next_tx[0].use,
					 __ATOMIC_ACQUIRE) == RAIL_LANE_WANTED)
			sched_yield();
		first_end(&rig);
	}
}

const struct tei_test_case rail_reopen_cases[] = {
	{ "idle_plane_has_no_tx_lane", test_idle_plane_has_no_tx_lane },
	{ "first_contact_opens_one_tx_lane",
	  test_first_contact_opens_one_tx_lane },
	{ "slice_that_is_left_opens_a_tx_lane",
	  test_slice_that_is_left_opens_a_tx_lane },
	{ "slice_opens_the_first_tx_lane_of_a_lost_rail",
	  test_slice_opens_the_first_tx_lane_of_a_lost_rail },
	{ "tx_lane_that_cannot_be_opened_is_tried_again",
	  test_tx_lane_that_cannot_be_opened_is_tried_again },
	{ "rx_failure_keeps_the_error_of_the_tx_lane",
	  test_rx_failure_keeps_the_error_of_the_tx_lane },
	{ "plane_closes_while_its_first_tx_lane_opens",
	  test_plane_closes_while_its_first_tx_lane_opens },
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
