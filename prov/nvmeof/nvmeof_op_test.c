/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/nvmeof/nvmeof_test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <numaif.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t op_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void op_fill(void *p, size_t len, uint64_t seed)
{
	unsigned char *b = p;

	while (len--)
		*b++ = (unsigned char)op_random(&seed);
}

/* Returns the bytes of the files, read with plain system calls. */
static unsigned char *op_files(const struct rig *r)
{
	unsigned char *p = malloc(r->size);
	uint64_t at = 0;
	int i, fd;

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	for (i = 0; i < RIG_FILES; i++) {
		fd = open(r->path[i], O_RDONLY);
		CU_ASSERT_EQUAL(pread(fd, p + at, r->file[i].length, 0),
				(ssize_t)r->file[i].length);
		at += r->file[i].length;
		close(fd);
	}
	return p;
}

/* Returns a random offset or length below max: aligned, nearly aligned, or
 * arbitrary. */
static uint64_t op_pick(uint64_t *state, uint64_t max)
{
	uint64_t v = op_random(state) % max;

	if (op_random(state) % 3)
		v &= ~UINT64_C(4095);
	if (!(op_random(state) % 4) && v + 1 < max)
		v++;
	return v;
}

static void op_random_writes(struct rig *r, unsigned char *want,
			     uint64_t *state, int rounds)
{
	uint64_t at, len, local;
	struct run t;

	while (rounds--) {
		at = op_pick(state, r->size);
		len = op_pick(state, 2000000) % (r->size - at) + 1;
		local = op_pick(state, RIG_MEM - len);
		op_fill(r->mem + local, len, op_random(state) | 1);
		memcpy(want + at, r->mem + local, len);
		CU_ASSERT_EQUAL(run_op(r, &t, false, at, r->mem + local, len),
				0);
		memset(r->mem + local, 0, len);
		local = op_pick(state, RIG_MEM - len);
		CU_ASSERT_EQUAL(run_op(r, &t, true, at, r->mem + local, len),
				0);
		CU_ASSERT(!memcmp(want + at, r->mem + local, len));
	}
}

static void op_every_byte(const char *io, const char *sync, bool direct)
{
	uint64_t state = 0x9e3779b97f4a7c15;
	struct tei_nvmeof_counters n;
	unsigned char *want, *got;
	struct run t;
	struct rig r;

	if (!rig_start(&r, io, sync, direct))
		return;
	want = calloc(1, r.size);
	op_random_writes(&r, want, &state, 12);
	/* move the whole segment, across the borders of files */
	op_fill(r.mem, r.size, 7);
	memcpy(want, r.mem, r.size);
	CU_ASSERT_EQUAL(run_op(&r, &t, false, 0, r.mem, r.size), 0);
	memset(r.mem, 0, RIG_MEM);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 0, r.mem + 1, r.size), 0);
	CU_ASSERT(!memcmp(want, r.mem + 1, r.size));
	got = op_files(&r);
	CU_ASSERT(!memcmp(want, got, r.size));
	tei_nvmeof_stats(r.ctx, &n);
	CU_ASSERT_EQUAL(n.completed, 26);
	CU_ASSERT_EQUAL(n.failed, 0);
	CU_ASSERT(direct || !n.direct);
	CU_ASSERT(!n.direct || n.bounced);
	CU_ASSERT((n.syncs > 0) == !strcmp(sync, "data"));
	free(want);
	free(got);
	rig_stop(&r);
}

/* Returns the first buffer slot of the registered memory at index i of the
 * table. */
static int op_fixed(const struct rig *r, uint32_t i)
{
	return tei_container_of(r->ctx->mem.at[i], struct nvmeof_mem, range)
		->fixed;
}

/*
 * Removes the rig's memory and registers it again, in parts of that many bytes.
 * Returns its first slot.
 */
static int op_parts(struct rig *r, uint64_t part)
{
	CU_ASSERT_FATAL(!tei_nvmeof_mem_remove(r->ctx, r->mem, UINT64_MAX / 2));
	r->ctx->part = part;
	CU_ASSERT_FATAL(!tei_nvmeof_mem_add(r->ctx, r->mem, RIG_MEM, NULL));
	return op_fixed(r, 0);
}

/*
 * Memory above 1 GiB is registered in parts, because the kernel does not accept
 * more in one buffer. The test uses smaller parts: all bytes must be moved, and
 * parts must be used as registered buffers.
 */
