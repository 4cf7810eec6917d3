/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_zookeeper_acl.h"
#include "meta/meta_zookeeper_call.h"
#include "meta/meta_zookeeper_int.h"
#include "util/err.h"
#include "util/settings.h"

/*
 * A call in progress. The caller and the client library each have a reference.
 * The library calls the completion function of a call at most once. After the
 * handle is closed, zk_calls_end ends the calls for which the library has not
 * done so.
 */
struct zk_call {
	struct tei_list link;	    /* element of zk->calls; guarded by
				     * zk->lock */
	struct zk *zk;		    /* does not change */
	struct zk_session *session; /* does not change */
	/* guarded by zk->lock */
	uint32_t refs;
	bool done;
	int rc;
	char *data;
	size_t len;
	struct Stat stat;
	bool ours;
	struct meta_names children;
	char *watched; /* path of the segment's node if the call sets a watch on
			* it, or NULL */
	/* used by the client library until the call is done */
	zoo_op_result_t results[ZK_OPS_MAX];
};

/* The parameters of a call that zk_submit submits. */
struct zk_ask {
	int (*submit)(zhandle_t *zh, const struct zk_ask *ask,
		      struct zk_call *call);
	const char *path;
	watcher_fn watcher;
	const struct ACL_vector *acl;
	const zoo_op_t *ops;
	int count;
	struct meta_names *children; /* list that receives the names of the
				      * children, or NULL */
};

static struct zk_call *zk_call_new(struct zk *zk) TEI_REQUIRES(zk->lock)
{
	struct zk_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->zk = zk;
	c->session = zk->session;
	c->refs = 2;
	tei_list_add_tail(&zk->calls, &c->link);
	return c;
}

static void zk_call_unref(struct zk_call *c) /* c->zk->lock must be held */
{
	if (--c->refs)
		return;
	tei_list_del(&c->link);
	meta_names_free(&c->children);
	free(c->data);
	free(c->watched);
	free(c);
}

/*
 * --- completions, on the library's thread ---
 *
 * The library runs completions and watchers in the order in which the server
 * has sent the answers and events. Therefore the store records that a watch is
 * set before it handles the event of that watch.
 */

static void zk_call_end(struct zk_call *c, int rc) /* c->zk->lock must be
						    * held */
{
	c->done = true;
	c->rc = rc;
	pthread_cond_broadcast(&c->zk->cond);
	zk_call_unref(c);
}

void zk_calls_end(struct zk *zk, const struct zk_session *session)
{
	struct zk_call *c, *tmp;

	tei_list_foreach_safe(c, tmp, &zk->calls, struct zk_call, link)
		if (c->session == session && !c->done)
			zk_call_end(c, ZCLOSING);
}

static void zk_done_void(int rc, const void *arg)
{
	struct zk_call *c = (struct zk_call *)(uintptr_t)arg;
	struct zk *zk = c->zk;

	tei_mutex_lock(&zk->lock);
	zk_call_end(c, rc);
	tei_mutex_unlock(&zk->lock);
}

static void zk_done_string(int rc, const char *value, const void *arg)
{
	(void)value;
	zk_done_void(rc, arg);
}

static void zk_done_stat(int rc, const struct Stat *stat, const void *arg)
{
	struct zk_call *c = (struct zk_call *)(uintptr_t)arg;
	struct zk *zk = c->zk;

	tei_mutex_lock(&zk->lock);
	if (rc == ZOK && stat)
		c->stat = *stat;
	if (c->watched && (rc == ZOK || rc == ZNONODE))
		zk_segment_watched(zk, c->watched, rc == ZOK ? c->stat.mzxid :
				   0);
	zk_call_end(c, rc);
	tei_mutex_unlock(&zk->lock);
}

static void zk_done_data(int rc, const char *value, int len,
			 const struct Stat *stat, const void *arg)
{
	struct zk_call *c = (struct zk_call *)(uintptr_t)arg;
	struct zk *zk = c->zk;

	tei_mutex_lock(&zk->lock);
	if (rc == ZOK && c->watched)
		zk_segment_watched(zk, c->watched, stat->mzxid);
	if (rc == ZOK) {
		c->len = len > 0 ? (size_t)len : 0;
		c->data = malloc(c->len + 1);
		if (c->data) {
			memcpy(c->data, c->len ? value : "", c->len);
			c->data[c->len] = 0;
			c->stat = *stat;
		} else {
			rc = ZSYSTEMERROR;
		}
	}
	zk_call_end(c, rc);
	tei_mutex_unlock(&zk->lock);
}

