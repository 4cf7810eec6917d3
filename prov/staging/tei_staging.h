/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_STAGING_H
#define TEI_PROV_STAGING_H

/*
 * GPU staging: moving bytes of GPU memory through pinned host memory, piece by
 * piece, where the rails cannot access the GPU memory. There are two parts.
 *
 * Tasks (struct tei_staging_task) move GPU memory of this process to or from
 * memory of another process, or a file segment. Each piece occupies a bounce
 * buffer and takes two steps: a copy between the GPU and the bounce buffer, and
 * a transfer between the bounce buffer and the target by a carrier. A write
 * copies first, a read transfers first. The steps of different pieces overlap.
 *
 * Remote bounce slots (struct tei_staging_remote_task) reach GPU memory of
 * another process whose rails cannot access it. That process grants slots of
 * its pinned host memory, one for each piece; staging_remote_int.h has the
 * rules. If that process runs on this host and permits it, this process copies
 * the bytes between its own memory and the slots (tei_staging_ops.copy).
 * Otherwise the rails move them.
 *
 * Ownership. A pool of bounce buffers belongs to one CUDA context. It is
 * created with the first registered GPU memory of the CUDA context and freed
 * with the last one. The memory of the pool is pinned in the CUDA context, and
 * registered with the rails and with the owner's transports. A task belongs to
 * its caller. From its start to its end it is also in the lists of the module,
 * and holds its GPU memory (tei_gpu_mem_hold) and a reference to its target. A
 * bounce buffer belongs to a piece until both steps have ended.
 *
 * Threads. Every call may be made from any thread, unless it says otherwise.
 * Each part has one thread, which is started at its first use: "tei-stage"
 * assigns bounce buffers, begins steps, cancels steps in progress and ends
 * tasks. The other threads only notify it under the lock: carriers report that
 * a step has ended, callers report that a task must end. The thread handles all
 * reports before it begins the second step of a piece, so a cancellation cannot
 * be lost between the two steps.
 *
 * Failures. If a pool cannot be allocated, pinned or registered, the error is
 * logged, and requests that need it are refused. If the GPU memory of a task is
 * being unregistered at its start, the task is FAILED. If a step fails, its
 * task begins no further pieces and ends, when its other bounce buffers are
 * free, with the error of that step, or with UNFENCED if one of its steps ended
 * with UNFENCED.
 *
 * End of a task:
 *	COMPLETED	A write: every piece was completed by its carrier. A
 *			read: the event after the copy of every piece to the GPU
 *			has completed.
 *	cancel, deadline  No piece begins another step. Carriers that can cancel
 *			end their pieces; rail tasks are fenced. The task waits
 *			for the other steps in progress. If all bytes have been
 *			moved by then, the task is COMPLETED.
 *	unregistration	The unregistration of the GPU memory waits for the end
 *			of the task.
 *	a GPU that hangs  A copy is abandoned after MC_SLICE_TIMEOUT. A read is
 *			UNFENCED, because the GPU memory may still change. A
 *			write is FAILED, because nothing was sent. The bounce
 *			buffer is not reused before the GPU has finished with
 *			it. If no bounce buffer is left, tasks wait for one for
 *			MC_SLICE_TIMEOUT, because the GPU may continue.
 *	a silent target	Pieces end as rail tasks do. When MC_SLICE_TIMEOUT has
 *			ended a piece, the tasks for the same target end, too,
 *			if they have no bounce buffer and have waited for as
 *			long. A task that gets a bounce buffer later has only
 *			the rest of its time, unless a piece makes progress at
 *			the target. One target has at most half of the bounce
 *			buffers of a pool, so that tasks for other targets
 *			continue.
 *	tei_staging_close  All tasks are cancelled and end FAILED.
 *
 * The locks of the module are in rows 1b, 1e and 7 of docs/LOCKING.md.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/tei_rail.h"
#include "prov/staging/tei_staging_ops.h"
#include "util/err.h"
#include "util/list.h"

struct staging_pool;
struct staging_request;
struct staging_slot;
struct staging_target;
struct tei_gpu;
struct tei_settings;
struct tei_staging;			/* the context; each engine has one */
struct tei_staging_remote_task;
struct tei_staging_task;

#define TEI_STAGING_PIECE (1u << 20)	/* size of a bounce buffer, bytes */
/* Size of the memory for a carrier's operation, bytes. */
#define TEI_STAGING_OP 1024u

