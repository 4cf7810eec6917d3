/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests the authentication of peer messages: data planes with the same secret,
 * with different ones or with none, and messages that are recorded, altered and
 * replayed.
 */

#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_hello_msg.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_dispatch.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_auth.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/err.h"
#include "util/lock.h"
#include "util/secret.h"


struct auth_rig {
	struct test_plane one, two;
	struct tei_secret *secret[2];
	struct tei_rail_peer *peer;	/* peer object in plane one that
					 * represents plane two */
};

static void auth_begin(struct auth_rig *rig, const char *one, const char *two)
{
	memset(rig, 0, sizeof(*rig));
	test_plane_init(&rig->one);
	test_plane_init(&rig->two);
	if (one)
		CU_ASSERT_EQUAL_FATAL(tei_secret_make(one, strlen(one),
						      &rig->secret[0]), 0);
	if (two)
		CU_ASSERT_EQUAL_FATAL(tei_secret_make(two, strlen(two),
						      &rig->secret[1]), 0);
	rig->one.secret = rig->secret[0];
	rig->two.secret = rig->secret[1];
	test_plane_open(&rig->one, "127.0.0.1");
	test_plane_open(&rig->two, "127.0.0.2");
	rig->peer = test_plane_peer(&rig->one, &rig->two);
}

static void auth_end(struct auth_rig *rig)
{
	tei_rail_peer_put(rig->peer);
	test_plane_close(&rig->one);
	test_plane_close(&rig->two);
	tei_secret_free(rig->secret[0]);
	tei_secret_free(rig->secret[1]);
}

/* Writes from plane one to plane two. Returns how the task ended, and its error
 * code in *code. Checks that plane two has a peer and a key holder only if the
 * task completed. */
static enum tei_rail_end auth_move(struct auth_rig *rig, int *code)
{
	static char from[4096], to[4096];
	struct tei_rail_mr *mr;
	struct test_task t;
	struct tei_err err;

	memset(from, 'a', sizeof(from));
	memset(to, 'b', sizeof(to));
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig->one.dp, from, sizeof(from),
					      "*", 0, &err, &mr), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig->two.dp, to, sizeof(to), "*",
					      TEI_RAIL_REMOTE, &err, &mr), 0);
	test_task_init(&t, rig->peer, false, from, to, sizeof(from));
	CU_ASSERT_EQUAL_FATAL(test_submit(rig->one.dp, &t, 1), 0);
	CU_ASSERT_FATAL(test_wait(&t, 1));
	CU_ASSERT_EQUAL(!memcmp(from, to, sizeof(to)),
			t.end == TEI_RAIL_END_COMPLETED);
	rail_sched_enter(rig->two.dp);
	CU_ASSERT_EQUAL(mr->nholders != 0, t.end == TEI_RAIL_END_COMPLETED);
	CU_ASSERT_EQUAL(rig->two.dp->peers.n != 0,
			t.end == TEI_RAIL_END_COMPLETED);
	rail_sched_leave(rig->two.dp);
	*code = t.code;
	return t.end;
}

static void test_write_with_same_secret_completes(void)
{
	struct auth_rig rig;
	int code;

	auth_begin(&rig, "a secret of enough bytes",
		   "a secret of enough bytes");
	CU_ASSERT_EQUAL(auth_move(&rig, &code), TEI_RAIL_END_COMPLETED);
	auth_end(&rig);
}

/* Checks that a task is rejected, and that the target has no peer, if the
 * planes have these secrets. NULL means no secret. */
static void auth_refused(const char *one, const char *two)
{
	struct auth_rig rig;
	int code;

	auth_begin(&rig, one, two);
	CU_ASSERT_EQUAL(auth_move(&rig, &code), TEI_RAIL_END_FAILED);
	CU_ASSERT_EQUAL(code, TEI_ERR_REJECTED);
	auth_end(&rig);
}

static void test_peer_without_secret_is_rejected(void)
{
	auth_refused(NULL, "a secret of enough bytes");
}

static void test_peer_with_other_secret_is_rejected(void)
{
	auth_refused("another one, as long as that",
		     "a secret of enough bytes");
}

static void test_peer_with_secret_is_rejected_by_plane_without(void)
{
	auth_refused("a secret of enough bytes", NULL);
}

/* --- recorded and altered messages --------------------------------------- */

static void auth_arrive(struct test_plane *at, const uint8_t *msg, size_t len)
{
	struct rail_lane *lane = &rail_at(at->dp, 0)->rx_lane;
	struct rail_done done;

	rail_done_init(&done);
	tei_mutex_lock(&lane->lock);
	rail_msg_received(lane, msg, len, &done);
	tei_mutex_unlock(&lane->lock);
	rail_done_run(at->dp, &done);
}

