/* SPDX-License-Identifier: BSD-2-Clause */
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo_int.h"
#include "util/log.h"

#define TOPO_PCI_NVIDIA		0x10de
#define TOPO_PCI_VGA		0x0300
#define TOPO_PCI_3D		0x0302

/* Disables components of hwloc that would open displays, or that would
 * initialise GPU drivers in a process that may fork later. Also filters out
 * objects that have no influence on distances. */
static int topo_hw_configure(hwloc_topology_t t)
{
	static const char *const unwanted[] = {
		"cuda", "opencl", "gl", "rsmi", "levelzero",
	};
	unsigned long flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED;
	size_t i;

#if HWLOC_API_VERSION >= 0x00020800
	flags |= HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING |
		 HWLOC_TOPOLOGY_FLAG_NO_DISTANCES |
		 HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
		 HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;
#endif
	for (i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++)
		hwloc_topology_set_components(
			t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
			unwanted[i]);
	hwloc_topology_set_cache_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
	hwloc_topology_set_icache_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
	if (hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_ALL))
		return -1;
	return hwloc_topology_set_flags(t, flags);
}

bool topo_hw_built_in(void)
{
	return true;
}

void topo_hw_open(struct topo_hw *hw, const char *xml_path)
{
	hwloc_topology_t t;

	hw->t = NULL;
	hw->this_system = !xml_path && !getenv("HWLOC_XMLFILE");
	if (hwloc_topology_init(&t))
		goto err_warn;
	if (topo_hw_configure(t))
		goto err_destroy;
	if (xml_path && hwloc_topology_set_xml(t, xml_path))
		goto err_destroy;
	if (hwloc_topology_load(t))
		goto err_destroy;
	hw->t = t;
	hw->this_system = hwloc_topology_is_thissystem(t);
	return;

err_destroy:
	hwloc_topology_destroy(t);
err_warn:
	TEI_WARN(TOPO_SUBSYS, "hwloc: cannot read the topology%s%s: %m; "
		 "distances are unknown", xml_path ? " from " : "",
		 xml_path ? xml_path : "");
}

void topo_hw_close(struct topo_hw *hw)
{
	if (hw->t)
		hwloc_topology_destroy(hw->t);
	hw->t = NULL;
}

hwloc_obj_t topo_hw_by_pci(const struct topo_hw *hw,
			   const struct tei_topo_pci *pci)
{
	if (!hw->t || !pci->known)
		return NULL;
	return hwloc_get_pcidev_by_busid(hw->t, pci->domain, pci->bus,
					 pci->dev, pci->fn);
}

static bool topo_hw_is_nic(hwloc_obj_t obj)
{
	return obj->name && obj->attr &&
	       (obj->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ||
		obj->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS);
}

hwloc_obj_t topo_hw_by_name(const struct topo_hw *hw, const char *device)
{
	hwloc_obj_t obj = NULL;

	if (!hw->t)
		return NULL;
	while ((obj = hwloc_get_next_osdev(hw->t, obj)))
		if (topo_hw_is_nic(obj) && !strcmp(obj->name, device))
			return obj;
	return NULL;
}

static hwloc_obj_t topo_hw_pcidev(hwloc_obj_t obj)
{
	while (obj && obj->type == HWLOC_OBJ_OS_DEVICE)
		obj = obj->parent;
	return obj && obj->type == HWLOC_OBJ_PCI_DEVICE ? obj : NULL;
}

struct tei_topo_pci topo_hw_pci(hwloc_obj_t obj)
{
	struct tei_topo_pci pci = { .known = false };

	obj = topo_hw_pcidev(obj);
	if (obj && obj->attr) {
		pci.known = true;
		pci.domain = obj->attr->pcidev.domain;
		pci.bus = obj->attr->pcidev.bus;
		pci.dev = obj->attr->pcidev.dev;
		pci.fn = obj->attr->pcidev.func;
	}
	return pci;
}

/* Finds the hwloc object and the NUMA nodes of a device. If the machine has
 * several nodes and the device is attached to all of them, no node is near the
 * device. */
void topo_hw_spot(const struct topo_hw *hw, hwloc_obj_t obj,
		  struct topo_spot *spot)
{
	hwloc_const_nodeset_t all;
	hwloc_obj_t host;

	spot->obj = obj;
	spot->nodes = NULL;
	spot->node = -1;
	if (!hw->t || !obj)
		return;
	host = hwloc_get_non_io_ancestor_obj(hw->t, obj);
	if (!host || !host->nodeset || hwloc_bitmap_iszero(host->nodeset))
		return;
	all = hwloc_topology_get_topology_nodeset(hw->t);
	if (hwloc_bitmap_weight(all) > 1 &&
	    hwloc_bitmap_isincluded(all, host->nodeset))
		return;
	spot->nodes = host->nodeset;
	spot->node = hwloc_bitmap_first(host->nodeset);
}

bool topo_hw_near(const struct topo_spot *spot, int node)
{
	return hwloc_bitmap_isset(spot->nodes, (unsigned int)node);
}

bool topo_hw_share_node(const struct topo_spot *a, const struct topo_spot *b)
{
	return hwloc_bitmap_intersects(a->nodes, b->nodes);
}

static unsigned int topo_hw_level(hwloc_obj_t obj)
{
	unsigned int level = 0;

	for (; obj->parent; obj = obj->parent)
		level++;
	return level;
}

