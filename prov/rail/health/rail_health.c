/* SPDX-License-Identifier: BSD-2-Clause */
/* Creates the faults of rail pairs, changes their stage and frees them. Derives
 * the state of each rail from its faults. */

#include <errno.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_loss.h"
#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/conn/rail_reopen.h"
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
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"
#include "util/world.h"

#define HEALTH_BATCH 256 /* largest number of faults that are handled in one
			  * iteration */

struct rail_fault *rail_health_ask(struct tei_rail_peer *peer,
				   struct rail *rail, uint16_t remote)
{
	struct rail_fault *f = rail_pair_fault(peer, rail, remote);

	/* while the data plane is closed, a stall is no fault */
	if (peer->state == RAIL_PEER_GONE || peer->remotes[remote].hint ||
	    __atomic_load_n(&peer->dp->thread.stop, __ATOMIC_ACQUIRE))
		return NULL;
	if (!f)
		f = rail_pair_make_fault(peer, rail, remote);
	else if (f->stage != RAIL_FAULT_RAMPING)
		return NULL;
	if (f) {
		f->stage = RAIL_FAULT_ASKED;
		f->rail_slices = rail_moved(rail);
		f->alive_ns = 0;
		f->asked = false;
		f->asks = 0;
	}
	return f;
}

static void health_free(struct rail_fault *f) TEI_REQUIRES(rail_sched_held)
{
	struct rail *rail = f->rail;

	tei_list_del(&f->link);
	tei_list_del(&f->peer_link);
	__atomic_fetch_sub(&rail->dp->health.nfaults, 1, __ATOMIC_RELAXED);
	rail_conn_reroute(f->peer);
	rail_peer_activate(f->peer);
	free(f);
	rail_health_state(rail);
}

void rail_health_forget(struct tei_rail_peer *peer)
{
	struct rail_fault *f, *tmp;

	tei_list_foreach_safe(f, tmp, &peer->faults, struct rail_fault,
			       peer_link)
		health_free(f);
}

/* --- the state of a rail ------------------------------------------------- */

/* Returns true if slices are posted on other pairs of the rail. */
static bool health_others(struct tei_rail_peer *peer, struct rail *rail,
			  uint16_t remote) TEI_REQUIRES(rail_sched_held)
{
	const struct rail_conn *conn;
	uint32_t j, posted = 0, cut = 0;

	for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++) {
		posted += __atomic_load_n(&rail->tx_lanes[j].inflight,
					  __ATOMIC_RELAXED);
		conn = rail_conn_get(peer, &rail->tx_lanes[j], remote);
		if (conn && j % RAIL_LANE_SLOTS == 0)
			cut += conn->inflight;
	}
	return posted > cut;
}

/*
 * Returns true if the broken pair of fault f makes the whole rail count as
 * broken. The rail does not count as broken if other pairs have made progress
 * since the failure. If other pairs had slices posted at the failure, they
 * first get RAIL_HEALTH_OTHERS_NS to make progress.
 */
static bool health_alone(const struct rail_fault *f, uint64_t slices)
{
	return f->rail_slices == slices &&
	       (!f->others ||
		tei_now_ns() >= f->since_ns + RAIL_HEALTH_OTHERS_NS);
}

static uint32_t health_judge(struct rail *rail) TEI_REQUIRES(rail_sched_held)
{
	uint64_t slices = rail_moved(rail);
	bool ramping = false, suspect = false;
	struct rail_fault *f;

	if (__atomic_load_n(&rail->link.down, __ATOMIC_RELAXED) ||
	    __atomic_load_n(&rail->link.lost, __ATOMIC_RELAXED))
		return TEI_RAIL_DOWN;
	tei_list_foreach (f, &rail->dp->health.faults, struct rail_fault,
			  link) {
		if (f->rail != rail)
			continue;
		if (f->stage == RAIL_FAULT_DOWN && health_alone(f, slices))
			return TEI_RAIL_DOWN;
		ramping |= f->stage == RAIL_FAULT_RAMPING && f->all;
		suspect |= f->stage == RAIL_FAULT_SUSPECT &&
			   f->rail_slices == slices;
	}
	return ramping ? TEI_RAIL_PROBING : suspect ? TEI_RAIL_SUSPECT :
						      TEI_RAIL_UP;
}

