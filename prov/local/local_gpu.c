/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Published GPU memory.
 *
 * An entry of the shared registration table describes one region. Its serial
 * number is stored last when the region is added, and becomes 0 first when it is
 * removed. A reader that finds the same serial number before and after it reads
 * the other members has read them as they belong to that registration. A serial
 * number is never used twice.
 *
 * Copies are protected by the copy slots of the table, as copies of host memory
 * are (local_shared_table.c): the initiator arms a slot with the range and then
 * reads the serial number; the target stores 0 and then reads the slots. The
 * slot stays armed until the GPU has completed the copy, so a copy of an
 * initiator that is stopped delays the removal, too. If the initiator ends, the
 * driver stops its GPU work when it closes the files of the process. The pidfd
 * reports the end of the process after that. (A child of fork without exec that
 * lives on has these files open, too: the copies that were queued then end by
 * themselves, soon after the end of the process.)
 *
 * The files of a region are published before its serial number, and closed after
 * the serial number has become 0. A reader duplicates the file descriptors
 * and then reads the serial number. If it is unchanged, the target had not closed
 * the files, so the duplicates refer to them. The exception is a target whose
 * program has closed a file descriptor of this library by mistake: its number may
 * belong to another file. Therefore, the reader compares the inode numbers.
 *
 * Peers can write to the copy slots only. Any process with ptrace access can
 * overwrite the entries, so the context has a list of its own of the published
 * regions, and a reader uses an address only after a comparison.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "prov/local/local_int.h"
#include "prov/local/local_memfd.h"
#include "prov/local/tei_local_gpu.h"

#define GPU_WORDS (TEI_LOCAL_GPU_DATA / 8)

/* ---- the regions of this process ----------------------------------------- */

static void gpu_publish(struct tei_local *ctx, uint32_t place,
			const struct local_gpu *g) TEI_REQUIRES(ctx->lock)
{
	struct local_gpu_entry *e = &ctx->shared->gpu[place];
	uint32_t i;

	atomic_store_explicit(&e->base, g->base, memory_order_release);
	atomic_store_explicit(&e->end, g->end, memory_order_release);
	for (i = 0; i < GPU_WORDS; i++)
		atomic_store_explicit(&e->data[i], g->data[i],
				      memory_order_release);
	atomic_store_explicit(&e->files, (uint64_t)g->files << 32 | g->first,
			      memory_order_release);
	atomic_store(&e->serial, g->serial);
	if (atomic_load(&ctx->shared->head.gpu_used) <= place)
		atomic_store(&ctx->shared->head.gpu_used, place + 1);
}

/* Returns the index of the region at base that is not being removed, or of a
 * free element if base is 0. Returns LOCAL_GPU if there is none. */
static uint32_t gpu_seek(struct tei_local *ctx, uint64_t base)
	TEI_REQUIRES(ctx->lock)
{
	uint32_t i;

	for (i = 0; ctx->gpu.list && i < LOCAL_GPU; i++)
		if (ctx->gpu.list[i].base == base && !ctx->gpu.list[i].removing)
			return i;
	return LOCAL_GPU;
}

/* Returns the position of the first of n free elements in a row, or
 * LOCAL_GPU_FILES. */
static uint32_t gpu_files_seek(const int *files, uint32_t n)
{
	uint32_t first, i;

	for (first = 0; first + n <= LOCAL_GPU_FILES; first += i + 1) {
		for (i = 0; i < n && !files[first + i]; i++)
			;
		if (i == n)
			return first;
	}
	return LOCAL_GPU_FILES;
}