static void test_uring_registers_memory_in_parts(void)
{
	uint64_t state = 0xbf58476d1ce4e5b9;
	struct tei_nvmeof_counters n;
	static char more[4096];
	unsigned char *want;
	struct rig r;

	if (!rig_start(&r, "uring", "none", true))
		return;
	if (op_fixed(&r, 0) < 0) {
		tei_test_skip("io_uring of this kernel cannot register memory");
		rig_stop(&r);
		return;
	}
	CU_ASSERT_EQUAL(op_parts(&r, 1000001), 0);
	CU_ASSERT_FATAL(!tei_nvmeof_mem_add(r.ctx, more, sizeof(more), NULL));
	CU_ASSERT_EQUAL(op_fixed(&r, 0) + op_fixed(&r, 1), 7);
	want = calloc(1, r.size);
	op_random_writes(&r, want, &state, 12);
	free(want);
	tei_nvmeof_stats(r.ctx, &n);
	CU_ASSERT(n.fixed > 0);
	CU_ASSERT_EQUAL(n.failed, 0);
	CU_ASSERT(!tei_nvmeof_mem_remove(r.ctx, more, UINT64_MAX / 2));
	CU_ASSERT_EQUAL(op_parts(&r, 4096), -1);	/* more parts than
							 * slots */
	CU_ASSERT_EQUAL(op_parts(&r, NVMEOF_PART), 0);
	rig_stop(&r);
}

/* Requests must use the registered file, even if its file descriptor is
 * replaced. */
static void test_uring_goes_by_registered_files(void)
{
	struct run t;
	struct rig r;
	int null, i;

	if (!rig_start(&r, "uring", "data", false))
		return;
	if (r.seg->file[0].cached_slot < 0) {
		tei_test_skip("io_uring of this kernel cannot register files");
		rig_stop(&r);
		return;
	}
	memset(r.mem, 'x', r.size);
	CU_ASSERT_EQUAL(run_op(&r, &t, false, 0, r.mem, r.size), 0);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	CU_ASSERT_FATAL(null >= 0);
	dup2(null, r.seg->file[0].cached);
	close(null);
	memset(r.mem, 0, 100);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 0, r.mem, 100), 0);
	CU_ASSERT(r.mem[0] == 'x' && r.mem[99] == 'x');
	/* closing the segment must release its slots, or they would be used up
	 * here */
	for (i = 0; i < (int)NVMEOF_FILES; i++)
		rig_reopen(&r);
	CU_ASSERT(r.seg->file[0].cached_slot >= 0);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 0, r.mem, r.size), 0);
	rig_stop(&r);
}

struct op_registrar {
	struct rig *rig;
	unsigned char *mem;
	bool quit;			/* atomic */
};

/* Registers and removes memory until "quit" is set. */
static void *op_registrar(void *arg)
{
	struct op_registrar *g = arg;

	while (!__atomic_load_n(&g->quit, __ATOMIC_RELAXED)) {
		CU_ASSERT(!tei_nvmeof_mem_add(g->rig->ctx, g->mem, 100000,
					      NULL));
		CU_ASSERT(!tei_nvmeof_mem_remove(g->rig->ctx, g->mem,
						 UINT64_MAX / 2));
	}
	return NULL;
}

static void op_register_meanwhile(const char *io)
{
	uint64_t state = 0x94d049bb133111eb;
	struct op_registrar g[3] = { 0 };
	unsigned char *want;
	pthread_t thread[3];
	struct rig r;
	int i;

	if (!rig_start(&r, io, "none", true))
		return;
	for (i = 0; i < 3; i++) {
		g[i].rig = &r;
		g[i].mem = malloc(100000);
		CU_ASSERT_PTR_NOT_NULL_FATAL(g[i].mem);
		CU_ASSERT_FATAL(!pthread_create(&thread[i], NULL, op_registrar,
						&g[i]));
	}
	want = calloc(1, r.size);
	for (i = 0; i < 12; i++) {
		op_random_writes(&r, want, &state, 2);
		rig_reopen(&r);
	}
	free(want);
	for (i = 0; i < 3; i++) {
		__atomic_store_n(&g[i].quit, true, __ATOMIC_RELAXED);
		pthread_join(thread[i], NULL);
		free(g[i].mem);
	}
	CU_ASSERT_EQUAL(r.ctx->mem.n, 1);
	rig_stop(&r);
}

static void test_memory_is_registered_while_bytes_move(void)
{
	rig_each(op_register_meanwhile);
}

#define OP_LARGE	(64u << 20)

