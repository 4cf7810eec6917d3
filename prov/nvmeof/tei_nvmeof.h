/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_NVMEOF_H
#define TEI_PROV_NVMEOF_H

/*
 * Files segments: reads and writes of files and block devices that lie end to
 * end. The kernel's io_uring does the work where it can be had, else a pool of
 * threads with preadv2 and pwritev2.
 *
 * Threads: every call may be made from any thread, none from inside a done
 * callback but tei_nvmeof_submit and tei_nvmeof_stats. The lock of the module
 * is in row 6 of docs/LOCKING.md and is not held while a callback runs or a
 * file is accessed. Lengths are bytes, times CLOCK_MONOTONIC
 * nanoseconds. Requests are made by threads of the module alone: io_uring
 * takes back what a thread has asked for when that thread ends.
 *
 * What a write's completion means is said by MOONRAIL_FILE_SYNC:
 *
 *	data	the bytes, and what of the file's metadata is needed to find
 *		them, are on stable storage: an fdatasync after the write.
 *		Writes that end while one is under way share the next, so the
 *		cost is one flush for all that are in flight.
 *	dsync	the same by RWF_DSYNC of each piece: for direct writes of
 *		allocated blocks to a device with FUA that is one write that
 *		waits, without a flush; elsewhere a flush for each piece.
 *	none	the kernel has the bytes: any reader on this host sees them,
 *		but a crash of the host may lose them, and an error of the
 *		storage that comes later is not told.
 *
 * An fdatasync that fails fails every write to that file which had not ended
 * by then, also those not part of it: the kernel tells such an error once.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"
#include "util/list.h"

struct tei_nvmeof;		/* one per engine */
struct tei_nvmeof_seg;		/* the files of one segment, counted */
struct tei_settings;

/* Largest piece read or written at a time. */
#define TEI_NVMEOF_PIECE	(1u << 20)

/* --- context ------------------------------------------------------------- */

/*
 * Reads file_io, file_sync, file_direct, file_depth and file_threads; keeps no
 * pointer to settings. Threads are started here. TEI_ERR_INVALID for settings
 * that make no sense, TEI_ERR_UNSUPPORTED where file_io is "uring" and the
 * kernel or the build has none, TEI_ERR_MEMORY.
 */
int tei_nvmeof_init(const struct tei_settings *settings, struct tei_err *err,
		    struct tei_nvmeof **out);

/*
 * Cancels what is queued, waits for what the kernel has, joins the threads,
 * frees. All segments must have been put. NULL is fine.
 */
void tei_nvmeof_fini(struct tei_nvmeof *ctx);

/* "io_uring" or "threads": static. */
const char *tei_nvmeof_kind(const struct tei_nvmeof *ctx);

/* True once no operation is under way; false at the deadline. */
bool tei_nvmeof_drain(struct tei_nvmeof *ctx, uint64_t deadline_ns);

/* --- memory -------------------------------------------------------------- */

/*
 * Lets [addr, addr+len) be the local side of operations. Where the kernel
 * takes it, it is registered with io_uring, which saves looking up its pages;
 * where not, it works all the same. location: as topology tells it, NULL: not
 * known; what is copied on its way to or from files of an unknown node is on
 * that of its bytes. TEI_ERR_INVALID, TEI_ERR_OVERLAP, TEI_ERR_MEMORY.
 */
int tei_nvmeof_mem_add(struct tei_nvmeof *ctx, void *addr, uint64_t len,
		       const char *location);

/*
 * Withdraws the range that starts at addr. 0: no operation touches it any
 * more, nor ever will, and the done of those that did has returned.
 * TEI_ERR_BUSY at the deadline, and it is there as before;
 * TEI_ERR_NOT_REGISTERED.
 */
int tei_nvmeof_mem_remove(struct tei_nvmeof *ctx, void *addr,
			  uint64_t deadline_ns);

/*
 * The same for memory of a GPU, by cuFile: _on finds and opens that, once
 * (*fresh: just now), and segments opened from then on may take such memory; _add adds a range that
 * _mem_remove withdraws. Errors are filled in and not logged. Nobody else may
 * be in a call of these two, or open segments, meanwhile.
 */
int tei_nvmeof_gpu_on(struct tei_nvmeof *ctx, bool *fresh,
		      struct tei_err *err);
int tei_nvmeof_gpu_add(struct tei_nvmeof *ctx, void *addr, uint64_t len,
		       struct tei_err *err);
/* Whether an operation between those may be submitted: all of its files and its
 * memory are cuFile's. */
bool tei_nvmeof_gpu_takes(struct tei_nvmeof *ctx,
			  const struct tei_nvmeof_seg *seg, const void *addr,
			  uint64_t offset, uint64_t length);

