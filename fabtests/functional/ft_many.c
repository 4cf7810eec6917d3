/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Tests many targets with few connections. First, an initiator writes to more
 * targets than MC_MAX_EP_PER_CTX lets it connect to. Then many initiators
 * connect to one target at the same time.
 *
 *	ft_many [TARGETS CAP ROUNDS INITIATORS]
 *			without operands, a short form; "ft_many 300 64 20 64"
 *			is a long one. CAP is MC_MAX_EP_PER_CTX.
 *	ft_many rate TARGETS CAP [CACHED]
 *			opens TARGETS segments, writes to CACHED of them
 *			(default CAP), and compares the rate with this CAP with
 *			the rate without a limit
 *
 * The targets are engines in host processes, many engines in each. A host
 * process prints "NAME ADDRESS" for each engine and then reads commands. At
 * "warm NAME", all its engines warm up the peer NAME at the same time; the
 * answer is "warm MS", or "cold COUNT" if COUNT engines failed.
 */

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_num.h"
#include "fabtests/common/ft_options.h"
#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/fx.h"

#define MANY_BLOCK (16 * FX_KIB)
#define MANY_PER_HOST 50
#define MANY_START_MS 180000
#define MANY_WARM_MS 3000
/* time limit, ms; idle connections close within seconds */
#define MANY_SETTLE_MS 20000
#define MANY_ROUNDS_MIN 6
#define MANY_ROUNDS_MAX 1000
#define MANY_FDS_SLACK 16
#define MANY_FDS_LANE 10	/* largest number of descriptors of a tx lane */
#define MANY_HEAP_KIB 1024
#define MANY_RSS_KIB (32 * 1024)

/* operands of the short form: TARGETS, CAP, ROUNDS, INITIATORS */
#ifdef FX_SANITIZED
#define MANY_SHORT 24, 8, 6, 16
#define MANY_TELLS_MEMORY false
#else
#define MANY_SHORT 64, 16, 9, 16
#define MANY_TELLS_MEMORY true
#endif

/* --- a host process ------------------------------------------------------ */

struct many_engine {
	transfer_engine_t engine;
	struct fx_buf mem;
	pthread_t thread;
	const char *name;	/* name of the peer to warm up */
	int code;
};

static bool many_engine_start(struct many_engine *e)
{
	char name[128];

	e->engine = fx_engine("tcp");
	e->mem = fx_buf_map(MANY_BLOCK, -1);
	if (!e->engine || !fx_register(e->engine, &e->mem) ||
	    !fx_engine_name(e->engine, name, sizeof(name)))
		return false;
	printf("%s %llu\n", name, (unsigned long long)e->mem.addr);
	return true;
}

static void *many_warm_one(void *arg)
{
	struct many_engine *e = arg;

	e->code = warmupEfaSegment(e->engine, e->name);
	/* The second warm-up must find that all rails are connected. */
	if (!e->code)
		e->code = warmupEfaSegment(e->engine, e->name);
	return NULL;
}

static void many_warm(struct many_engine *e, unsigned int n, const char *name)
{
	uint64_t begin = ft_now_ns();
	unsigned int i;
	int bad = 0;

	for (i = 0; i < n; i++) {
		e[i].name = name;
		if (pthread_create(&e[i].thread, NULL, many_warm_one, &e[i]))
			exit(1);
	}
	for (i = 0; i < n; i++) {
		pthread_join(e[i].thread, NULL);
		bad += e[i].code != 0;
	}
	if (bad)
		printf("cold %d\n", bad);
	else
		printf("warm %llu\n", (unsigned long long)(
			       (ft_now_ns() - begin) / 1000000));
}

static int many_host(unsigned int n)
{
	struct many_engine *e = calloc(n, sizeof(*e));
	char line[256];
	unsigned int i;

	for (i = 0; e && i < n; i++)
		if (!many_engine_start(&e[i]))
			return 1;
	while (e && fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		if (!strncmp(line, "warm ", 5))
			many_warm(e, n, line + 5);
	}
	for (i = 0; e && i < n; i++) {
		destroyTransferEngine(e[i].engine);
		fx_buf_unmap(&e[i].mem);
	}
	free(e);
	return 0;
}

/* --- all host processes -------------------------------------------------- */

struct many_target {
	char name[128];
	uint64_t addr;
	segment_id_t seg;
};

