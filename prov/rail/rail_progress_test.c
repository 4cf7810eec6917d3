/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests which thread polls the lanes: callers, the progress thread, or none if
 * there is nothing to do. Other tests check how long a lane may take to
 * connect, and how long an idle progress thread sleeps. */

#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/rail_progress.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_resend.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"
#include "util/sieve.h"


#define PROGRESS_START	TEI_NS_PER_SEC	/* simulated time at which a test
					 * starts; the value does not matter */
#define PROGRESS_LATER	(2 * TEI_NS_PER_MS)

/* Returns a data plane without rails and without a progress thread. The tests
 * call the functions with which the thread decides whether it polls the
 * lanes. */
static struct tei_rail_dp *progress_unresolved(struct rail_drive *d)
{
	struct tei_rail_dp *dp = calloc(1, sizeof(*dp));

	CU_ASSERT_PTR_NOT_NULL_FATAL(dp);
	memset(d, 0, sizeof(*d));
	CU_ASSERT_FALSE(rail_drive_poll(dp, d, PROGRESS_START));
	return dp;
}

static void test_a_caller_that_polls_in_a_loop_gets_the_lanes_at_once(void)
{
	struct rail_drive d;
	struct tei_rail_dp *dp = progress_unresolved(&d);

	tei_rail_drive_begin(dp);
	CU_ASSERT_TRUE(rail_drive_poll(dp, &d, PROGRESS_START));
	tei_rail_drive_end(dp);
	/* after a loop has ended, its caller still counts as polling, but only
	 * if the next loop begins soon */
	CU_ASSERT_TRUE(rail_drive_poll(dp, &d, PROGRESS_START));
	CU_ASSERT_FALSE(
		rail_drive_poll(dp, &d, PROGRESS_START + PROGRESS_LATER));
	free(dp);
}

static void test_a_caller_that_polls_often_gets_the_lanes(void)
{
	uint64_t now = PROGRESS_START;
	struct rail_drive d;
	struct tei_rail_dp *dp = progress_unresolved(&d);
	int i;

	for (i = 0; i < 2; i++)
		tei_rail_progress(dp);
	now += PROGRESS_LATER;
	CU_ASSERT_FALSE(rail_drive_poll(dp, &d, now));
	for (i = 0; i < 100; i++)
		tei_rail_progress(dp);
	CU_ASSERT_FALSE(rail_drive_poll(dp, &d, now));
	now += PROGRESS_LATER;
	CU_ASSERT_TRUE(rail_drive_poll(dp, &d, now));
	now += PROGRESS_LATER;
	CU_ASSERT_FALSE(rail_drive_poll(dp, &d, now));
	free(dp);
}

/* Records n polls of rx lanes. Each poll takes took_ns and begins away_ns after
 * the end of the previous poll; the first poll begins away_ns after begin.
 * Returns the end time of the last poll. */
static uint64_t progress_looks(struct tei_rail_dp *dp, uint64_t begin, int n,
			       uint64_t took_ns, uint64_t away_ns)
{
	for (; n > 0; n--) {
		begin += away_ns;
		rail_polls_begin(&dp->callers.rx_polls, begin);
		begin += took_ns;
		rail_polls_end(&dp->callers.rx_polls, begin - took_ns, begin);
	}
	return begin;
}

static void test_a_caller_that_polls_rarely_does_not_get_the_rx_lanes(void)
{
	uint64_t now = PROGRESS_START;
	struct rail_drive d;
	struct tei_rail_dp *dp = progress_unresolved(&d);
	int i;

	CU_ASSERT_FALSE(rail_drive_poll_rx(dp, &d, now));
	/* a caller that sleeps for 100 us before each poll does not poll often
	 * enough */
	now = progress_looks(dp, now, 10, 0, 100 * TEI_NS_PER_US);
	CU_ASSERT_FALSE(rail_drive_poll_rx(dp, &d, now));
	now += TEI_NS_PER_MS;
	/* a caller that does little else than poll */
	for (i = 0; i < 200; i++)
		tei_rail_progress_all(dp);
	CU_ASSERT_TRUE(rail_drive_poll_rx(dp, &d, now));
	tei_rail_sleep_begin(dp);
	CU_ASSERT_FALSE(rail_drive_poll_rx(dp, &d, now));
	tei_rail_sleep_end(dp);
	free(dp);
}

static void test_a_caller_with_long_polls_gets_the_rx_lanes(void)
{
	uint64_t now = PROGRESS_START, at;
	struct rail_drive d;
	struct tei_rail_dp *dp = progress_unresolved(&d);
	int i;

	CU_ASSERT_FALSE(rail_drive_poll_rx(dp, &d, now));
	/* a caller that has polled four times without a pause, and whose last
	 * poll is still in progress */
	for (i = 0; i < 4; i++) {
		at = now + (uint64_t)i * 300 * TEI_NS_PER_US;
		rail_polls_begin(&dp->callers.rx_polls, at);
		if (i < 3)
			rail_polls_end(&dp->callers.rx_polls, at,
				       at + 300 * TEI_NS_PER_US);
	}
	now += TEI_NS_PER_MS;
	CU_ASSERT_TRUE(rail_drive_poll_rx(dp, &d, now));
	/* for the whole next millisecond the last poll is still in progress */
	now += TEI_NS_PER_MS;
	CU_ASSERT_TRUE(rail_drive_poll_rx(dp, &d, now));
	rail_polls_end(&dp->callers.rx_polls, at, now);
	/* A caller that is away for half of the time. Each absence is longer
	 * than PROGRESS_TARGETS_AWAY_NS allows. */
	for (i = 0; i < 5; i++) {
		at = now + (uint64_t)i * 200 * TEI_NS_PER_US;
		rail_polls_begin(&dp->callers.rx_polls, at);
		rail_polls_end(&dp->callers.rx_polls, at,
			       at + 100 * TEI_NS_PER_US);
	}
	now += TEI_NS_PER_MS;
	CU_ASSERT_FALSE(rail_drive_poll_rx(dp, &d, now));
	free(dp);
}

