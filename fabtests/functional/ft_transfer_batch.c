/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "fabtests/functional/ft_transfer.h"
#include "fabtests/functional/fx.h"

static struct transfer_request batch_request(const struct xfer_rig *rig,
					     uint64_t off, uint64_t len)
{
	struct transfer_request req = {
		.opcode = OPCODE_WRITE, .source = rig->mem.p + off,
		.target_id = rig->seg,
		.target_offset = rig->target.mem.addr + off, .length = len,
	};

	return req;
}

/* Checks that task numbers follow the order of submission. The task with number
 * i must have moved 100 + i bytes. */
static void tasks_are_numbered_in_order(struct xfer_rig *rig)
{
	batch_id_t id = allocateBatchID(rig->engine, 6);
	struct fx_job job = { .engine = rig->engine, .id = id, .tasks = 6 };
	struct transfer_request reqs[6];
	struct transfer_status st;
	bool good = true;

	for (unsigned int i = 0; i < 6; i++)
		reqs[i] = batch_request(rig, i * 4096, 100 + i);
	for (unsigned int i = 0; i < 6; i += 2)
		good = good && !submitTransfer(rig->engine, id, &reqs[i], 2);
	good = good && fx_job_wait(&job, FX_LONG_MS);
	for (unsigned int i = 0; good && i < 6; i++)
		good = !getTransferStatus(rig->engine, id, i, &st) &&
		       st.status == STATUS_COMPLETED &&
		       st.transferred_bytes == 100 + i;
	ft_ok(good, "tasks_are_numbered_in_order_%u_rails", rig->rails);
	fx_job_free(&job);
}

static void full_batch_takes_nothing(struct xfer_rig *rig)
{
	batch_id_t id = allocateBatchID(rig->engine, 4);
	struct fx_job job = { .engine = rig->engine, .id = id, .tasks = 3 };
	struct transfer_request reqs[5];
	struct transfer_status st;

	for (unsigned int i = 0; i < 5; i++)
		reqs[i] = batch_request(rig, i * 4096, 64);
	fx_buf_poison(&rig->target.mem, 3 * 4096, 2 * 4096);
	ft_ok(submitTransfer(rig->engine, id, reqs, 5) == 2,
	      "submit_of_more_than_the_batch_holds_is_2");
	ft_ok(getTransferStatus(rig->engine, id, 0, &st) == 1,
	      "refused_submit_creates_no_task");
	ft_ok(!submitTransfer(rig->engine, id, reqs, 3),
	      "submit_of_three_tasks_is_accepted");
	ft_ok(submitTransfer(rig->engine, id, &reqs[3], 2) == 2,
	      "submit_of_more_than_is_left_is_2");
	ft_ok(getTransferStatus(rig->engine, id, 3, &st) == 1,
	      "refused_submit_adds_no_task");
	ft_ok(fx_job_wait(&job, FX_LONG_MS) && job.n[STATUS_COMPLETED] == 3,
	      "tasks_of_the_accepted_submit_complete");
	ft_ok(fx_buf_poisoned(&rig->target.mem, 3 * 4096, 2 * 4096),
	      "refused_submit_writes_no_byte");
	ft_ok(!submitTransfer(rig->engine, id, &reqs[4], 1),
	      "the_last_one_still_fits");
	job.tasks = 4;
	ft_ok(fx_job_wait(&job, FX_LONG_MS) && job.n[STATUS_COMPLETED] == 4,
	      "the_last_one_completes");
	fx_job_free(&job);
}

static void wrong_index_is_1(struct xfer_rig *rig)
{
	batch_id_t id = allocateBatchID(rig->engine, 2);
	struct fx_job job = { .engine = rig->engine, .id = id, .tasks = 1 };
	struct transfer_request req = batch_request(rig, 0, 64);
	struct transfer_status st = { .status = 99, .transferred_bytes = 98 };
	struct te_error err = { .code = 55 };

	submitTransfer(rig->engine, id, &req, 1);
	ft_ok(getTransferStatus(rig->engine, id, 1, &st) == 1 &&
	      getTransferStatus(rig->engine, id, 2, &st) == 1 &&
	      getTransferStatus(rig->engine, id, SIZE_MAX, &st) == 1 &&
	      te_task_error(rig->engine, id, 1, &err, sizeof(err)) == 1,
	      "wrong_index_is_1");
	ft_ok(st.status == 99 && st.transferred_bytes == 98,
	      "outputs_are_untouched_on_error");
	ft_ok(getTransferStatus(rig->engine, id, 0, NULL) == 1,
	      "status_to_null_is_1");
	fx_job_wait(&job, FX_LONG_MS);
	fx_job_free(&job);
}

