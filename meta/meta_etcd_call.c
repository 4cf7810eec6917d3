/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "meta/meta_etcd.h"
#include "meta/tei_meta_name.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/settings.h"

/* Requests to etcd's JSON gateway: the choice of the endpoint, tokens, and the
 * handling of errors. */

#define ETCD_AUTH_HINT \
	"set MOONRAIL_ETCD_AUTH_FILE to a file with user:password"
#define ETCD_TLS_HINT                                                       \
	"check MOONRAIL_STORE_CA_FILE, which switches TLS on, and, if the " \
	"server requires a certificate, MOONRAIL_STORE_CERT_FILE"
/* pause after all endpoints have failed, before they are tried again */
#define ETCD_PAUSE_NS	(100 * TEI_NS_PER_MS)
#define ETCD_TRY_MIN_NS TEI_NS_PER_SEC
#define ETCD_TRY_MAX_NS (5 * TEI_NS_PER_SEC)

/* gRPC error codes */
enum {
	GRPC_CANCELED = 1,
	GRPC_UNKNOWN = 2,
	GRPC_INVALID = 3,
	GRPC_DEADLINE = 4,
	GRPC_NOT_FOUND = 5,
	GRPC_DENIED = 7,
	GRPC_EXHAUSTED = 8,
	GRPC_PRECONDITION = 9,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
	GRPC_UNAUTHENTICATED = 16,
};

/* --- endpoints ----------------------------------------------------------- */

static int etcd_refuse(const char *conn, struct tei_err *err)
{
	char shown[TEI_META_SHOWN];

	tei_meta_conn_shown(conn, shown);
	return tei_err_fail(err, TEI_ERR_INVALID, "meta",
			    "use etcd://host:port[,host:port...], and "
			    "MOONRAIL_ETCD_AUTH_FILE for user and password",
			    "metadata '%s': not a list of 1 to %d etcd servers",
			    shown, ETCD_ENDPOINTS);
}

static bool etcd_endpoint(struct etcd *e, const char *text, const char *scheme)
{
	char host[TEI_META_HOST_MAX], at[TEI_META_ENDPOINT_MAX];
	uint16_t port;

	/* An address contains no '@'. A text with '@' is refused, because it
	 * may contain a password, which belongs into a file. */
	if (e->count == ETCD_ENDPOINTS || strpbrk(text, "@/?#%\\ ") ||
	    tei_meta_split(text, host, &port))
		return false;
	tei_meta_join(host, port ? port : ETCD_PORT, at);
	snprintf(e->endpoints[e->count].url, sizeof(e->endpoints[0].url),
		 "%s://%s", scheme, at);
	e->count++;
	return true;
}

int etcd_endpoints(struct meta_kv *kv, const char *conn, struct tei_err *err)
{
	const char *sep = strstr(conn, "://");
	const char *scheme = *kv->settings->store.ca_file ? "https" : "http";
	struct etcd *e = kv->state;
	char *list, *at, *one;
	bool good = true;
	size_t len;

	list = strdup(sep ? sep + 3 : conn);
	if (!list)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for the list of etcd servers");
	len = strlen(list);
	if (len && list[len - 1] == '/')
		list[len - 1] = 0;
	at = list;
	while (good && (one = strsep(&at, ",;")))
		good = etcd_endpoint(e, one, scheme);
	free(list);
	if (!good)
		return etcd_refuse(conn, err);
	one = strstr(e->endpoints[0].url, "://") + 3;
	if (e->count > 1)
		snprintf(kv->where, sizeof(kv->where), "%.*s (+%d)",
			 META_KV_WHERE - 16, one, e->count - 1);
	else
		snprintf(kv->where, sizeof(kv->where), "%s", one);
	return 0;
}

int etcd_current(struct etcd *e)
{
	int current;

	tei_mutex_lock(&e->lock);
	current = e->current;
	tei_mutex_unlock(&e->lock);
	return current;
}

void etcd_leave(struct etcd *e, int endpoint)
{
	tei_mutex_lock(&e->lock);
	if (e->current == endpoint)
		e->current = (endpoint + 1) % e->count;
	tei_mutex_unlock(&e->lock);
}

void etcd_url(struct etcd *e, int endpoint, const char *path,
	      char out[ETCD_URL_MAX])
{
	const struct etcd_endpoint *p = &e->endpoints[endpoint];
	bool beta;

	tei_mutex_lock(&e->lock);
	beta = p->beta;
	tei_mutex_unlock(&e->lock);
	snprintf(out, ETCD_URL_MAX, "%s/v3%s%s", p->url, beta ? "beta" : "",
		 path);
}