static void test_a_caller_with_few_long_polls_gets_the_rx_lanes(void)
{
	uint64_t now = PROGRESS_START;
	struct rail_drive d;
	struct tei_rail_dp *dp = progress_unresolved(&d);

	CU_ASSERT_FALSE(rail_drive_poll_rx(dp, &d, now));
	/* pauses of 25 us are short enough; three polls have four pauses around
	 * them */
	progress_looks(dp, now, 3, 300 * TEI_NS_PER_US, 25 * TEI_NS_PER_US);
	now += TEI_NS_PER_MS;
	CU_ASSERT_TRUE(rail_drive_poll_rx(dp, &d, now));
	/* longer pauses, but less than a sixth of the time */
	now = progress_looks(dp, now, 3, 500 * TEI_NS_PER_US,
			     90 * TEI_NS_PER_US);
	CU_ASSERT_TRUE(rail_drive_poll_rx(dp, &d, now));
	/* long pauses that make up a fifth of the time */
	now = progress_looks(dp, now, 3, 500 * TEI_NS_PER_US,
			     125 * TEI_NS_PER_US);
	CU_ASSERT_FALSE(rail_drive_poll_rx(dp, &d, now));
	free(dp);
}

static void test_a_caller_with_long_polls_gets_the_tx_lanes(void)
{
	uint64_t now = PROGRESS_START;
	struct rail_drive d;
	struct tei_rail_dp *dp = progress_unresolved(&d);

	/* the second poll is still in progress, so that the caller is never
	 * away for long */
	rail_polls_begin(&dp->callers.polls, now);
	rail_polls_end(&dp->callers.polls, now, now + 600 * TEI_NS_PER_US);
	rail_polls_begin(&dp->callers.polls, now + 700 * TEI_NS_PER_US);
	now += TEI_NS_PER_MS;
	CU_ASSERT_TRUE(rail_drive_poll(dp, &d, now));
	/* the poll takes so long that the caller counts as stuck, and the
	 * thread takes over */
	now += 3 * TEI_NS_PER_MS;
	CU_ASSERT_TRUE(rail_drive_poll(dp, &d, now));
	now += 2 * TEI_NS_PER_MS;
	CU_ASSERT_FALSE(rail_drive_poll(dp, &d, now));
	/* the poll has ended, and the caller does not poll for the rest of the
	 * time */
	rail_polls_end(&dp->callers.polls, now, now + 100 * TEI_NS_PER_US);
	now += TEI_NS_PER_MS;
	CU_ASSERT_FALSE(rail_drive_poll(dp, &d, now));
	free(dp);
}

static void test_the_thread_has_the_lanes_while_a_caller_sleeps(void)
{
	struct rail_drive d;
	struct tei_rail_dp *dp = progress_unresolved(&d);

	tei_rail_drive_begin(dp);
	CU_ASSERT_TRUE(rail_drive_poll(dp, &d, PROGRESS_START));
	tei_rail_sleep_begin(dp);
	CU_ASSERT_FALSE(rail_drive_poll(dp, &d, PROGRESS_START));
	tei_rail_sleep_begin(dp);
	tei_rail_sleep_end(dp);
	CU_ASSERT_FALSE(rail_drive_poll(dp, &d, PROGRESS_START));
	tei_rail_sleep_end(dp);
	CU_ASSERT_TRUE(rail_drive_poll(dp, &d, PROGRESS_START));
	tei_rail_drive_end(dp);
	free(dp);
}

static void test_a_caller_that_goes_to_sleep_wakes_the_thread(void)
{
	struct rail_drive d;
	struct tei_rail_dp *dp = progress_unresolved(&d);

	dp->thread.loop.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	CU_ASSERT_FATAL(dp->thread.loop.wake_fd >= 0);
	dp->thread.loop.open = true;
	tei_rail_sleep_begin(dp);
	CU_ASSERT_FALSE(dp->thread.loop.wake_pending);
	tei_rail_sleep_end(dp);
	dp->thread.trusts = true;
	tei_rail_sleep_begin(dp);
	CU_ASSERT_TRUE(dp->thread.loop.wake_pending);
	tei_loop_close(&dp->thread.loop);
	free(dp);
}

/* --- with the thread ----------------------------------------------------- */

struct progress_rig {
	struct test_plane from, to;
	struct tei_rail_peer *peer;
	char src[64], dst[64];
};

static void progress_begin(struct progress_rig *rig)
{
	struct tei_rail_mr *mr;
	struct tei_err err;

	test_plane_init(&rig->from);
	test_plane_init(&rig->to);
	/* the planes report moved bytes, as engines do */
	rig->from.reports = true;
	rig->to.reports = true;
	test_plane_open(&rig->from, "127.0.0.1");
	test_plane_open(&rig->to, "127.0.0.2");
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig->from.dp, rig->src,
					      sizeof(rig->src), "*", TEI_RAIL_REMOTE,
					      &err, &mr), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig->to.dp, rig->dst,
					      sizeof(rig->dst), "*", TEI_RAIL_REMOTE,
					      &err, &mr), 0);
	rig->peer = test_plane_peer(&rig->from, &rig->to);
	test_connect(rig->from.dp, rig->peer, rig->src, rig->dst);
}

static void progress_end(struct progress_rig *rig)
{
	tei_rail_peer_put(rig->peer);
	test_plane_close(&rig->from);
	test_plane_close(&rig->to);
}

static bool progress_trusts(struct tei_rail_dp *dp)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;

	while (!__atomic_load_n(&dp->thread.trusts, __ATOMIC_SEQ_CST))
		if (tei_now_ns() > end)
			return false;
	return true;
}

/* Tests that tasks complete although a caller announces that it polls the lanes
 * and then sleeps instead. */
