/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_STRESS_STRESS_H
#define TEI_FABTESTS_STRESS_STRESS_H

/*
 * Random transfers ("moves") between several worker processes, some of which
 * are stopped or killed meanwhile. The test process maps the memory of all
 * workers. It writes the source bytes of each move, and checks the bytes at the
 * destination and around it.
 *
 * The memory of a worker is divided into slots of equal size. A move uses one
 * slot of its initiator and one of its target, at random offsets. A slot that
 * no move uses is free and filled with a constant byte, the poison (FX_POISON).
 */

#include <stdbool.h>
#include <stdint.h>

#include "fabtests/functional/fx_links.h"

#define STRESS_WORKERS	4
#define STRESS_SLOTS	24
#define STRESS_SLOT	FX_MIB	/* size of a slot, bytes */
#define STRESS_MEM	(STRESS_SLOTS * STRESS_SLOT)
#define STRESS_TASKS	16	/* maximum number of tasks per move */
#define STRESS_TIMEOUT_S 4	/* value of MC_SLICE_TIMEOUT in the workers,
				 * s */

/*
 * Runs a worker and returns its exit code. A worker reads commands from stdin,
 * one per line, and writes answers to stdout:
 *
 *	open K NAME	opens the segment NAME, which is that of worker K; the
 *			answer is "open K SEGMENT", where SEGMENT is the id
 *	move ID SEGMENT OP LOCAL REMOTE LEN BLOCK
 *			moves LEN bytes in tasks of BLOCK bytes; the answer is
 *			"done ID STATUSES" with one digit per task, or
 *			"done ID !CODE" if the submission was refused. The error
 *			of the first failed task, or of the submission, follows
 *			on the same line.
 *	cancel ID	cancels a move; this command has no answer
 */
int stress_worker(int argc, char **argv);

enum stress_slot_state {
	STRESS_FREE,	/* not used; all bytes are poison */
	STRESS_USED,	/* used by a move in progress */
	STRESS_LOST,	/* its move has ended unfenced, so bytes may still land
			 * in it */
};

struct stress_slot {
	enum stress_slot_state state;
	/* The members below are valid only in the state STRESS_LOST. */
	uint64_t since;		/* id of the newest move at the time when the
				 * slot was lost */
	unsigned int from;	/* worker that initiated the lost move */
	unsigned int from_life;	/* value of that worker's `life` at that time */
	uint64_t calm_ns;	/* time at which the slot becomes free, because
				 * its initiator is dead; 0 if the initiator is
				 * alive */
};

struct stress_worker {
	struct ft_proc proc;
	struct fx_buf mem;	/* mapping in the test process, except for
				 * `addr`, which is the address in the worker */
	char name[128];		/* name of the worker's segment */
	unsigned int life;	/* number of the worker's current process,
				 * counted from 1 */
	unsigned int rails;	/* bit i is set if the process has rail ri; a
				 * rail that was broken at the start of the
				 * process is missing */
	bool stopped;
	uint64_t wakes_ns;	/* if `stopped` is true: time at which the
				 * process is resumed */
	uint64_t fault_ns;	/* time of the last start, stop or resumption of
				 * the process */
	unsigned int moves;	/* moves in progress whose initiator is this
				 * worker */
	/* The arrays below are indexed by the number of the other worker. */
	int seg[STRESS_WORKERS];	/* id of the other worker's segment, or
					 * 0 if it is not open */
	bool opening[STRESS_WORKERS];	/* the answer to the command "open" has
					 * not arrived yet */
	unsigned int seg_life[STRESS_WORKERS];	/* the other worker's `life`
						 * when "open" was sent */
	struct stress_slot slot[STRESS_SLOTS];
};

/* A move in progress. In the arrays, element 0 belongs to the initiator and
 * element 1 to the target. */
struct stress_move {
	uint64_t id;		/* id of the move; 0 if the entry is unused */
	int op;
	unsigned int worker[2], life[2], slot[2];
	uint64_t off[2];	/* offset of the range in the slot, bytes */
	uint64_t len, block;	/* bytes of the whole move, and of each task but
				 * the last */
	uint64_t begin_ns;
	bool cancel;		/* true if the move is cancelled right after its
				 * submission */
};

#define STRESS_MOVES 24
#define STRESS_EVENTS 16

/* The begin or the end of a fault, printed when a move fails without a
 * cause. */
struct stress_event {
	uint64_t ns;
	char text[56];
};

struct stress {
	uint64_t seed;
	struct stress_worker worker[STRESS_WORKERS];
	struct stress_move move[STRESS_MOVES];
	uint64_t moves;		/* id of the newest move, including those that
				 * could not begin */
	uint64_t faults;	/* number of faults made so far */
	uint64_t next_fault_ns;
	struct stress_event event[STRESS_EVENTS]; /* ring buffer of the newest
						   * events */
	uint64_t events;	/* number of events so far */
	uint64_t halt_ns;	/* if a move takes longer than this although no
				 * fault affected it, all processes are stopped
				 * for a debugger, ns; 0 means never */
	bool links;		/* the workers use two rails, which the test
				 * breaks and repairs */
	bool unresolved;	/* there is no third link for the control
				 * channel: all contact addresses are on rail
				 * 0 */
	unsigned int rail;	/* number of the rail that was broken last */
	uint64_t mend_ns;	/* time at which `rail` is to be repaired; 0 if
				 * no rail is broken */
	uint64_t mended_ns[2];	/* time of the last repair of each rail */
	uint64_t bytes;		/* verified bytes of completed moves */
	uint64_t status[8];	/* numbers of ended tasks, indexed by status */
	uint64_t stops, kills, cuts, refused;
	uint64_t unfenced;	/* number of cancelled moves that ended unfenced
				 * while a rail was broken */
	uint64_t bad, late, unexplained;	/* numbers of errors, which must
						 * stay 0 */
};

/* --- stress_proc.c: the workers ------------------------------------------ */

/* Starts a new process for worker `w`, with fresh memory. If `same_name` is
 * true, the process uses the port of the previous one, and thus has the same
 * segment name. Returns false if the process does not start. */
bool stress_start(struct stress *s, unsigned int w, bool same_name);
/* Waits for answers of the workers for at most `ms` and handles them. Returns
 * false if a worker has ended. */
bool stress_listen(struct stress *s, unsigned int ms);
/* Makes the next fault if it is due. Resumes stopped workers and repairs rails
 * whose time has come. Returns false if a step fails. */
bool stress_fault(struct stress *s);
/* Ends all workers. Returns true if all exit codes are 0. */
bool stress_end(struct stress *s);
/* Prints the newest events, the oldest first. */
void stress_events(const struct stress *s);
/* Stops all workers and this process, until SIGCONT continues this process. */
void stress_halt(struct stress *s);

/* --- stress_move.c: the moves -------------------------------------------- */

/* Begins moves in the unused entries of `move`. Tries at most eight times per
 * call. */
void stress_begin(struct stress *s);
/* Handles the answer "done" of worker `w`: checks the memory of both sides and
 * frees their slots. `why` is the rest of the line, which describes the
 * error. */
void stress_done(struct stress *s, unsigned int w, uint64_t id,
		 const char *statuses, const char *why);
/* Ends the moves that worker `w` has initiated, after its process was killed
 * and its memory unmapped. */
void stress_dead(struct stress *s, unsigned int w);
/* Reports moves that take too long. Frees lost slots in which no byte can land
 * any longer. */
void stress_watch(struct stress *s);
/* Returns true if all bytes of all free slots are poison. */
bool stress_all_poison(struct stress *s);

#endif /* TEI_FABTESTS_STRESS_STRESS_H */
