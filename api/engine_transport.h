/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_TRANSPORT_H
#define TEI_API_ENGINE_TRANSPORT_H

/*
 * The table of transports. A transport moves the bytes of tasks. Each transport
 * has a file api/transport_<name>.c, which defines a struct
 * engine_transport_ops, and a row in api/engine_transports.c. The rest of the
 * engine calls transports only through the functions of this struct.
 *
 * The order of the rows is the order of precedence: the first transport that
 * reaches the target of a request, takes its kind of memory and does not
 * decline it, gets the task.
 *
 * Life of a task. A submission holds the lock of the batch, and
 * engine->segments for reading. It calls prepare for each request. If any
 * request is refused, drop is called for those that are prepared, and no task
 * starts. Otherwise start (or start_run) is called once for each task. From
 * then on the transport owns the task, until it calls engine_task_end() exactly
 * once, on any thread and without a lock of rows 3 to 6 of docs/LOCKING.md.
 * After that call the transport does not access the task any longer. When the
 * batch is freed, release is called; it frees the memory that prepare_ranges
 * has allocated.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/tei_meta_desc.h"
#include "transfer_engine_c.h"

struct engine;
struct engine_segment;
struct engine_task;
struct engine_target;
struct te_request;
struct tei_err;
struct tei_meta_desc;

/*
 * The kind of memory of a request. In a name, the first word stands for the
 * memory of this process, the second word for the memory of the target. The
 * values are bits of engine_transport_ops.takes.
 */
enum engine_kind {
	ENGINE_HOST_HOST = 1,
	ENGINE_GPU_HOST = 2, /* GPU memory of this process, host memory of the
			      * target */
	ENGINE_HOST_GPU = 4,
	ENGINE_GPU_GPU = 8,
	/* host memory of this process that is not registered, of a request
	 * with TE_REQ_BOUNCE */
	ENGINE_UNREGISTERED_HOST = 16,
	ENGINE_UNREGISTERED_GPU = 32,
};

static inline uint32_t engine_kind(bool gpu_here, bool gpu_there)
{
	return 1u << (gpu_here + 2 * gpu_there);
}

/* Converts the kind of a request to the kind that applies if the memory of this
 * process is not registered. */
static inline uint32_t engine_kind_unregistered(uint32_t kind)
{
	return kind == ENGINE_HOST_HOST ? ENGINE_UNREGISTERED_HOST
					: ENGINE_UNREGISTERED_GPU;
}

/* All kinds in which the memory of this process is registered. */
#define ENGINE_KINDS \
	(ENGINE_HOST_HOST | ENGINE_GPU_HOST | ENGINE_HOST_GPU | ENGINE_GPU_GPU)

/* Result of prepare and prepare_ranges: the transport declines the request, and
 * the next transport of the table is tried. */
#define ENGINE_DECLINED (-1)

/* What a thread that waits for a task reports to the transports. */
enum engine_waiter {
	ENGINE_WAITER_POLLS,  /* the thread begins to call progress in a loop */
	ENGINE_WAITER_STOPS,  /* the thread has stopped calling progress */
	ENGINE_WAITER_SLEEPS, /* the thread begins to sleep until the task
			       * ends */
	ENGINE_WAITER_WAKES,  /* the thread has ended its sleep */
};

/* Members that are not marked "optional" must be set. */
struct engine_transport_ops {
	/*
	 * The names by which installTransport installs the transport, followed
	 * by NULL. Optional: a transport without names is always installed.
	 */
	const char *const *names;
	uint32_t takes; /* kinds of memory that the transport accepts, bits of
			 * enum engine_kind */
	bool atomics;	/* the transport executes atomics on memory of other
			 * processes */
	/*
	 * True if the transport does not count as a way to a segment by itself,
	 * but only in addition to another transport. Either it hands its bytes
	 * to the other transport, or it serves only a part of the segment's
	 * memory.
	 */
	bool through;

