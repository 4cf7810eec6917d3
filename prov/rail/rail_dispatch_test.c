/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of valid and malformed messages from peers. The progress thread of the
 * tested data plane is stopped, and the test calls the functions of this
 * thread. A second data plane, the sink, receives the answers. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/peer/rail_atomic.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_dispatch.h"
#include "prov/rail/rail_peer_run.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/atomic.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"


#define MSG_GOOD	UINT64_C(0x60060d)	/* incarnation of the peer that
						 * must be served whatever other
						 * peers send */
#define MSG_FUZZ	UINT64_C(0xf022)
#define MSG_PEERS	8			/* value of MOONRAIL_MAX_PEERS
						 * in these tests */
#define MSG_MUTATIONS	20000

struct msg_rig {
	struct test_plane plane, sink;
	struct tei_rail_addr addr;	/* address of the rail of the sink; all
					 * simulated peers have this address */
	struct rail_lane *lane;
};

static void msg_begin(struct msg_rig *rig)
{
	struct tei_rail_desc desc;

	test_plane_init(&rig->plane);
	test_plane_init(&rig->sink);
	rig->plane.settings.limits.max_peers = MSG_PEERS;
	test_plane_open(&rig->sink, "127.0.0.2");
	test_plane_open(&rig->plane, "127.0.0.1");
	test_plane_still(&rig->plane);
	test_plane_use(&rig->plane);
	CU_ASSERT_EQUAL_FATAL(tei_rail_describe(rig->sink.dp, 0, &desc), 0);
	rig->addr = desc.addr;
	rig->lane = &rail_at(rig->plane.dp, 0)->rx_lane;
}

static void msg_end(struct msg_rig *rig)
{
	test_plane_close(&rig->plane);
	test_plane_close(&rig->sink);
}

/* Delivers a message in a buffer of exactly its size, so that sanitizers notice
 * reads beyond its end. */
static void msg_arrive(struct msg_rig *rig, const void *msg, size_t len)
{
	uint8_t *exact = malloc(len ? len : 1);
	struct rail_done done;

	CU_ASSERT_PTR_NOT_NULL_FATAL(exact);
	memcpy(exact, msg, len);
	rail_done_init(&done);
	tei_mutex_lock(&rig->lane->lock);
	rail_msg_received(rig->lane, exact, len, &done);
	tei_mutex_unlock(&rig->lane->lock);
	rail_done_run(rig->plane.dp, &done);
	free(exact);
}

/* Runs the state machines of every peer once, and polls all lanes of the tested
 * data plane. */
static void msg_turn(struct msg_rig *rig)
{
	struct tei_rail_peer *p, *tmp;
	struct rail *rail;
	uint32_t i, r;

	tei_list_foreach_safe (p, tmp, &rig->plane.dp->peers.list,
			       struct tei_rail_peer, link)
		rail_peer_run(p, tei_now_ns());
	for (r = 0; r < rail_count(rig->plane.dp); r++) {
		rail = rail_at(rig->plane.dp, r);
		for (i = 0; i < rail->ntx * RAIL_LANE_SLOTS; i++)
			rail_lane_run(&rail->tx_lanes[i]);
	}
}

static struct tei_rail_peer *msg_peer(struct msg_rig *rig, uint64_t inc)
{
	struct tei_rail_peer *p;

	rail_sched_enter(rig->plane.dp);
	p = rail_peer_find(rig->plane.dp, inc);
	rail_sched_leave(rig->plane.dp);
	return p;
}

/* --- messages ------------------------------------------------------------ */

static struct rail_wire msg_head(struct msg_rig *rig, uint8_t *buf,
				 uint8_t type, uint16_t flags, uint64_t src)
{
	struct rail_wire w = { .p = buf, .cap = RAIL_MSG_MAX };

	rail_wire_put(&w, RAIL_WIRE_MAGIC, 4);
	rail_wire_put(&w, RAIL_WIRE_VERSION, 1);
	rail_wire_put(&w, type, 1);
	rail_wire_put(&w, flags, 2);
	rail_wire_put(&w, 0, 4);
	rail_wire_put(&w, 1, 4);
	rail_wire_put(&w, src, 8);
	rail_wire_put(&w, rig->plane.dp->incarnation, 8);
	rail_wire_put(&w, 0, 8);
	rail_wire_put(&w, 0, 8);
	rail_wire_put(&w, 0, 8);
	return w;
}

static void msg_put_text(struct rail_wire *w, const char *text)
{
	rail_wire_put_bytes(w, text, strlen(text));
}

static void msg_put_rails(struct msg_rig *rig, struct rail_wire *w)
{
	uint16_t i;

	rail_wire_put(w, 7, 8);		/* nonce, 16 bytes */
	rail_wire_put(w, 7, 8);
	rail_wire_put(w, 1, 4);
	msg_put_text(w, "somebody");
	rail_wire_put(w, 2, 2);
	for (i = 0; i < 2; i++) {
		rail_wire_put(w, i, 2);
		rail_wire_put(w, 1, 4);
		rail_wire_put(w, 1, 1);
		rail_wire_put(w, 8, 1);
		rail_wire_put(w, rig->addr.protocol, 4);
		rail_wire_put(w, rig->addr.protocol_version, 4);
		rail_wire_put(w, rig->addr.addr_format, 4);
		rail_wire_put_bytes(w, rig->addr.bytes, rig->addr.len);
		msg_put_text(w, i ? "second" : "first");
	}
}

#define MSG_SESSION	8	/* size of the session number, which follows the
				 * list of rails in a hello, bytes */

/* Appends the last two parts of a hello: a session number and a list with one
 * contact address. Returns their length. */
static size_t msg_put_tail(struct msg_rig *rig, struct rail_wire *w)
{
	size_t from = w->pos;

	rail_wire_put(w, 0, MSG_SESSION);
	rail_wire_put(w, 1, 2);
	rail_wire_put(w, rig->addr.protocol, 4);
	rail_wire_put(w, rig->addr.protocol_version, 4);
	rail_wire_put(w, rig->addr.addr_format, 4);
	rail_wire_put_bytes(w, rig->addr.bytes, rig->addr.len);
	return w->pos - from;
}

static void msg_put_keys(struct rail_wire *w, uint32_t epoch)
{
	uint64_t i, key = 0x1234;

	rail_wire_put(w, 0x10000, 8);
	rail_wire_put(w, 0x3000, 8);
	rail_wire_put(w, 0, 4);
	rail_wire_put(w, epoch, 4);
	rail_wire_put(w, 3, 2);
	for (i = 0; i < 3; i++) {
		rail_wire_put(w, 0x10000 + i * 0x1000, 8);
		rail_wire_put(w, 0x1000, 8);
		rail_wire_put(w, i + 1, 8);
		rail_wire_put(w, 0, 1);
		rail_wire_put(w, 2, 2);
		rail_wire_put(w, 0, 2);
		rail_wire_put(w, 0, 8);
		rail_wire_put_bytes(w, &key, sizeof(key));
		rail_wire_put(w, 1, 2);
		rail_wire_put(w, i * 0x1000, 8);
		rail_wire_put_bytes(w, &key, sizeof(key));
	}
}

