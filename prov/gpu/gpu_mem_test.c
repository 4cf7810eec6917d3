/* SPDX-License-Identifier: BSD-2-Clause */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "prov/gpu/gpu_test.h"

static char mem_host[65536];

static void test_ranges_are_of_one_kind_and_apart(void)
{
	struct tei_gpu *ctx = gpu_test_open(30);
	struct gpu_test_mem m = gpu_test_mem(ctx, 1, 65536);
	void *addr = (void *)(uintptr_t)m.addr;
	uint64_t host = (uintptr_t)mem_host;
	struct tei_err err;
	char other[64];
	int device = 7;

	CU_ASSERT(!tei_gpu_where(ctx, addr, 65536, &device, &err));
	CU_ASSERT_EQUAL(device, 1);
	CU_ASSERT(!tei_gpu_where(ctx, mem_host, 10, &device, &err));
	CU_ASSERT_EQUAL(device, -1);
	CU_ASSERT(!tei_gpu_mem_add(ctx, mem_host, sizeof(mem_host), &err));
	CU_ASSERT_EQUAL(tei_gpu_mem_add(ctx, mem_host + 1, 1, &err),
			TEI_ERR_OVERLAP);
	snprintf(other, sizeof(other), "0x%llx of %zu bytes",
		 (unsigned long long)host, sizeof(mem_host));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, other));
	CU_ASSERT_EQUAL(tei_gpu_mem_add(ctx, addr, 65536, &err),
			TEI_ERR_OVERLAP);
	CU_ASSERT_EQUAL(tei_gpu_mem_add(ctx, addr, UINT64_C(1) << 40, &err),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_gpu_mem_add(ctx, NULL, 8, &err), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_gpu_kind(ctx, m.addr + 5, 65531), TEI_GPU_DEVICE);
	CU_ASSERT_EQUAL(tei_gpu_kind(ctx, m.addr + 5, 65532),
			TEI_GPU_NOT_REGISTERED);
	CU_ASSERT_EQUAL(tei_gpu_kind(ctx, host, 1), TEI_GPU_HOST);
	CU_ASSERT_EQUAL(tei_gpu_kind(ctx, 8, UINT64_MAX - 4),
			TEI_GPU_NOT_REGISTERED);
	CU_ASSERT_EQUAL(tei_gpu_mem_remove(ctx, mem_host + 1, UINT64_MAX),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(!tei_gpu_mem_remove(ctx, mem_host, UINT64_MAX));
	CU_ASSERT_EQUAL(tei_gpu_kind(ctx, host, 1), TEI_GPU_NOT_REGISTERED);
	gpu_test_mem_free(ctx, &m);
	gpu_test_close(ctx);
}

static void test_memory_in_use_stays(void)
{
	const struct cuda_stand_in *driver = gpu_test_driver();
	struct tei_gpu *ctx = gpu_test_open(30);
	struct gpu_test_mem m = gpu_test_mem(ctx, 0, 65536);
	void *addr = (void *)(uintptr_t)m.addr;
	struct gpu_test_op op;
	struct tei_err err;

	CU_ASSERT(!tei_gpu_mem_add(ctx, mem_host, sizeof(mem_host), &err));
	driver->hold(1);
	CU_ASSERT(!gpu_test_start(ctx, &op, m.addr, (uintptr_t)mem_host, 100));
	CU_ASSERT_EQUAL(tei_gpu_mem_remove(ctx, addr, tei_now_ns()),
			TEI_ERR_BUSY);
	CU_ASSERT_EQUAL(tei_gpu_mem_remove(ctx, mem_host, tei_now_ns()),
			TEI_ERR_BUSY);
	CU_ASSERT_EQUAL(tei_gpu_kind(ctx, m.addr, 1), TEI_GPU_DEVICE);
	driver->hold(0);
	CU_ASSERT(!tei_gpu_mem_remove(ctx, mem_host, UINT64_MAX));
	CU_ASSERT_EQUAL(gpu_test_wait(&op), 0);
	CU_ASSERT_EQUAL(gpu_test_start(ctx, &op, m.addr, (uintptr_t)mem_host,
				       100), TEI_ERR_NOT_REGISTERED);
	gpu_test_mem_free(ctx, &m);
	gpu_test_close(ctx);
}

struct mem_notified {
	struct tei_gpu_op op;
	bool begun, reported; /* atomics */
};

