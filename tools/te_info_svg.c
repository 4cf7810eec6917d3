/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Draws the picture of --svg. Each socket is a column, in which the boxes of
 * its NUMA nodes are below each other. The box of a node has the node's NICs on
 * the left and its GPUs on the right, with a line from each GPU to the NICs
 * that are preferred for it. Devices whose node is unknown are in a separate
 * box at the bottom.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/te_info.h"
#include "topo/tei_topo.h"
#include "util/text.h"

enum {
	SVG_EDGE = 24,		/* margin of the picture */
	SVG_TOP = 84,		/* height of the title */
	SVG_GAP = 18,
	SVG_HEAD = 34,		/* height of the heading of a socket */
	SVG_NODE_HEAD = 68,	/* height of the heading of a node */
	SVG_CHIP_W = 206,
	SVG_CHIP_H = 42,
	SVG_CHIP_STEP = 52,
	SVG_MIDDLE = 88,	/* space between NICs and GPUs, for the lines */
	SVG_NODE_W = 2 * SVG_CHIP_W + SVG_MIDDLE + 2 * 14,
	SVG_SOCKET_W = SVG_NODE_W + 2 * 14,
	SVG_FOOT = 64,		/* height of the legend */
	SVG_COLUMNS = 4,	/* most sockets in one row */
};

struct svg_spot {
	int x, y;		/* upper left corner of a chip (the box of one
				 * NIC or GPU), pixels */
};

/* State of the drawing. info_svg frees it. */
struct svg {
	const struct info *info;
	struct info_machine m;
	struct svg_spot *nics;	/* positions of the chips of the NICs, one per
				 * NIC */
	struct svg_spot *gpus;	/* positions of the chips of the GPUs, one per
				 * location */
	bool strays;		/* true if the node of a device is unknown */
};

/* --- layout -------------------------------------------------------------- */

static bool svg_known_node(const struct svg *s, int node)
{
	for (size_t i = 0; i < s->m.n_nodes; i++)
		if (s->m.nodes[i].index == node)
			return true;
	return false;
}

/* Returns the index of the first NIC on the same card. This NIC represents the
 * card; for example, "mlx5_0" represents "mlx5_0" and "ib0". */
static size_t svg_card(const struct svg *s, size_t nic)
{
	const char *pci = tei_topo_nic(s->m.topo, nic)->pci;
	size_t i;

	for (i = 0; i < nic && *pci; i++)
		if (!strcmp(tei_topo_nic(s->m.topo, i)->pci, pci))
			return i;
	return nic;
}

static bool svg_nic_in(const struct svg *s, size_t nic, int node)
{
	int at = tei_topo_nic(s->m.topo, nic)->numa_node;

	if (svg_card(s, nic) != nic)
		return false;
	return node < 0 ? !svg_known_node(s, at) : at == node;
}

static bool svg_gpu_in(const struct svg *s, size_t location, int node)
{
	struct tei_topo_place p;

	if (strncmp(tei_topo_location(s->m.topo, location), "cuda:", 5) ||
	    !tei_topo_location_place(s->m.topo, location, &p))
		return false;
	return node < 0 ? !svg_known_node(s, p.numa_node) :
			  p.numa_node == node;
}

/* Returns the number of rows in a node's box. The node -1 stands for the box of
 * the devices whose node is unknown. */
static int svg_rows(const struct svg *s, int node)
{
	size_t i, nics = 0, gpus = 0;

	for (i = 0; i < tei_topo_nic_count(s->m.topo); i++)
		nics += svg_nic_in(s, i, node);
	for (i = 0; i < tei_topo_location_count(s->m.topo); i++)
		gpus += svg_gpu_in(s, i, node);
	return (int)(nics > gpus ? nics : gpus);
}

static int svg_node_height(const struct svg *s, int node)
{
	return SVG_NODE_HEAD + svg_rows(s, node) * SVG_CHIP_STEP + 6;
}

