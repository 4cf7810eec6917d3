/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_PREPARED_H
#define TEI_API_ENGINE_PREPARED_H

/*
 * The table of an engine's prepared lists.
 */

#include <stdint.h>

#include "util/lock.h"

struct engine;
struct engine_prepared;

/* Greatest number of lists of one engine. */
#define ENGINE_PREPARED_MAX (1u << 20)

/* An entry of the table. The id of a list contains gen, so an id of a released
 * list is refused. */
struct engine_prepared_slot {
	struct engine_prepared *list; /* NULL: free */
	uint32_t gen;		      /* odd while in use */
	uint32_t next_free;	      /* index plus 1, 0: none */
};

/* The prepared lists of an engine. */
struct engine_prepared_table {
	struct tei_mutex lock; /* leaf; guards the members below */
	struct engine_prepared_slot *slots;
	uint32_t n;    /* elements of slots */
	uint32_t free; /* index plus 1 of a free slot, 0:
			* none */
};

void engine_prepared_init(struct engine *e);
/* Frees all lists. No other thread may use the engine. */
void engine_prepared_fini(struct engine *e);

#endif /* TEI_API_ENGINE_PREPARED_H */
