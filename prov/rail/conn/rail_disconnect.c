/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cuts connections of a lane: one that has been evicted from the endpoint
 * cache, or all of them before the endpoint is closed.
 *
 * Some providers that use sockets cannot safely close an endpoint while
 * operations are under way. libfabric 1.17's tcp frees a half-received read
 * response twice; 2.x's tcp keeps a half-accepted connection that refers to the
 * closed listener. Both handle the loss of a connection correctly. So the
 * sockets are shut down first, and the lane is polled until the provider has
 * noticed the loss. After that the endpoint is closed with no operation under
 * way.
 *
 * The sockets of a lane are those that its wait object watches. It is an epoll
 * descriptor that may contain other epoll descriptors; /proc/self/fdinfo lists
 * their entries (proc(5)). If the provider has no sockets, no entry is found
 * and nothing is cut. If a forked child still has a socket open, the socket
 * stays in the list after this process has closed it, and its number may now
 * belong to another file. So the inode number is compared as well.
 */

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/lock.h"

#define CUT_DEPTH	4			/* nested epoll descriptors */
#define CUT_NS		(50 * TEI_NS_PER_MS)	/* longest time of polling */
/* Number of polls without an event after which rail_disconnect ends. */
#define CUT_IDLE_POLLS 8
#define CUT_FOUND	4			/* connections handled
						 * per address */

/* A search among a lane's sockets, and its result. */
struct cut {
	bool shut;			/* matching sockets must be shut down */
	const struct sockaddr *peer;	/* matching address, NULL: all match */
	const struct rail_lane *lane;	/* lane whose accepted sockets are
					 * counted apart, or NULL */
	struct rail_disconnect_list
		*list; /* gets all connected ones, or NULL */
	uint32_t meant, others, nameless, listening;
	uint32_t accepted;		/* number of sockets that do not match
					 * but were accepted from a peer */
	uint32_t silent;		/* number of matching sockets for which
					 * rail_tcp_silent is true */
	bool lives, pending;		/* some matching socket is alive, or is
					 * pending */
	struct rail_socket which;	/* first matching socket */
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

static bool cut_listens(int fd)
{
	socklen_t len = sizeof(int);
	int on = 0;

	return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) && on;
}

/* Returns true if the connection is established, or if it is not TCP. */
static bool cut_lives(int fd)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) ||
	       info.tcpi_state == TCP_ESTABLISHED;
}

/* Counts a socket that has no remote address: it listens, is connecting or is
 * broken. */
static void cut_nameless(int fd, struct cut *c)
{
	if (cut_listens(fd))
		c->listening++;
	else
		c->nameless++;
}

/* --- lists of connections ------------------------------------------------ */

/* An address as a sort key. */
struct cut_key {
	uint16_t family, port;
	uint8_t ip[16];
};

struct rail_disconnect_seen {
	struct cut_key key;
	int fd;
	unsigned long ino;
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
		     const struct sockaddr *sa, int fd, unsigned long ino)
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
	list->seen[list->n].fd = fd;
	list->seen[list->n++].ino = ino;
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
 * may belong to any peer, because the peer's end has an ephemeral address. own:
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
static void cut_socket(int fd, unsigned long ino, struct cut *c)
{
	struct sockaddr_storage own, sa;
	socklen_t len = sizeof(own);

	/* only IP sockets; descriptors for signalling are sockets too */
	if (getsockname(fd, (struct sockaddr *)&own, &len) ||
	    (own.ss_family != AF_INET && own.ss_family != AF_INET6))
		return;
	if (c->peer || c->list) {
		len = sizeof(sa);
		if (getpeername(fd, (struct sockaddr *)&sa, &len)) {
			cut_nameless(fd, c);
			return;
		}
		if (c->list) {
			cut_note(c->list, (struct sockaddr *)&sa, fd, ino);
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
		c->which = (struct rail_socket){ fd, ino };
	c->lives |= cut_lives(fd);
	c->pending |= rail_tcp_pending(fd);
	c->silent += rail_tcp_silent(fd);
	if (c->shut)
		shutdown(fd, SHUT_RDWR);
}

/* Searches a descriptor and the descriptors that it watches. ino: expected
 * inode number, 0: any. The inode number is checked because the descriptor may
 * meanwhile belong to another file. */
static void cut_watched(int fd, unsigned long ino, int depth, struct cut *c)
{
	char conn[64], line[256];
	struct statx st;
	FILE *f;
	int target, n;

	/* statx, because ThreadSanitizer reports fstat as a race with the
	 * thread that owns the descriptor */
	if (!depth || fd < 0 ||
	    statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &st) ||
	    (ino && st.stx_ino != ino))
		return;
	if (S_ISSOCK(st.stx_mode)) {
		cut_socket(fd, st.stx_ino, c);
		return;
	}
	snprintf(conn, sizeof(conn), "/proc/self/fdinfo/%d", fd);
	f = fopen(conn, "re");
	if (!f)
		return;
	while (fgets(line, sizeof(line), f)) {
		n = sscanf(line,
			   "tfd: %d events: %*x data: %*x pos:%*d ino:%lx",
			   &target, &ino);
		if (n > 0)
			cut_watched(target, n > 1 ? ino : 0, depth - 1, c);
	}
	fclose(f);
}

void rail_disconnect(struct rail_lane *lane, struct rail_done *done)
{
	struct cut all = { .shut = true };
	uint64_t end = tei_now_ns() + CUT_NS;
	int idle_polls = 0;

	if (!lane->ep || lane->wait_fd < 0)
		return;
	cut_watched(lane->wait_fd, 0, CUT_DEPTH, &all);
	while (tei_now_ns() < end &&
	       (idle_polls < CUT_IDLE_POLLS || !tei_list_empty(&lane->posted)))
		idle_polls = rail_lane_poll(lane, done) ? 0 : idle_polls + 1;
}

/* Returns true if the lane may have sockets and a socket may be connected to
 * the address c->peer. */
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
				     struct rail_socket *which)
{
	struct cut c = { .shut = shut, .peer = addr, .lane = lane };

