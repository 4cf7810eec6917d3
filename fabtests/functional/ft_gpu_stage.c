/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Transfers between GPU memory and other processes or files through host memory
 * (GPU staging), with the CUDA stand-in.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/cuda_stand_in.h"
#include "fabtests/functional/ft_files.h"
#include "fabtests/functional/fx_gpu.h"

/* more than half of all bounce buffers */
#define STAGE_SIZE	(9 * FX_MIB + 17)
#define STAGE_RACES	30

struct stage_rig {
	struct cuda_stand_in cuda;
	transfer_engine_t engine;
	struct fx_buf mem;			/* host memory, 2 * STAGE_SIZE
						 * bytes */
	/* GPU memory of this process, one buffer on each of two GPUs */
	uint64_t gpu[2];
	void *context[2];
	struct fx_peer peer;
	segment_id_t seg;
	uint64_t sequence;
};

static void *stage_gpu(const struct stage_rig *rig, int i)
{
	return (void *)(uintptr_t)rig->gpu[i];
}

/* Copies len bytes from GPU i to rig->mem at `off`, with the driver and without
 * the engine. */
static bool stage_fetch(struct stage_rig *rig, int i, uint64_t off,
			uint64_t len)
{
	return !rig->cuda.to_host(rig->mem.p + off, rig->gpu[i], len);
}

static bool stage_fill(struct stage_rig *rig, int i, uint64_t len)
{
	fx_buf_fill(&rig->mem, 0, len, ++rig->sequence);
	return !rig->cuda.to_device(rig->gpu[i], rig->mem.p, len);
}

static bool stage_poison(struct stage_rig *rig, int i)
{
	fx_buf_poison(&rig->mem, 0, STAGE_SIZE);
	return !rig->cuda.to_device(rig->gpu[i], rig->mem.p, STAGE_SIZE);
}

static struct fx_job stage_job(const struct stage_rig *rig, int op, int i)
{
	return (struct fx_job){ .engine = rig->engine, .seg = rig->seg,
				.op = op, .local = stage_gpu(rig, i),
				.remote = rig->peer.mem.addr,
				.len = STAGE_SIZE };
}

static bool stage_engine(struct stage_rig *rig, transfer_engine_t engine)
{
	rig->engine = engine;
	return engine && fx_register(engine, &rig->mem) &&
	       !registerLocalMemory(engine, stage_gpu(rig, 0), STAGE_SIZE,
				    "cuda:0", 0) &&
	       !registerLocalMemory(engine, stage_gpu(rig, 1), STAGE_SIZE, "*",
				    0) &&
	       (rig->seg = openSegment(engine, rig->peer.name)) > 0;
}

/* Writes the memory of GPU 0 to the peer and reads it back into GPU 1. Returns
 * true if the bytes are right and no others have changed. */
static bool stage_round(struct stage_rig *rig, uint64_t off, uint64_t len,
			uint64_t block)
{
	struct fx_buf *there = &rig->peer.mem;

	fx_buf_poison(there, 0, STAGE_SIZE);
	return stage_poison(rig, 1) && stage_fill(rig, 0, len) &&
	       fx_move(rig->engine, rig->seg, OPCODE_WRITE, stage_gpu(rig, 0),
		       there->addr + off, len, block) &&
	       fx_buf_check(there, off, len, rig->sequence) &&
	       fx_buf_poisoned(there, 0, off) &&
	       fx_buf_poisoned(there, off + len, STAGE_SIZE - off - len) &&
	       fx_move(rig->engine, rig->seg, OPCODE_READ, stage_gpu(rig, 1),
		       there->addr + off, len, block) &&
	       stage_fetch(rig, 1, STAGE_SIZE, STAGE_SIZE) &&
	       fx_buf_check(&rig->mem, STAGE_SIZE, len, rig->sequence) &&
	       fx_buf_poisoned(&rig->mem, STAGE_SIZE + len, STAGE_SIZE - len);
}

static void bytes(struct stage_rig *rig)
{
	ft_ok(stage_round(rig, 0, STAGE_SIZE, 0) &&
		      stage_round(rig, 4095, 1, 0) &&
		      stage_round(rig, 3, 2 * FX_MIB + 1, 0),
	      "write_and_read_between_gpu_and_another_process_complete");
	ft_ok(stage_round(rig, 0, 2 * FX_MIB, 4096) &&
		      stage_round(rig, 1, 8 * FX_MIB, 700000),
	      "batches_of_small_requests_complete");
}

/* --- adjacent requests, which one operation moves ------------------------- */

#define STAGE_BLOCK	(64u << 10)
#define STAGE_MERGED	(FX_MIB / STAGE_BLOCK) /* requests of one operation */

/* Returns the number of copies by the GPU that a job of 2 MiB needs. Returns 0
 * if the job does not complete. */
static unsigned int stage_copies(struct stage_rig *rig)
{
	unsigned int before = rig->cuda.copies();

	return fx_move(rig->engine, rig->seg, OPCODE_WRITE, stage_gpu(rig, 0),
		       rig->peer.mem.addr, 2 * FX_MIB, STAGE_BLOCK)
		       ? rig->cuda.copies() - before
		       : 0;
}

/* Starts a write of STAGE_MERGED requests while no copy ends. The bytes at the
 * target are poisoned. */
static bool merged_start(struct stage_rig *rig, struct fx_job *job)
{
	*job = stage_job(rig, OPCODE_WRITE, 0);
	job->len = FX_MIB;
	job->block = STAGE_BLOCK;
	fx_buf_poison(&rig->peer.mem, 0, STAGE_SIZE);
	if (!stage_fill(rig, 0, STAGE_SIZE))
		return false;
	rig->cuda.hold(1);
	return !fx_job_start(job);
}