struct many_rig {
	struct ft_proc *host;
	unsigned int hosts;
	struct many_target *target;
	unsigned int targets;	/* number of targets that have been started */
	unsigned int used;	/* number of targets that data is written to */
	transfer_engine_t engine;
	struct fx_buf mem;	/* two blocks for each target: one to send, one
				 * to receive */
	uint64_t sequence;
};

static bool many_read_targets(struct many_rig *rig, struct ft_proc *host,
			      unsigned int n)
{
	struct many_target *t;
	unsigned long long addr;
	char line[512];

	for (; n; n--) {
		t = &rig->target[rig->targets];
		if (ft_proc_line(host, line, sizeof(line), MANY_START_MS) ||
		    sscanf(line, "%127s %llu", t->name, &addr) != 2)
			return false;
		t->addr = addr;
		rig->targets++;
	}
	return true;
}

static unsigned int many_share(unsigned int n, unsigned int host)
{
	unsigned int done = host * MANY_PER_HOST;

	return n - done < MANY_PER_HOST ? n - done : MANY_PER_HOST;
}

static bool many_start(struct many_rig *rig, unsigned int n)
{
	char count[16], *argv[] = { "/proc/self/exe", "--host", count, NULL };
	unsigned int h;

	memset(rig, 0, sizeof(*rig));
	rig->host = calloc((n + MANY_PER_HOST - 1) / MANY_PER_HOST,
			   sizeof(*rig->host));
	rig->target = calloc(n, sizeof(*rig->target));
	if (!rig->host || !rig->target)
		return false;
	for (; rig->hosts * MANY_PER_HOST < n; rig->hosts++) {
		snprintf(count, sizeof(count), "%u",
			 many_share(n, rig->hosts));
		if (ft_proc_start(&rig->host[rig->hosts], argv))
			return false;
	}
	for (h = 0; h < rig->hosts; h++)
		if (!many_read_targets(rig, &rig->host[h], many_share(n, h)))
			return false;
	rig->used = n;
	rig->mem = fx_buf_map(2 * n * MANY_BLOCK, -1);
	return rig->mem.p;
}

static bool many_open(struct many_rig *rig, unsigned int cap)
{
	char text[16];
	unsigned int i;

	snprintf(text, sizeof(text), "%u", cap);
	setenv("MC_MAX_EP_PER_CTX", text, 1);
	rig->engine = fx_engine("tcp");
	if (!rig->engine || !fx_register(rig->engine, &rig->mem))
		return false;
	for (i = 0; i < rig->targets; i++) {
		rig->target[i].seg = openSegment(rig->engine,
						 rig->target[i].name);
		if (rig->target[i].seg < 0)
			return false;
	}
	return true;
}

static void many_stop(struct many_rig *rig)
{
	unsigned int h;
	bool good = true;

	if (rig->engine)
		destroyTransferEngine(rig->engine);
	for (h = 0; h < rig->hosts; h++)
		good &= !ft_proc_stop(&rig->host[h], MANY_START_MS);
	ft_ok(good, "hosts_leave_with_0");
	fx_buf_unmap(&rig->mem);
	free(rig->host);
	free(rig->target);
}

/* --- transfers ----------------------------------------------------------- */

static bool many_move(struct many_rig *rig, int op, uint64_t off)
{
	struct fx_job *job = calloc(rig->used, sizeof(*job));
	bool good = job != NULL;
	unsigned int i, n = 0;

	for (i = 0; good && i < rig->used; i++) {
		job[i] = (struct fx_job){
			.engine = rig->engine,
			.seg = rig->target[i].seg,
			.op = op,
			.local = rig->mem.p + off + i * MANY_BLOCK,
			.remote = rig->target[i].addr,
			.len = MANY_BLOCK,
			.block = MANY_BLOCK / 4,
		};
		good = !fx_job_start(&job[i]);
		n += good;
	}
	for (i = 0; i < n; i++) {
		if (!fx_job_wait(&job[i], FX_LONG_MS) ||
		    job[i].n[STATUS_COMPLETED] != job[i].tasks) {
			if (good)
				ft_diag("tasks to target %u: %s", i,
					fx_job_text(&job[i]));
			good = false;
		}
		good &= fx_job_free(&job[i]);
	}
	free(job);
	return good;
}

