/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_LANE_H
#define TEI_PROV_RAIL_CORE_RAIL_LANE_H

/*
 * Lanes: libfabric endpoints with their queues.
 *
 * Tx lanes post RMA and send messages. Rx lanes receive, and only the progress
 * thread opens and closes them. Another thread that polls an rx lane handles
 * only user messages, which are for the owner of the data plane, and defers all
 * other messages to the progress thread. A contact lane belongs to a domain
 * without registrations, so no RMA can land through it. A process sends replies
 * over its own tx lane. User messages are the exception: an rx lane may send
 * them to a tx lane (peer/rail_reverse.c).
 */

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/core/rail_op.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/lock.h"

struct rail;
struct tei_err;

#define RAIL_MSG_MAX		16384	/* largest size of a peer message with
					 * its header, bytes */
#define RAIL_RX_DEPTH		64	/* number of receive buffers of each
					 * lane that receives */
#define RAIL_RX_SIZE		((size_t)RAIL_RX_DEPTH * RAIL_MSG_MAX)
#define RAIL_CQ_BATCH		32	/* limit of the completions that are
					 * read at a time */
#define RAIL_LANE_SLOTS		2	/* slots of a tx lane: one of them is
					 * active while the other one drains */

enum rail_lane_state {
	RAIL_LANE_CLOSED,	/* no endpoint */
	RAIL_LANE_ACTIVE,
	RAIL_LANE_RETIRING,	/* retired: drains or is being closed; takes no
				 * new work */
};

/*
 * Whether a tx lane is in use. A tx lane is opened only when a peer is contacted
 * over it for the first time, because its endpoint may occupy tens of megabytes.
 * The state belongs to a lane number of the rail, not to a slot, and never goes
 * back. Extra lanes do not use it: the width of a rail pair decides when they
 * are opened (conn/rail_width.h). (core/rail_use.c)
 */
enum rail_lane_use {
	RAIL_LANE_UNUSED,	/* was never opened: no peer was contacted over
				 * it */
	RAIL_LANE_WANTED,	/* a peer must be contacted over it: the
				 * progress thread must start to open it */
	RAIL_LANE_OPENING,	/* its first opening is under way */
	RAIL_LANE_USED,		/* its first opening has ended. From then on,
				 * the lane is opened again whenever it was
				 * closed or could not be opened */
};

/*
 * State of a lane that a closer thread closes while the progress thread
 * continues its work (rail_closing.c). Embedded in the lane and guarded by its
 * lock, except that fid belongs to the closer thread until `over` is set.
 */
#define RAIL_LANE_FIDS	8

struct rail_closing {
	struct fid *fid[RAIL_LANE_FIDS];
	pthread_t closer;
	bool started;			/* the thread `closer` was started and
					 * has not been joined yet */
	bool under_way;			/* atomic: the closing has begun, and
					 * rail_closing_collect has not
					 * collected its end yet */
	bool over;			/* atomic: all objects in "fid" have
					 * been closed */
};

/* Further libfabric objects of a lane. Guarded by lane->lock. */
struct rail_lane_fids {
	struct fid_fabric *fabric;	/* the lane's own fabric; if NULL, the
					 * lane uses the rail's */
	struct fid_domain *domain;	/* the lane's own domain; if NULL, the
					 * lane uses the rail's */
	struct fid_wait *wait;		/* wait set of the CQ; if NULL, the CQ
					 * has a wait object of its own */
	struct fid_eq *eq;
	struct fid_cntr *cntr;		/* counter of the peers' reads and
					 * writes; opened only for an rx lane
					 * without wait_fd, otherwise NULL */
	uint64_t cntr_seen;
};

/* Totals of the slices that a lane has completed since it was created.
 * Atomic. */
struct rail_lane_done {
	uint64_t tx_bytes, rx_bytes, slices; /* payload written, payload read,
					      * bytes; number of slices */
};

/*
 * The measurement of the service rate of a lane, and of its stuck posts
 * (core/rail_window.c). Guarded by lane->lock.
 */
