/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_TIMING_H
#define TEI_PROV_RAIL_CORE_RAIL_TIMING_H

/*
 * The constants of failure detection: when a pair of rails, a lane or a peer is
 * checked, probed, renewed or presumed dead. Times are in nanoseconds unless
 * the name ends in _MS.
 */

#include "util/clock.h"

/* --- Checks of rail pairs (health/rail_health.c) */

/* Time without a completion after which a pair is checked. */
#define RAIL_STALL_NS			(40 * TEI_NS_PER_MS)
/* Interval of the checks of rail pairs. */
#define RAIL_HEALTH_NS			(10 * TEI_NS_PER_MS)

/* --- Stalls: when a pair without completions is judged
 * (health/rail_stall.c) */

/* Shortest and longest time that a pair may make no progress after the peer's
 * sign of life. */
#define RAIL_STALL_GRACE_NS		(40 * TEI_NS_PER_MS)
#define RAIL_STALL_GRACE_MAX		(150 * TEI_NS_PER_MS)
/* A pair is judged only after this number of checks have found no progress. */
#define RAIL_STALL_LOOKS		3
/* Maximum age of a sign of life of the peer's kernel; a delayed
 * acknowledgement takes 40 ms. */
#define RAIL_STALL_HEARD_MS		45
#define RAIL_STALL_HEARD_NS		(RAIL_STALL_HEARD_MS * TEI_NS_PER_MS)
/* Maximum number of attempts to send a ping over the suspect pair. */
#define RAIL_STALL_ASKS			8u
/* Number of unanswered pings after which connections are checked for signs of
 * life. */
#define RAIL_STALL_SILENT_TRIES		3u
/* Signs of life of the peer's kernel delay the judgement for at most this time.
 * If opening a lane is slow, the limit is the time of RAIL_STALL_OPENS
 * openings. */
#define RAIL_STALL_DOUBT_NS		(3 * TEI_NS_PER_SEC)
#define RAIL_STALL_OPENS		8

/* --- Faults: cutting and the ramp-up (health/rail_health.c) */

/* A ramp-up begins with RAIL_HEALTH_SHARE bytes in flight. If there is no
 * traffic, the ramp-up ends after RAIL_HEALTH_RAMP_NS. */
#define RAIL_HEALTH_SHARE		(512u << 10)
#define RAIL_HEALTH_RAMP_NS		TEI_NS_PER_SEC
/* Time in which cut connections must return their slices: RAIL_HEALTH_CUT_NS,
 * plus RAIL_HEALTH_CUT_MORE_NS for each pair. */
#define RAIL_HEALTH_CUT_NS		(30 * TEI_NS_PER_MS)
#define RAIL_HEALTH_CUT_MORE_NS		(2 * TEI_NS_PER_MS)
/* When a lane is renewed because of one pair: time in which the slices of other
 * pairs on the old lane may still complete. */
#define RAIL_HEALTH_DRAIN_NS		(20 * TEI_NS_PER_MS)
/* After a pair went DOWN: time in which another pair of the rail that has
 * slices posted must make progress. Otherwise the whole rail is DOWN. */
#define RAIL_HEALTH_OTHERS_NS		(20 * TEI_NS_PER_MS)
/* A contended connection is cut after RAIL_HEALTH_IN_THE_WAY_NS of silence and
 * RAIL_HEALTH_ASKS pings, if the peer's TCP stack has acknowledged nothing for
 * RAIL_HEALTH_STILL_NS. */
#define RAIL_HEALTH_IN_THE_WAY_NS	(600 * TEI_NS_PER_MS)
#define RAIL_HEALTH_STILL_NS		(400 * TEI_NS_PER_MS)
#define RAIL_HEALTH_ASKS		2
/* Interval of the checks that send and evaluate probes. */
#define RAIL_HEALTH_PROBE_NS		TEI_NS_PER_MS

/* --- Probes of pairs that are DOWN (health/rail_probe.c) */

/* Duration of a round of probes. */
#define RAIL_PROBE_ROUND_NS		(150 * TEI_NS_PER_MS)
/* Each unanswered probe of a pair makes the next round longer by this time, up
 * to seven times. */
#define RAIL_PROBE_LONGER_NS		(50 * TEI_NS_PER_MS)
/* RAIL_PROBE_POLL_NS: interval of polls of the probe endpoint.
 * RAIL_PROBE_MIN_NS, RAIL_PROBE_MAX_NS: shortest and longest pause between two
 * rounds. */
