/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of notifications between two data planes whose progress threads are
 * stopped. The test calls the state machines and intercepts their messages
 * (__wrap_rail_msg_send). It delivers these messages late, twice, in another
 * order, or not at all.
 */

#include <rdma/fi_errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_atomic_ctl.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_notify.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/settings.h"


#define NOTE_FLIGHT	512		/* largest number of intercepted
					 * messages that are not delivered
					 * yet */

/* --- the wire ------------------------------------------------------------ */

struct note_flight {
	const struct tei_rail_dp *from;
	size_t len;
	uint8_t *buf;
};

static struct {
	bool on;			/* atomic: true while messages are
					 * intercepted */
	uint32_t n;
	struct note_flight msg[NOTE_FLIGHT];
} note_wire;

int __real_rail_msg_send(struct tei_rail_peer *peer, const void *msg,
			 size_t len, uint32_t attempt);
int __wrap_rail_msg_send(struct tei_rail_peer *peer, const void *msg,
			 size_t len, uint32_t attempt);

int __wrap_rail_msg_send(struct tei_rail_peer *peer, const void *msg,
			 size_t len, uint32_t attempt)
{
	struct note_flight *f;

	if (!__atomic_load_n(&note_wire.on, __ATOMIC_RELAXED))
		return __real_rail_msg_send(peer, msg, len, attempt);
	CU_ASSERT_FATAL(len && len <= RAIL_MSG_MAX);
	if (note_wire.n == NOTE_FLIGHT)
		return -FI_EAGAIN;
	f = &note_wire.msg[note_wire.n++];
	f->from = peer->dp;
	f->len = len;
	/* use a buffer of exactly the message's size, so that sanitizers notice
	 * reads beyond its end */
	f->buf = malloc(len);
	CU_ASSERT_PTR_NOT_NULL_FATAL(f->buf);
	memcpy(f->buf, msg, len);
	return 0;
}

/* --- two planes ---------------------------------------------------------- */

struct note_rig {
	struct test_plane a, b;		/* plane a sends notifications; plane b
					 * receives and holds them */
	struct tei_rail_peer *to, *from; /* to: the peer object in plane a that
					  * stands for b; from: the peer object
					  * in plane b that stands for a */
	uint8_t buf[RAIL_MSG_MAX];
};

static struct tei_rail_peer *note_peer(struct test_plane *of, uint64_t inc)
{
	struct tei_rail_peer *p;

	rail_sched_enter(of->dp);
	p = rail_peer_new(of->dp, "peer", inc);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	p->refs = 1;
	p->state = RAIL_PEER_READY;
	p->hello.known_us = true;
	rail_sched_leave(of->dp);
	return p;
}

/* Exchanges the session numbers, as two hellos do. */
static void note_meet(struct tei_rail_peer *one, struct tei_rail_peer *two)
{
	struct rail_done done;

	rail_done_init(&done);
	rail_sched_enter(one->dp);
	rail_atomic_session(one, two->atomics.own_session, &done);
	rail_sched_leave(one->dp);
	rail_sched_enter(two->dp);
	rail_atomic_session(two, one->atomics.own_session, &done);
	rail_sched_leave(two->dp);
}

static void note_open(struct note_rig *rig, uint32_t notes, uint64_t bytes)
{
	test_plane_init(&rig->a);
	test_plane_init(&rig->b);
	rig->b.settings.limits.max_notifies = notes;
	rig->b.settings.limits.notify_bytes = bytes;
	rig->b.hold = true;
	test_plane_open(&rig->a, NULL);
	test_plane_open(&rig->b, NULL);
	test_plane_still(&rig->a);
	test_plane_still(&rig->b);
	rig->to = note_peer(&rig->a, rig->b.dp->incarnation);
	rig->from = note_peer(&rig->b, rig->a.dp->incarnation);
	note_meet(rig->to, rig->from);
	CU_ASSERT_EQUAL_FATAL(note_wire.n, 0);
	note_wire.on = true;
}

static void note_clear(void)
{
	while (note_wire.n)
		free(note_wire.msg[--note_wire.n].buf);
}

static void note_close(struct note_rig *rig)
{
	note_clear();
	note_wire.on = false;
	test_plane_close(&rig->a);
	test_plane_close(&rig->b);
}

/* Checks that the notifications that b holds are within b's limits. */
static void note_check_limit(const struct note_rig *rig)
{
	const struct rail_notify_budget *held = &rig->b.dp->notes;

	CU_ASSERT(held->bytes <= rig->b.settings.limits.notify_bytes);
	CU_ASSERT(held->notes <= rig->b.settings.limits.max_notifies);
}

static void note_handle(struct tei_rail_peer *at, uint8_t *msg, size_t len)
{
	struct rail_wire w = { .p = msg, .pos = RAIL_WIRE_HEADER, .cap = len };
	uint16_t flags = (uint16_t)(msg[6] | msg[7] << 8);
	struct rail_done done;

	rail_done_init(&done);
	rail_sched_enter(at->dp);
	if (msg[5] == RAIL_MSG_NOTIFY)
		rail_notify_received(at, flags, &w, &done);
	else if (msg[5] == RAIL_MSG_NOTE_ACK)
		rail_notify_answered(at, &w);
	rail_sched_leave(at->dp);
	rail_done_run(at->dp, &done);
}