/* --- tokens -------------------------------------------------------------- */

static int etcd_post(struct etcd *e, const char *url, const char *token,
		     const struct meta_buf *body, size_t limit,
		     uint64_t deadline_ns, struct meta_http_response *out)
{
	const char *headers[] = { "Content-Type: application/json",
				  *token ? token : NULL, NULL };
	const struct meta_http_request r = {
		.method = "POST",
		.url = url,
		.headers = headers,
		.body = body->text,
		.body_len = body->len,
		.limit = limit,
		.deadline_ns = deadline_ns,
	};

	return meta_http_run(e->http, &r, out);
}

bool etcd_token_refused(const struct etcd_response *r)
{
	return r->code == GRPC_UNAUTHENTICATED ||
	       strstr(r->message, "user name is empty") ||
	       strstr(r->message, "invalid auth token") ||
	       strstr(r->message, "revision of auth store is old");
}

/* Switches the prefix of the endpoint's paths from /v3 to /v3beta, or back. */
static void etcd_other_prefix(struct etcd *e, int endpoint)
{
	tei_mutex_lock(&e->lock);
	e->endpoints[endpoint].beta = !e->endpoints[endpoint].beta;
	tei_mutex_unlock(&e->lock);
}

/* Sends user and password to the endpoint, which answers with a token. */
static int etcd_ask_token(struct etcd *e, int endpoint, uint64_t deadline_ns,
			  struct meta_http_response *got)
{
	const char *colon = strchr(e->auth, ':');
	struct meta_buf b = { 0 };
	char url[ETCD_URL_MAX], *user;
	int rc = TEI_ERR_MEMORY;

	user = strndup(e->auth, (size_t)(colon - e->auth));
	meta_buf_text(&b, "{\"name\":");
	meta_buf_string(&b, user ? user : "");
	meta_buf_text(&b, ",\"password\":");
	meta_buf_string(&b, colon + 1);
	meta_buf_text(&b, "}");
	etcd_url(e, endpoint, "/auth/authenticate", url);
	if (user && !b.failed)
		rc = etcd_post(e, url, "", &b, ETCD_SMALL, deadline_ns, got);
	else
		snprintf(got->why, sizeof(got->why), "no memory");
	free(user);
	if (b.text)
		explicit_bzero(b.text, b.len);
	free(b.text);
	return rc;
}

static int etcd_authenticate(struct etcd *e, int endpoint, uint64_t deadline_ns,
			     char why[ETCD_MESSAGE])
{
	struct meta_http_response got;
	struct etcd_response r = { 0 };
	int rc = etcd_ask_token(e, endpoint, deadline_ns, &got);

	if (!rc && got.status == 404) {
		free(got.body);
		etcd_other_prefix(e, endpoint);
		rc = etcd_ask_token(e, endpoint, deadline_ns, &got);
	}
	snprintf(why, ETCD_MESSAGE, "%s", got.why);
	if (rc)
		return rc;
	if (!etcd_response_parse(got.body, got.len, &r) ||
	    (got.status == 200 && !*r.token))
		r.code = GRPC_INTERNAL;
	free(got.body);
	snprintf(why, ETCD_MESSAGE, "%s", *r.message ? r.message : "no token");
	if (r.code == GRPC_INVALID || r.code == GRPC_DENIED)
		return TEI_ERR_REJECTED;
	if (r.code && r.code != GRPC_PRECONDITION)
		return TEI_ERR_SOCKET;
	tei_mutex_lock(&e->lock);
	e->no_auth = r.code == GRPC_PRECONDITION;
	snprintf(e->token, sizeof(e->token), "%s", r.token);
	tei_mutex_unlock(&e->lock);
	return 0;
}

/* Writes the header line with the present token to out. Returns false if a
 * token is needed and there is none yet. */
static bool etcd_token_known(struct etcd *e, char out[ETCD_TOKEN_MAX])
{
	bool known;

	tei_mutex_lock(&e->lock);
	known = !e->auth || e->no_auth || *e->token;
	if (*e->token)
		snprintf(out, ETCD_TOKEN_MAX, "Authorization: %s", e->token);
	tei_mutex_unlock(&e->lock);
	return known;
}

int etcd_token(struct etcd *e, int endpoint, uint64_t deadline_ns,
	       char out[ETCD_TOKEN_MAX], char why[ETCD_MESSAGE])
{
	int rc;

	*out = 0;
	if (etcd_token_known(e, out))
		return 0;
	rc = etcd_authenticate(e, endpoint, deadline_ns, why);
	if (!rc)
		etcd_token_known(e, out);
	return rc;
}

