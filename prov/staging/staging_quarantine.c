/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote bounce slots, the target: records of the grants that the client has
 * not acknowledged yet, and of the memory that stays in quarantine because of
 * such a grant.
 */
#include "prov/staging/staging_quarantine_int.h"
#include "prov/staging/staging_remote_int.h"

#include <stdlib.h>
#include <sys/mman.h>

/* --- memory of a slot ----------------------------------------------------- */

static struct staging_remote_slot *quarantine_slot(struct staging_slot *slot)
{
	return tei_container_of(slot, struct staging_remote_slot, slot);
}

/* Allocates the quarantine record when the slot is prepared, because
 * staging_quarantine_retire must not fail. */
int staging_quarantine_prepare(struct staging_slot *base, struct tei_err *err)
{
	struct staging_remote_slot *slot = quarantine_slot(base);

	if (!slot->record)
		slot->record = calloc(1, sizeof(*slot->record));
	if (!slot->record)
		return tei_err_fail(err, TEI_ERR_MEMORY, "staging", NULL,
				    "no memory for a remote bounce slot");
	return 0;
}

/* Frees the record g: unmaps its memory and drops its reference to the peer. */
static void quarantine_free(struct staging_quarantine *g)
{
	if (g->mem)
		munmap(g->mem, TEI_STAGING_PIECE);
	if (g->unacked.peer)
		tei_rail_peer_put(g->unacked.peer);
	free(g);
}

/* Makes the memory of a slot inaccessible. Its addresses stay in quarantine
 * while the grant is unacknowledged. */
void staging_quarantine_retire(struct staging_slot *base)
{
	struct staging_remote *rs = staging_slot_remote(base);
	struct staging_remote_slot *slot = quarantine_slot(base);
	struct staging_quarantine *g = slot->record;
	bool unacked;

	slot->record = NULL;
	g->mem = base->mem;
	mmap(g->mem, TEI_STAGING_PIECE, PROT_NONE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	tei_mutex_lock(&rs->part.lock);
	unacked = slot->unacked.peer;
	if (unacked) {
		g->unacked = slot->unacked; /* g now has the reference to the
					     * peer */
		slot->unacked.peer = NULL;
		tei_list_add_tail(&rs->quarantine, &g->link);
		staging_part_notify(&rs->part);
	}
	tei_mutex_unlock(&rs->part.lock);
	if (!unacked)
		quarantine_free(g);
}

/* Called when a slot is being freed. Ends the unacknowledged grant of the slot,
 * if any, and frees the slot's record. */
void staging_quarantine_fini(struct staging_slot *base) TEI_NO_TSA
{
	struct staging_remote *rs = staging_slot_remote(base);
	struct staging_remote_slot *slot = quarantine_slot(base);
	struct tei_rail_peer *peer;

	tei_mutex_lock(&rs->part.lock);
	peer = slot->unacked.peer;
	slot->unacked.peer = NULL;
	rs->nunacked -= peer != NULL;
	tei_mutex_unlock(&rs->part.lock);
	if (peer)
		tei_rail_peer_put(peer);
	free(slot->record);
}

/* --- unacknowledged grants ------------------------------------------------ */

void staging_unacked_set(struct staging_remote *rs,
			 struct staging_remote_slot *slot,
			 struct tei_rail_peer *peer, uint64_t id)
{
	tei_rail_peer_hold(peer);
	tei_mutex_lock(&rs->part.lock);
	slot->unacked.peer = peer;
	slot->unacked.id = id;
	rs->nunacked++;
	tei_mutex_unlock(&rs->part.lock);
}

/* Returns true if the message acknowledges the grant. */
static bool unacked_past(const struct staging_unacked *unacked,
			 const struct tei_rail_peer *peer,
			 const struct staging_msg *m)
{
	return unacked->peer == peer &&
	       (m->id >= unacked->id + STAGING_NUMBERS ||
		(m->id == unacked->id && m->type != STAGING_ASK));
}

/* Moves quarantined memory to the list "over", whose elements the caller frees
 * after it has released the lock. */
static void unacked_take(struct staging_remote *rs,
			 struct staging_quarantine *g, struct tei_list *over)
	TEI_REQUIRES(rs->part.lock)
{
	tei_list_del(&g->link);
	tei_list_add_tail(over, &g->link);
	rs->nunacked--;
}

static void unacked_free(struct tei_list *over)
{
	struct staging_quarantine *g;

	while (!tei_list_empty(over)) {
		g = tei_list_first(over, struct staging_quarantine, link);
		tei_list_del(&g->link);
		quarantine_free(g);
	}
}

/* Ends the acknowledged grants of slots whose memory is not in quarantine.
 * Returns their number. */
static uint32_t unacked_slots(struct staging_remote *rs,
			      const struct tei_rail_peer *peer,
			      const struct staging_msg *m)
	TEI_REQUIRES(rs->part.lock)
{
	struct staging_remote_slot *slot;
	struct staging_pool *pool;
	uint32_t i, k, n = 0;

	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		pool = rs->part.pool[i];
		for (k = 0; pool && k < STAGING_REMOTE_SLOTS; k++) {
			slot = staging_slot_at(pool, k);
			if (!unacked_past(&slot->unacked, peer, m))
				continue;
			slot->unacked.peer = NULL;
			n++;
		}
	}
	rs->nunacked -= n;
	return n;
}

