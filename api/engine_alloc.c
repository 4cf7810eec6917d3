/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * te_alloc and te_free: memory that the engine allocates and registers, on a
 * NUMA node and with huge pages if there are any. Each allocation is a mapping
 * of its own between two inaccessible pages. Therefore the kernel does not
 * merge it with another mapping, and /proc/self/smaps shows which pages it has.
 *
 * Memory that is remotely accessible can be mapped by other processes of this
 * host (tei_local_memory_map). The kernel may provide transparent huge pages
 * only for private memory. Then the memory has small pages: copies through a
 * mapping are as fast with small pages, and several times as fast as kernel
 * copies of huge pages. If NICs access the memory by its registration, however,
 * the memory is private memory with huge pages, because a NIC translates the
 * address of each page.
 */
#include "api/engine_int.h"
#include "api/engine_memory.h"

#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "prov/local/tei_local_memory.h"
#include "topo/tei_topo.h"

#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define ALLOC_SHMEM	"/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define ALLOC_2M	(UINT64_C(2) << 20)
#define ALLOC_1G	(UINT64_C(1) << 30)
#define ALLOC_FLAGS	(TE_ALLOC_PRIVATE | TE_ALLOC_SMALL_PAGES | \
			 TE_ALLOC_HUGE_PAGES | TE_ALLOC_STRICT)
#define ALLOC_SAMPLE	64   /* greatest number of pages of an allocation whose
			      * NUMA node is looked up */
#define ALLOC_NODE_FULL (-1) /* result of alloc_map: the node has not enough
			      * memory; not an errno value */

/* --- nodes --------------------------------------------------------------- */

/* Numbers of pages of a NUMA node, summed up over its zones in
 * /proc/zoneinfo. */
struct alloc_zones {
	uint64_t free;
	uint64_t file;	  /* pages of the page cache, which the kernel can
			   * free */
	uint64_t slab;	  /* pages of kernel caches (reclaimable slabs), which
			   * the kernel can free */
	uint64_t low;	  /* sum of the low watermarks. The kernel does not
			   * free all pages of `file`, and not all pages of
			   * `slab`: it keeps this number of each, or half of
			   * them if that is less. */
	uint64_t reserve; /* free pages that the kernel does not allocate */
};

/* Memory that te_alloc has allocated: a mapping of its own, or GPU memory.
 * Element of engine->memory.allocs. */
struct engine_alloc {
	struct engine_alloc *next;
	bool gpu;			/* GPU memory; only next, addr, length
					 * and node are used */
	struct tei_local *local;	/* context whose peers can map the
					 * memory, or NULL */
	void *base;			/* start of the mapping */
	uint64_t span;			/* length of the mapping, bytes */
	void *addr;			/* start of the caller's memory */
	uint64_t length;		/* length of the caller's memory,
					 * rounded up to pages, bytes */
	uint64_t page;			/* page size, bytes */
	uint32_t kind;			/* enum te_page_kind */
	int node;			/* NUMA node, or -1: several nodes; for
					 * GPU memory the device number */
};

/* Adds the values in a line of /proc/zoneinfo to *z. *high and *managed keep
 * values of the present zone until its line "protection", which is the last
 * line of a zone that is used. */
static void alloc_zone_line(struct alloc_zones *z, const char *line,
			    uint64_t *high, uint64_t *managed)
{
	unsigned long long n, most = 0;
	int used;

	if (sscanf(line, " pages free %llu", &n) == 1) {
		z->free += n;
	} else if (sscanf(line, " nr_inactive_file %llu", &n) == 1 ||
		   sscanf(line, " nr_active_file %llu", &n) == 1) {
		z->file += n;
	} else if (sscanf(line, " nr_slab_reclaimable %llu", &n) == 1) {
		z->slab += n;
	} else if (sscanf(line, " low %llu", &n) == 1) {
		z->low += n;
	} else if (sscanf(line, " high %llu", &n) == 1) {
		*high = n;
	} else if (sscanf(line, " managed %llu", &n) == 1) {
		*managed = n;
	} else if ((line = strstr(line, "protection: ("))) {
		for (line = strchr(line, '(') + 1;
		     sscanf(line, "%llu%n", &n, &used) == 1;
		     line += used + strspn(line + used, ", "))
			most = n > most ? n : most;
		most += *high;
		z->reserve += most < *managed ? most : *managed;
	}
}

