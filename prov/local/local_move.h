/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_LOCAL_MOVE_H
#define TEI_PROV_LOCAL_LOCAL_MOVE_H

/* Copies with target memory that this process can access. Any thread. */

#include <stdbool.h>
#include <stdint.h>

/*
 * Copies length bytes from local to remote if write is true, otherwise from
 * remote to local. The ranges may overlap. remote is target memory at which this
 * process has it: memory of this process, or a mapping of a peer's memory.
 *
 * ThreadSanitizer sees the access to local memory only. It cannot see what orders
 * the accesses to target memory: messages over the rails, which libfabric carries
 * and a sanitizer does not see, or nothing for requests whose target ranges
 * overlap.
 */
void local_move(bool write, char *local, char *remote, uint64_t length);

#endif /* TEI_PROV_LOCAL_LOCAL_MOVE_H */
