/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_STAGING_INT_H
#define TEI_PROV_STAGING_INT_H

/*
 * The context of GPU staging, and the first of its two parts, which serves GPU
 * memory of this process. staging_remote_int.h declares the second part, for
 * remote bounce slots. tei_staging.h has the rules.
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

/* Created by tei_staging_open, freed by tei_staging_free. Used by any
 * thread. */
struct tei_staging {
	/* constant */
	const struct tei_settings *settings;
	const struct tei_staging_ops *ops;
	void *arg;			/* argument of the functions in ops */

	/* atomic; each is set once */
	struct tei_rail_dp *dp;
	struct tei_gpu *gpu;
	struct staging_local *local;
	struct staging_remote *remote;

	struct tei_mutex lock;		/* a leaf lock; held while a part is
					 * created */
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

/* Returns MOONRAIL_FENCE_MS, ns. */
static inline uint64_t staging_fence_ns(const struct tei_staging *s)
{
	return s->settings->failure.fence_ms * TEI_NS_PER_MS;
}

/* --- staging_ctx.c ------------------------------------------------------- */
/* Fills *err with an error record of that code and text, for a task that
 * failed. */
void staging_err(struct tei_err *err, int code, const char *text);

/* --- staging_mem.c ------------------------------------------------------- */
/*
 * Allocates host memory for copies with the GPU memory at gpu, on the NUMA node
 * of that GPU if possible, permits copies inside this host, pins the memory in
 * the context of that GPU memory, and registers it with the rails. access:
 * access flags for tei_rail_mr_reg; with TEI_RAIL_REMOTE, other processes of
 * this host may copy, too. *serial gets the number of this permission, or 0.
 * Fills *err on failure. After a failure, may block as staging_mem_discard does.
 */
int staging_mem_open(struct tei_staging *s, const void *gpu, size_t len,
		     uint32_t access, char **mem, uint64_t *serial,
		     struct tei_err *err);
/* Unregisters the memory. If it returns 0, neither a rail nor a copy accesses the
 * memory any longer, and pages that other processes could map are freed; the
 * caller unmaps the memory. Blocks for at most wait_ns for the rails, for at most
 * wait_ns for the copies of the GPU, and for at most the shorter of wait_ns and
 * MOONRAIL_FENCE_MS for the copies inside this host. May be called again after an
 * error. */
int staging_mem_close(struct tei_staging *s, char *mem, uint64_t wait_ns);
/* Unregisters and unmaps the memory. If it is still in use after MC_SLICE_TIMEOUT,
 * it stays mapped and registered, because no other memory may get addresses for
 * which copies are permitted; logs a warning then. */
void staging_mem_discard(struct tei_staging *s, char *mem, size_t len);

/* --- staging_pool.c: bounce buffers of both parts ------------------------- */

/* The properties in which the pools of the two parts differ. Constant. */
struct staging_pool_kind {
	const char *name;  /* name of the slots in log lines and
			    * error texts */
	uint32_t slots;	   /* number of slots in a pool */
	uint32_t together; /* number of slots that share one
			    * registration */
	size_t slot_size;  /* size of the struct that begins with
			    * the struct staging_slot, bytes */
	uint32_t access;   /* access flags for tei_rail_mr_reg */
	bool carried;	   /* the memory is also registered with
			    * the owner's transports */
	/* Prepares a slot before memory is opened for it. May be NULL. */
	int (*prepare)(struct staging_slot *slot, struct tei_err *err);
	/* Takes over the memory of a slot when nothing accesses this memory any
	 * longer. If this is NULL, the memory is unmapped. */
	void (*retire)(struct staging_slot *slot);
	/* Frees what prepare and retire have created for the slot. May be
	 * NULL. */
	void (*fini)(struct staging_slot *slot);
};

/* A slot: a bounce buffer of the size of a piece. Each part has a struct that
 * begins with this one. */
struct staging_slot {
	struct staging_pool *pool;	/* constant */
	struct tei_gpu_op copy;		/* used by the GPU module during a
					 * copy */

	/* guarded by part->lock */
	char *mem;	      /* TEI_STAGING_PIECE bytes; NULL if
			       * memory has not been available yet
			       * (must_renew is then set) */
	uint64_t share;	      /* number that ops.share has returned for the
			       * memory; 0: no copies inside this host */
	bool used;	      /* a piece occupies the slot */
	bool lost;	      /* the GPU may still access the slot's
			       * memory */
	bool must_renew;      /* a peer may still access the slot's
			       * memory, so the slot needs other
			       * memory */
	struct tei_list node; /* in the part's list of slots whose
			       * step has ended, or in no list */
};

/* The slots for the GPU memory of one CUDA context. */
struct staging_pool {
	struct staging_part *part;	/* constant */
	uint32_t users;			/* guarded by part->admin: number of GPU
					 * memory regions that use the pool */

	/* guarded by part->lock */
	uint32_t holds;	       /* local part: tasks that use the pool;
				* remote part: slots that are used or
				* are being renewed */
	bool leaving;	       /* the pool is being freed and accepts
				* no further holds */
	struct tei_list queue; /* list of tei_staging_task.queue: tasks that
				* wait for their turn */
	struct tei_list deferred; /* list of tei_staging_task.queue: tasks that
				   * were put aside because their target had its
				   * share of the slots; served before the list
				   * queue */
	_Alignas(max_align_t) char slots[]; /* array of kind->slots structs of
					     * kind->slot_size bytes */
};

/* The members that both parts have: a thread, its lock and its pools. */
struct staging_part {
	/* constant */
	struct tei_staging *staging;
	const struct staging_pool_kind *kind;
	pthread_t thread;

