/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests rails whose rx lanes have moved, and their contact lanes. The test acts
 * as the progress thread. */

#include <netinet/in.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_peer_run.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"


#define FIRST_LEN	64

static void contact_open(struct test_plane *p, const char *address)
{
	test_plane_init(p);
	test_plane_open(p, address);
}

/* Stops the progress thread of the plane. The test does the thread's work after
 * this call. */
static void contact_still(struct test_plane *p)
{
	test_plane_still(p);
	__atomic_store_n(&p->dp->thread.stop, false, __ATOMIC_RELEASE);
}

static struct rail *contact_rail(struct test_plane *p)
{
	return rail_at(p->dp, 0);
}

static enum rail_contact_lane_state contact_is(struct test_plane *p)
{
	return (enum rail_contact_lane_state)contact_rail(p)->contact.state;
}

/* Does one iteration of the progress thread's work for the lanes, but not for
 * the peers. */
static void contact_lanes(struct test_plane *p)
{
	struct rail *rail = contact_rail(p);
	uint64_t now = tei_now_ns();
	uint32_t i;

	for (i = 0; i < rail->ntx * RAIL_LANE_SLOTS; i++)
		rail_lane_run(&rail->tx_lanes[i]);
	rail_lane_run(&rail->rx_lane);
	rail_lane_run(&rail->contact.opening.lane);
	rail_fence_run(p->dp);
	rail_renew_run(p->dp, now);
	rail_fence_collect(rail);
	rail_contact_lane_run(rail, now);
	rail_contact_lane_collect(rail);
	sched_yield();
}

static void contact_turn(struct test_plane *p)
{
	struct tei_rail_peer *peer, *tmp;

	tei_list_foreach_safe (peer, tmp, &p->dp->peers.list,
			       struct tei_rail_peer, link)
		rail_peer_run(peer, tei_now_ns());
	contact_lanes(p);
	test_health_run(p->dp, tei_now_ns());
}

static bool contact_moved(struct test_plane *p, uint32_t gen)
{
	struct rail *rail = contact_rail(p);

	return rail->rx_lane.gen > gen && rail->rx_lane.ep &&
	       contact_is(p) == RAIL_CONTACT_LANE_HELD;
}

/* Moves the rx lane of the plane to another address without informing any
 * peer. */
static void contact_move(struct test_plane *p)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	uint32_t gen = contact_rail(p)->rx_lane.gen;

	rail_fence_request(contact_rail(p), gen);
	while (!contact_moved(p, gen) && tei_now_ns() < end)
		contact_lanes(p);
	CU_ASSERT_FATAL(contact_moved(p, gen));
}

static void contact_describe(struct test_plane *p, struct tei_rail_desc *desc)
{
	CU_ASSERT_EQUAL_FATAL(tei_rail_describe(p->dp, 0, desc), 0);
}

/* Returns the peer object in plane `of` that represents plane `who`. The peer
 * object has only the given contact address. */
static struct tei_rail_peer *contact_peer(struct test_plane *of,
					  struct test_plane *who,
					  const struct tei_rail_addr *at)
{
	struct tei_rail_peer *peer = NULL;

	CU_ASSERT_EQUAL_FATAL(tei_rail_peer_get(of->dp, "moved",
						who->dp->incarnation, at, 1, NULL,
						&peer), 0);
	rail_sched_enter(of->dp);
	peer->hello.wanted = true;
	rail_peer_attend(peer);
	rail_sched_leave(of->dp);
	return peer;
}

static bool contact_ready(struct tei_rail_peer *p)
{
	bool ready;

	rail_sched_enter(p->dp);
	ready = p->state == RAIL_PEER_READY;
	rail_sched_leave(p->dp);
	return ready;
}

