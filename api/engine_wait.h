/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_WAIT_H
#define TEI_API_ENGINE_WAIT_H

/*
 * Waiting for tasks, event descriptors and deadlines of batches.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transfer_engine_c.h"

#include "util/list.h"
#include "util/lock.h"

struct engine;
struct engine_batch;

/* Threads that wait. All members but max_spinning are atomic. */
struct engine_waits {
	uint32_t max_spinning;		/* constant: most threads that wait
					 * without sleep */
	uint32_t waiting;		/* threads inside engine_wait_enter and
					 * engine_wait_leave */
	uint32_t spinning;		/* of them, those that do not sleep */
	bool closing;			/* waits must end */
	uint32_t any;			/* threads that sleep in te_wait_any */
	uint32_t any_wakes;		/* futex of these threads; incremented
					 * to wake them */
};

/* The engine's event descriptor and the ended batches that te_ended_batches has
 * not fetched yet. */
struct engine_events {
	bool on;			/* atomic: fd exists */
	struct tei_mutex lock;		/* leaf; guards the members below */
	int fd;				/* or -1 */
	bool level;			/* fd is readable */
	struct tei_list ended;		/* engine_batch.event_link */
};

/* --- engine_wait.c ------------------------------------------------------- */
#define ENGINE_WAIT_ALL		SIZE_MAX	/* task: all of the batch */
void engine_wait_init(struct engine *e);
/* Waits until the task or batch has ended or deadline_ns has passed. Returns a
 * code of te_wait_task. Fills *status, unless it is NULL or the code is 1. */
int engine_wait(struct engine *e, batch_id_t id, size_t task,
		uint64_t deadline_ns, struct transfer_status *status);
/* Keep the engine alive while a call blocks: its destruction waits until every
 * thread has left. Calls may be nested. */
void engine_wait_enter(struct engine *e);
void engine_wait_leave(struct engine *e);
/* Returns the deadline of a timeout in microseconds; a negative one is
 * never. */
uint64_t engine_wait_deadline(int64_t timeout_us);
/* Counts n tasks that are about to start; b->lock must be held. */
void engine_wait_expect(struct engine_batch *b, uint32_t n);
/* Reverses engine_wait_expect if the n tasks were refused; b->lock must be
 * held. */
void engine_wait_unexpect(struct engine_batch *b, uint32_t n);
/* Counts the end of a task whose status has been published. The batch may have
 * been freed meanwhile, so only the slot is accessed. */
void engine_wait_ended(struct engine_batch *b, size_t task);
/* Wakes the waiters of a freed batch, which return. */
void engine_wait_freed(struct engine_batch *b);
/* Ends all waits and waits until their threads have left. */
void engine_wait_shut(struct engine *e);

/* --- engine_event.c ------------------------------------------------------ */
/* Initialize the event descriptors, and close them. */
void engine_event_init(struct engine *e);
void engine_event_fini(struct engine *e);
/* Do the same as the calls of engine_wait.c for a batch that is watched. */
void engine_event_expect(struct engine_batch *b, uint32_t n);
void engine_event_unexpect(struct engine_batch *b, uint32_t n);
/* Reports that all tasks have ended. Any thread; accesses only the slot. */
void engine_event_ended(struct engine_batch *b);
/* Closes the batch's descriptor; b->lock must be held. */
void engine_event_freed(struct engine_batch *b);
/* Forgets an end that has not been fetched and keeps the descriptor, which is
 * no longer readable; b->lock must be held. */
void engine_event_reset(struct engine_batch *b);
/* Updates the engine's descriptor after notifications have arrived or were
 * fetched. Cheap if there is no descriptor. */
void engine_event_notes(struct engine *e);

/* --- engine_deadline.c --------------------------------------------------- */
/* Initialize the deadlines, and free them after engine_deadline_stop.
 * engine_deadline_init returns false if memory is short. */
bool engine_deadline_init(struct engine *e);
/* Sets the deadline of MC_TRANSFER_TIMEOUT, unless te_batch_deadline has set
 * one; b->lock must be held. */
void engine_deadline_submit(struct engine_batch *b);
/* Stops the thread; no deadline ends a task any more. */
void engine_deadline_stop(struct engine *e);
void engine_deadline_fini(struct engine *e);
/* Removes the deadline of a batch that is being freed; b->lock must be held. */
void engine_deadline_freed(struct engine_batch *b);

#endif /* TEI_API_ENGINE_WAIT_H */
