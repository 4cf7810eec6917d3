/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "prov/nvmeof/nvmeof_int.h"
#include "topo/tei_topo.h"
#include "util/range.h"

/* Registered ranges: sorted and disjoint. */

/* Returns the index of the first range that ends above addr. */
static uint32_t mem_index(const struct tei_nvmeof *ctx, uint64_t addr)
{
	return tei_range_index(ctx->mem, ctx->nmem, sizeof(*ctx->mem),
			       offsetof(struct nvmeof_mem, end), addr);
}

const struct nvmeof_mem *nvmeof_mem_find(struct tei_nvmeof *ctx,
					 const void *addr, uint64_t len)
{
	uint64_t base = (uintptr_t)addr, end = base + len;
	uint32_t i = mem_index(ctx, base);

	if (i == ctx->nmem || end < base || ctx->mem[i].base > base ||
	    ctx->mem[i].end < end || ctx->mem[i].removing)
		return NULL;
	return &ctx->mem[i];
}

static bool mem_room(struct tei_nvmeof *ctx) TEI_REQUIRES(ctx->lock)
{
	uint32_t want = ctx->mem_room ? 2 * ctx->mem_room : 64;
	struct nvmeof_mem *p;

	if (ctx->nmem < ctx->mem_room)
		return true;
	p = realloc(ctx->mem, want * sizeof(*p));
	if (!p)
		return false;
	ctx->mem = p;
	ctx->mem_room = want;
	return true;
}

static int mem_insert(struct tei_nvmeof *ctx, const struct nvmeof_mem *m)
	TEI_REQUIRES(ctx->lock)
{
	uint32_t i = mem_index(ctx, m->base);

	if (i < ctx->nmem && ctx->mem[i].base < m->end)
		return TEI_ERR_OVERLAP;
	if (!mem_room(ctx))
		return TEI_ERR_MEMORY;
	memmove(&ctx->mem[i + 1], &ctx->mem[i],
		(ctx->nmem - i) * sizeof(ctx->mem[0]));
	ctx->mem[i] = *m;
	ctx->nmem++;
	return 0;
}

int nvmeof_mem_insert(struct tei_nvmeof *ctx, const struct nvmeof_mem *m)
{
	int ret;

	tei_mutex_lock(&ctx->lock);
	ret = mem_insert(ctx, m);
	tei_mutex_unlock(&ctx->lock);
	return ret;
}

int nvmeof_mem_slot(const struct tei_nvmeof *ctx, const struct nvmeof_mem *m,
		    const void *addr, uint64_t len)
{
	uint64_t at = (uintptr_t)addr - m->base, part = at / ctx->part;

	return m->fixed >= 0 && (at + len - 1) / ctx->part == part ?
	       m->fixed + (int)part : -1;
}

int nvmeof_mem_node(const struct nvmeof_mem *m, const void *addr)
{
	return m->where ? tei_topo_where_node(m->where, m->end - m->base,
					      (uintptr_t)addr - m->base) : -1;
}

/* Parses the location. A location that does not parse counts as unknown. */
static int mem_locate(struct nvmeof_mem *m, const char *location)
{
	struct tei_topo_where where;

	if (tei_topo_where_parse(location, &where, NULL) ||
	    where.kind == TEI_TOPO_WHERE_ANY)
		return 0;
	m->where = malloc(sizeof(where));
	if (!m->where)
		return TEI_ERR_MEMORY;
	*m->where = where;
	return 0;
}

int tei_nvmeof_mem_add(struct tei_nvmeof *ctx, void *addr, uint64_t len,
		       const char *location)
{
	struct nvmeof_mem m = { .base = (uintptr_t)addr,
				.end = (uintptr_t)addr + len, .fixed = -1 };
	int ret;

	if (!m.base || !len || m.end < m.base)
		return TEI_ERR_INVALID;
	ret = mem_locate(&m, location);
	if (ret)
		return ret;
	if (ctx->backend->fix)
		m.fixed = ctx->backend->fix(ctx, addr, len);
	ret = nvmeof_mem_insert(ctx, &m);
	if (ret && m.fixed >= 0)
		ctx->backend->unfix(ctx, m.fixed, len);
	if (ret)
		free(m.where);
	return ret;
}

/*
 * Returns true if a live operation, or one whose done is running, accesses the
 * range.
 */
static bool mem_used(struct tei_nvmeof *ctx, uint64_t base, uint64_t end)
	TEI_REQUIRES(ctx->lock)
{
	const struct nvmeof_ending *e;
	struct tei_nvmeof_op *op;

	tei_list_foreach(op, &ctx->live, struct tei_nvmeof_op, live_node)
		if ((uintptr_t)op->local < end &&
		    (uintptr_t)op->local + op->length > base)
			return true;
	tei_list_foreach(e, &ctx->ending, struct nvmeof_ending, node)
		if (e->base < end && e->end > base)
			return true;
	return false;
}

/* Returns the range that starts at base, or NULL. */
static struct nvmeof_mem *mem_starts(struct tei_nvmeof *ctx, uint64_t base)
	TEI_REQUIRES(ctx->lock)
{
	uint32_t i = mem_index(ctx, base);

	return i < ctx->nmem && ctx->mem[i].base == base ? &ctx->mem[i] : NULL;
}

static int mem_remove(struct tei_nvmeof *ctx, uint64_t base,
		      uint64_t deadline_ns, struct nvmeof_mem *taken)
	TEI_REQUIRES(ctx->lock)
{
	struct nvmeof_mem *m = mem_starts(ctx, base);
	bool used = true;
	uint64_t end;

	if (!m || m->removing)
		return TEI_ERR_NOT_REGISTERED;
	m->removing = true;
	end = m->end;
	while ((used = mem_used(ctx, base, end)) &&
	       nvmeof_wait(ctx, deadline_ns))
		;
	m = mem_starts(ctx, base);	/* other threads may have moved it */
	if (used) {
		m->removing = false;
		return TEI_ERR_BUSY;
	}
	*taken = *m;
	ctx->nmem--;
	memmove(m, m + 1, (size_t)(&ctx->mem[ctx->nmem] - m) * sizeof(*m));
	return 0;
}

int tei_nvmeof_mem_remove(struct tei_nvmeof *ctx, void *addr,
			  uint64_t deadline_ns)
{
	struct nvmeof_mem taken;
	int ret;

	tei_mutex_lock(&ctx->lock);
	ret = mem_remove(ctx, (uintptr_t)addr, deadline_ns, &taken);
	tei_mutex_unlock(&ctx->lock);
	if (ret)
		return ret;
	nvmeof_cufile_mem_remove(ctx, &taken);
	free(taken.where);
	if (taken.fixed >= 0)
		ctx->backend->unfix(ctx, taken.fixed, taken.end - taken.base);
	return 0;
}