static void test_hello_at_contact_address_returns_rail_table(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct tei_rail_desc first, now;
	struct test_plane home, guest;
	struct tei_rail_peer *peer;

	contact_open(&home, "127.0.0.1");
	contact_open(&guest, "127.0.0.2");
	contact_describe(&home, &first);
	CU_ASSERT(rail_addr_same(&first.known, &first.addr));
	CU_ASSERT_PTR_NULL(contact_rail(&home)->fab.contact_domain);
	contact_still(&home);
	contact_move(&home);
	contact_describe(&home, &now);
	CU_ASSERT(!rail_addr_same(&now.addr, &first.addr));
	CU_ASSERT(rail_addr_same(&now.known, &first.addr));
	peer = contact_peer(&guest, &home, &first.addr);
	while (!contact_ready(peer) && tei_now_ns() < end)
		contact_turn(&home);
	CU_ASSERT_FATAL(contact_ready(peer));
	rail_sched_enter(guest.dp);
	CU_ASSERT_EQUAL(peer->nremotes, 1);
	CU_ASSERT(rail_addr_same(&peer->remotes[0].addr, &now.addr));
	CU_ASSERT_EQUAL(peer->addrs.ncontacts, 1);
	CU_ASSERT(rail_addr_same(&peer->addrs.contacts[0], &first.addr));
	rail_sched_leave(guest.dp);
	tei_rail_peer_put(peer);
	test_plane_close(&guest);
	test_plane_close(&home);
}

static void test_resolver_at_contact_address_finds_process(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct test_plane home, guest;
	struct tei_rail_peer *resolver;
	struct tei_rail_desc first;

	contact_open(&home, "127.0.0.1");
	contact_open(&guest, "127.0.0.2");
	contact_describe(&home, &first);
	contact_still(&home);
	contact_move(&home);
	CU_ASSERT_EQUAL_FATAL(
		tei_rail_peer_resolve(guest.dp, &first.addr, NULL, &resolver),
		0);
	while (!tei_rail_peer_found(resolver) && tei_now_ns() < end)
		contact_turn(&home);
	CU_ASSERT_EQUAL(tei_rail_peer_found(resolver), home.dp->incarnation);
	tei_rail_peer_put(resolver);
	test_plane_close(&guest);
	test_plane_close(&home);
}

/* --- reads and writes ---------------------------------------------------- */

static char contact_dst[FIRST_LEN];

/* Writes to address "at" of data plane "to", over the probe endpoint of "by".
 * Returns 0, or the error of the completion. */
static int contact_write(struct test_plane *by, struct test_plane *to,
			 const struct tei_rail_addr *at, char *src)
{
	struct rail *rail = contact_rail(by);
	struct rail_lane *lane = &rail->probe.opening.lane;
	uint64_t end = tei_now_ns() + TEST_WAIT_NS, key, addr = 0;
	struct fi_cq_err_entry e = { .err = FI_ETIMEDOUT };
	struct fi_context2 ctx;
	struct fi_cq_msg_entry done;
	fi_addr_t peer;
	struct tei_list none;
	ssize_t ret;

	if (rail->fab.mr_mode & FI_MR_VIRT_ADDR)
		addr = (uint64_t)(uintptr_t)contact_dst;
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_key(to->dp, contact_dst, 0, &key), 0);
	tei_list_init(&none);
	tei_mutex_lock(&lane->lock);
	CU_ASSERT_EQUAL_FATAL(rail_lane_open(lane, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(fi_av_insert(lane->av, at->bytes, 1, &peer, 0,
					   NULL), 1);
	do {
		ret = fi_write(lane->ep, src, FIRST_LEN, NULL, peer, addr, key,
			       &ctx);
		if (ret == -FI_EAGAIN)
			fi_cq_read(lane->cq, &done, 0);
		contact_lanes(to);
	} while (ret == -FI_EAGAIN && tei_now_ns() < end);
	CU_ASSERT_EQUAL(ret, 0);
	do {
		ret = fi_cq_read(lane->cq, &done, 1);
		contact_lanes(to);
	} while (ret == -FI_EAGAIN && tei_now_ns() < end);
	if (ret == -FI_EAVAIL)
		fi_cq_readerr(lane->cq, &e, 0);
	rail_lane_close(lane, &none);
	tei_mutex_unlock(&lane->lock);
	return ret == 1 ? 0 : e.err;
}

static void test_write_to_contact_lane_fails(void)
{
	char src[FIRST_LEN], was[FIRST_LEN] = { 0 };
	struct test_plane home, guest;
	struct tei_rail_desc first, now;
	struct tei_rail_mr *mr;
	int i;

	contact_open(&home, "127.0.0.1");
	contact_open(&guest, "127.0.0.2");
	memset(contact_dst, 0, sizeof(contact_dst));
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(home.dp, contact_dst, FIRST_LEN,
					      "*", TEI_RAIL_REMOTE, NULL, &mr),
			      0);
	contact_describe(&home, &first);
	contact_still(&home);
	contact_still(&guest);
	contact_move(&home);
	contact_describe(&home, &now);
	test_fill(src, sizeof(src), 5);
	CU_ASSERT(contact_write(&guest, &home, &first.addr, src));
	for (i = 0; i < 100; i++)
		contact_lanes(&home);
	CU_ASSERT_EQUAL(memcmp(contact_dst, was, FIRST_LEN), 0);
	/* a write to the address of the present rx lane succeeds */
	CU_ASSERT_EQUAL(contact_write(&guest, &home, &now.addr, src), 0);
	CU_ASSERT_EQUAL(memcmp(contact_dst, src, FIRST_LEN), 0);
	CU_ASSERT_EQUAL(contact_is(&home), RAIL_CONTACT_LANE_HELD);
	test_plane_close(&guest);
	test_plane_close(&home);
}

