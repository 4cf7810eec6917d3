/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_FAULTS_H
#define TEI_FABTESTS_FUNCTIONAL_FT_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "fabtests/functional/fx.h"

#define FAULT_MEM (128 * FX_MIB)
#define FAULT_BLOCK (4 * FX_MIB)

/*
 * The surviving engines of all cases: the test itself. The hasty one is for
 * parts that await time-outs.
 */
struct fault_rig {
	transfer_engine_t patient, hasty;
	transfer_engine_t engine;	/* of the part: one of the two */
	struct fx_buf mem;
	uint64_t sequence;
	uint64_t random;
};

/* Time in which every task must be terminal after a fault. */
unsigned int fault_limit_ms(void);

/* A random number of bytes out of len, never near its end. */
uint64_t fault_point(struct fault_rig *rig, uint64_t len);

/* All of our memory to or from the start of the target's, block by block. */
struct fx_job fault_job(const struct fault_rig *rig, const struct fx_peer *to,
			segment_id_t seg, int op, uint64_t len);

/* COMPLETED tasks of a write or a read that began with sequence: in place? */
bool fault_completed_is_true(const struct fault_rig *rig,
			     const struct fx_peer *target,
			     const struct fx_job *job);

/* A verified write and read of a few MiB at off of the target. */
bool fault_next_works(struct fault_rig *rig, struct fx_peer *target,
		      segment_id_t seg, uint64_t off);

/* The same of the hasty engine, which may fail at first: it works again in
 * bounded time. */
bool fault_works_again(struct fault_rig *rig, struct fx_peer *target,
		       segment_id_t seg, uint64_t off);

/* True if the bytes nobody may send any more are found nowhere. */
bool fault_no_poison(const struct fx_buf *buf);

/* ft_faults_cost.c */
void fault_cost(struct fault_rig *rig);

/* ft_faults_kill.c */
void fault_kill_target(struct fault_rig *rig);
void fault_kill_initiator(struct fault_rig *rig);
void fault_kill_parent(struct fault_rig *rig);
void fault_restart(struct fault_rig *rig);

/* ft_faults_stop.c */
void fault_stop_write(struct fault_rig *rig);
void fault_stop_read(struct fault_rig *rig);
void fault_stop_others(struct fault_rig *rig);
void fault_stop_places(struct fault_rig *rig);
void fault_stop_destroy(struct fault_rig *rig);
void fault_stop_both(struct fault_rig *rig);

/* ft_faults_unreg.c */
void fault_unregister_write(struct fault_rig *rig);
void fault_unregister_read(struct fault_rig *rig);
void fault_unregister_stopped(struct fault_rig *rig);
void fault_unregister_own(struct fault_rig *rig);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_FAULTS_H */
