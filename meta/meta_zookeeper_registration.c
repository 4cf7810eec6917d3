/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_record.h"
#include "meta/meta_zookeeper_acl.h"
#include "meta/meta_zookeeper_call.h"
#include "meta/meta_zookeeper_int.h"
#include "meta/meta_zookeeper_owner.h"
#include "meta/meta_zookeeper_record.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_server.h"
#include "util/err.h"
#include "util/log.h"
#include "util/settings.h"

/*
 * The names that this process publishes. Only the thread with the writer's
 * token creates, replaces or deletes nodes, so that callers and the keeper do
 * not interfere. If several processes want the same name, the ownership node
 * decides which of them gets it; see meta_zookeeper_int.h.
 *
 * The text of the latest call of zk_publish is the one that the nodes are to
 * contain. If no server answers that call, the call fails, but the keeper
 * publishes the text later.
 */

#define ZK_LOST_HINT                                                     \
	"this process was suspended or could not reach ZooKeeper, that " \
	"process could not reach it, or another user deleted its nodes"

bool zk_must_stop_unlocked(struct zk *zk, uint64_t deadline_ns)
{
	bool over;

	tei_mutex_lock(&zk->lock);
	over = zk_must_stop(zk, deadline_ns);
	tei_mutex_unlock(&zk->lock);
	return over;
}

/* --- the writer's token -------------------------------------------------- */

static bool zk_writer_take(struct zk *zk, uint64_t deadline_ns)
{
	bool taken;

	tei_mutex_lock(&zk->lock);
	while (zk->writing && !zk_must_stop(zk, deadline_ns))
		tei_mutex_wait(&zk->cond, &zk->lock, tei_ns_left(deadline_ns));
	taken = !zk->writing && !zk->stop;
	if (taken)
		zk->writing = true;
	tei_mutex_unlock(&zk->lock);
	return taken;
}

static void zk_writer_give(struct zk *zk)
{
	tei_mutex_lock(&zk->lock);
	zk->writing = false;
	pthread_cond_broadcast(&zk->cond);
	tei_mutex_unlock(&zk->lock);
}

/* --- entries ------------------------------------------------------------- */

static void zk_entry_free(struct zk_entry *e)
{
	free(e->name);
	free(e->ram);
	free(e->rpc);
	free(e->ownership);
	free(e->text);
	free(e->rpc_text);
	free(e);
}

static struct zk_entry *zk_entry_new(struct zk *zk, const char *name)
{
	struct tei_meta_server *server = zk->store->server;
	uint64_t incarnation = tei_meta_server_incarnation(server);
	struct zk_entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	tei_list_init(&e->link);
	e->name = strdup(name);
	e->ram = zk_path_ram(zk, name);
	e->rpc = zk_path_rpc(zk, name);
	e->ownership = zk_path_ownership(zk, name, incarnation);
	e->rpc_text =
		meta_rpc_encode(tei_meta_server_host(server),
				tei_meta_server_port(server), incarnation);
	if (e->name && e->ram && e->rpc && e->ownership && e->rpc_text)
		return e;
	zk_entry_free(e);
	return NULL;
}

/* Returns the entry of name, or NULL if there is none. The caller has the
 * writer's token; the entry is valid as long as the caller has it. */
static struct zk_entry *zk_entry_find(struct zk *zk, const char *name)
{
	struct zk_entry *e, *found = NULL;

	tei_mutex_lock(&zk->lock);
	tei_list_foreach(e, &zk->entries, struct zk_entry, link)
		if (!strcmp(e->name, name))
			found = e;
	tei_mutex_unlock(&zk->lock);
	return found;
}

static void zk_entry_mark(struct zk *zk, struct zk_entry *e, bool held,
			  bool dirty)
{
	tei_mutex_lock(&zk->lock);
	e->registered = held;
	e->dirty = dirty;
	e->lost = e->lost && !held;
	tei_mutex_unlock(&zk->lock);
}

