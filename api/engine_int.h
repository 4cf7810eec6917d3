/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_INT_H
#define TEI_API_ENGINE_INT_H

/*
 * The engine: what ties metadata, rails and local copies together behind the
 * Mooncake API.
 *
 * docs/LOCKING.md states the lock order. A submission holds the lock of its
 * batch and segments (shared).
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "moonrail.h"
#include "transfer_engine_c.h"

#include "api/engine_lease.h"
#include "api/engine_stage.h"
#include "meta/tei_meta.h"
#include "prov/gpu/tei_gpu.h"
#include "prov/local/tei_local.h"
#include "prov/nvmeof/tei_nvmeof.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/heap.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

struct tei_topo;
struct tei_topo_where;

#define ENGINE_TRANSPORTS	5
#define ENGINE_WORKERS		4	/* threads for look-ups, at most */
#define ENGINE_WORKERS_AGAIN	2	/* of them with what failed before */
#define ENGINE_TRIES_MAX	16	/* from then on all of the time */
#define ENGINE_BATCH_CHUNK	256	/* slots allocated at a time */
#define ENGINE_BATCH_CHUNKS	4096
#define ENGINE_BATCH_MAX	(1u << 20) /* tasks of one batch */
#define ENGINE_KEEP_TASKS	1024	/* a slot keeps an array this long */

/* An installed transport; its address is the handle. */
struct engine_transport {
	struct engine *engine;
	char name[16];
	char proto[16];			/* as installTransport got it */
	bool installed;			/* engine->control */
};

/* What copies inside this host have done for one target; all atomic. */
struct engine_traffic {
	uint64_t tx_bytes, rx_bytes;
	uint64_t completed, failed, canceled;
	uint64_t last_ns;
};

/*
 * A process of this host that copies reach. Shared by its segment and the
 * tasks under way; closed when both have let go, by a later call, since a
 * task's end may not close it.
 */
struct engine_neighbour {
	struct tei_local_peer *peer;
	struct engine_traffic traffic;
	uint32_t refs;			/* atomic */
	uint64_t told_ns;		/* atomic: see engine_segment_ended() */
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
	struct tei_nvmeof_seg *files;	/* one reference, or NULL */
	int why_not_local;		/* enum engine_not_local */
	bool gpu;			/* desc has GPU memory, and it can be
					   reached */
	bool astray;			/* it could not be aimed anew: its
					   targets are those from before */
	uint64_t asked_ns;		/* atomic: see engine_segment_bare() */
	struct engine_segment *next;	/* same bucket */
};

#define ENGINE_SEG_BUCKETS	1024

/*
 * The notification of a submission, which is sent when all tasks of the submission
 * are COMPLETED. Created by submitTransferWithNotify, freed by the thread that ends
 * the last task.
 */
struct engine_submission {
	uint32_t left;			/* atomic: tasks not ended */
	bool failed;			/* atomic */
	struct tei_rail_peer *peer;	/* one reference; NULL: this engine */
	struct tei_rail_outgoing *out;	/* to the peer, or NULL */
	struct tei_rail_note *note;	/* to this engine, or NULL: room for it is
					 * reserved */
};

struct engine_group;
struct engine_leasing;
struct engine_staging;

/* What carries a task. */
enum engine_task_by {
	ENGINE_BY_COPY,			/* u.op */
	ENGINE_BY_RAIL,			/* u.rail */
	ENGINE_BY_GROUP,		/* u.group: copies of several pieces */
	ENGINE_BY_CALLER,		/* u.atom: done when submitted */
	ENGINE_BY_FILE,			/* u.file */
	ENGINE_BY_GPU,			/* u.gpu */
	ENGINE_BY_STAGE,		/* u.stage */
	ENGINE_BY_LEASE,		/* u.lease */
};

/*
 * A task of a batch. Owned by its batch; between submit and done by the
 * transport that carries it.
 */
struct engine_task {
	struct engine *engine;
	struct engine_batch *batch;
	struct engine_submission *sub;	/* or NULL */
	struct engine_neighbour *local;	/* one reference, or NULL */
	struct tei_err *err;		/* owned, set before status */
	uint64_t length;
	int status;			/* atomic: STATUS_… */
	segment_id_t target;
	enum engine_task_by by;
	bool read;			/* of a single piece */
	bool expired;			/* atomic: ended by a deadline */
	union {
		struct tei_rail_task rail;
		struct tei_local_op op;
		struct engine_group *group;
		struct tei_local_atom atom;
		struct tei_nvmeof_op file;
		struct tei_gpu_op gpu;
		struct engine_stage stage;
		struct engine_lease lease;
	} u;
};

