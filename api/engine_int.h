/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_INT_H
#define TEI_API_ENGINE_INT_H

/*
 * The engine: connects metadata, rails, local copies, files and GPU memory to
 * the Mooncake API.
 *
 * docs/LOCKING.md states the lock order. A submission holds the lock of its
 * batch and segments (shared).
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "moonrail.h"
#include "transfer_engine_c.h"

#include "api/engine_work.h"
#include "meta/tei_meta.h"
#include "prov/gpu/tei_gpu.h"
#include "prov/local/tei_local.h"
#include "prov/nvmeof/tei_nvmeof.h"
#include "prov/rail/tei_rail.h"
#include "prov/staging/tei_staging.h"
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
#define ENGINE_BATCH_CHUNK	256	/* batch slots per allocation */
#define ENGINE_BATCH_CHUNKS	4096
#define ENGINE_BATCH_MAX	(1u << 20) /* tasks of one batch */
#define ENGINE_TASK_ROOM                                                \
	208				/* bytes of a task that are its \
					 * transport's */
#define ENGINE_KEEP_TASKS	1024	/* longest task array that a freed slot
					 * keeps */

/* An installed transport; its address is the handle. */
struct engine_transport {
	struct engine *engine;
	char name[16];
	char proto[16];			/* name passed to installTransport */
	const struct engine_transport_ops *by;
	bool installed;			/* engine->control */
};

/* Traffic of copies inside this host with one target. All fields are atomic. */
struct engine_traffic {
	uint64_t tx_bytes, rx_bytes;
	uint64_t completed, failed, canceled;
	uint64_t last_ns;		/* end of the last copy,
					 * CLOCK_MONOTONIC */
};

/*
 * A local process. The references are held by its segment and by the tasks in
 * progress. Without a reference it is closed by a later call, because the end
 * of a task must not close it.
 */
struct engine_local_process {
	struct tei_local_peer *peer;
	struct engine_traffic traffic;
	uint32_t refs;			/* atomic */
	uint64_t told_ns;		/* atomic: earliest time of the next
					 * report that the process has ended */
	struct engine_local_process *next; /* engine->neighbours */
};

/*
 * An open remote segment in engine->segs. Guarded by engine->segments, which
 * submissions hold shared and changes hold exclusively. Freed with the last
 * closeSegment of its id.
 */
struct engine_segment {
	segment_id_t id;
	struct tei_meta_desc *desc;	/* one reference */
	struct tei_rail_peer *peer;	/* one reference, or NULL */
	struct engine_local_process
		*local;			/* target of kernel copies, or NULL */
	struct tei_nvmeof_seg *files;	/* one reference, or NULL */
	int why_not_local;		/* enum engine_not_local */
	bool gpu;			/* desc lists GPU memory, and this
					 * engine can use remote bounce slots */
	bool off_route;			/* the last change of the targets
					 * failed; they belong to an earlier
					 * desc */
	uint64_t asked_ns;		/* atomic: earliest time of the next
					 * refresh by engine_segment_unresolved() */
	struct engine_segment *next;	/* same bucket */
};

#define ENGINE_SEG_BUCKETS	1024

/*
 * The notification of a submission. It is sent when all tasks of the submission
 * are COMPLETED. Created by submitTransferWithNotify, freed by the thread that
 * ends the last task.
 */
struct engine_submission {
	uint32_t left;			/* atomic: tasks not ended */
	bool failed;			/* atomic */
	struct tei_rail_peer *peer;	/* one reference; NULL: this engine */
	struct tei_rail_outgoing *out;	/* to the peer, or NULL */
	struct tei_rail_notification *note; /* to this engine, with room
					     * reserved for it, or NULL */
};

struct engine_target;
struct engine_transport_ops;

/*
 * A task of a batch. It belongs to the batch, and from its submission to its
 * end to the transport.
 */
struct engine_task {
	struct engine *engine;
	struct engine_batch *batch;
	struct engine_submission *sub;	/* or NULL */
	struct tei_err *err;		/* owned, set before status */
	uint64_t length;
	const struct engine_transport_ops *by; /* set by prepare */
	int status;			/* atomic: STATUS_… */
	segment_id_t target;
	bool read;			/* only if the task has one range */
	bool expired;			/* atomic: ended by a deadline */
	uint64_t room[ENGINE_TASK_ROOM / 8]; /* the transport's */
};

/* Return the room of a task, and the task of a room. */
static inline void *engine_task_room(struct engine_task *t)
{
	return t->room;
}

static inline const void *engine_task_room_const(const struct engine_task *t)
{
	return t->room;
}

