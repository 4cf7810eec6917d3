/* SPDX-License-Identifier: BSD-2-Clause */
/* Implements the stand-in driver with one lock and one thread. The thread does
 * the queued copies in the order in which they were queued. */
#include "fabtests/common/cuda_stand_in_int.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* maximum number of contexts on the stack of a thread */
#define DEPTH	16
#define MEMORIES 400
#define PINS	64
#define CAPTURE_RELAXED 2
#define CTX_SYNC_MEMOPS 0x80u

/* A stream or an event. */
struct object {
	struct object *next;
	struct context *context;
	/* number of the last job that was queued on the stream, or that the
	 * event recorded */
	uint64_t job;
};

struct job {
	struct job *next;
	uint64_t number;
	void *dst;
	const void *src;
	size_t len;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static bool initialised, held;
static bool closes_held; /* calls that unmap memory of another process do not
			  * return */
static bool capturing, capture_lost;
static struct memory memories[MEMORIES];
static struct { char *at; size_t len; } pins[PINS];
static struct job *jobs, **jobs_end = &jobs;
static uint64_t asked, done;		/* numbers of the last queued job and of
					 * the last job that is done */
static struct object *objects;
static unsigned int nobjects, npins, ncopies, nopened;
static struct context primary[DEVICES];
static unsigned int primary_uses[DEVICES], nprimary;
static char fail_call[64];
static unsigned int fail_after;
static int fail_result;

static _Thread_local struct context *stack[DEPTH];
static _Thread_local unsigned int depth;
static _Thread_local int capture_mode;	/* capture mode of this thread, a value
					 * of cuda.h; 0 is the global mode */

/* --- checks at the start of every call ----------------------------------- */

/* Returns the error that `fail` has set for this call if it is due, or else OK.
 * The lock is held. */
static int planted(const char *call)
{
	if (strcmp(call, fail_call))
		return OK;
	if (fail_after--)
		return OK;
	fail_call[0] = '\0';
	return fail_result;
}

struct context *driver_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

int driver_enter(const char *call, bool in_context)
{
	int ret;

	pthread_mutex_lock(&lock);
	ret = planted(call);
	if (!ret && !initialised)
		ret = NOT_INITIALIZED;
	if (!ret && in_context && (!driver_current() || driver_current()->gone))
		ret = INVALID_CONTEXT;
	if (ret)
		pthread_mutex_unlock(&lock);
	return ret;
}

int driver_enter_unsafe(const char *call)
{
	int ret = driver_enter(call, true);

	if (ret || !capturing || capture_mode == CAPTURE_RELAXED)
		return ret;
	capture_lost = true;
	pthread_mutex_unlock(&lock);
	return CAPTURE_UNSUPPORTED;
}

int driver_leave(int ret)
{
	pthread_mutex_unlock(&lock);
	return ret;
}

/* --- memory -------------------------------------------------------------- */

struct memory *driver_memory_at(uint64_t addr)
{
	int i;

	for (i = 0; i < MEMORIES; i++)
		if (memories[i].base && addr >= memories[i].base &&
		    addr < memories[i].base + memories[i].size)
			return &memories[i];
	return NULL;
}

/* Returns the accessible address of a range of GPU memory, or addr itself if it
 * is host memory. Returns NULL if the range starts in GPU memory and reaches
 * beyond its end. */
static void *memory_bytes(uint64_t addr, size_t len)
{
	struct memory *m = driver_memory_at(addr);

	if (!m)
		return (void *)(uintptr_t)addr;
	if (m->reserve)
		return driver_mapped_bytes(addr, len);
	if (len > m->size - (addr - m->base))
		return NULL;
	return m->alias + (addr - m->base);
}

/* Maps the memory in the file fd, which the memory owns then. */
static int memory_map(struct memory *m, int fd, size_t size)
{
	void *base, *alias;
	struct stat st;

	if (fstat(fd, &st)) {
		close(fd);
		return OUT_OF_MEMORY;
	}
	base = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
	alias = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED || alias == MAP_FAILED) {
		close(fd);
		return OUT_OF_MEMORY;
	}
	*m = (struct memory){ .base = (uintptr_t)base, .alias = alias,
			      .size = size, .context = driver_current(),
			      .device = driver_current()->device,
			      .inode = st.st_ino, .fd = fd };
	return OK;
}

