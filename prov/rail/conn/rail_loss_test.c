/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests when lost connections are logged. The tests pass times of their choice
 * to rail_ctl_loss. */

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_loss.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/rail_test.h"
#include "util/clock.h"


/* The log lines about lost connections that were written so far. */
struct loss_lines {
	int n;
	char text[256]; /* text of the last line */
};

/* Log function (tei_log_fn) that stores lines about lost connections in
 * "arg". */
static void loss_line(int level, const char *subsys, const char *text,
		      void *arg)
{
	struct loss_lines *l = arg;

	(void)level, (void)subsys;
	if (!strstr(text, "no connection over"))
		return;
	l->n++;
	snprintf(l->text, sizeof(l->text), "%s", text);
}

static void loss_add(struct test_pair *pair, int err)
{
	rail_sched_enter(pair->from.dp);
	rail_loss_add(pair->peer, pair->rail, err, 107, "its text");
	CU_ASSERT(rail_loss_noted(pair->peer, pair->rail));
	rail_sched_leave(pair->from.dp);
}

static void test_losses_at_one_time_are_logged_together(void)
{
	struct rail_loss *loss;
	struct test_pair pair;
	uint64_t due;
	int i;

	test_pair_open(&pair);
	loss = &pair.peer->log.loss;
	CU_ASSERT_EQUAL(rail_ctl_loss(pair.peer, tei_now_ns()), 0);
	for (i = 0; i < 100; i++)
		loss_add(&pair, i ? FI_ENOTCONN : FI_ECONNRESET);
	/* the line reports the first error */
	CU_ASSERT_EQUAL(loss->err, FI_ECONNRESET);
	CU_ASSERT_EQUAL(loss->rails, 1);
	due = loss->due_ns;
	CU_ASSERT_EQUAL(rail_ctl_loss(pair.peer, due - 1), due);
	CU_ASSERT_EQUAL(loss->rails, 1);
	CU_ASSERT_EQUAL(rail_ctl_loss(pair.peer, due), 0);
	CU_ASSERT_EQUAL(loss->rails, 0);
	/* the next line is at least a second later */
	loss_add(&pair, FI_ENOTCONN);
	CU_ASSERT(loss->due_ns >= due + TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(loss->err, FI_ENOTCONN);
	test_pair_close(&pair);
}

/* Logs the losses that have been added so far, at the time at which they are
 * due. */
static void loss_due(struct test_pair *pair)
{
	CU_ASSERT_EQUAL(rail_ctl_loss(pair->peer, pair->peer->log.loss.due_ns),
			0);
}

static void test_line_names_the_lost_rail_and_the_cause(void)
{
	struct loss_lines lines = { 0 };
	struct test_pair pair;
	char want[128];

	test_pair_open(&pair);
	snprintf(want, sizeof(want), "no connection over %s: %s (provider: 107",
		 pair.rail->name, fi_strerror(FI_ECONNRESET));
	test_log(loss_line, &lines);
	loss_add(&pair, FI_ECONNRESET);
	loss_due(&pair);
	CU_ASSERT_EQUAL(lines.n, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(lines.text, want));
	/* losses of a peer that is presumed dead are not logged */
	loss_add(&pair, FI_ENOTCONN);
	rail_sched_enter(pair.from.dp);
	pair.peer->life.presumed_ns = pair.peer->alive_ns + TEI_NS_PER_SEC;
	rail_sched_leave(pair.from.dp);
	loss_due(&pair);
	CU_ASSERT_EQUAL(lines.n, 1);
	test_log(NULL, NULL);
	test_pair_close(&pair);
}

static void test_lost_rails_of_a_peer_are_in_one_line(void)
{
	struct loss_lines lines = { 0 };
	struct rail *other = calloc(1, sizeof(*other));
	struct test_pair pair;
	char want[128];

	CU_ASSERT_PTR_NOT_NULL_FATAL(other);
	test_pair_open(&pair);
	/* only the name and the index of "other" are used; dp->nrails does not
	 * count it */
	snprintf(other->name, sizeof(other->name), "other");
	other->index = 1;
	pair.from.dp->rails[1] = other;
	snprintf(want, sizeof(want), "no connection over %s, other: ",
		 pair.rail->name);
	test_log(loss_line, &lines);
	loss_add(&pair, FI_ECONNRESET);
	rail_sched_enter(pair.from.dp);
	rail_loss_add(pair.peer, other, FI_ENOTCONN, 107, "its text");
	rail_sched_leave(pair.from.dp);
	loss_due(&pair);
	CU_ASSERT_EQUAL(lines.n, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(lines.text, want));
	test_log(NULL, NULL);
	pair.from.dp->rails[1] = NULL;
	test_pair_close(&pair);
	free(other);
}

const struct tei_test_case rail_loss_cases[] = {
	{ "line_names_the_lost_rail_and_the_cause",
	  test_line_names_the_lost_rail_and_the_cause },
	{ "lost_rails_of_a_peer_are_in_one_line",
	  test_lost_rails_of_a_peer_are_in_one_line },
	{ "losses_at_one_time_are_logged_together",
	  test_losses_at_one_time_are_logged_together },
	{ NULL, NULL },
};
