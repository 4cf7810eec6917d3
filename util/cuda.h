/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_CUDA_H
#define TEI_UTIL_CUDA_H

/*
 * Calls of the CUDA driver API that moonrail needs. The functions are looked up
 * in the libcuda.so.1 that the process has already loaded: a program that uses
 * GPU memory has always loaded it. moonrail loads no library and initialises no
 * driver. In a process that has not loaded the library, only tei_cuda_present
 * is called. No CUDA header is needed.
 *
 * Threads: any call may be made from any thread. Calls marked "Needs a pushed
 * context" work in the context that the calling thread has pushed with
 * tei_cuda_push. Push and pop come in pairs within one function and leave the
 * program's own stack of contexts unchanged. A stream or event belongs to the
 * context that it was created in and may be used only with that context.
 *
 * Errors: functions return 0, or a code with *err filled; err is never NULL.
 * The text names the failed call, the driver's name of the error and its
 * number. Nothing is logged and the thread's last error is not set, because a
 * caller may have to try many calls.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"

#define TEI_CUDA_LIBRARY "libcuda.so.1"	/* the driver library */

struct tei_cuda;			/* the functions of the driver library;
					 * opaque; each user opens its own
					 * object */

/* Returns true if this process has loaded the driver library. */
bool tei_cuda_present(void);

/*
 * Opens the driver library. Returns TEI_ERR_NO_DEVICE if this process has not
 * loaded it, TEI_ERR_UNSUPPORTED if it lacks a function of CUDA 11, or
 * TEI_ERR_MEMORY. The caller frees *out with tei_cuda_close.
 */
int tei_cuda_open(struct tei_err *err, struct tei_cuda **out);
/* Frees cuda. The library stays loaded. NULL is ignored. */
void tei_cuda_close(struct tei_cuda *cuda);

/* Where memory lies. */
struct tei_cuda_mem {
	int device;		/* ordinal of the GPU; -1 means host memory or
				 * managed memory */
	void *context;		/* CUDA context of the allocation; NULL for host
				 * memory */
};

/*
 * Finds out where the range [addr, addr + len) lies. Queries the driver about
 * each of its allocations in the range and, between allocations, about every
 * TEI_CUDA_STEP bytes. Device memory is aligned to this step, so none is
 * missed. Returns TEI_ERR_INVALID if the range lies in memory of different
 * kinds, GPUs or contexts. For memory without a context of its own (from a
 * memory pool), *out gets the primary context of the device, which must be
 * active.
 */
#define TEI_CUDA_STEP	(UINT64_C(2) << 20)
int tei_cuda_where(struct tei_cuda *cuda, const void *addr, uint64_t len,
		   struct tei_cuda_mem *out, struct tei_err *err);

/*
 * Makes `context` the current CUDA context of the calling thread. A thread that
 * has pushed a context must not push another one before tei_cuda_pop. A thread
 * of the program may be capturing a stream into a graph in the global mode (the
 * default) at the same time. Calls between push and pop then still work, and do
 * not invalidate the capture.
 */
int tei_cuda_push(struct tei_cuda *cuda, void *context, struct tei_err *err);
void tei_cuda_pop(struct tei_cuda *cuda);

/*
 * Needs a pushed context. Exports the range as a dma-buf, for devices such as
 * NICs that access GPU memory without the driver. *fd is a dma-buf of the pages
 * that hold the range; the range begins at *offset within it. The caller closes
 * *fd. Returns TEI_ERR_UNSUPPORTED if the driver has no such function.
 */
int tei_cuda_dmabuf(struct tei_cuda *cuda, uint64_t addr, uint64_t len, int *fd,
		    uint64_t *offset, struct tei_err *err);
/* Needs a pushed context. Makes the driver's synchronous calls on the memory at
 * addr return only after they have completed. By default they may return
 * earlier, which matters if a device accesses the memory without the driver.
 * Memory from cuMemMap has no such attribute; for it, the attribute of the
 * whole context is set. */
int tei_cuda_sync_calls(struct tei_cuda *cuda, uint64_t addr,
			struct tei_err *err);

/* Memory for other processes of this host. The driver exports memory from
 * cuMemAlloc with a handle (CUDA IPC). Memory from cuMemMap consists of chunks,
 * and the driver exports each chunk with a file descriptor. */
enum tei_cuda_ipc_kind {
	TEI_CUDA_IPC_ALLOC = 1, /* memory from cuMemAlloc */
	TEI_CUDA_IPC_CHUNKS,	/* memory from cuMemMap */
};

struct tei_cuda_handle {
	char bytes[64];		/* CUipcMemHandle of the allocation */
};

/* This struct is passed to the other processes as it is. */
struct tei_cuda_ipc {
	struct tei_cuda_handle handle; /* 0 if kind is TEI_CUDA_IPC_CHUNKS */
	unsigned char uuid[16]; /* UUID of the GPU */
	uint64_t offset;	/* start of the range in the allocation, or in
				 * the first chunk, bytes */
	uint32_t kind;		/* a value of enum tei_cuda_ipc_kind */
	uint32_t zero;		/* padding, 0 */
};

/* Physical memory from cuMemCreate, all of which is mapped. */
struct tei_cuda_chunk {
	uint64_t size;		/* bytes */
	int fd;			/* file descriptor that stands for the chunk */
};

#define TEI_CUDA_CHUNKS 256u	/* maximum number of chunks of a range */

/* The chunks that contain a range, in the order of their addresses, without gaps
 * between them. */
