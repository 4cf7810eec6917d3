/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_TRANSPORT_RAIL_H
#define TEI_API_TRANSPORT_RAIL_H

/*
 * The transport over rails. Other transports that submit tasks to the data plane
 * use engine_rail_status().
 */

#include "prov/rail/tei_rail.h"

/* Receives the end of a task. This is a tei_rail_ops.task_done. */
void transport_rail_done(struct tei_rail_task *task, enum tei_rail_end end,
			 const struct tei_err *err);
/* Converts the end that the data plane reports to the status of a task. */
int engine_rail_status(enum tei_rail_end end);

#endif /* TEI_API_TRANSPORT_RAIL_H */
