/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "meta/meta_test.h"
#include "meta/tei_meta_cache.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"
#include "util/settings.h"

/* The store and the cache of a process, and the servers of three peers. */
struct cache_setup {
	struct tei_meta_store *store;
	struct tei_meta_cache *cache;
	struct tei_meta_server *peer[3];
	unsigned int refreshed;
	unsigned int detached;	/* atomic: number of calls of detach so far */
	unsigned int attaching; /* atomic: number of calls of attach so far */
	bool refuse;		/* true: attach fails */
	bool hold;		/* atomic; while it is true, attach waits */
	int32_t refreshed_id;
	uint64_t before, now; /* incarnations of a peer before and after its
			       * restart */
};

/* Callback attach: the data that the cache keeps for a segment is a reference
 * to its descriptor. */
static int cache_attached(void *arg, int32_t id, struct tei_meta_desc *desc,
			  bool again, void **data, struct tei_err *err)
{
	struct cache_setup *t = arg;
	struct tei_meta_desc *before = *data;

	(void)again;
	__atomic_add_fetch(&t->attaching, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&t->hold, __ATOMIC_SEQ_CST))
		sched_yield();
	if (t->refuse)
		return tei_err_fail(err, TEI_ERR_MEMORY, "test", NULL,
				    "refused");
	if (before && !tei_meta_desc_equal(before, desc)) {
		t->refreshed++;
		t->refreshed_id = id;
		t->before = before->incarnation;
		t->now = desc->incarnation;
	}
	*data = tei_meta_desc_ref(desc);
	tei_meta_desc_unref(before);
	return 0;
}

static void cache_detached(void *arg, void *data)
{
	struct cache_setup *t = arg;

	__atomic_add_fetch(&t->detached, 1, __ATOMIC_RELAXED);
	tei_meta_desc_unref(data);
}

static const struct tei_meta_cache_ops cache_ops = {
	.attach = cache_attached,
	.detach = cache_detached,
};

