/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_NOTE_H
#define TEI_PROV_RAIL_RAIL_NOTE_H

/*
 * Notifications: two strings of up to TEI_RAIL_NOTIFY_MAX bytes together, delivered to
 * the user of the peer's data plane exactly once, or at most once where the peer is
 * lost or the sender gives up.
 *
 * Protocol (rail_wire.h: NOTIFY, NOTE_ACK)
 *  - The sender numbers its notifications to a peer from 1. A notification gets its
 *    number when its first message is sent, so that one that was never sent can be
 *    withdrawn without a trace.
 *  - It is sent in fragments, one per message. A message carries the number and the
 *    offset. The receiver takes only the fragment that it awaits, and answers with
 *    the number and offset that it awaits next. The sender has a window of
 *    messages without an answer. After a timeout or a gap it goes back to the
 *    fragment that the receiver awaits.
 *  - The number of the oldest notification that the sender still holds travels with
 *    each message. If the receiver awaits a lower one, the sender has withdrawn
 *    that, and the receiver goes on with the oldest.
 *  - A number below the awaited one is a duplicate.
 *
 * Sessions
 *  - A stream is the session that the sender gave the receiver, so a sender that
 *    forgets the receiver begins a new and higher one.
 *  - A message names the session that the receiver gave the sender. If the receiver
 *    has forgotten the sender meanwhile it answers with a hello. Its memory of the
 *    stream (rail_note_memory) holds in the new session too. Without a memory, the
 *    receiver refuses a notification that the sender has wholly sent in an earlier
 *    session (flag AGAIN), since that notification may have been delivered.
 *
 * Limits
 *  - A receiver reserves room for a notification as a whole before it keeps a byte
 *    of it. If there is no room, it answers FULL and puts the peer at the end of a
 *    queue; the sender asks by messages without bytes until it is let in. Room
 *    that becomes free goes to the head of the queue.
 *  - One notification per peer is under assembly. An assembly that has not grown for
 *    a while is dropped if its room is wanted.
 *
 * Threads: messages are sent and handled by the progress thread; everything is
 * guarded by dp->sched.
 */

#include "prov/rail/rail_int.h"

#define RAIL_NOTE_FRAGMENT	(RAIL_MSG_MAX - RAIL_WIRE_HEADER - 64)
#define RAIL_NOTE_WINDOW	16	/* messages not answered, at most */
#define RAIL_NOTE_IDLE_NS	(2 * TEI_NS_PER_SEC) /* an assembly may be dropped; a
						      * peer no longer waits */

/*
 * A notification to be sent. Created by tei_rail_outgoing_new; in the list of its
 * peer from tei_rail_outgoing_queue on, then freed there when it is acknowledged or
 * dropped. One that is waited for is freed by the waiting thread.
 */
struct tei_rail_outgoing {
	/* fixed */
	struct tei_rail_peer *peer;
	uint32_t name_len, msg_len;
	bool waited;			/* a thread waits for it */

	/* dp->sched */
	struct tei_list link;		/* peer->note_out.list, or alone */
	uint64_t queued_ns;
	uint64_t number;		/* 0: nothing of it was sent */
	uint32_t sent;			/* bytes sent, since the last going back */
	uint32_t acked;			/* bytes acknowledged */
	bool whole;			/* its last byte is among those sent */
	uint32_t wholes;		/* times that its last byte was sent, but for
					 * the one that was refused for certain */
	uint64_t whole_turn;		/* of the last one */
	uint64_t session;		/* the receiver's, when its last byte was
					 * sent first */
	bool ended;			/* waited: err holds the result */
	struct tei_err err;

	char text[];			/* name, then message; no terminators */
};

/* --- rail_note.c: sending ------------------------------------------------- */
void rail_note_init(struct tei_rail_peer *peer);
/* Frees what is queued, and calls rail_note_in_free. */
void rail_note_free(struct tei_rail_peer *peer) TEI_REQUIRES(rail_sched_held);
/* Handles a NOTE_ACK. */
void rail_note_answered(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held);
/* The receiver has a new session: everything is sent again. */
void rail_note_session(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Everything that is queued fails. */
void rail_note_fail(struct tei_rail_peer *peer, const struct tei_err *why)
	TEI_REQUIRES(rail_sched_held);
/* The peer is lost: the same, and the assembly is dropped. */
void rail_note_gone(struct tei_rail_peer *peer, const struct tei_err *why)
	TEI_REQUIRES(rail_sched_held);
/* The peer is presumed to have ended: waits that began before that end. */
void rail_note_presumed(struct tei_rail_peer *peer, const struct tei_err *why)
	TEI_REQUIRES(rail_sched_held);
/* Returns when the oldest wait began, 0: no thread waits. */
uint64_t rail_note_waited_ns(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* --- rail_note_in.c: receiving -------------------------------------------- */
void rail_note_dp_init(struct tei_rail_dp *dp);
void rail_note_dp_fini(struct tei_rail_dp *dp);
/* Handles a NOTIFY; flags: of the message. */
void rail_note_received(struct tei_rail_peer *peer, uint16_t flags,
			struct rail_wire *w, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Drops the assembly and the place in the queue for room. */
void rail_note_in_drop(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* The same before the peer is freed; remembers where its stream is. */
void rail_note_in_free(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* A peer was made that may have been freed before. */
void rail_note_recall(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_RAIL_NOTE_H */
