/* SPDX-License-Identifier: BSD-2-Clause */
/* Local memory: registers it on all rails, and keeps the regions in a table
 * sorted by address. rail_revoke.c unregisters a region. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/tei_rail.h"
#include "topo/tei_topo.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"

uint8_t rail_mr_shift(struct tei_rail_dp *dp, const struct tei_rail_mr *mr)
{
	uint8_t shift = RAIL_MR_WHOLE;
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++)
		if (mr->part[i].n && mr->part[i].shift < shift)
			shift = mr->part[i].shift;
	return shift;
}

/* --- NUMA ranges --------------------------------------------------------- */

/* Creates the NUMA ranges of the region: one for each part that its location
 * names, or a single one if the location names no parts. */
static int mr_make_numa_ranges(struct tei_rail_mr *mr)
{
	char name[TEI_TOPO_NAME];
	struct tei_topo_where w;
	uint64_t at, end = 0;
	uint32_t n = 1;

	if (tei_topo_where_parse(mr->location, &w, NULL))
		return TEI_ERR_INVALID;
	if (w.kind == TEI_TOPO_WHERE_PARTS)
		n = w.n_parts;
	mr->places = calloc(n, sizeof(*mr->places));
	if (!mr->places)
		return TEI_ERR_MEMORY;
	for (at = 0; at < mr->len && mr->nplaces < n; at = end) {
		tei_topo_where_part(&w, mr->len, at, name, &end);
		mr->places[mr->nplaces++].end = end;
	}
	return 0;
}