unsigned int topo_hw_shared_bridge(hwloc_obj_t a, hwloc_obj_t b)
{
	unsigned int la, lb;

	if (!a || !b)
		return 0;
	la = topo_hw_level(a);
	lb = topo_hw_level(b);
	for (; la > lb; la--)
		a = a->parent;
	for (; lb > la; lb--)
		b = b->parent;
	for (; a != b; la--) {
		a = a->parent;
		b = b->parent;
	}
	return hwloc_obj_type_is_io(a->type) ? la : 0;
}

static int topo_int_cmp(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

size_t topo_hw_nodes(const struct topo_hw *hw, int *nodes, size_t max)
{
	hwloc_obj_t obj = NULL;
	size_t n = 0;

	if (!hw->t)
		return 0;
	while (n < max && (obj = hwloc_get_next_obj_by_type(
				   hw->t, HWLOC_OBJ_NUMANODE, obj)))
		nodes[n++] = (int)obj->os_index;
	qsort(nodes, n, sizeof(*nodes), topo_int_cmp);
	return n;
}

/* --- GPUs ---------------------------------------------------------------- */

/* Returns the number N of an OS device whose name is prefix followed by N, or
 * -1 if the name has another form. */
static int topo_hw_number(hwloc_obj_t obj, const char *prefix)
{
	size_t len = strlen(prefix);
	unsigned int n;
	int end = 0;

	if (!obj->name || strncmp(obj->name, prefix, len))
		return -1;
	if (sscanf(obj->name + len, "%4u%n", &n, &end) != 1 ||
	    obj->name[len + (size_t)end])
		return -1;
	return (int)n;
}

static size_t topo_hw_gpus_named(const struct topo_hw *hw, const char *prefix,
				 struct topo_gpu *gpus, size_t max)
{
	hwloc_obj_t obj = NULL;
	size_t n = 0;
	int number;

	while (n < max && (obj = hwloc_get_next_osdev(hw->t, obj))) {
		number = topo_hw_number(obj, prefix);
		if (number < 0)
			continue;
		gpus[n].ordinal = (unsigned int)number;
		topo_hw_spot(hw, obj, &gpus[n++].spot);
	}
	return n;
}

static bool topo_hw_is_opencl_nvidia(hwloc_obj_t obj)
{
	const char *vendor;

	if (!obj->name || strncmp(obj->name, "opencl", 6))
		return false;
	vendor = hwloc_obj_get_info_by_name(obj, "GPUVendor");
	return vendor && strstr(vendor, "NVIDIA");
}

static bool topo_hw_is_nvidia(hwloc_obj_t obj)
{
	return obj->attr && obj->attr->pcidev.vendor_id == TOPO_PCI_NVIDIA &&
	       (obj->attr->pcidev.class_id == TOPO_PCI_3D ||
		obj->attr->pcidev.class_id == TOPO_PCI_VGA);
}

static uint64_t topo_hw_busid(hwloc_obj_t obj)
{
	struct tei_topo_pci pci = topo_hw_pci(obj);

	return ((uint64_t)pci.domain << 16) | ((uint64_t)pci.bus << 8) |
	       ((uint64_t)pci.dev << 3) | pci.fn;
}

static int topo_gpu_cmp(const void *pa, const void *pb)
{
	const struct topo_gpu *a = pa, *b = pb;
	uint64_t x = topo_hw_busid(a->spot.obj), y = topo_hw_busid(b->spot.obj);

	return (x > y) - (x < y);
}

/* Gets the devices of a type for which match returns true, in the order of
 * their PCI addresses, as GPUs 0, 1, …. Returns their number, at most max. */
static size_t topo_hw_gpus_by_bus(const struct topo_hw *hw,
				  hwloc_obj_type_t type,
				  bool (*match)(hwloc_obj_t),
				  struct topo_gpu *gpus, size_t max)
{
	hwloc_obj_t obj = NULL;
	size_t n = 0, i;

	while (n < max &&
	       (obj = hwloc_get_next_obj_by_type(hw->t, type, obj)))
		if (match(obj))
			topo_hw_spot(hw, obj, &gpus[n++].spot);
	qsort(gpus, n, sizeof(*gpus), topo_gpu_cmp);
	for (i = 0; i < n; i++)
		gpus[i].ordinal = (unsigned int)i;
	return n;
}

size_t topo_hw_gpus(const struct topo_hw *hw, struct topo_gpu *gpus,
		    size_t max)
{
	size_t n;

	if (!hw->t)
		return 0;
	n = topo_hw_gpus_named(hw, "cuda", gpus, max);
	if (!n)
		n = topo_hw_gpus_named(hw, "nvml", gpus, max);
	if (!n)
		n = topo_hw_gpus_by_bus(hw, HWLOC_OBJ_OS_DEVICE,
					topo_hw_is_opencl_nvidia, gpus, max);
	if (!n)
		n = topo_hw_gpus_by_bus(hw, HWLOC_OBJ_PCI_DEVICE,
					topo_hw_is_nvidia, gpus, max);
	return n;
}

size_t topo_hw_nics(const struct topo_hw *hw, const char **names, size_t max)
{
	hwloc_obj_t obj = NULL;
	size_t n = 0;

	if (!hw->t)
		return 0;
	while (n < max && (obj = hwloc_get_next_osdev(hw->t, obj)))
		if (topo_hw_is_nic(obj) && topo_hw_pcidev(obj) &&
		    !topo_bad_name(obj->name))
			names[n++] = obj->name;
	return n;
}
