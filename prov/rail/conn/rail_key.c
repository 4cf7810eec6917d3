/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys of memory regions. An initiator requests the keys of a peer's regions in
 * messages and caches them until the peer revokes them. A target remembers
 * which peers hold the keys of each region. dp->sched guards the keys and the
 * lists of key holders.
 */

#include <rdma/fi_domain.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_key.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"

/* A raw key, mapped for one local rail. */
struct rail_raw {
	uint16_t rail;			/* index of the local rail */
	uint16_t part;			/* index into rail_rkey.part */
	uint64_t key64;
};

/* The revoked keys of one region that slices still use. */
struct rail_draining {
	uint64_t id;			/* id of the region */
	uint32_t keys;
	bool answer;			/* REVOKED must be sent when "keys"
					 * reaches 0 */
};

/* Returns the remote key whose member "range" is *r, or NULL if r is NULL. */
static struct rail_rkey *key_of(struct tei_range *r)
{
	return r ? tei_container_of(r, struct rail_rkey, range) : NULL;
}

struct rail_rkey *rail_key_find(struct tei_rail_peer *peer, uint64_t addr)
{
	return key_of(tei_range_find(&peer->keys.rkeys, addr, 0));
}

/* Advances *addr and *len to the first byte for which no remote key is known
 * that allows the access. Returns false if all bytes have such a key. */
static bool key_missing(struct tei_rail_peer *peer, uint64_t *addr,
			uint64_t *len, bool read)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_rkey *k;
	uint64_t have;

	if (!*len || *addr + (*len - 1) < *addr)
		return true;
	for (;;) {
		k = rail_key_find(peer, *addr);
		if (!k || (k->read_only && !read))
			return true;
		have = k->range.end - *addr;
		if (have >= *len)
			return false;
		*addr += have;
		*len -= have;
	}
}

bool rail_key_covers(struct tei_rail_peer *peer, uint64_t addr, uint64_t len,
		     bool read)
{
	return !key_missing(peer, &addr, &len, read);
}

bool rail_key_covers_or_want(struct tei_rail_peer *peer, uint64_t addr,
			     uint64_t len, bool read)
{
	if (!key_missing(peer, &addr, &len, read))
		return true;
	/* request only the remaining keys, from this address on, because one
	 * KEY_REP may not contain all keys */
	rail_key_want(peer, addr, len);
	return false;
}

void rail_key_want(struct tei_rail_peer *peer, uint64_t addr, uint64_t len)
{
	struct rail_key_want *w = &peer->keys.want;

	if (w->active && w->addr == addr && w->len == len)
		return;
	/* since_ns is the start of the time in which the peer has not answered.
	 * It is kept if another request is pending: two tasks may replace each
	 * other's request again and again without an answer to either. */
	if (!w->active) {
		w->since_ns = 0;
		w->next_ns = 0;
		rail_peer_attend(peer);
	}
	/* If another request is pending, next_ns is kept, too: the new request
	 * is sent at that time. Without this pause, two tasks that request keys
	 * alternately would send requests to a silent peer without end. */
	w->active = true;
	w->addr = addr;
	w->len = len;
	w->tries = 0;
}

/* Appends v to the list, unless the list contains it. Returns false if memory
 * is short. */
static bool key_push(uint64_t **list, uint32_t *n, uint32_t *cap, uint64_t v)
{
	uint64_t *grown;
	uint32_t i;

	for (i = 0; i < *n; i++)
		if ((*list)[i] == v)
			return true;
	if (*n == *cap) {
		grown = realloc(*list, (*cap * 2 + 8) * sizeof(*grown));
		if (!grown)
			return false;
		*list = grown;
		*cap = *cap * 2 + 8;
	}
	(*list)[(*n)++] = v;
	return true;
}

/* Removes v from the list, which is unordered. Returns true if the list
 * contained v. */
static bool key_pull(uint64_t *list, uint32_t *n, uint64_t v)
{
	uint32_t i;

	for (i = 0; i < *n; i++) {
		if (list[i] != v)
			continue;
		list[i] = list[--*n];
		return true;
	}
	return false;
}

static struct rail_draining *key_draining(struct tei_rail_peer *peer,
					  uint64_t id)
{
	uint32_t i;

	for (i = 0; i < peer->keys.ndraining; i++)
		if (peer->keys.draining[i].id == id)
			return &peer->keys.draining[i];
	return NULL;
}

/* Reserves an entry of keys.draining for each key of the table and for one
 * more, so that keys in use can be withdrawn without allocating. Returns false
 * if memory is short. */
static bool key_reserve(struct tei_rail_peer *peer)
{
	uint32_t need = peer->keys.ndraining + peer->keys.rkeys.n + 1;
	struct rail_draining *grown;

	if (need <= peer->keys.draining_cap)
		return true;
	grown = realloc(peer->keys.draining, 2 * need * sizeof(*grown));
	if (!grown)
		return false;
	peer->keys.draining = grown;
	peer->keys.draining_cap = 2 * need;
	return true;
}

/* Counts one more withdrawn key of the region as still in use. key_reserve has
 * allocated the entry. */
