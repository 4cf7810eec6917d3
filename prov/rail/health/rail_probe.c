/* SPDX-License-Identifier: BSD-2-Clause */
/* Probes rail pairs that are down, and answers the probes of peers. In each
 * round, one endpoint of a rail probes all its pairs that are due. The pause
 * between two rounds of a pair grows and has a jitter. */

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <string.h>

#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_timing.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_resend.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/secret.h"

/* Number of the lowest bits of a probe number, which identify the pair. */
#define PROBE_PAIR_BITS 16
#define PROBE_GEN	0x80000000u	/* lane generation of the endpoint of a
					 * probe; no tx lane has it */

/*
 * Returns the pause before the next round of probes. Each round opens an
 * endpoint, and the pause may grow to a multiple of the time that this takes.
 * Opening an endpoint takes long if hundreds of processes probe one peer.
 * Without the pause, the machine would then be busy with probes only, and the
 * peer would have no time to answer.
 */
static uint64_t probe_backoff(const struct tei_rail_dp *dp, uint32_t tries)
{
	uint64_t ns = RAIL_PROBE_MIN_NS << (tries < 9 ? tries : 9);
	uint64_t most = RAIL_PROBE_OPENS *
			__atomic_load_n(&dp->health.open_ns, __ATOMIC_RELAXED);

	if (most < RAIL_PROBE_MAX_NS)
		most = RAIL_PROBE_MAX_NS;
	if (most > RAIL_PROBE_RARELY_NS)
		most = RAIL_PROBE_RARELY_NS;
	return tei_jitter(ns < most ? ns : most);
}

/* Returns the time at which a round must be polled again, ns. The longer the
 * round lasts, the longer is the interval. Besides, all faults are checked
 * every RAIL_HEALTH_NS. */
static uint64_t probe_poll(const struct rail *rail, uint64_t now)
{
	uint64_t wait = (now - rail->probe.begin_ns) / 8;

	return now + (wait > RAIL_PROBE_POLL_NS ? wait : RAIL_PROBE_POLL_NS);
}

/* Returns the lowest bits of the probe numbers of the pair. They are the same
 * for all its probes, so that the answer to an earlier probe counts too. */
static uint64_t probe_pair(const struct rail_fault *f)
{
	return (uint64_t)f->rail->index << 8 | f->remote;
}

/* Returns true if the pair must be probed now. A pair whose remote rail waits
 * for a fence is not probed. */
static bool probe_due(const struct rail_fault *f, uint64_t now)
{
	const struct rail_remote *r = &f->peer->remotes[f->remote];

	return f->stage == RAIL_FAULT_DOWN && !f->cut && !f->seq &&
	       !f->answered && now >= f->next_ns &&
	       !rail_fence_outstanding(&r->fence) && r->addr.len &&
	       f->peer->state == RAIL_PEER_READY;
}

static bool probe_wanted(struct rail *rail, uint64_t now)
{
	struct rail_fault *f;
	bool wanted = false;

	rail_sched_enter(rail->dp);
	tei_list_foreach (f, &rail->dp->health.faults, struct rail_fault, link)
		wanted |= f->rail == rail && probe_due(f, now);
	rail_sched_leave(rail->dp);
	return wanted;
}

static void probe_start(struct rail *rail, uint64_t now)
{
	rail->probe.active = true;
	rail->probe.begin_ns = now;
	rail->probe.end_ns = 0;
	rail->dp->health.probing++;
	tei_mutex_lock(&rail->probe.opening.lane.lock);
	rail_opening_start(&rail->probe.opening, PROBE_GEN);
	tei_mutex_unlock(&rail->probe.opening.lane.lock);
}

/* Makes the lane RETIRING, so that it takes no slices. */
static void probe_retire(struct rail_lane *lane)
{
	tei_mutex_lock(&lane->lock);
	if (lane->ep)
		__atomic_store_n(&lane->state, RAIL_LANE_RETIRING,
				 __ATOMIC_RELEASE);
	tei_mutex_unlock(&lane->lock);
}

/* Returns true while the endpoint of the round is being opened. */
static bool probe_starting(struct rail *rail)
{
	if (!__atomic_load_n(&rail->probe.opening.under_way, __ATOMIC_RELAXED))
		return false;
	if (!rail_opening_over(&rail->probe.opening))
		return true;
	probe_retire(&rail->probe.opening.lane);
	return false;
}