/* Returns the height of a socket. The package -1 stands for a socket with the
 * nodes that belong to no package or to several. */
static int svg_socket_height(const struct svg *s, int package)
{
	int h = 0;

	for (size_t i = 0; i < s->m.n_nodes; i++)
		if (s->m.nodes[i].package == package)
			h += svg_node_height(s, s->m.nodes[i].index) + 12;
	return h ? h + SVG_HEAD + 2 : 0;
}

/* --- chips --------------------------------------------------------------- */

static bool svg_is_rail(const struct svg *s, const char *name)
{
	if (s->info->opts.topology)
		return true;
	for (size_t i = 0; i < s->info->n_rails; i++)
		if (!strcmp(s->info->rails[i].name, name))
			return true;
	return false;
}

static void svg_nic(struct svg *s, size_t i, int x, int y)
{
	const struct tei_topo_nic *nic = tei_topo_nic(s->m.topo, i), *other;
	char speed[32] = "", names[256];
	bool rail = svg_is_rail(s, nic->name);
	const char *gap;
	size_t k, used;

	s->nics[i].x = x;
	s->nics[i].y = y;
	used = (size_t)snprintf(names, sizeof(names), "%s", nic->name);
	for (k = i + 1; k < tei_topo_nic_count(s->m.topo); k++) {
		if (svg_card(s, k) != i)
			continue;
		other = tei_topo_nic(s->m.topo, k);
		rail |= svg_is_rail(s, other->name);
		if (used < sizeof(names) - TEI_TOPO_NAME - 2)
			used += (size_t)snprintf(names + used,
						 sizeof(names) - used, ", %s",
						 other->name);
	}
	if (nic->speed)
		info_bits_text((double)nic->speed, speed, sizeof(speed));
	gap = *nic->pci && *speed ? "  " : "";
	svg_box(rail ? "rail" : "nic", x, y, SVG_CHIP_W, SVG_CHIP_H);
	svg_text("name", x + 10, y + 18, SVG_CHIP_W - 20, "%s", names);
	svg_text("small", x + 10, y + 34, SVG_CHIP_W - 20, "%s%s%s", nic->pci,
		 gap, speed);
}

static void svg_gpu(struct svg *s, size_t i, int x, int y)
{
	struct tei_topo_place p = { .pci = "" };

	tei_topo_location_place(s->m.topo, i, &p);
	s->gpus[i].x = x;
	s->gpus[i].y = y;
	svg_box("gpu", x, y, SVG_CHIP_W, SVG_CHIP_H);
	svg_text("name", x + 10, y + 18, SVG_CHIP_W - 20, "%s",
		 tei_topo_location(s->m.topo, i));
	svg_text("small", x + 10, y + 34, SVG_CHIP_W - 20, "GPU  %s", p.pci);
}

static void svg_chips(struct svg *s, int node, int x, int y)
{
	size_t i, row = 0;

	for (i = 0; i < tei_topo_nic_count(s->m.topo); i++)
		if (svg_nic_in(s, i, node))
			svg_nic(s, i, x + 14,
				y + (int)row++ * SVG_CHIP_STEP);
	row = 0;
	for (i = 0; i < tei_topo_location_count(s->m.topo); i++)
		if (svg_gpu_in(s, i, node))
			svg_gpu(s, i, x + 14 + SVG_CHIP_W + SVG_MIDDLE,
				y + (int)row++ * SVG_CHIP_STEP);
}

/* --- boxes --------------------------------------------------------------- */

/* Prints the names of the NICs that are preferred for a location. */
static void svg_near(const struct svg *s, const char *location, int x, int y,
		     int width)
{
	const uint32_t *near, *other;
	size_t n, n_other, i, used = 0;
	char text[400] = "";

	tei_topo_lookup(s->m.topo, location, &near, &n, &other, &n_other);
	for (i = 0; i < n && used < sizeof(text) - 70; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used,
					 " %s",
					 tei_topo_nic(s->m.topo,
						      near[i])->name);
	svg_text("small", x, y, width, "%s prefers:%s", location,
		 n ? text : " nothing, there is no NIC");
}

