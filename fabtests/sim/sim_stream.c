/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/sim/sim_stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_check.h"
#include "util/list.h"

struct stream_message {
	bool sent;			/* the send has completed */
	bool promised;			/* the completion guarantees that the
					 * message is received */
	bool received;
	uint64_t receive;		/* number of the receive; valid if
					 * `received` is true */
};

struct sim_stream {
	struct tei_list link;		/* in streams */
	struct sim_stream_id id;
	struct stream_message *messages;
	uint64_t n, room;		/* number of messages, and number for
					 * which memory is allocated */
	bool failed;			/* the sender got an error */
};

static struct tei_list streams = { &streams, &streams };

static const char *stream_name(const struct sim_stream *s, uint64_t number)
{
	static char text[128];

	snprintf(text, sizeof(text),
		 "%s message %" PRIu64 " of host %u (%" PRIu64 ") to host %u (%" PRIu64 ")",
		 s->id.kind ? "tagged" : "untagged", number, s->id.from,
		 s->id.sender, s->id.to, s->id.receiver);
	return text;
}

struct sim_stream *sim_stream_find(const struct sim_stream_id *id)
{
	struct sim_stream *s;

	tei_list_foreach (s, &streams, struct sim_stream, link)
		if (s->id.sender == id->sender &&
		    s->id.receiver == id->receiver && s->id.from == id->from &&
		    s->id.to == id->to && s->id.kind == id->kind)
			return s;
	return NULL;
}

struct sim_stream *sim_stream_get(const struct sim_stream_id *id)
{
	struct sim_stream *s = sim_stream_find(id);

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		sim_fail("no memory for a stream");
	s->id = *id;
	tei_list_add_tail(&streams, &s->link);
	return s;
}

uint64_t sim_stream_send(struct sim_stream *s)
{
	if (s->n == s->room) {
		s->room = s->room ? 2 * s->room : 64;
		s->messages = realloc(s->messages,
				      s->room * sizeof(*s->messages));
		if (!s->messages)
			sim_fail("no memory for messages");
	}
	memset(&s->messages[s->n], 0, sizeof(*s->messages));
	return s->n++;
}

void sim_stream_sent(struct sim_stream *s, uint64_t number, bool promised)
{
	s->messages[number].sent = true;
	s->messages[number].promised = promised;
}

void sim_stream_failed(struct sim_stream *s)
{
	s->failed = true;
}

/* Compares the numbers of the receives with those of the messages before and
 * after this one. The order of the completions is no evidence, because it may
 * differ from the order in which messages were matched with receives. */
void sim_stream_received(struct sim_stream *s, uint64_t number,
			 uint64_t receive)
{
	struct stream_message *m;
	uint64_t i;

	if (number >= s->n)
		sim_found("%s: received, but not sent",
			  stream_name(s, number));
	m = &s->messages[number];
	if (m->received)
		sim_found("%s: received twice", stream_name(s, number));
	m->received = true;
	m->receive = receive;
	for (i = number; i > 0 && !s->messages[i - 1].received; i--)
		;
	if (i > 0 && s->messages[i - 1].receive > receive)
		sim_found("%s: matched before message %" PRIu64,
			  stream_name(s, number), i - 1);
	for (i = number + 1; i < s->n && !s->messages[i].received; i++)
		;
	if (i < s->n && s->messages[i].receive < receive)
		sim_found("%s: matched after message %" PRIu64,
			  stream_name(s, number), i);
}

static void stream_verify(const struct sim_stream *s)
{
	const struct stream_message *m;
	uint64_t i, n = 0;

	/* Messages after the last received one may have been in flight when the
	 * receiver left. */
	for (i = 0; i < s->n; i++)
		if (s->messages[i].received)
			n = i;
	for (i = 0; i < s->n; i++) {
		m = &s->messages[i];
		if (m->received)
			continue;
		if (m->promised)
			sim_found("%s: delivered, but not received",
				  stream_name(s, i));
		if (m->sent && i < n && !s->failed)
			sim_found("%s: lost without an error",
				  stream_name(s, i));
	}
}

void sim_stream_verify(uint32_t to, uint64_t receiver)
{
	struct sim_stream *s;

	tei_list_foreach (s, &streams, struct sim_stream, link)
		if (s->id.to == to && s->id.receiver == receiver)
			stream_verify(s);
}

void sim_stream_end(void)
{
	struct sim_stream *s, *next;

	tei_list_foreach_safe (s, next, &streams, struct sim_stream, link) {
		tei_list_del(&s->link);
		free(s->messages);
		free(s);
	}
}
