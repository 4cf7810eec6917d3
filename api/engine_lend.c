/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote bounce slots, the target: clients, their pieces, and the copies
 * between slots and GPUs. engine_lease.h has the rules, engine_lend_pool.c the
 * memory.
 */
#include "api/engine_lease_int.h"

#include <stdlib.h>
#include <string.h>

static void lend_say(struct engine_leasing *l, struct lend_piece *p,
		     enum lease_type type, int code)
{
	struct lease_msg m = {
		.type = (uint8_t)type, .id = p->id, .code = code,
	};
	struct lend_peer *b = p->peer;

	if (type == LEASE_READY)
		m.at = (uintptr_t)p->slot->mem;
	p->unsaid = !leasing_send(l, b->peer, &b->prefer, &b->trying, &m);
}

/* Sends the message of a piece again that no rail accepted. */
static void lend_say_again(struct engine_leasing *l, struct lend_piece *p)
{
	p->unsaid = false;		/* it may have left the state since */
	if (p->state == LEND_LENT)
		lend_say(l, p, LEASE_READY, 0);
	else if (p->state == LEND_DONE)
		lend_say(l, p, LEASE_DONE, p->code);
}

/* --- slots --------------------------------------------------------------- */

static struct lend_region *lend_region(struct engine_leasing *l,
				       uint64_t serial) TEI_REQUIRES(l->lock)
{
	uint32_t i;

	for (i = 0; i < l->nregions; i++)
		if (l->regions[i].serial == serial && !l->regions[i].gone)
			return &l->regions[i];
	return NULL;
}

/* Takes the slot from a piece. doubtful: the client may still access it. */
static void lend_take_back(struct engine_leasing *l, struct lend_piece *p,
			   bool doubtful)
{
	struct lend_slot *slot = p->slot;

	p->slot = NULL;
	/* in one step, because a free slot must not appear usable while its
	 * doubtful is not set yet */
	tei_mutex_lock(&l->lock);
	slot->piece = NULL;
	slot->doubtful |= doubtful;
	tei_mutex_unlock(&l->lock);
}

/* Ends a piece and sends DONE, which is repeated for each message about it. */
static void lend_end(struct engine_leasing *l, struct lend_piece *p, int code,
		     bool doubtful)
{
	if (p->state == LEND_ASKED)
		tei_list_del(&p->node);
	if (p->slot)
		lend_take_back(l, p, doubtful);
	p->state = LEND_DONE;
	p->code = code;
	lend_say(l, p, LEASE_DONE, code);
}

static void slot_copied(struct tei_gpu_op *op, int code,
			const struct tei_err *err)
{
	struct lend_slot *slot = tei_container_of(op, struct lend_slot, copy);
	struct engine_leasing *l = slot->pool->leasing;

	(void)err;
	tei_mutex_lock(&l->lock);
	slot->code = code;
	slot->lost = code == TEI_ERR_TIMED_OUT;
	tei_list_add_tail(&l->copied, &slot->node);
	leasing_word(l);
	tei_mutex_unlock(&l->lock);
}

/* Begins the copy of a piece, unless the GPU memory is being unregistered. */
static void lend_copy(struct engine_leasing *l, struct lend_piece *p)
{
	struct lend_slot *slot = p->slot;
	uint64_t mem = (uintptr_t)slot->mem;
	int ret = TEI_ERR_NOT_REGISTERED;

	memset(&slot->copy, 0, sizeof(slot->copy));
	slot->copy.dst = p->reads ? mem : p->gpu;
	slot->copy.src = p->reads ? p->gpu : mem;
	slot->copy.length = p->length;
	slot->copy.done = slot_copied;
	p->state = p->reads ? LEND_FETCHING : LEND_STORING;
	tei_mutex_lock(&l->lock);
	if (lend_region(l, p->serial))
		ret = tei_gpu_submit(l->engine->gpu, &slot->copy);
	slot->copying = !ret;
	tei_mutex_unlock(&l->lock);
	if (ret)
		lend_end(l, p, ret, false);
}

