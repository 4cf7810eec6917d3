/* SPDX-License-Identifier: BSD-2-Clause */
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_etcd_json.h"
#include "meta/meta_kv.h"

/* greatest nesting depth of the objects that the parser enters, such as
 * {"result":{"events":[{"kv":{}}]}} */
#define ETCD_NESTED 3

/* --- responses ----------------------------------------------------------- */

/* Reads a base64 string and decodes it. *out becomes a terminated text, which
 * the caller frees. */
static bool etcd_bytes(struct meta_json *j, char **out, size_t *len)
{
	struct base64_decode_ctx ctx;
	size_t n;

	if (!meta_json_string(j))
		return false;
	free(*out);
	n = BASE64_DECODE_LENGTH(j->text_len);
	*out = malloc(n + 1);
	if (!*out) {
		j->no_memory = true;
		return meta_json_fail(j, "no memory");
	}
	base64_decode_init(&ctx);
	if (!base64_decode_update(&ctx, &n, (uint8_t *)*out, j->text_len,
				  j->text) ||
	    !base64_decode_final(&ctx))
		return meta_json_fail(j, "no base64");
	(*out)[n] = 0;
	*len = n;
	return true;
}

static bool etcd_i64(struct meta_json *j, int64_t *out)
{
	uint64_t v;

	if (!meta_json_u64(j, &v))
		return false;
	if (v > INT64_MAX)
		return meta_json_fail(j, "number too large");
	*out = (int64_t)v;
	return true;
}

static bool etcd_bool(struct meta_json *j, bool *out)
{
	const char *text;
	size_t len;

	if (!meta_json_raw(j, &text, &len))
		return false;
	*out = len == 4 && !memcmp(text, "true", 4);
	return *out || (len == 5 && !memcmp(text, "false", 5)) ||
	       meta_json_fail(j, "no boolean");
}

static bool etcd_text(struct meta_json *j, char *out, size_t len)
{
	if (!meta_json_string(j))
		return false;
	snprintf(out, len, "%s", j->text);
	return true;
}

static bool etcd_pair_parse(struct meta_json *j, struct etcd_response *out)
{
	char *key = NULL, *value = NULL;
	struct etcd_pair p = { 0 };
	bool good = meta_json_object(j);

	while (good && meta_json_member(j)) {
		if (!strcmp(j->text, "key"))
			good = etcd_bytes(j, &key, &p.key_len);
		else if (!strcmp(j->text, "value"))
			good = etcd_bytes(j, &value, &p.value_len);
		else if (!strcmp(j->text, "mod_revision"))
			good = etcd_i64(j, &p.version);
		else
			good = meta_json_skip(j);
	}
	good = good && !j->why;
	p.key = key ? key : "";
	p.value = value ? value : "";
	if (good && out->pair && !out->pair(out->arg, &p))
		good = meta_json_fail(j, "refused");
	free(key);
	free(value);
	return good;
}

static bool etcd_header(struct meta_json *j, struct etcd_response *out)
{
	bool good = meta_json_object(j);

	while (good && meta_json_member(j))
		good = !strcmp(j->text, "revision")
			       ? etcd_i64(j, &out->revision)
			       : meta_json_skip(j);
	return good && !j->why;
}

static bool etcd_event(struct meta_json *j, struct etcd_response *out)
{
	bool good = meta_json_object(j);

	while (good && meta_json_member(j))
		good = !strcmp(j->text, "kv") ? etcd_pair_parse(j, out)
					      : meta_json_skip(j);
	return good && !j->why;
}

static bool etcd_array(struct meta_json *j, struct etcd_response *out,
		       bool (*one)(struct meta_json *, struct etcd_response *))
{
	bool good = meta_json_array(j);

	while (good && meta_json_element(j))
		good = one(j, out);
	return good && !j->why;
}

static bool etcd_members(struct meta_json *j, struct etcd_response *out,
			 int nested);

/* Reads the code of an error. It is in {"error":"text","code":5} or, in the
 * response to a watch, in {"error":{"grpc_code":5,"message":"text"}}. */
static bool etcd_code(struct meta_json *j, struct etcd_response *out)
{
	uint64_t code;

	if (!meta_json_u64(j, &code))
		return false;
	out->code = code && code < 1000 ? (int)code : 1000;
	return true;
}

static bool etcd_error(struct meta_json *j, struct etcd_response *out,
		       int nested)
{
	if (!out->code)
		out->code = 2; /* gRPC code "unknown"; a code that
				* follows in the text replaces it */
	return meta_json_peek(j) == '{'
		       ? etcd_members(j, out, nested + 1)
		       : etcd_text(j, out->message, sizeof(out->message));
}

