/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "prov/nvmeof/nvmeof_int.h"
#include "util/clock.h"
#include "util/text.h"

/*
 * Operations. In addition to ctx->live, an operation is in at most one list.
 * While pieces remain to start, it is in the queue of its next piece's file.
 * While its last pieces run, it is in no list. After all pieces have ended, it
 * is in lists of its files, one file after the other: in unsynced and then in
 * syncing (only writes with file_sync "data"), and in ended. Then it is in
 * ctx->over. An operation that fails or is cancelled moves to ctx->over as soon
 * as none of its pieces runs.
 *
 * Files are checked after the bytes have moved, so an operation on a file that
 * was removed before the operation began never completes successfully. One
 * check serves all operations that wait for it, and all reads that were
 * submitted before the check began.
 *
 * Limits. ctx->room requests run at a time; a single busy file may use all of
 * them. Each file may always run its share of requests (NVMEOF_SHARE), even if
 * other files have reached the limit, so a file whose storage does not answer
 * cannot block the others. If no request of a file ends for NVMEOF_STALL_NS,
 * the file is stalled: its requests no longer count, and it may start no
 * further one until one of them ends. Stalls need no timer: all files are
 * checked whenever a file cannot start a request, and this file still makes
 * progress with its share. All requests together, those of stalled files
 * included, are limited too (NVMEOF_CROWD); at this limit, a file without a
 * running request may still start one.
 */

#define IO_TRIES	1000u	/* greatest number of attempts after EAGAIN or
				 * EINTR */

/* --- queues -------------------------------------------------------------- */

static struct nvmeof_file *op_file(const struct tei_nvmeof_op *op)
{
	return &op->seg->file[nvmeof_file_at(op->seg, op->offset + op->next)];
}

static void op_queue(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op)
	TEI_REQUIRES(ctx->lock)
{
	struct nvmeof_file *f = op_file(op);

	op->queued = true;
	tei_list_add_tail(&f->queue, &op->node);
	if (tei_list_empty(&f->turn_node))
		tei_list_add_tail(&ctx->turn, &f->turn_node);
}

/* Removes the operation from f->queue. */
static void op_unqueue(struct tei_nvmeof_op *op, struct nvmeof_file *f)
{
	op->queued = false;
	tei_list_del(&op->node);
	if (tei_list_empty(&f->queue))
		tei_list_del(&f->turn_node);
}

/* --- completion ---------------------------------------------------------- */

static void op_fail(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op,
		    const struct tei_err *err) TEI_REQUIRES(ctx->lock)
{
	if (op->code)
		return;
	op->code = err->code;
	op->err = malloc(sizeof(*op->err));
	if (op->err)
		*op->err = *err;
	TEI_LOG_LIMITED(&ctx->log_limit, TEI_LOG_ERROR, "nvmeof",
			"%s of %llu bytes at offset %llu of %s: %s",
			op->read ? "read" : "write",
			(unsigned long long)op->length,
			(unsigned long long)op->offset, op->seg->name,
			err->text);
}

static void op_over(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op)
	TEI_REQUIRES(ctx->lock)
{
	tei_list_del(&op->node);
	op->queued = false;
	tei_list_add_tail(&ctx->over, &op->node);
}

/*
 * Marks the file as unusable: further operations on it fail at once. Called
 * with ctx->lock held.
 */
static void file_break(struct nvmeof_file *f, const struct tei_err *err)
{
	if (f->broken)
		return;
	f->why = *err;
	__atomic_store_n(&f->broken, err->code, __ATOMIC_RELAXED);
}

static void file_due(struct tei_nvmeof *ctx, struct nvmeof_file *f)
	TEI_REQUIRES(ctx->lock)
{
	if (!f->looking && tei_list_empty(&f->look_node))
		tei_list_add_tail(&ctx->looks, &f->look_node);
}

static bool op_at_last(const struct tei_nvmeof_op *op)
{
	const struct nvmeof_file *f = &op->seg->file[op->stage];

	return op->offset + op->length <= f->offset + f->length;
}

/* Starts the next fdatasync or check of an operation, or skips it. All pieces
 * of the operation have ended successfully, and the files before op->stage are
 * checked. For a read, a check that began after the submit is sufficient, even
 * if the file was removed later. */
