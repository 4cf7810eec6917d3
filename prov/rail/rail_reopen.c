/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A target lane that the fence has closed is opened anew beside the progress
 * thread: a provider may fill tens of megabytes with receive buffers first, a
 * third of a second, and meanwhile the other rails go on.
 *
 * The new one is rail->fresh until the progress thread puts it in the old one's
 * place; so the target lane stays that thread's own. fresh.lock guards who is
 * at it; it is taken before the target lane's.
 */
#include <string.h>

#include "prov/rail/rail_health.h"
#include "util/thread.h"

static void reopen_open(struct rail_lane *fresh) TEI_REQUIRES(fresh->lock)
{
	struct tei_err err;

	if (rail_lane_open(fresh, &err))
		__atomic_store_n(&fresh->rail->lost, true, __ATOMIC_RELAXED);
	__atomic_store_n(&fresh->rail->reopened, true, __ATOMIC_RELEASE);
	__atomic_store_n(&fresh->rail->dp->reopened, true, __ATOMIC_RELEASE);
}

static void *reopen_main(void *arg)
{
	struct rail *rail = arg;

	tei_mutex_lock(&rail->fresh.lock);
	reopen_open(&rail->fresh);
	tei_mutex_unlock(&rail->fresh.lock);
	rail_progress_wake(rail->dp);
	return NULL;
}

/* Receive buffers go along; the lane that they were posted on is closed. */
static void reopen_lend(struct rail_lane *to, struct rail_lane *from)
{
	to->rx = from->rx;
	to->rx_mem = from->rx_mem;
	to->rx_mr = from->rx_mr;
	from->rx = NULL;
	from->rx_mem = NULL;
	from->rx_mr = NULL;
}

void rail_reopen_start(struct rail *rail)
{
	struct rail_lane *lane = &rail->target, *fresh = &rail->fresh;

	tei_mutex_lock(&fresh->lock);
	if (rail->reopening || !__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE)) {
		tei_mutex_unlock(&fresh->lock);
		return;
	}
	tei_mutex_lock(&lane->lock);
	reopen_lend(fresh, lane);
	__atomic_store_n(&fresh->gen, lane->gen, __ATOMIC_RELEASE);
	tei_mutex_unlock(&lane->lock);
	__atomic_store_n(&rail->reopened, false, __ATOMIC_RELAXED);
	__atomic_store_n(&rail->reopening, true, __ATOMIC_RELAXED);
	rail->opener_started = !tei_thread_start(&rail->opener, false,
						 reopen_main, rail);
	if (!rail->opener_started)
		reopen_open(fresh);
	tei_mutex_unlock(&fresh->lock);
}

static void reopen_join(struct rail *rail)
{
	if (rail->opener_started)
		pthread_join(rail->opener, NULL);
	rail->opener_started = false;
}

static void reopen_move(struct rail_lane *lane, struct rail_lane *fresh)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(fresh->lock)
{
	reopen_lend(lane, fresh);
	if (!fresh->ep)
		return;
	lane->ep = fresh->ep;
	lane->cq = fresh->cq;
	lane->av = fresh->av;
	lane->eq = fresh->eq;
	lane->cntr = fresh->cntr;
	lane->cntr_seen = fresh->cntr_seen;
	lane->wait_fd = fresh->wait_fd;
	lane->addr = fresh->addr;
	__atomic_store_n(&lane->gen, fresh->gen, __ATOMIC_RELEASE);
	__atomic_store_n(&lane->state, RAIL_LANE_ACTIVE, __ATOMIC_RELEASE);
	fresh->ep = NULL;
	fresh->cq = NULL;
	fresh->av = NULL;
	fresh->eq = NULL;
	fresh->cntr = NULL;
	fresh->wait_fd = -1;
	__atomic_store_n(&fresh->state, RAIL_LANE_CLOSED, __ATOMIC_RELEASE);
}

bool rail_reopen_collect(struct rail *rail)
{
	struct rail_lane *lane = &rail->target, *fresh = &rail->fresh;
	bool there = false;

	if (!__atomic_load_n(&rail->reopened, __ATOMIC_ACQUIRE))
		return false;
	tei_mutex_lock(&fresh->lock);
	if (rail->reopening && __atomic_load_n(&rail->open, __ATOMIC_ACQUIRE)) {
		tei_mutex_lock(&lane->lock);
		reopen_move(lane, fresh);
		there = lane->ep != NULL;
		tei_mutex_unlock(&lane->lock);
		reopen_join(rail);
		__atomic_store_n(&rail->reopened, false, __ATOMIC_RELAXED);
		__atomic_store_n(&rail->reopening, false, __ATOMIC_RELAXED);
	}
	tei_mutex_unlock(&fresh->lock);
	return there;
}

bool rail_reopen_any(struct tei_rail_dp *dp)
{
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++)
		if (__atomic_load_n(&rail_at(dp, i)->reopening,
				    __ATOMIC_RELAXED))
			return true;
	return false;
}

void rail_reopen_stop(struct rail *rail)
{
	struct rail_lane *lane = &rail->target, *fresh = &rail->fresh;
	struct tei_list none;
	bool mine;

	/* nobody starts or collects one on a rail that is not open */
	tei_mutex_lock(&fresh->lock);
	mine = rail->reopening;
	__atomic_store_n(&rail->reopening, false, __ATOMIC_RELAXED);
	tei_mutex_unlock(&fresh->lock);
	if (!mine)
		return;
	reopen_join(rail);
	tei_list_init(&none);
	tei_mutex_lock(&fresh->lock);
	rail_lane_close(fresh, &none);
	tei_mutex_lock(&lane->lock);
	reopen_lend(lane, fresh);
	tei_mutex_unlock(&lane->lock);
	tei_mutex_unlock(&fresh->lock);
}