void rail_health_state(struct rail *rail)
{
	static const char *const name[] = { "up", "suspect", "down",
					    "recovering" };
	uint32_t state = health_judge(rail);

	if (state == __atomic_load_n(&rail->link.state, __ATOMIC_RELAXED))
		return;
	__atomic_store_n(&rail->link.state, state, __ATOMIC_RELAXED);
	__atomic_fetch_add(&rail->link.changes, 1, __ATOMIC_RELAXED);
	TEI_INFO("rail", "%s: %s", rail->name, name[state]);
}

/* --- down ---------------------------------------------------------------- */

void rail_health_down(struct tei_rail_peer *peer, struct rail *rail,
		      uint16_t remote, const char *why, bool cut)
{
	struct rail_fault *f = rail_pair_fault(peer, rail, remote);

	if (peer->state == RAIL_PEER_GONE || peer->remotes[remote].hint ||
	    (f && f->stage == RAIL_FAULT_DOWN))
		return;
	/* while the data plane is closed, an error is no fault */
	if (__atomic_load_n(&peer->dp->thread.stop, __ATOMIC_ACQUIRE))
		return;
	if (!f)
		f = rail_pair_make_fault(peer, rail, remote);
	if (!f)
		return;
	f->others = f->stage != RAIL_FAULT_SUSPECT &&
		    health_others(peer, rail, remote);
	/* This pair was not SUSPECT, so slices that completed until now may be
	 * its own or those of other pairs: only later ones prove that the rail
	 * works. */
	if (f->stage != RAIL_FAULT_SUSPECT)
		f->rail_slices = rail_moved(rail);
	f->stage = RAIL_FAULT_DOWN;
	f->why = why;
	f->cut = cut;
	f->refused = false;
	f->since_ns = tei_now_ns();
	f->next_ns = f->since_ns;
	f->tries = 0;
	f->seq = 0;
	f->seq_first = 0;
	f->remote_gen = peer->remotes[remote].gen;
	/* the loss of connections is logged elsewhere, in one line per peer */
	if (rail_loss_noted(peer, rail))
		TEI_INFO("rail", "%s to %s at %s: down: %s", rail->name,
			 peer->remotes[remote].name, peer->name, why);
	else
		tei_log_repeated(&peer->log.err_repeat, TEI_LOG_WARN, "rail",
				 "%s to %s at %s: down: %s", rail->name,
				 peer->remotes[remote].name, peer->name, why);
	rail_conn_reroute(peer);
	rail_peer_activate(peer);
	rail_health_state(rail);
	rail_progress_wake(peer->dp);
}

/*
 * Returns true if the error may come from the wire. Two kinds of errors do not:
 * those that the target has reported, and those that arise because one of the
 * two sides has closed a lane.
 */
static bool health_of_wire(int err)
{
	return err != FI_EACCES && err != FI_EPERM && err != FI_EINVAL &&
	       err != FI_EMSGSIZE && err != FI_EKEYREJECTED &&
	       err != FI_ENOKEY && err != FI_ETRUNC && err != FI_ENOMEM;
}

void rail_health_error(struct rail_slice *s, int err)
{
	struct tei_rail_peer *peer = s->peer;

	if (s->remote_idx < peer->nremotes && health_of_wire(err) &&
	    peer->remotes[s->remote_idx].gen <= s->remote_gen &&
	    __atomic_load_n(&s->lane->state, __ATOMIC_RELAXED) ==
		    RAIL_LANE_ACTIVE &&
	    !(s->conn && s->conn->excluded))
		rail_health_down(peer, s->lane->rail, s->remote_idx,
				 "its connection was lost", false);
}

/* Returns true if the provider has refused a post because of the wire. Other
 * errors mean that this host is short of a resource. */
static bool health_no_way(int err)
{
	switch (err) {
	case FI_ENETUNREACH:
	case FI_EHOSTUNREACH:
	case FI_ENETDOWN:
	case FI_EHOSTDOWN:
	case FI_EADDRNOTAVAIL:
	case FI_ENODEV:
	case FI_ECONNREFUSED:
	case FI_ECONNRESET:
	case FI_ECONNABORTED:
	case FI_ENOTCONN:
	case FI_ESHUTDOWN:
	case FI_ETIMEDOUT:
	case EPIPE:
		return true;
	default:
		return false;
	}
}

