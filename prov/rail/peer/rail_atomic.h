/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_PEER_RAIL_ATOMIC_H
#define TEI_PROV_RAIL_PEER_RAIL_ATOMIC_H

/* The limit of unanswered atomics, which initiator and target both use. */

#define RAIL_ATOMICS		256	/* largest number of unanswered atomics
					 * per peer */

#endif /* TEI_PROV_RAIL_PEER_RAIL_ATOMIC_H */
