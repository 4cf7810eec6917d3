/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_int.h"
#include "meta/meta_json.h"
#include "meta/tei_meta_desc.h"
#include "util/err.h"
#include "util/text.h"

#define DESC_CHUNK	((size_t)16 << 10)

struct meta_chunk {
	struct meta_chunk *next;
	size_t used, size;
	uint64_t data[];
};

static const char desc_no_memory[] = "out of memory for the descriptor";

static void *desc_alloc(struct meta_desc *d, size_t len)
{
	struct meta_chunk *c = d->chunks;
	size_t size;
	void *p;

	len = (len + 7) & ~(size_t)7;
	if (!c || c->size - c->used < len) {
		size = len > DESC_CHUNK ? len : DESC_CHUNK;
		c = malloc(sizeof(*c) + size);
		if (!c)
			return NULL;
		c->size = size;
		c->used = 0;
		c->next = d->chunks;
		d->chunks = c;
	}
	p = (char *)c->data + c->used;
	c->used += len;
	return p;
}

static void *desc_dup(struct meta_desc *d, const void *from, size_t len)
{
	void *p = desc_alloc(d, len);

	if (p && len)
		memcpy(p, from, len);
	return p;
}

char *meta_desc_copy(struct meta_desc *d, const char *text, size_t len)
{
	char *p = desc_alloc(d, len + 1);

	if (p) {
		memcpy(p, text, len);
		p[len] = 0;
	}
	return p;
}

bool meta_desc_grow(void **array, uint32_t count, uint32_t *room,
		    size_t element)
{
	uint32_t want = *room ? 2 * *room : 8;
	void *p;

	if (count < *room)
		return true;
	p = realloc(*array, want * element);
	if (!p)
		return false;
	*array = p;
	*room = want;
	return true;
}

struct meta_desc *meta_desc_new(void)
{
	struct meta_desc *d = calloc(1, sizeof(*d));

	if (d) {
		d->refs = 1;
		d->pub.version = TEI_META_VERSION;
	}
	return d;
}

int meta_desc_why(const char **why, const char *text, int code)
{
	*why = text;
	return code;
}

int meta_desc_oom(const char **why)
{
	return meta_desc_why(why, desc_no_memory, TEI_ERR_MEMORY);
}

int meta_desc_name(struct meta_desc *d, const char *name, const char *protocol,
		   const char **why)
{
	if (!name || !*name)
		return meta_desc_why(why, "empty name", TEI_ERR_INVALID);
	if (!tei_text_valid(name, TEI_META_NAME_MAX - 1))
		return meta_desc_why(why, "name too long or not plain UTF-8",
				     TEI_ERR_INVALID);
	if (!protocol || !*protocol || !tei_text_valid(protocol, 63))
		return meta_desc_why(why, "empty or bad protocol",
				     TEI_ERR_INVALID);
	d->pub.name = meta_desc_copy(d, name, strlen(name));
	d->pub.protocol = meta_desc_copy(d, protocol, strlen(protocol));
	return d->pub.name && d->pub.protocol ? 0 : meta_desc_oom(why);
}

#define DESC_FITS(field) \
	(memchr((field), 0, sizeof(field)) && \
	 tei_text_valid((field), sizeof(field) - 1))

int meta_desc_first(struct meta_desc *d, const struct tei_meta_first *first,
		    const char **why)
{
	if (!DESC_FITS(first->provider) ||
	    first->address.len > TEI_META_ADDRESS_MAX)
		return meta_desc_why(why, "bad first address", TEI_ERR_INVALID);
	if (!first->provider[0] != !first->address.len)
		return meta_desc_why(why,
				     "first address without provider or bytes",
				     TEI_ERR_INVALID);
	d->pub.first = *first;
	return 0;
}

int meta_desc_local(struct meta_desc *d, const char *identity,
		    const char **why)
{
	if (strlen(identity) >= sizeof(d->pub.local))
		return meta_desc_why(why, "local identity too long",
				     TEI_ERR_INVALID);
	strcpy(d->pub.local, identity);
	return 0;
}

int meta_desc_rail(struct meta_desc *d, const struct tei_meta_rail *rail,
		   const char **why)
{
	if (d->pub.rail_count == TEI_META_RAILS_MAX)
		return meta_desc_why(why, "too many devices", TEI_ERR_TOO_MANY);
	if (!rail->name[0] || !DESC_FITS(rail->name) ||
	    !DESC_FITS(rail->gid) || !DESC_FITS(rail->provider) ||
	    rail->address.len > TEI_META_ADDRESS_MAX)
		return meta_desc_why(why, "bad device", TEI_ERR_INVALID);
	if (!meta_desc_grow((void **)&d->rails, d->pub.rail_count,
			    &d->rail_room, sizeof(*d->rails)))
		return meta_desc_oom(why);
	d->rails[d->pub.rail_count++] = *rail;
	d->pub.rails = d->rails;
	return 0;
}

