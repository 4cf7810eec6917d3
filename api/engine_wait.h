/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_WAIT_H
#define TEI_API_ENGINE_WAIT_H

/* Waiting for tasks, event file descriptors, and deadlines of batches. */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transfer_engine_c.h"

#include "util/list.h"
#include "util/lock.h"

struct engine;
struct engine_batch;

/* Threads that wait. All members except max_spinning are atomic. */
struct engine_waits {
	/*
	 * does not change: greatest number of threads that wait without
	 * sleeping
	 */
	uint32_t max_spinning;
	/* number of threads between engine_wait_enter and engine_wait_leave */
	uint32_t waiting;
	uint32_t spinning;		/* number of threads counted in waiting
					 * that do not sleep */
	bool closing;			/* all waits must end */
	uint32_t any;			/* number of threads that sleep in
					 * te_wait_any */
	uint32_t any_wakes;		/* futex of the threads counted in any;
					 * incremented to wake them */
};

/* The engine's event file descriptor, and the ended batches that
 * te_ended_batches has not fetched yet. */
struct engine_events {
	bool on;			/* atomic: fd exists */
	struct tei_mutex lock;		/* leaf; guards the members below */
	int fd;				/* event file descriptor, or -1 */
	bool level;			/* fd is readable */
	struct tei_list ended;		/* list of engine_batch.event_link */
};

/* --- engine_wait.c ------------------------------------------------------- */
/* value of task: wait for all tasks of the batch */
#define ENGINE_WAIT_ALL SIZE_MAX
void engine_wait_init(struct engine *e);
/* Waits until the task or batch has ended or deadline_ns has passed. Returns
 * a code of te_wait_task. Unless status is NULL or the code is 1, fills
 * *status. */
int engine_wait(struct engine *e, batch_id_t id, size_t task,
		uint64_t deadline_ns, struct transfer_status *status);
/* engine_wait_enter and engine_wait_leave keep the engine alive while a call
 * blocks: the destruction of the engine waits until every thread has called
 * engine_wait_leave. Calls may be nested. */
void engine_wait_enter(struct engine *e);
void engine_wait_leave(struct engine *e);
/* Returns the deadline for a timeout in microseconds. A negative timeout means
 * that there is no deadline. */
uint64_t engine_wait_deadline(int64_t timeout_us);
/* Counts n tasks that are about to start; b->lock must be held. */
void engine_wait_expect(struct engine_batch *b, uint32_t n);
/* Undoes engine_wait_expect if the n tasks were refused. b->lock must be
 * held. */
void engine_wait_unexpect(struct engine_batch *b, uint32_t n);
/* Counts the end of a task whose status has been published. The batch may have
 * been freed meanwhile, so only the slot is accessed. */
void engine_wait_ended(struct engine_batch *b, size_t task);
/* Wakes the threads that wait for a batch that was freed, so that they
 * return. */
void engine_wait_freed(struct engine_batch *b);
/* Ends all waits, and waits until their threads have left. */
void engine_wait_shut(struct engine *e);

/* --- engine_event.c ------------------------------------------------------ */
/* engine_event_init initializes the event file descriptors; engine_event_fini
 * closes them. */
void engine_event_init(struct engine *e);
void engine_event_fini(struct engine *e);
/* engine_event_expect and engine_event_unexpect do what engine_wait_expect
 * and engine_wait_unexpect do, for a batch that an event file descriptor
 * watches. */
void engine_event_expect(struct engine_batch *b, uint32_t n);
void engine_event_unexpect(struct engine_batch *b, uint32_t n);
/* Reports that all tasks of the batch have ended. Any thread may call it.
 * Accesses only the slot of the batch. */
void engine_event_ended(struct engine_batch *b);
/* Closes the event file descriptor of the batch. b->lock must be held. */
void engine_event_freed(struct engine_batch *b);
/* Drops an end that has not been fetched. The file descriptor stays open but is
 * no longer readable. b->lock must be held. */
void engine_event_reset(struct engine_batch *b);
/* Updates the engine's event file descriptor after notifications have arrived
 * or were fetched. Takes little time if there is no such file descriptor. */
void engine_event_notes(struct engine *e);

/* --- engine_deadline.c --------------------------------------------------- */
/* engine_deadline_init initializes the deadlines; it returns false if memory is
 * short. engine_deadline_fini frees them after engine_deadline_stop. */
bool engine_deadline_init(struct engine *e);
/* Sets the deadline according to MC_TRANSFER_TIMEOUT, unless te_batch_deadline
 * has set one. b->lock must be held. */
void engine_deadline_submit(struct engine_batch *b);
/* Stops the thread. After that, no deadline ends a task. */
void engine_deadline_stop(struct engine *e);
void engine_deadline_fini(struct engine *e);
/* Removes the deadline of a batch that is being freed; b->lock must be held. */
void engine_deadline_freed(struct engine_batch *b);

#endif /* TEI_API_ENGINE_WAIT_H */
