/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prepared lists: te_prepare, te_submit_prepared, te_prepared_release.
 *
 * A list holds a copy of its pieces, and a reference to the descriptor with
 * which they were last compared. Descriptors are immutable, so a submission
 * checks the pieces again only if the segment has another descriptor now. Each
 * submission makes one task with several ranges (prepare_ranges), as te_submit
 * does. After the submission, the task no longer needs the list.
 */
#include "api/engine_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine_memory.h"
#include "api/engine_refusal.h"
#include "api/engine_transport.h"
#include "meta/tei_meta_desc.h"

/* Greatest number of pieces in a list or a submission. */
#define PREPARED_PIECES_MAX (1u << 30)

#define PREPARED_CALL ENGINE_REFUSE_CALL

/*
 * A prepared list. Created by te_prepare. The table of the engine holds one
 * reference, and each call that uses the list holds another one. Freed with the
 * last reference. Any thread may use it.
 */
struct engine_prepared {
	uint32_t refs; /* atomic: number of references */

	/* the next three members do not change */
	uint32_t opcode; /* TE_READ or TE_WRITE */
	segment_id_t target;
	uint32_t n;

	struct tei_mutex lock;	    /* leaf; guards desc */
	/* descriptor that lists the remote ranges of all pieces, with one
	 * reference; NULL: the target is the own segment */
	struct tei_meta_desc *desc;

	struct te_piece piece[]; /* the n pieces; do not change */
};

/* The pieces that one submission moves. */
struct prepared_subset {
	const struct engine_prepared *list;
	const uint32_t *indices; /* indices of the pieces; NULL: all pieces */
	uint32_t n;
	uint64_t cookie; /* cookie of the task that the submission adds */
};

static uint32_t subset_index(const struct prepared_subset *s, uint32_t k)
{
	return s->indices ? s->indices[k] : k;
}

static const struct te_piece *subset_piece(const struct prepared_subset *s,
					   uint32_t k)
{
	return &s->list->piece[subset_index(s, k)];
}

/* --- lists and their table ------------------------------------------------ */

static struct engine_prepared *prepared_new(segment_id_t target,
					    uint32_t opcode,
					    const struct te_piece *pieces,
					    uint32_t n)
{
	struct engine_prepared *p;

	p = malloc(sizeof(*p) + (size_t)n * sizeof(p->piece[0]));
	if (!p)
		return NULL;
	p->refs = 1;
	p->opcode = opcode;
	p->target = target;
	p->n = n;
	tei_mutex_init(&p->lock);
	p->desc = NULL;
	memcpy(p->piece, pieces, (size_t)n * sizeof(p->piece[0]));
	return p;
}

static void prepared_put(struct engine_prepared *p)
{
	if (__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL))
		return;
	tei_meta_desc_unref(p->desc);
	tei_mutex_fini(&p->lock);
	free(p);
}

void engine_prepared_init(struct engine *e)
{
	tei_mutex_init(&e->prepared.lock);
}

void engine_prepared_fini(struct engine *e)
{
	uint32_t i;

	for (i = 0; i < e->prepared.n; i++)
		if (e->prepared.slots[i].list)
			prepared_put(e->prepared.slots[i].list);
	free(e->prepared.slots);
	tei_mutex_fini(&e->prepared.lock);
}

/* Adds free slots to the table. Returns 0, or the code with which te_prepare
 * fails. */
static int table_grow(struct engine_prepared_table *table)
	TEI_REQUIRES(table->lock)
{
	uint32_t n = table->n ? table->n * 2 : 16, i;
	struct engine_prepared_slot *slots;

	if (n > ENGINE_PREPARED_MAX)
		return 2;
	slots = realloc(table->slots, n * sizeof(*slots));
	if (!slots)
		return 302;
	memset(slots + table->n, 0, (n - table->n) * sizeof(*slots));
	for (i = n; i-- > table->n;) {
		slots[i].next_free = table->free;
		table->free = i + 1;
	}
	table->slots = slots;
	table->n = n;
	return 0;
}

/* Adds the list to the table, which takes over the caller's reference. Sets
 * *id. Returns 0, or the code with which te_prepare fails. */
static int table_add(struct engine_prepared_table *table,
		     struct engine_prepared *p, te_prepared_t *id)
{
	struct engine_prepared_slot *slot;
	uint32_t i;
	int ret = 0;

	tei_mutex_lock(&table->lock);
	if (!table->free)
		ret = table_grow(table);
	if (!ret) {
		i = table->free - 1;
		slot = &table->slots[i];
		table->free = slot->next_free;
		slot->list = p;
		slot->gen++;
		*id = (te_prepared_t)slot->gen << 32 | i;
	}
	tei_mutex_unlock(&table->lock);
	return ret;
}