static void op_stage(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op)
	TEI_REQUIRES(ctx->lock)
{
	struct nvmeof_file *f = &op->seg->file[op->stage];
	/* cuFile does not support RWF_DSYNC */
	bool sync = !op->read && (ctx->sync == NVMEOF_SYNC_DATA ||
				  (ctx->sync == NVMEOF_SYNC_DSYNC &&
				   op->gpu_context));

	while (op->read && op->born < f->looked_at) {
		if (op_at_last(op)) {
			op_over(ctx, op);
			return;
		}
		f = &op->seg->file[++op->stage];
	}
	tei_list_add_tail(sync ? &f->unsynced : &f->ended, &op->node);
	file_due(ctx, f);
}

static void op_stage_next(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op)
	TEI_REQUIRES(ctx->lock)
{
	tei_list_del(&op->node);
	if (op->code || op_at_last(op)) {
		op_over(ctx, op);
		return;
	}
	op->stage++;
	op_stage(ctx, op);
}

/* Moves the operation to its next list if nothing of it is queued or running.
 * Called when a piece has ended or the operation was cancelled. */
static void op_step(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op)
	TEI_REQUIRES(ctx->lock)
{
	if (op->code && op->queued)
		op_unqueue(op, op_file(op));
	if (op->running || op->queued)
		return;
	if (op->code) {
		op_over(ctx, op);
		return;
	}
	op->stage = nvmeof_file_at(op->seg, op->offset);
	op_stage(ctx, op);
}

/* --- pieces -------------------------------------------------------------- */

/*
 * Takes a bounce buffer on the NUMA node of the file's device or, if that is
 * unknown, on the node of the memory. m: the registered memory, or NULL.
 * Returns false if no buffer is available.
 */
static bool io_bounce(struct tei_nvmeof *ctx, struct nvmeof_io *io,
		      const struct nvmeof_mem *m) TEI_REQUIRES(ctx->lock)
{
	int numa = io->file->numa;

	if (numa < 0 && m)
		numa = nvmeof_mem_node(m, io->local);
	io->bounce = nvmeof_bounce_take(ctx, numa);
	if (!io->bounce)
		return false;
	io->buf = io->bounce->mem;
	ctx->counters.bounced++;
	return true;
}

/*
 * Selects the file descriptor of a request: if direct is true, the one that
 * bypasses the page cache, else the one that uses it.
 */
static void io_select(struct nvmeof_io *io, bool direct)
{
	io->direct = direct;
	io->fd = direct ? io->file->direct : io->file->cached;
	io->slot = direct ? io->file->direct_slot : io->file->cached_slot;
}

/*
 * Returns the length of the next piece if "left" bytes remain from offset "at"
 * of the file. Sets *direct if the piece can be moved with O_DIRECT.
 */
static uint32_t piece_length(const struct nvmeof_file *f, uint64_t at,
			     uint64_t left, bool *direct)
{
	uint64_t max = left < TEI_NVMEOF_PIECE ? left : TEI_NVMEOF_PIECE;
	uint64_t edge = at & (f->block - 1);

	*direct = false;
	if (f->direct < 0)
		return (uint32_t)max;
	if (edge) {
		edge = f->block - edge;
		return (uint32_t)(max <= NVMEOF_SMALL || max < edge ? max :
								      edge);
	}
	if (max < f->block)
		return (uint32_t)max;
	*direct = true;
	return (uint32_t)(max & ~(uint64_t)(f->block - 1));
}

static void piece_memory(struct tei_nvmeof *ctx, struct nvmeof_io *io)
	TEI_REQUIRES(ctx->lock)
{
	const struct nvmeof_mem *m;

	io->buf = io->local;
	io->fixed = -1;
	if (io->gpu.context) {
		ctx->counters.gpu++;
		return;
	}
	m = nvmeof_mem_find(ctx, io->local, io->length);
	if (io->direct && (uintptr_t)io->local & (io->file->mem_align - 1)) {
		if (!io_bounce(ctx, io, m))
			io_select(io, false);
		return;
	}
	if (m)
		io->fixed = nvmeof_mem_slot(ctx, m, io->local, io->length);
	ctx->counters.fixed += io->fixed >= 0;
}

