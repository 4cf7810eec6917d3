/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/moonrail/moonrail_av.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_rma.h"
#include "prov/moonrail/moonrail_wire.h"
#include "prov/moonrail/moonrail_test.h"

/* Posts an atomic to an address at which no process listens, and then handles a
 * forged answer with status n. Returns the error of the operation. */
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

static void test_atomic_with_invalid_answer_fails(void)
{
	struct test_end t;
	fi_addr_t to;

	test_open(&t, NULL);
	to = test_insert(&t, test_port());
	CU_ASSERT_EQUAL(atomic_answered(&t, to, FI_EACCES), FI_EACCES);
	CU_ASSERT_EQUAL(atomic_answered(&t, to, FI_ERRNO_MAX), FI_EIO);
	CU_ASSERT_EQUAL(atomic_answered(&t, to, UINT32_C(0x80000001)), FI_EIO);
	CU_ASSERT_EQUAL(atomic_answered(&t, to, UINT32_MAX), FI_EIO);
	/* the answer reports success but lacks the requested old value */
	CU_ASSERT_EQUAL(atomic_answered(&t, to, 0), FI_EIO);
	test_close(&t);
}

/* The sum of the counts of the local ranges overflows to 1. This equals the
 * count of the remote range, so only a check for overflow can detect the
 * error. */
static void test_atomic_with_overflowing_count_is_refused(void)
{
	uint64_t numbers[8] = { 0 };
	struct fi_ioc wraps[2] = {
		{ .addr = numbers, .count = SIZE_MAX },
		{ .addr = numbers, .count = 2 },
	};
	struct fi_ioc one = { .addr = numbers, .count = 1 };
	struct fi_rma_ioc there = { .count = 1 };
	struct fi_msg_atomic msg = {
		.msg_iov = wraps, .iov_count = 2, .rma_iov = &there,
		.rma_iov_count = 1, .datatype = FI_UINT64, .op = FI_SUM,
	};
	struct test_end t;

	test_open(&t, NULL);
	msg.addr = test_insert(&t, test_port());
	CU_ASSERT_EQUAL(fi_atomicmsg(t.ep, &msg, 0), -FI_EINVAL);
	CU_ASSERT_EQUAL(fi_atomicv(t.ep, wraps, NULL, 2, msg.addr, 0, 0,
				   FI_UINT64, FI_SUM, NULL), -FI_EINVAL);
	msg.msg_iov = &one;
	msg.iov_count = 1;
	CU_ASSERT_EQUAL(fi_fetch_atomicmsg(t.ep, &msg, wraps, NULL, 2, 0),
			-FI_EINVAL);
	msg.op = FI_CSWAP;
	CU_ASSERT_EQUAL(fi_compare_atomicmsg(t.ep, &msg, wraps, NULL, 2, &one,
					     NULL, 1, 0), -FI_EINVAL);
	test_close(&t);
}

const struct tei_test_case moonrail_atomic_cases[] = {
	{ "atomic_with_invalid_answer_fails",
	  test_atomic_with_invalid_answer_fails },
	{ "atomic_with_overflowing_count_is_refused",
	  test_atomic_with_overflowing_count_is_refused },
	{ NULL, NULL },
};