static void svg_node(struct svg *s, const struct info_node *n, int x, int y)
{
	char memory[32], location[24];

	svg_box("node", x, y, SVG_NODE_W, svg_node_height(s, n->index));
	svg_text("head", x + 14, y + 24, SVG_NODE_W - 28, "NUMA node %d",
		 n->index);
	svg_text("sub", x + 150, y + 24, SVG_NODE_W - 164,
		 "%s, %u core%s, %u thread%s",
		 info_bytes_text(n->memory, memory, sizeof(memory)), n->cores,
		 tei_plural((uint64_t)n->cores), n->threads,
		 tei_plural((uint64_t)n->threads));
	snprintf(location, sizeof(location), "cpu:%d", n->index);
	svg_near(s, location, x + 14, y + 46, SVG_NODE_W - 28);
	svg_chips(s, n->index, x, y + SVG_NODE_HEAD - 8);
}

static void svg_socket(struct svg *s, int package, int x, int y)
{
	const struct info_package *p = package < 0 ? NULL :
				       &s->m.packages[package];
	int at = y + SVG_HEAD;

	svg_box("socket", x, y, SVG_SOCKET_W, svg_socket_height(s, package));
	if (p)
		svg_text("head", x + 14, y + 23, SVG_SOCKET_W - 28,
			 "Socket %d%s%s", p->index, *p->model ? "   " : "",
			 p->model);
	else
		svg_text("head", x + 14, y + 23, SVG_SOCKET_W - 28,
			 "Memory of no single socket");
	for (size_t i = 0; i < s->m.n_nodes; i++) {
		if (s->m.nodes[i].package != package)
			continue;
		svg_node(s, &s->m.nodes[i], x + 14, at);
		at += svg_node_height(s, s->m.nodes[i].index) + 12;
	}
}

/* Draws all sockets, SVG_COLUMNS in a row, if draw is true. In any case
 * computes their extent: sets *width, and returns the vertical position below
 * them. */
static int svg_sockets(struct svg *s, bool draw, int *width)
{
	int x = SVG_EDGE, y = SVG_TOP, tallest = 0, column = 0, h;

	*width = SVG_SOCKET_W;
	for (int p = -1; p < (int)s->m.n_packages; p++) {
		h = svg_socket_height(s, p);
		if (!h)
			continue;
		if (column == SVG_COLUMNS) {
			x = SVG_EDGE;
			y += tallest + SVG_GAP;
			tallest = column = 0;
		}
		if (draw)
			svg_socket(s, p, x, y);
		column++;
		x += SVG_SOCKET_W + SVG_GAP;
		tallest = h > tallest ? h : tallest;
		if (x - SVG_GAP - SVG_EDGE > *width)
			*width = x - SVG_GAP - SVG_EDGE;
	}
	return y + (tallest ? tallest + SVG_GAP : 0);
}

static void svg_strays(struct svg *s, int y)
{
	svg_box("node", SVG_EDGE + 14, y, SVG_NODE_W, svg_node_height(s, -1));
	svg_text("head", SVG_EDGE + 28, y + 24, SVG_NODE_W - 28,
		 "NUMA node unknown");
	svg_text("small", SVG_EDGE + 28, y + 46, SVG_NODE_W - 28,
		 "virtual devices, or the machine does not report their node");
	svg_chips(s, -1, SVG_EDGE + 14, y + SVG_NODE_HEAD - 8);
}

/* --- lines --------------------------------------------------------------- */

