/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/fx.h"

static void job_request(const struct fx_job *job, size_t i,
			struct transfer_request *req)
{
	uint64_t off = i * job->block;

	memset(req, 0, sizeof(*req));
	req->opcode = job->op;
	req->source = (char *)job->local + off;
	req->target_id = job->seg;
	req->target_offset = job->remote + off;
	req->length = job->len - off < job->block ? job->len - off : job->block;
}

int fx_job_start(struct fx_job *job)
{
	struct transfer_request *reqs;
	int ret;

	if (!job->block)
		job->block = job->len;
	job->tasks = (job->len + job->block - 1) / job->block;
	reqs = calloc(job->tasks, sizeof(*reqs));
	if (!reqs)
		return 302;
	for (size_t i = 0; i < job->tasks; i++)
		job_request(job, i, &reqs[i]);
	job->id = allocateBatchID(job->engine, job->tasks);
	ret = job->id == INVALID_BATCH ? 302 :
	      submitTransfer(job->engine, job->id, reqs, job->tasks);
	if (ret && job->id != INVALID_BATCH)
		freeBatchID(job->engine, job->id);
	free(reqs);
	return ret;
}

/*
 * Uses te_wait_task, because it always reports an unfenced task as TIMEOUT.
 * Without MC_SLICE_TIMEOUT, getTransferStatus reports such a task as FAILED.
 */
int fx_status(transfer_engine_t engine, batch_id_t id, size_t task,
	      struct transfer_status *status)
{
	int ret = te_wait_task(engine, id, task, 0, status);

	return ret == TE_TIMED_OUT ? 0 : ret;
}

int fx_task_status(const struct fx_job *job, size_t task)
{
	struct transfer_status st = { .status = -1 };

	return fx_status(job->engine, job->id, task, &st) ? -1 : st.status;
}

static bool job_unfenced(const struct fx_job *job, size_t task)
{
	struct te_error err;

	return !te_task_error(job->engine, job->id, task, &err, sizeof(err)) &&
	       err.flags & TE_ERROR_UNFENCED;
}

bool fx_job_under_way(struct fx_job *job)
{
	for (int i = 0; i < 16; i++) {
		if (fx_job_start(job))
			return false;
		if (!fx_job_poll(job)) {
			ft_diag("job under way; tasks: %s", fx_job_text(job));
			return true;
		}
		fx_job_free(job);
	}
	ft_diag("each job ended before the first poll; tasks: %s",
		fx_job_text(job));
	return false;
}

bool fx_job_poll(struct fx_job *job)
{
	struct transfer_status st;
	size_t ended = 0;

	memset(job->n, 0, sizeof(job->n));
	job->bytes = 0;
	job->unfenced = 0;
	for (size_t i = 0; i < job->tasks; i++) {
		st.status = 7;
		st.transferred_bytes = 0;
		if (fx_status(job->engine, job->id, i, &st) ||
		    st.status < 0 || st.status > 6)
			st.status = 7;
		job->n[st.status]++;
		job->bytes += st.transferred_bytes;
		ended += st.status >= STATUS_CANCELED;
		if (st.status == STATUS_TIMEOUT)
			job->unfenced += job_unfenced(job, i);
	}
	return ended == job->tasks;
}

const char *fx_job_text(const struct fx_job *job)
{
	static _Thread_local char buf[160];

	snprintf(buf, sizeof(buf), "%u waiting, %u canceled, %u completed, %u "
		 "timeout (%u unfenced), %u failed, %u other",
		 job->n[0], job->n[3], job->n[4], job->n[5], job->unfenced,
		 job->n[6], job->n[1] + job->n[2] + job->n[7]);
	return buf;
}

bool fx_job_reach(struct fx_job *job, uint64_t bytes, unsigned int ms)
{
	uint64_t deadline = ft_now_ns() + (uint64_t)ms * 1000000;
	struct timespec pause = { .tv_nsec = 20000 };

	while (!fx_job_poll(job) && job->bytes < bytes) {
		if (ft_now_ns() >= deadline)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

bool fx_job_wait(struct fx_job *job, unsigned int ms)
{
	return fx_job_reach(job, UINT64_MAX, ms);
}

bool fx_job_stopped(const struct fx_job *job)
{
	return job->n[STATUS_COMPLETED] + job->n[STATUS_TIMEOUT] +
		       job->n[STATUS_FAILED] == job->tasks &&
	       job->unfenced == job->n[STATUS_TIMEOUT] &&
	       (job->n[STATUS_TIMEOUT] ||
		job->n[STATUS_COMPLETED] == job->tasks);
}

bool fx_job_failed_final(const struct fx_job *job, const struct fx_buf *at,
			 const unsigned char *before)
{
	for (size_t i = 0; i < job->tasks; i++) {
		uint64_t off = i * job->block;

		if (fx_task_status(job, i) != STATUS_FAILED ||
		    !memcmp(before + off, at->p + off, job->block))
			continue;
		ft_diag("bytes of task %zu landed after its status was FAILED",
			i);
		return false;
	}
	return true;
}

bool fx_job_free(struct fx_job *job)
{
	int ret = freeBatchID(job->engine, job->id);

	if (ret)
		ft_diag("freeBatchID: %d", ret);
	return !ret;
}

bool fx_move(transfer_engine_t engine, segment_id_t seg, int op, void *local,
	     uint64_t remote, uint64_t len, uint64_t block)
{
	struct fx_job job = { .engine = engine, .seg = seg, .op = op,
			      .local = local, .remote = remote, .len = len,
			      .block = block };
	struct te_error err = { 0 };
	int ret = fx_job_start(&job);
	bool good;

	if (ret) {
		ft_diag("submitTransfer: %d", ret);
		return false;
	}
	good = fx_job_wait(&job, FX_LONG_MS) &&
	       job.n[STATUS_COMPLETED] == job.tasks && job.bytes == len;
	for (size_t i = 0; !good && i < job.tasks && !err.code; i++)
		te_task_error(engine, job.id, i, &err, sizeof(err));
	if (!good)
		ft_diag("tasks: %s; %llu of %llu bytes; error %d: %s",
			fx_job_text(&job), (unsigned long long)job.bytes,
			(unsigned long long)len, err.code, err.text);
	return fx_job_free(&job) && good;
}

bool fx_move_blocks(const struct fx_job *job, const uint8_t *here,
		    const uint8_t *there, size_t n)
{
	struct transfer_request reqs[16] = { { 0 } };
	struct fx_job run = *job;
	bool good;
	size_t i;

	for (i = 0; i < n; i++)
		reqs[i] = (struct transfer_request){
			.opcode = job->op,
			.source = (char *)job->local + here[i] * job->block,
			.target_id = job->seg,
			.target_offset = job->remote + there[i] * job->block,
			.length = job->block,
		};
	run.tasks = n;
	run.id = allocateBatchID(run.engine, n);
	good = run.id != INVALID_BATCH &&
	       !submitTransfer(run.engine, run.id, reqs, n) &&
	       fx_job_wait(&run, FX_LONG_MS) && run.n[STATUS_COMPLETED] == n;
	if (run.id != INVALID_BATCH)
		freeBatchID(run.engine, run.id);
	return good;
}

bool fx_move_until(transfer_engine_t engine, segment_id_t seg, int op,
		   void *local, uint64_t remote, uint64_t len, uint64_t block,
		   unsigned int ms)
{
	uint64_t deadline = ft_now_ns() + (uint64_t)ms * 1000000;

	while (!fx_move(engine, seg, op, local, remote, len, block))
		if (ft_now_ns() >= deadline)
			return false;
	return true;
}
