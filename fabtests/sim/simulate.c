/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs the data planes of several hosts (--world=rail, the default), or libfabric
 * programs that use the provider (--world=fi), in a simulated world with random
 * faults. Checks their guarantees (the laws in docs/TESTING.md, which also
 * describes how to use this program).
 *
 *	simulate [--world=rail|fi] [--seed=N] [--sim=SECONDS] [--hosts=N]
 *		[--rails=N] [--workers=N] [--rate=N] [--faults=N] [--errors=N]
 *		[--places=N] [--threads=N] [--connections=N] [--ports=N]
 *		[--nic=tcp|verbs] [--without=LIST] [--only=LIST] [--trace=FILE]
 *		[--svg=FILE] [--fences=FILE] [--here] [--break=EVENT] [--list]
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_check.h"
#include "fabtests/sim/sim_cluster.h"
#include "fabtests/sim/sim_engine.h"
#include "fabtests/sim/sim_fence.h"
#include "fabtests/sim/sim_fence_hooks.h"
#include "fabtests/sim/sim_fi.h"
#include "fabtests/sim/sim_load.h"
#include "fabtests/sim/sim_net.h"
#include "fabtests/sim/simulate.h"
#include "util/log.h"

/* time between the start and the first fault, ns */
#define SIMULATE_QUIET_NS	(2 * SIM_SEC)
/* real processor time after which an event that has not ended counts as an
 * endless loop, s */
#define SIMULATE_STUCK_S	20
/* maximum number of steps of a progress loop in one second, without traffic, and
 * the additional number for each operation of a host. A loop that does not
 * sleep runs 1000000 steps. */
#define SIMULATE_STEPS		200000
#define SIMULATE_STEPS_OP	1000
/* time between the end of the workload and the closing of the data planes,
 * ns */
#define SIMULATE_SETTLE_NS	(10 * SIM_SEC)
/* maximum of conf.close_ns, which the seed chooses */
#define SIMULATE_CLOSE_EP_NS	(50 * SIM_MS)
/* The seed chooses a small MC_MAX_EP_PER_CTX for half of the simulations, so
 * that connections are evicted: from SIMULATE_PLACES to
 * 2 * SIMULATE_PLACES - 1. */
#define SIMULATE_PLACES		4
/* The seed chooses for half of the simulations that a restarted process gets
 * ports of its predecessor. Then a NIC has this number of ports. */
#define SIMULATE_PORTS		1024
/* time within which all data planes must close, ns */
#define SIMULATE_CLOSE_NS	(300 * SIM_SEC)

uint32_t simulate_faults(const struct simulate_options *o)
{
	uint64_t n = (o->faults * o->seconds + 59) / 60;

	return n < SIM_PLAN_MAX ? (uint32_t)n : SIM_PLAN_MAX;
}

static void run_conf(const struct simulate_options *o, struct sim_conf *conf,
		     struct sim_net_conf *net)
{
	struct sim_rng rng;

	sim_rng_init(&rng, "conf", 0);
	memset(conf, 0, sizeof(*conf));
	conf->hosts = o->hosts;
	conf->rails = o->rails;
	conf->workers = o->workers;
	conf->threads = o->threads;
	conf->connections = o->connections;
	conf->pause_ns = 60 * SIM_SEC * o->workers / o->rate;
	conf->until_ns = SIM_START_NS + o->seconds * SIM_SEC;
	conf->verbs = o->verbs < 0 ? sim_rng_below(&rng, 2) == 1 : o->verbs == 1;
	o->world->size(conf);
	if (conf->verbs)
		sim_net_conf_verbs(net);
	else
		sim_net_conf_tcp(net);
	net->error_ppm = o->errors;
	net->ports = o->ports;
	net->close_ns = sim_rng_below(&rng, SIMULATE_CLOSE_EP_NS);
	conf->places = o->places;
	if (!o->places && sim_rng_below(&rng, 2))
		conf->places = SIMULATE_PLACES +
			       (uint32_t)sim_rng_below(&rng, SIMULATE_PLACES);
	if (!o->ports && sim_rng_below(&rng, 2))
		net->ports = SIMULATE_PORTS;
}

