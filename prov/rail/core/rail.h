/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_H
#define TEI_PROV_RAIL_CORE_RAIL_H

/* Rails: local NICs, with their libfabric objects, lanes and counters. */

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/core/rail_fence_state.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/tei_rail.h"
#include "util/err.h"
#include "util/list.h"
#include "util/log.h"

struct rail_cache;
struct rail_conn;
struct tei_err;

#define RAIL_TX_MSGS		32	/* number of send buffers of a rail */
#define RAIL_TX_SIZE		((size_t)RAIL_TX_MSGS * RAIL_MSG_MAX)

/*
 * A lane that an opener thread opens while the progress thread continues its
 * work (rail_reopen.c). Embedded in the rail. Used by the progress thread and
 * by tear-down, which runs on another thread; lane.lock keeps the two apart.
 */
struct rail_opening {
	uint32_t use;			/* atomic; used only in rail.next_tx:
					 * whether the tx lane was ever opened
					 * (enum rail_lane_use) */
	struct rail_lane lane;		/* the new lane; the opener thread holds
					 * lane.lock while it opens the lane */
	struct rail_lane *place;	/* closed lane that the new lane will
					 * replace */
	pthread_t opener;
	bool started;			/* the thread `opener` was started and
					 * has not been joined yet */
	bool under_way;			/* atomic: the opening has begun, and
					 * the progress thread has not collected
					 * its result yet */
	bool over;			/* atomic: the opener thread has
					 * finished: the lane is open, or the
					 * opening has failed */
	struct tei_err err;		/* if the opening has failed: the
					 * error */
};

/* States of a rail's contact address: which endpoint listens there
 * (rail_contact_lane.c). */
enum rail_contact_lane_state {
	RAIL_CONTACT_LANE_LEFT,	  /* no endpoint listens there, and none must be
				   * opened */
	RAIL_CONTACT_LANE_TARGET, /* the first rx lane of the rail listens
				   * there */
	RAIL_CONTACT_LANE_WANTED, /* no endpoint listens there yet: the contact
				   * lane must be opened */
	RAIL_CONTACT_LANE_HELD,	  /* the contact lane listens there */
	RAIL_CONTACT_LANE_TAKEN, /* another process listens there; the opening
				  * of the contact lane is retried */
};

/* A send buffer of a rail: it holds one message. dp->sched guards the free
 * list. */
struct rail_tx {
	struct rail_op op;
	struct tei_list link;
	struct rail *rail;
	struct rail_lane *lane;		/* lane on which the buffer is posted,
					 * or NULL */
	struct rail_conn *conn;		/* connection that carries the message
					 * and counts it in conn->msgs, or
					 * NULL */
	uint64_t incarnation;		/* incarnation of the receiving peer */
	uint16_t remote;		/* remote rail to which the message is
					 * sent: index into peer->remotes */
	uint8_t *buf;
};

/*
 * The network device of a rail. Fixed after opening, except addr_gone and
 * ifindex.
 */
struct rail_nic {
	char provider[32];
	char transport[16];
	char pci[32];
	int numa;
	uint64_t speed_bps;
	uint8_t prefix;			/* prefix length of the rail's IP
					 * address, bits */
	struct tei_rail_addr own;	/* contact address of the rail: the
					 * address of its first rx lane. The
					 * other lanes have addresses in the
					 * same network */
	bool fallback;			/* opened only because no better device
					 * was found (struct rail_found) */
	bool unlogged;			/* a failure to open the rail is not
					 * logged */
	bool addr_gone;			/* guarded by dp->admin: at the last
					 * refresh, no interface had the rail's
					 * IP address */
	uint32_t ifindex;		/* index of the rail's interface; 0 if
					 * there is none. An interface that is
					 * deleted and created again has a new
					 * index */
	bool wire;			/* fixed: the rail is on an IP network
					 * other than loopback */
};

/*
 * The libfabric objects of a rail. Fixed after opening, except those of the
 * contact lane.
 */
struct rail_fab {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *tx_domain;	/* domain of each tx lane that has no
					 * domain of its own */
	struct fid_domain *rx_domain;	/* domain of the rx lane. It is also the
					 * tx_domain if registering memory twice
					 * is costly, or if the rail can access
					 * GPU memory */
	uint64_t mr_mode;
	struct fid_fabric *contact_fabric; /* fabric of the contact lane;
					    * guarded, like contact_domain, by
					    * contact.opening.lane.lock */
	struct fid_domain
		*contact_domain;	/* domain of the contact lane; memory
					 * that peers access is never registered
					 * in it */
};