/* --- two processes that have lost each other ----------------------------- */

static char contact_src[FIRST_LEN];

static struct tei_rail_peer *contact_met(struct test_plane *home,
					 struct test_plane *guest)
{
	struct tei_rail_peer *peer = test_plane_peer(guest, home);
	struct tei_rail_mr *mr;

	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(guest->dp, contact_src, FIRST_LEN,
					      "*", 0, NULL, &mr),
			      0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(home->dp, contact_dst, FIRST_LEN,
					      "*", TEI_RAIL_REMOTE, NULL, &mr),
			      0);
	CU_ASSERT_EQUAL_FATAL(
		test_run(guest->dp, peer, false, contact_src, contact_dst, 1),
		TEI_RAIL_END_COMPLETED);
	contact_still(home);
	contact_still(guest);
	return peer;
}

/* Checks that a write from "guest" to "home" completes, after the rx lanes of
 * both have moved. */
static void contact_meet(struct test_plane *home, struct test_plane *guest,
			 struct tei_rail_peer *peer, uint64_t seed)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct test_task t;

	test_fill(contact_src, FIRST_LEN, seed);
	test_task_init(&t, peer, false, contact_src, contact_dst, FIRST_LEN);
	CU_ASSERT_EQUAL_FATAL(test_submit(guest->dp, &t, 1), 0);
	while (!test_ends(&t) && tei_now_ns() < end) {
		rail_sched_kick(guest->dp, 0);
		contact_turn(guest);
		contact_turn(home);
	}
	CU_ASSERT_EQUAL_FATAL(test_ends(&t), 1);
	CU_ASSERT_EQUAL(t.end, TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(contact_src, contact_dst, FIRST_LEN), 0);
}

static void test_two_planes_that_move_together_reconnect(void)
{
	struct test_plane home, guest;
	struct tei_rail_peer *peer;
	uint64_t i;

	contact_open(&home, "127.0.0.1");
	contact_open(&guest, "127.0.0.2");
	peer = contact_met(&home, &guest);
	/* In the first round, each plane still knows the other's contact
	 * address as its route. In the second round, each knows an address at
	 * which nothing listens any longer. */
	for (i = 0; i < 2; i++) {
		contact_move(&home);
		contact_move(&guest);
		contact_meet(&home, &guest, peer, 7 + i);
	}
	tei_rail_peer_put(peer);
	test_plane_close(&guest);
	test_plane_close(&home);
}

/* Checks that each contact address is tried for some time, because any of them
 * may be the only one that works. */
