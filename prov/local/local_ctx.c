/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "prov/local/local_int.h"
#include "prov/local/tei_local_stats.h"
#include "util/clock.h"
#include "util/settings.h"
#include "util/thread.h"

#define CTX_SUBSYS	"local"
#define CTX_WORKERS_MAX 16u /* limit of copy threads if the settings give
			     * none */

int local_guard(struct tei_local *ctx)
{
	bool ours = ctx->wiped ?
		atomic_load_explicit(&ctx->own->head.magic,
				     memory_order_relaxed) == LOCAL_MAGIC :
		getpid() == ctx->host.pid;

	return ours ? 0 : TEI_ERR_CONTEXT;
}

static void ctx_fill_err(struct tei_err *err, int code, int sys_errno,
			 const char *fmt, va_list ap)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->prov_errno = sys_errno;
	err->when_ns = tei_now_ns();
	strcpy(err->provider, "local");
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
}

void local_explain(struct tei_err *err, int code, int sys_errno,
		   const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return;
	va_start(ap, fmt);
	ctx_fill_err(err, code, sys_errno, fmt, ap);
	va_end(ap);
}

static void ctx_log(struct tei_local *ctx, const struct tei_err *err)
{
	TEI_LOG_LIMITED(&ctx->log_limit, TEI_LOG_ERROR, CTX_SUBSYS, "%s%s%s",
			err->peer, err->peer[0] ? ": " : "", err->text);
}

int local_fail(struct tei_local *ctx, struct tei_err *err, int code,
	       const struct tei_local_peer *peer, int sys_errno,
	       const char *fmt, ...)
{
	struct tei_err record;
	va_list ap;

	va_start(ap, fmt);
	ctx_fill_err(&record, code, sys_errno, fmt, ap);
	va_end(ap);
	if (peer)
		snprintf(record.peer, sizeof(record.peer), "process %d",
			 peer->id.pid);
	if (err)
		*err = record;
	tei_err_set_last(&record);
	ctx_log(ctx, &record);
	return code;
}

bool local_wait(pthread_cond_t *c, struct tei_mutex *l, uint64_t deadline_ns)
{
	struct timespec ts = {
		.tv_sec = (time_t)(deadline_ns / TEI_NS_PER_SEC),
		.tv_nsec = (long)(deadline_ns % TEI_NS_PER_SEC),
	};
	int rc;

	if (deadline_ns == UINT64_MAX)
		rc = pthread_cond_wait(c, &l->m);
	else
		rc = pthread_cond_timedwait(c, &l->m, &ts);
	tei_mutex_note_held(l);
	return rc != ETIMEDOUT;
}

static void ctx_fill_shared_table(struct local_shared_table *b,
				  uint64_t incarnation)
{
	atomic_store(&b->head.incarnation, incarnation);
	atomic_store(&b->head.layout, local_layout());
	atomic_store(&b->head.magic, LOCAL_MAGIC);
}

/*
 * Creates the shared registration table. Without it, no copies between this
 * process and other processes are possible.
 */
static void ctx_share(struct tei_local *ctx)
{
	local_host_read(&ctx->host);
	ctx->shared_fd = -1;
	if (!ctx->host.usable)
		return;
	ctx->shared = local_shared_table_shared(&ctx->shared_fd);
	if (!ctx->shared) {
		ctx->host.usable = false;
		ctx->host.missing = "sealed memfd";
		return;
	}
	ctx_fill_shared_table(ctx->shared, ctx->incarnation);
}

static void ctx_random(struct tei_local *ctx)
{
	uint64_t v = 0;

	if (getrandom(&v, sizeof(v), GRND_NONBLOCK) != (ssize_t)sizeof(v) || !v)
		v = (tei_now_ns() ^ (uint64_t)getpid() << 40) + 1;
	ctx->incarnation = v;
}

/* Returns the largest number of copy threads. */
static uint32_t ctx_workers(const struct tei_settings *settings)
{
	uint32_t n;

	if (settings->copies.threads)
		return settings->copies.threads;
	n = tei_cpus() / 2;
	n = n > 1 ? n : 1;
	return n < CTX_WORKERS_MAX ? n : CTX_WORKERS_MAX;
}

uint32_t tei_local_threads(const struct tei_local *ctx)
{
	return ctx->workers;
}

