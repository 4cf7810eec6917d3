/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fence, on two rails between two network namespaces (it starts itself
 * again in one of them). One rail is cut in mid-transfer, at a random byte, the
 * tasks end, by the other rail or early, their memory gets a new pattern, and
 * the rail is mended: not one byte may change any more, whatever the kernels
 * still hold. A cut loses the packets, which are then sent again, or holds
 * them, and then they go on at once.
 *
 *	ft_fence		a few cuts of each kind
 *	ft_fence CUTS		that many, of random kinds
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/fx.h"

#define FENCE_MEM (8 * FX_MIB)		/* of a job, 160 ms on two rails */
#define FENCE_BLOCK (512 * FX_KIB)
#define FENCE_STILL_MS 400		/* a mended connection has sent again */
#define FENCE_FEW 8

/* What ends the tasks. */
enum fence_end {
	FENCE_COMPLETE,		/* the other rail */
	FENCE_CANCEL,
	FENCE_DEADLINE,
	FENCE_ENDS,
};

struct fence_cut {
	int op;
	enum fence_end end;
	bool hold;		/* packets are held, not lost */
	uint64_t at;		/* bytes transferred until then */
};

struct fence_rig {
	transfer_engine_t engine;
	struct fx_peer target;
	struct fx_buf mem;	/* job, then what is moved to look around */
	segment_id_t seg;
	uint64_t random, sequence;
};

static const char *const fence_end_names[] = { "completed", "canceled",
					       "late" };

/* A function of rails_lib.sh, of the rails that we are on. */
static bool fence_rails(const char *what)
{
	char line[512];
	int ret;

	snprintf(line, sizeof(line),
		 "sh \"$SRC/fabtests/scripts/rails.sh\" on \"$RAILS_ID\" %s",
		 what);
	ret = system(line);
	if (ret)
		ft_diag("%s: %d", what, ret);
	return !ret;
}

static struct fx_job fence_job(const struct fence_rig *rig, int op)
{
	struct fx_job job = {
		.engine = rig->engine, .seg = rig->seg, .op = op,
		.local = rig->mem.p, .remote = rig->target.mem.addr,
		.len = FENCE_MEM, .block = FENCE_BLOCK,
	};

	return job;
}

/* Where the tasks' bytes arrive. */
static struct fx_buf *fence_sink(struct fence_rig *rig, int op)
{
	return op == OPCODE_READ ? &rig->mem : &rig->target.mem;
}

