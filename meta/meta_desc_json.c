/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "meta/meta_int.h"
#include "meta/meta_json.h"
#include "meta/tei_meta_desc.h"
#include "util/err.h"

/*
 * Encodes descriptors as JSON text and decodes them.
 *
 * Numbers: 64-bit values are integer literals, which are written and read
 * exactly and never as doubles. The decoder also accepts a string of digits,
 * for stores and tools whose JSON library rounds numbers above 2^53.
 *
 * The decoder makes one pass over the text and fills the descriptor on the way.
 * A malicious text therefore needs at most as much memory as a valid descriptor
 * of the same length. Fields may have any order; whether each buffer has a key
 * for each rail is checked at the end.
 *
 * Mooncake processes may use the same store, and their decoder requires some
 * fields that this library does not use. The encoder sets these fields to
 * values with which a Mooncake process can decode the descriptor and then fails
 * when it connects.
 */

/* text that stands for a missing GID, because Mooncake refuses an empty text */
#define JSON_NO_GID "00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00"
/* value of "tcp_proto_version" that Mooncake expects */
#define JSON_TCP_PROTO 2

/* --- encode -------------------------------------------------------------- */

static void json_field(struct meta_buf *b, const char *key)
{
	char last = b->len ? b->text[b->len - 1] : '{';

	if (b->failed)
		return;
	if (last != '{' && last != '[')
		meta_buf_bytes(b, ",", 1);
	meta_buf_string(b, key);
	meta_buf_bytes(b, ":", 1);
}

static void json_field_u64(struct meta_buf *b, const char *key, uint64_t v)
{
	json_field(b, key);
	meta_buf_u64(b, v);
}

static void json_field_text(struct meta_buf *b, const char *key,
			    const char *text)
{
	json_field(b, key);
	meta_buf_string(b, text);
}

static void json_put_address(struct meta_buf *b,
			     const struct tei_meta_address *a)
{
	json_field_u64(b, "addr_format", a->format);
	json_field(b, "address");
	meta_buf_hex(b, a->bytes, a->len);
}

/* Writes the present time as Mooncake writes it: local time, with
 * microseconds. */
static void json_put_time(struct meta_buf *b)
{
	struct timespec now;
	char text[40], all[48];
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &now);
	if (!localtime_r(&now.tv_sec, &tm) ||
	    !strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm))
		return;
	snprintf(all, sizeof(all), "%s.%06d", text, (int)(now.tv_nsec / 1000));
	json_field_text(b, "timestamp", all);
}

static void json_put_head(struct meta_buf *b, const struct tei_meta_desc *d,
			  bool serial)
{
	json_field_text(b, "name", d->name);
	json_field_text(b, "server_name", d->name);
	json_field_text(b, "protocol", d->protocol);
	if (d->version)
		json_field_u64(b, "version", d->version);
	if (d->incarnation)
		json_field_u64(b, "incarnation", d->incarnation);
	if (serial && d->serial)
		json_field_u64(b, "serial", d->serial);
	if (d->incarnation && !d->file_count) {
		/* Mooncake requires this member; port 0 makes its attempt to
		 * connect fail */
		json_field_u64(b, "tcp_data_port", 0);
		json_field_u64(b, "tcp_proto_version", JSON_TCP_PROTO);
		if (serial)
			json_put_time(b);
	}
	if (d->first.provider[0]) {
		json_field(b, "first");
		meta_buf_text(b, "{");
		json_field_text(b, "provider", d->first.provider);
		json_put_address(b, &d->first.address);
		meta_buf_text(b, "}");
	}
	if (d->local[0])
		json_field_text(b, "local", d->local);
}

static void json_put_rail(struct meta_buf *b, const struct tei_meta_desc *d,
			  const struct tei_meta_rail *r)
{
	bool rdma = !strcmp(d->protocol, "rdma");

	meta_buf_text(b, "{");
	json_field_text(b, "name", r->name);
	json_field_u64(b, "lid", r->lid);
	json_field_text(b, "gid", *r->gid || !rdma ? r->gid : JSON_NO_GID);
	json_field_text(b, "provider", r->provider);
	json_field_u64(b, "mr_mode", r->mr_mode);
	json_put_address(b, &r->address);
	meta_buf_text(b, "}");
}

