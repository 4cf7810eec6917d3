/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Builds the content of the own descriptor: rails, regions, local identity,
 * topology.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine_int.h"
#include "api/engine_memory.h"
#include "api/engine_transport.h"
#include "meta/tei_meta_desc.h"
#include "topo/tei_topo.h"

static int engine_desc_rails(struct engine *e, struct tei_meta_desc *desc,
			     struct engine_desc_rails *rails,
			     struct tei_err *err)
{
	struct tei_rail_desc d;
	struct tei_meta_first first;
	struct tei_meta_rail rail;
	bool have_first = false;
	size_t i;
	int ret = 0;

	rails->n = 0;
	for (i = 0; i < tei_rail_count(e->dp) && !ret; i++) {
		memset(&rail, 0, sizeof(rail));
		if (tei_rail_describe(e->dp, i, &d) || !d.open || d.hidden)
			continue;
		snprintf(rail.name, sizeof(rail.name), "%s", d.name);
		snprintf(rail.provider, sizeof(rail.provider), "%s",
			 d.provider);
		engine_addr_pack(&d.known, &rail.address);
		ret = tei_meta_desc_add_rail(desc, &rail, err);
		rails->rail[rails->n++] = i;
		if (ret || have_first || !d.known.len)
			continue;
		memset(&first, 0, sizeof(first));
		snprintf(first.provider, sizeof(first.provider), "%s",
			 d.provider);
		first.address = rail.address;
		ret = tei_meta_desc_set_first(desc, &first, err);
		have_first = true;
	}
	return ret;
}

/*
 * Returns the end of the longest part of the region that begins at `at` and has
 * a single location. Writes that location to "where". "parts" is the parsed
 * form of r->parts.
 */
static const char *engine_desc_part(const struct engine_region *r,
				    const struct tei_topo_where *parts,
				    const char *at, char where[TEI_TOPO_NAME])
{
	const char *start = r->addr;
	char next[TEI_TOPO_NAME];
	uint64_t end, more;

	if (!r->parts) {
		snprintf(where, TEI_TOPO_NAME, "%s", r->location);
		return start + r->length;
	}
	tei_topo_where_part(parts, r->length, (uint64_t)(at - start), where,
			    &end);
	for (; end < r->length; end = more) {
		tei_topo_where_part(parts, r->length, end, next, &more);
		if (strcmp(next, where))
			break;
	}
	return start + end;
}

/* Returns the length of the region's entry that begins at `at`. An entry ends
 * where the memory keys or the location change. */
static uint64_t engine_desc_piece(struct engine *e,
				  const struct engine_region *r,
				  const struct tei_topo_where *parts,
				  const char *at)
{
	char where[TEI_TOPO_NAME];
	const char *part = engine_desc_part(r, parts, at, where);
	uint64_t len = tei_rail_mr_piece(e->dp, at);

	return len && len < (uint64_t)(part - at) ? len :
						    (uint64_t)(part - at);
}

int engine_desc_collect(struct engine *e,
			const struct engine_desc_rails *rails,
			const struct engine_region *r,
			struct engine_pieces *out, struct tei_err *err)
{
	const char *at = r->addr, *end = at + r->length;
	struct engine_pieces p = { .keys = (uint32_t)rails->n };
	size_t words = rails->n + 1, cap = 0, k;
	struct tei_topo_where parts;
	uint64_t *grown, *piece;
	int ret;

	ret = tei_topo_where_parse(r->parts, &parts, err);
	for (; at < end && !ret; at += *piece) {
		if (p.n == cap) {
			cap = cap ? 2 * cap : 1;
			grown = realloc(p.word, cap * words * sizeof(*grown));
			if (!grown) {
				free(p.word);
				return tei_err_fail(err, TEI_ERR_MEMORY,
						    "engine", NULL,
						    "no memory for a region");
			}
			p.word = grown;
		}
		piece = &p.word[p.n++ * words];
		memset(piece, 0, words * sizeof(*piece));
		*piece = engine_desc_piece(e, r, &parts, at);
		for (k = 0; k < rails->n; k++)
			tei_rail_mr_key(e->dp, at, rails->rail[k],
					&piece[1 + k]);
	}
	if (!ret)
		*out = p;
	return ret;
}