/*
 * engine_batch.pending, one word so that a task's end and a waiter's coming
 * are in one order: bits 0 to 23 tasks not ended, then the threads asleep
 * until a task, and those asleep until all of them have ended, then whether an
 * event descriptor is concerned.
 */
#define ENGINE_PENDING_LEFT	UINT64_C(0xffffff)
#define ENGINE_PENDING_TASK	(UINT64_C(1) << 24)
#define ENGINE_PENDING_TASKS	(UINT64_C(0xfffff) * ENGINE_PENDING_TASK)
#define ENGINE_PENDING_WHOLE	(UINT64_C(1) << 44)
#define ENGINE_PENDING_WHOLES	(UINT64_C(0x7ffff) * ENGINE_PENDING_WHOLE)
#define ENGINE_PENDING_WATCHED	(UINT64_C(1) << 63)

/* A batch's event_… before a submission that may yet be refused. */
struct engine_event_was {
	bool armed, adopted;
	bool listed;			/* in events.ended */
	bool level;
	bool readable;			/* level, and the program had not
					   read it */
};

/*
 * A batch slot. Never freed while the engine lives, so that a stale id finds
 * a slot, another generation, and is refused; and so that whoever has ended a
 * task may still look at the slot although the batch is freed by then. Such a
 * straggler lowers pending late: it is never set anew, so the next batch of
 * the slot counts as ended that much later.
 */
struct engine_batch {
	/* fixed */
	struct engine *engine;
	uint32_t index;

	struct tei_mutex lock;		/* guards what follows */
	uint32_t gen;			/* odd while allocated */
	uint32_t size, count;		/* tasks allowed, submitted */
	struct engine_task *tasks;
	uint32_t cap;			/* elements of tasks */
	uint64_t deadline_ns;		/* CLOCK_MONOTONIC, 0: none */
	bool deadline_set;		/* by te_batch_deadline */

	/* atomic */
	uint64_t pending;		/* ENGINE_PENDING_… */
	uint32_t wakes;			/* futex; raised to wake waiters */

	/* engine->events.lock */
	int event_fd;			/* of this batch, or -1 */
	bool event_level;		/* event_fd is readable */
	bool event_armed;		/* its end is still to be told */
	bool event_adopted;		/* the engine's descriptor knows it */
	batch_id_t event_id;		/* the id to tell */
	struct engine_event_was event_was; /* from expect to unexpect */
	struct tei_list event_link;	/* events.ended, or alone */

	struct tei_heap_node timer;	/* engine->timers.lock */

	struct engine_batch *next_free;	/* engine->batches */
};

/*
 * The entries of a region in the descriptor: n pieces. word holds 1 + keys numbers
 * per piece: its length and one memory key for each rail of the descriptor.
 */
struct engine_pieces {
	uint32_t n;			/* pieces */
	uint32_t keys;			/* keys per piece, rails of the descriptor */
	uint64_t *word;			/* owned by the region */
};

/* A registered range, in engine->regions, which is not sorted. Guarded by control;
 * the array and the fields of the descriptor are changed with listing.lock, too. */
struct engine_region {
	void *addr;
	size_t length;
	bool remote;
	bool read_only;			/* the process cannot write it */
	bool gpu;			/* no CPU may touch it */
	int device;			/* gpu: whose */
	bool direct;			/* gpu: it is registered with rails */
	bool staged;			/* gpu: stage is for engine_stage_drop */
	uint32_t stage;
	bool lent;			/* gpu: lend is for engine_lend_… */
	uint64_t lend;
	char location[64];		/* of its start */
	char *parts;			/* "segments:…", or NULL: one place */
	bool listed;			/* part of the descriptor */
	struct engine_pieces pieces;	/* remote: its entries for listing.rails */
	uint64_t id;			/* number of the registration, unique */
	uint32_t same;			/* index of the next region in the hash
					 * bucket, plus 1; 0: none */
};

static inline const char *engine_region_location(const struct engine_region *r)
{
	return r->parts ? r->parts : r->location;
}

/* Memory of te_alloc: a mapping of its own, or a GPU's. engine->allocs. */
struct engine_alloc {
	struct engine_alloc *next;
	bool gpu;			/* addr and length only */
	void *base;			/* of the whole mapping */
	uint64_t span;
	void *addr;			/* of what the caller has */
	uint64_t length;		/* whole pages */
	uint64_t page;
	uint32_t kind;			/* enum te_page_kind */
	int node;			/* -1: several */
};