static void test_the_thread_takes_over_from_a_sleeping_caller(void)
{
	struct progress_rig rig;
	struct test_task t;
	int i;

	progress_begin(&rig);
	tei_rail_drive_begin(rig.from.dp);
	for (i = 0; i < 50; i++) {
		CU_ASSERT_FATAL(progress_trusts(rig.from.dp));
		test_task_init(&t, rig.peer, i & 1, rig.src, rig.dst, 64);
		CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, &t, 1), 0);
		tei_rail_sleep_begin(rig.from.dp);
		CU_ASSERT_FATAL(test_wait(&t, 1));
		tei_rail_sleep_end(rig.from.dp);
		CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	}
	tei_rail_drive_end(rig.from.dp);
	progress_end(&rig);
}

/* Tests the intervals between attempts to send to a peer that accepts no
 * connection, for example because hundreds of processes connect to it at
 * once. */
static void test_a_peer_that_does_not_connect_is_tried_ever_less_often(void)
{
	struct tei_rail_peer peer = { .state = RAIL_PEER_NEW };
	uint64_t now = 100 * TEI_NS_PER_SEC, begin = now;
	uint32_t tries = 0, n;

	peer.life.again_ns = now;
	for (n = 0; now < begin + TEI_NS_PER_SEC; n++)
		now = rail_ctl_sent(&peer, -FI_EAGAIN, now, &tries);
	CU_ASSERT(n < 50);
	/* the first retry is due after 1 ms, later ones after at most 50 ms */
	CU_ASSERT_EQUAL(rail_ctl_again(&peer, begin), begin + TEI_NS_PER_MS);
	CU_ASSERT(rail_ctl_again(&peer, now) <= now + 50 * TEI_NS_PER_MS);
	/* an iteration that began before the first attempt also retries after 1
	 * ms */
	CU_ASSERT_EQUAL(rail_ctl_again(&peer, begin - 1),
			begin - 1 + TEI_NS_PER_MS);
	peer.life.again_ns = 0;
	CU_ASSERT_EQUAL(rail_ctl_again(&peer, now), now + TEI_NS_PER_MS);
}

static void test_a_path_that_was_just_tried_is_not_stuck(void)
{
	uint64_t now = 100 * TEI_NS_PER_SEC;
	/* the attempt seems to lie in the future, because another thread made
	 * it and read the clock later */
	struct rail_conn conn = { .since_ns = now + 1 };

	CU_ASSERT_FALSE(rail_conn_block(&conn, now, false));
	CU_ASSERT_FALSE(rail_conn_block(&conn, now + 2, false));
	CU_ASSERT(rail_conn_block(&conn, now + TEI_NS_PER_SEC, false));
}

/* --- lanes that are slow to open or to connect --------------------------- */

static void test_a_lane_that_is_slow_to_open_gets_longer_to_connect(void)
{
	uint64_t now = 100 * TEI_NS_PER_SEC;
	struct rail_conn conn = {
		.since_ns = now - TEI_NS_PER_SEC,
		.blocked_ns = now,
	};
	struct progress_rig rig;
	struct rail_lane *lane;

	progress_begin(&rig);
	test_plane_still(&rig.from);
	CU_ASSERT(rig.from.dp->health.open_ns > 0);
	lane = &rig.from.dp->rails[0]->tx_lanes[0];
	CU_ASSERT_EQUAL_FATAL(lane->state, RAIL_LANE_ACTIVE);
	conn.lane_gen = lane->gen;
	rig.from.dp->health.open_ns = TEI_NS_PER_SEC / 2;
	rail_renew_if_stuck(rig.peer, lane, &conn, now);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_ACTIVE);
	rig.from.dp->health.open_ns = TEI_NS_PER_MS;
	rail_renew_if_stuck(rig.peer, lane, &conn, now);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_RETIRING);
	progress_end(&rig);
}

/* Starts to connect to a socket at which no process accepts. Returns when the
 * connection counts as pending: the peer's kernel has acknowledged it some time
 * ago. */
static void test_connect_in_vain(struct rail_lane *lane, int listener,
				 fi_addr_t *addr)
{
	uint64_t end = tei_now_ns() + 10 * TEI_NS_PER_SEC;
	struct sockaddr_in sa;
	socklen_t len = sizeof(sa);
	bool pending = false;

	CU_ASSERT_EQUAL_FATAL(getsockname(listener, (struct sockaddr *)&sa,
					  &len), 0);
	tei_mutex_lock(&lane->lock);
	CU_ASSERT_EQUAL_FATAL(fi_av_insert(lane->av, &sa, 1, addr, 0, NULL), 1);
	tei_mutex_unlock(&lane->lock);
	while (!pending && tei_now_ns() < end) {
		tei_mutex_lock(&lane->lock);
		CU_ASSERT_EQUAL(fi_send(lane->ep, "", 1, NULL, *addr, NULL),
				-FI_EAGAIN);
		pending = rail_disconnect_pending(lane, &sa, len);
		tei_mutex_unlock(&lane->lock);
		rail_lane_run(lane);
	}
	CU_ASSERT(pending);
}

/* Tests that a lane with such a pending connection is kept for a while, because
 * the peer's process may accept the connection later. before: true if the
 * connection had existed before and was lost. */
static void progress_unanswered(bool before)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	uint64_t now = tei_now_ns();
	struct rail_conn conn = {
		.since_ns = now - TEI_NS_PER_SEC,
		.blocked_ns = now + TEST_WAIT_NS, /* the connection counts as
						   * blocked during the whole
						   * test */
		.ready = true,
		.connected = before,
	};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct progress_rig rig;
	struct rail_lane *lane;

	CU_ASSERT_FATAL(listener >= 0);
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CU_ASSERT_EQUAL_FATAL(bind(listener, (struct sockaddr *)&sa,
				   sizeof(sa)), 0);
	CU_ASSERT_EQUAL_FATAL(listen(listener, 1), 0);
	progress_begin(&rig);
	test_plane_still(&rig.from);
	lane = &rig.from.dp->rails[0]->tx_lanes[0];
	CU_ASSERT_EQUAL_FATAL(lane->state, RAIL_LANE_ACTIVE);
	conn.peer = rig.peer;
	conn.lane_gen = lane->gen;
	test_connect_in_vain(lane, listener, &conn.fi_addr);
	rig.from.dp->health.open_ns = TEI_NS_PER_MS;
	rail_renew_if_stuck(rig.peer, lane, &conn, now);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_ACTIVE);
	/* after a further second, and five seconds of waiting, the lane is no
	 * longer kept */
	conn.since_ns -= 5 * TEI_NS_PER_SEC;
	now += TEI_NS_PER_SEC;
	rail_renew_if_stuck(rig.peer, lane, &conn, now);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_RETIRING);
	progress_end(&rig);
	close(listener);
}

