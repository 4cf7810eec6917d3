/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "meta/meta_auth_file.h"
#include "meta/meta_zookeeper_acl.h"
#include "meta/meta_zookeeper_int.h"
#include "meta/meta_zookeeper_servers.h"
#include "util/err.h"
#include "util/settings.h"
#include "util/thread.h"

/*
 * The functions of the ZooKeeper back end that meta_store.c calls. The design
 * notes are in meta_zookeeper_int.h.
 */

static struct zk *zk_new(struct tei_meta_store *store)
{
	struct zk *zk = calloc(1, sizeof(*zk));

	if (!zk)
		return NULL;
	zk->store = store;
	zk->settings = store->settings;
	tei_mutex_init(&zk->lock);
	tei_cond_init(&zk->cond);
	tei_list_init(&zk->calls);
	tei_list_init(&zk->entries);
	zk_watches_init(zk);
	return zk;
}

static void zk_free(struct zk *zk) TEI_NO_TSA
{
	zk_entries_free(zk);
	zk_watches_free(zk);
	zk_acl_forget(zk);
	pthread_cond_destroy(&zk->cond);
	tei_mutex_fini(&zk->lock);
	if (zk->auth)
		explicit_bzero(zk->auth, strlen(zk->auth));
	free(zk->auth);
	free(zk->servers);
	free(zk->addresses);
	free(zk->chroot);
	free(zk);
}

static int zk_start(struct zk *zk, const char *conn, struct tei_err *err)
{
	uint64_t deadline =
		tei_now_ns() +
		zk->settings->control.connect_timeout_s * TEI_NS_PER_SEC;
	int rc;

	rc = zk_servers_split(conn, &zk->servers, &zk->chroot, err);
	if (!rc)
		zk_servers_where(zk->servers, zk->where);
	if (!rc && *zk->settings->store.zk_auth_file)
		rc = meta_auth_file_read("MOONRAIL_ZK_AUTH_FILE",
					 zk->settings->store.zk_auth_file,
					 &zk->auth, err);
	if (!rc)
		rc = zk_session_open(zk, deadline, err);
	if (rc)
		return rc;
	tei_mutex_lock(&zk->lock);
	rc = tei_thread_start(&zk->keeper, false, zk_keeper_main, zk);
	tei_mutex_unlock(&zk->lock);
	if (!rc)
		return 0;
	zk_session_close(zk);
	return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
			    "no thread for the metadata store");
}

static int zk_open(struct tei_meta_store *store, const char *conn,
		   struct tei_err *err)
{
	struct zk *zk = zk_new(store);
	int rc;

	if (!zk)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for the metadata store");
	rc = zk_start(zk, conn, err);
	if (rc)
		zk_free(zk);
	else
		store->backend_state = zk;
	return rc;
}

/* Closes the back end. The caller has withdrawn all names. Nodes that could not
 * be deleted disappear when the session ends. */
static void zk_close(struct tei_meta_store *store)
{
	struct zk *zk = store->backend_state;

	tei_mutex_lock(&zk->lock);
	zk->stop = true;
	pthread_cond_broadcast(&zk->cond);
	tei_mutex_unlock(&zk->lock);
	pthread_join(zk->keeper, NULL);
	zk_session_close(zk);
	zk_free(zk);
}

const struct meta_store_ops meta_zookeeper_ops = {
	.scheme = "zookeeper",
	.caps = TEI_META_KEEPS | TEI_META_REPORTS,
	.open = zk_open,
	.close = zk_close,
	.publish = zk_publish,
	.inline_max = zk_inline_max,
	.owns = zk_owns,
	.withdraw = zk_withdraw,
	.fetch = zk_fetch,
	.resolve = zk_resolve,
	.watch = zk_watch,
	.notify_again = zk_notify_again,
	.check = zk_check,
	.persistent_read = zk_persistent_read,
	.persistent_write = zk_persistent_write,
	.list = zk_list,
};
