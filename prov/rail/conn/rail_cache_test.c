/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests the endpoint cache: one data plane writes to many others, all in this
 * process, with a limit of connections that is below the number of targets. */

#include <dirent.h>
#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/rail_progress.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/lock.h"
#include "util/settings.h"
#include "util/sieve.h"


#define CACHE_TARGETS	10u
#define CACHE_CAP	4u
#define CACHE_BLOCK	4096u
#define CACHE_DEPTH	32u		/* number of blocks per target in a
					 * flood */

struct cache_rig {
	struct test_plane from, to[CACHE_TARGETS];
	struct tei_rail_peer *peer[CACHE_TARGETS];
	char *src, *dst[CACHE_TARGETS];	/* memory of CACHE_DEPTH blocks each */
	struct test_task task[CACHE_TARGETS][CACHE_DEPTH];
};

static char *cache_map(struct test_plane *p)
{
	size_t len = CACHE_DEPTH * CACHE_BLOCK;
	char *mem = aligned_alloc(4096, len);
	struct tei_rail_mr *mr;
	struct tei_err err;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mem);
	memset(mem, 0, len);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(p->dp, mem, len, "*",
					      TEI_RAIL_REMOTE, &err,
					      &mr), 0);
	return mem;
}

static struct cache_rig *cache_begin(uint32_t cap, bool retires_only)
{
	struct cache_rig *rig = calloc(1, sizeof(*rig));
	uint32_t i;

	CU_ASSERT_PTR_NOT_NULL_FATAL(rig);
	test_plane_init(&rig->from);
	rig->from.settings.lanes.max_conns = cap;
	rig->from.settings.failure.slice_timeout_s = 60;
	rig->from.settings.failure.retry_cnt = 128;
	test_plane_open(&rig->from, "127.0.0.1");
	rig->from.dp->rails[0]->cache[0].retires_only = retires_only;
	rig->src = cache_map(&rig->from);
	for (i = 0; i < CACHE_TARGETS; i++) {
		test_plane_init(&rig->to[i]);
		test_plane_open(&rig->to[i], "127.0.0.2");
		rig->dst[i] = cache_map(&rig->to[i]);
		rig->peer[i] = test_plane_peer(&rig->from, &rig->to[i]);
	}
	return rig;
}

static void cache_end(struct cache_rig *rig)
{
	uint32_t i;

	for (i = 0; i < CACHE_TARGETS; i++)
		tei_rail_peer_put(rig->peer[i]);
	test_plane_close(&rig->from);
	for (i = 0; i < CACHE_TARGETS; i++) {
		test_plane_close(&rig->to[i]);
		free(rig->dst[i]);
	}
	free(rig->src);
	free(rig);
}

/* --- observation --------------------------------------------------------- */

static struct rail_cache *cache_of(struct cache_rig *rig)
{
	return &rig->from.dp->rails[0]->cache[0];
}

/* Returns the number of connections of the tx lane, including both of its
 * slots. */
static uint32_t cache_connections(struct cache_rig *rig)
{
	struct rail *rail = rig->from.dp->rails[0];
	uint32_t n = 0, i;

	for (i = 0; i < RAIL_LANE_SLOTS; i++) {
		tei_mutex_lock(&rail->tx_lanes[i].lock);
		if (rail->tx_lanes[i].ep)
			n += rail_disconnect_count(&rail->tx_lanes[i]);
		tei_mutex_unlock(&rail->tx_lanes[i].lock);
	}
	return n;
}

static uint32_t cache_held(struct cache_rig *rig)
{
	uint32_t n;

	rail_sched_enter(rig->from.dp);
	n = (uint32_t)cache_of(rig)->held.count;
	rail_sched_leave(rig->from.dp);
	return n;
}

static uint64_t cache_made(struct cache_rig *rig)
{
	uint64_t n;

	rail_sched_enter(rig->from.dp);
	n = cache_of(rig)->made;
	rail_sched_leave(rig->from.dp);
	return n;
}

static uint32_t cache_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* Waits until count() returns at most "most". Returns false after a timeout. */
static bool cache_settles(uint32_t (*count)(struct cache_rig *),
			  struct cache_rig *rig, uint32_t most)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct timespec nap = { .tv_nsec = 1000000 };

	while (count(rig) > most) {
		if (tei_now_ns() > end)
			return false;
		nanosleep(&nap, NULL);
	}
	return true;
}

static uint32_t cache_all_fds(struct cache_rig *rig)
{
	(void)rig;
	return cache_fds();
}

