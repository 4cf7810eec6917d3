/* SPDX-License-Identifier: BSD-2-Clause */

#include "fabtests/functional/fx_slot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"

#define SLOT_HALF	(4 * FX_MIB)
#define SLOT_RACES	20
#define SLOT_KILLS	6

/* --- the peer ------------------------------------------------------------ */

static struct cuda_stand_in child_cuda;

static bool child_make(struct fx_gpu *gpu, size_t len)
{
	void *context;

	if (!cuda_stand_in_load(&child_cuda))
		return false;
	gpu->to_device = child_cuda.to_device;
	gpu->to_host = child_cuda.to_host;
	gpu->addr = cuda_stand_in_memory(&child_cuda, 0, len, &context);
	return gpu->addr != 0;
}

int slot_obey(transfer_engine_t engine, struct fx_buf *mem, const char *verb,
	      const char *args, char *text)
{
	static struct fx_gpu gpu;

	if (!strcmp(verb, "hold")) {
		child_cuda.hold(atoi(args));
		return 0;
	}
	if (!strcmp(verb, "queued"))
		return !cuda_stand_in_await(&child_cuda, atoi(args));
	if (!strcmp(verb, "left"))
		return (int)child_cuda.left();
	if (!strcmp(verb, "fail")) {
		child_cuda.fail(args, 0, 2);
		return 0;
	}
	return fx_gpu_obey(&gpu, child_make, engine, mem, verb, args, text);
}

/* Returns the target's MC_SLICE_TIMEOUT in seconds. It also limits the time that
 * unregisterLocalMemory waits for copies of the stand-in driver. With a
 * sanitizer, a copy of 1 MiB to new memory takes up to 0.3 s on a loaded
 * machine, and up to 8 of them are in flight. */
static unsigned int slot_timeout_s(void)
{
	return fx_slow() ? 5 * FX_HASTY_S : FX_HASTY_S;
}

/* Starts a peer with the transport of the rig, and with an environment variable
 * unless option is NULL. The peer's driver does not let other processes map its
 * GPU memory. */
static bool slot_peer(const struct slot_rig *rig, struct fx_peer *peer,
		      const char *option)
{
	char by[32];

	snprintf(by, sizeof(by), "transport=%s", rig->transport);
	return fx_peer_start(peer, SLOT_SIZE, by, "CUDA_STAND_IN_NO_IPC=export",
			     option, NULL);
}

static bool slot_target(struct slot_rig *rig)
{
	char option[32];

	snprintf(option, sizeof(option), "MC_SLICE_TIMEOUT=%u",
		 slot_timeout_s());
	if (!slot_peer(rig, &rig->peer, option) || fx_ask(&rig->peer, "gpu 1"))
		return false;
	rig->there = strtoull(rig->peer.text, NULL, 10);
	rig->seg = openSegment(rig->engine, rig->peer.name);
	return rig->there && rig->seg > 0;
}

/* --- bytes --------------------------------------------------------------- */

bool slot_move(struct slot_rig *rig, int op, void *local, uint64_t off,
	       uint64_t len, uint64_t block)
{
	return fx_move(rig->engine, rig->seg, op, local, rig->there + off, len,
		       block);
}

bool slot_round(struct slot_rig *rig, uint64_t off, uint64_t len,
		uint64_t block)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, 0, len, seq);
	fx_buf_poison(&rig->mem, SLOT_SIZE, SLOT_SIZE);
	return fx_gpu_put(&rig->peer, 0, SLOT_SIZE, 0) &&
	       slot_move(rig, OPCODE_WRITE, rig->mem.p, off, len, block) &&
	       fx_gpu_has(&rig->peer, off, len, seq) &&
	       fx_gpu_has(&rig->peer, 0, off, 0) &&
	       fx_gpu_has(&rig->peer, off + len, SLOT_SIZE - off - len, 0) &&
	       slot_move(rig, OPCODE_READ, rig->mem.p + SLOT_SIZE, off, len,
			 block) &&
	       fx_buf_check(&rig->mem, SLOT_SIZE, len, seq) &&
	       fx_buf_poisoned(&rig->mem, SLOT_SIZE + len, SLOT_SIZE - len);
}

static void bytes(struct slot_rig *rig)
{
	ft_ok(slot_round(rig, 0, SLOT_SIZE, 0) && slot_round(rig, 4095, 1, 0) &&
		      slot_round(rig, 3, 2 * FX_MIB + 1, 0),
	      "write_and_read_of_gpu_of_another_process_complete");
	ft_ok(slot_round(rig, 0, 2 * FX_MIB, 8192) &&
		      slot_round(rig, 1, 8 * FX_MIB, 700000),
	      "batches_of_small_requests_complete");
}