/* Rails of a descriptor, in its order. */
struct engine_desc_rails {
	size_t rail[TEI_RAIL_MAX];
	size_t n;
};

/*
 * The descriptor that this engine publishes. The control channel makes it when a
 * peer requests it. A call that changes the descriptor writes it to the store, or a
 * worker writes it a little later; engine_publish.c has the rules.
 */
struct engine_listing {
	struct tei_mutex lock;		/* guards all fields but store */
	struct tei_meta_desc *head;	/* descriptor without buffers; NULL before
					 * the first publication */
	struct engine_desc_rails rails;	/* rails of head; changed with control
					 * held, too */
	struct tei_meta_desc *desc;	/* whole descriptor at desc_version, or
					 * NULL */
	uint64_t desc_version;
	uint64_t version;		/* counts the changes */
	uint64_t changed_ns;		/* last registration or its removal, ns */
	uint64_t serial;		/* serial number of the last descriptor */
	/* state of the store */
	bool failed;			/* the last publication failed */
	bool listed;			/* the store may name buffers */
	uint64_t stored_ns;		/* time of the last publication, ns */
	uint32_t tries;			/* failed attempts of a worker in a row */
	uint32_t waiting;		/* calls of the application that wait for
					 * store or hold it */

	struct tei_mutex store;		/* held during a publication; taken before
					 * lock */
};

enum engine_work_kind {
	ENGINE_WORK_PUBLISH,		/* our rails have changed */
	ENGINE_WORK_STORE,		/* the store is not up to date */
	ENGINE_WORK_DEVICES,		/* interfaces have changed */
	ENGINE_WORK_RESOLVE,		/* a peer does not answer */
	ENGINE_WORK_REFRESH,		/* a segment's descriptor has changed */
	ENGINE_WORK_RELIST,		/* a process has not got what ours of it
					   says, or more than that */
	ENGINE_WORK_ENDED,		/* a process of this host was seen to */
	ENGINE_WORK_RENEW,		/* a slot that was lent is in doubt */
};

struct engine_work {
	struct tei_list link;
	enum engine_work_kind kind;
	struct tei_rail_peer *peer;	/* one reference, or NULL */
	char *name;			/* of the segment, or NULL */
	uint32_t tries;			/* before this one */
	struct lend_slot *slot;		/* or NULL */
	uint64_t due_ns;		/* not before; 0: at once */
};


/* Descriptors for poll: which batches have ended and were not told yet. */
struct engine_events {
	bool on;			/* atomic: fd was asked for */
	struct tei_mutex lock;		/* leaf; guards what follows */
	int fd;				/* the engine's, or -1 */
	bool level;			/* fd is readable */
	struct tei_list ended;		/* engine_batch.event_link */
};

/* Batches with a deadline, and the thread that ends their tasks. */
struct engine_timers {
	struct tei_mutex lock;		/* leaf; guards what follows */
	pthread_cond_t cond;
	struct tei_heap heap;		/* engine_batch.timer */
	bool started, stop;
	pthread_t thread;
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
	uint32_t max_spinning;		/* threads that wait without sleep */
	struct tei_meta_store *store;
	struct tei_meta_server *server;
	struct tei_meta_cache *cache;
	struct tei_rail_dp *dp;
	struct tei_local *local;

	struct tei_nvmeof *nvmeof;	/* atomic: set once, under control */
	struct tei_gpu *gpu;		/* the same; NULL: no GPU memory */
	struct engine_staging *staging;	/* the same */

	struct tei_mutex leasing_lock;	/* leaf; while leasing is made */
	struct engine_leasing *leasing;	/* atomic: set once */

	struct tei_mutex control;	/* set-up calls; guards what follows */
	struct engine_transport transports[ENGINE_TRANSPORTS];
	struct tei_topo *topo;		/* given to the data plane */
	char *matrix;			/* JSON that installTransport gave */
	uint32_t devices_tries;		/* refreshes since the devices changed */
	bool devices_again;		/* the last one left something to do */
	bool host_fixed;		/* fixed: the control channel does not
					 * follow the interfaces' addresses */
	struct engine_region *regions;
	struct engine_alloc *allocs;
	uint32_t nregions, regions_cap;
	uint32_t *region_buckets;	/* regions_cap of them, by address: an
					   index plus 1; 0: none */
	uint64_t region_id;		/* of the last registration */
	struct engine_listing listing;
	bool graceful;			/* set once: leaves on a signal */
	struct engine *left_next;	/* engine_shutdown.c */

