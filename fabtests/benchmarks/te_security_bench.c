/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * te_security_bench [out=DIR] [seconds=N] [CLIENT…]
 *
 * Measures how much one misbehaving client slows the requests of the other
 * clients of a target. Exits with 0 only if each client is shown to cost less
 * than 1 %.
 *
 * Requests: the other clients query descriptors, as an engine does when it
 * opens a segment, then write. They send one request after the other without a
 * pause. The queries come from many addresses, because otherwise they would
 * reach the rate limit of one address.
 *
 * Phases: in one phase of a pair the misbehaving client runs, in the other one
 * it is stopped. The order alternates from pair to pair. The result of a pair
 * is the ratio of its two phases, because the speed of a machine drifts from
 * pair to pair. Two pairs with different order are averaged. The program prints
 * the median of these averages and its 99 % confidence interval. The interval
 * is computed from their order, so it assumes no distribution. The program adds
 * pairs until the interval is on one side of the goal, or the time is over.
 *
 * Verdict: the medians of the requests and the CPU time of the target must be
 * shown to be below the goal. The means vary with the pauses of the machine, so
 * a mean fails only if it is certainly above the goal. It does not fail if it
 * includes the CPU time of the client itself (verdict "shared").
 *
 * CPUs: the target has one CPU, so that its work for the client is taken from
 * the requests. The measuring process has a second CPU, and the client a third
 * one, as if it had a machine of its own. If there are only two CPUs, the
 * client shares the CPU of the measuring process and yields to it (SCHED_BATCH,
 * nice 19). Then the mean of the requests includes the client's own work, which
 * is much larger than the target's work for it. Processes that yield all the
 * time keep the CPUs from sleeping. Otherwise a client that keeps the CPUs
 * awake would make the requests faster, and that would hide its cost.
 *
 * A request counts for at most 16 times the median. A longer one is usually
 * caused by the machine. The program prints the number of such requests, with
 * and without the client.
 *
 * The program also prints the CPU time that the target uses for the client
 * while no other client sends requests, because other programs on the machine
 * lose that time.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/benchmarks/te_security_bench.h"
#include "fabtests/common/ft_num.h"
#include "fabtests/common/ft_options.h"
#include "fabtests/functional/ft_security.h"
#include "fabtests/functional/fx.h"

#define SB_GOAL		1.0	/* goal: a client must cost less than this, % */
#define SB_PHASE_NS	60000000 /* duration of each of the three parts of a
				  * phase, ns: no requests, openings, writes */
#define SB_REQUESTS	65536	/* maximum number of requests per phase and
				 * kind */
#define SB_WRITE_LEN	4096
#define SB_ADDRESSES	200
#define SB_CUT		16	/* a request counts for at most this many
				 * medians */
#define SB_BEGIN_NS	40000000 /* time from the client's resumption to the
				  * measurement, ns */
#define SB_PAIRS	1024	/* maximum number of pairs; even */
#define SB_FEWEST	24	/* minimum number of pairs for a decision */
#define SB_INTERVAL	8	/* minimum number of values for an interval of
				 * 99 %: the true median is outside of 8 values
				 * with a probability of only 2 / 2^8 */

/* The measured quantities: means and medians of the times of openings and of
 * writes. */
enum sb_what { SB_OPEN_MEAN, SB_OPEN_MEDIAN, SB_WRITE_MEAN, SB_WRITE_MEDIAN,
	       SB_WHATS };

static const struct {
	const char *title;
	bool shown;		/* true: the quantity must be shown to be below
				 * the goal; false: it must not be certainly
				 * above the goal */
} sb_whats[SB_WHATS] = {
	[SB_OPEN_MEAN] = { "opening, mean", false },
	[SB_OPEN_MEDIAN] = { "opening, median", true },
	[SB_WRITE_MEAN] = { "4 KiB write, mean", false },
	[SB_WRITE_MEDIAN] = { "4 KiB write, median", true },
};

