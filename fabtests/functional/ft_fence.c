/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fence, on two rails between two network namespaces (the test starts
 * itself again in one of them). A rail is cut at a random byte of a transfer.
 * The tasks complete over the other rail, or the test ends them early. Then
 * their memory gets a new pattern and the rail is restored. After that, no byte
 * may change, whatever packets the kernels still hold.
 *
 * A cut either drops packets, which TCP sends again, or holds them, so that
 * they arrive as soon as the rail is restored. The last kinds cut both rails
 * until MC_SLICE_TIMEOUT ends the tasks. If nothing is posted on the rail when
 * it is cut, the cut tests nothing; it is counted and repeated.
 *
 * "ft_fence" makes one cut of most kinds. "ft_fence CUTS [WORD]" makes CUTS
 * cuts of each kind, or of the kinds whose names contain WORD, such as read,
 * late or held.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fabtests/common/ft_options.h"
#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/fx_links.h"

/* Number of bytes of a job. Two rails of FX_LINKS_MBIT transfer them in
 * 160 ms. */
#define FENCE_MEM (8 * FX_MIB)
#define FENCE_MBIT_MIN 12 /* smallest limit of fence_slow_down, Mbit/s */
#define FENCE_BLOCK (512 * FX_KIB)
/* ms until held packets have arrived after the rail is restored */
#define FENCE_HELD_MS 400
/* ms until TCP has sent dropped packets again, which it does after 200, 600 and
 * 1400 ms */
#define FENCE_LOST_MS 2000
/* maximum number of attempts until a cut hits posted slices */
#define FENCE_TRIES 20
/* Bit mask of the kinds that run without CUTS: all except some of those in
 * which one rail stays and the test ends the tasks. */
#define FENCE_FEW 0xf69f

/* What ends the tasks. */
enum fence_end {
	FENCE_COMPLETE,		/* all slices, over the other rail */
	FENCE_CANCEL,
	FENCE_DEADLINE,
	FENCE_TIMEOUT,		/* MC_SLICE_TIMEOUT; both rails are cut */
};

/* One cut. Its kind is a number: bit 0 is the operation (1: read), bit 1 is
 * `hold`, and the bits above are `end`. */
struct fence_cut {
	int op;
	enum fence_end end;
	bool hold;		/* true: the packets are held; false: they are
				 * lost */
	uint64_t at;		/* number of bytes transferred before the cut */
};

struct fence_rig {
	struct fx_links links;
	uint64_t random, sequence;
	uint64_t cuts;		/* number of cuts of each kind; 0 means one cut
				 * of each kind in FENCE_FEW */
	const char *word;	/* Only kinds whose names contain this text run.
				 * "" means all kinds. */
	unsigned int hits, misses;
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

/* Returns the memory to which the tasks move bytes. */
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

/* Returns true if all tasks have ended with a status that is possible if `end`
 * has ended them. */
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
			ft_diag("task %zu is COMPLETED but its bytes are not "
				"in place", i);
			return false;
		}
	return true;
}

/* Returns true if no byte of task i may land after its end. Bytes of a write
 * that ended as unfenced (TIMEOUT) may still land. */
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

/* Returns true if both rails carry data again. The test calls it repeatedly,
 * because MC_SLICE_TIMEOUT may end its transfers on a loaded machine. */
static bool fence_mended(void *links)
{
	return fx_links_mended(links);
}

/* Restores the rail after all tasks have ended. Returns true if the bytes of
 * COMPLETED tasks are in place and no other byte changes in the following
 * still_ms. */
static bool fence_after(struct fence_rig *rig, struct fx_job *job,
			const char *mend, unsigned int still_ms)
{
	bool good = fence_completed_is_true(rig, job);

	/* Poison in the destination would show that the source was read
	 * late. */
	fx_buf_poison(fence_source(rig, job->op), 0, FENCE_MEM);
	fence_renew(rig, job, true);
	good = fx_links_do(mend) &&
	       ft_wait_until(fence_mended, &rig->links, FX_LONG_MS) && good;
	/* The target answers again, so it has fenced the remaining tasks. */
	fence_renew(rig, job, false);
	fence_pause(still_ms);
	return fence_unchanged(rig, job, true) && good;
}