static void msg_put_fenced(struct msg_rig *rig, struct rail_wire *w)
{
	rail_wire_put(w, 0, 2);
	rail_wire_put(w, 1, 4);
	rail_wire_put(w, 2, 4);
	rail_addr_put(w, &rig->addr);
}

static void msg_put_atomic(struct rail_wire *w, uint64_t seq, uint8_t op,
			   uint8_t width, uint64_t addr, uint64_t operand)
{
	rail_wire_put(w, seq, 8);
	rail_wire_put(w, op, 1);
	rail_wire_put(w, width, 1);
	rail_wire_put(w, addr, 8);
	rail_wire_put(w, operand, 8);
	rail_wire_put(w, 0, 8);
}

/* Appends a notification that fits into one message. Each call uses the next
 * notification number. */
static void msg_put_note(struct msg_rig *rig, struct rail_wire *w, uint64_t src)
{
	struct tei_rail_peer *p = msg_peer(rig, src);
	static uint64_t number;

	number++;
	rail_wire_put(w, p ? p->atomics.own_session : 0, 8);
	rail_wire_put(w, 1, 8);
	rail_wire_put(w, number, 8);	/* number of the oldest notification
					 * that the sender still holds */
	rail_wire_put(w, number, 8);
	rail_wire_put(w, number, 8);	/* turn, the number of this message */
	rail_wire_put(w, 4, 4);
	rail_wire_put(w, 4, 4);
	rail_wire_put(w, 0, 4);
	msg_put_text(w, "nametext");
}

static void msg_put_body(struct msg_rig *rig, struct rail_wire *w, int type,
			 uint64_t src)
{
	switch (type) {
	case RAIL_MSG_HELLO:
		msg_put_rails(rig, w);
		msg_put_tail(rig, w);
		break;
	case RAIL_MSG_REFUSE:
		rail_wire_put(w, 0xdead, 8);
		rail_wire_put(w, RAIL_REFUSE_STALE, 2);
		msg_put_text(w, "not here");
		rail_wire_put(w, 0, 8);
		rail_wire_put(w, 0, 8);
		break;
	case RAIL_MSG_KEY_REQ:
		rail_wire_put(w, 0x10000, 8);
		rail_wire_put(w, 0x1000, 8);
		break;
	case RAIL_MSG_KEY_REP:
		msg_put_keys(w, 0);
		break;
	case RAIL_MSG_FENCE:
		rail_wire_put(w, 0, 2);
		rail_wire_put(w, 0, 4);
		break;
	case RAIL_MSG_FENCED:
		msg_put_fenced(rig, w);
		break;
	case RAIL_MSG_ATOMIC:
		/* use the session number of the newest peer, so that the fuzzed
		 * messages get past the check of this number */
		rail_wire_put(w, rig->plane.dp->peers.sessions, 8);
		rail_wire_put(w, 1, 2);
		msg_put_atomic(w, 1, TEI_ATOMIC_ADD, 8, 0x10000, 1);
		break;
	case RAIL_MSG_ATOMIC_REP:
		rail_wire_put(w, 0, 8);
		rail_wire_put(w, 1, 2);
		rail_wire_put(w, 1, 8);
		rail_wire_put(w, 0, 4);
		rail_wire_put(w, 7, 8);
		break;
	case RAIL_MSG_REVOKE:
		rail_wire_put(w, 1, 4);
		/* fall through */
	case RAIL_MSG_REVOKED:
		rail_wire_put(w, 2, 2);
		rail_wire_put(w, 1, 8);
		rail_wire_put(w, 2, 8);
		break;
	case RAIL_MSG_NOTIFY:
		msg_put_note(rig, w, src);
		break;
	case RAIL_MSG_NOTE_ACK:
		rail_wire_put(w, rig->plane.dp->peers.sessions, 8);
		rail_wire_put(w, 1, 8);
		rail_wire_put(w, 0, 4);
		rail_wire_put(w, 0, 8);
		rail_wire_put(w, RAIL_NOTIFY_OK, 2);
		break;
	default:
		break;
	}
}

static size_t msg_valid(struct msg_rig *rig, uint8_t *buf, int type,
			uint64_t src)
{
	struct rail_wire w = msg_head(rig, buf, (uint8_t)type, 0, src);

	msg_put_body(rig, &w, type, src);
	return rail_msg_end(&w);
}

static void msg_send(struct msg_rig *rig, int type, uint64_t src)
{
	uint8_t buf[RAIL_MSG_MAX];
	size_t len = msg_valid(rig, buf, type, src);

	CU_ASSERT_FATAL(len > 0);
	msg_arrive(rig, buf, len);
}

static void msg_set_number(uint8_t *buf, size_t at, uint64_t v, size_t n)
{
	struct rail_wire w = { .p = buf, .pos = at, .cap = RAIL_MSG_MAX };

	rail_wire_put(&w, v, n);
}

/* Checks that a notification of the peer MSG_GOOD is still delivered. */
static void msg_check_good(struct msg_rig *rig)
{
	struct tei_rail_peer *p = msg_peer(rig, MSG_GOOD);
	uint32_t before = test_notified();

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	CU_ASSERT_EQUAL(p->state, RAIL_PEER_READY);
	CU_ASSERT_EQUAL(p->nremotes, 2);
	CU_ASSERT_STRING_EQUAL(p->name, "somebody");
	CU_ASSERT(p->routes.route[0] >= 0);
	msg_send(rig, RAIL_MSG_NOTIFY, MSG_GOOD);
	CU_ASSERT_EQUAL(test_notified(), before + 1);
	CU_ASSERT(rig->plane.dp->peers.n <= MSG_PEERS);
}

/* --- cases --------------------------------------------------------------- */

static void test_a_hello_introduces_a_peer(void)
{
	struct tei_rail_peer *p;
	struct msg_rig rig;

	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	msg_check_good(&rig);
	p = msg_peer(&rig, MSG_GOOD);
	CU_ASSERT_EQUAL(p->remotes[1].id, 1);
	CU_ASSERT_STRING_EQUAL(p->remotes[1].name, "second");
	CU_ASSERT_EQUAL_FATAL(p->addrs.ncontacts, 1);
	CU_ASSERT(rail_addr_same(&p->addrs.contacts[0], &rig.addr));
	/* a repeated hello changes nothing */
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	msg_check_good(&rig);
	CU_ASSERT_EQUAL(rig.plane.dp->peers.n, 1);
	msg_end(&rig);
}

static void test_messages_of_unknown_senders_are_dropped(void)
{
	uint32_t before = test_notified();
	struct msg_rig rig;
	int type;

	msg_begin(&rig);
	for (type = 0; type < 256; type++)
		if (type != RAIL_MSG_HELLO)
			msg_send(&rig, type, MSG_FUZZ);
	CU_ASSERT_EQUAL(rig.plane.dp->peers.n, 0);
	CU_ASSERT_EQUAL(test_notified(), before);
	msg_end(&rig);
}

