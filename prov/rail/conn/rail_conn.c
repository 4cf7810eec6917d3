/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Connections (struct rail_conn): chooses the remote rail to which each local
 * rail connects, and inserts its address into the lane's address vector.
 */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_pair.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"

#define CONN_BACKOFF_MIN_US 20
#define CONN_BACKOFF_MAX_US 10000
#define CONN_FITS	    64
#define CONN_ROOM_MAX	    512
#define CONN_STUCK_NS	    (50 * TEI_NS_PER_MS)
#define CONN_CLOSES_NS	    (500 * TEI_NS_PER_MS)

static const uint8_t *conn_ip(const struct tei_rail_addr *a, size_t *len)
{
	const struct sockaddr *sa = (const void *)a->bytes;

	if ((a->addr_format == FI_SOCKADDR_IN ||
	     a->addr_format == FI_SOCKADDR) &&
	    a->len >= sizeof(struct sockaddr_in) && sa->sa_family == AF_INET) {
		*len = 4;
		return (const uint8_t *)&((const struct sockaddr_in *)
					  (const void *)sa)->sin_addr;
	}
	if (a->addr_format == FI_SOCKADDR_IN6 &&
	    a->len >= sizeof(struct sockaddr_in6)) {
		*len = 16;
		return (const uint8_t *)&((const struct sockaddr_in6 *)
					  (const void *)sa)->sin6_addr;
	}
	return NULL;
}

static bool conn_is_loopback(const uint8_t *ip, size_t len)
{
	static const uint8_t v6[16] = { [15] = 1 };

	return len == 4 ? ip[0] == 127 : !memcmp(ip, v6, 16);
}

static bool conn_same_net(const uint8_t *a, const uint8_t *b, size_t len,
			  unsigned int prefix)
{
	unsigned int bytes = prefix / 8, bits = prefix % 8;

	if (bytes > len || !prefix)
		return false;
	if (memcmp(a, b, bytes))
		return false;
	return !bits || bytes == len ||
	       (a[bytes] >> (8 - bits)) == (b[bytes] >> (8 - bits));
}

/* Returns true unless the address is a text without a terminator, which a peer
 * may have sent and which a provider would read beyond its end. */
static bool conn_ends(const struct tei_rail_addr *a)
{
	return a->addr_format != FI_ADDR_STR || memchr(a->bytes, '\0', a->len);
}

/* rail_conn.h describes the results 0 to 3. Result 3 means here that both rails
 * have the same IP address. */
int rail_conn_reach(const struct rail *rail, const struct rail_remote *remote)
{
	const struct tei_rail_addr *mine = &rail->nic.own;
	const struct tei_rail_addr *its = &remote->addr;
	const uint8_t *a, *b;
	size_t na = 0, nb = 0;

	if (!its->len || mine->protocol != its->protocol ||
	    mine->protocol_version != its->protocol_version ||
	    mine->addr_format != its->addr_format || !conn_ends(its))
		return 0;
	a = conn_ip(mine, &na);
	b = conn_ip(its, &nb);
	if (!a || !b)
		return a == b ? 2 : 0;
	if (na != nb || conn_is_loopback(a, na) != conn_is_loopback(b, nb))
		return 0;
	if (!memcmp(a, b, na))
		return 3;
	return conn_same_net(a, b, na, rail->nic.prefix) ? 2 : 1;
}

int rail_conn_fit(const struct rail *rail, const struct rail_remote *remote)
{
	return remote->hint ? 0 : rail_conn_reach(rail, remote);
}

int rail_conn_fit_any(struct tei_rail_dp *dp, const struct tei_rail_addr *addr)
{
	struct rail_remote remote;
	uint32_t i;

	memset(&remote, 0, sizeof(remote));
	remote.addr = *addr;
	for (i = 0; i < rail_count(dp); i++)
		if (__atomic_load_n(&rail_at(dp, i)->open, __ATOMIC_ACQUIRE) &&
		    rail_conn_fit(rail_at(dp, i), &remote))
			return (int)i;
	return -1;
}

/* Returns one of the remote rails that fit best (rail_conn_fit), or -1.
 * Consecutive values of "turn" select one after the other. */