/* Checks that the processes have closed all objects of the provider. Hosts on
 * which a process was killed are not checked. */
static void run_check_leaks(void)
{
	struct sim_net_stats s;
	uint32_t i;

	for (i = 0; i < sim_host_count(); i++) {
		if (sim_host_life(sim_host_get(i)) > 0 ||
		    sim_host_killed(sim_host_get(i)))
			continue;
		sim_net_stats_get(i, &s);
		if (s.domains || s.endpoints || s.mrs || s.queues || s.avs)
			sim_found("host %u left open: %u domains, %u endpoints, %u registrations, %u queues, %u address vectors",
				  i, s.domains, s.endpoints, s.mrs, s.queues,
				  s.avs);
	}
}

/*
 * Checks that no endpoint has had more connections than MC_MAX_EP_PER_CTX
 * allows: a tx lane has one endpoint at a time, and an extra lane borrows
 * places of another lane. Connections of verbs devices cannot be closed one by
 * one, so there the limit is exceeded by one before the lane is replaced. With
 * faults the number is not checked: when a peer opens its rx lane again, the
 * connection to the former address has no place any longer, and stays open until the provider
 * notices its end.
 */
static void run_check_connections(const struct simulate_options *o,
				  const struct sim_conf *conf)
{
	struct sim_net_stats s;

	if (!conf->places || o->faults || o->errors)
		return;
	sim_net_stats_get(SIM_NO_HOST, &s);
	if (s.started_max > conf->places + conf->verbs)
		sim_found("an endpoint has had %u connections at the same time, and MC_MAX_EP_PER_CTX is %u",
			  s.started_max, conf->places);
}

static void run_print(const struct simulate_options *o,
		      const struct sim_conf *conf, uint64_t cpu_ns)
{
	const struct sim_load_stats *s = o->world->stats();
	const struct sim_fence_stats *f = sim_fence_stats();
	double cpu = (double)cpu_ns / 1e9;

	printf("%s, %s NICs: %" PRIu64 " operations (%" PRIu64 " completed, %" PRIu64 " failed, %" PRIu64 " unfenced, %" PRIu64 " canceled; %" PRIu64 " atomics, %" PRIu64 " messages, slowest %.3f s), %" PRIu64 " MiB\n",
	       o->world->name, conf->verbs ? "verbs" : "tcp", s->ops,
	       s->ends[0], s->ends[1], s->ends[2], s->ends[3], s->atomics,
	       s->notes, (double)s->slowest_ns / 1e9, s->bytes >> 20);
	printf("%u faults, %" PRIu64 " events, %.1f s of processor time: %.0f times real time, %.0f operations/s\n",
	       simulate_faults(o), sim_events(), cpu,
	       (double)o->seconds / cpu, (double)s->ops / cpu);
	printf("%" PRIu64 " fences accepted (%" PRIu64 " closed by their target, %" PRIu64 " ended with its process, %" PRIu64 " forgotten), %" PRIu64 " slices unfenced, %" PRIu64 " fence events\n",
	       f->closed + f->over + f->forgotten, f->closed, f->over,
	       f->forgotten, f->unfenced, f->events);
	printf("seed %" PRIu64 " trace hash %016" PRIx64 "\n", o->seed,
	       sim_trace_hash());
}

/* Returns the processor time of this process, ns. */
static uint64_t run_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * SIM_SEC + (uint64_t)ts.tv_nsec;
}

static void run_log(int level, const char *subsys, const char *text, void *arg)
{
	(void)arg;
	if (level <= TEI_LOG_ERROR || getenv("MC_LOG_LEVEL"))
		fprintf(stderr, "%.9f host%d %s: %s\n",
			(double)(sim_now() - SIM_START_NS) / 1e9,
			sim_host_current() ?
				(int)sim_host_id(sim_host_current()) : -1,
			subsys, text);
}

