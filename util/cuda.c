/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/cuda.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/cuda_int.h"

/* Constants of the driver's binary interface. */
enum {
	CUDA_OUT_OF_MEMORY = 2,
	CUDA_NOT_INITIALIZED = 3,
	CUDA_DEINITIALIZED = 4,
	CUDA_STUB_LIBRARY = 34,
	CUDA_NO_DEVICE = 100,
	CUDA_INVALID_DEVICE = 101,
	CUDA_INVALID_CONTEXT = 201,
	CUDA_NOT_READY = 600,
	CUDA_CONTEXT_DESTROYED = 709,
	CUDA_NOT_SUPPORTED = 801,
	/* range of the errors with which the driver refuses a call during a
	 * stream capture */
	CUDA_CAPTURE_FIRST = 900,
	CUDA_CAPTURE_LAST = 908,
};

enum { CUDA_MEMORY_DEVICE = 2 };

enum { CUDA_POINTER_SYNC_MEMOPS = 6 };
enum { CUDA_RANGE_DMABUF = 1 };

#define CUDA_STREAM_NON_BLOCKING	1u
#define CUDA_CAPTURE_RELAXED		2
#define CUDA_EVENT_NO_TIMING		2u
#define CUDA_PIN_PORTABLE		1u
#define CUDA_CTX_SYNC_MEMOPS		0x80u

/* Names of the functions in the library, as a program that was compiled for
 * CUDA 11 or later links to them. */
static const struct {
	const char *name;
	size_t at;
} cuda_calls[] = {
	{ "cuGetErrorName", offsetof(struct tei_cuda, name) },
	{ "cuPointerGetAttributes", offsetof(struct tei_cuda, pointer) },
	{ "cuDeviceGet", offsetof(struct tei_cuda, device) },
	{ "cuDevicePrimaryCtxGetState",
	  offsetof(struct tei_cuda, primary_state) },
	{ "cuDevicePrimaryCtxRetain",
	  offsetof(struct tei_cuda, primary_retain) },
	{ "cuDevicePrimaryCtxRelease_v2",
	  offsetof(struct tei_cuda, primary_release) },
	{ "cuCtxPushCurrent_v2", offsetof(struct tei_cuda, push) },
	{ "cuCtxPopCurrent_v2", offsetof(struct tei_cuda, pop) },
	{ "cuMemAlloc_v2", offsetof(struct tei_cuda, alloc) },
	{ "cuMemFree_v2", offsetof(struct tei_cuda, free) },
	{ "cuMemsetD8_v2", offsetof(struct tei_cuda, set) },
	{ "cuCtxSynchronize", offsetof(struct tei_cuda, wait) },
	{ "cuMemHostRegister_v2", offsetof(struct tei_cuda, pin) },
	{ "cuMemHostUnregister", offsetof(struct tei_cuda, unpin) },
	{ "cuMemcpyAsync", offsetof(struct tei_cuda, copy) },
	{ "cuStreamCreate", offsetof(struct tei_cuda, stream_create) },
	{ "cuStreamDestroy_v2", offsetof(struct tei_cuda, stream_destroy) },
	{ "cuStreamQuery", offsetof(struct tei_cuda, stream_query) },
	{ "cuEventCreate", offsetof(struct tei_cuda, event_create) },
	{ "cuEventDestroy_v2", offsetof(struct tei_cuda, event_destroy) },
	{ "cuEventRecord", offsetof(struct tei_cuda, event_record) },
	{ "cuEventQuery", offsetof(struct tei_cuda, event_query) },
	{ "cuThreadExchangeStreamCaptureMode",
	  offsetof(struct tei_cuda, capture_mode) },
};

