/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote bounce slots, the target: clients, their pieces, and the copies
 * between slots and GPUs. staging_remote_int.h has the rules.
 * staging_region.c and staging_quarantine.c manage the memory.
 */
#include "prov/staging/staging_quarantine_int.h"
#include "prov/staging/staging_remote_int.h"

#include <stdlib.h>
#include <string.h>

static void grant_send(struct staging_remote *rs, struct staging_grant *p,
		       enum staging_msg_type type, int code)
{
	struct staging_msg m = {
		.type = (uint8_t)type,
		.id = p->id,
		.code = code,
	};
	struct staging_client *b = p->client;

	if (type == STAGING_READY) {
		m.at = (uintptr_t)p->slot->slot.mem;
		m.base = p->serial;
		m.extent = p->slot->slot.share;
	}
	p->unsent =
		!staging_remote_send(rs, b->peer, &b->prefer, &b->backoff, &m);
}

/* Tries again to send the message of a piece that no rail has accepted. */
static void grant_send_again(struct staging_remote *rs, struct staging_grant *p)
{
	p->unsent = false; /* if the state of the piece has changed, the message
			    * of the old state must not be sent */
	if (p->state == GRANT_SENT)
		grant_send(rs, p, STAGING_READY, 0);
	else if (p->state == GRANT_DONE)
		grant_send(rs, p, STAGING_DONE, p->code);
}

/* --- slots --------------------------------------------------------------- */

static struct staging_region *grant_region(struct staging_remote *rs,
					   uint64_t serial)
	TEI_REQUIRES(rs->part.lock)
{
	uint32_t i;

	for (i = 0; i < rs->nregions; i++)
		if (rs->regions[i].serial == serial && !rs->regions[i].gone)
			return &rs->regions[i];
	return NULL;
}

/* Takes the slot from a piece. must_renew: the client may still access the
 * slot's memory. */
static void grant_take_slot(struct staging_remote *rs, struct staging_grant *p,
			    bool must_renew)
{
	struct staging_remote_slot *slot = p->slot;

	p->slot = NULL;
	/* change all members under one lock: a free slot must not appear usable
	 * while its must_renew is not set yet */
	tei_mutex_lock(&rs->part.lock);
	slot->grant = NULL;
	slot->slot.used = false;
	slot->slot.must_renew |= must_renew;
	staging_pool_release(&rs->part, slot->slot.pool);
	tei_mutex_unlock(&rs->part.lock);
}

/* Ends a piece and sends DONE. Later, each message about the piece is answered
 * by DONE again. */
static void grant_end(struct staging_remote *rs, struct staging_grant *p,
		      int code, bool must_renew)
{
	if (p->state == GRANT_WAITING)
		tei_list_del(&p->node);
	if (p->slot)
		grant_take_slot(rs, p, must_renew);
	p->state = GRANT_DONE;
	p->code = code;
	grant_send(rs, p, STAGING_DONE, code);
}

static void slot_copied(struct tei_gpu_op *op, int code,
			const struct tei_err *err)
{
	struct staging_remote_slot *slot =
		tei_container_of(op, struct staging_remote_slot, slot.copy);
	struct staging_remote *rs = staging_slot_remote(&slot->slot);

	(void)err;
	tei_mutex_lock(&rs->part.lock);
	slot->code = code;
	slot->slot.lost = code == TEI_ERR_TIMED_OUT;
	tei_list_add_tail(&rs->copied, &slot->slot.node);
	staging_part_notify(&rs->part);
	tei_mutex_unlock(&rs->part.lock);
}

/* Begins the copy of a piece. If the GPU memory is being unregistered, ends the
 * piece instead. */
static void grant_copy(struct staging_remote *rs, struct staging_grant *p)
{
	struct staging_remote_slot *slot = p->slot;
	uint64_t mem = (uintptr_t)slot->slot.mem;
	int ret = TEI_ERR_NOT_REGISTERED;

	memset(&slot->slot.copy, 0, sizeof(slot->slot.copy));
	slot->slot.copy.dst = p->reads ? mem : p->gpu;
	slot->slot.copy.src = p->reads ? p->gpu : mem;
	slot->slot.copy.length = p->length;
	slot->slot.copy.done = slot_copied;
	p->state = p->reads ? GRANT_FETCHING : GRANT_STORING;
	tei_mutex_lock(&rs->part.lock);
	if (grant_region(rs, p->serial))
		ret = tei_gpu_submit(staging_gpu(rs->part.staging),
				     &slot->slot.copy);
	slot->copying = !ret;
	tei_mutex_unlock(&rs->part.lock);
	if (ret)
		grant_end(rs, p, ret, false);
}

