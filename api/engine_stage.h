/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_STAGE_H
#define TEI_API_ENGINE_STAGE_H

/*
 * GPU staging: moving GPU memory of this process through pinned host memory.
 * Used if the GPU memory cannot be transferred directly, to or from memory of
 * another process (including GPU memory, see engine_lease.h) or a file segment.
 *
 * A request is moved piece by piece. Each piece occupies a slot of pinned host
 * memory, a bounce buffer, and takes two steps: a copy between the GPU and the
 * slot, and a transfer between the slot and the target by rail, file access or
 * kernel copy. A write copies first, a read transfers first. The steps of
 * different pieces overlap.
 *
 * Ownership. A pool of slots belongs to a context of the driver. It is created
 * with the first registered GPU memory of the context and freed with the last
 * one; its memory is pinned in the context and registered with rails and files.
 * A task (struct engine_stage in its engine_task) belongs to its batch. From
 * its start to its end it is also in the lists here, and holds its GPU memory
 * (tei_gpu_mem_hold) and a reference to its target. A slot belongs to a piece
 * until both steps have ended.
 *
 * Threads. One thread per engine, "tei-stage", assigns slots, begins steps,
 * cancels steps in progress and ends tasks. The other threads only notify it
 * under the lock: transports of the end of a step, callers of a task that must
 * end. So a cancellation cannot be lost between the two steps of a piece: the
 * thread checks for both before it begins the second step.
 *
 * Failures. If a pool cannot be allocated, pinned or registered, the error is
 * logged, and requests that need it are refused with 8. If the GPU memory of a
 * task is being unregistered at its start, the task is FAILED. If a step fails,
 * its task begins no further pieces and ends, when its other slots are free,
 * with the error of that step, or with TIMEOUT if one of its steps ended with
 * TIMEOUT.
 *
 * End of a task:
 *	COMPLETED	write: every piece was completed by rail or file; read:
 *			the event after the copy of every piece to the GPU has
 *			completed
 *	cancel, deadline  No piece begins another step. Rail tasks are ended and
 *			fenced. Copies and file accesses in progress are waited
 *			for. If all bytes have been moved by then, the task is
 *			COMPLETED.
 *	unregistration	of the GPU memory waits for the end of the task
 *	a GPU that hangs  A copy is abandoned after MC_SLICE_TIMEOUT. A read is
 *			TIMEOUT, because the GPU memory may still change. A
 *			write is FAILED, because nothing was sent. The slot is
 *			not reused before the GPU has finished with it. If no
 *			slot is left, tasks wait for one for MC_SLICE_TIMEOUT,
 *			because the GPU may continue.
 *	a silent target	Pieces end as rail tasks do. When MC_SLICE_TIMEOUT has
 *			ended a piece, the tasks for the same target end, too,
 *			if they have no slot and have waited for as long. A task
 *			that gets a slot later has only the rest of its time,
 *			unless a piece makes progress at the target. One target
 *			has at most half of the slots of a pool, so that tasks
 *			for other targets continue.
 *	destruction, uninstallTransport  Tasks may end by themselves for
 *			MC_SLICE_TIMEOUT before the data plane or transport is
 *			closed.
 *	engine_stage_close  All tasks are cancelled and end FAILED.
 *
 * The lock is below the lock of a batch and above those of the modules.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/list.h"

struct engine;
struct engine_local_process;
struct engine_target;
struct engine_task;
struct stage_pool;
struct tei_err;
struct tei_nvmeof;
struct tei_nvmeof_seg;
struct tei_rail_peer;
struct transfer_request;

/* The transport of the second step. */
enum engine_stage_far {
	STAGE_BY_RAIL,			/* also to GPU memory with keys */
	STAGE_BY_FILE,
	STAGE_BY_KERNEL,		/* to a local process */
	STAGE_BY_LEASE,			/* to a remote bounce slot */
};

#define STAGE_WAYS	(STAGE_BY_LEASE + 1)

/* A task's part in staging. Filled by engine_stage_prepare. */
struct engine_stage {
	/* constant once started */
	enum engine_stage_far far;
	union {
		const void *any;
		struct tei_rail_peer *peer;
		struct tei_nvmeof_seg *files;
		struct engine_local_process *local_process;
	} to;				/* one reference while started */
	uint64_t gpu, remote;
	struct stage_pool *pool;

	/* the staging's lock */
	struct tei_list live;		/* all started tasks */
	struct tei_list queue;		/* in queue or aside of its pool: has
					 * pieces to begin */
	struct tei_list stop;		/* in stopping, or alone */
	uint64_t next;			/* bytes assigned to slots */
	uint32_t running;		/* slots in use */
	uint64_t waits_ns;		/* time of its start, or of the last end
					 * of a piece */
	bool queued, ended;
	int status;			/* why no further piece begins, or 0 */
	struct tei_err *err;		/* owned; error record of status */

	uint64_t moved;			/* atomic: bytes of complete pieces */
	uint64_t copied;		/* atomic: bytes copied by the kernel */
};

/*
 * Provides a pool for GPU memory that was just registered. *place is the handle
 * for engine_stage_drop, which must be called when the memory has been
 * unregistered and no task uses it. The caller of engine_stage_add holds
 * control; the caller of engine_stage_drop need not. Both may block.
 */
int engine_stage_add(struct engine *e, void *gpu, size_t len, uint32_t *place,
		     struct tei_err *err);
void engine_stage_drop(struct engine *e, uint32_t place);

/* Registers the pools' memory with the transport of file segments, and sets
 * e->nvmeof. No pool is created or freed meanwhile. control must be held. */
int engine_stage_files(struct engine *e, struct tei_nvmeof *ctx);

/* Prepares a request whose source is GPU memory. Returns 0 or the code of
 * submitTransfer. */
int engine_stage_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 const struct engine_target *target);
/* Starts a prepared task. */
void engine_stage_start(struct engine *e, struct engine_task *t);
/* Requests that a task ends early. The lock of its batch must be held, and the
 * task must not have ended. Does not block. */
void engine_stage_cancel(struct engine *e, struct engine_task *t,
			 bool deadline);

/*
 * Waits until no task of that kind is left, and returns true, or until
 * until_ns. The caller must ensure that no new tasks are submitted. Drives
 * progress.
 */
bool engine_stage_drain(struct engine *e, enum engine_stage_far far,
			uint64_t until_ns);

/* Ends all tasks and the thread. No task may be started afterwards. Must be
 * called before the transports and the data plane are closed. */
void engine_stage_close(struct engine *e);
/* Frees the staging. Must be called after tei_gpu_fini and
 * tei_rail_dp_close. */
void engine_stage_free(struct engine *e);

#endif /* TEI_API_ENGINE_STAGE_H */