bool zk_entries_dirty(struct zk *zk)
{
	struct zk_entry *e;

	tei_list_foreach(e, &zk->entries, struct zk_entry, link)
		if (e->dirty)
			return true;
	return false;
}

void zk_entries_check_now(struct zk *zk)
{
	struct zk_entry *e;

	tei_list_foreach(e, &zk->entries, struct zk_entry, link)
		if (e->registered)
			e->check_ns = 1;
}

void zk_entries_unregistered(struct zk *zk)
{
	struct zk_entry *e;

	tei_list_foreach(e, &zk->entries, struct zk_entry, link) {
		e->dirty = e->dirty || e->registered;
		e->registered = false;
		e->check_ns = 0;
	}
}

void zk_entries_free(struct zk *zk) TEI_NO_TSA
{
	struct zk_entry *e, *tmp;

	tei_list_foreach_safe(e, tmp, &zk->entries, struct zk_entry, link)
		zk_entry_free(e);
	tei_list_init(&zk->entries);
}

/*
 * Handles an event of a node that this process has registered. If a node was
 * deleted, another user has deleted it: before this process deletes nodes, it
 * removes the entry from the list. If the content of a node has changed, this
 * process has usually written it, and several such changes may follow.
 * Therefore the node is checked a little later.
 */
void zk_own_event(struct zk *zk, int type, const char *path)
{
	uint64_t at = tei_now_ns();
	struct zk_entry *e;

	if (type == ZOO_CHANGED_EVENT)
		at += ZK_CHECK_NS;
	tei_mutex_lock(&zk->lock);
	tei_list_foreach(e, &zk->entries, struct zk_entry, link) {
		if (!strcmp(e->ownership, path)) {
			e->registered = false;
			e->dirty = true;
		} else if (!strcmp(e->ram, path) || !strcmp(e->rpc, path)) {
			if (!e->check_ns || e->check_ns > at)
				e->check_ns = at;
		} else {
			continue;
		}
		pthread_cond_broadcast(&zk->cond);
	}
	tei_mutex_unlock(&zk->lock);
}

uint64_t zk_entries_check_due(struct zk *zk)
{
	struct zk_entry *e;
	uint64_t at = 0;

	tei_list_foreach(e, &zk->entries, struct zk_entry, link)
		if (e->registered && e->check_ns && (!at || e->check_ns < at))
			at = e->check_ns;
	return at;
}

/* --- folders ------------------------------------------------------------- */

int zk_folders(struct zk *zk, const char *path, uint64_t deadline_ns)
{
	const char *last = strrchr(zk->chroot, '/');
	size_t above = last ? (size_t)(last - zk->chroot) : 0, n;
	char *copy = strdup(path), *p;
	int rc = copy ? ZOK : ZSYSTEMERROR;

	for (p = copy; rc == ZOK && (p = strchr(p + 1, '/'));) {
		n = (size_t)(p - copy);
		*p = 0;
		rc = zk_mkdir(zk, copy, n <= above, deadline_ns);
		if (rc == ZNODEEXISTS)
			rc = ZOK;
		*p = '/';
	}
	free(copy);
	return rc;
}

int zk_folders_make(struct zk *zk, const char *path, const char *name,
		    uint64_t deadline_ns, struct tei_err *err)
{
	int rc = zk->auth ? zk_folders_ours(zk, path, name, deadline_ns, err) :
		 ZNONODE;

	if (rc != ZNONODE)
		return rc;
	rc = zk_folders(zk, path, deadline_ns);
	if (rc == ZOK)
		rc = zk_folders_ours(zk, path, name, deadline_ns, err);
	return rc;
}

static int zk_entry_folders(struct zk *zk, const struct zk_entry *e,
			    uint64_t deadline_ns, struct tei_err *err)
{
	int rc = zk_folders_make(zk, e->ram, e->name, deadline_ns, err);

	if (rc == ZOK)
		rc = zk_folders_make(zk, e->rpc, e->name, deadline_ns, err);
	if (rc == ZOK)
		rc = zk_folders_make(zk, e->ownership, e->name, deadline_ns, err);
	return rc;
}

