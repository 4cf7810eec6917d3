/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "meta/meta_etcd.h"
#include "meta/tei_meta_name.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/log.h"
#include "util/settings.h"

/*
 * The watch of the etcd driver. A watch is an HTTP request whose response does
 * not end; each line of the response is a JSON text. If a watch breaks, the
 * next one, possibly at another endpoint, starts with the revision after the
 * last one that was reported, so that no change is missed. If the server no
 * longer has that revision, the next watch starts with the current revision,
 * and the core reads all keys.
 */

#define WATCH_LINE_MAX	(16u << 20)
#define WATCH_STREAM_NS (24 * 3600 * TEI_NS_PER_SEC)
/* number of consecutive restarts at which the watcher pauses */
#define WATCH_RESTARTS 3
/* duration below which a watch counts as failed */
#define WATCH_SHORT_NS TEI_NS_PER_SEC

/* A watch in progress. Used by the watcher thread only. */
struct etcd_watch {
	struct meta_kv *kv;
	int endpoint;
	int64_t next;		/* first revision that the watch is to report;
				 * 0: the current one */
	bool resumed;		/* meta_kv_watching was called, and no revision
				 * was missed since */
	bool created;		/* the server has confirmed the watch */
	bool restart;		/* the next watch must start with the current
				 * revision */
	int restarts;		/* number of consecutive restarts */
	uint64_t created_by_ns; /* time by which the server must have confirmed
				 * the watch */
	struct meta_buf line;	/* beginning of a line that is not complete
				 * yet */
	char token[ETCD_TOKEN_MAX];
};

static bool watch_pair(void *arg, const struct etcd_pair *pair)
{
	struct etcd_watch *w = arg;

	if (strlen(pair->key) == pair->key_len)
		meta_kv_changed(w->kv, pair->key);
	if (pair->version > w->next)
		w->next = pair->version;
	return true;
}

/* Handles the line with which the server confirms the watch. Returns false if
 * the watch must end. */
static bool watch_created(struct etcd_watch *w, const struct etcd_response *r)
{
	if (w->resumed && r->revision + 1 < w->next) {
		w->restart = true; /* the server has lost its data */
		return false;
	}
	w->created = true;
	if (!w->resumed) {
		w->next = r->revision + 1;
		meta_kv_watching(w->kv);
	}
	w->resumed = true;
	return true;
}

/* Handles a line in which the server ends the watch. */
static void watch_canceled(struct etcd_watch *w, const struct etcd_response *r)
{
	struct etcd *e = w->kv->state;
	struct tei_err err;

	if (r->compacted) {
		w->restart = true;
		return;
	}
	if (r->code) /* an error code means that the server cannot serve any
		      * watch */
		etcd_leave(e, w->endpoint);
	else
		w->created = false;
	if (etcd_token_refused(r) && etcd_token_forget(e, w->token))
		return;
	meta_kv_fail(w->kv, TEI_ERR_METADATA, &err, NULL, "watch: %s",
		     r->message);
}

static bool watch_line(struct etcd_watch *w, const char *text, size_t len)
{
	struct etcd_response r = { .pair = watch_pair, .arg = w };
	struct tei_err err;

	if (!etcd_response_parse(text, len, &r)) {
		w->created = false;
		meta_kv_fail(w->kv, TEI_ERR_METADATA, &err, NULL,
			     "watch: malformed report");
		return false;
	}
	if (r.code || r.canceled) {
		watch_canceled(w, &r);
		return false;
	}
	if (r.created)
		return watch_created(w, &r);
	/* a line without changes says that the server has reported all changes
	 * up to the revision in the line */
	if (w->created && r.revision >= w->next)
		w->next = r.revision;
	return true;
}

static bool watch_piece(void *arg, const char *bytes, size_t len)
{
	struct etcd_watch *w = arg;
	const char *end;
	bool good = true;

	while (good && (end = memchr(bytes, '\n', len))) {
		meta_buf_bytes(&w->line, bytes, (size_t)(end - bytes));
		len -= (size_t)(end + 1 - bytes);
		bytes = end + 1;
		good = !w->line.failed;
		if (good && w->line.len)
			good = watch_line(w, w->line.text, w->line.len);
		w->line.len = 0;
	}
	if (good)
		meta_buf_bytes(&w->line, bytes, len);
	if (w->line.len > WATCH_LINE_MAX || w->line.failed) {
		w->restart = true;
		good = false;
	}
	return good;
}