void lend_copied(struct engine_leasing *l, struct lend_slot *slot)
{
	struct lend_piece *p = slot->piece;
	int code = slot->code;

	tei_mutex_lock(&l->lock);
	slot->copying = false;
	tei_mutex_unlock(&l->lock);
	if (code > 0)
		code = TEI_ERR_CANCELED;
	if (!p->reads || code || p->unwanted) {
		lend_end(l, p, code, false);
		return;
	}
	p->state = LEND_LENT;
	lend_say(l, p, LEASE_READY, 0);
}

/* --- grants --------------------------------------------------------------- */

/* Returns a free slot, or NULL; *idle is the number of free slots. */
static struct lend_slot *lend_idle(struct engine_leasing *l,
				   struct lend_pool *pool, uint32_t *idle)
	TEI_REQUIRES(l->lock)
{
	struct lend_slot *slot, *found = NULL;
	uint32_t i;

	*idle = 0;
	for (i = 0; i < LEASE_SLOTS; i++) {
		slot = &pool->slot[i];
		if (slot->piece || slot->doubtful || !slot->mem)
			continue;
		if (slot->lost &&
		    !tei_gpu_mem_quiet(l->engine->gpu, (uintptr_t)slot->mem,
				       LEASE_PIECE))
			continue;
		slot->lost = false;
		found = slot;
		++*idle;
	}
	return found;
}

static uint32_t lend_has(const struct lend_pool *pool,
			 const struct lend_peer *peer)
{
	uint32_t i, n = 0;

	for (i = 0; i < LEASE_SLOTS; i++)
		n += pool->slot[i].piece && pool->slot[i].piece->peer == peer;
	return n;
}

/* Chooses the piece that gets the next slot, and assigns the slot. Returns NULL
 * if there is none. */
static struct lend_piece *lend_pick(struct engine_leasing *l)
	TEI_REQUIRES(l->lock)
{
	struct lend_piece *p, *best = NULL;
	struct lend_slot *slot, *give = NULL;
	struct lend_region *r;
	uint32_t idle, has, least = LEASE_SLOTS;

	tei_list_foreach(p, &l->asks, struct lend_piece, node) {
		r = lend_region(l, p->serial);
		if (!r || !l->pool[r->place])
			continue;	/* lend_look ends the piece */
		slot = lend_idle(l, l->pool[r->place], &idle);
		has = lend_has(l->pool[r->place], p->peer);
		if (!slot || has >= idle || has >= least)
			continue;
		least = has;
		best = p;
		give = slot;
	}
	if (best) {
		best->slot = give;
		give->piece = best;
	}
	return best;
}

static void lend_give(struct engine_leasing *l)
{
	struct lend_piece *p;

	while (!tei_list_empty(&l->asks)) {
		tei_mutex_lock(&l->lock);
		p = lend_pick(l);
		tei_mutex_unlock(&l->lock);
		if (!p)
			return;
		tei_list_del(&p->node);
		p->heard_ns = l->now;
		if (p->reads) {
			lend_copy(l, p);
		} else {
			p->state = LEND_LENT;
			lend_say(l, p, LEASE_READY, 0);
		}
	}
}

/* --- messages ------------------------------------------------------------- */

static struct lend_peer *lend_find(struct engine_leasing *l,
				   struct tei_rail_peer *peer)
{
	struct lend_peer *b;
	uint32_t i;

	tei_list_foreach(b, &l->borrowers, struct lend_peer, link)
		if (b->peer == peer)
			return b;
	b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	tei_rail_peer_hold(peer);
	b->peer = peer;
	for (i = 0; i < LEASE_PIECES; i++)
		b->piece[i].peer = b;
	tei_list_add_tail(&l->borrowers, &b->link);
	return b;
}

