/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_SCHED_RAIL_ATOMIC_H
#define TEI_PROV_RAIL_SCHED_RAIL_ATOMIC_H

/* Queues and ends the tasks of atomic operations. rail_atomic_ctl.c uses these
 * functions; it exchanges the messages of atomics. */

#include "prov/rail/core/rail_dp.h"
#include "util/lock.h"

struct rail_done;
struct tei_err;

/* Fills in an error record that names the peer and the first rail with a route
 * to it. */
void rail_atomic_err(const struct tei_rail_peer *peer, int code,
		     struct tei_err *err) TEI_REQUIRES(rail_sched_held);
/* Removes a task from the list of unanswered atomics. */
void rail_atomic_take(struct tei_rail_task *task) TEI_REQUIRES(rail_sched_held);
/* Fails all tasks whose atomics were sent and not answered, because their
 * outcome can no longer be found out. */
void rail_atomic_unknown(struct tei_rail_peer *peer, const char *why,
			 struct rail_done *done) TEI_REQUIRES(rail_sched_held);

void rail_atomic_init(struct tei_rail_peer *peer);

/* Queues an atomic to be sent. */
void rail_atomic_enqueue(struct tei_rail_task *task)
	TEI_REQUIRES(rail_sched_held);

/* Handles the end of a task. If its atomic has not been sent yet, removes the
 * atomic from the queue. */
void rail_atomic_end(struct tei_rail_task *task)
	TEI_REQUIRES(rail_sched_held);

/* Used when the data plane is closed. If the atomic of the task was sent, adds
 * to the task's error record that its outcome is unknown. */
void rail_atomic_drop(struct tei_rail_task *task);

/* Ends the atomics that were sent and not answered, because the peer is gone.
 * Whether the peer has executed them is unknown. */
void rail_atomic_gone(struct tei_rail_peer *peer, const char *why,
		      struct rail_done *done) TEI_REQUIRES(rail_sched_held);

/* Ends as UNFENCED the tasks that the caller has cancelled or whose deadline
 * has passed, if their atomics were sent and not answered. */
void rail_atomic_give_up(struct tei_rail_peer *peer, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_SCHED_RAIL_ATOMIC_H */