/* --- context ------------------------------------------------------------- */

/*
 * Creates a context. settings, ops and arg must outlive it. Reads
 * slice_timeout_s and fence_ms. Starts no thread. Returns 0 or
 * TEI_ERR_MEMORY.
 */
int tei_staging_open(const struct tei_settings *settings,
		     const struct tei_staging_ops *ops, void *arg,
		     struct tei_err *err, struct tei_staging **out);
/* Sets the data plane, before the first call that uses a peer or memory. */
void tei_staging_set_rails(struct tei_staging *s, struct tei_rail_dp *dp);
/* Sets the GPU module, before the first GPU memory is added. */
void tei_staging_set_gpu(struct tei_staging *s, struct tei_gpu *gpu);

/* Ends all tasks and the threads. No task may be started afterwards. Must be
 * called after the owner's threads for tei_staging_slot_renew have ended, and
 * before the transports and the data plane are closed. NULL is ignored. */
void tei_staging_close(struct tei_staging *s);
/* Frees the context. Must be called after tei_gpu_fini and tei_rail_dp_close.
 * NULL is ignored. */
void tei_staging_free(struct tei_staging *s);

/* Receives a user message of a peer (a tei_rail_ops.message function). Ignores
 * NULL, and a message that arrives while the module has no thread for it. */
void tei_staging_message(struct tei_staging *s,
			 struct tei_rail_message *message);

/* --- carriers ------------------------------------------------------------ */

/*
 * One piece of a task in its second step. The module sets all members but op,
 * which it clears. Then it calls start of the carrier. From then until
 * tei_staging_piece_done, the carrier owns the piece and its bounce buffer.
 */
struct tei_staging_piece {
	struct tei_staging_task *task;
	char *mem;			/* the bounce buffer */
	uint64_t at, length;		/* offset in the task and length of the
					 * piece, bytes */
	union {
		max_align_t align;
		char room[TEI_STAGING_OP];
	} op;				/* memory for the carrier's operation */
};

/*
 * A transport of the second step. The module has the carriers for rails and for
 * remote bounce slots; the owner has those of its other transports. Except for
 * hold, the thread "tei-stage" calls these functions, without a lock.
 */
struct tei_staging_carrier {
	/* hold takes a reference to task->to, and drop drops it.
	 * tei_staging_start calls hold. drop is called before the task's done
	 * function; end is the status with which the task is about to end. */
	void (*hold)(struct tei_staging_task *task);
	void (*drop)(struct tei_staging_task *task, enum tei_rail_end end);
	/* Starts to move a piece. Returns 0 if the carrier accepts the piece;
	 * it must then call tei_staging_piece_done once. Otherwise returns a
	 * code, and the module ends the step with this error. */
	int (*start)(struct tei_staging *s, struct tei_staging_piece *piece);
	/* Requests that a piece ends early. deadline: if true, the piece ends
	 * without waiting for a fence. Does not block. If cancel is NULL, the
	 * module waits for the end of pieces in progress. */
	void (*cancel)(struct tei_staging *s, struct tei_staging_piece *piece,
		       bool deadline);
};

/* The carriers of this module. For both, task->to points to a struct
 * tei_rail_peer. */
extern const struct tei_staging_carrier tei_staging_by_rail;
extern const struct tei_staging_carrier tei_staging_by_slot;

/* Returns the piece whose member op is the given operation of a carrier. */
static inline struct tei_staging_piece *tei_staging_piece_of(void *op)
{
	size_t at = offsetof(struct tei_staging_piece, op);

	return (struct tei_staging_piece *)((char *)op - at);
}

/* Reports the end of a piece's second step. silent: MC_SLICE_TIMEOUT has ended
 * the piece. err: NULL if end is COMPLETED. Any thread, with no lock held. */
void tei_staging_piece_done(struct tei_staging_piece *piece,
			    enum tei_rail_end end, bool silent,
			    const struct tei_err *err);

/* --- tasks: GPU memory of this process ------------------------------------ */

/* Reports the end of a task and returns the task to the caller. Called once,
 * without a lock, by the thread "tei-stage", or by tei_staging_start if the
 * memory has just been unregistered. err is NULL if end is COMPLETED. */