struct rail_lane_rate {
	uint64_t busy_ns;		/* start of the current
					 * measuring interval */
	uint64_t served;		/* bytes completed since busy_ns */
	uint64_t others;		/* bytes that the rail's other lanes had
					 * completed at busy_ns */
	bool whole;			/* the current interval began when the
					 * lane was idle */
	uint64_t served_ns;		/* time of the last completion */
	uint64_t posts;			/* number of slices posted since the
					 * lane was created */
	uint64_t mark_posts, mark_ns;	/* mark_posts: value of "posts" at time
					 * mark_ns; it becomes stuck_posts
					 * later */
	uint64_t stuck_posts;		/* posts up to this number were made so
					 * long ago that they count as stuck if
					 * they have not completed */
	uint64_t stuck;			/* stuck bytes: the bytes of slices that
					 * are still posted and whose
					 * rail_slice.seq is at most
					 * stuck_posts */
	uint64_t stuck_bulk;		/* stuck bytes that are bulk data */
	struct rail_slice *alone;	/* slice that was posted on the idle
					 * lane and whose duration is being
					 * measured, or NULL. The pointer is
					 * only compared, never dereferenced */
	uint64_t alone_ns;		/* time at which the slice "alone" was
					 * posted */
};

/* What an rx lane receives. Guarded by lane->lock. */
struct rail_lane_recv {
	bool visited;			/* the application polls this rx lane */
	struct tei_list deferred;	/* rx lane only: list of rail_deferred,
					 * the deferred control messages */
	uint32_t ndeferred;		/* atomic: number of entries of
					 * "deferred" */
	struct rail_rx *bufs;		/* receive buffers, or NULL */
	struct rail_rx *idle;		/* receive buffers
					 * that are not posted */
	void *mem;
	struct fid_mr *mr;
};

/* The last check for stalls (health/rail_stall.c). Guarded by lane->lock. */
struct rail_lane_check {
	struct rail_slice *head;	/* at the last check for stalls: the
					 * slice that had been posted for the
					 * longest time */
	uint64_t moves;			/* at the last check: progress counter
					 * (rail_conn.moves) of the connection
					 * of "head" */
};

/*
 * The load of a lane, and the lane thread that polls the lane
 * (rail_lane_thread.c).
 */
struct rail_lane_load {
	uint32_t thread;		/* atomic: number of the lane thread
					 * that polls the lane; 0: the progress
					 * thread polls it */
	uint32_t assigned;		/* atomic: number of times that the lane
					 * was assigned to a lane thread */
	uint64_t busy_ns;		/* atomic, changed under lane->lock:
					 * total duration of the polls that
					 * moved data, ns; counted only while
					 * rail_lane_threads.limit is not 0 */
	uint64_t seen_ns;		/* thread: busy_ns at the last check of
					 * the progress thread */
	/* The next two members belong to the lane thread while the lane is
	 * assigned to it, otherwise to the progress thread. */
	uint64_t kept_ns;		/* busy_ns at the last check of the lane
					 * thread */
	uint64_t since_ns;		/* time of that check, ns */
};

/*
 * One libfabric RDM endpoint with its CQ, AV and EQ. Embedded in its rail.
 * Opened and closed on behalf of the progress thread, or by the thread that
 * sets up or tears down the data plane. Each opening has a new generation.
 */
struct rail_lane {
	struct rail *rail;		/* fixed */
	bool is_rx;			/* fixed: the lane is an rx lane or the
					 * contact lane */
	bool contact;			/* fixed: the lane is the contact
					 * lane */
	uint16_t index;			/* fixed: lane number on the rail */
	const struct rail_lane_ops *ops; /* fixed (rail_handler.h) */

	struct tei_mutex lock;		/* guards the fields below */
	enum rail_lane_state state;	/* atomic */
	uint32_t gen;			/* atomic: lane generation */
	struct rail_lane_fids fids;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	int wait_fd;			/* file descriptor that becomes readable
					 * when the lane has events, or -1 */
	struct tei_rail_addr addr;
	struct tei_list posted;		/* list of the posted slices
					 * (rail_slice.link) */
	/* atomic: */
	uint32_t inflight;		/* number of slices posted on the
					 * lane */
	uint64_t inflight_bytes;
	struct rail_lane_done done;