static int desc_check_buffer(const struct meta_desc *d,
			     const struct tei_meta_buffer *b, uint32_t keys,
			     const char **why)
{
	uint64_t end;
	uint32_t i;

	if (d->pub.buffer_count == TEI_META_BUFFERS_MAX)
		return meta_desc_why(why, "too many buffers", TEI_ERR_TOO_MANY);
	if (!b->addr || !b->length)
		return meta_desc_why(why, "buffer with zero address or length",
				     TEI_ERR_INVALID);
	if (__builtin_add_overflow(b->addr, b->length - 1, &end))
		return meta_desc_why(why, "buffer beyond the address space",
				     TEI_ERR_INVALID);
	if (!tei_text_valid(b->location, TEI_META_LOCATION_MAX - 1))
		return meta_desc_why(why, "bad buffer location",
				     TEI_ERR_INVALID);
	for (i = 0; b->raw && i < keys; i++)
		if (b->raw[i].len > TEI_META_KEY_MAX)
			return meta_desc_why(why, "raw key too long",
					     TEI_ERR_INVALID);
	return 0;
}

/*
 * Returns a copy of location that belongs to d, or NULL if memory is short. If
 * location is equal to that of the previous buffer, which is usual, returns the
 * existing copy.
 */
static const char *desc_location(struct meta_desc *d, const char *location)
{
	uint32_t n = d->pub.buffer_count;

	if (n && !strcmp(d->buffers[n - 1].location, location))
		return d->buffers[n - 1].location;
	return meta_desc_copy(d, location, strlen(location));
}

static struct tei_meta_key *desc_raw(struct meta_desc *d,
				     const struct tei_meta_key *raw,
				     uint32_t keys)
{
	struct tei_meta_key *copy = desc_dup(d, raw, keys * sizeof(*raw));
	uint32_t i;

	for (i = 0; copy && i < keys; i++) {
		copy[i].bytes = desc_dup(d, raw[i].bytes, raw[i].len);
		if (!copy[i].bytes)
			return NULL;
	}
	return copy;
}

int meta_desc_buffer(struct meta_desc *d, const struct tei_meta_buffer *buffer,
		     uint32_t keys, const char **why)
{
	struct tei_meta_buffer b = *buffer;
	int rc = desc_check_buffer(d, &b, keys, why);

	if (rc)
		return rc;
	b.label = NULL;
	b.location = desc_location(d, b.location);
	b.rkey = desc_dup(d, buffer->rkey, keys * sizeof(*b.rkey));
	if (b.raw)
		b.raw = desc_raw(d, buffer->raw, keys);
	if (!b.location || !b.rkey || (buffer->raw && !b.raw) ||
	    !meta_desc_grow((void **)&d->buffers, d->pub.buffer_count,
			    &d->buffer_room, sizeof(*d->buffers)))
		return meta_desc_oom(why);
	d->buffers[d->pub.buffer_count++] = b;
	d->pub.buffers = d->buffers;
	return 0;
}

static int desc_check_file(const struct meta_desc *d,
			   const struct tei_meta_file *f, const char **why)
{
	uint64_t end;
	uint32_t i;

	if (d->pub.file_count == TEI_META_BUFFERS_MAX)
		return meta_desc_why(why, "too many files", TEI_ERR_TOO_MANY);
	if (!f->path || !*f->path || !tei_text_valid(f->path, 4095) ||
	    !f->length)
		return meta_desc_why(why, "file with empty path or zero length",
				     TEI_ERR_INVALID);
	if (__builtin_add_overflow(d->pub.size, f->length, &end))
		return meta_desc_why(why, "files too large together",
				     TEI_ERR_INVALID);
	for (i = 0; i < f->local_count; i++)
		if (!tei_text_valid(f->local[i].server,
				     TEI_META_NAME_MAX - 1) ||
		    !tei_text_valid(f->local[i].path, 4095))
			return meta_desc_why(why, "bad local path",
					     TEI_ERR_INVALID);
	return 0;
}

