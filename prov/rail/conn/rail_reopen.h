/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_REOPEN_H
#define TEI_PROV_RAIL_CONN_RAIL_REOPEN_H

/* Opening lanes on short-lived opener threads. */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail.h"
#include "util/lock.h"

struct tei_rail_dp;

/* Starts an opener thread that opens the lane. The lane gets the generation
 * "gen" + 1. */
void rail_opening_start(struct rail_opening *opening, uint32_t gen)
	TEI_REQUIRES(opening->lane.lock);
/* Returns true if the opener thread has finished: the lane is open, or could
 * not be opened. Joins the thread in this case. */
bool rail_opening_over(struct rail_opening *opening);
/* Waits until the opener thread has ended. */
void rail_opening_stop(struct rail_opening *opening);
/* Starts to open a closed rx or tx lane, unless it is already being opened.
 * Progress thread. */
void rail_reopen_start(struct rail_lane *lane);
/* Starts to open the rail's WANTED tx lanes (enum rail_lane_use), and puts the
 * newly opened lanes into service. Returns a combination of the
 * flags below. Progress thread. */
#define RAIL_REOPENED_RX	1u	/* the rx lane */
#define RAIL_REOPENED_TX	2u	/* at least one tx lane */
#define RAIL_REOPEN_RX_FAILED	4u	/* the rx lane could not be opened */
uint32_t rail_reopen_collect(struct rail *rail);
/* Marks the rail as no longer lost if all its lanes are open that are in use. */
void rail_reopen_whole(struct rail *rail);
/* Waits, during tear-down, until opener threads of the rail have ended, and
 * closes the lanes that they have opened. If "target" is true, stops the
 * opening of the rx lane; otherwise stops those of the tx lanes. No thread may
 * start or collect openings any longer. */
void rail_reopen_stop(struct rail *rail, bool target);

/* Decides, when the rail is opened, whether this process can still listen at
 * the rail's address after a fence. */
void rail_contact_lane_init(struct rail *rail);

/* Starts to open the contact lane, because the first rx lane of the rail was
 * closed. The progress thread calls this function and the next three. */
void rail_contact_lane_left(struct rail *rail);

/* Retries a failed opening of the contact lane when it is due. */
void rail_contact_lane_run(struct rail *rail, uint64_t now);

/* If the opening of a contact lane has ended, handles the result and announces
 * it to the peers. */
void rail_contact_lane_collect(struct rail *rail);

/* Waits until an opening of the contact lane that is in progress has ended. May
 * be called by the progress thread, or by another thread after the progress
 * thread has stopped. */
void rail_contact_lane_stop(struct rail *rail);

/* Returns true if this process listens at the contact address, or is about to.
 * Any thread. */
bool rail_contact_lane_held(const struct rail *rail);

#endif /* TEI_PROV_RAIL_CONN_RAIL_REOPEN_H */
