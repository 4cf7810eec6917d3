/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures what the data plane of one host costs if it has many peers, in a
 * simulated world. Host 0 has a data plane with two rails. Each other host has
 * such a data plane too, and is a peer of host 0.
 *
 *	scale [PEERS [times]]
 *
 * The number of peers grows from 1 to PEERS in steps of a factor of 10. For each
 * number the program prints:
 * - the memory of host 0 per peer that has been idle for 20 s, in KiB: the
 *   growth since there was one peer, divided by the number of added peers;
 * - the processor time of host 0 for the first contacts with the new peers, at
 *   most 1 024 of them;
 * - the processor time of host 0 for a write of 64 bytes to one peer, including
 *   the progress thread and the simulated provider, and the number of events
 *   that run on host 0 for it;
 * - the processor time of host 0 for such a write if the writes go to many peers
 *   in turn, at most 128 of them, so that all keep their connections;
 * - the processor time of host 0 per second of virtual time while it is idle;
 * - the longest event of host 0, in processor time, after a cable of host 0 was
 *   pulled, and after it was plugged in again: this is the time for which the
 *   progress thread ran without a pause. The cable is pulled several times, and
 *   the longest event of all counts.
 *
 * The program fails if a limit for memory or events is exceeded. With the word
 * "times" it also fails if a time exceeds its limit. All times are processor
 * times, from which the time that reading the clock takes is subtracted.
 *
 * A virtual machine counts the time for which its host did not run it as
 * processor time of the program that it interrupted. With the word "times" the
 * program therefore simulates the same events SCALE_RUNS times, and the time of
 * an event is the shortest of these runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/sim/scale.h"
#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_net.h"
#include "prov/rail/tei_rail.h"
#include "util/err.h"
#include "util/settings.h"

#define SCALE_NICS	2
#define SCALE_BYTES	4096		/* size of the registered memory of a
					 * host, bytes */
#define SCALE_WAIT_NS	(60 * SIM_SEC)
#define SCALE_IDLE_NS	(20 * SIM_SEC)
#define SCALE_FIRST	1024		/* maximum number of first contacts
					 * whose time is measured */
#define SCALE_WRITES	100		/* number of writes of one round */
#define SCALE_ROUNDS	20
#define SCALE_SPREAD	128		/* number of peers that are written to
					 * in turn */
#define SCALE_PULLS	5		/* number of times that the cable is
					 * pulled */
#define SCALE_RUNS	3		/* number of simulations of the same
					 * events */
#define SCALE_EVENTS	(1u << 26)	/* limit of the number of events of
					 * host 0 */
/* limits of the results */
#define SCALE_PEER_KIB	8.0
#define SCALE_FIRST_S	2.0
#define SCALE_RATIO	1.05
#define SCALE_STALL_S	0.010

/* One host and its data plane. `peer` is the peer object that host 0 has for
 * it, `task` a task of host 0 with this peer. */
struct scale_host {
	struct sim_host *host;
	struct tei_rail_dp *dp;
	struct tei_rail_addr at[SCALE_NICS];
	size_t nat;
	struct tei_rail_peer *peer;
	struct tei_rail_task task;
	char *mem;
};

/* The results for one number of peers. */
struct scale_row {
	uint32_t peers, first;		/* number of peers; number of first
					 * contacts whose time was measured */
	double memory;			/* memory of host 0 for all peers,
					 * KiB */
	double first_s, write_s, write_events, spread_s, idle_s, down_s, up_s;
};

static struct {
	struct scale_host *hosts;
	uint32_t peers;			/* number of peers that host 0 has at
					 * present */
	struct tei_settings settings;
	uint32_t open;			/* number of tasks that have not
					 * ended */
	uint32_t failed;		/* number of tasks that did not end as
					 * COMPLETED */
	/* `runs` and `since_s` describe the event that runs at present. */
	struct sim_host *runs;		/* host of the event */
	double since_s;			/* processor time of this program at the
					 * start of the event, s */
	double hub_s, longest_s;	/* processor time of the events of host
					 * 0 in the present scale_run, s: sum
					 * and longest */
	uint64_t hub_events;		/* number of these events */
	double clock_s;			/* processor time that reading the clock
					 * takes, s */
	/*
	 * Element i is the processor time of event i of host 0, s, or 0 if no
	 * run has had this event yet. All runs have the same events. The
	 * element is the shortest time of all runs up to now, because other
	 * programs of this computer lengthen some of the times. The processes
	 * of all runs share the array.
	 */
	float *event_s;
	uint32_t events;		/* number of events of host 0 in this
					 * run */
} scale;

