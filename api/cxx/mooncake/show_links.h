/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_SHOW_LINKS_H
#define MOONRAIL_MOONCAKE_SHOW_LINKS_H

/* Programs that include this header call TransferEngine::showLinks(). */
#include "transfer_engine.h"

#endif