/* Starts the job and waits until `at` bytes are transferred. Returns false on
 * failure. */
static bool fence_begin(struct fence_rig *rig, struct fx_job *job, uint64_t at)
{
	struct fx_buf *source = fence_source(rig, job->op);

	rig->sequence += 2;
	for (size_t i = 0; i < FENCE_MEM / FENCE_BLOCK; i++)
		fx_buf_fill(source, i * FENCE_BLOCK, FENCE_BLOCK,
			    rig->sequence);
	return !fx_job_start(job) && fx_job_reach(job, at, FX_LONG_MS);
}

/* --- cuts ---------------------------------------------------------------- */

#define FENCE_LOSE " INPUT -p tcp -j DROP"

static bool fence_make(const struct fence_cut *cut)
{
	if (cut->end != FENCE_TIMEOUT)
		return fx_links_do(cut->hold ? "hold 0" : "drop 0 both");
	return fx_links_do(cut->hold ? "hold" :
				       "run b iptables -w 10 -I" FENCE_LOSE);
}

static const char *fence_mending(const struct fence_cut *cut)
{
	if (cut->end != FENCE_TIMEOUT)
		return "restore 0";
	return cut->hold ? "restore" : "run b iptables -w 10 -D" FENCE_LOSE;
}

/* Returns true if slices are posted on a rail that was cut: r0, or with
 * FENCE_TIMEOUT any of the two. */
static bool fence_caught(const struct fence_rig *rig, enum fence_end end)
{
	return fx_links_stats(&rig->links, "r0").inflight_bytes > 0 ||
	       (end == FENCE_TIMEOUT &&
		fx_links_stats(&rig->links, "r1").inflight_bytes > 0);
}

/* Returns true if some posted slices had not arrived before the cut. Then they
 * were posted again on the other rail, or their tasks ended early. */
static bool fence_told(const struct fence_rig *rig, const struct fx_job *job,
		       enum fence_end end, uint64_t retries)
{
	if (end == FENCE_COMPLETE)
		return fx_links_stats(&rig->links, "r0").retries > retries;
	return job->n[STATUS_COMPLETED] < job->tasks;
}

static void fence_name(const struct fence_cut *cut, char *name, size_t len)
{
	snprintf(name, len, "%s_%s_with_packets_%s",
		 cut->op == OPCODE_READ ? "read" : "write",
		 fence_end_names[cut->end], cut->hold ? "held" : "lost");
}

/* Makes one cut. Returns false if it hit no posted slices and must be repeated;
 * returns true if it hit them or a check failed. */
static bool fence_once(struct fence_rig *rig, const struct fence_cut *cut,
		       const char *name)
{
	struct fx_job job = fence_job(rig, cut->op);
	uint64_t retries = fx_links_stats(&rig->links, "r0").retries;
	bool good, hit;

	if (!fence_begin(rig, &job, cut->at))
		return !ft_ok(false, "%s_starts", name);
	good = fence_make(cut);
	hit = fence_caught(rig, cut->end);
	good = fence_make_end(&job, cut->end) && good &&
	       fx_job_wait(&job, FX_LONG_MS);
	hit = fence_told(rig, &job, cut->end, retries) && hit;
	ft_diag("%s: cut at byte %llu; tasks: %s%s", name,
		(unsigned long long)cut->at, fx_job_text(&job),
		hit ? "" : ": nothing was posted on the rail");
	good = fence_ended(&job, cut->end) && good;
	good = fence_after(rig, &job, fence_mending(cut), !hit ? 0 :
			   cut->hold ? FENCE_HELD_MS : FENCE_LOST_MS) && good;
	if (hit || !good)
		ft_ok(good, "%s_changes_no_byte", name);
	fx_job_free(&job);
	rig->hits += hit;
	rig->misses += !hit;
	return hit || !good;
}

