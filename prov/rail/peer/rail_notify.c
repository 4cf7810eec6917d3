/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Notifications to peers. Any thread queues them. The progress thread sends
 * them in order and repeats them until they are acknowledged. rail_notify.h
 * describes the protocol.
 */

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_notify.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_resend.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/hint.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

/* --- the end of a notification ------------------------------------------- */

static uint32_t note_len(const struct tei_rail_outgoing *o)
{
	return o->name_len + o->msg_len;
}

static struct tei_rail_outgoing *note_head(const struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	const struct rail_notify_out *out = &p->note_out;

	return tei_list_empty(&out->list) ? NULL :
	       tei_list_first(&out->list, struct tei_rail_outgoing, link);
}

/* Removes the notification from the list. If no thread waits for it, frees it.
 * why: the error, or NULL if the peer has acknowledged the notification. */
static void note_end(struct tei_rail_outgoing *o, const struct tei_err *why)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_out *out = &o->peer->note_out;

	tei_list_del(&o->link);
	out->n--;
	out->bytes -= note_len(o);
	if (!out->n) {
		out->since_ns = 0;
		out->next_ns = 0;
		out->tries = 0;
	}
	if (!o->waited) {
		free(o);
		return;
	}
	memset(&o->err, 0, sizeof(o->err));
	if (why) {
		o->err = *why;
		o->err.unknown = o->wholes != 0;
	}
	if (o->err.unknown)
		snprintf(o->err.hint, sizeof(o->err.hint),
			 "the notification may have arrived, or may still arrive, at most once");
	o->ended = true;
	rail_progress_signal(o->peer->dp);
}

static void note_log_lost(struct tei_rail_peer *p, uint32_t lost,
			  const char *why)
{
	if (lost)
		TEI_LOG_LIMITED(&p->dp->notes.lost_limit, TEI_LOG_WARN, "rail",
				"peer %s: %u queued notification%s dropped: %s",
				p->name, lost, lost == 1 ? " was" : "s were",
				why);
}

void rail_notify_fail(struct tei_rail_peer *p, const struct tei_err *why)
{
	struct tei_rail_outgoing *o;
	uint32_t lost = 0;

	while ((o = note_head(p))) {
		lost += !o->waited;
		note_end(o, why);
	}
	note_log_lost(p, lost, why->text);
}

void rail_notify_gone(struct tei_rail_peer *p, const struct tei_err *why)
{
	rail_notify_fail(p, why);
	rail_notify_recv_drop(p);
}

uint64_t rail_notify_waited_ns(const struct tei_rail_peer *p)
{
	const struct tei_rail_outgoing *o;

	tei_list_foreach(o, &p->note_out.list, struct tei_rail_outgoing, link)
		if (o->waited)
			return o->queued_ns;
	return 0;
}

void rail_notify_presumed(struct tei_rail_peer *p, const struct tei_err *why)
{
	struct tei_rail_outgoing *o, *tmp;

	tei_list_foreach_safe(o, tmp, &p->note_out.list,
			      struct tei_rail_outgoing, link)
		if (o->waited && o->queued_ns <= p->life.presumed_ns)
			note_end(o, why);
}

void rail_notify_init(struct tei_rail_peer *p)
{
	tei_list_init(&p->note_out.list);
	p->note_out.window = RAIL_NOTIFY_WINDOW;
	tei_list_init(&p->note_in.wait_link);
}

void rail_notify_free(struct tei_rail_peer *p)
{
	struct tei_rail_outgoing *o, *tmp;

	tei_list_foreach_safe(o, tmp, &p->note_out.list,
			      struct tei_rail_outgoing, link)
		free(o);
	rail_notify_recv_free(p);
}

/* --- choosing and sending messages --------------------------------------- */

/* Reduces the counts of sent and acknowledged bytes to offset. */
static void note_back_to(struct tei_rail_outgoing *o, uint32_t offset)
	TEI_REQUIRES(rail_sched_held)
{
	o->acked = offset;
	o->sent = offset;
	o->whole = false;
}

/* Prepares to send all notifications again, the first one from byte offset
 * on. */
