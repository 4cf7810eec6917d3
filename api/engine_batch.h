/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_BATCH_H
#define TEI_API_ENGINE_BATCH_H

/*
 * Batches, their tasks and submissions: types and functions. Each group of
 * functions names its file.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/engine_merged.h"
#include "moonrail.h"
#include "transfer_engine_c.h"

#include "util/err.h"
#include "util/heap.h"
#include "util/list.h"
#include "util/lock.h"

struct engine;
struct engine_target;
struct engine_transport_ops;
struct tei_rail_notification;
struct tei_rail_outgoing;
struct tei_rail_peer;

/* number of batch slots per allocation */
#define ENGINE_BATCH_CHUNK	256
#define ENGINE_BATCH_CHUNKS	4096
/* greatest number of tasks in a batch */
#define ENGINE_BATCH_MAX (1u << 20)
/* Size of engine_task.room, the part of a task that its transport uses,
 * bytes. */
#define ENGINE_TASK_ROOM 208
/* A freed slot keeps its task array for the next batch if the array has at most
 * this number of elements. */
#define ENGINE_KEEP_TASKS 1024

/*
 * The notification of a submission, created by submitTransferWithNotify. The
 * end of the last task of the submission sends the notification if all tasks
 * are COMPLETED, and frees this struct.
 */
struct engine_submission {
	uint32_t left;			/* atomic: number of tasks that have not
					 * ended */
	bool failed;			/* atomic: a task has ended, but not as
					 * COMPLETED */
	struct tei_rail_peer *peer;	/* peer that receives the notification,
					 * with one reference; NULL: this engine
					 * receives it */
	struct tei_rail_outgoing *out;	/* notification for the peer; NULL: peer
					 * is NULL */
	/* notification for this engine, with a reserved place in the queue of
	 * notifications; NULL: peer is not NULL */
	struct tei_rail_notification *note;
};

/*
 * A task of a batch. The batch owns it. From the submission to the end of the
 * task, only its transport changes the members, except for `expired`.
 */
struct engine_task {
	struct engine *engine;
	struct engine_batch *batch;
	struct engine_submission *sub; /* submission to which the task belongs;
					* NULL: the submission has no
					* notification */
	struct tei_err *err;	       /* error record of the ended task, or
					* NULL; owned by the task; set before
					* status */
	uint64_t length;
	uint64_t cookie;		       /* te_request.cookie; 0 for
						* submitTransfer */
	const struct engine_transport_ops *by; /* transport of the task; set
						* when the task is prepared */
	int status;			/* atomic: STATUS_WAITING until the task
					 * has ended, then its final status
					 * STATUS_… */
	segment_id_t target;
	bool read;			     /* true: a read, false: a write;
					      * valid only if the task has one
					      * range on each side */
	bool expired;			     /* atomic: the task is ended
					      * because the deadline of its
					      * batch has passed */
	struct engine_merged merged; /* used by transports that merge tasks */
	uint64_t room[ENGINE_TASK_ROOM / 8]; /* data of the transport */
};

/* engine_task_room and engine_task_room_const return a task's member `room`,
 * which holds the data of its transport. engine_task_from and
 * engine_task_from_const return the task that contains this member. */
static inline void *engine_task_room(struct engine_task *t)
{
	return t->room;
}

static inline const void *engine_task_room_const(const struct engine_task *t)
{
	return t->room;
}

static inline struct engine_task *engine_task_from(void *room)
{
	return (struct engine_task *)((char *)room -
				      offsetof(struct engine_task, room));
}

static inline const struct engine_task *engine_task_from_const(const void *room)
{
	return (const struct engine_task *)((const char *)room -
					    offsetof(struct engine_task, room));
}

/*
 * The bits of engine_batch.pending. One atomic word holds them all, so that no
 * wake-up is lost: either a thread that is about to sleep sees that the task
 * has ended, or the thread that ends the task sees the sleeper. Bits 0 to 23:
 * number of tasks that have not ended. Bits 24 to 43: number of threads that
 * sleep until one task has ended. Bits 44 to 62: number of threads that sleep
 * until all tasks have ended. Bit 63: an event file descriptor watches the
 * batch.
 */
