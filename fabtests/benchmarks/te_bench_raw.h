/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_BENCHMARKS_TE_BENCH_RAW_H
#define TEI_FABTESTS_BENCHMARKS_TE_BENCH_RAW_H

/*
 * --mode=raw: the same transfers in a plain libfabric loop.
 *
 *	te_bench_raw.c		both processes and their messages
 *	te_bench_raw_port.c	one endpoint and its memory
 *	te_bench_raw_loop.c	posting and completion
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

/* The data that each side sends to the other. */
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

/* Opens an endpoint. Returns 0, or -1 after a message on stderr; then nothing
 * needs to be closed. */
int raw_port_open(struct raw_port *port, const struct bench_opts *opts,
		  const struct bench_memory *memory);
void raw_port_close(struct raw_port *port);

/* Registers memory for all kinds of RMA, under key or a key of the provider.
 * Returns 0 or -1. */
int raw_port_register(struct raw_port *port, const void *addr, size_t len,
		      uint64_t key, struct fid_mr **mr);

/* Prints that a libfabric call has failed. Returns -1. */
int raw_error(const char *call, int ret);

/* One posted operation. The provider's context must be the first member. */
struct raw_slot {
	struct fi_context2 context;
	uint64_t started_ns;
};

/* The operations of a thread. */
struct raw_loop {
	struct raw_port *port;
	fi_addr_t peer;
	uint64_t remote;	/* address of this thread's part at the peer */
	uint64_t key;
	uint8_t *local;		/* address of this thread's part here */
	void *desc;
	uint64_t blocks;	/* blocks in the part */
	uint64_t next;		/* next block, below blocks */
	uint64_t length;	/* length of a block, bytes */
	uint64_t posted;	/* operations not completed */
	int opcode;		/* enum bench_operation */
	bool plain;		/* use fi_write and fi_read */
	struct raw_slot *slots;	/* batch_size or window elements */
	struct raw_slot **free;	/* slots that are not posted; NULL for
				 * batches */
	uint64_t n_free;
};

/* Returns the size of the memory. With both directions at once, the first half
 * is sent and the second half is received into. */
static inline uint64_t raw_memory_size(const struct bench_opts *opts)
{
	return opts->buffer_size << opts->bidirectional;
}

/* Returns 0 or -1. The caller still owns the port and the memory. */
int raw_loop_init(struct raw_loop *loop, struct raw_port *port,
		  const struct raw_peer *peer, struct bench_worker *worker,
		  const struct bench_memory *memory);
void raw_loop_fini(struct raw_loop *loop);

/* One step of a bench_worker whose ctx is a raw_loop. */
int raw_step_batch(struct bench_worker *worker);
int raw_step_window(struct bench_worker *worker);

/* Completes the posted operations without counting them. */
void raw_drain(struct bench_worker *worker);

#endif /* TEI_FABTESTS_BENCHMARKS_TE_BENCH_RAW_H */
