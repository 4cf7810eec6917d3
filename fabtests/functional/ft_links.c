/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests rails that fail, recover or become slow, between two network namespaces
 * (the program starts itself again in one of them). Times that depend on the
 * load of the machine are printed, and checked only against wide limits.
 *
 *	ft_links		all cases at the same time, then "calm"
 *	ft_links CASE		one case
 *	ft_links calm SECONDS	the case "calm" for this time; no other program
 *				may load the machine meanwhile
 *	ft_links frozen SECONDS
 *	ft_links dead SECONDS	in each round, the other target does not answer
 *				for this time; MC_SLICE_TIMEOUT is LINKS_HASTY
 *				seconds
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_num.h"
#include "fabtests/common/ft_options.h"
#include "fabtests/functional/fx_links.h"

#define LINKS_MEM (16 * FX_MIB)
#define LINKS_BLOCK (512 * FX_KIB)
#define LINKS_FLAPS 10
/* The first and the last LINKS_SOME flaps are compared. */
#define LINKS_SOME 4
/* Maximum increase of the recovery time from the first to the last flaps, in
 * multiples of the time that the same write takes without a fault. */
#define LINKS_LATER	3
#define LINKS_FORGETS 2
/* time limit, ms; a machine without other load takes 300 */
#define LINKS_KILLED_MS 5000
/* Number of attempts of a case that fails on a machine that is loaded for a
 * moment. */
#define LINKS_TRIES	 3
#define LINKS_PART (4 * FX_MIB)
#define LINKS_TURNS 5
#define LINKS_SPINNERS 8
#define LINKS_SEED 7
/* least ratio of the rates with and without the fault; a machine without other
 * load reaches 0.95 */
#define LINKS_COST_LEAST 0.3
/* Maximum reported rate of r0, relative to r1, after r0 was slowed down to a
 * twentieth. */
#define LINKS_SLOW_PART	 0.5
/* LINKS_RATE_LEAST and LINKS_RATE_MOST limit the reported rate of a rail,
 * relative to the rate at which it moved data */
#define LINKS_RATE_LEAST 0.2
#define LINKS_RATE_MOST 4.0
#define LINKS_CALM_S 8
#define LINKS_HASTY "2"
#define LINKS_GONE_MS	 2000 /* MC_SLICE_TIMEOUT of the case "none", ms */
/* time limit after that, ms; a machine without other load takes 1000 */
#define LINKS_LATE_MS 8000

static unsigned int links_seconds; /* the operand SECONDS, or 0 */

static struct fx_job links_job(const struct fx_links *l, uint64_t len,
			       uint64_t block)
{
	struct fx_job job = {
		.engine = l->engine, .seg = l->seg, .op = OPCODE_WRITE,
		.local = l->mem.p, .remote = l->target.mem.addr,
		.len = len, .block = block,
	};

	return job;
}

/* Writes len bytes. Returns the time that this took in ms, or 0 if the write
 * failed or its bytes did not go over the rails. */
static double links_move(const struct fx_links *l, uint64_t len)
{
	uint64_t was = fx_links_crossed(), from = ft_now_ns();
	double ms;

	if (!fx_move(l->engine, l->seg, OPCODE_WRITE, l->mem.p,
		     l->target.mem.addr, len, LINKS_BLOCK))
		return 0;
	ms = (double)(ft_now_ns() - from) / 1e6;
	if (fx_links_crossed() - was >= len)
		return ms;
	ft_diag("the bytes did not cross the rails");
	return 0;
}

static bool links_r0_down(void *arg)
{
	return fx_links_stats(arg, "r0").state == TE_RAIL_DOWN;
}

static bool links_r0_up(void *arg)
{
	return fx_links_stats(arg, "r0").state == TE_RAIL_UP;
}

/* --- a link fails while nothing is in progress --------------------------- */

/* Checks that the first write needed no fence and no retry, and changed no
 * state of a rail. */
static void links_nothing_wrong(const struct fx_links *l)
{
	struct te_rail_stats r[2] = { fx_links_stats(l, "r0"),
				      fx_links_stats(l, "r1") };
	struct te_peer_stats peer = { .fences = UINT64_MAX };

	ft_ok(!te_peer_stats(l->engine, l->seg, &peer, sizeof(peer)) &&
		      !peer.fences && !peer.retries,
	      "write_without_fault_requests_no_fence_and_no_retry");
	ft_ok(!r[0].retries && !r[1].retries && !r[0].errors && !r[1].errors &&
		      !r[0].state_changes && !r[1].state_changes,
	      "rails_without_fault_keep_state_and_count_no_error");
}