static void *op_register_large(void *arg)
{
	struct op_registrar *g = arg;

	CU_ASSERT(!tei_nvmeof_mem_add(g->rig->ctx, g->mem, OP_LARGE, NULL));
	return NULL;
}

/*
 * An operation that is submitted while memory is being registered must be
 * executed, even if nothing is submitted after it.
 */
static void op_submit_meanwhile(const char *io)
{
	struct timespec nap = { 0 };
	struct op_registrar g = { 0 };
	pthread_t thread;
	struct run t;
	struct rig r;
	int i;

	if (!rig_start(&r, io, "none", true))
		return;
	g.rig = &r;
	g.mem = calloc(1, OP_LARGE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(g.mem);
	for (i = 0; i < 24; i++) {
		CU_ASSERT_FATAL(!pthread_create(&thread, NULL,
						op_register_large, &g));
		nap.tv_nsec = i * 250000;
		nanosleep(&nap, NULL);
		run_start(&r, &t, true, 0, r.mem, 4096);
		CU_ASSERT_FATAL(run_ends(&t));
		pthread_join(thread, NULL);
		CU_ASSERT(!tei_nvmeof_mem_remove(r.ctx, g.mem,
						 UINT64_MAX / 2));
	}
	free(g.mem);
	rig_stop(&r);
}

static void test_operation_during_a_registration_ends(void)
{
	rig_each(op_submit_meanwhile);
}

/* If fewer threads than requested can be started, the context must still
 * work. */
static void test_pool_with_fewer_threads_still_moves(void)
{
	struct tei_settings settings;
	struct tei_nvmeof *ctx = NULL;
	struct tei_err err;
	struct run t;
	struct rig r;

	CU_ASSERT_EQUAL_FATAL(tei_settings_load(&settings, NULL), 0);
	tei_test_threads(0);
	strcpy(settings.files.io, "threads");
	CU_ASSERT_EQUAL(tei_nvmeof_init(&settings, &err, &ctx),
			TEI_ERR_MEMORY);
	strcpy(settings.files.io, "uring");
	CU_ASSERT(tei_nvmeof_init(&settings, &err, &ctx) < 0);
	CU_ASSERT_PTR_NULL(ctx);
	tei_test_threads(1);
	if (rig_start(&r, "threads", "data", false)) {
		CU_ASSERT_EQUAL(run_op(&r, &t, false, 0, r.mem, r.size), 0);
		rig_stop(&r);
	}
	tei_test_threads(UINT_MAX);
}

static void test_threads_move_every_byte(void)
{
	op_every_byte("threads", "data", true);
	op_every_byte("threads", "dsync", true);
	op_every_byte("threads", "none", false);
}

static void test_uring_moves_every_byte(void)
{
	op_every_byte("uring", "data", true);
	op_every_byte("uring", "dsync", true);
	op_every_byte("uring", "none", false);
}

/* --- bounce buffers ------------------------------------------------------ */

/*
 * Returns the NUMA policy of the memory as one number: twice the policy's mode,
 * plus 1 if it is for node 0 alone. Returns -1 if the policy is unavailable.
 */
static int op_policy(void *mem)
{
	unsigned long nodes[512] = { 0 };	/* array for more nodes than
						 * kernels support */
	int mode = 0;

	if (get_mempolicy(&mode, nodes, 8 * sizeof(nodes), mem, MPOL_F_ADDR))
		return -1;
	return 2 * mode + (nodes[0] == 1);
}

/* Gets the default policy of memory, and the policy of memory bound to node 0.
 * Skips the test and returns false if they cannot be distinguished. */
static bool op_policies(int *own, int *bound)
{
	const unsigned long zero = 1;
	void *mem = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CU_ASSERT_FATAL(mem != MAP_FAILED);
	*own = op_policy(mem);
	*bound = mbind(mem, 4096, MPOL_PREFERRED, &zero, 8 * sizeof(zero), 0) ?
		 -1 : op_policy(mem);
	if (*own < 0 || *bound < 0)
		tei_test_skip("memory policies are not available: %s",
			      strerror(errno));
	else if (*own == *bound)
		tei_test_skip("all memory of this process is bound to node 0");
	munmap(mem, 4096);
	return *own >= 0 && *bound >= 0 && *own != *bound;
}

static struct nvmeof_bounce *op_latest(const struct rig *r)
{
	return tei_list_first(&r->ctx->bounces, struct nvmeof_bounce, node);
}

/*
 * Moves bytes at r->mem + 1 through a bounce buffer. Returns the NUMA node of
 * the latest bounce buffer.
 */
static int op_bounced_by(struct rig *r)
{
	struct tei_nvmeof_counters before, n;
	struct run t;

	tei_nvmeof_stats(r->ctx, &before);
	memset(r->mem + 1, 'z', 4096);
	CU_ASSERT_EQUAL(run_op(r, &t, false, 0, r->mem + 1, 4096), 0);
	memset(r->mem + 1, 0, 4096);
	CU_ASSERT_EQUAL(run_op(r, &t, true, 0, r->mem + 1, 4096), 0);
	CU_ASSERT(r->mem[1] == 'z' && r->mem[4096] == 'z');
	tei_nvmeof_stats(r->ctx, &n);
	CU_ASSERT_EQUAL(n.bounced, before.bounced + 2);
	return op_latest(r)->numa;
}

static void op_locate(struct rig *r, const char *location)
{
	CU_ASSERT_EQUAL(tei_nvmeof_mem_remove(r->ctx, r->mem, tei_now_ns() +
					      20 * TEI_NS_PER_SEC), 0);
	CU_ASSERT_EQUAL(tei_nvmeof_mem_add(r->ctx, r->mem, RIG_MEM, location),
			0);
}

/*
 * Starts a rig in which bytes at r->mem + 1 need a bounce buffer, and in which
 * the NUMA node of the first file is unknown. Returns false if the case was
 * skipped.
 */
static bool op_bouncing(struct rig *r, const char *io)
{
	if (!rig_start(r, io, "none", true))
		return false;
	r->seg->file[0].numa = -1;
	if (r->seg->file[0].direct >= 0 && r->seg->file[0].mem_align >= 2)
		return true;
	tei_test_skip("O_DIRECT does not work, or it accepts unaligned memory");
	rig_stop(r);
	return false;
}

/* Tests the case that the maximum number of bounce buffers exists and all are
 * on other nodes: the latest buffer must be used, and every NVMEOF_MISSES-th
 * time a buffer must be replaced by one on the node. */
static void op_no_room(struct rig *r, int latest)
{
	unsigned int i;

	r->seg->file[0].numa = 9;
	for (i = 2; i < NVMEOF_MISSES; i += 2)
		CU_ASSERT_EQUAL(op_bounced_by(r), latest);
	CU_ASSERT_EQUAL(op_bounced_by(r), 9);
	CU_ASSERT_EQUAL(op_bounced_by(r), 9);
	CU_ASSERT_EQUAL(r->ctx->misses, NVMEOF_MISSES);
	CU_ASSERT_EQUAL(r->ctx->nbounces, r->ctx->depth);
}

/*
 * Bounce buffers must be on the node of the file or else of the memory. The
 * test uses nodes that this machine lacks: the kernel accepts them, because a
 * node is only a preference.
 */
static void op_near(const char *io)
{
	unsigned int i;
	struct rig r;

	if (!op_bouncing(&r, io))
		return;
	CU_ASSERT_EQUAL(op_bounced_by(&r), -1);
	op_locate(&r, "cpu:0");
	CU_ASSERT_EQUAL(op_bounced_by(&r), 0);
	op_locate(&r, "segments:4096:3,0");
	CU_ASSERT_EQUAL(op_bounced_by(&r), 3);
	r.seg->file[0].numa = 0;	/* the device's node takes precedence */
	CU_ASSERT_EQUAL(op_bounced_by(&r), 0);
	/* one buffer for each of the nodes so far; then further nodes are used
	 * until the maximum number of buffers exists */
	CU_ASSERT_EQUAL(r.ctx->nbounces, 3);
	for (i = 3; i < r.ctx->depth; i++) {
		r.seg->file[0].numa = (int)i + 10;
		CU_ASSERT_EQUAL(op_bounced_by(&r), (int)i + 10);
	}
	CU_ASSERT_EQUAL(r.ctx->nbounces, r.ctx->depth);
	r.seg->file[0].numa = -1;
	op_locate(&r, "*");
	CU_ASSERT_EQUAL(op_bounced_by(&r), (int)i + 9);	/* a bounce buffer of
							 * any NUMA node is
							 * used */
	op_no_room(&r, (int)i + 9);
	rig_stop(&r);
}

static void test_bytes_go_by_memory_near_the_file_or_else_their_own(void)
{
	rig_each(op_near);
}

static void test_memory_near_is_bound_to_its_node(void)
{
	int own, bound;
	struct rig r;

	if (!op_policies(&own, &bound) || !op_bouncing(&r, "threads"))
		return;
	op_bounced_by(&r);
	CU_ASSERT_EQUAL(op_policy(op_latest(&r)->mem), own);
	op_locate(&r, "cpu:0");
	op_bounced_by(&r);
	CU_ASSERT_EQUAL(op_policy(op_latest(&r)->mem), bound);
	op_locate(&r, NULL);
	r.seg->file[0].numa = 0;
	op_bounced_by(&r);
	CU_ASSERT_EQUAL(op_policy(op_latest(&r)->mem), bound);
	rig_stop(&r);
}

static void op_bad_input(const char *io)
{
	struct run t;
	struct rig r;
	char other[64];

	if (!rig_start(&r, io, "data", true))
		return;
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 0, r.mem, 0), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, r.size, r.mem, 1),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, r.size - 1, r.mem, 2),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, UINT64_MAX, r.mem, 2),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 1, r.mem, UINT64_MAX),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 0, other, 64),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 0, r.mem + RIG_MEM - 1, 2),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, r.size - 1, r.mem, 1), 0);
	CU_ASSERT_EQUAL(tei_nvmeof_mem_add(r.ctx, r.mem + 5, 1, NULL),
			TEI_ERR_OVERLAP);
	CU_ASSERT_EQUAL(tei_nvmeof_mem_add(r.ctx, NULL, 1, NULL),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_nvmeof_mem_add(r.ctx, other, 0, NULL),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_nvmeof_mem_remove(r.ctx, r.mem + 1, 0),
			TEI_ERR_NOT_REGISTERED);
	rig_stop(&r);
}