	/*
	 * Switches the transport on. "proto" is the element of names under
	 * which the application installs it. engine->control is held. Returns 0
	 * or an enum tei_code. Must be set if names is set.
	 */
	int (*install)(struct engine *e, const char *proto,
		       struct tei_err *err);
	/*
	 * Switches the transport off. Waits for the end of its tasks, until the
	 * time until_ns at most. Returns 0, or TEI_ERR_BUSY if some tasks have
	 * not ended; the transport then stays installed. engine->control is
	 * held. Must be set if names is set.
	 */
	int (*uninstall)(struct engine *e, const char *proto, uint64_t until_ns,
			 struct tei_err *err);
	/*
	 * Called if the application installs the transport again, under another
	 * of its names. Returns 0 if the installed transport also serves that
	 * name, "proto". Otherwise returns an error code and fills in err.
	 * Optional.
	 */
	int (*accepts_name)(struct engine *e, const char *proto,
			    struct tei_err *err);

	/*
	 * Attaches the transport to a segment. Returns a pointer that is passed
	 * to prepare as "at", or NULL if the transport does not reach the
	 * segment. s is NULL for the own segment. Called when the targets of
	 * the segment have changed (engine_segment_reevaluate), with
	 * engine->segments held for writing. The result is valid until the next
	 * call for the segment.
	 */
	void *(*attach)(struct engine *e, const struct engine_segment *s);

	/*
	 * Prepares a task for a request that has one range on each side and
	 * whose form was checked. Calls engine_task_init() and fills in the
	 * member `room` of the task. Allocates no memory. "at" is the result of
	 * attach. Returns 0, ENGINE_DECLINED, or the code with which
	 * submitTransfer refuses the request.
	 */
	int (*prepare)(struct engine *e, struct engine_task *t,
		       const struct transfer_request *r,
		       struct engine_target *target, void *at);
	/*
	 * Does what prepare does, but for an atomic or a request with several
	 * ranges. The caller has initialized the task except for its transport.
	 * May allocate memory. Optional: without this function, such requests
	 * are refused.
	 */
	int (*prepare_ranges)(struct engine *e, struct engine_task *t,
			      const struct te_request *r,
			      struct engine_target *target, void *at);

	/*
	 * Starts a prepared task. If the task cannot start, it is ended with an
	 * error. May copy at most TEI_LOCAL_PIECE bytes before it returns, and
	 * does not wait. Not set if start_run is set.
	 */
	void (*start)(struct engine *e, struct engine_task *t);
	/*
	 * Starts the first of n tasks as start does, and possibly further ones
	 * that follow it directly and have this transport. If it starts several
	 * tasks, it copies bytes for about one millisecond at most before it
	 * returns. Returns the number of started tasks. Optional: if set, it is
	 * used instead of start.
	 */
	size_t (*start_next)(struct engine *e, struct engine_task *tasks,
			     size_t n);
	/*
	 * Starts all tasks of a submission that have this transport. "n" is the
	 * number of tasks of the submission, "mine" the number of those with
	 * this transport. Returns 0, or an enum tei_code if no task was
	 * started; the whole submission is then refused. Therefore only one
	 * transport of the table may have this function, and it is called
	 * before any other transport starts a task. Optional.
	 */
	int (*start_run)(struct engine *e, struct engine_task *tasks, size_t n,
			 size_t mine);

	/*
	 * Requests that a started task ends early: as FAILED if deadline is
	 * true (task->expired is then set already), otherwise as CANCELED. The
	 * lock of the batch is held, and the task had not ended when the lock
	 * was taken. May wait until one piece of a copy is complete, but for
	 * nothing else. Not set if cancel_run is set.
	 */
	void (*cancel)(struct engine *e, struct engine_task *t, bool deadline);
	/* Does what cancel does, for all of n tasks that have this transport
	 * and have not ended. Does not wait. Called before cancel of any other
	 * transport. Must be set if start_run is set. */
	void (*cancel_run)(struct engine *e, struct engine_task *tasks,
			   size_t n, bool deadline);

	/* Returns the number of bytes that a task has moved so far.
	 * Optional: without this function, the number is 0 until the task is
	 * COMPLETED. */
	uint64_t (*moved)(const struct engine_task *t);
	/*
	 * drop and release free the memory that prepare_ranges has allocated
	 * for a task. drop is called if the task is prepared but will not
	 * start. release is called when the batch of a task that has ended is
	 * freed. Both are optional.
	 */
	void (*drop)(struct engine_task *t);
	void (*release)(struct engine_task *t);