/* Cuts the next piece from op and describes it in io. The piece is in
 * io->file. */
static void piece_cut(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op,
		      struct nvmeof_io *io) TEI_REQUIRES(ctx->lock)
{
	uint64_t at = op->offset + op->next, left = op->length - op->next;
	struct nvmeof_file *f = io->file;
	bool direct;

	at -= f->offset;
	if (left > f->length - at)
		left = f->length - at;
	io->kind = op->read ? NVMEOF_READ : NVMEOF_WRITE;
	io->op = op;
	io->at = at;
	io->done = 0;
	io->tries = 0;
	io->gpu.context = op->gpu_context;
	io->gpu.base = op->gpu_base;
	io->length = piece_length(f, at, left, &direct);
	if (io->gpu.context) {		/* cuFile handles unaligned edges */
		io->length = (uint32_t)(left < TEI_NVMEOF_PIECE ?
					left : TEI_NVMEOF_PIECE);
		direct = true;
	}
	io_select(io, direct);
	io->local = (char *)op->local + op->next;
	piece_memory(ctx, io);
	if (io->direct)
		ctx->counters.direct++;
	else
		ctx->counters.cached++;
	op->next += io->length;
	op->running++;
}

/* --- room ---------------------------------------------------------------- */

static void file_revive(struct tei_nvmeof *ctx, struct nvmeof_file *f)
	TEI_REQUIRES(ctx->lock)
{
	if (!f->stalled)
		return;
	f->stalled = false;
	ctx->running += f->running;
}

/*
 * Marks the file as stalled if no request of it has ended for NVMEOF_STALL_NS.
 */
static void file_watch(struct tei_nvmeof *ctx, struct nvmeof_file *f,
		       uint64_t now) TEI_REQUIRES(ctx->lock)
{
	if (f->stalled)
		return;
	if (!f->seen_ns || f->seen != f->ends) {
		f->seen = f->ends;
		f->seen_ns = now;
	} else if (now - f->seen_ns >= NVMEOF_STALL_NS) {
		f->stalled = true;
		ctx->running -= f->running;
		TEI_LOG_LIMITED(&ctx->log_limit, TEI_LOG_WARN, "nvmeof",
				"%s: no completion for 1 s, %u request%s in flight; other files continue",
				f->path, f->running, tei_plural(f->running));
	}
}

/* Returns true if the file may start another request. */
static bool file_room(struct tei_nvmeof *ctx, const struct nvmeof_file *f)
	TEI_REQUIRES(ctx->lock)
{
	uint32_t share = ctx->room / NVMEOF_SHARE;

	if (!f->running)
		return true;
	if (f->stalled || ctx->all >= ctx->room * NVMEOF_CROWD)
		return false;
	return ctx->running < ctx->room || f->running < share;
}

/* Takes an idle request, or allocates one. Returns NULL if memory is short. */
static struct nvmeof_io *io_take(struct tei_nvmeof *ctx, struct nvmeof_file *f)
	TEI_REQUIRES(ctx->lock)
{
	struct nvmeof_io *io;

	if (tei_list_empty(&ctx->idle)) {
		io = calloc(1, sizeof(*io));
		if (!io)
			return NULL;
		io->extra = true;
	} else {
		io = tei_list_first(&ctx->idle, struct nvmeof_io, node);
		tei_list_del(&io->node);
	}
	io->file = f;
	ctx->all++;
	ctx->running += !f->stalled;
	if (!f->running++) {
		f->seen_ns = 0;
		tei_list_add_tail(&ctx->busy, &f->busy_node);
	}
	return io;
}

/*
 * Makes a request ready to run. If again is true, it runs before the requests
 * that have not begun.
 */
static void io_ready(struct tei_nvmeof *ctx, struct nvmeof_io *io, bool again)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_list *list = io->gpu.context ? &ctx->gpu_ready : &ctx->ready;

	if (ctx->hooks.keep && ctx->hooks.keep(ctx->hooks.keep_arg, io))
		return;
	if (again)
		tei_list_add_head(list, &io->node);
	else
		tei_list_add_tail(list, &io->node);
	if (io->gpu.context)
		nvmeof_cufile_wake(ctx);
}

