/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory of other processes of this host.
 *
 * Memory from cuMemAlloc has a handle of CUDA IPC, which is a few bytes. Memory
 * from cuMemMap has no such handle. It consists of chunks of physical memory
 * (cuMemCreate). Each chunk can be exported as a file descriptor, if the program
 * has created it with that property. The other process maps the chunks to
 * adjacent addresses, so a range that spans several chunks is contiguous there,
 * too.
 *
 * Any value that comes from another process may be wrong. The driver checks
 * handles and file descriptors; lengths are checked here.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util/cuda_int.h"

#define CUDA_IPC_PEER_ACCESS	1u
#define CUDA_HANDLE_FD		1	/* type of a handle: file descriptor */
#define CUDA_LOCATION_DEVICE	1
#define CUDA_READ_WRITE		3

_Static_assert(TEI_CUDA_CHUNKS == 256, "as the text of an error states");

static bool ipc_missing(const struct tei_cuda *cuda, struct tei_err *err)
{
	bool missing = !cuda->device_count || !cuda->device_uuid ||
		       !cuda->ipc_get || !cuda->ipc_open || !cuda->ipc_close;

	if (missing)
		cuda_explain(err, TEI_ERR_UNSUPPORTED,
			     TEI_CUDA_LIBRARY " lacks a function of CUDA IPC");
	return missing;
}

/* Returns true if the library lacks a function for chunks. */
static bool chunks_missing(const struct tei_cuda *cuda)
{
	const struct cuda_chunk_calls *c = &cuda->chunks;

	return !c->current || !c->range || !c->retain || !c->release ||
	       !c->properties || !c->give || !c->take || !c->reserve ||
	       !c->unreserve || !c->map || !c->unmap || !c->access;
}

/* Gets the range of the allocation that contains addr, and its GPU. For memory
 * from cuMemMap, the range is all that the program has reserved. */
static int ipc_allocation(struct tei_cuda *cuda, uint64_t addr, uint64_t *start,
			  uint64_t *size, int *device, struct tei_err *err)
{
	static const int what[] = { CUDA_POINTER_RANGE_START,
				    CUDA_POINTER_RANGE_SIZE,
				    CUDA_POINTER_DEVICE_ORDINAL };
	void *data[] = { start, size, device };

	*start = *size = 0;
	return cuda_check(cuda, cuda->pointer(3, what, data, addr),
			  "cuPointerGetAttributes", err);
}

/* Checks that [addr, addr + len) lies within the allocation. */
static int ipc_holds(uint64_t start, uint64_t size, uint64_t addr, uint64_t len,
		     struct tei_err *err)
{
	if (addr >= start && addr - start <= size &&
	    len <= size - (addr - start))
		return 0;
	cuda_explain(err, TEI_ERR_INVALID,
		     "the range is not within one allocation");
	return err->code;
}

/* --- export --------------------------------------------------------------- */

void tei_cuda_chunks_close(struct tei_cuda_chunks *chunks)
{
	while (chunks->n)
		close(chunks->list[--chunks->n].fd);
}

static int ipc_export_alloc(struct tei_cuda *cuda, uint64_t addr, uint64_t len,
			    struct tei_cuda_ipc *out, struct tei_err *err)
{
	uint64_t start, size;
	int device, ret;

	ret = ipc_allocation(cuda, addr, &start, &size, &device, err);
	if (!ret)
		ret = ipc_holds(start, size, addr, len, err);
	if (!ret)
		ret = cuda_check(cuda, cuda->ipc_get(&out->handle, start),
				 "cuIpcGetMemHandle", err);
	out->kind = TEI_CUDA_IPC_ALLOC;
	out->offset = addr - start;
	return ret;
}

/* Gets the handle of the chunk at addr. The caller releases it. */
static int chunk_retain(struct tei_cuda *cuda, uint64_t addr, uint64_t *handle,
			struct tei_err *err)
{
	return cuda_check(cuda,
			  cuda->chunks.retain(handle, (void *)(uintptr_t)addr),
			  "cuMemRetainAllocationHandle", err);
}

/* Returns true if the memory at addr is from cuMemMap. */
static bool chunk_at(struct tei_cuda *cuda, uint64_t addr)
{
	struct tei_err err;
	uint64_t handle;

	if (chunks_missing(cuda) || chunk_retain(cuda, addr, &handle, &err))
		return false;
	cuda->chunks.release(handle);
	return true;
}

