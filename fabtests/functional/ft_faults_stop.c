/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/functional/ft_faults.h"
#include "fabtests/functional/fx.h"

#define STOP_ROUNDS 3
#define STOP_CALM_MS 300	/* time for which no byte may change */

/* Starts the job, stops the target at a random point and waits until all tasks
 * have ended. Returns false if they do not end. */
static bool stop_in_mid_job(struct fault_rig *rig, struct fx_peer *target,
			    struct fx_job *job)
{
	const char *what = job->op == OPCODE_READ ? "read" : "write";
	bool in_time;

	if (!ft_ok(!fx_job_start(job), "submit_to_a_running_target"))
		return false;
	fx_job_reach(job, fault_point(rig, job->len), FX_LONG_MS);
	fx_peer_pause(target);
	in_time = fx_job_wait(job, fault_limit_ms());
	ft_diag("target stopped during the %s; tasks: %s", what,
		fx_job_text(job));
	ft_ok(in_time && fx_job_stopped(job),
	      "law3_target_stopped_in_mid_%s_times_out_unfenced_in_time", what);
	ft_ok(fault_completed_is_true(rig, target, job),
	      "law1_target_stopped_in_mid_%s_completed_is_true", what);
	return fx_job_wait(job, FX_LONG_MS);
}

/*
 * Checks a write whose target is stopped. Posted slices may land until the
 * target has fenced them. After the tasks have ended, no source byte may be
 * read. After a later transfer has completed, no byte of the old tasks may
 * land.
 */
static void stopped_in_mid_write(struct fault_rig *rig, struct fx_peer *target,
				 segment_id_t seg)
{
	struct fx_job job = fault_job(rig, target, seg, OPCODE_WRITE,
				      FAULT_MEM);
	unsigned char *before = malloc(FAULT_MEM);
	bool ended;

	memset(target->mem.p, 0x11, FAULT_MEM);
	fx_buf_fill(&rig->mem, 0, job.len, ++rig->sequence);
	ended = stop_in_mid_job(rig, target, &job);
	memcpy(before, target->mem.p, FAULT_MEM);
	fx_buf_poison(&rig->mem, 0, job.len);
	fx_peer_resume(target);
	if (!ended)
		goto out;
	ft_ok(fault_works_again(rig, target, seg, FAULT_MEM),
	      "target_resumed_after_mid_write_next_transfer_works");
	ft_ok(fx_buf_still(&target->mem, 0, FAULT_MEM, STOP_CALM_MS),
	      "law2_timed_out_write_lands_nothing_after_the_next_one");
	ft_ok(fx_job_failed_final(&job, &target->mem, before),
	      "law2_failed_is_final_at_the_target");
	ft_ok(fault_no_poison(&target->mem),
	      "law2_no_source_byte_is_read_after_the_end");
	fx_job_free(&job);
out:
	free(before);
}

static void stopped_in_mid_read(struct fault_rig *rig, struct fx_peer *target,
				segment_id_t seg)
{
	struct fx_job job = fault_job(rig, target, seg, OPCODE_READ, FAULT_MEM);
	uint64_t used = 6 * FX_MIB;
	bool ended;

	fx_buf_fill(&target->mem, 0, job.len, ++rig->sequence);
	fx_buf_poison(&rig->mem, 0, job.len);
	ended = stop_in_mid_job(rig, target, &job);
	fx_buf_poison(&rig->mem, 0, job.len);
	fx_peer_resume(target);
	if (!ended)
		return;
	fx_job_free(&job);
	ft_ok(fault_works_again(rig, target, seg,
				fault_point(rig, 64 * FX_MIB)),
	      "target_resumed_after_mid_read_next_transfer_works");
	ft_ok(fx_buf_still(&rig->mem, used, job.len - used, STOP_CALM_MS) &&
	      fx_buf_poisoned(&rig->mem, used, job.len - used),
	      "law2_timed_out_read_changes_no_local_byte");
}

/* Checks that transfers to other targets complete while one target is
 * stopped. */
