/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of endpoints: their encoding, conversion of the address that an
 * application passes, and comparison with the addresses of the rails.
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

/* Offsets of the fields in an encoded name, bytes. */
enum { NAME_VERSION = 2, NAME_EP = 4, NAME_INCARNATION = 8, NAME_ADDR = 16 };

/* Sets the fabric address of the name. Returns false if it is too long. */
static bool name_set_addr(struct moonrail_name *n,
			  const struct tei_rail_addr *a)
{
	if (!a->len || a->len > sizeof(n->address))
		return false;
	n->protocol = a->protocol;
	n->protocol_version = a->protocol_version;
	n->format = a->addr_format;
	n->len = a->len;
	memcpy(n->address, a->bytes, a->len);
	return true;
}

void moonrail_name_addr(const struct moonrail_name *n, struct tei_rail_addr *a)
{
	memset(a, 0, sizeof(*a));
	a->protocol = n->protocol;
	a->protocol_version = n->protocol_version;
	a->addr_format = n->format;
	a->len = n->len;
	memcpy(a->bytes, n->address, n->len);
}

void moonrail_name_put(const struct moonrail_name *n,
		       uint8_t out[MOONRAIL_NAME_LEN])
{
	uint64_t incarnation = htole64(n->incarnation);
	sa_family_t family = MOONRAIL_FAMILY;
	uint32_t ep = htole32(n->ep);
	struct tei_rail_addr a;

	memset(out, 0, MOONRAIL_NAME_LEN);
	memcpy(out, &family, sizeof(family));
	out[NAME_VERSION] = MOONRAIL_NAME_VERSION;
	memcpy(out + NAME_EP, &ep, sizeof(ep));
	memcpy(out + NAME_INCARNATION, &incarnation, sizeof(incarnation));
	moonrail_name_addr(n, &a);
	tei_rail_addr_put(&a, out + NAME_ADDR, MOONRAIL_NAME_LEN - NAME_ADDR);
}

/* Decodes an encoded name, which may have any content. Returns false if it is
 * malformed. */
static bool name_get(const uint8_t *in, struct moonrail_name *n)
{
	struct tei_rail_addr a;

	if (in[NAME_VERSION] != MOONRAIL_NAME_VERSION ||
	    !tei_rail_addr_get(in + NAME_ADDR, MOONRAIL_NAME_LEN - NAME_ADDR,
			       &a))
		return false;
	memcpy(&n->ep, in + NAME_EP, sizeof(n->ep));
	memcpy(&n->incarnation, in + NAME_INCARNATION, sizeof(n->incarnation));
	n->ep = le32toh(n->ep);
	n->incarnation = le64toh(n->incarnation);
	return name_set_addr(n, &a);
}

bool moonrail_name_from(const void *addr, size_t len, struct moonrail_name *n)
{
	sa_family_t family;
	size_t want;

	memset(n, 0, sizeof(*n));
	if (len < sizeof(family))
		return false;
	memcpy(&family, addr, sizeof(family));
	if (family == MOONRAIL_FAMILY)
		return len >= MOONRAIL_NAME_LEN && name_get(addr, n);
	want = moonrail_sockaddr_len(addr);
	if (!want || len < want)
		return false;
	n->len = (uint32_t)want;
	n->format = want == sizeof(struct sockaddr_in) ? FI_SOCKADDR_IN :
							 FI_SOCKADDR_IN6;
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

	if (!name_is_ip(n->format) || !moonrail_sockaddr_len(in))
		return AF_UNSPEC;
	return in->sin_family;
}

/* Returns true if the fabric address of the name equals *a. Compares the ports
 * only if port is true. Ignores the flow information and the padding of socket
 * addresses. */
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

/* Returns true if the address has the format of the domain's addresses, which
 * the application has requested. */
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
		    !name_fits(d, &desc.known) ||
		    (source && !name_at(source, &desc.known, false)))
			continue;
		memset(n, 0, sizeof(*n));
		n->ep = ep;
		n->incarnation = d->incarnation;
		if (name_set_addr(n, &desc.known))
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
