/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "prov/nvmeof/nvmeof_int.h"
#include "util/clock.h"
#include "util/thread.h"

/*
 * The back end for kernels without io_uring: each thread runs one request at a
 * time. All signals are blocked in these threads, including SIGXFSZ, so a write
 * beyond RLIMIT_FSIZE is an error and does not kill the process.
 *
 * Threads may block for long on storage that does not answer. Therefore one
 * thread is kept idle: if no thread is idle, another one is started. There are
 * at most ctx->threads * NVMEOF_CROWD + 1 threads, and more than ctx->threads +
 * 1 only while files are stalled.
 */

struct pool {
	uint32_t max;
	/* guarded by ctx->lock */
	uint32_t count;
	uint32_t sleepers;
	bool quit;
	pthread_t thread[];
};

static int64_t pool_run(const struct tei_nvmeof *ctx, const struct nvmeof_io *io)
{
	struct iovec iov = {
		/* an fdatasync (NVMEOF_SYNC) has no buf */
		.iov_base = io->buf ? io->buf + io->done : NULL,
		.iov_len = io->length - io->done,
	};
	off_t at = (off_t)(io->at + io->done);
	ssize_t n = -1;

	if (ctx->hooks.hold)
		ctx->hooks.hold(ctx->hooks.hold_arg, io->file);
	switch (io->kind) {
	case NVMEOF_READ:
		n = preadv2(io->fd, &iov, 1, at, 0);
		break;
	case NVMEOF_WRITE:
		n = pwritev2(io->fd, &iov, 1, at, nvmeof_io_flags(ctx, io));
		break;
	case NVMEOF_SYNC:
		n = fdatasync(io->fd);
		break;
	}
	return n < 0 ? -errno : n;
}

static void *pool_main(void *arg);

/* Starts another thread if none is idle. */
static void pool_spare(struct tei_nvmeof *ctx, struct pool *p)
	TEI_REQUIRES(ctx->lock)
{
	if (!p->sleepers && p->count < p->max && p->count <= ctx->all &&
	    !tei_thread_start(&p->thread[p->count], false, pool_main, ctx))
		p->count++;
}

/* Runs one ready request; releases the lock meanwhile. Returns false if there
 * was none. */
static bool pool_step(struct tei_nvmeof *ctx, struct pool *p)
	TEI_REQUIRES(ctx->lock)
{
	struct nvmeof_io *io;
	int64_t res;

	if (tei_list_empty(&ctx->ready))
		return false;
	io = tei_list_first(&ctx->ready, struct nvmeof_io, node);
	tei_list_del(&io->node);
	if (p->sleepers && !tei_list_empty(&ctx->ready))
		pthread_cond_signal(&ctx->work);
	pool_spare(ctx, p);
	tei_mutex_unlock(&ctx->lock);
	nvmeof_io_fill(io);
	res = pool_run(ctx, io);
	nvmeof_io_copy(io, res);
	tei_mutex_lock(&ctx->lock);
	nvmeof_io_done(ctx, io, res);
	return true;
}

static void *pool_main(void *arg)
{
	struct tei_nvmeof *ctx = arg;
	struct pool *p = ctx->backend_state;
	bool some;

	tei_mutex_lock(&ctx->lock);
	while (!p->quit) {
		some = nvmeof_settle(ctx);
		nvmeof_pump(ctx);
		if (pool_step(ctx, p) || some || !tei_list_empty(&ctx->over))
			continue;
		p->sleepers++;
		tei_mutex_wait(&ctx->work, &ctx->lock, 3600 * TEI_NS_PER_SEC);
		p->sleepers--;
	}
	tei_mutex_unlock(&ctx->lock);
	return NULL;
}

static void pool_stop(struct tei_nvmeof *ctx)
{
	struct pool *p = ctx->backend_state;
	uint32_t i;

	tei_mutex_lock(&ctx->lock);
	p->quit = true;
	pthread_cond_broadcast(&ctx->work);
	tei_mutex_unlock(&ctx->lock);
	for (i = 0; i < p->count; i++)
		pthread_join(p->thread[i], NULL);
	free(p);
	ctx->backend_state = NULL;
}

static int pool_start(struct tei_nvmeof *ctx, struct tei_err *err)
{
	uint32_t max = ctx->threads * NVMEOF_CROWD + 1;
	struct pool *p = calloc(1, sizeof(*p) + max * sizeof(p->thread[0]));

	ctx->backend_state = p;
	if (p) {
		p->max = max;
		tei_mutex_lock(&ctx->lock);
		while (p->count < ctx->threads &&
		       !tei_thread_start(&p->thread[p->count], false, pool_main,
					 ctx))
			p->count++;
		if (ctx->room > p->count)
			ctx->room = p->count;
		tei_mutex_unlock(&ctx->lock);
	}
	if (p && p->count)
		return 0;
	free(p);
	memset(err, 0, sizeof(*err));
	strcpy(err->text, "no thread for files could be started");
	return TEI_ERR_MEMORY;
}

static void pool_wake(struct tei_nvmeof *ctx)
{
	pthread_cond_signal(&ctx->work);
}

const struct nvmeof_backend nvmeof_pool = {
	.name = "threads",
	.start = pool_start,
	.stop = pool_stop,
	.wake = pool_wake,
};