bool rail_health_refused(struct tei_rail_peer *peer, struct rail *rail,
			 uint16_t remote, int err)
{
	struct rail_fault *f = rail_pair_fault(peer, rail, remote);
	uint32_t again = f && f->stage == RAIL_FAULT_RAMPING ? f->again + 1 : 0;

	if (!health_no_way(err) || peer->state != RAIL_PEER_READY ||
	    remote >= peer->nremotes)
		return false;
	rail_loss_add(peer, rail, err, 0, "");
	rail_health_down(peer, rail, remote, "the provider refuses to post",
			 false);
	f = rail_pair_fault(peer, rail, remote);
	if (!f || f->stage != RAIL_FAULT_DOWN)
		return true;
	f->refused = true;
	f->again = again;
	if (again)
		f->next_ns = f->since_ns +
			     (RAIL_HEALTH_NS << (again < 6 ? again : 6));
	return true;
}

/* --- recovery ------------------------------------------------------------ */

/*
 * Renews the active tx lanes of a rail whose wire works again. If the peer has
 * not noticed the failure, it still holds the old connection and may refuse a
 * new connection from the same endpoint.
 */
static void health_renew(struct rail *rail)
{
	uint32_t j;

	for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++)
		if (__atomic_load_n(&rail->tx_lanes[j].state,
				    __ATOMIC_ACQUIRE) == RAIL_LANE_ACTIVE)
			rail_renew_lane(&rail->tx_lanes[j],
					RAIL_HEALTH_DRAIN_NS);
}

/* Starts the ramp-up of a pair whose probe was answered. */
static void health_ramp(struct rail_fault *f, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	f->stage = RAIL_FAULT_RAMPING;
	f->all = __atomic_load_n(&f->rail->link.state, __ATOMIC_RELAXED) !=
		 TEI_RAIL_UP;
	f->since_ns = now;
	f->share = RAIL_HEALTH_SHARE;
	f->lane = NULL;
	f->moves = 0;
	rail_peer_activate(f->peer);
	rail_health_state(f->rail);
}

/* Doubles the share of a pair that has made progress. When the share is full,
 * frees the fault. */
static void health_grow(struct rail_fault *f, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t moves = rail_moved(f->rail);

	if (moves != f->moves)
		f->share *= 2;
	f->moves = moves;
	if (f->share >=
		    __atomic_load_n(&f->rail->load.window, __ATOMIC_RELAXED) ||
	    now - f->since_ns > RAIL_HEALTH_RAMP_NS)
		health_free(f);
}

/* --- one iteration ------------------------------------------------------- */

/* An action that must be taken for a fault after dp->sched was released. */
struct health_todo {
	struct tei_rail_peer *peer;
	struct rail *rail;
	struct rail_lane *lane;
	uint64_t moves, doubt_ns;
	uint16_t remote;
	bool asked;
	enum { HEALTH_CONFIRM, HEALTH_CUT, HEALTH_SHUN, HEALTH_RENEW } what;
};

/*
 * Returns true if the connection may be cut because it is contended: the peer
 * has been pinged and is silent on all rails, and other connections wait for
 * the place that the connection has in the endpoint cache. Without this rule
 * they might wait forever, because the slices of a silent peer stay posted.
 */
static bool health_in_the_way(const struct rail_fault *f, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	const struct rail_conn *conn;

	if (f->stage != RAIL_FAULT_ASKED || f->alive_ns ||
	    f->peer->alive_ns > f->since_ns ||
	    (!f->asked && f->peer->probes.life_tries < RAIL_HEALTH_ASKS) ||
	    now < f->since_ns + RAIL_HEALTH_IN_THE_WAY_NS)
		return false;
	conn = rail_conn_get(f->peer, f->lane, f->remote);
	return conn && rail_cache_contended(conn);
}

/* Moves the fault to its next stage if it is due. Returns true if *todo
 * describes an action that must be taken after the lock was released. */
