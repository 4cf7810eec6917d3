/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * te_fi_bench PROVIDER [MILLISECONDS [LETTER…]]
 *
 * Measures a libfabric provider between two processes and prints one line of
 * results. Each letter is a measurement:
 *
 *	l	latency: half of the time of a round trip of 64 bytes
 *	t	bandwidth of tagged messages
 *	w	bandwidth of remote writes
 *	r	bandwidth of remote reads
 *
 * A bandwidth is measured for three sizes. If the number of a size (1 to 3)
 * follows the letter, it is measured for that size only. The default is ltw.
 * bench_prov.sh uses this program to compare two providers.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_options.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/fi_rig.h"

#define BENCH_DEPTH	16u
#define BENCH_MSG	64u

static uint64_t bench_ns = 300 * UINT64_C(1000000);

static const char *bench_what = "ltw";

static const size_t bench_size[] = { 65536, 1048576, FI_RIG_BUF };

static void bench_must(struct fi_rig *r, struct fid_cq *cq)
{
	struct fi_rig_done d;

	if (fi_rig_next(r, cq, &d) && !d.err)
		return;
	fprintf(stderr, "%s: an operation failed: %s\n", r->provider,
		fi_strerror(d.err));
	_exit(FT_FAIL);
}

static void bench_send(struct fi_rig *r, size_t len, uint64_t tag)
{
	while (fi_rig_again(r, fi_tsend(r->ep, r->buf, len, NULL, r->peer, tag,
					NULL)))
		;
}

static void bench_recv(struct fi_rig *r, size_t len, uint64_t tag)
{
	while (fi_rig_again(r, fi_trecv(r->ep, r->mem, len, NULL,
					FI_ADDR_UNSPEC, tag, 0, NULL)))
		;
}

static void bench_ping(struct fi_rig *r, uint64_t tag)
{
	bench_recv(r, BENCH_MSG, tag);
	bench_send(r, BENCH_MSG, tag);
	bench_must(r, r->tx);
	bench_must(r, r->rx);
}

/* Returns the one-way latency in microseconds. */
static double bench_latency(struct fi_rig *r)
{
	const uint64_t rounds = 2000;
	uint64_t n = 0, from;

	fi_rig_meet(r);
	for (; n < rounds / 4; n++)
		bench_ping(r, 1);
	from = ft_now_ns();
	for (n = 0; n < rounds; n++) {
		if (r->server) {
			bench_recv(r, BENCH_MSG, 2);
			bench_must(r, r->rx);
			bench_send(r, BENCH_MSG, 3);
			bench_must(r, r->tx);
		} else {
			bench_recv(r, BENCH_MSG, 3);
			bench_send(r, BENCH_MSG, 2);
			bench_must(r, r->tx);
			bench_must(r, r->rx);
		}
	}
	return (double)(ft_now_ns() - from) / (double)rounds / 2e3;
}

/* Returns the number of operations that take about bench_ns, given that `some`
 * operations took `ns`. The client computes the number and sends it to the
 * server; both return it. */
static uint64_t bench_count(struct fi_rig *r, uint64_t ns, uint64_t some)
{
	uint64_t n = bench_ns * some / (ns + 1);
	ssize_t len;

	if (n < BENCH_DEPTH)
		n = BENCH_DEPTH;
	fi_rig_meet(r);
	len = r->server ? recv(r->sock, &n, sizeof(n), MSG_WAITALL) :
			  send(r->sock, &n, sizeof(n), 0);
	if (len != sizeof(n))
		_exit(FT_FAIL);
	return n;
}

static uint64_t bench_tagged_run(struct fi_rig *r, size_t len, uint64_t n)
{
	uint64_t posted = 0, done = 0, from;

	fi_rig_meet(r);
	from = ft_now_ns();
	for (; done < n; done++) {
		for (; posted < n && posted - done < BENCH_DEPTH; posted++) {
			if (r->server)
				bench_recv(r, len, 4);
			else
				bench_send(r, len, 4);
		}
		bench_must(r, r->server ? r->rx : r->tx);
	}
	/* the receiver sends a message after it has received everything */
	if (r->server) {
		bench_send(r, 1, 5);
		bench_must(r, r->tx);
	} else {
		bench_recv(r, 1, 5);
		bench_must(r, r->rx);
	}
	return ft_now_ns() - from;
}

static ssize_t bench_rma(struct fi_rig *r, size_t len, bool read)
{
	if (read)
		return fi_read(r->ep, r->buf, len, NULL, r->peer, r->remote,
			       r->key, NULL);
	return fi_write(r->ep, r->buf, len, NULL, r->peer, r->remote, r->key,
			NULL);
}