void staging_unacked_message(struct staging_remote *rs,
			     const struct tei_rail_peer *peer,
			     const struct staging_msg *m)
{
	struct staging_quarantine *g, *tmp;
	struct tei_list over;
	uint32_t slots = 0;

	tei_list_init(&over);
	tei_mutex_lock(&rs->part.lock);
	if (rs->nunacked) {
		slots = unacked_slots(rs, peer, m);
		tei_list_foreach_safe(g, tmp, &rs->quarantine,
				      struct staging_quarantine, link)
			if (unacked_past(&g->unacked, peer, m))
				unacked_take(rs, g, &over);
	}
	tei_mutex_unlock(&rs->part.lock);
	while (slots--)
		tei_rail_peer_put((struct tei_rail_peer *)peer);
	unacked_free(&over);
}

/* Returns the quarantined memory after g in the list, or the first one if g is
 * NULL. Only the thread "tei-remote" removes elements from the list. */
static struct staging_quarantine *unacked_next(struct staging_remote *rs,
					       struct staging_quarantine *g)
{
	struct tei_list *next;

	tei_mutex_lock(&rs->part.lock);
	next = g ? g->link.next : rs->quarantine.next;
	tei_mutex_unlock(&rs->part.lock);
	return next == &rs->quarantine ?
		       NULL :
		       tei_container_of(next, struct staging_quarantine, link);
}

static bool unacked_in_slots(struct staging_remote *rs,
			     const struct tei_rail_peer *peer)
	TEI_REQUIRES(rs->part.lock)
{
	struct staging_remote_slot *slot;
	struct staging_pool *pool;
	bool any = false;
	uint32_t i, k;

	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		pool = rs->part.pool[i];
		for (k = 0; pool && k < STAGING_REMOTE_SLOTS; k++) {
			slot = staging_slot_at(pool, k);
			any |= slot->unacked.peer == peer;
		}
	}
	return any;
}

bool staging_unacked_any(struct staging_remote *rs,
			 const struct tei_rail_peer *peer)
{
	struct staging_quarantine *g;
	bool any = false;

	tei_mutex_lock(&rs->part.lock);
	if (rs->nunacked) {
		tei_list_foreach(g, &rs->quarantine, struct staging_quarantine,
				 link)
			any |= g->unacked.peer == peer;
		any |= unacked_in_slots(rs, peer);
	}
	tei_mutex_unlock(&rs->part.lock);
	return any;
}

void staging_unacked_check(struct staging_remote *rs)
{
	struct staging_quarantine *g, *next;
	struct tei_list over;

	tei_list_init(&over);
	for (g = unacked_next(rs, NULL); g; g = next) {
		next = unacked_next(rs, g);
		staging_remote_due(rs, rs->now + TEI_NS_PER_SEC);
		if (!tei_rail_peer_gone(g->unacked.peer))
			continue;
		tei_mutex_lock(&rs->part.lock);
		unacked_take(rs, g, &over);
		tei_mutex_unlock(&rs->part.lock);
	}
	unacked_free(&over);
}

void staging_unacked_forget(struct staging_remote *rs) TEI_NO_TSA
{
	struct staging_quarantine *g;
	struct staging_remote_slot *slot;
	struct staging_pool *pool;
	uint32_t i, k;

	while (!tei_list_empty(&rs->quarantine)) {
		g = tei_list_first(&rs->quarantine, struct staging_quarantine,
				   link);
		tei_list_del(&g->link);
		quarantine_free(g);
	}
	for (i = 0; i < TEI_GPU_CONTEXTS; i++) {
		pool = rs->part.pool[i];
		for (k = 0; pool && k < STAGING_REMOTE_SLOTS; k++) {
			slot = staging_slot_at(pool, k);
			if (slot->unacked.peer)
				tei_rail_peer_put(slot->unacked.peer);
			slot->unacked.peer = NULL;
		}
	}
}
