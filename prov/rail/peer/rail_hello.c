/* SPDX-License-Identifier: BSD-2-Clause */
/* Sends hellos, refusals and BYE, and connects rail pairs for a warm-up. */

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>

#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_hello_msg.h"
#include "prov/rail/peer/rail_notify.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_resend.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

#define HELLO_SILENT_TRIES 120
#define HELLO_UNFENCED_NS	(3600 * TEI_NS_PER_SEC)
/* Time for which rail_peer_bye_test waits for the answer of a port. */
#define HELLO_BYE_PORT_NS	(5 * TEI_NS_PER_MS)

/*
 * Returns true if an unused peer has been silent for so long that it can be
 * forgotten. A peer of which a fence was abandoned must be fenced when it
 * answers again, so it is kept for a longer time: until no TCP stack can still
 * hold data for it.
 */
static bool hello_too_silent(const struct tei_rail_peer *p, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	if (rail_fence_failed(&p->fence))
		return p->life.probing &&
		       now > p->life.probe_ns + HELLO_UNFENCED_NS;
	return p->hello.tries > HELLO_SILENT_TRIES ||
	       (p->life.probing &&
		now > p->life.probe_ns + p->dp->times.probe_ns / 3);
}

/* Forgets an unused peer that no longer answers. Returns true if the peer was
 * forgotten. An unused peer has no posted slices, so nothing can land later. */
static bool hello_forget_silent(struct tei_rail_peer *p, uint64_t now)
{
	struct rail_done done;
	bool forget;

	rail_done_init(&done);
	rail_sched_enter(p->dp);
	forget = rail_peer_unused(p) && hello_too_silent(p, now);
	if (forget)
		rail_peer_forget(p, "the peer does not answer", &done);
	rail_sched_leave(p->dp);
	rail_done_run(p->dp, &done);
	return forget;
}

/* Fails the tasks of a peer that no local rail can reach. */
static void hello_no_route(struct tei_rail_peer *p)
{
	struct tei_rail_task *t, *tmp;
	struct rail_done done;
	struct tei_err err;

	memset(&err, 0, sizeof(err));
	err.code = TEI_ERR_NO_DEVICE;
	err.when_ns = tei_now_ns();
	snprintf(err.peer, sizeof(err.peer), "%.95s", p->name);
	snprintf(err.text, sizeof(err.text),
		 "no local rail matches the peer's provider and address");
	snprintf(err.hint, sizeof(err.hint),
		 "install the same transport on both sides");
	rail_done_init(&done);
	rail_sched_enter(p->dp);
	if (!tei_list_empty(&p->tasks.live))
		TEI_ERROR("rail", "%s: %s", p->name, err.text);
	tei_list_foreach_safe (t, tmp, &p->tasks.live, struct tei_rail_task,
			       live_link)
		rail_task_end_unpurged(p->dp, t, TEI_RAIL_END_FAILED, &err,
				       &done);
	rail_task_purge(p, &done);
	rail_notify_fail(p, &err);
	rail_sched_leave(p->dp);
	rail_done_run(p->dp, &done);
}

/* Returns true if a peer that is in use has no address at present, because all
 * its rails are being opened again. The announcement of its new addresses may
 * have gone to an old address of this process. No connection is left whose loss
 * this process would notice. */
static bool hello_nowhere(const struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t i;

	for (i = 0; i < p->nremotes; i++)
		if (p->remotes[i].addr.len)
			return false;
	return p->refs && p->state == RAIL_PEER_READY;
}

/* Returns true if the peer does not seem to know this process, so that a hello
 * must be sent again. A peer that may have gone is contacted only for a
 * fence. */
static bool hello_again(const struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	return p->hello.again && !rail_peer_orphaned(p) &&
	       (p->state != RAIL_PEER_GONE || rail_fence_any(p));
}

/* Sends the hello to the address at which the peer was found, over any rail
 * that reaches this address. A failure does not count against the rails,
 * because the address may be wrong. */
static int hello_to_hint(struct tei_rail_peer *p, const uint8_t *buf, size_t len)
{
	uint32_t i, n = rail_count(p->dp);
	int16_t at[TEI_RAIL_MAX];
	struct rail_lane *lane;
	struct rail_conn *conn;

	rail_sched_enter(p->dp);
	for (i = 0; i < n; i++)
		at[i] = rail_peer_hint(p, rail_at(p->dp, i));
	rail_sched_leave(p->dp);
	for (i = 0; i < n; i++) {
		if (at[i] < 0)
			continue;
		if (!rail_msg_try_pair(p, rail_at(p->dp, i), 0, at[i], buf, len,
				       &lane, &conn))
			return 0;
		if (lane)
			rail_lane_run(lane);
	}
	return -FI_EAGAIN;
}

/* Sends the hello alternately over the known routes and to the address at which
 * the peer was found. Possibly only one of these works, and sending over the
 * other reports no error. */
