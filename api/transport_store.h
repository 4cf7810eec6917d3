/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_TRANSPORT_STORE_H
#define TEI_API_TRANSPORT_STORE_H

/* The transport of the unit tests; see transport_store.c. */

#include <stdbool.h>

#include "api/engine_transport.h"

extern const struct engine_transport_ops transport_store;

/* Pauses the transport, or lets it continue. While paused, it takes no task out
 * of its queue. The transport must be installed. */
void transport_store_pause(bool paused);

#endif /* TEI_API_TRANSPORT_STORE_H */