static void *slot_gpu(const struct slot_rig *rig, int i)
{
	return (void *)(uintptr_t)rig->gpu[i];
}

bool slot_add_gpus(struct slot_rig *rig)
{
	bool good = true;
	int i;

	for (i = 0; i < 2; i++)
		good = ft_ok(!registerLocalMemory(rig->engine, slot_gpu(rig, i),
						  SLOT_SIZE, "*", 0),
			     "local_gpu_%d_is_registered", i) && good;
	return good;
}

bool slot_gpus(struct slot_rig *rig, uint64_t off, uint64_t len, uint64_t block)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, 0, len, seq);
	fx_buf_poison(&rig->mem, SLOT_SIZE, SLOT_SIZE);
	return !rig->cuda.to_device(rig->gpu[0], rig->mem.p, len) &&
	       !rig->cuda.to_device(rig->gpu[1], rig->mem.p + SLOT_SIZE,
				    SLOT_SIZE) &&
	       fx_gpu_put(&rig->peer, 0, SLOT_SIZE, 0) &&
	       slot_move(rig, OPCODE_WRITE, slot_gpu(rig, 0), off, len,
			 block) &&
	       fx_gpu_has(&rig->peer, off, len, seq) &&
	       fx_gpu_has(&rig->peer, off + len, SLOT_SIZE - off - len, 0) &&
	       slot_move(rig, OPCODE_READ, slot_gpu(rig, 1), off, len,
			 block) &&
	       !rig->cuda.to_host(rig->mem.p + SLOT_SIZE, rig->gpu[1],
				  SLOT_SIZE) &&
	       fx_buf_check(&rig->mem, SLOT_SIZE, len, seq) &&
	       fx_buf_poisoned(&rig->mem, SLOT_SIZE + len, SLOT_SIZE - len);
}

static void gpus(struct slot_rig *rig)
{
	ft_ok(slot_gpus(rig, 0, SLOT_SIZE, 0) && slot_gpus(rig, 7, 1, 0) &&
		      slot_gpus(rig, 1, 3 * FX_MIB, 100000),
	      "write_and_read_between_two_gpus_complete");
}

/* --- refused requests ---------------------------------------------------- */

struct fx_job slot_job(const struct slot_rig *rig, int op)
{
	return (struct fx_job){ .engine = rig->engine, .seg = rig->seg,
				.op = op, .local = rig->mem.p,
				.remote = rig->there, .len = SLOT_SIZE };
}

static bool slot_fails(struct fx_job *job, int code)
{
	struct te_error err = { 0 };
	bool good;

	good = !fx_job_start(job) && fx_job_wait(job, FX_LONG_MS) &&
	       job->n[STATUS_FAILED] == 1 &&
	       !te_task_error(job->engine, job->id, 0, &err, sizeof(err)) &&
	       err.code == code;
	if (!good)
		ft_diag("tasks: %s; error %d: %s", fx_job_text(job), err.code,
			err.text);
	fx_job_free(job);
	return good;
}

static void refused(struct slot_rig *rig)
{
	struct fx_job job = slot_job(rig, OPCODE_WRITE);
	struct te_local local[2] = { { rig->mem.p, 64 },
				     { rig->mem.p + 128, 64 } };
	struct te_remote remote = { rig->there, 128 };
	struct te_request list = { .opcode = TE_WRITE, .target_id = rig->seg,
				   .local = local, .local_count = 2,
				   .remote = &remote, .remote_count = 1 };
	struct te_error err;

	fx_gpu_put(&rig->peer, 0, SLOT_SIZE, 0);
	job.remote++;
	ft_ok(slot_fails(&job, -3) && fx_gpu_has(&rig->peer, 0, SLOT_SIZE, 0),
	      "request_beyond_target_memory_fails_without_moving_a_byte");
	job = slot_job(rig, OPCODE_WRITE);
	job.local = rig->mem.p + 1;
	job.len = 2 * SLOT_SIZE;
	ft_ok(fx_job_start(&job) == 3,
	      "write_from_unregistered_source_is_refused");
	ft_ok(fx_submit(rig->engine, &list, &err) == -8,
	      "scatter_gather_request_is_refused");
}

/* --- requests that end early --------------------------------------------- */

#define SLOT_BLOCK	(64u << 10)
#define SLOT_MERGED	(FX_MIB / SLOT_BLOCK) /* requests of one operation */

static struct fx_job merged_job(struct slot_rig *rig, int op)
{
	struct fx_job job = slot_job(rig, op);

	job.len = FX_MIB;
	job.block = SLOT_BLOCK;
	return job;
}

/* Returns true if the host memory and the peer's GPU memory have the same
 * bytes, except for one block at the offset `at`, which is as it was before
 * the transfer. */
