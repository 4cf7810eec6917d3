/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered memory. A registration does three things for a region: it
 * registers the region on the rails, registers it for local copies, and lists
 * it in the descriptor. If one of them fails, the registration undoes the
 * others and fails.
 */
#include "api/engine_memory.h"
#include "api/engine_int.h"
#include "api/engine_ipc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/local/tei_local_gpu.h"
#include "topo/tei_topo.h"
#include "util/range.h"
#include "util/text.h"

#define MEMORY_ACCESS (TE_REG_PRIVATE | TE_REG_READ_ONLY)
/* size of struct te_registration in versions without the member label */
#define MEMORY_ELEM_MIN offsetof(struct te_registration, label)

/*
 * Finds the location of host memory. If "said", the location that the caller
 * states, is "*", looks up the NUMA nodes of the memory; otherwise uses "said".
 * "where" is its parsed form. The result is "segments:…" if the memory has
 * several locations. The caller frees *out.
 */
static int memory_locate(const void *addr, size_t len, const char *said,
			 const struct tei_topo_where *where, char **out,
			 struct tei_err *err)
{
	char found[TEI_TOPO_NAME];
	int ret;

	if (where->kind == TEI_TOPO_WHERE_ANY) {
		ret = tei_topo_locate(addr, len, found);
		if (ret)
			return ret;
		said = found;
	}
	*out = strdup(said);
	return *out ? 0 : tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				       "no memory for a region");
}

/* Sets the location of a region from "said", the location that the caller
 * states. Sets r->parts only if the region has several locations. */
static int memory_place(struct engine *e, struct engine_region *r,
			const char *said, struct tei_err *err)
	TEI_REQUIRES(e->control)
{
	struct tei_topo_where where;
	int ret, device;
	uint64_t end;

	ret = tei_topo_where_parse(said, &where, err);
	if (!ret)
		ret = engine_gpu_where(e, r->addr, r->length, &where, &device,
				       err);
	if (ret)
		return ret;
	if (device >= 0) {
		r->gpu = true;
		r->device = device;
		snprintf(r->location, sizeof(r->location), "cuda:%d", device);
		return 0;
	}
	ret = memory_locate(r->addr, r->length, said, &where, &r->parts, err);
	if (ret)
		return ret;
	tei_topo_where_parse(r->parts, &where, NULL);
	tei_topo_where_part(&where, r->length, 0, r->location, &end);
	if (where.kind != TEI_TOPO_WHERE_PARTS) {
		free(r->parts);
		r->parts = NULL;
	}
	return 0;
}

/* --- the table, with an index by address ---------------------------------- */

static uint32_t *memory_bucket(const struct engine *e, const void *addr)
	TEI_REQUIRES(e->control)
{
	uint64_t h = (uint64_t)(uintptr_t)addr * UINT64_C(0x9e3779b97f4a7c15);

	return &e->memory.buckets[(h >> 32) % e->memory.cap];
}

static void memory_link(struct engine *e, uint32_t i) TEI_REQUIRES(e->control)
{
	uint32_t *b = memory_bucket(e, e->memory.regions[i].addr);

	e->memory.regions[i].bucket_next = *b;
	*b = i + 1;
}

static void memory_unlink(struct engine *e, uint32_t i)
	TEI_REQUIRES(e->control)
{
	uint32_t *b = memory_bucket(e, e->memory.regions[i].addr);

	while (*b != i + 1)
		b = &e->memory.regions[*b - 1].bucket_next;
	*b = e->memory.regions[i].bucket_next;
}

static int memory_grow(struct engine *e) TEI_REQUIRES(e->control)
{
	uint32_t cap = e->memory.cap * 2 + 16, *buckets, i;
	struct engine_region *grown;

	buckets = calloc(cap, sizeof(*buckets));
	if (!buckets)
		return TEI_ERR_MEMORY;
	grown = realloc(e->memory.regions, cap * sizeof(*grown));
	if (!grown) {
		free(buckets);
		return TEI_ERR_MEMORY;
	}
	free(e->memory.buckets);
	e->memory.buckets = buckets;
	e->memory.regions = grown;
	e->memory.cap = cap;
	for (i = 0; i < e->memory.n; i++)
		memory_link(e, i);
	return 0;
}

static int memory_note(struct engine *e, const struct engine_region *r)
	TEI_REQUIRES(e->control)
{
	int ret = 0;

	tei_mutex_lock(&e->listing.lock);
	if (e->memory.n == e->memory.cap)
		ret = memory_grow(e);
	if (!ret)
		ret = tei_range_insert(&e->memory.ranges, r->range);
	if (!ret) {
		e->memory.regions[e->memory.n] = *r;
		e->memory.regions[e->memory.n].id = ++e->memory.last_id;
		memory_link(e, e->memory.n++);
		e->listing.version += r->listed;
	}
	tei_mutex_unlock(&e->listing.lock);
	return ret;
}

