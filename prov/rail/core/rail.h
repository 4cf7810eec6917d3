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

#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/tei_rail.h"
#include "util/err.h"
#include "util/list.h"
#include "util/log.h"

struct rail_cache;
struct rail_conn;
struct tei_err;

#define RAIL_TX_MSGS		32	/* send buffers per rail */
#define RAIL_TX_SIZE		((size_t)RAIL_TX_MSGS * RAIL_MSG_MAX)

/*
 * A lane that an opener thread opens while the progress thread continues its
 * work (rail_reopen.c). Embedded in its rail. Only the progress thread uses it;
 * lane.lock protects it against tear-down.
 */
struct rail_opening {
	struct rail_lane lane;		/* the opener thread holds lane.lock */
	struct rail_lane *place;	/* closed lane that the new lane will
					 * replace */
	pthread_t opener;
	bool started;			/* opener is running, or has ended and
					 * was not joined yet */
	bool under_way;			/* atomic: begun, and
					 * not collected yet */
	bool over;			/* atomic: the lane is open,
					 * or opening failed */
	struct tei_err err;		/* cause of the failure */
};

/* Which endpoint listens at the contact address of a rail
 * (rail_contact_lane.c). */
enum rail_contact_lane_state {
	RAIL_CONTACT_LANE_LEFT,	  /* no endpoint, and none is wanted */
	RAIL_CONTACT_LANE_TARGET, /* the first rx lane of the rail */
	RAIL_CONTACT_LANE_WANTED, /* no endpoint yet: the contact lane must be
				   * opened */
	RAIL_CONTACT_LANE_HELD,	  /* the contact lane */
	RAIL_CONTACT_LANE_TAKEN, /* no endpoint of ours: another process listens
				  * there; the opening is retried */
};

/* A send buffer of a rail. dp->sched guards the free list. */
struct rail_tx {
	struct rail_op op;
	struct tei_list link;
	struct rail *rail;
	struct rail_lane *lane;		/* lane that the buffer is posted on, or
					 * NULL */
	struct rail_conn *conn;		/* connection that carries the message
					 * (counted in path->msgs), or NULL */
	uint64_t incarnation;		/* incarnation of the receiving peer */
	uint16_t remote;		/* index into peer->remotes */
	uint8_t *buf;
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
	char provider[32];
	char transport[16];
	char pci[32];
	int numa;
	uint64_t speed_bps;
	uint8_t prefix;			/* prefix length of the rail's IP
					 * address, bits */
	struct tei_rail_addr own;	/* address of the first rx lane;
					 * all lanes have addresses in
					 * the same network */
	bool fallback;			/* opened only because no better device
					 * was found (rail_found) */
	bool quiet;			/* a failure to open the rail is not
					 * logged */
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *tx_domain; /* domain for tx lanes that have no own
				       * domain */
	struct fid_domain *rx_domain; /* domain for the rx lane; tx_domain
				       * itself if domains are expensive */
	uint64_t mr_mode;
	bool back;			/* tx lanes receive user messages as
					 * well (rail_reverse.c) */
	bool hmem;			/* the rail can access GPU memory */
	const char *no_hmem;		/* reason why the rail cannot access GPU
					 * memory, or NULL */
	uint32_t tx_depth;		/* slices posted per lane, at most */
	uint64_t max_slice;		/* largest message of
					 * the provider, bytes */
	uint8_t mr_shift;		/* dp->admin: log2 of the largest
					 * registration that the device accepted
					 * after it had refused a larger one */
	bool addr_gone;			/* dp->admin: at the last refresh, no
					 * interface had the rail's IP
					 * address */
	uint32_t iov_limit, rma_limit;	/* iov entries of one
					 * operation, at least 1 */

	struct rail_lane *tx_lanes;	/* tx lanes, [ntx *
					 * RAIL_LANE_SLOTS] */
	struct rail_cache *cache;	/* endpoint caches, [ntx] */
	uint32_t ntx;
	struct rail_lane rx_lane;
	struct rail_opening next_rx;
	struct rail_opening *next_tx;	/* [ntx] */
	struct rail_opening first;	/* contact lane; stays in this object
					 * (rail_contact_lane.c) */
	struct fid_fabric *contact_fabric; /* first.lane.lock guards it
					    * and the next field */
	struct fid_domain
		*contact_domain; /* domain of the contact lane; nothing
				  * is registered in it for peers */

