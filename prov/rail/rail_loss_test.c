/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests when lost connections are logged. The test chooses the times. */
#include "prov/rail/rail_ctl.h"
#include "prov/rail/rail_test.h"

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
	loss = &pair.peer->loss;
	CU_ASSERT_EQUAL(rail_ctl_loss(pair.peer, tei_now_ns()), 0);
	for (i = 0; i < 100; i++)
		loss_add(&pair, i ? FI_ENOTCONN : FI_ECONNRESET);
	/* the cause is the first error */
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

const struct tei_test_case rail_loss_cases[] = {
	{ "losses_at_one_time_are_logged_together",
	  test_losses_at_one_time_are_logged_together },
	{ NULL, NULL },
};