static void io_give(struct tei_nvmeof *ctx, struct nvmeof_io *io)
	TEI_REQUIRES(ctx->lock)
{
	struct nvmeof_file *f = io->file;

	io->op = NULL;
	if (io->bounce)
		nvmeof_bounce_give(ctx, io->bounce);
	io->bounce = NULL;
	file_revive(ctx, f);
	f->ends++;
	ctx->all--;
	ctx->running--;
	if (!--f->running)
		tei_list_del(&f->busy_node);
	if (io->extra)
		free(io);
	else
		tei_list_add_head(&ctx->idle, &io->node);
}

/*
 * Starts a piece of the first operation in the file's queue, if the limits
 * permit. Returns true if it has started a piece or failed the operation.
 */
static bool file_pump(struct tei_nvmeof *ctx, struct nvmeof_file *f)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_nvmeof_op *op = tei_list_first(&f->queue,
						  struct tei_nvmeof_op, node);
	struct nvmeof_io *io;

	if (f->broken) {
		op_fail(ctx, op, &f->why);
		op_step(ctx, op);
		return true;
	}
	io = file_room(ctx, f) ? io_take(ctx, f) : NULL;
	if (!io)
		return false;
	op_unqueue(op, f);	/* one piece is started here; if more pieces
				 * remain, the operation is queued again
				 * below */
	piece_cut(ctx, op, io);
	if (op->next < op->length)
		op_queue(ctx, op);
	io_ready(ctx, io, false);
	return true;
}

/* Checks all files with running requests for stalls. Called when a file could
 * not start a request because of the limits. */
static void room_watch(struct tei_nvmeof *ctx) TEI_REQUIRES(ctx->lock)
{
	uint64_t now;
	struct nvmeof_file *f;

	/* if requests of only one file run, no other file waits because of
	 * them */
	if (tei_list_empty(&ctx->busy) || ctx->busy.next == ctx->busy.prev)
		return;
	now = tei_now_ns();
	tei_list_foreach(f, &ctx->busy, struct nvmeof_file, busy_node)
		file_watch(ctx, f, now);
}

void nvmeof_pump(struct tei_nvmeof *ctx)
{
	struct nvmeof_file *f;
	uint32_t left = 0;
	struct tei_list turn;

	/* try one piece of each file, until no file starts one */
	do {
		tei_list_init(&turn);
		tei_list_splice_tail(&turn, &ctx->turn);
		left = 0;
		while (!tei_list_empty(&turn)) {
			f = tei_list_first(&turn, struct nvmeof_file,
					   turn_node);
			tei_list_del(&f->turn_node);
			tei_list_add_tail(&ctx->turn, &f->turn_node);
			left += file_pump(ctx, f);
		}
	} while (left);
	if (!tei_list_empty(&ctx->turn))
		room_watch(ctx);
}

int nvmeof_io_flags(const struct tei_nvmeof *ctx, const struct nvmeof_io *io)
{
	return io->kind == NVMEOF_WRITE && ctx->sync == NVMEOF_SYNC_DSYNC ?
	       RWF_DSYNC : 0;
}

void nvmeof_io_fill(struct nvmeof_io *io)
{
	if (io->kind == NVMEOF_WRITE && io->buf != io->local && !io->done)
		memcpy(io->buf, io->local, io->length);
}

void nvmeof_io_copy(struct nvmeof_io *io, int64_t res)
{
	if (io->kind == NVMEOF_READ && io->buf != io->local && res > 0)
		memcpy(io->local + io->done, io->buf + io->done, (size_t)res);
}

/* --- results of requests ------------------------------------------------- */

