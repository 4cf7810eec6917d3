/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOPO_TOPO_INT_H
#define TEI_TOPO_TOPO_INT_H

#include <stdio.h>

#include "topo/tei_topo.h"

/* Types of hwloc, so that this header does not need hwloc. */
struct hwloc_bitmap_s;
struct hwloc_obj;
struct hwloc_topology;

#define TOPO_SUBSYS	"topo"
#define TOPO_DEVICE	64	/* name of a netdev or RDMA device, with NUL */
#define TOPO_PATH	512

/* One location of the matrix. Created and freed by its topology. */
struct topo_row {
	char location[TEI_TOPO_NAME];
	uint32_t n_preferred;
	uint32_t n_accessible;
	uint32_t *nics;		/* indices of the preferred NICs, then of the
				 * accessible ones; without NICs that are
				 * off */
	int numa_node;		/* node of the location; -1 if unknown */
	char pci[16];		/* PCI address of a GPU, or "" */
};

/*
 * A topology. The functions of tei_topo.h create it, and the caller frees it.
 * It is constant once such a function has returned it.
 */
struct tei_topo {
	uint32_t n_nics;
	uint32_t n_rows;
	uint32_t cap_rows;	/* allocated entries of rows */
	struct tei_topo_nic *nics;
	struct topo_row *rows;	/* sorted by location (topo_finish) */
	struct topo_row any;	/* "*": every NIC that is not off */
};

/*
 * Building a topology. topo_new returns a topology with n_nics zeroed NICs,
 * whose numa_node is -1, or NULL if memory is short. topo_add_row adds an empty
 * row that has room for all NICs, or returns NULL if memory is short.
 * topo_finish sorts the rows and fills "*"; it returns 0 or TEI_ERR_MEMORY.
 */
struct tei_topo *topo_new(uint32_t n_nics);
struct topo_row *topo_add_row(struct tei_topo *topo, const char *location);
int topo_finish(struct tei_topo *topo);
const struct topo_row *topo_find_row(const struct tei_topo *topo,
				     const char *location);

/*
 * Creates a topology from descs, as tei_topo_create does, but without
 * topo_finish.
 */
int topo_from_descs(const struct tei_topo_nic_desc *nics, size_t count,
		    struct tei_topo **out, struct tei_err *err);

/*
 * Returns the reason why name is not a valid name of a NIC or location, or NULL
 * if it is valid.
 */
const char *topo_bad_name(const char *name);

/* The beginning of a text, with unprintable characters as '?', for messages. */
struct topo_quote {
	char text[41];
};
struct topo_quote topo_quote(const char *text);

void topo_pci_text(const struct tei_topo_pci *pci, char text[16]);
bool topo_pci_parse(const char *text, struct tei_topo_pci *pci);

/* --- positions of devices ------------------------------------------------ */

/*
 * Position of a device. Filled by topo_hw_… or topo_sys_…; points into the
 * hwloc topology.
 */
struct topo_spot {
	struct hwloc_obj *obj; /* PCI or OS device of hwloc, or NULL */
	const struct hwloc_bitmap_s *nodes; /* NUMA nodes of the device; NULL
					     * if only node is known */
	int node;		/* NUMA node of the device if nodes is NULL;
				 * -1 if unknown */
};

/*
 * The topology of hwloc. Created by topo_hw_open, freed by topo_hw_close. In a
 * library that was configured with --disable-hwloc, it is empty.
 */
struct topo_hw {
	struct hwloc_topology *t; /* NULL if hwloc failed or is absent */
	bool this_system;	/* hwloc describes this machine */
};

/* Returns true if the library was configured with hwloc. */
bool topo_hw_built_in(void);
void topo_hw_open(struct topo_hw *hw, const char *xml_path);
void topo_hw_close(struct topo_hw *hw);
struct hwloc_obj *topo_hw_by_pci(const struct topo_hw *hw,
				 const struct tei_topo_pci *pci);
struct hwloc_obj *topo_hw_by_name(const struct topo_hw *hw, const char *device);
void topo_hw_spot(const struct topo_hw *hw, struct hwloc_obj *obj,
		  struct topo_spot *spot);