typedef void (*tei_staging_done_fn)(struct tei_staging_task *task,
				    enum tei_rail_end end,
				    const struct tei_err *err);

/* A request between GPU memory of this process and a target. Zero it and fill
 * the first group. */
struct tei_staging_task {
	/* set by the caller; constant while started */
	const struct tei_staging_carrier *carrier;
	void *to;			/* the target; the carrier defines the
					 * type */
	void *near;			/* for tei_staging_by_slot: the target's
					 * process, see struct
					 * tei_staging_copy; or NULL */
	uint64_t gpu;			/* address in GPU memory */
	uint64_t remote;		/* address or offset at the target */
	uint64_t length;		/* length of the range, > 0 bytes */
	bool read;			/* true: from the target to GPU memory;
					 * false: the other way */
	tei_staging_done_fn done;

	/* constant while started */
	struct staging_pool *pool;

	/* used by the carrier of rails: the group of the pieces' rail tasks, or
	 * NULL if there is one piece */
	struct tei_rail_group *group;

	/* guarded by local->part.lock */
	struct tei_list live;		/* in the list of all started tasks */
	struct tei_list queue;		/* in the pool's queue or deferred list
					 * while pieces remain to begin */
	struct tei_list stop;		/* in local->stopping, or in no list */
	uint64_t next;			/* number of bytes assigned to bounce
					 * buffers so far */
	uint32_t running;		/* number of bounce buffers in use */
	uint64_t waits_ns;		/* time from which MC_SLICE_TIMEOUT
					 * counts, ns: set by the caller (0: the
					 * start), later the last piece's end */
	bool queued, ended;
	bool expired;			/* a deadline has ended the task */
	enum tei_rail_end status;	/* COMPLETED, or the reason why no
					 * further piece begins */
	/* Used by the carrier of remote bounce slots, in the thread
	 * "tei-remote": the low bits of the serial of the target's region,
	 * which READY carries; 0 until the first READY. */
	uint32_t region;
	struct tei_err *err;		/* error record; the task owns it */

	uint64_t moved;			/* atomic: bytes of complete pieces */
};

/*
 * Provides a pool for GPU memory that was just registered with the GPU module,
 * and stores a handle in *place. tei_staging_mem_drop must be called with this
 * handle when the memory has been unregistered and no task uses it. Both
 * functions may block. Returns 0, or a code with *err filled.
 */
int tei_staging_mem_add(struct tei_staging *s, void *gpu, uint64_t len,
			uint32_t *place, struct tei_err *err);
void tei_staging_mem_drop(struct tei_staging *s, uint32_t place);

/*
 * Adds a transport to those with which the owner registers the memory of pools.
 * Calls add for the memory of each pool. If all calls returned 0, then calls
 * commit, which makes ops->mem_add and ops->mem_remove use the transport from
 * then on. No pool is created or freed meanwhile. Returns the first result of
 * add that is not 0.
 */
int tei_staging_mem_each(struct tei_staging *s,
			 int (*add)(void *arg, void *mem, uint64_t len),
			 void (*commit)(void *arg), void *arg);

/* Returns true if a request for the GPU memory could be started now. */
bool tei_staging_ready(struct tei_staging *s, uint64_t gpu, uint64_t len);
/* Starts a task, possibly one that has ended; calls done at its end. */
void tei_staging_start(struct tei_staging *s, struct tei_staging_task *task);
/* Requests that a task ends early. The task's done function must not have
 * returned. Does not block. */
void tei_staging_cancel(struct tei_staging *s, struct tei_staging_task *task,
			bool deadline);

/*
 * Waits until no task of that carrier is left. Returns true if this happens
 * before the time until_ns. The caller must ensure that no new tasks are
 * started. Drives progress of the rails.
 */
bool tei_staging_drain(struct tei_staging *s,
		       const struct tei_staging_carrier *carrier,
		       uint64_t until_ns);

/* --- remote bounce slots: the initiator ----------------------------------- */

/* Reports the end of a task and returns the task to the caller. Called once, by
 * the thread "tei-remote", without a lock. err is NULL if end is COMPLETED. */
typedef void (*tei_staging_remote_done_fn)(struct tei_staging_remote_task *task,
					   enum tei_rail_end end,
					   const struct tei_err *err);

/* A request between registered host memory and GPU memory of a peer. Zero it
 * and fill the first group. */
