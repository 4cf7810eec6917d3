/* SPDX-License-Identifier: BSD-2-Clause */

/* Atomics: their results, and that each of many concurrent ones is executed
 * exactly once. */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "fabtests/functional/ft_submit.h"

#define COUNT_ROUNDS 40
#define COUNT_DEPTH 32
#define COUNT_THREADS 3

struct atomic_case {
	uint32_t opcode;
	uint64_t operand, compare;
	uint64_t before, after32, after64;
};

static const struct atomic_case atomic_cases[] = {
	{ TE_ATOMIC_ADD, 5, 0, 37, 42, 42 },
	{ TE_ATOMIC_FETCH_ADD, 5, 0, 37, 42, 42 },
	{ TE_ATOMIC_FETCH_ADD, 1, 0, UINT32_MAX, 0, UINT64_C(1) << 32 },
	{ TE_ATOMIC_FETCH_ADD, UINT32_MAX, 0, 1, 0, UINT64_C(1) << 32 },
	{ TE_ATOMIC_SWAP, 99, 0, 7, 99, 99 },
	{ TE_ATOMIC_CAS, 1, 7, 7, 1, 1 },
	{ TE_ATOMIC_CAS, 1, 8, 7, 7, 7 },
};

static uint64_t atomic_read(const unsigned char *p, unsigned int width)
{
	uint32_t narrow;
	uint64_t v;

	memcpy(&narrow, p, sizeof(narrow));
	memcpy(&v, p, sizeof(v));
	return width == 4 ? narrow : v;
}

/* Runs one atomic. Returns true if the value at the target and the result are
 * right. Both are surrounded by poison, which must not change. */
static bool atomic_one(struct submit_rig *rig, segment_id_t seg,
		       unsigned char *there, uint64_t addr,
		       const struct atomic_case *c, unsigned int width)
{
	unsigned char *result = rig->mem.p + 64;
	struct te_local local = { result, width };
	struct te_remote remote = { addr, width };
	struct te_request req = {
		.opcode = c->opcode, .target_id = seg, .remote_count = 1,
		.local_count = c->opcode != TE_ATOMIC_ADD, .local = &local,
		.remote = &remote, .operand = c->operand,
		.compare = c->compare,
	};
	uint32_t narrow = (uint32_t)c->before;
	uint64_t want = width == 4 ? c->after32 : c->after64;
	bool good;

	memset(there - 8, FX_POISON, 24);
	memset(result - 8, FX_POISON, 24);
	if (width == 4)
		memcpy(there, &narrow, 4);
	else
		memcpy(there, &c->before, 8);
	good = fx_submit(rig->engine, &req, NULL) == STATUS_COMPLETED &&
	       atomic_read(there, width) == want;
	if (req.local_count)
		good = good && atomic_read(result, width) == c->before;
	else
		good = good && result[0] == FX_POISON;
	good = good && there[-1] == FX_POISON && there[width] == FX_POISON &&
	       result[-1] == FX_POISON && result[width] == FX_POISON;
	if (!good)
		ft_diag("opcode %u, width %u: 0x%llx at the target, result "
			"0x%llx",
			c->opcode, width,
			(unsigned long long)atomic_read(there, width),
			(unsigned long long)atomic_read(result, width));
	return good;
}

static bool atomic_each(struct submit_rig *rig, segment_id_t seg,
			unsigned char *there, uint64_t addr)
{
	size_t n = sizeof(atomic_cases) / sizeof(atomic_cases[0]);
	bool good = true;

	for (size_t i = 0; good && i < 2 * n; i++)
		good = atomic_one(rig, seg, there, addr, &atomic_cases[i / 2],
				  i % 2 ? 4 : 8);
	return good;
}

/* Checks that an atomic outside of registered memory fails with an error record
 * and changes nothing. */
static void atomic_refused(struct submit_rig *rig)
{
	struct te_local local = { rig->mem.p, 8 };
	struct te_remote remote = { rig->target.mem.addr + SUBMIT_MEM, 8 };
	struct te_request req = {
		.opcode = TE_ATOMIC_SWAP, .target_id = rig->seg,
		.local_count = 1, .remote_count = 1, .local = &local,
		.remote = &remote,
	};
	struct te_error err = { 0 };

	ft_ok(fx_submit(rig->engine, &req, &err) == STATUS_FAILED &&
	      err.code == -3 && !(err.flags & TE_ERROR_UNKNOWN) &&
	      *err.provider && fx_buf_guards(&rig->target.mem),
	      "an_atomic_outside_registered_memory_fails_%s", rig->way);
}

void submit_atomics(struct submit_rig *rig)
{
	ft_ok(atomic_each(rig, rig->seg, rig->target.mem.p + 128,
			  rig->target.mem.addr + 128),
	      "atomics_do_what_they_say_%s", rig->way);
	atomic_refused(rig);
}

void submit_atomics_own(struct submit_rig *rig)
{
	ft_ok(atomic_each(rig, LOCAL_SEGMENT, rig->mem.p + 256,
			  rig->mem.addr + 256),
	      "atomics_inside_the_process_have_the_right_results");
}

/* --- several processes at the same time ---------------------------------- */

struct count_own {
	struct fx_count count;
	struct fx_counted got;
};

static void *count_own_main(void *arg)
{
	struct count_own *own = arg;

	fx_count_run(&own->count, &own->got);
	return NULL;
}

