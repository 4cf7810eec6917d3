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

/* Puts lanes into service that opener threads have opened, and tries again to
 * open contact lanes and the lanes of lost rails. Must be called before
 * rail_health_run. Progress thread, no lock held. */
void rail_progress_reopen(struct tei_rail_dp *dp, uint64_t now);

/* The progress thread's measurement of how often callers poll the lanes. */
struct rail_drive {
	uint64_t seen;			/* value of rail_polls.calls at the last
					 * measurement */
	uint64_t looked_ns;		/* total duration of the polls at the
					 * last measurement, ns */
	uint64_t since_ns;		/* time of the last measurement */
	bool app_driven;
};

/* Updates drive for the tx lanes. Returns true if callers poll them often
 * enough. */
bool rail_drive_poll(struct tei_rail_dp *dp, struct rail_drive *drive,
		     uint64_t now);

/* Does what rail_drive_poll does, for the rx lanes. */
bool rail_drive_poll_rx(struct tei_rail_dp *dp, struct rail_drive *drive,
			uint64_t now);

#endif /* TEI_PROV_RAIL_RAIL_PROGRESS_H */
