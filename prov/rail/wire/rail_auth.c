/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Authentication of peer messages.
 *
 * Without a secret, a message from any process that knows the address is
 * accepted. With a secret, every message carries a keyed hash (MAC) over itself
 * and the receiver's nonce. A hello brings the sender's nonce and is sent
 * before the receiver's nonce is known, so its MAC covers only the message with
 * the two incarnations. Authentication thus needs no additional round trip.
 *
 * - If a third process replays a hello, this process only answers to the rails
 *   that the hello lists, which belong to the process that signed it.
 * - Each new peer object gets a new nonce, so messages recorded for an earlier
 *   object of the same peer do not verify. Within one object each message
 *   number is accepted once.
 * - Message numbers start at the current time in nanoseconds. So if a peer
 *   object is freed and created again, its numbers continue above the old ones.
 */

#include <string.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/wire/rail_auth.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/secret.h"

/* Limit of the difference between the newest message number and an older one
 * that is accepted. It is one word less than auth.seen holds, because the
 * newest word is only partly filled. */
#define AUTH_WINDOW	(64 * (RAIL_AUTH_WORDS - 1))

static_assert(RAIL_WIRE_MAC <= TEI_MAC_SIZE,
	      "a MAC is cut to RAIL_WIRE_MAC bytes");

/* Returns true if messages of this type are authenticated without the
 * receiver's nonce. */
static bool auth_open(enum rail_msg_type type)
{
	return type == RAIL_MSG_HELLO || type == RAIL_MSG_REFUSE;
}

static void auth_mac(const struct tei_rail_dp *dp, const uint8_t *nonce,
		     const uint8_t *msg, size_t len, uint8_t out[TEI_MAC_SIZE])
{
	const struct tei_mac_part parts[] = {
		{ nonce, nonce ? RAIL_WIRE_NONCE : 0 },
		{ msg, RAIL_WIRE_MAC_AT },
		{ msg + RAIL_WIRE_HEADER, len - RAIL_WIRE_HEADER },
	};

	tei_mac(&dp->conf.auth, parts, 3, out);
}

void rail_auth_sign(struct tei_rail_peer *p, uint8_t *msg, size_t len)
{
	enum rail_msg_type type = (enum rail_msg_type)msg[5];
	struct rail_wire w = { .p = msg, .cap = len, .pos = 6 };
	uint8_t nonce[RAIL_WIRE_NONCE], mac[TEI_MAC_SIZE];
	uint64_t flags;

	if (!p->dp->conf.signs || len < RAIL_WIRE_HEADER)
		return;
	/* copy the nonce under the lock: any thread may send, and a received
	 * hello may replace the nonce */
	rail_sched_enter(p->dp);
	memcpy(nonce, p->auth.its_nonce, sizeof(nonce));
	rail_sched_leave(p->dp);
	flags = rail_wire_get(&w, 2);
	w.pos = 6;
	rail_wire_put(&w, flags | RAIL_WIRE_SIGNED, 2);
	w.pos = RAIL_WIRE_MAC_AT - 8;
	rail_wire_put(
		&w, __atomic_add_fetch(&p->auth.sent, 1, __ATOMIC_RELAXED), 8);
	auth_mac(p->dp, auth_open(type) ? NULL : nonce, msg, len, mac);
	memcpy(msg + RAIL_WIRE_MAC_AT, mac, RAIL_WIRE_MAC);
}

bool rail_auth_fits(const struct tei_rail_dp *dp,
		    const struct tei_rail_peer *p, const uint8_t *msg,
		    size_t len)
{
	enum rail_msg_type type = (enum rail_msg_type)msg[5];
	uint8_t mac[TEI_MAC_SIZE];

	if (!auth_open(type) && !p)
		return false;
	auth_mac(dp, auth_open(type) ? NULL : p->auth.nonce, msg, len, mac);
	return tei_mac_equal(mac, msg + RAIL_WIRE_MAC_AT, RAIL_WIRE_MAC);
}

bool rail_auth_once(struct tei_rail_peer *p, uint64_t number)
{
	uint64_t *word = &p->auth.seen[number / 64 % RAIL_AUTH_WORDS], n;
	uint64_t bit = UINT64_C(1) << number % 64;

	if (number + AUTH_WINDOW <= p->auth.newest)
		return false;
	if (number > p->auth.newest) {
		/* clear the words above that of the previous newest number, up
		 * to that of the new one */
		n = number / 64 - p->auth.newest / 64;
		if (n > RAIL_AUTH_WORDS)
			n = RAIL_AUTH_WORDS;
		while (n--)
			p->auth.seen[(number / 64 - n) % RAIL_AUTH_WORDS] = 0;
		p->auth.newest = number;
	} else if (*word & bit) {
		return false;
	}
	*word |= bit;
	return true;
}

bool rail_auth_newest_hello(struct tei_rail_peer *p, uint64_t number)
{
	if (number <= p->auth.hello_newest)
		return false;
	p->auth.hello_newest = number;
	return true;
}
