/* SPDX-License-Identifier: BSD-2-Clause */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/common/ft_port.h"
#include "fabtests/common/ft_zk.h"
#include "meta/meta_zookeeper_call.h"
#include "meta/meta_zookeeper_record.h"
#include "meta/meta_zookeeper_test.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"

/* Tests stores that lose the connection to the servers, or their sessions. */

struct zwhose {
	struct zrig *r;
	int64_t before;
};

static bool zsession_is_new(void *arg)
{
	struct zwhose *w = arg;
	struct zk *zk = zrig_zk(w->r);
	bool held = true;
	struct zk_entry *e;
	int64_t id = zk_session_id(zk);

	tei_mutex_lock(&zk->lock);
	held = zk->connected && !zk->rearm;
	tei_list_foreach(e, &zk->entries, struct zk_entry, link)
		held = held && (e->registered || e->lost);
	tei_mutex_unlock(&zk->lock);
	return id && id != w->before && held;
}

/*
 * Ends the session of r as the servers would: a second handle continues the
 * session and closes it. Several attempts may be needed, because the server
 * accepts only one handle per session, and the two handles disconnect each
 * other.
 */
static bool zexpire(struct zrig *r)
{
	struct zk *zk = zrig_zk(r);
	int64_t before = zk_session_id(zk);
	uint64_t until = meta_test_deadline(), pause;
	clientid_t id;

	tei_mutex_lock(&zk->lock);
	id = *zoo_client_id(zk->session->zh);
	tei_mutex_unlock(&zk->lock);
	while (tei_now_ns() < until) {
		zookeeper_close(zstranger_as(&id));
		pause = tei_now_ns() + TEI_NS_PER_SEC;
		while (zk_session_id(zk) == before && tei_now_ns() < pause)
			nanosleep(&(struct timespec){ .tv_nsec = 1000000 },
				  NULL);
		if (zk_session_id(zk) != before)
			return true;
	}
	return false;
}

static void test_expired_session_is_restored(void)
{
	struct zwhose wa, wb;
	struct zrig a, b;
	uint32_t n;

	if (!zrig_init(&a, 0xa1) || !zrig_init(&b, 0xb1))
		return;
	a.settings.store.zk_session_ms = 3000;
	b.settings.store.zk_session_ms = 3000;
	if (!zrig_open(&a, "/expiry") || !zrig_open(&b, "/expiry"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_publish(&a, "y", 2, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "x", NULL), 1);
	/* the session of the publisher ends: all its nodes are created again,
	 * and the reader is notified */
	wa = (struct zwhose){ &a, zk_session_id(zrig_zk(&a)) };
	n = zrig_changes(&b);
	CU_ASSERT(zexpire(&a));
	CU_ASSERT(zwait(zsession_is_new, &wa));
	CU_ASSERT(zrig_changed(&b, n));
	CU_ASSERT_EQUAL(zrig_fetch(&b, "x", NULL), 1);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "y", NULL), 2);
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 3, NULL), 0);
	/* the session of the reader ends: its watches are set again */
	CU_ASSERT_EQUAL(zrig_fetch(&b, "x", NULL), 3);
	wb = (struct zwhose){ &b, zk_session_id(zrig_zk(&b)) };
	CU_ASSERT(zexpire(&b));
	CU_ASSERT(zwait(zsession_is_new, &wb));
	n = zrig_changes(&b);
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 4, NULL), 0);
	CU_ASSERT(zrig_changed(&b, n));
	CU_ASSERT_EQUAL(zrig_fetch(&b, "x", NULL), 4);
	zrig_close(&b);
	zrig_close(&a);
}

/* --- the session ends while the keeper does other work ------------------- */

/* Makes the keeper check the published nodes at once. */
static void zlook(struct zk *zk)
{
	struct zk_entry *e;

	tei_mutex_lock(&zk->lock);
	tei_list_foreach(e, &zk->entries, struct zk_entry, link)
		e->check_ns = 1;
	pthread_cond_broadcast(&zk->cond);
	tei_mutex_unlock(&zk->lock);
}

static void zmuted(zhandle_t *zh, int type, int state, const char *path,
		   void *ctx)
{
	(void)zh;
	(void)type;
	(void)state;
	(void)path;
	(void)ctx;
}

/* Simulates the event with which the library reports that the servers have
 * ended the session. */
static void zsay_expired(struct zk *zk)
{
	struct zk_session *s = zk->session;
	watcher_fn watcher = zoo_set_watcher(s->zh, zmuted);

	watcher(s->zh, ZOO_SESSION_EVENT, ZOO_EXPIRED_SESSION_STATE, "", s);
}

