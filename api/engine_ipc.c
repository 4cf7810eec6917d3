/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory of other processes of this host: publishes the own memory, and maps
 * that of local processes. transport_ipc.c copies.
 *
 * A buffer is mapped when the first request for it is submitted. The thread that
 * closes the last segment of the process unmaps its buffers; if tasks still use
 * them, a worker thread does so later. A worker thread also unmaps a buffer whose
 * owner has unregistered it or has ended (engine_segment_sweep), unless a request
 * that maps another buffer does so first. Each copy holds a claim on its range at
 * the owner (tei_local_gpu_enter), so the owner cannot unregister the range while
 * a copy is in progress.
 */
#include "api/engine_ipc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine_int.h"
#include "meta/tei_meta_cache.h"
#include "meta/tei_meta_desc.h"
#include "prov/local/tei_local.h"
#include "util/cuda.h"
#include "util/range.h"

/* time after which a buffer that could not be mapped is tried again */
#define IPC_RETRY_NS TEI_NS_PER_SEC
/* time for which a thread waits until no copy uses a buffer that it must unmap */
#define IPC_ENDS_NS  TEI_NS_PER_SEC

#define IPC_IN_USE	"a copy still uses an earlier mapping of it"
#define IPC_UNEXPORTED	"the process has exported no buffer that contains it; its log states why (MC_LOG_LEVEL=info)"

_Static_assert(sizeof(struct tei_cuda_ipc) == TEI_LOCAL_GPU_DATA,
	       "a handle fits");
_Static_assert(TEI_CUDA_CHUNKS == TEI_LOCAL_GPU_FILES, "each chunk has a file");

/* A buffer of a local process. */
struct ipc_map {
	struct tei_range range; /* addresses in the process; node in
				 * engine_ipc.maps */
	uint64_t addr;		/* address in this process, or 0 if the buffer
				 * could not be mapped */
	char *why;		/* error text if the buffer could not be mapped,
				 * or NULL */
	uint64_t tried_ns;	/* time of the attempt to map the buffer */
	uint64_t serial;	/* registration at the process, or 0 if the
				 * mapping cannot be used any longer */
	uint32_t place;		/* see struct tei_local_gpu */
	bool near;		/* the attempt had an address in GPU memory of
				 * this process, so it tried that GPU, too */
};

/* The mapped GPU memory of a local process. Created by engine_ipc_new, freed by
 * engine_ipc_free. */
struct engine_ipc {
	/* constant */
	struct engine *engine;
	struct engine_local_process *process;
	struct tei_gpu_guard guard;

	struct tei_mutex lock;	/* guards the table; held while memory is
				 * mapped and unmapped */
	struct tei_range_table maps; /* table of ipc_map.range */
	bool told;		/* the log states that the process has not
				 * exported memory */
	uint32_t mapped;	/* atomic: number of buffers that are mapped */
	bool broken;		/* atomic: all buffers must be mapped again */
};

static struct tei_gpu *ipc_gpu(struct engine *e)
{
	return __atomic_load_n(&e->gpu, __ATOMIC_ACQUIRE);
}

static struct ipc_map *ipc_map_of(struct tei_range *r)
{
	return tei_container_of(r, struct ipc_map, range);
}

/* --- the own memory ------------------------------------------------------- */

/* Returns the reason why this process maps and exports no GPU memory, or NULL. */
static const char *ipc_off(struct engine *e)
{
	if (!e->settings.copies.gpu_ipc)
		return "MOONRAIL_GPU_IPC=0";
	if (!__atomic_load_n(&e->local_on, __ATOMIC_RELAXED))
		return "the transport local is not installed";
	return NULL;
}

/* Publishes memory with its handle and its chunks. */
static int ipc_publish(struct engine *e, const struct engine_region *r,
		       const struct tei_cuda_ipc *data,
		       const struct tei_cuda_chunks *chunks)
{
	struct tei_local_gpu_file files[TEI_LOCAL_GPU_FILES];
	uint32_t i;

	for (i = 0; i < chunks->n; i++) {
		files[i].fd = chunks->list[i].fd;
		files[i].number = chunks->list[i].size;
	}
	return tei_local_gpu_add(e->local, r->addr, r->length, data, files,
				 chunks->n);
}

static int ipc_export(struct engine *e, const struct engine_region *r,
		      struct tei_err *err)
{
	const char *why = ipc_off(e);
	struct tei_cuda_chunks chunks;
	struct tei_cuda_ipc data;
	int ret;

	memset(err, 0, sizeof(*err));
	if (why) {
		snprintf(err->text, sizeof(err->text), "%s", why);
		return TEI_ERR_UNSUPPORTED;
	}
	ret = tei_gpu_mem_export(ipc_gpu(e), r->addr, r->length, &data,
				 &chunks, err);
	if (ret)
		return ret;
	ret = ipc_publish(e, r, &data, &chunks);
	if (ret) {
		snprintf(err->text, sizeof(err->text), "%s", tei_err_name(ret));
		tei_cuda_chunks_close(&chunks);
	}
	return ret;
}

