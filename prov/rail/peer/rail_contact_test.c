/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the first contact with a peer that has several contact addresses. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_hello_msg.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/settings.h"


#define CONTACT_LEN	64

/* --- an allocator that fails once ----------------------------------------- */

/* Atomic. The n-th next allocation fails if this is n; 0 means that none
 * fails. */
static int64_t contact_left;

void *__real_malloc(size_t len);
void *__real_calloc(size_t n, size_t len);
void *__real_realloc(void *p, size_t len);
void *__wrap_malloc(size_t len);
void *__wrap_calloc(size_t n, size_t len);
void *__wrap_realloc(void *p, size_t len);

static bool contact_fails(void)
{
	return __atomic_load_n(&contact_left, __ATOMIC_RELAXED) > 0 &&
	       __atomic_sub_fetch(&contact_left, 1, __ATOMIC_RELAXED) == 0;
}

void *__wrap_malloc(size_t len)
{
	return contact_fails() ? NULL : __real_malloc(len);
}

void *__wrap_calloc(size_t n, size_t len)
{
	return contact_fails() ? NULL : __real_calloc(n, len);
}

void *__wrap_realloc(void *p, size_t len)
{
	return contact_fails() ? NULL : __real_realloc(p, len);
}

/* --- addresses ------------------------------------------------------------ */

static struct tei_rail_addr contact_of(struct test_plane *p)
{
	struct tei_rail_desc desc;

	CU_ASSERT_EQUAL_FATAL(tei_rail_describe(p->dp, 0, &desc), 0);
	return desc.known;
}

/* Makes an address that refuses connections: binds a socket to a free port of
 * 127.0.0.3 without listening. Stores the address in *at. Returns the
 * socket. */
static int contact_nobody(struct tei_rail_addr *at)
{
	struct sockaddr_in *in = (void *)at->bytes;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*in);

	CU_ASSERT_FATAL(fd >= 0);
	in->sin_port = 0;
	CU_ASSERT_EQUAL_FATAL(inet_pton(AF_INET, "127.0.0.3", &in->sin_addr), 1);
	CU_ASSERT_EQUAL_FATAL(bind(fd, (void *)in, sizeof(*in)), 0);
	CU_ASSERT_EQUAL_FATAL(getsockname(fd, (void *)in, &len), 0);
	return fd;
}

struct contact_rig {
	struct test_plane from, to, other;
	char src[CONTACT_LEN], dst[CONTACT_LEN];
	struct tei_rail_addr real, others;
};

static void contact_plane(struct test_plane *p, const char *address, void *mem)
{
	struct tei_rail_mr *mr;
	struct tei_err err;

	test_plane_init(p);
	p->settings.failure.slice_timeout_s = 10;
	test_plane_open(p, address);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(p->dp, mem, CONTACT_LEN, "*",
					      TEI_RAIL_REMOTE, &err, &mr), 0);
}

static void contact_open(struct contact_rig *rig)
{
	static char mem[CONTACT_LEN];

	contact_plane(&rig->from, "127.0.0.1", rig->src);
	contact_plane(&rig->to, "127.0.0.2", rig->dst);
	contact_plane(&rig->other, "127.0.0.3", mem);
	rig->real = contact_of(&rig->to);
	rig->others = contact_of(&rig->other);
}

static void contact_close(struct contact_rig *rig)
{
	test_plane_close(&rig->from);
	test_plane_close(&rig->to);
	test_plane_close(&rig->other);
}

/* Writes to the process of rig->to, of which rig->from knows only the given
 * contact addresses. Returns how the task ended, and sets *peer; the caller
 * releases the peer. */
static enum tei_rail_end contact_write_to(struct contact_rig *rig,
					  const struct tei_rail_addr *at,
					  size_t n, struct tei_rail_peer **peer)
{
	test_fill(rig->src, sizeof(rig->src), 7);
	CU_ASSERT_EQUAL_FATAL(tei_rail_peer_get(rig->from.dp, "to",
						rig->to.dp->incarnation, at, n,
						NULL, peer), 0);
	return test_run(rig->from.dp, *peer, false, rig->src, rig->dst,
			sizeof(rig->src));
}

static enum tei_rail_end contact_write(struct contact_rig *rig,
				       const struct tei_rail_addr *at, size_t n)
{
	struct tei_rail_peer *peer = NULL;
	enum tei_rail_end end = contact_write_to(rig, at, n, &peer);

	tei_rail_peer_put(peer);
	return end;
}

static void test_contact_without_listener_is_skipped(void)
{
	struct tei_rail_addr at[2];
	struct contact_rig rig;
	int fd;

	contact_open(&rig);
	at[0] = rig.real;
	fd = contact_nobody(&at[0]);
	at[1] = rig.real;
	CU_ASSERT_EQUAL(contact_write(&rig, at, 2), TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(rig.src, rig.dst, sizeof(rig.src)), 0);
	close(fd);
	contact_close(&rig);
}

