/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cuts connections of a lane: a connection that was evicted from the endpoint
 * cache, or all connections before the endpoint is closed.
 *
 * Some providers that use sockets cannot safely close an endpoint while
 * operations are under way. libfabric 1.17's tcp frees a half-received read
 * response twice; 2.x's tcp keeps a half-accepted connection that refers to the
 * closed listener. Both handle the loss of a connection correctly. So the
 * sockets are shut down first, and the lane is polled until the provider has
 * noticed the loss. After that the endpoint is closed with no operation under
 * way.
 *
 * The sockets of a lane are those that its wait object watches. If the provider
 * has no sockets, none is found and nothing is cut.
 */

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/world.h"

#define CUT_NS		(50 * TEI_NS_PER_MS) /* rail_disconnect polls the lane
					      * for at most this time */
/* Number of polls without an event after which rail_disconnect ends. */
#define CUT_IDLE_POLLS 8
#define CUT_FOUND	4		/* limit of the connections to one
					 * address that cut_seen returns */

/* A search among a lane's sockets, and its result. */
struct cut {
	bool shut;			/* the search must shut down the sockets
					 * that match */
	const struct sockaddr *peer;	/* remote address that is searched for;
					 * NULL means that all sockets match */
	const struct rail_lane *lane;	/* lane whose accepted sockets are
					 * counted in `accepted`, or NULL */
	struct rail_disconnect_list
		*list;			/* list to which the search adds all
					 * connected sockets, or NULL */
	uint32_t meant, others, nameless, listening;
	uint32_t accepted;		/* number of sockets that do not match
					 * but were accepted from a peer */
	uint32_t silent;		/* number of matching sockets for which
					 * rail_tcp_silent is true */
	bool lives, pending;		/* lives: a matching socket can still
					 * carry data; pending: rail_tcp_pending
					 * is true for a matching socket */
	struct tei_socket which;	/* first matching socket that the search
					 * has found */
};

static bool cut_same(const struct sockaddr *a, const struct sockaddr *b)
{
	const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
	const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;

	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return a4->sin_port == b4->sin_port &&
		       a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return a6->sin6_port == b6->sin6_port &&
	       !memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr));
}

/* Returns true if the connection is established, or if it is not TCP. */
static bool cut_lives(int fd)
{
	struct tei_tcp_state tcp;

	return !tei_world->net.tcp_state(fd, &tcp) || tcp.established;
}

/* Counts a socket that has no remote address, because it listens, is connecting
 * or is broken. */
static void cut_nameless(int fd, struct cut *c)
{
	if (tei_world->net.listens(fd))
		c->listening++;
	else
		c->nameless++;
}

/* --- lists of connections ------------------------------------------------ */

/* An IP address and a port in a form that memcmp can order. */
struct cut_key {
	uint16_t family, port;
	uint8_t ip[16];
};

struct rail_disconnect_seen {
	struct cut_key key;
	struct tei_socket socket;
};

static void cut_key(const struct sockaddr *sa, struct cut_key *key)
{
	const struct sockaddr_in *a4 = (const void *)sa;
	const struct sockaddr_in6 *a6 = (const void *)sa;

	memset(key, 0, sizeof(*key));
	key->family = sa->sa_family;
	if (sa->sa_family == AF_INET) {
		key->port = a4->sin_port;
		memcpy(key->ip, &a4->sin_addr, sizeof(a4->sin_addr));
	} else {
		key->port = a6->sin6_port;
		memcpy(key->ip, &a6->sin6_addr, sizeof(a6->sin6_addr));
	}
}

static int cut_order(const void *a, const void *b)
{
	const struct rail_disconnect_seen *x = a, *y = b;

	return memcmp(&x->key, &y->key, sizeof(x->key));
}

/* Adds a connection to the list. If memory is short, the connection is left
 * out. */
static void cut_note(struct rail_disconnect_list *list,
		     const struct sockaddr *sa, const struct tei_socket *found)
{
	uint32_t cap = list->cap ? 2 * list->cap : 64;
	struct rail_disconnect_seen *more;

	if (list->n == list->cap) {
		more = realloc(list->seen, cap * sizeof(*more));
		if (!more)
			return;
		list->seen = more;
		list->cap = cap;
	}
	cut_key(sa, &list->seen[list->n].key);
	list->seen[list->n++].socket = *found;
}

/* Returns the first connection in the list with that address and sets *n to the
 * number of connections with that address, at most CUT_FOUND. Returns NULL if
 * there is none. */