void staging_grant_copied(struct staging_remote *rs,
			  struct staging_remote_slot *slot)
{
	struct staging_grant *p = slot->grant;
	int code = slot->code;

	tei_mutex_lock(&rs->part.lock);
	slot->copying = false;
	tei_mutex_unlock(&rs->part.lock);
	if (code > 0)
		code = TEI_ERR_CANCELED;
	if (!p->reads || code || p->canceled) {
		grant_end(rs, p, code, false);
		return;
	}
	p->state = GRANT_SENT;
	grant_send(rs, p, STAGING_READY, 0);
}

/* --- grants --------------------------------------------------------------- */

static uint32_t client_slots(struct staging_pool *pool,
			     const struct staging_client *client)
{
	struct staging_remote_slot *slot;
	uint32_t i, n = 0;

	for (i = 0; i < STAGING_REMOTE_SLOTS; i++) {
		slot = staging_slot_at(pool, i);
		n += slot->grant && slot->grant->client == client;
	}
	return n;
}

static void grant_give(struct staging_remote *rs, struct staging_grant *p,
		       struct staging_slot *slot) TEI_REQUIRES(rs->part.lock)
{
	p->slot = tei_container_of(slot, struct staging_remote_slot, slot);
	p->slot->grant = p;
	slot->used = true;
	staging_pool_hold(&rs->part, slot->pool);
}

/* Chooses the piece that gets the next slot, and assigns a slot to it. Returns
 * NULL if there is no such piece. */
static struct staging_grant *grant_pick(struct staging_remote *rs)
	TEI_REQUIRES(rs->part.lock)
{
	struct staging_grant *p, *best = NULL;
	struct staging_slot *slot, *give = NULL;
	struct staging_region *r;
	uint32_t idle, used, has, least = STAGING_REMOTE_SLOTS;
	struct staging_pool *pool;

	tei_list_foreach(p, &rs->waiting, struct staging_grant, node) {
		r = grant_region(rs, p->serial);
		pool = r ? rs->part.pool[r->place] : NULL;
		if (!pool)
			continue;	/* the GPU memory is being unregistered;
					 * client_check ends the piece */
		slot = staging_slot_idle(&rs->part, pool, &idle, &used);
		has = client_slots(pool, p->client);
		if (!slot || has >= idle || has >= least)
			continue;
		least = has;
		best = p;
		give = slot;
	}
	if (best)
		grant_give(rs, best, give);
	return best;
}

static void grant_slots(struct staging_remote *rs)
{
	struct staging_grant *p;

	while (!tei_list_empty(&rs->waiting)) {
		tei_mutex_lock(&rs->part.lock);
		p = grant_pick(rs);
		tei_mutex_unlock(&rs->part.lock);
		if (!p)
			return;
		tei_list_del(&p->node);
		p->received_ns = rs->now;
		if (p->reads) {
			grant_copy(rs, p);
		} else {
			p->state = GRANT_SENT;
			grant_send(rs, p, STAGING_READY, 0);
		}
	}
}

/* --- messages ------------------------------------------------------------- */

static struct staging_client *client_find(struct staging_remote *rs,
					  struct tei_rail_peer *peer)
{
	struct staging_client *b;
	uint32_t i;

	tei_list_foreach(b, &rs->clients, struct staging_client, link)
		if (b->peer == peer)
			return b;
	b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	tei_rail_peer_hold(peer);
	b->peer = peer;
	for (i = 0; i < STAGING_NUMBERS; i++)
		b->grant[i].client = b;
	tei_list_add_tail(&rs->clients, &b->link);
	return b;
}

/* Checks the range of an ASK, and stores the serial of its region. Returns 0, or
 * the code with which the ASK is refused. If several regions contain the range,
 * the oldest one is chosen, so that all pieces of a request get the same one. */
