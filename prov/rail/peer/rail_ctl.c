/* SPDX-License-Identifier: BSD-2-Clause */
/* What the control state machines of a peer do while the peer does not
 * answer. */
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_timing.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/log.h"

/* Asks the owner of the data plane to resolve the peer's address again. The
 * owner gets a reference to the peer. */
static void ctl_resolve(struct tei_rail_peer *p, uint64_t now)
{
	struct tei_rail_dp *dp = p->dp;
	bool ask;

	rail_sched_enter(dp);
	ask = p->refs && p->state != RAIL_PEER_GONE &&
	      now >= p->addrs.resolve_next_ns &&
	      !__atomic_load_n(&dp->thread.no_callbacks, __ATOMIC_ACQUIRE);
	if (ask) {
		p->addrs.resolve_next_ns = now + RAIL_CTL_RESOLVE_NS;
		p->refs++;
	}
	rail_sched_leave(dp);
	if (!ask)
		return;
	TEI_DEBUG_LOG("rail", "peer %s: its address is resolved again",
		      p->name);
	dp->ops->resolve(dp->arg, p);
}

void rail_ctl_check(struct tei_rail_peer *p, uint64_t now, uint64_t since)
{
	if (now - since < RAIL_CTL_UNANSWERED_NS)
		return;
	rail_sched_enter(p->dp);
	rail_peer_next_first(p, now);
	rail_sched_leave(p->dp);
	ctl_resolve(p, now);
}

void rail_ctl_unanswered(struct tei_rail_peer *p, uint64_t now, uint64_t since)
{
	if (now - since >= RAIL_CTL_UNANSWERED_NS) {
		p->hello.again = true;
		rail_renew_silent(p, now);
	}
	rail_ctl_check(p, now, since);
}

void rail_ctl_sleep_end(struct tei_rail_peer *p)
{
	p->life.revived = true;
	rail_peer_attend(p);
}
