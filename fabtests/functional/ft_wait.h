/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_WAIT_H
#define TEI_FABTESTS_FUNCTIONAL_FT_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabtests/functional/fx.h"

#define WAIT_MEM (32 * FX_MIB)
#define WAIT_SLACK_MS 8000	/* extra time granted to a loaded machine */
#define WAIT_MS 1000LL		/* µs per ms; timeouts of calls are in µs */

/* The test process as the initiator of all cases, and its target. */
struct wait_rig {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
	segment_id_t seg;
	char name[128];			/* segment name of the engine */
	uint64_t sequence;		/* number of the last pattern */
	uint64_t random;		/* state of the generator */
};

struct wait_part {
	const char *name;
	void (*fn)(struct wait_rig *rig);
	bool kills; /* kills the target; wait_main() starts a new
		     * one */
};

/* Runs the parts, or the only one that the command line names, and returns the
 * exit status. Transfers are tested after each part. */
int wait_main(int argc, char **argv, const struct wait_part *parts, size_t n);

/* Returns a random number less than below. */
uint32_t wait_random(struct wait_rig *rig, uint32_t below);

/* Submits a job that moves len bytes between the local memory at off and the
 * target's memory at the same offset. block is the size of each task; 0 means
 * one task for all. If the submission fails, n[7] of the job is 1. */
struct fx_job wait_job(struct wait_rig *rig, int op, uint64_t off, uint64_t len,
		       uint64_t block);

/* Writes some bytes, waits for them and verifies them. Returns true on
 * success. */
bool wait_works(struct wait_rig *rig);

/* Returns the time within which cancelled or overdue tasks must end if the
 * target does not answer, ms. */
unsigned int wait_end_ms(void);

/* A thread that calls te_wait_batch. */
struct wait_thread {
	transfer_engine_t engine;
	batch_id_t id;
	int64_t timeout_us;
	/* Valid after wait_thread_join(). */
	int ret;
	struct transfer_status status;
	uint64_t ended_ns;		/* time at which the call returned */
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

/* ft_wait_blocking.c */
void wait_blocking(struct wait_rig *rig);
void wait_blocking_stopped(struct wait_rig *rig);
void wait_blocking_destroyed(struct wait_rig *rig);

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

/* ft_wait_reuse.c */
void wait_cookies(struct wait_rig *rig);
void wait_reuse(struct wait_rig *rig);
void wait_any(struct wait_rig *rig);
void wait_relative(struct wait_rig *rig);

/* ft_wait_bad.c */
void wait_bad_input(struct wait_rig *rig);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_WAIT_H */
