/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs the control state machines of a peer, one after the other, on the
 * progress thread. */
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_loss.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/peer/rail_served.h"
#include "prov/rail/rail_peer_run.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_resend.h"
#include "util/clock.h"
#include "util/lock.h"

#define RUN_GONE_NS (5 * TEI_NS_PER_SEC)
/* Pause before a failed allocation of memory is tried again. */
#define RUN_MEMORY_NS (10 * TEI_NS_PER_MS)

/*
 * Resets the retry state of a peer that gave a sign of life after a silence.
 * Requests that were sent during the silence may be lost, so they are sent
 * again at once, and earlier attempts are no longer counted.
 */
static void run_woken(struct tei_rail_peer *p) TEI_REQUIRES(rail_sched_held)
{
	uint16_t r;

	p->life.revived = false;
	p->hello.tries = 0;
	p->hello.next_ns = 0;
	p->keys.want.tries = 0;
	p->keys.want.next_ns = 0;
	p->keys.revoke_next_ns = 0;
	for (r = 0; r < p->nremotes; r++)
		rail_fence_event(p, r, RAIL_FENCE_EV_ALIVE, NULL);
}

/* Returns true if a peer is gone and needs no answers any longer, because it
 * has certainly ended or has been silent for RUN_GONE_NS. If such a peer is
 * alive after all, it sends a hello again. */
static bool run_deserted(const struct tei_rail_peer *p, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	if (p->state != RAIL_PEER_GONE || p->refusal.unauthenticated)
		return false;
	if (rail_peer_over(p) && p->alive_ns <= p->gone_ns)
		return true;
	return now > p->gone_ns + RUN_GONE_NS &&
	       now > p->alive_ns + RUN_GONE_NS;
}

/* Drops all answers that are still to be sent to the peer. */
static void run_drop_answers(struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	rail_fence_no_answers(p);
	p->keys.reply.answer_pending = false;
	p->hello.reply = false;
	p->note_in.answer_pending = false;
	p->probes.pong = false;
	p->probes.npongs = 0;
	p->keys.nowed = 0;
	p->refusal.incarnation = 0;
}

/* Handles requests that other threads have left for the progress thread.
 * Returns the time at which this function must be called again, or 0 if no
 * further call is needed. */
static uint64_t run_requests(struct tei_rail_peer *p, uint64_t now)
{
	bool short_of;

	rail_sched_enter(p->dp);
	if (run_deserted(p, now))
		run_drop_answers(p);
	if (p->life.revived)
		run_woken(p);
	if (p->addrs.found_at.len)
		rail_peer_take_hint(p);
	if (p->pairs.conns_short && !rail_conn_table(p))
		rail_peer_activate(p);
	short_of = p->pairs.conns_short;
	rail_sched_leave(p->dp);
	return short_of ? now + RUN_MEMORY_NS : 0;
}

uint64_t rail_peer_run(struct tei_rail_peer *p, uint64_t now)
{
	uint8_t buf[RAIL_MSG_MAX];
	uint64_t next = run_requests(p, now);

	rail_ctl_report(p);
	next = rail_ctl_sooner(next, rail_ctl_loss(p, now));
	next = rail_ctl_sooner(next, rail_ctl_fence_reply(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_pong(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_life(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_hello(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_refuse(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_fences(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_revoked(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_revokes(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_key_reply(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_key_want(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_warm(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_atomics(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_note_answer(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_notes(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_reverse(p, now, buf));
	next = rail_ctl_sooner(next, rail_ctl_served(p, now, buf));
	if (p->dp->ops->attend && !p->refusal.unauthenticated)
		next = rail_ctl_sooner(next,
				       p->dp->ops->attend(p->dp->arg, p, now));
	return rail_ctl_sooner(next, rail_ctl_deadlines(p, now));
}
