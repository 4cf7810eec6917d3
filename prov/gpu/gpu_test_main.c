/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "prov/gpu/gpu_test.h"

static struct cuda_stand_in test_driver;
static bool test_loaded;

bool gpu_test_loaded(void)
{
	return test_loaded;
}

const struct cuda_stand_in *gpu_test_driver(void)
{
	if (!test_loaded)
		test_loaded = cuda_stand_in_load(&test_driver);
	CU_ASSERT_FATAL(test_loaded);
	return &test_driver;
}

struct tei_gpu *gpu_test_open(uint64_t seconds)
{
	struct tei_settings settings;
	struct tei_gpu *ctx = NULL;
	struct tei_err err;

	gpu_test_driver();
	memset(&settings, 0, sizeof(settings));
	settings.failure.slice_timeout_s = seconds;
	CU_ASSERT_FATAL(!tei_gpu_init(&settings, &err, &ctx));
	return ctx;
}

void gpu_test_close(struct tei_gpu *ctx)
{
	tei_gpu_fini(ctx);
	CU_ASSERT_EQUAL(test_driver.left(), 0);
}

struct gpu_test_mem gpu_test_mem(struct tei_gpu *ctx, int device, size_t size)
{
	struct gpu_test_mem m = { .size = size };
	struct tei_err err;

	m.addr = cuda_stand_in_memory(&test_driver, device, size, &m.context);
	CU_ASSERT_FATAL(m.addr != 0);
	CU_ASSERT_FATAL(!tei_gpu_mem_add(ctx, (void *)(uintptr_t)m.addr, size,
					 &err));
	return m;
}

void gpu_test_mem_free(struct tei_gpu *ctx, const struct gpu_test_mem *m)
{
	CU_ASSERT_FATAL(!tei_gpu_mem_remove(ctx, (void *)(uintptr_t)m->addr,
					    UINT64_MAX));
	CU_ASSERT(!test_driver.free(m->addr));
	CU_ASSERT(!test_driver.ctx_destroy(m->context));
}

static void test_done(struct tei_gpu_op *op, int code,
		      const struct tei_err *err)
{
	struct gpu_test_op *t = tei_container_of(op, struct gpu_test_op, op);

	pthread_mutex_lock(&t->lock);
	t->ended = true;
	t->code = code;
	if (err)
		t->err = *err;
	pthread_cond_broadcast(&t->cond);
	pthread_mutex_unlock(&t->lock);
}

int gpu_test_start_op(struct tei_gpu *ctx, struct gpu_test_op *t, uint64_t dst,
		      uint64_t src, uint64_t len)
{
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->cond, NULL);
	t->op.dst = dst;
	t->op.src = src;
	t->op.length = len;
	t->op.done = test_done;
	return tei_gpu_submit(ctx, &t->op);
}

int gpu_test_start(struct tei_gpu *ctx, struct gpu_test_op *t, uint64_t dst,
		   uint64_t src, uint64_t len)
{
	memset(t, 0, sizeof(*t));
	return gpu_test_start_op(ctx, t, dst, src, len);
}

bool gpu_test_ended(struct gpu_test_op *t)
{
	bool ended;

	pthread_mutex_lock(&t->lock);
	ended = t->ended;
	pthread_mutex_unlock(&t->lock);
	return ended;
}

int gpu_test_wait(struct gpu_test_op *t)
{
	pthread_mutex_lock(&t->lock);
	while (!t->ended)
		pthread_cond_wait(&t->cond, &t->lock);
	pthread_mutex_unlock(&t->lock);
	return t->code;
}

int gpu_test_copy(struct tei_gpu *ctx, uint64_t dst, uint64_t src, uint64_t len)
{
	struct gpu_test_op t;
	int ret = gpu_test_start(ctx, &t, dst, src, len);

	return ret ? ret : gpu_test_wait(&t);
}

int main(int argc, char **argv)
{
	static const struct tei_test_suite suites[] = {
		{ "cuda", cuda_cases },
		{ "mem", mem_cases },
		{ "copy", copy_cases },
		{ "peer", peer_cases },
		{ NULL, NULL },
	};

	if (argc == 4 && !strcmp(argv[1], "--owner"))
		return gpu_test_owner(atoi(argv[2]),
				      (unsigned int)atoi(argv[3]));
	return tei_test_run(argc, argv, suites);
}