static void links_idle(struct fx_links *l)
{
	uint64_t from, changes;
	double calm, ms;
	bool good;

	ft_ok(links_move(l, LINKS_MEM) > 0, "write_before_the_fault_completes");
	links_nothing_wrong(l);
	calm = links_move(l, FX_MIB);
	changes = fx_links_stats(l, "r0").state_changes;
	from = ft_now_ns();
	good = fx_links_do("link 0 down");
	good = ft_wait_until(links_r0_down, l, FX_LONG_MS) && good;
	ft_ok(fx_links_stats(l, "r0").state_changes > changes,
	      "link_down_changes_state_of_rail");
	ft_ok(good, "link_down_on_idle_rail_is_noticed");
	ft_diag("the rail was down after %.0f ms",
		(double)(ft_now_ns() - from) / 1e6);
	ms = links_move(l, FX_MIB);
	ft_diag("1 MiB took %.1f ms over one rail, %.1f ms over both", ms,
		calm);
	ft_ok(ms > 0, "write_after_link_down_uses_other_rail");
	good = fx_links_do("restore 0") && fx_links_mended(l);
	ft_ok(good && ft_wait_until(links_r0_up, l, FX_LONG_MS),
	      "restored_link_carries_data");
}

/* --- no rail is left ----------------------------------------------------- */

/* Returns true if the error record of each task that did not complete names
 * both rails. */
static bool links_told(const struct fx_job *job)
{
	struct te_error err;
	bool good = true;

	for (size_t i = 0; i < job->tasks; i++) {
		if (fx_task_status(job, i) == STATUS_COMPLETED)
			continue;
		if (te_task_error(job->engine, job->id, i, &err, sizeof(err)))
			return false;
		if (strstr(err.text, " r0") && strstr(err.text, " r1"))
			continue;
		ft_diag("task %zu: %s", i, err.text);
		good = false;
	}
	return good;
}

/* Moves data until both rails carry some. Returns false if a move fails, which
 * may happen on a loaded machine, because MC_SLICE_TIMEOUT is short. */
static bool links_mended(void *links)
{
	return fx_links_mended(links);
}

static bool links_one_ended(void *arg)
{
	struct fx_job *job = arg;

	return fx_job_poll(job) || job->n[STATUS_FAILED] ||
	       job->n[STATUS_TIMEOUT];
}

/* Waits until all tasks have ended. Returns false if a task fails before
 * MC_SLICE_TIMEOUT or ends much later. */
static bool links_gone_wait(struct fx_job *job, uint64_t from)
{
	double first, last;
	bool good = ft_wait_until(links_one_ended, job, FX_LONG_MS);

	first = (double)(ft_now_ns() - from) / 1e6;
	good = fx_job_wait(job, FX_LONG_MS) && good;
	last = (double)(ft_now_ns() - from) / 1e6;
	if (job->n[STATUS_COMPLETED] == job->tasks)
		return good;
	ft_diag("the tasks ended after %.0f to %.0f ms", first, last);
	return good && first > LINKS_GONE_MS * .9 &&
	       last < LINKS_GONE_MS + fx_ms(LINKS_LATE_MS);
}

/* Makes both rails fail during a job. Returns false if all tasks had completed
 * before the failure, so that the attempt must be repeated. */
static bool links_gone_once(struct fx_links *l, const char *how,
			    const char *both, const char *mend)
{
	struct fx_job job = links_job(l, LINKS_MEM, LINKS_BLOCK);
	unsigned int ended;
	uint64_t from;
	bool good;

	good = !fx_job_start(&job) &&
	       fx_job_reach(&job, LINKS_MEM / 8, FX_LONG_MS);
	from = ft_now_ns();
	good = fx_links_do(both) && good;
	good = links_gone_wait(&job, from) && good;
	ended = job.n[STATUS_FAILED] + job.n[STATUS_TIMEOUT];
	ft_diag("%s: %s", how, fx_job_text(&job));
	if (!good || ended)
		ft_ok(good && ended + job.n[STATUS_COMPLETED] == job.tasks &&
			      links_told(&job),
		      "tasks_without_a_rail_%s_end_in_time_"
		      "with_error_that_names_both_rails",
		      how);
	fx_job_free(&job);
	ft_ok(fx_links_do(mend) && ft_wait_until(links_mended, l, FX_LONG_MS),
	      "rails_restored_after_%s_carry_data", how);
	return !good || ended;
}

static void links_gone(struct fx_links *l, const char *how, const char *both,
		       const char *mend)
{
	int i;

	for (i = 0; i < 20; i++)
		if (links_gone_once(l, how, both, mend))
			return;
	ft_ok(false, "rails_fail_before_all_tasks_complete");
}

#define LINKS_LOSE " INPUT -p tcp -j DROP"

/* The rails refuse connections, but a filter drops the packets to the control
 * port, from before the rails refuse. The target must not be presumed dead. */
static void links_filtered(struct fx_links *l)
{
	static const char rules[] = "run b sh -c '"
		"iptables -w 10 %s INPUT -p tcp --dport %.8s -j DROP; "
		"iptables -w 10 %s INPUT -p tcp -j REJECT --reject-with tcp-reset'";
	const char *port = strrchr(l->target.name, ':');
	char both[256], mend[256];

	if (!ft_ok(port != NULL, "control_port_of_target_is_known"))
		return;
	snprintf(both, sizeof(both), rules, "-A", port + 1, "-A");
	snprintf(mend, sizeof(mend), rules, "-D", port + 1, "-D");
	links_gone(l, "control_port_filtered", both, mend);
}

