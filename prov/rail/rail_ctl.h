/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_CTL_H
#define TEI_PROV_RAIL_RAIL_CTL_H

/*
 * Control state machines of a peer. Every machine is "send again with back-off
 * until answered". All of it: the progress thread alone, no lock held. A step
 * returns when it wants to run again, 0 for never; buf is RAIL_MSG_MAX bytes of
 * scratch for its messages.
 */

#include "prov/rail/rail_int.h"

#define RAIL_CTL_RETRY_NS	TEI_NS_PER_MS		/* -FI_EAGAIN, at first */
#define RAIL_CTL_RESEND_NS	(20 * TEI_NS_PER_MS)
#define RAIL_CTL_RARELY_NS	(250 * TEI_NS_PER_MS)	/* who is left, at first */

/* --- rail_ctl.c ---------------------------------------------------------- */
/* The earlier of two times to come again, where 0 is never. */
uint64_t rail_ctl_sooner(uint64_t a, uint64_t b);
/* When to try again what gave -FI_EAGAIN. */
uint64_t rail_ctl_again(const struct tei_rail_peer *peer, uint64_t now);
/* The result of a send, as the time to come again; *tries counts. */
uint64_t rail_ctl_sent(const struct tei_rail_peer *peer, int ret, uint64_t now,
		       uint32_t *tries);
/* Nobody uses it, and it is silent: it is asked for a sign of life, but nothing
 * waits for that. */
bool rail_ctl_left(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* When such a one is asked again: the longer it is silent, the later. */
uint64_t rail_ctl_rarely(const struct tei_rail_peer *peer, uint64_t now);
/* Makes the thread treat the peer as one that has just been heard of again. */
void rail_ctl_awake(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Has it looked up, once in a while, if since is some time ago. */
void rail_ctl_look(struct tei_rail_peer *peer, uint64_t now, uint64_t since);
/* A request has had no answer for a while: is it still the same process? */
void rail_ctl_unanswered(struct tei_rail_peer *peer, uint64_t now,
			 uint64_t since);

/* --- rail_hello.c -------------------------------------------------------- */
uint64_t rail_ctl_hello(struct tei_rail_peer *peer, uint64_t now, uint8_t *buf);
uint64_t rail_ctl_refuse(struct tei_rail_peer *peer, uint64_t now,
			 uint8_t *buf);
uint64_t rail_ctl_warm(struct tei_rail_peer *peer, uint64_t now, uint8_t *buf);

/* --- rail_key_ctl.c ------------------------------------------------------ */
uint64_t rail_ctl_key_reply(struct tei_rail_peer *peer, uint64_t now,
			    uint8_t *buf);
uint64_t rail_ctl_key_want(struct tei_rail_peer *peer, uint64_t now,
			   uint8_t *buf);
/* Our answers to the peer's revocations; then our own to the peer. */
uint64_t rail_ctl_revoked(struct tei_rail_peer *peer, uint64_t now,
			  uint8_t *buf);
uint64_t rail_ctl_revokes(struct tei_rail_peer *peer, uint64_t now,
			  uint8_t *buf);

/* --- rail_fence_ctl.c ---------------------------------------------------- */
uint64_t rail_ctl_fences(struct tei_rail_peer *peer, uint64_t now,
			 uint8_t *buf);
/* Target: closes what the peer asked to be closed, then answers. */
uint64_t rail_ctl_fence_reply(struct tei_rail_peer *peer, uint64_t now,
			      uint8_t *buf);

/* --- rail_atomic.c ------------------------------------------------------- */
uint64_t rail_ctl_atomics(struct tei_rail_peer *peer, uint64_t now,
			  uint8_t *buf);

/* --- rail_stall.c, rail_probe.c ------------------------------------------ */
uint64_t rail_ctl_life(struct tei_rail_peer *peer, uint64_t now, uint8_t *buf);
uint64_t rail_ctl_pong(struct tei_rail_peer *peer, uint64_t now, uint8_t *buf);

/* --- rail_note.c, rail_note_in.c ------------------------------------------ */
/* Answers what came in. */
uint64_t rail_ctl_note_answer(struct tei_rail_peer *peer, uint64_t now,
			      uint8_t *buf);
/* Sends what is queued. */
uint64_t rail_ctl_notes(struct tei_rail_peer *peer, uint64_t now, uint8_t *buf);

/* --- rail_back.c --------------------------------------------------------- */
uint64_t rail_ctl_back(struct tei_rail_peer *peer, uint64_t now, uint8_t *buf);

/* --- rail_report.c ------------------------------------------------------- */
/* The line that says which path the peer is on, once per change. */
void rail_ctl_report(struct tei_rail_peer *peer);

/* --- rail_loss.c --------------------------------------------------------- */
uint64_t rail_ctl_loss(struct tei_rail_peer *peer, uint64_t now);

/* --- rail_deadline.c ----------------------------------------------------- */
uint64_t rail_ctl_deadlines(struct tei_rail_peer *peer, uint64_t now);
/* Returns the time of the last progress of the peer's oldest live task, or of the
 * tasks that were ahead of it. The peer must have a live task. */
uint64_t rail_deadline_oldest(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* So long, up to now, nobody looked at anything: all deadlines are as much later.
 * The thread. */
void rail_deadline_stood_still(struct tei_rail_dp *dp, uint64_t still,
			       uint64_t now);

#endif /* TEI_PROV_RAIL_RAIL_CTL_H */
