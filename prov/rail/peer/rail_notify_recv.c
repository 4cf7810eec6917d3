/* SPDX-License-Identifier: BSD-2-Clause */
/* Assembles, limits and acknowledges the notifications of peers. rail_notify.h
 * describes the protocol. */

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_op.h"
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
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

/* A notification under assembly. Owned by its peer, and counted in dp->notes.
 * */
struct rail_notify_part {
	struct tei_list link;		/* entry of the list dp->notes.parts */
	struct tei_rail_peer *peer;
	struct tei_rail_notification *note;
	uint32_t name_len, msg_len;
	uint32_t got;			/* number of bytes received; they have
					 * no gaps */
	uint64_t grown_ns;		/* time at which the last bytes were
					 * added, ns */
};

/* --- streams of peers that were freed ------------------------------------ */

#define MEMORY_SETS	1024
#define MEMORY_WAYS	4

/*
 * Memory of peers whose objects were freed: the number of the notification that
 * is expected next from each of them. With this number, a notification is
 * delivered only once even if the peer object was freed and created again
 * before the peer repeated the notification. The table is set-associative: the
 * incarnation selects a set, and each set keeps the MEMORY_WAYS peers that were
 * freed last.
 */
struct rail_notify_memory {
	struct rail_notify_mark {
		uint64_t incarnation;	/* incarnation of the sender; 0 if the
					 * entry is unused */
		uint64_t stream, next;
	} mark[MEMORY_SETS][MEMORY_WAYS];
	uint8_t turn[MEMORY_SETS]; /* for each set, index of the entry that is
				    * replaced next */
};

static uint32_t memory_set(uint64_t incarnation)
{
	return (uint32_t)((incarnation ^ incarnation >> 32) % MEMORY_SETS);
}

/* Remembers the session of the peer's notifications and the number expected
 * next. If a hello has announced a session in which no notification has arrived
 * yet, that session is remembered, with number 1. */
static void memory_store(struct tei_rail_peer *p) TEI_REQUIRES(rail_sched_held)
{
	bool unused = p->atomics.session > p->note_in.stream;
	struct rail_notify_budget *b = &p->dp->notes;
	uint32_t set = memory_set(p->incarnation);
	struct rail_notify_mark *m;

	if (!b->memory)
		b->memory = calloc(1, sizeof(*b->memory));
	if (!b->memory)
		return;
	m = &b->memory->mark[set][b->memory->turn[set]++ % MEMORY_WAYS];
	m->incarnation = p->incarnation;
	m->stream = unused ? p->atomics.session : p->note_in.stream;
	m->next = unused ? 1 : p->note_in.next;
}

void rail_notify_recall(struct tei_rail_peer *p)
{
	struct rail_notify_memory *memory = p->dp->notes.memory;
	struct rail_notify_mark *m;
	uint32_t i;

	for (i = 0; memory && i < MEMORY_WAYS; i++) {
		m = &memory->mark[memory_set(p->incarnation)][i];
		if (m->incarnation != p->incarnation)
			continue;
		p->note_in.stream = m->stream;
		p->note_in.next = m->next;
		m->incarnation = 0;
		return;
	}
}

/* --- room ---------------------------------------------------------------- */

void rail_notify_dp_init(struct tei_rail_dp *dp)
{
	tei_list_init(&dp->notes.parts);
	tei_list_init(&dp->notes.waiting);
}

void rail_notify_dp_fini(struct tei_rail_dp *dp)
{
	free(dp->notes.memory);
}

void tei_rail_notification_free(struct tei_rail_notification *note)
{
	free(note->name);
	free(note->msg);
	free(note);
}

/* Allocates a notification with memory for strings of these lengths. The
 * strings are not filled in. */
static struct tei_rail_notification *note_alloc(size_t name_len, size_t msg_len)
{
	struct tei_rail_notification *note = calloc(1, sizeof(*note));

	if (!note)
		return NULL;
	note->name = malloc(name_len + 1);
	note->msg = malloc(msg_len + 1);
	if (!note->name || !note->msg) {
		tei_rail_notification_free(note);
		return NULL;
	}
	note->name[name_len] = '\0';
	note->msg[msg_len] = '\0';
	note->bytes = (uint64_t)name_len + msg_len;
	note->msg_len = msg_len;
	tei_list_init(&note->link);
	return note;
}

struct tei_rail_notification *
tei_rail_notification_new(const struct tei_rail_note *what)
{
	size_t len = strlen(what->name);
	struct tei_rail_notification *note = note_alloc(len, what->msg_len);

	if (!note)
		return NULL;
	note->binary = what->binary;
	memcpy(note->name, what->name, len);
	if (what->msg_len)
		memcpy(note->msg, what->msg, what->msg_len);
	return note;
}