/* --- traffic ------------------------------------------------------------- */

/* Writes one block to each of the first "targets" targets, one after the other,
 * and checks that it has arrived. */
static void cache_round(struct cache_rig *rig, uint32_t targets, uint64_t seed)
{
	uint32_t i;

	for (i = 0; i < targets; i++) {
		test_fill(rig->src, CACHE_BLOCK, seed + i);
		CU_ASSERT_EQUAL(test_run(rig->from.dp, rig->peer[i], false,
					 rig->src, rig->dst[i], CACHE_BLOCK),
				TEI_RAIL_END_COMPLETED);
		CU_ASSERT_EQUAL(memcmp(rig->src, rig->dst[i], CACHE_BLOCK), 0);
	}
}

/* Writes all blocks to each of the first "targets" targets at the same time,
 * and checks that they have arrived. */
static void cache_flood(struct cache_rig *rig, uint32_t targets, uint64_t seed)
{
	size_t len = CACHE_DEPTH * CACHE_BLOCK;
	uint32_t i, j;

	test_fill(rig->src, len, seed);
	for (i = 0; i < targets; i++) {
		memset(rig->dst[i], 0, len);
		for (j = 0; j < CACHE_DEPTH; j++)
			test_task_init(&rig->task[i][j], rig->peer[i], false,
				       rig->src + j * CACHE_BLOCK,
				       rig->dst[i] + j * CACHE_BLOCK,
				       CACHE_BLOCK);
		CU_ASSERT_EQUAL_FATAL(test_submit(rig->from.dp, rig->task[i],
						  CACHE_DEPTH), 0);
	}
	for (i = 0; i < targets; i++) {
		CU_ASSERT_FATAL(test_wait(rig->task[i], CACHE_DEPTH));
		for (j = 0; j < CACHE_DEPTH; j++)
			CU_ASSERT_EQUAL(rig->task[i][j].end,
					TEI_RAIL_END_COMPLETED);
		CU_ASSERT_EQUAL(memcmp(rig->src, rig->dst[i], len), 0);
	}
}

/* --- cases --------------------------------------------------------------- */

static void cache_check_bounded(bool retires_only, uint32_t most)
{
	struct cache_rig *rig = cache_begin(CACHE_CAP, retires_only);
	uint32_t r, fds = 0;

	for (r = 0; r < 6; r++) {
		cache_round(rig, CACHE_TARGETS, r * 1000);
		CU_ASSERT(cache_held(rig) <= CACHE_CAP);
		CU_ASSERT(cache_settles(cache_connections, rig, most));
		/* in the first round, the targets make the connections over
		 * which they answer */
		if (!r)
			fds = cache_fds();
		CU_ASSERT(cache_settles(cache_all_fds, rig,
					fds + 2 * CACHE_CAP));
	}
	CU_ASSERT(cache_made(rig) > 3 * CACHE_TARGETS);
	cache_end(rig);
}

static void test_connections_are_bounded(void)
{
	cache_check_bounded(false, CACHE_CAP);
}

static void test_connections_are_bounded_by_retiring_lanes(void)
{
	cache_check_bounded(true, CACHE_CAP);
}

static void test_cached_connection_is_used_again(void)
{
	struct cache_rig *rig = cache_begin(CACHE_CAP, false);
	uint64_t made;
	uint32_t r;

	cache_round(rig, CACHE_CAP, 1);
	made = cache_made(rig);
	CU_ASSERT_EQUAL(made, CACHE_CAP);
	for (r = 0; r < 20; r++)
		cache_round(rig, CACHE_CAP, r);
	CU_ASSERT_EQUAL(cache_made(rig), made);
	cache_end(rig);
}

static void test_more_busy_peers_than_places_take_turns(void)
{
	struct cache_rig *rig = cache_begin(CACHE_CAP, false);

	cache_flood(rig, CACHE_TARGETS, 1);
	cache_flood(rig, CACHE_TARGETS, 2);
	CU_ASSERT(cache_settles(cache_connections, rig, CACHE_CAP));
	cache_end(rig);
}

static void test_flood_with_two_places_completes(void)
{
	struct cache_rig *rig = cache_begin(1, false);

	cache_flood(rig, CACHE_TARGETS, 1);
	CU_ASSERT(cache_settles(cache_connections, rig, 2));
	cache_end(rig);
}

/* Starts the progress thread of the plane again after test_plane_still. */
static void cache_go_on(struct test_plane *p)
{
	struct tei_err err;

	__atomic_store_n(&p->dp->thread.stop, false, __ATOMIC_RELEASE);
	CU_ASSERT_EQUAL_FATAL(rail_progress_start(p->dp, &err), 0);
}

