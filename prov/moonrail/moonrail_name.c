/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of endpoints: conversion between the address that an application
 * passes and struct moonrail_name, and comparison with the addresses of the
 * rails.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_name.h"
#include "prov/rail/tei_rail.h"

size_t moonrail_sockaddr_len(const void *addr)
{
	sa_family_t family;

	memcpy(&family, addr, sizeof(family));
	return family == AF_INET ? sizeof(struct sockaddr_in) :
	       family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

void moonrail_name_swap(struct moonrail_name *n)
{
	n->ep = htole32(n->ep);
	n->incarnation = htole64(n->incarnation);
	n->protocol = htole32(n->protocol);
	n->protocol_version = htole32(n->protocol_version);
	n->format = htole32(n->format);
}

bool moonrail_name_from(const void *addr, size_t len, struct moonrail_name *n)
{
	size_t want;

	if (len < sizeof(sa_family_t))
		return false;
	memcpy(n, addr, len < sizeof(*n) ? len : sizeof(*n));
	if (n->family == MOONRAIL_FAMILY)
		return len >= sizeof(*n) && n->version == 1 &&
		       n->len && n->len <= sizeof(n->address);
	want = moonrail_sockaddr_len(addr);
	if (!want || len < want)
		return false;
	memset(n, 0, sizeof(*n));
	n->family = MOONRAIL_FAMILY;
	n->version = 1;
	n->len = (uint8_t)want;
	n->format = htole32(want == sizeof(struct sockaddr_in) ?
				    FI_SOCKADDR_IN : FI_SOCKADDR_IN6);
	memcpy(n->address, addr, want);
	return true;
}

static bool name_is_ip(uint32_t format)
{
	return format == FI_SOCKADDR || format == FI_SOCKADDR_IN ||
	       format == FI_SOCKADDR_IN6;
}

sa_family_t moonrail_name_family(const struct moonrail_name *n)
{
	const struct sockaddr_in *in = (const void *)n->address;

	if (!name_is_ip(le32toh(n->format)) || !moonrail_sockaddr_len(in))
		return AF_UNSPEC;
	return in->sin_family;
}

/* Returns true if the fabric address of the name is *a. port: compare the ports
 * too. The flow information and the padding of socket addresses are ignored. */
static bool name_at(const struct moonrail_name *n, const struct tei_rail_addr *a,
		    bool port)
{
	const struct sockaddr_in *in = (const void *)n->address;
	const struct sockaddr_in *to = (const void *)a->bytes;
	const struct sockaddr_in6 *in6 = (const void *)n->address;
	const struct sockaddr_in6 *to6 = (const void *)a->bytes;

	if (!name_is_ip(a->addr_format))
		return n->len == a->len &&
		       !memcmp(n->address, a->bytes, n->len);
	if (n->len != a->len || in->sin_family != to->sin_family ||
	    (port && in->sin_port != to->sin_port))
		return false;
	if (in->sin_family == AF_INET)
		return in->sin_addr.s_addr == to->sin_addr.s_addr;
	return in->sin_family == AF_INET6 &&
	       IN6_ARE_ADDR_EQUAL(&in6->sin6_addr, &to6->sin6_addr) &&
	       (!in6->sin6_scope_id || !to6->sin6_scope_id ||
		in6->sin6_scope_id == to6->sin6_scope_id);
}

bool moonrail_name_ours(struct moonrail_domain *d,
			const struct moonrail_name *n, bool port)
{
	struct tei_rail_desc desc;
	size_t i;

	for (i = 0; i < tei_rail_count(d->dp); i++)
		if (!tei_rail_describe(d->dp, i, &desc) && desc.open &&
		    (name_at(n, &desc.addr, port) ||
		     name_at(n, &desc.known, port)))
			return true;
	return false;
}

/* Returns true if the address has the format that the application works
 * with. */
static bool name_fits(const struct moonrail_domain *d,
		      const struct tei_rail_addr *a)
{
	const struct sockaddr_in *in = (const void *)a->bytes;

	switch (d->format) {
	case FI_SOCKADDR:
		return name_is_ip(a->addr_format);
	case FI_SOCKADDR_IN:
		return name_is_ip(a->addr_format) &&
		       in->sin_family == AF_INET;
	case FI_SOCKADDR_IN6:
		return name_is_ip(a->addr_format) &&
		       in->sin_family == AF_INET6;
	default:
		return true;
	}
}

/* Writes the name of an endpoint with the address of a rail. source: the
 * address that the rail must have, or NULL. */
static int name_pick(struct moonrail_domain *d, uint32_t ep,
		     const struct moonrail_name *source,
		     struct moonrail_name *n)
{
	struct tei_rail_desc desc;
	size_t i;

	for (i = 0; i < tei_rail_count(d->dp); i++) {
		if (tei_rail_describe(d->dp, i, &desc) || !desc.open ||
		    !desc.known.len || desc.known.len > sizeof(n->address) ||
		    !name_fits(d, &desc.known) ||
		    (source && !name_at(source, &desc.known, false)))
			continue;
		memset(n, 0, sizeof(*n));
		n->family = MOONRAIL_FAMILY;
		n->version = 1;
		n->len = (uint8_t)desc.known.len;
		n->ep = ep;
		n->incarnation = d->incarnation;
		n->protocol = desc.known.protocol;
		n->protocol_version = desc.known.protocol_version;
		n->format = desc.known.addr_format;
		memcpy(n->address, desc.known.bytes, desc.known.len);
		moonrail_name_swap(n);
		return 0;
	}
	return -FI_EADDRNOTAVAIL;
}

int moonrail_name_of(struct moonrail_domain *d, uint32_t ep,
		     struct moonrail_name *n)
{
	if (d->source.len && !name_pick(d, ep, &d->source, n))
		return 0;
	return name_pick(d, ep, NULL, n);
}