/* Stores the files in the table. No entry refers to their positions yet. */
static void gpu_files_store(struct tei_local *ctx, uint32_t first,
			    const struct tei_local_gpu_file *files, uint32_t n)
	TEI_REQUIRES(ctx->lock)
{
	struct local_gpu_file *f;
	uint32_t i;

	for (i = 0; i < n; i++) {
		f = &ctx->shared->gpu_files[first + i];
		atomic_store_explicit(&f->fd, (uint64_t)files[i].fd,
				      memory_order_release);
		atomic_store_explicit(&f->inode, local_memfd_inode(files[i].fd),
				      memory_order_release);
		atomic_store_explicit(&f->number, files[i].number,
				      memory_order_release);
		ctx->gpu.files[first + i] = files[i].fd + 1;
	}
}

/* Removes the files of a region from the list. Stores their file descriptors in
 * "out" and returns their number. */
static uint32_t gpu_files_take(struct tei_local *ctx, const struct local_gpu *g,
			       int out[TEI_LOCAL_GPU_FILES])
	TEI_REQUIRES(ctx->lock)
{
	uint32_t i;

	for (i = 0; i < g->files; i++) {
		out[i] = ctx->gpu.files[g->first + i] - 1;
		ctx->gpu.files[g->first + i] = 0;
	}
	return g->files;
}

void local_gpu_close(struct tei_local *ctx)
{
	uint32_t i;

	for (i = 0; ctx->gpu.files && i < LOCAL_GPU_FILES; i++)
		if (ctx->gpu.files[i])
			close(ctx->gpu.files[i] - 1);
}

/* Allocates the lists with the first region. */
static bool gpu_lists(struct tei_local *ctx) TEI_REQUIRES(ctx->lock)
{
	if (!ctx->gpu.list)
		ctx->gpu.list = calloc(LOCAL_GPU, sizeof(*ctx->gpu.list));
	if (!ctx->gpu.files)
		ctx->gpu.files = calloc(LOCAL_GPU_FILES,
					sizeof(*ctx->gpu.files));
	return ctx->gpu.list && ctx->gpu.files;
}

static int gpu_insert(struct tei_local *ctx, uint64_t base, uint64_t len,
		      const void *data, const struct tei_local_gpu_file *files,
		      uint32_t n) TEI_REQUIRES(ctx->lock)
{
	struct local_gpu *g;
	uint32_t place, first;

	if (ctx->stopping || ctx->gpu.closed)
		return TEI_ERR_CONTEXT;
	if (!gpu_lists(ctx))
		return TEI_ERR_MEMORY;
	place = gpu_seek(ctx, 0);
	first = gpu_files_seek(ctx->gpu.files, n);
	if (place == LOCAL_GPU || first == LOCAL_GPU_FILES ||
	    n > TEI_LOCAL_GPU_FILES)
		return TEI_ERR_TOO_MANY;
	gpu_files_store(ctx, first, files, n);
	g = &ctx->gpu.list[place];
	g->first = first;
	g->files = n;
	g->base = base;
	g->end = base + len;
	g->serial = ++ctx->serial;
	memcpy(g->data, data, sizeof(g->data));
	gpu_publish(ctx, place, g);
	return 0;
}

int tei_local_gpu_add(struct tei_local *ctx, const void *base, uint64_t len,
		      const void *data, const struct tei_local_gpu_file *files,
		      uint32_t n)
{
	int ret = local_guard(ctx);

	if (ret)
		return ret;
	if (!ctx->shared)
		return TEI_ERR_UNSUPPORTED;
	/* so that peers find out without a system call that this process has
	 * ended */
	local_watch_hold(ctx);
	tei_mutex_lock(&ctx->lock);
	ret = gpu_insert(ctx, (uintptr_t)base, len, data, files, n);
	tei_mutex_unlock(&ctx->lock);
	return ret;
}