static struct fx_buf *fence_source(struct fence_rig *rig, int op)
{
	return op == OPCODE_READ ? &rig->target.mem : &rig->mem;
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
		    memcmp(rig->mem.p + i * FENCE_BLOCK,
			   rig->target.mem.p + i * FENCE_BLOCK, FENCE_BLOCK)) {
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

static uint64_t fence_carried(const struct fence_rig *rig, const char *rail)
{
	struct te_rail_stats stats[8];
	size_t n = 8;

	if (te_rail_stats(rig->engine, stats, sizeof(stats[0]), &n))
		return 0;
	for (size_t i = 0; i < n && i < 8; i++)
		if (!strcmp(stats[i].name, rail))
			return stats[i].tx_bytes + stats[i].rx_bytes;
	return 0;
}

/* Moves other bytes until both rails carry again. */
static bool fence_mended(struct fence_rig *rig)
{
	uint64_t end = ft_now_ns() + FX_LONG_MS * UINT64_C(1000000);
	uint64_t was[2] = { fence_carried(rig, "r0"), fence_carried(rig, "r1") };
	bool good = true, both = false;

	while (good && !both && ft_now_ns() < end) {
		good = fx_move(rig->engine, rig->seg, OPCODE_WRITE,
			       rig->mem.p + FENCE_MEM,
			       rig->target.mem.addr + FENCE_MEM, 2 * FX_MIB,
			       FENCE_BLOCK);
		both = fence_carried(rig, "r0") - was[0] >= FENCE_BLOCK &&
		       fence_carried(rig, "r1") - was[1] >= FENCE_BLOCK;
	}
	return good && both;
}

static void fence_pause(unsigned int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000,
			       .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

/* The job as it was when all of it had ended. True if all is as it should be. */
static bool fence_after(struct fence_rig *rig, struct fx_job *job)
{
	bool good = fence_completed_is_true(rig, job);

	/* nothing is read any more from there, either */
	fx_buf_poison(fence_source(rig, job->op), 0, FENCE_MEM);
	fence_renew(rig, job, true);
	good = fence_rails("restore 0") && fence_mended(rig) && good;
	/* the target is in contact again: the rest is fenced as well */
	fence_renew(rig, job, false);
	fence_pause(FENCE_STILL_MS);
	return fence_unchanged(rig, job, true) && good;
}

static void fence_cut(struct fence_rig *rig, const struct fence_cut *cut)
{
	struct fx_job job = fence_job(rig, cut->op);
	struct fx_buf *source = fence_source(rig, cut->op);
	bool good;

	rig->sequence += 2;
	for (size_t i = 0; i < FENCE_MEM / FENCE_BLOCK; i++)
		fx_buf_fill(source, i * FENCE_BLOCK, FENCE_BLOCK,
			    rig->sequence);
	if (!ft_ok(!fx_job_start(&job), "submit"))
		return;
	fx_job_reach(&job, cut->at, FX_LONG_MS);
	good = fence_rails(cut->hold ? "hold 0" : "drop 0 both") &&
	       fence_make_end(&job, cut->end) && fx_job_wait(&job, FX_LONG_MS);
	ft_diag("cut at %llu: %s", (unsigned long long)cut->at,
		fx_job_text(&job));
	good = fence_ended(&job, cut->end) && good;
	good = fence_after(rig, &job) && good;
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

static bool fence_start(struct fence_rig *rig)
{
	char netns[128];

	snprintf(netns, sizeof(netns), "netns=%s", getenv("RAILS_PEER"));
	setenv("MOONRAIL_DEVICES", "r0,r1", 1);
	rig->random = fx_seed();
	rig->mem = fx_buf_map(FENCE_MEM + 2 * FX_MIB, -1);
	rig->engine = createTransferEngine("P2PHANDSHAKE", "10.77.0.1",
					   "10.77.0.1", 0, 0);
	if (!rig->mem.p || !rig->engine ||
	    !installTransport(rig->engine, "tcp", NULL) ||
	    !fx_register(rig->engine, &rig->mem) ||
	    !fx_peer_start(&rig->target, rig->mem.len, "host=10.77.0.2", netns,
			   NULL) ||
	    fx_ask(&rig->target, "reg 0 %zu 1", rig->mem.len))
		return false;
	rig->seg = openSegment(rig->engine, rig->target.name);
	return rig->seg >= 0 && fence_mended(rig);
}

/* Not to return: the same again, as a process of host a. */
static int fence_inside(char **argv)
{
	const char *src = getenv("SRC");
	char path[512], self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (!src || n < 0)
		return ft_skip("SRC is not set");
	self[n] = '\0';
	snprintf(path, sizeof(path), "%s/fabtests/scripts/rails.sh", src);
	execlp("sh", "sh", path, "up", "-c", "no", "200mbit", "200mbit", "--",
	       "rails_run", "a", self, argv[1], (char *)NULL);
	return FT_FAIL;
}

int main(int argc, char **argv)
{
	static struct fence_rig rig;

	fx_init(argc, argv);
	if (!getenv("RAILS_ID"))
		return fence_inside(argv);
	if (!ft_ok(fence_start(&rig), "both_rails_carry"))
		return ft_result();
	fence_cuts(&rig, argc > 1 ? (unsigned int)atoi(argv[1]) : FENCE_FEW);
	ft_ok(fx_buf_guards(&rig.mem) && fx_buf_guards(&rig.target.mem),
	      "guard_zones_are_unchanged");
	ft_ok(fx_peer_stop(&rig.target), "target_ends_well");
	destroyTransferEngine(rig.engine);
	fx_buf_unmap(&rig.mem);
	return ft_result();
}
