/* SPDX-License-Identifier: BSD-2-Clause */
/* The regions of this context: the possible targets of copies. */
#include <stdlib.h>
#include <string.h>

#include "prov/local/local_int.h"
#include "util/clock.h"

#define REGION_ROOM	16u
#define REGION_UNDRAINED 1	/* internal code: at the deadline, copies still
				 * use the hidden region */

static void region_publish(struct tei_local *ctx) TEI_REQUIRES(ctx->lock)
{
	struct local_table *t = &ctx->table;

	ctx->generation++;
	ctx->unpublished = false;
	local_table_renew(t, ctx->generation & 1);
	local_shared_table_publish(ctx->own, ctx->generation, t);
	if (ctx->shared)
		local_shared_table_publish(ctx->shared, ctx->generation, t);
	local_table_settle(t, ctx->generation & 1);
}

/* Inserts a region. If it overlaps another region, stores that region in
 * *other. */
static int region_insert(struct tei_local *ctx, uint64_t base, uint64_t end,
			 uint32_t access, struct local_region *other)
	TEI_REQUIRES(ctx->lock)
{
	struct local_at at = local_table_seek(&ctx->table, base);
	struct local_region r = { .base = base, .end = end, .access = access };
	const struct local_region *next = local_table_get(&ctx->table, at);
	int rc;

	if (next && next->base < end) {
		*other = *next;
		return TEI_ERR_OVERLAP;
	}
	r.serial = ++ctx->serial;
	local_memory_locate(ctx, &r);
	rc = local_table_insert(&ctx->table, at, &r);
	if (rc)
		return rc;
	ctx->unpublished = true;
	if (!ctx->adding)
		region_publish(ctx);
	return 0;
}

void tei_local_regions_adding(struct tei_local *ctx, bool on)
{
	if (local_guard(ctx))
		return;
	tei_mutex_lock(&ctx->lock);
	if (on)
		ctx->adding++;
	else
		ctx->adding--;
	if (!ctx->adding && ctx->unpublished)
		region_publish(ctx);
	tei_mutex_unlock(&ctx->lock);
}

int tei_local_region_add(struct tei_local *ctx, const void *base,
			 uint64_t len, uint32_t access)
{
	uint64_t addr = (uint64_t)(uintptr_t)base;
	struct local_region other = { 0 };
	int rc = local_guard(ctx);

	if (rc)
		return rc;
	if (!base || !len || addr > UINT64_MAX - len)
		return local_fail(ctx, NULL, TEI_ERR_INVALID, NULL, 0,
				  "region %p, %llu bytes: the address is NULL, the length is 0, or the range wraps around",
				  base, (unsigned long long)len);
	tei_mutex_lock(&ctx->lock);
	rc = region_insert(ctx, addr, addr + len, access, &other);
	tei_mutex_unlock(&ctx->lock);
	if (rc == TEI_ERR_OVERLAP)
		return local_fail(ctx, NULL, rc, NULL, 0,
				  "region %p of %llu bytes overlaps the registered buffer 0x%llx of %llu bytes%s",
				  base, (unsigned long long)len,
				  (unsigned long long)other.base,
				  (unsigned long long)(other.end - other.base),
				  other.removing ?
				  ", which is being unregistered" : "");
	if (rc)
		return local_fail(ctx, NULL, rc, NULL, 0,
				  "region %p, %llu bytes: %s", base,
				  (unsigned long long)len, tei_err_name(rc));
	return 0;
}

/* Returns the region at base if it is not being removed, or NULL. */
static struct local_region *region_find(struct tei_local *ctx, uint64_t base,
					uint64_t len)
	TEI_REQUIRES(ctx->lock)
{
	struct local_region *r;

	r = local_table_get(&ctx->table, local_table_seek(&ctx->table, base));
	if (!r || r->base != base || r->removing)
		return NULL;
	return !len || r->end - r->base == len ? r : NULL;
}

uint64_t tei_local_region_serial(struct tei_local *ctx, const void *base)
{
	const struct local_region *r;
	uint64_t serial;

	if (local_guard(ctx))
		return 0;
	tei_mutex_lock(&ctx->lock);
	r = region_find(ctx, (uint64_t)(uintptr_t)base, 0);
	serial = r ? r->serial : 0;
	tei_mutex_unlock(&ctx->lock);
	return serial;
}

/* Finds the region at base, which is being removed, marks it as changed and
 * returns it. It must be searched again because other threads may have moved it
 * in the table. */
