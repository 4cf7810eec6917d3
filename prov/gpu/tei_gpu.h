/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_GPU_TEI_GPU_H
#define TEI_PROV_GPU_TEI_GPU_H

/*
 * Copies to, from and between GPU memory within this process, by the copy
 * engines of the GPUs.
 *
 * The engine creates this module's context (struct tei_gpu) only if the program
 * has GPU memory, because the module uses the CUDA driver that the program has
 * loaded. One thread, started with the first operation or the first mapping of
 * memory of another process, queues all copies in
 * the CUDA context of the memory concerned, in streams of its own, and polls
 * their events. The CPU accesses no byte of GPU memory.
 *
 * GPU memory of another process of this host becomes a source or destination of
 * copies if it is opened with the handle that its owner has exported.
 *
 * Threads: every call may be made from any thread. A done callback may call
 * only tei_gpu_submit and tei_gpu_kind. The module's lock is in row 6 of
 * docs/LOCKING.md; it is not held during a call of the driver or a callback.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"
#include "util/list.h"

struct tei_cuda_chunks;
struct tei_cuda_ipc;
struct tei_gpu;				/* the context of this module; each
					 * engine has one */
struct tei_settings;

#define TEI_GPU_CONTEXTS	64	/* largest number of CUDA contexts in
					 * use at a time */

/* Returns true if this process has loaded the CUDA driver. A process without
 * the driver has no GPU memory. */
bool tei_gpu_present(void);

/*
 * Creates the context of this module. Reads slice_timeout_s. Returns 0,
 * TEI_ERR_NO_DEVICE if this process has not loaded the driver,
 * TEI_ERR_UNSUPPORTED if the driver is too old, or TEI_ERR_MEMORY. Fills *err
 * on failure and logs nothing.
 */
int tei_gpu_init(const struct tei_settings *settings, struct tei_err *err,
		 struct tei_gpu **out);

/*
 * Cancels the queued operations, waits for the copies that were started, joins
 * the thread and frees the context. Copies that the GPU does not complete in
 * slice_timeout_s are abandoned. NULL is ignored.
 */
void tei_gpu_fini(struct tei_gpu *ctx);

/* ---- memory ----------------------------------------------------------- */

/*
 * Stores in *device the GPU that holds [addr, addr + len), or -1 for host or
 * managed memory. Returns 0, TEI_ERR_INVALID if the range contains GPU memory
 * and other memory, or an error of the driver.
 */
int tei_gpu_where(struct tei_gpu *ctx, const void *addr, uint64_t len,
		  int *device, struct tei_err *err);

/*
 * Registers the range, so that copies may use it as source or destination. For
 * GPU memory, creates a stream in its CUDA context. Returns 0, TEI_ERR_INVALID,
 * TEI_ERR_OVERLAP, TEI_ERR_TOO_MANY (the memory of TEI_GPU_CONTEXTS CUDA
 * contexts is registered already), TEI_ERR_MEMORY, or a code of tei_gpu_where.
 * Fills *err on failure and logs nothing.
 */
int tei_gpu_mem_add(struct tei_gpu *ctx, void *addr, uint64_t len,
		    struct tei_err *err);

/*
 * Does what tei_gpu_mem_add does, for host memory that serves as a bounce
 * buffer of GPU memory. Pins it in the CUDA context of the registered GPU
 * memory at gpu, so that queueing a copy to or from it never blocks the thread.
 * That context stays in use until the range is removed.
 */
int tei_gpu_mem_pin(struct tei_gpu *ctx, const void *gpu, void *addr,
		    uint64_t len, struct tei_err *err);

/*
 * Prepares registered GPU memory for NICs that access it without the driver.
 * Sets *fd to a dma-buf that the caller owns, and in which the range begins at
 * *offset, or to -1 if the driver provides none. Returns 0, or a code with *err
 * filled; NICs must then not access the memory.
 */
int tei_gpu_mem_share(struct tei_gpu *ctx, const void *addr, uint64_t len,
		      int *fd, uint64_t *offset, struct tei_err *err);

/*
 * Prevents the removal of the registered GPU memory that contains [addr, addr +
 * len), for work that consists of several copies, until tei_gpu_mem_let_go is
 * called. Until then, operations whose member "held" is set are accepted even
 * if a thread waits to remove the memory. *place is the index of the memory's
 * CUDA context, below TEI_GPU_CONTEXTS; no other context has that index until
 * then. Returns 0 or TEI_ERR_NOT_REGISTERED, the latter also for host memory.
 */
