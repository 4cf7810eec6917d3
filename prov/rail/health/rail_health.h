/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_HEALTH_RAIL_HEALTH_H
#define TEI_PROV_RAIL_HEALTH_RAIL_HEALTH_H

/*
 * Faults of rail pairs.
 *
 * A rail pair is one local rail and one rail of a peer. A fault object exists
 * from the moment when a pair looks broken until the pair carries its full
 * share of the data again. While nothing fails there are no fault objects and
 * no cost.
 *
 * Stages:
 *
 *	ASKED	 Slices are posted, and none has completed for RAIL_STALL_NS.
 *		 The peer is pinged over the other rails, to learn whether it is
 *		 alive, and over this pair, to see whether its TCP stack still
 *		 acknowledges what this pair sends.
 *	SUSPECT	 The peer is alive, but this pair makes no progress. The pair
 *		 gets no new slices.
 *	DOWN	 The stall continued, a completion reported an error, or the
 *		 link is down. The connection is cut, so that posted slices
 *		 return with an error and wait for a fence (rail_fence.c). The
 *		 pair is probed with exponential back-off.
 *	RAMPING	 A probe was answered. The pair carries a share that doubles
 *		 until it is full.
 *
 * While a pair is SUSPECT, DOWN or RAMPING, its local rail is routed to another
 * rail of the peer if one is reachable (rail_conn.c).
 *
 * If a peer is silent on all rails, no single rail is at fault: the slices for
 * this peer stay posted until their deadline. Many error completions of one
 * pair make one fault.
 *
 * A probe is a message over a new endpoint, because an old connection may be
 * waiting for its retransmission timer although the wire works again. The probe
 * arrives only if both directions of the pair work; the answer may use any
 * rail.
 *
 * Locking: fault objects are guarded by dp->sched. Any thread creates them. The
 * progress thread frees them, and so does any thread that evicts their peer; so
 * a fault is looked up again after dp->sched was released. Any thread may move
 * a pair to DOWN. Only the progress thread makes the other changes of stage.
 */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_timing.h"
#include "util/clock.h"
#include "util/lock.h"

struct rail;
struct rail_disconnect_list;
struct rail_fault;
struct rail_lane;
struct rail_slice;
struct rail_wire;

/* --- rail_health.c ------------------------------------------------------- */
/* Creates a fault in stage ASKED, or moves a fault from stage RAMPING back to
 * ASKED, and returns the fault. Returns NULL if the pair has a fault in another
 * stage, if the peer is GONE, if the remote rail is only a hint, if the data
 * plane is being closed, or if memory is short. */
struct rail_fault *rail_health_ask(struct tei_rail_peer *peer,
				   struct rail *rail, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);
/* Moves the pair to stage DOWN because of an error, or because the checks have
 * found that posted operations do not complete. why: constant string for the
 * log. cut: true if the progress thread must also cut the pair's connections.
 * Any thread. */
void rail_health_down(struct tei_rail_peer *peer, struct rail *rail,
		      uint16_t remote, const char *why, bool cut)
	TEI_REQUIRES(rail_sched_held);
/* Handles an error completion of a slice: moves the slice's pair to DOWN if the
 * error may come from the wire. */
void rail_health_error(struct rail_slice *slice, int err)
	TEI_REQUIRES(rail_sched_held);
/* Handles that the provider has refused to post a slice or message, with the
 * error err, so that none of its bytes was sent. Returns true if err means that
 * the wire is broken (no route, link down): the pair is then DOWN, and the
 * attempt does not count as a retry. Returns false if err is local (no memory,
 * no file descriptors). If posts keep failing although probes are answered,
 * probing backs off. */
bool rail_health_refused(struct tei_rail_peer *peer, struct rail *rail,
			 uint16_t remote, int err)
	TEI_REQUIRES(rail_sched_held);
/* Frees all faults of the peer. Must be called when the peer is gone, and
 * before its remote rails get other indexes. */
