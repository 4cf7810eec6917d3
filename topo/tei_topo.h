/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOPO_TEI_TOPO_H
#define TEI_TOPO_TEI_TOPO_H

/*
 * Which NIC is near which memory: NICs, NUMA nodes, GPUs, their distances,
 * the priority matrix as JSON and as text, and where an address lives.
 *
 * Threads: a struct tei_topo never changes after its creation, so any thread
 * may read it; free it when the last reader is gone. Every other function
 * here may be called from any thread. Nothing here is for the data path:
 * discovery reads files and allocates; look-ups compare strings (resolve a
 * buffer's location once, at registration).
 *
 * Errors: enum tei_code, 0 is success. A struct tei_err *err may be NULL; the
 * record is logged once, here. Outputs are written only on success.
 */

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct tei_err;
struct tei_topo;

#define TEI_TOPO_NAME		64	/* name of a NIC or location, with NUL */
#define TEI_TOPO_MAX_NICS	256
#define TEI_TOPO_MAX_LOCATIONS	2048
#define TEI_TOPO_MAX_TEXT	(1u << 20)	/* bytes of a JSON matrix */
#define TEI_TOPO_MAX_PARTS	256	/* of a segmented region */
#define TEI_TOPO_ANY		"*"	/* a location: not known */

struct tei_topo_pci {
	bool known;		/* false: the rest means nothing */
	uint32_t domain;
	uint8_t bus;
	uint8_t dev;		/* 0 to 31 */
	uint8_t fn;		/* 0 to 7 */
};

/* What the data plane knows of one NIC. The caller's; copied. */
struct tei_topo_nic_desc {
	const char *name;	/* the rail's name, as the matrix has it */
	const char *device;	/* netdev or RDMA device; NULL: same as name */
	struct tei_topo_pci pci;	/* from fi_nic, or not known */
	uint64_t speed;		/* bits per second, 0 unknown */
	bool off;		/* never used, but keeps its index */
};

/* What a topology knows of one NIC. */
struct tei_topo_nic {
	char name[TEI_TOPO_NAME];
	char pci[16];		/* "0000:17:00.0", or "" */
	int numa_node;		/* -1 unknown */
	uint64_t speed;		/* bits per second, 0 unknown */
	bool off;
};

/* One GPU as the driver counts it (CUDA's ordinal). */
struct tei_topo_gpu {
	unsigned int ordinal;	/* N of "cuda:N" */
	struct tei_topo_pci pci;
};

/* Zero-initialised is the machine itself. The caller's; not kept. */
struct tei_topo_opts {
	const char *xml_path;	/* hwloc XML instead of the machine; NULL:
				 * HWLOC_XMLFILE if set, else the machine */
	const char *sysfs;	/* root of sysfs, NULL: "/sys", but none if
				 * hwloc looks at another machine */
	const struct tei_topo_gpu *gpus;	/* GPUs from the driver; NULL: */
	size_t gpu_count;			/* those that hwloc lists */
};

/* --- creation ------------------------------------------------------------ */

/*
 * NICs without any matrix: every location is "*". TEI_ERR_INVALID for an
 * empty, too long or duplicate name, or too many NICs.
 */
int tei_topo_create(const struct tei_topo_nic_desc *nics, size_t count,
		    struct tei_topo **out, struct tei_err *err);

/*
 * NICs, in the order given, with their distances: a location "cpu:N" per NUMA
 * node and "cuda:N" per GPU. NICs near a location are preferred, others
 * accessible. Near is: on that NUMA node; for a GPU the NICs that share the
 * deepest PCI bridge with it, else its NUMA node. What can't be found out is
 * an unknown distance, never an error: without any knowledge all NICs are
 * preferred. Errors only as tei_topo_create, or TEI_ERR_MEMORY. opts may be
 * NULL. Blocks for as long as hwloc takes (some 10 ms).
 */
int tei_topo_discover(const struct tei_topo_nic_desc *nics, size_t count,
		      const struct tei_topo_opts *opts, struct tei_topo **out,
		      struct tei_err *err);

/*
 * As tei_topo_discover for the NICs that hwloc lists (network and RDMA
 * devices on a PCI bus), in its order: for tools that show a machine.
 */
int tei_topo_discover_all(const struct tei_topo_opts *opts,
			  struct tei_topo **out, struct tei_err *err);

