/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handles received messages of the peer protocol: checks the header and the
 * signature, finds the sender, and calls the handler of the message type. A
 * state machine of the sender repeats each request until it is answered, so
 * every handler must accept the same message twice.
 */

#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/peer/rail_atomic_ctl.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_hello.h"
#include "prov/rail/peer/rail_hello_msg.h"
#include "prov/rail/peer/rail_notify.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/peer/rail_recv.h"
#include "prov/rail/peer/rail_reverse.h"
#include "prov/rail/peer/rail_served.h"
#include "prov/rail/rail_dispatch.h"
#include "prov/rail/wire/rail_auth.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

#define MSG_SILENT_NS (200 * TEI_NS_PER_MS)

static void msg_dispatch(struct tei_rail_peer *peer, struct rail_lane *lane,
			 enum rail_msg_type type, uint16_t flags,
			 uint32_t table, struct rail_wire *w,
			 struct rail_done *done) TEI_REQUIRES(lane->lock)
	TEI_REQUIRES(rail_sched_held)
{
	switch (type) {
	case RAIL_MSG_KEY_REQ:
		rail_key_on_request(peer, w);
		break;
	case RAIL_MSG_KEY_REP:
		rail_key_on_reply(peer, w, table, done);
		break;
	case RAIL_MSG_FENCE:
		rail_fence_on_request(peer, w);
		break;
	case RAIL_MSG_FENCED:
		rail_fence_on_reply(peer, w, done);
		break;
	case RAIL_MSG_REVOKE:
		rail_key_on_revoke(peer, w, done);
		break;
	case RAIL_MSG_REVOKED:
		rail_key_on_revoked(peer, w);
		break;
	case RAIL_MSG_NOTIFY:
		rail_notify_received(peer, flags, w, done);
		break;
	case RAIL_MSG_NOTE_ACK:
		rail_notify_answered(peer, w);
		break;
	case RAIL_MSG_ATOMIC:
		rail_atomic_asked(peer, w);
		break;
	case RAIL_MSG_ATOMIC_REP:
		rail_atomic_answered(peer, w, done);
		break;
	case RAIL_MSG_USER:
		rail_reverse_missed(peer, lane);
		rail_user_received(peer, w, done);
		break;
	case RAIL_MSG_PING:
		rail_msg_on_ping(peer, lane, w);
		break;
	case RAIL_MSG_PONG:
		rail_msg_on_pong(peer, w);
		break;
	case RAIL_MSG_REVERSE:
		rail_reverse_notified(peer, lane, w);
		break;
	case RAIL_MSG_BYTES:
		rail_served_reported(peer, w);
		break;
	case RAIL_MSG_BYE:
		rail_peer_set_gone(peer, "the peer closed its engine",
				   flags & RAIL_WIRE_UNDRAINED ? RAIL_GONE_OVER
							       : RAIL_GONE_LEFT,
				   done);
		break;
	default:
		break;
	}
}

static void msg_log_bad(struct rail *rail, const char *what)
{
	tei_log_repeated(&rail->errors.repeat, TEI_LOG_WARN, "rail",
			 "%s: message dropped: %s", rail->name, what);
}

/* The header of a received message. */
struct msg_head {
	enum rail_msg_type type;
	uint16_t flags;
	uint32_t table;
	uint64_t src, dst, number;
};

/* Reads the header of a message into h. Returns NULL, or the reason why the
 * header is not valid. */
static const char *msg_parse_head(struct rail_wire *w, struct msg_head *h)
{
	uint32_t magic = (uint32_t)rail_wire_get(w, 4), total;
	uint8_t version = (uint8_t)rail_wire_get(w, 1);

	h->type = (enum rail_msg_type)rail_wire_get(w, 1);
	h->flags = (uint16_t)rail_wire_get(w, 2);
	total = (uint32_t)rail_wire_get(w, 4);
	h->table = (uint32_t)rail_wire_get(w, 4);
	h->src = rail_wire_get(w, 8);
	h->dst = rail_wire_get(w, 8);
	h->number = rail_wire_get(w, 8);
	rail_wire_get(w, 8);
	rail_wire_get(w, 8);
	if (w->bad || magic != RAIL_WIRE_MAGIC || total != w->cap || !h->src)
		return "not a message of the peer protocol";
	if (version != RAIL_WIRE_VERSION)
		return "another protocol version";
	return NULL;
}

/* Checks the signature of a message. Returns RAIL_REFUSE_NONE, or the reason
 * why messages of this sender are refused. */