static void other_targets_go_on(struct fault_rig *rig, struct fx_peer *target,
				segment_id_t seg)
{
	struct fx_job job = fault_job(rig, target, seg, OPCODE_WRITE,
				      FAULT_MEM);
	struct fx_peer other;
	segment_id_t seg2;
	bool good;

	if (!ft_ok(fx_target_start(&other, 16 * FX_MIB), "target_starts"))
		return;
	seg2 = openSegment(rig->engine, other.name);
	good = fault_next_works(rig, &other, seg2, 0);
	fx_peer_pause(target);
	good = !fx_job_start(&job) && good;
	for (unsigned int i = 0; i < 8 && good; i++)
		good = fault_next_works(rig, &other, seg2, i);
	fx_job_poll(&job);
	ft_ok(good && job.n[STATUS_COMPLETED] == 0,
	      "other_targets_work_while_one_is_stopped");
	fx_peer_resume(target);
	good = fx_job_wait(&job, fault_limit_ms());
	ft_ok(good, "tasks_of_stopped_target_end");
	fx_job_wait(&job, FX_LONG_MS);
	fx_job_free(&job);
	ft_ok(fault_next_works(rig, target, seg, 0),
	      "resumed_target_works_again");
	ft_ok(fx_peer_stop(&other), "other_target_ends_well");
	closeSegment(rig->engine, seg2);
}

/* An engine whose lanes can keep one connection for transfers open. The stopped
 * target occupies it. */
struct stop_narrow {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer other;
	struct fx_job job;		/* job to the stopped target */
	segment_id_t other_seg;
};

static bool narrow_begin(struct stop_narrow *n, struct fx_peer *target)
{
	setenv("MC_MAX_EP_PER_CTX", "2", 1);
	n->engine = fx_engine("tcp");
	unsetenv("MC_MAX_EP_PER_CTX");
	n->mem = fx_buf_map(32 * FX_MIB, -1);
	if (!n->engine || !fx_register(n->engine, &n->mem) ||
	    !fx_target_start(&n->other, 16 * FX_MIB))
		return false;
	fx_buf_fill(&n->mem, 0, n->mem.len, 1);
	n->other_seg = openSegment(n->engine, n->other.name);
	n->job = (struct fx_job){
		.engine = n->engine, .op = OPCODE_WRITE, .local = n->mem.p,
		.seg = openSegment(n->engine, target->name),
		.remote = target->mem.addr, .len = n->mem.len,
		.block = FX_MIB,
	};
	/* These transfers use all rails. */
	return fx_move(n->engine, n->other_seg, OPCODE_WRITE, n->mem.p,
		       n->other.mem.addr, 16 * FX_MIB, FX_MIB) &&
	       fx_move(n->engine, n->job.seg, OPCODE_WRITE, n->mem.p,
		       target->mem.addr, n->mem.len, FX_MIB);
}

static void narrow_end(struct stop_narrow *n)
{
	destroyTransferEngine(n->engine);
	fx_buf_unmap(&n->mem);
	ft_ok(fx_peer_stop(&n->other), "other_target_ends_well");
}

static void others_have_its_place(struct fault_rig *rig, struct fx_peer *target,
				  segment_id_t seg)
{
	struct stop_narrow n = { 0 };
	uint64_t from, took;
	bool good;

	(void)rig, (void)seg;
	if (!ft_ok(narrow_begin(&n, target),
		   "engine_with_two_connections_works"))
		return;
	fx_buf_poison(&n.other.mem, 0, n.other.mem.len);
	fx_peer_pause(target);
	good = !fx_job_start(&n.job);
	fx_job_reach(&n.job, n.mem.len, 300);
	from = ft_now_ns();
	good = good && fx_move(n.engine, n.other_seg, OPCODE_WRITE, n.mem.p,
			       n.other.mem.addr, FX_MIB, 0) &&
	       fx_buf_check(&n.other.mem, 0, FX_MIB, 1);
	took = (ft_now_ns() - from) / 1000000;
	ft_diag("a write to another target took %llu ms while a stopped target occupied the only connection",
		(unsigned long long)took);
	ft_ok(good && took <= fx_soon_ms(5000),
	      "connection_of_stopped_target_is_given_to_others");
	fx_peer_resume(target);
	good = fx_job_wait(&n.job, FX_LONG_MS) &&
	       n.job.n[STATUS_COMPLETED] == n.job.tasks &&
	       fx_buf_check(&target->mem, 0, n.mem.len, 1);
	ft_ok(good, "tasks_of_resumed_target_complete");
	fx_job_free(&n.job);
	narrow_end(&n);
}

/* Checks that destroyTransferEngine does not wait for a stopped target. */
static void destroy_beside_a_stopped_target(struct fault_rig *rig,
					    struct fx_peer *target,
					    segment_id_t seg)
{
	transfer_engine_t engine = fx_engine_hasty("tcp");
	struct fx_buf mem = fx_buf_map(64 * FX_MIB, -1);
	struct fx_job job = { .engine = engine, .op = OPCODE_WRITE,
			      .local = mem.p, .remote = target->mem.addr,
			      .len = mem.len, .block = FX_MIB };
	struct timespec from, to;

	(void)rig;
	(void)seg;
	job.seg = openSegment(engine, target->name);
	fx_register(engine, &mem);
	fx_buf_poison(&mem, 0, mem.len);
	fx_peer_pause(target);
	ft_ok(!fx_job_start(&job), "submit_to_a_stopped_target");
	clock_gettime(CLOCK_MONOTONIC, &from);
	destroyTransferEngine(engine);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ft_ok((to.tv_sec - from.tv_sec) * 1000 <= fault_limit_ms() + 1000,
	      "law3_destroy_with_a_stopped_target_ends_in_time");
	fx_buf_unmap(&mem);
	fx_peer_resume(target);
}

