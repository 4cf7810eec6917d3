/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_WAIT_H
#define TEI_FABTESTS_FUNCTIONAL_FT_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabtests/functional/fx.h"

#define WAIT_MEM (32 * FX_MIB)
/* added to time limits, because the machine may be loaded */
#define WAIT_SLACK_MS 8000
/* microseconds per millisecond; the timeouts of the calls are in µs */
#define WAIT_MS 1000LL

/* The test process, which is the initiator in all tests, and its target. */
struct wait_rig {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
	segment_id_t seg;
	char name[128];			/* segment name of the initiator */
	uint64_t sequence;		/* number of the last byte pattern
					 * used */
	uint64_t random;		/* state of the random number
					 * generator */
};

struct wait_part {
	const char *name;
	void (*fn)(struct wait_rig *rig);
	bool kills; /* true if the part kills the target; wait_main() then
		     * starts a new target */
};

/* Runs all parts, or only the part that the command line names. Writes to the
 * target and verifies the bytes after each part. Returns the exit status. */
int wait_main(int argc, char **argv, const struct wait_part *parts, size_t n);

/* Returns a random number from 0 to `below` - 1. */
uint32_t wait_random(struct wait_rig *rig, uint32_t below);

/* Submits a job that moves len bytes between the local memory at offset `off`
 * and the target's memory at the same offset. Each task moves `block` bytes; if
 * `block` is 0, one task moves all. If the submission fails, n[7] of the job is
 * 1. */
struct fx_job wait_job(struct wait_rig *rig, int op, uint64_t off, uint64_t len,
		       uint64_t block);

/* Writes 1 MiB to the target, waits for the end and verifies the bytes. Returns
 * true on success. */
bool wait_works(struct wait_rig *rig);

/* Returns the time limit, in ms, for the end of tasks that are cancelled or
 * whose deadline has passed, if the target does not respond. */
unsigned int wait_end_ms(void);

/* A thread that calls te_wait_batch once. */
struct wait_thread {
	transfer_engine_t engine;
	batch_id_t id;
	int64_t timeout_us;
	/* The members below are valid after wait_thread_join(). */
	int ret;
	struct transfer_status status;
	uint64_t ended_ns;		/* time at which te_wait_batch
					 * returned */
	pthread_t thread;
};
void wait_thread_start(struct wait_thread *t);
void wait_thread_join(struct wait_thread *t);

/* The parts in ft_wait_basic.c: */
void wait_basics(struct wait_rig *rig);
void wait_timeouts(struct wait_rig *rig);
void wait_threads(struct wait_rig *rig);
void wait_freed(struct wait_rig *rig);
void wait_destroyed(struct wait_rig *rig);

/* The parts in ft_wait_blocking.c: */
void wait_blocking(struct wait_rig *rig);
void wait_blocking_stopped(struct wait_rig *rig);
void wait_blocking_destroyed(struct wait_rig *rig);

/* The parts in ft_wait_event.c: */
void wait_epoll(struct wait_rig *rig);
void wait_levels(struct wait_rig *rig);
void wait_batch_fd(struct wait_rig *rig);
void wait_element_sizes(struct wait_rig *rig);
void wait_event_storm(struct wait_rig *rig);

/* The parts in ft_wait_cancel.c: */
void wait_cancel(struct wait_rig *rig);
void wait_cancel_stopped(struct wait_rig *rig);
void wait_cancel_local(struct wait_rig *rig);
void wait_flush(struct wait_rig *rig);

/* The parts in ft_wait_deadline.c: */
void wait_deadline(struct wait_rig *rig);
void wait_deadline_running(struct wait_rig *rig);
void wait_deadline_destroyed(struct wait_rig *rig);
void wait_killed(struct wait_rig *rig);

/* The parts in ft_wait_reuse.c: */
void wait_cookies(struct wait_rig *rig);
void wait_reuse(struct wait_rig *rig);
void wait_any(struct wait_rig *rig);
void wait_relative(struct wait_rig *rig);

/* The parts in ft_wait_bad.c: */
void wait_bad_input(struct wait_rig *rig);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_WAIT_H */
