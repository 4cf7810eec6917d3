/* SPDX-License-Identifier: BSD-2-Clause */
/* The width of a rail pair: selects the lanes for its bulk data, and handles
 * changes of the width (rail_width.h). */

#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/log.h"
#include "util/settings.h"

bool rail_width_fits(const struct rail *rail)
{
	return !strcmp(rail->nic.transport, "tcp") && rail_cache_lends(rail);
}

bool rail_width_extra(const struct rail_lane *lane)
{
	return !lane->is_rx && lane->index >= lane->rail->nbase;
}

bool rail_width_covers(const struct rail_conn *conn,
		       const struct rail_lane *lane)
{
	return !rail_width_extra(lane) ||
	       (conn->width && lane->index < conn->width->ctl.n);
}

/* Returns the largest width of the pairs of the rail. If the user has set no
 * limit, this is the number of lanes that the CPUs can use, which is rail->ntx,
 * divided by the number of open rails. Rails that have been replaced do not
 * count: few peers still use them. */
static uint32_t width_most(const struct rail *rail)
{
	struct tei_rail_dp *dp = rail->dp;
	uint32_t i, rails = 0, most = rail->ntx;

	if (dp->settings->sched.connections)
		return most;
	for (i = 0; i < rail_count(dp); i++)
		rails += rail_published(rail_at(dp, i));
	return rails ? most / rails : most;
}

/* Sets the number of lanes of the rail that take bulk data, and makes the
 * progress thread open those that are closed. */
static void width_lanes(struct rail *rail) TEI_REQUIRES(rail_sched_held)
{
	const struct rail_width *w;
	uint32_t n = rail->nbase;

	tei_list_foreach(w, &rail->dp->tasks.wide, struct rail_width, link)
		if (w->rail == rail && w->ctl.n > n)
			n = w->ctl.n;
	if (n == __atomic_load_n(&rail->load.lanes, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&rail->load.lanes, n, __ATOMIC_RELAXED);
	__atomic_store_n(&rail->dp->off_route.any, true, __ATOMIC_RELAXED);
	__atomic_store_n(&rail->dp->health.widened, true, __ATOMIC_RELEASE);
	rail_progress_wake(rail->dp);
}

/* Handles that the width may have changed. */
static void width_apply(struct rail_width *w) TEI_REQUIRES(rail_sched_held)
{
	tei_list_del(&w->link);
	if (w->ctl.n > w->rail->nbase) {
		/* if memory is short, the extra lanes have no connection, and
		 * the trial fails */
		rail_conn_widen(w->peer);
		tei_list_add_tail(&w->peer->dp->tasks.wide, &w->link);
	}
	width_lanes(w->rail);
}

struct rail_width *rail_width_new(struct tei_rail_peer *peer, struct rail *rail)
{
	uint32_t least = peer->dp->settings->sched.connections_min;
	struct rail_width *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->peer = peer;
	w->rail = rail;
	tei_list_init(&w->link);
	rail_width_ctl_init(&w->ctl, least > rail->nbase ? least : rail->nbase,
			    width_most(rail));
	if (w->ctl.n > rail->nbase) {
		tei_list_add_tail(&peer->dp->tasks.wide, &w->link);
		width_lanes(rail);
	}
	return w;
}

void rail_width_free(struct rail_width *w)
{
	if (!w)
		return;
	if (!tei_list_empty(&w->link)) {
		tei_list_del(&w->link);
		/* a data plane that is closed frees its rails first */
		if (rail_count(w->peer->dp))
			width_lanes(w->rail);
	}
	free(w);
}

void rail_width_take(struct rail_width *w, const struct rail_slice *s)
{
	uint32_t before = w->ctl.n;

	w->bytes += s->len;
	if (!s->bulk || w->bulk++)
		return;
	rail_width_ctl_begin(&w->ctl, tei_now_ns());
	if (w->ctl.n != before)
		width_apply(w);
}

void rail_width_put(struct rail_width *w, const struct rail_slice *s)
{
	w->bytes -= s->len;
	w->bulk -= s->bulk;
}

void rail_width_served(struct rail_width *w, const struct rail_slice *s,
		       uint64_t now)
{
	struct rail_width_ctl before;

	if (!w || !s->bulk)
		return;
	before = w->ctl;
	rail_width_ctl_served(&w->ctl, s->len, s->lane->index, now);
	if (w->ctl.n != before.n)
		width_apply(w);
	else if (before.trial && !w->ctl.trial)
		TEI_INFO("rail", "peer %s: %s: bulk data uses %u connections",
			 w->peer->name, w->rail->name, w->ctl.n);
}

void rail_width_failed(struct rail_width *w)
{
	uint32_t before = w ? w->ctl.n : 0;

	if (!w)
		return;
	rail_width_ctl_failed(&w->ctl);
	if (w->ctl.n != before)
		width_apply(w);
}

bool rail_width_tidy(struct tei_rail_dp *dp, uint64_t now)
{
	struct rail_width *w, *next;
	bool left = false;
	uint32_t before;

	tei_list_foreach_safe(w, next, &dp->tasks.wide, struct rail_width,
			      link) {
		before = w->ctl.n;
		if (!w->bulk)
			rail_width_ctl_idle(&w->ctl, now);
		left |= w->ctl.n > w->ctl.least;
		if (w->ctl.n != before)
			width_apply(w);
	}
	return left;
}