/* What the provider of a rail can do. Fixed after opening, except mr_shift. */
struct rail_caps {
	bool back;			/* the tx lanes also receive user
					 * messages, which peers send over the
					 * reverse path (rail_reverse.c) */
	bool hmem;			/* the rail can access GPU memory */
	const char *no_hmem;		/* reason why the rail cannot access GPU
					 * memory, or NULL */
	uint32_t tx_depth;		/* limit of the number of slices that
					 * are posted on one lane */
	uint64_t max_slice;		/* largest operation that the provider
					 * accepts, bytes */
	uint8_t mr_shift;		/* guarded by dp->admin: log2 of the
					 * largest registration, bytes, that the
					 * device has accepted after it had
					 * refused a larger one; 0 if it has
					 * refused none */
	uint32_t iov_limit, rma_limit;	/* limits of the local and of the remote
					 * iov entries of one operation, at
					 * least 1 */
};

/* The send buffers of a rail. dp->sched guards the free list. */
struct rail_send {
	struct rail_tx bufs[RAIL_TX_MSGS];
	void *mem;
	struct fid_mr *mr;
	struct tei_list free;
	uint32_t left;			/* number of buffers in the list
					 * "free" */
};

/* The window of a rail and its measured rate. All members are atomic. */
struct rail_load {
	uint64_t inflight_max, window;
	uint64_t window_max;
	uint64_t stuck;			/* bytes of slices that were posted at
					 * least WINDOW_STUCK_NS ago and have
					 * not completed */
	uint64_t stuck_bulk;		/* stuck bytes that are bulk data */
	uint64_t base_ns;		/* shortest time in which a slice that
					 * was alone on a lane has completed,
					 * ns; 0 if unknown */
	uint64_t rate_bps;		/* service rate, bytes/s */
	uint64_t free_bps;		/* service rate while not
					 * throttled, bytes/s */
	bool throttled;			/* bulk data was throttled on the rail
					 * since the last measurement of
					 * free_bps */
	uint32_t lanes;			/* number of tx lanes that take bulk
					 * data at present: rail.nbase, or more
					 * while a rail pair uses extra lanes */
};

/*
 * The accounting of bulk data on a rail (sched/rail_slice.c). Guarded by
 * dp->sched.
 */
struct rail_bulk {
	uint64_t bytes;			/* bytes of bulk data in slices that
					 * were cut and have neither completed
					 * nor failed */
	uint32_t throttled_left;	/* number of further bulk slices for
					 * which the rail stays throttled */
	uint64_t throttled_part;	/* bytes of bulk data cut since
					 * throttled_left was last reduced */
	uint32_t turn;			/* number of the current
					 * accounting round, from 1 */
	uint32_t participants,
		participants_before;	/* number of connections that took bulk
					 * data in this accounting round, and in
					 * the one before */
	uint64_t taken;			/* bytes of bulk data cut in this
					 * accounting round */
	uint64_t turn_ns;		/* start of the accounting round, ns:
					 * the last completion of the lane that
					 * cut the round's first slice */
};

/*
 * The state of a rail and of its link. Atomic; fields marked "thread" belong
 * to the progress thread.
 */
struct rail_link {
	uint32_t state;			/* state of the rail: enum
					 * te_rail_state */
	bool down;			/* the rail's network interface has no
					 * carrier */
	char lost_text[TEI_ERR_TEXT], lost_hint[TEI_ERR_TEXT];
					/* guarded by dp->sched: if "lost" is
					 * true: the error of the last failed
					 * opening of a tx lane, or "" */
	bool lost;			/* an endpoint of the rail could not be
					 * opened, or not be opened again */
	uint32_t away;			/* number of tx lanes that were retired
					 * and not yet replaced by an open lane,
					 * or whose first opening has failed;
					 * extra lanes are not counted */
	uint64_t changes;
	uint64_t lost_next_ns;		/* thread: time of the next attempt to
					 * open lanes that could not be
					 * opened */
	uint64_t stuck_ns;		/* thread: time at which a lane was last
					 * retired because a connection was
					 * stuck */
	bool extra_failed;		/* thread: an extra lane could not be
					 * opened: its borrowed places must be
					 * returned, and the opening must be
					 * tried again if the lane is needed */
};

