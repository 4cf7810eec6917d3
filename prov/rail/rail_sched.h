/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_SCHED_H
#define TEI_PROV_RAIL_RAIL_SCHED_H

/*
 * What the scheduler's files share: rail_slice.c cuts, rail_post.c posts,
 * rail_end.c ends, rail_retry.c posts again, rail_sched.c has the calls.
 */

#include "prov/rail/rail_int.h"

/* Up to RAIL_BUNDLE slices, round robin over the peers with work. */
int rail_slice_cut(struct rail_lane *lane, struct rail_slice **out)
	TEI_REQUIRES(rail_sched_held);
/* True when no task of it wants its bytes any more. */
bool rail_slice_dead(const struct rail_slice *slice);
/* Gives a slice back that will not be posted; its tasks may end by that. */
void rail_slice_drop(struct tei_rail_dp *dp, struct rail_slice *slice,
		     bool unfenced, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Ends the slice's tasks, which takes the slice along. */
void rail_slice_fail(struct rail_slice *slice, int code, const char *what,
		     struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* To be posted again, unless it was too often. Off its list before. */
void rail_sched_again(struct tei_rail_peer *peer, struct rail_slice *slice,
		      struct rail_done *done) TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_RAIL_SCHED_H */
