/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of the context's regions: blocks of up to LOCAL_BLOCK regions,
 * sorted by address, in an array that is sorted as well. A change moves the
 * regions of one block and the array's elements, not all regions.
 * local_shared_table.c publishes the table block by block.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/local/local_table.h"

#define TABLE_FILL	(LOCAL_BLOCK * 3 / 4)	/* regions per block after
						 * packing */
/* The table is packed if its blocks have fewer regions than this on average. */
#define TABLE_SPARSE (LOCAL_BLOCK / 5)
/* The table is not packed if it has fewer blocks than this. */
#define TABLE_FEW 64u

static void table_stale(struct local_table *t, uint32_t from, uint32_t to)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (t->stale[i].from == t->stale[i].to) {
			t->stale[i].from = from;
			t->stale[i].to = to;
			continue;
		}
		if (from < t->stale[i].from)
			t->stale[i].from = from;
		if (to > t->stale[i].to)
			t->stale[i].to = to;
	}
}

/* Updates the block at index i after its regions have changed. */
static void table_changed(struct local_table *t, uint32_t i)
{
	struct local_block *b = &t->blocks[i];

	b->last = b->in->r[b->n - 1].end;
	b->dirty = true;
	table_stale(t, i, i + 1);
}

struct local_at local_table_seek(const struct local_table *t, uint64_t addr)
{
	uint32_t lo = 0, hi = t->nblocks, mid;
	const struct local_block *b;
	struct local_at at;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (t->blocks[mid].last <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	at = (struct local_at){ .block = lo, .at = 0 };
	if (lo == t->nblocks)
		return at;
	b = &t->blocks[lo];
	for (lo = 0, hi = b->n; lo < hi;) {
		mid = lo + (hi - lo) / 2;
		if (b->in->r[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	at.at = lo;
	return at;
}

struct local_region *local_table_get(const struct local_table *t,
				     struct local_at at)
{
	return at.block < t->nblocks ? &t->blocks[at.block].in->r[at.at] :
				       NULL;
}

struct local_at local_table_next(const struct local_table *t,
				 struct local_at at)
{
	if (++at.at == t->blocks[at.block].n)
		at = (struct local_at){ .block = at.block + 1, .at = 0 };
	return at;
}

void local_table_touch(struct local_table *t, struct local_at at)
{
	table_changed(t, at.block);
}

/* --- blocks -------------------------------------------------------------- */

static bool table_room(struct local_table *t)
{
	uint32_t want = t->room ? 2 * t->room : 16;
	struct local_block *p;

	if (t->nblocks < t->room)
		return true;
	p = realloc(t->blocks, want * sizeof(*p));
	if (!p)
		return false;
	t->blocks = p;
	t->room = want;
	return true;
}

/* Inserts a new, empty block at index i. Returns false if memory is short. */
static bool table_block(struct local_table *t, uint32_t i)
{
	struct local_regions *in;

	if (!table_room(t))
		return false;
	in = malloc(sizeof(*in));
	if (!in)
		return false;
	memmove(&t->blocks[i + 1], &t->blocks[i],
		(t->nblocks - i) * sizeof(t->blocks[0]));
	t->blocks[i] = (struct local_block){ .in = in, .dirty = true };
	t->nblocks++;
	table_stale(t, i, t->nblocks);
	return true;
}

/*
 * Removes the block at index i. Its published copy stays until the next
 * generation is published.
 */
static void table_drop(struct local_table *t, uint32_t i)
{
	struct local_block *b = &t->blocks[i];

	if (b->place)
		t->leaving[t->nleaving++] = b->place;
	free(b->in);
	t->nblocks--;
	memmove(&t->blocks[i], &t->blocks[i + 1],
		(t->nblocks - i) * sizeof(t->blocks[0]));
	if (i < t->nblocks)
		table_stale(t, i, t->nblocks);
}

/* Splits block i: moves its regions with index "from" and above to a new block
 * after it. Returns false if memory is short. */
static bool table_split(struct local_table *t, uint32_t i, uint32_t from)
{
	struct local_block *b, *upper;

	if (!table_block(t, i + 1))
		return false;
	b = &t->blocks[i];
	upper = b + 1;
	upper->n = (uint16_t)(b->n - from);
	b->n = (uint16_t)from;
	memcpy(upper->in->r, &b->in->r[from], upper->n * sizeof(upper->in->r[0]));
	table_changed(t, i);
	table_changed(t, i + 1);
	return true;
}

/* --- packing ------------------------------------------------------------- */

/*
 * Moves regions down so that every block but the last has at least TABLE_FILL
 * of them. Allocates nothing.
 */
static void table_pack(struct local_table *t)
{
	struct local_block *b, *from;
	uint32_t i = 0, take;

	while (i + 1 < t->nblocks) {
		b = &t->blocks[i];
		from = b + 1;
		if (b->n >= TABLE_FILL) {
			i++;
			continue;
		}
		take = TABLE_FILL - b->n;
		take = take < from->n ? take : from->n;
		memcpy(&b->in->r[b->n], from->in->r,
		       take * sizeof(b->in->r[0]));
		from->n = (uint16_t)(from->n - take);
		memmove(from->in->r, &from->in->r[take],
			from->n * sizeof(b->in->r[0]));
		b->n = (uint16_t)(b->n + take);
		table_changed(t, i);
		if (from->n)
			table_changed(t, i + 1);
		else
			table_drop(t, i + 1);
	}
}

static void table_tidy(struct local_table *t)
{
	if (t->nblocks > TABLE_FEW && t->nblocks > t->nregions / TABLE_SPARSE)
		table_pack(t);
}

/* --- regions ------------------------------------------------------------- */

/*
 * Makes room for a new region that precedes the region at the position *at.
 * Sets *at to the position of the new region. Blocks stay full if regions are
 * inserted in ascending or descending order. Returns false if memory is short.
 */
static bool table_place(struct local_table *t, struct local_at *at)
{
	uint32_t n;

	if (!t->nblocks)
		return table_block(t, 0);
	if (at->block == t->nblocks) {
		if (t->blocks[at->block - 1].n == LOCAL_BLOCK)
			return table_block(t, at->block);
		at->block--;
		at->at = t->blocks[at->block].n;
	}
	n = t->blocks[at->block].n;
	if (n < LOCAL_BLOCK)
		return true;
	if (!at->block && !at->at)
		return table_block(t, 0);
	if (!table_split(t, at->block, n / 2))
		return false;
	if (at->at > n / 2) {
		at->at -= n / 2;
		at->block++;
	}
	return true;
}

int local_table_insert(struct local_table *t, struct local_at at,
		       const struct local_region *region)
{
	struct local_region *r;
	struct local_block *b;

	if (t->nregions == TEI_LOCAL_REGIONS)
		return TEI_ERR_TOO_MANY;
	if (t->nblocks == LOCAL_INDEX) {
		table_pack(t);
		at = local_table_seek(t, region->base);
	}
	if (!table_place(t, &at))
		return TEI_ERR_MEMORY;
	b = &t->blocks[at.block];
	r = &b->in->r[at.at];
	memmove(r + 1, r, (b->n - at.at) * sizeof(*r));
	*r = *region;
	b->n++;
	table_changed(t, at.block);
	t->nregions++;
	table_tidy(t);
	return 0;
}

void local_table_remove(struct local_table *t, struct local_at at)
{
	struct local_block *b = &t->blocks[at.block];
	struct local_region *r = &b->in->r[at.at];

	b->n--;
	memmove(r, r + 1, (b->n - at.at) * sizeof(*r));
	t->nregions--;
	if (b->n)
		table_changed(t, at.block);
	else
		table_drop(t, at.block);
	table_tidy(t);
}

void local_table_clear(struct local_table *t)
{
	while (t->nblocks)
		table_drop(t, t->nblocks - 1);
	t->nregions = 0;
}

/* --- published blocks ---------------------------------------------------- */

bool local_table_init(struct local_table *t)
{
	t->unused = calloc(LOCAL_BLOCKS, sizeof(*t->unused));
	t->leaving = calloc(LOCAL_BLOCKS, sizeof(*t->leaving));
	if (t->unused && t->leaving)
		return true;
	local_table_fini(t);
	return false;
}

void local_table_fini(struct local_table *t)
{
	uint32_t i;

	for (i = 0; i < t->nblocks; i++)
		free(t->blocks[i].in);
	free(t->blocks);
	free(t->unused);
	free(t->leaving);
	memset(t, 0, sizeof(*t));
}

/*
 * Assigns a new published block to a changed block. One is always free: at most
 * LOCAL_INDEX blocks belong to the current generation, and at most as many are
 * taken by the blocks that the next generation changes.
 */
static void table_renew(struct local_table *t, struct local_block *b)
{
	uint32_t i;

	if (b->place)
		t->leaving[t->nleaving++] = b->place;
	b->visible = 0;
	for (i = 0; i < b->n; i++)
		b->visible += !b->in->r[i].hidden;
	b->place = t->nunused ? t->unused[--t->nunused] :
				(uint16_t)++t->used;
}

void local_table_renew(struct local_table *t, unsigned int which)
{
	uint32_t i;

	for (i = t->stale[which].from;
	     i < t->stale[which].to && i < t->nblocks; i++)
		if (t->blocks[i].dirty)
			table_renew(t, &t->blocks[i]);
}

void local_table_settle(struct local_table *t, unsigned int which)
{
	uint32_t i;

	for (i = t->stale[which].from;
	     i < t->stale[which].to && i < t->nblocks; i++)
		t->blocks[i].dirty = false;
	t->stale[which].from = t->stale[which].to = 0;
	while (t->nleaving)
		t->unused[t->nunused++] = t->leaving[--t->nleaving];
}
