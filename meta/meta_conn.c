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
#include "meta/tei_meta_server.h"
#include "util/clock.h"
#include "util/err.h"

/*
 * The connection of one client. Its state is READING until a request is
 * complete, then WRITING until the reply is in the socket, then READING again.
 *
 * - The memory that a client can occupy is limited to one struct meta_conn. Its
 *   member "body" has space for the longest request. A longer request is
 *   refused when its header has arrived. A reply refers to a snapshot instead
 *   of copying it. The next request is read only after the reply has been sent.
 *
 * - A deadline is set when the connection enters a state. Bytes that arrive do
 *   not extend it, so a client that sends slowly is dropped. The deadline of a
 *   reply grows with its length.
 *
 * - If a request arrives in parts, the thread wakes only when the header is
 *   complete, and then when the body is complete (SO_RCVLOWAT). So a client
 *   that sends slowly does not keep the thread awake. Urgent data would wake
 *   the thread nevertheless, so a client that sends it is refused. While the
 *   server writes, or throttles the client, input does not wake the thread.
 *
 * - For one event, the server reads at most one request and writes at most
 *   CONN_SEND_MAX bytes, so that other clients are served too. The work is
 *   charged to the client's address (meta_rate_limit.c). The unsent bytes in a
 *   socket are limited as well.
 *
 * - A connection is closed at once but freed in meta_conn_reap, because the
 *   current round of epoll events may still refer to it.
 */

#define CONN_SEND_MAX	META_RATE_LIMIT_STEP_BYTES
/* greatest number of unsent bytes in a socket */
#define CONN_SOCKET_MAX (256 << 10)
/* lowest rate at which a client may read a reply, bytes per second */
#define CONN_SLOWEST (UINT64_C(4) << 20)
/* greatest number of reads that discard the unread input of a connection before
 * it is closed */
#define CONN_PART_READS 16

/*
 * Steps that are charged for a reply, in addition to those for its length,
 * because even a short reply wakes the client. meta_server_int.h defines the
 * step.
 */
#define CONN_REPLY_STEPS 4

/* --- end of a connection ------------------------------------------------- */

void meta_conn_close(struct tei_meta_server *s, struct meta_conn *c)
{
	if (c->state == META_CONN_DEAD)
		return;
	/* close alone would not remove the socket from the epoll set if a child
	 * of fork still holds the socket */
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
	close(c->fd);
	c->fd = -1;
	c->state = META_CONN_DEAD;
	if (c->snapshot)
		meta_snapshot_unref(c->snapshot);
	c->snapshot = NULL;
	tei_wipe(&c->session, sizeof(c->session));
	tei_list_del(&c->ip_link);
	tei_list_del(&c->throttled_link);
	meta_rate_limit_leave(s, c->ip);
	tei_list_del(&c->link);
	tei_list_add_tail(&s->dead, &c->link);
	s->clients--;
	__atomic_store_n(&s->stats.clients, s->clients, __ATOMIC_RELAXED);
}

/*
 * Shuts down the sending direction and discards input, before the socket is
 * closed. Closing a socket that has unread input sends a reset, which can make
 * the client lose the last frame. Returns the number of steps to charge.
 */
