/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maps memory at the locations of --location and --target_location, with the
 * kind of pages of --pages. If that is not possible, te_bench fails instead of
 * measuring memory at another location.
 */
#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabtests/benchmarks/te_bench.h"
#include "fabtests/common/ft_num.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
	PLACE_NODES = 256,		/* maximum number of nodes in
					 * "segments:" */
	PLACE_NODE_MAX = 1023,		/* highest node number that a kernel
					 * supports */
	PLACE_SAMPLE = 64,		/* number of pages of a part whose node
					 * is checked */
	PLACE_HUGE = 2 << 20,		/* alignment of transparent huge pages,
					 * bytes */
};

/* A parsed location. */
struct place {
	bool gpu;
	uint64_t page;			/* each part, except the last one, is a
					 * multiple of this, bytes */
	unsigned int n;			/* number of parts; 0: the memory may be
					 * on any node */
	uint16_t nodes[PLACE_NODES];
};

/* --- locations ----------------------------------------------------------- */

/* Reads a number. It must not have a leading zero, because the engine refuses
 * that. Moves *text behind the number. */
static bool place_number(const char **text, uint64_t max, uint64_t *out)
{
	size_t len = strspn(*text, "0123456789");
	char digits[24];

	if (!len || len >= sizeof(digits) || (len > 1 && **text == '0'))
		return false;
	memcpy(digits, *text, len);
	digits[len] = '\0';
	*text += len;
	return !ft_parse_uint(digits, 0, max, out);
}

static bool place_parse_parts(const char *text, struct place *place)
{
	uint64_t node;

	if (!place_number(&text, UINT64_C(1) << 40, &place->page) ||
	    !place->page || place->page & (place->page - 1) || *text != ':')
		return false;
	do {
		text++;
		if (place->n == PLACE_NODES ||
		    !place_number(&text, PLACE_NODE_MAX, &node))
			return false;
		place->nodes[place->n++] = (uint16_t)node;
	} while (*text == ',');
	return !*text;
}

/* Parses a location. NULL means "*". Returns false if the text is no
 * location. */
static bool place_parse(const char *text, struct place *place)
{
	uint64_t number;

	memset(place, 0, sizeof(*place));
	place->page = 1;
	if (!text || !strcmp(text, "*"))
		return true;
	if (!strncmp(text, "segments:", 9))
		return place_parse_parts(text + 9, place);
	place->gpu = !strncmp(text, "cuda:", 5);
	if (!place->gpu && strncmp(text, "cpu:", 4))
		return false;
	text += place->gpu ? 5 : 4;
	if (!place_number(&text, PLACE_NODE_MAX, &number) || *text)
		return false;
	place->n = !place->gpu;
	place->nodes[0] = (uint16_t)number;
	return true;
}

bool bench_location_valid(const char *location)
{
	struct place place;

	return place_parse(location, &place);
}

bool bench_location_gpu(const char *location)
{
	struct place place;

	return place_parse(location, &place) && place.gpu;
}

bool bench_location_allocated(const struct bench_opts *opts,
			      const char *location)
{
	return opts->alloc || bench_location_gpu(location);
}

bool bench_location_parts(const char *location)
{
	struct place place;

	return place_parse(location, &place) && place.n > 1;
}

/* --- pages and nodes ----------------------------------------------------- */

/* Returns the offset of part i. The parts divide `size` equally, but each
 * offset is rounded up to a multiple of place->page. If i is the number of
 * parts, returns `size`. */
static uint64_t place_begin(const struct place *place, uint64_t size,
			    unsigned int i)
{
	uint64_t at = i == place->n ? size : size / place->n * i;

	at = (at + place->page - 1) & ~(place->page - 1);
	return at < size ? at : size;
}

/* Returns the end of part i, as an offset. The last part includes the rest of
 * the mapping. */