static void note_go_back(struct tei_rail_peer *p, uint32_t offset)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_outgoing *o;

	tei_list_foreach(o, &p->note_out.list, struct tei_rail_outgoing, link) {
		if (!o->number)
			break;
		note_back_to(o, offset);
		offset = 0;
	}
}

void rail_notify_session(struct tei_rail_peer *p)
{
	note_go_back(p, 0);
	p->note_out.full = false;
	p->note_out.next_ns = 0;
	if (p->note_out.n)
		rail_peer_attend(p);
}

/* Returns the number of messages that carry the bytes which were sent and not
 * acknowledged. */
static uint32_t note_messages(const struct tei_rail_outgoing *o)
{
	uint32_t bytes = o->sent - o->acked;

	if (!bytes)
		return o->whole;
	return (bytes + RAIL_NOTIFY_FRAGMENT - 1) / RAIL_NOTIFY_FRAGMENT;
}

/* Returns the notification to which the next message belongs. Returns NULL if
 * there is none, or if the limit of unacknowledged messages is reached. */
static struct tei_rail_outgoing *note_next(struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_out *out = &p->note_out;
	struct tei_rail_outgoing *o;
	uint32_t n = 0;

	tei_list_foreach(o, &out->list, struct tei_rail_outgoing, link) {
		n += note_messages(o);
		if (n >= out->window)
			return NULL;
		if (!o->whole)
			return o;
	}
	return NULL;
}

/* A message that was composed and counted as sent. If it cannot be sent,
 * note_unsend reverts the counts. */
struct note_sending {
	uint64_t number;
	uint32_t from;			/* offset of the message's first byte in
					 * the notification */
	bool ask, whole;
};

static size_t note_compose(struct tei_rail_peer *p, struct tei_rail_outgoing *o,
			   uint32_t n, uint16_t flags, uint8_t *buf)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_wire w;

	if (o->wholes && o->session != p->atomics.session)
		flags |= RAIL_WIRE_NOTE_AGAIN;
	if (o->binary)
		flags |= RAIL_WIRE_NOTE_BINARY;
	rail_msg_begin(p, &w, buf, RAIL_MSG_NOTIFY, flags);
	rail_wire_put(&w, p->atomics.session, 8);
	rail_wire_put(&w, p->atomics.own_session, 8);
	rail_wire_put(&w, note_head(p)->number, 8);
	rail_wire_put(&w, o->number, 8);
	rail_wire_put(&w, p->note_out.turn, 8);
	rail_wire_put(&w, o->name_len, 4);
	rail_wire_put(&w, o->msg_len, 4);
	rail_wire_put(&w, o->sent, 4);
	rail_wire_put_bytes(&w, o->text + o->sent, n);
	return rail_msg_end(&w);
}

/* Composes the next fragment of the notification o, and counts it as sent.
 * Returns the length of the message. */
static size_t note_fragment(struct tei_rail_peer *p, struct tei_rail_outgoing *o,
			    uint8_t *buf, struct note_sending *s)
	TEI_REQUIRES(rail_sched_held)
{
	uint32_t left = note_len(o) - o->sent;
	uint32_t n = left < RAIL_NOTIFY_FRAGMENT ? left : RAIL_NOTIFY_FRAGMENT;
	size_t len;

	if (!o->number)
		o->number = ++p->note_out.last;
	p->note_out.turn++;
	len = note_compose(p, o, n, 0, buf);
	s->number = o->number;
	s->from = o->sent;
	s->ask = false;
	s->whole = n == left;
	o->sent += n;
	if (!s->whole)
		return len;
	o->whole = true;
	if (!o->wholes++)
		o->session = p->atomics.session;
	o->whole_turn = p->note_out.turn;
	return len;
}

/* Composes a message that queries whether the peer has room for the first
 * notification. */
static size_t note_ask(struct tei_rail_peer *p, uint8_t *buf,
		       struct note_sending *s) TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_outgoing *o = note_head(p);

	if (!o->number)
		o->number = ++p->note_out.last;
	p->note_out.turn++;
	s->number = o->number;
	s->from = o->sent;
	s->ask = true;
	s->whole = false;
	return note_compose(p, o, 0, RAIL_WIRE_NOTE_ASK, buf);
}