static void test_more_contacts_than_a_window_are_all_tried(void)
{
	struct tei_rail_addr at[12];
	struct contact_rig rig;
	int fd[11];
	size_t i;

	contact_open(&rig);
	for (i = 0; i < 11; i++) {
		at[i] = rig.real;
		fd[i] = contact_nobody(&at[i]);
	}
	at[11] = rig.real;
	CU_ASSERT_EQUAL(contact_write(&rig, at, 12), TEI_RAIL_END_COMPLETED);
	for (i = 0; i < 11; i++)
		close(fd[i]);
	contact_close(&rig);
}

static void test_contact_of_another_process_is_no_answer(void)
{
	struct tei_rail_addr at[2];
	struct contact_rig rig;

	contact_open(&rig);
	at[0] = rig.others;
	at[1] = rig.real;
	CU_ASSERT_EQUAL(contact_write(&rig, at, 2), TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(rig.src, rig.dst, sizeof(rig.src)), 0);
	contact_close(&rig);
}

static void test_peer_refused_at_all_contacts_is_gone(void)
{
	struct tei_rail_addr at[2];
	struct test_plane more;
	struct tei_rail_peer *peer = NULL;
	struct contact_rig rig;
	char mem[CONTACT_LEN];

	contact_open(&rig);
	contact_plane(&more, "127.0.0.4", mem);
	at[0] = rig.others;
	at[1] = contact_of(&more);
	CU_ASSERT_EQUAL(contact_write_to(&rig, at, 2, &peer),
			TEI_RAIL_END_FAILED);
	/* this check comes before the peer is released, because a peer that is
	 * gone and unused may be freed at once */
	CU_ASSERT(tei_rail_gone(rig.from.dp, rig.to.dp->incarnation));
	tei_rail_peer_put(peer);
	test_plane_close(&more);
	contact_close(&rig);
}

static bool contact_known(const struct contact_rig *rig)
{
	bool known;

	rail_sched_enter(rig->to.dp);
	known = rail_peer_find(rig->to.dp, rig->from.dp->incarnation);
	rail_sched_leave(rig->to.dp);
	return known;
}

/* Tests that the second contact address is still tried after the first one was
 * refused. The process at the first address refuses the hello before the second
 * address is connected. The time of the test stands still, so that the window
 * of the group does not end. */
static void test_refused_contact_does_not_hide_the_next_one(void)
{
	uint64_t now = tei_now_ns(), end = now + 20 * TEI_NS_PER_SEC;
	struct tei_rail_addr at[2];
	uint8_t buf[RAIL_MSG_MAX];
	struct tei_rail_peer *p;
	struct contact_rig rig;

	contact_open(&rig);
	test_plane_still(&rig.from);
	test_plane_use(&rig.from);
	at[0] = rig.others;
	at[1] = rig.real;
	CU_ASSERT_EQUAL_FATAL(tei_rail_peer_get(rig.from.dp, "to",
						rig.to.dp->incarnation, at, 2,
						NULL, &p), 0);
	rail_sched_enter(rig.from.dp);
	p->addrs.contact.pairs = 2;
	p->addrs.contact.sent = 1;
	p->addrs.contact.until_ns = now + 60 * TEI_NS_PER_SEC;
	CU_ASSERT(rail_contact_refused(p, 1));
	rail_sched_leave(rig.from.dp);
	while (!contact_known(&rig) && tei_now_ns() < end) {
		rail_contact_hello(p, buf, rail_msg_hello(p, true, buf), now, 0);
		rail_lane_run(&rail_at(rig.from.dp, 0)->tx_lanes[0]);
	}
	CU_ASSERT(contact_known(&rig));
	tei_rail_peer_put(p);
	contact_close(&rig);
}

/* Creates a peer with two contact addresses. The test acts as the progress
 * thread of rig->from, which has no open tx lane. */
static struct tei_rail_peer *contact_peer(struct contact_rig *rig)
{
	struct tei_rail_addr at[2];
	struct tei_rail_peer *p;

	contact_open(rig);
	test_plane_still(&rig->from);
	__atomic_store_n(&rig->from.dp->thread.stop, false, __ATOMIC_RELEASE);
	at[0] = rig->others;
	at[1] = rig->real;
	CU_ASSERT_EQUAL_FATAL(tei_rail_peer_get(rig->from.dp, "to",
						rig->to.dp->incarnation, at, 2,
						NULL, &p), 0);
	return p;
}

static void contact_peer_close(struct contact_rig *rig, struct tei_rail_peer *p)
{
	__atomic_store_n(&rig->from.dp->thread.stop, true, __ATOMIC_RELEASE);
	tei_rail_peer_put(p);
	contact_close(rig);
}

static void contact_say_hello(struct tei_rail_peer *p, uint64_t now)
{
	uint8_t buf[RAIL_MSG_MAX];

	CU_ASSERT_EQUAL(rail_contact_hello(p, buf, rail_msg_hello(p, true, buf),
					   now, 0), -FI_EAGAIN);
}

