/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The target of a request: the transports that reach it, and the kind of its
 * memory.
 */
#include "api/engine_int.h"
#include "meta/tei_meta_desc.h"

#include <string.h>

#include "api/engine_transport.h"

int engine_target_set(struct engine *e, segment_id_t id,
		      struct engine_target *t)
{
	struct engine_segment *s = NULL;

	if (t->valid && t->id == id)
		return 0;
	memset(t, 0, sizeof(*t));
	t->id = id;
	if (id != LOCAL_SEGMENT) {
		s = engine_segment_find(e, id);
		if (!s)
			return 1;
	}
	t->valid = true;
	t->gpu = s && s->gpu ? s->desc : NULL;
	t->vias = s ? &s->vias : &e->own_vias;
	if (t->vias->n)
		return 0;
	engine_segment_unresolved(e, s);
	return 8;
}

bool engine_target_gpu(const struct engine_target *target, uint64_t addr)
{
	const struct tei_meta_buffer *b;

	if (!target->gpu)
		return false;
	b = tei_meta_desc_find(target->gpu, addr, 1);
	return b && engine_segment_on_gpu(b);
}

bool engine_target_needs_slot(const struct engine_target *target, uint64_t addr,
			uint64_t len)
{
	const struct tei_meta_buffer *b;
	uint64_t have;

	/* memory that is not published counts as host memory; the transport
	 * refuses the request later */
	for (; target->gpu && len; addr += have, len -= have) {
		b = tei_meta_desc_find(target->gpu, addr, 1);
		if (!b)
			return false;
		if (engine_segment_on_gpu(b) &&
		    !tei_meta_desc_has_keys(target->gpu, b))
			return true;
		have = b->length - (addr - b->addr);
		have = have < len ? have : len;
	}
	return false;
}
