/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Detects stalls. If the oldest slice of a lane is the same as at the last
 * check, the lane's connections are checked one by one. A connection on which
 * nothing has completed for a while becomes a fault in stage ASKED. The posted
 * slices themselves serve as the probe: if the peer has given a sign of life
 * over another rail since the slices were posted, it should also have received
 * the data that was posted on this connection.
 *
 * This conclusion may be wrong if hosts are busy: the peer's process may not
 * have run since the data arrived. The peer's kernel, however, acknowledges
 * data as soon as it arrives. So a ping is also sent over the suspect pair. If
 * the peer's kernel has acknowledged everything on that connection, the pair is
 * not blamed.
 */

#include <rdma/fi_domain.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/core/rail_timing.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_resend.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"

/* If this number of messages already waits on a connection, no ping is sent
 * over it. */
#define STALL_MSGS 2u

/* Returns the list of connections of the lane on which nothing has completed
 * for RAIL_STALL_NS, linked by check_next. */
static struct rail_conn *stall_walk(struct rail_lane *lane, uint64_t now)
	TEI_REQUIRES(lane->lock)
{
	struct rail_conn *p, *list = NULL;
	struct rail_slice *s;

	tei_list_foreach(s, &lane->posted, struct rail_slice, link) {
		p = s->conn;
		if (p->moves != p->check_moves) {
			p->check_moves = p->moves;
			p->check_ns = now;
		}
		if (now - p->check_ns < RAIL_STALL_NS || p->looked_ns == now)
			continue;
		p->looked_ns = now;
		p->check_next = list;
		list = p;
	}
	return list;
}

/* If the oldest slice of the lane has not changed since the last check, returns
 * what stall_walk returns. Otherwise returns NULL, so that the connections need
 * not be examined. */
static struct rail_conn *stall_lane(struct rail_lane *lane, uint64_t now)
{
	struct rail_slice *head = NULL;
	struct rail_conn *list = NULL;
	uint64_t moves = 0;

	tei_mutex_lock(&lane->lock);
	if (!tei_list_empty(&lane->posted)) {
		head = tei_list_first(&lane->posted, struct rail_slice, link);
		moves = head->conn->moves;
	}
	if (head && head == lane->check.head && moves == lane->check.moves)
		list = stall_walk(lane, now);
	lane->check.head = head;
	lane->check.moves = moves;
	tei_mutex_unlock(&lane->lock);
	return list;
}

static void stall_ask(struct tei_rail_peer *peer, struct rail_lane *lane,
		      uint16_t remote, uint64_t moves, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_fault *f = rail_health_ask(peer, lane->rail, remote);

	if (!f)
		return;
	f->lane = lane;
	f->moves = moves;
	f->since_ns = now;
	f->doubt_ns = now;
	rail_peer_attend(peer);
}

void rail_stall_ask(struct tei_rail_peer *peer, struct rail_lane *lane,
		    uint16_t remote, uint64_t moves, uint64_t now)
{
	rail_sched_enter(peer->dp);
	stall_ask(peer, lane, remote, moves, now);
	rail_sched_leave(peer->dp);
}

/* Checks one lane. The connections stay valid, because only this thread frees
 * their peers. */
static void stall_check(struct rail_lane *lane, uint64_t now)
{
	struct rail_conn *p = stall_lane(lane, now);

	if (!p)
		return;
	rail_sched_enter(lane->rail->dp);
	for (; p; p = p->check_next)
		stall_ask(p->peer, lane, p->remote, p->check_moves, now);
	rail_sched_leave(lane->rail->dp);
}

void rail_stall_check(struct tei_rail_dp *dp, uint64_t now)
{
	struct rail_lane *lane;
	struct rail *rail;
	uint32_t i, j;

	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++) {
			lane = &rail->tx_lanes[j];
			if (__atomic_load_n(&lane->inflight, __ATOMIC_RELAXED))
				stall_check(lane, now);
		}
	}
}

uint64_t rail_stall_moves(struct tei_rail_peer *peer, struct rail_lane *lane,
			  uint16_t remote)
{
	const struct rail_conn *p = rail_conn_get(peer, lane, remote);

	return p ? __atomic_load_n(&p->moves, __ATOMIC_RELAXED) : UINT64_MAX;
}

