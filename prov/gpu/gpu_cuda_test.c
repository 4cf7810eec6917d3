/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "prov/gpu/gpu_test.h"

/* The library must not load the driver by itself. This case must run first,
 * before another case loads the driver. */
static void test_driver_is_not_loaded_before_it_is_needed(void)
{
	struct tei_settings settings;
	struct tei_cuda *cuda = NULL;
	struct tei_gpu *ctx = NULL;
	struct tei_err err;

	if (gpu_test_loaded()) {
		tei_test_skip("another test case has loaded the CUDA driver");
		return;
	}
	CU_ASSERT(!tei_cuda_present());
	CU_ASSERT(!tei_cuda_present());
	CU_ASSERT_EQUAL(tei_cuda_open(&err, &cuda), TEI_ERR_NO_DEVICE);
	CU_ASSERT(strstr(err.text, "libcuda.so.1") != NULL);
	CU_ASSERT_PTR_NULL(cuda);
	memset(&settings, 0, sizeof(settings));
	CU_ASSERT_EQUAL(tei_gpu_init(&settings, &err, &ctx),
			TEI_ERR_NO_DEVICE);
	CU_ASSERT_PTR_NULL(ctx);
	CU_ASSERT(!cuda_stand_in_mapped());
	gpu_test_driver();
	CU_ASSERT(tei_cuda_present());
	CU_ASSERT(cuda_stand_in_mapped());
}

static struct tei_cuda *cuda_open(void)
{
	struct tei_cuda *cuda = NULL;
	struct tei_err err;

	gpu_test_driver();
	CU_ASSERT_FATAL(!tei_cuda_open(&err, &cuda));
	return cuda;
}

static void test_pointer_tells_its_device(void)
{
	const struct cuda_stand_in *driver = gpu_test_driver();
	struct tei_cuda *cuda = cuda_open();
	struct tei_cuda_mem where;
	struct tei_err err;
	char host[64];
	uint64_t addr;
	void *context;
	int device;

	CU_ASSERT(!tei_cuda_where(cuda, host, sizeof(host), &where, &err));
	CU_ASSERT_EQUAL(where.device, -1);
	CU_ASSERT_PTR_NULL(where.context);
	for (device = 0; device < 2; device++) {
		addr = cuda_stand_in_memory(driver, device, 8192, &context);
		CU_ASSERT_FATAL(addr != 0);
		CU_ASSERT(!tei_cuda_where(cuda, (void *)(uintptr_t)addr, 8192,
					  &where, &err));
		CU_ASSERT_EQUAL(where.device, device);
		CU_ASSERT_PTR_EQUAL(where.context, context);
		CU_ASSERT_EQUAL(tei_cuda_where(cuda, (void *)(uintptr_t)addr,
					       UINT64_C(1) << 40, &where, &err),
				TEI_ERR_INVALID);
		CU_ASSERT(!driver->free(addr));
	}
	tei_cuda_close(cuda);
}

/* GPU memory inside a range must be found even if the first and the last byte
 * of the range are not in GPU memory. */
static void test_gpu_memory_in_the_midst_of_a_range_is_seen(void)
{
	const struct cuda_stand_in *driver = gpu_test_driver();
	struct tei_cuda *cuda = cuda_open();
	uint64_t size = 2 * TEI_CUDA_STEP, addr;
	struct tei_cuda_mem where;
	struct tei_err err;
	void *context;

	addr = cuda_stand_in_memory(driver, 0, size, &context);
	CU_ASSERT_FATAL(addr != 0);
	CU_ASSERT_EQUAL(tei_cuda_where(cuda, (void *)(uintptr_t)(addr - 4096),
				       size + 8192, &where, &err),
			TEI_ERR_INVALID);
	CU_ASSERT(strstr(err.text, "different kinds") != NULL);
	CU_ASSERT_EQUAL(tei_cuda_where(cuda, (void *)(uintptr_t)(addr + 1),
				       size, &where, &err), TEI_ERR_INVALID);
	CU_ASSERT(!tei_cuda_where(cuda, (void *)(uintptr_t)(addr + 1),
				  size - 1, &where, &err));
	CU_ASSERT(!driver->free(addr));
	tei_cuda_close(cuda);
}

static void test_error_is_in_the_drivers_words(void)
{
	struct tei_cuda *cuda = cuda_open();
	struct tei_err err;

	CU_ASSERT_EQUAL(tei_cuda_push(cuda, NULL, &err), TEI_ERR_CONTEXT);
	CU_ASSERT_STRING_EQUAL(err.text,
			       "cuCtxPushCurrent: CUDA_ERROR_INVALID_CONTEXT (201)");
	CU_ASSERT_STRING_EQUAL(err.provider, "cuda");
	CU_ASSERT_EQUAL(err.prov_errno, 201);
	gpu_test_driver()->fail("cuCtxPushCurrent", 0, 2);
	CU_ASSERT_EQUAL(tei_cuda_push(cuda, NULL, &err), TEI_ERR_MEMORY);
	gpu_test_driver()->fail("cuCtxPushCurrent", 0, 9999);
	CU_ASSERT_EQUAL(tei_cuda_push(cuda, NULL, &err), TEI_ERR_CONTEXT);
	CU_ASSERT(strstr(err.text, "(9999)") != NULL);
	tei_cuda_close(cuda);
}

/*
 * Simulates a program that initialises the driver after the library's first
 * query. Until then, memory must count as host memory.
 */
static void test_uninitialised_driver_has_host_memory_only(void)
{
	struct tei_cuda *cuda = cuda_open();
	struct tei_cuda_mem where;
	struct tei_err err;
	char host[64];
	int i;

	/* the driver returns NOT_INITIALIZED, then INVALID_CONTEXT: no context
	 * knows the memory */
	for (i = 0; i < 2; i++) {
		gpu_test_driver()->fail("cuPointerGetAttributes", 0,
					i ? 201 : 3);
		CU_ASSERT(!tei_cuda_where(cuda, host, sizeof(host), &where,
					  &err));
		CU_ASSERT_EQUAL(where.device, -1);
	}
	tei_cuda_close(cuda);
}

const struct tei_test_case cuda_cases[] = {
	{ "driver_is_not_loaded_before_it_is_needed",
	  test_driver_is_not_loaded_before_it_is_needed },
	{ "pointer_tells_its_device", test_pointer_tells_its_device },
	{ "gpu_memory_in_the_midst_of_a_range_is_seen",
	  test_gpu_memory_in_the_midst_of_a_range_is_seen },
	{ "error_is_in_the_drivers_words", test_error_is_in_the_drivers_words },
	{ "uninitialised_driver_has_host_memory_only",
	  test_uninitialised_driver_has_host_memory_only },
	{ NULL, NULL },
};