static bool etcd_member(struct meta_json *j, struct etcd_response *out,
			int nested)
{
	const char *name = j->text;

	if (!strcmp(name, "header"))
		return etcd_header(j, out);
	if (!strcmp(name, "result"))
		return etcd_members(j, out, nested + 1);
	if (!strcmp(name, "error"))
		return etcd_error(j, out, nested);
	if (!strcmp(name, "code") || !strcmp(name, "grpc_code"))
		return etcd_code(j, out);
	if (!strcmp(name, "message") || !strcmp(name, "cancel_reason"))
		return etcd_text(j, out->message, sizeof(out->message));
	if (!strcmp(name, "token"))
		return etcd_text(j, out->token, sizeof(out->token));
	if (!strcmp(name, "kvs"))
		return etcd_array(j, out, etcd_pair_parse);
	if (!strcmp(name, "events"))
		return etcd_array(j, out, etcd_event);
	if (!strcmp(name, "ID"))
		return meta_json_u64(j, &out->lease);
	if (!strcmp(name, "TTL"))
		return etcd_i64(j, &out->ttl);
	if (!strcmp(name, "compact_revision"))
		return etcd_i64(j, &out->compacted);
	if (!strcmp(name, "succeeded"))
		return etcd_bool(j, &out->succeeded);
	if (!strcmp(name, "more"))
		return etcd_bool(j, &out->more);
	if (!strcmp(name, "created"))
		return etcd_bool(j, &out->created);
	if (!strcmp(name, "canceled"))
		return etcd_bool(j, &out->canceled);
	return meta_json_skip(j);
}

static bool etcd_members(struct meta_json *j, struct etcd_response *out,
			 int nested)
{
	bool good = nested < ETCD_NESTED ? meta_json_object(j)
					 : meta_json_fail(j, "too deep");

	while (good && meta_json_member(j))
		good = etcd_member(j, out, nested);
	return good && !j->why;
}

bool etcd_response_parse(const char *text, size_t len,
			 struct etcd_response *out)
{
	struct meta_json j;
	bool good;

	meta_json_init(&j, text, len);
	good = etcd_members(&j, out, 0) && meta_json_done(&j);
	meta_json_fini(&j);
	return good;
}

/* --- requests ------------------------------------------------------------ */

void etcd_put_bytes(struct meta_buf *b, const char *bytes, size_t len)
{
	char *text = malloc(BASE64_ENCODE_RAW_LENGTH(len) + 1);

	if (!text) {
		b->failed = true;
		return;
	}
	base64_encode_raw(text, len, (const uint8_t *)bytes);
	meta_buf_text(b, "\"");
	meta_buf_bytes(b, text, BASE64_ENCODE_RAW_LENGTH(len));
	meta_buf_text(b, "\"");
	free(text);
}

void etcd_put_range_end(struct meta_buf *b, const char *prefix)
{
	char end[META_KV_KEY_MAX];
	size_t n = strlen(prefix);

	if (n >= sizeof(end)) {
		b->failed = true;
		return;
	}
	memcpy(end, prefix, n + 1);
	while (n && (unsigned char)end[n - 1] == 255)
		n--;
	if (n)
		end[n - 1]++;
	etcd_put_bytes(b, end, n);
}

static void etcd_put_compare(struct meta_buf *b, const struct meta_kv_change *c)
{
	meta_buf_text(b, "{\"target\":\"MOD\",\"result\":\"EQUAL\",\"key\":");
	etcd_put_bytes(b, c->key, strlen(c->key));
	meta_buf_text(b, ",\"mod_revision\":\"");
	meta_buf_u64(b, c->expected == META_ABSENT ? 0 : (uint64_t)c->expected);
	meta_buf_text(b, "\"}");
}

static void etcd_put_change(struct meta_buf *b, const struct meta_kv_change *c,
			    uint64_t lease)
{
	bool put = c->what == META_KV_PUT;

	meta_buf_text(b, put ? "{\"request_put\":{\"key\":"
			     : "{\"request_delete_range\":{\"key\":");
	etcd_put_bytes(b, c->key, strlen(c->key));
	if (put) {
		meta_buf_text(b, ",\"value\":");
		etcd_put_bytes(b, c->text, c->len);
	}
	if (put && c->leased) {
		meta_buf_text(b, ",\"lease\":\"");
		meta_buf_u64(b, lease);
		meta_buf_text(b, "\"");
	}
	meta_buf_text(b, "}}");
}

void etcd_put_commit(struct meta_buf *b, const struct meta_kv_change *changes,
		     size_t count, uint64_t lease)
{
	const char *comma = "";
	size_t i;

	meta_buf_text(b, "{\"compare\":[");
	for (i = 0; i < count; i++) {
		if (changes[i].expected == META_KV_ANY)
			continue;
		meta_buf_text(b, comma);
		etcd_put_compare(b, &changes[i]);
		comma = ",";
	}
	meta_buf_text(b, "],\"success\":[");
	comma = "";
	for (i = 0; i < count; i++) {
		if (changes[i].what == META_KV_CHECK)
			continue;
		meta_buf_text(b, comma);
		etcd_put_change(b, &changes[i], lease);
		comma = ",";
	}
	meta_buf_text(b, "]}");
}
