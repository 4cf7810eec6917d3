/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_SCHED_RAIL_SCHED_H
#define TEI_PROV_RAIL_SCHED_RAIL_SCHED_H

/*
 * Internal functions of the scheduler: rail_pick.c selects, rail_share.c
 * limits, rail_slice.c cuts, rail_post.c posts, rail_complete.c ends tasks,
 * rail_retry.c retries, rail_sched.c has the public functions.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/lock.h"

struct rail;
struct rail_conn;
struct rail_remote;
struct rail_rkey;
struct tei_err;

#define RAIL_FAR_BYTES	(256u << 10)	/* smallest length of a task that far
					 * rails may carry, bytes */

/* Cuts at most RAIL_BUNDLE slices for the lane and stores them in out. Takes
 * the peers that have work in turn. Returns the number of slices. */
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
/* Ends the task if none of its slices is posted or waits to be posted, and
 * either all its bytes have been moved or the task must end early. */
void rail_task_finish(struct tei_rail_dp *dp, struct tei_rail_task *task,
		      struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Returns true if all tasks of the slice have ended early, so that the slice
 * need not be posted. */
bool rail_slice_dead(const struct rail_slice *slice);
/* Drops a slice that will not be posted. A task of the slice ends if this was
 * its last slice. unfenced: true if bytes of the slice may still land. */
void rail_slice_drop(struct tei_rail_dp *dp, struct rail_slice *slice,
		     bool unfenced, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Fails all tasks of the slice, with an error record that contains the code and
 * the text "what". The slice is dropped together with the last of these
 * tasks. */
void rail_slice_fail(struct rail_slice *slice, int code, const char *what,
		     struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* Fails all tasks of the slice as rail_slice_fail does, but takes the code, the
 * text, the hint and the absent range from the error record why. */
void rail_slice_refuse(struct rail_slice *slice, const struct tei_err *why,
		       struct rail_done *done) TEI_REQUIRES(rail_sched_held);
/* --- rail_iov.c: scatter/gather requests ------------------------------- */
/* Finds the regions of the local iov entries, for reading into them or writing
 * from them. Returns TEI_ERR_NOT_REGISTERED if the memory of an entry is not
 * registered, is GPU memory, or is read-only although "read" is true; otherwise
 * 0. */
int rail_iov_check(struct tei_rail_dp *dp, struct tei_rail_task_ext *ext,
		   bool read) TEI_REQUIRES(rail_sched_held);
/* Holds the regions of all local entries except the first, whose region the
 * task itself holds. rail_done_run releases the regions. */
void rail_iov_hold(struct tei_rail_task_ext *ext) TEI_REQUIRES(rail_sched_held);
/* Returns the ranks of the rails for the local memory of the byte at offset off
 * of the task. */
const uint8_t *rail_iov_ranks(const struct tei_rail_task_ext *ext, uint64_t off)
	TEI_REQUIRES(rail_sched_held);
/* Sets *local and *remote to the local and remote address of the byte at offset
 * off of the task. */
void rail_iov_select(const struct tei_rail_task_ext *ext, uint64_t off,
		     char **local, uint64_t *remote);
/* Returns true if the keys of all remote entries in [off, off + len) are known.
 * If one is missing, requests it. read: true if keys that allow only reads
 * suffice. */
bool rail_iov_keys(struct tei_rail_peer *peer,
		   const struct tei_rail_task_ext *ext, uint64_t off,
		   uint64_t len, bool read) TEI_REQUIRES(rail_sched_held);
/* Returns true if a remote entry of bytes [off, off + len) of the task contains
 * [addr, addr + alen). */
bool rail_iov_names(const struct tei_rail_task_ext *ext, uint64_t off,
		    uint64_t len, uint64_t addr, uint64_t alen);
/* Returns how many bytes of the task, from offset off on, one operation can
 * cover. key: remote key of the byte at offset off. */
uint64_t rail_iov_fit(const struct tei_rail_task_ext *ext, uint64_t off,
		      const struct rail_rkey *key, const struct rail *rail);
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

/* Moves the slices that were posted to generations up to gen of the remote rail
 * from the awaiting-fence list to the retry list, because the target has closed
 * these generations. Called by rail_fence.c only. */
void rail_sched_release(struct tei_rail_peer *peer, uint16_t remote,
			uint32_t gen, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/*
 * The load of the rails that may carry a task. bytes: bytes posted on all these
 * rails together. share: the calling rail's part of their total rate, 0 to 1.
 * For rail_window_sum, the argument "bytes" is the number of bytes posted on
 * the calling rail, including slices that were just cut.
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
/* Returns true if the rail would finish after the other rails if it took "len"
 * more bytes of a task. left: bytes of the task that are not cut yet; bytes:
 * bytes posted on the rail. */
bool rail_window_over(const struct rail_window_sum *sum, uint64_t bytes,
		      uint64_t left, uint64_t len);

/* --- rail_share.c: how much a connection may take ------------------------ */
/*
 * Returns true if the connection may take another slice. The connection may use
 * half of the lane's depth, and three quarters of the rail's window, as far as
 * other connections leave these free. The rest is a reserve, so that a stopped
 * peer cannot block other peers. Small requests may use half of this reserve.
 * However small the window is, a connection may always have one slice, or two
 * bulk slices of half the length, if the lane's depth allows it. The
 * connections of a rail pair divide the pair's part of the window for bulk data
 * equally; those on extra lanes take nothing while small requests are active.
 * bytes: bytes posted on the rail or just cut.
 */
bool rail_share_room(const struct rail_lane *lane, const struct rail_conn *conn,
		     uint64_t bytes, bool bulk)
	TEI_REQUIRES(rail_sched_held);
/*
 * Returns the present maximum length of a bulk slice for the connection. On a
 * throttled rail, this is a fraction of the connection's share of bulk data.
 * Returns 0 if the share is used up.
 */
uint64_t rail_share_most(struct rail *rail, const struct rail_conn *conn,
			 uint64_t bytes) TEI_REQUIRES(rail_sched_held);
/*
 * Returns the length of the next slice of a task. left: bytes of the task that
 * are not cut yet; most: maximum of the result. The usual length is small
 * enough to balance the rails. Towards the end of a task that several rails
 * share, slices shrink, so that the rails finish together (guided
 * self-scheduling, Polychronopoulos and Kuck, IEEE ToC 1987).
 */
uint64_t rail_share_len(const struct rail *rail,
			const struct rail_window_sum *sum, uint64_t left,
			bool bulk, uint64_t most) TEI_REQUIRES(rail_sched_held);
/*
 * Returns the number of bytes of bulk data that the rail may hold while
 * throttled, whichever peers the small requests are for. Small requests delay
 * each other as well, so the limit is at least three eighths of the bytes that
 * small requests have posted. bytes: all bytes posted on the rail.
 */
uint64_t rail_share_throttled(const struct rail *rail, uint64_t bytes)
	TEI_REQUIRES(rail_sched_held);
/* Accounts for len bytes of bulk data that were cut for the connection, if the
 * rail is throttled. The accounting round ends when the bulk data cut in it
 * reaches the rail's window. now: time of the last completion on the lane. */
void rail_share_took(struct rail *rail, struct rail_conn *conn, uint64_t len,
		     uint64_t now) TEI_REQUIRES(rail_sched_held);
/* Throttles bulk data on the rail, because a small request was cut. */
void rail_share_small(struct rail *rail) TEI_REQUIRES(rail_sched_held);
/* Returns true if so many small requests were cut since the last bulk slice
 * that a bulk slice must precede the next small request. */
bool rail_share_bulk_turn(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/*
 * Returns the value of peer->tasks.overtaken after a bulk slice of len bytes
 * was cut, whose length was limited to "most" bytes. If the value is 0, the
 * usual number of small requests is served before the next bulk slice. If the
 * limit has made the slice short, fewer small requests are served, in
 * proportion to the slice's length, but at least one.
 */
uint32_t rail_share_overtaken(const struct rail *rail, uint64_t len,
			      uint64_t most) TEI_REQUIRES(rail_sched_held);

/* --- rail_pick.c: the next slice ----------------------------------------- */
/* The queue from which the next slice comes. */
enum rail_pick_source {
	RAIL_PICK_NONE,
	RAIL_PICK_RETRY,	/* a slice of the retry list is posted again */
	RAIL_PICK_SMALL,	/* a slice is cut from a small request */
	RAIL_PICK_BULK,		/* a slice is cut from a bulk request */
};

/*
 * The next slice of a peer for a lane. Valid until dp->sched is released or
 * another slice is cut.
 */
struct rail_pick {
	enum rail_pick_source source;
	struct rail_slice *slice;	/* for RAIL_PICK_RETRY: the slice to be
					 * posted again */
	struct tei_rail_task *task;	/* for RAIL_PICK_SMALL and
					 * RAIL_PICK_BULK: the task from which
					 * the slice is cut */
	struct rail_conn *conn;		/* connection to use; it has a place in
					 * the endpoint cache */
	struct rail_remote *remote;
	uint16_t remote_idx;		/* index of the remote rail in
					 * peer->remotes */
	struct rail_rkey *key;		/* remote key of the first byte */
	char *local;			/* local address of the first byte */
	uint64_t to;			/* address of the first byte in the
					 * peer's memory */
	uint64_t rma_addr, rma_key;	/* address and key of the first byte as
					 * the selected remote rail needs
					 * them */
	/* length of the slice, bytes; for RAIL_PICK_RETRY, the largest number
	 * of bytes that one operation can cover */
	uint64_t len;
	/* for RAIL_PICK_SMALL and RAIL_PICK_BULK: limit for len that results
	 * from the connection's share, bytes */
	uint64_t most;
	bool bulk_waits;		/* true if bulk data of the peer waits
					 * for this rail */
	uint32_t visited;		/* number of queue entries that were
					 * examined; used by tests */
};

/*
 * Selects the next slice of the peer for this lane, and gives the connection a
 * place in the endpoint cache. Each queue of the peer is examined once. Returns
 * false if nothing can be cut now. bytes: bytes posted on the rail, including
 * slices just cut. *now: the time, or 0, in which case the function sets it if
 * it needs the time.
 */
bool rail_pick(struct rail_lane *lane, struct tei_rail_peer *peer,
	       uint64_t bytes, uint64_t *now, struct rail_pick *pick)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held);
/* Returns the number of bytes, counted from the address "local" on, that one
 * operation of the rail can cover. */
uint64_t rail_pick_local_room(const struct tei_rail_mr *mr, char *local,
			      const struct rail *rail);

#define RAIL_PEER_QUEUE_MAX	(1u << 20) /* largest number of tasks in the
					    * queues of a peer */

/* Takes a slice from the free list. Returns NULL if memory is short. */
struct rail_slice *rail_slice_get(struct tei_rail_dp *dp)
	TEI_REQUIRES(rail_sched_held);
void rail_slice_put(struct tei_rail_dp *dp, struct rail_slice *slice)
	TEI_REQUIRES(rail_sched_held);

/* Cuts and posts slices until the lane is full or nothing is left. now: a
 * recent time, or 0 if the caller knows none. Returns true if anything was
 * posted. */
bool rail_sched_pull(struct rail_lane *lane, uint64_t now,
		     struct rail_done *done) TEI_REQUIRES(lane->lock);

/* Handles the successful completion of a slice. */
void rail_slice_complete(struct tei_rail_dp *dp, struct rail_slice *slice,
			 uint64_t now, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/* Handles a slice that failed with err (FI_E*) or whose lane was closed. The
 * slice waits for a fence and is then posted again, on any rail. */
void rail_slice_handle_error(struct tei_rail_dp *dp, struct rail_slice *slice,
			     int err, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/* Ends a task when the data plane is closed, even if slices of the task are
 * posted. */
void rail_task_drop(struct tei_rail_task *task, const struct tei_err *err,
		    struct rail_done *done) TEI_REQUIRES(rail_sched_held);

/* Drops the slices that wait for a fence and whose tasks have ended early.
 * These tasks end as UNFENCED. */
void rail_peer_fail_unfenced(struct tei_rail_peer *peer, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/*
 * Fails the tasks that have used a region which the peer has unregistered
 * (rail_key_unregistered, rail_key_replaces), and of which a part must still be
 * posted. Tasks of which all bytes are posted or have completed fail later, and
 * only if a slice must be posted again.
 */
void rail_sched_unregistered(struct tei_rail_peer *peer, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/*
 * Splits a slice of the retry list that one operation can no longer cover, for
 * example because the memory is now registered as two regions. A slice with
 * several tasks is split after the first task, any other slice after len bytes.
 * Returns false if memory is short.
 */
bool rail_slice_split(struct tei_rail_peer *peer, struct rail_slice *slice,
		      uint64_t len) TEI_REQUIRES(rail_sched_held);

/* Fails the tasks of a slice of the retry list that must not be posted again
 * because the peer has unregistered a region that its task has used. Returns
 * false if the slice may be posted again. */
bool rail_slice_unregistered(struct rail_slice *slice, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/* Fails the slices and tasks that wait for the key of [addr, addr + len),
 * because the peer refused it with code. */
void rail_sched_no_key(struct tei_rail_peer *peer, uint64_t addr, uint64_t len,
		       int code, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/* Fails the writes that wait for the key of [addr, addr + len), because the
 * peer allows only reads of the region. */
void rail_sched_read_only(struct tei_rail_peer *peer, uint64_t addr,
			  uint64_t len, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/* Ends a task early with the status "end": at once or, if slices of the task
 * are posted, as soon as these slices have completed. Copies err. */
void rail_task_end(struct tei_rail_dp *dp, struct tei_rail_task *task,
		   enum tei_rail_end end, const struct tei_err *err,
		   struct rail_done *done) TEI_REQUIRES(rail_sched_held);

/*
 * rail_task_end_unpurged does what rail_task_end does, but does not drop the
 * slices of the retry list whose tasks have all ended. So it removes no other
 * task from peer->tasks.live, and a loop over this list may call it.
 * rail_task_purge drops these slices, and removes their tasks from
 * peer->tasks.live; the caller calls it after the loop.
 */
void rail_task_end_unpurged(struct tei_rail_dp *dp, struct tei_rail_task *task,
			    enum tei_rail_end end, const struct tei_err *err,
			    struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
void rail_task_purge(struct tei_rail_peer *peer, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/* Handles the completions of slices (rail_slice_op.c). */
extern const struct rail_op_handler rail_slice_op;

#endif /* TEI_PROV_RAIL_SCHED_RAIL_SCHED_H */
