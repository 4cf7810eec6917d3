/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_STAGING_INT_H
#define TEI_PROV_STAGING_INT_H

/*
 * The context of GPU staging, and the part for GPU memory of this process.
 * tei_staging.h has the rules, staging_remote_int.h the other part.
 */

#include <pthread.h>

#include "prov/gpu/tei_gpu.h"
#include "prov/staging/tei_staging.h"
#include "util/clock.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

#define STAGING_SLOTS 16u		/* slots of a pool */
/* Interval between checks of a GPU that hangs. */
#define STAGING_GPU_CHECK_NS (5 * TEI_NS_PER_MS)
#define STAGING_POOL_BYTES ((size_t)STAGING_SLOTS * TEI_STAGING_PIECE)

struct staging_local;
struct staging_remote;

/* Created by tei_staging_open, freed by tei_staging_free. Any thread. */
struct tei_staging {
	/* constant */
	const struct tei_settings *settings;
	const struct tei_staging_ops *ops;
	void *arg;			/* of ops */

	/* atomic: set once */
	struct tei_rail_dp *dp;
	struct tei_gpu *gpu;
	struct staging_local *local;
	struct staging_remote *remote;

	struct tei_mutex lock;		/* leaf; held while a part is created */
};

static inline struct tei_rail_dp *staging_rails(struct tei_staging *s)
{
	return __atomic_load_n(&s->dp, __ATOMIC_ACQUIRE);
}

static inline struct tei_gpu *staging_gpu(struct tei_staging *s)
{
	return __atomic_load_n(&s->gpu, __ATOMIC_ACQUIRE);
}

/* Returns MC_SLICE_TIMEOUT, ns. */
static inline uint64_t staging_timeout_ns(const struct tei_staging *s)
{
	return s->settings->failure.slice_timeout_s * TEI_NS_PER_SEC;
}

/* --- staging_ctx.c ------------------------------------------------------- */
/* Fills the record of a task that failed. */
void staging_err(struct tei_err *err, int code, const char *text);

/* --- staging_mem.c ------------------------------------------------------- */
/*
 * Allocates host memory for copies with the GPU memory at gpu, near its GPU,
 * pins it in the context of that memory, and registers it with the rails.
 * access: of tei_rail_mr_reg. Fills *err on failure and logs nothing.
 */
int staging_mem_open(struct tei_staging *s, const void *gpu, size_t len,
		     uint32_t access, char **mem, struct tei_err *err);
/* Unregisters the memory, but does not unmap it. If it returns 0, neither a
 * rail nor a copy accesses the memory any more. Blocks for at most wait_ns for
 * each of them. May be called again after an error. */
int staging_mem_close(struct tei_staging *s, char *mem, uint64_t wait_ns);

/* --- GPU memory of this process ------------------------------------------ */

enum staging_step {
	STAGING_COPY,			/* by the copy engine of the GPU */
	STAGING_CARRY,			/* by the carrier */
};

/* A bounce buffer of the size of a piece, and the piece that occupies it. */
struct staging_local_slot {
	struct staging_local *local;	/* constant */

	/* thread "tei-stage"; read by the callback of the step */
	struct tei_staging_piece piece;	/* its task is NULL: the slot is free;
					 * its mem is constant */
	enum staging_step step;
	bool stopped;			/* the step must not be cancelled
					 * again */
	bool lost;			/* the GPU may still access the slot */

	struct tei_gpu_op copy;		/* the GPU module's during the copy */

	/* local->lock */
	struct tei_list node;		/* in local->ended, or alone */
	enum tei_rail_end end;		/* result of the step */
	bool silent;			/* MC_SLICE_TIMEOUT has ended it */
	struct tei_err err;		/* error record of end */
};

/* The slots of one context of the driver. */
struct staging_local_pool {
	char *mem;			/* constant */
	uint32_t users;			/* local->admin: GPU memory regions */

	/* local->lock */
	uint32_t tasks;			/* tasks that hold the pool */
	bool leaving;			/* accepts no further tasks */
	struct tei_list queue;		/* tei_staging_task.queue: tasks in
					 * turn */
	struct tei_list aside;		/* tei_staging_task.queue: tasks whose
					 * target had its share of the slots;
					 * they come first */
	struct staging_local_slot slot[STAGING_SLOTS];
};

/* Created with the first GPU memory, freed with the context. */
struct staging_local {
	/* constant */
	struct tei_staging *staging;
	struct tei_gpu *gpu;
	pthread_t thread;

	struct tei_mutex admin;		/* pools are created and freed; taken
					 * before lock */
	struct tei_mutex lock;		/* guards the members below */
	pthread_cond_t work;		/* wakes the thread */
	pthread_cond_t idle;		/* a task has left its pool, or ended */
	struct staging_local_pool *pool[TEI_GPU_CONTEXTS];
	struct tei_list live;		/* tei_staging_task.live */
	struct tei_list stopping;	/* tei_staging_task.stop: tasks to
					 * end */
	struct tei_list ended;		/* staging_local_slot.node: steps to
					 * handle */
	/* carrier of the task that was removed from live and whose end is not
	 * reported yet, or NULL */
	const struct tei_staging_carrier *ending;
	bool closing;

	bool hopeless;			/* thread: some pool has no free slot,
					 * and none before its GPU continues */
};

static inline struct staging_local *staging_local(struct tei_staging *s)
{
	return __atomic_load_n(&s->local, __ATOMIC_ACQUIRE);
}

/* --- staging_task.c ------------------------------------------------------ */
/* Runs the thread, from the first pool until staging_local_close. */
void *staging_task_main(void *arg);
/* Ends all tasks and the thread. */
void staging_local_close(struct tei_staging *s);

/* --- staging_step.c ------------------------------------------------------ */
/* Begins a step of the piece in a slot. The GPU module or the carrier owns the
 * slot until it is in local->ended. Drops the lock meanwhile. Thread
 * "tei-stage". */
void staging_step_begin(struct staging_local *l,
			struct staging_local_slot *slot, enum staging_step step)
	TEI_REQUIRES(l->lock);
/* Cancels the steps of a task that are in progress. Drops the lock meanwhile.
 * Thread "tei-stage". */
void staging_step_cancel(struct staging_local *l, struct tei_staging_task *task)
	TEI_REQUIRES(l->lock);

/* --- staging_pool.c ------------------------------------------------------ */
/* Frees the part after staging_local_close. */
void staging_local_free(struct tei_staging *s);

/* --- staging_remote.c: remote bounce slots -------------------------------- */
/* As the functions of the other part. */
void staging_remote_close(struct tei_staging *s);
void staging_remote_free(struct tei_staging *s);

#endif /* TEI_PROV_STAGING_INT_H */