static struct tei_rail_peer *auth_known(struct auth_rig *rig)
{
	struct tei_rail_peer *p;

	rail_sched_enter(rig->two.dp);
	p = rail_peer_find(rig->two.dp, rig->one.dp->incarnation);
	rail_sched_leave(rig->two.dp);
	return p;
}

/* Composes and signs a hello of plane one to plane two. Returns its length. */
static size_t auth_hello(struct auth_rig *rig, uint8_t *buf)
{
	size_t len = rail_msg_hello(rig->peer, false, buf);

	rail_auth_sign(rig->peer, buf, len);
	return len;
}

static size_t auth_note(struct auth_rig *rig, uint64_t number, uint8_t *buf)
{
	struct rail_wire w;
	size_t len;

	rail_msg_begin(rig->peer, &w, buf, RAIL_MSG_NOTIFY, 0);
	rail_wire_put(&w, auth_known(rig)->atomics.own_session, 8);
	rail_wire_put(&w, rig->peer->atomics.own_session, 8);
	rail_wire_put(&w, number, 8);	/* number of the oldest notification
					 * that the sender holds */
	rail_wire_put(&w, number, 8);
	rail_wire_put(&w, number, 8);	/* turn */
	rail_wire_put(&w, 4, 4);
	rail_wire_put(&w, 4, 4);
	rail_wire_put(&w, 0, 4);
	rail_wire_put_bytes(&w, "nametext", 8);
	len = rail_msg_end(&w);
	rail_auth_sign(rig->peer, buf, len);
	return len;
}

/* Opens both planes with the same secret, stops their progress threads, and
 * makes each plane know the other's nonce. */
static void auth_still(struct auth_rig *rig)
{
	uint8_t buf[RAIL_MSG_MAX];

	auth_begin(rig, "a secret of enough bytes",
		   "a secret of enough bytes");
	test_plane_still(&rig->one);
	test_plane_still(&rig->two);
	auth_arrive(&rig->two, buf, auth_hello(rig, buf));
	CU_ASSERT_PTR_NOT_NULL_FATAL(auth_known(rig));
	CU_ASSERT_EQUAL(auth_known(rig)->state, RAIL_PEER_READY);
	memcpy(rig->peer->auth.its_nonce, auth_known(rig)->auth.nonce,
	       RAIL_WIRE_NONCE);
}

static void test_replayed_message_is_dropped(void)
{
	uint8_t note[RAIL_MSG_MAX], late[RAIL_MSG_MAX], hello[RAIL_MSG_MAX];
	uint32_t before = test_notified();
	size_t n, m, h;
	struct auth_rig rig;

	auth_still(&rig);
	m = auth_note(&rig, 2, late);	/* this message is signed first, but
					 * arrives second */
	n = auth_note(&rig, 1, note);
	auth_arrive(&rig.two, note, n);
	auth_arrive(&rig.two, late, m);	/* is out of order, but not replayed */
	CU_ASSERT_EQUAL(test_notified(), before + 2);
	auth_arrive(&rig.two, note, n);
	auth_arrive(&rig.two, late, m);
	CU_ASSERT_EQUAL(test_notified(), before + 2);
	/* a replayed hello does not restore the old nonce that it carries */
	h = auth_hello(&rig, hello);
	rig.peer->auth.nonce[0] ^= 1;
	n = auth_hello(&rig, note);
	auth_arrive(&rig.two, note, n);
	auth_arrive(&rig.two, hello, h);
	CU_ASSERT_EQUAL(memcmp(auth_known(&rig)->auth.its_nonce,
			       rig.peer->auth.nonce, RAIL_WIRE_NONCE),
			0);
	auth_end(&rig);
}

static void test_recorded_message_is_dropped_by_new_peer_object(void)
{
	uint8_t hello[RAIL_MSG_MAX], note[RAIL_MSG_MAX];
	uint32_t before = test_notified();
	struct rail_done done;
	struct auth_rig rig;
	size_t h, n;

	auth_still(&rig);
	h = auth_hello(&rig, hello);
	n = auth_note(&rig, 1, note);
	rail_done_init(&done);
	rail_sched_enter(rig.two.dp);
	rail_peer_set_gone(rail_peer_find(rig.two.dp, rig.one.dp->incarnation),
			   "for the test", RAIL_GONE_LEFT, &done);
	rail_peer_maybe_free(rail_peer_find(rig.two.dp,
					    rig.one.dp->incarnation));
	rail_sched_leave(rig.two.dp);
	rail_done_run(rig.two.dp, &done);
	CU_ASSERT_PTR_NULL(auth_known(&rig));
	auth_arrive(&rig.two, note, n);
	auth_arrive(&rig.two, hello, h);
	CU_ASSERT_PTR_NOT_NULL(auth_known(&rig));
	auth_arrive(&rig.two, note, n);
	CU_ASSERT_EQUAL(test_notified(), before);
	auth_end(&rig);
}