static void test_bad_input_is_refused(void)
{
	rig_each(op_bad_input);
}

static void test_settings_that_make_no_sense_are_refused(void)
{
	struct tei_settings s;
	struct tei_nvmeof *ctx;
	struct tei_err err;

	CU_ASSERT_EQUAL_FATAL(tei_settings_load(&s, NULL), 0);
	strcpy(s.files.io, "aio");
	CU_ASSERT_EQUAL(tei_nvmeof_init(&s, &err, &ctx), TEI_ERR_INVALID);
	strcpy(s.files.io, "auto");
	strcpy(s.files.sync, "");
	CU_ASSERT_EQUAL(tei_nvmeof_init(&s, &err, &ctx), TEI_ERR_INVALID);
	tei_nvmeof_fini(NULL);
	tei_nvmeof_seg_put(NULL);
}

/* --- many operations ------------------------------------------------------ */

#define OP_THREADS	4
#define OP_MANY		40
#define OP_LEN		9000u

struct op_thread {
	struct rig *rig;
	struct run run[OP_MANY];
	unsigned char *mem;
	uint64_t at;
	pthread_t thread;
};

/* Main function of a thread that starts operations and ends while they are in
 * flight. This must not affect the operations. */
static void *op_thread_main(void *arg)
{
	struct op_thread *t = arg;
	int i;

	for (i = 0; i < OP_MANY; i++)
		run_start(t->rig, &t->run[i], false, t->at + i * OP_LEN,
			  t->mem + i * OP_LEN, OP_LEN);
	return NULL;
}

