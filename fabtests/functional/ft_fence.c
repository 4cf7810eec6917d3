/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fence, on two rails between two network namespaces (it starts itself
 * again in one of them). One rail is cut in mid-transfer, at a random byte, the
 * tasks end, by the other rail or early, their memory gets a new pattern, and
 * the rail is mended: not one byte may change any more, whatever the kernels
 * still hold. A cut loses the packets, which are then sent again, or holds
 * them, and then they go on at once. At last both rails lose everything until
 * MC_SLICE_TIMEOUT ends the tasks.
 *
 *	ft_fence		a few cuts of each kind
 *	ft_fence CUTS		that many, of random kinds
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/fx_links.h"

#define FENCE_MEM (8 * FX_MIB)		/* of a job, 160 ms on two rails */
#define FENCE_BLOCK (512 * FX_KIB)
#define FENCE_HELD_MS 400		/* what was held is through */
#define FENCE_LOST_MS 2000		/* what was lost is sent again: TCP waits
					 * for 200, 600, 1400 ms */
#define FENCE_FEW 8

/* What ends the tasks. */
enum fence_end {
	FENCE_COMPLETE,		/* the other rail */
	FENCE_CANCEL,
	FENCE_DEADLINE,
	FENCE_TIMEOUT,		/* MC_SLICE_TIMEOUT, both rails being cut */
};

struct fence_cut {
	int op;
	enum fence_end end;
	bool hold;		/* packets are held, not lost */
	uint64_t at;		/* bytes transferred until then */
};

struct fence_rig {
	struct fx_links links;
	uint64_t random, sequence;
};

static const char *const fence_end_names[] = { "completed", "canceled",
					       "late", "timed_out" };

static struct fx_job fence_job(const struct fence_rig *rig, int op)
{
	struct fx_job job = {
		.engine = rig->links.engine, .seg = rig->links.seg, .op = op,
		.local = rig->links.mem.p, .remote = rig->links.target.mem.addr,
		.len = FENCE_MEM, .block = FENCE_BLOCK,
	};

	return job;
}

/* Where the tasks' bytes arrive. */
static struct fx_buf *fence_sink(struct fence_rig *rig, int op)
{
	return op == OPCODE_READ ? &rig->links.mem : &rig->links.target.mem;
}

static struct fx_buf *fence_source(struct fence_rig *rig, int op)
{
	return op == OPCODE_READ ? &rig->links.target.mem : &rig->links.mem;
}

static bool fence_make_end(const struct fx_job *job, enum fence_end end)
{
	switch (end) {
	case FENCE_CANCEL:
		return !te_cancel_batch(job->engine, job->id);
	case FENCE_DEADLINE:
		return !te_batch_deadline(job->engine, job->id,
					  ft_now_ns() + 50000000);
	default:
		return true;
	}
}

/* The tasks ended as they may. */
static bool fence_ended(const struct fx_job *job, enum fence_end end)
{
	unsigned int other[] = { 0, job->n[STATUS_CANCELED],
				 job->n[STATUS_FAILED],
				 job->n[STATUS_FAILED] };

	return job->n[STATUS_COMPLETED] + other[end] +
		       (end != FENCE_COMPLETE ? job->n[STATUS_TIMEOUT] : 0) ==
		       job->tasks && job->unfenced == job->n[STATUS_TIMEOUT];
}

static bool fence_completed_is_true(struct fence_rig *rig,
				    const struct fx_job *job)
{
	for (size_t i = 0; i < job->tasks; i++)
		if (fx_task_status(job, i) == STATUS_COMPLETED &&
		    memcmp(rig->links.mem.p + i * FENCE_BLOCK,
			   rig->links.target.mem.p + i * FENCE_BLOCK, FENCE_BLOCK)) {
			ft_diag("task %zu is COMPLETED but not in place", i);
			return false;
		}
	return true;
}

/* Of these nothing may land any more: at the target, where it was fenced. */
static bool fence_final(const struct fx_job *job, size_t i)
{
	return job->op == OPCODE_READ ||
	       fx_task_status(job, i) != STATUS_TIMEOUT;
}

static void fence_renew(struct fence_rig *rig, const struct fx_job *job,
			bool final)
{
	struct fx_buf *sink = fence_sink(rig, job->op);

	for (size_t i = 0; i < job->tasks; i++)
		if (fence_final(job, i) == final)
			fx_buf_fill(sink, i * FENCE_BLOCK, FENCE_BLOCK,
				    rig->sequence + 1);
}

static bool fence_unchanged(struct fence_rig *rig, const struct fx_job *job,
			    bool all)
{
	const struct fx_buf *sink = fence_sink(rig, job->op);
	bool good = true;

	for (size_t i = 0; i < job->tasks; i++)
		if (all || fence_final(job, i))
			good = fx_buf_check(sink, i * FENCE_BLOCK, FENCE_BLOCK,
					    rig->sequence + 1) && good;
	return good;
}