static void zk_done_strings(int rc, const struct String_vector *strings,
			    const void *arg)
{
	struct zk_call *c = (struct zk_call *)(uintptr_t)arg;
	struct zk *zk = c->zk;
	int i;

	tei_mutex_lock(&zk->lock);
	for (i = 0; rc == ZOK && strings && i < strings->count; i++)
		if (!meta_names_add(&c->children, strings->data[i]))
			rc = ZSYSTEMERROR;
	zk_call_end(c, rc);
	tei_mutex_unlock(&zk->lock);
}

/*
 * Returns true if only this user has access to the node: the access list has
 * one entry, and that entry belongs to this user, because other users could not
 * have read the list.
 */
static bool zk_acl_ours(const struct ACL_vector *acl)
{
	return acl->count == 1 && !strcmp(acl->data[0].id.scheme, "digest") &&
	       acl->data[0].perms == ZOO_PERM_ALL;
}

static void zk_done_acl(int rc, struct ACL_vector *acl, struct Stat *stat,
			const void *arg)
{
	struct zk_call *c = (struct zk_call *)(uintptr_t)arg;
	struct zk *zk = c->zk;

	tei_mutex_lock(&zk->lock);
	if (rc == ZOK) {
		c->ours = zk_acl_ours(acl);
		c->stat = *stat;
	}
	zk_call_end(c, rc);
	tei_mutex_unlock(&zk->lock);
}

/* --- watchers, on the library's thread ----------------------------------- */

/*
 * Callback for an event of a segment's node. The library also calls it for
 * events of the session, which are ignored here because zk_session_event
 * handles them. The watch survives the loss of a connection and ends with the
 * session.
 */
static void zk_on_segment(zhandle_t *zh, int type, int state, const char *path,
			  void *ctx)
{
	struct zk_session *s = ctx;

	(void)zh;
	(void)state;
	if (type != ZOO_SESSION_EVENT)
		zk_segment_event(s->zk, path);
}

static void zk_on_own(zhandle_t *zh, int type, int state, const char *path,
		      void *ctx)
{
	struct zk_session *s = ctx;

	(void)zh;
	(void)state;
	if (type != ZOO_SESSION_EVENT)
		zk_own_event(s->zk, type, path);
}

/* Callback for an event of a folder. Ignores the creation of a folder, because
 * a new folder is not in the list of trusted folders yet. */
static void zk_on_folder(zhandle_t *zh, int type, int state, const char *path,
			 void *ctx)
{
	struct zk_session *s = ctx;

	(void)zh;
	(void)state;
	(void)path;
	if (type != ZOO_SESSION_EVENT && type != ZOO_CREATED_EVENT)
		zk_folders_gone(s->zk);
}

static watcher_fn zk_watcher(enum zk_watch_kind kind)
{
	switch (kind) {
	case ZK_WATCH_FOLDER:
		return zk_on_folder;
	case ZK_WATCH_SEGMENT:
		return zk_on_segment;
	case ZK_WATCH_OWN:
		return zk_on_own;
	case ZK_WATCH_NONE:
		break;
	}
	return NULL;
}

/* --- submitting and waiting ---------------------------------------------- */

bool zk_transient(int rc)
{
	switch (rc) {
	case ZCONNECTIONLOSS:
	case ZOPERATIONTIMEOUT:
	case ZINVALIDSTATE:
	case ZSESSIONEXPIRED:
	case ZSESSIONMOVED:
	case ZCLOSING:
	case ZTHROTTLEDOP:
		return true;
	default:
		return false;
	}
}

bool zk_must_stop(const struct zk *zk, uint64_t deadline_ns)
{
	uint64_t now = tei_now_ns();

	return zk->stop || now >= deadline_ns ||
	       ((zk->expired || (zk->lookup_ns && zk->lookup_ns <= now)) &&
		pthread_equal(pthread_self(), zk->keeper));
}

/* Waits until the session is connected. Returns false if it is not connected by
 * the deadline, or if the caller must stop (zk_must_stop). */
