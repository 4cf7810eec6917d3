/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_HEAP_H
#define TEI_UTIL_HEAP_H

/* A binary heap whose nodes are embedded in the owner's objects. The node with
 * the smallest key comes first, and any node can be removed. The heap takes no
 * lock; the owner states which lock guards the heap and its nodes. */

#include <stdbool.h>
#include <stdint.h>

/* A node, embedded in an object of the user. A node filled with zeros is in no
 * heap. A node must not move while it is in a heap. */
struct tei_heap_node {
	uint64_t key;			/* sort key; constant while the node is
					 * in a heap */
	uint32_t pos;			/* position in the heap's array, counted
					 * from 1; 0 if the node is not in a
					 * heap */
};

/* A structure filled with zeros is an empty heap. */
struct tei_heap {
	struct tei_heap_node **nodes;
	uint32_t count, cap;
};

/* Frees the heap's array. Does not access the nodes. */
void tei_heap_fini(struct tei_heap *heap);

/* Adds a node, which must not be in a heap yet, with the given key. Returns
 * false if memory is short. Cannot fail if a node was removed since the last
 * successful add. */
bool tei_heap_add(struct tei_heap *heap, struct tei_heap_node *node,
		  uint64_t key);

/* Removes the node if it is in the heap. */
void tei_heap_remove(struct tei_heap *heap, struct tei_heap_node *node);

/* Returns the node with the smallest key, or NULL if the heap is empty. */
struct tei_heap_node *tei_heap_first(const struct tei_heap *heap);

#endif /* TEI_UTIL_HEAP_H */