/* Adds one buffer to the descriptor for each entry of the region. */
static int engine_desc_region(const struct engine_region *r,
			      struct tei_meta_desc *desc, struct tei_err *err)
{
	const struct engine_pieces *p = &r->pieces;
	const char *at = r->addr;
	struct tei_topo_where parts;
	char where[TEI_TOPO_NAME];
	const uint64_t *piece;
	size_t i;
	int ret;

	ret = tei_topo_where_parse(r->parts, &parts, err);
	for (i = 0; i < p->n && !ret; i++, at += *piece) {
		piece = &p->word[i * (p->keys + 1)];
		engine_desc_part(r, &parts, at, where);
		ret = tei_meta_desc_add_buffer(desc, where, (uintptr_t)at,
					       *piece, piece + 1, NULL, err);
	}
	return ret;
}

/* Adds the labels of the region and of its nested registrations to the
 * descriptor. */
static int engine_desc_labels(const struct engine_region *r,
			      struct tei_meta_desc *desc, struct tei_err *err)
{
	struct tei_meta_label l = { .addr = (uintptr_t)r->addr,
				    .length = r->length,
				    .text = r->label };
	const struct engine_nested *n;
	int ret = r->label ? tei_meta_desc_add_label(desc, &l, err) : 0;

	l.nested = true;
	for (n = r->nested; n && !ret; n = n->next) {
		if (!n->label)
			continue;
		l.addr = (uintptr_t)n->addr;
		l.length = n->length;
		l.text = n->label;
		ret = tei_meta_desc_add_label(desc, &l, err);
	}
	return ret;
}

int engine_desc_buffers(struct engine *e, struct tei_meta_desc *desc,
			struct tei_err *err)
{
	const struct engine_region *r;
	uint32_t i;
	int ret = 0;

	/*
	 * A registration sets the member pieces of a region without
	 * listing.lock; after that it sets the member listed with this lock. If
	 * the number of keys of a region differs from the number of rails of
	 * desc, the region was registered before these rails changed, and is
	 * left out.
	 */
	for (i = 0; i < e->memory.n && !ret; i++) {
		r = &e->memory.regions[i];
		if (!r->listed || r->pieces.keys != desc->rail_count)
			continue;
		ret = engine_desc_region(r, desc, err);
		if (!ret)
			ret = engine_desc_labels(r, desc, err);
	}
	return ret;
}

static int engine_desc_extras(struct engine *e, struct tei_meta_desc *desc,
			      struct tei_err *err)
{
	char text[TEI_META_LOCAL_MAX], *json;
	struct tei_local_id id;
	int ret = 0;

	if (__atomic_load_n(&e->local_on, __ATOMIC_RELAXED) &&
	    !tei_local_identity(e->local, &id) &&
	    !engine_local_format(e, &id, text, sizeof(text)))
		ret = tei_meta_desc_set_local(desc, text, err);
	if (!ret && e->topo && !tei_topo_json(e->topo, &json)) {
		ret = tei_meta_desc_set_matrix(desc, json, err);
		free(json);
	}
	return ret;
}

static const char *engine_protocol(const struct engine *e)
{
	int i;

	for (i = 0; i < ENGINE_TRANSPORTS; i++)
		if (e->transports[i].installed &&
		    e->transports[i].by == &transport_rail)
			return e->transports[i].name;
	return "local";
}

int engine_desc_head(struct engine *e, struct engine_desc_rails *rails,
		     struct tei_meta_desc **out, struct tei_err *err)
{
	struct tei_meta_desc *desc;
	int ret;

	ret = tei_meta_desc_create(e->name, engine_protocol(e), e->incarnation,
				   &desc, err);
	if (ret)
		return ret;
	ret = engine_desc_rails(e, desc, rails, err);
	if (!ret)
		ret = engine_desc_extras(e, desc, err);
	return tei_meta_desc_finish(desc, ret, out, err);
}
