/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "meta/meta_server_int.h"
#include "util/clock.h"
#include "util/err.h"

/*
 * One client's exchange: READING until a request is complete, WRITING until
 * its reply is in the socket, then READING again.
 *
 * - What a client can make us hold is this struct: the body has room for the
 *   longest request, a longer one is refused at its header, and a reply is a
 *   reference to a snapshot. The next request is not read before the reply is
 *   out.
 * - A deadline is set when a state is entered and not moved by single bytes,
 *   so dripping gains nothing. For a reply it grows with the length.
 * - One event reads at most one request and writes at most CONN_SEND_MAX, so
 *   that a busy client leaves room for others.
 * - A conn is closed at once but freed in meta_conn_reap, since the current
 *   round of epoll events may still name it.
 */

#define CONN_SEND_MAX	((size_t)256 << 10)
#define CONN_SLOWEST	(UINT64_C(4) << 20)	/* bytes per second */

#define CONN_HEAD	sizeof(struct meta_wire_header)

/* --- clients per address ------------------------------------------------- */

static void conn_ip_key(const struct sockaddr *sa, uint8_t key[16])
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;

	memset(key, 0, 16);
	if (sa->sa_family == AF_INET6) {
		memcpy(key, &v6->sin6_addr, 8);
	} else {
		memset(key + 10, 0xff, 2);
		memcpy(key + 12, &v4->sin_addr, 4);
	}
}

static struct meta_ip *conn_ip_get(struct tei_meta_server *s,
				   const struct sockaddr *sa)
{
	struct meta_ip *ip;
	struct tei_list *bucket;
	uint8_t key[16];
	uint32_t hash = 0;
	int i;

	conn_ip_key(sa, key);
	for (i = 0; i < 16; i++)
		hash = hash * 31 + key[i];
	bucket = &s->ips[hash % META_IP_BUCKETS];
	tei_list_foreach(ip, bucket, struct meta_ip, link)
		if (!memcmp(ip->key, key, sizeof(key)))
			goto found;
	ip = calloc(1, sizeof(*ip));
	if (!ip)
		return NULL;
	memcpy(ip->key, key, sizeof(key));
	tei_list_add_head(bucket, &ip->link);
found:
	ip->clients++;
	return ip;
}

static void conn_ip_put(struct meta_ip *ip)
{
	if (--ip->clients)
		return;
	tei_list_del(&ip->link);
	free(ip);
}

/* --- end of a connection ------------------------------------------------- */

static void conn_close(struct tei_meta_server *s, struct meta_conn *c)
{
	if (c->state == META_CONN_DEAD)
		return;
	close(c->fd);
	c->fd = -1;
	c->state = META_CONN_DEAD;
	if (c->snapshot)
		meta_snapshot_unref(c->snapshot);
	c->snapshot = NULL;
	conn_ip_put(c->ip);
	tei_list_del(&c->link);
	tei_list_add_tail(&s->dead, &c->link);
	s->clients--;
	__atomic_store_n(&s->stats.clients, s->clients, __ATOMIC_RELAXED);
}

/*
 * Says goodbye: unread input would turn our close into a reset, which can
 * overtake the last frame.
 */
static void conn_part(int fd)
{
	uint8_t junk[4096];
	int i;

	shutdown(fd, SHUT_WR);
	for (i = 0; i < 16; i++)
		if (recv(fd, junk, sizeof(junk), MSG_DONTWAIT) <= 0)
			break;
}

static size_t conn_error_frame(uint8_t *out, uint32_t id, int code,
			       const char *text)
{
	struct meta_wire_header h;
	struct meta_wire_error e;
	size_t len = strnlen(text, META_WIRE_ERROR_TEXT);

	meta_wire_fill(&h, META_WIRE_ERROR, 0, id,
		       (uint32_t)(sizeof(e) + len));
	meta_wire_put32(e.code, (uint32_t)code);
	memcpy(out, &h, sizeof(h));
	memcpy(out + sizeof(h), &e, sizeof(e));
	memcpy(out + sizeof(h) + sizeof(e), text, len);
	return sizeof(h) + sizeof(e) + len;
}

