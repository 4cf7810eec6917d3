/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/sim/sim_plan.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_cluster.h"
#include "fabtests/sim/sim_net.h"

/* One fault of the plan. */
struct plan_fault {
	uint32_t index;
	const struct plan_kind *kind;
	uint64_t from_ns, until_ns;
	struct sim_net_nic a, b;
	bool both;			/* the fault affects both directions
					 * between `a` and `b` */
	struct sim_rng rng;		/* random stream of the fault; also
					 * supplies its details, such as a
					 * latency */
};

/* A kind of fault. `start` is called when a fault of this kind begins, `stop`
 * when it ends; `stop` may be NULL. */
struct plan_kind {
	const char *name;
	uint32_t weight;		/* relative frequency of this kind */
	uint64_t max_ns;		/* longest duration of a fault of this
					 * kind */
	void (*start)(struct plan_fault *f);
	void (*stop)(struct plan_fault *f);
};

static struct {
	struct plan_fault *faults;
	uint32_t n;
	const bool *left_out;
} plan;

/* --- paths --- */

/* Calls `fn` to change the state of the path from `a` to `b`, and of the
 * opposite path if the fault affects both directions. */
static void path_change(struct plan_fault *f,
			void (*fn)(struct sim_net_path *, struct sim_rng *))
{
	struct sim_net_path path;

	sim_net_path_get(f->a, f->b, &path);
	fn(&path, &f->rng);
	sim_net_path_set(f->a, f->b, &path);
	if (!f->both)
		return;
	sim_net_path_get(f->b, f->a, &path);
	fn(&path, &f->rng);
	sim_net_path_set(f->b, f->a, &path);
}

static void path_block(struct sim_net_path *path, struct sim_rng *rng)
{
	(void)rng;
	path->blocked = true;
}

static void path_stall(struct sim_net_path *path, struct sim_rng *rng)
{
	(void)rng;
	path->stalled = true;
}

static void path_slow(struct sim_net_path *path, struct sim_rng *rng)
{
	path->latency_ns = sim_rng_range(rng, SIM_MS, 100 * SIM_MS);
	path->jitter_ns = sim_rng_below(rng, path->latency_ns);
	path->bandwidth = sim_rng_range(rng, 100000, 10000000);
}

static void path_lossy(struct sim_net_path *path, struct sim_rng *rng)
{
	path->loss_ppm = (uint32_t)sim_rng_range(rng, 1000, 300000);
}

static void fault_block(struct plan_fault *f)
{
	path_change(f, path_block);
}

static void fault_stall(struct plan_fault *f)
{
	path_change(f, path_stall);
}

static void fault_slow(struct plan_fault *f)
{
	path_change(f, path_slow);
}

static void fault_lossy(struct plan_fault *f)
{
	path_change(f, path_lossy);
}

/* Restores the default state of both directions of a path. Reads the default
 * state from the path from NIC `a` to itself, which no fault changes. */
static void fault_mend(struct plan_fault *f)
{
	struct sim_net_path path;

	sim_net_path_get(f->a, f->a, &path);
	sim_net_path_set(f->a, f->b, &path);
	sim_net_path_set(f->b, f->a, &path);
}

/* --- NICs --- */

static void fault_unplug(struct plan_fault *f)
{
	sim_net_nic_link(f->a, false);
}

static void fault_plug(struct plan_fault *f)
{
	sim_net_nic_link(f->a, true);
}

static void fault_reset(struct plan_fault *f)
{
	sim_net_reset(f->a, f->b);
}

static void fault_reset_side(struct plan_fault *f)
{
	sim_net_reset_side(f->a, f->b);
}

static void fault_again(struct plan_fault *f)
{
	struct sim_net_fault fault;

	sim_net_fault_get(f->a, &fault);
	fault.again_ns = f->until_ns;
	fault.again_ppm = (uint32_t)sim_rng_range(&f->rng, 100000, 1000000);
	sim_net_fault_set(f->a, &fault);
}

