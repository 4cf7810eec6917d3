/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/cufile_stand_in.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
	OK = 0, NOT_INITIALIZED = 5001, CUDA_ERROR = 5011, POINTER = 5012,
	NO_DIRECT = 5020, INVALID = 5022, REGISTERED = 5023,
	NOT_REGISTERED = 5024, IS_OPEN = 5026, NO_HANDLE = 5027,
};

struct error {
	int code, cuda;
};

struct descr {
	int type;
	union {
		int fd;
		void *handle;
	} u;
	const void *ops;
};

struct handle {
	struct handle *next;
	int fd;				/* descriptor of this handle, opened
					 * without O_DIRECT */
};

struct memory {
	struct memory *next;
	uint64_t base;
	size_t len;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool opened;
static struct handle *handles;
static struct memory *memories;
static char fail_call[64];
static unsigned int fail_after, fail_times, nmoves;
static int fail_result;
static size_t most;
static void *(*bytes_at)(uint64_t, size_t);
static int (*current)(void **);

/* Returns the error that `fail` has set for this call if it is due, or else OK.
 * The lock is held. */
static int planted(const char *call)
{
	if (strcmp(call, fail_call) || !fail_times)
		return OK;
	if (fail_after) {
		fail_after--;
		return OK;
	}
	fail_times--;
	return fail_result;
}

static struct error answer(int code)
{
	pthread_mutex_unlock(&lock);
	return (struct error){ code, 0 };
}

/* Looks up two functions of the CUDA stand-in, which is loaded because the
 * caller has allocated memory from it. Returns false if one is missing. */
static bool bind_driver(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *f, *g;

	if (!driver)
		return false;
	f = dlsym(driver, "stand_in_bytes");
	g = dlsym(driver, "cuCtxGetCurrent");
	dlclose(driver);		/* the test keeps the driver loaded */
	memcpy(&bytes_at, &f, sizeof(f));
	memcpy(&current, &g, sizeof(g));
	return f && g;
}

EXPORT struct error cuFileDriverOpen(void);
EXPORT struct error cuFileDriverOpen(void)
{
	int ret;

	pthread_mutex_lock(&lock);
	ret = planted("cuFileDriverOpen");
	if (!ret && opened)
		ret = IS_OPEN;
	if (!ret && !bind_driver())
		ret = CUDA_ERROR;
	if (!ret)
		opened = true;
	return answer(ret);
}

EXPORT struct error cuFileHandleRegister(void **out, struct descr *descr);
EXPORT struct error cuFileHandleRegister(void **out, struct descr *descr)
{
	char path[32];
	struct handle *h;
	int ret, flags;

	pthread_mutex_lock(&lock);
	ret = opened ? planted("cuFileHandleRegister") : NOT_INITIALIZED;
	flags = fcntl(descr->u.fd, F_GETFL);
	if (!ret && (descr->type != 1 || flags < 0))
		ret = INVALID;
	if (!ret && !(flags & O_DIRECT))
		ret = NO_DIRECT;
	if (ret)
		return answer(ret);
	h = calloc(1, sizeof(*h));
	if (!h)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", descr->u.fd);
	h->fd = open(path, (flags & O_ACCMODE) | O_CLOEXEC);
	h->next = handles;
	handles = h;
	*out = h;
	return answer(OK);
}

EXPORT void cuFileHandleDeregister(void *handle);
EXPORT void cuFileHandleDeregister(void *handle)
{
	struct handle **p, *h;

	pthread_mutex_lock(&lock);
	for (p = &handles; *p && *p != handle; p = &(*p)->next)
		;
	h = *p;
	if (h) {
		*p = h->next;
		close(h->fd);
		free(h);
	}
	pthread_mutex_unlock(&lock);
}

/* Returns the link to the registration of base, or the link that ends the list
 * if base is not registered. The lock is held. */
static struct memory **memory_at(const void *base)
{
	struct memory **p;