/* Checks the range of an ASK. Returns 0, or the code why no slot is granted. */
static int lend_check(struct engine_leasing *l, const struct lease_msg *m,
		      uint64_t *serial)
{
	int ret = TEI_ERR_NOT_REGISTERED;
	struct lend_region *r;
	uint32_t i;

	if (!m->length || m->length > LEASE_PIECE || m->at < m->base ||
	    m->length > m->extent || m->at - m->base > m->extent - m->length)
		return TEI_ERR_INVALID;
	tei_mutex_lock(&l->lock);
	for (i = 0; i < l->nregions; i++) {
		r = &l->regions[i];
		if (r->gone || m->base < r->base || m->extent > r->length ||
		    m->base - r->base > r->length - m->extent)
			continue;
		*serial = r->serial;
		ret = 0;
	}
	tei_mutex_unlock(&l->lock);
	return ret;
}

static void lend_asked(struct engine_leasing *l, struct lend_piece *p,
		       const struct lease_msg *m)
{
	int ret = lend_check(l, m, &p->serial);

	p->gpu = m->at;
	p->length = m->length;
	p->reads = m->flags & LEASE_READS;
	if (ret) {
		lend_end(l, p, ret, false);
		return;
	}
	p->state = LEND_ASKED;
	tei_list_add_tail(&l->asks, &p->node);
}

/* Begins a piece whose number is new here. */
static void lend_new(struct engine_leasing *l, struct lend_piece *p,
		     const struct lease_msg *m)
{
	p->id = m->id;
	p->state = LEND_NONE;
	p->slot = NULL;
	p->unwanted = false;
	p->unsaid = false;
	if (m->type == LEASE_ASK)
		lend_asked(l, p, m);
	else	/* it has overtaken its ASK, or the record was freed */
		lend_end(l, p, m->type == LEASE_FREE ? 0 : TEI_ERR_TIMED_OUT,
			 false);
}

static void lend_freed(struct engine_leasing *l, struct lend_piece *p,
		       uint16_t flags)
{
	if (p->state == LEND_FETCHING)
		p->unwanted = true;
	else if (p->state == LEND_ASKED || p->state == LEND_LENT)
		lend_end(l, p, 0, flags & LEASE_UNFENCED);
}

static bool lend_live(const struct lend_piece *p)
{
	return p->state != LEND_NONE && p->state != LEND_DONE;
}

void lend_heard(struct engine_leasing *l, struct tei_rail_peer *peer,
		const struct lease_msg *m)
{
	struct lend_peer *b = lend_find(l, peer);
	struct lend_piece *p;

	lend_late_heard(l, peer, m);
	if (!b)
		return;
	p = &b->piece[m->id % LEASE_PIECES];
	if (p->id > m->id || (p->id != m->id && lend_live(p)))
		return;
	b->heard_ns = l->now;
	leasing_try_now(&b->trying);
	p->heard_ns = l->now;
	if (p->id != m->id || p->state == LEND_NONE)
		lend_new(l, p, m);
	else if (p->state == LEND_DONE)
		lend_say(l, p, LEASE_DONE, p->code);
	else if (m->type == LEASE_FREE)
		lend_freed(l, p, m->flags);
	else if (m->type == LEASE_GO && p->state == LEND_LENT && !p->reads)
		lend_copy(l, p);
	else if (m->type == LEASE_ASK && p->state == LEND_LENT)
		lend_say(l, p, LEASE_READY, 0);
}

/* --- time ---------------------------------------------------------------- */

/* Returns 0, or the code with which a piece must end. gone: its client is. */
static int lend_verdict(struct engine_leasing *l, const struct lend_piece *p,
			bool gone)
{
	uint64_t timeout = l->engine->settings.slice_timeout_s * TEI_NS_PER_SEC;
	bool there, leaving = false;

	if (gone)
		return TEI_ERR_ENDPOINT;
	tei_mutex_lock(&l->lock);
	there = lend_region(l, p->serial) != NULL;
	if (p->slot)
		leaving = p->slot->pool->leaving;
	tei_mutex_unlock(&l->lock);
	/* after READY this is checked at GO, and a read may be completed */
	if (p->state == LEND_ASKED ? !there : leaving)
		return TEI_ERR_NOT_REGISTERED;
	return l->now - p->heard_ns > timeout ? TEI_ERR_TIMED_OUT : 0;
}

