/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_PEER_RAIL_NOTIFY_H
#define TEI_PROV_RAIL_PEER_RAIL_NOTIFY_H

/*
 * Notifications. A notification consists of two strings, which have at most
 * TEI_RAIL_NOTIFY_MAX bytes together. It is delivered to the owner of the
 * peer's data plane exactly once, or at most once if the peer is lost or the
 * sender stops waiting.
 *
 * Protocol (rail_wire.h: NOTIFY, NOTE_ACK)
 *  - The sender numbers its notifications to a peer from 1. A notification gets
 *    its number when its first message is sent, so the sender can withdraw a
 *    notification that was never sent, and the receiver does not notice.
 *  - A notification is sent in fragments, one per message. A message carries
 *    the number and the offset. The receiver accepts only the fragment that it
 *    expects, and answers with the number and offset that it expects next. The
 *    sender may have up to RAIL_NOTIFY_WINDOW unanswered messages. After a
 *    timeout or a gap it continues with the fragment that the receiver expects.
 *  - Each message carries the number of the oldest notification that the sender
 *    still holds. If the receiver expects a lower number, the sender has
 *    withdrawn that notification, and the receiver continues with the oldest
 *    one that the sender holds.
 *  - A number below the expected one is a duplicate.
 *
 * Sessions
 *  - The numbers belong to the session that the sender gave the receiver. A
 *    sender that has freed the receiver's peer object begins a new session,
 *    with a higher number.
 *  - A message contains the session that the receiver gave the sender. If the
 *    receiver has forgotten the sender meanwhile, it answers with a hello. What
 *    the receiver remembers of the sender's session (rail_notify_memory) is
 *    still valid then. If it remembers nothing, it refuses a notification that
 *    the sender has sent as a whole in an earlier session (flag AGAIN), because
 *    that notification may have been delivered.
 *
 * Limits
 *  - A receiver reserves room for a whole notification before it stores a byte
 *    of it. If there is no room, it answers FULL and puts the peer at the end
 *    of a queue. The sender then sends messages without bytes until the
 *    receiver grants it room. Room that becomes free goes to the head of the
 *    queue.
 *  - Each peer has at most one notification under assembly. An assembly that
 *    has not grown for a while is dropped if its room is needed.
 *
 * Threads: the progress thread sends and handles the messages. dp->sched guards
 * everything.
 */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"

struct rail_wire;
struct tei_err;

#define RAIL_NOTIFY_FRAGMENT (RAIL_MSG_MAX - RAIL_WIRE_HEADER - 64)
/* Largest number of unanswered messages. */
#define RAIL_NOTIFY_WINDOW 16
/* Time after which an assembly that has not grown may be dropped. Also the time
 * after which a peer that has not repeated its request no longer waits for
 * room. */
#define RAIL_NOTIFY_IDLE_NS (2 * TEI_NS_PER_SEC)

/*
 * An outgoing notification. Created by tei_rail_outgoing_new and put into the
 * list of its peer by tei_rail_outgoing_queue. If a thread waits for the
 * notification, that thread frees it. Otherwise it is freed when it is
 * acknowledged or dropped.
 */
struct tei_rail_outgoing {
	/* constant after creation */
	struct tei_rail_peer *peer;
	uint32_t name_len, msg_len;
	bool waited;			/* true if a thread waits until the
					 * notification has ended */
	bool binary;			/* true if the text may contain zero
					 * bytes */

	/* guarded by dp->sched */
	struct tei_list link;		/* entry of peer->note_out.list; empty
					 * if the notification is not in the
					 * list */
	uint64_t queued_ns;
	uint64_t number;		/* number of the notification; 0 if none
					 * of its bytes was sent */
	uint32_t sent;			/* number of bytes sent; note_go_back
					 * reduces it */
	uint32_t acked;			/* number of bytes that the receiver has
					 * acknowledged */
	bool whole;			/* true if the last byte has been
					 * sent */
	uint32_t wholes;		/* number of times that the last byte
					 * was sent, not counting messages that
					 * the receiver has certainly refused */
	uint64_t whole_turn;		/* turn of the newest message that
					 * contained the last byte */
	uint64_t session;		/* the receiver's session when the last
					 * byte was sent for the first time */
	bool ended;			/* used only if "waited" is true: the
					 * notification has ended, and err holds
					 * the result */
	struct tei_err err;

	char text[];			/* the name, followed by the text, both
					 * without terminator */
};

/* --- rail_notify.c: sending -------------------------------------------------
 */
void rail_notify_init(struct tei_rail_peer *peer);
/* Frees the queued notifications, and calls rail_notify_recv_free. */
void rail_notify_free(struct tei_rail_peer *peer) TEI_REQUIRES(rail_sched_held);
/* Handles a NOTE_ACK. */
void rail_notify_answered(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held);
/* Prepares to send all queued notifications again, because the receiver has a
 * new session. */
void rail_notify_session(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Fails all queued notifications. */
void rail_notify_fail(struct tei_rail_peer *peer, const struct tei_err *why)
	TEI_REQUIRES(rail_sched_held);
/* Handles the loss of the peer: fails all queued notifications and drops the
 * assembly. */
void rail_notify_gone(struct tei_rail_peer *peer, const struct tei_err *why)
	TEI_REQUIRES(rail_sched_held);
/* Ends the waits of threads for notifications to a peer that is presumed dead.
 * Only waits that began before the presumption end. */
void rail_notify_presumed(struct tei_rail_peer *peer, const struct tei_err *why)
	TEI_REQUIRES(rail_sched_held);
/* Returns the time at which the oldest wait for a notification began, ns, or 0
 * if no thread waits. */
uint64_t rail_notify_waited_ns(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* --- rail_notify_recv.c: receiving --------------------------------------- */
void rail_notify_dp_init(struct tei_rail_dp *dp);
void rail_notify_dp_fini(struct tei_rail_dp *dp);
/* Handles a NOTIFY. flags: the flags in the header of the message. */
void rail_notify_received(struct tei_rail_peer *peer, uint16_t flags,
			  struct rail_wire *w, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);
/* Drops the assembly, and removes the peer from the queue of the peers that
 * wait for room. */
void rail_notify_recv_drop(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Does what rail_notify_recv_drop does, before the peer is freed. Also
 * remembers the number of the next expected notification. */
void rail_notify_recv_free(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Restores the number of the next expected notification if the new peer was
 * known earlier and has been freed. */
void rail_notify_recall(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_PEER_RAIL_NOTIFY_H */