static void test_altered_unsigned_and_reflected_messages_are_dropped(void)
{
	uint8_t note[RAIL_MSG_MAX], buf[RAIL_MSG_MAX];
	uint32_t before = test_notified();
	struct auth_rig rig;
	size_t n, i;

	auth_still(&rig);
	n = auth_note(&rig, 1, note);
	auth_arrive(&rig.one, note, n);
	for (i = 0; i < n; i++) {
		memcpy(buf, note, n);
		buf[i] ^= 0x80;		/* for the high byte of the flags,
					 * clears RAIL_WIRE_SIGNED */
		auth_arrive(&rig.two, buf, n);
	}
	CU_ASSERT_EQUAL(test_notified(), before);
	auth_arrive(&rig.two, note, n);
	CU_ASSERT_EQUAL(test_notified(), before + 1);
	CU_ASSERT_EQUAL(rig.two.dp->peers.n, 1);
	auth_end(&rig);
}

static void auth_set_length(uint8_t *buf, size_t len)
{
	struct rail_wire w = { .p = buf, .pos = 8, .cap = RAIL_MSG_MAX };

	rail_wire_put(&w, len, 4);
}

/* Checks that a message which differs in any bit from the signed one has no
 * effect. */
static void test_fuzzed_signed_messages_are_dropped(void)
{
	uint8_t msg[2][RAIL_MSG_MAX], buf[RAIL_MSG_MAX + 64] = { 0 };
	uint32_t before = test_notified();
	uint8_t nonce[RAIL_WIRE_NONCE];
	struct auth_rig rig;
	struct tei_fuzz f;
	size_t len[2], n;
	int i;

	auth_still(&rig);
	memcpy(nonce, auth_known(&rig)->auth.its_nonce, sizeof(nonce));
	rig.peer->auth.nonce[0] ^= 1;
	len[0] = auth_hello(&rig, msg[0]);
	rig.peer->auth.nonce[0] ^= 1;
	len[1] = auth_note(&rig, 1, msg[1]);
	for (tei_fuzz_begin(&f, "signed messages"); tei_fuzz_next(&f, 20000);) {
		i = tei_fuzz_random(&f) % 2;
		n = len[i];
		memcpy(buf, msg[i], n);
		tei_fuzz_bytes(&f, buf, n, RAIL_WIRE_HEADER);
		if (!(tei_fuzz_random(&f) % 4)) {
			n = tei_fuzz_random(&f) % (n + 64);
			auth_set_length(buf, n);
		}
		if (n != len[i] || memcmp(buf, msg[i], n))
			auth_arrive(&rig.two, buf, n);
	}
	CU_ASSERT_EQUAL(test_notified(), before);
	CU_ASSERT_EQUAL(rig.two.dp->peers.n, 1);
	CU_ASSERT_EQUAL(auth_known(&rig)->state, RAIL_PEER_READY);
	CU_ASSERT_EQUAL(
		memcmp(auth_known(&rig)->auth.its_nonce, nonce, sizeof(nonce)),
		0);
	auth_arrive(&rig.two, msg[1], len[1]);
	CU_ASSERT_EQUAL(test_notified(), before + 1);
	auth_end(&rig);
}

/* Checks a process that has taken over the address of another one: plane two
 * refuses a hello which names the other process, and does not change its own
 * state. */
static void test_hello_for_another_process_is_refused(void)
{
	uint8_t hello[RAIL_MSG_MAX], note[RAIL_MSG_MAX];
	uint32_t before = test_notified();
	struct tei_rail_peer *known;
	struct auth_rig rig;
	uint64_t sent;
	size_t h, n;

	auth_still(&rig);
	known = auth_known(&rig);
	sent = rig.peer->auth.sent;
	rig.peer->incarnation ^= 1;
	rig.peer->auth.nonce[0] ^= 1;
	rig.peer->auth.sent += 1000000;	/* as if numbered by another peer
					 * object, whose numbers are much
					 * higher */
	h = auth_hello(&rig, hello);
	auth_arrive(&rig.two, hello, h);
	CU_ASSERT_EQUAL(known->refusal.incarnation, rig.peer->incarnation);
	CU_ASSERT_EQUAL(memcmp(known->refusal.nonce, rig.peer->auth.nonce,
			       RAIL_WIRE_NONCE),
			0);
	rig.peer->incarnation ^= 1;
	rig.peer->auth.nonce[0] ^= 1;
	rig.peer->auth.sent = sent;
	CU_ASSERT_EQUAL(memcmp(known->auth.its_nonce, rig.peer->auth.nonce,
			       RAIL_WIRE_NONCE),
			0);
	n = auth_note(&rig, 1, note);
	auth_arrive(&rig.two, note, n);
	CU_ASSERT_EQUAL(test_notified(), before + 1);
	rig.peer->auth.nonce[1] ^= 1;
	h = auth_hello(&rig, hello);
	auth_arrive(&rig.two, hello, h);
	CU_ASSERT_EQUAL(memcmp(known->auth.its_nonce, rig.peer->auth.nonce,
			       RAIL_WIRE_NONCE),
			0);
	auth_end(&rig);
}

