/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_HEALTH_H
#define TEI_PROV_RAIL_RAIL_HEALTH_H

/*
 * Faults: pairs of rails, one of ours and one of a peer's, over which nothing
 * gets through, how that is found out, and how they come back. A fault is made
 * when something looks wrong and freed when the pair carries its full share
 * again, so that nothing of this exists, or costs, while nothing fails.
 *
 *	ASKED	 slices are posted and none moved for RAIL_STALL_NS: the peer
 *		 is asked for a sign of life, by any other rail, and its kernel
 *		 by this one
 *	SUSPECT	 it is alive, but here nothing moves: no new slices
 *	DOWN	 that lasted, or a completion said so, or the link is down. The
 *		 connection is cut, so that what was posted comes back and goes
 *		 to the fence (rail_fence.c); a probe is tried with back-off
 *	RAMPING	 a probe was answered: carries a share that doubles
 *
 * While a pair is SUSPECT, DOWN or RAMPING its rail of ours goes to another
 * rail of the peer, if it reaches one (rail_path.c).
 *
 * A peer that is silent on all rails is no fault of one: its slices wait where
 * they are, up to their deadline. A burst of error completions is one fault.
 *
 * The probe is a message over an endpoint of its own, opened for the occasion:
 * what is tried is the wire, not an old connection that still waits for its
 * retransmission timer. It arrives only where both directions work, so the
 * answer may take any rail.
 *
 * Threads: faults are guarded by dp->sched; made by any thread, moved on and
 * freed by the progress thread alone.
 */

#include "prov/rail/rail_int.h"

#define RAIL_STALL_NS	(40 * TEI_NS_PER_MS)	/* nothing moved: look */
#define RAIL_HEALTH_NS	(10 * TEI_NS_PER_MS)	/* from look to look */

enum rail_fault_stage {
	RAIL_FAULT_ASKED,
	RAIL_FAULT_SUSPECT,
	RAIL_FAULT_DOWN,
	RAIL_FAULT_RAMPING,
};

struct rail_fault {
	struct tei_list link;		/* dp->faults */
	struct tei_list peer_link;	/* peer->faults */
	struct tei_rail_peer *peer;
	struct rail *rail;
	uint16_t remote;		/* index in peer->remotes */
	enum rail_fault_stage stage;
	bool cut;			/* DOWN: the connections are to be cut */
	bool refused;			/* DOWN: there was none, and no post */
	uint32_t again;			/* so often since a probe was answered */
	const char *why;		/* static */
	uint64_t since_ns;		/* of the stage */
	uint32_t remote_gen;		/* when it went down */
	uint64_t rail_slices;		/* rail_moved then; of what is SUSPECT
					 * or was, when it was asked about */
	bool others;			/* DOWN: others had slices posted */
	bool all;			/* RAMPING: its rail was not UP */
	/* ASKED, SUSPECT, RAMPING */
	struct rail_lane *lane;
	uint64_t moves;			/* of its path */
	uint64_t alive_ns;		/* the peer lives: seen since then */
	uint32_t looks;			/* since then */
	bool asked;			/* by its own wire, too, */
	uint64_t asked_ns;		/* at that time */
	uint32_t asks;			/* so often it was tried */
	uint64_t doubt_ns;		/* since when, through all vetoes */
	uint64_t acked, acked_ns;	/* in the way: rail_stall_acked, and
					 * since when */
	uint64_t share;			/* RAMPING: bytes in flight */
	/* DOWN */
	uint32_t tries;			/* probes without answer */
	uint64_t next_ns;		/* no probe before */
	uint64_t seq;			/* of the probe under way, or 0 */
	uint64_t seq_first;		/* the first since it went down */
	bool sent;
	bool answered;
	fi_addr_t fi_addr;
};

/* --- rail_health.c ------------------------------------------------------- */
/* Whether a slice may be cut for the pair, of which path carries bytes. */
bool rail_health_open(const struct tei_rail_peer *peer, const struct rail *rail,
		      uint16_t remote, uint64_t bytes)
	TEI_REQUIRES(rail_sched_held);
/* Whether that rail of ours carries slices to the peer just now. */
bool rail_health_works(const struct tei_rail_peer *peer, uint32_t rail)
	TEI_REQUIRES(rail_sched_held);
/* Whether the pair is known to carry nothing, or is only on its way back. */
bool rail_health_broken(const struct tei_rail_peer *peer,
			const struct rail *rail, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);
/* Whether messages should rather take another rail. */
bool rail_health_doubtful(const struct tei_rail_peer *peer,
			  const struct rail *rail, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);
/* A fault to be asked about, or NULL where one is known already. */
struct rail_fault *rail_health_ask(struct tei_rail_peer *peer,
				   struct rail *rail, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);
/* The pair is down: an error completion, or a verdict. Any thread. */
void rail_health_down(struct tei_rail_peer *peer, struct rail *rail,
		      uint16_t remote, const char *why, bool cut)
	TEI_REQUIRES(rail_sched_held);
/* An error completion of a slice. */
void rail_health_error(struct rail_slice *slice, int err)
	TEI_REQUIRES(rail_sched_held);