	struct tei_mutex admin;		/* held while pools are created and
					 * freed; acquired before "lock" */
	struct tei_mutex lock;		/* guards the members below, and all
					 * members marked "part->lock" or
					 * "part.lock" */
	pthread_cond_t work;		/* signalled to wake the part's
					 * thread */
	pthread_cond_t idle;		/* signalled when a hold of a pool, or a
					 * task, has ended */
	bool notified;			/* work was left for the thread, which
					 * has not seen it yet */
	bool closing;			/* no task may be started */
	bool joined;			/* the thread has ended */
	struct staging_pool *pool[TEI_GPU_CONTEXTS];
};

static inline void *staging_slot_at(struct staging_pool *pool, uint32_t i)
{
	return pool->slots + i * pool->part->kind->slot_size;
}

/* Wakes the thread of the part, because there is work for it. */
static inline void staging_part_notify(struct staging_part *part)
	TEI_REQUIRES(part->lock)
{
	part->notified = true;
	pthread_cond_signal(&part->work);
}

/* Initializes a part and starts its thread, which runs main(arg). name: name of
 * the thread. If this fails, frees everything again and returns false. */
bool staging_part_open(struct staging_part *part, struct tei_staging *s,
		       const struct staging_pool_kind *kind,
		       void *(*main)(void *arg), void *arg, const char *name);
/* Waits until the thread has ended. "closing" must be set. */
void staging_part_join(struct staging_part *part);
/* Frees the pools and all other members of the part, but not the struct. */
void staging_part_fini(struct staging_part *part);

/* Adds a user to the pool of the context with index "place", and creates the
 * pool for the first user. gpu: GPU memory in this context, which the caller
 * holds. Blocks. Fills *err on failure. */
int staging_pool_use(struct staging_part *part, const void *gpu, uint32_t place,
		     struct tei_err *err) TEI_REQUIRES(part->admin);
/* Removes a user of a pool. For the last user, waits until the pool has no hold
 * or the thread has ended, and frees the pool. Blocks. */
void staging_pool_leave(struct staging_part *part, uint32_t place)
	TEI_REQUIRES(part->admin);
/* Begin and end a hold of a pool: while it has a hold, the pool is not
 * freed. */
void staging_pool_hold(struct staging_part *part, struct staging_pool *pool)
	TEI_REQUIRES(part->lock);
void staging_pool_release(struct staging_part *part, struct staging_pool *pool)
	TEI_REQUIRES(part->lock);

/* Returns a slot that can be used, or NULL if there is none. Such a slot has
 * memory that need not be renewed, and neither a piece nor the GPU uses it.
 * Sets *idle to the number of such slots, and *used to the number of slots that
 * pieces use. */
struct staging_slot *staging_slot_idle(struct staging_part *part,
				       struct staging_pool *pool,
				       uint32_t *idle, uint32_t *used)
	TEI_REQUIRES(part->lock);
/* Opens memory for a slot, and for the slots that share its registration. Fills
 * *err on failure. Blocks. */
int staging_slot_open(struct staging_slot *slot, const void *gpu, char **mem,
		      struct tei_err *err);
/* Closes the memory that staging_slot_open has opened. Returns 0, or a code if
 * the memory is still in use and nothing has changed. Blocks. */
int staging_slot_close(struct staging_slot *slot);

/* --- GPU memory of this process ------------------------------------------ */

#define STAGING_SLOTS	16u		/* number of slots of a pool */
/* Interval at which the thread checks whether a GPU that hangs continues. */
#define STAGING_GPU_CHECK_NS (5 * TEI_NS_PER_MS)

enum staging_step {
	STAGING_COPY,  /* the copy engine of the GPU moves the
			* piece */
	STAGING_CARRY, /* the carrier moves the piece */
};

/* A slot and the piece that occupies it. */
struct staging_local_slot {
	struct staging_slot slot;

	/* changed by thread "tei-stage", read by the callback of the step */
	struct tei_staging_piece piece; /* piece.task is NULL if the slot is
					 * free */
	enum staging_step step;
	bool stopped; /* the step was cancelled already */

	/* guarded by part.lock */
	enum tei_rail_end end;		/* status with which the step has
					 * ended */
	bool silent;			/* the step has ended because
					 * MC_SLICE_TIMEOUT has passed */
	struct tei_err err;		/* error record if "end" is not
					 * COMPLETED */
};

/* Created with the first GPU memory, freed with the context. */
struct staging_local {
	struct staging_part part;
	struct tei_gpu *gpu;		/* constant */

	/* guarded by part.lock */
	struct tei_list live;		/* list of tei_staging_task.live:
					 * started tasks */
	struct tei_list stopping;	/* list of tei_staging_task.stop: tasks
					 * to be ended */
	struct tei_list ended;		/* list of staging_slot.node: steps that
					 * have ended and must be handled */
	/* carrier of the task that was removed from live and whose end has not
	 * been reported yet, or NULL */
	const struct tei_staging_carrier *ending;

	bool hopeless; /* used by the thread only: at least one pool has no free
			* slot, and none becomes free before its GPU
			* continues */
};

static inline struct staging_local *staging_local(struct tei_staging *s)
{
	return __atomic_load_n(&s->local, __ATOMIC_ACQUIRE);
}

/* --- staging_task.c ------------------------------------------------------ */
/* Runs the thread, from the first pool until staging_local_close. */
void *staging_task_main(void *arg);
/* Ends all tasks, then the thread. */
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
/* These functions do for the part for remote bounce slots what
 * staging_local_close and staging_local_free do for the local part. */
void staging_remote_close(struct tei_staging *s);
void staging_remote_free(struct tei_staging *s);

#endif /* TEI_PROV_STAGING_INT_H */
