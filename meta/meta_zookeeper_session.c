/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_zookeeper_int.h"
#include "util/err.h"
#include "util/log.h"
#include "util/settings.h"

/*
 * The library's own lines: of use only to who looks for trouble, since what
 * matters of them is said by us.
 */
static void zk_log(const char *message)
{
	TEI_DEBUG_LOG("zookeeper", "%.*s", (int)strcspn(message, "\n"),
		      message);
}

static void zk_session_told(struct zk *zk, int state) TEI_REQUIRES(zk->lock)
{
	bool connected = state == ZOO_CONNECTED_STATE;
	bool over = state == ZOO_EXPIRED_SESSION_STATE ||
		    state == ZOO_AUTH_FAILED_STATE;
	bool lost = !connected && !over && zk->connected && !zk->expired;

	if (connected && !zk->connected)
		TEI_INFO("meta",
			 "ZooKeeper %s: connected, session %#llx of %d ms, %u asked for",
			 zk->servers, (unsigned long long)
			 zoo_client_id(zk->session->zh)->client_id,
			 zoo_recv_timeout(zk->session->zh),
			 zk->settings->zk_session_ms);
	else if (state == ZOO_EXPIRED_SESSION_STATE && !zk->expired)
		TEI_WARN("meta", "ZooKeeper %s: session lost; making a new one",
			 zk->servers);
	else if (state == ZOO_AUTH_FAILED_STATE && !zk->expired)
		TEI_ERROR("meta", "ZooKeeper %s: authentication failed",
			  zk->servers);
	else if (lost)
		TEI_WARN("meta",
			 "ZooKeeper %s: connection lost; what is open stays usable",
			 zk->servers);
	if (connected && !zk->connected)
		zk_unread_now(zk);
	zk->connected = connected;
	zk->expired = zk->expired || over;
	if (lost)
		zk_watches_lost(zk);
	if (connected)
		zk->retry_ns = 0;
	pthread_cond_broadcast(&zk->cond);
}

/* On the library's thread. */
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
		zk_session_told(zk, state);
	tei_mutex_unlock(&zk->lock);
}

/*
 * The lock is held until handle and credentials are in place, so that neither
 * an event nor a call gets in between.
 */
static int zk_session_start(struct zk *zk, const char *servers,
			    struct tei_err *err)
{
	struct zk_session *s = calloc(1, sizeof(*s));
	sigset_t all, old;
	zhandle_t *zh;

	if (!s)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for a ZooKeeper session");
	s->zk = zk;
	tei_mutex_lock(&zk->lock);
	zk->session = s;
	zk->connected = false;
	zk->expired = false;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	zh = zookeeper_init2(servers, zk_session_event,
			     (int)zk->settings->zk_session_ms, NULL, s,
			     ZOO_NO_LOG_CLIENTENV, zk_log);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
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
			    "ZooKeeper %.64s: no handle: %s", zk->servers,
			    strerror(errno));
}

static int zk_session_new(struct zk *zk, uint64_t deadline_ns,
			  struct tei_err *err)
{
	char *servers;
	int rc;

	rc = zk_text_resolve(zk->servers, deadline_ns, &servers, err);
	if (rc)
		return rc;
	rc = zk_session_start(zk, servers, err);
	free(servers);
	return rc;
}

int zk_session_open(struct zk *zk, uint64_t deadline_ns, struct tei_err *err)
{
	int rc = zk_session_new(zk, deadline_ns, err);
	bool connected;
	uint64_t now;

	if (rc)
		return rc;
	tei_mutex_lock(&zk->lock);
	while (!zk->connected && !zk->expired &&
	       (now = tei_now_ns()) < deadline_ns)
		tei_mutex_wait(&zk->cond, &zk->lock, deadline_ns - now);
	connected = zk->connected;
	tei_mutex_unlock(&zk->lock);
	if (connected)
		return 0;
	zk_session_close(zk);
	return tei_err_fail(err, TEI_ERR_METADATA, "meta",
			    "are the servers up, and a majority of them? is this host at their maxClientCnxns (60 by default), one per engine?",
			    "ZooKeeper %.64s: no connection within %u s",
			    zk->servers, zk->settings->connect_timeout_s);
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
	zookeeper_close(s->zh);		/* ends the library's threads */
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

/* --- the keeper ---------------------------------------------------------- */

static void zk_session_renew(struct zk *zk)
{
	uint64_t deadline = tei_now_ns() +
			    zk->settings->connect_timeout_s * TEI_NS_PER_SEC;
	int rc;

	zk_session_close(zk);
	rc = zk_session_new(zk, deadline, NULL);
	tei_mutex_lock(&zk->lock);
	if (rc) {
		zk->expired = true;
		zk->retry_ns = tei_now_ns() + ZK_RETRY_NS;
	}
	zk->epoch++;
	zk->rearm = true;
	zk_trust_forget(zk);
	zk_entries_unheld(zk);
	tei_mutex_unlock(&zk->lock);
}

void zk_retry_later(struct zk *zk)
{
	tei_mutex_lock(&zk->lock);
	if (!zk->expired)
		zk->retry_ns = tei_now_ns() + ZK_RETRY_NS;
	tei_mutex_unlock(&zk->lock);
}

/* When there is something to do. */
static uint64_t zk_keeper_due(struct zk *zk, uint64_t now)
	TEI_REQUIRES(zk->lock)
{
	uint64_t due = now + 60 * TEI_NS_PER_SEC, look = 0, again = 0;

	if (zk->expired ||
	    (zk->connected && (zk->rearm || zk_entries_dirty(zk)))) {
		due = now;
	} else if (zk->connected) {
		look = zk_entries_look(zk);
		again = zk->again_ns;
	}
	if (look && look < due)
		due = look;
	if (again && again < due)
		due = again;
	return due > zk->retry_ns ? due : zk->retry_ns;
}

static void zk_keeper_work(struct zk *zk)
{
	bool rearm, renew;

	tei_mutex_lock(&zk->lock);
	renew = zk->expired;
	rearm = !renew && zk->rearm;
	if (rearm)
		zk->rearm = false;
	tei_mutex_unlock(&zk->lock);
	if (renew) {
		zk_session_renew(zk);
		return;
	}
	zk_republish(zk);
	if (rearm)
		zk_watches_rearm(zk);
	zk_unread_tell(zk);
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