	for (p = &memories; *p && (*p)->base != (uintptr_t)base;
	     p = &(*p)->next)
		;
	return p;
}

EXPORT struct error cuFileBufRegister(const void *base, size_t len, int flags);
EXPORT struct error cuFileBufRegister(const void *base, size_t len, int flags)
{
	struct memory *m;
	int ret;

	pthread_mutex_lock(&lock);
	ret = opened ? planted("cuFileBufRegister") : NOT_INITIALIZED;
	if (!ret && flags)
		ret = INVALID;
	if (!ret && *memory_at(base))
		ret = REGISTERED;
	if (!ret && !bytes_at((uintptr_t)base, len))
		ret = POINTER;
	if (ret)
		return answer(ret);
	m = calloc(1, sizeof(*m));
	if (!m)
		abort();
	m->base = (uintptr_t)base;
	m->len = len;
	m->next = memories;
	memories = m;
	return answer(OK);
}

EXPORT struct error cuFileBufDeregister(const void *base);
EXPORT struct error cuFileBufDeregister(const void *base)
{
	struct memory **p, *m;

	pthread_mutex_lock(&lock);
	p = memory_at(base);
	m = *p;
	if (!m)
		return answer(NOT_REGISTERED);
	*p = m->next;
	free(m);
	return answer(OK);
}

/* Checks a call that moves bytes, and sets *at to the address for the copy.
 * Returns 0, or the negative result that the call returns. The lock is held. */
static ssize_t move_check(const char *call, const struct handle *handle,
			  const void *base, size_t len, off_t off, char **at)
{
	const struct memory *m = *memory_at(base);
	const struct handle *h;
	void *context = NULL;
	int ret = planted(call);

	nmoves++;
	for (h = handles; h && h != handle; h = h->next)
		;
	if (!ret && !h)
		ret = -NO_HANDLE;
	if (!ret && (current(&context) || !context))
		ret = -CUDA_ERROR;
	if (!ret && (!m || off < 0 || (size_t)off > m->len ||
		     len > m->len - (size_t)off))
		ret = -NOT_REGISTERED;
	if (ret)
		return ret;
	*at = bytes_at((uintptr_t)base + (uint64_t)off, len);
	return *at ? 0 : -POINTER;
}

static ssize_t move(const char *call, const struct handle *h, const void *base,
		    size_t len, off_t where, off_t off, bool read)
{
	char *at = NULL;
	ssize_t ret;
	int fd = -1;

	pthread_mutex_lock(&lock);
	ret = move_check(call, h, base, len, off, &at);
	if (!ret)
		fd = h->fd;
	if (most && len > most)
		len = most;
	pthread_mutex_unlock(&lock);
	if (ret) {
		errno = EIO;
		return ret;
	}
	return read ? pread(fd, at, len, where) : pwrite(fd, at, len, where);
}

EXPORT ssize_t cuFileRead(void *handle, void *base, size_t len, off_t where,
			  off_t off);
EXPORT ssize_t cuFileRead(void *handle, void *base, size_t len, off_t where,
			  off_t off)
{
	return move("cuFileRead", handle, base, len, where, off, true);
}

EXPORT ssize_t cuFileWrite(void *handle, const void *base, size_t len,
			   off_t where, off_t off);
EXPORT ssize_t cuFileWrite(void *handle, const void *base, size_t len,
			   off_t where, off_t off)
{
	return move("cuFileWrite", handle, base, len, where, off, false);
}

/* --- calls that no real library has -------------------------------------- */

EXPORT void stand_in_cufile_fail(const char *call, unsigned int after,
				 unsigned int times, int result);
EXPORT void stand_in_cufile_fail(const char *call, unsigned int after,
				 unsigned int times, int result)
{
	pthread_mutex_lock(&lock);
	strncpy(fail_call, call, sizeof(fail_call) - 1);
	fail_after = after;
	fail_times = times;
	fail_result = result;
	pthread_mutex_unlock(&lock);
}

EXPORT void stand_in_cufile_shorten(size_t bytes);
EXPORT void stand_in_cufile_shorten(size_t bytes)
{
	pthread_mutex_lock(&lock);
	most = bytes;
	pthread_mutex_unlock(&lock);
}

EXPORT unsigned int stand_in_cufile_moves(void);
EXPORT unsigned int stand_in_cufile_moves(void)
{
	unsigned int n;

	pthread_mutex_lock(&lock);
	n = nmoves;
	pthread_mutex_unlock(&lock);
	return n;
}

EXPORT unsigned int stand_in_cufile_left(void);
EXPORT unsigned int stand_in_cufile_left(void)
{
	const struct memory *m;
	const struct handle *h;
	unsigned int n = 0;

	pthread_mutex_lock(&lock);
	for (h = handles; h; h = h->next)
		n++;
	for (m = memories; m; m = m->next)
		n++;
	pthread_mutex_unlock(&lock);
	return n;
}
