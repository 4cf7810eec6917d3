/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_SEGMENT_H
#define TEI_API_ENGINE_SEGMENT_H

/*
 * Open segments, the transports that reach them, and the local processes to
 * which they belong.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/tei_meta_desc.h"
#include "moonrail.h"
#include "transfer_engine_c.h"

#include "api/engine_transport.h"
#include "util/clock.h"
#include "util/lock.h"

struct engine;
struct engine_ipc;
struct engine_target;
struct tei_err;
struct tei_local_id;
struct tei_local_peer;
struct tei_meta_address;
struct tei_meta_buffer;
struct tei_meta_cache_ops;
struct tei_meta_desc;
struct tei_nvmeof_seg;
struct tei_rail_addr;
struct tei_rail_peer;

/* Counters of the copies inside this host to and from one process. All members
 * are atomic. */
struct engine_traffic {
	uint64_t tx_bytes, rx_bytes;
	uint64_t completed, failed, canceled;
	uint64_t last_ns; /* end of the last copy, ns,
			   * CLOCK_MONOTONIC */
};

/*
 * A local process. Its segment and the tasks in progress hold references. The
 * end of a task may drop the last reference but must not close the process, so
 * the process stays in the list until a later call closes it.
 */
struct engine_local_process {
	struct tei_local_peer *peer;
	struct engine_ipc *ipc;		/* mapped GPU memory of the process, or
					 * NULL */
	struct engine_traffic traffic;
	uint32_t refs;			/* atomic: number of references */
	/*
	 * atomic: earliest time of the next report to the data plane that the
	 * process has ended, ns
	 */
	uint64_t report_ns;
	struct engine_local_process *next; /* next element of
					    * engine->processes */
};

/* Takes and drops a reference. process may be NULL. */
static inline void engine_local_process_hold(struct engine_local_process *process)
{
	if (process)
		__atomic_add_fetch(&process->refs, 1, __ATOMIC_RELAXED);
}
static inline void engine_local_process_put(struct engine_local_process *process)
{
	if (process)
		__atomic_sub_fetch(&process->refs, 1, __ATOMIC_RELEASE);
}

/* All local processes of an engine. */
struct engine_processes {
	struct tei_mutex lock; /* guards the list; held while a local process is
				* closed, and while the driver unmaps
				* GPU memory of local processes */
	/*
	 * all local processes, including those without references that a later
	 * call closes
	 */
	struct engine_local_process *list;
};

/*
 * An open remote segment. The cache of descriptors stores this struct with the
 * segment's descriptor (tei_meta_cache_data). The functions of
 * engine_segment_ops create, change and free it. engine->segments guards the
 * members: submissions hold that lock for reading, changes hold it for writing.
 */
struct engine_segment {
	segment_id_t id;
	struct tei_meta_desc *desc; /* descriptor of the segment, with one
				     * reference */
	struct tei_rail_peer *peer; /* process reached over rails, with one
				     * reference; or NULL */
	struct engine_local_process
		*local;			/* local process reached by kernel
					 * copies; or NULL */
	struct tei_nvmeof_seg *files;	/* files of a file segment, with one
					 * reference; or NULL */
	struct engine_vias vias;	/* transports that reach the segment */
	int why_not_local;		/* why kernel copies do not reach the
					 * segment: 0, enum engine_not_local or
					 * enum tei_local_reason */
	bool gpu;			/* desc lists GPU memory, and this
					 * engine can use remote bounce slots */
	bool off_route;			/* the last update of the segment's
					 * targets failed, so peer and files
					 * belong to an earlier descriptor */
	uint64_t asked_ns;		/* atomic: earliest time at which
					 * engine_segment_unresolved() may read
					 * the descriptor again, ns */
};

#define ENGINE_ABSENT 1024 /* number of elements of engine.absent_ns */

/* --- engine_segment.c ---------------------------------------------------- */
/* Returns the open segment with that id, or NULL. e->segments must be held. */
struct engine_segment *engine_segment_find(struct engine *e, segment_id_t id);
/* Determines the transports that reach the own segment. Called when the engine
 * is created and when the first GPU memory is registered. */
void engine_segment_attach_own(struct engine *e);
/* Frees all segments. No other thread may use the engine. */
void engine_segment_free_all(struct engine *e);
/* Closes all local processes, even those that have references. The segments
 * must be freed and the GPU module must be closed. */
void engine_segment_close_all(struct engine *e);
/* Number of segment ids that one call of tei_meta_cache_ids lists at most. */
#define ENGINE_IDS 256
/* Returns true if the buffer is GPU memory. */
bool engine_segment_on_gpu(const struct tei_meta_buffer *b);
/* The functions with which the cache of descriptors manages struct
 * engine_segment. Their argument is the engine. */
extern const struct tei_meta_cache_ops engine_segment_ops;
/* Queues a job that looks up the name of a peer that does not answer. Takes
 * ownership of the reference to the peer. */
void engine_segment_resolve_later(struct engine *e, struct tei_rail_peer *peer);
/* Queues a job that reads a descriptor again, because the store has reported a
 * change of it. "tries" is the number of failed attempts; each of them doubles
 * the time that the next attempt may take. */
void engine_segment_refresh_later(struct engine *e, const char *name,
				  uint32_t tries);

/*
 * Called for a request that is refused because no transport reaches the segment
 * s. The process of s may have had no rails when its descriptor was read. If
 * the store does not report changes, a worker thread reads the descriptor
 * again, at most every ENGINE_UNRESOLVED_NS. e->segments must be held.
 */
