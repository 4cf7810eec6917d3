/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_STAGE_INT_H
#define TEI_API_ENGINE_STAGE_INT_H

#include <pthread.h>

#include "api/engine_int.h"

#define STAGE_SLOTS	16u			/* slots of a pool */
#define STAGE_PIECE	(1u << 20)		/* bytes of a slot */
#define STAGE_LOOK_NS	(5 * TEI_NS_PER_MS)	/* checks of a GPU that hangs */
#define STAGE_BYTES	((size_t)STAGE_SLOTS * STAGE_PIECE)

enum stage_step {
	STAGE_COPY,			/* by the GPU's copy engine */
	STAGE_FAR,			/* by rail, file or kernel */
};

/* A bounce buffer of the size of a piece, and the piece that occupies it. */
struct stage_slot {
	struct engine_staging *staging;	/* constant */
	char *mem;			/* constant; STAGE_PIECE bytes */

	/* thread "tei-stage"; read by the callback of the step */
	struct engine_stage *stage;	/* NULL: the slot is free */
	uint64_t at, length;		/* of the piece in the task */
	enum stage_step step;
	bool stopped;			/* the step must not be cancelled
					 * again */
	bool lost;			/* the GPU may still access the slot */

	/* the transport's while the step is in progress */
	struct tei_gpu_op copy;
	union {
		struct tei_rail_task rail;
		struct tei_nvmeof_op file;
		struct tei_local_op local;
		struct engine_lease lease;
	} far;
	struct tei_err local_err;

	/* staging->lock */
	struct tei_list node;		/* in staging->ended, or alone */
	int end;			/* result of the step: 0 or STATUS_… */
	bool silent;			/* MC_SLICE_TIMEOUT has ended it */
	struct tei_err err;		/* error record of end */
};

/* The slots of one context of the driver. */
struct stage_pool {
	char *mem;			/* constant */
	uint32_t users;			/* staging->admin: GPU memory regions */

	/* staging->lock */
	uint32_t tasks;			/* tasks that hold the pool */
	bool leaving;			/* accepts no further tasks */
	struct tei_list queue;		/* engine_stage.queue: tasks in turn */
	struct tei_list deferred;	/* engine_stage.queue: tasks whose
					 * target had its share of the slots;
					 * they come first */
	struct stage_slot slot[STAGE_SLOTS];
};

/* Created with the first GPU memory, freed with the engine. */
struct engine_staging {
	/* constant */
	struct engine *engine;
	struct tei_gpu *gpu;
	pthread_t thread;

	struct tei_mutex admin;		/* pools are created and freed; taken
					 * before lock */
	struct tei_mutex lock;		/* guards the members below */
	pthread_cond_t work;		/* wakes the thread */
	pthread_cond_t idle;		/* a task has left its pool, or ended */
	struct stage_pool *pool[TEI_GPU_CONTEXTS];
	struct tei_list live;		/* engine_stage.live */
	struct tei_list stopping;	/* engine_stage.stop: tasks to end */
	struct tei_list ended;		/* stage_slot.node: steps to handle */
	uint32_t ending[STAGE_WAYS];	/* tasks removed from live whose end is
					 * not published yet */
	bool closing;

	bool hopeless;			/* thread: some pool has no free slot,
					 * and none before its GPU continues */
};

static inline struct engine_staging *engine_staging(struct engine *e)
{
	return __atomic_load_n(&e->staging, __ATOMIC_ACQUIRE);
}

/* Runs the thread, from the first pool until engine_stage_close. */
void *engine_stage_main(void *arg);

#endif /* TEI_API_ENGINE_STAGE_INT_H */