/* Handler of a timer signal. Ends the program if no event has ended since the
 * previous signal: then code is in a loop in which no virtual time passes. */
static void run_stuck(int signal)
{
	static uint64_t before = UINT64_MAX;

	(void)signal;
	if (sim_events() == before)
		sim_fail("no event has ended for %d s of processor time",
			 SIMULATE_STUCK_S);
	before = sim_events();
}

static void run_watch(void)
{
	const struct itimerval timer = {
		.it_interval = { .tv_sec = SIMULATE_STUCK_S },
		.it_value = { .tv_sec = SIMULATE_STUCK_S },
	};

	signal(SIGVTALRM, run_stuck);
	setitimer(ITIMER_VIRTUAL, &timer, NULL);
}

/* Opens the file of the fence events, if the options request it. */
static FILE *run_open_fences(const struct simulate_options *o)
{
	FILE *file = o->fences ? fopen(o->fences, "w") : NULL;

	if (o->fences && !file)
		sim_fail("cannot write %s", o->fences);
	return file;
}

void simulate_run(const struct simulate_options *o)
{
	FILE *fences = run_open_fences(o);
	struct sim_net_conf net;
	struct sim_conf conf;
	uint64_t start = run_clock();

	run_watch();
	sim_net_provider(NULL);
	sim_world_install();
	sim_loop_limit(SIMULATE_STEPS +
		       SIMULATE_STEPS_OP * (uint64_t)o->rate / 60);
	tei_log_set(run_log, NULL);
	sim_begin(o->seed, o->hosts);
	run_conf(o, &conf, &net);
	sim_net_begin(&net, o->rails);
	sim_fence_hooks_begin(fences);
	sim_cluster_begin(&conf, o->world->ops);
	o->world->begin();
	sim_plan_begin(simulate_faults(o), SIM_START_NS + SIMULATE_QUIET_NS,
		       conf.until_ns > SIM_START_NS + 2 * SIMULATE_QUIET_NS ?
			       conf.until_ns :
			       SIM_START_NS + 2 * SIMULATE_QUIET_NS,
		       o->left_out);
	if (o->list)
		sim_plan_print(stdout);
	sim_break_at(o->break_at);
	if (o->errors)
		sim_cluster_disturb(conf.until_ns);
	simulate_timeline_begin(o);
	sim_run(conf.until_ns);
	sim_plan_heal();
	/* in this time, processes that were restarted last open their data
	 * planes and connect */
	sim_run(sim_now() + SIMULATE_SETTLE_NS);
	if (!sim_cluster_close(sim_now() + SIMULATE_CLOSE_NS))
		sim_found("a process has not closed its objects after %u s",
			  (unsigned int)(SIMULATE_CLOSE_NS / SIM_SEC));
	o->world->verify();
	run_check_leaks();
	run_check_connections(o, &conf);
	simulate_timeline_end();
	run_print(o, &conf, run_clock() - start);
	sim_fence_hooks_end();
	if (fences)
		fclose(fences);
	sim_plan_end();
	o->world->end();
	sim_cluster_end();
	sim_net_end();
	sim_end();
}

/* --- the command line --- */

static _Noreturn void usage(const char *option)
{
	fprintf(stderr, "simulate: unknown option or bad value: %s\n", option);
	exit(2);
}

/* Parses an option --NAME=N, where `name` is --NAME. Returns false if the
 * option has another name. Ends the program if N is not a number from `min` to
 * `max`. */
static bool option_number(const char *option, const char *name, uint64_t min,
			  uint64_t max, uint64_t *out)
{
	size_t n = strlen(name);
	char *end;

	if (strncmp(option, name, n) || option[n] != '=')
		return false;
	*out = strtoull(option + n + 1, &end, 0);
	if (*end || end == option + n + 1 || *out < min || *out > max)
		usage(option);
	return true;
}

/* Sets those entries of `out` to `value` whose indices are in the list. The
 * list consists of numbers N and ranges N-M, separated by commas. */