#define ENGINE_PENDING_LEFT	UINT64_C(0xffffff)
#define ENGINE_PENDING_TASK	(UINT64_C(1) << 24)
#define ENGINE_PENDING_TASKS	(UINT64_C(0xfffff) * ENGINE_PENDING_TASK)
#define ENGINE_PENDING_WHOLE	(UINT64_C(1) << 44)
#define ENGINE_PENDING_WHOLES	(UINT64_C(0x7ffff) * ENGINE_PENDING_WHOLE)
#define ENGINE_PENDING_WATCHED	(UINT64_C(1) << 63)

/* The state of a batch's event fields before a submission. If the submission is
 * refused, event_restore() restores this state. */
struct engine_event_was {
	bool armed, adopted;
	bool listed; /* the batch was an element of events.ended */
	bool level;
	/*
	 * event_level was true, and the program had not read event_fd, so
	 * event_fd was readable
	 */
	bool readable;
};

/*
 * A batch slot. Slots are freed only with the engine, which has two
 * consequences. (1) A stale batch id is refused, because the generation in it
 * differs from that of the slot. (2) A thread that has ended a task may still
 * access the slot after the batch was freed. It may even lower pending after
 * the slot was allocated for another batch. Therefore pending is never reset.
 * Until that thread has lowered pending, the other batch appears to have an
 * unfinished task.
 */
struct engine_batch {
	/* the next two members do not change; index is the number of the
	 * slot */
	struct engine *engine;
	uint32_t index;

	struct tei_mutex lock;		/* guards the members from gen to
					 * internal */
	uint32_t gen;			/* generation, raised when the slot is
					 * allocated and when it is freed; odd
					 * while it is allocated */
	uint32_t size, count;		/* size: greatest number of tasks;
					 * count: number of submitted tasks */
	uint32_t resets;		/* number of calls of te_batch_reset */
	struct engine_task *tasks;
	uint32_t cap;			/* number of elements of tasks */
	uint64_t deadline_ns;		/* deadline, ns, CLOCK_MONOTONIC; 0:
					 * none */
	bool deadline_set;		/* te_batch_deadline has set the
					 * deadline */
	bool internal;			/* the batch belongs to a blocking call:
					 * te_ended_batches never reports it */

	/* the next two members are atomic */
	uint64_t pending; /* the bits ENGINE_PENDING_… */
	uint32_t wakes;			/* futex on which waiting threads sleep;
					 * incremented to wake them */

	/* the members from event_fd to event_link are guarded by
	 * engine->events.lock */
	int event_fd;			/* event file descriptor of this batch,
					 * or -1 */
	bool event_level;		/* event_fd was made readable; the
					 * program may have read it since */
	bool event_armed;		/* the end of the present tasks is still
					 * to be reported */
	bool event_adopted;		/* te_ended_batches reports, or has
					 * reported, the end of the present
					 * tasks */
	batch_id_t event_id;		/* id of the batch, which
					 * te_ended_batches reports */
	/* valid between engine_event_expect and engine_event_unexpect */
	struct engine_event_was event_was;
	struct tei_list event_link; /* element of events.ended while
				     * te_ended_batches can fetch the end */

	struct tei_heap_node timer; /* element of the heap of deadlines; guarded
				     * by engine->timers.lock */

	struct engine_batch *next_free; /* next element of the list
					 * engine->slots.free; guarded by
					 * engine->slots.lock */
};

/* The batch slots of an engine. */
struct engine_slots {
	struct tei_mutex lock;		/* leaf; guards the members below */
	/* arrays of ENGINE_BATCH_CHUNK slots; each element is atomic and set
	 * once */
	struct engine_batch *chunks[ENGINE_BATCH_CHUNKS];
	uint32_t nchunks;
	struct engine_batch *free;
};

/* --- engine_batch.c ------------------------------------------------------ */
/* Returns the locked slot of a batch. Returns NULL with the thread's last error
 * set if the id is stale or unknown. */
struct engine_batch *engine_batch_lock(struct engine *e, batch_id_t id);
void engine_batch_unlock(struct engine_batch *b);
/* Returns the slot whose index is in the batch id, or NULL if there is no such
 * slot. The batch with that id may have been freed already. */
struct engine_batch *engine_batch_slot(struct engine *e, batch_id_t id);
/* Allocates a batch for at most ENGINE_BATCH_MAX tasks. Returns its id, or
 * INVALID_BATCH. */
batch_id_t engine_batch_alloc(struct engine *e, size_t batch_size,
			      bool internal);