	bool local_on;			/* atomic: kernel copies allowed */
	bool files_on;			/* atomic: file segments allowed */
	struct engine_traffic own;	/* of copies inside this process */

	pthread_rwlock_t segments;
	struct engine_segment *segs[ENGINE_SEG_BUCKETS];
	uint64_t absent_ns[ENGINE_SEG_BUCKETS];	/* atomic: from when on
					   engine_segment_absent() may ask */

	struct tei_mutex neighbours_lock; /* held while closing one */
	struct engine_neighbour *neighbours; /* all; those without a
					      * reference are closed */

	struct tei_mutex batches;	/* leaf */
	struct engine_batch *chunks[ENGINE_BATCH_CHUNKS]; /* set once: atomic */
	uint32_t nchunks;
	struct engine_batch *free_batch;

	struct tei_log_limit bad_limit;

	/* atomic */
	uint32_t nwaiting;		/* engine_wait_enter, not left yet */
	uint32_t nspinning;		/* those that have not gone to sleep */
	bool closing;			/* waits end */

	struct engine_events events;
	struct engine_timers timers;

	struct tei_mutex notes_lock;	/* leaf */
	struct tei_list notes;
	uint32_t nnotes;		/* read without lock: atomic */
	struct tei_log_limit notes_limit;

	struct tei_mutex work_lock;	/* leaf */
	pthread_cond_t work_cond;
	struct tei_list work, working;	/* that wait; under way */
	uint32_t nworkers, idle_workers;
	bool work_stop;
	bool publish_queued;
	struct engine_work *store_queued; /* on work, or NULL */
	pthread_t workers[ENGINE_WORKERS];
};

/* --- engine.c ------------------------------------------------------------ */
/* The engine behind a handle, or NULL with the thread's last error set: NULL,
 * stale, invented, or used in a child after fork. */
struct engine *engine_from(transfer_engine_t handle);
/*
 * An argument of a call is wrong: the thread's last error tells it, the log a
 * few of them. what NULL: one is NULL, empty or out of range. e NULL: nothing
 * is told, engine_from has. Returns -1.
 */
int engine_bad(struct engine *e, const char *call, const char *what);
/* Makes the descriptor without buffers; *rails gets its rails. */
int engine_desc_head(struct engine *e, struct engine_desc_rails *rails,
		     struct tei_meta_desc **out, struct tei_err *err)
	TEI_REQUIRES(e->control);
/* Makes the region's entries for a descriptor with those rails. The caller frees
 * out->word. */
int engine_desc_collect(struct engine *e,
			const struct engine_desc_rails *rails,
			const struct engine_region *r,
			struct engine_pieces *out, struct tei_err *err)
	TEI_REQUIRES(e->control);
/* Adds the entries of all listed regions to the descriptor. listing.lock is held. */
int engine_desc_buffers(struct engine *e, struct tei_meta_desc *desc,
			struct tei_err *err);
uint64_t engine_deadline(const struct engine *e);
/* Drains, withdraws what is published, tells the peers and stops the threads;
 * frees nothing. For a process that is about to end, by who has taken its handle
 * away. */
void engine_leave(struct engine *e);

/* --- engine_publish.c: publication of the descriptor ---------------------- */
void engine_publish_init(struct engine *e);
void engine_publish_fini(struct engine *e);
/* Returns true after the first publication. */
bool engine_published(struct engine *e);
/*
 * Reads the description of all rails and regions again. The caller must call
 * engine_publish afterwards, without the control lock.
 */
int engine_relist(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control);
/*
 * Writes the descriptor to the store and waits for the result. told: the
 * application gets the result; the store then also claims the name again if it was
 * lost to another process. Blocks. No lock may be held.
 */
int engine_publish(struct engine *e, bool told, struct tei_err *err);
/*
 * Publishes a registration or the removal of one. If the store refers peers to the
 * control channel for the buffers and the last publication succeeded, leaves the
 * publication to a worker and returns 0 at once. Otherwise as engine_publish.
 */
int engine_publish_regions(struct engine *e, struct tei_err *err);
/* Does the publication that engine_publish_regions has left to a worker. */
void engine_publish_later(struct engine *e);
/* Returns the present descriptor of this engine with a reference for the caller.
 * NULL before the first publication, or without memory. */
struct tei_meta_desc *engine_describe(struct engine *e);

/* --- engine_handle.c: which handles are alive ---------------------------- */
int engine_handle_add(struct engine *e);
/* False: it was not there. */
bool engine_handle_remove(struct engine *e);
bool engine_handle_known(const void *handle);
/* Raised in every child of a fork. */
uint32_t engine_fork_gen(void);

