/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_SUBMIT_H
#define TEI_FABTESTS_FUNCTIONAL_FT_SUBMIT_H

#include "fabtests/functional/fx.h"

#define SUBMIT_MEM (2 * FX_MIB)
/* number of regions of equal size that each side registers */
#define SUBMIT_REGIONS 4

/* An engine in the test process, and a target process. Each registers its
 * memory as SUBMIT_REGIONS regions. */
struct submit_rig {
	transfer_engine_t engine;
	segment_id_t seg;
	struct fx_buf mem;
	struct fx_peer target;
	const char *way;		/* how the processes are connected;
					 * suffix of the test names */
	char transport[32];		/* option "transport=…" for
					 * fx_peer_start */
	uint64_t random;		/* state of the random number
					 * generator */
};

/* Starts both processes. `devices` is the value of MOONRAIL_DEVICES; NULL means
 * that it is not set. If a step fails, reports a failed check and returns
 * false. */

bool submit_rig_start(struct submit_rig *rig, const char *way,
		      const char *transport, const char *devices);
void submit_rig_stop(struct submit_rig *rig);

/* in ft_submit_pieces.c: */
void submit_pieces(struct submit_rig *rig);
/* Runs random requests of submit_pieces with LOCAL_SEGMENT as target. */
void submit_pieces_own(struct submit_rig *rig);
/* in ft_submit_atomic.c: */
void submit_atomics(struct submit_rig *rig);
void submit_atomics_own(struct submit_rig *rig);
void submit_contended(struct submit_rig *rig);
/* in ft_submit_kill.c: */
void submit_kill(struct submit_rig *rig);
/* Kills targets that can be reached by kernel copies and over rails. */
void submit_near(struct submit_rig *rig);
void submit_unregister(struct submit_rig *rig);
/* in ft_submit_bad.c: */
void submit_bad(struct submit_rig *rig);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_SUBMIT_H */