struct engine_region *engine_memory_find(struct engine *e, const void *addr)
{
	uint32_t i = e->memory.n ? *memory_bucket(e, addr) : 0;

	while (i && e->memory.regions[i - 1].addr != addr)
		i = e->memory.regions[i - 1].bucket_next;
	return i ? &e->memory.regions[i - 1] : NULL;
}

/* Removes the region from the table, and thereby from the own descriptor.
 * Returns its contents. */
static struct engine_region memory_take(struct engine *e,
					struct engine_region *r)
	TEI_REQUIRES(e->control)
{
	uint32_t i = (uint32_t)(r - e->memory.regions), last = e->memory.n - 1;
	struct engine_region taken = *r;

	tei_range_remove(&e->memory.ranges, r->range);
	tei_mutex_lock(&e->listing.lock);
	memory_unlink(e, i);
	if (i != last) {
		memory_unlink(e, last);
		e->memory.regions[i] = e->memory.regions[last];
		memory_link(e, i);
	}
	e->memory.n = last;
	e->listing.version += taken.listed;
	tei_mutex_unlock(&e->listing.lock);
	return taken;
}

/* Adds the last n regions of the table to the own descriptor, if they are
 * remotely accessible. */
static int memory_list(struct engine *e, size_t n, struct tei_err *err)
	TEI_REQUIRES(e->control)
{
	struct engine_region *r = &e->memory.regions[e->memory.n - n];
	size_t i;
	int ret = 0;

	for (i = 0; i < n && !ret; i++)
		if (r[i].remote)
			ret = engine_desc_collect(e, &e->listing.rails, &r[i],
						  &r[i].pieces, err);
	if (ret)
		return ret;
	tei_mutex_lock(&e->listing.lock);
	for (i = 0; i < n; i++)
		r[i].listed = r[i].remote;
	e->listing.version++;
	tei_mutex_unlock(&e->listing.lock);
	return 0;
}

static void memory_free_region(struct engine_region *r)
{
	free(r->parts);
	free(r->pieces.word);
	free(r->label);
	free(r->range);
}

/* Releases the bounce buffers and remote bounce slots of GPU memory that no
 * task and no rail uses any longer. */
static void memory_drop_gpu(struct engine *e, const struct engine_region *r)
{
	if (r->staged)
		tei_staging_mem_drop(e->staging, r->place);
	if (r->granted) {
		tei_staging_grant_remove(e->staging, r->grant);
		tei_staging_grant_drop(e->staging, r->grant);
	}
}

/* Registers GPU memory on the rails, if all of them accept it. Logs how the
 * memory will be transferred. */
static void memory_add_direct(struct engine *e, struct engine_region *r,
			      bool remote) TEI_REQUIRES(e->control)
{
	struct tei_err err;

	r->direct = !engine_gpu_direct_add(e, r, remote, &err);
	/* r->remote is set even if no rail is open now, because a rail that
	 * accepts the memory may be opened later */
	r->remote |= remote && r->direct;
	if (r->direct && tei_rail_mr_direct(e->dp, r->addr, r->length)) {
		TEI_INFO("engine", "%p, %zu bytes of %s: rails access the memory directly",
			 r->addr, r->length, r->location);
		return;
	}
	TEI_INFO("engine", "%p, %zu bytes of %s: transfers over rails go through pinned host memory: %s",
		 r->addr, r->length, r->location,
		 r->direct ? "no rail is open" : err.text);
}

/* Registers GPU memory. Sets up bounce buffers even if the rails accept the
 * memory, because a rail that is opened later, or a file, may not. */
static int memory_add_gpu(struct engine *e, struct engine_region *r)
	TEI_REQUIRES(e->control)
{
	bool remote = r->remote;
	struct tei_err err;
	int ret;

	if (remote) {
		r->granted = !tei_staging_grant_add(e->staging, r->addr,
						    r->length, &r->grant, &err);
		if (!r->granted)
			TEI_WARN("engine", "%p, %zu bytes of %s: other processes cannot access the memory through rails that do not accept it, because there are no remote bounce slots: %s",
				 r->addr, r->length, r->location, err.text);
		r->remote = r->granted;
	}
	r->staged = !tei_staging_mem_add(e->staging, r->addr, r->length,
					 &r->place, &err);
	if (!r->staged)
		TEI_WARN("engine", "%p, %zu bytes of %s: requests from this memory to other segments fail, because there are no bounce buffers: %s",
			 r->addr, r->length, r->location, err.text);
	memory_add_direct(e, r, remote);
	if (remote)
		engine_ipc_export(e, r);
	r->remote |= r->exported;
	engine_files_gpu_add(e, r);
	ret = memory_note(e, r);
	if (!ret)
		return 0;
	/* a process that knows the memory from an earlier registration may be
	 * copying already */
	if (r->exported)
		tei_local_gpu_remove(e->local, r->addr,
				     tei_now_ns() +
					     e->settings.failure.slice_timeout_s *
						     TEI_NS_PER_SEC);
	engine_files_mem_remove(e, r->addr, tei_now_ns());
	if (r->direct)
		tei_rail_mr_dereg(e->dp, r->addr, 0, &err);
	memory_drop_gpu(e, r);
	return ret;
}

