/* SPDX-License-Identifier: BSD-2-Clause */
#include <limits.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "prov/local/local_test.h"
#include "util/clock.h"

#define POOL_MEM	(8u << 20)

struct pool_fixture {
	struct tei_local *ctx;
	char *local, *target;
};

static void pool_setup(struct pool_fixture *f, uint32_t workers)
{
	f->ctx = test_ctx(workers);
	f->local = malloc(POOL_MEM);
	f->target = malloc(POOL_MEM);
	CU_ASSERT_FATAL(f->local && f->target);
	test_fill(f->local, POOL_MEM, 1);
	memset(f->target, 0, POOL_MEM);
	CU_ASSERT(!tei_local_region_add(f->ctx, f->target, POOL_MEM, 0));
}

static void pool_teardown(struct pool_fixture *f)
{
	tei_local_fini(f->ctx);
	free(f->local);
	free(f->target);
}

static void test_every_size_is_copied(void)
{
	static const uint64_t sizes[] = { 0, 1, 63, 4096, 65536, 65537,
		TEI_LOCAL_PIECE - 1, TEI_LOCAL_PIECE, TEI_LOCAL_PIECE + 1,
		POOL_MEM };
	struct pool_fixture f;
	uint32_t workers;
	size_t i;

	for (workers = 1; workers <= 4; workers++) {
		pool_setup(&f, workers);
		for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			memset(f.target, 0, POOL_MEM);
			CU_ASSERT(!test_run_op(f.ctx, NULL, TEI_LOCAL_WRITE,
					       f.local, test_addr(f.target),
					       sizes[i]));
			CU_ASSERT(!memcmp(f.target, f.local, sizes[i]));
			CU_ASSERT(sizes[i] == POOL_MEM || !f.target[sizes[i]]);
			memset(f.local, 7, sizes[i]);
			CU_ASSERT(!test_run_op(f.ctx, NULL, TEI_LOCAL_READ,
					       f.local, test_addr(f.target),
					       sizes[i]));
			CU_ASSERT(!memcmp(f.target, f.local, sizes[i]));
		}
		pool_teardown(&f);
	}
}

