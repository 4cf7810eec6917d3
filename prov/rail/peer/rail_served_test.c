/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the reports of moved bytes, between two data planes over
 * loopback. */

#include <sched.h>
#include <string.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_served.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"

#define SERVED_BYTES	50000

struct served_rig {
	struct test_plane from, to;
	struct tei_rail_peer *peer; /* the peer object in plane "from" that
				     * represents plane "to" */
	char src[SERVED_BYTES], dst[SERVED_BYTES];
};

static void served_open(struct served_rig *rig, bool reports)
{
	struct tei_rail_mr *mr;
	struct tei_err err;

	memset(rig, 0, sizeof(*rig));
	test_plane_init(&rig->from);
	test_plane_init(&rig->to);
	rig->from.reports = reports;
	test_plane_open(&rig->from, "127.0.0.1");
	test_plane_open(&rig->to, "127.0.0.2");
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig->from.dp, rig->src,
					      sizeof(rig->src), "*",
					      TEI_RAIL_REMOTE, &err, &mr), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig->to.dp, rig->dst,
					      sizeof(rig->dst), "*",
					      TEI_RAIL_REMOTE, &err, &mr), 0);
	rig->peer = test_plane_peer(&rig->from, &rig->to);
}

static void served_close(struct served_rig *rig)
{
	tei_rail_peer_put(rig->peer);
	test_plane_close(&rig->from);
	test_plane_close(&rig->to);
}

static void served_move(struct served_rig *rig, bool read, uint64_t len)
{
	CU_ASSERT_EQUAL(test_run(rig->from.dp, rig->peer, read, rig->src,
				 rig->dst, len), TEI_RAIL_END_COMPLETED);
}

/* Waits until the target shows the totals tx and rx. */
static bool served_shows(struct served_rig *rig, uint64_t tx, uint64_t rx)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct tei_rail_served s[2];

	do {
		if (tei_rail_served(rig->to.dp, s, 2) == 1 &&
		    s[0].tx_bytes == tx && s[0].rx_bytes == rx) {
			CU_ASSERT_STRING_EQUAL(s[0].name, rig->from.dp->name);
			CU_ASSERT_EQUAL(s[0].incarnation,
					rig->from.dp->incarnation);
			CU_ASSERT(s[0].ns && s[0].ns <= tei_now_ns());
			return true;
		}
		sched_yield();
	} while (tei_now_ns() < end);
	return false;
}

static void test_target_shows_the_bytes_that_a_peer_moved(void)
{
	static struct served_rig rig;

	served_open(&rig, true);
	CU_ASSERT_EQUAL(tei_rail_served(rig.to.dp, NULL, 0), 0);
	served_move(&rig, false, SERVED_BYTES);
	CU_ASSERT(served_shows(&rig, SERVED_BYTES, 0));
	/* the last transfer is reported, although no other transfer follows
	 * it */
	served_move(&rig, true, 1000);
	served_move(&rig, false, 1);
	CU_ASSERT(served_shows(&rig, SERVED_BYTES + 1, 1000));
	/* the initiator has no peer that moves bytes, so nothing was reported
	 * to it */
	CU_ASSERT_EQUAL(tei_rail_served(rig.from.dp, NULL, 0), 0);
	served_close(&rig);
}

static bool served_due(struct served_rig *rig)
{
	rail_served_mark(rig->from.dp);
	return rig->peer->served.due;
}

static void test_totals_that_did_not_change_are_not_reported_again(void)
{
	static struct served_rig rig;
	uint8_t buf[RAIL_MSG_MAX];
	uint64_t now;

	served_open(&rig, false);
	served_move(&rig, false, SERVED_BYTES);
	test_plane_still(&rig.from);
	CU_ASSERT(served_due(&rig));
	/* later checks do not examine the peer until it gets another task */
	CU_ASSERT(tei_list_empty(&rig.from.dp->tasks.recent));
	now = tei_now_ns();
	CU_ASSERT_EQUAL(rail_ctl_served(rig.peer, now, buf), 0);
	CU_ASSERT(served_shows(&rig, SERVED_BYTES, 0));
	CU_ASSERT_FALSE(served_due(&rig));
	served_close(&rig);
}

