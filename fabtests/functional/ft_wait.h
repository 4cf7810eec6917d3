/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_WAIT_H
#define TEI_FABTESTS_FUNCTIONAL_FT_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabtests/functional/fx.h"

#define WAIT_MEM (32 * FX_MIB)
#define WAIT_SLACK_MS 8000	/* what a loaded machine may add to a time */
#define WAIT_MS 1000LL		/* in the microseconds of the calls */

/* The initiator of all cases, the test itself, and its target. */
struct wait_rig {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
	segment_id_t seg;
	char name[128];
	uint64_t sequence;
	uint64_t random;
};

uint32_t wait_random(struct wait_rig *rig, uint32_t below);

/* len bytes of our memory at off to or from the same place of the target's,
 * by tasks of block bytes (0: one); submitted. n[7] of it says failed. */
struct fx_job wait_job(struct wait_rig *rig, int op, uint64_t off, uint64_t len,
		       uint64_t block);

/* A verified write of some bytes, waited for. */
bool wait_works(struct wait_rig *rig);

/* Bound of what a silent target may take to end cancelled or late tasks. */
unsigned int wait_end_ms(void);

/* A thread inside te_wait_batch. */
struct wait_thread {
	transfer_engine_t engine;
	batch_id_t id;
	int64_t timeout_us;
	int ret;			/* valid after the join */
	struct transfer_status status;
	uint64_t ended_ns;
	pthread_t thread;
};
void wait_thread_start(struct wait_thread *t);
void wait_thread_join(struct wait_thread *t);

/* ft_wait_basic.c */
void wait_basics(struct wait_rig *rig);
void wait_timeouts(struct wait_rig *rig);
void wait_threads(struct wait_rig *rig);
void wait_freed(struct wait_rig *rig);
void wait_destroyed(struct wait_rig *rig);

/* ft_wait_cost.c */
void wait_cpu(struct wait_rig *rig);
void wait_latency(struct wait_rig *rig);

/* ft_wait_event.c */
void wait_epoll(struct wait_rig *rig);
void wait_levels(struct wait_rig *rig);
void wait_batch_fd(struct wait_rig *rig);
void wait_element_sizes(struct wait_rig *rig);
void wait_event_storm(struct wait_rig *rig);

/* ft_wait_cancel.c */
void wait_cancel(struct wait_rig *rig);
void wait_cancel_stopped(struct wait_rig *rig);
void wait_cancel_local(struct wait_rig *rig);
void wait_flush(struct wait_rig *rig);

/* ft_wait_deadline.c */
void wait_deadline(struct wait_rig *rig);
void wait_deadline_running(struct wait_rig *rig);
void wait_deadline_destroyed(struct wait_rig *rig);
void wait_killed(struct wait_rig *rig);

/* ft_wait_bad.c */
void wait_bad_input(struct wait_rig *rig);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_WAIT_H */
