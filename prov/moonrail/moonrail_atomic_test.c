/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/moonrail/moonrail_test.h"

/* To one that is still looked for; its answer is made up. */
static int atomic_answered(struct test_end *t, fi_addr_t to, uint32_t n)
{
	struct moonrail_wire w = { .op = MOONRAIL_WIRE_ATOMIC_REP, .n = n };
	uint64_t one = 1, old = 0;
	struct moonrail_av_entry *e;

	CU_ASSERT_EQUAL_FATAL(fi_fetch_atomic(t->ep, &one, 1, NULL, &old, NULL,
					      to, 0, 0, FI_UINT64, FI_SUM,
					      NULL), 0);
	moonrail_enter(t->domain);
	e = moonrail_av_get(tei_container_of(t->av, struct moonrail_av, fid),
			    to);
	w.id = t->domain->next_id;
	moonrail_atomic_answer(e->peer, &w, NULL, 0);
	moonrail_leave(t->domain);
	return test_ends(t);
}

static void an_answer_that_makes_no_sense_is_an_error(void)
{
	struct test_end t;
	fi_addr_t to;

	test_open(&t, NULL);
	to = test_insert(&t, test_port());
	CU_ASSERT_EQUAL(atomic_answered(&t, to, FI_EACCES), FI_EACCES);
	CU_ASSERT_EQUAL(atomic_answered(&t, to, FI_ERRNO_MAX), FI_EIO);
	CU_ASSERT_EQUAL(atomic_answered(&t, to, UINT32_C(0x80000001)), FI_EIO);
	CU_ASSERT_EQUAL(atomic_answered(&t, to, UINT32_MAX), FI_EIO);
	/* without the bytes that were asked for */
	CU_ASSERT_EQUAL(atomic_answered(&t, to, 0), FI_EIO);
	test_close(&t);
}

const struct tei_test_case moonrail_atomic_cases[] = {
	{ "an_answer_that_makes_no_sense_is_an_error",
	  an_answer_that_makes_no_sense_is_an_error },
	{ NULL, NULL },
};
