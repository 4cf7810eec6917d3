/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_TEI_RAIL_TASK_H
#define TEI_PROV_RAIL_TEI_RAIL_TASK_H

/* Transfers, a part of tei_rail.h. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/tei_rail_base.h"
#include "util/err.h"
#include "util/list.h"

/* An iov entry: a range of local or remote memory. */
struct tei_rail_iov {
	uint64_t addr, len;		/* start and length of the range; the
					 * length is at least 1 byte */
	uint64_t off;			/* offset of the range in the bytes of
					 * the task */
	/* local entries: the registered region that contains the range; set by
	 * the data plane. Remote entries: not used */
	struct tei_rail_mr *mr;
};

/* A task extension: the iov entries of a scatter/gather request, or an atomic
 * operation. The caller creates the extension. After a successful
 * tei_rail_submit the data plane owns it, and frees it after ops->task_done. */
struct tei_rail_task_ext {
	/* set by the caller */
	uint32_t atomic;		/* operation of an atomic, enum
					 * tei_atomic_op; 0 for a scatter/gather
					 * request */
	uint32_t nlocal, nremote;	/* number of local and remote iov
					 * entries; both are 0 for an atomic */
	uint64_t operand, compare;	/* operand, and value to compare with,
					 * of the atomic */

	/* used for atomics only; guarded by dp->sched */
	uint64_t seq;			/* sequence number of the atomic; 0
					 * before the data plane has assigned
					 * one */
	uint64_t old;			/* value of the target memory before the
					 * operation */
	uint32_t round;			/* number of the first message that
					 * carried the atomic */
	bool sent;			/* the atomic was sent, so the target
					 * may have executed it */

	/* the nlocal local entries, followed by the nremote remote entries */
	struct tei_rail_iov piece[];
};

/* Allocates a zeroed extension. Returns NULL if memory is short. The caller
 * frees it with free() if it was not submitted. */
struct tei_rail_task_ext *tei_rail_task_ext_new(uint32_t nlocal,
						uint32_t nremote);
/* Sets the member "off" of n consecutive entries. Returns the total length of
 * the entries. */
uint64_t tei_rail_task_ext_lay(struct tei_rail_iov *piece, uint32_t n);

/*
 * A group: the tasks that move one request, which the caller has divided. If
 * the peer unregisters a region to which tasks of the group have moved bytes,
 * the further tasks of the group fail. Otherwise the request would be COMPLETED
 * although some of its bytes are not in the region that the peer has registered
 * at the same address since.
 */
struct tei_rail_group;

/* Creates a group of tasks for a peer, to which the caller has a reference
 * until tei_rail_group_free. Takes no lock. Returns NULL if memory is short. */
struct tei_rail_group *tei_rail_group_new(struct tei_rail_peer *peer);
/* Frees a group, all tasks of which have ended. NULL is ignored. */
void tei_rail_group_free(struct tei_rail_group *group);

/* One transfer request. The caller embeds it in a struct of its own, zeroes it
 * and fills in the members below "set by the caller". The data plane owns the
 * task from tei_rail_submit to ops->task_done. */
struct tei_rail_task {
	/* set by the caller */
	struct tei_rail_peer *peer;
	uint64_t remote;		/* start of the range in the peer's
					 * memory */
	uint64_t length;		/* length of the range, at least 1
					 * byte */
	char *local;
	/* If whole_length is not 0, this task is a part of a request for the
	 * range [whole, whole + whole_length) at the peer: no byte is moved
	 * before the whole range is known to be accessible. The task then has a
	 * group. */
	uint64_t whole, whole_length;
	/* The group of the task, which has no extension, or NULL. A task with a
	 * group is submitted with tei_rail_submit_group. */
	struct tei_rail_group *group;
	bool read;
	/* the caller has called tei_rail_mr_hold for the memory at "local" and
	 * keeps it held until the task has ended */
	bool held;
	/*
	 * 0, or 1 + the index of the rail that should move the bytes. Other
	 * rails move the bytes if this rail does not reach the peer, if its
	 * provider has no room for a slice (FI_EAGAIN), or if the task has made
	 * no progress for half a second.
	 */
	uint8_t rail;
	/* Set by the data plane to true if MC_SLICE_TIMEOUT has ended the task.
	 * Guarded by dp->sched until "done" is called. */
	bool silent;
	/* Set by the data plane if bytes of the task were cut to a region whose
	 * keys were withdrawn although the region was registered: the lower 32
	 * bits of the region's id, or UINT32_MAX if there are several such
	 * regions; otherwise 0. Guarded by dp->sched. */
	uint32_t forgotten;
	/* If not 0, the time since which the submitter has been waiting.
	 * MC_SLICE_TIMEOUT then counts from this time, or from the last
	 * progress of the peer's tasks if that is later. */
	uint64_t since_ns;
	/*
	 * The task extension, or NULL for a task with one local and one remote
	 * range. In a scatter/gather request, the members "remote" and "local"
	 * are the addresses of the first entries, and "length" is the total
	 * length. In an atomic, "length" is the width of the operand, 4 or 8
	 * bytes; "remote" is a multiple of it; and the old value is written to
	 * "local", which may be NULL.
	 */
	struct tei_rail_task_ext *ext;
	/* function that is called instead of ops->task_done, or NULL */
	void (*done)(struct tei_rail_task *task, enum tei_rail_end end,
		     const struct tei_err *err);

