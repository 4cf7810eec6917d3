/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_LEASE_H
#define TEI_API_ENGINE_LEASE_H

/*
 * GPU memory of another process as the target of requests. Where its rails do
 * not take it, its owner, the target, lends slots of pinned host memory, each for one
 * piece of a request: the initiator's rails move bytes between its own
 * memory and a slot, the target's copy engine between the slot and the GPU.
 * engine_lease_wire.h has the messages.
 *
 *	write	ASK, READY, the rails fill the slot, GO, the copy, DONE
 *	read	ASK, the copy, READY, the rails read the slot, FREE, DONE
 *
 * Messages may be lost and come in any order. Each piece has a number that
 * grows; the initiator says where it stands again until it is answered, and
 * begins no number that is LEASE_PIECES above one that was not; the target
 * remembers for LEASE_PIECES numbers how they stand and how they ended. What
 * is said of older ones counts for nothing.
 *
 * What COMPLETED means. Of a write: every piece was told DONE, which is said
 * when the event behind its copy is over: the bytes are in GPU memory. Of a
 * read: every piece was read from its slot by a rail that completed.
 *
 * The fence. A slot goes to another piece only after GO, or a FREE that says
 * that the rails have ended what they moved, fenced. After every other end (the
 * initiator has gone, says nothing for MC_SLICE_TIMEOUT, could not be fenced)
 * the slot's memory is unregistered, with the fence that this brings, and
 * its addresses are nobody's until that initiator has gone or said that it is
 * past them: the slot gets other memory, and where there is none, tries again.
 * So what comes late meets no memory, and a READY that is read late leads
 * nowhere.
 *
 * Refused whole: the target looks at the range of the whole task, in ASK,
 * before it lends for any piece of it. Its own copies are what moves bytes to
 * GPU memory: unregistering it takes the range away first, then waits for the
 * copies that were begun, so a GO that comes later is told DONE with -3.
 *
 * Fair, bounded. A peer has one slot more only while more are free than it
 * has, so what a silent one keeps is half of them and others have the rest;
 * of those that ask, who has the fewest comes first, then who asked first.
 * Memory for an initiator is LEASE_PIECES records, LEASE_INBOX messages that
 * were not read yet (more are lost, and said again), and the addresses of as
 * many slots as it may be late to write to, LEASE_PIECES at most. Messages are
 * read one of each peer in turn, LEASE_TURNS between two looks at what else is
 * to be done, so one that floods costs the others no more than its turns.
 *
 * How a task ends early. Cancel, deadline: no piece goes into another step;
 * what the rails move ends as their tasks do, fenced. A piece that was told GO
 * is waited for, MOONRAIL_FENCE_MS at most, then the task ends TIMEOUT: its
 * bytes may still land. A target that has gone: FAILED. One that says nothing
 * for MC_SLICE_TIMEOUT, or has no slot for so long: FAILED, TIMEOUT where a
 * piece was told GO. A GPU there that ends no copy: TIMEOUT. For a task that
 * waits for its turn, or for a slot, that time runs from when it came, or its
 * last piece was over, or any at that target went on, whichever was last.
 *
 * Which thread. One per engine, "tei-lease", for both sides: it alone changes
 * pieces and slots. The others leave word under the lock: messages, ends of
 * rail tasks and copies, tasks that begin or are to end. It blocks in no call;
 * slots get other memory on the workers of engine_work.c.
 *
 * The lock stands beside staging's.
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
#define LEASE_SLOTS	32u		/* of a pool */
#define LEASE_PIECES	64u		/* numbers remembered */
#define LEASE_WINDOW	16u		/* pieces under way at a target */
#define LEASE_INBOX	256u		/* messages of a peer, not read yet */
#define LEASE_TURNS	128u		/* messages read before what else is due */

/* status: 0, or STATUS_… with the reason. No lock held, the thread, once; the
 * lease is the callee's from here on. */
typedef void (*engine_lease_done_fn)(struct engine_lease *lease, int status,
				     const struct tei_err *err);

/* Bytes between registered host memory and GPU memory of a peer. Zeroed, the
 * first group filled in; the caller's again when done is called. */
struct engine_lease {
	/* caller's, constant while started */
	struct tei_rail_peer *peer;	/* who holds it */
	char *local;
	uint64_t remote, length;
	uint64_t base, extent;		/* of the whole task, at the target */
	bool read;
	bool held;			/* local is, by tei_rail_mr_hold */
	uint64_t since_ns;		/* it waits; 0: as it comes */
	engine_lease_done_fn done;

	/* leasing->lock */
	struct tei_list live;
	struct tei_list fresh;		/* until the thread has it */
	struct tei_list stop;		/* to be ended, or alone */
	int stop_status;
	bool expired, ended;

	/* the thread's; the caller's once it has ended */
	struct lease_target *target;
	struct tei_list queue;		/* of its target: pieces to begin */
	uint64_t next;			/* bytes given to pieces */
	uint64_t waits_ns;		/* since it came, or a piece of it was
					   over last */
	uint64_t stop_ns;		/* since when none are begun, or 0 */
	uint32_t running;		/* pieces */
	bool queued;
	bool hurried;			/* ended by its deadline */
	bool silent;			/* MC_SLICE_TIMEOUT has ended it */
	int status;			/* why no more are begun, or 0 */
	struct tei_err *err;		/* owned; of that */

	uint64_t moved;			/* atomic: bytes in place */
};

/* --- initiator ----------------------------------------------------------- */

/* Some segment has GPU memory: false where there is no way to reach it. */
bool engine_lease_on(struct engine *e);

/* One request from host memory to GPU memory of a peer, as submitTransfer
 * takes it. 0 or the transfer family's code. */
int engine_lease_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 const struct engine_target *target);
void engine_lease_start_task(struct engine *e, struct engine_task *t);

/* 0: done follows. TEI_ERR_CONTEXT: the engine is being destroyed. */
int engine_lease_start(struct engine *e, struct engine_lease *lease);
/* Of one that was started, and whose done has not ended. Waits for nothing. */
void engine_lease_cancel(struct engine *e, struct engine_lease *lease,
			 bool deadline);

/* Waits until none is live, true, or until then. New ones count. */
bool engine_lease_drain(struct engine *e, uint64_t until_ns);

/* --- target -------------------------------------------------------------- */

/*
 * Registered GPU memory is lent for from now on; *serial names it. Blocks.
 * What fails is in *err, and nothing has changed.
 */
int engine_lend_add(struct engine *e, void *gpu, uint64_t len, uint64_t *serial,
		    struct tei_err *err);
/* No copy to or from it begins any more. */
void engine_lend_remove(struct engine *e, uint64_t serial);
/* It is what it was before _remove. */
void engine_lend_again(struct engine *e, uint64_t serial);
/* It was removed, and nothing touches it: gives its share of the slots back.
 * Blocks for as long as the fence takes. */
void engine_lend_drop(struct engine *e, uint64_t serial);
/* A worker: the slot gets other memory. */
void engine_lend_renew(struct engine *e, struct lend_slot *slot);

/* --- both ---------------------------------------------------------------- */

/* A tei_rail_ops.message. */
void engine_lease_message(void *arg, struct tei_rail_message *message);

/* Ends all tasks and the thread. The data plane is still there, the workers
 * have left. */
void engine_lease_close(struct engine *e);
/* Behind tei_gpu_fini and tei_rail_dp_close. */
void engine_lease_free(struct engine *e);

#endif /* TEI_API_ENGINE_LEASE_H */