/* --- engine_shutdown.c --------------------------------------------------- */
/* Around the destruction of an engine: takes its handle away, and a shutdown
 * waits for its end; false: somebody else ends it, and it may be gone. graceful
 * is the engine's flag, for leave. */
bool engine_shutdown_enter(struct engine *e, bool *graceful);
void engine_shutdown_leave(bool graceful);

/* --- engine_transport.c -------------------------------------------------- */
int engine_auto_discover(struct engine *e, struct tei_err *err);
/* Opens rails for devices that have appeared, if any. A worker. */
void engine_transport_devices(struct engine *e);
/* ops->devices_changed. */
void engine_devices_changed(void *arg);

/* --- engine_segment.c ---------------------------------------------------- */
/* segments is held. NULL: stale or invented. */
struct engine_segment *engine_segment_find(struct engine *e, segment_id_t id);
void engine_segment_free_all(struct engine *e);
/* Ids of open segments, from bucket *from on, which moves on: all are seen
 * once it is ENGINE_SEG_BUCKETS. Their number. */
#define ENGINE_IDS 256
int engine_segment_ids(struct engine *e, int *from,
		       segment_id_t ids[ENGINE_IDS]);
/* Whether it is memory of a GPU. */
bool engine_segment_on_gpu(const struct tei_meta_buffer *b);
/* Gives an id that the cache has just granted its targets; on an error the
 * reference is given back. */
int engine_segment_grant(struct engine *e, segment_id_t id,
			 struct tei_err *err);
/* Another descriptor for a peer that does not answer; a worker. */
void engine_segment_resolve(struct engine *e, struct tei_rail_peer *peer);
/* The store has another descriptor for an open segment; a worker. */
void engine_segment_refresh(struct engine *e, const char *name,
			    uint32_t tries);

/*
 * A request found no way to s, whose descriptor was read before its process
 * had rails. Without a store nobody tells when it has: a worker reads it
 * again, every ENGINE_BARE_NS at most. segments is held.
 */
void engine_segment_bare(struct engine *e, struct engine_segment *s);
#define ENGINE_BARE_NS		(50 * TEI_NS_PER_MS)

/*
 * A task has failed because its target has not got err->absent: whether the
 * descriptor that we have of it says otherwise becomes err->stale, and a worker
 * asks for a newer one, every ENGINE_BARE_NS at most; not where it is memory of
 * a GPU that was lent.
 */
void engine_segment_absent(struct engine *e, segment_id_t id,
			   struct tei_err *err);
/* Takes a newer descriptor of the same process, where it can be had; a
 * worker. */
void engine_segment_relist(struct engine *e, const char *name);

/*
 * Whether the process of the neighbour, which id's segment leads to, has ended.
 * Then a worker tells the rails, every ENGINE_BARE_NS at most, as long as they
 * do not know. The caller keeps n from being closed.
 */
bool engine_segment_ended(struct engine *e, segment_id_t id,
			  struct engine_neighbour *n);
/* The same of an open segment with that name, if it is of that process. */
bool engine_segment_ended_as(struct engine *e, const char *name,
			     uint64_t incarnation);
/* Tells them; a worker. */
void engine_segment_tell_end(struct engine *e, const char *name);
/* local copies were switched on or off */
void engine_segment_relocal(struct engine *e);
/* Behind that, when they were switched off: waits until none of those to other
 * processes is under way, true, or until then. */
bool engine_segment_part(struct engine *e, uint64_t until_ns);

/* --- engine_local.c: identities for copies inside a host ----------------- */

/* id's text for the descriptor, with a keyed hash where there is a secret. */
int engine_local_format(struct engine *e, const struct tei_local_id *id,
			char *out, size_t len);
/*
 * Why a peer is not reached by local copies: one of these, or a value of enum
 * tei_local_reason. 0: it is, or was not tried.
 */
enum engine_not_local {
	ENGINE_NOT_LOCAL_SECRET_THERE = 100,	/* only its process has one */
	ENGINE_NOT_LOCAL_SECRET_HERE,		/* only this process has one */
	ENGINE_NOT_LOCAL_SECRET_OTHER,		/* the secrets differ */
	ENGINE_NOT_LOCAL_UNREADABLE,		/* malformed identity */
};
/* Returns the reason in words, "" for 0. */
const char *engine_local_why(int not_local);
/* Parses the identity in a descriptor. Returns 0, or enum engine_not_local. */
int engine_local_parse(struct engine *e, const char *text,
		       struct tei_local_id *out);
