/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_ENGINE_INT_H
#define TEI_FABTESTS_SIM_SIM_ENGINE_INT_H

/* Declarations that the files of the workload of engines share. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_check.h"
#include "fabtests/sim/sim_cluster.h"
#include "fabtests/sim/sim_workload.h"
#include "moonrail.h"
#include "transfer_engine_c.h"

/* Each target has slots for this number of lives of an initiator. A life is one
 * of the successive processes of the initiator's host. Life n uses the slots with
 * number n % ENGINE_LIVES, so late bytes of the lives before it land in other
 * slots. */
#define ENGINE_LIVES	4
/* size of the largest batch, bytes */
#define ENGINE_MAX	(64u << 10)
/* Distance between two slots, bytes: the largest batch, the guards and padding.
 * It is a multiple of 64. */
#define ENGINE_STRIDE	(ENGINE_MAX + 2 * 64)
/* maximum number of tasks of a batch */
#define ENGINE_TASKS	4

enum engine_kind {
	ENGINE_BATCH,
	ENGINE_ATOMIC,
	ENGINE_NOTE,
};

/* A slot: a range of a target's memory that only one worker of one process of an
 * initiator uses. */
struct engine_slot {
	char *at;
	struct sim_tomb tomb;		/* tombstone of the last batch; checked
					 * while no batch uses the slot */
	/* if a task in this slot ended as TIMEOUT: incarnation of its target,
	 * for which the slot is not used again; otherwise 0 */
	uint64_t unfenced;
};

/* A counter in a target's memory that only one worker of one process of an
 * initiator changes, by atomics. */
struct engine_counter {
	uint64_t *value;
	uint64_t done, unknown;		/* `done`: number of additions that were
					 * certainly executed; `unknown`: number
					 * of additions that may have been
					 * executed */
};

/* A task of a batch. Its range has the same offset in the worker's local memory
 * and in the range of the batch in the slot. */
struct engine_part {
	size_t off, len;
	bool read;
	bool ended;			/* a terminal status was seen, and both
					 * ranges have the pattern `buried` */
	/*
	 * The target has unregistered the range before the task has ended. The
	 * checker has then filled the range with the pattern `buried`. As long
	 * as this member is set, the range is not registered again, so a byte
	 * that differs from the pattern has landed too late.
	 */
	bool revoked;
	bool in_place;			/* all bytes of the write had landed
					 * when the target range was
					 * unregistered */
	uint64_t seed;			/* seed of the pattern that the task
					 * moves */
	uint64_t buried;		/* seed of the pattern that the checker
					 * writes when the task has ended */
	int status;			/* terminal status, STATUS_… */
};

/* A worker of a process, and the operation that it is doing or has done
 * last. */
struct engine_worker {
	struct sim_proc *proc;
	uint32_t index;
	struct sim_rng rng;
	char *local;			/* local memory, ENGINE_STRIDE bytes */
	/* tombstone of `local`; it outlives the process, because the worker
	 * with the same index in the host's next process uses the same memory */
	struct sim_tomb *tomb;
	uint64_t *old;			/* local memory for the result of an
					 * atomic, which is the old value of the
					 * counter */
	uint64_t notes;			/* number of notifications sent */
	/* the present operation */
	enum engine_kind kind;
	uint64_t id;
	uint32_t to;			/* number of the target host */
	uint32_t chunk;
	uint64_t incarnation;		/* incarnation of the target */
	segment_id_t segment;
	batch_id_t batch;
	struct engine_slot *slot;
	struct engine_counter *counter;
	size_t off, len;		/* range of the batch in the slot */
	struct engine_part parts[ENGINE_TASKS];
	uint32_t nparts;
	uint64_t start_ns;
	uint64_t compare;		/* value with which a compare-and-swap
					 * compares */
	bool swap;			/* the atomic is a compare-and-swap */
	bool posted;			/* the tasks were submitted, and one of
					 * them has not ended */
	bool early;			/* the worker has cancelled tasks or set
					 * a deadline */
};

/* An engine and its workers. Allocated when the process starts, and kept until
 * the end of the simulation. */
struct engine_proc {
	transfer_engine_t engine;
	uint32_t working;		/* number of workers that have not
					 * ended */
	struct engine_worker workers[];
};

/* --- sim_engine.c --- */

/* Returns a description of the worker's operation for error texts, valid until
 * the next call. */
const char *engine_worker_name(const struct engine_worker *w);
/* Returns the index of the worker's slot at each target. */
size_t engine_lane(const struct engine_worker *w);
/* Returns the number of slots that each target has in a chunk. */
size_t engine_lanes(const struct sim_conf *conf);
transfer_engine_t engine_of(const struct engine_worker *w);
/* Returns true if the worker's operation may fail without a defect. */
bool engine_excused(const struct engine_worker *w);
struct sim_load_stats *engine_stats(void);

/* --- sim_engine_batch.c: batches of writes and reads --- */

/* Allocates the slots. Called after sim_cluster_begin. */
void engine_batch_begin(const struct sim_conf *conf);
void engine_batch_end(void);
/* Verifies all tombstones. Called when no batch is in progress. */
void engine_batch_verify(void);
/* Sets the local memory of a new worker. */
void engine_batch_worker(struct engine_worker *w);
/* Returns the local memory of a host, and its size. */
char *engine_batch_local(uint32_t host, size_t *size);
/* Does a batch. */
void engine_batch_run(struct engine_worker *w);
/* Called for a batch that is in progress when its process ends. */
void engine_batch_gone(struct engine_worker *w);
/* Called when the target range of the batch was unregistered, and before it is
 * registered again. */
void engine_batch_revoke(struct engine_worker *w);
void engine_batch_restore(struct engine_worker *w);

/* --- sim_engine_message.c: atomics and notifications --- */

void engine_message_begin(const struct sim_conf *conf);
void engine_message_end(void);
/* Verifies all counters. */
void engine_message_verify(void);
/* Returns the counters of a host, and their size. */
void *engine_message_counts(uint32_t host, size_t *size);
/* Does an atomic. */
void engine_message_atomic(struct engine_worker *w);
/* Called for an atomic that is in progress when its process ends. */
void engine_message_gone(struct engine_worker *w);
/* Sends a notification. */
void engine_message_note(struct engine_worker *w);
/* Fetches and checks the notifications that have arrived at the process. */
void engine_message_fetch(struct sim_proc *proc);

#endif /* TEI_FABTESTS_SIM_SIM_ENGINE_INT_H */
