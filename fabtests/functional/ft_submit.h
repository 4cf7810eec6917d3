/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_SUBMIT_H
#define TEI_FABTESTS_FUNCTIONAL_FT_SUBMIT_H

#include "fabtests/functional/fx.h"

#define SUBMIT_MEM (2 * FX_MIB)
#define SUBMIT_REGIONS 4	/* equal parts of either memory */

/* An engine and a target, each with its memory in four regions. */
struct submit_rig {
	transfer_engine_t engine;
	segment_id_t seg;
	struct fx_buf mem;
	struct fx_peer target;
	const char *way;		/* for the tests' names */
	char transport[32];		/* as the option of a peer */
	uint64_t random;
};

bool submit_rig_start(struct submit_rig *rig, const char *way,
		      const char *transport, const char *devices);
void submit_rig_stop(struct submit_rig *rig);

/* ft_submit_pieces.c */
void submit_pieces(struct submit_rig *rig);
/* The same to LOCAL_SEGMENT. */
void submit_pieces_own(struct submit_rig *rig);
/* ft_submit_atomic.c */
void submit_atomics(struct submit_rig *rig);
void submit_atomics_own(struct submit_rig *rig);
void submit_contended(struct submit_rig *rig);
/* ft_submit_kill.c */
void submit_kill(struct submit_rig *rig);
/* Targets that copies reach too, which are killed. */
void submit_near(struct submit_rig *rig);
void submit_unregister(struct submit_rig *rig);
/* ft_submit_bad.c */
void submit_bad(struct submit_rig *rig);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_SUBMIT_H */