static bool slot_same_but(struct slot_rig *rig, int op, uint64_t at)
{
	unsigned char *here = rig->mem.p, *there = here + SLOT_SIZE;
	uint64_t after = at + SLOT_BLOCK;

	return slot_move(rig, OPCODE_READ, there, 0, FX_MIB, 0) &&
	       !memcmp(here, there, at) &&
	       !memcmp(here + after, there + after, FX_MIB - after) &&
	       (op == OPCODE_READ ?
			fx_buf_poisoned(&rig->mem, at, SLOT_BLOCK) :
			fx_gpu_has(&rig->peer, at, SLOT_BLOCK, 0));
}

/* One operation moves several adjacent requests to a stopped target. One of
 * them is cancelled, which must not end the others. */
static void cancel_one_of_merged(struct slot_rig *rig, int op)
{
	const char *what = op == OPCODE_READ ? "read" : "write";
	struct fx_job job = merged_job(rig, op);
	uint64_t seq = ++rig->sequence;
	bool ended;

	if (op == OPCODE_READ) {
		fx_gpu_put(&rig->peer, 0, FX_MIB, seq);
		fx_buf_poison(&rig->mem, 0, FX_MIB);
	} else {
		fx_gpu_put(&rig->peer, 0, FX_MIB, 0);
		fx_buf_fill(&rig->mem, 0, FX_MIB, seq);
	}
	if (!ft_ok(fx_peer_pause(&rig->peer) && !fx_job_start(&job) &&
			   !te_cancel_task(rig->engine, job.id, 5),
		   "one_of_several_requests_to_%s_is_cancelled", what))
		return;
	while (fx_task_status(&job, 5) == STATUS_WAITING)
		fx_nap(1000);
	ended = fx_job_poll(&job);
	ft_ok(!ended && fx_task_status(&job, 5) == STATUS_CANCELED,
	      "cancelled_%s_ends_alone: %s", what, fx_job_text(&job));
	fx_peer_resume(&rig->peer);
	ended = fx_job_wait(&job, FX_LONG_MS);
	ft_ok(ended && job.n[STATUS_COMPLETED] == SLOT_MERGED - 1,
	      "other_requests_to_%s_complete: %s", what, fx_job_text(&job));
	ft_ok(slot_same_but(rig, op, 5 * SLOT_BLOCK),
	      "bytes_of_the_other_requests_to_%s_arrive", what);
	fx_job_free(&job);
}

/* Requests that are adjacent on one side only, or the other way round on one
 * side, are not merged. */
static void not_adjacent(struct slot_rig *rig)
{
	static const uint8_t straight[] = { 0, 1, 2, 3, 4, 5 };
	static const uint8_t mixed[] = { 4, 3, 5, 0, 2, 1 };
	struct fx_job job = merged_job(rig, OPCODE_WRITE), back = job;
	unsigned char *here = rig->mem.p, *there = here + SLOT_SIZE;
	size_t i, bad = 0;

	fx_buf_fill(&rig->mem, 0, FX_MIB, ++rig->sequence);
	back.op = OPCODE_READ;
	back.local = there;
	ft_ok(fx_move_blocks(&job, straight, mixed, 6) &&
		      fx_move_blocks(&back, mixed, straight, 6),
	      "requests_that_are_not_adjacent_complete");
	/* the block mixed[i] of the peer has the block i of this process, and
	 * the block mixed[i] of the second buffer has the peer's block i */
	for (i = 0; i < 6; i++)
		bad += memcmp(there + mixed[mixed[i]] * SLOT_BLOCK,
			      here + i * SLOT_BLOCK, SLOT_BLOCK) != 0;
	ft_ok(!bad, "each_of_them_has_its_bytes");
}

/* A request that is started again, because another one was cancelled, does not
 * get a new MC_SLICE_TIMEOUT. */
static void merged_time_out_as_one(struct slot_rig *rig)
{
	uint64_t timeout = FX_BRISK_S * FT_NS_PER_SEC, cancelled, took;
	struct fx_job job = merged_job(rig, OPCODE_WRITE);
	bool ended;

	job.engine = fx_engine_timeout(rig->transport,
				       FX_BRISK_S);
	if (!ft_ok(job.engine && fx_register(job.engine, &rig->mem) &&
			   (job.seg = openSegment(job.engine,
						  rig->peer.name)) > 0 &&
			   fx_move(job.engine, job.seg, OPCODE_WRITE, job.local,
				   job.remote, FX_MIB, 0),
		   "engine_with_short_timeout_writes"))
		return;
	ft_ok(fx_peer_pause(&rig->peer) && !fx_job_start(&job),
	      "writes_to_stopped_target_are_submitted");
	fx_nap(FX_BRISK_S * 1000000 * 3 / 4);
	cancelled = ft_now_ns();
	te_cancel_task(job.engine, job.id, 5);
	ended = fx_job_wait(&job, FX_LONG_MS);
	took = ft_now_ns() - cancelled;
	ft_ok(ended && job.n[STATUS_CANCELED] == 1 &&
		      job.n[STATUS_FAILED] == SLOT_MERGED - 1,
	      "other_writes_time_out: %s", fx_job_text(&job));
	fx_peer_resume(&rig->peer);
	ft_ok(took < timeout,
	      "timeout_counts_from_the_first_start: %llu ms after the cancellation",
	      (unsigned long long)took / 1000000);
	fx_job_free(&job);
	destroyTransferEngine(job.engine);
}