static enum rail_refusal msg_unauthenticated(struct tei_rail_dp *dp,
					     const struct msg_head *h,
					     const uint8_t *buf, size_t len)
	TEI_REQUIRES(rail_sched_held)
{
	bool is_signed = h->flags & RAIL_WIRE_SIGNED;

	if (!dp->conf.signs)
		return is_signed ? RAIL_REFUSE_NO_SECRET : RAIL_REFUSE_NONE;
	if (!is_signed)
		return RAIL_REFUSE_UNSIGNED;
	if (!rail_auth_fits(dp, rail_peer_find(dp, h->src), buf, len))
		return RAIL_REFUSE_SECRETS_DIFFER;
	return RAIL_REFUSE_NONE;
}

/* Records that a hello must be refused for the reason "why"; the progress
 * thread sends the refusal. Ignores messages of other types. */
static void msg_turn_away(struct tei_rail_dp *dp, const struct msg_head *h,
			  const struct rail_hello *hello, enum rail_refusal why)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *p;
	uint16_t i = 0;

	if (h->type != RAIL_MSG_HELLO || h->dst != dp->incarnation)
		return;
	while (i < hello->n &&
	       rail_conn_fit_any(dp, &hello->remotes[i].addr) < 0)
		i++;
	if (i == hello->n)
		return;
	p = rail_peer_unauthenticated(dp, h->src, &hello->remotes[i].addr, why);
	if (p)
		memcpy(p->refusal.nonce, hello->nonce,
		       sizeof(p->refusal.nonce));
}

/* Returns the peer that sent the message, or NULL. A hello may create the
 * peer. */
static struct tei_rail_peer *msg_sender(struct tei_rail_dp *dp,
					const struct msg_head *h,
					const struct rail_hello *hello)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *peer = rail_peer_find(dp, h->src);

	if (peer || h->type != RAIL_MSG_HELLO || h->src == dp->incarnation)
		return peer;
	peer = rail_peer_new(dp, "", h->src);
	/* If memory is short, no refusal is sent. The sender repeats the
	 * hello. */
	if (!peer && rail_peer_no_room(dp))
		msg_turn_away(dp, h, hello, RAIL_REFUSE_TOO_MANY_PEERS);
	return peer;
}

/*
 * If messages are signed, returns false for a message that was received before,
 * and for a hello that is older than another received hello. If messages are
 * not signed, always returns true. The sender numbers its messages separately
 * for each receiver, so the number of a message for another process is ignored.
 */
static bool msg_fresh(struct tei_rail_peer *peer, const struct msg_head *h)
{
	if (!peer->dp->conf.signs)
		return true;
	if (h->dst && h->dst != peer->dp->incarnation)
		return peer->state == RAIL_PEER_NEW;
	if (h->type == RAIL_MSG_HELLO &&
	    !rail_auth_newest_hello(peer, h->number))
		return false;
	return rail_auth_once(peer, h->number);
}

/* Records that a hello must be refused because it was meant for another
 * process, which had this address earlier. */
static void msg_refuse(struct tei_rail_peer *peer, uint64_t dst,
		       const struct rail_hello *hello)
	TEI_REQUIRES(rail_sched_held)
{
	if (peer->state == RAIL_PEER_GONE)
		return;
	peer->refusal.incarnation = dst;
	peer->refusal.reason = RAIL_REFUSE_STALE;
	memcpy(peer->refusal.nonce, hello->nonce, sizeof(peer->refusal.nonce));
	peer->refusal.contact = hello->contact;
	rail_peer_attend(peer);
}

/* Passes the addresses in a hello to the resolvers, because a resolver may be
 * searching for the sender of this hello. */
static void msg_seen(struct tei_rail_dp *dp, const struct msg_head *h,
		     const struct rail_hello *hello)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t i;

	for (i = 0; dp->peers.nresolvers && i < hello->n; i++)
		rail_user_seen(dp, h->src, &hello->remotes[i].addr);
	for (i = 0; dp->peers.nresolvers && i < hello->ncontacts; i++)
		rail_user_seen(dp, h->src, &hello->contacts[i]);
}

/*
 * Returns the rail pair over which the message arrived, as peer->life.received
 * stores it; answers use this pair. For a hello without a contact number,
 * returns only the local rail: a peer that knows only one contact address may
 * send this hello over any of its rails, so the remote rail is not necessarily
 * the peer's route. A hello to one of several contact addresses shows which
 * pair works.
 */
static int32_t msg_pair(const struct tei_rail_peer *peer,
			const struct rail *rail, const struct msg_head *h,
			uint16_t contact) TEI_REQUIRES(rail_sched_held)
{
	uint32_t by = h->flags >> RAIL_WIRE_BY_SHIFT & RAIL_WIRE_BY_MASK;
	uint16_t r;

	if (h->type == RAIL_MSG_HELLO && !contact)
		return (int32_t)rail->index;
	for (r = 0; by && r < peer->nremotes; r++)
		if (peer->remotes[r].id == by - 1)
			return (int32_t)rail->index |
			       (r + 1) << RAIL_RECEIVED_SHIFT;
	return (int32_t)rail->index;
}

