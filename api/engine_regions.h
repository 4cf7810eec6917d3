/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_REGIONS_H
#define TEI_API_ENGINE_REGIONS_H

/*
 * Registered memory and the own descriptor: the types that struct engine
 * contains. The functions are declared in engine_memory.h.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/tei_meta_desc.h"
#include "prov/rail/tei_rail.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/range.h"

struct engine_alloc;
struct tei_meta_desc;

/*
 * The part of the descriptor that describes one region. A region has several
 * entries if its bytes differ in memory keys or in location. For each entry,
 * the array `word` holds 1 + keys numbers: the length of the entry, and one
 * memory key for each rail of the descriptor.
 */
struct engine_pieces {
	uint32_t n; /* number of entries */
	/*
	 * number of keys per entry, which is the number of rails in the
	 * descriptor
	 */
	uint32_t keys;
	uint64_t *word;			/* the numbers of all entries; owned by
					 * the region */
};

/*
 * The nested registrations that have the same range and label. Created by
 * engine_nested_add and freed with the last reference. Element of the list
 * engine_region.nested and of the hash table engine->memory.nested. Guarded by
 * control; listing.lock is held as well when a member changes.
 */
struct engine_nested {
	struct engine_nested *next, *prev; /* neighbours in the list
					    * engine_region.nested, or NULL */
	struct engine_nested *bucket_next; /* next element of the hash bucket */
	void *addr;
	uint64_t length;
	char *label;   /* label of the registrations, or NULL */
	uint64_t refs; /* number of references, at least 1 */
	void *outer;   /* start address of the region that contains the range */
};

/* A registered region, an element of the unsorted array engine->memory.regions.
 * Guarded by control. The array, and the members that the descriptor is built
 * from, are changed only while listing.lock is held as well. */
struct engine_region {
	void *addr;
	size_t length;
	bool remote;
	bool read_only;			/* the mapping does not have
					 * PROT_WRITE */
	bool gpu;			/* GPU memory, which the CPU cannot
					 * access */
	int device;			/* GPU memory: number of the CUDA
					 * device */
	bool direct;			/* GPU memory: registered on the
					 * rails */
	bool staged;			/* GPU memory: staged through bounce
					 * buffers; `place` is valid */
	uint32_t place;			/* handle of the memory for
					 * tei_staging_mem_drop */
	bool exported;			/* GPU memory: other processes of this
					 * host can map it */
	bool granted;			/* GPU memory: reached through remote
					 * bounce slots; `grant` is valid */
	uint64_t grant;			/* handle of the memory for
					 * tei_staging_grant_… */
	uint64_t flags;		      /* flags TE_REG_… of the registration */
	char *label;		      /* label of the region, or NULL */
	struct tei_range *range;      /* element of engine->memory.ranges;
				       * owned by the region */
	struct engine_nested *nested; /* list of the nested registrations inside
				       * the region */
	/*
	 * number of the call that is registering the region; 0: that call has
	 * returned
	 */
	uint64_t call;
	char location[64];		/* location, or that of the first byte
					 * if `parts` is set */
	char *parts;			/* "segments:…" if the region has
					 * several locations, otherwise NULL */
	bool listed;			/* the region is listed in the own
					 * descriptor */
	struct engine_pieces pieces;	/* entries for a descriptor with the
					 * rails listing.rails; only if `remote`
					 * is true */
	uint64_t id;			/* unique number of the registration */
	uint32_t bucket_next;		/* index of the next region in the hash
					 * bucket, plus 1; 0: none */
};

static inline const char *engine_region_location(const struct engine_region *r)
{
	return r->parts ? r->parts : r->location;
}

/* The rails that a descriptor contains: their indices in the data plane, in the
 * order of the descriptor. */
struct engine_desc_rails {
	size_t rail[TEI_RAIL_MAX];
	size_t n;
};

/*
 * The own descriptor. The control channel builds it when a peer requests it. A
 * call that changes the descriptor writes it to the store, or leaves the write
 * to a worker thread; engine_publish.c explains when.
 */
struct engine_listing {
	struct tei_mutex lock;		/* guards all members except store */
	struct tei_meta_desc *head;	/* descriptor without buffers; NULL
					 * before the first publication */
	struct engine_desc_rails rails; /* rails that `head` lists; changed only
					 * while control is held as well */
	struct tei_meta_desc *desc;	/* complete descriptor, built when
					 * `version` was desc_version; or
					 * NULL */
	uint64_t desc_version;
	uint64_t version;		/* number of changes of the descriptor
					 * so far */
	uint64_t changed_ns;		/* time of the last registration or
					 * removal, ns */
	uint64_t serial;		/* serial number of the last descriptor
					 * that was built */
	/* state of the publication in the store */
	bool failed;			/* the last publication failed */
	bool listed;			/* the text in the store may list
					 * buffers */
	uint64_t stored_ns;		/* time of the last publication, ns */
	uint32_t tries;			/* number of consecutive failed attempts
					 * of a worker thread */
	uint32_t waiting;		/* number of calls of the application
					 * that wait for the mutex `store` or
					 * hold it */

	struct tei_mutex store; /* held during a publication; taken before
				 * `lock` */
};

/* The registered memory of an engine. Guarded by engine->control. */
struct engine_memory {
	struct engine_region *regions; /* array of cap elements, of which n are
					* in use */
	uint32_t n, cap;
	/*
	 * hash table by address, cap elements: index of a region plus 1, or 0
	 */
	uint32_t *buckets;
	struct tei_range_table ranges; /* address ranges of the regions */
	uint64_t last_id;	       /* id of the last registration */
	uint64_t calls;		       /* number of calls that have registered
					* memory so far */
	struct engine_nested **nested; /* hash table by range and label,
					* nested_cap elements */
	uint32_t nested_n, nested_cap;
	struct engine_alloc *allocs;
	struct tei_log_limit alloc_limit; /* rate limit of te_alloc's
					   * log lines */
};

#endif /* TEI_API_ENGINE_REGIONS_H */