static void op_threads(const char *io)
{
	struct op_thread *t = calloc(OP_THREADS, sizeof(*t));
	unsigned char *got;
	struct rig r;
	int i, k;

	if (!t || !rig_start(&r, io, "data", true)) {
		free(t);
		return;
	}
	op_fill(r.mem, OP_THREADS * OP_MANY * OP_LEN, 99);
	for (i = 0; i < OP_THREADS; i++) {
		t[i].rig = &r;
		t[i].at = (uint64_t)i * OP_MANY * OP_LEN;
		t[i].mem = r.mem + t[i].at;
		pthread_create(&t[i].thread, NULL, op_thread_main, &t[i]);
	}
	for (i = 0; i < OP_THREADS; i++)
		pthread_join(t[i].thread, NULL);
	for (i = 0; i < OP_THREADS; i++)
		for (k = 0; k < OP_MANY; k++)
			CU_ASSERT_EQUAL(run_wait(&t[i].run[k]), 0);
	got = op_files(&r);
	CU_ASSERT(!memcmp(got, r.mem, OP_THREADS * OP_MANY * OP_LEN));
	free(got);
	free(t);
	rig_stop(&r);
}

static void test_threads_may_end_before_their_operations(void)
{
	rig_each(op_threads);
}

#define OP_SOME		30
#define OP_SOME_LEN	200000u