static int memory_refuse(const struct engine_region *r,
			 enum tei_topo_access access, uint64_t base,
			 uint64_t end, struct tei_err *err)
{
	if (access == TEI_TOPO_UNMAPPED)
		return tei_err_fail(err, TEI_ERR_INVALID, "engine",
				    "map the memory before it is registered; memory of a GPU needs the CUDA driver in this process",
				    "%p, %zu bytes: not mapped at %#llx",
				    r->addr, r->length,
				    (unsigned long long)base);
	return tei_err_fail(err, TEI_ERR_INVALID, "engine",
			    "register the memory after mprotect has made it readable",
			    "%p, %zu bytes: %#llx to %#llx is mapped with PROT_NONE",
			    r->addr, r->length, (unsigned long long)base,
			    (unsigned long long)end);
}

/*
 * Sets *access to the kinds of access to host memory that peers are allowed. If
 * this process cannot write to the memory, peers may only read it. If this
 * process cannot read it either, the registration is refused: an access by a
 * peer would kill the process, or would break a connection that is also used
 * for other memory.
 */
static int memory_access(const struct engine_region *r,
			 const struct tei_topo_maps *maps, uint32_t *access,
			 struct tei_err *err)
{
	enum tei_topo_access can;
	uint64_t base, end;

	can = tei_topo_maps_check(maps, r->addr, r->length, &base, &end);
	if (can == TEI_TOPO_UNMAPPED || can == TEI_TOPO_CLOSED)
		return memory_refuse(r, can, base, end, err);
	*access = (r->remote ? TEI_RAIL_REMOTE : 0) |
		  (r->read_only ? TEI_RAIL_READ_ONLY : 0);
	if (can != TEI_TOPO_READ_ONLY)
		return 0;
	if (r->remote && !r->read_only)
		TEI_INFO("engine", "%p, %zu bytes: registered for reading only: %#llx to %#llx is mapped without PROT_WRITE",
			 r->addr, r->length, (unsigned long long)base,
			 (unsigned long long)end);
	*access |= TEI_RAIL_READ_ONLY;
	return 0;
}

/* Reads the list of the process's mappings below the address "until". Returns
 * NULL if /proc is not readable. The caller frees the result. */
static struct tei_topo_maps *memory_maps(uint64_t until)
{
	struct tei_topo_maps *maps;

	return tei_topo_maps_read(until, &maps) ? NULL : maps;
}

/* Registers a region for copies inside this host. */
static int memory_add_local(struct engine *e, const struct engine_region *r)
{
	return tei_local_region_add(e->local, r->addr, r->length,
				    (r->remote ? TEI_LOCAL_REMOTE : 0) |
				    (r->read_only ? TEI_LOCAL_READ_ONLY : 0));
}

/*
 * Registers a range inside the registered buffer "outer" as a nested
 * registration. Transfers of the range use the registration of the buffer, so
 * the range must have the access of the buffer.
 */
static int memory_add_nested(struct engine *e, struct engine_region *outer,
			     const struct te_registration *what,
			     const struct tei_topo_maps *maps,
			     struct tei_err *err) TEI_REQUIRES(e->control)
{
	const struct engine_region range = { .addr = what->addr,
					     .length = what->length };
	struct tei_topo_where where;
	uint32_t access;
	int ret, device;

	if ((what->flags ^ outer->flags) & MEMORY_ACCESS)
		return tei_err_fail(
			err, TEI_ERR_INVALID, "engine",
			"set TE_REG_PRIVATE and TE_REG_READ_ONLY as in the "
			"registration of the buffer that contains the range",
			"%p, %zu bytes: the access flags differ from those of the "
			"registered buffer %p, %zu bytes",
			range.addr, range.length, outer->addr, outer->length);
	ret = tei_topo_where_parse(what->location, &where, err);
	if (!ret)
		ret = engine_gpu_where(e, what->addr, what->length, &where,
				       &device, err);
	if (!ret && !outer->gpu)
		ret = memory_access(&range, maps, &access, err);
	return ret ? ret : engine_nested_add(e, outer, what, err);
}

/* Fills in the members of a region that is to be registered. The caller frees
 * them with memory_free_region, even after an error. */
static int memory_init(struct engine *e, const struct te_registration *what,
		       struct engine_region *r, struct tei_err *err)
	TEI_REQUIRES(e->control)
{
	r->addr = what->addr;
	r->length = what->length;
	r->flags = what->flags;
	r->remote = !(what->flags & TE_REG_PRIVATE);
	r->read_only = what->flags & TE_REG_READ_ONLY;
	r->range = malloc(sizeof(*r->range));
	if (what->label && *what->label)
		r->label = strdup(what->label);
	if (!r->range || (!r->label && what->label && *what->label))
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory for a region");
	r->range->base = (uintptr_t)r->addr;
	r->range->end = r->range->base + r->length;
	return memory_place(e, r, what->location, err);
}