/* A done callback that sleeps for 100 ms. */
static void mem_notify(struct tei_gpu_op *op, int code,
		       const struct tei_err *err)
{
	struct mem_notified *t = tei_container_of(op, struct mem_notified, op);
	struct timespec nap = { .tv_nsec = 100 * (long)TEI_NS_PER_MS };

	(void)err;
	CU_ASSERT_EQUAL(code, 0);
	__atomic_store_n(&t->begun, true, __ATOMIC_RELEASE);
	nanosleep(&nap, NULL);
	__atomic_store_n(&t->reported, true, __ATOMIC_RELEASE);
}

static void test_memory_stays_until_ends_are_reported(void)
{
	struct tei_gpu *ctx = gpu_test_open(30);
	struct gpu_test_mem m = gpu_test_mem(ctx, 0, 65536);
	void *side[] = { mem_host, (void *)(uintptr_t)m.addr };
	struct tei_err err;
	struct mem_notified t;
	uint64_t end;
	int i;

	for (i = 0; i < 2; i++) {
		CU_ASSERT(!tei_gpu_mem_add(ctx, mem_host, sizeof(mem_host),
					   &err));
		t = (struct mem_notified){
			.op = { .dst = m.addr,
				.src = (uintptr_t)mem_host,
				.length = 100,
				.done = mem_notify },
		};
		CU_ASSERT_FATAL(!tei_gpu_submit(ctx, &t.op));
		end = tei_now_ns() + GPU_TEST_WAIT_NS;
		while (!__atomic_load_n(&t.begun, __ATOMIC_ACQUIRE) &&
		       tei_now_ns() < end)
			sched_yield();
		CU_ASSERT(!tei_gpu_mem_remove(ctx, side[i], UINT64_MAX));
		CU_ASSERT(__atomic_load_n(&t.reported, __ATOMIC_ACQUIRE));
	}
	CU_ASSERT(!tei_gpu_mem_remove(ctx, mem_host, UINT64_MAX));
	CU_ASSERT(!tei_gpu_mem_add(ctx, side[1], m.size, &err));
	gpu_test_mem_free(ctx, &m);
	gpu_test_close(ctx);
}

struct mem_leaver {
	struct tei_gpu *ctx;
	void *addr;
	int ret;
};

static void *mem_leave(void *arg)
{
	struct mem_leaver *l = arg;

	l->ret = tei_gpu_mem_remove(l->ctx, l->addr, UINT64_MAX);
	return NULL;
}

/*
 * While a thread waits to remove held memory, only copies of the holder must be
 * accepted.
 */
