/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests registered memory: the registration of many regions in one call, the
 * publication of regions, and addresses without memory.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/api_test.h"
#include "api/engine_int.h"
#include "api/engine_memory.h"
#include "api/transfer_engine_c.h"
#include "meta/meta_store_int.h"
#include "meta/tei_meta_desc.h"

#define MEMORY_MANY	10000u
#define MEMORY_STEP	64u /* distance between the starts of two regions,
			     * bytes */
/* number of different lengths of regions */
#define MEMORY_SIZES 40u

static struct meta_store_ops memory_ops;
/* the next three variables are atomic, because a worker thread publishes,
 * too */
static uint32_t memory_publications; /* number of publications that changed
				      * the number of buffers */
static uint32_t memory_buffers;	     /* number of buffers in the last
				      * publication */
static uint32_t memory_calls;	     /* number of all publications */
static pthread_t memory_caller;	     /* thread that registers the regions; set
				      * before the first publication */

static int memory_publish(struct tei_meta_store *store,
			  const struct tei_meta_desc *desc, const char *json,
			  size_t len, bool notified, uint64_t deadline_ns,
			  struct tei_err *err)
{
	(void)store;
	(void)json;
	(void)len;
	(void)notified;
	(void)deadline_ns;
	(void)err;
	__atomic_fetch_add(&memory_calls, 1, __ATOMIC_RELAXED);
	/* A worker thread publishes the descriptor some time after the rails
	 * were opened. If a call is removing regions then, the worker publishes
	 * the regions that are left at this time. Such a publication is not one
	 * of the call, so it is not counted. */
	if (!pthread_equal(pthread_self(), memory_caller) &&
	    desc->buffer_count && desc->buffer_count != MEMORY_MANY)
		return 0;
	if (desc->buffer_count !=
	    __atomic_load_n(&memory_buffers, __ATOMIC_ACQUIRE))
		__atomic_fetch_add(&memory_publications, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&memory_buffers, desc->buffer_count, __ATOMIC_RELEASE);
	return 0;
}

/* Waits until the last published descriptor has n buffers. Returns false after
 * 20 s. */
static bool memory_stored(uint32_t n)
{
	uint64_t end = tei_now_ns() + 20 * TEI_NS_PER_SEC;

	while (__atomic_load_n(&memory_buffers, __ATOMIC_ACQUIRE) != n &&
	       tei_now_ns() < end)
		usleep(1000);
	return __atomic_load_n(&memory_buffers, __ATOMIC_ACQUIRE) == n;
}

struct memory_rig {
	struct engine *engine;
	char *mem;
	buffer_entry_t *list;
	void **addr;
};

/* Creates an engine and a list of MEMORY_MANY regions of different lengths,
 * which are not sorted. */
static struct memory_rig memory_open(void)
{
	struct memory_rig r = { .engine = NULL };
	uint32_t i;

	r.engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1",
					"127.0.0.1", 0, 0);
	CU_ASSERT_FATAL(r.engine != NULL);
	CU_ASSERT_FATAL(installTransport(r.engine, "tcp", NULL) != NULL);
	tei_mutex_lock(&r.engine->control);
	/* waits for a worker thread, which may be publishing the rails that
	 * were just opened */
	tei_mutex_lock(&r.engine->listing.store);
	/* sets the function `publish` of the store, which P2PHANDSHAKE does not
	 * have */
	memory_buffers = 0;
	memory_caller = pthread_self();
	memory_ops = *r.engine->store->ops;
	CU_ASSERT_FATAL(!memory_ops.publish);
	memory_ops.publish = memory_publish;
	memory_ops.caps |= TEI_META_KEEPS;
	r.engine->store->ops = &memory_ops;
	tei_mutex_unlock(&r.engine->listing.store);
	tei_mutex_unlock(&r.engine->control);
	r.mem = calloc(MEMORY_MANY, MEMORY_STEP);
	r.list = calloc(MEMORY_MANY, sizeof(*r.list));
	r.addr = calloc(MEMORY_MANY, sizeof(*r.addr));
	CU_ASSERT_FATAL(r.mem && r.list && r.addr);
	for (i = 0; i < MEMORY_MANY; i++) {
		r.addr[i] = r.mem + (size_t)i * MEMORY_STEP;
		r.list[i].addr = r.addr[i];
		r.list[i].length = 1 + i * 7 % MEMORY_SIZES;
	}
	return r;
}

