/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_TOPOLOGY_H
#define TEI_API_ENGINE_TOPOLOGY_H

/* The topology of the engine's rails. Callers of these functions must hold
 * engine->control. */

#include "api/engine_int.h"

/* Discovers the topology for the present rails and passes it to the data plane.
 * After an error the previous topology stays in use. */
int engine_topology_set(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control);
/* Checks and stores the topology that the caller passes in json or, if json is
 * NULL, that of MC_CUSTOM_TOPO_JSON. Called before rails are opened. */
int engine_topology_take(struct engine *e, const char *json,
			 struct tei_err *err) TEI_REQUIRES(e->control);

#endif /* TEI_API_ENGINE_TOPOLOGY_H */