/*
 * Starts operations, each with its own memory. writes: every other operation is
 * a write; if false, all are reads.
 */
static void op_start_some(struct rig *r, struct run *t, bool writes)
{
	int i;

	for (i = 0; i < OP_SOME; i++)
		run_start(r, &t[i], !writes || i % 2, (uint64_t)i * 130000,
			  r->mem + i * OP_SOME_LEN, OP_SOME_LEN);
}

static void op_cancel(const char *io)
{
	struct run t[OP_SOME];
	unsigned int ended = 0, i;
	struct rig r;
	int code;

	if (!rig_start(&r, io, "data", true))
		return;
	op_start_some(&r, t, true);
	for (i = 0; i < OP_SOME; i += 3)
		tei_nvmeof_cancel(r.ctx, &t[i].op);
	for (i = 0; i < OP_SOME; i++) {
		code = run_wait(&t[i]);
		CU_ASSERT(!code || code == TEI_NVMEOF_CANCELLED);
		CU_ASSERT(i % 3 == 0 || !code);
		ended += !code;
	}
	CU_ASSERT(ended >= OP_SOME / 3 * 2);
	tei_nvmeof_cancel(r.ctx, &t[0].op);	/* the operation has ended long
						 * ago, so the call has no
						 * effect */
	rig_stop(&r);
}

static void test_cancelled_operation_ends_once(void)
{
	rig_each(op_cancel);
}

#define OP_LAST		(1048576u + 123 + 4096)	/* offset of the last file */

/*
 * Cancels an operation while the storage does not answer: the operation must
 * end only when its running request has ended, and other operations must end at
 * once.
 */
static void op_cancel_silent(const char *io)
{
	struct silence s;
	struct run t[2];
	struct rig r;

	if (!rig_start(&r, io, "data", true))
		return;
	silence_begin(&s, &r, 2, false);
	run_start(&r, &t[0], true, OP_LAST, r.mem, 3000000);
	tei_mutex_lock(&r.ctx->lock);
	while (!t[0].op.running)
		nvmeof_wait(r.ctx, tei_now_ns() + TEI_NS_PER_MS);
	tei_mutex_unlock(&r.ctx->lock);
	tei_nvmeof_cancel(r.ctx, &t[0].op);
	CU_ASSERT_EQUAL(t[0].calls, 0);
	CU_ASSERT_EQUAL(tei_nvmeof_mem_remove(r.ctx, r.mem, 0), TEI_ERR_BUSY);
	run_start(&r, &t[1], true, 0, r.mem + 3000000, 4096);
	CU_ASSERT(run_ends(&t[1]));
	CU_ASSERT_EQUAL(t[0].calls, 0);
	silence_end(&s);
	CU_ASSERT_EQUAL(run_wait(&t[0]), TEI_NVMEOF_CANCELLED);
	rig_stop(&r);
}

static void test_cancel_does_not_wait_for_the_storage(void)
{
	rig_each(op_cancel_silent);
}

/* --- one file and the others ---------------------------------------------- */

#define OP_STUCK	40		/* number of operations, each of three
					 * pieces */

static uint32_t op_running(struct rig *r, int file)
{
	uint32_t n;

	tei_mutex_lock(&r->ctx->lock);
	n = r->seg->file[file].running;
	tei_mutex_unlock(&r->ctx->lock);
	return n;
}

static bool op_stalled(struct rig *r, int file)
{
	bool stalled;

	tei_mutex_lock(&r->ctx->lock);
	stalled = r->seg->file[file].stalled;
	tei_mutex_unlock(&r->ctx->lock);
	return stalled;
}

/* Operations on other files must complete at once while file 2 does not answer.
 * When file 2 is known to be stalled, the other files must have the whole
 * limit, and file 2 must start no further requests. */
static void op_others(struct rig *r)
{
	uint64_t until = tei_now_ns() + 20 * TEI_NS_PER_SEC;
	uint32_t n = 0;
	struct run t;
	bool good = true;

	while (good && !op_stalled(r, 2) && tei_now_ns() < until) {
		run_start(r, &t, n % 2, n % 9 * 100000, r->mem, 100000);
		good = run_ends(&t);
		run_start(r, &t, n % 2, 1048576 + 123, r->mem, 4096);
		good = good && run_ends(&t);
		n++;
	}
	CU_ASSERT(good && n > 1);
	CU_ASSERT(op_stalled(r, 2));
	CU_ASSERT_EQUAL(op_running(r, 2), r->ctx->room);
	tei_mutex_lock(&r->ctx->lock);
	CU_ASSERT_EQUAL(r->ctx->running, 0);
	CU_ASSERT_EQUAL(r->ctx->all, r->ctx->room);
	tei_mutex_unlock(&r->ctx->lock);
}