void engine_segment_unresolved(struct engine *e, struct engine_segment *s);
#define ENGINE_UNRESOLVED_NS (50 * TEI_NS_PER_MS)

/*
 * Handles a task that failed because its target has not registered the range
 * err->absent. If the cached descriptor lists that range, sets err->stale. A
 * worker thread then reads the descriptor again, at most every
 * ENGINE_UNRESOLVED_NS. It does not do so if the range is GPU memory that is
 * reached through remote bounce slots.
 */
void engine_segment_absent(struct engine *e, segment_id_t id,
			   struct tei_err *err);
/*
 * Returns true if the local process n, to which the segment with that id
 * belongs, has ended. In this case a worker thread notifies the data plane, at
 * most every ENGINE_UNRESOLVED_NS. The caller must hold a reference to n, or
 * e->segments.
 */
bool engine_segment_ended(struct engine *e, segment_id_t id,
			  struct engine_local_process *n);
/* Returns true if the segment with that name is open, belongs to the process
 * with that incarnation, and that process is a local process that has ended. */
bool engine_segment_ended_as(struct engine *e, const char *name,
			     uint64_t incarnation);
/* Determines the targets of all segments again, after local copies or file
 * segments were switched on or off. */
void engine_segment_reevaluate(struct engine *e);
/* Waits until no segment and no task uses a local process any longer. Called
 * after local copies were switched off. Returns false if a local process is
 * still in use at until_ns. */
bool engine_segment_drain(struct engine *e, uint64_t until_ns);
/*
 * Queues a job that unmaps GPU memory of local processes: memory that its owner
 * has unregistered, memory of processes that have ended, and memory of closed
 * segments. This is the callback of tei_gpu_set_sweep; arg is the engine. Does
 * not call the driver, and does not wait for locks that are held during calls of
 * the driver.
 */
void engine_segment_sweep(void *arg);

/* --- engine_target.c ------------------------------------------------------ */
/* Fills in *t for the segment with that id. Does nothing if *t describes this
 * segment already. e->segments must be held. Returns 0 or the code of
 * submitTransfer. */
int engine_target_set(struct engine *e, segment_id_t id,
		      struct engine_target *t);
/* Returns true if the target's descriptor lists GPU memory at addr. */
bool engine_target_gpu(const struct engine_target *target, uint64_t addr);
/* Returns true if the range at the target includes GPU memory that is not
 * registered on the target's rails and is therefore reached through remote
 * bounce slots. */
bool engine_target_needs_slot(const struct engine_target *target, uint64_t addr,
			      uint64_t len);

/* --- engine_local.c: identities for copies inside a host ----------------- */

/* Writes the local identity as text for the descriptor. If this engine has a
 * shared secret, a keyed hash follows the identity. Returns 0, or an error code
 * if "len" is too small. */
int engine_local_format(struct engine *e, const struct tei_local_id *id,
			char *out, size_t len);
/*
 * Reasons why local copies cannot reach a process, in addition to those of enum
 * tei_local_reason. 0 means that local copies reach the process, or were not
 * tried.
 */
enum engine_not_local {
	ENGINE_NOT_LOCAL_SECRET_THERE = 100, /* only the other process has a
					      * shared secret */
	ENGINE_NOT_LOCAL_SECRET_HERE,	     /* only this process has a shared
					      * secret */
	ENGINE_NOT_LOCAL_SECRET_OTHER,	     /* the shared secrets differ */
	ENGINE_NOT_LOCAL_UNREADABLE,	     /* the local identity is
					      * malformed */
};
/* Returns a reason of enum engine_not_local or enum tei_local_reason in words.
 * Returns "" for 0. */
const char *engine_local_why(int not_local);
/* Parses the local identity in a descriptor and checks its keyed hash. Returns
 * 0 or a value of enum engine_not_local. */
int engine_local_parse(struct engine *e, const char *text,
		       struct tei_local_id *out);

/* --- engine_addr.c ------------------------------------------------------- */
/* engine_addr_pack converts an address of the data plane to the form that
 * descriptors use. engine_addr_unpack converts it back, and returns false if
 * the descriptor has no valid address there. */
void engine_addr_pack(const struct tei_rail_addr *in,
		      struct tei_meta_address *out);
bool engine_addr_unpack(const struct tei_meta_address *in,
			struct tei_rail_addr *out);

/* --- engine_traffic.c ---------------------------------------------------- */
/* Adds a copy that has ended to the counters. Must be called before the status
 * of its task is published. */
void engine_traffic_count(struct engine_traffic *t, bool read, uint64_t bytes,
			  int status);
/* Does the same for n copies that are COMPLETED and have "bytes" bytes
 * together. */
void engine_traffic_completed(struct engine_traffic *t, bool read,
			      uint64_t bytes, uint64_t n);

/* --- engine_paths.c ------------------------------------------------------ */
/* Fills in the statistics *s of the segment with that id, and its paths.
 * "paths" is NULL or has TEI_RAIL_MAX elements; this function does not set
 * their rank and the flag TE_PATH_CONNECTED. Returns false if the id is not
 * open. */
bool engine_peer_stats(struct engine *e, segment_id_t id,
		       struct te_peer_stats *s, struct te_path *paths,
		       size_t *npaths);

#endif /* TEI_API_ENGINE_SEGMENT_H */
