/* SPDX-License-Identifier: BSD-2-Clause */

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>

#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/peer/rail_served.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

#define SERVED_TRIES	8	/* number of further attempts to send a report,
				 * before it is dropped */
#define SERVED_AGAIN_NS (100 * TEI_NS_PER_MS)	/* pause before the next attempt
						 * to send a report */
/* a peer that has unfinished tasks and was silent for longer than this gets no
 * report */
#define SERVED_ALIVE_NS (5 * TEI_NS_PER_MS)

/* --- initiator ------------------------------------------------------------ */

void rail_served_mark(struct tei_rail_dp *dp)
{
	struct tei_rail_peer *p, *tmp;

	rail_sched_enter(dp);
	tei_list_foreach_safe (p, tmp, &dp->tasks.recent, struct tei_rail_peer,
			       tasks.recent_link) {
		if (tei_list_empty(&p->tasks.live))
			tei_list_del(&p->tasks.recent_link);
		if (p->state != RAIL_PEER_READY ||
		    (p->stats.tx_bytes == p->served.sent_tx &&
		     p->stats.rx_bytes == p->served.sent_rx))
			continue;
		p->served.due = true;
		p->served.tries = 0;
		rail_peer_attend(p);
	}
	rail_sched_leave(dp);
}

/* Returns true if a message to the peer would probably not be written to the
 * connection at once, because the peer has unfinished tasks and has been
 * silent for a moment. A message that waits keeps the connection from being
 * evicted. */
static bool served_stalls(const struct tei_rail_peer *p, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	return !tei_list_empty(&p->tasks.live) &&
	       now > p->alive_ns + SERVED_ALIVE_NS;
}

/* Sends the message over the first rail that has a connection to the peer. Does
 * not open a connection for it, because other peers may need the place in the
 * endpoint cache. */
static int served_send(struct tei_rail_peer *p, const uint8_t *buf, size_t len)
{
	struct rail *rail;
	uint32_t i;
	int ret = -FI_EHOSTUNREACH;

	for (i = 0; ret && i < rail_count(p->dp); i++) {
		rail = rail_at(p->dp, i);
		if (rail_msg_link(p, rail, 0) == RAIL_MSG_LINKED)
			ret = rail_msg_send_on(p, rail, 0, buf, len);
	}
	return ret;
}

/* A report that cannot be sent is dropped after SERVED_TRIES repeated attempts.
 * After the next transfer, rail_served_mark finds that the totals still differ
 * from the last report. */
uint64_t rail_ctl_served(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	struct rail_served *s = &p->served;
	bool ready, stalls;
	struct rail_wire w;
	uint64_t tx, rx;

	if (!s->due)
		return 0;
	rail_sched_enter(p->dp);
	ready = p->state == RAIL_PEER_READY;
	stalls = served_stalls(p, now);
	tx = p->stats.tx_bytes;
	rx = p->stats.rx_bytes;
	rail_sched_leave(p->dp);
	s->due = false;
	if (!ready)
		return 0;
	rail_msg_begin(p, &w, buf, RAIL_MSG_BYTES, 0);
	rail_wire_put(&w, p->born_ns, 8);
	rail_wire_put(&w, tx, 8);
	rail_wire_put(&w, rx, 8);
	if (!stalls && !served_send(p, buf, rail_msg_end(&w))) {
		s->sent_tx = tx;
		s->sent_rx = rx;
		return 0;
	}
	s->due = s->tries++ < SERVED_TRIES;
	return s->due ? now + SERVED_AGAIN_NS : 0;
}

/* --- target --------------------------------------------------------------- */

/* Stores the totals that the peer has reported. The shown totals never
 * decrease, even if the peer's counters start from 0 again, or if an older
 * report arrives after a newer one. */
void rail_served_reported(struct tei_rail_peer *p, struct rail_wire *w)
{
	uint64_t since = rail_wire_get(w, 8);
	uint64_t tx = rail_wire_get(w, 8), rx = rail_wire_get(w, 8);
	struct rail_served *s = &p->served;

	if (w->bad || !since || since < s->since)
		return;
	if (since > s->since) {
		s->since = since;
		s->base_tx = s->tx;
		s->base_rx = s->rx;
	}
	if (s->base_tx + tx < s->tx || s->base_rx + rx < s->rx)
		return;
	s->tx = s->base_tx + tx;
	s->rx = s->base_rx + rx;
	s->ns = tei_now_ns();
}

size_t tei_rail_served(struct tei_rail_dp *dp, struct tei_rail_served *out,
		       size_t room)
{
	struct tei_rail_peer *p;
	struct tei_list *l;
	size_t n = 0;

	rail_sched_enter(dp);
	/* the peers whose last message is newest are at the end of the list */
	for (l = dp->peers.list.prev; l != &dp->peers.list; l = l->prev) {
		p = tei_container_of(l, struct tei_rail_peer, link);
		if (!p->served.ns)
			continue;
		if (n < room) {
			snprintf(out[n].name, sizeof(out[n].name), "%.95s",
				 p->name);
			out[n].incarnation = p->incarnation;
			out[n].tx_bytes = p->served.tx;
			out[n].rx_bytes = p->served.rx;
			out[n].ns = p->served.ns;
		}
		n++;
	}
	rail_sched_leave(dp);
	return n;
}
