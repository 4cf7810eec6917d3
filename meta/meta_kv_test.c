/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests the core of the key-value stores with a fake driver. Its server is the
 * table "fake" in this process, which can also behave like a server that does
 * not answer.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_test.h"
#include "meta/meta_kv.h"
#include "meta/meta_test.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"
#include "util/settings.h"

#define FAKE_KEYS	8
#define FAKE_WAIT_MS	20000

static struct fake {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct fake_key {
		char *key, *text;
		size_t len;
		int64_t version;
		unsigned int gets;
	} keys[FAKE_KEYS];
	int64_t version;
	bool hold_gets, hold_commits; /* hold_gets: true: reads wait as if the
				       * server did not answer; hold_commits:
				       * the same for commits */
	bool interrupted;
	unsigned int waiting; /* number of calls that are waiting because of
			       * hold_gets or hold_commits */
	bool wanted;	      /* value that fake_wanted returns */
	unsigned int changes; /* number of calls of fake_changed */
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER,
	   .cond = PTHREAD_COND_INITIALIZER };

/* --- the driver ---------------------------------------------------------- */

/* Returns the entry of the key in the table, which is created if there is none.
 * The caller holds fake.lock. */
static struct fake_key *fake_key(const char *key)
{
	struct fake_key *k;

	for (k = fake.keys; k < fake.keys + FAKE_KEYS; k++) {
		if (!k->key) {
			k->key = strdup(key);
			k->version = META_ABSENT;
		}
		if (!strcmp(k->key, key))
			return k;
	}
	abort();
}

/*
 * Waits while *held is true, until the deadline or until the driver is
 * interrupted. Returns 0 if *held is false then, otherwise an error. The caller
 * holds fake.lock.
 */
static int fake_wait(struct meta_kv *kv, const bool *held, uint64_t deadline_ns,
		     struct tei_err *err)
{
	struct timespec step;

	fake.waiting++;
	while (*held && !fake.interrupted && tei_ns_left(deadline_ns)) {
		clock_gettime(CLOCK_REALTIME, &step);
		step.tv_nsec += 10000000;
		if (step.tv_nsec >= 1000000000) {
			step.tv_nsec -= 1000000000;
			step.tv_sec++;
		}
		pthread_cond_timedwait(&fake.cond, &fake.lock, &step);
	}
	fake.waiting--;
	return *held ? meta_kv_fail(kv, TEI_ERR_SOCKET, err, NULL, "no answer") :
		       0;
}

static int fake_get(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
		    struct meta_kv_value *out, struct tei_err *err)
{
	struct fake_key *k;
	int rc;

	pthread_mutex_lock(&fake.lock);
	rc = fake_wait(kv, &fake.hold_gets, deadline_ns, err);
	k = fake_key(key);
	k->gets++;
	if (!rc && k->text) {
		out->text = strndup(k->text, k->len);
		out->len = k->len;
		out->version = k->version;
	}
	pthread_mutex_unlock(&fake.lock);
	return rc;
}

static void fake_put(struct fake_key *k, const char *text, size_t len)
{
	free(k->text);
	k->text = text ? strndup(text, len) : NULL;
	k->len = len;
	k->version = text ? ++fake.version : META_ABSENT;
}

static int fake_commit(struct meta_kv *kv, struct meta_kv_change *c,
		       size_t count, uint64_t deadline_ns, struct tei_err *err)
{
	size_t i;
	int rc;

	pthread_mutex_lock(&fake.lock);
	rc = fake_wait(kv, &fake.hold_commits, deadline_ns, err);
	for (i = 0; i < count && !rc; i++)
		if (c[i].expected != META_KV_ANY &&
		    c[i].expected != fake_key(c[i].key)->version)
			rc = META_CONFLICT;
	for (i = 0; i < count && !rc; i++) {
		if (c[i].what == META_KV_CHECK)
			continue;
		fake_put(fake_key(c[i].key),
			 c[i].what == META_KV_PUT ? c[i].text : NULL, c[i].len);
		c[i].version = fake_key(c[i].key)->version;
	}
	pthread_mutex_unlock(&fake.lock);
	return rc;
}

static void fake_interrupt(struct meta_kv *kv)
{
	(void)kv;
	pthread_mutex_lock(&fake.lock);
	fake.interrupted = true;
	pthread_cond_broadcast(&fake.cond);
	pthread_mutex_unlock(&fake.lock);
}

static int fake_open(struct meta_kv *kv, const char *conn,
		     uint64_t deadline_ns, struct tei_err *err)
{
	(void)conn;
	(void)deadline_ns;
	(void)err;
	strcpy(kv->where, "here");
	return 0;
}

static void fake_close(struct meta_kv *kv)
{
	(void)kv;
}

static const struct meta_kv_ops fake_kv_ops = {
	.product = "Fake",
	.open = fake_open,
	.close = fake_close,
	.get = fake_get,
	.commit = fake_commit,
	.interrupt = fake_interrupt,
};

