/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_SCHED_H
#define TEI_PROV_RAIL_RAIL_SCHED_H

/*
 * What the scheduler's files share: rail_slice.c cuts, rail_post.c posts,
 * rail_end.c ends, rail_retry.c posts again, rail_sched.c has the calls.
 */

#include "prov/rail/rail_int.h"

#define RAIL_FAR_BYTES	(256u << 10)	/* far rails help from here on */

/* Up to RAIL_BUNDLE slices, round robin over the peers with work. */
int rail_slice_cut(struct rail_lane *lane, struct rail_slice **out)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);
/* Whether it is no small one, which would go ahead of those: it has more than a
 * slice of the smallest size, or is a part of what has. */
bool rail_task_large(const struct tei_rail_task *task);
/* All of it is cut, or is not to be. */
void rail_task_unqueue(struct tei_rail_task *task)
	TEI_REQUIRES(rail_sched_held);
/* Ends the task if nothing of it is under way. */
void rail_task_finish(struct tei_rail_dp *dp, struct tei_rail_task *task,
		      struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* True when the peer has nothing to cut or to post again. */
bool rail_slice_none(const struct tei_rail_peer *peer);
/* True when no task of it wants its bytes any more. */
bool rail_slice_dead(const struct rail_slice *slice);
/* Gives a slice back that will not be posted; its tasks may end by that. */
void rail_slice_drop(struct tei_rail_dp *dp, struct rail_slice *slice,
		     bool unfenced, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Ends the slice's tasks, which takes the slice along. */
void rail_slice_fail(struct rail_slice *slice, int code, const char *what,
		     struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* The same; code, text, hint and absent are why's. */
void rail_slice_refuse(struct rail_slice *slice, const struct tei_err *why,
		       struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* --- rail_piece.c: tasks of several pieces ------------------------------- */
/* Finds the regions of the local pieces, for reading into them or writing from
 * them. 0 or TEI_ERR_NOT_REGISTERED. */
int rail_piece_check(struct tei_rail_dp *dp, struct tei_rail_extra *extra,
		     bool read)
	TEI_REQUIRES(rail_sched_held);
/* Holds the regions of all local pieces but the first. */
void rail_piece_hold(struct tei_rail_extra *extra)
	TEI_REQUIRES(rail_sched_held);
/* Lets them go; no lock held. */
void rail_piece_release(struct tei_rail_dp *dp, struct tei_rail_extra *extra);
/* As rail_mr_ranks, of where byte off is. */
const uint8_t *rail_piece_ranks(const struct tei_rail_extra *extra,
				uint64_t off) TEI_REQUIRES(rail_sched_held);
/* local and remote of the slice's first byte. */
void rail_piece_aim(struct rail_slice *slice);
/* Whether the keys of all remote pieces with bytes of [off, off + len) are
 * there, for reading or for writing; the first that is not is asked for. */
bool rail_piece_keys(struct tei_rail_peer *peer,
		     const struct tei_rail_extra *extra, uint64_t off,
		     uint64_t len, bool read) TEI_REQUIRES(rail_sched_held);
/* Whether one of those holds [addr, addr + alen). */
bool rail_piece_names(const struct tei_rail_extra *extra, uint64_t off,
		      uint64_t len, uint64_t addr, uint64_t alen);
/* Bytes from the slice's first on that one operation takes. */
uint64_t rail_piece_fit(const struct rail_slice *slice,
			const struct rail *rail);
ssize_t rail_piece_post(struct rail_lane *lane, struct rail_slice *slice)
	TEI_REQUIRES(lane->lock);

/* It is posted again: counted by its peer and the rail that it was on. */
void rail_sched_count(const struct rail_slice *slice)
	TEI_REQUIRES(rail_sched_held);
/* To be posted again, unless it was too often. Off its list before. */
void rail_sched_again(struct tei_rail_peer *peer, struct rail_slice *slice,
		      struct rail_done *done) TEI_REQUIRES(rail_sched_held);

/*
 * What a rail has in hand beside the others that a task of that memory may use.
 * share: its part of their rate; bytes: in hand of all of them. bytes as an
 * argument: in hand of the rail itself, what has just been cut included.
 */
struct rail_window_sum {
	uint32_t rails;
	uint64_t bytes;
	double share;
};
void rail_window_sum(const struct rail *rail, const struct tei_rail_peer *peer,
		     const struct tei_rail_mr *mr, const uint8_t *ranks,
		     uint64_t bytes, struct rail_window_sum *sum)
	TEI_REQUIRES(rail_sched_held);
/* With len more of the last bytes left, the rail would end after the others. */
bool rail_window_over(const struct rail_window_sum *sum, uint64_t bytes,
		      uint64_t left, uint64_t len);

#endif /* TEI_PROV_RAIL_RAIL_SCHED_H */