/* Registers a buffer without publishing it. After an error the buffer is not
 * registered. */
static int memory_add(struct engine *e, const struct te_registration *what,
		      const struct tei_topo_maps *maps, uint64_t call,
		      struct tei_err *err) TEI_REQUIRES(e->control)
{
	struct engine_region r = { .call = call }, *outer = NULL;
	size_t length = what->length;
	void *addr = what->addr;
	struct tei_rail_mr *mr;
	uint32_t access = 0;
	int ret;

	if (!addr || !length || (uintptr_t)addr + length < (uintptr_t)addr)
		return tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
				    "%p, %zu bytes: address NULL, length 0, or the range overflows 64 bits",
				    addr, length);
	if (what->flags & TE_REG_NESTED)
		outer = engine_nested_outer(e, addr, length, call);
	if (outer)
		return memory_add_nested(e, outer, what, maps, err);
	ret = memory_init(e, what, &r, err);
	if (!ret && r.gpu && r.read_only)
		ret = tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
				   "%p, %zu bytes: GPU memory cannot be "
				   "registered for reading only",
				   addr, length);
	if (ret)
		goto err_region;
	/* GPU memory is not checked, because it is not mapped in this
	 * process */
	if (!r.gpu)
		ret = memory_access(&r, maps, &access, err);
	if (!ret)
		ret = engine_gpu_mem_add(e, addr, length, err);
	if (ret)
		goto err_region;
	if (r.gpu) {
		ret = memory_add_gpu(e, &r);
		if (ret)
			goto err_gpu;
		return 0;
	}
	r.read_only = access & TEI_RAIL_READ_ONLY;
	ret = tei_rail_mr_reg(e->dp, addr, length,
			      engine_region_location(&r), access, err, &mr);
	if (ret)
		goto err_gpu;
	ret = memory_add_local(e, &r);
	if (ret)
		goto err_rail;
	ret = engine_files_mem_add(e, addr, length,
				   engine_region_location(&r));
	if (ret)
		goto err_local;
	ret = memory_note(e, &r);
	if (ret)
		goto err_files;
	return 0;
err_files:
	engine_files_mem_remove(e, addr, tei_now_ns());
err_local:
	tei_local_region_remove(e->local, addr, length, tei_now_ns());
err_rail:
	tei_rail_mr_dereg(e->dp, addr, 0, NULL);
err_gpu:
	engine_gpu_mem_remove(e, addr, tei_now_ns());
err_region:
	memory_free_region(&r);
	return ret;
}

/*
 * Restores the registration of GPU memory that could not be unregistered.
 * "direct" is true if the memory must be registered on the rails again. If
 * cuFile has already released the memory, file transfers use bounce buffers
 * from now on.
 */
static void memory_again_gpu(struct engine *e, struct engine_region *r,
			     bool direct)
{
	struct tei_err why;

	if (direct) {
		r->direct = !engine_gpu_direct_add(e, r, r->remote, &why);
		if (!r->direct)
			TEI_WARN("engine", "%p, %zu bytes of %s: no longer registered on the rails: %s",
				 r->addr, r->length, r->location, why.text);
	}
	if (r->granted)
		tei_staging_grant_restore(e->staging, r->grant);
	if (r->exported)
		engine_ipc_export(e, r);
	r->remote = r->remote && (r->direct || r->granted || r->exported);
}

static int memory_in_file(const struct engine_region *r, int code,
			  struct tei_err *err)
{
	return tei_err_fail(err, code, "engine", NULL,
			    "%p: a file request still uses the memory",
			    r->addr);
}

static int memory_in_copy(const struct engine_region *r, int code,
			  struct tei_err *err)
{
	return tei_err_fail(err, code, "engine", NULL,
			    "%p: a copy from or to GPU memory still uses the memory",
			    r->addr);
}

/* Unregisters GPU memory that is no longer published, and frees the region.
 * After an error the region is not freed, and *r describes what is still
 * registered. */
