/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_REGIONS_H
#define TEI_API_ENGINE_REGIONS_H

/*
 * Registered memory and the own descriptor: the types that struct engine
 * contains. engine_memory.h has the functions.
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
 * same memory keys and the same location. word holds 1 + keys numbers per
 * entry: its length and one memory key for each rail of the descriptor.
 */
struct engine_pieces {
	uint32_t n;			/* entries */
	uint32_t keys;			/* keys per entry = rails of the
					 * descriptor */
	uint64_t *word;			/* owned by the region */
};

/*
 * Nested registrations of one range with one label. Created by
 * engine_nested_add, in the list of the region around it and in the hash table
 * engine->memory.nested; freed with the last reference. Guarded by control, and
 * changed with listing.lock held, too.
 */
struct engine_nested {
	struct engine_nested *next, *prev; /* of the region; NULL: none */
	struct engine_nested *bucket_next; /* next in the hash bucket */
	void *addr;
	uint64_t length;
	char *label;   /* NULL: none */
	uint64_t refs; /* not 0 */
	void *outer;   /* start of the region */
};

/* A registered region, in engine->memory.regions, which is not sorted. Guarded by
 * control. The array and the fields that the descriptor uses are changed with
 * listing.lock held, too. */
struct engine_region {
	void *addr;
	size_t length;
	bool remote;
	bool read_only;			/* mapped without PROT_WRITE */
	bool gpu;			/* GPU memory, not accessible by the
					 * CPU */
	int device;			/* gpu: CUDA device number */
	bool direct;			/* gpu: registered on the rails */
	bool staged;			/* gpu: place is valid */
	uint32_t place;			/* handle for tei_staging_mem_drop */
	bool granted;			/* gpu: grant is valid */
	uint64_t grant;			/* handle for tei_staging_grant_… */
	uint64_t flags;			/* TE_REG_…, as registered */
	char *label;			/* NULL: none */
	struct tei_range *range;	/* in engine->memory.ranges; owned */
	struct engine_nested *nested;	/* registrations inside the region */
	uint64_t call;			/* number of the call that is
					 * registering it; 0: done */
	char location[64];		/* of the first byte */
	char *parts;			/* "segments:…" if the region has
					 * several locations, else NULL */
	bool listed;			/* part of the descriptor */
	struct engine_pieces pieces;	/* remote: entries for listing.rails */
	uint64_t id;			/* number of the registration, unique */
	uint32_t bucket_next;		/* index of the next region in the hash
					 * bucket, plus 1; 0: none */
};

static inline const char *engine_region_location(const struct engine_region *r)
{
	return r->parts ? r->parts : r->location;
}

/* Indices of the rails in a descriptor, in its order. */
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
	struct tei_mutex lock;		/* guards all fields but store */
	struct tei_meta_desc *head;	/* descriptor without buffers; NULL
					 * before the first publication */
	struct engine_desc_rails rails;	/* rails of head; changed with control
					 * held, too */
	struct tei_meta_desc *desc;	/* whole descriptor at desc_version, or
					 * NULL */
	uint64_t desc_version;
	uint64_t version;		/* counts the changes */
	uint64_t changed_ns;		/* time of the last registration or
					 * removal, ns */
	uint64_t serial;		/* serial number of the last
					 * descriptor */
	/* state of the store */
	bool failed;			/* the last publication failed */
	bool listed;			/* the store may name buffers */
	uint64_t stored_ns;		/* time of the last publication, ns */
	uint32_t tries;			/* failed attempts of a worker in a
					 * row */
	uint32_t waiting;		/* calls of the application that wait
					 * for store or hold it */

	struct tei_mutex store;		/* held during a publication; taken
					 * before lock */
};

/* The registered memory of an engine; engine->control. */
struct engine_memory {
	struct engine_region *regions;	/* [cap], n in use */
	uint32_t n, cap;
	uint32_t *buckets;		/* [cap], hash by address: index plus
					 * 1; 0: none */
	struct tei_range_table ranges;	/* of the regions */
	uint64_t last_id;		/* of the last registration */
	uint64_t calls;			/* calls that register, so far */
	struct engine_nested **nested;	/* [nested_cap], hash by range and
					 * label */
	uint32_t nested_n, nested_cap;
	struct engine_alloc *allocs;
};

#endif /* TEI_API_ENGINE_REGIONS_H */
