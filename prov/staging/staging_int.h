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

struct staging_local;
struct staging_part;
struct staging_pool;
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

/* --- staging_pool.c: bounce buffers of both parts ------------------------- */

/* What the pools of the two parts differ in. Constant. */
struct staging_pool_kind {
	const char *name;		/* of its slots, for messages */
	uint32_t slots;			/* slots of a pool */
	uint32_t together;		/* slots that share one registration */
	size_t slot_size;		/* of the struct that begins with the
					 * struct staging_slot */
	uint32_t access;		/* of tei_rail_mr_reg */
	bool carried;			/* registered with the owner's
					 * transports, too */
	/* Prepares a slot, before memory is opened for it. Optional. */
	int (*prepare)(struct staging_slot *slot, struct tei_err *err);
	/* Takes over memory of a slot that nothing accesses any more. Optional:
	 * without it the memory is unmapped. */
	void (*retire)(struct staging_slot *slot);
	/* Frees what the functions above have left. Optional. */
	void (*fini)(struct staging_slot *slot);
};

/* A slot: a bounce buffer of the size of a piece. Each part has a struct that
 * begins with this one. */
struct staging_slot {
	struct staging_pool *pool;	/* constant */
	struct tei_gpu_op copy;		/* the GPU module's during the copy */

	/* part->lock */
	char *mem;			/* TEI_STAGING_PIECE bytes; NULL (and
					 * must_renew): memory was not available
					 * yet */
	bool used;			/* belongs to a piece */
	bool lost;			/* the GPU may still access it */
	bool must_renew;		/* a peer may still access it: needs
					 * other memory */
	struct tei_list node;		/* in the part's list of slots whose
					 * step has ended, or alone */
};

/* The slots of one context of the driver. */
struct staging_pool {
	struct staging_part *part;	/* constant */
	uint32_t users;			/* part->admin: GPU memory regions */

	/* part->lock */
	uint32_t holds;			/* tasks of the local part; slots of the
					 * remote part that are used or are
					 * being renewed */
	bool leaving;			/* accepts no further holds */
	struct tei_list queue;		/* tei_staging_task.queue: tasks in
					 * turn */
	struct tei_list aside;		/* tei_staging_task.queue: tasks whose
					 * target had its share of the slots;
					 * they come first */
	_Alignas(max_align_t) char slots[]; /* kind->slots structs */
};

/* What the two parts have in common: a thread, its lock and its pools. */
struct staging_part {
	/* constant */
	struct tei_staging *staging;
	const struct staging_pool_kind *kind;
	pthread_t thread;

	struct tei_mutex admin;		/* pools are created and freed; taken
					 * before lock */
	struct tei_mutex lock;		/* guards the members below, and those
					 * of the part that say so */
	pthread_cond_t work;		/* wakes the thread */
	pthread_cond_t idle;		/* a hold of a pool, or a task, has
					 * ended */
	bool notified;			/* the thread has been notified */
	bool closing;			/* no task may be started */
	bool joined;			/* the thread has ended */
	struct staging_pool *pool[TEI_GPU_CONTEXTS];
};

static inline void *staging_slot_at(struct staging_pool *pool, uint32_t i)
{
	return pool->slots + i * pool->part->kind->slot_size;
}

/* Notifies the thread. */
static inline void staging_part_notify(struct staging_part *part)
	TEI_REQUIRES(part->lock)
{
	part->notified = true;
	pthread_cond_signal(&part->work);
}

/* Initializes a part and starts its thread, which gets arg. name: of the
 * thread. Returns false if that fails; nothing is left then. */
bool staging_part_open(struct staging_part *part, struct tei_staging *s,
		       const struct staging_pool_kind *kind,
		       void *(*main)(void *arg), void *arg, const char *name);
/* Waits until the thread has ended, after closing was set. */
void staging_part_join(struct staging_part *part);
/* Frees all pools and the contents of the part. */
void staging_part_fini(struct staging_part *part);

/* Adds a user to the pool of a context, which is created for the first one. The
 * GPU memory is held. Blocks. Fills *err on failure. */
int staging_pool_use(struct staging_part *part, const void *gpu, uint32_t place,
		     struct tei_err *err) TEI_REQUIRES(part->admin);
/* Removes a user. The last one waits until the pool has no hold, or the thread
 * has ended, and frees the pool. Blocks. */
void staging_pool_leave(struct staging_part *part, uint32_t place)
	TEI_REQUIRES(part->admin);
/* Begins and ends a hold of a pool. */
void staging_pool_hold(struct staging_part *part, struct staging_pool *pool)
	TEI_REQUIRES(part->lock);
void staging_pool_release(struct staging_part *part, struct staging_pool *pool)
	TEI_REQUIRES(part->lock);

/* Returns a slot that neither a piece nor the GPU uses, or NULL. *idle is the
 * number of such slots, *used that of the slots of pieces. */
struct staging_slot *staging_slot_idle(struct staging_part *part,
				       struct staging_pool *pool,
				       uint32_t *idle, uint32_t *used)
	TEI_REQUIRES(part->lock);
/* Opens memory for a slot, and for those that share its registration. Fills
 * *err on failure. Blocks. */
int staging_slot_open(struct staging_slot *slot, const void *gpu, char **mem,
		      struct tei_err *err);
/* Closes that memory. If it does not return 0, the memory is still in use, and
 * nothing has changed. Blocks. */
int staging_slot_close(struct staging_slot *slot);

/* --- GPU memory of this process ------------------------------------------ */

#define STAGING_SLOTS	16u		/* slots of a pool */
/* Interval between checks of a GPU that hangs. */
#define STAGING_GPU_CHECK_NS (5 * TEI_NS_PER_MS)

enum staging_step {
	STAGING_COPY,			/* by the copy engine of the GPU */
	STAGING_CARRY,			/* by the carrier */
};

/* A slot and the piece that occupies it. */
struct staging_local_slot {
	struct staging_slot slot;

	/* thread "tei-stage"; read by the callback of the step */
	struct tei_staging_piece piece;	/* its task is NULL: the slot is free */
	enum staging_step step;
	bool stopped;			/* the step must not be cancelled
					 * again */

	/* part.lock */
	enum tei_rail_end end;		/* result of the step */
	bool silent;			/* MC_SLICE_TIMEOUT has ended it */
	struct tei_err err;		/* error record of end */
};

/* Created with the first GPU memory, freed with the context. */
struct staging_local {
	struct staging_part part;
	struct tei_gpu *gpu;		/* constant */

	/* part.lock */
	struct tei_list live;		/* tei_staging_task.live */
	struct tei_list stopping;	/* tei_staging_task.stop: tasks to
					 * end */
	struct tei_list ended;		/* staging_slot.node: steps to handle */
	/* carrier of the task that was removed from live and whose end is not
	 * reported yet, or NULL */
	const struct tei_staging_carrier *ending;

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
	TEI_REQUIRES(l->part.lock);
/* Cancels the steps of a task that are in progress. Drops the lock meanwhile.
 * Thread "tei-stage". */
void staging_step_cancel(struct staging_local *l, struct tei_staging_task *task)
	TEI_REQUIRES(l->part.lock);

/* --- staging_local.c ----------------------------------------------------- */
/* Frees the part after staging_local_close. */
void staging_local_free(struct tei_staging *s);

/* --- staging_remote.c: remote bounce slots -------------------------------- */
/* As the functions of the other part. */
void staging_remote_close(struct tei_staging *s);
void staging_remote_free(struct tei_staging *s);

#endif /* TEI_PROV_STAGING_INT_H */