	struct rail_tx tx[RAIL_TX_MSGS];
	void *tx_mem;
	struct fid_mr *tx_mr;
	/* guarded by dp->sched */
	struct tei_list tx_free;
	uint32_t tx_left;		/* entries of tx_free */
	struct tei_list reverse_left; /* rail_reverse objects of freed peers */
	uint64_t bulk_bytes;	      /* bulk data in slices that are cut and
				       * have not returned, bytes */
	uint32_t throttled_left;      /* number of whole slices of bulk data
				       * for which the rail stays
				       * throttled; */
	uint64_t throttled_part;      /* bytes already cut of the next slice
				       * of that number */
	uint32_t turn;			/* number of the current
					 * accounting round, from 1 */
	uint32_t participants,
		participants_before;	/* connections that took bulk data, in
					 * this and in the last accounting
					 * round */
	uint64_t taken;			/* bulk bytes cut in this accounting
					 * round */
	uint64_t turn_ns;		/* start of the accounting round
					 * (served_ns of a lane) */

	/* atomic: */
	bool open;
	bool hidden;			/* another rail has replaced this one:
					 * only peers that already know this
					 * rail still use it. Set under
					 * dp->sched */
	uint32_t state;			/* enum te_rail_state */
	uint64_t inflight_max, window;
	uint64_t window_max;
	uint64_t stuck;			/* bytes posted that have stopped
					 * moving, */
	uint64_t stuck_bulk;		/* and the bulk part of them */
	uint64_t base_ns;		/* shortest time of a slice on an idle
					 * lane, 0: unknown */
	uint64_t retries, errors;
	uint64_t rate_bps;		/* service rate, bytes/s */
	uint64_t free_bps;		/* service rate while not
					 * throttled, bytes/s */
	bool throttled;			/* rail_window_throttle has limited the
					 * rail recently */
	bool link_down;			/* the rail's interface has no
					 * carrier */
	bool lost;			/* lost rail: an endpoint could not be
					 * opened */
	uint32_t away;			/* number of tx lanes that were retired
					 * and not yet replaced by an open
					 * lane */
	uint64_t state_changes;
	uint32_t ifindex;		/* index of the rail's interface, 0:
					 * none. An interface that is deleted
					 * and created again has a new index */
	bool wire;			/* fixed: the rail is on an IP network
					 * other than loopback */
	uint64_t lost_next_ns;		/* thread: lost rail: time of the next
					 * attempt to open its lanes */
	uint64_t stuck_ns;		/* thread: last time that a lane
					 * was retired because a
					 * connection was stuck */
	struct rail_opening probe;	/* endpoint of the probes; stays in this
					 * object (rail_probe.c) */
	uint32_t first_state;		/* enum rail_contact_lane_state */
	uint64_t first_next_ns;		/* thread: TAKEN: time of
					 * the next attempt */
	uint32_t first_tries;		/* thread: attempts so far */
	uint64_t probe_begin_ns;	/* thread: start of
					 * the round of probes */
	uint64_t probe_end_ns;		/* thread: end of that round; 0: the
					 * endpoint has just been opened */
	bool probing;			/* thread: the probe endpoint
					 * is open or opening */
	struct tei_log_limit err_limit;
	struct tei_log_repeat err_repeat;
};

/* Returns the rail with that index. */
struct rail *rail_at(struct tei_rail_dp *dp, uint32_t index);

/* Returns the number of rails, closed ones included. */
uint32_t rail_count(struct tei_rail_dp *dp);
bool rail_any_open(struct tei_rail_dp *dp);

/* Return approximate sums over all lanes of the rail: rail_posted_bytes the
 * bytes that are posted now, rail_moved the number of slices completed since
 * the rail was opened. Any thread. */
uint64_t rail_posted_bytes(const struct rail *rail);
uint64_t rail_moved(const struct rail *rail);

/* Returns true if a slice is posted on any rail, approximately. Any thread. */
bool rail_posted_any(struct tei_rail_dp *dp);

#endif /* TEI_PROV_RAIL_CORE_RAIL_H */
