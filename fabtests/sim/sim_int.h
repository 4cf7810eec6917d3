/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_INT_H
#define TEI_FABTESTS_SIM_SIM_INT_H

/* Declarations that the files of the simulator's core share. */

#include "fabtests/sim/sim.h"
#include "util/list.h"

/* maximum number of functions that sim_host_watch can add */
#define SIM_WATCHERS	4

/* One simulated machine with one process. sim_begin creates it, sim_end frees
 * it. */
struct sim_host {
	uint32_t id;
	uint32_t life;			/* number of the host's present life */
	bool stopped;
	bool killed;
	struct sim_rng random;		/* random stream of the library on this
					 * host */
	uint64_t jumped_ns;		/* time by which the clock has jumped
					 * forward so far, ns */
	struct tei_list held;		/* list of sim_event.link: events that
					 * wait until the stopped host is
					 * resumed */
};

/* A pending event. sim_at or sim_at_host creates it. It is freed when it runs
 * or is dropped. */
struct sim_event {
	uint64_t when_ns;
	uint64_t seq;			/* sequence number, which orders events
					 * of the same time */
	sim_event_fn fn;
	void *arg;
	struct sim_host *host;		/* NULL: the event belongs to the
					 * network or to the plan of faults */
	uint32_t life;			/* number of the host's life in which
					 * the event was added */
	uint32_t slot;			/* index in the table of events */
	/* the event's place in the heap: its first child and its next sibling,
	 * and its previous sibling or, for a first child, its parent; NULL
	 * stands for none */
	struct sim_event *child, *next, *prev;
	struct tei_list link;		/* in the list `held` of a stopped host,
					 * or unlinked */
};

/* --- sim_event.c --- */

void sim_event_begin(void);
void sim_event_end(void);
/* Moves the events in `held` of a resumed host back into the heap, in the same
 * order. */
void sim_event_release(struct sim_host *host);
/* Frees the events in `held` of a host that was killed or ends. */
void sim_event_drop(struct sim_host *host);

/* --- sim_fiber.c --- */

void sim_fiber_begin(void);
void sim_fiber_end(void);
/* Frees the fibers of a killed process. */
void sim_fiber_drop(struct sim_host *host);

/* --- sim_host.c --- */

void sim_host_begin(uint32_t hosts);
void sim_host_end(void);

/* --- sim_trace.c --- */

void sim_trace_begin(void);

#endif /* TEI_FABTESTS_SIM_SIM_INT_H */