/* Delivers message i. twice: also keeps it, to be delivered again. */
static void note_arrive(struct note_rig *rig, uint32_t i, bool twice)
{
	struct note_flight f = note_wire.msg[i];

	if (!twice)
		memmove(&note_wire.msg[i], &note_wire.msg[i + 1],
			(--note_wire.n - i) * sizeof(f));
	note_handle(f.from == rig->a.dp ? rig->from : rig->to, f.buf,
		    f.len);
	if (!twice)
		free(f.buf);
	note_check_limit(rig);
}

static void note_lose(uint32_t i)
{
	free(note_wire.msg[i].buf);
	memmove(&note_wire.msg[i], &note_wire.msg[i + 1],
		(--note_wire.n - i) * sizeof(note_wire.msg[0]));
}

/* Lets both planes send the messages that are due. */
static void notify_send(struct note_rig *rig, uint64_t now)
{
	rail_ctl_notes(rig->to, now, rig->buf);
	rail_ctl_note_answer(rig->from, now, rig->buf);
}

/* Does what notify_send does, at the time at which plane a repeats its
 * unanswered messages. */
static void notify_send_later(struct note_rig *rig)
{
	uint64_t next = rig->to->note_out.next_ns;

	notify_send(rig, next ? next : tei_now_ns());
}

/* Lets both planes send, and delivers all messages in order, until no message
 * is left. */
static void note_settle(struct note_rig *rig)
{
	do {
		notify_send(rig, tei_now_ns());
		while (note_wire.n)
			note_arrive(rig, 0, false);
		notify_send(rig, tei_now_ns());
	} while (note_wire.n);
}

/* --- notifications ------------------------------------------------------- */

/* Fills text with bytes other than 0 that depend on "number". */
static void note_fill(char *text, size_t len, uint64_t number)
{
	uint64_t state = number * 2654435761u + 1;
	size_t i;

	for (i = 0; i < len; i++)
		text[i] = (char)(1 + test_random(&state) % 255);
	text[len] = '\0';
}

static void note_queue(struct note_rig *rig, uint64_t number, size_t name_len,
		       size_t msg_len)
{
	char *name = malloc(name_len + 1), *msg = malloc(msg_len + 1);
	struct tei_rail_outgoing *out;
	struct tei_err err;

	CU_ASSERT_FATAL(name && msg);
	note_fill(name, name_len, number);
	note_fill(msg, msg_len, ~number);
	CU_ASSERT_EQUAL_FATAL(tei_rail_outgoing_new(rig->to, name, msg, &err,
						    &out), 0);
	tei_rail_outgoing_queue(out);
	free(name);
	free(msg);
}

/* Fetches and releases the next notification that b holds. Returns true if the
 * notification has the given number and strings of the given lengths. */
static bool note_next_is(struct note_rig *rig, uint64_t number, size_t name_len,
			 size_t msg_len)
{
	struct tei_rail_notification *note = test_plane_note(&rig->b);
	char *name = malloc(name_len + 1), *msg = malloc(msg_len + 1);
	bool good;

	CU_ASSERT_FATAL(name && msg);
	note_fill(name, name_len, number);
	note_fill(msg, msg_len, ~number);
	good = note && !strcmp(note->name, name) && !strcmp(note->msg, msg);
	free(name);
	free(msg);
	if (note)
		test_plane_release(&rig->b, note);
	return good;
}

static bool note_none(struct note_rig *rig)
{
	return tei_list_empty(&rig->b.notes);
}

/* Returns true if neither plane holds a notification. */
static bool note_idle(const struct note_rig *rig)
{
	return !rig->to->note_out.n && !rig->b.dp->notes.bytes &&
	       !rig->b.dp->notes.notes && !rig->from->note_in.part;
}

/* --- a caller that waits ------------------------------------------------- */

struct note_caller {
	struct note_rig *rig;
	pthread_t thread;
	size_t len;
	uint64_t timeout_ns;
	int ret;
	struct tei_err err;
	bool back;			/* atomic: true when the call has
					 * returned */
};

static const struct tei_rail_note note_ab = { "a", "b", 1, false };

static void *note_call(void *arg)
{
	struct note_caller *c = arg;
	char *msg = malloc(c->len + 1);

	memset(msg, 'm', c->len);
	msg[c->len] = '\0';
	c->ret = tei_rail_notify(
		c->rig->to,
		&(struct tei_rail_note){ "called", msg, c->len, false },
		c->timeout_ns, &c->err);
	free(msg);
	__atomic_store_n(&c->back, true, __ATOMIC_RELEASE);
	return NULL;
}

static bool note_is_back(const struct note_caller *c)
{
	return __atomic_load_n(&c->back, __ATOMIC_ACQUIRE);
}

static uint32_t note_queued(struct note_rig *rig)
{
	uint32_t n;

	rail_sched_enter(rig->a.dp);
	n = rig->to->note_out.n;
	rail_sched_leave(rig->a.dp);
	return n;
}

/* Starts a thread that sends a notification and waits. Returns when the
 * notification is queued. */
static void note_begin(struct note_caller *c, struct note_rig *rig, size_t len,
		       uint64_t timeout_ns)
{
	uint32_t before = note_queued(rig);

	memset(c, 0, sizeof(*c));
	c->rig = rig;
	c->len = len;
	c->timeout_ns = timeout_ns;
	CU_ASSERT_EQUAL_FATAL(pthread_create(&c->thread, NULL, note_call, c), 0);
	while (note_queued(rig) == before && !note_is_back(c))
		sched_yield();
}

static int note_end(struct note_caller *c)
{
	pthread_join(c->thread, NULL);
	return c->ret;
}

/* --- cases: a notification arrives as a whole, and once ------------------ */