/* Cancels a read and a write while the copies of the peer's GPU do not
 * proceed. */
static void cancel_in_its_copies(struct slot_rig *rig)
{
	struct fx_job job = slot_job(rig, OPCODE_READ);

	fx_buf_poison(&rig->mem, 0, SLOT_SIZE);
	ft_ok(fx_gpu_put(&rig->peer, 0, SLOT_SIZE, ++rig->sequence) &&
		      !fx_ask(&rig->peer, "hold 1") && !fx_job_start(&job),
	      "read_from_a_hanging_gpu_waits");
	ft_ok(!fx_ask(&rig->peer, "queued 1") && !fx_job_poll(&job) &&
		      !te_cancel_batch(rig->engine, job.id) &&
		      fx_job_wait(&job, FX_LONG_MS) &&
		      job.n[STATUS_CANCELED] == 1,
	      "cancelled_read_ends");
	fx_job_free(&job);
	fx_ask(&rig->peer, "hold 0");
	fx_ask(&rig->peer, "queued 0");
	fx_nap(200000);
	ft_ok(fx_buf_poisoned(&rig->mem, 0, SLOT_SIZE),
	      "ended_transfer_gets_no_further_byte");

	fx_buf_fill(&rig->mem, 0, SLOT_SIZE, ++rig->sequence);
	job = slot_job(rig, OPCODE_WRITE);
	ft_ok(!fx_ask(&rig->peer, "hold 1") && !fx_job_start(&job),
	      "write_to_a_hanging_gpu_waits");
	ft_ok(!fx_ask(&rig->peer, "queued 1") && !fx_job_poll(&job) &&
		      !te_cancel_batch(rig->engine, job.id) &&
		      fx_job_wait(&job, FX_LONG_MS) &&
		      job.n[STATUS_TIMEOUT] == 1,
	      "cancelled_write_reports_that_bytes_may_still_land");
	fx_job_free(&job);
	fx_ask(&rig->peer, "hold 0");
	ft_ok(slot_round(rig, 0, SLOT_SIZE, 0),
	      "transfers_after_a_cancelled_write_complete");
}

/* Ends a request while the peer is stopped, by cancellation or by a deadline.
 * If us is 0, the peer is stopped before it answers ASK, otherwise us
 * microseconds after the submission. */
static void ended_while_it_is_stopped(struct slot_rig *rig, int op,
				      unsigned int us, bool deadline)
{
	struct fx_job job = slot_job(rig, op);
	struct te_error err = { 0 };
	bool ended;

	fx_buf_fill(&rig->mem, 0, SLOT_SIZE, ++rig->sequence);
	if (!us)
		fx_peer_pause(&rig->peer);
	ft_ok(!fx_job_start(&job), "transfer_is_submitted");
	fx_nap(us ? us : 50000);
	if (us)
		fx_peer_pause(&rig->peer);
	if (deadline)
		te_batch_deadline(rig->engine, job.id, ft_now_ns() + 50000000);
	else
		te_cancel_batch(rig->engine, job.id);
	ended = fx_job_wait(&job, FX_LONG_MS);
	te_task_error(rig->engine, job.id, 0, &err, sizeof(err));
	ft_ok(ended && job.n[STATUS_TIMEOUT] + job.n[STATUS_COMPLETED] +
				       job.n[deadline ? STATUS_FAILED
						      : STATUS_CANCELED] ==
			       1,
	      "transfer_to_a_stopped_target_ends: %s", fx_job_text(&job));
	ft_ok(us || job.n[STATUS_TIMEOUT] ||
		      err.code == (deadline ? -TE_TIMED_OUT : -10),
	      "transfer_to_a_stopped_target_reports_its_error: %d %s", err.code,
	      err.text);
	/* Local memory with poison shows late bytes of a read. */
	fx_buf_poison(&rig->mem, 0, SLOT_SIZE);
	fx_peer_resume(&rig->peer);
	ft_ok(fx_buf_still(&rig->mem, 0, SLOT_SIZE, 200) &&
		      fx_buf_poisoned(&rig->mem, 0, SLOT_SIZE),
	      "ended_transfer_gets_no_further_byte");
	fx_job_free(&job);
}

