/* SPDX-License-Identifier: BSD-2-Clause */
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "prov/gpu/gpu_int.h"
#include "prov/gpu/gpu_test.h"

#define COPY_SIZE	((20u << 20) + 12345)	/* bytes that are copied in
						 * three pieces */

/* Memory of two GPUs and two host buffers, all registered. */
struct copy_rig {
	const struct cuda_stand_in *driver;
	struct tei_gpu *ctx;
	struct gpu_test_mem gpu[2];
	unsigned char *host[2];
};

static struct copy_rig copy_open(uint64_t seconds, size_t size)
{
	struct copy_rig r = { .driver = gpu_test_driver() };
	struct tei_err err;
	size_t k;
	int i;

	r.ctx = gpu_test_open(seconds);
	for (i = 0; i < 2; i++) {
		r.gpu[i] = gpu_test_mem(r.ctx, i, size);
		r.host[i] = malloc(size);
		CU_ASSERT_FATAL(r.host[i] != NULL);
		CU_ASSERT_FATAL(!tei_gpu_mem_add(r.ctx, r.host[i], size,
						 &err));
		for (k = 0; k < size; k++)
			r.host[i][k] = (unsigned char)(i ? 0xee : k * 7 ^
								  k >> 12);
	}
	return r;
}

static void copy_close(struct copy_rig *r)
{
	int i;

	for (i = 0; i < 2; i++) {
		CU_ASSERT(!tei_gpu_mem_remove(r->ctx, r->host[i], UINT64_MAX));
		free(r->host[i]);
		gpu_test_mem_free(r->ctx, &r->gpu[i]);
	}
	gpu_test_close(r->ctx);
}

static uint64_t copy_host(const struct copy_rig *r, int i)
{
	return (uintptr_t)r->host[i];
}

static void test_bytes_go_all_ways(void)
{
	struct copy_rig r = copy_open(30, COPY_SIZE);

	CU_ASSERT(!gpu_test_copy(r.ctx, r.gpu[0].addr, copy_host(&r, 0),
				 COPY_SIZE));
	CU_ASSERT(!gpu_test_copy(r.ctx, r.gpu[1].addr + 1, r.gpu[0].addr,
				 COPY_SIZE - 1));
	CU_ASSERT(!gpu_test_copy(r.ctx, copy_host(&r, 1),
				 r.gpu[1].addr + 1, COPY_SIZE - 1));
	CU_ASSERT(!memcmp(r.host[0], r.host[1], COPY_SIZE - 1));
	CU_ASSERT_EQUAL(r.host[1][COPY_SIZE - 1], 0xee);
	CU_ASSERT_EQUAL(r.driver->left(), 2 * 33);
	copy_close(&r);
}

