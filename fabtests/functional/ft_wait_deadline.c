/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_wait.h"

#define DEADLINE_MS 300u
/* first deadline; long enough for the call that moves or removes it */
#define DEADLINE_MOVED_MS 1500u
/* MC_SLICE_TIMEOUT of an engine in s; longer than any wait here should take */
#define DEADLINE_PATIENCE_S 20u

static uint64_t deadline_in(unsigned int ms)
{
	return ft_now_ns() + (uint64_t)ms * 1000000;
}

/* Returns true if the error record of every task that is not COMPLETED names
 * the deadline as the cause. */
static bool deadline_records(struct fx_job *job)
{
	struct te_error err;

	for (size_t i = 0; i < job->tasks; i++) {
		int status = fx_task_status(job, i);

		if (status == STATUS_COMPLETED)
			continue;
		if ((status != STATUS_FAILED && status != STATUS_TIMEOUT) ||
		    te_task_error(job->engine, job->id, i, &err, sizeof(err)) ||
		    err.code != -TE_TIMED_OUT || !err.text[0] || !err.peer[0] ||
		    !(err.flags & TE_ERROR_UNFENCED) !=
			    (status == STATUS_FAILED)) {
			ft_diag("task %zu: status %d, code %d: %s", i, status,
				err.code, err.text);
			return false;
		}
	}
	return true;
}

/* Submits the request in a new batch whose deadline is DEADLINE_MS from now. If
 * the deadline passes before the submission, as may happen on a slow machine,
 * repeats this with another batch and twice the time. Sets *at to the deadline
 * of the last batch. Returns true on success. */
static bool deadline_submit(struct wait_rig *rig, struct fx_job *job,
			    struct transfer_request *req, bool before,
			    uint64_t *at)
{
	unsigned int ms;
	int ret;

	for (ms = DEADLINE_MS; ms < FX_LONG_MS; ms *= 2) {
		*at = deadline_in(ms);
		job->id = allocateBatchID(rig->engine, 2);
		if (before && te_batch_deadline(rig->engine, job->id, *at))
			return false;
		ret = submitTransfer(rig->engine, job->id, req, 1);
		if (!before)
			return !ret && !te_batch_deadline(rig->engine, job->id,
							  *at);
		if (ret != TE_TIMED_OUT)
			return !ret;
		freeBatchID(rig->engine, job->id);
	}
	return false;
}

/* Submits tasks to a stopped target. The deadline must end them, and they must
 * not end before it. If `before` is true, the deadline is set before the
 * submission, otherwise after it. */
static void deadline_stopped(struct wait_rig *rig, bool before)
{
	struct transfer_status st = { .status = -1 };
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_READ, .local = rig->mem.p,
			      .remote = rig->target.mem.addr,
			      .len = FX_MIB, .block = FX_MIB };
	uint64_t at, from;
	struct transfer_request req = {
		.opcode = OPCODE_READ, .source = rig->mem.p,
		.target_id = rig->seg, .target_offset = rig->target.mem.addr,
		.length = FX_MIB,
	};
	bool good;
	int ret;

	fx_peer_pause(&rig->target);
	job.tasks = 1;
	good = deadline_submit(rig, &job, &req, before, &at);
	from = ft_now_ns();
	ret = te_wait_batch(rig->engine, job.id,
			    at > from ? (int64_t)((at - from) / 1000) +
						wait_end_ms() * WAIT_MS :
					wait_end_ms() * WAIT_MS, &st);
	ft_diag("batch status %d after %llu ms", st.status,
		(unsigned long long)((ft_now_ns() - from) / 1000000));
	ft_ok(good && !ret && ft_now_ns() >= at && deadline_records(&job) &&
	      st.status == STATUS_TIMEOUT,
	      "law3_deadline_set_%s_submit_ends_unfenced_tasks",
	      before ? "before" : "after");
	ft_ok(submitTransfer(rig->engine, job.id, &req, 1) == TE_TIMED_OUT,
	      "submit_after_the_deadline_times_out");
	te_wait_batch(rig->engine, job.id, -1, NULL);
	fx_buf_poison(&rig->mem, 0, FX_MIB);
	fx_peer_resume(&rig->target);
	ft_ok(fx_buf_still(&rig->mem, 0, FX_MIB, 200),
	      "law2_timed_out_read_changes_no_local_byte");
	fx_job_free(&job);
}

/* Removes the deadline if `off` is true; otherwise moves it to a later time.
 * The tasks must not end at the old deadline. */
static void deadline_moved(struct wait_rig *rig, bool off)
{
	struct transfer_status st = { .status = -1 };
	struct fx_job job;
	bool good;

	fx_peer_pause(&rig->target);
	job = wait_job(rig, OPCODE_WRITE, 0, FX_MIB, 0);
	good = !te_batch_deadline(rig->engine, job.id,
				  deadline_in(DEADLINE_MOVED_MS)) &&
	       !te_batch_deadline(rig->engine, job.id,
				  off ? 0 : deadline_in(FX_LONG_MS));
	good = good && te_wait_batch(rig->engine, job.id,
				     (DEADLINE_MOVED_MS + 150) * WAIT_MS,
				     NULL) == TE_TIMED_OUT;
	fx_peer_resume(&rig->target);
	ft_ok(good && !te_wait_batch(rig->engine, job.id, -1, &st) &&
	      st.status == STATUS_COMPLETED, "a_deadline_%s_does_no_harm",
	      off ? "taken_back" : "put_off");
	fx_job_free(&job);
}

