/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes and checks the paths of nodes. */
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

/* Returns the path of the ownership node. Slashes in the segment name are
 * escaped, so that the name of the node contains no slash. */
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
