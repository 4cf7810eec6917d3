/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds out which access this process has to its mappings.
 *
 * The protection is read from the kernel's list of mappings, which touches no
 * page. mincore and similar calls are not used, because they report whether a
 * page is present, which does not matter here. Moreover, their results for
 * device memory (VM_PFNMAP) and huge pages differ between kernels.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "topo/topo_int.h"
#include "util/err.h"

#define MAPS_FILE	"/proc/self/maps"
#define MAPS_BUFFER	65536u

/*
 * struct procmap_query of linux/fs.h. The kernel has it since Linux 6.11; the
 * headers of the build host may lack it.
 */
struct maps_query {
	uint64_t size;
	uint64_t flags;
	uint64_t addr;
	uint64_t base, end;		/* result: start and end of the
					 * mapping */
	uint64_t access;		/* result: access to the mapping, bits
					 * MAPS_QUERY_… */
	uint64_t page_size, offset, inode;
	uint32_t dev_major, dev_minor;
	uint32_t name_size, build_id_size;
	uint64_t name_addr, build_id_addr;
};

_Static_assert(sizeof(struct maps_query) == 104, "struct procmap_query");

#define MAPS_QUERY		_IOWR('f', 17, struct maps_query)
#define MAPS_QUERY_READABLE	1u
#define MAPS_QUERY_WRITABLE	2u
#define MAPS_QUERY_OR_NEXT	16u	/* flag of a query: if no mapping
					 * contains addr, return the next one */

/* Contains either a file descriptor for PROCMAP_QUERY, or a list of the
 * mappings in ascending order. In the list, adjacent mappings with the same
 * access are merged. */
struct tei_topo_maps {
	int fd;				/* file descriptor of MAPS_FILE for
					 * PROCMAP_QUERY, or -1 */
	struct topo_map {
		uint64_t base, end;
		enum tei_topo_access access;
	} *map;
	size_t n, cap;
};

static enum tei_topo_access maps_access(bool readable, bool writable)
{
	if (writable)
		return TEI_TOPO_WRITABLE;
	return readable ? TEI_TOPO_READ_ONLY : TEI_TOPO_CLOSED;
}

/* --- the list ------------------------------------------------------------ */

static int maps_add(struct tei_topo_maps *m, uint64_t base, uint64_t end,
		    enum tei_topo_access access)
{
	struct topo_map *grown;

	if (m->n && m->map[m->n - 1].end == base &&
	    m->map[m->n - 1].access == access) {
		m->map[m->n - 1].end = end;
		return 0;
	}
	if (m->n == m->cap) {
		grown = realloc(m->map, (2 * m->cap + 64) * sizeof(*grown));
		if (!grown)
			return TEI_ERR_MEMORY;
		m->map = grown;
		m->cap = 2 * m->cap + 64;
	}
	m->map[m->n].base = base;
	m->map[m->n].end = end;
	m->map[m->n++].access = access;
	return 0;
}

/* Parses one terminated line of the list of mappings, "5591c0-5591d0 r--p …",
 * and adds the mapping to m. *last gets the end of the mapping. */
static int maps_line(struct tei_topo_maps *m, const char *line, uint64_t *last)
{
	char *rest;
	uint64_t base = strtoull(line, &rest, 16);

	if (rest == line || *rest != '-')
		return TEI_ERR_UNSUPPORTED;
	*last = strtoull(rest + 1, &rest, 16);
	if (*last <= base || rest[0] != ' ' || !rest[1] || !rest[2])
		return TEI_ERR_UNSUPPORTED;
	return maps_add(m, base, *last,
			maps_access(rest[1] == 'r', rest[2] == 'w'));
}

/* Reads the list of mappings into m, up to the first mapping that ends at or
 * above the address `until`. */
static int maps_parse(struct tei_topo_maps *m, int fd, char *buf,
		      uint64_t until)
{
	size_t have = 0;
	uint64_t last = 0;
	char *line, *end;
	ssize_t got;
	int ret;

	while (last < until) {
		got = read(fd, buf + have, MAPS_BUFFER - 1 - have);
		if (got <= 0)
			return got ? TEI_ERR_UNSUPPORTED : 0;
		have += (size_t)got;
		buf[have] = '\0';
		for (line = buf; (end = strchr(line, '\n')); line = end + 1) {
			*end = '\0';
			ret = maps_line(m, line, &last);
			if (ret)
				return ret;
		}
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
	}
	return 0;
}

static int maps_list(struct tei_topo_maps *m, int fd, uint64_t until)
{
	char *buf = malloc(MAPS_BUFFER);
	int ret = buf ? maps_parse(m, fd, buf, until) : TEI_ERR_MEMORY;

	free(buf);
	return ret;
}

/*
 * Finds the first mapping that ends above addr. Returns false if there is none.
 */
