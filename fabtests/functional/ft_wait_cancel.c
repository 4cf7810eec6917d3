/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_wait.h"

#define CANCEL_ROUNDS 24
#define CANCEL_CALM_MS 30

static void cancel_nap(uint32_t us)
{
	struct timespec ts = { .tv_nsec = (long)us * 1000 };

	nanosleep(&ts, NULL);
}

/* Returns true if every task is COMPLETED or CANCELED. If `timeout` is true,
 * tasks may also be TIMEOUT, and all of these must be unfenced. */
static bool cancel_ended(struct fx_job *job, bool timeout)
{
	bool good = fx_job_poll(job) &&
		    job->n[STATUS_COMPLETED] + job->n[STATUS_CANCELED] +
			    (timeout ? job->n[STATUS_TIMEOUT] : 0) ==
			    job->tasks &&
		    job->unfenced == job->n[STATUS_TIMEOUT];

	if (!good)
		ft_diag("%s", fx_job_text(job));
	return good;
}

/* Returns true if the error records of all cancelled tasks have the code
 * TE_CANCELED and a text, and those of all completed tasks are empty. */
static bool cancel_records(struct fx_job *job)
{
	struct te_error err;

	for (size_t i = 0; i < job->tasks; i++) {
		int status = fx_task_status(job, i);

		if (te_task_error(job->engine, job->id, i, &err, sizeof(err)))
			return false;
		if (status == STATUS_CANCELED ?
		    err.code != -TE_CANCELED || !err.text[0] :
		    status == STATUS_COMPLETED && err.code)
			return false;
	}
	return true;
}

/* Cancels a job at a random moment and waits for its end. The memory of both
 * sides must not change afterwards. Returns the number of cancelled tasks. */
static unsigned int cancel_round(struct wait_rig *rig, int op)
{
	struct transfer_status st = { .status = -1 };
	uint64_t len = 8 * FX_MIB, seq = ++rig->sequence;
	struct fx_job job;
	bool good;

	/* Earlier tests may have left poison in the target's memory. */
	fx_buf_fill(&rig->target.mem, 0, len, seq);
	if (op == OPCODE_WRITE)
		fx_buf_fill(&rig->mem, 0, len, ++rig->sequence);
	job = wait_job(rig, op, 0, len, 1 + wait_random(rig, FX_MIB));
	cancel_nap(wait_random(rig, 4000));
	good = !te_cancel_batch(rig->engine, job.id) &&
	       !te_wait_batch(rig->engine, job.id, FX_LONG_MS * WAIT_MS, &st) &&
	       cancel_ended(&job, false) && cancel_records(&job) &&
	       st.status == (job.n[STATUS_CANCELED] ? STATUS_CANCELED :
						      STATUS_COMPLETED) &&
	       st.transferred_bytes == job.bytes;
	fx_buf_poison(&rig->mem, 0, len);
	good = good && fx_buf_still(&rig->target.mem, 0, len, CANCEL_CALM_MS) &&
	       fx_buf_poisoned(&rig->mem, 0, len);
	if (op == OPCODE_WRITE)
		good = good && !memmem(rig->target.mem.p, len, rig->mem.p, 64);
	ft_ok(good, "law2_memory_is_final_after_a_cancelled_%s",
	      op == OPCODE_READ ? "read" : "write");
	fx_job_free(&job);
	return job.n[STATUS_CANCELED];
}

static void cancel_one_task(struct wait_rig *rig)
{
	struct fx_job job;

	fx_peer_pause(&rig->target);
	job = wait_job(rig, OPCODE_WRITE, 0, 16 * FX_MIB, 4 * FX_MIB);
	ft_ok(!te_cancel_task(rig->engine, job.id, 3) &&
	      !te_cancel_task(rig->engine, job.id, 3), "cancel_one_task");
	fx_peer_resume(&rig->target);
	ft_ok(!te_wait_batch(rig->engine, job.id, FX_LONG_MS * WAIT_MS, NULL) &&
		      fx_job_poll(&job) && job.n[STATUS_COMPLETED] == 3 &&
		      fx_task_status(&job, 3) == STATUS_CANCELED,
	      "tasks_next_to_a_cancelled_one_complete");
	ft_ok(!te_cancel_task(rig->engine, job.id, 0) &&
	      fx_task_status(&job, 0) == STATUS_COMPLETED,
	      "cancelling_what_has_ended_changes_nothing");
	fx_job_free(&job);
}

void wait_cancel(struct wait_rig *rig)
{
	unsigned int canceled = 0;

	for (int i = 0; i < CANCEL_ROUNDS; i++)
		canceled += cancel_round(rig, i % 2 ? OPCODE_READ :
						      OPCODE_WRITE);
	ft_ok(canceled > 0, "some_tasks_were_cancelled_before_they_completed");
	cancel_one_task(rig);
}

/* Cancels tasks of a target that does not respond. The tasks must end within
 * wait_end_ms(). */
