/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys. Initiator: regions of a peer, asked for in-band and cached until the
 * peer takes them back. Target: who was given which region. All of it under
 * dp->sched.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/rail/rail_int.h"

static uint32_t key_index(const struct tei_rail_peer *peer, uint64_t addr)
{
	uint32_t lo = 0, hi = peer->nrkeys, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (peer->rkeys[mid]->base + (peer->rkeys[mid]->len - 1) < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct rail_rkey *rail_key_find(struct tei_rail_peer *peer, uint64_t addr)
{
	uint32_t i = key_index(peer, addr);

	if (i >= peer->nrkeys || peer->rkeys[i]->base > addr)
		return NULL;
	return peer->rkeys[i];
}

bool rail_key_covers(struct tei_rail_peer *peer, uint64_t addr, uint64_t len)
{
	struct rail_rkey *k;
	uint64_t have;

	if (!len || addr + (len - 1) < addr)
		return false;
	for (;;) {
		k = rail_key_find(peer, addr);
		if (!k)
			return false;
		have = k->len - (addr - k->base);
		if (have >= len)
			return true;
		addr += have;
		len -= have;
	}
}

void rail_key_want(struct tei_rail_peer *peer, uint64_t addr, uint64_t len)
{
	struct rail_key_want *w = &peer->key_want;

	if (w->active && w->addr == addr && w->len == len)
		return;
	w->active = true;
	w->addr = addr;
	w->len = len;
	w->tries = 0;
	w->next_ns = 0;
	w->since_ns = 0;
	rail_peer_attend(peer);
}

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

	for (i = 0; i < peer->ndraining; i++)
		if (peer->draining[i].id == id)
			return &peer->draining[i];
	return NULL;
}

/* False: no memory; then the target's fence takes care of it. */
static bool key_drain(struct tei_rail_peer *peer, uint64_t id)
{
	struct rail_draining *d = key_draining(peer, id), *grown;
	uint32_t cap = peer->draining_cap * 2 + 8;

	if (d) {
		d->keys++;
		return true;
	}
	if (peer->ndraining == peer->draining_cap) {
		grown = realloc(peer->draining, cap * sizeof(*grown));
		if (!grown)
			return false;
		peer->draining = grown;
		peer->draining_cap = cap;
	}
	d = &peer->draining[peer->ndraining++];
	d->id = id;
	d->keys = 1;
	d->answer = false;
	return true;
}

static void key_drained(struct tei_rail_peer *peer, uint64_t id)
{
	struct rail_draining *d = key_draining(peer, id);
	bool answer;

	if (!d || --d->keys)
		return;
	answer = d->answer;
	*d = peer->draining[--peer->ndraining];
	if (answer)
		rail_key_owe(peer, id);
}

static void key_free(struct rail_rkey *k)
{
	tei_list_del(&k->link);
	free(k);
}

void rail_key_slice_done(struct tei_rail_peer *peer, struct rail_rkey *k)
{
	if (--k->slices || !k->revoked)
		return;
	key_drained(peer, k->id);
	key_free(k);
}

/* Takes it out of the table; it lives on until its slices are back. */
static void key_withdraw(struct tei_rail_peer *peer, uint32_t i)
{
	struct rail_rkey *k = peer->rkeys[i];
	struct rail_slice *s;

	memmove(&peer->rkeys[i], &peer->rkeys[i + 1],
		(peer->nrkeys - i - 1) * sizeof(*peer->rkeys));
	peer->nrkeys--;
	k->revoked = true;
	tei_list_foreach(s, &peer->retry, struct rail_slice, link) {
		if (s->rkey == k) {
			s->rkey = NULL;
			k->slices--;
		}
	}
	if (!k->slices)
		key_free(k);
	else
		key_drain(peer, k->id);
}

bool rail_key_add(struct tei_rail_peer *peer, struct rail_rkey *k)
{
	struct rail_rkey **grown, *old;
	uint32_t i;

	for (;;) {
		i = key_index(peer, k->base);
		if (i >= peer->nrkeys)
			break;
		old = peer->rkeys[i];
		if (old->base > k->base + (k->len - 1))
			break;
		if (old->id == k->id) {
			free(k);	/* known already */
			return true;
		}
		key_withdraw(peer, i);
	}
	if (peer->nrkeys == peer->rkeys_cap) {
		grown = realloc(peer->rkeys, (peer->rkeys_cap * 2 + 8) *
						     sizeof(*grown));
		if (!grown) {
			free(k);
			return false;
		}
		peer->rkeys = grown;
		peer->rkeys_cap = peer->rkeys_cap * 2 + 8;
	}
	memmove(&peer->rkeys[i + 1], &peer->rkeys[i],
		(peer->nrkeys - i) * sizeof(*peer->rkeys));
	peer->rkeys[i] = k;
	peer->nrkeys++;
	tei_list_add_tail(&peer->keys, &k->link);
	return true;
}

void rail_key_owe(struct tei_rail_peer *peer, uint64_t id)
{
	key_push(&peer->owed, &peer->nowed, &peer->owed_cap, id);
	rail_peer_attend(peer);
}

void rail_key_revoked(struct tei_rail_peer *peer, uint64_t id)
{
	struct rail_draining *d;
	uint32_t i;

	for (i = 0; i < peer->nrkeys; i++) {
		if (peer->rkeys[i]->id != id)
			continue;
		key_withdraw(peer, i);
		break;
	}
	d = key_draining(peer, id);
	if (d)
		d->answer = true;
	else
		rail_key_owe(peer, id);
}

void rail_key_drop_all(struct tei_rail_peer *peer)
{
	while (peer->nrkeys)
		key_withdraw(peer, peer->nrkeys - 1);
}

void rail_key_free_all(struct tei_rail_peer *peer)
{
	struct rail_rkey *k, *tmp;

	tei_list_foreach_safe(k, tmp, &peer->keys, struct rail_rkey, link)
		free(k);
	peer->nrkeys = 0;
}

/* --- target side --------------------------------------------------------- */

int rail_key_note_holder(struct tei_rail_mr *mr, uint64_t incarnation)
{
	return key_push(&mr->holders, &mr->nholders, &mr->holders_cap,
			incarnation) ? 0 : TEI_ERR_MEMORY;
}

int rail_key_revoke(struct tei_rail_peer *peer, uint64_t id)
{
	if (!key_push(&peer->revokes, &peer->nrevokes, &peer->revokes_cap, id))
		return TEI_ERR_MEMORY;
	peer->revoke_next_ns = 0;
	rail_peer_attend(peer);
	return 0;
}

static struct tei_rail_mr *key_revoking(struct tei_rail_dp *dp, uint64_t id)
{
	uint32_t i;

	for (i = 0; i < dp->nmrs; i++)
		if (dp->mrs[i]->id == id)
			return dp->mrs[i];
	return NULL;
}

void rail_key_drained(struct tei_rail_peer *peer, uint64_t id)
{
	struct tei_rail_mr *mr;

	if (!key_pull(peer->revokes, &peer->nrevokes, id))
		return;
	mr = key_revoking(peer->dp, id);
	if (mr && mr->holders_left && !--mr->holders_left)
		rail_progress_signal(peer->dp);
}

void rail_key_forget(struct tei_rail_dp *dp, uint64_t id)
{
	struct tei_rail_peer *peer;

	tei_list_foreach(peer, &dp->peers, struct tei_rail_peer, link)
		key_pull(peer->revokes, &peer->nrevokes, id);
}
