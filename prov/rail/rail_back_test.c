/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The way back, between two data planes over loopback. from has the lower
 * incarnation: its connection is the one that is used both ways.
 */
#include <sched.h>
#include <string.h>

#include "prov/rail/rail_test.h"
#include "prov/rail/rail_wire.h"

struct back_rig {
	struct test_plane from, to;
	struct tei_rail_peer *of_from;	/* to, as from knows it */
	struct tei_rail_peer *of_to;
	struct rail *rail;		/* to's */
	uint32_t prefer;
};

static void back_open(struct back_rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	test_plane_init(&rig->from);
	test_plane_init(&rig->to);
	test_plane_open(&rig->from, "127.0.0.1");
	test_plane_open(&rig->to, "127.0.0.2");
	rig->of_from = test_plane_peer(&rig->from, &rig->to);
	rig->of_to = test_plane_peer(&rig->to, &rig->from);
	rig->rail = rail_at(rig->to.dp, 0);
}

static void back_close(struct back_rig *rig)
{
	tei_rail_peer_put(rig->of_from);
	tei_rail_peer_put(rig->of_to);
	test_plane_close(&rig->from);
	test_plane_close(&rig->to);
}

/* Until it is under way. */
static void back_send(struct back_rig *rig)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	uint8_t buf[TEI_RAIL_MESSAGE_HEAD];
	int ret;

	do {
		ret = tei_rail_send(rig->of_to, buf, sizeof(buf), true,
				    &rig->prefer);
		sched_yield();
	} while (ret == -FI_EAGAIN && tei_now_ns() < end);
	CU_ASSERT_EQUAL(ret, 0);
}

static bool back_arrives(uint32_t before)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;

	while (test_messages() == before && tei_now_ns() < end)
		sched_yield();
	return test_messages() > before;
}

static bool back_is_told(const struct rail_back *b)
{
	return b && __atomic_load_n(&b->good, __ATOMIC_RELAXED);
}

/* For half of the second that it is good without a word at least. */
static bool back_is_good(struct back_rig *rig)
{
	struct rail_back *b = __atomic_load_n(&rig->of_to->back[0],
					      __ATOMIC_ACQUIRE);

	return back_is_told(b) &&
	       tei_now_ns() < __atomic_load_n(&b->heard_ns, __ATOMIC_RELAXED) +
			      TEI_NS_PER_SEC / 2;
}

/* Messages, until there is a way back: those that go by it ask for none. */
static void back_find(struct back_rig *rig)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	uint32_t before;

	while (!back_is_good(rig) && tei_now_ns() < end) {
		before = test_messages();
		back_send(rig);
		CU_ASSERT(back_arrives(before));
	}
	CU_ASSERT_FATAL(back_is_good(rig));
}

static bool back_goes(struct back_rig *rig, enum rail_msg_type type)
{
	uint8_t buf[RAIL_MSG_MAX];
	struct rail_wire w;

	rail_msg_begin(rig->of_to, &w, buf, type, 0);
	if (type == RAIL_MSG_NOTIFY) {
		rail_wire_put(&w, rig->of_from->atomics.own_session, 8);
		rail_wire_put(&w, rig->of_to->atomics.own_session, 8);
		rail_wire_put(&w, 1, 8);
		rail_wire_put(&w, 1, 8);
		rail_wire_put(&w, 1, 8);
		rail_wire_put(&w, 4, 4);
		rail_wire_put(&w, 4, 4);
		rail_wire_put(&w, 0, 4);
		rail_wire_put_bytes(&w, "nametext", 8);
	}
	return !rail_back_send(rig->of_to, rig->rail, buf, rail_msg_end(&w));
}

/* Until it does: on a busy machine the way may have to be found again. Messages
 * of the user that had come by then. */
static uint32_t back_must_go(struct back_rig *rig, enum rail_msg_type type)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	uint32_t before;
	bool goes;

	do {
		/* its buffers come back when somebody looks */
		tei_rail_progress_all(rig->to.dp);
		back_find(rig);
		before = test_messages();
		goes = back_goes(rig, type);
	} while (!goes && tei_now_ns() < end);
	CU_ASSERT_FATAL(goes);
	return before;
}

/* One that comes so. */
static bool back_passes(struct back_rig *rig)
{
	return back_arrives(back_must_go(rig, RAIL_MSG_USER));
}

static void test_a_message_comes_by_our_own_connection(void)
{
	struct back_rig rig;
	uint32_t i;

	back_open(&rig);
	CU_ASSERT(!back_goes(&rig, RAIL_MSG_USER));
	for (i = 0; i < 1000; i++)
		CU_ASSERT_FATAL(back_passes(&rig));
	/* the other one has none */
	CU_ASSERT_PTR_NULL(rig.of_from->back[0]);
	back_close(&rig);
}

