/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Address vectors. FI_AV_MAP and FI_AV_TABLE have the same effect: an fi_addr_t
 * is the index of an entry.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_av.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_fabric.h"
#include "prov/moonrail/moonrail_name.h"
#include "prov/moonrail/moonrail_peer.h"
#include "util/list.h"

static struct moonrail_av *av_of(struct fid_av *fid)
{
	return tei_container_of(fid, struct moonrail_av, fid);
}

struct moonrail_av_entry *moonrail_av_get(struct moonrail_av *av, fi_addr_t a)
{
	return a < av->n && av->entry[a]->peer ? av->entry[a] : NULL;
}

void moonrail_av_merge(struct moonrail_peer *from, struct moonrail_peer *to)
{
	struct moonrail_av_entry *e;

	tei_list_foreach(e, &from->entries, struct moonrail_av_entry, link) {
		moonrail_peer_use(to);
		moonrail_peer_unuse(from);
		e->peer = to;
		e->err = from->err;
		e->av->changes++;
	}
	tei_list_splice_tail(&to->entries, &from->entries);
}

/* Returns the lowest index whose entry stands for the endpoint. An entry with a
 * name stands for one endpoint. An entry with a socket address stands for all
 * endpoints for which there is no name. */
static fi_addr_t av_search(const struct moonrail_av *av,
			   const struct moonrail_peer *peer, uint32_t ep)
{
	fi_addr_t named = FI_ADDR_NOTAVAIL, any = FI_ADDR_NOTAVAIL;
	struct moonrail_av_entry *e;

	tei_list_foreach(e, &peer->entries, struct moonrail_av_entry, link) {
		if (e->av != av)
			continue;
		if (e->ep == ep && e->index < named)
			named = e->index;
		else if (e->ep == MOONRAIL_EP_ANY && e->index < any)
			any = e->index;
	}
	return named != FI_ADDR_NOTAVAIL ? named : any;
}

/* The results of searches are cached, because a search is slow: peer->entries
 * has the entries of all address vectors of the domain. */
fi_addr_t moonrail_av_find(struct moonrail_av *av, struct moonrail_peer *peer,
			   uint32_t ep)
{
	struct moonrail_av_found *f;

	if (!av)
		return FI_ADDR_NOTAVAIL;
	f = &av->found[((uintptr_t)peer / sizeof(*peer) + ep) % MOONRAIL_FOUND];
	if (f->peer != peer || f->ep != ep || f->changes != av->changes) {
		f->peer = peer;
		f->ep = ep;
		f->changes = av->changes;
		f->at = av_search(av, peer, ep);
	}
	return f->at;
}

bool moonrail_av_is(struct moonrail_av *av, struct moonrail_peer *peer,
		    uint32_t named, uint32_t ep)
{
	fi_addr_t found;

	if (named != MOONRAIL_EP_ANY)
		return named == ep;
	if (!av->named)
		return true;
	found = moonrail_av_find(av, peer, ep);
	return found == FI_ADDR_NOTAVAIL ||
	       av->entry[found]->ep == MOONRAIL_EP_ANY;
}

void moonrail_av_refused(struct moonrail_peer *peer, uint32_t ep)
{
	struct moonrail_av_entry *e;

	tei_list_foreach(e, &peer->entries, struct moonrail_av_entry, link)
		if (ep != MOONRAIL_EP_ANY && e->ep == ep)
			e->refused = true;
}

/* Returns a free entry and stores its index in *at. Returns NULL if memory is
 * short. */
static struct moonrail_av_entry *av_slot(struct moonrail_av *av, uint32_t *at)
{
	struct moonrail_av_entry **grown;

	while (av->vacant < av->n && av->entry[av->vacant]->peer)
		av->vacant++;
	if (av->vacant < av->n) {
		*at = av->vacant;
		return av->entry[av->vacant];
	}
	if (av->n == av->cap) {
		grown = realloc(av->entry,
				(av->cap * 2 + 16) * sizeof(*grown));
		if (!grown)
			return NULL;
		av->entry = grown;
		av->cap = av->cap * 2 + 16;
	}
	av->entry[av->n] = calloc(1, sizeof(**av->entry));
	if (!av->entry[av->n])
		return NULL;
	av->entry[av->n]->av = av;
	av->entry[av->n]->index = av->n;
	*at = av->n++;
	return av->entry[*at];
}