static const struct {
	const char *name;
	size_t at;
} cuda_more_calls[] = {
	{ "cuMemGetHandleForAddressRange",
	  offsetof(struct tei_cuda, range_handle) },
	{ "cuPointerSetAttribute", offsetof(struct tei_cuda, pointer_set) },
	{ "cuCtxGetFlags", offsetof(struct tei_cuda, flags) },
	{ "cuCtxSetFlags", offsetof(struct tei_cuda, flags_set) },
	{ "cuDeviceGetCount", offsetof(struct tei_cuda, device_count) },
	{ "cuDeviceGetUuid", offsetof(struct tei_cuda, device_uuid) },
	{ "cuIpcGetMemHandle", offsetof(struct tei_cuda, ipc_get) },
	{ "cuIpcOpenMemHandle_v2", offsetof(struct tei_cuda, ipc_open) },
	{ "cuIpcCloseMemHandle", offsetof(struct tei_cuda, ipc_close) },
	{ "cuCtxGetDevice", offsetof(struct tei_cuda, chunks.current) },
	{ "cuMemGetAddressRange_v2", offsetof(struct tei_cuda, chunks.range) },
	{ "cuMemRetainAllocationHandle",
	  offsetof(struct tei_cuda, chunks.retain) },
	{ "cuMemRelease", offsetof(struct tei_cuda, chunks.release) },
	{ "cuMemGetAllocationPropertiesFromHandle",
	  offsetof(struct tei_cuda, chunks.properties) },
	{ "cuMemExportToShareableHandle",
	  offsetof(struct tei_cuda, chunks.give) },
	{ "cuMemImportFromShareableHandle",
	  offsetof(struct tei_cuda, chunks.take) },
	{ "cuMemAddressReserve", offsetof(struct tei_cuda, chunks.reserve) },
	{ "cuMemAddressFree", offsetof(struct tei_cuda, chunks.unreserve) },
	{ "cuMemMap", offsetof(struct tei_cuda, chunks.map) },
	{ "cuMemUnmap", offsetof(struct tei_cuda, chunks.unmap) },
	{ "cuMemSetAccess", offsetof(struct tei_cuda, chunks.access) },
};

void cuda_explain(struct tei_err *err, int code, const char *text)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->when_ns = tei_now_ns();
	strcpy(err->provider, "cuda");
	snprintf(err->text, sizeof(err->text), "%s", text);
}

int cuda_check(const struct tei_cuda *cuda, int result, const char *call,
	       struct tei_err *err)
{
	const char *name = NULL;
	char text[TEI_ERR_TEXT];

	if (!result)
		return 0;
	if (cuda->name(result, &name) || !name)
		name = "unknown error";
	snprintf(text, sizeof(text), "%s: %s (%d)", call, name, result);
	cuda_explain(err, result == CUDA_OUT_OF_MEMORY ? TEI_ERR_MEMORY :
							  TEI_ERR_CONTEXT,
		     text);
	err->prov_errno = result;
	return err->code;
}

/* --- the library --------------------------------------------------------- */