static bool zk_wait_ready(struct zk *zk, uint64_t deadline_ns)
	TEI_REQUIRES(zk->lock)
{
	uint64_t left;

	while ((!zk->connected || zk->expired) &&
	       !zk_must_stop(zk, deadline_ns)) {
		left = tei_ns_left(deadline_ns);
		/*
		 * a wait is limited to ZK_LOOKUP_NS, because zk_must_stop
		 * becomes true for the keeper when the servers' names must be
		 * resolved again
		 */
		tei_mutex_wait(&zk->cond, &zk->lock,
			       left < ZK_LOOKUP_NS ? left : ZK_LOOKUP_NS);
	}
	return zk->connected && !zk->expired && !zk_must_stop(zk, deadline_ns);
}

static int zk_wait_done(struct zk *zk, struct zk_call *c, uint64_t deadline_ns)
	TEI_REQUIRES(zk->lock)
{
	uint64_t now;

	while (!c->done) {
		now = tei_now_ns();
		if (zk->stop || now >= deadline_ns)
			return ZOPERATIONTIMEOUT;
		tei_mutex_wait(&zk->cond, &zk->lock, deadline_ns - now);
	}
	return c->rc;
}

/* Submits a call to the library. If it returns ZOK, *out is the call, which the
 * caller releases with zk_call_unref while it holds zk->lock. */
static int zk_submit(struct zk *zk, const struct zk_ask *ask,
		     struct zk_call **out) TEI_REQUIRES(zk->lock)
{
	struct zk_call *c = zk_call_new(zk);
	int rc;

	if (!c)
		return ZSYSTEMERROR;
	if (ask->watcher == zk_on_segment)
		c->watched = strdup(ask->path);
	rc = ask->watcher == zk_on_segment && !c->watched ? ZSYSTEMERROR :
	     ask->submit(zk->session->zh, ask, c);
	if (rc != ZOK) {
		c->refs = 1; /* without success, the library has no reference to
			      * the call */
		zk_call_unref(c);
		/*
		 * the connection is lost, but the event that reports the loss
		 * has not arrived yet; no call is submitted until there is a
		 * connection again
		 */
		if (rc == ZINVALIDSTATE)
			zk->connected = false;
		return rc;
	}
	*out = c;
	return ZOK;
}

/* Makes one attempt: waits for a connection, submits the call and waits for its
 * result. Sets *out to the call, as zk_submit does, or to NULL. */
static int zk_try(struct zk *zk, const struct zk_ask *ask,
		  uint64_t deadline_ns, struct zk_call **out)
	TEI_REQUIRES(zk->lock)
{
	int rc;

	*out = NULL;
	if (!zk_wait_ready(zk, deadline_ns))
		return ZOPERATIONTIMEOUT;
	rc = zk_submit(zk, ask, out);
	return rc == ZOK ? zk_wait_done(zk, *out, deadline_ns) : rc;
}

/* Does what zk_try does, for several calls: submits all of them, and then waits
 * for the results of all. */
static int zk_try_all(struct zk *zk, const struct zk_ask *asks, int count,
		      uint64_t deadline_ns, struct zk_call **out)
	TEI_REQUIRES(zk->lock)
{
	int rc = zk_wait_ready(zk, deadline_ns) ? ZOK : ZOPERATIONTIMEOUT;
	int i;

	memset(out, 0, (size_t)count * sizeof(*out));
	for (i = 0; i < count && rc == ZOK; i++)
		rc = zk_submit(zk, &asks[i], &out[i]);
	for (i = 0; i < count && rc == ZOK; i++)
		rc = zk_wait_done(zk, out[i], deadline_ns);
	return rc;
}

/*
 * Makes a call and copies its results to *reply, *ours and *failed. If "again"
 * is true, repeats the call while its result is transient, until the deadline.
 */
