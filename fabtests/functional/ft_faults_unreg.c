/* SPDX-License-Identifier: BSD-2-Clause */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_faults.h"
#include "fabtests/functional/fx.h"

#define UNREG_ROUNDS 3
/* length of buffer 0, the buffer that is unregistered */
#define UNREG_LEN (64 * FX_MIB)
/* offset of buffer 1, which stays registered */
#define UNREG_OTHER (65 * FX_MIB)
#define UNREG_CALM_MS 1000

static bool unreg_target(struct fx_peer *target)
{
	return fx_peer_start(target, UNREG_OTHER + 32 * FX_MIB, NULL) &&
	       !fx_ask(target, "reg 0 %llu 1", UNREG_LEN) &&
	       !fx_ask(target, "reg %llu %llu 1", UNREG_OTHER, 32 * FX_MIB) &&
	       !fx_ask(target, "copy 0");
}

/* Checks that no byte of buffer 0 changes for UNREG_CALM_MS. Also checks that
 * the buffer equals the copy that the target made when unregisterLocalMemory
 * returned. */
static void unreg_is_calm(struct fx_peer *target, const char *how)
{
	bool calm = fx_buf_still(&target->mem, 0, UNREG_LEN, UNREG_CALM_MS);

	ft_ok(!fx_ask(target, "same") && calm,
	      "law2_unregister_%s_ends_all_writes", how);
}

static bool unreg_in_time(struct fx_peer *target, const char *how)
{
	uint64_t from = ft_now_ns();
	int ret = fx_ask(target, "unreg 0");

	ft_diag("unregister %s: returned %d after %llu ms", how, ret,
		(unsigned long long)((ft_now_ns() - from) / 1000000));
	return ft_ok(!ret && ft_now_ns() - from <=
		     fx_soon_ms(10000) * UINT64_C(1000000),
		     "unregister_%s_succeeds_in_time", how);
}

/* Checks that each task is FAILED, or COMPLETED before the unregistration. */
static void unreg_tasks(struct fault_rig *rig, struct fx_peer *target,
			struct fx_job *job)
{
	bool in_time = fx_job_wait(job, fault_limit_ms());

	ft_diag("%s", fx_job_text(job));
	ft_ok(in_time && job->n[STATUS_COMPLETED] + job->n[STATUS_FAILED] ==
	      job->tasks, "unregister_in_mid_transfer_fails_the_tasks");
	if (job->op == OPCODE_WRITE)
		ft_ok(fault_completed_is_true(rig, target, job),
		      "law1_tasks_completed_before_unregister_are_in_place");
	fx_job_wait(job, FX_LONG_MS);
	fx_job_free(job);
}

static void unregister_in_mid_write(struct fault_rig *rig)
{
	struct fx_peer target;
	struct fx_job job;
	segment_id_t seg;

	if (!ft_ok(unreg_target(&target), "target_with_two_buffers_starts"))
		return;
	seg = openSegment(rig->engine, target.name);
	job = fault_job(rig, &target, seg, OPCODE_WRITE, UNREG_LEN);
	fx_buf_fill(&rig->mem, 0, job.len, ++rig->sequence);
	fx_buf_poison(&target.mem, 0, job.len);
	ft_ok(!fx_job_start(&job), "submit_succeeds");
	fx_job_reach(&job, fault_point(rig, job.len), FX_LONG_MS);
	if (unreg_in_time(&target, "in_mid_write"))
		unreg_is_calm(&target, "in_mid_write");
	unreg_tasks(rig, &target, &job);
	ft_ok(fault_next_works(rig, &target, seg, UNREG_OTHER),
	      "unregister_leaves_the_other_buffer_usable");
	ft_ok(!fx_ask(&target, "reg 0 %llu 1", UNREG_LEN) &&
	      fault_next_works(rig, &target, seg, 0),
	      "range_registered_again_works");
	ft_ok(fx_peer_stop(&target), "target_ends_well");
	closeSegment(rig->engine, seg);
}

