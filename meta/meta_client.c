/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "meta/meta_int.h"
#include "meta/meta_wire.h"
#include "util/clock.h"
#include "util/err.h"

/*
 * One exchange per connection. Everything that goes wrong on the way is kept
 * as (code, text) in the call and reported once, at the end.
 */
struct client_call {
	const char *endpoint;
	uint64_t deadline_ns;
	/* request */
	uint8_t type;
	uint16_t flags;
	const char *payload;
	size_t payload_len;
	/* reply wanted */
	uint8_t reply_type;
	size_t reply_max;
	/* outcome */
	char *reply;			/* terminated */
	size_t reply_len;
	int prov_errno;			/* errno, or the peer's code */
	char why[META_WIRE_ERROR_TEXT + 1];
};

int meta_poll_ms(uint64_t now_ns, uint64_t deadline_ns)
{
	uint64_t ms;

	if (deadline_ns <= now_ns)
		return 0;
	ms = (deadline_ns - now_ns + TEI_NS_PER_MS - 1) / TEI_NS_PER_MS;
	return ms > 3600000 ? 3600000 : (int)ms;
}

static int client_fail(struct client_call *c, int code, const char *why)
{
	strncpy(c->why, why, sizeof(c->why) - 1);
	return code;
}

static int client_errno(struct client_call *c, int e)
{
	c->prov_errno = e;
	return client_fail(c, TEI_ERR_SOCKET, strerror(e));
}

static int client_wait(struct client_call *c, int fd, short events,
		       uint64_t deadline_ns)
{
	struct pollfd p = { .fd = fd, .events = events };
	uint64_t now;
	int n;

	do {
		now = tei_now_ns();
		if (now >= deadline_ns)
			return client_errno(c, ETIMEDOUT);
		n = poll(&p, 1, meta_poll_ms(now, deadline_ns));
	} while (!n || (n < 0 && errno == EINTR));
	return n < 0 ? client_errno(c, errno) : 0;
}

static int client_connect_one(struct client_call *c, const struct addrinfo *a,
			      uint64_t deadline_ns, int *out)
{
	const int one = 1;
	int fd, rc, e = 0;
	socklen_t len = sizeof(e);

	fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
		    0);
	if (fd < 0)
		return client_errno(c, errno);
	if (connect(fd, a->ai_addr, a->ai_addrlen)) {
		rc = errno == EINPROGRESS ?
		     client_wait(c, fd, POLLOUT, deadline_ns) :
		     client_errno(c, errno);
		if (rc)
			goto err_close;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) || e) {
			rc = client_errno(c, e ? e : errno);
			goto err_close;
		}
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	*out = fd;
	return 0;
err_close:
	close(fd);
	return rc;
}

/* Each address gets an equal share of the time that is left. */
static int client_connect_any(struct client_call *c,
			      const struct addrinfo *list, int *fd)
{
	const struct addrinfo *a;
	uint64_t now, left = 0;
	int rc = TEI_ERR_DNS;

	for (a = list; a; a = a->ai_next)
		left++;
	for (a = list; a; a = a->ai_next, left--) {
		now = tei_now_ns();
		if (now >= c->deadline_ns)
			return client_errno(c, ETIMEDOUT);
		rc = client_connect_one(c, a, now + (c->deadline_ns - now) /
					left, fd);
		if (!rc)
			return 0;
	}
	return rc;
}

static int client_connect(struct client_call *c, int *fd)
{
	char host[TEI_META_HOST_MAX];
	struct addrinfo *list;
	const char *why;
	uint16_t port;
	int rc;

	if (tei_meta_split(c->endpoint, host, &port) || !port)
		return client_fail(c, TEI_ERR_INVALID,
				   "not host:port or [v6]:port");
	rc = meta_resolve(host, port, c->deadline_ns, &list, &why);
	if (rc)
		return client_fail(c, rc, why);
	rc = client_connect_any(c, list, fd);
	freeaddrinfo(list);
	return rc;
}

static int client_send(struct client_call *c, int fd, const void *from,
		       size_t len)
{
	const char *p = from;
	ssize_t n;
	int rc;

	while (len) {
		n = send(fd, p, len, MSG_NOSIGNAL);
		if (n >= 0) {
			p += n;
			len -= (size_t)n;
			continue;
		}
		if (errno == EPIPE || errno == ECONNRESET)
			return 0;	/* its reason may be there to read */
		if (errno != EAGAIN && errno != EINTR)
			return client_errno(c, errno);
		rc = client_wait(c, fd, POLLOUT, c->deadline_ns);
		if (rc)
			return rc;
	}
	return 0;
}

static int client_recv(struct client_call *c, int fd, void *to, size_t len)
{
	char *p = to;
	ssize_t n;
	int rc;

	while (len) {
		n = recv(fd, p, len, 0);
		if (n > 0) {
			p += n;
			len -= (size_t)n;
			continue;
		}
		if (!n)
			return client_fail(c, TEI_ERR_SOCKET,
					   "the peer closed before its answer was complete");
		if (errno != EAGAIN && errno != EINTR)
			return client_errno(c, errno);
		rc = client_wait(c, fd, POLLIN, c->deadline_ns);
		if (rc)
			return rc;
	}
	return 0;
}