static bool health_step(struct rail_fault *f, uint64_t now,
			struct health_todo *todo) TEI_REQUIRES(rail_sched_held)
{
	if (!__atomic_load_n(&f->rail->open, __ATOMIC_ACQUIRE)) {
		health_free(f);
		return false;
	}
	todo->peer = f->peer;
	todo->rail = f->rail;
	todo->remote = f->remote;
	switch (f->stage) {
	case RAIL_FAULT_ASKED:
	case RAIL_FAULT_SUSPECT:
		if (rail_stall_moves(f->peer, f->lane, f->remote) != f->moves) {
			health_free(f);
			return false;
		}
		todo->what = HEALTH_SHUN;
		todo->lane = f->lane;
		todo->moves = f->moves;
		if (health_in_the_way(f, now))
			return true;
		if (!rail_stall_judge(f, now))
			return false;
		todo->what = HEALTH_CONFIRM;
		todo->lane = f->lane;
		todo->moves = f->moves;
		todo->doubt_ns = f->doubt_ns;
		todo->asked = f->asked;
		return true;
	case RAIL_FAULT_DOWN:
		if (f->answered) {
			f->answered = false;
			todo->what = HEALTH_RENEW;
			todo->moves = !f->refused &&
				      f->peer->remotes[f->remote].gen ==
					      f->remote_gen;
			health_ramp(f, now);
			return true;
		}
		todo->what = HEALTH_CUT;
		if (!f->cut)
			return false;
		f->cut = false;
		return true;
	case RAIL_FAULT_RAMPING:
		health_grow(f, now);
		break;
	}
	return false;
}

/* --- cutting ------------------------------------------------------------- */

/* Polls the lane until no slice is posted on the n connections any longer.
 * Returns false if that takes too long. */
static bool health_drain(struct rail_lane *lane, struct rail_conn *const *conn,
			 int n, struct rail_done *done) TEI_REQUIRES(lane->lock)
{
	uint64_t end = tei_now_ns() + RAIL_HEALTH_CUT_NS +
		       (uint64_t)n * RAIL_HEALTH_CUT_MORE_NS;
	int i = 0;

	while (i < n) {
		if (!conn[i] || !conn[i]->posted) {
			i++;
		} else {
			if (tei_now_ns() >= end)
				return false;
			tei_relax();
			rail_lane_poll(lane, done);
		}
	}
	return true;
}

/* Cuts the connection. Its address is taken from the address vector, because
 * the peer may have got another address since. */
static void health_cut_conn(struct rail_lane *lane,
			    const struct rail_conn *conn,
			    const struct rail_disconnect_list *list)
	TEI_REQUIRES(lane->lock)
{
	uint8_t addr[TEI_RAIL_ADDR_MAX];
	size_t len = sizeof(addr);

	if (conn->ready && !fi_av_lookup(lane->av, conn->fi_addr, addr, &len))
		rail_disconnect_listed(lane, list, addr, len);
}

/* Sets each element of conn without slices posted on the lane to NULL. Returns
 * false if all elements are then NULL. */
static bool health_posted(struct rail_lane *lane, struct rail_conn **conn,
			  int n) TEI_REQUIRES(lane->lock)
{
	bool any = false;
	int i;

	for (i = 0; i < n; i++) {
		if (conn[i] && lane->ep && conn[i]->posted &&
		    conn[i]->lane_gen == lane->gen)
			any = true;
		else
			conn[i] = NULL;
	}
	return any;
}

/* Cuts n connections of the lane and polls until their slices have returned. If
 * that takes too long, renews the lane. shuns: see rail_health_cut. */
static void health_cut_lane(struct rail_lane *lane, struct rail_conn **conn,
			    int n, bool shuns)
{
	uint64_t usual =
		lane->rail->dp->settings->failure.fence_ms * TEI_NS_PER_MS / 2;
	struct rail_disconnect_list list;
	struct rail_done done;
	bool any, clean;
	int i;

	tei_mutex_lock(&lane->lock);
	any = health_posted(lane, conn, n);
	tei_mutex_unlock(&lane->lock);
	if (!any)
		return;
	rail_disconnect_list(lane, &list);
	rail_done_init(&done);
	tei_mutex_lock(&lane->lock);
	health_posted(lane, conn, n);
	for (i = 0; i < n; i++) {
		if (!conn[i])
			continue;
		conn[i]->excluded = shuns;
		health_cut_conn(lane, conn[i], &list);
	}
	clean = health_drain(lane, conn, n, &done);
	for (i = 0; i < n; i++)
		if (conn[i])
			conn[i]->excluded = false;
	tei_mutex_unlock(&lane->lock);
	rail_disconnect_list_free(&list);
	rail_done_run(lane->rail->dp, &done);
	if (!clean)
		rail_renew_lane(lane, shuns ? usual : RAIL_HEALTH_DRAIN_NS);
}

/* Cuts the connections of n pairs, all of the same rail. shuns: see
 * rail_health_cut. */
