/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_STAGE_INT_H
#define TEI_API_ENGINE_STAGE_INT_H

#include <pthread.h>

#include "api/engine_int.h"

#define STAGE_SLOTS	16u
#define STAGE_PIECE	(1u << 20)
#define STAGE_LOOK_NS	(5 * TEI_NS_PER_MS)	/* whether a GPU goes on */
#define STAGE_BYTES	((size_t)STAGE_SLOTS * STAGE_PIECE)

enum stage_step {
	STAGE_COPY,			/* by the GPU's copy engine */
	STAGE_FAR,			/* by rail, file or kernel */
};

struct stage_slot {
	struct engine_staging *staging;	/* fixed */
	char *mem;			/* fixed; STAGE_PIECE bytes */

	/* the thread's; read by the step's callback */
	struct engine_stage *stage;	/* NULL: nobody's */
	uint64_t at, length;		/* of the piece in the task */
	enum stage_step step;
	bool stopped;			/* no asking for an end any more */
	bool lost;			/* the GPU may still touch it */

	/* the transport's while the step is under way */
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
	int end;			/* how the step has ended: 0, STATUS_… */
	bool silent;			/* by MC_SLICE_TIMEOUT, at the target */
	struct tei_err err;		/* why */
};

/* One for each context of the driver. */
struct stage_pool {
	char *mem;			/* fixed */
	uint32_t users;			/* staging->admin: GPU memories */

	/* staging->lock */
	uint32_t tasks;			/* that are here, or about to be */
	bool leaving;			/* takes no more of them */
	struct tei_list queue;		/* engine_stage.queue */
	struct tei_list aside;		/* the same, of one target that has its
					   share: their turn comes first */
	struct stage_slot slot[STAGE_SLOTS];
};

/* Made with the first GPU memory, freed with the engine. */
struct engine_staging {
	/* fixed */
	struct engine *engine;
	struct tei_gpu *gpu;
	pthread_t thread;

	struct tei_mutex admin;		/* pools come and go; before lock */
	struct tei_mutex lock;		/* guards what follows */
	pthread_cond_t work;		/* for the thread */
	pthread_cond_t idle;		/* a task has left its pool, or ended */
	struct stage_pool *pool[TEI_GPU_CONTEXTS];
	struct tei_list live;		/* engine_stage.live */
	struct tei_list stopping;	/* engine_stage.stop */
	struct tei_list ended;		/* stage_slot.node */
	uint32_t ending[STAGE_WAYS];	/* tasks off that list, not yet told */
	bool closing;

	bool hopeless;			/* the thread's: some pool has no slot,
					   nor will while its GPU hangs */
};

static inline struct engine_staging *engine_staging(struct engine *e)
{
	return __atomic_load_n(&e->staging, __ATOMIC_ACQUIRE);
}

/* The thread: from the first pool until engine_stage_close. */
void *engine_stage_main(void *arg);

#endif /* TEI_API_ENGINE_STAGE_INT_H */