void rail_health_forget(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Runs all checks that are due. Is called on the progress thread in every
 * iteration, without a lock held, and costs little if nothing is due. Returns
 * the time at which it must be called again, ns, or 0 if it need not be. */
uint64_t rail_health_run(struct tei_rail_dp *dp, uint64_t now);
/* Makes the slices that are posted on the pair return with an error: cuts the
 * pair's connections and, if the slices do not return in time, renews the tx
 * lanes. shuns: true if the connections are cut because of the peer, so that
 * the errors do not count as a fault of the pair. Progress thread, no lock
 * held. */
void rail_health_cut(struct tei_rail_peer *peer, struct rail *rail,
		     uint16_t remote, bool shuns);
/* Activates the rail's newly opened lanes and lets them take slices. Returns
 * what rail_reopen_collect returns. Progress thread, no lock held. */
uint32_t rail_health_collect(struct rail *rail);
/* Derives the rail's published state from the state of the link and from the
 * faults of the rail's pairs, and logs a change. */
void rail_health_state(struct rail *rail) TEI_REQUIRES(rail_sched_held);

/* --- rail_stall.c -------------------------------------------------------- */
/* Creates faults for connections with posted slices of which none has completed
 * for a while. Progress thread. */
void rail_stall_check(struct tei_rail_dp *dp, uint64_t now);
/* Creates a fault in stage ASKED if the pair has no fault. moves: value of the
 * connection's progress counter when the stall was found. Progress thread, no
 * lock held. */
void rail_stall_ask(struct tei_rail_peer *peer, struct rail_lane *lane,
		    uint16_t remote, uint64_t moves, uint64_t now);
/* Returns true if a fault in stage ASKED or SUSPECT must move to its next
 * stage. The caller must then call rail_stall_confirm. */
bool rail_stall_judge(struct rail_fault *fault, uint64_t now)
	TEI_REQUIRES(rail_sched_held);
/*
 * Returns true if a last check, made without the lock, confirms that the pair
 * makes no progress. Returns false, within a time limit, while the peer's TCP
 * stack still responds on the pair. list: connections of the pair's lane.
 * moves: value of the progress counter when the check began. doubt_ns: time
 * from which the time limit counts. asked: true if a ping was sent over the
 * pair.
 */
bool rail_stall_confirm(const struct rail_disconnect_list *list,
			struct tei_rail_peer *peer, uint16_t remote,
			uint64_t moves, uint64_t doubt_ns, bool asked);
/* Returns true if the pair is idle, so that it cannot be stalled: it is
 * connected, and no slice is posted on it. Progress thread, no lock held. */
bool rail_stall_idles(struct tei_rail_peer *peer, struct rail_lane *lane,
		      uint16_t remote);
/* Calls rail_disconnect_acked for the address to which the pair's connection
 * goes, and returns its result. Progress thread, no lock held. */
uint64_t rail_stall_acked(const struct rail_disconnect_list *list,
			  struct tei_rail_peer *peer, uint16_t remote);
/* Returns the value of the progress counter of the pair's connection on the
 * lane. */
uint64_t rail_stall_moves(struct tei_rail_peer *peer, struct rail_lane *lane,
			  uint16_t remote) TEI_REQUIRES(rail_sched_held);

/* --- rail_probe.c -------------------------------------------------------- */
/* Sends the probes that are due on the rail. Progress thread. Returns the time
 * at which this function must be called again, ns, or 0 if no probe is
 * pending. */
uint64_t rail_probe_run(struct rail *rail, uint64_t now);
/* Ends all probes of the rail that are in progress. Progress thread, or while
 * the data plane is closed. */
void rail_probe_stop(struct rail *rail);
/* Makes the probes of the rail's DOWN pairs with the peer due at once; if peer
 * is NULL, those of its pairs with all peers. */
void rail_probe_soon(struct rail *rail, const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* --- rail_link.c --------------------------------------------------------- */
/* Starts to receive reports of changed links and addresses. If this fails, a
 * failed link is noticed only later, by stalled slices. */
void rail_link_open(struct tei_rail_dp *dp);
/* Stops receiving these reports. */
void rail_link_close(struct tei_rail_dp *dp);
/* Finds the rail's network interface and the state of the link. */
void rail_link_find(struct rail *rail);
struct ifaddrs;

/* Returns false if the rail belongs to a network interface and no interface in
 * ifs has the rail's address any longer; otherwise true. If an interface with
 * the address was deleted and created again, the rail uses the new one from
 * then on. Any thread. */
bool rail_link_has_address(struct rail *rail, const struct ifaddrs *ifs);
/* Handles the changes of links and addresses that the kernel has reported.
 * Progress thread, no lock held. */
void rail_link_read(struct tei_rail_dp *dp);

/* rail_msg_on_ping handles a received PING, and rail_msg_on_pong a received
 * PONG (rail_probe.c). */
void rail_msg_on_ping(struct tei_rail_peer *peer, struct rail_lane *lane,
		      struct rail_wire *w) TEI_REQUIRES(rail_sched_held);
void rail_msg_on_pong(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held);

/* --- steps of the peers' state machines ----------------------------------- */
/* Like the steps in rail_ctl.h, the following functions return the time at
 * which they must be called again, ns, or 0 if they need not be. buf: memory of
 * RAIL_MSG_MAX bytes. Progress thread, no lock held. */
/* Sends PING to the peer while a fault in stage ASKED waits for a sign of
 * life. */
uint64_t rail_ctl_life(struct tei_rail_peer *peer, uint64_t now, uint8_t *buf);
/* Answers the peer's probes. */
uint64_t rail_ctl_pong(struct tei_rail_peer *peer, uint64_t now, uint8_t *buf);

#endif /* TEI_PROV_RAIL_HEALTH_RAIL_HEALTH_H */