/* Logs once that all users can read and change the nodes, if this process has
 * no credentials. */
static void zk_log_open(struct zk *zk)
{
	bool logged;

	tei_mutex_lock(&zk->lock);
	logged = zk->open_logged;
	zk->open_logged = true;
	tei_mutex_unlock(&zk->lock);
	if (logged || zk->auth)
		return;
	if (zk->store->secret)
		TEI_WARN("meta",
			 "ZooKeeper %s: the shared secret covers keys and fabric addresses; every client can read and change names and control channels; MOONRAIL_ZK_AUTH_FILE restricts access",
			 zk->servers);
	else
		TEI_INFO("meta",
			 "ZooKeeper %s: every client can read and change the published nodes; MOONRAIL_ZK_AUTH_FILE restricts access",
			 zk->servers);
}

/* --- registration of a name ---------------------------------------------- */

static int zk_op_create(struct zk *zk, const struct zk_entry *e, zoo_op_t *ops)
{
	const struct ACL_vector *acl = zk_acl(zk);

	zoo_create_op_init(&ops[0], e->ownership, "", 0, acl, ZOO_EPHEMERAL, NULL,
			   0);
	zoo_create_op_init(&ops[1], e->ram, e->text, (int)e->len, acl,
			   ZOO_EPHEMERAL, NULL, 0);
	zoo_create_op_init(&ops[2], e->rpc, e->rpc_text,
			   (int)strlen(e->rpc_text), acl, ZOO_EPHEMERAL, NULL,
			   0);
	return 3;
}

/* Deletes the nodes of the owner h and creates those of this process, in one
 * transaction. */
static int zk_replace(struct zk *zk, const struct zk_entry *e,
		      const struct zk_owner *h, uint64_t deadline_ns)
{
	char *ownership = zk_path_ownership(zk, e->name, h->incarnation);
	zoo_op_t ops[ZK_OPS_MAX];
	int n = 0, rc;

	if (!ownership)
		return ZSYSTEMERROR;
	if (h->ownership)
		zoo_delete_op_init(&ops[n++], ownership, -1);
	if (h->ram_version >= 0)
		zoo_delete_op_init(&ops[n++], e->ram, h->ram_version);
	if (h->rpc_version >= 0)
		zoo_delete_op_init(&ops[n++], e->rpc, h->rpc_version);
	n += zk_op_create(zk, e, &ops[n]);
	rc = zk_multi(zk, ops, n, deadline_ns, NULL);
	free(ownership);
	return rc;
}

static int zk_refuse(struct zk *zk, struct zk_entry *e,
		     const struct zk_owner *h, struct tei_err *err)
{
	char who[ZK_WHO];

	if (h->folder)
		return tei_err_fail(err, TEI_ERR_METADATA, "meta",
				    "choose another server name",
				    "segment '%.24s': the name is in use as a folder of names that begin with '%.24s/'",
				    e->name, e->name);
	zk_owner_text(h, who, sizeof(who));
	tei_mutex_lock(&zk->lock);
	snprintf(e->lost_to, sizeof(e->lost_to), "%s", who);
	tei_mutex_unlock(&zk->lock);
	if (e->announced)
		return tei_err_fail(err, TEI_ERR_METADATA, "meta",
				    ZK_LOST_HINT,
				    "segment '%.24s' was lost to %s", e->name,
				    who);
	if (h->blocks)
		return tei_err_fail(err, TEI_ERR_METADATA, "meta",
				    "delete that node, end the process that "
				    "made it, or choose another server name",
				    "segment '%.24s': ZooKeeper node %.96s of "
				    "session 0x%" PRIx64
				    " contains no address to query, and that "
				    "session is alive",
				    e->name, h->blocks, (uint64_t)h->session);
	return tei_err_fail(err, TEI_ERR_METADATA, "meta",
			    "choose another server name, or end that process",
			    "segment '%.24s' is held by %s", e->name, who);
}

/* Deletes the ownership node of this process for a name that another process
 * owns. */