static int hello_send(struct tei_rail_peer *p, uint8_t *buf, size_t len,
		      uint64_t now, uint32_t attempt)
{
	if (p->state == RAIL_PEER_NEW && !p->hello.known_us)
		return rail_contact_hello(p, buf, len, now, attempt);
	if (p->hello.again && p->addrs.hint_turn++ % 2 &&
	    !hello_to_hint(p, buf, len))
		return 0;
	return rail_msg_send(p, buf, len, attempt);
}

uint64_t rail_ctl_hello(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	struct tei_rail_dp *dp = p->dp;
	bool reply, ask, announce, probe, stuck, left, nowhere;
	size_t len;
	int ret;

	if (p->refusal.unauthenticated)
		return 0;
	/* while a lane is being opened, the rail table would not list it */
	if (rail_fence_rx_any(dp))
		return now + RAIL_CTL_RETRY_NS;
	rail_sched_enter(dp);
	if (p->hello.announce) {
		p->hello.announce = false;
		p->hello.tries = 0;
		p->hello.next_ns = 0;
	}
	reply = p->hello.reply;
	stuck = p->pairs.stuck;
	if (stuck) {
		TEI_DEBUG_LOG("rail", "peer %s: a connection is not established",
			      p->name);
		p->pairs.stuck = false;
		p->hello.again = true;
	}
	left = rail_ctl_left(p);
	ask = (p->hello.wanted && p->state == RAIL_PEER_NEW &&
	       !rail_peer_orphaned(p)) ||
	      (!left && hello_again(p));
	nowhere = !ask && !left && hello_nowhere(p);
	announce = p->state == RAIL_PEER_READY && p->hello.known_us &&
		   p->hello.table_acked < dp->peers.table;
	p->hello.reply = nowhere && reply;
	probe = p->life.probing && p->state == RAIL_PEER_READY;
	rail_sched_leave(dp);
	if (stuck)
		rail_renew_stuck(p, now);
	if (!ask && !nowhere)
		p->hello.asked_ns = 0;
	else if (!p->hello.asked_ns || rail_use_first(dp))
		/* the time in which this process has no open tx lane, and so
		 * cannot send the hello, is no silence of the peer */
		p->hello.asked_ns = now;
	/* the peer is in use again, so its next hello is due earlier */
	if (ask && p->hello.next_ns > now + RAIL_CTL_RARELY_NS)
		p->hello.next_ns = now;
	if (nowhere) {			/* the peer has no address at which it
					 * can be reached at present */
		rail_ctl_check(p, now, p->hello.asked_ns);
		return rail_ctl_again(p, now);
	}
	if (!reply && !ask && !announce && !probe)
		return 0;
	if (!reply && now < p->hello.next_ns)
		return p->hello.next_ns;
	if ((announce || probe) && !ask && hello_forget_silent(p, now))
		return 0;
	/* the peer repeats its hello, so it has not received our answers */
	if (reply && p->state == RAIL_PEER_READY)
		rail_renew_silent(p, now);
	len = rail_msg_hello(p, ask || announce || probe, buf);
	ret = hello_send(p, buf, len, now, reply ? 0 : p->hello.tries);
	if (ret && reply) {
		rail_sched_enter(dp);
		p->hello.reply = true;
		rail_sched_leave(dp);
	}
	if (ask)
		rail_ctl_unanswered(p, now, p->hello.asked_ns);
	if (ask && ret == -FI_EHOSTUNREACH)
		hello_no_route(p);
	p->hello.next_ns = rail_ctl_sent(p, ret, now, &p->hello.tries);
	if (left && p->hello.next_ns < rail_ctl_rarely(p, now))
		p->hello.next_ns = rail_ctl_rarely(p, now);
	return p->hello.next_ns;
}

uint64_t rail_ctl_refuse(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	struct rail_wire w;
	uint32_t tries = 1;
	const char *said;
	size_t len;
	int ret;

	if (!p->refusal.incarnation)
		return 0;
	said = rail_refusal_text(p->refusal.reason);
	rail_msg_begin(p, &w, buf, RAIL_MSG_REFUSE, 0);
	rail_wire_put(&w, p->refusal.incarnation, 8);
	rail_wire_put(&w, p->refusal.reason, 2);
	rail_wire_put_bytes(&w, said, strlen(said));
	rail_wire_put_raw(&w, p->refusal.nonce, sizeof(p->refusal.nonce));
	rail_wire_put(&w, p->refusal.contact, 2);
	len = rail_msg_end(&w);
	ret = rail_msg_send(p, buf, len, 0);
	if (ret == -FI_EAGAIN && !(p->refusal.unauthenticated &&
				   now > p->refusal.unauthenticated_ns))
		return rail_ctl_sent(p, ret, now, &tries);
	p->refusal.incarnation = 0;
	return 0;
}

