/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOPO_TOPO_INT_H
#define TEI_TOPO_TOPO_INT_H

#include <stdio.h>

#include "topo/tei_topo.h"

/* Types of hwloc. They are declared here so that this header does not include a
 * header of hwloc. */
struct hwloc_bitmap_s;
struct hwloc_obj;
struct hwloc_topology;

#define TOPO_SUBSYS	"topo"
#define TOPO_DEVICE	64	/* longest name of a netdev or RDMA device
				 * including the terminator, bytes */
#define TOPO_PATH	512

/* One location of the matrix with its NICs. The topology creates and frees
 * it. */
struct topo_row {
	char location[TEI_TOPO_NAME];
	uint32_t n_preferred;
	uint32_t n_accessible;
	uint32_t *nics;		/* indices of the preferred NICs, then of the
				 * accessible ones; without NICs that are
				 * off */
	int numa_node;		/* NUMA node of the location; -1 if unknown */
	char pci[16];		/* PCI address if the location is a GPU,
				 * otherwise "" */
};

/*
 * A topology. The functions of tei_topo.h create it, and the caller frees it.
 * It is constant once such a function has returned it.
 */
struct tei_topo {
	uint32_t n_nics;
	uint32_t n_rows;
	uint32_t cap_rows;	/* number of allocated entries of rows */
	struct tei_topo_nic *nics;
	struct topo_row *rows;	/* locations, sorted by topo_finish */
	struct topo_row any;	/* the location "*", at which every NIC that is
				 * not off is preferred */
};

/*
 * The three steps in which a topology is built. topo_new returns a topology
 * with n_nics NICs that are zeroed except for numa_node, which is -1.
 * topo_add_row adds an empty row that has room for all NICs. Both return NULL
 * if memory is short. topo_finish sorts the rows and fills the row of "*"; it
 * returns 0 or TEI_ERR_MEMORY.
 */
struct tei_topo *topo_new(uint32_t n_nics);
struct topo_row *topo_add_row(struct tei_topo *topo, const char *location);
int topo_finish(struct tei_topo *topo);
const struct topo_row *topo_find_row(const struct tei_topo *topo,
				     const char *location);

/* Creates a topology from nics, as tei_topo_create does, but does not call
 * topo_finish. */
int topo_from_descs(const struct tei_topo_nic_desc *nics, size_t count,
		    struct tei_topo **out, struct tei_err *err);

/*
 * Returns the reason why name is not a valid name of a NIC or location, or NULL
 * if it is valid.
 */
const char *topo_bad_name(const char *name);

/* The beginning of a text for an error message. Unprintable characters are
 * replaced with '?'. */
struct topo_quote {
	char text[41];
};
struct topo_quote topo_quote(const char *text);

void topo_pci_text(const struct tei_topo_pci *pci, char text[16]);
bool topo_pci_parse(const char *text, struct tei_topo_pci *pci);

/* --- positions of devices ------------------------------------------------ */

/* Where a device is in the machine. The functions topo_hw_… and topo_sys_… fill
 * it in. Its pointers lead into the hwloc topology. */
struct topo_spot {
	struct hwloc_obj *obj; /* hwloc's object of the PCI or OS device, or
				* NULL if there is none */
	const struct hwloc_bitmap_s *nodes; /* set of NUMA nodes of the device,
					     * or NULL if at most one node is
					     * known */
	int node;		/* NUMA node of the device, used if nodes is
				 * NULL; -1 if unknown */
};

/* A topology of hwloc. topo_hw_open creates it, and topo_hw_close frees it. If
 * the library was configured with --disable-hwloc, it is empty. */