static void test_bad_operations_are_refused(void)
{
	struct pool_fixture f;
	struct test_op t;
	uint64_t at;

	pool_setup(&f, 1);
	at = test_addr(f.target);
	CU_ASSERT(test_run_op(f.ctx, NULL, TEI_LOCAL_WRITE, NULL, at, 1) ==
		  TEI_ERR_INVALID);
	CU_ASSERT(test_run_op(f.ctx, NULL, (enum tei_local_opcode)9, f.local,
			      at, 1) == TEI_ERR_INVALID);
	CU_ASSERT(test_run_op(f.ctx, NULL, TEI_LOCAL_WRITE, f.local,
			      UINT64_MAX, 2) == TEI_ERR_INVALID);
	CU_ASSERT(test_run_op(f.ctx, NULL, TEI_LOCAL_WRITE, f.local, at,
			      UINT64_MAX) == TEI_ERR_INVALID);
	CU_ASSERT(test_run_op(f.ctx, NULL, TEI_LOCAL_WRITE, f.local, 0, 1) ==
		  TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(test_run_op(f.ctx, NULL, TEI_LOCAL_WRITE, f.local, at - 1,
			      2) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(test_run_op(f.ctx, NULL, TEI_LOCAL_WRITE, f.local, at,
			      POOL_MEM + 1) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(test_run_op(f.ctx, NULL, TEI_LOCAL_WRITE, f.local,
			      at + POOL_MEM - 1, 2) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(tei_local_copy(f.ctx, NULL, TEI_LOCAL_WRITE, f.local, at,
				 TEI_LOCAL_COPY_MAX + 1, NULL) ==
		  TEI_ERR_INVALID);
	test_op_init(&t, NULL, TEI_LOCAL_WRITE, f.local, at, 1);
	t.op.done = NULL;
	CU_ASSERT(tei_local_submit(f.ctx, &t.op) == TEI_ERR_INVALID);
	CU_ASSERT(t.err.code == TEI_ERR_INVALID && t.err.text[0]);
	pool_teardown(&f);
	test_op_fini(&t);
}

/* If further threads cannot be started, one thread must suffice, and no error
 * may be reported. */
static void test_pool_with_fewer_threads_still_copies(void)
{
	struct pool_fixture f;
	struct test_op t;

	pool_setup(&f, 4);
	test_op_init(&t, NULL, TEI_LOCAL_WRITE, f.local, test_addr(f.target),
		     POOL_MEM);
	tei_test_threads(0);
	CU_ASSERT_EQUAL(tei_local_submit(f.ctx, &t.op), TEI_ERR_MEMORY);
	tei_test_threads(1);
	CU_ASSERT_FATAL(!tei_local_submit(f.ctx, &t.op));
	CU_ASSERT_EQUAL(test_op_wait(&t), 0);
	CU_ASSERT(!memcmp(f.target, f.local, POOL_MEM));
	tei_test_threads(UINT_MAX);
	pool_teardown(&f);
	test_op_fini(&t);
}

/* ---- order ------------------------------------------------------------- */

struct pool_gate {
	sem_t inside, go;
	_Atomic int pieces;
};

static void pool_gate_hook(void *arg)
{
	struct pool_gate *g = arg;

	atomic_fetch_add(&g->pieces, 1);
	sem_post(&g->inside);
	while (sem_wait(&g->go))
		;
}

static void pool_gate_init(struct pool_gate *g, struct tei_local *ctx)
{
	sem_init(&g->inside, 0, 0);
	sem_init(&g->go, 0, 0);
	atomic_init(&g->pieces, 0);
	ctx->before_copy = pool_gate_hook;
	ctx->before_copy_arg = g;
}

static void pool_gate_open(struct pool_gate *g)
{
	int i;

	for (i = 0; i < 1000; i++)
		sem_post(&g->go);
}

static void test_small_copy_waits_for_one_piece(void)
{
	struct pool_fixture f;
	struct pool_gate g;
	struct test_op bulk, small;

	pool_setup(&f, 1);
	pool_gate_init(&g, f.ctx);
	test_op_init(&bulk, NULL, TEI_LOCAL_WRITE, f.local,
		     test_addr(f.target), POOL_MEM);
	test_op_init(&small, NULL, TEI_LOCAL_READ, f.local,
		     test_addr(f.target), 1);
	CU_ASSERT_FATAL(!tei_local_submit(f.ctx, &bulk.op));
	sem_wait(&g.inside);
	CU_ASSERT_FATAL(!tei_local_submit(f.ctx, &small.op));
	/* now the first piece of "bulk" is being copied, and its second piece
	 * is in the queue before "small" */
	sem_post(&g.go);
	sem_wait(&g.inside);
	sem_post(&g.go);
	sem_wait(&g.inside);
	sem_post(&g.go);
	CU_ASSERT(test_op_wait(&small) == 0);
	CU_ASSERT(atomic_load(&g.pieces) <= 4);
	pool_gate_open(&g);
	CU_ASSERT(test_op_wait(&bulk) == 0);
	CU_ASSERT(atomic_load(&g.pieces) == 9);
	pool_teardown(&f);
	test_op_fini(&bulk);
	test_op_fini(&small);
}

static void test_large_copy_is_spread_over_the_threads(void)
{
	struct pool_fixture f;
	struct pool_gate g;
	struct test_op bulk;

	pool_setup(&f, 3);
	pool_gate_init(&g, f.ctx);
	test_op_init(&bulk, NULL, TEI_LOCAL_WRITE, f.local,
		     test_addr(f.target), POOL_MEM);
	CU_ASSERT_FATAL(!tei_local_submit(f.ctx, &bulk.op));
	/* wait until three pieces run at the same time */
	sem_wait(&g.inside);
	sem_wait(&g.inside);
	sem_wait(&g.inside);
	pool_gate_open(&g);
	CU_ASSERT(test_op_wait(&bulk) == 0);
	CU_ASSERT(bulk.bytes == POOL_MEM);
	CU_ASSERT(!memcmp(f.local, f.target, POOL_MEM));
	pool_teardown(&f);
	test_op_fini(&bulk);
}

static void test_waiters_can_copy(void)
{
	struct pool_fixture f;
	struct test_op t;
	int i;

	pool_setup(&f, 1);
	CU_ASSERT(!tei_local_progress(f.ctx));
	for (i = 0; i < 200; i++) {
		test_op_init(&t, NULL, TEI_LOCAL_WRITE, f.local,
			     test_addr(f.target), 65536);
		CU_ASSERT_FATAL(!tei_local_submit(f.ctx, &t.op));
		tei_local_progress(f.ctx);
		CU_ASSERT(test_op_wait(&t) == 0);
		tei_local_cancel(f.ctx, &t.op);
		CU_ASSERT(t.calls == 1 && t.bytes == 65536);
		test_op_fini(&t);
	}
	CU_ASSERT(!memcmp(f.local, f.target, 65536));
	pool_teardown(&f);
}

/* ---- end of an operation ----------------------------------------------- */

static void test_cancel_drops_what_has_not_started(void)
{
	struct pool_fixture f;
	struct pool_gate g;
	struct test_op bulk, queued;

	pool_setup(&f, 1);
	pool_gate_init(&g, f.ctx);
	test_op_init(&bulk, NULL, TEI_LOCAL_WRITE, f.local,
		     test_addr(f.target), POOL_MEM);
	test_op_init(&queued, NULL, TEI_LOCAL_WRITE, f.local,
		     test_addr(f.target), POOL_MEM);
	CU_ASSERT_FATAL(!tei_local_submit(f.ctx, &bulk.op));
	sem_wait(&g.inside);
	CU_ASSERT_FATAL(!tei_local_submit(f.ctx, &queued.op));
	tei_local_cancel(f.ctx, &queued.op);
	CU_ASSERT(queued.calls == 1 && queued.code == TEI_LOCAL_CANCELLED);
	CU_ASSERT(queued.bytes == 0);
	pool_gate_open(&g);
	tei_local_cancel(f.ctx, &bulk.op);
	CU_ASSERT(bulk.calls == 1);
	CU_ASSERT(bulk.code == TEI_LOCAL_CANCELLED || bulk.bytes == POOL_MEM);
	tei_local_cancel(f.ctx, &bulk.op);
	CU_ASSERT(bulk.calls == 1);
	pool_teardown(&f);
	test_op_fini(&bulk);
	test_op_fini(&queued);
}

static void test_fini_ends_everything(void)
{
	struct pool_fixture f;
	const uint64_t part = POOL_MEM / 64;
	struct test_op t[64];
	unsigned int i;

	pool_setup(&f, 2);
	for (i = 0; i < 64; i++) {
		test_op_init(&t[i], NULL, TEI_LOCAL_WRITE, f.local,
			     test_addr(f.target) + i * part, part);
		CU_ASSERT(!tei_local_submit(f.ctx, &t[i].op));
	}
	pool_teardown(&f);
	for (i = 0; i < 64; i++) {
		CU_ASSERT(t[i].calls == 1);
		CU_ASSERT(t[i].code == 0 || t[i].code == TEI_LOCAL_CANCELLED);
		test_op_fini(&t[i]);
	}
}

struct pool_again {
	struct tei_local_op op;
	struct tei_local *ctx;
	sem_t end;
	int left, bad;
};

static void pool_again_done(struct tei_local_op *op, int code, uint64_t bytes)
{
	struct pool_again *a = tei_container_of(op, struct pool_again, op);

	a->bad += code || bytes != op->length;
	if (--a->left && !tei_local_submit(a->ctx, op))
		return;
	sem_post(&a->end);
}

static void test_done_callback_may_submit_again(void)
{
	struct pool_fixture f;
	struct pool_again a;

	pool_setup(&f, 2);
	memset(&a, 0, sizeof(a));
	sem_init(&a.end, 0, 0);
	a.ctx = f.ctx;
	a.left = 1000;
	a.op.opcode = TEI_LOCAL_READ;
	a.op.local = f.local;
	a.op.remote = test_addr(f.target);
	a.op.length = 4096;
	a.op.done = pool_again_done;
	CU_ASSERT(!tei_local_submit(f.ctx, &a.op));
	while (sem_wait(&a.end))
		;
	CU_ASSERT(!a.left && !a.bad);
	pool_teardown(&f);
}

/*
 * State of a thread that submits and cancels operations while other threads do
 * the same. done must be called once for each.
 */
struct pool_storm {
	struct pool_fixture *f;
	uint64_t seed;
	int bad;
};

static void pool_storm_round(struct pool_storm *s, struct test_op t[8],
			     char *local)
{
	uint64_t len;
	int i, code;

	for (i = 0; i < 8; i++) {
		len = test_random(&s->seed) % (2 * TEI_LOCAL_PIECE);
		test_op_init(&t[i], NULL, TEI_LOCAL_READ, local,
			     test_addr(s->f->target), len >> (i * 2));
		s->bad += tei_local_submit(s->f->ctx, &t[i].op) != 0;
	}
	for (i = 0; i < 8; i++) {
		if (test_random(&s->seed) & 1)
			tei_local_cancel(s->f->ctx, &t[i].op);
		code = test_op_wait(&t[i]);
		tei_local_cancel(s->f->ctx, &t[i].op);
		s->bad += t[i].calls != 1;
		s->bad += code && code != TEI_LOCAL_CANCELLED;
		s->bad += !code && t[i].bytes != t[i].op.length;
		test_op_fini(&t[i]);
	}
}

static void *pool_storm_main(void *arg)
{
	struct pool_storm *s = arg;
	struct test_op t[8];
	char *local[8];
	int i;

	local[0] = malloc(2 * TEI_LOCAL_PIECE);
	for (i = 0; i < 100; i++)
		pool_storm_round(s, t, local[0]);
	free(local[0]);
	return NULL;
}

static void test_storm_of_submits_and_cancels(void)
{
	struct pool_storm s[4];
	struct pool_fixture f;
	struct tei_local_counters c;
	pthread_t t[4];
	int i;

	/* a single copy thread, because the copies share their local memory */
	pool_setup(&f, 1);
	for (i = 0; i < 4; i++) {
		s[i] = (struct pool_storm){ &f, (uint64_t)i + 1, 0 };
		pthread_create(&t[i], NULL, pool_storm_main, &s[i]);
	}
	for (i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		CU_ASSERT(s[i].bad == 0);
	}
	tei_local_stats(f.ctx, &c);
	CU_ASSERT(c.queued_bytes == 0 && c.threads == 1 && c.regions == 1);
	CU_ASSERT(c.rx_bytes > 0 && c.tx_bytes == 0 && c.errors == 0);
	pool_teardown(&f);
}

const struct tei_test_case local_pool_cases[] = {
	{ "every_size_is_copied", test_every_size_is_copied },
	{ "pool_with_fewer_threads_still_copies",
	  test_pool_with_fewer_threads_still_copies },
	{ "bad_operations_are_refused", test_bad_operations_are_refused },
	{ "small_copy_waits_for_one_piece",
	  test_small_copy_waits_for_one_piece },
	{ "large_copy_is_spread_over_the_threads",
	  test_large_copy_is_spread_over_the_threads },
	{ "waiters_can_copy", test_waiters_can_copy },
	{ "cancel_drops_what_has_not_started",
	  test_cancel_drops_what_has_not_started },
	{ "fini_ends_everything", test_fini_ends_everything },
	{ "done_callback_may_submit_again",
	  test_done_callback_may_submit_again },
	{ "storm_of_submits_and_cancels", test_storm_of_submits_and_cancels },
	{ NULL, NULL },
};