static int av_insert_name(struct moonrail_av *av, const struct moonrail_name *n,
			  bool socket, fi_addr_t *out)
{
	struct moonrail_av_entry *e;
	struct moonrail_peer *peer;
	uint32_t at;
	int ret = 0;

	moonrail_enter(av->domain);
	peer = moonrail_peer_get(av->domain, n);
	if (peer)
		moonrail_peer_use(moonrail_peer_real(peer));
	e = peer ? av_slot(av, &at) : NULL;
	if (e) {
		e->peer = moonrail_peer_real(peer);
		tei_list_add_tail(&e->peer->entries, &e->link);
		e->ep = n->ep;
		e->name = *n;
		e->socket = socket;
		e->refused = false;
		e->err = 0;
		av->named += e->ep != MOONRAIL_EP_ANY;
		av->changes++;
		*out = at;
	} else {
		ret = peer ? -FI_ENOMEM : -FI_EHOSTUNREACH;
		if (peer)
			moonrail_peer_unuse(moonrail_peer_real(peer));
	}
	moonrail_leave(av->domain);
	return ret;
}

/* Inserts one address of an array. Sets *len to the length of the address, or
 * to 0 if its family is unknown. */
static int av_insert_one(struct moonrail_av *av, const void *addr, size_t *len,
			 fi_addr_t *out)
{
	struct moonrail_name n;
	sa_family_t family;

	memcpy(&family, addr, sizeof(family));
	*len = family == MOONRAIL_FAMILY ? MOONRAIL_NAME_LEN :
					   moonrail_sockaddr_len(addr);
	if (!*len || !moonrail_name_from(addr, *len, &n))
		return -FI_EINVAL;
	return av_insert_name(av, &n, family != MOONRAIL_FAMILY, out);
}

/* Returns the length of an address whose family is unknown, so that the next
 * address of the array can be found. */
static size_t av_stride(const struct moonrail_av *av)
{
	switch (av->domain->format) {
	case MOONRAIL_FORMAT:
		return MOONRAIL_NAME_LEN;
	case FI_SOCKADDR_IN6:
		return sizeof(struct sockaddr_in6);
	default:
		return sizeof(struct sockaddr_in);
	}
}

/* Reports the failed insertion of the address at "index" of the array to the
 * event queue. Used for an address vector that was opened with FI_EVENT. */
static void av_report_error(struct moonrail_av *av, size_t index, int err,
			    void *context)
{
	struct fi_eq_err_entry e;

	memset(&e, 0, sizeof(e));
	e.fid = &av->fid.fid;
	e.context = context;
	e.data = index;
	e.err = err;
	e.prov_errno = err;
	moonrail_eq_add_error(av->eq, &e);
}

/* Reports the end of an insertion to the event queue. good: number of inserted
 * addresses. */
static int av_report_end(struct moonrail_av *av, size_t good, void *context)
{
	struct fi_eq_entry e;

	memset(&e, 0, sizeof(e));
	e.fid = &av->fid.fid;
	e.context = context;
	e.data = good;
	return fi_eq_write(&av->eq->fid, FI_AV_COMPLETE, &e, sizeof(e), 0) < 0 ?
		       -FI_ENOMEM : 0;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count,
		     fi_addr_t *out, uint64_t flags, void *context)
{
	struct moonrail_av *av = av_of(fid);
	const char *p = addr;
	int ret, good = 0, *errors = flags & FI_SYNC_ERR ? context : NULL;
	bool events = av->flags & FI_EVENT;
	size_t i, len;
	fi_addr_t got;

	if (events && (!av->eq || errors))
		return av->eq ? -FI_EINVAL : -FI_ENOEQ;
	for (i = 0; i < count; i++) {
		got = FI_ADDR_NOTAVAIL;
		ret = av_insert_one(av, p, &len, &got);
		if (out)
			out[i] = got;
		if (errors)
			errors[i] = ret ? -ret : 0;
		if (ret && events)
			av_report_error(av, i, -ret, context);
		good += !ret;
		p += len ? len : av_stride(av);
	}
	return events ? av_report_end(av, (size_t)good, context) : good;
}

static int av_remove(struct fid_av *fid, fi_addr_t *addr, size_t count,
		     uint64_t flags)
{
	struct moonrail_av *av = av_of(fid);
	struct moonrail_av_entry *e;
	size_t i;
	int ret = 0;

	if (flags)
		return -FI_EINVAL;
	moonrail_enter(av->domain);
	for (i = 0; i < count; i++) {
		e = moonrail_av_get(av, addr[i]);
		if (!e) {
			ret = -FI_EINVAL;
			continue;
		}
		av->named -= e->ep != MOONRAIL_EP_ANY;
		av->changes++;
		tei_list_del(&e->link);
		moonrail_peer_unuse(e->peer);
		e->peer = NULL;
		if (e->index < av->vacant)
			av->vacant = e->index;
	}
	moonrail_leave(av->domain);
	return ret;
}