/* --- segments ------------------------------------------------------------ */

struct tei_nvmeof_file {
	const char *path;		/* here; NULL: not mounted here */
	const char *name;		/* in the descriptor, for messages */
	uint64_t length;		/* not 0 */
};

/*
 * Opens the files; blocks. One that can't be opened fails the operations that
 * touch it, with the reason; the others work. One reference for the caller.
 * TEI_ERR_MEMORY. Strings are copied.
 */
int tei_nvmeof_seg_open(struct tei_nvmeof *ctx, const char *name,
			const struct tei_nvmeof_file *files, uint32_t count,
			struct tei_err *err, struct tei_nvmeof_seg **out);
struct tei_nvmeof_seg *tei_nvmeof_seg_hold(struct tei_nvmeof_seg *seg);
/* With the last reference the files are closed. NULL is fine. */
void tei_nvmeof_seg_put(struct tei_nvmeof_seg *seg);

/* Whether [offset, offset+length) lies inside. */
bool tei_nvmeof_seg_covers(const struct tei_nvmeof_seg *seg, uint64_t offset,
			   uint64_t length);
/* One of its files can't be used: opening it anew may help. */
bool tei_nvmeof_seg_broken(const struct tei_nvmeof_seg *seg);

/* --- operations ---------------------------------------------------------- */

/* done's code where the operation was cancelled; else 0 or a tei_code. */
#define TEI_NVMEOF_CANCELLED	1

struct tei_nvmeof_op;

/*
 * Called exactly once per successful submit, by a thread of the module, no
 * lock held, nothing of the operation under way or ever to be. op is the
 * callee's from here on. err: what went wrong, valid during the call; NULL
 * where code is 0. With 0 the bytes are there, and a write is as durable as
 * file_sync says; each file touched was at its path with its length at some
 * time after that, or for a read after it was submitted.
 */
typedef void (*tei_nvmeof_done_fn)(struct tei_nvmeof_op *op, int code,
				   const struct tei_err *err);

/*
 * Made by the caller, who keeps it and the local memory until done is called.
 * Zero-initialise; fill the first group.
 */
struct tei_nvmeof_op {
	/* caller's, constant while submitted */
	struct tei_nvmeof_seg *seg;	/* a reference is taken while live */
	bool read;			/* file to memory */
	void *local;
	uint64_t offset;		/* in the segment */
	uint64_t length;		/* not 0 */
	tei_nvmeof_done_fn done;

	/* the module's, under its lock */
	struct tei_list live_node;	/* all that were submitted */
	struct tei_list node;		/* one of a file's lists, or over */
	struct tei_err *err;		/* of the first failure, owned */
	uint64_t next;			/* offset of the next piece, from 0 */
	uint64_t moved;			/* bytes done; atomic for readers */
	uint64_t born;			/* ctx->clock at submit */
	uint32_t running;		/* pieces the kernel has */
	uint32_t stage;			/* file to be settled next */
	int code;			/* first failure */
	bool live, queued;
	uint64_t gpu_base;		/* of the range local is in */
	void *gpu_context;		/* NULL: memory of the host */
};

/*
 * 0: done will be called, perhaps before this returns. Else it is not:
 * TEI_ERR_INVALID (range outside of the segment), TEI_ERR_NOT_REGISTERED
 * (local memory), TEI_ERR_CONTEXT (closing). Never waits for a file. Failures
 * by done: TEI_ERR_NO_DEVICE (not mounted here, vanished, replaced, shorter
 * than it should be, or it could not be opened), TEI_ERR_CONTEXT (an error of
 * the kernel's, its errno in prov_errno), TEI_ERR_MEMORY.
 */
int tei_nvmeof_submit(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op);

/*
 * Drops the pieces that have not started and returns. Those that the kernel has
 * it does not give back: done follows when they have ended, at once if there
 * are none, with TEI_NVMEOF_CANCELLED unless the operation ended first; of a
 * write any part may be in the files. op must be valid during the call; one
 * that is not submitted, or has ended, is left alone.
 */
void tei_nvmeof_cancel(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op);

/* --- numbers ------------------------------------------------------------- */

/* Since init; a snapshot. */
struct tei_nvmeof_counters {
	uint64_t tx_bytes, rx_bytes;	/* of pieces that went well */
	uint64_t direct, cached;	/* pieces past, through the page cache */
	uint64_t bounced, fixed;	/* by a copy; from registered buffers */
	uint64_t gpu;			/* by cuFile */
	uint64_t syncs;			/* fdatasync calls */
	uint64_t completed, failed, canceled; /* operations */
};

void tei_nvmeof_stats(struct tei_nvmeof *ctx, struct tei_nvmeof_counters *out);

#endif /* TEI_PROV_NVMEOF_H */