/* Checks that the byte at addr belongs to the chunk of that handle. */
static int chunk_same(struct tei_cuda *cuda, uint64_t addr, uint64_t handle,
		      struct tei_err *err)
{
	uint64_t other;
	int ret = chunk_retain(cuda, addr, &other, err);

	if (ret)
		return ret;
	cuda->chunks.release(other);
	if (other == handle)
		return 0;
	cuda_explain(err, TEI_ERR_UNSUPPORTED,
		     "the driver does not report where the chunks of the memory begin");
	return err->code;
}

/* Checks the properties with which the program has created a chunk. *device is
 * -1, or the GPU that the chunk must be on. */
static int chunk_check(struct tei_cuda *cuda, uint64_t handle, int *device,
		       struct tei_err *err)
{
	struct cuda_chunk_prop prop = { .type = 0 };
	int ret = cuda_check(cuda, cuda->chunks.properties(&prop, handle),
			     "cuMemGetAllocationPropertiesFromHandle", err);

	if (ret)
		return ret;
	if (!(prop.handles & CUDA_HANDLE_FD)) {
		cuda_explain(err, TEI_ERR_UNSUPPORTED,
			     "the program has created the memory (cuMemCreate) without the handle type POSIX_FILE_DESCRIPTOR");
		return err->code;
	}
	if (prop.location.type != CUDA_LOCATION_DEVICE ||
	    (*device >= 0 && prop.location.id != *device)) {
		cuda_explain(err, TEI_ERR_INVALID,
			     "the chunks of the memory are not all on the same GPU");
		return err->code;
	}
	*device = prop.location.id;
	return 0;
}

/* Returns true if less than half of the file descriptors that this process may
 * have are in use. The kernel assigns the lowest free number. */
static bool chunk_affordable(int fd)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) ||
	       (rlim_t)fd < limit.rlim_cur / 2;
}

static int chunk_give(struct tei_cuda *cuda, uint64_t handle, int *out,
		      struct tei_err *err)
{
	int fd = -1, ret;

	ret = cuda_check(cuda, cuda->chunks.give(&fd, handle, CUDA_HANDLE_FD, 0),
			 "cuMemExportToShareableHandle", err);
	if (ret)
		return ret;
	if (!chunk_affordable(fd)) {
		close(fd);
		cuda_explain(err, TEI_ERR_TOO_MANY,
			     "each chunk of the memory needs a file descriptor, and half of those that the process may have are in use (ulimit -n)");
		return err->code;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*out = fd;
	return 0;
}

/* Exports the chunk that contains addr. *start gets its address. */
static int chunk_export(struct tei_cuda *cuda, uint64_t addr, int *device,
			uint64_t *start, struct tei_cuda_chunk *out,
			struct tei_err *err)
{
	uint64_t handle;
	size_t size = 0;
	int ret;

	ret = cuda_check(cuda, cuda->chunks.range(start, &size, addr),
			 "cuMemGetAddressRange", err);
	if (!ret)
		ret = ipc_holds(*start, size, addr, 1, err);
	if (!ret)
		ret = chunk_retain(cuda, addr, &handle, err);
	if (ret)
		return ret;
	ret = chunk_same(cuda, *start, handle, err);
	if (!ret)
		ret = chunk_same(cuda, *start + size - 1, handle, err);
	if (!ret)
		ret = chunk_check(cuda, handle, device, err);
	if (!ret)
		ret = chunk_give(cuda, handle, &out->fd, err);
	cuda->chunks.release(handle);
	out->size = size;
	return ret;
}

static int ipc_export_chunks(struct tei_cuda *cuda, uint64_t addr, uint64_t len,
			     struct tei_cuda_ipc *out,
			     struct tei_cuda_chunks *chunks,
			     struct tei_err *err)
{
	uint64_t at = addr, start = 0;
	int device = -1, ret = 0;

	memset(&out->handle, 0, sizeof(out->handle));
	out->kind = TEI_CUDA_IPC_CHUNKS;
	while (!ret && at < addr + len) {
		if (chunks->n == TEI_CUDA_CHUNKS) {
			cuda_explain(err, TEI_ERR_TOO_MANY,
				     "the memory consists of more than 256 chunks (cuMemCreate)");
			ret = err->code;
			break;
		}
		ret = chunk_export(cuda, at, &device, &start,
				   &chunks->list[chunks->n], err);
		if (ret)
			break;
		if (!chunks->n)
			out->offset = addr - start;
		else if (start != at)
			ret = ipc_holds(0, 0, 1, 1, err);
		at = start + chunks->list[chunks->n++].size;
	}
	if (ret)
		tei_cuda_chunks_close(chunks);
	return ret;
}

/* Gets the UUID of the GPU that holds the memory at addr. */
static int ipc_uuid(struct tei_cuda *cuda, uint64_t addr,
		    struct tei_cuda_ipc *out, struct tei_err *err)
{
	uint64_t start, size;
	int device, handle, ret;

