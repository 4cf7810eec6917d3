/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "meta/meta_http.h"
#include "meta/meta_int.h"
#include "meta/meta_json.h"
#include "meta/tei_meta_name.h"
#include "util/err.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/settings.h"

/*
 * The HTTP driver of meta_kv.h. docs/PROTOCOL.md describes the requests. When
 * the store is opened, the driver finds out whether the server is te_meta
 * serve, which supports versions, commits, leases and watches. For any other
 * server, the driver uses only Mooncake's requests (meta_http_plain.c).
 */

/* Time after which the server answers a watch request even if nothing has
 * changed, ms. */
#define HTTP_WATCH_MS 10000
/* Time that the answer to a watch request may need in addition to that, ns. */
#define HTTP_SLACK_NS (5 * TEI_NS_PER_SEC)
/* Pause between two watch requests. Changes during the pause are reported
 * together in one answer. */
#define HTTP_PAUSE_NS (20 * TEI_NS_PER_MS)
/* a version that is higher than that of any server */
#define HTTP_FUTURE "9223372036854775807"

/* --- requests ------------------------------------------------------------ */

static void http_escape(const char *text, char *out, size_t size)
{
	static const char hex[] = "0123456789ABCDEF";
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "abcdefghijklmnopqrstuvwxyz0123456789-._~";
	size_t n = 0;

	for (; *text && n + 4 <= size; text++) {
		if (strchr(plain, *text)) {
			out[n++] = *text;
			continue;
		}
		out[n++] = '%';
		out[n++] = hex[(unsigned char)*text >> 4];
		out[n++] = hex[(unsigned char)*text & 15];
	}
	out[n] = 0;
}

void http_key_query(const char *key, char out[HTTP_TARGET_MAX])
{
	memcpy(out, "key=", 4);
	http_escape(key, out + 4, HTTP_TARGET_MAX - 4);
}

/*
 * Returns an error for an HTTP status that the caller does not expect. If the
 * status means that the server cannot serve requests at present, the code is
 * TEI_ERR_SOCKET, as for a server that does not answer.
 */
static int http_refused(struct meta_kv *kv, const struct http_call *c,
			struct tei_err *err)
{
	const struct meta_http_response *a = &c->answer;
	const char *text = a->body ? a->body : "", *hint = NULL;
	int code = TEI_ERR_METADATA;

	if (a->status >= 500 && a->status != 507)
		code = TEI_ERR_SOCKET;
	else if (a->status == 401 || a->status == 403)
		code = TEI_ERR_REJECTED;
	else if (a->status == 404)
		hint = "use the whole URL: http://host:8080/metadata";
	return meta_kv_fail(kv, code, err, hint, "%s: HTTP status %d %.*s",
			    c->method, a->status, (int)strcspn(text, "\r\n<"),
			    text);
}

int http_run(struct meta_kv *kv, struct http_call *call, int also, int or_also,
	     struct tei_err *err)
{
	static const char *const headers[] = { "Content-Type: application/json",
					       NULL };
	const struct http *h = kv->state;
	char url[sizeof(h->url) + HTTP_TARGET_MAX];
	struct meta_http_request r = {
		.method = call->method,
		.url = url,
		.headers = call->body ? headers : NULL,
		.body = call->body,
		.body_len = call->len,
		.limit = TEI_META_TEXT_MAX,
		.deadline_ns = call->deadline_ns,
		.idle = call->idle,
		.arg = kv,
	};
	struct meta_http_response *a = &call->answer;
	int rc;

	snprintf(url, sizeof(url), "%s?%s", h->url, call->query);
	rc = meta_http_run(h->client, &r, a);
	if (rc == TEI_ERR_CANCELED)
		return tei_err_note(err, rc, "meta", NULL,
				    "the metadata store is being closed");
	if (rc)
		return meta_kv_fail(kv, rc, err, NULL, "%s", a->why);
	if (a->status == 200 || (also && a->status == also) ||
	    (or_also && a->status == or_also))
		return 0;
	rc = http_refused(kv, call, err);
	free(a->body);
	a->body = NULL;
	return rc;
}

