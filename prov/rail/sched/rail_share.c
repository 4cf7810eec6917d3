/* SPDX-License-Identifier: BSD-2-Clause */
/* Computes how much a connection may take: its share of the rail's window, the
 * length of a slice, the limit of bulk data while small requests are active,
 * and the division of the last bytes of a task among the rails. */
#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_window.h"
#include "prov/rail/sched/rail_sched.h"
#include "util/clock.h"
#include "util/lock.h"
#include "util/settings.h"

#define SHARE_NS	(250 * TEI_NS_PER_US) /* intended time for which a rail
					       * sends one slice */
/*
 * The limit of bulk data after a small request was cut. While the next
 * SHARE_THROTTLE bulk slices are cut, the limit is rail_window_throttle. For
 * the following SHARE_LATER slices, and on rails without a known rate, it is
 * SHARE_LATER_BYTES.
 */
#define SHARE_THROTTLE	256
#define SHARE_LATER	4096
#define SHARE_LATER_BYTES	(8u << 20)
#define SHARE_OVERTAKE	16		/* number of small requests that are
					 * served between two bulk slices */
/* Longest duration of an accounting round: SHARE_ROUND_NS * window / rate, in
 * ns, which is the time in which the rail sends four windows. */
#define SHARE_ROUND_NS 4e9
/* Slice lengths are multiples of SHARE_PAGE bytes, or of SHARE_GRAIN bytes
 * while the rail is throttled. */
#define SHARE_PAGE  UINT64_C(4096)
#define SHARE_GRAIN UINT64_C(1024)

/* Returns for how many further bulk slices the rail stays throttled. */
static uint32_t share_throttled_left(const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	return rail->dp->settings->sched.small_first
		       ? SHARE_THROTTLE + SHARE_LATER
		       : rail->bulk.throttled_left;
}

/* Returns true if bulk data must leave room on the rail for small requests. */
static bool share_throttled(const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	return share_throttled_left(rail) > SHARE_LATER &&
	       rail_window_throttle(rail) < UINT64_MAX;
}

uint64_t rail_share_throttled(const struct rail *rail, uint64_t bytes)
{
	uint32_t left = share_throttled_left(rail);
	uint64_t bulk, most, small;

	if (!left)
		return UINT64_MAX;
	bulk = rail_window_bulk(rail);
	most = rail_window_throttle(rail);
	if (most == UINT64_MAX || left <= SHARE_LATER)
		most = SHARE_LATER_BYTES;
	small = bytes > bulk ? bytes - bulk : 0;
	small = small / 8 * 3;
	return most > small ? most : small;
}

/*
 * Returns the number of bytes of bulk data that a connection may hold while the
 * rail is throttled. The limit of the rail is divided equally among the
 * connections that have taken bulk data recently, with at least one page for
 * each. A connection to a slow or stopped target rarely takes bulk data and so
 * is not counted; its data is not on the wire and does not reduce the share of
 * the other connections.
 */
static uint64_t share_conn_throttled(const struct rail *rail,
				     const struct rail_conn *p, uint64_t bytes)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t most = rail_share_throttled(rail, bytes);
	uint32_t n = rail->bulk.participants + (p->took_in != rail->bulk.turn);

	if (most == UINT64_MAX)
		return most;
	if (n < rail->bulk.participants_before)
		n = rail->bulk.participants_before;
	most = most / n & ~(SHARE_GRAIN - 1);
	return most > SHARE_PAGE ? most : SHARE_PAGE;
}

/* Returns the limit of the bulk data that a connection may hold. The
 * connections of one rail pair divide the limit of the pair equally. held:
 * bytes that are posted on the rail; window: window of the rail. */
static uint64_t share_bulk(const struct rail *rail, const struct rail_conn *p,
			   uint64_t held, uint64_t window)
	TEI_REQUIRES(rail_sched_held)
{
	const struct rail_width *w = p->width;
	bool wide = w && w->ctl.n > rail->nbase;
	uint64_t own = wide ? w->bytes : p->bytes;
	uint64_t others = held > own ? held - own : 0;

	if (others >= window)
		return 0;
	return (window - others) / 4 * 3 / (wide ? w->ctl.n : 1);
}