	ret = ipc_allocation(cuda, addr, &start, &size, &device, err);
	if (!ret)
		ret = cuda_check(cuda, cuda->device(&handle, device),
				 "cuDeviceGet", err);
	if (!ret)
		ret = cuda_check(cuda, cuda->device_uuid(out->uuid, handle),
				 "cuDeviceGetUuid", err);
	return ret;
}

int tei_cuda_ipc_export(struct tei_cuda *cuda, uint64_t addr, uint64_t len,
			struct tei_cuda_ipc *out,
			struct tei_cuda_chunks *chunks, struct tei_err *err)
{
	int ret;

	chunks->n = 0;
	memset(out, 0, sizeof(*out));
	if (ipc_missing(cuda, err))
		return err->code;
	ret = ipc_uuid(cuda, addr, out, err);
	if (ret)
		return ret;
	ret = ipc_export_alloc(cuda, addr, len, out, err);
	if (ret && chunk_at(cuda, addr))
		ret = ipc_export_chunks(cuda, addr, len, out, chunks, err);
	return ret;
}

/* --- import --------------------------------------------------------------- */

static int ipc_open_alloc(struct tei_cuda *cuda,
			  const struct tei_cuda_ipc *from, uint64_t len,
			  struct tei_cuda_opened *out, struct tei_err *err)
{
	uint64_t opened, start, size;
	int device, ret;

	ret = cuda_check(cuda,
			 cuda->ipc_open(&opened, from->handle,
					CUDA_IPC_PEER_ACCESS),
			 "cuIpcOpenMemHandle", err);
	if (ret)
		return ret;
	ret = ipc_allocation(cuda, opened, &start, &size, &device, err);
	if (!ret && from->offset > UINT64_MAX - opened)
		ret = ipc_holds(0, 0, 1, 1, err);
	if (!ret)
		ret = ipc_holds(start, size, opened + from->offset, len, err);
	if (ret) {
		cuda->ipc_close(opened);
		return ret;
	}
	out->addr = opened;
	out->size = 0;
	return 0;
}

/* Maps a chunk. The mapping keeps the memory, so the handle is released. */
static int chunk_map(struct tei_cuda *cuda, const struct tei_cuda_chunk *chunk,
		     uint64_t addr, struct tei_err *err)
{
	uint64_t handle;
	int ret;

	ret = cuda_check(cuda,
			 cuda->chunks.take(&handle,
					   (void *)(intptr_t)chunk->fd,
					   CUDA_HANDLE_FD),
			 "cuMemImportFromShareableHandle", err);
	if (ret)
		return ret;
	ret = cuda_check(cuda,
			 cuda->chunks.map(addr, chunk->size, 0, handle, 0),
			 "cuMemMap", err);
	cuda->chunks.release(handle);
	return ret;
}

/*
 * Makes the chunks accessible for the GPU of the current context. The other GPUs
 * of this process may be sources and destinations of copies, too, so they get
 * access if they can reach the memory.
 */
static int chunks_permit(struct tei_cuda *cuda, uint64_t addr, uint64_t size,
			 struct tei_err *err)
{
	struct cuda_access access = { { CUDA_LOCATION_DEVICE, 0 },
				      CUDA_READ_WRITE };
	int n = 0, own = 0, i, ret;

	ret = cuda_check(cuda, cuda->chunks.current(&own), "cuCtxGetDevice",
			 err);
	access.location.id = own;
	if (!ret)
		ret = cuda_check(cuda,
				 cuda->chunks.access(addr, size, &access, 1),
				 "cuMemSetAccess", err);
	if (ret || cuda->device_count(&n))
		return ret;
	for (i = 0; i < n; i++) {
		if (cuda->device(&access.location.id, i) ||
		    access.location.id == own)
			continue;
		cuda->chunks.access(addr, size, &access, 1);
	}
	return 0;
}

/* Maps the chunks to the reserved addresses from addr on. */
static int chunks_map(struct tei_cuda *cuda,
		      const struct tei_cuda_chunks *chunks, uint64_t addr,
		      struct tei_err *err)
{
	uint64_t at = addr;
	uint32_t i;
	int ret = 0;