void engine_addr_pack(const struct tei_rail_addr *in,
		      struct tei_meta_address *out);
bool engine_addr_unpack(const struct tei_meta_address *in,
			struct tei_rail_addr *out);

/* --- engine_abi.c -------------------------------------------------------- */
/* An output struct of ours, len bytes, as far as the caller's of size bytes
 * goes; what that has beyond ours becomes 0. */
void engine_out(void *out, size_t size, const void *ours, size_t len);

/* --- engine_paths.c ------------------------------------------------------ */
/* A copy has ended with a status, after so many bytes; before its task is the
 * caller's again. */
void engine_traffic_count(struct engine_traffic *t, bool read, uint64_t bytes,
			  int status);

/* --- engine_files.c ------------------------------------------------------ */
/* Brings the transport of file segments, or takes it away; control is held. */
int engine_files_on(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control);
int engine_files_off(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control);
/* The files of a descriptor, as this server finds them; NULL: no file segment,
 * no transport, or no memory. Blocks. */
struct tei_nvmeof_seg *engine_files_open(struct engine *e,
					 const struct tei_meta_desc *desc);
/* As the calls of tei_nvmeof.h; 0 without the transport. */
int engine_files_mem_add(struct engine *e, void *addr, uint64_t len,
			 const char *location);
int engine_files_mem_remove(struct engine *e, void *addr, uint64_t deadline_ns);
/* The same for GPU memory, where cuFile takes it. */
struct engine_region;
struct engine_target;
void engine_files_gpu_add(struct engine *e, const struct engine_region *r)
	TEI_REQUIRES(e->control);
/* Whether a request from or to GPU memory goes by cuFile, as all other requests
 * to files by that. */
bool engine_files_take(struct engine *e, const struct transfer_request *r,
		       const struct engine_target *target);
/* One request as submitTransfer takes it. 0 or the transfer family's code. */
int engine_files_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 struct tei_nvmeof_seg *files);
void engine_files_start(struct engine *e, struct engine_task *t);

/* --- engine_gpu.c -------------------------------------------------------- */
/*
 * *device: the GPU whose memory it is, or -1. What was said of it must be true,
 * else TEI_ERR_INVALID; TEI_ERR_NO_DEVICE: it was said to be a GPU's, and
 * there is no driver in this process.
 */
int engine_gpu_where(struct engine *e, void *addr, size_t len,
		     const struct tei_topo_where *said, int *device,
		     struct tei_err *err) TEI_REQUIRES(e->control);
/* Host memory for what goes to or from GPU memory, on the node of a NIC near
 * it, and its location for the rails, of TEI_TOPO_NAME bytes. For munmap; NULL:
 * there is none. */
void *engine_gpu_bounce(struct engine *e, const void *gpu, size_t size,
			char *location);
/* Zeroed memory of a GPU, not registered; freed by _free, or with the engine.
 * As tei_gpu_alloc. */
int engine_gpu_alloc(struct engine *e, int device, size_t len, void **addr,
		     struct tei_err *err);
void engine_gpu_free(struct engine *e, void *addr);
/* As the calls of tei_gpu.h; 0 where no GPU memory was ever registered. */
int engine_gpu_mem_add(struct engine *e, void *addr, uint64_t len,
		       struct tei_err *err);
int engine_gpu_mem_remove(struct engine *e, void *addr, uint64_t deadline_ns);
/* Registers GPU memory with the rails, where all of them take it; an error is
 * filled in and not logged. */
int engine_gpu_direct_add(struct engine *e, const struct engine_region *r,
			  bool remote, struct tei_err *err);
/* Whether one end of the request is GPU memory of this process. */
bool engine_gpu_concerns(struct engine *e, const struct transfer_request *r);
/* Such a one, as submitTransfer takes it: 0 or the transfer family's code. */
int engine_gpu_prepare(struct engine *e, struct engine_task *t,
		       const struct transfer_request *r,
		       const struct engine_target *target);
void engine_gpu_start(struct engine *e, struct engine_task *t);

/* --- engine_paths.c ------------------------------------------------------ */
/* False: stale or invented. paths, if not NULL: TEI_RAIL_MAX of them, whose rank
 * and whether they are connected is not looked at. */
bool engine_peer_stats(struct engine *e, segment_id_t id,
		       struct te_peer_stats *s, struct te_path *paths,
		       size_t *npaths);

/* --- engine_report.c ----------------------------------------------------- */
/* A tei_meta_report_fn; arg is the engine. */
char *engine_report(void *arg);
/* What showLinks says, as JSON or as text; NULL without memory. */
char *engine_links(struct engine *e, bool json);