static void test_garbage_is_dropped(void)
{
	uint64_t state = tei_now_ns() | 1, seed = state;
	uint8_t buf[RAIL_MSG_MAX];
	struct msg_rig rig;
	size_t len;
	int i;

	printf("# garbage: seed %llu\n", (unsigned long long)seed);
	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	for (i = 0; i < 2000; i++) {
		len = test_random(&state) % (i % 2 ? 64 : RAIL_MSG_MAX + 1);
		test_fill(buf, len, test_random(&state));
		msg_arrive(&rig, buf, len);
		if (len < RAIL_WIRE_HEADER)
			continue;
		/* random bytes after a valid header */
		msg_head(&rig, buf, (uint8_t)(i % 12), 0, MSG_FUZZ);
		msg_set_number(buf, 8, len, 4);
		msg_arrive(&rig, buf, len);
	}
	msg_check_good(&rig);
	msg_turn(&rig);
	msg_check_good(&rig);
	msg_end(&rig);
}

static void test_a_wrong_header_is_refused(void)
{
	uint8_t good[RAIL_MSG_MAX], buf[RAIL_MSG_MAX];
	struct msg_rig rig;
	size_t len;
	int i;

	msg_begin(&rig);
	len = msg_valid(&rig, good, RAIL_MSG_HELLO, MSG_GOOD);
	for (i = 0; i < 12; i++) {
		if (i > 4 && i < 8)
			continue;	/* a changed type or flags may result in
					 * a valid message */
		memcpy(buf, good, len);
		buf[i] ^= 0x10;		/* changes the magic, the version or the
					 * length */
		msg_arrive(&rig, buf, len);
	}
	memcpy(buf, good, len);
	msg_set_number(buf, 16, 0, 8);	/* sets the sender's incarnation to 0,
					 * which is invalid */
	msg_arrive(&rig, buf, len);
	msg_set_number(buf, 16, rig.plane.dp->incarnation, 8);
	msg_arrive(&rig, buf, len);	/* sends the message with this process
					 * as its sender */
	msg_arrive(&rig, good, len - 1);
	CU_ASSERT_EQUAL(rig.plane.dp->peers.n, 0);
	msg_arrive(&rig, good, len);
	msg_check_good(&rig);
	msg_end(&rig);
}

/* Delivers the message truncated to each shorter length: once with its original
 * length in the header, and once with the truncated length. */
static void msg_truncate(struct msg_rig *rig, int type)
{
	uint8_t buf[RAIL_MSG_MAX];
	size_t n, len = msg_valid(rig, buf, type, MSG_FUZZ), left;
	uint8_t junk[RAIL_MSG_MAX];
	struct rail_wire tail = { .p = junk, .cap = sizeof(junk) };

	left = len - msg_put_tail(rig, &tail);
	for (n = 0; n < len; n++) {
		msg_arrive(rig, buf, n);
		if (n < RAIL_WIRE_HEADER)
			continue;
		/* a hello may end after the list of rails, or after the session
		 * number */
		if (type == RAIL_MSG_HELLO &&
		    (n == left || n == left + MSG_SESSION))
			continue;
		msg_set_number(buf, 8, n, 4);
		msg_arrive(rig, buf, n);
		msg_set_number(buf, 8, len, 4);
	}
}

static void test_truncated_messages_do_nothing(void)
{
	struct tei_rail_peer *p;
	struct msg_rig rig;
	uint32_t before;
	int type;

	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	msg_truncate(&rig, RAIL_MSG_HELLO);
	p = msg_peer(&rig, MSG_FUZZ);
	CU_ASSERT(!p || p->state == RAIL_PEER_NEW);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_FUZZ);
	p = msg_peer(&rig, MSG_FUZZ);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	before = test_notified();
	for (type = RAIL_MSG_REFUSE; type <= RAIL_MSG_ATOMIC_REP; type++)
		msg_truncate(&rig, type);
	msg_truncate(&rig, RAIL_MSG_NOTE_ACK);
	CU_ASSERT_EQUAL(p->state, RAIL_PEER_READY);
	CU_ASSERT_FALSE(p->keys.reply.answer_pending);
	CU_ASSERT_FALSE(rail_fence_answer_due(&p->fence));
	CU_ASSERT_EQUAL(p->remotes[0].gen, 1);
	CU_ASSERT_EQUAL(test_notified(), before);
	msg_check_good(&rig);
	msg_turn(&rig);
	msg_end(&rig);
}

static void msg_mutate(struct msg_rig *rig, struct tei_fuzz *f)
{
	/* any type up to RAIL_MSG_ATOMIC_REP; number 0 stands for
	 * RAIL_MSG_NOTE_ACK */
	int type = (int)(tei_fuzz_random(f) % (RAIL_MSG_ATOMIC_REP + 1));
	uint8_t buf[RAIL_MSG_MAX + 64];
	size_t len = msg_valid(rig, buf, type ? type : RAIL_MSG_NOTE_ACK,
			       MSG_FUZZ);

	/* most changes are made behind the header, because the parser stops at
	 * a bad header */
	tei_fuzz_bytes(f, buf, len, RAIL_WIRE_HEADER);
	if (!(tei_fuzz_random(f) % 4))
		len = tei_fuzz_random(f) % (len + 64);
	msg_set_number(buf, 8, len, 4);
	msg_arrive(rig, buf, len);
}

static void test_fuzzed_messages_do_no_harm(void)
{
	struct msg_rig rig;
	struct tei_fuzz f;

	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	/* a reference to this peer prevents its eviction by an unauthenticated
	 * peer */
	msg_peer(&rig, MSG_GOOD)->refs++;
	msg_send(&rig, RAIL_MSG_HELLO, MSG_FUZZ);
	for (tei_fuzz_begin(&f, "messages"); tei_fuzz_next(&f, MSG_MUTATIONS);) {
		msg_mutate(&rig, &f);
		if (f.rounds % 4000 == 1)
			msg_turn(&rig);
	}
	msg_check_good(&rig);
	msg_turn(&rig);
	msg_check_good(&rig);
	msg_end(&rig);
}

static void test_messages_to_another_incarnation_are_ignored(void)
{
	uint32_t before = test_notified();
	uint8_t buf[RAIL_MSG_MAX];
	struct tei_rail_peer *p;
	struct msg_rig rig;
	size_t len;
	int type;

	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	p = msg_peer(&rig, MSG_GOOD);
	for (type = RAIL_MSG_REFUSE; type <= RAIL_MSG_ATOMIC_REP; type++) {
		len = msg_valid(&rig, buf, type, MSG_GOOD);
		msg_set_number(buf, 24, 0xbad, 8);
		msg_arrive(&rig, buf, len);
		msg_set_number(buf, 24, 0, 8);
		msg_arrive(&rig, buf, len);
	}
	CU_ASSERT_EQUAL(test_notified(), before);
	CU_ASSERT_FALSE(p->keys.reply.answer_pending);
	CU_ASSERT_FALSE(rail_fence_answer_due(&p->fence));
	CU_ASSERT_EQUAL(p->keys.rkeys.n, 0);
	CU_ASSERT_EQUAL(p->refusal.incarnation, 0);
	msg_check_good(&rig);
	/* a hello that was meant for a predecessor of this process is
	 * refused */
	len = msg_valid(&rig, buf, RAIL_MSG_HELLO, MSG_GOOD);
	msg_set_number(buf, 24, 0xbad, 8);
	msg_arrive(&rig, buf, len);
	CU_ASSERT_EQUAL(p->refusal.incarnation, 0xbad);
	msg_check_good(&rig);
	msg_end(&rig);
}

