/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_HEAP_H
#define TEI_UTIL_HEAP_H

/*
 * Intrusive binary heap: the smallest key first, any node can leave. No lock:
 * the owner of the heap says which lock guards it and its nodes.
 */

#include <stdbool.h>
#include <stdint.h>

/* Zeroed: in no heap. Stays where it is while it is in one. */
struct tei_heap_node {
	uint64_t key;			/* fixed while in a heap */
	uint32_t pos;			/* 1 and up; 0: in no heap */
};

/* Zeroed: empty. */
struct tei_heap {
	struct tei_heap_node **nodes;
	uint32_t count, cap;
};

/* Gives the room back; the nodes are not touched. */
void tei_heap_fini(struct tei_heap *heap);

/*
 * Adds a node that is in no heap, with that key. False without memory; never
 * so after a removal.
 */
bool tei_heap_add(struct tei_heap *heap, struct tei_heap_node *node,
		  uint64_t key);

/* Takes it out if it is in the heap. */
void tei_heap_remove(struct tei_heap *heap, struct tei_heap_node *node);

/* The one with the smallest key, or NULL. */
struct tei_heap_node *tei_heap_first(const struct tei_heap *heap);

#endif /* TEI_UTIL_HEAP_H */