static void svg_prefers(const struct svg *s, size_t gpu)
{
	const struct svg_spot *from = &s->gpus[gpu], *to;
	const uint32_t *near, *other;
	size_t n, n_other, i;
	bool beside;

	if (!from->x)
		return;
	tei_topo_lookup(s->m.topo, tei_topo_location(s->m.topo, gpu), &near,
			&n, &other, &n_other);
	for (i = 0; i < n; i++) {
		if (svg_card(s, near[i]) != near[i])
			continue;
		to = &s->nics[near[i]];
		beside = from->x - to->x == SVG_CHIP_W + SVG_MIDDLE;
		svg_link(beside ? "near" : "far",
			 from->x > to->x ? from->x : from->x + SVG_CHIP_W,
			 from->y + SVG_CHIP_H / 2,
			 from->x > to->x ? to->x + SVG_CHIP_W : to->x,
			 to->y + SVG_CHIP_H / 2);
	}
}

static void svg_legend(int y)
{
	int x = SVG_EDGE;

	svg_box("rail", x, y, 22, 16);
	svg_text("small", x + 30, y + 12, 120, "NIC (rail)");
	svg_box("nic", x + 120, y, 22, 16);
	svg_text("small", x + 150, y + 12, 120, "other NIC");
	svg_box("gpu", x + 250, y, 22, 16);
	svg_text("small", x + 280, y + 12, 60, "GPU");
	svg_link("near", x + 330, y + 8, x + 372, y + 8);
	svg_text("small", x + 380, y + 12, 220, "preferred by the GPU");
}

static void svg_title(const struct svg *s)
{
	const char *xml = s->info->opts.topology, *base;
	size_t i, nics = 0, gpus = 0;

	base = xml ? strrchr(xml, '/') : NULL;
	for (i = 0; i < tei_topo_nic_count(s->m.topo); i++)
		nics += svg_card(s, i) == i;
	for (i = 0; i < tei_topo_location_count(s->m.topo); i++)
		gpus += !strncmp(tei_topo_location(s->m.topo, i), "cuda:", 5);
	svg_text("title", SVG_EDGE, 38, SVG_SOCKET_W, "%s",
		 base ? base + 1 : xml ? xml : info_get(s->info->doc, "host"));
	svg_text("sub", SVG_EDGE, 62, SVG_SOCKET_W,
		 "sockets: %zu, NUMA nodes: %zu, NICs: %zu, GPUs: %zu",
		 s->m.n_packages, s->m.n_nodes, nics, gpus);
}

static void svg_draw(struct svg *s)
{
	int width, height = svg_sockets(s, false, &width), below = height;

	s->strays = svg_rows(s, -1) > 0;
	if (s->strays)
		height += svg_node_height(s, -1) + SVG_GAP;
	svg_head(width + 2 * SVG_EDGE, height + SVG_FOOT, "te_info");
	svg_title(s);
	svg_sockets(s, true, &width);
	if (s->strays)
		svg_strays(s, below);
	for (size_t i = 0; i < tei_topo_location_count(s->m.topo); i++)
		svg_prefers(s, i);
	svg_legend(height + 14);
	svg_tail();
}

int info_svg(struct info *info)
{
	struct svg s = { .info = info };
	char why[256], host[128] = "this machine";
	int ret = INFO_EXIT_USAGE;

	info->doc = cJSON_CreateObject();
	if (!info->opts.topology) {
		info_look_net(info);
		info_look_rails(info);
		info_read(info, host, sizeof(host),
			  "/proc/sys/kernel/hostname");
	}
	info_text(info->doc, "host", "%s", host);
	if (info_machine_open(info, &s.m, why, sizeof(why))) {
		fprintf(stderr, "te_info: %s\n", why);
		goto out;
	}
	s.nics = calloc(tei_topo_nic_count(s.m.topo) + 1, sizeof(*s.nics));
	s.gpus = calloc(tei_topo_location_count(s.m.topo) + 1,
			sizeof(*s.gpus));
	if (s.nics && s.gpus) {
		svg_draw(&s);
		ret = INFO_EXIT_OK;
	} else {
		fprintf(stderr, "te_info: out of memory\n");
	}
	free(s.nics);
	free(s.gpus);
	info_machine_close(&s.m);
out:
	cJSON_Delete(info->doc);
	free(info->nets);
	return ret;
}
