/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory of this process that peers can map.
 *
 * There is one file for each page size: a sealed memfd that is far larger than
 * all memory, and sparse. Memory gets the next part of the file that was never
 * used. An offset is never used twice, so a peer's mapping of memory that was
 * freed does not reach the memory that was allocated after it. The shared
 * registration table contains the number and the inode number of each file, and
 * the position of each region in its file.
 *
 * A freed part of a file is punched out, which frees its pages even if peers
 * still map them. At this point, no peer accesses them: the memory was
 * unregistered, which waits for the copy slots. Without that wait, an access to
 * a hole would get a new page. This would be harmless with ordinary pages, but
 * would fail with SIGBUS if a pool of huge pages is empty.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "prov/local/local_int.h"
#include "prov/local/local_memfd.h"
#include "prov/local/tei_local_memory.h"

#define MEMORY_NAME "moonrail-memory"
#define MEMORY_2M   (UINT64_C(2) << 20)
#define MEMORY_1G   (UINT64_C(1) << 30)
#define MEMORY_HUGE_SHIFT 26 /* position of the page size in the flags of
			      * memfd_create */

/* Numbers of the files. */
enum memory_file { MEMORY_SMALL, MEMORY_HUGE_2M, MEMORY_HUGE_1G };

_Static_assert(MEMORY_HUGE_1G + 1 == LOCAL_FILES, "one file per page size");

void local_memory_init(struct tei_local *ctx)
{
	uint32_t i;

	for (i = 0; i < LOCAL_FILES; i++)
		ctx->memory.fd[i] = -1;
}

/* Returns the number of the file for a page size, or LOCAL_FILES if no file has
 * pages of that size. */
static uint32_t memory_file(uint64_t page)
{
	if (page == MEMORY_2M)
		return MEMORY_HUGE_2M;
	if (page == MEMORY_1G)
		return MEMORY_HUGE_1G;
	return page == (uint64_t)sysconf(_SC_PAGESIZE) ? MEMORY_SMALL :
							 LOCAL_FILES;
}

/* Creates the file unless it exists, and publishes it. */
static bool memory_open(struct tei_local *ctx, uint32_t file, uint64_t page)
	TEI_REQUIRES(ctx->lock)
{
	struct local_file *f = &ctx->shared->head.files[file];
	unsigned int flags = 0;
	int *fd = &ctx->memory.fd[file];

	if (*fd >= 0)
		return true;
	if (file != MEMORY_SMALL)
		flags = MFD_HUGETLB | (unsigned int)__builtin_ctzll(page)
					      << MEMORY_HUGE_SHIFT;
	*fd = local_memfd_create(MEMORY_NAME, flags, LOCAL_FILE_SIZE);
	if (*fd < 0) {
		TEI_LOG_LIMITED(&ctx->log_limit, TEI_LOG_INFO, "local",
				"memory with pages of %llu KiB is not shared, the kernel copies to and from other processes: %s",
				(unsigned long long)page >> 10,
				strerrordesc_np(errno));
		return false;
	}
	atomic_store(&f->inode, local_memfd_inode(*fd));
	atomic_store(&f->number, (uint64_t)*fd + 1);
	return true;
}

/* --- extents -------------------------------------------------------------- */

