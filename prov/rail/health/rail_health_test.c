/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the faults of rail pairs. The test calls the functions of the
 * progress thread and chooses the times. */

#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_peer_run.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"


#define HEALTH_HEARD_NS	(45 * TEI_NS_PER_MS) /* activity of the TCP stack that
					      * is older does not count as
					      * recent */

static struct rail_fault *health_fault(struct test_pair *pair)
{
	struct rail_fault *f = NULL;

	rail_sched_enter(pair->from.dp);
	if (!tei_list_empty(&pair->from.dp->health.faults))
		f = tei_list_first(&pair->from.dp->health.faults,
				   struct rail_fault, link);
	rail_sched_leave(pair->from.dp);
	return f;
}

static void health_down(struct test_pair *pair)
{
	rail_sched_enter(pair->from.dp);
	rail_health_down(pair->peer, pair->rail, 0, "by test", false);
	rail_sched_leave(pair->from.dp);
}

static bool health_open(struct test_pair *pair, uint64_t bytes)
{
	bool open;

	rail_sched_enter(pair->from.dp);
	open = rail_health_open(pair->peer, pair->rail, 0, bytes);
	rail_sched_leave(pair->from.dp);
	return open;
}

static bool health_works(struct test_pair *pair)
{
	bool works;

	rail_sched_enter(pair->from.dp);
	works = rail_health_works(pair->peer, 0);
	CU_ASSERT_EQUAL(rail_health_doubtful(pair->peer, pair->rail, 0),
			!works);
	rail_sched_leave(pair->from.dp);
	return works;
}

static struct tei_rail_stats health_stats(struct test_pair *pair)
{
	struct tei_rail_stats s;

	memset(&s, 0, sizeof(s));
	CU_ASSERT_EQUAL(tei_rail_get_stats(pair->from.dp, 0, &s), 0);
	return s;
}

/* Handles an error completion of a slice on a lane in the given state. older:
 * how much older the generation is to which the slice was posted than the
 * current generation of the target's lane. Returns the number of faults. */
static uint32_t health_after(struct test_pair *pair, int err, int32_t older,
			     enum rail_lane_state state)
{
	struct rail_lane *lane = &pair->rail->tx_lanes[0];
	uint32_t was = lane->state, n;
	struct rail_slice s;

	memset(&s, 0, sizeof(s));
	s.peer = pair->peer;
	s.lane = lane;
	lane->state = state;
	rail_sched_enter(pair->from.dp);
	s.remote_gen = pair->peer->remotes[0].gen - (uint32_t)older;
	rail_health_error(&s, err);
	n = pair->from.dp->health.nfaults;
	rail_health_forget(pair->peer);
	rail_sched_leave(pair->from.dp);
	lane->state = was;
	return n;
}

static void test_error_of_closed_lane_makes_no_fault(void)
{
	struct test_pair pair;

	test_pair_open(&pair);
	CU_ASSERT_EQUAL(health_after(&pair, FI_EIO, 0, RAIL_LANE_ACTIVE), 1);
	/* the slice was posted to a generation that the target has closed
	 * already */
	CU_ASSERT_EQUAL(health_after(&pair, FI_EIO, 1, RAIL_LANE_ACTIVE), 0);
	CU_ASSERT_EQUAL(health_after(&pair, FI_EIO, 0, RAIL_LANE_RETIRING), 0);
	CU_ASSERT_EQUAL(health_after(&pair, FI_EACCES, 0, RAIL_LANE_ACTIVE), 0);
	test_pair_close(&pair);
}

static uint32_t health_run(struct test_pair *pair)
{
	pair->from.dp->health.checked_ns = 0;
	test_health_run(pair->from.dp, tei_now_ns());
	return health_stats(pair).state;
}

/* Simulates a completed slice of another pair on the same rail. */
static void health_carried(struct test_pair *pair)
{
	__atomic_fetch_add(&pair->rail->tx_lanes[0].done.slices, 1,
			   __ATOMIC_RELAXED);
}

/* Simulates that n slices of other pairs are posted on the same rail. */
static void health_others(struct test_pair *pair, uint32_t n)
{
	__atomic_store_n(&pair->rail->tx_lanes[0].inflight, n,
			 __ATOMIC_RELAXED);
}