int driver_file(size_t size)
{
	int fd = memfd_create("gpu", MFD_CLOEXEC);

	if (fd >= 0 && ftruncate(fd, (off_t)size)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int memory_make(struct memory *m, size_t size)
{
	int fd = driver_file(size);

	return fd < 0 ? OUT_OF_MEMORY : memory_map(m, fd, size);
}

static void memory_unmap(struct memory *m)
{
	munmap((void *)(uintptr_t)m->base, m->size);
	munmap(m->alias, m->size);
	close(m->fd);
	m->base = 0;
}

struct memory *driver_memory_room(void)
{
	int i;

	for (i = 0; i < MEMORIES; i++)
		if (!memories[i].base)
			return &memories[i];
	return NULL;
}

EXPORT int cuMemAlloc_v2(uint64_t *addr, size_t size);
EXPORT int cuMemAlloc_v2(uint64_t *addr, size_t size)
{
	int ret = driver_enter_unsafe("cuMemAlloc");
	struct memory *m;

	if (ret)
		return ret;
	m = driver_memory_room();
	if (!m || !size)
		return driver_leave(OUT_OF_MEMORY);
	ret = memory_make(m, size);
	if (!ret)
		*addr = m->base;
	return driver_leave(ret);
}

EXPORT int cuMemFree_v2(uint64_t addr);
EXPORT int cuMemFree_v2(uint64_t addr)
{
	int ret = driver_enter("cuMemFree", false);
	struct memory *m;

	if (ret)
		return ret;
	m = driver_memory_at(addr);
	if (!m || m->base != addr || m->opened || m->reserve)
		return driver_leave(INVALID_VALUE);
	/* Memory of a primary context is freed only while a context is current.
	 * The memory of a destroyed context is freed at any time. */
	if (!m->context->gone && !driver_current() && m->context->strict)
		return driver_leave(INVALID_CONTEXT);
	memory_unmap(m);
	return driver_leave(OK);
}

/* --- memory of other processes -------------------------------------------- */

/* The handle of memory for other processes. It is passed by value, as in the
 * real driver. */
struct ipc_handle {
	union {
		char bytes[64];
		struct {
			int32_t pid, fd, device;
			uint64_t inode, size;
		} name;
	};
};

bool driver_refuses(const char *where)
{
	const char *value = getenv("CUDA_STAND_IN_NO_IPC");

	return value && !strcmp(value, where);
}

EXPORT int cuIpcGetMemHandle(struct ipc_handle *handle, uint64_t addr);
EXPORT int cuIpcGetMemHandle(struct ipc_handle *handle, uint64_t addr)
{
	int ret = driver_enter("cuIpcGetMemHandle", true);
	const struct memory *m;

	if (ret)
		return ret;
	m = driver_memory_at(addr);
	if (!m || m->base != addr || m->opened || m->reserve)
		return driver_leave(INVALID_VALUE);
	if (driver_refuses("export"))
		return driver_leave(NOT_SUPPORTED);
	memset(handle, 0, sizeof(*handle));
	handle->name.pid = getpid();
	handle->name.fd = m->fd;
	handle->name.device = m->device;
	handle->name.inode = m->inode;
	handle->name.size = m->size;
	return driver_leave(OK);
}

/* Opens the file that the handle names. Returns -1 if it is not the memory of
 * another process, or no longer. */
static int ipc_file(const struct ipc_handle *handle)
{
	char path[64];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->name.pid,
		 handle->name.fd);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && st.st_ino == handle->name.inode &&
	    (uint64_t)st.st_size == handle->name.size)
		return fd;
	close(fd);
	return -1;
}