static int16_t conn_choose(const struct tei_rail_peer *peer,
			   const struct rail *rail, uint32_t turn)
{
	int best = 0, fit, n = 0;
	uint16_t r;

	for (r = 0; r < peer->nremotes; r++) {
		fit = rail_conn_fit(rail, &peer->remotes[r]);
		if (fit > best) {
			best = fit;
			n = 0;
		}
		if (fit == best && fit)
			n++;
	}
	if (!n)
		return -1;
	turn %= (uint32_t)n;
	for (r = 0; r < peer->nremotes; r++)
		if (rail_conn_fit(rail, &peer->remotes[r]) == best && !turn--)
			return (int16_t)r;
	return -1;
}

/* Returns one of all remote rails that the local rail can reach, or -1.
 * Consecutive values of "turn" select one after the other. */
static int16_t conn_in_turn(const struct tei_rail_peer *peer,
			    const struct rail *rail, uint32_t turn)
{
	uint16_t r, n = 0;

	for (r = 0; r < peer->nremotes; r++)
		n += rail_conn_fit(rail, &peer->remotes[r]) != 0;
	if (!n)
		return -1;
	turn %= n;
	for (r = 0; r < peer->nremotes; r++)
		if (rail_conn_fit(rail, &peer->remotes[r]) && !turn--)
			return (int16_t)r;
	return -1;
}

/* --- detours around broken pairs ----------------------------------------- */

/* Returns true if another local rail carries slices to the peer. */
static bool conn_others_work(const struct tei_rail_peer *peer, uint32_t rail)
	TEI_REQUIRES(rail_sched_held)
{
	uint32_t i;

	for (i = 0; i < peer->pairs.rails; i++)
		if (i != rail && rail_health_works(peer, i))
			return true;
	return false;
}

/*
 * Returns the remote rail that the local rail uses. Usually this is "base",
 * which was chosen by its address. If the pair with "base" is broken and
 * another pair is not, returns the remote rail of the other pair. A remote rail
 * in the same network is preferred. A remote rail behind a router is used only
 * if no other local rail works, because packets to it may pass the wire of
 * another local rail.
 */
static int16_t conn_detour(const struct tei_rail_peer *peer,
			   const struct rail *rail, int16_t base)
	TEI_REQUIRES(rail_sched_held)
{
	int fit, least, best = 0, had;
	int16_t found = base;
	uint16_t r, i;

	if (base < 0 || !rail_health_faulty(peer, rail, (uint16_t)base))
		return base;
	had = rail_conn_fit(rail, &peer->remotes[base]);
	least = had > 1 && conn_others_work(peer, rail->index) ? 2 : 1;
	for (i = 1; i < peer->nremotes; i++) {
		r = (uint16_t)((base + i) % peer->nremotes);
		fit = rail_conn_fit(rail, &peer->remotes[r]);
		if (fit < least || fit <= best ||
		    rail_health_faulty(peer, rail, r))
			continue;
		best = fit;
		found = (int16_t)r;
	}
	return found;
}