static void option_list(const char *option, const char *list, bool *out,
			bool value)
{
	unsigned long from, to;
	char *end;

	while (*list) {
		from = to = strtoul(list, &end, 10);
		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		if (end == list || (*end && *end != ',') || to >= SIM_PLAN_MAX)
			usage(option);
		for (; from <= to; from++)
			out[from] = value;
		list = *end ? end + 1 : end;
	}
}

static const struct sim_workload *option_world(const char *option)
{
	static const struct sim_workload *const worlds[] = {
		&sim_load_workload,
		&sim_fi_workload,
		&sim_engine_workload,
	};
	size_t i;

	for (i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++)
		if (!strcmp(option + 8, worlds[i]->name))
			return worlds[i];
	usage(option);
}

static bool option_text(struct simulate_options *o, const char *option)
{
	if (!strcmp(option, "--nic=tcp"))
		o->verbs = 0;
	else if (!strcmp(option, "--nic=verbs"))
		o->verbs = 1;
	else if (!strncmp(option, "--without=", 10))
		option_list(option, option + 10, o->left_out, true);
	else if (!strncmp(option, "--trace=", 8))
		o->trace = option + 8;
	else if (!strncmp(option, "--svg=", 6))
		o->svg = option + 6;
	else if (!strncmp(option, "--world=", 8))
		o->world = option_world(option);
	else if (!strncmp(option, "--fences=", 9))
		o->fences = option + 9;
	else if (!strcmp(option, "--here"))
		o->here = true;
	else if (!strcmp(option, "--list"))
		o->list = true;
	else
		return false;
	return true;
}

static void options_parse(struct simulate_options *o, int argc, char **argv)
{
	uint64_t x;
	int i;

	for (i = 1; i < argc; i++) {
		if (option_number(argv[i], "--seed", 0, UINT64_MAX, &o->seed) ||
		    option_number(argv[i], "--sim", 1, 1000000, &o->seconds) ||
		    option_number(argv[i], "--break", 1, UINT64_MAX,
				  &o->break_at))
			continue;
		if (option_number(argv[i], "--hosts", 2, 1024, &x))
			o->hosts = (uint32_t)x;
		else if (option_number(argv[i], "--rails", 1, 16, &x))
			o->rails = (uint32_t)x;
		else if (option_number(argv[i], "--workers", 1, 64, &x))
			o->workers = (uint32_t)x;
		else if (option_number(argv[i], "--threads", 1, 16, &x))
			o->threads = (uint32_t)x;
		else if (option_number(argv[i], "--connections", 1, 16, &x))
			o->connections = (uint32_t)x;
		else if (option_number(argv[i], "--rate", 1, 100000000, &x))
			o->rate = (uint32_t)x;
		else if (option_number(argv[i], "--faults", 0, 100000, &x))
			o->faults = (uint32_t)x;
		else if (option_number(argv[i], "--errors", 0, 1000000, &x))
			o->errors = (uint32_t)x;
		else if (option_number(argv[i], "--places", 0, 65536, &x))
			o->places = (uint32_t)x;
		else if (option_number(argv[i], "--ports", 0, 45000, &x))
			o->ports = (uint32_t)x;
		else if (!strncmp(argv[i], "--only=", 7)) {
			memset(o->left_out, true, sizeof(o->left_out));
			option_list(argv[i], argv[i] + 7, o->left_out, false);
		} else if (!option_text(o, argv[i]))
			usage(argv[i]);
	}
}

int main(int argc, char **argv)
{
	static struct simulate_options o = {
		.world = &sim_load_workload,
		.seed = 1,
		.seconds = 60,
		.hosts = 8,
		.rails = 4,
		.workers = 4,
		.threads = 1,
		.connections = 1,
		.rate = 600,
		.faults = 12,
		.verbs = -1,
	};
	int failed;

	options_parse(&o, argc, argv);
	if (o.here || o.break_at) {
		simulate_run(&o);
		return 0;
	}
	failed = simulate_fork(&o, false);
	if (!failed)
		return 0;
	simulate_shrink(&o, argv[0]);
	return 1;
}