static uint64_t alloc_droppable(uint64_t pages, uint64_t low)
{
	return pages - (pages / 2 < low ? pages / 2 : low);
}

/* Returns the number of bytes that can be allocated on the node. Computes them
 * as the kernel computes MemAvailable for the whole machine. */
static uint64_t alloc_node_available(int node)
{
	uint64_t high = 0, managed = 0, have;
	FILE *f = fopen("/proc/zoneinfo", "re");
	struct alloc_zones z = { 0 };
	char line[256];
	int at = -1;

	if (!f)
		return UINT64_MAX;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "Node %d, zone", &at) != 1 && at == node)
			alloc_zone_line(&z, line, &high, &managed);
	fclose(f);
	have = z.free + alloc_droppable(z.file, z.low) +
	       alloc_droppable(z.slab, z.low);
	have -= z.reserve < have ? z.reserve : have;
	return have * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Returns true if "size" bytes can be allocated on the node. The caller checks
 * this because an allocation that is bound to one node does not fail; the
 * kernel kills a process instead. */
static bool alloc_fits(int node, uint64_t size)
{
	return numa_available() < 0 || size <= alloc_node_available(node);
}

static bool alloc_node_there(int node)
{
	if (numa_available() < 0)
		return node == 0;
	return node <= numa_max_node() &&
	       numa_bitmask_isbitset(numa_all_nodes_ptr, (unsigned int)node);
}

/* Parses a location. Sets *gpu to true if it is a GPU. Sets *node to the number
 * of the GPU or of the NUMA node, or to -1 for any NUMA node. */
static int alloc_where(const char *location, int *node, bool *gpu,
		       struct tei_err *err)
{
	struct tei_topo_where where;
	int ret;

	*node = -1;
	*gpu = false;
	ret = location ? tei_topo_where_parse(location, &where, err) : 0;
	if (ret || !location || where.kind == TEI_TOPO_WHERE_ANY)
		return ret;
	*gpu = where.kind == TEI_TOPO_WHERE_CUDA;
	if (*gpu) {
		*node = where.index;
		return 0;
	}
	if (where.kind != TEI_TOPO_WHERE_CPU)
		return tei_err_fail(err, TEI_ERR_NOT_IMPLEMENTED, "engine",
				    NULL, "te_alloc: location %.32s is neither a NUMA node nor a GPU",
				    location);
	if (!alloc_node_there(where.index))
		return tei_err_fail(err, TEI_ERR_NUMA, "engine",
				    "numactl -H lists the nodes",
				    "te_alloc: NUMA node %d does not exist, or this process may not use it",
				    where.index);
	*node = where.index;
	return 0;
}

/* Returns the number of bytes that can be allocated on all nodes together. The
 * caller checks this number, because a larger allocation would not fail; the
 * kernel would kill a process instead. */
static uint64_t alloc_available(void)
{
	unsigned long long kib = 0;
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];

	if (!f)
		return UINT64_MAX;
	while (!kib && fgets(line, sizeof(line), f))
		sscanf(line, "MemAvailable: %llu", &kib);
	fclose(f);
	return kib ? kib << 10 : UINT64_MAX;
}

/* --- mappings ------------------------------------------------------------ */

static uint64_t alloc_round(uint64_t size, uint64_t page)
{
	return (size + page - 1) & ~(page - 1);
}

/*
 * Reserves size bytes at a multiple of align, with an inaccessible small page
 * before and after them. Sets a->base, a->span, a->addr and a->length. Returns
 * 0 or an errno.
 */
static int alloc_reserve(struct engine_alloc *a, uint64_t size, uint64_t align)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at;
	char *base;

	a->span = size + align + 2 * page;
	base = mmap(NULL, a->span, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return errno;
	at = alloc_round((uintptr_t)base + page, align);
	a->base = base;
	a->addr = (void *)(uintptr_t)at;
	a->length = size;
	return 0;
}

static void alloc_unmap(struct engine_alloc *a)
{
	if (a->local)
		tei_local_memory_free(a->local, a->addr);
	munmap(a->base, a->span);
}