static bool cache_setup(struct cache_setup *t, uint32_t max_open)
{
	unsigned int i;

	memset(t, 0, sizeof(*t));
	for (i = 0; i < 3; i++) {
		t->peer[i] = meta_test_server("127.0.0.1", 100 + i, 0, 0);
		if (!t->peer[i])
			return false;
		meta_test_publish(t->peer[i], 2);
	}
	CU_ASSERT_EQUAL_FATAL(tei_meta_store_open("P2PHANDSHAKE",
						  meta_test_settings(),
						  &t->store, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_meta_cache_create(t->store, max_open,
						    &cache_ops, t, &t->cache,
						    NULL),
			      0);
	return true;
}

static void cache_teardown(struct cache_setup *t)
{
	unsigned int i;

	tei_meta_cache_destroy(t->cache);
	tei_meta_store_close(t->store);
	for (i = 0; i < 3; i++)
		tei_meta_server_stop(t->peer[i]);
}

static int32_t cache_open(struct cache_setup *t, const char *name)
{
	int32_t id = -1;
	int rc = tei_meta_cache_open(t->cache, name, false,
				     meta_test_deadline(), &id, NULL);

	CU_ASSERT_EQUAL(rc, 0);
	return id;
}

static void test_same_name_has_the_same_id(void)
{
	struct tei_meta_desc *desc;
	struct cache_setup t;
	char slashed[80];
	bool last;
	int32_t id;

	if (!cache_setup(&t, 0))
		return;
	CU_ASSERT_EQUAL(cache_open(&t, tei_meta_server_name(t.peer[0])), 1);
	CU_ASSERT_EQUAL(cache_open(&t, tei_meta_server_name(t.peer[1])), 2);
	snprintf(slashed, sizeof(slashed), "/%s",
		 tei_meta_server_name(t.peer[0]));
	CU_ASSERT_EQUAL(cache_open(&t, slashed), 1);
	CU_ASSERT_EQUAL(tei_meta_cache_count(t.cache), 2);
	CU_ASSERT_EQUAL(tei_meta_cache_lookup(t.cache, slashed), 1);
	CU_ASSERT_EQUAL(tei_meta_cache_lookup(t.cache, "x"), -1);
	desc = tei_meta_cache_get(t.cache, 2);
	CU_ASSERT_PTR_NOT_NULL_FATAL(desc);
	CU_ASSERT_EQUAL(desc->incarnation, 101);
	tei_meta_desc_unref(desc);

	CU_ASSERT_EQUAL(tei_meta_cache_close(t.cache, 1, &last), 0);
	CU_ASSERT_FALSE(last);
	CU_ASSERT_EQUAL(tei_meta_cache_close(t.cache, 1, &last), 0);
	CU_ASSERT(last);
	CU_ASSERT_EQUAL(tei_meta_cache_close(t.cache, 1, &last),
			TEI_ERR_INVALID);
	CU_ASSERT_PTR_NULL(tei_meta_cache_get(t.cache, 1));
	id = cache_open(&t, tei_meta_server_name(t.peer[0]));
	CU_ASSERT(id > 2);
	cache_teardown(&t);
}

static void test_unknown_ids_and_names_are_refused(void)
{
	static const int32_t ids[] = { -1, 2, 77, INT32_MAX, INT32_MIN,
				       1 << 20, (1 << 20) + 1 };
	struct cache_setup t;
	int32_t id = 55;
	size_t i;

	if (!cache_setup(&t, 1))
		return;
	CU_ASSERT_EQUAL(cache_open(&t, tei_meta_server_name(t.peer[0])), 1);
	for (i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		CU_ASSERT_PTR_NULL(tei_meta_cache_get(t.cache, ids[i]));
		CU_ASSERT_EQUAL(tei_meta_cache_close(t.cache, ids[i], NULL),
				TEI_ERR_INVALID);
		CU_ASSERT_EQUAL(tei_meta_cache_refresh(t.cache, ids[i],
						       meta_test_deadline(),
						       NULL, NULL),
				TEI_ERR_INVALID);
	}
	CU_ASSERT_EQUAL(tei_meta_cache_open(t.cache, NULL, false,
					    meta_test_deadline(), &id, NULL),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_cache_open(t.cache, "/", false,
					    meta_test_deadline(), &id, NULL),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_cache_open(t.cache,
					    tei_meta_server_name(t.peer[1]),
					    false, meta_test_deadline(), &id,
					    NULL), TEI_ERR_TOO_MANY);
	CU_ASSERT_EQUAL(tei_meta_cache_forget(t.cache, ""), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_cache_forget(t.cache, "absent"), 0);
	CU_ASSERT_EQUAL(id, 55);
	cache_teardown(&t);
}

static void test_own_name_is_zero(void)
{
	struct tei_meta_desc *own, *got;
	struct cache_setup t;
	char alias[80];

	if (!cache_setup(&t, 0))
		return;
	CU_ASSERT_PTR_NULL(tei_meta_cache_get(t.cache, 0));
	own = meta_test_desc(tei_meta_server_name(t.peer[2]), 102, 2, 2);
	tei_meta_cache_set_local(t.cache, own);
	CU_ASSERT_EQUAL(cache_open(&t, own->name), 0);
	snprintf(alias, sizeof(alias), "localhost:%u",
		 tei_meta_server_port(t.peer[2]));
	CU_ASSERT_EQUAL(cache_open(&t, alias), 0);
	CU_ASSERT_EQUAL(tei_meta_cache_count(t.cache), 0);
	got = tei_meta_cache_get(t.cache, 0);
	CU_ASSERT_PTR_EQUAL(got, own);
	tei_meta_desc_unref(got);
	CU_ASSERT_EQUAL(tei_meta_cache_close(t.cache, 0, NULL), 0);
	CU_ASSERT_EQUAL(cache_open(&t, tei_meta_server_name(t.peer[0])), 1);
	tei_meta_desc_unref(own);
	cache_teardown(&t);
}

/* Restarts peer i at the same port with another incarnation. */
static void cache_restart(struct cache_setup *t, unsigned int i,
			  uint64_t incarnation)
{
	struct tei_meta_server_config config = {
		.host = "127.0.0.1", .incarnation = incarnation,
		.min_port = tei_meta_server_port(t->peer[i]),
	};

	config.max_port = config.min_port;
	tei_meta_server_stop(t->peer[i]);
	t->peer[i] = NULL;
	CU_ASSERT_EQUAL_FATAL(tei_meta_server_start(&config, &t->peer[i],
						    NULL), 0);
	meta_test_publish(t->peer[i], 2);
}

static void test_restarted_peer_is_noticed(void)
{
	struct cache_setup t;
	const char *name;
	bool changed;
	char kept[80];
	int32_t id;

	if (!cache_setup(&t, 0))
		return;
	snprintf(kept, sizeof(kept), "%s", tei_meta_server_name(t.peer[0]));
	name = kept;
	id = cache_open(&t, name);
	CU_ASSERT_EQUAL(tei_meta_cache_refresh(t.cache, id,
					       meta_test_deadline(), &changed,
					       NULL), 0);
	CU_ASSERT_FALSE(changed);
	cache_restart(&t, 0, 999);
	CU_ASSERT_EQUAL(cache_open(&t, name), id);
	CU_ASSERT_EQUAL(t.refreshed, 0);
	CU_ASSERT_EQUAL(tei_meta_cache_open(t.cache, name, true,
					    meta_test_deadline(), &id, NULL),
			0);
	CU_ASSERT_EQUAL(t.refreshed, 1);
	CU_ASSERT_EQUAL(t.refreshed_id, id);
	CU_ASSERT_EQUAL(t.before, 100);
	CU_ASSERT_EQUAL(t.now, 999);
	cache_restart(&t, 0, 1000);
	tei_meta_cache_forget(t.cache, name);
	CU_ASSERT_EQUAL(cache_open(&t, name), id);
	CU_ASSERT_EQUAL(t.now, 1000);
	cache_teardown(&t);
}

static void test_sync_refreshes_all_past_errors(void)
{
	struct cache_setup t;
	struct tei_meta_desc *desc;
	struct tei_err err;
	int i;

	if (!cache_setup(&t, 0))
		return;
	for (i = 0; i < 3; i++)
		cache_open(&t, tei_meta_server_name(t.peer[i]));
	CU_ASSERT_EQUAL(tei_meta_cache_sync(t.cache, 20 * TEI_NS_PER_SEC,
					    &err), 0);
	cache_restart(&t, 2, 777);
	tei_meta_server_stop(t.peer[0]);
	t.peer[0] = NULL;
	CU_ASSERT_EQUAL(tei_meta_cache_sync(t.cache, 20 * TEI_NS_PER_SEC,
					    &err), TEI_ERR_SOCKET);
	CU_ASSERT_EQUAL(t.now, 777);
	desc = tei_meta_cache_get(t.cache, 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(desc);
	CU_ASSERT_EQUAL(desc->incarnation, 100);
	tei_meta_desc_unref(desc);
	cache_teardown(&t);
}

static void test_failed_open_leaves_nothing(void)
{
	struct cache_setup t;
	struct tei_err err;
	char gone[80];
	int32_t id = 9;

	if (!cache_setup(&t, 0))
		return;
	snprintf(gone, sizeof(gone), "%s", tei_meta_server_name(t.peer[0]));
	tei_meta_server_stop(t.peer[0]);
	t.peer[0] = NULL;
	CU_ASSERT_EQUAL(tei_meta_cache_open(t.cache, gone, false,
					    meta_test_deadline(), &id, &err),
			TEI_ERR_SOCKET);
	CU_ASSERT_EQUAL(id, 9);
	CU_ASSERT_EQUAL(tei_meta_cache_count(t.cache), 0);
	CU_ASSERT_EQUAL(cache_open(&t, tei_meta_server_name(t.peer[1])), 1);
	cache_teardown(&t);
}

static void test_closed_ids_stay_stale_for_long(void)
{
	struct cache_setup t;
	const char *name;
	int32_t first, id, i;

	if (!cache_setup(&t, 0))
		return;
	name = tei_meta_server_name(t.peer[0]);
	first = cache_open(&t, name);
	tei_meta_cache_close(t.cache, first, NULL);
	for (i = 0; i < 1500; i++) {
		id = cache_open(&t, name);
		CU_ASSERT(id != first);
		CU_ASSERT_PTR_NULL(tei_meta_cache_get(t.cache, first));
		tei_meta_cache_close(t.cache, id, NULL);
	}
	CU_ASSERT(tei_meta_slot(id) <= 1025);
	cache_teardown(&t);
}

static void *cache_worker(void *arg)
{
	struct cache_setup *t = arg;
	struct tei_meta_desc *desc;
	int32_t id;
	int i;

	for (i = 0; i < 60; i++) {
		if (tei_meta_cache_open(t->cache,
					tei_meta_server_name(t->peer[i % 3]),
					i % 7 == 0, meta_test_deadline(), &id,
					NULL))
			return arg;
		desc = tei_meta_cache_get(t->cache, id);
		if (!desc)
			return arg;
		tei_meta_desc_unref(desc);
		if (i % 11 == 0)
			tei_meta_cache_sync(t->cache, 20 * TEI_NS_PER_SEC,
					    NULL);
		tei_meta_cache_close(t->cache, id, NULL);
	}
	return NULL;
}

static void test_threads_share_it(void)
{
	pthread_t threads[6];
	struct cache_setup t;
	void *failed;
	int i;

	if (!cache_setup(&t, 0))
		return;
	for (i = 0; i < 6; i++)
		pthread_create(&threads[i], NULL, cache_worker, &t);
	for (i = 0; i < 6; i++) {
		pthread_join(threads[i], &failed);
		CU_ASSERT_PTR_NULL(failed);
	}
	CU_ASSERT_EQUAL(tei_meta_cache_count(t.cache), 0);
	cache_teardown(&t);
}

static void test_data_is_detached_with_the_last_close(void)
{
	struct tei_meta_desc *desc;
	struct cache_setup t;
	const char *name;
	int32_t id;

	if (!cache_setup(&t, 0))
		return;
	name = tei_meta_server_name(t.peer[0]);
	id = cache_open(&t, name);
	desc = tei_meta_cache_get(t.cache, id);
	CU_ASSERT_PTR_EQUAL(tei_meta_cache_data(t.cache, id), desc);
	tei_meta_desc_unref(desc);
	CU_ASSERT_EQUAL(cache_open(&t, name), id);
	tei_meta_cache_close(t.cache, id, NULL);
	CU_ASSERT_PTR_NOT_NULL(tei_meta_cache_data(t.cache, id));
	tei_meta_cache_close(t.cache, id, NULL);
	CU_ASSERT_PTR_NULL(tei_meta_cache_data(t.cache, id));
	CU_ASSERT_EQUAL(t.detached, 1);
	cache_teardown(&t);
	CU_ASSERT_EQUAL(t.detached, 1);
}

static void test_open_without_data_is_refused(void)
{
	struct cache_setup t;
	int32_t id = -1;

	if (!cache_setup(&t, 0))
		return;
	t.refuse = true;
	CU_ASSERT_EQUAL(
		tei_meta_cache_open(t.cache, tei_meta_server_name(t.peer[0]),
				    false, meta_test_deadline(), &id, NULL),
		TEI_ERR_MEMORY);
	CU_ASSERT_EQUAL(id, -1);
	CU_ASSERT_EQUAL(tei_meta_cache_count(t.cache), 0);
	cache_teardown(&t);
	CU_ASSERT_EQUAL(t.detached, 0);
}

static void *cache_open_held(void *arg)
{
	struct cache_setup *t = arg;

	cache_open(t, tei_meta_server_name(t->peer[0]));
	return NULL;
}

static void test_close_while_data_is_attached_detaches_it_later(void)
{
	struct cache_setup t;
	pthread_t thread;
	int32_t id;

	if (!cache_setup(&t, 0))
		return;
	t.hold = true;
	pthread_create(&thread, NULL, cache_open_held, &t);
	while (!__atomic_load_n(&t.attaching, __ATOMIC_SEQ_CST))
		sched_yield();
	id = tei_meta_cache_lookup(t.cache, tei_meta_server_name(t.peer[0]));
	CU_ASSERT(id > 0);
	CU_ASSERT_EQUAL(tei_meta_cache_close(t.cache, id, NULL), 0);
	CU_ASSERT_EQUAL(__atomic_load_n(&t.detached, __ATOMIC_RELAXED), 0);
	__atomic_store_n(&t.hold, false, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL(t.detached, 1);
	CU_ASSERT_PTR_NULL(tei_meta_cache_data(t.cache, id));
	CU_ASSERT_EQUAL(tei_meta_cache_count(t.cache), 0);
	cache_teardown(&t);
}

struct cache_opener {
	struct cache_setup *t;
	const char *name;
};

static void *cache_open_thread(void *arg)
{
	struct cache_opener *o = arg;

	cache_open(o->t, o->name);
	return NULL;
}

static void test_one_fetch_serves_all_that_wait(void)
{
	struct tei_meta_server_stats stats;
	struct cache_opener opener;
	pthread_t threads[16];
	struct cache_setup t;
	char name[80];
	int i;

	if (!cache_setup(&t, 0))
		return;
	/*
	 * a host name makes the fetch slower than a numeric address, because a
	 * thread resolves it; so the other callers come while it is in progress
	 */
	snprintf(name, sizeof(name), "localhost:%u",
		 tei_meta_server_port(t.peer[0]));
	opener = (struct cache_opener){ &t, name };
	for (i = 0; i < 16; i++)
		pthread_create(&threads[i], NULL, cache_open_thread, &opener);
	for (i = 0; i < 16; i++)
		pthread_join(threads[i], NULL);
	tei_meta_server_stats(t.peer[0], &stats);
	CU_ASSERT_EQUAL(stats.served, 1);
	CU_ASSERT_EQUAL(tei_meta_cache_count(t.cache), 1);
	cache_teardown(&t);
}

static int32_t cache_put(struct cache_setup *t, const char *name,
			 uint64_t incarnation, uint64_t serial, bool replace)
{
	struct tei_meta_desc *desc;
	int32_t id = -1;
	int rc;

	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_create(name, "tcp", incarnation,
						   &desc, NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_set_serial(desc, serial, NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_freeze(desc, NULL), 0);
	rc = tei_meta_cache_put(t->cache, desc, replace, &id, NULL);
	tei_meta_desc_unref(desc);
	return rc ? rc : id;
}

static uint64_t cache_serial(struct cache_setup *t, int32_t id)
{
	struct tei_meta_desc *desc = tei_meta_cache_get(t->cache, id);
	uint64_t serial = desc ? desc->serial : 0;

	tei_meta_desc_unref(desc);
	return serial;
}

static void test_put_descriptor_needs_no_fetch(void)
{
	struct cache_setup t;
	bool last;

	if (!cache_setup(&t, 0))
		return;
	CU_ASSERT_EQUAL(cache_put(&t, "nobody:1", 7, 100, false), 1);
	CU_ASSERT_EQUAL(cache_open(&t, "nobody:1"), 1);
	CU_ASSERT_EQUAL(cache_put(&t, "nobody:1", 7, 99, false), 1);
	CU_ASSERT_EQUAL(cache_serial(&t, 1), 100);
	CU_ASSERT_EQUAL(cache_put(&t, "/nobody:1", 7, 101, false), 1);
	CU_ASSERT_EQUAL(cache_serial(&t, 1), 101);
	meta_test_hush(true);
	CU_ASSERT_EQUAL(cache_put(&t, "nobody:1", 8, 50, false),
			TEI_ERR_CONTEXT);
	meta_test_hush(false);
	CU_ASSERT_EQUAL(cache_put(&t, "nobody:1", 8, 50, true), 1);
	CU_ASSERT_EQUAL(cache_put(&t, "nobody:1", 9, 51, false), 1);
	CU_ASSERT_EQUAL(cache_serial(&t, 1), 51);
	for (int i = 0; i < 6; i++)
		CU_ASSERT_EQUAL(tei_meta_cache_close(t.cache, 1, &last), 0);
	CU_ASSERT(last);
	CU_ASSERT_EQUAL(tei_meta_cache_count(t.cache), 0);
	cache_teardown(&t);
}

const struct tei_test_case cache_cases[] = {
	{ "same_name_has_the_same_id", test_same_name_has_the_same_id },
	{ "unknown_ids_and_names_are_refused",
	  test_unknown_ids_and_names_are_refused },
	{ "own_name_is_zero", test_own_name_is_zero },
	{ "put_descriptor_needs_no_fetch", test_put_descriptor_needs_no_fetch },
	{ "restarted_peer_is_noticed", test_restarted_peer_is_noticed },
	{ "sync_refreshes_all_past_errors",
	  test_sync_refreshes_all_past_errors },
	{ "failed_open_leaves_nothing", test_failed_open_leaves_nothing },
	{ "closed_ids_stay_stale_for_long",
	  test_closed_ids_stay_stale_for_long },
	{ "threads_share_it", test_threads_share_it },
	{ "one_fetch_serves_all_that_wait",
	  test_one_fetch_serves_all_that_wait },
	{ "data_is_detached_with_the_last_close",
	  test_data_is_detached_with_the_last_close },
	{ "open_without_data_is_refused", test_open_without_data_is_refused },
	{ "close_while_data_is_attached_detaches_it_later",
	  test_close_while_data_is_attached_detaches_it_later },
	{ NULL, NULL },
};
