/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_TEI_RAIL_H
#define TEI_PROV_RAIL_TEI_RAIL_H

/*
 * The data plane: rails, lanes, connections, slices, the peer protocol and the
 * fence. docs/GLOSSARY.md defines the terms. The caller passes only a peer's
 * contact addresses to the data plane. The data planes exchange everything else
 * (rail tables, keys, fences) over the rails.
 *
 * Threads: every function may be called from any thread unless its comment says
 * otherwise. Each data plane runs one progress thread. Callbacks are called
 * without a lock, from the progress thread or from a thread that is inside
 * tei_rail_progress, tei_rail_submit or tei_rail_mr_dereg. Callbacks must not
 * block.
 */

#include "prov/rail/tei_rail_dp.h"
#include "prov/rail/tei_rail_mr.h"
#include "prov/rail/tei_rail_msg.h"
#include "prov/rail/tei_rail_peer.h"
#include "prov/rail/tei_rail_task.h"

#endif /* TEI_PROV_RAIL_TEI_RAIL_H */
