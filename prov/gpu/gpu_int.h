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

#define GPU_DEPTH	32u		/* copies begun in one context */
#define GPU_PIECE	(8u << 20)	/* bytes of one copy, at most */
#define GPU_BEGUN_MAX	(64u << 20)	/* bytes begun in one context */

/* A copy that was begun. */
struct gpu_copy {
	struct tei_gpu_op *op;		/* NULL: it was given up */
	uint64_t dst, src, len;
	uint64_t begun_ns;
	bool unmarked;			/* no event tells its end, only that
					 * of all in the stream does */
	bool failed;			/* its operation knows why */
};

/*
 * A context of the driver that memory is registered of. Its place in the table
 * is used again when the last of that memory is gone.
 */
struct gpu_context {
	/* ctx->lock */
	uint32_t memories;		/* ranges of it or pinned in it; 0:
					 * the place is free */
	struct tei_list queue;		/* operations with copies to begin */

	/* fixed while there are memories */
	void *handle;
	void *stream;
	void *events[GPU_DEPTH];	/* one per place of the ring */

	/* ctx->lock; changed by the thread, and by whoever opens the
	 * context */
	struct gpu_copy ring[GPU_DEPTH];
	uint32_t first, count;
	uint64_t bytes;			/* begun */
	uint64_t ended_ns;		/* the last one */
};

struct gpu_mem {
	uint64_t base, end;
	struct gpu_context *context;	/* NULL: host memory */
	struct gpu_context *pinned;	/* host memory: in that one, or NULL */
	uint32_t holds;
	bool removing;
};

/* An operation whose done callback is running; on the thread's stack. */
struct gpu_ending {
	uint64_t dst, src, length;
};

/* Of tei_gpu_alloc. */
struct gpu_alloc {
	struct gpu_alloc *next;
	uint64_t addr;
	int device;
};

/* Made by tei_gpu_init, freed by tei_gpu_fini. */
struct tei_gpu {
	/* fixed after init */
	struct tei_cuda *cuda;
	uint64_t stall_ns;

	struct tei_mutex admin;		/* before lock: contexts come and go */
	struct tei_mutex lock;		/* guards what follows */
	pthread_cond_t work;		/* something to do, or stopping */
	pthread_cond_t ended;		/* an operation has ended */
	struct gpu_mem *mem;		/* sorted, disjoint */
	uint32_t nmem, mem_room;
	uint32_t ndevice;		/* of those, a GPU's; atomic */
	struct gpu_context contexts[TEI_GPU_CONTEXTS];
	struct gpu_alloc *allocs;
	struct tei_list live;		/* tei_gpu_op.live_node */
	struct tei_list over;		/* tei_gpu_op.node: done is to be called */
	const struct gpu_ending *ending; /* done is being called, or NULL */
	uint32_t given_up;		/* copies that the GPU has not ended */
	bool started, stopping;
	pthread_t thread;

	struct tei_log_limit log_limit;
};

/* The range that holds [addr, addr + len), or NULL; going: one that somebody
 * waits to remove will do. */
struct gpu_mem *gpu_mem_find(struct tei_gpu *ctx, uint64_t addr, uint64_t len,
			     bool going) TEI_REQUIRES(ctx->lock);

/* Frees what tei_gpu_alloc has given and nobody has freed. */
void gpu_alloc_free_all(struct tei_gpu *ctx);

/* Waits on ctx->ended; false: the deadline has passed. */
bool gpu_wait(struct tei_gpu *ctx, uint64_t deadline_ns)
	TEI_REQUIRES(ctx->lock);

/* The thread: tei_gpu_submit starts it. */
void *gpu_main(void *arg);

/* No copy of op is begun any more; it goes over when none runs. */
void gpu_op_drop(struct tei_gpu *ctx, struct tei_gpu_op *op)
	TEI_REQUIRES(ctx->lock);

/* Unpins the memory in its context. */
void gpu_mem_unpin(struct tei_gpu *ctx, const struct gpu_mem *m);

/* Gives back the streams and events of a context that nothing uses. */
void gpu_context_close(struct tei_gpu *ctx, struct gpu_context *c);

#endif /* TEI_PROV_GPU_INT_H */