static inline struct engine_task *engine_task_from(void *room)
{
	return (struct engine_task *)((char *)room -
				      offsetof(struct engine_task, room));
}

static inline const struct engine_task *engine_task_from_const(const void *room)
{
	return (const struct engine_task *)((const char *)room -
					    offsetof(struct engine_task, room));
}

/*
 * engine_batch.pending: one word, so that the end of a task and the arrival of
 * a waiter are ordered. Bits 0 to 23: tasks that have not ended. Bits 24 to 43:
 * threads that sleep until one task has ended. Bits 44 to 62: threads that
 * sleep until all tasks have ended. Bit 63: an event descriptor watches the
 * batch.
 */
#define ENGINE_PENDING_LEFT	UINT64_C(0xffffff)
#define ENGINE_PENDING_TASK	(UINT64_C(1) << 24)
#define ENGINE_PENDING_TASKS	(UINT64_C(0xfffff) * ENGINE_PENDING_TASK)
#define ENGINE_PENDING_WHOLE	(UINT64_C(1) << 44)
#define ENGINE_PENDING_WHOLES	(UINT64_C(0x7ffff) * ENGINE_PENDING_WHOLE)
#define ENGINE_PENDING_WATCHED	(UINT64_C(1) << 63)

/* State of the event fields of a batch before a submission that may still be
 * refused. */
struct engine_event_was {
	bool armed, adopted;
	bool listed;			/* in events.ended */
	bool level;
	bool readable;			/* level was set and the program had not
					 * read the descriptor */
};

/*
 * A batch slot. Slots are freed only with the engine. A stale id therefore
 * finds a slot whose generation differs, and is refused; and a thread that has
 * ended a task may still access the slot after the batch has been freed. Such a
 * thread may lower pending after the slot has been allocated again. pending is
 * therefore never reset; the next batch only appears unended for that moment.
 */
struct engine_batch {
	/* constant */
	struct engine *engine;
	uint32_t index;

	struct tei_mutex lock;		/* guards this group */
	uint32_t gen;			/* odd while allocated */
	uint32_t size, count;		/* most tasks; submitted tasks */
	struct engine_task *tasks;
	uint32_t cap;			/* elements of tasks */
	uint64_t deadline_ns;		/* CLOCK_MONOTONIC, 0: none */
	bool deadline_set;		/* by te_batch_deadline */

	/* atomic */
	uint64_t pending;		/* ENGINE_PENDING_… */
	uint32_t wakes;			/* futex; incremented to wake waiters */

	/* engine->events.lock */
	int event_fd;			/* of this batch, or -1 */
	bool event_level;		/* event_fd is readable */
	bool event_armed;		/* the end has not been reported yet */
	bool event_adopted;		/* the end is reported by
					 * te_ended_batches */
	batch_id_t event_id;		/* id to report */
	struct engine_event_was event_was; /* from expect to unexpect */
	struct tei_list event_link;	/* events.ended, or alone */

	struct tei_heap_node timer;	/* engine->timers.lock */

	struct engine_batch *next_free;	/* engine->batches */
};

/*
 * The entries of a region in the descriptor. All bytes of an entry have the
 * same memory keys and the same location. word holds 1 + keys numbers per
 * entry: its length and one memory key for each rail of the descriptor.
 */
struct engine_pieces {
	uint32_t n;			/* entries */
	uint32_t keys;			/* keys per entry = rails of the
					 * descriptor */
	uint64_t *word;			/* owned by the region */
};

/* A registered region, in engine->regions, which is not sorted. Guarded by
 * control. The array and the fields that the descriptor uses are changed with
 * listing.lock held, too. */
struct engine_region {
	void *addr;
	size_t length;
	bool remote;
	bool read_only;			/* mapped without PROT_WRITE */
	bool gpu;			/* GPU memory, not accessible by the
					 * CPU */
	int device;			/* gpu: CUDA device number */
	bool direct;			/* gpu: registered on the rails */
	bool staged;			/* gpu: place is valid */
	uint32_t place;			/* handle for tei_staging_mem_drop */
	bool granted;			/* gpu: grant is valid */
	uint64_t grant;			/* handle for tei_staging_grant_… */
	char location[64];		/* of the first byte */
	char *parts;			/* "segments:…" if the region has
					 * several locations, else NULL */
	bool listed;			/* part of the descriptor */
	struct engine_pieces pieces;	/* remote: entries for listing.rails */
	uint64_t id;			/* number of the registration, unique */
	uint32_t same;			/* index of the next region in the hash
					 * bucket, plus 1; 0: none */
};

