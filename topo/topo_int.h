/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOPO_TOPO_INT_H
#define TEI_TOPO_TOPO_INT_H

#include <hwloc.h>
#include <stdio.h>

#include "topo/tei_topo.h"

#define TOPO_SUBSYS	"topo"
#define TOPO_DEVICE	64	/* name of a netdev or RDMA device, with NUL */
#define TOPO_PATH	512

/* One location's row. Created and freed by its topology. */
struct topo_row {
	char location[TEI_TOPO_NAME];
	uint32_t n_preferred;
	uint32_t n_accessible;
	uint32_t *nics;		/* preferred first, then accessible; none off */
	int numa_node;		/* where it is, -1 unknown */
	char pci[16];		/* of a GPU, or "" */
};

/*
 * Created by the functions of tei_topo.h, freed by the caller. Fixed from the
 * moment the caller gets it.
 */
struct tei_topo {
	uint32_t n_nics;
	uint32_t n_rows;
	uint32_t cap_rows;
	struct tei_topo_nic *nics;
	struct topo_row *rows;	/* sorted by topo_sort */
	struct topo_row any;	/* "*": every NIC that isn't off */
};

/*
 * Building. topo_new gives room for n NICs, all zero with numa_node -1.
 * topo_add_row adds an empty row with room for all NICs, or NULL without
 * memory. topo_finish sorts the rows and fills "*".
 */
struct tei_topo *topo_new(uint32_t n_nics);
struct topo_row *topo_add_row(struct tei_topo *topo, const char *location);
int topo_finish(struct tei_topo *topo);
const struct topo_row *topo_find_row(const struct tei_topo *topo,
				     const char *location);

/* Copies descs into a new topology, as tei_topo_create, without topo_finish. */
int topo_from_descs(const struct tei_topo_nic_desc *nics, size_t count,
		    struct tei_topo **out, struct tei_err *err);

/* Why a name of a NIC or location can't be one, or NULL if it can. */
const char *topo_bad_name(const char *name);

/* The start of text with anything unprintable as '?', for messages. */
struct topo_quote {
	char text[41];
};
struct topo_quote topo_quote(const char *text);

void topo_pci_text(const struct tei_topo_pci *pci, char text[16]);
bool topo_pci_parse(const char *text, struct tei_topo_pci *pci);

/* --- where a device sits ------------------------------------------------- */

/* Filled by topo_hw_… or topo_sys_…; points into the hwloc topology. */
struct topo_spot {
	hwloc_obj_t obj;	/* PCI or OS device, NULL if hwloc has none */
	hwloc_const_nodeset_t nodes;	/* NULL: see node */
	int node;		/* -1 unknown */
};

/* hwloc's view, made by topo_hw_open and freed by topo_hw_close. */
struct topo_hw {
	hwloc_topology_t t;	/* NULL if hwloc failed */
	bool this_system;
};

void topo_hw_open(struct topo_hw *hw, const char *xml_path);
void topo_hw_close(struct topo_hw *hw);
hwloc_obj_t topo_hw_by_pci(const struct topo_hw *hw,
			   const struct tei_topo_pci *pci);
hwloc_obj_t topo_hw_by_name(const struct topo_hw *hw, const char *device);
void topo_hw_spot(const struct topo_hw *hw, hwloc_obj_t obj,
		  struct topo_spot *spot);
/* The PCI device that obj is or belongs to, or not known. */
struct tei_topo_pci topo_hw_pci(hwloc_obj_t obj);
/* Depth of the deepest bridge that both sit behind, 0 if there is none. */
unsigned int topo_hw_shared_bridge(hwloc_obj_t a, hwloc_obj_t b);
/* NUMA node numbers, ascending; how many, at most max. */
size_t topo_hw_nodes(const struct topo_hw *hw, int *nodes, size_t max);

struct topo_gpu {
	unsigned int ordinal;
	struct topo_spot spot;
};
/* GPUs of the first kind found: CUDA, NVML, OpenCL devices, PCI class. */
size_t topo_hw_gpus(const struct topo_hw *hw, struct topo_gpu *gpus,
		    size_t max);

/* Network and RDMA devices on a PCI bus, their names into names. */
size_t topo_hw_nics(const struct topo_hw *hw, const char **names, size_t max);

/* Fields are left as they are where sysfs has no answer. */
struct topo_sys_nic {
	int node;
	struct tei_topo_pci pci;
	uint64_t speed;		/* bits per second */
};
void topo_sys_nic(const char *sysfs, const char *device,
		  struct topo_sys_nic *nic);
int topo_sys_pci_node(const char *sysfs, const struct tei_topo_pci *pci);
/* What tei_topo_nic_node, _block_node and _node_cpus are. */
int topo_sys_nic_node(const char *sysfs, const char *device, const char *addr);
int topo_sys_block_node(const char *sysfs, dev_t dev);
bool topo_sys_node_cpus(const char *sysfs, int node, cpu_set_t *cpus);
/* NUMA nodes that are online, ascending; how many, at most max. */
size_t topo_sys_nodes(const char *sysfs, int *nodes, size_t max);

/* --- where an address lives ---------------------------------------------- */

/* As move_pages(2) with nodes NULL: fills status, 0 or -1. */
typedef int (*topo_query_fn)(unsigned long n, void **pages, int *status);

#define TOPO_SAMPLE	16

/*
 * The node that holds most pages present in the sample, -1 if none does, -2 if
 * the query failed.
 */
int topo_locate_node(const void *addr, size_t len, size_t page,
		     topo_query_fn query);

#define TOPO_PARTS_SAMPLE	64	/* pages looked at */
#define TOPO_PARTS	16		/* parts at most */
#define TOPO_RAGGED	2		/* of these may be on several nodes */

/*
 * "segments:…" with as few equal parts as tell the nodes apart; false, and
 * nothing written, for less than TOPO_PARTS_SAMPLE pages, all on one node, or
 * mixed in more than TOPO_RAGGED parts of TOPO_PARTS.
 */
bool topo_locate_parts(const void *addr, size_t len, size_t page,
		       topo_query_fn query, char text[TEI_TOPO_NAME]);

/* As tei_topo_maps_read; query false: as before Linux 6.11. */
int topo_maps_read(uint64_t until, bool query, struct tei_topo_maps **maps);

#endif /* TEI_TOPO_TOPO_INT_H */
