/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_TRANSFER_H
#define TEI_FABTESTS_FUNCTIONAL_FT_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "fabtests/functional/fx.h"

/* An initiator, which is the test itself, and a target with equal memory. */
struct xfer_rig {
	unsigned int rails;
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
	segment_id_t seg;
	uint64_t sequence;	/* of the last pattern used */
	uint64_t random;
};

bool xfer_rig_start(struct xfer_rig *rig, unsigned int rails, size_t mem);
void xfer_rig_stop(struct xfer_rig *rig);

/* Offsets in both memories; block 0: one task. */
struct fx_job xfer_rig_job(const struct xfer_rig *rig, int op, uint64_t local,
			   uint64_t remote, uint64_t len, uint64_t block);
bool xfer_rig_move(const struct xfer_rig *rig, int op, uint64_t local,
		   uint64_t remote, uint64_t len, uint64_t block);

/* ft_transfer_rig.c: four threads; both directions at a time. */
void xfer_threads(struct xfer_rig *rig);
void xfer_both_ways(struct xfer_rig *rig);

/* ft_transfer_batch.c: what a batch and its statuses promise. */
void xfer_batches(struct xfer_rig *rig);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_TRANSFER_H */
