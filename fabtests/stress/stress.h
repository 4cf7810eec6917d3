/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_STRESS_STRESS_H
#define TEI_FABTESTS_STRESS_STRESS_H

/*
 * Random moves between several processes, some of which are stopped or killed
 * meanwhile. The test maps the memory of all workers: it makes every byte that
 * is moved and looks at every byte that arrives.
 *
 * A worker's memory is cut into slots. A free slot is all poison. A move takes
 * a slot on each side and goes from any offset to any other.
 */

#include <stdbool.h>
#include <stdint.h>

#include "fabtests/functional/fx_links.h"

#define STRESS_WORKERS	4
#define STRESS_SLOTS	24
#define STRESS_SLOT	FX_MIB
#define STRESS_MEM	(STRESS_SLOTS * STRESS_SLOT)
#define STRESS_TASKS	16	/* of a move, at most */
#define STRESS_TIMEOUT_S 4	/* MC_SLICE_TIMEOUT */

/*
 * A worker obeys lines on stdin: "open K NAME" is answered by "open K SEGMENT",
 * "move ID SEGMENT OP LOCAL REMOTE LEN BLOCK" by "done ID STATUSES" with a digit
 * for each task, or "done ID !CODE", and where one failed why; "cancel ID" by
 * nothing.
 */
int stress_worker(int argc, char **argv);

enum stress_slot_state {
	STRESS_FREE,	/* all poison */
	STRESS_USED,	/* by a move */
	STRESS_LOST,	/* what was given up may still land there */
};

struct stress_slot {
	enum stress_slot_state state;
	uint64_t since;		/* lost: number of the last move by then */
	unsigned int from;	/* lost: the worker who wrote, */
	unsigned int from_life;	/* and which process it was */
	uint64_t calm_ns;	/* lost: its writer is dead; free from then on */
};

struct stress_worker {
	struct ft_proc proc;
	struct fx_buf mem;	/* the test's mapping; addr is the worker's */
	char name[128];
	unsigned int life;	/* counts its processes */
	unsigned int rails;	/* bits of r0 and r1: those that it has, since
				 * one may be broken when it starts */
	bool stopped;
	uint64_t wakes_ns;	/* when a stop ends */
	uint64_t fault_ns;	/* the last stop, kill or end of a stop */
	unsigned int moves;	/* that it has under way */
	int seg[STRESS_WORKERS];	/* of others, 0: none */
	bool opening[STRESS_WORKERS];
	unsigned int seg_life[STRESS_WORKERS];
	struct stress_slot slot[STRESS_SLOTS];
};

/* One move; on side 0 is the initiator. */
struct stress_move {
	uint64_t id;		/* 0: unused */
	int op;
	unsigned int worker[2], life[2], slot[2];
	uint64_t off[2];	/* in the slot */
	uint64_t len, block;
	uint64_t begin_ns;
	bool cancel;
};

#define STRESS_MOVES 24
#define STRESS_EVENTS 16

/* A fault that was made, or its end. */
struct stress_event {
	uint64_t ns;
	char text[56];
};

struct stress {
	uint64_t seed;
	struct stress_worker worker[STRESS_WORKERS];
	struct stress_move move[STRESS_MOVES];
	uint64_t moves;		/* begun */
	uint64_t faults;	/* made */
	uint64_t next_fault_ns;
	struct stress_event event[STRESS_EVENTS]; /* the newest, in a ring */
	uint64_t events;	/* ever */
	uint64_t halt_ns;	/* a move that nobody disturbs for so long stops
				 * all for a debugger; 0: none does */
	bool links;		/* on two rails that break */
	bool bare;		/* the first has the first addresses */
	unsigned int rail;	/* that is broken, */
	uint64_t mend_ns;	/* until then; 0: none is */
	uint64_t mended_ns[2];	/* when each was mended last */
	uint64_t bytes;
	uint64_t status[8];	/* tasks by status */
	uint64_t stops, kills, cuts, refused;
	uint64_t unfenced;	/* moves canceled beside a broken rail */
	uint64_t bad, late, unexplained;	/* what must not be */
};

/* --- stress_proc.c: the workers ------------------------------------------ */

bool stress_start(struct stress *s, unsigned int w, bool same_name);
/* Answers of all workers, waiting for ms at most; false: one has ended. */
bool stress_listen(struct stress *s, unsigned int ms);
/* The next fault where it is time for it; ends stops and mends rails. */
bool stress_fault(struct stress *s);
bool stress_end(struct stress *s);
/* The newest faults, the oldest first. */
void stress_events(const struct stress *s);
/* Stops all workers and waits until somebody continues the test. */
void stress_halt(struct stress *s);

/* --- stress_move.c: what they do ----------------------------------------- */

/* Begins moves while there is room. */
void stress_begin(struct stress *s);
void stress_done(struct stress *s, unsigned int w, uint64_t id,
		 const char *statuses, const char *why);
/* The worker's process is dead; its memory is gone with it. */
void stress_dead(struct stress *s, unsigned int w);
/* Moves that have been under way for too long; slots that may be used again. */
void stress_watch(struct stress *s);
/* All that is free is poison. */
bool stress_all_poison(struct stress *s);

#endif /* TEI_FABTESTS_STRESS_STRESS_H */