bool rail_share_room(const struct rail_lane *lane, const struct rail_conn *p,
		     uint64_t bytes, bool bulk)
{
	uint32_t slices =
		lane->rail->caps.tx_depth - (lane->inflight - p->inflight);
	uint64_t others = bytes > p->bytes ? bytes - p->bytes : 0;
	uint64_t window = rail_window(lane->rail);

	if (bulk && rail_width_extra(lane) && share_throttled(lane->rail))
		return false;
	if (!p->bytes)
		return true;
	if (p->room && p->inflight >= p->room)
		return false;
	if (p->inflight >= (bulk ? (slices + 1) / 2 : (slices + 1) / 4 * 3))
		return false;
	if (bulk && share_throttled(lane->rail) &&
	    p->bytes < lane->rail->dp->settings->sched.slice_size)
		return true;
	if (bytes >= window || others >= window)
		return false;
	return p->bytes < (bulk ? share_bulk(lane->rail, p, bytes, window)
				: (window - others) / 8 * 7);
}

/* Returns the usual length of a slice: what the rail moves in 250 µs, which is
 * large enough to amortize a post. */
static uint64_t share_usual(const struct rail *rail)
{
	const struct tei_settings *s = rail->dp->settings;
	uint64_t rate = __atomic_load_n(&rail->load.rate_bps, __ATOMIC_RELAXED);
	uint64_t len = rate ? (uint64_t)((double)rate * 1e-9 * SHARE_NS)
			    : 4ull * s->sched.slice_size;

	len &= ~(SHARE_PAGE - 1);
	return len < s->sched.slice_max ? len : s->sched.slice_max;
}

/* Returns the minimum length of a slice. For bulk data on a throttled rail the
 * minimum is halved, because small requests wait for each posted slice. */
static uint64_t share_floor(const struct rail *rail, bool bulk)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t floor = rail->dp->settings->sched.slice_size;

	return bulk && share_throttled(rail) ? floor / 2 : floor;
}

static uint64_t share_whole(const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t len = share_usual(rail), floor = share_floor(rail, true);

	return len > floor ? len : floor;
}

uint64_t rail_share_len(const struct rail *rail,
			const struct rail_window_sum *sum, uint64_t left,
			bool bulk, uint64_t most)
{
	uint64_t len = share_usual(rail), floor = share_floor(rail, bulk);
	uint64_t share = (uint64_t)(sum->share * (double)left / 2);

	if (sum->rails > 1 && len > share)
		len = share & ~(SHARE_PAGE - 1);
	if (len < floor)
		len = floor;
	if (len > most)
		len = most;
	if (len > rail->caps.max_slice)
		len = rail->caps.max_slice;
	/* avoids a very short last slice */
	if (left <= len + len / 2 && left <= rail->caps.max_slice)
		len = left;
	return len < left ? len : left;
}

/* Starts a new accounting round. before: number of connections that took bulk
 * data in the previous round, or 0 if this number is outdated. */
static void share_round(struct rail *rail, uint32_t before)
	TEI_REQUIRES(rail_sched_held)
{
	rail->bulk.participants_before = before;
	rail->bulk.participants = 0;
	rail->bulk.taken = 0;
	if (!++rail->bulk.turn)
		rail->bulk.turn = 1;
}

/* Ends an accounting round that has lasted so long that the rail could have
 * sent four windows; this happens when few connections still take bulk data. If
 * the round has lasted twice as long, its number of participants is outdated,
 * and the next round starts with 0 as the number of earlier participants. */
static void share_round_ages(struct rail *rail, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t rate = __atomic_load_n(&rail->load.rate_bps, __ATOMIC_RELAXED);
	double most = SHARE_ROUND_NS * (double)rail_window(rail);
	double ns = now > rail->bulk.turn_ns
			    ? (double)(now - rail->bulk.turn_ns)
			    : 0;

	if (ns * (double)rate < most)
		return;
	share_round(rail,
		    ns * (double)rate < 2 * most ? rail->bulk.participants : 0);
	rail->bulk.turn_ns = now;
}