static int http_odd(struct meta_kv *kv, struct http_call *c,
		    struct tei_err *err)
{
	free(c->answer.body);
	c->answer.body = NULL;
	return meta_kv_fail(kv, TEI_ERR_METADATA, err,
			    "is te_meta serve still the server of that URL?",
			    "%s: unexpected answer", c->method);
}

static int http_memory(struct meta_kv *kv, struct tei_err *err)
{
	return meta_kv_fail(kv, TEI_ERR_MEMORY, err, NULL,
			    "no memory for a request");
}

/* --- keys ---------------------------------------------------------------- */

static int http_get(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
		    struct meta_kv_value *out, struct tei_err *err)
{
	const struct http *h = kv->state;
	char query[HTTP_TARGET_MAX], *line;
	struct http_call c = { .method = "GET",
			       .query = query,
			       .deadline_ns = deadline_ns };
	size_t used;
	int rc;

	if (h->plain)
		return http_plain_get(kv, key, deadline_ns, out, err);
	http_key_query(key, query);
	used = strlen(query);
	snprintf(query + used, sizeof(query) - used, "&version=1");
	rc = http_run(kv, &c, 404, 0, err);
	if (rc)
		return rc;
	if (c.answer.status == 404) {
		free(c.answer.body);
		return 0;
	}
	line = strchr(c.answer.body, '\n');
	out->version = strtoll(c.answer.body, NULL, 10);
	if (!line || out->version <= 0) {
		out->version = META_ABSENT;
		return http_odd(kv, &c, err);
	}
	used = (size_t)(line + 1 - c.answer.body);
	out->len = c.answer.len - used;
	memmove(c.answer.body, line + 1, out->len + 1);
	out->text = c.answer.body; /* the caller frees the text */
	return 0;
}

static void http_change(struct meta_buf *b, const struct meta_kv_change *c)
{
	char *text;

	meta_buf_text(b, "{\"key\":");
	meta_buf_string(b, c->key);
	if (c->expected != META_KV_ANY) {
		meta_buf_text(b, ",\"version\":");
		meta_buf_u64(b, c->expected == META_ABSENT
					? 0
					: (uint64_t)c->expected);
	}
	if (c->what == META_KV_PUT) {
		text = strndup(c->text, c->len);
		meta_buf_text(b, ",\"put\":");
		if (text)
			meta_buf_string(b, text);
		else
			b->failed = true;
		free(text);
		if (c->leased)
			meta_buf_text(b, ",\"leased\":true");
	} else if (c->what == META_KV_REMOVE) {
		meta_buf_text(b, ",\"remove\":true");
	}
	meta_buf_text(b, "}");
}

/* Reads the new versions of the keys from the answer to a commit. Returns false
 * if the text is not such an answer. */
static bool http_versions(const struct http_call *c,
			  struct meta_kv_change *changes, size_t count)
{
	uint64_t version;
	struct meta_json j;
	size_t n = 0;
	bool fine;

	meta_json_init(&j, c->answer.body, c->answer.len);
	if (meta_json_object(&j) && meta_json_member(&j) &&
	    !strcmp(j.text, "versions") && meta_json_array(&j))
		while (meta_json_element(&j) && meta_json_u64(&j, &version) &&
		       n < count) {
			if (changes[n].what == META_KV_PUT)
				changes[n].version = (int64_t)version;
			n++;
		}
	fine = !j.why && n == count;
	meta_json_fini(&j);
	return fine;
}

static int http_commit(struct meta_kv *kv, struct meta_kv_change *changes,
		       size_t count, uint64_t deadline_ns, struct tei_err *err)
{
	const struct http *h = kv->state;
	struct http_call c = { .method = "POST",
			       .query = "commit=1",
			       .deadline_ns = deadline_ns };
	struct meta_buf b = { 0 };
	size_t i;
	int rc;

	if (h->plain)
		return http_plain_commit(kv, changes, count, deadline_ns, err);
	meta_buf_text(&b, "{\"lease\":");
	meta_buf_string(&b, h->lease);
	meta_buf_text(&b, ",\"ttl\":");
	meta_buf_u64(&b, kv->settings->store.lease_ms);
	meta_buf_text(&b, ",\"changes\":[");
	for (i = 0; i < count; i++) {
		meta_buf_text(&b, i ? "," : "");
		http_change(&b, &changes[i]);
	}
	meta_buf_text(&b, "]}");
	c.body = b.text;
	c.len = b.len;
	rc = b.failed ? http_memory(kv, err) : http_run(kv, &c, 409, 0, err);
	free(b.text);
	if (rc)
		return rc;
	if (c.answer.status == 409)
		rc = META_CONFLICT;
	else if (!http_versions(&c, changes, count))
		return http_odd(kv, &c, err);
	free(c.answer.body);
	return rc;
}

