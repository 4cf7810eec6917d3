/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <sys/mman.h>

#include "prov/nvmeof/nvmeof_int.h"
#include "topo/tei_topo.h"

static void bounce_free(struct tei_nvmeof *ctx, struct nvmeof_bounce *b)
{
	tei_list_del(&b->node);
	munmap(b->mem, TEI_NVMEOF_PIECE);
	free(b);
	ctx->nbounces--;
}

static struct nvmeof_bounce *bounce_new(struct tei_nvmeof *ctx, int numa)
{
	struct nvmeof_bounce *b = calloc(1, sizeof(*b));

	if (b)
		b->mem = tei_topo_map(numa, TEI_NVMEOF_PIECE);
	if (!b || !b->mem) {
		free(b);
		return NULL;
	}
	tei_list_init(&b->node);
	b->numa = numa;
	ctx->nbounces++;
	return b;
}

struct nvmeof_bounce *nvmeof_bounce_take(struct tei_nvmeof *ctx, int numa)
{
	struct nvmeof_bounce *b;

	tei_list_foreach(b, &ctx->bounces, struct nvmeof_bounce, node) {
		if (numa >= 0 && b->numa != numa)
			continue;
		tei_list_del(&b->node);
		return b;
	}
	if (ctx->nbounces < ctx->depth)
		return bounce_new(ctx, numa);
	if (tei_list_empty(&ctx->bounces))
		return NULL;		/* requests of stalled files use all
					 * bounce buffers */
	if (++ctx->misses % NVMEOF_MISSES) {
		b = tei_list_first(&ctx->bounces, struct nvmeof_bounce, node);
		tei_list_del(&b->node);
		return b;
	}
	bounce_free(ctx, tei_container_of(ctx->bounces.prev,
					  struct nvmeof_bounce, node));
	return bounce_new(ctx, numa);
}

void nvmeof_bounce_give(struct tei_nvmeof *ctx, struct nvmeof_bounce *b)
{
	tei_list_add_head(&ctx->bounces, &b->node);
}

void nvmeof_bounce_fini(struct tei_nvmeof *ctx)
{
	struct nvmeof_bounce *b, *tmp;

	tei_list_foreach_safe(b, tmp, &ctx->bounces, struct nvmeof_bounce,
			      node)
		bounce_free(ctx, b);
}
