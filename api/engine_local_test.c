/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests copies inside this process: memory that is unregistered between the
 * check and the copy, counters and errors.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_test.h"
#include "api/engine_int.h"
#include "api/engine_transport.h"
#include "util/clock.h"

/* length of a copy that is passed to a copy thread, because it is longer than
 * TEI_LOCAL_INLINE */
#define LOCAL_TEST_SIZE (1u << 20)

/* Memory that is unregistered and registered again before the second copy on the
 * calling thread, or NULL. */
static void *local_renewed;
static int local_copies; /* copies on the calling thread since it was set */

int __real_tei_local_copy_op(struct tei_local *ctx,
			     const struct tei_local_op *op,
			     struct tei_err *err);
int __wrap_tei_local_copy_op(struct tei_local *ctx,
			     const struct tei_local_op *op,
			     struct tei_err *err);

int __wrap_tei_local_copy_op(struct tei_local *ctx,
			     const struct tei_local_op *op, struct tei_err *err)
{
	if (local_renewed && ++local_copies == 2) {
		CU_ASSERT(!tei_local_region_remove(
			ctx, local_renewed, 0,
			tei_now_ns() + 60 * TEI_NS_PER_SEC));
		CU_ASSERT(!tei_local_region_add(ctx, local_renewed,
						LOCAL_TEST_SIZE,
						TEI_LOCAL_REMOTE));
	}
	return __real_tei_local_copy_op(ctx, op, err);
}

struct local_rig {
	struct engine *engine;
	char *source, *target;
};

static struct local_rig local_open_as(int auto_discover)
{
	struct local_rig r = { .engine = NULL };

	r.engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1",
					"127.0.0.1", 0, auto_discover);
	r.source = calloc(1, LOCAL_TEST_SIZE);
	r.target = calloc(1, LOCAL_TEST_SIZE);
	CU_ASSERT_FATAL(r.engine && r.source && r.target);
	CU_ASSERT_FATAL(!registerLocalMemory(r.engine, r.source,
					     LOCAL_TEST_SIZE, "*", 1) &&
			!registerLocalMemory(r.engine, r.target,
					     LOCAL_TEST_SIZE, "*", 1));
	memset(r.source, 1, LOCAL_TEST_SIZE);
	return r;
}

static struct local_rig local_open(void)
{
	return local_open_as(0);
}

static void local_close(struct local_rig *r)
{
	destroyTransferEngine(r->engine);
	free(r->source);
	free(r->target);
}

static bool local_says(struct engine *e, batch_id_t id, const char *text)
{
	struct te_error err = { .code = 0 };
	bool good = !te_task_error(e, id, 0, &err, sizeof(err)) &&
		    err.code == TEI_ERR_NOT_REGISTERED &&
		    !strcmp(err.provider, "local") && strstr(err.text, text);

	if (!good)
		printf("# %d: %s\n", err.code, err.text);
	return good;
}

static bool local_failed(struct engine *e, batch_id_t id)
{
	struct transfer_status st = { .status = -1 };

	return !te_wait_batch(e, id, -1, &st) && st.status == STATUS_FAILED;
}

/* Unregisters the source of a write after its task was prepared and before it
 * starts. Checks that the task fails and the target is unchanged. */
static void local_source_goes(size_t length) TEI_NO_TSA
{
	struct local_rig r = local_open();
	struct transfer_request rq = { OPCODE_WRITE, r.source, LOCAL_SEGMENT,
				       (uintptr_t)r.target, length };
	struct engine_target target = { .valid = false };
	batch_id_t id = allocateBatchID(r.engine, 1);
	struct engine_batch *b = engine_batch_lock(r.engine, id);

	CU_ASSERT_FATAL(b != NULL);
	CU_ASSERT(!engine_submit_prepare(r.engine, b->tasks, &rq, 0, &target));
	CU_ASSERT(!unregisterLocalMemory(r.engine, r.source));
	CU_ASSERT(!engine_submit_start(r.engine, b, 1));
	engine_batch_unlock(b);
	CU_ASSERT(local_failed(r.engine, id));
	CU_ASSERT(local_says(r.engine, id, "not registered"));
	CU_ASSERT(!r.target[0] && !r.target[length - 1]);
	freeBatchID(r.engine, id);
	local_close(&r);
}

