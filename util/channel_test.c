/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "util/channel.h"
#include "util/util_test.h"

#define WINDOW	8u		/* largest number of unacknowledged messages */
#define EARLY	16u		/* largest number of kept out-of-order messages,
				 * plus 1 */
#define LINK	64u		/* largest number of messages in transit in one
				 * direction */
#define SENT	300u		/* number of messages that a simulation sends */
#define STEPS	200000u	/* largest number of steps of a simulation */

/* --- the sender ---------------------------------------------------------- */

static void test_pause_doubles_up_to_the_longest(void)
{
	const struct tei_channel_pace pace = { 20, 200 };

	CU_ASSERT_EQUAL(tei_channel_pause(&pace, 0), 20);
	CU_ASSERT_EQUAL(tei_channel_pause(&pace, 1), 40);
	CU_ASSERT_EQUAL(tei_channel_pause(&pace, 3), 160);
	CU_ASSERT_EQUAL(tei_channel_pause(&pace, 4), 200);
	CU_ASSERT_EQUAL(tei_channel_pause(&pace, UINT32_MAX), 200);
}

static void test_window_is_open_until_it_is_full(void)
{
	struct tei_channel_out out;
	uint32_t i;

	tei_channel_out_start(&out, 5);
	for (i = 0; i < WINDOW; i++) {
		CU_ASSERT(tei_channel_out_open(&out, WINDOW));
		CU_ASSERT_EQUAL(tei_channel_out_add(&out), 5 + i);
		CU_ASSERT_EQUAL(tei_channel_out_unsent(&out), 1);
		tei_channel_out_sent(&out);
	}
	CU_ASSERT(!tei_channel_out_open(&out, WINDOW));
	CU_ASSERT_EQUAL(tei_channel_out_unacked(&out), WINDOW);
	CU_ASSERT(tei_channel_out_ack(&out, 6));
	CU_ASSERT(tei_channel_out_open(&out, WINDOW));
	CU_ASSERT_EQUAL(tei_channel_out_unacked(&out), WINDOW - 1);
}

static void test_repeated_acknowledgement_is_ignored(void)
{
	struct tei_channel_out out;

	tei_channel_out_start(&out, 1);
	tei_channel_out_add(&out);
	tei_channel_out_sent(&out);
	CU_ASSERT(!tei_channel_out_ack(&out, 1));
	CU_ASSERT(tei_channel_out_ack(&out, 2));
	CU_ASSERT(!tei_channel_out_ack(&out, 2));
	CU_ASSERT(!tei_channel_out_ack(&out, 1));
	CU_ASSERT_EQUAL(out.acked, 2);
}

static void test_acknowledgement_of_unsent_number_is_ignored(void)
{
	struct tei_channel_out out;

	tei_channel_out_start(&out, 1);
	tei_channel_out_add(&out);
	CU_ASSERT(!tei_channel_out_ack(&out, 2));
	CU_ASSERT(!tei_channel_out_ack(&out, UINT64_MAX));
	CU_ASSERT_EQUAL(out.acked, 1);
}

static void test_recalled_numbers_are_given_again(void)
{
	struct tei_channel_out out;

	tei_channel_out_start(&out, 1);
	tei_channel_out_add(&out);
	tei_channel_out_sent(&out);
	tei_channel_out_add(&out);
	tei_channel_out_add(&out);
	tei_channel_out_recall(&out);
	CU_ASSERT_EQUAL(tei_channel_out_unsent(&out), 0);
	CU_ASSERT_EQUAL(tei_channel_out_add(&out), 2);
}

/* --- the receiver -------------------------------------------------------- */

static void test_early_and_delivered_messages_are_dropped(void)
{
	struct tei_channel_in in;
	uint64_t n;

	tei_channel_in_start(&in, 1, EARLY);
	CU_ASSERT_EQUAL(tei_channel_in_check(&in, 0), TEI_CHANNEL_DROP);
	CU_ASSERT_EQUAL(tei_channel_in_check(&in, 1), TEI_CHANNEL_DELIVER);
	CU_ASSERT_EQUAL(tei_channel_in_check(&in, EARLY), TEI_CHANNEL_EARLY);
	CU_ASSERT_EQUAL(tei_channel_in_check(&in, 1 + EARLY), TEI_CHANNEL_DROP);
	CU_ASSERT_EQUAL(tei_channel_in_check(&in, UINT64_MAX),
			TEI_CHANNEL_DROP);
	for (n = 2; n <= EARLY; n++)
		CU_ASSERT(tei_channel_in_keep(&in, n, &in));
	CU_ASSERT_EQUAL(in.nkept, EARLY - 1);
	CU_ASSERT(!tei_channel_in_keep(&in, 2, &in));
	CU_ASSERT_EQUAL(in.nkept, EARLY - 1);
	for (n = 2; n <= EARLY; n++)
		CU_ASSERT_PTR_EQUAL(tei_channel_in_drain(&in), &in);
	CU_ASSERT_PTR_NULL(tei_channel_in_drain(&in));
	tei_channel_in_free(&in);
}