/* Returns the memory that was already opened with this handle in the current
 * context, or NULL. */
static struct memory *ipc_opened(const struct ipc_handle *handle)
{
	int i;

	for (i = 0; i < MEMORIES; i++)
		if (memories[i].base && memories[i].opened &&
		    memories[i].inode == handle->name.inode &&
		    memories[i].context == driver_current())
			return &memories[i];
	return NULL;
}

static int ipc_open(const struct ipc_handle *handle, struct memory **out)
{
	int fd, ret;

	*out = ipc_opened(handle);
	if (!*out) {
		*out = driver_memory_room();
		if (!*out)
			return OUT_OF_MEMORY;
		fd = ipc_file(handle);
		if (fd < 0)
			return INVALID_VALUE;
		ret = memory_map(*out, fd, handle->name.size);
		if (ret)
			return ret;
		(*out)->device = handle->name.device;
	}
	(*out)->opened++;
	nopened++;
	return OK;
}

EXPORT int cuIpcOpenMemHandle_v2(uint64_t *addr, struct ipc_handle handle,
				 unsigned int flags);
EXPORT int cuIpcOpenMemHandle_v2(uint64_t *addr, struct ipc_handle handle,
				 unsigned int flags)
{
	int ret = driver_enter_unsafe("cuIpcOpenMemHandle");
	struct memory *m;

	if (ret)
		return ret;
	if (flags != 1)
		return driver_leave(INVALID_VALUE);
	if (driver_refuses("open"))
		return driver_leave(NOT_SUPPORTED);
	if (handle.name.pid == getpid())
		return driver_leave(INVALID_CONTEXT);
	ret = ipc_open(&handle, &m);
	if (!ret)
		*addr = m->base;
	return driver_leave(ret);
}

void driver_close_wait(void)
{
	while (closes_held)
		pthread_cond_wait(&cond, &lock);
}

EXPORT int cuIpcCloseMemHandle(uint64_t addr);
EXPORT int cuIpcCloseMemHandle(uint64_t addr)
{
	int ret = driver_enter_unsafe("cuIpcCloseMemHandle");
	struct memory *m;

	if (ret)
		return ret;
	m = driver_memory_at(addr);
	if (!m || m->base != addr || !m->opened ||
	    m->context != driver_current())
		return driver_leave(INVALID_VALUE);
	nopened--;
	driver_close_wait();
	if (!--m->opened)
		memory_unmap(m);
	return driver_leave(OK);
}

/* Unmaps what was opened in a context that is destroyed. The lock is held. */
static void ipc_context_gone(const struct context *context)
{
	int i;

	for (i = 0; i < MEMORIES; i++) {
		if (!memories[i].base || !memories[i].opened ||
		    memories[i].context != context)
			continue;
		nopened -= memories[i].opened;
		memory_unmap(&memories[i]);
	}
}

EXPORT int cuMemsetD8_v2(uint64_t addr, unsigned char value, size_t len);
EXPORT int cuMemsetD8_v2(uint64_t addr, unsigned char value, size_t len)
{
	int ret = driver_enter("cuMemsetD8", true);
	void *bytes;

	if (ret)
		return ret;
	bytes = driver_memory_at(addr) ? memory_bytes(addr, len) : NULL;
	if (bytes)
		memset(bytes, value, len);
	return driver_leave(bytes ? OK : INVALID_VALUE);
}

EXPORT int cuCtxSynchronize(void);
EXPORT int cuCtxSynchronize(void)
{
	int ret = driver_enter("cuCtxSynchronize", true);

	return ret ? ret : driver_leave(OK);
}

