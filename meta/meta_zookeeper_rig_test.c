/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabtests/common/ft_zk.h"
#include "meta/meta_zookeeper_test.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"

static struct ft_zk zserver_one;

static void zserver_end(void)
{
	ft_zk_stop(&zserver_one);
}

struct ft_zk *zserver(void)
{
	static bool tried;

	if (!tried && !ft_zk_missing() && ft_zk_start(&zserver_one, 1))
		atexit(zserver_end);
	tried = true;
	return zserver_one.count ? &zserver_one : NULL;
}

bool zrig_init(struct zrig *r, uint64_t incarnation)
{
	const char *missing = ft_zk_missing();

	memset(r, 0, sizeof(*r));
	if (missing) {
		tei_test_skip("%s", missing);
		return false;
	}
	if (!zserver()) {
		CU_FAIL("no ZooKeeper server");
		return false;
	}
	r->settings = *meta_test_settings();
	r->settings.store.zk_session_ms = 20000;
	r->settings.control.connect_timeout_s =
		meta_test_slowness() > 1 ? 15 : 5;
	r->incarnation = incarnation;
	tei_mutex_init(&r->lock);
	tei_cond_init(&r->cond);
	return true;
}

bool zrig_file(char *file, const char *text, mode_t mode)
{
	int fd;

	strcpy(file, "/tmp/zk_test.XXXXXX");
	fd = mkstemp(file);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		return false;
	fchmod(fd, mode);
	close(fd);
	return true;
}

static void zrig_note(void *arg, const char *name, uint32_t tries)
{
	struct zrig *r = arg;

	tei_mutex_lock(&r->lock);
	r->changes++;
	r->tries = tries;
	snprintf(r->changed, sizeof(r->changed), "%s", name);
	pthread_cond_broadcast(&r->cond);
	tei_mutex_unlock(&r->lock);
}

bool zrig_open(struct zrig *r, const char *chroot)
{
	char conn[256];
	int rc;

	snprintf(conn, sizeof(conn), "zookeeper://%s%s",
		 r->hosts ? r->hosts : zserver()->hosts, chroot);
	rc = tei_meta_store_open(conn, &r->settings, &r->store, NULL);
	CU_ASSERT_EQUAL(rc, 0);
	if (rc)
		return false;
	r->server = meta_test_server_of(r->store->secret, r->incarnation);
	if (!r->server) {
		tei_meta_store_close(r->store);
		return false;
	}
	tei_meta_store_attach(r->store, r->server);
	tei_meta_store_watch(r->store, zrig_note, NULL, r);
	return true;
}

void zrig_close(struct zrig *r)
{
	tei_meta_store_close(r->store);
	tei_meta_server_stop(r->server);
	pthread_cond_destroy(&r->cond);
	tei_mutex_fini(&r->lock);
}

void zrig_mute(struct zrig *r)
{
	struct tei_meta_server *old = r->server;

	r->server = meta_test_server("127.0.0.1", r->incarnation, 0, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r->server);
	tei_meta_store_attach(r->store, r->server);
	zk_session_id(zrig_zk(r));	/* takes zk->lock: afterwards, the
					 * keeper does not use the old server
					 * any longer */
	tei_meta_server_stop(old);
}

int zlisten(const char *endpoint)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
	char host[TEI_META_HOST_MAX];
	uint16_t port;

	tei_meta_split(endpoint, host, &port);
	inet_pton(AF_INET, host, &sa.sin_addr);
	sa.sin_port = htons(port);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fd >= 0 && !bind(fd, (struct sockaddr *)&sa, sizeof(sa)) &&
	    !listen(fd, 4))
		return fd;
	close(fd);
	return -1;
}

struct zk *zrig_zk(struct zrig *r)
{
	return r->store->backend_state;
}

static uint64_t zrig_deadline(const struct zrig *r)
{
	uint32_t s =
		r->call_s ? r->call_s : r->settings.control.connect_timeout_s;

	return tei_now_ns() + s * TEI_NS_PER_SEC;
}

int zrig_publish(struct zrig *r, const char *name, uint32_t buffers,
		 struct tei_err *err)
{
	struct tei_meta_desc *desc;
	int rc;

	desc = meta_test_desc(name, r->incarnation, 2, buffers);
	rc = tei_meta_store_publish(r->store, desc, zrig_deadline(r), err);
	tei_meta_desc_unref(desc);
	return rc;
}

int zrig_fetch(struct zrig *r, const char *name, struct tei_err *err)
{
	struct tei_meta_desc *got;
	int rc;

	rc = tei_meta_store_fetch(r->store, name, zrig_deadline(r), &got, err);
	if (rc)
		return rc;
	rc = (int)got->buffer_count;
	tei_meta_desc_unref(got);
	return rc;
}

int zrig_check(struct zrig *r, struct tei_err *err)
{
	return tei_meta_store_check(r->store, zrig_deadline(r), err);
}

uint32_t zrig_changes(struct zrig *r)
{
	uint32_t n;

	tei_mutex_lock(&r->lock);
	n = r->changes;
	tei_mutex_unlock(&r->lock);
	return n;
}

bool zrig_notified(struct zrig *r, const char *name, uint32_t tries)
{
	bool notified;

	tei_mutex_lock(&r->lock);
	notified = !strcmp(r->changed, name) && r->tries == tries;
	tei_mutex_unlock(&r->lock);
	return notified;
}

bool zrig_changed(struct zrig *r, uint32_t n)
{
	uint64_t until = meta_test_deadline();
	bool more;

	tei_mutex_lock(&r->lock);
	while (r->changes <= n && tei_now_ns() < until)
		tei_mutex_wait(&r->cond, &r->lock, TEI_NS_PER_SEC);
	more = r->changes > n;
	tei_mutex_unlock(&r->lock);
	return more;
}

bool zrig_lost(void *arg)
{
	struct zk *zk = zrig_zk(arg);
	struct zk_entry *e;
	bool lost = false;

	tei_mutex_lock(&zk->lock);
	tei_list_foreach(e, &zk->entries, struct zk_entry, link)
		lost = lost || e->lost;
	tei_mutex_unlock(&zk->lock);
	return lost;
}

bool zwait(bool (*fn)(void *arg), void *arg)
{
	struct timespec pause = { .tv_nsec = 5000000 };
	uint64_t until = meta_test_deadline();

	while (!fn(arg)) {
		if (tei_now_ns() > until)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

static bool zstranger_settled(void *arg)
{
	return zoo_state(arg) == ZOO_CONNECTED_STATE || is_unrecoverable(arg);
}

static void zstranger_log(const char *message)
{
	(void)message;
}

zhandle_t *zstranger_as(const clientid_t *id)
{
	zhandle_t *zh = zookeeper_init2(zserver()->hosts, NULL, 20000, id,
					NULL, ZOO_NO_LOG_CLIENTENV,
					zstranger_log);

	CU_ASSERT_PTR_NOT_NULL_FATAL(zh);
	CU_ASSERT(zwait(zstranger_settled, zh));
	return zh;
}

zhandle_t *zstranger(const char *auth)
{
	zhandle_t *zh = zstranger_as(NULL);

	if (auth)
		zoo_add_auth(zh, "digest", auth, (int)strlen(auth), NULL,
			     NULL);
	return zh;
}