static inline const char *engine_region_location(const struct engine_region *r)
{
	return r->parts ? r->parts : r->location;
}

/* Memory of te_alloc: a mapping of its own, or GPU memory. In
 * engine->allocs. */
struct engine_alloc {
	struct engine_alloc *next;
	bool gpu;			/* only addr, length and node are
					 * used */
	void *base;			/* start of the mapping */
	uint64_t span;			/* bytes of the mapping */
	void *addr;			/* start of the caller's memory */
	uint64_t length;		/* its bytes, rounded up to pages */
	uint64_t page;			/* page size, bytes */
	uint32_t kind;			/* enum te_page_kind */
	int node;			/* NUMA node, -1: several; gpu:
					 * device */
};

/* Indices of the rails in a descriptor, in its order. */
struct engine_desc_rails {
	size_t rail[TEI_RAIL_MAX];
	size_t n;
};

/*
 * The own descriptor. The control channel builds it when a peer requests it. A
 * call that changes the descriptor writes it to the store, or leaves that to a
 * worker; engine_publish.c has the rules.
 */
struct engine_listing {
	struct tei_mutex lock;		/* guards all fields but store */
	struct tei_meta_desc *head;	/* descriptor without buffers; NULL
					 * before the first publication */
	struct engine_desc_rails rails;	/* rails of head; changed with control
					 * held, too */
	struct tei_meta_desc *desc;	/* whole descriptor at desc_version, or
					 * NULL */
	uint64_t desc_version;
	uint64_t version;		/* counts the changes */
	uint64_t changed_ns;		/* last registration or its removal,
					 * ns */
	uint64_t serial;		/* serial number of the last
					 * descriptor */
	/* state of the store */
	bool failed;			/* the last publication failed */
	bool listed;			/* the store may name buffers */
	uint64_t stored_ns;		/* time of the last publication, ns */
	uint32_t tries;			/* failed attempts of a worker in a
					 * row */
	uint32_t waiting;		/* calls of the application that wait
					 * for store or hold it */

	struct tei_mutex store;		/* held during a publication; taken
					 * before lock */
};

/* The engine's event descriptor and the ended batches that te_ended_batches has
 * not fetched yet. */
struct engine_events {
	bool on;			/* atomic: fd exists */
	struct tei_mutex lock;		/* leaf; guards the members below */
	int fd;				/* or -1 */
	bool level;			/* fd is readable */
	struct tei_list ended;		/* engine_batch.event_link */
};

/* Batches with a deadline, and the thread that ends their tasks. */
struct engine_timers {
	struct tei_mutex lock;		/* leaf; guards the members below */
	pthread_cond_t cond;
	struct tei_heap heap;		/* engine_batch.timer */
	bool started, stop;
	pthread_t thread;
};

/* Created by createTransferEngine, freed by destroyTransferEngine. */
struct engine {
	/* constant after creation */
	struct tei_settings settings;
	char name[TEI_META_NAME_MAX];	/* of the own segment */
	uint64_t incarnation;
	uint32_t fork_gen;
	uint32_t max_spinning;		/* most threads that wait without
					 * sleep */
	struct tei_meta_store *store;
	struct tei_meta_server *server;
	struct tei_meta_cache *cache;
	struct tei_rail_dp *dp;
	struct tei_local *local;

	struct tei_nvmeof *nvmeof;	/* atomic: set once, under control */
	struct tei_gpu *gpu;		/* atomic, as nvmeof; or NULL */
	struct tei_staging *staging;

	struct tei_mutex control;	/* set-up calls; guards the members
					 * below down to left_next */
	struct engine_transport transports[ENGINE_TRANSPORTS];
	struct tei_topo *topo;		/* used by the data plane */
	char *matrix;			/* topology JSON of installTransport */
	uint32_t devices_tries;		/* refreshes since the devices
					 * changed */
	bool devices_again;		/* the last refresh was not complete */
	bool host_fixed;		/* constant: the control channel does
					 * not follow interface addresses */
	struct engine_region *regions;
	struct engine_alloc *allocs;
	uint32_t nregions, regions_cap;
	uint32_t *region_buckets;	/* [regions_cap], hash by address: index
					 * plus 1; 0: none */
	uint64_t region_id;		/* of the last registration */
	struct engine_listing listing;
	bool graceful;			/* closed on a signal; set once */
	struct engine *left_next;	/* engine_shutdown.c */

	bool local_on;			/* atomic: kernel copies allowed */
	bool files_on;			/* atomic: file segments allowed */
	struct engine_traffic own;	/* copies inside this process */

