/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_WIDTH_H
#define TEI_PROV_RAIL_CONN_RAIL_WIDTH_H

/*
 * The width of a rail pair: the number of connections over which bulk data goes
 * from one local rail to one remote rail.
 *
 * One TCP connection may carry less than the network between two rails: a
 * router may limit each flow, and a round-trip time limits what one congestion
 * window carries. So bulk data may use several connections, each on a tx lane
 * of its own. Small requests and messages use only the first nbase lanes
 * (struct rail). The lanes after them are the extra lanes. They carry nothing
 * but bulk data. They are opened when a pair needs them, and closed when no
 * pair has needed them for a while.
 *
 * The width is measured, not configured. While bulk data flows without a pause,
 * struct rail_width_ctl compares the rate of the pair at its width with the
 * rate at the next larger or smaller width. It keeps a larger width only if the
 * rate rises clearly, and a smaller one if the rate stays the same. After each
 * trial without success it waits twice as long as before. When the load has
 * ended, or a connection has failed, the width returns to its minimum. A
 * connection on an extra lane also counts as failed if it is not established
 * within RAIL_WIDTH_JOIN_NS, or if the provider refuses a post on it. The rail
 * pair does not become faulty then, because its connections on the base lanes
 * still work.
 *
 * A fence closes the rx lane of the target, and so all connections of the pair.
 * So a fence and a retry need no knowledge of the width.
 */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

struct rail;
struct rail_conn;
struct rail_lane;
struct rail_slice;

/* A measuring interval lasts at least RAIL_WIDTH_NS, and bulk data of at least
 * RAIL_WIDTH_BYTES completes in it. */
#define RAIL_WIDTH_NS		(100 * TEI_NS_PER_MS)
#define RAIL_WIDTH_BYTES	(UINT64_C(32) << 20)
/* After a change of the width, the first interval lasts at least
 * RAIL_WIDTH_SETTLE_NS and is not evaluated: a new connection starts slowly. */
#define RAIL_WIDTH_SETTLE_NS	(400 * TEI_NS_PER_MS)
/* A new connection must carry its first slice within this time. It may need a
 * new lane. */
#define RAIL_WIDTH_JOIN_NS	(3 * TEI_NS_PER_SEC)
/* If the load pauses for more than RAIL_WIDTH_GAP_NS, the current trial ends
 * without success. A pause of more than RAIL_WIDTH_IDLE_NS ends the load. */
#define RAIL_WIDTH_GAP_NS	(20 * TEI_NS_PER_MS)
#define RAIL_WIDTH_IDLE_NS	TEI_NS_PER_SEC
/* Time after which an extra lane that is not in use is closed. */
#define RAIL_WIDTH_SPARE_NS	(5 * TEI_NS_PER_SEC)
/* Number of intervals before the first trial, and the largest number of
 * intervals between two trials. */
#define RAIL_WIDTH_WAIT		8u
#define RAIL_WIDTH_WAIT_MAX	512u

/*
 * Chooses the width of one pair. Depends only on the arguments of the functions
 * below, so that a test can drive it with times and rates of its own. All times
 * are in ns.
 */
struct rail_width_ctl {
	uint32_t least, most;		/* limits of the width */
	uint32_t n;			/* the width */
	uint32_t from;			/* width before the current trial */
	bool trial;			/* n is on trial */
	bool settle;			/* the current interval will not be
					 * evaluated */
	bool fewer;			/* the next trial, or the current one,
					 * reduces the width */
	bool joined;			/* the new connection of the current
					 * trial has carried a slice */
	uint64_t since_ns;		/* start of the current interval; 0 if
					 * there is none */
	uint64_t served;		/* bytes completed in the current
					 * interval */
	uint64_t last_ns;		/* time of the last completion */
	uint64_t rate[2];		/* rates of the last two intervals at
					 * the width before a trial, bytes/s,
					 * the newer one first */
	uint64_t trial_rate;		/* rate of the first evaluated interval
					 * of the current trial, bytes/s; 0 if
					 * there is none yet */
	uint32_t known;			/* number of valid entries of "rate" */
	uint32_t wait;			/* intervals before the next trial */
	uint32_t backoff;		/* number of intervals to wait after a
					 * trial; doubles with each trial
					 * without success */
};

void rail_width_ctl_init(struct rail_width_ctl *ctl, uint32_t least,
			 uint32_t most);
/* Reports that bulk data is posted on a pair that had none in flight. */
void rail_width_ctl_begin(struct rail_width_ctl *ctl, uint64_t now);
/* Reports that bytes of bulk data have completed on the lane with that
 * number. */
void rail_width_ctl_served(struct rail_width_ctl *ctl, uint64_t bytes,
			   uint32_t lane, uint64_t now);
/* Reports that a connection of the pair has failed. */
void rail_width_ctl_failed(struct rail_width_ctl *ctl);
/* Resets the width if the load has ended. The pair has no bulk data in
 * flight. */
void rail_width_ctl_idle(struct rail_width_ctl *ctl, uint64_t now);

/*
 * The width of one rail pair, and the sums of the slices in flight on its
 * connections. Owned by the peer, and pointed to by all connections of the
 * pair. Guarded by dp->sched.
 */
struct rail_width {
	struct tei_rail_peer *peer;	/* fixed */
	struct rail *rail;		/* fixed */
	struct tei_list link;		/* in dp->tasks.wide, or unlinked */
	struct rail_width_ctl ctl;
	uint64_t bytes;			/* payload of the slices in flight */
	uint32_t bulk;			/* number of bulk slices in flight */
};

/* Returns true if the rail may have extra lanes: its transport is tcp, and its
 * endpoint caches have places for their connections. */
bool rail_width_fits(const struct rail *rail);

/* Returns the width of a new pair, or NULL if memory is short. rail_width_free
 * frees it; width may be NULL. */
struct rail_width *rail_width_new(struct tei_rail_peer *peer, struct rail *rail)
	TEI_REQUIRES(rail_sched_held);
void rail_width_free(struct rail_width *width) TEI_REQUIRES(rail_sched_held);

/* Returns true if the lane is an extra lane. */
bool rail_width_extra(const struct rail_lane *lane);
/* Returns true if bulk data may use the connection of this lane. */
bool rail_width_covers(const struct rail_conn *conn,
		       const struct rail_lane *lane)
	TEI_REQUIRES(rail_sched_held);

/* rail_width_take counts a slice that was cut for the connection, and
 * rail_width_put removes it from the count. */
void rail_width_take(struct rail_width *width, const struct rail_slice *slice)
	TEI_REQUIRES(rail_sched_held);
void rail_width_put(struct rail_width *width, const struct rail_slice *slice)
	TEI_REQUIRES(rail_sched_held);
/* Reports a slice of the pair that has completed, or has failed. width may be
 * NULL. */
void rail_width_served(struct rail_width *width, const struct rail_slice *slice,
		       uint64_t now) TEI_REQUIRES(rail_sched_held);
void rail_width_failed(struct rail_width *width) TEI_REQUIRES(rail_sched_held);
/* Resets the widths of the pairs whose load has ended. Returns true if pairs
 * remain whose width must be reset later. */
bool rail_width_tidy(struct tei_rail_dp *dp, uint64_t now)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_CONN_RAIL_WIDTH_H */
