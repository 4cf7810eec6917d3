/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_LOCAL_MOVE_H
#define TEI_PROV_LOCAL_LOCAL_MOVE_H

/* Copies with target memory that this process can access. Any thread. */

#include <stdbool.h>
#include <stdint.h>

/*
 * Copies length bytes from local to remote if write is true, otherwise from
 * remote to local. The ranges may overlap. remote is the
 * address of target memory in this process: either memory of this process itself,
 * or a mapping of a peer's memory.
 *
 * The access to target memory is hidden from ThreadSanitizer, which would report
 * races that are none: it does not see the messages over the rails that order
 * such accesses. Requests whose target ranges overlap are not ordered, and need
 * not be.
 */
void local_move(bool write, char *local, char *remote, uint64_t length);

#endif /* TEI_PROV_LOCAL_LOCAL_MOVE_H */