static bool budget_fits(struct tei_rail_dp *dp, uint64_t bytes)
	TEI_REQUIRES(rail_sched_held)
{
	return dp->notes.notes < dp->settings->limits.max_notifies &&
	       dp->notes.bytes + bytes <= dp->settings->limits.notify_bytes;
}

static void budget_take(struct tei_rail_dp *dp, uint64_t bytes)
	TEI_REQUIRES(rail_sched_held)
{
	dp->notes.notes++;
	dp->notes.bytes += bytes;
}

static void budget_give(struct tei_rail_dp *dp, uint32_t notes, uint64_t bytes)
	TEI_REQUIRES(rail_sched_held)
{
	dp->notes.notes -= notes;
	dp->notes.bytes -= bytes;
}

static void part_drop(struct rail_notify_part *part)
	TEI_REQUIRES(rail_sched_held)
{
	budget_give(part->peer->dp, 1, part->note->bytes);
	part->peer->note_in.part = NULL;
	tei_list_del(&part->link);
	tei_rail_notification_free(part->note);
	free(part);
}

/* Begins the assembly of a notification of these lengths. The caller has
 * checked that there is room for the notification. Returns false if memory is
 * short. */
static bool part_begin(struct tei_rail_peer *p, uint32_t name_len,
		       uint32_t msg_len, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_part *part = calloc(1, sizeof(*part));

	if (!part)
		return false;
	part->note = note_alloc(name_len, msg_len);
	if (!part->note) {
		free(part);
		return false;
	}
	part->peer = p;
	part->name_len = name_len;
	part->msg_len = msg_len;
	part->grown_ns = now;
	tei_list_add_tail(&p->dp->notes.parts, &part->link);
	p->note_in.part = part;
	budget_take(p->dp, part->note->bytes);
	return true;
}

/* Drops idle assemblies until there is room for a notification of that many
 * bytes. Returns true if there is room. */
static bool budget_reclaim(struct tei_rail_dp *dp, uint64_t bytes, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_part *part;

	while (!budget_fits(dp, bytes)) {
		if (tei_list_empty(&dp->notes.parts))
			return false;
		part = tei_list_first(&dp->notes.parts, struct rail_notify_part,
				      link);
		if (now < part->grown_ns + RAIL_NOTIFY_IDLE_NS)
			return false;
		part_drop(part);
	}
	return true;
}

/* --- peers that wait for room -------------------------------------------- */

static void note_owe(struct tei_rail_peer *p, enum rail_notify_code code)
	TEI_REQUIRES(rail_sched_held)
{
	p->note_in.answer_pending = true;
	p->note_in.code = (uint16_t)code;
	rail_peer_attend(p);
}

/* Begins assemblies for waiting peers, longest wait first, as far as there is
 * room. A peer no longer waits if its last request is older than
 * RAIL_NOTIFY_IDLE_NS. */
static void budget_grant(struct tei_rail_dp *dp, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_recv *in;
	struct tei_rail_peer *p;
	uint64_t bytes;

	while (!dp->notes.closed && !tei_list_empty(&dp->notes.waiting)) {
		in = tei_list_first(&dp->notes.waiting, struct rail_notify_recv,
				    wait_link);
		p = tei_container_of(in, struct tei_rail_peer, note_in);
		bytes = (uint64_t)in->wait_name + in->wait_msg;
		if (now < in->wait_ns + RAIL_NOTIFY_IDLE_NS) {
			if (!budget_reclaim(dp, bytes, now) ||
			    !part_begin(p, in->wait_name, in->wait_msg, now))
				return;
			note_owe(p, RAIL_NOTIFY_OK);
		}
		tei_list_del(&in->wait_link);
	}
}

static void note_log_full(struct tei_rail_dp *dp)
	TEI_REQUIRES(rail_sched_held)
{
	if (tei_log_enabled(TEI_LOG_WARN))
		tei_log_repeated(
			&dp->notes.full_repeat, TEI_LOG_WARN, "rail",
			"the queue of received notifications has reached "
			"MOONRAIL_MAX_NOTIFIES=%u or "
			"MOONRAIL_NOTIFY_BYTES=%llu; senders wait until "
			"getNotifsFromEngine is called",
			dp->settings->limits.max_notifies,
			(unsigned long long)dp->settings->limits.notify_bytes);
}

/* Begins the assembly of a notification of these lengths. If there is no room,
 * makes the peer wait for room and returns false. */
static bool note_admit(struct tei_rail_peer *p, uint32_t name_len,
		       uint32_t msg_len, uint64_t now)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_recv *in = &p->note_in;
	struct tei_rail_dp *dp = p->dp;

	bool waited = !tei_list_empty(&in->wait_link);

	if (!waited)
		tei_list_add_tail(&dp->notes.waiting, &in->wait_link);
	in->wait_name = name_len;
	in->wait_msg = msg_len;
	in->wait_ns = now;
	budget_grant(dp, now);
	if (!in->part && !waited)
		note_log_full(dp);
	return in->part != NULL;
}