/* Writes a block to all targets at once and reads all blocks back. Returns true
 * if every byte is right. */
static bool many_round(struct many_rig *rig)
{
	uint64_t half = rig->targets * MANY_BLOCK, seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, 0, half, seq);
	fx_buf_poison(&rig->mem, half, half);
	return many_move(rig, OPCODE_WRITE, 0) &&
	       many_move(rig, OPCODE_READ, half) &&
	       !memcmp(rig->mem.p, rig->mem.p + half, half) &&
	       fx_buf_check(&rig->mem, 0, half, seq);
}

/* Returns the number of KiB that are allocated. Freed memory that malloc keeps
 * is not included. */
static unsigned long many_heap_kib(void)
{
	struct mallinfo2 info = mallinfo2();

	return (info.uordblks + info.hblkhd) / 1024;
}

static unsigned int many_host_fds(const struct many_rig *rig)
{
	unsigned int h, n = 0;
	char path[64];

	for (h = 0; h < rig->hosts; h++) {
		snprintf(path, sizeof(path), "/proc/%d/fd",
			 (int)rig->host[h].pid);
		n += fx_count_dir(path);
	}
	return n;
}

/* Numbers of descriptors of this process and of all host processes together. */
struct many_fds {
	const struct many_rig *rig;
	unsigned int own, hosts;
};

static bool many_fds_settle(void *arg)
{
	const struct many_fds *most = arg;

	return fx_count_dir("/proc/self/fd") <= most->own &&
	       many_host_fds(most->rig) <= most->hosts;
}

static struct many_fds many_fds_now(const struct many_rig *rig)
{
	return (struct many_fds){ rig, fx_count_dir("/proc/self/fd"),
				  many_host_fds(rig) };
}

/* Waits until the numbers of descriptors are within the limits *most, then sets
 * *most to the present numbers. Returns false if they are not within the limits
 * after MANY_SETTLE_MS. */
static bool many_fds_bounded(const char *when, struct many_fds *most)
{
	struct many_fds now;
	bool bounded;

	bounded = ft_wait_until(many_fds_settle, most, fx_ms(MANY_SETTLE_MS));
	now = many_fds_now(most->rig);
	ft_diag("open file descriptors after %s: %u (limit %u), of the "
		"targets %u (limit %u)",
		when, now.own, most->own, now.hosts, most->hosts);
	*most = now;
	return bounded;
}

/* Returns the median of kib[first] to kib[end - 1]. */
static double many_median(const double *kib, unsigned int first,
			  unsigned int end)
{
	double sorted[MANY_ROUNDS_MAX];

	memcpy(sorted, kib + first, (end - first) * sizeof(*kib));
	ft_sort(sorted, end - first);
	return sorted[(end - first) / 2];
}

/*
 * Checks that the memory does not grow. Compares the last third of the rounds
 * with the second third, so that one-time allocations do not count. A leaked
 * connection is 20 KiB. One leak per target and round, or leaked tasks, would
 * be megabytes per round. Connections that are being opened and closed cause
 * variation without growth.
 *
 * The limit of the resident size allows for two endpoints: an allocator may
 * keep the memory of a closed endpoint although the next one uses other memory.
 */
static void many_memory(const double *heap, const double *rss, unsigned int n)
{
	unsigned int third = n / 3;
	double was = many_median(heap, third, n - third);
	double is = many_median(heap, n - third, n);

	ft_ok(is <= was + MANY_HEAP_KIB, "memory_does_not_grow");
	ft_diag("allocated: %.0f KiB, in the last rounds %.0f KiB, tolerance "
		"%d KiB",
		was, is, MANY_HEAP_KIB);
	was = many_median(rss, third, n - third);
	is = many_median(rss, n - third, n);
	ft_ok(is <= was + MANY_RSS_KIB, "resident_memory_does_not_grow");
	ft_diag("resident: %.0f KiB, in the last rounds %.0f KiB, tolerance "
		"%d KiB",
		was, is, MANY_RSS_KIB);
}