static struct tei_meta_file_path *
desc_local_paths(struct meta_desc *d, const struct tei_meta_file_path *from,
		 uint32_t count)
{
	struct tei_meta_file_path *to;
	uint32_t i;

	to = desc_dup(d, from, count * sizeof(*from));
	for (i = 0; to && i < count; i++) {
		to[i].server = meta_desc_copy(d, from[i].server,
					      strlen(from[i].server));
		to[i].path = meta_desc_copy(d, from[i].path,
					    strlen(from[i].path));
		if (!to[i].server || !to[i].path)
			return NULL;
	}
	return to;
}

int meta_desc_file(struct meta_desc *d, const struct tei_meta_file *file,
		   const char **why)
{
	struct tei_meta_file f = *file;
	int rc = desc_check_file(d, &f, why);

	if (rc)
		return rc;
	f.path = meta_desc_copy(d, file->path, strlen(file->path));
	f.local = desc_local_paths(d, file->local, file->local_count);
	f.offset = d->pub.size;
	if (!f.path || !f.local ||
	    !meta_desc_grow((void **)&d->files, d->pub.file_count,
			    &d->file_room, sizeof(*d->files)))
		return meta_desc_oom(why);
	d->files[d->pub.file_count++] = f;
	d->pub.files = d->files;
	d->pub.size += f.length;
	return 0;
}

