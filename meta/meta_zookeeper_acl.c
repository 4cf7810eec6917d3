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
 * Trust in nodes. A user who may change a folder can create and delete nodes in
 * it. Folders are persistent: a folder that was created without credentials
 * stays open to all users, even if nodes with access control are created in it
 * later. Therefore all folders from "mooncake" downwards are checked. The node
 * itself is checked too, because another user may have created it before its
 * folder was protected.
 *
 * If only this user may change a folder, this remains true until the folder is
 * deleted. Only this user's credentials allow that, but an operator may have
 * them too. The next folder of the same name may have other permissions.
 * Therefore folders are watched, and an event of a folder makes the store check
 * all folders again. A session receives an event before any answer that was
 * computed after the event. Therefore folders are checked once more after a
 * node was read or created; this costs a request only if an event has arrived.
 */

static bool zk_closed_known(struct zk *zk, const char *dir, uint64_t *epoch)
{
	bool known = false;
	int i;

	tei_mutex_lock(&zk->lock);
	*epoch = zk->closed_epoch;
	for (i = 0; i < ZK_CLOSED; i++)
		known = known || (zk->closed[i] && !strcmp(zk->closed[i], dir));
	tei_mutex_unlock(&zk->lock);
	return known;
}

static void zk_closed_note(struct zk *zk, const char *dir, uint64_t epoch)
{
	char **at;

	tei_mutex_lock(&zk->lock);
	at = &zk->closed[zk->closed_next % ZK_CLOSED];
	if (epoch == zk->closed_epoch) {
		zk->closed_next++;
		free(*at);
		*at = strdup(dir);
	}
	tei_mutex_unlock(&zk->lock);
}

void zk_acl_forget(struct zk *zk)
{
	int i;

	zk->closed_epoch++;
	for (i = 0; i < ZK_CLOSED; i++) {
		free(zk->closed[i]);
		zk->closed[i] = NULL;
	}
}

void zk_folders_gone(struct zk *zk)
{
	tei_mutex_lock(&zk->lock);
	zk_acl_forget(zk);
	tei_mutex_unlock(&zk->lock);
}

/*
 * Fills err for a folder that is not trusted. "shown" is true if the
 * permissions of the folder could be read, and false if this user has no access
 * to the folder.
 */
static int zk_folder_refuse(const struct zk *zk, const char *dir,
			    const char *name, bool shown, struct tei_err *err)
{
	char hint[TEI_ERR_TEXT], who[48] = "";

	if (name)
		snprintf(who, sizeof(who), "segment '%.32s': ", name);
	if (!shown) {
		tei_err_fail(
			err, TEI_ERR_METADATA, "meta",
			"a wrong password, or another user's folder: give that "
			"user's user:password, or take another chroot",
			"%sZooKeeper %s does not let the user of "
			"MOONRAIL_ZK_AUTH_FILE read %.48s",
			who, zk->where, dir);
		return ZK_REPORTED;
	}
	snprintf(hint, sizeof(hint),
		 "zkCli.sh: addauth digest USER:PASSWORD, setAcl -R %.48s/mooncake auth::cdrwa; or take another chroot",
		 zk->chroot);
	tei_err_fail(err, TEI_ERR_METADATA, "meta", hint,
		     "%sZooKeeper %s: other users than that of "
		     "MOONRAIL_ZK_AUTH_FILE may change %.48s",
		     who, zk->where, dir);
	return ZK_REPORTED;
}

static int zk_folder_ours(struct zk *zk, const char *dir, const char *name,
			  uint64_t deadline_ns, struct tei_err *err)
{
	bool ours = false;
	struct Stat stat;
	uint64_t epoch;
	int rc;

	if (zk_closed_known(zk, dir, &epoch))
		return ZOK;
	rc = zk_get_acl(zk, dir, ZK_WATCH_FOLDER, deadline_ns, &ours, &stat);
	if (rc == ZNOAUTH || (rc == ZOK && !ours))
		return zk_folder_refuse(zk, dir, name, rc == ZOK, err);
	if (rc == ZOK)
		zk_closed_note(zk, dir, epoch);
	return rc;
}