/* --- engine_stats.c ------------------------------------------------------ */
/* A word for enum te_rail_state. */
const char *engine_rail_state(uint32_t state);
/* in NULL: no error. */
void engine_error_out(const struct tei_err *in, uint32_t flags,
		      struct te_error *out, size_t size);

/* --- engine_alloc.c ------------------------------------------------------ */
/* Unmaps what was not freed; nothing of it is registered any more. */
void engine_alloc_free_all(struct engine *e);

/* --- engine_memory.c ----------------------------------------------------- */
void engine_memory_free_all(struct engine *e);

/* --- engine_batch.c ------------------------------------------------------ */
/* The slot of an id, locked, if the id is alive; else NULL with the thread's
 * last error set. */
struct engine_batch *engine_batch_lock(struct engine *e, batch_id_t id);
void engine_batch_unlock(struct engine_batch *b);
/* Calls fn for every slot, none locked. */
void engine_batch_each(struct engine *e,
		       void (*fn)(struct engine_batch *b, void *arg),
		       void *arg);
/* Where one request goes. */
struct engine_target {
	bool valid;			/* the rest is that of id */
	segment_id_t id;
	bool local;			/* kernel copy or memcpy */
	struct engine_neighbour *neighbour; /* NULL: ourselves */
	bool asked, ended;		/* whether the neighbour's process has */
	struct tei_rail_peer *peer;
	struct tei_nvmeof_seg *files;
	const struct tei_meta_desc *gpu; /* NULL: no GPU memory there */
};

/* *t gets where id goes, kept where it is id already; segments is held. 0, or
 * the transfer family's code. */
int engine_batch_target(struct engine *e, segment_id_t id,
			struct engine_target *t);
/* Whether the target's memory at addr is a GPU's. */
bool engine_batch_gpu(const struct engine_target *target, uint64_t addr);
/* Whether some of the target's is a GPU's that no rail there has keys of: its
 * owner lends for it. */
bool engine_batch_lent(const struct engine_target *target, uint64_t addr,
		       uint64_t len);
/* A task that goes by rail, whatever else leads there. */
void engine_batch_by_rail(struct engine *e, struct engine_task *t,
			  const struct transfer_request *r,
			  const struct engine_target *target);
/* What tasks of one piece have in common; the rest is 0. */
void engine_batch_task(struct engine *e, struct engine_task *t,
		       const struct transfer_request *r,
		       enum engine_task_by by);
/* One request as submitTransfer takes it. 0 or the transfer family's code. */
int engine_batch_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 struct engine_target *target);
/* Why none of them starts, where that is TE_TIMED_OUT. */
#define ENGINE_DEADLINE_PASSED	"the batch's deadline has passed"
/* Starts the n tasks that were prepared behind b->count; the locks are held. */
int engine_batch_start(struct engine *e, struct engine_batch *b, size_t n);
/* Publishes the status last: from then on the task is the caller's. */
void engine_task_end(struct engine_task *t, int status,
		     const struct tei_err *err);
/* A copy inside this host has ended: 0, TEI_LOCAL_CANCELLED or a code; bytes: so
 * many were copied; why, or NULL: nothing more is known of it. */
void engine_task_local_end(struct engine_task *t, int code, uint64_t bytes,
			   const struct tei_err *why);
void engine_batch_free_all(struct engine *e);
void engine_task_done(struct tei_rail_task *task, enum tei_rail_end end,
		      const struct tei_err *err);
/* The status that says the same. */
int engine_rail_status(enum tei_rail_end end);

static inline batch_id_t engine_batch_id(const struct engine_batch *b)
{
	return (batch_id_t)b->gen << 32 | b->index;
}

static inline bool engine_task_ended(const struct engine_task *t)
{
	return __atomic_load_n(&t->status, __ATOMIC_ACQUIRE) != STATUS_WAITING;
}

/* --- engine_status.c ----------------------------------------------------- */
void engine_task_status(const struct engine_task *t,
			struct transfer_status *status);
/* The worst status and the sum of bytes; its lock is held, count is not 0. */
void engine_batch_sum(const struct engine_batch *b,
		      struct transfer_status *status);

/* --- engine_wait.c ------------------------------------------------------- */
#define ENGINE_WAIT_ALL		SIZE_MAX	/* the task: all of them */
void engine_wait_init(struct engine *e);
/* Until the task has ended, or all of the batch, or the time has come. 0 or
 * a code as te_wait_task returns; *status where not NULL and not 1. */