/* Requests a hello to a peer that still uses the contact address although the
 * rx lane has moved. The hello lists the present addresses. */
static void msg_came_first(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held)
{
	if (peer->state != RAIL_PEER_READY)
		return;
	peer->hello.reply = true;
	rail_peer_attend(peer);
}

/* Handles a message of any type except REFUSE, from a sender whose messages are
 * accepted. */
static void msg_take(struct rail_lane *lane, const struct msg_head *h,
		     struct rail_wire *w, const struct rail_hello *hello,
		     struct rail_done *done) TEI_REQUIRES(lane->lock)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail *rail = lane->rail;
	struct tei_rail_dp *dp = rail->dp;
	struct tei_rail_peer *peer = msg_sender(dp, h, hello);
	bool to_us = h->dst == dp->incarnation;
	uint64_t now;

	if (!peer)
		return;
	if (h->type == RAIL_MSG_HELLO && h->dst && !to_us)
		msg_refuse(peer, h->dst, hello);
	if (!msg_fresh(peer, h))
		return;
	now = tei_now_ns();
	if (now - peer->alive_ns > MSG_SILENT_NS)
		rail_ctl_sleep_end(peer);
	rail_peer_alive(peer, now);
	if (h->type != RAIL_MSG_HELLO)
		__atomic_store_n(&peer->life.received,
				 msg_pair(peer, rail, h, 0), __ATOMIC_RELAXED);
	if (h->type == RAIL_MSG_HELLO) {
		msg_seen(dp, h, hello);
		rail_hello_received(peer, rail, hello, h->flags, h->table,
				    to_us || !h->dst, to_us, done);
		/* rail_hello_received has stored the peer's rails, so msg_pair
		 * can find the remote rail */
		__atomic_store_n(&peer->life.received,
				 msg_pair(peer, rail, h, hello->contact),
				 __ATOMIC_RELAXED);
	} else if (to_us) {
		if (lane->contact)
			msg_came_first(peer);
		rail_reverse_received(peer, lane);
		msg_dispatch(peer, lane, h->type, h->flags, h->table, w, done);
	}
}

/* If a caller reads the lane (lane->recv.visited), defers a control message to
 * the progress thread and returns true, so that the reading thread does not
 * handle the message. If memory is short, drops the message instead; its sender
 * will repeat it. Returns false for user messages, and if only the progress
 * thread reads the lane. */
static bool msg_set_deferred(struct rail_lane *lane, enum rail_msg_type type,
			     const uint8_t *buf, size_t len)
	TEI_REQUIRES(lane->lock)
{
	struct rail_deferred *a;

	if (!lane->recv.visited || type == RAIL_MSG_USER)
		return false;
	a = malloc(sizeof(*a) + len);
	if (a) {
		a->len = (uint32_t)len;
		memcpy(a->buf, buf, len);
		tei_list_add_tail(&lane->recv.deferred, &a->link);
		__atomic_store_n(&lane->recv.ndeferred,
				 lane->recv.ndeferred + 1, __ATOMIC_RELAXED);
		rail_progress_wake(lane->rail->dp);
	}
	return true;
}

void rail_msg_received(struct rail_lane *lane, const uint8_t *buf, size_t len,
		       struct rail_done *done)
{
	struct rail_wire w = { .p = (uint8_t *)(uintptr_t)buf, .cap = len };
	struct tei_rail_dp *dp = lane->rail->dp;
	enum rail_refusal refusal;
	struct rail_hello hello;
	struct msg_head h;
	const char *why = msg_parse_head(&w, &h);

	if (!why && !lane->is_rx && h.type != RAIL_MSG_USER)
		why = "a tx lane does not accept messages of this type";
	if (!why && msg_set_deferred(lane, h.type, buf, len))
		return;
	/* a malformed hello must not create an unauthenticated peer, so the
	 * hello is parsed first */
	if (!why && h.type == RAIL_MSG_HELLO && !rail_hello_parse(&w, &hello))
		why = "malformed hello";
	if (why) {
		msg_log_bad(lane->rail, why);
		return;
	}
	rail_sched_enter(dp);
	refusal = msg_unauthenticated(dp, &h, buf, len);
	if (h.type == RAIL_MSG_REFUSE && h.dst == dp->incarnation)
		rail_refuse_received(dp, &w, refusal == RAIL_REFUSE_NONE, done);
	else if (refusal != RAIL_REFUSE_NONE)
		msg_turn_away(dp, &h, &hello, refusal);
	else
		msg_take(lane, &h, &w, &hello, done);
	rail_sched_leave(dp);
	if (refusal != RAIL_REFUSE_NONE)
		msg_log_bad(lane->rail, rail_refusal_text(refusal));
}
