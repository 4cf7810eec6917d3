/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_WINDOW_H
#define TEI_PROV_RAIL_CORE_RAIL_WINDOW_H

/* The window of a rail, and the measurement of its service rate. */

#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "util/lock.h"

struct rail;

#define RAIL_WINDOW_MAX		(64u << 20)
#define RAIL_WINDOW_FIRST	(1u << 20) /* first window of a rail, bytes:
					    * used until the rate has been
					    * measured */

void rail_window_init(struct rail *rail, uint64_t max);

/* Returns the number of bytes that may be posted on the rail; stuck bytes are
 * not counted. */
uint64_t rail_window(const struct rail *rail);

/*
 * Returns the number of bytes of bulk data that may be posted on a rail while
 * small requests are active. Posts complete in order and connections share the
 * wire, so a small request waits for everything posted before it. The limit
 * therefore applies to the whole rail, and is divided among the connections
 * that use the rail.
 *
 * Two slices of half the usual size are the minimum that keeps a wire busy: the
 * second one is in flight while the first one is acknowledged. So up to about 1
 * Gbit/s a small request waits for at most one slice of MC_SLICE_SIZE. On a
 * faster rail a small request waits for half a millisecond, or with
 * MOONRAIL_SMALL_FIRST for a quarter of a millisecond. The round-trip time is
 * added.
 *
 * Returns UINT64_MAX (no limit) on loopback, on networks other than IP, and
 * while the rate is unknown.
 */
uint64_t rail_window_throttle(const struct rail *rail);

/* Return the number of bytes that are posted on the rail and not stuck:
 * rail_window_held counts all data, rail_window_bulk only bulk data. */
uint64_t rail_window_held(const struct rail *rail);
uint64_t rail_window_bulk(const struct rail *rail)
	TEI_REQUIRES(rail_sched_held);

/* Updates the rail's service rate and its window after bytes have completed. */
void rail_window_measure(struct rail_lane *lane, uint64_t bytes, uint64_t now)
	TEI_REQUIRES(lane->lock);

/* rail_window_begin records that a slice was posted on an idle lane.
 * rail_window_alone records the time in which this slice has completed. */
void rail_window_begin(struct rail_lane *lane, struct rail_slice *slice,
		       uint64_t now) TEI_REQUIRES(lane->lock);
void rail_window_alone(struct rail_lane *lane, uint64_t now)
	TEI_REQUIRES(lane->lock);

/* Records that no slice is posted on the lane any longer. */
void rail_window_empty(struct rail_lane *lane) TEI_REQUIRES(lane->lock);

#endif /* TEI_PROV_RAIL_CORE_RAIL_WINDOW_H */