static void zk_drop_ownership(struct zk *zk, const struct zk_entry *e,
			  uint64_t deadline_ns)
{
	zoo_op_t op;

	zoo_delete_op_init(&op, e->ownership, -1);
	zk_multi(zk, &op, 1, deadline_ns, NULL);
}

/*
 * Returns true if the calling thread is the keeper, this process has owned the
 * name before, and another moonrail process has registered it since. In this
 * case the keeper must not take the name over, because two processes that
 * cannot reach each other would take it from one another forever. A caller of
 * zk_publish may take it over.
 */
static bool zk_succeeded(const struct zk *zk, const struct zk_entry *e,
			 const struct zk_owner *h)
{
	return e->announced && h->ownership &&
	       pthread_equal(pthread_self(), zk->keeper);
}

/*
 * Called if nodes of the name exist already. Reads their owner into *h and
 * replaces them if that owner is not alive. Returns ZOK if this process owns
 * the name now. If the owner keeps the name, sets *alive to true. Otherwise,
 * the caller must try again after a transient result, ZNONODE, ZNODEEXISTS or
 * ZBADVERSION.
 */
static int zk_take_over(struct zk *zk, struct zk_entry *e,
			uint64_t deadline_ns, struct zk_owner *h, bool *alive)
{
	uint64_t own = tei_meta_server_incarnation(zk->store->server);
	char who[ZK_WHO];
	int rc;

	rc = zk_owner_read(zk, e, deadline_ns, h);
	if (rc != ZOK)
		return rc;
	if (h->folder || h->incarnation != own) {
		if (e->announced)
			zk_drop_ownership(zk, e, deadline_ns);
		*alive = zk_succeeded(zk, e, h) ||
			 zk_owner_alive(h, own, zk->store->secret,
					 deadline_ns);
		if (*alive)
			return ZNODEEXISTS;
	}
	/*
	 * if there is no ownership node that the transaction could check, the
	 * nodes are read again, because their versions do not show which
	 * process has created them
	 */
	rc = h->ownership ? ZOK : zk_owner_same(zk, e, h, deadline_ns);
	if (rc == ZOK)
		rc = zk_replace(zk, e, h, deadline_ns);
	/* if the owner's address is the one of this process, another user has
	 * overwritten a node of this process, and no line is logged */
	if (rc == ZOK && h->incarnation != own &&
	    strcmp(h->endpoint, tei_meta_server_name(zk->store->server))) {
		zk_owner_text(h, who, sizeof(who));
		TEI_WARN("meta", "segment '%s': taken over from %s, which does not answer",
			 e->name, who);
	}
	return rc;
}

static bool zk_check_again(int rc)
{
	return zk_transient(rc) || rc == ZNONODE || rc == ZNODEEXISTS ||
	       rc == ZBADVERSION;
}

/* Sets the watches on the three nodes of the name. Returns false if the nodes
 * do not all exist and belong to this process's session. */
static bool zk_watch_own(struct zk *zk, const struct zk_entry *e,
			 uint64_t deadline_ns)
{
	const char *const paths[] = { e->ownership, e->ram, e->rpc };
	int64_t own = zk_session_id(zk);
	struct Stat stat[3];

	return zk_exists_all(zk, paths, 3, ZK_WATCH_OWN, deadline_ns, stat) ==
		       ZOK &&
	       stat[0].ephemeralOwner == own && stat[1].ephemeralOwner == own &&
	       stat[2].ephemeralOwner == own;
}

/* Deletes the nodes of this process. Nodes that cannot be deleted by the
 * deadline disappear when the session ends. */
static int zk_delete(struct zk *zk, const struct zk_entry *e,
		     uint64_t deadline_ns)
{
	zoo_op_t ops[3];
	int rc;

	zoo_delete_op_init(&ops[0], e->ownership, -1);
	zoo_delete_op_init(&ops[1], e->ram, -1);
	zoo_delete_op_init(&ops[2], e->rpc, -1);
	do
		rc = zk_multi(zk, ops, 3, deadline_ns, NULL);
	while (zk_transient(rc) && !zk_must_stop_unlocked(zk, deadline_ns));
	return rc;
}