static int zk_ask(struct zk *zk, const struct zk_ask *ask, bool again,
		  uint64_t deadline_ns, struct zk_reply *reply,
		  bool *ours, int *failed)
{
	struct zk_call *c;
	int rc, i;

	tei_mutex_lock(&zk->lock);
	for (;;) {
		rc = zk_try(zk, ask, deadline_ns, &c);
		if (!again || !zk_transient(rc) ||
		    zk_must_stop(zk, deadline_ns))
			break;
		if (c)
			zk_call_unref(c);
	}
	if (c && rc == ZOK && reply) {
		reply->data = c->data; /* the caller owns the data from
					* now on */
		reply->len = c->len;
		reply->stat = c->stat;
		c->data = NULL;
	}
	if (c && rc == ZOK && ask->children) {
		*ask->children = c->children; /* the caller owns the names
					       * from now on */
		memset(&c->children, 0, sizeof(c->children));
	}
	if (c && rc == ZOK && ours)
		*ours = c->ours;
	for (i = 0; c && c->done && failed && i < ask->count; i++)
		if (*failed < 0 && c->results[i].err == rc)
			*failed = i;
	if (c)
		zk_call_unref(c);
	tei_mutex_unlock(&zk->lock);
	return rc;
}

/* Makes several reads in parallel. Returns the first result that is not ZOK.
 * While this result is transient, repeats all reads, until the deadline. */
static int zk_ask_all(struct zk *zk, const struct zk_ask *asks, int count,
		      uint64_t deadline_ns, struct Stat *stats, bool *ours)
{
	struct zk_call *c[ZK_TOGETHER];
	int rc, i;

	tei_mutex_lock(&zk->lock);
	do {
		rc = zk_try_all(zk, asks, count, deadline_ns, c);
		for (i = 0; i < count; i++) {
			if (c[i] && rc == ZOK) {
				stats[i] = c[i]->stat;
				*ours = c[i]->ours;
			}
			if (c[i])
				zk_call_unref(c[i]);
		}
	} while (zk_transient(rc) && !zk_must_stop(zk, deadline_ns));
	tei_mutex_unlock(&zk->lock);
	return rc;
}

static int zk_submit_get(zhandle_t *zh, const struct zk_ask *ask,
			 struct zk_call *c)
{
	return zoo_awget(zh, ask->path, ask->watcher, c->zk->session,
			 zk_done_data, c);
}

int zk_get(struct zk *zk, const char *path, enum zk_watch_kind watch,
	   uint64_t deadline_ns, struct zk_reply *out)
{
	struct zk_ask ask = {
		.submit = zk_submit_get, .path = path,
		.watcher = zk_watcher(watch),
	};

	return zk_ask(zk, &ask, true, deadline_ns, out, NULL, NULL);
}

static int zk_submit_exists(zhandle_t *zh, const struct zk_ask *ask,
			    struct zk_call *c)
{
	return zoo_awexists(zh, ask->path, ask->watcher, c->zk->session,
			    zk_done_stat, c);
}

int zk_exists(struct zk *zk, const char *path, enum zk_watch_kind watch,
	      uint64_t deadline_ns, struct Stat *stat)
{
	struct zk_ask ask = {
		.submit = zk_submit_exists, .path = path,
		.watcher = zk_watcher(watch),
	};
	struct zk_reply reply;
	int rc;

	rc = zk_ask(zk, &ask, true, deadline_ns, &reply, NULL, NULL);
	if (rc == ZOK && stat)
		*stat = reply.stat;
	return rc;
}

int zk_exists_all(struct zk *zk, const char *const *paths, int count,
		  enum zk_watch_kind watch, uint64_t deadline_ns,
		  struct Stat *stats)
{
	struct zk_ask asks[ZK_TOGETHER];
	bool ours;
	int i;

	for (i = 0; i < count; i++)
		asks[i] = (struct zk_ask){
			.submit = zk_submit_exists, .path = paths[i],
			.watcher = zk_watcher(watch),
		};
	return zk_ask_all(zk, asks, count, deadline_ns, stats, &ours);
}

/* the last argument, "local", is true: the library removes the watch without a
 * request to the server */
void zk_unwatch(struct zk *zk, const char *path)
{
	zoo_remove_watches(zk->session->zh, path, ZWATCHTYPE_DATA,
			   zk_on_segment, zk->session, 1);
}

static int zk_submit_mkdir(zhandle_t *zh, const struct zk_ask *ask,
			   struct zk_call *c)
{
	return zoo_acreate(zh, ask->path, "", 0, ask->acl, ZOO_PERSISTENT,
			   zk_done_string, c);
}

