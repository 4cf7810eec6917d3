/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_REOPEN_H
#define TEI_PROV_RAIL_CONN_RAIL_REOPEN_H

/* Opening lanes again on short-lived opener threads. */

#include "prov/rail/rail_int.h"

/* Opens the lane on an opener thread. The lane gets the generation gen + 1. */
void rail_opening_start(struct rail_opening *opening, uint32_t gen)
	TEI_REQUIRES(opening->lane.lock);
/* Returns true once the lane is open or has failed and the opener thread has
 * ended. */
bool rail_opening_over(struct rail_opening *opening);
/* Waits until the opener thread has ended. */
void rail_opening_stop(struct rail_opening *opening);
/* Starts to open a closed rx or tx lane, unless it is already being opened.
 * Progress thread. */
void rail_reopen_start(struct rail_lane *lane);
/* Puts the rail's newly opened lanes into service. Returns which there were, 0:
 * none. Progress thread. */
#define RAIL_REOPENED_RX	1u	/* the rx lane */
#define RAIL_REOPENED_TX	2u	/* at least one tx lane */
uint32_t rail_reopen_collect(struct rail *rail);
/* Returns true if the rx lane of some local rail is closed and will be opened
 * again. */
bool rail_reopen_any(struct tei_rail_dp *dp);
/* Marks the rail as no longer lost if all its lanes are open. */
void rail_reopen_whole(struct rail *rail);
/* Waits, during tear-down, until the opener threads of the rail's tx lanes
 * (target: of its rx lane) have ended. No thread may start or collect openings
 * any longer. */
void rail_reopen_stop(struct rail *rail, bool target);

#endif /* TEI_PROV_RAIL_CONN_RAIL_REOPEN_H */