static void links_none(struct fx_links *l)
{
	links_gone(l, "links_down", "run b sh -c 'ip link set r0 down; "
		   "ip link set r1 down'", "restore");
	links_gone(l, "packets_lost", "run b iptables -w 10 -I" LINKS_LOSE,
		   "run b iptables -w 10 -D" LINKS_LOSE);
	links_filtered(l);
}

/* --- a firewall forgets the connections ---------------------------------- */

/* Makes a firewall forget the connections of the only rail, and then those that
 * replace them. The rail must carry data again before MC_SLICE_TIMEOUT, so that
 * no task fails. */
static void links_forgotten(struct fx_links *l)
{
	double ms;
	int i;

	ft_ok(links_move(l, LINKS_MEM) > 0,
	      "forgotten: write_before_the_fault_completes");
	for (i = 0; i < LINKS_FORGETS; i++) {
		ft_ok(fx_links_do("forget 0"), "firewall_forgets_connections");
		fx_buf_fill(&l->mem, 0, LINKS_MEM, LINKS_SEED + (uint64_t)i);
		ms = links_move(l, LINKS_MEM);
		ft_diag("16 MiB over forgotten connections took %.0f ms", ms);
		ft_ok(ms > 0 && fx_buf_check(&l->target.mem, 0, LINKS_MEM,
					     LINKS_SEED + (uint64_t)i),
		      "write_over_forgotten_connections_completes");
		ft_ok(links_move(l, LINKS_MEM) > 0,
		      "next_write_uses_new_connections");
	}
}

/* --- the target is killed ------------------------------------------------ */

/* Returns true if the error hint of each task that did not complete says that
 * the process has probably ended. */
static bool links_says_ended(const struct fx_job *job)
{
	struct te_error err;
	bool good = true;
	size_t i;

	for (i = 0; i < job->tasks && good; i++) {
		if (fx_task_status(job, i) == STATUS_COMPLETED)
			continue;
		good = !te_task_error(job->engine, job->id, i, &err,
				      sizeof(err)) &&
		       strstr(err.hint, "has probably ended");
		if (!good)
			ft_diag("task %zu: %s; %s", i, err.text, err.hint);
	}
	return good;
}

/* Kills the target during a job. Returns false if all tasks had completed
 * before, so that the attempt must be repeated. */
static bool links_killed_once(struct fx_links *l)
{
	struct fx_job job = links_job(l, LINKS_MEM, LINKS_BLOCK);
	unsigned int completed;
	uint64_t from;
	double ms;
	bool good;

	good = !fx_job_start(&job) &&
	       fx_job_reach(&job, LINKS_MEM / 8, FX_LONG_MS);
	fx_peer_kill(&l->target);
	from = ft_now_ns();
	good = fx_job_wait(&job, FX_LONG_MS) && good;
	ms = (double)(ft_now_ns() - from) / 1e6;
	completed = job.n[STATUS_COMPLETED];
	ft_diag("tasks to the killed target: %s; the last ended after %.0f ms",
		fx_job_text(&job), ms);
	if (completed < job.tasks) {
		ft_ok(good && ms < fx_ms(LINKS_KILLED_MS),
		      "law3_tasks_of_a_killed_target_end_long_before_MC_SLICE_TIMEOUT");
		ft_ok(links_says_ended(&job),
		      "tasks_of_a_killed_target_name_the_probable_end");
	}
	fx_job_free(&job);
	return completed < job.tasks || !good;
}

/* One rail and the control port over it refuse connections, while the other
 * rail carries data. The target must not be presumed dead. */
static void links_one_refuses(struct fx_links *l)
{
	struct fx_job job;
	bool good = true, amid = false;
	int i;

	for (i = 0; i < LINKS_FLAPS && good && !amid; i++) {
		job = links_job(l, LINKS_MEM, LINKS_BLOCK);
		good = !fx_job_start(&job) &&
		       fx_job_reach(&job, LINKS_MEM / 8, FX_LONG_MS) &&
		       fx_links_do("refuse 0");
		amid = !fx_job_poll(&job);
		good = fx_job_wait(&job, FX_LONG_MS) && good &&
		       job.n[STATUS_COMPLETED] == job.tasks;
		ft_diag("refused: %s", fx_job_text(&job));
		fx_job_free(&job);
		/* New connections over r0 fail now, but the other rail must
		 * carry data. */
		good = good && links_move(l, LINKS_PART) > 0;
		good = fx_links_do("restore 0") && fx_links_mended(l) && good;
	}
	ft_ok(good && amid,
	      "target_with_one_refusing_rail_is_not_presumed_dead");
}

static void links_killed(struct fx_links *l)
{
	bool killed = false;
	int i;

	links_one_refuses(l);

	for (i = 0; i < LINKS_FLAPS && !killed; i++) {
		killed = links_killed_once(l);
		closeSegment(l->engine, l->seg);
		fx_peer_drop(&l->target);
		/* Start another target for the next attempt, and for the end of
		 * the case, which stops it. */
		l->seg = fx_links_target(&l->target, l->mem.len) ?
				 openSegment(l->engine, l->target.name) : -1;
		if (!ft_ok(l->seg > 0 && links_move(l, FX_MIB) > 0,
			   "write_to_another_target_completes"))
			return;
	}
	ft_ok(killed, "target_is_killed_during_a_write");
}