static bool zcalls(void *arg)
{
	struct zk *zk = arg;
	bool any;

	tei_mutex_lock(&zk->lock);
	any = !tei_list_empty(&zk->calls);
	tei_mutex_unlock(&zk->lock);
	return any;
}

static bool zsession_is_another(void *arg)
{
	struct zwhose *w = arg;
	int64_t id = zk_session_id(zrig_zk(w->r));

	return id && id != w->before;
}

static bool zx_is_found(void *arg)
{
	return zrig_fetch(arg, "x", NULL) == 1;
}

/*
 * Tests that the keeper restores the session and the nodes if the session ends
 * while the keeper is checking nodes. The event is simulated: the servers end
 * the session, and delete its nodes, only when the keeper closes it.
 */
static void test_session_that_ends_during_a_check_is_restored(void)
{
	struct zwhose w;
	struct zrig a;
	struct zk *zk;

	if (!zrig_init(&a, 0xa6))
		return;
	a.settings.control.connect_timeout_s = 3600;
	if (!zrig_open(&a, "/looking"))
		return;
	zk = zrig_zk(&a);
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 1, NULL), 0);
	w = (struct zwhose){ &a, zk_session_id(zk) };
	ft_zk_pause(zserver(), 0);
	zlook(zk);
	CU_ASSERT(zwait(zcalls, zk));
	zsay_expired(zk);
	ft_zk_resume(zserver(), 0);
	CU_ASSERT(zwait(zsession_is_another, &w));
	CU_ASSERT(zwait(zsession_is_new, &w));
	CU_ASSERT(zwait(zx_is_found, &a));
	zrig_close(&a);
}

/*
 * Tests that the keeper creates the next session although it waits for the
 * writer's token, because the thread that has the token waits for that session.
 */
static void test_session_that_ends_during_a_write_is_restored(void)
{
	struct timespec nap = { .tv_nsec = 100 * (long)TEI_NS_PER_MS };
	struct zwhose w;
	struct zrig a;
	struct zk *zk;

	if (!zrig_init(&a, 0xa7))
		return;
	a.settings.control.connect_timeout_s = 3600;
	if (!zrig_open(&a, "/writing"))
		return;
	zk = zrig_zk(&a);
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 1, NULL), 0);
	w = (struct zwhose){ &a, zk_session_id(zk) };
	tei_mutex_lock(&zk->lock);
	zk->writing = true;
	tei_mutex_unlock(&zk->lock);
	zlook(zk);
	nanosleep(&nap, NULL); /* time for the keeper to begin waiting for the
				* token */
	zsay_expired(zk);
	CU_ASSERT(zwait(zsession_is_another, &w));
	tei_mutex_lock(&zk->lock);
	zk->writing = false;
	pthread_cond_broadcast(&zk->cond);
	tei_mutex_unlock(&zk->lock);
	CU_ASSERT(zwait(zsession_is_new, &w));
	CU_ASSERT(zwait(zx_is_found, &a));
	zrig_close(&a);
}

static void test_owner_that_loses_its_name_is_notified(void)
{
	struct zrig a, b;
	struct tei_err err;

	if (!zrig_init(&a, 0xa2) || !zrig_init(&b, 0xb2) ||
	    !zrig_open(&a, "/lost") || !zrig_open(&b, "/lost"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "n", 1, NULL), 0);
	zrig_mute(&a);
	CU_ASSERT_EQUAL(zrig_publish(&b, "n", 5, NULL), 0);
	CU_ASSERT(zwait(zrig_lost, &a));
	CU_ASSERT_EQUAL(zrig_publish(&a, "n", 2, &err), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "was lost to"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text,
				      tei_meta_server_name(b.server)));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "00000000000000b2"));
	CU_ASSERT_EQUAL(zrig_publish(&a, "n", 2, &err), TEI_ERR_METADATA);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "n", NULL), 5);
	tei_meta_store_withdraw(b.store, "n", meta_test_deadline(), NULL);
	CU_ASSERT_EQUAL(zrig_publish(&a, "n", 2, &err), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "n", NULL), 2);
	zrig_close(&b);
	zrig_close(&a);
}

static bool zdisconnected(void *arg)
{
	struct zk *zk = arg;
	bool off;

	tei_mutex_lock(&zk->lock);
	off = !zk->connected;
	tei_mutex_unlock(&zk->lock);
	return off;
}