static bool watch_idle(void *arg)
{
	struct etcd_watch *w = arg;
	struct etcd *e = w->kv->state;

	if (!w->created && !tei_ns_left(w->created_by_ns)) {
		etcd_leave(e, w->endpoint);
		return false;
	}
	return etcd_current(e) == w->endpoint && !meta_kv_stopping(w->kv);
}

/* Appends the JSON text of a request to watch all keys of the cluster. Returns
 * false if it cannot be made. */
static bool watch_request(struct etcd_watch *w, struct meta_buf *b)
{
	char prefix[META_KV_KEY_MAX];

	if (tei_meta_rpc_key(w->kv->settings->store.cluster_id, "x", prefix,
			     sizeof(prefix)))
		return false;
	prefix[strlen(prefix) - strlen("rpc_meta/x")] = 0;
	meta_buf_text(b, "{\"create_request\":{\"progress_notify\":true,"
			 "\"start_revision\":\"");
	meta_buf_u64(b, (uint64_t)w->next);
	meta_buf_text(b, "\",\"key\":");
	etcd_put_bytes(b, prefix, strlen(prefix));
	meta_buf_text(b, ",\"range_end\":");
	etcd_put_range_end(b, prefix);
	meta_buf_text(b, "}}");
	return !b->failed;
}

/* Runs the watch until it ends. Returns the result of the HTTP request. */
static int watch_stream(struct etcd_watch *w, const struct meta_buf *body,
			struct meta_http_response *got)
{
	struct etcd *e = w->kv->state;
	/* "Hasleader" makes a server that has lost the connection to its
	 * cluster end the watch */
	const char *headers[] = { "Content-Type: application/json",
				  "Grpc-Metadata-Hasleader: true",
				  *w->token ? w->token : NULL, NULL };
	char url[ETCD_URL_MAX];
	const struct meta_http_request r = {
		.method = "POST",
		.url = url,
		.headers = headers,
		.body = body->text,
		.body_len = body->len,
		.limit = ETCD_SMALL,
		.deadline_ns = tei_now_ns() + WATCH_STREAM_NS,
		.connect_ns = kv_deadline(w->kv) - tei_now_ns(),
		.piece = watch_piece,
		.idle = watch_idle,
		.arg = w,
	};

	etcd_url(e, w->endpoint, "/watch", url);
	return meta_http_run(e->http, &r, got);
}

/* Handles a response to a watch request whose HTTP status is not 200. */
static void watch_refused(struct etcd_watch *w,
			  const struct meta_http_response *got)
{
	struct etcd_response r = { 0 };

	if (!etcd_response_parse(got->body, got->len, &r))
		r.code = 0;
	if (etcd_token_refused(&r))
		etcd_token_forget(w->kv->state, w->token);
	else
		etcd_leave(w->kv->state, w->endpoint);
}

/* Runs one watch. Returns true if the next watch may start at once, without a
 * pause. */
static bool watch_once(struct etcd_watch *w)
{
	struct etcd *e = w->kv->state;
	uint64_t start = tei_now_ns();
	struct meta_http_response got = { 0 };
	struct meta_buf body = { 0 };
	char why[ETCD_MESSAGE];
	bool lasted;
	int rc;

	w->endpoint = etcd_current(e);
	w->created = w->restart = false;
	w->created_by_ns = kv_deadline(w->kv);
	w->line.len = 0;
	if (!watch_request(w, &body) ||
	    etcd_token(e, w->endpoint, w->created_by_ns, w->token, why)) {
		free(body.text);
		return false;
	}
	rc = watch_stream(w, &body, &got);
	free(body.text);
	if (!rc && got.status != 200)
		watch_refused(w, &got);
	else if (rc && rc != TEI_ERR_CANCELED)
		etcd_leave(e, w->endpoint);
	free(got.body);
	lasted = tei_now_ns() - start > WATCH_SHORT_NS;
	w->restarts = lasted ? 0 : w->restarts + w->restart;
	if (w->restart) {
		TEI_INFO("meta",
			 "etcd %s: changes since revision %lld are not "
			 "available; "
			 "reading all keys again",
			 w->kv->where, (long long)w->next);
		w->next = 0;
		w->resumed = false;
		return w->restarts < WATCH_RESTARTS;
	}
	return w->created && (lasted || etcd_current(e) != w->endpoint);
}

void etcd_watch(struct meta_kv *kv)
{
	struct etcd_watch w = { .kv = kv };

	while (watch_once(&w) && !meta_kv_stopping(kv))
		;
	free(w.line.text);
}
