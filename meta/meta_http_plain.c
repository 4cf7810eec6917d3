/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "meta/meta_http.h"
#include "util/clock.h"
#include "util/text.h"

/*
 * The HTTP driver for Mooncake's own servers, which support only GET, PUT and
 * DELETE of one key. The version of a key is a hash of its value. A commit is
 * not atomic: it reads the keys whose version it must compare, changes them one
 * after the other, and reads a changed rpc_meta again after a while. If two
 * processes take the same name at the same time, the one that wrote first
 * normally notices in this last step that it has lost the name. Otherwise its
 * keeper notices the loss, because it reads the keys of the process every
 * MOONRAIL_STORE_POLL_MS.
 *
 * Mooncake's Python and C++ servers refuse to replace a value under rpc_meta.
 * Therefore the driver deletes the old value first.
 */

/* Pause between writing rpc_meta and reading it again. */
#define PLAIN_SETTLE_NS (100 * TEI_NS_PER_MS)

static int64_t plain_version(const char *text)
{
	return (int64_t)(tei_text_hash(text) >> 1);
}

int http_plain_get(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
		   struct meta_kv_value *out, struct tei_err *err)
{
	char query[HTTP_TARGET_MAX];
	struct http_call c = { .method = "GET",
			       .query = query,
			       .deadline_ns = deadline_ns };
	int rc;

	http_key_query(key, query);
	rc = http_run(kv, &c, 404, 0, err);
	if (rc)
		return rc;
	if (c.answer.status == 404) {
		free(c.answer.body);
		return 0;
	}
	out->text = c.answer.body; /* the caller frees the text */
	out->len = c.answer.len;
	out->version = plain_version(out->text);
	return 0;
}

/* Writes one key. Returns META_CONFLICT if the server refuses to replace a
 * value. */
static int plain_put(struct meta_kv *kv, const struct meta_kv_change *c,
		     uint64_t deadline_ns, struct tei_err *err)
{
	char query[HTTP_TARGET_MAX];
	struct http_call call = { .method = "PUT",
				  .query = query,
				  .body = c->text,
				  .len = c->len,
				  .deadline_ns = deadline_ns };
	int rc;

	http_key_query(c->key, query);
	rc = http_run(kv, &call, strstr(c->key, "rpc_meta") ? 400 : 0, 0, err);
	if (rc)
		return rc;
	free(call.answer.body);
	return call.answer.status == 400 ? META_CONFLICT : 0;
}

static int plain_delete(struct meta_kv *kv, const char *key,
			uint64_t deadline_ns, struct tei_err *err)
{
	char query[HTTP_TARGET_MAX];
	struct http_call call = { .method = "DELETE",
				  .query = query,
				  .deadline_ns = deadline_ns };
	int rc;

	http_key_query(key, query);
	rc = http_run(kv, &call, 404, 0, err);
	if (!rc)
		free(call.answer.body);
	return rc;
}

static bool plain_same(const struct meta_kv_change *c,
		       const struct meta_kv_value *v)
{
	return v->text && v->len == c->len && !memcmp(v->text, c->text, c->len);
}

/* Waits a while and reads the key again. Returns META_CONFLICT if its value is
 * not the text of the change any longer. */
static int plain_verify(struct meta_kv *kv, const struct meta_kv_change *c,
			uint64_t deadline_ns, struct tei_err *err)
{
	const struct timespec pause = { .tv_nsec = (long)PLAIN_SETTLE_NS };
	struct meta_kv_value v = { .version = META_ABSENT };
	int rc;

	nanosleep(&pause, NULL);
	rc = http_plain_get(kv, c->key, deadline_ns, &v, err);
	if (!rc && !plain_same(c, &v))
		rc = META_CONFLICT;
	free(v.text);
	return rc;
}

/* Replaces the value of a key, whose present value is in *now. Does nothing if
 * the value is already right. */
static int plain_replace(struct meta_kv *kv, const struct meta_kv_change *c,
			 const struct meta_kv_value *now, uint64_t deadline_ns,
			 struct tei_err *err)
{
	int rc = 0;

	if (plain_same(c, now))
		return 0;
	if (now->text)
		rc = plain_delete(kv, c->key, deadline_ns, err);
	if (!rc)
		rc = plain_put(kv, c, deadline_ns, err);
	return rc ? rc : plain_verify(kv, c, deadline_ns, err);
}

/* Compares the version of the key with the expected one. If they are equal and
 * the change is a PUT, writes the key. */
static int plain_expect(struct meta_kv *kv, const struct meta_kv_change *c,
			uint64_t deadline_ns, struct tei_err *err)
{
	struct meta_kv_value now = { .version = META_ABSENT };
	int rc = http_plain_get(kv, c->key, deadline_ns, &now, err);

	if (!rc && now.version != c->expected)
		rc = META_CONFLICT;
	if (!rc && c->what == META_KV_PUT)
		rc = plain_replace(kv, c, &now, deadline_ns, err);
	free(now.text);
	return rc;
}

/*
 * Makes the changes of a commit. First compares and writes keys, in order. Then
 * removes keys, in the opposite order, so that rpc_meta, the record of the
 * owner, is removed last.
 */
int http_plain_commit(struct meta_kv *kv, struct meta_kv_change *changes,
		      size_t count, uint64_t deadline_ns, struct tei_err *err)
{
	struct meta_kv_change *c;
	size_t i;
	int rc = 0;

	for (i = 0; i < count && !rc; i++) {
		c = &changes[i];
		if (c->expected != META_KV_ANY)
			rc = plain_expect(kv, c, deadline_ns, err);
		else if (c->what == META_KV_PUT)
			rc = plain_put(kv, c, deadline_ns, err);
	}
	for (i = count; i-- > 0 && !rc;)
		if (changes[i].what == META_KV_REMOVE)
			rc = plain_delete(kv, changes[i].key, deadline_ns, err);
	for (i = 0; i < count && !rc; i++) {
		char *text;

		c = &changes[i];
		if (c->what != META_KV_PUT)
			continue;
		text = strndup(c->text, c->len);
		if (!text)
			return meta_kv_fail(kv, TEI_ERR_MEMORY, err, NULL,
					    "no memory for a value");
		c->version = plain_version(text);
		free(text);
	}
	return rc;
}