void rail_conn_reroute(struct tei_rail_peer *peer)
{
	struct tei_rail_dp *dp = peer->dp;
	struct rail *rail;
	int16_t route;
	uint32_t i;

	for (i = 0; i < peer->pairs.rails; i++) {
		rail = rail_at(dp, i);
		route = -1;
		if (__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
			route = conn_detour(peer, rail,
					    conn_choose(peer, rail, i));
		if (route == peer->routes.route[i])
			continue;
		peer->routes.route[i] = route;
		peer->routes.changed = true;
		/* connections of the former route may still have places in the
		 * endpoint caches */
		__atomic_store_n(&dp->off_route.any, true, __ATOMIC_RELAXED);
	}
	rail_select_table(peer);
}

int16_t rail_conn_other(const struct tei_rail_peer *peer,
			const struct rail *rail, uint32_t turn)
{
	uint16_t r, i, n = peer->nremotes;
	int16_t last = -1;

	for (i = 0; i < n; i++) {
		r = (uint16_t)((turn + i) % n);
		if (r == peer->routes.route[rail->index] ||
		    !rail_conn_fit(rail, &peer->remotes[r]))
			continue;
		if (!rail_health_doubtful(peer, rail, r))
			return (int16_t)r;
		if (last < 0)
			last = (int16_t)r;
	}
	return last;
}

int16_t rail_conn_route(struct tei_rail_peer *peer, const struct rail *rail)
{
	if (!peer->dp->settings->sched.path_roundrobin ||
	    peer->routes.route[rail->index] < 0)
		return peer->routes.route[rail->index];
	return conn_in_turn(peer, rail, peer->pairs.turn++);
}

static struct rail_conn *conn_new(struct tei_rail_peer *peer, uint16_t remote)
{
	struct rail_conn *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->peer = peer;
	p->remote = remote;
	p->old.fd = -1;
	tei_list_init(&p->wait_link);
	return p;
}

/* Frees a connection object. lane: number of its tx lane. The connection of
 * lane 0 owns the width of the rail pair. */
static void conn_free(struct rail_conn *p, uint32_t lane)
	TEI_REQUIRES(rail_sched_held)
{
	if (p && !lane)
		rail_width_free(p->width);
	free(p);
}

/* Returns the connection of lane 0 of a new rail pair. If the rail has extra
 * lanes, allocates the width of the pair. Returns NULL if memory is short. */
static struct rail_conn *conn_new_pair(struct tei_rail_peer *peer,
				       struct rail *rail, uint16_t remote)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_conn *p = conn_new(peer, remote);

	if (!p || rail->ntx <= rail->nbase)
		return p;
	p->width = rail_width_new(peer, rail);
	if (p->width)
		return p;
	free(p);
	return NULL;
}

/* Makes the progress thread call rail_conn_table again, because an allocation
 * has failed. Returns the error code. */
static int conn_short(struct tei_rail_peer *peer) TEI_REQUIRES(rail_sched_held)
{
	peer->pairs.conns_short = true;
	rail_peer_attend(peer);
	return TEI_ERR_MEMORY;
}

/* Returns true if the connection with these indices exists. */
static bool conn_exists(const struct tei_rail_peer *peer, uint32_t rail,
			uint32_t lane, uint32_t remote)
	TEI_REQUIRES(rail_sched_held)
{
	return rail < peer->pairs.rails && lane < peer->pairs.lanes &&
	       remote < peer->pairs.remotes_cap;
}

/* Returns the connection with these indices, which may be a new one. head: the
 * connection of lane 0 of the same rail pair; not used for lane 0. Returns NULL
 * if memory is short. */
static struct rail_conn *conn_obtain(struct tei_rail_peer *peer, uint32_t rail,
				     uint32_t lane, uint32_t remote,
				     const struct rail_conn *head)
	TEI_REQUIRES(rail_sched_held)
{
	const struct rail_peer_pairs *old = &peer->pairs;
	struct rail_conn *p;

	if (conn_exists(peer, rail, lane, remote))
		return old->conns[(rail * old->lanes + lane) *
					  old->remotes_cap +
				  remote];
	if (!lane)
		return conn_new_pair(peer, rail_at(peer->dp, rail),
				     (uint16_t)remote);
	p = conn_new(peer, (uint16_t)remote);
	if (p)
		p->width = head->width;
	return p;
}

/* Replaces the table of connections by a larger one. Returns 0 or
 * TEI_ERR_MEMORY. */
static int conn_grow(struct tei_rail_peer *peer, uint32_t nrails, uint32_t L,
		     uint16_t cap) TEI_REQUIRES(rail_sched_held)
{
	struct rail_conn **tab =
		calloc((size_t)nrails * L * cap, sizeof(*tab));
	uint32_t i, j;

	if (!tab)
		return TEI_ERR_MEMORY;
	for (i = 0; i < nrails * L; i++)
		for (j = 0; j < cap; j++) {
			tab[i * cap + j] = conn_obtain(peer, i / L, i % L, j,
						       tab[i / L * L * cap +
							   j]);
			if (!tab[i * cap + j])
				goto err_tab;
		}
	free(peer->pairs.conns);
	peer->pairs.conns = tab;
	peer->pairs.rails = nrails;
	peer->pairs.lanes = L;
	peer->pairs.remotes_cap = cap;
	return 0;
err_tab:
	for (i = 0; i < nrails * L; i++)
		for (j = 0; j < cap; j++)
			if (!conn_exists(peer, i / L, i % L, j))
				conn_free(tab[i * cap + j], i % L);
	free(tab);
	return TEI_ERR_MEMORY;
}