static void *cuda_library(void)
{
	return dlopen(TEI_CUDA_LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
}

static int cuda_first_object(struct dl_phdr_info *info, size_t size, void *adds)
{
	(void)size;
	*(unsigned long long *)adds = info->dlpi_adds;
	return 1;
}

/*
 * This function is called for each buffer that is registered, so it must be
 * fast. Looking for a library that is not loaded is slow, because dlopen
 * searches the library directories. The result "absent" is therefore kept until
 * the process loads another library, which increments the counter dlpi_adds.
 */
bool tei_cuda_present(void)
{
	static atomic_ullong absent;	/* value of dlpi_adds when the library
					 * was last found to be absent, or 0 if
					 * it never was */
	unsigned long long adds = 0;
	void *library;

	dl_iterate_phdr(cuda_first_object, &adds);
	if (adds && adds == atomic_load(&absent))
		return false;
	library = cuda_library();
	if (library)
		dlclose(library);
	else
		atomic_store(&absent, adds);
	return library != NULL;
}

static int cuda_bind(struct tei_cuda *cuda, struct tei_err *err)
{
	char text[TEI_ERR_TEXT];
	size_t i;
	void *f;

	for (i = 0; i < sizeof(cuda_calls) / sizeof(cuda_calls[0]); i++) {
		f = dlsym(cuda->library, cuda_calls[i].name);
		if (!f) {
			snprintf(text, sizeof(text), "%s has no %s",
				 TEI_CUDA_LIBRARY, cuda_calls[i].name);
			cuda_explain(err, TEI_ERR_UNSUPPORTED, text);
			return err->code;
		}
		memcpy((char *)cuda + cuda_calls[i].at, &f, sizeof(f));
	}
	for (i = 0; i < sizeof(cuda_more_calls) / sizeof(cuda_more_calls[0]);
	     i++) {
		f = dlsym(cuda->library, cuda_more_calls[i].name);
		memcpy((char *)cuda + cuda_more_calls[i].at, &f, sizeof(f));
	}
	return 0;
}

int tei_cuda_open(struct tei_err *err, struct tei_cuda **out)
{
	struct tei_cuda *cuda = calloc(1, sizeof(*cuda));
	int ret;

	if (!cuda) {
		cuda_explain(err, TEI_ERR_MEMORY, "out of memory");
		return err->code;
	}
	cuda->library = cuda_library();
	if (!cuda->library) {
		cuda_explain(err, TEI_ERR_NO_DEVICE,
			     TEI_CUDA_LIBRARY " is not loaded in this process, so the process has no GPU memory");
		free(cuda);
		return err->code;
	}
	ret = cuda_bind(cuda, err);
	if (ret)
		tei_cuda_close(cuda);
	else
		*out = cuda;
	return ret;
}

void tei_cuda_close(struct tei_cuda *cuda)
{
	if (!cuda)
		return;
	dlclose(cuda->library);		/* the program keeps its own
					 * reference */
	free(cuda);
}

/* --- memory -------------------------------------------------------------- */

/* Gets the primary context of the device without keeping a reference to it.
 * Fails if the context is not active. */
static int cuda_primary(struct tei_cuda *cuda, int device, void **context,
			struct tei_err *err)
{
	int handle = 0, active = 0, ret;
	unsigned int flags;

	ret = cuda_check(cuda, cuda->device(&handle, device), "cuDeviceGet",
			 err);
	if (!ret)
		ret = cuda_check(cuda,
				 cuda->primary_state(handle, &flags, &active),
				 "cuDevicePrimaryCtxGetState", err);
	if (ret)
		return ret;
	if (!active) {
		cuda_explain(err, TEI_ERR_CONTEXT,
			     "the GPU memory has no context, and the primary context of its device is not active");
		return err->code;
	}
	ret = cuda_check(cuda, cuda->primary_retain(context, handle),
			 "cuDevicePrimaryCtxRetain", err);
	if (!ret)
		cuda->primary_release(handle);
	return ret;
}

/* Returns true if a driver call has failed because this process does not use
 * the driver. */
static bool cuda_idle(int result)
{
	return result == CUDA_NOT_INITIALIZED || result == CUDA_DEINITIALIZED ||
	       result == CUDA_STUB_LIBRARY || result == CUDA_NO_DEVICE;
}

/*
 * Returns true if the result of a query about an address shows that the memory
 * does not belong to the driver. This includes CUDA_INVALID_CONTEXT, because a
 * process without a context has no memory of the driver.
 */
static bool cuda_foreign(int result)
{
	return cuda_idle(result) || result == CUDA_INVALID_CONTEXT;
}

/* Finds out where the byte at addr lies: in *out, device is -1 and the context
 * NULL for host memory. *end gets the end of the range that the result applies
 * to. */
static int cuda_at(struct tei_cuda *cuda, uint64_t addr,
		   struct tei_cuda_mem *out, uint64_t *end,
		   struct tei_err *err)
{
	static const int what[] = { CUDA_POINTER_MEMORY_TYPE,
				    CUDA_POINTER_IS_MANAGED,
				    CUDA_POINTER_DEVICE_ORDINAL,
				    CUDA_POINTER_CONTEXT,
				    CUDA_POINTER_RANGE_START,
				    CUDA_POINTER_RANGE_SIZE };
	unsigned int type = 0, managed = 0;	/* the driver writes either 1 or
						 * 4 bytes to "managed" */
	void *context = NULL;
	uint64_t start = 0, size = 0;
	void *data[] = { &type, &managed, &out->device, &context, &start,
			 &size };
	int result;

	result = cuda->pointer(6, what, data, addr);
	if (result && !cuda_foreign(result))
		return cuda_check(cuda, result, "cuPointerGetAttributes", err);
	out->context = NULL;
	*end = addr - addr % TEI_CUDA_STEP + TEI_CUDA_STEP;
	if (result || type != CUDA_MEMORY_DEVICE || managed) {
		out->device = -1;
		return 0;
	}
	if (start <= addr && addr - start < size)
		*end = start + size;
	out->context = context;
	return context ? 0 : cuda_primary(cuda, out->device, &out->context,
					  err);
}

int tei_cuda_where(struct tei_cuda *cuda, const void *addr, uint64_t len,
		   struct tei_cuda_mem *out, struct tei_err *err)
{
	uint64_t at = (uintptr_t)addr, last = at + len - 1, end;
	struct tei_cuda_mem first, next;
	int ret;

	ret = cuda_at(cuda, at, &first, &end, err);
	while (!ret && at < last) {
		at = end > at && end < last ? end : last;
		ret = cuda_at(cuda, at, &next, &end, err);
		if (!ret && (next.device != first.device ||
			     next.context != first.context)) {
			cuda_explain(err, TEI_ERR_INVALID,
				     "the range spans memory of different kinds, GPUs or contexts");
			return err->code;
		}
	}
	if (!ret)
		*out = first;
	return ret;
}

int tei_cuda_dmabuf(struct tei_cuda *cuda, uint64_t addr, uint64_t len, int *fd,
		    uint64_t *offset, struct tei_err *err)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t start = addr - addr % page;
	uint64_t end = (addr + len + page - 1) / page * page;
	int handle = -1, ret;

	if (!cuda->range_handle) {
		cuda_explain(err, TEI_ERR_UNSUPPORTED,
			     TEI_CUDA_LIBRARY " has no cuMemGetHandleForAddressRange");
		return err->code;
	}
	ret = cuda_check(cuda,
			 cuda->range_handle(&handle, start, end - start,
					    CUDA_RANGE_DMABUF, 0),
			 "cuMemGetHandleForAddressRange", err);
	if (ret)
		return ret;
	fcntl(handle, F_SETFD, FD_CLOEXEC);
	*fd = handle;
	*offset = addr - start;
	return 0;
}

