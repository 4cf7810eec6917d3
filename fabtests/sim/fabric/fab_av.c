/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses and address vectors. */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

/* --- addresses --- */

bool fab_addr_same(const struct fab_addr *a, const struct fab_addr *b)
{
	return a->port == b->port && a->at.host == b->at.host &&
	       a->at.nic == b->at.nic;
}

static size_t addr_write_ip(const struct fab_addr *a, void *out)
{
	struct sockaddr_in in = { .sin_family = AF_INET };

	in.sin_port = htons(a->port);
	in.sin_addr.s_addr =
		htonl(10u << 24 | a->at.nic << 16 | (a->at.host + 1));
	memcpy(out, &in, sizeof(in));
	return sizeof(in);
}

size_t fab_addr_write(const struct fab_addr *a, void *out)
{
	if (fab_net->conf.ip)
		return addr_write_ip(a, out);
	return (size_t)snprintf(out, FAB_ADDR_MAX, "sim://%u/%u/%u", a->at.host,
				a->at.nic, a->port) +
	       1;
}

static bool addr_read_ip(const void *from, size_t len, struct fab_addr *out)
{
	struct sockaddr_in in;
	uint32_t ip;

	if (len < sizeof(in))
		return false;
	memcpy(&in, from, sizeof(in));
	ip = ntohl(in.sin_addr.s_addr);
	if (in.sin_family != AF_INET || ip >> 24 != 10 || !(ip & 0xffff))
		return false;
	out->at.nic = ip >> 16 & 0xff;
	out->at.host = (ip & 0xffff) - 1;
	out->port = ntohs(in.sin_port);
	return true;
}

bool fab_addr_read(const void *in, size_t len, struct fab_addr *out)
{
	unsigned int host, nic, port;
	char text[FAB_ADDR_MAX];

	if (fab_net->conf.ip)
		return addr_read_ip(in, len, out) &&
		       out->at.host < fab_net->nhosts &&
		       out->at.nic < fab_net->nnics;
	snprintf(text, sizeof(text), "%.*s", (int)len, (const char *)in);
	if (sscanf(text, "sim://%u/%u/%u", &host, &nic, &port) != 3 ||
	    host >= fab_net->nhosts || nic >= fab_net->nnics ||
	    port > UINT16_MAX)
		return false;
	out->at.host = host;
	out->at.nic = nic;
	out->port = (uint16_t)port;
	return true;
}

/* --- address vectors --- */

/* Enlarges the array of addresses if it is full. */
static void av_grow(struct fab_av *av)
{
	size_t max = av->max ? 2 * av->max : 8;
	struct fab_addr *more;

	if (av->n < av->max)
		return;
	more = fab_alloc(max * sizeof(*more));
	if (av->n)
		memcpy(more, av->addrs, av->n * sizeof(*more));
	free(av->addrs);
	av->addrs = more;
	av->max = max;
}

/* Returns the index for a new address: that of a removed address if there is
 * one, otherwise the next unused one. */
static size_t av_place(struct fab_av *av)
{
	if (av->nfree)
		return av->free[--av->nfree];
	av_grow(av);
	return av->n++;
}

static size_t av_entry_len(const void *addr)
{
	return fab_net->conf.ip ? sizeof(struct sockaddr_in) : strlen(addr) + 1;
}

static int av_insert(struct fid_av *fid, const void *addr, size_t count,
		     fi_addr_t *out, uint64_t flags, void *context)
{
	struct fab_av *av = tei_container_of(fid, struct fab_av, fid);
	const char *at = addr;
	size_t i, len, place;
	struct fab_addr a;
	int ok = 0;

	(void)flags, (void)context;
	for (i = 0; i < count; i++, at += len) {
		len = av_entry_len(at);
		if (!fab_addr_read(at, len, &a)) {
			if (out)
				out[i] = FI_ADDR_NOTAVAIL;
			continue;
		}
		place = av_place(av);
		av->addrs[place] = a;
		if (out)
			out[i] = place;
		ok++;
	}
	return ok;
}

static struct fab_addr *av_find(struct fab_av *av, fi_addr_t addr)
{
	if (addr >= av->n || !av->addrs[addr].port)
		return NULL;
	return &av->addrs[addr];
}

/* Closes the connections of the address vector's endpoints to the removed
 * address `a`. */
static void av_close(struct fab_av *av, const struct fab_addr *a)
{
	struct fab_side *s;
	struct fab_ep *ep;

	tei_list_foreach (ep, &av->eps, struct fab_ep, in_av) {
		s = fab_conn_find(ep, a);
		if (s)
			fab_side_close(s, FI_ECANCELED, true);
	}
}

static int av_remove(struct fid_av *fid, fi_addr_t *addr, size_t count,
		     uint64_t flags)
{
	struct fab_av *av = tei_container_of(fid, struct fab_av, fid);
	struct fab_addr *a;
	struct fab_ep *ep;
	size_t i;

	(void)flags;
	for (i = 0; i < count; i++) {
		a = av_find(av, addr[i]);
		if (!a)
			return -FI_EINVAL;
		if (fab_net->conf.remove_closes)
			av_close(av, a);
		tei_list_foreach (ep, &av->eps, struct fab_ep, in_av)
			fab_ep_forget_addr(ep, addr[i]);
		a->port = 0;
		if (av->nfree == av->max_free) {
			av->max_free = av->max_free ? 2 * av->max_free : 8;
			av->free = realloc(av->free,
					   av->max_free * sizeof(*av->free));
			if (!av->free)
				sim_fail("network: no memory");
		}
		av->free[av->nfree++] = addr[i];
	}
	return 0;
}

static int av_lookup(struct fid_av *fid, fi_addr_t addr, void *out, size_t *len)
{
	struct fab_av *av = tei_container_of(fid, struct fab_av, fid);
	const struct fab_addr *a = av_find(av, addr);
	char text[FAB_ADDR_MAX];
	size_t n;

	if (!a)
		return -FI_EINVAL;
	n = fab_addr_write(a, text);
	memcpy(out, text, n < *len ? n : *len);
	*len = n;
	return 0;
}

static const char *av_straddr(struct fid_av *fid, const void *addr, char *buf,
			      size_t *len)
{
	struct fab_addr a = { .port = 0 };

	(void)fid;
	fab_addr_read(addr, av_entry_len(addr), &a);
	*len = (size_t)snprintf(buf, *len, "sim://%u/%u/%u", a.at.host,
				a.at.nic, a.port) +
	       1;
	return buf;
}

static struct fi_ops_av av_ops = {
	.size = sizeof(struct fi_ops_av),
	.insert = av_insert,
	.remove = av_remove,
	.lookup = av_lookup,
	.straddr = av_straddr,
};

static void av_drop(struct fab_obj *obj)
{
	struct fab_av *av = tei_container_of(obj, struct fab_av, obj);

	fab_obj_del(obj);
	free(av->addrs);
	free(av->free);
	free(av);
}

static int av_close_fid(struct fid *fid)
{
	struct fab_av *av = tei_container_of(fid, struct fab_av, fid.fid);

	if (!tei_list_empty(&av->eps))
		return -FI_EBUSY;
	av_drop(&av->obj);
	return 0;
}

static struct fi_ops av_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = av_close_fid,
};

int fab_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
		struct fid_av **out, void *context)
{
	struct fab_av *av = fab_alloc(sizeof(*av));

	(void)domain;
	attr->type = FI_AV_TABLE;
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &av_fid_ops;
	av->fid.ops = &av_ops;
	tei_list_init(&av->eps);
	fab_obj_add(&av->obj, FAB_AV, av_drop);
	*out = &av->fid;
	return 0;
}
