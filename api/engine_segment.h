/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_SEGMENT_H
#define TEI_API_ENGINE_SEGMENT_H

/*
 * Segments: the transports to which their requests go, and their processes.
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

/* Traffic of copies inside this host with one target. All fields are atomic. */
struct engine_traffic {
	uint64_t tx_bytes, rx_bytes;
	uint64_t completed, failed, canceled;
	uint64_t last_ns; /* end of the last copy, ns,
			   * CLOCK_MONOTONIC */
};

/*
 * A local process. Its segment and the tasks in progress hold references. When
 * there is no reference left, a later call closes it, because the end of a task
 * must not close it.
 */
struct engine_local_process {
	struct tei_local_peer *peer;
	struct engine_traffic traffic;
	uint32_t refs;			/* atomic */
	/*
	 * atomic: earliest time of the next report to the data plane that the
	 * process has ended
	 */
	uint64_t report_ns;
	struct engine_local_process *next; /* next element of
					    * engine->processes */
};

/* All local processes of an engine. */
struct engine_processes {
	struct tei_mutex lock; /* held while a local process is
				* closed */
	/*
	 * all local processes, including those that have no reference and are
	 * to be closed
	 */
	struct engine_local_process *list;
};

/*
 * An open remote segment: the engine's data in the cache of descriptors
 * (tei_meta_cache_data). Created, changed and freed by the functions of
 * engine_segment_ops. engine->segments guards the members: submissions hold
 * that lock for reading, changes hold it for writing.
 */
struct engine_segment {
	segment_id_t id;
	struct tei_meta_desc *desc; /* descriptor, with one reference */
	struct tei_rail_peer *peer; /* peer, with one reference; or NULL */
	struct engine_local_process
		*local;			/* target of kernel copies, or NULL */
	struct tei_nvmeof_seg *files;	/* files, with one reference; or NULL */
	struct engine_vias vias;	/* transports that reach the segment */
	int why_not_local;		/* enum engine_not_local */
	bool gpu;			/* desc lists GPU memory, and this
					 * engine can use remote bounce slots */
	bool off_route;			/* the last update of the segment's
					 * targets failed, so peer and files
					 * belong to an earlier descriptor */
	uint64_t asked_ns;		/* atomic: earliest time of the next
					 * refresh by engine_segment_unresolved() */
};

#define ENGINE_ABSENT 1024 /* elements of absent_ns */

/* --- engine_segment.c ---------------------------------------------------- */
/* Returns the open segment with that id, or NULL. e->segments must be held. */
struct engine_segment *engine_segment_find(struct engine *e, segment_id_t id);
/* Attaches the transports to the own segment. Called again after the first GPU
 * memory was registered. */
void engine_segment_attach_own(struct engine *e);
/* Frees all segments and closes all local processes. No other thread may use
 * the engine. */
void engine_segment_free_all(struct engine *e);
/* Number of ids that one call of tei_meta_cache_ids lists. */
#define ENGINE_IDS 256
/* Returns true if the buffer is GPU memory. */
bool engine_segment_on_gpu(const struct tei_meta_buffer *b);
/* The data of segments in the cache; the argument is the engine. */
extern const struct tei_meta_cache_ops engine_segment_ops;
/* Queues a look-up of the name of a peer that does not answer. Takes ownership
 * of the reference to the peer. */
void engine_segment_resolve_later(struct engine *e, struct tei_rail_peer *peer);
/* Queues a read of a descriptor that the store has reported as changed. tries
 * is the number of failed attempts; each of them doubles the time that the next
 * attempt may take. */
void engine_segment_refresh_later(struct engine *e, const char *name,
				  uint32_t tries);

/*
 * Handles a request for which no transport reaches s, because the descriptor
 * was read before the process of s had rails. Without a store nothing reports
 * the change, so a worker reads the descriptor again, at most every
 * ENGINE_UNRESOLVED_NS. segments must be held.
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
 * Returns true if the local process n, which belongs to the segment id, has
 * ended. A worker thread then notifies the data plane, at most every
 * ENGINE_UNRESOLVED_NS. The caller must hold a reference to n, or e->segments.
 */
bool engine_segment_ended(struct engine *e, segment_id_t id,
			  struct engine_local_process *n);
/* Returns true if the segment with that name is open, belongs to that
 * incarnation, and its local process has ended. */
bool engine_segment_ended_as(struct engine *e, const char *name,
			     uint64_t incarnation);
/* Re-evaluates the local path of all segments after local copies or file
 * segments were switched on or off. */
void engine_segment_reevaluate(struct engine *e);
/* Waits until no segment and no task uses a local process any more, after local
 * copies were switched off. Returns false if a local process is still used at
 * until_ns. */
bool engine_segment_drain(struct engine *e, uint64_t until_ns);

/* --- engine_target.c ------------------------------------------------------ */
/* Fills *t for the segment id, unless *t was filled for this id before.
 * e->segments must be held. Returns 0 or the code of submitTransfer. */
int engine_target_set(struct engine *e, segment_id_t id,
		      struct engine_target *t);
/* Returns true if the target's memory at addr is GPU memory. */
bool engine_target_gpu(const struct engine_target *target, uint64_t addr);
/* Returns true if the range includes GPU memory that no rail of the target has
 * a key for: it is reached through remote bounce slots. */
bool engine_target_needs_slot(const struct engine_target *target, uint64_t addr,
			      uint64_t len);

/* --- engine_local.c: identities for copies inside a host ----------------- */

/* Writes the local identity for the descriptor. If there is a shared secret, a
 * keyed hash follows the identity. */
int engine_local_format(struct engine *e, const struct tei_local_id *id,
			char *out, size_t len);
/*
 * The reason why local copies cannot reach a peer: one of these values, or one
 * of enum tei_local_reason. 0 means that local copies reach the peer, or were
 * not tried.
 */
enum engine_not_local {
	ENGINE_NOT_LOCAL_SECRET_THERE = 100, /* only the peer has a secret */
	ENGINE_NOT_LOCAL_SECRET_HERE,	     /* only this process has a
					      * secret */
	ENGINE_NOT_LOCAL_SECRET_OTHER,	     /* the secrets differ */
	ENGINE_NOT_LOCAL_UNREADABLE,	     /* the identity is malformed */
};
/* Returns the reason in words, or "" for 0. */
const char *engine_local_why(int not_local);
/* Parses the local identity in a descriptor. Returns 0 or a value of enum
 * engine_not_local. */
int engine_local_parse(struct engine *e, const char *text,
		       struct tei_local_id *out);

/* --- engine_addr.c ------------------------------------------------------- */
/* engine_addr_pack converts an address of the data plane to the form in a
 * descriptor. engine_addr_unpack converts it back; it returns false if there is
 * no address. */
void engine_addr_pack(const struct tei_rail_addr *in,
		      struct tei_meta_address *out);
bool engine_addr_unpack(const struct tei_meta_address *in,
			struct tei_rail_addr *out);

/* --- engine_traffic.c ---------------------------------------------------- */
/* Counts a copy that has ended. Must be called before the status of the task is
 * published. */
void engine_traffic_count(struct engine_traffic *t, bool read, uint64_t bytes,
			  int status);

/* --- engine_paths.c ------------------------------------------------------ */
/* Fills *s. paths is NULL or has TEI_RAIL_MAX elements; their rank and the flag
 * TE_PATH_CONNECTED are not set. Returns false if the id is not open. */
bool engine_peer_stats(struct engine *e, segment_id_t id,
		       struct te_peer_stats *s, struct te_path *paths,
		       size_t *npaths);

#endif /* TEI_API_ENGINE_SEGMENT_H */