struct sb_phase {
	double us[SB_WHATS];
	double cpu;		/* CPU time of the target divided by the elapsed
				 * time */
	int requests, cut;
};

struct sb_rig {
	const struct sb_client *client;
	transfer_engine_t engine;
	struct fx_peer target;
	struct fx_buf mem;
	segment_id_t seg;
	uint32_t opened;
	clockid_t target_clock;
	double seconds;		/* time to measure, s */
	pid_t pid;		/* process of the client, which leads a process
				 * group */
	int log;		/* descriptor of /dev/null, the stderr of the
				 * target */
	int pairs;
	struct sb_phase phase[2][SB_PAIRS];	/* both phases of each pair: [0]
						 * is the phase with the client,
						 * [1] that without it */
};

struct sb_result {
	double us;		/* without the client: time of a request, us, or
				 * CPU time of the target, % */
	double mid, low, high;	/* median and interval of the cost, % */
	const char *verdict;
};

enum sb_who { SB_TARGET, SB_ASKING, SB_CLIENT, SB_WHO };

static int sb_cpu[SB_WHO];

/* --- one phase ----------------------------------------------------------- */

static bool sb_write(struct sb_rig *rig, double *us)
{
	struct transfer_request req = {
		.opcode = OPCODE_WRITE, .source = rig->mem.p,
		.target_id = rig->seg, .target_offset = rig->target.mem.addr,
		.length = SB_WRITE_LEN,
	};
	struct transfer_status st = { 0 };
	uint64_t from = ft_now_ns();
	batch_id_t batch = allocateBatchID(rig->engine, 1);
	bool good = !submitTransfer(rig->engine, batch, &req, 1) &&
		    !te_wait_batch(rig->engine, batch, FX_LONG_MS * 1000LL,
				   &st) &&
		    st.status == STATUS_COMPLETED;

	*us = (double)(ft_now_ns() - from) / 1e3;
	freeBatchID(rig->engine, batch);
	return good;
}

/* Sends the requests with which an engine opens a segment. */
static bool sb_open(struct sb_rig *rig, double *us)
{
	size_t len = strlen(rig->target.name), got = 0, want = SEC_HEAD;
	uint8_t ask[SEC_HEAD + 128], reply[8192];
	char address[16];
	uint64_t from;
	uint32_t n;
	ssize_t r;
	int fd;

	snprintf(address, sizeof(address), "127.0.1.%u",
		 1 + rig->opened++ % SB_ADDRESSES);
	sec_frame(ask, 1, SEC_GET_DESC, (uint32_t)len);
	memcpy(ask + SEC_HEAD, rig->target.name, len);
	from = ft_now_ns();
	fd = sec_connect(rig->target.name, address);
	if (fd < 0)
		return false;
	r = send(fd, ask, SEC_HEAD + len, MSG_NOSIGNAL);
	while (r > 0 && got < want && want <= sizeof(reply)) {
		r = recv(fd, reply + got, sizeof(reply) - got, 0);
		got += r > 0 ? (size_t)r : 0;
		memcpy(&n, reply + 12, sizeof(n));
		want = SEC_HEAD + (got < SEC_HEAD ? 0 : ntohl(n));
	}
	close(fd);
	*us = (double)(ft_now_ns() - from) / 1e3;
	return got == want && reply[5] == SEC_DESC;
}

/* Computes the mean and the median of `n` times, which it sorts. In the mean, a
 * time counts for at most SB_CUT medians. Returns the number of times that were
 * cut. */
static int sb_sum(double *us, int n, double *mean, double *median)
{
	double sum = 0;
	int cut = 0;

	ft_sort(us, (size_t)n);
	*median = us[n / 2];
	for (int i = 0; i < n; i++) {
		cut += us[i] > SB_CUT * *median;
		sum += us[i] > SB_CUT * *median ? SB_CUT * *median : us[i];
	}
	*mean = sum / n;
	return cut;
}

