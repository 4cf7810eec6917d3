/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topo/topo_int.h"
#include "util/err.h"

#define MAPS_FILE	"/proc/self/maps"
#define MAPS_BUFFER	65536u

/* What the process cannot write, in order, neighbours as one. */
struct tei_topo_maps {
	struct topo_map {
		uint64_t base, end;
	} *map;
	size_t n, cap;
};

static int maps_add(struct tei_topo_maps *m, uint64_t base, uint64_t end)
{
	struct topo_map *grown;

	if (m->n && m->map[m->n - 1].end == base) {
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
	m->map[m->n++].end = end;
	return 0;
}

/* "5591c0-5591d0 r--p …": one line, ended by 0. *last: where it ends. */
static int maps_line(struct tei_topo_maps *m, const char *line, uint64_t *last)
{
	char *rest;
	uint64_t base = strtoull(line, &rest, 16);

	if (rest == line || *rest != '-')
		return TEI_ERR_UNSUPPORTED;
	*last = strtoull(rest + 1, &rest, 16);
	if (*last <= base || rest[0] != ' ' || !rest[1] || !rest[2])
		return TEI_ERR_UNSUPPORTED;
	return rest[2] == 'w' ? 0 : maps_add(m, base, *last);
}

/* Until a mapping ends at until or above. */
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

int tei_topo_maps_read(uint64_t until, struct tei_topo_maps **out)
{
	struct tei_topo_maps *m = calloc(1, sizeof(*m));
	char *buf = malloc(MAPS_BUFFER);
	int ret = TEI_ERR_MEMORY, fd = -1;

	if (!m || !buf)
		goto err_buf;
	ret = TEI_ERR_UNSUPPORTED;
	fd = open(MAPS_FILE, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		goto err_buf;
	ret = maps_parse(m, fd, buf, until);
	close(fd);
	if (ret)
		goto err_buf;
	free(buf);
	*out = m;
	return 0;
err_buf:
	free(buf);
	tei_topo_maps_free(m);
	return ret;
}

void tei_topo_maps_free(struct tei_topo_maps *maps)
{
	if (maps)
		free(maps->map);
	free(maps);
}

bool tei_topo_maps_writable(const struct tei_topo_maps *maps, const void *addr,
			    size_t len, uint64_t *base, uint64_t *end)
{
	uint64_t a = (uintptr_t)addr;
	size_t lo = 0, hi = maps->n, mid;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (maps->map[mid].end <= a)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == maps->n || maps->map[lo].base >= a + len)
		return true;
	*base = maps->map[lo].base;
	*end = maps->map[lo].end;
	return false;
}