static void json_put_buffer(struct meta_buf *b, const struct tei_meta_desc *d,
			    const struct tei_meta_buffer *buffer)
{
	uint32_t i;

	meta_buf_text(b, "{");
	json_field_text(b, "name", buffer->location);
	json_field_u64(b, "addr", buffer->addr);
	json_field_u64(b, "length", buffer->length);
	json_field(b, "rkey");
	for (i = 0; i < d->rail_count; i++) {
		meta_buf_bytes(b, i ? "," : "[", 1);
		meta_buf_u64(b, buffer->rkey[i]);
	}
	meta_buf_text(b, i ? "]" : "[]");
	json_field(b, "lkey"); /* Mooncake requires that "lkey" has as many
				* elements as "rkey" */
	for (i = 0; i < d->rail_count; i++)
		meta_buf_text(b, i ? ",0" : "[0");
	meta_buf_text(b, i ? "]" : "[]");
	if (buffer->raw) {
		json_field(b, "raw_key");
		for (i = 0; i < d->rail_count; i++) {
			meta_buf_bytes(b, i ? "," : "[", 1);
			meta_buf_hex(b, buffer->raw[i].bytes,
				     buffer->raw[i].len);
		}
		meta_buf_text(b, i ? "]" : "[]");
	}
	meta_buf_text(b, "}");
}

static void json_put_file(struct meta_buf *b, const struct tei_meta_file *f)
{
	uint32_t i;

	meta_buf_text(b, "{");
	json_field_text(b, "file_path", f->path);
	json_field_u64(b, "length", f->length);
	json_field(b, "local_path_map");
	meta_buf_text(b, "{");
	for (i = 0; i < f->local_count; i++)
		json_field_text(b, f->local[i].server, f->local[i].path);
	meta_buf_text(b, "}}");
}

static void json_put_label(struct meta_buf *b, const struct tei_meta_label *l)
{
	meta_buf_text(b, "{");
	json_field_text(b, "label", l->text);
	json_field_u64(b, "addr", l->addr);
	json_field_u64(b, "length", l->length);
	if (l->nested)
		json_field_u64(b, "nested", 1);
	meta_buf_text(b, "}");
}

static void json_put_lists(struct meta_buf *b, const struct tei_meta_desc *d)
{
	uint32_t i;

	json_field(b, "devices");
	meta_buf_text(b, "[");
	for (i = 0; i < d->rail_count; i++) {
		meta_buf_text(b, i ? "," : "");
		json_put_rail(b, d, &d->rails[i]);
	}
	meta_buf_text(b, "]");
	if (d->priority_matrix) {
		json_field(b, "priority_matrix");
		meta_buf_text(b, d->priority_matrix);
	}
	json_field(b, "buffers");
	meta_buf_text(b, "[");
	for (i = 0; i < d->buffer_count; i++) {
		meta_buf_text(b, i ? "," : "");
		json_put_buffer(b, d, &d->buffers[i]);
	}
	for (i = 0; i < d->file_count; i++) {
		meta_buf_text(b, i ? "," : "");
		json_put_file(b, &d->files[i]);
	}
	meta_buf_text(b, "]");
	if (!d->label_count)
		return;
	json_field(b, "labels");
	meta_buf_text(b, "[");
	for (i = 0; i < d->label_count; i++) {
		meta_buf_text(b, i ? "," : "");
		json_put_label(b, &d->labels[i]);
	}
	meta_buf_text(b, "]");
}