static void memory_close(struct memory_rig *r)
{
	destroyTransferEngine(r->engine);
	free(r->mem);
	free(r->list);
	free(r->addr);
}

struct memory_state {
	uint32_t regions, published;
	bool ascending; /* the lengths of the regions are in
			 * ascending order */
};

static struct memory_state memory_state(struct engine *e)
{
	struct memory_state s = { .ascending = true };
	uint32_t i;

	tei_mutex_lock(&e->control);
	s.regions = e->memory.n;
	s.published = __atomic_load_n(&memory_publications, __ATOMIC_RELAXED);
	for (i = 1; i < e->memory.n; i++)
		s.ascending &= e->memory.regions[i - 1].length <=
			       e->memory.regions[i].length;
	tei_mutex_unlock(&e->control);
	return s;
}

static void test_batch_of_ten_thousand_is_published_once(void)
{
	struct memory_rig r = memory_open();
	struct memory_state was = memory_state(r.engine), is;

	CU_ASSERT(!registerLocalMemoryBatch(r.engine, r.list, MEMORY_MANY,
					    "*"));
	CU_ASSERT(memory_stored(MEMORY_MANY));
	is = memory_state(r.engine);
	CU_ASSERT_EQUAL(is.regions, MEMORY_MANY);
	CU_ASSERT_EQUAL(is.published, was.published + 1);
	CU_ASSERT(is.ascending);
	CU_ASSERT(!unregisterLocalMemoryBatch(r.engine, r.addr, MEMORY_MANY));
	CU_ASSERT(memory_stored(0));
	is = memory_state(r.engine);
	CU_ASSERT_EQUAL(is.regions, 0);
	CU_ASSERT_EQUAL(is.published, was.published + 2);
	memory_close(&r);
}

/* Tests a call whose largest region overlaps another one. This region is
 * registered last, so all others must be unregistered again. */
static void test_refused_batch_of_ten_thousand_registers_none(void)
{
	struct memory_rig r = memory_open();
	struct memory_state is;

	r.list[MEMORY_MANY / 2].length = 2 * MEMORY_STEP;
	CU_ASSERT_EQUAL(registerLocalMemoryBatch(r.engine, r.list, MEMORY_MANY,
						 "*"), -7);
	is = memory_state(r.engine);
	CU_ASSERT_EQUAL(is.regions, 0);
	r.list[MEMORY_MANY / 2].length = 1;
	CU_ASSERT(!registerLocalMemoryBatch(r.engine, r.list, MEMORY_MANY,
					    "*"));
	memory_close(&r);
}

/* Tests that a publication which is queued for a later time is made at once if
 * an earlier time is requested. */
static void test_queued_publication_is_done_at_the_earlier_time(void)
{
	struct memory_rig r = memory_open();
	uint64_t end = tei_now_ns() + 20 * TEI_NS_PER_SEC;
	uint32_t calls;

	engine_publish_at(r.engine, tei_now_ns() + 3600 * TEI_NS_PER_SEC);
	calls = __atomic_load_n(&memory_calls, __ATOMIC_RELAXED);
	engine_publish_at(r.engine, 0);
	while (__atomic_load_n(&memory_calls, __ATOMIC_RELAXED) == calls &&
	       tei_now_ns() < end)
		usleep(1000);
	CU_ASSERT_NOT_EQUAL(__atomic_load_n(&memory_calls, __ATOMIC_RELAXED),
			    calls);
	/* also requests a publication after the worker threads have stopped: no
	 * job must be queued */
	engine_publish_at(r.engine, tei_now_ns() + 3600 * TEI_NS_PER_SEC);
	engine_work_stop(r.engine);
	engine_publish_at(r.engine, 0);
	memory_close(&r);
}

/* Tests that the descriptor does not contain a region which is in the table but
 * not listed, because it is still being registered and has no keys. */
static void test_region_without_keys_is_not_in_descriptor(void)
{
	struct memory_rig r = memory_open();
	struct engine *e = r.engine;
	struct tei_meta_desc *desc;

	CU_ASSERT_EQUAL(registerLocalMemory(e, r.mem, 64, "*", 1), 0);
	CU_ASSERT_EQUAL(registerLocalMemory(e, r.mem + 64, 64, "*", 1), 0);
	tei_mutex_lock(&e->listing.lock);
	e->memory.regions[1].listed = false;
	e->listing.version++;
	tei_mutex_unlock(&e->listing.lock);
	desc = engine_describe(e);
	CU_ASSERT_PTR_NOT_NULL_FATAL(desc);
	CU_ASSERT_EQUAL(desc->buffer_count, 1);
	tei_meta_desc_unref(desc);
	memory_close(&r);
}

