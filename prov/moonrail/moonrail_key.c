/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys of peers, with the peers' descriptions of the registrations.
 * moonrail_rma.c requests the descriptions.
 */
#include <stdlib.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_peer.h"
#include "util/list.h"

/* Returns the list of domain->keys that holds this key of the peer. The hash
 * depends on the peer too, because many peers may have chosen the same keys. */
static struct tei_list *key_bucket(struct moonrail_peer *p, uint64_t key)
{
	return moonrail_bucket(p->domain->keys,
			       key ^ (uintptr_t)p / sizeof(*p));
}

struct moonrail_key *moonrail_key_find(struct moonrail_peer *p,
				       uint64_t key)
{
	struct moonrail_key *k;

	tei_list_foreach(k, key_bucket(p, key), struct moonrail_key, hash_link)
		if (k->peer == p && k->key == key)
			return k;
	return NULL;
}

void moonrail_key_add(struct moonrail_peer *p, struct moonrail_key *k)
{
	k->peer = p;
	tei_list_add_tail(&p->keys, &k->link);
	tei_list_add_head(key_bucket(p, k->key), &k->hash_link);
}

void moonrail_key_drop(struct moonrail_key *k)
{
	tei_list_del(&k->link);
	tei_list_del(&k->hash_link);
	free(k);
}

void moonrail_key_forget_unknown(struct moonrail_peer *p)
{
	struct moonrail_key *k, *tmp;

	tei_list_foreach_safe(k, tmp, &p->keys, struct moonrail_key, link)
		if (!k->known)
			moonrail_key_drop(k);
}

void moonrail_key_merge(struct moonrail_peer *from,
			struct moonrail_peer *to)
{
	struct moonrail_key *k;

	while (!tei_list_empty(&from->keys)) {
		k = tei_list_first(&from->keys, struct moonrail_key, link);
		if (moonrail_key_find(to, k->key)) {
			moonrail_key_drop(k);
			continue;
		}
		tei_list_del(&k->link);
		tei_list_del(&k->hash_link);
		moonrail_key_add(to, k);
	}
}
