/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Decides when a peer is presumed dead. A process that was killed sends nothing
 * any longer, and nothing proves that it is gone. So that the tasks for such a
 * peer do not wait long, they end early if all of the following conditions
 * hold. Tasks with posted slices are reported as unfenced.
 *
 *  - Nothing is posted to the peer, and no connection to it is left.
 *  - The peer has given no sign of life since its oldest task last progressed.
 *  - The peer's control port refuses connections. The owner of the data plane
 *    tests this on a thread that may block.
 *  - At least one port at which the peer's rails listen refuses connections
 *    too, and no port accepts one. Rails without TCP ports are not tested.
 *
 * The conditions do not hold for a stopped process, because its kernel accepts
 * connections for it; for a process behind a filter that drops packets, because
 * its ports do not answer; and for a peer that still has a working rail. A peer
 * without a control channel is never presumed dead.
 *
 * The presumption is void as soon as the peer gives a sign of life. The
 * presumption ends only the tasks that were submitted before it. For later
 * tasks the ports are tested again.
 */

#include <stdio.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_failure.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_timing.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_notify.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/world.h"

#define PRESUME_DOORS	 (2 * TEI_RAIL_MAX)	/* largest number of ports that
						 * are tested */

/* --- connections --------------------------------------------------------- */

/* Returns true if the lane has a connection to at least one rail of the
 * peer. */
static bool presume_lane_linked(struct tei_rail_peer *p, struct rail_lane *lane)
{
	struct rail_conn *conn;
	bool linked = false;
	uint16_t r = 0;

	do {
		rail_sched_enter(p->dp);
		conn = rail_conn_get(p, lane, r++);
		rail_sched_leave(p->dp);
		if (!conn)
			break;
		tei_mutex_lock(&lane->lock);
		linked = rail_conn_lives(lane, conn);
		tei_mutex_unlock(&lane->lock);
	} while (!linked);
	return linked;
}

/* Returns true if a connection to the peer may still exist. May be called by
 * any thread that holds a reference to the peer. */
static bool presume_linked(struct tei_rail_peer *p)
{
	struct rail *rail;
	bool linked;
	uint32_t i, j;

	rail_sched_enter(p->dp);
	linked = p->tasks.posted != 0;
	rail_sched_leave(p->dp);
	for (i = 0; i < rail_count(p->dp) && !linked; i++) {
		rail = rail_at(p->dp, i);
		for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS && !linked; j++)
			linked = presume_lane_linked(p, &rail->tx_lanes[j]);
	}
	return linked;
}

/* --- ports --------------------------------------------------------------- */

/* Copies the addresses at which the peer's rails listen to listen_addr. Returns
 * their number. */
static uint32_t
presume_listen_addrs(struct tei_rail_peer *p,
		     struct tei_rail_addr listen_addr[PRESUME_DOORS])
{
	uint32_t n = 0;
	uint16_t i;

	rail_sched_enter(p->dp);
	for (i = 0; i < p->nremotes && n < PRESUME_DOORS; i++)
		if (p->remotes[i].addr.len &&
		    rail_conn_fit_any(p->dp, &p->remotes[i].addr) >= 0)
			listen_addr[n++] = p->remotes[i].addr;
	for (i = 0; i < p->addrs.ncontacts && n < PRESUME_DOORS; i++)
		if (rail_conn_fit_any(p->dp, &p->addrs.contacts[i]) >= 0)
			listen_addr[n++] = p->addrs.contacts[i];
	rail_sched_leave(p->dp);
	return n;
}

/* Tests the TCP ports at which the peer's rails listen, each for at most
 * wait_ns. Returns the number of ports that refuse connections, or 0 if a port
 * accepts one. Sets *tcp to the number of tested ports. Blocks. */