/* Maps memory with pages of that size, which peers can map if share is not
 * NULL. flags are added to those of private memory. Returns 0 or an errno. */
static int alloc_map_memory(struct engine_alloc *a, struct tei_local *share,
			    uint64_t page, int flags)
{
	int ret = share ? tei_local_memory_map(share, a->addr, a->length, page) :
			  ENOTSUP;

	a->local = ret ? NULL : share;
	if (ret != ENOTSUP)
		return ret;
	return mmap(a->addr, a->length, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | flags, -1,
		    0) == MAP_FAILED ?
		       errno :
		       0;
}

/* Binds the memory to the node, unless node is -1. If "strict" is false, pages
 * may be on other nodes when the node is full. Returns 0 or an errno. */
static int alloc_bind(struct engine_alloc *a, int node, bool strict)
{
	unsigned long mask[16] = { 0 };
	int bits = (int)(8 * sizeof(long));

	if (node >= 0 && numa_available() >= 0 &&
	    node < 16 * bits) {
		mask[node / bits] = 1UL << node % bits;
		if (mbind(a->addr, a->length,
			  strict ? MPOL_BIND : MPOL_PREFERRED, mask,
			  sizeof(mask) * 8, 0))
			return errno;
	}
	return 0;
}

/* Populates the pages. Returns 0 or an errno. */
static int alloc_populate(struct engine_alloc *a)
{
	/* EINVAL: the kernel is older and does not know MADV_POPULATE_WRITE; it
	 * allocates the pages when they are accessed. EFAULT: the free pages of
	 * the pool are on other nodes. */
	if (!madvise(a->addr, a->length, MADV_POPULATE_WRITE) ||
	    errno == EINVAL)
		return 0;
	return errno == EFAULT ? ENOMEM : errno;
}

/* Allocates memory that consists of huge pages of "page" bytes from the
 * kernel's pool. Returns 0 or an errno. */
static int alloc_pool(struct engine_alloc *a, struct tei_local *share,
		      uint64_t size, uint64_t page, int node, bool strict)
{
	int shift = __builtin_ctzll(page), ret;

	ret = alloc_reserve(a, alloc_round(size, page), page);
	if (ret)
		return ret;
	ret = alloc_map_memory(a, share, page,
			       MAP_HUGETLB | shift << MAP_HUGE_SHIFT);
	if (!ret)
		ret = alloc_bind(a, node, strict);
	if (!ret)
		ret = alloc_populate(a);
	if (ret) {
		alloc_unmap(a);
		return ret;
	}
	a->page = page;
	a->kind = TE_PAGES_HUGE;
	return 0;
}

/* Returns true if a part of the mapping that contains addr consists of
 * transparent huge pages. */
static bool alloc_is_thp(const void *addr)
{
	unsigned long long from, to, n, kib = 0;
	FILE *f = fopen("/proc/self/smaps", "re");
	char line[512];
	bool here = false, past = false;

	while (f && !past && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx-%llx ", &from, &to) == 2) {
			past = here;
			here = (uintptr_t)addr >= from && (uintptr_t)addr < to;
		} else if (here) {
			if (sscanf(line, "AnonHugePages: %llu", &n) == 1 ||
			    sscanf(line, "ShmemPmdMapped: %llu", &n) == 1)
				kib += n;
		}
	}
	if (f)
		fclose(f);
	return kib != 0;
}

/*
 * Replaces the pages of the shared memory by transparent huge pages with
 * MADV_COLLAPSE, 2 MiB at a time, after allocating one page of each 2 MiB.
 * Returns 0, or an errno if the first 2 MiB fail; later failures are ignored.
 */
static int alloc_collapse(struct engine_alloc *a)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at;
	char *p;

	for (at = 0; at < a->length; at += ALLOC_2M) {
		p = (char *)a->addr + at;
		if ((madvise(p, page, MADV_POPULATE_WRITE) ||
		     madvise(p, ALLOC_2M, MADV_COLLAPSE)) && !at)
			return errno;
	}
	return 0;
}

/*
 * Maps the reserved range with ordinary pages that are bound to the node. huge
 * requests transparent huge pages. Returns 0 or an errno.
 */
