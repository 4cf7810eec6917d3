/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * --mode=raw: two processes without an engine. As its first line, the target
 * prints its address, base and key as hexadecimal text. It reads those of the
 * initiator from a line "peer …". With --bidirectional, it then posts the same
 * operations as the initiator. It answers a line "stop" with "stopped".
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/benchmarks/te_bench_raw.h"
#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_clock.h"

enum { RAW_LINE_MAX = 2 * RAW_ADDR_MAX + 128 };

static void raw_peer_text(const struct raw_peer *peer, char *buf, size_t len)
{
	int at = snprintf(buf, len, "peer %" PRIx64 " %" PRIx64 " ",
			  peer->base, peer->key);

	for (size_t i = 0; i < peer->addr_len; i++)
		at += snprintf(buf + at, len - (size_t)at, "%02x",
			       peer->addr[i]);
}

static int raw_peer_parse(const char *text, struct raw_peer *peer)
{
	unsigned int byte;
	int at = 0;

	memset(peer, 0, sizeof(*peer));
	if (sscanf(text, "peer %" SCNx64 " %" SCNx64 " %n", &peer->base,
		   &peer->key, &at) != 2 || !at)
		return -1;
	for (text += at; sscanf(text, "%2x", &byte) == 1; text += 2) {
		if (peer->addr_len == sizeof(peer->addr))
			return -1;
		peer->addr[peer->addr_len++] = (uint8_t)byte;
	}
	return *text ? -1 : 0;
}

/* --- initiator ----------------------------------------------------------- */

/* The data that the threads of the initiator share. The main thread opens the
 * ports before it starts the threads. */
struct raw_run {
	struct bench_memory memory;
	struct raw_peer target;
	struct raw_port *ports;		/* endpoints, one per thread */
	struct raw_loop *loops;
};

static int raw_prepare(struct bench_worker *worker)
{
	struct raw_run *raw = worker->run->arg;

	worker->ctx = &raw->loops[worker->index];
	if (!raw_loop_init(worker->ctx, &raw->ports[worker->index],
			   &raw->target, worker, &raw->memory))
		return 0;
	worker->errors++;
	return -1;
}

static void raw_finish(struct bench_worker *worker)
{
	raw_drain(worker);
	raw_loop_fini(worker->ctx);
}

static void raw_ports_close(struct raw_run *raw, uint64_t count)
{
	while (count)
		raw_port_close(&raw->ports[--count]);
	free(raw->ports);
	free(raw->loops);
}

static int raw_ports_open(struct raw_run *raw, const struct bench_opts *opts)
{
	uint64_t i;

	raw->ports = calloc(opts->threads, sizeof(*raw->ports));
	raw->loops = calloc(opts->threads, sizeof(*raw->loops));
	for (i = 0; raw->ports && raw->loops && i < opts->threads; i++)
		if (raw_port_open(&raw->ports[i], opts, &raw->memory))
			break;
	if (i == opts->threads)
		return 0;
	raw_ports_close(raw, raw->ports ? i : 0);
	return -1;
}

static void raw_describe(const struct bench_opts *opts,
			 const struct raw_port *port,
			 struct bench_result *result)
{
	struct te_rail_stats *rail = &result->rails[0];
	const char *name = port->info->domain_attr->name;

	result->n_rails = 1;
	snprintf(result->transport, sizeof(result->transport), "%s",
		 opts->protocol);
	snprintf(rail->name, sizeof(rail->name), "%s",
		 opts->device_name ? opts->device_name : name);
	snprintf(rail->provider, sizeof(rail->provider), "%s",
		 port->info->fabric_attr->prov_name);
	rail->tx_bytes = result->bytes;
	rail->rx_bytes = result->bytes;
	rail->errors = result->errors;
}

/* Waits until the target has completed its own operations. Polls the completion
 * queue meanwhile, because these operations need the progress of this
 * process. */
static int raw_wait_stopped(struct raw_port *port, struct ft_proc *child)
{
	struct pollfd pfd = { .fd = child->from, .events = POLLIN };
	uint64_t deadline_ns = ft_now_ns() + 10 * FT_NS_PER_SEC;
	struct fi_cq_entry entry;
	char line[64];

	if (ft_proc_send(child, "stop\n"))
		return -1;
	while (!poll(&pfd, 1, 0) && ft_now_ns() < deadline_ns)
		for (int i = 0; i < 1000; i++)
			fi_cq_read(port->cq, &entry, 1);
	return ft_proc_line(child, line, sizeof(line), 1);
}

static int raw_measure(struct raw_run *raw, const struct bench_opts *opts,
		       struct ft_proc *child)
{
	static const struct bench_ops batches = {
		NULL, raw_prepare, raw_step_batch, raw_finish
	};
	static const struct bench_ops window = {
		NULL, raw_prepare, raw_step_window, raw_finish
	};
	static struct bench_result result;	/* too large for a stack */
	struct bench_run run = {
		.opts = opts,
		.ops = opts->window ? &window : &batches,
		.arg = raw,
		.child = child,
	};
	char line[RAW_LINE_MAX + 1];