struct tei_cuda_chunks {
	uint32_t n;		/* 0 if the memory has no chunks */
	struct tei_cuda_chunk list[TEI_CUDA_CHUNKS];
};

/* Closes the file descriptors, and sets n to 0. */
void tei_cuda_chunks_close(struct tei_cuda_chunks *chunks);

/*
 * Needs a pushed context. Stores in *out and *chunks what other processes need to
 * open the memory [addr, addr + len). The caller closes the file descriptors of *chunks when no
 * other process is to open the memory any longer; the driver may keep the memory
 * until then. Returns 0, the error of the driver, which refuses memory pools, or
 *
 * TEI_ERR_INVALID: the range is neither within one allocation nor in chunks of
 *	one GPU;
 * TEI_ERR_TOO_MANY: there are more than TEI_CUDA_CHUNKS chunks, or more than half
 *	of the file descriptors that the process may have would be in use;
 * TEI_ERR_UNSUPPORTED: the library lacks a function, the program has created a
 *	chunk that cannot be exported, or the driver does not report where a chunk
 *	begins.
 */
int tei_cuda_ipc_export(struct tei_cuda *cuda, uint64_t addr, uint64_t len,
			struct tei_cuda_ipc *out,
			struct tei_cuda_chunks *chunks, struct tei_err *err);

/* Memory of another process that is mapped in this process. */
struct tei_cuda_opened {
	uint64_t addr;
	uint64_t size;		/* size of all chunks, bytes; 0 if the memory is
				 * from cuMemAlloc */
};

/*
 * Needs a pushed context. Maps the allocation, or the chunks, of another process.
 * The range of len bytes begins from->offset bytes after out->addr. The file
 * descriptors of the chunks may be closed afterwards. Chunks are accessible for
 * the GPU of the context, and for all other GPUs that the driver permits.
 * Returns TEI_ERR_INVALID if the memory does not contain the range. The caller
 * unmaps the memory with tei_cuda_ipc_close.
 */
int tei_cuda_ipc_open(struct tei_cuda *cuda, const struct tei_cuda_ipc *from,
		      const struct tei_cuda_chunks *chunks, uint64_t len,
		      struct tei_cuda_opened *out, struct tei_err *err);
/* Needs the context of tei_cuda_ipc_open, unless the memory consists of
 * chunks. */
void tei_cuda_ipc_close(struct tei_cuda *cuda,
			const struct tei_cuda_opened *opened);
/*
 * Retains the primary context of the GPU that holds the memory. Returns
 * TEI_ERR_NO_DEVICE if this process does not see this GPU, or an error of the
 * driver, for example if it has not been initialised. tei_cuda_retain_at
 * does the same for the GPU of memory of this process. The caller releases the
 * context with tei_cuda_release.
 */
int tei_cuda_retain(struct tei_cuda *cuda, const struct tei_cuda_ipc *of,
		    int *device, void **context, struct tei_err *err);
int tei_cuda_retain_at(struct tei_cuda *cuda, uint64_t addr, int *device,
		       void **context, struct tei_err *err);
void tei_cuda_release(struct tei_cuda *cuda, int device);

/* Returns true if err shows that tei_cuda_push failed because the context no
 * longer exists. All work queued in that context has then ended. */
bool tei_cuda_gone(const struct tei_err *err);

/*
 * Allocates len bytes on a device and fills them with zeros. The allocation is
 * made in the device's primary context, which stays active until tei_cuda_free.
 * Returns TEI_ERR_NO_DEVICE if there is no such GPU.
 */
int tei_cuda_alloc(struct tei_cuda *cuda, int device, uint64_t len,
		   uint64_t *addr, struct tei_err *err);
void tei_cuda_free(struct tei_cuda *cuda, int device, uint64_t addr);

/* Needs a pushed context. Creates a stream that is not ordered with the
 * program's streams. */
int tei_cuda_stream_create(struct tei_cuda *cuda, void **stream,
			   struct tei_err *err);
void tei_cuda_stream_destroy(struct tei_cuda *cuda, void *stream);
/*
 * Needs a pushed context. Returns 1 if all work queued on the stream has ended,
 * 0 if it has not, or a negative code.
 */
int tei_cuda_stream_over(struct tei_cuda *cuda, void *stream,
			 struct tei_err *err);

/* Needs a pushed context. Creates an event, which can mark a position in a
 * stream. */
int tei_cuda_event_create(struct tei_cuda *cuda, void **event,
			  struct tei_err *err);
void tei_cuda_event_destroy(struct tei_cuda *cuda, void *event);
int tei_cuda_event_record(struct tei_cuda *cuda, void *event, void *stream,
			  struct tei_err *err);
/*
 * Returns 1 if all work queued before the event has ended, 0 if it has not, or
 * a negative code.
 */
int tei_cuda_event_over(struct tei_cuda *cuda, void *event,
			struct tei_err *err);

/*
 * Needs a pushed context. Pins host memory for all contexts until
 * tei_cuda_unpin, which must run in the same context.
 */
int tei_cuda_pin(struct tei_cuda *cuda, void *addr, uint64_t len,
		 struct tei_err *err);
void tei_cuda_unpin(struct tei_cuda *cuda, void *addr);

/*
 * Needs a pushed context. Queues a copy between any combination of host and GPU
 * memory. If host memory is not pinned, the call itself may take as long as the
 * copy.
 */
int tei_cuda_copy(struct tei_cuda *cuda, void *dst, const void *src,
		  uint64_t len, void *stream, struct tei_err *err);

#endif /* TEI_UTIL_CUDA_H */