	pthread_rwlock_t segments;
	struct engine_segment *segs[ENGINE_SEG_BUCKETS];
	uint64_t absent_ns[ENGINE_SEG_BUCKETS];	/* atomic: earliest time of
					 * the next read by
					 * engine_segment_absent() */

	struct tei_mutex neighbours_lock; /* held while one is closed */
	struct engine_local_process *neighbours; /* all, also those without a
						  * reference that are to be
						  * closed */

	struct tei_mutex batches;	/* leaf */
	struct engine_batch *chunks[ENGINE_BATCH_CHUNKS]; /* set once: atomic */
	uint32_t nchunks;
	struct engine_batch *free_batch;

	struct tei_log_limit bad_limit;

	/* atomic */
	uint32_t nwaiting;		/* threads inside engine_wait_enter and
					 * engine_wait_leave */
	uint32_t nspinning;		/* of them, those that do not sleep */
	bool closing;			/* waits must end */

	struct engine_events events;
	struct engine_timers timers;

	struct tei_mutex notes_lock;	/* leaf */
	struct tei_list notes;
	uint32_t nnotes;		/* atomic: also read without the lock */
	struct tei_log_limit notes_limit;

	struct engine_works works;
};

/* --- engine_handle.c ------------------------------------------------------ */
/* Returns the engine of a handle. Returns NULL and sets the thread's last error
 * if the handle is NULL, stale or invented, or is used in a child after
 * fork. */
struct engine *engine_from(transfer_engine_t handle);
/*
 * Reports an invalid argument of a call: sets the thread's last error and logs
 * it, at a limited rate. what NULL stands for "an argument is NULL, empty or
 * out of range". Does nothing if e is NULL, because engine_from has reported
 * that. Returns -1.
 */
int engine_bad(struct engine *e, const char *call, const char *what);
/* Returns the time at which a request to a store or peer that starts now times
 * out (MC_HANDSHAKE_CONNECT_TIMEOUT). */
uint64_t engine_deadline(const struct engine *e);
/* --- engine.c ------------------------------------------------------------ */
/* Drains the engine, withdraws its descriptor, says BYE to the peers and stops
 * the threads. Frees nothing. For a process that is about to end; the caller
 * has removed the handle. */
void engine_leave(struct engine *e);

/* --- engine_desc.c: the content of the own descriptor --------------------- */
/* Builds the descriptor without buffers; fills *rails with its rails. */
int engine_desc_head(struct engine *e, struct engine_desc_rails *rails,
		     struct tei_meta_desc **out, struct tei_err *err)
	TEI_REQUIRES(e->control);
/* Builds the region's entries for a descriptor with those rails. The caller
 * frees out->word. */
int engine_desc_collect(struct engine *e,
			const struct engine_desc_rails *rails,
			const struct engine_region *r,
			struct engine_pieces *out, struct tei_err *err)
	TEI_REQUIRES(e->control);
/* Adds the entries of all listed regions to the descriptor. listing.lock must
 * be held. */
int engine_desc_buffers(struct engine *e, struct tei_meta_desc *desc,
			struct tei_err *err);

/* --- engine_publish.c: publication of the descriptor ---------------------- */
/* Initialize the own descriptor, and free it. */
void engine_publish_init(struct engine *e);
void engine_publish_fini(struct engine *e);
/* Returns true after the first publication. */
bool engine_published(struct engine *e);
/*
 * Reads the description of all rails and regions again. The caller must call
 * engine_publish afterwards, without the control lock.
 */
int engine_republish(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control);
/*
 * Writes the descriptor to the store and waits for the result. told: the result
 * is returned to the application; the store then also registers the name again
 * if another process has taken it. Blocks. No lock may be held.
 */
int engine_publish(struct engine *e, bool notified, struct tei_err *err);
/*
 * Publishes a registration or the removal of one. If the store refers peers to
 * the control channel for the buffers and the last publication succeeded,
 * leaves the publication to a worker and returns 0 at once. Otherwise as
 * engine_publish.
 */
int engine_publish_regions(struct engine *e, struct tei_err *err);
/* Queues a publication because the rails have changed. */
void engine_publish_soon(struct engine *e);
/* Queues a publication that brings the store up to date, for due_ns. */
void engine_publish_at(struct engine *e, uint64_t due_ns);
/* Returns the current descriptor of this engine with a reference for the
 * caller. Returns NULL before the first publication, or if memory is short. */
struct tei_meta_desc *engine_describe(struct engine *e);

