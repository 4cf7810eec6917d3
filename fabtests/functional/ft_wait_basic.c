/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_wait.h"

#define BASIC_BLOCK (64 * FX_KIB)
#define BASIC_TASKS 64u
#define BASIC_THREADS 8
#define BASIC_ROUNDS 200

static bool basic_done(const struct transfer_status *st, uint64_t len)
{
	return st->status == STATUS_COMPLETED && st->transferred_bytes == len;
}

static bool basic_same_batch(struct wait_rig *rig, struct fx_job *job)
{
	struct transfer_status st = { .status = -1 };
	bool good = true;

	for (size_t i = job->tasks; i-- > 0;) {
		st.status = -1;
		good = good &&
		       !te_wait_task(rig->engine, job->id, i, -1, &st) &&
		       basic_done(&st, job->block);
	}
	st.status = -1;
	return good && !te_batch_status(rig->engine, job->id, &st) &&
	       basic_done(&st, job->len);
}

void wait_basics(struct wait_rig *rig)
{
	struct transfer_status st = { .status = -1 };
	uint64_t len = BASIC_TASKS * BASIC_BLOCK, seq = ++rig->sequence;
	struct fx_job job;

	fx_buf_fill(&rig->mem, 0, len, seq);
	job = wait_job(rig, OPCODE_WRITE, 0, len, BASIC_BLOCK);
	ft_ok(!te_wait_batch(rig->engine, job.id, -1, &st) &&
	      basic_done(&st, len) &&
	      fx_buf_check(&rig->target.mem, 0, len, seq),
	      "waited_for_batch_is_in_place");
	ft_ok(!te_wait_batch(rig->engine, job.id, 0, NULL),
	      "ended_batch_needs_no_wait");
	ft_ok(basic_same_batch(rig, &job), "tasks_and_batch_agree");
	fx_job_free(&job);
	fx_buf_poison(&rig->mem, 0, len);
	job = wait_job(rig, OPCODE_READ, 0, len, BASIC_BLOCK);
	ft_ok(basic_same_batch(rig, &job) &&
	      fx_buf_check(&rig->mem, 0, len, seq),
	      "waited_for_tasks_are_in_place");
	fx_job_free(&job);
}

/* Waits with a timeout of `ms` for a job that cannot end: for the batch if
 * `whole` is true, otherwise for task 1. Returns true if the wait returned
 * TE_TIMED_OUT after at least `ms` and not much later. */
static bool basic_timeout(struct wait_rig *rig, const struct fx_job *job,
			  bool whole, unsigned int ms)
{
	struct transfer_status st = { .status = -1 };
	uint64_t from = ft_now_ns(), took;
	int64_t us = ms * WAIT_MS;
	int ret;

	ret = whole ? te_wait_batch(rig->engine, job->id, us, &st) :
		      te_wait_task(rig->engine, job->id, 1, us, &st);
	took = (ft_now_ns() - from) / 1000000;
	ft_diag("timeout %u ms: returned %d, status %d after %llu ms", ms, ret,
		st.status, (unsigned long long)took);
	return ret == TE_TIMED_OUT && st.status == STATUS_WAITING &&
	       took >= ms && took <= ms + fx_ms(WAIT_SLACK_MS) / 2;
}

void wait_timeouts(struct wait_rig *rig)
{
	static const unsigned int ms[] = { 0, 1, 20, 200 };
	struct transfer_status st = { .status = -1 };
	bool batch = true, task = true;
	struct fx_job job;

	fx_peer_pause(&rig->target);
	job = wait_job(rig, OPCODE_WRITE, 0, 2 * FX_MIB, FX_MIB);
	for (size_t i = 0; i < sizeof(ms) / sizeof(*ms); i++) {
		batch = basic_timeout(rig, &job, true, ms[i]) && batch;
		task = basic_timeout(rig, &job, false, ms[i]) && task;
	}
	ft_ok(batch, "wait_for_a_batch_ends_with_its_time");
	ft_ok(task, "wait_for_a_task_ends_with_its_time");
	ft_ok(!te_batch_status(rig->engine, job.id, &st) &&
	      st.status == STATUS_WAITING, "status_of_a_batch_under_way");
	fx_peer_resume(&rig->target);
	ft_ok(!te_wait_batch(rig->engine, job.id, FX_LONG_MS * WAIT_MS, &st) &&
		      basic_done(&st, 2 * FX_MIB),
	      "wait_for_a_resumed_target_completes");
	fx_job_free(&job);
}

/* --- many threads -------------------------------------------------------- */

struct basic_worker {
	struct wait_rig *rig;
	unsigned int number;
	unsigned int bad;
	pthread_t thread;
};

