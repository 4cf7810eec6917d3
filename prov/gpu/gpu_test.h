/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_GPU_TEST_H
#define TEI_PROV_GPU_TEST_H

#include <pthread.h>

#include "fabtests/common/cuda_stand_in.h"
#include "prov/gpu/tei_gpu.h"
#include "util/clock.h"
#include "util/cuda.h"
#include "util/settings.h"
#include "util/tei_test.h"

#define GPU_TEST_WAIT_NS	(60 * TEI_NS_PER_SEC)
/*
 * Value of slice_timeout_s for tests that wait until it expires. It is so long
 * that a test may be off the CPU for a second or two.
 */
#define GPU_TEST_PATIENCE_S	3

extern const struct tei_test_case cuda_cases[];
extern const struct tei_test_case mem_cases[];
extern const struct tei_test_case copy_cases[];
extern const struct tei_test_case peer_cases[];

/*
 * Returns the stand-in for the CUDA driver and loads it at the first call. If
 * it is missing, the test case fails.
 */
const struct cuda_stand_in *gpu_test_driver(void);
/* Returns true if the driver is already loaded. */
bool gpu_test_loaded(void);

/* Creates a context whose slice_timeout_s has the value "seconds". */
struct tei_gpu *gpu_test_open(uint64_t seconds);
/* Closes the context and checks that no object is left in the driver. */
void gpu_test_close(struct tei_gpu *ctx);

/*
 * Registered GPU memory in a CUDA context of its own. gpu_test_mem_free
 * unregisters and frees both.
 */
struct gpu_test_mem {
	void *context;
	uint64_t addr;
	size_t size;
};
struct gpu_test_mem gpu_test_mem(struct tei_gpu *ctx, int device, size_t size);
void gpu_test_mem_free(struct tei_gpu *ctx, const struct gpu_test_mem *m);

/* An operation for whose end a test can wait. */
struct gpu_test_op {
	struct tei_gpu_op op;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool ended;
	int code;
	struct tei_err err;
};
/* Submits an operation. Returns the code of tei_gpu_submit. */
int gpu_test_start(struct tei_gpu *ctx, struct gpu_test_op *t, uint64_t dst,
		   uint64_t src, uint64_t len);
/* Does the same for an operation whose members "op" are 0, except for
 * op.guard. */
int gpu_test_start_op(struct tei_gpu *ctx, struct gpu_test_op *t, uint64_t dst,
		      uint64_t src, uint64_t len);
bool gpu_test_ended(struct gpu_test_op *t);
/* Waits for done and returns its code. */
int gpu_test_wait(struct gpu_test_op *t);
/* Submits an operation, waits for its end and returns its code. */
int gpu_test_copy(struct tei_gpu *ctx, uint64_t dst, uint64_t src,
		  uint64_t len);

/* Runs the second process of the tests, which owns GPU memory and communicates
 * through the socket fd. The memory consists of that number of chunks; 0: it is
 * from cuMemAlloc. Returns the exit code. */
int gpu_test_owner(int fd, unsigned int chunks);

#endif /* TEI_PROV_GPU_TEST_H */