/* Runs fn `rounds` times with one target. Checks that transfers to that target
 * work before and after. */
static void stop_rounds(struct fault_rig *rig, unsigned int rounds,
			void (*fn)(struct fault_rig *rig,
				   struct fx_peer *target, segment_id_t seg))
{
	struct fx_peer target;
	segment_id_t seg;

	if (!ft_ok(fx_target_start(&target, FAULT_MEM + 8 * FX_MIB),
		   "target_starts"))
		return;
	seg = openSegment(rig->engine, target.name);
	ft_ok(fault_works_again(rig, &target, seg, 0),
	      "write_before_the_stop_completes");
	for (unsigned int i = 0; i < rounds; i++)
		fn(rig, &target, seg);
	ft_ok(fault_works_again(rig, &target, seg, 0), "target_is_healthy");
	ft_ok(fx_peer_stop(&target), "target_ends_well");
	closeSegment(rig->engine, seg);
}

void fault_stop_write(struct fault_rig *rig)
{
	stop_rounds(rig, STOP_ROUNDS, stopped_in_mid_write);
}

void fault_stop_read(struct fault_rig *rig)
{
	stop_rounds(rig, STOP_ROUNDS, stopped_in_mid_read);
}

void fault_stop_others(struct fault_rig *rig)
{
	stop_rounds(rig, 1, other_targets_go_on);
}

void fault_stop_places(struct fault_rig *rig)
{
	stop_rounds(rig, 1, others_have_its_place);
}

void fault_stop_destroy(struct fault_rig *rig)
{
	stop_rounds(rig, 1, destroy_beside_a_stopped_target);
}

/* --- initiator and target are stopped ------------------------------------ */

#define STOP_LEN	(24 * FX_MIB)

static bool both_start(struct fx_peer *from, struct fx_peer *to)
{
	int seg;

	if (!fx_peer_start(from, STOP_LEN, FX_HASTY, NULL) ||
	    fx_ask(from, "reg 0 %llu 1", STOP_LEN) ||
	    !fx_target_start(to, STOP_LEN))
		return false;
	seg = fx_ask(from, "open %s", to->name);
	fx_buf_fill(&from->mem, 0, STOP_LEN, 1);
	return seg > 0 &&
	       !fx_ask(from, "start %d 1 0 %llu 65536 4096 1 -", seg,
		       (unsigned long long)to->mem.addr) &&
	       !fx_ask(from, "wait") &&
	       !fx_ask(from, "start %d 1 0 %llu %llu %llu 1 -", seg,
		       (unsigned long long)to->mem.addr, STOP_LEN,
		       64 * FX_KIB);
}

/*
 * Stops an initiator for longer than MC_SLICE_TIMEOUT, as if its machine were
 * suspended. That time must not count as silence of the target. The target is
 * stopped a little earlier and resumed a little later, so that transfers are in
 * progress. Sets *amid to true if they were. Returns true if all bytes arrive
 * and both processes end well.
 */
static bool both_once(bool *amid)
{
	struct fx_peer from, to;
	bool good = both_start(&from, &to);

	fx_peer_pause(&to);
	fx_peer_pause(&from);
	*amid = !fx_buf_check(&to.mem, 0, STOP_LEN, 1);
	if (*amid)
		sleep(2 * FX_HASTY_S);
	fx_peer_resume(&from);
	fx_peer_resume(&to);
	good = !fx_ask(&from, "wait") && good;
	ft_diag("stopped %s: %s", *amid ?
		"in mid-transfer" : "too late", from.text);
	good = fx_buf_check(&to.mem, 0, STOP_LEN, 1) && good;
	good = fx_peer_stop(&from) && good;
	return fx_peer_stop(&to) && good;
}

void fault_stop_both(struct fault_rig *rig)
{
	bool amid = false, good = true;

	(void)rig;
	for (int i = 0; i < 10 && good && !amid; i++)
		good = both_once(&amid);
	ft_ok(good && amid,
	      "law3_suspended_time_does_not_count_as_silence");
}