/* For all memory of the current context, makes synchronous calls return only
 * after they have completed. Used for memory from cuMemMap, for which this
 * cannot be set separately. */
static int cuda_sync_context(struct tei_cuda *cuda, struct tei_err *err)
{
	unsigned int flags = 0;
	int ret;

	ret = cuda_check(cuda, cuda->flags(&flags), "cuCtxGetFlags", err);
	if (ret || flags & CUDA_CTX_SYNC_MEMOPS)
		return ret;
	return cuda_check(cuda, cuda->flags_set(flags | CUDA_CTX_SYNC_MEMOPS),
			  "cuCtxSetFlags", err);
}

int tei_cuda_sync_calls(struct tei_cuda *cuda, uint64_t addr,
			struct tei_err *err)
{
	unsigned int on = 1;
	int result;

	if (!cuda->pointer_set) {
		cuda_explain(err, TEI_ERR_UNSUPPORTED,
			     TEI_CUDA_LIBRARY " has no cuPointerSetAttribute");
		return err->code;
	}
	result = cuda->pointer_set(&on, CUDA_POINTER_SYNC_MEMOPS, addr);
	if (result == CUDA_NOT_SUPPORTED && cuda->flags && cuda->flags_set)
		return cuda_sync_context(cuda, err);
	return cuda_check(cuda, result, "cuPointerSetAttribute", err);
}

/* --- contexts, streams, events ------------------------------------------- */

/* Converts the result of a query: returns 1 if the work has ended, 0 if it has
 * not, or a negative error code. A query that is refused because a stream is
 * being captured counts as 0. */
static int cuda_over(const struct tei_cuda *cuda, int result, const char *call,
		     struct tei_err *err)
{
	if (result == CUDA_NOT_READY ||
	    (result >= CUDA_CAPTURE_FIRST && result <= CUDA_CAPTURE_LAST))
		return 0;
	return result ? cuda_check(cuda, result, call, err) : 1;
}

/* capture mode of this thread before tei_cuda_push; restored by tei_cuda_pop */
static _Thread_local int cuda_capture;

int tei_cuda_push(struct tei_cuda *cuda, void *context, struct tei_err *err)
{
	int ret;

	ret = cuda_check(cuda, cuda->push(context), "cuCtxPushCurrent", err);
	if (ret)
		return ret;
	cuda_capture = CUDA_CAPTURE_RELAXED;
	cuda->capture_mode(&cuda_capture);
	return 0;
}

void tei_cuda_pop(struct tei_cuda *cuda)
{
	void *context;

	cuda->capture_mode(&cuda_capture);
	cuda->pop(&context);
}

bool tei_cuda_gone(const struct tei_err *err)
{
	return err->prov_errno == CUDA_INVALID_CONTEXT ||
	       err->prov_errno == CUDA_CONTEXT_DESTROYED ||
	       err->prov_errno == CUDA_DEINITIALIZED;
}