/* One of several requests that one operation moves is cancelled. */
static void cancel_one_of_merged(struct stage_rig *rig, size_t which)
{
	uint64_t at = which * STAGE_BLOCK, after = at + STAGE_BLOCK;
	unsigned int before;
	struct fx_job job;
	bool ended;

	if (!ft_ok(merged_start(rig, &job) &&
			   !te_cancel_task(rig->engine, job.id, which),
		   "request_%zu_of_several_is_cancelled", which))
		return;
	before = rig->cuda.copies();
	rig->cuda.hold(0);
	ended = fx_job_wait(&job, FX_LONG_MS);
	ft_ok(ended && job.n[STATUS_CANCELED] == 1 &&
		      job.n[STATUS_COMPLETED] == STAGE_MERGED - 1 &&
		      fx_task_status(&job, which) == STATUS_CANCELED,
	      "cancelled_request_ends_alone: %s", fx_job_text(&job));
	/* the copy for all of them may have been cancelled before it began */
	ft_ok(rig->cuda.copies() - before >= STAGE_MERGED - 1,
	      "other_requests_are_copied_again");
	ft_ok(!memcmp(rig->peer.mem.p, rig->mem.p, at) &&
		      fx_buf_poisoned(&rig->peer.mem, at, STAGE_BLOCK) &&
		      !memcmp(rig->peer.mem.p + after, rig->mem.p + after,
			      FX_MIB - after),
	      "bytes_of_the_other_requests_arrive");
	fx_job_free(&job);
}

/* Of three requests that one operation moves, the last ends beyond the target's
 * memory. */
static void one_of_merged_fails(struct stage_rig *rig)
{
	struct fx_job job = stage_job(rig, OPCODE_WRITE, 0);
	uint64_t at = STAGE_SIZE - 2 * STAGE_BLOCK;
	unsigned int before;
	bool ended;

	job.len = 3 * STAGE_BLOCK;
	job.block = STAGE_BLOCK;
	job.remote += at;
	ft_ok(stage_fill(rig, 0, STAGE_SIZE), "memory_is_filled");
	before = rig->cuda.copies();
	ended = !fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS);
	ft_ok(ended && job.n[STATUS_COMPLETED] == 2 &&
		      fx_task_status(&job, 2) == STATUS_FAILED,
	      "request_without_target_memory_fails_alone: %s",
	      fx_job_text(&job));
	ft_ok(rig->cuda.copies() - before == 1 + 3,
	      "requests_are_copied_together_and_then_alone");
	fx_job_free(&job);
	ft_ok(stage_copies(rig) > 0, "later_requests_complete");
}

/* One of several reads that one operation moves is cancelled while the target
 * is stopped. The operation may be unfenced, but no other read may end as
 * cancelled, or as completed without its bytes. */
static void cancel_one_of_merged_on_the_rail(struct stage_rig *rig)
{
	struct fx_job job = stage_job(rig, OPCODE_READ, 0);
	size_t i, bad = 0;
	uint64_t at;
	bool ended;

	job.len = FX_MIB;
	job.block = STAGE_BLOCK;
	fx_buf_fill(&rig->peer.mem, 0, FX_MIB, ++rig->sequence);
	if (!ft_ok(stage_poison(rig, 0) && fx_peer_pause(&rig->peer) &&
			   !fx_job_start(&job),
		   "reads_from_stopped_target_are_submitted"))
		return;
	fx_nap(100000);
	te_cancel_task(rig->engine, job.id, 3);
	while (fx_task_status(&job, 3) == STATUS_WAITING)
		fx_nap(1000);
	fx_peer_resume(&rig->peer);
	ended = fx_job_wait(&job, FX_LONG_MS);
	ft_ok(ended && job.n[STATUS_CANCELED] + job.n[STATUS_TIMEOUT] >= 1 &&
		      job.n[STATUS_CANCELED] <= 1 && !job.n[STATUS_FAILED],
	      "other_reads_are_not_cancelled: %s", fx_job_text(&job));
	ft_ok(stage_fetch(rig, 0, STAGE_SIZE, FX_MIB), "memory_is_fetched");
	for (i = 0; i < STAGE_MERGED; i++) {
		at = i * STAGE_BLOCK;
		bad += fx_task_status(&job, i) == STATUS_COMPLETED &&
		       memcmp(rig->mem.p + STAGE_SIZE + at,
			      rig->peer.mem.p + at, STAGE_BLOCK);
	}
	ft_ok(!bad, "completed_reads_have_their_bytes");
	fx_job_free(&job);
}

/*
 * One of several requests that one operation moves is cancelled, and then the
 * deadline of all of them passes before the operation ends. The second job has
 * a later deadline, and its last request waits for a bounce buffer; so when
 * this request has ended, the first deadline has passed.
 */
static void deadline_after_cancel_of_merged(struct stage_rig *rig)
{
	struct fx_job later = stage_job(rig, OPCODE_WRITE, 0), job;
	uint64_t now = ft_now_ns();
	struct te_error err = { 0 };
	bool ended;

	later.len = 9 * FX_MIB;
	later.block = FX_MIB;
	ft_ok(merged_start(rig, &job) && !fx_job_start(&later) &&
		      !te_cancel_task(rig->engine, job.id, 5) &&
		      !te_batch_deadline(rig->engine, job.id, now) &&
		      !te_batch_deadline(rig->engine, later.id, now + 1),
	      "deadlines_are_set");
	while (fx_task_status(&later, 8) == STATUS_WAITING)
		fx_nap(1000);
	rig->cuda.hold(0);
	ended = fx_job_wait(&job, FX_LONG_MS) &&
		fx_job_wait(&later, FX_LONG_MS);
	ft_ok(ended && job.n[STATUS_FAILED] >= STAGE_MERGED - 1 &&
		      job.n[STATUS_FAILED] + job.n[STATUS_CANCELED] ==
			      STAGE_MERGED,
	      "requests_past_their_deadline_fail: %s", fx_job_text(&job));
	ft_ok(!te_task_error(rig->engine, job.id, 6, &err, sizeof(err)) &&
		      err.code == -TE_TIMED_OUT,
	      "with_the_code_of_the_deadline");
	fx_job_free(&job);
	fx_job_free(&later);
}

/* The segment is closed while one operation moves several requests, so that
 * only the requests use the target when they are started again. */
static void closed_segment_of_merged(struct stage_rig *rig)
{
	struct fx_job job;
	bool ended;

	ft_ok(merged_start(rig, &job) && !closeSegment(rig->engine, rig->seg) &&
		      !te_cancel_task(rig->engine, job.id, 7),
	      "request_to_closed_segment_is_cancelled");
	rig->cuda.hold(0);
	ended = fx_job_wait(&job, FX_LONG_MS);
	ft_ok(ended && job.n[STATUS_CANCELED] == 1 &&
		      job.n[STATUS_COMPLETED] == STAGE_MERGED - 1,
	      "other_requests_to_closed_segment_complete: %s",
	      fx_job_text(&job));
	fx_job_free(&job);
	rig->seg = openSegment(rig->engine, rig->peer.name);
	ft_ok(rig->seg > 0, "segment_is_opened_again");
}