static bool basic_worker_round(struct basic_worker *w, unsigned int round)
{
	struct transfer_status st = { .status = -1 };
	struct wait_rig *rig = w->rig;
	uint64_t off = w->number * FX_MIB;
	struct fx_job job = {
		.engine = rig->engine, .seg = rig->seg,
		.op = round % 2 ? OPCODE_WRITE : OPCODE_READ,
		.local = rig->mem.p + off,
		.remote = rig->target.mem.addr + off,
		.len = 64 + 997 * (round % 1000), .block = 4096,
	};
	bool good;

	if (fx_job_start(&job))
		return false;
	good = round % 3 ?
	       !te_wait_batch(rig->engine, job.id, -1, &st) &&
	       basic_done(&st, job.len) :
	       !te_wait_task(rig->engine, job.id, job.tasks - 1, -1, &st) &&
	       st.status == STATUS_COMPLETED &&
	       !te_wait_batch(rig->engine, job.id, -1, NULL);
	return fx_job_free(&job) && good;
}

static void *basic_worker_main(void *arg)
{
	struct basic_worker *w = arg;

	for (unsigned int i = 0; i < BASIC_ROUNDS; i++)
		w->bad += !basic_worker_round(w, i * 7 + w->number);
	return NULL;
}

static void basic_own_batches(struct wait_rig *rig)
{
	struct basic_worker w[BASIC_THREADS];
	unsigned int i, bad = 0;

	memset(w, 0, sizeof(w));
	for (i = 0; i < BASIC_THREADS; i++) {
		w[i].rig = rig;
		w[i].number = i;
		pthread_create(&w[i].thread, NULL, basic_worker_main, &w[i]);
	}
	for (i = 0; i < BASIC_THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		bad += w[i].bad;
	}
	ft_ok(!bad, "threads_wait_for_batches_of_their_own");
}

static void basic_one_batch(struct wait_rig *rig)
{
	struct wait_thread t[BASIC_THREADS];
	struct fx_job job;
	bool good = true;

	fx_peer_pause(&rig->target);
	job = wait_job(rig, OPCODE_WRITE, 0, 4 * FX_MIB, 4096);
	memset(t, 0, sizeof(t));
	for (int i = 0; i < BASIC_THREADS; i++) {
		t[i].engine = rig->engine;
		t[i].id = job.id;
		t[i].timeout_us = -1;
		wait_thread_start(&t[i]);
	}
	fx_peer_resume(&rig->target);
	for (int i = 0; i < BASIC_THREADS; i++) {
		wait_thread_join(&t[i]);
		good = good && !t[i].ret && basic_done(&t[i].status, job.len);
	}
	ft_ok(good, "threads_wait_for_the_same_batch");
	fx_job_free(&job);
}

void wait_threads(struct wait_rig *rig)
{
	basic_own_batches(rig);
	basic_one_batch(rig);
}

/* --- a batch or an engine that disappears during a wait ------------------- */

/* Frees the batch as soon as it has ended, while another thread may still wait
 * for it. The next batch then uses the same slot. Returns true if the wait
 * returned success, or 1 because the batch no longer existed. */
static bool basic_freed_round(struct wait_rig *rig)
{
	struct wait_thread t = { .engine = rig->engine, .timeout_us = -1 };
	struct fx_job job, next;
	struct transfer_status st;
	bool good;

	job = wait_job(rig, OPCODE_WRITE, 0,
		       1 + wait_random(rig, 256 * FX_KIB), 32 * FX_KIB);
	if (job.n[7])
		return false;
	t.id = job.id;
	wait_thread_start(&t);
	good = fx_job_wait(&job, FX_LONG_MS) && fx_job_free(&job);
	next = wait_job(rig, OPCODE_WRITE, 0, 64 * FX_KIB, 0);
	wait_thread_join(&t);
	good = good && (t.ret == 1 || (!t.ret &&
				       basic_done(&t.status, job.len)));
	return !te_wait_batch(rig->engine, next.id, -1, &st) &&
	       basic_done(&st, next.len) && fx_job_free(&next) && good;
}

void wait_freed(struct wait_rig *rig)
{
	bool good = true;

	for (int i = 0; i < 50 && good; i++)
		good = basic_freed_round(rig);
	ft_ok(good, "batch_freed_during_a_wait");
}

/* Destroys an engine while a thread calls te_wait_batch. The call must return
 * 1, whether or not the thread already sleeps. */
void wait_destroyed(struct wait_rig *rig)
{
	struct wait_thread t = { .timeout_us = -1 };
	struct fx_buf mem = fx_buf_map(FX_MIB, -1);
	struct fx_job job = { .op = OPCODE_WRITE, .local = mem.p,
			      .remote = rig->target.mem.addr, .len = FX_MIB };

	job.engine = fx_engine_timeout("tcp", FX_BRISK_S);
	fx_register(job.engine, &mem);
	job.seg = openSegment(job.engine, rig->target.name);
	fx_peer_pause(&rig->target);
	ft_ok(!fx_job_start(&job), "submit");
	t.engine = job.engine;
	t.id = job.id;
	wait_thread_start(&t);
	ft_ok(te_wait_batch(job.engine, job.id, 50 * WAIT_MS, NULL) ==
		      TE_TIMED_OUT,
	      "transfer_is_under_way");
	destroyTransferEngine(job.engine);
	wait_thread_join(&t);
	ft_ok(t.ret == 1, "destroying_the_engine_ends_a_wait");
	fx_peer_resume(&rig->target);
	fx_buf_unmap(&mem);
}
