/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Physical memory that is mapped to reserved addresses. A chunk is a memfd. A
 * reserved range consists of two ranges of the same size: the addresses of the
 * GPU memory, which are mapped without access, and the addresses at which the
 * driver accesses the bytes.
 */
#include "fabtests/common/cuda_stand_in_int.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNKS	 400
#define RESERVES 64
#define GRAIN	 65536u
#define HANDLE_FD 1
#define LOCATION_DEVICE 1
#define READ_WRITE 3

struct chunk {
	uint64_t handle;		/* if 0, the slot is free */
	size_t size;
	int fd;
	int device;
	int shared;			/* type of handles that can be
					 * exported */
	unsigned int refs;		/* number of references to the handle */
	unsigned int maps;		/* number of mappings */
	bool imported;
	bool own;			/* true: the program has one
					 * reference */
};

struct location {
	int type, id;
};

struct prop {
	int type, handles;
	struct location location;
	void *meta;
	unsigned char flags[8];
};

struct access {
	struct location location;
	int flags;
};

static struct chunk chunks[CHUNKS];
static struct reserve reserves[RESERVES];
static uint64_t handles;		/* number of chunks ever made */

/* --- chunks --------------------------------------------------------------- */

static struct chunk *chunk_find(uint64_t handle)
{
	int i;

	for (i = 0; i < CHUNKS; i++)
		if (handle && chunks[i].handle == handle && chunks[i].refs)
			return &chunks[i];
	return NULL;
}

/* Makes a chunk of the file, with one reference. The chunk owns the file.
 * Returns NULL if there is no room. */
static struct chunk *chunk_make(int fd, size_t size, int device)
{
	int i;

	for (i = 0; i < CHUNKS && chunks[i].handle; i++)
		;
	if (i == CHUNKS || fd < 0) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	chunks[i] = (struct chunk){ .handle = ++handles << 8 | 1, .size = size,
				    .fd = fd, .device = device, .refs = 1 };
	return &chunks[i];
}

/* Frees the chunk if nothing refers to it. */
static void chunk_put(struct chunk *c)
{
	if (c->refs || c->maps)
		return;
	close(c->fd);
	c->handle = 0;
}

EXPORT int cuMemRetainAllocationHandle(uint64_t *handle, void *addr);
EXPORT int cuMemRetainAllocationHandle(uint64_t *handle, void *addr)
{
	int ret = driver_enter("cuMemRetainAllocationHandle", false);
	const struct memory *m;

	if (ret)
		return ret;
	m = driver_memory_at((uintptr_t)addr);
	if (!m || !m->reserve)
		return driver_leave(INVALID_VALUE);
	m->chunk->refs++;
	*handle = m->chunk->handle;
	return driver_leave(OK);
}

EXPORT int cuMemRelease(uint64_t handle);
EXPORT int cuMemRelease(uint64_t handle)
{
	int ret = driver_enter("cuMemRelease", false);
	struct chunk *c;

	if (ret)
		return ret;
	c = chunk_find(handle);
	if (!c || c->refs == c->own)
		return driver_leave(INVALID_VALUE);
	c->refs--;
	chunk_put(c);
	return driver_leave(OK);
}

EXPORT int cuMemGetAllocationPropertiesFromHandle(struct prop *prop,
						  uint64_t handle);
EXPORT int cuMemGetAllocationPropertiesFromHandle(struct prop *prop,
						  uint64_t handle)
{
	int ret = driver_enter("cuMemGetAllocationPropertiesFromHandle", false);
	const struct chunk *c;

	if (ret)
		return ret;
	c = chunk_find(handle);
	if (!c)
		return driver_leave(INVALID_VALUE);
	*prop = (struct prop){ .type = 1, .handles = c->shared,
			       .location = { LOCATION_DEVICE, c->device } };
	return driver_leave(OK);
}

/* The file descriptor has no FD_CLOEXEC: the library must set this flag itself,
 * because a driver may leave it out. */
EXPORT int cuMemExportToShareableHandle(int *fd, uint64_t handle, int type,
					unsigned long long flags);
EXPORT int cuMemExportToShareableHandle(int *fd, uint64_t handle, int type,
					unsigned long long flags)
{
	int ret = driver_enter("cuMemExportToShareableHandle", false), number;
	const struct chunk *c;

	if (ret)
		return ret;
	c = chunk_find(handle);
	if (!c || type != HANDLE_FD || !(c->shared & type) || flags)
		return driver_leave(INVALID_VALUE);
	if (driver_refuses("export"))
		return driver_leave(NOT_SUPPORTED);
	number = dup(c->fd);
	if (number < 0)
		return driver_leave(OUT_OF_MEMORY);
	*fd = number;
	return driver_leave(OK);
}

EXPORT int cuMemImportFromShareableHandle(uint64_t *handle, void *from,
					  int type);
