/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_BENCHMARKS_TE_BENCH_RAW_H
#define TEI_FABTESTS_BENCHMARKS_TE_BENCH_RAW_H

/*
 * --mode=raw: the transfers of --mode=loopback without an engine. A loop calls
 * libfabric directly.
 *
 *	te_bench_raw.c		both processes and their messages
 *	te_bench_raw_port.c	one endpoint and its memory
 *	te_bench_raw_loop.c	posts operations and reads their completions
 */

#include <stddef.h>
#include <stdint.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include "fabtests/benchmarks/te_bench.h"

enum { RAW_ADDR_MAX = 256 };

/* The data that each side sends to the other one. */
struct raw_peer {
	uint8_t addr[RAW_ADDR_MAX];
	size_t addr_len;
	uint64_t base;		/* remote address of the buffer's first byte */
	uint64_t key;
};

/* One endpoint with a domain of its own. Used by one thread. */
struct raw_port {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_ep *ep;
	struct fid_mr *mr;
	struct raw_peer self;
};

/* Opens an endpoint and registers the memory. Returns 0. If a step fails,
 * closes what is open already, and returns -1 after a message on stderr. */
int raw_port_open(struct raw_port *port, const struct bench_opts *opts,
		  const struct bench_memory *memory);
void raw_port_close(struct raw_port *port);

/* Registers memory for local and remote reads and writes. `key` is the
 * requested key; the provider may choose another one. Returns 0, or -1 after a
 * message on stderr. */
int raw_port_register(struct raw_port *port, const void *addr, size_t len,
		      uint64_t key, struct fid_mr **mr);

/* Prints to stderr that the libfabric function `call` has returned the error
 * `ret`. Returns -1. */
int raw_error(const char *call, int ret);

/* One posted operation. The provider's context must be the first member. */
struct raw_slot {
	struct fi_context2 context;
	uint64_t started_ns;
};

/* The state of one thread that posts operations. The buffers are divided into
 * equal parts, one for each thread. */
struct raw_loop {
	struct raw_port *port;
	fi_addr_t peer;
	uint64_t remote;	/* remote address of the thread's part */
	uint64_t key;
	uint8_t *local;		/* local address of the thread's part */
	void *desc;
	uint64_t blocks;	/* number of blocks in the part */
	uint64_t next;		/* index of the next block */
	uint64_t length;	/* length of a block, bytes */
	uint64_t posted;	/* operations posted and not yet completed */
	int opcode;		/* operation to post, an enum bench_operation */
	bool plain;		/* use fi_write and fi_read, not fi_writemsg and
				 * fi_readmsg */
	struct raw_slot *slots;	/* array of `window` elements, or of batch_size
				 * elements if `window` is 0 */
	struct raw_slot **free;	/* stack of the slots without a posted
				 * operation; NULL if `window` is 0 */
	uint64_t n_free;
};

/* Returns the size of the memory that each side registers. With
 * --bidirectional, it has two halves: the operations of this side use the first
 * half, those of the peer access the second half. */
static inline uint64_t raw_memory_size(const struct bench_opts *opts)
{
	return opts->buffer_size << opts->bidirectional;
}

/* Prepares the loop of one thread. Returns 0 or -1. The caller still owns the
 * port and the memory. */
int raw_loop_init(struct raw_loop *loop, struct raw_port *port,
		  const struct raw_peer *peer, struct bench_worker *worker,
		  const struct bench_memory *memory);
void raw_loop_fini(struct raw_loop *loop);

/* Two variants of bench_ops.step. The worker's `ctx` is a struct raw_loop.
 * raw_step_batch posts a batch and waits for all of it. raw_step_window fills
 * the window and waits for at least one completion. */
int raw_step_batch(struct bench_worker *worker);
int raw_step_window(struct bench_worker *worker);

/* Waits until all posted operations have completed, or one of them has
 * failed. */
void raw_drain(struct bench_worker *worker);

#endif /* TEI_FABTESTS_BENCHMARKS_TE_BENCH_RAW_H */