static void many_rounds(struct many_rig *rig, unsigned int cap,
			unsigned int rounds)
{
	double heap[MANY_ROUNDS_MAX], rss[MANY_ROUNDS_MAX];
	struct many_fds most = many_fds_now(rig);
	uint64_t begin = ft_now_ns();
	unsigned int i, good = 0;

	/* There are two rails, whose tx lanes are opened now. Each connects to at
	 * most cap targets, and each target answers over both. A few more
	 * descriptors are open for a short time while segments are opened. */
	most.own += 2 * MANY_FDS_LANE + 2 * cap + 2 * rig->targets +
		    MANY_FDS_SLACK;
	most.hosts += 2 * MANY_FDS_LANE * rig->targets + 2 * cap +
		      2 * rig->targets + MANY_FDS_SLACK;
	for (i = 0; i < rounds; i++) {
		good += many_round(rig);
		heap[i] = many_heap_kib();
		rss[i] = fx_rss_kib();
		ft_diag("round %u: %u open files, %.0f KiB allocated, %.0f "
			"KiB resident, %.2f s since the start",
			i + 1, fx_count_dir("/proc/self/fd"), heap[i], rss[i],
			(double)(ft_now_ns() - begin) / 1e9);
		if (i != 1)
			continue;
		ft_ok(many_fds_bounded("two rounds", &most),
		      "descriptors_are_bounded");
		most.own += MANY_FDS_SLACK;
		most.hosts += MANY_FDS_SLACK;
	}
	ft_ok(good == rounds, "all_bytes_arrive");
	ft_ok(many_fds_bounded("the last", &most), "descriptors_do_not_grow");
	if (MANY_TELLS_MEMORY)
		many_memory(heap, rss, rounds);
	else
		ft_diag("memory not checked: a sanitizer keeps freed memory");
}

static void many_targets(unsigned int targets, unsigned int cap,
			 unsigned int rounds)
{
	struct many_rig rig;

	if (ft_ok(many_start(&rig, targets), "%u_targets", targets) &&
	    ft_ok(many_open(&rig, cap), "segments_open"))
		many_rounds(&rig, cap, rounds);
	many_stop(&rig);
}

/* --- many initiators connect to one target ------------------------------- */

static void many_initiators(unsigned int n)
{
	char name[128], order[160], line[256];
	unsigned int h, ms, worst = 0;
	struct many_rig rig;
	bool warm = true;

	setenv("MC_MAX_EP_PER_CTX", "256", 1);
	if (!ft_ok(many_start(&rig, n), "%u_initiators", n))
		goto out;
	rig.engine = fx_engine("tcp");
	if (!ft_ok(rig.engine && fx_register(rig.engine, &rig.mem) &&
			   fx_engine_name(rig.engine, name, sizeof(name)),
		   "target_starts"))
		goto out;
	snprintf(order, sizeof(order), "warm %s\n", name);
	for (h = 0; h < rig.hosts; h++)
		warm &= !ft_proc_send(&rig.host[h], order);
	for (h = 0; h < rig.hosts; h++) {
		warm &= !ft_proc_line(&rig.host[h], line, sizeof(line),
				      FX_LONG_MS) &&
			sscanf(line, "warm %u", &ms) == 1;
		worst = warm && ms > worst ? ms : worst;
	}
	ft_diag("%u initiators warmed up twice in %u ms", n, worst);
	ft_ok(warm, "all_initiators_connect_at_once_and_again");
	ft_ok(warm && worst <= fx_ms(MANY_WARM_MS),
	      "all_initiators_connect_within_3_seconds");
out:
	many_stop(&rig);
}

/* --- the rate ------------------------------------------------------------ */

static double many_rate(struct many_rig *rig)
{
	uint64_t begin = ft_now_ns(), bytes = 0;

	while (ft_now_ns() - begin < FT_NS_PER_SEC / 2) {
		if (!many_move(rig, OPCODE_WRITE, 0))
			return 0;
		bytes += rig->used * MANY_BLOCK;
	}
	return (double)bytes * 1e3 / (double)(ft_now_ns() - begin);
}

