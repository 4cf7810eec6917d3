/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_WORK_H
#define TEI_API_ENGINE_WORK_H

/*
 * Jobs that may block, for the worker threads of the engine. Any thread may
 * queue a job. Functions that queue a job take no lock above row 7 of
 * docs/LOCKING.md. A job that is queued already is not queued again. If memory
 * is short, the job is dropped.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "util/list.h"
#include "util/lock.h"

struct engine;
struct engine_work;
struct tei_rail_peer;

/* After this number of failed attempts, a job that reads a descriptor may take
 * MC_HANDSHAKE_CONNECT_TIMEOUT. */
#define ENGINE_TRIES_MAX 16

/* For each of these values except ENGINE_WORK_ANY, at most one job is queued at
 * a time. */
enum engine_work_single {
	ENGINE_WORK_ANY, /* any number of jobs of the kind may be queued */
	ENGINE_WORK_PUBLISH,
	ENGINE_WORK_STORE,
	ENGINE_WORK_DEVICES,
	ENGINE_WORK_UNMAP,
};

#define ENGINE_WORK_SINGLES (ENGINE_WORK_UNMAP + 1)

/* A kind of job. The file that contains the function run defines one as a
 * constant. */
struct engine_work_kind {
	/* Does the job w, in a worker thread and without a lock. May block. w
	 * is valid until this function returns. */
	void (*run)(struct engine *e, const struct engine_work *w);
	enum engine_work_single single;
};

/* A job. Created when it is queued, freed when it is done or dropped. */
struct engine_work {
	struct tei_list link; /* element of engine_works.queued or
			       * engine_works.running */
	const struct engine_work_kind *kind;
	struct tei_rail_peer *peer; /* peer that the job concerns, with one
				     * reference; or NULL */
	char *name;		    /* name of the segment that the job
				     * concerns, owned by the job; or NULL */
	void *arg;		    /* argument of engine_work_arg, or NULL */
	uint32_t tries;		    /* number of failed attempts before this
				     * one */
	uint64_t due_ns;	    /* earliest time of the start; 0: at once */
};

/* Creates the queue of jobs. Returns false if memory is short. */
bool engine_work_init(struct engine *e);
void engine_work_fini(struct engine *e);
/* Drops the queued jobs and waits for the running ones. Jobs that are queued
 * later are dropped. */
void engine_work_stop(struct engine *e);

/* Queues a job of a kind whose member `single` is not ENGINE_WORK_ANY. The job
 * becomes due at due_ns. If a job of this kind is already queued, that job
 * becomes due at the earlier of the two times. */
void engine_work_at(struct engine *e, const struct engine_work_kind *kind,
		    uint64_t due_ns);
/* Queues a job for a segment name. At most one job per name runs at a time.
 * "tries" is the number of failed attempts. If the same job is already queued,
 * it keeps the lower of the two values of "tries". */
void engine_work_named(struct engine *e, const struct engine_work_kind *kind,
		       const char *name, uint32_t tries);
/* Queues a job that concerns a peer. Takes ownership of the reference to the
 * peer. */
void engine_work_peer(struct engine *e, const struct engine_work_kind *kind,
		      struct tei_rail_peer *peer);
/* Queues a job with an argument. Returns false if the job was not queued,
 * because memory is short or the engine is being destroyed. */
bool engine_work_arg(struct engine *e, const struct engine_work_kind *kind,
		     void *arg);

#endif /* TEI_API_ENGINE_WORK_H */