static const struct meta_store_ops fake_ops = {
	.scheme = "fake",
	META_KV_STORE_OPS,
};

/* --- the store ----------------------------------------------------------- */

struct kv_rig {
	struct tei_settings settings;
	struct tei_meta_store *store;
	struct tei_meta_server *server;
};

static void kv_rig_open(struct kv_rig *r)
{
	r->settings = *meta_test_settings();
	r->settings.store.poll_ms = 20;
	r->settings.control.connect_timeout_s = 600;
	fake.hold_gets = fake.hold_commits = fake.interrupted = false;
	fake.wanted = true;
	fake.changes = 0;
	CU_ASSERT_EQUAL_FATAL(tei_meta_store_open("P2PHANDSHAKE", &r->settings,
						  &r->store, NULL), 0);
	r->store->ops = &fake_ops;
	CU_ASSERT_EQUAL_FATAL(meta_kv_open(r->store, &fake_kv_ops, "fake://",
					   NULL), 0);
	r->server = meta_test_server_of(NULL, 9);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r->server);
	tei_meta_store_attach(r->store, r->server);
}

static void kv_rig_close(struct kv_rig *r)
{
	struct fake_key *k;

	tei_meta_store_close(r->store);
	tei_meta_server_stop(r->server);
	for (k = fake.keys; k < fake.keys + FAKE_KEYS; k++) {
		free(k->key);
		free(k->text);
	}
	memset(fake.keys, 0, sizeof(fake.keys));
}

/* Publishes a descriptor with the given number of buffers under the name
 * "own". */
static int kv_rig_publish(struct kv_rig *r, uint32_t buffers,
			  uint64_t deadline_ns)
{
	struct tei_meta_desc *d = meta_test_desc("own", 9, 1, buffers);
	int rc = tei_meta_store_publish(r->store, d, deadline_ns, NULL);

	tei_meta_desc_unref(d);
	return rc;
}

static void fake_hold(bool *held, bool on)
{
	pthread_mutex_lock(&fake.lock);
	*held = on;
	pthread_cond_broadcast(&fake.cond);
	pthread_mutex_unlock(&fake.lock);
}

static bool fake_waits(void *arg)
{
	bool waits;

	(void)arg;
	pthread_mutex_lock(&fake.lock);
	waits = fake.waiting > 0;
	pthread_mutex_unlock(&fake.lock);
	return waits;
}

static bool kv_wait(bool (*fn)(void *arg), void *arg)
{
	return ft_wait_until(fn, arg, FAKE_WAIT_MS * ft_load());
}

/* Returns true if the descriptor that the store has for the name "own" contains
 * *arg buffers. */
static bool kv_buffers_are(void *arg)
{
	struct tei_meta_desc *d = NULL;
	struct fake_key *k;
	bool are;

	pthread_mutex_lock(&fake.lock);
	k = fake_key("mooncake/ram/own");
	if (k->text)
		tei_meta_desc_decode(k->text, k->len, &d, NULL);
	pthread_mutex_unlock(&fake.lock);
	are = d && d->buffer_count == *(uint32_t *)arg;
	tei_meta_desc_unref(d);
	return are;
}

/* --- publications -------------------------------------------------------- */

static void *kv_publish_two(void *arg)
{
	CU_ASSERT_EQUAL(kv_rig_publish(arg, 2, meta_test_deadline()), 0);
	return NULL;
}

static void test_publication_during_another_one_is_written_later(void)
{
	uint32_t three = 3;
	struct kv_rig r;
	pthread_t other;

	kv_rig_open(&r);
	CU_ASSERT_EQUAL(kv_rig_publish(&r, 1, meta_test_deadline()), 0);
	CU_ASSERT(tei_meta_store_owns(r.store, "own"));
	fake_hold(&fake.hold_commits, true);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&other, NULL, kv_publish_two, &r),
			      0);
	CU_ASSERT(kv_wait(fake_waits, NULL));
	CU_ASSERT_EQUAL(kv_rig_publish(&r, three,
				       tei_now_ns() + 50 * TEI_NS_PER_MS),
			TEI_ERR_SOCKET);
	CU_ASSERT_FALSE(tei_meta_store_owns(r.store, "own"));
	fake_hold(&fake.hold_commits, false);
	pthread_join(other, NULL);
	CU_ASSERT(kv_wait(kv_buffers_are, &three));
	kv_rig_close(&r);
}

/* --- closing ------------------------------------------------------------- */

static void kv_close_soon(struct kv_rig *r)
{
	uint64_t start = tei_now_ns();

	CU_ASSERT(kv_wait(fake_waits, NULL));
	tei_meta_store_close(r->store);
	/* the keeper's call would end at its deadline only after 600 s */
	CU_ASSERT(tei_now_ns() - start < 60 * ft_load() * TEI_NS_PER_SEC);
	tei_meta_store_open("P2PHANDSHAKE", &r->settings, &r->store, NULL);
	kv_rig_close(r);
}