/* --- engine_handle.c: table of live handles ------------------------------- */
/* Returns 0, or TEI_ERR_TOO_MANY. */
int engine_handle_add(struct engine *e);
/* Returns false if the handle was not in the table. */
bool engine_handle_remove(struct engine *e);
/* Returns true if the handle is that of a live engine. */
bool engine_handle_known(const void *handle);
/* Returns the fork generation: every child of a fork has a higher one than its
 * parent. */
uint32_t engine_fork_gen(void);

/* --- engine_shutdown.c --------------------------------------------------- */
/*
 * Removes the handle of an engine that is to be destroyed. Returns false if
 * another thread has removed it; the engine may be freed then. Between _enter
 * and _leave a shutdown waits. *graceful is the argument for _leave.
 */
bool engine_shutdown_enter(struct engine *e, bool *graceful);
void engine_shutdown_leave(bool graceful);

/* --- engine_transport.c -------------------------------------------------- */
/* Installs the transports that fit. */
int engine_auto_discover(struct engine *e, struct tei_err *err);
/* --- engine_devices.c ---------------------------------------------------- */
/* Schedules the opening of rails; a tei_rail_ops.devices_changed, arg is the
 * engine. */
void engine_devices_changed(void *arg);

/* --- engine_segment.c ---------------------------------------------------- */
/* Returns NULL if no open segment has the id. segments must be held. */
struct engine_segment *engine_segment_find(struct engine *e, segment_id_t id);
/* Frees all segments and closes all local processes. No other thread may use
 * the engine. */
void engine_segment_free_all(struct engine *e);
/* Lists the ids of open segments, beginning with bucket *from, which it
 * advances. The listing is complete when *from is ENGINE_SEG_BUCKETS. Returns
 * the number of ids. */
#define ENGINE_IDS 256
int engine_segment_ids(struct engine *e, int *from,
		       segment_id_t ids[ENGINE_IDS]);
/* Returns true if the buffer is GPU memory. */
bool engine_segment_on_gpu(const struct tei_meta_buffer *b);
/* Sets up the targets of a segment id that the cache has just returned.
 * Releases the reference in the cache if that fails. */
int engine_segment_grant(struct engine *e, segment_id_t id,
			 struct tei_err *err);
/* Queues a look-up of the name of a peer that does not answer. Takes over the
 * reference to it. */
void engine_segment_resolve_later(struct engine *e, struct tei_rail_peer *peer);
/* Queues a read of a descriptor that the store has reported as changed. tries:
 * number of failed tries; each doubles the time that the next one may take. */
void engine_segment_refresh_later(struct engine *e, const char *name,
				  uint32_t tries);

/*
 * Handles a request that finds no transport to s: its descriptor was read
 * before its process had rails. Without a store nothing reports the change, so
 * a worker reads the descriptor again, at most every ENGINE_UNRESOLVED_NS.
 * segments must be held.
 */
void engine_segment_unresolved(struct engine *e, struct engine_segment *s);
#define ENGINE_UNRESOLVED_NS (50 * TEI_NS_PER_MS)

/*
 * Handles a task that failed because its target has not registered err->absent.
 * Sets err->stale if the cached descriptor lists that memory. A worker then
 * reads a newer descriptor, at most every ENGINE_UNRESOLVED_NS, unless the
 * memory is GPU memory that is reached through remote bounce slots.
 */
void engine_segment_absent(struct engine *e, segment_id_t id,
			   struct tei_err *err);
/*
 * Returns true if the local process n, which id's segment leads to, has ended.
 * A worker then notifies the data plane, at most every ENGINE_UNRESOLVED_NS.
 * The caller must hold a reference to n, or segments.
 */
bool engine_segment_ended(struct engine *e, segment_id_t id,
			  struct engine_local_process *n);
/* Returns true if the segment with that name is open, belongs to that
 * incarnation and its local process has ended. */
bool engine_segment_ended_as(struct engine *e, const char *name,
			     uint64_t incarnation);
/* Re-evaluates the local path of all segments after local copies or file
 * segments were switched on or off. */
void engine_segment_reevaluate(struct engine *e);
/* Waits until no segment and no task uses a local process any more, after local
 * copies were switched off. Returns false if one still does at until_ns. */
bool engine_segment_drain(struct engine *e, uint64_t until_ns);

/* --- engine_local.c: identities for copies inside a host ----------------- */

/* Writes the local identity for the descriptor. If there is a shared secret, a
 * keyed hash follows. */
int engine_local_format(struct engine *e, const struct tei_local_id *id,
			char *out, size_t len);
/*
 * Why local copies do not reach a peer: one of these, or a value of enum
 * tei_local_reason. 0: they do, or were not tried.
 */
