/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_TEI_RAIL_BASE_H
#define TEI_PROV_RAIL_TEI_RAIL_BASE_H

/* What the parts of tei_rail.h have in common. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tei_secret;
struct tei_settings;
struct tei_topo;
struct tei_rail_dp;
struct tei_rail_message;
struct tei_rail_mr;
struct tei_rail_notification;
struct tei_rail_outgoing;
struct tei_rail_peer;
struct tei_rail_task;

#define TEI_RAIL_MAX		64	/* rails that a data plane opens in its
					 * life, closed ones included */
#define TEI_RAIL_ADDR_MAX	256	/* bytes of a fabric address */

/*
 * The address of an endpoint of a rail; a descriptor publishes contact
 * addresses in this form. Plain data. Two addresses are compatible if their
 * protocol, protocol_version and addr_format are equal.
 */
struct tei_rail_addr {
	uint32_t protocol;		/* FI_PROTO_… */
	uint32_t protocol_version;
	uint32_t addr_format;		/* FI_SOCKADDR_IN, … */
	uint32_t len;			/* number of bytes of the address that
					 * are used */
	uint8_t bytes[TEI_RAIL_ADDR_MAX];
};

/* Writes the address in its one binary encoding (rail_wire_addr.c). Returns the
 * number of bytes, 0 if size is too small. */
size_t tei_rail_addr_put(const struct tei_rail_addr *addr, void *buf,
			 size_t size);
/* Reads what tei_rail_addr_put wrote; bytes behind it are ignored. Returns
 * false if the address is truncated, too long or empty. */
bool tei_rail_addr_get(const void *buf, size_t size,
		       struct tei_rail_addr *addr);

/*
 * How a task ended. After COMPLETED, FAILED and CANCELED, no byte of the task
 * moves any more at either end. UNFENCED: the target did not confirm a fence,
 * so bytes may still land there.
 */
enum tei_rail_end {
	TEI_RAIL_END_COMPLETED,
	TEI_RAIL_END_FAILED,
	TEI_RAIL_END_UNFENCED,
	TEI_RAIL_END_CANCELED,
};

#endif /* TEI_PROV_RAIL_TEI_RAIL_BASE_H */