/* Returns the processor time of this process, s. */
static double scale_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Sets scale.clock_s to the shortest time that reading the clock takes. */
static void scale_calibrate(void)
{
	double start, s;
	uint32_t i;

	scale.clock_s = 1;
	for (i = 0; i < 1000; i++) {
		start = scale_clock();
		s = scale_clock() - start;
		if (s < scale.clock_s)
			scale.clock_s = s;
	}
}

/* --- data planes --- */

static void scale_done(struct tei_rail_task *task, enum tei_rail_end end,
		       const struct tei_err *err)
{
	(void)task;
	scale.open--;
	sim_wake(&scale.open, true);
	if (end != TEI_RAIL_END_COMPLETED && !scale.failed++)
		fprintf(stderr, "scale: a write ended with status %u: %s\n",
			end, err ? err->text : "");
}

static void scale_notify(void *arg, struct tei_rail_notification *note)
{
	(void)arg;
	tei_rail_notification_free(note);
}

static void scale_resolve(void *arg, struct tei_rail_peer *peer)
{
	(void)arg;
	tei_rail_peer_put(peer);
}

static void scale_changed(void *arg)
{
	(void)arg;
}

static const struct tei_rail_ops scale_ops = {
	.task_done = scale_done,
	.notify = scale_notify,
	.resolve = scale_resolve,
	.rails_changed = scale_changed,
};

static void *host_open(void *arg)
{
	struct scale_host *h = arg;
	char name[32];
	struct tei_rail_dp_attr attr = {
		.settings = &scale.settings,
		.ops = &scale_ops,
		.arg = h,
		.name = name,
		.incarnation = 100 + sim_host_id(h->host),
	};
	struct tei_rail_desc desc;
	struct tei_rail_mr *mr;
	struct tei_err err;
	size_t i;

	snprintf(name, sizeof(name), "host%u", sim_host_id(h->host));
	if (tei_rail_dp_open(&attr, &err, &h->dp) ||
	    tei_rail_dp_add_transport(h->dp, "tcp", "", &err))
		sim_fail("%s: %s", name, err.text);
	for (i = 0; i < tei_rail_count(h->dp) && i < SCALE_NICS; i++) {
		tei_rail_describe(h->dp, i, &desc);
		h->at[h->nat++] = desc.known;
	}
	h->mem = sim_arena(SCALE_BYTES, SCALE_BYTES);
	if (tei_rail_mr_reg(h->dp, h->mem, SCALE_BYTES, "*", TEI_RAIL_REMOTE,
			    &err, &mr))
		sim_fail("%s: %s", name, err.text);
	return NULL;
}

/* --- running --- */

/* The condition that ends scale_run. */
struct scale_until {
	bool (*fn)(void *arg);		/* condition; NULL if only the time
					 * limit ends scale_run */
	void *arg;
};

/* Records the processor time of the next event of host 0. Returns the shortest
 * time of this event in all runs up to now, s. */
static double event_shortest(double took)
{
	float *best = &scale.event_s[scale.events];

	if (++scale.events >= SCALE_EVENTS)
		sim_fail("scale: too many events");
	if (took < 0)
		took = 0;
	if (*best == 0 || took < (double)*best)
		*best = (float)took;
	return (double)*best;
}

/* Called before each event. If the previous event belonged to host 0, adds its
 * processor time to the sums in `scale`. Returns true if the condition is
 * met. */
static bool scale_event(void *arg)
{
	const struct scale_until *until = arg;
	double took;

	if (scale.runs == scale.hosts[0].host) {
		took = event_shortest(scale_clock() - scale.since_s -
				      scale.clock_s);
		scale.hub_s += took;
		scale.hub_events++;
		if (scale.longest_s < took)
			scale.longest_s = took;
	}
	if (until->fn && until->fn(until->arg))
		return true;
	scale.runs = sim_next_host();
	if (scale.runs == scale.hosts[0].host)
		scale.since_s = scale_clock();
	return false;
}

/* Resets the sums in `scale`. Then runs the simulation until fn(arg) returns
 * true, but for at most `ns`. Returns the last result of fn. */
static bool scale_run(bool (*fn)(void *), void *arg, uint64_t ns)
{
	struct scale_until until = { fn, arg };

	scale.runs = NULL;
	scale.hub_s = 0;
	scale.hub_events = 0;
	scale.longest_s = 0;
	return sim_run_while(scale_event, &until, sim_now() + ns);
}

static bool fiber_ended(void *arg)
{
	return sim_fiber_ended(arg);
}

static void scale_fiber(struct sim_host *host, void *(*fn)(void *), void *arg)
{
	struct sim_fiber *fiber = sim_fiber_start(host, "scale", fn, arg);

	if (!sim_run_while(fiber_ended, fiber, sim_now() + SCALE_WAIT_NS))
		sim_fail("scale: a step has not ended");
	sim_fiber_join(fiber);
}

static bool tasks_ended(void *arg)
{
	(void)arg;
	return scale.open == 0;
}

