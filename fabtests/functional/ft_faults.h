/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_FAULTS_H
#define TEI_FABTESTS_FUNCTIONAL_FT_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "fabtests/functional/fx.h"

#define FAULT_MEM (128 * FX_MIB)
#define FAULT_BLOCK (4 * FX_MIB)

/* The engines of this test and their memory. Each part uses one of two engines:
 * "patient" has a long MC_SLICE_TIMEOUT, "hasty" a short one, for parts that
 * wait until it has passed. */
struct fault_rig {
	transfer_engine_t patient, hasty;
	transfer_engine_t engine;	/* "patient" or "hasty", whichever the
					 * current part uses */
	struct fx_buf mem;
	uint64_t sequence;
	uint64_t random;
};

/* Returns the time limit, in ms, for all tasks to end after a fault. */
unsigned int fault_limit_ms(void);

/* Returns a random number of bytes from 1 to 60 % of len. */
uint64_t fault_point(struct fault_rig *rig, uint64_t len);

/* Returns a job that moves len bytes between the start of rig->mem and the
 * start of the target's memory, in tasks of FAULT_BLOCK bytes. */
struct fx_job fault_job(const struct fault_rig *rig, const struct fx_peer *to,
			segment_id_t seg, int op, uint64_t len);

/* Returns true if for each COMPLETED task the bytes at both sides are equal. */
bool fault_completed_is_true(const struct fault_rig *rig,
			     const struct fx_peer *target,
			     const struct fx_job *job);

/* Writes 5 MiB to the offset off of the target's memory and reads them back.
 * Returns true if both succeed and the bytes are right. */
bool fault_next_works(struct fault_rig *rig, struct fx_peer *target,
		      segment_id_t seg, uint64_t off);

/* Does the same as fault_next_works, but repeats failed transfers for up to 20
 * s, because those of the hasty engine may fail at first. */
bool fault_works_again(struct fault_rig *rig, struct fx_peer *target,
		       segment_id_t seg, uint64_t off);

/* Returns true if buf contains no poison. Tests fill a source with poison when
 * its tasks have ended, so poison in the destination was read too late. */
bool fault_no_poison(const struct fx_buf *buf);

/* in ft_faults_cost.c: */
void fault_cost(struct fault_rig *rig);

/* in ft_faults_kill.c: */
void fault_kill_target(struct fault_rig *rig);
void fault_kill_initiator(struct fault_rig *rig);
void fault_kill_parent(struct fault_rig *rig);
void fault_restart(struct fault_rig *rig);

/* in ft_faults_stop.c: */
void fault_stop_write(struct fault_rig *rig);
void fault_stop_read(struct fault_rig *rig);
void fault_stop_others(struct fault_rig *rig);
void fault_stop_places(struct fault_rig *rig);
void fault_stop_destroy(struct fault_rig *rig);
void fault_stop_both(struct fault_rig *rig);

/* in ft_faults_unreg.c: */
void fault_unregister_write(struct fault_rig *rig);
void fault_unregister_read(struct fault_rig *rig);
void fault_unregister_stopped(struct fault_rig *rig);
void fault_unregister_own(struct fault_rig *rig);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_FAULTS_H */