void rail_conn_widen(struct tei_rail_peer *peer)
{
	if (peer->pairs.conns && peer->pairs.lanes < peer->dp->conf.lanes)
		conn_grow(peer, peer->pairs.rails, peer->dp->conf.lanes,
			  peer->pairs.remotes_cap);
}

/* Returns the number of lanes per rail for which a peer has connections at
 * first. */
static uint32_t conn_lanes(const struct tei_rail_dp *dp)
{
	uint32_t L = dp->settings->lanes.per_rail;

	return dp->settings->sched.connections_min > L ? dp->conf.lanes : L;
}

int rail_conn_table(struct tei_rail_peer *peer)
{
	struct tei_rail_dp *dp = peer->dp;
	uint32_t nrails = rail_count(dp), L = conn_lanes(dp), i;
	uint16_t cap = peer->nremotes > peer->pairs.remotes_cap
			       ? peer->nremotes
			       : peer->pairs.remotes_cap;

	if (L < peer->pairs.lanes)
		L = peer->pairs.lanes;
	peer->routes.changed = true;
	for (i = 0; i < TEI_RAIL_MAX; i++)
		peer->routes.route[i] = -1;
	/* set all usual routes first, because the choice of a replacement for a
	 * broken pair depends on the other routes */
	for (i = 0; i < nrails; i++)
		if (__atomic_load_n(&rail_at(dp, i)->open, __ATOMIC_ACQUIRE))
			peer->routes.route[i] =
				conn_choose(peer, rail_at(dp, i), i);
	rail_conn_reroute(peer);
	if (nrails <= peer->pairs.rails && cap == peer->pairs.remotes_cap) {
		peer->pairs.conns_short = false;
		return 0;
	}
	if (conn_grow(peer, nrails, L, cap))
		return conn_short(peer);
	peer->pairs.conns_short = false;
	rail_conn_reroute(peer);
	return 0;
}

void rail_conn_free_all(struct tei_rail_peer *peer)
{
	uint32_t cap = peer->pairs.remotes_cap, L = peer->pairs.lanes;
	uint32_t n = peer->pairs.rails * L * cap, i, j;
	struct rail *rail;

	/* messages may still be under way: clear the pointers of their send
	 * buffers to the connections */
	for (i = 0; i < rail_count(peer->dp); i++) {
		rail = rail_at(peer->dp, i);
		for (j = 0; j < RAIL_TX_MSGS; j++)
			if (rail->send.bufs[j].conn &&
			    rail->send.bufs[j].conn->peer == peer)
				rail->send.bufs[j].conn = NULL;
	}
	for (i = 0; i < n; i++) {
		rail_cache_forget(peer->pairs.conns[i]);
		conn_free(peer->pairs.conns[i], i / cap % L);
	}
	free(peer->pairs.conns);
	peer->pairs.conns = NULL;
	peer->pairs.rails = 0;
	peer->pairs.lanes = 0;
	peer->pairs.remotes_cap = 0;
}

struct rail_conn *rail_conn_get(struct tei_rail_peer *peer,
				struct rail_lane *lane, uint16_t remote)
{
	if (!conn_exists(peer, lane->rail->index, lane->index, remote))
		return NULL;
	return peer->pairs.conns[(lane->rail->index * peer->pairs.lanes +
				  lane->index) *
					 peer->pairs.remotes_cap +
				 remote];
}

/*
 * Returns true while the provider has not closed the connection that was cut. A
 * post would use that connection and fail. Examines the socket, which is there
 * until the provider closes the connection, even if the peer and its address
 * are gone. Always returns false once CONN_CLOSES_NS have passed.
 */
static bool conn_closes(struct rail_conn *conn, struct rail_lane *lane,
			const struct tei_rail_addr *addr)
	TEI_REQUIRES(lane->lock)
{
	uint64_t now;

	if (conn->old.fd < 0
		    ? rail_disconnect_find(lane, addr->bytes, addr->len) !=
				      RAIL_CUT_SOME ||
			      rail_cache_shares(lane, addr, conn)
		    : !rail_disconnect_there(&conn->old))
		return false;
	now = tei_now_ns();
	if (!conn->old_ns)
		conn->old_ns = now;
	return now < conn->old_ns + CONN_CLOSES_NS;
}