EXPORT int cuMemImportFromShareableHandle(uint64_t *handle, void *from,
					  int type)
{
	int ret = driver_enter_unsafe("cuMemImportFromShareableHandle");
	struct chunk *c;
	struct stat st;
	int fd = (int)(intptr_t)from;

	if (ret)
		return ret;
	if (driver_refuses("open"))
		return driver_leave(NOT_SUPPORTED);
	if (type != HANDLE_FD || fstat(fd, &st) || !S_ISREG(st.st_mode) ||
	    !st.st_size || st.st_size % GRAIN)
		return driver_leave(INVALID_VALUE);
	/* the mode of the file contains the device, see map_chunk */
	c = chunk_make(fcntl(fd, F_DUPFD_CLOEXEC, 0), (size_t)st.st_size,
		       st.st_mode & 1);
	if (!c)
		return driver_leave(OUT_OF_MEMORY);
	c->imported = true;
	*handle = c->handle;
	return driver_leave(OK);
}

/* --- addresses ------------------------------------------------------------ */

static struct reserve *reserve_at(uint64_t addr, size_t size)
{
	struct reserve *r;

	for (r = reserves; r < reserves + RESERVES; r++)
		if (r->base && addr >= r->base && addr - r->base < r->size &&
		    size <= r->size - (addr - r->base))
			return r;
	return NULL;
}

