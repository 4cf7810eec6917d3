/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_CUDA_H
#define TEI_UTIL_CUDA_H

/*
 * The CUDA driver API, as far as moonrail calls it. Whoever has GPU memory has
 * loaded libcuda.so.1 into this process, so that is where it is looked for:
 * nothing is loaded here, no driver is initialised, and in a process without
 * the library tei_cuda_present is all that ever runs. No CUDA header is needed.
 *
 * Threads: every call may be made from any thread. Calls that say "pushed"
 * work in the context that this thread has pushed; push and pop come in
 * pairs, within one function, and leave the program's own stack of contexts
 * as it was. Objects (stream, event) belong to the context that they were
 * made in and are used under it only.
 *
 * Errors: 0 or a code with *err filled (never NULL): the call, the driver's
 * name for what happened and its number. Nothing is logged and no last error
 * set: a caller may have many of them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"

struct tei_cuda;			/* opaque; one per user */

/* True where this process has the driver library loaded. */
bool tei_cuda_present(void);

/*
 * TEI_ERR_NO_DEVICE: not loaded in this process; TEI_ERR_UNSUPPORTED: a
 * library that lacks a call of CUDA 11; TEI_ERR_MEMORY.
 */
int tei_cuda_open(struct tei_err *err, struct tei_cuda **out);
/* The library stays loaded. NULL is fine. */
void tei_cuda_close(struct tei_cuda *cuda);

/* Where memory lives. */
struct tei_cuda_mem {
	int device;		/* ordinal, or -1: host memory, managed too */
	void *context;		/* it was allocated in; NULL: host memory */
};

/*
 * Goes through the range by the driver's allocations, where there are none in
 * steps of TEI_CUDA_STEP, on which device memory is laid out: what lies
 * between is seen as well. TEI_ERR_INVALID: it is of more than one kind, GPU
 * or context. Memory that no context of its own has (a pool's) is used under
 * its device's primary one, which must be active.
 */
#define TEI_CUDA_STEP	(UINT64_C(2) << 20)
int tei_cuda_where(struct tei_cuda *cuda, const void *addr, uint64_t len,
		   struct tei_cuda_mem *out, struct tei_err *err);

/*
 * Not twice by one thread. Calls between push and pop neither fail for nor end
 * a capture of streams into a graph that a thread of the program has begun (in
 * the global mode, which is the default).
 */
int tei_cuda_push(struct tei_cuda *cuda, void *context, struct tei_err *err);
void tei_cuda_pop(struct tei_cuda *cuda);

/*
 * Pushed. For what reaches device memory beside the driver, as NICs do: *fd is
 * a dma-buf of the pages that hold the range, which begins at *offset in it;
 * the caller closes it. TEI_ERR_UNSUPPORTED: the driver has no such call.
 */
int tei_cuda_dmabuf(struct tei_cuda *cuda, uint64_t addr, uint64_t len, int *fd,
		    uint64_t *offset, struct tei_err *err);
/* Pushed. The driver's own synchronous calls on that memory end before they
 * return, which they need not where nothing else reaches it. Of memory that the
 * driver can't say this of (cuMemMap's) it is said of the context. */
int tei_cuda_sync_calls(struct tei_cuda *cuda, uint64_t addr,
			struct tei_err *err);

/* Whether push failed because there is no such context any more: what ran in
 * it is over. */
bool tei_cuda_gone(const struct tei_err *err);

/*
 * len bytes of zeros on a device, in its primary context, which stays active
 * until the memory is freed. TEI_ERR_NO_DEVICE: there is no such GPU.
 */
int tei_cuda_alloc(struct tei_cuda *cuda, int device, uint64_t len,
		   uint64_t *addr, struct tei_err *err);
void tei_cuda_free(struct tei_cuda *cuda, int device, uint64_t addr);

/* Pushed. A stream of its own, without order against the program's. */
int tei_cuda_stream_create(struct tei_cuda *cuda, void **stream,
			   struct tei_err *err);
void tei_cuda_stream_destroy(struct tei_cuda *cuda, void *stream);
/* Pushed. 1: all that was queued is over; 0: not yet; or a code. */
int tei_cuda_stream_over(struct tei_cuda *cuda, void *stream,
			 struct tei_err *err);

/* Pushed. */
int tei_cuda_event_create(struct tei_cuda *cuda, void **event,
			  struct tei_err *err);
void tei_cuda_event_destroy(struct tei_cuda *cuda, void *event);
int tei_cuda_event_record(struct tei_cuda *cuda, void *event, void *stream,
			  struct tei_err *err);
/* 1: what was queued before it is over; 0: not yet; or a code. */
int tei_cuda_event_over(struct tei_cuda *cuda, void *event,
			struct tei_err *err);

/* Pushed. Pins host memory for every context, until unpin: in the same one. */
int tei_cuda_pin(struct tei_cuda *cuda, void *addr, uint64_t len,
		 struct tei_err *err);
void tei_cuda_unpin(struct tei_cuda *cuda, void *addr);

/*
 * Pushed. Queues a copy between any two of host memory and GPU memory; with
 * host memory that is not pinned the call itself may take as long as the copy.
 */
int tei_cuda_copy(struct tei_cuda *cuda, void *dst, const void *src,
		  uint64_t len, void *stream, struct tei_err *err);

#endif /* TEI_UTIL_CUDA_H */