static void pointer_attribute(int what, void *out, const struct memory *m)
{
	switch (what) {
	case 1:
		*(void **)out = m ? m->context : NULL;
		break;
	case 2:
		*(unsigned int *)out = m ? 2 : 0;
		break;
	case 8:
		*(unsigned char *)out = 0;
		break;
	case 9:
		*(int *)out = m ? m->device : -2;
		break;
	case 11:
		*(uint64_t *)out = !m	      ? 0 :
				   m->reserve ? m->reserve->base :
						m->base;
		break;
	case 12:
		*(size_t *)out = !m	    ? 0 :
				 m->reserve ? m->reserve->size :
					      m->size;
		break;
	}
}

EXPORT int cuPointerGetAttributes(unsigned int n, const int *what, void **out,
				  uint64_t addr);
EXPORT int cuPointerGetAttributes(unsigned int n, const int *what, void **out,
				  uint64_t addr)
{
	int ret = driver_enter("cuPointerGetAttributes", false);
	unsigned int i;

	if (ret)
		return ret;
	for (i = 0; i < n; i++)
		pointer_attribute(what[i], out[i], driver_memory_at(addr));
	return driver_leave(OK);
}

/* Exports the memfd of the memory, which stands for a dma-buf here. */
EXPORT int cuMemGetHandleForAddressRange(void *handle, uint64_t addr,
					 size_t len, int type,
					 unsigned long long flags);
EXPORT int cuMemGetHandleForAddressRange(void *handle, uint64_t addr,
					 size_t len, int type,
					 unsigned long long flags)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int ret = driver_enter("cuMemGetHandleForAddressRange", true);
	const struct memory *m;
	int fd;

	if (ret)
		return ret;
	m = driver_memory_at(addr);
	if (!m || addr % page || len % page || type != 1 || flags ||
	    len > (m->size + page - 1) / page * page - (addr - m->base))
		return driver_leave(INVALID_VALUE);
	fd = fcntl(m->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return driver_leave(OUT_OF_MEMORY);
	*(int *)handle = fd;
	return driver_leave(OK);
}

EXPORT int cuPointerSetAttribute(const void *value, int what, uint64_t addr);
EXPORT int cuPointerSetAttribute(const void *value, int what, uint64_t addr)
{
	int ret = driver_enter("cuPointerSetAttribute", true);
	struct memory *m;

	if (ret)
		return ret;
	m = driver_memory_at(addr);
	if (!m || what != 6)
		return driver_leave(INVALID_VALUE);
	if (m->reserve)
		return driver_leave(NOT_SUPPORTED);
	m->sync_calls = *(const unsigned int *)value;
	return driver_leave(OK);
}

EXPORT int cuMemHostRegister_v2(void *addr, size_t len, unsigned int flags);
EXPORT int cuMemHostRegister_v2(void *addr, size_t len, unsigned int flags)
{
	int ret = driver_enter_unsafe("cuMemHostRegister"), i, room = -1;
	char *at = addr;

	(void)flags;
	if (ret)
		return ret;
	for (i = 0; i < PINS; i++) {
		if (!pins[i].at)
			room = i;
		else if (at < pins[i].at + pins[i].len && pins[i].at < at + len)
			return driver_leave(ALREADY_REGISTERED);
	}
	if (room < 0)
		return driver_leave(OUT_OF_MEMORY);
	pins[room].at = at;
	pins[room].len = len;
	npins++;
	return driver_leave(OK);
}

EXPORT int cuMemHostUnregister(void *addr);
EXPORT int cuMemHostUnregister(void *addr)
{
	int ret = driver_enter_unsafe("cuMemHostUnregister"), i;

	if (ret)
		return ret;
	for (i = 0; i < PINS; i++) {
		if (pins[i].at != addr)
			continue;
		pins[i].at = NULL;
		npins--;
		return driver_leave(OK);
	}
	return driver_leave(NOT_REGISTERED);
}

/* --- devices and contexts ------------------------------------------------ */