/* Called after the nodes of a name were created. Checks their folders again,
 * and deletes the nodes if other users may change a folder. */
static int zk_made(struct zk *zk, const struct zk_entry *e,
		   uint64_t deadline_ns, struct tei_err *err)
{
	int rc = zk_folders_ours(zk, e->ram, e->name, deadline_ns, err);

	if (rc == ZOK)
		rc = zk_folders_ours(zk, e->rpc, e->name, deadline_ns, err);
	if (rc == ZOK)
		rc = zk_folders_ours(zk, e->ownership, e->name, deadline_ns, err);
	if (rc == ZK_REPORTED)
		zk_delete(zk, e, deadline_ns);
	return rc;
}

/*
 * Called when the name is registered. Marks the entry as registered and sets
 * watches on its nodes. If the nodes do not belong to this process any longer,
 * marks the entry as dirty, so that the keeper registers the name again.
 */
static void zk_registered(struct zk *zk, struct zk_entry *e, uint64_t deadline_ns)
{
	e->announced = true;
	zk_entry_mark(zk, e, true, false);
	if (!zk_watch_own(zk, e, deadline_ns))
		zk_entry_mark(zk, e, false, true);
	zk_log_open(zk);
}

/*
 * Registers the name: creates its nodes, or takes them over from an owner that
 * is not alive. Sets *refused to true if another process keeps the name. After
 * any other failure, the nodes may exist, because an answer may be lost.
 */
static int zk_register(struct zk *zk, struct zk_entry *e, uint64_t deadline_ns,
		    bool *refused, struct tei_err *err)
{
	zoo_op_t ops[ZK_OPS_MAX];
	struct zk_owner h;
	int n = zk_op_create(zk, e, ops), rc;
	bool folders, asked = false;

	*refused = false;
	do {
		/* the folders are checked before a node is created, because
		 * other users could read the node in an open folder */
		rc = zk->auth ? zk_entry_folders(zk, e, deadline_ns, err) : ZOK;
		if (rc == ZOK)
			rc = zk_multi(zk, ops, n, deadline_ns, NULL);
		folders = rc == ZNONODE;
		if (folders) {
			zk_folders_gone(zk);
			rc = zk_entry_folders(zk, e, deadline_ns, err);
		} else if (rc == ZNODEEXISTS) {
			/* the deadline is extended once, by the time that a
			 * PING to the owner may take */
			deadline_ns += asked ? 0 : ZK_PING_NS;
			asked = true;
			rc = zk_take_over(zk, e, deadline_ns, &h, refused);
		}
		if (*refused)
			return zk_refuse(zk, e, &h, err);
		if (rc == ZOK && !folders)
			rc = zk_made(zk, e, deadline_ns, err);
	} while ((zk_check_again(rc) || (folders && rc == ZOK)) &&
		 !zk_must_stop_unlocked(zk, deadline_ns));
	if (rc == ZOK && !folders) {
		e->rpc_moved = false;
		zk_registered(zk, e, deadline_ns);
		return 0;
	}
	if (rc == ZOK || zk_check_again(rc))
		rc = ZOPERATIONTIMEOUT;
	return zk_fail(zk, rc, "publishing", e->name, err);
}

/*
 * Writes e->text, and e->rpc_text if it has changed, to the nodes of a
 * registered name. Returns ZNONODE if this process does not own the name any
 * longer.
 */
static int zk_replace_text(struct zk *zk, const struct zk_entry *e,
			   uint64_t deadline_ns)
{
	int rc, n = e->rpc_moved ? 3 : 2;
	zoo_op_t ops[3];

	zoo_check_op_init(&ops[0], e->ownership, -1);
	zoo_set_op_init(&ops[1], e->ram, e->text, (int)e->len, -1, NULL);
	if (e->rpc_moved)
		zoo_set_op_init(&ops[2], e->rpc, e->rpc_text,
				(int)strlen(e->rpc_text), -1, NULL);
	do
		rc = zk_multi(zk, ops, n, deadline_ns, NULL);
	while (zk_transient(rc) && !zk_must_stop_unlocked(zk, deadline_ns));
	return rc;
}

