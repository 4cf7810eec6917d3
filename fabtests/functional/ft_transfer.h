/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_TRANSFER_H
#define TEI_FABTESTS_FUNCTIONAL_FT_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "fabtests/functional/fx.h"

/* The test process, which is the initiator, and a target with as much
 * memory. */
struct xfer_rig {
	unsigned int rails;
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
	segment_id_t seg;
	uint64_t sequence;	/* number of the last byte pattern used */
	uint64_t random;	/* state of the random number generator */
};

bool xfer_rig_start(struct xfer_rig *rig, unsigned int rails, size_t mem);
void xfer_rig_stop(struct xfer_rig *rig);

/* Both functions describe a job with tasks of `block` bytes, or with a single
 * task if `block` is 0. `local` and `remote` are offsets in the memory of the
 * initiator and of the target. xfer_rig_move() also runs the job, and returns
 * true if all tasks completed. */
struct fx_job xfer_rig_job(const struct xfer_rig *rig, int op, uint64_t local,
			   uint64_t remote, uint64_t len, uint64_t block);
bool xfer_rig_move(const struct xfer_rig *rig, int op, uint64_t local,
		   uint64_t remote, uint64_t len, uint64_t block);

/* Tests four threads, and transfers in both directions at the same time (in
 * ft_transfer_rig.c). */
void xfer_threads(struct xfer_rig *rig);
void xfer_both_ways(struct xfer_rig *rig);

/* Tests the guarantees of batches and task statuses (in
 * ft_transfer_batch.c). */
void xfer_batches(struct xfer_rig *rig);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_TRANSFER_H */