static uint64_t conn_part(int fd)
{
	uint8_t junk[4096];
	uint64_t steps = 0;

	shutdown(fd, SHUT_WR);
	while (steps < CONN_PART_READS &&
	       recv(fd, junk, sizeof(junk), MSG_DONTWAIT) > 0)
		steps++;
	return steps;
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

/* Sends an ERROR frame. Returns the number of steps to charge. */
static uint64_t conn_refuse_socket(int fd, uint32_t id, int code,
				   const char *text)
{
	uint8_t out[sizeof(struct meta_wire_header) +
		    sizeof(struct meta_wire_error) + META_WIRE_ERROR_TEXT];
	size_t len = conn_error_frame(out, id, code, text);

	if (send(fd, out, len, MSG_DONTWAIT | MSG_NOSIGNAL) <= 0)
		return CONN_REPLY_STEPS;
	return CONN_REPLY_STEPS + conn_part(fd);
}

void meta_conn_refuse(struct tei_meta_server *s, struct meta_conn *c,
			int code, const char *text)
{
	uint32_t id = c->used >= META_CONN_HEAD ? meta_wire_get32(c->head.id) : 0;

	meta_rate_limit_charge(s, c->ip,
			       conn_refuse_socket(c->fd, id, code, text),
			       tei_now_ns());
	meta_conn_close(s, c);
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
		meta_conn_close(s, c);
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
	tei_list_del(&c->ip_link);
	tei_list_add_tail(&c->ip->conns, &c->ip_link);
}

void meta_conn_expire(struct tei_meta_server *s, uint64_t now_ns)
{
	struct meta_conn *c, *tmp;

	s->next_due_ns = 0;
	tei_list_foreach_safe(c, tmp, &s->conns, struct meta_conn, link) {
		if (c->throttled_ns)
			continue; /* the deadline does not apply while the
				   * server throttles the client */
		if (c->deadline_ns > now_ns) {
			if (!s->next_due_ns || c->deadline_ns < s->next_due_ns)
				s->next_due_ns = c->deadline_ns;
			continue;
		}
		META_COUNT(s, timed_out);
		if (c->state == META_CONN_READING)
			meta_conn_refuse(s, c, TEI_ERR_REJECTED,
				    "the client sent no complete request in time");
		else
			meta_conn_close(s, c);
	}
}

static struct meta_conn *conn_longest(struct meta_ip *ip)
{
	struct meta_conn *c;

	tei_list_foreach(c, &ip->conns, struct meta_conn, ip_link)
		if (c->state == META_CONN_READING)
			return c;
	return NULL;
}

static void conn_full(struct tei_meta_server *s, const struct meta_ip *ip,
		      const char *why)
{
	char host[TEI_META_HOST_MAX];

	meta_rate_limit_text(ip, host);
	META_COUNT(s, evicted);
	TEI_LOG_LIMITED(&s->log.full, TEI_LOG_WARN, "meta",
			"control channel %s: client %s refused: %s",
			tei_meta_server_address(s), host, why);
}

bool meta_conn_evict(struct tei_meta_server *s, struct meta_ip *ip)
{
	const char *why = ip ?
		"too many clients of one address, and this one has waited the longest" :
		"too many clients, and this address has the most";
	struct meta_conn *c, *victim = NULL;

	if (ip)
		victim = conn_longest(ip);
	else
		tei_list_foreach(c, &s->conns, struct meta_conn, link)
			if (c->state == META_CONN_READING &&
			    (!victim || c->ip->clients > victim->ip->clients))
				victim = c;
	if (!victim)
		return false;
	conn_full(s, victim->ip, why);
	meta_conn_refuse(s, victim, TEI_ERR_TOO_MANY, why);
	return true;
}

/* --- replies ------------------------------------------------------------- */

static int conn_watch(struct tei_meta_server *s, struct meta_conn *c, int op)
{
	struct epoll_event ev = { .data.ptr = c };

	if (!c->throttled_ns)
		ev.events = c->state == META_CONN_WRITING
				    ? EPOLLOUT : EPOLLIN | EPOLLPRI;
	return epoll_ctl(s->epoll_fd, op, c->fd, &ev);
}

void meta_conn_watch(struct tei_meta_server *s, struct meta_conn *c)
{
	if (conn_watch(s, c, EPOLL_CTL_MOD))
		meta_conn_close(s, c);
}

void meta_conn_await(struct meta_conn *c, size_t bytes)
{
	int low = (int)bytes;

	if (c->awaited != bytes &&
	    !setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)))
		c->awaited = bytes;
}

static void conn_next_request(struct tei_meta_server *s, struct meta_conn *c,
			      uint64_t now_ns)
{
	c->used = 0;
	c->sent = 0;
	c->out_len = 0;
	c->tag_len = 0;
	if (c->snapshot)
		meta_snapshot_unref(c->snapshot);
	c->snapshot = NULL;
	meta_conn_await(c, META_CONN_HEAD);
	conn_due(s, c, now_ns + s->config.frame_timeout_ns);
	if (c->state == META_CONN_WRITING) {
		c->state = META_CONN_READING;
		meta_conn_watch(s, c);
	}
}

/* Sets *from to the next bytes of the reply. Returns their number, or 0 if all
 * bytes are sent. */
static size_t conn_pending(const struct meta_conn *c, const void **from)
{
	size_t at = c->sent;

	if (at < c->out_len) {
		*from = c->out + at;
		return c->out_len - at;
	}
	at -= c->out_len;
	if (c->snapshot && at < c->snapshot->len) {
		*from = c->snapshot->json + at;
		return c->snapshot->len - at;
	}
	at -= c->snapshot ? c->snapshot->len : 0;
	*from = c->tag + at;
	return c->tag_len - at;
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
			meta_conn_close(s, c);
			return;
		}
		c->sent += (size_t)n;
		budget -= (size_t)n;
	}
	meta_rate_limit_charge(
		s, c->ip, (CONN_SEND_MAX - budget) / META_RATE_LIMIT_STEP_BYTES,
		now_ns);
	if (!len) {
		conn_next_request(s, c, now_ns);
	} else if (c->state == META_CONN_READING) {
		c->state = META_CONN_WRITING;
		meta_conn_watch(s, c);
	}
}

/* Signs the reply, which consists of out and the snapshot: sets the flag and
 * the length in its header, and computes the tag. */
static void conn_sign(struct meta_conn *c)
{
	size_t len = c->out_len - META_CONN_HEAD;
	uint8_t digest[TEI_MAC_SIZE];
	struct meta_wire_header h;

	if (c->snapshot)
		memcpy(digest, c->snapshot->digest, sizeof(digest));
	else
		tei_digest(c->out + META_CONN_HEAD, len, digest);
	len += (c->snapshot ? c->snapshot->len : 0) + META_WIRE_TAG;
	memcpy(&h, c->out, sizeof(h));
	meta_wire_fill(&h, h.type, META_WIRE_SIGNED, meta_wire_get32(h.id),
		       (uint32_t)len);
	memcpy(c->out, &h, sizeof(h));
	meta_session_sign(&c->session, &h, digest, c->tag);
	c->tag_len = META_WIRE_TAG;
}

