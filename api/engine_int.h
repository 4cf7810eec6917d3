/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_INT_H
#define TEI_API_ENGINE_INT_H

/*
 * The engine implements the Mooncake API with the metadata store, the rails,
 * local copies, files and GPU memory.
 *
 * docs/LOCKING.md states the order of the locks. A submission holds the lock of
 * its batch, and engine->segments for reading.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "moonrail.h"
#include "transfer_engine_c.h"

#include "api/engine_batch.h"
#include "api/engine_notify.h"
#include "api/engine_prepared.h"
#include "api/engine_regions.h"
#include "api/engine_segment.h"
#include "api/engine_wait.h"
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

struct engine_bounces;
struct tei_topo;
struct tei_topo_where;

#define ENGINE_TRANSPORTS 5
/* An installed transport. installTransport returns its address as the
 * handle. */
struct engine_transport {
	struct engine *engine;
	char name[16];
	char proto[16]; /* name that was passed to
			 * installTransport */
	const struct engine_transport_ops *by;
	bool installed; /* the transport is switched on; guarded by
			 * engine->control */
};

struct engine_transport_ops;

/* State of the search for network devices that appear while the engine runs.
 * Guarded by engine->control. */
struct engine_devices {
	uint32_t tries; /* number of incomplete refreshes since the devices have
			 * last changed */
	bool again;	/* the last refresh was incomplete and must be
			 * repeated */
};

/* An engine. Created by createTransferEngine or te_engine_create, freed by
 * destroyTransferEngine. */
struct engine {
	/* the members down to `local` do not change after the creation */
	struct tei_settings settings;
	char name[TEI_META_NAME_MAX]; /* name of the own segment */
	uint64_t incarnation;
	uint32_t fork_gen;
	struct tei_meta_store *store;
	struct tei_meta_server *server;
	struct tei_meta_cache *cache;
	struct tei_rail_dp *dp;
	struct tei_local *local;

	struct tei_nvmeof *nvmeof; /* atomic: set once, with control held; NULL
				    * if the transport for file segments was
				    * never installed */
	/*
	 * atomic: set once, with control held; NULL if no GPU memory was
	 * registered
	 */
	struct tei_gpu *gpu;
	struct tei_staging *staging;
	struct engine_bounces *bounces; /* does not change after creation */
	struct tei_mutex merged; /* guards the merged tasks
				  * (engine_merged.h) */

	struct tei_mutex control;	/* held by set-up calls, such as a
					 * registration; guards the members
					 * below down to left_next */
	struct engine_transport transports[ENGINE_TRANSPORTS];
	struct tei_topo *topo; /* topology that the data plane uses */
	/*
	 * topology in JSON: the argument of installTransport or the content of
	 * the file MC_CUSTOM_TOPO_JSON; NULL: neither was given
	 */
	char *matrix;
	struct engine_devices devices;
	/*
	 * does not change; true: the control channel keeps its address when the
	 * network interfaces change
	 */
	bool host_fixed;
	struct engine_memory memory;
	struct engine_listing listing;
	bool graceful;			/* the engine is shut down at a signal
					 * or at a normal exit; set once */
	struct engine *left_next;	/* next element of shutdown_left in
					 * engine_shutdown.c */

	bool local_on;		   /* atomic: copies between processes are
				    * allowed */
	bool files_on;		   /* atomic: file segments are allowed */
	struct engine_traffic own; /* counters of the copies inside this
				    * process */

	struct tei_rwlock segments;
	struct engine_vias own_vias;	   /* transports that reach the own
					    * segment; guarded by segments */
	/*
	 * atomic: earliest time at which engine_segment_absent() may read a
	 * descriptor again, by segment id; several ids share an element
	 */
	uint64_t absent_ns[ENGINE_ABSENT];