/* Checks the timeouts of a client's pieces. Returns the number of its copies in
 * progress; *any: it has pieces here. */
static uint32_t lend_look(struct engine_leasing *l, struct lend_peer *b,
			  bool gone, bool *any)
{
	struct lend_piece *p;
	uint32_t i, copies = 0;
	int code;

	*any = false;
	for (i = 0; i < LEASE_PIECES; i++) {
		p = &b->piece[i];
		if (p->state == LEND_ASKED || p->state == LEND_LENT) {
			code = lend_verdict(l, p, gone);
			if (code && !gone && p->state == LEND_LENT)
				lend_late_set(l, p->slot, b->peer, p->id);
			if (code)
				lend_end(l, p, code, p->state == LEND_LENT);
		}
		if (p->unsaid)
			lend_say_again(l, p);
		copies += p->state == LEND_FETCHING ||
			  p->state == LEND_STORING;
		*any |= lend_live(p);
	}
	return copies;
}

static void lend_peer_free(struct lend_peer *b)
{
	tei_list_del(&b->link);
	tei_rail_peer_put(b->peer);
	free(b);
}

/* Has workers provide memory for the slots that need it, except in a pool that
 * is about to be freed. */
static void lend_renews(struct engine_leasing *l)
{
	struct lend_slot *slot;
	uint32_t i, k;

	tei_mutex_lock(&l->lock);
	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		for (k = 0; l->pool[i] && k < LEASE_SLOTS; k++) {
			slot = &l->pool[i]->slot[k];
			if (!slot->doubtful || slot->renewing ||
			    l->pool[i]->leaving)
				continue;
			if (l->now < slot->again_ns) {
				leasing_due(l, slot->again_ns);
				continue;
			}
			slot->renewing = engine_work_renew(l->engine, slot);
			leasing_due(l, l->now + LEASE_LOOK_NS);
		}
	}
	tei_mutex_unlock(&l->lock);
}

/* Notifies pool_leave when the thread uses no slot of a pool any more. */
static void lend_leaving(struct engine_leasing *l)
{
	struct lend_pool *pool;
	uint32_t i, k, used;

	tei_mutex_lock(&l->lock);
	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		pool = l->pool[i];
		if (!pool || !pool->leaving || pool->empty)
			continue;
		for (k = 0, used = 0; k < LEASE_SLOTS; k++)
			used += pool->slot[k].piece || pool->slot[k].renewing;
		pool->empty = !used;
		pthread_cond_broadcast(&l->idle);
	}
	tei_mutex_unlock(&l->lock);
}

void lend_tick(struct engine_leasing *l)
{
	uint64_t keep = 2 * l->engine->settings.slice_timeout_s *
			TEI_NS_PER_SEC;
	struct lend_peer *b, *tmp;
	bool any, gone;

	tei_list_foreach_safe(b, tmp, &l->borrowers, struct lend_peer, link) {
		gone = tei_rail_peer_gone(b->peer);
		if (!lend_look(l, b, gone, &any) &&
		    (gone || (!any && l->now - b->heard_ns > keep &&
			      !lend_late_any(l, b->peer))))
			lend_peer_free(b);
		else
			leasing_due(l, l->now + (any ? LEASE_LOOK_NS :
						       TEI_NS_PER_SEC));
	}
	lend_late_look(l);
	lend_renews(l);
	lend_give(l);
	lend_leaving(l);
}

bool lend_busy(struct engine_leasing *l)
{
	struct lend_slot *slot;
	bool busy = false;
	uint32_t i, k;

	tei_mutex_lock(&l->lock);
	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		for (k = 0; l->pool[i] && k < LEASE_SLOTS; k++) {
			slot = &l->pool[i]->slot[k];
			busy |= slot->copying;
		}
	}
	tei_mutex_unlock(&l->lock);
	return busy;
}

void lend_forget(struct engine_leasing *l)
{
	while (!tei_list_empty(&l->borrowers))
		lend_peer_free(tei_list_first(&l->borrowers, struct lend_peer,
					      link));
	lend_late_forget(l);
}