static void test_calls_without_servers_end_in_time(void)
{
	struct zrig a, b;
	struct tei_err err;
	uint64_t start;

	if (!zrig_init(&a, 0xa3) || !zrig_init(&b, 0xb3))
		return;
	a.settings.store.zk_session_ms = 30000;
	if (!zrig_open(&a, "/away") || !zrig_open(&b, "/away"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&b, "x", NULL), 1);
	a.call_s = b.call_s = 1;
	ft_zk_kill(zserver(), 0);
	CU_ASSERT(zwait(zdisconnected, zrig_zk(&a)));
	start = tei_now_ns();
	CU_ASSERT_EQUAL(zrig_fetch(&b, "x", &err), TEI_ERR_SOCKET);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "no answer from ZooKeeper"));
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 2, &err), TEI_ERR_SOCKET);
	CU_ASSERT(tei_now_ns() - start < 4 * meta_test_slowness() *
						TEI_NS_PER_SEC);
	/* when the server runs again, the keeper publishes the text whose
	 * publication has failed */
	CU_ASSERT_FATAL(ft_zk_restart(zserver(), 0) &&
			ft_zk_wait(zserver(), 0));
	CU_ASSERT(zrig_changed(&b, 0));
	b.call_s = 10;
	CU_ASSERT_EQUAL(zrig_fetch(&b, "x", NULL), 2);
	/* closing a store does not wait for a server that does not run */
	ft_zk_kill(zserver(), 0);
	CU_ASSERT(zwait(zdisconnected, zrig_zk(&a)));
	start = tei_now_ns();
	zrig_close(&a);
	CU_ASSERT(tei_now_ns() - start < 4 * meta_test_slowness() *
						TEI_NS_PER_SEC);
	CU_ASSERT_FATAL(ft_zk_restart(zserver(), 0) &&
			ft_zk_wait(zserver(), 0));
	zrig_close(&b);
}

static bool zownership_there(void *arg)
{
	struct zrig *r = arg;
	char *ownership = zk_path_ownership(zrig_zk(r), "x", r->incarnation);
	int rc = zk_exists(zrig_zk(r), ownership, ZK_WATCH_NONE,
			   meta_test_deadline(), NULL);

	free(ownership);
	return rc == ZOK;
}

/* --- servers that stay away ----------------------------------------------- */

/* Starts a server that no other test case uses, and opens the stores a and b
 * with it. a publishes a segment, which b fetches. */
