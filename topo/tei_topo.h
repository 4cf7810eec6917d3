/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOPO_TEI_TOPO_H
#define TEI_TOPO_TEI_TOPO_H

/*
 * Machine topology: NICs, NUMA nodes, GPUs and their distances, the priority
 * matrix as JSON and as text, and the location of memory.
 *
 * Threads: a struct tei_topo is constant after its creation, so any thread may
 * read it; the owner frees it after the last reader. All other functions may be
 * called from any thread. The functions are too slow to be called for each
 * transfer: a discovery reads files and allocates memory, and a look-up
 * compares strings. Callers look up the location of a buffer once, when it is
 * registered.
 *
 * Errors: functions return 0 or an enum tei_code. Functions with the parameter
 * struct tei_err *err log the error record; err may be NULL. A function that
 * fails does not change its output parameters.
 */

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tei_err;
struct tei_topo;

#define TEI_TOPO_NAME		64	/* longest name including the
					 * terminator, bytes */
#define TEI_TOPO_MAX_NICS	256
#define TEI_TOPO_MAX_LOCATIONS	2048
#define TEI_TOPO_MAX_TEXT	(1u << 20)	/* longest JSON matrix, bytes */
#define TEI_TOPO_MAX_PARTS	256	/* largest number of parts of a location
					 * "segments:…" */
#define TEI_TOPO_ANY		"*"	/* location of memory of which nothing
					 * is known */

struct tei_topo_pci {
	bool known;		/* if false, the other members are invalid */
	uint32_t domain;
	uint8_t bus;
	uint8_t dev;		/* device number, 0 to 31 */
	uint8_t fn;		/* function number, 0 to 7 */
};

/* Describes one NIC for the creation of a topology. The caller owns the struct;
 * its contents are copied. */
struct tei_topo_nic_desc {
	const char *name;	/* name of the rail, which the matrix uses
				 * too */
	const char *device;	/* name of the netdev or RDMA device; NULL if it
				 * is the same as the name of the rail */
	struct tei_topo_pci pci;	/* PCI address that libfabric reports
					 * (fi_nic) */
	uint64_t speed;		/* link speed, bits/s; 0 if unknown */
	bool off;		/* the NIC is never used; it still has an
				 * index */
};

/* A NIC of a topology. */
struct tei_topo_nic {
	char name[TEI_TOPO_NAME];
	char pci[16];		/* PCI address such as "0000:17:00.0", or "" if
				 * unknown */
	int numa_node;		/* NUMA node, -1 if unknown */
	uint64_t speed;		/* link speed, bits/s; 0 if unknown */
	bool off;		/* the NIC is never used */
};

/* One GPU, with the number that the CUDA driver gives it. */
struct tei_topo_gpu {
	unsigned int ordinal;	/* number N in the location "cuda:N" */
	struct tei_topo_pci pci;
};

/* Options of a discovery. If all members are zero, this machine is examined.
 * The caller owns the struct, which is not used after the call. */
struct tei_topo_opts {
	const char *xml_path;	/* hwloc XML file to read instead of this
				 * machine; NULL means the file HWLOC_XMLFILE if
				 * that variable is set, otherwise this
				 * machine */
	const char *sysfs;	/* root of sysfs; NULL means "/sys", or none if
				 * hwloc describes another machine */
	const struct tei_topo_gpu *gpus;	/* GPUs that the CUDA driver
						 * lists; if NULL, the GPUs that
						 * hwloc lists are used */
	size_t gpu_count;			/* number of elements of gpus */
};

/* --- creation ------------------------------------------------------------ */

/* Creates a topology in which nothing is known about distances: it has no
 * location except "*". Returns TEI_ERR_INVALID if a name is empty, too long or
 * not unique, or if there are too many NICs. */
int tei_topo_create(const struct tei_topo_nic_desc *nics, size_t count,
		    struct tei_topo **out, struct tei_err *err);