/* Checks that three silent peers do not take the places of the others. met:
 * whether the three have answered before they become silent. */
static void cache_check_silent(uint32_t cap, bool met)
{
	struct timespec pause = { .tv_sec = 1, .tv_nsec = 500000000 };
	struct cache_rig *rig = cache_begin(cap, false);
	uint32_t i, r, silent = CACHE_TARGETS - 3;

	if (met) {
		cache_round(rig, CACHE_TARGETS, 1);
		/* give the places of the peers that become silent to the
		 * others */
		cache_round(rig, silent, 2);
	}
	for (i = silent; i < CACHE_TARGETS; i++) {
		test_plane_still(&rig->to[i]);
		test_task_init(rig->task[i], rig->peer[i], false, rig->src,
			       rig->dst[i], CACHE_BLOCK);
		CU_ASSERT_EQUAL_FATAL(test_submit(rig->from.dp, rig->task[i],
						  1), 0);
	}
	/* wait until the silent peers count as silent */
	nanosleep(&pause, NULL);
	for (r = 0; r < 3; r++)
		cache_round(rig, silent, r * 1000);
	for (i = silent; i < CACHE_TARGETS; i++)
		CU_ASSERT_EQUAL(test_ends(rig->task[i]), 0);
	for (i = silent; i < CACHE_TARGETS; i++)
		cache_go_on(&rig->to[i]);
	for (i = silent; i < CACHE_TARGETS; i++)
		CU_ASSERT_FATAL(test_wait(rig->task[i], 1));
	cache_end(rig);
}

static void test_silent_peers_leave_places_to_others(void)
{
	cache_check_silent(1, false);
}

/* Checks silent peers that had been connected before: although they have slices
 * to post, they do not join the waiting list. */
static void test_peers_that_become_silent_leave_places_to_others(void)
{
	cache_check_silent(CACHE_CAP, true);
}

/* Returns the connection from the first local rail to remote rail "remote" of
 * the first target, and its lane in *lane. */
static struct rail_conn *cache_conn(struct cache_rig *rig, uint16_t remote,
				    struct rail_lane **lane)
{
	struct rail *rail = rig->from.dp->rails[0];
	struct rail_conn *conn;

	*lane = rail_lane_active(&rail->tx_lanes[0]) ? &rail->tx_lanes[0]
						     : &rail->tx_lanes[1];
	rail_sched_enter(rig->from.dp);
	conn = rail_conn_get(rig->peer[0], *lane, remote);
	rail_sched_leave(rig->from.dp);
	CU_ASSERT_PTR_NOT_NULL_FATAL(conn);
	return conn;
}

/* Checks a connection that is evicted, gets a place again, and is evicted again
 * before it was used. Its socket is no longer connected, but the provider has
 * not closed the socket yet. */
static void test_post_on_closing_connection_is_deferred(void)
{
	struct cache_rig *rig = cache_begin(CACHE_CAP, false);
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct sockaddr_in addr;
	struct rail_lane *lane;
	struct rail_conn *conn;

	cache_round(rig, 1, 1);
	conn = cache_conn(rig, 0, &lane);
	memcpy(&addr, rig->peer[0]->remotes[0].addr.bytes, sizeof(addr));
	tei_mutex_lock(&lane->lock);
	rail_sched_enter(rig->from.dp);
	rail_cache_drop(conn);
	CU_ASSERT(rail_cache_admit_msg(lane, conn, tei_now_ns()));
	rail_cache_drop(conn);
	rail_sched_leave(rig->from.dp);
	rail_cache_close(lane);
	while (rail_disconnect_find(lane, &addr, sizeof(addr)) ==
		       RAIL_CUT_SOME &&
	       tei_now_ns() < end)
		;
	CU_ASSERT_EQUAL(rail_conn_ready(rig->peer[0], conn, lane, 0, 0),
			-FI_EAGAIN);
	tei_mutex_unlock(&lane->lock);
	cache_round(rig, 1, 2);
	CU_ASSERT_EQUAL(
		__atomic_load_n(&lane->rail->errors.errors, __ATOMIC_RELAXED),
		0);
	cache_end(rig);
}

/* Checks that a slice which was cut for one lane generation of the target is
 * not posted to the next generation, because the fence for the slice would
 * close only the first one. */