static bool zk_entry_held(struct zk *zk, const struct zk_entry *e)
{
	bool held;

	tei_mutex_lock(&zk->lock);
	held = e->registered;
	tei_mutex_unlock(&zk->lock);
	return held;
}

/* Publishes the text of e. Registers the name first if it is not registered. */
static int zk_bring(struct zk *zk, struct zk_entry *e, uint64_t deadline_ns,
		    bool *refused, struct tei_err *err)
{
	int rc = ZNONODE;

	*refused = false;
	if (zk_entry_held(zk, e))
		rc = zk_replace_text(zk, e, deadline_ns);
	if (rc == ZOK) {
		e->rpc_moved = false;
		tei_mutex_lock(&zk->lock);
		e->dirty = e->dirty && !e->registered;
		tei_mutex_unlock(&zk->lock);
		return 0;
	}
	/* ZNOAUTH means that another user has changed the permissions of the
	 * node */
	if (rc == ZNONODE || rc == ZNOAUTH)
		return zk_register(zk, e, deadline_ns, refused, err);
	return zk_fail(zk, rc, "publishing", e->name, err);
}

/* --- calls of the store -------------------------------------------------- */

static int zk_encode(struct zk *zk, const struct tei_meta_desc *desc,
		     const char *json, size_t len, char **text, size_t *n,
		     struct tei_err *err)
{
	bool closed = zk->store->secret != NULL;

	if (closed || !json || len > ZK_INLINE_MAX)
		return meta_head_encode(desc,
					tei_meta_server_name(zk->store->server),
					closed, text, n, err);
	*text = strndup(json, len);
	*n = len;
	return *text ? 0 : tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
					"no memory to publish '%.64s'",
					desc->name);
}

/*
 * Returns an error if the keeper has found that another process has taken the
 * name over, and 0 otherwise. If "report_loss" is true, the loss counts as
 * reported afterwards: the next call with report_loss returns 0, so that its
 * caller may register the name again.
 */
static int zk_report_lost(struct zk *zk, struct zk_entry *e, bool report_loss,
			  struct tei_err *err)
{
	char who[ZK_WHO] = "";

	tei_mutex_lock(&zk->lock);
	if (e->lost && (e->loss_unreported || !report_loss))
		snprintf(who, sizeof(who), "%s", e->lost_to);
	if (report_loss)
		e->loss_unreported = false;
	tei_mutex_unlock(&zk->lock);
	if (!*who)
		return 0;
	return tei_err_fail(err, TEI_ERR_METADATA, "meta",
			    ZK_LOST_HINT,
			    "segment '%.24s' was lost to %s", e->name, who);
}

/*
 * If the address of this process's control channel has changed, creates the
 * content of the rpc_meta node again, and sets e->rpc_moved, so that it is
 * written. Returns false if memory is short.
 */
static bool zk_entry_rpc(struct zk *zk, struct zk_entry *e)
{
	struct tei_meta_server *server = zk->store->server;
	char *text = meta_rpc_encode(tei_meta_server_host(server),
				     tei_meta_server_port(server),
				     tei_meta_server_incarnation(server));

	if (!text)
		return false;
	if (!strcmp(text, e->rpc_text)) {
		free(text);
		return true;
	}
	free(e->rpc_text);
	e->rpc_text = text;
	e->rpc_moved = true;
	return true;
}

/* Publishes text under name and takes ownership of text. The caller has the
 * writer's token. */
static int zk_publish_text(struct zk *zk, const char *name, char *text,
			   size_t len, bool report_loss, uint64_t deadline_ns,
			   struct tei_err *err)
{
	struct zk_entry *e = zk_entry_find(zk, name);
	bool refused, known = e != NULL;
	int rc;