static void test_plane_without_reports_sends_none(void)
{
	static struct served_rig rig;

	served_open(&rig, false);
	served_move(&rig, false, SERVED_BYTES);
	test_plane_still(&rig.from);
	CU_ASSERT_FALSE(rig.peer->served.due);
	CU_ASSERT_EQUAL(rig.peer->served.sent_tx, 0);
	CU_ASSERT_EQUAL(tei_rail_served(rig.to.dp, NULL, 0), 0);
	served_close(&rig);
}

/* Delivers a report as if the peer had sent it. len: length of the message
 * body, bytes. */
static void served_sent(struct tei_rail_peer *p, uint64_t since, uint64_t tx,
			uint64_t rx, size_t len)
{
	uint8_t body[24];
	struct rail_wire w = { .p = body, .cap = sizeof(body) };

	rail_wire_put(&w, since, 8);
	rail_wire_put(&w, tx, 8);
	rail_wire_put(&w, rx, 8);
	w.pos = 0;
	w.cap = len;
	rail_sched_enter(p->dp);
	rail_served_reported(p, &w);
	rail_sched_leave(p->dp);
}

static bool served_has(const struct tei_rail_peer *p, uint64_t tx, uint64_t rx)
{
	return p->served.tx == tx && p->served.rx == rx;
}

static void test_totals_of_a_peer_only_grow(void)
{
	struct tei_rail_peer *p;
	static struct served_rig rig;

	served_open(&rig, false);
	p = rig.peer;
	served_sent(p, 7, 100, 10, 24);
	CU_ASSERT(served_has(p, 100, 10));
	/* an older report arrives late and does not lower the totals */
	served_sent(p, 7, 90, 10, 24);
	CU_ASSERT(served_has(p, 100, 10));
	/* the peer has forgotten this process and counts from 0 again */
	served_sent(p, 9, 5, 1, 24);
	CU_ASSERT(served_has(p, 105, 11));
	served_sent(p, 7, 200, 20, 24);
	CU_ASSERT(served_has(p, 105, 11));
	/* a report that would make the totals overflow is ignored */
	served_sent(p, 9, UINT64_MAX, 2, 24);
	CU_ASSERT(served_has(p, 105, 11));
	served_sent(p, 9, 6, 2, 24);
	CU_ASSERT(served_has(p, 106, 12));
	served_close(&rig);
}

static void test_malformed_report_is_ignored(void)
{
	struct tei_rail_peer *p;
	static struct served_rig rig;
	size_t len;

	served_open(&rig, false);
	p = rig.peer;
	for (len = 0; len < 24; len++)
		served_sent(p, 7, 100, 10, len);
	served_sent(p, 0, 100, 10, 24);
	CU_ASSERT(served_has(p, 0, 0));
	CU_ASSERT_EQUAL(p->served.ns, 0);
	CU_ASSERT_EQUAL(tei_rail_served(rig.from.dp, NULL, 0), 0);
	served_close(&rig);
}

const struct tei_test_case rail_served_cases[] = {
	{ "target_shows_the_bytes_that_a_peer_moved",
	  test_target_shows_the_bytes_that_a_peer_moved },
	{ "totals_that_did_not_change_are_not_reported_again",
	  test_totals_that_did_not_change_are_not_reported_again },
	{ "plane_without_reports_sends_none",
	  test_plane_without_reports_sends_none },
	{ "totals_of_a_peer_only_grow", test_totals_of_a_peer_only_grow },
	{ "malformed_report_is_ignored", test_malformed_report_is_ignored },
	{ NULL, NULL },
};
