/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdint.h>
#include <string.h>

#include "fabtests/functional/ft_wait.h"

/* --- invalid ids --------------------------------------------------------- */

static bool bad_batch(transfer_engine_t e, batch_id_t id)
{
	struct transfer_status st = { .status = -7 };

	return te_wait_task(e, id, 0, 0, &st) == 1 &&
	       te_wait_task(e, id, 0, -1, &st) == 1 &&
	       te_wait_batch(e, id, 0, &st) == 1 &&
	       te_wait_batch(e, id, -1, &st) == 1 &&
	       te_wait_batch(e, id, INT64_MAX, NULL) == 1 &&
	       te_wait_batch(e, id, INT64_MIN, NULL) == 1 &&
	       te_batch_status(e, id, &st) == 1 &&
	       te_batch_event_fd(e, id) == -1 &&
	       te_cancel_task(e, id, 0) == 1 && te_cancel_batch(e, id) == 1 &&
	       te_batch_deadline(e, id, 1) == 1 &&
	       te_batch_deadline(e, id, 0) == 1 && st.status == -7;
}

static bool bad_engine(transfer_engine_t e)
{
	struct te_ended list[2];
	size_t n = 2;

	return bad_batch(e, 0) && te_event_fd(e) == -1 &&
	       te_ended_batches(e, list, sizeof(*list), &n) == -1 && n == 2 &&
	       te_flush(e, LOCAL_SEGMENT, 0) == 1 &&
	       te_flush(e, LOCAL_SEGMENT, -1) == 1 && te_drain(e, -1) == 1;
}

static void bad_ids(struct wait_rig *rig)
{
	batch_id_t id = allocateBatchID(rig->engine, 4);
	const batch_id_t unknown[] = { 0, INVALID_BATCH, id ^ 1,
				       id + (UINT64_C(1) << 32),
				       UINT64_C(7) << 32 | 0xffffff };
	struct te_error err = { 0 };
	bool good = true;

	for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
		good = bad_batch(rig->engine, unknown[i]) && good;
	freeBatchID(rig->engine, id);
	ft_ok(good, "law5_unknown_batches_are_refused");
	ft_ok(bad_batch(rig->engine, id), "law5_stale_batch_is_refused");
	ft_ok(!te_last_error(&err, sizeof(err)) && err.code == -1 &&
		      err.text[0],
	      "refused_batch_is_in_the_last_error");
}

/* --- arguments ----------------------------------------------------------- */

static void bad_empty(struct wait_rig *rig)
{
	batch_id_t id = allocateBatchID(rig->engine, 4);
	struct transfer_status st;

	ft_ok(te_wait_batch(rig->engine, id, -1, &st) == 1 &&
	      te_wait_task(rig->engine, id, 0, -1, &st) == 1 &&
	      te_batch_status(rig->engine, id, &st) == 1,
	      "an_empty_batch_is_not_waited_for");
	ft_ok(!te_cancel_batch(rig->engine, id) &&
	      te_cancel_task(rig->engine, id, 0) == 1,
	      "an_empty_batch_has_nothing_to_cancel");
	freeBatchID(rig->engine, id);
}

static void bad_numbers(struct wait_rig *rig)
{
	struct fx_job job = wait_job(rig, OPCODE_WRITE, 0, 8192, 4096);
	struct transfer_status st;

	ft_ok(te_wait_task(rig->engine, job.id, 2, -1, &st) == 1 &&
	      te_wait_task(rig->engine, job.id, SIZE_MAX, -1, &st) == 1 &&
	      te_cancel_task(rig->engine, job.id, 2) == 1 &&
	      te_cancel_task(rig->engine, job.id, SIZE_MAX) == 1,
	      "task_numbers_out_of_range");
	ft_ok(te_batch_status(rig->engine, job.id, NULL) == 1,
	      "batch_status_into_null_is_1");
	ft_ok(!te_wait_batch(rig->engine, job.id, INT64_MIN, NULL) &&
		      !te_wait_batch(rig->engine, job.id, INT64_MAX, NULL) &&
		      !te_wait_task(rig->engine, job.id, 1, INT64_MAX, NULL),
	      "extreme_timeouts_are_accepted");
	ft_ok(!te_batch_deadline(rig->engine, job.id, UINT64_MAX) &&
	      !te_batch_deadline(rig->engine, job.id, 1) &&
	      !te_wait_batch(rig->engine, job.id, -1, &st) &&
	      st.status == STATUS_COMPLETED,
	      "a_deadline_in_the_past_of_what_has_ended");
	fx_job_free(&job);
	ft_ok(te_flush(rig->engine, 99999, 0) == 1 &&
	      te_flush(rig->engine, -1, 0) == 1 &&
	      te_flush(rig->engine, INT32_MIN, -1) == 1,
	      "flush_of_no_segment");
}

static void bad_lists(struct wait_rig *rig)
{
	struct te_ended list[2];
	size_t n = 2, none = 0;

	ft_ok(te_ended_batches(rig->engine, NULL, sizeof(*list), &n) == -1 &&
		      te_ended_batches(rig->engine, list, 0, &n) == -1 &&
		      te_ended_batches(rig->engine, list, sizeof(*list),
				       NULL) == -1 &&
		      n == 2,
	      "te_ended_batches_without_output_is_refused");
	ft_ok(!te_ended_batches(rig->engine, NULL, sizeof(*list), &none) &&
		      !none,
	      "te_ended_batches_with_room_for_0_succeeds");
}

void wait_bad_input(struct wait_rig *rig)
{
	long word = 0;

	ft_ok(bad_engine(NULL) && bad_engine(&word) &&
		      bad_engine((transfer_engine_t)(uintptr_t)0x1001),
	      "law5_unknown_engine_is_refused");
	bad_ids(rig);
	bad_empty(rig);
	bad_numbers(rig);
	bad_lists(rig);
}