static void test_rail_with_progress_on_other_pairs_is_up(void)
{
	struct test_pair pair;
	struct rail_fault *f;
	uint64_t changes;

	test_pair_open(&pair);
	health_down(&pair);
	CU_ASSERT_EQUAL(health_run(&pair), TEI_RAIL_DOWN);
	health_carried(&pair);
	CU_ASSERT_EQUAL(health_run(&pair), TEI_RAIL_UP);
	/* the pair stays DOWN, and its recovery does not change the state of
	 * the rail */
	f = health_fault(&pair);
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(f->stage, RAIL_FAULT_DOWN);
	changes = health_stats(&pair).state_changes;
	CU_ASSERT_EQUAL(changes, 2);
	f->answered = true;
	CU_ASSERT_EQUAL(health_run(&pair), TEI_RAIL_UP);
	CU_ASSERT_EQUAL(f->stage, RAIL_FAULT_RAMPING);
	rail_sched_enter(pair.from.dp);
	rail_health_forget(pair.peer);
	rail_sched_leave(pair.from.dp);
	/* as long as slices of other pairs may still complete, the rail stays
	 * UP */
	health_others(&pair, 2);
	health_down(&pair);
	CU_ASSERT_EQUAL(health_stats(&pair).state, TEI_RAIL_UP);
	CU_ASSERT_EQUAL(health_stats(&pair).state_changes, changes);
	health_fault(&pair)->since_ns -= TEI_NS_PER_SEC;
	CU_ASSERT_EQUAL(health_run(&pair), TEI_RAIL_DOWN);
	health_others(&pair, 0);
	test_pair_close(&pair);
}

static void test_share_of_ramp_up_doubles_until_full(void)
{
	struct test_pair pair;
	struct rail_fault *f;
	uint64_t now, share;
	int turns;

	test_pair_open(&pair);
	health_down(&pair);
	f = health_fault(&pair);
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	/* use a fixed window instead of the measured one */
	__atomic_store_n(&pair.rail->load.window, UINT64_C(8) << 20,
			 __ATOMIC_RELAXED);
	now = pair.from.dp->health.checked_ns + RAIL_HEALTH_NS;
	f->answered = true;
	test_health_run(pair.from.dp, now);
	CU_ASSERT_EQUAL(health_stats(&pair).state, TEI_RAIL_PROBING);
	CU_ASSERT_EQUAL(f->stage, RAIL_FAULT_RAMPING);
	share = f->share;
	CU_ASSERT(health_open(&pair, share - 1));
	CU_ASSERT(!health_open(&pair, share));
	/* the share of a pair does not grow as long as it carries no traffic */
	test_health_run(pair.from.dp, now += RAIL_HEALTH_NS);
	test_health_run(pair.from.dp, now += RAIL_HEALTH_NS);
	CU_ASSERT_EQUAL_FATAL(pair.from.dp->health.nfaults, 1);
	share = f->share;
	for (turns = 0; pair.from.dp->health.nfaults && turns < 20; turns++) {
		CU_ASSERT_EQUAL(f->share, share << turns);
		__atomic_fetch_add(&pair.rail->tx_lanes[0].done.slices, 1,
				   __ATOMIC_RELAXED);
		test_health_run(pair.from.dp, now += RAIL_HEALTH_NS);
	}
	CU_ASSERT_EQUAL(pair.from.dp->health.nfaults, 0);
	CU_ASSERT_EQUAL(health_stats(&pair).state, TEI_RAIL_UP);
	test_pair_close(&pair);
}

/* --- the peer's TCP stack ------------------------------------------------ */

/* A TCP connection whose buffers are full because no process reads.
 * health_swap() exchanges it with the connection to the peer, so that the
 * checks examine it instead. Meanwhile the connection object is not ready, and
 * the address in peer->remotes is used. */
struct health_full {
	int listener, fd, wait_fd;
	struct tei_rail_addr addr;
};

/* Exchanges two TCP connections: the connection to the peer, and the connection
 * `full`, whose buffers are full. */
static void health_swap(struct test_pair *pair, struct health_full *full)
{
	struct rail_lane *lane = &pair->rail->tx_lanes[0];
	struct tei_rail_addr addr;
	struct rail_conn *conn;
	int fd;

	rail_sched_enter(pair->from.dp);
	addr = pair->peer->remotes[0].addr;
	pair->peer->remotes[0].addr = full->addr;
	full->addr = addr;
	conn = rail_conn_get(pair->peer, lane, 0);
	rail_sched_leave(pair->from.dp);
	tei_mutex_lock(&lane->lock);
	conn->ready = !conn->ready;
	fd = lane->wait_fd;
	lane->wait_fd = full->wait_fd;
	full->wait_fd = fd;
	tei_mutex_unlock(&lane->lock);
}

