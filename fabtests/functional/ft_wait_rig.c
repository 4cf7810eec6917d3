/* SPDX-License-Identifier: BSD-2-Clause */

/* Functions that start and use the initiator and the target of ft_wait and
 * ft_wait_cost. */

#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_options.h"
#include "fabtests/functional/ft_wait.h"

uint32_t wait_random(struct wait_rig *rig, uint32_t below)
{
	rig->random =
		rig->random * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)((rig->random >> 33) % below);
}

struct fx_job wait_job(struct wait_rig *rig, int op, uint64_t off, uint64_t len,
		       uint64_t block)
{
	struct fx_job job = { .engine = rig->engine,
			      .seg = rig->seg,
			      .op = op,
			      .local = rig->mem.p + off,
			      .remote = rig->target.mem.addr + off,
			      .len = len,
			      .block = block };

	if (!ft_ok(!fx_job_start(&job), "submit"))
		job.n[7] = 1;
	return job;
}

static void wait_explain(struct fx_job *job)
{
	struct te_error err = { 0 };

	fx_job_poll(job);
	for (size_t i = 0; i < job->tasks && !err.code; i++)
		te_task_error(job->engine, job->id, i, &err, sizeof(err));
	ft_diag("tasks: %s; error %d: %s", fx_job_text(job), err.code,
		err.text);
}

bool wait_works(struct wait_rig *rig)
{
	uint64_t seq = ++rig->sequence, len = FX_MIB;
	struct transfer_status st = { .status = -1 };
	struct fx_job job;
	bool good;

	fx_buf_fill(&rig->mem, 0, len, seq);
	job = wait_job(rig, OPCODE_WRITE, 0, len, 64 * FX_KIB);
	if (job.n[7])
		return false;
	good = !te_wait_batch(rig->engine, job.id, -1, &st) &&
	       st.status == STATUS_COMPLETED && st.transferred_bytes == len &&
	       fx_buf_check(&rig->target.mem, 0, len, seq);
	if (!good)
		wait_explain(&job);
	return fx_job_free(&job) && good;
}

/* Posted slices, lanes and the fence may each take MOONRAIL_FENCE_MS, which is
 * 500 ms. */
unsigned int wait_end_ms(void)
{
	return fx_soon_ms(1500 + WAIT_SLACK_MS);
}

static void *wait_thread_main(void *arg)
{
	struct wait_thread *t = arg;

	t->ret = te_wait_batch(t->engine, t->id, t->timeout_us, &t->status);
	t->ended_ns = ft_now_ns();
	return NULL;
}

void wait_thread_start(struct wait_thread *t)
{
	ft_ok(!pthread_create(&t->thread, NULL, wait_thread_main, t),
	      "a_thread_waits");
}

void wait_thread_join(struct wait_thread *t)
{
	pthread_join(t->thread, NULL);
}

static bool wait_open_target(struct wait_rig *rig)
{
	if (!fx_target_start(&rig->target, WAIT_MEM))
		return false;
	rig->seg = openSegment(rig->engine, rig->target.name);
	return rig->seg > 0;
}

static bool wait_start(struct wait_rig *rig)
{
	rig->random = fx_seed();
	rig->mem = fx_buf_map(WAIT_MEM, -1);
	rig->engine = fx_engine("tcp");
	return rig->engine && fx_register(rig->engine, &rig->mem) &&
	       fx_engine_name(rig->engine, rig->name, sizeof(rig->name)) &&
	       wait_open_target(rig);
}

int wait_main(int argc, char **argv, const struct wait_part *parts, size_t n)
{
	struct wait_rig rig = { .seg = -1 };
	const char *only;

	fx_init(argc, argv);
	only = ft_options_word(argc, argv, "CASE", "the only case to run; all");
	if (!ft_ok(wait_start(&rig), "engine_and_target_start") ||
	    !ft_ok(wait_works(&rig), "transfers_work"))
		return ft_result();
	for (size_t i = 0; i < n; i++) {
		if (only && strcmp(only, parts[i].name))
			continue;
		parts[i].fn(&rig);
		if (parts[i].kills &&
		    !ft_ok(wait_open_target(&rig), "another_target_starts"))
			return ft_result();
		ft_ok(wait_works(&rig), "transfers_work_after_%s",
		      parts[i].name);
	}
	ft_ok(fx_buf_guards(&rig.mem) && fx_buf_guards(&rig.target.mem),
	      "guard_zones_are_unchanged");
	destroyTransferEngine(rig.engine);
	ft_ok(fx_peer_stop(&rig.target), "target_ends_well");
	fx_buf_unmap(&rig.mem);
	return ft_result();
}
