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
	struct tei_gpu_guard *guard;	/* guard of the operation, or NULL */
	void *claim;			/* claim that guard->enter has stored */
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

/* Registered memory, or memory of another process. Created by tei_gpu_mem_add,
 * tei_gpu_mem_pin or tei_gpu_peer_open, freed by tei_gpu_mem_remove or
 * tei_gpu_fini. */
struct gpu_mem {
	struct tei_range range;		/* node in tei_gpu.mem */
	struct gpu_context *context;	/* NULL if the memory is host memory */
	struct gpu_context *pinned;	/* context in which host memory is
					 * pinned, or NULL */
	uint32_t holds;
	bool removing;
	bool peer;			/* memory of another process */
	uint32_t opens;			/* if peer: number of calls of
					 * tei_gpu_peer_open that have returned
					 * this memory and were not undone */
	struct tei_cuda_opened opened;	/* if peer: its allocation, or its
					 * chunks, in this process */
	int retained;			/* if peer: GPU whose primary context is
					 * retained; -1: none */
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

	/* constant after the thread has started; may be NULL */
	void (*sweep)(void *arg);
	void *sweep_arg;

	struct tei_log_limit log_limit;
};

/* Fills *err with an error of this module. */
void gpu_refuse(struct tei_err *err, int code, const char *text);

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

/* Starts the thread, if it does not run yet. Returns 0 or TEI_ERR_MEMORY. */
int gpu_staff(struct tei_gpu *ctx) TEI_REQUIRES(ctx->lock);

/* Main function of the thread. */
void *gpu_main(void *arg);

/*
 * Cancels op: no further copy of it is started, and op ends when none of its
 * copies is in flight.
 */
void gpu_op_drop(struct tei_gpu *ctx, struct tei_gpu_op *op)
	TEI_REQUIRES(ctx->lock);

/* Unpins host memory in the CUDA context in which it is pinned. */
void gpu_mem_unpin(struct tei_gpu *ctx, const struct gpu_mem *m);

/* Stores the context with that handle in *out. If there is none, opens it in a
 * free entry of ctx->contexts. */
int gpu_context_get(struct tei_gpu *ctx, void *handle, struct gpu_context **out,
		    struct tei_err *err) TEI_REQUIRES(ctx->admin);

/* Adds memory to the table, and counts it in its contexts. */
int gpu_mem_insert(struct tei_gpu *ctx, struct gpu_mem *m, struct tei_err *err)
	TEI_REQUIRES(ctx->lock);

/* If memory of another process was opened more than once, undoes one of the calls
 * and returns true. */
bool gpu_peer_shared(struct tei_gpu *ctx, uint64_t addr)
	TEI_REQUIRES(ctx->lock);
/* Unmaps memory of another process that no copy uses. */
void gpu_peer_unmap(struct tei_gpu *ctx, const struct gpu_mem *m);
/* Releases the primary context that the memory has retained. */
void gpu_peer_release(struct tei_gpu *ctx, const struct gpu_mem *m);

/* Destroys the stream and the events of a context that has no registered memory
 * any longer. */
void gpu_context_close(struct tei_gpu *ctx, struct gpu_context *c);

#endif /* TEI_PROV_GPU_INT_H */