static void *work(void *arg);
static int object_free(const struct object *one, const struct context *all);

/* Destroys a context with its streams and events, and with the memory of other
 * processes that was opened in it. The lock is held. */
static void context_destroy(struct context *context)
{
	context->gone = true;
	object_free(NULL, context);
	ipc_context_gone(context);
}

EXPORT int cuInit(unsigned int flags);
EXPORT int cuInit(unsigned int flags)
{
	pthread_t thread;
	int ret = OK, i;

	pthread_mutex_lock(&lock);
	if (!initialised && !flags) {
		for (i = 0; i < DEVICES; i++) {
			primary[i].device = i;
			primary[i].strict = true;
		}
		initialised = !pthread_create(&thread, NULL, work, NULL);
		if (initialised)
			pthread_detach(thread);
	}
	ret = initialised ? OK : NOT_INITIALIZED;
	return driver_leave(ret);
}

EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDeviceGetCount(int *count)
{
	int ret = driver_enter("cuDeviceGetCount", false);

	if (ret)
		return ret;
	*count = DEVICES;
	return driver_leave(OK);
}

EXPORT int cuDeviceGet(int *device, int ordinal);
EXPORT int cuDeviceGet(int *device, int ordinal)
{
	int ret = driver_enter("cuDeviceGet", false);

	if (ret)
		return ret;
	if (ordinal < 0 || ordinal >= DEVICES)
		return driver_leave(INVALID_DEVICE);
	*device = ordinal;
	return driver_leave(OK);
}

EXPORT int cuDeviceGetUuid(char *uuid, int device);
EXPORT int cuDeviceGetUuid(char *uuid, int device)
{
	int ret = driver_enter("cuDeviceGetUuid", false);

	if (ret)
		return ret;
	if (device < 0 || device >= DEVICES)
		return driver_leave(INVALID_DEVICE);
	memcpy(uuid, "stand-in device", 16);
	uuid[15] = (char)('0' + device);
	return driver_leave(OK);
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned int *flags,
				      int *active);
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned int *flags,
				      int *active)
{
	int ret = driver_enter("cuDevicePrimaryCtxGetState", false);

	if (ret)
		return ret;
	*flags = 0;
	*active = primary_uses[device] != 0;
	return driver_leave(OK);
}

void driver_primary_use(int device, bool on)
{
	if (on) {
		primary_uses[device]++;
		primary[device].gone = false;
	} else if (!--primary_uses[device]) {
		context_destroy(&primary[device]);
	}
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device);
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
	int ret = driver_enter("cuDevicePrimaryCtxRetain", false);

	if (ret)
		return ret;
	driver_primary_use(device, true);
	nprimary++;
	*context = &primary[device];
	return driver_leave(OK);
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device);
EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
	int ret = driver_enter("cuDevicePrimaryCtxRelease", false);

	if (ret)
		return ret;
	if (device >= DEVICES || !primary_uses[device])
		return driver_leave(INVALID_DEVICE);
	nprimary--;
	driver_primary_use(device, false);
	return driver_leave(OK);
}

EXPORT int cuCtxGetDevice(int *device);
EXPORT int cuCtxGetDevice(int *device)
{
	int ret = driver_enter("cuCtxGetDevice", true);

	if (ret)
		return ret;
	*device = driver_current()->device;
	return driver_leave(OK);
}

EXPORT int cuCtxCreate_v2(void **context, unsigned int flags, int device);
EXPORT int cuCtxCreate_v2(void **context, unsigned int flags, int device)
{
	static struct context contexts[256];
	static unsigned int n;
	int ret = driver_enter("cuCtxCreate", false);

	if (ret)
		return ret;
	if (n == 256 || depth == DEPTH || device < 0 || device >= DEVICES)
		return driver_leave(INVALID_DEVICE);
	contexts[n].device = device;
	contexts[n].flags = flags;
	stack[depth++] = &contexts[n];
	*context = &contexts[n++];
	return driver_leave(OK);
}