	struct engine_processes processes;
	struct engine_slots slots;
	struct engine_prepared_table prepared;
	struct tei_log_limit bad_limit;
	struct engine_waits waits;
	struct engine_events events;
	struct engine_timers *timers; /* does not change */
	struct engine_notes notes;
	struct engine_works *works; /* does not change */
};

/* --- engine_handle.c ------------------------------------------------------ */
/* Returns the engine of a handle. Returns NULL and sets the thread's last error
 * if the handle is NULL, stale or unknown, or is used in a child after
 * fork. */
struct engine *engine_from(transfer_engine_t handle);
/*
 * Reports an invalid argument of the public call "call": sets the thread's last
 * error and logs it, at a limited rate. "what" describes the error; NULL means
 * "an argument is NULL, empty or out of range". If e is NULL, does nothing,
 * because engine_from has reported the error. Returns -1.
 */
int engine_bad(struct engine *e, const char *call, const char *what);
/* Returns the deadline of a request to a store or a peer that begins now
 * (MC_HANDSHAKE_CONNECT_TIMEOUT). */
uint64_t engine_deadline(const struct engine *e);
/* --- engine_handle.c: table of live handles ------------------------------- */
/* Adds a handle to the table. Returns 0, or TEI_ERR_TOO_MANY. */
int engine_handle_add(struct engine *e);
/* Removes a handle from the table. Returns false if the handle was not in the
 * table. */
bool engine_handle_remove(struct engine *e);
/* Returns true if the handle is that of a live engine. */
bool engine_handle_known(const void *handle);
/* Returns the fork generation of this process, which is higher in a child of
 * fork than in its parent. The child cannot use an engine of its parent,
 * because the engine has another fork generation. */
uint32_t engine_fork_gen(void);

/* --- engine.c ------------------------------------------------------------ */
/* Withdraws the engine's descriptor, waits for its tasks, sends BYE to the
 * peers and stops the threads. Frees nothing, because the process is about to
 * end. The caller has removed the handle. */
void engine_leave(struct engine *e);

/* --- engine_shutdown.c --------------------------------------------------- */
/*
 * Removes the handle of an engine that is to be destroyed. Returns false if
 * another thread has removed the handle before; that thread may free the engine
 * at any time. A graceful shutdown of the process waits until
 * engine_shutdown_leave is called with the value of *graceful.
 */
bool engine_shutdown_enter(struct engine *e, bool *graceful);
void engine_shutdown_leave(bool graceful);

/* --- engine_transport.c -------------------------------------------------- */
/* Installs the transports that match the devices of this host. */
int engine_auto_discover(struct engine *e, struct tei_err *err);
/* --- engine_devices.c ---------------------------------------------------- */
/* Queues a job that opens rails for new network devices. This is the callback
 * tei_rail_ops.devices_changed; arg is the engine. */
void engine_devices_changed(void *arg);

/* --- engine_abi.c -------------------------------------------------------- */
/* Copies the library's struct, which has len bytes, to the caller's struct of
 * "size" bytes. Fills the rest of the caller's struct with 0. */
void engine_out(void *out, size_t size, const void *ours, size_t len);
/* Converts an error record to the caller's te_error of "size" bytes. "flags"
 * are bits TE_ERROR_… that are set in addition. If "in" is NULL, writes a
 * record with code 0. */
void engine_error_out(const struct tei_err *in, uint32_t flags,
		      struct te_error *out, size_t size);

/* --- engine_report.c ----------------------------------------------------- */
/* Returns the statistics as JSON. This is a callback of type
 * tei_meta_report_fn; arg is the engine. */
char *engine_report(void *arg);
/* Returns the text of showLinks: JSON if json is true, otherwise readable
 * lines. The caller frees the text. Returns NULL if memory is short. */
char *engine_links(struct engine *e, bool json);

/* --- engine_stats.c ------------------------------------------------------ */
/* Returns the name of a value of enum te_rail_state, for example "up". */
const char *engine_rail_state(uint32_t state);

#endif /* TEI_API_ENGINE_INT_H */