static void test_note_of_1_mib_arrives_whole(void)
{
	struct note_rig rig;

	note_open(&rig, 8, 8 << 20);
	note_queue(&rig, 1, 100, TEI_RAIL_NOTIFY_MAX - 100);
	note_queue(&rig, 2, TEI_RAIL_NOTIFY_MAX, 0);
	note_queue(&rig, 3, 0, 0);
	/* the last byte of the name is the last byte of a fragment */
	note_queue(&rig, 4, RAIL_NOTIFY_FRAGMENT, RAIL_NOTIFY_FRAGMENT);
	note_settle(&rig);
	CU_ASSERT(note_next_is(&rig, 1, 100, TEI_RAIL_NOTIFY_MAX - 100));
	CU_ASSERT(note_next_is(&rig, 2, TEI_RAIL_NOTIFY_MAX, 0));
	CU_ASSERT(note_next_is(&rig, 3, 0, 0));
	CU_ASSERT(note_next_is(&rig, 4, RAIL_NOTIFY_FRAGMENT,
			       RAIL_NOTIFY_FRAGMENT));
	CU_ASSERT(note_idle(&rig));
	note_close(&rig);
}

static void test_note_above_1_mib_is_refused(void)
{
	char *big = malloc(TEI_RAIL_NOTIFY_MAX + 2);
	struct tei_rail_outgoing *out;
	struct note_rig rig;
	struct tei_err err;

	CU_ASSERT_PTR_NOT_NULL_FATAL(big);
	note_open(&rig, 8, 8 << 20);
	note_fill(big, TEI_RAIL_NOTIFY_MAX + 1, 1);
	CU_ASSERT_EQUAL(tei_rail_outgoing_new(rig.to, big, "", &err, &out),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_rail_outgoing_new(rig.to, "x", big + 1, &err,
					      &out), TEI_ERR_INVALID);
	note_close(&rig);
	free(big);
}

struct note_chaos {
	uint64_t state;
	uint64_t queued, fetched;
	size_t name[64], msg[64];
};

static void note_chaos_queue(struct note_rig *rig, struct note_chaos *c)
{
	uint64_t i = c->queued % 64;

	if (c->queued - c->fetched == 64)
		return;
	c->name[i] = test_random(&c->state) % 40;
	c->msg[i] = test_random(&c->state) %
		    (test_random(&c->state) % 4 ? 200 : 100000);
	note_queue(rig, c->queued++, c->name[i], c->msg[i]);
}

static void note_chaos_fetch(struct note_rig *rig, struct note_chaos *c)
{
	uint64_t i = c->fetched % 64;

	if (note_none(rig))
		return;
	CU_ASSERT(note_next_is(rig, c->fetched, c->name[i], c->msg[i]));
	c->fetched++;
}

/* Chooses one of the intercepted messages at random, and drops, duplicates,
 * delays or delivers it. */
static void note_chaos_step(struct note_rig *rig, struct note_chaos *c)
{
	uint64_t dice = test_random(&c->state) % 16;
	uint32_t i;

	if (!note_wire.n) {
		if (dice < 4)
			notify_send_later(rig);
		else
			notify_send(rig, tei_now_ns());
		return;
	}
	i = dice < 8 ? 0 : (uint32_t)(test_random(&c->state) % note_wire.n);
	if (dice == 9 || dice == 10)
		note_lose(i);
	else
		note_arrive(rig, i, dice == 11);
	if (dice > 11)
		notify_send(rig, tei_now_ns());
}

/* Makes plane b free its peer object for a and create a new one. */
static void note_forget(struct note_rig *rig)
{
	struct tei_rail_dp *dp = rig->b.dp;
	struct rail_done done;

	rail_done_init(&done);
	rail_sched_enter(dp);
	rail_peer_forget(rig->from, "for the test", &done);
	rig->from->refs = 0;
	CU_ASSERT_FATAL(rail_peer_maybe_free(rig->from));
	rail_sched_leave(dp);
	rig->from = note_peer(&rig->b, rig->a.dp->incarnation);
	note_meet(rig->to, rig->from);
}

/* Tests that every notification arrives once, in order and unchanged, while
 * messages are lost, duplicated and reordered, and the receiver is full at
 * times. */
static void note_chaos(bool forget)
{
	struct note_chaos c = { .state = tei_now_ns() | 1 };
	uint64_t want = 1000, steps = 0;
	struct note_rig rig;

	printf("# notifications: seed %llu\n", (unsigned long long)c.state);
	note_open(&rig, 5, 150000);
	while (c.fetched < want && steps++ < 10000000) {
		if (c.queued < want && !(test_random(&c.state) % 8))
			note_chaos_queue(&rig, &c);
		if (!(test_random(&c.state) % 32))
			note_chaos_fetch(&rig, &c);
		if (forget && !(test_random(&c.state) % 2048))
			note_forget(&rig);
		note_chaos_step(&rig, &c);
	}
	CU_ASSERT_EQUAL(c.fetched, want);
	note_settle(&rig);
	CU_ASSERT(note_none(&rig));
	note_close(&rig);
}

static void test_note_arrives_once_over_a_lossy_wire(void)
{
	note_chaos(false);
}

static void test_note_arrives_once_if_the_receiver_forgets_the_sender(void)
{
	note_chaos(true);
}

/* --- cases: limits ------------------------------------------------------- */

