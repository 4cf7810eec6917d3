/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_CHANNEL_H
#define TEI_UTIL_CHANNEL_H

/*
 * The state of a reliable message channel between two processes, on top of
 * messages that may be lost, repeated and reordered. The module does no I/O and
 * has neither a lock nor a clock: its user sends and receives the messages,
 * chooses the lock that guards the state, and measures the times.
 *
 * Numbers. The sender gives each message a number. Numbers increase by one and
 * wrap at 2^64. The sender sends number n for the first time only when number n
 * - window and all lower ones have finished. The sender repeats each message,
 * with the same number, until it has finished. tei_channel_pause returns the
 * interval of the repetitions.
 *
 * Stream. The receiver (struct tei_channel_in) delivers the messages in the
 * order of their numbers, each exactly once. The receiver keeps out-of-order
 * messages, up to a limit. Each message that the receiver sends contains
 * the number that it expects next. This number acknowledges all messages with
 * lower numbers: they have finished.
 *
 * Requests. The receiver acts on each message when it arrives and stores its
 * answer in a table with `window` entries, at the index number modulo window.
 * Number 0 is not used. If a request is repeated, the receiver sends the stored
 * answer again (tei_channel_seen). A request has finished when its answer has
 * arrived, or when the sender no longer needs one. Requests may be executed in
 * any order.
 *
 * Restart. The numbers belong to a session on which the two processes agree
 * by other means. If either side has lost its state, there is a new session:
 * the user ignores messages of the old one, and calls tei_channel_out_start
 * and tei_channel_in_start again. A sender of requests may instead continue
 * the session with numbers that are higher than all earlier ones.
 *
 * The structs are public so that they can be embedded and functions can be
 * inlined. Only the functions below may change their members.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- sender -------------------------------------------------------------- */

struct tei_channel_out {
	uint64_t acked;			/* messages with numbers below this one
					 * have finished */
	uint64_t sent;			/* messages with numbers below this one
					 * have been sent at least once */
	uint64_t next;			/* number that the next new message
					 * gets */
};

/* Returns true if number a is below number b. The two may differ by less than
 * 2^63. */
static inline bool tei_channel_below(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b) < 0;
}

/* Initialises the sender. Its next message gets the number "first". */
static inline void tei_channel_out_start(struct tei_channel_out *out,
					 uint64_t first)
{
	out->acked = out->sent = out->next = first;
}

/* Assigns the next number to a new message, which has not been sent yet, and
 * returns this number. */
static inline uint64_t tei_channel_out_add(struct tei_channel_out *out)
{
	return out->next++;
}

/* Returns the number of messages that were sent and have not finished. */
static inline uint64_t
tei_channel_out_unacked(const struct tei_channel_out *out)
{
	return out->sent - out->acked;
}

/* Returns the number of messages that have a number and were not sent yet. */
static inline uint64_t tei_channel_out_unsent(const struct tei_channel_out *out)
{
	return out->next - out->sent;
}

/* Returns true if a further message may be sent for the first time, because
 * fewer than "window" messages are sent and unfinished. */
static inline bool tei_channel_out_open(const struct tei_channel_out *out,
					uint32_t window)
{
	return out->sent - out->acked < window;
}

/* Records that the message with the lowest unsent number has been sent. */
static inline void tei_channel_out_sent(struct tei_channel_out *out)
{
	out->sent++;
}

/* Takes back the numbers of all messages that were not sent yet. The caller
 * calls tei_channel_out_add for these messages again. */
static inline void tei_channel_out_recall(struct tei_channel_out *out)
{
	out->next = out->sent;
}

/*
 * Records that all messages with numbers below ack have finished. Returns true
 * if at least one of these had not finished before. If a number below ack was
 * never sent, the peer is faulty: ignores the acknowledgement and returns
 * false.
 */
static inline bool tei_channel_out_ack(struct tei_channel_out *out,
				       uint64_t ack)
{
	if (!tei_channel_below(out->acked, ack) ||
	    tei_channel_below(out->sent, ack))
		return false;
	out->acked = ack;
	return true;
}

/* --- repetition ---------------------------------------------------------- */

/* The interval between repetitions of a message: begins with first_ns, doubles
 * with each repetition, and is at most longest_ns. */
