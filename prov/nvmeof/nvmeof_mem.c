/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "prov/nvmeof/nvmeof_int.h"
#include "topo/tei_topo.h"

/* Returns the object that contains the range r, or NULL if r is NULL. */
static struct nvmeof_mem *mem_of(struct tei_range *r)
{
	return r ? tei_container_of(r, struct nvmeof_mem, range) : NULL;
}

const struct nvmeof_mem *nvmeof_mem_find(struct tei_nvmeof *ctx,
					 const void *addr, uint64_t len)
{
	struct nvmeof_mem *m =
		mem_of(tei_range_find(&ctx->mem, (uintptr_t)addr, len));

	return m && !m->removing ? m : NULL;
}

struct nvmeof_mem *nvmeof_mem_new(const void *addr, uint64_t len)
{
	struct nvmeof_mem *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->range.base = (uintptr_t)addr;
	m->range.end = m->range.base + len;
	m->fixed = -1;
	return m;
}

void nvmeof_mem_free(struct nvmeof_mem *m)
{
	free(m->where);
	free(m);
}

int nvmeof_mem_insert(struct tei_nvmeof *ctx, struct nvmeof_mem *m)
{
	int ret;

	tei_mutex_lock(&ctx->lock);
	ret = tei_range_insert(&ctx->mem, &m->range);
	tei_mutex_unlock(&ctx->lock);
	return ret;
}

int nvmeof_mem_slot(const struct tei_nvmeof *ctx, const struct nvmeof_mem *m,
		    const void *addr, uint64_t len)
{
	uint64_t at = (uintptr_t)addr - m->range.base, part = at / ctx->part;

	return m->fixed >= 0 && (at + len - 1) / ctx->part == part ?
	       m->fixed + (int)part : -1;
}

int nvmeof_mem_node(const struct nvmeof_mem *m, const void *addr)
{
	const struct tei_range *r = &m->range;

	return m->where ? tei_topo_where_node(m->where, r->end - r->base,
					      (uintptr_t)addr - r->base)
			: -1;
}

/* Parses the location and stores it in m->where. A location that does not parse
 * counts as unknown. */
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
	struct nvmeof_mem *m;
	int ret;

	if (!addr || !len || (uintptr_t)addr + len < (uintptr_t)addr)
		return TEI_ERR_INVALID;
	m = nvmeof_mem_new(addr, len);
	if (!m)
		return TEI_ERR_MEMORY;
	ret = mem_locate(m, location);
	if (ret)
		goto err_free;
	if (ctx->backend->fix)
		m->fixed = ctx->backend->fix(ctx, addr, len);
	ret = nvmeof_mem_insert(ctx, m);
	if (!ret)
		return 0;
	if (m->fixed >= 0)
		ctx->backend->unfix(ctx, m->fixed, len);
err_free:
	nvmeof_mem_free(m);
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

/* Waits until no operation uses the memory that starts at base. Then takes it
 * out of the table and stores it in *taken; the caller frees it. Returns 0, or
 * a code. */
static int mem_remove(struct tei_nvmeof *ctx, uint64_t base,
		      uint64_t deadline_ns, struct nvmeof_mem **taken)
	TEI_REQUIRES(ctx->lock)
{
	struct nvmeof_mem *m = mem_of(tei_range_start(&ctx->mem, base));
	bool used;

	if (!m || m->removing)
		return TEI_ERR_NOT_REGISTERED;
	m->removing = true;
	while ((used = mem_used(ctx, base, m->range.end)) &&
	       nvmeof_wait(ctx, deadline_ns))
		;
	if (used) {
		m->removing = false;
		return TEI_ERR_BUSY;
	}
	tei_range_remove(&ctx->mem, &m->range);
	*taken = m;
	return 0;
}

int tei_nvmeof_mem_remove(struct tei_nvmeof *ctx, void *addr,
			  uint64_t deadline_ns)
{
	struct nvmeof_mem *taken;
	int ret;

	tei_mutex_lock(&ctx->lock);
	ret = mem_remove(ctx, (uintptr_t)addr, deadline_ns, &taken);
	tei_mutex_unlock(&ctx->lock);
	if (ret)
		return ret;
	nvmeof_cufile_mem_remove(ctx, taken);
	if (taken->fixed >= 0)
		ctx->backend->unfix(ctx, taken->fixed,
				    taken->range.end - taken->range.base);
	nvmeof_mem_free(taken);
	return 0;
}