/*
 * Creates a topology of the given NICs, in their order, and finds out their
 * distances. It has a location "cpu:N" per NUMA node and "cuda:N" per GPU. For
 * each location, the near NICs are preferred, and all other NICs are
 * accessible. A NIC is near a NUMA node if it is attached to that node. The
 * NICs near a GPU are those that share the deepest PCI bridge with it; if none
 * shares a bridge, those attached to the GPU's NUMA node.
 *
 * A distance that cannot be determined counts as unknown and is not an error.
 * If all distances are unknown, all NICs are preferred. Returns 0, an error of
 * tei_topo_create, or TEI_ERR_MEMORY. If opts is NULL, this machine is
 * examined. Blocks while hwloc runs (about 10 ms).
 */
int tei_topo_discover(const struct tei_topo_nic_desc *nics, size_t count,
		      const struct tei_topo_opts *opts, struct tei_topo **out,
		      struct tei_err *err);

/*
 * Does the same as tei_topo_discover, for all NICs that hwloc lists: network
 * and RDMA devices on a PCI bus, in the order of hwloc. Used by tools that show
 * a machine.
 */
int tei_topo_discover_all(const struct tei_topo_opts *opts,
			  struct tei_topo **out, struct tei_err *err);

enum {	/* flags of tei_topo_parse */
	TEI_TOPO_STRICT = 1,	/* fail if the matrix names a NIC that "base"
				 * does not have */
};

/*
 * Parses a priority matrix, {"cpu:0": [["near", …], ["other", …]], …}.
 *
 * If base is NULL, the topology has the NICs that the matrix names, in order of
 * first appearance. Otherwise it has base's NICs with their indices, properties
 * and off flags. A NIC of base that the matrix does not name is switched off,
 * unless the matrix names no NIC at all, as {}. If base does not have a NIC
 * that the matrix names, this name is skipped with a warning. With
 * TEI_TOPO_STRICT, or if base has none of the named NICs, the function returns
 * TEI_ERR_NO_DEVICE instead.
 *
 * A NIC that is named twice for a location counts once, at its first position.
 * If the matrix has a location "*", only the names of its NICs are used: all
 * NICs that are not off are always preferred for "*".
 *
 * Returns TEI_ERR_JSON, with the reason and the position, for malformed text, a
 * wrong structure, a duplicate location, invalid names or a text beyond the
 * limits above. Returns TEI_ERR_INVALID if text or out is NULL.
 */
int tei_topo_parse(const char *text, const struct tei_topo *base,
		   unsigned int flags, struct tei_topo **out,
		   struct tei_err *err);

/* Frees a topology. NULL is ignored. */
void tei_topo_free(struct tei_topo *topo);

/* --- reading ------------------------------------------------------------- */

size_t tei_topo_nic_count(const struct tei_topo *topo);

/* Returns the NIC at an index, or NULL if index is out of range. The topology
 * owns the NIC. */
const struct tei_topo_nic *tei_topo_nic(const struct tei_topo *topo,
					size_t index);

/* Returns the index of the NIC with that name, or -1 if there is none. */
int tei_topo_find_nic(const struct tei_topo *topo, const char *name);

/* tei_topo_location_count returns the number of locations, not counting "*".
 * tei_topo_location returns the location at an index, or NULL if index is out
 * of range. The locations are sorted: cpu:0, cpu:1, …, cuda:0, … */
size_t tei_topo_location_count(const struct tei_topo *topo);
const char *tei_topo_location(const struct tei_topo *topo, size_t index);

/* Where a location is in the machine. */
struct tei_topo_place {
	int numa_node;		/* NUMA node of the location, -1 if unknown */
	char pci[16];		/* PCI address of a GPU, such as "0000:17:00.0",
				 * or "" */
};

/* Gets NUMA node and PCI address of the location at an index. Returns false,
 * and writes nothing, if index is out of range. */
bool tei_topo_location_place(const struct tei_topo *topo, size_t index,
			     struct tei_topo_place *place);

/*
 * Gets the indices of the preferred and of the accessible NICs for a location.
 * The arrays belong to the topology. NICs that are switched off are in neither
 * array. An unknown or NULL location counts as "*": every NIC is preferred. If
 * the location has no preferred NIC, the accessible ones are returned as
 * preferred. So *n_preferred is 0 only if every NIC is off. Returns true if the
 * topology has the location.
 */
