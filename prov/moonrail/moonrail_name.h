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
struct tei_rail_addr;

#define MOONRAIL_EP_ANY	0u		/* endpoint number that stands for the
					 * oldest endpoint of a domain */
#define MOONRAIL_FAMILY	0x6d72		/* first field of an encoded name */
/* The value of FI_PROV_SPECIFIC, which some headers of libfabric 2.x no longer
 * define. */
#define MOONRAIL_OWN	(1u << 31)
/* addr_format of encoded names */
#define MOONRAIL_FORMAT	(MOONRAIL_OWN | 0x6d6f6f6eu)

/*
 * Length of an encoded name. Its fields and their sizes in bytes are: family 2
 * (MOONRAIL_FAMILY), version 1, zero 1, endpoint 4, incarnation 8, then the
 * fabric address as tei_rail_addr_put writes it, and zeros. fi_getname returns
 * an encoded name. An address vector accepts an encoded name or a sockaddr.
 */
#define MOONRAIL_NAME_LEN	64
#define MOONRAIL_NAME_VERSION	2
#define MOONRAIL_NAME_ADDR	34	/* longest fabric address in a name,
					 * bytes */

/* A decoded name. */
struct moonrail_name {
	uint64_t incarnation;		/* 0 if it is unknown because a sockaddr
					 * was inserted */
	uint32_t ep;
	uint32_t protocol, protocol_version, format;
	uint32_t len;			/* number of bytes of "address" in
					 * use */
	/* the fabric address, aligned so that it can be read as a sockaddr */
	_Alignas(4) uint8_t address[MOONRAIL_NAME_ADDR];
};

/* Decodes a name or converts a sockaddr. Returns false if addr is neither. */
bool moonrail_name_from(const void *addr, size_t len, struct moonrail_name *n);
/* Encodes the name. */
void moonrail_name_put(const struct moonrail_name *n,
		       uint8_t out[MOONRAIL_NAME_LEN]);
/* Writes the fabric address of the name to *a. */
void moonrail_name_addr(const struct moonrail_name *n, struct tei_rail_addr *a);
/* Returns AF_INET or AF_INET6, or AF_UNSPEC if the fabric address of the name
 * is not a socket address. n: from moonrail_name_from. */
sa_family_t moonrail_name_family(const struct moonrail_name *n);
/* Returns true if a rail of the domain has the fabric address of the name n.
 * port: compare the port too. */
bool moonrail_name_ours(struct moonrail_domain *d,
			const struct moonrail_name *n, bool port);
/* Writes the address of an endpoint of this domain, with the fabric address of
 * the domain's source rail, or of any rail. Returns 0 or -FI_EADDRNOTAVAIL. */
int moonrail_name_of(struct moonrail_domain *d, uint32_t ep,
		     struct moonrail_name *n);
/* Returns the length of a sockaddr, or 0 if its family is not IP. */
size_t moonrail_sockaddr_len(const void *addr);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_NAME_H */