/* Returns true if the device at spot is on the NUMA node. spot->nodes is not
 * NULL. */
bool topo_hw_near(const struct topo_spot *spot, int node);
/* Returns true if the two devices have a NUMA node in common. a->nodes and
 * b->nodes are not NULL. */
bool topo_hw_share_node(const struct topo_spot *a, const struct topo_spot *b);
/*
 * Returns the address of the PCI device that obj is or belongs to. If there is
 * none, the member `known` of the result is false.
 */
struct tei_topo_pci topo_hw_pci(struct hwloc_obj *obj);
/* Returns the depth of the deepest bridge above both devices, or 0 if there is
 * none. */
unsigned int topo_hw_shared_bridge(struct hwloc_obj *a, struct hwloc_obj *b);
/*
 * Gets the NUMA node numbers in ascending order. Returns their count, at most
 * max.
 */
size_t topo_hw_nodes(const struct topo_hw *hw, int *nodes, size_t max);

struct topo_gpu {
	unsigned int ordinal;
	struct topo_spot spot;
};
/*
 * Gets the GPUs that hwloc lists as CUDA devices. If there are none, gets the
 * NVML devices, then NVIDIA's OpenCL devices, then NVIDIA's PCI display
 * devices. Returns the number of GPUs.
 */
size_t topo_hw_gpus(const struct topo_hw *hw, struct topo_gpu *gpus,
		    size_t max);

/* Gets the names of all network and RDMA devices that are PCI devices. Returns
 * the number of names, at most max. */
size_t topo_hw_nics(const struct topo_hw *hw, const char **names, size_t max);

/* Properties of a NIC. topo_sys_nic changes only the members that sysfs
 * provides. */
struct topo_sys_nic {
	int node;
	struct tei_topo_pci pci;
	uint64_t speed;		/* bits per second */
};
void topo_sys_nic(const char *sysfs, const char *device,
		  struct topo_sys_nic *nic);
int topo_sys_pci_node(const char *sysfs, const struct tei_topo_pci *pci);
/*
 * These functions do the same as tei_topo_nic_node, tei_topo_block_node and
 * tei_topo_node_cpus, for a given root of sysfs.
 */
int topo_sys_nic_node(const char *sysfs, const char *device, const char *addr);
int topo_sys_block_node(const char *sysfs, dev_t dev);
bool topo_sys_node_cpus(const char *sysfs, int node, cpu_set_t *cpus);
/*
 * Gets the online NUMA nodes in ascending order. Returns their count, at most
 * max.
 */
size_t topo_sys_nodes(const char *sysfs, int *nodes, size_t max);

/* --- locations of memory ------------------------------------------------- */

/*
 * Works like move_pages(2) with nodes NULL: fills status with the node or a
 * negative errno for each page. Returns 0 or -1.
 */
typedef int (*topo_query_fn)(unsigned long n, void **pages, int *status);

#define TOPO_SAMPLE	16	/* pages in the sample of topo_locate_node */

/*
 * Returns the node that holds more than half of the present pages of a sample.
 * Returns -1 if no node does, or -2 if the query failed.
 */
int topo_locate_node(const void *addr, size_t len, size_t page,
		     topo_query_fn query);

#define TOPO_PARTS_SAMPLE	64	/* pages in the sample of
					 * topo_locate_parts */
#define TOPO_PARTS	16		/* maximum number of parts */
#define TOPO_RAGGED	2		/* maximum number of parts that may be
					 * on several nodes, if there are
					 * TOPO_PARTS parts */

/*
 * Writes "segments:…" with the smallest number of equal parts that separates
 * the nodes. Returns false, and writes nothing, if the range has fewer than
 * TOPO_PARTS_SAMPLE pages, is on one node, or has more than TOPO_RAGGED mixed
 * parts out of TOPO_PARTS.
 */
bool topo_locate_parts(const void *addr, size_t len, size_t page,
		       topo_query_fn query, char text[TEI_TOPO_NAME]);

/*
 * Does the same as tei_topo_maps_read. If query is false, behaves as on kernels
 * before Linux 6.11.
 */
int topo_maps_read(uint64_t until, bool query, struct tei_topo_maps **maps);

#endif /* TEI_TOPO_TOPO_INT_H */
