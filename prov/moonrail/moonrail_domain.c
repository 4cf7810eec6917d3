/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Domains. Each domain has a data plane of its own.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "prov/moonrail/moonrail_av.h"
#include "prov/moonrail/moonrail_bounce.h"
#include "prov/moonrail/moonrail_cq.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_fabric.h"
#include "prov/moonrail/moonrail_info.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/moonrail/moonrail_name.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_policy.h"
#include "prov/moonrail/moonrail_rma.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/settings.h"

#define DOMAIN_DRAIN_NS	(2 * TEI_NS_PER_SEC)	/* longest time for which
						 * fi_close drains the lanes */
#define DOMAIN_CONFIRM_NS (200 * TEI_NS_PER_MS)	/* longest time for which
						 * fi_close tries to send
						 * ACKs */

/* Returns true if addr is a loopback address. Writes the IP address to "text"
 * and the port number to *port. */
static bool domain_loopback(const void *addr, size_t len, char text[64],
			    uint16_t *port)
{
	struct moonrail_name n;
	const struct sockaddr_in *in = (const void *)n.address;
	const struct sockaddr_in6 *in6 = (const void *)n.address;

	*port = 0;
	if (!addr || !moonrail_name_from(addr, len, &n))
		return false;
	switch (moonrail_name_family(&n)) {
	case AF_INET:
		*port = ntohs(in->sin_port);
		inet_ntop(AF_INET, &in->sin_addr, text, 64);
		return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
	case AF_INET6:
		*port = ntohs(in6->sin6_port);
		inet_ntop(AF_INET6, &in6->sin6_addr, text, 64);
		return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
	default:
		return false;
	}
}

/*
 * Chooses the libfabric provider net for the rails if tcp cannot be used.
 * Before version 2.0 of libfabric, tcp needs ofi_rxm, and FI_PROVIDER may
 * exclude ofi_rxm. The provider net does not need ofi_rxm.
 */
static void domain_choose_provider(struct moonrail_domain *d)
{
	struct fi_info *hints, *found = NULL;

	if (*d->settings.rails.provider ||
	    FI_VERSION_GE(fi_version(), FI_VERSION(2, 0)))
		return;
	hints = fi_allocinfo();
	if (!hints)
		return;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
	if (hints->fabric_attr->prov_name &&
	    fi_getinfo(MOONRAIL_API, NULL, NULL, 0, hints, &found))
		snprintf(d->settings.rails.provider,
			 sizeof(d->settings.rails.provider), "net;^ofi_rxm");
	fi_freeinfo(found);
	fi_freeinfo(hints);
}

/* Chooses whether rails use the IPv4 or the IPv6 addresses of interfaces. */
static void domain_choose_family(struct moonrail_domain *d,
				 const struct fi_info *info)
{
	struct moonrail_name any;

	if (d->format == FI_SOCKADDR_IN || d->format == FI_SOCKADDR_IN6)
		d->settings.control.use_ipv6 = d->format == FI_SOCKADDR_IN6;
	else if (d->source.len)
		d->settings.control.use_ipv6 =
			moonrail_name_family(&d->source) == AF_INET6;
	else if (info->src_addr &&
		 moonrail_name_from(info->src_addr, info->src_addrlen, &any) &&
		 moonrail_name_family(&any) == AF_INET6)
		d->settings.control.use_ipv6 = true;
}

/* Sets the domain's source to the source address of the info, if this is the
 * address of one rail and not the unspecified IP address. */
static void domain_set_source(struct moonrail_domain *d,
			      const struct fi_info *info)
{
	const struct sockaddr_in *in = (const void *)d->source.address;
	const struct sockaddr_in6 *in6 = (const void *)d->source.address;

	sa_family_t family;

	if (!info->src_addr ||
	    !moonrail_name_from(info->src_addr, info->src_addrlen,
				&d->source)) {
		d->source.len = 0;
		return;
	}
	family = moonrail_name_family(&d->source);
	if (family == AF_UNSPEC ||
	    (family == AF_INET && !in->sin_addr.s_addr) ||
	    (family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr)))
		d->source.len = 0;
}

/* Returns a text that names the address that the rails lack, or NULL if they
 * lack none. named: the domain is named after its rail, which must have the
 * source address. If the environment names the rails, no rail needs to have the
 * source address. */
static const char *domain_lacks(struct moonrail_domain *d, bool named)
{
	char list[TEI_SETTING_TEXT];
	struct moonrail_name n;

	if (moonrail_name_of(d, MOONRAIL_EP_ANY, &n))
		return "an address of the requested format that fits into an endpoint name";
	if (!d->source.len ||
	    (!named && moonrail_devices(list, sizeof(list))) ||
	    moonrail_name_ours(d, &d->source, false))
		return NULL;
	return "the requested source address";
}

/* The rails that are chosen for a domain. */
struct domain_rails {
	const char *devices;		/* names separated by commas; "" means
					 * all devices */
	bool tcp;			/* use only IP interfaces */
	bool named;			/* "devices" is the name of the
					 * domain */
	uint16_t port;			/* port of all rails; 0 means any
					 * port */
	char source[64], dest[64], list[TEI_SETTING_TEXT];
};

