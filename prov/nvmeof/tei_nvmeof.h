/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_NVMEOF_H
#define TEI_PROV_NVMEOF_H

/*
 * File segments: reads and writes of files and block devices, which together
 * form one segment: the bytes of all files, one file after the other. The back
 * end is io_uring if it is available, otherwise a pool of threads with preadv2
 * and pwritev2.
 *
 * Threads: every call may be made from any thread. A done callback may call
 * only tei_nvmeof_submit and tei_nvmeof_stats. The lock of the module is in row
 * 6 of docs/LOCKING.md. It is not held during a callback or a system call on a
 * file. Lengths are bytes, times are CLOCK_MONOTONIC nanoseconds. Only threads
 * of the module make requests to the kernel, because io_uring cancels the
 * requests of a thread when that thread ends.
 *
 * MOONRAIL_FILE_SYNC determines what the completion of a write guarantees:
 *
 *	data	The bytes, and the metadata needed to find them, are on stable
 *		storage: an fdatasync follows the write. Writes that end while
 *		an fdatasync runs share the next one, so the cost is one flush
 *		for all writes in flight.
 *	dsync	The guarantee of "data", by RWF_DSYNC on each request. A direct
 *		write of allocated blocks to a device with FUA then needs no
 *		flush: the write itself waits for stable storage. Any other
 *		write costs one flush per request.
 *	none	The kernel has the bytes: every reader on this host sees them.
 *		A crash of the host may lose them, and a later error of the
 *		storage is not reported.
 *
 * If an fdatasync fails, every write to that file that has not ended fails too,
 * even if its bytes were not part of that fdatasync, because the kernel reports
 * such an error only once.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"
#include "util/list.h"

struct tei_nvmeof;		/* The context of the module; each engine has
				 * one. */
struct tei_nvmeof_seg;		/* the files of one segment,
				 * reference-counted */
struct tei_settings;

/* Largest length of one request to the kernel, bytes. */
#define TEI_NVMEOF_PIECE	(1u << 20)

/* --- context ------------------------------------------------------------- */

/*
 * Creates a context. Reads file_io, file_sync, file_direct, file_depth and
 * file_threads; keeps no pointer to settings. Starts threads. Returns 0,
 * TEI_ERR_INVALID for invalid settings, TEI_ERR_UNSUPPORTED if file_io is
 * "uring" and the kernel or the build has no io_uring, or TEI_ERR_MEMORY.
 */
int tei_nvmeof_init(const struct tei_settings *settings, struct tei_err *err,
		    struct tei_nvmeof **out);

/*
 * Cancels queued operations, waits for the requests that the kernel has, joins
 * the threads and frees the context. The caller must have dropped all
 * references to segments. NULL is ignored.
 */
void tei_nvmeof_fini(struct tei_nvmeof *ctx);

/* Returns the name of the back end, "io_uring" or "threads", as a static
 * string. */
const char *tei_nvmeof_kind(const struct tei_nvmeof *ctx);

/*
 * Waits until no operation is in flight. Returns true, or false if the deadline
 * passes first.
 */
bool tei_nvmeof_drain(struct tei_nvmeof *ctx, uint64_t deadline_ns);

/* --- memory -------------------------------------------------------------- */

/*
 * Registers [addr, addr+len) as a possible local side of operations. Also
 * registers it with io_uring if the kernel accepts that, so that the kernel
 * need not look up the pages of the memory for each request. If the kernel does
 * not accept it, operations work, too. location: a topology location, or NULL
 * if it is unknown. It selects the NUMA node of bounce buffers if the node of
 * the file is unknown. Returns 0, TEI_ERR_INVALID, TEI_ERR_OVERLAP or
 * TEI_ERR_MEMORY.
 */
int tei_nvmeof_mem_add(struct tei_nvmeof *ctx, void *addr, uint64_t len,
		       const char *location);

/*
 * Removes the range that starts at addr. When it returns 0, no operation
 * accesses the range, now or later, and the done callbacks of earlier
 * operations have returned. Returns TEI_ERR_BUSY at the deadline, and the range
 * stays registered. Returns TEI_ERR_NOT_REGISTERED if there is no such range.
 */
int tei_nvmeof_mem_remove(struct tei_nvmeof *ctx, void *addr,
			  uint64_t deadline_ns);

/*
 * GPU memory, by means of cuFile. tei_nvmeof_gpu_on loads and opens cuFile,
 * unless an earlier call has done so, and sets *fresh to true if it has just
 * opened cuFile. Only segments that are opened afterwards accept GPU memory.
 * tei_nvmeof_gpu_add adds a range, which tei_nvmeof_mem_remove removes. Both
 * fill *err on failure and log nothing. The caller must prevent concurrent
 * calls of these two functions and of tei_nvmeof_seg_open.
 */
int tei_nvmeof_gpu_on(struct tei_nvmeof *ctx, bool *fresh,
		      struct tei_err *err);
int tei_nvmeof_gpu_add(struct tei_nvmeof *ctx, void *addr, uint64_t len,
		       struct tei_err *err);
/* Returns true if an operation between that memory and that range of the
 * segment may be submitted: cuFile supports the memory and all files in the
 * range. */
bool tei_nvmeof_gpu_takes(struct tei_nvmeof *ctx,
			  const struct tei_nvmeof_seg *seg, const void *addr,
			  uint64_t offset, uint64_t length);

/* --- segments ------------------------------------------------------------ */

struct tei_nvmeof_file {
	const char *path;		/* path on this host; NULL if the file
					 * is not mounted */
	const char *name;		/* name in the segment's descriptor, for
					 * error messages */
	uint64_t length;		/* length of the file, bytes, at least
					 * 1 */
};