static bool zaway_open(struct zrig *a, struct zrig *b, struct ft_zk *zk)
{
	if (!zrig_init(a, 0xad) || !zrig_init(b, 0xbd))
		return false;
	CU_ASSERT_FATAL(ft_zk_start(zk, 1));
	a->hosts = b->hosts = zk->hosts;
	a->settings.store.zk_session_ms = b->settings.store.zk_session_ms =
		3000;
	if (!zrig_open(a, "/stay") || !zrig_open(b, "/stay"))
		return false;
	CU_ASSERT_EQUAL(zrig_publish(a, "x", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(b, "x", NULL), 1);
	return true;
}

static void zaway_close(struct zrig *a, struct zrig *b, struct ft_zk *zk)
{
	zrig_close(b);
	zrig_close(a);
	ft_zk_stop(zk);
}

/* Waits until both stores have new sessions. Checks that b can fetch the
 * segment and is notified of its next change. */
static void zaway_over(struct zwhose *wa, struct zwhose *wb, uint32_t buffers)
{
	uint32_t n;

	CU_ASSERT_FATAL(zwait(zsession_is_new, wa));
	CU_ASSERT_FATAL(zwait(zsession_is_new, wb));
	CU_ASSERT(zwait(zownership_there, wa->r));
	CU_ASSERT_EQUAL(zrig_fetch(wb->r, "x", NULL), (int)buffers);
	n = zrig_changes(wb->r);
	CU_ASSERT_EQUAL(zrig_publish(wa->r, "x", buffers + 1, NULL), 0);
	CU_ASSERT(zrig_changed(wb->r, n));
	CU_ASSERT_EQUAL(zrig_fetch(wb->r, "x", NULL), (int)buffers + 1);
}

static uint64_t zepoch(struct zrig *r)
{
	struct zk *zk = zrig_zk(r);
	uint64_t epoch;

	tei_mutex_lock(&zk->lock);
	epoch = zk->epoch;
	tei_mutex_unlock(&zk->lock);
	return epoch;
}

static bool zsessionless(void *arg)
{
	struct zk *zk = zrig_zk(arg);
	bool none;

	tei_mutex_lock(&zk->lock);
	none = zk->session && !zk->session_ms;
	tei_mutex_unlock(&zk->lock);
	return none;
}

/*
 * Tests that stores use servers again that have lost their data. Such servers
 * refuse a client that has seen newer data and do not tell it that its session
 * has ended.
 */
static void test_servers_that_lost_their_data_are_used_again(void)
{
	struct zwhose wa, wb;
	struct zrig a, b;
	struct ft_zk zk;

	if (!zaway_open(&a, &b, &zk))
		return;
	wa = (struct zwhose){ &a, zk_session_id(zrig_zk(&a)) };
	wb = (struct zwhose){ &b, zk_session_id(zrig_zk(&b)) };
	ft_zk_kill(&zk, 0);
	CU_ASSERT_FATAL(ft_zk_wipe(&zk, 0) && ft_zk_restart(&zk, 0) &&
			ft_zk_wait(&zk, 0));
	zaway_over(&wa, &wb, 1);
	zaway_close(&a, &b, &zk);
}

/*
 * Tests servers that start again after the stores have given their sessions up,
 * and that still have the nodes of the old sessions: each store creates only
 * one new session.
 */
static void test_servers_that_stay_away_cost_one_session(void)
{
	struct zwhose wa, wb;
	struct zrig a, b;
	uint64_t epoch;
	struct ft_zk zk;

	if (!zaway_open(&a, &b, &zk))
		return;
	wa = (struct zwhose){ &a, zk_session_id(zrig_zk(&a)) };
	wb = (struct zwhose){ &b, zk_session_id(zrig_zk(&b)) };
	epoch = zepoch(&a);
	ft_zk_kill(&zk, 0);
	CU_ASSERT_FATAL(zwait(zsessionless, &a));
	CU_ASSERT_FATAL(zwait(zsessionless, &b));
	CU_ASSERT_FATAL(ft_zk_restart(&zk, 0) && ft_zk_wait(&zk, 0));
	zaway_over(&wa, &wb, 1);
	CU_ASSERT_EQUAL(zepoch(&a), epoch + 1);
	zaway_close(&a, &b, &zk);
}

/* --- changes that could not be read --------------------------------------- */

/* Opens the stores a and b and makes a change of the segment "x" of which b was
 * notified, but which b has not read yet. */
static bool zunread_open(struct zrig *a, struct zrig *b, const char *chroot)
{
	uint32_t n;

	if (!zrig_init(a, 0xa8) || !zrig_init(b, 0xb8))
		return false;
	if (!zrig_open(a, chroot) || !zrig_open(b, chroot))
		return false;
	CU_ASSERT_EQUAL(zrig_publish(a, "x", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(b, "x", NULL), 1);
	n = zrig_changes(b);
	CU_ASSERT_EQUAL(zrig_publish(a, "x", 2, NULL), 0);
	CU_ASSERT(zrig_changed(b, n));
	return true;
}

/*
 * Tests that b is notified again of a change that it could not read because the
 * connection was lost. The watch has fired before, so it does not report the
 * change again.
 */
static void test_change_that_a_loss_kept_from_being_read_is_notified_again(void)
{
	struct zrig a, b;
	uint32_t n;

	if (!zunread_open(&a, &b, "/unread"))
		return;
	ft_zk_kill(zserver(), 0);
	CU_ASSERT(zwait(zdisconnected, zrig_zk(&b)));
	b.call_s = 1;
	CU_ASSERT_EQUAL(zrig_fetch(&b, "x", NULL), TEI_ERR_SOCKET);
	n = zrig_changes(&b);
	tei_meta_store_notify_again(b.store, "x");
	CU_ASSERT_FATAL(ft_zk_restart(zserver(), 0) &&
			ft_zk_wait(zserver(), 0));
	CU_ASSERT(zrig_changed(&b, n));
	b.call_s = 10;
	CU_ASSERT_EQUAL(zrig_fetch(&b, "x", NULL), 2);
	zrig_close(&b);
	zrig_close(&a);
}

/*
 * Tests that the store repeats the notification of an unread change while the
 * connection exists. When the segment no longer exists, the store notifies only
 * when it exists again.
 */
static void test_unread_change_is_notified_until_segment_is_gone(void)
{
	struct zrig a, b;
	uint32_t n;
	int i;

	if (!zunread_open(&a, &b, "/again"))
		return;
	for (i = 0; i < 3; i++) {
		n = zrig_changes(&b);
		CU_ASSERT(zrig_notified(&b, "x", (uint32_t)i));
		tei_meta_store_notify_again(b.store, "x");
		CU_ASSERT(zrig_changed(&b, n));
	}
	CU_ASSERT_EQUAL(zrig_fetch(&b, "x", NULL), 2);
	n = zrig_changes(&b);
	tei_meta_store_withdraw(a.store, "x", meta_test_deadline(), NULL);
	CU_ASSERT(zrig_changed(&b, n));
	CU_ASSERT_EQUAL(zrig_fetch(&b, "x", NULL), TEI_ERR_METADATA);
	tei_meta_store_notify_again(b.store, "x");
	tei_mutex_lock(&zrig_zk(&b)->lock);
	CU_ASSERT_EQUAL(zrig_zk(&b)->notify_ns, 0);
	tei_mutex_unlock(&zrig_zk(&b)->lock);
	n = zrig_changes(&b);
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 3, NULL), 0);
	CU_ASSERT(zrig_changed(&b, n));
	zrig_close(&b);
	zrig_close(&a);
}