/* Closes the data plane, with BYE to the peers, because peers may know the
 * domain already. */
static void domain_shut(struct moonrail_domain *d, uint64_t drain_ns)
{
	moonrail_bounce_stop(d);
	tei_rail_dp_leave(d->dp, drain_ns);
	moonrail_enter(d);
	moonrail_drain(d);
	d->closing = true;
	moonrail_leave(d);
	moonrail_peer_free_all(d);
	moonrail_pin_free_all(d);
	tei_rail_dp_close(d->dp, 0);
	moonrail_bounce_free(d);
}

/* Opens a data plane and adds rails of one transport. Returns 0 or -FI_E*. */
static int domain_try(struct moonrail_domain *d, struct tei_rail_dp_attr *attr,
		      const char *transport, const struct domain_rails *r)
{
	const char *lacks;
	struct tei_err err;
	int ret = -FI_ENODEV;

	/* each data plane has its own incarnation, so that peers do not confuse
	 * two data planes */
	do
		if (!tei_random(&attr->incarnation, sizeof(attr->incarnation)))
			return -FI_EIO;
	while (!attr->incarnation);
	d->incarnation = attr->incarnation;
	d->closing = false;
	if (tei_rail_dp_open(attr, &err, &d->dp))
		return -FI_ENOMEM;
	if (tei_rail_dp_add_transport(d->dp, transport, r->devices, &err))
		goto err_close;
	ret = moonrail_bounce_open(d);
	if (ret)
		goto err_close;
	lacks = domain_lacks(d, r->named);
	if (lacks) {
		tei_err_fail(&err, TEI_ERR_NO_DEVICE, "prov", NULL,
			     "transport %s: no rail has %s", transport,
			     lacks);
		ret = -FI_EADDRNOTAVAIL;
		goto err_close;
	}
	return 0;
err_close:
	domain_shut(d, 0);
	return ret;
}

/* Chooses the rails, in this order of precedence: the rail that the domain is
 * named after; the rails that the environment names; loopback, if the source or
 * the destination is a loopback address; all rails. */
static void domain_choose_rails(const struct fi_info *info,
				struct domain_rails *r)
{
	bool loopback;
	uint16_t port;

	r->devices = moonrail_devices(r->list, sizeof(r->list));
	r->tcp = false;
	loopback = domain_loopback(info->src_addr, info->src_addrlen,
				   r->source, &r->port);
	r->named = moonrail_domain_device(info->domain_attr->name);
	if (r->named)
		r->devices = info->domain_attr->name;
	if (r->devices)
		return;
	if (loopback) {
		r->devices = r->source;
		r->tcp = true;
	} else if (domain_loopback(info->dest_addr, info->dest_addrlen,
				   r->dest, &port)) {
		r->devices = strchr(r->dest, ':') ? "::1" : "127.0.0.1";
		r->tcp = true;
	} else {
		r->devices = "";
	}
}

static bool domain_has_rdma(const struct tei_settings *s,
			    const struct domain_rails *r)
{
	return !r->tcp && !s->rails.force_tcp &&
	       tei_rail_transport_present(s, "rdma", r->devices,
					  MOONRAIL_INFO_FLAGS);
}

bool moonrail_domain_rdma(const struct tei_settings *s,
			  const struct fi_info *info)
{
	struct domain_rails r;

	domain_choose_rails(info, &r);
	return domain_has_rdma(s, &r);
}

/* Opens a data plane with RDMA devices, or with tcp if there are no RDMA
 * devices or they cannot be used. */
static int domain_add_rails(struct moonrail_domain *d,
			    struct tei_rail_dp_attr *attr,
			    const struct domain_rails *r)
{
	if (domain_has_rdma(&d->settings, r)) {
		if (!domain_try(d, attr, "rdma", r))
			return 0;
		TEI_WARN("prov", "RDMA devices cannot serve this domain; tcp is used instead");
	}
	domain_choose_provider(d);
	return domain_try(d, attr, "tcp", r);
}

static int domain_open_dp(struct moonrail_domain *d, const struct fi_info *info)
{
	struct domain_rails rails;
	struct tei_err err;
	char name[64];
	struct tei_rail_dp_attr attr = {
		.settings = &d->settings,
		.ops = &moonrail_rail_ops,
		.arg = d,
		.name = name,
		.info_flags = MOONRAIL_INFO_FLAGS,
		.back = true,
		.any_local = true,
	};

	if (tei_settings_load(&d->settings, &err) ||
	    moonrail_policies(&d->policies))
		return -FI_EINVAL;
	domain_set_source(d, info);
	domain_choose_family(d, info);
	domain_choose_rails(info, &rails);
	attr.port = rails.port;
	snprintf(name, sizeof(name), "process %ld", (long)getpid());
	return domain_add_rails(d, &attr, &rails);
}

static int domain_no_scalable(struct fid_domain *domain, struct fi_info *info,
			      struct fid_ep **sep, void *context)
{
	(void)domain, (void)info, (void)sep, (void)context;
	return -FI_ENOSYS;
}