/* Reverts what note_fragment has counted for a message that could not be
 * sent. */
static void note_unsend(struct tei_rail_peer *p, const struct note_sending *s)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_outgoing *o;

	if (s->ask)
		return;
	tei_list_foreach(o, &p->note_out.list, struct tei_rail_outgoing, link) {
		if (o->number != s->number)
			continue;
		o->sent = s->from;
		o->whole = false;
		o->wholes -= s->whole;
		return;
	}
}

/* Returns true if an answer is overdue. In this case one message is sent again,
 * and the limit of unacknowledged messages is reduced to one; it grows again
 * with the answers. */
static bool note_overdue(struct tei_rail_peer *p, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_out *out = &p->note_out;

	if (!out->next_ns || now < out->next_ns)
		return false;
	out->next_ns = 0;
	if (!out->full) {
		note_go_back(p, note_head(p)->acked);
		out->window = 1;
	}
	return true;
}

/* Composes the message that must be sent now. Returns the length of the
 * message, or 0 if no message must be sent now. */
static size_t note_take(struct tei_rail_peer *p, uint8_t *buf,
			struct note_sending *s)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_out *out = &p->note_out;
	struct tei_rail_outgoing *o;

	if (p->state != RAIL_PEER_READY || !p->atomics.session || !out->n)
		return 0;
	if (out->full)
		return out->next_ns ? 0 : note_ask(p, buf, s);
	o = note_next(p);
	return o ? note_fragment(p, o, buf, s) : 0;
}

/* Handles the result of sending a message. Returns the time at which
 * rail_ctl_notes must be called again. */
static uint64_t note_sent(struct tei_rail_peer *p, int ret, uint64_t now,
			  const struct note_sending *s)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_out *out = &p->note_out;
	uint32_t tries;

	if (!out->n)
		return 0;
	if (!out->since_ns)
		out->since_ns = now;
	if (ret) {
		note_unsend(p, s);
		tries = out->tries;
		return rail_ctl_sent(p, ret, now, &tries);
	}
	if (!out->next_ns)
		out->next_ns = rail_ctl_sent(p, 0, now, &out->tries);
	return out->next_ns;
}

static void note_no_rail(struct tei_rail_peer *p)
{
	struct tei_err err;

	memset(&err, 0, sizeof(err));
	err.code = TEI_ERR_NO_DEVICE;
	err.when_ns = tei_now_ns();
	snprintf(err.peer, sizeof(err.peer), "%.95s", p->name);
	snprintf(err.text, sizeof(err.text),
		 "no local rail matches the peer's provider and address");
	snprintf(err.hint, sizeof(err.hint),
		 "install the same transport on both sides");
	rail_sched_enter(p->dp);
	rail_notify_fail(p, &err);
	rail_sched_leave(p->dp);
}

uint64_t rail_ctl_notes(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	struct rail_notify_out *out = &p->note_out;
	uint64_t next = 0, since;
	struct note_sending s;
	uint32_t tries;
	bool overdue, unknown;
	size_t len;
	int ret;

	rail_sched_enter(p->dp);
	overdue = note_overdue(p, now);
	since = out->since_ns;
	unknown = out->n && p->state == RAIL_PEER_READY &&
		  !p->atomics.session;
	rail_sched_leave(p->dp);
	if (unknown) {
		/* The session is not known yet. The peer's answer to a hello
		 * contains it. The hello is sent when the state machines of
		 * this peer run next. */
		p->hello.again = true;
		return now + RAIL_CTL_RETRY_NS;
	}
	if (overdue && since)
		rail_ctl_unanswered(p, now, since);
	for (;;) {
		rail_sched_enter(p->dp);
		len = note_take(p, buf, &s);
		next = out->next_ns;
		tries = out->tries;
		rail_sched_leave(p->dp);
		if (!len)
			return next;
		ret = rail_msg_send(p, buf, len, tries);
		rail_sched_enter(p->dp);
		next = note_sent(p, ret, now, &s);
		since = out->since_ns;
		rail_sched_leave(p->dp);
		if (!ret)
			continue;
		if (ret == -FI_EHOSTUNREACH)
			note_no_rail(p);
		if (since)
			rail_ctl_unanswered(p, now, since);
		return next;
	}
}

