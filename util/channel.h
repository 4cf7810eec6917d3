/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_CHANNEL_H
#define TEI_UTIL_CHANNEL_H

/*
 * The state of a reliable message channel between two processes, on top of
 * messages that may be lost, repeated and reordered. The module has no I/O, no
 * lock and no clock: its user sends the messages, states which lock guards the
 * state, and passes times.
 *
 * Numbers. The sender gives each message a number. Numbers increase by one and
 * wrap at 2^64. The sender sends number n for the first time only when number
 * n - window and all lower ones have finished. It repeats an unfinished
 * message, with its number, until it has finished. tei_channel_pause returns
 * the interval of the repetitions.
 *
 * Stream. The receiver (struct tei_channel_in) delivers the messages in the
 * order of their numbers, each exactly once. The receiver keeps out-of-order
 * messages, up to a limit. Each message that the receiver sends contains
 * the number that it expects next. This number acknowledges all messages with
 * lower numbers: they have finished.
 *
 * Requests. The receiver acts on each message when it arrives and keeps a
 * record of the last window of numbers; the record of number n has the index n
 * modulo window.
 * Number 0 is not used. A record has the answer, which is sent again if the
 * request is repeated (tei_channel_seen). A request has finished when its
 * answer has arrived, or when the sender no longer needs one. No order is kept.
 *
 * Restart. The numbers belong to a session on which the two processes agree
 * by other means. If either side has lost its state, there is a new session:
 * the user ignores messages of the old one, and calls tei_channel_out_start
 * and tei_channel_in_start again. A sender of requests may instead continue
 * the session with numbers that are higher than all earlier ones.
 *
 * All members are public for inlining and embedding. Only the functions below
 * change them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- sender -------------------------------------------------------------- */

struct tei_channel_out {
	uint64_t acked;			/* all messages with lower numbers have
					 * finished */
	uint64_t sent;			/* all messages with lower numbers have
					 * been sent at least once */
	uint64_t next;			/* number of the next message */
};

/* Returns true if number a is below number b. The two may differ by less than
 * 2^63. */
static inline bool tei_channel_below(uint64_t a, uint64_t b)
{
	return (int64_t)(a - b) < 0;
}

/* Initialises the channel. The next message gets the number first. */
static inline void tei_channel_out_start(struct tei_channel_out *out,
					 uint64_t first)
{
	out->acked = out->sent = out->next = first;
}

/* Returns the number of a new message, which is not sent yet. */
static inline uint64_t tei_channel_out_add(struct tei_channel_out *out)
{
	return out->next++;
}

/* Returns how many numbers were sent and have not finished. */
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

/* Returns true if a message may be sent for the first time. */
static inline bool tei_channel_out_open(const struct tei_channel_out *out,
					uint32_t window)
{
	return out->sent - out->acked < window;
}

/* Records that the lowest number that was not sent has been sent. */
static inline void tei_channel_out_sent(struct tei_channel_out *out)
{
	out->sent++;
}

/* Withdraws all numbers that were not sent yet. The caller numbers these
 * messages again. */
static inline void tei_channel_out_recall(struct tei_channel_out *out)
{
	out->next = out->sent;
}

/*
 * Records that all numbers below ack have finished. Returns true if the
 * acknowledgement is newer than the last one. If ack is above the numbers sent,
 * the function ignores the acknowledgement: the peer is faulty.
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
	uint32_t limit; /* a power of 2: an out-of-order message is kept
			 * if its number is below expected + limit */
	uint32_t nkept;			/* number of out-of-order messages */
	void **kept;			/* array of limit out-of-order messages;
					 * the index is the number modulo limit;
					 * allocated for the first one */
};

/* What to do with a message that has arrived. */
enum tei_channel_arrival {
	TEI_CHANNEL_DELIVER,		/* the message has the expected
					 * number */
	TEI_CHANNEL_EARLY,		/* the message is out of order: keep it
					 * (tei_channel_in_keep) */
	TEI_CHANNEL_DROP,		/* the message was delivered before, or
					 * its number is beyond the limit; the
					 * sender will repeat it */
};

/* Initialises the receiver, which expects the number first next. limit must be
 * a power of 2. */
void tei_channel_in_start(struct tei_channel_in *in, uint64_t first,
			  uint32_t limit);
/* Frees the memory of the channel, which keeps no message any longer
 * (tei_channel_in_drain). */
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

/* Returns the out-of-order message that is to be delivered next, or NULL if it
 * has not arrived. The channel keeps the message until tei_channel_in_delivered
 * returns it. */
static inline void *tei_channel_in_next(const struct tei_channel_in *in)
{
	return in->nkept ? in->kept[in->expected & (in->limit - 1)] : NULL;
}

/* Removes any out-of-order message and returns it. Returns NULL if there is
 * none. */
void *tei_channel_in_drain(struct tei_channel_in *in);

/* --- receiver of requests ------------------------------------------------ */

enum tei_channel_seen {
	TEI_CHANNEL_NEW,		/* handle the request, and replace the
					 * record with one of this request */
	TEI_CHANNEL_REPEATED,		/* the record is of this request: send
					 * the recorded answer again */
	TEI_CHANNEL_OLD,		/* ignore the request: it has
					 * finished */
};

/* Classifies a request that has arrived. recorded is the number of the request
 * whose record is at index number modulo window, or 0 if there is no record. */
static inline enum tei_channel_seen tei_channel_seen(uint64_t recorded,
						     uint64_t number)
{
	if (recorded == number)
		return TEI_CHANNEL_REPEATED;
	return !recorded || tei_channel_below(recorded, number) ?
		       TEI_CHANNEL_NEW : TEI_CHANNEL_OLD;
}

#endif /* TEI_UTIL_CHANNEL_H */