/* Delivers to plane one a REFUSE from plane two for the hello with this
 * nonce. */
static void auth_refuse(struct auth_rig *rig, const uint8_t *nonce)
{
	struct tei_rail_peer *known = auth_known(rig);
	uint8_t buf[RAIL_MSG_MAX];
	struct rail_wire w;
	size_t len;

	rail_msg_begin(known, &w, buf, RAIL_MSG_REFUSE, 0);
	rail_wire_put(&w, rig->peer->incarnation, 8);
	rail_wire_put(&w, RAIL_REFUSE_TOO_MANY_PEERS, 2);
	rail_wire_put_bytes(&w, "for the test", 12);
	rail_wire_put_raw(&w, nonce, RAIL_WIRE_NONCE);
	len = rail_msg_end(&w);
	rail_auth_sign(known, buf, len);
	auth_arrive(&rig->one, buf, len);
}

static void test_refusal_with_other_nonce_is_ignored(void)
{
	uint8_t old[RAIL_WIRE_NONCE];
	struct auth_rig rig;

	auth_still(&rig);
	memcpy(old, rig.peer->auth.nonce, sizeof(old));
	old[15] ^= 1;
	auth_refuse(&rig, old);
	CU_ASSERT_NOT_EQUAL(rig.peer->state, RAIL_PEER_GONE);
	auth_refuse(&rig, rig.peer->auth.nonce);
	CU_ASSERT_EQUAL(rig.peer->state, RAIL_PEER_GONE);
	auth_end(&rig);
}

static void test_message_number_within_window_is_taken_once(void)
{
	struct tei_rail_peer *p = calloc(1, sizeof(*p));
	uint64_t base = UINT64_C(1) << 40, i;

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	CU_ASSERT(rail_auth_once(p, base));
	CU_ASSERT_FALSE(rail_auth_once(p, base));
	for (i = 1; i < 2000; i += 2)
		CU_ASSERT(rail_auth_once(p, base + i));
	CU_ASSERT(rail_auth_once(p, base + 1998));
	CU_ASSERT(rail_auth_once(p, base + 1700));
	CU_ASSERT_FALSE(rail_auth_once(p, base + 1700));
	CU_ASSERT_FALSE(rail_auth_once(p, base + 1701));
	CU_ASSERT_FALSE(rail_auth_once(p, base + 1000));
	CU_ASSERT(rail_auth_once(p, base + 100000));
	CU_ASSERT(rail_auth_once(p, base + 99900));
	CU_ASSERT_FALSE(rail_auth_once(p, base + 1999));
	free(p);
}

const struct tei_test_case rail_auth_cases[] = {
	{ "write_with_same_secret_completes",
	  test_write_with_same_secret_completes },
	{ "peer_without_secret_is_rejected",
	  test_peer_without_secret_is_rejected },
	{ "peer_with_other_secret_is_rejected",
	  test_peer_with_other_secret_is_rejected },
	{ "peer_with_secret_is_rejected_by_plane_without",
	  test_peer_with_secret_is_rejected_by_plane_without },
	{ "replayed_message_is_dropped", test_replayed_message_is_dropped },
	{ "recorded_message_is_dropped_by_new_peer_object",
	  test_recorded_message_is_dropped_by_new_peer_object },
	{ "altered_unsigned_and_reflected_messages_are_dropped",
	  test_altered_unsigned_and_reflected_messages_are_dropped },
	{ "fuzzed_signed_messages_are_dropped",
	  test_fuzzed_signed_messages_are_dropped },
	{ "hello_for_another_process_is_refused",
	  test_hello_for_another_process_is_refused },
	{ "refusal_with_other_nonce_is_ignored",
	  test_refusal_with_other_nonce_is_ignored },
	{ "message_number_within_window_is_taken_once",
	  test_message_number_within_window_is_taken_once },
	{ NULL, NULL },
};
