/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "prov/gpu/gpu_int.h"
#include "util/clock.h"
#include "util/settings.h"
#include "util/thread.h"

bool tei_gpu_present(void)
{
	return tei_cuda_present();
}

bool gpu_wait(struct tei_gpu *ctx, uint64_t deadline_ns)
{
	uint64_t now = tei_now_ns();

	if (now >= deadline_ns)
		return false;
	tei_mutex_wait(&ctx->ended, &ctx->lock, deadline_ns - now);
	return true;
}

static void gpu_free(struct tei_gpu *ctx) TEI_NO_TSA
{
	struct gpu_mem *m;
	uint32_t i;

	/* Memory stays pinned or mapped while an abandoned copy may access it.
	 * If the GPU hangs, no memory of another process is unmapped, and its
	 * context is not released: the driver would wait for the GPU. */
	tei_range_foreach (m, i, &ctx->mem, struct gpu_mem, range) {
		if (!tei_gpu_mem_idle(ctx, m->range.base,
				      m->range.end - m->range.base))
			continue;
		if (m->pinned)
			gpu_mem_unpin(ctx, m);
		if (m->peer && !ctx->given_up)
			gpu_peer_unmap(ctx, m);
	}
	for (i = 0; i < TEI_GPU_CONTEXTS; i++)
		if (ctx->contexts[i].memories)
			gpu_context_close(ctx, &ctx->contexts[i]);
	tei_range_foreach (m, i, &ctx->mem, struct gpu_mem, range) {
		if (m->peer && !ctx->given_up)
			gpu_peer_release(ctx, m);
		free(m);
	}
	tei_range_fini(&ctx->mem);
	gpu_alloc_free_all(ctx);
	tei_cuda_close(ctx->cuda);
	pthread_cond_destroy(&ctx->work);
	pthread_cond_destroy(&ctx->ended);
	tei_mutex_fini(&ctx->lock);
	tei_mutex_fini(&ctx->admin);
	free(ctx);
}

int tei_gpu_init(const struct tei_settings *settings, struct tei_err *err,
		 struct tei_gpu **out) TEI_NO_TSA
{
	struct tei_gpu *ctx = calloc(1, sizeof(*ctx));
	uint32_t i;
	int ret;

	if (!ctx) {
		memset(err, 0, sizeof(*err));
		err->code = TEI_ERR_MEMORY;
		return err->code;
	}
	ret = tei_cuda_open(err, &ctx->cuda);
	if (ret) {
		free(ctx);
		return ret;
	}
	ctx->stall_ns = settings->failure.slice_timeout_s * TEI_NS_PER_SEC;
	tei_mutex_init(&ctx->lock);
	tei_mutex_init(&ctx->admin);
	tei_cond_init(&ctx->work);
	tei_cond_init(&ctx->ended);
	tei_list_init(&ctx->live);
	tei_list_init(&ctx->over);
	for (i = 0; i < TEI_GPU_CONTEXTS; i++)
		tei_list_init(&ctx->contexts[i].queue);
	*out = ctx;
	return 0;
}

void tei_gpu_fini(struct tei_gpu *ctx)
{
	struct tei_gpu_op *op;
	bool started;

	if (!ctx)
		return;
	tei_mutex_lock(&ctx->lock);
	ctx->stopping = true;
	tei_list_foreach(op, &ctx->live, struct tei_gpu_op, live_node)
		gpu_op_drop(ctx, op);
	started = ctx->started;
	pthread_cond_signal(&ctx->work);
	tei_mutex_unlock(&ctx->lock);
	if (started)
		pthread_join(ctx->thread, NULL);
	if (ctx->given_up)
		TEI_WARN("gpu", "context closed with %u %s that the GPU has not completed",
			 ctx->given_up,
			 ctx->given_up == 1 ? "copy" : "copies");
	gpu_free(ctx);
}

/* ---- operations ------------------------------------------------------- */

int gpu_staff(struct tei_gpu *ctx)
{
	if (ctx->started)
		return 0;
	if (tei_thread_start(&ctx->thread, false, gpu_main, ctx))
		return TEI_ERR_MEMORY;
	pthread_setname_np(ctx->thread, "tei-gpu");
	ctx->started = true;
	return 0;
}

static int gpu_submit(struct tei_gpu *ctx, struct tei_gpu_op *op)
	TEI_REQUIRES(ctx->lock)
{
	const struct gpu_mem *dst = gpu_mem_find(ctx, op->dst, op->length,
						 op->held);
	const struct gpu_mem *src = gpu_mem_find(ctx, op->src, op->length,
						 op->held);
	int ret;

	if (ctx->stopping)
		return TEI_ERR_CONTEXT;
	if (!dst || !src)
		return TEI_ERR_NOT_REGISTERED;
	if (!op->length || (!dst->context && !src->context))
		return TEI_ERR_INVALID;
	ret = gpu_staff(ctx);
	if (ret)
		return ret;
	op->context = dst->context ? dst->context : src->context;
	op->err = NULL;
	op->queued_ns = tei_now_ns();
	op->next = op->moved = op->refused_ns = 0;
	op->running = 0;
	op->code = 0;
	op->live = op->queued = true;
	tei_list_add_tail(&ctx->live, &op->live_node);
	tei_list_add_tail(&op->context->queue, &op->node);
	pthread_cond_signal(&ctx->work);
	return 0;
}

int tei_gpu_submit(struct tei_gpu *ctx, struct tei_gpu_op *op)
{
	int ret;

	tei_mutex_lock(&ctx->lock);
	ret = gpu_submit(ctx, op);
	tei_mutex_unlock(&ctx->lock);
	return ret;
}

void tei_gpu_set_sweep(struct tei_gpu *ctx, void (*sweep)(void *arg), void *arg)
{
	ctx->sweep = sweep;
	ctx->sweep_arg = arg;
}

bool tei_gpu_drain(struct tei_gpu *ctx, uint64_t deadline_ns)
{
	bool none;

	tei_mutex_lock(&ctx->lock);
	while (!(none = tei_list_empty(&ctx->live) && !ctx->ending) &&
	       gpu_wait(ctx, deadline_ns))
		;
	tei_mutex_unlock(&ctx->lock);
	return none;
}

void tei_gpu_cancel(struct tei_gpu *ctx, struct tei_gpu_op *op)
{
	tei_mutex_lock(&ctx->lock);
	if (op->live)
		gpu_op_drop(ctx, op);
	tei_mutex_unlock(&ctx->lock);
}