struct topo_hw {
	struct hwloc_topology *t; /* the topology; NULL if hwloc has failed or
				   * is not built in */
	bool this_system;	/* true if hwloc describes this machine */
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
/* Returns true if the device at spot is on the given NUMA node. spot->nodes
 * must not be NULL. */
bool topo_hw_near(const struct topo_spot *spot, int node);
/* Returns true if the two devices have a NUMA node in common. a->nodes and
 * b->nodes must not be NULL. */
bool topo_hw_share_node(const struct topo_spot *a, const struct topo_spot *b);
/* Returns the PCI address of obj or, if obj is no PCI device, of the PCI device
 * that it belongs to. If there is none, the member "known" of the result is
 * false. */
struct tei_topo_pci topo_hw_pci(struct hwloc_obj *obj);
/* Returns the depth of the deepest bridge above both devices, or 0 if there is
 * none. */
unsigned int topo_hw_shared_bridge(struct hwloc_obj *a, struct hwloc_obj *b);
/* Writes the numbers of the machine's NUMA nodes to nodes, in ascending order,
 * at most max. Returns how many were written. */
size_t topo_hw_nodes(const struct topo_hw *hw, int *nodes, size_t max);

struct topo_gpu {
	unsigned int ordinal;
	struct topo_spot spot;
};
/* Gets the GPUs. Uses the first of these kinds of which hwloc lists a device:
 * CUDA devices, NVML devices, NVIDIA's OpenCL devices, NVIDIA's PCI display
 * devices. Returns the number of GPUs, at most max. */
size_t topo_hw_gpus(const struct topo_hw *hw, struct topo_gpu *gpus,
		    size_t max);

/* Gets the names of the network and RDMA devices that are on a PCI bus. Returns
 * the number of names, at most max. */
size_t topo_hw_nics(const struct topo_hw *hw, const char **names, size_t max);

/* Properties of a NIC. topo_sys_nic changes only the members for which sysfs
 * has a value. */
struct topo_sys_nic {
	int node;
	struct tei_topo_pci pci;
	uint64_t speed;		/* link speed, bits/s */
};
void topo_sys_nic(const char *sysfs, const char *device,
		  struct topo_sys_nic *nic);
int topo_sys_pci_node(const char *sysfs, const struct tei_topo_pci *pci);
/* Each of these functions does what the function tei_topo_nic_node,
 * tei_topo_block_node or tei_topo_node_cpus does, but reads the given root of
 * sysfs. */
int topo_sys_nic_node(const char *sysfs, const char *device, const char *addr);
int topo_sys_block_node(const char *sysfs, dev_t dev);
bool topo_sys_node_cpus(const char *sysfs, int node, cpu_set_t *cpus);
/* Writes the numbers of the online NUMA nodes to nodes, in ascending order, at
 * most max. Returns how many were written. */
size_t topo_sys_nodes(const char *sysfs, int *nodes, size_t max);

/* --- locations of memory ------------------------------------------------- */

/* A function that queries the NUMA nodes of n pages, like move_pages(2) with
 * nodes NULL: fills status with the node, or a negative errno, of each page.
 * Returns 0, or -1 on failure. */
typedef int (*topo_query_fn)(unsigned long n, void **pages, int *status);

#define TOPO_SAMPLE	16	/* number of pages that topo_locate_node
				 * queries */

/* Returns the node that holds more than half of the present pages in a sample
 * of the range. Returns -1 if there is no such node, or -2 if the query
 * failed. */
int topo_locate_node(const void *addr, size_t len, size_t page,
		     topo_query_fn query);

#define TOPO_PARTS_SAMPLE	64	/* number of pages that
					 * topo_locate_parts queries */
#define TOPO_PARTS	16		/* largest number of parts of a range */
#define TOPO_RAGGED	2		/* of TOPO_PARTS parts, the largest
					 * number that may be on several
					 * nodes */

/*
 * Finds the smallest number of equal parts such that each part is on one node,
 * and writes this division to text as "segments:…". Returns false, and writes
 * nothing, if the range has fewer than TOPO_PARTS_SAMPLE pages or is on one
 * node, or if more than TOPO_RAGGED of TOPO_PARTS parts are on several nodes.
 */
bool topo_locate_parts(const void *addr, size_t len, size_t page,
		       topo_query_fn query, char text[TEI_TOPO_NAME]);

/* Does what tei_topo_maps_read does. If query is false, does not use
 * PROCMAP_QUERY, as if the kernel did not support it. */
int topo_maps_read(uint64_t until, bool query, struct tei_topo_maps **maps);

#endif /* TEI_TOPO_TOPO_INT_H */
