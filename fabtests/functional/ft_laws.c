/* SPDX-License-Identifier: BSD-2-Clause */

/* The laws that can be tested without a fault. docs/TESTING.md lists all
 * laws. */

#include <string.h>

#include "fabtests/functional/ft_laws.h"
#include "fabtests/functional/fx.h"

bool law_rig_start(struct law_rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	rig->mem = fx_buf_map(LAW_MEM, -1);
	if (!fx_target_start(&rig->target, LAW_MEM))
		return ft_ok(false, "a target starts");
	rig->engine = fx_engine("tcp");
	rig->seg = -1;
	if (rig->engine && fx_register(rig->engine, &rig->mem))
		rig->seg = openSegment(rig->engine, rig->target.name);
	return rig->seg > 0 || ft_ok(false, "an engine starts");
}

void law_rig_stop(struct law_rig *rig)
{
	destroyTransferEngine(rig->engine);
	fx_peer_stop(&rig->target);
	fx_buf_unmap(&rig->mem);
}

bool law_write_works(struct law_rig *rig, uint64_t len, uint64_t sequence)
{
	fx_buf_fill(&rig->mem, 0, len, sequence);
	return fx_move(rig->engine, rig->seg, OPCODE_WRITE, rig->mem.p,
		       rig->target.mem.addr, len, 0) &&
	       fx_buf_check(&rig->target.mem, 0, len, sequence);
}

/* --- law 4: a failure is never reported as success ----------------------- */

#define LAW4_TASKS 64

/* Returns true if the request of task i reaches beyond the buffer, which is so
 * for every fourth task. */
static bool law4_bad(size_t i)
{
	return i % 4 == 3;
}

static bool law4_statuses(struct law_rig *rig, const struct fx_job *job)
{
	for (size_t i = 0; i < LAW4_TASKS; i++) {
		int want = law4_bad(i) ? STATUS_FAILED : STATUS_COMPLETED;
		struct te_error err = { .code = 1 };

		if (fx_task_status(job, i) != want ||
		    te_task_error(rig->engine, job->id, i, &err, sizeof(err)) ||
		    !err.code == law4_bad(i)) {
			ft_diag("task %zu: status %d, code %d", i,
				fx_task_status(job, i), err.code);
			return false;
		}
	}
	return true;
}

static void law4_mixed_batch(struct law_rig *rig)
{
	struct transfer_request reqs[LAW4_TASKS];
	struct fx_job job = { .engine = rig->engine, .tasks = LAW4_TASKS };
	bool good;

	fx_buf_fill(&rig->mem, 0, LAW_MEM, 4);
	fx_buf_poison(&rig->target.mem, 0, LAW_MEM);
	for (size_t i = 0; i < LAW4_TASKS; i++) {
		uint64_t off = i * 8192;
		struct transfer_request req = {
			OPCODE_WRITE, rig->mem.p + off, rig->seg,
			rig->target.mem.addr +
				(law4_bad(i) ? LAW_MEM - 100 : off), 4096,
		};

		reqs[i] = req;
	}
	job.id = allocateBatchID(rig->engine, LAW4_TASKS);
	good = !submitTransfer(rig->engine, job.id, reqs, LAW4_TASKS) &&
	       fx_job_wait(&job, fx_soon_ms(8000));
	ft_ok(good && law4_statuses(rig, &job),
	      "law4_a_failure_in_a_batch_is_no_success");
	for (size_t i = 0; good && i < LAW4_TASKS; i++)
		good = law4_bad(i) ?
		       fx_buf_poisoned(&rig->target.mem, i * 8192, 8192) :
		       !memcmp(rig->target.mem.p + i * 8192,
			       rig->mem.p + i * 8192, 4096);
	ft_ok(good && fx_buf_poisoned(&rig->target.mem, LAW_MEM - 100, 100) &&
	      fx_buf_guards(&rig->target.mem),
	      "law4_good_ones_are_in_place_bad_ones_nowhere");
	fx_job_free(&job);
}

/* --- law 3: an idle target costs its initiators nothing ------------------ */

static void law3_idle_is_not_stuck(struct law_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->target.mem.addr, .len = 64 };

	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, fx_soon_ms(5000)) &&
	      fx_task_status(&job, 0) == STATUS_COMPLETED,
	      "law3_a_small_write_ends_at_once");
	fx_job_free(&job);
}

int main(int argc, char **argv)
{
	struct law_rig rig;

	fx_init(argc, argv);
	law_process();
	if (law_rig_start(&rig)) {
		law3_idle_is_not_stuck(&rig);
		law4_mixed_batch(&rig);
		law_rig_stop(&rig);
	}
	law_messages();
	law_notify();
	law_segments();
	return ft_result();
}