	uint64_t drained_ns; /* in state RETIRING: time at which the
			      * lane is closed even if operations are
			      * still posted */
	struct rail_lane_rate rate;
	uint32_t msgs;			/* atomic: number of messages sent on
					 * the lane and not completed */
	uint64_t settle_ns;		/* atomic: after the loss of a
					 * connection, time until which the lane
					 * is polled; 0 if there was no loss */
	bool kick;			/* atomic: a poll request: the thread
					 * that holds the lock must poll once
					 * more */
	struct rail_lane_recv recv;
	bool receives; /* atomic: tx lane only: REVERSE was sent,
			* so peers may send user messages to
			* this lane */
	bool link_cut;			/* thread: the link of the rail went
					 * down, and the lane's connections were
					 * cut for this reason */
	uint64_t spare_ns;		/* thread: extra lane only: time since
					 * which the lane is not in use; 0 if it
					 * is in use */
	struct rail_lane_check check;
	struct rail_closing closing;
	struct rail_lane_load load;
};

/*
 * A message that a caller has read from an rx lane and that the progress thread
 * must handle. Owned by the lane.
 */
struct rail_deferred {
	struct tei_list link;
	uint32_t len;
	uint8_t buf[];
};

void rail_lane_init(struct rail_lane *lane, struct rail *rail, bool target,
		    uint16_t index);

/* Opens the endpoint and its queues, and begins a new lane generation. Returns
 * 0, or an error code after closing all objects again. */
int rail_lane_open(struct rail_lane *lane, struct tei_err *err)
	TEI_REQUIRES(lane->lock);

/* Reads and handles one batch of completions, then lets an active tx lane post
 * slices. Returns true if a completion was read, a slice was posted, or a peer
 * has read or written. */
bool rail_lane_poll(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock);

/* Returns true if the lane has receive buffers. The result is the same for all
 * generations of a lane. */
bool rail_lane_receives(const struct rail_lane *lane);

/* Returns true if a thread may sleep on the lane's file descriptor: nothing has
 * arrived yet, and the file descriptor will report whatever arrives. */
bool rail_lane_sleep_ready(struct rail_lane *lane) TEI_REQUIRES(lane->lock);

/* Returns the fabric of the lane's queues. lane->lock is held. */
struct fid_fabric *rail_lane_fabric(const struct rail_lane *lane);

/* Reads and discards the events of the EQ; logs errors. */
void rail_lane_drain_eq(struct rail_lane *lane) TEI_REQUIRES(lane->lock);

/* Closes the lane; if a closer thread is already closing it, waits for that
 * thread. Slices still posted are moved to "aborted". */
void rail_lane_close(struct rail_lane *lane, struct tei_list *aborted)
	TEI_REQUIRES(lane->lock);

/* Starts a closer thread that closes the lane. When this function returns, the
 * lane has no endpoint. It stays RETIRING until rail_closing_collect has
 * returned true. */
void rail_closing_start(struct rail_lane *lane) TEI_REQUIRES(lane->lock);

/* Returns true if the closing of the lane has begun and rail_closing_collect
 * has not collected its end yet. Any thread. */
bool rail_closing_under_way(const struct rail_lane *lane);

/* Collects the end of a closing. Returns true if the closer thread has
 * finished: the lane is then CLOSED, and slices still posted are moved to
 * "aborted". The closer thread wakes the progress thread when it has closed the
 * lane. */
bool rail_closing_collect(struct rail_lane *lane, struct tei_list *aborted)
	TEI_REQUIRES(lane->lock);

/* Sets close-on-exec on the file descriptors of a lane that has just been
 * opened. */
void rail_cloexec_opened(struct rail_lane *lane) TEI_REQUIRES(lane->lock);

/* Sets close-on-exec on the file descriptors of the lane that lack this flag,
 * and returns their number. */