static int memory_remove_gpu(struct engine *e, struct engine_region *r,
			     uint64_t wait, struct tei_err *err)
{
	bool direct = r->direct;
	uint64_t until;
	int ret = 0;

	if (r->exported)
		ret = tei_local_gpu_remove(e->local, r->addr,
					   tei_now_ns() + wait);
	if (ret)
		return tei_err_fail(err, ret, "engine", NULL,
				    "%p: another process of this host still copies from or to the GPU memory",
				    r->addr);
	if (r->granted)
		tei_staging_grant_remove(e->staging, r->grant);
	if (direct) {
		ret = tei_rail_mr_dereg(e->dp, r->addr, wait, err);
		if (ret) {
			memory_again_gpu(e, r, false);
			return ret;
		}
		r->direct = false;
	}
	/* the wait gets a new time limit, because the rails may have waited for
	 * the whole limit for a peer that does not answer */
	until = tei_now_ns() + wait;
	ret = engine_files_mem_remove(e, r->addr, until);
	if (ret) {
		memory_again_gpu(e, r, direct);
		return memory_in_file(r, ret, err);
	}
	ret = engine_gpu_mem_remove(e, r->addr, until);
	if (ret) {
		memory_again_gpu(e, r, direct);
		return memory_in_copy(r, ret, err);
	}
	memory_drop_gpu(e, r);
	memory_free_region(r);
	return 0;
}

/*
 * Unregisters host memory that is no longer published and is already
 * unregistered for copies inside this host. Then frees the region. After an
 * error the memory is registered again as before.
 */
static int memory_remove_rest(struct engine *e, struct engine_region r,
			      uint64_t wait, struct tei_err *err)
{
	struct tei_err none;
	int ret;

	ret = engine_gpu_mem_remove(e, r.addr, tei_now_ns() + wait);
	if (ret) {
		memory_add_local(e, &r);
		return memory_in_copy(&r, ret, err);
	}
	ret = engine_files_mem_remove(e, r.addr, tei_now_ns() + wait);
	if (ret) {
		engine_gpu_mem_add(e, r.addr, r.length, &none);
		memory_add_local(e, &r);
		return memory_in_file(&r, ret, err);
	}
	ret = tei_rail_mr_dereg(e->dp, r.addr, wait, err);
	if (!ret) {
		memory_free_region(&r);
		return 0;
	}
	engine_gpu_mem_add(e, r.addr, r.length, &none);
	memory_add_local(e, &r);
	engine_files_mem_add(e, r.addr, r.length, engine_region_location(&r));
	return ret;
}

/* Moves the regions of GPU memory to the end of the array, because GPU memory
 * is not registered for copies inside this host. Returns the number of regions
 * of host memory. */
static size_t memory_part(struct engine_region *r, size_t n)
{
	struct engine_region other;
	size_t i, host = 0;

	for (i = 0; i < n; i++) {
		if (r[i].gpu)
			continue;
		other = r[host];
		r[host++] = r[i];
		r[i] = other;
	}
	return host;
}

/* Unregisters n regions. Returns 0 or the first error. Regions that could not
 * be unregistered are moved to the start of r, and *left is set to their
 * number. */
static int memory_remove(struct engine *e, struct engine_region *r, size_t n,
			 size_t *left)
{
	uint64_t wait = e->settings.failure.slice_timeout_s * TEI_NS_PER_SEC;
	struct tei_local_range *ranges = calloc(n ? n : 1, sizeof(*ranges));
	struct tei_err err;
	size_t i, k = 0, host;
	int ret, first = 0;

	*left = n;
	if (!ranges)
		return tei_err_fail(&err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory to unregister %zu region%s", n,
				    tei_plural(n));
	host = memory_part(r, n);
	for (i = 0; i < host; i++) {
		ranges[i].base = r[i].addr;
		ranges[i].len = r[i].length;
	}
	if (host)
		tei_local_regions_remove(e->local, ranges, host,
					 tei_now_ns() + wait);
	for (i = 0; i < n; i++) {
		ret = ranges[i].code; /* 0 if the region is GPU memory */
		if (ret)
			tei_err_fail(&err, ret, "engine", NULL,
				     "%p: a copy inside this host still uses the memory",
				     r[i].addr);
		else
			ret = r[i].gpu ?
				      memory_remove_gpu(e, &r[i], wait, &err) :
				      memory_remove_rest(e, r[i], wait, &err);
		first = first ? first : ret;
		if (ret)
			r[k++] = r[i];
	}
	free(ranges);
	*left = k;
	return first;
}

void engine_memory_free_all(struct engine *e)
{
	uint32_t i;

	for (i = 0; i < e->memory.n; i++)
		memory_free_region(&e->memory.regions[i]);
	engine_nested_free_all(e);
	tei_range_fini(&e->memory.ranges);
	free(e->memory.regions);
	free(e->memory.buckets);
}

/*
 * Unregisters n regions that a failed registration has removed from the table.
 * If a region is already in use, puts it back into the table without publishing
 * it, so that the application can unregister it later.
 */
static void memory_rollback(struct engine *e, struct engine_region *r, size_t n)
{
	size_t i, left;

	memory_remove(e, r, n, &left);
	tei_mutex_lock(&e->control);
	for (i = 0; i < left; i++) {
		TEI_WARN("engine", "%p, %zu bytes: still registered after the failed call, because it is in use; unregister it later",
			 r[i].addr, r[i].length);
		r[i].remote = r[i].listed = false;
		r[i].call = 0;
		memory_note(e, &r[i]);
	}
	tei_mutex_unlock(&e->control);
}

