/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_PROGRESS_H
#define TEI_PROV_RAIL_RAIL_PROGRESS_H

/* The progress thread. */

#include <stdbool.h>
#include <stdint.h>

struct tei_err;
struct tei_rail_dp;

int rail_progress_start(struct tei_rail_dp *dp, struct tei_err *err);
void rail_progress_stop(struct tei_rail_dp *dp);

/* Activates the lanes that opener threads have opened. Tries again to open
 * contact lanes and the lanes of lost rails. Must be called before
 * rail_health_run, on the progress thread, without a lock held. */
void rail_progress_reopen(struct tei_rail_dp *dp, uint64_t now);

/* Measurement by the progress thread of how often callers poll the tx lanes or
 * the rx lanes. */
struct rail_drive {
	uint64_t seen;			/* number of polls (rail_polls.calls) at
					 * the last measurement */
	uint64_t looked_ns;		/* total duration of all polls up to the
					 * last measurement, ns */
	uint64_t since_ns;		/* time of the last measurement */
	bool app_driven;
};

/* Measures the callers' polls of the tx lanes and updates drive. Returns true
 * if callers poll the tx lanes often enough, so that the progress thread need
 * not poll them. */
bool rail_drive_poll(struct tei_rail_dp *dp, struct rail_drive *drive,
		     uint64_t now);

/* Does for the rx lanes what rail_drive_poll does for the tx lanes. */
bool rail_drive_poll_rx(struct tei_rail_dp *dp, struct rail_drive *drive,
			uint64_t now);

#endif /* TEI_PROV_RAIL_RAIL_PROGRESS_H */