static void test_bad_operations_are_refused(void)
{
	struct copy_rig r = copy_open(30, 4096);
	struct gpu_test_op op;

	CU_ASSERT_EQUAL(gpu_test_start(r.ctx, &op, copy_host(&r, 1),
				       copy_host(&r, 0), 10), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(gpu_test_start(r.ctx, &op, r.gpu[0].addr,
				       copy_host(&r, 0), 0), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(gpu_test_start(r.ctx, &op, r.gpu[0].addr,
				       copy_host(&r, 0), 4097),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(gpu_test_start(r.ctx, &op, r.gpu[0].addr + 4000,
				       copy_host(&r, 0), 97),
			TEI_ERR_NOT_REGISTERED);
	copy_close(&r);
}

static void test_copy_without_a_thread_is_refused(void)
{
	struct copy_rig r = copy_open(30, 4096);
	struct gpu_test_op op;

	tei_test_threads(0);
	CU_ASSERT_EQUAL(gpu_test_start(r.ctx, &op, r.gpu[0].addr,
				       copy_host(&r, 0), 4096),
			TEI_ERR_MEMORY);
	CU_ASSERT(tei_gpu_mem_idle(r.ctx, r.gpu[0].addr, 4096));
	tei_test_threads(UINT_MAX);
	CU_ASSERT(!gpu_test_copy(r.ctx, r.gpu[0].addr, copy_host(&r, 0),
				 4096));
	copy_close(&r);
}

static void test_operation_ends_after_its_event(void)
{
	struct copy_rig r = copy_open(30, 4096);
	unsigned int before = r.driver->copies(), i;
	struct timespec nap = { .tv_nsec = 1000000 };
	struct gpu_test_op op;

	r.driver->hold(1);
	CU_ASSERT(!gpu_test_start(r.ctx, &op, r.gpu[0].addr,
				  copy_host(&r, 0), 4096));
	for (i = 0; i < 20; i++) {
		CU_ASSERT(!gpu_test_ended(&op));
		nanosleep(&nap, NULL);
	}
	CU_ASSERT_EQUAL(r.driver->copies(), before);
	r.driver->hold(0);
	CU_ASSERT_EQUAL(gpu_test_wait(&op), 0);
	CU_ASSERT_EQUAL(r.driver->copies(), before + 1);
	copy_close(&r);
}

static void test_draining_waits_for_what_was_begun(void)
{
	struct copy_rig r = copy_open(30, 4096);
	struct gpu_test_op op;

	CU_ASSERT(tei_gpu_drain(r.ctx, 0));
	r.driver->hold(1);
	CU_ASSERT(!gpu_test_start(r.ctx, &op, r.gpu[0].addr,
				  copy_host(&r, 0), 4096));
	CU_ASSERT(!tei_gpu_drain(r.ctx, tei_now_ns() + 20 * TEI_NS_PER_MS));
	CU_ASSERT(!gpu_test_ended(&op));
	r.driver->hold(0);
	CU_ASSERT(tei_gpu_drain(r.ctx, UINT64_MAX));
	CU_ASSERT(gpu_test_ended(&op));
	CU_ASSERT_EQUAL(gpu_test_wait(&op), 0);
	copy_close(&r);
}

/* Waits until a copy of the operation was started. Returns false if this takes
 * too long. */
static bool copy_begun(struct copy_rig *r, const struct gpu_test_op *op)
{
	uint64_t end = tei_now_ns() + GPU_TEST_WAIT_NS;
	bool begun;

	do {
		tei_mutex_lock(&r->ctx->lock);
		begun = op->op.running;
		tei_mutex_unlock(&r->ctx->lock);
		sched_yield();
	} while (!begun && tei_now_ns() < end);
	return begun;
}

/*
 * A cancelled operation must end when its copies in flight have ended, and no
 * further copy may be started.
 */
static void test_cancelled_one_ends_once_its_copies_have(void)
{
	struct copy_rig r = copy_open(30, 4096);
	struct gpu_test_op op[40];
	unsigned int before = r.driver->copies(), done = 0;
	int i;

	r.driver->hold(1);
	for (i = 0; i < 40; i++)
		CU_ASSERT(!gpu_test_start(r.ctx, &op[i], r.gpu[0].addr,
					  copy_host(&r, 0), 4096));
	/* the ring has 32 entries, so this operation was not started */
	tei_gpu_cancel(r.ctx, &op[39].op);
	CU_ASSERT_EQUAL(gpu_test_wait(&op[39]), TEI_GPU_CANCELLED);
	CU_ASSERT(copy_begun(&r, &op[0]));
	tei_gpu_cancel(r.ctx, &op[0].op);	/* this call does not wait */
	CU_ASSERT(!gpu_test_ended(&op[0]));
	r.driver->hold(0);
	CU_ASSERT_EQUAL(gpu_test_wait(&op[0]), TEI_GPU_CANCELLED);
	for (i = 0; i < 39; i++)
		done += gpu_test_wait(&op[i]) == 0;
	CU_ASSERT_EQUAL(done, 38);
	CU_ASSERT(r.driver->copies() - before <= 39);
	copy_close(&r);
}

static void test_failed_call_fails_the_operation(void)
{
	static const char *const calls[] = {
		"cuMemcpyAsync", "cuEventRecord", "cuEventQuery",
	};
	struct copy_rig r = copy_open(30, COPY_SIZE);
	struct gpu_test_op op;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		r.driver->fail(calls[i], 1, 1);
		CU_ASSERT(!gpu_test_start(r.ctx, &op, r.gpu[0].addr,
					  copy_host(&r, 0), COPY_SIZE));
		CU_ASSERT_EQUAL(gpu_test_wait(&op), TEI_ERR_CONTEXT);
		CU_ASSERT(strstr(op.err.text, calls[i]) != NULL);
		CU_ASSERT(strstr(op.err.text,
				 "CUDA_ERROR_INVALID_VALUE (1)") != NULL);
		/* the next operations must work */
		CU_ASSERT(!gpu_test_copy(r.ctx, r.gpu[1].addr,
					 copy_host(&r, 0), 100));
		CU_ASSERT(!gpu_test_copy(r.ctx, r.gpu[0].addr,
					 copy_host(&r, 0), 100));
	}
	copy_close(&r);
}

/* Copies must not disturb a graph capture of the program. */
static void test_capture_elsewhere_is_left_alone(void)
{
	struct copy_rig r = copy_open(30, COPY_SIZE);
	struct gpu_test_op op;

	r.driver->capture(1);
	CU_ASSERT(!gpu_test_copy(r.ctx, r.gpu[0].addr, copy_host(&r, 0),
				 COPY_SIZE));
	CU_ASSERT_EQUAL(r.driver->capture(0), 0);
	/* during a capture, an event cannot be queried, and this must not count
	 * as a failure */
	r.driver->fail("cuEventQuery", 0, 900);
	CU_ASSERT(!gpu_test_start(r.ctx, &op, r.gpu[0].addr, copy_host(&r, 0),
				  COPY_SIZE));
	CU_ASSERT_EQUAL(gpu_test_wait(&op), 0);
	copy_close(&r);
}

/* A failed copy may still be running, so its memory must stay registered until
 * the copy has ended. */
static void test_failed_copy_that_hangs_keeps_its_memory(void)
{
	static const char *const calls[] = { "cuEventRecord", "cuEventQuery" };
	struct copy_rig r = copy_open(GPU_TEST_PATIENCE_S, 4096);
	struct timespec nap = { .tv_nsec = 20000000 };
	struct gpu_test_op op;
	struct tei_err err;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		r.driver->hold(1);
		r.driver->fail(calls[i], 0, 1);
		CU_ASSERT(!gpu_test_start(r.ctx, &op, copy_host(&r, 1),
					  r.gpu[0].addr, 4096));
		nanosleep(&nap, NULL);
		CU_ASSERT(!gpu_test_ended(&op));
		CU_ASSERT_EQUAL(tei_gpu_mem_remove(r.ctx, r.host[1],
						   tei_now_ns()), TEI_ERR_BUSY);
		/* the thread does not wait for the failed copy either */
		CU_ASSERT_EQUAL(gpu_test_wait(&op), TEI_ERR_TIMED_OUT);
		r.driver->hold(0);
		CU_ASSERT(!tei_gpu_mem_remove(r.ctx, r.host[1], UINT64_MAX));
		CU_ASSERT(!tei_gpu_mem_add(r.ctx, r.host[1], 4096, &err));
	}
	copy_close(&r);
}

/* If the driver cannot push a CUDA context, the copies in this context must not
 * count as ended. */
static void test_context_that_cannot_be_had_ends_no_copy(void)
{
	struct copy_rig r = copy_open(30, 4096);
	struct gpu_test_op op, queued;
	struct timespec nap = { .tv_nsec = 20000000 };

	r.driver->hold(1);
	CU_ASSERT(!gpu_test_start(r.ctx, &op, copy_host(&r, 1), r.gpu[0].addr,
				  4096));
	CU_ASSERT(copy_begun(&r, &op));
	r.driver->fail("cuCtxPushCurrent", 0, 2);
	nanosleep(&nap, NULL);
	CU_ASSERT(!gpu_test_ended(&op));
	r.driver->fail("cuCtxPushCurrent", 0, 2);
	CU_ASSERT(!gpu_test_start(r.ctx, &queued, copy_host(&r, 1),
				  r.gpu[0].addr, 4096));
	r.driver->hold(0);
	CU_ASSERT_EQUAL(gpu_test_wait(&op), 0);
	gpu_test_wait(&queued);		/* the operation was refused, or the
					 * next iteration of the thread has
					 * started it */
	copy_close(&r);
}

static void test_context_that_is_gone_fails_the_operation(void)
{
	struct copy_rig r = copy_open(30, 4096);
	struct gpu_test_op op;

	CU_ASSERT(!r.driver->ctx_destroy(r.gpu[0].context));
	CU_ASSERT(!gpu_test_start(r.ctx, &op, r.gpu[0].addr,
				  copy_host(&r, 0), 4096));
	CU_ASSERT_EQUAL(gpu_test_wait(&op), TEI_ERR_CONTEXT);
	CU_ASSERT(strstr(op.err.text, "CUDA_ERROR_INVALID_CONTEXT") != NULL);
	CU_ASSERT(!gpu_test_copy(r.ctx, r.gpu[1].addr, copy_host(&r, 0), 9));
	CU_ASSERT(!tei_gpu_mem_remove(r.ctx,
				      (void *)(uintptr_t)r.gpu[0].addr,
				      UINT64_MAX));
	CU_ASSERT_EQUAL(r.driver->left(), 33);	/* the other objects were freed
						 * with the context */
	tei_gpu_fini(r.ctx);
	CU_ASSERT_EQUAL(r.driver->left(), 0);
	free(r.host[0]);
	free(r.host[1]);
}

/*
 * If a GPU hangs, its operations must time out. Memory that its copies in
 * flight may still access must stay registered, and other memory must be
 * removable.
 */
static void test_gpu_that_hangs_delays_no_other(void)
{
	struct copy_rig r = copy_open(1, 4096);
	void *addr = (void *)(uintptr_t)r.gpu[0].addr;
	struct gpu_test_op op[40];
	unsigned int timed_out = 0, failed = 0;
	int i;

	r.driver->hold(1);
	for (i = 0; i < 40; i++)
		CU_ASSERT(!gpu_test_start(r.ctx, &op[i], r.gpu[0].addr,
					  copy_host(&r, 0), 4096));
	for (i = 0; i < 40; i++) {
		gpu_test_wait(&op[i]);
		timed_out += op[i].code == TEI_ERR_TIMED_OUT;
		failed += op[i].code == TEI_ERR_CONTEXT;
	}
	CU_ASSERT_EQUAL(timed_out, 32);
	CU_ASSERT_EQUAL(failed, 8);
	CU_ASSERT_EQUAL(tei_gpu_mem_remove(r.ctx, addr, tei_now_ns()),
			TEI_ERR_BUSY);
	CU_ASSERT_EQUAL(tei_gpu_mem_remove(r.ctx, r.host[0], tei_now_ns()),
			TEI_ERR_BUSY);
	/* this memory is accessed by none of the copies in flight, so it can be
	 * removed */
	CU_ASSERT(!tei_gpu_mem_remove(r.ctx, r.host[1], tei_now_ns()));
	r.driver->hold(0);
	CU_ASSERT(!tei_gpu_mem_remove(r.ctx, r.host[0], UINT64_MAX));
	for (i = 0; i < 2; i++) {
		free(r.host[i]);
		CU_ASSERT(!tei_gpu_mem_remove(r.ctx,
					      (void *)(uintptr_t)r.gpu[i].addr,
					      UINT64_MAX));
	}
	tei_gpu_fini(r.ctx);
	CU_ASSERT_EQUAL(r.driver->left(), 0);
}

/*
 * An operation that is submitted while the GPU hangs must have its own timeout,
 * because the GPU may recover.
 */
static void test_operation_on_a_gpu_that_hangs_has_its_own_time(void)
{
	/* half of the timeout, because the test may be off the CPU for a
	 * while */
	struct copy_rig r = copy_open(GPU_TEST_PATIENCE_S, 4096);
	struct timespec nap = { .tv_sec = 1, .tv_nsec = 500000000 };
	struct gpu_test_op op, during, after;

	r.driver->hold(1);
	CU_ASSERT(!gpu_test_start(r.ctx, &op, r.gpu[0].addr,
				  copy_host(&r, 0), 4096));
	nanosleep(&nap, NULL);
	CU_ASSERT(!gpu_test_start(r.ctx, &during, r.gpu[0].addr,
				  copy_host(&r, 0), 4096));
	CU_ASSERT_EQUAL(gpu_test_wait(&op), TEI_ERR_TIMED_OUT);
	CU_ASSERT(!gpu_test_start(r.ctx, &after, r.gpu[0].addr,
				  copy_host(&r, 0), 4096));
	nap = (struct timespec){ .tv_nsec = 100000000 };
	nanosleep(&nap, NULL);
	CU_ASSERT(!gpu_test_ended(&during));
	CU_ASSERT(!gpu_test_ended(&after));
	r.driver->hold(0);
	CU_ASSERT_EQUAL(gpu_test_wait(&during), 0);
	CU_ASSERT_EQUAL(gpu_test_wait(&after), 0);
	copy_close(&r);
}

/*
 * A cancelled operation must end as timed out if its copies may still access
 * memory.
 */
static void test_cancelled_copy_of_a_gpu_that_hangs_is_timed_out(void)
{
	struct copy_rig r = copy_open(GPU_TEST_PATIENCE_S, 4096);
	struct gpu_test_op op;

	r.driver->hold(1);
	CU_ASSERT(!gpu_test_start(r.ctx, &op, r.gpu[0].addr,
				  copy_host(&r, 0), 4096));
	CU_ASSERT(copy_begun(&r, &op));
	tei_gpu_cancel(r.ctx, &op.op);
	CU_ASSERT_EQUAL(gpu_test_wait(&op), TEI_ERR_TIMED_OUT);
	CU_ASSERT_EQUAL(op.err.code, TEI_ERR_TIMED_OUT);
	r.driver->hold(0);
	copy_close(&r);
}

const struct tei_test_case copy_cases[] = {
	{ "bytes_go_all_ways", test_bytes_go_all_ways },
	{ "bad_operations_are_refused", test_bad_operations_are_refused },
	{ "copy_without_a_thread_is_refused",
	  test_copy_without_a_thread_is_refused },
	{ "operation_ends_after_its_event",
	  test_operation_ends_after_its_event },
	{ "draining_waits_for_what_was_begun",
	  test_draining_waits_for_what_was_begun },
	{ "cancelled_one_ends_once_its_copies_have",
	  test_cancelled_one_ends_once_its_copies_have },
	{ "failed_call_fails_the_operation",
	  test_failed_call_fails_the_operation },
	{ "capture_elsewhere_is_left_alone",
	  test_capture_elsewhere_is_left_alone },
	{ "failed_copy_that_hangs_keeps_its_memory",
	  test_failed_copy_that_hangs_keeps_its_memory },
	{ "context_that_cannot_be_had_ends_no_copy",
	  test_context_that_cannot_be_had_ends_no_copy },
	{ "gpu_that_hangs_delays_no_other",
	  test_gpu_that_hangs_delays_no_other },
	{ "operation_on_a_gpu_that_hangs_has_its_own_time",
	  test_operation_on_a_gpu_that_hangs_has_its_own_time },
	{ "cancelled_copy_of_a_gpu_that_hangs_is_timed_out",
	  test_cancelled_copy_of_a_gpu_that_hangs_is_timed_out },
	{ "context_that_is_gone_fails_the_operation",
	  test_context_that_is_gone_fails_the_operation },
	{ NULL, NULL },
};
