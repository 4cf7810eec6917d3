/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Benchmark: prints a table of the rates of copies and of memcpy for blocks of
 * the same size. Checks no result.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "prov/local/local_test.h"
#include "util/clock.h"

#define BENCH_MEM	(128u << 20)	/* bytes, larger than the caches */
#define BENCH_NS	(150 * TEI_NS_PER_MS)
#define BENCH_ROUNDS	5
#define BENCH_DEPTH	4		/* largest number of operations in
					 * flight */

struct bench {
	struct tei_local *ctx;
	struct tei_local_peer *peer; /* NULL for copies inside this process */
	char *local;
	char *own;			/* target in this process */
	uint64_t remote;		/* target of the operations */
	uint64_t block;
	bool help; /* the thread that waits also copies pieces */
};

struct bench_op {
	struct tei_local_op op;
	_Atomic bool ended;
};

typedef void (*bench_fn)(struct bench *b, uint64_t off);

static void bench_memcpy(struct bench *b, uint64_t off)
{
	memcpy(b->own + off, b->local + off, b->block);
	__asm__ volatile("" ::: "memory");
}

static void bench_inline(struct bench *b, uint64_t off)
{
	test_copy(b->ctx, b->peer, TEI_LOCAL_WRITE, b->local + off,
		  b->remote + off, b->block);
}

static void bench_inline_read(struct bench *b, uint64_t off)
{
	test_copy(b->ctx, b->peer, TEI_LOCAL_READ, b->local + off,
		  b->remote + off, b->block);
}

/* Returns the rate of successive calls, bytes/s. */
static double bench_calls(struct bench *b, bench_fn fn)
{
	uint64_t start = tei_now_ns(), now, n = 0, off = 0;

	do {
		fn(b, off);
		n += b->block;
		off += b->block;
		if (off + b->block > BENCH_MEM)
			off = 0;
		now = tei_now_ns();
	} while (now - start < BENCH_NS);
	return (double)n * 1e9 / (double)(now - start);
}

/* Waits for an operation as the engine does: copies a piece if there is one,
 * otherwise yields the processor. */
static void bench_wait(struct bench *b, struct bench_op *t)
{
	while (!atomic_load_explicit(&t->ended, memory_order_acquire)) {
		if (!b->help || !tei_local_progress(b->ctx))
			sched_yield();
	}
}

static void bench_done(struct tei_local_op *op, int code, uint64_t bytes)
{
	struct bench_op *t = tei_container_of(op, struct bench_op, op);

	(void)code;
	(void)bytes;
	atomic_store_explicit(&t->ended, true, memory_order_release);
}

static bool bench_submit(struct bench *b, struct bench_op *t,
			 enum tei_local_opcode opcode, uint64_t off)
{
	memset(&t->op, 0, sizeof(t->op));
	t->op.peer = b->peer;
	t->op.opcode = opcode;
	t->op.local = b->local + off;
	t->op.remote = b->remote + off;
	t->op.length = b->block;
	t->op.registered = test_mapped;
	t->op.done = bench_done;
	atomic_store(&t->ended, false);
	return !tei_local_submit(b->ctx, &t->op);
}

/* Returns the rate of operations, bytes/s, while "depth" of them are in
 * flight. */
static double bench_queued(struct bench *b, enum tei_local_opcode opcode,
			   int depth)
{
	uint64_t start = tei_now_ns(), now = start, n = 0, off = 0;
	struct bench_op t[BENCH_DEPTH];
	int i = 0, busy[BENCH_DEPTH] = { 0 };

	do {
		if (busy[i]) {
			bench_wait(b, &t[i]);
			n += b->block;
			now = tei_now_ns();
		}
		busy[i] = bench_submit(b, &t[i], opcode, off);
		off += b->block;
		if (off + b->block > BENCH_MEM)
			off = 0;
		i = (i + 1) % depth;
	} while (now - start < BENCH_NS);
	for (i = 0; i < depth; i++) {
		if (busy[i])
			bench_wait(b, &t[i]);
	}
	return (double)n * 1e9 / (double)(now - start);
}

enum bench_kind { BENCH_MEMCPY, BENCH_INL_W, BENCH_INL_R, BENCH_ONE_W,
		  BENCH_ONE_R, BENCH_HELP_W,
		  BENCH_HELP_R, BENCH_DEEP_W, BENCH_DEEP_R, BENCH_KINDS };