static uint64_t place_end(const struct bench_memory *memory,
			  const struct place *place, unsigned int i)
{
	uint64_t end = place_begin(place, memory->size, i + 1);

	return end < memory->size ?
		       end :
		       memory->mapped - (uint64_t)(memory->addr - memory->map);
}

static int place_refuse(const char *what, uint64_t size, const char *why)
{
	fprintf(stderr, "te_bench: %llu bytes %s: %s\n",
		(unsigned long long)size, what, why);
	return -1;
}

static bool place_node_there(unsigned int node)
{
	if (numa_available() < 0)
		return node == 0;
	return (int)node <= numa_max_node() &&
	       numa_bitmask_isbitset(numa_all_nodes_ptr, node);
}

/* Binds each part to its node before a page is touched. The policy is
 * MPOL_PREFERRED: if the node is full, the kernel takes memory of another node,
 * which place_check detects. With MPOL_BIND, the kernel would kill this
 * process. */
static int place_bind(const struct bench_memory *memory,
		      const struct place *place)
{
	unsigned long mask[(PLACE_NODE_MAX + 1) / (8 * sizeof(long))];
	const unsigned int bits = 8 * sizeof(long);
	char what[48];

	for (unsigned int i = 0; i < place->n; i++) {
		uint64_t begin = place_begin(place, memory->size, i);
		uint64_t end = place_end(memory, place, i);
		unsigned int node = place->nodes[i];

		snprintf(what, sizeof(what), "on NUMA node %u", node);
		if (!place_node_there(node))
			return place_refuse(what, memory->size, "the node "
					    "does not exist, or this process "
					    "may not use it");
		/* the part is empty after the rounding to pages, or the kernel
		 * has no NUMA */
		if (begin == place_begin(place, memory->size, i + 1) ||
		    numa_available() < 0)
			continue;
		memset(mask, 0, sizeof(mask));
		mask[node / bits] = 1ul << node % bits;
		if (mbind(memory->addr + begin, end - begin, MPOL_PREFERRED,
			  mask, PLACE_NODE_MAX + 1, 0))
			return place_refuse(what, memory->size,
					    strerror(errno));
	}
	return 0;
}

/* Checks 64 pages of each part, among them its last one. Returns -1 after a
 * message on stderr if one of them is not on the node of the part. */
static int place_check(const struct bench_memory *memory,
		       const struct place *place)
{
	void *pages[PLACE_SAMPLE];
	int status[PLACE_SAMPLE];
	char what[48];

	for (unsigned int i = 0; i < place->n && numa_available() >= 0; i++) {
		uint64_t begin = place_begin(place, memory->size, i);
		uint64_t end = place_begin(place, memory->size, i + 1);
		int others = 0;

		if (begin == end)
			continue;
		for (unsigned int k = 0; k < PLACE_SAMPLE; k++)
			pages[k] = memory->addr + end - 1 -
				   (end - 1 - begin) / PLACE_SAMPLE * k;
		if (move_pages(0, PLACE_SAMPLE, pages, NULL, status, 0))
			continue;	/* the kernel does not report the
					 * nodes */
		for (unsigned int k = 0; k < PLACE_SAMPLE; k++)
			others += status[k] != place->nodes[i];
		snprintf(what, sizeof(what), "on NUMA node %u",
			 place->nodes[i]);
		if (others)
			return place_refuse(what, memory->size, "not all of "
					    "it is there: the node is full");
	}
	return 0;
}

/* Returns the size of a page of the kernel's pool of huge pages, or 0 if the
 * kernel has none. */
static uint64_t place_pool_page(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[128];

	while (file && !kib && fgets(line, sizeof(line), file))
		sscanf(line, "Hugepagesize: %llu", &kib);
	if (file)
		fclose(file);
	return kib << 10;
}

