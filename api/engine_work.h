/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_WORK_H
#define TEI_API_ENGINE_WORK_H

/*
 * Jobs that block, for worker threads of the engine. Any thread may queue a
 * job; no lock above row 7 of docs/LOCKING.md is taken. If the same job is
 * queued already, nothing is added. If memory is short, the job is dropped.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/list.h"
#include "util/lock.h"

struct engine;
struct engine_work;
struct tei_rail_peer;

/* After this number of tries, a job may take the full timeout. */
#define ENGINE_TRIES_MAX 16

/* Kinds of which at most one job is queued. */
enum engine_work_single {
	ENGINE_WORK_ANY, /* any number of jobs */
	ENGINE_WORK_PUBLISH,
	ENGINE_WORK_STORE,
	ENGINE_WORK_DEVICES,
};

#define ENGINE_WORK_SINGLES (ENGINE_WORK_DEVICES + 1)

/* A kind of job; a constant of the file that does it. */
struct engine_work_kind {
	/* Does the job, on a worker and without a lock. May block. w is valid
	 * during the call. */
	void (*run)(struct engine *e, const struct engine_work *w);
	enum engine_work_single single;
};

/* A job. Belongs to the workers. */
struct engine_work {
	struct tei_list link; /* in queued or running */
	const struct engine_work_kind *kind;
	struct tei_rail_peer *peer; /* one reference, or NULL */
	char *name;		    /* of the segment; owned, or NULL */
	void *arg;		    /* or NULL */
	uint32_t tries;		    /* failed tries before this one */
	uint64_t due_ns;	    /* earliest start; 0: at once */
};

/* Returns false if memory is short. */
bool engine_work_init(struct engine *e);
void engine_work_fini(struct engine *e);
/* Drops the queued jobs and waits for the running ones. No job is queued
 * afterwards. */
void engine_work_stop(struct engine *e);

/* Queues a job of a kind that is queued once, for due_ns. A queued one is then
 * due at the earlier of the two times. */
void engine_work_at(struct engine *e, const struct engine_work_kind *kind,
		    uint64_t due_ns);
/* Queues a job for a segment name. At most one job per name runs at a time.
 * tries: number of failed tries; of two equal jobs the lower number counts. */
void engine_work_named(struct engine *e, const struct engine_work_kind *kind,
		       const char *name, uint32_t tries);
/* Queues a job for a peer. Takes over the reference to it. */
void engine_work_peer(struct engine *e, const struct engine_work_kind *kind,
		      struct tei_rail_peer *peer);
/* Queues a job with an argument. Returns false if that is not possible now. */
bool engine_work_arg(struct engine *e, const struct engine_work_kind *kind,
		     void *arg);

#endif /* TEI_API_ENGINE_WORK_H */
