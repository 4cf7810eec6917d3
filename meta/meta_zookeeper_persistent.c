/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_zookeeper_acl.h"
#include "meta/meta_zookeeper_call.h"
#include "meta/meta_zookeeper_int.h"
#include "meta/meta_zookeeper_record.h"
#include "meta/tei_meta_store.h"
#include "util/err.h"

/*
 * Persistent segment records, which are persistent nodes. A write succeeds only
 * if the version of the node is the one that was read. A write does not notice
 * if the node was deleted and created again since the read, and has the same
 * version by chance.
 */

static char *zk_persistent_path(const struct zk *zk, const char *name,
				struct tei_err *err)
{
	char *path = zk_path_ram(zk, name);

	if (!path)
		tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
			     "segment '%.64s': the name is not valid for a key "
			     "of the metadata store",
			     name);
	return path;
}

int zk_persistent_read(struct tei_meta_store *store, const char *name,
		       uint64_t deadline_ns, char **json, size_t *len,
		       int64_t *version, struct tei_err *err)
{
	struct zk *zk = store->backend_state;
	char *path = zk_persistent_path(zk, name, err);
	struct zk_reply r;
	int rc;

	if (!path)
		return TEI_ERR_INVALID;
	rc = zk_get_ours(zk, path, name, ZK_WATCH_NONE, deadline_ns, &r, err);
	free(path);
	if (rc == ZOK) {
		*json = r.data; /* the caller owns the data from now
				 * on */
		*len = r.len;
		*version = r.stat.version;
	} else if (rc == ZNONODE) {
		*json = NULL;
		*len = 0;
		*version = META_ABSENT;
	} else {
		return zk_fail(zk, rc, "segment", name, err);
	}
	return 0;
}

/* Makes one attempt to create, write or delete the node. */
static int zk_persistent_step(struct zk *zk, const char *path, const char *json,
			      size_t len, int64_t version, uint64_t deadline_ns)
{
	zoo_op_t op;

	if (version == META_ABSENT)
		zoo_create_op_init(&op, path, json, (int)len, zk_acl(zk), 0,
				   NULL, 0);
	else if (json)
		zoo_set_op_init(&op, path, json, (int)len, (int)version, NULL);
	else
		zoo_delete_op_init(&op, path, (int)version);
	return zk_multi(zk, &op, 1, deadline_ns, NULL);
}

/*
 * Checks the folders after a node was created in them. Deletes the node if
 * other users may change the folders.
 */
static int zk_persistent_made(struct zk *zk, const char *path, const char *name,
			      uint64_t deadline_ns, struct tei_err *err)
{
	int rc = zk_folders_ours(zk, path, name, deadline_ns, err);

	if (rc == ZK_REPORTED)
		zk_persistent_step(zk, path, NULL, 0, -1, deadline_ns);
	return rc;
}

int zk_persistent_write(struct tei_meta_store *store, const char *name,
			const char *json, size_t len, int64_t version,
			uint64_t deadline_ns, struct tei_err *err)
{
	struct zk *zk = store->backend_state;
	char *path = zk_persistent_path(zk, name, err);
	int rc;

	if (!path)
		return TEI_ERR_INVALID;
	rc = version == META_ABSENT ?
	     zk_folders_make(zk, path, name, deadline_ns, err) : ZOK;
	if (rc == ZOK)
		rc = zk_persistent_step(zk, path, json, len, version,
					deadline_ns);
	if (rc == ZOK && json)
		rc = zk_persistent_made(zk, path, name, deadline_ns, err);
	free(path);
	if (rc == ZOK)
		return 0;
	if (rc == ZNONODE && version == META_ABSENT)
		zk_folders_gone(zk); /* the next attempt creates the folders
				      * again */
	if (rc == ZNODEEXISTS || rc == ZBADVERSION || rc == ZNONODE)
		return META_CONFLICT;
	return zk_fail(zk, rc, "segment", name, err);
}

int zk_list(struct tei_meta_store *store, const char *folder,
	    uint64_t deadline_ns, struct meta_names *names, struct tei_err *err)
{
	struct zk *zk = store->backend_state;
	char any[32], *path, *end;
	int rc;

	snprintf(any, sizeof(any), "%sx", folder);
	path = zk_persistent_path(zk, any, err);
	if (!path)
		return TEI_ERR_INVALID;
	end = strrchr(path, '/');
	*end = 0;
	rc = zk_children(zk, path, deadline_ns, names);
	*end = '/';
	if (rc == ZOK || rc == ZNONODE)
		rc = zk_folders_ours(zk, path, folder, deadline_ns, err);
	free(path);
	if (rc == ZOK || rc == ZNONODE)
		return 0;
	return zk_fail(zk, rc, "segments", folder, err);
}