static void test_small_source_unregistered_before_start_is_not_read(void)
{
	local_source_goes(4096);
}

static void test_large_source_unregistered_before_start_is_not_read(void)
{
	local_source_goes(LOCAL_TEST_SIZE);
}

static bool local_refused(struct local_rig *r, const struct te_request *rq,
			  const void *at)
{
	batch_id_t id = allocateBatchID(r->engine, 1);
	char text[64];
	bool good;

	snprintf(text, sizeof(text), "%#llx",
		 (unsigned long long)(uintptr_t)at);
	good = !te_submit(r->engine, id, rq, sizeof(*rq), 1, 0) &&
	       local_failed(r->engine, id) && local_says(r->engine, id, text);
	return !freeBatchID(r->engine, id) && good;
}

/* A request of two ranges must not be COMPLETED if they were copied to two
 * registrations. */
static void test_law1_ranges_are_in_one_registration(void)
{
	struct local_rig r = local_open();
	struct te_local from[2] = { { r.source, 512 }, { r.source, 512 } };
	struct te_remote to[2] = { { (uintptr_t)r.target, 512 },
				   { (uintptr_t)r.target + 4096, 512 } };
	struct te_request rq = { .opcode = TE_WRITE, .target_id = LOCAL_SEGMENT,
				 .local = from, .local_count = 2,
				 .remote = to, .remote_count = 2 };
	batch_id_t id = allocateBatchID(r.engine, 1);

	local_copies = 0;
	local_renewed = r.target;
	CU_ASSERT(!te_submit(r.engine, id, &rq, sizeof(rq), 1, 0));
	CU_ASSERT(local_copies == 2);
	local_renewed = NULL;
	CU_ASSERT(local_failed(r.engine, id));
	CU_ASSERT(local_says(r.engine, id, "registered again"));
	CU_ASSERT(r.target[511] && !r.target[4096]);
	freeBatchID(r.engine, id);
	local_close(&r);
}

/* Tests that the error of a copy to unregistered memory contains the address of
 * that memory. Covers a copy in the calling thread, a copy of several ranges,
 * and a copy in a copy thread. */
static void test_error_of_failed_copy_names_the_memory(void)
{
	struct local_rig r = local_open();
	char *gone = r.target + LOCAL_TEST_SIZE;
	struct te_local from[2] = { { r.source, 512 }, { r.source, 512 } };
	struct te_remote to[2] = { { (uintptr_t)gone, 512 },
				   { (uintptr_t)r.target, 512 } };
	struct te_request rq = { .opcode = TE_WRITE, .target_id = LOCAL_SEGMENT,
				 .local = from, .local_count = 1,
				 .remote = to, .remote_count = 1 };

	CU_ASSERT(local_refused(&r, &rq, gone));
	rq.local_count = rq.remote_count = 2;
	CU_ASSERT(local_refused(&r, &rq, gone));
	from[0].length = to[0].length = LOCAL_TEST_SIZE;
	rq.local_count = rq.remote_count = 1;
	CU_ASSERT(local_refused(&r, &rq, gone));
	local_close(&r);
}

/* --- counters ------------------------------------------------------------- */

static uint64_t local_by_rails(struct engine *e)
{
	struct te_rail_stats s[4];
	size_t i, n = 4;
	uint64_t sum = 0;

	CU_ASSERT_FATAL(!te_rail_stats(e, s, sizeof(s[0]), &n) && n <= 4);
	for (i = 0; i < n; i++)
		sum += s[i].tx_bytes;
	return sum;
}

static uint64_t local_by_peers(struct engine *e)
{
	struct te_peer_stats s;

	CU_ASSERT_FATAL(!te_peer_stats(e, LOCAL_SEGMENT, &s, sizeof(s)));
	return s.tx_bytes;
}