enum engine_not_local {
	ENGINE_NOT_LOCAL_SECRET_THERE = 100,	/* only the peer has a secret */
	ENGINE_NOT_LOCAL_SECRET_HERE,		/* only this process has a
						 * secret */
	ENGINE_NOT_LOCAL_SECRET_OTHER,		/* the secrets differ */
	ENGINE_NOT_LOCAL_UNREADABLE,		/* malformed identity */
};
/* Returns the reason in words, "" for 0. */
const char *engine_local_why(int not_local);
/* Parses the identity in a descriptor. Returns 0, or enum engine_not_local. */
int engine_local_parse(struct engine *e, const char *text,
		       struct tei_local_id *out);

/* --- engine_addr.c ------------------------------------------------------- */
/* Convert an address of the data plane to the form in a descriptor, and back.
 * engine_addr_unpack returns false if there is no address. */
void engine_addr_pack(const struct tei_rail_addr *in,
		      struct tei_meta_address *out);
bool engine_addr_unpack(const struct tei_meta_address *in,
			struct tei_rail_addr *out);

/* --- engine_abi.c -------------------------------------------------------- */
/* Copies the library's struct of len bytes to the caller's of size bytes. Fills
 * bytes of the caller's struct beyond ours with 0. */
void engine_out(void *out, size_t size, const void *ours, size_t len);
/* Converts an error record; in NULL means no error. */
void engine_error_out(const struct tei_err *in, uint32_t flags,
		      struct te_error *out, size_t size);

/* --- engine_traffic.c ---------------------------------------------------- */
/* Counts a copy that has ended. Must be called before the task's status is
 * published. */
void engine_traffic_count(struct engine_traffic *t, bool read, uint64_t bytes,
			  int status);

/* --- transport_staging.c ------------------------------------------------- */
/* Opens GPU staging; the data plane and the GPU module are set later. */
int engine_staging_open(struct engine *e, struct tei_err *err);
/* Receives a message; a tei_rail_ops.message, arg is the engine. */
void engine_staging_message(void *arg, struct tei_rail_message *message);
/* Registers the pools' memory with the transport of file segments, and sets
 * e->nvmeof. control must be held. */
int engine_staging_files(struct engine *e, struct tei_nvmeof *ctx);

/* --- transport_file.c ------------------------------------------------------
 */
/* Opens the files of a descriptor at the paths that this server has for them.
 * Returns NULL if it is no file segment, without the transport, or if memory is
 * short. Blocks. */
struct tei_nvmeof_seg *engine_files_open(struct engine *e,
					 const struct tei_meta_desc *desc);
/* Call the functions of tei_nvmeof.h; return 0 without the transport. */
int engine_files_mem_add(struct engine *e, void *addr, uint64_t len,
			 const char *location);
int engine_files_mem_remove(struct engine *e, void *addr, uint64_t deadline_ns);
/* Registers GPU memory for cuFile if possible. */
struct engine_region;
void engine_files_gpu_add(struct engine *e, const struct engine_region *r)
	TEI_REQUIRES(e->control);
/* Returns true if cuFile handles this request from or to GPU memory. */
bool engine_files_take(struct engine *e, const struct transfer_request *r,
		       struct tei_nvmeof_seg *files);

/* --- engine_gpu.c -------------------------------------------------------- */
/*
 * Finds out which GPU the memory belongs to; *device is its number or -1.
 * Returns TEI_ERR_INVALID if said contradicts it, TEI_ERR_NO_DEVICE if said
 * names a GPU and this process has no driver.
 */
int engine_gpu_where(struct engine *e, void *addr, size_t len,
		     const struct tei_topo_where *said, int *device,
		     struct tei_err *err) TEI_REQUIRES(e->control);
/* Allocates zeroed GPU memory, not registered. engine_gpu_free or the end of
 * the engine frees it. Errors as tei_gpu_alloc. */
int engine_gpu_alloc(struct engine *e, int device, size_t len, void **addr,
		     struct tei_err *err);
void engine_gpu_free(struct engine *e, void *addr);
/* Call the functions of tei_gpu.h; return 0 if no GPU memory was ever
 * registered. */
int engine_gpu_mem_add(struct engine *e, void *addr, uint64_t len,
		       struct tei_err *err);
int engine_gpu_mem_remove(struct engine *e, void *addr, uint64_t deadline_ns);
/* Registers GPU memory on the rails, if all of them accept it. An error is
 * stored in *err and not logged. */
int engine_gpu_direct_add(struct engine *e, const struct engine_region *r,
			  bool remote, struct tei_err *err);