int tei_rail_notification_reserve(struct tei_rail_dp *dp, uint64_t bytes)
{
	bool fits;

	rail_sched_enter(dp);
	fits = budget_reclaim(dp, bytes, tei_now_ns());
	if (fits)
		budget_take(dp, bytes);
	rail_sched_leave(dp);
	return fits ? 0 : TEI_ERR_TOO_MANY;
}

void tei_rail_notification_release(struct tei_rail_dp *dp, uint32_t notes,
				   uint64_t bytes)
{
	rail_sched_enter(dp);
	budget_give(dp, notes, bytes);
	budget_grant(dp, tei_now_ns());
	rail_sched_leave(dp);
}

void rail_notify_recv_drop(struct tei_rail_peer *p)
{
	struct rail_notify_recv *in = &p->note_in;

	tei_list_del(&in->wait_link);
	if (!in->part)
		return;
	part_drop(in->part);
	budget_grant(p->dp, tei_now_ns());
}

void rail_notify_recv_free(struct tei_rail_peer *p)
{
	if (p->atomics.session && p->gone != RAIL_GONE_LEFT &&
	    !p->dp->notes.closed)
		memory_store(p);
	rail_notify_recv_drop(p);
}

/* --- messages ------------------------------------------------------------ */

/* The fields of a NOTIFY message. */
struct note_msg {
	uint64_t session, stream, base, number, turn;
	uint32_t name_len, msg_len, offset, n;
	const uint8_t *bytes;
	bool ask, again, binary;
};

/* Returns true if the name, or the text of a notification that is not binary,
 * contains a zero byte. */
static bool note_has_zero(const struct note_msg *m)
{
	uint32_t n = m->n;

	if (m->binary && m->offset >= m->name_len)
		return false;
	if (m->binary && n > m->name_len - m->offset)
		n = m->name_len - m->offset;
	return memchr(m->bytes, 0, n) != NULL;
}

/* Reads the fields of a NOTIFY message into m. Returns false if the message is
 * malformed. */
static bool note_parse(struct rail_wire *w, uint16_t flags, struct note_msg *m)
{
	uint64_t len;

	m->session = rail_wire_get(w, 8);
	m->stream = rail_wire_get(w, 8);
	m->base = rail_wire_get(w, 8);
	m->number = rail_wire_get(w, 8);
	m->turn = rail_wire_get(w, 8);
	m->name_len = (uint32_t)rail_wire_get(w, 4);
	m->msg_len = (uint32_t)rail_wire_get(w, 4);
	m->offset = (uint32_t)rail_wire_get(w, 4);
	m->n = (uint32_t)rail_wire_get(w, 2);
	m->ask = flags & RAIL_WIRE_NOTE_ASK;
	m->again = flags & RAIL_WIRE_NOTE_AGAIN;
	m->binary = flags & RAIL_WIRE_NOTE_BINARY;
	len = (uint64_t)m->name_len + m->msg_len;
	if (w->bad || w->cap - w->pos != m->n || len > TEI_RAIL_NOTIFY_MAX ||
	    m->offset > len || m->n > len - m->offset)
		return false;
	m->bytes = w->p + w->pos;
	/* a fragment without bytes would be repeated forever, so it is
	 * malformed */
	if (!m->ask && !m->n && m->offset != len)
		return false;
	return m->stream && m->base && m->base <= m->number &&
	       !note_has_zero(m);
}

static void note_new_stream(struct tei_rail_peer *p, uint64_t stream)
	TEI_REQUIRES(rail_sched_held)
{
	rail_notify_recv_drop(p);
	p->note_in.stream = stream;
	p->note_in.next = 0;
	p->note_in.turn = 0;
}

/* Appends the fragment in message m to the assembly. */
static void part_copy(struct rail_notify_part *part, const struct note_msg *m)
{
	uint32_t n = 0;

	if (m->offset < part->name_len) {
		n = part->name_len - m->offset;
		n = n < m->n ? n : m->n;
		memcpy(part->note->name + m->offset, m->bytes, n);
	}
	if (n < m->n)
		memcpy(part->note->msg + (m->offset + n - part->name_len),
		       m->bytes + n, m->n - n);
}

/* Handles a fragment of the next expected notification. Returns the code for
 * the answer. */