/*
 * Decides whether the fault must move to its next stage. A peer that takes long
 * to give a sign of life is slow on all rails, so the time limit of the pair is
 * extended by that time.
 */
bool rail_stall_judge(struct rail_fault *f, uint64_t now)
{
	uint64_t grace;

	if (f->peer->alive_ns <= f->since_ns) {
		rail_peer_attend(f->peer);
		return false;
	}
	if (!f->alive_ns) {
		/* this iteration may have begun before since_ns, so now may be
		 * earlier */
		f->alive_ns = now > f->since_ns ? now : f->since_ns;
		f->polls = 0;
	}
	grace = RAIL_STALL_GRACE_NS + (f->alive_ns - f->since_ns);
	if (grace > RAIL_STALL_GRACE_MAX)
		grace = RAIL_STALL_GRACE_MAX;
	f->polls++;
	if (f->stage == RAIL_FAULT_ASKED)
		return now >= f->alive_ns + grace / 2 &&
		       now >= f->since_ns + RAIL_STALL_HEARD_NS &&
		       (!f->asked ||
			now >= f->asked_ns + RAIL_STALL_HEARD_NS) &&
		       f->polls >= RAIL_STALL_LOOKS;
	return now >= f->alive_ns + grace;
}

bool rail_stall_idles(struct tei_rail_peer *peer, struct rail_lane *lane,
		      uint16_t remote)
{
	struct rail_conn *conn;
	bool idles;

	rail_sched_enter(peer->dp);
	conn = rail_conn_get(peer, lane, remote);
	rail_sched_leave(peer->dp);
	tei_mutex_lock(&lane->lock);
	idles = conn && !conn->posted && rail_conn_lives(lane, conn);
	tei_mutex_unlock(&lane->lock);
	return idles;
}

/*
 * Returns for how long acknowledgements of the peer's kernel may delay the next
 * stage, ns. If opening a lane is slow here, it may be slow at the peer too,
 * and the peer's kernel acknowledges data while the peer renews its lane. The
 * limit is half of MC_SLICE_TIMEOUT, so that time is left for other rails.
 */
static uint64_t stall_doubt(const struct tei_rail_dp *dp)
{
	uint64_t most =
		dp->settings->failure.slice_timeout_s * TEI_NS_PER_SEC / 2;
	uint64_t ns = RAIL_STALL_OPENS *
		      __atomic_load_n(&dp->health.open_ns, __ATOMIC_RELAXED);

	if (ns > most)
		ns = most;
	return ns > RAIL_STALL_DOUBT_NS ? ns : RAIL_STALL_DOUBT_NS;
}

/*
 * Returns the address that the connection goes to. The peer may have a newer
 * address if it has renewed its lane, but the waiting slices were posted to the
 * old address.
 */
static void stall_addr(struct tei_rail_peer *peer, struct rail_lane *lane,
		       uint16_t remote, struct tei_rail_addr *addr)
{
	uint8_t bytes[TEI_RAIL_ADDR_MAX];
	size_t len = sizeof(bytes);
	struct rail_conn *conn;

	rail_sched_enter(peer->dp);
	conn = rail_conn_get(peer, lane, remote);
	*addr = peer->remotes[remote].addr;
	rail_sched_leave(peer->dp);
	tei_mutex_lock(&lane->lock);
	if (conn && lane->state == RAIL_LANE_ACTIVE && conn->ready &&
	    conn->lane_gen == lane->gen &&
	    !fi_av_lookup(lane->av, conn->fi_addr, bytes, &len) &&
	    len <= sizeof(bytes)) {
		memcpy(addr->bytes, bytes, len);
		addr->len = (uint32_t)len;
	}
	tei_mutex_unlock(&lane->lock);
}

bool rail_stall_confirm(const struct rail_disconnect_list *list,
			struct tei_rail_peer *peer, uint16_t remote,
			uint64_t moves, uint64_t doubt_ns, bool asked)
{
	struct rail_lane *lane = list->lane;
	struct tei_rail_dp *dp = peer->dp;
	struct tei_rail_addr addr;
	bool moved;

	/* handles completions that have arrived and were not read yet */
	rail_lane_run(lane);
	rail_sched_enter(dp);
	moved = rail_stall_moves(peer, lane, remote) != moves;
	rail_sched_leave(dp);
	if (moved || tei_now_ns() - doubt_ns > stall_doubt(dp))
		return !moved;
	stall_addr(peer, lane, remote, &addr);
	return !rail_disconnect_received(list, addr.bytes, addr.len,
					 RAIL_STALL_HEARD_MS, asked);
}