	/*
	 * Lets the calling thread do a part of the transport's work. The thread
	 * waits for a task, or queries its status. Returns true if the thread
	 * has copied bytes, which may have taken long. Optional: a transport
	 * with threads of its own needs neither this function nor waiter.
	 */
	bool (*progress)(struct engine *e);
	/* Receives the report of a thread that waits for a task. The caller may
	 * hold locks of row 7 of docs/LOCKING.md. Optional. */
	void (*waiter)(struct engine *e, enum engine_waiter now);

	/*
	 * Waits until no task of this transport moves bytes through the
	 * transport `through`. If `through` is NULL, waits until this transport
	 * has no task at all. Waits until the time until_ns at most. Returns
	 * true if no such task is left. No task is submitted during the wait.
	 * Transports are drained in the order of the table, so a transport that
	 * hands bytes to others must stand before them.
	 */
	bool (*drain)(struct engine *e,
		      const struct engine_transport_ops *through,
		      uint64_t until_ns);
	/* Frees what install has created. Called once, when the engine is
	 * destroyed and all tasks have ended. Optional. */
	void (*close)(struct engine *e);
};

/* The transports in the table. */
extern const struct engine_transport_ops transport_bounce;
extern const struct engine_transport_ops transport_file;
extern const struct engine_transport_ops transport_gpu;
extern const struct engine_transport_ops transport_ipc;
extern const struct engine_transport_ops transport_local;
extern const struct engine_transport_ops transport_rail;
extern const struct engine_transport_ops transport_slot;
extern const struct engine_transport_ops transport_staging;

#define ENGINE_ROWS_MAX 9 /* greatest number of rows in the table */

/* A transport that reaches a segment. */
struct engine_via {
	const struct engine_transport_ops *by;
	void *at; /* result of attach for the segment */
};

/* The transports that reach a segment. Guarded by engine->segments. */
struct engine_vias {
	struct engine_via via[ENGINE_ROWS_MAX]; /* the transports, in order of
						 * precedence */
	uint32_t n; /* number of elements of via; 0: no transport reaches the
		     * segment */
};

/* The target of a request. It is on the stack of the function that submits,
 * which uses it again for further requests with the same target. */
struct engine_target {
	bool valid; /* the other members describe the segment with that id */
	segment_id_t id;
	const struct tei_meta_desc *gpu; /* descriptor of the segment if
					  * engine_segment.gpu is true;
					  * otherwise NULL */
	uint32_t kind;			 /* enum engine_kind of the request that
					  * is being prepared */
	const struct engine_vias *vias;	 /* transports of the segment */
	bool asked, ended; /* used by transport_local; asked: it has checked
			    * whether the target's process has ended; ended:
			    * that process has ended */
};

/* Returns the result of attach of the transport "by" for the target. Returns
 * NULL if that transport does not reach the target. */
static inline void *engine_target_at(const struct engine_target *target,
				     const struct engine_transport_ops *by)
{
	const struct engine_via *via = target->vias->via;
	uint32_t i;

	for (i = 0; i < target->vias->n; i++)
		if (via[i].by == by)
			return via[i].at;
	return NULL;
}

/* --- engine_transports.c: the table --------------------------------------- */

/* Returns the transport that has this name in its member names. Returns NULL if
 * there is none. */
const struct engine_transport_ops *engine_transport_named(const char *name);
/* Writes the names that installTransport accepts, separated by commas. */
void engine_transport_names(char *out, size_t len);
/* Attaches all transports to a segment and stores those that reach it in *vias.
 * s is NULL for the own segment. e->segments must be held for writing. */
void engine_transports_attach(struct engine *e, const struct engine_segment *s,
			      struct engine_vias *vias);
/* engine_transports_progress calls progress of all transports that have this
 * function, and returns true if one of them returns true.
 * engine_transports_waiter calls waiter of all transports that have it. */
bool engine_transports_progress(struct engine *e);
void engine_transports_waiter(struct engine *e, enum engine_waiter now);
/* Calls drain of all transports except `through`. Returns true if all of them
 * return true. */
bool engine_transports_drain(struct engine *e,
			     const struct engine_transport_ops *through,
			     uint64_t until_ns);
/* Calls close of all transports, in the order of the table. */
void engine_transports_close(struct engine *e);

#endif /* TEI_API_ENGINE_TRANSPORT_H */