static void health_fill(struct test_pair *pair, struct health_full *full)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct epoll_event ev = { .events = EPOLLIN };
	socklen_t len = sizeof(sin);
	static char junk[1 << 16];

	sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	full->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	full->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	full->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	CU_ASSERT_FATAL(full->listener >= 0 && full->fd >= 0);
	CU_ASSERT_EQUAL_FATAL(bind(full->listener, (void *)&sin, len), 0);
	CU_ASSERT_EQUAL_FATAL(listen(full->listener, 1), 0);
	CU_ASSERT_EQUAL_FATAL(getsockname(full->listener, (void *)&sin, &len),
			      0);
	CU_ASSERT_EQUAL_FATAL(connect(full->fd, (void *)&sin, len), 0);
	CU_ASSERT_EQUAL_FATAL(epoll_ctl(full->wait_fd, EPOLL_CTL_ADD, full->fd,
					&ev), 0);
	while (!rail_tcp_received(full->fd, 0, false) && tei_now_ns() < end)
		send(full->fd, junk, sizeof(junk), MSG_NOSIGNAL | MSG_DONTWAIT);
	memset(&full->addr, 0, sizeof(full->addr));
	full->addr.len = sizeof(sin);
	memcpy(full->addr.bytes, &sin, sizeof(sin));
	health_swap(pair, full);
}

static void health_drain(struct test_pair *pair, struct health_full *full)
{
	health_swap(pair, full);
	close(full->wait_fd);
	close(full->fd);
	close(full->listener);
}

/* Creates a fault in the given stage: the peer is alive, but the pair has made
 * no progress for since_ns. */
