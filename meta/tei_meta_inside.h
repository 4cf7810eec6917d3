/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_TEI_META_INSIDE_H
#define TEI_META_TEI_META_INSIDE_H

/*
 * The store "inside://", which keeps the descriptors in the memory of the
 * process. Only programs in which all engines run in one thread, in a simulated
 * world, contain it. The control channels of these engines have no sockets.
 */

/* Removes all descriptors from the store. */
void tei_meta_inside_clear(void);

#endif /* TEI_META_TEI_META_INSIDE_H */