int engine_wait(struct engine *e, batch_id_t id, size_t task,
		uint64_t deadline_ns, struct transfer_status *status);
/* Around what looks at the engine between or beside such waits: the engine is
 * there until the thread has left. They nest. */
void engine_wait_enter(struct engine *e);
void engine_wait_leave(struct engine *e);
/* The time at which a timeout in microseconds is over; negative: never. */
uint64_t engine_wait_deadline(int64_t timeout_us);
/* n tasks of the batch are about to start; its lock is held. */
void engine_wait_expect(struct engine_batch *b, uint32_t n);
/* They have not been started after all; its lock is held. */
void engine_wait_unexpect(struct engine_batch *b, uint32_t n);
/* A task of the batch has ended; its status is published already, and the
 * batch may be freed: nothing but the slot is looked at. */
void engine_wait_ended(struct engine_batch *b, size_t task);
/* The batch was freed: its waiters leave. */
void engine_wait_freed(struct engine_batch *b);
/* Ends all waits and waits until their threads have left. */
void engine_wait_shut(struct engine *e);

/* --- engine_event.c ------------------------------------------------------ */
void engine_event_init(struct engine *e);
void engine_event_fini(struct engine *e);
/* As the calls of engine_wait.c, for a batch that is watched. */
void engine_event_expect(struct engine_batch *b, uint32_t n);
void engine_event_unexpect(struct engine_batch *b, uint32_t n);
/* pending's tasks have come down to none. Any thread, slot only. */
void engine_event_ended(struct engine_batch *b);
/* The batch is being freed; its lock is held. */
void engine_event_freed(struct engine_batch *b);
/* Notifications have arrived or were taken; cheap without a descriptor. */
void engine_event_notes(struct engine *e);

/* --- engine_deadline.c --------------------------------------------------- */
void engine_deadline_init(struct engine *e);
/* Sets the deadline of MC_TRANSFER_TIMEOUT, unless the batch has one of its
 * own; the batch's lock is held. */
void engine_deadline_submit(struct engine_batch *b);
/* Stops the thread; nothing is ended by a deadline any more. */
void engine_deadline_stop(struct engine *e);
void engine_deadline_fini(struct engine *e);
/* The batch is being freed; its lock is held. */
void engine_deadline_freed(struct engine_batch *b);

/* --- engine_cancel.c ----------------------------------------------------- */
/* Ends those of n tasks that have not ended, as CANCELED, or as FAILED with
 * the deadline as reason; the batch's lock is held. Waits for a local copy's
 * present piece only. */
void engine_cancel_tasks(struct engine_batch *b, size_t first, size_t n,
			 bool deadline);

/* --- engine_submit.c ----------------------------------------------------- */
/* Starts a task by ENGINE_BY_GROUP or ENGINE_BY_CALLER. */
void engine_submit_start(struct engine *e, struct engine_task *t);
/* Cancels the copies of a task by ENGINE_BY_GROUP; its batch's lock is held. */
void engine_group_cancel(struct engine *e, struct engine_task *t);

/* --- engine_notify.c ----------------------------------------------------- */
/*
 * Makes a notification of the engine to itself and reserves room for it. Returns
 * NULL if there is no room, if it is too long, or without memory: err is filled in
 * and is the thread's last error.
 */
struct tei_rail_note *engine_note_own(struct engine *e,
				      const struct notify_msg *msg,
				      struct tei_err *err);
/* Frees one that was not delivered, and its room. */
void engine_note_discard(struct engine *e, struct tei_rail_note *note);
/* Delivers a notification for which room is reserved; takes it over. */
void engine_note_arrived(void *arg, struct tei_rail_note *note);
void engine_note_free_all(struct engine *e);

/* --- engine_work.c ------------------------------------------------------- */
void engine_work_publish(struct engine *e);
/* Brings the store up to date, not before due_ns. */
void engine_work_store(struct engine *e, uint64_t due_ns);
/* Schedules a call of engine_transport_devices for that time. */
void engine_work_devices(struct engine *e, uint64_t due_ns);
void engine_work_resolve(struct engine *e, struct tei_rail_peer *peer);
/* tries: those before this one, in vain; the more, the longer it may last. */
void engine_work_refresh(struct engine *e, const char *name, uint32_t tries);
void engine_work_relist(struct engine *e, const char *name);
void engine_work_ended(struct engine *e, const char *name);
/* False: not now. */
bool engine_work_renew(struct engine *e, struct lend_slot *slot);
void engine_work_stop(struct engine *e);

#endif /* TEI_API_ENGINE_INT_H */
