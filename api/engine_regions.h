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
#include "util/range.h"

struct engine_alloc;
struct tei_meta_desc;

/*
 * The entries of a region in the descriptor. All bytes of an entry have the
 * same memory keys and the same location. For each entry, word holds 1 + keys
 * numbers: the length of the entry and one memory key for each rail of the
 * descriptor.
 */
struct engine_pieces {
	uint32_t n; /* number of entries */
	/*
	 * number of keys per entry, which is the number of rails in the
	 * descriptor
	 */
	uint32_t keys;
	uint64_t *word;			/* owned by the region */
};

/*
 * Nested registrations of one range with one label. Created by
 * engine_nested_add. Element of a list of the region around it and of the hash
 * table engine->memory.nested. Freed with the last reference. Guarded by
 * control; listing.lock is held, too, when it changes.
 */
struct engine_nested {
	struct engine_nested *next, *prev; /* neighbours in the list of the
					    * region, or NULL */
	struct engine_nested *bucket_next; /* next element of the hash bucket */
	void *addr;
	uint64_t length;
	char *label;   /* label, or NULL */
	uint64_t refs; /* number of references, at least 1 */
	void *outer;   /* start of the region around the range */
};

/* A registered region, in engine->memory.regions, which is not sorted. Guarded by
 * control. The array and the fields that the descriptor uses are changed with
 * listing.lock held, too. */
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
	bool staged;			/* GPU memory: place is valid */
	uint32_t place;			/* handle for tei_staging_mem_drop */
	bool granted;			/* GPU memory: grant is valid */
	uint64_t grant;			/* handle for tei_staging_grant_… */
	uint64_t flags;		      /* flags TE_REG_… of the registration */
	char *label;		      /* label, or NULL */
	struct tei_range *range;      /* element of engine->memory.ranges;
				       * owned by the region */
	struct engine_nested *nested; /* list of the registrations inside the
				       * region */
	/*
	 * number of the call that is registering the region; 0 after that call
	 */
	uint64_t call;
	char location[64];		/* location of the first byte */
	char *parts;			/* "segments:…" if the region has
					 * several locations, otherwise NULL */
	bool listed;			/* the region is part of the
					 * descriptor */
	struct engine_pieces pieces;	/* if remotely accessible: entries for
					 * listing.rails */
	uint64_t id;			/* unique number of the registration */
	uint32_t bucket_next;		/* index of the next region in the hash
					 * bucket, plus 1; 0: none */
};

static inline const char *engine_region_location(const struct engine_region *r)
{
	return r->parts ? r->parts : r->location;
}

/* Indices of the rails that a descriptor contains, in the order of the
 * descriptor. */
struct engine_desc_rails {
	size_t rail[TEI_RAIL_MAX];
	size_t n;
};

/*
 * The own descriptor. The control channel builds it when a peer requests it. A
 * call that changes the descriptor writes it to the store, or leaves that to a
 * worker; engine_publish.c has the rules.
 */
struct engine_listing {
	struct tei_mutex lock;		/* guards all members except store */
	struct tei_meta_desc *head;	/* descriptor without buffers; NULL
					 * before the first publication */
	struct engine_desc_rails rails; /* rails of head; control is held, too,
					 * when it changes */
	struct tei_meta_desc *desc;	/* whole descriptor for version
					 * desc_version, or NULL */
	uint64_t desc_version;
	uint64_t version;		/* number of changes so far */
	uint64_t changed_ns;		/* time of the last registration or
					 * removal, ns */
	uint64_t serial;		/* serial number of the last
					 * descriptor */
	/* state of the publication in the store */
	bool failed;			/* the last publication failed */
	bool listed;			/* the text in the store may list
					 * buffers */
	uint64_t stored_ns;		/* time of the last publication, ns */
	uint32_t tries;			/* number of consecutive failed attempts
					 * of a worker thread */
	uint32_t waiting;		/* number of calls of the application
					 * that wait for store or hold it */

	struct tei_mutex store; /* held during a publication; must be
				 * locked before lock */
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
};

#endif /* TEI_API_ENGINE_REGIONS_H */
