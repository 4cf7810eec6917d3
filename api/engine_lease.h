/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_LEASE_H
#define TEI_API_ENGINE_LEASE_H

/*
 * Requests to GPU memory of another process through remote bounce slots. If the
 * rails of the target cannot access its GPU memory, the target grants slots of
 * pinned host memory, one for each piece of a request. The rails of the
 * initiator move bytes between the initiator's memory and a slot. The target
 * copies between the slot and the GPU. engine_lease_wire.h has the messages.
 *
 *	write	ASK, READY, transfer into the slot, GO, copy, DONE
 *	read	ASK, copy, READY, transfer from the slot, FREE, DONE
 *
 * Messages may be lost and reordered. Each piece has an increasing number. The
 * initiator repeats the message of its present state until it is answered, and
 * never begins a number that is LEASE_PIECES above an unfinished one. The
 * target keeps the state and result of LEASE_PIECES numbers, and ignores
 * messages about older ones.
 *
 * COMPLETED. For a write, DONE was received for every piece. The target sends
 * it after the event behind its copy, when the bytes are in GPU memory. For a
 * read, every piece was read from its slot by a rail task that completed.
 *
 * Fence. A slot is reused at once only after GO, or after a FREE without
 * LEASE_UNFENCED, which says that the rail tasks have ended and were fenced.
 * After every other end (the initiator is gone, is silent for MC_SLICE_TIMEOUT,
 * or could not be fenced) the memory of the slot is unregistered, which
 * includes a fence. Its addresses stay unused until that initiator is gone or
 * has said that it no longer uses them. The slot gets other memory; if there is
 * none, the target tries again later. So a late write meets no memory, and a
 * READY that is read late leads nowhere.
 *
 * Checks. ASK carries the range of the whole task, and the target checks that
 * range before it grants a slot for any piece. Only the target's own copies
 * write to its GPU memory. Unregistering that memory first removes the range
 * and then waits for the copies in progress; a GO that arrives later is
 * answered by DONE with -3.
 *
 * Fairness and bounds. A client gets another slot only while more slots are
 * free than it has. So a silent client keeps at most half of them. Of the
 * clients that wait, the one with the fewest slots is first, then the one that
 * has waited longest. The memory for an initiator is bounded: LEASE_PIECES
 * records, LEASE_INBOX unread messages (more are lost, and repeated by the
 * sender), and the quarantined addresses of at most LEASE_PIECES slots.
 * Messages are read from each peer in turn, at most LEASE_TURNS before other
 * work is done, so a peer that floods delays the others only by its turns.
 *
 * Early ends. On cancel and deadline no piece begins another step, and rail
 * tasks are ended and fenced. A piece after GO is waited for, for at most
 * MOONRAIL_FENCE_MS; then the task ends TIMEOUT, because its bytes may still
 * land. If the target is gone, the task ends FAILED. If the target is silent,
 * or grants no slot, for MC_SLICE_TIMEOUT, the task ends FAILED, or TIMEOUT if
 * a piece was after GO. If a GPU of the target does not complete a copy, the
 * task ends TIMEOUT. While a task waits for its turn or for a slot, that time
 * counts from the latest of these: its start, the end of its last piece, the
 * latest progress of any piece for the same target.
 *
 * Threads. One thread per engine, "tei-lease", serves both sides. Only it
 * changes pieces and slots. The other threads notify it under the lock: of
 * messages, of the ends of rail tasks and copies, of tasks that begin or must
 * end. It never blocks; the workers of engine_work.c allocate new memory for
 * slots.
 *
 * The lock is in the same row as that of GPU staging (docs/LOCKING.md).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/list.h"

struct engine;
struct engine_lease;
struct engine_target;
struct engine_task;
struct lease_target;
struct lend_slot;
struct tei_err;
struct tei_rail_message;
struct tei_rail_peer;
struct transfer_request;

#define LEASE_PIECE	(1u << 20)	/* bytes of a slot */
#define LEASE_SLOTS	32u		/* slots of a pool */
#define LEASE_PIECES	64u		/* numbers remembered per peer */
#define LEASE_WINDOW	16u		/* most pieces in progress per target */
#define LEASE_INBOX	256u		/* most unread messages of a peer */
#define LEASE_TURNS	128u		/* most messages read per iteration */