/* Returns the slot of a list, or NULL if the id is stale or unknown. */
static struct engine_prepared_slot *
table_slot(const struct engine_prepared_table *table, te_prepared_t id)
	TEI_REQUIRES(table->lock)
{
	uint32_t i = (uint32_t)id;

	if (i >= table->n || !table->slots[i].list ||
	    table->slots[i].gen != (uint32_t)(id >> 32))
		return NULL;
	return &table->slots[i];
}

/* Returns the list with a reference for the caller. Returns NULL if the id is
 * stale or unknown. */
static struct engine_prepared *table_get(struct engine_prepared_table *table,
					 te_prepared_t id)
{
	struct engine_prepared_slot *slot;
	struct engine_prepared *p = NULL;

	tei_mutex_lock(&table->lock);
	slot = table_slot(table, id);
	if (slot) {
		p = slot->list;
		__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
	}
	tei_mutex_unlock(&table->lock);
	return p;
}

/* Removes the list from the table and passes the table's reference to the
 * caller. Returns NULL if there is no such list. */
static struct engine_prepared *table_take(struct engine_prepared_table *table,
					  te_prepared_t id)
{
	struct engine_prepared_slot *slot;
	struct engine_prepared *p = NULL;

	tei_mutex_lock(&table->lock);
	slot = table_slot(table, id);
	if (slot) {
		p = slot->list;
		slot->list = NULL;
		slot->gen++;
		slot->next_free = table->free;
		table->free = (uint32_t)id + 1;
	}
	tei_mutex_unlock(&table->lock);
	return p;
}

static int prepared_stale(const char *call)
{
	return engine_refuse(
		call, PREPARED_CALL, 1,
		"use an id of te_prepare that has not been released",
		"no such prepared list: released or unknown id");
}

/* --- checks --------------------------------------------------------------- */

static int prepared_check_form(uint32_t opcode, const struct te_piece *p,
			       size_t n)
{
	static const char call[] = "te_prepare";
	size_t i;

	if (opcode > TE_WRITE)
		return engine_refuse(
			call, PREPARED_CALL, 1, NULL,
			"opcode %u (must be TE_READ, %d, or TE_WRITE, %d)",
			opcode, TE_READ, TE_WRITE);
	if (!p || !n || n > PREPARED_PIECES_MAX)
		return engine_refuse(call, PREPARED_CALL, 1, NULL,
				     "pieces is NULL, or count is %zu (must be "
				     "between 1 and %u)",
				     n, PREPARED_PIECES_MAX);
	for (i = 0; i < n; i++)
		if (!p[i].local || !p[i].length ||
		    (uintptr_t)p[i].local + (p[i].length - 1) <
			    (uintptr_t)p[i].local ||
		    p[i].remote + (p[i].length - 1) < p[i].remote)
			return engine_refuse(
				call, PREPARED_CALL, 1, NULL,
				"pieces[%zu], local %p, remote 0x%llx, %llu "
				"bytes: local is NULL, length is 0, or a range "
				"overflows 64 bits",
				i, p[i].local, (unsigned long long)p[i].remote,
				(unsigned long long)p[i].length);
	return 0;
}

/* Checks that the local memory of the pieces is registered host memory. Returns
 * 0, or the code of the public call after storing the error record. e->segments
 * must be held for reading. */
static int subset_check_local(struct engine *e, const char *call,
			      const struct prepared_subset *s)
{
	bool write = s->list->opcode == TE_READ;
	const struct te_piece *p;
	char field[40];
	uint32_t k;

	for (k = 0; k < s->n; k++) {
		p = subset_piece(s, k);
		if (!tei_local_region_check(e->local, p->local, p->length,
					    write))
			continue;
		snprintf(field, sizeof(field), "pieces[%u].local",
			 subset_index(s, k));
		if (engine_gpu_memory(e, (uintptr_t)p->local, 1))
			return engine_refuse(
				call, PREPARED_CALL, 8,
				"submit it with submitTransfer",
				"%s %p: GPU memory cannot be a piece of a "
				"prepared list", field, p->local);
		return engine_refuse_source(e, call, PREPARED_CALL, field,
					    p->local, p->length, write);
	}
	return 0;
}

/* Returns true if the descriptor desc lists the remote range of the piece. If
 * desc is NULL, the target is the own segment, and the function returns true if
 * the range is registered in this process. */