/* --- a link fails and recovers repeatedly -------------------------------- */

struct links_flap {
	double calm_ms; /* result of links_back before the flap, ms */
	double back_ms; /* result of links_back after the flap, ms: time until
			 * r0 carries its share again */
	unsigned int fds, target_fds;
};

/* Repeats a write until r0 carries at least 45 % of its bytes. Returns the time
 * that this took in ms, or 0 if a write failed or r0 did not carry so much in
 * time. */
static double links_back(const struct fx_links *l)
{
	uint64_t from = ft_now_ns(), was;
	uint64_t end = from + FX_LONG_MS * UINT64_C(1000000);
	double ms, part;

	do {
		was = fx_links_stats(l, "r0").tx_bytes;
		ms = links_move(l, LINKS_PART);
		part = (double)(fx_links_stats(l, "r0").tx_bytes - was) /
		       (double)LINKS_PART;
	} while (ms > 0 && part < 0.45 && ft_now_ns() < end);
	return ms > 0 && part >= 0.45 ? (double)(ft_now_ns() - from) / 1e6 : 0;
}

static bool links_flap(struct fx_links *l, unsigned int i,
		       struct links_flap *flap)
{
	static const char *const how[] = { "link 0 down", "drop 0 both" };
	char fds[64];
	bool good;

	snprintf(fds, sizeof(fds), "/proc/%d/fd", (int)l->target.proc.pid);
	flap->calm_ms = links_back(l);
	good = fx_links_do(how[i % 2]) && links_move(l, LINKS_PART) > 0 &&
	       fx_links_do("restore 0");
	flap->back_ms = good ? links_back(l) : 0;
	flap->fds = fx_count_dir("/proc/self/fd");
	flap->target_fds = fx_count_dir(fds);
	ft_diag("flap %u: r0 carried its share %.0f ms after the repair (before "
		"the fault: after %.0f ms), %u file descriptors here, %u at the "
		"target", i, flap->back_ms, flap->calm_ms, flap->fds,
		flap->target_fds);
	return flap->calm_ms > 0 && flap->back_ms > 0;
}

/* Returns the median time of LINKS_SOME flaps, from before the flap if `calm`
 * is true, and otherwise from after it. Half of these flaps take the link down,
 * the other half drop packets. */
static double links_median(const struct links_flap *flap, bool calm)
{
	double ms[LINKS_SOME];

	for (int i = 0; i < LINKS_SOME; i++)
		ms[i] = calm ? flap[i].calm_ms : flap[i].back_ms;
	ft_sort(ms, LINKS_SOME);
	return (ms[LINKS_SOME / 2 - 1] + ms[LINKS_SOME / 2]) / 2;
}

/*
 * Returns true if the recovery after the last flaps takes about as long as
 * after the first ones: longer by at most LINKS_LATER times the time that the
 * same write takes without a fault.
 */
static bool links_as_soon(const struct links_flap *flap)
{
	const struct links_flap *last = flap + LINKS_FLAPS - LINKS_SOME;
	double first_ms = links_median(flap, false);
	double last_ms = links_median(last, false);
	double calm_ms = links_median(last, true);

	ft_diag("the first: %.0f ms, the last: %.0f ms, calm: %.0f ms",
		first_ms, last_ms, calm_ms);
	return last_ms <= first_ms + LINKS_LATER * calm_ms;
}

static void links_few_descriptors(const struct links_flap *flap)
{
	unsigned int most = 0, target_most = 0;

	for (unsigned int i = 0; i < LINKS_SOME; i++) {
		if (flap[i].fds > most)
			most = flap[i].fds;
		if (flap[i].target_fds > target_most)
			target_most = flap[i].target_fds;
	}
	flap += LINKS_FLAPS - 1;
	ft_ok(flap->fds <= most + 8, "flaps_do_not_increase_descriptors");
	ft_ok(flap->target_fds <= target_most + 8,
	      "flaps_do_not_increase_descriptors_of_target");
}

/* Makes LINKS_FLAPS flaps. What leaks in a flap also leaks from one call of
 * this function to the next. */
static bool links_ten(struct fx_links *l, struct links_flap *flap)
{
	uint64_t changes = fx_links_stats(l, "r0").state_changes;
	bool good = true;

	for (unsigned int i = 0; i < LINKS_FLAPS && good; i++)
		good = links_flap(l, i, &flap[i]);
	if (!ft_ok(good, "transfers_during_ten_flaps_complete"))
		return false;
	ft_wait_until(links_r0_up, l, FX_LONG_MS);
	changes = fx_links_stats(l, "r0").state_changes - changes;
	ft_diag("rail r0 changed its state %llu times",
		(unsigned long long)changes);
	ft_ok(changes >= 2 * LINKS_FLAPS && changes <= 6 * LINKS_FLAPS,
	      "flaps_change_state_a_limited_number_of_times");
	return true;
}

