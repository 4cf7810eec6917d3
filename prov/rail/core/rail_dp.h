/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_DP_H
#define TEI_PROV_RAIL_CORE_RAIL_DP_H

/*
 * The data plane object and its locks. docs/GLOSSARY.md defines the terms,
 * docs/LOCKING.md the order in which dp->admin, lane->lock and dp->sched are
 * acquired.
 *
 * In comments on fields, "thread:" marks a field that only the progress thread
 * uses, "atomic:" a field that is also read without the lock that guards its
 * changes, and "fixed:" a field that never changes after initialization. A
 * comment on a function that ends with "Progress thread." says that only this
 * thread may call the function.
 *
 * Only the progress thread runs the control state machines (hello, keys, fence,
 * revocation). dp->sched guards those fields of the state machines that other
 * threads read.
 */

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/tei_rail.h"
#include "util/heap.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/range.h"
#include "util/secret.h"
#include "util/world.h"

struct rail;
struct rail_lane_threads;
struct rail_notify_memory;
struct rail_slice_chunk;

#define RAIL_FAILED_MAX		8	/* limit of the remembered names of
					 * devices that could not be opened; the
					 * failure of a remembered device is not
					 * logged again */

/*
 * Limits the memory of the notifications that are queued for the owner of the
 * data plane or are being assembled. Guarded by dp->sched.
 */
struct rail_notify_budget {
	uint64_t bytes;			/* bytes of notifications that are
					 * queued or being assembled, and of
					 * those for which memory has been
					 * reserved */
	uint32_t notes;
	struct tei_list parts;		   /* notification assemblies
					    * (rail_notify_part.link); the first
					    * one has waited longest for a
					    * fragment */
	struct tei_list waiting;	   /* peers that wait until memory can
					    * be reserved for a notification
					    * (rail_notify_recv.wait_link); the
					    * first one has waited longest */
	struct rail_notify_memory *memory; /* remembered sessions of peers whose
					    * objects have been freed
					    * (rail_notify_recv.c), or NULL */
	bool shut;			   /* tei_rail_notify_stop was called:
					    * no caller waits any longer until a
					    * notification is acknowledged */
	bool closed;			/* set by tear-down: memory is no longer
					 * reserved for waiting peers */
	struct tei_log_repeat full_repeat;
	struct tei_log_limit lost_limit;
};

#define RAIL_PEER_HASH	1024

/* Counts the polls by callers. Approximate: if two callers poll at once, one of
 * them may not be counted. All fields are atomic. */
struct rail_polls {
	uint64_t calls;
	uint64_t took_ns;		/* total duration of all counted polls,
					 * ns */
	uint64_t since_ns;		/* start of the poll in progress; 0 if
					 * there is none */
};

/* What the owner of the data plane has chosen. Fixed, except next_port. */
struct rail_dp_conf {
	bool signs;			/* messages to peers are signed with a
					 * shared secret */
	bool back;			/* reverse-path sends are
					 * wanted (rail_reverse.c) */
	bool reports;			/* the totals of moved bytes are
					 * reported to the peers
					 * (rail_served.h) */
	uint64_t info_flags;		/* flags of the calls of fi_getinfo */
	uint16_t port;			/* port of the first rx lanes; 0 means
					 * any port */
	uint32_t lanes;			/* largest number of tx lanes of a rail,
					 * with the extra lanes
					 * (conn/rail_width.h) */
	uint32_t next_port;		/* atomic: counter that selects the next
					 * port of MOONRAIL_DATA_PORTS to try */
	struct tei_mac_key auth;
};

/*
 * The progress thread, how it is woken, and how it sleeps. The thread calls the
 * step of the progress loop repeatedly (struct tei_loop). A simulated world
 * calls the step without a thread. Atomic, except "loop" and "cpus".
 */
struct rail_dp_thread {
	struct tei_loop loop;
	cpu_set_t cpus;			/* CPUs on which the progress threads
					 * may run; valid only if
					 * MOONRAIL_PROGRESS_CPUS is set */
	bool stop;			/* atomic: the thread must end */
	bool no_callbacks;		/* atomic: ops->resolve,
					 * ops->rails_changed and
					 * ops->devices_changed are
					 * no longer called */
	uint64_t rests_ns;		/* time at which the progress thread's
					 * current long sleep ends, ns; 0 if the
					 * thread is not in a long sleep */
	bool trusts;			/* the progress thread sleeps and leaves
					 * the lanes to callers that poll
					 * (application-driven progress) */
};

/* The devices of this host. Guarded by dp->admin, except wants. */
struct rail_dp_devices {
	uint32_t wants;			/* atomic: bits TEI_RAIL_WANTS_…: what
					 * the providers of the rails require */
	struct {			/* guarded by admin: names of devices
					 * that could not be opened; their
					 * repeated failures are not logged */
		char name[RAIL_FAILED_MAX][64];
		uint32_t n;
	} failed;
	uint64_t seen;			/* guarded by admin: hash of the list of
					 * interfaces at the last call of
					 * tei_rail_dp_devices_changed */
	bool warned_full;		/* guarded by admin: a refresh has
					 * logged that no further rail can be
					 * added */
};