static void health_cut(struct health_todo *const *pair, int n, bool shuns)
{
	struct rail_conn *conn[HEALTH_BATCH];
	struct rail *rail = pair[0]->rail;
	struct rail_lane *lane;
	uint32_t j;
	int i;

	for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++) {
		lane = &rail->tx_lanes[j];
		if (__atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) !=
		    RAIL_LANE_ACTIVE)
			continue;
		rail_sched_enter(rail->dp);
		for (i = 0; i < n; i++)
			conn[i] = rail_conn_get(pair[i]->peer, lane,
						pair[i]->remote);
		rail_sched_leave(rail->dp);
		health_cut_lane(lane, conn, n, shuns);
	}
}

void rail_health_cut(struct tei_rail_peer *peer, struct rail *rail,
		     uint16_t remote, bool shuns)
{
	struct health_todo one = { .peer = peer, .rail = rail,
				   .remote = remote }, *pair = &one;

	health_cut(&pair, 1, shuns);
}

/* Asks the TCP stack whether a pair that seems to be stalled still makes
 * progress. If it does not, moves the pair to SUSPECT or DOWN. Otherwise starts
 * the check again or, if the pair is idle, frees the fault. */
static void health_confirm(const struct health_todo *t,
			   const struct rail_disconnect_list *list)
{
	bool idles = rail_stall_idles(t->peer, t->lane, t->remote);
	bool still = !idles && rail_stall_confirm(list, t->peer, t->remote,
						  t->moves, t->doubt_ns,
						  t->asked);
	struct rail_fault *f;

	rail_sched_enter(t->peer->dp);
	f = rail_pair_fault(t->peer, t->rail, t->remote);
	if (f && idles && f->stage <= RAIL_FAULT_SUSPECT) {
		health_free(f);
	} else if (f && still && f->stage == RAIL_FAULT_ASKED) {
		f->stage = RAIL_FAULT_SUSPECT;
		rail_conn_reroute(f->peer);
		rail_peer_activate(f->peer);
		rail_health_state(t->rail);
	} else if (f && still && f->stage == RAIL_FAULT_SUSPECT) {
		rail_health_down(t->peer, t->rail, t->remote,
				 "posted operations do not complete", true);
	} else if (f && f->stage <= RAIL_FAULT_SUSPECT) {
		f->stage = RAIL_FAULT_ASKED;
		f->rail_slices = rail_moved(t->rail);
		f->since_ns = tei_now_ns();
		f->alive_ns = 0;
		f->asked = false;
		f->asks = 0;
		rail_conn_reroute(f->peer);
		rail_peer_attend(f->peer);
		rail_health_state(t->rail);
	}
	rail_sched_leave(t->peer->dp);
}

/* Returns true if the actions a and b are of the same kind and can be taken
 * together. */
static bool health_alike(const struct health_todo *a,
			 const struct health_todo *b)
{
	return a->what == b->what && a->rail == b->rail &&
	       ((a->what != HEALTH_CONFIRM && a->what != HEALTH_SHUN) ||
		a->lane == b->lane);
}

/* Returns true if the TCP stack of the silent peer has acknowledged nothing for
 * RAIL_HEALTH_STILL_NS either. */
static bool health_still(const struct health_todo *t,
			 const struct rail_disconnect_list *list)
{
	uint64_t acked = rail_stall_acked(list, t->peer, t->remote);
	uint64_t now = tei_now_ns();
	struct rail_fault *f;
	bool still;

	rail_sched_enter(t->peer->dp);
	f = rail_pair_fault(t->peer, t->rail, t->remote);
	still = f && health_in_the_way(f, now) &&
		rail_stall_moves(t->peer, t->lane, t->remote) == t->moves;
	if (still && (!f->acked_ns || f->acked != acked)) {
		f->acked = acked;
		f->acked_ns = now;
	}
	still = still && now >= f->acked_ns + RAIL_HEALTH_STILL_NS;
	rail_sched_leave(t->peer->dp);
	return still;
}

/* Cuts the connections of n pairs of one lane, as far as they are contended and
 * their peers are still silent. */
static void health_shun(struct health_todo **pair, int n)
{
	struct rail_disconnect_list list;
	int i, k = 0;

	/* handles completions that have arrived already */
	rail_lane_run(pair[0]->lane);
	rail_disconnect_list(pair[0]->lane, &list);
	for (i = 0; i < n; i++)
		if (health_still(pair[i], &list))
			pair[k++] = pair[i];
	rail_disconnect_list_free(&list);
	if (k)
		health_cut(pair, k, true);
}

