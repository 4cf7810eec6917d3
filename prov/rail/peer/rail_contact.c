/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sends the first hello to a peer of which only contact addresses are known.
 *
 * Some of the addresses may lead nowhere or to another host: a container
 * bridge, a private network, an address that both hosts have. So the hello is
 * sent to all of them, from every local rail that can reach them, to a group of
 * a few pairs of rail and address at a time. The order of the pairs follows
 * from their addresses: the same address and the same network first, routed
 * addresses last. When CONTACT_WINDOW_NS has passed without an answer, the
 * hello is sent to the next group. Connections that are still being established
 * are kept, so that an address that answers slowly is found in a later round.
 *
 * Each hello carries the number of the address that it was sent to, and the
 * answer and the refusal repeat the number. If another process has one of the
 * addresses, it refuses the hello, and the address is then left out. The peer
 * counts as gone only when all addresses are refused.
 */

#include <rdma/fi_errno.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/lock.h"
#include "util/log.h"

#define CONTACT_WINDOW		4	/* number of pairs of rail and address
					 * in a group */
#define CONTACT_WINDOW_NS	(100 * TEI_NS_PER_MS)
#define CONTACT_PAIRS		256	/* largest number of pairs that are
					 * tried for one peer */
#define CONTACT_USUAL		8	/* in every eighth round, the hello may
					 * go through rail_msg_send, which also
					 * checks the lanes */

struct contact_pair {
	struct rail *rail;
	uint16_t remote;		/* index of the contact address in
					 * peer->remotes */
};

/* The results of attempts to send the hello over pairs, combined with OR. */
enum contact_result {
	CONTACT_SENT = 1,	/* the hello was sent */
	CONTACT_CONNECTING = 2,	/* the lane is open, but has not accepted the
				 * hello: usually the connection is still being
				 * established */
	CONTACT_OPENING = 4,	/* the lane is being opened */
	CONTACT_NO_LANE = 8,	/* the hello cannot be sent over the rail at
				 * present, and no lane is being opened */
};

static bool contact_is_refused(const struct tei_rail_peer *p, uint16_t r)
{
	return p->addrs.contact.refused >> r & 1;
}

/* Appends to the n entries of the array pair those pairs of local rail and
 * contact address for which rail_conn_fit returns the value "fit". Returns the
 * new number of entries. */
static uint32_t contact_add(const struct tei_rail_peer *p, int fit,
			    struct contact_pair *pair, uint32_t n)
	TEI_REQUIRES(rail_sched_held)
{
	uint32_t i, nrails = rail_count(p->dp);
	struct rail *rail;
	uint16_t r;

	/* the order of the loops keeps pairs of the same address apart */
	for (i = 0; i < nrails; i++)
		for (r = 0; r < p->nremotes && n < CONTACT_PAIRS; r++) {
			rail = rail_at(p->dp, (i + r) % nrails);
			if (!__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE) ||
			    contact_is_refused(p, r) ||
			    rail_conn_fit(rail, &p->remotes[r]) != fit)
				continue;
			pair[n].rail = rail;
			pair[n++].remote = r;
		}
	return n;
}

static uint32_t contact_pairs(struct tei_rail_peer *p,
			      struct contact_pair pair[CONTACT_PAIRS])
{
	uint32_t n = 0;
	int fit;

	rail_sched_enter(p->dp);
	for (fit = 3; fit; fit--)
		n = contact_add(p, fit, pair, n);
	rail_sched_leave(p->dp);
	return n;
}

/* Writes the contact number, which is the last field of a hello. */
static void contact_number(uint8_t *buf, size_t len, uint16_t number)
{
	struct rail_wire w = { .p = buf, .pos = len - 2, .cap = len };

	rail_wire_put(&w, number, 2);
}

/* Selects the next group of pairs if the time of the current group has passed.
 * Begins again with the first pair if the number of pairs has changed, because
 * the pairs then have other indexes. The number changes when an address was
 * refused or a rail was opened. */
static void contact_turn(struct rail_contact *c, uint32_t n, uint64_t now)
{
	if (c->until_ns && n != c->pairs) {
		c->from = 0;
		c->sent = 0;
		c->until_ns = now + CONTACT_WINDOW_NS;
	}
	c->pairs = n;
	if (now < c->until_ns)
		return;
	if (c->until_ns)
		c->from += CONTACT_WINDOW;
	if (c->from >= n) {
		c->from = 0;
		c->rounds++;
	}
	c->sent = 0;
	c->until_ns = now + CONTACT_WINDOW_NS;
}

