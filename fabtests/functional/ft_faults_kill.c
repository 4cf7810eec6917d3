/* SPDX-License-Identifier: BSD-2-Clause */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_port.h"
#include "fabtests/functional/ft_faults.h"
#include "fabtests/functional/fx.h"

#define KILL_ROUNDS 4

/* Returns true if each task is COMPLETED, FAILED or TIMEOUT. */
static bool kill_ended(const struct fx_job *job)
{
	unsigned int n = job->n[STATUS_COMPLETED] + job->n[STATUS_FAILED] +
			 job->n[STATUS_TIMEOUT];

	if (n == job->tasks)
		return true;
	ft_diag("%s", fx_job_text(job));
	return false;
}

static void kill_target(struct fault_rig *rig, int op)
{
	const char *what = op == OPCODE_READ ? "read" : "write";
	struct fx_peer target;
	struct fx_job job;
	segment_id_t seg;
	bool in_time;

	if (!ft_ok(fx_target_start(&target, FAULT_MEM), "target_starts"))
		return;
	seg = openSegment(rig->engine, target.name);
	ft_ok(fault_works_again(rig, &target, seg, 0),
	      "write_before_the_kill_completes");
	job = fault_job(rig, &target, seg, op, FAULT_MEM);
	fx_buf_fill(op == OPCODE_READ ? &target.mem : &rig->mem, 0, job.len,
		    ++rig->sequence);
	fx_buf_poison(op == OPCODE_READ ? &rig->mem : &target.mem, 0, job.len);
	if (!ft_ok(!fx_job_start(&job), "submit_to_a_live_target"))
		goto out;
	fx_job_reach(&job, fault_point(rig, job.len), FX_LONG_MS);
	fx_peer_kill(&target);
	in_time = fx_job_wait(&job, fault_limit_ms());
	ft_diag("target killed during the %s; tasks: %s", what,
		fx_job_text(&job));
	ft_ok(in_time && kill_ended(&job),
	      "law3_target_killed_in_mid_%s_every_task_ends_in_time", what);
	ft_ok(fault_completed_is_true(rig, &target, &job),
	      "law2_target_killed_in_mid_%s_completed_is_true", what);
	fx_job_wait(&job, FX_LONG_MS);
	fx_job_free(&job);
	closeSegment(rig->engine, seg);
out:
	fx_peer_drop(&target);
}

/* --- a program that the target has started ------------------------------- */

/* Returns true if the process with the pid (text) *arg runs its program, and
 * not only the code before exec. */