/* A range of hosts: from `from` up to `to` - 1. */
struct scale_range {
	uint32_t from, to;
};

static void host_write(struct scale_host *h)
{
	struct tei_rail_task *task = &h->task;

	memset(task, 0, sizeof(*task));
	task->peer = h->peer;
	task->local = scale.hosts[0].mem;
	task->remote = (uintptr_t)h->mem;
	task->length = 64;
	scale.open++;
	if (tei_rail_submit(scale.hosts[0].dp, &task, 1))
		sim_fail("scale: a write was refused");
}

/* Submits a first write to each peer of a range. Runs in a fiber of host 0. */
static void *peers_meet(void *arg)
{
	const struct scale_range *r = arg;
	struct scale_host *h;
	struct tei_err err;
	char name[32];
	uint32_t i;

	for (i = r->from; i < r->to; i++) {
		h = &scale.hosts[i];
		snprintf(name, sizeof(name), "host%u", i);
		if (tei_rail_peer_get(scale.hosts[0].dp, name, 100 + i, h->at,
				      h->nat, &err, &h->peer))
			sim_fail("%s: %s", name, err.text);
		host_write(h);
	}
	return NULL;
}

/* Makes first contact with the peers from `from` up to `to` - 1: submits a
 * write to each and waits until all writes have ended. Returns the processor
 * time of host 0, s. */
static double peers_write(uint32_t from, uint32_t to)
{
	struct scale_range r = { from, to };
	struct sim_fiber *fiber = sim_fiber_start(scale.hosts[0].host, "scale",
						  peers_meet, &r);
	double s;

	if (!scale_run(fiber_ended, fiber, SCALE_WAIT_NS))
		sim_fail("scale: the submissions do not end");
	s = scale.hub_s;
	sim_fiber_join(fiber);
	if (!scale_run(tasks_ended, NULL, SCALE_WAIT_NS))
		sim_fail("scale: writes do not end");
	return s + scale.hub_s;
}

/* --- the cost of a write --- */

/* Writes SCALE_WRITES times, to the newest *arg peers in turn. Runs in a fiber of
 * host 0. */
static void *writes_in_turn(void *arg)
{
	const uint32_t *n = arg;
	uint32_t i;

	for (i = 0; i < SCALE_WRITES; i++) {
		host_write(&scale.hosts[scale.peers - i % *n]);
		while (scale.open > 0)
			sim_wait(&scale.open, SIM_NEVER);
	}
	return NULL;
}

/* Returns the processor time of host 0 for a write of 64 bytes to one of the
 * newest `n` peers, and stores the number of its events in *events. Takes the
 * time of the fastest of several rounds, because other processes disturb the
 * caches. */
static double scale_write_cost(uint32_t n, double *events)
{
	struct sim_fiber *fiber;
	double s, best = 0;
	uint32_t i;

	for (i = 0; i < SCALE_ROUNDS; i++) {
		fiber = sim_fiber_start(scale.hosts[0].host, "scale",
					writes_in_turn, &n);
		if (!scale_run(fiber_ended, fiber, SCALE_WAIT_NS))
			sim_fail("scale: writes do not end");
		sim_fiber_join(fiber);
		s = scale.hub_s / SCALE_WRITES;
		if (i == 0 || s < best)
			best = s;
		*events = (double)scale.hub_events / SCALE_WRITES;
	}
	return best;
}

/* Pulls a cable of host 0 and plugs it in again. Stores the longest events in
 * row->down_s and row->up_s, if they are longer than the ones before. */
static void scale_pull(struct scale_row *row)
{
	const struct sim_net_nic cable = { 0, 1 };

	sim_net_nic_link(cable, false);
	scale_run(NULL, NULL, SCALE_IDLE_NS / 2);
	if (scale.longest_s > row->down_s)
		row->down_s = scale.longest_s;
	sim_net_nic_link(cable, true);
	scale_run(NULL, NULL, SCALE_IDLE_NS / 2);
	if (scale.longest_s > row->up_s)
		row->up_s = scale.longest_s;
}

/* --- one number of peers --- */

/* Adds peers until there are row->peers, and measures what they cost. `base` is
 * the memory of host 0 without peers, bytes. */
static void scale_measure(struct scale_row *row, uint64_t base)
{
	uint32_t i, from = scale.peers + 1, to = row->peers + 1;
	double events;

	for (i = from; i < to; i++)
		scale_fiber(scale.hosts[i].host, host_open, &scale.hosts[i]);
	row->first = to - from < SCALE_FIRST ? to - from : SCALE_FIRST;
	row->first_s = peers_write(from, from + row->first);
	for (i = from + row->first; i < to; i += SCALE_FIRST)
		peers_write(i, i + SCALE_FIRST < to ? i + SCALE_FIRST : to);
	scale.peers = row->peers;
	scale_run(NULL, NULL, SCALE_IDLE_NS);
	row->memory = (double)(scale_memory() - base) / 1024;
	scale_run(NULL, NULL, SCALE_IDLE_NS);
	row->idle_s = scale.hub_s / ((double)SCALE_IDLE_NS / SIM_SEC);
	row->write_s = scale_write_cost(1, &row->write_events);
	row->spread_s = scale_write_cost(
		row->peers < SCALE_SPREAD ? row->peers : SCALE_SPREAD, &events);
	for (i = 0; i < SCALE_PULLS; i++)
		scale_pull(row);
}

