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
/* An installed transport; its address is the handle. */
struct engine_transport {
	struct engine *engine;
	char name[16];
	char proto[16];			/* name passed to installTransport */
	const struct engine_transport_ops *by;
	bool installed;			/* engine->control */
};

struct engine_transport_ops;

/* Devices that appear later; engine->control. */
struct engine_devices {
	uint32_t tries; /* refreshes since the devices changed */
	bool again;	/* the last refresh was not complete */
};

/* Created by createTransferEngine, freed by destroyTransferEngine. */
struct engine {
	/* constant after creation */
	struct tei_settings settings;
	char name[TEI_META_NAME_MAX];	/* of the own segment */
	uint64_t incarnation;
	uint32_t fork_gen;
	struct tei_meta_store *store;
	struct tei_meta_server *server;
	struct tei_meta_cache *cache;
	struct tei_rail_dp *dp;
	struct tei_local *local;

	struct tei_nvmeof *nvmeof;	/* atomic: set once, under control */
	struct tei_gpu *gpu;		/* atomic, as nvmeof; or NULL */
	struct tei_staging *staging;
	struct engine_bounces *bounces; /* constant after creation */

	struct tei_mutex control;	/* set-up calls; guards the members
					 * below down to left_next */
	struct engine_transport transports[ENGINE_TRANSPORTS];
	struct tei_topo *topo;		/* used by the data plane */
	char *matrix;			/* topology JSON of installTransport */
	struct engine_devices devices;
	bool host_fixed;		/* constant: the control channel does
					 * not follow interface addresses */
	struct engine_memory memory;
	struct engine_listing listing;
	bool graceful;			/* closed on a signal; set once */
	struct engine *left_next;	/* next in the list of engine_shutdown.c */

	bool local_on;			/* atomic: kernel copies allowed */
	bool files_on;			/* atomic: file segments allowed */
	struct engine_traffic own;	/* copies inside this process */

	pthread_rwlock_t segments;
	struct engine_vias own_vias;	   /* segments: of the own segment */
	uint64_t absent_ns[ENGINE_ABSENT]; /* atomic: earliest time of
					    * the next read by
					    * engine_segment_absent() */

	struct engine_processes processes;
	struct engine_slots slots;
	struct engine_prepared_table prepared;
	struct tei_log_limit bad_limit;
	struct engine_waits waits;
	struct engine_events events;
	struct engine_timers *timers;	/* constant */
	struct engine_notes notes;
	struct engine_works *works;	/* constant */
};

/* --- engine_handle.c ------------------------------------------------------ */
/* Returns the engine of a handle. Returns NULL and sets the thread's last error
 * if the handle is NULL, stale or unknown, or is used in a child after
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

/* --- engine.c ------------------------------------------------------------ */
/* Drains the engine, withdraws its descriptor, says BYE to the peers and stops
 * the threads. Frees nothing. For a process that is about to end; the caller
 * has removed the handle. */
void engine_leave(struct engine *e);

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

/* --- engine_abi.c -------------------------------------------------------- */
/* Copies the library's struct of len bytes to the caller's of size bytes. Fills
 * bytes of the caller's struct beyond ours with 0. */
void engine_out(void *out, size_t size, const void *ours, size_t len);
/* Converts an error record; in NULL means no error. */
void engine_error_out(const struct tei_err *in, uint32_t flags,
		      struct te_error *out, size_t size);

/* --- engine_report.c ----------------------------------------------------- */
/* Returns the statistics as JSON; a tei_meta_report_fn, arg is the engine. */
char *engine_report(void *arg);
/* Returns the text of showLinks, as JSON or for people; the caller frees it.
 * Returns NULL if memory is short. */
char *engine_links(struct engine *e, bool json);

/* --- engine_stats.c ------------------------------------------------------ */
/* Returns the name of an enum te_rail_state. */
const char *engine_rail_state(uint32_t state);

#endif /* TEI_API_ENGINE_INT_H */
