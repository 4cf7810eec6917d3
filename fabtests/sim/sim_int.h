/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_INT_H
#define TEI_FABTESTS_SIM_SIM_INT_H

/* What the files of the simulator's core share. */

#include "fabtests/sim/sim.h"
#include "util/list.h"

/* The number of watchers of the hosts' states. */
#define SIM_WATCHERS	4

/* One machine with one process. Made by sim_begin, freed by sim_end. */
struct sim_host {
	uint32_t id;
	uint32_t life;			/* number of restarts */
	bool stopped;
	bool killed;
	struct sim_rng random;		/* numbers for the library */
	uint64_t jumped_ns;		/* sum of the jumps of its clock */
	struct tei_list held;		/* list of sim_event.link: events that wait
					 * for the end of a stop */
};

/* One pending event. Made by sim_at, freed when it has run or is dropped. */
struct sim_event {
	uint64_t when_ns;
	uint64_t seq;			/* order among events of one time */
	sim_event_fn fn;
	void *arg;
	struct sim_host *host;		/* NULL: an event of the network */
	uint32_t life;			/* the host's life when it was made */
	uint32_t slot;			/* place in the table of events */
	size_t place;			/* place in the heap; SIZE_MAX: held */
	struct tei_list link;
};

/* --- sim_event.c --- */

void sim_event_begin(void);
void sim_event_end(void);
/* Puts the events that a host has held into the queue, in their order. */
void sim_event_release(struct sim_host *host);
/* Drops the events that a killed host has held. */
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
