/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_NAME_H
#define TEI_PROV_MOONRAIL_MOONRAIL_NAME_H

/*
 * Names of endpoints: the addresses that the provider gives to applications.
 * docs/PROTOCOL.md describes the format.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct moonrail_domain;

#define MOONRAIL_EP_ANY	0u		/* stands for the oldest endpoint of a
					 * domain */
#define MOONRAIL_FAMILY	0x6d72		/* value of moonrail_name.family */
/* FI_PROV_SPECIFIC, which some headers of 2.x no longer define. */
#define MOONRAIL_OWN	(1u << 31)
#define MOONRAIL_FORMAT	(MOONRAIL_OWN | 0x6d6f6f6eu) /* addr_format of struct
						      * moonrail_name */

/* The address that fi_getname returns. An address vector accepts it and also a
 * sockaddr. Plain data; little-endian except for the fabric address. */
struct moonrail_name {
	uint16_t family;		/* MOONRAIL_FAMILY */
	uint8_t version;		/* 1 */
	uint8_t len;			/* bytes of address in use */
	uint32_t ep;
	uint64_t incarnation;		/* 0: unknown, because a sockaddr was
					 * inserted */
	uint32_t protocol, protocol_version, format;
	uint8_t address[36];
};
_Static_assert(sizeof(struct moonrail_name) == 64, "name");

/* Converts a sockaddr or a name to a name. Returns false if addr is neither. */
bool moonrail_name_from(const void *addr, size_t len, struct moonrail_name *n);
/* Converts the fields after len between native and little-endian byte order, in
 * both directions. */
void moonrail_name_swap(struct moonrail_name *n);
/* Returns AF_INET or AF_INET6, or AF_UNSPEC if the fabric address of the name
 * is not a socket address. n: from moonrail_name_from. */
sa_family_t moonrail_name_family(const struct moonrail_name *n);
/* Returns true if a rail has this fabric address. port: compare the port
 * too. */
bool moonrail_name_ours(struct moonrail_domain *d,
			const struct moonrail_name *n, bool port);
/* Writes the address of an endpoint of this domain, with the fabric address of
 * the domain's source rail, or of any rail. Returns 0 or -FI_EADDRNOTAVAIL. */
int moonrail_name_of(struct moonrail_domain *d, uint32_t ep,
		     struct moonrail_name *n);
/* Returns the length of a sockaddr, or 0 if its family is not IP. */
size_t moonrail_sockaddr_len(const void *addr);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_NAME_H */