static uint32_t presume_refusals(struct tei_rail_peer *p, uint64_t wait_ns,
				 uint32_t *tcp)
{
	struct tei_rail_addr listen_addr[PRESUME_DOORS];
	uint32_t i, n = presume_listen_addrs(p, listen_addr), refused = 0;

	*tcp = 0;
	for (i = 0; i < n; i++) {
		if (!rail_peer_by_socket(p->dp, &listen_addr[i]))
			continue;
		++*tcp;
		switch (tei_world->net.connect(
			(const void *)listen_addr[i].bytes,
			listen_addr[i].len, wait_ns)) {
		case TEI_NET_ACCEPTED:
			return 0;
		case TEI_NET_REFUSED:
			refused++;
			break;
		case TEI_NET_SILENT:
			break;
		}
	}
	return refused;
}

bool rail_presume_closed(struct tei_rail_peer *p, uint64_t wait_ns)
{
	uint32_t tcp;

	return presume_refusals(p, wait_ns, &tcp) != 0;
}

/* Returns true if a port of the peer's rails refuses connections and none
 * accepts one, or if its rails do not listen at TCP ports. Blocks. */
static bool presume_refuses(struct tei_rail_peer *p)
{
	uint32_t tcp;

	return presume_refusals(p, RAIL_PRESUME_DOOR_NS, &tcp) || !tcp;
}

/* --- the verdict --------------------------------------------------------- */

void tei_rail_peer_no_control(struct tei_rail_peer *p)
{
	struct tei_rail_dp *dp = p->dp;
	uint64_t now = tei_now_ns();
	bool good, news = false;

	good = !presume_linked(p) && presume_refuses(p);
	rail_sched_enter(dp);
	if (p->state == RAIL_PEER_GONE)
		goto out;
	if (good && p->alive_ns + RAIL_PRESUME_WAIT_NS / 2 < now &&
	    !p->tasks.posted) {
		news = !rail_presumed(p);
		p->life.presumed_ns = now;
		rail_peer_attend(p);
	}
	p->life.presume_next_ns = now + RAIL_PRESUME_AGAIN_NS;
out:
	rail_sched_leave(dp);
	if (news)
		TEI_WARN("rail", "peer %s: has probably ended: its control port and its rails refuse connections",
			 p->name);
}

void rail_presume_err(const struct tei_rail_peer *p, struct tei_err *err)
{
	memset(err, 0, sizeof(*err));
	if (p->tasks.last_failure.ns)
		rail_peer_last_failure(p, err);
	err->code = TEI_ERR_ENDPOINT;
	err->when_ns = tei_now_ns();
	snprintf(err->peer, sizeof(err->peer), "%.95s", p->name);
	snprintf(err->text, sizeof(err->text),
		 "the peer's control port and its rails refuse connections, and no connection to it is left");
	snprintf(err->hint, sizeof(err->hint),
		 "the process has probably ended; open the segment again once it has been restarted");
}

void rail_presume_ask(struct tei_rail_peer *p, uint64_t now)
{
	uint64_t since = 0;
	bool ask;

	rail_sched_enter(p->dp);
	/* a refusal by the control port is no evidence if it is older than the
	 * peer's last sign of life */
	ask = (!tei_list_empty(&p->tasks.live) || rail_notify_waited_ns(p)) &&
	      !p->tasks.posted && p->state != RAIL_PEER_GONE &&
	      (now >= p->life.presume_next_ns ||
	       p->alive_ns > p->life.presume_asked_ns);
	if (ask)
		since = tei_list_empty(&p->tasks.live)
				? rail_notify_waited_ns(p)
				: rail_deadline_oldest(p);
	if (since < p->alive_ns)
		since = p->alive_ns;
	ask = ask && now >= since + RAIL_PRESUME_WAIT_NS;
	if (ask)
		p->life.presume_next_ns = now + RAIL_PRESUME_AGAIN_NS;
	rail_sched_leave(p->dp);
	if (!ask)
		return;
	if (presume_linked(p))
		return;
	/* limits how often the control port is tested: a test of a port that
	 * does not refuse occupies a worker thread for a second */
	rail_sched_enter(p->dp);
	p->life.presume_asked_ns = now;
	p->life.presume_next_ns = now + RAIL_PRESUME_RARELY_NS;
	p->addrs.resolve_next_ns = 0;
	rail_sched_leave(p->dp);
	rail_ctl_check(p, now, since);
}
