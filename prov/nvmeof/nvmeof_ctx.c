/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "prov/nvmeof/nvmeof_int.h"
#include "util/clock.h"
#include "util/settings.h"

static int ctx_word(const char *name, const char *value,
		    const char *const *words, struct tei_err *err)
{
	int i;

	for (i = 0; words[i]; i++)
		if (!strcmp(value, words[i]))
			return i;
	return tei_err_fail(err, TEI_ERR_INVALID, "nvmeof", NULL,
			    "%s=%.32s: must be %s, %s or %s", name, value,
			    words[0], words[1], words[2]);
}

static void ctx_lists(struct tei_nvmeof *ctx)
{
	tei_list_init(&ctx->live);
	tei_list_init(&ctx->turn);
	tei_list_init(&ctx->busy);
	tei_list_init(&ctx->over);
	tei_list_init(&ctx->looks);
	tei_list_init(&ctx->ending);
	tei_list_init(&ctx->idle);
	tei_list_init(&ctx->ready);
	tei_list_init(&ctx->gpu_ready);
	tei_list_init(&ctx->bounces);
	tei_mutex_init(&ctx->lock);
	tei_cond_init(&ctx->work);
	tei_cond_init(&ctx->ended);
	nvmeof_blocking_init(ctx);
}

static void ctx_free(struct tei_nvmeof *ctx)
{
	struct nvmeof_mem *m;
	uint32_t i;

	nvmeof_bounce_fini(ctx);
	nvmeof_blocking_fini(ctx);
	pthread_cond_destroy(&ctx->work);
	pthread_cond_destroy(&ctx->ended);
	tei_mutex_fini(&ctx->lock);
	tei_range_foreach (m, i, &ctx->mem, struct nvmeof_mem, range)
		nvmeof_mem_free(m);
	tei_range_fini(&ctx->mem);
	free(ctx->ios);
	free(ctx);
}

static struct tei_nvmeof *ctx_new(const struct tei_settings *settings)
{
	struct tei_nvmeof *ctx = calloc(1, sizeof(*ctx));
	uint32_t i;

	if (!ctx)
		return NULL;
	ctx_lists(ctx);
	ctx->use_direct = settings->files.direct;
	ctx->depth = settings->files.depth;
	ctx->threads = settings->files.threads;
	ctx->room = ctx->depth;
	ctx->part = NVMEOF_PART;
	ctx->ios = calloc(ctx->depth, sizeof(*ctx->ios));
	if (!ctx->ios) {
		ctx_free(ctx);
		return NULL;
	}
	for (i = 0; i < ctx->depth; i++)
		tei_list_add_tail(&ctx->idle, &ctx->ios[i].node);
	return ctx;
}

enum { CTX_AUTO, CTX_URING, CTX_THREADS };

static int ctx_start(struct tei_nvmeof *ctx, int io, struct tei_err *err)
{
	struct tei_err why;
	int ret = TEI_ERR_UNSUPPORTED;

	memset(&why, 0, sizeof(why));
	if (io != CTX_THREADS) {
		ctx->backend = &nvmeof_uring;
		ret = nvmeof_uring.start(ctx, &why);
	}
	if (ret && io == CTX_URING)
		return tei_err_fail(err, ret, "nvmeof",
				    "MOONRAIL_FILE_IO=auto uses threads if io_uring is not available",
				    "%s", why.text);
	if (ret) {
		if (io == CTX_AUTO)
			TEI_INFO("nvmeof", "files by threads: %s", why.text);
		ctx->backend = &nvmeof_pool;
		ret = nvmeof_pool.start(ctx, &why);
		if (ret)
			ret = tei_err_fail(err, ret, "nvmeof", NULL, "%s",
					   why.text);
	}
	return ret;
}

int tei_nvmeof_init(const struct tei_settings *settings, struct tei_err *err,
		    struct tei_nvmeof **out)
{
	static const char *const ios[] = { "auto", "uring", "threads", NULL };
	static const char *const syncs[] = { "none", "data", "dsync", NULL };
	struct tei_nvmeof *ctx;
	int io, sync, ret;

	io = ctx_word("MOONRAIL_FILE_IO", settings->files.io, ios, err);
	sync = io < 0 ? io
		      : ctx_word("MOONRAIL_FILE_SYNC", settings->files.sync,
				 syncs, err);
	if (sync < 0)
		return sync;
	ctx = ctx_new(settings);
	if (!ctx)
		return tei_err_fail(err, TEI_ERR_MEMORY, "nvmeof", NULL,
				    "out of memory");
	ctx->sync = (enum nvmeof_sync)sync;
	ret = ctx_start(ctx, io, err);
	if (ret)
		ctx_free(ctx);
	else
		*out = ctx;
	return ret;
}

void tei_nvmeof_fini(struct tei_nvmeof *ctx)
{
	if (!ctx)
		return;
	nvmeof_cancel_all(ctx);
	nvmeof_blocking_stop(ctx);
	ctx->backend->stop(ctx);
	nvmeof_cufile_stop(ctx);
	ctx_free(ctx);
}

const char *tei_nvmeof_kind(const struct tei_nvmeof *ctx)
{
	return ctx->backend->name;
}

bool nvmeof_wait(struct tei_nvmeof *ctx, uint64_t deadline_ns)
{
	uint64_t now = tei_now_ns();

	if (now >= deadline_ns)
		return false;
	tei_mutex_wait(&ctx->ended, &ctx->lock, deadline_ns - now);
	return true;
}

bool tei_nvmeof_drain(struct tei_nvmeof *ctx, uint64_t deadline_ns)
{
	bool empty;

	tei_mutex_lock(&ctx->lock);
	while (!(empty = tei_list_empty(&ctx->live) &&
			 tei_list_empty(&ctx->ending)) &&
	       nvmeof_wait(ctx, deadline_ns))
		;
	tei_mutex_unlock(&ctx->lock);
	return empty;
}

void tei_nvmeof_stats(struct tei_nvmeof *ctx, struct tei_nvmeof_counters *out)
{
	tei_mutex_lock(&ctx->lock);
	*out = ctx->counters;
	tei_mutex_unlock(&ctx->lock);
}