int tei_local_gpu_remove(struct tei_local *ctx, const void *base,
			 uint64_t deadline_ns)
{
	int ret = local_guard(ctx), files[TEI_LOCAL_GPU_FILES];
	struct local_gpu *g;
	uint32_t place, n = 0;

	if (ret)
		return ret;
	tei_mutex_lock(&ctx->lock);
	place = gpu_seek(ctx, (uintptr_t)base);
	if (place == LOCAL_GPU) {
		tei_mutex_unlock(&ctx->lock);
		return TEI_ERR_NOT_REGISTERED;
	}
	g = &ctx->gpu.list[place];
	g->removing = true;
	atomic_store(&ctx->shared->gpu[place].serial, 0);
	tei_mutex_unlock(&ctx->lock);
	if (!local_slots_drain(ctx->shared, g->base, g->end, deadline_ns))
		ret = TEI_ERR_BUSY;
	tei_mutex_lock(&ctx->lock);
	g->removing = false;
	if (!ret) {
		n = gpu_files_take(ctx, g, files);
		memset(g, 0, sizeof(*g));
	} else {
		gpu_publish(ctx, place, g);
	}
	tei_mutex_unlock(&ctx->lock);
	while (n)
		close(files[--n]);
	return ret;
}

bool tei_local_gpu_clear(struct tei_local *ctx, uint64_t deadline_ns)
{
	bool drained = true;
	uint32_t i;

	if (local_guard(ctx) || !ctx->shared)
		return true;
	tei_mutex_lock(&ctx->lock);
	ctx->gpu.closed = true;
	for (i = 0; ctx->gpu.list && i < LOCAL_GPU; i++)
		atomic_store(&ctx->shared->gpu[i].serial, 0);
	tei_mutex_unlock(&ctx->lock);
	for (i = 0; ctx->gpu.list && i < LOCAL_GPU; i++)
		if (ctx->gpu.list[i].base)
			drained &= local_slots_drain(ctx->shared,
						     ctx->gpu.list[i].base,
						     ctx->gpu.list[i].end,
						     deadline_ns);
	return drained;
}

/* ---- the regions of a peer ----------------------------------------------- */

/* Reads an entry. Returns false if it is free, or does not contain the
 * range. */
static bool gpu_read(struct local_gpu_entry *e, uint64_t addr, uint64_t len,
		     struct tei_local_gpu *out)
{
	uint64_t end, files;
	uint32_t i;

	out->serial = atomic_load(&e->serial);
	out->base = atomic_load_explicit(&e->base, memory_order_acquire);
	end = atomic_load_explicit(&e->end, memory_order_acquire);
	if (!out->serial || addr < out->base || addr >= end ||
	    len > end - addr)
		return false;
	out->len = end - out->base;
	for (i = 0; i < GPU_WORDS; i++)
		out->data[i] = atomic_load_explicit(&e->data[i],
						    memory_order_acquire);
	files = atomic_load_explicit(&e->files, memory_order_acquire);
	out->first = (uint32_t)files;
	out->files = (uint32_t)(files >> 32);
	return atomic_load(&e->serial) == out->serial &&
	       out->files <= TEI_LOCAL_GPU_FILES &&
	       out->first <= LOCAL_GPU_FILES - out->files;
}

bool tei_local_gpu_find(const struct tei_local_peer *peer, uint64_t addr,
			uint64_t len, struct tei_local_gpu *out)
{
	struct local_shared_table *table = peer->shared_table;
	uint32_t n;

	if (!table || peer->self || !len)
		return false;
	n = atomic_load(&table->head.gpu_used);
	if (n > LOCAL_GPU)
		n = LOCAL_GPU;
	for (out->place = 0; out->place < n; out->place++)
		if (gpu_read(&table->gpu[out->place], addr, len, out))
			return true;
	return false;
}

static bool gpu_published(const struct tei_local_peer *peer, uint32_t place,
			  uint64_t serial)
{
	return place < LOCAL_GPU && serial &&
	       atomic_load(&peer->shared_table->gpu[place].serial) == serial;
}

bool tei_local_gpu_valid(const struct tei_local_peer *peer, uint32_t place,
			 uint64_t serial)
{
	return gpu_published(peer, place, serial) &&
	       (local_peer_holds(peer) || !tei_local_peer_ended(peer));
}

