/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_ADDR_H
#define TEI_PROV_RAIL_CORE_RAIL_ADDR_H

/* Fabric addresses: comparison and text. */

#include <stdbool.h>
#include <stddef.h>

struct tei_rail_addr;

/* Writes the address to buf as text, such as "10.0.0.2:41010". */
void rail_addr_text(const struct tei_rail_addr *addr, char *buf, size_t len);

/* Returns true if a and b are the same address. */
bool rail_addr_same(const struct tei_rail_addr *a,
		    const struct tei_rail_addr *b);

/* Returns true if the address is a complete sockaddr_in or sockaddr_in6. */
bool rail_addr_is_ip(const struct tei_rail_addr *a);

#endif /* TEI_PROV_RAIL_CORE_RAIL_ADDR_H */