/* Adds to the round the faults of the rail whose probe is due. */
static void probe_join(struct rail *rail, uint64_t now)
{
	struct rail_lane *lane = &rail->probe.opening.lane;
	struct rail_fault *f;
	uint64_t end;

	tei_mutex_lock(&lane->lock);
	rail_sched_enter(rail->dp);
	tei_list_foreach (f, &rail->dp->health.faults, struct rail_fault,
			  link) {
		if (f->rail != rail || !probe_due(f, now))
			continue;
		if (!lane->av ||
		    fi_av_insert(lane->av,
				 f->peer->remotes[f->remote].addr.bytes, 1,
				 &f->fi_addr, 0, NULL) != 1) {
			f->next_ns = now + probe_backoff(rail->dp, ++f->tries);
			continue;
		}
		f->seq = ++rail->dp->health.probe_seq << PROBE_PAIR_BITS |
			 probe_pair(f);
		if (!f->seq_first)
			f->seq_first = f->seq;
		f->sent = false;
		end = now + RAIL_PROBE_ROUND_NS +
		      RAIL_PROBE_LONGER_NS * (f->tries < 7 ? f->tries : 7);
		if (rail->probe.end_ns < end)
			rail->probe.end_ns = end;
	}
	rail_sched_leave(rail->dp);
	tei_mutex_unlock(&lane->lock);
}

/* Returns the next fault of the round whose probe has not been sent yet and has
 * a number above `after`. Returns NULL if there is none. */
static struct rail_fault *probe_unsent(struct rail *rail, uint64_t after)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_fault *f, *best = NULL;

	tei_list_foreach (f, &rail->dp->health.faults, struct rail_fault, link)
		if (f->rail == rail && f->seq > after && !f->sent &&
		    (!best || f->seq < best->seq))
			best = f;
	return best;
}

/* Sends the probes of the round that have not been sent yet. */
static void probe_send(struct rail *rail)
{
	struct tei_rail_dp *dp = rail->dp;
	struct tei_rail_peer *peer = NULL;
	uint8_t buf[RAIL_MSG_MAX];
	struct rail_fault *f;
	struct rail_wire w;
	uint64_t seq = 0;
	fi_addr_t addr = 0;
	int ret;

	for (;;) {
		rail_sched_enter(dp);
		f = probe_unsent(rail, seq);
		if (f) {
			seq = f->seq;
			peer = f->peer;
			addr = f->fi_addr;
		}
		rail_sched_leave(dp);
		if (!f)
			return;
		rail_msg_begin(peer, &w, buf, RAIL_MSG_PING, 0);
		rail_wire_put(&w, seq, 8);
		ret = rail_msg_post(peer, &rail->probe.opening.lane, 0, addr,
				    buf, rail_msg_end(&w));
		rail_sched_enter(dp);
		/* looks up the fault again, because it may have been freed
		 * together with its peer */
		f = probe_unsent(rail, seq - 1);
		if (f && f->seq == seq)
			f->sent = ret != -FI_EAGAIN;
		rail_sched_leave(dp);
	}
}

/* Returns true if a probe of the round has not been answered yet. */
static bool probe_open(struct rail *rail)
{
	struct rail_fault *f;
	bool open = false;

	rail_sched_enter(rail->dp);
	tei_list_foreach (f, &rail->dp->health.faults, struct rail_fault, link)
		open |= f->rail == rail && f->seq;
	rail_sched_leave(rail->dp);
	return open;
}

void rail_probe_stop(struct rail *rail)
{
	uint64_t now = tei_now_ns();
	struct rail_fault *f;

	if (!rail->probe.active)
		return;
	rail_opening_stop(&rail->probe.opening);
	probe_retire(&rail->probe.opening.lane);
	rail->probe.active = false;
	rail_lane_shutdown(&rail->probe.opening.lane, true);
	rail->dp->health.probing--;
	rail_sched_enter(rail->dp);
	tei_list_foreach (f, &rail->dp->health.faults, struct rail_fault,
			  link) {
		if (f->rail != rail || !f->seq)
			continue;
		f->seq = 0;
		f->next_ns = now + probe_backoff(rail->dp, ++f->tries);
	}
	rail_sched_leave(rail->dp);
}