static void at_any_time(struct slot_rig *rig)
{
	unsigned int canceled = 0, completed = 0, i;
	bool good = true;
	struct fx_job job;
	int op;

	for (i = 0; i < SLOT_RACES && good; i++) {
		op = i & 1 ? OPCODE_READ : OPCODE_WRITE;
		job = slot_job(rig, op);
		fx_buf_fill(&rig->mem, 0, SLOT_SIZE, ++rig->sequence);
		if (op == OPCODE_READ)
			fx_gpu_put(&rig->peer, 0, SLOT_SIZE,
				   ++rig->sequence);
		good = !fx_job_start(&job);
		fx_nap((unsigned int)rand() % 12000);
		te_cancel_batch(rig->engine, job.id);
		good = good && fx_job_wait(&job, FX_LONG_MS) &&
		       job.n[STATUS_CANCELED] + job.n[STATUS_COMPLETED] +
		       job.n[STATUS_TIMEOUT] == 1;
		canceled += job.n[STATUS_CANCELED];
		completed += job.n[STATUS_COMPLETED];
		if (good && job.n[STATUS_COMPLETED])
			good = op == OPCODE_READ ?
			       fx_buf_check(&rig->mem, 0, SLOT_SIZE,
					    rig->sequence) :
			       fx_gpu_has(&rig->peer, 0, SLOT_SIZE,
					  rig->sequence);
		/* A request that ended as cancelled or completed must write no
		 * byte after its end. */
		if (good && !job.n[STATUS_TIMEOUT]) {
			fx_buf_poison(&rig->mem, 0, SLOT_SIZE);
			good = fx_gpu_put(&rig->peer, 0, SLOT_SIZE, 0) &&
			       fx_buf_still(&rig->mem, 0, SLOT_SIZE, 5) &&
			       fx_gpu_has(&rig->peer, 0, SLOT_SIZE, 0);
		}
		fx_job_free(&job);
	}
	ft_diag("transfers: %u cancelled, %u completed", canceled, completed);
	ft_ok(good, "transfer_cancelled_at_any_time_gets_no_further_byte");
}

/* --- unregistering at the target ----------------------------------------- */

/* Registers the peer's GPU memory again. Reads its descriptor again, because
 * the cached one may lack that memory. */
static bool slot_again(struct slot_rig *rig)
{
	return !fx_ask(&rig->peer, "regpu") &&
	       openSegmentNoCache(rig->engine, rig->peer.name) == rig->seg &&
	       !closeSegment(rig->engine, rig->seg);
}

static void unregistered(struct slot_rig *rig)
{
	unsigned int i, completed = 0, failed = 0;
	bool good = true;
	struct fx_job job;

	for (i = 0; i < SLOT_RACES / 2 && good; i++) {
		job = slot_job(rig, i & 1 ? OPCODE_READ : OPCODE_WRITE);
		job.block = i % 3 ? 0 : FX_MIB / 2;
		fx_buf_fill(&rig->mem, 0, SLOT_SIZE, ++rig->sequence);
		good = fx_gpu_withdraw(&rig->peer, &job, false, &completed,
				       &failed) && slot_again(rig);
	}
	ft_diag("jobs: %u completed, %u failed", completed, failed);
	ft_ok(good, "unregistered_memory_gets_no_byte");
	ft_ok(slot_round(rig, 0, SLOT_SIZE, 0),
	      "transfers_of_memory_registered_again_complete");
}

/* --- unregistering at the initiator -------------------------------------- */

/* Unregisters local memory while a task uses it and the target is stopped, so
 * that no piece of the task is posted on a rail. The task must complete, and
 * unregisterLocalMemory must wait for it. */
static void source_unregistered(struct slot_rig *rig, int op)
{
	struct fx_job job = slot_job(rig, op);

	fx_buf_fill(&rig->mem, 0, SLOT_SIZE, ++rig->sequence);
	if (op == OPCODE_READ) {
		fx_buf_poison(&rig->mem, 0, SLOT_SIZE);
		fx_gpu_put(&rig->peer, 0, SLOT_SIZE, rig->sequence);
	}
	fx_gpu_leave(&rig->peer, &job, &rig->mem, rig->sequence);
	ft_ok(fx_register(rig->engine, &rig->mem) &&
		      slot_round(rig, 0, SLOT_SIZE, 0),
	      "transfers_of_memory_registered_again_complete");
}

/* --- initiators that are stopped or killed ------------------------------- */