static void test_full_receiver_makes_senders_wait(void)
{
	struct note_rig rig;
	uint64_t i, got = 0;

	note_open(&rig, 4, 50000);
	for (i = 0; i < 20; i++)
		note_queue(&rig, i, 4, i % 3 ? 30000 : 10);
	note_settle(&rig);
	CU_ASSERT(rig.b.dp->notes.notes < 20);
	CU_ASSERT(rig.to->note_out.full);
	/* the sender's query whether there is room contains no bytes of the
	 * notification */
	notify_send_later(&rig);
	CU_ASSERT_EQUAL_FATAL(note_wire.n, 1);
	CU_ASSERT(note_wire.msg[0].len < 200);
	note_settle(&rig);
	while (got < 20) {
		CU_ASSERT_FATAL(note_next_is(&rig, got, 4,
					     got % 3 ? 30000 : 10));
		got++;
		/* the receiver itself reports that there is room now */
		note_settle(&rig);
	}
	CU_ASSERT(note_idle(&rig));
	note_close(&rig);
}

/* Makes a second sender, a process that sends to b too. Its messages are
 * intercepted in the same list as those of rig. */
static void note_second(const struct note_rig *rig, struct note_rig *two)
{
	*two = *rig;
	test_plane_init(&two->a);
	test_plane_open(&two->a, NULL);
	test_plane_still(&two->a);
	two->to = note_peer(&two->a, rig->b.dp->incarnation);
	two->from = note_peer(&two->b, two->a.dp->incarnation);
	note_meet(two->to, two->from);
}

static void test_room_goes_to_the_peer_that_waits_longest(void)
{
	struct note_rig rig, two;

	note_open(&rig, 100, 50000);
	note_queue(&rig, 1, 0, 30000);
	note_queue(&rig, 2, 0, 40000); /* this notification must wait for
					* room */
	note_settle(&rig);
	CU_ASSERT(rig.to->note_out.full);
	/* A small notification of another process would fit, but it must wait
	 * behind the large one. */
	note_second(&rig, &two);
	note_queue(&two, 3, 0, 100);
	note_settle(&two);
	CU_ASSERT(two.to->note_out.full);
	CU_ASSERT(note_next_is(&rig, 1, 0, 30000));
	note_settle(&two);
	note_settle(&rig);
	note_settle(&two);
	CU_ASSERT_EQUAL(rig.b.dp->notes.bytes, 40100);
	CU_ASSERT_FALSE(two.to->note_out.n || rig.to->note_out.n);
	test_plane_close(&two.a);
	note_close(&rig);
}

/* Tests that a sender that begins a notification and does not continue it does
 * not occupy the room forever. */
static void test_idle_assembly_is_dropped_if_room_is_needed(void)
{
	struct note_rig rig, two;
	uint64_t end;

	note_open(&rig, 100, 50000);
	note_queue(&rig, 1, 0, 40000);
	notify_send(&rig, tei_now_ns());
	note_arrive(&rig, 0, false);
	note_clear();
	CU_ASSERT_EQUAL_FATAL(rig.b.dp->notes.bytes, 40000);
	note_second(&rig, &two);
	note_queue(&two, 2, 0, 45000);
	end = tei_now_ns() + TEST_WAIT_NS;
	while (two.to->note_out.n && tei_now_ns() < end) {
		note_settle(&two);
		sched_yield();
	}
	CU_ASSERT(note_next_is(&rig, 2, 0, 45000));
	CU_ASSERT_EQUAL(rig.b.dp->notes.bytes, 0);
	test_plane_close(&two.a);
	note_close(&rig);
}

static void test_notes_reserved_by_the_user_count_against_the_limit(void)
{
	struct note_rig rig;

	note_open(&rig, 2, 50000);
	note_queue(&rig, 1, 0, 40000);
	note_settle(&rig);
	CU_ASSERT_EQUAL(tei_rail_notification_reserve(rig.b.dp, 10001),
			TEI_ERR_TOO_MANY);
	CU_ASSERT_EQUAL(tei_rail_notification_reserve(rig.b.dp, 10000), 0);
	CU_ASSERT_EQUAL(tei_rail_notification_reserve(rig.b.dp, 0),
			TEI_ERR_TOO_MANY);
	note_queue(&rig, 2, 0, 0);
	note_settle(&rig);
	CU_ASSERT(rig.to->note_out.full);
	tei_rail_notification_release(rig.b.dp, 1, 10000);
	note_settle(&rig);
	CU_ASSERT(note_next_is(&rig, 1, 0, 40000));
	CU_ASSERT(note_next_is(&rig, 2, 0, 0));
	CU_ASSERT(note_idle(&rig));
	note_close(&rig);
}

static void test_sender_queue_is_limited(void)
{
	struct tei_rail_outgoing *out;
	struct note_rig rig;
	struct tei_err err;

	note_open(&rig, 100, 1 << 20);
	rig.a.settings.limits.max_notifies = 3;
	rig.a.settings.limits.notify_bytes = 1000;
	note_queue(&rig, 1, 0, 600);
	CU_ASSERT_EQUAL(tei_rail_outgoing_new(rig.to, "1", "", &err, &out), 0);
	tei_rail_outgoing_free(out);
	rig.a.settings.limits.notify_bytes = 600;
	CU_ASSERT_EQUAL(tei_rail_outgoing_new(rig.to, "1", "", &err, &out),
			TEI_ERR_TOO_MANY);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "MOONRAIL_NOTIFY_BYTES=600"));
	rig.a.settings.limits.notify_bytes = 1000;
	note_queue(&rig, 2, 0, 1);
	note_queue(&rig, 3, 0, 1);
	CU_ASSERT_EQUAL(tei_rail_outgoing_new(rig.to, "1", "", &err, &out),
			TEI_ERR_TOO_MANY);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "MOONRAIL_MAX_NOTIFIES=3"));
	note_settle(&rig);
	CU_ASSERT_EQUAL(rig.to->note_out.n, 0);
	note_close(&rig);
}

