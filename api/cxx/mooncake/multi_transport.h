/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_MULTI_TRANSPORT_H
#define MOONRAIL_MOONCAKE_MULTI_TRANSPORT_H

/* moonrail needs no class MultiTransport, because one engine drives all
 * transports. */
#include "transport/transport.h"

#endif