/* Fills the source of a request with the opcode op, and poisons its
 * destination. */
static bool stage_source(struct stage_rig *rig, int op)
{
	if (op == OPCODE_WRITE) {
		fx_buf_poison(&rig->peer.mem, 0, STAGE_SIZE);
		return stage_fill(rig, 0, STAGE_SIZE);
	}
	fx_buf_fill(&rig->peer.mem, 0, STAGE_SIZE, ++rig->sequence);
	return stage_poison(rig, 0);
}

/* Requests that are adjacent on one side only, or the other way round on one
 * side, are not merged. */
static void not_adjacent(struct stage_rig *rig, int op)
{
	static const uint8_t straight[] = { 0, 1, 2, 3, 4, 5 };
	static const uint8_t mixed[] = { 4, 3, 5, 0, 2, 1 };
	struct fx_job job = stage_job(rig, op, 0);
	unsigned char *here = rig->mem.p + STAGE_SIZE;
	size_t i, side, bad = 0;

	job.block = STAGE_BLOCK;
	for (side = 0; side < 2; side++) {
		const uint8_t *a = side ? mixed : straight;
		const uint8_t *b = side ? straight : mixed;

		if (!ft_ok(stage_source(rig, op) &&
				   fx_move_blocks(&job, a, b, 6) &&
				   stage_fetch(rig, 0, STAGE_SIZE, STAGE_SIZE),
			   "requests_that_are_not_adjacent_complete"))
			return;
		for (i = 0; i < 6; i++)
			bad += memcmp(here + a[i] * STAGE_BLOCK,
				      rig->peer.mem.p + b[i] * STAGE_BLOCK,
				      STAGE_BLOCK) != 0;
	}
	ft_ok(!bad, "each_of_them_has_its_bytes");
}

static void merged(struct stage_rig *rig)
{
	unsigned int copies = stage_copies(rig);

	ft_ok(copies == 2, "adjacent_requests_share_copies: %u", copies);
	cancel_one_of_merged(rig, 5);
	cancel_one_of_merged(rig, 0);
	one_of_merged_fails(rig);
	not_adjacent(rig, OPCODE_WRITE);
	not_adjacent(rig, OPCODE_READ);
	cancel_one_of_merged_on_the_rail(rig);
	deadline_after_cancel_of_merged(rig);
	closed_segment_of_merged(rig);
}

/* --- cancel, in every phase ---------------------------------------------- */

static bool stage_canceled(struct fx_job *job)
{
	return fx_job_wait(job, FX_LONG_MS) && job->n[STATUS_CANCELED] == 1;
}

static void cancel_in_the_copy(struct stage_rig *rig)
{
	struct fx_job job = stage_job(rig, OPCODE_WRITE, 0);

	fx_buf_poison(&rig->peer.mem, 0, STAGE_SIZE);
	rig->cuda.hold(1);
	ft_ok(!fx_job_start(&job) && cuda_stand_in_await(&rig->cuda, true) &&
		      !te_cancel_batch(rig->engine, job.id) &&
		      !fx_job_poll(&job),
	      "cancelled_task_waits_for_its_copies");
	rig->cuda.hold(0);
	ft_ok(stage_canceled(&job) &&
		      fx_buf_poisoned(&rig->peer.mem, 0, STAGE_SIZE),
	      "cancelled_task_sends_no_byte");
	fx_job_free(&job);
}

/* Cancels a request while the target is stopped and pieces of the request are
 * posted on the rails. */
static void cancel_on_the_rail(struct stage_rig *rig, int op)
{
	struct fx_job job = stage_job(rig, op, 0);
	const char *what = op == OPCODE_READ ? "read" : "write";
	bool ended;

	fx_buf_fill(&rig->peer.mem, 0, STAGE_SIZE, ++rig->sequence);
	stage_poison(rig, 0);
	if (!ft_ok(fx_peer_pause(&rig->peer), "target_is_stopped"))
		return;
	ft_ok(!fx_job_start(&job), "%s_is_submitted", what);
	fx_nap(100000);
	ft_ok(!fx_job_poll(&job), "%s_to_stopped_target_waits", what);
	te_cancel_batch(rig->engine, job.id);
	ended = fx_job_wait(&job, FX_LONG_MS);
	ft_ok(ended && job.n[STATUS_CANCELED] + job.n[STATUS_TIMEOUT] == 1,
	      "cancelled_%s_to_stopped_target_ends", what);
	/* New bytes at the target show late bytes of a read. */
	fx_buf_fill(&rig->peer.mem, 0, STAGE_SIZE, ++rig->sequence);
	fx_peer_resume(&rig->peer);
	fx_nap(200000);
	ft_ok(op == OPCODE_WRITE ||
		      (stage_fetch(rig, 0, STAGE_SIZE, STAGE_SIZE) &&
		       fx_buf_poisoned(&rig->mem, STAGE_SIZE, STAGE_SIZE)),
	      "ended_task_gets_no_further_byte");
	fx_job_free(&job);
}

/* Returns true if each byte in the peer's memory is that of the pattern a or of
 * the pattern b at this offset. */
static bool stage_either(const struct stage_rig *rig, uint64_t a, uint64_t b)
{
	struct fx_buf is = fx_buf_map(2 * STAGE_SIZE, -1);
	uint64_t i, bad = 0;

	fx_buf_fill(&is, 0, STAGE_SIZE, a);
	fx_buf_fill(&is, STAGE_SIZE, STAGE_SIZE, b);
	for (i = 0; i < STAGE_SIZE; i++)
		bad += rig->peer.mem.p[i] != is.p[i] &&
		       rig->peer.mem.p[i] != is.p[STAGE_SIZE + i];
	fx_buf_unmap(&is);
	if (bad)
		ft_diag("%llu bytes match neither of the two patterns",
			(unsigned long long)bad);
	return !bad;
}

/*
 * Cancels a write while its target is stopped, and then uses its bounce buffers
 * for another target. Bytes that still land at the first target must be those
 * of the cancelled write.
 */