/*
 * A registration made by a call that may still fail. Its region is found by the
 * id, because other calls may have changed the table meanwhile.
 */
struct memory_added {
	const struct te_registration *what;
	uint64_t id; /* id of the region; 0: a nested registration */
};

/* Returns the region of a registration. Returns NULL if the registration is
 * nested, or if the region has been unregistered meanwhile. */
static struct engine_region *memory_added_region(struct engine *e,
						 const struct memory_added *a)
	TEI_REQUIRES(e->control)
{
	struct engine_region *r =
		a->id ? engine_memory_find(e, a->what->addr) : NULL;

	return r && r->id == a->id ? r : NULL;
}

/* Ends the registration of n buffers: from now on other calls may register
 * nested ranges inside them. */
static void memory_settle(struct engine *e, const struct memory_added *added,
			  size_t n)
{
	struct engine_region *r;
	size_t i;

	tei_mutex_lock(&e->control);
	for (i = 0; i < n; i++) {
		r = memory_added_region(e, &added[i]);
		if (r)
			r->call = 0;
	}
	tei_mutex_unlock(&e->control);
}

/*
 * Undoes the n registrations of a failed call, the last one first, because
 * nested registrations come after the regions around them. "gone" is an array
 * for n regions. The caller has allocated it before the registration, because
 * this function must not fail.
 */
static void memory_undo(struct engine *e, const struct memory_added *added,
			size_t n, struct engine_region *gone)
{
	struct engine_region *r;
	bool published = false;
	size_t k = 0;

	tei_mutex_lock(&e->control);
	while (n--) {
		if (!added[n].id)
			engine_nested_drop(e, added[n].what, &published);
		r = memory_added_region(e, &added[n]);
		if (r)
			gone[k++] = memory_take(e, r);
	}
	tei_mutex_unlock(&e->control);
	memory_rollback(e, gone, k);
}

/* Puts regions that could not be unregistered, because they are in use, back
 * into the table and publishes them again. Their memory keys may have
 * changed. */
static void memory_back(struct engine *e, struct engine_region *r, size_t n)
{
	struct engine_pieces p;
	struct tei_err err;
	bool back = false;
	size_t i;

	tei_mutex_lock(&e->control);
	for (i = 0; i < n; i++) {
		if (r[i].remote &&
		    !engine_desc_collect(e, &e->listing.rails, &r[i], &p,
					 &err)) {
			free(r[i].pieces.word);
			r[i].pieces = p;
		}
		back |= r[i].listed;
		r[i].call = 0;
		memory_note(e, &r[i]);
	}
	tei_mutex_unlock(&e->control);
	if (back)
		engine_publish_regions(e, &err);
}

/* Drops the nested registrations that the list names, and removes their entries
 * from the list. Returns the number of entries that are left. Sets *published
 * to true if the content of the descriptor has changed. */
static size_t memory_drop_nested(struct engine *e, struct te_registration *list,
				 size_t n, bool *published)
	TEI_REQUIRES(e->control)
{
	size_t i, k = 0;

	for (i = 0; i < n; i++)
		if (!(list[i].flags & TE_REG_NESTED) ||
		    !engine_nested_drop(e, &list[i], published))
			list[k++] = list[i];
	return k;
}

static int memory_absent(struct engine *e, const struct te_registration *what)
	TEI_REQUIRES(e->control)
{
	struct tei_err err;

	if (what->length)
		return tei_err_fail(&err, TEI_ERR_NOT_REGISTERED, "engine",
				    NULL,
				    "%p, %zu bytes: no registration has this "
				    "range and the label '%.40s'",
				    what->addr, (size_t)what->length,
				    what->label ? what->label : "");
	return tei_err_fail(
		&err, TEI_ERR_NOT_REGISTERED, "engine",
		tei_range_find(&e->memory.ranges, (uintptr_t)what->addr, 0)
			? "the address is inside a registered buffer; te_unregister "
			  "drops nested registrations"
			: NULL,
		"%p is not the start of registered memory", what->addr);
}

/* Finds the region that an entry of a list names. If the length in the entry is
 * 0, the address alone decides; otherwise the length and the label must be
 * equal, too. */
static int memory_pick(struct engine *e, const struct te_registration *what,
		       struct engine_region **out) TEI_REQUIRES(e->control)
{
	struct engine_region *r =
		what->addr ? engine_memory_find(e, what->addr) : NULL;
	unsigned long long refs;
	struct tei_err err;

	if (!r ||
	    (what->length && (r->length != what->length ||
			      !engine_label_equal(r->label, what->label))))
		return memory_absent(e, what);
	if (r->nested) {
		refs = engine_nested_count(r);
		return tei_err_fail(&err, TEI_ERR_BUSY, "engine",
				    "drop the nested registrations with te_unregister first",
				    "%p, %zu bytes: %llu nested registration%s "
				    "of this buffer exist%s",
				    r->addr, r->length, refs, tei_plural(refs),
				    refs == 1 ? "s" : "");
	}
	*out = r;
	return 0;
}

