/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_STAGE_H
#define TEI_API_ENGINE_STAGE_H

/*
 * GPU memory of this process, and what no GPU's memory goes to or comes from
 * by itself: memory of another process (a GPU's too: engine_lease.h), a file
 * segment. By way of pinned host
 * memory, piece by piece: each piece has a slot of it and goes in two steps,
 * by the copy engine and by rail (or the file, or the kernel's copy), in the
 * order that its direction asks for. While some pieces are in one step others
 * are in the other.
 *
 * Who owns what. A pool of slots belongs to a context of the driver: made with
 * the first GPU memory registered of it, freed with the last, its memory
 * pinned there and registered with rails and files. A task (struct
 * engine_stage, within its engine_task) is its batch's; from start to end it
 * is in the lists here, holds its GPU memory (tei_gpu_mem_hold) and a
 * reference to its target. A slot is its piece's until both steps are over.
 *
 * Which thread. One per engine, "tei-stage", gives slots, begins steps, asks
 * for those to be ended that are under way, and ends tasks. Everyone else
 * leaves word under the lock: transports, that a step has ended; callers, that
 * a task is to end. So nothing falls between two steps of a piece: the thread
 * looks at both before it begins the second.
 *
 * What may fail. A pool: its memory, pinning, registering it; the log says so,
 * and requests are refused with 8. A task's start, when its memory is being
 * unregistered: it ends FAILED. A step: its task begins no more pieces and
 * ends when the other slots are back, with that step's error; with TIMEOUT
 * where one of them has ended so.
 *
 * How a task ends.
 *	COMPLETED	every piece has ended by rail or file as COMPLETED
 *			means there (write), or the event behind its copy to the
 *			GPU is over (read)
 *	cancel, deadline  no piece goes into another step; what is with the
 *			rails ends as tasks do there, fenced; a copy or a file
 *			access that was begun is waited for. If all of it is in
 *			place then it is COMPLETED
 *	unregister	of its GPU memory waits until it has ended
 *	a GPU that hangs  a copy is given up after MC_SLICE_TIMEOUT: a read is
 *			TIMEOUT, since GPU memory may still change, a write
 *			FAILED, since it went nowhere; the slot is left alone
 *			until the GPU is done with it. Where none is left, who
 *			comes waits for one as long: the GPU may go on
 *	a silent target	as tasks by rail end. Once MC_SLICE_TIMEOUT has ended a
 *			piece, so do those that aim there, have no slot and have
 *			waited for as long; who gets one later has what is left
 *			of its time, unless something moves there; how else a
 *			piece ends concerns its own task only. One target
 *			has half of a pool's slots at most, so others go on
 *			meanwhile
 *	destroy, uninstall  wait for up to MC_SLICE_TIMEOUT that tasks end by
 *			themselves, before the data plane or the transport goes
 *	close		all end FAILED, as if cancelled; it waits for that
 *
 * The lock stands below a batch's and above those of the modules.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/list.h"

struct engine;
struct engine_neighbour;
struct engine_target;
struct engine_task;
struct stage_pool;
struct tei_err;
struct tei_nvmeof;
struct tei_nvmeof_seg;
struct tei_rail_peer;
struct transfer_request;

enum engine_stage_far {
	STAGE_BY_RAIL,			/* to a GPU's, too, where they take it */
	STAGE_BY_FILE,
	STAGE_BY_KERNEL,		/* to a process of this host */
	STAGE_BY_LEASE,			/* to GPU memory of another process */
};

#define STAGE_WAYS	(STAGE_BY_LEASE + 1)

/* What a task has here. Filled by engine_stage_prepare. */
struct engine_stage {
	/* fixed once started */
	enum engine_stage_far far;
	union {
		const void *any;
		struct tei_rail_peer *peer;
		struct tei_nvmeof_seg *files;
		struct engine_neighbour *neighbour;
	} to;				/* a reference while started */
	uint64_t gpu, remote;
	struct stage_pool *pool;

	/* the staging's lock */
	struct tei_list live;		/* all that were started */
	struct tei_list queue;		/* of its pool, or aside there:
					   pieces to begin */
	struct tei_list stop;		/* to be ended, or alone */
	uint64_t next;			/* bytes given to slots */
	uint32_t running;		/* slots */
	uint64_t waits_ns;		/* since it came, or a piece of it was
					   over last */
	bool queued, ended;
	int status;			/* why no more are begun, or 0 */
	struct tei_err *err;		/* owned; of that */

	uint64_t moved;			/* atomic: bytes in place */
	uint64_t copied;		/* atomic: those by the kernel */
};

/*
 * GPU memory that was just registered gets its pool: *place, for _drop, when it
 * is unregistered and nothing of the program touches it any more. Control is
 * held by _add's caller only.
 */
int engine_stage_add(struct engine *e, void *gpu, size_t len, uint32_t *place,
		     struct tei_err *err);
void engine_stage_drop(struct engine *e, uint32_t place);

/* The transport of file segments becomes the engine's, and the pools' memory
 * its; no pool comes or goes meanwhile. Control is held. */
int engine_stage_files(struct engine *e, struct tei_nvmeof *ctx);

/* As engine_gpu_prepare, which has found the source to be GPU memory. */
int engine_stage_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 const struct engine_target *target);
void engine_stage_start(struct engine *e, struct engine_task *t);
/* Its batch's lock is held, it has not ended. Waits for nothing. */
void engine_stage_cancel(struct engine *e, struct engine_task *t,
			 bool deadline);

/*
 * Waits until no task of that kind lives, true, or until then. New ones count:
 * the caller sees to it that none come. Drives progress.
 */
bool engine_stage_drain(struct engine *e, enum engine_stage_far far,
			uint64_t until_ns);

/* Ends all tasks and the thread; none is started any more. Transports and
 * data plane are still there. */
void engine_stage_close(struct engine *e);
/* Behind tei_gpu_fini and tei_rail_dp_close. */
void engine_stage_free(struct engine *e);

#endif /* TEI_API_ENGINE_STAGE_H */
