/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loop of --mode=raw. Like fi_rma_bw, it posts operations and then polls
 * fi_cq_read. If the endpoint accepts no operation, the loop polls until it
 * does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_errno.h>

#include "fabtests/benchmarks/te_bench_raw.h"
#include "fabtests/common/ft_clock.h"

enum {
	LOOP_STALL_S = 10,		/* time without a completion after which
					 * the run fails, s */
	LOOP_IDLE_CHECK = 1 << 16,	/* number of empty polls after which the
					 * clock is read */
	LOOP_ENTRIES = 8,
};

static int loop_init_window(struct raw_loop *loop, uint64_t slots)
{
	loop->free = calloc(slots, sizeof(struct raw_slot *));
	if (!loop->free) {
		raw_loop_fini(loop);
		return -1;
	}
	while (loop->n_free < slots) {
		loop->free[loop->n_free] = &loop->slots[loop->n_free];
		loop->n_free++;
	}
	return 0;
}

int raw_loop_init(struct raw_loop *loop, struct raw_port *port,
		  const struct raw_peer *peer, struct bench_worker *worker,
		  const struct bench_memory *memory)
{
	const struct bench_opts *opts = worker->run->opts;
	uint64_t part = opts->buffer_size / opts->threads;
	uint64_t slots = opts->window ? opts->window : opts->batch_size;

	memset(loop, 0, sizeof(*loop));
	loop->port = port;
	loop->length = opts->block_size;
	loop->blocks = part / opts->block_size;
	loop->local = memory->addr + worker->index * part;
	loop->remote = peer->base + worker->index * part;
	if (opts->bidirectional)
		loop->remote += opts->buffer_size;
	loop->key = peer->key;
	loop->desc = fi_mr_desc(port->mr);
	loop->opcode = opts->operation;
	loop->plain = opts->plain_calls;
	if (fi_av_insert(port->av, peer->addr, 1, &loop->peer, 0, NULL) != 1)
		return raw_error("fi_av_insert", -FI_EINVAL);
	loop->slots = calloc(slots, sizeof(*loop->slots));
	if (!loop->slots)
		return -1;
	return opts->window ? loop_init_window(loop, slots) : 0;
}

void raw_loop_fini(struct raw_loop *loop)
{
	free(loop->slots);
	free(loop->free);
	loop->slots = NULL;
	loop->free = NULL;
}

static int loop_completion_error(struct raw_loop *loop)
{
	struct fi_cq_err_entry entry = { 0 };
	char text[256] = "";

	if (fi_cq_readerr(loop->port->cq, &entry, 0) < 1)
		return raw_error("fi_cq_readerr", -FI_EOTHER);
	fi_cq_strerror(loop->port->cq, entry.prov_errno, entry.err_data, text,
		       sizeof(text));
	fprintf(stderr, "te_bench: an operation failed: %s (%s)\n",
		fi_strerror(entry.err), text);
	loop->posted--;
	return -1;
}

static void loop_count(struct bench_worker *worker, uint64_t operations)
{
	uint64_t bytes = atomic_load_explicit(&worker->bytes,
					      memory_order_relaxed);

	bytes += operations * worker->run->opts->block_size;
	atomic_store_explicit(&worker->bytes, bytes, memory_order_relaxed);
	worker->operations += operations;
}

/* Handles completions in window mode: adds the latency of each operation to the
 * histogram, frees the slots and counts the operations. */
static void loop_return_slots(struct bench_worker *worker,
			      const struct fi_cq_entry *entries, ssize_t count)
{
	struct raw_loop *loop = worker->ctx;

	worker->now_ns = ft_now_ns();
	for (ssize_t i = 0; i < count; i++) {
		struct raw_slot *slot = entries[i].op_context;

		ft_hist_add(&worker->latency,
			    worker->now_ns - slot->started_ns);
		loop->free[loop->n_free++] = slot;
	}
	loop_count(worker, (uint64_t)count);
}

/* Reads the completion queue. Returns the number of completed operations, or -1
 * after an error. */
static inline ssize_t loop_poll(struct bench_worker *worker)
{
	struct raw_loop *loop = worker->ctx;
	struct fi_cq_entry entries[LOOP_ENTRIES];
	ssize_t got = fi_cq_read(loop->port->cq, entries, LOOP_ENTRIES);

	if (got > 0) {
		loop->posted -= (uint64_t)got;
		if (loop->free)
			loop_return_slots(worker, entries, got);
		return got;
	}
	if (got == -FI_EAGAIN)
		return 0;
	if (got == -FI_EAVAIL)
		return loop_completion_error(loop);
	return raw_error("fi_cq_read", (int)got);
}