bool etcd_token_forget(struct etcd *e, const char *header)
{
	const char *colon = strchr(header, ' ');

	if (!e->auth)
		return false;
	tei_mutex_lock(&e->lock);
	e->no_auth = false;
	if (colon && !strcmp(e->token, colon + 1))
		e->token[0] = 0;
	tei_mutex_unlock(&e->lock);
	return true;
}

/* --- one attempt --------------------------------------------------------- */

struct etcd_try {
	struct etcd_call *call;
	struct etcd_response *out;
	int endpoint, tries;  /* index of the endpoint, and number of attempts
			       * with other endpoints that have failed before */
	uint64_t deadline_ns; /* deadline of this attempt */
	bool hopeful;	      /* at least one failure of this round over the
			       * endpoints may be temporary, so another round
			       * may succeed */
	bool renewed;	      /* the call was repeated at this endpoint with a
			       * new token */
	bool beta;	      /* the call was repeated at this endpoint with the
			       * other prefix of the path */
	int rc;
	char why[META_HTTP_WHY];
	const char *hint;
};

enum etcd_next {
	ETCD_DONE,  /* the call has ended with the result rc */
	ETCD_AGAIN, /* the call must be tried again at the same endpoint */
	ETCD_OTHER, /* the call must be tried at the next endpoint */
};

static enum etcd_next etcd_failed(struct etcd_try *t, int rc, const char *why,
				  const char *hint)
{
	t->rc = rc;
	t->hint = hint;
	snprintf(t->why, sizeof(t->why), "%s", why);
	return ETCD_DONE;
}

/* Handles a request to which no HTTP response has arrived. */
static enum etcd_next etcd_no_response(struct etcd_try *t, int rc,
				       const char *why)
{
	/* a server that expects TLS sends an empty reply to a plain request */
	bool tls = rc == TEI_ERR_REJECTED || strstr(why, "SSL") ||
		   strstr(why, "Empty reply");

	etcd_failed(t, rc == TEI_ERR_CANCELED ? TEI_ERR_SOCKET : rc, why,
		    tls ? ETCD_TLS_HINT : NULL);
	if (rc != TEI_ERR_SOCKET && rc != TEI_ERR_REJECTED)
		return ETCD_DONE;
	t->hopeful = t->hopeful || !tei_ns_left(t->deadline_ns);
	return ETCD_OTHER;
}

/* Handles a response whose HTTP status is not 200. */
static enum etcd_next etcd_refused(struct meta_kv *kv, struct etcd_try *t,
				   int status, const char *token)
{
	const struct etcd_response *r = t->out;
	struct etcd *e = kv->state;
	char text[META_HTTP_WHY];

	snprintf(text, sizeof(text), "HTTP status %d", status);
	switch (r->code) {
	case 0:
		if (status == 404 && !t->beta) {
			t->beta = true;
			etcd_other_prefix(e, t->endpoint);
			return ETCD_AGAIN;
		}
		etcd_failed(t,
			    status >= 500 ? TEI_ERR_SOCKET : TEI_ERR_METADATA,
			    text,
			    "is this the client port of an etcd server, "
			    "version 3.3 or newer?");
		t->hopeful = t->hopeful || status >= 500;
		return status >= 500 ? ETCD_OTHER : ETCD_DONE;
	case GRPC_NOT_FOUND:
		etcd_failed(t, ETCD_NO_LEASE, r->message, NULL);
		return ETCD_DONE;
	case GRPC_CANCELED:
	case GRPC_UNKNOWN:
	case GRPC_DEADLINE:
	case GRPC_INTERNAL:
	case GRPC_UNAVAILABLE:
		t->hopeful = true;
		/* fall through */
	case GRPC_EXHAUSTED:
		etcd_failed(t, TEI_ERR_SOCKET, r->message, NULL);
		return ETCD_OTHER;
	default:
		break;
	}
	if (etcd_token_refused(r) && !t->renewed &&
	    etcd_token_forget(e, token)) {
		t->renewed = true;
		return ETCD_AGAIN;
	}
	if (etcd_token_refused(r) || r->code == GRPC_DENIED)
		return etcd_failed(t, TEI_ERR_REJECTED, r->message,
				   ETCD_AUTH_HINT);
	return etcd_failed(t, TEI_ERR_METADATA, r->message, NULL);
}

static enum etcd_next etcd_attempt(struct meta_kv *kv, struct etcd_try *t)
{
	char url[ETCD_URL_MAX], token[ETCD_TOKEN_MAX], why[ETCD_MESSAGE] = "";
	const struct etcd_response clean = { .pair = t->out->pair,
					     .arg = t->out->arg };
	struct meta_http_response got;
	struct etcd *e = kv->state;
	enum etcd_next next;
	bool good;
	int rc;