static int av_lookup(struct fid_av *fid, fi_addr_t a, void *addr, size_t *len)
{
	struct moonrail_av *av = av_of(fid);
	uint8_t encoded[MOONRAIL_NAME_LEN];
	struct moonrail_av_entry *e;
	const void *from = encoded;
	size_t size = sizeof(encoded), room = *len;

	moonrail_enter(av->domain);
	e = moonrail_av_get(av, a);
	if (e) {
		moonrail_name_put(&e->name, encoded);
		if (e->socket) {
			from = e->name.address;
			size = e->name.len;
		}
		memcpy(addr, from, room < size ? room : size);
		*len = size;
	}
	moonrail_leave(av->domain);
	return e ? 0 : -FI_EINVAL;
}

/* Writes an address in libfabric's text form, as far as it fits. Returns the
 * length of the whole text, or -1 on failure. If the address is a name of this
 * provider, writes the fabric address that the name contains. */
static int av_text(const struct moonrail_name *n, char *buf, size_t cap)
{
	const struct sockaddr_in6 *in6 = (const void *)n->address;
	const struct sockaddr_in *in = (const void *)n->address;
	char text[2 * sizeof(n->address) + 1] = "";
	size_t i;

	switch (moonrail_name_family(n)) {
	case AF_INET:
		inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
		return snprintf(buf, cap, "fi_sockaddr_in://%s:%u", text,
				ntohs(in->sin_port));
	case AF_INET6:
		inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
		return snprintf(buf, cap, "fi_sockaddr_in6://[%s]:%u", text,
				ntohs(in6->sin6_port));
	default:
		for (i = 0; i < n->len; i++)
			snprintf(text + 2 * i, 3, "%02x", n->address[i]);
		return snprintf(buf, cap, "fi_addr_moonrail://%s:%u", text,
				n->ep);
	}
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *buf,
			      size_t *len)
{
	struct moonrail_name n;
	size_t size = MOONRAIL_NAME_LEN;
	sa_family_t family;
	int used;

	(void)fid;
	memcpy(&family, addr, sizeof(family));
	if (family != MOONRAIL_FAMILY)
		size = moonrail_sockaddr_len(addr);
	if (!size || !moonrail_name_from(addr, size, &n))
		return NULL;
	used = av_text(&n, buf, *len);
	if (used < 0)
		return NULL;
	*len = (size_t)used + 1;
	return buf;
}

static int av_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct moonrail_av *av =
		tei_container_of(fid, struct moonrail_av, fid.fid);

	if (bfid->fclass != FI_CLASS_EQ || flags || av->eq)
		return -FI_EINVAL;
	av->eq = tei_container_of(bfid, struct moonrail_eq, fid.fid);
	__atomic_fetch_add(&av->eq->refs, 1, __ATOMIC_RELAXED);
	return 0;
}

static int av_close(struct fid *fid)
{
	struct moonrail_av *av =
		tei_container_of(fid, struct moonrail_av, fid.fid);
	uint32_t i;

	moonrail_enter(av->domain);
	if (av->refs) {
		moonrail_leave(av->domain);
		return -FI_EBUSY;
	}
	for (i = 0; i < av->n; i++) {
		if (!av->entry[i]->peer)
			continue;
		tei_list_del(&av->entry[i]->link);
		moonrail_peer_unuse(av->entry[i]->peer);
	}
	moonrail_leave(av->domain);
	if (av->eq)
		__atomic_fetch_sub(&av->eq->refs, 1, __ATOMIC_RELEASE);
	moonrail_domain_unref(av->domain);
	for (i = 0; i < av->n; i++)
		free(av->entry[i]);
	free(av->entry);
	free(av);
	return 0;
}

static struct fi_ops av_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = av_close,
	.bind = av_bind,
	.control = moonrail_no_control,
	.ops_open = moonrail_no_ops,
};

static struct fi_ops_av av_ops = {
	.size = sizeof(struct fi_ops_av),
	.insert = av_insert,
	.insertsvc = moonrail_av_insertsvc,
	.insertsym = moonrail_av_insertsym,
	.remove = av_remove,
	.lookup = av_lookup,
	.straddr = av_straddr,
};

int moonrail_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
		     struct fid_av **out, void *context)
{
	struct moonrail_av *av;

	if (attr && (attr->name || attr->rx_ctx_bits ||
		     attr->flags & ~(FI_EVENT | FI_SYMMETRIC)))
		return -FI_ENOSYS;
	av = calloc(1, sizeof(*av));
	if (!av)
		return -FI_ENOMEM;
	av->domain = tei_container_of(domain, struct moonrail_domain, fid);
	if (attr && !attr->type)
		attr->type = FI_AV_TABLE;
	av->flags = attr ? attr->flags : 0;
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &av_fi_ops;
	av->fid.ops = &av_ops;
	moonrail_domain_ref(av->domain);
	*out = &av->fid;
	return 0;
}