static void cancelled_write_is_final(struct stage_rig *rig)
{
	struct fx_job job = stage_job(rig, OPCODE_WRITE, 0), next = job;
	uint64_t there, written;
	struct fx_peer other;
	int i;

	if (!ft_ok(fx_target_start(&other, STAGE_SIZE) &&
			   (next.seg = openSegment(rig->engine, other.name)) >
				   0,
		   "second_target_starts"))
		return;
	next.remote = other.mem.addr;
	there = ++rig->sequence;
	fx_buf_fill(&rig->peer.mem, 0, STAGE_SIZE, there);
	ft_ok(stage_fill(rig, 0, STAGE_SIZE) && fx_peer_pause(&rig->peer) &&
		      !fx_job_start(&job),
	      "write_to_stopped_target_is_submitted");
	written = rig->sequence;
	fx_nap(100000);
	te_cancel_batch(rig->engine, job.id);
	ft_ok(fx_job_wait(&job, FX_LONG_MS) &&
		      job.n[STATUS_CANCELED] + job.n[STATUS_TIMEOUT] == 1,
	      "write_to_stopped_target_is_cancelled");
	for (i = 0; i < 3; i++)		/* three rounds, so that each bounce
					 * buffer is used at least once */
		ft_ok(stage_fill(rig, 0, STAGE_SIZE) &&
			      fx_move(rig->engine, next.seg, OPCODE_WRITE,
				      next.local, next.remote, STAGE_SIZE, 0) &&
			      fx_buf_check(&other.mem, 0, STAGE_SIZE,
					   rig->sequence),
		      "other_tasks_use_free_slots");
	fx_peer_resume(&rig->peer);
	fx_nap(300000);
	ft_ok(stage_either(rig, there, job.n[STATUS_TIMEOUT] ? written : there),
	      "late_bytes_are_those_that_were_written");
	fx_job_free(&job);
	closeSegment(rig->engine, next.seg);
	fx_peer_stop(&other);
}

/*
 * Cancels one of two writes to the same target, which is stopped for a time
 * well below MC_SLICE_TIMEOUT. The other write must complete.
 */
static void cancel_beside_another(struct stage_rig *rig)
{
	struct fx_job first = stage_job(rig, OPCODE_WRITE, 0), second = first;

	if (!ft_ok(fx_peer_pause(&rig->peer), "target_is_stopped"))
		return;
	ft_ok(!fx_job_start(&first) && !fx_job_start(&second),
	      "two_writes_are_submitted");
	fx_nap(100000);
	te_cancel_batch(rig->engine, first.id);
	ft_ok(fx_job_wait(&first, FX_LONG_MS), "first_write_is_cancelled");
	fx_nap(200000);
	ft_ok(!fx_job_poll(&second), "second_write_still_waits");
	fx_peer_resume(&rig->peer);
	ft_ok(fx_job_wait(&second, FX_LONG_MS) &&
		      second.n[STATUS_COMPLETED] == 1,
	      "second_write_completes");
	fx_job_free(&first);
	fx_job_free(&second);
}

/* Cancels a task that has not started, because it waits for a bounce buffer:
 * half of the 16 bounce buffers are for this target, and each of them has the
 * bytes of 8 tasks. */
static void cancel_in_the_queue(struct stage_rig *rig)
{
	struct fx_job job = stage_job(rig, OPCODE_WRITE, 0);
	unsigned int before = rig->cuda.copies();

	job.len = 9 * FX_MIB;
	job.block = FX_MIB / 8;
	rig->cuda.hold(1);
	ft_ok(!fx_job_start(&job) && !te_cancel_task(rig->engine, job.id, 71),
	      "many_tasks_are_queued");
	while (fx_task_status(&job, 71) == STATUS_WAITING)
		fx_nap(1000);
	ft_ok(fx_task_status(&job, 71) == STATUS_CANCELED &&
		      fx_task_status(&job, 70) == STATUS_WAITING,
	      "cancelled_queued_task_ends_at_once");
	te_cancel_batch(rig->engine, job.id);
	rig->cuda.hold(0);
	ft_ok(fx_job_wait(&job, FX_LONG_MS) && job.n[STATUS_CANCELED] == 72 &&
		      rig->cuda.copies() - before <= 16,
	      "pieces_begun_do_not_exceed_the_slots");
	fx_job_free(&job);
}

/* Returns true if the destination of the request contains the bytes of the
 * source. */
static bool stage_there(struct stage_rig *rig, int op)
{
	if (op == OPCODE_WRITE)
		return fx_buf_check(&rig->peer.mem, 0, STAGE_SIZE,
				    rig->sequence);
	return stage_fetch(rig, 0, STAGE_SIZE, STAGE_SIZE) &&
	       fx_buf_check(&rig->mem, STAGE_SIZE, STAGE_SIZE, rig->sequence);
}

/* Poisons the destination of a request that has ended; the source still has the
 * bytes. Returns true if no byte of the destination changes afterwards. */
static bool stage_final(struct stage_rig *rig, int op)
{
	if (op == OPCODE_WRITE) {
		fx_buf_poison(&rig->peer.mem, 0, STAGE_SIZE);
		return fx_buf_still(&rig->peer.mem, 0, STAGE_SIZE, 2);
	}
	if (!stage_poison(rig, 0))
		return false;
	fx_nap(2000);
	return stage_fetch(rig, 0, STAGE_SIZE, STAGE_SIZE) &&
	       fx_buf_poisoned(&rig->mem, STAGE_SIZE, STAGE_SIZE);
}

/* Cancels requests at random times. A completed request must have moved its
 * bytes, and no request may write a byte after its end. */
static void cancel_at_any_time(struct stage_rig *rig)
{
	unsigned int canceled = 0, completed = 0, i;
	bool good = true;
	struct fx_job job;
	int op;

	srand((unsigned int)fx_seed());
	for (i = 0; i < STAGE_RACES && good; i++) {
		op = i & 1 ? OPCODE_READ : OPCODE_WRITE;
		job = stage_job(rig, op, 0);
		good = stage_source(rig, op) && !fx_job_start(&job);
		fx_nap((unsigned int)rand() % 9000);
		te_cancel_batch(rig->engine, job.id);
		good = good && fx_job_wait(&job, FX_LONG_MS) &&
		       job.n[STATUS_CANCELED] + job.n[STATUS_COMPLETED] == 1;
		canceled += job.n[STATUS_CANCELED];
		completed += job.n[STATUS_COMPLETED];
		if (good && job.n[STATUS_COMPLETED])
			good = stage_there(rig, op);
		good = good && stage_final(rig, op);
		fx_job_free(&job);
	}
	ft_diag("transfers: %u cancelled, %u completed", canceled, completed);
	ft_ok(good, "task_cancelled_at_any_time_gets_no_further_byte");
}