static void conn_refuse_socket(int fd, uint32_t id, int code, const char *text)
{
	uint8_t out[sizeof(struct meta_wire_header) +
		    sizeof(struct meta_wire_error) + META_WIRE_ERROR_TEXT];
	size_t len = conn_error_frame(out, id, code, text);

	if (send(fd, out, len, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		conn_part(fd);
}

void meta_conn_refuse_fd(int fd, int code, const char *text)
{
	conn_refuse_socket(fd, 0, code, text);
	close(fd);
}

/* Only where no reply is half written. */
static void conn_refuse(struct tei_meta_server *s, struct meta_conn *c,
			int code, const char *text)
{
	uint32_t id = c->used >= CONN_HEAD ? meta_wire_get32(c->head.id) : 0;

	conn_refuse_socket(c->fd, id, code, text);
	conn_close(s, c);
}

void meta_conn_reap(struct tei_meta_server *s)
{
	struct meta_conn *c, *tmp;

	tei_list_foreach_safe(c, tmp, &s->dead, struct meta_conn, link) {
		tei_list_del(&c->link);
		free(c);
	}
}

void meta_conn_drop_all(struct tei_meta_server *s)
{
	struct meta_conn *c, *tmp;

	tei_list_foreach_safe(c, tmp, &s->conns, struct meta_conn, link)
		conn_close(s, c);
	meta_conn_reap(s);
}

/* --- deadlines and limits ------------------------------------------------ */

static void conn_due(struct tei_meta_server *s, struct meta_conn *c,
		     uint64_t deadline_ns)
{
	c->deadline_ns = deadline_ns;
	if (!s->next_due_ns || deadline_ns < s->next_due_ns)
		s->next_due_ns = deadline_ns;
	tei_list_del(&c->link);
	tei_list_add_tail(&s->conns, &c->link);
}

void meta_conn_expire(struct tei_meta_server *s, uint64_t now_ns)
{
	struct meta_conn *c, *tmp;

	s->next_due_ns = 0;
	tei_list_foreach_safe(c, tmp, &s->conns, struct meta_conn, link) {
		if (c->deadline_ns > now_ns) {
			if (!s->next_due_ns || c->deadline_ns < s->next_due_ns)
				s->next_due_ns = c->deadline_ns;
			continue;
		}
		META_COUNT(s, timed_out);
		if (c->state == META_CONN_READING)
			conn_refuse(s, c, TEI_ERR_REJECTED,
				    "no complete request in time");
		else
			conn_close(s, c);
	}
}

bool meta_conn_evict(struct tei_meta_server *s)
{
	struct meta_conn *c, *victim = NULL;

	tei_list_foreach(c, &s->conns, struct meta_conn, link)
		if (c->state == META_CONN_READING &&
		    (!victim || c->ip->clients > victim->ip->clients))
			victim = c;
	if (!victim)
		return false;
	META_COUNT(s, evicted);
	conn_refuse(s, victim, TEI_ERR_TOO_MANY,
		    "too many clients, the longest waiting one goes");
	return true;
}

/* --- replies ------------------------------------------------------------- */

static void conn_watch(struct tei_meta_server *s, struct meta_conn *c,
		       uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = c };

	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, c->fd, &ev))
		conn_close(s, c);
}

static void conn_next_request(struct tei_meta_server *s, struct meta_conn *c,
			      uint64_t now_ns)
{
	c->used = 0;
	c->sent = 0;
	c->out_len = 0;
	if (c->snapshot)
		meta_snapshot_unref(c->snapshot);
	c->snapshot = NULL;
	conn_due(s, c, now_ns + s->config.frame_timeout_ns);
	if (c->state == META_CONN_WRITING) {
		c->state = META_CONN_READING;
		conn_watch(s, c, EPOLLIN);
	}
}

