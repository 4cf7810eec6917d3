/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_WAIT_H
#define TEI_API_ENGINE_WAIT_H

/* Waiting for tasks; event file descriptors; deadlines of batches. */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transfer_engine_c.h"

#include "util/list.h"
#include "util/lock.h"

struct engine;
struct engine_batch;

/* The threads of the application that wait. All members except max_spinning are
 * atomic. */
struct engine_waits {
	/*
	 * does not change: greatest number of threads that may wait without
	 * sleeping at the same time
	 */
	uint32_t max_spinning;
	/* number of threads that have called engine_wait_enter and not yet
	 * engine_wait_leave */
	uint32_t waiting;
	uint32_t spinning;		/* number of waiting threads that do not
					 * sleep */
	bool closing;			/* the engine is being destroyed, so all
					 * waits must end */
	uint32_t any;			/* number of threads that sleep in
					 * te_wait_any */
	uint32_t any_wakes;		/* futex on which the threads in
					 * te_wait_any sleep; incremented to
					 * wake them */
};

/* The engine's event file descriptor, and the ended batches that
 * te_ended_batches has not fetched yet. */
struct engine_events {
	bool on;			/* atomic: the program has called
					 * te_event_fd, so fd is open */
	struct tei_mutex lock;		/* leaf; guards the members below */
	int fd;				/* event file descriptor, or -1 */
	bool level;			/* fd was made readable; the program may
					 * have read it since */
	struct tei_list ended;		/* ended batches, linked by
					 * engine_batch.event_link */
};

/* --- engine_wait.c ------------------------------------------------------- */
/* value of the parameter "task" of engine_wait: all tasks of the batch */
#define ENGINE_WAIT_ALL SIZE_MAX
void engine_wait_init(struct engine *e);
/* Waits until the task or the batch has ended, or deadline_ns has passed.
 * Returns the code of te_wait_task. If status is not NULL, fills in *status
 * when the code is 0 or TE_TIMED_OUT. */
int engine_wait(struct engine *e, batch_id_t id, size_t task,
		uint64_t deadline_ns, struct transfer_status *status);
/* engine_wait_enter and engine_wait_leave keep the engine from being freed
 * while a call blocks: the destruction of the engine waits until every thread
 * that has called engine_wait_enter has called engine_wait_leave. The calls may
 * be nested. */
void engine_wait_enter(struct engine *e);
void engine_wait_leave(struct engine *e);
/* Converts a timeout in microseconds to a deadline in ns. Returns UINT64_MAX
 * (no deadline) if the timeout is negative. */
uint64_t engine_wait_deadline(int64_t timeout_us);
/* Adds n tasks that are about to start to b->pending. b->lock must be held. */
void engine_wait_expect(struct engine_batch *b, uint32_t n);
/* Subtracts n tasks from b->pending that were refused after engine_wait_expect.
 * b->lock must be held. */
void engine_wait_unexpect(struct engine_batch *b, uint32_t n);
/* Subtracts an ended task from b->pending and wakes the threads that wait for
 * it. The status of the task has been published before. The batch may have been
 * freed since then, so only its slot is accessed. */
void engine_wait_ended(struct engine_batch *b, size_t task);
/* Wakes the threads that wait for a batch that was freed, so that they
 * return. */
void engine_wait_freed(struct engine_batch *b);
/* Ends all waits of the application, and returns when every thread has called
 * engine_wait_leave. */
void engine_wait_shut(struct engine *e);

/* --- engine_event.c ------------------------------------------------------ */
/* engine_event_init initializes the event file descriptors; engine_event_fini
 * closes them. */
void engine_event_init(struct engine *e);
void engine_event_fini(struct engine *e);
/* Called by engine_wait_expect and engine_wait_unexpect for a batch that an
 * event file descriptor watches. They change b->pending and the event fields of
 * the batch together. */
void engine_event_expect(struct engine_batch *b, uint32_t n);
void engine_event_unexpect(struct engine_batch *b, uint32_t n);
/* Makes the event file descriptors readable, because all tasks of the batch
 * have ended. Accesses only the slot of the batch. Any thread. */
void engine_event_ended(struct engine_batch *b);
/* Closes the event file descriptor of a batch that is being freed. b->lock must
 * be held. */
void engine_event_freed(struct engine_batch *b);
/* Called for a batch that is being reset. If te_ended_batches has not fetched
 * the end of the batch, the end is no longer reported. The file descriptor of
 * the batch stays open but is no longer readable. b->lock must be held. */
void engine_event_reset(struct engine_batch *b);
/* Makes the engine's event file descriptor readable or unreadable, after
 * notifications have arrived or were fetched. Takes little time if the engine
 * has no event file descriptor. */
void engine_event_notes(struct engine *e);

/* --- engine_deadline.c --------------------------------------------------- */
/* engine_deadline_init initializes the deadlines; it returns false if memory is
 * short. engine_deadline_fini frees them after engine_deadline_stop. */
bool engine_deadline_init(struct engine *e);
/* Sets the deadline of a batch to MC_TRANSFER_TIMEOUT from now. Does nothing if
 * that setting is 0 or te_batch_deadline has set a deadline. b->lock must be
 * held. */
void engine_deadline_submit(struct engine_batch *b);
/* Stops the deadline thread. After that, no deadline ends a task. */
void engine_deadline_stop(struct engine *e);
void engine_deadline_fini(struct engine *e);
/* Removes the deadline of a batch that is being freed; b->lock must be held. */
void engine_deadline_freed(struct engine_batch *b);

#endif /* TEI_API_ENGINE_WAIT_H */