static struct local_region *region_again(struct tei_local *ctx, uint64_t base)
	TEI_REQUIRES(ctx->lock)
{
	struct local_at at = local_table_seek(&ctx->table, base);

	local_table_touch(&ctx->table, at);
	return local_table_get(&ctx->table, at);
}

static bool region_reached(struct local_reach r, uint64_t base, uint64_t end)
{
	return local_overlaps(r.local, r.local + r.length, base, end) ||
	       local_overlaps(r.far, r.far + r.length, base, end);
}

/*
 * Returns true if a live operation, or one whose done is running, accesses the
 * range.
 */
static bool region_in_use(struct tei_local *ctx, uint64_t base, uint64_t end)
	TEI_REQUIRES(ctx->lock)
{
	const struct local_ending *e;
	struct tei_local_op *op;

	tei_list_foreach(op, &ctx->live, struct tei_local_op, live_node) {
		if (region_reached(local_reach(op), base, end))
			return true;
	}
	tei_list_foreach(e, &ctx->ending, struct local_ending, node) {
		if (region_reached(e->reach, base, end))
			return true;
	}
	return false;
}

/* Waits until no operation of this process accesses the range. */
static bool region_wait_ops(struct tei_local *ctx, uint64_t base, uint64_t end,
			    uint64_t deadline_ns) TEI_REQUIRES(ctx->lock)
{
	bool used;

	ctx->waiters++;
	while ((used = region_in_use(ctx, base, end))) {
		if (!local_wait(&ctx->ended, &ctx->lock, deadline_ns))
			break;
	}
	ctx->waiters--;
	return !used || !region_in_use(ctx, base, end);
}

static bool region_drain(struct tei_local *ctx, uint64_t base, uint64_t end,
			 uint64_t deadline_ns)
{
	return local_slots_drain(ctx->own, base, end, deadline_ns) &&
	       (!ctx->shared ||
		local_slots_drain(ctx->shared, base, end, deadline_ns));
}

/*
 * Marks the regions of the ranges as being removed, so that no new operation
 * uses them. Sets the code of each range whose region does not exist.
 */
static void regions_mark(struct tei_local *ctx, struct tei_local_range *ranges,
			 size_t count) TEI_REQUIRES(ctx->lock)
{
	struct local_region *r;
	size_t i;

	for (i = 0; i < count; i++) {
		r = region_find(ctx, (uint64_t)(uintptr_t)ranges[i].base,
				ranges[i].len);
		ranges[i].code = r ? 0 : TEI_ERR_NOT_REGISTERED;
		if (!r)
			continue;
		r->removing = true;
		ranges[i].len = r->end - r->base;
	}
}

/*
 * Hides the marked regions as soon as no operation of this process accesses
 * them. Returns true if any was hidden. Regions that are still in use at the
 * deadline stay registered.
 */
static bool regions_hide(struct tei_local *ctx, struct tei_local_range *ranges,
			 size_t count, uint64_t deadline_ns)
	TEI_REQUIRES(ctx->lock)
{
	bool any = false, ended;
	uint64_t base;
	size_t i;

	for (i = 0; i < count; i++) {
		base = (uint64_t)(uintptr_t)ranges[i].base;
		if (ranges[i].code)
			continue;
		ended = region_wait_ops(ctx, base, base + ranges[i].len,
					deadline_ns);
		region_again(ctx, base)->removing = ended;
		region_again(ctx, base)->hidden = ended;
		ranges[i].code = ended ? 0 : TEI_ERR_BUSY;
		any |= ended;
	}
	return any;
}

/*
 * Waits for the copies by other processes, and for those that calls such as
 * tei_local_copy make on the calling thread. Called when the table has been
 * published without the hidden regions.
 */
static void regions_drain(struct tei_local *ctx, struct tei_local_range *ranges,
			  size_t count, uint64_t deadline_ns)
{
	uint64_t base;
	size_t i;

	for (i = 0; i < count; i++) {
		base = (uint64_t)(uintptr_t)ranges[i].base;
		if (!ranges[i].code &&
		    !region_drain(ctx, base, base + ranges[i].len, deadline_ns))
			ranges[i].code = REGION_UNDRAINED;
	}
}

/* Removes the regions that were drained. Publishes the other regions of the
 * ranges again. */
static void regions_settle(struct tei_local *ctx,
			   struct tei_local_range *ranges, size_t count)
	TEI_REQUIRES(ctx->lock)
{
	struct local_region *r;
	bool back = false;
	uint64_t base;
	size_t i;

	for (i = 0; i < count; i++) {
		base = (uint64_t)(uintptr_t)ranges[i].base;
		if (!ranges[i].code)
			local_table_remove(&ctx->table,
					   local_table_seek(&ctx->table, base));
		if (ranges[i].code != REGION_UNDRAINED)
			continue;
		r = region_again(ctx, base);
		r->removing = r->hidden = false;
		back = true;
		ranges[i].code = TEI_ERR_BUSY;
	}
	if (back)
		region_publish(ctx);
}

