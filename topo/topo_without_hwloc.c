/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "topo/topo_int.h"
#include "util/log.h"

/* Replaces topo_hwloc.c if the library was configured with --disable-hwloc.
 * Without hwloc, NUMA nodes are read from sysfs, PCI bridges are unknown, and
 * only the GPUs that the CUDA driver lists are known. */

bool topo_hw_built_in(void)
{
	return false;
}

void topo_hw_open(struct topo_hw *hw, const char *xml_path)
{
	(void)xml_path;
	hw->t = NULL;
	hw->this_system = true;
	if (getenv("HWLOC_XMLFILE"))
		TEI_WARN(TOPO_SUBSYS, "HWLOC_XMLFILE: ignored, because this "
			 "library was configured with --disable-hwloc");
}

void topo_hw_close(struct topo_hw *hw)
{
	(void)hw;
}

struct hwloc_obj *topo_hw_by_pci(const struct topo_hw *hw,
				 const struct tei_topo_pci *pci)
{
	(void)hw;
	(void)pci;
	return NULL;
}

struct hwloc_obj *topo_hw_by_name(const struct topo_hw *hw, const char *device)
{
	(void)hw;
	(void)device;
	return NULL;
}

void topo_hw_spot(const struct topo_hw *hw, struct hwloc_obj *obj,
		  struct topo_spot *spot)
{
	(void)hw;
	spot->obj = obj;
	spot->nodes = NULL;
	spot->node = -1;
}

bool topo_hw_near(const struct topo_spot *spot, int node)
{
	return spot->node == node;
}

bool topo_hw_share_node(const struct topo_spot *a, const struct topo_spot *b)
{
	return a->node == b->node;
}

struct tei_topo_pci topo_hw_pci(struct hwloc_obj *obj)
{
	(void)obj;
	return (struct tei_topo_pci){ .known = false };
}

unsigned int topo_hw_shared_bridge(struct hwloc_obj *a, struct hwloc_obj *b)
{
	(void)a;
	(void)b;
	return 0;
}

size_t topo_hw_nodes(const struct topo_hw *hw, int *nodes, size_t max)
{
	(void)hw;
	(void)nodes;
	(void)max;
	return 0;
}

size_t topo_hw_gpus(const struct topo_hw *hw, struct topo_gpu *gpus, size_t max)
{
	(void)hw;
	(void)gpus;
	(void)max;
	return 0;
}

size_t topo_hw_nics(const struct topo_hw *hw, const char **names, size_t max)
{
	(void)hw;
	(void)names;
	(void)max;
	return 0;
}
