/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_LOSS_H
#define TEI_PROV_RAIL_CONN_RAIL_LOSS_H

/* The log lines about failed operations and lost connections. */

#include <rdma/fi_eq.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "util/lock.h"

struct rail;
struct tei_rail_peer;

/*
 * Records that a connection to the peer over the rail was lost or could not be
 * established. A log line for all rails is written a little later
 * (rail_loss.c).
 */
void rail_loss_add(struct tei_rail_peer *peer, const struct rail *rail, int err,
		   int prov, const char *text)
	TEI_REQUIRES(rail_sched_held);

/* Returns true if the next log line of rail_loss.c reports a lost connection of
 * this rail. */
bool rail_loss_noted(const struct tei_rail_peer *peer, const struct rail *rail)
	TEI_REQUIRES(rail_sched_held);

/* Logs the lost connections to the peer if the log line is due. Returns the
 * time at which the line becomes due, or 0 if there is none. */
uint64_t rail_ctl_loss(struct tei_rail_peer *peer, uint64_t now);

/* Counts and logs the failure of an operation. what: the operation, such as
 * "write to". peer: the peer of the operation, or NULL. A lost connection to a
 * peer is logged for all rails together. */
void rail_loss_log(struct rail_lane *lane, const struct fi_cq_err_entry *err,
		   const char *what, struct tei_rail_peer *peer,
		   const char *text) TEI_REQUIRES(lane->lock);

#endif /* TEI_PROV_RAIL_CONN_RAIL_LOSS_H */
