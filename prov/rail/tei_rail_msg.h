/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_TEI_RAIL_MSG_H
#define TEI_PROV_RAIL_TEI_RAIL_MSG_H

/* Notifications and user messages, a part of tei_rail.h. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/tei_rail_base.h"
#include "util/err.h"
#include "util/list.h"

#define TEI_RAIL_NOTIFY_MAX	1048576	/* largest size of name and text
					 * together, bytes */

/* A notification that was received, or that this process sends to itself. */
struct tei_rail_notification {
	struct tei_list link;		/* entry of a list; for the owner's
					 * use */
	char *name, *msg;		/* two zero-terminated strings, each
					 * allocated separately, so that the
					 * owner can free() them */
	uint64_t bytes;			/* length of name and msg together,
					 * without the terminating zeros */
	uint64_t msg_len;
	bool binary; /* true if msg may contain zero bytes */
};
/* The contents of a notification that is to be sent. */
struct tei_rail_note {
	const char *name;
	const void *msg;
	size_t msg_len;
	bool binary; /* true if msg may contain zero bytes */
};
/* Copies the contents into a new notification. Returns NULL if memory is
 * short. */
struct tei_rail_notification *
tei_rail_notification_new(const struct tei_rail_note *what);
/* Frees the notification and those of its strings that are not NULL. */
void tei_rail_notification_free(struct tei_rail_notification *note);

/*
 * MOONRAIL_NOTIFY_BYTES and MOONRAIL_MAX_NOTIFIES limit the notifications held
 * for the owner of the data plane. tei_rail_notification_reserve counts a
 * notification that this process sends to itself; it returns 0, or
 * TEI_ERR_TOO_MANY if a limit is reached. tei_rail_notification_release must be
 * called for all notifications that the application has fetched, including
 * those from ops->notify. Peers whose notifications were refused because of the
 * limits can then deliver them.
 */
int tei_rail_notification_reserve(struct tei_rail_dp *dp, uint64_t bytes);
void tei_rail_notification_release(struct tei_rail_dp *dp, uint32_t notes,
				   uint64_t bytes);

/*
 * Creates a notification that will be sent to the peer later. name and msg are
 * zero-terminated strings. The peer must stay valid until the notification is
 * queued or freed. Returns 0; or, with err filled in, TEI_ERR_INVALID if the
 * notification is longer than TEI_RAIL_NOTIFY_MAX, TEI_ERR_TOO_MANY if too many
 * notifications or bytes already wait for the peer, or TEI_ERR_MEMORY.
 */
int tei_rail_outgoing_new(struct tei_rail_peer *peer, const char *name,
			  const char *msg, struct tei_err *err,
			  struct tei_rail_outgoing **out);
/*
 * Queues a notification and takes ownership of it. The notification is sent
 * repeatedly until the peer has acknowledged it, and the peer delivers it at
 * most once, in the order in which notifications were queued. If the peer is
 * lost before it has acknowledged the notification, the notification is dropped
 * and the loss is logged.
 */
void tei_rail_outgoing_queue(struct tei_rail_outgoing *out);
/* Frees a notification that was not queued; NULL is ignored. */
void tei_rail_outgoing_free(struct tei_rail_outgoing *out);

/*
 * Sends a notification and waits for up to timeout_ns until the peer has
 * acknowledged it. Returns 0, or fills err and returns an error: one of
 * tei_rail_outgoing_new, TEI_ERR_TOO_MANY if the peer holds as many
 * notifications as it may, TEI_ERR_TIMED_OUT, TEI_ERR_NO_DEVICE if no rail
 * reaches the peer, TEI_ERR_ENDPOINT or TEI_ERR_CONTEXT if the peer is lost.
 * After an error the notification is not sent again. If err->unknown is set,
 * the notification may have arrived, or may still arrive once.
 */
int tei_rail_notify(struct tei_rail_peer *peer,
		    const struct tei_rail_note *what, uint64_t timeout_ns,
		    struct tei_err *err);
/* Makes all current and future calls of tei_rail_notify return without waiting.
 * Queued notifications are still sent. */
void tei_rail_notify_stop(struct tei_rail_dp *dp);

/* --- messages ------------------------------------------------------------ */

/*
 * A user message is a sequence of bytes that is delivered to another process at
 * most once. Several messages may arrive in any order. If the lane that carries
 * a message is closed, the message is lost. The caller must number and repeat
 * messages itself if it needs order and reliability.
 */
#define TEI_RAIL_MESSAGE_HEAD	56	/* bytes at the start of a buffer that
					 * the data plane writes */
#define TEI_RAIL_MESSAGE_MAX	16384	/* largest size of a buffer, bytes,
					 * including TEI_RAIL_MESSAGE_HEAD */

/* A received user message. It is valid from ops->message until
 * tei_rail_message_free. */
struct tei_rail_message {
	struct tei_list link;		/* entry of a list; for the owner's
					 * use */
	struct tei_rail_peer *peer;	/* the sender; the message holds a
					 * reference to it */
	uint32_t len;
	uint8_t data[];
};
void tei_rail_message_free(struct tei_rail_message *message);

/*
 * Sends the message in buf. The function overwrites the first
 * TEI_RAIL_MESSAGE_HEAD bytes of buf. The caller may reuse buf when the
 * function has returned. *prefer is the index of the rail that accepted the
 * last message, initially 0. This rail is tried first. Returns 0; -FI_EAGAIN if
 * no rail accepts the message now (ops->attend may be called when sending can
 * be retried); -FI_EHOSTUNREACH if no rail reaches the peer. back: true if a
 * reverse-path send is allowed; such a message may wait behind data that the
 * peer is reading.
 */
int tei_rail_send(struct tei_rail_peer *peer, uint8_t *buf, size_t len,
		  bool back, uint32_t *prefer);
/* Stops reverse-path sends to the peer until the peer requests them again
 * (REVERSE). Meant for a caller that detects that messages are lost. */
void tei_rail_no_reverse_path(struct tei_rail_peer *peer);

/* Writes the indices of the local rails that currently carry data to the peer,
 * and returns their number. */
uint32_t tei_rail_peer_rails(struct tei_rail_peer *peer,
			     uint8_t rails[TEI_RAIL_MAX]);

/* Requests a call of ops->attend for the peer soon. */
void tei_rail_attend(struct tei_rail_peer *peer);

/* Does what tei_rail_progress does, and polls the rx lanes as well. */
void tei_rail_progress_all(struct tei_rail_dp *dp);

/*
 * Creates a resolver for a process of which only the address "first" is known.
 * The caller drops its reference with tei_rail_peer_put. tei_rail_peer_found
 * returns the incarnation of the process, or 0 if it is not known yet;
 * ops->attend is called when the incarnation is known. A resolver may only be
 * passed to tei_rail_peer_found and tei_rail_peer_put.
 */
int tei_rail_peer_resolve(struct tei_rail_dp *dp,
			  const struct tei_rail_addr *first,
			  struct tei_err *err, struct tei_rail_peer **resolver);
uint64_t tei_rail_peer_found(struct tei_rail_peer *resolver);
/* Returns a reference to the peer with that incarnation, or NULL if it is
 * unknown. */
struct tei_rail_peer *tei_rail_peer_known(struct tei_rail_dp *dp,
					  uint64_t incarnation);

#endif /* TEI_PROV_RAIL_TEI_RAIL_MSG_H */