/* --- cases: waiting ------------------------------------------------------ */

static void test_wait_ends_with_the_acknowledgement(void)
{
	struct note_caller c;
	struct note_rig rig;

	note_open(&rig, 8, 8 << 20);
	note_begin(&c, &rig, 500000, TEST_WAIT_NS);
	while (!note_is_back(&c))
		note_settle(&rig);
	CU_ASSERT_EQUAL(note_end(&c), 0);
	CU_ASSERT_FALSE(note_none(&rig));
	note_close(&rig);
}

/* Tests that a notification of which no byte was sent is withdrawn without any
 * effect at the receiver. */
static void test_unsent_note_is_withdrawn(void)
{
	struct tei_err err;
	struct note_rig rig;

	note_open(&rig, 8, 8 << 20);
	CU_ASSERT_EQUAL(tei_rail_notify(rig.to, &note_ab, 1, &err),
			TEI_ERR_TIMED_OUT);
	CU_ASSERT_FALSE(err.unknown);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "withdrawn"));
	CU_ASSERT_EQUAL(rig.to->note_out.n, 0);
	note_queue(&rig, 2, 3, 4);
	note_settle(&rig);
	CU_ASSERT(note_next_is(&rig, 2, 3, 4));
	CU_ASSERT(note_idle(&rig));
	note_close(&rig);
}

/* Tests that the receiver drops the bytes of a notification that is withdrawn
 * before its last byte was sent. */
static void test_half_sent_note_is_withdrawn(void)
{
	struct note_caller c;
	struct note_rig rig;

	note_open(&rig, 8, 8 << 20);
	note_begin(&c, &rig, TEI_RAIL_NOTIFY_MAX - 10, 100 * TEI_NS_PER_MS);
	notify_send(&rig, tei_now_ns());
	while (note_wire.n)
		note_arrive(&rig, 0, false);
	CU_ASSERT_EQUAL(note_end(&c), TEI_ERR_TIMED_OUT);
	CU_ASSERT_FALSE(c.err.unknown);
	CU_ASSERT_PTR_NOT_NULL(rig.from->note_in.part);
	note_clear();
	note_queue(&rig, 2, 3, 4);
	note_settle(&rig);
	CU_ASSERT(note_next_is(&rig, 2, 3, 4));
	CU_ASSERT(note_idle(&rig));
	note_close(&rig);
}

/* Tests a withdrawn notification that was sent completely and of which no
 * acknowledgement has arrived. It may arrive before the next notification or,
 * if "late" is true, after it. */
static void late_note_arrives_at_most_once(bool late)
{
	struct note_caller c;
	struct note_rig rig;

	note_open(&rig, 8, 8 << 20);
	note_begin(&c, &rig, 100, 100 * TEI_NS_PER_MS);
	notify_send(&rig, tei_now_ns());
	CU_ASSERT_EQUAL_FATAL(note_wire.n, 1);
	CU_ASSERT_EQUAL(note_end(&c), TEI_ERR_TIMED_OUT);
	CU_ASSERT(c.err.unknown);
	CU_ASSERT_PTR_NOT_NULL(strstr(c.err.text, "not acknowledged"));
	note_queue(&rig, 2, 3, 4);
	notify_send(&rig, tei_now_ns());
	CU_ASSERT_EQUAL_FATAL(note_wire.n, 2);
	if (late)
		note_arrive(&rig, 1, false);
	note_settle(&rig);
	if (!late)
		test_plane_release(&rig.b, test_plane_note(&rig.b));
	CU_ASSERT(note_next_is(&rig, 2, 3, 4));
	CU_ASSERT(note_idle(&rig));
	note_close(&rig);
}

static void test_late_note_arrives_before_the_next(void)
{
	late_note_arrives_at_most_once(false);
}

static void test_late_note_is_dropped_after_the_next(void)
{
	late_note_arrives_at_most_once(true);
}

static void test_wait_for_a_full_receiver_fails_as_not_delivered(void)
{
	struct note_caller c;
	struct note_rig rig;

	note_open(&rig, 1, 8 << 20);
	note_queue(&rig, 1, 1, 1);
	note_settle(&rig);
	note_begin(&c, &rig, 100, 200 * TEI_NS_PER_MS);
	while (!note_is_back(&c))
		note_settle(&rig);
	CU_ASSERT_EQUAL(note_end(&c), TEI_ERR_TOO_MANY);
	CU_ASSERT_FALSE(c.err.unknown);
	CU_ASSERT_PTR_NOT_NULL(strstr(c.err.text,
				      "reached its limit for queued notifications"));
	CU_ASSERT(note_next_is(&rig, 1, 1, 1));
	note_settle(&rig);
	CU_ASSERT(note_none(&rig));
	/* the next notification gets the room that may still be reserved for
	 * the withdrawn one */
	note_queue(&rig, 2, 3, 4);
	note_settle(&rig);
	CU_ASSERT(note_next_is(&rig, 2, 3, 4));
	CU_ASSERT(note_idle(&rig));
	note_close(&rig);
}

