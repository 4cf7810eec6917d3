/* SPDX-License-Identifier: BSD-2-Clause */
/* Unregisters a region: revokes its keys at the key holders, waits for their
 * answers, and closes the rx lanes (a fence) if a key holder does not
 * answer. */
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"
#include "util/text.h"

/* Waits on dp->cond until *what is 0. Returns false if timeout_ns has passed
 * first. */
static bool revoke_wait_zero(struct tei_rail_dp *dp, const uint32_t *what,
			     uint64_t timeout_ns) TEI_REQUIRES(rail_sched_held)
{
	uint64_t end = tei_now_ns() + timeout_ns, now;

	while (*what) {
		now = tei_now_ns();
		if (now >= end)
			return false;
		rail_sched_wait(dp, end - now);
	}
	return true;
}

/* Makes the progress thread send REVOKE for the region to every key holder. */
static void revoke_keys(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *peer;
	uint32_t i;

	dp->memory.key_epoch++;
	mr->holders_left = 0;
	tei_list_add_tail(&dp->memory.revoking, &mr->revoking);
	for (i = 0; i < mr->nholders; i++) {
		peer = rail_peer_find(dp, mr->holders[i]);
		if (peer && !rail_key_revoke(peer, mr->id))
			mr->holders_left++;
		else
			mr->lost = true;
	}
	if (mr->holders_left)
		rail_progress_wake(dp);
}

/*
 * Makes the progress thread close the rx lanes, and waits until they are
 * closed. This is necessary because the provider continues writes that were
 * started with the key even after the registration has been closed.
 */
static void revoke_fence(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held)
{
	mr->fence = RAIL_MR_FENCE_WANTED;
	__atomic_fetch_add(&dp->memory.nfencing, 1, __ATOMIC_RELEASE);
	rail_progress_wake(dp);
	/* This wait has no time limit: the progress thread closes the lanes
	 * without waiting for any peer, and if this function returned early, a
	 * late write could still reach the memory. */
	while (mr->fence != RAIL_MR_NO_FENCE)
		rail_sched_wait(dp, TEI_NS_PER_SEC);
	__atomic_fetch_sub(&dp->memory.nfencing, 1, __ATOMIC_RELEASE);
}

int tei_rail_mr_dereg(struct tei_rail_dp *dp, void *addr, uint64_t local_ns,
		      struct tei_err *err)
{
	struct tei_rail_mr *mr;
	bool answered;
	uint32_t i;

	rail_sched_enter(dp);
	mr = rail_mr_find(dp, addr, 1);
	if (!mr || mr->addr != (char *)addr) {
		rail_sched_leave(dp);
		return tei_err_fail(err, TEI_ERR_NOT_REGISTERED, "rail", NULL,
				    "%p: not the start of a registered region",
				    addr);
	}
	mr->state = RAIL_MR_REVOKING;
	if (!revoke_wait_zero(dp, &mr->tasks, local_ns)) {
		mr->state = RAIL_MR_READY;
		rail_sched_leave(dp);
		return tei_err_fail(
			err, TEI_ERR_BUSY, "rail", NULL,
			"%p: transfers of this process still use the region", addr);
	}
	revoke_keys(dp, mr);
	answered = revoke_wait_zero(dp, &mr->holders_left,
				    dp->settings->failure.fence_ms * TEI_NS_PER_MS);
	rail_sched_leave(dp);

	tei_mutex_lock(&dp->admin);
	for (i = 0; i < rail_count(dp); i++)
		rail_mr_close_on(mr, rail_at(dp, i));
	rail_sched_enter(dp);
	mr->state = RAIL_MR_CLOSED;
	rail_sched_leave(dp);
	tei_mutex_unlock(&dp->admin);

	rail_sched_enter(dp);
	if (!answered || mr->lost) {
		TEI_INFO("rail", "%p: %u peer%s did not confirm the revocation%s: the rx lanes are fenced",
			 addr, mr->holders_left, tei_plural(mr->holders_left),
			 mr->lost ? ", some are no longer known" : "");
		revoke_fence(dp, mr);
	}
	rail_sched_leave(dp);

	tei_mutex_lock(&dp->admin);
	rail_sched_enter(dp);
	/* REVOKE is still sent to the peers that have not answered. Otherwise
	 * they would use their old key for memory that is registered at this
	 * address later. */
	rail_mr_remove(dp, mr);
	rail_sched_leave(dp);
	tei_mutex_unlock(&dp->admin);
	rail_mr_free(mr);
	return 0;
}