static void key_drain(struct tei_rail_peer *peer, uint64_t id)
{
	struct rail_draining *d = key_draining(peer, id);

	if (d) {
		d->keys++;
		return;
	}
	d = &peer->keys.draining[peer->keys.ndraining++];
	d->id = id;
	d->keys = 1;
	d->answer = false;
}

/* Counts one key of a withdrawn region as no longer in use. After the last key,
 * sends REVOKED if the peer has revoked the region. */
static void key_drained(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_draining *d = key_draining(peer, id);
	bool answer;

	if (!d || --d->keys)
		return;
	answer = d->answer;
	*d = peer->keys.draining[--peer->keys.ndraining];
	if (answer)
		rail_key_owe(peer, id);
}

/* --- raw keys ------------------------------------------------------------ */

bool rail_key_raw(struct rail_rkey *k, uint16_t part, const struct rail *rail,
		  uint64_t *key64)
{
	struct rail_rkey_part *p = &k->part[part];
	struct rail_raw *grown;
	uint32_t i;

	for (i = 0; i < k->nraw; i++) {
		if (k->raw[i].rail == rail->index && k->raw[i].part == part) {
			*key64 = k->raw[i].key64;
			return true;
		}
	}
	grown = realloc(k->raw, (k->nraw + 1) * sizeof(*grown));
	if (!grown)
		return false;
	k->raw = grown;
	grown += k->nraw;
	if (fi_mr_map_raw(rail->fab.tx_domain, k->range.base - p->offset,
			  p->key, p->key_len, &grown->key64, 0))
		return false;
	grown->rail = rail->index;
	grown->part = part;
	k->nraw++;
	*key64 = grown->key64;
	return true;
}

/* Unmaps the raw keys that were mapped for the rail. */
static void key_unmap(struct rail_rkey *k, const struct rail *rail)
{
	uint32_t i = 0;

	while (i < k->nraw) {
		if (k->raw[i].rail != rail->index) {
			i++;
			continue;
		}
		fi_mr_unmap_key(rail->fab.tx_domain, k->raw[i].key64);
		k->raw[i] = k->raw[--k->nraw];
	}
}

void rail_key_unmap(struct rail *rail)
{
	struct tei_rail_dp *dp = rail->dp;
	struct tei_rail_peer *peer;
	struct rail_rkey *k;

	if (!(rail->fab.mr_mode & FI_MR_RAW) || !rail->fab.tx_domain)
		return;
	rail_sched_enter(dp);
	tei_list_foreach (peer, &dp->peers.list, struct tei_rail_peer, link)
		tei_list_foreach (k, &peer->keys.all, struct rail_rkey, link)
			key_unmap(k, rail);
	rail_sched_leave(dp);
}

static void key_free(struct tei_rail_dp *dp, struct rail_rkey *k)
{
	while (k->nraw)
		key_unmap(k, rail_at(dp, k->raw[0].rail));
	tei_list_del(&k->link);
	free(k->raw);
	free(k);
}

/* --- the table ----------------------------------------------------------- */

void rail_key_slice_done(struct tei_rail_peer *peer, struct rail_rkey *k)
{
	if (--k->slices || !k->revoked)
		return;
	key_drained(peer, k->id);
	key_free(peer->dp, k);
}

static struct rail_rkey **key_bucket(struct tei_rail_peer *peer, uint64_t id)
{
	return &peer->keys.ids[id % peer->keys.nids];
}

struct rail_rkey *rail_key_of_region(struct tei_rail_peer *peer, uint64_t id,
				     const struct rail_rkey *prev)
{
	struct rail_rkey *k = NULL;

	if (prev)
		k = prev->bucket_next;
	else if (peer->keys.nids)
		k = *key_bucket(peer, id);
	while (k && k->id != id)
		k = k->bucket_next;
	return k;
}

static void key_id_link(struct tei_rail_peer *peer, struct rail_rkey *k)
{
	struct rail_rkey **b = key_bucket(peer, k->id);

	k->bucket_next = *b;
	*b = k;
}

static void key_id_unlink(struct tei_rail_peer *peer, struct rail_rkey *k)
{
	struct rail_rkey **b = key_bucket(peer, k->id);

	while (*b != k)
		b = &(*b)->bucket_next;
	*b = k->bucket_next;
}

/* Allocates memory for one more key in the table and in the hash table by
 * region id. Returns false if memory is short. */
static bool key_grow(struct tei_rail_peer *peer)
{
	struct rail_rkey **ids, *k;
	uint32_t n = peer->keys.nids * 2 + 8, i;

	if (!tei_range_reserve(&peer->keys.rkeys, 1))
		return false;
	if (peer->keys.rkeys.n < peer->keys.nids)
		return true;
	ids = calloc(n, sizeof(*ids));
	if (!ids)
		return false;
	free(peer->keys.ids);
	peer->keys.ids = ids;
	peer->keys.nids = n;
	tei_range_foreach (k, i, &peer->keys.rkeys, struct rail_rkey, range)
		key_id_link(peer, k);
	return true;
}

