/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_STRESS_STRESS_H
#define TEI_FABTESTS_STRESS_STRESS_H

/*
 * Random moves between several worker processes, some of which are stopped or
 * killed meanwhile. The test maps the memory of all workers. It writes every
 * byte that is moved and checks every byte that arrives.
 *
 * A worker's memory is divided into slots. A free slot holds only poison. Each
 * move uses one slot on either side, at random offsets.
 */

#include <stdbool.h>
#include <stdint.h>

#include "fabtests/functional/fx_links.h"

#define STRESS_WORKERS	4
#define STRESS_SLOTS	24
#define STRESS_SLOT	FX_MIB	/* size of a slot, bytes */
#define STRESS_MEM	(STRESS_SLOTS * STRESS_SLOT)
#define STRESS_TASKS	16	/* maximum of tasks per move */
#define STRESS_TIMEOUT_S 4	/* MC_SLICE_TIMEOUT, s */

/*
 * Runs a worker and returns its exit code. A worker reads commands from stdin,
 * one per line:
 *
 *	open K NAME	opens the segment of worker K; the answer is
 *			"open K SEGMENT"
 *	move ID SEGMENT OP LOCAL REMOTE LEN BLOCK
 *			moves bytes; the answer is "done ID STATUSES" with one
 *			digit per task, or "done ID !CODE" if the submission was
 *			refused, followed by the error of the first failed task
 *	cancel ID	cancels a move; there is no answer
 */
int stress_worker(int argc, char **argv);

enum stress_slot_state {
	STRESS_FREE,	/* only poison */
	STRESS_USED,	/* used by a move */
	STRESS_LOST,	/* bytes of an unfenced move may still land in it */
};

struct stress_slot {
	enum stress_slot_state state;
	/* Only for STRESS_LOST: */
	uint64_t since;		/* id of the newest move when it was lost */
	unsigned int from;	/* worker that initiated the move, */
	unsigned int from_life;	/* and the life of that worker */
	uint64_t calm_ns;	/* time from which the slot is free, because the
				 * initiator is dead; 0 if it is not dead */
};

struct stress_worker {
	struct ft_proc proc;
	struct fx_buf mem;	/* the test's mapping; addr is the worker's */
	char name[128];		/* segment name */
	unsigned int life;	/* number of processes started so far */
	unsigned int rails;	/* bit i is set if the process started with rail
				 * ri, which may have been broken then */
	bool stopped;
	uint64_t wakes_ns;	/* time at which the stop ends */
	uint64_t fault_ns;	/* time of the last start, stop or resumption */
	unsigned int moves;	/* moves in progress that it initiated */
	/* By the index of the other worker: */
	int seg[STRESS_WORKERS];	/* open segment, or 0 */
	bool opening[STRESS_WORKERS];	/* an open command is in progress */
	unsigned int seg_life[STRESS_WORKERS];	/* life of the other worker */
	struct stress_slot slot[STRESS_SLOTS];
};

/* A move. In the arrays, element 0 is the initiator's and 1 the target's. */
struct stress_move {
	uint64_t id;		/* 0 if the entry is unused */
	int op;
	unsigned int worker[2], life[2], slot[2];
	uint64_t off[2];	/* offset in the slot */
	uint64_t len, block;	/* bytes of all tasks, and of each */
	uint64_t begin_ns;
	bool cancel;		/* cancelled right after the submission */
};

#define STRESS_MOVES 24
#define STRESS_EVENTS 16

/* The begin or the end of a fault, for the diagnostics. */
struct stress_event {
	uint64_t ns;
	char text[56];
};

struct stress {
	uint64_t seed;
	struct stress_worker worker[STRESS_WORKERS];
	struct stress_move move[STRESS_MOVES];
	uint64_t moves;		/* id of the newest move; some never began */
	uint64_t faults;	/* faults made so far */
	uint64_t next_fault_ns;
	struct stress_event event[STRESS_EVENTS]; /* ring of the newest */
	uint64_t events;	/* events so far */
	uint64_t halt_ns;	/* if a move without a fault takes longer than
				 * this, all processes are stopped for a
				 * debugger, ns; 0 means never */
	bool links;		/* the workers use two rails that break */
	bool unresolved;	/* no control link: rail 0 has all contact
				 * addresses */
	unsigned int rail;	/* number of the broken rail */
	uint64_t mend_ns;	/* time of its repair; if 0, no rail is
				 * broken */
	uint64_t mended_ns[2];	/* time of the last repair of each rail */
	uint64_t bytes;		/* verified bytes of completed moves */
	uint64_t status[8];	/* number of tasks by status */
	uint64_t stops, kills, cuts, refused;
	uint64_t unfenced;	/* cancelled moves that ended unfenced while a
				 * rail was broken */
	uint64_t bad, late, unexplained;	/* errors: must stay 0 */
};

/* --- stress_proc.c: the workers ------------------------------------------ */

/* Starts worker w with fresh memory. same_name: at the port of its predecessor,
 * so that it has the same segment name. */
bool stress_start(struct stress *s, unsigned int w, bool same_name);
/* Handles the answers of all workers, and waits for ms at most. Returns false
 * if a worker has ended. */
bool stress_listen(struct stress *s, unsigned int ms);
/* Makes the next fault if it is due, resumes stopped workers and repairs rails.
 * Returns false if a step fails. */
bool stress_fault(struct stress *s);
/* Ends all workers. Returns true if all exit codes are 0. */
bool stress_end(struct stress *s);
/* Prints the newest events, the oldest first. */
void stress_events(const struct stress *s);
/* Stops all workers and this process, until SIGCONT continues this process. */
void stress_halt(struct stress *s);

/* --- stress_move.c: the moves -------------------------------------------- */

/* Begins moves while there is room. */
void stress_begin(struct stress *s);
/* Handles the answer "done" of worker w: checks the memory of both sides and
 * frees the slots. why: the rest of the answer. */
void stress_done(struct stress *s, unsigned int w, uint64_t id,
		 const char *statuses, const char *why);
/* Ends the moves of worker w, whose process is dead and whose memory is
 * unmapped. */
void stress_dead(struct stress *s, unsigned int w);
/* Reports moves that take too long, and frees lost slots if they are safe. */
void stress_watch(struct stress *s);
/* Returns true if all free slots hold only poison. */
bool stress_all_poison(struct stress *s);

#endif /* TEI_FABTESTS_STRESS_STRESS_H */