/* Sends the reply, which consists of out and the snapshot. */
void meta_conn_reply(struct tei_meta_server *s, struct meta_conn *c,
		       uint64_t now_ns)
{
	size_t len = c->out_len + (c->snapshot ? c->snapshot->len : 0);

	if (c->session.on)
		conn_sign(c);
	meta_rate_limit_charge(s, c->ip, CONN_REPLY_STEPS, now_ns);
	META_COUNT(s, served);
	c->sent = 0;
	conn_due(s, c, now_ns + s->config.frame_timeout_ns +
		 len * TEI_NS_PER_SEC / CONN_SLOWEST);
	conn_write(s, c, now_ns);
}

void meta_conn_reply_error(struct tei_meta_server *s, struct meta_conn *c,
			     int code, const char *text, uint64_t now_ns)
{
	c->out_len = conn_error_frame(c->out, meta_wire_get32(c->head.id),
				      code, text);
	meta_conn_reply(s, c, now_ns);
}

/* --- events -------------------------------------------------------------- */

void meta_conn_event(struct tei_meta_server *s, struct meta_conn *c,
		     uint32_t events, uint64_t now_ns)
{
	if (c->state == META_CONN_DEAD)
		return;
	if (c->throttled_ns) {
		if (events & (EPOLLHUP | EPOLLERR))
			meta_conn_close(s, c);
		return;
	}
	if (!c->released && meta_rate_limit_spent(s, c->ip, now_ns)) {
		meta_rate_limit_throttle(s, c, now_ns);
		return;
	}
	c->released = false;
	meta_rate_limit_charge(s, c->ip, 1, now_ns);
	if (c->state == META_CONN_WRITING)
		conn_write(s, c, now_ns);
	else if (events & EPOLLPRI)
		meta_request_reject(s, c, "urgent bytes");
	else if (meta_request_read(s, c, now_ns))
		meta_request_read(s, c, now_ns);
}

/* Sets the options of an accepted socket that it does not inherit from the
 * listener, and removes an inherited filter. */
static void conn_options(struct tei_meta_server *s, int fd)
{
	const int one = 1, most = CONN_SOCKET_MAX;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &most, sizeof(most));
	if (s->rate.blocked_ever)
		setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &one,
			   sizeof(one));
}

/* steps (see meta_server_int.h) for accepting and closing a connection */
#define CONN_TAKE_STEPS 2

static void conn_pay(struct tei_meta_server *s, struct meta_conn *c,
		     uint64_t now_ns)
{
	meta_rate_limit_charge(s, c->ip, CONN_TAKE_STEPS, now_ns);
	if (!meta_rate_limit_spent(s, c->ip, now_ns))
		return;
	meta_rate_limit_block(s, c->ip, now_ns);
	meta_rate_limit_throttle(s, c, now_ns);
}

void meta_conn_add(struct tei_meta_server *s, int fd,
		   const struct sockaddr *peer, uint64_t now_ns)
{
	struct meta_conn *c = calloc(1, sizeof(*c));

	if (!c)
		goto err_close;
	tei_list_init(&c->link);
	tei_list_init(&c->ip_link);
	tei_list_init(&c->throttled_link);
	c->ip = meta_rate_limit_join(s, peer, now_ns);
	if (!c->ip)
		goto err_free;
	c->fd = fd;
	c->admitted = !s->config.secret;
	conn_options(s, fd);
	meta_conn_await(c, META_CONN_HEAD);
	if (conn_watch(s, c, EPOLL_CTL_ADD))
		goto err_leave;
	s->clients++;
	__atomic_store_n(&s->stats.clients, s->clients, __ATOMIC_RELAXED);
	META_COUNT(s, accepted);
	if (c->ip->clients > (s->config.max_clients + 3) / 4)
		meta_conn_evict(s, c->ip);
	conn_due(s, c, now_ns + s->config.frame_timeout_ns);
	conn_pay(s, c, now_ns);
	return;
err_leave:
	meta_rate_limit_leave(s, c->ip);
err_free:
	free(c);
err_close:
	close(fd);
}

void meta_conn_turn_away(struct tei_meta_server *s, int fd,
			 const struct sockaddr *peer, uint64_t now_ns)
{
	struct meta_ip *ip = meta_rate_limit_join(s, peer, now_ns);
	static const char why[] = "too many clients";
	uint64_t steps;

	steps = conn_refuse_socket(fd, 0, TEI_ERR_TOO_MANY, why);
	close(fd);
	if (!ip)
		return;
	conn_full(s, ip, why);
	meta_rate_limit_charge(s, ip, CONN_TAKE_STEPS + steps, now_ns);
	meta_rate_limit_block(s, ip, now_ns);
	meta_rate_limit_leave(s, ip);
}
