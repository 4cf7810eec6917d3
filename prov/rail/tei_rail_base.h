/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_TEI_RAIL_BASE_H
#define TEI_PROV_RAIL_TEI_RAIL_BASE_H

/* Types and constants that all parts of tei_rail.h use. */

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

#define TEI_RAIL_MAX		64	/* most rails that a data plane may open
					 * in its life, including those that it
					 * has closed */
#define TEI_RAIL_ADDR_MAX	256	/* longest fabric address, bytes */

/* The address of an endpoint of a rail; a descriptor publishes contact
 * addresses in this form. The struct contains no pointers. Two addresses are
 * compatible if their protocol, protocol_version and addr_format are equal. */
struct tei_rail_addr {
	uint32_t protocol;		/* protocol of the endpoint,
					 * FI_PROTO_… */
	uint32_t protocol_version;
	uint32_t addr_format;		/* format of the address in "bytes":
					 * FI_SOCKADDR_IN, … */
	uint32_t len;			/* number of used bytes in "bytes" */
	uint8_t bytes[TEI_RAIL_ADDR_MAX];
};

/* Writes addr to buf in the binary encoding that rail_wire_addr.c defines.
 * Returns the number of bytes written, or 0 if size is too small. */
size_t tei_rail_addr_put(const struct tei_rail_addr *addr, void *buf,
			 size_t size);
/* Reads an address that tei_rail_addr_put has written. Ignores bytes that
 * follow the address. Returns false if the address is truncated, too long or
 * empty. */
bool tei_rail_addr_get(const void *buf, size_t size,
		       struct tei_rail_addr *addr);

/* How a task ended. After COMPLETED, FAILED and CANCELED, no byte of the task
 * moves any longer at either end. After UNFENCED, bytes may still arrive in the
 * target's memory, because the target did not confirm a fence. */
enum tei_rail_end {
	TEI_RAIL_END_COMPLETED,
	TEI_RAIL_END_FAILED,
	TEI_RAIL_END_UNFENCED,
	TEI_RAIL_END_CANCELED,
};

#endif /* TEI_PROV_RAIL_TEI_RAIL_BASE_H */