static uint64_t bench_rma_run(struct fi_rig *r, size_t len, uint64_t n,
			      bool read)
{
	uint64_t posted = 0, done = 0, from;

	fi_rig_meet(r);
	from = ft_now_ns();
	for (; done < n && !r->server; done++) {
		for (; posted < n && posted - done < BENCH_DEPTH; posted++)
			while (fi_rig_again(r, bench_rma(r, len, read)))
				;
		bench_must(r, r->tx);
	}
	from = ft_now_ns() - from;
	fi_rig_meet(r);
	return from;
}

static uint64_t bench_write_run(struct fi_rig *r, size_t len, uint64_t n)
{
	return bench_rma_run(r, len, n, false);
}

static uint64_t bench_read_run(struct fi_rig *r, size_t len, uint64_t n)
{
	return bench_rma_run(r, len, n, true);
}

/* Returns the bandwidth in MB/s. Two runs before the measured one let the TCP
 * windows of the kernel grow. */
static double bench_rate(struct fi_rig *r, size_t len,
			 uint64_t (*run)(struct fi_rig *, size_t, uint64_t))
{
	uint64_t n;

	n = bench_count(r, run(r, len, BENCH_DEPTH), BENCH_DEPTH);
	n = bench_count(r, run(r, len, n), n);
	return (double)n * (double)len * 1e3 / (double)run(r, len, n);
}

/* Gives each of the two processes every other CPU. If two loops that never
 * sleep had the same CPU, the scheduler would be measured. */
static void bench_part(const struct fi_rig *r)
{
	cpu_set_t all, mine;
	int i, n = 0;

	CPU_ZERO(&mine);
	if (sched_getaffinity(0, sizeof(all), &all) || CPU_COUNT(&all) < 2)
		return;
	for (i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all) && n++ % 2 == r->server)
			CPU_SET(i, &mine);
	sched_setaffinity(0, sizeof(mine), &mine);
}

static void bench_print(const struct fi_rig *r, double figure)
{
	if (!r->server)
		printf(" %.2f", figure);
}

/* Measures all sizes, or only the size whose number is the digit at `c`.
 * Returns the position behind the digit, or `c` if there is no digit. */
static const char *bench_sizes(struct fi_rig *r, const char *c,
			       uint64_t (*run)(struct fi_rig *, size_t,
					       uint64_t))
{
	size_t i;

	if (*c >= '1' && *c <= '3') {
		bench_print(r, bench_rate(r, bench_size[*c - '1'], run));
		return c + 1;
	}
	for (i = 0; i < sizeof(bench_size) / sizeof(bench_size[0]); i++)
		bench_print(r, bench_rate(r, bench_size[i], run));
	return c;
}

static void bench(struct fi_rig *r)
{
	const char *c = bench_what;

	bench_part(r);
	if (!r->server)
		printf("figures");
	while (*c) {
		switch (*c++) {
		case 'l':
			bench_print(r, bench_latency(r));
			break;
		case 't':
			c = bench_sizes(r, c, bench_tagged_run);
			break;
		case 'w':
			c = bench_sizes(r, c, bench_write_run);
			break;
		default:
			c = bench_sizes(r, c, bench_read_run);
		}
	}
	if (!r->server)
		printf("\n");
	fflush(stdout);
}

static bool bench_known(const char *what)
{
	return *what && strchr("ltwr", *what) &&
	       what[strspn(what, "ltwr123")] == '\0';
}

struct bench_args {
	const char *provider, *what;
	uint64_t ms; /* duration of one measurement, ms */
};

static const struct ft_option bench_operands[] = {
	{ "PROVIDER", FT_TEXT, offsetof(struct bench_args, provider), 0, 0,
	  NULL, "", "libfabric provider" },
	{ "MILLISECONDS", FT_COUNT, offsetof(struct bench_args, ms), 1, 3600000,
	  NULL, "", "length of one measurement" },
	{ "LETTERS", FT_TEXT, offsetof(struct bench_args, what), 0, 0, NULL, "",
	  "l latency, t tagged messages, w writes, r reads; each may have\n"
	  "the number of a size, 1 to 3; ltw" },
};

static const struct ft_options bench_options = {
	.program = "te_fi_bench",
	.usage = "PROVIDER [MILLISECONDS [LETTERS]]",
	.operands = bench_operands,
	.operand_count = 3,
	.width = 14,
};

int main(int argc, char **argv)
{
	struct bench_args args = { .what = bench_what };
	bool missing = false;

	ft_options_take(&bench_options, argc, argv, &args);
	bench_what = args.what;
	if (!args.provider || !bench_known(bench_what) || !fi_rig_path()) {
		fprintf(stderr, "te_fi_bench: needs a PROVIDER, and LETTERS of "
				"l, t, w and r; see te_fi_bench --help\n");
		return 2;
	}
	if (args.ms)
		bench_ns = args.ms * UINT64_C(1000000);
	if (fi_rig_run(args.provider, 0, bench, &missing))
		return 0;
	if (missing)
		fprintf(stderr, "%s: no such provider\n", args.provider);
	return missing ? 77 : 1;
}