void wait_deadline(struct wait_rig *rig)
{
	deadline_stopped(rig, true);
	ft_ok(wait_works(rig), "write_after_the_deadline_completes");
	deadline_stopped(rig, false);
	ft_ok(wait_works(rig), "write_after_the_deadline_completes");
	deadline_moved(rig, true);
	deadline_moved(rig, false);
}

/* Sets a deadline that passes during the transfer. The target responds, so no
 * task may be unfenced. Returns the number of FAILED tasks, which the deadline
 * has ended. */
static unsigned int deadline_round(struct wait_rig *rig, int op)
{
	struct transfer_status st = { .status = -1 };
	uint64_t len = 16 * FX_MIB, seq = ++rig->sequence;
	struct fx_job job;
	bool good;

	fx_buf_fill(op == OPCODE_WRITE ? &rig->mem : &rig->target.mem, 0, len,
		    seq);
	job = wait_job(rig, op, 0, len, 256 * FX_KIB);
	good = !te_batch_deadline(rig->engine, job.id,
				  ft_now_ns() + wait_random(rig, 6000000)) &&
	       !te_wait_batch(rig->engine, job.id, wait_end_ms() * WAIT_MS,
			      &st) &&
	       fx_job_poll(&job) && !job.n[STATUS_TIMEOUT] &&
	       deadline_records(&job);
	fx_buf_poison(&rig->mem, 0, len);
	good = good && fx_buf_still(&rig->target.mem, 0, len, 30) &&
	       fx_buf_poisoned(&rig->mem, 0, len);
	if (!good)
		ft_diag("%s", fx_job_text(&job));
	ft_ok(good, "law2_memory_is_final_after_a_deadline_in_mid_%s",
	      op == OPCODE_READ ? "read" : "write");
	te_wait_batch(rig->engine, job.id, -1, NULL);
	fx_job_free(&job);
	return job.n[STATUS_FAILED];
}

void wait_deadline_running(struct wait_rig *rig)
{
	unsigned int failed = 0;

	for (int i = 0; i < 16; i++)
		failed += deadline_round(rig, i % 2 ? OPCODE_READ :
						      OPCODE_WRITE);
	ft_ok(failed > 0, "some_transfers_missed_their_deadline");
}

/* Checks that destroying an engine waits for its tasks, but only until their
 * deadline. */
void wait_deadline_destroyed(struct wait_rig *rig)
{
	struct fx_buf mem = fx_buf_map(FX_MIB, -1);
	struct fx_job job = { .op = OPCODE_WRITE, .local = mem.p,
			      .remote = rig->target.mem.addr, .len = FX_MIB };
	uint64_t from, ms;

	job.engine = fx_engine_timeout("tcp", DEADLINE_PATIENCE_S);
	fx_register(job.engine, &mem);
	job.seg = openSegment(job.engine, rig->target.name);
	fx_peer_pause(&rig->target);
	ft_ok(!fx_job_start(&job) &&
	      !te_batch_deadline(job.engine, job.id, deadline_in(DEADLINE_MS)),
	      "submit_with_a_deadline_to_a_stopped_target");
	from = ft_now_ns();
	destroyTransferEngine(job.engine);
	ms = (ft_now_ns() - from) / 1000000;
	ft_ok(ms < DEADLINE_PATIENCE_S * 1000,
	      "destroying_the_engine_waits_no_longer: %llu ms",
	      (unsigned long long)ms);
	fx_peer_resume(&rig->target);
	fx_buf_unmap(&mem);
}

/* Checks a wait during which the target is killed with SIGKILL. */
static void wait_killed_by(struct wait_rig *rig)
{
	struct wait_thread t = { .engine = rig->engine, .timeout_us = -1 };
	struct fx_job job;
	uint64_t from;

	fx_peer_pause(&rig->target);
	job = wait_job(rig, OPCODE_WRITE, 0, 16 * FX_MIB, FX_MIB);
	t.id = job.id;
	wait_thread_start(&t);
	ft_ok(te_wait_batch(rig->engine, job.id, 50 * WAIT_MS, NULL) ==
		      TE_TIMED_OUT,
	      "transfer_is_under_way");
	from = ft_now_ns();
	fx_peer_kill(&rig->target);
	wait_thread_join(&t);
	ft_diag("batch status %d after %llu ms", t.status.status,
		(unsigned long long)((t.ended_ns - from) / 1000000));
	ft_ok(!t.ret && (t.status.status == STATUS_FAILED ||
			 t.status.status == STATUS_TIMEOUT) &&
	      t.ended_ns - from <
		      (FX_HASTY_S * 1000 + wait_end_ms()) * UINT64_C(1000000),
	      "law3_a_wait_ends_when_its_target_is_killed");
	fx_job_free(&job);
	closeSegment(rig->engine, rig->seg);
	fx_peer_drop(&rig->target);
}

void wait_killed(struct wait_rig *rig)
{
	struct wait_rig hasty = *rig;

	hasty.engine = fx_engine_hasty("tcp");
	if (ft_ok(hasty.engine && fx_register(hasty.engine, &hasty.mem),
		  "engine_with_short_timeout_starts")) {
		hasty.seg = openSegment(hasty.engine, rig->target.name);
		wait_killed_by(&hasty);
	}
	destroyTransferEngine(hasty.engine);
	closeSegment(rig->engine, rig->seg);
	rig->target = hasty.target;
}