#define RAIL_PROBE_POLL_NS		TEI_NS_PER_MS
#define RAIL_PROBE_MIN_NS		(10 * TEI_NS_PER_MS)
#define RAIL_PROBE_MAX_NS		(250 * TEI_NS_PER_MS)
/* If opening an endpoint is slow, the longest pause is the time of this number
 * of openings. */
#define RAIL_PROBE_OPENS		3
/* Longest pause if posts keep failing although probes succeed; see
 * probe_backoff. */
#define RAIL_PROBE_RARELY_NS		(5 * TEI_NS_PER_SEC)

/* --- Renewal of tx lanes because of stuck connections (health/rail_renew.c) */

/* A connection that is not established after RAIL_RENEW_STUCK_NS is stuck. RDMA
 * devices have a connection manager, which needs longer; their limit is
 * RAIL_RENEW_STUCK_NIC_NS. If opening a lane is slow, the limit is the time of
 * RAIL_RENEW_STUCK_OPENS openings. */
#define RAIL_RENEW_STUCK_NS		(400 * TEI_NS_PER_MS)
#define RAIL_RENEW_STUCK_NIC_NS		(4000 * TEI_NS_PER_MS)
/* Longest wait for an answer of a process whose kernel has accepted the
 * connection. */
#define RAIL_RENEW_ANSWER_NS		(4000 * TEI_NS_PER_MS)
/* The interval between new lanes for one peer is doubled after each of the
 * first RAIL_RENEW_STUCK_TRIES new lanes. */
#define RAIL_RENEW_STUCK_TRIES		4
/* Shortest time between two new lanes of a rail while the old lane serves
 * other peers. A peer counts as served if its last sign of life is at most
 * RAIL_RENEW_SERVES_NS old. */
#define RAIL_RENEW_SPACE_NS		(15 * TEI_NS_PER_SEC)
#define RAIL_RENEW_SERVES_NS		TEI_NS_PER_SEC
/* Shortest time between two new lanes of a rail if the peer to be connected is
 * alive: its last sign of life is at most RAIL_RENEW_LIVES_NS old. */
#define RAIL_RENEW_LIVES_NS		(2 * TEI_NS_PER_SEC)
#define RAIL_RENEW_LIVES_SPACE_NS	TEI_NS_PER_SEC
/* RAIL_RENEW_SILENT_NS: silence of a peer before its connections are checked,
 * about two TCP retransmissions. RAIL_RENEW_SILENT_LOOK_NS: shortest interval
 * of the checks for one peer. All checks together use at most one
 * RAIL_RENEW_SILENT_PART-th of the progress thread's time. */
#define RAIL_RENEW_SILENT_NS		(600 * TEI_NS_PER_MS)
#define RAIL_RENEW_SILENT_LOOK_NS	(100 * TEI_NS_PER_MS)
#define RAIL_RENEW_SILENT_PART		8
/* After this number of new lanes without success, the network is assumed to be
 * at fault. */
#define RAIL_RENEW_HOPELESS		2u
#define RAIL_RENEW_STUCK_OPENS		4

/* --- Links (health/rail_link.c) */

/* Interval of the checks of links that are down. */
#define RAIL_LINK_AGAIN_NS		(100 * TEI_NS_PER_MS)
/* Interval of the checks for changed devices, if there is no netlink socket. */
#define RAIL_LINK_DEVICES_NS		(5 * TEI_NS_PER_SEC)

/* --- Peers that are presumed dead (peer/rail_presume.c) */

/* Duration of a peer's silence before it is checked for the first time. */
#define RAIL_PRESUME_WAIT_NS		(200 * TEI_NS_PER_MS)
/* Pause between two checks of a peer. */
#define RAIL_PRESUME_AGAIN_NS		(100 * TEI_NS_PER_MS)
/* Pause between two checks while the peer's control port does not refuse
 * connections. */
#define RAIL_PRESUME_RARELY_NS		TEI_NS_PER_SEC
/* Longest wait until one port of the peer accepts or refuses a connection. */
#define RAIL_PRESUME_DOOR_NS		(100 * TEI_NS_PER_MS)

/* --- Unanswered hellos and requests (peer/rail_ctl.c) */

/* RAIL_CTL_UNANSWERED_NS: time without an answer after which the peer's address
 * is resolved again. RAIL_CTL_RESOLVE_NS: shortest interval of these
 * resolutions. */
#define RAIL_CTL_UNANSWERED_NS		(200 * TEI_NS_PER_MS)
#define RAIL_CTL_RESOLVE_NS		TEI_NS_PER_SEC

#endif /* TEI_PROV_RAIL_CORE_RAIL_TIMING_H */