	for (i = 0; i < chunks->n && !ret; i++) {
		ret = chunk_map(cuda, &chunks->list[i], at, err);
		if (!ret)
			at += chunks->list[i].size;
	}
	if (!ret)
		ret = chunks_permit(cuda, addr, at - addr, err);
	if (ret && at > addr)
		cuda->chunks.unmap(addr, at - addr);
	return ret;
}

static int ipc_open_chunks(struct tei_cuda *cuda,
			   const struct tei_cuda_ipc *from,
			   const struct tei_cuda_chunks *chunks, uint64_t len,
			   struct tei_cuda_opened *out, struct tei_err *err)
{
	uint64_t size = 0, addr = 0;
	uint32_t i;
	int ret;

	if (chunks_missing(cuda)) {
		cuda_explain(err, TEI_ERR_UNSUPPORTED,
			     TEI_CUDA_LIBRARY " lacks a function to map memory");
		return err->code;
	}
	for (i = 0; i < chunks->n; i++)
		if (__builtin_add_overflow(size, chunks->list[i].size, &size))
			return ipc_holds(0, 0, 1, 1, err);
	ret = ipc_holds(0, size, from->offset, len, err);
	if (!ret)
		ret = cuda_check(cuda,
				 cuda->chunks.reserve(&addr, size, 0, 0, 0),
				 "cuMemAddressReserve", err);
	if (ret)
		return ret;
	ret = chunks_map(cuda, chunks, addr, err);
	if (ret) {
		cuda->chunks.unreserve(addr, size);
		return ret;
	}
	out->addr = addr;
	out->size = size;
	return 0;
}

int tei_cuda_ipc_open(struct tei_cuda *cuda, const struct tei_cuda_ipc *from,
		      const struct tei_cuda_chunks *chunks, uint64_t len,
		      struct tei_cuda_opened *out, struct tei_err *err)
{
	if (ipc_missing(cuda, err))
		return err->code;
	if (from->kind == TEI_CUDA_IPC_ALLOC && !chunks->n)
		return ipc_open_alloc(cuda, from, len, out, err);
	if (from->kind == TEI_CUDA_IPC_CHUNKS && chunks->n)
		return ipc_open_chunks(cuda, from, chunks, len, out, err);
	cuda_explain(err, TEI_ERR_INVALID,
		     "the other process has published an invalid handle");
	return err->code;
}

void tei_cuda_ipc_close(struct tei_cuda *cuda,
			const struct tei_cuda_opened *opened)
{
	if (!opened->size) {
		cuda->ipc_close(opened->addr);
		return;
	}
	cuda->chunks.unmap(opened->addr, opened->size);
	cuda->chunks.unreserve(opened->addr, opened->size);
}

int tei_cuda_retain(struct tei_cuda *cuda, const struct tei_cuda_ipc *of,
		    int *device, void **context, struct tei_err *err)
{
	unsigned char uuid[sizeof(of->uuid)];
	int n = 0, i, handle;

	if (ipc_missing(cuda, err))
		return err->code;
	if (cuda_check(cuda, cuda->device_count(&n), "cuDeviceGetCount", err))
		return err->code;
	for (i = 0; i < n; i++) {
		if (cuda->device(&handle, i) ||
		    cuda->device_uuid(uuid, handle) ||
		    memcmp(uuid, of->uuid, sizeof(uuid)))
			continue;
		if (cuda_check(cuda, cuda->primary_retain(context, handle),
			       "cuDevicePrimaryCtxRetain", err))
			return err->code;
		*device = handle;
		return 0;
	}
	cuda_explain(err, TEI_ERR_NO_DEVICE,
		     "this process does not see the GPU of the memory");
	return err->code;
}

int tei_cuda_retain_at(struct tei_cuda *cuda, uint64_t addr, int *device,
		       void **context, struct tei_err *err)
{
	uint64_t start, size;
	int ordinal, handle, ret;

	ret = ipc_allocation(cuda, addr, &start, &size, &ordinal, err);
	if (!ret)
		ret = cuda_check(cuda, cuda->device(&handle, ordinal),
				 "cuDeviceGet", err);
	if (!ret)
		ret = cuda_check(cuda, cuda->primary_retain(context, handle),
				 "cuDevicePrimaryCtxRetain", err);
	if (!ret)
		*device = handle;
	return ret;
}

void tei_cuda_release(struct tei_cuda *cuda, int device)
{
	cuda->primary_release(device);
}
