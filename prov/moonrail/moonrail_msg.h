/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_MSG_H
#define TEI_PROV_MOONRAIL_MOONRAIL_MSG_H

/*
 * Two-sided operations: messages and the receives that they are matched with.
 */

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/list.h"

struct moonrail_ep;
struct moonrail_peer;

/* An unexpected message. Owned by its endpoint. */
struct moonrail_unexpected {
	struct tei_list link;
	struct moonrail_peer *peer;
	struct moonrail_wire wire;
	uint64_t excess;		/* 0, or for an excess message, the
					 * result of
					 * moonrail_flow_admit_excess */
	uint32_t len;
	uint8_t bytes[];
};

/* --- moonrail_recv.c: incoming messages of the stream -------------------- */
/* Converts an error number that a peer has sent to a valid FI_E*. */
static inline int moonrail_wire_err(uint64_t err)
{
	return err < FI_ERRNO_MAX ? (int)err : FI_EIO;
}
extern const struct moonrail_op_type moonrail_recv_type;
/* Handles DATA and RTS (moonrail_message_fn). */
bool moonrail_recv_message(struct moonrail_peer *peer,
			   const struct moonrail_wire *w,
			   const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);
/* Returns true if a message arrived too soon: it is for the oldest endpoint,
 * and the domain has not opened an endpoint yet. ep: the endpoint that the
 * message is for, or NULL. */
bool moonrail_recv_too_soon(const struct moonrail_peer *peer,
			    const struct moonrail_wire *w,
			    const struct moonrail_ep *ep);
/* Drops the unexpected message that an endpoint of this domain has sent to this
 * domain itself with this id. Called when the sending endpoint is being
 * closed. */
void moonrail_recv_withdraw(struct moonrail_peer *peer, uint64_t id)
	TEI_REQUIRES(moonrail_held);
/* Posts a receive, or completes it with an unexpected message. Takes ownership
 * of op. */
void moonrail_recv_post(struct moonrail_op *op, bool tagged)
	TEI_REQUIRES(moonrail_held);
/* Matches the unexpected messages of a peer with the receives that were posted
 * for its address before its incarnation was known. */
void moonrail_recv_identified(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Handles a receive with FI_PEEK, FI_CLAIM or FI_DISCARD. Returns 0 and takes
 * ownership of op, or returns -FI_EINVAL. */
int moonrail_recv_peek(struct moonrail_op *op, bool tagged, uint64_t flags)
	TEI_REQUIRES(moonrail_held);
/* Frees the posted receives and the unexpected messages of an endpoint. */
void moonrail_recv_free_all(struct moonrail_ep *ep)
	TEI_REQUIRES(moonrail_held);
/* Cancels the posted receive with that context. Returns -FI_ENOENT if there is
 * none. */
int moonrail_recv_cancel(struct moonrail_ep *ep, void *context)
	TEI_REQUIRES(moonrail_held);
extern const struct moonrail_op_type moonrail_send_type;
extern struct fi_ops_msg moonrail_msg_ops;
extern struct fi_ops_tagged moonrail_tagged_ops;

/* --- moonrail_fin.c ------------------------------------------------------ */
/* Adds message id and its result err to the FIN that will be sent next. If
 * there is no memory to send the previous FIN, fails the peer. */
void moonrail_fin_add(struct moonrail_peer *peer, uint64_t id, int err)
	TEI_REQUIRES(moonrail_held);
/* Sends the FIN that is pending for the peer, if any. */
void moonrail_fin_send(struct moonrail_peer *peer)
	TEI_REQUIRES(moonrail_held);
/* Adds the message w to the next FIN and sends this FIN. */
void moonrail_fin_add_and_send(struct moonrail_peer *peer,
			       const struct moonrail_wire *w, int err)
	TEI_REQUIRES(moonrail_held);
/* Refuses a message that cannot be received. */
void moonrail_fin_refuse(struct moonrail_peer *peer,
			 const struct moonrail_wire *w)
	TEI_REQUIRES(moonrail_held);
/* Refuses a message for an endpoint that has been closed, and notifies the
 * sender so that it stops sending to the endpoint. */
void moonrail_fin_no_endpoint(struct moonrail_peer *peer,
			      const struct moonrail_wire *w)
	TEI_REQUIRES(moonrail_held);
/* Handles FIN (moonrail_message_fn): completes the sends that wait for it. */
bool moonrail_fin_handle(struct moonrail_peer *peer,
			 const struct moonrail_wire *w, const uint8_t *payload,
			 uint32_t len) TEI_REQUIRES(moonrail_held);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_MSG_H */
