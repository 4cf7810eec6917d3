/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Paths and contents of the nodes: the record of the control channel and the
 * descriptor head.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_int.h"
#include "meta/meta_json.h"
#include "meta/meta_zookeeper_int.h"
#include "meta/meta_zookeeper_record.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "util/settings.h"
#include "util/text.h"

bool zk_path_fine(const char *path)
{
	const char *p = path;
	size_t n;

	while (*p) {
		n = strcspn(++p, "/");
		if (!n || (n == 1 && !strncmp(p, ".", 1)) ||
		    (n == 2 && !strncmp(p, "..", 2)))
			return false;
		p += n;
	}
	return tei_text_valid(path, 2048);
}

/* --- paths --------------------------------------------------------------- */

static char *zk_path(const struct zk *zk, const char *key)
{
	char *path;

	if (asprintf(&path, "%s/%s", zk->chroot, key) < 0)
		return NULL;
	if (zk_path_fine(path))
		return path;
	free(path);
	return NULL;
}

char *zk_path_ram(const struct zk *zk, const char *name)
{
	char key[TEI_META_NAME_MAX + 512];

	if (tei_meta_segment_key(zk->settings->store.cluster_id, name, key,
				 sizeof(key)))
		return NULL;
	return zk_path(zk, key);
}

char *zk_path_rpc(const struct zk *zk, const char *name)
{
	char key[TEI_META_NAME_MAX + 512];

	if (tei_meta_rpc_key(zk->settings->store.cluster_id, name, key,
			     sizeof(key)))
		return NULL;
	return zk_path(zk, key);
}

/* The ownership node's name is one node: slashes in the name are escaped. */
char *zk_path_ownership(const struct zk *zk, const char *name,
			uint64_t incarnation)
{
	const char *cluster = zk->settings->store.cluster_id;
	struct meta_buf b = { 0 };
	char tail[24];

	meta_buf_text(&b, zk->chroot);
	meta_buf_text(&b, "/mooncake/");
	meta_buf_text(&b, cluster);
	meta_buf_text(&b, *cluster ? "/moonrail/" : "moonrail/");
	for (; *name; name++) {
		if (*name == '/' || *name == '%')
			meta_buf_text(&b, *name == '/' ? "%2F" : "%25");
		else
			meta_buf_bytes(&b, name, 1);
	}
	snprintf(tail, sizeof(tail), ".%016" PRIx64, incarnation);
	meta_buf_bytes(&b, tail, strlen(tail) + 1);
	if (!b.failed && zk_path_fine(b.text))
		return b.text;
	free(b.text);
	return NULL;
}

/* --- records ------------------------------------------------------------- */

char *zk_rpc_encode(const char *host, uint16_t port, uint64_t incarnation)
{
	struct meta_buf b = { 0 };

	meta_buf_text(&b, "{\"ip_or_host_name\":");
	meta_buf_string(&b, host);
	meta_buf_text(&b, ",\"rpc_port\":");
	meta_buf_u64(&b, port);
	meta_buf_text(&b, ",\"incarnation\":");
	meta_buf_u64(&b, incarnation);
	meta_buf_bytes(&b, "}", 2);
	if (!b.failed)
		return b.text;
	free(b.text);
	return NULL;
}

static bool zk_rpc_member(struct meta_json *j, char host[TEI_META_HOST_MAX],
			  uint64_t *port, uint64_t *incarnation)
{
	if (!strcmp(j->text, "rpc_port"))
		return meta_json_u64(j, port);
	if (!strcmp(j->text, "incarnation"))
		return meta_json_u64(j, incarnation);
	if (strcmp(j->text, "ip_or_host_name"))
		return meta_json_skip(j);
	if (!meta_json_string(j) || j->text_len >= TEI_META_HOST_MAX)
		return false;
	memcpy(host, j->text, j->text_len + 1);
	return true;
}

bool zk_rpc_decode(const char *text, size_t len,
		   char endpoint[TEI_META_ENDPOINT_MAX], uint64_t *incarnation)
{
	char host[TEI_META_HOST_MAX] = "";
	uint64_t port = 0, inc = 0;
	struct meta_json j;
	bool fine;

	meta_json_init(&j, text, len);
	fine = meta_json_object(&j);
	while (fine && meta_json_member(&j))
		fine = zk_rpc_member(&j, host, &port, &inc);
	fine = fine && meta_json_done(&j) && *host && port && port <= 65535;
	meta_json_fini(&j);
	if (!fine)
		return false;
	tei_meta_join(host, (uint16_t)port, endpoint);
	*incarnation = inc;
	return true;
}

/* closed: only name, protocol and incarnation. */
static int zk_head_desc(const struct tei_meta_desc *desc, bool closed,
			struct tei_meta_desc **out, struct tei_err *err)
{
	struct tei_meta_desc *d;
	int rc;

	rc = closed ? tei_meta_desc_create(desc->name, desc->protocol,
					   desc->incarnation, &d, err)
		    : tei_meta_desc_copy_head(desc, &d, err);
	return rc ? rc : tei_meta_desc_finish(d, 0, out, err);
}

int zk_head_encode(const struct tei_meta_desc *desc, const char *endpoint,
		   bool closed, char **text, size_t *len, struct tei_err *err)
{
	struct tei_meta_desc *unresolved;
	struct meta_buf b = { 0 };
	char *json;
	size_t n;
	int rc;

	rc = zk_head_desc(desc, closed, &unresolved, err);
	if (rc)
		return rc;
	rc = tei_meta_desc_encode(unresolved, &json, &n, err);
	tei_meta_desc_unref(unresolved);
	if (rc)
		return rc;
	meta_buf_text(&b, "{\"buffers_at\":");
	meta_buf_string(&b, endpoint);
	if (!closed) {
		meta_buf_text(&b, ",\"buffers_count\":");
		meta_buf_u64(&b, desc->buffer_count);
	}
	meta_buf_text(&b, ",");
	meta_buf_bytes(&b, json + 1, n); /* includes the closing
					  * bracket */
	free(json);
	if (b.failed) {
		free(b.text);
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory to publish '%.64s'", desc->name);
	}
	*text = b.text;
	*len = b.len - 1;
	return 0;
}

bool zk_head_decode(const char *text, size_t len, uint64_t *incarnation,
		    char endpoint[TEI_META_ENDPOINT_MAX])
{
	struct meta_json j;
	bool fine;

	*incarnation = 0;
	endpoint[0] = 0;
	meta_json_init(&j, text, len);
	fine = meta_json_object(&j);
	while (fine && meta_json_member(&j)) {
		if (!strcmp(j.text, "incarnation")) {
			fine = meta_json_u64(&j, incarnation);
		} else if (!strcmp(j.text, "buffers_at")) {
			fine = meta_json_string(&j) &&
			       j.text_len < TEI_META_ENDPOINT_MAX;
			if (fine)
				memcpy(endpoint, j.text, j.text_len + 1);
		} else {
			fine = meta_json_skip(&j);
		}
	}
	fine = fine && meta_json_done(&j);
	meta_json_fini(&j);
	return fine;
}