/* Starts another process that repeatedly writes or reads SLOT_HALF bytes of the
 * peer's GPU memory, from the offset SLOT_HALF on. */
static bool slot_other(struct slot_rig *rig, struct fx_peer *other, int op,
		       unsigned int rounds)
{
	int seg;

	if (!slot_peer(rig, other, NULL) ||
	    fx_ask(other, "reg 0 %llu 1", (unsigned long long)SLOT_SIZE))
		return false;
	seg = fx_ask(other, "open %s", rig->peer.name);
	return seg > 0 &&
	       !fx_ask(other, "start %d %d 0 %llu %llu 0 %u -", seg, op,
		       (unsigned long long)(rig->there + SLOT_HALF),
		       (unsigned long long)SLOT_HALF, rounds);
}

/* Writes the first SLOT_HALF bytes of the peer's GPU memory, which no other
 * process uses. Returns true if they are right. */
static bool slot_near(struct slot_rig *rig)
{
	fx_buf_fill(&rig->mem, 0, SLOT_HALF, ++rig->sequence);
	return slot_move(rig, OPCODE_WRITE, rig->mem.p, 0, SLOT_HALF, 0) &&
	       fx_gpu_has(&rig->peer, 0, SLOT_HALF, rig->sequence);
}

/* Kills initiators one after another during their transfers. */
static void killed_initiators(struct slot_rig *rig)
{
	struct fx_peer other;
	bool good = true;
	unsigned int i;

	for (i = 0; i < SLOT_KILLS && good; i++) {
		good = slot_other(rig, &other, i & 1 ? OPCODE_READ :
						       OPCODE_WRITE, 100000);
		if (i == 2 || i == 3)	/* Kill these two while the GPU's copies
					 * are held back. */
			fx_ask(&rig->peer, "hold 1");
		fx_nap(50000 + (unsigned int)rand() % 20000);
		fx_peer_kill(&other);
		fx_ask(&rig->peer, "hold 0");
		good = good && slot_near(rig);
		fx_peer_drop(&other);
	}
	ft_ok(good, "transfers_after_initiators_were_killed_complete");
	ft_ok(slot_round(rig, 0, SLOT_SIZE, 0),
	      "transfers_at_the_end_of_the_case_complete");
}

/* Stops initiators for longer than MC_SLICE_TIMEOUT, so that their slots are
 * granted to others. Bytes that a stopped initiator sends after it resumes must
 * not change the memory of others. */
static void stopped_initiators(struct slot_rig *rig)
{
	struct fx_peer other[3];
	bool good = true;
	unsigned int i, ms;

	for (i = 0; i < 3; i++) {
		good = good && slot_other(rig, &other[i], OPCODE_WRITE, 1);
		fx_nap(1000 * (1 + i));
		fx_peer_pause(&other[i]);
	}
	ft_ok(good && slot_near(rig),
	      "transfers_while_initiators_are_stopped_complete");
	/* Wait until the target has withdrawn the slots of the stopped
	 * processes: half a second longer than its MC_SLICE_TIMEOUT. */
	for (ms = 0; ms < slot_timeout_s() * 1000 + 500; ms += 50)
		fx_nap(50000);
	ft_ok(slot_near(rig),
	      "transfers_after_timeout_of_stopped_initiators_complete");
	for (i = 0; i < 3; i++)
		fx_peer_resume(&other[i]);
	for (i = 0; i < 3; i++)
		good &= fx_ask(&other[i], "wait") == 0;
	ft_ok(good && fx_gpu_has(&rig->peer, 0, SLOT_HALF, rig->sequence),
	      "continued_initiators_end_and_change_no_foreign_byte");
	ft_ok(slot_round(rig, 0, SLOT_SIZE, 0),
	      "transfers_at_the_end_of_the_case_complete");
	for (i = 0; i < 3; i++)
		fx_peer_stop(&other[i]);
}

/* --- a target that is killed --------------------------------------------- */

