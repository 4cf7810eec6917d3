/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_zookeeper_acl.h"
#include "meta/meta_zookeeper_call.h"
#include "meta/meta_zookeeper_int.h"
#include "meta/meta_zookeeper_servers.h"
#include "util/err.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/settings.h"

/* Logs a line of the client library. Uses the level debug, because the back end
 * itself logs the important events. */
static void zk_log(const char *message)
{
	TEI_DEBUG_LOG("zookeeper", "%.*s", (int)strcspn(message, "\n"),
		      message);
}

/* --- addresses of the servers -------------------------------------------- */

/*
 * Sets the time of the next look-up of the servers' names.
 *
 * The client library receives numeric addresses, because it would block its own
 * thread while it resolves names. Until it has a connection, it tries only
 * these addresses, which may be outdated. Therefore, if there is no connection
 * for a while, the keeper resolves the names again, and the session continues
 * with a new handle at the new addresses. The old handle cannot be given new
 * addresses: zoo_set_servers frees a list that the library's thread still reads
 * (seen in 3.8.0).
 */
static void zk_lookup_later(struct zk *zk) TEI_REQUIRES(zk->lock)
{
	uint64_t ns = ZK_LOOKUP_NS << (zk->lookups < 8 ? zk->lookups : 8);

	zk->lookup_ns = tei_now_ns() +
			tei_jitter(ns < ZK_LOOKUP_MAX_NS ? ns :
							   ZK_LOOKUP_MAX_NS);
}

/* --- sessions ------------------------------------------------------------ */

static void zk_session_state(struct zk *zk, int state) TEI_REQUIRES(zk->lock)
{
	bool connected = state == ZOO_CONNECTED_STATE;
	bool over = state == ZOO_EXPIRED_SESSION_STATE ||
		    state == ZOO_AUTH_FAILED_STATE;
	bool lost = !connected && !over && zk->connected && !zk->expired;

	if (connected && !zk->connected)
		TEI_INFO("meta",
			 "ZooKeeper %s: connected, session %#llx, timeout %d ms "
			 "(requested: %u ms)",
			 zk->servers,
			 (unsigned long long)zoo_client_id(zk->session->zh)
				 ->client_id,
			 zoo_recv_timeout(zk->session->zh),
			 zk->settings->store.zk_session_ms);
	else if (state == ZOO_EXPIRED_SESSION_STATE && !zk->expired)
		TEI_WARN("meta", "ZooKeeper %s: session lost; creating a new session",
			 zk->servers);
	else if (state == ZOO_AUTH_FAILED_STATE && !zk->expired)
		TEI_ERROR("meta", "ZooKeeper %s: authentication failed",
			  zk->servers);
	else if (lost)
		TEI_WARN("meta",
			 "ZooKeeper %s: connection lost; open segments stay usable",
			 zk->servers);
	if (connected && !zk->connected)
		zk_notify_again_now(zk);
	zk->connected = connected;
	zk->expired = zk->expired || over;
	if (lost) {
		zk_watches_lost(zk);
		zk->away_ns = tei_now_ns();
		zk->lookups = 0;
		zk_lookup_later(zk);
	}
	if (connected) {
		zk->session_ms = (uint32_t)zoo_recv_timeout(zk->session->zh);
		zk->retry_ns = zk->lookup_ns = 0;
	}
	pthread_cond_broadcast(&zk->cond);
}

/* Handles an event of the session. Runs on the library's thread. */
static void zk_session_event(zhandle_t *zh, int type, int state,
			     const char *path, void *ctx)
{
	struct zk_session *s = ctx;
	struct zk *zk = s->zk;

	(void)zh;
	(void)path;
	if (type != ZOO_SESSION_EVENT)
		return;
	tei_mutex_lock(&zk->lock);
	if (zk->session == s)
		zk_session_state(zk, state);
	tei_mutex_unlock(&zk->lock);
}

/*
 * Creates a handle. zoo_deterministic_conn_order prevents the library from
 * shuffling the list of servers. This switch affects the whole process: if
 * other code creates a handle at the same time, its list is not shuffled
 * either.
 */