static enum rail_notify_code note_take(struct tei_rail_peer *p,
				       const struct note_msg *m, uint64_t now,
				       struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_recv *in = &p->note_in;
	struct rail_notify_part *part = in->part;

	/* the lengths contradict those of earlier fragments */
	if (part &&
	    (part->name_len != m->name_len || part->msg_len != m->msg_len)) {
		part_drop(part);
		part = NULL;
	}
	if (!part && m->offset && !m->ask)
		return RAIL_NOTIFY_GAP;
	if (!part && !note_admit(p, m->name_len, m->msg_len, now))
		return RAIL_NOTIFY_FULL;
	part = in->part;
	if (m->ask)
		return RAIL_NOTIFY_OK;
	if (m->offset != part->got)
		return m->offset > part->got ? RAIL_NOTIFY_GAP : RAIL_NOTIFY_OK;
	/* if the flag is not set, note_has_zero has found no zero byte in the
	 * fragment */
	part->note->binary |= m->binary;
	part_copy(part, m);
	part->got += m->n;
	part->grown_ns = now;
	tei_list_del(&part->link);
	tei_list_add_tail(&p->dp->notes.parts, &part->link);
	if (part->got < part->name_len + part->msg_len)
		return RAIL_NOTIFY_OK;
	/* the notification stays counted in dp->notes until the application has
	 * fetched it */
	tei_list_del(&part->link);
	tei_list_add_tail(&done->received, &part->note->link);
	free(part);
	in->part = NULL;
	in->next++;
	return RAIL_NOTIFY_OK;
}

/*
 * Takes the number of the next expected notification, which is not known yet,
 * from a message. Only a message of the oldest notification that the sender
 * still holds shows this number. Even such a message does not show the number
 * if it has the flag AGAIN, because the notification may have been delivered
 * earlier. Returns RAIL_NOTIFY_OK if the number is known now, otherwise the
 * code for the answer.
 */
static enum rail_notify_code note_resume(struct rail_notify_recv *in,
					 const struct note_msg *m)
{
	if (m->number != m->base)
		return RAIL_NOTIFY_GAP;
	if (m->again)
		return RAIL_NOTIFY_FORGOTTEN;
	in->next = m->number;
	return RAIL_NOTIFY_OK;
}

/* Handles a NOTIFY of the present session. Returns the code for the answer. */
static enum rail_notify_code note_handle(struct tei_rail_peer *p,
					 const struct note_msg *m,
					 struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_notify_recv *in = &p->note_in;
	enum rail_notify_code code;

	if (m->base > in->base)
		in->base = m->base;
	if (!in->next) {
		code = note_resume(in, m);
		if (code != RAIL_NOTIFY_OK)
			return code;
	}
	/* all notifications before m->base have been withdrawn by the sender */
	if (m->base > in->next) {
		if (in->part)
			part_drop(in->part);
		in->next = m->base;
	}
	if (m->number != in->next)
		return m->number > in->next ? RAIL_NOTIFY_GAP : RAIL_NOTIFY_OK;
	return note_take(p, m, tei_now_ns(), done);
}

void rail_notify_received(struct tei_rail_peer *p, uint16_t flags,
			  struct rail_wire *w, struct rail_done *done)
{
	struct rail_notify_recv *in = &p->note_in;
	enum rail_notify_code code;
	struct note_msg m;

	if (!note_parse(w, flags, &m) || rail_peer_over(p))
		return;
	if (m.session != p->atomics.own_session) {
		/* the sender learns its session from this hello */
		p->hello.reply = true;
		rail_peer_attend(p);
		return;
	}
	if (m.stream < in->stream)
		return;
	if (m.stream > in->stream) {
		note_new_stream(p, m.stream);
		in->base = 0;
	}
	code = note_handle(p, &m, done);
	/* FULL is reported first: it is the cause of the gap */
	if (code == RAIL_NOTIFY_GAP && in->answer_pending &&
	    in->code == RAIL_NOTIFY_FULL)
		return;
	in->turn = m.turn;
	note_owe(p, code);
}

uint64_t rail_ctl_note_answer(struct tei_rail_peer *p, uint64_t now,
			      uint8_t *buf)
{
	struct rail_notify_recv *in = &p->note_in;
	struct rail_wire w;
	bool answer_pending;

	rail_sched_enter(p->dp);
	answer_pending = in->answer_pending;
	in->answer_pending = false;
	if (answer_pending) {
		rail_msg_begin(p, &w, buf, RAIL_MSG_NOTE_ACK, 0);
		rail_wire_put(&w, in->stream, 8);
		rail_wire_put(&w, in->next ? in->next : in->base, 8);
		rail_wire_put(&w, in->part ? in->part->got : 0, 4);
		rail_wire_put(&w, in->turn, 8);
		rail_wire_put(&w, in->code, 2);
	}
	rail_sched_leave(p->dp);
	if (!answer_pending ||
	    rail_msg_send(p, buf, rail_msg_end(&w), 0) != -FI_EAGAIN)
		return 0;
	/* the answer may be lost; the sender then repeats its message */
	rail_sched_enter(p->dp);
	in->answer_pending = true;
	rail_sched_leave(p->dp);
	return rail_ctl_again(p, now);
}