enum {	/* flags of tei_topo_parse */
	TEI_TOPO_STRICT = 1,	/* a NIC that base doesn't have is an error */
};

/*
 * A priority matrix, {"cpu:0": [["near", …], ["other", …]], …}.
 *
 * base NULL: the NICs are those named, in order of first appearance. Else the
 * NICs are base's, with their indices, facts and off flags; a NIC of base that
 * the matrix never names is switched off (unless it names none at all, as {});
 * a name that base doesn't have is left out with a warning, or with
 * TEI_TOPO_STRICT is TEI_ERR_NO_DEVICE, as is a matrix whose names are all
 * unknown.
 *
 * A NIC named twice for a location counts once, where it came first. "*" is
 * taken for its names only: it stays every NIC, all preferred.
 *
 * TEI_ERR_JSON with what and where for malformed text, another shape, a
 * location given twice, bad names, or a text beyond the limits above;
 * TEI_ERR_INVALID for NULL.
 */
int tei_topo_parse(const char *text, const struct tei_topo *base,
		   unsigned int flags, struct tei_topo **out,
		   struct tei_err *err);

/* NULL is ignored. */
void tei_topo_free(struct tei_topo *topo);

/* --- reading ------------------------------------------------------------- */

size_t tei_topo_nic_count(const struct tei_topo *topo);

/* NULL if index is out of range. The topology's. */
const struct tei_topo_nic *tei_topo_nic(const struct tei_topo *topo,
					size_t index);

/* Index of a NIC, -1 if there is none of that name. */
int tei_topo_find_nic(const struct tei_topo *topo, const char *name);

/* Locations without "*", sorted: cpu:0, cpu:1, …, cuda:0, … */
size_t tei_topo_location_count(const struct tei_topo *topo);
const char *tei_topo_location(const struct tei_topo *topo, size_t index);

/* Where a location itself is. */
struct tei_topo_place {
	int numa_node;		/* -1 unknown */
	char pci[16];		/* of a GPU, "0000:17:00.0", or "" */
};

/* False, and nothing written, if index is out of range. */
bool tei_topo_location_place(const struct tei_topo *topo, size_t index,
			     struct tei_topo_place *place);

/*
 * NIC indices for a location; the arrays are the topology's. NICs switched off
 * are in neither. An unknown (or NULL) location is "*": every NIC, all
 * preferred. Where no NIC is near, the accessible ones are given as
 * preferred, so that n_preferred is 0 only if every NIC is off. Returns
 * whether the location was known.
 */
bool tei_topo_lookup(const struct tei_topo *topo, const char *location,
		     const uint32_t **preferred, size_t *n_preferred,
		     const uint32_t **accessible, size_t *n_accessible);

enum tei_topo_rank {
	TEI_TOPO_PREFERRED = 0,
	TEI_TOPO_ACCESSIBLE = 1,
	TEI_TOPO_OFF = 2,	/* switched off, or not for this location */
};

/*
 * The same as one enum tei_topo_rank per NIC index, for ranks[0..n). Elements
 * beyond the last NIC become TEI_TOPO_OFF.
 */
void tei_topo_ranks(const struct tei_topo *topo, const char *location,
		    uint8_t *ranks, size_t n);

/*
 * The matrix as JSON on one line, in stable order; NICs switched off are left
 * out, "*" is there only if a NIC has no other place. *text is the caller's,
 * for free(). TEI_ERR_MEMORY.
 */
int tei_topo_json(const struct tei_topo *topo, char **text);

/*
 * A table of NICs and the matrix for humans, truncated to len bytes with its
 * terminator. Returns the length of the whole text. buf may be NULL if len is
 * 0.
 */
size_t tei_topo_text(const struct tei_topo *topo, char *buf, size_t len);

/*
 * Whether name is in a comma list such as MC_TE_FILTERS: exact match, blanks
 * around elements ignored. A NULL list or one without elements lets every name
 * pass.
 */
bool tei_topo_filter(const char *list, const char *name);

/*
 * NUMA node of the NIC with that name (netdev or RDMA device), or else at that
 * PCI address, by what the kernel says; either may be NULL or "". -1 unknown.
 */
int tei_topo_nic_node(const char *device, const char *pci);

/*
 * NUMA node of a block device, or of that under a partition, under a loop
 * device's file or under a volume all of whose parts are on one. -1 unknown.
 */
