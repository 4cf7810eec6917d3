/* SPDX-License-Identifier: BSD-2-Clause */
/* Chooses the width of a rail pair from the rates that were measured
 * (rail_width.h). */

#include <string.h>

#include "prov/rail/conn/rail_width.h"

/* A larger width is kept if the rate rises by at least 1/WIDTH_GAIN. A smaller
 * width is kept if the rate falls by at most 1/WIDTH_LOSS. */
#define WIDTH_GAIN	12
#define WIDTH_LOSS	32

/* Begins a measuring interval. */
static void width_interval(struct rail_width_ctl *c, uint64_t now)
{
	c->since_ns = now;
	c->served = 0;
}

/* Changes the width. Rates that were measured before are outdated, except those
 * with which a trial is compared. */
static void width_set(struct rail_width_ctl *c, uint32_t n, bool trial)
{
	c->n = n;
	c->trial = trial;
	c->settle = true;
	c->joined = c->n <= c->from;
	c->trial_rate = 0;
	if (!trial)
		c->known = 0;
}

void rail_width_ctl_init(struct rail_width_ctl *c, uint32_t least,
			 uint32_t most)
{
	memset(c, 0, sizeof(*c));
	c->least = least;
	c->most = most > least ? most : least;
	c->wait = c->backoff = RAIL_WIDTH_WAIT;
	width_set(c, least, false);
}

/* Returns the width to its minimum, because the load has ended. */
static void width_reset(struct rail_width_ctl *c)
{
	c->since_ns = 0;
	c->fewer = false;
	c->wait = c->backoff = RAIL_WIDTH_WAIT;
	width_set(c, c->least, false);
}

/* Sets the time until the next trial. The time doubles with each call. */
static void width_back_off(struct rail_width_ctl *c)
{
	c->backoff *= 2;
	if (c->backoff > RAIL_WIDTH_WAIT_MAX)
		c->backoff = RAIL_WIDTH_WAIT_MAX;
	c->wait = c->backoff;
}

void rail_width_ctl_begin(struct rail_width_ctl *c, uint64_t now)
{
	uint64_t pause = now > c->last_ns ? now - c->last_ns : 0;

	if (c->since_ns && pause <= RAIL_WIDTH_GAP_NS)
		return;
	if (pause > RAIL_WIDTH_IDLE_NS) {
		width_reset(c);
	} else {
		/* a load with many pauses must not be on trial all the time */
		if (c->trial)
			width_back_off(c);
		width_set(c, c->trial ? c->from : c->n, false);
	}
	width_interval(c, now);
	c->last_ns = now;
}

void rail_width_ctl_idle(struct rail_width_ctl *c, uint64_t now)
{
	if (now > c->last_ns + RAIL_WIDTH_IDLE_NS)
		width_reset(c);
}

void rail_width_ctl_failed(struct rail_width_ctl *c)
{
	if (c->n == c->least && !c->trial)
		return;
	c->fewer = false;
	width_back_off(c);
	width_set(c, c->least, false);
}

/* Begins the next trial, if one is due and possible. */
static void width_try(struct rail_width_ctl *c)
{
	bool more = c->n < c->most, fewer = c->n > c->least;

	if (c->wait || c->known < 2 || (!more && !fewer))
		return;
	c->fewer = fewer && (c->fewer || !more);
	c->from = c->n;
	width_set(c, c->fewer ? c->n - 1 : c->n + 1, true);
}

/* Ends a trial. */
static void width_decide(struct rail_width_ctl *c, bool keep)
{
	bool fewer = c->fewer;

	if (!keep) {
		c->fewer = !fewer;
		width_back_off(c);
		width_set(c, c->from, false);
		return;
	}
	/* the back-off is not reset by a smaller width: otherwise two widths
	 * with similar rates would follow each other without a pause */
	if (!fewer)
		c->backoff = RAIL_WIDTH_WAIT;
	c->wait = fewer ? c->backoff : 2;
	width_set(c, c->n, false);
}

/* Evaluates an interval of a trial. */
static void width_judge(struct rail_width_ctl *c, uint64_t rate)
{
	uint64_t high = c->rate[0] > c->rate[1] ? c->rate[0] : c->rate[1];
	uint64_t mean = c->rate[0] / 2 + c->rate[1] / 2;

	if (!c->fewer && rate < high + high / WIDTH_GAIN)
		width_decide(c, false);
	else if (!c->trial_rate)
		c->trial_rate = rate;
	else
		width_decide(c, !c->fewer || rate / 2 + c->trial_rate / 2 >=
						     mean - mean / WIDTH_LOSS);
}

/* Evaluates an interval that was not part of a trial. */
static void width_note(struct rail_width_ctl *c, uint64_t rate)
{
	c->rate[1] = c->rate[0];
	c->rate[0] = rate;
	if (c->known < 2)
		c->known++;
	if (c->wait)
		c->wait--;
	width_try(c);
}

/* Returns true while the new connection of a trial has not carried a slice. If
 * this takes too long, ends the trial. */
static bool width_joins(struct rail_width_ctl *c, uint32_t lane, uint64_t now)
{
	if (!c->trial || c->joined)
		return false;
	c->joined = lane >= c->from;
	if (!c->joined && now < c->since_ns + RAIL_WIDTH_JOIN_NS)
		return true;
	if (!c->joined)
		width_decide(c, false);
	width_interval(c, now);
	return true;
}

void rail_width_ctl_served(struct rail_width_ctl *c, uint64_t bytes,
			   uint32_t lane, uint64_t now)
{
	uint64_t ns = now > c->since_ns ? now - c->since_ns : 0, rate;

	c->last_ns = now;
	if (width_joins(c, lane, now))
		return;
	c->served += bytes;
	if (ns < (c->settle ? RAIL_WIDTH_SETTLE_NS : RAIL_WIDTH_NS) ||
	    c->served < RAIL_WIDTH_BYTES)
		return;
	rate = (uint64_t)((double)c->served * 1e9 / (double)ns);
	width_interval(c, now);
	if (c->settle)
		c->settle = false;
	else if (c->trial)
		width_judge(c, rate);
	else
		width_note(c, rate);
}
