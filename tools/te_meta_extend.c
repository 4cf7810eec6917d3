/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/te_meta_serve.h"

/* Handles the requests that Mooncake's protocol does not have: conditional
 * changes of several keys, leases, listings and watches. docs/PROTOCOL.md
 * describes them. */

/* Returns the number in a parameter of the URL. Returns "otherwise" if the
 * parameter is missing or is not a number. */
static uint64_t extend_number(const struct serve_request *r, const char *name,
			      uint64_t otherwise)
{
	const char *text = serve_argument(r, name);
	unsigned long long n;
	char *end;

	if (!text || *text < '0' || *text > '9')
		return otherwise;
	n = strtoull(text, &end, 10);
	return *end ? otherwise : n;
}

static bool extend_lease_fits(const char *lease, uint64_t ttl_ms)
{
	size_t len = strlen(lease);

	return len && len <= TABLE_LEASE_MAX && ttl_ms >= SERVE_LEASE_MIN_MS &&
	       ttl_ms <= SERVE_LEASE_MAX_MS;
}

enum MHD_Result serve_renew(struct serve_request *r)
{
	const char *lease = serve_argument(r, "renew");
	uint64_t ttl = extend_number(r, "ttl", 0);

	if (!extend_lease_fits(lease, ttl))
		return serve_answer(r, MHD_HTTP_BAD_REQUEST,
				    "lease: a name of 1 to 64 bytes and a ttl "
				    "of 100 to 3600000 ms are required");
	if (!table_renew(r->serve->table, lease, ttl * TEI_NS_PER_MS))
		return serve_answer(r, MHD_HTTP_NOT_FOUND, "lease not found");
	return serve_answer(r, MHD_HTTP_OK, "lease renewed");
}

/* --- commits ------------------------------------------------------------- */

struct extend_commit {
	char lease[TABLE_LEASE_MAX + 1];
	uint64_t ttl_ms;
	bool leased; /* true if at least one change has the member "leased" */
	size_t count;
	struct table_change changes[SERVE_CHANGES_MAX];
};

static bool extend_bool(struct meta_json *j)
{
	const char *text;
	size_t len;

	return meta_json_raw(j, &text, &len) && len == 4 &&
	       !memcmp(text, "true", 4);
}

/* Moves the string that was read last to *out. Fails if *out already has a
 * string, because the member then occurs twice. */
static void extend_take(struct meta_json *j, char **out, size_t *len)
{
	if (*out) {
		meta_json_fail(j, "a member occurs twice");
		return;
	}
	*len = j->text_len;
	*out = malloc(*len + 1);
	if (*out)
		memcpy(*out, j->text, *len + 1);
	else
		meta_json_fail(j, "no memory");
}

static void extend_key(struct meta_json *j, struct table_change *c)
{
	char key[SERVE_KEY_MAX + 1], *copy = NULL;
	const char *why;
	size_t len;

	why = serve_key(j->text, j->text_len, key);
	if (why || c->key) {
		meta_json_fail(j, why ? why : "a member occurs twice");
		return;
	}
	extend_take(j, &copy, &len);
	c->key = copy;
}

static void extend_member(struct meta_json *j, struct table_change *c)
{
	uint64_t version;

	if (!strcmp(j->text, "key")) {
		if (meta_json_string(j))
			extend_key(j, c);
	} else if (!strcmp(j->text, "version")) {
		if (meta_json_u64(j, &version))
			c->expected = version ? (int64_t)(version & INT64_MAX)
					      : TABLE_ABSENT;
	} else if (!strcmp(j->text, "put")) {
		c->what = TABLE_PUT;
		if (meta_json_string(j))
			extend_take(j, &c->text, &c->len);
	} else if (!strcmp(j->text, "remove")) {
		if (extend_bool(j) && c->what == TABLE_CHECK)
			c->what = TABLE_REMOVE;
	} else if (!strcmp(j->text, "leased")) {
		c->leased = extend_bool(j);
	} else {
		meta_json_skip(j);
	}
}