	if (!e)
		e = zk_entry_new(zk, name);
	else if (!zk_entry_rpc(zk, e)) {
		free(text);
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory to publish '%.64s'", name);
	}
	if (!e) {
		free(text);
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "segment '%.64s': the name is not valid "
				    "for a key of the metadata store",
				    name);
	}
	free(e->text);
	e->text = text; /* the text belongs to the entry from now on */
	e->len = len;
	rc = known ? zk_report_lost(zk, e, report_loss, err) : 0;
	if (rc)
		return rc;
	if (!known) {
		tei_mutex_lock(&zk->lock);
		tei_list_add_tail(&zk->entries, &e->link);
		tei_mutex_unlock(&zk->lock);
	}
	rc = zk_bring(zk, e, deadline_ns, &refused, err);
	if (!rc)
		return 0;
	/* the keeper repeats the publication only after failures that may be
	 * temporary */
	zk_entry_mark(zk, e, !refused && zk_entry_held(zk, e),
		      rc == TEI_ERR_SOCKET);
	return rc;
}

int zk_publish(struct tei_meta_store *store, const struct tei_meta_desc *desc,
	       const char *json, size_t len, bool report_loss,
	       uint64_t deadline_ns, struct tei_err *err)
{
	struct zk *zk = store->backend_state;
	char *text;
	size_t n;
	int rc;

	rc = zk_encode(zk, desc, json, len, &text, &n, err);
	if (rc)
		return rc;
	if (!zk_writer_take(zk, deadline_ns)) {
		free(text);
		return zk_fail(zk, ZOPERATIONTIMEOUT, "publishing", desc->name,
			       err);
	}
	rc = zk_publish_text(zk, desc->name, text, n, report_loss, deadline_ns,
			     err);
	zk_writer_give(zk);
	return rc;
}

size_t zk_inline_max(const struct tei_meta_store *store)
{
	return store->secret ? 0 : ZK_INLINE_MAX;
}

bool zk_owns(struct tei_meta_store *store, const char *name)
{
	struct zk *zk = store->backend_state;
	struct zk_entry *e;
	bool owns = false;

	tei_mutex_lock(&zk->lock);
	if (zk->connected && !zk->expired)
		tei_list_foreach(e, &zk->entries, struct zk_entry, link)
			if (!strcmp(e->name, name))
				owns = e->registered && !e->dirty && !e->lost;
	tei_mutex_unlock(&zk->lock);
	return owns;
}

int zk_withdraw(struct tei_meta_store *store, const char *name,
		uint64_t deadline_ns, struct tei_err *err)
{
	struct zk *zk = store->backend_state;
	uint64_t until;
	struct zk_entry *e;
	bool ours = false;
	int rc = ZOK;

	if (!zk_writer_take(zk, deadline_ns))
		return zk_fail(zk, ZOPERATIONTIMEOUT, "withdrawing", name,
			       err);
	e = zk_entry_find(zk, name);
	if (e) {
		tei_mutex_lock(&zk->lock);
		tei_list_del(&e->link);
		ours = e->registered || e->dirty;
		tei_mutex_unlock(&zk->lock);
	}
	/* waits for a connection for one second at most */
	until = tei_now_ns() + TEI_NS_PER_SEC;
	if (ours)
		rc = zk_delete(zk, e, until < deadline_ns ? until : deadline_ns);
	if (e)
		zk_entry_free(e);
	zk_writer_give(zk);
	if (rc == ZOK || rc == ZNONODE)
		return 0;
	return zk_fail(zk, rc, "withdrawing", name, err);
}

/* --- work of the keeper -------------------------------------------------- */

static struct zk_entry *zk_entry_dirty(struct zk *zk)
{
	struct zk_entry *e, *found = NULL;

	tei_mutex_lock(&zk->lock);
	if (zk->connected && !zk->expired && !zk->stop)
		tei_list_foreach(e, &zk->entries, struct zk_entry, link)
			if (e->dirty && !found)
				found = e;
	tei_mutex_unlock(&zk->lock);
	return found;
}

