/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_FI_INT_H
#define TEI_FABTESTS_SIM_SIM_FI_INT_H

/* Declarations that the files of the workload of libfabric programs share. */

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_check.h"
#include "fabtests/sim/sim_cluster.h"
#include "fabtests/sim/sim_workload.h"

/* Number of successive processes of a host that have slots of their own. Each
 * later process uses the slots of an earlier one. */
#define FI_LIVES	4
/* size of the largest message or transfer, bytes */
#define FI_MAX		(64u << 10)
/* distance between two slots or buffers, bytes; a multiple of 64. The distance
 * includes the largest transfer, the guards and padding. */
#define FI_STRIDE	(FI_MAX + 2 * 64)
/* number of posted receives of each kind */
#define FI_RECEIVES	8
/* the keys of the registered memory */
#define FI_KEY_SLOTS	1
#define FI_KEY_COUNTS	2

/* The kinds of operations. Streams and receives have one of the first two
 * kinds. */
enum fi_kind {
	FI_KIND_MESSAGE,
	FI_KIND_TAGGED,
	FI_KIND_WRITE,
	FI_KIND_READ,
	FI_KIND_ATOMIC,
};

/* The first member of each object that is the context of an operation. It
 * identifies the type of that object. */
struct fi_owner {
	bool receive;			/* true: struct fi_receive; false:
					 * struct fi_worker */
};

/* The address of another host in the address vector of a process. */
struct fi_dest {
	uint64_t incarnation;		/* incarnation of the process at the
					 * address; 0 if no address was
					 * inserted */
	fi_addr_t addr;
	uint32_t busy;			/* number of operations that use the
					 * address */
	bool failed;			/* an operation has ended with
					 * FI_ETIMEDOUT, so the address must be
					 * removed and inserted again */
	bool sending;			/* a worker is posting a message to the
					 * host */
};

/* A slot: a range of a target's memory. Only one worker of one process of an
 * initiator uses it. */
struct fi_slot {
	char *at;
	struct sim_tomb tomb;		/* tombstone of the last transfer */
	uint64_t unknown;		/* incarnation of the target with which
					 * a transfer has ended with
					 * FI_ETIMEDOUT, so that its bytes may
					 * still land; 0 if there is none */
};

/* A counter in a target's memory, the operand of atomics. Only one worker of one
 * process of an initiator uses it. */
struct fi_counter {
	uint64_t *value;
	uint64_t done, unknown;		/* number of additions that were
					 * executed, and number of additions
					 * with an unknown outcome */
};

/* A worker of a process, and its present operation. */
struct fi_worker {
	struct fi_owner owner;		/* must be the first member */
	struct sim_proc *proc;
	uint32_t index;
	struct sim_rng rng;
	char *local;			/* local memory, FI_MAX bytes */
	struct sim_tomb *tomb;		/* tombstone of local memory after a
					 * read or a write; kept when the
					 * process ends */
	uint64_t *operand;		/* three numbers: operand, compare value
					 * and result of an atomic */
	/* the present operation */
	enum fi_kind kind;
	uint64_t id;
	uint32_t to;
	struct fi_dest *dest;
	uint64_t incarnation;		/* incarnation of the target */
	uint64_t seed;			/* seed of the pattern */
	size_t len, off;		/* length, and offset in the slot,
					 * bytes */
	uint64_t start_ns;
	bool posted;			/* the operation is posted and has not
					 * ended */
	bool swap;			/* the atomic is a compare-and-swap */
	bool delivery;			/* the message is sent with
					 * FI_DELIVERY_COMPLETE */
	struct fi_slot *slot;
	struct fi_counter *counter;
	struct sim_stream *stream;
	uint64_t number;		/* number of the message in stream */
};

/* A posted receive. */
struct fi_receive {
	struct fi_owner owner;		/* must be the first member */
	enum fi_kind kind;
	uint64_t number;		/* number of receives of this kind that
					 * the process had posted before */
	char *at;			/* buffer, FI_MAX bytes */
};

/* The libfabric objects of one process. Allocated when the process starts, and
 * kept until the end of the simulation. */
struct fi_proc {
	struct fi_proc *next;
	struct sim_proc *proc;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *slots, *counts;
	struct fi_dest *dests;		/* addresses, indexed by host */
	struct fi_worker *workers;
	struct fi_receive receives[2 * FI_RECEIVES];
	uint64_t posted[2];		/* number of receives that were posted,
					 * indexed by kind */
	uint32_t working;		/* number of workers that have not
					 * ended */
};

/* --- sim_fi.c --- */

/* Returns a description of the worker's operation for error texts, valid until
 * the next call. */
const char *fi_worker_name(const struct fi_worker *w);
/* Returns the number of slots that each target has, one per worker of each
 * process with slots of its own. */
size_t fi_lanes(const struct sim_conf *conf);
/* Returns the index of the worker's slot at each target. */
size_t fi_lane(const struct fi_worker *w);
struct fi_proc *fi_proc_of(const struct fi_worker *w);
/* Returns a random length of at least `min` bytes. */
size_t fi_length(struct sim_rng *rng, size_t min);

/* --- sim_fi_rma.c: writes, reads and atomics --- */

/* Allocates the slots and the counters. Called after sim_cluster_begin. */
void fi_rma_begin(const struct sim_conf *conf);
/* Frees what fi_rma_begin has allocated. */
void fi_rma_end(void);
/* Verifies all tombstones and counters. Called when no transfer is in
 * progress. */
void fi_rma_verify(void);
/* Registers the memory of the process. Returns 0 or an error of fi_mr_reg. */
int fi_rma_open(struct fi_proc *fp);
/* Sets the local memory of a new worker. */
void fi_rma_worker(struct fi_worker *w);
/* Prepares a write, a read or an atomic. Returns false if late bytes of a former
 * transfer may still land in the slot. */
bool fi_rma_prepare(struct fi_worker *w);
/* Posts the prepared operation. Returns 0 or the error of the call. */
ssize_t fi_rma_post(struct fi_worker *w);
/* Checks an operation that has ended. err is 0 or the error of the operation. */
void fi_rma_ended(struct fi_worker *w, int err);
/* Called for an operation that is in progress when its process ends. */
void fi_rma_gone(struct fi_worker *w);

#endif /* TEI_FABTESTS_SIM_SIM_FI_INT_H */
