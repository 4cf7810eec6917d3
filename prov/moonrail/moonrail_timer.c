/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_msg.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/moonrail/moonrail_wire.h"
#include "prov/rail/tei_rail.h"
#include "util/channel.h"
#include "util/clock.h"
#include "util/list.h"

/*
 * The timer of a peer: requests acknowledgements, and fails a peer that is
 * silent.
 */

#define TIMER_LAST_NS	(20 * TEI_NS_PER_MS)	/* time for which late messages
						 * are accepted after a BYE */
#define TIMER_LATE_NS	(1000 * TEI_NS_PER_MS)	/* if the timer is later than
						 * this, the process was
						 * suspended */

/* The first and the longest interval of the PINGs. */
static const struct tei_channel_pace timer_pace = { MOONRAIL_PING_NS,
						    200 * TEI_NS_PER_MS };

/* Returns true if the peer has timed out. If this process was suspended, the
 * time by which the timer is late does not count as silence of the peer. */
static bool timer_expired(struct moonrail_peer *p, uint64_t now)
{
	uint64_t max =
		p->domain->settings.failure.slice_timeout_s * TEI_NS_PER_SEC;
	uint64_t late = now - p->timer.next_ns;

	if (!p->timer.silent_ns)
		p->timer.silent_ns = now;
	if (late > TIMER_LATE_NS)
		p->timer.silent_ns = p->timer.silent_ns + late < now ?
					     p->timer.silent_ns + late : now;
	return now - p->timer.silent_ns > max;
}

/* Returns true if the stream has made progress since the last run, so that no
 * PING is needed: messages have been acknowledged, or new messages were created
 * and the peer owes no answer. answer_pending: the peer owes an answer. */
static bool timer_moves(struct moonrail_peer *p, bool answer_pending)
{
	bool moves = p->out.channel.acked != p->timer.last_acked ||
		     (!answer_pending &&
		      p->out.channel.next != p->timer.last_seq);

	if (!answer_pending)
		p->timer.silent_ns = 0;
	p->timer.last_acked = p->out.channel.acked;
	p->timer.last_seq = p->out.channel.next;
	return moves;
}

/*
 * Handles the BYE of a peer. Messages from before the BYE may still arrive over
 * another rail, or a thread may have read them and not handled them yet. These
 * messages are still accepted: the peer fails only TIMER_LAST_NS later.
 */
static uint64_t timer_peer_gone(struct moonrail_peer *p, uint64_t now)
	TEI_REQUIRES(moonrail_held)
{
	if (!p->timer.bye_ns)
		p->timer.bye_ns = now + TIMER_LAST_NS;
	if (now < p->timer.bye_ns)
		return p->timer.bye_ns;
	moonrail_peer_fail(p, FI_ECONNRESET);
	return 0;
}

static uint64_t timer_run(struct moonrail_peer *p, uint64_t now)
	TEI_REQUIRES(moonrail_held)
{
	bool answer_pending;

	if (p->incarnation && tei_rail_peer_gone(p->rail))
		return timer_peer_gone(p, now);
	moonrail_fin_send(p);
	if (p->incarnation)
		moonrail_stream_flush(p);
	/* with answer_pending set, the operations time out if the peer does not
	 * send an answer that it owes */
	answer_pending = !p->silent &&
			 (p->fin.n || !tei_list_empty(&p->out.queue) ||
			  !tei_list_empty(&p->out.sent) || p->flow.nblocked ||
			  !tei_list_empty(&p->ops.waiting) ||
			  !tei_list_empty(&p->ops.checking) ||
			  !tei_list_empty(&p->ops.waiting_for_key));
	if (!p->timer.next_ns || now < p->timer.next_ns)
		return p->timer.next_ns || !answer_pending ? p->timer.next_ns
						     : now + MOONRAIL_PING_NS;
	if (timer_moves(p, answer_pending)) {
		p->timer.tries = 0;
		p->timer.next_ns = now + MOONRAIL_PING_NS;
		return p->timer.next_ns;
	}
	if (!answer_pending) {
		p->timer.next_ns = 0;
		return 0;
	}
	if (timer_expired(p, now)) {
		moonrail_peer_fail(p, FI_ETIMEDOUT);
		return 0;
	}
	if (p->incarnation) {
		p->timer.ping_seq = p->out.channel.sent;
		moonrail_stream_post_loose(p, MOONRAIL_WIRE_PING, 0, false);
	}
	p->timer.next_ns =
		now + tei_channel_pause(&timer_pace, ++p->timer.tries);
	return p->timer.next_ns;
}

/* Runs the timer of a peer that has failed. */
static uint64_t timer_run_failed(struct moonrail_peer *p, uint64_t now)
	TEI_REQUIRES(moonrail_held)
{
	if (p->contact.reads_until_ns && now >= p->contact.reads_until_ns)
		moonrail_peer_end_waiting(p);
	return p->contact.reads_until_ns;
}

uint64_t moonrail_peer_run(struct moonrail_domain *d,
			   struct tei_rail_peer *rail, uint64_t now)
{
	uint64_t inc = tei_rail_peer_incarnation(rail);
	struct moonrail_peer *p;

	if (inc) {
		p = moonrail_peer_find(d, inc);
		if (!p || p->rail != rail)
			return 0;
		return moonrail_peer_lives(p) ? timer_run(p, now)
					      : timer_run_failed(p, now);
	}
	/* the peer is a resolver */
	tei_list_foreach(p, &d->peers, struct moonrail_peer, link) {
		if (p->rail != rail || p->replaced_by)
			continue;
		if (!moonrail_peer_lives(p))
			return timer_run_failed(p, now);
		inc = tei_rail_peer_found(rail);
		return inc && moonrail_peer_found(p, inc) ? 0
							  : timer_run(p, now);
	}
	return 0;
}

bool moonrail_peer_flushed(struct moonrail_domain *d)
{
	struct moonrail_peer *p;

	tei_list_foreach(p, &d->peers, struct moonrail_peer, link)
		if (moonrail_peer_receives(p) &&
		    (!tei_list_empty(&p->out.queue) ||
		     !tei_list_empty(&p->out.sent) || p->flow.nblocked ||
		     p->fin.n))
			return false;
	return true;
}

bool moonrail_peer_confirmed(struct moonrail_domain *d)
{
	struct moonrail_peer *p;
	bool all = true;

	tei_list_foreach(p, &d->peers, struct moonrail_peer, link) {
		if (!p->in.unacked || !moonrail_peer_receives(p) ||
		    tei_rail_peer_gone(p->rail))
			continue;
		/* the ACK must be sent before the BYE of this domain */
		moonrail_stream_post_loose(p, MOONRAIL_WIRE_ACK, 0, false);
		all = all && !p->in.unacked;
	}
	return all;
}
