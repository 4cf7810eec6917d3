/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_SCHED_RAIL_SCHED_H
#define TEI_PROV_RAIL_SCHED_RAIL_SCHED_H

/*
 * Internal functions of the scheduler: rail_slice.c cuts, rail_post.c posts,
 * rail_complete.c ends tasks, rail_retry.c retries, rail_sched.c has the public
 * functions.
 */

#include "prov/rail/rail_int.h"

#define RAIL_FAR_BYTES	(256u << 10)	/* far rails help with tasks
					 * from this length on */

/* Cuts up to RAIL_BUNDLE slices for the lane, round-robin over the peers with
 * work. Returns their number. */
int rail_slice_cut(struct rail_lane *lane, struct rail_slice **out)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);
/* Returns true for a bulk request: a task that is longer than MC_SLICE_SIZE, or
 * a task that is a part of a longer request. Small requests are served before
 * bulk requests. */
bool rail_task_bulk(const struct tei_rail_task *task);
/* Removes the task from its queue, because the task is completely cut or must
 * not be cut any further. */
void rail_task_unqueue(struct tei_rail_task *task)
	TEI_REQUIRES(rail_sched_held);
/* Ends the task if nothing of it is in progress. */
void rail_task_finish(struct tei_rail_dp *dp, struct tei_rail_task *task,
		      struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Returns true if all tasks of the slice have been ended. */
bool rail_slice_dead(const struct rail_slice *slice);
/* Drops a slice that will not be posted; tasks whose last slice this was end.
 * unfenced: bytes of the slice may still land. */
void rail_slice_drop(struct tei_rail_dp *dp, struct rail_slice *slice,
		     bool unfenced, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Fails all tasks of the slice, and so drops the slice. */
void rail_slice_fail(struct rail_slice *slice, int code, const char *what,
		     struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Does what rail_slice_fail does, with the code, text, hint and absent range of
 * the error why. */
void rail_slice_refuse(struct rail_slice *slice, const struct tei_err *why,
		       struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* --- rail_iov.c: scatter/gather requests ------------------------------- */
/* Finds the regions of the local iov entries, for reading into them or writing
 * from them. Returns 0 or TEI_ERR_NOT_REGISTERED. */
int rail_iov_check(struct tei_rail_dp *dp, struct tei_rail_task_ext *ext,
		   bool read) TEI_REQUIRES(rail_sched_held);
/* Holds the regions of all local entries but the first, which the task holds.
 * rail_done_run releases them. */
void rail_iov_hold(struct tei_rail_task_ext *ext) TEI_REQUIRES(rail_sched_held);
/* Returns the ranks of the rails for byte off of the task. */
const uint8_t *rail_iov_ranks(const struct tei_rail_task_ext *ext, uint64_t off)
	TEI_REQUIRES(rail_sched_held);
/* Sets local and remote of the slice to its first byte. */
void rail_iov_select(struct rail_slice *slice);
/* Returns true if the keys of all remote entries in [off, off + len) are known.
 * Requests the first missing key. read: keys for reading suffice. */
bool rail_iov_keys(struct tei_rail_peer *peer,
		   const struct tei_rail_task_ext *ext, uint64_t off,
		   uint64_t len, bool read) TEI_REQUIRES(rail_sched_held);
/* Returns true if a remote entry of bytes [off, off + len) of the task contains
 * [addr, addr + alen). */
bool rail_iov_names(const struct tei_rail_task_ext *ext, uint64_t off,
		    uint64_t len, uint64_t addr, uint64_t alen);
/* Returns the number of bytes from the slice's first byte that one operation
 * can cover. */
uint64_t rail_iov_fit(const struct rail_slice *slice, const struct rail *rail);
ssize_t rail_iov_post(struct rail_lane *lane, struct rail_slice *slice)
	TEI_REQUIRES(lane->lock);

/* Counts a retry for the slice's peer and for the rail that carried the
 * slice. */
void rail_sched_count(const struct rail_slice *slice)
	TEI_REQUIRES(rail_sched_held);
/* Moves the slice to the retry list. Fails it instead if it was retried too
 * often or the peer is gone. */
void rail_sched_again(struct tei_rail_peer *peer, struct rail_slice *slice,
		      struct rail_done *done) TEI_REQUIRES(rail_sched_held);

/*
 * The load of all rails that a task may use. bytes: posted on all of them;
 * share: the calling rail's part of their total rate. The argument bytes of
 * rail_window_sum is what is posted on the calling rail, including slices that
 * were just cut.
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
/* Returns true if the rail would finish after the other rails if it took len
 * bytes of the last left bytes. bytes: bytes posted on the rail. */
bool rail_window_over(const struct rail_window_sum *sum, uint64_t bytes,
		      uint64_t left, uint64_t len);

#endif /* TEI_PROV_RAIL_SCHED_RAIL_SCHED_H */