const struct ACL_vector *zk_acl(const struct zk *zk)
{
	return zk->auth ? &ZOO_CREATOR_ALL_ACL : &ZOO_OPEN_ACL_UNSAFE;
}

int zk_mkdir(struct zk *zk, const char *path, bool open, uint64_t deadline_ns)
{
	struct zk_ask ask = {
		.submit = zk_submit_mkdir, .path = path,
		.acl = open ? &ZOO_OPEN_ACL_UNSAFE : zk_acl(zk),
	};

	return zk_ask(zk, &ask, true, deadline_ns, NULL, NULL, NULL);
}

static int zk_submit_acl(zhandle_t *zh, const struct zk_ask *ask,
			 struct zk_call *c)
{
	return zoo_aget_acl(zh, ask->path, zk_done_acl, c);
}

int zk_get_acl(struct zk *zk, const char *path, enum zk_watch_kind watch,
	       uint64_t deadline_ns, bool *ours, struct Stat *stat)
{
	/* first sets the watch and then reads the access list, so that the
	 * watch reports every later change */
	const struct zk_ask asks[ZK_TOGETHER] = {
		{ .submit = zk_submit_exists, .path = path,
		  .watcher = zk_watcher(watch) },
		{ .submit = zk_submit_acl, .path = path },
	};
	bool watched = watch != ZK_WATCH_NONE;
	struct Stat stats[ZK_TOGETHER];
	int rc;

	rc = zk_ask_all(zk, watched ? asks : asks + 1, 1 + watched,
			deadline_ns, stats, ours);
	if (rc == ZOK)
		*stat = stats[watched];
	return rc;
}

static int zk_submit_children(zhandle_t *zh, const struct zk_ask *ask,
			      struct zk_call *c)
{
	return zoo_aget_children(zh, ask->path, 0, zk_done_strings, c);
}

int zk_children(struct zk *zk, const char *path, uint64_t deadline_ns,
		struct meta_names *names)
{
	struct zk_ask ask = {
		.submit = zk_submit_children, .path = path, .children = names,
	};

	return zk_ask(zk, &ask, true, deadline_ns, NULL, NULL, NULL);
}

static int zk_submit_multi(zhandle_t *zh, const struct zk_ask *ask,
			   struct zk_call *c)
{
	return zoo_amulti(zh, ask->count, ask->ops, c->results, zk_done_void,
			  c);
}

int zk_multi(struct zk *zk, const zoo_op_t *ops, int count,
	     uint64_t deadline_ns, int *failed)
{
	struct zk_ask ask = {
		.submit = zk_submit_multi, .ops = ops, .count = count,
	};

	if (failed)
		*failed = -1;
	return zk_ask(zk, &ask, false, deadline_ns, NULL, NULL, failed);
}

/* --- errors -------------------------------------------------------------- */

int zk_fail(const struct zk *zk, int rc, const char *what, const char *name,
	    struct tei_err *err)
{
	if (rc == ZK_REPORTED)
		return TEI_ERR_METADATA;
	if (zk_transient(rc))
		return tei_err_fail(err, TEI_ERR_SOCKET, "meta",
				    "open segments stay usable meanwhile",
				    "%s '%.48s': no answer from ZooKeeper %s in time",
				    what, name, zk->where);
	if (rc == ZNOAUTH)
		return tei_err_fail(err, TEI_ERR_METADATA, "meta",
				    zk->auth ?
				    "MOONRAIL_ZK_AUTH_FILE: a wrong password, or another user's node" :
				    "MOONRAIL_ZK_AUTH_FILE names the file with user:password",
				    "%s '%.48s': ZooKeeper %s does not allow the operation",
				    what, name, zk->where);
	if (rc == ZNOCHILDRENFOREPHEMERALS)
		return tei_err_fail(err, TEI_ERR_METADATA, "meta",
				    "choose another server name",
				    "%s '%.48s': the part before a slash is the name of another segment",
				    what, name);
	if (rc == ZBADARGUMENTS)
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "%s '%.48s': not a valid name of a ZooKeeper node",
				    what, name);
	return tei_err_fail(err, TEI_ERR_METADATA, "meta", NULL,
			    "%s '%.48s': ZooKeeper %s: %s", what, name,
			    zk->where, zerror(rc));
}
