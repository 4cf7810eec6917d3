/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Encodes fabric addresses. The encoding consists of the protocol (4 bytes),
 * the protocol version (4), the address format (4), the length of the address
 * (2), then the bytes of the address. All numbers are little-endian. The
 * messages of the peer protocol and the names of the provider's endpoints
 * contain addresses in this form.
 */
#include <string.h>

#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"

void rail_addr_put(struct rail_wire *w, const struct tei_rail_addr *a)
{
	rail_wire_put(w, a->protocol, 4);
	rail_wire_put(w, a->protocol_version, 4);
	rail_wire_put(w, a->addr_format, 4);
	rail_wire_put_bytes(w, a->bytes, a->len);
}

bool rail_addr_get(struct rail_wire *w, struct tei_rail_addr *a)
{
	memset(a, 0, sizeof(*a));
	a->protocol = (uint32_t)rail_wire_get(w, 4);
	a->protocol_version = (uint32_t)rail_wire_get(w, 4);
	a->addr_format = (uint32_t)rail_wire_get(w, 4);
	a->len = (uint32_t)rail_wire_get_bytes(w, a->bytes, sizeof(a->bytes));
	return !w->bad && a->len;
}

size_t tei_rail_addr_put(const struct tei_rail_addr *addr, void *buf,
			 size_t size)
{
	struct rail_wire w = { .p = buf, .cap = size };

	rail_addr_put(&w, addr);
	return w.bad ? 0 : w.pos;
}

bool tei_rail_addr_get(const void *buf, size_t size, struct tei_rail_addr *addr)
{
	struct rail_wire w = { .p = (uint8_t *)(uintptr_t)buf, .cap = size };

	return rail_addr_get(&w, addr);
}