static int http_renew(struct meta_kv *kv, const char *const *keys, size_t count,
		      uint64_t deadline_ns, bool *lost, struct tei_err *err)
{
	const struct http *h = kv->state;
	char query[96];
	struct http_call c = { .method = "POST",
			       .query = query,
			       .deadline_ns = deadline_ns };
	int rc;

	(void)keys;
	if (!count)
		return 0;
	snprintf(query, sizeof(query), "renew=%s&ttl=%u", h->lease,
		 kv->settings->store.lease_ms);
	rc = http_run(kv, &c, 404, 0, err);
	if (rc)
		return rc;
	*lost = *lost || c.answer.status == 404;
	free(c.answer.body);
	return 0;
}

/* --- listings and watches ------------------------------------------------ */

/* The answer to a listing or watch request, decoded. */
struct http_keys {
	uint64_t version;
	bool reset, more;
	struct meta_names set, removed;
};

static void http_keys_free(struct http_keys *k)
{
	meta_names_free(&k->set);
	meta_names_free(&k->removed);
}

static bool http_true(struct meta_json *j)
{
	const char *text;
	size_t len;

	return meta_json_raw(j, &text, &len) && len == 4;
}

static void http_keys_names(struct meta_json *j, struct meta_names *names)
{
	if (!meta_json_array(j))
		return;
	while (meta_json_element(j))
		if (meta_json_string(j) && !meta_names_add(names, j->text))
			meta_json_fail(j, "no memory");
}

/* Decodes the answer to a listing or watch request. Returns false if it is not
 * valid. The caller frees *k with http_keys_free, even after a failure. */
static bool http_keys_parse(const struct http_call *c, struct http_keys *k)
{
	struct meta_json j;
	bool fine, version = false;

	meta_json_init(&j, c->answer.body, c->answer.len);
	meta_json_object(&j);
	while (meta_json_member(&j)) {
		if (!strcmp(j.text, "version"))
			version = meta_json_u64(&j, &k->version);
		else if (!strcmp(j.text, "reset"))
			k->reset = http_true(&j);
		else if (!strcmp(j.text, "more"))
			k->more = http_true(&j);
		else if (!strcmp(j.text, "set"))
			http_keys_names(&j, &k->set);
		else if (!strcmp(j.text, "removed"))
			http_keys_names(&j, &k->removed);
		else
			meta_json_skip(&j);
	}
	fine = !j.why && version && meta_json_done(&j);
	meta_json_fini(&j);
	return fine;
}

/*
 * Gets the keys that start with prefix and have changed after the version
 * "since"; "0" means all keys. If there are none, the server waits up to
 * wait_ms for a change. The caller frees *k with http_keys_free, even after a
 * failure.
 */
static int http_keys(struct meta_kv *kv, const char *prefix, const char *since,
		     uint32_t wait_ms, struct http_call *c, struct http_keys *k,
		     struct tei_err *err)
{
	char query[HTTP_TARGET_MAX], escaped[HTTP_TARGET_MAX - 96];
	int rc;

	memset(k, 0, sizeof(*k));
	http_escape(prefix, escaped, sizeof(escaped));
	snprintf(query, sizeof(query), "prefix=%s&since=%s&wait=%" PRIu32,
		 escaped, since, wait_ms);
	c->method = "GET";
	c->query = query;
	rc = http_run(kv, c, 0, 0, err);
	if (rc)
		return rc;
	if (!http_keys_parse(c, k))
		return http_odd(kv, c, err);
	free(c->answer.body);
	return 0;
}