void engine_ipc_export(struct engine *e, struct engine_region *r)
{
	struct tei_err err;

	r->exported = !ipc_export(e, r, &err);
	if (!r->exported)
		TEI_INFO("engine", "%p, %zu bytes of %s: other processes of this host cannot map the memory: %s",
			 r->addr, r->length, r->location, err.text);
}

void engine_ipc_export_all(struct engine *e)
{
	struct engine_region *r;
	uint32_t i;

	for (i = 0; i < e->memory.n; i++) {
		r = &e->memory.regions[i];
		if (r->gpu && r->remote && !r->exported)
			engine_ipc_export(e, r);
	}
}

/* --- permission for each copy --------------------------------------------- */

static int ipc_enter(struct tei_gpu_guard *g, struct tei_gpu_op *op,
		     uint64_t at, uint64_t len, void **claim,
		     struct tei_err *err)
{
	struct engine_ipc *ipc = tei_container_of(g, struct engine_ipc, guard);
	struct engine_ipc_op *o = tei_container_of(op, struct engine_ipc_op, op);
	struct tei_local_gpu_range range = o->range;
	int ret;

	range.addr += at;
	range.len = len;
	ret = tei_local_gpu_enter(ipc->engine->local, ipc->process->peer,
				  &range, claim, err);
	/* the claim may outlive the task, so it has a reference of its own to
	 * the process */
	if (!ret)
		engine_local_process_hold(ipc->process);
	return ret;
}

static void ipc_leave(struct tei_gpu_guard *g, void *claim)
{
	struct engine_ipc *ipc = tei_container_of(g, struct engine_ipc, guard);

	tei_local_gpu_leave(claim);
	engine_local_process_put(ipc->process);
}

/* --- the memory of a local process ---------------------------------------- */

struct engine_ipc *engine_ipc_new(struct engine *e,
				  struct engine_local_process *process)
{
	struct engine_ipc *ipc = calloc(1, sizeof(*ipc));

	if (!ipc)
		return NULL;
	ipc->engine = e;
	ipc->process = process;
	ipc->guard.enter = ipc_enter;
	ipc->guard.leave = ipc_leave;
	tei_mutex_init(&ipc->lock);
	return ipc;
}

/* Removes a buffer from the table. */
static void ipc_drop(struct engine_ipc *ipc, struct ipc_map *m)
	TEI_REQUIRES(ipc->lock)
{
	if (m->addr)
		__atomic_sub_fetch(&ipc->mapped, 1, __ATOMIC_RELAXED);
	tei_range_remove(&ipc->maps, &m->range);
	free(m->why);
	free(m);
}

/* Unmaps a buffer and removes it from the table. Returns false if a copy uses
 * the buffer at the deadline. */
static bool ipc_unmap(struct engine_ipc *ipc, struct ipc_map *m,
		      uint64_t deadline_ns) TEI_REQUIRES(ipc->lock)
{
	struct tei_gpu *gpu = ipc_gpu(ipc->engine);

	if (m->addr && tei_gpu_mem_remove(gpu, (void *)(uintptr_t)m->addr,
					  deadline_ns) == TEI_ERR_BUSY)
		return false;
	ipc_drop(ipc, m);
	return true;
}

/* Applies the report of engine_ipc_broken. */
static void ipc_take_broken(struct engine_ipc *ipc) TEI_REQUIRES(ipc->lock)
{
	uint32_t i;

	if (!__atomic_exchange_n(&ipc->broken, false, __ATOMIC_ACQ_REL))
		return;
	for (i = 0; i < ipc->maps.n; i++)
		ipc_map_of(ipc->maps.at[i])->serial = 0;
}

static bool ipc_valid(const struct engine_ipc *ipc, const struct ipc_map *m)
{
	return tei_local_gpu_valid(ipc->process->peer, m->place, m->serial);
}

/* Unmaps the buffers that are no longer registered. Buffers in use stay. If
 * "what" is not NULL, it is about to be mapped: waits up to IPC_ENDS_NS for the
 * ends of copies that use buffers at its addresses. After an error of the driver,
 * the done callbacks of the copies that it has ended may not have returned yet. */
static void ipc_unmap_stale(struct engine_ipc *ipc,
			    const struct tei_local_gpu *what)
	TEI_REQUIRES(ipc->lock)
{
	uint64_t now = tei_now_ns();
	struct ipc_map *m;
	bool wait;
	uint32_t i;

	ipc_take_broken(ipc);
	for (i = ipc->maps.n; i-- > 0;) {
		m = ipc_map_of(ipc->maps.at[i]);
		if (ipc_valid(ipc, m))
			continue;
		wait = what && m->range.base < what->base + what->len &&
		       what->base < m->range.end;
		ipc_unmap(ipc, m, wait ? now + IPC_ENDS_NS : now);
	}
}