static void io_fail(struct tei_nvmeof *ctx, struct nvmeof_io *io, int64_t res)
	TEI_REQUIRES(ctx->lock)
{
	struct tei_err err;

	if (!res && io->kind == NVMEOF_READ) {
		nvmeof_explain(&err, TEI_ERR_NO_DEVICE, io->file, 0,
			       "ends at %llu, %llu bytes are missing",
			       (unsigned long long)(io->at + io->done),
			       (unsigned long long)(io->length - io->done));
		file_break(io->file, &err);
	} else if (io->gpu.context && io->gpu.err) {
		nvmeof_explain(&err, TEI_ERR_CONTEXT, io->file, 0,
			       "%s at %llu: cuFile error %d",
			       io->kind == NVMEOF_READ ? "read" : "write",
			       (unsigned long long)(io->at + io->done),
			       io->gpu.err);
	} else {
		nvmeof_explain(&err, res == -ENOMEM ? TEI_ERR_MEMORY :
						      TEI_ERR_CONTEXT,
			       io->file, res ? (int)-res : ENOSPC, "%s at %llu",
			       io->kind == NVMEOF_READ ? "read" : "write",
			       (unsigned long long)(io->at + io->done));
	}
	op_fail(ctx, io->op, &err);
}

/*
 * Continues a piece after a result that was too short. If the rest is not
 * aligned for a direct request, it goes through the page cache; if there is an
 * error, the kernel reports it then.
 */
static void io_again(struct tei_nvmeof *ctx, struct nvmeof_io *io)
	TEI_REQUIRES(ctx->lock)
{
	if (io->direct && !io->gpu.context &&
	    io->done & (io->file->block - 1))
		io_select(io, false);
	io_ready(ctx, io, true);
}

static bool io_transient(struct nvmeof_io *io, int64_t res)
{
	return (res == -EINTR || res == -EAGAIN) && io->tries++ < IO_TRIES;
}

static void sync_done(struct tei_nvmeof *ctx, struct nvmeof_io *io, int64_t res)
	TEI_REQUIRES(ctx->lock)
{
	struct nvmeof_file *f = io->file;
	struct tei_nvmeof_op *op, *tmp;
	struct tei_err err;

	if (res < 0) {
		f->failed_at = ++ctx->clock;
		nvmeof_explain(&err, TEI_ERR_CONTEXT, f, (int)-res,
			       "fdatasync");
	}
	tei_list_foreach_safe(op, tmp, &f->syncing, struct tei_nvmeof_op,
			      node) {
		tei_list_del(&op->node);
		if (op->born < f->failed_at) {
			if (res >= 0)
				nvmeof_explain(&err, TEI_ERR_CONTEXT, f, 0,
					       "an fdatasync of the file failed meanwhile");
			op_fail(ctx, op, &err);
		}
		tei_list_add_tail(&f->ended, &op->node);
	}
	io_give(ctx, io);
	file_due(ctx, f);
}

void nvmeof_io_done(struct tei_nvmeof *ctx, struct nvmeof_io *io, int64_t res)
{
	struct tei_nvmeof_op *op = io->op;

	if (ctx->hooks.spoil)
		res = ctx->hooks.spoil(ctx->hooks.spoil_arg, io, res);
	if (!(op && op->code) && io_transient(io, res)) {
		io_ready(ctx, io, false);
		return;
	}
	if (io->kind == NVMEOF_SYNC) {
		sync_done(ctx, io, res);
		return;
	}
	/* a file size limit may have cut a direct request to an unaligned
	 * length; the page cache accepts any length */
	if (res == -EINVAL && io->direct && !io->gpu.context) {
		io_select(io, false);
		io_ready(ctx, io, true);
		return;
	}
	if (res > 0) {
		io->done += (uint32_t)res;
		if (io->done < io->length && !op->code) {
			io_again(ctx, io);
			return;
		}
	}
	if (io->done < io->length) {
		/* after a failure of the operation, the rest of a piece is not
		 * moved, which is no error of this piece */
		if (res <= 0 || !op->code)
			io_fail(ctx, io, res < 0 ? res : 0);
	} else {
		__atomic_store_n(&op->moved, op->moved + io->length,
				 __ATOMIC_RELAXED);
		if (op->read)
			ctx->counters.rx_bytes += io->length;
		else
			ctx->counters.tx_bytes += io->length;
	}
	op->running--;
	io_give(ctx, io);
	op_step(ctx, op);
}

/* --- settling ------------------------------------------------------------ */