/* --- servers that come back elsewhere ------------------------------------- */

/* Writes a hosts file in which "moved.test" has the given address. Returns
 * false after a failure. */
static bool zmoved_name(const char *file, const char *address)
{
	FILE *f = fopen(file, "we");

	if (!f)
		return false;
	fprintf(f, "127.0.0.1 localhost\n%s moved.test\n", address);
	return !fclose(f);
}

/*
 * Replaces /etc/hosts by a temporary file, for this thread and the threads that
 * it starts. If that is not allowed, marks the test case as skipped and returns
 * false.
 */
static bool zmoved_begin(char *file)
{
	if (!zrig_file(file, "", 0644))
		return false;
	if (!unshare(CLONE_NEWNS) &&
	    !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	    !mount(file, "/etc/hosts", NULL, MS_BIND, NULL))
		return true;
	tei_test_skip("no /etc/hosts of our own: %s", strerror(errno));
	unlink(file);
	return false;
}

static bool zconnected(void *arg)
{
	return !zdisconnected(arg);
}

static void zmoved_to(struct ft_zk *zk, const char *file, const char *address)
{
	snprintf(zk->address, sizeof(zk->address), "%s", address);
	CU_ASSERT_FATAL(zmoved_name(file, address));
	CU_ASSERT_FATAL(ft_zk_restart(zk, 0) && ft_zk_wait(zk, 0));
}

/* Deletes only the ownership node, and waits until the keeper has created it
 * again. */
static void zownership_delete(struct zrig *r)
{
	struct zk *zk = zrig_zk(r);
	char *ownership = zk_path_ownership(zk, "x", r->incarnation);
	zoo_op_t op;

	zoo_delete_op_init(&op, ownership, -1);
	CU_ASSERT_EQUAL(zk_multi(zk, &op, 1, meta_test_deadline(), NULL), ZOK);
	free(ownership);
	CU_ASSERT(zwait(zownership_there, r));
}

/* Tests that a store finds its server again after the server, with its data,
 * has moved to another address. */
static void test_servers_that_come_back_elsewhere_are_found(void)
{
	char file[64], hosts[64];
	struct ft_zk zk;
	struct zrig a;
	int64_t id;
	uint32_t n;

	if (!zrig_init(&a, 0xa9) || !zmoved_begin(file))
		return;
	CU_ASSERT_FATAL(ft_zk_start(&zk, 1) && zmoved_name(file, "127.0.0.1"));
	snprintf(hosts, sizeof(hosts), "moved.test:%d", zk.client[0]);
	a.hosts = hosts;
	a.settings.store.zk_session_ms = 60000;
	if (!zrig_open(&a, "/moved"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 1, NULL), 0);
	CU_ASSERT_EQUAL(zrig_fetch(&a, "x", NULL), 1);
	id = zk_session_id(zrig_zk(&a));
	ft_zk_kill(&zk, 0);
	CU_ASSERT(zwait(zdisconnected, zrig_zk(&a)));
	zmoved_to(&zk, file, "127.0.0.2");
	CU_ASSERT(zwait(zconnected, zrig_zk(&a)));
	CU_ASSERT_EQUAL(zk_session_id(zrig_zk(&a)), id);
	/* the watches are still set */
	n = zrig_changes(&a);
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 2, NULL), 0);
	CU_ASSERT(zrig_changed(&a, n));
	CU_ASSERT_EQUAL(zrig_fetch(&a, "x", NULL), 2);
	zownership_delete(&a);
	zrig_close(&a);
	ft_zk_stop(&zk);
	umount2("/etc/hosts", MNT_DETACH);
	unlink(file);
}