void engine_ipc_free(struct engine_ipc *ipc)
{
	uint64_t deadline = tei_now_ns() + IPC_ENDS_NS;

	if (!ipc)
		return;
	tei_mutex_lock(&ipc->lock);
	/* if the engine is being destroyed, the GPU module is closed already
	 * and has unmapped the memory */
	while (ipc->maps.n) {
		struct ipc_map *m = ipc_map_of(ipc->maps.at[ipc->maps.n - 1]);

		if (!ipc_gpu(ipc->engine))
			m->addr = 0;
		/* the task that used the buffer last may have ended a moment
		 * ago, and its done callback may not have returned yet */
		if (ipc_unmap(ipc, m, deadline))
			continue;
		TEI_WARN("engine", "GPU memory 0x%llx of another process stays mapped until the engine is destroyed: a copy still uses it",
			 (unsigned long long)m->range.base);
		ipc_drop(ipc, m);
	}
	tei_range_fini(&ipc->maps);
	tei_mutex_unlock(&ipc->lock);
	tei_mutex_fini(&ipc->lock);
	free(ipc);
}

bool engine_ipc_mapped(struct engine_ipc *ipc)
{
	return ipc && __atomic_load_n(&ipc->mapped, __ATOMIC_RELAXED);
}

bool engine_ipc_stale(struct engine_ipc *ipc)
{
	bool stale = false;
	uint32_t i;

	if (!tei_mutex_trylock(&ipc->lock))
		return false;
	ipc_take_broken(ipc);
	for (i = 0; !stale && i < ipc->maps.n; i++)
		stale = !ipc_valid(ipc, ipc_map_of(ipc->maps.at[i]));
	tei_mutex_unlock(&ipc->lock);
	return stale;
}

void engine_ipc_unmap_stale(struct engine_ipc *ipc)
{
	tei_mutex_lock(&ipc->lock);
	ipc_unmap_stale(ipc, NULL);
	tei_mutex_unlock(&ipc->lock);
}

/* Logs whether memory was mapped. "why" is NULL if it was. */
static void ipc_log(struct engine *e, segment_id_t id, uint64_t addr,
		    uint64_t len, const char *why)
{
	struct tei_meta_desc *desc = tei_meta_cache_get(e->cache, id);

	TEI_INFO("engine", "peer %s: GPU memory 0x%llx, %llu bytes: %s%s",
		 desc ? desc->name : "?", (unsigned long long)addr,
		 (unsigned long long)len,
		 why ? "not mapped: " : "mapped, the GPU copies",
		 why ? why : "");
	tei_meta_desc_unref(desc);
}

/* Maps a buffer of the process. *addr gets its address. */
static int ipc_map_open(struct engine_ipc *ipc,
			const struct tei_local_gpu *what, uint64_t near,
			uint64_t *addr, struct tei_err *err)
	TEI_REQUIRES(ipc->lock)
{
	struct tei_local_gpu_file files[TEI_LOCAL_GPU_FILES];
	struct tei_cuda_chunks chunks;
	uint32_t i;
	int ret;

	ret = tei_local_gpu_files(ipc->process->peer, what, files, err);
	if (ret)
		return ret;
	chunks.n = what->files;
	for (i = 0; i < chunks.n; i++) {
		chunks.list[i].fd = files[i].fd;
		chunks.list[i].size = files[i].number;
	}
	ret = tei_gpu_peer_open(ipc_gpu(ipc->engine),
				(const struct tei_cuda_ipc *)what->data,
				&chunks, what->len, near, addr, err);
	tei_cuda_chunks_close(&chunks);
	return ret;
}

/* Maps a buffer of the process and adds it to the table. If the driver cannot
 * map it, adds it without an address, so that it is not tried again soon. Logs
 * no failure if "again" is true. Returns NULL if memory is short, or if a copy
 * uses an earlier mapping. */
static struct ipc_map *ipc_map_add(struct engine_ipc *ipc, segment_id_t id,
				   const struct tei_local_gpu *what,
				   uint64_t near, bool again)
	TEI_REQUIRES(ipc->lock)
{
	struct engine *e = ipc->engine;
	struct ipc_map *m = calloc(1, sizeof(*m));
	struct tei_err err;
	int ret;

	if (!m)
		return NULL;
	ipc_unmap_stale(ipc, what);
	m->range.base = what->base;
	m->range.end = what->base + what->len;
	m->serial = what->serial;
	m->place = what->place;
	m->near = near;
	m->tried_ns = tei_now_ns();
	if (tei_range_insert(&ipc->maps, &m->range)) {
		free(m);
		return NULL;
	}
	ret = ipc_map_open(ipc, what, near, &m->addr, &err);
	if (ret) {
		m->addr = 0;
		m->why = strdup(err.text);
	} else {
		__atomic_add_fetch(&ipc->mapped, 1, __ATOMIC_RELAXED);
	}
	if (!ret || !again)
		ipc_log(e, id, what->base, what->len, ret ? err.text : NULL);
	return m;
}

