/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_GPU_INT_H
#define TEI_PROV_GPU_INT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/gpu/tei_gpu.h"
#include "util/cuda.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/range.h"

#define GPU_DEPTH	32u		/* largest number of copies in flight in
					 * a CUDA context */
#define GPU_PIECE	(8u << 20)	/* maximum length of one copy, bytes */
#define GPU_BEGUN_MAX	(64u << 20)	/* largest number of bytes in flight in
					 * a CUDA context */

/* A copy in flight. */
struct gpu_copy {
	struct tei_gpu_op *op;		/* operation of the copy; NULL if the
					 * operation ended while the copy is
					 * still in flight */
	uint64_t dst, src, len;
	uint64_t begun_ns;
	bool unmarked;			/* no event marks the end of this copy,
					 * so it counts as ended only when all
					 * work of the stream has ended */
	bool failed;			/* the copy has failed, and the error is
					 * recorded in op */
};

/*
 * A CUDA context with registered memory. Its entry in tei_gpu.contexts becomes
 * free when the last registered range is removed.
 */
struct gpu_context {
	/* guarded by ctx->lock */
	uint32_t memories;		/* number of registered ranges that lie
					 * in this context or are pinned in it;
					 * if 0, the entry of the table is
					 * free */
	struct tei_list queue;		/* operations that have copies left to
					 * start */

	/* constant while memories is not 0 */
	void *handle;
	void *stream;
	void *events[GPU_DEPTH]; /* events[i] marks the end of ring[i] */

	/* guarded by ctx->lock; changed by the thread, and when the context is
	 * opened */
	struct gpu_copy ring[GPU_DEPTH];
	uint32_t first, count;
	uint64_t bytes;			/* total length of the copies in flight,
					 * bytes */
	uint64_t ended_ns;		/* time at which the last copy ended */
};

/* Registered memory. Created by tei_gpu_mem_add or tei_gpu_mem_pin, freed by
 * tei_gpu_mem_remove or tei_gpu_fini. */
struct gpu_mem {
	struct tei_range range;		/* node in tei_gpu.mem */
	struct gpu_context *context;	/* NULL if the memory is host memory */
	struct gpu_context *pinned;	/* context in which host memory is
					 * pinned, or NULL */
	uint32_t holds;
	bool removing;
};

/*
 * An operation whose done callback is running. On the stack of the thread that
 * runs the callback.
 */
struct gpu_ending {
	uint64_t dst, src, length;
};

/* Memory allocated by tei_gpu_alloc. */
struct gpu_alloc {
	struct gpu_alloc *next;
	uint64_t addr;
	int device;
};

/* Created by tei_gpu_init, freed by tei_gpu_fini. */
struct tei_gpu {
	/* constant after init */
	struct tei_cuda *cuda;
	uint64_t stall_ns;

	struct tei_mutex admin;		/* acquired before "lock"; held while
					 * contexts open and close */
	struct tei_mutex lock;		/* guards the members below */
	pthread_cond_t work;		/* signalled when there is work or
					 * stopping is set */
	pthread_cond_t ended;		/* signalled when an operation has
					 * ended */
	struct tei_range_table mem;	/* table of gpu_mem.range */
	uint32_t ndevice;		/* number of ranges of GPU memory;
					 * atomic */
	struct gpu_context contexts[TEI_GPU_CONTEXTS];
	struct gpu_alloc *allocs;
	struct tei_list live;		 /* list of tei_gpu_op.live_node */
	struct tei_list over;		 /* list of tei_gpu_op.node: operations
					  * whose done callback must be
					  * called */
	const struct gpu_ending *ending; /* operation whose done callback is
					  * running, or NULL */
	uint32_t given_up;		/* number of copies that are still in
					 * flight after their operation has
					 * ended */
	bool started, stopping;
	pthread_t thread;

	struct tei_log_limit log_limit;
};

/* Returns the registered memory that contains [addr, addr + len), or NULL if
 * there is none. going: if true, also finds memory that is being removed. */
struct gpu_mem *gpu_mem_find(struct tei_gpu *ctx, uint64_t addr, uint64_t len,
			     bool going) TEI_REQUIRES(ctx->lock);

/* Frees all memory of tei_gpu_alloc that was not freed. */
void gpu_alloc_free_all(struct tei_gpu *ctx);

/* Waits until an operation has ended (the condition variable ctx->ended), or
 * for a shorter time. Returns false if the deadline has passed. */
bool gpu_wait(struct tei_gpu *ctx, uint64_t deadline_ns)
	TEI_REQUIRES(ctx->lock);

/* Main function of the thread, which tei_gpu_submit starts. */
void *gpu_main(void *arg);

/*
 * Cancels op: no further copy of it is started, and op ends when none of its
 * copies is in flight.
 */
void gpu_op_drop(struct tei_gpu *ctx, struct tei_gpu_op *op)
	TEI_REQUIRES(ctx->lock);

/* Unpins host memory in the CUDA context in which it is pinned. */
void gpu_mem_unpin(struct tei_gpu *ctx, const struct gpu_mem *m);

/* Destroys the stream and the events of a context that has no registered memory
 * any longer. */
void gpu_context_close(struct tei_gpu *ctx, struct gpu_context *c);

#endif /* TEI_PROV_GPU_INT_H */