/* --- acknowledgements ---------------------------------------------------- */

/* Handles the receiver's answer FULL: it has no room for the first notification
 * and has kept none of its bytes. */
static void note_full(struct tei_rail_peer *p, uint64_t turn, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_out *out = &p->note_out;
	struct tei_rail_outgoing *o = note_head(p);

	/* the refused message was the only one that could have completed the
	 * first notification */
	if (o->wholes == 1 && o->whole_turn == turn)
		o->wholes = 0;
	note_go_back(p, 0);
	if (!out->full)
		out->tries = 0;
	out->full = true;
	out->since_ns = 0;
	/* the next message asks the peer whether it has room now */
	out->next_ns = rail_ctl_sent(p, 0, now, &out->tries);
}

/* Handles the receiver's answer GAP: it expects the byte at "offset" of the
 * first notification and has received another fragment. */
static void note_gap(struct tei_rail_peer *p, uint32_t offset, uint64_t turn)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_out *out = &p->note_out;

	if (out->full || turn <= out->gap_turn)
		return;
	out->gap_turn = out->turn;
	note_go_back(p, offset);
	out->window = (out->window + 1) / 2;
}

/* Handles the receiver's answer that it does not know whether it has delivered
 * the first notification. The notification fails. */
static void note_forgotten(struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_outgoing *o = note_head(p);
	struct tei_err err;

	memset(&err, 0, sizeof(err));
	err.code = TEI_ERR_CONTEXT;
	err.when_ns = tei_now_ns();
	snprintf(err.peer, sizeof(err.peer), "%.95s", p->name);
	snprintf(err.text, sizeof(err.text),
		 "the peer has forgotten this process and does not know whether the notification arrived");
	if (!o->waited)
		note_log_lost(p, 1, err.text);
	note_end(o, &err);
}

/* Handles progress of the receiver: resets the repetition timer and raises the
 * limit of unacknowledged messages. */
static void note_progress(struct tei_rail_peer *p, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_out *out = &p->note_out;

	out->tries = 0;
	out->full = false;
	out->window = out->window < RAIL_NOTIFY_WINDOW / 2 ? 2 * out->window
							   : RAIL_NOTIFY_WINDOW;
	out->since_ns = out->n ? now : 0;
	out->next_ns = out->n ? rail_ctl_sent(p, 0, now, &out->tries) : 0;
}

/* Handles a NOTE_ACK: completes the notifications that the message
 * acknowledges, then handles the code in the message. */
static void note_answer(struct tei_rail_peer *p, uint64_t number,
			uint32_t offset, uint64_t turn, uint16_t code)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_out *out = &p->note_out;
	uint64_t now = tei_now_ns();
	struct tei_rail_outgoing *o;
	bool progress = false;

	while ((o = note_head(p)) && o->number && o->number < number) {
		note_end(o, NULL);
		progress = true;
	}
	if (o && o->number == number && offset <= note_len(o)) {
		if (code == RAIL_NOTIFY_OK &&
		    (out->full || offset > o->acked)) {
			/* the receiver may acknowledge bytes that were sent
			 * before the counts were reduced */
			o->acked = offset > o->acked ? offset : o->acked;
			o->sent = o->sent > o->acked ? o->sent : o->acked;
			progress = true;
		}
		if (progress)
			note_progress(p, now);
		if (code == RAIL_NOTIFY_FULL)
			note_full(p, turn, now);
		else if (code == RAIL_NOTIFY_GAP)
			note_gap(p, offset, turn);
		else if (code == RAIL_NOTIFY_FORGOTTEN)
			note_forgotten(p);
	} else if (progress) {
		note_progress(p, now);
	}
	if (out->n)
		rail_peer_attend(p);
}

