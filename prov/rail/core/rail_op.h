/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_OP_H
#define TEI_PROV_RAIL_CORE_RAIL_OP_H

/*
 * Operations that are posted to a provider (slices), and the collection of
 * tasks that end and messages that arrive while a lock is held.
 *
 * A slice is posted a second time only after its first posting was fenced. So
 * no slice is in flight twice, and a task is COMPLETED as soon as all its
 * slices have completed once. A slice no longer accesses local memory after its
 * completion (success or error) was read, or after the lane that carried it was
 * closed.
 *
 * A task ends only when none of its slices is posted or awaits a fence, or when
 * the data plane has stopped waiting for the fence. In the latter case the task
 * ends as UNFENCED.
 */

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/list.h"

struct rail_conn;
struct rail_lane;
struct rail_op_handler;
struct rail_rkey;
struct tei_rail_dp;
struct tei_rail_mr;
struct tei_rail_peer;
struct tei_rail_task;
struct tei_rail_task_ext;

#define RAIL_BUNDLE		16	/* limit of the slices that are cut
					 * under one acquisition of the locks */
#define RAIL_IOV_MAX		16	/* limit of the iov entries of one
					 * operation */
#define RAIL_KEY_MAX		64	/* largest length of a key, raw keys
					 * included, bytes */

/* The first member of every object that is passed to libfabric as a context. */
struct rail_op {
	struct fi_context2 ctx;
	const struct rail_op_handler *handler; /* rail_handler.h */
};

/*
 * One posted operation: a part of a task, or several adjacent small tasks. The
 * memory belongs to dp->tasks.slices (free list). A slice in use is owned by
 * exactly one of: lane->posted (lane lock), peer->tasks.retry,
 * peer->tasks.awaiting_fence (sched lock), a local variable of a thread that is
 * posting.
 */
struct rail_slice {
	struct rail_op op;
	struct tei_list link;
	struct tei_rail_peer *peer;
	struct rail_lane *lane;		/* lane on which the slice was last
					 * posted */
	struct rail_conn *conn;
	struct tei_rail_task *first;
	struct tei_rail_mr *mr;
	struct rail_rkey *rkey;		/* remote key that the slice uses;
					 * rkey->slices counts the slice */
	const struct tei_rail_task_ext *ext; /* task extension with several iov
					      * entries, or NULL */
	uint64_t off; /* if "ext" is not NULL: offset of the slice's first byte
		       * in the task */
	char *local;
	uint64_t remote;
	uint64_t len;
	uint64_t rma_addr, rma_key;	/* remote address and key that are
					 * passed to the provider; valid for the
					 * selected remote rail */
	uint32_t ntasks;		/* number of tasks: 1, or more if
					 * several whole tasks were merged */
	int last_err;			/* error of the last failure: FI_E*,
					 * positive */
	int prov_err;			/* the provider's own code of the last
					 * failure, or 0 */
	uint64_t seq;			/* value of lane->rate.posts when the
					 * slice was posted */
	uint32_t remote_gen;		/* lane generation of the target when
					 * the slice was posted */
	uint16_t remote_idx;		/* remote rail: index into
					 * peer->remotes */
	uint8_t retries;
	bool read;
	bool bulk;			/* part of a bulk request
					 * (rail_task_bulk) */
	bool conn_fresh;		/* the connection needs a new address
					 * handle before the slice can be
					 * posted */
};

struct rail_slice_chunk {
	struct rail_slice_chunk *next;
	struct rail_slice slice[256];
};

/* Collects tasks that ended, and notifications and user messages that arrived,
 * while a lock is held. rail_done_run reports them after the lock has been
 * released. */
struct rail_done {
	struct tei_list tasks;		/* tasks that ended
					 * (tei_rail_task.live_link) */
	struct tei_list received;	/* notifications for ops->notify
					 * (tei_rail_notification.link) */
	struct tei_list messages;	/* user messages for ops->message
					 * (tei_rail_message.link) */
};

/* Prepares an empty collection. */
void rail_done_init(struct rail_done *done);

/* Reports the collected tasks, notifications and messages through ops. No lock
 * may be held. */
void rail_done_run(struct tei_rail_dp *dp, struct rail_done *done);

#endif /* TEI_PROV_RAIL_CORE_RAIL_OP_H */