/* If the value exceeds its limit, prints a line and returns 1. Otherwise
 * returns 0. */
static int scale_check(const char *what, double value, double limit)
{
	if (value <= limit)
		return 0;
	printf("not ok: %s: %g, limit %g\n", what, value, limit);
	return 1;
}

static int scale_report(const struct scale_row *row, const struct scale_row *one,
			bool times)
{
	int bad = 0;
	double kib = row->peers > 1 ? (row->memory - one->memory) /
					      (row->peers - 1) : 0;

	printf("%6u %8.1f %5u in %6.3f s %6.2f us %5.1f events %6.2f us %8.3f ms %8.2f ms %8.2f ms\n",
	       row->peers, kib, row->first, row->first_s,
	       row->write_s * 1e6, row->write_events, row->spread_s * 1e6,
	       row->idle_s * 1e3,
	       row->down_s * 1e3, row->up_s * 1e3);
	fflush(stdout);
	/* With fewer peers the result is not meaningful, because tables grow by
	 * a factor of two. */
	if (row->peers >= 1000)
		bad |= scale_check("memory per idle peer, KiB", kib,
				   SCALE_PEER_KIB);
	bad |= scale_check("events of a write, compared with one peer",
			   row->write_events / one->write_events, SCALE_RATIO);
	if (!times)
		return bad;
	bad |= scale_check("first contacts, s", row->first_s, SCALE_FIRST_S);
	bad |= scale_check("stall after a cable was pulled, s", row->down_s,
			   SCALE_STALL_S);
	bad |= scale_check("stall after a cable was plugged in, s", row->up_s,
			   SCALE_STALL_S);
	return bad;
}

/* Simulates and measures with up to `max` peers, and prints the results. Can be
 * called only once in a process. Returns 0 if no limit is exceeded. */
static int scale_simulate(uint32_t max, bool times)
{
	static const char *const options[] = { "MOONRAIL_PROVIDER=sim",
					       "MC_WORKERS_PER_CTX=1" };
	struct scale_row rows[8];
	uint32_t i, n = 0;
	struct sim_net_conf conf;
	struct tei_err err;
	uint64_t base;
	int bad = 0;

	scale_calibrate();
	sim_net_provider(NULL);
	sim_world_install();
	sim_net_conf_tcp(&conf);
	if (tei_settings_load_options(&scale.settings, options, 2, &err))
		return 2;
	sim_begin(1, max + 1);
	sim_net_begin(&conf, SCALE_NICS);
	scale.hosts = calloc(max + 1, sizeof(*scale.hosts));
	if (!scale.hosts)
		return 2;
	for (i = 0; i <= max; i++)
		scale.hosts[i].host = sim_host_get(i);
	scale_fiber(scale.hosts[0].host, host_open, &scale.hosts[0]);
	base = scale_memory();
	printf(" peers KiB/peer    first contacts   write to one peer   to many  idle per s  cable down         up\n");
	for (i = 1; n < 8; i *= 10) {
		memset(&rows[n], 0, sizeof(rows[n]));
		rows[n].peers = i < max ? i : max;
		scale_measure(&rows[n], base);
		bad |= scale_report(&rows[n], &rows[0], times);
		if (rows[n++].peers == max)
			break;
	}
	bad |= scale.failed > 0;
	return bad;
}

/* Simulates in a child process, which records the times of the events and
 * prints no results. Returns false if that fails. */
static bool scale_rehearse(uint32_t max)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (!freopen("/dev/null", "w", stdout))
			_exit(2);
		_exit(scale_simulate(max, false));
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid &&
	       WIFEXITED(status) && WEXITSTATUS(status) != 2;
}

int main(int argc, char **argv)
{
	uint32_t max = argc > 1 ? (uint32_t)atoi(argv[1]) : 10000, i;
	bool times = argc > 2;

	if (max < 1 || max > 60000)
		return 2;
	scale.event_s = mmap(NULL, SCALE_EVENTS * sizeof(*scale.event_s),
			     PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (scale.event_s == MAP_FAILED)
		return 2;
	for (i = 1; times && i < SCALE_RUNS; i++)
		if (!scale_rehearse(max))
			return 2;
	return scale_simulate(max, times);
}