uint32_t rail_cloexec_lane(struct rail_lane *lane) TEI_EXCLUDES(lane->lock);

/* Returns the index in rail->tx_lanes of the lane with which the calling thread
 * begins. Threads begin with different lanes, so that they do not compete for
 * the same lock. */
uint32_t rail_first_lane(const struct rail *rail);

/* Lets every active lane cut and post slices, in the calling thread. If slices
 * are left, calls rail_use_for_tasks. now: a recent time if the caller knows
 * one, else 0. */
void rail_sched_kick(struct tei_rail_dp *dp, uint64_t now);

/* Polls the lane unless another thread holds its lock. Returns true if
 * rail_lane_poll has returned true. */
bool rail_lane_run(struct rail_lane *lane);

/* Does what rail_lane_poll does, and counts the duration of the poll as load of
 * the lane. */
bool rail_lane_poll_timed(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock);

/* Offers new work to the lane: cuts and posts it, or makes the thread that
 * holds the lane's lock poll once more. now: a recent time if the caller knows
 * one, else 0. */
void rail_lane_kick(struct rail_lane *lane, uint64_t now);

/* Returns true if the lane is open and takes work. The result may be outdated
 * when the function returns. Any thread. */
bool rail_lane_active(const struct rail_lane *lane);

/* Returns true if the tx lane with this number is UNUSED. Any thread. */
bool rail_use_none(const struct rail *rail, uint32_t index);

/* Returns true if the tx lane with this number is USED. Any thread. */
bool rail_use_begun(const struct rail *rail, uint32_t index);

/* Returns the number of USED tx lanes of the rail. Any thread. */
uint32_t rail_use_count(const struct rail *rail);

/* Makes an UNUSED tx lane WANTED and wakes the progress thread, which starts to
 * open it. Does nothing during tear-down. Returns true if the lane was UNUSED
 * and is WANTED now. Any thread. */
bool rail_use_want(struct rail *rail, uint32_t index);

/* Makes a WANTED tx lane OPENING. Returns true if the lane was WANTED: the
 * caller must start to open it. Progress thread. */
bool rail_use_begin(struct rail *rail, uint32_t index);

/* Makes an OPENING tx lane USED. Returns true if the lane was OPENING: the
 * opening that has ended was its first one. Progress thread. */
bool rail_use_end(struct rail *rail, uint32_t index);

/* Returns true if this process cannot send messages yet: no tx lane for messages
 * was ever open, and at least one is WANTED or being opened. Any thread. */
bool rail_use_first(struct tei_rail_dp *dp);

/* Makes UNUSED tx lanes WANTED because the open lanes have left slices that
 * could be posted: on every rail that has a route to such a peer, one lane.
 * late: true if the open lanes have been polled since the slices were submitted.
 * If it is false, they may not have examined the slices yet, and only slices that
 * are to be sent again and queues whose first task has checked keys count.
 * dp->sched must not be held. Any thread. */
void rail_use_for_tasks(struct tei_rail_dp *dp, bool late);

/* Maximum number of attempts to open a lane. An attempt fails if another
 * process has taken the chosen port meanwhile. */
#define RAIL_PORT_TRIES 8

/* Returns true if MOONRAIL_DATA_PORTS is set and applies to the lane's rail. */
bool rail_ports_apply(const struct rail_lane *lane, const struct fi_info *info);

/* Sets the source port of info to a free port of the range. Returns 0 or
 * -FI_EADDRNOTAVAIL. */
int rail_ports_set(const struct rail_lane *lane, struct fi_info *info);

/* Returns true if the lane must be opened again at another port: opening it has
 * failed with the error "ret" because its port is in use. tries: number of
 * attempts that have failed before this one. */
bool rail_ports_again(const struct rail_lane *lane, int ret, uint32_t tries);

/* Writes a hint to "hint" if the error "ret" means that opening a lane failed
 * because no port was free. */
void rail_ports_hint(const struct rail_lane *lane, int ret, char *hint,
		     size_t len);

#endif /* TEI_PROV_RAIL_CORE_RAIL_LANE_H */