static void fault_late(struct plan_fault *f)
{
	struct sim_net_fault fault;

	sim_net_fault_get(f->a, &fault);
	fault.late_ns = sim_rng_range(&f->rng, SIM_MS, 3 * SIM_SEC);
	fault.late_ppm = (uint32_t)sim_rng_range(&f->rng, 10000, 500000);
	sim_net_fault_set(f->a, &fault);
}

static void fault_lose(struct plan_fault *f)
{
	struct sim_net_fault fault;

	sim_net_fault_get(f->a, &fault);
	fault.lose = (uint32_t)sim_rng_range(&f->rng, 1, 4);
	sim_net_fault_set(f->a, &fault);
}

static void fault_flush(struct plan_fault *f)
{
	struct sim_net_fault fault;

	sim_net_fault_get(f->a, &fault);
	fault.flush = (uint32_t)sim_rng_range(&f->rng, 1, 4);
	sim_net_fault_set(f->a, &fault);
}

static void fault_refuse(struct plan_fault *f)
{
	struct sim_net_fault fault;

	sim_net_fault_get(f->a, &fault);
	fault.ep_refuse = -FI_ENOMEM;
	sim_net_fault_set(f->a, &fault);
}

static void fault_clear(struct plan_fault *f)
{
	const struct sim_net_fault fault = { 0 };

	sim_net_fault_set(f->a, &fault);
}

/* --- hosts --- */

static void fault_stop(struct plan_fault *f)
{
	sim_host_stop(sim_host_get(f->a.host));
}

static void fault_resume(struct plan_fault *f)
{
	sim_host_resume(sim_host_get(f->a.host));
}

static void fault_jump(struct plan_fault *f)
{
	sim_host_jump(sim_host_get(f->a.host),
		      sim_rng_below(&f->rng, 60 * SIM_SEC));
}

static void fault_kill(struct plan_fault *f)
{
	sim_cluster_kill(sim_cluster_node(f->a.host));
}

static void fault_restart(struct plan_fault *f)
{
	sim_cluster_restart(sim_cluster_node(f->a.host));
}

static void fault_leave(struct plan_fault *f)
{
	sim_cluster_leave(sim_cluster_node(f->a.host));
}

static void fault_power_off(struct plan_fault *f)
{
	sim_net_power(f->a.host, false);
	sim_cluster_kill(sim_cluster_node(f->a.host));
}

static void fault_power_on(struct plan_fault *f)
{
	sim_net_power(f->a.host, true);
	sim_cluster_restart(sim_cluster_node(f->a.host));
}

static const struct plan_kind plan_kinds[] = {
	{ "block path", 20, 20 * SIM_SEC, fault_block, fault_mend },
	{ "stall path", 10, 20 * SIM_SEC, fault_stall, fault_mend },
	{ "slow path", 10, 20 * SIM_SEC, fault_slow, fault_mend },
	{ "lossy path", 10, 20 * SIM_SEC, fault_lossy, fault_mend },
	{ "unplug NIC", 15, 20 * SIM_SEC, fault_unplug, fault_plug },
	{ "reset", 15, 0, fault_reset, NULL },
	{ "reset one side", 10, 0, fault_reset_side, NULL },
	{ "refuse posts", 5, SIM_SEC, fault_again, fault_clear },
	{ "late completions", 5, 10 * SIM_SEC, fault_late, fault_clear },
	{ "lose completions", 5, 5 * SIM_SEC, fault_lose, fault_clear },
	{ "flush completions", 10, 5 * SIM_SEC, fault_flush, fault_clear },
	{ "refuse endpoints", 3, 5 * SIM_SEC, fault_refuse, fault_clear },
	{ "stop host", 10, 10 * SIM_SEC, fault_stop, fault_resume },
	{ "clock jump", 3, 0, fault_jump, NULL },
	{ "kill process", 10, 10 * SIM_SEC, fault_kill, fault_restart },
	{ "leave", 5, 20 * SIM_SEC, fault_leave, fault_restart },
	{ "power off", 5, 20 * SIM_SEC, fault_power_off, fault_power_on },
};