/* Tests that a kept message stays in the channel as long as the receiver's user
 * does not accept it. */
static void test_refused_message_stays_kept_until_delivered(void)
{
	struct tei_channel_in in;
	int second, third;

	tei_channel_in_start(&in, 1, EARLY);
	CU_ASSERT(tei_channel_in_keep(&in, 3, &third));
	CU_ASSERT(tei_channel_in_keep(&in, 2, &second));
	CU_ASSERT_PTR_NULL(tei_channel_in_next(&in));
	CU_ASSERT_PTR_NULL(tei_channel_in_delivered(&in));
	CU_ASSERT_PTR_EQUAL(tei_channel_in_next(&in), &second);
	CU_ASSERT_EQUAL(tei_channel_in_check(&in, 2), TEI_CHANNEL_DELIVER);
	CU_ASSERT_PTR_EQUAL(tei_channel_in_delivered(&in), &second);
	CU_ASSERT_PTR_EQUAL(tei_channel_in_next(&in), &third);
	CU_ASSERT_PTR_EQUAL(tei_channel_in_delivered(&in), &third);
	CU_ASSERT_PTR_NULL(tei_channel_in_next(&in));
	CU_ASSERT_EQUAL(in.expected, 4);
	CU_ASSERT_EQUAL(in.nkept, 0);
	tei_channel_in_free(&in);
}

static void test_request_is_new_repeated_or_old(void)
{
	CU_ASSERT_EQUAL(tei_channel_seen(0, 7), TEI_CHANNEL_NEW);
	CU_ASSERT_EQUAL(tei_channel_seen(0, UINT64_MAX), TEI_CHANNEL_NEW);
	CU_ASSERT_EQUAL(tei_channel_seen(7, 7), TEI_CHANNEL_REPEATED);
	CU_ASSERT_EQUAL(tei_channel_seen(7, 15), TEI_CHANNEL_NEW);
	CU_ASSERT_EQUAL(tei_channel_seen(15, 7), TEI_CHANNEL_OLD);
	CU_ASSERT_EQUAL(tei_channel_seen(UINT64_MAX - 4, 3), TEI_CHANNEL_NEW);
	CU_ASSERT_EQUAL(tei_channel_seen(3, UINT64_MAX - 4), TEI_CHANNEL_OLD);
}

/* --- simulations --------------------------------------------------------- */

/* A message in transit. */
struct sim_message {
	uint64_t session, number, ack, value;
};

/* One direction of a simulated link, which loses, repeats and reorders
 * messages. */
struct sim_link {
	struct sim_message at[LINK];
	uint32_t n;
};

static void link_send(struct sim_link *l, struct sim_message m,
		      struct tei_fuzz *f)
{
	uint32_t copies = tei_fuzz_random(f) % 4 ? 1 : tei_fuzz_random(f) % 3;

	while (copies-- && l->n < LINK)
		l->at[l->n++] = m;
}

/* Removes a random message from the link. Returns false if the link has
 * none. */
static bool link_take(struct sim_link *l, struct sim_message *m,
		      struct tei_fuzz *f)
{
	uint32_t i = l->n ? (uint32_t)(tei_fuzz_random(f) % l->n) : 0;

	if (!l->n)
		return false;
	*m = l->at[i];
	l->at[i] = l->at[--l->n];
	return true;
}

/* Simulates a stream. The values of its messages are 0, 1, 2, …, so that the
 * receiver can check their order. */
struct sim_stream {
	struct tei_fuzz *f;
	uint64_t first;			/* number of the first message in each
					 * session */
	uint64_t session;
	struct tei_channel_out out;
	struct tei_channel_in in;
	uint64_t base;			/* value of the first message in the
					 * current session */
	uint64_t delivered;		/* value of the next message to be
					 * delivered */
	bool bad;
	struct sim_link there, back;
};

static void stream_send(struct sim_stream *s, uint64_t number)
{
	struct sim_message m = {
		.session = s->session,
		.number = number,
		.value = s->base + (number - s->first),
	};

	link_send(&s->there, m, s->f);
}

/* Sends a new message for the first time, or sends all unacknowledged messages
 * again. */