static void test_close_ends_a_read_of_the_keeper(void)
{
	struct kv_rig r;

	kv_rig_open(&r);
	CU_ASSERT_EQUAL(kv_rig_publish(&r, 1, meta_test_deadline()), 0);
	fake_hold(&fake.hold_gets, true); /* the keeper reads the keys of the
					   * published name periodically */
	kv_close_soon(&r);
}

static void test_close_ends_a_write_of_the_keeper(void)
{
	struct kv_rig r;

	kv_rig_open(&r);
	fake_hold(&fake.hold_commits, true);
	CU_ASSERT_EQUAL(kv_rig_publish(&r, 1, tei_now_ns() + TEI_NS_PER_MS),
			TEI_ERR_SOCKET);
	kv_close_soon(&r);
}

/* --- segments that this process reads ------------------------------------ */

static void fake_changed(void *arg, const char *name, uint32_t tries)
{
	(void)arg;
	(void)name;
	(void)tries;
	pthread_mutex_lock(&fake.lock);
	fake.changes++;
	pthread_mutex_unlock(&fake.lock);
}

/* Callback "wanted". The segment "clock" is always in use, the other ones while
 * fake.wanted is true. */
static bool fake_wanted(void *arg, const char *name)
{
	bool wanted;

	(void)arg;
	pthread_mutex_lock(&fake.lock);
	wanted = fake.wanted || !strcmp(name, "clock");
	pthread_mutex_unlock(&fake.lock);
	return wanted;
}

static unsigned int fake_gets(const char *key)
{
	unsigned int n;

	pthread_mutex_lock(&fake.lock);
	n = fake_key(key)->gets;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

struct kv_gets {
	const char *key;
	unsigned int n;
};

static bool kv_gets_are(void *arg)
{
	struct kv_gets *g = arg;

	return fake_gets(g->key) >= g->n;
}

/* Waits until the keeper has read the key "times" times more. Returns false if
 * it does not in time. */
static bool kv_polled(const char *key, unsigned int times)
{
	struct kv_gets g = { key, fake_gets(key) + times };

	return kv_wait(kv_gets_are, &g);
}

static bool kv_changed_once(void *arg)
{
	bool changed;

	(void)arg;
	pthread_mutex_lock(&fake.lock);
	changed = fake.changes > 0;
	pthread_mutex_unlock(&fake.lock);
	return changed;
}

static void kv_write_segment(const char *key, uint32_t buffers)
{
	struct tei_meta_desc *d = meta_test_desc("other", 7, 1, buffers);
	char *json;
	size_t len;

	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_encode(d, &json, &len, NULL), 0);
	pthread_mutex_lock(&fake.lock);
	fake_put(fake_key(key), json, len);
	pthread_mutex_unlock(&fake.lock);
	free(json);
	tei_meta_desc_unref(d);
}

static void kv_fetch_segment(struct kv_rig *r, const char *name)
{
	struct tei_meta_desc *d = NULL;

	CU_ASSERT_EQUAL(tei_meta_store_fetch(r->store, name,
					     meta_test_deadline(), &d, NULL),
			0);
	tei_meta_desc_unref(d);
}

static void test_segment_that_is_not_used_is_not_read_again(void)
{
	const char *key = "mooncake/ram/other", *clock = "mooncake/ram/clock";
	unsigned int gets;
	struct kv_rig r;

	kv_rig_open(&r);
	tei_meta_store_watch(r.store, fake_changed, fake_wanted, NULL);
	kv_write_segment(key, 1);
	kv_write_segment(clock, 1);
	kv_fetch_segment(&r, "other");
	kv_fetch_segment(&r, "clock");
	CU_ASSERT(kv_polled(key, 3));
	fake_hold(&fake.wanted, false);
	/* a read of the key may have begun before; it has ended when the keeper
	 * has read the key of "clock" three times */
	CU_ASSERT(kv_polled(clock, 3));
	gets = fake_gets(key);
	CU_ASSERT(kv_polled(clock, 10));
	CU_ASSERT_EQUAL(fake_gets(key), gets);
	/* when the segment is opened again, the keeper reads its key again */
	fake_hold(&fake.wanted, true);
	kv_fetch_segment(&r, "other");
	CU_ASSERT(kv_polled(key, 3));
	kv_write_segment(key, 2);
	CU_ASSERT(kv_wait(kv_changed_once, NULL));
	tei_meta_store_watch(r.store, NULL, NULL, NULL);
	kv_rig_close(&r);
}

const struct tei_test_case kv_cases[] = {
	{ "publication_during_another_one_is_written_later",
	  test_publication_during_another_one_is_written_later },
	{ "close_ends_a_read_of_the_keeper",
	  test_close_ends_a_read_of_the_keeper },
	{ "close_ends_a_write_of_the_keeper",
	  test_close_ends_a_write_of_the_keeper },
	{ "segment_that_is_not_used_is_not_read_again",
	  test_segment_that_is_not_used_is_not_read_again },
	{ NULL, NULL },
};
