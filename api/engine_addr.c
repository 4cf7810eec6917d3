/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Conversion of the data plane's addresses to the form that descriptors use,
 * and back.
 */
#include <string.h>

#include "api/engine_int.h"
#include "meta/tei_meta_desc.h"

/*
 * number of bytes before the address: the protocol and its version, 4 bytes
 * each, both big-endian
 */
#define ADDR_PREFIX 8

static void addr_put32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

static uint32_t addr_get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 |
	       (uint32_t)p[2] << 8 | p[3];
}

void engine_addr_pack(const struct tei_rail_addr *in,
		      struct tei_meta_address *out)
{
	memset(out, 0, sizeof(*out));
	if (!in->len || in->len + ADDR_PREFIX > sizeof(out->bytes))
		return;
	out->format = in->addr_format;
	out->len = in->len + ADDR_PREFIX;
	addr_put32(out->bytes, in->protocol);
	addr_put32(out->bytes + 4, in->protocol_version);
	memcpy(out->bytes + ADDR_PREFIX, in->bytes, in->len);
}

bool engine_addr_unpack(const struct tei_meta_address *in,
			struct tei_rail_addr *out)
{
	memset(out, 0, sizeof(*out));
	if (in->len <= ADDR_PREFIX)
		return false;
	out->addr_format = in->format;
	out->len = in->len - ADDR_PREFIX;
	out->protocol = addr_get32(in->bytes);
	out->protocol_version = addr_get32(in->bytes + 4);
	memcpy(out->bytes, in->bytes + ADDR_PREFIX, out->len);
	return true;
}