int zk_folders_ours(struct zk *zk, const char *path, const char *name,
		    uint64_t deadline_ns, struct tei_err *err)
{
	size_t last = (size_t)(strrchr(path, '/') - path);
	char *dir = zk->auth ? strdup(path) : NULL, *p;
	int rc = zk->auth && !dir ? ZSYSTEMERROR : ZOK;

	for (p = dir ? dir + strlen(zk->chroot) : NULL;
	     p && rc == ZOK && p != dir + last; *p = '/') {
		p = strchr(p + 1, '/');
		*p = 0;
		rc = zk_folder_ours(zk, dir, name, deadline_ns, err);
	}
	free(dir);
	return rc;
}

/*
 * Checks that only this user may change the node at path and its folders.
 * "read" is the state of the node when it was read. Returns ZBADVERSION if the
 * node was replaced since then.
 */
static int zk_node_ours(struct zk *zk, const char *path, const char *name,
			const struct Stat *read, uint64_t deadline_ns,
			struct tei_err *err)
{
	bool ours = false;
	struct Stat stat;
	int rc;

	rc = zk_folders_ours(zk, path, name, deadline_ns, err);
	if (rc == ZOK)
		rc = zk_get_acl(zk, path, ZK_WATCH_NONE, deadline_ns, &ours,
				&stat);
	if (rc == ZNONODE || (rc == ZOK && (stat.czxid != read->czxid ||
					    stat.aversion != read->aversion)))
		return ZBADVERSION;
	if (rc != ZOK || ours)
		return rc;
	tei_err_fail(
		err, TEI_ERR_METADATA, "meta",
		"its publisher uses no MOONRAIL_ZK_AUTH_FILE, or one with other "
		"credentials",
		"segment '%.32s': ZooKeeper %s: another user may have written "
		"%.64s",
		name, zk->where, path);
	return ZK_REPORTED;
}

/* Returns the result for a node that does not exist: ZNONODE if no other user
 * can have deleted it, or ZK_REPORTED if another user may have done so. */
static int zk_none_ours(struct zk *zk, const char *path, const char *name,
			uint64_t deadline_ns, struct tei_err *err)
{
	int rc = zk_folders_ours(zk, path, name, deadline_ns, err);

	return rc == ZOK ? ZNONODE : rc;
}

int zk_get_ours(struct zk *zk, const char *path, const char *name,
		enum zk_watch_kind watch, uint64_t deadline_ns,
		struct zk_reply *out, struct tei_err *err)
{
	struct zk_reply r;
	int rc;

	for (;;) {
		rc = zk_get(zk, path, watch, deadline_ns, &r);
		if (rc == ZOK && zk->auth)
			rc = zk_node_ours(zk, path, name, &r.stat, deadline_ns,
					  err);
		else if (rc == ZNONODE)
			return zk_none_ours(zk, path, name, deadline_ns, err);
		else if (rc != ZOK)
			return rc;
		if (rc == ZOK)
			break;
		free(r.data);
		if (rc != ZBADVERSION)
			return rc;
		if (tei_now_ns() >= deadline_ns)
			return ZOPERATIONTIMEOUT;
	}
	*out = r;
	return ZOK;
}

/*
 * Checks the folder that contains path. With credentials, checks that only this
 * user may change the folder. Without credentials, checks that this user can
 * read it.
 */
static int zk_check_folder(struct zk *zk, char *path, uint64_t deadline_ns,
			   struct tei_err *err)
{
	struct zk_reply r;
	int rc;

	rc = zk_folders_ours(zk, path, NULL, deadline_ns, err);
	*strrchr(path, '/') = 0;
	if (rc == ZOK && !zk->auth) {
		rc = zk_get(zk, path, ZK_WATCH_NONE, deadline_ns, &r);
		if (rc == ZOK)
			free(r.data);
	}
	return rc == ZOK || rc == ZNONODE ? 0 :
	       zk_fail(zk, rc, "folder", path, err);
}

int zk_check(struct tei_meta_store *store, uint64_t deadline_ns,
	     struct tei_err *err)
{
	struct zk *zk = store->backend_state;
	char *paths[] = {
		zk_path_ram(zk, "x"),
		zk_path_rpc(zk, "x"),
		zk_path_ownership(zk, "x", 0),
		zk_path_ram(zk, TEI_META_PERSISTENT "x"),
	};
	int rc = 0;
	size_t i;

	for (i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		if (!rc && !paths[i])
			rc = tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
					  "ZooKeeper %s: no keys below chroot '%.64s'",
					  zk->where, zk->chroot);
		if (!rc)
			rc = zk_check_folder(zk, paths[i], deadline_ns, err);
		free(paths[i]);
	}
	return rc;
}