/* --- targets share the slots --------------------------------------------- */

/* Checks that many requests to a stopped target leave bounce buffers for
 * another target. */
static void beside_a_silent_one(struct stage_rig *rig)
{
	struct fx_job many = stage_job(rig, OPCODE_WRITE, 0), one = many;
	struct fx_peer other;

	if (!ft_ok(fx_target_start(&other, STAGE_SIZE) &&
			   (one.seg = openSegment(rig->engine, other.name)) > 0,
		   "second_target_starts"))
		return;
	one.remote = other.mem.addr;
	many.len = 8 * FX_MIB;
	many.block = 16 * FX_KIB;
	ft_ok(stage_fill(rig, 0, STAGE_SIZE) &&
		      fx_move(rig->engine, one.seg, OPCODE_WRITE, one.local,
			      one.remote, 1, 0),
	      "second_target_is_reached");
	fx_peer_pause(&rig->peer);
	ft_ok(!fx_job_start(&many),
	      "many_tasks_for_a_stopped_target_are_submitted");
	fx_nap(100000);
	ft_ok(!fx_job_start(&one) && fx_job_wait(&one, fx_soon_ms(10000)) &&
		      one.n[STATUS_COMPLETED] == 1 &&
		      fx_buf_check(&other.mem, 0, STAGE_SIZE, rig->sequence),
	      "task_for_other_target_completes_meanwhile");
	ft_ok(!fx_job_poll(&many) && many.n[STATUS_WAITING] == many.tasks,
	      "tasks_for_the_stopped_target_wait");
	fx_peer_resume(&rig->peer);
	ft_ok(fx_job_wait(&many, FX_LONG_MS) &&
		      many.n[STATUS_COMPLETED] == many.tasks &&
		      fx_buf_check(&rig->peer.mem, 0, many.len, rig->sequence),
	      "tasks_complete_when_the_target_continues");
	fx_job_free(&many);
	fx_job_free(&one);
	closeSegment(rig->engine, one.seg);
	fx_peer_stop(&other);
}

/* --- deadline, failure --------------------------------------------------- */

static void deadline(struct stage_rig *rig)
{
	struct fx_job job = stage_job(rig, OPCODE_READ, 0);
	struct te_error err = { 0 };

	stage_source(rig, OPCODE_READ);
	fx_peer_pause(&rig->peer);
	ft_ok(!fx_job_start(&job) &&
		      !te_batch_deadline(rig->engine, job.id,
					 ft_now_ns() + 50000000) &&
		      fx_job_wait(&job, FX_LONG_MS) &&
		      job.n[STATUS_FAILED] + job.n[STATUS_TIMEOUT] == 1 &&
		      !te_task_error(rig->engine, job.id, 0, &err, sizeof(err)),
	      "task_past_its_deadline_ends");
	ft_ok(err.code == -TE_TIMED_OUT && strstr(err.text, "deadline"),
	      "with_the_deadline_as_reason: %d, %s", err.code, err.text);
	fx_peer_resume(&rig->peer);
	ft_ok(stage_final(rig, OPCODE_READ),
	      "task_past_its_deadline_gets_no_further_byte");
	fx_job_free(&job);
}

/* Writes STAGE_SIZE bytes to a range that ends one byte beyond the target's
 * memory. Only the last piece of the request contains that byte. Returns true
 * if the request fails and no byte is written. */
static bool stage_beyond(struct stage_rig *rig)
{
	struct fx_job job = stage_job(rig, OPCODE_WRITE, 0);
	struct te_error err = { 0 };
	bool good;

	fx_buf_poison(&rig->peer.mem, 0, STAGE_SIZE);
	job.remote++;
	good = stage_fill(rig, 0, STAGE_SIZE) && !fx_job_start(&job) &&
	       fx_job_wait(&job, FX_LONG_MS) && job.n[STATUS_FAILED] == 1 &&
	       !te_task_error(rig->engine, job.id, 0, &err, sizeof(err)) &&
	       err.code == -3 &&
	       fx_buf_poisoned(&rig->peer.mem, 0, STAGE_SIZE);
	fx_job_free(&job);
	return good;
}

static void failures(struct stage_rig *rig)
{
	struct fx_job job = stage_job(rig, OPCODE_WRITE, 0);
	struct te_error err = { 0 };

	ft_ok(stage_beyond(rig),
	      "request_beyond_target_memory_fails_as_a_whole");
	rig->cuda.fail("cuMemcpyAsync", 3, 1);
	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
		      job.n[STATUS_FAILED] == 1 &&
		      !te_task_error(rig->engine, job.id, 0, &err,
				     sizeof(err)) &&
		      strstr(err.text, "CUDA_ERROR_INVALID_VALUE (1)"),
	      "failed_copy_reports_its_cause");
	fx_job_free(&job);
}

/* --- unregistering ------------------------------------------------------- */

struct stage_leave {
	struct stage_rig *rig;
	int ret;
	bool done;			/* atomic; true: unregisterLocalMemory
					 * has returned */
};

