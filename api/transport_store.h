/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_TRANSPORT_STORE_H
#define TEI_API_TRANSPORT_STORE_H

/* A transport that only the unit tests use; see transport_store.c. */

#include <stdbool.h>

#include "api/engine_transport.h"

extern const struct engine_transport_ops transport_store;

/* Pauses the transport if paused is true; otherwise lets it continue. While it
 * is paused, its thread takes no task out of the queue. The transport must be
 * installed. */
void transport_store_pause(bool paused);

#endif /* TEI_API_TRANSPORT_STORE_H */