uint64_t rail_probe_run(struct rail *rail, uint64_t now)
{
	struct rail_lane *lane = &rail->probe.opening.lane;
	bool useless = !__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE) ||
		       __atomic_load_n(&rail->link.down, __ATOMIC_RELAXED);

	if (!rail->probe.active && (useless || !probe_wanted(rail, now)))
		return 0;
	/* the endpoint of the previous round is still being closed */
	if (rail_closing_under_way(lane))
		return now + RAIL_PROBE_POLL_NS;
	if (!rail->probe.active)
		probe_start(rail, now);
	if (probe_starting(rail))
		return probe_poll(rail, now);
	if (!useless && (!rail->probe.end_ns || now < rail->probe.end_ns)) {
		probe_join(rail, tei_now_ns());
		probe_send(rail);
		rail_lane_run(lane);
		if (probe_open(rail))
			return probe_poll(rail, now);
	}
	rail_probe_stop(rail);
	return 0;
}

void rail_probe_soon(struct rail *rail, const struct tei_rail_peer *peer)
{
	struct rail_fault *f;

	tei_list_foreach (f, &rail->dp->health.faults, struct rail_fault,
			  link) {
		if (f->rail != rail || f->stage != RAIL_FAULT_DOWN ||
		    (peer && f->peer != peer))
			continue;
		f->tries = 0;
		f->next_ns = 0;
	}
}

/* --- messages ------------------------------------------------------------ */

void rail_msg_on_ping(struct tei_rail_peer *p, struct rail_lane *lane,
		      struct rail_wire *w)
{
	uint64_t seq = rail_wire_get(w, 8);

	if (w->bad)
		return;
	/* a probe is answered only if it arrived at the rx lane: at the contact
	 * lane it does not show that the rx lane can be reached */
	if (seq && !lane->contact && p->probes.npongs < RAIL_PONGS)
		p->probes.pongs[p->probes.npongs++] = seq;
	p->probes.pong |= !seq;
	/* a probe of the peer has arrived, so probes of this process may arrive
	 * too */
	if (seq)
		rail_probe_soon(lane->rail, p);
	rail_peer_attend(p);
}

void rail_msg_on_pong(struct tei_rail_peer *p, struct rail_wire *w)
{
	uint64_t seq = rail_wire_get(w, 8);
	struct rail_fault *f;

	tei_list_foreach(f, &p->faults, struct rail_fault, peer_link) {
		if (f->stage != RAIL_FAULT_DOWN || !f->seq_first ||
		    seq < f->seq_first ||
		    (seq & ((1u << PROBE_PAIR_BITS) - 1)) != probe_pair(f))
			continue;
		f->seq = 0;
		f->answered = true;
		__atomic_store_n(&p->dp->health.soon, true, __ATOMIC_RELAXED);
	}
}

/* Sends a PONG. seq: number of the probe, which is answered over all rails, or
 * 0 for a PING that has no number. Returns what rail_msg_send returns. */
static int pong_send(struct tei_rail_peer *p, uint64_t seq, uint8_t *buf)
{
	struct rail_wire w;
	size_t len;
	uint32_t i;
	int ret, best = -FI_EHOSTUNREACH;

	rail_msg_begin(p, &w, buf, RAIL_MSG_PONG, 0);
	rail_wire_put(&w, seq, 8);
	len = rail_msg_end(&w);
	if (!seq)
		return rail_msg_send(p, buf, len, 0);
	/* send the PONG over every local rail that works */
	for (i = 0; i < rail_count(p->dp); i++) {
		ret = rail_msg_send_on(p, rail_at(p->dp, i), 0, buf, len);
		if (!ret || (ret == -FI_EAGAIN && best))
			best = ret;
	}
	return best;
}

uint64_t rail_ctl_pong(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	uint64_t seqs[RAIL_PONGS];
	bool pong, again = false;
	uint32_t i, n;

	rail_sched_enter(p->dp);
	pong = p->probes.pong;
	n = p->probes.npongs;
	memcpy(seqs, p->probes.pongs, sizeof(seqs));
	p->probes.pong = false;
	p->probes.npongs = 0;
	rail_sched_leave(p->dp);
	if (pong)
		again = pong_send(p, 0, buf) == -FI_EAGAIN;
	/* a PONG that cannot be sent is dropped, because the peer repeats its
	 * PING */
	for (i = 0; i < n; i++)
		pong_send(p, seqs[i], buf);
	if (!again)
		return 0;
	rail_sched_enter(p->dp);
	p->probes.pong = true;
	rail_sched_leave(p->dp);
	return rail_ctl_again(p, now);
}