/* --- a name whose lookup does not end ------------------------------------- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool hang;
	uint32_t hanging;
} zlookup = { .lock = PTHREAD_MUTEX_INITIALIZER,
	      .cond = PTHREAD_COND_INITIALIZER };

/* Replaces the function of the C library. The resolution of "hangs.test" blocks
 * while zlookup.hang is true; all other calls go to the C library. */
int getaddrinfo(const char *node, const char *service,
		const struct addrinfo *hints, struct addrinfo **out)
{
	int (*next)(const char *, const char *, const struct addrinfo *,
		    struct addrinfo **);

	*(void **)&next = dlsym(RTLD_NEXT, "getaddrinfo");
	if (!node || strcmp(node, "hangs.test") ||
	    (hints->ai_flags & AI_NUMERICHOST))
		return next(node, service, hints, out);
	pthread_mutex_lock(&zlookup.lock);
	zlookup.hanging++;
	while (zlookup.hang)
		pthread_cond_wait(&zlookup.cond, &zlookup.lock);
	zlookup.hanging--;
	pthread_mutex_unlock(&zlookup.lock);
	return next("127.0.0.1", service, hints, out);
}

static void zlookup_hang(bool hang)
{
	pthread_mutex_lock(&zlookup.lock);
	zlookup.hang = hang;
	pthread_cond_broadcast(&zlookup.cond);
	pthread_mutex_unlock(&zlookup.lock);
}

static bool zlookup_hangs(void *arg)
{
	bool hangs;

	pthread_mutex_lock(&zlookup.lock);
	hangs = zlookup.hanging > 0;
	pthread_mutex_unlock(&zlookup.lock);
	return hangs == *(bool *)arg;
}

static void test_the_end_of_a_store_does_not_wait_for_a_lookup(void)
{
	bool yes = true, no = false;
	char hosts[64];
	struct zrig a;
	uint64_t start;

	if (!zrig_init(&a, 0xab))
		return;
	snprintf(hosts, sizeof(hosts), "hangs.test:%d", zserver()->client[0]);
	a.hosts = hosts;
	a.settings.control.connect_timeout_s = 3600;
	if (!zrig_open(&a, "/lookup"))
		return;
	zlookup_hang(true);
	zsay_expired(zrig_zk(&a));
	CU_ASSERT(zwait(zlookup_hangs, &yes));
	start = tei_now_ns();
	zrig_close(&a);
	CU_ASSERT(tei_now_ns() - start < 3 * meta_test_slowness() *
						TEI_NS_PER_SEC);
	zlookup_hang(false);
	CU_ASSERT(zwait(zlookup_hangs, &no));
}

/* Tests that calls end at their time limit if the server accepts connections
 * but never answers. */
static void test_stopped_server_delays_no_call(void)
{
	struct zrig a;
	struct tei_err err;
	uint64_t start;

	if (!zrig_init(&a, 0xa4) || !zrig_open(&a, "/mute"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 1, NULL), 0);
	a.call_s = 1;
	ft_zk_pause(zserver(), 0);
	start = tei_now_ns();
	CU_ASSERT_EQUAL(zrig_fetch(&a, "x", &err), TEI_ERR_SOCKET);
	CU_ASSERT_EQUAL(zrig_publish(&a, "x", 2, &err), TEI_ERR_SOCKET);
	zrig_close(&a);
	/* no call exceeds its time limit */
	CU_ASSERT(tei_now_ns() - start <
		  (2 * a.call_s + a.settings.control.connect_timeout_s + 5) *
			  meta_test_slowness() * TEI_NS_PER_SEC);
	ft_zk_resume(zserver(), 0);
	CU_ASSERT_FATAL(ft_zk_wait(zserver(), 0));
}

/* Opens a listening socket that stands for a server which accepts connections
 * and never answers. Sets *fd to the socket and returns its port. */
static int zsilent(int *fd)
{
	struct sockaddr_in sa;
	socklen_t len = sizeof(sa);

	*fd = ft_port_socket("127.0.0.1", 0, true);
	CU_ASSERT_FATAL(*fd >= 0 && !listen(*fd, 64) &&
			!getsockname(*fd, (struct sockaddr *)&sa, &len));
	return ntohs(sa.sin_port);
}

/* Returns the number of connections that have arrived at the listening socket
 * fd. */
static int zsilent_calls(int fd)
{
	int n = 0, one;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (; (one = accept(fd, NULL, NULL)) >= 0; n++)
		close(one);
	return n;
}

