/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of reverse-path sends between two data planes over loopback. Plane
 * "from" has the lower incarnation, so the messages of both directions use its
 * connection. */

#include <rdma/fi_errno.h>
#include <sched.h>
#include <string.h>

#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_reverse.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/lock.h"

struct reverse_rig {
	struct test_plane from, to;
	struct tei_rail_peer *of_from; /* the peer object in plane "from" that
					* represents plane "to" */
	struct tei_rail_peer *of_to;
	struct rail *rail;		/* the rail of plane "to" */
	uint32_t prefer;
};

static void reverse_open(struct reverse_rig *rig)
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

static void reverse_close(struct reverse_rig *rig)
{
	tei_rail_peer_put(rig->of_from);
	tei_rail_peer_put(rig->of_to);
	test_plane_close(&rig->from);
	test_plane_close(&rig->to);
}

/* Sends a user message from plane "to", and retries until it is posted. */
static void reverse_send(struct reverse_rig *rig)
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

static bool reverse_arrives(uint32_t before)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;

	while (test_messages() == before && tei_now_ns() < end)
		sched_yield();
	return test_messages() > before;
}

static bool reverse_is_told(const struct rail_reverse *b)
{
	return b && __atomic_load_n(&b->good, __ATOMIC_RELAXED);
}

/* Returns true if the reverse path stays valid for at least half a second
 * without another message. */
static bool reverse_is_good(struct reverse_rig *rig)
{
	struct rail_reverse *b =
		__atomic_load_n(&rig->of_to->reverse.path[0], __ATOMIC_ACQUIRE);

	return reverse_is_told(b) &&
	       tei_now_ns() <
		       __atomic_load_n(&b->received_ns, __ATOMIC_RELAXED) +
			       TEI_NS_PER_SEC / 2;
}

/* Sends user messages until the reverse path is valid. Messages over a valid
 * reverse path cause no REVERSE, so normal sends are used. */
static void reverse_find(struct reverse_rig *rig)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	uint32_t before;

	while (!reverse_is_good(rig) && tei_now_ns() < end) {
		before = test_messages();
		reverse_send(rig);
		CU_ASSERT(reverse_arrives(before));
	}
	CU_ASSERT_FATAL(reverse_is_good(rig));
}

static bool reverse_goes(struct reverse_rig *rig, enum rail_msg_type type)
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
	return !rail_reverse_send(rig->of_to, rig->rail, buf, rail_msg_end(&w));
}

/* Sends a message of the given type over the reverse path, and retries until it
 * is posted. Retries are necessary because on a busy machine the path may have
 * become invalid. Returns the number of user messages that had arrived before
 * the successful attempt. */
static uint32_t reverse_must_go(struct reverse_rig *rig,
				enum rail_msg_type type)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	uint32_t before;
	bool goes;

	do {
		/* polling makes send buffers free again */
		tei_rail_progress_all(rig->to.dp);
		reverse_find(rig);
		before = test_messages();
		goes = reverse_goes(rig, type);
	} while (!goes && tei_now_ns() < end);
	CU_ASSERT_FATAL(goes);
	return before;
}

/* Returns true if a user message that is sent over the reverse path arrives. */
static bool reverse_passes(struct reverse_rig *rig)
{
	return reverse_arrives(reverse_must_go(rig, RAIL_MSG_USER));
}

static void test_reverse_send_arrives_over_own_connection(void)
{
	struct reverse_rig rig;
	uint32_t i;

	reverse_open(&rig);
	CU_ASSERT(!reverse_goes(&rig, RAIL_MSG_USER));
	for (i = 0; i < 1000; i++)
		CU_ASSERT_FATAL(reverse_passes(&rig));
	/* the plane with the lower incarnation has no reverse path itself */
	CU_ASSERT_PTR_NULL(rig.of_from->reverse.path[0]);
	reverse_close(&rig);
}

static void test_notification_over_reverse_path_is_dropped(void)
{
	struct reverse_rig rig;
	uint32_t notes;

	reverse_open(&rig);
	notes = test_notified();
	reverse_must_go(&rig, RAIL_MSG_NOTIFY);
	CU_ASSERT(reverse_passes(&rig));
	CU_ASSERT_EQUAL(test_notified(), notes);
	reverse_close(&rig);
}