static zhandle_t *zk_handle_new(const struct zk *zk, const clientid_t *id,
				struct zk_session *s)
{
	static pthread_mutex_t conn_order =
		PTHREAD_MUTEX_INITIALIZER; /* no other lock is taken while this
					    * one is held */
	sigset_t all, old;
	zhandle_t *zh;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_mutex_lock(&conn_order);
	zoo_deterministic_conn_order(1);
	zh = zookeeper_init2(zk->addresses, zk_session_event,
			     (int)zk->settings->store.zk_session_ms, id, s,
			     ZOO_NO_LOG_CLIENTENV, zk_log);
	zoo_deterministic_conn_order(0);
	pthread_mutex_unlock(&conn_order);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return zh;
}

/*
 * Starts a session. Holds zk->lock until the handle and the credentials are
 * set, so that until then no event is handled and no call is made. "id" is the
 * id of the session to continue, or NULL for a new session.
 */
static int zk_session_start(struct zk *zk, const clientid_t *id,
			    struct tei_err *err)
{
	struct zk_session *s = calloc(1, sizeof(*s));
	zhandle_t *zh;

	if (!s)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for a ZooKeeper session");
	s->zk = zk;
	tei_mutex_lock(&zk->lock);
	zk->session = s;
	zk->connected = false;
	zk->expired = false;
	zk->lookups = 0;
	zk_lookup_later(zk);
	if (!id) {
		zk->session_ms = 0;
		zk->away_ns = tei_now_ns();
	}
	zh = zk_handle_new(zk, id, s);
	s->zh = zh;
	if (zh && zk->auth)
		zoo_add_auth(zh, "digest", zk->auth, (int)strlen(zk->auth),
			     NULL, NULL);
	if (!zh)
		zk->session = NULL;
	tei_mutex_unlock(&zk->lock);
	if (zh)
		return 0;
	free(s);
	return tei_err_fail(err, TEI_ERR_METADATA, "meta", NULL,
			    "ZooKeeper %s: cannot create a client handle: %s", zk->where,
			    strerror(errno));
}

/* Starts a new session. If the servers' names cannot be resolved now, uses the
 * addresses of the last look-up. */
static int zk_session_new(struct zk *zk, uint64_t deadline_ns,
			  struct tei_err *err)
{
	char *servers;
	int rc;

	rc = zk_servers_resolve(zk, deadline_ns, &servers, err);
	if (rc && !zk->addresses)
		return rc;
	if (!rc) {
		free(zk->addresses);
		zk->addresses = servers; /* the list now belongs to zk */
	}
	return zk_session_start(zk, NULL, err);
}

/* Waits until until_ns, or until the session is connected or has ended. Returns
 * true if the session is connected. */
static bool zk_session_wait(struct zk *zk, uint64_t until_ns)
{
	bool connected;
	uint64_t now;

	tei_mutex_lock(&zk->lock);
	while (!zk->connected && !zk->expired &&
	       (now = tei_now_ns()) < until_ns)
		tei_mutex_wait(&zk->cond, &zk->lock, until_ns - now);
	connected = zk->connected;
	tei_mutex_unlock(&zk->lock);
	return connected;
}

/*
 * Returns the time at which an attempt to connect ends. This is try_ns from
 * now. If there is only one server, or if the time after the attempt would be
 * less than twice try_ns, it is deadline_ns.
 */
static uint64_t zk_try_until(const struct zk *zk, uint64_t try_ns,
			     uint64_t deadline_ns)
{
	if (!strchr(zk->addresses, ',') || tei_ns_left(deadline_ns) < 3 * try_ns)
		return deadline_ns;
	return tei_now_ns() + try_ns;
}

/*
 * If a server does not answer, the library waits for it for two thirds of the
 * session timeout, which may be longer than the time until deadline_ns.
 * Therefore this function makes at least three attempts, each with a new handle
 * and the next server first. Each attempt has twice the time of the previous
 * one, because the servers may only be slow. A new handle loses no session,
 * because none exists yet.
 */