int meta_desc_encode(const struct tei_meta_desc *desc, bool serial,
		     char **json, size_t *len, struct tei_err *err)
{
	struct meta_buf b = { 0 };

	meta_buf_text(&b, "{");
	json_put_head(&b, desc, serial);
	json_put_lists(&b, desc);
	meta_buf_text(&b, "}");
	if (b.failed) {
		free(b.text);
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "segment %.64s: no memory for the descriptor",
				    desc->name);
	}
	if (b.len > TEI_META_TEXT_MAX) {
		free(b.text);
		return tei_err_fail(err, TEI_ERR_TOO_MANY, "meta",
				    "register fewer, larger buffers",
				    "segment %.64s: descriptor of %zu bytes (at most %u)",
				    desc->name, b.len, TEI_META_TEXT_MAX);
	}
	*json = b.text;
	*len = b.len;
	return 0;
}

int tei_meta_desc_encode(const struct tei_meta_desc *desc, char **json,
			 size_t *len, struct tei_err *err)
{
	return meta_desc_encode(desc, true, json, len, err);
}

/* --- decode -------------------------------------------------------------- */

/* State of one call of meta_desc_decode_as. */
struct json_decoder {
	struct meta_json j;
	struct meta_desc *d;
	int code; /* code of the first error that is not an error of JSON
		   * syntax, or 0 */
	const char *why;
	char *name, *server_name, *protocol;
	const char *asked; /* name of the requested segment, for error texts */
	bool have_keys;
	uint32_t key_count; /* number of keys of each buffer; valid
			     * if have_keys is true */
	/* members of the element that is being decoded */
	struct tei_meta_rail rail;
	struct tei_meta_first first;
	char identity[TEI_META_LOCAL_MAX];
	struct tei_meta_buffer buffer;
	struct tei_meta_file file;
	struct tei_meta_label label;
	struct tei_meta_address *address; /* the struct in which the next
					   * "address" and "addr_format" are
					   * stored */
	char *location, *path, *label_text;
	size_t location_room, path_room, label_room;
	uint64_t rkeys[TEI_META_RAILS_MAX];
	struct tei_meta_key raw[TEI_META_RAILS_MAX];
	uint32_t rkey_count, raw_count;
	bool have_raw;
	struct tei_meta_file_path *local;
	uint32_t local_room;
};

typedef bool (*json_parse_fn)(struct json_decoder *t);

struct json_known {
	const char *key;
	json_parse_fn parse;
};

#define JSON_KNOWN(table) (table), sizeof(table) / sizeof((table)[0])

/* Records an error in the content of the text, if it is the first one. Returns
 * false. */
static bool json_refuse(struct json_decoder *t, int code, const char *why)
{
	if (!t->code) {
		t->code = code == TEI_ERR_MEMORY ? code : TEI_ERR_REJECTED;
		t->why = why;
	}
	return meta_json_fail(&t->j, why);
}

/* Returns true if code, the result of a function that fills the descriptor, is
 * 0. Otherwise records the error *why and returns false. */
static bool json_taken(struct json_decoder *t, int code, const char **why)
{
	return code ? json_refuse(t, code, *why) : true;
}

/*
 * Parses an object. Calls the function in the table "known" for each of its
 * members, and skips members that are not in the table. A known member that
 * occurs twice is an error.
 */
static bool json_known_object(struct json_decoder *t,
			      const struct json_known *known, size_t count)
{
	uint32_t seen = 0;
	size_t i;

	if (!meta_json_object(&t->j))
		return false;
	while (meta_json_member(&t->j)) {
		for (i = 0; i < count; i++)
			if (!strcmp(t->j.text, known[i].key))
				break;
		if (i == count) {
			if (!meta_json_skip(&t->j))
				return false;
			continue;
		}
		if (seen & 1u << i)
			return meta_json_fail(&t->j, "repeated field");
		seen |= 1u << i;
		if (!known[i].parse(t))
			return false;
	}
	return !t->j.why;
}

static bool json_u32(struct json_decoder *t, uint32_t *out)
{
	uint64_t v;

	if (!meta_json_u64(&t->j, &v))
		return false;
	if (v > UINT32_MAX)
		return meta_json_fail(&t->j, "number beyond 32 bits");
	*out = (uint32_t)v;
	return true;
}

