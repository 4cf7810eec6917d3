/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of contact with peers whose known address is wrong, or of which no
 * address is known at present. */

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <string.h>

#include "prov/rail/conn/rail_announce.h"
#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/lock.h"


#define HELLO_WAIT_NS	(20 * TEI_NS_PER_SEC)
#define HELLO_TURNS	50
/* Largest number of iterations in a test. In this time the address is resolved
 * several times, once a second. */
#define HELLO_LOOKED	2000
#define HELLO_NOBODY	1	/* port at which no rail listens */

/* Sets the address of the peer's only rail to an address at which nothing
 * listens, and its lane generation to the previous one. */
static void hello_moved(struct tei_rail_peer *p)
{
	struct sockaddr_in *at = (void *)p->remotes[0].addr.bytes;

	rail_sched_enter(p->dp);
	at->sin_port = htons(HELLO_NOBODY);
	p->addrs.ncontacts = 0; /* removes the contact addresses, so that hellos
				 * go only to the address of the rail */
	p->remotes[0].gen--;
	p->remotes[0].serial = ++p->serial;
	p->hello.table_seen = 0;
	rail_sched_leave(p->dp);
}

/* Removes the address of the peer's only rail, as if the peer were opening its
 * lane again. */
static void hello_away(struct tei_rail_peer *p)
{
	rail_sched_enter(p->dp);
	memset(&p->remotes[0].addr, 0, sizeof(p->remotes[0].addr));
	p->addrs.ncontacts = 0;
	p->remotes[0].away = true;
	p->remotes[0].serial = ++p->serial;
	p->hello.table_seen = 0;
	rail_conn_table(p);
	rail_sched_leave(p->dp);
}

static struct tei_rail_peer *hello_of(struct test_plane *of,
				      struct test_plane *who)
{
	struct tei_rail_peer *p;

	rail_sched_enter(of->dp);
	p = rail_peer_find(of->dp, who->dp->incarnation);
	rail_sched_leave(of->dp);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	return p;
}

static void hello_write(struct test_pair *pair, struct test_task *t)
{
	test_fill(pair->src, sizeof(pair->src), 3);
	test_task_init(t, pair->peer, false, pair->src, pair->dst,
		       sizeof(pair->src));
	CU_ASSERT_EQUAL_FATAL(test_submit(pair->from.dp, t, 1), 0);
}

/* Runs both planes until the task has ended, at most "most" iterations. */
static void hello_turns(struct test_pair *pair, struct test_task *t,
			unsigned int most)
{
	struct timespec nap = { .tv_nsec = 1000000 };
	uint64_t end = tei_now_ns() + HELLO_WAIT_NS;

	while (most-- && !test_ends(t) && tei_now_ns() < end) {
		test_pair_turn(pair, tei_now_ns());
		nanosleep(&nap, NULL);
	}
}

/* What a plane knows about the address of the other plane. */
enum hello_knows {
	HELLO_MOVED,  /* the plane knows an address at which nothing listens */
	HELLO_AWAY,   /* the plane knows no address, because the other plane is
		       * opening its rail again */
	HELLO_CLOSED, /* the plane knows no address, because the other plane has
		       * closed its rail */
};

/* Makes both planes lose the other plane's address. Checks that a write
 * completes after the writing plane was given the right address. */
static void hello_lost(enum hello_knows what)
{
	struct tei_rail_addr real;
	struct test_pair pair;
	struct test_task t;

	test_pair_open(&pair);
	real = pair.peer->remotes[0].addr;
	hello_away(hello_of(&pair.to, &pair.from));
	if (what == HELLO_MOVED)
		hello_moved(pair.peer);
	else
		hello_away(pair.peer);
	pair.peer->remotes[0].away = what == HELLO_AWAY;
	hello_write(&pair, &t);
	hello_turns(&pair, &t, HELLO_TURNS);
	CU_ASSERT_EQUAL(test_ends(&t), 0);
	tei_rail_peer_resolved(pair.peer, pair.to.dp->incarnation, &real, 1);
	hello_turns(&pair, &t, UINT_MAX);
	CU_ASSERT_EQUAL(test_ends(&t), 1);
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(pair.src, pair.dst, sizeof(pair.src)), 0);
	/* the old address has been removed */
	CU_ASSERT_EQUAL(pair.peer->nremotes, 2);
	CU_ASSERT_EQUAL(pair.peer->remotes[1].addr.len, 0);
	test_pair_close(&pair);
}