void rail_mr_rank(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
{
	uint8_t ranks[TEI_RAIL_MAX];
	char name[TEI_TOPO_NAME];
	struct tei_topo_where w;
	uint32_t i, p;
	uint64_t end;
	int nic;

	if (tei_topo_where_parse(mr->location, &w, NULL))
		return;
	memset(ranks, 0, sizeof(ranks));
	for (p = 0; p < mr->nplaces; p++) {
		tei_topo_where_part(&w, mr->len, p ? mr->places[p - 1].end : 0,
				    name, &end);
		if (dp->topo)
			tei_topo_ranks(dp->topo, name, ranks, TEI_RAIL_MAX);
		for (i = 0; i < rail_count(dp); i++) {
			nic = dp->topo ? tei_topo_find_nic(
						 dp->topo, rail_at(dp, i)->name)
				       : -1;
			mr->places[p].rank[i] =
				nic >= 0 && nic < TEI_RAIL_MAX ? ranks[nic] : 0;
		}
	}
}

const uint8_t *rail_mr_ranks(const struct tei_rail_mr *mr, const char *addr)
{
	uint64_t off = (uint64_t)(addr - mr->addr);
	uint32_t lo = 0, hi = mr->nplaces - 1, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (mr->places[mid].end <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return mr->places[lo].rank;
}

/* --- the table ----------------------------------------------------------- */

struct tei_rail_mr *rail_mr_find_held(struct tei_rail_dp *dp, const void *addr,
				      uint64_t len)
{
	struct tei_range *r =
		tei_range_find(&dp->memory.mrs, (uintptr_t)addr, len);

	return r ? tei_container_of(r, struct tei_rail_mr, range) : NULL;
}

struct tei_rail_mr *rail_mr_find(struct tei_rail_dp *dp, const void *addr,
				 uint64_t len)
{
	struct tei_rail_mr *mr = rail_mr_find_held(dp, addr, len);

	return mr && mr->state == RAIL_MR_READY ? mr : NULL;
}

/* Adds the region to the table. Returns TEI_ERR_OVERLAP if the region overlaps
 * another region. */
static int mr_insert(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held)
{
	int ret = tei_range_insert(&dp->memory.mrs, &mr->range);

	if (!ret)
		mr->id = ++dp->memory.next_id;
	return ret;
}

void rail_mr_remove(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held)
{
	tei_list_del(&mr->revoking);
	tei_range_remove(&dp->memory.mrs, &mr->range);
}

void rail_mr_free(struct tei_rail_mr *mr)
{
	free(mr->holders);
	free(mr->places);
	free(mr->location);
	if (mr->gpu && mr->device.dmabuf >= 0)
		close(mr->device.dmabuf);
	free(mr);
}

/* Creates the placeholder region. It is not in dp->memory.mrs and is registered
 * on no rail, so peers cannot use it. */
int rail_mr_open_placeholder(struct tei_rail_dp *dp, struct tei_err *err)
{
	struct tei_rail_mr *mr = calloc(1, sizeof(*mr));
	int i;

	if (mr)
		mr->places = calloc(1, sizeof(*mr->places));
	if (!mr || !mr->places) {
		free(mr);
		return tei_err_fail(err, TEI_ERR_MEMORY, "rail", NULL,
				    "no memory for a data plane");
	}
	mr->len = UINT64_MAX;
	mr->nplaces = 1;
	mr->places->end = UINT64_MAX;
	mr->state = RAIL_MR_READY;
	for (i = 0; i < TEI_RAIL_MAX; i++)
		mr->part[i].shift = RAIL_MR_WHOLE;
	dp->placeholder = mr;
	return 0;
}

void rail_mr_close_placeholder(struct tei_rail_dp *dp)
{
	if (dp->placeholder)
		rail_mr_free(dp->placeholder);
}

static int mr_make(void *addr, uint64_t len, const char *location,
		   uint32_t access, struct tei_err *err,
		   struct tei_rail_mr **out)
{
	struct tei_rail_mr *mr;
	int ret;

	if (!addr || !len || (uintptr_t)addr + len < (uintptr_t)addr)
		return tei_err_fail(err, TEI_ERR_INVALID, "rail", NULL,
				    "%p, %llu bytes: not a memory range", addr,
				    (unsigned long long)len);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return tei_err_fail(err, TEI_ERR_MEMORY, "rail", NULL,
				    "no memory for a region");
	tei_list_init(&mr->revoking);
	mr->addr = addr;
	mr->len = len;
	mr->range.base = (uintptr_t)addr;
	mr->range.end = mr->range.base + len;
	mr->remote = access & TEI_RAIL_REMOTE;
	mr->read_only = access & TEI_RAIL_READ_ONLY;
	mr->location = strdup(location ? location : "*");
	ret = mr->location ? mr_make_numa_ranges(mr) : TEI_ERR_MEMORY;
	if (ret) {
		rail_mr_free(mr);
		return tei_err_fail(err, ret, "rail", NULL,
				    ret == TEI_ERR_MEMORY ?
					    "location \"%.64s\": no memory for its NUMA ranges" :
					    "location \"%.64s\": not a valid location",
				    location ? location : "*");
	}
	*out = mr;
	return 0;
}

/* Writes to "out" why mr_insert refused a region. If the region overlaps
 * another one, names that one. */
static void mr_refused(const struct tei_rail_dp *dp,
		       const struct tei_rail_mr *mr, int code,
		       char out[TEI_ERR_TEXT]) TEI_REQUIRES(rail_sched_held)
{
	const struct tei_range *other;
	int n = snprintf(out, TEI_ERR_TEXT, "%p, %llu bytes: ",
			 (void *)mr->addr, (unsigned long long)mr->len);

	if (code == TEI_ERR_OVERLAP) {
		other = tei_range_overlap(&dp->memory.mrs, mr->range.base,
					  mr->range.end);
		snprintf(out + n, TEI_ERR_TEXT - (size_t)n,
			 "overlaps the registered buffer %p, %llu bytes",
			 (void *)(uintptr_t)other->base,
			 (unsigned long long)(other->end - other->base));
	} else {
		snprintf(out + n, TEI_ERR_TEXT - (size_t)n, "%s",
			 tei_err_name(code));
	}
}

/* Adds the region to the table and registers it on the rails. Frees the region
 * on failure. */
static int mr_enter(struct tei_rail_dp *dp, struct tei_rail_mr *mr,
		    struct tei_err *err)
{
	struct tei_err none;
	char text[TEI_ERR_TEXT];
	int ret;

	tei_mutex_lock(&dp->admin);
	rail_sched_enter(dp);
	ret = mr_insert(dp, mr);
	if (!ret)
		rail_mr_rank(dp, mr);
	else
		mr_refused(dp, mr, ret, text);
	rail_sched_leave(dp);
	if (ret) {
		ret = tei_err_fail(err, ret, "rail",
				   ret == TEI_ERR_OVERLAP ?
				   "unregister the other buffer first, or register one buffer that holds both" :
				   NULL, "%s", text);
		goto err_mr;
	}
	ret = rail_mr_open_all(dp, mr, err ? err : &none);
	rail_sched_enter(dp);
	if (ret)
		rail_mr_remove(dp, mr);
	else
		mr->state = RAIL_MR_READY;
	rail_sched_leave(dp);
	if (ret)
		goto err_mr;
	tei_mutex_unlock(&dp->admin);
	return 0;
err_mr:
	tei_mutex_unlock(&dp->admin);
	mr->device.dmabuf = -1;		/* after a failure the file descriptor
					 * belongs to the caller */
	rail_mr_free(mr);
	return ret;
}

int tei_rail_mr_reg(struct tei_rail_dp *dp, void *addr, uint64_t len,
		    const char *location, uint32_t access, struct tei_err *err,
		    struct tei_rail_mr **out)
{
	struct tei_rail_mr *mr;
	int ret = mr_make(addr, len, location, access, err, &mr);

	if (!ret)
		ret = mr_enter(dp, mr, err);
	if (!ret)
		*out = mr;
	return ret;
}

int tei_rail_mr_reg_gpu(struct tei_rail_dp *dp, void *addr, uint64_t len,
			const char *location, uint32_t access,
			const struct tei_rail_device *device,
			struct tei_err *err, struct tei_rail_mr **out)
{
	struct tei_rail_mr *mr;
	int ret = mr_make(addr, len, location, access, err, &mr);

	if (ret)
		return ret;
	mr->gpu = true;
	mr->device = *device;
	ret = mr_enter(dp, mr, err);
	if (!ret)
		*out = mr;
	return ret;
}

void rail_mr_free_all(struct tei_rail_dp *dp)
{
	uint32_t i, r;

	for (i = 0; i < dp->memory.mrs.n; i++) {
		for (r = 0; r < rail_count(dp); r++)
			rail_mr_close_on(rail_mr_at(dp, i), rail_at(dp, r));
		rail_mr_free(rail_mr_at(dp, i));
	}
	tei_range_fini(&dp->memory.mrs);
}

int tei_rail_mr_key(struct tei_rail_dp *dp, const void *addr, size_t rail,
		    uint64_t *key)
{
	const struct rail_mr_part *part;
	const struct rail_mr_piece *piece;
	struct tei_rail_mr *mr;
	int ret = TEI_ERR_NOT_REGISTERED;

	tei_mutex_lock(&dp->admin);
	rail_sched_enter(dp);
	mr = rail_mr_find(dp, addr, 1);
	if (mr && rail < rail_count(dp) && mr->part[rail].n) {
		part = &mr->part[rail];
		piece = &part->piece[(uint64_t)((const char *)addr - mr->addr)
				     >> part->shift];
		if (piece->key_len >= sizeof(*key)) {
			memcpy(key, piece->key, sizeof(*key));
			ret = 0;
		}
	}
	rail_sched_leave(dp);
	tei_mutex_unlock(&dp->admin);
	return ret;
}

uint64_t tei_rail_mr_piece(struct tei_rail_dp *dp, const void *addr)
{
	struct tei_rail_mr *mr;
	uint64_t off, end = 0;
	uint8_t shift;

	rail_sched_enter(dp);
	mr = rail_mr_find(dp, addr, 1);
	if (mr) {
		shift = rail_mr_shift(dp, mr);
		off = (uint64_t)((const char *)addr - mr->addr);
		end = ((off >> shift) + 1) << shift;
		end = (end < mr->len ? end : mr->len) - off;
	}
	rail_sched_leave(dp);
	return end;
}

/* --- holding regions ----------------------------------------------------- */

/* Returns how many adjacent regions, from index i on, together contain all
 * bytes of the range of "len" bytes at address "a". Returns 0 if they do not
 * contain all bytes, or if "write" is true and one of them is read-only. */
static uint32_t mr_covering(const struct tei_rail_dp *dp, uint32_t i,
			    const char *a, uint64_t len, bool write)
{
	const struct tei_rail_mr *mr;
	uint64_t part;
	uint32_t n;

	for (n = 0; len; n++) {
		if (i + n >= dp->memory.mrs.n)
			return 0;
		mr = rail_mr_at(dp, i + n);
		if (mr->state != RAIL_MR_READY || a < mr->addr ||
		    (write && mr->read_only))
			return 0;
		part = mr->len - (uint64_t)(a - mr->addr);
		part = part < len ? part : len;
		a += part;
		len -= part;
	}
	return n;
}

int tei_rail_mr_hold(struct tei_rail_dp *dp, const void *addr, uint64_t len,
		     bool write)
{
	uint32_t i, n, k;

	rail_sched_enter(dp);
	i = tei_range_index(&dp->memory.mrs, (uintptr_t)addr);
	n = mr_covering(dp, i, addr, len, write);
	for (k = 0; k < n; k++)
		rail_mr_at(dp, i + k)->tasks++;
	rail_sched_leave(dp);
	return n ? 0 : TEI_ERR_NOT_REGISTERED;
}

void tei_rail_mr_let_go(struct tei_rail_dp *dp, const void *addr, uint64_t len)
{
	const struct tei_range_table *t = &dp->memory.mrs;
	uint64_t base = (uintptr_t)addr;
	struct tei_rail_mr *mr;
	bool signal = false;
	uint32_t i;

	/* The loop finds exactly the regions that tei_rail_mr_hold counted: a
	 * held region stays in the table, and no region can be added between
	 * two adjacent ones. */
	rail_sched_enter(dp);
	for (i = tei_range_index(t, base); tei_range_below(t, i, base + len);
	     i++) {
		mr = rail_mr_at(dp, i);
		signal |= !--mr->tasks && mr->state == RAIL_MR_REVOKING;
	}
	rail_sched_leave(dp);
	if (signal)
		rail_progress_signal(dp);
}