static bool json_fixed(struct json_decoder *t, char *out, size_t size)
{
	if (!meta_json_string(&t->j))
		return false;
	if (t->j.text_len >= size)
		return json_refuse(t, TEI_ERR_INVALID, "text too long");
	memcpy(out, t->j.text, t->j.text_len + 1);
	return true;
}

static bool json_persistent(struct json_decoder *t, char **out)
{
	if (!meta_json_string(&t->j))
		return false;
	*out = meta_desc_copy(t->d, t->j.text, t->j.text_len);
	return *out || json_refuse(t, TEI_ERR_MEMORY, "no memory");
}

/* Reads a string into *out, which is enlarged if necessary and reused for the
 * next element. *room is the size of *out. */
static bool json_reused(struct json_decoder *t, char **out, size_t *room)
{
	char *p;

	if (!meta_json_string(&t->j))
		return false;
	if (t->j.text_len >= *room) {
		p = realloc(*out, t->j.text_len + 64);
		if (!p)
			return json_refuse(t, TEI_ERR_MEMORY, "no memory");
		*out = p;
		*room = t->j.text_len + 64;
	}
	memcpy(*out, t->j.text, t->j.text_len + 1);
	return true;
}

static bool json_address(struct json_decoder *t)
{
	if (!meta_json_string(&t->j))
		return false;
	if (!meta_hex_parse(t->j.text, t->address->bytes,
			    TEI_META_ADDRESS_MAX, &t->address->len))
		return json_refuse(t, TEI_ERR_INVALID, "bad address");
	return true;
}

static bool json_format(struct json_decoder *t)
{
	return json_u32(t, &t->address->format);
}

/* The following functions read the members of "first", the contact address. */

static bool json_first_provider(struct json_decoder *t)
{
	return json_fixed(t, t->first.provider, sizeof(t->first.provider));
}

static bool json_first(struct json_decoder *t)
{
	static const struct json_known known[] = {
		{ "addr_format", json_format },
		{ "address", json_address },
		{ "provider", json_first_provider },
	};
	const char *why = NULL;

	t->address = &t->first.address;
	if (!json_known_object(t, JSON_KNOWN(known)))
		return false;
	return json_taken(t, meta_desc_first(t->d, &t->first, &why), &why);
}

static bool json_local(struct json_decoder *t)
{
	const char *why = NULL;

	if (!json_fixed(t, t->identity, sizeof(t->identity)))
		return false;
	return json_taken(t, meta_desc_local(t->d, t->identity, &why), &why);
}

/* The following functions read the members of one element of "devices". */

static bool json_rail_name(struct json_decoder *t)
{
	return json_fixed(t, t->rail.name, sizeof(t->rail.name));
}

static bool json_rail_lid(struct json_decoder *t)
{
	return json_u32(t, &t->rail.lid);
}

static bool json_rail_gid(struct json_decoder *t)
{
	if (!json_fixed(t, t->rail.gid, sizeof(t->rail.gid)))
		return false;
	if (!strcmp(t->rail.gid, JSON_NO_GID))
		t->rail.gid[0] = 0;
	return true;
}

static bool json_rail_provider(struct json_decoder *t)
{
	return json_fixed(t, t->rail.provider, sizeof(t->rail.provider));
}

static bool json_rail_mr_mode(struct json_decoder *t)
{
	return meta_json_u64(&t->j, &t->rail.mr_mode);
}

static bool json_rail(struct json_decoder *t)
{
	static const struct json_known known[] = {
		{ "addr_format", json_format },
		{ "address", json_address },
		{ "gid", json_rail_gid },
		{ "lid", json_rail_lid },
		{ "mr_mode", json_rail_mr_mode },
		{ "name", json_rail_name },
		{ "provider", json_rail_provider },
	};
	const char *why = NULL;

	memset(&t->rail, 0, sizeof(t->rail));
	t->address = &t->rail.address;
	if (!json_known_object(t, JSON_KNOWN(known)))
		return false;
	return json_taken(t, meta_desc_rail(t->d, &t->rail, &why), &why);
}