/* Tests that the address of a peer is resolved although no request is pending.
 * The two planes do not know each other's address, and no connection exists
 * whose loss they could notice. */
static void test_peer_without_address_is_resolved(void)
{
	struct tei_rail_addr real;
	struct test_pair pair;
	struct test_task t;
	uint32_t before, i;

	test_pair_open(&pair);
	hello_write(&pair, &t); /* makes a write, so that the plane has the
				 * keys */
	hello_turns(&pair, &t, UINT_MAX);
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	real = pair.peer->remotes[0].addr;
	hello_away(hello_of(&pair.to, &pair.from));
	hello_away(pair.peer);
	before = test_resolved();
	rail_peer_announce(pair.from.dp);
	hello_write(&pair, &t);
	for (i = 0; i < HELLO_LOOKED && test_resolved() == before; i++)
		hello_turns(&pair, &t, 1);
	CU_ASSERT_EQUAL(test_ends(&t), 0);
	CU_ASSERT(test_resolved() > before);
	tei_rail_peer_resolved(pair.peer, pair.to.dp->incarnation, &real, 1);
	hello_turns(&pair, &t, UINT_MAX);
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	test_pair_close(&pair);
}

static void test_two_peers_with_wrong_addresses_reconnect(void)
{
	hello_lost(HELLO_MOVED);
}

/* Tests that two planes that have lost each other's address find each other at
 * their contact addresses, without a result of ops->resolve. */
static void test_peers_without_addresses_reconnect_at_contact_addresses(void)
{
	struct test_pair pair;
	struct test_task t;
	struct tei_rail_addr its, ours;
	struct tei_rail_peer *us;

	test_pair_open(&pair);
	its = pair.peer->addrs.contacts[0];
	ours = hello_of(&pair.to, &pair.from)->addrs.contacts[0];
	hello_away(hello_of(&pair.to, &pair.from));
	hello_away(pair.peer);
	rail_sched_enter(pair.from.dp);
	rail_peer_take_contacts(pair.peer, &its, 1);
	rail_sched_leave(pair.from.dp);
	us = hello_of(&pair.to, &pair.from);
	rail_sched_enter(pair.to.dp);
	rail_peer_take_contacts(us, &ours, 1);
	rail_sched_leave(pair.to.dp);
	hello_write(&pair, &t);
	hello_turns(&pair, &t, UINT_MAX);
	CU_ASSERT_EQUAL(test_ends(&t), 1);
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(pair.src, pair.dst, sizeof(pair.src)), 0);
	test_pair_close(&pair);
}

static void test_two_peers_with_reopening_rails_reconnect(void)
{
	hello_lost(HELLO_AWAY);
}

static void test_peer_with_closed_rails_is_connected_again(void)
{
	hello_lost(HELLO_CLOSED);
}

/* Tests that a resolved address at which nothing listens does no harm. */
static void test_wrong_resolved_address_is_harmless(void)
{
	struct tei_rail_addr wrong;
	struct sockaddr_in *at = (void *)wrong.bytes;
	struct test_pair pair;
	struct test_task t;
	uint64_t end;
	uint32_t gen;

	test_pair_open(&pair);
	gen = pair.rail->tx_lanes[0].gen;
	wrong = pair.peer->remotes[0].addr;
	at->sin_port = htons(HELLO_NOBODY);
	tei_rail_peer_resolved(pair.peer, pair.to.dp->incarnation, &wrong, 1);
	hello_write(&pair, &t);
	hello_turns(&pair, &t, UINT_MAX);
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	/* the hello also reaches the peer over the known route, and the lane is
	 * not renewed */
	for (end = tei_now_ns() + HELLO_WAIT_NS;
	     pair.peer->hello.again && tei_now_ns() < end;)
		test_pair_turn(&pair, tei_now_ns());
	CU_ASSERT_FALSE(pair.peer->hello.again);
	CU_ASSERT_EQUAL(pair.rail->tx_lanes[0].gen, gen);
	test_pair_close(&pair);
}

/* Tests that a process waits for a peer that has announced that its rail will
 * have an address again, but not for a peer that has closed its rails. */