static void fence_pause(unsigned int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000,
			       .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

/* Moves may meet a short MC_SLICE_TIMEOUT on a busy machine. */
static bool fence_mended(void *links)
{
	return fx_links_mended(links);
}

/* The job as it was when all of it had ended. True if all is as it should be. */
static bool fence_after(struct fence_rig *rig, struct fx_job *job,
			const char *mend, unsigned int still_ms)
{
	bool good = fence_completed_is_true(rig, job);

	/* nothing is read any more from there, either */
	fx_buf_poison(fence_source(rig, job->op), 0, FENCE_MEM);
	fence_renew(rig, job, true);
	good = fx_links_do(mend) &&
	       ft_wait_until(fence_mended, &rig->links, FX_LONG_MS) && good;
	/* the target is in contact again: the rest is fenced as well */
	fence_renew(rig, job, false);
	fence_pause(still_ms);
	return fence_unchanged(rig, job, true) && good;
}

/* Begun, with that many bytes transferred. */
static bool fence_begin(struct fence_rig *rig, struct fx_job *job, uint64_t at)
{
	struct fx_buf *source = fence_source(rig, job->op);

	rig->sequence += 2;
	for (size_t i = 0; i < FENCE_MEM / FENCE_BLOCK; i++)
		fx_buf_fill(source, i * FENCE_BLOCK, FENCE_BLOCK,
			    rig->sequence);
	return ft_ok(!fx_job_start(job), "submit") &&
	       fx_job_reach(job, at, FX_LONG_MS);
}

static void fence_cut(struct fence_rig *rig, const struct fence_cut *cut)
{
	struct fx_job job = fence_job(rig, cut->op);
	bool good;

	if (!fence_begin(rig, &job, cut->at))
		return;
	good = fx_links_do(cut->hold ? "hold 0" : "drop 0 both") &&
	       fence_make_end(&job, cut->end) && fx_job_wait(&job, FX_LONG_MS);
	ft_diag("cut at %llu: %s", (unsigned long long)cut->at,
		fx_job_text(&job));
	good = fence_ended(&job, cut->end) && good;
	good = fence_after(rig, &job, "restore 0",
			   cut->hold ? FENCE_HELD_MS : FENCE_LOST_MS) && good;
	ft_ok(good, "%s_%s_with_packets_%s_stays_as_it_is",
	      cut->op == OPCODE_READ ? "read" : "write",
	      fence_end_names[cut->end], cut->hold ? "held" : "lost");
	fx_job_free(&job);
}

static void fence_cuts(struct fence_rig *rig, unsigned int cuts)
{
	struct fence_cut cut;

	for (unsigned int i = 0; i < cuts; i++) {
		uint64_t kind = cuts == FENCE_FEW ? i :
						    ft_random(&rig->random) >> 8;

		cut.op = kind & 1 ? OPCODE_READ : OPCODE_WRITE;
		cut.hold = kind & 2;
		cut.end = !(kind & 4) ? FENCE_COMPLETE :
			  (kind / 8 + kind / 2 + kind) & 1 ? FENCE_DEADLINE :
							     FENCE_CANCEL;
		cut.at = ft_random(&rig->random) % (FENCE_MEM * 3 / 4);
		fence_cut(rig, &cut);
	}
}

#define FENCE_LOSE " INPUT -p tcp -j DROP"

/* True: some timed out, or it went wrong; false: it was over too soon. */
static bool fence_timeout_once(struct fence_rig *rig, int op)
{
	struct fx_job job = fence_job(rig, op);
	bool good, late;

	good = fence_begin(rig, &job, FENCE_MEM / 8) &&
	       fx_links_do("run b iptables -w 10 -I" FENCE_LOSE) &&
	       fx_job_wait(&job, FX_LONG_MS);
	late = job.n[STATUS_TIMEOUT] + job.n[STATUS_FAILED] > 0;
	good = good && fence_ended(&job, FENCE_TIMEOUT);
	good = fence_after(rig, &job, "run b iptables -w 10 -D" FENCE_LOSE,
			   FENCE_LOST_MS) && good;
	if (late || !good) {
		ft_diag("%s", fx_job_text(&job));
		ft_ok(good, "%s_%s_with_packets_lost_stays_as_it_is",
		      op == OPCODE_READ ? "read" : "write",
		      fence_end_names[FENCE_TIMEOUT]);
	}
	fx_job_free(&job);
	return late || !good;
}

static void fence_timeouts(struct fence_rig *rig)
{
	int i;

	setenv("MC_SLICE_TIMEOUT", "2", 1);
	if (!ft_ok(fx_links_start(&rig->links, FENCE_MEM),
		   "both_rails_carry_for_the_hasty"))
		return;
	for (i = 0; i < 20 && !fence_timeout_once(rig, OPCODE_WRITE); i++)
		;
	ft_ok(i < 20, "a_write_times_out");
	for (i = 0; i < 20 && !fence_timeout_once(rig, OPCODE_READ); i++)
		;
	ft_ok(i < 20, "a_read_times_out");
	fx_links_stop(&rig->links);
}

int main(int argc, char **argv)
{
	static struct fence_rig rig;

	fx_init(argc, argv);
	if (!fx_links_are())
		return fx_links_inside(argv, "no");
	rig.random = fx_seed();
	if (!ft_ok(fx_links_start(&rig.links, FENCE_MEM), "both_rails_carry"))
		return ft_result();
	fence_cuts(&rig, argc > 1 ? (unsigned int)atoi(argv[1]) : FENCE_FEW);
	fx_links_stop(&rig.links);
	fence_timeouts(&rig);
	return ft_result();
}