static void test_wait_ends_when_the_peer_has_gone(void)
{
	struct rail_done done;
	struct note_caller c;
	struct note_rig rig;

	note_open(&rig, 8, 8 << 20);
	note_begin(&c, &rig, 100, TEST_WAIT_NS);
	notify_send(&rig, tei_now_ns());
	rail_done_init(&done);
	rail_sched_enter(rig.a.dp);
	rail_peer_set_gone(rig.to, "for the test", RAIL_GONE_OVER, &done);
	rail_sched_leave(rig.a.dp);
	CU_ASSERT_EQUAL(note_end(&c), TEI_ERR_CONTEXT);
	CU_ASSERT(c.err.unknown);
	CU_ASSERT_EQUAL(tei_rail_notify(rig.to, &note_ab, TEST_WAIT_NS, &c.err),
			TEI_ERR_ENDPOINT);
	CU_ASSERT_FALSE(c.err.unknown);
	note_close(&rig);
}

static void test_wait_ends_when_the_engine_is_closed(void)
{
	struct note_caller c;
	struct note_rig rig;

	note_open(&rig, 8, 8 << 20);
	note_begin(&c, &rig, 100, TEST_WAIT_NS);
	tei_rail_notify_stop(rig.a.dp);
	CU_ASSERT_EQUAL(note_end(&c), TEI_ERR_CONTEXT);
	CU_ASSERT_EQUAL(rig.to->note_out.n, 0);
	note_close(&rig);
}

/* --- cases: sessions and streams ----------------------------------------- */

/* Tests that a notification is not delivered again if its acknowledgement is
 * lost and the receiver frees its peer object for the sender. */
static void test_note_is_delivered_once_although_its_sender_was_forgotten(void)
{
	struct note_rig rig;

	note_open(&rig, 8, 8 << 20);
	note_queue(&rig, 1, 3, 4);
	notify_send(&rig, tei_now_ns());
	note_arrive(&rig, 0, false);
	note_clear();
	note_forget(&rig);
	note_queue(&rig, 2, 5, 6);
	note_settle(&rig);
	CU_ASSERT(note_next_is(&rig, 1, 3, 4));
	CU_ASSERT(note_next_is(&rig, 2, 5, 6));
	CU_ASSERT(note_idle(&rig));
	note_close(&rig);
}

/* Tests a receiver that has forgotten the sender, and that has also lost its
 * memory of freed peers. Neither process knows whether the last notification
 * was delivered, so it is not delivered again. */
static void test_forgotten_stream_resumes_after_the_doubtful_note(void)
{
	struct note_caller c;
	struct note_rig rig;

	note_open(&rig, 8, 8 << 20);
	note_begin(&c, &rig, 10, TEST_WAIT_NS);
	notify_send(&rig, tei_now_ns());
	note_arrive(&rig, 0, false);
	note_clear();
	note_forget(&rig);
	rig.from->note_in.stream = 0;
	rig.from->note_in.next = 0;
	note_queue(&rig, 2, 5, 6);
	note_settle(&rig);
	CU_ASSERT_EQUAL(note_end(&c), TEI_ERR_CONTEXT);
	CU_ASSERT(c.err.unknown);
	test_plane_release(&rig.b, test_plane_note(&rig.b));
	CU_ASSERT(note_next_is(&rig, 2, 5, 6));
	CU_ASSERT(note_idle(&rig));
	note_close(&rig);
}

static void test_old_stream_is_ignored(void)
{
	struct tei_rail_peer *old;
	struct note_rig rig;

	note_open(&rig, 8, 8 << 20);
	note_queue(&rig, 1, 3, 4);
	notify_send(&rig, tei_now_ns());
	CU_ASSERT_EQUAL_FATAL(note_wire.n, 1);
	/* the sender frees its peer object for the receiver and creates a new
	 * one */
	old = rig.to;
	rig.to = note_peer(&rig.a, rig.b.dp->incarnation);
	note_meet(rig.to, rig.from);
	note_queue(&rig, 2, 5, 6);
	notify_send(&rig, tei_now_ns());
	CU_ASSERT_EQUAL_FATAL(note_wire.n, 2);
	note_arrive(&rig, 1, false);
	note_arrive(&rig, 0, false);
	note_settle(&rig);
	CU_ASSERT(note_next_is(&rig, 2, 5, 6));
	CU_ASSERT(note_none(&rig));
	CU_ASSERT_EQUAL(old->note_out.n, 1);
	note_close(&rig);
}

static void test_message_of_an_earlier_session_asks_for_a_hello(void)
{
	struct note_rig rig;

	note_open(&rig, 8, 8 << 20);
	note_queue(&rig, 1, 3, 4);
	notify_send(&rig, tei_now_ns());
	CU_ASSERT_EQUAL_FATAL(note_wire.n, 1);
	note_forget(&rig);
	rig.from->hello.reply = false;
	note_arrive(&rig, 0, false);
	CU_ASSERT(rig.from->hello.reply);
	CU_ASSERT(note_none(&rig));
	note_settle(&rig);
	CU_ASSERT(note_next_is(&rig, 1, 3, 4));
	note_close(&rig);
}

/* --- cases: hostile senders ---------------------------------------------- */

/* The fields of a NOTIFY message. They are valid at first, and a test makes one
 * after the other invalid. */
struct note_forged {
	uint64_t session, stream, base, number;
	uint32_t name_len, msg_len, offset;
	uint16_t n;			/* length of the fragment according to
					 * the message */
	size_t bytes;			/* number of bytes of the fragment that
					 * are really in the message */
	uint16_t flags;
	char fill;
};

