/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "meta/meta_server_int.h"
#include "meta/tei_meta_server.h"
#include "util/err.h"

/*
 * Reads, checks and answers the requests of clients. If there is a secret, a
 * client that has not proved that it knows the secret receives nothing but a
 * random number and one error text, which is the same for all requests.
 */

/* Returns the length of the tag at the end of the request's payload. */
static size_t request_tag(const struct meta_conn *c)
{
	return c->session.on ? META_WIRE_TAG : 0;
}

static void request_ping(struct tei_meta_server *s, struct meta_conn *c,
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
	meta_conn_reply(s, c, now_ns);
}

#define REQUEST_MADE_NS	(TEI_NS_PER_MS / 10)

static void request_get_desc(struct tei_meta_server *s, struct meta_conn *c,
			     uint64_t now_ns)
{
	bool any = meta_wire_get16(c->head.flags) & META_WIRE_ANY;
	uint64_t cpu_ns = tei_cpu_ns();
	struct meta_wire_header h;

	c->snapshot = meta_server_find(
		s, (char *)c->body, c->used - META_CONN_HEAD - request_tag(c),
		any);
	cpu_ns = tei_cpu_ns() - cpu_ns;
	/* if the text had to be created, its CPU time is charged; a look-up
	 * alone is included in the steps of a request */
	if (cpu_ns >= REQUEST_MADE_NS)
		meta_rate_limit_charge_cpu(s, c->ip, cpu_ns, now_ns);
	if (!c->snapshot) {
		meta_conn_reply_error(s, c, TEI_ERR_METADATA,
				      "no such segment", now_ns);
		return;
	}
	meta_wire_fill(&h, META_WIRE_DESC, 0, meta_wire_get32(c->head.id),
		       (uint32_t)c->snapshot->len);
	memcpy(c->out, &h, sizeof(h));
	c->out_len = sizeof(h);
	meta_conn_reply(s, c, now_ns);
}

/*
 * Returns true if both ends of the connection have the same address. A client
 * of another host cannot have the server's address.
 */
static bool request_local(int fd)
{
	struct sockaddr_storage a, b;
	socklen_t alen = sizeof(a), blen = sizeof(b);

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	if (getsockname(fd, (struct sockaddr *)&a, &alen) ||
	    getpeername(fd, (struct sockaddr *)&b, &blen) ||
	    a.ss_family != b.ss_family)
		return false;
	if (a.ss_family == AF_INET)
		return ((struct sockaddr_in *)&a)->sin_addr.s_addr ==
		       ((struct sockaddr_in *)&b)->sin_addr.s_addr;
	return a.ss_family == AF_INET6 &&
	       !memcmp(&((struct sockaddr_in6 *)&a)->sin6_addr,
		       &((struct sockaddr_in6 *)&b)->sin6_addr,
		       sizeof(struct in6_addr));
}

static void request_get_stats(struct tei_meta_server *s, struct meta_conn *c,
			      uint64_t now_ns)
{
	struct meta_wire_header h;
	uint64_t cpu_ns;

	if (!c->session.on && !request_local(c->fd)) {
		meta_conn_reply_error(s, c, TEI_ERR_REJECTED,
				      "statistics are sent only to processes of the same host or with the shared secret",
				      now_ns);
		return;
	}
	cpu_ns = tei_cpu_ns();
	c->snapshot = meta_server_report(s);
	meta_rate_limit_charge_cpu(s, c->ip, tei_cpu_ns() - cpu_ns, now_ns);
	if (!c->snapshot) {
		meta_conn_reply_error(s, c, TEI_ERR_METADATA,
				      "no statistics", now_ns);
		return;
	}
	meta_wire_fill(&h, META_WIRE_STATS, 0, meta_wire_get32(c->head.id),
		       (uint32_t)c->snapshot->len);
	memcpy(c->out, &h, sizeof(h));
	c->out_len = sizeof(h);
	meta_conn_reply(s, c, now_ns);
}

static void request_log(struct tei_meta_server *s, const struct meta_conn *c,
			const char *why)
{
	char host[TEI_META_HOST_MAX];

	meta_rate_limit_text(c->ip, host);
	TEI_LOG_LIMITED(&s->log.request, TEI_LOG_WARN, "meta",
			"control channel %s: client %s dropped: %s",
			tei_meta_server_address(s), host, why);
}

void meta_request_reject(struct tei_meta_server *s, struct meta_conn *c,
			 const char *why)
{
	META_COUNT(s, rejected);
	request_log(s, c, why);
	meta_conn_refuse(s, c, TEI_ERR_REJECTED, why);
}

static void request_deny(struct tei_meta_server *s, struct meta_conn *c,
			 const char *why)
{
	META_COUNT(s, denied);
	request_log(s, c, why);
	meta_conn_refuse(s, c, META_WIRE_DENIED, why);
}

/* Steps of the rate limit for the authentication of a client: a random number
 * and four MACs, two for AUTH and two for RESPONSE. */
#define REQUEST_AUTH_STEPS 2

static void request_auth(struct tei_meta_server *s, struct meta_conn *c,
			 uint64_t now_ns)
{
	uint8_t nonce[META_WIRE_NONCE];
	struct meta_wire_header h;

	if (!s->config.secret) {
		request_deny(s, c,
			     "the queried process has no shared secret, the "
			     "requesting process has one");
		return;
	}
	if (c->challenged || c->session.on) {
		meta_request_reject(s, c, "unexpected AUTH");
		return;
	}
	if (!tei_random(nonce, sizeof(nonce))) {
		meta_request_reject(s, c, "the kernel supplied no random bytes");
		return;
	}
	meta_rate_limit_charge(s, c->ip, REQUEST_AUTH_STEPS, now_ns);
	meta_session_derive(&s->auth, c->body, nonce, &c->session);
	c->challenged = true;
	meta_wire_fill(&h, META_WIRE_CHALLENGE, 0, meta_wire_get32(c->head.id),
		       sizeof(nonce));
	memcpy(c->out, &h, sizeof(h));
	memcpy(c->out + sizeof(h), nonce, sizeof(nonce));
	c->out_len = sizeof(h) + sizeof(nonce);
	meta_conn_reply(s, c, now_ns);
}