static void links_flaps(struct fx_links *l)
{
	unsigned int threads = fx_count_dir("/proc/self/task");
	struct links_flap flap[LINKS_FLAPS];
	bool soon = false;

	for (int i = 0; i < LINKS_TRIES && !soon; i++) {
		if (!links_ten(l, flap))
			return;
		soon = links_as_soon(flap);
	}
	ft_ok(soon, "last_flaps_recover_as_soon_as_first_ones");
	links_few_descriptors(flap);
	ft_ok(fx_count_dir("/proc/self/task") <= threads + 3,
	      "flaps_do_not_increase_threads");
}

/* --- a rail becomes slow ------------------------------------------------- */

static bool links_peer(const struct fx_links *l, struct te_peer_stats *peer)
{
	memset(peer, 0, sizeof(*peer));
	return !te_peer_stats(l->engine, l->seg, peer, sizeof(*peer));
}

/* Restores the rates of both rails, waits until the job has ended and frees it.
 * Returns true on success. */
static bool links_slow_over(struct fx_job *job)
{
	bool good = fx_links_do("restore");

	good = fx_job_wait(job, FX_LONG_MS) && good;
	return fx_job_free(job) && good;
}

/* Sets the rate of both rails before another attempt of links_slow_down: half
 * of the rate in the attempt before, because a busy machine needs more time for
 * the command that reduces the rate of r0. */
static bool links_slow_begin(int attempt)
{
	return !attempt || fx_links_rates(FX_LINKS_MBIT >> attempt);
}

/* Starts a job and reduces the rate of r0 to 10 Mbit/s while the job is in
 * progress. On failure, restores the rates, frees the job and returns false. */
static bool links_slow_down(const struct fx_links *l, int op,
			    struct fx_job *job)
{
	bool good = true;

	for (int i = 0; i < LINKS_TRIES && good; i++) {
		*job = links_job(l, LINKS_MEM, LINKS_BLOCK);
		job->op = op;
		if (!links_slow_begin(i) || fx_job_start(job)) {
			fx_links_do("restore");
			return false;
		}
		good = fx_job_reach(job, LINKS_MEM / 8, FX_LONG_MS) &&
		       fx_links_do("rate 0 10mbit");
		if (good && !fx_job_poll(job))
			return true;
		ft_diag("%s", good ? "all bytes had arrived before the rail "
				     "was slow; trying again" :
				     fx_job_text(job));
		good = links_slow_over(job) && good;
	}
	return false;
}

/* Returns the reported rate of r0 divided by that of r1. Sets *other to the
 * rate of r1 in MB/s. */
static double links_part(const struct fx_links *l, double *other)
{
	double r0 = fx_links_stats(l, "r0").rate / 1e6;

	*other = fx_links_stats(l, "r1").rate / 1e6;
	ft_diag("reported rates: r0 %.2f MB/s, r1 %.2f MB/s", r0, *other);
	return *other > 0 ? r0 / *other : 0;
}

/* Reduces the rate of r0 during a job. A slice that r0 carries at that time may
 * take longer than a silent rail is accepted; it must still arrive. Sets *kept
 * to true if no slice was fenced or sent again and the reported rate of r0 is
 * low. Returns false if a check fails. */
static bool links_slows_once(struct fx_links *l, int op, bool *kept)
{
	struct fx_buf *from = op == OPCODE_WRITE ? &l->mem : &l->target.mem;
	struct fx_buf *to = op == OPCODE_WRITE ? &l->target.mem : &l->mem;
	const char *name = op == OPCODE_WRITE ? "write" : "read";
	struct te_peer_stats was, is;
	struct fx_job job;
	double ms, part, other;
	uint64_t begin;
	bool good;

	fx_buf_fill(from, 0, LINKS_MEM, LINKS_SEED + (uint64_t)op);
	fx_buf_poison(to, 0, LINKS_MEM);
	if (!ft_ok(links_peer(l, &was) && links_slow_down(l, op, &job),
		   "rail_becomes_slow_during_a_%s", name))
		return false;
	begin = ft_now_ns();
	good = fx_job_wait(&job, FX_LONG_MS) && links_peer(l, &is);
	ms = (double)(ft_now_ns() - begin) / 1e6;
	part = links_part(l, &other);
	ft_diag("%s: %.0f ms after the rail became slow, tasks: %s", name, ms,
		fx_job_text(&job));
	*kept = good && is.fences == was.fences &&
		is.retries == was.retries && part < LINKS_SLOW_PART;
	/* Half of the data would take 6.7 s over r0. */
	good = ft_ok(good && job.n[STATUS_COMPLETED] == job.tasks &&
			     ms < 5000 &&
			     fx_buf_check(to, 0, LINKS_MEM,
					  LINKS_SEED + (uint64_t)op),
		     "transfer_with_slow_rail_completes_in_time");
	return ft_ok(links_slow_over(&job) && fx_links_mended(l),
		     "rail_with_restored_rate_carries_data") &&
	       good;
}