void rail_notify_answered(struct tei_rail_peer *p, struct rail_wire *w)
{
	uint64_t stream = rail_wire_get(w, 8), number = rail_wire_get(w, 8);
	uint32_t offset = (uint32_t)rail_wire_get(w, 4);
	uint64_t turn = rail_wire_get(w, 8);
	uint16_t code = (uint16_t)rail_wire_get(w, 2);

	if (w->bad || stream != p->atomics.own_session ||
	    number > p->note_out.last + 1 || turn > p->note_out.turn)
		return;
	note_answer(p, number, offset, turn, code);
}

/* --- the functions of tei_rail.h ----------------------------------------- */

/* Checks whether another notification of "bytes" bytes may be queued. Returns 0
 * or TEI_ERR_TOO_MANY. */
static int note_check(struct tei_rail_peer *p, uint64_t bytes,
		      struct tei_err *err)
{
	const struct tei_settings *s = p->dp->settings;
	uint64_t held;
	uint32_t n;

	rail_sched_enter(p->dp);
	n = p->note_out.n;
	held = p->note_out.bytes;
	rail_sched_leave(p->dp);
	if (n >= s->limits.max_notifies)
		return tei_err_note(err, TEI_ERR_TOO_MANY, "rail",
				    "does the peer call getNotifsFromEngine?",
				    "%s: notification refused: "
				    "MOONRAIL_MAX_NOTIFIES=%u notifications wait to be sent",
				    p->name, s->limits.max_notifies);
	if (n && held + bytes > s->limits.notify_bytes)
		return tei_err_note(err, TEI_ERR_TOO_MANY, "rail",
				    "does the peer call getNotifsFromEngine?",
				    "%s: notification refused: %llu bytes wait "
				    "to be sent, the limit is MOONRAIL_NOTIFY_BYTES=%llu",
				    p->name, (unsigned long long)held,
				    (unsigned long long)s->limits.notify_bytes);
	return 0;
}

static int note_new(struct tei_rail_peer *p, const struct tei_rail_note *what,
		    struct tei_err *err, struct tei_rail_outgoing **out)
{
	size_t a = strlen(what->name), b = what->msg_len;
	struct tei_rail_outgoing *o;
	int ret;

	if (a > TEI_RAIL_NOTIFY_MAX || b > TEI_RAIL_NOTIFY_MAX - a)
		return tei_err_fail(err, TEI_ERR_INVALID, "rail", NULL,
				    "notification of %zu bytes: the limit is %u bytes",
				    a + b, TEI_RAIL_NOTIFY_MAX);
	ret = note_check(p, a + b, err);
	if (ret)
		return ret;
	o = calloc(1, sizeof(*o) + a + b);
	if (!o)
		return tei_err_fail(err, TEI_ERR_MEMORY, "rail", NULL,
				    "no memory for a notification of %zu bytes",
				    a + b);
	o->peer = p;
	o->name_len = (uint32_t)a;
	o->msg_len = (uint32_t)b;
	o->binary = what->binary;
	memcpy(o->text, what->name, a);
	if (b)
		memcpy(o->text + a, what->msg, b);
	tei_list_init(&o->link);
	*out = o;
	return 0;
}

int tei_rail_outgoing_new(struct tei_rail_peer *p, const char *name,
			  const char *msg, struct tei_err *err,
			  struct tei_rail_outgoing **out)
{
	struct tei_rail_note what = {
		.name = name,
		.msg = msg,
		.msg_len = strlen(msg),
	};

	return note_new(p, &what, err, out);
}

void tei_rail_outgoing_free(struct tei_rail_outgoing *o)
{
	free(o);
}

/* Queues the notification. Returns false, and changes nothing, if the peer is
 * gone. */
static bool note_queue(struct tei_rail_outgoing *o)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *p = o->peer;

	if (p->state == RAIL_PEER_GONE)
		return false;
	o->queued_ns = tei_now_ns();
	tei_list_add_tail(&p->note_out.list, &o->link);
	p->note_out.n++;
	p->note_out.bytes += note_len(o);
	p->hello.wanted = true;
	rail_peer_attend(p);
	return true;
}

