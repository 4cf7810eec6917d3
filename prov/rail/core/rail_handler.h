/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_HANDLER_H
#define TEI_PROV_RAIL_CORE_RAIL_HANDLER_H

/*
 * The functions by which a lane reports to the layers above it.
 *
 * The operations posted on one endpoint have different owners: the scheduler's
 * slices, messages on a connection, messages on the reverse path, and receive
 * buffers. So each operation names the handler of its completion, and libfabric
 * returns the operation in op_context.
 *
 * Lanes have different uses: tx lanes carry slices, rx lanes and contact lanes
 * only receive, and the endpoint of the probes carries probes. So each lane
 * names the functions that are called when a message has arrived, when the lane
 * has been read and when it may have room.
 */

#include <rdma/fi_eq.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

struct tei_rail_dp;
struct tei_rail_peer;

/* All functions are called with lane->lock held. */
struct rail_op_handler {
	/* Handles the completion of n operations, which all have this handler.
	 * entry: array of the n completions. */
	void (*complete)(struct rail_lane *lane,
			 const struct fi_cq_msg_entry *entry, int n,
			 struct rail_done *done);
	/* Handles the failure of the operation err->op_context. text: the
	 * provider's description, or "". */
	void (*fail)(struct rail_lane *lane, const struct fi_cq_err_entry *err,
		     const char *text, struct rail_done *done);
	/* Ends an operation whose lane was closed before the operation
	 * completed. Called with dp->sched held. Unlike the other functions, it
	 * may be called without lane->lock. NULL for receive buffers, because
	 * the lane posts its receive buffers again. */
	void (*abort)(struct rail_op *op, struct rail_done *done);
};

/* All functions are called with lane->lock held. */
struct rail_lane_ops {
	/* Handles a message that has arrived. */
	void (*received)(struct rail_lane *lane, const uint8_t *buf, size_t len,
			 struct rail_done *done);
	/* Closes evicted connections of the active lane, after each read of its
	 * queue. NULL if "feed" is NULL. */
	void (*polled)(struct rail_lane *lane);
	/* Lets the active lane take more operations, because it may have room.
	 * now: a recent time if the caller knows one, else 0. Returns true if
	 * anything was posted. NULL if the lane carries no slices. */
	bool (*feed)(struct rail_lane *lane, uint64_t now,
		     struct rail_done *done);
};

/* Posts the idle receive buffers again, until none is left or the provider
 * refuses one. */
void rail_lane_repost(struct rail_lane *lane) TEI_REQUIRES(lane->lock);
/* Calls the abort handler of each slice in "aborted", the list of the slices
 * that were posted on a lane which has been closed. Acquires dp->sched. */
void rail_op_abort_all(struct tei_rail_dp *dp, struct tei_list *aborted);
/* Counts and logs an error completion. what: text for the operation, such as
 * "write to". peer: the peer of the operation, or NULL. text: the provider's
 * description. */
void rail_lane_log_error(struct rail_lane *lane,
			 const struct fi_cq_err_entry *err,
			 enum tei_log_level level, const char *what,
			 struct tei_rail_peer *peer, const char *text);
/* Handles the deferred control messages of the lane. Progress thread. */
void rail_lane_handle_deferred(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock);
/* Discards the deferred control messages of the lane. Progress thread. */
void rail_lane_drop_deferred(struct rail_lane *lane);

#endif /* TEI_PROV_RAIL_CORE_RAIL_HANDLER_H */