bool rail_conn_is_ready(const struct tei_rail_peer *peer,
			const struct rail_conn *conn,
			const struct rail_lane *lane, uint16_t remote)
{
	return remote < peer->nremotes && conn->ready &&
	       conn->lane_gen == lane->gen &&
	       conn->remote_serial == peer->remotes[remote].serial;
}

/* Replaces the zone in a link-local IPv6 address. The zone is the number of an
 * interface of the host that uses the address, so the peer's number is of no
 * use here. */
static void conn_set_zone(struct tei_rail_addr *addr, const struct rail *rail)
{
	struct sockaddr_in6 in6;

	if (addr->addr_format != FI_SOCKADDR_IN6 || addr->len < sizeof(in6))
		return;
	memcpy(&in6, addr->bytes, sizeof(in6));
	if (!IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr))
		return;
	in6.sin6_scope_id =
		__atomic_load_n(&rail->nic.ifindex, __ATOMIC_RELAXED);
	memcpy(addr->bytes, &in6, sizeof(in6));
}

int rail_conn_ready(struct tei_rail_peer *peer, struct rail_conn *conn,
		    struct rail_lane *lane, uint16_t remote, uint32_t gen)
{
	struct tei_rail_addr addr;
	uint32_t serial;
	int ret;

	rail_sched_enter(peer->dp);
	if (remote >= peer->nremotes) {
		rail_sched_leave(peer->dp);
		return -FI_EADDRNOTAVAIL;
	}
	serial = peer->remotes[remote].serial;
	if (gen && gen != peer->remotes[remote].gen) {
		rail_sched_leave(peer->dp);
		return -FI_EAGAIN;
	}
	if (rail_conn_is_ready(peer, conn, lane, remote)) {
		rail_sched_leave(peer->dp);
		return 0;
	}
	addr = peer->remotes[remote].addr;
	rail_sched_leave(peer->dp);
	conn_set_zone(&addr, lane->rail);
	/* the peer's rx lane is closed, and the peer will announce a new one */
	if (!addr.len)
		return -FI_EAGAIN;
	/* if an address handle were made now, the provider would use the
	 * connection that is being closed */
	if (conn->cut && conn->lane_gen == lane->gen &&
	    conn_closes(conn, lane, &addr))
		return -FI_EAGAIN;
	conn->cut = false;
	conn->old.fd = -1;
	conn->old_ns = 0;
	if (conn->ready && conn->lane_gen == lane->gen && !conn->posted)
		fi_av_remove(lane->av, &conn->fi_addr, 1, 0);
	conn->ready = false;
	ret = fi_av_insert(lane->av, addr.bytes, 1, &conn->fi_addr, 0, NULL);
	if (ret != 1)
		return ret < 0 ? ret : -FI_EADDRNOTAVAIL;
	conn->ready = true;
	conn->used = false;
	conn->connected = false;
	if (conn->lane_gen != lane->gen)
		conn->posted = 0;
	conn->lane_gen = lane->gen;
	conn->remote_serial = serial;
	conn->blocked_ns = 0;
	conn->since_ns = 0;
	conn->backoff_us = 0;
	return 0;
}

bool rail_conn_block(struct rail_conn *conn, uint64_t now, bool busy)
{
	if (busy) {
		/* the queue is full until the next completion */
		conn->room = conn->posted ? conn->posted : 1;
		conn->fits = 0;
		conn->blocked_ns = now + TEI_NS_PER_MS;
		return false;
	}
	if (!conn->since_ns)
		conn->since_ns = now;
	conn->backoff_us =
		conn->backoff_us ? conn->backoff_us * 2 : CONN_BACKOFF_MIN_US;
	if (conn->backoff_us > CONN_BACKOFF_MAX_US)
		conn->backoff_us = CONN_BACKOFF_MAX_US;
	conn->blocked_ns = now + conn->backoff_us * TEI_NS_PER_US;
	/* another thread may have set since_ns to a time later than now */
	return now > conn->since_ns + CONN_STUCK_NS;
}

/*
 * Returns true if no message is under way on the connection and the provider
 * still accepts nothing. In this case the provider has lost the idle
 * connection, which produces no completion, and is connecting again. The socket
 * that can be found belongs to the new connection, which the peer may never
 * answer.
 */