static int http_list_page(struct meta_kv *kv, const char *prefix,
			  uint64_t *since, uint64_t deadline_ns, bool *more,
			  struct meta_names *names, struct tei_err *err)
{
	struct http_call c = { .deadline_ns = deadline_ns };
	size_t i, n = strlen(prefix);
	struct http_keys k;
	char from[24];
	int rc;

	snprintf(from, sizeof(from), "%" PRIu64, *since);
	rc = http_keys(kv, prefix, from, 0, &c, &k, err);
	for (i = 0; i < k.set.count && !rc; i++)
		if (strlen(k.set.name[i]) > n &&
		    !meta_names_add(names, k.set.name[i] + n))
			rc = http_memory(kv, err);
	*since = k.version;
	*more = k.more;
	if (!rc && k.reset)
		rc = meta_kv_fail(kv, TEI_ERR_SOCKET, err, NULL,
				  "the keys changed too fast to be listed");
	http_keys_free(&k);
	return rc;
}

static int http_list(struct meta_kv *kv, const char *prefix,
		     uint64_t deadline_ns, struct meta_names *names,
		     struct tei_err *err)
{
	uint64_t since = 0;
	bool more;
	int rc;

	do
		rc = http_list_page(kv, prefix, &since, deadline_ns, &more,
				    names, err);
	while (!rc && more);
	return rc;
}

static bool http_goes_on(void *arg)
{
	return !meta_kv_stopping(arg);
}

static void http_report(struct meta_kv *kv, const struct http_keys *k)
{
	const struct timespec pause = { .tv_nsec = (long)HTTP_PAUSE_NS };
	size_t i;

	for (i = 0; i < k->set.count; i++)
		meta_kv_changed(kv, k->set.name[i]);
	for (i = 0; i < k->removed.count; i++)
		meta_kv_changed(kv, k->removed.name[i]);
	if (!k->more && (k->set.count || k->removed.count))
		nanosleep(&pause, NULL);
}

/*
 * Makes one watch request: the server answers when there is a change after the
 * version "since", or after wait_ms. In the first request, "since" is
 * HTTP_FUTURE; the server's answer is then a reset with its current version.
 */
static int http_watch_once(struct meta_kv *kv, const char *since,
			   uint32_t wait_ms)
{
	struct http *h = kv->state;
	struct http_call c = {
		.deadline_ns =
			tei_now_ns() + wait_ms * TEI_NS_PER_MS + HTTP_SLACK_NS,
		.idle = http_goes_on,
	};
	struct http_keys k;
	struct tei_err err;
	int rc = http_keys(kv, h->prefix, since, wait_ms, &c, &k, &err);

	if (!rc) {
		h->since = (int64_t)(k.version & INT64_MAX);
		if (k.reset)
			meta_kv_watching(kv);
		else
			http_report(kv, &k);
	}
	http_keys_free(&k);
	return rc;
}

static void http_watch(struct meta_kv *kv)
{
	const struct http *h = kv->state;
	char since[24];
	int rc = http_watch_once(kv, HTTP_FUTURE, 0);

	while (!rc && !meta_kv_stopping(kv)) {
		snprintf(since, sizeof(since), "%" PRId64, h->since);
		rc = http_watch_once(kv, since, HTTP_WATCH_MS);
	}
}

static void http_interrupt(struct meta_kv *kv)
{
	const struct http *h = kv->state;

	meta_http_cancel(h->client);
}

/* --- open and close ------------------------------------------------------ */

static void http_close(struct meta_kv *kv)
{
	struct http *h = kv->state;

	meta_http_free(h->client);
	free(h);
}

/* Parses the connection string http://host[:port][/path]. Sets h->url, and sets
 * kv->where to host and port. Returns false if conn does not have this form. */
static bool http_parse(struct meta_kv *kv, struct http *h, const char *conn)
{
	const char *host = strstr(conn, "://") + 3, *path;
	char text[TEI_META_HOST_MAX + 8], name[TEI_META_HOST_MAX];
	size_t len = strcspn(host, "/");
	uint16_t port;

	path = host + len;
	if (len >= sizeof(text) || strpbrk(conn, "@?# \t\r\n"))
		return false;
	memcpy(text, host, len);
	text[len] = 0;
	if (tei_meta_split(text, name, &port) || !*name)
		return false;
	snprintf(kv->where, sizeof(kv->where), "%s", text);
	/* if conn has no path, the path in Mooncake's documentation is used */
	return (size_t)snprintf(h->url, sizeof(h->url), "%s%s", conn,
				*path && strcmp(path, "/") ? ""
				: *path			   ? "metadata"
					: "/metadata") < sizeof(h->url);
}