/* Removes the key from the table, and from slices that wait to be posted again.
 * A key that other slices still use is freed after the last of these slices. */
static void key_withdraw(struct tei_rail_peer *peer, struct rail_rkey *k)
{
	struct rail_slice *s;

	key_id_unlink(peer, k);
	tei_range_remove(&peer->keys.rkeys, &k->range);
	k->revoked = true;
	tei_list_foreach (s, &peer->tasks.retry, struct rail_slice, link) {
		if (s->rkey == k) {
			s->rkey = NULL;
			k->slices--;
		}
	}
	if (!k->slices)
		key_free(peer->dp, k);
	else
		key_drain(peer, k->id);
}

/* Withdraws all keys of the region. A region may have several keys, one for
 * each part that KEY_REP described. */
static void key_withdraw_region(struct tei_rail_peer *peer, uint64_t id)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_rkey *k;

	while ((k = rail_key_of_region(peer, id, NULL)))
		key_withdraw(peer, k);
}

bool rail_key_add(struct tei_rail_peer *peer, struct rail_rkey *k)
{
	struct rail_rkey *old;

	while ((old = key_of(tei_range_overlap(&peer->keys.rkeys, k->range.base,
					       k->range.end)))) {
		if (old->id == k->id && old->range.base == k->range.base &&
		    old->range.end == k->range.end) {
			free(k);	/* the peer has sent this key before:
					 * discard the copy */
			return true;
		}
		/* the regions of a peer do not overlap, so the peer has
		 * unregistered the other one */
		if (old->id != k->id)
			key_withdraw_region(peer, old->id);
		else
			key_withdraw(peer, old);
	}
	if (!key_reserve(peer) || !key_grow(peer) ||
	    tei_range_insert(&peer->keys.rkeys, &k->range)) {
		free(k);
		return false;
	}
	key_id_link(peer, k);
	tei_list_add_tail(&peer->keys.all, &k->link);
	return true;
}

void rail_key_owe_again(struct tei_rail_peer *peer, uint64_t id)
{
	key_push(&peer->keys.answer_pending, &peer->keys.nowed,
		 &peer->keys.answer_pending_cap, id);
}

void rail_key_owe(struct tei_rail_peer *peer, uint64_t id)
{
	rail_key_owe_again(peer, id);
	rail_peer_attend(peer);
}

void rail_key_revoked(struct tei_rail_peer *peer, uint64_t id)
{
	struct rail_draining *d;

	key_withdraw_region(peer, id);
	d = key_draining(peer, id);
	if (d)
		d->answer = true;
	else
		rail_key_owe(peer, id);
}

void rail_key_drop_all(struct tei_rail_peer *peer)
{
	struct tei_range_table *t = &peer->keys.rkeys;

	rail_key_forget(peer);
	while (t->n)
		key_withdraw(peer, key_of(t->at[t->n - 1]));
}

void rail_key_free_all(struct tei_rail_peer *peer)
{
	struct rail_rkey *k, *tmp;

	/* the rails are closed, so no raw key is mapped any longer */
	tei_list_foreach_safe (k, tmp, &peer->keys.all, struct rail_rkey,
			       link) {
		free(k->raw);
		free(k);
	}
	tei_range_fini(&peer->keys.rkeys);
}

/* --- target side --------------------------------------------------------- */

int rail_key_add_holder(struct tei_rail_mr *mr, uint64_t incarnation)
{
	return key_push(&mr->holders, &mr->nholders, &mr->holders_cap,
			incarnation) ? 0 : TEI_ERR_MEMORY;
}

void rail_key_holder_gone(struct tei_rail_dp *dp, uint64_t incarnation,
			  bool sure)
{
	struct tei_rail_mr *mr;
	uint32_t i;

	for (i = 0; i < dp->memory.mrs.n; i++) {
		mr = rail_mr_at(dp, i);
		if (key_pull(mr->holders, &mr->nholders, incarnation) && !sure)
			mr->lost = true;
	}
}

int rail_key_revoke(struct tei_rail_peer *peer, uint64_t id)
{
	if (!key_push(&peer->keys.revokes, &peer->keys.nrevokes,
		      &peer->keys.revokes_cap, id))
		return TEI_ERR_MEMORY;
	peer->keys.revoke_next_ns = 0;
	rail_peer_attend(peer);
	return 0;
}

/* Returns the region with that id whose keys are being revoked, or NULL. */
static struct tei_rail_mr *key_revoking(struct tei_rail_dp *dp, uint64_t id)
{
	struct tei_rail_mr *mr;

	tei_list_foreach (mr, &dp->memory.revoking, struct tei_rail_mr,
			  revoking)
		if (mr->id == id)
			return mr;
	return NULL;
}

void rail_key_drained(struct tei_rail_peer *peer, uint64_t id)
{
	struct tei_rail_mr *mr;

	if (!key_pull(peer->keys.revokes, &peer->keys.nrevokes, id))
		return;
	mr = key_revoking(peer->dp, id);
	if (mr && mr->holders_left && !--mr->holders_left)
		rail_progress_signal(peer->dp);
}