static void ctx_init_sync(struct tei_local *ctx) TEI_NO_TSA
{
	pthread_condattr_t attr;

	tei_mutex_init(&ctx->lock);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ctx->work, &attr);
	pthread_cond_init(&ctx->ended, &attr);
	pthread_condattr_destroy(&attr);
	tei_list_init(&ctx->live);
	tei_list_init(&ctx->queue);
	tei_list_init(&ctx->ending);
	local_memory_init(ctx);
	local_watch_init(&ctx->watch);
}

int tei_local_init(const struct tei_settings *settings, struct tei_err *err,
		   struct tei_local **out)
{
	struct tei_local *ctx;

	if (!settings || !out)
		return tei_err_fail(err, TEI_ERR_INVALID, CTX_SUBSYS, NULL,
				    "settings or out is NULL");
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		goto err_memory;
	ctx->workers = ctx_workers(settings);
	ctx->spin_ns = settings->sched.spin_us * TEI_NS_PER_US;
	ctx->stall_ns = settings->failure.slice_timeout_s * TEI_NS_PER_SEC;
	ctx->threads = calloc(ctx->workers, sizeof(*ctx->threads));
	if (!ctx->threads)
		goto err_ctx;
	if (!local_table_init(&ctx->table))
		goto err_threads;
	ctx->own = local_shared_table_private(&ctx->wiped);
	if (!ctx->own)
		goto err_table;
	ctx_random(ctx);
	ctx_fill_shared_table(ctx->own, ctx->incarnation);
	ctx_share(ctx);
	ctx->owner = local_owner(ctx->host.pid, ctx->host.start_time);
	ctx_init_sync(ctx);
	*out = ctx;
	return 0;

err_table:
	local_table_fini(&ctx->table);
err_threads:
	free(ctx->threads);
err_ctx:
	free(ctx);
err_memory:
	return tei_err_fail(err, TEI_ERR_MEMORY, CTX_SUBSYS, NULL,
			    "out of memory");
}

/*
 * Causes new pieces of other processes to be refused, and waits up to one
 * second for the pieces that these processes are copying. Returns false if they
 * are still being copied.
 */
static bool ctx_withdraw(struct tei_local *ctx)
{
	bool drained;

	if (ctx->shared)
		atomic_store(&ctx->shared->head.incarnation, 0);
	tei_mutex_lock(&ctx->lock);
	local_regions_clear(ctx);
	tei_mutex_unlock(&ctx->lock);
	drained = !ctx->shared ||
		  local_slots_drain(ctx->shared, 0, UINT64_MAX,
				    tei_now_ns() + TEI_NS_PER_SEC);
	if (!drained)
		TEI_WARN(CTX_SUBSYS, "context closed although another process has not finished a copy: is that process stopped?");
	return drained;
}

/*
 * Frees the memory that exists in a forked child, too. A child has no threads
 * and no mapping of the shared registration table, and the number of its file
 * descriptor may belong to another file.
 */
static void ctx_free(struct tei_local *ctx) TEI_NO_TSA
{
	local_shared_table_unmap(ctx->own);
	local_table_fini(&ctx->table);
	free(ctx->memory.extents);
	free(ctx->gpu.list);
	free(ctx->gpu.files);
	free(ctx->threads);
	free(ctx);
}

void tei_local_fini(struct tei_local *ctx)
{
	if (!ctx)
		return;
	if (local_guard(ctx)) {
		ctx_free(ctx);
		return;
	}
	local_pool_join(ctx);
	local_memory_fini(ctx, ctx_withdraw(ctx));
	local_watch_fini(&ctx->watch);
	local_gpu_close(ctx);
	if (ctx->shared) {
		local_shared_table_unmap(ctx->shared);
		close(ctx->shared_fd);
	}
	pthread_cond_destroy(&ctx->work);
	pthread_cond_destroy(&ctx->ended);
	tei_mutex_fini(&ctx->lock);
	ctx_free(ctx);
}

static uint64_t ctx_read(_Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

void tei_local_stats(struct tei_local *ctx, struct tei_local_counters *out)
{
	memset(out, 0, sizeof(*out));
	if (local_guard(ctx))
		return;
	out->tx_bytes = ctx_read(&ctx->tx_bytes);
	out->rx_bytes = ctx_read(&ctx->rx_bytes);
	out->pieces = ctx_read(&ctx->pieces);
	out->mapped = ctx_read(&ctx->mapped);
	out->errors = ctx_read(&ctx->errors);
	out->queued_bytes = ctx_read(&ctx->queued_bytes);
	tei_mutex_lock(&ctx->lock);
	out->threads = ctx->nthreads;
	out->regions = ctx->table.nregions;
	tei_mutex_unlock(&ctx->lock);
}