static int alloc_map_pages(struct engine *e, struct engine_alloc *a,
			   struct tei_local *share, bool huge, int node,
			   bool strict)
{
	int ret = alloc_map_memory(a, share,
				   (uint64_t)sysconf(_SC_PAGESIZE), 0);
	bool nic = tei_rail_wants(e->dp) & TEI_RAIL_WANTS_PINNED;

	if (ret)
		return ret;
	if (!a->local)
		madvise(a->addr, a->length,
			huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	ret = alloc_bind(a, node, strict);
	if (ret || !a->local || !huge)
		return ret;
	ret = alloc_collapse(a);
	if (!ret)
		return 0;
	TEI_LOG_LIMITED(&e->memory.alloc_limit, TEI_LOG_INFO, "engine",
			"te_alloc: %llu bytes: no huge pages in shared memory, so %s: %s (write advise to " ALLOC_SHMEM ", or raise vm.nr_hugepages)",
			(unsigned long long)a->length,
			nic ? "other processes of this host cannot map this memory" :
			      "it has small pages",
			strerror(ret));
	if (!nic)
		return 0;
	tei_local_memory_free(a->local, a->addr);
	return alloc_map_pages(e, a, NULL, huge, node, strict);
}

/* Allocates ordinary pages. If "small" is false, requests transparent huge
 * pages, which the kernel may or may not provide. Returns 0 or an errno. */
static int alloc_pages(struct engine *e, struct engine_alloc *a,
		       struct tei_local *share, uint64_t size, bool small,
		       int node, bool strict)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	bool huge = !small && size >= ALLOC_2M;
	int ret;

	ret = alloc_reserve(a, alloc_round(size, huge ? ALLOC_2M : page),
			    huge ? ALLOC_2M : page);
	if (ret)
		return ret;
	ret = alloc_map_pages(e, a, share, huge, node, strict);
	if (!ret)
		ret = alloc_populate(a);
	if (ret) {
		alloc_unmap(a);
		return ret;
	}
	huge = huge && alloc_is_thp(a->addr);
	a->kind = huge ? TE_PAGES_TRANSPARENT : TE_PAGES_SMALL;
	a->page = huge ? ALLOC_2M : page;
	return 0;
}

/* Allocates memory. Tries the pools of huge pages first, beginning with the
 * largest page size that does not exceed size, and then ordinary pages. Returns
 * 0, an errno or ALLOC_NODE_FULL. */
static int alloc_map(struct engine *e, struct engine_alloc *a, uint64_t size,
		     uint64_t flags, int node)
{
	struct tei_local *share =
		flags & TE_ALLOC_PRIVATE ||
				!__atomic_load_n(&e->local_on,
						 __ATOMIC_RELAXED) ?
			NULL :
			e->local;
	bool strict = (flags & TE_ALLOC_STRICT) != 0;
	int ret = ENOMEM;

	if (!(flags & TE_ALLOC_SMALL_PAGES)) {
		if (size >= ALLOC_1G)
			ret = alloc_pool(a, share, size, ALLOC_1G, node,
					 strict);
		if (ret && (size >= ALLOC_2M || flags & TE_ALLOC_HUGE_PAGES))
			ret = alloc_pool(a, share, size, ALLOC_2M, node,
					 strict);
	}
	if (!ret || flags & TE_ALLOC_HUGE_PAGES)
		return ret;
	if (strict && node >= 0 && !alloc_fits(node, size))
		return ALLOC_NODE_FULL;
	return alloc_pages(e, a, share, size, flags & TE_ALLOC_SMALL_PAGES,
			   node, strict);
}

/* Looks up the NUMA node of up to ALLOC_SAMPLE pages. Returns the node if all
 * of them are on the same one, otherwise -1. */
static int alloc_node(const struct engine_alloc *a)
{
	void *pages[ALLOC_SAMPLE];
	int status[ALLOC_SAMPLE], i;

	if (numa_available() < 0)
		return 0;
	for (i = 0; i < ALLOC_SAMPLE; i++)
		pages[i] = (char *)a->addr +
			   a->length / ALLOC_SAMPLE * (uint64_t)i;
	if (move_pages(0, ALLOC_SAMPLE, pages, NULL, status, 0))
		return -1;
	for (i = 0; i < ALLOC_SAMPLE; i++)
		if (status[i] < 0 || status[i] != status[0])
			return -1;
	return status[0];
}