static void test_only_messages_of_the_user_come_back(void)
{
	struct back_rig rig;
	uint32_t notes;

	back_open(&rig);
	notes = test_notified();
	back_must_go(&rig, RAIL_MSG_NOTIFY);
	CU_ASSERT(back_passes(&rig));
	CU_ASSERT_EQUAL(test_notified(), notes);
	back_close(&rig);
}

static void test_a_way_that_loses_messages_is_found_again(void)
{
	bool goes = true;
	struct back_rig rig;
	int i;

	back_open(&rig);
	/* one that was asked for earlier may be told of just then */
	for (i = 0; goes && i < 10; i++) {
		back_find(&rig);
		tei_rail_no_way_back(rig.of_to);
		goes = back_goes(&rig, RAIL_MSG_USER);
	}
	CU_ASSERT(!goes);
	CU_ASSERT(back_passes(&rig));
	back_close(&rig);
}

/* Some are lost with it, which is their sender's to find out. */
static void test_messages_outlive_the_connection_of_the_way_back(void)
{
	struct rail_lane *lane;
	struct back_rig rig;
	struct rail_done done;
	uint32_t before, i;
	uint64_t end;

	back_open(&rig);
	for (i = 0; i < 5; i++) {
		back_find(&rig);
		lane = rail_msg_lane(rail_at(rig.from.dp, 0), 0);
		CU_ASSERT_PTR_NOT_NULL_FATAL(lane);
		rail_done_init(&done);
		tei_mutex_lock(&lane->lock);
		rail_cut(lane, &done);
		tei_mutex_unlock(&lane->lock);
		rail_done_run(rig.from.dp, &done);
		before = test_messages();
		end = tei_now_ns() + TEST_WAIT_NS;
		while (test_messages() < before + 10 && tei_now_ns() < end)
			back_send(&rig);
		CU_ASSERT(test_messages() >= before + 10);
	}
	back_close(&rig);
}

/* As from would tell it, with what is said replaced. */
static void back_tell(struct back_rig *rig, uint32_t gen, uint32_t protocol,
		      uint32_t format, size_t len)
{
	const struct tei_rail_addr *addr = &rail_at(rig->from.dp, 0)->own;
	uint8_t buf[256] = { 0 };
	struct rail_wire w = { .p = buf, .cap = sizeof(buf) };

	rail_wire_put(&w, gen, 4);
	rail_wire_put(&w, protocol, 4);
	rail_wire_put(&w, addr->protocol_version, 4);
	rail_wire_put(&w, format, 4);
	rail_wire_put_bytes(&w, addr->bytes, len);
	w.cap = w.pos;
	w.pos = 0;
	tei_mutex_lock(&rig->rail->target.lock);
	rail_sched_enter(rig->to.dp);
	rail_back_told(rig->of_to, &rig->rail->target, &w);
	rail_sched_leave(rig->to.dp);
	tei_mutex_unlock(&rig->rail->target.lock);
}

static void test_what_is_told_wrongly_is_no_way(void)
{
	const struct tei_rail_addr *addr;
	struct back_rig rig;
	uint32_t gen;

	back_open(&rig);
	addr = &rail_at(rig.from.dp, 0)->own;
	gen = rig.rail->target.gen;
	back_tell(&rig, gen + 1, addr->protocol, addr->addr_format, addr->len);
	back_tell(&rig, gen, addr->protocol + 1, addr->addr_format, addr->len);
	back_tell(&rig, gen, addr->protocol, FI_ADDR_STR, addr->len);
	back_tell(&rig, gen, addr->protocol, addr->addr_format, 2);
	back_tell(&rig, gen, addr->protocol, addr->addr_format, 0);
	CU_ASSERT_PTR_NULL(rig.of_to->back[0]);
	back_tell(&rig, gen, addr->protocol, addr->addr_format, addr->len);
	CU_ASSERT(back_is_told(rig.of_to->back[0]));
	back_close(&rig);
}

const struct tei_test_case rail_back_cases[] = {
	{ "a_message_comes_by_our_own_connection",
	  test_a_message_comes_by_our_own_connection },
	{ "a_way_that_loses_messages_is_found_again",
	  test_a_way_that_loses_messages_is_found_again },
	{ "messages_outlive_the_connection_of_the_way_back",
	  test_messages_outlive_the_connection_of_the_way_back },
	{ "only_messages_of_the_user_come_back",
	  test_only_messages_of_the_user_come_back },
	{ "what_is_told_wrongly_is_no_way",
	  test_what_is_told_wrongly_is_no_way },
	{ NULL, NULL },
};