static void test_contact_addresses_are_tried_in_turn(void)
{
	struct tei_rail_addr at[2] = { { .len = 1 }, { .len = 2 } };
	struct test_plane home;
	struct tei_rail_peer *peer;
	uint64_t now = TEI_NS_PER_SEC;
	uint32_t i;

	contact_open(&home, "127.0.0.1");
	contact_still(&home);
	peer = contact_peer(&home, &home, &contact_rail(&home)->nic.own);
	rail_sched_enter(home.dp);
	rail_peer_take_contacts(peer, at, 2);
	for (i = 0; i < 4; i++, now += TEI_NS_PER_SEC) {
		rail_peer_next_first(peer, now);
		CU_ASSERT_EQUAL(peer->addrs.found_at.len, i % 2 + 1);
		rail_peer_next_first(peer, now + TEI_NS_PER_SEC);
		CU_ASSERT_EQUAL(peer->addrs.found_at.len, i % 2 + 1);
		peer->addrs.found_at.len = 0;
		rail_peer_next_first(peer, now + TEI_NS_PER_MS);
		CU_ASSERT_EQUAL(peer->addrs.found_at.len, 0);
	}
	/* without contact addresses, no address is tried */
	peer->addrs.ncontacts = 0;
	rail_peer_next_first(peer, now);
	CU_ASSERT_EQUAL(peer->addrs.found_at.len, 0);
	rail_sched_leave(home.dp);
	tei_rail_peer_put(peer);
	test_plane_close(&home);
}

static void contact_hint(struct tei_rail_peer *p,
			 const struct tei_rail_addr *at)
	TEI_REQUIRES(rail_sched_held)
{
	p->addrs.found_at = *at;
	rail_peer_take_hint(p);
}

/* Checks that a contact address is left out after another process has answered
 * there repeatedly. */
static void test_contact_address_of_other_process_is_left_out(void)
{
	struct tei_rail_addr at[2] = { { .len = 1 }, { .len = 2 } };
	struct test_plane home, guest;
	struct tei_rail_peer *peer;

	contact_open(&home, "127.0.0.1");
	contact_open(&guest, "127.0.0.2");
	peer = contact_met(&home, &guest);
	rail_sched_enter(guest.dp);
	CU_ASSERT(!rail_peer_not_there(peer));
	rail_peer_take_contacts(peer, at, 2);
	contact_hint(peer, &at[0]);
	CU_ASSERT(rail_peer_searched(peer));
	CU_ASSERT(rail_peer_not_there(peer));
	CU_ASSERT_EQUAL(peer->addrs.ncontacts, 1);
	CU_ASSERT(!rail_peer_searched(peer));
	CU_ASSERT(rail_peer_not_there(peer));
	CU_ASSERT_EQUAL(peer->addrs.ncontacts, 1);
	CU_ASSERT_EQUAL(peer->addrs.contacts[0].len, 2);
	peer->addrs.not_there_ns = 1;
	contact_hint(peer, &at[1]);
	CU_ASSERT(!rail_peer_not_there(peer));
	rail_sched_leave(guest.dp);
	tei_rail_peer_put(peer);
	test_plane_close(&guest);
	test_plane_close(&home);
}

/* --- an address in use by another process -------------------------------- */

static int contact_take(const struct tei_rail_addr *at)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	CU_ASSERT_FATAL(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	CU_ASSERT_EQUAL_FATAL(bind(fd, (const void *)at->bytes, at->len), 0);
	CU_ASSERT_EQUAL_FATAL(listen(fd, 1), 0);
	return fd;
}

static void contact_await(struct test_plane *p,
			  enum rail_contact_lane_state state)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;

	while (contact_is(p) != state && tei_now_ns() < end)
		contact_lanes(p);
	CU_ASSERT_EQUAL_FATAL(contact_is(p), state);
}