static struct rail_fault *health_silent(struct test_pair *pair,
					enum rail_fault_stage stage,
					uint64_t since_ns)
{
	uint64_t now = tei_now_ns();
	struct rail_fault *f;

	rail_sched_enter(pair->from.dp);
	rail_health_forget(pair->peer);
	f = rail_health_ask(pair->peer, pair->rail, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	f->stage = stage;
	f->lane = &pair->rail->tx_lanes[0];
	f->moves = rail_stall_moves(pair->peer, f->lane, 0);
	f->polls = 100;
	f->since_ns = now - since_ns;
	f->doubt_ns = now - since_ns;
	f->alive_ns = now - since_ns + 1;
	pair->peer->alive_ns = now;
	rail_health_state(pair->rail);
	rail_sched_leave(pair->from.dp);
	return f;
}

static enum rail_fault_stage health_turn(struct test_pair *pair,
					 struct rail_fault *f)
{
	pair->from.dp->health.checked_ns = 0;
	test_health_run(pair->from.dp, tei_now_ns());
	CU_ASSERT_EQUAL(health_fault(pair), f);
	return f->stage;
}

/* Creates a fault of the given stage and age, and checks that the fault goes
 * back to ASKED because the TCP stack responds. Repeats this a few times,
 * because the TCP stack may just be probing the window, or this process may be
 * suspended for seconds. */
static void health_waits(struct test_pair *pair, enum rail_fault_stage stage,
			 uint64_t since_ns)
{
	enum rail_fault_stage after = RAIL_FAULT_DOWN;
	struct rail_fault *f = NULL;
	int tries;

	for (tries = 0; tries < 20 && after != RAIL_FAULT_ASKED; tries++) {
		f = health_silent(pair, stage, since_ns);
		CU_ASSERT_EQUAL(health_stats(pair).state,
				stage == RAIL_FAULT_ASKED ? TEI_RAIL_UP :
							    TEI_RAIL_SUSPECT);
		after = health_turn(pair, f);
	}
	CU_ASSERT_EQUAL_FATAL(after, RAIL_FAULT_ASKED);
	CU_ASSERT_EQUAL(health_stats(pair).state, TEI_RAIL_UP);
	/* the fault moves to the next stage only after another sign of life */
	CU_ASSERT_EQUAL(f->alive_ns, 0);
	CU_ASSERT(pair->peer->alive_ns <= f->since_ns);
}

static void test_pair_with_full_tcp_window_is_not_suspect(void)
{
	struct health_full full;
	struct test_pair pair;
	struct rail_fault *f;

	test_pair_open(&pair);
	health_fill(&pair, &full);
	pair.from.dp->health.open_ns = 20 * TEI_NS_PER_MS;
	health_waits(&pair, RAIL_FAULT_ASKED, 100 * TEI_NS_PER_MS);
	health_waits(&pair, RAIL_FAULT_SUSPECT, 100 * TEI_NS_PER_MS);
	f = health_silent(&pair, RAIL_FAULT_ASKED, 4 * TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(health_turn(&pair, f), RAIL_FAULT_SUSPECT);
	/* the time limit is longer if opening a lane takes long */
	pair.from.dp->health.open_ns = TEI_NS_PER_SEC;
	health_waits(&pair, RAIL_FAULT_ASKED, 4 * TEI_NS_PER_SEC);
	/* the time limit has a maximum */
	pair.from.dp->health.open_ns = 100 * TEI_NS_PER_SEC;
	f = health_silent(&pair, RAIL_FAULT_ASKED, 10 * TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(health_turn(&pair, f), RAIL_FAULT_SUSPECT);
	CU_ASSERT_EQUAL(health_stats(&pair).state, TEI_RAIL_SUSPECT);
	CU_ASSERT_EQUAL(health_turn(&pair, f), RAIL_FAULT_DOWN);
	CU_ASSERT_EQUAL(health_stats(&pair).state, TEI_RAIL_DOWN);
	health_drain(&pair, &full);
	test_pair_close(&pair);
}

/* Changes the port of the peer's lane as if the peer had renewed it. A second
 * call restores the port. */
static void health_renew(struct test_pair *pair)
{
	struct sockaddr_in *sin;

	rail_sched_enter(pair->from.dp);
	sin = (void *)pair->peer->remotes[0].addr.bytes;
	sin->sin_port ^= 1;
	rail_sched_leave(pair->from.dp);
}

static void test_stall_check_uses_connection_that_carries_slices(void)
{
	uint64_t end = tei_now_ns() + 5 * TEI_NS_PER_SEC, moves;
	struct rail_disconnect_list list;
	struct rail_lane *lane;
	struct test_pair pair;
	bool still;

	test_pair_open(&pair);
	lane = &pair.rail->tx_lanes[0];
	rail_sched_enter(pair.from.dp);
	moves = rail_stall_moves(pair.peer, lane, 0);
	rail_sched_leave(pair.from.dp);
	health_renew(&pair);
	do {
		rail_disconnect_list(lane, &list);
		still = rail_stall_confirm(&list, pair.peer, 0, moves,
					   tei_now_ns(), true);
		rail_disconnect_list_free(&list);
	} while (still && tei_now_ns() < end);
	/* the peer's TCP stack has acknowledged everything, so nothing is
	 * cut */
	CU_ASSERT(!still);
	health_renew(&pair);
	test_pair_close(&pair);
}

/* Returns true if the TCP stack has received anything from the peer within
 * HEALTH_HEARD_NS. */
static bool health_recent(struct test_pair *pair)
{
	struct rail_lane *lane = &pair->rail->tx_lanes[0];
	struct rail_disconnect_list list;
	struct tei_rail_addr addr;
	bool received;

	rail_sched_enter(pair->from.dp);
	addr = pair->peer->remotes[0].addr;
	rail_sched_leave(pair->from.dp);
	rail_disconnect_list(lane, &list);
	received = rail_disconnect_received(&list, addr.bytes, addr.len,
					    HEALTH_HEARD_NS / TEI_NS_PER_MS,
					    false);
	rail_disconnect_list_free(&list);
	return received;
}

/* Simulates that n slices are posted on the pair. */
static void health_posted(struct test_pair *pair, uint32_t n)
{
	struct rail_lane *lane = &pair->rail->tx_lanes[0];
	struct rail_conn *conn;

	rail_sched_enter(pair->from.dp);
	conn = rail_conn_get(pair->peer, lane, 0);
	rail_sched_leave(pair->from.dp);
	tei_mutex_lock(&lane->lock);
	conn->posted = n;
	tei_mutex_unlock(&lane->lock);
}

static void test_pair_with_acknowledged_ping_is_not_suspect(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	enum rail_fault_stage after = RAIL_FAULT_DOWN;
	struct test_pair pair;
	struct rail_fault *f;
	int tries;

	test_pair_open(&pair);
	health_posted(&pair, 1);
	for (tries = 0; tries < 20 && after != RAIL_FAULT_ASKED; tries++) {
		f = health_silent(&pair, RAIL_FAULT_ASKED,
				  100 * TEI_NS_PER_MS);
		while (!f->asked && tei_now_ns() < end)
			rail_peer_run(pair.peer, tei_now_ns());
		CU_ASSERT_FATAL(f->asked);
		/* the peer's TCP stack may acknowledge the ping before asked_ns
		 * is set; waits until this acknowledgement no longer counts as
		 * recent */
		while ((health_recent(&pair) ||
			tei_now_ns() < f->asked_ns + HEALTH_HEARD_NS) &&
		       tei_now_ns() < end)
			sched_yield();
		after = health_turn(&pair, f);
		CU_ASSERT(after != RAIL_FAULT_ASKED || !f->asked);
	}
	CU_ASSERT_EQUAL(after, RAIL_FAULT_ASKED);
	health_posted(&pair, 0);
	test_pair_close(&pair);
}

/* Tests that the slices for a silent peer return although the lane, which other
 * peers use, stays open, and that the lane then serves the peer again. */
static void test_cut_of_silent_peer_keeps_lane_open(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct rail_lane *lane, *there;
	struct rail_conn *conn;
	struct test_task task;
	struct test_pair pair;
	uint32_t gen;

	test_pair_open(&pair);
	lane = &pair.rail->tx_lanes[0];
	there = &rail_at(pair.to.dp, 0)->rx_lane;
	gen = lane->gen;
	tei_mutex_lock(&there->lock);
	test_task_init(&task, pair.peer, false, pair.src, pair.dst, 64);
	CU_ASSERT_EQUAL_FATAL(test_submit(pair.from.dp, &task, 1), 0);
	rail_sched_enter(pair.from.dp);
	conn = rail_conn_get(pair.peer, lane, 0);
	rail_sched_leave(pair.from.dp);
	while (!conn->posted && tei_now_ns() < end)
		rail_lane_run(lane);
	CU_ASSERT_EQUAL(conn->posted, 1);
	rail_renew_for_peer(pair.peer, UINT64_MAX);
	CU_ASSERT_EQUAL(conn->posted, 0);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_ACTIVE);
	CU_ASSERT_EQUAL(lane->gen, gen);
	CU_ASSERT(health_works(&pair));
	CU_ASSERT_EQUAL(test_ends(&task), 0);
	tei_mutex_unlock(&there->lock);
	while (!test_ends(&task) && tei_now_ns() < end)
		test_pair_turn(&pair, tei_now_ns());
	CU_ASSERT_EQUAL(task.end, TEI_RAIL_END_COMPLETED);
	test_pair_close(&pair);
}

/* Posts one slice to a peer that does not poll, and creates a fault of the
 * given age. Sets *since to the time at which the peer became silent, ns. */
static struct rail_conn *health_freeze(struct test_pair *pair,
				       struct test_task *task, uint64_t age,
				       uint64_t *since)
{
	struct rail_lane *lane = &pair->rail->tx_lanes[0];
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct rail_conn *conn;
	struct rail_fault *f;

	test_task_init(task, pair->peer, false, pair->src, pair->dst, 64);
	CU_ASSERT_EQUAL_FATAL(test_submit(pair->from.dp, task, 1), 0);
	rail_sched_enter(pair->from.dp);
	conn = rail_conn_get(pair->peer, lane, 0);
	rail_sched_leave(pair->from.dp);
	while (!conn->posted && tei_now_ns() < end)
		rail_lane_run(lane);
	CU_ASSERT_EQUAL_FATAL(conn->posted, 1);
	rail_stall_ask(pair->peer, lane, 0, conn->moves, tei_now_ns());
	rail_sched_enter(pair->from.dp);
	f = tei_list_first(&pair->peer->faults, struct rail_fault, peer_link);
	f->since_ns -= age;
	pair->peer->alive_ns = f->since_ns - 1;
	pair->peer->probes.life_tries = 2;
	*since = f->since_ns;
	rail_sched_leave(pair->from.dp);
	return conn;
}

static void health_check(struct test_pair *pair, uint64_t now)
{
	pair->from.dp->health.checked_ns = 0;
	test_health_run(pair->from.dp, now);
}

/* Tests a silent peer with a contended connection. age: time since the peer
 * became silent, ns. wait: true if another connection waits for the place in
 * the endpoint cache. polls: number of checks after the first one. left:
 * expected number of slices that are still posted after these checks. The test
 * chooses the times, so that a slow machine does not matter. */
static void health_contended(uint64_t age, bool wait, int polls, uint32_t left)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct rail_conn *conn, other = { .remote = 0 };
	struct rail_lane *there;
	struct rail_cache *c;
	struct test_task task;
	struct test_pair pair;
	uint64_t since;

	test_pair_open(&pair);
	there = &rail_at(pair.to.dp, 0)->rx_lane;
	c = rail_cache_of(&pair.rail->tx_lanes[0]);
	tei_list_init(&other.wait_link);
	tei_mutex_lock(&there->lock);
	conn = health_freeze(&pair, &task, age, &since);
	rail_sched_enter(pair.from.dp);
	conn->slot->yield = true;
	if (wait)
		tei_list_add_tail(&c->waiting, &other.wait_link);
	rail_sched_leave(pair.from.dp);
	health_check(&pair, since + age);
	/* the first check cuts nothing */
	CU_ASSERT_EQUAL(conn->posted, 1);
	for (int i = 0; i < polls; i++) {
		usleep(450 * 1000);
		age += 450 * TEI_NS_PER_MS;
		health_check(&pair, since + age);
	}
	CU_ASSERT_EQUAL(conn->posted, left);
	CU_ASSERT_EQUAL(pair.rail->tx_lanes[0].state, RAIL_LANE_ACTIVE);
	CU_ASSERT_EQUAL(test_ends(&task), 0);
	/* the rail is not at fault */
	CU_ASSERT_EQUAL(health_stats(&pair).state, TEI_RAIL_UP);
	rail_sched_enter(pair.from.dp);
	tei_list_del(&other.wait_link);
	rail_sched_leave(pair.from.dp);
	tei_mutex_unlock(&there->lock);
	while (!test_ends(&task) && tei_now_ns() < end)
		test_pair_turn(&pair, tei_now_ns());
	CU_ASSERT_EQUAL(task.end, TEI_RAIL_END_COMPLETED);
	test_pair_close(&pair);
}

static void test_silent_peer_with_contended_place_is_cut(void)
{
	/* with two checks, because the peer's TCP stack may have acknowledged
	 * the last bytes only before the first one */
	health_contended(2 * TEI_NS_PER_SEC, true, 2, 0);
}

static void test_silent_peer_without_waiters_keeps_place(void)
{
	health_contended(2 * TEI_NS_PER_SEC, false, 2, 1);
}

static void test_silent_peer_at_first_keeps_contended_place(void)
{
	health_contended(TEI_NS_PER_SEC / 20, true, 1, 1);
}

/* Tests that no stall is suspected if nothing is posted on the pair and the
 * pair is connected. */
static void test_idle_pair_is_no_fault(void)
{
	struct test_pair pair;

	test_pair_open(&pair);
	health_silent(&pair, RAIL_FAULT_ASKED, 10 * TEI_NS_PER_SEC);
	pair.from.dp->health.checked_ns = 0;
	test_health_run(pair.from.dp, tei_now_ns());
	rail_sched_enter(pair.from.dp);
	CU_ASSERT(tei_list_empty(&pair.peer->faults));
	rail_sched_leave(pair.from.dp);
	CU_ASSERT_EQUAL(health_stats(&pair).state, TEI_RAIL_UP);
	test_pair_close(&pair);
}

/* --- many peers ---------------------------------------------------------- */

/* number of peers in a test with one slice for each peer; the peers are sockets
 * that no process reads */
#define HEALTH_MANY	200

struct health_many {
	struct tei_rail_peer *peer[HEALTH_MANY];
	struct rail_conn *conn[HEALTH_MANY];
	struct rail_slice slice[HEALTH_MANY];
	int listener[HEALTH_MANY], fd[HEALTH_MANY], wait_fd;
};

static struct tei_rail_peer *health_peer(struct test_pair *pair, uint32_t i,
					 const struct sockaddr_in *sin)
{
	struct tei_rail_peer *p;

	rail_sched_enter(pair->from.dp);
	p = rail_peer_new(pair->from.dp, "one of many", 7 + i);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	p->remotes = calloc(1, sizeof(*p->remotes));
	CU_ASSERT_PTR_NOT_NULL_FATAL(p->remotes);
	p->nremotes = 1;
	p->remotes[0].addr = pair->rail->nic.own;
	memcpy(p->remotes[0].addr.bytes, sin, sizeof(*sin));
	p->state = RAIL_PEER_READY;
	p->refs = 1;
	CU_ASSERT_EQUAL_FATAL(rail_conn_table(p), 0);
	rail_sched_leave(pair->from.dp);
	return p;
}

static void health_connect(struct health_many *m, uint32_t i,
			   struct sockaddr_in *sin)
{
	struct epoll_event ev = { .events = EPOLLIN };
	socklen_t len = sizeof(*sin);

	memset(sin, 0, sizeof(*sin));
	sin->sin_family = AF_INET;
	sin->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	m->listener[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	m->fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CU_ASSERT_FATAL(m->listener[i] >= 0 && m->fd[i] >= 0);
	CU_ASSERT_EQUAL_FATAL(bind(m->listener[i], (void *)sin, len), 0);
	CU_ASSERT_EQUAL_FATAL(listen(m->listener[i], 1), 0);
	CU_ASSERT_EQUAL_FATAL(getsockname(m->listener[i], (void *)sin, &len),
			      0);
	CU_ASSERT_EQUAL_FATAL(connect(m->fd[i], (void *)sin, len), 0);
	CU_ASSERT_EQUAL_FATAL(epoll_ctl(m->wait_fd, EPOLL_CTL_ADD, m->fd[i],
					&ev), 0);
}

static void health_swap_fd(struct rail_lane *lane, int *fd)
{
	int was;

	tei_mutex_lock(&lane->lock);
	was = lane->wait_fd;
	lane->wait_fd = *fd;
	*fd = was;
	tei_mutex_unlock(&lane->lock);
}

/* Simulates that a slice is posted to each peer, if post is true, or that these
 * slices have completed. */
static void health_post_many(struct test_pair *pair, struct health_many *m,
			     bool post)
{
	struct rail_lane *lane = &pair->rail->tx_lanes[0];
	uint32_t i;

	tei_mutex_lock(&lane->lock);
	for (i = 0; i < HEALTH_MANY; i++) {
		m->conn[i]->posted = post;
		m->conn[i]->moves++;
		if (post)
			tei_list_add_tail(&lane->posted, &m->slice[i].link);
		else
			tei_list_del(&m->slice[i].link);
	}
	lane->inflight = post ? HEALTH_MANY : 0;
	tei_mutex_unlock(&lane->lock);
}

static void health_begin_many(struct test_pair *pair, struct health_many *m)
{
	struct rail_lane *lane = &pair->rail->tx_lanes[0];
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct sockaddr_in sin;
	uint32_t i;

	m->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	for (i = 0; i < HEALTH_MANY; i++) {
		health_connect(m, i, &sin);
		m->peer[i] = health_peer(pair, i, &sin);
		rail_sched_enter(pair->from.dp);
		m->conn[i] = rail_conn_get(m->peer[i], lane, 0);
		rail_sched_leave(pair->from.dp);
		CU_ASSERT_PTR_NOT_NULL_FATAL(m->conn[i]);
		m->conn[i]->lane_gen = lane->gen;
		m->slice[i] = (struct rail_slice){ .peer = m->peer[i],
						   .conn = m->conn[i],
						   .lane = lane };
	}
	/* waits until the TCP stack has received nothing from the peers for
	 * HEALTH_HEARD_NS */
	while (rail_tcp_received(m->fd[HEALTH_MANY - 1],
				 HEALTH_HEARD_NS / TEI_NS_PER_MS, false) &&
	       tei_now_ns() < end)
		sched_yield();
	health_swap_fd(lane, &m->wait_fd);
	health_post_many(pair, m, true);
}

static void health_end_many(struct test_pair *pair, struct health_many *m)
{
	uint32_t i;

	health_swap_fd(&pair->rail->tx_lanes[0], &m->wait_fd);
	close(m->wait_fd);
	for (i = 0; i < HEALTH_MANY; i++) {
		rail_sched_enter(pair->from.dp);
		rail_health_forget(m->peer[i]);
		rail_sched_leave(pair->from.dp);
		tei_rail_peer_put(m->peer[i]);
		close(m->fd[i]);
		close(m->listener[i]);
	}
}

/* Simulates a sign of life of all peers, received at time now. */
static void health_live_many(struct test_pair *pair, struct health_many *m,
			     uint64_t now)
{
	uint32_t i;

	rail_sched_enter(pair->from.dp);
	for (i = 0; i < HEALTH_MANY; i++)
		m->peer[i]->alive_ns = now;
	rail_sched_leave(pair->from.dp);
}

static uint32_t health_count(struct test_pair *pair,
			     enum rail_fault_stage stage)
{
	struct rail_fault *f;
	uint32_t n = 0;

	rail_sched_enter(pair->from.dp);
	tei_list_foreach (f, &pair->from.dp->health.faults, struct rail_fault,
			  link)
		n += f->stage == stage;
	rail_sched_leave(pair->from.dp);
	return n;
}

/* Tests that faults of many silent peers are found together. The test chooses
 * the times, which begin one second ago. */
static void test_many_silent_peers_are_found_together(void)
{
	static struct health_many many;
	uint64_t now, since;
	struct test_pair pair;
	uint32_t n;

	test_pair_open(&pair);
	health_begin_many(&pair, &many);
	now = tei_now_ns() - TEI_NS_PER_SEC;
	rail_stall_check(pair.from.dp, now);
	rail_stall_check(pair.from.dp, now += RAIL_HEALTH_NS);
	CU_ASSERT_EQUAL(pair.from.dp->health.nfaults, 0);
	rail_stall_check(pair.from.dp, now += RAIL_STALL_NS);
	CU_ASSERT_EQUAL(pair.from.dp->health.nfaults, HEALTH_MANY);
	since = now;
	health_live_many(&pair, &many, now + 1);
	pair.from.dp->health.checked_ns = 0;
	do {
		test_health_run(pair.from.dp, now += RAIL_HEALTH_NS);
		n = health_count(&pair, RAIL_FAULT_DOWN);
	} while (!n && now < since + TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(n, HEALTH_MANY);
	CU_ASSERT(now - since < 100 * TEI_NS_PER_MS);
	CU_ASSERT_EQUAL(health_stats(&pair).state, TEI_RAIL_DOWN);
	health_post_many(&pair, &many, false);
	health_end_many(&pair, &many);
	test_pair_close(&pair);
}

/* --- posts that the provider refuses ------------------------------------- */

/* Operations of an endpoint that refuses writes, and the original
 * operations. */
static struct fi_ops_rma health_no_rma, *health_rma;
static uint32_t health_refusals;

static ssize_t health_no_write(struct fid_ep *ep, const struct fi_msg_rma *msg,
			       uint64_t flags)
{
	(void)ep;
	(void)msg;
	(void)flags;
	health_refusals++;
	return -FI_ENETUNREACH;
}

/* Makes all tx endpoints of the rail refuse writes, or accept them again. */
static void health_refuse(struct rail *rail, bool refuse)
{
	struct rail_lane *lane;
	uint32_t i;

	for (i = 0; i < rail->ntx * RAIL_LANE_SLOTS; i++) {
		lane = &rail->tx_lanes[i];
		tei_mutex_lock(&lane->lock);
		if (lane->ep && refuse) {
			health_rma = lane->ep->rma;
			health_no_rma = *health_rma;
			health_no_rma.writemsg = health_no_write;
			lane->ep->rma = &health_no_rma;
		} else if (lane->ep) {
			lane->ep->rma = health_rma;
		}
		tei_mutex_unlock(&lane->lock);
	}
}

/* Frees the fault, so that the waiting slices are posted. */
static void health_mended(struct test_pair *pair)
{
	rail_sched_enter(pair->from.dp);
	rail_health_forget(pair->peer);
	rail_sched_leave(pair->from.dp);
	rail_sched_kick(pair->from.dp, 0);
}

static void health_counts(struct test_pair *pair)
{
	struct tei_rail_peer_stats stats;

	tei_rail_peer_get_stats(pair->peer, &stats);
	CU_ASSERT_EQUAL(stats.retries, health_refusals);
	CU_ASSERT_EQUAL(health_stats(pair).retries, health_refusals);
	CU_ASSERT_EQUAL(health_stats(pair).errors, 0);
}

static void test_refused_posts_are_counted_as_retries(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct test_pair pair;
	struct test_task t;
	uint32_t most;

	test_pair_open(&pair);
	/* The statistics count refused posts as retries, but the limit
	 * retry_cnt does not: more refused posts than retry_cnt must not end
	 * the task. */
	most = pair.from.settings.failure.retry_cnt + 3;
	health_refusals = 0;
	health_refuse(pair.rail, true);
	test_task_init(&t, pair.peer, false, pair.src, pair.dst,
		       sizeof(pair.src));
	CU_ASSERT_EQUAL(test_submit(pair.from.dp, &t, 1), 0);
	while (health_refusals < most && tei_now_ns() < end)
		health_mended(&pair);
	CU_ASSERT_EQUAL(health_refusals, most);
	CU_ASSERT_EQUAL(test_ends(&t), 0);
	health_counts(&pair);
	health_refuse(pair.rail, false);
	while (!test_ends(&t) && tei_now_ns() < end) {
		health_mended(&pair);
		test_pair_turn(&pair, tei_now_ns());
	}
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	health_counts(&pair);
	test_pair_close(&pair);
}

const struct tei_test_case rail_health_cases[] = {
	{ "error_of_closed_lane_makes_no_fault",
	  test_error_of_closed_lane_makes_no_fault },
	{ "rail_with_progress_on_other_pairs_is_up",
	  test_rail_with_progress_on_other_pairs_is_up },
	{ "share_of_ramp_up_doubles_until_full",
	  test_share_of_ramp_up_doubles_until_full },
	{ "stall_check_uses_connection_that_carries_slices",
	  test_stall_check_uses_connection_that_carries_slices },
	{ "pair_with_full_tcp_window_is_not_suspect",
	  test_pair_with_full_tcp_window_is_not_suspect },
	{ "pair_with_acknowledged_ping_is_not_suspect",
	  test_pair_with_acknowledged_ping_is_not_suspect },
	{ "cut_of_silent_peer_keeps_lane_open",
	  test_cut_of_silent_peer_keeps_lane_open },
	{ "silent_peer_with_contended_place_is_cut",
	  test_silent_peer_with_contended_place_is_cut },
	{ "silent_peer_without_waiters_keeps_place",
	  test_silent_peer_without_waiters_keeps_place },
	{ "silent_peer_at_first_keeps_contended_place",
	  test_silent_peer_at_first_keeps_contended_place },
	{ "idle_pair_is_no_fault", test_idle_pair_is_no_fault },
	{ "many_silent_peers_are_found_together",
	  test_many_silent_peers_are_found_together },
	{ "refused_posts_are_counted_as_retries",
	  test_refused_posts_are_counted_as_retries },
	{ NULL, NULL },
};