/* Frees the peers that have gone, as the progress thread does. */
static void msg_free_gone(struct msg_rig *rig)
{
	struct tei_rail_peer *p, *tmp;

	rail_sched_enter(rig->plane.dp);
	tei_list_foreach_safe (p, tmp, &rig->plane.dp->peers.list,
			       struct tei_rail_peer, link)
		rail_peer_maybe_free(p);
	rail_sched_leave(rig->plane.dp);
}

static void msg_hold_all(struct msg_rig *rig, bool hold)
{
	struct tei_rail_peer *p;

	rail_sched_enter(rig->plane.dp);
	tei_list_foreach (p, &rig->plane.dp->peers.list, struct tei_rail_peer,
			  link)
		p->refs = hold;
	rail_sched_leave(rig->plane.dp);
}

static void test_the_peer_silent_for_longest_is_evicted(void)
{
	struct msg_rig rig;
	uint64_t i;

	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	for (i = 1; i < MSG_PEERS; i++)
		msg_send(&rig, RAIL_MSG_HELLO, 0x10000 + i);
	CU_ASSERT_EQUAL(rig.plane.dp->peers.n, MSG_PEERS);
	/* MSG_GOOD cannot be evicted because it is in use. The next peer,
	 * 0x10001, gives a sign of life, so 0x10002 has been silent for
	 * longest. */
	msg_peer(&rig, MSG_GOOD)->refs++;
	msg_send(&rig, RAIL_MSG_HELLO, 0x10001);
	msg_send(&rig, RAIL_MSG_HELLO, 0x20000);
	CU_ASSERT_EQUAL(rig.plane.dp->peers.n, MSG_PEERS);
	CU_ASSERT_PTR_NOT_NULL(msg_peer(&rig, 0x20000));
	CU_ASSERT_PTR_NOT_NULL(msg_peer(&rig, MSG_GOOD));
	CU_ASSERT_PTR_NOT_NULL(msg_peer(&rig, 0x10001));
	CU_ASSERT_PTR_NULL(msg_peer(&rig, 0x10002));
	/* the evicted peer is alive after all: its hello creates the peer again
	 * and evicts the next one */
	msg_send(&rig, RAIL_MSG_HELLO, 0x10002);
	CU_ASSERT_PTR_NOT_NULL_FATAL(msg_peer(&rig, 0x10002));
	CU_ASSERT_EQUAL(msg_peer(&rig, 0x10002)->state, RAIL_PEER_READY);
	CU_ASSERT_PTR_NULL(msg_peer(&rig, 0x10003));
	msg_free_gone(&rig);
	CU_ASSERT_EQUAL(rig.plane.dp->peers.n, MSG_PEERS);
	CU_ASSERT_PTR_NOT_NULL(msg_peer(&rig, 0x10002));
	msg_hold_all(&rig, false);
	msg_check_good(&rig);
	msg_end(&rig);
}

static void test_a_region_of_a_forgotten_key_holder_is_fenced(void)
{
	static char mem[4096];
	struct tei_rail_mr *mr = NULL;
	struct msg_rig rig;
	struct tei_err err;
	uint64_t i;

	msg_begin(&rig);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig.plane.dp, mem, sizeof(mem),
					      "*", TEI_RAIL_REMOTE, &err, &mr), 0);
	for (i = 1; i <= 3; i++)
		msg_send(&rig, RAIL_MSG_HELLO, 0x10000 + i);
	rail_sched_enter(rig.plane.dp);
	for (i = 1; i <= 3; i++)
		rail_key_add_holder(mr, 0x10000 + i);
	rail_sched_leave(rig.plane.dp);
	/* this peer sends BYE without RAIL_WIRE_UNDRAINED, so none of its
	 * operations can still arrive */
	msg_send(&rig, RAIL_MSG_BYE, 0x10001);
	CU_ASSERT_EQUAL(mr->nholders, 2);
	CU_ASSERT_FALSE(mr->lost);
	for (i = 10; i < 10 + MSG_PEERS; i++)
		msg_send(&rig, RAIL_MSG_HELLO, 0x10000 + i);
	CU_ASSERT_EQUAL(mr->nholders, 0);
	CU_ASSERT(mr->lost);
	msg_end(&rig);
}

static void test_a_region_of_a_peer_that_left_amid_writes_is_fenced(void)
{
	static char mem[4096];
	struct tei_rail_mr *mr = NULL;
	uint8_t buf[RAIL_MSG_MAX];
	struct msg_rig rig;
	struct rail_wire w;
	struct tei_err err;

	msg_begin(&rig);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig.plane.dp, mem, sizeof(mem),
					      "*", TEI_RAIL_REMOTE, &err, &mr), 0);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	rail_sched_enter(rig.plane.dp);
	rail_key_add_holder(mr, MSG_GOOD);
	rail_sched_leave(rig.plane.dp);
	w = msg_head(&rig, buf, RAIL_MSG_BYE, RAIL_WIRE_UNDRAINED, MSG_GOOD);
	msg_arrive(&rig, buf, rail_msg_end(&w));
	CU_ASSERT_EQUAL(msg_peer(&rig, MSG_GOOD)->state, RAIL_PEER_GONE);
	CU_ASSERT_EQUAL(mr->nholders, 0);
	CU_ASSERT(mr->lost);
	msg_end(&rig);
}