/* What to send next, 0 when all is out. */
static size_t conn_pending(const struct meta_conn *c, const void **from)
{
	size_t at = c->sent;

	if (at < c->out_len) {
		*from = c->out + at;
		return c->out_len - at;
	}
	at -= c->out_len;
	if (!c->snapshot || at == c->snapshot->len)
		return 0;
	*from = c->snapshot->json + at;
	return c->snapshot->len - at;
}

static void conn_write(struct tei_meta_server *s, struct meta_conn *c,
		       uint64_t now_ns)
{
	size_t len, budget = CONN_SEND_MAX;
	const void *from;
	ssize_t n;

	while ((len = conn_pending(c, &from)) && budget) {
		n = send(c->fd, from, len < budget ? len : budget,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			conn_close(s, c);
			return;
		}
		c->sent += (size_t)n;
		budget -= (size_t)n;
	}
	if (!len) {
		conn_next_request(s, c, now_ns);
	} else if (c->state == META_CONN_READING) {
		c->state = META_CONN_WRITING;
		conn_watch(s, c, EPOLLOUT);
	}
}

/* out and snapshot are set. */
static void conn_reply(struct tei_meta_server *s, struct meta_conn *c,
		       uint64_t now_ns)
{
	size_t len = c->out_len + (c->snapshot ? c->snapshot->len : 0);

	META_COUNT(s, served);
	c->sent = 0;
	conn_due(s, c, now_ns + s->config.frame_timeout_ns +
		 len * TEI_NS_PER_SEC / CONN_SLOWEST);
	conn_write(s, c, now_ns);
}

static void conn_reply_error(struct tei_meta_server *s, struct meta_conn *c,
			     int code, const char *text, uint64_t now_ns)
{
	c->out_len = conn_error_frame(c->out, meta_wire_get32(c->head.id),
				      code, text);
	conn_reply(s, c, now_ns);
}

/* --- requests ------------------------------------------------------------ */

static void conn_ping(struct tei_meta_server *s, struct meta_conn *c,
		      uint64_t now_ns)
{
	struct meta_wire_header h;
	struct meta_wire_pong pong;

	meta_wire_fill(&h, META_WIRE_PONG, 0, meta_wire_get32(c->head.id),
		       sizeof(pong));
	meta_wire_put64(pong.incarnation, s->config.incarnation);
	memcpy(c->out, &h, sizeof(h));
	memcpy(c->out + sizeof(h), &pong, sizeof(pong));
	c->out_len = sizeof(h) + sizeof(pong);
	conn_reply(s, c, now_ns);
}

static void conn_get_desc(struct tei_meta_server *s, struct meta_conn *c,
			  uint64_t now_ns)
{
	bool any = meta_wire_get16(c->head.flags) & META_WIRE_ANY;
	struct meta_wire_header h;

	c->snapshot = meta_server_find(s, (char *)c->body,
				       c->used - CONN_HEAD, any);
	if (!c->snapshot) {
		conn_reply_error(s, c, TEI_ERR_METADATA,
				 "no such segment here", now_ns);
		return;
	}
	meta_wire_fill(&h, META_WIRE_DESC, 0, meta_wire_get32(c->head.id),
		       (uint32_t)c->snapshot->len);
	memcpy(c->out, &h, sizeof(h));
	c->out_len = sizeof(h);
	conn_reply(s, c, now_ns);
}

static const struct conn_request {
	uint8_t type;			/* enum meta_wire_type */
	uint16_t flags;			/* those it knows */
	uint32_t max;			/* bytes of payload */
	bool open;			/* also for a client not admitted */
	void (*serve)(struct tei_meta_server *s, struct meta_conn *c,
		      uint64_t now_ns);
} conn_requests[] = {
	{ META_WIRE_PING, 0, 0, true, conn_ping },
	{ META_WIRE_GET_DESC, META_WIRE_ANY, TEI_META_NAME_MAX, false,
	  conn_get_desc },
};

