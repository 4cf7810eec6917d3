/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Several processes move ranges of random size between random offsets, in both
 * directions, while some of the processes are stopped, or killed and started
 * again. The test checks every byte of each range and around it.
 *
 * Usage:
 *	te_stress [SECONDS]		over the loopback interface
 *	te_stress links [SECONDS]	over two rails between two hosts
 *					(network namespaces); the test breaks
 *					the rails, one at a time
 *	te_stress bare [SECONDS]	like "links", but the control channel
 *					has no link of its own: all contact
 *					addresses are on one of the two rails
 *
 * FT_SEED=N repeats the moves and the faults of a run, but not their timing.
 * STRESS_HALT=S stops all processes for a debugger if a move takes S seconds
 * although no fault affected either of its processes.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_num.h"
#include "fabtests/stress/stress.h"

static void stress_report(const struct stress *s, double seconds)
{
	ft_diag("%.0f s: %llu tasks completed (%.1f MB/s verified), %llu "
		"failed, %llu timed out, %llu canceled, %llu moves refused; "
		"%llu stops, %llu kills, %llu broken rails, %llu cancelled "
		"moves unfenced because of a broken rail", seconds,
		(unsigned long long)s->status[STATUS_COMPLETED],
		(double)s->bytes / seconds / 1e6,
		(unsigned long long)s->status[STATUS_FAILED],
		(unsigned long long)s->status[STATUS_TIMEOUT],
		(unsigned long long)s->status[STATUS_CANCELED],
		(unsigned long long)s->refused, (unsigned long long)s->stops,
		(unsigned long long)s->kills, (unsigned long long)s->cuts,
		(unsigned long long)s->unfenced);
}

static bool stress_idle(const struct stress *s)
{
	for (unsigned int i = 0; i < STRESS_MOVES; i++)
		if (s->move[i].id)
			return false;
	return true;
}

static bool stress_wakes(const struct stress *s)
{
	for (unsigned int i = 0; i < STRESS_WORKERS; i++)
		if (s->worker[i].stopped)
			return true;
	return s->mend_ns != 0;
}

/* Makes moves and faults until `seconds` have passed, then waits until all
 * moves and faults have ended. Returns false if a step fails or if there are
 * more than 20 errors. */
static bool stress_run(struct stress *s, double seconds)
{
	uint64_t begin = ft_now_ns(), said = begin, now;
	uint64_t end = begin + (uint64_t)(seconds * 1e9);

	for (;;) {
		now = ft_now_ns();
		if (now >= end && stress_idle(s) && !stress_wakes(s))
			break;
		if (now >= end)
			s->next_fault_ns = UINT64_MAX;
		else
			stress_begin(s);
		if (!stress_fault(s) || !stress_listen(s, 2))
			return false;
		stress_watch(s);
		if (s->bad + s->late + s->unexplained > 20)
			return false;
		if (now - said > 60 * FT_NS_PER_SEC) {
			said = now;
			stress_report(s, (double)(now - begin) / 1e9);
		}
	}
	stress_report(s, (double)(ft_now_ns() - begin) / 1e9);
	return true;
}

static void stress_result(const struct stress *s)
{
	ft_ok(!s->bad, "every_byte_is_only_where_it_belongs");
	ft_ok(!s->late, "every_move_ends_in_time");
	ft_ok(!s->unexplained, "moves_between_healthy_processes_do_not_fail");
	ft_ok(s->status[STATUS_COMPLETED] > 0 && s->faults > 0,
	      "moves_and_faults_happened");
}

int main(int argc, char **argv)
{
	static struct stress s;
	double seconds = 40;
	const char *halt = getenv("STRESS_HALT");
	double halt_s = 0;
	char timeout[16];
	bool good = true;

	snprintf(timeout, sizeof(timeout), "%d", STRESS_TIMEOUT_S);
	setenv("MC_SLICE_TIMEOUT", timeout, 0);
	setenv("MC_LOG_LEVEL", "error", 0);
	fx_init(argc, argv);
	if (argc > 1 && !strcmp(argv[1], "--worker"))
		return stress_worker(argc, argv);
	s.unresolved = argc > 1 && !strcmp(argv[1], "bare");
	s.links = s.unresolved || (argc > 1 && !strcmp(argv[1], "links"));
	if ((argc > 1 + s.links &&
	     ft_parse_seconds(argv[1 + s.links], &seconds)) ||
	    (halt && ft_parse_seconds(halt, &halt_s))) {
		fprintf(stderr, "usage: te_stress [links|bare] [SECONDS]\n");
		return 2;
	}
	s.halt_ns = (uint64_t)(halt_s * 1e9);
	if (s.links && !fx_links_are())
		return fx_links_inside(argv, s.unresolved ? "no" : "yes");
	if (s.links)
		setenv("MOONRAIL_DEVICES", "r0,r1", 1);
	s.seed = fx_seed();
	for (unsigned int i = 0; i < STRESS_WORKERS && good; i++)
		good = stress_start(&s, i, false);
	if (ft_ok(good, "workers_start")) {
		s.next_fault_ns = ft_now_ns() + FT_NS_PER_SEC;
		ft_ok(stress_run(&s, seconds), "run_reaches_its_end");
		stress_result(&s);
		ft_ok(stress_all_poison(&s), "ended_move_writes_no_byte");
	}
	ft_ok(stress_end(&s), "workers_end_with_0");
	return ft_result();
}