/* Returns the index of the first extent that ends above addr. */
static uint32_t memory_seek(const struct local_memory *m, uint64_t addr)
{
	uint32_t lo = 0, hi = m->n, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (m->extents[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool memory_room(struct local_memory *m)
{
	uint32_t want = m->room ? 2 * m->room : 16;
	struct local_extent *p;

	if (m->n < m->room)
		return true;
	p = realloc(m->extents, want * sizeof(*p));
	if (!p)
		return false;
	m->extents = p;
	m->room = want;
	return true;
}

/* Adds an extent, whose place in the file is not used yet. Returns false if
 * no memory could be allocated or the file is full. */
static bool memory_add(struct local_memory *m, uint32_t file, uint64_t base,
		       uint64_t len, struct local_extent *out)
{
	/* transparent huge pages need the same alignment in file and memory */
	uint64_t align = len < MEMORY_2M ? 1 : MEMORY_2M;
	uint64_t at = (m->next[file] + align - 1) & ~(align - 1);
	uint32_t i = memory_seek(m, base);

	if (len > LOCAL_FILE_SIZE - at || !memory_room(m))
		return false;
	*out = (struct local_extent){ .base = base,
				      .end = base + len,
				      .offset = at,
				      .file = file };
	memmove(&m->extents[i + 1], &m->extents[i],
		(m->n - i) * sizeof(m->extents[0]));
	m->extents[i] = *out;
	m->n++;
	m->next[file] = at + len;
	return true;
}

/* Removes the extent at base. Returns false if there is none. */
static bool memory_remove(struct local_memory *m, uint64_t base,
			  struct local_extent *out)
{
	uint32_t i = memory_seek(m, base);

	if (i == m->n || m->extents[i].base != base)
		return false;
	*out = m->extents[i];
	m->n--;
	memmove(&m->extents[i], &m->extents[i + 1],
		(m->n - i) * sizeof(m->extents[0]));
	return true;
}

/* Frees the pages in a part of a file. */
static void memory_punch(int fd, uint64_t offset, uint64_t len)
{
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)offset, (off_t)len))
		TEI_DEBUG_LOG("local", "freed memory stays allocated as long as a process maps it: %s",
			      strerrordesc_np(errno));
}

void local_memory_locate(struct tei_local *ctx, struct local_region *region)
{
	const struct local_memory *m = &ctx->memory;
	uint32_t i = memory_seek(m, region->base);
	const struct local_extent *x;

	if (i == m->n)
		return;
	x = &m->extents[i];
	if (region->base < x->base || region->end > x->end)
		return;
	region->file = x->file + 1;
	region->offset = x->offset + (region->base - x->base);
}

/* --- the calls ------------------------------------------------------------ */

/* Maps the extent. Returns 0 or an errno. */
static int memory_map(const struct local_memory *m,
		      const struct local_extent *x)
{
	uint64_t len = x->end - x->base;
	void *addr = (void *)(uintptr_t)x->base;

	if (mmap(addr, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 m->fd[x->file], (off_t)x->offset) == MAP_FAILED ||
	    madvise(addr, len, MADV_DONTFORK))
		return errno;
	return 0;
}

int tei_local_memory_map(struct tei_local *ctx, void *addr, uint64_t len,
			 uint64_t page)
{
	uint64_t base = (uint64_t)(uintptr_t)addr;
	uint32_t file = memory_file(page);
	struct local_extent x;
	int ret = ENOTSUP;

	if (local_guard(ctx) || !ctx->shared || file == LOCAL_FILES || !len ||
	    base % page || len % page || base > UINT64_MAX - len)
		return ENOTSUP;
	local_watch_hold(ctx);
	tei_mutex_lock(&ctx->lock);
	if (memory_open(ctx, file, page) &&
	    memory_add(&ctx->memory, file, base, len, &x)) {
		ret = memory_map(&ctx->memory, &x);
		if (ret)
			memory_remove(&ctx->memory, base, &x);
	}
	tei_mutex_unlock(&ctx->lock);
	return ret;
}

void tei_local_memory_free(struct tei_local *ctx, void *addr)
{
	struct local_extent x;
	bool found;

	if (local_guard(ctx))
		return;
	tei_mutex_lock(&ctx->lock);
	found = memory_remove(&ctx->memory, (uint64_t)(uintptr_t)addr, &x);
	tei_mutex_unlock(&ctx->lock);
	/* this may take long, and no other extent uses this part of the file */
	if (found)
		memory_punch(ctx->memory.fd[x.file], x.offset, x.end - x.base);
}

void local_memory_fini(struct tei_local *ctx, bool drained)
{
	struct local_memory *m = &ctx->memory;
	uint32_t i;

	for (i = 0; i < LOCAL_FILES; i++) {
		if (m->fd[i] < 0)
			continue;
		if (drained || i == MEMORY_SMALL)
			memory_punch(m->fd[i], 0, LOCAL_FILE_SIZE);
		close(m->fd[i]);
	}
}