static void *leave_main(void *arg)
{
	struct stage_leave *leave = arg;

	leave->ret = unregisterLocalMemory(leave->rig->engine,
					   stage_gpu(leave->rig, 0));
	__atomic_store_n(&leave->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Unregisters GPU memory during a request. unregisterLocalMemory must wait for
 * the request, including the copies to GPU memory after bytes have arrived on a
 * rail. */
static void unregister(struct stage_rig *rig, int op)
{
	struct fx_job job = stage_job(rig, op, 0), late = job;
	const char *what = op == OPCODE_READ ? "read" : "write";
	struct stage_leave leave = { .rig = rig };
	pthread_t thread;
	bool out_of_order;

	stage_source(rig, op);
	fx_peer_pause(&rig->peer);
	ft_ok(!fx_job_start(&job), "%s_is_submitted", what);
	fx_nap(50000);
	pthread_create(&thread, NULL, leave_main, &leave);
	fx_nap(200000);
	out_of_order = __atomic_load_n(&leave.done, __ATOMIC_ACQUIRE);
	ft_ok(!out_of_order && fx_job_start(&late),
	      "unregister_waits_for_the_%s_and_refuses_new_tasks", what);
	fx_peer_resume(&rig->peer);
	pthread_join(thread, NULL);
	ft_ok(!leave.ret && fx_job_wait(&job, FX_LONG_MS) &&
		      job.n[STATUS_COMPLETED] == 1 && stage_there(rig, op),
	      "%s_during_unregister_completes", what);
	fx_job_free(&job);
	ft_ok(!registerLocalMemory(rig->engine, stage_gpu(rig, 0), STAGE_SIZE,
				   "*", 0),
	      "unregistered_memory_is_registered_again");
}

/* Unregisters GPU memory at random times. All tasks must have ended when the
 * call returns, and no byte may be written to the memory afterwards. */
static void unregister_at_any_time(struct stage_rig *rig)
{
	bool good = true;
	struct fx_job job;
	unsigned int i;
	int op;

	for (i = 0; i < STAGE_RACES / 3 && good; i++) {
		op = i & 1 ? OPCODE_READ : OPCODE_WRITE;
		job = stage_job(rig, op, 0);
		job.block = i % 3 ? 0 : FX_MIB / 2;
		good = stage_source(rig, op) && !fx_job_start(&job);
		fx_nap((unsigned int)rand() % 5000);
		good = good && !unregisterLocalMemory(rig->engine,
						      stage_gpu(rig, 0)) &&
		       fx_job_poll(&job) &&
		       (job.n[STATUS_COMPLETED] < job.tasks ||
			stage_there(rig, op)) && stage_final(rig, op) &&
		       !registerLocalMemory(rig->engine, stage_gpu(rig, 0),
					    STAGE_SIZE, "*", 0);
		fx_job_free(&job);
	}
	ft_ok(good, "unregister_at_any_time_leaves_no_unfinished_task");
}

/* --- bounce buffers cannot be allocated ---------------------------------- */

static void no_way(struct stage_rig *rig)
{
	struct fx_job job = stage_job(rig, OPCODE_WRITE, 0);

	ft_ok(!unregisterLocalMemory(rig->engine, stage_gpu(rig, 0)),
	      "last_memory_of_a_gpu_is_unregistered");
	rig->cuda.fail("cuMemHostRegister", 0, 2);
	ft_ok(!registerLocalMemory(rig->engine, stage_gpu(rig, 0), STAGE_SIZE,
				   "*", 0) &&
		      fx_job_start(&job) == 8,
	      "requests_without_pinned_memory_are_refused");
	ft_ok(fx_move(rig->engine, LOCAL_SEGMENT, OPCODE_WRITE, rig->mem.p,
		      rig->gpu[0], 100, 0),
	      "local_copies_without_pinned_memory_complete");
	ft_ok(!unregisterLocalMemory(rig->engine, stage_gpu(rig, 0)) &&
		      !registerLocalMemory(rig->engine, stage_gpu(rig, 0),
					   STAGE_SIZE, "*", 0) &&
		      stage_round(rig, 0, 100, 0),
	      "transfers_of_memory_registered_again_complete");
}

/* --- silent and dead targets, hanging GPUs, destroyed engines ----------- */

/*
 * Checks MC_SLICE_TIMEOUT of a task that waits for bounce buffers. The target
 * is stopped. The first task occupies all bounce buffers that one target may
 * use; the second one starts half a timeout later. It must end soon after the
 * first: the time for which it waits counts.
 */
static void silent(struct stage_rig *rig, transfer_engine_t own)
{
	struct fx_job first, second;
	uint64_t start, took, later;
	bool good;

	if (!ft_ok(stage_engine(rig, fx_engine_timeout("tcp", FX_BRISK_S)),
		   "engine_with_short_timeout_starts"))
		return;
	ft_ok(stage_round(rig, 0, STAGE_SIZE, 0),
	      "transfers_before_the_fault_complete");
	first = stage_job(rig, OPCODE_WRITE, 0);
	second = first;
	fx_peer_pause(&rig->peer);
	start = ft_now_ns();
	good = !fx_job_start(&first);
	fx_nap(FX_BRISK_S * 1000000 / 2);
	later = ft_now_ns();
	good = good && !fx_job_start(&second) &&
	       fx_job_wait(&first, FX_LONG_MS);
	took = ft_now_ns() - start;
	good = good && fx_job_wait(&second, FX_LONG_MS);
	later = ft_now_ns() - later;
	fx_peer_resume(&rig->peer);
	ft_diag("the first job took %llu ms, the second %llu ms",
		(unsigned long long)took / 1000000,
		(unsigned long long)later / 1000000);
	ft_ok(good && !first.n[STATUS_COMPLETED] && !second.n[STATUS_COMPLETED],
	      "two_tasks_for_a_stopped_target_end");
	ft_ok(later < took + FX_BRISK_S * FT_NS_PER_SEC / 2,
	      "second_task_ends_at_the_timeout_of_the_first");
	fx_job_free(&first);
	fx_job_free(&second);
	destroyTransferEngine(rig->engine);
	stage_engine(rig, own);
	ft_ok(stage_round(rig, 0, STAGE_SIZE, 0),
	      "transfers_of_another_engine_complete");
}

static void hang(struct stage_rig *rig, transfer_engine_t own)
{
	struct fx_job job;

	if (!ft_ok(stage_engine(rig, fx_engine_timeout("tcp", FX_BRISK_S)),
		   "engine_with_short_timeout_starts"))
		return;
	job = stage_job(rig, OPCODE_READ, 0);
	ft_ok(stage_round(rig, 0, STAGE_SIZE, 0),
	      "transfers_before_the_fault_complete");
	rig->cuda.hold(1);
	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
	      job.n[STATUS_TIMEOUT] == 1, "read_to_a_gpu_that_hangs_times_out");
	fx_job_free(&job);
	job.op = OPCODE_WRITE;
	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
		      job.n[STATUS_FAILED] == 1,
	      "write_from_a_gpu_that_hangs_fails");
	fx_job_free(&job);
	ft_ok(unregisterLocalMemory(rig->engine, stage_gpu(rig, 0)) == -4,
	      "memory_of_a_gpu_that_hangs_stays_registered");
	/* No bounce buffer is free, so the request waits for one. */
	ft_ok(!fx_job_start(&job), "task_after_the_timeouts_is_submitted");
	fx_nap(200000);
	ft_ok(!fx_job_poll(&job), "task_waits_while_the_gpu_hangs");
	rig->cuda.hold(0);
	ft_ok(fx_job_wait(&job, FX_LONG_MS) && job.n[STATUS_COMPLETED] == 1,
	      "and_completes_once_it_goes_on: %s", fx_job_text(&job));
	fx_job_free(&job);
	ft_ok(stage_round(rig, 0, STAGE_SIZE, 0),
	      "transfers_after_a_hang_complete");
	ft_ok(!unregisterLocalMemory(rig->engine, stage_gpu(rig, 0)),
	      "memory_after_a_hang_is_unregistered");
	destroyTransferEngine(rig->engine);
	stage_engine(rig, own);
}

