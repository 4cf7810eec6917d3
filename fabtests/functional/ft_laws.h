/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_LAWS_H
#define TEI_FABTESTS_FUNCTIONAL_FT_LAWS_H

#include "fabtests/functional/fx.h"

/* An engine with memory, a target with equally much memory, and the segment of
 * the target. */
struct law_rig {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
	segment_id_t seg;
};

#define LAW_MEM (8 * FX_MIB)

bool law_rig_start(struct law_rig *rig);
void law_rig_stop(struct law_rig *rig);

/* Writes len bytes with the pattern of `sequence` from the start of the local
 * memory to the start of the target's. Returns true if they arrive. */
bool law_write_works(struct law_rig *rig, uint64_t len, uint64_t sequence);

void law_process(void);		/* in ft_laws_process.c: laws 6 and 7 */
void law_messages(void);	/* in ft_laws_messages.c: laws 9 to 12 */
void law_notify(void);		/* in ft_laws_notify.c: laws about
				 * notifications */
void law_segments(void);	/* in ft_laws_segments.c: laws about segments
				 * and transports */

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_LAWS_H */
