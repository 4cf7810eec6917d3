/* SPDX-License-Identifier: BSD-2-Clause */
/* Rates of copies against memcpy of the same blocks; for people, not checks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "prov/local/local_test.h"
#include "util/clock.h"

#define BENCH_MEM	(128u << 20)	/* walked through, beyond the caches */
#define BENCH_NS	(150 * TEI_NS_PER_MS)
#define BENCH_ROUNDS	5
#define BENCH_DEPTH	4		/* operations under way */

struct bench {
	struct tei_local *ctx;
	struct tei_local_peer *peer;	/* NULL: this process */
	char *local;
	char *own;			/* target in this process */
	uint64_t remote;		/* target of the operations */
	uint64_t block;
};

typedef void (*bench_fn)(struct bench *b, uint64_t off);

static void bench_memcpy(struct bench *b, uint64_t off)
{
	memcpy(b->own + off, b->local + off, b->block);
	__asm__ volatile("" ::: "memory");
}

static void bench_inline(struct bench *b, uint64_t off)
{
	tei_local_copy(b->ctx, b->peer, TEI_LOCAL_WRITE, b->local + off,
		       b->remote + off, b->block, NULL);
}

static void bench_inline_read(struct bench *b, uint64_t off)
{
	tei_local_copy(b->ctx, b->peer, TEI_LOCAL_READ, b->local + off,
		       b->remote + off, b->block, NULL);
}

/* Bytes per second of calls one after the other. */
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

/* Bytes per second with depth operations under way. */
static double bench_queued(struct bench *b, enum tei_local_opcode opcode,
			   int depth)
{
	uint64_t start = tei_now_ns(), now = start, n = 0, off = 0;
	struct test_op t[BENCH_DEPTH];
	int i = 0, busy[BENCH_DEPTH] = { 0 };

	do {
		if (busy[i]) {
			test_op_wait(&t[i]);
			tei_local_cancel(b->ctx, &t[i].op);
			n += b->block;
			now = tei_now_ns();
		}
		test_op_init(&t[i], b->peer, opcode, b->local + off,
			     b->remote + off, b->block);
		busy[i] = !tei_local_submit(b->ctx, &t[i].op);
		off += b->block;
		if (off + b->block > BENCH_MEM)
			off = 0;
		i = (i + 1) % depth;
	} while (now - start < BENCH_NS);
	for (i = 0; i < depth; i++) {
		if (busy[i])
			tei_local_cancel(b->ctx, &t[i].op);
	}
	return (double)n * 1e9 / (double)(now - start);
}

enum bench_kind { BENCH_MEMCPY, BENCH_INL_W, BENCH_INL_R, BENCH_ONE_W,
		  BENCH_ONE_R, BENCH_DEEP_W, BENCH_DEEP_R, BENCH_KINDS };

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
		return bench_queued(b, kind == BENCH_ONE_W ? TEI_LOCAL_WRITE :
				    TEI_LOCAL_READ, 1);
	default:
		return bench_queued(b, kind == BENCH_DEEP_W ? TEI_LOCAL_WRITE :
				    TEI_LOCAL_READ, BENCH_DEPTH);
	}
}

static int bench_by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The kinds in turn, several rounds; the median of each. */
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

	printf("\n%s; columns after GB/s of memcpy are ratios to it\n%9s %7s %7s %7s %7s %7s %7s %7s\n",
	       title, "block", "memcpy", "inl w", "inl r", "one w", "one r",
	       "deep w", "deep r");
	for (i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
		b->block = blocks[i];
		bench_block(b);
	}
}

static char *bench_map(void)
{
	char *p = mmap(NULL, BENCH_MEM, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	memset(p, 1, BENCH_MEM);
	return p;
}

static bool bench_open_agent(struct bench *b, struct test_agent *agent)
{
	char text[TEI_LOCAL_ID_TEXT];
	unsigned long long addr;
	struct tei_local_id id;

	if (!test_agent_start(agent) ||
	    sscanf(test_agent_ask(agent, "alloc %u 1", BENCH_MEM),
		   "%llx %191s", &addr, text) != 2 ||
	    tei_local_id_parse(text, &id) ||
	    tei_local_peer_open(b->ctx, &id, NULL, &b->peer))
		return false;
	test_agent_ask(agent, "fill 1");
	b->remote = addr;
	return true;
}

int test_bench_main(void)
{
	const char *workers = getenv("MC_WORKERS_PER_CTX");
	struct bench b = { .peer = NULL };
	struct test_agent agent;

	b.ctx = test_ctx(workers ? (uint32_t)atoi(workers) : 1);
	b.local = bench_map();
	b.own = bench_map();
	if (!b.local || !b.own)
		return 1;
	tei_local_region_add(b.ctx, b.own, BENCH_MEM, true);
	b.remote = test_addr(b.own);
	bench_table(&b, "this process");
	if (!bench_open_agent(&b, &agent))
		return 1;
	bench_table(&b, "another process");
	tei_local_peer_close(b.ctx, b.peer);
	test_agent_stop(&agent);
	tei_local_fini(b.ctx);
	munmap(b.local, BENCH_MEM);
	munmap(b.own, BENCH_MEM);
	return 0;
}