/*
 * Ends the registrations that the list names. A nested registration only loses
 * one reference. The regions of the other entries are removed from the
 * descriptor; then the function waits, without the control lock, for the tasks
 * and peers that use them. The list is overwritten.
 */
static int memory_drop(struct engine *e, struct te_registration *list, size_t n)
{
	struct engine_region *gone, *r = NULL;
	bool published = false;
	struct tei_err err;
	int ret = 0, first = 0;
	size_t i, k = 0;

	gone = calloc(n ? n : 1, sizeof(*gone));
	if (!gone)
		return TEI_ERR_MEMORY;
	tei_mutex_lock(&e->control);
	n = memory_drop_nested(e, list, n, &published);
	for (i = n; i-- > 0;) {
		ret = memory_pick(e, &list[i], &r);
		if (ret) {
			first = ret;
			continue;
		}
		published |= r->listed;
		gone[k++] = memory_take(e, r);
	}
	tei_mutex_unlock(&e->control);
	ret = published ? engine_publish_regions(e, &err) : 0;
	first = first ? first : ret;
	ret = memory_remove(e, gone, k, &k);
	first = first ? first : ret;
	if (k)
		memory_back(e, gone, k);
	free(gone);
	return first;
}

int unregisterLocalMemory(transfer_engine_t engine, void *addr)
{
	struct engine *e = engine_from(engine);
	struct te_registration what = { .addr = addr };

	if (!e)
		return TEI_ERR_INVALID;
	return memory_drop(e, &what, 1);
}

/*
 * Compares two entries for sorting. Buffers are ordered by length, so that an
 * error of a small buffer is found before large buffers are registered. Entries
 * with TE_REG_NESTED come after the others, the longest one first, because a
 * buffer must be registered before the ranges inside it.
 */
static int memory_order(const void *a, const void *b)
{
	const struct te_registration *x = a, *y = b;
	bool nested = x->flags & TE_REG_NESTED;

	if ((x->flags ^ y->flags) & TE_REG_NESTED)
		return nested ? 1 : -1;
	if (x->length != y->length)
		return (x->length < y->length) != nested ? -1 : 1;
	return (uintptr_t)x->addr < (uintptr_t)y->addr ? -1
						       : x->addr != y->addr;
}

/* Returns the highest end address of the buffers. */
static uint64_t memory_end(const struct te_registration *list, size_t n)
{
	uint64_t end = 0;
	size_t i;

	for (i = 0; i < n; i++)
		if ((uintptr_t)list[i].addr + list[i].length > end)
			end = (uintptr_t)list[i].addr + list[i].length;
	return end;
}

/*
 * Registers the buffers of the list in order and stops at the first error. Sets
 * *done to the number of registered buffers, and *listed to the number of those
 * that change the descriptor.
 */
static int memory_add_all(struct engine *e, const struct te_registration *list,
			  size_t n, struct memory_added *added, size_t *done,
			  size_t *listed)
{
	struct tei_topo_maps *maps = memory_maps(memory_end(list, n));
	uint32_t before;
	uint64_t call, last;
	struct tei_err err;
	size_t i, shared = 0;
	int ret = 0;

	tei_mutex_lock(&e->control);
	before = e->memory.n;
	call = ++e->memory.calls;
	tei_local_regions_adding(e->local, true);
	for (i = 0; i < n; i++) {
		last = e->memory.last_id;
		ret = memory_add(e, &list[i], maps, call, &err);
		if (ret)
			break;
		added[i].what = &list[i];
		added[i].id = e->memory.last_id == last ? 0 : last + 1;
		shared += !(list[i].flags & TE_REG_PRIVATE) &&
			  (added[i].id || list[i].label);
	}
	tei_local_regions_adding(e->local, false);
	if (!ret && shared)
		ret = memory_list(e, e->memory.n - before, &err);
	tei_mutex_unlock(&e->control);
	tei_topo_maps_free(maps);
	*done = i;
	*listed = shared;
	return ret;
}

/* Sorts the list and registers all its buffers. After an error, no buffer stays
 * registered. */
static int memory_add_list(struct engine *e, struct te_registration *list,
			   size_t n)
{
	struct memory_added *added = calloc(n ? n : 1, sizeof(*added));
	struct engine_region *gone = calloc(n ? n : 1, sizeof(*gone));
	size_t done = 0, listed = 0;
	struct tei_err err;
	int ret;

	if (!list || !added || !gone) {
		ret = tei_err_fail(&err, TEI_ERR_MEMORY, "engine", NULL,
				   "no memory to register %zu region%s", n,
				   tei_plural(n));
		goto out;
	}
	qsort(list, n, sizeof(*list), memory_order);
	ret = memory_add_all(e, list, n, added, &done, &listed);
	if (!ret && listed)
		ret = engine_publish_regions(e, &err);
	if (ret && done) {
		memory_undo(e, added, done, gone);
		/* The store may list the regions that were registered and
		 * removed again. A worker thread publishes the descriptor
		 * without them. */
		engine_publish_at(e, 0);
	} else {
		memory_settle(e, added, done);
	}
out:
	free(added);
	free(gone);
	return ret;
}