/*
 * Returns true if the rail's route is not connected yet; in this case sends a
 * hello over the route. A successful send does not prove that the route is
 * connected, because the connection may have been lost before.
 */
static bool hello_warm(struct tei_rail_peer *p, struct rail *rail, uint32_t index,
		       const uint8_t *buf, size_t len)
{
	enum rail_msg_link link = rail_msg_link(p, rail, index);

	if (link == RAIL_MSG_LINKED)
		return false;
	return link == RAIL_MSG_LINKING ||
	       rail_msg_send_on(p, rail, index, buf, len) != -FI_EHOSTUNREACH;
}

uint64_t rail_ctl_warm(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	struct tei_rail_dp *dp = p->dp;
	uint32_t i, l, cold, L = dp->settings->lanes.per_rail;
	size_t len;
	bool left = false;

	rail_sched_enter(dp);
	left = p->hello.warm_wanted && p->state == RAIL_PEER_READY;
	rail_sched_leave(dp);
	if (!left)
		return 0;
	/* while a lane is being opened, the rail table would not list it */
	if (rail_fence_rx_any(dp))
		return now + RAIL_CTL_RETRY_NS;
	left = false;
	len = rail_msg_hello(p, false, buf);
	for (i = 0; i < rail_count(dp); i++) {
		if (!(p->hello.warm_left & (UINT64_C(1) << i)))
			continue;
		for (l = 0, cold = 0; l < L; l++)
			cold += hello_warm(p, rail_at(dp, i), l, buf, len);
		if (!cold)
			p->hello.warm_left &= ~(UINT64_C(1) << i);
		left |= cold != 0;
	}
	if (left)
		return rail_ctl_again(p, now);
	rail_sched_enter(dp);
	p->hello.warm_wanted = false;
	rail_sched_leave(dp);
	rail_progress_signal(dp);
	return 0;
}

/* Returns true if writes of this process to the peer may still be in
 * transit. */
static bool hello_undrained(struct tei_rail_peer *p)
{
	bool undrained;

	rail_sched_enter(p->dp);
	undrained = p->tasks.posted || rail_fence_failed(&p->fence) ||
		    !tei_list_empty(&p->tasks.awaiting_fence);
	rail_sched_leave(p->dp);
	return undrained;
}

/* Returns true if the peer knows this process and BYE has not been sent to
 * it. */
static bool hello_bye_due(const struct tei_rail_peer *p)
{
	return p->state == RAIL_PEER_READY && p->hello.known_us &&
	       !p->hello.bye_sent;
}

void rail_peer_bye_test(struct tei_rail_dp *dp, uint32_t turn)
{
	struct tei_rail_peer *p;
	uint32_t n = 0;

	tei_list_foreach (p, &dp->peers.list, struct tei_rail_peer, link)
		n += hello_bye_due(p);
	turn = n ? turn % n : 0;
	tei_list_foreach (p, &dp->peers.list, struct tei_rail_peer, link)
		if (hello_bye_due(p) && !turn--) {
			p->hello.bye_sent =
				rail_presume_closed(p, HELLO_BYE_PORT_NS);
			return;
		}
}

/* Sends BYE to every peer that knows this process, when the data plane is
 * closed. Returns true when BYE has been sent to all of these peers. */
bool rail_peer_bye(struct tei_rail_dp *dp)
{
	uint8_t buf[RAIL_MSG_MAX];
	struct tei_rail_peer *p;
	struct rail_wire w;
	bool all = true;

	tei_list_foreach (p, &dp->peers.list, struct tei_rail_peer, link) {
		if (!hello_bye_due(p))
			continue;
		rail_msg_begin(p, &w, buf, RAIL_MSG_BYE,
			       hello_undrained(p) ? RAIL_WIRE_UNDRAINED : 0);
		if (rail_msg_send(p, buf, rail_msg_end(&w), 0) == -FI_EAGAIN)
			all = false;
		else
			p->hello.bye_sent = true;
	}
	return all;
}

int tei_rail_peer_warmup(struct tei_rail_peer *p, uint64_t timeout_ns,
			 struct tei_err *err)
{
	struct tei_rail_dp *dp = p->dp;
	uint64_t end = tei_now_ns() + timeout_ns, now;
	bool warm;

	rail_sched_enter(dp);
	p->hello.wanted = true;
	p->hello.warm_wanted = true;
	p->hello.warm_left = UINT64_MAX;
	rail_peer_attend(p);
	for (;;) {
		now = tei_now_ns();
		warm = !p->hello.warm_wanted;
		if (warm || now >= end || p->state == RAIL_PEER_GONE)
			break;
		rail_sched_wait(dp, end - now);
	}
	rail_sched_leave(dp);
	if (warm)
		return 0;
	return tei_err_fail(err, TEI_ERR_ENDPOINT, "rail", NULL,
			    "%s: not all rails could be connected in time",
			    p->name);
}