static void test_reverse_path_after_loss_is_established_again(void)
{
	bool goes = true;
	struct reverse_rig rig;
	int i;

	reverse_open(&rig);
	/* repeated, because a REVERSE that is in transit may make the path
	 * valid again */
	for (i = 0; goes && i < 10; i++) {
		reverse_find(&rig);
		tei_rail_no_reverse_path(rig.of_to);
		goes = reverse_goes(&rig, RAIL_MSG_USER);
	}
	CU_ASSERT(!goes);
	CU_ASSERT(reverse_passes(&rig));
	reverse_close(&rig);
}

/* Tests the loss of the connection: the messages in transit are lost, and their
 * sender must notice this. */
static void test_messages_after_cut_reverse_connection_arrive(void)
{
	struct rail_lane *lane;
	struct reverse_rig rig;
	struct rail_done done;
	uint32_t before, i;
	uint64_t end;

	reverse_open(&rig);
	for (i = 0; i < 5; i++) {
		reverse_find(&rig);
		lane = rail_msg_lane(rail_at(rig.from.dp, 0), 0);
		CU_ASSERT_PTR_NOT_NULL_FATAL(lane);
		rail_done_init(&done);
		tei_mutex_lock(&lane->lock);
		rail_disconnect(lane, &done);
		tei_mutex_unlock(&lane->lock);
		rail_done_run(rig.from.dp, &done);
		before = test_messages();
		end = tei_now_ns() + TEST_WAIT_NS;
		while (test_messages() < before + 10 && tei_now_ns() < end)
			reverse_send(&rig);
		CU_ASSERT(test_messages() >= before + 10);
	}
	reverse_close(&rig);
}

/* Delivers a REVERSE with the given values to plane "to", as if plane "from"
 * had sent it. */
static void reverse_notify(struct reverse_rig *rig, uint32_t gen,
			   uint32_t protocol, uint32_t format, size_t len)
{
	const struct tei_rail_addr *addr = &rail_at(rig->from.dp, 0)->nic.own;
	uint8_t buf[256] = { 0 };
	struct rail_wire w = { .p = buf, .cap = sizeof(buf) };

	rail_wire_put(&w, gen, 4);
	rail_wire_put(&w, protocol, 4);
	rail_wire_put(&w, addr->protocol_version, 4);
	rail_wire_put(&w, format, 4);
	rail_wire_put_bytes(&w, addr->bytes, len);
	w.cap = w.pos;
	w.pos = 0;
	tei_mutex_lock(&rig->rail->rx_lane.lock);
	rail_sched_enter(rig->to.dp);
	rail_reverse_notified(rig->of_to, &rig->rail->rx_lane, &w);
	rail_sched_leave(rig->to.dp);
	tei_mutex_unlock(&rig->rail->rx_lane.lock);
}

static void test_back_message_with_wrong_values_is_ignored(void)
{
	const struct tei_rail_addr *addr;
	struct reverse_rig rig;
	uint32_t gen;

	reverse_open(&rig);
	addr = &rail_at(rig.from.dp, 0)->nic.own;
	gen = rig.rail->rx_lane.gen;
	reverse_notify(&rig, gen + 1, addr->protocol, addr->addr_format,
		       addr->len);
	reverse_notify(&rig, gen, addr->protocol + 1, addr->addr_format,
		       addr->len);
	reverse_notify(&rig, gen, addr->protocol, FI_ADDR_STR, addr->len);
	reverse_notify(&rig, gen, addr->protocol, addr->addr_format, 2);
	reverse_notify(&rig, gen, addr->protocol, addr->addr_format, 0);
	CU_ASSERT_PTR_NULL(rig.of_to->reverse.path[0]);
	reverse_notify(&rig, gen, addr->protocol, addr->addr_format, addr->len);
	CU_ASSERT(reverse_is_told(rig.of_to->reverse.path[0]));
	reverse_close(&rig);
}

const struct tei_test_case rail_reverse_cases[] = {
	{ "reverse_send_arrives_over_own_connection",
	  test_reverse_send_arrives_over_own_connection },
	{ "reverse_path_after_loss_is_established_again",
	  test_reverse_path_after_loss_is_established_again },
	{ "messages_after_cut_reverse_connection_arrive",
	  test_messages_after_cut_reverse_connection_arrive },
	{ "notification_over_reverse_path_is_dropped",
	  test_notification_over_reverse_path_is_dropped },
	{ "back_message_with_wrong_values_is_ignored",
	  test_back_message_with_wrong_values_is_ignored },
	{ NULL, NULL },
};
