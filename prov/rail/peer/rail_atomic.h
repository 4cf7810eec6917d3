/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_PEER_RAIL_ATOMIC_H
#define TEI_PROV_RAIL_PEER_RAIL_ATOMIC_H

/* The limit that initiator and target of atomics have in common. */

#define RAIL_ATOMICS		256	/* limit of the unanswered atomics per
					 * peer */

#endif /* TEI_PROV_RAIL_PEER_RAIL_ATOMIC_H */