bool tei_topo_lookup(const struct tei_topo *topo, const char *location,
		     const uint32_t **preferred, size_t *n_preferred,
		     const uint32_t **accessible, size_t *n_accessible);

enum tei_topo_rank {
	TEI_TOPO_PREFERRED = 0,
	TEI_TOPO_ACCESSIBLE = 1,
	TEI_TOPO_OFF = 2,	/* the NIC is switched off, or the matrix does
				 * not list it for this location */
};

/* Writes to ranks[i] how NIC i ranks for a location (enum tei_topo_rank), for i
 * from 0 to n - 1. If there is no NIC i, its rank is TEI_TOPO_OFF. The location
 * is looked up as in tei_topo_lookup. */
void tei_topo_ranks(const struct tei_topo *topo, const char *location,
		    uint8_t *ranks, size_t n);

/*
 * Writes the matrix as JSON on one line, in a stable order. NICs that are
 * switched off are omitted. The location "*" is written only if a NIC is listed
 * at no other location. The caller frees *text with free(). Returns 0 or
 * TEI_ERR_MEMORY.
 */
int tei_topo_json(const struct tei_topo *topo, char **text);

/* Writes the NICs and the matrix as a table for people. The text is truncated
 * so that it fits into len bytes with its terminator. Returns the length of the
 * text without truncation. buf may be NULL if len is 0. */
size_t tei_topo_text(const struct tei_topo *topo, char *buf, size_t len);

/* Returns true if name is in a comma list such as MC_TE_FILTERS. Upper and
 * lower case differ; white space around an element is ignored. Returns true for
 * every name if the list is NULL or has no elements. */
bool tei_topo_filter(const char *list, const char *name);

/*
 * Returns the NUMA node of a NIC according to sysfs. device is the name of its
 * netdev or RDMA device. If the node of that device is unknown, returns the
 * node of the PCI address `pci`. Returns -1 if both are unknown. Either
 * argument may be NULL or "".
 */
int tei_topo_nic_node(const char *device, const char *pci);

/*
 * Returns the NUMA node of a block device, or -1 if it is unknown. A partition
 * has the node of its disk. A loop device has the node of the disk that holds
 * the backing file. A volume (dm, md) has the node of its disks if all of them
 * are on one node.
 */
int tei_topo_block_node(dev_t dev);

/* Maps `size` bytes of new memory. The memory is on the NUMA node if possible.
 * If node is negative, the memory may be on any node. The caller unmaps it with
 * munmap. Returns NULL if memory is short. */
void *tei_topo_map(int node, size_t size);

/* Makes the kernel allocate the pages of a mapping that has no pages yet on the
 * NUMA node, if possible. Does nothing if node is negative. */
void tei_topo_prefer(void *mem, size_t size, int node);

/*
 * Gets the CPUs of a NUMA node. Returns false, and writes nothing, if they are
 * unknown.
 */
bool tei_topo_node_cpus(int node, cpu_set_t *cpus);

/* --- locations ----------------------------------------------------------- */

enum tei_topo_where_kind {
	TEI_TOPO_WHERE_ANY,	/* "*", or NULL */
	TEI_TOPO_WHERE_CPU,	/* "cpu:N": a NUMA node */
	TEI_TOPO_WHERE_CUDA,	/* "cuda:N": a GPU */
	TEI_TOPO_WHERE_PARTS,	/* "segments:<page>:<n0>,<n1>…": equal parts on
				 * several NUMA nodes */
};

/* A parsed location. The struct contains no pointers. */
struct tei_topo_where {
	enum tei_topo_where_kind kind;
	int index;		/* the number N in "cpu:N" or "cuda:N",
				 * otherwise 0 */
	uint64_t page;		/* page size of "segments:…", bytes, a power of
				 * two; otherwise 0 */
	unsigned int n_parts;	/* number of parts of "segments:…", at least 1;
				 * otherwise 0 */
	uint16_t nodes[TEI_TOPO_MAX_PARTS];	/* NUMA node of each part of
						 * "segments:…" */
};