static void test_ranges_copied_before_a_failure_are_counted(void)
{
	struct local_rig r = local_open_as(1);
	char *gone = r.target + LOCAL_TEST_SIZE;
	struct te_local from[2] = { { r.source, 512 }, { r.source, 256 } };
	struct te_remote to[2] = { { (uintptr_t)gone, 512 },
				   { (uintptr_t)r.target, 256 } };
	struct te_request rq = { .opcode = TE_WRITE, .target_id = LOCAL_SEGMENT,
				 .local = from, .local_count = 2,
				 .remote = to, .remote_count = 2 };

	CU_ASSERT(local_refused(&r, &rq, gone));
	CU_ASSERT_EQUAL(local_by_rails(r.engine), 256);
	CU_ASSERT_EQUAL(local_by_peers(r.engine), 256);
	local_close(&r);
}

#define LOCAL_TEST_LONG	(64u << 20)
#define LOCAL_TEST_RUNS	50
#define LOCAL_TEST_LOOKS 1000000

/* Submits a copy and cancels it after its first bytes were copied. Returns the
 * status of the task. */
static int local_cancel_amid(struct engine *e, char *source, char *target)
{
	struct transfer_request rq = { OPCODE_WRITE, source, LOCAL_SEGMENT,
				       (uintptr_t)target, LOCAL_TEST_LONG };
	struct transfer_status st = { .status = -1 };
	uint64_t was = local_by_rails(e);
	batch_id_t id = allocateBatchID(e, 1);
	uint32_t i;

	CU_ASSERT_FATAL(!submitTransfer(e, id, &rq, 1));
	for (i = 0; i < LOCAL_TEST_LOOKS && local_by_rails(e) == was; i++)
		;
	te_cancel_batch(e, id);
	CU_ASSERT(!te_wait_batch(e, id, -1, &st) && !freeBatchID(e, id));
	return st.status;
}

static void test_bytes_copied_before_a_cancel_are_counted(void)
{
	struct local_rig r = local_open_as(1);
	char *mem = calloc(2, LOCAL_TEST_LONG);
	int i, status = -1;

	CU_ASSERT_FATAL(mem && !registerLocalMemory(r.engine, mem,
						    2 * LOCAL_TEST_LONG, "*",
						    1));
	for (i = 0; i < LOCAL_TEST_RUNS && status != STATUS_CANCELED; i++) {
		status = local_cancel_amid(r.engine, mem,
					   mem + LOCAL_TEST_LONG);
		CU_ASSERT_EQUAL(local_by_peers(r.engine),
				local_by_rails(r.engine));
	}
	CU_ASSERT_EQUAL(status, STATUS_CANCELED);
	local_close(&r);
	free(mem);
}

static void test_atomic_to_own_segment_counts_no_rail_bytes(void)
{
	struct local_rig r = local_open_as(1);
	struct te_remote to = { (uintptr_t)r.target, 8 };
	struct te_request rq = { .opcode = TE_ATOMIC_ADD,
				 .target_id = LOCAL_SEGMENT, .remote = &to,
				 .remote_count = 1, .operand = 1 };
	struct transfer_status st = { .status = -1 };
	batch_id_t id = allocateBatchID(r.engine, 1);

	CU_ASSERT(!te_submit(r.engine, id, &rq, sizeof(rq), 1, 0));
	CU_ASSERT(!te_wait_batch(r.engine, id, -1, &st) &&
		  st.status == STATUS_COMPLETED);
	CU_ASSERT_EQUAL(local_by_peers(r.engine), local_by_rails(r.engine));
	freeBatchID(r.engine, id);
	local_close(&r);
}

/* --- errors --------------------------------------------------------------- */

static bool local_last(int code, const char *text, const char *hint)
{
	struct te_error err = { .code = 0 };
	bool good = !te_last_error(&err, sizeof(err)) && err.code == code &&
		    strstr(err.text, text) && strstr(err.hint, hint);

	if (!good)
		printf("# %d: %s; %s\n", err.code, err.text, err.hint);
	return good;
}