static void stream_out(struct sim_stream *s)
{
	uint64_t n;

	if (tei_channel_out_open(&s->out, WINDOW) &&
	    tei_fuzz_random(s->f) % 8) {
		if (s->base + (s->out.next - s->first) < SENT) {
			stream_send(s, tei_channel_out_add(&s->out));
			tei_channel_out_sent(&s->out);
		}
		return;
	}
	for (n = s->out.acked; n != s->out.sent; n++)
		stream_send(s, n);
}

/* Delivers a message. Returns false if the receiver's user refuses it, which
 * happens at random. */
static bool stream_deliver(struct sim_stream *s, const struct sim_message *m)
{
	if (!(tei_fuzz_random(s->f) % 8))
		return false;
	s->bad |= m->value != s->delivered;
	s->delivered++;
	free(tei_channel_in_delivered(&s->in));
	return true;
}

static void stream_keep(struct sim_stream *s, const struct sim_message *m)
{
	struct sim_message *copy = malloc(sizeof(*copy));

	CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
	*copy = *m;
	if (!tei_channel_in_keep(&s->in, m->number, copy))
		free(copy);
	s->bad |= s->in.nkept >= EARLY;
}

static void stream_in(struct sim_stream *s)
{
	struct sim_message m;
	const struct sim_message *kept;

	if (!link_take(&s->there, &m, s->f) || m.session != s->session)
		return;
	switch (tei_channel_in_check(&s->in, m.number)) {
	case TEI_CHANNEL_DELIVER:
		if (!stream_deliver(s, &m))
			break;
		while ((kept = tei_channel_in_next(&s->in)))
			if (!stream_deliver(s, kept))
				break;
		break;
	case TEI_CHANNEL_EARLY:
		stream_keep(s, &m);
		break;
	case TEI_CHANNEL_DROP:
		break;
	}
	m.ack = s->in.expected;
	link_send(&s->back, m, s->f);
}

static void stream_ack(struct sim_stream *s)
{
	struct sim_message m;

	if (!link_take(&s->back, &m, s->f) || m.session != s->session)
		return;
	tei_channel_out_ack(&s->out, m.ack);
	s->bad |= tei_channel_out_unacked(&s->out) > WINDOW;
}

static void stream_end(struct sim_stream *s)
{
	void *kept;

	while ((kept = tei_channel_in_drain(&s->in)))
		free(kept);
	tei_channel_in_free(&s->in);
}

/* Begins a new session, which starts with the next message to be delivered.
 * Messages of the previous session may still be in transit. */
static void stream_begin(struct sim_stream *s)
{
	s->session++;
	s->base = s->delivered;
	tei_channel_out_start(&s->out, s->first);
	tei_channel_in_start(&s->in, s->first, EARLY);
}

/* Simulates a stream in which the message numbers of each session begin with
 * "first". On average one of `restarts` steps begins a new session; if
 * `restarts` is 0, there is only one session. */
static void stream_run(struct tei_fuzz *f, uint64_t first, uint32_t restarts)
{
	struct sim_stream *s = calloc(1, sizeof(*s));
	uint32_t i;

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	s->f = f;
	s->first = first;
	stream_begin(s);
	for (i = 0; i < STEPS && s->delivered < SENT; i++) {
		if (restarts && !(tei_fuzz_random(f) % restarts)) {
			stream_end(s);
			stream_begin(s);
		}
		switch (tei_fuzz_random(f) % 4) {
		case 0:
			stream_out(s);
			break;
		case 1:
			stream_ack(s);
			break;
		default:
			stream_in(s);
			break;
		}
	}
	CU_ASSERT_EQUAL(s->delivered, SENT);
	CU_ASSERT(!s->bad);
	stream_end(s);
	free(s);
}

static void test_stream_over_bad_link_is_in_order_and_complete(void)
{
	struct tei_fuzz f;

	for (tei_fuzz_begin(&f, "stream"); tei_fuzz_next(&f, 100);)
		stream_run(&f, 1, 0);
}

static void test_stream_continues_when_its_numbers_wrap(void)
{
	struct tei_fuzz f;

	for (tei_fuzz_begin(&f, "stream that wraps"); tei_fuzz_next(&f, 100);)
		stream_run(&f, UINT64_MAX - tei_fuzz_random(&f) % SENT, 0);
}

static void test_stream_after_restart_ignores_earlier_session(void)
{
	struct tei_fuzz f;

	for (tei_fuzz_begin(&f, "stream that restarts");
	     tei_fuzz_next(&f, 100);)
		stream_run(&f, 1, 500);
}