static void destroyed(struct stage_rig *rig)
{
	uint64_t start;
	int i;

	for (i = 0; i < 6; i++) {
		struct fx_job job;

		if (!ft_ok(stage_engine(rig, fx_engine_hasty("tcp")),
			   "engine_for_destruction_starts"))
			return;
		job = stage_job(rig, i & 1 ? OPCODE_READ : OPCODE_WRITE, i % 2);
		job.block = FX_MIB / 2;
		if (i == 4)
			fx_peer_pause(&rig->peer);
		if (i == 5)
			rig->cuda.hold(1);
		start = ft_now_ns();
		ft_ok(!fx_job_start(&job), "transfer_is_submitted");
		fx_nap(i * 1000);
		destroyTransferEngine(rig->engine);
		ft_ok(ft_now_ns() - start < FX_LONG_MS * 1000000ULL / 4,
		      "engine_is_destroyed_during_transfer_%d", i);
		if (i == 4)
			fx_peer_resume(&rig->peer);
	}
	rig->cuda.hold(0);
}

/* --- uninstall and destroy wait for requests ----------------------------- */

struct stage_away {
	transfer_engine_t engine;
	const char *transport;		/* transport to uninstall; NULL: destroy
					 * the engine */
	int ret;
	bool done;			/* atomic; true: the call has
					 * returned */
};