static void extend_change(struct meta_json *j, struct extend_commit *x)
{
	struct table_change *c = &x->changes[x->count];

	if (x->count == SERVE_CHANGES_MAX) {
		meta_json_fail(j, "too many changes (at most 64)");
		return;
	}
	x->count++;
	c->expected = TABLE_ANY;
	c->what = TABLE_CHECK;
	if (!meta_json_object(j))
		return;
	while (meta_json_member(j))
		extend_member(j, c);
	x->leased = x->leased || (c->leased && c->what == TABLE_PUT);
	if (!j->why && !c->key)
		meta_json_fail(j, "a change has no key");
}

/* Parses the JSON text of a commit, a request that changes several keys, either
 * all of them or none. If the text is not a valid commit, returns false and
 * sets j->why to the reason. */
static bool extend_parse(struct meta_json *j, struct extend_commit *x)
{
	meta_json_object(j);
	while (meta_json_member(j)) {
		if (!strcmp(j->text, "lease")) {
			if (meta_json_string(j))
				snprintf(x->lease, sizeof(x->lease), "%s",
					 j->text);
		} else if (!strcmp(j->text, "ttl")) {
			meta_json_u64(j, &x->ttl_ms);
		} else if (!strcmp(j->text, "changes") && meta_json_array(j)) {
			while (meta_json_element(j))
				extend_change(j, x);
		} else {
			meta_json_skip(j);
		}
	}
	if (!j->why && !meta_json_done(j))
		meta_json_fail(j, "text after the value");
	if (!j->why && !x->count)
		meta_json_fail(j, "no changes");
	if (!j->why && x->leased && !extend_lease_fits(x->lease, x->ttl_ms))
		meta_json_fail(j, "a lease needs a name of 1 to 64 bytes and "
				  "a ttl of 100 to 3600000 ms");
	return !j->why;
}

static enum MHD_Result extend_committed(struct serve_request *r,
					const struct extend_commit *x)
{
	struct meta_buf b = { 0 };
	size_t i;

	meta_buf_text(&b, "{\"versions\":[");
	for (i = 0; i < x->count; i++) {
		meta_buf_text(&b, i ? "," : "");
		meta_buf_u64(&b, (uint64_t)x->changes[i].version);
	}
	meta_buf_text(&b, "]}");
	if (!b.failed)
		return serve_answer_text(r, MHD_HTTP_OK, b.text, b.len);
	free(b.text);
	return MHD_NO;
}

static enum MHD_Result extend_commit_run(struct serve_request *r,
					 struct extend_commit *x)
{
	switch (table_commit(r->serve->table, x->changes, x->count,
			     x->leased ? x->lease : NULL,
			     x->ttl_ms * TEI_NS_PER_MS)) {
	case TABLE_DONE:
		return extend_committed(r, x);
	case TABLE_CONFLICT:
		return serve_answer(r, MHD_HTTP_CONFLICT,
				    "metadata has another version");
	default:
		return serve_answer(r, MHD_HTTP_INSUFFICIENT_STORAGE,
				    "metadata store is full");
	}
}

enum MHD_Result serve_commit(struct serve_request *r)
{
	struct extend_commit *x = calloc(1, sizeof(*x));
	enum MHD_Result result;
	struct meta_json j;
	char why[160];
	size_t i;

	if (!x)
		return MHD_NO;
	meta_json_init(&j, r->body ? r->body : "", r->len);
	if (extend_parse(&j, x)) {
		result = extend_commit_run(r, x);
	} else {
		snprintf(why, sizeof(why), "metadata commit: %s", j.why);
		result = serve_answer(r, MHD_HTTP_BAD_REQUEST, why);
	}
	meta_json_fini(&j);
	for (i = 0; i < x->count; i++) {
		free((char *)(uintptr_t)x->changes[i].key);
		free(x->changes[i].text);
	}
	free(x);
	return result;
}

/* --- listings and watches ------------------------------------------------ */

/* The keys of one answer to a listing or a watch. */
struct extend_list {
	struct meta_buf set, removed;
	size_t count;
	bool more;
	int64_t version; /* version of the last change that is included in the
			  * answer */
};

static void extend_list_add(struct extend_list *l, const struct table_key *k)
{
	struct meta_buf *b = k->text ? &l->set : &l->removed;

	meta_buf_text(b, b->len ? "," : "");
	meta_buf_string(b, k->key);
	l->count++;
	l->version = k->version;
}

