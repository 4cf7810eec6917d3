/* SPDX-License-Identifier: BSD-2-Clause */

/* Processes killed and stopped, memory taken back, in mid-transfer. */

#include <string.h>

#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/ft_faults.h"
#include "fabtests/functional/fx.h"

unsigned int fault_limit_ms(void)
{
	return FX_HASTY_S * 1000 + fx_ms(8000);
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
			ft_diag("task %zu is COMPLETED but not in place", i);
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
		ft_diag("at byte %zu is what was put there after the end",
			(size_t)((unsigned char *)at - buf->p));
	return !at;
}

/* "ft_faults NAME" runs one part. */
static const struct {
	const char *name;
	void (*fn)(struct fault_rig *rig);
	bool hasty;
} fault_parts[] = {
	{ "kill-target", fault_kill_target, true },
	{ "kill-initiator", fault_kill_initiator, false },
	{ "restart", fault_restart, true },
	{ "unregister-write", fault_unregister_write, false },
	{ "unregister-read", fault_unregister_read, false },
	{ "unregister-stopped", fault_unregister_stopped, false },
	{ "unregister-own", fault_unregister_own, false },
	{ "stop-write", fault_stop_write, true },
	{ "stop-others", fault_stop_others, false },
	{ "stop-destroy", fault_stop_destroy, false },
	{ "cost", fault_cost, false },
	{ "stop-read", fault_stop_read, true },
};

static void fault_run(struct fault_rig *rig, size_t part)
{
	rig->engine = fault_parts[part].hasty ? rig->hasty : rig->patient;
	fault_parts[part].fn(rig);
}

int main(int argc, char **argv)
{
	struct fault_rig rig = { 0 };

	fx_init(argc, argv);
	rig.random = fx_seed();
	rig.mem = fx_buf_map(FAULT_MEM, -1);
	rig.patient = fx_engine("tcp");
	rig.hasty = fx_engine_hasty("tcp");
	if (!ft_ok(rig.patient && fx_register(rig.patient, &rig.mem) &&
		   rig.hasty && fx_register(rig.hasty, &rig.mem),
		   "engines_start"))
		return ft_result();
	for (size_t i = 0; i < sizeof(fault_parts) / sizeof(*fault_parts); i++)
		if (argc < 2 || !strcmp(argv[1], fault_parts[i].name))
			fault_run(&rig, i);
	ft_ok(fx_buf_guards(&rig.mem), "guard_zones_are_unchanged");
	destroyTransferEngine(rig.hasty);
	destroyTransferEngine(rig.patient);
	fx_buf_unmap(&rig.mem);
	return ft_result();
}
