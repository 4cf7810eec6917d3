/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CONN_RAIL_PAIR_H
#define TEI_PROV_RAIL_CONN_RAIL_PAIR_H

/*
 * Rail pairs and their faults. This layer reads the faults, because routes and
 * messages avoid pairs that do not work. rail_health.h explains the stages, and
 * declares the checks that create, change and free faults.
 */

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "util/list.h"
#include "util/lock.h"

struct rail;
struct rail_lane;

enum rail_fault_stage {
	RAIL_FAULT_ASKED,
	RAIL_FAULT_SUSPECT,
	RAIL_FAULT_DOWN,
	RAIL_FAULT_RAMPING,
};

/* The fault of one rail pair. Created by rail_health_ask() and
 * rail_health_down(). Freed by the progress thread when the pair carries its
 * full share, or with its peer. Guarded by dp->sched. A stage before a colon
 * says that the field is used in that stage only. */
struct rail_fault {
	struct tei_list link;	   /* in dp->health.faults */
	struct tei_list peer_link; /* in peer->faults */
	struct tei_rail_peer *peer;
	struct rail *rail;
	uint16_t remote; /* index in peer->remotes */
	enum rail_fault_stage stage;
	bool cut;	      /* DOWN: the connections must be cut */
	bool refused;	      /* DOWN: the provider refused posts, so
			       * the pair has no connection that must
			       * be replaced */
	uint32_t again;	      /* number of times that posts were
			       * refused although a probe had been
			       * answered */
	const char *why;      /* cause of the fault for the log; static
			       * string */
	uint64_t since_ns;    /* time at which the stage began, ns */
	uint32_t remote_gen;  /* DOWN: lane generation of the remote
			       * rail when the pair went down */
	uint64_t rail_slices; /* value of rail_moved() when the pair became
			       * ASKED, or when the pair went DOWN if it had not
			       * been SUSPECT */
	bool others;	      /* DOWN: other pairs of the rail had
			       * slices posted when this pair went
			       * DOWN */
	bool all;	      /* RAMPING: the whole rail was not UP
			       * when the probe was answered */
	/* used in the stages ASKED, SUSPECT and RAMPING */
	struct rail_lane *lane;
	uint64_t moves;		  /* ASKED, SUSPECT: progress counter of
				   * the pair's connection when the check
				   * began; RAMPING: rail_moved() at the
				   * last check */
	uint64_t alive_ns;	  /* time of the first check after the
				   * peer's first sign of life, or 0 */
	uint32_t polls;			/* number of checks since the time
					 * alive_ns */
	bool asked;		  /* a ping was sent over this pair */
	uint64_t asked_ns;		/* time at which the ping was sent over
					 * this pair, ns */
	uint32_t asks;			/* number of attempts to send the ping
					 * over this pair */
	uint64_t doubt_ns;	  /* time at which the pair was first suspected,
				   * ns; stays the same if the TCP stack's
				   * response delays the next stage */
	uint64_t acked, acked_ns; /* for a contended connection to a silent
				   * peer: last result of rail_stall_acked(),
				   * and the time at which the result last
				   * changed, ns */
	uint64_t share;		  /* RAMPING: limit of the bytes in flight on
				   * the pair */
	/* used in the stage DOWN */
	uint32_t tries;			/* number of consecutive probes without
					 * an answer */
	uint64_t next_ns;   /* earliest time of the next probe */
	uint64_t seq;	    /* number of the pending probe, or 0 */
	uint64_t seq_first;		/* number of the first probe since the
					 * pair went down */
	bool sent;
	bool answered;
	fi_addr_t fi_addr;
};

/* Returns the fault of the pair, or NULL. */
struct rail_fault *rail_pair_fault(const struct tei_rail_peer *peer,
				   const struct rail *rail, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);
/* Creates a fault of the pair, which must not have one. Returns NULL if memory
 * is short. */
struct rail_fault *rail_pair_make_fault(struct tei_rail_peer *peer,
					struct rail *rail, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if a slice may be cut for the pair. bytes: payload in flight on
 * the connection. */
bool rail_health_open(const struct tei_rail_peer *peer, const struct rail *rail,
		      uint16_t remote, uint64_t bytes)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if the local rail with index `rail` currently carries slices to
 * the peer. */
bool rail_health_works(const struct tei_rail_peer *peer, uint32_t rail)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if the pair is SUSPECT, DOWN or RAMPING. */
bool rail_health_faulty(const struct tei_rail_peer *peer,
			const struct rail *rail, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);
/* Returns true if messages should use another pair, because this one is ASKED,
 * SUSPECT or DOWN. */
bool rail_health_doubtful(const struct tei_rail_peer *peer,
			  const struct rail *rail, uint16_t remote)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_CONN_RAIL_PAIR_H */