/* The contact lane of a rail (conn/rail_contact_lane.c). */
struct rail_contact_lane {
	struct rail_opening opening;	/* the contact lane, which stays in this
					 * object after it has been opened
					 * (rail_contact_lane.c) */
	uint32_t state;			/* which endpoint listens: enum
					 * rail_contact_lane_state */
	uint64_t next_ns;		/* thread: time of the next attempt in
					 * state TAKEN */
	uint32_t tries;			/* thread: failed attempts since the
					 * contact lane was last opened */
};

/* The endpoint of the probes of a rail (health/rail_probe.c). */
struct rail_probe {
	struct rail_opening opening;	/* the lane of the probes, which stays
					 * in this object after it has been
					 * opened (rail_probe.c) */
	uint64_t begin_ns;		/* thread: start of
					 * the round of probes */
	uint64_t end_ns;		/* thread: end of the round that began
					 * at begin_ns; if 0, the endpoint has
					 * just been opened and no round has
					 * begun */
	bool active;			/* thread: the probe endpoint
					 * is open or opening */
};

/* Failures on a rail: atomic counters, and rate limits of the log lines about
 * these failures. */
struct rail_errors {
	uint64_t retries, errors;
	struct tei_log_limit limit;
	struct tei_log_repeat repeat;
};

/*
 * One local NIC. Created by tei_rail_dp_add_transport, freed by
 * tei_rail_dp_close. A closed rail keeps its index.
 */
struct rail {
	/* fixed after opening */
	struct tei_rail_dp *dp;
	uint16_t index;
	char name[64];
	struct rail_nic nic;
	struct rail_fab fab;
	struct rail_caps caps;

	struct rail_lane *tx_lanes;	/* array of the tx lanes: [ntx *
					 * RAIL_LANE_SLOTS] */
	struct rail_cache *cache;	/* array of the endpoint caches, one for
					 * each lane number: [ntx] */
	uint32_t ntx;
	uint32_t nbase;			/* number of tx lanes for all traffic.
					 * The others are the extra lanes
					 * (conn/rail_width.h), which are open
					 * only while they are needed */
	struct rail_lane rx_lane;
	enum rail_fence_rx_state fence_state; /* thread: state of the fence of
					       * the rx lane */
	struct rail_opening next_rx;
	struct rail_opening *next_tx;	/* array of the openings of tx lanes,
					 * one for each lane number: [ntx].
					 * "use" states whether the tx lane
					 * with this number was ever opened */
	struct rail_contact_lane contact;

	struct rail_send send;
	/* guarded by dp->sched */
	struct tei_list reverse_left;	/* list of the rail_reverse objects
					 * whose peers have been freed */
	struct rail_bulk bulk;

	/* atomic: */
	bool open;
	bool hidden;			/* another rail has replaced this one:
					 * only peers that already know this
					 * rail still use it. Set under
					 * dp->sched */
	struct rail_link link;
	struct rail_load load;
	struct rail_errors errors;
	struct rail_probe probe;
};

/* Returns true if the rail is published: it is open, and no other rail has
 * replaced it. */
static inline bool rail_published(const struct rail *rail)
{
	return __atomic_load_n(&rail->open, __ATOMIC_ACQUIRE) &&
	       !__atomic_load_n(&rail->hidden, __ATOMIC_ACQUIRE);
}

/* Returns true if the tx lane takes new slices at present, provided that it is
 * active. */
static inline bool rail_lane_takes(const struct rail_lane *lane)
{
	return lane->index <
	       __atomic_load_n(&lane->rail->load.lanes, __ATOMIC_RELAXED);
}

/* Returns the rail at index `index` of dp->rails. */
struct rail *rail_at(struct tei_rail_dp *dp, uint32_t index);

/* Returns the number of rails, including closed ones. */
uint32_t rail_count(struct tei_rail_dp *dp);
bool rail_any_open(struct tei_rail_dp *dp);

/* rail_posted_bytes returns the number of bytes that are posted now on all tx
 * lanes of the rail. rail_moved returns the number of slices that these lanes
 * have completed since the rail was opened. Both results are approximate. Any
 * thread. */
uint64_t rail_posted_bytes(const struct rail *rail);
uint64_t rail_moved(const struct rail *rail);

/* Returns true if a slice is posted on any rail. Approximate, because the
 * function takes no lock. Any thread. */
bool rail_posted_any(struct tei_rail_dp *dp);

#endif /* TEI_PROV_RAIL_CORE_RAIL_H */