static void *away_main(void *arg)
{
	struct stage_away *away = arg;

	if (away->transport)
		away->ret = uninstallTransport(away->engine, away->transport);
	else
		destroyTransferEngine(away->engine);
	__atomic_store_n(&away->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Uninstalls a transport or destroys the engine while the GPU's copies are held
 * back. Returns true if that call waits for the copies and succeeds. */
static bool stage_away(struct stage_rig *rig, struct fx_job *job,
		       const char *transport)
{
	struct stage_away away = { .engine = job->engine,
				   .transport = transport };
	pthread_t thread;
	bool good, out_of_order;

	rig->cuda.hold(1);
	good = !fx_job_start(job) && cuda_stand_in_await(&rig->cuda, true);
	pthread_create(&thread, NULL, away_main, &away);
	fx_nap(300000);
	out_of_order = __atomic_load_n(&away.done, __ATOMIC_ACQUIRE);
	rig->cuda.hold(0);
	pthread_join(thread, NULL);
	return good && !out_of_order && !away.ret;
}

static void drained(struct stage_rig *rig)
{
	struct fx_job job;

	if (!ft_ok(stage_engine(rig, fx_engine("tcp")), "engine_starts"))
		return;
	job = stage_job(rig, OPCODE_WRITE, 0);
	ft_ok(stage_fill(rig, 0, STAGE_SIZE) && stage_away(rig, &job, "tcp") &&
		      fx_job_wait(&job, FX_LONG_MS) &&
		      job.n[STATUS_COMPLETED] == 1 &&
		      fx_buf_check(&rig->peer.mem, 0, STAGE_SIZE,
				   rig->sequence),
	      "uninstalled_transport_is_drained");
	fx_job_free(&job);
	destroyTransferEngine(rig->engine);
	if (!ft_ok(stage_engine(rig, fx_engine("tcp")), "second_engine_starts"))
		return;
	job = stage_job(rig, OPCODE_WRITE, 0);
	ft_ok(stage_fill(rig, 0, STAGE_SIZE) && stage_away(rig, &job, NULL) &&
		      fx_buf_check(&rig->peer.mem, 0, STAGE_SIZE,
				   rig->sequence),
	      "destroyed_engine_is_drained");
}

/* Submits many tasks, which share few bounce buffers, to a target that was
 * killed. All of them must end within 20 s. */
static void dead(struct stage_rig *rig)
{
	struct te_error err = { 0 };
	struct fx_job job;
	uint64_t start;
	bool started;

	/* requests that are not merged, so that most of them wait for a bounce
	 * buffer */
	setenv("MOONRAIL_MERGE", "0", 1);
	started = stage_engine(rig, fx_engine_hasty("tcp"));
	unsetenv("MOONRAIL_MERGE");
	if (!ft_ok(started && stage_copies(rig) == 2 * STAGE_MERGED,
		   "engine_that_does_not_merge_starts"))
		return;
	job = stage_job(rig, OPCODE_WRITE, 0);
	job.len = 8 * FX_MIB;
	job.block = STAGE_BLOCK;
	fx_peer_kill(&rig->peer);
	start = ft_now_ns();
	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
		      !job.n[STATUS_COMPLETED],
	      "tasks_for_a_dead_target_do_not_complete");
	ft_ok(ft_now_ns() - start < 20000000000ULL,
	      "tasks_for_a_dead_target_end_together");
	ft_ok(!te_task_error(rig->engine, job.id, 127, &err, sizeof(err)) &&
		      err.code == -201 &&
		      strstr(err.text,
			     "was still waiting for a bounce buffer") &&
		      !strcmp(err.peer, rig->peer.name),
	      "last_task_reports_that_it_has_waited");
	fx_job_free(&job);
	fx_peer_drop(&rig->peer);
	destroyTransferEngine(rig->engine);
}

/* --- other paths --------------------------------------------------------- */

static void by_kernel(struct stage_rig *rig)
{
	struct fx_job job;

	if (!ft_ok(fx_peer_start(&rig->peer, STAGE_SIZE, "transport=auto",
				 NULL) &&
			   !fx_ask(&rig->peer, "reg 0 %llu 1",
				   (unsigned long long)STAGE_SIZE) &&
			   stage_engine(rig, fx_engine("auto")),
		   "local_process_starts"))
		return;
	ft_ok(stage_round(rig, 0, STAGE_SIZE, 0) &&
		      stage_round(rig, 1, 2 * FX_MIB, 5000),
	      "transfers_by_kernel_copies_complete");
	ft_ok(stage_beyond(rig),
	      "request_beyond_memory_of_local_process_fails_as_a_whole");
	job = stage_job(rig, OPCODE_WRITE, 0);
	ft_ok(stage_source(rig, OPCODE_WRITE) &&
		      stage_away(rig, &job, "local") && fx_job_poll(&job) &&
		      job.n[STATUS_COMPLETED] == 1 &&
		      stage_there(rig, OPCODE_WRITE),
	      "uninstalled_transport_with_tasks_is_drained");
	fx_job_free(&job);
	destroyTransferEngine(rig->engine);
	fx_peer_stop(&rig->peer);
}

static void by_file(struct stage_rig *rig)
{
	struct files_rig files;
	struct te_error err;
	struct fx_job job;

	if (!files_make(&files) || !files_register(&files))
		return;
	/* Without GPU direct, staging is used even if libcufile is
	 * installed. */
	setenv("MOONRAIL_GPU_DIRECT", "0", 1);
	/* Register one GPU's memory before the transport is installed, the
	 * other's after that. */
	if (!files_engine(&files, NULL) ||
	    !ft_ok(!registerLocalMemory(files.engine, stage_gpu(rig, 0),
					STAGE_SIZE, "*", 0) &&
			   installTransport(files.engine, "nvmeof", NULL) &&
			   !registerLocalMemory(files.engine, stage_gpu(rig, 1),
						STAGE_SIZE, "*", 0) &&
			   (files.seg = openSegment(files.engine, FILES_NAME)) >
				   0,
		   "file_segment_is_opened"))
		return;
	ft_ok(stage_fill(rig, 0, FILES_SIZE) && stage_poison(rig, 1) &&
		      files_one(&files, OPCODE_WRITE, 0, stage_gpu(rig, 0),
				FILES_SIZE, NULL) == STATUS_COMPLETED,
	      "write_from_gpu_to_files_completes");
	ft_ok(files_one(&files, OPCODE_READ, 0, stage_gpu(rig, 1), FILES_SIZE,
			NULL) == STATUS_COMPLETED &&
		      stage_fetch(rig, 1, STAGE_SIZE, STAGE_SIZE) &&
		      fx_buf_check(&rig->mem, STAGE_SIZE, FILES_SIZE,
				   rig->sequence) &&
		      files_check(&files, rig->sequence),
	      "read_from_files_to_gpu_completes");
	ft_ok(files_one(&files, OPCODE_READ, FILES_SIZE, stage_gpu(rig, 1), 1,
			&err) == -1,
	      "request_beyond_the_files_is_refused");
	job = (struct fx_job){ .engine = files.engine, .seg = files.seg,
			       .op = OPCODE_WRITE, .local = stage_gpu(rig, 0),
			       .len = FILES_SIZE };
	ft_ok(stage_fill(rig, 0, FILES_SIZE) &&
		      stage_away(rig, &job, "nvmeof") &&
		      fx_job_wait(&job, FX_LONG_MS) &&
		      job.n[STATUS_COMPLETED] == 1 &&
		      files_check(&files, rig->sequence),
	      "uninstalled_transport_with_tasks_is_drained");
	fx_job_free(&job);
	files_close(&files);
	ft_ok(!files_meta(&files, "remove test"), "file_segment_is_removed");
	files_remove(&files);
	unsetenv("MOONRAIL_GPU_DIRECT");
}

static bool stage_setup(struct stage_rig *rig)
{
	int i;

	rig->mem = fx_buf_map(2 * STAGE_SIZE, -1);
	if (!ft_ok(rig->mem.p && cuda_stand_in_load(&rig->cuda),
		   "driver_is_loaded"))
		return false;
	for (i = 0; i < 2; i++)
		rig->gpu[i] = cuda_stand_in_memory(&rig->cuda, i, STAGE_SIZE,
						   &rig->context[i]);
	return ft_ok(fx_target_start(&rig->peer, STAGE_SIZE),
		     "target_starts") &&
	       ft_ok(stage_engine(rig, fx_engine("tcp")), "engine_starts");
}

int main(int argc, char **argv)
{
	struct stage_rig rig = { .engine = NULL };

	fx_init(argc, argv);
	if (!stage_setup(&rig))
		return ft_result();
	bytes(&rig);
	merged(&rig);
	cancel_in_the_copy(&rig);
	cancel_on_the_rail(&rig, OPCODE_WRITE);
	cancel_on_the_rail(&rig, OPCODE_READ);
	cancelled_write_is_final(&rig);
	cancel_beside_another(&rig);
	cancel_in_the_queue(&rig);
	cancel_at_any_time(&rig);
	beside_a_silent_one(&rig);
	deadline(&rig);
	failures(&rig);
	unregister(&rig, OPCODE_WRITE);
	unregister(&rig, OPCODE_READ);
	unregister_at_any_time(&rig);
	no_way(&rig);
	ft_ok(stage_round(&rig, 0, STAGE_SIZE, 0),
	      "transfers_after_all_cases_complete");
	destroyTransferEngine(rig.engine);
	ft_ok(!rig.cuda.left(), "closed_engine_frees_all_driver_objects");
	silent(&rig, fx_engine("tcp"));
	destroyTransferEngine(rig.engine);
	hang(&rig, fx_engine("tcp"));
	destroyTransferEngine(rig.engine);
	ft_ok(!rig.cuda.left(),
	      "engine_closed_after_a_hang_frees_all_driver_objects");
	destroyed(&rig);
	drained(&rig);
	dead(&rig);
	by_kernel(&rig);
	by_file(&rig);
	ft_ok(fx_buf_guards(&rig.mem), "guard_zones_are_unchanged");
	fx_buf_unmap(&rig.mem);
	return ft_result();
}