/* Limits a wait to LOOP_STALL_S. *deadline_ns is 0 at the first call, which
 * sets it to the time at which the wait must end. Returns 0 before that time,
 * and -1 after it. */
static int loop_stalled(uint64_t *deadline_ns)
{
	uint64_t now = ft_now_ns();

	if (!*deadline_ns)
		*deadline_ns = now + LOOP_STALL_S * FT_NS_PER_SEC;
	if (now < *deadline_ns)
		return 0;
	fprintf(stderr, "te_bench: no completion for %d s\n", LOOP_STALL_S);
	return -1;
}

/* Waits for at least one completion. Returns 0, or -1 after an error or if the
 * wait takes too long. */
static inline int loop_wait(struct bench_worker *worker)
{
	uint64_t deadline_ns = 0;
	unsigned int idle = 0;
	ssize_t got;

	while (!(got = loop_poll(worker)))
		if (++idle % LOOP_IDLE_CHECK == 0 &&
		    loop_stalled(&deadline_ns))
			return -1;
	return got < 0 ? -1 : 0;
}

static inline ssize_t loop_issue_msg(struct raw_loop *loop,
				     struct raw_slot *slot, uint64_t at)
{
	struct iovec iov = {
		.iov_base = loop->local + at,
		.iov_len = loop->length,
	};
	struct fi_rma_iov rma = {
		.addr = loop->remote + at,
		.len = loop->length,
		.key = loop->key,
	};
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.desc = &loop->desc,
		.iov_count = 1,
		.addr = loop->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = &slot->context,
	};

	if (loop->opcode == BENCH_READ)
		return fi_readmsg(loop->port->ep, &msg, FI_COMPLETION);
	return fi_writemsg(loop->port->ep, &msg,
			   FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

static inline ssize_t loop_issue_plain(struct raw_loop *loop,
				       struct raw_slot *slot, uint64_t at)
{
	if (loop->opcode == BENCH_READ)
		return fi_read(loop->port->ep, loop->local + at, loop->length,
			       loop->desc, loop->peer, loop->remote + at,
			       loop->key, &slot->context);
	return fi_write(loop->port->ep, loop->local + at, loop->length,
			loop->desc, loop->peer, loop->remote + at, loop->key,
			&slot->context);
}

static inline ssize_t loop_issue(struct raw_loop *loop, struct raw_slot *slot)
{
	uint64_t at = loop->next * loop->length;

	if (loop->plain)
		return loop_issue_plain(loop, slot, at);
	return loop_issue_msg(loop, slot, at);
}

/* Posts an operation for the next block. While the endpoint does not accept it,
 * polls for completions. Returns 0 or -1. */
static inline int loop_post(struct bench_worker *worker, struct raw_slot *slot)
{
	struct raw_loop *loop = worker->ctx;
	uint64_t deadline_ns = 0;
	unsigned int idle = 0;
	ssize_t ret;

	while ((ret = loop_issue(loop, slot))) {
		if (ret != -FI_EAGAIN)
			return raw_error("post", (int)ret);
		ret = loop_poll(worker);
		if (ret < 0)
			return -1;
		if (!ret && ++idle % LOOP_IDLE_CHECK == 0 &&
		    loop_stalled(&deadline_ns))
			return -1;
	}
	loop->posted++;
	if (++loop->next == loop->blocks)
		loop->next = 0;
	return 0;
}

static int loop_failed(struct bench_worker *worker)
{
	worker->errors++;
	atomic_store(&worker->run->stop, true);
	return -1;
}

int raw_step_batch(struct bench_worker *worker)
{
	struct raw_loop *loop = worker->ctx;
	uint64_t size = worker->run->opts->batch_size;
	uint64_t begin_ns = ft_now_ns();

	for (uint64_t i = 0; i < size; i++)
		if (loop_post(worker, &loop->slots[i]))
			return loop_failed(worker);
	while (loop->posted)
		if (loop_wait(worker))
			return loop_failed(worker);
	worker->now_ns = ft_now_ns();
	worker->busy_ns += worker->now_ns - begin_ns;
	ft_hist_add(&worker->latency, worker->now_ns - begin_ns);
	loop_count(worker, size);
	return 0;
}

int raw_step_window(struct bench_worker *worker)
{
	struct raw_loop *loop = worker->ctx;

	while (loop->n_free) {
		struct raw_slot *slot = loop->free[--loop->n_free];

		slot->started_ns = ft_now_ns();
		if (loop_post(worker, slot))
			return loop_failed(worker);
	}
	return loop_wait(worker) ? loop_failed(worker) : 0;
}

void raw_drain(struct bench_worker *worker)
{
	struct raw_loop *loop = worker->ctx;

	while (loop->posted && !worker->errors)
		if (loop_wait(worker))
			worker->errors++;
}