struct tei_staging_remote_task {
	/* set by the caller; constant while started */
	struct tei_rail_peer *peer; /* the caller holds a reference to it */
	void *near;		    /* the process of the peer, see struct
				     * tei_staging_copy; or NULL. The caller
				     * holds a reference to it */
	char *local;
	uint64_t remote, length;
	bool read;
	bool held;			/* tei_rail_mr_hold holds local */
	bool part;			/* moves a piece of a tei_staging_task,
					 * whose range and member region are
					 * used */
	uint64_t since_ns;		/* start of the time that counts towards
					 * MC_SLICE_TIMEOUT, ns; 0 means the
					 * start of the task */
	tei_staging_remote_done_fn done;

	/* guarded by remote->part.lock */
	struct tei_list live;
	struct tei_list started;       /* in remote->started until the thread
					* "tei-remote" has taken it */
	struct tei_list stop;	       /* in remote->stopping, or in no list */
	/* Status with which the caller has requested that the task ends early;
	 * COMPLETED if there is no such request. */
	enum tei_rail_end stop_status;
	bool expired, ended;

	/* used by the thread "tei-remote" until the end of the task, then by
	 * the caller */
	struct staging_target *target;
	struct tei_list queue;		/* in target->queue while pieces remain
					 * to begin */
	uint64_t next;			/* number of bytes assigned to pieces so
					 * far */
	uint64_t waits_ns;		/* time at which the task started or its
					 * last piece ended, ns */
	uint64_t stop_ns;		/* time since which no further piece
					 * begins, ns; 0 if pieces may begin */
	uint32_t running;		/* number of pieces in progress */
	bool queued;
	bool by_deadline;	  /* a deadline has ended the task */
	bool silent;		  /* MC_SLICE_TIMEOUT has ended it */
	enum tei_rail_end status; /* COMPLETED, or the reason why no
				   * further piece begins */
	uint32_t region;	  /* see tei_staging_task.region */
	struct tei_err *err;	  /* error record; the task owns it */

	uint64_t moved;			/* atomic: bytes of complete pieces */
};

/* Prepares remote bounce slots because a segment has GPU memory. Returns false
 * if that fails. */
bool tei_staging_remote_on(struct tei_staging *s);
/* Returns true if tei_staging_remote_on has succeeded. */
bool tei_staging_remote_ready(struct tei_staging *s);

/* Starts a task. Returns 0 if done will be called, or TEI_ERR_CONTEXT if the
 * module is being closed. */
int tei_staging_remote_start(struct tei_staging *s,
			     struct tei_staging_remote_task *task);
/* Requests that a started task ends early. The task's done function must not
 * have returned. Does not block. */
void tei_staging_remote_cancel(struct tei_staging *s,
			       struct tei_staging_remote_task *task,
			       bool deadline);
/* Waits until no task is left. Returns true if this happens before the time
 * until_ns. Drives progress of the rails. */
bool tei_staging_remote_drain(struct tei_staging *s, uint64_t until_ns);

/* Fills the error record of a failed request to GPU memory of a peer. */
void tei_staging_remote_err(struct tei_err *err,
			    const struct tei_rail_peer *peer, int code,
			    const char *text);

/* --- remote bounce slots: the target -------------------------------------- */

/*
 * Grants slots for registered GPU memory from now on. *serial is a number by
 * which the following functions refer to the memory. Blocks. After an error,
 * *err is set and nothing has changed.
 */
int tei_staging_grant_add(struct tei_staging *s, void *gpu, uint64_t len,
			  uint64_t *serial, struct tei_err *err);
/* Ensures that no further copy from or to the memory begins. */
void tei_staging_grant_remove(struct tei_staging *s, uint64_t serial);
/* Reverses tei_staging_grant_remove: slots are granted again. */
void tei_staging_grant_restore(struct tei_staging *s, uint64_t serial);
/* Releases the slots. Must be called after tei_staging_grant_remove, when
 * nothing uses the memory any longer. Blocks for as long as a fence takes. */
void tei_staging_grant_drop(struct tei_staging *s, uint64_t serial);
/* Provides other memory for a slot, on behalf of tei_staging_ops.renew.
 * Blocks. */
void tei_staging_slot_renew(struct tei_staging *s,
			    struct staging_slot *slot);

#endif /* TEI_PROV_STAGING_H */
