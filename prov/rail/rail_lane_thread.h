/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_LANE_THREAD_H
#define TEI_PROV_RAIL_RAIL_LANE_THREAD_H

/*
 * Lane threads are additional progress threads (MC_WORKERS_PER_CTX). The
 * progress thread measures the load of the lanes: the time that the polls of
 * each lane take. If the lanes of one thread take most of its time, the
 * progress thread assigns all of them but the busiest to lane threads. A lane
 * thread polls its lanes without a pause. If the load of a lane falls, the lane
 * thread returns the lane to the progress thread. A lane thread is started when
 * a lane is first assigned to it, and sleeps while it has no lanes.
 *
 * A lane thread only polls. It handles messages like a caller of
 * tei_rail_progress_all: it passes user messages to the owner of the data plane
 * and defers all other messages to the progress thread. Only the progress
 * thread runs the state machines of the peers, the fence and the health checks.
 * The progress thread neither polls an assigned lane nor sleeps on its file
 * descriptor.
 */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_lane.h"

struct tei_err;
struct tei_rail_dp;
struct tei_settings;

/* Returns the largest number of progress threads, including the first one.
 * setting: value of MC_WORKERS_PER_CTX; cpus: number of CPUs on which progress
 * threads may run. */
uint32_t rail_lane_threads_most(uint32_t setting, uint32_t cpus);

/* Returns the largest number of tx lanes of a rail, with the extra lanes
 * (conn/rail_width.h). cpus: see rail_lane_threads_most. */
uint32_t rail_lanes_most(const struct tei_settings *settings, uint32_t cpus);

/* Allocates the lane threads of a data plane, but starts none. Sets
 * dp->conf.lanes. Must be called
 * after rail_numa_check and before the progress thread is started. Returns 0 or
 * an error code. */
int rail_lane_threads_open(struct tei_rail_dp *dp, struct tei_err *err);

/* For tests: makes the progress thread assign lanes as soon as two lanes have
 * any load. */
void rail_lane_threads_eager(struct tei_rail_dp *dp);

/* Stops the lane threads, which return their lanes. Must be called when the
 * progress thread has stopped. */
void rail_lane_threads_stop(struct tei_rail_dp *dp);

/* Frees the lane threads. Must be called after rail_lane_threads_stop. */
void rail_lane_threads_close(struct tei_rail_dp *dp);

/*
 * Measures the load of the lanes, at most once in 2 ms, and assigns lanes to
 * lane threads. tx_elsewhere: callers poll the tx lanes, so the progress thread
 * does not carry their load. Returns true if any lane is assigned. Progress
 * thread, no lock held.
 */
bool rail_lane_threads_check(struct tei_rail_dp *dp, bool tx_elsewhere,
			     uint64_t now);

/* Returns true if the lane is assigned to a lane thread. */
static inline bool rail_lane_assigned(const struct rail_lane *lane)
{
	return __atomic_load_n(&lane->load.thread, __ATOMIC_ACQUIRE) != 0;
}

#endif /* TEI_PROV_RAIL_RAIL_LANE_THREAD_H */
