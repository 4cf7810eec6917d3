/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_TRANSPORT_RAIL_H
#define TEI_API_TRANSPORT_RAIL_H

/*
 * The transport over rails. Other transports that submit tasks to the data
 * plane use engine_rail_status(), too.
 */

#include "prov/rail/tei_rail.h"

/* Ends the engine's task, because the data plane has ended its own. This is the
 * callback tei_rail_ops.task_done. */
void transport_rail_done(struct tei_rail_task *task, enum tei_rail_end end,
			 const struct tei_err *err);
/* Converts the end that the data plane reports for a task to a STATUS_…
 * value. */
int engine_rail_status(enum tei_rail_end end);

#endif /* TEI_API_TRANSPORT_RAIL_H */