static int http_prepare(struct meta_kv *kv, struct http *h, const char *conn,
			struct tei_err *err)
{
	const struct tei_settings_store *set = &kv->settings->store;
	const struct meta_http_tls tls = {
		.ca_file = set->ca_file,
		.cert_file = set->cert_file,
		.key_file = set->key_file,
	};
	char shown[TEI_META_SHOWN], key[META_KV_KEY_MAX];
	unsigned char id[16];
	int i;

	if (!http_parse(kv, h, conn)) {
		tei_meta_conn_shown(conn, shown);
		return tei_err_fail(
			err, TEI_ERR_INVALID, "meta",
			"use http://host:8080/metadata",
			"metadata '%s': not the URL of a metadata server",
			shown);
	}
	if (tei_meta_rpc_key(set->cluster_id, "?", key, sizeof(h->prefix)) ||
	    !tei_random(id, sizeof(id)))
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "MC_METADATA_CLUSTER_ID is too long");
	/* removes "rpc_meta/?"; all keys have the part before it in common */
	*strstr(key, "rpc_meta/?") = 0;
	snprintf(h->prefix, sizeof(h->prefix), "%.511s", key);
	for (i = 0; i < 16; i++)
		snprintf(h->lease + 2 * i, 3, "%02x", id[i]);
	h->client = meta_http_new(&tls);
	return h->client ? 0 : http_memory(kv, err);
}

/* Finds out whether the server is te_meta serve, and sets h->plain. */
static int http_detect(struct meta_kv *kv, struct http *h, uint64_t deadline_ns,
		       struct tei_err *err)
{
	struct http_call c = { .method = "GET",
			       .query = "prefix=mooncake%2F&since=" HTTP_FUTURE,
			       .deadline_ns = deadline_ns };
	struct meta_kv_value v = { .version = META_ABSENT };
	struct http_keys k = { 0 };
	int rc = http_run(kv, &c, 400, 404, err);

	if (rc)
		return rc;
	h->plain = c.answer.status != 200 || !http_keys_parse(&c, &k);
	free(c.answer.body);
	http_keys_free(&k);
	if (!h->plain) {
		kv->caps = META_KV_LEASE | META_KV_LIST | META_KV_WATCH;
		return 0;
	}
	rc = http_plain_get(kv, "mooncake/", deadline_ns, &v, err);
	free(v.text);
	if (!rc)
		TEI_INFO("meta",
			 "HTTP server %s has neither leases nor reports of "
			 "changes; keys are read every MOONRAIL_STORE_POLL_MS, "
			 "%u ms",
			 kv->where, kv->settings->store.poll_ms);
	return rc;
}

static int http_open(struct meta_kv *kv, const char *conn, uint64_t deadline_ns,
		     struct tei_err *err)
{
	struct http *h = calloc(1, sizeof(*h));
	int rc;

	if (!h)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for the metadata store");
	kv->state = h;
	rc = http_prepare(kv, h, conn, err);
	if (!rc)
		rc = http_detect(kv, h, deadline_ns, err);
	if (rc)
		http_close(kv);
	return rc;
}

static const struct meta_kv_ops http_kv_ops = {
	.product = "HTTP server",
	.open = http_open,
	.close = http_close,
	.get = http_get,
	.commit = http_commit,
	.list = http_list,
	.renew = http_renew,
	.watch = http_watch,
	.interrupt = http_interrupt,
};

static int http_store_open(struct tei_meta_store *store, const char *conn,
			   struct tei_err *err)
{
	return meta_kv_open(store, &http_kv_ops, conn, err);
}

const struct meta_store_ops meta_http_ops = {
	.scheme = "http",
	.open = http_store_open,
	META_KV_STORE_OPS,
};
