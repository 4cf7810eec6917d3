/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segment descriptors as blobs, for applications that exchange them themselves:
 *
 *	 0  8  "moonrail"
 *	 8  2  version of this layout, 1
 *	10  2  length of this header, 24
 *	12  4  length of the payload
 *	16  4  0
 *	20  4  CRC-32C of the header with zeros here, then of the payload
 *	24     payload
 *
 * Numbers are big-endian. The payload is the descriptor's JSON, as in a store.
 * The decoder for JSON exists already. It checks its input strictly, so the
 * text may come from an untrusted process. It does not depend on the byte
 * order, and it skips fields of later versions. A binary format would need a
 * second decoder with these properties, and would make blobs of a few kilobytes
 * only a third smaller.
 *
 * The memory keys in the payload of host memory are 0, because an initiator
 * requests the keys over the rails. For GPU memory the importer must know
 * whether keys exist: the payload contains 1 if they exist. It contains 0 if
 * the memory is reached through remote bounce slots.
 */
#include "api/engine_int.h"
#include "api/engine_memory.h"
#include "meta/tei_meta_cache.h"
#include "meta/tei_meta_desc.h"

#include <stdlib.h>
#include <string.h>

#define BLOB_VERSION	1
#define BLOB_HEAD	24
#define BLOB_CRC_AT	20
/* polynomial of CRC-32C, with its bits in reverse order */
#define BLOB_CRC32C 0x82f63b78u

static const char blob_magic[8] = { 'm', 'o', 'o', 'n', 'r', 'a', 'i', 'l' };

_Static_assert(TE_BLOB_MAX >= TEI_META_TEXT_MAX + BLOB_HEAD,
	       "TE_BLOB_MAX holds any descriptor");

/* --- checksum and numbers ------------------------------------------------ */

static uint32_t blob_crc(uint32_t crc, const void *data, size_t len)
{
	const uint8_t *p = data;
	uint32_t nibble[16], i, k;

	for (i = 0; i < 16; i++) {
		nibble[i] = i;
		for (k = 0; k < 4; k++)
			nibble[i] = nibble[i] >> 1 ^
				    (nibble[i] & 1 ? BLOB_CRC32C : 0);
	}
	for (crc = ~crc; len--; p++) {
		crc = crc >> 4 ^ nibble[(crc ^ *p) & 15];
		crc = crc >> 4 ^ nibble[(crc ^ *p >> 4) & 15];
	}
	return ~crc;
}

static void blob_put(uint8_t *p, unsigned int bytes, uint32_t v)
{
	while (bytes--) {
		p[bytes] = (uint8_t)v;
		v >>= 8;
	}
}

static uint32_t blob_get(const uint8_t *p, unsigned int bytes)
{
	uint32_t v = 0;

	while (bytes--)
		v = v << 8 | *p++;
	return v;
}

/* --- export -------------------------------------------------------------- */

static int blob_copy_lists(const struct tei_meta_desc *from,
			   struct tei_meta_desc *to, struct tei_err *err)
{
	static const uint64_t no_keys[TEI_META_RAILS_MAX];
	uint64_t some_keys[TEI_META_RAILS_MAX];
	const struct tei_meta_buffer *b;
	bool direct;
	uint32_t i;
	int ret = 0;

	for (i = 0; i < from->rail_count && !ret; i++) {
		ret = tei_meta_desc_add_rail(to, &from->rails[i], err);
		some_keys[i] = 1;
	}
	for (i = 0; i < from->buffer_count && !ret; i++) {
		b = &from->buffers[i];
		direct = engine_segment_on_gpu(b) &&
			 tei_meta_desc_has_keys(from, b);
		ret = tei_meta_desc_add_buffer(to, b->location, b->addr,
					       b->length,
					       direct ? some_keys : no_keys,
					       NULL, err);
	}
	for (i = 0; i < from->label_count && !ret; i++)
		ret = tei_meta_desc_add_label(to, &from->labels[i], err);
	return ret;
}