static void zk_entry_lost(struct zk *zk, struct zk_entry *e)
{
	tei_mutex_lock(&zk->lock);
	e->registered = false;
	e->dirty = false;
	e->lost = e->loss_unreported = true;
	if (!*e->lost_to)
		snprintf(e->lost_to, sizeof(e->lost_to), "another process");
	tei_mutex_unlock(&zk->lock);
}

static bool zk_node_is(struct zk *zk, const char *path, const char *text,
		       size_t len, uint64_t deadline_ns, int *rc)
{
	struct zk_reply r;
	bool unchanged;

	*rc = zk_get(zk, path, ZK_WATCH_OWN, deadline_ns, &r);
	if (*rc != ZOK)
		return false;
	unchanged = r.stat.ephemeralOwner == zk_session_id(zk) &&
		    r.len == len && !memcmp(r.data, text, len);
	free(r.data);
	return unchanged;
}

/*
 * Checks that the nodes of the entry exist and have the content that this
 * process has written, and sets the watches again. Marks the entry as dirty if
 * they do not.
 */
static void zk_check_entry(struct zk *zk, struct zk_entry *e,
			   uint64_t deadline_ns)
{
	int rc;

	if (zk_node_is(zk, e->ownership, "", 0, deadline_ns, &rc) &&
	    zk_node_is(zk, e->ram, e->text, e->len, deadline_ns, &rc) &&
	    zk_node_is(zk, e->rpc, e->rpc_text, strlen(e->rpc_text),
		       deadline_ns, &rc))
		return;
	tei_mutex_lock(&zk->lock);
	if (zk_transient(rc)) {
		e->check_ns = tei_now_ns() + ZK_RETRY_NS;
	} else if (e->registered) {
		TEI_WARN("meta",
			 "segment '%s': its nodes in ZooKeeper %s were deleted or replaced; publishing it again",
			 e->name, zk->servers);
		e->registered = false;
		e->dirty = true;
	}
	tei_mutex_unlock(&zk->lock);
}

/*
 * Returns the next entry whose check is due. Skips dirty entries, because the
 * keeper publishes them anyway.
 */
static struct zk_entry *zk_check_due(struct zk *zk)
{
	uint64_t now = tei_now_ns();
	struct zk_entry *e, *found = NULL;

	tei_mutex_lock(&zk->lock);
	if (zk->connected && !zk->expired && !zk->stop)
		tei_list_foreach(e, &zk->entries, struct zk_entry, link)
			if (e->registered && !e->dirty && e->check_ns &&
			    e->check_ns <= now && !found)
				found = e;
	if (found)
		found->check_ns = 0;
	tei_mutex_unlock(&zk->lock);
	return found;
}

/* Publishes one dirty entry. Returns false if this has failed and must be tried
 * again later. */
static bool zk_republish_one(struct zk *zk, struct zk_entry *e,
			     uint64_t deadline_ns)
{
	struct tei_err err;
	bool refused;
	int rc;

	rc = zk_bring(zk, e, deadline_ns, &refused, &err);
	if (!rc)
		TEI_INFO("meta", "segment '%s': published again", e->name);
	else if (refused)
		zk_entry_lost(zk, e);
	else if (rc != TEI_ERR_SOCKET)
		zk_entry_mark(zk, e, false, false);
	return rc != TEI_ERR_SOCKET;
}

void zk_republish(struct zk *zk)
{
	uint64_t deadline =
		tei_now_ns() +
		zk->settings->control.connect_timeout_s * TEI_NS_PER_SEC;
	struct zk_entry *e;
	bool fine = true;

	if (!zk_writer_take(zk, deadline))
		return;
	while ((e = zk_check_due(zk)))
		zk_check_entry(zk, e, deadline);
	while (fine && (e = zk_entry_dirty(zk)))
		fine = zk_republish_one(zk, e, deadline);
	if (!fine)
		zk_retry_later(zk);
	zk_writer_give(zk);
}
