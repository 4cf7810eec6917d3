/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_GPU_TEI_GPU_H
#define TEI_PROV_GPU_TEI_GPU_H

/*
 * Copies to, from and between memory of GPUs, inside this process, by the
 * driver's copy engines.
 *
 * There is a context only where a program has GPU memory: it needs the driver
 * that this program has loaded. One thread, started with the first operation,
 * queues copies in the context of the memory that they touch, in streams of
 * its own, and asks for their events; it is the only one that does. The CPU
 * touches no byte of GPU memory.
 *
 * Threads: every call may be made from any thread, none from inside a done
 * callback but tei_gpu_submit and tei_gpu_kind. The module's lock is in
 * row 6 of docs/LOCKING.md; it is not held while the driver is called or a
 * callback runs.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"
#include "util/list.h"

struct tei_gpu;				/* opaque; one per engine */
struct tei_settings;

#define TEI_GPU_CONTEXTS	64	/* of the driver, at a time */

/* True where this process has the driver loaded: without it no memory of it is
 * a GPU's. */
bool tei_gpu_present(void);

/*
 * Reads slice_timeout_s. TEI_ERR_NO_DEVICE where this process has no driver
 * loaded, TEI_ERR_UNSUPPORTED where it is too old, TEI_ERR_MEMORY; *err tells
 * and nothing is logged.
 */
int tei_gpu_init(const struct tei_settings *settings, struct tei_err *err,
		 struct tei_gpu **out);

/*
 * Cancels what is queued, waits for the copies that were begun (those that the
 * GPU does not end are left to it), joins the thread and frees the context.
 * NULL is fine.
 */
void tei_gpu_fini(struct tei_gpu *ctx);

/* ---- memory ----------------------------------------------------------- */

/*
 * *device: whose memory [addr, addr + len) is, or -1 for host memory, managed
 * memory too. TEI_ERR_INVALID: of both. Other errors are the driver's.
 */
int tei_gpu_where(struct tei_gpu *ctx, const void *addr, uint64_t len,
		  int *device, struct tei_err *err);

/*
 * Lets the range be an end of copies; GPU memory makes a stream in its context.
 * 0, TEI_ERR_OVERLAP, TEI_ERR_TOO_MANY (contexts), TEI_ERR_MEMORY, or what
 * tei_gpu_where answers. *err is filled, nothing is logged.
 */
int tei_gpu_mem_add(struct tei_gpu *ctx, void *addr, uint64_t len,
		    struct tei_err *err);

/*
 * The same for host memory between GPU memory and something else: pinned in
 * the context of the registered GPU memory at gpu, so that a copy to or from
 * it keeps no thread, whatever the GPU does. That context is in use here until
 * the range is removed.
 */
int tei_gpu_mem_pin(struct tei_gpu *ctx, const void *gpu, void *addr,
		    uint64_t len, struct tei_err *err);

/*
 * Makes registered GPU memory ready for NICs that reach it beside the driver:
 * *fd is a dma-buf of it, the caller's, with the range from *offset on, or -1
 * where the driver gives none. An error: NICs must leave it alone.
 */
int tei_gpu_mem_share(struct tei_gpu *ctx, const void *addr, uint64_t len,
		      int *fd, uint64_t *offset, struct tei_err *err);

/*
 * Holds the registered GPU memory that [addr, addr + len) lies in, for work of
 * several copies: until let go it is not removed, and operations marked "held"
 * are taken, also when somebody waits to remove it. *place: the number of its
 * context, below TEI_GPU_CONTEXTS, which is that of no other meanwhile.
 * TEI_ERR_NOT_REGISTERED, also for host memory.
 */
int tei_gpu_mem_hold(struct tei_gpu *ctx, uint64_t addr, uint64_t len,
		     uint32_t *place);
void tei_gpu_mem_let_go(struct tei_gpu *ctx, uint64_t addr);

/* Whether no copy touches [addr, addr + len): those given up count, too. */
bool tei_gpu_mem_quiet(struct tei_gpu *ctx, uint64_t addr, uint64_t len);

/*
 * 0 when no copy touches the range that starts at addr any more, nor will, the
 * done of those that did has returned, and nobody holds it. TEI_ERR_BUSY at the
 * deadline, and it stays. TEI_ERR_NOT_REGISTERED.
 */
int tei_gpu_mem_remove(struct tei_gpu *ctx, const void *addr,
		       uint64_t deadline_ns);

enum tei_gpu_kind {
	TEI_GPU_NOT_REGISTERED,		/* not inside one range */
	TEI_GPU_HOST,
	TEI_GPU_DEVICE,
};

/* Whether any GPU memory is registered; costs next to nothing. */
bool tei_gpu_any(struct tei_gpu *ctx);

enum tei_gpu_kind tei_gpu_kind(struct tei_gpu *ctx, uint64_t addr,
			       uint64_t len);

/*
 * Memory of a GPU, zeroed, not registered; given back by _free, or with the
 * context. As tei_cuda_alloc. Any thread; it takes as long as the driver.
 */
int tei_gpu_alloc(struct tei_gpu *ctx, int device, uint64_t len, uint64_t *addr,
		  struct tei_err *err);
void tei_gpu_free(struct tei_gpu *ctx, uint64_t addr);

/* ---- operations ------------------------------------------------------- */

/* done's code where the operation was cancelled; else 0 or a tei_code. */
#define TEI_GPU_CANCELLED	1

struct tei_gpu_op;

/*
 * Called once per successful submit, by the module's thread, no lock held. err
 * is NULL where code is 0. code TEI_ERR_TIMED_OUT: the GPU has not ended what
 * was begun, which may still touch the memory; after every other one nothing
 * of the operation will. op is the callee's from here on.
 */
typedef void (*tei_gpu_done_fn)(struct tei_gpu_op *op, int code,
				const struct tei_err *err);

/*
 * Made by the caller, who keeps it until done is called. Zero-initialise; fill
 * the first group. The ends do not overlap.
 */
struct tei_gpu_op {
	/* caller's, constant while submitted */
	uint64_t dst, src;		/* addresses; one at least is a GPU's */
	uint64_t length;		/* 1 and up */
	bool held;			/* its GPU memory, by the caller */
	tei_gpu_done_fn done;

	/* the module's, under its lock */
	struct tei_list live_node;
	struct tei_list node;		/* its context's queue, or alone */
	struct gpu_context *context;
	struct tei_err *err;		/* owned */
	uint64_t queued_ns;
	uint64_t next;			/* bytes whose copies were begun */
	uint32_t running;		/* copies that have not ended */
	int code;			/* first failure */
	bool live, queued;

	uint64_t moved;			/* atomic: bytes of copies that ended */
};

/*
 * Queues op. 0: done will be called, perhaps before this returns. Else it will
 * not: TEI_ERR_NOT_REGISTERED, TEI_ERR_INVALID (no GPU's memory at all),
 * TEI_ERR_MEMORY (no thread), TEI_ERR_CONTEXT (closing).
 */
int tei_gpu_submit(struct tei_gpu *ctx, struct tei_gpu_op *op);

/*
 * Begins no more copies of op; done follows once those that were begun are
 * over. Waits for nothing. op is one whose done has not ended yet, or that was
 * never submitted, which is left alone.
 */
void tei_gpu_cancel(struct tei_gpu *ctx, struct tei_gpu_op *op);

/* Waits until every operation has ended, and its done has returned: true, or
 * until then. New ones count: the caller sees to it that none come. */
bool tei_gpu_drain(struct tei_gpu *ctx, uint64_t deadline_ns);

#endif /* TEI_PROV_GPU_TEI_GPU_H */
