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

/* Greatest number of prepared lists of one engine. */
#define ENGINE_PREPARED_MAX (1u << 20)

/* An entry of the table. The id of a list contains the generation of its slot,
 * so the id of a released list is refused. */
struct engine_prepared_slot {
	struct engine_prepared *list; /* list in this slot; NULL: the slot is
				       * free */
	uint32_t gen;		      /* generation of the slot; odd while the
				       * slot is in use */
	uint32_t next_free;	      /* index of the next free slot plus 1; 0:
				       * none */
};

/* The prepared lists of an engine. */
struct engine_prepared_table {
	struct tei_mutex lock; /* leaf; guards the members below */
	struct engine_prepared_slot *slots;
	uint32_t n;    /* number of elements of slots */
	uint32_t free; /* index of the first free slot plus 1; 0: none */
};

void engine_prepared_init(struct engine *e);
/* Frees all lists. No other thread may use the engine. */
void engine_prepared_fini(struct engine *e);

#endif /* TEI_API_ENGINE_PREPARED_H */