int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length,
			const char *location, int remote_accessible)
{
	struct engine *e = engine_from(engine);
	struct te_registration what = {
		.addr = addr,
		.length = length,
		.location = location,
		.flags = remote_accessible ? 0 : TE_REG_PRIVATE,
	};

	return e ? memory_add_list(e, &what, 1) : TEI_ERR_INVALID;
}

int registerLocalMemoryBatch(transfer_engine_t engine,
			     buffer_entry_t *buffer_list, size_t buffer_len,
			     const char *location)
{
	struct engine *e = engine_from(engine);
	struct te_registration *list;
	size_t i;
	int ret;

	if (!e || (buffer_len && !buffer_list))
		return engine_bad(e, __func__, NULL);
	list = calloc(buffer_len ? buffer_len : 1, sizeof(*list));
	for (i = 0; list && i < buffer_len; i++) {
		list[i].addr = buffer_list[i].addr;
		list[i].length = buffer_list[i].length;
		list[i].location = location;
	}
	ret = memory_add_list(e, list, buffer_len);
	free(list);
	return ret;
}

/* Reads element i of the caller's array. Returns false if the element has
 * unknown flags, or if a member that this version does not know is not 0. */
static bool memory_read(const void *entries, size_t elem_size, size_t i,
			struct te_registration *out)
{
	const unsigned char *p = (const unsigned char *)entries + i * elem_size;
	size_t k;

	memset(out, 0, sizeof(*out));
	memcpy(out, p, elem_size < sizeof(*out) ? elem_size : sizeof(*out));
	for (k = sizeof(*out); k < elem_size; k++)
		if (p[k])
			return false;
	return !(out->flags & ~(uint64_t)(MEMORY_ACCESS | TE_REG_NESTED));
}

/* Checks the arguments of a call and reads all elements. If e is NULL, refuses
 * the call. The caller frees *out. */
static int memory_read_all(struct engine *e, const char *call,
			   const void *entries, size_t elem_size, size_t n,
			   struct te_registration **out)
{
	struct te_registration *list;
	struct tei_err err;
	size_t i;
	int ret;

	if (!e || (n && !entries) || elem_size < MEMORY_ELEM_MIN)
		return engine_bad(e, call, NULL);
	list = calloc(n ? n : 1, sizeof(*list));
	if (!list)
		return tei_err_fail(&err, TEI_ERR_MEMORY, "engine", NULL,
				    "%s: no memory for %zu entr%s", call, n,
				    n == 1 ? "y" : "ies");
	for (i = 0; i < n; i++) {
		ret = memory_read(entries, elem_size, i, &list[i])
			      ? engine_label_check(call, i, list[i].label)
			      : engine_bad(e, call,
					   "unknown flags, or fields that this "
					   "version does not know");
		if (ret) {
			free(list);
			return ret;
		}
		if (list[i].label && !*list[i].label)
			list[i].label = NULL;
	}
	*out = list;
	return 0;
}

int te_register(transfer_engine_t engine, const struct te_registration *entries,
		size_t elem_size, size_t count)
{
	struct engine *e = engine_from(engine);
	struct te_registration *list;
	int ret;

	ret = memory_read_all(e, __func__, entries, elem_size, count, &list);
	if (ret)
		return ret;
	ret = memory_add_list(e, list, count);
	free(list);
	return ret;
}

int te_unregister(transfer_engine_t engine,
		  const struct te_registration *entries, size_t elem_size,
		  size_t count)
{
	struct engine *e = engine_from(engine);
	struct te_registration *list;
	size_t i;
	int ret;

	ret = memory_read_all(e, __func__, entries, elem_size, count, &list);
	if (ret)
		return ret;
	for (i = 0; i < count && !ret; i++)
		if (!list[i].addr || !list[i].length)
			ret = engine_bad(e, __func__,
					 "an entry has addr NULL or length 0");
	if (!ret)
		ret = memory_drop(e, list, count);
	free(list);
	return ret;
}

int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list,
			       size_t addr_len)
{
	struct engine *e = engine_from(engine);
	struct te_registration *list;
	size_t i;
	int ret;

	if (!e || (addr_len && !addr_list))
		return engine_bad(e, __func__, NULL);
	list = calloc(addr_len ? addr_len : 1, sizeof(*list));
	if (!list)
		return TEI_ERR_MEMORY;
	for (i = 0; i < addr_len; i++)
		list[i].addr = addr_list[i];
	ret = memory_drop(e, list, addr_len);
	free(list);
	return ret;
}
