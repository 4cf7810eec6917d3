/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_BENCHMARKS_TE_BENCH_RAW_H
#define TEI_FABTESTS_BENCHMARKS_TE_BENCH_RAW_H

/*
 * --mode=raw: the same work in a plain libfabric loop.
 *
 *	te_bench_raw.c		both processes, what they tell each other
 *	te_bench_raw_port.c	one endpoint and its memory
 *	te_bench_raw_loop.c	post and complete
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

/* What one side tells the other. */
struct raw_peer {
	uint8_t addr[RAW_ADDR_MAX];
	size_t addr_len;
	uint64_t base;		/* remote address of the buffer's first byte */
	uint64_t key;
};

/* One endpoint on a domain of its own. One thread. */
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

/* 0 or -1 with a line on stderr; nothing is held then. */
int raw_port_open(struct raw_port *port, const struct bench_opts *opts,
		  const struct bench_memory *memory);
void raw_port_close(struct raw_port *port);

/* Memory for all kinds of RMA under key, or the provider's own. 0 or -1. */
int raw_port_register(struct raw_port *port, const void *addr, size_t len,
		      uint64_t key, struct fid_mr **mr);

/* Says that a libfabric call failed; -1. */
int raw_error(const char *call, int ret);

/* One posted operation; the provider's context comes first. */
struct raw_slot {
	struct fi_context2 context;
	uint64_t started_ns;
};

/* What a thread posts, and where. */
struct raw_loop {
	struct raw_port *port;
	fi_addr_t peer;
	uint64_t remote;	/* address of this thread's part at the peer */
	uint64_t key;
	uint8_t *local;		/* this thread's part here */
	void *desc;
	uint64_t blocks;	/* in the part */
	uint64_t next;		/* block, below blocks */
	uint64_t length;	/* of a block */
	uint64_t posted;	/* operations not completed */
	int opcode;		/* enum bench_operation */
	bool plain;		/* fi_write and fi_read */
	struct raw_slot *slots;	/* batch_size or window of them */
	struct raw_slot **free;	/* those not posted; NULL: batches */
	uint64_t n_free;
};

/* Both directions at once: sent from the first half, received in the second. */
static inline uint64_t raw_memory_size(const struct bench_opts *opts)
{
	return opts->buffer_size << opts->bidirectional;
}

/* 0 or -1. The port and the memory stay the caller's. */
int raw_loop_init(struct raw_loop *loop, struct raw_port *port,
		  const struct raw_peer *peer, struct bench_worker *worker,
		  const struct bench_memory *memory);
void raw_loop_fini(struct raw_loop *loop);

/* One step of a bench_worker whose ctx is a raw_loop. */
int raw_step_batch(struct bench_worker *worker);
int raw_step_window(struct bench_worker *worker);

/* Completes what is posted, without counting it. */
void raw_drain(struct bench_worker *worker);

#endif /* TEI_FABTESTS_BENCHMARKS_TE_BENCH_RAW_H */