static void test_a_lane_is_kept_while_a_busy_peer_does_not_accept(void)
{
	progress_unanswered(false);
}

static void test_a_lane_that_was_connected_before_is_not_kept_forever(void)
{
	progress_unanswered(true);
}

/* Tests that a lost connection makes the lane be renewed, although the provider
 * shows no sockets: only refused posts show the loss. */
static void test_an_idle_connection_that_is_lost_gets_a_new_lane(void)
{
	uint64_t now = tei_now_ns();
	struct rail_conn conn = {
		.since_ns = now - TEI_NS_PER_SEC,
		.blocked_ns = now + TEST_WAIT_NS, /* the connection counts as
						   * blocked during the whole
						   * test */
		.ready = true,
		.connected = true,
		.msgs = 1,
	};
	const struct rail_lane *to;
	struct progress_rig rig;
	struct rail_lane *lane;
	int fd;

	progress_begin(&rig);
	test_plane_still(&rig.from);
	to = &rig.to.dp->rails[0]->rx_lane;
	lane = &rig.from.dp->rails[0]->tx_lanes[0];
	CU_ASSERT_EQUAL_FATAL(lane->state, RAIL_LANE_ACTIVE);
	conn.peer = rig.peer;
	conn.lane_gen = lane->gen;
	tei_mutex_lock(&lane->lock);
	CU_ASSERT_EQUAL_FATAL(fi_av_insert(lane->av, to->addr.bytes, 1,
					   &conn.fi_addr, 0, NULL),
			      1);
	fd = lane->wait_fd;
	lane->wait_fd = epoll_create1(EPOLL_CLOEXEC);
	tei_mutex_unlock(&lane->lock);
	rig.from.dp->health.open_ns = TEI_NS_PER_MS;
	/* while a message is posted on the connection, refused posts prove
	 * nothing: the provider may have no room for a second message */
	rail_renew_if_stuck(rig.peer, lane, &conn, now);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_ACTIVE);
	conn.msgs = 0;
	rail_renew_if_stuck(rig.peer, lane, &conn, now);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_RETIRING);
	tei_mutex_lock(&lane->lock);
	close(lane->wait_fd);
	lane->wait_fd = fd;
	tei_mutex_unlock(&lane->lock);
	progress_end(&rig);
}

/* Tests that the polls of a caller that reads rx lanes suffice to complete its
 * messages (law 3). The progress thread is stopped. */
static void test_a_caller_that_reads_rx_lanes_completes_messages(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	uint8_t buf[TEI_RAIL_MESSAGE_HEAD];
	struct progress_rig rig;
	struct rail_lane *lane;
	uint32_t prefer = 0;

	progress_begin(&rig);
	test_plane_still(&rig.from);
	lane = &rig.from.dp->rails[0]->tx_lanes[0];
	CU_ASSERT_EQUAL_FATAL(tei_rail_send(rig.peer, buf, sizeof(buf), false,
					    &prefer), 0);
	CU_ASSERT(__atomic_load_n(&lane->msgs, __ATOMIC_RELAXED) > 0);
	while (__atomic_load_n(&lane->msgs, __ATOMIC_RELAXED) &&
	       tei_now_ns() < end)
		tei_rail_progress_all(rig.from.dp);
	CU_ASSERT_EQUAL(__atomic_load_n(&lane->msgs, __ATOMIC_RELAXED), 0);
	progress_end(&rig);
}

/* --- connections that are lost while idle -------------------------------- */

/* Cuts the connection of the only tx lane while a caller has the lanes. The
 * loss is not noticed, because callers do not poll idle lanes. */
static void progress_lose(struct progress_rig *rig)
{
	const struct rail_lane *to = &rig->to.dp->rails[0]->rx_lane;
	struct rail_lane *lane = &rig->from.dp->rails[0]->tx_lanes[0];

	tei_rail_drive_begin(rig->from.dp);
	tei_mutex_lock(&lane->lock);
	CU_ASSERT_EQUAL(
		rail_disconnect_one(lane, to->addr.bytes, to->addr.len, NULL),
		RAIL_CUT_SOME);
	tei_mutex_unlock(&lane->lock);
}

/* Tests that after the loss of an idle connection only a few of the next
 * messages fail. */
static void test_a_lost_connection_breaks_few_messages(void)
{
	const struct timespec pause = { .tv_nsec = 40 * TEI_NS_PER_MS };
	uint64_t end = tei_now_ns() + TEST_WAIT_NS, broken;
	uint8_t buf[TEI_RAIL_MESSAGE_HEAD];
	uint32_t i, prefer = 0, sent = 0;
	struct progress_rig rig;

	progress_begin(&rig);
	progress_lose(&rig);
	/* wait until the message has ended before the next one is sent; making
	 * a new connection may take long */
	for (i = 0; (i < 20 || sent < 10) && tei_now_ns() < end; i++) {
		sent += !tei_rail_send(rig.peer, buf, sizeof(buf), true,
				       &prefer);
		do
			nanosleep(&pause, NULL);
		while (!rail_msg_idle(rig.from.dp->rails[0]) &&
		       tei_now_ns() < end);
	}
	broken = __atomic_load_n(&rig.from.dp->rails[0]->errors.errors,
				 __ATOMIC_RELAXED);
	CU_ASSERT(sent >= 10);
	CU_ASSERT(broken >= 1);
	CU_ASSERT(broken <= 4);
	tei_rail_drive_end(rig.from.dp);
	progress_end(&rig);
}

/* Tests that a warm-up does not end already when the lost connection has
 * accepted a message. */