static int grant_check(struct staging_remote *rs, const struct staging_msg *m,
		       uint64_t *serial)
{
	int ret = TEI_ERR_NOT_REGISTERED;
	struct staging_region *r;
	uint32_t i;

	if (!m->length || m->length > TEI_STAGING_PIECE || m->at < m->base ||
	    m->length > m->extent || m->at - m->base > m->extent - m->length)
		return TEI_ERR_INVALID;
	tei_mutex_lock(&rs->part.lock);
	for (i = 0; i < rs->nregions; i++) {
		r = &rs->regions[i];
		if (r->gone || m->base < r->base || m->extent > r->length ||
		    m->base - r->base > r->length - m->extent)
			continue;
		if (ret || r->serial < *serial)
			*serial = r->serial;
		ret = 0;
	}
	tei_mutex_unlock(&rs->part.lock);
	return ret;
}

static void grant_requested(struct staging_remote *rs, struct staging_grant *p,
			    const struct staging_msg *m)
{
	int ret = grant_check(rs, m, &p->serial);

	p->gpu = m->at;
	p->length = m->length;
	p->reads = m->flags & STAGING_READS;
	if (ret) {
		grant_end(rs, p, ret, false);
		return;
	}
	p->state = GRANT_WAITING;
	tei_list_add_tail(&rs->waiting, &p->node);
}

/* Handles the ASK of a piece whose number has not been received before. */
static void grant_new(struct staging_remote *rs, struct staging_grant *p,
		      const struct staging_msg *m)
{
	p->id = m->id;
	p->state = GRANT_NONE;
	p->slot = NULL;
	p->canceled = false;
	p->unsent = false;
	if (m->type == STAGING_ASK)
		grant_requested(rs, p, m);
	else /* GO or FREE has overtaken the ASK of its piece, or the record of
	      * the piece was freed */
		grant_end(rs, p,
			  m->type == STAGING_FREE ? 0 : TEI_ERR_TIMED_OUT,
			  false);
}

static void grant_freed(struct staging_remote *rs, struct staging_grant *p,
			uint16_t flags)
{
	if (p->state == GRANT_FETCHING)
		p->canceled = true;
	else if (p->state == GRANT_WAITING || p->state == GRANT_SENT)
		grant_end(rs, p, 0, flags & STAGING_UNFENCED);
}

static bool grant_live(const struct staging_grant *p)
{
	return p->state != GRANT_NONE && p->state != GRANT_DONE;
}

void staging_grant_message(struct staging_remote *rs,
			   struct tei_rail_peer *peer,
			   const struct staging_msg *m)
{
	struct staging_client *b = client_find(rs, peer);
	enum tei_channel_seen seen;
	struct staging_grant *p;

	staging_unacked_message(rs, peer, m);
	if (!b)
		return;
	p = &b->grant[m->id % STAGING_NUMBERS];
	seen = tei_channel_seen(p->id, m->id);
	if (seen == TEI_CHANNEL_OLD ||
	    (seen == TEI_CHANNEL_NEW && grant_live(p)))
		return;
	b->received_ns = rs->now;
	staging_backoff_end(&b->backoff);
	p->received_ns = rs->now;
	if (seen == TEI_CHANNEL_NEW)
		grant_new(rs, p, m);
	else if (p->state == GRANT_DONE)
		grant_send(rs, p, STAGING_DONE, p->code);
	else if (m->type == STAGING_FREE)
		grant_freed(rs, p, m->flags);
	else if (m->type == STAGING_GO && p->state == GRANT_SENT && !p->reads)
		grant_copy(rs, p);
	else if (m->type == STAGING_ASK && p->state == GRANT_SENT)
		grant_send(rs, p, STAGING_READY, 0);
}

/* --- time ---------------------------------------------------------------- */

/* Returns 0 if a piece may continue, or the code with which it must end. gone:
 * the client of the piece is gone. */
static int grant_verdict(struct staging_remote *rs,
			 const struct staging_grant *p, bool gone)
{
	uint64_t timeout = staging_timeout_ns(rs->part.staging);
	bool there, leaving = false;

	if (gone)
		return TEI_ERR_ENDPOINT;
	tei_mutex_lock(&rs->part.lock);
	there = grant_region(rs, p->serial) != NULL;
	if (p->slot)
		leaving = p->slot->slot.pool->leaving;
	tei_mutex_unlock(&rs->part.lock);
	/* The region is looked up only while the piece waits for a slot. Later,
	 * grant_copy looks it up when it starts the copy. A read no longer
	 * needs the region when its bytes are in the slot. */
	if (p->state == GRANT_WAITING ? !there : leaving)
		return TEI_ERR_NOT_REGISTERED;
	return rs->now - p->received_ns > timeout ? TEI_ERR_TIMED_OUT : 0;
}