static void op_silent(const char *io)
{
	struct timespec nap = { .tv_nsec = 1000000 };
	struct run *t = calloc(OP_STUCK, sizeof(*t));
	struct silence s;
	struct rig r;
	int i;

	if (!t || !rig_start(&r, io, "data", true)) {
		free(t);
		return;
	}
	silence_begin(&s, &r, 2, false);
	for (i = 0; i < OP_STUCK; i++)
		run_start(&r, &t[i], true, OP_LAST, r.mem + (3u << 20),
			  3000000);
	/* if requests of only one file run, they may use the whole limit */
	for (i = 0; op_running(&r, 2) < r.ctx->room && i < 20000; i++)
		nanosleep(&nap, NULL);
	op_others(&r);
	silence_end(&s);
	for (i = 0; i < OP_STUCK; i++)
		CU_ASSERT_EQUAL(run_wait(&t[i]), 0);
	CU_ASSERT(!op_stalled(&r, 2));
	CU_ASSERT(tei_nvmeof_drain(r.ctx, tei_now_ns() + 10 * TEI_NS_PER_SEC));
	CU_ASSERT_EQUAL(r.ctx->running, 0);
	CU_ASSERT_EQUAL(r.ctx->all, 0);
	rig_stop(&r);
	free(t);
}

static void test_a_silent_file_leaves_the_others_their_room(void)
{
	rig_each(op_silent);
}

/* Tests a file server that answers neither a check nor a close of a file:
 * operations on other files must complete. */
static void op_silent_check(const char *io)
{
	struct tei_nvmeof_seg *seg;
	struct silence s;
	struct run t[2];
	struct rig r;

	if (!rig_start(&r, io, "none", true))
		return;
	r.seg->file[2].remote = true;
	silence_begin(&s, &r, 2, true);
	run_start(&r, &t[0], true, OP_LAST, r.mem, 4096);
	run_start(&r, &t[1], true, 0, r.mem + 4096, 4096);
	CU_ASSERT(run_ends(&t[1]));
	CU_ASSERT_EQUAL(t[0].calls, 0);
	silence_end(&s);
	CU_ASSERT(run_ends(&t[0]));
	silence_begin(&s, &r, 2, true);
	seg = r.seg;
	r.seg = NULL;
	rig_reopen(&r);
	tei_nvmeof_seg_put(seg);	/* drops the last reference */
	run_start(&r, &t[1], true, 0, r.mem + 4096, 4096);
	CU_ASSERT(run_ends(&t[1]));
	silence_end(&s);
	rig_stop(&r);
}

static void test_check_or_close_that_hangs_delays_no_other_file(void)
{
	rig_each(op_silent_check);
}