EXPORT int cuCtxGetFlags(unsigned int *flags);
EXPORT int cuCtxGetFlags(unsigned int *flags)
{
	int ret = driver_enter("cuCtxGetFlags", true);

	if (ret)
		return ret;
	*flags = driver_current()->flags;
	return driver_leave(OK);
}

EXPORT int cuCtxSetFlags(unsigned int flags);
EXPORT int cuCtxSetFlags(unsigned int flags)
{
	int ret = driver_enter("cuCtxSetFlags", true);

	if (ret)
		return ret;
	driver_current()->flags = flags;
	return driver_leave(OK);
}

EXPORT int cuCtxDestroy_v2(void *context);
EXPORT int cuCtxDestroy_v2(void *context)
{
	int ret = driver_enter("cuCtxDestroy", false);

	if (ret)
		return ret;
	context_destroy(context);
	return driver_leave(OK);
}

EXPORT int cuCtxPushCurrent_v2(void *context);
EXPORT int cuCtxPushCurrent_v2(void *context)
{
	int ret = driver_enter("cuCtxPushCurrent", false);

	if (ret)
		return ret;
	if (!context || ((struct context *)context)->gone || depth == DEPTH)
		return driver_leave(INVALID_CONTEXT);
	stack[depth++] = context;
	return driver_leave(OK);
}

EXPORT int cuCtxGetCurrent(void **context);
EXPORT int cuCtxGetCurrent(void **context)
{
	int ret = driver_enter("cuCtxGetCurrent", false);

	if (ret)
		return ret;
	*context = driver_current();
	return driver_leave(OK);
}

EXPORT int cuCtxPopCurrent_v2(void **context);
EXPORT int cuCtxPopCurrent_v2(void **context)
{
	int ret = driver_enter("cuCtxPopCurrent", false);

	if (ret)
		return ret;
	if (!depth)
		return driver_leave(INVALID_CONTEXT);
	*context = stack[--depth];
	return driver_leave(OK);
}

/* --- streams and events -------------------------------------------------- */

static int object_make(const char *call, void **out)
{
	int ret = driver_enter(call, true);
	struct object *o;

	if (ret)
		return ret;
	o = calloc(1, sizeof(*o));
	if (!o)
		return driver_leave(OUT_OF_MEMORY);
	o->context = driver_current();
	o->next = objects;
	objects = o;
	nobjects++;
	*out = o;
	return driver_leave(OK);
}

/* Frees the object `one`, or all objects of the context `all`; the other
 * parameter is NULL. The lock is held. */
static int object_free(const struct object *one, const struct context *all)
{
	struct object **p = &objects, *o;
	int ret = INVALID_HANDLE;

	while ((o = *p)) {
		if (o != one && o->context != all) {
			p = &o->next;
			continue;
		}
		*p = o->next;
		free(o);
		nobjects--;
		ret = OK;
	}
	return ret;
}

/* Returns true if the stream or event exists and belongs to the current
 * context. The lock is held. */
static bool object_here(const struct object *o)
{
	const struct object *p;

	for (p = objects; p && p != o; p = p->next)
		;
	return p && p->context == driver_current();
}

EXPORT int cuStreamCreate(void **out, unsigned int flags);
EXPORT int cuStreamCreate(void **out, unsigned int flags)
{
	(void)flags;
	return object_make("cuStreamCreate", out);
}

EXPORT int cuStreamDestroy_v2(void *stream);
EXPORT int cuStreamDestroy_v2(void *stream)
{
	int ret = driver_enter("cuStreamDestroy", false);

	return ret ? ret : driver_leave(object_free(stream, NULL));
}