/*
 * Opens the files; may block. If a file cannot be opened, operations that
 * access this file fail with the reason, and operations on the other files
 * work. Copies the strings. Stores the segment in *out, with a reference that
 * belongs to the caller. Returns 0 or TEI_ERR_MEMORY.
 */
int tei_nvmeof_seg_open(struct tei_nvmeof *ctx, const char *name,
			const struct tei_nvmeof_file *files, uint32_t count,
			struct tei_err *err, struct tei_nvmeof_seg **out);
struct tei_nvmeof_seg *tei_nvmeof_seg_hold(struct tei_nvmeof_seg *seg);
/* Drops a reference. When the last one is dropped, the files are closed. NULL
 * is ignored. */
void tei_nvmeof_seg_put(struct tei_nvmeof_seg *seg);

/* Returns true if [offset, offset+length) lies within the segment. */
bool tei_nvmeof_seg_covers(const struct tei_nvmeof_seg *seg, uint64_t offset,
			   uint64_t length);
/*
 * Returns true if at least one of the files cannot be used. The caller may open
 * the segment again, which may succeed.
 */
bool tei_nvmeof_seg_failed(const struct tei_nvmeof_seg *seg);

/* --- operations ---------------------------------------------------------- */

/* Code with which done is called if the operation was cancelled; in other cases
 * the code is 0 or a tei_code. */
#define TEI_NVMEOF_CANCELLED	1

struct tei_nvmeof_op;

/*
 * Called exactly once per successful submit, by a thread of the module, with no
 * lock held, when no request of the operation is in flight or will be made. The
 * callback owns op. err: the error record, valid during the call; NULL if code
 * is 0. Code 0 means that all bytes were moved, that a write is as durable as
 * file_sync states, and that each file was found at its path with its full
 * length: for a write after the bytes had moved, for a read after the submit.
 */
typedef void (*tei_nvmeof_done_fn)(struct tei_nvmeof_op *op, int code,
				   const struct tei_err *err);

/*
 * Created by the caller, which keeps it and the local memory valid until done
 * is called. Initialise it to zero, then set the first group of members.
 */
struct tei_nvmeof_op {
	/* set by the caller, constant while submitted */
	struct tei_nvmeof_seg *seg;	/* segment; the operation holds a
					 * reference to it */
	bool read;			/* true: from the segment to memory;
					 * false: from memory to the segment */
	void *local;
	uint64_t offset;		/* start of the range in the segment,
					 * bytes */
	uint64_t length;		/* length of the range, bytes, at least
					 * 1 */
	tei_nvmeof_done_fn done;

	/* private to the module, guarded by its lock */
	struct tei_list live_node;	/* in the list of submitted
					 * operations */
	struct tei_list node;		/* in the list queue, unsynced, syncing
					 * or ended of a file, in ctx->over, or
					 * in no list */
	struct tei_err *err;		/* error record of the first failure,
					 * owned by the operation */
	uint64_t next;			/* offset of the next piece in the
					 * operation */
	uint64_t moved;			/* bytes moved; other threads read it
					 * atomically */
	uint64_t born;			/* value of ctx->clock at submit */
	uint32_t running;		/* number of pieces that the kernel
					 * has */
	uint32_t stage;			/* index of the next file that must be
					 * checked, or synced after a write,
					 * before the operation ends */
	int code;			/* code of the first failure, or 0 */
	bool live, queued;
	uint64_t gpu_base;		/* start of the GPU range that holds
					 * local */
	void *gpu_context;		/* CUDA context; NULL if the memory is
					 * host memory */
};

/*
 * Submits an operation. Never blocks on a file. Returns 0 if done will be
 * called, possibly before the call returns. Otherwise done is not called, and
 * the result is TEI_ERR_INVALID (the range is outside the segment),
 * TEI_ERR_NOT_REGISTERED (the local memory is not registered) or
 * TEI_ERR_CONTEXT (the context is closing).
 *
 * Codes of done: TEI_ERR_NO_DEVICE (file not mounted here, removed, replaced,
 * too short, or it could not be opened), TEI_ERR_CONTEXT (error of the kernel,
 * with its errno in prov_errno), TEI_ERR_MEMORY.
 */
int tei_nvmeof_submit(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op);

/*
 * Drops the pieces that have not started, and returns. Requests that the kernel
 * has are not cancelled: done is called when they have ended, at once if there
 * are none, with TEI_NVMEOF_CANCELLED unless the operation had ended before.
 * Any part of a cancelled write may be in the files. op must be valid during
 * the call. An operation that is not submitted or has ended is ignored.
 */
void tei_nvmeof_cancel(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op);

/* --- numbers ------------------------------------------------------------- */

/* Counters since tei_nvmeof_init. */
struct tei_nvmeof_counters {
	uint64_t tx_bytes, rx_bytes;	/* bytes of successful pieces of writes
					 * (tx) and of reads (rx) */
	uint64_t direct, cached;	/* direct: pieces that bypassed the page
					 * cache; cached: pieces that used it */
	uint64_t bounced, fixed;	/* bounced: pieces that passed through a
					 * bounce buffer; fixed: pieces in
					 * memory registered with io_uring */
	uint64_t gpu;			/* number of pieces that cuFile has
					 * moved */
	uint64_t syncs;			/* number of fdatasync calls */
	uint64_t completed, failed, canceled; /* numbers of operations, by
					       * result */
};

void tei_nvmeof_stats(struct tei_nvmeof *ctx, struct tei_nvmeof_counters *out);

#endif /* TEI_PROV_NVMEOF_H */
