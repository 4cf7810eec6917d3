/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --mode=register: measures two ways to register --batch_size separate buffers
 * of --block_size and to unregister them. The engine does it with one call for
 * all buffers. The comparison calls fi_mr_reg and fi_close for each buffer, on
 * one libfabric domain. The two are measured alternately, so that other load on
 * the machine affects both.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/benchmarks/te_bench_json.h"
#include "fabtests/benchmarks/te_bench_raw.h"
#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_num.h"

enum { REG_ROUNDS = 7, REG_APART = 4096 };

/* Times of registering and unregistering in each round, microseconds per
 * buffer. */
struct reg_times {
	double reg[REG_ROUNDS], dereg[REG_ROUNDS];
};

static struct reg {
	const struct bench_opts *opts;
	size_t n;
	struct bench_memory memory;
	buffer_entry_t *buffers;
	void **addrs;
	struct fid_mr **mrs;
	transfer_engine_t engine;
	struct raw_port port;
	struct reg_times engine_us, plain_us;
} reg;

static double reg_us(uint64_t since_ns)
{
	return (double)(ft_now_ns() - since_ns) / 1e3 / (double)reg.n;
}

static int reg_engine(int round)
{
	uint64_t from = ft_now_ns();

	if (registerLocalMemoryBatch(reg.engine, reg.buffers, reg.n,
				     reg.opts->location)) {
		bench_engine_error("registerLocalMemoryBatch");
		return -1;
	}
	reg.engine_us.reg[round] = reg_us(from);
	from = ft_now_ns();
	if (unregisterLocalMemoryBatch(reg.engine, reg.addrs, reg.n)) {
		bench_engine_error("unregisterLocalMemoryBatch");
		return -1;
	}
	reg.engine_us.dereg[round] = reg_us(from);
	return 0;
}

static int reg_plain(int round)
{
	uint64_t from = ft_now_ns();
	size_t i, k;
	int ret = 0;

	for (i = 0; i < reg.n && !ret; i++)
		ret = raw_port_register(&reg.port, reg.buffers[i].addr,
					reg.buffers[i].length, i + 1,
					&reg.mrs[i]);
	reg.plain_us.reg[round] = reg_us(from);
	i -= ret != 0;
	from = ft_now_ns();
	for (k = 0; k < i; k++)
		fi_close(&reg.mrs[k]->fid);
	reg.plain_us.dereg[round] = reg_us(from);
	return ret;
}

static int reg_measure(void)
{
	int round;

	/* this pass warms up caches and page tables; the first round below
	 * overwrites its results */
	if (reg_engine(0) || reg_plain(0))
		return -1;
	for (round = 0; round < REG_ROUNDS && !bench_interrupted; round++)
		if (reg_engine(round) || reg_plain(round))
			return -1;
	return bench_interrupted ? -1 : 0;
}

/* --- report -------------------------------------------------------------- */

static void reg_line(const char *what, double *engine, double *plain)
{
	double e = ft_median(engine, REG_ROUNDS), p = ft_median(plain, REG_ROUNDS);

	printf("%-12s %9.3f us each (%.3f to %.3f), plain %9.3f (%.3f to %.3f): %.2f\n",
	       what, e, engine[0], engine[REG_ROUNDS - 1], p, plain[0],
	       plain[REG_ROUNDS - 1], e / p);
}

static void reg_report(void)
{
	printf("%zu buffers of %llu bytes, %s, medians of %d rounds\n", reg.n,
	       (unsigned long long)reg.opts->block_size,
	       reg.port.info->fabric_attr->prov_name, REG_ROUNDS);
	reg_line("register", reg.engine_us.reg, reg.plain_us.reg);
	reg_line("unregister", reg.engine_us.dereg, reg.plain_us.dereg);
}

static void reg_json(void)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "mode", "register");
	bench_json_u64(json, "buffers", reg.n);
	bench_json_u64(json, "block_size", reg.opts->block_size);
	cJSON_AddStringToObject(json, "location",
				reg.opts->location ? reg.opts->location : "*");
	cJSON_AddStringToObject(json, "pages",
				bench_pages_name(reg.opts->pages));
	bench_json_num(json, "register_us", ft_median(reg.engine_us.reg, REG_ROUNDS));
	bench_json_num(json, "register_plain_us", ft_median(reg.plain_us.reg, REG_ROUNDS));
	bench_json_num(json, "unregister_us", ft_median(reg.engine_us.dereg, REG_ROUNDS));
	bench_json_num(json, "unregister_plain_us",
		       ft_median(reg.plain_us.dereg, REG_ROUNDS));
	bench_json_print(json);
}

/* --- start and end ------------------------------------------------------- */

static int reg_buffers(void)
{
	uint64_t apart = (reg.opts->block_size + REG_APART - 1) / REG_APART *
			 REG_APART + REG_APART;
	size_t i;

	reg.buffers = calloc(reg.n, sizeof(*reg.buffers));
	reg.addrs = calloc(reg.n, sizeof(*reg.addrs));
	reg.mrs = calloc(reg.n, sizeof(*reg.mrs));
	if (!reg.buffers || !reg.addrs || !reg.mrs ||
	    reg.n > UINT64_MAX / 2 / apart) {
		fprintf(stderr, "te_bench: out of memory for %zu buffers\n",
			reg.n);
		return -1;
	}
	if (bench_memory_get(&reg.memory, reg.n * apart, reg.opts->location,
			     reg.opts->pages))
		return -1;
	for (i = 0; i < reg.n; i++) {
		reg.addrs[i] = reg.memory.addr + i * apart;
		reg.buffers[i].addr = reg.addrs[i];
		reg.buffers[i].length = reg.opts->block_size;
	}
	return 0;
}

int bench_registering(const struct bench_opts *opts)
{
	static uint8_t page[4096];
	struct bench_memory own = { .addr = page, .size = sizeof(page) };
	int ret = -1;

	reg.opts = opts;
	reg.n = opts->batch_size;
	if (!reg_buffers() && !raw_port_open(&reg.port, opts, &own)) {
		reg.engine = bench_engine_open(opts);
		ret = reg.engine ? reg_measure() : -1;
		if (!ret)
			reg_report();
		if (!ret && opts->json)
			reg_json();
		destroyTransferEngine(reg.engine);
		raw_port_close(&reg.port);
	}
	if (reg.memory.addr)
		bench_memory_put(&reg.memory);
	free(reg.buffers);
	free(reg.addrs);
	free(reg.mrs);
	return ret ? BENCH_FAILED : BENCH_OK;
}
