/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers: the other domains that this domain knows, and this domain itself.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_name.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"

/* --- references ----------------------------------------------------------- */

struct moonrail_peer *moonrail_peer_real(struct moonrail_peer *p)
{
	while (p->replaced_by)
		p = p->replaced_by;
	return p;
}

void moonrail_peer_check_unused(struct moonrail_peer *p)
{
	if (tei_list_empty(&p->idle_link))
		tei_list_add_tail(&p->domain->idle, &p->idle_link);
}

void moonrail_peer_use(struct moonrail_peer *p)
{
	p->uses++;
}

void moonrail_peer_unuse(struct moonrail_peer *p)
{
	if (!--p->uses)
		moonrail_peer_check_unused(p);
}

/* --- the timer ------------------------------------------------------------ */

void moonrail_peer_start_timer(struct moonrail_peer *p)
{
	if (p->timer.next_ns)
		return;
	p->timer.tries = 0;
	p->timer.next_ns = tei_now_ns() + MOONRAIL_PING_NS;
	tei_rail_attend(p->rail);
}

void moonrail_peer_soon(struct moonrail_peer *p)
{
	uint64_t soon = tei_now_ns() + MOONRAIL_PING_NS;

	if (p->timer.next_ns > soon) {
		p->timer.next_ns = soon;
		tei_rail_attend(p->rail);
	}
	moonrail_peer_start_timer(p);
}

void moonrail_peer_resume(struct moonrail_peer *p)
{
	if (!p->resumes)
		return;
	if (tei_list_empty(&p->entries)) {
		p->err = 0;
		p->resumes = false;
	}
	p->silent = false;
	p->timer.silent_ns = 0;
	p->timer.next_ns = 0;
	moonrail_peer_start_timer(p);
}

/* --- finding a peer ------------------------------------------------------- */

struct moonrail_peer *moonrail_peer_find(struct moonrail_domain *d,
					 uint64_t inc)
{
	struct moonrail_peer *p;

	tei_list_foreach(p, moonrail_bucket(d->known, inc), struct moonrail_peer,
			 hash_link)
		if (p->incarnation == inc)
			return p;
	return NULL;
}

void moonrail_peer_identify(struct moonrail_peer *p, uint64_t inc)
{
	p->incarnation = inc;
	tei_list_add_tail(moonrail_bucket(p->domain->known, inc),
			  &p->hash_link);
}

struct moonrail_peer *moonrail_peer_new(struct moonrail_domain *d, uint64_t inc,
					struct tei_rail_peer *rail)
{
	struct moonrail_peer *p = calloc(1, sizeof(*p));

	if (!p) {
		if (rail)
			tei_rail_peer_put(rail);
		return NULL;
	}
	p->domain = d;
	p->rail = rail;
	tei_channel_out_start(&p->out.channel, 1);
	tei_channel_in_start(&p->in.channel, 1, MOONRAIL_WINDOW);
	tei_list_init(&p->entries);
	tei_list_init(&p->out.queue);
	tei_list_init(&p->out.sent);
	tei_list_init(&p->flow.blocked);
	tei_list_init(&p->ops.waiting);
	tei_list_init(&p->ops.checking);
	tei_list_init(&p->ops.waiting_for_key);
	tei_list_init(&p->keys);
	tei_list_add_tail(&d->peers, &p->link);
	tei_list_init(&p->hash_link);
	tei_list_init(&p->idle_link);
	if (inc)
		moonrail_peer_identify(p, inc);
	return p;
}

/* Writes the first contact address of a peer. A sockaddr does not name a
 * libfabric provider, so the provider of a rail with the same address format is
 * used. Returns 0 or -FI_EHOSTUNREACH. */
static int peer_contact(struct moonrail_domain *d,
			const struct moonrail_name *n,
			struct tei_rail_addr *first)
{
	struct tei_rail_desc desc;
	size_t i;

	moonrail_name_addr(n, first);
	if (n->incarnation)
		return tei_rail_addr_fits(d->dp, first) ? 0 : -FI_EHOSTUNREACH;
	for (i = 0; i < tei_rail_count(d->dp); i++) {
		if (tei_rail_describe(d->dp, i, &desc) || !desc.open ||
		    desc.known.addr_format != n->format)
			continue;
		first->protocol = desc.known.protocol;
		first->protocol_version = desc.known.protocol_version;
		return 0;
	}
	return -FI_EHOSTUNREACH;
}

