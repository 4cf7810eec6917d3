/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_TRANSFER_H
#define TEI_FABTESTS_FUNCTIONAL_FT_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "fabtests/functional/fx.h"

/* The test process as the initiator, and a target with as much memory. */
struct xfer_rig {
	unsigned int rails;
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
	segment_id_t seg;
	uint64_t sequence;	/* number of the last pattern used */
	uint64_t random;	/* state of the generator */
};

bool xfer_rig_start(struct xfer_rig *rig, unsigned int rails, size_t mem);
void xfer_rig_stop(struct xfer_rig *rig);

/* local and remote are offsets in the two memories. block is the size of each
 * task; 0 means one task for all. xfer_rig_job() only describes the job;
 * xfer_rig_move() also runs it, and returns true if it completed. */
struct fx_job xfer_rig_job(const struct xfer_rig *rig, int op, uint64_t local,
			   uint64_t remote, uint64_t len, uint64_t block);
bool xfer_rig_move(const struct xfer_rig *rig, int op, uint64_t local,
		   uint64_t remote, uint64_t len, uint64_t block);

/* ft_transfer_rig.c: four threads; both directions at the same time. */
void xfer_threads(struct xfer_rig *rig);
void xfer_both_ways(struct xfer_rig *rig);

/* ft_transfer_batch.c: the guarantees of batches and task statuses. */
void xfer_batches(struct xfer_rig *rig);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_TRANSFER_H */