/* Parses a location. NULL means "*". If the text is invalid, returns
 * TEI_ERR_INVALID and writes the reason to err. */
int tei_topo_where_parse(const char *text, struct tei_topo_where *out,
			 struct tei_err *err);

/*
 * Finds the part of a region that holds the byte at `offset`. The region has
 * `length` bytes, and `offset` is less than `length`. Stores the location of
 * that part in `location`, and the offset at which the part ends in *end.
 * Returns the index of the part.
 *
 * Part i begins at offset i * (length / n_parts), rounded up to a multiple of
 * the page size; the last part ends at the end of the region. A part that would
 * begin beyond the region is empty. If length is less than n_parts, the whole
 * region is one part with the location "*". For the other kinds of locations,
 * the whole region is one part.
 */
unsigned int tei_topo_where_part(const struct tei_topo_where *where,
				 uint64_t length, uint64_t offset,
				 char location[TEI_TOPO_NAME], uint64_t *end);

/*
 * Returns the NUMA node of the byte at `offset` of a region of `length` bytes,
 * or -1 if the location names no NUMA node for it.
 */
int tei_topo_where_node(const struct tei_topo_where *where, uint64_t length,
			uint64_t offset);

/*
 * Finds the location of a range of memory. Does not access the memory, so no
 * page becomes present.
 *
 * On a machine with several NUMA nodes, the result for a range of at least 64
 * pages is "segments:…" if a sample of 64 pages shows 2, 4, 8 or 16 equal parts
 * that are on one node each; if there are 16 parts, two of them may be on
 * several nodes. Otherwise, the function samples at most 16 pages, which
 * include the first and the last page. The result is "cpu:N" if more than half
 * of the present pages of this sample are on node N, else "*". Without NUMA
 * support, the result is "cpu:N" if N is the only node that sysfs lists,
 * "cpu:0" if sysfs lists no node, else "*".
 *
 * Returns 0, or TEI_ERR_INVALID for a range that is empty or wraps around.
 */
int tei_topo_locate(const void *addr, size_t len,
		    char location[TEI_TOPO_NAME]);

/* --- mappings ------------------------------------------------------------- */

struct tei_topo_maps;

/*
 * Prepares calls of tei_topo_maps_check. From Linux 6.11 on, each of these
 * calls queries the kernel about its range only (PROCMAP_QUERY). On older
 * kernels, tei_topo_maps_read reads the list of mappings in /proc/self/maps up
 * to the address `until`, and the calls use that list. The caller frees *maps
 * with tei_topo_maps_free. Only one thread may use *maps. Returns
 * TEI_ERR_UNSUPPORTED if /proc cannot be read, or TEI_ERR_MEMORY.
 */
int tei_topo_maps_read(uint64_t until, struct tei_topo_maps **maps);
void tei_topo_maps_free(struct tei_topo_maps *maps);	/* NULL is ignored */

enum tei_topo_access {
	TEI_TOPO_UNMAPPED,		/* the range is not mapped */
	TEI_TOPO_CLOSED,		/* the range is mapped, but neither
					 * readable nor writable */
	TEI_TOPO_READ_ONLY,
	TEI_TOPO_WRITABLE,
	TEI_TOPO_UNKNOWN,		/* the range is mapped; whether it can
					 * be accessed is unknown */
};

/*
 * Returns the access that the process has to every byte of [addr, addr + len):
 * the most restricted access of the mappings in the range. The range must not
 * be empty or wrap around. Unless the result is TEI_TOPO_WRITABLE or
 * TEI_TOPO_UNKNOWN, [*base, *end) is the first mapping or gap with that access.
 * If maps is NULL, only finds out whether the range is mapped (msync). Makes no
 * page present.
 */
enum tei_topo_access tei_topo_maps_check(const struct tei_topo_maps *maps,
					 const void *addr, size_t len,
					 uint64_t *base, uint64_t *end);

#endif /* TEI_TOPO_TEI_TOPO_H */