/* Returns true if one side of the request is GPU memory of this process. */
bool engine_gpu_concerns(struct engine *e, const struct transfer_request *r);
/* Returns true if the range begins in registered GPU memory of this process. */
bool engine_gpu_memory(struct engine *e, uint64_t addr, uint64_t len);

/* --- engine_paths.c ------------------------------------------------------ */
/* Fills *s. paths, if not NULL, has TEI_RAIL_MAX elements; their rank and
 * TE_PATH_CONNECTED are not set. Returns false if the id is not open. */
bool engine_peer_stats(struct engine *e, segment_id_t id,
		       struct te_peer_stats *s, struct te_path *paths,
		       size_t *npaths);

/* --- engine_report.c ----------------------------------------------------- */
/* Returns the statistics as JSON; a tei_meta_report_fn, arg is the engine. */
char *engine_report(void *arg);
/* Returns the text of showLinks, as JSON or for people; the caller frees it.
 * Returns NULL if memory is short. */
char *engine_links(struct engine *e, bool json);

/* --- engine_stats.c ------------------------------------------------------ */
/* Returns the name of an enum te_rail_state. */
const char *engine_rail_state(uint32_t state);

/* --- engine_alloc.c ------------------------------------------------------ */
/* Unmaps the memory that te_free has not freed. It must not be registered any
 * more. */
void engine_alloc_free_all(struct engine *e);

/* --- engine_memory.c ----------------------------------------------------- */
/* Frees the table of regions, without unregistering anything. */
void engine_memory_free_all(struct engine *e);

/* --- engine_batch.c ------------------------------------------------------ */
/* Returns the locked slot of a batch. Returns NULL with the thread's last error
 * set if the id is stale or invented. */
struct engine_batch *engine_batch_lock(struct engine *e, batch_id_t id);
void engine_batch_unlock(struct engine_batch *b);
/* Calls fn for every slot, without a lock. */
void engine_batch_each(struct engine *e,
		       void (*fn)(struct engine_batch *b, void *arg),
		       void *arg);
/* Frees all batches. No other thread may use the engine. */
void engine_batch_free_all(struct engine *e);

/* --- engine_target.c ------------------------------------------------------ */
/* Fills *t for id, unless it is filled for id already. segments must be held.
 * Returns 0 or the code of submitTransfer. */
int engine_target_set(struct engine *e, segment_id_t id,
		      struct engine_target *t);
/* Returns true if the target's memory at addr is GPU memory. */
bool engine_target_gpu(const struct engine_target *target, uint64_t addr);
/* Returns true if the range includes GPU memory that no rail of the target has
 * a key for: it is reached through remote bounce slots. */
bool engine_target_needs_slot(const struct engine_target *target, uint64_t addr,
			      uint64_t len);

/* --- engine_request.c ----------------------------------------------------- */
/* Return true if local range k, or all local ranges, are registered; for
 * writing, if the request writes them. */
bool engine_range_registered(struct engine *e, const struct te_request *r,
			     uint32_t k);
bool engine_ranges_registered(struct engine *e, const struct te_request *r);
/* Converts the opcode of an atomic to an enum tei_atomic_op. */
unsigned int engine_atomic_op(uint32_t opcode);

/* --- engine_submit.c ------------------------------------------------------ */
/* Checks a request and prepares its task. Returns 0 or the code of
 * submitTransfer. */
int engine_submit_prepare(struct engine *e, struct engine_task *t,
			  const struct transfer_request *r,
			  struct engine_target *target);
/* Error text if engine_submit_start returns TE_TIMED_OUT. */
#define ENGINE_DEADLINE_PASSED	"the batch's deadline has passed"
/* Starts the n tasks that were prepared after b->count. b->lock and segments
 * must be held. */
int engine_submit_start(struct engine *e, struct engine_batch *b, size_t n);

/* --- engine_task.c -------------------------------------------------------- */
/* Zeroes a task and fills the fields that all tasks with one range have. */
void engine_task_init(struct engine *e, struct engine_task *t,
		      const struct transfer_request *r,
		      const struct engine_transport_ops *by);
/* Ends a task. Publishes the status last; from then on the task belongs to the
 * caller of the API. */
void engine_task_end(struct engine_task *t, int status,
		     const struct tei_err *err);
/* Frees a submission of which no task has started. */
void engine_submission_free(struct engine *e, struct engine_submission *sub);

static inline batch_id_t engine_batch_id(const struct engine_batch *b)
{
	return (batch_id_t)b->gen << 32 | b->index;
}