static bool prepared_piece_listed(struct engine *e,
				  const struct engine_prepared *list,
				  const struct tei_meta_desc *desc,
				  const struct te_piece *p)
{
	if (desc)
		return tei_meta_desc_covers(desc, p->remote, p->length);
	return !tei_local_region_check(e->local,
				       (const void *)(uintptr_t)p->remote,
				       p->length, list->opcode == TE_WRITE);
}

/* Checks that the descriptor lists the remote ranges of all pieces. Returns 0,
 * or 3 after storing the error record. */
static int subset_check_remote(struct engine *e, const char *call,
			       const struct prepared_subset *s,
			       const struct tei_meta_desc *desc)
{
	const struct te_piece *p;
	uint32_t k;

	for (k = 0; k < s->n; k++) {
		p = subset_piece(s, k);
		if (prepared_piece_listed(e, s->list, desc, p))
			continue;
		return engine_refuse(
			call, PREPARED_CALL, 3,
			"the target must register the memory; if it has, call "
			"syncSegmentCache",
			"pieces[%u].remote 0x%llx, %llu bytes: not in the "
			"descriptor of segment %d",
			subset_index(s, k), (unsigned long long)p->remote,
			(unsigned long long)p->length, s->list->target);
	}
	return 0;
}

/* Fills in *target and checks that a transport reaches it that accepts requests
 * with several ranges. Returns 0, or the code of te_prepare after storing the
 * error record. */
static int prepared_check_route(struct engine *e,
				const struct engine_prepared *p,
				struct engine_target *target)
{
	static const char call[] = "te_prepare";
	const struct engine_via *via, *end;
	uint32_t i;
	int ret;

	ret = engine_target_set(e, p->target, target);
	if (ret == 1)
		return engine_refuse_target(call, PREPARED_CALL, p->target);
	if (ret)
		return engine_refuse_transport(e, call, PREPARED_CALL,
					       p->target);
	target->kind = ENGINE_HOST_HOST;
	for (i = 0; target->gpu && i < p->n; i++)
		if (engine_target_gpu(target, p->piece[i].remote))
			target->kind = engine_kind(false, true);
	end = target->vias->via + target->vias->n;
	for (via = target->vias->via; via < end; via++)
		if (via->by->takes & target->kind)
			break;
	if (via < end && via->by->prepare_ranges)
		return 0;
	return engine_refuse(call, PREPARED_CALL, 8,
			     "submit the pieces with submitTransfer",
			     "segment %d: files and GPU memory cannot be "
			     "pieces of a prepared list",
			     p->target);
}

/* Returns the descriptor of an open segment, or NULL for the own segment. */
static struct tei_meta_desc *prepared_desc(struct engine *e, segment_id_t id)
{
	return id == LOCAL_SEGMENT ? NULL : engine_segment_find(e, id)->desc;
}

static int prepared_check_all(struct engine *e, struct engine_prepared *p)
{
	struct prepared_subset all = { .list = p, .n = p->n };
	struct engine_target target = { .valid = false };
	struct tei_meta_desc *desc;
	int ret;

	ret = prepared_check_route(e, p, &target);
	if (ret)
		return ret;
	desc = prepared_desc(e, p->target);
	ret = subset_check_local(e, "te_prepare", &all);
	if (!ret)
		ret = subset_check_remote(e, "te_prepare", &all, desc);
	if (!ret && desc)
		p->desc = tei_meta_desc_ref(desc);
	return ret;
}

/*
 * Compares the pieces of the subset with the segment's descriptor, if it is
 * another one than p->desc. Sets the bits TE_PREPARED_… in *news. If the new
 * descriptor lists all pieces of the whole list, it becomes p->desc, so that
 * later submissions do not compare them again. e->segments must be held for
 * reading.
 */
static int subset_check_again(struct engine *e, const struct prepared_subset *s,
			      struct engine_prepared *p, uint32_t *news)
{
	struct prepared_subset all = { .list = p, .n = p->n };
	struct tei_meta_desc *desc = prepared_desc(e, p->target), *old = NULL;
	bool checked, good;
	uint32_t i;

	tei_mutex_lock(&p->lock);
	checked = desc == p->desc;
	if (!checked && desc->incarnation != p->desc->incarnation)
		*news |= TE_PREPARED_RESTARTED;
	tei_mutex_unlock(&p->lock);
	if (checked)
		return 0;
	*news |= TE_PREPARED_CHECKED;
	for (i = 0, good = true; i < all.n && good; i++)
		good = prepared_piece_listed(e, p, desc, &p->piece[i]);
	if (!good)
		return subset_check_remote(e, "te_submit_prepared", s, desc);
	tei_mutex_lock(&p->lock);
	old = p->desc;
	p->desc = tei_meta_desc_ref(desc);
	tei_mutex_unlock(&p->lock);
	tei_meta_desc_unref(old);
	return 0;
}

