/* SPDX-License-Identifier: BSD-2-Clause */

/* Kills and stops processes and unregisters memory during transfers. */

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_options.h"
#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/ft_faults.h"
#include "fabtests/functional/fx.h"

unsigned int fault_limit_ms(void)
{
	return FX_HASTY_S * 1000 + fx_soon_ms(8000);
}

uint64_t fault_point(struct fault_rig *rig, uint64_t len)
{
	return 1 + ft_random(&rig->random) % (len * 6 / 10);
}

struct fx_job fault_job(const struct fault_rig *rig, const struct fx_peer *to,
			segment_id_t seg, int op, uint64_t len)
{
	struct fx_job job = {
		.engine = rig->engine, .seg = seg, .op = op,
		.local = rig->mem.p, .remote = to->mem.addr, .len = len,
		.block = FAULT_BLOCK,
	};

	return job;
}

bool fault_completed_is_true(const struct fault_rig *rig,
			     const struct fx_peer *target,
			     const struct fx_job *job)
{
	for (size_t i = 0; i < job->tasks; i++) {
		uint64_t off = i * job->block;

		if (fx_task_status(job, i) != STATUS_COMPLETED)
			continue;
		if (memcmp(rig->mem.p + off, target->mem.p + off, job->block)) {
			ft_diag("task %zu is COMPLETED but its bytes are not "
				"in place", i);
			return false;
		}
	}
	return true;
}

static bool fault_works(struct fault_rig *rig, struct fx_peer *target,
			segment_id_t seg, uint64_t off, unsigned int ms)
{
	uint64_t len = 5 * FX_MIB + 3, seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, 0, len, seq);
	if (!fx_move_until(rig->engine, seg, OPCODE_WRITE, rig->mem.p,
			   target->mem.addr + off, len, FX_MIB, ms) ||
	    !fx_buf_check(&target->mem, off, len, seq))
		return false;
	fx_buf_poison(&rig->mem, 0, len);
	return fx_move_until(rig->engine, seg, OPCODE_READ, rig->mem.p,
			     target->mem.addr + off, len, FX_MIB, ms) &&
	       fx_buf_check(&rig->mem, 0, len, seq);
}

bool fault_next_works(struct fault_rig *rig, struct fx_peer *target,
		      segment_id_t seg, uint64_t off)
{
	return fault_works(rig, target, seg, off, 0);
}

bool fault_works_again(struct fault_rig *rig, struct fx_peer *target,
		       segment_id_t seg, uint64_t off)
{
	return fault_works(rig, target, seg, off, fx_ms(20000));
}

bool fault_no_poison(const struct fx_buf *buf)
{
	unsigned char run[64];
	void *at;

	memset(run, FX_POISON, sizeof(run));
	at = memmem(buf->p, buf->len, run, sizeof(run));
	if (at)
		ft_diag("byte %zu has the pattern written after the tasks had "
			"ended",
			(size_t)((unsigned char *)at - buf->p));
	return !at;
}

/* "ft_faults NAME" runs one part. Without NAME, the parts of the groups 1 to
 * FAULT_GROUPS run first, each group in a process of its own, because these
 * parts mostly wait. The parts that measure (group 0) run afterwards. */
#define FAULT_GROUPS 3

static const struct fault_part {
	const char *name;
	void (*fn)(struct fault_rig *rig);
	bool hasty;
	int group;
} fault_parts[] = {
	{ "kill-target", fault_kill_target, true, 1 },
	{ "kill-initiator", fault_kill_initiator, false, 2 },
	{ "kill-parent", fault_kill_parent, false, 2 },
	{ "restart", fault_restart, true, 2 },
	{ "unregister-write", fault_unregister_write, false, 2 },
	{ "unregister-read", fault_unregister_read, false, 2 },
	{ "unregister-stopped", fault_unregister_stopped, false, 2 },
	{ "unregister-own", fault_unregister_own, false, 2 },
	{ "stop-write", fault_stop_write, true, 3 },
	{ "stop-others", fault_stop_others, false, 3 },
	{ "stop-places", fault_stop_places, false, 3 },
	{ "stop-destroy", fault_stop_destroy, false, 3 },
	{ "stop-both", fault_stop_both, false, 3 },
	{ "stop-read", fault_stop_read, true, 3 },
	{ "cost", fault_cost, false, 0 },
};

/* Runs the part with that name. If name is NULL, runs all parts of the group.
 * Returns the exit code. */
static int fault_run(const char *name, int group)
{
	struct fault_rig rig = { 0 };

	rig.random = fx_seed();
	rig.mem = fx_buf_map(FAULT_MEM, -1);
	rig.patient = fx_engine("tcp");
	rig.hasty = fx_engine_hasty("tcp");
	if (!ft_ok(rig.patient && fx_register(rig.patient, &rig.mem) &&
		   rig.hasty && fx_register(rig.hasty, &rig.mem),
		   "engines_start"))
		return ft_result();
	for (size_t i = 0; i < sizeof(fault_parts) / sizeof(*fault_parts);
	     i++) {
		const struct fault_part *part = &fault_parts[i];

		if (name ? strcmp(name, part->name) : group != part->group)
			continue;
		rig.engine = part->hasty ? rig.hasty : rig.patient;
		part->fn(&rig);
	}
	ft_ok(fx_buf_guards(&rig.mem), "guard_zones_are_unchanged");
	destroyTransferEngine(rig.hasty);
	destroyTransferEngine(rig.patient);
	fx_buf_unmap(&rig.mem);
	return ft_result();
}

static bool fault_ends_well(pid_t pid)
{
	int status = 0;

	return pid > 0 && waitpid(pid, &status, 0) == pid &&
	       WIFEXITED(status) && !WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	pid_t pid[FAULT_GROUPS];
	const char *only;
	int i;

	fx_init(argc, argv);
	only = ft_options_word(argc, argv, "CASE", "the only case to run; all");
	if (only)
		return fault_run(only, 0);
	/* With line buffering, lines of different processes do not mix. */
	setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
	for (i = 0; i < FAULT_GROUPS; i++) {
		pid[i] = fork();
		if (!pid[i])
			return fault_run(NULL, i + 1);
	}
	for (i = 0; i < FAULT_GROUPS; i++)
		ft_ok(fault_ends_well(pid[i]), "group_%d_ends_well", i + 1);
	return fault_run(NULL, 0);
}
