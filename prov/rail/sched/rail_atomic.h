/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_SCHED_RAIL_ATOMIC_H
#define TEI_PROV_RAIL_SCHED_RAIL_ATOMIC_H

/* The tasks of atomic operations, for the messages of atomics
 * (rail_atomic_ctl.c). */

#include "prov/rail/rail_int.h"

/* Fills in an error of the peer, with the first rail that has a route to it. */
void rail_atomic_err(const struct tei_rail_peer *peer, int code,
		     struct tei_err *err) TEI_REQUIRES(rail_sched_held);
/* Removes a task from the list of unanswered atomics. */
void rail_atomic_take(struct tei_rail_task *task) TEI_REQUIRES(rail_sched_held);
/* Fails all tasks that were sent: their outcome can no longer be found out. */
void rail_atomic_unknown(struct tei_rail_peer *peer, const char *why,
			 struct rail_done *done) TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_SCHED_RAIL_ATOMIC_H */
