/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdarg.h>
#include <string.h>

#include "topo/topo_int.h"

/* A text that is being written to buf, which has len bytes. used: length of the
 * text, including the bytes that did not fit. */
struct topo_out {
	char *buf;
	size_t len;
	size_t used;
};

static void topo_print(struct topo_out *o, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void topo_print(struct topo_out *o, const char *fmt, ...)
{
	size_t left = o->used < o->len ? o->len - o->used : 0;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(left ? o->buf + o->used : NULL, left, fmt, ap);
	va_end(ap);
	if (n > 0)
		o->used += (size_t)n;
}

static void topo_print_speed(struct topo_out *o, uint64_t speed)
{
	if (!speed)
		topo_print(o, "-\n");
	else if (speed < 1000000000)
		topo_print(o, "%.4g Mbit/s\n", (double)speed / 1e6);
	else
		topo_print(o, "%.6g Gbit/s\n", (double)speed / 1e9);
}

static int topo_width(const struct tei_topo *topo)
{
	size_t width = 4, len;
	uint32_t i;

	for (i = 0; i < topo->n_nics; i++) {
		len = strlen(topo->nics[i].name);
		width = len > width ? len : width;
	}
	return (int)width;
}

static void topo_print_nics(struct topo_out *o, const struct tei_topo *topo)
{
	const struct tei_topo_nic *nic;
	int width = topo_width(topo);
	char node[16];
	uint32_t i;

	topo_print(o, "%3s  %-*s  %-5s  %-4s  %-15s  %s\n", "NIC", width,
		   "NAME", "STATE", "NUMA", "PCI", "SPEED");
	for (i = 0; i < topo->n_nics; i++) {
		nic = &topo->nics[i];
		snprintf(node, sizeof(node), "%d", nic->numa_node);
		topo_print(o, "%3u  %-*s  %-5s  %-4s  %-15s  ", i, width,
			   nic->name, nic->off ? "off" : "on",
			   nic->numa_node < 0 ? "-" : node,
			   *nic->pci ? nic->pci : "-");
		topo_print_speed(o, nic->speed);
	}
}

static void topo_print_row(struct topo_out *o, const struct tei_topo *topo,
			   const struct topo_row *row)
{
	uint32_t i;

	topo_print(o, "%-8s  near:", row->location);
	for (i = 0; i < row->n_preferred; i++)
		topo_print(o, " %s", topo->nics[row->nics[i]].name);
	topo_print(o, "%s", row->n_preferred ? "" : " -");
	if (row->n_accessible)
		topo_print(o, "  other:");
	for (i = 0; i < row->n_accessible; i++)
		topo_print(o, " %s",
			   topo->nics[row->nics[row->n_preferred + i]].name);
	topo_print(o, "\n");
}

size_t tei_topo_text(const struct tei_topo *topo, char *buf, size_t len)
{
	struct topo_out o = { .buf = buf, .len = len };
	uint32_t i;

	topo_print_nics(&o, topo);
	topo_print(&o, "\n");
	for (i = 0; i < topo->n_rows; i++)
		topo_print_row(&o, topo, &topo->rows[i]);
	topo_print_row(&o, topo, &topo->any);
	return o.used;
}

bool tei_topo_filter(const char *list, const char *name)
{
	size_t len = strlen(name), n;
	bool any = false;

	for (; list && *list; list += n) {
		list += strspn(list, ", \t\n");
		n = strcspn(list, ",");
		while (n && strchr(" \t\n", list[n - 1]))
			n--;
		any |= n > 0;
		if (n && n == len && !memcmp(list, name, n))
			return true;
	}
	return !any;
}