/* Starts an fdatasync for the writes in f->unsynced, unless one is running. */
static void file_sync(struct tei_nvmeof *ctx, struct nvmeof_file *f)
	TEI_REQUIRES(ctx->lock)
{
	struct nvmeof_io *io;

	if (tei_list_empty(&f->unsynced) || !tei_list_empty(&f->syncing))
		return;
	io = io_take(ctx, f);
	if (!io) {
		file_due(ctx, f);	/* the fdatasync is tried again when
					 * memory may be available */
		return;
	}
	tei_list_splice_tail(&f->syncing, &f->unsynced);
	io->kind = NVMEOF_SYNC;
	io->buf = NULL;
	io->done = 0;
	io->tries = 0;
	io->op = NULL;
	io->gpu.context = NULL;
	io_select(io, false);
	ctx->counters.syncs++;
	io_ready(ctx, io, false);
}

void nvmeof_file_settle(struct tei_nvmeof *ctx, struct nvmeof_file *f)
{
	struct tei_nvmeof_op *op, *tmp;
	struct tei_list list;
	uint64_t at = ++ctx->clock;
	struct tei_err err;
	int bad;

	tei_list_init(&list);
	tei_list_splice_tail(&list, &f->ended);
	f->looking = true;
	tei_mutex_unlock(&ctx->lock);
	bad = nvmeof_file_check(f, &err);
	tei_mutex_lock(&ctx->lock);
	f->looking = false;
	if (bad)
		file_break(f, &err);
	else
		f->looked_at = at;
	/* do this before the loop: the operations in "list" may hold the last
	 * references to the segment, and f must not be used after they have
	 * ended. Operations that remain in the lists of f keep the segment
	 * alive. */
	if (!tei_list_empty(&f->ended) ||
	    (!tei_list_empty(&f->unsynced) && tei_list_empty(&f->syncing)))
		file_due(ctx, f);
	tei_list_foreach_safe(op, tmp, &list, struct tei_nvmeof_op, node) {
		if (bad)
			op_fail(ctx, op, &err);
		op_stage_next(ctx, op);
	}
}

/* Calls the done callback of one operation; releases the lock meanwhile. */
static void op_notify(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op)
	TEI_REQUIRES(ctx->lock)
{
	struct nvmeof_ending ending = {
		.base = (uintptr_t)op->local,
		.end = (uintptr_t)op->local + op->length,
	};
	struct tei_nvmeof_seg *seg = op->seg;
	struct tei_err none, *err = op->err;
	int code = op->code;

	tei_list_del(&op->node);
	tei_list_del(&op->live_node);
	op->live = false;
	op->err = NULL;
	if (!code)
		ctx->counters.completed++;
	else if (code == TEI_NVMEOF_CANCELLED)
		ctx->counters.canceled++;
	else
		ctx->counters.failed++;
	tei_list_add_tail(&ctx->ending, &ending.node);
	tei_mutex_unlock(&ctx->lock);
	memset(&none, 0, sizeof(none));
	none.code = code;
	op->done(op, code, code ? err ? err : &none : NULL);
	free(err);
	tei_nvmeof_seg_put(seg);
	tei_mutex_lock(&ctx->lock);
	tei_list_del(&ending.node);
	pthread_cond_broadcast(&ctx->ended);
}

bool nvmeof_settle(struct tei_nvmeof *ctx)
{
	struct nvmeof_file *f;
	bool any = false;
	uint32_t n;

	for (n = 0; n < 64 && !tei_list_empty(&ctx->looks); n++) {
		f = tei_list_first(&ctx->looks, struct nvmeof_file, look_node);
		tei_list_del(&f->look_node);
		file_sync(ctx, f);
		if (!tei_list_empty(&f->ended)) {
			if (nvmeof_blocking_check(ctx, f))
				continue;
			nvmeof_file_settle(ctx, f);
			any = true;
		} else if (!tei_list_empty(&f->look_node)) {
			break;		/* there is no memory for a request, so
					 * the file is tried again later */
		}
	}
	while (!tei_list_empty(&ctx->over)) {
		op_notify(ctx, tei_list_first(&ctx->over, struct tei_nvmeof_op,
					      node));
		any = true;
	}
	return any;
}

/* --- public calls -------------------------------------------------------- */

/*
 * Returns the first file in the range of a write that has become shorter since
 * it was opened, or NULL. The write would make this file longer again. Skips
 * block devices and network files.
 */
static struct nvmeof_file *submit_glance(const struct tei_nvmeof_op *op,
					 struct tei_err *err)
{
	uint64_t end = op->offset + op->length;
	struct nvmeof_file *f;
	uint32_t i;