/* --- the calls ----------------------------------------------------------- */

static int alloc_check(size_t size, uint64_t flags, bool gpu,
		       struct tei_err *err)
{
	uint64_t have = gpu ? UINT64_MAX : alloc_available();

	if (gpu && flags & (TE_ALLOC_SMALL_PAGES | TE_ALLOC_HUGE_PAGES))
		return tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
				    "te_alloc: TE_ALLOC_SMALL_PAGES and TE_ALLOC_HUGE_PAGES do not apply to GPU memory");
	if (!size || flags & ~(uint64_t)ALLOC_FLAGS ||
	    (flags & TE_ALLOC_SMALL_PAGES && flags & TE_ALLOC_HUGE_PAGES))
		return tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
				    "te_alloc: %s", !size ?
				    "size 0 (must be at least 1)" :
				    "unknown flags, or both TE_ALLOC_SMALL_PAGES and TE_ALLOC_HUGE_PAGES");
	/* The check against the available memory is left out for
	 * TE_ALLOC_HUGE_PAGES, because the number that the kernel reports does
	 * not include the pools of huge pages. */
	if (size > UINT64_C(1) << 46 ||
	    (size > have && !(flags & TE_ALLOC_HUGE_PAGES)))
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "te_alloc: size %zu bytes exceeds the available memory (%llu bytes)",
				    size, (unsigned long long)have);
	return 0;
}

static int alloc_failed(int e, size_t size, uint64_t flags, struct tei_err *err)
{
	return tei_err_fail(err, TEI_ERR_MEMORY, "engine",
			    flags & TE_ALLOC_HUGE_PAGES ?
			    "raise vm.nr_hugepages, or leave TE_ALLOC_HUGE_PAGES out" :
			    NULL, "te_alloc: %zu bytes: %s", size, strerror(e));
}

static void alloc_out(const struct engine_alloc *a, size_t size,
		      struct te_memory *out, size_t out_size)
{
	struct te_memory m;

	memset(&m, 0, sizeof(m));
	m.addr = (uintptr_t)a->addr;
	m.size = size;
	m.mapped = a->length;
	m.page_size = a->page;
	m.pages = a->kind;
	m.numa_node = a->gpu ? -1 : a->node;
	if (a->gpu)
		snprintf(m.location, sizeof(m.location), "cuda:%d", a->node);
	else if (a->node < 0)
		snprintf(m.location, sizeof(m.location), "*");
	else
		snprintf(m.location, sizeof(m.location), "cpu:%d", a->node);
	engine_out(out, out_size, &m, sizeof(m));
}

static void alloc_link(struct engine *e, struct engine_alloc *a)
{
	tei_mutex_lock(&e->control);
	a->next = e->memory.allocs;
	e->memory.allocs = a;
	tei_mutex_unlock(&e->control);
}

/* Removes the memory from the list and returns it, so that only one of several
 * concurrent calls frees it. Returns NULL if addr is not in the list. */
static struct engine_alloc *alloc_unlink(struct engine *e, const void *addr)
{
	struct engine_alloc **p, *a = NULL;

	tei_mutex_lock(&e->control);
	for (p = &e->memory.allocs; *p; p = &(*p)->next) {
		if ((*p)->addr != addr)
			continue;
		a = *p;
		*p = a->next;
		break;
	}
	tei_mutex_unlock(&e->control);
	return a;
}

static void alloc_give_back(struct engine *e, struct engine_alloc *a)
{
	if (a->gpu)
		engine_gpu_free(e, a->addr);
	else
		alloc_unmap(a);
}