static void op_remove(const char *io)
{
	uint64_t until = tei_now_ns() + 60 * TEI_NS_PER_SEC;
	struct run t[OP_SOME];
	struct rig r;
	int i;

	if (!rig_start(&r, io, "none", true))
		return;
	op_start_some(&r, t, false);
	CU_ASSERT_EQUAL(tei_nvmeof_mem_remove(r.ctx, r.mem, until), 0);
	CU_ASSERT(tei_nvmeof_drain(r.ctx, tei_now_ns() + 10 * TEI_NS_PER_SEC));
	for (i = 0; i < OP_SOME; i++)
		CU_ASSERT_EQUAL(run_wait(&t[i]), 0);
	CU_ASSERT_EQUAL(run_op(&r, &t[0], true, 0, r.mem, 1),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(tei_nvmeof_mem_add(r.ctx, r.mem, RIG_MEM, NULL), 0);
	CU_ASSERT_EQUAL(run_op(&r, &t[0], true, 0, r.mem, 1), 0);
	rig_stop(&r);
}

static void test_removing_memory_waits_for_its_operations(void)
{
	rig_each(op_remove);
}

struct op_notified {
	struct tei_nvmeof_op op;
	bool begun, reported; /* atomics */
};

/* A done callback that sleeps for 100 ms. */
static void op_notify_late(struct tei_nvmeof_op *op, int code,
			   const struct tei_err *err)
{
	struct op_notified *t = tei_container_of(op, struct op_notified, op);
	struct timespec nap = { .tv_nsec = 100 * (long)TEI_NS_PER_MS };

	(void)err;
	CU_ASSERT_EQUAL(code, 0);
	__atomic_store_n(&t->begun, true, __ATOMIC_RELEASE);
	nanosleep(&nap, NULL);
	__atomic_store_n(&t->reported, true, __ATOMIC_RELEASE);
}

static void op_remove_notified(const char *io)
{
	struct timespec nap = { .tv_nsec = 100000 };
	struct op_notified t;
	struct rig r;

	if (!rig_start(&r, io, "none", true))
		return;
	t = (struct op_notified){ .op = { .seg = r.seg,
					  .local = r.mem,
					  .length = 4096,
					  .read = true,
					  .done = op_notify_late } };
	CU_ASSERT_EQUAL_FATAL(tei_nvmeof_submit(r.ctx, &t.op), 0);
	while (!__atomic_load_n(&t.begun, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
	CU_ASSERT_EQUAL(tei_nvmeof_mem_remove(r.ctx, r.mem, tei_now_ns() +
					      60 * TEI_NS_PER_SEC), 0);
	CU_ASSERT(__atomic_load_n(&t.reported, __ATOMIC_ACQUIRE));
	CU_ASSERT_EQUAL(tei_nvmeof_mem_add(r.ctx, r.mem, RIG_MEM, NULL), 0);
	rig_stop(&r);
}

static void test_removing_memory_waits_until_ends_are_reported(void)
{
	rig_each(op_remove_notified);
}

static void op_fini(const char *io)
{
	struct run t[OP_SOME];
	struct rig r;
	int i, code;

	if (!rig_start(&r, io, "data", true))
		return;
	op_start_some(&r, t, true);
	tei_nvmeof_seg_put(r.seg);	/* the operations hold references */
	r.seg = NULL;
	tei_nvmeof_fini(r.ctx);
	for (i = 0; i < OP_SOME; i++) {
		CU_ASSERT_EQUAL(t[i].calls, 1);
		code = run_wait(&t[i]);
		CU_ASSERT(!code || code == TEI_NVMEOF_CANCELLED);
	}
	CU_ASSERT_EQUAL_FATAL(tei_nvmeof_init(&r.settings, NULL, &r.ctx), 0);
	CU_ASSERT_EQUAL(tei_nvmeof_mem_add(r.ctx, r.mem, RIG_MEM, NULL), 0);
	rig_stop(&r);
}

static void test_fini_ends_what_is_under_way(void)
{
	rig_each(op_fini);
}

const struct tei_test_case nvmeof_op_cases[] = {
	{ "threads_move_every_byte", test_threads_move_every_byte },
	{ "pool_with_fewer_threads_still_moves",
	  test_pool_with_fewer_threads_still_moves },
	{ "uring_goes_by_registered_files",
	  test_uring_goes_by_registered_files },
	{ "uring_registers_memory_in_parts",
	  test_uring_registers_memory_in_parts },
	{ "uring_moves_every_byte", test_uring_moves_every_byte },
	{ "memory_is_registered_while_bytes_move",
	  test_memory_is_registered_while_bytes_move },
	{ "operation_during_a_registration_ends",
	  test_operation_during_a_registration_ends },
	{ "bytes_go_by_memory_near_the_file_or_else_their_own",
	  test_bytes_go_by_memory_near_the_file_or_else_their_own },
	{ "memory_near_is_bound_to_its_node",
	  test_memory_near_is_bound_to_its_node },
	{ "bad_input_is_refused", test_bad_input_is_refused },
	{ "settings_that_make_no_sense_are_refused",
	  test_settings_that_make_no_sense_are_refused },
	{ "threads_may_end_before_their_operations",
	  test_threads_may_end_before_their_operations },
	{ "cancelled_operation_ends_once", test_cancelled_operation_ends_once },
	{ "cancel_does_not_wait_for_the_storage",
	  test_cancel_does_not_wait_for_the_storage },
	{ "a_silent_file_leaves_the_others_their_room",
	  test_a_silent_file_leaves_the_others_their_room },
	{ "check_or_close_that_hangs_delays_no_other_file",
	  test_check_or_close_that_hangs_delays_no_other_file },
	{ "removing_memory_waits_for_its_operations",
	  test_removing_memory_waits_for_its_operations },
	{ "removing_memory_waits_until_ends_are_reported",
	  test_removing_memory_waits_until_ends_are_reported },
	{ "fini_ends_what_is_under_way", test_fini_ends_what_is_under_way },
	{ NULL, NULL },
};
