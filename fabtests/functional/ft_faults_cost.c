/* SPDX-License-Identifier: BSD-2-Clause */

/* Measures how much a stopped or dead target slows down transfers to another
 * target. */

#include <stdlib.h>

#include "fabtests/common/ft_num.h"
#include "fabtests/functional/ft_faults.h"
#include "fabtests/functional/fx.h"

#define COST_TURNS 7
#define COST_NS (FT_NS_PER_SEC / 4)	/* duration of one measurement */
/* size of one transfer to the healthy target */
#define COST_BYTES (16 * FX_MIB)
/* number of bytes queued for the stopped or dead target */
#define COST_QUEUED (64 * FX_MIB)
/* least allowed ratio of the rates with and without the fault; a machine
 * without other load reaches 0.95 */
#define COST_LEAST 0.3

/* Returns the rate of writes to a healthy target in bytes per second, or 0 if a
 * transfer failed. */
static double cost_rate(struct fault_rig *rig, const struct fx_peer *other,
			segment_id_t seg)
{
	uint64_t begin = ft_now_ns(), bytes = 0;

	while (ft_now_ns() - begin < COST_NS) {
		if (!fx_move(rig->engine, seg, OPCODE_WRITE,
			     rig->mem.p + COST_QUEUED, other->mem.addr,
			     COST_BYTES, FX_MIB))
			return 0;
		bytes += COST_BYTES;
	}
	return (double)bytes * 1e9 / (double)(ft_now_ns() - begin);
}

static double cost_median(double *rate)
{
	ft_sort(rate, COST_TURNS);
	return rate[COST_TURNS / 2];
}

static void cost_say(double *calm, double *beside, const char *how)
{
	double a = cost_median(calm), b = cost_median(beside);

	ft_diag("responding target: %.0f MB/s (%.0f to %.0f) alone, %.0f MB/s "
		"(%.0f to %.0f) while another target is %s: ratio %.3f",
		a / 1e6, calm[1] / 1e6, calm[COST_TURNS - 2] / 1e6, b / 1e6,
		beside[1] / 1e6, beside[COST_TURNS - 2] / 1e6, how, b / a);
	/* Other load may slow down most of the measurements, but not all of
	 * them. The ratio is therefore checked with one of the fastest. */
	ft_ok(calm[0] > 0 && beside[0] > 0 &&
	      beside[COST_TURNS - 2] > COST_LEAST * a,
	      "%s_target_does_not_slow_down_others", how);
}

static void cost_of_stopped(struct fault_rig *rig, struct fx_peer *target,
			    segment_id_t seg, const struct fx_peer *other,
			    segment_id_t seg2)
{
	struct fx_job job = fault_job(rig, target, seg, OPCODE_WRITE,
				      COST_QUEUED);
	double calm[COST_TURNS], beside[COST_TURNS];
	bool good = true;

	for (unsigned int i = 0; i < COST_TURNS && good; i++) {
		calm[i] = cost_rate(rig, other, seg2);
		good = !fx_job_start(&job);
		fx_job_reach(&job, fault_point(rig, FX_MIB), FX_LONG_MS);
		fx_peer_pause(target);
		beside[i] = cost_rate(rig, other, seg2);
		fx_peer_resume(target);
		good = fx_job_wait(&job, FX_LONG_MS) && good;
		good = job.n[STATUS_COMPLETED] == job.tasks && good;
		fx_job_free(&job);
	}
	if (ft_ok(good, "tasks_of_stopped_target_complete_later"))
		cost_say(calm, beside, "stopped");
}

/* Measures with a target that has been killed. New requests are submitted to it
 * in each turn. */
static void cost_of_dead(struct fault_rig *rig, struct fx_peer *target,
			 segment_id_t seg, const struct fx_peer *other,
			 segment_id_t seg2)
{
	struct fx_job job = fault_job(rig, target, seg, OPCODE_WRITE,
				      COST_QUEUED);
	double calm[COST_TURNS], beside[COST_TURNS];

	for (unsigned int i = 0; i < COST_TURNS; i++)
		calm[i] = cost_rate(rig, other, seg2);
	fx_peer_kill(target);
	for (unsigned int i = 0; i < COST_TURNS; i++) {
		bool queued = !fx_job_start(&job);

		beside[i] = cost_rate(rig, other, seg2);
		if (!queued)
			continue;
		te_cancel_batch(rig->engine, job.id);
		fx_job_wait(&job, FX_LONG_MS);
		fx_job_free(&job);
	}
	cost_say(calm, beside, "dead");
}

void fault_cost(struct fault_rig *rig)
{
	struct fx_peer target, other;
	segment_id_t seg, seg2;

	if (!ft_ok(fx_target_start(&target, COST_QUEUED), "target_starts"))
		return;
	if (!ft_ok(fx_target_start(&other, COST_BYTES), "target_starts")) {
		fx_peer_drop(&target);
		return;
	}
	seg = openSegment(rig->engine, target.name);
	seg2 = openSegment(rig->engine, other.name);
	cost_rate(rig, &other, seg2);
	cost_of_stopped(rig, &target, seg, &other, seg2);
	cost_of_dead(rig, &target, seg, &other, seg2);
	fx_peer_drop(&target);
	ft_ok(fx_peer_stop(&other), "other_target_ends_well");
	closeSegment(rig->engine, seg);
	closeSegment(rig->engine, seg2);
}