static int domain_no_stx(struct fid_domain *domain, struct fi_tx_attr *attr,
			 struct fid_stx **stx, void *context)
{
	(void)domain, (void)attr, (void)stx, (void)context;
	return -FI_ENOSYS;
}

static int domain_no_srx(struct fid_domain *domain, struct fi_rx_attr *attr,
			 struct fid_ep **srx, void *context)
{
	(void)domain, (void)attr, (void)srx, (void)context;
	return -FI_ENOSYS;
}

static int domain_no_collective(struct fid_domain *domain,
				enum fi_collective_op coll,
				struct fi_collective_attr *attr, uint64_t flags)
{
	(void)domain, (void)coll, (void)attr, (void)flags;
	return -FI_ENOSYS;
}

static void domain_free(struct moonrail_domain *d)
{
	__atomic_fetch_sub(&d->fabric->refs, 1, __ATOMIC_RELEASE);
	moonrail_inbox_fini(d);
	free(d);
}

/*
 * Sends the pending acknowledgements before the domain leaves. Without them,
 * operations that this domain has executed already would fail at the peers.
 */
static void domain_confirm(struct moonrail_domain *d)
{
	uint64_t end = tei_now_ns() + DOMAIN_CONFIRM_NS, seen;
	bool all;

	for (;;) {
		moonrail_progress(d);
		seen = moonrail_events(d);
		moonrail_enter(d);
		moonrail_drain(d);
		all = moonrail_peer_confirmed(d);
		moonrail_leave(d);
		if (all || tei_now_ns() > end)
			return;
		moonrail_sleep(d, seen, TEI_NS_PER_MS / 5);
	}
}

static int domain_close(struct fid *fid)
{
	struct moonrail_domain *d =
		tei_container_of(fid, struct moonrail_domain, fid.fid);

	if (__atomic_load_n(&d->refs, __ATOMIC_ACQUIRE))
		return -FI_EBUSY;
	domain_confirm(d);
	domain_shut(d, DOMAIN_DRAIN_NS);
	domain_free(d);
	return 0;
}

/* Handles FI_MAP_RAW_MR and FI_UNMAP_KEY. A raw key is the key itself, 8
 * bytes. */
static int domain_control(struct fid *fid, int command, void *arg)
{
	const struct fi_mr_map_raw *map = arg;
	uint64_t key;

	(void)fid;
	switch (command) {
	case FI_MAP_RAW_MR:
		if (map->key_size != sizeof(key))
			return -FI_EINVAL;
		memcpy(&key, map->raw_key, sizeof(key));
		*map->key = le64toh(key);
		return 0;
	case FI_UNMAP_KEY:
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

static struct fi_ops domain_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = domain_close,
	.bind = moonrail_no_bind,
	.control = domain_control,
	.ops_open = moonrail_no_ops,
};

static struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain),
	.av_open = moonrail_av_open,
	.cq_open = moonrail_cq_open,
	.endpoint = moonrail_ep_open,
	.scalable_ep = domain_no_scalable,
	.cntr_open = moonrail_cntr_open,
	.poll_open = moonrail_poll_open,
	.stx_ctx = domain_no_stx,
	.srx_ctx = domain_no_srx,
	.query_atomic = moonrail_atomic_query,
	.query_collective = domain_no_collective,
};

static void domain_init(struct moonrail_domain *d, const struct fi_info *info,
			void *context)
{
	int mode = info->domain_attr->mr_mode;
	uint32_t i;

	moonrail_inbox_init(d, &moonrail_inbox_ops);
	d->handlers = moonrail_message_handlers;
	tei_list_init(&d->peers);
	tei_list_init(&d->idle);
	tei_list_init(&d->eps);
	tei_list_init(&d->cntrs);
	for (i = 0; i < MOONRAIL_HASH; i++) {
		tei_list_init(&d->known[i]);
		tei_list_init(&d->mrs[i]);
		tei_list_init(&d->keys[i]);
	}
	d->virt_addr = mode == MOONRAIL_MR_BASIC || mode & FI_MR_VIRT_ADDR;
	d->prov_key = mode == MOONRAIL_MR_BASIC || mode & FI_MR_PROV_KEY;
	d->format = info->addr_format ? info->addr_format : MOONRAIL_FORMAT;
	d->fid.fid.fclass = FI_CLASS_DOMAIN;
	d->fid.fid.context = context;
	d->fid.fid.ops = &domain_fi_ops;
	d->fid.ops = &domain_ops;
	d->fid.mr = &moonrail_mr_ops;
}

int moonrail_domain_open(struct fid_fabric *fabric, struct fi_info *info,
			 struct fid_domain **out, void *context)
{
	struct moonrail_domain *d;
	int ret;

	if (!info || !info->domain_attr)
		return -FI_EINVAL;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -FI_ENOMEM;
	domain_init(d, info, context);
	d->fabric = tei_container_of(fabric, struct moonrail_fabric, fid);
	__atomic_fetch_add(&d->fabric->refs, 1, __ATOMIC_RELAXED);
	ret = domain_open_dp(d, info);
	if (ret) {
		domain_free(d);
		return ret;
	}
	*out = &d->fid;
	return 0;
}