static void test_a_warm_up_ends_when_the_pairs_are_connected(void)
{
	struct progress_rig rig;
	struct tei_err err;

	progress_begin(&rig);
	progress_lose(&rig);
	CU_ASSERT_EQUAL(tei_rail_peer_warmup(rig.peer, TEST_WAIT_NS, &err), 0);
	CU_ASSERT_EQUAL(rail_msg_link(rig.peer, rig.from.dp->rails[0], 0),
			RAIL_MSG_LINKED);
	tei_rail_drive_end(rig.from.dp);
	progress_end(&rig);
}

/* Tests that the decision to renew a lane does not depend on the connections
 * and pauses of other rails. */
static void test_each_rail_has_its_own_pause_before_a_new_lane(void)
{
	uint64_t now = 100 * TEI_NS_PER_SEC;
	struct rail_conn conn = {
		.since_ns = now - TEI_NS_PER_SEC,
		.blocked_ns = now,
	};
	struct rail_renew *renew;
	struct progress_rig rig;
	struct rail_lane *lane;

	progress_begin(&rig);
	test_plane_still(&rig.from);
	lane = &rig.from.dp->rails[0]->tx_lanes[0];
	CU_ASSERT_EQUAL_FATAL(lane->state, RAIL_LANE_ACTIVE);
	conn.lane_gen = lane->gen;
	rig.from.dp->health.open_ns = TEI_NS_PER_MS;
	renew = rig.peer->renew.rails;
	renew[0].linked = false;
	renew[0].next_ns = now + 1;
	renew[1].linked = true;
	rail_renew_if_stuck(rig.peer, lane, &conn, now);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_ACTIVE);
	/* a pause of another rail does not prevent the renewal either */
	renew[0].linked = true;
	renew[1].next_ns = now + 1;
	rail_renew_if_stuck(rig.peer, lane, &conn, now);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_RETIRING);
	CU_ASSERT(renew[0].next_ns > now);
	progress_end(&rig);
}

/*
 * Tests a lane that serves another peer, too, and that was renewed a while ago
 * because a connection was stuck. The lane is renewed again only if the peer of
 * the stuck connection is alive. seen: returns the member of the peer that
 * shows this.
 */
static void progress_not_so_soon(uint64_t *(*seen)(struct tei_rail_peer *))
{
	uint64_t now = 100 * TEI_NS_PER_SEC;
	struct rail_conn conn = {
		.since_ns = now - TEI_NS_PER_SEC,
		.blocked_ns = now,
	};
	struct tei_rail_peer served = { .alive_ns = now };
	struct rail_conn way = { .peer = &served };
	struct rail_cache_slot slot = { .conn = &way };
	struct progress_rig rig;
	struct rail_cache *cache;
	struct rail_lane *lane;

	progress_begin(&rig);
	test_plane_still(&rig.from);
	lane = &rig.from.dp->rails[0]->tx_lanes[0];
	CU_ASSERT_EQUAL_FATAL(lane->state, RAIL_LANE_ACTIVE);
	cache = rail_cache_of(lane);
	conn.lane_gen = lane->gen;
	rig.from.dp->health.open_ns = TEI_NS_PER_MS;
	lane->rail->link.stuck_ns = now - 2 * TEI_NS_PER_SEC;
	tei_sieve_insert(&cache->held, &slot.entry);
	rig.peer->alive_ns = conn.since_ns - 1;
	rail_renew_if_stuck(rig.peer, lane, &conn, now);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_ACTIVE);
	*seen(rig.peer) = now - 1;
	rail_renew_if_stuck(rig.peer, lane, &conn, now);
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_RETIRING);
	tei_sieve_remove(&cache->held, &slot.entry);
	progress_end(&rig);
}

static uint64_t *progress_alive(struct tei_rail_peer *peer)
{
	return &peer->alive_ns;
}

static uint64_t *progress_found(struct tei_rail_peer *peer)
{
	return &peer->addrs.found_ns;
}

static void test_a_peer_with_a_sign_of_life_gets_a_new_lane_soon(void)
{
	progress_not_so_soon(progress_alive);
}

static void test_a_peer_that_was_resolved_gets_a_new_lane_soon(void)
{
	progress_not_so_soon(progress_found);
}

/* --- CPUs of the thread -------------------------------------------------- */

static int test_first_cpu(void)
{
	cpu_set_t cpus;
	int i = 0;

	CU_ASSERT_EQUAL_FATAL(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
	while (!CPU_ISSET(i, &cpus))
		i++;
	return i;
}

/* Opens a data plane with "text" as its setting progress_cpus. Returns the CPUs
 * on which its progress thread may run. */
static cpu_set_t test_cpus_of(const char *text)
{
	struct test_plane p;
	cpu_set_t cpus;

	test_plane_init(&p);
	snprintf(p.settings.sched.progress_cpus,
		 sizeof(p.settings.sched.progress_cpus), "%s", text);
	test_plane_open(&p, "127.0.0.1");
	CU_ASSERT_EQUAL(
		pthread_getaffinity_np(p.dp->thread.loop.thread, sizeof(cpus), &cpus),
		0);
	test_plane_close(&p);
	return cpus;
}

/* Tests that no wake-up is lost, even if it comes while the thread handles
 * earlier ones. */
static void test_the_thread_loses_no_wake_up(void)
{
	struct timespec nap = { .tv_nsec = 1000000 };
	uint64_t end = tei_now_ns() + 2 * TEI_NS_PER_SEC;
	struct tei_rail_dp *dp = NULL;
	struct test_plane p;
	struct tei_rail_dp_attr attr = { .settings = &p.settings,
					 .name = "none" };
	struct tei_err err;
	int i;

	test_plane_init(&p);
	CU_ASSERT_EQUAL_FATAL(tei_rail_dp_open(&attr, &err, &dp), 0);
	while (tei_now_ns() < end)
		for (i = 0; i < 100; i++)
			rail_progress_wake(dp);
	end = tei_now_ns() + TEST_WAIT_NS;
	while (__atomic_load_n(&dp->thread.loop.wake_pending, __ATOMIC_SEQ_CST) &&
	       tei_now_ns() < end)
		nanosleep(&nap, NULL);
	CU_ASSERT_FALSE(
		__atomic_load_n(&dp->thread.loop.wake_pending, __ATOMIC_SEQ_CST));
	tei_rail_dp_close(dp, 0);
}

static void test_the_thread_runs_on_the_configured_cpus(void)
{
	int first = test_first_cpu();
	cpu_set_t all, got;
	char text[16];

	sched_getaffinity(0, sizeof(all), &all);
	got = test_cpus_of("");
	CU_ASSERT(CPU_EQUAL(&got, &all));
	/* the loopback device belongs to no NUMA node, so "near" allows all
	 * CPUs */
	got = test_cpus_of("near");
	CU_ASSERT(CPU_EQUAL(&got, &all));
	snprintf(text, sizeof(text), "%d", first);
	got = test_cpus_of(text);
	CU_ASSERT(CPU_COUNT(&got) == 1 && CPU_ISSET(first, &got));
}

static void test_no_cpus_for_the_thread_is_an_error(void)
{
	static const char *const bad[] = { "1023", "far", "0-", "near,0" };
	struct tei_rail_dp *dp = NULL;
	struct test_plane p;
	struct tei_rail_dp_attr attr = { .settings = &p.settings,
					 .name = "none" };
	struct tei_err err;
	size_t i;

	test_plane_init(&p);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		strcpy(p.settings.sched.progress_cpus, bad[i]);
		CU_ASSERT_EQUAL(tei_rail_dp_open(&attr, &err, &dp),
				TEI_ERR_INVALID);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text,
					      "MOONRAIL_PROGRESS_CPUS="));
	}
	CU_ASSERT_PTR_NULL(dp);
}