/* Logs once that the process has not exported memory that a request names. */
static void ipc_log_unexported(struct engine_ipc *ipc, segment_id_t id,
			       const struct tei_local_gpu_range *range)
	TEI_REQUIRES(ipc->lock)
{
	if (ipc->told)
		return;
	ipc->told = true;
	ipc_log(ipc->engine, id, range->addr, range->len, IPC_UNEXPORTED);
}

/* Returns true if a buffer that could not be mapped should be tried again. */
static bool ipc_due(const struct ipc_map *m, uint64_t near)
{
	/* this process may not see the GPU of the buffer, but another GPU may
	 * be able to map it */
	if (near && !m->near)
		return true;
	return tei_now_ns() - m->tried_ns >= IPC_RETRY_NS;
}

bool engine_ipc_find(struct engine_ipc *ipc, segment_id_t id, uint64_t near,
		     struct tei_local_gpu_range *range, uint64_t *at)
{
	struct tei_local_peer *peer = ipc->process->peer;
	struct tei_local_gpu what;
	struct ipc_map *m = NULL;
	struct tei_range *r;
	bool again = false;

	tei_mutex_lock(&ipc->lock);
	ipc_take_broken(ipc);
	r = tei_range_find(&ipc->maps, range->addr, range->len);
	if (r && !ipc_map_of(r)->addr && ipc_due(ipc_map_of(r), near)) {
		ipc_drop(ipc, ipc_map_of(r));
		r = NULL;
		again = true;
	}
	if (r && ipc_valid(ipc, ipc_map_of(r)))
		m = ipc_map_of(r);
	else if (tei_local_gpu_find(peer, range->addr, range->len, &what))
		m = ipc_map_add(ipc, id, &what, near, again);
	else
		ipc_log_unexported(ipc, id, range);
	if (m && m->addr) {
		range->place = m->place;
		range->serial = m->serial;
		*at = m->addr + (range->addr - m->range.base);
	} else {
		m = NULL;
	}
	tei_mutex_unlock(&ipc->lock);
	return m != NULL;
}

void engine_ipc_why(struct engine_ipc *ipc, uint64_t addr, uint64_t len,
		    char *why)
{
	const char *text = ipc_off(ipc->engine);
	struct tei_range *r;

	tei_mutex_lock(&ipc->lock);
	r = tei_range_find(&ipc->maps, addr, len);
	if (!text && !ipc_gpu(ipc->engine))
		text = "this process had not loaded " TEI_CUDA_LIBRARY " when it registered its memory";
	else if (!text && r && ipc_map_of(r)->why)
		text = ipc_map_of(r)->why;
	else if (!text && r && ipc_map_of(r)->addr)
		text = IPC_IN_USE;
	snprintf(why, TEI_ERR_TEXT, "%s", text ? text : IPC_UNEXPORTED);
	tei_mutex_unlock(&ipc->lock);
}

/* Returns true if the range of the operation is still mapped where the operation
 * accesses it. */
static bool ipc_same(struct engine_ipc *ipc, const struct engine_ipc_op *op,
		     uint64_t at) TEI_REQUIRES(ipc->lock)
{
	struct tei_range *r = tei_range_find(&ipc->maps, op->range.addr,
					     op->range.len);
	const struct ipc_map *m = r ? ipc_map_of(r) : NULL;

	return m && m->addr && m->serial == op->range.serial &&
	       m->addr + (op->range.addr - m->range.base) == at;
}

int engine_ipc_submit(struct engine_ipc *ipc, struct engine_ipc_op *op,
		      uint64_t at)
{
	int ret = TEI_ERR_NOT_REGISTERED;

	/* no memory is unmapped and no other memory is mapped to these addresses
	 * as long as the lock is held, or the operation is in progress */
	tei_mutex_lock(&ipc->lock);
	if (ipc_same(ipc, op, at))
		ret = tei_gpu_submit(ipc_gpu(ipc->engine), &op->op);
	tei_mutex_unlock(&ipc->lock);
	return ret;
}

void engine_ipc_broken(struct engine_ipc *ipc)
{
	__atomic_store_n(&ipc->broken, true, __ATOMIC_RELEASE);
}

struct tei_gpu_guard *engine_ipc_guard(struct engine_ipc *ipc)
{
	return &ipc->guard;
}