int zk_session_open(struct zk *zk, uint64_t deadline_ns, struct tei_err *err)
{
	int rc = zk_session_new(zk, deadline_ns, err);
	uint64_t try_ns = tei_ns_left(deadline_ns) / 8, until;

	if (try_ns > ZK_TRY_NS)
		try_ns = ZK_TRY_NS;
	for (; !rc; try_ns *= 2) {
		until = zk_try_until(zk, try_ns, deadline_ns);
		if (zk_session_wait(zk, until))
			return 0;
		zk_session_close(zk);
		if (until == deadline_ns)
			break;
		zk_servers_rotate(zk->addresses);
		rc = zk_session_start(zk, NULL, err);
	}
	if (rc)
		return rc;
	return tei_err_fail(
		err, TEI_ERR_METADATA, "meta",
		"are the servers up, and a majority of them? is this host at "
		"their maxClientCnxns (60 by default), one per engine?",
		"ZooKeeper %s: no connection within %u s", zk->where,
		zk->settings->control.connect_timeout_s);
}

void zk_session_close(struct zk *zk)
{
	struct zk_session *s;

	tei_mutex_lock(&zk->lock);
	s = zk->session;
	zk->session = NULL;
	zk->connected = false;
	pthread_cond_broadcast(&zk->cond);
	tei_mutex_unlock(&zk->lock);
	if (!s)
		return;
	zookeeper_close(s->zh);		/* also ends the library's threads */
	tei_mutex_lock(&zk->lock);
	zk_calls_end(zk, s);
	tei_mutex_unlock(&zk->lock);
	free(s);
}

int64_t zk_session_id(struct zk *zk)
{
	int64_t id = 0;

	tei_mutex_lock(&zk->lock);
	if (zk->session && zk->session->zh)
		id = zoo_client_id(zk->session->zh)->client_id;
	tei_mutex_unlock(&zk->lock);
	return id;
}

/* --- keeper thread ------------------------------------------------------- */

/*
 * Called after a new handle was created: starts a new epoch, because the handle
 * has no watches yet, and forgets which folders are trusted. If rc says that
 * the handle could not be created, schedules another attempt.
 */
static void zk_session_begun(struct zk *zk, int rc) TEI_REQUIRES(zk->lock)
{
	if (rc) {
		zk->expired = true;
		zk->retry_ns = tei_now_ns() + ZK_RETRY_NS;
	}
	zk->epoch++;
	zk->rearm = true;
	zk_acl_forget(zk);
}

static void zk_session_renew(struct zk *zk)
{
	uint64_t deadline =
		tei_now_ns() +
		zk->settings->control.connect_timeout_s * TEI_NS_PER_SEC;
	int rc;

	zk_session_close(zk);
	rc = zk_session_new(zk, deadline, NULL);
	tei_mutex_lock(&zk->lock);
	zk_session_begun(zk, rc);
	zk_entries_unregistered(zk);
	tei_mutex_unlock(&zk->lock);
}

/*
 * Returns the time at which the keeper gives the session up, or 0 if there is a
 * connection or no session. Usually a server reports that the session has
 * ended. But servers that have lost their data refuse a client that has seen
 * newer data, and never report this. After twice its timeout without a
 * connection, the session may be given up, because the next session replaces
 * all its nodes.
 */
static uint64_t zk_give_up_ns(const struct zk *zk) TEI_REQUIRES(zk->lock)
{
	if (zk->connected || zk->expired || !zk->session_ms)
		return 0;
	return zk->away_ns + 2 * zk->session_ms * TEI_NS_PER_MS;
}

static void zk_session_give_up(struct zk *zk) TEI_REQUIRES(zk->lock)
{
	uint64_t at = zk_give_up_ns(zk);

	if (!at || at > tei_now_ns())
		return;
	TEI_WARN("meta",
		 "ZooKeeper %s: no connection for twice the session timeout of "
		 "%u ms: the session is given up, and a new one is created "
		 "when a server answers",
		 zk->servers, zk->session_ms);
	zk->expired = true;
	pthread_cond_broadcast(&zk->cond);
}

/* Returns true if there is still no connection, and sets *id to the id of the
 * session. */
