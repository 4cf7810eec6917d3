/* SPDX-License-Identifier: BSD-2-Clause */
#include <numa.h>
#include <numaif.h>
#include <string.h>
#include <unistd.h>

#include "topo/topo_int.h"
#include "util/err.h"

/* --- pages --------------------------------------------------------------- */

static int topo_locate_query(unsigned long n, void **pages, int *status)
{
	return move_pages(0, n, pages, NULL, status, 0) == 0 ? 0 : -1;
}

/* The value that more than half of the non-negative ones have, else -1. */
static int topo_majority(const int *v, size_t n)
{
	size_t present = 0, same, i, k;

	for (i = 0; i < n; i++)
		present += v[i] >= 0;
	for (i = 0; i < n; i++) {
		for (same = 0, k = 0; k < n; k++)
			same += v[k] == v[i];
		if (v[i] >= 0 && 2 * same > present)
			return v[i];
	}
	return -1;
}

int topo_locate_node(const void *addr, size_t len, size_t page,
		     topo_query_fn query)
{
	uintptr_t first = (uintptr_t)addr / page;
	uintptr_t span = ((uintptr_t)addr + (len - 1)) / page - first;
	size_t n = span < TOPO_SAMPLE ? span + 1 : TOPO_SAMPLE, i;
	void *pages[TOPO_SAMPLE];
	int status[TOPO_SAMPLE];

	for (i = 0; i < n; i++) {
		/* span / 15 * i first: the product of both could overflow */
		uintptr_t k = n == 1 ? 0 : span / (n - 1) * i +
					   span % (n - 1) * i / (n - 1);

		pages[i] = (void *)((first + k) * page);
		status[i] = -1;
	}
	if (query(n, pages, status))
		return -2;
	return topo_majority(status, n);
}

/* The machine's only node, or -1 if it has several. */
static int topo_only_node(void)
{
	int nodes[2] = { 0, 0 };

	return topo_sys_nodes("/sys", nodes, 2) > 1 ? -1 : nodes[0];
}

int tei_topo_locate(const void *addr, size_t len, char location[TEI_TOPO_NAME])
{
	int node = -2;

	if (!len || len - 1 > UINTPTR_MAX - (uintptr_t)addr)
		return tei_err_fail(NULL, TEI_ERR_INVALID, TOPO_SUBSYS, NULL,
				    "%s range", len ? "a wrapping" : "an empty");
	if (numa_available() >= 0)
		node = topo_locate_node(addr, len,
					(size_t)sysconf(_SC_PAGESIZE),
					topo_locate_query);
	if (node == -2)
		node = topo_only_node();
	if (node < 0)
		snprintf(location, TEI_TOPO_NAME, "%s", TEI_TOPO_ANY);
	else
		snprintf(location, TEI_TOPO_NAME, "cpu:%d", node);
	return 0;
}

/* --- location strings ---------------------------------------------------- */

/*
 * Digits at *p without a leading zero, up to max; *p is moved behind them.
 * False for anything else.
 */
static bool topo_number(const char **p, uint64_t max, uint64_t *out)
{
	const char *s = *p;
	uint64_t v = 0;

	if (*s < '0' || *s > '9' || (*s == '0' && s[1] >= '0' && s[1] <= '9'))
		return false;
	for (; *s >= '0' && *s <= '9'; s++) {
		if (v > (max - (uint64_t)(*s - '0')) / 10)
			return false;
		v = 10 * v + (uint64_t)(*s - '0');
	}
	*p = s;
	*out = v;
	return true;
}

static const char *topo_where_index(const char *p, struct tei_topo_where *w)
{
	uint64_t v;

	if (!topo_number(&p, UINT16_MAX, &v) || *p)
		return "not a number from 0 to 65535 after the colon";
	w->index = (int)v;
	return NULL;
}

static const char *topo_where_parts(const char *p, struct tei_topo_where *w)
{
	uint64_t node;

	if (!topo_number(&p, UINT64_C(1) << 40, &w->page) || !w->page ||
	    (w->page & (w->page - 1)) || *p != ':')
		return "the page size is not a power of two";
	do {
		p++;
		if (w->n_parts == TEI_TOPO_MAX_PARTS)
			return "more than 256 parts";
		if (!topo_number(&p, UINT16_MAX, &node))
			return "a node is not a number from 0 to 65535";
		w->nodes[w->n_parts++] = (uint16_t)node;
	} while (*p == ',');
	return *p ? "garbage after the nodes" : NULL;
}

static const char *topo_where_read(const char *text, struct tei_topo_where *w)
{
	static const struct {
		const char *prefix;
		enum tei_topo_where_kind kind;
		const char *(*read)(const char *p, struct tei_topo_where *w);
	} kinds[] = {
		{ "cpu:", TEI_TOPO_WHERE_CPU, topo_where_index },
		{ "cuda:", TEI_TOPO_WHERE_CUDA, topo_where_index },
		{ "segments:", TEI_TOPO_WHERE_PARTS, topo_where_parts },
	};
	size_t i, len;

	if (!strcmp(text, TEI_TOPO_ANY)) {
		w->kind = TEI_TOPO_WHERE_ANY;
		return NULL;
	}
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		len = strlen(kinds[i].prefix);
		if (strncmp(text, kinds[i].prefix, len))
			continue;
		w->kind = kinds[i].kind;
		return kinds[i].read(text + len, w);
	}
	return "unknown kind";
}

int tei_topo_where_parse(const char *text, struct tei_topo_where *out,
			 struct tei_err *err)
{
	struct tei_topo_where w;
	const char *bad;

	if (!out)
		return tei_err_fail(err, TEI_ERR_INVALID, TOPO_SUBSYS, NULL,
				    "nowhere to put the location");
	memset(&w, 0, sizeof(w));
	text = text ? text : TEI_TOPO_ANY;
	bad = topo_where_read(text, &w);
	if (bad)
		return tei_err_fail(err, TEI_ERR_INVALID, TOPO_SUBSYS,
				    "cpu:N, cuda:N, * or "
				    "segments:<page>:<node>,<node>…",
				    "location \"%s\": %s",
				    topo_quote(text).text, bad);
	*out = w;
	return 0;
}

static void topo_where_name(const struct tei_topo_where *w, char *location)
{
	if (w->kind == TEI_TOPO_WHERE_CPU || w->kind == TEI_TOPO_WHERE_CUDA)
		snprintf(location, TEI_TOPO_NAME, "%s:%d",
			 w->kind == TEI_TOPO_WHERE_CPU ? "cpu" : "cuda",
			 w->index);
	else
		snprintf(location, TEI_TOPO_NAME, "%s", TEI_TOPO_ANY);
}

unsigned int tei_topo_where_part(const struct tei_topo_where *where,
				 uint64_t length, uint64_t offset,
				 char location[TEI_TOPO_NAME], uint64_t *end)
{
	uint64_t size = where->n_parts ? length / where->n_parts : 0;
	uint64_t part;

	if (!size) {
		topo_where_name(where, location);
		*end = length;
		return 0;
	}
	part = offset / size;
	if (part >= where->n_parts - 1)
		part = where->n_parts - 1;
	*end = part == where->n_parts - 1 ? length : (part + 1) * size;
	snprintf(location, TEI_TOPO_NAME, "cpu:%u", where->nodes[part]);
	return (unsigned int)part;
}