static void test_post_to_other_lane_generation_is_deferred(void)
{
	struct cache_rig *rig = cache_begin(CACHE_CAP, false);
	struct rail_remote *remote;
	struct rail_lane *lane;
	struct rail_conn *conn;
	uint32_t gen;

	cache_round(rig, 1, 1);
	conn = cache_conn(rig, 0, &lane);
	remote = &rig->peer[0]->remotes[0];
	tei_mutex_lock(&lane->lock);
	rail_sched_enter(rig->from.dp);
	gen = remote->gen++;
	remote->serial = ++rig->peer[0]->serial;
	rail_sched_leave(rig->from.dp);
	CU_ASSERT_EQUAL(rail_conn_ready(rig->peer[0], conn, lane, 0, gen),
			-FI_EAGAIN);
	CU_ASSERT(!rail_conn_ready(rig->peer[0], conn, lane, 0, gen + 1));
	CU_ASSERT_EQUAL(rail_conn_ready(rig->peer[0], conn, lane, 0, gen),
			-FI_EAGAIN);
	rail_sched_enter(rig->from.dp);
	remote->gen--;
	rail_sched_leave(rig->from.dp);
	tei_mutex_unlock(&lane->lock);
	cache_round(rig, 1, 2);
	cache_end(rig);
}

static bool cache_has_place(struct cache_rig *rig, const struct rail_conn *conn)
{
	bool has;

	rail_sched_enter(rig->from.dp);
	has = conn->slot != NULL;
	rail_sched_leave(rig->from.dp);
	return has;
}

/* Checks that a connection keeps its place if it is used again before each use
 * of another one. */
static void test_cache_keeps_connection_in_frequent_use(void)
{
	struct cache_rig *rig = cache_begin(CACHE_CAP, false);
	uint32_t i, r, gone = 0;
	struct rail_conn *conn;
	struct rail_lane *lane;

	cache_round(rig, CACHE_CAP, 1);
	conn = cache_conn(rig, 0, &lane);
	for (r = 0; r < 4; r++)
		for (i = 1; i < CACHE_TARGETS; i++) {
			gone += !cache_has_place(rig, conn);
			cache_round(rig, 1, r);
			CU_ASSERT_EQUAL(test_run(rig->from.dp, rig->peer[i],
						 false, rig->src, rig->dst[i],
						 CACHE_BLOCK),
					TEI_RAIL_END_COMPLETED);
		}
	/* a cache that evicts by age alone would evict the connection every
	 * third time */
	CU_ASSERT(gone <= 4);
	cache_end(rig);
}

/* Sends a message over the first local rail to remote rail "remote" of the
 * first target. Returns true on success. */
static bool cache_send_by(struct cache_rig *rig, uint16_t remote)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct tei_rail_peer *peer = rig->peer[0];
	uint8_t buf[RAIL_MSG_MAX];
	struct rail_lane *lane;
	struct rail_conn *conn;
	struct rail_wire w;
	size_t len;
	int ret;

	rail_sched_enter(rig->from.dp);
	rail_msg_begin(peer, &w, buf, RAIL_MSG_PONG, 0);
	rail_wire_put(&w, 0, 8);
	rail_sched_leave(rig->from.dp);
	len = rail_msg_end(&w);
	do {
		ret = rail_msg_try_pair(peer, rig->from.dp->rails[0], 0,
					(int16_t)remote, buf, len, &lane,
					&conn);
		if (ret == -FI_EAGAIN && lane)
			rail_lane_run(lane);
	} while (ret == -FI_EAGAIN && tei_now_ns() < end);
	return !ret;
}

/* Checks that an idle off-route connection is evicted. Each side has two rails;
 * a message over the first local rail to the remote rail that is not its route
 * makes the connection. */
static void test_off_route_connection_when_idle_is_evicted(void)
{
	struct cache_rig *rig = cache_begin(CACHE_CAP, false);
	struct timespec nap = { .tv_nsec = 10000000 };
	struct rail_conn *deferred, *route;
	uint64_t end;
	struct rail_lane *lane;
	struct tei_err err;
	uint16_t r;

	CU_ASSERT_EQUAL_FATAL(tei_rail_dp_add_transport(rig->from.dp, "tcp",
							"127.0.0.3", &err), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_dp_add_transport(rig->to[0].dp, "tcp",
							"127.0.0.4", &err), 0);
	cache_round(rig, 1, 1);
	CU_ASSERT_EQUAL_FATAL(rig->peer[0]->nremotes, 2);
	r = (uint16_t)rig->peer[0]->routes.route[0];
	route = cache_conn(rig, r, &lane);
	deferred = cache_conn(rig, 1 - r, &lane);
	CU_ASSERT(cache_send_by(rig, r));
	CU_ASSERT(cache_send_by(rig, 1 - r));
	CU_ASSERT(cache_has_place(rig, deferred));
	end = tei_now_ns() + TEST_WAIT_NS / 4;
	while (cache_has_place(rig, deferred) && tei_now_ns() < end)
		nanosleep(&nap, NULL);
	CU_ASSERT(!cache_has_place(rig, deferred));
	CU_ASSERT(cache_has_place(rig, route));
	CU_ASSERT(cache_settles(cache_connections, rig, 1));
	cache_end(rig);
}