int tei_topo_block_node(dev_t dev);

/*
 * Fresh memory for munmap, on the node if that is not full or forbidden;
 * anywhere where it is negative. NULL without memory.
 */
void *tei_topo_map(int node, size_t size);

/* The CPUs of a node; false, and nothing written, if they are not known. */
bool tei_topo_node_cpus(int node, cpu_set_t *cpus);

/* --- locations ----------------------------------------------------------- */

enum tei_topo_where_kind {
	TEI_TOPO_WHERE_ANY,	/* "*" */
	TEI_TOPO_WHERE_CPU,	/* "cpu:N" */
	TEI_TOPO_WHERE_CUDA,	/* "cuda:N" */
	TEI_TOPO_WHERE_PARTS,	/* "segments:<page>:<n0>,<n1>…" */
};

/* A parsed location, plain data. */
struct tei_topo_where {
	enum tei_topo_where_kind kind;
	int index;		/* CPU, CUDA: N; else 0 */
	uint64_t page;		/* PARTS: bytes, a power of two */
	unsigned int n_parts;	/* PARTS: 1 and up; else 0 */
	uint16_t nodes[TEI_TOPO_MAX_PARTS];	/* PARTS: NUMA nodes */
};

/* NULL is "*". TEI_ERR_INVALID with what is wrong. */
int tei_topo_where_parse(const char *text, struct tei_topo_where *out,
			 struct tei_err *err);

/*
 * The part that holds byte offset of a region of length bytes (offset <
 * length): its location into location, the offset of its end into *end.
 * Parts are equal, length / n_parts each, but that each begins at the next
 * multiple of the page; the last takes the rest, and one that would begin
 * beyond it is empty. A region shorter than its parts is "*". Other kinds are
 * one part. Returns its number.
 */
unsigned int tei_topo_where_part(const struct tei_topo_where *where,
				 uint64_t length, uint64_t offset,
				 char location[TEI_TOPO_NAME], uint64_t *end);

/* The NUMA node of that byte, -1 where the location names none. */
int tei_topo_where_node(const struct tei_topo_where *where, uint64_t length,
			uint64_t offset);

/*
 * On a machine of several nodes, for 64 pages and more: "segments:…" if 2, 4, 8
 * or 16 equal parts are on a node each, or all but two of 16, by a sample of 64
 * pages. Else "cpu:N" if most of the pages present in a sample of at most 16
 * (the first and last among them) are on node N, else "*". Reads no byte and
 * faults no page in. Without NUMA support "cpu:0" or the only node.
 * TEI_ERR_INVALID for an empty range or one that wraps.
 */
int tei_topo_locate(const void *addr, size_t len,
		    char location[TEI_TOPO_NAME]);

/* --- what is mapped ------------------------------------------------------ */

struct tei_topo_maps;

/*
 * Prepares for questions about this process's mappings. From Linux 6.11 on
 * each question is a query of the kernel about its range only (PROCMAP_QUERY).
 * Before, this call reads /proc/self/maps up to the address until, and the
 * answers are those of that moment. *maps is the caller's, for one thread.
 * TEI_ERR_UNSUPPORTED if /proc does not tell; TEI_ERR_MEMORY.
 */
int tei_topo_maps_read(uint64_t until, struct tei_topo_maps **maps);
void tei_topo_maps_free(struct tei_topo_maps *maps);	/* NULL is fine */

enum tei_topo_access {
	TEI_TOPO_UNMAPPED,		/* nothing is mapped there */
	TEI_TOPO_CLOSED,		/* neither readable nor writable */
	TEI_TOPO_READ_ONLY,
	TEI_TOPO_WRITABLE,
	TEI_TOPO_UNKNOWN,		/* mapped; the rest cannot be told */
};

/*
 * Returns what the process may do with every byte of [addr, addr + len), which
 * is not empty and does not wrap: the least access of its parts. Unless that
 * is TEI_TOPO_WRITABLE or _UNKNOWN, [*base, *end) is the first part that has
 * it. maps NULL: the kernel only says whether something is mapped (msync).
 * Touches no page.
 */
enum tei_topo_access tei_topo_maps_check(const struct tei_topo_maps *maps,
					 const void *addr, size_t len,
					 uint64_t *base, uint64_t *end);

#endif /* TEI_TOPO_TEI_TOPO_H */