static void *reserve_pages(size_t size)
{
	return mmap(NULL, size, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static int reserve_make(size_t size, struct reserve **out)
{
	struct reserve *r = reserves;
	void *base, *alias;

	while (r < reserves + RESERVES && r->base)
		r++;
	if (r == reserves + RESERVES || !size || size % GRAIN)
		return INVALID_VALUE;
	base = reserve_pages(size);
	alias = reserve_pages(size);
	if (base == MAP_FAILED || alias == MAP_FAILED)
		return OUT_OF_MEMORY;
	*r = (struct reserve){ .base = (uintptr_t)base, .alias = alias,
			       .size = size };
	*out = r;
	return OK;
}

EXPORT int cuMemAddressReserve(uint64_t *addr, size_t size, size_t align,
			       uint64_t at, unsigned long long flags);
EXPORT int cuMemAddressReserve(uint64_t *addr, size_t size, size_t align,
			       uint64_t at, unsigned long long flags)
{
	int ret = driver_enter_unsafe("cuMemAddressReserve");
	struct reserve *r;

	if (ret)
		return ret;
	if (align || at || flags)
		return driver_leave(INVALID_VALUE);
	ret = reserve_make(size, &r);
	if (!ret)
		*addr = r->base;
	return driver_leave(ret);
}

static void reserve_free(struct reserve *r)
{
	munmap((void *)(uintptr_t)r->base, r->size);
	munmap(r->alias, r->size);
	r->base = 0;
}

/* Returns true if memory is mapped in the range. */
static bool reserve_used(uint64_t addr, size_t size)
{
	uint64_t at;

	for (at = addr; at < addr + size; at += GRAIN)
		if (driver_memory_at(at))
			return true;
	return false;
}

EXPORT int cuMemAddressFree(uint64_t addr, size_t size);
EXPORT int cuMemAddressFree(uint64_t addr, size_t size)
{
	int ret = driver_enter("cuMemAddressFree", false);
	struct reserve *r;

	if (ret)
		return ret;
	r = reserve_at(addr, size);
	if (!r || r->base != addr || r->size != size ||
	    reserve_used(addr, size))
		return driver_leave(INVALID_VALUE);
	reserve_free(r);
	return driver_leave(OK);
}

/* --- mappings ------------------------------------------------------------- */

static int map_at(struct reserve *r, uint64_t addr, struct chunk *c)
{
	struct memory *m = driver_memory_room();
	char *alias = r->alias + (addr - r->base);

	if (!m)
		return OUT_OF_MEMORY;
	if (mmap(alias, c->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 c->fd, 0) == MAP_FAILED)
		return OUT_OF_MEMORY;
	*m = (struct memory){ .base = addr, .alias = alias, .size = c->size,
			      .device = c->device, .fd = c->fd, .reserve = r,
			      .chunk = c };
	c->maps++;
	return OK;
}

EXPORT int cuMemMap(uint64_t addr, size_t size, size_t offset, uint64_t handle,
		    unsigned long long flags);
EXPORT int cuMemMap(uint64_t addr, size_t size, size_t offset, uint64_t handle,
		    unsigned long long flags)
{
	int ret = driver_enter_unsafe("cuMemMap");
	struct reserve *r;
	struct chunk *c;

	if (ret)
		return ret;
	r = reserve_at(addr, size);
	c = chunk_find(handle);
	if (!r || !c || c->size != size || offset || flags ||
	    reserve_used(addr, size))
		return driver_leave(INVALID_VALUE);
	return driver_leave(map_at(r, addr, c));
}

static void unmap(struct memory *m)
{
	mmap(m->alias, m->size, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	m->base = 0;
	m->chunk->maps--;
	chunk_put(m->chunk);
}

/* Returns true if the range consists of whole mappings. */
static bool map_whole(uint64_t addr, size_t size)
{
	const struct memory *m;
	uint64_t at = addr;

	while (at < addr + size) {
		m = driver_memory_at(at);
		if (!m || !m->reserve || m->base != at)
			return false;
		at += m->size;
	}
	return at == addr + size;
}

EXPORT int cuMemUnmap(uint64_t addr, size_t size);
EXPORT int cuMemUnmap(uint64_t addr, size_t size)
{
	int ret = driver_enter("cuMemUnmap", false);
	struct memory *m;
	uint64_t at = addr;
	bool imported;

	if (ret)
		return ret;
	if (!size || !map_whole(addr, size))
		return driver_leave(INVALID_VALUE);
	imported = driver_memory_at(addr)->chunk->imported;
	while (at < addr + size) {
		m = driver_memory_at(at);
		at += m->size;
		unmap(m);
	}
	if (imported)
		driver_close_wait();
	return driver_leave(OK);
}

static void map_permit(uint64_t addr, size_t size, int device)
{
	struct memory *m;
	uint64_t at;

	for (at = addr; at < addr + size; at += m->size) {
		m = driver_memory_at(at);
		m->access |= 1u << device;
	}
}

EXPORT int cuMemSetAccess(uint64_t addr, size_t size, const struct access *a,
			  size_t n);
EXPORT int cuMemSetAccess(uint64_t addr, size_t size, const struct access *a,
			  size_t n)
{
	int ret = driver_enter("cuMemSetAccess", false);

	if (ret)
		return ret;
	if (n != 1 || a->location.type != LOCATION_DEVICE ||
	    a->location.id < 0 || a->location.id >= DEVICES ||
	    a->flags != READ_WRITE || !size || !map_whole(addr, size))
		return driver_leave(INVALID_VALUE);
	map_permit(addr, size, a->location.id);
	return driver_leave(OK);
}

EXPORT int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t addr);
EXPORT int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t addr)
{
	int ret = driver_enter("cuMemGetAddressRange", false);
	const struct memory *m;

	if (ret)
		return ret;
	m = driver_memory_at(addr);
	if (!m)
		return driver_leave(INVALID_VALUE);
	*base = m->base;
	*size = m->size;
	return driver_leave(OK);
}

void *driver_mapped_bytes(uint64_t addr, size_t len)
{
	const struct context *context = driver_current();
	unsigned int access = context ? 1u << context->device : ~0u;
	const struct memory *m = driver_memory_at(addr);
	void *bytes = m->alias + (addr - m->base);
	const struct reserve *r = m->reserve;
	uint64_t at = addr;

	while (at < addr + len) {
		m = driver_memory_at(at);
		if (!m || m->reserve != r || !(m->access & access))
			return NULL;
		at = m->base + m->size;
	}
	return bytes;
}

unsigned int driver_mapped_left(void)
{
	unsigned int n = 0, i;

	for (i = 0; i < CHUNKS; i++)
		if (chunks[i].handle)
			n += chunks[i].refs - chunks[i].own +
			     chunks[i].imported;
	for (i = 0; i < RESERVES; i++)
		n += reserves[i].base && !reserves[i].own;
	return n;
}

/* --- memory of the program ------------------------------------------------ */

static int map_chunk(struct reserve *r, uint64_t addr, int device, size_t size,
		     int shared)
{
	struct chunk *c = chunk_make(driver_file(size), size, device);

	if (!c || fchmod(c->fd, 0600 + (mode_t)device))
		return OUT_OF_MEMORY;
	c->own = true;
	c->shared = shared;
	return map_at(r, addr, c);
}

EXPORT uint64_t stand_in_map(int device, unsigned int n, size_t size,
			     int shared);
EXPORT uint64_t stand_in_map(int device, unsigned int n, size_t size,
			     int shared)
{
	struct reserve *r;
	uint64_t addr = 0;
	unsigned int i;

	if (driver_enter("stand_in_map", false))
		return 0;
	if (!reserve_make(n * size, &r)) {
		r->own = true;
		addr = r->base;
		for (i = 0; i < n && addr; i++)
			if (map_chunk(r, r->base + i * size, device, size,
				      shared))
				addr = 0;
	}
	if (addr) {
		map_permit(addr, n * size, device);
		driver_primary_use(device, true);
	}
	driver_leave(OK);
	return addr;
}

EXPORT void stand_in_unmap(uint64_t addr);
EXPORT void stand_in_unmap(uint64_t addr)
{
	struct reserve *r;
	struct memory *m;
	uint64_t at;

	if (driver_enter("stand_in_unmap", false))
		return;
	r = reserve_at(addr, 1);
	driver_primary_use(driver_memory_at(addr)->device, false);
	for (at = r->base; at < r->base + r->size;) {
		m = driver_memory_at(at);
		at += m->size;
		m->chunk->own = false;
		m->chunk->refs--;
		unmap(m);
	}
	reserve_free(r);
	driver_leave(OK);
}