static void test_freed_peer_leaves_no_connection(void)
{
	struct cache_rig *rig = cache_begin(CACHE_CAP, false);
	uint32_t i;

	cache_round(rig, CACHE_CAP, 1);
	for (i = 0; i < CACHE_CAP; i++) {
		test_plane_close(&rig->to[i]);
		tei_rail_peer_put(rig->peer[i]);
	}
	CU_ASSERT(cache_settles(cache_held, rig, 0));
	CU_ASSERT(cache_settles(cache_connections, rig, 0));
	for (i = 0; i < CACHE_CAP; i++) {
		test_plane_open(&rig->to[i], "127.0.0.2");
		rig->peer[i] = test_plane_peer(&rig->from, &rig->to[i]);
	}
	cache_end(rig);
}

/* Marks the connections of the peers in the cache as busy or not, as messages
 * that are under way would, but without rail_conn_sent. */
static void cache_set_busy(struct cache_rig *rig, bool busy)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_sieve_entry *e;

	tei_list_foreach(e, &cache_of(rig)->held.order, struct tei_sieve_entry,
			 link)
		tei_container_of(e, struct rail_cache_slot, entry)->conn->msgs =
			busy;
}

static void test_full_cache_is_searched_once_at_a_time(void)
{
	struct cache_rig *rig = cache_begin(CACHE_CAP, false);
	struct rail_lane *lane;
	struct rail_conn *conn;
	uint64_t now;

	cache_round(rig, CACHE_TARGETS, 1);
	test_plane_still(&rig->from);
	now = tei_now_ns() + TEST_WAIT_NS;
	conn = cache_conn(rig, 0, &lane);
	tei_mutex_lock(&lane->lock);
	rail_sched_enter(rig->from.dp);
	CU_ASSERT_PTR_NULL(conn->slot);
	CU_ASSERT_EQUAL(cache_of(rig)->held.count, CACHE_CAP);
	cache_set_busy(rig, true);
	CU_ASSERT_FALSE(rail_cache_admit_msg(lane, conn, now));
	/* this change was not reported, so another search is needed to find
	 * it */
	cache_set_busy(rig, false);
	CU_ASSERT_FALSE(rail_cache_admit_msg(lane, conn, now));
	CU_ASSERT(rail_cache_admit_msg(lane, conn, now + 1));
	rail_cache_drop(conn);
	rail_sched_leave(rig->from.dp);
	rail_cache_close(lane);
	tei_mutex_unlock(&lane->lock);
	cache_end(rig);
}

const struct tei_test_case rail_cache_cases[] = {
	{ "connections_are_bounded", test_connections_are_bounded },
	{ "connections_are_bounded_by_retiring_lanes",
	  test_connections_are_bounded_by_retiring_lanes },
	{ "cached_connection_is_used_again",
	  test_cached_connection_is_used_again },
	{ "cache_keeps_connection_in_frequent_use",
	  test_cache_keeps_connection_in_frequent_use },
	{ "more_busy_peers_than_places_take_turns",
	  test_more_busy_peers_than_places_take_turns },
	{ "flood_with_two_places_completes",
	  test_flood_with_two_places_completes },
	{ "silent_peers_leave_places_to_others",
	  test_silent_peers_leave_places_to_others },
	{ "peers_that_become_silent_leave_places_to_others",
	  test_peers_that_become_silent_leave_places_to_others },
	{ "post_on_closing_connection_is_deferred",
	  test_post_on_closing_connection_is_deferred },
	{ "post_to_other_lane_generation_is_deferred",
	  test_post_to_other_lane_generation_is_deferred },
	{ "full_cache_is_searched_once_at_a_time",
	  test_full_cache_is_searched_once_at_a_time },
	{ "off_route_connection_when_idle_is_evicted",
	  test_off_route_connection_when_idle_is_evicted },
	{ "freed_peer_leaves_no_connection",
	  test_freed_peer_leaves_no_connection },
	{ NULL, NULL },
};
