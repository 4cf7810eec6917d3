/* SPDX-License-Identifier: BSD-2-Clause */
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "prov/local/local_test.h"
#include "util/clock.h"

static char region_mem[1 << 20];

static uint64_t region_soon(void)
{
	return tei_now_ns() + TEST_WAIT_NS;
}

static void test_bad_ranges_are_refused(void)
{
	struct tei_local *ctx = test_ctx(1);
	char *m = region_mem;

	CU_ASSERT(tei_local_region_add(ctx, NULL, 1, TEI_LOCAL_REMOTE) == TEI_ERR_INVALID);
	CU_ASSERT(tei_local_region_add(ctx, m, 0, TEI_LOCAL_REMOTE) == TEI_ERR_INVALID);
	CU_ASSERT(tei_local_region_add(ctx, m, UINT64_MAX, TEI_LOCAL_REMOTE) ==
		  TEI_ERR_INVALID);
	CU_ASSERT(!tei_local_region_add(ctx, m + 100, 100, TEI_LOCAL_REMOTE));
	CU_ASSERT(tei_local_region_add(ctx, m + 100, 100, TEI_LOCAL_REMOTE) ==
		  TEI_ERR_OVERLAP);
	CU_ASSERT(tei_local_region_add(ctx, m + 50, 51, TEI_LOCAL_REMOTE) ==
		  TEI_ERR_OVERLAP);
	CU_ASSERT(tei_local_region_add(ctx, m + 199, 1, TEI_LOCAL_REMOTE) ==
		  TEI_ERR_OVERLAP);
	CU_ASSERT(tei_local_region_add(ctx, m, 1000, TEI_LOCAL_REMOTE) == TEI_ERR_OVERLAP);
	CU_ASSERT(!tei_local_region_add(ctx, m, 100, TEI_LOCAL_REMOTE));
	CU_ASSERT(!tei_local_region_add(ctx, m + 200, 1, TEI_LOCAL_REMOTE));
	CU_ASSERT(tei_local_region_remove(ctx, m + 1, 0, region_soon()) ==
		  TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(tei_local_region_remove(ctx, m, 99, region_soon()) ==
		  TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(!tei_local_region_remove(ctx, m, 100, region_soon()));
	CU_ASSERT(tei_local_region_remove(ctx, m, 0, region_soon()) ==
		  TEI_ERR_NOT_REGISTERED);
	tei_local_fini(ctx);
}

static void test_overlap_names_the_other_region(void)
{
	struct tei_local *ctx = test_ctx(1);
	char *m = region_mem, other[64];

	CU_ASSERT(!tei_local_region_add(ctx, m + 100, 50, TEI_LOCAL_REMOTE));
	CU_ASSERT(!tei_local_region_add(ctx, m + 200, 50, TEI_LOCAL_REMOTE));
	CU_ASSERT_EQUAL(tei_local_region_add(ctx, m + 160, 60,
					     TEI_LOCAL_REMOTE),
			TEI_ERR_OVERLAP);
	snprintf(other, sizeof(other), "registered buffer %p of 50 bytes",
		 (void *)(m + 200));
	CU_ASSERT_PTR_NOT_NULL(strstr(tei_err_last()->text, other));
	tei_local_fini(ctx);
}

/* Regions that are added between the two calls of tei_local_regions_adding must
 * be published together, after the second call. */
static void test_adding_is_made_known_once(void)
{
	struct tei_local *ctx = test_ctx(1);
	char *m = region_mem, local[16] = "";
	uint64_t generation;

	tei_local_region_add(ctx, local, sizeof(local), 0);
	generation = ctx->generation;
	tei_local_regions_adding(ctx, true);
	tei_local_regions_adding(ctx, true);
	CU_ASSERT(!tei_local_region_add(ctx, m, 100, TEI_LOCAL_REMOTE));
	CU_ASSERT(!tei_local_region_add(ctx, m + 200, 100, TEI_LOCAL_REMOTE));
	tei_local_regions_adding(ctx, false);
	CU_ASSERT_EQUAL(ctx->generation, generation);
	CU_ASSERT(tei_local_region_add(ctx, m + 50, 100, TEI_LOCAL_REMOTE) ==
		  TEI_ERR_OVERLAP);
	tei_local_regions_adding(ctx, false);
	CU_ASSERT_EQUAL(ctx->generation, generation + 1);
	CU_ASSERT(!tei_local_copy(ctx, NULL, TEI_LOCAL_READ, local,
				  (uint64_t)(uintptr_t)m + 200, 16, NULL));
	tei_local_regions_adding(ctx, true);
	tei_local_regions_adding(ctx, false);
	CU_ASSERT_EQUAL(ctx->generation, generation + 1);
	tei_local_fini(ctx);
}

/*
 * Regions that are removed in one call must be withdrawn by one publication. A
 * missing region must get its own code.
 */
static void test_removing_is_made_known_once(void)
{
	struct tei_local *ctx = test_ctx(1);
	char *m = region_mem, local[16] = "";
	struct tei_local_range r[] = {
		{ .base = m + 200 }, { .base = m, .len = 100 },
		{ .base = m + 50 }, { .base = m + 200 },
		{ .base = m + 400, .len = 99 },
	};
	uint64_t generation;
	int i;

	tei_local_region_add(ctx, local, sizeof(local), 0);
	for (i = 0; i < 4; i++)
		CU_ASSERT(!tei_local_region_add(ctx, m + 200 * i, 100, TEI_LOCAL_REMOTE));
	generation = ctx->generation;
	tei_local_regions_remove(ctx, r, 5, tei_now_ns() + TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(ctx->generation, generation + 1);
	CU_ASSERT(!r[0].code && !r[1].code);
	for (i = 2; i < 5; i++)
		CU_ASSERT_EQUAL(r[i].code, TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(tei_local_region_check(ctx, m, 1, false) &&
		  tei_local_region_check(ctx, m + 200, 1, false));
	CU_ASSERT(!tei_local_region_check(ctx, m + 400, 100, false) &&
		  !tei_local_region_check(ctx, m + 600, 100, false));
	CU_ASSERT_EQUAL(ctx->table.nregions, 3);
	/* no region is removed, so the table is not published */
	tei_local_regions_remove(ctx, r, 2, tei_now_ns());
	CU_ASSERT_EQUAL(ctx->generation, generation + 1);
	tei_local_fini(ctx);
}

static void test_check_knows_the_edges(void)
{
	struct tei_local *ctx = test_ctx(1);
	char *m = region_mem;

	CU_ASSERT(tei_local_region_check(ctx, m, 1, false) == TEI_ERR_NOT_REGISTERED);
	tei_local_region_add(ctx, m + 100, 100, 0);
	tei_local_region_add(ctx, m + 200, 100, TEI_LOCAL_REMOTE);
	CU_ASSERT(!tei_local_region_check(ctx, m + 100, 100, false));
	CU_ASSERT(!tei_local_region_check(ctx, m + 299, 1, false));
	CU_ASSERT(tei_local_region_check(ctx, m + 99, 2, false));
	CU_ASSERT(tei_local_region_check(ctx, m + 299, 2, false));
	CU_ASSERT(tei_local_region_check(ctx, m + 150, 100, false));
	CU_ASSERT(tei_local_region_check(ctx, m + 150, UINT64_MAX, false));
	tei_local_fini(ctx);
}

/* Makes random changes. After each change, compares the table with a plain
 * array of flags. */
static void test_table_follows_random_changes(void)
{
	enum { N = 512, STEP = 64 };
	struct tei_local *ctx = test_ctx(1);
	bool there[N] = { false };
	uint64_t state = 7;
	int i, k, rc;

	for (i = 0; i < 4000; i++) {
		k = (int)(test_random(&state) % N);
		if (there[k])
			rc = tei_local_region_remove(ctx, region_mem + k * STEP,
						     STEP, region_soon());
		else
			rc = tei_local_region_add(ctx, region_mem + k * STEP,
						  STEP, k & 1);
		there[k] = !there[k];
		CU_ASSERT(!rc);
		k = (int)(test_random(&state) % N);
		rc = tei_local_region_check(ctx, region_mem + k * STEP, STEP, false);
		CU_ASSERT(!rc == there[k]);
		rc = local_shared_table_covers(ctx->shared,
					       test_addr(region_mem + k * STEP),
					       STEP, LOCAL_ACCESSIBLE);
		CU_ASSERT(rc == (there[k] && (k & 1)));
	}
	tei_local_fini(ctx);
}

static void test_table_is_bounded(void)
{
	struct tei_local *ctx = test_ctx(1);
	uintptr_t base = 0x10000;
	uint32_t i, bad = 0;

	tei_local_regions_adding(ctx, true);
	for (i = 0; i < TEI_LOCAL_REGIONS - 1; i++)
		bad += tei_local_region_add(ctx, (void *)(base + 2 * i), 1,
					    0) != 0;
	tei_local_regions_adding(ctx, false);
	CU_ASSERT_EQUAL(bad, 0);
	CU_ASSERT(!tei_local_region_add(ctx, (void *)(base + 1), 1, TEI_LOCAL_REMOTE));
	CU_ASSERT(tei_local_region_add(ctx, (void *)(base + 3), 1, TEI_LOCAL_REMOTE) ==
		  TEI_ERR_TOO_MANY);
	CU_ASSERT(!tei_local_region_check(ctx, (void *)(base + 1), 1, false));
	tei_local_fini(ctx);
}

/*
 * Adds many regions and removes most of them, repeatedly, in an order that
 * splits blocks and leaves them almost empty. The remaining regions must be
 * found, and no other region.
 */
static void test_table_holds_what_stays_of_many(void)
{
	enum { N = 20000, STAYS = 61 };
	struct tei_local *ctx = test_ctx(1);
	const uintptr_t base = 0x100000;
	uint32_t i, k, round, bad = 0;

	for (round = 0; round < 4; round++) {
		tei_local_regions_adding(ctx, true);
		for (i = 0; i < N; i++) {
			k = i * 7919 % N; /* i * 7919 % N takes all values
					   * below N, in a scattered
					   * order */
			bad += (tei_local_region_add(ctx, (void *)(base + 8 * k),
						     4, 0) == 0) !=
			       (!round || k % STAYS);
		}
		tei_local_regions_adding(ctx, false);
		for (i = 0; i < N; i++)
			if (i % STAYS)
				bad += tei_local_region_remove(
					ctx, (void *)(base + 8 * i), 4,
					region_soon()) != 0;
		for (i = 0; i < N; i++)
			bad += (tei_local_region_check(
					ctx, (void *)(base + 8 * i), 4,
					false) == 0) != (i % STAYS == 0);
	}
	CU_ASSERT_EQUAL(bad, 0);
	CU_ASSERT(ctx->table.nblocks <= LOCAL_INDEX / 8);
	CU_ASSERT(ctx->table.used <= LOCAL_BLOCKS);
	tei_local_fini(ctx);
}

/* ---- removal against copies of our own --------------------------------- */

struct region_gate {
	sem_t inside, go;
};

static void region_gate_hook(void *arg)
{
	struct region_gate *g = arg;

	sem_post(&g->inside);
	while (sem_wait(&g->go))
		;
}

static void region_gate_init(struct region_gate *g, struct tei_local *ctx)
{
	sem_init(&g->inside, 0, 0);
	sem_init(&g->go, 0, 0);
	ctx->before_copy = region_gate_hook;
	ctx->before_copy_arg = g;
}

static void test_remove_waits_for_own_operations(void)
{
	struct tei_local *ctx = test_ctx(1);
	char *m = region_mem, local[64] = "x";
	struct region_gate gate;
	struct test_op t;

	region_gate_init(&gate, ctx);
	tei_local_region_add(ctx, m, 4096, TEI_LOCAL_REMOTE);
	tei_local_region_add(ctx, local, sizeof(local), TEI_LOCAL_REMOTE);
	test_op_init(&t, NULL, TEI_LOCAL_WRITE, local, test_addr(m), 64);
	CU_ASSERT_FATAL(!tei_local_submit(ctx, &t.op));
	sem_wait(&gate.inside);
	/* the source and the target are in use */
	CU_ASSERT(tei_local_region_remove(ctx, m, 0, tei_now_ns() +
		  TEI_NS_PER_MS) == TEI_ERR_BUSY);
	CU_ASSERT(tei_local_region_remove(ctx, local, 0, tei_now_ns() +
		  TEI_NS_PER_MS) == TEI_ERR_BUSY);
	CU_ASSERT(!tei_local_region_check(ctx, m, 4096, false));
	sem_post(&gate.go);
	CU_ASSERT(!tei_local_region_remove(ctx, m, 0, region_soon()));
	CU_ASSERT(!tei_local_region_remove(ctx, local, 0, region_soon()));
	CU_ASSERT(test_op_wait(&t) == 0);
	CU_ASSERT(tei_local_submit(ctx, &t.op) == TEI_ERR_NOT_REGISTERED);
	tei_local_fini(ctx);
	test_op_fini(&t);
}

struct region_notified {
	struct tei_local_op op;
	_Atomic bool begun, reported;
};

/* A done callback that sleeps for 100 ms. */
static void region_notify(struct tei_local_op *op, int code, uint64_t bytes)
{
	struct region_notified *t =
		tei_container_of(op, struct region_notified, op);
	struct timespec nap = { .tv_nsec = 100 * (long)TEI_NS_PER_MS };

	CU_ASSERT(!code && bytes == 64);
	atomic_store(&t->begun, true);
	nanosleep(&nap, NULL);
	atomic_store(&t->reported, true);
}

static void test_remove_waits_until_ends_are_reported(void)
{
	struct tei_local *ctx = test_ctx(1);
	char *m = region_mem, local[64] = "x", *side[] = { m, local };
	struct region_notified t;
	uint64_t end;
	int i;

	for (i = 0; i < 2; i++) {
		tei_local_region_add(ctx, m, 4096, TEI_LOCAL_REMOTE);
		tei_local_region_add(ctx, local, sizeof(local), TEI_LOCAL_REMOTE);
		t = (struct region_notified){
			.op = { .opcode = TEI_LOCAL_WRITE,
				.local = local,
				.remote = test_addr(m),
				.length = 64,
				.done = region_notify },
		};
		CU_ASSERT_FATAL(!tei_local_submit(ctx, &t.op));
		end = tei_now_ns() + TEST_WAIT_NS;
		while (!atomic_load(&t.begun) && tei_now_ns() < end)
			sched_yield();
		CU_ASSERT(!tei_local_region_remove(ctx, side[i], 0,
						   region_soon()));
		CU_ASSERT(atomic_load(&t.reported));
		CU_ASSERT(!tei_local_region_remove(ctx, side[!i], 0,
						   region_soon()));
	}
	tei_local_fini(ctx);
}

struct region_copier {
	struct tei_local *ctx;
	char *local, *remote;
	int code;
};

static void *region_copy_main(void *arg)
{
	struct region_copier *c = arg;

	c->code = tei_local_copy(c->ctx, NULL, TEI_LOCAL_READ, c->local,
				 test_addr(c->remote), 64, NULL);
	return NULL;
}

static void test_remove_waits_for_inline_copies(void)
{
	struct tei_local *ctx = test_ctx(1);
	char local[64];
	struct region_copier c = { ctx, local, region_mem, 1 };
	struct region_gate gate;
	pthread_t t;

	region_gate_init(&gate, ctx);
	tei_local_region_add(ctx, region_mem, 4096, 0);
	tei_local_region_add(ctx, local, sizeof(local), 0);
	pthread_create(&t, NULL, region_copy_main, &c);
	sem_wait(&gate.inside);
	CU_ASSERT(tei_local_region_remove(ctx, region_mem, 0, tei_now_ns() +
		  TEI_NS_PER_MS) == TEI_ERR_BUSY);
	CU_ASSERT(tei_local_region_remove(ctx, local, 0, tei_now_ns() +
		  TEI_NS_PER_MS) == TEI_ERR_BUSY);
	sem_post(&gate.go);
	pthread_join(t, NULL);
	CU_ASSERT(c.code == 0);
	CU_ASSERT(!tei_local_region_remove(ctx, region_mem, 0, region_soon()));
	CU_ASSERT(tei_local_copy(ctx, NULL, TEI_LOCAL_READ, local,
				 test_addr(region_mem), 64, NULL) ==
		  TEI_ERR_NOT_REGISTERED);
	tei_local_fini(ctx);
}

/*
 * State of a test: threads copy into a region that is added and removed
 * repeatedly, and no byte of the region may change after a removal.
 */
struct region_hammer {
	struct tei_local *ctx;
	unsigned char *target;		/* each thread uses its own part of the
					 * target */
	_Atomic int threads;
	_Atomic bool stop;
	_Atomic int bad;
};

static void *region_hammer_main(void *arg)
{
	struct region_hammer *h = arg;
	unsigned char ones[128], *target;
	int rc;

	target = h->target + 128 * atomic_fetch_add(&h->threads, 1);
	memset(ones, 1, sizeof(ones));
	while (!atomic_load(&h->stop)) {
		rc = tei_local_copy(h->ctx, NULL, TEI_LOCAL_WRITE, ones,
				    test_addr(target), sizeof(ones), NULL);
		if (rc && rc != TEI_ERR_NOT_REGISTERED)
			atomic_fetch_add(&h->bad, 1);
	}
	return NULL;
}

static void test_removed_region_changes_no_byte(void)
{
	struct tei_local *ctx = test_ctx(1);
	unsigned char target[512];
	struct region_hammer h = { .ctx = ctx, .target = target };
	pthread_t t[3];
	int i, k, twos;

	for (i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, region_hammer_main, &h);
	for (k = 0; k < 300; k++) {
		CU_ASSERT(!tei_local_region_add(ctx, target, 512, TEI_LOCAL_REMOTE));
		sched_yield();
		CU_ASSERT(!tei_local_region_remove(ctx, target, 512,
						   region_soon()));
		/* a copy after the removal would also be a data race with this
		 * memset, which TSan reports */
		memset(target, 2, sizeof(target));
		sched_yield();
		for (i = 0, twos = 0; i < 512; i++)
			twos += target[i] == 2;
		CU_ASSERT(twos == 512);
	}
	atomic_store(&h.stop, true);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	CU_ASSERT(atomic_load(&h.bad) == 0);
	tei_local_fini(ctx);
}

static void test_forked_child_is_refused(void)
{
	struct tei_local *ctx = test_ctx(1);
	char buf[8];
	struct tei_local_id id;
	struct test_op t;
	int status = 0;
	pid_t pid;

	tei_local_region_add(ctx, region_mem, 4096, TEI_LOCAL_REMOTE);
	test_op_init(&t, NULL, TEI_LOCAL_READ, buf, test_addr(region_mem), 8);
	pid = fork();
	if (!pid) {
		status = tei_local_region_add(ctx, buf, 8, TEI_LOCAL_REMOTE) !=
			 TEI_ERR_CONTEXT ||
			 tei_local_region_check(ctx, region_mem, 8, false) !=
			 TEI_ERR_CONTEXT ||
			 tei_local_identity(ctx, &id) != TEI_ERR_CONTEXT ||
			 tei_local_submit(ctx, &t.op) != TEI_ERR_CONTEXT ||
			 tei_local_copy(ctx, NULL, TEI_LOCAL_READ, buf,
					test_addr(region_mem), 8, NULL) !=
			 TEI_ERR_CONTEXT;
		tei_local_cancel(ctx, &t.op);
		tei_local_fini(ctx);
		_exit(status);
	}
	CU_ASSERT(waitpid(pid, &status, 0) == pid);
	CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CU_ASSERT(!tei_local_submit(ctx, &t.op));
	CU_ASSERT(test_op_wait(&t) == 0);
	tei_local_fini(ctx);
	test_op_fini(&t);
}

static void test_scribbled_cookie_of_ours_is_survived(void)
{
	struct tei_local *ctx = test_ctx(1);
	char buf[64] = "", *m = region_mem;
	int i, rc;

	for (i = 0; i < 12; i++) {
		rc = tei_local_region_add(ctx, m, 4096, TEI_LOCAL_REMOTE);
		CU_ASSERT(!rc);
		if (i < 2)
			memset(ctx->shared, i ? 255 : 0, sizeof(*ctx->shared));
		else
			test_fill(ctx->shared, sizeof(*ctx->shared),
				  (uint64_t)i);
		CU_ASSERT(!test_run_op(ctx, NULL, TEI_LOCAL_WRITE, buf,
				       test_addr(m), 64));
		CU_ASSERT(!tei_local_copy(ctx, NULL, TEI_LOCAL_WRITE, buf,
					  test_addr(m), 64, NULL));
		CU_ASSERT(tei_local_copy(ctx, NULL, TEI_LOCAL_WRITE, buf, 4096,
					 64, NULL) == TEI_ERR_NOT_REGISTERED);
		/* the random owner may be a process that is alive; TEI_ERR_BUSY
		 * is then correct too */
		rc = tei_local_region_remove(ctx, m, 0, tei_now_ns() +
					     TEI_NS_PER_MS);
		CU_ASSERT(!rc || rc == TEI_ERR_BUSY);
		memset(ctx->shared->slot_room, 0, LOCAL_SECTION);
		if (rc)
			CU_ASSERT(!tei_local_region_remove(ctx, m, 0,
							   region_soon()));
	}
	tei_local_fini(ctx);
}

/*
 * Makes the copy twice: on the calling thread, and on a copy thread. Checks
 * that both have the same result, and returns its code.
 */
static int region_copies(struct tei_local *ctx, struct test_op *t)
{
	int inl = tei_local_copy_op(ctx, &t->op, NULL);
	int rc = tei_local_submit(ctx, &t->op);

	if (!rc)
		rc = test_op_wait(t);
	CU_ASSERT_EQUAL(inl, rc);
	return rc;
}

/* Only operations whose member "registered" is set must be refused if their
 * local range is not registered. */
static void test_local_side_must_be_one_where_asked(void)
{
	struct tei_local *ctx = test_ctx(1);
	char from[4096] = { 1 }, to[4096] = { 0 };
	struct test_op t;

	CU_ASSERT(!tei_local_region_add(ctx, to, sizeof(to), 0));
	test_op_init(&t, NULL, TEI_LOCAL_WRITE, from, test_addr(to),
		     sizeof(to));
	t.op.registered = true;
	CU_ASSERT_EQUAL(region_copies(ctx, &t), TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(!to[0]);
	CU_ASSERT(!tei_local_region_add(ctx, from, sizeof(from),
					TEI_LOCAL_READ_ONLY));
	CU_ASSERT_EQUAL(region_copies(ctx, &t), 0);
	CU_ASSERT(to[0] == 1);
	test_op_fini(&t);
	test_op_init(&t, NULL, TEI_LOCAL_READ, from, test_addr(to),
		     sizeof(to));
	t.op.registered = true;
	CU_ASSERT_EQUAL(region_copies(ctx, &t), TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(!tei_local_region_remove(ctx, from, 0, region_soon()));
	CU_ASSERT_EQUAL(region_copies(ctx, &t), TEI_ERR_NOT_REGISTERED);
	t.op.registered = false;
	CU_ASSERT_EQUAL(region_copies(ctx, &t), 0);
	test_op_fini(&t);
	tei_local_fini(ctx);
}

const struct tei_test_case local_region_cases[] = {
	{ "overlap_names_the_other_region",
	  test_overlap_names_the_other_region },
	{ "bad_ranges_are_refused", test_bad_ranges_are_refused },
	{ "adding_is_made_known_once", test_adding_is_made_known_once },
	{ "removing_is_made_known_once", test_removing_is_made_known_once },
	{ "check_knows_the_edges", test_check_knows_the_edges },
	{ "table_follows_random_changes", test_table_follows_random_changes },
	{ "table_is_bounded", test_table_is_bounded },
	{ "table_holds_what_stays_of_many",
	  test_table_holds_what_stays_of_many },
	{ "remove_waits_for_own_operations",
	  test_remove_waits_for_own_operations },
	{ "remove_waits_until_ends_are_reported",
	  test_remove_waits_until_ends_are_reported },
	{ "remove_waits_for_inline_copies",
	  test_remove_waits_for_inline_copies },
	{ "removed_region_changes_no_byte",
	  test_removed_region_changes_no_byte },
	{ "local_side_must_be_one_where_asked",
	  test_local_side_must_be_one_where_asked },
	{ "forked_child_is_refused", test_forked_child_is_refused },
	{ "scribbled_cookie_of_ours_is_survived",
	  test_scribbled_cookie_of_ours_is_survived },
	{ NULL, NULL },
};