/* Unregisters a buffer that is being read. Bytes that the target stores in it
 * after unregisterLocalMemory has returned must not reach the reader. */
static void unregister_in_mid_read(struct fault_rig *rig)
{
	struct fx_peer target;
	struct fx_job job;
	segment_id_t seg;

	if (!ft_ok(unreg_target(&target), "target_with_two_buffers_starts"))
		return;
	seg = openSegment(rig->engine, target.name);
	job = fault_job(rig, &target, seg, OPCODE_READ, UNREG_LEN);
	fx_buf_fill(&target.mem, 0, job.len, ++rig->sequence);
	memset(rig->mem.p, 0x22, rig->mem.len);
	ft_ok(!fx_job_start(&job), "submit_succeeds");
	fx_job_reach(&job, fault_point(rig, job.len), FX_LONG_MS);
	unreg_in_time(&target, "in_mid_read");
	fx_buf_poison(&target.mem, 0, UNREG_LEN);
	unreg_tasks(rig, &target, &job);
	ft_ok(fault_no_poison(&rig->mem),
	      "law2_unregister_in_mid_read_ends_all_reads");
	ft_ok(fx_peer_stop(&target), "target_ends_well");
	closeSegment(rig->engine, seg);
}

/* --- an initiator that is stopped in the middle of a message ------------- */

/* Starts a writer with slices as long as the buffer, so that a stop hits it
 * within a slice. */
static bool unreg_writer(struct fx_peer *writer, const struct fx_peer *target,
			 int *seg)
{
	if (!fx_peer_start(writer, UNREG_LEN, "MC_SLICE_SIZE=33554432",
			   "MOONRAIL_SLICE_MAX=67108864", NULL) ||
	    fx_ask(writer, "reg 0 %llu 1", UNREG_LEN))
		return false;
	fx_buf_fill(&writer->mem, 0, UNREG_LEN, 1);
	*seg = fx_ask(writer, "open %s", target->name);
	return *seg > 0;
}

static bool unreg_start(struct fx_peer *writer, const struct fx_peer *target,
			int seg, uint64_t off, uint64_t len)
{
	return !fx_ask(writer, "start %d 1 0 %llu %llu %llu 1 -", seg,
		       (unsigned long long)(target->mem.addr + off),
		       (unsigned long long)len, (unsigned long long)len);
}

/* Waits until a byte has landed at `at`, then stops the writer. Tests 64 bytes,
 * because a single byte of the pattern could equal the poison. */
static bool unreg_stop_at(struct fx_peer *writer, const struct fx_peer *target,
			  uint64_t at)
{
	uint64_t deadline = ft_now_ns() + FX_LONG_MS * UINT64_C(1000000);
	bool none = true;

	while (none && ft_now_ns() < deadline) {
		none = fx_buf_poisoned(&target->mem, at, 64);
		sched_yield();
	}
	return !none && fx_peer_pause(writer);
}

/* Returns the number of MiB of buffer 0 in which bytes have landed. Looks at
 * the first 4 KiB of each MiB. */
static unsigned int unreg_landed(const struct fx_peer *target)
{
	unsigned int n = 0;

	for (uint64_t off = 0; off < UNREG_LEN; off += FX_MIB)
		n += !fx_buf_poisoned(&target->mem, off, 4096);
	return n;
}

