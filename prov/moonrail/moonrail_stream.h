/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_STREAM_H
#define TEI_PROV_MOONRAIL_MOONRAIL_STREAM_H

/*
 * Messages of the stream to a peer, flow control, the order of operations, and
 * read-back checks.
 */

#include <rdma/fabric.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_policy.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/list.h"

struct moonrail_ep;

/* A message of the stream. Kept until it is acknowledged. */
struct moonrail_out {
	struct tei_list link;		/* in peer->flow.blocked,
					 * peer->out.queue or peer->out.sent */
	struct moonrail_op *op;		/* operation that completes when the
					 * message is acknowledged, or NULL */
	enum moonrail_policy_kind policy;
	uint32_t len;
	struct moonrail_wire wire;
	uint8_t buf[];			/* header of the data plane, then struct
					 * moonrail_wire, then payload */
};

/* --- moonrail_out.c: messages of the outgoing stream --------------------- */
/* Creates a message of the stream for len bytes of payload. The caller fills in
 * the payload and the member "wire", except for its fields version, seq and
 * ack. Returns NULL if memory is short. */
struct moonrail_out *moonrail_out_new(enum moonrail_wire_op op, uint32_t len);
static inline uint8_t *moonrail_out_payload(struct moonrail_out *o)
{
	return o->buf + MOONRAIL_HEAD;
}
/* Returns true if a message of type op answers a message of the peer, or if the
 * peer may wait for it. */
bool moonrail_out_is_answer(uint8_t op);
/* Gives a message the next number and appends it to the queue. */
void moonrail_out_queue(struct moonrail_peer *peer, struct moonrail_out *out)
	TEI_REQUIRES(moonrail_held);
/* Frees a message that is in no list, and fails its operation. */
void moonrail_out_drop(struct moonrail_out *out, int err)
	TEI_REQUIRES(moonrail_held);
/* Frees the messages of a list, and fails their operations. */
void moonrail_out_drop_list(struct tei_list *list, int err)
	TEI_REQUIRES(moonrail_held);
/* Frees all messages of the peer that have numbers, and fails their
 * operations. */
void moonrail_out_drop_all(struct moonrail_peer *peer, int err)
	TEI_REQUIRES(moonrail_held);
/* Empties the messages of a list, except those for which moonrail_out_is_answer
 * returns true, and fails the operations of the emptied messages. */
void moonrail_out_empty_list(struct tei_list *list, int err)
	TEI_REQUIRES(moonrail_held);
/* Drops all messages for a peer to which nothing has been sent, and restarts
 * the numbering. */
void moonrail_out_restart(struct moonrail_peer *peer, int err)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_stream.c --------------------------------------------------- */
/* Queues or blocks a message and sends as many messages as MOONRAIL_WINDOW
 * allows. Takes ownership of out. Returns 0. Returns -FI_EAGAIN if the peer is
 * this domain itself and its endpoint cannot accept the message now; the
 * operation is then unchanged. */
int moonrail_stream_send(struct moonrail_peer *peer, struct moonrail_out *out)
	TEI_REQUIRES(moonrail_held);