/* Copies a descriptor for a blob, which contains no memory keys. */
static int blob_strip(const struct tei_meta_desc *from,
		      struct tei_meta_desc **out, struct tei_err *err)
{
	struct tei_meta_desc *to;
	int ret;

	ret = tei_meta_desc_create(from->name, from->protocol,
				   from->incarnation, &to, err);
	if (ret)
		return ret;
	ret = tei_meta_desc_set_serial(to, from->serial, err);
	if (!ret)
		ret = tei_meta_desc_set_first(to, &from->first, err);
	if (!ret && *from->local)
		ret = tei_meta_desc_set_local(to, from->local, err);
	if (!ret)
		ret = tei_meta_desc_set_matrix(to, from->priority_matrix, err);
	if (!ret)
		ret = blob_copy_lists(from, to, err);
	return tei_meta_desc_finish(to, ret, out, err);
}

static int blob_text(struct engine *e, char **json, size_t *len,
		     struct tei_err *err)
{
	struct tei_meta_desc *own = engine_describe(e);
	struct tei_meta_desc *desc;
	int ret;

	if (!own)
		return tei_err_fail(err, TEI_ERR_METADATA, "engine", NULL,
				    "this engine has not published a descriptor yet");
	ret = blob_strip(own, &desc, err);
	tei_meta_desc_unref(own);
	if (ret)
		return ret;
	ret = tei_meta_desc_encode(desc, json, len, err);
	tei_meta_desc_unref(desc);
	return ret;
}

static void blob_write(uint8_t *p, const char *json, size_t len)
{
	memset(p, 0, BLOB_HEAD);
	memcpy(p, blob_magic, sizeof(blob_magic));
	blob_put(p + 8, 2, BLOB_VERSION);
	blob_put(p + 10, 2, BLOB_HEAD);
	blob_put(p + 12, 4, (uint32_t)len);
	memcpy(p + BLOB_HEAD, json, len);
	blob_put(p + BLOB_CRC_AT, 4, blob_crc(0, p, BLOB_HEAD + len));
}

int te_segment_export(transfer_engine_t engine, uint64_t flags, void *buf,
		      size_t *size)
{
	struct engine *e = engine_from(engine);
	size_t len, room;
	struct tei_err err;
	char *json;
	int ret;

	if (!e)
		return TEI_ERR_INVALID;
	if (flags || !size || (*size && !buf))
		return tei_err_fail(&err, TEI_ERR_INVALID, "engine", NULL,
				    "te_segment_export: %s", flags ?
				    "unknown flags" : "size is NULL, or buf is NULL and *size is not 0");
	ret = blob_text(e, &json, &len, &err);
	if (ret)
		return ret;
	room = *size;
	*size = BLOB_HEAD + len;
	if (buf && room < *size)
		ret = tei_err_fail(&err, TEI_ERR_INVALID, "engine", NULL,
				   "te_segment_export: size is %zu bytes (the blob needs %zu)",
				   room, *size);
	else if (buf)
		blob_write(buf, json, len);
	free(json);
	return ret;
}

/* --- import -------------------------------------------------------------- */

/* Checks the header, the length and the checksum of a blob. Returns NULL if
 * they are correct, otherwise a text that states the error. */
static const char *blob_check(const uint8_t *p, size_t size)
{
	uint8_t head[BLOB_HEAD];
	uint32_t len, crc;

	if (size < BLOB_HEAD)
		return "too short";
	if (memcmp(p, blob_magic, sizeof(blob_magic)))
		return "not a segment descriptor of moonrail";
	if (blob_get(p + 8, 2) != BLOB_VERSION ||
	    blob_get(p + 10, 2) != BLOB_HEAD)
		return "unknown version";
	len = blob_get(p + 12, 4);
	if (size - BLOB_HEAD < len)
		return "truncated";
	if (size - BLOB_HEAD > len)
		return "other bytes follow the descriptor";
	memcpy(head, p, sizeof(head));
	memset(head + BLOB_CRC_AT, 0, 4);
	crc = blob_crc(0, head, sizeof(head));
	if (blob_crc(crc, p + BLOB_HEAD, len) != blob_get(p + BLOB_CRC_AT, 4))
		return "damaged: the checksum is wrong";
	return NULL;
}