/* Takes the action of the first entry, together with all entries that need the
 * same action. Peers often become silent at the same time, and one search then
 * finds the connections of all of them. Keeps the other entries at the
 * beginning of todo and returns their number. */
static int health_do(struct health_todo **todo, int n)
{
	struct health_todo *alike[HEALTH_BATCH], *first = todo[0];
	struct rail_disconnect_list list;
	int i, k = 0, left = 0;

	for (i = 0; i < n; i++) {
		if (health_alike(first, todo[i]))
			alike[k++] = todo[i];
		else
			todo[left++] = todo[i];
	}
	switch (first->what) {
	case HEALTH_CONFIRM:
		rail_disconnect_list(first->lane, &list);
		for (i = 0; i < k; i++)
			health_confirm(alike[i], &list);
		rail_disconnect_list_free(&list);
		break;
	case HEALTH_CUT:
		health_cut(alike, k, false);
		break;
	case HEALTH_SHUN:
		health_shun(alike, k);
		break;
	case HEALTH_RENEW:
		for (i = 0; i < k; i++)
			if (alike[i]->moves)
				health_renew(alike[i]->rail);
		rail_sched_kick(first->peer->dp, 0);
		break;
	}
	return left;
}

/* Handles all faults that are due. Only the progress thread frees peers, so the
 * peers of the entries stay valid without the lock. Any thread that evicts a
 * peer frees its faults, so a fault is looked up again under the lock. */
static void health_faults(struct tei_rail_dp *dp, uint64_t now)
{
	struct health_todo todo[HEALTH_BATCH], *list[HEALTH_BATCH];
	struct rail_fault *f, *tmp;
	uint32_t r;
	int i, n = 0;

	rail_sched_enter(dp);
	tei_list_foreach_safe (f, tmp, &dp->health.faults, struct rail_fault,
			       link) {
		n += health_step(f, now, &todo[n]);
		if (n == HEALTH_BATCH)
			break;
	}
	rail_sched_leave(dp);
	for (i = 0; i < n; i++)
		list[i] = &todo[i];
	while (n)
		n = health_do(list, n);
	/* a rail's state also depends on the progress of its other pairs, which
	 * may have changed */
	rail_sched_enter(dp);
	for (r = 0; r < rail_count(dp); r++)
		if (__atomic_load_n(&rail_at(dp, r)->open, __ATOMIC_ACQUIRE))
			rail_health_state(rail_at(dp, r));
	rail_sched_leave(dp);
}

uint32_t rail_health_collect(struct rail *rail)
{
	uint32_t opened = rail_reopen_collect(rail);

	if (!(opened & (RAIL_REOPENED_RX | RAIL_REOPENED_TX)))
		return opened;
	rail_sched_enter(rail->dp);
	rail_health_state(rail);
	rail_sched_leave(rail->dp);
	rail_sched_kick(rail->dp, 0);
	return opened;
}

static uint64_t health_probes(struct tei_rail_dp *dp, uint64_t now)
{
	uint64_t next = 0, due;
	uint32_t i;

	if (now < dp->health.probe_next_ns)
		return dp->health.probe_next_ns;
	dp->health.probe_next_ns = now + RAIL_HEALTH_PROBE_NS;
	for (i = 0; i < rail_count(dp); i++) {
		due = rail_probe_run(rail_at(dp, i), now);
		if (due && (!next || due < next))
			next = due;
	}
	return next;
}

uint64_t rail_health_run(struct tei_rail_dp *dp, uint64_t now)
{
	bool inflight = rail_posted_any(dp);
	bool faults = __atomic_load_n(&dp->health.nfaults, __ATOMIC_RELAXED);
	bool due = now - dp->health.checked_ns >= RAIL_HEALTH_NS;
	uint64_t next, probe = 0;

	if (due) {
		dp->health.checked_ns = now;
		rail_link_read(dp);
		if (inflight)
			rail_stall_check(dp, now);
	}
	if (!inflight && !faults && !dp->health.probing)
		return 0;
	if (faults && (due || __atomic_exchange_n(&dp->health.soon, false,
						  __ATOMIC_RELAXED)))
		health_faults(dp, now);
	if (faults || dp->health.probing)
		probe = health_probes(dp, now);
	next = dp->health.checked_ns + RAIL_HEALTH_NS;
	return probe && probe < next ? probe : next;
}
