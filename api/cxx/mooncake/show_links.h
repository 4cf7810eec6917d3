/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_SHOW_LINKS_H
#define MOONRAIL_MOONCAKE_SHOW_LINKS_H

/* TransferEngine::showLinks() is the only function about links that programs use. */
#include "transfer_engine.h"

#endif