static const struct conn_request *conn_known(uint8_t type)
{
	size_t i;

	for (i = 0; i < sizeof(conn_requests) / sizeof(conn_requests[0]); i++)
		if (conn_requests[i].type == type)
			return &conn_requests[i];
	return NULL;
}

/* NULL if the header is a request of ours, else what is wrong with it. */
static const char *conn_check(const struct meta_conn *c,
			      const struct conn_request *r)
{
	if (memcmp(c->head.magic, META_WIRE_MAGIC, sizeof(c->head.magic)))
		return "not a moonrail control frame";
	if (c->head.version != META_WIRE_VERSION)
		return "this side speaks version 1 of the control channel";
	if (!r)
		return "unknown request";
	if (meta_wire_get16(c->head.flags) & ~r->flags)
		return "unknown flags";
	if (meta_wire_get32(c->head.length) > r->max)
		return "request too long";
	if (!r->open && !c->admitted)
		return "not admitted";
	return NULL;
}

static void conn_reject(struct tei_meta_server *s, struct meta_conn *c,
			const char *why)
{
	uint32_t left_out;

	META_COUNT(s, rejected);
	if (tei_log_permit(&s->log_limit, &left_out))
		TEI_WARN("meta", "control channel %s: client dropped: %s (%u more)",
			 s->address, why, left_out);
	conn_refuse(s, c, TEI_ERR_REJECTED, why);
}

/*
 * Reads up to the end of the header, then of the body: never a byte of the
 * next request. False when there is nothing to go on with.
 */
static bool conn_fill(struct tei_meta_server *s, struct meta_conn *c,
		      size_t want)
{
	uint8_t *to = c->used < CONN_HEAD ? (uint8_t *)&c->head + c->used :
		      c->body + (c->used - CONN_HEAD);
	ssize_t n;

	if (c->used == want)
		return true;
	n = recv(c->fd, to, want - c->used, MSG_DONTWAIT);
	if (n > 0)
		c->used += (size_t)n;
	else if (!n || (errno != EAGAIN && errno != EINTR))
		conn_close(s, c);
	return n > 0 && c->used == want;
}

static void conn_read(struct tei_meta_server *s, struct meta_conn *c,
		      uint64_t now_ns)
{
	const struct conn_request *r;
	const char *why;

	if (c->used < CONN_HEAD && !conn_fill(s, c, CONN_HEAD))
		return;
	r = conn_known(c->head.type);
	why = conn_check(c, r);
	if (why)
		conn_reject(s, c, why);
	else if (conn_fill(s, c, CONN_HEAD + meta_wire_get32(c->head.length)))
		r->serve(s, c, now_ns);
}

void meta_conn_event(struct tei_meta_server *s, struct meta_conn *c,
		     uint64_t now_ns)
{
	if (c->state == META_CONN_READING)
		conn_read(s, c, now_ns);
	else if (c->state == META_CONN_WRITING)
		conn_write(s, c, now_ns);
}

/*
 * Where a secret is asked for, a new client starts not admitted; for now every
 * one is.
 */
static bool conn_admit(const struct tei_meta_server *s)
{
	(void)s;
	return true;
}

void meta_conn_add(struct tei_meta_server *s, int fd,
		   const struct sockaddr *peer, uint64_t now_ns)
{
	struct meta_conn *c = calloc(1, sizeof(*c));
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };
	const int one = 1;

	if (!c)
		goto err_close;
	c->ip = conn_ip_get(s, peer);
	if (!c->ip)
		goto err_free;
	c->fd = fd;
	c->admitted = conn_admit(s);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev))
		goto err_put;
	tei_list_init(&c->link);
	s->clients++;
	__atomic_store_n(&s->stats.clients, s->clients, __ATOMIC_RELAXED);
	META_COUNT(s, accepted);
	conn_due(s, c, now_ns + s->config.frame_timeout_ns);
	return;
err_put:
	conn_ip_put(c->ip);
err_free:
	free(c);
err_close:
	close(fd);
}