	rc = etcd_token(e, t->endpoint, t->deadline_ns, token, why);
	if (rc == TEI_ERR_REJECTED)
		return etcd_failed(t, rc, why, ETCD_AUTH_HINT);
	if (rc)
		return etcd_no_response(t, rc, why);
	etcd_url(e, t->endpoint, t->call->path, url);
	rc = etcd_post(e, url, token, &t->call->body, t->call->limit,
		       t->deadline_ns, &got);
	if (rc)
		return etcd_no_response(t, rc, got.why);
	*t->out = clean;
	if (got.status != 200)
		t->out->pair = NULL;
	good = etcd_response_parse(got.body, got.len, t->out);
	free(got.body);
	if (got.status == 200 && !t->out->code) {
		next = etcd_failed(t, good ? 0 : TEI_ERR_METADATA,
				   "malformed response", NULL);
	} else {
		if (!good && got.status != 200)
			t->out->code = 0;
		next = etcd_refused(kv, t, got.status, token);
	}
	return next;
}

/* --- the call ------------------------------------------------------------ */

/*
 * Returns the deadline of the next attempt. If there are several endpoints,
 * each one gets a fraction of the lease time in the first round. Without this,
 * the lease could expire while the driver waits for an endpoint that does not
 * answer.
 */
static uint64_t etcd_try_deadline(const struct meta_kv *kv,
				  const struct etcd_try *t)
{
	const struct etcd *e = kv->state;
	uint64_t left = tei_ns_left(t->call->deadline_ns), one;

	one = left / (uint64_t)(e->count - t->tries % e->count);
	if (e->count > 1 && t->tries < e->count) {
		uint64_t part = kv->settings->store.lease_ms * TEI_NS_PER_MS /
				(2 * (uint64_t)e->count);

		if (part < ETCD_TRY_MIN_NS)
			part = ETCD_TRY_MIN_NS;
		if (part > ETCD_TRY_MAX_NS)
			part = ETCD_TRY_MAX_NS;
		if (part < one)
			one = part;
	}
	return tei_now_ns() + one;
}

/*
 * Prepares an attempt with the next endpoint. Pauses after each round over all
 * endpoints. Returns false if a further attempt cannot be expected to succeed
 * in time.
 */
static bool etcd_try_other(struct meta_kv *kv, struct etcd_try *t)
{
	const struct timespec pause = { .tv_nsec = ETCD_PAUSE_NS };
	struct etcd *e = kv->state;

	etcd_leave(e, t->endpoint);
	t->renewed = t->beta = false;
	if (++t->tries % e->count)
		return true;
	if (!t->hopeful || tei_ns_left(t->call->deadline_ns) <= ETCD_PAUSE_NS)
		return false;
	t->hopeful = false;
	clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	return true;
}

int etcd_call(struct meta_kv *kv, struct etcd_call *call,
	      struct etcd_response *out, struct tei_err *err)
{
	struct etcd_try t = { .call = call, .out = out };
	struct etcd *e = kv->state;
	enum etcd_next next = ETCD_OTHER;
	bool more = !call->body.failed;

	if (!more)
		etcd_failed(&t, TEI_ERR_MEMORY, "no memory for a request",
			    NULL);
	while (more && next != ETCD_DONE) {
		t.endpoint = etcd_current(e);
		t.deadline_ns = etcd_try_deadline(kv, &t);
		next = etcd_attempt(kv, &t);
		if (next == ETCD_OTHER)
			more = etcd_try_other(kv, &t);
		more = more && tei_ns_left(call->deadline_ns) &&
		       !meta_kv_stopping(kv);
	}
	if (next == ETCD_AGAIN) /* the deadline has passed before the next
				 * attempt */
		etcd_failed(&t, TEI_ERR_SOCKET, "no answer in time", NULL);
	free(call->body.text);
	if (!t.rc || t.rc == ETCD_NO_LEASE)
		return t.rc;
	if (meta_kv_stopping(kv))
		return tei_err_note(err, TEI_ERR_SOCKET, "meta", NULL,
				    "etcd %s: the store is being closed",
				    kv->where);
	if (e->count == 1)
		return meta_kv_fail(kv, t.rc, err, t.hint, "%s", t.why);
	return meta_kv_fail(kv, t.rc, err, t.hint, "%.40s: %s",
			    e->endpoints[t.endpoint].url, t.why);
}