static struct engine *memory_engine(void)
{
	struct engine *e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1",
						"127.0.0.1", 0, 0);

	CU_ASSERT_FATAL(e != NULL);
	CU_ASSERT_FATAL(installTransport(e, "tcp", NULL) != NULL);
	return e;
}

/* Checks that the registration is refused and that the text of the error
 * contains `why`. */
static void memory_expect_refusal(struct engine *e, void *addr, size_t len,
				  const char *why)
{
	struct te_error err;

	CU_ASSERT_EQUAL(registerLocalMemory(e, addr, len, "*", 1), -1);
	CU_ASSERT_EQUAL(te_last_error(&err, sizeof(err)), 0);
	CU_ASSERT(strstr(err.text, why) != NULL);
	CU_ASSERT(*err.hint);
	CU_ASSERT_EQUAL(registerLocalMemory(e, addr, len, "cpu:0", 0), -1);
}

static void memory_expect_hole(struct engine *e, uintptr_t addr, size_t len,
			       uintptr_t hole)
{
	char why[64];
	void *p;

	memcpy(&p, &addr, sizeof(p));
	snprintf(why, sizeof(why), "not mapped at %#llx",
		 (unsigned long long)hole);
	memory_expect_refusal(e, p, len, why);
}

static void test_unmapped_address_is_refused(void)
{
	struct engine *e = memory_engine();

	memory_expect_hole(e, 0x10000, 4096, 0x10000);
	memory_expect_hole(e, UINTPTR_MAX / 2 + 1, 4096, UINTPTR_MAX / 2 + 1);
	memory_expect_hole(e, UINTPTR_MAX - 8191, 4096, UINTPTR_MAX - 8191);
	CU_ASSERT_EQUAL(e->memory.n, 0);
	destroyTransferEngine(e);
}

static void test_hole_in_a_range_is_refused_and_named(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct engine *e = memory_engine();
	buffer_entry_t list[2];
	char *p, why[64];

	p = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CU_ASSERT_FATAL(p != MAP_FAILED);
	munmap(p + 2 * page, page);
	memory_expect_hole(e, (uintptr_t)p, 4 * page, (uintptr_t)p + 2 * page);
	memory_expect_hole(e, (uintptr_t)p + 2 * page + 5, 1,
			   (uintptr_t)p + 2 * page + 5);
	/* the second buffer of the list is refused, so the first one must not
	 * stay registered */
	list[0] = (buffer_entry_t){ p, page };
	list[1] = (buffer_entry_t){ p + page, 2 * page };
	CU_ASSERT_EQUAL(registerLocalMemoryBatch(e, list, 2, "*"), -1);
	CU_ASSERT_EQUAL(e->memory.n, 0);
	mprotect(p + page, page, PROT_NONE);
	snprintf(why, sizeof(why), "%#llx to %#llx is mapped with PROT_NONE",
		 (unsigned long long)(uintptr_t)(p + page),
		 (unsigned long long)(uintptr_t)(p + 2 * page));
	memory_expect_refusal(e, p, 2 * page, why);
	CU_ASSERT_EQUAL(registerLocalMemory(e, p, page, "*", 1), 0);
	CU_ASSERT_EQUAL(unregisterLocalMemory(e, p), 0);
	destroyTransferEngine(e);
	munmap(p, 2 * page);
	munmap(p + 3 * page, page);
}

const struct tei_test_case memory_cases[] = {
	{ "unmapped_address_is_refused", test_unmapped_address_is_refused },
	{ "hole_in_a_range_is_refused_and_named",
	  test_hole_in_a_range_is_refused_and_named },
	{ "queued_publication_is_done_at_the_earlier_time",
	  test_queued_publication_is_done_at_the_earlier_time },
	{ "region_without_keys_is_not_in_descriptor",
	  test_region_without_keys_is_not_in_descriptor },
	{ "batch_of_ten_thousand_is_published_once",
	  test_batch_of_ten_thousand_is_published_once },
	{ "refused_batch_of_ten_thousand_registers_none",
	  test_refused_batch_of_ten_thousand_registers_none },
	{ NULL, NULL },
};