/* Reduces the rates of the rails before the attempt number `attempt`, so that
 * the job takes longer. On a loaded machine, the commands that cut a rail may
 * take longer than a job at FX_LINKS_MBIT. Returns false on failure. */
static bool fence_slow_down(int attempt)
{
	return attempt < 2 ||
	       fx_links_rates(attempt / 2 < 4 ? FX_LINKS_MBIT >> attempt / 2
					      : FENCE_MBIT_MIN);
}

static void fence_cut(struct fence_rig *rig, unsigned int kind)
{
	struct fence_cut cut = {
		.op = kind & 1 ? OPCODE_READ : OPCODE_WRITE,
		.hold = kind & 2,
		.end = (enum fence_end)(kind >> 2),
	};
	char name[64];
	bool hit = false;
	int i;

	fence_name(&cut, name, sizeof(name));
	if (!strstr(name, rig->word))
		return;
	for (i = 0; i < FENCE_TRIES && !hit; i++) {
		cut.at = ft_random(&rig->random) % (FENCE_MEM * 3 / 4);
		hit = fence_slow_down(i) && fence_once(rig, &cut, name);
	}
	if (i > 2)
		fx_links_do("restore");
	if (!hit)
		ft_ok(false, "%s_hits_posted_slices", name);
}

/* Makes the cuts of the kinds whose end is in the range from `first` to
 * `last`. */
static void fence_cuts(struct fence_rig *rig, enum fence_end first,
		       enum fence_end last)
{
	unsigned int i = 0, kind;

	do
		for (kind = first << 2; kind < (last + 1) << 2; kind++)
			if (rig->cuts || FENCE_FEW & 1 << kind)
				fence_cut(rig, kind);
	while (++i < rig->cuts);
}

static void fence_run(struct fence_rig *rig, enum fence_end first,
		      enum fence_end last)
{
	if (!ft_ok(fx_links_start(&rig->links, FENCE_MEM), "both_rails_carry"))
		return;
	fence_cuts(rig, first, last);
	fx_links_stop(&rig->links);
}

static const struct ft_option fence_operands[] = {
	{ "CUTS", FT_COUNT, offsetof(struct fence_rig, cuts), 0, 1000000, NULL,
	  "", "cuts of each kind; 0: one of a few kinds" },
	{ "WORD", FT_TEXT, offsetof(struct fence_rig, word), 0, 0, NULL, "",
	  "only kinds whose name contains it" },
};

static const struct ft_options fence_options = {
	.program = "ft_fence",
	.usage = "[CUTS [WORD]]",
	.operands = fence_operands,
	.operand_count = 2,
	.width = 8,
};

int main(int argc, char **argv)
{
	static struct fence_rig rig = { .word = "" };

	fx_init(argc, argv);
	ft_options_take(&fence_options, argc, argv, &rig);
	if (!fx_links_are())
		return fx_links_inside(argv, "no");
	rig.random = fx_seed();
	fence_run(&rig, FENCE_COMPLETE, FENCE_DEADLINE);
	setenv("MC_SLICE_TIMEOUT", "2", 1);
	fence_run(&rig, FENCE_TIMEOUT, FENCE_TIMEOUT);
	ft_diag("%u cuts hit posted slices, %u did not and were repeated",
		rig.hits, rig.misses);
	ft_ok(rig.hits > 0, "cuts_hit_posted_slices");
	/* Without CUTS, other tests may load the machine at the same time, so
	 * that many cuts come too late. */
	ft_ok(!rig.cuts || rig.misses <= rig.hits,
	      "most_cuts_hit_posted_slices");
	return ft_result();
}