static void test_time_of_a_group_begins_when_its_lane_is_open(void)
{
	uint64_t now = tei_now_ns(), end = now + TEST_WAIT_NS;
	struct contact_rig rig;
	struct tei_rail_peer *p = contact_peer(&rig);
	struct rail *rail = rail_at(rig.from.dp, 0);
	uint32_t i;

	for (i = 0; i < 10; i++)
		contact_say_hello(p, now + i * 60 * TEI_NS_PER_MS);
	CU_ASSERT_EQUAL(p->addrs.contact.rounds, 0);
	/* the attempts are frequent while the lane is being opened */
	CU_ASSERT_EQUAL(p->life.again_ns, 0);
	now += i * 60 * TEI_NS_PER_MS;
	while (!rail_lane_active(&rail->tx_lanes[0]) && tei_now_ns() < end)
		rail_reopen_collect(rail);
	contact_say_hello(p, now);
	CU_ASSERT_EQUAL(p->life.again_ns, now);
	contact_say_hello(p, now + TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(p->addrs.contact.rounds, 1);
	contact_peer_close(&rig, p);
}

static void test_hello_over_a_lost_rail_becomes_rare(void)
{
	uint64_t now = tei_now_ns();
	struct contact_rig rig;
	struct tei_rail_peer *p = contact_peer(&rig);
	struct rail *rail = rail_at(rig.from.dp, 0);

	/* the first opening of the lane has failed */
	rail->next_tx[0].use = RAIL_LANE_USED;
	rail->link.lost = true;
	contact_say_hello(p, now);
	CU_ASSERT_EQUAL(p->life.again_ns, now);
	contact_peer_close(&rig, p);
}

/* --- memory --------------------------------------------------------------- */

/* Opens a plane and creates a peer while the n-th allocation fails. Returns
 * false if there were fewer than n allocations. */
static bool contact_starved(struct contact_rig *rig,
			    const struct tei_rail_addr *at, int64_t n)
{
	struct tei_rail_peer *peer = NULL;
	enum tei_rail_end end;
	struct tei_err err;
	bool failed;
	int ret;

	contact_plane(&rig->from, "127.0.0.1", rig->src);
	__atomic_store_n(&contact_left, n, __ATOMIC_RELAXED);
	ret = tei_rail_peer_get(rig->from.dp, "to", rig->to.dp->incarnation, at,
				2, &err, &peer);
	if (!ret) {
		end = test_run(rig->from.dp, peer, false, rig->src, rig->dst,
			       CONTACT_LEN);
		CU_ASSERT(end == TEI_RAIL_END_COMPLETED ||
			  end == TEI_RAIL_END_FAILED);
		if (end != TEI_RAIL_END_COMPLETED)
			fprintf(stderr, "# allocation %d: end %d\n", (int)n,
				(int)end);
	}
	failed = !__atomic_load_n(&contact_left, __ATOMIC_RELAXED);
	__atomic_store_n(&contact_left, 0, __ATOMIC_RELAXED);
	if (ret) {
		CU_ASSERT_EQUAL(ret, TEI_ERR_MEMORY);
		CU_ASSERT_EQUAL_FATAL(tei_rail_peer_get(
			rig->from.dp, "to", rig->to.dp->incarnation, at, 2, &err,
			&peer), 0);
	}
	/* the same peer object works as soon as memory is available again */
	CU_ASSERT_EQUAL(test_run(rig->from.dp, peer, false, rig->src, rig->dst,
				 CONTACT_LEN), TEI_RAIL_END_COMPLETED);
	tei_rail_peer_put(peer);
	test_plane_close(&rig->from);
	return failed;
}

static void test_any_failed_allocation_leaves_an_error_or_a_working_peer(void)
{
	struct tei_rail_addr at[2];
	struct contact_rig rig;
	int64_t n = 1;
	int fd;

	contact_plane(&rig.to, "127.0.0.2", rig.dst);
	at[0] = contact_of(&rig.to);
	at[1] = at[0];
	fd = contact_nobody(&at[0]);
	while (n < 400 && contact_starved(&rig, at, n))
		n++;
	CU_ASSERT(n > 4);
	CU_ASSERT(n < 400);
	close(fd);
	test_plane_close(&rig.to);
}

const struct tei_test_case rail_contact_cases[] = {
	{ "contact_without_listener_is_skipped",
	  test_contact_without_listener_is_skipped },
	{ "more_contacts_than_a_window_are_all_tried",
	  test_more_contacts_than_a_window_are_all_tried },
	{ "contact_of_another_process_is_no_answer",
	  test_contact_of_another_process_is_no_answer },
	{ "peer_refused_at_all_contacts_is_gone",
	  test_peer_refused_at_all_contacts_is_gone },
	{ "refused_contact_does_not_hide_the_next_one",
	  test_refused_contact_does_not_hide_the_next_one },
	{ "time_of_a_group_begins_when_its_lane_is_open",
	  test_time_of_a_group_begins_when_its_lane_is_open },
	{ "hello_over_a_lost_rail_becomes_rare",
	  test_hello_over_a_lost_rail_becomes_rare },
	{ "any_failed_allocation_leaves_an_error_or_a_working_peer",
	  test_any_failed_allocation_leaves_an_error_or_a_working_peer },
	{ NULL, NULL },
};