/* Sends requests of one kind, by calls of `fn`, for SB_PHASE_NS. Stores their
 * mean time in phase->us[mean] and the median in the next element. Returns
 * false if a request fails. */
static bool sb_requests(struct sb_rig *rig, struct sb_phase *phase,
			enum sb_what mean,
			bool (*fn)(struct sb_rig *rig, double *us))
{
	static double us[SB_REQUESTS];
	uint64_t until = ft_now_ns() + SB_PHASE_NS;
	int n;

	for (n = 0; n < SB_REQUESTS && ft_now_ns() < until; n++)
		if (!fn(rig, &us[n]))
			return false;
	phase->cut += sb_sum(us, n, &phase->us[mean], &phase->us[mean + 1]);
	phase->requests += n;
	return true;
}

static double sb_target_s(const struct sb_rig *rig)
{
	struct timespec ts = { 0 };

	clock_gettime(rig->target_clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static bool sb_phase_run(struct sb_rig *rig, int without, int pair)
{
	struct sb_phase *phase = &rig->phase[without][pair];
	struct timespec settle = {
		.tv_nsec = without ? rig->client->settle_ms * 1000000L :
				     SB_BEGIN_NS,
	};
	struct timespec idle = { .tv_nsec = SB_PHASE_NS };
	uint64_t from;
	double cpu;

	kill(-rig->pid, without ? SIGSTOP : SIGCONT);
	nanosleep(&settle, NULL);
	from = ft_now_ns();
	cpu = sb_target_s(rig);
	nanosleep(&idle, NULL);
	phase->cpu = (sb_target_s(rig) - cpu) * (double)FT_NS_PER_SEC /
		     (double)(ft_now_ns() - from);
	return (rig->client->secret ||
		sb_requests(rig, phase, SB_OPEN_MEAN, sb_open)) &&
	       sb_requests(rig, phase, SB_WRITE_MEAN, sb_write);
}

/* --- evaluation ---------------------------------------------------------- */

/* Returns the index i for which the elements i and n - 1 - i of n sorted values
 * enclose the median with a confidence of 99 %. */
static int sb_rank(int n)
{
	int rank = (int)floor((n - 2.576 * sqrt(n)) / 2);

	return rank < 0 ? 0 : rank;
}

static double sb_ratio(const struct sb_rig *rig, enum sb_what what, int pair)
{
	return rig->phase[0][pair].us[what] / rig->phase[1][pair].us[what];
}

static const char *sb_verdict(const struct sb_result *r, int n, bool shown)
{
	if (n >= SB_INTERVAL && r->high < SB_GOAL)
		return "met";
	if (!shown && sb_cpu[SB_CLIENT] == sb_cpu[SB_ASKING])
		return "shared";
	if (n >= SB_INTERVAL && r->low > SB_GOAL)
		return "NOT met";
	return shown ? "NOT shown" : "open";
}

static void sb_order(double *r, int n, bool shown, struct sb_result *out)
{
	int rank = sb_rank(n);

	ft_sort(r, (size_t)n);
	out->mid = (r[n / 2] + r[(n - 1) / 2]) / 2;
	out->low = r[rank];
	out->high = r[n - 1 - rank];
	out->verdict = sb_verdict(out, n, shown);
}

static struct sb_result sb_result(const struct sb_rig *rig, enum sb_what what)
{
	static double r[SB_PAIRS / 2], us[SB_PAIRS];
	struct sb_result out;
	int i;

	for (i = 0; i < rig->pairs / 2; i++)
		r[i] = 100 * (sqrt(sb_ratio(rig, what, 2 * i) *
				   sb_ratio(rig, what, 2 * i + 1)) - 1);
	sb_order(r, rig->pairs / 2, sb_whats[what].shown, &out);
	for (i = 0; i < rig->pairs; i++)
		us[i] = rig->phase[1][i].us[what];
	ft_sort(us, (size_t)rig->pairs);
	out.us = us[rig->pairs / 2];
	return out;
}

/* Returns the CPU time that the target uses because of the client, in % of a
 * CPU. */
static struct sb_result sb_result_cpu(const struct sb_rig *rig)
{
	static double r[SB_PAIRS / 2], own[SB_PAIRS];
	struct sb_result out;
	int i;

	for (i = 0; i < rig->pairs / 2; i++)
		r[i] = 50 * (rig->phase[0][2 * i].cpu -
			     rig->phase[1][2 * i].cpu +
			     rig->phase[0][2 * i + 1].cpu -
			     rig->phase[1][2 * i + 1].cpu);
	sb_order(r, rig->pairs / 2, true, &out);
	for (i = 0; i < rig->pairs; i++)
		own[i] = rig->phase[1][i].cpu * 100;
	ft_sort(own, (size_t)rig->pairs);
	out.us = own[rig->pairs / 2];
	return out;
}

/* Returns true if the quantity is measured. If the target has a secret,
 * openings are not measured, because the queries of this program do not contain
 * the secret. */
static bool sb_has(const struct sb_rig *rig, enum sb_what what)
{
	return !rig->client->secret ||
	       (what != SB_OPEN_MEAN && what != SB_OPEN_MEDIAN);
}

/* Returns true if there are enough pairs and no verdict is "NOT shown": then no
 * more phases are needed. */
static bool sb_decided(const struct sb_rig *rig)
{
	if (rig->pairs < SB_FEWEST || rig->pairs % 8)
		return false;
	for (int what = 0; what < SB_WHATS; what++)
		if (sb_has(rig, what) &&
		    !strcmp(sb_result(rig, what).verdict, "NOT shown"))
			return false;
	return true;
}

/* --- a client ------------------------------------------------------------ */

static void sb_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static bool sb_cpus(void)
{
	cpu_set_t set;
	int cpu, n = 0;

	if (sched_getaffinity(0, sizeof(set), &set))
		return false;
	for (cpu = 0; cpu < CPU_SETSIZE && n < SB_WHO; cpu++)
		if (CPU_ISSET(cpu, &set))
			sb_cpu[n++] = cpu;
	if (n == SB_CLIENT)
		sb_cpu[SB_CLIENT] = sb_cpu[SB_ASKING];
	return n >= SB_CLIENT;
}

/* Forks a child process that runs on the CPU and is killed when this process
 * ends. Returns as fork does. */
static pid_t sb_child(int cpu)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sb_pin(cpu);
	return 0;
}

static pid_t sb_awake(enum sb_who who)
{
	struct sched_param none = { 0 };
	pid_t pid = sb_child(sb_cpu[who]);

	if (pid)
		return pid;
	sched_setscheduler(0, SCHED_IDLE, &none);
	for (;;)
		sched_yield();
}

static bool sb_client_start(struct sb_rig *rig)
{
	struct sched_param none = { 0 };
	struct timespec spend;
	double s;

	rig->pid = sb_child(sb_cpu[SB_CLIENT]);
	if (!rig->pid) {
		setpgid(0, 0);
		sched_setscheduler(0, SCHED_BATCH, &none);
		setpriority(PRIO_PROCESS, 0, 19);
		rig->client->run(rig->target.name);
		_exit(0);
	}
	if (rig->pid > 0)
		setpgid(rig->pid, rig->pid);
	/* A short run shows nothing about the cost, so it does not wait
	 * longer. */
	s = rig->client->spend_s < rig->seconds ? rig->client->spend_s :
						  rig->seconds;
	spend = (struct timespec){ .tv_sec = (time_t)s,
				   .tv_nsec = (long)((s - (double)(time_t)s) *
						     1e9) };
	nanosleep(&spend, NULL);
	return rig->pid > 0;
}

static void sb_client_end(struct sb_rig *rig)
{
	kill(-rig->pid, SIGKILL);
	while (waitpid(-rig->pid, NULL, 0) > 0)
		;
}

static bool sb_measure(struct sb_rig *rig, uint64_t until_ns)
{
	bool good = sb_client_start(rig);
	int i;

	for (i = 0; good && i < SB_PAIRS && !sb_decided(rig) &&
	     (ft_now_ns() < until_ns || i < 2 || i % 2); i++) {
		good = sb_phase_run(rig, i & 1, i) &&
		       sb_phase_run(rig, !(i & 1), i);
		rig->pairs = i + good;
	}
	rig->pairs &= ~1;
	sb_client_end(rig);
	return good;
}

/* --- the table ----------------------------------------------------------- */

static const char *sb_csv_name(const char *title, char *buf, size_t len)
{
	snprintf(buf, len, "%s", title);
	for (char *p = buf; (p = strpbrk(p, ", "));)
		*p = '-';
	return buf;
}

static bool sb_row(FILE *csv, const struct sb_rig *rig, const char *title,
		   const char *unit, const struct sb_result *r)
{
	char name[32];

	printf("  %-20s %8.2f %-4s %+7.2f %%  [%+.2f..%+.2f]  %s\n", title,
	       r->us, unit, r->mid, r->low, r->high, r->verdict);
	fprintf(csv, "%s,%s,%g,%s,%g,%g,%g,%d,%s\n", rig->client->name,
		sb_csv_name(title, name, sizeof(name)), r->us, unit, r->mid,
		r->low, r->high, rig->pairs, r->verdict);
	return strncmp(r->verdict, "NOT", 3) != 0;
}

static bool sb_report(FILE *csv, const struct sb_rig *rig)
{
	int n[2] = { 0, 0 }, cut[2] = { 0, 0 };
	struct sb_result r;
	bool met = true;

	for (int i = 0; i < rig->pairs; i++)
		for (int without = 0; without < 2; without++) {
			n[without] += rig->phase[without][i].requests;
			cut[without] += rig->phase[without][i].cut;
		}
	printf("%s: %s; %d pairs of phases; limited to %d medians: %d of %d requests with the client, %d of %d without it\n",
	       rig->client->name, rig->client->does, rig->pairs, SB_CUT,
	       cut[0], n[0], cut[1], n[1]);
	for (int what = 0; what < SB_WHATS; what++) {
		if (!sb_has(rig, what))
			continue;
		r = sb_result(rig, what);
		met = sb_row(csv, rig, sb_whats[what].title, "us", &r) && met;
	}
	r = sb_result_cpu(rig);
	met = sb_row(csv, rig, "the target's CPU", "%", &r) && met;
	fflush(stdout);
	return met;
}

static bool sb_rig_start(struct sb_rig *rig)
{
	double connecting;
	char log[32];

	snprintf(log, sizeof(log), "log=%d", rig->log);
	rig->mem = fx_buf_map(SB_WRITE_LEN, -1);
	sb_pin(sb_cpu[SB_TARGET]);
	if (!fx_peer_start(&rig->target, FX_MIB, log, NULL) ||
	    fx_ask(&rig->target, "reg 0 %llu 1", FX_MIB))
		return false;
	sb_pin(sb_cpu[SB_ASKING]);
	rig->engine = fx_engine("tcp");
	if (!rig->engine || !fx_register(rig->engine, &rig->mem))
		return false;
	rig->seg = openSegment(rig->engine, rig->target.name);
	return rig->seg > 0 && sb_write(rig, &connecting) &&
	       !clock_getcpuclockid(rig->target.proc.pid, &rig->target_clock);
}

static bool sb_beside(FILE *csv, const struct sb_client *client, double s)
{
	static struct sb_rig rig;
	char file[] = "/tmp/te_security_bench.XXXXXX";
	int fd = mkstemp(file);
	bool good;

	close(fd);
	memset(&rig, 0, sizeof(rig));
	rig.log = open("/dev/null", O_WRONLY);
	rig.client = client;
	rig.seconds = s;
	if (client->secret && sec_file(file, "a secret of enough bytes"))
		setenv("MOONRAIL_SECRET_FILE", file, 1);
	good = sb_rig_start(&rig) &&
	       sb_measure(&rig, ft_now_ns() + (uint64_t)(s * 1e9));
	if (good)
		good = sb_report(csv, &rig);
	else
		printf("%s: a request failed\n", client->name);
	destroyTransferEngine(rig.engine);
	good = fx_peer_stop(&rig.target) && good;
	fx_buf_unmap(&rig.mem);
	close(rig.log);
	unsetenv("MOONRAIL_SECRET_FILE");
	unlink(file);
	return good;
}

/* --- arguments ----------------------------------------------------------- */

struct sb_args {
	const char *out;
	double seconds;
};

static const struct ft_option sb_rows[] = {
	{ "out", FT_TEXT, offsetof(struct sb_args, out), 0, 0, NULL, "DIR",
	  "folder of the table; ." },
	{ "seconds", FT_SECONDS, offsetof(struct sb_args, seconds), 0, 0, NULL,
	  "N", "time per client; 180" },
};

static const struct ft_options sb_options = {
	.program = "te_security_bench",
	.usage = "[--OPTION=VALUE ...] [CLIENT...]",
	.rows = sb_rows,
	.n = 2,
	.more = true,
	.width = 14,
	.notes = "Without a CLIENT, all are measured:",
};

static void sb_help(void)
{
	ft_options_help(&sb_options);
	for (int i = 0; i < sb_clients_count; i++)
		printf("  %-14s %s\n", sb_clients[i].name, sb_clients[i].does);
}

/* Returns true if `name` is one of the words, or if there are no words. */
static bool sb_named(const char *name, int count, char **words)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(words[i], name))
			return true;
	return !count;
}