static double bench_one(struct bench *b, enum bench_kind kind)
{
	switch (kind) {
	case BENCH_MEMCPY:
		return bench_calls(b, bench_memcpy);
	case BENCH_INL_W:
	case BENCH_INL_R:
		if (b->block > TEI_LOCAL_COPY_MAX)
			return 0;
		return bench_calls(b, kind == BENCH_INL_W ? bench_inline :
				   bench_inline_read);
	case BENCH_ONE_W:
	case BENCH_ONE_R:
		b->help = false;
		return bench_queued(b, kind == BENCH_ONE_W ? TEI_LOCAL_WRITE :
				    TEI_LOCAL_READ, 1);
	case BENCH_HELP_W:
	case BENCH_HELP_R:
		b->help = true;
		return bench_queued(b, kind == BENCH_HELP_W ? TEI_LOCAL_WRITE :
				    TEI_LOCAL_READ, 1);
	default:
		b->help = true;
		return bench_queued(b, kind == BENCH_DEEP_W ? TEI_LOCAL_WRITE :
				    TEI_LOCAL_READ, BENCH_DEPTH);
	}
}

static int bench_by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Measures the rate of each kind of copy several times, by turns, and prints
 * the medians. */
static void bench_block(struct bench *b)
{
	double v[BENCH_KINDS][BENCH_ROUNDS];
	int k, r;

	for (r = 0; r < BENCH_ROUNDS; r++) {
		for (k = 0; k < BENCH_KINDS; k++)
			v[k][r] = bench_one(b, (enum bench_kind)k);
	}
	for (k = 0; k < BENCH_KINDS; k++)
		qsort(v[k], BENCH_ROUNDS, sizeof(double), bench_by_size);
	printf("%9llu %7.2f", (unsigned long long)b->block,
	       v[0][BENCH_ROUNDS / 2] / 1e9);
	for (k = 1; k < BENCH_KINDS; k++)
		printf(" %7.2f", v[k][BENCH_ROUNDS / 2] /
		       v[0][BENCH_ROUNDS / 2]);
	printf("\n");
	fflush(stdout);
}

static void bench_table(struct bench *b, const char *title)
{
	static const uint64_t blocks[] = { 64, 4096, 16384, 65536, 131072,
					   262144, 1048576, 4194304, 16777216 };
	size_t i;

	printf("\n%s; the columns after memcpy (GB/s) are ratios to it:\n"
	       "inl: calling thread; one: queued, one in flight; help: the waiter copies too;\n"
	       "deep: the same with %d in flight\n"
	       "%9s %7s %7s %7s %7s %7s %7s %7s %7s %7s\n", title, BENCH_DEPTH,
	       "block", "memcpy", "inl w", "inl r", "one w", "one r",
	       "help w", "help r", "deep w", "deep r");
	for (i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
		b->block = blocks[i];
		bench_block(b);
	}
}

/* ---- runs ---------------------------------------------------------------- */

#define BENCH_RUN_BYTES	(512u << 10)
#define BENCH_RUNS	400	/* measurements */

/* Returns the time for n blocks, ns: by memcpy, or by runs to the peer. */
static double bench_run(struct bench *b, struct tei_local_op **op, size_t n,
			bool run)
{
	uint64_t start = tei_now_ns();
	size_t i, did;

	for (i = 0; i < n && !run; i++)
		bench_memcpy(b, (uint64_t)((char *)op[i]->local - b->local));
	for (i = 0; i < n && run; i += did) {
		did = tei_local_copy_run(b->ctx, op + i, n - i);
		if (!did)
			return 1e18;
	}
	return (double)(tei_now_ns() - start);
}

/* Measures runs of b->block bytes each and memcpy of the same blocks, in turn.
 * Each measurement is shorter than a time slice of a busy machine. */