EXPORT int cuStreamQuery(void *stream);
EXPORT int cuStreamQuery(void *stream)
{
	struct object *s = stream;
	int ret = driver_enter_unsafe("cuStreamQuery");

	if (ret)
		return ret;
	if (!object_here(s))
		return driver_leave(INVALID_HANDLE);
	return driver_leave(s->job <= done ? OK : NOT_READY);
}

EXPORT int cuEventCreate(void **out, unsigned int flags);
EXPORT int cuEventCreate(void **out, unsigned int flags)
{
	(void)flags;
	return object_make("cuEventCreate", out);
}

EXPORT int cuEventDestroy_v2(void *event);
EXPORT int cuEventDestroy_v2(void *event)
{
	int ret = driver_enter("cuEventDestroy", false);

	return ret ? ret : driver_leave(object_free(event, NULL));
}

EXPORT int cuEventRecord(void *event, void *stream);
EXPORT int cuEventRecord(void *event, void *stream)
{
	int ret = driver_enter("cuEventRecord", true);
	struct object *s = stream;
	struct object *e = event;

	if (ret)
		return ret;
	if (!object_here(e) || !object_here(s))
		return driver_leave(INVALID_HANDLE);
	e->job = s->job;
	return driver_leave(OK);
}

EXPORT int cuEventQuery(void *event);
EXPORT int cuEventQuery(void *event)
{
	int ret = driver_enter_unsafe("cuEventQuery");
	struct object *e = event;

	if (ret)
		return ret;
	if (!object_here(e))
		return driver_leave(INVALID_HANDLE);
	return driver_leave(e->job <= done ? OK : NOT_READY);
}

/* --- copies -------------------------------------------------------------- */

static void *work(void *arg)
{
	struct job *j;

	(void)arg;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!jobs || held)
			pthread_cond_wait(&cond, &lock);
		j = jobs;
		jobs = j->next;
		if (!jobs)
			jobs_end = &jobs;
		pthread_mutex_unlock(&lock);
		memmove(j->dst, j->src, j->len);
		pthread_mutex_lock(&lock);
		done = j->number;
		ncopies++;
		free(j);
		pthread_cond_broadcast(&cond);
	}
	return NULL;
}

/* Queues a copy and returns its number. Returns 0 if a range is not valid or
 * malloc fails. The lock is held. */
static uint64_t queue(uint64_t dst, uint64_t src, size_t len)
{
	void *to = memory_bytes(dst, len), *from = memory_bytes(src, len);
	struct job *j = to && from ? calloc(1, sizeof(*j)) : NULL;

	if (!j)
		return 0;
	j->dst = to;
	j->src = from;
	j->len = len;
	j->number = ++asked;
	*jobs_end = j;
	jobs_end = &j->next;
	pthread_cond_broadcast(&cond);
	return j->number;
}

EXPORT int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t len, void *stream);
EXPORT int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t len, void *stream)
{
	int ret = driver_enter("cuMemcpyAsync", true);
	struct object *s = stream;
	uint64_t number;

	if (ret)
		return ret;
	if (!object_here(s))
		return driver_leave(INVALID_HANDLE);
	number = queue(dst, src, len);
	if (!number)
		return driver_leave(INVALID_VALUE);
	s->job = number;
	return driver_leave(OK);
}

static int copy_now(const char *call, uint64_t dst, uint64_t src, size_t len)
{
	int ret = driver_enter(call, false);
	uint64_t number;

	if (ret)
		return ret;
	number = queue(dst, src, len);
	if (!number)
		return driver_leave(INVALID_VALUE);
	while (done < number)
		pthread_cond_wait(&cond, &lock);
	return driver_leave(OK);
}

EXPORT int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t len);
EXPORT int cuMemcpyHtoD_v2(uint64_t dst, const void *src, size_t len)
{
	return copy_now("cuMemcpyHtoD", dst, (uintptr_t)src, len);
}

EXPORT int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t len);
EXPORT int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t len)
{
	return copy_now("cuMemcpyDtoH", (uintptr_t)dst, src, len);
}