static bool json_devices(struct json_decoder *t)
{
	if (!meta_json_array(&t->j))
		return false;
	while (meta_json_element(&t->j))
		if (!json_rail(t))
			return false;
	return !t->j.why;
}

/* The following functions read the members of one element of "buffers". */

static bool json_location(struct json_decoder *t)
{
	return json_reused(t, &t->location, &t->location_room);
}

static bool json_addr(struct json_decoder *t)
{
	return meta_json_u64(&t->j, &t->buffer.addr);
}

static bool json_length(struct json_decoder *t)
{
	if (!meta_json_u64(&t->j, &t->buffer.length))
		return false;
	t->file.length = t->buffer.length;
	return true;
}

static bool json_rkey(struct json_decoder *t)
{
	if (!meta_json_array(&t->j))
		return false;
	while (meta_json_element(&t->j)) {
		if (t->rkey_count == TEI_META_RAILS_MAX)
			return json_refuse(t, TEI_ERR_TOO_MANY,
					   "too many keys");
		if (!meta_json_u64(&t->j, &t->rkeys[t->rkey_count]))
			return false;
		t->rkey_count++;
	}
	return !t->j.why;
}

static bool json_raw_one(struct json_decoder *t, struct tei_meta_key *key)
{
	uint8_t bytes[TEI_META_KEY_MAX];

	if (!meta_json_string(&t->j))
		return false;
	if (!meta_hex_parse(t->j.text, bytes, sizeof(bytes), &key->len))
		return json_refuse(t, TEI_ERR_INVALID, "bad raw key");
	key->bytes = (uint8_t *)meta_desc_copy(t->d, (char *)bytes, key->len);
	return key->bytes || json_refuse(t, TEI_ERR_MEMORY, "no memory");
}

static bool json_raw_key(struct json_decoder *t)
{
	t->have_raw = true;
	if (!meta_json_array(&t->j))
		return false;
	while (meta_json_element(&t->j)) {
		if (t->raw_count == TEI_META_RAILS_MAX)
			return json_refuse(t, TEI_ERR_TOO_MANY,
					   "too many keys");
		if (!json_raw_one(t, &t->raw[t->raw_count]))
			return false;
		t->raw_count++;
	}
	return !t->j.why;
}

static bool json_file_path(struct json_decoder *t)
{
	return json_reused(t, &t->path, &t->path_room);
}

static bool json_local_room(struct json_decoder *t)
{
	uint32_t want = 2 * t->local_room + 8;
	struct tei_meta_file_path *p;

	if (t->file.local_count < t->local_room)
		return true;
	p = realloc(t->local, want * sizeof(*p));
	if (!p)
		return json_refuse(t, TEI_ERR_MEMORY, "no memory");
	t->local = p;
	t->local_room = want;
	return true;
}

static bool json_local_path_map(struct json_decoder *t)
{
	char *server, *path;

	if (!meta_json_object(&t->j))
		return false;
	while (meta_json_member(&t->j)) {
		server = meta_desc_copy(t->d, t->j.text, t->j.text_len);
		if (!server)
			return json_refuse(t, TEI_ERR_MEMORY, "no memory");
		if (!json_persistent(t, &path) || !json_local_room(t))
			return false;
		t->local[t->file.local_count].server = server;
		t->local[t->file.local_count].path = path;
		t->file.local_count++;
	}
	return !t->j.why;
}

static bool json_add_file(struct json_decoder *t)
{
	const char *why = NULL;

	t->file.path = t->path;
	t->file.local = t->local;
	return json_taken(t, meta_desc_file(t->d, &t->file, &why), &why);
}