/* Sends queued messages until the window is full or the rails refuse one. */
void moonrail_stream_flush(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Sends a loose message. reverse: the message may use the reverse path. A
 * failure is ignored, because loose messages may be lost. */
void moonrail_stream_post_loose(struct moonrail_peer *peer,
				enum moonrail_wire_op op, uint16_t flags,
				bool reverse) TEI_REQUIRES(moonrail_held);
/* Sends an ACK, with the number of the next expected message and the list of
 * backpressured endpoints. */
void moonrail_stream_ack(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Handles a message from the data plane and frees it. */
void moonrail_stream_in(struct moonrail_domain *d, struct tei_rail_message *m)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_flow.c: backpressured endpoints ---------------------------- */
/* Returns true if op is a message of the application to an endpoint. Only such
 * messages wait while the endpoint is backpressured. */
static inline bool moonrail_flow_counts(uint8_t op)
{
	return op == MOONRAIL_WIRE_DATA || op == MOONRAIL_WIRE_RTS;
}
/* Blocks a message if its endpoint is backpressured. Returns false if the
 * endpoint is not backpressured. */
bool moonrail_flow_block(struct moonrail_peer *peer, struct moonrail_out *out)
	TEI_REQUIRES(moonrail_held);
/* Returns the number of earlier messages that must be sent before a new message
 * to that endpoint of the peer can be sent. */
uint32_t moonrail_flow_waiting(const struct moonrail_peer *peer, uint32_t ep)
	TEI_REQUIRES(moonrail_held);
/* Resets the counts of blocked messages, after all of these messages have been
 * freed. */
void moonrail_flow_dropped(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* moonrail_flow_ack creates an ACK with the list of backpressured endpoints, or
 * returns NULL if memory is short. moonrail_flow_receive takes over the list of
 * a received ACK and returns true if the list differs from the last one. */
struct moonrail_out *moonrail_flow_ack(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
bool moonrail_flow_receive(struct moonrail_peer *peer,
			   const struct moonrail_wire *w,
			   const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);
/* Counts an excess message: one that has arrived for a backpressured endpoint.
 * Returns 0 if the endpoint cannot accept it. Otherwise returns the value that
 * moonrail_flow_removed needs. */
uint64_t moonrail_flow_admit_excess(struct moonrail_ep *ep,
				    struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Returns true if the peer is this domain itself and the endpoint accepts no
 * further unexpected messages. */
bool moonrail_flow_refuses(const struct moonrail_peer *peer, uint32_t ep)
	TEI_REQUIRES(moonrail_held);
/* Updates the counts after an unexpected message has left the endpoint. excess:
 * result of moonrail_flow_admit_excess for this message, or 0. */
void moonrail_flow_removed(struct moonrail_ep *ep, struct moonrail_peer *peer,
			   uint64_t excess) TEI_REQUIRES(moonrail_held);
/* Notifies the senders if the endpoint is no longer backpressured, because
 * unexpected messages have left it. */
void moonrail_flow_check_room(struct moonrail_ep *ep)
	TEI_REQUIRES(moonrail_held);
/* Updates the lists of backpressured endpoints after an endpoint was closed:
 * the oldest endpoint may now be another one. */
void moonrail_flow_closed(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_order.c ---------------------------------------------------- */
/* Returns true if the peer has acknowledged all messages that carry operations
 * of this domain. Otherwise requests an acknowledgement from the peer. */
bool moonrail_stream_settled(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Returns true if an operation with these flags must wait for the operations
 * that are under way (FI_FENCE). */
static inline bool moonrail_fenced(struct moonrail_peer *peer, uint64_t flags)
	TEI_REQUIRES(moonrail_held)
{
	return flags & FI_FENCE &&
	       (peer->ops.n || !moonrail_stream_settled(peer));
}
/* Returns true if an operation of that class must be refused for now, because
 * it could overtake an operation under way and break an order of the
 * endpoint. */
bool moonrail_order_waits(const struct moonrail_ep *ep,
			  struct moonrail_peer *peer, enum moonrail_class class)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_read_back.c ------------------------------------------------ */
/* Returns true if an announced message that has been read now was certainly
 * valid during the read, because its sender cannot have timed out since the
 * announcement. ack: the acknowledged number in the RTS of the message. If the
 * function returns false, a read-back check is needed. */
bool moonrail_read_back_unneeded(const struct moonrail_peer *p, uint64_t ack)
	TEI_REQUIRES(moonrail_held);
/* Sends the read-back check for the message that op has read.
 * op->type->answered is called when the answer arrives. */
void moonrail_read_back_send(struct moonrail_op *op)
	TEI_REQUIRES(moonrail_held);
/* moonrail_read_back_query handles STILL, moonrail_read_back_answer handles
 * STILL_IS. Both are of the type moonrail_message_fn. */
bool moonrail_read_back_query(struct moonrail_peer *peer,
			      const struct moonrail_wire *w,
			      const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);
bool moonrail_read_back_answer(struct moonrail_peer *peer,
			       const struct moonrail_wire *w,
			       const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_STREAM_H */