/* What the peer says goes into our log: printable characters only. */
static int client_refused(struct client_call *c, const char *body, size_t len)
{
	const struct meta_wire_error *e = (const void *)body;
	size_t i, n;

	if (len < sizeof(*e))
		return client_fail(c, TEI_ERR_REJECTED, "malformed refusal");
	c->prov_errno = (int32_t)meta_wire_get32(e->code);
	n = len - sizeof(*e);
	if (n > META_WIRE_ERROR_TEXT)
		n = META_WIRE_ERROR_TEXT;
	for (i = 0; i < n; i++) {
		c->why[i] = body[sizeof(*e) + i];
		if (c->why[i] < ' ' || c->why[i] > '~')
			c->why[i] = '?';
	}
	c->why[n] = 0;
	return TEI_ERR_REJECTED;
}

static int client_check(struct client_call *c,
			const struct meta_wire_header *h)
{
	size_t max = h->type == META_WIRE_ERROR ?
		     sizeof(struct meta_wire_error) + META_WIRE_ERROR_TEXT :
		     c->reply_max;

	if (memcmp(h->magic, META_WIRE_MAGIC, sizeof(h->magic)))
		return client_fail(c, TEI_ERR_REJECTED,
				   "the peer is no moonrail control channel");
	if (h->version != META_WIRE_VERSION)
		return client_fail(c, TEI_ERR_REJECTED,
				   "the peer speaks another version of the control channel");
	if (h->type == META_WIRE_CHALLENGE)
		return client_fail(c, TEI_ERR_REJECTED,
				   "the peer asks for a shared secret");
	if (h->type != c->reply_type && h->type != META_WIRE_ERROR)
		return client_fail(c, TEI_ERR_REJECTED, "unexpected answer");
	if (meta_wire_get32(h->length) > max)
		return client_fail(c, TEI_ERR_REJECTED, "answer too long");
	return 0;
}

static int client_reply(struct client_call *c, int fd)
{
	struct meta_wire_header h;
	size_t len;
	char *body;
	int rc;

	rc = client_recv(c, fd, &h, sizeof(h));
	if (!rc)
		rc = client_check(c, &h);
	if (rc)
		return rc;
	len = meta_wire_get32(h.length);
	body = malloc(len + 1);
	if (!body)
		return client_fail(c, TEI_ERR_MEMORY, "no memory");
	rc = client_recv(c, fd, body, len);
	if (!rc && h.type == META_WIRE_ERROR)
		rc = client_refused(c, body, len);
	if (rc) {
		free(body);
		return rc;
	}
	body[len] = 0;
	c->reply = body;
	c->reply_len = len;
	return 0;
}

static int client_exchange(struct client_call *c)
{
	struct meta_wire_header h;
	int fd, rc;

	rc = client_connect(c, &fd);
	if (rc)
		return rc;
	meta_wire_fill(&h, c->type, c->flags, 1, (uint32_t)c->payload_len);
	rc = client_send(c, fd, &h, sizeof(h));
	if (!rc)
		rc = client_send(c, fd, c->payload, c->payload_len);
	if (!rc)
		rc = client_reply(c, fd);
	close(fd);
	return rc;
}

static int client_report(const struct client_call *c, int code,
			 struct tei_err *err)
{
	struct tei_err e;

	tei_err_fail(&e, code, "meta", NULL, "control channel of %.64s: %.90s",
		     c->endpoint, c->why);
	e.prov_errno = c->prov_errno;
	strncpy(e.peer, c->endpoint, sizeof(e.peer) - 1);
	tei_err_set_last(&e);
	if (err)
		*err = e;
	return code;
}

int tei_meta_ping(const char *endpoint, uint64_t deadline_ns,
		  uint64_t *incarnation, struct tei_err *err)
{
	struct client_call c = {
		.endpoint = endpoint, .deadline_ns = deadline_ns,
		.type = META_WIRE_PING, .reply_type = META_WIRE_PONG,
		.reply_max = sizeof(struct meta_wire_pong),
	};
	int rc = client_exchange(&c);

	if (!rc && c.reply_len != sizeof(struct meta_wire_pong))
		rc = client_fail(&c, TEI_ERR_REJECTED, "malformed answer");
	if (!rc)
		*incarnation = meta_wire_get64((uint8_t *)c.reply);
	free(c.reply);
	return rc ? client_report(&c, rc, err) : 0;
}

int tei_meta_get_desc(const char *endpoint, const char *name, bool any,
		      uint64_t deadline_ns, char **json, size_t *len,
		      struct tei_err *err)
{
	struct client_call c = {
		.endpoint = endpoint, .deadline_ns = deadline_ns,
		.type = META_WIRE_GET_DESC, .reply_type = META_WIRE_DESC,
		.flags = any ? META_WIRE_ANY : 0,
		.payload = name, .payload_len = strlen(name),
		.reply_max = TEI_META_TEXT_MAX,
	};
	int rc;

	if (c.payload_len >= TEI_META_NAME_MAX)
		rc = client_fail(&c, TEI_ERR_INVALID, "name too long");
	else
		rc = client_exchange(&c);
	if (rc)
		return client_report(&c, rc, err);
	*json = c.reply;
	*len = c.reply_len;
	return 0;
}