static bool kill_executed(void *arg)
{
	char path[64], name[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/comm", (const char *)arg);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(name, sizeof(name), f))
		name[0] = '\0';
	fclose(f);
	return !strncmp(name, "sleep", 5);
}

/* Returns true if at least one task did not complete, and if the error hint of
 * each such task says that the process has probably ended. */
static bool kill_noticed(const struct fx_job *job)
{
	struct te_error err;
	size_t i, n = 0;

	for (i = 0; i < job->tasks; i++) {
		if (fx_task_status(job, i) == STATUS_COMPLETED)
			continue;
		n++;
		if (te_task_error(job->engine, job->id, i, &err, sizeof(err)) ||
		    !strstr(err.hint, "has probably ended")) {
			ft_diag("task %zu: %s; %s", i, err.text, err.hint);
			return false;
		}
	}
	return n > 0;
}

/*
 * Kills a target that has started a program. If the program had inherited a
 * connection, the connection would stay open and the tasks would wait for
 * MC_SLICE_TIMEOUT. Returns false if all tasks had completed before the kill,
 * so that the round must be repeated.
 */
static bool kill_parent_once(struct fault_rig *rig)
{
	char program[32] = "";
	struct fx_peer target;
	struct fx_job job;
	segment_id_t seg;
	bool good, busy;
	uint64_t from;

	if (!ft_ok(fx_target_start(&target, FAULT_MEM), "target_starts"))
		return true;
	seg = openSegment(rig->engine, target.name);
	ft_ok(fault_works_again(rig, &target, seg, 0),
	      "write_before_the_kill_completes");
	good = !fx_ask(&target, "program");
	snprintf(program, sizeof(program), "%.31s", target.text);
	ft_ok(good && ft_wait_until(kill_executed, program, FX_LONG_MS),
	      "target_starts_a_program");
	job = fault_job(rig, &target, seg, OPCODE_WRITE, FAULT_MEM);
	good = !fx_job_start(&job);
	fx_job_reach(&job, 1, FX_LONG_MS);
	fx_peer_kill(&target);
	from = ft_now_ns();
	good = fx_job_wait(&job, FX_LONG_MS) && good;
	ft_diag("tasks: %s; the last ended %u ms after the kill",
		fx_job_text(&job),
		(unsigned int)((ft_now_ns() - from) / 1000000));
	busy = !good || job.n[STATUS_COMPLETED] < job.tasks;
	if (busy)
		ft_ok(good && kill_noticed(&job),
		      "program_of_killed_target_keeps_no_connection_open");
	ft_ok(kill_executed(program), "program_outlives_killed_target");
	fx_job_free(&job);
	if (atoi(program) > 1)
		kill(atoi(program), SIGKILL);
	closeSegment(rig->engine, seg);
	fx_peer_drop(&target);
	return busy;
}

void fault_kill_parent(struct fault_rig *rig)
{
	unsigned int i;

	for (i = 0; i < KILL_ROUNDS; i++)
		if (kill_parent_once(rig))
			return;
	ft_ok(false, "tasks_are_under_way_when_the_target_is_killed");
}

/* --- restart ------------------------------------------------------------- */

static bool kill_start_at(struct fx_peer *target, int port)
{
	char min[64], max[64];

	snprintf(min, sizeof(min), "MC_MIN_RPC_PORT=%d", port);
	snprintf(max, sizeof(max), "MC_MAX_RPC_PORT=%d", port);
	return fx_peer_start(target, 16 * FX_MIB, min, max, NULL) &&
	       !fx_ask(target, "reg 0 %llu 1", 16 * FX_MIB);
}

static bool kill_listed(struct fault_rig *rig, segment_id_t seg,
			const struct fx_peer *target)
{
	struct te_buffer bufs[8];
	size_t n = 8;

	return !te_segment_buffers(rig->engine, seg, bufs, sizeof(bufs[0]),
				   &n) &&
	       n == 1 && bufs[0].addr == target->mem.addr &&
	       bufs[0].length == target->mem.len;
}

/* Kills a target and starts another one with the same name. If `busy` is true,
 * it is killed during a transfer, otherwise while no transfer is posted. */
static void restarted_target(struct fault_rig *rig, bool busy)
{
	const char *how = busy ? "in_mid_write" : "while_idle";
	int port = ft_port("127.0.0.1");
	struct fx_peer target;
	struct fx_job job;
	segment_id_t seg, again;

	if (!ft_ok(port, "free_port_is_found") ||
	    !ft_ok(kill_start_at(&target, port), "target_takes_a_given_port"))
		return;
	seg = openSegment(rig->engine, target.name);
	ft_ok(fault_works_again(rig, &target, seg, 0),
	      "write_before_the_kill_completes");
	job = fault_job(rig, &target, seg, OPCODE_WRITE, 16 * FX_MIB);
	if (busy && !fx_job_start(&job)) {
		fx_job_reach(&job, fault_point(rig, job.len), FX_LONG_MS);
		fx_peer_kill(&target);
		ft_ok(fx_job_wait(&job, fault_limit_ms()), "tasks_end_in_time");
		fx_job_wait(&job, FX_LONG_MS);
		fx_job_free(&job);
	}
	fx_peer_kill(&target);
	fx_peer_drop(&target);
	if (!ft_ok(kill_start_at(&target, port),
		   "target_killed_%s_restarts_under_its_name",
		   how))
		return;
	ft_ok(fault_works_again(rig, &target, seg, 0),
	      "target_killed_%s_open_segment_leads_to_the_new_one", how);
	again = openSegment(rig->engine, target.name);
	ft_ok(again > 0, "target_killed_%s_is_opened_again", how);
	ft_ok(fault_works_again(rig, &target, again, 0),
	      "target_killed_%s_next_transfer_works", how);
	ft_ok(kill_listed(rig, again, &target),
	      "target_killed_%s_lists_the_new_buffers", how);
	ft_ok(fx_peer_stop(&target), "restarted_target_ends_well");
	closeSegment(rig->engine, again);
}

/* --- the initiator dies -------------------------------------------------- */

/* Makes the peer `from` write to the peer `to` in a thread. Returns true when
 * the first bytes have moved. */
static bool kill_flood(struct fx_peer *from, const struct fx_peer *to,
		       uint64_t off, uint64_t len)
{
	int seg = fx_ask(from, "open %s", to->name);
	uint64_t deadline = ft_now_ns() + FX_LONG_MS * UINT64_C(1000000);
	unsigned long long before = 0;

	if (seg <= 0 || fx_ask(from, "start %d 1 0 %llu %llu %llu 10000 -", seg,
			       (unsigned long long)(to->mem.addr + off),
			       (unsigned long long)len,
			       (unsigned long long)FX_MIB))
		return false;
	while (!before && ft_now_ns() < deadline && !fx_ask(from, "bytes"))
		sscanf(from->text, "%llu", &before);
	return before > 0;
}

/* Returns true as soon as the range has not changed for 200 ms, and false after
 * a time limit. Bytes that the killed initiator handed to the kernel may land
 * for a while. */
static bool kill_comes_to_rest(const struct fx_peer *target, uint64_t off,
			       uint64_t len)
{
	uint64_t deadline = ft_now_ns() + fx_ms(10000) * UINT64_C(1000000);

	while (!fx_buf_still(&target->mem, off, len, 200))
		if (ft_now_ns() >= deadline)
			return false;
	return true;
}

void fault_kill_initiator(struct fault_rig *rig)
{
	struct fx_peer target, other;
	bool good = true;
	segment_id_t seg;

	if (!ft_ok(fx_target_start(&target, 64 * FX_MIB), "target_starts"))
		return;
	seg = openSegment(rig->engine, target.name);
	for (unsigned int i = 0; i < KILL_ROUNDS; i++) {
		struct fx_job job = fault_job(rig, &target, seg, OPCODE_WRITE,
					      32 * FX_MIB);

		if (!fx_target_start(&other, 16 * FX_MIB))
			break;
		fx_buf_fill(&rig->mem, 0, job.len, ++rig->sequence);
		ft_ok(kill_flood(&other, &target, 48 * FX_MIB, 16 * FX_MIB),
		      "another_initiator_writes");
		good = !fx_job_start(&job);
		fx_peer_kill(&other);
		good = good && fx_job_wait(&job, FX_LONG_MS) &&
		       job.n[STATUS_COMPLETED] == job.tasks;
		if (!good)
			ft_diag("%s", fx_job_text(&job));
		good = fx_job_free(&job) && good &&
		       fx_buf_check(&target.mem, 0, job.len, rig->sequence);
		fx_peer_drop(&other);
		ft_ok(good,
		      "initiator_killed_in_mid_write_leaves_others_working");
		ft_ok(kill_comes_to_rest(&target, 48 * FX_MIB, 16 * FX_MIB),
		      "bytes_of_killed_initiator_stop_landing");
	}
	ft_ok(fault_next_works(rig, &target, seg, 48 * FX_MIB),
	      "initiator_killed_leaves_target_healthy");
	ft_ok(fx_peer_stop(&target), "target_ends_well");
	closeSegment(rig->engine, seg);
}

void fault_kill_target(struct fault_rig *rig)
{
	for (unsigned int i = 0; i < KILL_ROUNDS; i++) {
		kill_target(rig, OPCODE_WRITE);
		kill_target(rig, OPCODE_READ);
	}
}

void fault_restart(struct fault_rig *rig)
{
	restarted_target(rig, false);
	restarted_target(rig, true);
}