static void unregister_from_a_stopped_writer(struct fault_rig *rig)
{
	struct fx_peer target, writer = { 0 };
	int seg = -1;
	segment_id_t own_seg;
	struct fx_job beside;
	bool good;

	good = unreg_target(&target) && unreg_writer(&writer, &target, &seg);
	if (!ft_ok(good, "target_and_writer_start"))
		return;
	own_seg = openSegment(rig->engine, target.name);
	beside = fault_job(rig, &target, own_seg, OPCODE_WRITE, 32 * FX_MIB);
	beside.remote += UNREG_OTHER;
	fx_buf_fill(&rig->mem, 0, beside.len, ++rig->sequence);
	fx_buf_poison(&target.mem, 0, UNREG_LEN);
	good = unreg_start(&writer, &target, seg, 0, UNREG_LEN) &&
	       unreg_stop_at(&writer, &target,
			     fault_point(rig, UNREG_LEN / 2));
	ft_diag("the writer was stopped when %u of 64 MiB were in place",
		unreg_landed(&target));
	ft_ok(good && !fx_job_start(&beside), "writer_is_stopped_in_mid_write");
	if (unreg_in_time(&target, "from_a_stopped_writer"))
		unreg_is_calm(&target, "while_the_writer_is_stopped");
	ft_ok(fx_job_wait(&beside, FX_LONG_MS) &&
	      beside.n[STATUS_COMPLETED] == beside.tasks &&
	      fx_buf_check(&target.mem, UNREG_OTHER, beside.len, rig->sequence),
	      "fence_does_not_affect_other_initiators");
	fx_job_free(&beside);
	fx_peer_resume(&writer);
	unreg_is_calm(&target, "after_the_writer_is_resumed");
	good = !fx_ask(&writer, "wait");
	ft_diag("the writer: %s", writer.text);
	ft_ok(good && (strstr(writer.text, " 1 failed") ||
		       strstr(writer.text, " 1 completed")),
	      "resumed_writer_s_task_ends_failed_or_completed");
	good = unreg_start(&writer, &target, seg, UNREG_OTHER, 32 * FX_MIB) &&
	       !fx_ask(&writer, "wait") && strstr(writer.text, " 1 completed");
	ft_ok(good && fx_buf_check(&target.mem, UNREG_OTHER, 1024, 1) &&
	      !memcmp(target.mem.p + UNREG_OTHER, writer.mem.p, 32 * FX_MIB),
	      "resumed_writer_s_next_transfer_to_another_buffer_works");
	ft_ok(fx_peer_stop(&writer), "writer_ends_well");
	ft_ok(fx_peer_stop(&target), "target_ends_well");
	closeSegment(rig->engine, own_seg);
}

/* Checks that unregisterLocalMemory of a source waits for the tasks of its own
 * engine. */
void fault_unregister_own(struct fault_rig *rig)
{
	struct fx_buf mem = fx_buf_map(32 * FX_MIB, -1);
	struct fx_peer target;
	struct fx_job job;
	int ret;

	if (!ft_ok(unreg_target(&target) && fx_register(rig->engine, &mem),
		   "target_with_two_buffers_starts"))
		return;
	job = fault_job(rig, &target, openSegment(rig->engine, target.name),
			OPCODE_WRITE, mem.len);
	job.local = mem.p;
	fx_buf_fill(&mem, 0, mem.len, ++rig->sequence);
	ft_ok(!fx_job_start(&job), "submit_succeeds");
	ret = unregisterLocalMemory(rig->engine, mem.p);
	ft_ok(!ret && fx_job_poll(&job) &&
	      job.n[STATUS_COMPLETED] == job.tasks &&
	      fx_buf_check(&target.mem, 0, mem.len, rig->sequence),
	      "unregister_waits_for_own_tasks");
	fx_job_free(&job);
	ft_ok(fx_job_start(&job) == 3,
	      "submit_from_unregistered_source_is_refused");
	ft_ok(fx_peer_stop(&target), "target_ends_well");
	fx_buf_unmap(&mem);
}

void fault_unregister_write(struct fault_rig *rig)
{
	for (unsigned int i = 0; i < UNREG_ROUNDS; i++)
		unregister_in_mid_write(rig);
}

void fault_unregister_read(struct fault_rig *rig)
{
	for (unsigned int i = 0; i < UNREG_ROUNDS; i++)
		unregister_in_mid_read(rig);
}

void fault_unregister_stopped(struct fault_rig *rig)
{
	for (unsigned int i = 0; i < UNREG_ROUNDS; i++)
		unregister_from_a_stopped_writer(rig);
}
