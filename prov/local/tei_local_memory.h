/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_MEMORY_H
#define TEI_PROV_LOCAL_MEMORY_H

/*
 * Memory that other processes of this host can map. Every call may be made from
 * any thread.
 */

#include <stdint.h>

struct tei_local;

/*
 * Maps zeroed memory that peers can map, too, at [addr, addr+len), in place of
 * the present mapping. page is the page size, of which addr and len are
 * multiples: 2 MiB or 1 GiB for pages from the kernel's pools, else the size of
 * ordinary pages. The memory becomes a target of copies only when it is
 * registered (tei_local_region_add).
 *
 * Peers of the same user map the memory and copy by memcpy, with the checks and
 * the guarantees of other memory: they arm a copy slot first, so
 * tei_local_region_remove waits for them, even if they are stopped in the
 * middle of a copy. Other peers use kernel copies. A peer unmaps the memory
 * when it closes its struct tei_local_peer, and when this process ends. The
 * caller must not move, protect or replace the mapping.
 *
 * A child after fork does not inherit the memory, because the child would share
 * the memory with this process. Returns 0 or an errno. After ENOTSUP,
 * [addr, addr+len) is unchanged: this system cannot share memory, RLIMIT_FSIZE is
 * set, or this is a forked child.
 */
int tei_local_memory_map(struct tei_local *ctx, void *addr, uint64_t len,
			 uint64_t page);

/*
 * Frees the pages of memory that tei_local_memory_map has mapped at addr, in
 * this process and in its peers. No part of the memory may be registered. The
 * caller then unmaps the range. Memory that was not mapped by
 * tei_local_memory_map is ignored. tei_local_fini frees the pages of all such
 * memory that is left; the caller must not access this memory afterwards.
 */
void tei_local_memory_free(struct tei_local *ctx, void *addr);

#endif /* TEI_PROV_LOCAL_MEMORY_H */