static int blob_decode(const uint8_t *p, size_t size,
		       struct tei_meta_desc **desc, struct tei_err *err)
{
	const char *why = blob_check(p, size);
	int ret;

	if (why)
		return tei_err_fail(err, TEI_ERR_REJECTED, "engine", NULL,
				    "blob of %zu bytes: %s", size, why);
	ret = tei_meta_desc_decode((const char *)p + BLOB_HEAD,
				   size - BLOB_HEAD, desc, err);
	if (ret != TEI_ERR_JSON)
		return ret;
	/* all blobs that cannot be decoded are refused with the same code; the
	 * decoder has logged the details */
	err->code = TEI_ERR_REJECTED;
	tei_err_set_last(err);
	return err->code;
}

static int blob_gone(const struct tei_meta_desc *desc, const char *why,
		     struct tei_err *err)
{
	return tei_err_fail(err, TEI_ERR_CONTEXT, "engine",
			    "export a new blob in the present process of that segment",
			    "blob of segment '%.64s': %s", desc->name, why);
}

/* Returns true if the data plane or the local copies have found out that the
 * process has ended. */
static bool blob_process_gone(struct engine *e, const char *name,
			      uint64_t incarnation)
{
	return tei_rail_gone(e->dp, incarnation) ||
	       engine_segment_ended_as(e, name, incarnation);
}

/* Returns true if the cached descriptor of that name belongs to a process that
 * has ended. */
static bool blob_known_gone(struct engine *e, const char *name)
{
	int32_t id = tei_meta_cache_lookup(e->cache, name);
	struct tei_meta_desc *known;
	bool gone;

	known = id > 0 ? tei_meta_cache_get(e->cache, id) : NULL;
	if (!known)
		return false;
	gone = blob_process_gone(e, name, known->incarnation);
	tei_meta_desc_unref(known);
	return gone;
}

static int blob_open(struct engine *e, struct tei_meta_desc *desc,
		     segment_id_t *id, struct tei_err *err)
{
	int32_t got;
	int ret;

	/* descriptors of files are refused, because otherwise the author of the
	 * blob could choose which files this process opens */
	if (desc->file_count)
		return tei_err_fail(err, TEI_ERR_REJECTED, "engine",
				    "openSegment opens files, with the name nvmeof/NAME",
				    "blob of segment '%.64s': the descriptor lists files",
				    desc->name);
	if (!desc->incarnation)
		return blob_gone(desc, "the descriptor has no incarnation", err);
	if (desc->incarnation == e->incarnation &&
	    strcmp(desc->name, e->name))
		return blob_gone(desc, "the descriptor is of this engine under another name", err);
	if (blob_process_gone(e, desc->name, desc->incarnation))
		return blob_gone(desc, "the process has ended", err);
	ret = tei_meta_cache_put(e->cache, desc, blob_known_gone(e, desc->name),
				 &got, err);
	if (!ret)
		*id = got;
	return ret;
}

int te_segment_import(transfer_engine_t engine, const void *blob, size_t size,
		      uint64_t flags, segment_id_t *id)
{
	struct engine *e = engine_from(engine);
	struct tei_meta_desc *desc;
	struct tei_err err;
	int ret;

	if (!e)
		return TEI_ERR_INVALID;
	if (flags || !blob || !id || size > TE_BLOB_MAX)
		return tei_err_fail(&err, TEI_ERR_INVALID, "engine", NULL,
				    "te_segment_import: %s",
				    flags ? "unknown flags" :
				    blob && id ? "size is above TE_BLOB_MAX" :
				    "NULL argument");
	ret = blob_decode(blob, size, &desc, &err);
	if (ret)
		return ret;
	ret = blob_open(e, desc, id, &err);
	tei_meta_desc_unref(desc);
	return ret;
}