/* --- waiting until the ends of tasks are reported ------------------------ */

struct progress_notified {
	struct tei_rail_task task;
	bool begun, notified; /* atomic; set when the callback begins, and when
			       * it is about to return */
};

/* A callback task_done that takes some time to return. */
static void progress_notify(struct tei_rail_task *task, enum tei_rail_end end,
			    const struct tei_err *err)
{
	struct progress_notified *t =
		tei_container_of(task, struct progress_notified, task);
	struct timespec nap = { .tv_nsec = 100 * (long)TEI_NS_PER_MS };

	(void)err;
	CU_ASSERT_EQUAL(end, TEI_RAIL_END_COMPLETED);
	__atomic_store_n(&t->begun, true, __ATOMIC_RELEASE);
	nanosleep(&nap, NULL);
	__atomic_store_n(&t->notified, true, __ATOMIC_RELEASE);
}

static void test_a_transport_is_removed_after_its_tasks_were_reported(void)
{
	struct progress_notified notified = { .begun = false };
	struct tei_rail_task *list = &notified.task;
	struct timespec nap = { .tv_nsec = 100000 };
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct test_pair pair;
	struct tei_err err;

	test_pair_open(&pair);
	CU_ASSERT_EQUAL_FATAL(rail_progress_start(pair.from.dp, &err), 0);
	notified.task.peer = pair.peer;
	notified.task.local = pair.src;
	notified.task.remote = (uint64_t)(uintptr_t)pair.dst;
	notified.task.length = sizeof(pair.src);
	notified.task.done = progress_notify;
	CU_ASSERT_EQUAL_FATAL(tei_rail_submit(pair.from.dp, &list, 1), 0);
	while (!__atomic_load_n(&notified.begun, __ATOMIC_ACQUIRE) &&
	       tei_now_ns() < end)
		nanosleep(&nap, NULL);
	CU_ASSERT_EQUAL(tei_rail_dp_remove_transport(pair.from.dp, "tcp",
						     TEST_WAIT_NS, &err), 0);
	CU_ASSERT_TRUE(__atomic_load_n(&notified.notified, __ATOMIC_ACQUIRE));
	rail_progress_stop(pair.from.dp);
	test_pair_close(&pair);
}

/* Reads everything that arrives at the lane until the thread could sleep on the
 * lane's file descriptor. Returns false if that does not happen within
 * TEST_WAIT_NS. */
static bool progress_sleep_ready(struct rail_lane *lane)
{
	struct pollfd p = { .fd = lane->wait_fd, .events = POLLIN };
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	bool sleep_ready;

	do {
		rail_lane_run(lane);
		tei_mutex_lock(&lane->lock);
		sleep_ready = rail_lane_sleep_ready(lane) && !poll(&p, 1, 0);
		tei_mutex_unlock(&lane->lock);
	} while (!sleep_ready && tei_now_ns() < end);
	return sleep_ready;
}

/* Tests that lanes become ready to sleep after traffic. Without this the
 * progress thread of an idle process would never sleep. */
static void test_descriptors_can_be_slept_on_after_traffic(void)
{
	static const char *const provider[] = { "net", "tcp", "tcp;ofi_rxm" };
	struct test_pair pair;
	size_t i;

	for (i = 0; i < sizeof(provider) / sizeof(provider[0]); i++) {
		if (!test_pair_open_by(&pair, provider[i]))
			continue;
		test_plane_still(&pair.to);
		CU_ASSERT(progress_sleep_ready(&pair.rail->tx_lanes[0]));
		CU_ASSERT(
			progress_sleep_ready(&rail_at(pair.to.dp, 0)->rx_lane));
		test_pair_close(&pair);
	}
}

/* --- long sleeps --------------------------------------------------------- */

/* a sleep counts as long if at least this much time is left of it */
#define PROGRESS_LONG_NS	(1400 * TEI_NS_PER_MS)
/* a thread that wakes this long before the end of its sleep, or earlier, was
 * woken by an event */
#define PROGRESS_EARLY_NS	(300 * TEI_NS_PER_MS)
#define PROGRESS_TRIES		12

/* Waits until at least PROGRESS_LONG_NS are left of a sleep of the thread.
 * Returns the time at which the sleep ends, or 0 if there was no such sleep. */
