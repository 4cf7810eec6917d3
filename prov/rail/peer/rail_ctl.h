/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_PEER_RAIL_CTL_H
#define TEI_PROV_RAIL_PEER_RAIL_CTL_H

/*
 * The control state machines of a peer. Each of them sends a message again with
 * back-off until it is answered.
 *
 * All functions run on the progress thread and without a lock unless marked.
 * Each function rail_ctl_* that returns a time is one step of a state machine:
 * it returns the time at which it must be called again, ns, or 0 if it need not
 * be. buf: memory of RAIL_MSG_MAX bytes in which the step composes messages.
 */

#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/wire/rail_resend.h"
#include "util/lock.h"

/* --- rail_ctl.c ---------------------------------------------------------- */
/* Makes the progress thread treat the peer as if its first sign of life after a
 * silence had just arrived. Any thread. */
void rail_ctl_sleep_end(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* If the peer has not answered since the time `since` and
 * RAIL_CTL_UNANSWERED_NS have passed, tries the peer's next contact address,
 * and asks the owner of the data plane to resolve the peer again (at most once
 * per RAIL_CTL_RESOLVE_NS). */
void rail_ctl_check(struct tei_rail_peer *peer, uint64_t now, uint64_t since);
/* If a request has been unanswered for a while, checks whether the peer is
 * still the same process: sends a hello and looks up the address again. since:
 * time of the first attempt to send the request, ns. */
void rail_ctl_unanswered(struct tei_rail_peer *peer, uint64_t now,
			 uint64_t since);

/* --- rail_hello.c -------------------------------------------------------- */
/* Sends a hello if one is due: as an answer, to introduce this process, to
 * announce a new rail table, or to ask a silent peer for a sign of life. */
uint64_t rail_ctl_hello(struct tei_rail_peer *peer, uint64_t now, uint8_t *buf);
/* Sends the refusal of a hello that the peer has sent. */
uint64_t rail_ctl_refuse(struct tei_rail_peer *peer, uint64_t now,
			 uint8_t *buf);
/* Connects the rail pairs that a warm-up still waits for. */
uint64_t rail_ctl_warm(struct tei_rail_peer *peer, uint64_t now, uint8_t *buf);

/* --- rail_key_ctl.c ------------------------------------------------------ */
/* Answers the peer's last request for keys. */
uint64_t rail_ctl_key_reply(struct tei_rail_peer *peer, uint64_t now,
			    uint8_t *buf);
/* Requests the keys of a target range that a task needs. */
uint64_t rail_ctl_key_want(struct tei_rail_peer *peer, uint64_t now,
			   uint8_t *buf);
/* Sends REVOKED, the answer to revocations by the peer. */
uint64_t rail_ctl_revoked(struct tei_rail_peer *peer, uint64_t now,
			  uint8_t *buf);
/* Sends REVOKE to the peer while it must drain regions. */
uint64_t rail_ctl_revokes(struct tei_rail_peer *peer, uint64_t now,
			  uint8_t *buf);

/* --- rail_fence_ctl.c ---------------------------------------------------- */
/* Sends FENCE for each rail of the peer for which a fence is wanted. */
uint64_t rail_ctl_fences(struct tei_rail_peer *peer, uint64_t now,
			 uint8_t *buf);
/* At the target: closes the rx lanes that the peer has requested to be fenced,
 * and then answers. */
uint64_t rail_ctl_fence_reply(struct tei_rail_peer *peer, uint64_t now,
			      uint8_t *buf);

/* --- rail_atomic.c ------------------------------------------------------- */
/* Executes and answers the peer's atomics, and sends the atomics of this
 * process. */
uint64_t rail_ctl_atomics(struct tei_rail_peer *peer, uint64_t now,
			  uint8_t *buf);

/* --- rail_notify.c, rail_notify_recv.c ----------------------------------- */
/* Acknowledges the notifications that have arrived. */
uint64_t rail_ctl_note_answer(struct tei_rail_peer *peer, uint64_t now,
			      uint8_t *buf);
/* Sends the queued notifications. */
uint64_t rail_ctl_notes(struct tei_rail_peer *peer, uint64_t now, uint8_t *buf);

/* --- rail_reverse.c ---------------------------------------------------------
 */
/* Sends REVERSE, which permits reverse-path sends, over the rails for which it
 * is due.
 * */
uint64_t rail_ctl_reverse(struct tei_rail_peer *peer, uint64_t now,
			  uint8_t *buf);

/* --- rail_report.c ------------------------------------------------------- */
/* Logs the routes to the peer each time they have changed. */
void rail_ctl_report(struct tei_rail_peer *peer);

/* --- rail_deadline.c ----------------------------------------------------- */
/* Ends the tasks of the peer whose deadline has passed. */
uint64_t rail_ctl_deadlines(struct tei_rail_peer *peer, uint64_t now);
/* Returns when the peer's tasks last made progress: the time of the last
 * progress of the oldest live task, or of tasks that were queued ahead of it,
 * whichever is later. The peer must have a live task. */
uint64_t rail_deadline_oldest(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Extends all deadlines, because this process was suspended. still: duration of
 * the suspension, ns; now: time of its end. */
void rail_deadline_stood_still(struct tei_rail_dp *dp, uint64_t still,
			       uint64_t now);

#endif /* TEI_PROV_RAIL_PEER_RAIL_CTL_H */