static bool conn_refuses(struct rail_conn *conn)
{
	uint64_t now = tei_now_ns();
	uint32_t msgs;

	rail_sched_enter(conn->peer->dp);
	msgs = conn->msgs;
	rail_sched_leave(conn->peer->dp);
	return conn->since_ns && !msgs &&
	       now > conn->since_ns + CONN_STUCK_NS &&
	       now < conn->blocked_ns + RAIL_TRIED_NS;
}

bool rail_conn_lives(struct rail_lane *lane, struct rail_conn *conn)
{
	uint8_t addr[TEI_RAIL_ADDR_MAX];
	size_t len = sizeof(addr);
	enum rail_disconnect lives;

	if (lane->state != RAIL_LANE_ACTIVE || !conn->connected ||
	    conn->lane_gen != lane->gen)
		return false;
	if (!conn->posted &&
	    !fi_av_lookup(lane->av, conn->fi_addr, addr, &len)) {
		lives = rail_disconnect_lives(lane, addr, len);
		conn->connected = lives != RAIL_CUT_NONE && !conn_refuses(conn);
	}
	return conn->connected;
}

/* --- slices and messages of a connection --------------------------------- */

void rail_conn_take(struct rail_conn *conn, struct rail_slice *s)
{
	s->conn = conn;
	if (!conn->inflight++ && conn->slot)
		conn->slot->cache->busy++;
	conn->bytes += s->len;
	if (conn->width)
		rail_width_take(conn->width, s);
	if (s->bulk) {
		conn->bulk_bytes += s->len;
		s->lane->rail->bulk.bytes += s->len;
	}
	/* raise the limit from time to time, because the provider may accept
	 * more slices than before */
	if (conn->room && ++conn->fits == CONN_FITS) {
		conn->fits = 0;
		conn->room = conn->room < CONN_ROOM_MAX ? conn->room * 2 : 0;
	}
}

void rail_conn_put(struct rail_slice *s)
{
	struct rail_conn *conn = s->conn;

	conn->bytes -= s->len;
	if (conn->width)
		rail_width_put(conn->width, s);
	if (s->bulk) {
		conn->bulk_bytes -= s->len;
		s->lane->rail->bulk.bytes -= s->len;
	}
	if (!--conn->inflight && conn->slot) {
		conn->slot->cache->busy--;
		conn->slot->cache->full_ns = 0;
	}
}

void rail_conn_send(struct rail_conn *conn, struct rail_tx *tx)
{
	tx->conn = conn;
	if (conn)
		conn->msgs++;
}

void rail_conn_sent(struct rail_tx *tx)
{
	if (tx->conn && !--tx->conn->msgs && tx->conn->slot)
		tx->conn->slot->cache->full_ns = 0;
	tx->conn = NULL;
}

/* Sets *theirs to the number of remote rails in the network of the local rail,
 * and *ours to the number of local rails with a route in the network of the
 * first of these remote rails. */
static void conn_count_near(const struct tei_rail_peer *peer,
			    const struct rail *rail, uint32_t *ours,
			    uint32_t *theirs) TEI_REQUIRES(rail_sched_held)
{
	const struct rail_remote *one = NULL;
	uint16_t r;
	uint32_t i;

	*ours = *theirs = 0;
	for (r = 0; r < peer->nremotes; r++) {
		if (rail_conn_fit(rail, &peer->remotes[r]) != 2)
			continue;
		if (!one)
			one = &peer->remotes[r];
		(*theirs)++;
	}
	for (i = 0; one && i < peer->pairs.rails; i++)
		*ours += peer->routes.route[i] >= 0 &&
			 rail_conn_fit(rail_at(peer->dp, i), one) == 2;
}

void rail_select_table(struct tei_rail_peer *peer)
{
	uint32_t i, ours, theirs;

	peer->routes.choice = false;
	for (i = 0; i < peer->pairs.rails; i++) {
		if (peer->routes.route[i] < 0)
			continue;
		conn_count_near(peer, rail_at(peer->dp, i), &ours, &theirs);
		peer->routes.choice |=
			theirs > 1 && (peer->routes.ranked || theirs > ours);
	}
}