static bool json_add_buffer(struct json_decoder *t)
{
	const char *why = NULL;

	if (t->have_raw && t->raw_count != t->rkey_count)
		return json_refuse(t, TEI_ERR_INVALID,
				   "number of raw keys differs from number of rkeys");
	if (t->have_keys && t->rkey_count != t->key_count)
		return json_refuse(
			t, TEI_ERR_INVALID,
			"number of keys differs from number of devices");
	t->have_keys = true;
	t->key_count = t->rkey_count;
	t->buffer.location = t->location[0] ? t->location : "*";
	t->buffer.rkey = t->rkeys;
	t->buffer.raw = t->have_raw ? t->raw : NULL;
	return json_taken(t, meta_desc_buffer(t->d, &t->buffer, t->rkey_count,
					      &why), &why);
}

static bool json_buffer(struct json_decoder *t)
{
	static const struct json_known known[] = {
		{ "addr", json_addr },
		{ "file_path", json_file_path },
		{ "length", json_length },
		{ "local_path_map", json_local_path_map },
		{ "name", json_location },
		{ "raw_key", json_raw_key },
		{ "rkey", json_rkey },
	};

	memset(&t->buffer, 0, sizeof(t->buffer));
	memset(&t->file, 0, sizeof(t->file));
	t->location[0] = 0;
	t->path[0] = 0;
	t->rkey_count = 0;
	t->raw_count = 0;
	t->have_raw = false;
	if (!json_known_object(t, JSON_KNOWN(known)))
		return false;
	return t->path[0] ? json_add_file(t) : json_add_buffer(t);
}

static bool json_buffers(struct json_decoder *t)
{
	if (!meta_json_array(&t->j))
		return false;
	while (meta_json_element(&t->j))
		if (!json_buffer(t))
			return false;
	return !t->j.why;
}

/* The following functions read the members of one element of "labels". */

static bool json_label_text(struct json_decoder *t)
{
	return json_reused(t, &t->label_text, &t->label_room);
}

static bool json_label_addr(struct json_decoder *t)
{
	return meta_json_u64(&t->j, &t->label.addr);
}

static bool json_label_length(struct json_decoder *t)
{
	return meta_json_u64(&t->j, &t->label.length);
}

static bool json_label_nested(struct json_decoder *t)
{
	uint64_t v;

	if (!meta_json_u64(&t->j, &v))
		return false;
	t->label.nested = v;
	return true;
}

static bool json_label(struct json_decoder *t)
{
	static const struct json_known known[] = {
		{ "addr", json_label_addr },
		{ "label", json_label_text },
		{ "length", json_label_length },
		{ "nested", json_label_nested },
	};
	const char *why = NULL;

	memset(&t->label, 0, sizeof(t->label));
	t->label_text[0] = 0;
	if (!json_known_object(t, JSON_KNOWN(known)))
		return false;
	t->label.text = t->label_text;
	return json_taken(t, meta_desc_label(t->d, &t->label, &why), &why);
}

static bool json_labels(struct json_decoder *t)
{
	if (!meta_json_array(&t->j))
		return false;
	while (meta_json_element(&t->j))
		if (!json_label(t))
			return false;
	return !t->j.why;
}

/* The following functions read the members of the whole descriptor. */

static bool json_name(struct json_decoder *t)
{
	return json_persistent(t, &t->name);
}

static bool json_server_name(struct json_decoder *t)
{
	return json_persistent(t, &t->server_name);
}

static bool json_protocol(struct json_decoder *t)
{
	return json_persistent(t, &t->protocol);
}

static bool json_version(struct json_decoder *t)
{
	return json_u32(t, &t->d->pub.version);
}

static bool json_incarnation(struct json_decoder *t)
{
	return meta_json_u64(&t->j, &t->d->pub.incarnation);
}

static bool json_serial(struct json_decoder *t)
{
	return meta_json_u64(&t->j, &t->d->pub.serial);
}

