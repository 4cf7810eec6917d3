/* SPDX-License-Identifier: BSD-2-Clause */
/* Handles hellos and refusals from peers, and keeps the table of a peer's
 * rails. */

#include <stdio.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_atomic_ctl.h"
#include "prov/rail/peer/rail_hello.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/lock.h"
#include "util/secret.h"

/* Returns the entry of peer->remotes for the peer's rail with number id, or
 * NULL. */
struct rail_remote *rail_peer_remote(struct tei_rail_peer *peer, uint16_t id)
{
	uint16_t i;

	for (i = 0; i < peer->nremotes; i++)
		if (peer->remotes[i].id == id && !peer->remotes[i].hint)
			return &peer->remotes[i];
	return NULL;
}

/* Stores the description of a rail of the peer, if the rail is new or has a
 * newer generation. Returns false if memory is short. */
bool rail_peer_take_remote(struct tei_rail_peer *peer,
			    const struct rail_remote *in,
			    struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_remote *r = rail_peer_remote(peer, in->id);
	struct rail_fence fence;

	/* the peer may open a closed lane again, and then sends its address
	 * with the same generation */
	if (r && (r->gen > in->gen ||
		  (r->gen == in->gen && (r->addr.len || !in->addr.len))))
		return true;
	if (!r) {
		/* keys that were received earlier do not include one for this
		 * rail */
		rail_key_drop_all(peer);
		if (rail_peer_reserve(peer, peer->nremotes + 1u))
			return false;
		r = &peer->remotes[peer->nremotes++];
		memset(r, 0, sizeof(*r));
	} else if (in->gen_keys) {
		rail_key_drop_all(peer);
	}
	fence = r->fence;
	*r = *in;
	r->fence = fence;
	r->away = !in->addr.len;
	r->serial = ++peer->serial;
	peer->routes.changed = true;
	rail_peer_attend(peer);
	/* a new generation means that the target has closed all earlier ones */
	rail_fence_event(
		peer, (uint16_t)(r - peer->remotes), RAIL_FENCE_EV_CLOSED,
		&(struct rail_fence_args){ .gen = in->gen - 1, .done = done });
	return true;
}

/* Marks the rails that the peer no longer lists as closed. */
static void hello_drop_missing(struct tei_rail_peer *peer, const bool *listed,
			     struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_fence_args args = { .gen = UINT32_MAX - 1, .done = done };
	uint16_t i;

	for (i = 0; i < peer->nremotes; i++) {
		if (peer->remotes[i].hint || listed[peer->remotes[i].id])
			continue;
		peer->remotes[i].away = false;
		if (!peer->remotes[i].addr.len)
			continue;
		memset(&peer->remotes[i].addr, 0,
		       sizeof(peer->remotes[i].addr));
		peer->remotes[i].serial = ++peer->serial;
		rail_fence_event(peer, i, RAIL_FENCE_EV_CLOSED, &args);
	}
}

/* Handles a hello. for_us: true if the hello names this process as its
 * receiver, or names no receiver. to_us: true if the hello names this process.
 * If the hello names another process, its nonce is not meant for this
 * process. */
void rail_hello_received(struct tei_rail_peer *peer, const struct rail *rail,
			 const struct rail_hello *h, uint16_t flags, uint32_t table, bool for_us,
			 bool to_us, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t i;

	if (peer->state == RAIL_PEER_GONE)
		return;
	if (!*peer->name)
		snprintf(peer->name, sizeof(peer->name), "%s", h->name);
	if (for_us)
		memcpy(peer->auth.its_nonce, h->nonce,
		       sizeof(peer->auth.its_nonce));
	peer->hello.known_us = true;
	peer->hello.again = false;
	peer->hello.refusals = 0;
	if (to_us && h->ack > peer->hello.table_acked)
		peer->hello.table_acked = h->ack;
	if (to_us)
		rail_atomic_session(peer, h->session, done);
	if (flags & RAIL_WIRE_REPLY)
		peer->hello.reply = true;
	peer->addrs.its_contact = h->contact;
	if (table > peer->hello.table_seen || peer->state == RAIL_PEER_NEW) {
		/* if memory is short the peer keeps its contact addresses, and
		 * it will repeat the hello */
		if (peer->state == RAIL_PEER_NEW) {
			if (rail_peer_reserve(peer, h->n))
				return;
			rail_contact_answered(peer, rail, h->answers);
			peer->nremotes = 0;
		}
		for (i = 0; i < h->n; i++)
			if (!rail_peer_take_remote(peer, &h->remotes[i], done))
				return;
		hello_drop_missing(peer, h->listed, done);
		rail_peer_take_contacts(peer, h->contacts, h->ncontacts);
		rail_peer_drop_hint(peer);
		if (rail_conn_table(peer))
			return;
		peer->hello.table_seen = table;
		if (peer->state == RAIL_PEER_NEW)
			rail_peer_ready(peer);
	}
	rail_peer_attend(peer);
	rail_peer_activate(peer);
	rail_progress_signal(peer->dp);
}

/*
 * Handles that another process has refused a hello to a READY peer. One of the
 * peer's addresses may exist on several hosts, so the refusal does not prove
 * that the peer has ended: it may answer at its other addresses. Sends the
 * hello again, over the next rail pair. Returns false if as many hellos were
 * refused as the peer has addresses, and the peer has not sent a hello in
 * between.
 */
static bool hello_elsewhere(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t i, n = 0;

	if (peer->state != RAIL_PEER_READY)
		return false;
	for (i = 0; i < peer->nremotes; i++)
		n += peer->remotes[i].addr.len != 0;
	if (++peer->hello.refusals >= n)
		return false;
	peer->hello.again = true;
	peer->hello.next_ns = 0;
	rail_peer_attend(peer);
	rail_progress_signal(peer->dp);
	return true;
}

/*
 * Handles a REFUSE. Such a message carries the nonce of the refused hello, so
 * that an attacker cannot replay the refusal of another hello. The nonce is
 * enough proof as long as the peer has not answered, because an attacker able
 * to read the hello can also keep the two processes from connecting. Once the
 * peer has answered, the refusal must be signed.
 */
void rail_refuse_received(struct tei_rail_dp *dp, struct rail_wire *w,
			  bool proven, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t refused = rail_wire_get(w, 8);
	uint16_t code = (uint16_t)rail_wire_get(w, 2);
	uint8_t nonce[RAIL_WIRE_NONCE];
	struct tei_rail_peer *peer;
	uint16_t contact = 0;
	char reason[128];

	rail_wire_get_text(w, reason, sizeof(reason));
	rail_wire_get_raw(w, nonce, sizeof(nonce));
	if (!w->bad && w->pos < w->cap)
		contact = (uint16_t)rail_wire_get(w, 2);
	peer = w->bad ? NULL : rail_peer_find(dp, refused);
	if (!peer)
		return;
	if (!proven && peer->state != RAIL_PEER_NEW)
		return;
	if ((dp->conf.signs || !proven) &&
	    !tei_mac_equal(nonce, peer->auth.nonce, sizeof(nonce)))
		return;
	/* If a process with another incarnation answers at one address, this
	 * does not prove that the peer has ended: the peer may have other
	 * addresses. */
	if (code != RAIL_REFUSE_STALE)
		rail_peer_refused(peer, reason, done);
	else if (!rail_contact_refused(peer, contact) &&
		 !rail_peer_not_there(peer) && !hello_elsewhere(peer))
		rail_peer_set_gone(peer, reason, rail_peer_searched(peer) ?
				   RAIL_GONE_PERHAPS : RAIL_GONE_OVER, done);
}