static bool killed_targets(struct slot_rig *rig)
{
	transfer_engine_t own = rig->engine;
	bool good = true;
	struct fx_job job;
	uint64_t start;
	unsigned int i;

	rig->engine = fx_engine_hasty(rig->transport);
	good = rig->engine && fx_register(rig->engine, &rig->mem) &&
	       (rig->seg = openSegment(rig->engine, rig->peer.name)) > 0;
	for (i = 0; i < SLOT_KILLS && good; i++) {
		job = slot_job(rig, i & 1 ? OPCODE_READ : OPCODE_WRITE);
		job.block = i < 4 ? 0 : 64 * FX_KIB;
		if (i == 2 || i == 3)
			fx_ask(&rig->peer, "hold 1");
		good = !fx_job_start(&job);
		fx_nap((unsigned int)rand() % 6000 + (i / 2 == 1) * 100000);
		fx_peer_kill(&rig->peer);
		start = ft_now_ns();
		good = good && fx_job_wait(&job, FX_LONG_MS) &&
		       ft_now_ns() - start < 20000000000ULL;
		if (!good)
			ft_diag("round %u: %s", i, fx_job_text(&job));
		fx_job_free(&job);
		closeSegment(rig->engine, rig->seg);
		fx_peer_drop(&rig->peer);
		good = good && slot_target(rig);
	}
	ft_ok(good, "tasks_for_a_killed_target_end");
	destroyTransferEngine(rig->engine);
	rig->engine = own;
	rig->seg = good ? openSegment(own, rig->peer.name) : -1;
	return ft_ok(rig->seg > 0 && slot_round(rig, 0, SLOT_SIZE, 0),
		     "transfers_to_another_target_complete");
}

/* The copies of the target's GPU do not proceed, so the target's
 * MC_SLICE_TIMEOUT must end the requests. Later requests must work. */
static void hang(struct slot_rig *rig)
{
	struct fx_job job = slot_job(rig, OPCODE_WRITE);

	ft_ok(!fx_ask(&rig->peer, "hold 1") && !fx_job_start(&job) &&
	      fx_job_wait(&job, FX_LONG_MS) && job.n[STATUS_TIMEOUT] == 1,
	      "write_to_a_gpu_that_hangs_times_out: %s", fx_job_text(&job));
	fx_job_free(&job);
	job = slot_job(rig, OPCODE_READ);
	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
		      job.n[STATUS_FAILED] == 1,
	      "read_from_a_gpu_that_hangs_fails");
	fx_job_free(&job);
	/* The next request has a timeout of its own. The GPU's copies proceed
	 * before that. */
	ft_ok(!fx_job_start(&job), "task_after_the_timeouts_is_submitted");
	fx_nap(200000);
	ft_ok(!fx_job_poll(&job), "task_waits_while_the_gpu_hangs");
	fx_ask(&rig->peer, "hold 0");
	ft_ok(fx_job_wait(&job, FX_LONG_MS) && job.n[STATUS_COMPLETED] == 1,
	      "task_completes_when_the_gpu_continues: %s", fx_job_text(&job));
	fx_job_free(&job);
	ft_ok(slot_round(rig, 0, SLOT_SIZE, 0),
	      "transfers_after_a_hang_complete");
}

/* --- the end of a target or an engine ------------------------------------ */

static void no_way(struct slot_rig *rig)
{
	struct fx_job job = slot_job(rig, OPCODE_WRITE);

	ft_ok(!fx_ask(&rig->peer, "ungpu") &&
	      !fx_ask(&rig->peer, "fail cuMemHostRegister") &&
	      !fx_ask(&rig->peer, "regpu"),
	      "target_without_memory_grants_no_slot");
	ft_ok(slot_fails(&job, -3), "write_to_target_without_slots_fails");
	ft_ok(!fx_ask(&rig->peer, "ungpu") && slot_again(rig) &&
		      slot_round(rig, 0, SLOT_SIZE, 0),
	      "write_to_memory_registered_with_slots_completes");
}

static void destroyed(struct slot_rig *rig)
{
	struct fx_job job = slot_job(rig, OPCODE_WRITE);
	uint64_t start;
	int i;

	/* Destroy the engine of this process while a request is in progress. */
	for (i = 0; i < 3; i++) {
		job.engine = fx_engine_hasty(rig->transport);
		if (!ft_ok(job.engine && fx_register(job.engine, &rig->mem) &&
				   (job.seg = openSegment(job.engine,
							  rig->peer.name)) > 0,
			   "engine_for_destruction_starts"))
			return;
		job.op = i & 1 ? OPCODE_READ : OPCODE_WRITE;
		if (i == 2)
			fx_peer_pause(&rig->peer);
		start = ft_now_ns();
		ft_ok(!fx_job_start(&job), "transfer_is_submitted");
		fx_nap((unsigned int)i * 1000);
		destroyTransferEngine(job.engine);
		ft_ok(ft_now_ns() - start < FX_LONG_MS * 1000000ULL / 4,
		      "engine_is_destroyed_during_transfer_%d", i);
		fx_peer_resume(&rig->peer);
	}
	/* Destroy the target's engine while a request is in progress. */
	job = slot_job(rig, OPCODE_WRITE);
	ft_ok(!fx_job_start(&job) && !fx_ask(&rig->peer, "destroy") &&
		      fx_job_wait(&job, FX_LONG_MS),
	      "tasks_for_a_target_that_is_destroyed_end");
	fx_job_free(&job);
	ft_ok(!fx_ask(&rig->peer, "left"),
	      "destroyed_target_frees_all_driver_objects");
}

