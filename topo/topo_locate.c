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

/* Returns the value that more than half of the elements >= 0 have, or -1 if
 * there is no such value. */
static int topo_majority(const int *v, size_t n)
{
	size_t present = 0, equal, i, k;

	for (i = 0; i < n; i++)
		present += v[i] >= 0;
	for (i = 0; i < n; i++) {
		for (equal = 0, k = 0; k < n; k++)
			equal += v[k] == v[i];
		if (v[i] >= 0 && 2 * equal > present)
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
		/* span is divided before it is multiplied, because span * i
		 * could overflow */
		uintptr_t k = n == 1 ? 0 : span / (n - 1) * i +
					   span % (n - 1) * i / (n - 1);

		pages[i] = (void *)((first + k) * page);
		status[i] = -1;
	}
	if (query(n, pages, status))
		return -2;
	return topo_majority(status, n);
}

/*
 * Returns the page number of sample i of n. The region, which has "count" pages
 * from page "first" on, is divided into n equal intervals, and sample i is a
 * pseudo-random page of interval i. Samples at regular distances could not show
 * that pages are interleaved over nodes.
 */
static uintptr_t topo_sample_page(uintptr_t first, uintptr_t count, size_t i,
				  size_t n)
{
	uint64_t from = (uint64_t)count * i / n;
	uint64_t size = (uint64_t)count * (i + 1) / n - from;

	/* cannot overflow: at most 2^52 pages times 64 samples */
	return first + (uintptr_t)(from + (i * UINT64_C(0x9e3779b97f4a7c15) >>
					   32) % size);
}

/* Returns the node of the majority of the n samples of a part, or the first
 * node in them if there is no majority; -1 if no sampled page is present. Sets
 * *mixed to true if the samples are on several nodes. */
static int topo_part_node(const int *status, unsigned int n, bool *mixed)
{
	int most = topo_majority(status, n), any = most;
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (status[i] < 0)
			continue;
		any = any < 0 ? status[i] : any;
		*mixed |= status[i] != any;
	}
	return any;
}

/* Finds the node of each of n equal parts from TOPO_PARTS_SAMPLE samples.
 * Returns false if more than `some` parts are on several nodes, or if no
 * sampled page is present. */
static bool topo_parts_nodes(const int *status, unsigned int n, int *nodes,
			     unsigned int some)
{
	unsigned int i, per = TOPO_PARTS_SAMPLE / n, several = 0;
	int last = -1;
	bool mixed;

	for (i = 0; i < n; i++) {
		mixed = false;
		nodes[i] = topo_part_node(status + i * per, per, &mixed);
		several += mixed;
	}
	/* a part of which no page is present gets the node of an adjacent
	 * part */
	for (i = 0; i < n; i++)
		last = nodes[i] = nodes[i] < 0 ? last : nodes[i];
	for (i = n; i-- > 0;)
		last = nodes[i] = nodes[i] < 0 ? last : nodes[i];
	return several <= some && last >= 0;
}

static bool topo_parts_text(size_t page, const int *nodes, unsigned int n,
			    char text[TEI_TOPO_NAME])
{
	int used = snprintf(text, TEI_TOPO_NAME, "segments:%zu:", page);
	unsigned int i;

	for (i = 0; i < n && used < TEI_TOPO_NAME; i++)
		used += snprintf(text + used, TEI_TOPO_NAME - (size_t)used,
				 "%s%d", i ? "," : "", nodes[i]);
	return used < TEI_TOPO_NAME;
}