void wait_cancel_stopped(struct wait_rig *rig)
{
	struct transfer_status st = { .status = -1 };
	uint64_t from, len = 16 * FX_MIB;
	struct fx_job job;
	int ret;

	fx_peer_pause(&rig->target);
	job = wait_job(rig, OPCODE_READ, 0, len, FX_MIB);
	te_wait_batch(rig->engine, job.id, 20 * WAIT_MS, NULL);
	from = ft_now_ns();
	te_cancel_batch(rig->engine, job.id);
	ret = te_wait_batch(rig->engine, job.id, wait_end_ms() * WAIT_MS, &st);
	ft_diag("batch status %d after %llu ms; tasks: %s", st.status,
		(unsigned long long)((ft_now_ns() - from) / 1000000),
		(fx_job_poll(&job), fx_job_text(&job)));
	ft_ok(!ret && cancel_ended(&job, true),
	      "law3_cancelled_tasks_of_a_stopped_target_end_in_time");
	te_wait_batch(rig->engine, job.id, -1, NULL);
	fx_buf_poison(&rig->mem, 0, len);
	fx_peer_resume(&rig->target);
	ft_ok(fx_buf_still(&rig->mem, 0, len, 10 * CANCEL_CALM_MS),
	      "law2_cancelled_read_changes_no_local_byte");
	fx_job_free(&job);
}

/* Cancels tasks that copy bytes within this process. */
void wait_cancel_local(struct wait_rig *rig)
{
	struct fx_buf to = fx_buf_map(WAIT_MEM, -1);
	struct fx_job job = { .engine = rig->engine, .seg = LOCAL_SEGMENT,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = to.addr, .len = WAIT_MEM,
			      .block = 4 * FX_MIB };
	bool good = fx_register(rig->engine, &to);

	for (int i = 0; i < CANCEL_ROUNDS && good; i++) {
		fx_buf_poison(&to, 0, to.len);
		good = !fx_job_start(&job);
		cancel_nap(wait_random(rig, 1000));
		good = good && !te_cancel_batch(rig->engine, job.id) &&
		       !te_wait_batch(rig->engine, job.id, -1, NULL) &&
		       cancel_ended(&job, false) && cancel_records(&job);
		fx_buf_poison(&to, 0, to.len);
		good = good && fx_buf_still(&to, 0, to.len, 2) &&
		       fx_buf_poisoned(&to, 0, to.len) && fx_job_free(&job);
	}
	ft_ok(good, "law2_cancelled_copies_are_final");
	unregisterLocalMemory(rig->engine, to.p);
	fx_buf_unmap(&to);
}

/* --- flush --------------------------------------------------------------- */

/* Submits jobs to the stopped target and to a running one (`other`), and
 * flushes both. The flush of the running target must not wait for the stopped
 * one. */
static void flush_beside(struct wait_rig *rig, struct fx_peer *other,
			 segment_id_t seg)
{
	struct fx_job jobs[16], slow;
	uint64_t part = 256 * FX_KIB, seq = ++rig->sequence;
	bool good = true;

	fx_buf_fill(&rig->mem, 0, 16 * part, seq);
	fx_peer_pause(&rig->target);
	slow = wait_job(rig, OPCODE_WRITE, 0, FX_MIB, 4096);
	for (size_t i = 0; i < 16; i++) {
		jobs[i] = (struct fx_job){
			.engine = rig->engine, .seg = seg, .op = OPCODE_WRITE,
			.local = rig->mem.p + i * part,
			.remote = other->mem.addr + i * part, .len = part,
			.block = 10000,
		};
		good = good && !fx_job_start(&jobs[i]);
	}
	good = good && !te_flush(rig->engine, seg, FX_LONG_MS * WAIT_MS) &&
	       fx_buf_check(&other->mem, 0, 16 * part, seq);
	for (size_t i = 0; i < 16; i++)
		good = fx_job_poll(&jobs[i]) && fx_job_free(&jobs[i]) && good;
	ft_ok(good, "flushed_segment_has_all_bytes_beside_a_stopped_one");
	ft_ok(te_flush(rig->engine, rig->seg, 30 * WAIT_MS) == TE_TIMED_OUT &&
	      te_drain(rig->engine, 30 * WAIT_MS) == TE_TIMED_OUT,
	      "flush_of_a_stopped_target_ends_with_its_time");
	ft_ok(!te_flush(rig->engine, LOCAL_SEGMENT, 0),
	      "flush_without_transfers_succeeds_at_once");
	fx_peer_resume(&rig->target);
	ft_ok(!te_drain(rig->engine, FX_LONG_MS * WAIT_MS) &&
	      fx_job_poll(&slow) && slow.n[STATUS_COMPLETED] == slow.tasks,
	      "drained_engine_has_nothing_under_way");
	fx_job_free(&slow);
}

void wait_flush(struct wait_rig *rig)
{
	struct fx_peer other;
	segment_id_t seg;

	if (!ft_ok(fx_target_start(&other, WAIT_MEM), "other_target_starts"))
		return;
	seg = openSegment(rig->engine, other.name);
	flush_beside(rig, &other, seg);
	closeSegment(rig->engine, seg);
	ft_ok(te_flush(rig->engine, seg, 0) == 1, "flush_of_a_closed_segment");
	fx_peer_stop(&other);
}
