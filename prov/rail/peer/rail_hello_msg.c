/* SPDX-License-Identifier: BSD-2-Clause */
/* Composes and parses hellos. */

#include <string.h>

#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_hello.h"
#include "prov/rail/peer/rail_hello_msg.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/lock.h"


static uint8_t hello_key_flags(const struct rail *rail)
{
	uint8_t flags = 0;

	if (rail->fab.mr_mode & FI_MR_VIRT_ADDR)
		flags |= RAIL_WIRE_VIRT_ADDR;
	if (rail->fab.mr_mode & FI_MR_ENDPOINT)
		flags |= RAIL_WIRE_GEN_KEYS;
	return flags;
}

static void hello_put_rail(struct rail_wire *w, struct rail *rail)
{
	struct rail_lane *lane = &rail->rx_lane;

	rail_wire_put(w, rail->index, 2);
	rail_wire_put(w, lane->gen, 4);
	rail_wire_put(w, hello_key_flags(rail), 1);
	rail_wire_put(w, rail->nic.prefix, 1);
	rail_addr_put(w, &lane->addr);
	rail_wire_put_bytes(w, rail->name, strlen(rail->name));
}

/*
 * Returns true if a hello to the peer lists the rail. A replaced rail is still
 * listed for the peers that know it, because a rail that is not listed counts
 * as closed.
 */
static bool hello_lists_rail(const struct tei_rail_peer *peer, const struct rail *rail)
	TEI_REQUIRES(rail_sched_held)
{
	return !__atomic_load_n(&rail->hidden, __ATOMIC_ACQUIRE) ||
	       peer->hello.notified_rails >> rail->index & 1;
}

static void hello_put_firsts(struct rail_wire *w, struct tei_rail_dp *dp,
			   const bool *lists, uint32_t n)
{
	bool held[TEI_RAIL_MAX];
	uint32_t i, all = 0;

	for (i = 0; i < n; i++) {
		held[i] = lists[i] && rail_contact_lane_held(rail_at(dp, i));
		all += held[i];
	}
	rail_wire_put(w, all, 2);
	for (i = 0; i < n; i++)
		if (held[i])
			rail_addr_put(w, &rail_at(dp, i)->nic.own);
}

size_t rail_msg_hello(struct tei_rail_peer *peer, bool want_reply, uint8_t *buf)
{
	struct tei_rail_dp *dp = peer->dp;
	uint32_t i, n = rail_count(dp), open = 0;
	bool lists[TEI_RAIL_MAX], there[TEI_RAIL_MAX];
	struct rail_wire w;

	rail_sched_enter(dp);
	/* The rx lanes are read without their locks, because only this thread
	 * changes them. Lanes of rails that are being closed are an
	 * exception. */
	for (i = 0; i < n; i++) {
		lists[i] = hello_lists_rail(peer, rail_at(dp, i));
		there[i] =
			lists[i] && rail_lane_active(&rail_at(dp, i)->rx_lane);
		open += there[i];
		if (there[i])
			peer->hello.notified_rails |= UINT64_C(1) << i;
	}
	rail_msg_begin(peer, &w, buf, RAIL_MSG_HELLO,
		       want_reply ? RAIL_WIRE_REPLY : 0);
	rail_wire_put_raw(&w, peer->auth.nonce, sizeof(peer->auth.nonce));
	rail_wire_put(&w, peer->hello.table_seen, 4);
	rail_sched_leave(dp);
	rail_wire_put_bytes(&w, dp->name, strlen(dp->name));
	rail_wire_put(&w, open, 2);
	for (i = 0; i < n; i++)
		if (there[i])
			hello_put_rail(&w, rail_at(dp, i));
	rail_wire_put(&w, peer->atomics.own_session, 8);
	hello_put_firsts(&w, dp, lists, n);
	rail_wire_put(&w, peer->addrs.its_contact, 2);
	/* rail_contact.c writes the contact number into the last two bytes */
	rail_wire_put(&w, 0, 2);
	return rail_msg_end(&w);
}

static bool hello_get_rail(struct rail_wire *w, struct rail_remote *r)
{
	uint8_t keys;
	bool there;

	memset(r, 0, sizeof(*r));
	r->id = (uint16_t)rail_wire_get(w, 2);
	r->gen = (uint32_t)rail_wire_get(w, 4);
	keys = (uint8_t)rail_wire_get(w, 1);
	r->virt_addr = keys & RAIL_WIRE_VIRT_ADDR;
	r->gen_keys = keys & RAIL_WIRE_GEN_KEYS;
	r->prefix = (uint8_t)rail_wire_get(w, 1);
	there = rail_addr_get(w, &r->addr);
	rail_wire_get_text(w, r->name, sizeof(r->name));
	return !w->bad && there && r->id < TEI_RAIL_MAX;
}

static bool hello_get_firsts(struct rail_wire *w, struct rail_hello *h)
{
	uint16_t i;

	h->ncontacts = w->cap == w->pos ? 0 : (uint16_t)rail_wire_get(w, 2);
	if (w->bad || h->ncontacts > TEI_RAIL_MAX)
		return false;
	for (i = 0; i < h->ncontacts; i++)
		if (!rail_addr_get(w, &h->contacts[i]))
			return false;
	return true;
}

bool rail_hello_parse(struct rail_wire *w, struct rail_hello *h)
{
	uint16_t i;

	memset(h->listed, 0, sizeof(h->listed));
	rail_wire_get_raw(w, h->nonce, sizeof(h->nonce));
	h->ack = (uint32_t)rail_wire_get(w, 4);
	rail_wire_get_text(w, h->name, sizeof(h->name));
	h->n = (uint16_t)rail_wire_get(w, 2);
	if (w->bad || h->n > TEI_RAIL_MAX)
		return false;
	for (i = 0; i < h->n; i++) {
		if (!hello_get_rail(w, &h->remotes[i]))
			return false;
		h->listed[h->remotes[i].id] = true;
	}
	h->session = w->cap == w->pos ? 0 : rail_wire_get(w, 8);
	h->answers = 0;
	h->contact = 0;
	if (!hello_get_firsts(w, h))
		return false;
	if (w->cap == w->pos)
		return true;
	h->answers = (uint16_t)rail_wire_get(w, 2);
	h->contact = (uint16_t)rail_wire_get(w, 2);
	return !w->bad;
}

const char *rail_refusal_text(enum rail_refusal why)
{
	switch (why) {
	case RAIL_REFUSE_NONE:
		break;
	case RAIL_REFUSE_STALE:
		return "another process answers at this address: stale incarnation";
	case RAIL_REFUSE_NO_SECRET:
		return "the queried process has no shared secret, the "
		       "requesting process has one";
	case RAIL_REFUSE_UNSIGNED:
		return "the queried process requires a shared secret";
	case RAIL_REFUSE_SECRETS_DIFFER:
		return "the shared secrets differ";
	case RAIL_REFUSE_TOO_MANY_PEERS:
		return "the queried process already has MOONRAIL_MAX_PEERS peers";
	}
	return "no reason given";
}