/* The provider did not take a slice or a message for the pair, and nothing of it
 * is on its way. True where that is a matter of the wire (no route, link gone)
 * and not of this host's memory or descriptors: the pair is down then, and this
 * was no try. Where a probe is answered all the same it comes back ever later. */
bool rail_health_refused(struct tei_rail_peer *peer, struct rail *rail,
			 uint16_t remote, int err)
	TEI_REQUIRES(rail_sched_held);
/* The peer has gone, or its rails are numbered anew. */
void rail_health_forget(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* The thread, no lock held, often: cheap where nothing is due. Returns when to
 * come again, 0: not for this. */
uint64_t rail_health_run(struct tei_rail_dp *dp, uint64_t now);
/* Slices posted on the pair come back, by cutting their connection or, where
 * that is not enough, their lane; shuns: because of the peer, so that what
 * breaks is no fault of the pair's. The thread, no lock held. */
void rail_health_cut(struct tei_rail_peer *peer, struct rail *rail,
		     uint16_t remote, bool shuns);
/* The rail's state as the world sees it is worked out anew. */
void rail_health_state(struct rail *rail) TEI_REQUIRES(rail_sched_held);

/* --- rail_stall.c -------------------------------------------------------- */
/* Paths with posted slices of which none moves become faults. The thread. */
void rail_stall_look(struct tei_rail_dp *dp, uint64_t now);
/* The pair is in doubt, unless it is a fault already: nothing moved since moves
 * was read of its path. The thread, no lock held. */
void rail_stall_ask(struct tei_rail_peer *peer, struct rail_lane *lane,
		    uint16_t remote, uint64_t moves, uint64_t now);
/* ASKED and SUSPECT: true if it is time for the next stage, once that is
 * confirmed. */
bool rail_stall_judge(struct rail_fault *fault, uint64_t now)
	TEI_REQUIRES(rail_sched_held);
/* Whether the last look at it, outside the lock, confirms the verdict. It may
 * be put off as long as the kernel hears from there, within limits; list: of
 * its lane. */
bool rail_stall_confirm(const struct rail_cut_list *list,
			struct tei_rail_peer *peer, uint16_t remote,
			uint64_t moves, uint64_t doubt_ns, bool asked);
/* Nothing is posted on the pair, and it is connected: it was asked about for
 * nothing. The thread, no lock held. */
bool rail_stall_idles(struct tei_rail_peer *peer, struct rail_lane *lane,
		      uint16_t remote);
/* As rail_cut_acked. The thread, no lock held. */
uint64_t rail_stall_acked(const struct rail_cut_list *list,
			  struct tei_rail_peer *peer, uint16_t remote);
uint64_t rail_stall_moves(struct tei_rail_peer *peer, struct rail_lane *lane,
			  uint16_t remote) TEI_REQUIRES(rail_sched_held);

/* --- rail_probe.c -------------------------------------------------------- */
/* Probes what is due on that rail. The thread; when to come again, or 0. */
uint64_t rail_probe_run(struct rail *rail, uint64_t now);
/* Ends what is under way; the thread or tear-down. */
void rail_probe_stop(struct rail *rail);
/* Whatever is down on that rail towards the peer (NULL: all) is probed at
 * once. */
void rail_probe_soon(struct rail *rail, const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* --- rail_reopen.c ------------------------------------------------------- */
/* Opens the lane in a thread of its own, as the next after that generation. */
void rail_opening_start(struct rail_opening *opening, uint32_t gen)
	TEI_REQUIRES(opening->lane.lock);
/* True once that is over, the thread's end included. */
bool rail_opening_over(struct rail_opening *opening);
/* Waits for that. */
void rail_opening_stop(struct rail_opening *opening);
/* The target lane or an initiating one is opened anew, unless that is under way
 * or it is not closed; the progress thread. */
void rail_reopen_start(struct rail_lane *lane);
/* Puts in their places those of the rail that are there: true if the target
 * lane was among them. The progress thread. */
bool rail_reopen_collect(struct rail *rail);
/* Some rail of ours has no target lane just now, but will have one. */
bool rail_reopen_any(struct tei_rail_dp *dp);
/* All lanes are there: the rail is not lost. */
void rail_reopen_whole(struct rail *rail);
/* Tear-down, of the initiating lanes or the target lane; nobody starts or
 * collects any more. */
void rail_reopen_stop(struct rail *rail, bool target);

/* --- rail_link.c --------------------------------------------------------- */
/* Listens for changes of links and addresses; without it, silence tells later. */
void rail_link_open(struct tei_rail_dp *dp);
void rail_link_close(struct tei_rail_dp *dp);
/* Finds the rail's interface and the state of its link. */
void rail_link_find(struct rail *rail);
/* Returns false if the rail is on an interface and its own address is on none of
 * ifs. If the address is on an interface that was made again, the rail uses that
 * one from now on. Any thread. */
struct ifaddrs;
bool rail_link_has_address(struct rail *rail, const struct ifaddrs *ifs);
/* Reads what is there; the thread, no lock held. */
void rail_link_read(struct tei_rail_dp *dp);

#endif /* TEI_PROV_RAIL_RAIL_HEALTH_H */