	raw_peer_text(&raw->ports[0].self, line, sizeof(line) - 1);
	strcat(line, "\n");
	if (ft_proc_send(child, line) || bench_run(&run, &result))
		return BENCH_FAILED;
	if (opts->bidirectional && raw_wait_stopped(&raw->ports[0], child))
		return BENCH_FAILED;
	raw_describe(opts, &raw->ports[0], &result);
	return bench_report(opts, &result);
}

static int raw_initiate(const struct bench_opts *opts, struct ft_proc *child,
			const char *target)
{
	struct raw_run raw = { .ports = NULL };
	int ret = BENCH_FAILED;

	if (raw_peer_parse(target, &raw.target)) {
		fprintf(stderr, "te_bench: unexpected line from the target\n");
		return BENCH_FAILED;
	}
	if (bench_memory_get(&raw.memory, raw_memory_size(opts), opts->location,
			     opts->pages))
		return BENCH_FAILED;
	if (!raw_ports_open(&raw, opts)) {
		ret = raw_measure(&raw, opts, child);
		raw_ports_close(&raw, opts->threads);
	}
	bench_memory_put(&raw.memory);
	return ret;
}

int bench_raw(const struct bench_opts *opts)
{
	static struct ft_proc child;	/* too large for a stack */
	char line[RAW_LINE_MAX];
	int ret;

	if (bench_child_start(&child, opts, "raw", line, sizeof(line)))
		return BENCH_FAILED;
	ret = raw_initiate(opts, &child, line);
	if (bench_child_stop(&child, 1))
		ret = BENCH_FAILED;
	return ret;
}

/* --- target -------------------------------------------------------------- */

struct raw_target {
	const struct bench_opts *opts;
	struct bench_memory memory;
	struct raw_port port;
	struct raw_peer peer;		/* the initiator; valid once has_peer is
					 * true */
	atomic_bool has_peer;
	atomic_bool failed;
	struct bench_run run;		/* run.stop, set by the main thread,
					 * ends the posting thread */
};

/* Polls the completion queue, as the waiting side of fi_rma_bw does. Returns
 * when run.stop is set or, with --bidirectional, when the initiator is known.
 * The main thread does not use the endpoint meanwhile. */
static void raw_target_spin(struct raw_target *target)
{
	struct fi_cq_entry entry;
	ssize_t ret;

	while (!atomic_load_explicit(&target->run.stop, memory_order_relaxed)) {
		if (target->opts->bidirectional &&
		    atomic_load_explicit(&target->has_peer,
					 memory_order_acquire))
			return;
		ret = fi_cq_read(target->port.cq, &entry, 1);
		if (ret == -FI_EAVAIL) {
			struct fi_cq_err_entry err = { 0 };

			fi_cq_readerr(target->port.cq, &err, 0);
		}
	}
}

/* Runs the same steps as the initiator until run.stop is set or a step
 * fails. */
static void raw_target_post(struct raw_target *target)
{
	static struct bench_worker worker;
	struct raw_loop loop;

	worker.run = &target->run;
	worker.ctx = &loop;
	if (raw_loop_init(&loop, &target->port, &target->peer, &worker,
			  &target->memory)) {
		atomic_store(&target->failed, true);
		return;
	}
	while (!atomic_load(&target->run.stop))
		if (target->opts->window ? raw_step_window(&worker) :
					   raw_step_batch(&worker))
			break;
	raw_drain(&worker);
	raw_loop_fini(&loop);
}

static void *raw_target_thread(void *arg)
{
	struct raw_target *target = arg;

	raw_target_spin(target);
	if (atomic_load(&target->has_peer) && target->opts->bidirectional)
		raw_target_post(target);
	return NULL;
}

static void raw_target_serve(struct raw_target *target)
{
	char line[RAW_LINE_MAX];
	pthread_t thread;

	if (pthread_create(&thread, NULL, raw_target_thread, target)) {
		atomic_store(&target->failed, true);
		return;
	}
	raw_peer_text(&target->port.self, line, sizeof(line));
	puts(line);
	fflush(stdout);
	while (bench_serve_line(line, sizeof(line)) && strcmp(line, "stop")) {
		if (raw_peer_parse(line, &target->peer))
			continue;
		atomic_store_explicit(&target->has_peer, true,
				      memory_order_release);
	}
	atomic_store(&target->run.stop, true);
	pthread_join(thread, NULL);
	puts("stopped");
	fflush(stdout);
	while (bench_serve_line(line, sizeof(line)))
		;
}

int bench_raw_target(const struct bench_opts *opts)
{
	struct raw_target target = { .opts = opts, .run.opts = opts };

	if (bench_memory_get(&target.memory, raw_memory_size(opts),
			     opts->target_location, opts->pages))
		return BENCH_FAILED;
	if (raw_port_open(&target.port, opts, &target.memory)) {
		bench_memory_put(&target.memory);
		return BENCH_FAILED;
	}
	raw_target_serve(&target);
	raw_port_close(&target.port);
	bench_memory_put(&target.memory);
	return atomic_load(&target.failed) ? BENCH_FAILED : BENCH_OK;
}