static void test_contact_lane_at_used_address_is_retried(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS, from;
	struct tei_rail_desc first, now;
	struct test_plane home;
	struct rail *rail;
	int fd;

	contact_open(&home, "127.0.0.1");
	contact_describe(&home, &first);
	contact_still(&home);
	rail = contact_rail(&home);
	rail_fence_request(rail, rail->rx_lane.gen);
	while (!__atomic_load_n(&rail->rx_lane.closing.over,
				__ATOMIC_ACQUIRE) &&
	       tei_now_ns() < end)
		sched_yield();
	fd = contact_take(&first.addr);
	from = tei_now_ns();
	contact_await(&home, RAIL_CONTACT_LANE_TAKEN);
	while (!rail->rx_lane.ep && tei_now_ns() < end)
		contact_lanes(&home);
	contact_describe(&home, &now);
	CU_ASSERT(!rail_addr_same(&now.addr, &first.addr));
	CU_ASSERT(rail_addr_same(&now.known, &now.addr));
	/* retries fail as long as the address is in use */
	CU_ASSERT(rail->contact.next_ns > from + 50 * TEI_NS_PER_MS);
	rail->contact.next_ns = 0;
	while (rail->contact.tries < 2 && tei_now_ns() < end)
		contact_lanes(&home);
	CU_ASSERT(rail->contact.tries >= 2);
	CU_ASSERT_EQUAL(contact_is(&home), RAIL_CONTACT_LANE_TAKEN);
	close(fd);
	contact_await(&home, RAIL_CONTACT_LANE_HELD);
	contact_describe(&home, &now);
	CU_ASSERT(rail_addr_same(&now.known, &first.addr));
	test_plane_close(&home);
}

/* --- tear-down while a contact lane is opened ---------------------------- */

/* Opens a plane whose rail has just begun to open its contact lane. */
static struct rail *contact_opening(struct test_plane *home)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct rail *rail;

	contact_open(home, "127.0.0.1");
	contact_still(home);
	rail = contact_rail(home);
	rail_fence_request(rail, rail->rx_lane.gen);
	while (!rail->contact.opening.under_way && tei_now_ns() < end)
		rail_fence_run(home->dp);
	CU_ASSERT(rail->contact.opening.under_way);
	return rail;
}

static void test_plane_with_opening_contact_lane_closes(void)
{
	struct test_plane home;

	contact_opening(&home);
	test_plane_close(&home);
}

static void test_rail_with_opening_contact_lane_is_removed(void)
{
	struct test_plane home;
	struct rail *rail;

	rail = contact_opening(&home);
	CU_ASSERT_EQUAL(tei_rail_dp_remove_transport(home.dp, "tcp", 0, NULL),
			0);
	CU_ASSERT_PTR_NULL(rail->contact.opening.lane.ep);
	CU_ASSERT_PTR_NULL(rail->fab.contact_domain);
	CU_ASSERT(!rail_contact_lane_held(rail));
	rail_contact_lane_stop(rail);
	CU_ASSERT_PTR_NULL(rail->contact.opening.lane.ep);
	test_plane_close(&home);
}

const struct tei_test_case rail_contact_lane_cases[] = {
	{ "contact_address_of_other_process_is_left_out",
	  test_contact_address_of_other_process_is_left_out },
	{ "plane_with_opening_contact_lane_closes",
	  test_plane_with_opening_contact_lane_closes },
	{ "rail_with_opening_contact_lane_is_removed",
	  test_rail_with_opening_contact_lane_is_removed },
	{ "contact_lane_at_used_address_is_retried",
	  test_contact_lane_at_used_address_is_retried },
	{ "contact_addresses_are_tried_in_turn",
	  test_contact_addresses_are_tried_in_turn },
	{ "write_to_contact_lane_fails", test_write_to_contact_lane_fails },
	{ "two_planes_that_move_together_reconnect",
	  test_two_planes_that_move_together_reconnect },
	{ "resolver_at_contact_address_finds_process",
	  test_resolver_at_contact_address_finds_process },
	{ "hello_at_contact_address_returns_rail_table",
	  test_hello_at_contact_address_returns_rail_table },
	{ NULL, NULL },
};