/* Maps memory whose pages are not present yet. Returns 0 or errno. */
static int place_map(struct bench_memory *memory, uint64_t size, int pages)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), align;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;

	if (pages == BENCH_PAGES_HUGE) {
		page = place_pool_page();
		flags |= MAP_HUGETLB;
		if (!page)
			return EOPNOTSUPP;
	}
	align = pages == BENCH_PAGES_TRANSPARENT ? PLACE_HUGE : 0;
	memory->mapped = (size + align + page - 1) & ~(page - 1);
	memory->map = mmap(NULL, memory->mapped, PROT_READ | PROT_WRITE, flags,
			   -1, 0);
	if (memory->map == MAP_FAILED)
		return errno;
	memory->addr = memory->map;
	if (align)
		memory->addr += -(uintptr_t)memory->map & (align - 1);
	memory->size = size;
	return 0;
}

/* Requests the kind of pages and makes all pages present. Returns 0 or
 * errno. */
static int place_fill(const struct bench_memory *memory, int pages)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if ((pages == BENCH_PAGES_SMALL || pages == BENCH_PAGES_TRANSPARENT) &&
	    madvise(memory->map, memory->mapped,
		    pages == BENCH_PAGES_SMALL ? MADV_NOHUGEPAGE :
						 MADV_HUGEPAGE) &&
	    /* the kernel has no huge pages, so all pages are small */
	    !(pages == BENCH_PAGES_SMALL && errno == EINVAL))
		return errno;
	if (!madvise(memory->map, memory->mapped, MADV_POPULATE_WRITE))
		return 0;
	if (errno != EINVAL)
		return errno == EFAULT ? ENOMEM : errno;
	/* an old kernel does not have MADV_POPULATE_WRITE */
	for (size_t at = 0; at < memory->size; at += page)
		((volatile uint8_t *)memory->addr)[at] = 0;
	return 0;
}

/* --- the calls ----------------------------------------------------------- */

static int memory_refuse(uint64_t size, int pages, int why)
{
	if (pages != BENCH_PAGES_HUGE)
		return place_refuse(pages == BENCH_PAGES_TRANSPARENT ?
					    "of transparent huge pages" :
					    "of memory",
				    size, strerror(why));
	fprintf(stderr, "te_bench: %llu bytes of huge pages: %s; see "
		"/proc/sys/vm/nr_hugepages\n", (unsigned long long)size,
		strerror(why));
	return -1;
}

int bench_memory_get(struct bench_memory *memory, uint64_t size,
		     const char *location, int pages)
{
	struct place place;
	uint64_t page;
	int ret;

	memset(memory, 0, sizeof(*memory));
	if (!place_parse(location, &place))
		return place_refuse("of memory", size, "no such location");
	ret = place_map(memory, size, pages);
	if (ret) {
		memory->addr = NULL;
		return memory_refuse(size, pages, ret);
	}
	/* parts smaller than a page are refused, because a page is on one
	 * node */
	page = pages == BENCH_PAGES_HUGE ? place_pool_page() :
					   (uint64_t)sysconf(_SC_PAGESIZE);
	if (place.n > 1 && place.page < page) {
		ret = place_refuse("in parts", size, "PAGE is smaller than "
				   "a page of the memory");
		goto err_put;
	}
	ret = place_bind(memory, &place);
	if (ret)
		goto err_put;
	ret = place_fill(memory, pages);
	if (ret) {
		memory_refuse(size, pages, ret);
		goto err_put;
	}
	ret = place_check(memory, &place);
	if (ret)
		goto err_put;
	return 0;
err_put:
	bench_memory_put(memory);
	return -1;
}

void bench_memory_put(struct bench_memory *memory)
{
	munmap(memory->map, memory->mapped);
	memory->addr = NULL;
}

double bench_private_kib(void)
{
	unsigned long long size = 0, resident = 0, shared = 0;
	FILE *file = fopen("/proc/self/statm", "re");

	if (!file)
		return 0;
	if (fscanf(file, "%llu %llu %llu", &size, &resident, &shared) != 3)
		resident = shared;
	fclose(file);
	return (double)(resident - shared) * (double)sysconf(_SC_PAGESIZE) /
	       1024;
}