	/* guarded by dp->sched */
	struct tei_list queue_link;	/* entry of peer->tasks.queue or
					 * peer->tasks.small until the task is
					 * completely cut into slices */
	struct tei_list live_link;	/* entry of peer->tasks.live until the
					 * task ends */
	struct tei_rail_task *merge_next; /* next of the tasks that were merged
					   * into one slice, or NULL */
	struct tei_rail_mr *mr;		/* registered region that contains
					 * "local", or NULL */
	uint64_t cut;			/* number of bytes that were cut into
					 * slices */
	uint64_t progress_ns;		/* time of the task's last progress,
					 * ns */
	uint64_t ahead_ns;		/* time of the last progress of an
					 * earlier task of the peer that has
					 * ended; 0 if there is no such task */
	uint32_t slices;		/* number of slices that were cut and
					 * have not ended yet */
	bool keys_checked;		/* true if the keys of the whole target
					 * range are known */
	bool unfenced;			/* a slice of the task was dropped
					 * without a fence, so that its bytes
					 * may still land */
	bool region_gone;		/* bytes of the task were cut to a
					 * region that the peer has
					 * unregistered; a part of the task is
					 * then not posted again, unless that
					 * part is the whole task */
	/* how the task will end when its slices have completed: 1 + enum
	 * tei_rail_end, or 0 if this is not decided yet */
	uint8_t complete_wanted : 4;
	uint8_t complete_stage : 4;	/* if complete_wanted is set: 0: the
					 * slices may still complete; 1: the
					 * lanes that carry them were retired */
	uint64_t complete_ns; /* time at which complete_stage got its value,
			       * ns */
	struct tei_err *err;		/* error with which the task will end;
					 * freed after task_done */

	/* atomic: number of bytes of the task that have completed; written
	 * under dp->sched */
	uint64_t done_bytes;
};

/*
 * Queues n tasks in order, then posts slices until the windows of the rails are
 * full. Returns 0, or one of these errors, in which case no task was queued:
 * TEI_ERR_NOT_REGISTERED if local memory is not registered, TEI_ERR_TOO_MANY if
 * a peer's queue is full, TEI_ERR_NO_DEVICE if no rail is open. Never blocks.
 */
int tei_rail_submit(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		    size_t n);

/* Does the same for tasks of the group, after setting their member "group". The
 * group must not be freed before the function returns. If group is NULL, only
 * calls tei_rail_submit. */
int tei_rail_submit_group(struct tei_rail_dp *dp, struct tei_rail_group *group,
			  struct tei_rail_task **tasks, size_t n);

/* Polls the tx lanes. Costs little if there is nothing to do. Never blocks. */
void tei_rail_progress(struct tei_rail_dp *dp);

/* tei_rail_drive_begin marks the start of a loop in which a caller calls
 * tei_rail_progress, and tei_rail_drive_end marks its end. During the loop the
 * progress thread polls the tx lanes only if another caller sleeps. */
void tei_rail_drive_begin(struct tei_rail_dp *dp);
void tei_rail_drive_end(struct tei_rail_dp *dp);

/*
 * tei_rail_sleep_begin announces that a caller is going to sleep until tasks
 * end. tei_rail_sleep_end announces that the caller is awake again. While a
 * caller sleeps, the progress thread polls the lanes even if other callers do.
 */
void tei_rail_sleep_begin(struct tei_rail_dp *dp);
void tei_rail_sleep_end(struct tei_rail_dp *dp);

/*
 * tei_rail_cancel ends submitted tasks early, as CANCELED. tei_rail_expire ends
 * them as FAILED, because their deadline has passed. If the peer does not
 * answer the fence in time, a task ends as UNFENCED instead. ops->task_done is
 * called for each task, possibly before the function returns. A task that has
 * already ended is not changed, but its memory must still be valid.
 */
void tei_rail_cancel(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		     size_t n);
void tei_rail_expire(struct tei_rail_dp *dp, struct tei_rail_task **tasks,
		     size_t n);

#endif /* TEI_PROV_RAIL_TEI_RAIL_TASK_H */