/* Sends the hello over the pair. */
static enum contact_result contact_try(struct tei_rail_peer *p,
				       const struct contact_pair *pair,
				       uint8_t *buf, size_t len)
{
	struct rail_lane *lane;
	struct rail_conn *conn;
	int ret;

	contact_number(buf, len, (uint16_t)(pair->remote + 1));
	ret = rail_msg_try_pair(p, pair->rail, 0, (int16_t)pair->remote, buf,
				len, &lane, &conn);
	if (!ret)
		return CONTACT_SENT;
	if (!lane)
		return ret == -FI_EAGAIN ? CONTACT_OPENING : CONTACT_NO_LANE;
	/* the connection is made only while the lane is polled */
	rail_lane_run(lane);
	return CONTACT_CONNECTING;
}

/* Sends the hello to those pairs of the group that have not received it. Returns
 * the results of the attempts. */
static uint32_t contact_group(struct tei_rail_peer *p,
			      const struct contact_pair *pair, uint32_t n,
			      uint8_t *buf, size_t len)
{
	struct rail_contact *c = &p->addrs.contact;
	uint32_t i, result, results = 0;

	for (i = 0; i < CONTACT_WINDOW && c->from + i < n; i++) {
		if (c->sent >> i & 1)
			continue;
		result = contact_try(p, &pair[c->from + i], buf, len);
		if (result == CONTACT_SENT)
			c->sent |= UINT64_C(1) << i;
		results |= result;
	}
	contact_number(buf, len, 0);
	return results;
}

int rail_contact_hello(struct tei_rail_peer *p, uint8_t *buf, size_t len,
		       uint64_t now, uint32_t attempt)
{
	struct contact_pair pair[CONTACT_PAIRS];
	struct rail_contact *c = &p->addrs.contact;
	uint32_t n = contact_pairs(p, pair), results;

	/* if refusals have left only one of several pairs, rail_msg_send is not
	 * used: the route may still lead to a refused address */
	if (!n || (n == 1 && rail_peer_remotes(p) < 2))
		return rail_msg_send(p, buf, len, attempt);
	contact_turn(c, n, now);
	results = contact_group(p, pair, n, buf, len);
	/* the time of the group begins when a lane can be used */
	if (!c->sent && (results & CONTACT_OPENING) &&
	    !(results & CONTACT_CONNECTING))
		c->until_ns = now + CONTACT_WINDOW_NS;
	if (!(results & ~(uint32_t)CONTACT_SENT)) {
		p->life.again_ns = 0;
		return 0;
	}
	if (c->rounds && !(c->rounds % CONTACT_USUAL))
		return rail_msg_send(p, buf, len, attempt);
	/* From this time on, attempts become rare (rail_ctl_again). Attempts
	 * stay frequent if all pairs without a sent hello wait for a lane to
	 * open, because it opens soon. */
	if ((results & (CONTACT_CONNECTING | CONTACT_NO_LANE)) &&
	    !p->life.again_ns)
		p->life.again_ns = now;
	return -FI_EAGAIN;
}

bool rail_contact_refused(struct tei_rail_peer *p, uint16_t number)
{
	uint16_t r;

	/* The peer has meanwhile answered at another address, so this refusal
	 * of its first hello is late. */
	if (p->state == RAIL_PEER_READY && number)
		return true;
	if (p->state != RAIL_PEER_NEW || p->nremotes < 2)
		return false;
	if (number && number <= p->nremotes)
		p->addrs.contact.refused |= UINT64_C(1) << (number - 1);
	for (r = 0; r < p->nremotes; r++)
		if (!contact_is_refused(p, r) &&
		    rail_conn_fit_any(p->dp, &p->remotes[r].addr) >= 0)
			return true;
	return false;
}

void rail_contact_answered(struct tei_rail_peer *p, const struct rail *rail,
			   uint16_t number)
{
	char text[128];

	if (!number || number > p->nremotes)
		return;
	rail_addr_text(&p->remotes[number - 1].addr, text, sizeof(text));
	/* logged at the level debug, because law 9 allows one line per peer at
	 * the level info, and that line lists all rails */
	TEI_DEBUG_LOG("rail", "first contact: %s answers at %s, by rail %s", p->name,
		      text, rail->name);
}