static struct rail_disconnect_seen *
cut_seen(const struct rail_disconnect_list *list, const void *addr, size_t len,
	 uint32_t *n)
{
	uint32_t from = 0, to = list->n, mid;
	const struct sockaddr *sa = addr;
	struct cut_key key;

	*n = 0;
	if (len < sizeof(struct sockaddr_in) ||
	    (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
		return NULL;
	cut_key(sa, &key);
	while (from < to) {
		mid = from + (to - from) / 2;
		if (memcmp(&list->seen[mid].key, &key, sizeof(key)) < 0)
			from = mid + 1;
		else
			to = mid;
	}
	while (from + *n < list->n && *n < CUT_FOUND &&
	       !memcmp(&list->seen[from + *n].key, &key, sizeof(key)))
		++*n;
	return *n ? list->seen + from : NULL;
}

/* --- the search ---------------------------------------------------------- */

/*
 * Returns true if the connection was accepted by the lane. Such a connection
 * may belong to any peer, because the peer's end has an ephemeral port. own:
 * local address of the socket.
 */
static bool cut_accepted(const struct cut *c, const struct sockaddr *own)
{
	const struct tei_rail_addr *a = &c->lane->addr;
	struct cut_key mine, its;

	if (a->len < sizeof(struct sockaddr_in) ||
	    ((const struct sockaddr *)(const void *)a->bytes)->sa_family !=
		    own->sa_family)
		return false;
	cut_key((const void *)a->bytes, &mine);
	cut_key(own, &its);
	return mine.port && mine.port == its.port;
}

/* Compares one socket with the address that is searched for, and updates the
 * result of the search. */
static void cut_socket(const struct tei_socket *found, void *arg)
{
	const struct tei_world_net *net = &tei_world->net;
	struct cut *c = arg;
	struct sockaddr_storage own, sa;
	uint32_t len = sizeof(own);
	int fd = found->fd;

	/* Only IP sockets are examined, because file descriptors for signalling
	 * are sockets too. */
	if (net->own_addr(fd, (struct sockaddr *)&own, &len) ||
	    (own.ss_family != AF_INET && own.ss_family != AF_INET6))
		return;
	if (c->peer || c->list) {
		len = sizeof(sa);
		if (net->peer_addr(fd, (struct sockaddr *)&sa, &len)) {
			cut_nameless(fd, c);
			return;
		}
		if (c->list) {
			cut_note(c->list, (struct sockaddr *)&sa, found);
			return;
		}
		if (!cut_same((struct sockaddr *)&sa, c->peer)) {
			if (c->lane && cut_accepted(c, (struct sockaddr *)&own))
				c->accepted++;
			else
				c->others++;
			return;
		}
	}
	if (!c->meant++)
		c->which = *found;
	c->lives |= cut_lives(fd);
	c->pending |= rail_tcp_pending(fd);
	c->silent += rail_tcp_silent(fd);
	if (c->shut)
		net->cut(fd);
}

/* Calls cut_socket for each socket that the epoll descriptor fd watches. */
static void cut_watched(int fd, struct cut *c)
{
	tei_world->net.sockets(fd, 0, cut_socket, c);
}

void rail_disconnect(struct rail_lane *lane, struct rail_done *done)
{
	struct cut all = { .shut = true };
	uint64_t end = tei_now_ns() + CUT_NS;
	int idle_polls = 0;

	if (!lane->ep || lane->wait_fd < 0)
		return;
	cut_watched(lane->wait_fd, &all);
	while (tei_now_ns() < end &&
	       (idle_polls < CUT_IDLE_POLLS ||
		!tei_list_empty(&lane->posted))) {
		idle_polls = rail_lane_poll(lane, done) ? 0 : idle_polls + 1;
		tei_relax();
	}
}

/* Returns true if the lane may have sockets and c->peer is an IP address. */
static bool cut_can(const struct rail_lane *lane, const struct cut *c,
		    size_t len)
{
	return lane->wait_fd >= 0 && len >= sizeof(struct sockaddr_in) &&
	       (c->peer->sa_family == AF_INET ||
		c->peer->sa_family == AF_INET6);
}

/* Searches the lane's connections for that address. *which is set to the first
 * match, if any. */
static enum rail_disconnect cut_find(struct rail_lane *lane, const void *addr,
				     size_t len, bool shut,
				     struct tei_socket *which)
{
	struct cut c = { .shut = shut, .peer = addr, .lane = lane };

	if (!cut_can(lane, &c, len))
		return RAIL_CUT_UNKNOWN;
	cut_watched(lane->wait_fd, &c);
	if (c.meant && which)
		*which = c.which;
	if (c.meant)
		return RAIL_CUT_SOME;
	return c.others && !c.nameless && !c.accepted ? RAIL_CUT_NONE :
							RAIL_CUT_UNKNOWN;
}

enum rail_disconnect rail_disconnect_one(struct rail_lane *lane,
					 const void *addr, size_t len,
					 struct tei_socket *which)
{
	return cut_find(lane, addr, len, true, which);
}

bool rail_disconnect_there(const struct tei_socket *which)
{
	return which->fd >= 0 && tei_world->net.same(which);
}

enum rail_disconnect rail_disconnect_find(struct rail_lane *lane,
					  const void *addr, size_t len)
{
	return cut_find(lane, addr, len, false, NULL);
}

void rail_disconnect_list(struct rail_lane *lane,
			  struct rail_disconnect_list *list)
{
	struct cut c = { .list = list };
	int fd = -1;

	memset(list, 0, sizeof(*list));
	list->lane = lane;
	tei_mutex_lock(&lane->lock);
	if (lane->wait_fd >= 0)
		fd = tei_world->net.dup(lane->wait_fd);
	tei_mutex_unlock(&lane->lock);
	if (fd < 0)
		return;
	/* The search of a thousand connections takes milliseconds, so the lock
	 * is not held. Sockets may be closed meanwhile; therefore the search
	 * only reads. */
	cut_watched(fd, &c);
	tei_world->net.close(fd);
	if (list->n)
		qsort(list->seen, list->n, sizeof(*list->seen), cut_order);
}

void rail_disconnect_list_free(struct rail_disconnect_list *list)
{
	free(list->seen);
	list->seen = NULL;
	list->n = 0;
}

/* Returns true if the descriptor of a list entry still belongs to the same
 * connection and not to another file. shut: also shuts the connection down. */
static bool cut_again(const struct rail_disconnect_seen *seen, const void *addr,
		      bool shut)
{
	struct cut c = { .peer = addr, .shut = shut };

	if (tei_world->net.same(&seen->socket))
		cut_socket(&seen->socket, &c);
	return c.meant;
}

bool rail_disconnect_received(const struct rail_disconnect_list *list,
			      const void *addr, size_t len, uint32_t ms,
			      bool asked)
{
	struct rail_lane *lane = list->lane;
	struct rail_disconnect_seen *seen;
	bool received = false;
	uint32_t i, n;

	seen = cut_seen(list, addr, len, &n);
	tei_mutex_lock(&lane->lock);
	for (i = 0; lane->ep && i < n; i++)
		received |= cut_again(&seen[i], addr, false) &&
			    rail_tcp_received(seen[i].socket.fd, ms, asked);
	tei_mutex_unlock(&lane->lock);
	return received;
}

uint64_t rail_disconnect_acked(const struct rail_disconnect_list *list,
			       const void *addr, size_t len)
{
	struct rail_lane *lane = list->lane;
	struct rail_disconnect_seen *seen;
	uint64_t acked = 0;
	uint32_t i, n;

	seen = cut_seen(list, addr, len, &n);
	tei_mutex_lock(&lane->lock);
	for (i = 0; lane->ep && i < n; i++)
		if (cut_again(&seen[i], addr, false))
			acked += rail_tcp_acked(seen[i].socket.fd);
	tei_mutex_unlock(&lane->lock);
	return acked;
}

void rail_disconnect_listed(struct rail_lane *lane,
			    const struct rail_disconnect_list *list,
			    const void *addr, size_t len)
{
	struct rail_disconnect_seen *seen;
	bool found = false;
	uint32_t i, n;

	seen = cut_seen(list, addr, len, &n);
	for (i = 0; i < n; i++)
		found |= cut_again(&seen[i], addr, true);
	/* the connection may have been made after the list */
	if (!found)
		rail_disconnect_one(lane, addr, len, NULL);
}

static bool cut_any(const struct cut *c)
{
	return c->meant || c->others || c->nameless || c->listening;
}

enum rail_disconnect rail_disconnect_lives(struct rail_lane *lane,
					   const void *addr, size_t len)
{
	struct cut c = { .peer = addr, .lane = lane };

	if (!cut_can(lane, &c, len))
		return RAIL_CUT_UNKNOWN;
	cut_watched(lane->wait_fd, &c);
	if (c.lives)
		return RAIL_CUT_SOME;
	/* if no socket was found at all, the provider's sockets cannot be
	 * examined */
	return !c.accepted && cut_any(&c) ? RAIL_CUT_NONE : RAIL_CUT_UNKNOWN;
}

bool rail_disconnect_shows(struct rail_lane *lane, const void *addr, size_t len)
{
	struct cut c = { .peer = addr };

	if (!cut_can(lane, &c, len))
		return false;
	cut_watched(lane->wait_fd, &c);
	return cut_any(&c);
}

bool rail_disconnect_pending(struct rail_lane *lane, const void *addr,
			     size_t len)
{
	struct cut c = { .peer = addr };

	if (!cut_can(lane, &c, len))
		return false;
	cut_watched(lane->wait_fd, &c);
	return c.pending;
}

bool rail_disconnect_silent(struct rail_lane *lane, const void *addr,
			    size_t len)
{
	struct cut c = { .peer = addr };

	if (!cut_can(lane, &c, len))
		return false;
	cut_watched(lane->wait_fd, &c);
	return c.meant && c.silent == c.meant;
}

uint32_t rail_disconnect_count(struct rail_lane *lane)
{
	struct sockaddr_in none = { .sin_family = AF_INET };
	struct cut c = { .peer = (const void *)&none };

	cut_watched(lane->wait_fd, &c);
	return c.others;
}

void rail_lane_shutdown(struct rail_lane *lane, bool throttled)
{
	struct rail_done done;
	struct tei_list none;

	tei_list_init(&none);
	rail_done_init(&done);
	tei_mutex_lock(&lane->lock);
	rail_disconnect(lane, &done);
	if (throttled)
		rail_closing_start(lane);
	else
		rail_lane_close(lane, &none);
	tei_mutex_unlock(&lane->lock);
	rail_done_run(lane->rail->dp, &done);
}