static inline bool engine_task_ended(const struct engine_task *t)
{
	return __atomic_load_n(&t->status, __ATOMIC_ACQUIRE) != STATUS_WAITING;
}

/* --- engine_status.c ----------------------------------------------------- */
/* Fills *status for one task. */
void engine_task_status(const struct engine_task *t,
			struct transfer_status *status);
/* Computes the worst status and the sum of bytes. The lock must be held and
 * count must not be 0. */
void engine_batch_sum(const struct engine_batch *b,
		      struct transfer_status *status);

/* --- engine_wait.c ------------------------------------------------------- */
#define ENGINE_WAIT_ALL		SIZE_MAX	/* task: all of the batch */
void engine_wait_init(struct engine *e);
/* Waits until the task or batch has ended or deadline_ns has passed. Returns a
 * code of te_wait_task. Fills *status, unless it is NULL or the code is 1. */
int engine_wait(struct engine *e, batch_id_t id, size_t task,
		uint64_t deadline_ns, struct transfer_status *status);
/* Keep the engine alive while a call blocks: its destruction waits until every
 * thread has left. Calls may be nested. */
void engine_wait_enter(struct engine *e);
void engine_wait_leave(struct engine *e);
/* Returns the deadline of a timeout in microseconds; a negative one is
 * never. */
uint64_t engine_wait_deadline(int64_t timeout_us);
/* Counts n tasks that are about to start; b->lock must be held. */
void engine_wait_expect(struct engine_batch *b, uint32_t n);
/* Reverses engine_wait_expect if the n tasks were refused; b->lock must be
 * held. */
void engine_wait_unexpect(struct engine_batch *b, uint32_t n);
/* Counts the end of a task whose status has been published. The batch may have
 * been freed meanwhile, so only the slot is accessed. */
void engine_wait_ended(struct engine_batch *b, size_t task);
/* Wakes the waiters of a freed batch, which return. */
void engine_wait_freed(struct engine_batch *b);
/* Ends all waits and waits until their threads have left. */
void engine_wait_shut(struct engine *e);

/* --- engine_event.c ------------------------------------------------------ */
/* Initialize the event descriptors, and close them. */
void engine_event_init(struct engine *e);
void engine_event_fini(struct engine *e);
/* Do the same as the calls of engine_wait.c for a batch that is watched. */
void engine_event_expect(struct engine_batch *b, uint32_t n);
void engine_event_unexpect(struct engine_batch *b, uint32_t n);
/* Reports that all tasks have ended. Any thread; accesses only the slot. */
void engine_event_ended(struct engine_batch *b);
/* Closes the batch's descriptor; b->lock must be held. */
void engine_event_freed(struct engine_batch *b);
/* Updates the engine's descriptor after notifications have arrived or were
 * fetched. Cheap if there is no descriptor. */
void engine_event_notes(struct engine *e);

/* --- engine_deadline.c --------------------------------------------------- */
/* Initialize the deadlines, and free them after engine_deadline_stop. */
void engine_deadline_init(struct engine *e);
/* Sets the deadline of MC_TRANSFER_TIMEOUT, unless te_batch_deadline has set
 * one; b->lock must be held. */
void engine_deadline_submit(struct engine_batch *b);
/* Stops the thread; no deadline ends a task any more. */
void engine_deadline_stop(struct engine *e);
void engine_deadline_fini(struct engine *e);
/* Removes the deadline of a batch that is being freed; b->lock must be held. */
void engine_deadline_freed(struct engine_batch *b);

/* --- engine_cancel.c ----------------------------------------------------- */
/* Requests that the unfinished ones of n tasks end as CANCELED, or as FAILED if
 * the deadline is the reason; b->lock must be held. Waits only for the present
 * part of a local copy. */
void engine_cancel_tasks(struct engine_batch *b, size_t first, size_t n,
			 bool deadline);

/* --- engine_notify.c ----------------------------------------------------- */
/*
 * Creates a notification of the engine to itself and reserves room for it.
 * Returns NULL if it is too long, if there is no room or if memory is short;
 * err is filled and is the thread's last error.
 */
struct tei_rail_notification *engine_note_own(struct engine *e,
					      const struct notify_msg *msg,
					      struct tei_err *err);
/* Frees a notification that was not delivered, and its room. */
void engine_note_discard(struct engine *e, struct tei_rail_notification *note);
/* Delivers a notification for which room is reserved, and takes it over. arg is
 * the engine. */
void engine_note_arrived(void *arg, struct tei_rail_notification *note);
/* Frees the notifications that were not fetched. */
void engine_note_free_all(struct engine *e);

#endif /* TEI_API_ENGINE_INT_H */
