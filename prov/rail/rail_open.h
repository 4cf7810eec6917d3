/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_OPEN_H
#define TEI_PROV_RAIL_RAIL_OPEN_H

/* Opens and closes rails. */

#include <stdbool.h>

#include "prov/rail/core/rail_dp.h"
#include "util/lock.h"

struct rail;
struct rail_found;
struct tei_err;

/* Hint of the error that a data plane has already opened TEI_RAIL_MAX rails. */
#define RAIL_FULL_HINT                                                       \
	"each device needs one rail, and another one for each new address; " \
	"create the engine again, or name fewer devices in MOONRAIL_DEVICES"

/* Opens one more rail and registers all registered regions on it. Does nothing
 * if the device has a rail already. */
int rail_dp_add(struct tei_rail_dp *dp, const struct rail_found *found,
		const char *transport, struct tei_err *err)
	TEI_REQUIRES(dp->admin);

/* Returns true if the device has a rail that need not be replaced. */
bool rail_dp_has(struct tei_rail_dp *dp, const struct rail_found *found,
		 const char *transport) TEI_REQUIRES(dp->admin);

/* Closes one rail while the data plane stays open. Slices that are posted on
 * the rail are posted again over other rails after a fence. The caller then
 * calls rail_peer_announce to notify the peers. */
void rail_dp_close_rail(struct tei_rail_dp *dp, struct rail *rail)
	TEI_REQUIRES(dp->admin);

/* Opens a rail. unlogged: true if a failure is only described in err and not
 * logged. */
int rail_open(struct tei_rail_dp *dp, const struct rail_found *found,
	      const char *transport, bool unlogged, struct tei_err *err,
	      struct rail **out);

/* rail_close_initiating closes only the tx lanes, and rail_close_target only the
 * rx lane, to which no registration may be bound any longer (FI_MR_ENDPOINT).
 * rail_close closes everything that the rail has open, and rail_free frees the
 * closed rail. */
void rail_close_initiating(struct rail *rail);
void rail_close_target(struct rail *rail);
void rail_close(struct rail *rail);
void rail_free(struct rail *rail);

#endif /* TEI_PROV_RAIL_RAIL_OPEN_H */