void tei_rail_outgoing_queue(struct tei_rail_outgoing *o)
{
	struct tei_rail_peer *p = o->peer;
	bool queued;

	rail_sched_enter(p->dp);
	queued = note_queue(o);
	if (!queued)
		note_log_lost(p, 1, "the peer has gone");
	rail_sched_leave(p->dp);
	if (!queued)
		free(o);
}

/* Returns true if the receiver has answered within the last second that it has
 * no room. */
static bool note_is_full(const struct rail_notify_out *out, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	return out->full &&
	       (!out->since_ns || now < out->since_ns + TEI_NS_PER_SEC);
}

static void note_timed_out(struct tei_rail_outgoing *o, uint64_t timeout_ns)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *p = o->peer;
	bool met = p->state != RAIL_PEER_NEW, full;
	struct tei_err err;

	memset(&err, 0, sizeof(err));
	err.when_ns = tei_now_ns();
	full = note_is_full(&p->note_out, err.when_ns);
	err.code = full ? TEI_ERR_TOO_MANY : TEI_ERR_TIMED_OUT;
	snprintf(err.peer, sizeof(err.peer), "%.95s", p->name);
	snprintf(err.text, sizeof(err.text), "notification %s %g s: the peer %s",
		 o->wholes ? "not acknowledged for" : "withdrawn after",
		 (double)timeout_ns / (double)TEI_NS_PER_SEC,
		 full ? "has reached its limit for queued notifications" :
		 met ? "does not answer" : "never answered");
	snprintf(err.hint, sizeof(err.hint), "%s",
		 full ? "does the peer call getNotifsFromEngine? its limits are MOONRAIL_NOTIFY_BYTES and MOONRAIL_MAX_NOTIFIES" :
			tei_hint(TEI_HINT_DATA, met ? TEI_HINT_FELL_SILENT :
						      TEI_HINT_NO_ANSWER));
	note_end(o, &err);
}

static void notify_stop(struct tei_rail_outgoing *o)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_err err;

	memset(&err, 0, sizeof(err));
	err.code = TEI_ERR_CONTEXT;
	err.when_ns = tei_now_ns();
	snprintf(err.text, sizeof(err.text), "the engine was destroyed");
	note_end(o, &err);
}

/* Waits until o is acknowledged or has failed, until the timeout, or until
 * tei_rail_notify_stop is called. */
static void note_wait(struct tei_rail_outgoing *o, uint64_t timeout_ns)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_dp *dp = o->peer->dp;
	uint64_t end = o->queued_ns + timeout_ns, now;

	while (!o->ended) {
		now = tei_now_ns();
		if (dp->notes.shut)
			notify_stop(o);
		else if (now >= end)
			note_timed_out(o, timeout_ns);
		else
			rail_sched_wait(dp, end - now);
	}
}

int tei_rail_notify(struct tei_rail_peer *p, const struct tei_rail_note *what,
		    uint64_t timeout_ns, struct tei_err *err)
{
	struct tei_rail_outgoing *o = NULL;
	struct tei_rail_dp *dp = p->dp;
	bool queued;
	int ret;

	ret = note_new(p, what, err, &o);
	if (ret)
		return ret;
	o->waited = true;
	/* while this thread sleeps it does not poll the lanes, so the progress
	 * thread must poll them */
	tei_rail_sleep_begin(dp);
	rail_sched_enter(dp);
	queued = note_queue(o);
	if (queued)
		note_wait(o, timeout_ns);
	rail_sched_leave(dp);
	tei_rail_sleep_end(dp);
	if (!queued) {
		free(o);
		return tei_err_note(err, TEI_ERR_ENDPOINT, "rail",
				    "open the segment again",
				    "%s: notification refused: the peer has gone",
				    p->name);
	}
	ret = o->err.code;
	if (ret) {
		*err = o->err;
		tei_err_set_last(err);
	}
	free(o);
	return ret;
}

void tei_rail_notify_stop(struct tei_rail_dp *dp)
{
	rail_sched_enter(dp);
	dp->notes.shut = true;
	rail_sched_leave(dp);
	rail_progress_signal(dp);
}
