/* SPDX-License-Identifier: BSD-2-Clause */

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include "prov/moonrail/moonrail_test.h"
#include "prov/rail/core/rail_dp.h"

static uint32_t cq_asleep(const struct test_end *t)
{
	return __atomic_load_n(&t->domain->dp->callers.dozing,
			       __ATOMIC_SEQ_CST);
}

/* After fi_trywait, and until the queue is read again, the progress thread must
 * poll the lanes, even if callers have polled them often before. */
static void test_trywait_leaves_lanes_to_progress_thread(void)
{
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_FD,
	};
	struct fi_cq_entry e;
	struct test_end t;
	struct fid_cq *cq;
	struct fid *fid;

	test_open(&t, NULL);
	CU_ASSERT_EQUAL_FATAL(fi_cq_open(t.fid, &attr, &cq, NULL), 0);
	fid = &cq->fid;
	CU_ASSERT_EQUAL(cq_asleep(&t), 0);
	CU_ASSERT_EQUAL(fi_trywait(t.fabric, &fid, 1), 0);
	CU_ASSERT_EQUAL(cq_asleep(&t), 1);
	CU_ASSERT_EQUAL(fi_trywait(t.fabric, &fid, 1), 0);
	CU_ASSERT_EQUAL(cq_asleep(&t), 1);
	CU_ASSERT_EQUAL(fi_cq_read(cq, &e, 1), -FI_EAGAIN);
	CU_ASSERT_EQUAL(cq_asleep(&t), 0);
	CU_ASSERT_EQUAL(fi_trywait(t.fabric, &fid, 1), 0);
	CU_ASSERT_EQUAL(fi_cq_sread(cq, &e, 1, NULL, 0), -FI_EAGAIN);
	CU_ASSERT_EQUAL(cq_asleep(&t), 0);
	CU_ASSERT_EQUAL(fi_trywait(t.fabric, &fid, 1), 0);
	CU_ASSERT_EQUAL(fi_close(&cq->fid), 0);
	CU_ASSERT_EQUAL(cq_asleep(&t), 0);
	test_close(&t);
}

const struct tei_test_case moonrail_cq_cases[] = {
	{ "trywait_leaves_lanes_to_progress_thread",
	  test_trywait_leaves_lanes_to_progress_thread },
	{ NULL, NULL },
};