/* Tests an engine that knows the target only from its blob. */
static void by_blob(struct slot_rig *rig)
{
	struct slot_rig other = *rig;

	other.engine = fx_engine(rig->transport);
	ft_ok(other.engine && fx_register(other.engine, &other.mem) &&
	      (other.seg = fx_gpu_import(other.engine, &rig->peer)) > 0 &&
	      slot_round(&other, 0, SLOT_SIZE, 0) &&
	      slot_round(&other, 1, 8 * FX_MIB, 700000),
	      "target_of_imported_segment_grants_slots");
	destroyTransferEngine(other.engine);
	rig->sequence = other.sequence;
}

/* Tests a blob that is older than the registration of the memory. The first
 * request fails. The engine then reads the descriptor from the target, and
 * later requests complete. */
static void by_old_blob(struct slot_rig *rig)
{
	struct slot_rig other = *rig;
	struct fx_job job;

	other.engine = fx_engine(rig->transport);
	ft_ok(other.engine && fx_register(other.engine, &other.mem) &&
		      !fx_ask(&rig->peer, "ungpu") &&
		      (other.seg = fx_gpu_import(other.engine, &rig->peer)) >
			      0 &&
		      !fx_ask(&rig->peer, "regpu"),
	      "target_memory_is_registered_after_the_import");
	job = slot_job(&other, OPCODE_WRITE);
	ft_ok(slot_fails(&job, -3),
	      "write_to_memory_missing_in_old_blob_fails");
	fx_gpu_put(&rig->peer, 0, SLOT_SIZE, 0);
	fx_buf_fill(&other.mem, 0, SLOT_SIZE, 77);
	ft_ok(fx_move_until(other.engine, other.seg, OPCODE_WRITE, other.mem.p,
			    rig->there, SLOT_SIZE, 0, fx_ms(10000)) &&
	      fx_gpu_has(&rig->peer, 0, SLOT_SIZE, 77),
	      "target_of_old_blob_grants_slots_after_refresh");
	destroyTransferEngine(other.engine);
}

bool slot_setup(struct slot_rig *rig)
{
	void *context;
	int i;

	srand((unsigned int)fx_seed());
	rig->mem = fx_buf_map(2 * SLOT_SIZE, -1);
	rig->engine = fx_engine(rig->transport);
	if (!ft_ok(rig->mem.p && rig->engine &&
			   fx_register(rig->engine, &rig->mem) &&
			   cuda_stand_in_load(&rig->cuda),
		   "engine_and_driver_start"))
		return false;
	for (i = 0; i < 2; i++)
		rig->gpu[i] = cuda_stand_in_memory(&rig->cuda, i, SLOT_SIZE,
						   &context);
	return ft_ok(slot_target(rig), "target_with_gpu_memory_starts");
}

static void ended_early(struct slot_rig *rig)
{
	cancel_one_of_merged(rig, OPCODE_WRITE);
	cancel_one_of_merged(rig, OPCODE_READ);
	not_adjacent(rig);
	merged_time_out_as_one(rig);
	cancel_in_its_copies(rig);
	ended_while_it_is_stopped(rig, OPCODE_WRITE, 0, false);
	ended_while_it_is_stopped(rig, OPCODE_READ, 0, false);
	ended_while_it_is_stopped(rig, OPCODE_WRITE, 3000, false);
	ended_while_it_is_stopped(rig, OPCODE_READ, 3000, false);
	ended_while_it_is_stopped(rig, OPCODE_WRITE, 0, true);
	ended_while_it_is_stopped(rig, OPCODE_READ, 2000, true);
	at_any_time(rig);
}

bool slot_cases(struct slot_rig *rig)
{
	bytes(rig);
	refused(rig);
	slot_add_gpus(rig);
	gpus(rig);
	ended_early(rig);
	by_blob(rig);
	by_old_blob(rig);
	unregistered(rig);
	source_unregistered(rig, OPCODE_WRITE);
	source_unregistered(rig, OPCODE_READ);
	killed_initiators(rig);
	stopped_initiators(rig);
	if (!killed_targets(rig))
		return false;
	hang(rig);
	no_way(rig);
	destroyed(rig);
	fx_peer_stop(&rig->peer);
	return true;
}

void slot_end(struct slot_rig *rig)
{
	destroyTransferEngine(rig->engine);
	ft_ok(!rig->cuda.left(), "closed_engine_frees_all_driver_objects");
	ft_ok(fx_buf_guards(&rig->mem), "guard_zones_are_unchanged");
	fx_buf_unmap(&rig->mem);
}
