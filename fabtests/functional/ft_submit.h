/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_SUBMIT_H
#define TEI_FABTESTS_FUNCTIONAL_FT_SUBMIT_H

#include "fabtests/functional/fx.h"

#define SUBMIT_MEM (2 * FX_MIB)
#define SUBMIT_REGIONS 4	/* registered regions of equal size, per side */

/* An engine in the test process and a target process. Each registers its
 * memory as SUBMIT_REGIONS regions. */
struct submit_rig {
	transfer_engine_t engine;
	segment_id_t seg;
	struct fx_buf mem;
	struct fx_peer target;
	const char *way;		/* suffix of the names of the tests */
	char transport[32];		/* "transport=…", option of a peer */
	uint64_t random;		/* state of the generator */
};

/* Starts both processes. devices: value of MOONRAIL_DEVICES, or NULL to leave
 * it unset. Returns false, with a failed test, if a step fails. */

bool submit_rig_start(struct submit_rig *rig, const char *way,
		      const char *transport, const char *devices);
void submit_rig_stop(struct submit_rig *rig);

/* ft_submit_pieces.c */
void submit_pieces(struct submit_rig *rig);
/* Runs the tests of submit_pieces with LOCAL_SEGMENT as the target. */
void submit_pieces_own(struct submit_rig *rig);
/* ft_submit_atomic.c */
void submit_atomics(struct submit_rig *rig);
void submit_atomics_own(struct submit_rig *rig);
void submit_contended(struct submit_rig *rig);
/* ft_submit_kill.c */
void submit_kill(struct submit_rig *rig);
/* Kills targets that kernel copies reach as well as the rails. */
void submit_near(struct submit_rig *rig);
void submit_unregister(struct submit_rig *rig);
/* ft_submit_bad.c */
void submit_bad(struct submit_rig *rig);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_SUBMIT_H */
