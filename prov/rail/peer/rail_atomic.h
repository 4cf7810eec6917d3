/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_PEER_RAIL_ATOMIC_H
#define TEI_PROV_RAIL_PEER_RAIL_ATOMIC_H

/* Atomics of peers, and atomics at peers. */

#define RAIL_ATOMICS		256	/* unanswered atomics per peer */

#endif /* TEI_PROV_RAIL_PEER_RAIL_ATOMIC_H */