static int cuda_fill(struct tei_cuda *cuda, uint64_t len, uint64_t *addr,
		     struct tei_err *err)
{
	uint64_t at;
	int ret;

	ret = cuda_check(cuda, cuda->alloc(&at, len), "cuMemAlloc", err);
	if (ret)
		return ret;
	ret = cuda_check(cuda, cuda->set(at, 0, len), "cuMemsetD8", err);
	if (!ret)
		ret = cuda_check(cuda, cuda->wait(), "cuCtxSynchronize", err);
	if (ret)
		cuda->free(at);
	else
		*addr = at;
	return ret;
}

int tei_cuda_alloc(struct tei_cuda *cuda, int device, uint64_t len,
		   uint64_t *addr, struct tei_err *err)
{
	int handle = 0, ret;
	void *context;

	ret = cuda->device(&handle, device);
	if (ret == CUDA_INVALID_DEVICE || cuda_idle(ret)) {
		cuda_explain(err, TEI_ERR_NO_DEVICE, "there is no such GPU");
		return err->code;
	}
	ret = cuda_check(cuda, ret, "cuDeviceGet", err);
	if (!ret)
		ret = cuda_check(cuda, cuda->primary_retain(&context, handle),
				 "cuDevicePrimaryCtxRetain", err);
	if (ret)
		return ret;
	ret = tei_cuda_push(cuda, context, err);
	if (!ret) {
		ret = cuda_fill(cuda, len, addr, err);
		tei_cuda_pop(cuda);
	}
	if (ret)
		cuda->primary_release(handle);
	return ret;
}

void tei_cuda_free(struct tei_cuda *cuda, int device, uint64_t addr)
{
	struct tei_err err;
	void *context;
	int handle = 0;

	/* if the device's primary context no longer exists, its memory is
	 * already freed */
	if (cuda->device(&handle, device) ||
	    cuda->primary_retain(&context, handle))
		return;
	if (!tei_cuda_push(cuda, context, &err)) {
		cuda->free(addr);
		tei_cuda_pop(cuda);
	}
	cuda->primary_release(handle);
	cuda->primary_release(handle);	/* releases the reference that
					 * tei_cuda_alloc took */
}

int tei_cuda_stream_create(struct tei_cuda *cuda, void **stream,
			   struct tei_err *err)
{
	return cuda_check(cuda, cuda->stream_create(stream,
						    CUDA_STREAM_NON_BLOCKING),
			  "cuStreamCreate", err);
}

void tei_cuda_stream_destroy(struct tei_cuda *cuda, void *stream)
{
	cuda->stream_destroy(stream);
}

int tei_cuda_stream_over(struct tei_cuda *cuda, void *stream,
			 struct tei_err *err)
{
	return cuda_over(cuda, cuda->stream_query(stream), "cuStreamQuery",
			 err);
}

int tei_cuda_event_create(struct tei_cuda *cuda, void **event,
			  struct tei_err *err)
{
	return cuda_check(cuda,
			  cuda->event_create(event, CUDA_EVENT_NO_TIMING),
			  "cuEventCreate", err);
}

void tei_cuda_event_destroy(struct tei_cuda *cuda, void *event)
{
	cuda->event_destroy(event);
}

int tei_cuda_event_record(struct tei_cuda *cuda, void *event, void *stream,
			  struct tei_err *err)
{
	return cuda_check(cuda, cuda->event_record(event, stream),
			  "cuEventRecord", err);
}

int tei_cuda_event_over(struct tei_cuda *cuda, void *event,
			struct tei_err *err)
{
	return cuda_over(cuda, cuda->event_query(event), "cuEventQuery", err);
}

int tei_cuda_pin(struct tei_cuda *cuda, void *addr, uint64_t len,
		 struct tei_err *err)
{
	return cuda_check(cuda, cuda->pin(addr, len, CUDA_PIN_PORTABLE),
			  "cuMemHostRegister", err);
}

void tei_cuda_unpin(struct tei_cuda *cuda, void *addr)
{
	cuda->unpin(addr);
}

int tei_cuda_copy(struct tei_cuda *cuda, void *dst, const void *src,
		  uint64_t len, void *stream, struct tei_err *err)
{
	return cuda_check(cuda, cuda->copy((uintptr_t)dst, (uintptr_t)src, len,
					   stream),
			  "cuMemcpyAsync", err);
}