void tei_local_regions_remove(struct tei_local *ctx,
			      struct tei_local_range *ranges, size_t count,
			      uint64_t deadline_ns)
{
	int rc = local_guard(ctx);
	size_t i;

	for (i = 0; i < count; i++)
		ranges[i].code = rc;
	if (rc)
		return;
	tei_mutex_lock(&ctx->lock);
	regions_mark(ctx, ranges, count);
	if (regions_hide(ctx, ranges, count, deadline_ns)) {
		region_publish(ctx);
		tei_mutex_unlock(&ctx->lock);
		regions_drain(ctx, ranges, count, deadline_ns);
		tei_mutex_lock(&ctx->lock);
		regions_settle(ctx, ranges, count);
	}
	tei_mutex_unlock(&ctx->lock);
	for (i = 0; i < count; i++)
		if (ranges[i].code)
			local_fail(ctx, NULL, ranges[i].code, NULL, 0,
				   ranges[i].code == TEI_ERR_BUSY ?
				   "region %p: still in use by a copy; it stays registered" :
				   "region %p: no region of this length starts at the address",
				   ranges[i].base);
}

int tei_local_region_remove(struct tei_local *ctx, const void *base,
			    uint64_t len, uint64_t deadline_ns)
{
	struct tei_local_range range = { .base = base, .len = len };

	tei_local_regions_remove(ctx, &range, 1, deadline_ns);
	return range.code;
}

int tei_local_region_check(struct tei_local *ctx, const void *addr,
			   uint64_t len, bool write)
{
	int rc = local_guard(ctx);

	if (rc)
		return rc;
	return local_shared_table_covers(ctx->own, (uint64_t)(uintptr_t)addr,
					 len, write ? LOCAL_WRITABLE : 0)
		       ? 0
		       : TEI_ERR_NOT_REGISTERED;
}

bool tei_local_region_touches(struct tei_local *ctx, const void *addr,
			      uint64_t len)
{
	uint64_t base = (uintptr_t)addr;
	const struct local_region *r;
	bool touches;

	if (local_guard(ctx))
		return false;
	tei_mutex_lock(&ctx->lock);
	r = local_table_get(&ctx->table, local_table_seek(&ctx->table, base));
	touches = r && r->base <= base + (len - 1);
	tei_mutex_unlock(&ctx->lock);
	return touches;
}

/* Returns true if the range overlaps a region that is being removed. */
static bool region_leaving(struct tei_local *ctx, uint64_t base, uint64_t end)
	TEI_REQUIRES(ctx->lock)
{
	struct local_at at = local_table_seek(&ctx->table, base);
	const struct local_region *r;

	for (; (r = local_table_get(&ctx->table, at)) && r->base < end;
	     at = local_table_next(&ctx->table, at)) {
		if (r->removing)
			return true;
	}
	return false;
}

/* Returns true if the range is in one region, which the operation may access. If
 * serial is not 0, this region must have this serial number. */
static bool region_holds(struct tei_local *ctx, uint64_t base, uint64_t end,
			 bool write, uint64_t serial) TEI_REQUIRES(ctx->lock)
{
	const struct local_region *r;

	/* an empty range may begin where a region ends, so the byte before it
	 * is searched */
	r = local_table_get(&ctx->table, local_table_seek(
			&ctx->table, base == end && base ? base - 1 : base));
	return r && r->base <= base && end <= r->end && !r->removing &&
	       (!serial || r->serial == serial) &&
	       !(write && r->access & TEI_LOCAL_READ_ONLY);
}

bool local_regions_allow(struct tei_local *ctx, const struct tei_local_op *op)
{
	uint64_t local = (uint64_t)(uintptr_t)op->local;

	if (region_leaving(ctx, local, local + op->length))
		return false;
	if (op->registered &&
	    !region_holds(ctx, local, local + op->length,
			  op->opcode == TEI_LOCAL_READ, 0))
		return false;
	if (op->peer && op->peer->shared_table)
		return true;
	return region_holds(ctx, op->remote, op->remote + op->length,
			    op->opcode == TEI_LOCAL_WRITE, op->serial);
}

void local_regions_clear(struct tei_local *ctx)
{
	local_table_clear(&ctx->table);
	region_publish(ctx);
}