static void bench_run_block(struct bench *b, enum tei_local_opcode opcode)
{
	static double ratio[BENCH_RUNS];
	struct tei_local_op op[TEI_LOCAL_RUN], *list[TEI_LOCAL_RUN];
	size_t n = BENCH_RUN_BYTES / b->block, i, r;
	double copy, best[2] = { 1e18, 1e18 };

	memset(op, 0, sizeof(op));
	for (i = 0; i < n; i++) {
		op[i].peer = b->peer;
		op[i].opcode = opcode;
		/* the blocks are not adjacent */
		op[i].local = b->local + 2 * i * b->block;
		op[i].remote = b->remote + 2 * i * b->block;
		op[i].length = b->block;
		op[i].registered = test_mapped;
		list[i] = &op[i];
	}
	for (r = 0; r < BENCH_RUNS; r++) {
		copy = bench_run(b, list, n, false);
		best[0] = copy < best[0] ? copy : best[0];
		ratio[r] = bench_run(b, list, n, true);
		best[1] = ratio[r] < best[1] ? ratio[r] : best[1];
		ratio[r] = copy / ratio[r];
	}
	qsort(ratio, BENCH_RUNS, sizeof(double), bench_by_size);
	printf(" %7.2f %7.2f", best[0] / best[1], ratio[BENCH_RUNS / 2]);
}

static void bench_run_table(struct bench *b, const char *title)
{
	static const uint64_t blocks[] = { 4096, 16384, 65536, 262144 };
	size_t i;

	printf("\n%s; runs of %u KiB on the calling thread, ratios to memcpy of the same blocks:\n"
	       "%9s %7s %7s %7s %7s\n", title, BENCH_RUN_BYTES >> 10,
	       "block", "w best", "median", "r best", "median");
	for (i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
		b->block = blocks[i];
		printf("%9llu", (unsigned long long)b->block);
		bench_run_block(b, TEI_LOCAL_WRITE);
		bench_run_block(b, TEI_LOCAL_READ);
		printf("\n");
		fflush(stdout);
	}
}

/* Maps the memory of the benchmark, with huge pages if "huge" is true: they
 * reduce the kernel's work. */
static char *bench_map(bool huge)
{
	char *p = mmap(NULL, BENCH_MEM, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (huge)
		madvise(p, BENCH_MEM, MADV_HUGEPAGE);
	memset(p, 1, BENCH_MEM);
	return p;
}

static bool bench_open_agent(struct bench *b, struct test_agent *agent,
			     bool huge)
{
	char text[TEI_LOCAL_ID_TEXT];
	unsigned long long addr;
	struct tei_local_id id;

	if (!test_agent_start(agent) ||
	    sscanf(test_agent_ask(agent, "alloc %u 1 %d", BENCH_MEM,
				  test_mapped),
		   "%llx %191s", &addr, text) != 2 ||
	    tei_local_id_parse(text, &id) ||
	    tei_local_peer_open(b->ctx, &id, NULL, &b->peer))
		return false;
	if (huge)
		test_agent_ask(agent, "huge");
	test_agent_ask(agent, "fill 1");
	b->remote = addr;
	return true;
}

/* Measures copies to and from another process. */
static bool bench_agent(struct bench *b, const char *title, bool huge,
			bool runs)
{
	struct test_agent agent;

	if (!bench_open_agent(b, &agent, huge))
		return false;
	if (runs)
		bench_run_table(b, title);
	else
		bench_table(b, title);
	tei_local_peer_close(b->ctx, b->peer);
	test_agent_stop(&agent);
	return true;
}

int test_bench_main(bool huge, bool runs)
{
	const char *workers = getenv("MOONRAIL_COPY_THREADS");
	struct bench b = { .peer = NULL };

	b.ctx = test_ctx(workers ? (uint32_t)atoi(workers) : 1);
	b.local = bench_map(huge);
	b.own = bench_map(huge);
	if (!b.local || !b.own)
		return 1;
	tei_local_region_add(b.ctx, b.own, BENCH_MEM, TEI_LOCAL_REMOTE);
	b.remote = test_addr(b.own);
	if (!runs)
		bench_table(&b, "this process");
	if (!bench_agent(&b, "another process", huge, runs))
		return 1;
	test_mapped = true;
	tei_local_region_add(b.ctx, b.local, BENCH_MEM, 0);
	if (!bench_agent(&b, "another process, memory that can be mapped",
			 false, runs))
		return 1;
	tei_local_fini(b.ctx);
	munmap(b.local, BENCH_MEM);
	munmap(b.own, BENCH_MEM);
	return 0;
}
