/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "prov/nvmeof/nvmeof_int.h"
#include "util/clock.h"
#include "util/thread.h"

/*
 * Side threads. A file server may block calls for which there is no
 * asynchronous request: the check of a path, and close. These threads make such
 * calls, so that other files do not wait. They are started on demand.
 */

static void *blocking_main(void *arg)
{
	struct tei_nvmeof *ctx = arg;
	struct nvmeof_blocking *s = &ctx->side;
	struct tei_nvmeof_seg *seg;
	struct nvmeof_file *f;

	tei_mutex_lock(&ctx->lock);
	for (;;) {
		if (!tei_list_empty(&s->looks)) {
			f = tei_list_first(&s->looks, struct nvmeof_file,
					   look_node);
			tei_list_del(&f->look_node);
			s->waiting--;
			nvmeof_file_settle(ctx, f);
			ctx->backend->wake(ctx);
		} else if (!tei_list_empty(&s->closes)) {
			seg = tei_list_first(&s->closes, struct tei_nvmeof_seg,
					     node);
			tei_list_del(&seg->node);
			s->waiting--;
			tei_mutex_unlock(&ctx->lock);
			nvmeof_seg_free(seg);
			tei_mutex_lock(&ctx->lock);
		} else if (s->quit) {
			break;
		} else {
			s->idle++;
			tei_mutex_wait(&s->work, &ctx->lock,
				       3600 * TEI_NS_PER_SEC);
			s->idle--;
		}
	}
	tei_mutex_unlock(&ctx->lock);
	return NULL;
}

/*
 * Counts one more entry of the lists looks and closes, and wakes an idle thread
 * or starts one. Returns false if there is no thread and none can be started.
 */
static bool blocking_call(struct tei_nvmeof *ctx) TEI_REQUIRES(ctx->lock)
{
	struct nvmeof_blocking *s = &ctx->side;

	if (s->idle <= s->waiting && s->count < NVMEOF_SIDE_MAX &&
	    !tei_thread_start(&s->thread[s->count], false, blocking_main, ctx))
		s->count++;
	if (!s->count)
		return false;
	s->waiting++;
	pthread_cond_signal(&s->work);
	return true;
}

bool nvmeof_blocking_check(struct tei_nvmeof *ctx, struct nvmeof_file *f)
{
	if (!f->remote || !blocking_call(ctx))
		return false;
	f->looking = true;
	tei_list_del(&f->look_node);	/* f may be in ctx->looks */
	tei_list_add_tail(&ctx->side.looks, &f->look_node);
	return true;
}

bool nvmeof_blocking_close(struct tei_nvmeof *ctx, struct tei_nvmeof_seg *seg)
{
	bool some = false, taken = false;
	uint32_t i;

	for (i = 0; i < seg->count; i++)
		some |= seg->file[i].remote;
	if (!some)
		return false;
	tei_mutex_lock(&ctx->lock);
	taken = blocking_call(ctx);
	if (taken)
		tei_list_add_tail(&ctx->side.closes, &seg->node);
	tei_mutex_unlock(&ctx->lock);
	return taken;
}

void nvmeof_blocking_init(struct tei_nvmeof *ctx)
{
	tei_list_init(&ctx->side.looks);
	tei_list_init(&ctx->side.closes);
	tei_cond_init(&ctx->side.work);
}

void nvmeof_blocking_stop(struct tei_nvmeof *ctx)
{
	struct nvmeof_blocking *s = &ctx->side;
	uint32_t i;

	tei_mutex_lock(&ctx->lock);
	s->quit = true;
	pthread_cond_broadcast(&s->work);
	tei_mutex_unlock(&ctx->lock);
	for (i = 0; i < s->count; i++)
		pthread_join(s->thread[i], NULL);
}

void nvmeof_blocking_fini(struct tei_nvmeof *ctx)
{
	pthread_cond_destroy(&ctx->side.work);
}