uint64_t rail_stall_acked(const struct rail_disconnect_list *list,
			  struct tei_rail_peer *peer, uint16_t remote)
{
	struct tei_rail_addr addr;

	stall_addr(peer, list->lane, remote, &addr);
	return rail_disconnect_acked(list, addr.bytes, addr.len);
}

static size_t stall_ping(struct tei_rail_peer *p, uint8_t *buf)
{
	struct rail_wire w;

	rail_msg_begin(p, &w, buf, RAIL_MSG_PING, 0);
	rail_wire_put(&w, 0, 8);
	return rail_msg_end(&w);
}

/* Returns the fault in stage ASKED that has not been pinged over its own pair
 * and has the fewest attempts, or NULL. */
static struct rail_fault *stall_unasked(struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_fault *f, *least = NULL;

	tei_list_foreach(f, &p->faults, struct rail_fault, peer_link)
		if (f->stage == RAIL_FAULT_ASKED && !f->asked &&
		    f->asks < RAIL_STALL_ASKS &&
		    (!least || f->asks < least->asks))
			least = f;
	return least;
}

/* Returns true if earlier messages still wait on the connection, so that a
 * further message would not help. */
static bool stall_clogged(struct tei_rail_peer *p, const struct rail_fault *f)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_conn *conn = rail_conn_get(p, f->lane, f->remote);

	return conn && conn->msgs >= STALL_MSGS;
}

/* Sends a ping over the next pair with a fault in stage ASKED. Returns true if
 * there is another such pair. */
static bool stall_ask_there(struct tei_rail_peer *p, uint8_t *buf)
{
	struct rail_conn *conn = NULL;
	struct rail_lane *lane = NULL, *by = NULL;
	struct rail_fault *f;
	int16_t remote = 0;
	bool more;

	rail_sched_enter(p->dp);
	f = stall_unasked(p);
	if (f) {
		f->asks++;
		remote = (int16_t)f->remote;
		lane = stall_clogged(p, f) ? NULL : f->lane;
	}
	more = stall_unasked(p) != NULL;
	rail_sched_leave(p->dp);
	if (!lane ||
	    rail_msg_try_pair(p, lane->rail, lane->index, remote, buf,
			      stall_ping(p, buf), &by, &conn) ||
	    by != lane)
		return more;
	rail_sched_enter(p->dp);
	tei_list_foreach(f, &p->faults, struct rail_fault, peer_link) {
		if (f->lane != lane || f->remote != remote)
			continue;
		f->asked = true;
		f->asked_ns = tei_now_ns();
	}
	more = stall_unasked(p) != NULL;
	rail_sched_leave(p->dp);
	return more;
}

/* Sends pings to the peer as long as one of its faults waits for a sign of
 * life. */
uint64_t rail_ctl_life(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	uint64_t there = 0;
	struct rail_fault *f;
	bool ask = false;
	int ret;

	if (stall_ask_there(p, buf))
		there = now + 5 * RAIL_CTL_RETRY_NS;
	rail_sched_enter(p->dp);
	tei_list_foreach(f, &p->faults, struct rail_fault, peer_link)
		ask |= f->stage == RAIL_FAULT_ASKED && !f->alive_ns &&
		       p->alive_ns <= f->since_ns;
	rail_sched_leave(p->dp);
	if (!ask) {
		p->probes.life_next_ns = 0;
		p->probes.life_tries = 0;
		return there;
	}
	if (now >= p->probes.life_next_ns) {
		ret = rail_msg_send(p, buf, stall_ping(p, buf),
				    p->probes.life_tries);
		p->probes.life_next_ns =
			rail_ctl_sent(p, ret, now, &p->probes.life_tries);
		if (p->probes.life_tries >= RAIL_STALL_SILENT_TRIES)
			rail_renew_silent(p, now);
	}
	return rail_ctl_sooner(there, p->probes.life_next_ns);
}
