/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_CONN_STATE_H
#define TEI_PROV_RAIL_CONN_RAIL_CONN_STATE_H

/* The functions by which the owners of operations report that an operation on a
 * connection has completed or failed. */

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "util/lock.h"

struct rail_conn;

/* Records that an operation on the connection has completed: the connection is
 * established. Does nothing if the lane is retired, because the connection then
 * belongs to the sibling lane. */
void rail_conn_completed(const struct rail_lane *lane, struct rail_conn *conn)
	TEI_REQUIRES(lane->lock);
/* Records that an operation has failed with err (FI_E*). If the error means
 * that the connection has ended, drops its place in the endpoint cache. */
void rail_conn_failed(struct rail_lane *lane, struct rail_conn *conn, int err)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_CONN_RAIL_CONN_STATE_H */