static void links_slows(struct fx_links *l, int op)
{
	bool good = true, kept = false;

	for (int i = 0; i < LINKS_TRIES && good && !kept; i++)
		good = links_slows_once(l, op, &kept);
	ft_ok(kept, "slow_rail_is_not_fenced_and_reports_its_rate");
}

/*
 * Returns true if the reported rates of both rails fit to a move that took `ms`
 * milliseconds. Each rail should have moved half of the bytes in that time, so
 * the test expects less from a machine that is slow because of other load.
 */
static bool links_rates_fit(const struct fx_links *l, double ms)
{
	double half = (double)LINKS_MEM / 1e3 / ms / 2, r1;
	double r0 = links_part(l, &r1) * r1;

	ft_diag("each rail moved %.2f MB/s", half);
	return r0 > half * LINKS_RATE_LEAST && r0 < half * LINKS_RATE_MOST &&
	       r1 > half * LINKS_RATE_LEAST && r1 < half * LINKS_RATE_MOST;
}

static void links_slow(struct fx_links *l)
{
	bool good, fit = false;
	double calm = 0, ms[2];

	for (int i = 0; i < LINKS_TRIES && !fit; i++) {
		calm = links_move(l, LINKS_MEM);
		fit = calm > 0 && links_rates_fit(l, calm);
	}
	ft_ok(fit, "statistics_report_the_rate_of_each_rail");
	good = fx_links_do("rate 0 2mbit") && calm > 0;
	ms[0] = links_move(l, LINKS_MEM);
	ms[1] = links_move(l, LINKS_MEM);
	ft_diag("16 MiB took %.0f ms over two rails, %.0f and %.0f ms with "
		"one rail at a hundredth of its rate",
		calm, ms[0], ms[1]);
	/* Half of the data would take 32 s over r0. */
	ft_ok(good && ms[0] > 0 && ms[1] > 0 && ms[1] < 16000,
	      "write_with_rail_at_a_hundredth_of_its_rate_completes_in_time");
	ft_ok(fx_links_do("restore 0") && fx_links_mended(l),
	      "rail_with_restored_rate_carries_data");
	links_slows(l, OPCODE_WRITE);
	links_slows(l, OPCODE_READ);
}

/* --- a target is frozen, or dead ----------------------------------------- */

struct links_other {
	struct fx_links links;
	struct fx_job job;
	bool busy; /* true: the job has been started and not freed */
	unsigned int jobs, refused;
};

/* If the last job has ended, frees it and starts the next one. */
static void links_feed(struct links_other *o)
{
	if (o->busy && !fx_job_poll(&o->job))
		return;
	if (o->busy)
		fx_job_free(&o->job);
	o->job = links_job(&o->links, LINKS_MEM, LINKS_BLOCK);
	o->busy = !fx_job_start(&o->job);
	o->jobs += o->busy;
	o->refused += !o->busy;
}

/* Moves data to the target of l for links_seconds, at least once, and keeps
 * jobs to the other target o in progress (unless it is NULL). Returns the rate
 * in MB/s, or 0 if a move failed. */
static double links_rate(const struct fx_links *l, struct links_other *o)
{
	uint64_t from = ft_now_ns(), bytes = 0, ns;

	do {
		if (o)
			links_feed(o);
		if (links_move(l, LINKS_MEM) <= 0)
			return 0;
		bytes += LINKS_MEM;
		ns = ft_now_ns() - from;
	} while (ns < links_seconds * FT_NS_PER_SEC);
	return (double)bytes * 1e3 / (double)ns;
}

/* Waits until the job to the other target has ended and frees it. Returns false
 * if a task has no final status. If the target was resumed in time (not
 * `dead`), also returns false if a task did not complete. */
static bool links_other_over(struct links_other *o, bool dead)
{
	bool good = !o->busy || fx_job_wait(&o->job, FX_LONG_MS);

	if (!o->busy)
		return good;
	ft_diag("other target: %u jobs, %u refused; tasks of the last: %s",
		o->jobs, o->refused, fx_job_text(&o->job));
	if (!dead && !links_seconds)
		good = o->job.n[STATUS_COMPLETED] == o->job.tasks && good;
	return fx_job_free(&o->job) && good;
}

/* Measures the rate of moves to the target of l. Sets *calm to the rate without
 * another target, and *beside to the rate while another target with a job is
 * stopped, or killed if `dead` is true. */
static bool links_beside_once(struct fx_links *l, bool dead, double *calm,
			      double *beside)
{
	struct links_other o = { .links = *l };
	bool good;

	if (!fx_links_target(&o.links.target, l->mem.len))
		return false;
	o.links.seg = openSegment(l->engine, o.links.target.name);
	good = links_move(&o.links, LINKS_MEM / 4) > 0;
	*calm = links_rate(l, NULL);
	links_feed(&o);
	good = good && o.busy && fx_job_reach(&o.job, FX_MIB, FX_LONG_MS);
	if (dead)
		fx_peer_kill(&o.links.target);
	else
		good = fx_peer_pause(&o.links.target) && good;
	*beside = links_rate(l, &o);
	if (!dead)
		fx_peer_resume(&o.links.target);
	good = links_other_over(&o, dead) && good;
	closeSegment(l->engine, o.links.seg);
	if (dead)
		fx_peer_drop(&o.links.target);
	else
		good = fx_peer_stop(&o.links.target) && good;
	return good && *calm > 0 && *beside > 0;
}