static int desc_by_addr(const void *a, const void *b)
{
	const struct tei_meta_buffer *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

int meta_desc_seal(struct meta_desc *d, const char **why)
{
	struct tei_meta_buffer *b = d->buffers;
	uint64_t size = 0;
	uint32_t i, n = d->pub.buffer_count;
	bool files = d->pub.protocol && !strcmp(d->pub.protocol, "nvmeof");
	int rc;

	if (!d->pub.name)
		return meta_desc_why(why, "empty name", TEI_ERR_INVALID);
	if (files ? n : d->pub.file_count)
		return meta_desc_why(why, "files and memory in one segment",
				     TEI_ERR_INVALID);
	if (n)
		qsort(b, n, sizeof(*b), desc_by_addr);
	for (i = 0; i < n; i++) {
		if (i && b[i].addr - b[i - 1].addr < b[i - 1].length)
			return meta_desc_why(why, "overlapping buffers",
					     TEI_ERR_OVERLAP);
		size += b[i].length;
	}
	if (n)
		d->pub.size = size;
	rc = meta_desc_seal_labels(d, why);
	d->frozen = !rc;
	return rc;
}

/* --- public calls: contracts in tei_meta_desc.h -------------------------- */

static int desc_report(struct tei_err *err, int code, const char *why)
{
	return tei_err_fail(err, code, "meta", NULL, "segment descriptor: %s",
			    why);
}

static int desc_is_frozen(struct tei_err *err)
{
	return desc_report(err, TEI_ERR_INVALID, "already frozen");
}

int tei_meta_desc_create(const char *name, const char *protocol,
			 uint64_t incarnation, struct tei_meta_desc **out,
			 struct tei_err *err)
{
	struct meta_desc *d = meta_desc_new();
	const char *why;
	int rc;

	if (!d)
		return desc_report(err, TEI_ERR_MEMORY, desc_no_memory);
	rc = meta_desc_name(d, name, protocol, &why);
	if (rc) {
		tei_meta_desc_unref(&d->pub);
		return desc_report(err, rc, why);
	}
	d->pub.incarnation = incarnation;
	*out = &d->pub;
	return 0;
}

static bool desc_copy_head(struct meta_desc *d,
			   const struct tei_meta_desc *from)
{
	const char *matrix = from->priority_matrix;

	d->pub.version = from->version;
	d->pub.first = from->first;
	memcpy(d->pub.local, from->local, sizeof(d->pub.local));
	if (matrix) {
		d->pub.priority_matrix = meta_desc_copy(d, matrix,
							strlen(matrix));
		if (!d->pub.priority_matrix)
			return false;
	}
	if (!from->rail_count)
		return true;
	d->rails = malloc(from->rail_count * sizeof(*d->rails));
	if (!d->rails)
		return false;
	memcpy(d->rails, from->rails, from->rail_count * sizeof(*d->rails));
	d->rail_room = d->pub.rail_count = from->rail_count;
	d->pub.rails = d->rails;
	return true;
}

int tei_meta_desc_copy_head(const struct tei_meta_desc *desc,
			    struct tei_meta_desc **out, struct tei_err *err)
{
	struct tei_meta_desc *d;
	int rc;

	rc = tei_meta_desc_create(desc->name, desc->protocol,
				  desc->incarnation, &d, err);
	if (rc)
		return rc;
	if (!desc_copy_head(meta_desc_of(d), desc)) {
		tei_meta_desc_unref(d);
		return desc_report(err, TEI_ERR_MEMORY, desc_no_memory);
	}
	*out = d;
	return 0;
}

int tei_meta_desc_set_first(struct tei_meta_desc *desc,
			    const struct tei_meta_first *first,
			    struct tei_err *err)
{
	struct meta_desc *d = meta_desc_of(desc);
	const char *why;
	int rc;

	if (d->frozen)
		return desc_is_frozen(err);
	rc = meta_desc_first(d, first, &why);
	return rc ? desc_report(err, rc, why) : 0;
}

int tei_meta_desc_set_serial(struct tei_meta_desc *desc, uint64_t serial,
			     struct tei_err *err)
{
	if (meta_desc_of(desc)->frozen)
		return desc_is_frozen(err);
	desc->serial = serial;
	return 0;
}

int tei_meta_desc_set_local(struct tei_meta_desc *desc, const char *identity,
			    struct tei_err *err)
{
	struct meta_desc *d = meta_desc_of(desc);
	const char *why;
	int rc;

	if (d->frozen)
		return desc_is_frozen(err);
	rc = meta_desc_local(d, identity, &why);
	return rc ? desc_report(err, rc, why) : 0;
}

int tei_meta_desc_set_matrix(struct tei_meta_desc *desc, const char *json,
			     struct tei_err *err)
{
	struct meta_desc *d = meta_desc_of(desc);
	struct meta_json j;
	bool good;

	if (d->frozen)
		return desc_is_frozen(err);
	if (!json) {
		d->pub.priority_matrix = NULL;
		return 0;
	}
	meta_json_init(&j, json, strlen(json));
	good = meta_json_peek(&j) == '{' && meta_json_skip(&j) &&
	       meta_json_done(&j);
	meta_json_fini(&j);
	if (!good)
		return desc_report(err, TEI_ERR_JSON,
				   "priority matrix is not a JSON object");
	json = meta_desc_copy(d, json, strlen(json));
	if (!json)
		return desc_report(err, TEI_ERR_MEMORY, desc_no_memory);
	d->pub.priority_matrix = json;
	return 0;
}

int tei_meta_desc_add_rail(struct tei_meta_desc *desc,
			   const struct tei_meta_rail *rail,
			   struct tei_err *err)
{
	struct meta_desc *d = meta_desc_of(desc);
	char raw[sizeof(rail->name)], name[sizeof(rail->name)];
	const char *why;
	int rc;

	if (d->frozen)
		return desc_is_frozen(err);
	if (desc->buffer_count)
		return desc_report(err, TEI_ERR_INVALID,
				   "devices come before buffers");
	rc = meta_desc_rail(d, rail, &why);
	if (!rc)
		return 0;
	snprintf(raw, sizeof(raw), "%.*s", (int)sizeof(raw) - 1, rail->name);
	tei_text_escape(raw, name, sizeof(name));
	return tei_err_fail(err, rc, "meta", NULL,
			    "segment descriptor: %s: %s", name, why);
}

int tei_meta_desc_add_buffer(struct tei_meta_desc *desc, const char *location,
			     uint64_t addr, uint64_t length,
			     const uint64_t *rkey,
			     const struct tei_meta_key *raw,
			     struct tei_err *err)
{
	struct meta_desc *d = meta_desc_of(desc);
	struct tei_meta_buffer b = {
		.addr = addr, .length = length, .rkey = rkey, .raw = raw,
		.location = location ? location : "*",
	};
	const char *why;
	int rc;

	if (d->frozen)
		return desc_is_frozen(err);
	if (!rkey && desc->rail_count)
		return desc_report(err, TEI_ERR_INVALID, "buffer without keys");
	rc = meta_desc_buffer(d, &b, desc->rail_count, &why);
	return rc ? desc_report(err, rc, why) : 0;
}

int tei_meta_desc_add_label(struct tei_meta_desc *desc,
			    const struct tei_meta_label *label,
			    struct tei_err *err)
{
	struct meta_desc *d = meta_desc_of(desc);
	const char *why;
	int rc;

	if (d->frozen)
		return desc_is_frozen(err);
	rc = meta_desc_label(d, label, &why);
	return rc ? desc_report(err, rc, why) : 0;
}

int tei_meta_desc_add_file(struct tei_meta_desc *desc, const char *path,
			   uint64_t length,
			   const struct tei_meta_file_path *local,
			   uint32_t local_count, struct tei_err *err)
{
	struct meta_desc *d = meta_desc_of(desc);
	struct tei_meta_file f = {
		.path = path, .length = length, .local = local,
		.local_count = local_count,
	};
	const char *why;
	int rc;

	if (d->frozen)
		return desc_is_frozen(err);
	rc = meta_desc_file(d, &f, &why);
	return rc ? desc_report(err, rc, why) : 0;
}

int tei_meta_desc_freeze(struct tei_meta_desc *desc, struct tei_err *err)
{
	struct meta_desc *d = meta_desc_of(desc);
	const char *why;
	int rc;

	if (d->frozen)
		return 0;
	rc = meta_desc_seal(d, &why);
	return rc ? desc_report(err, rc, why) : 0;
}

int tei_meta_desc_finish(struct tei_meta_desc *desc, int ret,
			 struct tei_meta_desc **out, struct tei_err *err)
{
	if (!ret)
		ret = tei_meta_desc_freeze(desc, err);
	if (ret)
		tei_meta_desc_unref(desc);
	else
		*out = desc;
	return ret;
}

struct tei_meta_desc *tei_meta_desc_ref(struct tei_meta_desc *desc)
{
	__atomic_fetch_add(&meta_desc_of(desc)->refs, 1, __ATOMIC_RELAXED);
	return desc;
}

void tei_meta_desc_unref(struct tei_meta_desc *desc)
{
	struct meta_desc *d = meta_desc_of(desc);
	struct meta_chunk *c, *next;

	if (!desc || __atomic_sub_fetch(&d->refs, 1, __ATOMIC_ACQ_REL))
		return;
	for (c = d->chunks; c; c = next) {
		next = c->next;
		free(c);
	}
	free(d->rails);
	free(d->buffers);
	free(d->files);
	free(d->labels);
	free(d->by_text);
	free(d);
}

bool tei_meta_desc_equal(const struct tei_meta_desc *a,
			 const struct tei_meta_desc *b)
{
	char *x = NULL, *y = NULL;
	size_t n, m;
	bool equal;

	if (a == b)
		return true;
	if (a->incarnation != b->incarnation ||
	    a->rail_count != b->rail_count ||
	    a->buffer_count != b->buffer_count || a->size != b->size)
		return false;
	equal = !meta_desc_encode(a, false, &x, &n, NULL) &&
		!meta_desc_encode(b, false, &y, &m, NULL) && n == m &&
		!memcmp(x, y, n);
	free(x);
	free(y);
	return equal;
}

bool tei_meta_desc_older(const struct tei_meta_desc *a,
			 const struct tei_meta_desc *b)
{
	return a->incarnation == b->incarnation && a->serial < b->serial;
}

/* Returns the index of the last buffer that starts at or below addr, or -1. */
static int64_t desc_at(const struct tei_meta_desc *desc, uint64_t addr)
{
	int64_t low = 0, high = (int64_t)desc->buffer_count, mid;

	while (low < high) {
		mid = (low + high) / 2;
		if (desc->buffers[mid].addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	return low - 1;
}

const struct tei_meta_buffer *
tei_meta_desc_find(const struct tei_meta_desc *desc, uint64_t addr,
		   uint64_t len)
{
	int64_t at = desc_at(desc, addr);
	const struct tei_meta_buffer *b = at < 0 ? NULL : &desc->buffers[at];

	if (!b || addr - b->addr >= b->length ||
	    len > b->length - (addr - b->addr))
		return NULL;
	return b;
}

bool tei_meta_desc_has_keys(const struct tei_meta_desc *desc,
			    const struct tei_meta_buffer *buffer)
{
	uint32_t i;

	for (i = 0; i < desc->rail_count; i++)
		if (!buffer->rkey[i] && !(buffer->raw && buffer->raw[i].len))
			return false;
	return desc->rail_count != 0;
}

bool tei_meta_desc_covers(const struct tei_meta_desc *desc, uint64_t addr,
			  uint64_t len)
{
	int64_t at = desc_at(desc, addr);
	const struct tei_meta_buffer *b;
	uint64_t here;

	for (; at >= 0 && at < (int64_t)desc->buffer_count; at++) {
		b = &desc->buffers[at];
		if (addr < b->addr || addr - b->addr >= b->length)
			return false;
		here = b->length - (addr - b->addr);
		if (len <= here)
			return true;
		len -= here;
		addr += here;
	}
	return false;
}