/* --- te_prepare ----------------------------------------------------------- */

int te_prepare(transfer_engine_t engine, segment_id_t segment_id,
	       uint32_t opcode, const struct te_piece *pieces, size_t count,
	       uint64_t flags, te_prepared_t *list)
{
	struct engine *e = engine_from(engine);
	struct engine_prepared *p;
	int ret;

	if (!e)
		return 1;
	if (flags || !list)
		return engine_refuse(__func__, PREPARED_CALL, 1, NULL,
				     "flags is 0x%llx (must be 0), or list is "
				     "NULL",
				     (unsigned long long)flags);
	ret = prepared_check_form(opcode, pieces, count);
	if (ret)
		return ret;
	p = prepared_new(segment_id, opcode, pieces, (uint32_t)count);
	if (!p)
		return engine_refuse_code(__func__, PREPARED_CALL, 302);
	tei_rwlock_read(&e->segments);
	ret = prepared_check_all(e, p);
	tei_rwlock_unlock(&e->segments);
	if (!ret) {
		ret = table_add(&e->prepared, p, list);
		if (ret)
			engine_refuse_code(__func__, PREPARED_CALL, ret);
	}
	if (ret)
		prepared_put(p);
	return ret;
}

int te_prepared_release(transfer_engine_t engine, te_prepared_t list)
{
	struct engine *e = engine_from(engine);
	struct engine_prepared *p;

	if (!e)
		return 1;
	p = table_take(&e->prepared, list);
	if (!p)
		return prepared_stale(__func__);
	prepared_put(p);
	return 0;
}

/* --- te_submit_prepared --------------------------------------------------- */

static int subset_set(struct prepared_subset *s,
		      const struct engine_prepared *p, const uint32_t *indices,
		      size_t count)
{
	static const char call[] = "te_submit_prepared";
	size_t k;

	if (!indices && count)
		return engine_refuse(call, PREPARED_CALL, 1, NULL,
				     "indices is NULL, but count is %zu (must "
				     "be 0)",
				     count);
	if (count > PREPARED_PIECES_MAX)
		return engine_refuse(call, PREPARED_CALL, 1, NULL,
				     "count %zu (must be at most %u)", count,
				     PREPARED_PIECES_MAX);
	for (k = 0; k < count; k++)
		if (indices[k] >= p->n)
			return engine_refuse(call, PREPARED_CALL, 1, NULL,
					     "indices[%zu] is %u (the list has "
					     "%u pieces)",
					     k, indices[k], p->n);
	s->list = p;
	s->indices = indices;
	s->n = indices ? (uint32_t)count : p->n;
	return 0;
}

/* Fills in the ranges of the request from the pieces. On each side, a range
 * that directly follows the previous one is joined with it. Returns the total
 * length, or 0 if it overflows 64 bits. */
static uint64_t subset_lay(const struct prepared_subset *s, struct te_local *l,
			   struct te_remote *r, struct te_request *req)
{
	const struct te_piece *p;
	uint64_t sum = 0, lend = 0, rend = 0;
	uint32_t k, nl = 0, nr = 0;

	for (k = 0; k < s->n; k++) {
		p = subset_piece(s, k);
		if (sum + p->length < sum)
			return 0;
		sum += p->length;
		if (nr && p->remote == rend) {
			r[nr - 1].length += p->length;
		} else {
			r[nr].addr = p->remote;
			r[nr++].length = p->length;
		}
		if (nl && (uintptr_t)p->local == lend) {
			l[nl - 1].length += p->length;
		} else {
			l[nl].addr = p->local;
			l[nl++].length = p->length;
		}
		lend = (uintptr_t)p->local + p->length;
		rend = p->remote + p->length;
	}
	req->local = l;
	req->remote = r;
	req->local_count = nl;
	req->remote_count = nr;
	return sum;
}

/*
 * Stores the error record of a task that a transport has refused with "code".
 * If the local memory of a piece is the cause, the record names that piece.
 * Returns the code. e->segments must be held for reading.
 */
static int subset_explain(struct engine *e, const struct prepared_subset *s,
			  int code)
{
	static const char call[] = "te_submit_prepared";
	int ret = 0;

	if (code == 3)
		ret = subset_check_local(e, call, s);
	if (ret)
		return ret;
	if (code == 8 && s->list->target != LOCAL_SEGMENT)
		return engine_refuse_transport(e, call, PREPARED_CALL,
					       s->list->target);
	return engine_refuse_code(call, PREPARED_CALL, code);
}