static bool json_matrix(struct json_decoder *t)
{
	char c = meta_json_peek(&t->j);
	const char *text;
	size_t len;

	if (c == 'n')
		return meta_json_skip(&t->j);
	if (c != '{')
		return meta_json_fail(&t->j,
				      "priority_matrix is not an object");
	if (!meta_json_raw(&t->j, &text, &len))
		return false;
	t->d->pub.priority_matrix = meta_desc_copy(t->d, text, len);
	return t->d->pub.priority_matrix ||
	       json_refuse(t, TEI_ERR_MEMORY, "no memory");
}

static bool json_text(struct json_decoder *t)
{
	static const struct json_known known[] = {
		{ "buffers", json_buffers },
		{ "devices", json_devices },
		{ "first", json_first },
		{ "incarnation", json_incarnation },
		{ "labels", json_labels },
		{ "local", json_local },
		{ "name", json_name },
		{ "priority_matrix", json_matrix },
		{ "protocol", json_protocol },
		{ "serial", json_serial },
		{ "server_name", json_server_name },
		{ "version", json_version },
	};

	return json_known_object(t, JSON_KNOWN(known)) &&
	       meta_json_done(&t->j);
}

static bool json_whole(struct json_decoder *t)
{
	const char *name = t->name ? t->name : t->server_name, *why = NULL;
	int rc;

	if (t->name && t->server_name && strcmp(t->name, t->server_name))
		return json_refuse(t, TEI_ERR_INVALID,
				   "name and server_name differ");
	rc = meta_desc_name(t->d, name, t->protocol, &why);
	if (!rc && t->have_keys && t->key_count != t->d->pub.rail_count)
		return json_refuse(
			t, TEI_ERR_INVALID,
			"number of keys differs from number of devices");
	if (!rc)
		rc = meta_desc_seal(t->d, &why);
	return json_taken(t, rc, &why);
}

static int json_report(struct json_decoder *t, struct tei_err *err)
{
	size_t at = (size_t)(t->j.p - t->j.start);
	const char *name = t->asked ? t->asked :
			   t->name ? t->name : t->server_name;

	if (t->j.no_memory)
		t->code = TEI_ERR_MEMORY;
	return tei_err_fail(err, t->code ? t->code : TEI_ERR_JSON, "meta",
			    NULL, "descriptor of segment '%.64s': %s, at byte %zu",
			    name ? name : "", t->j.why, at);
}

static void json_decoder_free(struct json_decoder *t)
{
	if (t->d)
		tei_meta_desc_unref(&t->d->pub);
	meta_json_fini(&t->j);
	free(t->local);
	free(t->label_text);
	free(t->location);
	free(t->path);
	free(t);
}

static struct json_decoder *json_decoder_new(const char *json, size_t len)
{
	struct json_decoder *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	meta_json_init(&t->j, json, len);
	t->location_room = 64;
	t->path_room = 64;
	t->label_room = 64;
	t->location = malloc(t->location_room);
	t->path = malloc(t->path_room);
	t->label_text = malloc(t->label_room);
	t->d = meta_desc_new();
	if (!t->location || !t->path || !t->label_text || !t->d) {
		json_decoder_free(t);
		return NULL;
	}
	t->d->pub.version = 0;
	return t;
}

int tei_meta_desc_decode(const char *json, size_t len,
			 struct tei_meta_desc **out, struct tei_err *err)
{
	return meta_desc_decode_as(NULL, json, len, out, err);
}

int meta_desc_decode_as(const char *asked, const char *json, size_t len,
			struct tei_meta_desc **out, struct tei_err *err)
{
	struct json_decoder *t;
	int rc;

	if (len > TEI_META_TEXT_MAX)
		return tei_err_fail(err, TEI_ERR_JSON, "meta", NULL,
				    "descriptor of %zu bytes (at most %u)",
				    len, TEI_META_TEXT_MAX);
	t = json_decoder_new(json, len);
	if (!t)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for a descriptor");
	t->asked = asked;
	if (json_text(t) && json_whole(t)) {
		*out = &t->d->pub;
		t->d = NULL; /* the caller owns the descriptor from
			      * now on */
		rc = 0;
	} else {
		rc = json_report(t, err);
	}
	json_decoder_free(t);
	return rc;
}