/* Frees a batch. Returns 0 or the code of freeBatchID. */
int engine_batch_free(struct engine *e, batch_id_t batch_id);
/* Calls fn for every slot, without a lock. */
void engine_batch_each(struct engine *e,
		       void (*fn)(struct engine_batch *b, void *arg),
		       void *arg);
/* Frees all batches. No other thread may use the engine. */
void engine_batch_free_all(struct engine *e);

/* --- engine_submit.c ------------------------------------------------------ */
/* Submits n requests to a batch. Returns 0 or the code of submitTransfer.
 * "call" is the name of the public call, for the error record. sub is NULL if
 * the submission has no notification. */
int engine_submit(struct engine *e, const char *call, batch_id_t id,
		  const struct transfer_request *reqs, size_t n,
		  struct engine_submission *sub);
/* Checks a request and lets the transport prepare its task. flags is 0 or
 * TE_REQ_BOUNCE. Returns 0 or the code of submitTransfer. */
int engine_submit_prepare(struct engine *e, struct engine_task *t,
			  const struct transfer_request *r, uint32_t flags,
			  struct engine_target *target);
/* Error text if engine_submit_start returns TE_TIMED_OUT. */
#define ENGINE_DEADLINE_PASSED	"the batch's deadline has passed"
/* Starts the n prepared tasks that follow the first b->count tasks. b->lock and
 * e->segments must be held. Returns 0, or a positive code if no task was
 * started. */
int engine_submit_start(struct engine *e, struct engine_batch *b, size_t n);

/* --- engine_submit_ranges.c ----------------------------------------------- */
/* Lets the transport prepare a task for a request with any number of ranges.
 * The form of the request was checked, and the task's engine, target and length
 * are set. Returns 0 or the code of te_submit. */
int engine_ranges_prepare(struct engine *e, struct engine_task *t,
			  const struct te_request *r,
			  struct engine_target *target);
/* Submits n requests of elem_size bytes each to a batch. Returns 0 or the code
 * of te_submit. "call" is the name of the public call, for the error record. */
int engine_submit_ranges(struct engine *e, const char *call, batch_id_t id,
			 const struct te_request *reqs, size_t elem_size,
			 size_t n, uint64_t flags);

/* --- engine_task.c -------------------------------------------------------- */
/* Sets a task to zero. Then fills in the members that all transports need for a
 * request with one range on each side. */
void engine_task_init(struct engine *e, struct engine_task *t,
		      const struct transfer_request *r,
		      const struct engine_transport_ops *by);
/* Ends a task. err may be NULL. The status is published last; from then on the
 * application may free the task. */
void engine_task_end(struct engine_task *t, int status,
		     const struct tei_err *err);
/* Frees a submission of which no task has started. */
void engine_submission_free(struct engine *e, struct engine_submission *sub);

static inline batch_id_t engine_batch_id(const struct engine_batch *b)
{
	return (batch_id_t)b->gen << 32 | b->index;
}

static inline bool engine_task_ended(const struct engine_task *t)
{
	return __atomic_load_n(&t->status, __ATOMIC_ACQUIRE) != STATUS_WAITING;
}

/* --- engine_status.c ----------------------------------------------------- */
/* Fills in *status with the status and the transferred bytes of a task. */
void engine_task_status(const struct engine_task *t,
			struct transfer_status *status);
/* Sets *status to the worst status of the batch's tasks and the sum of their
 * transferred bytes. b->lock must be held. b->count must not be 0. */
void engine_batch_sum(const struct engine_batch *b,
		      struct transfer_status *status);

/* --- engine_cancel.c ----------------------------------------------------- */
/* Requests that n tasks, beginning with task "first", end early: as FAILED if
 * deadline is true, otherwise as CANCELED. Ignores tasks that have ended
 * already. b->lock must be held. May wait until the part of a local copy that
 * is in progress has been copied. */
void engine_cancel_tasks(struct engine_batch *b, size_t first, size_t n,
			 bool deadline);

/* --- engine_request.c ----------------------------------------------------- */
/* engine_range_registered returns true if local range k of the request is
 * registered, engine_ranges_registered returns true if all its local ranges
 * are. A range that the request writes to must be registered for writing. */
bool engine_range_registered(struct engine *e, const struct te_request *r,
			     uint32_t k);
bool engine_ranges_registered(struct engine *e, const struct te_request *r);
/* Converts the opcode of an atomic to an enum tei_atomic_op. */
unsigned int engine_atomic_op(uint32_t opcode);

#endif /* TEI_API_ENGINE_BATCH_H */