static segment_id_t local_segment(struct engine *e, struct engine *target)
{
	char name[256];

	CU_ASSERT_FATAL(!getLocalIpAndPort(target, name, sizeof(name)));
	return openSegment(e, name);
}

/* Submits an atomic to another engine and checks that it is refused, because
 * this engine has no rail. If "rails" is true, the target has rails. */
static void local_atomic_refused(bool rails)
{
	struct local_rig r = local_open(), there = local_open();
	struct te_remote to = { (uintptr_t)there.target, 8 };
	struct te_request rq = { .opcode = TE_ATOMIC_ADD, .remote = &to,
				 .remote_count = 1, .operand = 1 };
	batch_id_t id = allocateBatchID(r.engine, 1);

	CU_ASSERT_FATAL(installTransport(r.engine, "local", NULL) &&
			installTransport(there.engine, "local", NULL) &&
			(!rails || installTransport(there.engine, "tcp",
						    NULL)));
	rq.target_id = local_segment(r.engine, there.engine);
	CU_ASSERT_FATAL(rq.target_id > 0);
	CU_ASSERT_EQUAL(te_submit(r.engine, id, &rq, sizeof(rq), 1, 0), 8);
	CU_ASSERT(local_last(TEI_ERR_UNSUPPORTED,
			     "request 0: an atomic needs a rail",
			     "install tcp or rdma"));
	freeBatchID(r.engine, id);
	local_close(&r);
	local_close(&there);
}

static void test_atomic_without_rail_error_names_the_rail(void)
{
	local_atomic_refused(false);
	local_atomic_refused(true);
}

static void test_submit_after_deadline_error_names_the_deadline(void)
{
	struct local_rig r = local_open();
	struct transfer_request plain = { OPCODE_WRITE, r.source, LOCAL_SEGMENT,
					  (uintptr_t)r.target, 64 };
	struct te_local from = { r.source, 64 };
	struct te_remote to = { (uintptr_t)r.target, 64 };
	struct te_request rq = { .opcode = TE_WRITE, .target_id = LOCAL_SEGMENT,
				 .local = &from, .local_count = 1,
				 .remote = &to, .remote_count = 1 };
	batch_id_t id = allocateBatchID(r.engine, 1);

	CU_ASSERT(!te_batch_deadline(r.engine, id, 1));
	CU_ASSERT_EQUAL(te_submit(r.engine, id, &rq, sizeof(rq), 1, 0),
			TE_TIMED_OUT);
	CU_ASSERT(local_last(-TE_TIMED_OUT,
			     "te_submit: the batch's deadline has passed", ""));
	CU_ASSERT_EQUAL(submitTransfer(r.engine, id, &plain, 1), TE_TIMED_OUT);
	CU_ASSERT(local_last(-TE_TIMED_OUT,
			     "submitTransfer: the batch's deadline has passed", ""));
	freeBatchID(r.engine, id);
	local_close(&r);
}

const struct tei_test_case local_cases[] = {
	{ "atomic_without_rail_error_names_the_rail",
	  test_atomic_without_rail_error_names_the_rail },
	{ "submit_after_deadline_error_names_the_deadline",
	  test_submit_after_deadline_error_names_the_deadline },
	{ "ranges_copied_before_a_failure_are_counted",
	  test_ranges_copied_before_a_failure_are_counted },
	{ "bytes_copied_before_a_cancel_are_counted",
	  test_bytes_copied_before_a_cancel_are_counted },
	{ "atomic_to_own_segment_counts_no_rail_bytes",
	  test_atomic_to_own_segment_counts_no_rail_bytes },
	{ "law1_ranges_are_in_one_registration",
	  test_law1_ranges_are_in_one_registration },
	{ "error_of_failed_copy_names_the_memory",
	  test_error_of_failed_copy_names_the_memory },
	{ "small_source_unregistered_before_start_is_not_read",
	  test_small_source_unregistered_before_start_is_not_read },
	{ "large_source_unregistered_before_start_is_not_read",
	  test_large_source_unregistered_before_start_is_not_read },
	{ NULL, NULL },
};