/* Checks that freeBatchID returns 4 for a batch with an unfinished task. The
 * target is stopped, so that the task cannot complete. */
static void busy_batch_is_4(struct xfer_rig *rig)
{
	struct fx_job job = xfer_rig_job(rig, OPCODE_WRITE, 0, 0, FX_MIB, 0);
	int busy, status, ret;

	fx_buf_fill(&rig->mem, 0, job.len, ++rig->sequence);
	fx_peer_pause(&rig->target);
	ret = fx_job_start(&job);
	busy = freeBatchID(rig->engine, job.id);
	status = fx_task_status(&job, 0);
	fx_peer_resume(&rig->target);
	ft_ok(!ret && busy == 4, "free_of_a_busy_batch_is_4");
	ft_ok(status == STATUS_WAITING, "task_in_progress_is_waiting");
	ft_ok(fx_job_wait(&job, FX_LONG_MS) &&
	      job.n[STATUS_COMPLETED] == 1 && job.bytes == job.len &&
	      fx_buf_check(&rig->target.mem, 0, job.len, rig->sequence),
	      "a_short_stop_of_the_target_does_no_harm");
	ft_ok(!freeBatchID(rig->engine, job.id), "free_of_an_ended_batch_is_0");
	ft_ok(freeBatchID(rig->engine, job.id) == 1,
	      "second_free_of_a_batch_is_1");
	ft_ok(fx_task_status(&job, 0) == -1, "status_of_a_freed_batch_is_1");
}

static void empty_batches(struct xfer_rig *rig)
{
	struct transfer_request req = { OPCODE_WRITE, rig->mem.p, LOCAL_SEGMENT,
					rig->mem.addr, 64 };
	batch_id_t id = allocateBatchID(rig->engine, 8);
	char text[] = "x";
	notify_msg_t note = { text, text };
	struct transfer_status st;
	int n;

	ft_ok(id != INVALID_BATCH &&
	      getTransferStatus(rig->engine, id, 0, &st) == 1 &&
	      !freeBatchID(rig->engine, id), "an_empty_batch_can_be_freed");
	id = allocateBatchID(rig->engine, 0);
	ft_ok(id != INVALID_BATCH &&
	      submitTransfer(rig->engine, id, &req, 1) == 2 &&
	      !submitTransfer(rig->engine, id, NULL, 0) &&
	      !freeBatchID(rig->engine, id), "batch_of_size_0_takes_no_request");
	id = allocateBatchID(rig->engine, 1);
	ft_ok(!submitTransfer(rig->engine, id, &req, 0) &&
	      !submitTransferWithNotify(rig->engine, id, &req, 0, note) &&
	      !te_submit(rig->engine, id, NULL, sizeof(struct te_request), 0, 0) &&
	      getTransferStatus(rig->engine, id, 0, &st) == 1 &&
	      !getNotifsFromEngine(rig->engine, &n) && !n &&
	      !freeBatchID(rig->engine, id), "submit_of_0_requests_sends_nothing");
	ft_ok(submitTransfer(rig->engine, id, NULL, 0) == 1 &&
	      te_submit(rig->engine, id, NULL, sizeof(struct te_request), 0,
			0) == 1, "submit_of_0_requests_refuses_a_stale_batch");
	ft_ok(freeNotifsMsgBuf(NULL, 0) == 0, "freeing_no_notification_returns_0");
}

void xfer_batches(struct xfer_rig *rig)
{
	tasks_are_numbered_in_order(rig);
	full_batch_takes_nothing(rig);
	wrong_index_is_1(rig);
	busy_batch_is_4(rig);
	empty_batches(rig);
}