bool topo_locate_parts(const void *addr, size_t len, size_t page,
		       topo_query_fn query, char text[TEI_TOPO_NAME])
{
	uintptr_t first = (uintptr_t)addr / page;
	uintptr_t count = ((uintptr_t)addr + (len - 1)) / page - first + 1;
	int status[TOPO_PARTS_SAMPLE], nodes[TOPO_PARTS];
	void *pages[TOPO_PARTS_SAMPLE];
	char found[TEI_TOPO_NAME];
	unsigned int n;
	size_t i;

	if (count < TOPO_PARTS_SAMPLE)
		return false;
	for (i = 0; i < TOPO_PARTS_SAMPLE; i++) {
		pages[i] = (void *)(topo_sample_page(first, count, i,
						     TOPO_PARTS_SAMPLE) *
				    page);
		status[i] = -1;
	}
	if (query(TOPO_PARTS_SAMPLE, pages, status))
		return false;
	for (n = 1; n <= TOPO_PARTS; n *= 2)
		if (topo_parts_nodes(status, n, nodes,
				     n == TOPO_PARTS ? TOPO_RAGGED : 0))
			break;
	if (n == 1 || n > TOPO_PARTS ||
	    !topo_parts_text(page, nodes, n, found))
		return false;
	memcpy(text, found, sizeof(found));
	return true;
}

/* Returns the number of the only NUMA node of this machine, or -1 if there are
 * several. */
static int topo_only_node(void)
{
	int nodes[2] = { 0, 0 };

	return topo_sys_nodes("/sys", nodes, 2) > 1 ? -1 : nodes[0];
}

int tei_topo_locate(const void *addr, size_t len, char location[TEI_TOPO_NAME])
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int node = -2;

	if (!len || len - 1 > UINTPTR_MAX - (uintptr_t)addr)
		return tei_err_fail(NULL, TEI_ERR_INVALID, TOPO_SUBSYS, NULL,
				    "%s", len ? "range wraps around" : "range is empty");
	if (numa_available() >= 0 && numa_max_node() > 0 &&
	    topo_locate_parts(addr, len, page, topo_locate_query, location))
		return 0;
	if (numa_available() >= 0)
		node = topo_locate_node(addr, len, page, topo_locate_query);
	if (node == -2)
		node = topo_only_node();
	if (node < 0)
		snprintf(location, TEI_TOPO_NAME, "%s", TEI_TOPO_ANY);
	else
		snprintf(location, TEI_TOPO_NAME, "cpu:%d", node);
	return 0;
}

/* --- location strings ---------------------------------------------------- */

/* Parses a decimal number at *p and moves *p behind it. Returns false if there
 * is no number, or if the number has a leading zero or is above max. */
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
	return *p ? "unexpected text after the nodes" : NULL;
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
				    "out is NULL");
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

/* Returns the offset at which part i begins. A page that contains the boundary
 * between two parts belongs to the first of them, because a page is on one
 * node. */
static uint64_t topo_part_begin(const struct tei_topo_where *w,
				uint64_t length, uint64_t i)
{
	uint64_t at = length / w->n_parts * i, over = at & (w->page - 1);

	if (i >= w->n_parts || (over && w->page - over > length - at))
		return length;
	return over ? at + (w->page - over) : at;
}

/* Finds the index of the part that holds the byte at offset. Returns false if
 * the location has no parts. */
static bool topo_where_which(const struct tei_topo_where *w, uint64_t length,
			     uint64_t offset, uint64_t *part)
{
	uint64_t size = w->n_parts ? length / w->n_parts : 0, i;

	if (!size)
		return false;
	i = offset / size;
	i = i < w->n_parts ? i : w->n_parts - 1;
	while (i && topo_part_begin(w, length, i) > offset)
		i--;
	*part = i;
	return true;
}

int tei_topo_where_node(const struct tei_topo_where *where, uint64_t length,
			uint64_t offset)
{
	uint64_t part;

	if (where->kind == TEI_TOPO_WHERE_CPU)
		return where->index;
	return topo_where_which(where, length, offset, &part) ?
		       where->nodes[part] :
		       -1;
}

unsigned int tei_topo_where_part(const struct tei_topo_where *where,
				 uint64_t length, uint64_t offset,
				 char location[TEI_TOPO_NAME], uint64_t *end)
{
	uint64_t part;

	if (!topo_where_which(where, length, offset, &part)) {
		topo_where_name(where, location);
		*end = length;
		return 0;
	}
	*end = topo_part_begin(where, length, part + 1);
	snprintf(location, TEI_TOPO_NAME, "cpu:%u", where->nodes[part]);
	return (unsigned int)part;
}