/*
 * Tests that opening a store is not delayed if one of two servers does not
 * answer. Each open tries the servers in random order, so some of the 12 opens
 * almost certainly begin with the silent server.
 */
static void test_silent_server_among_others_delays_no_open(void)
{
	char hosts[192];
	struct zrig a;
	int i, fd;

	if (!zrig_init(&a, 0xac))
		return;
	snprintf(hosts, sizeof(hosts), "127.0.0.1:%d,%s", zsilent(&fd),
		 zserver()->hosts);
	for (i = 0; i < 12; i++) {
		if (i && !zrig_init(&a, 0xac))
			return;
		a.hosts = hosts;
		a.settings.control.connect_timeout_s =
			meta_test_slowness() > 1 ? 8 : 4;
		if (!zrig_open(&a, "/silent"))
			break;
		zrig_close(&a);
	}
	CU_ASSERT_EQUAL(i, 12);
	CU_ASSERT(zsilent_calls(fd) > 0);
	close(fd);
}

/* Opens a store at servers that do not answer, with a time limit in seconds.
 * Returns true if the open took about that time. */
static bool zsilent_said(const char *conn, uint32_t seconds)
{
	struct tei_settings settings = *meta_test_settings();
	struct tei_meta_store *store;
	struct tei_err err;
	uint64_t took;
	char text[64];

	settings.control.connect_timeout_s = seconds;
	took = tei_now_ns();
	CU_ASSERT_EQUAL(tei_meta_store_open(conn, &settings, &store, &err),
			TEI_ERR_METADATA);
	took = tei_now_ns() - took;
	snprintf(text, sizeof(text), "no connection within %u s", seconds);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, text));
	CU_ASSERT(took >= seconds * TEI_NS_PER_SEC);
	return took < 2 * seconds * TEI_NS_PER_SEC;
}

/*
 * Tests that opening a store whose servers do not answer ends at its time
 * limit, and that all servers were tried before. On a busy machine, the test is
 * repeated with a longer limit.
 */
static void test_silent_servers_are_reported_in_time(void)
{
	int i, fd[3], port[3];
	bool good = false;
	uint32_t seconds;
	char conn[128];

	for (i = 0; i < 3; i++)
		port[i] = zsilent(&fd[i]);
	snprintf(conn, sizeof(conn),
		 "zookeeper://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/x",
		 port[0], port[1], port[2]);
	for (seconds = 1; !good && seconds <= 16; seconds *= 2) {
		good = zsilent_said(conn, seconds);
		for (i = 0; i < 3; i++)
			good = zsilent_calls(fd[i]) == 1 && good;
	}
	CU_ASSERT(good);
	for (i = 0; i < 3; i++)
		close(fd[i]);
}

/* --- more watches than a server takes in one request --------------------- */

#define ZMANY 2400
#define ZMANY_NAME 490
#define ZMANY_STEP 60

static void zmany_name(char name[ZMANY_NAME + 1], int i)
{
	memset(name, 'm', ZMANY_NAME);
	snprintf(name + ZMANY_NAME - 6, 7, "%06d", i);
}

/* Creates the nodes of ZMANY_STEP names in one request, beginning with the name
 * whose number is i. Returns false after a failure. */