static void test_a_silent_peer_is_asked_and_forgotten(void)
{
	struct tei_rail_peer *p, *q;
	struct msg_rig rig;
	uint64_t late;

	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_FUZZ);
	p = msg_peer(&rig, MSG_GOOD);
	q = msg_peer(&rig, MSG_FUZZ);
	rail_peer_probe(rig.plane.dp, tei_now_ns());
	CU_ASSERT(!p->life.probing && !q->life.probing);
	late = tei_now_ns() + rig.plane.dp->times.probe_ns;
	rail_peer_probe(rig.plane.dp, late);
	CU_ASSERT(p->life.probing && !q->life.probing);
	rail_peer_probe(rig.plane.dp, late);
	CU_ASSERT(p->life.probing && q->life.probing);
	/* MSG_FUZZ shows with a hello that it is alive. MSG_GOOD is pinged
	 * again and then forgotten. */
	msg_send(&rig, RAIL_MSG_HELLO, MSG_FUZZ);
	CU_ASSERT_FALSE(q->life.probing);
	CU_ASSERT(rail_peer_run(p, late + 1) > late);
	CU_ASSERT_EQUAL(p->state, RAIL_PEER_READY);
	rail_peer_run(p, late + rig.plane.dp->times.probe_ns);
	CU_ASSERT_EQUAL(p->state, RAIL_PEER_GONE);
	rail_peer_run(q, late + rig.plane.dp->times.probe_ns);
	CU_ASSERT_EQUAL(q->state, RAIL_PEER_READY);
	CU_ASSERT_PTR_NULL(msg_peer(&rig, MSG_GOOD));
	msg_free_gone(&rig);
	CU_ASSERT_EQUAL(rig.plane.dp->peers.n, 1);
	/* a peer that is in use is not pinged */
	q->refs++;
	rail_peer_probe(rig.plane.dp, late + 2 * rig.plane.dp->times.probe_ns);
	CU_ASSERT_FALSE(q->life.probing);
	q->refs--;
	msg_end(&rig);
}

static void test_peers_beyond_the_limit_are_not_accepted(void)
{
	struct tei_rail_peer *p;
	struct msg_rig rig;
	uint64_t i;

	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	for (i = 1; i <= 1000; i++) {
		/* all peers are in use, so that none can be evicted */
		msg_hold_all(&rig, true);
		msg_send(&rig, RAIL_MSG_HELLO, 0x10000 + i);
		CU_ASSERT(rig.plane.dp->peers.n <= MSG_PEERS);
	}
	CU_ASSERT_EQUAL(rig.plane.dp->peers.n, MSG_PEERS);
	CU_ASSERT_PTR_NULL(msg_peer(&rig, 0x10000 + MSG_PEERS));
	msg_check_good(&rig);
	/* after one peer has left, another one is accepted */
	msg_hold_all(&rig, false);
	p = msg_peer(&rig, 0x10001);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	msg_send(&rig, RAIL_MSG_BYE, 0x10001);
	rail_sched_enter(rig.plane.dp);
	rail_peer_maybe_free(p);
	rail_sched_leave(rig.plane.dp);
	CU_ASSERT_EQUAL(rig.plane.dp->peers.n, MSG_PEERS - 1);
	msg_send(&rig, RAIL_MSG_HELLO, 0x20000);
	CU_ASSERT_PTR_NOT_NULL(msg_peer(&rig, 0x20000));
	msg_check_good(&rig);
	msg_end(&rig);
}

static void test_a_malformed_hello_creates_no_peer(void)
{
	uint8_t buf[RAIL_MSG_MAX];
	struct msg_rig rig;
	uint32_t taken;
	size_t len;

	msg_begin(&rig);
	len = msg_valid(&rig, buf, RAIL_MSG_HELLO, MSG_FUZZ) - 1;
	msg_set_number(buf, 8, len, 4);
	msg_arrive(&rig, buf, len);
	taken = rig.plane.dp->peers.n;
	msg_end(&rig);
	CU_ASSERT_EQUAL(taken, 0);
}

/* Delivers a refusal whose sender has the incarnation 0x77: the sender has
 * received a hello that was meant for MSG_FUZZ. why, text: code and text of the
 * refusal. */
static void msg_refuse_fuzz(struct msg_rig *rig, enum rail_refusal why,
			    const char *text)
{
	uint8_t buf[RAIL_MSG_MAX];
	struct rail_wire w = msg_head(rig, buf, RAIL_MSG_REFUSE, 0, 0x77);

	rail_wire_put(&w, MSG_FUZZ, 8);
	rail_wire_put(&w, why, 2);
	msg_put_text(&w, text);
	rail_wire_put(&w, 0, 8);
	rail_wire_put(&w, 0, 8);
	msg_arrive(rig, buf, rail_msg_end(&w));
}

/* Delivers "refusals" such refusals and returns how the peer MSG_FUZZ is then
 * recorded to have ended. Before the last refusal, the peer must be READY. */
static enum rail_gone msg_gone_after(enum rail_refusal why, const char *text,
				     int refusals)
{
	struct tei_rail_peer *p;
	struct msg_rig rig;
	enum rail_gone gone;

	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_FUZZ);
	p = msg_peer(&rig, MSG_FUZZ);
	while (refusals--) {
		CU_ASSERT_EQUAL(p->state, RAIL_PEER_READY);
		msg_refuse_fuzz(&rig, why, text);
	}
	CU_ASSERT_EQUAL(p->state, RAIL_PEER_GONE);
	gone = p->gone;
	msg_end(&rig);
	return gone;
}

static void test_refusal_is_judged_by_its_code_and_not_by_its_text(void)
{
	CU_ASSERT_EQUAL(msg_gone_after(RAIL_REFUSE_STALE, "irrelevant text", 2),
			RAIL_GONE_OVER);
	CU_ASSERT_EQUAL(msg_gone_after(RAIL_REFUSE_TOO_MANY_PEERS,
				       "stale incarnation", 1),
			RAIL_GONE_PERHAPS);
	CU_ASSERT_EQUAL(msg_gone_after((enum rail_refusal)999,
				       "stale incarnation", 1),
			RAIL_GONE_PERHAPS);
}

/* The peer has two rails, and another process has the address of one of
 * them. */
static void test_peer_that_answers_elsewhere_outlives_refusals(void)
{
	struct tei_rail_peer *p;
	struct msg_rig rig;

	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_FUZZ);
	p = msg_peer(&rig, MSG_FUZZ);
	for (int i = 0; i < 3; i++) {
		msg_refuse_fuzz(&rig, RAIL_REFUSE_STALE, "stale incarnation");
		CU_ASSERT_EQUAL(p->state, RAIL_PEER_READY);
		CU_ASSERT_TRUE(p->hello.again);
		msg_send(&rig, RAIL_MSG_HELLO, MSG_FUZZ);
		CU_ASSERT_FALSE(p->hello.again);
	}
	msg_end(&rig);
}

static void test_a_refusal_ends_the_peer_that_it_names(void)
{
	struct tei_rail_peer *p;
	struct msg_rig rig;

	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_FUZZ);
	p = msg_peer(&rig, MSG_FUZZ);
	msg_send(&rig, RAIL_MSG_REFUSE, 0x77);	/* a refusal that names an
						 * unknown peer */
	CU_ASSERT_EQUAL(p->state, RAIL_PEER_READY);
	/* one refusal for each of its two rails */
	msg_refuse_fuzz(&rig, RAIL_REFUSE_STALE, "stale incarnation");
	msg_refuse_fuzz(&rig, RAIL_REFUSE_STALE, "stale incarnation");
	CU_ASSERT_EQUAL(p->state, RAIL_PEER_GONE);
	/* a later hello does not revive the peer */
	msg_send(&rig, RAIL_MSG_HELLO, MSG_FUZZ);
	CU_ASSERT_EQUAL(p->state, RAIL_PEER_GONE);
	msg_check_good(&rig);
	msg_end(&rig);
}

