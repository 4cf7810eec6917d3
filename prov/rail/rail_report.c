/* SPDX-License-Identifier: BSD-2-Clause */
/* Reports the routes to a peer: to callers, and in the log. Both reports use
 * report_paths. */

#include <stdio.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_info.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/tei_rail.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"
#include "util/text.h"

#define REPORT_LINE	896	/* size of the buffer for the text of a log
				 * line, bytes */
#define REPORT_LANES	16	/* largest number of tx lanes per rail */

/* Copies data that dp->sched guards: the names and addresses of the route to
 * *out, and the connections of the route to the array conns. Returns false if
 * the rail has no route to the peer. */
static bool report_route(struct tei_rail_peer *p, const struct rail *rail,
			 struct tei_rail_path_info *out,
			 struct rail_conn **conns)
{
	const struct rail_remote *remote;
	int16_t route;
	uint32_t i;

	rail_sched_enter(p->dp);
	route = p->state == RAIL_PEER_GONE ? -1 : p->routes.route[rail->index];
	if (route >= 0) {
		remote = &p->remotes[route];
		snprintf(out->remote_rail, sizeof(out->remote_rail), "%s",
			 remote->name);
		rail_addr_text(&remote->addr, out->remote_address,
			       sizeof(out->remote_address));
		for (i = 0; i < rail->ntx; i++)
			conns[i] = rail_conn_get(
				p, &rail->tx_lanes[i * RAIL_LANE_SLOTS],
				(uint16_t)route);
	}
	rail_sched_leave(p->dp);
	return route >= 0;
}

/* Returns the number of established connections of the rail to the peer. The
 * connections are not freed while the caller has a reference to the peer. */
static uint32_t report_connected(const struct rail *rail,
				 struct rail_conn **conns)
{
	struct rail_lane *lane;
	uint32_t i, n = 0;
	int k;

	for (i = 0; i < rail->ntx; i++) {
		for (k = 0; conns[i] && k < RAIL_LANE_SLOTS; k++) {
			lane = &rail->tx_lanes[i * RAIL_LANE_SLOTS +
					       (uint32_t)k];
			tei_mutex_lock(&lane->lock);
			n += rail_conn_lives(lane, conns[i]);
			tei_mutex_unlock(&lane->lock);
		}
	}
	return n;
}

static void report_rail(struct rail *rail, struct tei_rail_path_info *out)
{
	struct tei_rail_desc d;

	if (tei_rail_describe(rail->dp, rail->index, &d))
		return;
	memcpy(out->rail, d.name, sizeof(out->rail));
	memcpy(out->provider, d.provider, sizeof(out->provider));
	memcpy(out->transport, d.transport, sizeof(out->transport));
	memcpy(out->address, d.address_text, sizeof(out->address));
	out->numa = d.numa;
}

/* Fills the array "out" with one entry for each rail that has a route to the
 * peer. ranks: ranks of the rails, or NULL if the members rank and connections
 * are not needed. Returns the number of entries. */
static size_t report_paths(struct tei_rail_peer *p, const uint8_t *ranks,
			   struct tei_rail_path_info out[TEI_RAIL_MAX])
{
	struct rail_conn *conns[REPORT_LANES];
	struct tei_rail_path_info *o;
	struct rail *rail;
	size_t n = 0;
	uint32_t i;

	for (i = 0; i < rail_count(p->dp); i++) {
		rail = rail_at(p->dp, i);
		o = &out[n];
		memset(o, 0, sizeof(*o));
		memset(conns, 0, sizeof(conns));
		if (!report_route(p, rail, o, conns))
			continue;
		report_rail(rail, o);
		if (ranks) {
			o->rank = ranks[i];
			o->connections = report_connected(rail, conns);
		}
		n++;
	}
	return n;
}

size_t tei_rail_peer_paths(struct tei_rail_peer *p, const char *location,
			   struct tei_rail_path_info out[TEI_RAIL_MAX])
{
	uint8_t ranks[TEI_RAIL_MAX];

	rail_report_ranks(p->dp, location, ranks);
	return report_paths(p, ranks, out);
}

size_t tei_rail_peer_routes(struct tei_rail_peer *p,
			    struct tei_rail_path_info out[TEI_RAIL_MAX])
{
	return report_paths(p, NULL, out);
}

/* --- the log line -------------------------------------------------------- */

static void report_text(const struct tei_rail_path_info *o, size_t n,
			char text[REPORT_LINE])
{
	size_t i, used = 0;
	char one[400];
	int len;

	*text = '\0';
	for (i = 0; i < n; i++) {
		len = snprintf(one, sizeof(one), "%s%s (%s) %s at %s to %s at %s",
			       i ? ", " : "", o[i].transport, o[i].provider,
			       o[i].rail, o[i].address, o[i].remote_rail,
			       o[i].remote_address);
		if (used + (size_t)len + 24 > REPORT_LINE) {
			snprintf(text + used, REPORT_LINE - used,
				 ", and %zu more", n - i);
			return;
		}
		memcpy(text + used, one, (size_t)len + 1);
		used += (size_t)len;
	}
	if (!n)
		snprintf(text, REPORT_LINE, "no local rail reaches the peer");
}

void rail_ctl_report(struct tei_rail_peer *p)
{
	struct tei_rail_path_info out[TEI_RAIL_MAX];
	char text[REPORT_LINE];
	uint32_t left = 0;
	uint64_t hash;
	bool say;
	size_t n;

	rail_sched_enter(p->dp);
	say = p->routes.changed && p->state == RAIL_PEER_READY;
	if (say)
		p->routes.changed = false;
	rail_sched_leave(p->dp);
	if (!say)
		return;
	n = report_paths(p, NULL, out);
	report_text(out, n, text);
	hash = tei_text_hash(text);
	if (hash == p->routes.logged)
		return;
	p->routes.logged = hash;
	if (tei_log_permit(&p->routes.report_limit, &left))
		TEI_INFO("rail", "peer %s: %s", p->name, text);
}

/* --- counters ------------------------------------------------------------ */

void tei_rail_peer_get_stats(struct tei_rail_peer *p,
			     struct tei_rail_peer_stats *out)
{
	uint16_t i;

	rail_sched_enter(p->dp);
	*out = p->stats;
	out->alive_ns = p->alive_ns;
	out->queued = p->tasks.queued;
	out->posted = p->tasks.posted;
	out->state = p->state == RAIL_PEER_NEW ? TEI_RAIL_PEER_NEW :
		     p->state == RAIL_PEER_GONE ? TEI_RAIL_PEER_GONE :
						  TEI_RAIL_PEER_READY;
	for (i = 0; i < p->nremotes; i++)
		if (p->state == RAIL_PEER_READY &&
		    rail_fence_outstanding(&p->remotes[i].fence))
			out->state = TEI_RAIL_PEER_FENCING;
	rail_sched_leave(p->dp);
}