/* Checks the timeouts of a client's pieces. Returns the number of copies in
 * progress for these pieces. Sets *any to true if the client has pieces at this
 * target. */
static uint32_t client_check(struct staging_remote *rs,
			     struct staging_client *b, bool gone, bool *any)
{
	struct staging_grant *p;
	uint32_t i, copies = 0;
	int code;

	*any = false;
	for (i = 0; i < STAGING_NUMBERS; i++) {
		p = &b->grant[i];
		if (p->state == GRANT_WAITING || p->state == GRANT_SENT) {
			code = grant_verdict(rs, p, gone);
			if (code && !gone && p->state == GRANT_SENT)
				staging_unacked_set(rs, p->slot, b->peer,
						    p->id);
			if (code)
				grant_end(rs, p, code, p->state == GRANT_SENT);
		}
		if (p->unsent)
			grant_send_again(rs, p);
		copies +=
			p->state == GRANT_FETCHING || p->state == GRANT_STORING;
		*any |= grant_live(p);
	}
	return copies;
}

static void client_free(struct staging_client *b)
{
	tei_list_del(&b->link);
	tei_rail_peer_put(b->peer);
	free(b);
}

/* Makes a thread of the owner provide memory for a slot that needs it. */
static void slot_renew(struct staging_remote *rs,
		       struct staging_remote_slot *slot)
	TEI_REQUIRES(rs->part.lock)
{
	struct tei_staging *s = rs->part.staging;

	if (rs->now < slot->again_ns) {
		staging_remote_due(rs, slot->again_ns);
		return;
	}
	slot->renewing = s->ops->renew(s->arg, &slot->slot);
	if (slot->renewing)
		staging_pool_hold(&rs->part, slot->slot.pool);
	staging_remote_due(rs, rs->now + STAGING_CHECK_NS);
}

/* Renews the slots that need it, except in a pool that is about to be freed. */
static void slots_renew(struct staging_remote *rs)
{
	struct staging_remote_slot *slot;
	struct staging_pool *pool;
	uint32_t i, k;

	tei_mutex_lock(&rs->part.lock);
	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		pool = rs->part.pool[i];
		for (k = 0; pool && !pool->leaving && k < STAGING_REMOTE_SLOTS;
		     k++) {
			slot = staging_slot_at(pool, k);
			if (slot->slot.must_renew && !slot->renewing)
				slot_renew(rs, slot);
		}
	}
	tei_mutex_unlock(&rs->part.lock);
}

void staging_grant_poll(struct staging_remote *rs)
{
	uint64_t keep = 2 * staging_timeout_ns(rs->part.staging);
	struct staging_client *b, *tmp;
	bool any, gone;

	tei_list_foreach_safe(b, tmp, &rs->clients, struct staging_client,
			      link) {
		gone = tei_rail_peer_gone(b->peer);
		if (!client_check(rs, b, gone, &any) &&
		    (gone || (!any && rs->now - b->received_ns > keep &&
			      !staging_unacked_any(rs, b->peer))))
			client_free(b);
		else
			staging_remote_due(rs,
					   rs->now + (any ? STAGING_CHECK_NS :
							    TEI_NS_PER_SEC));
	}
	staging_unacked_check(rs);
	slots_renew(rs);
	grant_slots(rs);
}

bool staging_grant_busy(struct staging_remote *rs)
{
	struct staging_remote_slot *slot;
	struct staging_pool *pool;
	bool busy = false;
	uint32_t i, k;

	tei_mutex_lock(&rs->part.lock);
	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		pool = rs->part.pool[i];
		for (k = 0; pool && k < STAGING_REMOTE_SLOTS; k++) {
			slot = staging_slot_at(pool, k);
			busy |= slot->copying;
		}
	}
	tei_mutex_unlock(&rs->part.lock);
	return busy;
}

void staging_grant_forget(struct staging_remote *rs)
{
	while (!tei_list_empty(&rs->clients))
		client_free(tei_list_first(&rs->clients, struct staging_client,
					   link));
	staging_unacked_forget(rs);
}