static void msg_send_keys(struct msg_rig *rig, uint32_t epoch)
{
	uint8_t buf[RAIL_MSG_MAX];
	struct rail_wire w = msg_head(rig, buf, RAIL_MSG_KEY_REP, 0, MSG_GOOD);

	msg_put_keys(&w, epoch);
	msg_arrive(rig, buf, rail_msg_end(&w));
}

static struct rail_rkey *msg_key(struct msg_rig *rig, struct tei_rail_peer *p,
				 uint64_t addr)
{
	struct rail_rkey *k;

	rail_sched_enter(rig->plane.dp);
	k = rail_key_find(p, addr);
	rail_sched_leave(rig->plane.dp);
	return k;
}

static void test_keys_older_than_a_revocation_are_void(void)
{
	uint8_t buf[RAIL_MSG_MAX];
	struct tei_rail_peer *p;
	struct rail_wire w;
	struct msg_rig rig;

	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	p = msg_peer(&rig, MSG_GOOD);
	msg_send_keys(&rig, 6);
	CU_ASSERT_EQUAL(p->keys.rkeys.n, 3);
	CU_ASSERT_PTR_NOT_NULL(msg_key(&rig, p, 0x11000));
	w = msg_head(&rig, buf, RAIL_MSG_REVOKE, 0, MSG_GOOD);
	rail_wire_put(&w, 7, 4);
	rail_wire_put(&w, 1, 2);
	rail_wire_put(&w, 2, 8);
	msg_arrive(&rig, buf, rail_msg_end(&w));
	CU_ASSERT_EQUAL(p->keys.rkeys.n, 2);
	CU_ASSERT_PTR_NULL(msg_key(&rig, p, 0x11000));
	CU_ASSERT_EQUAL(p->keys.nowed, 1);
	/* a key reply from before the revocation arrives late: its epoch is
	 * old */
	msg_send_keys(&rig, 6);
	CU_ASSERT_EQUAL(p->keys.rkeys.n, 2);
	msg_send_keys(&rig, 7);
	CU_ASSERT_EQUAL(p->keys.rkeys.n, 3);
	msg_check_good(&rig);
	msg_end(&rig);
}

static void test_a_key_request_is_answered(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	static char mem[4096];
	uint8_t buf[RAIL_MSG_MAX];
	struct tei_rail_mr *mr = NULL;
	struct tei_rail_peer *p;
	struct rail_wire w;
	struct msg_rig rig;
	struct tei_err err;

	msg_begin(&rig);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig.plane.dp, mem, sizeof(mem),
					      "*", TEI_RAIL_REMOTE, &err, &mr), 0);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	p = msg_peer(&rig, MSG_GOOD);
	w = msg_head(&rig, buf, RAIL_MSG_KEY_REQ, 0, MSG_GOOD);
	rail_wire_put(&w, (uintptr_t)mem, 8);
	rail_wire_put(&w, sizeof(mem), 8);
	msg_arrive(&rig, buf, rail_msg_end(&w));
	CU_ASSERT(p->keys.reply.answer_pending);
	while (p->keys.reply.answer_pending && tei_now_ns() < end)
		msg_turn(&rig);
	CU_ASSERT_FALSE(p->keys.reply.answer_pending);
	CU_ASSERT_EQUAL_FATAL(mr->nholders, 1);
	CU_ASSERT_EQUAL(mr->holders[0], MSG_GOOD);
	msg_end(&rig);
}

/* Delivers one atomic, then does the work of the progress thread. */
static void msg_send_atomic(struct msg_rig *rig, uint64_t session, uint64_t seq,
			    const void *addr)
{
	struct rail_wire w;
	uint8_t buf[RAIL_MSG_MAX];

	w = msg_head(rig, buf, RAIL_MSG_ATOMIC, 0, MSG_GOOD);
	rail_wire_put(&w, session, 8);
	rail_wire_put(&w, 1, 2);
	msg_put_atomic(&w, seq, TEI_ATOMIC_ADD, 8, (uintptr_t)addr, 1);
	msg_arrive(rig, buf, rail_msg_end(&w));
	msg_turn(rig);
}

static void test_law13_an_atomic_is_executed_once(void)
{
	static uint64_t mem[512] __attribute__((aligned(4096)));
	struct tei_rail_mr *mr = NULL;
	struct msg_rig rig;
	struct tei_err err;
	uint64_t session;
	int i;

	memset(mem, 0, sizeof(mem));
	msg_begin(&rig);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig.plane.dp, mem, sizeof(mem),
					      "*", TEI_RAIL_REMOTE, &err, &mr), 0);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	session = msg_peer(&rig, MSG_GOOD)->atomics.own_session;
	for (i = 0; i < 5; i++)
		msg_send_atomic(&rig, session, 1000, mem);
	CU_ASSERT_EQUAL(mem[0], 1);
	/* two further atomics arrive out of order, and each of them arrives
	 * twice */
	msg_send_atomic(&rig, session, 1001, mem);
	msg_send_atomic(&rig, session, 999, mem);
	msg_send_atomic(&rig, session, 1001, mem);
	msg_send_atomic(&rig, session, 999, mem);
	CU_ASSERT_EQUAL(mem[0], 3);
	/* the number that takes the table entry of number 1000, then a late
	 * copy of number 1000 */
	msg_send_atomic(&rig, session, 1000 + RAIL_ATOMICS, mem);
	CU_ASSERT_EQUAL(mem[0], 4);
	msg_send_atomic(&rig, session, 1000, mem);
	CU_ASSERT_EQUAL(mem[0], 4);
	/* atomics of another session are not executed */
	msg_send_atomic(&rig, session + 1, 5000, mem);
	msg_send_atomic(&rig, 0, 5001, mem);
	CU_ASSERT_EQUAL(mem[0], 4);
	/* atomics on memory that is not registered, or on an unaligned address,
	 * are not executed */
	msg_send_atomic(&rig, session, 6000, mem + 512);
	msg_send_atomic(&rig, session, 6001, (char *)mem + 4);
	CU_ASSERT(mem[0] == 4 && mem[1] == 0);
	CU_ASSERT_EQUAL(mr->tasks, 0);
	msg_end(&rig);
}

/* Delivers one message with n atomics. said: number of atomics that the message
 * states. */
static void msg_send_atomics(struct msg_rig *rig, const uint64_t (*op)[4],
			     uint32_t n, uint32_t said)
{
	struct rail_wire w;
	uint8_t buf[RAIL_MSG_MAX];
	uint32_t i;

	w = msg_head(rig, buf, RAIL_MSG_ATOMIC, 0, MSG_GOOD);
	rail_wire_put(&w, msg_peer(rig, MSG_GOOD)->atomics.own_session, 8);
	rail_wire_put(&w, said, 2);
	for (i = 0; i < n; i++)
		msg_put_atomic(&w, op[i][0], (uint8_t)op[i][1],
			       (uint8_t)op[i][2], op[i][3], 1);
	msg_arrive(rig, buf, rail_msg_end(&w));
	msg_turn(rig);
}