#define PLAN_KINDS (sizeof(plan_kinds) / sizeof(plan_kinds[0]))

/* --- the plan --- */

static const struct plan_kind *plan_choose(struct sim_rng *rng)
{
	uint32_t i, sum = 0, at;

	for (i = 0; i < PLAN_KINDS; i++)
		sum += plan_kinds[i].weight;
	at = (uint32_t)sim_rng_below(rng, sum);
	for (i = 0; at >= plan_kinds[i].weight; i++)
		at -= plan_kinds[i].weight;
	return &plan_kinds[i];
}

/* Fills in fault number `i` of the plan, with random values from its stream. */
static void plan_make(struct plan_fault *f, uint32_t i, uint64_t from_ns,
		      uint64_t until_ns)
{
	const struct sim_conf *conf = sim_cluster_conf();
	uint64_t length;

	f->index = i;
	sim_rng_init(&f->rng, "fault", i);
	f->kind = plan_choose(&f->rng);
	f->from_ns = sim_rng_range(&f->rng, from_ns, until_ns - 1);
	/* The duration is a random number below another random number, which
	 * makes short durations frequent. */
	length = sim_rng_below(&f->rng, f->kind->max_ns + 1);
	length = sim_rng_below(&f->rng, length + 1);
	f->until_ns = f->from_ns + length;
	if (f->until_ns > until_ns)
		f->until_ns = until_ns;
	f->a.host = (uint32_t)sim_rng_below(&f->rng, conf->hosts);
	f->b.host = (uint32_t)sim_rng_below(&f->rng, conf->hosts - 1);
	f->b.host += f->b.host >= f->a.host;
	f->a.nic = (uint32_t)sim_rng_below(&f->rng, conf->rails);
	f->b.nic = (uint32_t)sim_rng_below(&f->rng, conf->rails);
	f->both = sim_rng_below(&f->rng, 2);
}

static void plan_start(void *arg)
{
	struct plan_fault *f = arg;

	SIM_TRACE(f->a.host, "fault", f->index, f->until_ns - f->from_ns);
	sim_cluster_disturb(f->until_ns);
	f->kind->start(f);
}

static void plan_stop(void *arg)
{
	struct plan_fault *f = arg;

	SIM_TRACE(f->a.host, "mended", f->index);
	f->kind->stop(f);
}

void sim_plan_begin(uint32_t n, uint64_t from_ns, uint64_t until_ns,
		    const bool *left_out)
{
	struct plan_fault *f;
	uint32_t i;

	plan.faults = calloc(n ? n : 1, sizeof(*plan.faults));
	if (!plan.faults || n > SIM_PLAN_MAX)
		sim_fail("no memory for %u faults", n);
	plan.n = n;
	plan.left_out = left_out;
	for (i = 0; i < n; i++) {
		f = &plan.faults[i];
		plan_make(f, i, from_ns, until_ns);
		if (left_out && left_out[i])
			continue;
		sim_at(f->from_ns, plan_start, f);
		if (f->kind->stop)
			sim_at(f->until_ns, plan_stop, f);
	}
}

void sim_plan_heal(void)
{
	uint32_t i;

	for (i = 0; i < sim_host_count(); i++)
		sim_host_resume(sim_host_get(i));
}

void sim_plan_print(FILE *out)
{
	const struct plan_fault *f;
	uint32_t i;

	for (i = 0; i < plan.n; i++) {
		f = &plan.faults[i];
		if (plan.left_out && plan.left_out[i])
			continue;
		fprintf(out, "  %4u: %.6f s to %.6f s: %s, host %u NIC %u",
			i, (double)(f->from_ns - SIM_START_NS) / 1e9,
			(double)(f->until_ns - SIM_START_NS) / 1e9,
			f->kind->name, f->a.host, f->a.nic);
		fprintf(out, "%s host %u NIC %u\n", f->both ? " <->" : " ->",
			f->b.host, f->b.nic);
	}
}

void sim_plan_end(void)
{
	free(plan.faults);
	plan.faults = NULL;
}