/* Simulates requests and counts how often each one is executed. */
struct sim_requests {
	struct tei_fuzz *f;
	struct tei_channel_out out;
	uint64_t first;
	bool finished[SENT];
	uint32_t executed[SENT];
	uint64_t record[WINDOW];
	struct sim_link there, back;
	bool bad;
};

static uint64_t requests_index(const struct sim_requests *s, uint64_t number)
{
	return number - s->first;
}

static void requests_send(struct sim_requests *s, uint64_t number)
{
	link_send(&s->there, (struct sim_message){ .number = number }, s->f);
}

static void requests_out(struct sim_requests *s)
{
	uint64_t n = requests_index(s, s->out.next);

	if (tei_channel_out_open(&s->out, WINDOW) && n < SENT &&
	    tei_fuzz_random(s->f) % 8) {
		requests_send(s, tei_channel_out_add(&s->out));
		tei_channel_out_sent(&s->out);
		return;
	}
	for (n = s->out.acked; n != s->out.sent; n++)
		if (!s->finished[requests_index(s, n)])
			requests_send(s, n);
}

static void requests_in(struct sim_requests *s)
{
	struct sim_message m;
	uint64_t *record;

	if (!link_take(&s->there, &m, s->f))
		return;
	record = &s->record[m.number % WINDOW];
	switch (tei_channel_seen(*record, m.number)) {
	case TEI_CHANNEL_NEW:
		*record = m.number;
		s->executed[requests_index(s, m.number)]++;
		break;
	case TEI_CHANNEL_REPEATED:
		break;
	case TEI_CHANNEL_OLD:
		/* an old request must have finished, so its sender needs no
		 * answer */
		s->bad |= !s->finished[requests_index(s, m.number)];
		return;
	}
	link_send(&s->back, m, s->f);
}

static void requests_answered(struct sim_requests *s)
{
	uint64_t n = s->out.acked;
	struct sim_message m;

	if (!link_take(&s->back, &m, s->f))
		return;
	s->finished[requests_index(s, m.number)] = true;
	while (n != s->out.sent && s->finished[requests_index(s, n)])
		n++;
	tei_channel_out_ack(&s->out, n);
}

static void requests_run(struct tei_fuzz *f, uint64_t first)
{
	struct sim_requests *s = calloc(1, sizeof(*s));
	uint32_t i;

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	s->f = f;
	s->first = first;
	tei_channel_out_start(&s->out, first);
	for (i = 0; i < STEPS && requests_index(s, s->out.acked) < SENT; i++) {
		switch (tei_fuzz_random(f) % 3) {
		case 0:
			requests_out(s);
			break;
		case 1:
			requests_in(s);
			break;
		default:
			requests_answered(s);
			break;
		}
	}
	for (i = 0; i < SENT; i++)
		s->bad |= s->executed[i] != 1 || !s->finished[i];
	CU_ASSERT(!s->bad);
	free(s);
}

static void test_request_over_bad_link_is_executed_once(void)
{
	struct tei_fuzz f;

	for (tei_fuzz_begin(&f, "requests"); tei_fuzz_next(&f, 100);)
		requests_run(&f, 1 + tei_fuzz_random(&f) % 100);
}

const struct tei_test_case channel_cases[] = {
	{ "acknowledgement_of_unsent_number_is_ignored",
	  test_acknowledgement_of_unsent_number_is_ignored },
	{ "pause_doubles_up_to_the_longest",
	  test_pause_doubles_up_to_the_longest },
	{ "recalled_numbers_are_given_again",
	  test_recalled_numbers_are_given_again },
	{ "refused_message_stays_kept_until_delivered",
	  test_refused_message_stays_kept_until_delivered },
	{ "repeated_acknowledgement_is_ignored",
	  test_repeated_acknowledgement_is_ignored },
	{ "request_is_new_repeated_or_old",
	  test_request_is_new_repeated_or_old },
	{ "request_over_bad_link_is_executed_once",
	  test_request_over_bad_link_is_executed_once },
	{ "stream_after_restart_ignores_earlier_session",
	  test_stream_after_restart_ignores_earlier_session },
	{ "stream_continues_when_its_numbers_wrap",
	  test_stream_continues_when_its_numbers_wrap },
	{ "stream_over_bad_link_is_in_order_and_complete",
	  test_stream_over_bad_link_is_in_order_and_complete },
	{ "early_and_delivered_messages_are_dropped",
	  test_early_and_delivered_messages_are_dropped },
	{ "window_is_open_until_it_is_full",
	  test_window_is_open_until_it_is_full },
	{ NULL, NULL },
};