/* Reports the end of a task: status is 0 or STATUS_…. Called once, by the
 * thread, without a lock. The callee owns the lease again. */
typedef void (*engine_lease_done_fn)(struct engine_lease *lease, int status,
				     const struct tei_err *err);

/* A task: bytes between registered host memory and GPU memory of a peer. Zero
 * it and fill the first group. It belongs to the caller again when done is
 * called. */
struct engine_lease {
	/* the caller's; constant while started */
	struct tei_rail_peer *peer;	/* the caller holds the reference */
	char *local;
	uint64_t remote, length;
	uint64_t base, extent;		/* range of the whole task at the
					 * target */
	bool read;
	bool held;			/* tei_rail_mr_hold holds local */
	uint64_t since_ns;		/* time since which it has waited; 0:
					 * its start */
	engine_lease_done_fn done;

	/* leasing->lock */
	struct tei_list live;
	struct tei_list fresh;		/* until the thread has taken it */
	struct tei_list stop;		/* in stopping, or alone */
	int stop_status;
	bool expired, ended;

	/* thread "tei-lease"; the caller's after the end */
	struct lease_target *target;
	struct tei_list queue;		/* in target->queue: pieces to begin */
	uint64_t next;			/* bytes assigned to pieces */
	uint64_t waits_ns;		/* time of its start, or of the last end
					 * of a piece */
	uint64_t stop_ns;		/* time since which no pieces begin,
					 * 0 */
	uint32_t running;		/* pieces in progress */
	bool queued;
	bool hurried;			/* ended by its deadline */
	bool silent;			/* ended by MC_SLICE_TIMEOUT */
	int status;			/* why no further piece begins, or 0 */
	struct tei_err *err;		/* owned; error record of status */

	uint64_t moved;			/* atomic: bytes of complete pieces */
};

/* --- initiator ----------------------------------------------------------- */

/* Prepares remote bounce slots because a segment has GPU memory. Returns false
 * if that fails. */
bool engine_lease_on(struct engine *e);

/* Prepares a request from host memory to GPU memory of a peer. Returns 0 or the
 * code of submitTransfer. */
int engine_lease_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 const struct engine_target *target);
/* Starts a task prepared by engine_lease_prepare. */
void engine_lease_start_task(struct engine *e, struct engine_task *t);

/* Starts a task. Returns 0, and done will be called, or TEI_ERR_CONTEXT if the
 * engine is being destroyed. */
int engine_lease_start(struct engine *e, struct engine_lease *lease);
/* Requests that a started task ends early; its done must not have returned.
 * Does not block. */
void engine_lease_cancel(struct engine *e, struct engine_lease *lease,
			 bool deadline);

/* Waits until no task is left, and returns true, or until until_ns. Drives
 * progress. */
bool engine_lease_drain(struct engine *e, uint64_t until_ns);

/* --- target -------------------------------------------------------------- */

/*
 * Grants slots for registered GPU memory from now on. *serial is the handle.
 * Blocks. After an error, *err is set and nothing has changed.
 */
int engine_lend_add(struct engine *e, void *gpu, uint64_t len, uint64_t *serial,
		    struct tei_err *err);
/* Ensures that no further copy from or to the memory begins. */
void engine_lend_remove(struct engine *e, uint64_t serial);
/* Reverses engine_lend_remove. */
void engine_lend_again(struct engine *e, uint64_t serial);
/* Releases the slots after engine_lend_remove, when nothing uses the memory any
 * more. Blocks for as long as a fence takes. */
void engine_lend_drop(struct engine *e, uint64_t serial);
/* Provides other memory for a slot. Worker. */
void engine_lend_renew(struct engine *e, struct lend_slot *slot);

/* --- both ---------------------------------------------------------------- */

/* Receives a message; a tei_rail_ops.message, arg is the engine. */
void engine_lease_message(void *arg, struct tei_rail_message *message);

/* Ends all tasks and the thread. Must be called after the workers have ended
 * and before the data plane is closed. */
void engine_lease_close(struct engine *e);
/* Frees everything. Must be called after tei_gpu_fini and tei_rail_dp_close. */
void engine_lease_free(struct engine *e);

#endif /* TEI_API_ENGINE_LEASE_H */