static uint64_t progress_rests(struct tei_rail_dp *dp)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS, until;

	do {
		poll(NULL, 0, 1);
		until = __atomic_load_n(&dp->thread.rests_ns, __ATOMIC_RELAXED);
	} while (until < tei_now_ns() + PROGRESS_LONG_NS && tei_now_ns() < end);
	return until;
}

/* Returns true if the thread wakes at least PROGRESS_EARLY_NS before the time
 * "until", at which its sleep would end. */
static bool progress_wakes(struct tei_rail_dp *dp, uint64_t until)
{
	while (__atomic_load_n(&dp->thread.rests_ns, __ATOMIC_RELAXED) ==
		       until &&
	       tei_now_ns() < until)
		poll(NULL, 0, 1);
	return tei_now_ns() < until - PROGRESS_EARLY_NS;
}

/* Tests that adding a rail wakes the thread, which otherwise would not notice
 * connections to the new rail. Tries several times, because a busy machine may
 * delay the thread until after its sleep. */
static void test_added_rail_wakes_the_sleeping_thread(void)
{
	struct test_plane plane;
	bool wakes = false;
	struct tei_err err;
	uint64_t until;
	int i;

	for (i = 0; i < PROGRESS_TRIES && !wakes; i++) {
		test_plane_init(&plane);
		test_plane_open(&plane, NULL);
		until = progress_rests(plane.dp);
		CU_ASSERT_FATAL(until != 0);
		CU_ASSERT_EQUAL_FATAL(tei_rail_dp_add_transport(plane.dp, "tcp",
								"127.0.0.1",
								&err), 0);
		wakes = progress_wakes(plane.dp, until);
		test_plane_close(&plane);
	}
	CU_ASSERT(wakes);
}

/* Writes one byte, and calls the functions of the stopped progress thread.
 * Returns true if the submission has woken the thread. */
static bool progress_write_wakes(struct test_pair *pair)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct test_task t;
	bool wakes;

	test_task_init(&t, pair->peer, false, pair->src, pair->dst, 1);
	__atomic_store_n(&pair->from.dp->thread.loop.wake_pending, false,
			 __ATOMIC_SEQ_CST);
	CU_ASSERT_EQUAL_FATAL(test_submit(pair->from.dp, &t, 1), 0);
	wakes = __atomic_load_n(&pair->from.dp->thread.loop.wake_pending,
				__ATOMIC_SEQ_CST);
	while (!test_ends(&t) && tei_now_ns() < end) {
		rail_sched_kick(pair->from.dp, 0);
		test_pair_turn(pair, tei_now_ns());
	}
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	return wakes;
}

/* Tests that a submission wakes the thread, which must be awake to notice that
 * no completion arrives. */
static void test_submission_wakes_the_sleeping_thread(void)
{
	struct test_pair pair;

	test_pair_open(&pair);
	progress_write_wakes(&pair);	/* the first write also connects */
	CU_ASSERT_FALSE(progress_write_wakes(&pair));
	__atomic_store_n(&pair.from.dp->thread.rests_ns, 1, __ATOMIC_RELAXED);
	CU_ASSERT_TRUE(progress_write_wakes(&pair));
	test_pair_close(&pair);
}

/* Returns the number of voluntary context switches of all threads except this
 * one, or -1 if it is not known. */
static long progress_others_switches(void)
{
	char conn[300], line[128];
	struct dirent *e;
	long sum = 0, n;
	FILE *f;
	DIR *d = opendir("/proc/self/task");

	if (!d)
		return -1;
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.' || atoi(e->d_name) == gettid())
			continue;
		snprintf(conn, sizeof(conn), "/proc/self/task/%s/status",
			 e->d_name);
		f = fopen(conn, "r");
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
				sum += n;
		if (f)
			fclose(f);
	}
	closedir(d);
	return sum;
}

#define PROGRESS_IDLE_NS	(4 * TEI_NS_PER_SEC)
#ifdef __SANITIZE_THREAD__
#define PROGRESS_IDLE_MOST	200	/* The limit is higher than without a
					 * sanitizer, because the sanitizer's
					 * thread wakes up too. */
#else
#define PROGRESS_IDLE_MOST	8	/* two threads wake once a second during
					 * four seconds */
#endif

/* Tests two idle data planes that have exchanged hellos; each has one progress
 * thread. */
static void test_idle_thread_wakes_at_most_once_a_second(void)
{
	struct progress_rig rig;
	long before, woken = -1;
	uint64_t from;
	int i;

	progress_begin(&rig);
	CU_ASSERT_FATAL(progress_rests(rig.from.dp) != 0);
	for (i = 0; i < PROGRESS_TRIES && (i == 0 || woken > PROGRESS_IDLE_MOST);
	     i++) {
		before = progress_others_switches();
		from = tei_now_ns();
		while (tei_now_ns() < from + PROGRESS_IDLE_NS)
			poll(NULL, 0, 100);
		woken = progress_others_switches() - before;
	}
	if (before < 0)
		tei_test_skip("no /proc/self/task");
	else
		CU_ASSERT(woken <= PROGRESS_IDLE_MOST);
	progress_end(&rig);
}

/* --- a peer that does not poll ------------------------------------------- */

/*
 * Tests that a lane of the provider shm is not renewed while the peer is
 * stopped. A shm connection is established only when the peer polls. If the
 * requesting endpoint was closed before that, libfabric 1.17 crashes in the
 * peer.
 */