static bool count_add(struct fx_peer *other, struct fx_counted *sum)
{
	struct fx_counted c = { 0 };
	unsigned long long found;

	if (fx_answer(other, FX_LONG_MS) ||
	    sscanf(other->text, "%u %u %u %u %llu", &c.completed, &c.failed,
		   &c.unknown, &c.other, &found) != 5)
		return false;
	sum->completed += c.completed;
	sum->failed += c.failed + c.unknown + c.other;
	sum->sum += found;
	return true;
}

/* Two processes with COUNT_THREADS threads each add 1 to the same number, n
 * times in total. Each value from 0 to n - 1 must be returned once as the old
 * value; the test checks the sum of these values. */
static void count_contended(struct submit_rig *rig, struct fx_peer *other,
			    int seg, unsigned int width)
{
	uint64_t addr = rig->target.mem.addr + 4096;
	uint64_t n = 2ULL * COUNT_ROUNDS * COUNT_DEPTH * COUNT_THREADS;
	struct count_own own = { .count = {
		.engine = rig->engine, .seg = rig->seg, .addr = addr,
		.width = width, .threads = COUNT_THREADS,
		.rounds = COUNT_ROUNDS, .depth = COUNT_DEPTH,
		.results = (void *)rig->mem.p,
	} };
	struct fx_counted sum = { 0 };
	bool good;

	memset(rig->target.mem.p + 4096, 0, 8);
	good = fx_send(other, "count %d %llu %u %u %u %u", seg,
		       (unsigned long long)addr, width, COUNT_ROUNDS,
		       COUNT_DEPTH, COUNT_THREADS);
	count_own_main(&own);
	good = good && count_add(other, &sum);
	sum.completed += own.got.completed;
	sum.sum += own.got.sum;
	good = good && sum.completed == n &&
	       atomic_read(rig->target.mem.p + 4096, 8) == n &&
	       sum.sum == n * (n - 1) / 2;
	if (!good)
		ft_diag("%u of %llu additions completed, the counter is %llu",
			sum.completed, (unsigned long long)n,
			(unsigned long long)atomic_read(
				rig->target.mem.p + 4096, 8));
	ft_ok(good, "contended_%u_bit_fetch_adds_are_exact_%s", 8 * width,
	      rig->way);
}

/* A peer adds to a number of this process, while threads of this process add to
 * it with __atomic builtins and with te_submit to LOCAL_SEGMENT. */
static void count_with_target(struct submit_rig *rig, struct fx_peer *other,
			      int seg)
{
	uint64_t *number = (void *)(rig->mem.p + 8192);
	uint64_t own = 0, n = (uint64_t)COUNT_ROUNDS * COUNT_DEPTH * 2;
	struct count_own local = { .count = {
		.engine = rig->engine, .seg = LOCAL_SEGMENT,
		.addr = (uint64_t)(uintptr_t)number, .width = 8, .threads = 1,
		.rounds = COUNT_ROUNDS, .depth = COUNT_DEPTH,
		.results = (void *)rig->mem.p,
	} };
	struct fx_counted sum = { 0 };
	pthread_t thread;
	bool good;

	__atomic_store_n(number, 0, __ATOMIC_SEQ_CST);
	good = fx_send(other, "count %d %llu 8 %u %u 1", seg,
		       (unsigned long long)(uintptr_t)number, COUNT_ROUNDS,
		       COUNT_DEPTH) &&
	       !pthread_create(&thread, NULL, count_own_main, &local);
	for (; good && own < 100000; own++)
		__atomic_fetch_add(number, 1, __ATOMIC_RELAXED);
	if (good)
		pthread_join(thread, NULL);
	good = good && count_add(other, &sum);
	ft_ok(good && local.got.completed + sum.completed == n &&
	      __atomic_load_n(number, __ATOMIC_SEQ_CST) == n + own,
	      "the_targets_own_threads_take_part_%s", rig->way);
}

static void count_locks(struct submit_rig *rig, struct fx_peer *other, int seg)
{
	uint64_t addr = rig->target.mem.addr + 16384;
	struct fx_lock lock = {
		.engine = rig->engine, .seg = rig->seg, .addr = addr,
		.who = 1, .rounds = 40, .scratch = (void *)rig->mem.p,
	};
	bool good;

	memset(rig->target.mem.p + 16384, 0, 128);
	good = fx_send(other, "lock %d %llu 2 %u", seg,
		       (unsigned long long)addr, lock.rounds);
	good = fx_lock_run(&lock) && good;
	good = !fx_answer(other, FX_LONG_MS) && good;
	ft_ok(good && atomic_read(rig->target.mem.p + 16384 + 64, 8) ==
		      2 * lock.rounds &&
	      !atomic_read(rig->target.mem.p + 16384, 8),
	      "a_compare_swap_lock_keeps_others_out_%s", rig->way);
}

void submit_contended(struct submit_rig *rig)
{
	struct fx_peer other;
	char own[128];
	int seg, back;

	if (!fx_peer_start(&other, FX_MIB, rig->transport, NULL) ||
	    fx_ask(&other, "reg 0 %llu 0", FX_MIB)) {
		ft_ok(false, "a third process starts");
		return;
	}
	seg = fx_ask(&other, "open %s", rig->target.name);
	back = fx_engine_name(rig->engine, own, sizeof(own)) ?
	       fx_ask(&other, "open %s", own) : -1;
	if (ft_ok(seg > 0 && back > 0, "three_processes_%s", rig->way)) {
		count_contended(rig, &other, seg, 8);
		count_contended(rig, &other, seg, 4);
		count_with_target(rig, &other, back);
		count_locks(rig, &other, seg);
	}
	fx_peer_stop(&other);
}