static int alloc_get(struct engine *e, struct engine_alloc *a, size_t size,
		     uint64_t flags, int node, struct tei_err *err)
{
	int ret;

	if (a->gpu) {
		a->node = node;
		a->length = size;
		return engine_gpu_alloc(e, node, size, &a->addr, err);
	}
	ret = alloc_map(e, a, size, flags, node);
	if (ret == ALLOC_NODE_FULL)
		return tei_err_fail(err, TEI_ERR_NUMA, "engine",
				    "leave TE_ALLOC_STRICT out",
				    "te_alloc: %zu bytes do not fit on node %d (available: %llu bytes)",
				    size, node, (unsigned long long)
				    alloc_node_available(node));
	if (ret)
		return alloc_failed(ret, size, flags, err);
	a->node = alloc_node(a);
	if (flags & TE_ALLOC_STRICT && node >= 0 && a->node != node) {
		alloc_unmap(a);
		return tei_err_fail(err, TEI_ERR_NUMA, "engine",
				    "leave TE_ALLOC_STRICT out",
				    "te_alloc: some of the %zu bytes are not on node %d",
				    size, node);
	}
	return 0;
}

int te_alloc(transfer_engine_t engine, size_t size, const char *location,
	     uint64_t flags, struct te_memory *memory, size_t memory_size)
{
	struct engine *e = engine_from(engine);
	char where[TEI_TOPO_NAME] = "*";
	struct engine_alloc *a;
	struct tei_err err;
	int ret, node;
	bool gpu;

	if (!e)
		return TEI_ERR_INVALID;
	/* refuses a struct without the member addr, because the caller could
	 * not use the memory without its address */
	if (!memory || memory_size < sizeof(memory->addr))
		return tei_err_fail(&err, TEI_ERR_INVALID, "engine", NULL,
				    "te_alloc: memory is NULL, or memory_size is too small for the member addr");
	ret = alloc_where(location, &node, &gpu, &err);
	if (!ret)
		ret = alloc_check(size, flags, gpu, &err);
	if (ret)
		return ret;
	a = calloc(1, sizeof(*a));
	if (!a)
		return alloc_failed(ENOMEM, size, 0, &err);
	a->gpu = gpu;
	ret = alloc_get(e, a, size, flags, node, &err);
	if (ret)
		goto err_free;
	if (a->node >= 0)
		snprintf(where, sizeof(where), gpu ? "cuda:%d" : "cpu:%d",
			 a->node);
	ret = registerLocalMemory(engine, a->addr, size, where,
				  !(flags & TE_ALLOC_PRIVATE));
	if (ret)
		goto err_unmap;
	alloc_out(a, size, memory, memory_size);
	alloc_link(e, a);
	return 0;
err_unmap:
	alloc_give_back(e, a);
err_free:
	free(a);
	return ret;
}

/*
 * Called by te_free for memory that the application has already unregistered,
 * or that another thread is unregistering. Checks whether the memory is still
 * in use by registering it again, which fails in this case. The function then
 * returns TEI_ERR_BUSY.
 */
static int alloc_unregistered(transfer_engine_t engine,
			      const struct engine_alloc *a)
{
	int ret = registerLocalMemory(engine, a->addr, a->length, "*", 0);

	if (ret == TEI_ERR_OVERLAP)
		return TEI_ERR_BUSY;
	return ret ? ret : unregisterLocalMemory(engine, a->addr);
}

int te_free(transfer_engine_t engine, void *addr)
{
	struct engine *e = engine_from(engine);
	struct engine_alloc *a;
	struct tei_err err;
	int ret;

	if (!e)
		return TEI_ERR_INVALID;
	a = addr ? alloc_unlink(e, addr) : NULL;
	if (!a)
		return tei_err_fail(&err, TEI_ERR_NOT_REGISTERED, "engine",
				    NULL, "te_free: %p is not from te_alloc",
				    addr);
	ret = unregisterLocalMemory(engine, addr);
	if (ret == TEI_ERR_NOT_REGISTERED)
		ret = alloc_unregistered(engine, a);
	if (ret) {
		alloc_link(e, a);
		return ret;
	}
	alloc_give_back(e, a);
	free(a);
	return 0;
}

void engine_alloc_free_all(struct engine *e)
{
	struct engine_alloc *a;

	while ((a = e->memory.allocs)) {
		e->memory.allocs = a->next;
		/* tei_gpu_fini has already freed the GPU memory, and
		 * tei_local_fini the pages that peers can map */
		if (!a->gpu)
			munmap(a->base, a->span);
		free(a);
	}
}