int tei_gpu_mem_hold(struct tei_gpu *ctx, uint64_t addr, uint64_t len,
		     uint32_t *place);
void tei_gpu_mem_let_go(struct tei_gpu *ctx, uint64_t addr);

/*
 * Returns true if no copy, not even an abandoned one, accesses [addr, addr +
 * len).
 */
bool tei_gpu_mem_idle(struct tei_gpu *ctx, uint64_t addr, uint64_t len);

/*
 * Removes the range that starts at addr. When it returns 0, no copy accesses
 * the range, now or later, the done callbacks of earlier copies have returned,
 * and the range is not held. Returns TEI_ERR_BUSY at the deadline, and the
 * range stays registered. Returns TEI_ERR_NOT_REGISTERED if there is no such
 * range.
 */
int tei_gpu_mem_remove(struct tei_gpu *ctx, const void *addr,
		       uint64_t deadline_ns);

/*
 * Gets a handle, and file descriptors that the caller closes, with which other
 * processes of this host open the registered GPU memory. Then makes the driver's
 * synchronous calls on the memory, such as cuMemcpyDtoD, complete before they
 * return: a process that is notified after such a call may read the memory at
 * once. This sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of the memory or, if the
 * driver refuses that, CU_CTX_SYNC_MEMOPS of its context, and is not undone.
 * Returns 0, or an error of tei_cuda_ipc_export, without setting the attribute,
 * or of tei_cuda_sync_calls. If it fails, no file descriptor is left open.
 */
int tei_gpu_mem_export(struct tei_gpu *ctx, const void *addr, uint64_t len,
		       struct tei_cuda_ipc *out,
		       struct tei_cuda_chunks *chunks, struct tei_err *err);

/*
 * Maps len bytes of GPU memory that another process has exported. The caller
 * may close the file descriptors of the chunks afterwards. *addr gets the address
 * of the memory in this process, which operations may use as source or
 * destination. tei_gpu_mem_remove or tei_gpu_fini unmaps the memory.
 *
 * The memory is mapped in the primary context of the GPU that has the registered
 * memory at "near". If "near" is not in registered GPU memory, or if that GPU
 * cannot map the memory, it is mapped in the primary context of the GPU that
 * holds it. The context is retained until the memory is unmapped.
 *
 * If the same range of an allocation from cuMemAlloc is mapped already, *addr is
 * the same address again, and each call needs a tei_gpu_mem_remove, of which only
 * the last one waits for copies. Chunks get a new address with each call.
 * Returns 0, TEI_ERR_MEMORY, TEI_ERR_OVERLAP if only a part of the range is mapped
 * already, or an error of tei_cuda_ipc_open, tei_cuda_retain or tei_cuda_retain_at.
 * May block in the driver.
 */
int tei_gpu_peer_open(struct tei_gpu *ctx, const struct tei_cuda_ipc *from,
		      const struct tei_cuda_chunks *chunks, uint64_t len,
		      uint64_t near, uint64_t *addr, struct tei_err *err);

enum tei_gpu_kind {
	TEI_GPU_NOT_REGISTERED, /* the bytes are not within one
				 * registered range */
	TEI_GPU_HOST,
	TEI_GPU_DEVICE,
};

/* Returns true if any GPU memory is registered. Takes no lock. */
bool tei_gpu_any(struct tei_gpu *ctx);

/* Returns the kind of the memory [addr, addr + len). Memory of another process
 * counts as not registered. */
enum tei_gpu_kind tei_gpu_kind(struct tei_gpu *ctx, uint64_t addr,
			       uint64_t len);

/*
 * Allocates zeroed GPU memory, which is not registered. tei_gpu_free or
 * tei_gpu_fini frees it. Returns 0 or an error of tei_cuda_alloc. May block in
 * the driver.
 */
int tei_gpu_alloc(struct tei_gpu *ctx, int device, uint64_t len, uint64_t *addr,
		  struct tei_err *err);
void tei_gpu_free(struct tei_gpu *ctx, uint64_t addr);

/*
 * Sets a function that the module's thread calls about once per second, without
 * a lock. The calls begin when the thread is started. Must be called before the
 * first operation, and before tei_gpu_peer_open.
 */