static void test_announced_address_is_awaited(void)
{
	struct test_pair pair;
	struct test_task t;

	test_pair_open(&pair);
	hello_away(pair.peer);
	hello_write(&pair, &t);
	pair.peer->hello.again = true;
	hello_turns(&pair, &t, HELLO_TURNS);
	CU_ASSERT_EQUAL(test_ends(&t), 0);
	pair.peer->remotes[0].away = false;
	pair.peer->hello.next_ns = 0;
	hello_turns(&pair, &t, HELLO_TURNS);
	CU_ASSERT_EQUAL(test_ends(&t), 1);
	CU_ASSERT_EQUAL(t.code, TEI_ERR_NO_DEVICE);
	test_pair_close(&pair);
}

/* --- two peers with the same address ------------------------------------- */

static struct rail_conn *hello_conn(struct tei_rail_peer *p,
				    struct rail_lane *lane)
{
	struct rail_conn *conn;

	rail_sched_enter(p->dp);
	conn = rail_conn_get(p, lane, 0);
	rail_sched_leave(p->dp);
	CU_ASSERT_PTR_NOT_NULL_FATAL(conn);
	return conn;
}

/* Gives the connection to p a place in the endpoint cache and an address handle
 * of the lane. Returns 0 on success. */
static int hello_ready(struct tei_rail_peer *p, struct rail_lane *lane)
	TEI_REQUIRES(lane->lock)
{
	struct rail_conn *conn = hello_conn(p, lane);

	rail_sched_enter(p->dp);
	CU_ASSERT(rail_cache_admit_msg(lane, conn, tei_now_ns()));
	rail_sched_leave(p->dp);
	return rail_conn_ready(p, conn, lane, 0, 0);
}

static void hello_lose(struct tei_rail_peer *p, struct rail_lane *lane)
	TEI_REQUIRES(lane->lock)
{
	struct rail_conn *conn = hello_conn(p, lane);

	conn->used = true;
	rail_sched_enter(p->dp);
	rail_cache_drop(conn);
	rail_sched_leave(p->dp);
	rail_cache_close(lane);
}

/* Tests two peer objects with the same address: a known peer, and a resolver
 * for its address. The provider makes only one connection for both. It must
 * stay open until both have lost their places in the endpoint cache. */
static void test_peers_with_same_address_share_connection(void)
{
	struct tei_rail_peer *resolver;
	struct tei_rail_addr addr;
	struct rail_lane *lane;
	struct test_pair pair;
	struct tei_err err;

	test_pair_open(&pair);
	lane = &pair.rail->tx_lanes[0];
	addr = pair.peer->remotes[0].addr;
	CU_ASSERT_EQUAL_FATAL(
		tei_rail_peer_resolve(pair.from.dp, &addr, &err, &resolver), 0);
	tei_mutex_lock(&lane->lock);
	CU_ASSERT_EQUAL(hello_ready(resolver, lane), 0);
	/* a peer that has lost its place gets a place in the endpoint cache
	 * again */
	hello_lose(pair.peer, lane);
	CU_ASSERT_EQUAL(rail_disconnect_lives(lane, addr.bytes, addr.len),
			RAIL_CUT_SOME);
	CU_ASSERT_EQUAL(hello_ready(pair.peer, lane), 0);
	hello_lose(resolver, lane);
	CU_ASSERT_EQUAL(rail_disconnect_lives(lane, addr.bytes, addr.len),
			RAIL_CUT_SOME);
	/* the connection is closed when the last peer loses its place */
	hello_lose(pair.peer, lane);
	CU_ASSERT_EQUAL(rail_disconnect_lives(lane, addr.bytes, addr.len),
			RAIL_CUT_NONE);
	tei_mutex_unlock(&lane->lock);
	tei_rail_peer_put(resolver);
	test_pair_close(&pair);
}

const struct tei_test_case rail_hello_cases[] = {
	{ "peers_with_same_address_share_connection",
	  test_peers_with_same_address_share_connection },
	{ "two_peers_with_wrong_addresses_reconnect",
	  test_two_peers_with_wrong_addresses_reconnect },
	{ "two_peers_with_reopening_rails_reconnect",
	  test_two_peers_with_reopening_rails_reconnect },
	{ "peer_with_closed_rails_is_connected_again",
	  test_peer_with_closed_rails_is_connected_again },
	{ "peers_without_addresses_reconnect_at_contact_addresses",
	  test_peers_without_addresses_reconnect_at_contact_addresses },
	{ "peer_without_address_is_resolved",
	  test_peer_without_address_is_resolved },
	{ "wrong_resolved_address_is_harmless",
	  test_wrong_resolved_address_is_harmless },
	{ "announced_address_is_awaited", test_announced_address_is_awaited },
	{ NULL, NULL },
};