static struct note_forged note_good(const struct note_rig *rig)
{
	struct note_forged f = {
		.session = rig->from->atomics.own_session,
		.stream = rig->to->atomics.own_session,
		.base = 1, .number = 1,
		.name_len = 3, .msg_len = 7, .n = 10, .bytes = 10, .fill = 'x',
	};

	return f;
}

static void note_forge(struct note_rig *rig, const struct note_forged *f)
{
	struct rail_wire w;
	uint8_t *exact;
	size_t len;

	rail_msg_begin(rig->to, &w, rig->buf, RAIL_MSG_NOTIFY, f->flags);
	rail_wire_put(&w, f->session, 8);
	rail_wire_put(&w, f->stream, 8);
	rail_wire_put(&w, f->base, 8);
	rail_wire_put(&w, f->number, 8);
	rail_wire_put(&w, 1, 8);
	rail_wire_put(&w, f->name_len, 4);
	rail_wire_put(&w, f->msg_len, 4);
	rail_wire_put(&w, f->offset, 4);
	rail_wire_put(&w, f->n, 2);
	CU_ASSERT_FATAL(rail_wire_room(&w, f->bytes));
	memset(w.p + w.pos, f->fill, f->bytes);
	w.pos += f->bytes;
	len = rail_msg_end(&w);
	exact = malloc(len);
	CU_ASSERT_PTR_NOT_NULL_FATAL(exact);
	memcpy(exact, rig->buf, len);
	note_handle(rig->from, exact, len);
	free(exact);
	note_check_limit(rig);
}

static void test_malformed_fragments_do_nothing(void)
{
	struct note_forged good, f[16];
	struct note_rig rig;
	size_t i, n;

	note_open(&rig, 8, 1 << 20);
	good = note_good(&rig);
	for (i = 0; i < 16; i++)
		f[i] = good;
	n = 0;
	/* in the next two cases, name_len + msg_len overflows 32 bits */
	f[n++].name_len = UINT32_MAX;
	f[n++].msg_len = UINT32_MAX - 2;
	f[n++].msg_len = TEI_RAIL_NOTIFY_MAX - 2; /* the length name_len +
						   * msg_len is one byte above
						   * the limit */
	f[n++].offset = 1;			  /* the fragment ends beyond
						   * the end of the
						   * notification */
	f[n++].offset = UINT32_MAX;
	f[n++].offset = UINT32_MAX - 5;
	f[n++].n = 11;	   /* n is larger than the number of bytes in the
			    * message */
	f[n++].bytes = 11; /* n is smaller than the number of bytes in the
			    * message */
	f[n++].fill = 0;   /* the strings contain zero bytes */
	f[n].flags =
		RAIL_WIRE_NOTE_BINARY; /* with this flag the text may contain
					* zero bytes, but the name may not */
	f[n++].fill = 0;
	f[n++].stream = 0;
	f[n++].base = 0;
	f[n++].base = 2; /* base must not be above the number of the
			  * notification */
	f[n++].number = 0;
	f[n++].session ^= 1;
	f[n].n = 0; /* the fragment contains no byte */
	f[n++].bytes = 0;
	for (i = 0; i < n; i++)
		note_forge(&rig, &f[i]);
	CU_ASSERT_EQUAL(rig.from->note_in.stream, 0);
	CU_ASSERT_EQUAL(rig.b.dp->notes.bytes, 0);
	CU_ASSERT_FALSE(rig.from->note_in.answer_pending);
	CU_ASSERT(note_none(&rig));
	note_forge(&rig, &good);
	CU_ASSERT_FALSE(note_none(&rig));
	note_close(&rig);
}

/* Tests that two fragments are not joined if their lengths of the notification
 * differ, or if they belong to different notifications. */
static void test_contradicting_fragments_are_not_joined(void)
{
	struct note_forged f;
	struct note_rig rig;

	note_open(&rig, 8, 1 << 20);
	f = note_good(&rig);
	f.name_len = 1000;
	note_forge(&rig, &f);
	CU_ASSERT_EQUAL(rig.b.dp->notes.bytes, 1007);
	f.offset = 10;
	f.name_len = 500;
	note_forge(&rig, &f);
	CU_ASSERT_EQUAL(rig.b.dp->notes.bytes, 0);
	CU_ASSERT_EQUAL(rig.from->note_in.code, RAIL_NOTIFY_GAP);
	f.offset = 0;
	note_forge(&rig, &f);
	CU_ASSERT_EQUAL(rig.b.dp->notes.bytes, 507);
	f.number = 2;
	f.offset = 10;
	note_forge(&rig, &f);
	CU_ASSERT_EQUAL(rig.from->note_in.code, RAIL_NOTIFY_GAP);
	/* the receiver begins to assemble a complete notification with a higher
	 * number */
	f.base = 2;
	f.offset = 0;
	f.name_len = 3;
	note_forge(&rig, &f);
	CU_ASSERT_FALSE(note_none(&rig));
	CU_ASSERT_EQUAL(rig.b.dp->notes.bytes, 10);
	note_close(&rig);
}

/* Tests that processes that announce more bytes than fit into the limits, and
 * send none of them, cannot exceed these limits. */