/* The registered regions. Guarded by dp->sched. */
struct rail_dp_memory {
	struct tei_range_table mrs; /* regions, sorted by address
				     * (tei_rail_mr.range); changed only while
				     * dp->admin is held in addition to
				     * dp->sched */
	struct tei_list revoking;   /* regions whose keys are being revoked
				     * (tei_rail_mr.revoking) */
	uint64_t next_id;
	uint32_t key_epoch;		/* incremented by every revocation */
	uint32_t nfencing;		/* atomic: number of regions that wait
					 * for a fence */
};

/* The peers. Guarded by dp->sched; nresolvers is atomic. */
struct rail_dp_peers {
	uint64_t sessions;		/* number of the newest session that
					 * this process has given to a peer */
	uint32_t table;			/* version of the local rail table */
	struct tei_list list;		/* list of all peers; roughly, those
					 * that have been silent longest come
					 * first */
	uint32_t n;
	struct tei_log_limit limit;
	uint32_t nunauthenticated;	/* number of unauthenticated peers,
					 * which "n" does not count */
	uint32_t unauthenticated_ever;
	uint64_t unauthenticated_next_ns;
	struct tei_list hash[RAIL_PEER_HASH];
	struct tei_list attn;		/* peers whose control state machines
					 * must run now (attention list) */
	struct tei_heap timed;		/* peers whose control state machines
					 * must run at a later time
					 * (tei_rail_peer.timed), the earliest
					 * first */
	uint64_t attn_next_ns;		/* atomic: time at which the next
					 * peer in attn or timed is due */
	uint32_t nresolvers;		/* number of resolvers */
};

/* Time limits. Fixed, but unit tests change them. */
struct rail_dp_times {
	uint64_t bye_ns;		/* time limit of sending BYE to all
					 * peers; afterwards, tear-down waits
					 * for at most the same time until the
					 * messages have been sent */
	uint64_t stuck_ns;		/* a task that names a rail may use any
					 * rail after this time without progress
					 * of the task and of the named rail */
	uint64_t probe_ns;		/* silence after which an unused peer is
					 * pinged; the peer is dropped after
					 * another third of this time */
};

/* The tasks and slices of all peers. Guarded by dp->sched, except "turn" and
 * "use_next_ns", which are atomic. */
struct rail_dp_tasks {
	struct tei_list active;		/* list of the peers with slices to post
					 * (active list) */
	uint32_t nactive;		/* atomic: number of entries of
					 * "active" */
	struct tei_list recent;		/* peers (tasks.recent_link) that have
					 * unfinished tasks, and peers to which
					 * tasks were submitted since the last
					 * check of the reports of moved
					 * bytes */
	bool stirred;			/* tasks were submitted since the last
					 * check of the progress thread */
	uint64_t bulk_left;		/* bytes of bulk requests not yet cut */
	struct tei_list wide;		/* rail pairs that use extra lanes
					 * (rail_width.link) */
	uint32_t nlive;			/* atomic: number of unfinished tasks of
					 * all peers */
	uint32_t nheld;			/* atomic: number of tasks that are
					 * unfinished, or finished but not yet
					 * handed back to the caller */
	struct tei_list slices;		/* list of free slices */
	struct rail_slice_chunk *chunks;
	uint32_t turn;			/* counter; modulo the number of rails,
					 * it is the index of the rail that is
					 * offered work first */
	uint64_t use_next_ns;		/* atomic: earliest time of the next
					 * search for tx lanes to be opened, if
					 * the last one has found none
					 * (rail_use_for_tasks) */
};

/*
 * The faults of rail pairs, and the times of the checks. dp->sched guards
 * faults and probe_seq; open_ns, nfaults, soon, reopened and widened are
 * atomic; the
 * others belong to the progress thread.
 */
struct rail_dp_health {
	struct tei_list faults;		/* list of struct rail_fault
					 * (rail_pair.h) */
	uint64_t probe_seq;		/* number of the newest probe */
	uint64_t open_ns;		/* estimate of the time that opening a
					 * lane takes, ns */
	uint32_t nfaults;
	bool soon;			/* a probe was answered, so the health
					 * checks must run soon */
	bool reopened;			/* a lane was reopened, and the progress
					 * thread has not handled this yet */
	bool widened;			/* extra lanes may have to be opened */
	uint64_t checked_ns;		/* time of the last health check */
	uint64_t silent_next_ns;	/* earliest time of the next call of
					 * rail_renew_silent */
	uint64_t probe_next_ns;
	uint32_t probing;		/* number of rails whose probe endpoint
					 * is open */
};

