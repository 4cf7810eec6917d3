/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_TOPOLOGY_H
#define TEI_API_ENGINE_TOPOLOGY_H

/* The topology of the engine's rails. engine->control is held by all
 * callers. */

#include "api/engine_int.h"

/* Discovers the topology for the present rails and gives it to the data plane.
 * After an error the previous one stays in use. */
int engine_topology_set(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control);
/* Checks and stores the topology text of the caller, or that of
 * MC_CUSTOM_TOPO_JSON if json is NULL, before rails are opened. */
int engine_topology_take(struct engine *e, const char *json,
			 struct tei_err *err) TEI_REQUIRES(e->control);

#endif /* TEI_API_ENGINE_TOPOLOGY_H */
