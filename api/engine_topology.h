/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_TOPOLOGY_H
#define TEI_API_ENGINE_TOPOLOGY_H

/* The topology of the engine's rails. Callers of these functions must hold
 * engine->control. */

#include "api/engine_int.h"

/* Discovers the topology for the present rails and passes it to the data plane.
 * After an error the data plane keeps the previous topology. Returns 0 or an
 * error code. */
int engine_topology_set(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control);
/* Checks and stores a topology that replaces the discovered one: the JSON text
 * "json" or, if it is NULL, the content of the file MC_CUSTOM_TOPO_JSON. Does
 * nothing if there is neither of them. Called before rails are opened. Returns
 * 0 or an error code. */
int engine_topology_take(struct engine *e, const char *json,
			 struct tei_err *err) TEI_REQUIRES(e->control);

#endif /* TEI_API_ENGINE_TOPOLOGY_H */