static int many_compare(unsigned int targets, unsigned int cap,
			unsigned int cached)
{
	unsigned int caps[2] = { cap, 65536 }, i, c;
	double rate[2][15];
	struct many_rig rig[2];

	if (!many_start(&rig[0], targets))
		return 1;
	rig[0].used = cached < targets ? cached : targets;
	rig[1] = rig[0];
	rig[1].target = malloc(targets * sizeof(*rig[1].target));
	if (!rig[1].target)
		return 1;
	memcpy(rig[1].target, rig[0].target,
	       targets * sizeof(*rig[1].target));
	rig[1].mem = fx_buf_map(2 * targets * MANY_BLOCK, -1);
	for (c = 0; c < 2; c++)
		if (!many_open(&rig[c], caps[c]) || !many_rate(&rig[c]))
			return 1;
	for (i = 0; i < 15; i++)
		for (c = 0; c < 2; c++)
			rate[c][i] = many_rate(&rig[c]);
	for (c = 0; c < 2; c++) {
		ft_sort(rate[c], 15);
		printf("%u of %u targets, MC_MAX_EP_PER_CTX=%u: %.1f MB/s "
		       "(%.1f to %.1f)\n", rig[0].used, targets, caps[c], rate[c][7], rate[c][3],
		       rate[c][11]);
	}
	printf("ratio %.3f\n", rate[0][7] / rate[1][7]);
	destroyTransferEngine(rig[1].engine);
	fx_buf_unmap(&rig[1].mem);
	free(rig[1].target);
	many_stop(&rig[0]);
	return ft_result();
}

struct many_args {
	uint64_t host; /* number of engines of a host process; 0: this is the
			* test */
	uint64_t n[4]; /* the operands, in the order of many_operands */
};

static const struct ft_option many_rows[] = {
	{ "host", FT_COUNT, offsetof(struct many_args, host), 1, 1000, NULL,
	  NULL, NULL },
};

static const struct ft_option many_operands[] = {
	{ "TARGETS", FT_COUNT, offsetof(struct many_args, n[0]), 1, 100000,
	  NULL, "", "targets of one initiator" },
	{ "CAP", FT_COUNT, offsetof(struct many_args, n[1]), 1, 65536, NULL, "",
	  "connections of the initiator, MC_MAX_EP_PER_CTX" },
	{ "ROUNDS", FT_COUNT, offsetof(struct many_args, n[2]), MANY_ROUNDS_MIN,
	  MANY_ROUNDS_MAX, NULL, "", "rounds over all targets" },
	{ "INITIATORS", FT_COUNT, offsetof(struct many_args, n[3]), 1, 100000,
	  NULL, "", "initiators that connect at once" },
};

static const struct ft_option many_cached = {
	"CACHED", FT_COUNT, offsetof(struct many_args, n[2]),	1, 100000,
	NULL,	  "",	    "targets that are written to; CAP",
};

static const struct ft_options many_options = {
	.program = "ft_many",
	.usage = "[TARGETS [CAP [ROUNDS [INITIATORS]]]]\n"
		 "       ft_many rate TARGETS CAP [CACHED]",
	.rows = many_rows,
	.n = 1,
	.more = true,
	.width = 12,
};

/* Reads the operands into args->n. `third` is the row of the third one, which
 * depends on the form. Returns false after an error. */
static bool many_numbers(char **words, int count, const struct ft_option *third,
			 struct many_args *args)
{
	for (int i = 0; i < count && i < 4; i++)
		if (ft_options_operand(many_options.program,
				       i == 2 ? third : &many_operands[i],
				       words[i], args))
			return false;
	return true;
}

int main(int argc, char **argv)
{
	struct many_args args = { 0, { MANY_SHORT } };
	int first, count;

	/* Reduce the memory of each engine, which has buffer pools of at least
	 * 1024 buffers. */
	setenv("FI_OFI_RXM_BUFFER_SIZE", "4096", 0);
	setenv("FI_OFI_RXM_MSG_RX_SIZE", "256", 0);
	fx_init(argc, argv);
	first = ft_options_take(&many_options, argc, argv, &args);
	count = argc - first;
	if (args.host)
		return many_host((unsigned int)args.host);
	if (count >= 3 && !strcmp(argv[first], "rate")) {
		args.n[2] = 0;
		if (!many_numbers(argv + first + 1, count - 1, &many_cached,
				  &args))
			return 2;
		return many_compare(
			(unsigned int)args.n[0], (unsigned int)args.n[1],
			(unsigned int)(args.n[2] ? args.n[2] : args.n[1]));
	}
	if (!many_numbers(argv + first, count, &many_operands[2], &args))
		return 2;
	many_targets((unsigned int)args.n[0], (unsigned int)args.n[1],
		     (unsigned int)args.n[2]);
	many_initiators((unsigned int)args.n[3]);
	return ft_result();
}