#define MSG_FLOOD 400

static void test_hostile_atomics_change_nothing(void)
{
	static uint64_t mem[1024] __attribute__((aligned(4096)));
	uint64_t at = (uintptr_t)mem, end = (uintptr_t)(mem + 512);
	const uint64_t bad[][4] = {
		{ 0, TEI_ATOMIC_ADD, 8, at },	/* refused, because sequence
						 * number 0 is invalid */
		{ 1, 0, 8, at }, { 2, 4, 8, at }, { 3, 255, 8, at },
		{ 4, TEI_ATOMIC_ADD, 0, at }, { 5, TEI_ATOMIC_ADD, 1, at },
		{ 6, TEI_ATOMIC_ADD, 16, at }, { 7, TEI_ATOMIC_ADD, 255, at },
		{ 8, TEI_ATOMIC_SWAP, 8, at + 1 },
		{ 9, TEI_ATOMIC_ADD, 8, at + 4 },
		{ 10, TEI_ATOMIC_ADD, 4, at + 2 },
		{ 11, TEI_ATOMIC_ADD, 8, at - 8 },
		{ 12, TEI_ATOMIC_ADD, 8, end - 4 },
		{ 13, TEI_ATOMIC_ADD, 8, end },	/* the target is registered, but
						 * not accessible to peers */
		{ 14, TEI_ATOMIC_ADD, 8, 0 },
		{ 15, TEI_ATOMIC_ADD, 8, UINT64_MAX - 7 },
	};
	uint64_t flood[MSG_FLOOD][4];
	struct tei_rail_mr *mr = NULL, *own = NULL;
	struct msg_rig rig;
	struct tei_err err;
	uint32_t i, n = sizeof(bad) / sizeof(bad[0]);

	memset(mem, 0, sizeof(mem));
	msg_begin(&rig);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig.plane.dp, mem, 4096, "*",
					      TEI_RAIL_REMOTE, &err, &mr), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig.plane.dp, mem + 512, 4096,
					      "*", 0, &err, &own), 0);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	for (i = 0; i < n; i++)
		msg_send_atomics(&rig, &bad[i], 1, 1);
	msg_send_atomics(&rig, bad + 1, n - 1, 65535);
	for (i = 0; i < 1024; i++)
		CU_ASSERT_EQUAL_FATAL(mem[i], 0);
	/* first more atomics in one message than the table has entries, then
	 * the same sequence number many times */
	for (i = 0; i < MSG_FLOOD; i++) {
		flood[i][0] = 1000 + i;
		flood[i][1] = TEI_ATOMIC_ADD;
		flood[i][2] = 8;
		flood[i][3] = at;
	}
	msg_send_atomics(&rig, flood, MSG_FLOOD, MSG_FLOOD);
	CU_ASSERT(mem[0] <= MSG_FLOOD);
	mem[0] = 0;
	for (i = 0; i < MSG_FLOOD; i++)
		flood[i][0] = 5000;
	msg_send_atomics(&rig, flood, MSG_FLOOD, 65535);
	CU_ASSERT_EQUAL(mem[0], 1);
	CU_ASSERT(mr->tasks == 0 && own->tasks == 0);
	msg_end(&rig);
}

static void msg_send_fence(struct msg_rig *rig, uint16_t rail, uint32_t gen)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct tei_rail_peer *p = msg_peer(rig, MSG_GOOD);
	uint8_t buf[RAIL_MSG_MAX];
	struct rail_wire w = msg_head(rig, buf, RAIL_MSG_FENCE, 0, MSG_GOOD);

	rail_wire_put(&w, rail, 2);
	rail_wire_put(&w, gen, 4);
	msg_arrive(rig, buf, rail_msg_end(&w));
	while ((rail_fence_answer_due(&p->fence) ||
		rail_fence_rx_any(rig->lane->rail->dp)) &&
	       tei_now_ns() < end) {
		msg_turn(rig);
		rail_fence_run(rig->lane->rail->dp);
		rail_fence_collect(rig->lane->rail);
	}
	CU_ASSERT_FALSE(rail_fence_answer_due(&p->fence));
}

static void test_a_fence_closes_a_generation_once(void)
{
	struct msg_rig rig;
	uint32_t gen;

	msg_begin(&rig);
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	gen = rig.lane->gen;
	msg_send_fence(&rig, 0, gen - 1);
	CU_ASSERT_EQUAL(rig.lane->gen, gen);
	msg_send_fence(&rig, 0, gen);
	CU_ASSERT_EQUAL(rig.lane->gen, gen + 1);
	CU_ASSERT_EQUAL(rig.lane->state, RAIL_LANE_ACTIVE);
	msg_send_fence(&rig, 0, gen);
	CU_ASSERT_EQUAL(rig.lane->gen, gen + 1);
	/* the second message names a rail that does not exist */
	msg_send_fence(&rig, 1, gen + 1);
	msg_send_fence(&rig, UINT16_MAX, gen + 1);
	CU_ASSERT_EQUAL(rig.lane->gen, gen + 1);
	msg_check_good(&rig);
	msg_end(&rig);
}

/* --- the rail pair of a message ------------------------------------------ */

static struct rail_conn *msg_conn(struct msg_rig *rig, uint32_t rail,
				  uint16_t remote)
{
	struct tei_rail_peer *p = msg_peer(rig, MSG_GOOD);
	struct rail_conn *conn;

	rail_sched_enter(rig->plane.dp);
	conn = rail_conn_get(p, &rail_at(rig->plane.dp, rail)->tx_lanes[0],
			     remote);
	rail_sched_leave(rig->plane.dp);
	CU_ASSERT_PTR_NOT_NULL_FATAL(conn);
	return conn;
}

/* Sends messages over the given rail pair until one has been accepted, which
 * shows that the pair is connected. */
static void msg_connect(struct msg_rig *rig, uint32_t rail, int16_t remote)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	uint8_t buf[RAIL_MSG_MAX];
	size_t len = msg_valid(rig, buf, RAIL_MSG_NOTIFY, MSG_GOOD);
	struct rail_lane *lane;
	struct rail_conn *conn;

	while (rail_msg_try_pair(msg_peer(rig, MSG_GOOD),
				 rail_at(rig->plane.dp, rail), 0, remote, buf,
				 len, &lane, &conn) &&
	       tei_now_ns() < end)
		msg_turn(rig);
	CU_ASSERT(tei_now_ns() < end);
}

/* Tests that a fence is requested over another rail pair than the one that is
 * down, even though the peer's last message arrived over the pair that is
 * down. */
