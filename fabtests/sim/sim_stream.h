/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_STREAM_H
#define TEI_FABTESTS_SIM_SIM_STREAM_H

/*
 * The checker of messages. A stream is the sequence of messages of one kind that
 * one process sends to one other process. The messages are numbered from 0. A
 * stream is kept after its processes have ended, because messages of a killed
 * process may still arrive.
 */

#include <stdbool.h>
#include <stdint.h>

struct sim_stream;

/* The identity of a stream. */
struct sim_stream_id {
	uint64_t sender, receiver;	/* incarnations of the processes */
	uint32_t from, to;		/* hosts of the sender and the
					 * receiver */
	uint32_t kind;			/* 0: messages; 1: tagged messages */
};

/* Returns the stream. Creates the stream if it does not exist. */
struct sim_stream *sim_stream_get(const struct sim_stream_id *id);
/* Returns the stream, or NULL if it does not exist. */
struct sim_stream *sim_stream_find(const struct sim_stream_id *id);

/* Adds a message to the stream and returns its number. */
uint64_t sim_stream_send(struct sim_stream *s);
/* Records that a send has completed. `promised` is true if the completion
 * guarantees that the message is in the receiver's buffer. */
void sim_stream_sent(struct sim_stream *s, uint64_t number, bool promised);
/* Records that the sender got an error. Messages of the stream may be missing
 * then, except those whose completion guarantees that they are received. */
void sim_stream_failed(struct sim_stream *s);
/* Records that message `number` was received. Fails the simulation if the
 * message was not sent, was received before, or was matched out of order.
 * `receive` is the number of the receive that matched the message, counted in
 * the order in which the process has posted receives of this kind. */
void sim_stream_received(struct sim_stream *s, uint64_t number,
			 uint64_t receive);

/* Called when a process has read all its completions and has closed its objects.
 * Fails the simulation if messages to this process are missing. `receiver` is
 * its incarnation, `to` its host. */
void sim_stream_verify(uint32_t to, uint64_t receiver);
/* Frees all streams. */
void sim_stream_end(void);

#endif /* TEI_FABTESTS_SIM_SIM_STREAM_H */