/* Handles RESPONSE. The server sends no reply to it if the proof is right. */
static void request_response(struct tei_meta_server *s, struct meta_conn *c,
			     uint64_t now_ns)
{
	uint8_t want[META_WIRE_TAG];

	(void)now_ns;
	if (!c->challenged) {
		meta_request_reject(s, c, "unexpected RESPONSE");
		return;
	}
	c->challenged = false;
	meta_session_proof(&c->session, want);
	if (!tei_mac_equal(want, c->body, sizeof(want))) {
		request_deny(s, c, "the shared secrets differ");
		return;
	}
	c->admitted = true;
	c->session.on = true;
	c->used = 0;
	meta_conn_await(c, META_CONN_HEAD);
}

static const struct request_kind {
	uint8_t type;	   /* type of the request, a value of enum
			    * meta_wire_type */
	uint16_t flags;	   /* flags that the request may have */
	uint32_t min, max; /* limits of the length of the payload, bytes */
	bool open;	   /* the server accepts the request before the client
			    * has proved that it knows the secret */
	void (*serve)(struct tei_meta_server *s, struct meta_conn *c,
		      uint64_t now_ns);
} request_kinds[] = {
	{ META_WIRE_PING, 0, 0, 0, false, request_ping },
	{ META_WIRE_GET_DESC, META_WIRE_ANY, 0, TEI_META_NAME_MAX, false,
	  request_get_desc },
	{ META_WIRE_GET_STATS, 0, 0, 0, false, request_get_stats },
	{ META_WIRE_AUTH, 0, META_WIRE_NONCE, META_WIRE_NONCE, true,
	  request_auth },
	{ META_WIRE_RESPONSE, 0, META_WIRE_TAG, META_WIRE_TAG, true,
	  request_response },
};

static const struct request_kind *request_known(uint8_t type)
{
	size_t i;

	for (i = 0; i < sizeof(request_kinds) / sizeof(request_kinds[0]); i++)
		if (request_kinds[i].type == type)
			return &request_kinds[i];
	return NULL;
}

/* Returns a text that says what is wrong with the header of a request, or NULL
 * if the header is valid. */
static const char *request_check(const struct meta_conn *c,
				 const struct request_kind *r)
{
	uint16_t flags = meta_wire_get16(c->head.flags);
	uint32_t len = meta_wire_get32(c->head.length);

	if (memcmp(c->head.magic, META_WIRE_MAGIC, sizeof(c->head.magic)))
		return "not a moonrail control frame";
	if (c->head.version != META_WIRE_VERSION)
		return "this process uses version 1 of the control channel, the client uses another version";
	if (!r)
		return "unknown request";
	if (c->session.on != !!(flags & META_WIRE_SIGNED))
		return c->session.on ? "not signed" : "unknown flags";
	if (flags & ~(r->flags | META_WIRE_SIGNED))
		return "unknown flags";
	if (len > r->max + request_tag(c))
		return "request too long";
	if (len < r->min + request_tag(c))
		return "request too short";
	return NULL;
}

/* Reads until "want" bytes of the request were received, and never a byte of
 * the next request. Returns false if they have not all arrived yet. */
static bool request_fill(struct tei_meta_server *s, struct meta_conn *c,
			 size_t want)
{
	uint8_t *to = c->used < META_CONN_HEAD
			      ? (uint8_t *)&c->head + c->used
			      : c->body + (c->used - META_CONN_HEAD);
	ssize_t n;

	if (c->used == want)
		return true;
	n = recv(c->fd, to, want - c->used, MSG_DONTWAIT);
	if (n > 0)
		c->used += (size_t)n;
	else if (!n || (errno != EAGAIN && errno != EINTR))
		meta_conn_close(s, c);
	if (c->used == want && n > 0)
		return true;
	if (c->state != META_CONN_DEAD)
		meta_conn_await(c, want - c->used);
	return false;
}

static void request_serve(struct tei_meta_server *s, struct meta_conn *c,
			  const struct request_kind *r, uint64_t now_ns)
{
	size_t len = meta_wire_get32(c->head.length) - request_tag(c);

	if (c->session.on && !meta_session_check(&c->session, &c->head, c->body,
						 len, c->body + len))
		request_deny(s, c, "a request's signature is wrong");
	else
		r->serve(s, c, now_ns);
}

/* Reads and handles at most one request. Returns true if it was a RESPONSE,
 * which needs no reply. */
bool meta_request_read(struct tei_meta_server *s, struct meta_conn *c,
		       uint64_t now_ns)
{
	const struct request_kind *r;
	const char *why;

	if (c->used < META_CONN_HEAD && !request_fill(s, c, META_CONN_HEAD))
		return false;
	r = request_known(c->head.type);
	why = request_check(c, r);
	if (why)
		meta_request_reject(s, c, why);
	else if (!r->open && !c->admitted)
		request_deny(s, c,
			     "the queried process requires a shared secret");
	else if (request_fill(s, c,
			      META_CONN_HEAD + meta_wire_get32(c->head.length)))
		request_serve(s, c, r, now_ns);
	return r && r->serve == request_response &&
	       c->state == META_CONN_READING && !c->used;
}