/* Collects the keys that were changed or removed after the version r->since. If
 * r->since is 0, collects all existing keys. */
static void extend_collect(const struct serve_request *r, struct extend_list *l)
{
	const struct table *t = r->serve->table;
	const struct table_key *k;
	size_t n = strlen(r->key);

	for (k = table_first(t, r->since); k; k = table_next(t, k)) {
		if (strncmp(k->key, r->key, n) != 0 || (!r->since && !k->text))
			continue;
		if (l->count == r->limit) {
			l->more = true;
			return;
		}
		extend_list_add(l, k);
	}
	l->version = table_version(t);
}

static enum MHD_Result extend_list_answer(struct serve_request *r, bool reset,
					  struct extend_list *l)
{
	struct meta_buf b = { 0 };

	meta_buf_text(&b, "{\"version\":");
	meta_buf_u64(&b, (uint64_t)l->version);
	meta_buf_text(&b, reset ? ",\"reset\":true" : ",\"reset\":false");
	meta_buf_text(&b, l->more ? ",\"more\":true" : ",\"more\":false");
	meta_buf_text(&b, ",\"set\":[");
	meta_buf_bytes(&b, l->set.text ? l->set.text : "", l->set.len);
	meta_buf_text(&b, "],\"removed\":[");
	meta_buf_bytes(&b, l->removed.text ? l->removed.text : "",
		       l->removed.len);
	meta_buf_text(&b, "]}");
	b.failed = b.failed || l->set.failed || l->removed.failed;
	free(l->set.text);
	free(l->removed.text);
	if (!b.failed)
		return serve_answer_text(r, MHD_HTTP_OK, b.text, b.len);
	free(b.text);
	return MHD_NO;
}

/* Returns true if a key with the prefix was changed after the version r->since.
 * If none was, increases r->since, so that the next call does not examine the
 * same changes again. */
static bool extend_due(struct serve_request *r)
{
	const struct table *t = r->serve->table;
	const struct table_key *k;
	size_t n = strlen(r->key);

	for (k = table_first(t, r->since); k; k = table_next(t, k))
		if (!strncmp(k->key, r->key, n))
			return true;
	r->since = table_version(t);
	return false;
}

static bool extend_watch_begin(struct serve_request *r, const char *prefix)
{
	uint64_t wait = extend_number(r, "wait", 0);

	if (strlen(prefix) > SERVE_KEY_MAX)
		return false;
	snprintf(r->key, sizeof(r->key), "%s", prefix);
	r->since = (int64_t)(extend_number(r, "since", 0) & INT64_MAX);
	r->limit = extend_number(r, "limit", SERVE_PAGE_MAX);
	if (!r->limit || r->limit > SERVE_PAGE_MAX)
		r->limit = SERVE_PAGE_MAX;
	if (wait > SERVE_WAIT_MAX_MS)
		wait = SERVE_WAIT_MAX_MS;
	r->until_ns = tei_now_ns() + wait * TEI_NS_PER_MS;
	r->watching = true;
	return true;
}

enum MHD_Result serve_watch(struct serve_request *r, const char *prefix)
{
	struct serve *s = r->serve;
	struct extend_list l = { .version = table_version(s->table) };

	if (!r->watching && !extend_watch_begin(r, prefix))
		return serve_answer(r, MHD_HTTP_BAD_REQUEST,
				    "prefix is too long");
	if (r->since && table_forgot(s->table, r->since))
		return extend_list_answer(r, true, &l);
	if (r->since && !extend_due(r) && !s->stopping &&
	    tei_ns_left(r->until_ns)) {
		tei_list_add_tail(&s->watches, &r->link);
		serve_suspend(r);
		return MHD_YES;
	}
	extend_collect(r, &l);
	return extend_list_answer(r, false, &l);
}

void serve_watches_run(struct serve *s)
{
	struct serve_request *r, *tmp;

	tei_list_foreach_safe (r, tmp, &s->watches, struct serve_request, link)
		if (s->stopping || !tei_ns_left(r->until_ns) || extend_due(r)) {
			tei_list_del(&r->link);
			serve_resume(r);
		}
}