static bool zk_lookup_wanted(struct zk *zk, clientid_t *id)
{
	bool wanted;

	tei_mutex_lock(&zk->lock);
	wanted = zk->lookup_ns && !zk->expired;
	if (wanted)
		*id = *zoo_client_id(zk->session->zh);
	tei_mutex_unlock(&zk->lock);
	return wanted;
}

/*
 * Continues the session with a new handle at the addresses "found", if these
 * are not the present ones and there is still no connection. Takes ownership of
 * found.
 */
static void zk_session_move(struct zk *zk, char *found)
{
	clientid_t id;
	int rc;

	if (!zk_servers_changed(found, zk->addresses) ||
	    !zk_lookup_wanted(zk, &id)) {
		free(found);
		return;
	}
	TEI_WARN("meta",
		 "ZooKeeper %s: no connection; trying the servers' present "
		 "addresses %.256s",
		 zk->servers, found);
	free(zk->addresses);
	zk->addresses = found; /* the list now belongs to zk */
	zk_session_close(zk);
	rc = zk_session_start(zk, &id, NULL);
	tei_mutex_lock(&zk->lock);
	zk_session_begun(zk, rc);
	zk_entries_check_now(zk);
	tei_mutex_unlock(&zk->lock);
}

static void zk_lookup(struct zk *zk)
{
	uint64_t most =
		zk->settings->control.connect_timeout_s * TEI_NS_PER_SEC;
	char *found;

	if (most > ZK_LOOKUP_MAX_NS)
		most = ZK_LOOKUP_MAX_NS;
	if (!zk_servers_resolve(zk, tei_now_ns() + most, &found, NULL))
		zk_session_move(zk, found);
	tei_mutex_lock(&zk->lock);
	zk->lookups++;
	if (zk->lookup_ns)
		zk_lookup_later(zk);
	tei_mutex_unlock(&zk->lock);
}

void zk_retry_later(struct zk *zk)
{
	tei_mutex_lock(&zk->lock);
	if (!zk->expired)
		zk->retry_ns = tei_now_ns() + ZK_RETRY_NS;
	tei_mutex_unlock(&zk->lock);
}

/* Returns the time at which the keeper must do its next work. */
static uint64_t zk_keeper_due(struct zk *zk, uint64_t now)
	TEI_REQUIRES(zk->lock)
{
	uint64_t due = now + 60 * TEI_NS_PER_SEC, look = 0, again = 0;

	if (zk->expired ||
	    (zk->connected && (zk->rearm || zk_entries_dirty(zk)))) {
		due = now;
	} else if (zk->connected) {
		look = zk_entries_check_due(zk);
		again = zk->notify_ns;
	} else {
		look = zk->lookup_ns;
		again = zk_give_up_ns(zk);
	}
	if (look && look < due)
		due = look;
	if (again && again < due)
		due = again;
	return due > zk->retry_ns ? due : zk->retry_ns;
}

static void zk_keeper_work(struct zk *zk)
{
	bool rearm, renew, lookup;

	tei_mutex_lock(&zk->lock);
	zk_session_give_up(zk);
	renew = zk->expired;
	lookup = !renew && zk->lookup_ns && zk->lookup_ns <= tei_now_ns();
	rearm = !renew && !lookup && zk->rearm;
	if (rearm)
		zk->rearm = false;
	tei_mutex_unlock(&zk->lock);
	if (renew) {
		zk_session_renew(zk);
		return;
	}
	if (lookup) {
		zk_lookup(zk);
		return;
	}
	zk_republish(zk);
	if (rearm)
		zk_watches_rearm(zk);
	zk_notify_due(zk);
}

void *zk_keeper_main(void *arg)
{
	struct zk *zk = arg;
	uint64_t now, due;

	tei_mutex_lock(&zk->lock);
	while (!zk->stop) {
		now = tei_now_ns();
		due = zk_keeper_due(zk, now);
		if (due > now) {
			tei_mutex_wait(&zk->cond, &zk->lock, due - now);
			continue;
		}
		tei_mutex_unlock(&zk->lock);
		zk_keeper_work(zk);
		tei_mutex_lock(&zk->lock);
	}
	tei_mutex_unlock(&zk->lock);
	return NULL;
}