struct tei_channel_pace {
	uint64_t first_ns, longest_ns;
};

/* Returns the interval after `tries` repetitions, ns. */
uint64_t tei_channel_pause(const struct tei_channel_pace *pace, uint32_t tries);

/* --- receiver of a stream ------------------------------------------------ */

struct tei_channel_in {
	uint64_t expected;		/* number of the next message to be
					 * delivered */
	uint32_t limit; /* out-of-order messages with numbers below expected +
			 * limit are kept; limit is a power of 2 */
	uint32_t nkept;			/* number of out-of-order messages that
					 * are kept */
	/* array of `limit` pointers to out-of-order messages; the index is the
	 * message's number modulo limit. Allocated when the first message is
	 * kept */
	void **kept;
};

/* What the receiver must do with a message that has arrived. */
enum tei_channel_arrival {
	TEI_CHANNEL_DELIVER,		/* the message has the expected
					 * number */
	TEI_CHANNEL_EARLY,		/* the message is out of order: keep it
					 * (tei_channel_in_keep) */
	TEI_CHANNEL_DROP,		/* the message was delivered before, or
					 * its number is beyond the limit; the
					 * sender will repeat it */
};

/* Initialises the receiver. The first message that it expects has the number
 * "first". limit must be a power of 2. */
void tei_channel_in_start(struct tei_channel_in *in, uint64_t first,
			  uint32_t limit);
/* Frees the memory of the receiver. The caller has removed all kept messages
 * with tei_channel_in_drain. */
void tei_channel_in_free(struct tei_channel_in *in);

static inline enum tei_channel_arrival
tei_channel_in_check(const struct tei_channel_in *in, uint64_t number)
{
	uint64_t ahead = number - in->expected;

	if (!ahead)
		return TEI_CHANNEL_DELIVER;
	return ahead < in->limit ? TEI_CHANNEL_EARLY : TEI_CHANNEL_DROP;
}

/* Keeps an out-of-order message. Returns false if the channel already keeps a
 * message with this number, or if memory is short; the caller then drops the
 * message. */
bool tei_channel_in_keep(struct tei_channel_in *in, uint64_t number,
			 void *message);

/* Removes and returns the out-of-order message with the expected number, or
 * NULL. Called only by tei_channel_in_delivered; nkept must not be 0. */
void *tei_channel_in_take(struct tei_channel_in *in);

/* Records that the expected message has been delivered. If the channel has kept
 * this message, removes and returns it; the caller frees it. Otherwise returns
 * NULL. */
static inline void *tei_channel_in_delivered(struct tei_channel_in *in)
{
	void *kept = in->nkept ? tei_channel_in_take(in) : NULL;

	in->expected++;
	return kept;
}

/* Returns the kept message that is to be delivered next, or NULL if it has not
 * arrived. The message stays in the channel until tei_channel_in_delivered
 * returns it. */
static inline void *tei_channel_in_next(const struct tei_channel_in *in)
{
	return in->nkept ? in->kept[in->expected & (in->limit - 1)] : NULL;
}

/* Removes and returns one of the kept messages, or returns NULL if there is
 * none. */
void *tei_channel_in_drain(struct tei_channel_in *in);

/* --- receiver of requests ------------------------------------------------ */

enum tei_channel_seen {
	TEI_CHANNEL_NEW,		/* the request is new: handle it, and
					 * store its answer in its table
					 * entry */
	TEI_CHANNEL_REPEATED,		/* the request was received before: send
					 * the stored answer again */
	TEI_CHANNEL_OLD,		/* a later request has replaced the
					 * entry, so this request has finished:
					 * ignore it */
};

/* Classifies a request that has arrived. recorded: number of the request whose
 * answer is stored at the index number modulo window, or 0 if there is none. */
static inline enum tei_channel_seen tei_channel_seen(uint64_t recorded,
						     uint64_t number)
{
	if (recorded == number)
		return TEI_CHANNEL_REPEATED;
	return !recorded || tei_channel_below(recorded, number) ?
		       TEI_CHANNEL_NEW : TEI_CHANNEL_OLD;
}

#endif /* TEI_UTIL_CHANNEL_H */