static void test_shm_lane_is_kept_until_a_stopped_peer_polls(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS, since = 0;
	struct test_plane from, to;
	struct tei_rail_peer *peer;
	struct tei_rail_mr *mr;
	struct rail_lane *lane;
	char src[64], dst[64];
	struct tei_err err;
	struct test_task t;
	uint32_t gen = 0;

	test_plane_init(&from);
	test_plane_init(&to);
	test_plane_open(&from, NULL);
	test_plane_open(&to, NULL);
	if (tei_rail_dp_add_transport(from.dp, "shm", NULL, &err) ||
	    tei_rail_dp_add_transport(to.dp, "shm", NULL, &err)) {
		tei_test_skip("no shm: %s", err.text);
		goto out;
	}
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(from.dp, src, sizeof(src), "*",
					      TEI_RAIL_REMOTE, &err, &mr), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(to.dp, dst, sizeof(dst), "*",
					      TEI_RAIL_REMOTE, &err, &mr), 0);
	test_plane_still(&to);
	peer = test_plane_peer(&from, &to);
	test_task_init(&t, peer, false, src, dst, sizeof(src));
	CU_ASSERT_EQUAL_FATAL(test_submit(from.dp, &t, 1), 0);
	lane = &rail_at(from.dp, 0)->tx_lanes[0];
	/* wait for longer than a connection of another provider may take */
	while ((!since || tei_now_ns() < since + 5 * from.dp->health.open_ns +
						 TEI_NS_PER_SEC) &&
	       tei_now_ns() < end) {
		poll(NULL, 0, 1);
		tei_mutex_lock(&lane->lock);
		if (!since) {
			since = peer->pairs.conns[0]->since_ns;
			gen = lane->gen;
		}
		tei_mutex_unlock(&lane->lock);
	}
	CU_ASSERT_EQUAL(lane->state, RAIL_LANE_ACTIVE);
	CU_ASSERT_EQUAL(lane->gen, gen);
	__atomic_store_n(&to.dp->thread.stop, false, __ATOMIC_RELEASE);
	if (lane->state == RAIL_LANE_ACTIVE) {
		CU_ASSERT_EQUAL_FATAL(rail_progress_start(to.dp, &err), 0);
		CU_ASSERT(test_wait(&t, 1));
		CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	}
	tei_rail_peer_put(peer);
out:
	test_plane_close(&from);
	test_plane_close(&to);
}

const struct tei_test_case rail_progress_cases[] = {
	{ "added_rail_wakes_the_sleeping_thread",
	  test_added_rail_wakes_the_sleeping_thread },
	{ "submission_wakes_the_sleeping_thread",
	  test_submission_wakes_the_sleeping_thread },
	{ "idle_thread_wakes_at_most_once_a_second",
	  test_idle_thread_wakes_at_most_once_a_second },
	{ "shm_lane_is_kept_until_a_stopped_peer_polls",
	  test_shm_lane_is_kept_until_a_stopped_peer_polls },
	{ "a_caller_that_polls_in_a_loop_gets_the_lanes_at_once",
	  test_a_caller_that_polls_in_a_loop_gets_the_lanes_at_once },
	{ "a_caller_that_polls_often_gets_the_lanes",
	  test_a_caller_that_polls_often_gets_the_lanes },
	{ "a_caller_that_polls_rarely_does_not_get_the_rx_lanes",
	  test_a_caller_that_polls_rarely_does_not_get_the_rx_lanes },
	{ "a_caller_with_long_polls_gets_the_rx_lanes",
	  test_a_caller_with_long_polls_gets_the_rx_lanes },
	{ "a_caller_with_few_long_polls_gets_the_rx_lanes",
	  test_a_caller_with_few_long_polls_gets_the_rx_lanes },
	{ "a_caller_with_long_polls_gets_the_tx_lanes",
	  test_a_caller_with_long_polls_gets_the_tx_lanes },
	{ "the_thread_has_the_lanes_while_a_caller_sleeps",
	  test_the_thread_has_the_lanes_while_a_caller_sleeps },
	{ "a_caller_that_goes_to_sleep_wakes_the_thread",
	  test_a_caller_that_goes_to_sleep_wakes_the_thread },
	{ "a_caller_that_reads_rx_lanes_completes_messages",
	  test_a_caller_that_reads_rx_lanes_completes_messages },
	{ "the_thread_takes_over_from_a_sleeping_caller",
	  test_the_thread_takes_over_from_a_sleeping_caller },
	{ "each_rail_has_its_own_pause_before_a_new_lane",
	  test_each_rail_has_its_own_pause_before_a_new_lane },
	{ "a_peer_with_a_sign_of_life_gets_a_new_lane_soon",
	  test_a_peer_with_a_sign_of_life_gets_a_new_lane_soon },
	{ "a_peer_that_was_resolved_gets_a_new_lane_soon",
	  test_a_peer_that_was_resolved_gets_a_new_lane_soon },
	{ "a_peer_that_does_not_connect_is_tried_ever_less_often",
	  test_a_peer_that_does_not_connect_is_tried_ever_less_often },
	{ "a_path_that_was_just_tried_is_not_stuck",
	  test_a_path_that_was_just_tried_is_not_stuck },
	{ "a_lane_that_is_slow_to_open_gets_longer_to_connect",
	  test_a_lane_that_is_slow_to_open_gets_longer_to_connect },
	{ "a_lane_is_kept_while_a_busy_peer_does_not_accept",
	  test_a_lane_is_kept_while_a_busy_peer_does_not_accept },
	{ "a_lane_that_was_connected_before_is_not_kept_forever",
	  test_a_lane_that_was_connected_before_is_not_kept_forever },
	{ "an_idle_connection_that_is_lost_gets_a_new_lane",
	  test_an_idle_connection_that_is_lost_gets_a_new_lane },
	{ "a_lost_connection_breaks_few_messages",
	  test_a_lost_connection_breaks_few_messages },
	{ "a_warm_up_ends_when_the_pairs_are_connected",
	  test_a_warm_up_ends_when_the_pairs_are_connected },
	{ "the_thread_loses_no_wake_up", test_the_thread_loses_no_wake_up },
	{ "the_thread_runs_on_the_configured_cpus",
	  test_the_thread_runs_on_the_configured_cpus },
	{ "no_cpus_for_the_thread_is_an_error",
	  test_no_cpus_for_the_thread_is_an_error },
	{ "a_transport_is_removed_after_its_tasks_were_reported",
	  test_a_transport_is_removed_after_its_tasks_were_reported },
	{ "descriptors_can_be_slept_on_after_traffic",
	  test_descriptors_can_be_slept_on_after_traffic },
	{ NULL, NULL },
};