static bool sb_known(const char *word)
{
	for (int i = 0; i < sb_clients_count; i++)
		if (!strcmp(word, sb_clients[i].name))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	struct sb_args args = { ".", 180 };
	pid_t awake[SB_CLIENT];
	char path[4096];
	int missed = 0, first;
	FILE *csv;

	fx_init(argc, argv);
	first = ft_options_read(&sb_options, argc, argv, &args);
	if (first < 0)
		return 2;
	if (!first) {
		sb_help();
		return 0;
	}
	for (int i = first; i < argc; i++)
		if (!sb_known(argv[i])) {
			fprintf(stderr,
				"te_security_bench: %s: no such "
				"client; see te_security_bench --help\n",
				argv[i]);
			return 2;
		}
	if (!sb_cpus())
		return ft_skip("needs two CPUs: the target has one of its own");
	snprintf(path, sizeof(path), "%s/security.csv", args.out);
	csv = fopen(path, "w");
	if (!csv) {
		perror(path);
		return 1;
	}
	fprintf(csv, "client,metric,without,unit,cost_percent,low,high,pairs,verdict\n");
	printf("cost of one misbehaving client, relative to phases without it: median [99 %% interval], goal < %g %%\n",
	       SB_GOAL);
	for (int i = 0; i < SB_CLIENT; i++)
		awake[i] = sb_awake(i);
	for (int i = 0; i < sb_clients_count; i++)
		if (sb_named(sb_clients[i].name, argc - first, argv + first))
			missed += !sb_beside(csv, &sb_clients[i], args.seconds);
	for (int i = 0; i < SB_CLIENT; i++) {
		kill(awake[i], SIGKILL);
		waitpid(awake[i], NULL, 0);
	}
	fclose(csv);
	printf("%d client%s missed the goal; table: %s\n", missed,
	       missed == 1 ? "" : "s", path);
	return missed != 0;
}