EXPORT int cuGetErrorName(int result, const char **name);
EXPORT int cuGetErrorName(int result, const char **name)
{
	switch (result) {
	case INVALID_VALUE:
		*name = "CUDA_ERROR_INVALID_VALUE";
		return OK;
	case OUT_OF_MEMORY:
		*name = "CUDA_ERROR_OUT_OF_MEMORY";
		return OK;
	case INVALID_CONTEXT:
		*name = "CUDA_ERROR_INVALID_CONTEXT";
		return OK;
	case INVALID_HANDLE:
		*name = "CUDA_ERROR_INVALID_HANDLE";
		return OK;
	default:
		return INVALID_VALUE;
	}
}

/* --- calls that no real driver has --------------------------------------- */

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode);
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int was = capture_mode;

	capture_mode = *mode;
	*mode = was;
	return OK;
}

EXPORT void *stand_in_bytes(uint64_t addr, size_t len);
EXPORT void *stand_in_bytes(uint64_t addr, size_t len)
{
	void *bytes;

	pthread_mutex_lock(&lock);
	bytes = driver_memory_at(addr) ? memory_bytes(addr, len) : NULL;
	pthread_mutex_unlock(&lock);
	return bytes;
}

EXPORT void *stand_in_alias(uint64_t addr, size_t len);
EXPORT void *stand_in_alias(uint64_t addr, size_t len)
{
	const struct context *context;
	struct memory *m;
	void *bytes = NULL;

	pthread_mutex_lock(&lock);
	m = driver_memory_at(addr);
	context = m && m->context ? m->context : m ? &primary[m->device] : NULL;
	if (m && (m->sync_calls || context->flags & CTX_SYNC_MEMOPS))
		bytes = memory_bytes(addr, len);
	pthread_mutex_unlock(&lock);
	return bytes;
}

EXPORT int stand_in_capture(int on);
EXPORT int stand_in_capture(int on)
{
	bool lost;

	pthread_mutex_lock(&lock);
	capturing = on;
	lost = capture_lost;
	capture_lost = false;
	pthread_mutex_unlock(&lock);
	return lost ? CAPTURE_INVALIDATED : OK;
}

EXPORT void stand_in_fail(const char *call, unsigned int after, int result);
EXPORT void stand_in_fail(const char *call, unsigned int after, int result)
{
	pthread_mutex_lock(&lock);
	strncpy(fail_call, call, sizeof(fail_call) - 1);
	fail_after = after;
	fail_result = result;
	pthread_mutex_unlock(&lock);
}

EXPORT bool stand_in_failing(void);
EXPORT bool stand_in_failing(void)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = fail_call[0];
	pthread_mutex_unlock(&lock);
	return is;
}

EXPORT void stand_in_hold(int on);
EXPORT void stand_in_hold(int on)
{
	pthread_mutex_lock(&lock);
	held = on & 1;
	closes_held = on & 2;
	pthread_cond_broadcast(&cond);
	pthread_mutex_unlock(&lock);
}

EXPORT unsigned int stand_in_left(void);
EXPORT unsigned int stand_in_left(void)
{
	unsigned int n;

	pthread_mutex_lock(&lock);
	n = nobjects + npins + depth + nprimary + nopened +
	    driver_mapped_left();
	pthread_mutex_unlock(&lock);
	return n;
}

EXPORT unsigned int stand_in_copies(void);
EXPORT unsigned int stand_in_copies(void)
{
	unsigned int n;

	pthread_mutex_lock(&lock);
	n = ncopies;
	pthread_mutex_unlock(&lock);
	return n;
}

EXPORT unsigned int stand_in_queued(void);
EXPORT unsigned int stand_in_queued(void)
{
	unsigned int n;

	pthread_mutex_lock(&lock);
	n = (unsigned int)(asked - done);
	pthread_mutex_unlock(&lock);
	return n;
}
