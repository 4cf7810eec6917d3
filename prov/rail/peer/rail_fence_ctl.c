/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends and handles the messages of the fence: the initiator sends FENCE, and
 * the target answers with FENCED. */

#include <rdma/fi_errno.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_hello.h"
#include "prov/rail/peer/rail_recv.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_resend.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/lock.h"
#include "util/settings.h"

/* Returns true if a fence is no longer needed: the peer has been gone for a
 * while and no task or slice waits for it. If the owner of the data plane
 * refers to the peer, the fence is requested for a longer time. */
static bool fence_forlorn(const struct tei_rail_peer *p, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t some = 2 * p->dp->settings->failure.fence_ms * TEI_NS_PER_MS;

	return p->state == RAIL_PEER_GONE && !rail_peer_busy(p) &&
	       now > p->gone_ns + (p->refs ? p->dp->times.probe_ns : some);
}

static uint64_t fence_ask(struct tei_rail_peer *p, uint16_t r, uint64_t now,
			  uint8_t *buf)
{
	struct rail_fence_args sent = { .now = now };
	struct rail_fence f;
	struct rail_wire w;
	uint64_t since;
	uint16_t id;
	size_t len;
	bool left;
	int ret;

	rail_sched_enter(p->dp);
	if (fence_forlorn(p, now))
		rail_fence_event(p, r, RAIL_FENCE_EV_UNNEEDED, NULL);
	f = p->remotes[r].fence;
	id = p->remotes[r].id;
	left = rail_ctl_left(p);
	rail_sched_leave(p->dp);
	if (!rail_fence_outstanding(&f))
		return 0;
	if (now < f.next_ns)
		return f.next_ns;
	rail_msg_begin(p, &w, buf, RAIL_MSG_FENCE, 0);
	rail_wire_put(&w, id, 2);
	rail_wire_put(&w, f.gen, 4);
	len = rail_msg_end(&w);
	ret = rail_msg_send(p, buf, len, f.tries);
	since = f.since_ns ? f.since_ns : now;
	sent.gen = f.gen;
	sent.tries = f.tries;
	sent.next_ns = rail_ctl_sent(p, ret, now, &sent.tries);
	if (left)
		sent.next_ns = rail_ctl_rarely(p, now);
	else
		rail_ctl_unanswered(p, now, since);
	rail_sched_enter(p->dp);
	rail_fence_event(p, r, RAIL_FENCE_EV_SENT, &sent);
	rail_sched_leave(p->dp);
	return sent.next_ns;
}

uint64_t rail_ctl_fences(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	uint16_t r, n = rail_peer_remotes(p);
	uint64_t next = 0;

	for (r = 0; r < n; r++)
		next = rail_ctl_sooner(next, fence_ask(p, r, now, buf));
	return next;
}

/* Composes FENCED for the local rail with index i. asked: generation that the
 * peer's FENCE has named. gen: generation of the next rx lane. Returns the
 * length of the message. */
static size_t fence_compose(struct tei_rail_peer *p, uint32_t i, uint32_t asked,
			    uint32_t gen, uint8_t *buf)
{
	const struct rail_lane *lane = &rail_at(p->dp, i)->rx_lane;
	const struct tei_rail_addr none = { .len = 0 };
	struct rail_wire w;

	rail_msg_begin(p, &w, buf, RAIL_MSG_FENCED, 0);
	rail_wire_put(&w, i, 2);
	rail_wire_put(&w, asked, 4);
	rail_wire_put(&w, gen, 4);
	rail_addr_put(&w, lane->ep ? &lane->addr : &none);
	return rail_msg_end(&w);
}

uint64_t rail_ctl_fence_reply(struct tei_rail_peer *p, uint64_t now,
			      uint8_t *buf)
{
	struct tei_rail_dp *dp = p->dp;
	uint32_t i, gen, tries = 1;
	struct rail_fence_peer f;
	uint64_t next = 0;
	int ret;

	rail_sched_enter(dp);
	f.due = p->fence.due;
	if (f.due)
		memcpy(f.due_gen, p->fence.due_gen, sizeof(f.due_gen));
	rail_sched_leave(dp);
	for (i = 0; f.due && i < rail_count(dp); i++) {
		if (!(f.due & UINT64_C(1) << i))
			continue;
		gen = rail_fence_request(rail_at(dp, i), f.due_gen[i]);
		/* while the lane is still being closed, no answer is sent;
		 * rail_fence_run puts the peer on the attention list when it is
		 * closed */
		if (!gen)
			continue;
		ret = rail_msg_send(
			p, buf, fence_compose(p, i, f.due_gen[i], gen, buf), 0);
		if (ret == -FI_EAGAIN) {
			next = rail_ctl_sent(p, ret, now, &tries);
			continue;
		}
		rail_sched_enter(dp);
		rail_fence_answered(p, (uint16_t)i, f.due_gen[i]);
		rail_sched_leave(dp);
	}
	return next;
}

void rail_fence_on_request(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t id = (uint16_t)rail_wire_get(w, 2);
	uint32_t gen = (uint32_t)rail_wire_get(w, 4);

	/* a generation that does not exist yet cannot be fenced */
	if (w->bad || id >= rail_count(peer->dp) ||
	    gen > rail_at(peer->dp, id)->rx_lane.gen)
		return;
	rail_fence_requested(peer, id, gen);
}

void rail_fence_on_reply(struct tei_rail_peer *peer, struct rail_wire *w,
			 struct rail_done *done) TEI_REQUIRES(rail_sched_held)
{
	uint16_t id = (uint16_t)rail_wire_get(w, 2);
	uint32_t asked = (uint32_t)rail_wire_get(w, 4);
	uint32_t gen = (uint32_t)rail_wire_get(w, 4);
	struct rail_remote in, *r = rail_peer_remote(peer, id);

	if (!r || w->bad || gen <= asked)
		return;
	in = *r;
	in.gen = gen;
	rail_addr_get(w, &in.addr);
	if (w->bad)
		return;
	if (r->gen < gen)
		rail_peer_take_remote(peer, &in, done);
	else
		rail_fence_event(peer, (uint16_t)(r - peer->remotes),
				 RAIL_FENCE_EV_CLOSED,
				 &(struct rail_fence_args){ .gen = gen - 1,
							    .done = done });
}