void rail_share_took(struct rail *rail, struct rail_conn *p, uint64_t len,
		     uint64_t now)
{
	uint64_t whole, n;

	if (!share_throttled_left(rail))
		return;
	whole = share_whole(rail);
	share_round_ages(rail, now);
	rail->bulk.throttled_part += len;
	n = rail->bulk.throttled_part / whole;
	rail->bulk.throttled_part -= n * whole;
	rail->bulk.throttled_left -= n < rail->bulk.throttled_left
					     ? (uint32_t)n
					     : rail->bulk.throttled_left;
	rail->bulk.participants += p->took_in != rail->bulk.turn;
	p->took_in = rail->bulk.turn;
	rail->bulk.taken += len;
	if (rail->bulk.taken < rail_window(rail))
		return;
	share_round(rail, rail->bulk.participants);
	if (now > rail->bulk.turn_ns)
		rail->bulk.turn_ns = now;
}

uint64_t rail_share_most(struct rail *rail, const struct rail_conn *p,
			 uint64_t bytes)
{
	uint64_t part = share_conn_throttled(rail, p, bytes), len;

	if (part == UINT64_MAX)
		return part;
	len = share_whole(rail);
	len = part / ((part + len - 1) / len) & ~(SHARE_GRAIN - 1);
	if (len < SHARE_PAGE)
		len = SHARE_PAGE;
	if (!p->bulk_bytes || p->bulk_bytes + len <= part)
		return len;
	if (rail->nic.wire && bytes < rail_window(rail))
		__atomic_store_n(&rail->load.throttled, true, __ATOMIC_RELAXED);
	return 0;
}

uint32_t rail_share_overtaken(const struct rail *rail, uint64_t len,
			      uint64_t most)
{
	uint64_t whole = share_whole(rail), n;

	if (len < most || len >= whole)
		return 0;
	n = SHARE_OVERTAKE * len / whole;
	return SHARE_OVERTAKE - (n ? (uint32_t)n : 1);
}

void rail_share_small(struct rail *rail)
{
	/* the rail was not throttled, so the counts of the last accounting
	 * round are outdated */
	if (!rail->bulk.throttled_left)
		share_round(rail, 0);
	rail->bulk.throttled_left = SHARE_THROTTLE + SHARE_LATER;
}

bool rail_share_bulk_turn(const struct tei_rail_peer *peer)
{
	return peer->tasks.overtaken >= SHARE_OVERTAKE;
}

/* --- the last bytes of a task -------------------------------------------- */

static uint64_t share_rate(const struct rail *rail, uint64_t unknown)
{
	uint64_t rate = __atomic_load_n(&rail->load.rate_bps, __ATOMIC_RELAXED);

	return rate ? rate : unknown;
}

void rail_window_sum(const struct rail *rail, const struct tei_rail_peer *peer,
		     const struct tei_rail_mr *mr, const uint8_t *ranks,
		     uint64_t bytes, struct rail_window_sum *sum)
{
	uint64_t own = share_rate(rail, 0);
	struct rail *r;
	uint32_t i;

	sum->rails = 1;
	sum->bytes = bytes;
	sum->share = 1;
	for (i = 0; i < rail_count(peer->dp); i++) {
		if (i == rail->index || !rail_health_works(peer, i) ||
		    ranks[i] > ranks[rail->index])
			continue;
		r = rail_at(peer->dp, i);
		if (rail_hmem_foreign(mr, r))
			continue;
		sum->rails++;
		sum->bytes += rail_window_held(r);
		sum->share += own ? (double)share_rate(r, own) / (double)own :
				    1;
	}
	sum->share = 1 / sum->share;
}

/*
 * Returns true if the rail must leave the last bytes of a task to other rails.
 * All data in flight and all remaining data is shared by the rails in
 * proportion to their rates; a rail that holds more than its share would finish
 * last. A rail without data in flight always takes a slice, so a wrong estimate
 * costs only time.
 */
bool rail_window_over(const struct rail_window_sum *sum, uint64_t bytes,
		      uint64_t left, uint64_t len)
{
	return bytes && sum->rails > 1 &&
	       (double)bytes + (double)len / 2 >
		       sum->share * (double)(sum->bytes + left);
}