static void links_beside(struct fx_links *l, bool dead)
{
	const char *name = dead ? "dead" : "frozen";
	double calm[LINKS_TURNS], beside[LINKS_TURNS];
	bool good = true;

	for (int i = 0; i < LINKS_TURNS && good; i++)
		good = links_beside_once(l, dead, &calm[i], &beside[i]);
	if (!ft_ok(good, "transfers_while_another_target_is_%s_complete", name))
		return;
	ft_sort(calm, LINKS_TURNS);
	ft_sort(beside, LINKS_TURNS);
	ft_diag("%.1f MB/s alone, %.1f MB/s next to a %s target: ratio %.3f",
		calm[LINKS_TURNS / 2], beside[LINKS_TURNS / 2], name,
		beside[LINKS_TURNS / 2] / calm[LINKS_TURNS / 2]);
	ft_ok(beside[LINKS_TURNS - 1] >
		      LINKS_COST_LEAST * calm[LINKS_TURNS / 2],
	      "transfers_while_another_target_is_%s_keep_their_rate", name);
}

static void links_frozen(struct fx_links *l)
{
	links_beside(l, false);
}

static void links_dead(struct fx_links *l)
{
	links_beside(l, true);
}

/* --- a target has moved, and its control port does not answer ------------ */

/* Causes a fence of a rail of the target, which then listens at another
 * address. Returns true if the fence was requested. */
static bool links_fenced(struct fx_links *l, const char *cut,
			 const char *mend)
{
	struct te_peer_stats was, is;

	return links_peer(l, &was) && fx_links_do(cut) &&
	       links_move(l, LINKS_MEM) > 0 && fx_links_do(mend) &&
	       fx_links_mended(l) && links_peer(l, &is) &&
	       is.fences > was.fences;
}

/* Creates another engine and imports the target's descriptor from before the
 * fences. Returns true if it reaches the target. */
static bool links_finds(struct fx_links *l, const void *blob, size_t size)
{
	transfer_engine_t other = createTransferEngine("P2PHANDSHAKE",
						       "10.77.0.1", "10.77.0.1",
						       0, 0);
	segment_id_t seg = -1;
	bool good = other && installTransport(other, "tcp", NULL) &&
		    fx_register(other, &l->mem) &&
		    !te_segment_import(other, blob, size, 0, &seg);

	fx_buf_fill(&l->mem, 0, LINKS_PART, LINKS_SEED);
	good = good && fx_move(other, seg, OPCODE_WRITE, l->mem.p,
			       l->target.mem.addr, LINKS_PART, LINKS_BLOCK) &&
	       fx_buf_check(&l->target.mem, 0, LINKS_PART, LINKS_SEED);
	destroyTransferEngine(other);
	return good;
}

static void links_moved(struct fx_links *l)
{
	int size = fx_ask(&l->target, "export %llu", LINKS_MEM);
	char lose[128], mend[128], *blob = NULL;
	const char *port = strrchr(l->target.name, ':');

	if (!ft_ok(size > 0 && port, "target_exports_its_segment"))
		return;
	blob = malloc((size_t)size);
	memcpy(blob, l->target.mem.p + LINKS_MEM, (size_t)size);
	ft_ok(links_fenced(l, "drop 0 both", "restore 0") &&
		      links_fenced(l, "drop 1 both", "restore 1"),
	      "all_rails_of_target_get_new_addresses");
	snprintf(lose, sizeof(lose), "run b iptables -w 10 -I INPUT -p tcp "
		 "--dport %s -j DROP", port + 1);
	snprintf(mend, sizeof(mend), "run b iptables -w 10 -D INPUT -p tcp "
		 "--dport %s -j DROP", port + 1);
	ft_ok(fx_links_do(lose) && links_finds(l, blob, (size_t)size),
	      "engine_with_old_descriptor_reaches_moved_target");
	fx_links_do(mend);
	free(blob);
}

/* --- nothing is wrong ---------------------------------------------------- */

