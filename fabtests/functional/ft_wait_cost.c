/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Tests of the cost of waiting: CPU time during a wait, and latency at its end.
 * This program must run alone.
 */

#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_num.h"
#include "fabtests/functional/ft_wait.h"

#define COST_SECONDS 1
#define COST_WRITES 300
#define COST_NONE 1e12
/* Number of measurements. The best one is used, because other processes use the
 * cores too. */
#define COST_ROUNDS 8
/* maximum CPU time of a wait, as a fraction of one core */
#define COST_ASLEEP (fx_slow() ? 0.3 : 0.1)

/* Returns the CPU time of the whole process during a wait of COST_SECONDS, as a
 * fraction of one core. */
static double cost_waiting(struct wait_rig *rig, const struct fx_job *job)
{
	double cpu = ft_cpu_seconds();
	uint64_t from = ft_now_ns();

	ft_ok(te_wait_batch(rig->engine, job->id, COST_SECONDS * 1000 * WAIT_MS,
			    NULL) == TE_TIMED_OUT,
	      "wait_for_a_stopped_target_times_out");
	return (ft_cpu_seconds() - cpu) * 1e9 / (double)(ft_now_ns() - from);
}

/* Checks that the waiting thread and the progress thread use almost no CPU
 * time. */
static void wait_cpu(struct wait_rig *rig)
{
	struct fx_job job;
	double share;
	int i;

	fx_peer_pause(&rig->target);
	job = wait_job(rig, OPCODE_WRITE, 0, 4 * FX_MIB, FX_MIB);
	/* The engine still sends until the socket is full. Measure after
	 * that. */
	te_wait_batch(rig->engine, job.id, 100 * WAIT_MS, NULL);
	share = cost_waiting(rig, &job);
	for (i = 1; i < COST_ROUNDS && share >= COST_ASLEEP; i++)
		share = cost_waiting(rig, &job);
	ft_diag("a thread asleep in te_wait_batch used %.2f %% of a core",
		share * 100);
	ft_ok(share < COST_ASLEEP, "a_sleeping_waiter_costs_no_processor_time");
	fx_peer_resume(&rig->target);
	te_wait_batch(rig->engine, job.id, -1, NULL);
	fx_job_free(&job);
}

static double cost_less(double a, double b)
{
	return a < b ? a : b;
}

static bool cost_one(transfer_engine_t engine, struct transfer_request *req,
		     bool poll)
{
	struct transfer_status st = { .status = STATUS_WAITING };
	batch_id_t id = allocateBatchID(engine, 1);
	bool good = !submitTransfer(engine, id, req, 1);

	if (good && poll)
		while (st.status == STATUS_WAITING &&
		       !getTransferStatus(engine, id, 0, &st))
			;
	else if (good)
		good = !te_wait_batch(engine, id, -1, &st);
	return !freeBatchID(engine, id) && good &&
	       st.status == STATUS_COMPLETED;
}

/* Returns the median duration of a 64-byte write in µs, or a negative value if
 * a write failed. If `poll` is true, calls getTransferStatus repeatedly instead
 * of waiting. */
static double cost_median(transfer_engine_t engine, struct wait_rig *rig,
			  segment_id_t seg, void *local, bool poll)
{
	static double took[COST_WRITES];
	struct transfer_request req = {
		.opcode = OPCODE_WRITE, .source = local, .target_id = seg,
		.target_offset = rig->target.mem.addr, .length = 64,
	};
	uint64_t from;

	for (int i = 0; i < COST_WRITES; i++) {
		from = ft_now_ns();
		if (!cost_one(engine, &req, poll))
			return -1;
		took[i] = (double)(ft_now_ns() - from) / 1e3;
	}
	ft_sort(took, COST_WRITES);
	return took[COST_WRITES / 2];
}

/* Returns cost_median() of an engine with MOONRAIL_SPIN_US=0, in which every
 * wait sleeps until the progress thread wakes it. Returns a negative value on
 * failure. */
static double cost_asleep(struct wait_rig *rig)
{
	struct fx_buf mem = fx_buf_map(4096, -1);
	transfer_engine_t engine;
	segment_id_t seg;
	double us = -1;

	setenv("MOONRAIL_SPIN_US", "0", 1);
	engine = fx_engine("tcp");
	unsetenv("MOONRAIL_SPIN_US");
	if (engine && fx_register(engine, &mem)) {
		seg = openSegment(engine, rig->target.name);
		us = COST_NONE;
		for (int i = 0; i < COST_ROUNDS; i++)
			us = cost_less(us, cost_median(engine, rig, seg, mem.p,
						       false));
	}
	destroyTransferEngine(engine);
	fx_buf_unmap(&mem);
	return us;
}

static void wait_latency(struct wait_rig *rig)
{
	double poll = COST_NONE, wait = COST_NONE, asleep;

	for (int i = 0; i < COST_ROUNDS; i++) {
		poll = cost_less(poll, cost_median(rig->engine, rig, rig->seg,
						   rig->mem.p, true));
		wait = cost_less(wait, cost_median(rig->engine, rig, rig->seg,
						   rig->mem.p, false));
	}
	asleep = cost_asleep(rig);
	ft_diag("64 B write, median: polling %.1f us, waiting %.1f us (%.2f "
		"times), waiting without spinning %.1f us", poll, wait,
		wait / poll, asleep);
	ft_ok(poll > 0 && wait > 0 && asleep > 0, "writes_are_waited_for");
	ft_ok(wait < 2 * poll + 100 && asleep < 5 * poll + 1000,
	      "waiting_is_not_much_slower_than_polling");
}

static const struct wait_part cost_parts[] = {
	{ "cpu", wait_cpu, false },
	{ "latency", wait_latency, false },
};

int main(int argc, char **argv)
{
	return wait_main(argc, argv, cost_parts,
			 sizeof(cost_parts) / sizeof(*cost_parts));
}
