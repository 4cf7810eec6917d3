/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_OP_H
#define TEI_PROV_MOONRAIL_MOONRAIL_OP_H

/*
 * Operations of the application that are under way.
 */

#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_wire.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"

struct moonrail_ep;
struct moonrail_peer;
struct tei_rail_bounce;

/* A task of the data plane that belongs to an operation. Part of op->tasks.
 * When the task has ended, it waits in the inbox for a thread that holds the
 * domain's lock. */
struct moonrail_task {
	struct tei_rail_task task;
	struct tei_list link;		/* in domain->inbox.tasks */
	struct moonrail_op *op;
	enum tei_rail_end end;
};

enum moonrail_kind {
	MOONRAIL_RECV,
	MOONRAIL_SEND,
	MOONRAIL_RMA,
	MOONRAIL_ATOMIC,		/* an atomic: iov holds the results, and
					 * link is in peer->ops.waiting */
};

/* The functions in which the kinds of operations differ. The functions that
 * move bytes and those that exchange messages with peers report to the owner of
 * the kind through this table, with the domain's lock held. */
struct moonrail_op_type {
	enum moonrail_kind kind;
	/* Handles the end of the operation's move: op->err is 0 or FI_E*. NULL
	 * if operations of this kind move no bytes. */
	void (*moved)(struct moonrail_op *op);
	/* Starts a move again that has waited for a bounce buffer. The bounce
	 * buffer is now in op->block. at: the n remote ranges of the move. */
	void (*restart)(struct moonrail_op *op,
			const struct moonrail_wire_range *at, uint32_t n);
	/* Continues an operation that has waited for an answer of its peer. The
	 * operation has been removed from its list. err: FI_E*, or 0. */
	void (*answered)(struct moonrail_op *op, int err);
};

/* The classes of operations that message orders distinguish. Receives have no
 * class. */
enum moonrail_class {
	MOONRAIL_CLASS_SEND,
	MOONRAIL_CLASS_READ,
	MOONRAIL_CLASS_WRITE,
	MOONRAIL_CLASS_ATOMIC,
	MOONRAIL_CLASSES,
};

/*
 * One operation of the application that is under way. Created by the call of
 * the application, freed when the operation completes.
 */
struct moonrail_op {
	struct tei_list link;		/* in ep->recvs[], in peer->ops.waiting,
					 * .waiting_for_key or .checking, or in
					 * no list */
	const struct moonrail_op_type *type;
	enum moonrail_kind kind;	/* same as type->kind */
	struct moonrail_ep *ep;
	struct moonrail_peer *peer;
	void *context;
	uint64_t flags;			/* flags of the operation's
					 * completion */
	bool unsignaled;		/* no completion is written if the
					 * operation succeeds */
	int err;			/* result: 0 or FI_E* */
	uint32_t niov, nrma;
	struct iovec iov[MOONRAIL_IOV];
	uint64_t total;			/* total length of the entries of iov,
					 * bytes */
	uint64_t id;
	void *copy;			/* copy of injected bytes, or NULL */
	struct tei_rail_bounce *block;	/* bounce buffer through which the
					 * operation's bytes pass, or NULL */
	uint32_t left;			/* number of tasks under way */
	bool failed;			/* a task has failed */
	bool released;			/* the peer no longer reads the bytes of
					 * this operation */
	struct moonrail_task *tasks;
	struct tei_rail_group *group;	/* the group of the tasks under way, or
					 * NULL if there is only one task */
	/* receive */
	struct moonrail_peer *from;	/* expected sender; NULL means any
					 * sender */
	uint32_t from_ep;		/* endpoint number of the expected
					 * sender */
	struct moonrail_op *multi;	/* multi-receive of which this operation
					 * is a part, or NULL */
	uint32_t parts;			/* number of parts of a multi-receive
					 * that are under way */
	uint64_t tag, ignore, data, received, truncated;
	uint64_t rts_ack;		/* acknowledged number in the RTS of the
					 * message that is being read */
	uint32_t src_ep;
	bool peek;			/* a receive with FI_PEEK or FI_DISCARD,
					 * which counters do not count */
	/* send */
	uint32_t npin;			/* number of entries of iov that are
					 * pinned, from the first one on */
	/* remote memory access */
	struct fi_rma_iov rma[MOONRAIL_IOV];
	bool write, has_data, event;
	bool waits_for_done;		/* completes when the peer has
					 * acknowledged DONE */
};

/* --- moonrail_op.c ------------------------------------------------------- */
/* Returns true if the total length exceeds MOONRAIL_MESSAGE or overflows. */
bool moonrail_iov_too_long(const struct iovec *iov, size_t n);
/* moonrail_op_begin counts an operation as under way, for its endpoint and for
 * its peer. moonrail_op_undo subtracts it again. */
void moonrail_op_begin(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
void moonrail_op_undo(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
/* Reports the end of an operation to the application and frees it. */
void moonrail_op_done(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);
/* Sets op->err and calls moonrail_op_done. */
void moonrail_op_end(struct moonrail_op *op, int err)
	TEI_REQUIRES(moonrail_held);
/* Creates an operation without a peer. Returns NULL if memory is short. */
struct moonrail_op *moonrail_op_new(struct moonrail_ep *ep,
				    const struct moonrail_op_type *type,
				    void *context);
/* Creates an operation to a peer. flags: flags of the application's call.
 * silent: the call is an inject, which has no completion. */
struct moonrail_op *moonrail_op_to(struct moonrail_ep *ep,
				   const struct moonrail_op_type *type,
				   struct moonrail_peer *peer, void *context,
				   uint64_t flags, bool silent)
	TEI_REQUIRES(moonrail_held);
/* Sets the peer of an operation; the operation drops its reference to the old
 * peer and holds one to the new peer. */
void moonrail_op_with(struct moonrail_op *op, struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Frees an operation without reporting it. */
void moonrail_op_free(struct moonrail_op *op) TEI_REQUIRES(moonrail_held);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_OP_H */