static void links_spin(pid_t pid[LINKS_SPINNERS])
{
	for (int i = 0; i < LINKS_SPINNERS; i++) {
		pid[i] = fork();
		if (pid[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			;
	}
}

/* Moves data while LINKS_SPINNERS processes occupy the CPUs. No rail may change
 * its state. */
static void links_calm(struct fx_links *l)
{
	uint64_t was = fx_links_stats(l, "r0").state_changes +
		       fx_links_stats(l, "r1").state_changes;
	unsigned int seconds = links_seconds ? links_seconds : LINKS_CALM_S;
	uint64_t end, changes, moves = 0;
	pid_t pid[LINKS_SPINNERS];
	bool good = true;

	links_spin(pid);
	end = ft_now_ns() + seconds * FT_NS_PER_SEC;
	for (; good && ft_now_ns() < end; moves++)
		good = fx_move(l->engine, l->seg,
			       moves % 2 ? OPCODE_READ : OPCODE_WRITE,
			       l->mem.p, l->target.mem.addr, LINKS_MEM,
			       moves % 3 ? LINKS_BLOCK : 0);
	for (int i = 0; i < LINKS_SPINNERS; i++) {
		kill(pid[i], SIGKILL);
		waitpid(pid[i], NULL, 0);
	}
	changes = fx_links_stats(l, "r0").state_changes +
		  fx_links_stats(l, "r1").state_changes - was;
	ft_diag("%llu transfers of 16 MiB in %u s, %llu changes of state",
		(unsigned long long)moves, seconds,
		(unsigned long long)changes);
	ft_ok(good && moves > 0 && !changes,
	      "rails_on_a_busy_machine_do_not_become_suspect");
}

/* ------------------------------------------------------------------------- */

static const struct links_case {
	const char *name;
	void (*run)(struct fx_links *links);
	const char *timeout;		/* MC_SLICE_TIMEOUT, s */
	const char *hasty;		/* MC_SLICE_TIMEOUT with the operand
					 * SECONDS, s */
	const char *devices;		/* rails of the case; NULL means both */
} links_cases[] = {
	{ "idle", links_idle, "30", "30", NULL },
	{ "none", links_none, "2", "2", NULL },	/* the same time as
						 * LINKS_GONE_MS */
	{ "forgotten", links_forgotten, "30", "30", "r0" },
	{ "killed", links_killed, "60", "60", NULL },
	{ "flaps", links_flaps, "30", "30", NULL },
	{ "slow", links_slow, "60", "60", NULL },
	{ "frozen", links_frozen, "30", LINKS_HASTY, NULL },
	{ "dead", links_dead, "5", LINKS_HASTY, NULL },
	{ "moved", links_moved, "10", "10", NULL },
	{ "calm", links_calm, "60", "60", NULL },
};

#define LINKS_CASES (sizeof(links_cases) / sizeof(links_cases[0]))

static void links_run(const struct links_case *c)
{
	static struct fx_links links;

	setenv("MC_SLICE_TIMEOUT", links_seconds ? c->hasty : c->timeout, 1);
	if (!ft_ok(fx_links_start_on(&links, c->devices ? c->devices : "r0,r1",
				     LINKS_MEM),
		   "%s: both_rails_carry_data", c->name))
		return;
	c->run(&links);
	fx_links_stop(&links);
}

/* Starts a case in another process of this program. */
static bool links_start(struct ft_proc *proc, const char *name)
{
	char *argv[] = { (char *)"/proc/self/exe", (char *)name, NULL };

	return !ft_proc_start(proc, argv);
}

/* Prints the output of a case, waits for it and returns its exit code. */
static int links_end(struct ft_proc *proc)
{
	char line[1024];

	while (!ft_proc_line(proc, line, sizeof(line), FX_LONG_MS))
		puts(line);
	return ft_proc_stop(proc, FX_LONG_MS);
}

/* Runs the cases with the indices `from` to `to` - 1 at the same time. Returns
 * FT_PASS, or the exit code of a case that did not pass. */
static int links_some(size_t from, size_t to)
{
	struct ft_proc proc[LINKS_CASES];
	int code, worst = FT_PASS;
	size_t i;

	for (i = from; i < to; i++)
		if (!links_start(&proc[i], links_cases[i].name))
			worst = FT_FAIL;
	for (i = from; i < to; i++) {
		code = links_end(&proc[i]);
		if (code && worst != FT_FAIL)
			worst = code;
	}
	return worst;
}

/* Runs all cases at the same time, except the last one. That runs alone after
 * them, because it measures the whole machine. */
static int links_all(void)
{
	int code = links_some(0, LINKS_CASES - 1);
	int calm = links_some(LINKS_CASES - 1, LINKS_CASES);

	return code ? code : calm;
}

struct links_args {
	const char *only;
	uint64_t seconds;
};

static const struct ft_option links_operands[] = {
	{ "CASE", FT_TEXT, offsetof(struct links_args, only), 0, 0, NULL, "",
	  "the only case to run; all" },
	{ "SECONDS", FT_COUNT, offsetof(struct links_args, seconds), 1, 86400,
	  NULL, "", "time of the cases that measure or wait" },
};

static const struct ft_options links_options = {
	.program = "ft_links",
	.usage = "[CASE [SECONDS]]",
	.operands = links_operands,
	.operand_count = 2,
	.width = 8,
};

int main(int argc, char **argv)
{
	struct links_args args = { NULL, 0 };

	fx_init(argc, argv);
	ft_options_take(&links_options, argc, argv, &args);
	links_seconds = (unsigned int)args.seconds;
	if (!fx_links_are())
		return args.only ? fx_links_inside(argv, "no") : links_all();
	for (size_t i = 0; i < LINKS_CASES; i++)
		if (!strcmp(args.only, links_cases[i].name))
			links_run(&links_cases[i]);
	return ft_result();
}
