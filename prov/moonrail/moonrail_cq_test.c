/* SPDX-License-Identifier: BSD-2-Clause */

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

#include "prov/moonrail/moonrail_test.h"
#include "prov/rail/core/rail_dp.h"
#include "util/clock.h"
#include "util/world.h"

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

/* number of calls of tei_relax by this thread */
static __thread uint32_t cq_relaxed;

static void cq_count_relax(void)
{
	cq_relaxed++;
}

/* In a simulated world time passes only in tei_relax and in calls that sleep, so
 * a wait must call tei_relax while it polls. A wait of this thread may end
 * before its second iteration if the machine is busy. Therefore repeats the
 * wait until tei_relax was called. */
static void test_waits_call_relax_while_they_poll(void)
{
	struct fi_cq_attr cq_attr = {
		.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_UNSPEC,
	};
	struct fi_cntr_attr cntr_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct tei_world world = tei_world_real;
	struct fid_cntr *cntr;
	struct fi_cq_entry e;
	struct test_end t;
	struct fid_cq *cq;
	uint64_t end;

	world.relax = cq_count_relax;
	tei_world = &world;
	test_open(&t, NULL);
	CU_ASSERT_EQUAL_FATAL(fi_cq_open(t.fid, &cq_attr, &cq, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(fi_cntr_open(t.fid, &cntr_attr, &cntr, NULL), 0);
	end = tei_now_ns() + TEST_WAIT_NS;
	for (cq_relaxed = 0; !cq_relaxed && tei_now_ns() < end;)
		CU_ASSERT_EQUAL(fi_cq_sread(cq, &e, 1, NULL, 1), -FI_EAGAIN);
	CU_ASSERT(cq_relaxed > 0);
	end = tei_now_ns() + TEST_WAIT_NS;
	for (cq_relaxed = 0; !cq_relaxed && tei_now_ns() < end;)
		CU_ASSERT_EQUAL(fi_cntr_wait(cntr, 1, 1), -FI_ETIMEDOUT);
	CU_ASSERT(cq_relaxed > 0);
	CU_ASSERT_EQUAL(fi_close(&cntr->fid), 0);
	CU_ASSERT_EQUAL(fi_close(&cq->fid), 0);
	test_close(&t);
	tei_world = &tei_world_real;
}

const struct tei_test_case moonrail_cq_cases[] = {
	{ "trywait_leaves_lanes_to_progress_thread",
	  test_trywait_leaves_lanes_to_progress_thread },
	{ "waits_call_relax_while_they_poll",
	  test_waits_call_relax_while_they_poll },
	{ NULL, NULL },
};
