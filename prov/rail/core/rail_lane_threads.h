/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_LANE_THREADS_H
#define TEI_PROV_RAIL_CORE_RAIL_LANE_THREADS_H

/* The structs of the lane threads. Their functions are in rail_lane_thread.h. */

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/world.h"

struct tei_rail_dp;

#define RAIL_LANE_THREADS_MAX	15

/* One lane thread. Allocated when the data plane is opened, and freed when it
 * is closed. */
struct rail_lane_thread {
	struct tei_rail_dp *dp;		/* fixed */
	uint32_t number;		/* fixed: 1 for the first lane thread */
	char name[16];			/* fixed: name of the thread */
	bool running;			/* atomic: the loop was started */
	struct tei_loop loop;
	struct pollfd fds[1];		/* used by the lane thread only: entry 0
					 * of tei_loop_sleep.fds, which the
					 * world fills */
};

/*
 * The lane threads of a data plane. The members "busy" and "full" are shares of
 * the time between two checks, in sixteenths; rail_lane_threads_eager changes
 * them. The members marked "thread" are used only by the progress thread.
 */
struct rail_lane_threads {
	uint32_t room;			/* fixed: number of entries of list */
	bool by_rails;			/* fixed: the number of rails limits the
					 * number of threads */
	uint32_t busy;			/* atomic: a lane is busy if the polls
					 * that moved its data took at least
					 * this share of the time */
	uint32_t full;			/* atomic: lanes are assigned if the
					 * busy lanes of one thread together
					 * take at least this share */
	bool stop;			/* atomic: the lane threads must end */
	uint32_t limit;			/* atomic: number of lane threads to
					 * which lanes may be assigned at
					 * present; if 0, no load is
					 * measured */
	bool failed;			/* thread: a lane thread could not be
					 * started, so no further one is
					 * started */
	uint32_t n;			/* thread: number of lane threads that
					 * were started */
	uint64_t checked_ns;		/* thread: time of the last check, ns */
	struct rail_lane_thread list[];
};

#endif /* TEI_PROV_RAIL_CORE_RAIL_LANE_THREADS_H */