static void test_held_memory_stays_until_let_go(void)
{
	struct tei_gpu *ctx = gpu_test_open(30);
	struct gpu_test_mem m = gpu_test_mem(ctx, 0, 65536);
	struct mem_leaver l = { ctx, (void *)(uintptr_t)m.addr, 1 };
	uint64_t end = tei_now_ns() + GPU_TEST_WAIT_NS;
	struct gpu_test_op op;
	struct tei_err err;
	pthread_t thread;
	uint32_t place;

	CU_ASSERT(!tei_gpu_mem_add(ctx, mem_host, sizeof(mem_host), &err));
	CU_ASSERT_EQUAL(tei_gpu_mem_hold(ctx, (uintptr_t)mem_host, 1, &place),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(tei_gpu_mem_hold(ctx, m.addr, 65537, &place),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(!tei_gpu_mem_hold(ctx, m.addr + 9, 100, &place));
	CU_ASSERT(place < TEI_GPU_CONTEXTS);
	CU_ASSERT_EQUAL(tei_gpu_mem_remove(ctx, l.addr, tei_now_ns()),
			TEI_ERR_BUSY);
	pthread_create(&thread, NULL, mem_leave, &l);
	while (tei_gpu_kind(ctx, m.addr, 1) == TEI_GPU_DEVICE &&
	       tei_now_ns() < end)
		sched_yield();
	CU_ASSERT_EQUAL(tei_gpu_mem_hold(ctx, m.addr, 1, &place),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(gpu_test_start(ctx, &op, m.addr, (uintptr_t)mem_host,
				       9), TEI_ERR_NOT_REGISTERED);
	op.op.held = true;
	CU_ASSERT(!tei_gpu_submit(ctx, &op.op));
	CU_ASSERT(!gpu_test_wait(&op));
	tei_gpu_mem_let_go(ctx, m.addr + 9);
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL(l.ret, 0);
	gpu_test_close(ctx);
	CU_ASSERT(!gpu_test_driver()->free(m.addr));
}

static void test_pinned_memory_keeps_its_context(void)
{
	const struct cuda_stand_in *driver = gpu_test_driver();
	struct tei_gpu *ctx = gpu_test_open(30);
	struct gpu_test_mem m = gpu_test_mem(ctx, 0, 65536);
	void *addr = (void *)(uintptr_t)m.addr;
	struct gpu_test_op op;
	struct tei_err err;

	CU_ASSERT_EQUAL(tei_gpu_mem_pin(ctx, mem_host, mem_host, 4096, &err),
			TEI_ERR_NOT_REGISTERED);
	driver->fail("cuMemHostRegister", 0, 2);
	CU_ASSERT_EQUAL(tei_gpu_mem_pin(ctx, addr, mem_host, 4096, &err),
			TEI_ERR_MEMORY);
	CU_ASSERT(strstr(err.text, "cuMemHostRegister") != NULL);
	CU_ASSERT_EQUAL(driver->left(), 33);
	CU_ASSERT(!tei_gpu_mem_pin(ctx, addr, mem_host, 4096, &err));
	CU_ASSERT_EQUAL(driver->left(), 34);
	CU_ASSERT_EQUAL(tei_gpu_mem_add(ctx, mem_host, 4096, &err),
			TEI_ERR_OVERLAP);
	driver->hold(1);
	CU_ASSERT(!gpu_test_start(ctx, &op, m.addr, (uintptr_t)mem_host,
				  4096));
	CU_ASSERT(!tei_gpu_mem_idle(ctx, (uintptr_t)mem_host + 4095, 1));
	CU_ASSERT(tei_gpu_mem_idle(ctx, (uintptr_t)mem_host + 4096, 1));
	driver->hold(0);
	CU_ASSERT(!gpu_test_wait(&op));
	CU_ASSERT(tei_gpu_mem_idle(ctx, (uintptr_t)mem_host, 4096));
	CU_ASSERT(!tei_gpu_mem_remove(ctx, addr, UINT64_MAX));
	CU_ASSERT_EQUAL(driver->left(), 34);
	CU_ASSERT(!tei_gpu_mem_remove(ctx, mem_host, UINT64_MAX));
	CU_ASSERT_EQUAL(driver->left(), 0);
	CU_ASSERT(!driver->free(m.addr));
	gpu_test_close(ctx);
}

/* A registration must not disturb a graph capture of the program. */
static void test_capture_elsewhere_goes_on(void)
{
	const struct cuda_stand_in *driver = gpu_test_driver();
	struct tei_gpu *ctx = gpu_test_open(30);
	struct gpu_test_mem m = gpu_test_mem(ctx, 0, 65536);
	struct tei_err err;
	uint64_t more = 0;

	driver->capture(1);
	CU_ASSERT(!tei_gpu_mem_pin(ctx, (void *)(uintptr_t)m.addr, mem_host,
				   4096, &err));
	CU_ASSERT(!tei_gpu_mem_remove(ctx, mem_host, UINT64_MAX));
	CU_ASSERT(!tei_gpu_alloc(ctx, 1, 4096, &more, &err));
	CU_ASSERT_EQUAL(driver->capture(0), 0);
	/* after the calls above, calls of this thread must be subject to the
	 * capture again: the allocation is refused and breaks the capture */
	driver->capture(1);
	CU_ASSERT_EQUAL(driver->push(m.context), 0);
	CU_ASSERT_EQUAL(driver->alloc(&more, 4096), 900);
	CU_ASSERT_EQUAL(driver->pop(&m.context), 0);
	CU_ASSERT_EQUAL(driver->capture(0), 901);
	gpu_test_mem_free(ctx, &m);
	gpu_test_close(ctx);
}

/*
 * Memory from cuMemMap has no synchronisation attribute. tei_gpu_mem_share must
 * set a flag of its context instead.
 */
static void test_mapped_memory_is_shared_too(void)
{
	const struct cuda_stand_in *driver = gpu_test_driver();
	struct tei_gpu *ctx = gpu_test_open(30);
	struct gpu_test_mem m = gpu_test_mem(ctx, 0, 65536);
	void *addr = (void *)(uintptr_t)m.addr;
	uint64_t offset = 1;
	struct tei_err err;
	int fd = -1;

	driver->fail("cuPointerSetAttribute", 0, 1);
	CU_ASSERT_EQUAL(tei_gpu_mem_share(ctx, addr, 4096, &fd, &offset, &err),
			TEI_ERR_CONTEXT);
	CU_ASSERT(!driver->alias(m.addr, 4096));
	driver->fail("cuPointerSetAttribute", 0, 801);
	CU_ASSERT(!tei_gpu_mem_share(ctx, addr, 4096, &fd, &offset, &err));
	CU_ASSERT(driver->alias(m.addr, 4096) != NULL);
	CU_ASSERT(fd >= 0 && !offset);
	close(fd);
	gpu_test_mem_free(ctx, &m);
	gpu_test_close(ctx);
}

static void test_contexts_are_bounded_and_used_again(void)
{
	const struct cuda_stand_in *driver = gpu_test_driver();
	struct gpu_test_mem m[TEI_GPU_CONTEXTS];
	struct tei_gpu *ctx = gpu_test_open(30);
	struct tei_err err;
	void *context;
	uint64_t more;
	int i, round;

	more = cuda_stand_in_memory(driver, 0, 4096, &context);
	CU_ASSERT_FATAL(more != 0);
	for (round = 0; round < 2; round++) {
		for (i = 0; i < TEI_GPU_CONTEXTS; i++)
			m[i] = gpu_test_mem(ctx, i % 2, 4096);
		CU_ASSERT_EQUAL(tei_gpu_mem_add(ctx, (void *)(uintptr_t)more,
						4096, &err), TEI_ERR_TOO_MANY);
		for (i = 0; i < TEI_GPU_CONTEXTS; i++)
			gpu_test_mem_free(ctx, &m[i]);
	}
	CU_ASSERT(!driver->free(more));
	CU_ASSERT(!driver->ctx_destroy(context));
	CU_ASSERT_EQUAL(driver->left(), 0);
	gpu_test_close(ctx);
}

static void test_half_made_context_is_undone(void)
{
	const struct cuda_stand_in *driver = gpu_test_driver();
	static const char *const calls[] = {
		"cuCtxPushCurrent", "cuStreamCreate", "cuEventCreate",
	};
	struct tei_gpu *ctx = gpu_test_open(30);
	struct tei_err err;
	void *context;
	uint64_t addr;
	unsigned int i;

	addr = cuda_stand_in_memory(driver, 0, 4096, &context);
	CU_ASSERT_FATAL(addr != 0);
	for (i = 0; i < 3; i++) {
		driver->fail(calls[i], i == 2 ? 5 : 0, 2);
		CU_ASSERT_EQUAL(tei_gpu_mem_add(ctx, (void *)(uintptr_t)addr,
						4096, &err), TEI_ERR_MEMORY);
		CU_ASSERT(strstr(err.text, calls[i]) != NULL);
		CU_ASSERT_EQUAL(driver->left(), 0);
	}
	CU_ASSERT(!tei_gpu_mem_add(ctx, (void *)(uintptr_t)addr, 4096, &err));
	CU_ASSERT(driver->left() != 0);
	gpu_test_close(ctx);
	CU_ASSERT(!driver->free(addr));
}

const struct tei_test_case mem_cases[] = {
	{ "ranges_are_of_one_kind_and_apart",
	  test_ranges_are_of_one_kind_and_apart },
	{ "memory_in_use_stays", test_memory_in_use_stays },
	{ "memory_stays_until_ends_are_reported",
	  test_memory_stays_until_ends_are_reported },
	{ "held_memory_stays_until_let_go",
	  test_held_memory_stays_until_let_go },
	{ "pinned_memory_keeps_its_context",
	  test_pinned_memory_keeps_its_context },
	{ "capture_elsewhere_goes_on", test_capture_elsewhere_goes_on },
	{ "mapped_memory_is_shared_too", test_mapped_memory_is_shared_too },
	{ "contexts_are_bounded_and_used_again",
	  test_contexts_are_bounded_and_used_again },
	{ "half_made_context_is_undone", test_half_made_context_is_undone },
	{ NULL, NULL },
};