void tei_gpu_set_sweep(struct tei_gpu *ctx, void (*sweep)(void *arg),
		       void *arg);

/* ---- operations ------------------------------------------------------- */

/* Code with which done is called if the operation was cancelled; in other cases
 * the code is 0 or a tei_code. */
#define TEI_GPU_CANCELLED	1

struct tei_gpu_op;

/*
 * Called exactly once per successful submit, by the module's thread, with no
 * lock held. The callback owns op. err is NULL if code is 0. With code
 * TEI_ERR_TIMED_OUT, the GPU has not completed copies that were started, and
 * they may still access the memory. With any other code, no copy of the
 * operation accesses it any longer.
 */
typedef void (*tei_gpu_done_fn)(struct tei_gpu_op *op, int code,
				const struct tei_err *err);

/*
 * Takes and releases claims. Each copy of an operation with a guard needs a claim,
 * which permits it to access memory of another process. Created by the caller,
 * which frees the guard after the operations have ended and leave was called for
 * each claim, or after tei_gpu_fini. The module's thread calls both functions.
 */
struct tei_gpu_guard {
	/*
	 * Called before a copy of the bytes [at, at + len) of the operation
	 * starts, without a lock. Returns 0 with *claim set, or a code with
	 * *err filled. With TEI_ERR_TOO_MANY the copy is tried again for
	 * slice_timeout_s; with any other code the operation fails.
	 */
	int (*enter)(struct tei_gpu_guard *g, struct tei_gpu_op *op,
		     uint64_t at, uint64_t len, void **claim,
		     struct tei_err *err);
	/* Called with the claim of a copy when the GPU has completed the copy,
	 * even if the operation was abandoned before, or when the CUDA context
	 * of the copy no longer exists. The module's lock is held. */
	void (*leave)(struct tei_gpu_guard *g, void *claim);
};

/*
 * Created by the caller, which keeps it until done is called. Initialise it to
 * zero, then set the first group of members. Source and destination must not
 * overlap.
 */
struct tei_gpu_op {
	/* set by the caller, constant while submitted */
	uint64_t dst, src;		/* addresses; at least one is GPU
					 * memory */
	uint64_t length;		/* length of the copy, bytes, at least
					 * 1 */
	bool held;			/* the caller holds the GPU memory of
					 * the operation (tei_gpu_mem_hold) */
	struct tei_gpu_guard *guard;	/* NULL if all memory belongs to this
					 * process */
	tei_gpu_done_fn done;

	/* private to the module, guarded by its lock */
	struct tei_list live_node;
	struct tei_list node;		/* in the queue of a CUDA context, in
					 * ctx->over, or in no list */
	struct gpu_context *context;
	struct tei_err *err;		/* error record of the first failure,
					 * owned by the operation */
	uint64_t queued_ns;
	uint64_t refused_ns;		/* time since which the guard has
					 * returned TEI_ERR_TOO_MANY, or 0 */
	uint64_t next;			/* offset of the first byte whose copy
					 * was not started yet, bytes */
	uint32_t running;		/* number of copies in flight */
	int code;			/* code of the first failure, or 0 */
	bool live, queued;

	uint64_t moved;			/* bytes copied so far; atomic */
};

/*
 * Queues op. Returns 0 if done will be called, possibly before the call
 * returns. Otherwise done is not called, and the result is
 * TEI_ERR_NOT_REGISTERED, TEI_ERR_INVALID (length 0, or no GPU memory),
 * TEI_ERR_MEMORY (the thread cannot be started) or TEI_ERR_CONTEXT (the context
 * is closing).
 */
int tei_gpu_submit(struct tei_gpu *ctx, struct tei_gpu_op *op);

/*
 * Starts no further copies of op; done is called when its copies in flight end.
 * Does not wait. The done callback of op must not have returned yet. If op was
 * never submitted, the call has no effect.
 */
void tei_gpu_cancel(struct tei_gpu *ctx, struct tei_gpu_op *op);

/* Waits until every operation has ended and its done callback has returned.
 * Returns true, or false at the deadline. Operations submitted meanwhile count
 * too, so the caller must stop submitting. */
bool tei_gpu_drain(struct tei_gpu *ctx, uint64_t deadline_ns);

#endif /* TEI_PROV_GPU_TEI_GPU_H */