static bool maps_find(const struct tei_topo_maps *m, uint64_t addr,
		      struct topo_map *out)
{
	size_t lo = 0, hi = m->n, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (m->map[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == m->n)
		return false;
	*out = m->map[lo];
	return true;
}

/* --- the query ----------------------------------------------------------- */

/* Does what maps_find does, but with a query of the kernel (PROCMAP_QUERY). */
static bool maps_ask(int fd, uint64_t addr, struct topo_map *out)
{
	struct maps_query q;

	memset(&q, 0, sizeof(q));
	q.size = sizeof(q);
	q.flags = MAPS_QUERY_OR_NEXT;
	q.addr = addr;
	if (ioctl(fd, MAPS_QUERY, &q))
		return false;
	out->base = q.base;
	out->end = q.end;
	out->access = maps_access(q.access & MAPS_QUERY_READABLE,
				  q.access & MAPS_QUERY_WRITABLE);
	return true;
}

/* Returns true if the kernel supports PROCMAP_QUERY. Tests this with a query
 * about the stack of this function. */
static bool maps_answers(int fd)
{
	struct topo_map here;

	return maps_ask(fd, (uintptr_t)&here, &here);
}

int topo_maps_read(uint64_t until, bool query, struct tei_topo_maps **out)
{
	struct tei_topo_maps *m = calloc(1, sizeof(*m));
	int fd, ret;

	if (!m)
		return TEI_ERR_MEMORY;
	m->fd = -1;
	fd = open(MAPS_FILE, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		free(m);
		return TEI_ERR_UNSUPPORTED;
	}
	if (query && maps_answers(fd)) {
		m->fd = fd;
		*out = m;
		return 0;
	}
	ret = maps_list(m, fd, until);
	close(fd);
	if (ret)
		tei_topo_maps_free(m);
	else
		*out = m;
	return ret;
}

int tei_topo_maps_read(uint64_t until, struct tei_topo_maps **out)
{
	return topo_maps_read(until, true, out);
}

void tei_topo_maps_free(struct tei_topo_maps *maps)
{
	if (!maps)
		return;
	if (maps->fd >= 0)
		close(maps->fd);
	free(maps->map);
	free(maps);
}

/* --- without /proc ------------------------------------------------------- */

/* Returns true if all pages of the range are mapped. msync with MS_ASYNC checks
 * only that. */
static bool maps_synced(uint64_t base, uint64_t end)
{
	void *addr;

	memcpy(&addr, &base, sizeof(addr));
	return !msync(addr, end - base, MS_ASYNC);
}

/* Returns the first unmapped page of [base, end), which it finds by binary
 * search. The range must contain such a page. */
static uint64_t maps_hole(uint64_t base, uint64_t end, uint64_t page)
{
	uint64_t half;

	while (end - base > page) {
		half = base + (end - base) / page / 2 * page;
		if (maps_synced(base, half))
			base = half;
		else
			end = half;
	}
	return base;
}

static enum tei_topo_access maps_guess(uint64_t addr, uint64_t last,
				       uint64_t *base, uint64_t *end)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), hole;
	uint64_t from = addr / page * page, to = last / page * page + page;

	if (to < from)			/* the addition overflows at the last
					 * page of the address space */
		to -= page;
	if (from < to && maps_synced(from, to))
		return TEI_TOPO_UNKNOWN;
	hole = maps_hole(from, to, page);
	*base = hole < addr ? addr : hole;
	*end = hole + page;
	return TEI_TOPO_UNMAPPED;
}

/* --- the answer ---------------------------------------------------------- */

#ifdef __aarch64__
/* The top byte of an address may hold a tag, which the addresses of mappings do
 * not have. */
#define MAPS_ADDRESS	((UINT64_C(1) << 56) - 1)
#else
#define MAPS_ADDRESS	UINT64_MAX
#endif

enum tei_topo_access tei_topo_maps_check(const struct tei_topo_maps *maps,
					 const void *addr, size_t len,
					 uint64_t *base, uint64_t *end)
{
	enum tei_topo_access least = TEI_TOPO_WRITABLE;
	uint64_t at = (uintptr_t)addr & MAPS_ADDRESS, last = at + (len - 1);
	struct topo_map m;
	bool found;

	if (!maps)
		return maps_guess(at, last, base, end);
	for (;;) {
		found = maps->fd >= 0 ? maps_ask(maps->fd, at, &m) :
					maps_find(maps, at, &m);
		if (!found || m.base > at) {
			*base = at;
			*end = found ? m.base : UINT64_MAX;
			return TEI_TOPO_UNMAPPED;
		}
		if (m.access < least) {
			least = m.access;
			*base = m.base;
			*end = m.end;
		}
		if (m.end - 1 >= last)
			return least;
		at = m.end;
	}
}
