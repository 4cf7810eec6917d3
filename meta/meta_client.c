/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "meta/meta_int.h"
#include "meta/meta_wire.h"
#include "meta/tei_meta_client.h"
#include "meta/tei_meta_name.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/hint.h"
#include "util/log.h"
#include "util/text.h"

/* time limit of the first attempt to connect to an address */
#define CLIENT_TRY_NS (400 * TEI_NS_PER_MS)

/*
 * One request and its reply, over a connection of its own. If there is a
 * secret, the two sides first exchange nonces. The functions below store the
 * text of an error in the member "why" and log nothing; the last error is
 * reported at the end.
 */
struct client_call {
	const char *endpoint;
	const struct tei_secret *secret;
	uint64_t deadline_ns;
	struct meta_session session;
	/* the request that is sent */
	uint8_t type;
	uint16_t flags;
	const char *payload;
	size_t payload_len;
	/* the reply that is expected */
	uint8_t reply_type;
	size_t reply_max;
	/* the result of the call */
	char *reply;			/* payload of the reply, terminated */
	size_t reply_len;
	int prov_errno;			/* errno of the failure, or the code
					 * that the peer has sent */
	int hint;			/* value from which tei_hint makes the
					 * hint of the error: an errno or a
					 * TEI_HINT_…; 0: no hint */
	bool connected;			/* the connection was established */
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

static int client_too_long(struct client_call *c, size_t len, size_t max)
{
	/* the setting MC_HANDSHAKE_MAX_LENGTH does not limit ERROR frames */
	if (max != c->reply_max || c->reply_type != META_WIRE_DESC)
		return client_fail(c, TEI_ERR_REJECTED, "answer too long");
	snprintf(c->why, sizeof(c->why),
		 "the answer has %zu bytes, but MC_HANDSHAKE_MAX_LENGTH allows %zu",
		 len, max);
	return TEI_ERR_REJECTED;
}

static int client_errno(struct client_call *c, int e)
{
	c->prov_errno = e;
	c->hint = e;
	if (e == ETIMEDOUT && c->connected) {
		c->hint = TEI_HINT_SILENT;
		return client_fail(c, TEI_ERR_SOCKET, "connected, but no answer");
	}
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

/* Returns true for an IPv6 link-local address that lacks the interface (scope
 * id), without which no connection is possible. */
static bool client_lacks_zone(const struct sockaddr *sa)
{
	const struct sockaddr_in6 *v6 = (const void *)sa;

	return sa->sa_family == AF_INET6 && !v6->sin6_scope_id &&
	       IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
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
		if (errno == EINVAL && client_lacks_zone(a->ai_addr)) {
			rc = client_errno(c, errno);
			c->hint = TEI_HINT_NO_ZONE;
			goto err_close;
		}
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

/*
 * Tries to connect to each address of the list, until one accepts. Each attempt
 * takes at most most_ns; the addresses not yet tried share the remaining time
 * equally. Sets *silent to true if an address did not answer.
 */
static int client_connect_round(struct client_call *c,
				const struct addrinfo *list, uint64_t most_ns,
				bool *silent, int *fd)
{
	const struct addrinfo *a;
	uint64_t now, share, left = 0;
	int rc = TEI_ERR_DNS;

	*silent = false;
	for (a = list; a; a = a->ai_next)
		left++;
	for (a = list; a; a = a->ai_next, left--) {
		now = tei_now_ns();
		if (now >= c->deadline_ns)
			return client_errno(c, ETIMEDOUT);
		share = (c->deadline_ns - now) / left;
		rc = client_connect_one(c, a, now + (share < most_ns ? share :
							   most_ns), fd);
		if (!rc)
			return 0;
		*silent |= c->prov_errno == ETIMEDOUT;
	}
	return rc;
}

/*
 * Tries all addresses, round after round. The time limit per address is doubled
 * in each round. The first attempts are short for this reason: if the first
 * packet of an attempt is lost, the kernel repeats it only after 1, 3 and 7
 * seconds, although the network may work again earlier.
 */
static int client_connect_any(struct client_call *c,
			      const struct addrinfo *list, int *fd)
{
	uint64_t most = CLIENT_TRY_NS;
	bool silent;
	int rc;

	do {
		rc = client_connect_round(c, list, most, &silent, fd);
		most *= 2;
	} while (rc && silent && tei_now_ns() < c->deadline_ns);
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
				   tei_meta_split_why(c->endpoint));
	rc = tei_meta_resolve(host, port, c->deadline_ns, &list, &why);
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
			/*
			 * not an error: the server may have sent the reason
			 * before it closed the connection, and the reason can
			 * still be read
			 */
			return 0;
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

/* Records the error that the peer has sent. Replaces characters of the peer's
 * text that are not printable. */
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

static int client_denied(struct client_call *c, const char *why)
{
	c->prov_errno = TEI_META_DENIED;
	return client_fail(c, TEI_ERR_REJECTED, why);
}

/* Checks the header of an answer. Sets *tag to the length of the tag at the end
 * of the payload, which is 0 if the frame is not signed. */
static int client_check(struct client_call *c,
			const struct meta_wire_header *h, uint8_t type,
			size_t max, size_t *tag)
{
	uint16_t flags = meta_wire_get16(h->flags);
	bool error = h->type == META_WIRE_ERROR;

	*tag = flags & META_WIRE_SIGNED ? META_WIRE_TAG : 0;
	if (error)
		max = sizeof(struct meta_wire_error) + META_WIRE_ERROR_TEXT;
	if (memcmp(h->magic, META_WIRE_MAGIC, sizeof(h->magic)))
		return client_fail(
			c, TEI_ERR_REJECTED,
			"this port is not a moonrail control channel");
	if (h->version != META_WIRE_VERSION)
		return client_fail(c, TEI_ERR_REJECTED,
				   "the peer speaks another version of the control channel");
	if (h->type == META_WIRE_CHALLENGE && type != h->type)
		return client_denied(c, "the peer requires a shared secret");
	if (h->type != type && !error)
		return client_fail(c, TEI_ERR_REJECTED, "unexpected answer");
	if (!*tag && c->session.on && !error)
		return client_denied(c, "the peer has not proved that it has the shared secret");
	if ((*tag && !c->session.on) || flags & ~META_WIRE_SIGNED)
		return client_fail(c, TEI_ERR_REJECTED, "unexpected answer");
	if (meta_wire_get32(h->length) > max + *tag)
		return client_too_long(c, meta_wire_get32(h->length) - *tag,
				       max);
	if (meta_wire_get32(h->length) < *tag)
		return client_fail(c, TEI_ERR_REJECTED, "answer too short");
	return 0;
}

/* Reads the payload of the frame whose header h was received, and checks the
 * tag if the frame is signed. */
static int client_body(struct client_call *c, int fd,
		       const struct meta_wire_header *h, size_t tag)
{
	size_t len = meta_wire_get32(h->length);
	char *body = malloc(len + 1);
	int rc;

	if (!body)
		return client_fail(c, TEI_ERR_MEMORY, "no memory");
	rc = client_recv(c, fd, body, len);
	len -= tag;
	if (!rc && tag && !meta_session_check(&c->session, h, body, len,
					      (uint8_t *)body + len))
		rc = client_denied(c, "the peer has not proved that it has the shared secret");
	if (!rc && h->type == META_WIRE_ERROR)
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

static int client_reply(struct client_call *c, int fd)
{
	struct meta_wire_header h;
	size_t tag;
	int rc;

	rc = client_recv(c, fd, &h, sizeof(h));
	if (!rc)
		rc = client_check(c, &h, c->reply_type, c->reply_max, &tag);
	return rc ? rc : client_body(c, fd, &h, tag);
}

/* Exchanges nonces with the server and derives the session key. */
static int client_challenge(struct client_call *c, int fd)
{
	struct {
		struct meta_wire_header h;
		uint8_t nonce[META_WIRE_NONCE];
	} ours, its;
	struct tei_mac_key key;
	size_t tag;
	int rc;

	if (!tei_random(ours.nonce, sizeof(ours.nonce)))
		return client_errno(c, errno);
	meta_wire_fill(&ours.h, META_WIRE_AUTH, 0, 0, sizeof(ours.nonce));
	rc = client_send(c, fd, &ours, sizeof(ours));
	if (!rc)
		rc = client_recv(c, fd, &its.h, sizeof(its.h));
	if (!rc)
		rc = client_check(c, &its.h, META_WIRE_CHALLENGE,
				  sizeof(its.nonce), &tag);
	if (rc)
		return rc;
	if (its.h.type == META_WIRE_ERROR)
		return client_body(c, fd, &its.h, 0);
	if (meta_wire_get32(its.h.length) != sizeof(its.nonce))
		return client_fail(c, TEI_ERR_REJECTED, "malformed answer");
	rc = client_recv(c, fd, its.nonce, sizeof(its.nonce));
	if (rc)
		return rc;
	meta_auth_key(c->secret, &key);
	meta_session_derive(&key, ours.nonce, its.nonce, &c->session);
	tei_wipe(&key, sizeof(key));
	c->session.on = true;
	return 0;
}

/* Sends the proof and the request together. */
static int client_request_signed(struct client_call *c, int fd)
{
	struct {
		struct meta_wire_header h;
		uint8_t proof[META_WIRE_TAG];
		struct meta_wire_header request;
		uint8_t rest[TEI_META_NAME_MAX + META_WIRE_TAG];
	} out;
	uint8_t digest[TEI_MAC_SIZE];
	int rc;

	rc = client_challenge(c, fd);
	if (rc)
		return rc;
	meta_wire_fill(&out.h, META_WIRE_RESPONSE, 0, 0, sizeof(out.proof));
	meta_session_proof(&c->session, out.proof);
	meta_wire_fill(&out.request, c->type, c->flags | META_WIRE_SIGNED, 1,
		       (uint32_t)(c->payload_len + META_WIRE_TAG));
	if (c->payload_len)
		memcpy(out.rest, c->payload, c->payload_len);
	tei_digest(out.rest, c->payload_len, digest);
	meta_session_sign(&c->session, &out.request, digest,
			  out.rest + c->payload_len);
	return client_send(c, fd, &out, offsetof(__typeof__(out), rest) +
			   c->payload_len + META_WIRE_TAG);
}

static int client_request(struct client_call *c, int fd)
{
	struct meta_wire_header h;
	int rc;

	meta_wire_fill(&h, c->type, c->flags, 1, (uint32_t)c->payload_len);
	rc = client_send(c, fd, &h, sizeof(h));
	return rc ? rc : client_send(c, fd, c->payload, c->payload_len);
}

static int client_exchange(struct client_call *c)
{
	int fd, rc;

	rc = client_connect(c, &fd);
	if (rc)
		return rc;
	c->connected = true;
	rc = c->secret ? client_request_signed(c, fd) : client_request(c, fd);
	if (!rc)
		rc = client_reply(c, fd);
	tei_wipe(&c->session, sizeof(c->session));
	close(fd);
	return rc;
}

/*
 * Returns the log limit of an endpoint. While a peer cannot be reached, several
 * parts of the engine try its control port several times a second, so the same
 * error is logged at most every 30 seconds. Endpoints with equal hashes share
 * one limit, which does not suppress lines with different texts.
 */
#define CLIENT_LIMITS	64
#define CLIENT_PAUSE_NS	(30 * TEI_NS_PER_SEC)

static struct tei_log_repeat *client_limit(const char *endpoint)
{
	static struct tei_log_repeat limits[CLIENT_LIMITS];
	struct tei_log_repeat *limit =
		&limits[tei_text_hash(endpoint) % CLIENT_LIMITS];

	__atomic_store_n(&limit->pause_max_ns, CLIENT_PAUSE_NS,
			 __ATOMIC_RELAXED);
	return limit;
}

static int client_report(const struct client_call *c, int code,
			 struct tei_err *err)
{
	struct tei_err e;
	const char *hint = c->hint ? tei_hint(TEI_HINT_CONTROL, c->hint) : NULL;

	if (c->prov_errno == TEI_META_DENIED)
		hint = "give all processes the same MOONRAIL_SECRET_FILE";
	tei_err_fail_repeated(client_limit(c->endpoint), &e, code, "meta", hint,
			      "control channel of %.64s: %.90s", c->endpoint,
			      c->why);
	e.prov_errno = c->prov_errno;
	strncpy(e.peer, c->endpoint, sizeof(e.peer) - 1);
	tei_err_set_last(&e);
	if (err)
		*err = e;
	return code;
}

int tei_meta_ping(const char *endpoint, const struct tei_secret *secret,
		  uint64_t deadline_ns, uint64_t *incarnation,
		  struct tei_err *err)
{
	struct client_call c = {
		.endpoint = endpoint, .secret = secret,
		.deadline_ns = deadline_ns,
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

bool tei_meta_refused(const char *endpoint, uint64_t deadline_ns)
{
	struct client_call c = {
		.endpoint = endpoint, .deadline_ns = deadline_ns,
	};
	int fd;

	if (client_connect(&c, &fd))
		return c.prov_errno == ECONNREFUSED;
	close(fd);
	return false;
}

int tei_meta_get_desc_max(const char *endpoint, const struct tei_secret *secret,
			  const char *name, bool any, size_t max,
			  uint64_t deadline_ns, char **json, size_t *len,
			  struct tei_err *err)
{
	struct client_call c = {
		.endpoint = endpoint, .secret = secret,
		.deadline_ns = deadline_ns,
		.type = META_WIRE_GET_DESC, .reply_type = META_WIRE_DESC,
		.flags = any ? META_WIRE_ANY : 0,
		.payload = name, .payload_len = strlen(name),
		.reply_max = max && max < TEI_META_TEXT_MAX ?
				     max : TEI_META_TEXT_MAX,
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

int tei_meta_get_desc(const char *endpoint, const struct tei_secret *secret,
		      const char *name, bool any, uint64_t deadline_ns,
		      char **json, size_t *len, struct tei_err *err)
{
	return tei_meta_get_desc_max(endpoint, secret, name, any,
				     TEI_META_TEXT_MAX, deadline_ns, json, len,
				     err);
}

int tei_meta_get_stats(const char *endpoint, const struct tei_secret *secret,
		       uint64_t deadline_ns, char **json, struct tei_err *err)
{
	struct client_call c = {
		.endpoint = endpoint, .secret = secret,
		.deadline_ns = deadline_ns,
		.type = META_WIRE_GET_STATS, .reply_type = META_WIRE_STATS,
		.reply_max = TEI_META_TEXT_MAX,
	};
	int rc = client_exchange(&c);

	if (rc)
		return client_report(&c, rc, err);
	*json = c.reply;
	return 0;
}
