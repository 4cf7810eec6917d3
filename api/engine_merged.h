/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_MERGED_H
#define TEI_API_ENGINE_MERGED_H

/*
 * Merged tasks. A transport whose operations are expensive, such as a copy
 * through a bounce buffer, may move the bytes of several tasks with one
 * operation: those of tasks that follow each other in a submission and whose
 * memory is adjacent on both sides. The first of these tasks, the leader, has
 * the operation. The others, its followers, have none.
 *
 * The tasks still end independently. If the operation is COMPLETED, all of them
 * are. If it was cancelled because the program has cancelled some of the tasks,
 * only these are CANCELED; the operation's bytes no longer move by then, and
 * each of the other tasks is started again with an operation of its own. The
 * same happens if some of the memory is not registered, so that a task whose
 * memory is registered does not fail for its neighbour's. MC_SLICE_TIMEOUT
 * continues to count from the start of the merged operation. All other ends
 * concern all of the tasks; in particular, all of them are unfenced if the
 * operation was cancelled and its target does not answer.
 *
 * The functions may be called by any thread. They take engine->merged, for
 * which docs/LOCKING.md states the order.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct engine_task;
struct tei_err;

/* greatest number of tasks that one operation moves */
#define ENGINE_MERGED_MAX 256u

/* The member `merged` of a task; zero in a prepared task. Guarded by
 * engine->merged once the operation has started; the thread that handles the
 * end of the operation may read n without the lock, because no other thread
 * changes it. */
struct engine_merged {
	uint16_t n;  /* number of tasks that the operation moves; 0: the task
		      * has an operation of its own */
	uint16_t at; /* index of the task among them; 0: the leader */
	bool stop;   /* the program has cancelled the task, or its deadline has
		      * passed */
	bool over;   /* the task is about to end */
};

/* The functions of a transport. */
struct engine_merge_ops {
	/* Returns true if one operation may move the bytes of `next`, which
	 * directly follows t in the submission, together with those of t. Both
	 * have the transport to which this function belongs. */
	bool (*adjacent)(const struct engine_task *t,
			 const struct engine_task *next);
	/* Gives a prepared task, or one whose operation has ended, a new
	 * operation for the first `length` bytes from the start of its memory,
	 * and starts it. MC_SLICE_TIMEOUT counts from the time since_ns; 0
	 * means now. If the operation cannot start, ends it with an error. */
	void (*start)(struct engine *e, struct engine_task *t, uint64_t length,
		      uint64_t since_ns);
	/* Returns the time from which MC_SLICE_TIMEOUT has counted for the
	 * operation of t, which has ended, ns. */
	uint64_t (*since)(const struct engine_task *t);
	/* Requests that the operation of a task ends early. */
	void (*cancel)(struct engine *e, struct engine_task *t, bool deadline);
};

/* Returns the number of tasks, of n prepared tasks, that one operation of at
 * most `most` bytes may move, 1 at least. Sets *length to the number of their
 * bytes. Returns 1 if MOONRAIL_MERGE is off. */
size_t engine_merged_count(struct engine *e, const struct engine_merge_ops *ops,
			   const struct engine_task *tasks, size_t n,
			   uint64_t most, uint64_t *length);

/* Starts one operation for the first n of the tasks, which have `length` bytes
 * together. The lock of the batch is held. */
void engine_merged_start(struct engine *e, const struct engine_merge_ops *ops,
			 struct engine_task *tasks, size_t n, uint64_t length);

/* Requests that a task ends early. The lock of the batch is held. */
void engine_merged_cancel(struct engine *e, const struct engine_merge_ops *ops,
			  struct engine_task *t, bool deadline);

/* Handles the end of the operation of a task, with status STATUS_…: ends or
 * restarts the tasks whose bytes the operation was to move. The transport does
 * not access the task afterwards. No lock of rows 1e to 6 is held. */
void engine_merged_end(struct engine *e, const struct engine_merge_ops *ops,
		       struct engine_task *leader, int status,
		       const struct tei_err *err);

#endif /* TEI_API_ENGINE_MERGED_H */