struct moonrail_peer *moonrail_peer_get(struct moonrail_domain *d,
					const struct moonrail_name *n)
{
	struct tei_rail_peer *rail = NULL;
	struct tei_rail_addr first;
	struct moonrail_peer *p;

	if (!moonrail_peer_find(d, d->incarnation) &&
	    !moonrail_peer_new(d, d->incarnation, NULL))
		return NULL;
	if (n->incarnation)
		p = moonrail_peer_find(d, n->incarnation);
	else
		p = moonrail_name_ours(d, n, true) ?
			    moonrail_peer_find(d, d->incarnation) : NULL;
	if (p) {
		if (tei_list_empty(&p->entries))
			moonrail_peer_resume(p);
		return p;
	}
	if (peer_contact(d, n, &first))
		return NULL;
	if (n->incarnation ? tei_rail_peer_get(d->dp, "", n->incarnation,
					       &first, 1, NULL, &rail)
			   : tei_rail_peer_resolve(d->dp, &first, NULL, &rail))
		return NULL;
	return moonrail_peer_new(d, n->incarnation, rail);
}

/* --- releasing peers ------------------------------------------------------ */

/*
 * Returns true if the peer can be freed: nothing refers to it, and its streams
 * have ended or never began. A peer that is alive may continue its streams, so
 * their state is kept.
 */
static bool peer_is_unneeded(const struct moonrail_peer *p)
	TEI_REQUIRES(moonrail_held)
{
	if (p->uses || !p->rail)
		return false;
	if (p->replaced_by)
		return true;
	if (!p->incarnation)
		return tei_list_empty(&p->out.queue);
	if (p->err)
		return tei_rail_peer_gone(p->rail);
	return p->out.channel.next == 1 && p->in.channel.expected == 1 &&
	       !p->in.channel.nkept;
}

static void peer_free(struct moonrail_peer *p)
{
	struct tei_rail_message *m;
	struct moonrail_key *k, *ktmp;
	struct moonrail_out *o, *otmp;

	while ((m = tei_channel_in_drain(&p->in.channel)))
		tei_rail_message_free(m);
	tei_channel_in_free(&p->in.channel);
	tei_list_foreach_safe(k, ktmp, &p->keys, struct moonrail_key, link)
		free(k);	/* no unlinking: the lists of domain->keys are
				 * emptied as a whole */
	tei_list_splice_tail(&p->out.sent, &p->out.queue);
	tei_list_splice_tail(&p->out.sent, &p->flow.blocked);
	free(p->flow.remote);
	free(p->flow.local);
	tei_list_foreach_safe(o, otmp, &p->out.sent, struct moonrail_out, link)
		free(o);
	if (p->rail)
		tei_rail_peer_put(p->rail);
	free(p);
}

void moonrail_peer_sweep(struct moonrail_domain *d)
{
	struct moonrail_peer *p;

	while (!tei_list_empty(&d->idle)) {
		p = tei_list_first(&d->idle, struct moonrail_peer, idle_link);
		tei_list_del(&p->idle_link);
		if (!peer_is_unneeded(p))
			continue;
		while (!tei_list_empty(&p->keys))
			moonrail_key_drop(tei_list_first(&p->keys,
						struct moonrail_key, link));
		if (p->replaced_by)
			moonrail_peer_unuse(p->replaced_by);
		tei_list_del(&p->hash_link);
		tei_list_del(&p->link);
		peer_free(p);
	}
}

/* Called when no endpoint is open, so that no operation is under way. */
void moonrail_peer_free_all(struct moonrail_domain *d)
{
	struct moonrail_peer *p, *tmp;
	uint32_t i;

	tei_list_foreach_safe(p, tmp, &d->peers, struct moonrail_peer, link)
		peer_free(p);
	tei_list_init(&d->peers);
	tei_list_init(&d->idle);
	for (i = 0; i < MOONRAIL_HASH; i++) {
		tei_list_init(&d->known[i]);
		tei_list_init(&d->keys[i]);
	}
}