static void test_announced_bytes_count_against_the_limit(void)
{
	struct note_forged f;
	struct note_rig rig;
	uint32_t i, parts = 0;

	note_open(&rig, 1000, 3 << 20);
	for (i = 0; i < 40; i++) {
		rig.from = note_peer(&rig.b, 0x5000 + i);
		f = note_good(&rig);
		f.name_len = TEI_RAIL_NOTIFY_MAX - 7;
		f.flags = i % 2 ? RAIL_WIRE_NOTE_ASK : 0;
		note_forge(&rig, &f);
		parts += rig.from->note_in.part != NULL;
	}
	CU_ASSERT_EQUAL(parts, 3);
	CU_ASSERT_EQUAL(rig.from->note_in.code, RAIL_NOTIFY_FULL);
	note_close(&rig);
}

static void test_fuzzed_fragments_do_no_harm(void)
{
	uint8_t msg[RAIL_MSG_MAX], *exact;
	struct note_forged f;
	struct note_rig rig;
	struct rail_wire w;
	struct tei_fuzz z;
	size_t len;
	bool ack;

	note_open(&rig, 8, 1 << 20);
	note_queue(&rig, 1, 3, 40000);
	f = note_good(&rig);
	for (tei_fuzz_begin(&z, "fragments"); tei_fuzz_next(&z, 20000);) {
		ack = tei_fuzz_random(&z) % 2;
		rail_msg_begin(ack ? rig.from : rig.to, &w, msg,
			       ack ? RAIL_MSG_NOTE_ACK : RAIL_MSG_NOTIFY, 0);
		if (!ack)
			rail_wire_put(&w, f.session, 8);
		rail_wire_put(&w, f.stream, 8);
		rail_wire_put(&w, z.rounds % 100, 8);
		if (!ack)
			rail_wire_put(&w, z.rounds % 100, 8);
		rail_wire_put(&w, ack ? 16264 : 1, ack ? 4 : 8);
		rail_wire_put(&w, 3, ack ? 8 : 4);
		rail_wire_put(&w, z.rounds % 4, ack ? 2 : 4);
		if (!ack) {
			rail_wire_put(&w, 0, 4);
			rail_wire_put_bytes(&w, "nametexttext",
					    3 + z.rounds % 4);
		}
		len = rail_msg_end(&w);
		tei_fuzz_bytes(&z, msg + RAIL_WIRE_HEADER,
			       len - RAIL_WIRE_HEADER, 0);
		exact = malloc(len);
		CU_ASSERT_PTR_NOT_NULL_FATAL(exact);
		memcpy(exact, msg, len);
		note_handle(ack ? rig.to : rig.from, exact, len);
		free(exact);
		note_check_limit(&rig);
		notify_send_later(&rig);
		note_clear();
		while (z.rounds % 8 == 7 && !note_none(&rig))
			test_plane_release(&rig.b, test_plane_note(&rig.b));
	}
	note_close(&rig);
}

const struct tei_test_case rail_notify_cases[] = {
	{ "note_of_1_mib_arrives_whole", test_note_of_1_mib_arrives_whole },
	{ "note_above_1_mib_is_refused", test_note_above_1_mib_is_refused },
	{ "note_arrives_once_over_a_lossy_wire",
	  test_note_arrives_once_over_a_lossy_wire },
	{ "note_arrives_once_if_the_receiver_forgets_the_sender",
	  test_note_arrives_once_if_the_receiver_forgets_the_sender },
	{ "full_receiver_makes_senders_wait",
	  test_full_receiver_makes_senders_wait },
	{ "room_goes_to_the_peer_that_waits_longest",
	  test_room_goes_to_the_peer_that_waits_longest },
	{ "idle_assembly_is_dropped_if_room_is_needed",
	  test_idle_assembly_is_dropped_if_room_is_needed },
	{ "notes_reserved_by_the_user_count_against_the_limit",
	  test_notes_reserved_by_the_user_count_against_the_limit },
	{ "sender_queue_is_limited", test_sender_queue_is_limited },
	{ "wait_ends_with_the_acknowledgement",
	  test_wait_ends_with_the_acknowledgement },
	{ "unsent_note_is_withdrawn", test_unsent_note_is_withdrawn },
	{ "half_sent_note_is_withdrawn", test_half_sent_note_is_withdrawn },
	{ "late_note_arrives_before_the_next",
	  test_late_note_arrives_before_the_next },
	{ "late_note_is_dropped_after_the_next",
	  test_late_note_is_dropped_after_the_next },
	{ "wait_for_a_full_receiver_fails_as_not_delivered",
	  test_wait_for_a_full_receiver_fails_as_not_delivered },
	{ "wait_ends_when_the_peer_has_gone",
	  test_wait_ends_when_the_peer_has_gone },
	{ "wait_ends_when_the_engine_is_closed",
	  test_wait_ends_when_the_engine_is_closed },
	{ "note_is_delivered_once_although_its_sender_was_forgotten",
	  test_note_is_delivered_once_although_its_sender_was_forgotten },
	{ "forgotten_stream_resumes_after_the_doubtful_note",
	  test_forgotten_stream_resumes_after_the_doubtful_note },
	{ "old_stream_is_ignored", test_old_stream_is_ignored },
	{ "message_of_an_earlier_session_asks_for_a_hello",
	  test_message_of_an_earlier_session_asks_for_a_hello },
	{ "malformed_fragments_do_nothing",
	  test_malformed_fragments_do_nothing },
	{ "contradicting_fragments_are_not_joined",
	  test_contradicting_fragments_are_not_joined },
	{ "announced_bytes_count_against_the_limit",
	  test_announced_bytes_count_against_the_limit },
	{ "fuzzed_fragments_do_no_harm", test_fuzzed_fragments_do_no_harm },
	{ NULL, NULL },
};