static bool zmany_plant(zhandle_t *zh, int i)
{
	static char path[ZMANY_STEP][ZMANY_NAME + 64], *json[ZMANY_STEP];
	zoo_op_result_t results[ZMANY_STEP];
	char name[ZMANY_NAME + 1];
	struct tei_meta_desc *desc;
	zoo_op_t ops[ZMANY_STEP];
	bool planted;
	size_t len;
	int k;

	for (k = 0; k < ZMANY_STEP; k++) {
		zmany_name(name, i + k);
		snprintf(path[k], sizeof(path[k]), "/many/mooncake/ram/%s",
			 name);
		desc = meta_test_desc(name, 7, 1, 1);
		CU_ASSERT_EQUAL_FATAL(tei_meta_desc_encode(desc, &json[k],
							   &len, NULL), 0);
		tei_meta_desc_unref(desc);
		zoo_create_op_init(&ops[k], path[k], json[k], (int)len,
				   &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
	}
	planted = zoo_multi(zh, ZMANY_STEP, ops, results) == ZOK;
	for (k = 0; k < ZMANY_STEP; k++)
		free(json[k]);
	return planted;
}

static bool zmany_open(struct zrig *r)
{
	char name[ZMANY_NAME + 1];
	zhandle_t *zh = zstranger(NULL);
	bool good = true;
	int i;

	for (i = 0; good && i < ZMANY; i += ZMANY_STEP)
		good = zmany_plant(zh, i);
	zookeeper_close(zh);
	for (i = 0; good && i < ZMANY; i++) {
		zmany_name(name, i);
		good = zrig_fetch(r, name, NULL) == 1;
	}
	return good;
}

static bool zmany_settled(void *arg)
{
	struct zk *zk = arg;
	struct zk_watch *w;
	bool settled;
	int i;

	tei_mutex_lock(&zk->lock);
	settled = zk->connected && !zk->rearm && zk->epoch;
	for (i = 0; i < ZK_WATCH_BUCKETS; i++)
		tei_list_foreach(w, &zk->watches[i], struct zk_watch, link)
			settled = settled &&
				  (!w->armed || w->epoch == zk->epoch);
	tei_mutex_unlock(&zk->lock);
	return settled;
}

static void test_many_watches_outlive_a_connection(void)
{
	char name[ZMANY_NAME + 1], path[ZMANY_NAME + 64];
	struct zrig a;
	size_t bytes;
	zhandle_t *zh;
	uint32_t n;
	int i;

	if (!zrig_init(&a, 0xa5) || !zrig_open(&a, "/many"))
		return;
	CU_ASSERT_EQUAL(zrig_publish(&a, "folders", 1, NULL), 0);
	CU_ASSERT_FATAL(zmany_open(&a));
	tei_mutex_lock(&zrig_zk(&a)->lock);
	bytes = zrig_zk(&a)->watch_bytes;
	tei_mutex_unlock(&zrig_zk(&a)->lock);
	CU_ASSERT(bytes > 1048576 + 4096);
	ft_zk_kill(zserver(), 0);
	CU_ASSERT(zwait(zdisconnected, zrig_zk(&a)));
	CU_ASSERT_FATAL(ft_zk_restart(zserver(), 0) &&
			ft_zk_wait(zserver(), 0));
	CU_ASSERT(zwait(zmany_settled, zrig_zk(&a)));
	CU_ASSERT_EQUAL(zrig_fetch(&a, "folders", NULL), 1);
	/* no change was missed, and all watches are set */
	CU_ASSERT_EQUAL(zrig_changes(&a), 0);
	zh = zstranger(NULL);
	for (i = 0; i < ZMANY; i += ZMANY / 8) {
		zmany_name(name, i);
		snprintf(path, sizeof(path), "/many/mooncake/ram/%s", name);
		n = zrig_changes(&a);
		CU_ASSERT_EQUAL(zoo_delete(zh, path, -1), ZOK);
		CU_ASSERT(zrig_changed(&a, n));
	}
	zookeeper_close(zh);
	zrig_close(&a);
}

const struct tei_test_case zookeeper_loss_cases[] = {
	{ "expired_session_is_restored", test_expired_session_is_restored },
	{ "session_that_ends_during_a_check_is_restored",
	  test_session_that_ends_during_a_check_is_restored },
	{ "session_that_ends_during_a_write_is_restored",
	  test_session_that_ends_during_a_write_is_restored },
	{ "owner_that_loses_its_name_is_notified",
	  test_owner_that_loses_its_name_is_notified },
	{ "calls_without_servers_end_in_time",
	  test_calls_without_servers_end_in_time },
	{ "servers_that_lost_their_data_are_used_again",
	  test_servers_that_lost_their_data_are_used_again },
	{ "servers_that_stay_away_cost_one_session",
	  test_servers_that_stay_away_cost_one_session },
	{ "change_that_a_loss_kept_from_being_read_is_notified_again",
	  test_change_that_a_loss_kept_from_being_read_is_notified_again },
	{ "unread_change_is_notified_until_segment_is_gone",
	  test_unread_change_is_notified_until_segment_is_gone },
	{ "servers_that_come_back_elsewhere_are_found",
	  test_servers_that_come_back_elsewhere_are_found },
	{ "the_end_of_a_store_does_not_wait_for_a_lookup",
	  test_the_end_of_a_store_does_not_wait_for_a_lookup },
	{ "many_watches_outlive_a_connection",
	  test_many_watches_outlive_a_connection },
	{ "silent_server_among_others_delays_no_open",
	  test_silent_server_among_others_delays_no_open },
	{ "silent_servers_are_reported_in_time",
	  test_silent_servers_are_reported_in_time },
	{ "stopped_server_delays_no_call", test_stopped_server_delays_no_call },
	{ NULL, NULL },
};