static void test_a_fence_request_avoids_a_pair_that_is_down(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS, asked;
	struct tei_rail_dp *dp;
	struct tei_rail_peer *p;
	struct msg_rig rig;
	bool wanted = true;

	msg_begin(&rig);
	dp = rig.plane.dp;
	msg_send(&rig, RAIL_MSG_HELLO, MSG_GOOD);
	p = msg_peer(&rig, MSG_GOOD);
	msg_connect(&rig, 0, 0);
	msg_connect(&rig, 0, 1);
	/* lets the other code believe that the progress thread runs, because
	 * the test calls the functions of this thread */
	__atomic_store_n(&dp->thread.stop, false, __ATOMIC_RELEASE);
	rail_sched_enter(dp);
	rail_health_down(p, rail_at(dp, 0), 0, "by test", false);
	CU_ASSERT_EQUAL(p->routes.route[0], 1);
	__atomic_store_n(&p->life.received, 1 << 8, __ATOMIC_RELAXED);
	p->alive_ns = tei_now_ns();
	rail_fence_event(p, 0, RAIL_FENCE_EV_FAILED,
			 &(struct rail_fence_args){ .gen = 1 });
	rail_sched_leave(dp);
	asked = msg_conn(&rig, 0, 0)->asked_ns;
	msg_conn(&rig, 0, 1)->asked_ns = 0;
	while (wanted && tei_now_ns() < end) {
		msg_turn(&rig);
		rail_sched_enter(dp);
		wanted = !p->remotes[0].fence.tries;
		rail_sched_leave(dp);
	}
	CU_ASSERT(!wanted);
	CU_ASSERT_EQUAL(msg_conn(&rig, 0, 0)->asked_ns, asked);
	CU_ASSERT(msg_conn(&rig, 0, 1)->asked_ns > 0);
	__atomic_store_n(&dp->thread.stop, true, __ATOMIC_RELEASE);
	msg_end(&rig);
}

/* --- send buffers -------------------------------------------------------- */

#define MSG_GREEDY	5

/* Posts messages to the peer until no further send buffer is given to it. Does
 * not poll, so that no buffer becomes free meanwhile. Returns the number of
 * messages. */
static uint32_t msg_fill(struct test_pair *pair, struct tei_rail_peer *peer)
{
	struct rail_conn *conn;
	struct rail_lane *lane;
	struct rail_wire w;
	uint8_t buf[RAIL_MSG_MAX];
	uint32_t n = 0;
	size_t len;

	rail_msg_begin(peer, &w, buf, RAIL_MSG_PING, 0);
	rail_wire_put(&w, 0, 8);
	len = rail_msg_end(&w);
	while (n <= RAIL_TX_MSGS && !rail_msg_try_pair(peer, pair->rail, 0, -1,
						       buf, len, &lane, &conn))
		n++;
	return n;
}

static void msg_drained(struct test_pair *pair)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;

	while (!rail_msg_idle(pair->rail) && tei_now_ns() < end)
		rail_lane_run(&pair->rail->tx_lanes[0]);
	CU_ASSERT_EQUAL(pair->rail->send.left, RAIL_TX_MSGS);
}

/* Tests that send buffers are divided among peers: several connected peers each
 * take as many buffers as they may, and another peer still gets some. */
static void test_peers_cannot_take_all_send_buffers(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct tei_rail_peer *peer[MSG_GREEDY];
	struct test_plane to[MSG_GREEDY];
	struct test_pair pair;
	uint32_t i, n = 0, one;

	test_pair_open(&pair);
	for (i = 0; i < MSG_GREEDY; i++) {
		test_plane_init(&to[i]);
		test_plane_open(&to[i], "127.0.0.4");
		peer[i] = test_plane_peer(&pair.from, &to[i]);
		while (!msg_fill(&pair, peer[i]) && tei_now_ns() < end)
			rail_lane_run(&pair.rail->tx_lanes[0]);
		msg_drained(&pair);
	}
	for (i = 0; i < MSG_GREEDY; i++) {
		one = msg_fill(&pair, peer[i]);
		CU_ASSERT(one > 0);
		CU_ASSERT(i || one >= RAIL_TX_MSGS / 2);
		n += one;
	}
	CU_ASSERT_EQUAL(n + pair.rail->send.left, RAIL_TX_MSGS);
	/* a peer that uses no buffer gets one of the last buffers */
	CU_ASSERT(msg_fill(&pair, pair.peer) > 0);
	msg_drained(&pair);
	for (i = 0; i < MSG_GREEDY; i++)
		tei_rail_peer_put(peer[i]);
	test_pair_close(&pair);
	for (i = 0; i < MSG_GREEDY; i++)
		test_plane_close(&to[i]);
}

const struct tei_test_case rail_dispatch_cases[] = {
	{ "a_hello_introduces_a_peer", test_a_hello_introduces_a_peer },
	{ "messages_of_unknown_senders_are_dropped",
	  test_messages_of_unknown_senders_are_dropped },
	{ "garbage_is_dropped", test_garbage_is_dropped },
	{ "a_wrong_header_is_refused", test_a_wrong_header_is_refused },
	{ "truncated_messages_do_nothing", test_truncated_messages_do_nothing },
	{ "fuzzed_messages_do_no_harm", test_fuzzed_messages_do_no_harm },
	{ "messages_to_another_incarnation_are_ignored",
	  test_messages_to_another_incarnation_are_ignored },
	{ "peers_beyond_the_limit_are_not_accepted",
	  test_peers_beyond_the_limit_are_not_accepted },
	{ "the_peer_silent_for_longest_is_evicted",
	  test_the_peer_silent_for_longest_is_evicted },
	{ "a_region_of_a_forgotten_key_holder_is_fenced",
	  test_a_region_of_a_forgotten_key_holder_is_fenced },
	{ "a_region_of_a_peer_that_left_amid_writes_is_fenced",
	  test_a_region_of_a_peer_that_left_amid_writes_is_fenced },
	{ "a_silent_peer_is_asked_and_forgotten",
	  test_a_silent_peer_is_asked_and_forgotten },
	{ "a_malformed_hello_creates_no_peer",
	  test_a_malformed_hello_creates_no_peer },
	{ "refusal_is_judged_by_its_code_and_not_by_its_text",
	  test_refusal_is_judged_by_its_code_and_not_by_its_text },
	{ "peer_that_answers_elsewhere_outlives_refusals",
	  test_peer_that_answers_elsewhere_outlives_refusals },
	{ "a_refusal_ends_the_peer_that_it_names",
	  test_a_refusal_ends_the_peer_that_it_names },
	{ "keys_older_than_a_revocation_are_void",
	  test_keys_older_than_a_revocation_are_void },
	{ "a_key_request_is_answered", test_a_key_request_is_answered },
	{ "law13_an_atomic_is_executed_once",
	  test_law13_an_atomic_is_executed_once },
	{ "hostile_atomics_change_nothing",
	  test_hostile_atomics_change_nothing },
	{ "a_fence_closes_a_generation_once",
	  test_a_fence_closes_a_generation_once },
	{ "a_fence_request_avoids_a_pair_that_is_down",
	  test_a_fence_request_avoids_a_pair_that_is_down },
	{ "peers_cannot_take_all_send_buffers",
	  test_peers_cannot_take_all_send_buffers },
	{ NULL, NULL },
};
