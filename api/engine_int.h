/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_INT_H
#define TEI_API_ENGINE_INT_H

/*
 * The engine: what ties metadata, rails and local copies together behind the
 * Mooncake API.
 *
 * Locks, outermost first: control, segments, then a batch slot's, then those
 * of the modules below, then the leaf locks (batches, notes, work). No lock
 * but segments (shared) is held while tasks are submitted.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "moonrail.h"
#include "transfer_engine_c.h"

#include "meta/tei_meta.h"
#include "prov/local/tei_local.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

struct tei_topo;

#define ENGINE_TRANSPORTS	4
#define ENGINE_WORKERS		4	/* threads for look-ups, at most */
#define ENGINE_BATCH_CHUNK	256	/* slots allocated at a time */
#define ENGINE_BATCH_CHUNKS	4096
#define ENGINE_BATCH_MAX	(1u << 20) /* tasks of one batch */
#define ENGINE_KEEP_TASKS	1024	/* a slot keeps an array this long */

/* An installed transport; its address is the handle. */
struct engine_transport {
	struct engine *engine;
	char name[16];
	bool installed;			/* engine->control */
};

/*
 * A process of this host that copies reach. Shared by its segment and the
 * tasks under way; closed when both have let go, by a later call, since a
 * task's end may not close it.
 */
struct engine_neighbour {
	struct tei_local_peer *peer;
	uint32_t refs;			/* atomic */
	struct engine_neighbour *next;	/* engine->neighbours */
};

/*
 * An open remote segment. In engine->segs, guarded by engine->segments: held
 * shared by submitters, exclusively to change. Freed with its last close.
 */
struct engine_segment {
	segment_id_t id;
	struct tei_meta_desc *desc;	/* one reference */
	struct tei_rail_peer *peer;	/* one reference, or NULL */
	struct engine_neighbour *local;	/* or NULL: not by kernel copies */
	char why_not_local[64];
	struct engine_segment *next;	/* same bucket */
};

#define ENGINE_SEG_BUCKETS	1024

/* One notification to be sent when a whole submission is in place. */
struct engine_submission {
	uint32_t left;			/* atomic: tasks not ended */
	bool failed;			/* atomic */
	struct tei_rail_peer *peer;	/* one reference; NULL: ourselves */
	char *name, *msg;
};

/*
 * A task of a batch. Owned by its batch; between submit and done by the
 * transport that carries it.
 */
struct engine_task {
	struct engine *engine;
	struct engine_submission *sub;	/* or NULL */
	struct engine_neighbour *local;	/* one reference, or NULL */
	struct tei_err *err;		/* owned, set before status */
	uint64_t length;
	int status;			/* atomic: STATUS_… */
	bool by_rail;
	union {
		struct tei_rail_task rail;
		struct tei_local_op op;
	} u;
};

/*
 * A batch slot. Never freed while the engine lives, so that a stale id finds
 * a slot, another generation, and is refused.
 */
struct engine_batch {
	struct tei_mutex lock;		/* guards what follows */
	uint32_t gen;			/* odd while allocated */
	uint32_t size, count;		/* tasks allowed, submitted */
	struct engine_task *tasks;
	uint32_t cap;			/* elements of tasks */
	uint32_t index;			/* fixed */
	struct engine_batch *next_free;	/* engine->batches */
};

/* A registered range; engine->regions, sorted by nothing, under control. */
struct engine_region {
	void *addr;
	size_t length;
	bool remote;
	char location[64];
};

enum engine_work_kind {
	ENGINE_WORK_PUBLISH,		/* our rails have changed */
	ENGINE_WORK_RESOLVE,		/* a peer does not answer */
	ENGINE_WORK_REFRESH,		/* a segment's descriptor has changed */
};

struct engine_work {
	struct tei_list link;
	enum engine_work_kind kind;
	struct tei_rail_peer *peer;	/* one reference, or NULL */
	char *name;			/* of the segment, or NULL */
};

struct engine_note {
	struct tei_list link;
	char *name, *msg;
};

/*
 * Created by createTransferEngine, freed by destroyTransferEngine.
 */
