/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_FENCE_STATE_H
#define TEI_PROV_RAIL_CORE_RAIL_FENCE_STATE_H

/*
 * The states of the fence, which every layer may query. Only
 * prov/rail/sched/rail_fence.c changes the objects below; rail_fence.h there
 * describes the two state machines.
 */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/tei_rail.h"

/* The initiator's fence of one remote rail. */
enum rail_fence_state {
	RAIL_FENCE_NONE,     /* no slice waits for a fence */
	RAIL_FENCE_WANTED,   /* FENCE has not been sent yet */
	RAIL_FENCE_ASKED,    /* FENCE was sent, and is repeated until the
			      * target answers */
	RAIL_FENCE_UNFENCED, /* a task has ended as unfenced: FENCE is still
			      * repeated, and nothing is posted to the peer
			      * until the target answers */
	RAIL_FENCE_DROPPED,  /* as RAIL_FENCE_UNFENCED, but FENCE is no longer
			      * sent, because the peer is GONE and no task waits
			      * for FENCED */
	RAIL_FENCE_STATES
};

/* Embedded in struct rail_remote. Guarded by dp->sched. */
struct rail_fence {
	enum rail_fence_state state;
	uint32_t gen;	   /* lane generation to be fenced; the fence covers
			    * older ones too */
	uint32_t tries;	   /* number of FENCE messages sent since the fence was
			    * requested, or since the peer's last silence ended
			    * if that was later */
	uint64_t next_ns;  /* time of the next FENCE; 0 means that FENCE is sent
			    * at once */
	uint64_t since_ns;		/* time of the first attempt to send
					 * FENCE; 0 if there was no attempt
					 * yet */
};

/* The fence of an rx lane, at the target. */
enum rail_fence_rx_state {
	RAIL_FENCE_RX_NONE,    /* the rx lane is open: no fence is under way */
	RAIL_FENCE_RX_CLOSING, /* a closer thread closes the rx lane */
	RAIL_FENCE_RX_OPENING, /* the rx lane is closed; an opener thread opens
				* the next one */
	RAIL_FENCE_RX_CLOSED,  /* the rx lane is closed, and the next one could
				* not be opened; the opening is retried */
	RAIL_FENCE_RX_STATES
};

/* The fences between this process and one peer. Embedded in the peer. Guarded
 * by dp->sched. */
struct rail_fence_peer {
	uint32_t unfenced;		/* number of remote rails whose fence is
					 * UNFENCED or DROPPED */
	uint64_t due;			/* as the target: bit set of this
					 * process's rails for which FENCED must
					 * be sent to the peer */
	uint32_t due_gen[TEI_RAIL_MAX]; /* as the target, by rail index: lane
					 * generation that the peer's last FENCE
					 * has named */
};

/* Returns true if FENCE must be sent, or be repeated, until the target
 * answers. */
static inline bool rail_fence_outstanding(const struct rail_fence *fence)
{
	return fence->state != RAIL_FENCE_NONE &&
	       fence->state != RAIL_FENCE_DROPPED;
}

/* Returns true if nothing may be posted to the peer, because a fence of one of
 * its rails has failed. */
static inline bool rail_fence_failed(const struct rail_fence_peer *fence)
{
	return fence->unfenced;
}

/* Returns true if FENCED must be sent to the peer. */
static inline bool rail_fence_answer_due(const struct rail_fence_peer *fence)
{
	return fence->due;
}

#endif /* TEI_PROV_RAIL_CORE_RAIL_FENCE_STATE_H */
