/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests the destruction of an engine during te_flush and te_drain. */
#include <string.h>
#include <time.h>

#include "api/api_test.h"
#include "api/engine_int.h"
#include "api/engine_transport.h"

/* time for which both threads must go on waiting */
#define FLUSH_STILL_NS (200 * TEI_NS_PER_MS)

/* A call of the engine that another thread makes. */
struct flush_call {
	transfer_engine_t engine;
	int (*fn)(transfer_engine_t engine);
	bool back; /* atomic: the call has returned */
	int ret;
	int code; /* code of the thread's last error after the call */
	pthread_t thread;
};

static void *flush_call_main(void *arg)
{
	struct flush_call *c = arg;

	c->ret = c->fn(c->engine);
	c->code = tei_err_last()->code;
	__atomic_store_n(&c->back, true, __ATOMIC_RELEASE);
	return NULL;
}

static void flush_call(struct flush_call *c, transfer_engine_t engine,
		       int (*fn)(transfer_engine_t engine))
{
	*c = (struct flush_call){ .engine = engine, .fn = fn };
	CU_ASSERT_FATAL(!pthread_create(&c->thread, NULL, flush_call_main, c));
}

static bool flush_back(const struct flush_call *c)
{
	return __atomic_load_n(&c->back, __ATOMIC_ACQUIRE);
}

static int flush_local(transfer_engine_t engine)
{
	return te_flush(engine, LOCAL_SEGMENT, -1);
}

static int flush_all(transfer_engine_t engine)
{
	return te_drain(engine, -1);
}

static int flush_destroy(transfer_engine_t engine)
{
	destroyTransferEngine(engine);
	return 0;
}

static void flush_nap(void)
{
	struct timespec nap = { .tv_nsec = 1000000 };

	nanosleep(&nap, NULL);
}

/* Waits until a thread is in a blocking call of the engine. Returns false if
 * that has not happened after 10 s. */
static bool flush_waits(struct engine *e)
{
	uint64_t until = tei_now_ns() + 10 * TEI_NS_PER_SEC;

	while (!__atomic_load_n(&e->waits.waiting, __ATOMIC_SEQ_CST) &&
	       tei_now_ns() < until)
		flush_nap();
	return __atomic_load_n(&e->waits.waiting, __ATOMIC_SEQ_CST);
}

static bool flush_stays(const struct flush_call *a, const struct flush_call *b)
{
	uint64_t until = tei_now_ns() + FLUSH_STILL_NS;

	while (!flush_back(a) && !flush_back(b) && tei_now_ns() < until)
		flush_nap();
	return !flush_back(a) && !flush_back(b);
}

/* Destroys the engine while a flush waits for the lock of a batch, which this
 * function holds. Checks that both calls wait until the lock is released, and
 * that the flush then fails. */
static void flush_beside_destroy(int (*fn)(transfer_engine_t engine))
	TEI_NO_TSA
{
	transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE",
							"127.0.0.1",
							"127.0.0.1", 0, 0);
	struct engine *e = engine;
	struct flush_call flush, destroy;
	struct engine_batch *b;
	batch_id_t id;

	CU_ASSERT_FATAL(e != NULL);
	id = allocateBatchID(engine, 1);
	b = engine_batch_lock(e, id);
	CU_ASSERT_FATAL(b != NULL);
	/* a task that never ends */
	b->tasks[0] = (struct engine_task){ .engine = e, .batch = b,
					    .target = LOCAL_SEGMENT,
					    .by = &transport_local };
	b->count = 1;
	engine_wait_expect(b, 1);
	flush_call(&flush, engine, fn);
	CU_ASSERT_FATAL(flush_waits(e));
	flush_call(&destroy, engine, flush_destroy);
	CU_ASSERT(flush_stays(&flush, &destroy));
	engine_batch_unlock(b);
	pthread_join(flush.thread, NULL);
	pthread_join(destroy.thread, NULL);
	CU_ASSERT_EQUAL(flush.ret, 1);
	CU_ASSERT_EQUAL(flush.code, TEI_ERR_INVALID);
}

static void test_destruction_during_flush_waits_for_its_end(void)
{
	flush_beside_destroy(flush_local);
}

static void test_destruction_during_drain_waits_for_its_end(void)
{
	flush_beside_destroy(flush_all);
}

const struct tei_test_case flush_cases[] = {
	{ "destruction_during_flush_waits_for_its_end",
	  test_destruction_during_flush_waits_for_its_end },
	{ "destruction_during_drain_waits_for_its_end",
	  test_destruction_during_drain_waits_for_its_end },
	{ NULL, NULL },
};