	if (op->read)
		return NULL;
	for (i = nvmeof_file_at(op->seg, op->offset); i < op->seg->count &&
	     op->seg->file[i].offset < end; i++) {
		f = &op->seg->file[i];
		if (!__atomic_load_n(&f->broken, __ATOMIC_RELAXED) &&
		    !f->remote && !f->device && nvmeof_file_glance(f, err))
			return f;
	}
	return NULL;
}

/*
 * Fails a write to a file that is open read-only, before any byte moves.
 * Without this check, the kernel would refuse the write later, with a less
 * clear error.
 */
static bool submit_refuse(const struct tei_nvmeof_op *op, struct tei_err *err)
{
	uint64_t end = op->offset + op->length;
	const struct nvmeof_file *f;
	uint32_t i;

	if (op->read)
		return false;
	for (i = nvmeof_file_at(op->seg, op->offset); i < op->seg->count &&
	     op->seg->file[i].offset < end; i++) {
		f = &op->seg->file[i];
		if (!f->read_only ||
		    __atomic_load_n(&f->broken, __ATOMIC_RELAXED))
			continue;
		nvmeof_explain(err, TEI_ERR_CONTEXT, f, f->read_only,
			       "is open read-only");
		snprintf(err->hint, sizeof(err->hint),
			 "after the permissions are changed, openSegmentNoCache opens the file again");
		return true;
	}
	return false;
}

int tei_nvmeof_submit(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op)
{
	const struct nvmeof_mem *m;
	struct nvmeof_file *bad;
	struct tei_err err;
	bool refused;
	int ret;

	if (!tei_nvmeof_seg_covers(op->seg, op->offset, op->length))
		return TEI_ERR_INVALID;
	refused = submit_refuse(op, &err);
	bad = refused ? NULL : submit_glance(op, &err);
	tei_mutex_lock(&ctx->lock);
	m = nvmeof_mem_find(ctx, op->local, op->length);
	if (ctx->stopping || !m) {
		ret = ctx->stopping ? TEI_ERR_CONTEXT : TEI_ERR_NOT_REGISTERED;
		tei_mutex_unlock(&ctx->lock);
		return ret;
	}
	op->gpu_base = m->range.base;
	op->gpu_context = m->context;
	op->err = NULL;
	op->next = op->moved = 0;
	op->running = op->stage = 0;
	op->code = 0;
	op->born = ++ctx->clock;
	op->live = true;
	op->queued = false;
	tei_list_init(&op->node);
	tei_nvmeof_seg_hold(op->seg);
	tei_list_add_tail(&ctx->live, &op->live_node);
	if (bad)
		file_break(bad, &err);
	if (bad || refused) {
		op_fail(ctx, op, &err);
		op_over(ctx, op);
	} else {
		op_queue(ctx, op);
	}
	ctx->backend->wake(ctx);
	tei_mutex_unlock(&ctx->lock);
	return 0;
}

/* Drops the pieces that have not started. */
static void op_drop(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op)
	TEI_REQUIRES(ctx->lock)
{
	/* an operation whose bytes have all moved is not cancelled */
	if (op->code || !(op->queued || op->running))
		return;
	op->code = TEI_NVMEOF_CANCELLED;
	op_step(ctx, op);
	ctx->backend->wake(ctx);
}

void tei_nvmeof_cancel(struct tei_nvmeof *ctx, struct tei_nvmeof_op *op)
{
	tei_mutex_lock(&ctx->lock);
	if (op->live)
		op_drop(ctx, op);
	tei_mutex_unlock(&ctx->lock);
}

void nvmeof_cancel_all(struct tei_nvmeof *ctx)
{
	struct tei_nvmeof_op *op;

	tei_mutex_lock(&ctx->lock);
	ctx->stopping = true;
	tei_list_foreach(op, &ctx->live, struct tei_nvmeof_op, live_node)
		op_drop(ctx, op);
	while (!tei_list_empty(&ctx->live) || !tei_list_empty(&ctx->ending))
		nvmeof_wait(ctx, UINT64_MAX / 2);
	tei_mutex_unlock(&ctx->lock);
}
