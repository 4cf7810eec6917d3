/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/heap.h"

#include <stdlib.h>

/* The positions in the array count from 1, so the parent of position i is i /
 * 2. */

void tei_heap_fini(struct tei_heap *h)
{
	free(h->nodes);
	h->nodes = NULL;
	h->count = h->cap = 0;
}

static void heap_put(struct tei_heap *h, uint32_t pos, struct tei_heap_node *n)
{
	h->nodes[pos - 1] = n;
	n->pos = pos;
}

static void heap_up(struct tei_heap *h, uint32_t pos, struct tei_heap_node *n)
{
	while (pos > 1 && h->nodes[pos / 2 - 1]->key > n->key) {
		heap_put(h, pos, h->nodes[pos / 2 - 1]);
		pos /= 2;
	}
	heap_put(h, pos, n);
}

static void heap_down(struct tei_heap *h, uint32_t pos, struct tei_heap_node *n)
{
	uint64_t next = 2 * (uint64_t)pos;

	while (next <= h->count) {
		if (next < h->count &&
		    h->nodes[next]->key < h->nodes[next - 1]->key)
			next++;
		if (h->nodes[next - 1]->key >= n->key)
			break;
		heap_put(h, pos, h->nodes[next - 1]);
		pos = (uint32_t)next;
		next *= 2;
	}
	heap_put(h, pos, n);
}

static bool heap_grow(struct tei_heap *h)
{
	uint32_t cap = h->cap ? 2 * h->cap : 64;
	struct tei_heap_node **nodes;

	nodes = realloc(h->nodes, cap * sizeof(*nodes));
	if (!nodes)
		return false;
	h->nodes = nodes;
	h->cap = cap;
	return true;
}

bool tei_heap_add(struct tei_heap *h, struct tei_heap_node *n, uint64_t key)
{
	if (h->count == h->cap && !heap_grow(h))
		return false;
	n->key = key;
	heap_up(h, ++h->count, n);
	return true;
}

void tei_heap_remove(struct tei_heap *h, struct tei_heap_node *n)
{
	struct tei_heap_node *last;
	uint32_t pos = n->pos;

	if (!pos)
		return;
	n->pos = 0;
	last = h->nodes[--h->count];
	if (last == n)
		return;
	if (pos > 1 && h->nodes[pos / 2 - 1]->key > last->key)
		heap_up(h, pos, last);
	else
		heap_down(h, pos, last);
}

struct tei_heap_node *tei_heap_first(const struct tei_heap *h)
{
	return h->count ? h->nodes[0] : NULL;
}