/* Adds the task to the batch and starts it. Returns 0 or the code of
 * te_submit_prepared. The batch's lock and e->segments must be held. */
static int prepared_start(struct engine *e, struct engine_batch *b,
			  const struct prepared_subset *s,
			  const struct te_request *r, uint64_t length)
{
	struct engine_target target = { .valid = false };
	struct engine_task *t = b->tasks + b->count;
	int ret;

	memset(t, 0, sizeof(*t));
	t->engine = e;
	t->target = r->target_id;
	t->length = length;
	ret = engine_ranges_prepare(e, t, r, &target);
	if (ret)
		return subset_explain(e, s, ret);
	t->cookie = r->cookie;
	ret = engine_submit_start(e, b, 1);
	if (!ret)
		return 0;
	if (t->by->drop)
		t->by->drop(t);
	return subset_explain(e, s, ret);
}

/* Checks and submits the request r, whose ranges are those of the subset s.
 * Returns 0 or the code of te_submit_prepared. The batch's lock and e->segments
 * must be held. */
static int prepared_submit_locked(struct engine *e, struct engine_batch *b,
				  struct engine_prepared *p,
				  const struct prepared_subset *s,
				  const struct te_request *r, uint64_t length,
				  uint32_t *news)
{
	static const char call[] = "te_submit_prepared";
	int ret;

	if (b->count == b->size)
		return engine_refuse_full(call, b, 1);
	if (p->target != LOCAL_SEGMENT && !engine_segment_find(e, p->target))
		return engine_refuse_target(call, PREPARED_CALL, p->target);
	ret = subset_check_again(e, s, p, news);
	return ret ? ret : prepared_start(e, b, s, r, length);
}

/* Fills in the request *r with the ranges of the subset s, and sets *length to
 * their total length. The caller frees r->local, which is the memory of both
 * arrays of ranges. Returns 0 or the code of te_submit_prepared. */
static int prepared_request(const struct prepared_subset *s,
			    struct te_request *r, uint64_t *length)
{
	static const char call[] = "te_submit_prepared";
	struct te_remote *remote;
	struct te_local *local;

	local = malloc((size_t)s->n * (sizeof(*local) + sizeof(*remote)));
	if (!local)
		return engine_refuse_code(call, PREPARED_CALL, 302);
	remote = (struct te_remote *)(void *)(local + s->n);
	memset(r, 0, sizeof(*r));
	r->opcode = s->list->opcode;
	r->target_id = s->list->target;
	r->cookie = s->cookie;
	*length = subset_lay(s, local, remote, r);
	if (*length)
		return 0;
	free(local);
	return engine_refuse(call, PREPARED_CALL, 1, NULL,
			     "the total length overflows 64 bits");
}

static int prepared_submit(struct engine *e, batch_id_t id,
			   struct engine_prepared *p,
			   const struct prepared_subset *s, uint32_t *news)
{
	struct te_request r = { .local = NULL };
	struct engine_batch *b;
	uint64_t length = 0;
	int ret = 0;

	if (s->n)
		ret = prepared_request(s, &r, &length);
	if (ret)
		return ret;
	b = engine_batch_lock(e, id);
	ret = b ? 0 : 1;
	if (b && s->n) {
		tei_rwlock_read(&e->segments);
		ret = prepared_submit_locked(e, b, p, s, &r, length, news);
		tei_rwlock_unlock(&e->segments);
	}
	if (b)
		engine_batch_unlock(b);
	free((void *)(uintptr_t)r.local);
	return ret;
}

int te_submit_prepared(transfer_engine_t engine, batch_id_t batch_id,
		       te_prepared_t list, const uint32_t *indices,
		       size_t count, uint64_t cookie, uint64_t flags,
		       uint32_t *checked)
{
	struct engine *e = engine_from(engine);
	struct prepared_subset subset;
	struct engine_prepared *p;
	uint32_t news = 0;
	int ret;

	if (!e)
		return 1;
	if (flags)
		return engine_refuse(__func__, PREPARED_CALL, 1, NULL,
				     "flags is 0x%llx (must be 0)",
				     (unsigned long long)flags);
	p = table_get(&e->prepared, list);
	if (!p)
		return prepared_stale(__func__);
	ret = subset_set(&subset, p, indices, count);
	subset.cookie = cookie;
	if (!ret)
		ret = prepared_submit(e, batch_id, p, &subset, &news);
	if (checked)
		*checked = news;
	prepared_put(p);
	return ret;
}