	if (!cut_can(lane, &c, len))
		return RAIL_CUT_UNKNOWN;
	cut_watched(lane->wait_fd, 0, CUT_DEPTH, &c);
	if (c.meant && which)
		*which = c.which;
	if (c.meant)
		return RAIL_CUT_SOME;
	return c.others && !c.nameless && !c.accepted ? RAIL_CUT_NONE :
							RAIL_CUT_UNKNOWN;
}

enum rail_disconnect rail_disconnect_one(struct rail_lane *lane,
					 const void *addr, size_t len,
					 struct rail_socket *which)
{
	return cut_find(lane, addr, len, true, which);
}

bool rail_disconnect_there(const struct rail_socket *which)
{
	struct statx st;

	return which->fd >= 0 &&
	       !statx(which->fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO,
		      &st) &&
	       S_ISSOCK(st.stx_mode) && st.stx_ino == which->ino;
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
		fd = fcntl(lane->wait_fd, F_DUPFD_CLOEXEC, 0);
	tei_mutex_unlock(&lane->lock);
	if (fd < 0)
		return;
	/* The search of a thousand connections takes milliseconds, so the lock
	 * is not held. Sockets may be closed meanwhile; therefore the search
	 * only reads. */
	cut_watched(fd, 0, CUT_DEPTH, &c);
	close(fd);
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

	cut_watched(seen->fd, seen->ino, 1, &c);
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
			    rail_tcp_received(seen[i].fd, ms, asked);
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
			acked += rail_tcp_acked(seen[i].fd);
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
	/* the connection may have been made after the scan of the list */
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
	cut_watched(lane->wait_fd, 0, CUT_DEPTH, &c);
	if (c.lives)
		return RAIL_CUT_SOME;
	/* no socket was found at all: the provider's sockets cannot be seen */
	return !c.accepted && cut_any(&c) ? RAIL_CUT_NONE : RAIL_CUT_UNKNOWN;
}

bool rail_disconnect_shows(struct rail_lane *lane, const void *addr, size_t len)
{
	struct cut c = { .peer = addr };

	if (!cut_can(lane, &c, len))
		return false;
	cut_watched(lane->wait_fd, 0, CUT_DEPTH, &c);
	return cut_any(&c);
}

bool rail_disconnect_pending(struct rail_lane *lane, const void *addr,
			     size_t len)
{
	struct cut c = { .peer = addr };

	if (!cut_can(lane, &c, len))
		return false;
	cut_watched(lane->wait_fd, 0, CUT_DEPTH, &c);
	return c.pending;
}

bool rail_disconnect_silent(struct rail_lane *lane, const void *addr,
			    size_t len)
{
	struct cut c = { .peer = addr };

	if (!cut_can(lane, &c, len))
		return false;
	cut_watched(lane->wait_fd, 0, CUT_DEPTH, &c);
	return c.meant && c.silent == c.meant;
}

uint32_t rail_disconnect_count(struct rail_lane *lane)
{
	struct sockaddr_in none = { .sin_family = AF_INET };
	struct cut c = { .peer = (const void *)&none };

	cut_watched(lane->wait_fd, 0, CUT_DEPTH, &c);
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