/* The events of network links. The progress thread only. */
struct rail_dp_link {
	int fd;				/* file descriptor that reports link
					 * changes, or -1 */
	uint64_t next_ns;		/* time of the next check of links that
					 * are down */
	uint64_t devices_next_ns;	/* if fd is -1: time of the next call of
					 * ops->devices_changed */
};

/* The callers that poll or sleep. Atomic. */
struct rail_dp_callers {
	struct rail_polls polls;	/* polls of tx lanes by callers */
	struct rail_polls rx_polls;	/* polls that included the rx lanes */
	uint32_t app_driving;		/* number of callers that poll in a
					 * loop */
	uint32_t dozing;		/* number of callers that sleep until
					 * tasks end */
};

/* The off-route connections (conn/rail_cache.c). */
struct rail_dp_off_route {
	bool any;			/* an off-route connection may have a
					 * place in an endpoint cache */
	uint64_t tidy_ns;		/* earliest time of the next check of
					 * off-route connections, ns */
};

/* A data plane. Created by tei_rail_dp_open, freed by tei_rail_dp_close. */
struct tei_rail_dp {
	/* fixed */
	const struct tei_settings *settings;
	const struct tei_rail_ops *ops;
	void *arg;
	uint64_t incarnation;
	char name[256];
	struct rail_dp_conf conf;
	struct tei_rail_mr *placeholder; /* placeholder region for unregistered
					  * local memory, or NULL */
	struct rail_dp_devices devices;
	struct rail_dp_thread thread;
	struct rail_lane_threads *lane_threads; /* fixed; NULL if the data plane
						 * never has more than one
						 * progress thread */

	struct tei_mutex admin;		/* mutex that is held while rails are
					 * opened and memory is registered */
	struct rail *rails[TEI_RAIL_MAX]; /* an entry never changes
					   * once it is set */
	uint32_t nrails;		/* atomic: number of entries of
					 * "rails" */
	const struct tei_topo *topo;	/* topology of the host; guarded by
					 * admin */

	struct tei_mutex sched;		/* guards the fields below */
	struct rail_dp_memory memory;
	struct rail_dp_peers peers;
	pthread_cond_t cond;		/* signaled when a revocation, a warm-up
					 * or a drain may be complete */
	struct rail_dp_times times;
	struct rail_dp_tasks tasks;
	struct rail_dp_health health;
	struct rail_notify_budget notes;

	/* atomic: */
	struct rail_dp_callers callers;
	struct rail_dp_off_route off_route;

	/* thread: */
	struct rail_dp_link link;
};

/*
 * Stands for dp->sched in clang's lock analysis, which cannot see that peer->dp
 * and lane->rail->dp are one object. Used in annotations only, never defined.
 */
extern struct tei_mutex rail_sched_held;

static inline void rail_sched_enter(struct tei_rail_dp *dp)
	TEI_ACQUIRE(rail_sched_held) TEI_NO_TSA
{
	tei_mutex_lock(&dp->sched);
}

static inline void rail_sched_leave(struct tei_rail_dp *dp)
	TEI_RELEASE(rail_sched_held) TEI_NO_TSA
{
	tei_mutex_unlock(&dp->sched);
}

/* Waits on dp->cond for up to timeout_ns. */
static inline void rail_sched_wait(struct tei_rail_dp *dp, uint64_t timeout_ns)
	TEI_REQUIRES(rail_sched_held) TEI_NO_TSA
{
	tei_mutex_wait(&dp->cond, &dp->sched, timeout_ns);
}

/* Makes the progress thread run the peers' state machines and its checks soon.
 * Any thread. */
void rail_progress_wake(struct tei_rail_dp *dp);

/* Wakes the progress thread from a long sleep, because something was posted and
 * must be checked for stalls. Any thread. */
void rail_progress_stir(struct tei_rail_dp *dp);

/* Wakes the threads that wait on dp->cond. */
void rail_progress_signal(struct tei_rail_dp *dp);

/* Records the start of a poll by a caller. */
static inline void rail_polls_begin(struct rail_polls *polls, uint64_t now)
{
	__atomic_store_n(&polls->since_ns, now, __ATOMIC_RELAXED);
}

/* Counts a poll without adding to the total duration. */
static inline void rail_polls_count(struct rail_polls *polls)
{
	uint64_t calls = __atomic_load_n(&polls->calls, __ATOMIC_RELAXED);

	__atomic_store_n(&polls->calls, calls + 1, __ATOMIC_RELAXED);
}

/* Counts a poll that began at time `from` and ended at time `now`. */
static inline void rail_polls_end(struct rail_polls *polls, uint64_t from,
				  uint64_t now)
{
	uint64_t took = __atomic_load_n(&polls->took_ns, __ATOMIC_RELAXED);

	rail_polls_count(polls);
	__atomic_store_n(&polls->took_ns, took + now - from, __ATOMIC_RELAXED);
	__atomic_store_n(&polls->since_ns, 0, __ATOMIC_RELAXED);
}

#endif /* TEI_PROV_RAIL_CORE_RAIL_DP_H */