/* Duplicates a file of the peer. Returns 0 or -errno. */
static int gpu_file_get(const struct tei_local_peer *peer, uint32_t place,
			struct tei_local_gpu_file *out)
{
	struct local_gpu_file *f = &peer->shared_table->gpu_files[place];
	uint64_t number = atomic_load_explicit(&f->fd, memory_order_acquire);
	int fd = number <= INT32_MAX ?
			 local_pidfd_getfd(peer->pidfd, (int)number) :
			 -EBADF;

	if (fd < 0)
		return fd;
	if (local_memfd_inode(fd) !=
	    atomic_load_explicit(&f->inode, memory_order_acquire)) {
		close(fd);
		return -EBADF;
	}
	out->fd = fd;
	out->number = atomic_load_explicit(&f->number, memory_order_acquire);
	return 0;
}

int tei_local_gpu_files(struct tei_local_peer *peer,
			const struct tei_local_gpu *what,
			struct tei_local_gpu_file *files, struct tei_err *err)
{
	uint32_t n;
	int ret = 0;

	for (n = 0; n < what->files && !ret; n++)
		ret = gpu_file_get(peer, what->first + n, &files[n]);
	if (!gpu_published(peer, what->place, what->serial))
		local_explain(err, TEI_ERR_NOT_REGISTERED, 0,
			      "unregistered meanwhile");
	else if (!tei_local_peer_sound(peer))
		local_explain(err, TEI_ERR_CONTEXT, 0,
			      "the process has ended, or has closed its engine");
	else if (ret)
		local_explain(err, TEI_ERR_UNSUPPORTED, -ret,
			      "cannot duplicate a file descriptor of process %d (pidfd_getfd): %s",
			      peer->id.pid, strerrordesc_np(-ret));
	else
		return 0;
	if (ret)
		n--;
	while (n)
		close(files[--n].fd);
	return err->code;
}

/* Arms a slot of the peer. Returns NULL if none is free. */
static struct local_slot *gpu_slot(struct tei_local *ctx,
				   const struct tei_local_peer *peer,
				   const struct tei_local_gpu_range *range)
{
	uint64_t base[2] = { range->addr, 0 };
	uint64_t end[2] = { range->addr + range->len, 0 };
	struct local_slot *slot;

	slot = local_slot_enter(peer->shared_table, ctx->owner, base, end);
	if (slot)
		return slot;
	local_slots_reclaim(peer->shared_table);
	return local_slot_enter(peer->shared_table, ctx->owner, base, end);
}

int tei_local_gpu_enter(struct tei_local *ctx, struct tei_local_peer *peer,
			const struct tei_local_gpu_range *range, void **claim,
			struct tei_err *err)
{
	struct local_slot *slot = gpu_slot(ctx, peer, range);

	if (!slot) {
		local_explain(err, TEI_ERR_TOO_MANY, 0,
			      "all copy slots of the target are in use");
		return TEI_ERR_TOO_MANY;
	}
	if (!tei_local_peer_sound(peer))
		local_explain(err, TEI_ERR_CONTEXT, 0,
			      "the process has ended, or has closed its engine");
	else if (!gpu_published(peer, range->place, range->serial))
		local_explain(err, TEI_ERR_NOT_REGISTERED, 0,
			      "%#llx, %llu bytes: unregistered during the request",
			      (unsigned long long)range->addr,
			      (unsigned long long)range->len);
	else {
		*claim = slot;
		return 0;
	}
	local_slot_leave(slot);
	return err->code;
}

void tei_local_gpu_leave(void *claim)
{
	local_slot_leave(claim);
}

void tei_local_gpu_count(struct tei_local *ctx, bool read, uint64_t bytes)
{
	atomic_fetch_add_explicit(read ? &ctx->rx_bytes : &ctx->tx_bytes, bytes,
				  memory_order_relaxed);
}

bool tei_local_peer_sound(struct tei_local_peer *peer)
{
	return local_peer_check(peer) == TEI_LOCAL_OK &&
	       (local_peer_holds(peer) || tei_local_peer_alive(peer));
}