struct engine {
	/* fixed after creation */
	struct tei_settings settings;
	char name[TEI_META_NAME_MAX];	/* of our segment */
	uint64_t incarnation;
	uint32_t fork_gen;
	struct tei_meta_store *store;
	struct tei_meta_server *server;
	struct tei_meta_cache *cache;
	struct tei_rail_dp *dp;
	struct tei_local *local;

	struct tei_mutex control;	/* set-up calls; guards what follows */
	struct engine_transport transports[ENGINE_TRANSPORTS];
	struct tei_topo *topo;		/* given to the data plane */
	char *matrix;			/* JSON that installTransport gave */
	struct engine_region *regions;
	uint32_t nregions, regions_cap;
	bool published;
	bool graceful;			/* set once: destroyed on a signal */

	bool local_on;			/* atomic: kernel copies allowed */

	pthread_rwlock_t segments;
	struct engine_segment *segs[ENGINE_SEG_BUCKETS];

	struct tei_mutex neighbours_lock; /* held while closing one */
	struct engine_neighbour *neighbours; /* all; those without a
					      * reference are closed */

	struct tei_mutex batches;	/* leaf */
	struct engine_batch *chunks[ENGINE_BATCH_CHUNKS]; /* set once: atomic */
	uint32_t nchunks;
	struct engine_batch *free_batch;

	struct tei_mutex notes_lock;	/* leaf */
	struct tei_list notes;
	uint32_t nnotes;

	struct tei_mutex work_lock;	/* leaf */
	pthread_cond_t work_cond;
	struct tei_list work;
	uint32_t nworkers, idle_workers;
	bool work_stop;
	bool publish_queued;
	pthread_t workers[ENGINE_WORKERS];
};

/* --- engine.c ------------------------------------------------------------ */
/* The engine behind a handle, or NULL with the thread's last error set: NULL,
 * stale, invented, or used in a child after fork. */
struct engine *engine_from(transfer_engine_t handle);
/* Makes what is registered visible under our name; control is held. */
int engine_publish(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control);
uint64_t engine_deadline(const struct engine *e);

/* --- engine_handle.c: which handles are alive ---------------------------- */
int engine_handle_add(struct engine *e);
/* False: it was not there. */
bool engine_handle_remove(struct engine *e);
bool engine_handle_known(const void *handle);
/* Raised in every child of a fork. */
uint32_t engine_fork_gen(void);
/* Calls fn for every live engine. */
void engine_handle_each(void (*fn)(struct engine *e));

/* --- engine_transport.c -------------------------------------------------- */
int engine_auto_discover(struct engine *e, struct tei_err *err);

/* --- engine_segment.c ---------------------------------------------------- */
/* segments is held. NULL: stale or invented. */
struct engine_segment *engine_segment_find(struct engine *e, segment_id_t id);
void engine_segment_free_all(struct engine *e);
/* Another descriptor for a peer that does not answer; a worker. */
void engine_segment_resolve(struct engine *e, struct tei_rail_peer *peer);
/* The store has another descriptor for an open segment; a worker. */
void engine_segment_refresh(struct engine *e, const char *name);
/* local copies were switched on or off */
void engine_segment_relocal(struct engine *e);
void engine_addr_pack(const struct tei_rail_addr *in,
		      struct tei_meta_address *out);
bool engine_addr_unpack(const struct tei_meta_address *in,
			struct tei_rail_addr *out);

/* --- engine_stats.c ------------------------------------------------------ */
/* in NULL: no error. */
void engine_error_out(const struct tei_err *in, uint32_t flags,
		      struct te_error *out, size_t size);

/* --- engine_batch.c ------------------------------------------------------ */
void engine_batch_free_all(struct engine *e);
void engine_task_done(struct tei_rail_task *task, enum tei_rail_end end,
		      const struct tei_err *err);

/* --- engine_notify.c ----------------------------------------------------- */
void engine_note_add(struct engine *e, const char *name, const char *msg);
void engine_note_arrived(void *arg, const char *peer, const char *name,
			 const char *msg);
void engine_note_free_all(struct engine *e);

/* --- engine_work.c ------------------------------------------------------- */
void engine_work_publish(struct engine *e);
void engine_work_resolve(struct engine *e, struct tei_rail_peer *peer);
void engine_work_refresh(struct engine *e, const char *name);
void engine_work_stop(struct engine *e);

#endif /* TEI_API_ENGINE_INT_H */
