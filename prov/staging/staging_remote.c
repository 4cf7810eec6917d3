/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote bounce slots: the thread that serves both sides, initiator and target,
 * and the functions that notify it.
 */
#include "prov/staging/staging_quarantine_int.h"
#include "prov/staging/staging_remote_int.h"

#include <stdlib.h>
#include <string.h>

#define STAGING_IDLE_NS (60 * TEI_NS_PER_SEC)

/* --- messages ------------------------------------------------------------ */

int staging_remote_post(struct tei_rail_peer *peer, uint32_t *prefer,
			const struct staging_msg *m)
{
	uint8_t buf[TEI_RAIL_MESSAGE_HEAD + sizeof(*m)];
	struct staging_msg wire = *m;

	wire.magic = STAGING_MAGIC;
	wire.version = 1;
	staging_msg_swap(&wire);
	memcpy(buf + TEI_RAIL_MESSAGE_HEAD, &wire, sizeof(wire));
	return tei_rail_send(peer, buf, sizeof(buf), false, prefer);
}

bool staging_remote_send(struct staging_remote *rs, struct tei_rail_peer *peer,
			 uint32_t *prefer, struct staging_backoff *backoff,
			 const struct staging_msg *m)
{
	static const struct tei_channel_pace pace = { STAGING_BACKOFF_NS,
						      STAGING_BACKOFF_MAX_NS };

	if (rs->now >= backoff->until_ns) {
		if (!staging_remote_post(peer, prefer, m)) {
			staging_backoff_end(backoff);
			return true;
		}
		backoff->until_ns =
			rs->now + tei_channel_pause(&pace, backoff->refused++);
	}
	staging_remote_due(rs, backoff->until_ns);
	return false;
}

static void remote_read(struct staging_remote *rs,
			const struct tei_rail_message *message)
{
	struct staging_msg m;

	if (message->len != sizeof(m))
		return;
	memcpy(&m, message->data, sizeof(m));
	staging_msg_swap(&m);
	if (m.magic != STAGING_MAGIC || m.version != 1)
		return;
	if (m.type == STAGING_READY || m.type == STAGING_DONE)
		staging_request_message(rs, message->peer, &m);
	else
		staging_grant_message(rs, message->peer, &m);
}

/* Returns the record of a sender and creates it if necessary. Returns NULL if
 * memory is short. */
static struct staging_sender *staging_sender(struct staging_remote *rs,
					     const struct tei_rail_peer *peer)
	TEI_REQUIRES(rs->part.lock)
{
	struct staging_sender *s;

	tei_list_foreach(s, &rs->senders, struct staging_sender, link)
		if (s->peer == peer)
			return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->peer = peer;
	tei_list_init(&s->messages);
	tei_list_add_tail(&rs->senders, &s->link);
	return s;
}

void tei_staging_message(struct tei_staging *s,
			 struct tei_rail_message *message)
{
	struct staging_remote *rs = s ? staging_remote(s) : NULL;
	struct staging_sender *from;
	bool taken = false;

	if (rs) {
		tei_mutex_lock(&rs->part.lock);
		from = rs->part.closing ? NULL :
					  staging_sender(rs, message->peer);
		taken = from && from->n < STAGING_INBOX;
		if (taken) {
			from->n++;
			tei_list_add_tail(&from->messages, &message->link);
			staging_part_notify(&rs->part);
		}
		tei_mutex_unlock(&rs->part.lock);
	}
	if (!taken)
		tei_rail_message_free(message);
}

/* --- the thread ---------------------------------------------------------- */

/* Removes the first element of a list and returns it. Returns NULL if the list
 * is empty. */
static struct tei_list *remote_take(struct staging_remote *rs,
				    struct tei_list *list)
{
	struct tei_list *first = NULL;

	tei_mutex_lock(&rs->part.lock);
	if (!tei_list_empty(list)) {
		first = list->next;
		tei_list_del(first);
	}
	tei_mutex_unlock(&rs->part.lock);
	return first;
}

/* Takes the first message of the sender whose turn it is, and returns it.
 * Returns NULL if there are no messages. */
static struct tei_rail_message *remote_next(struct staging_remote *rs)
{
	struct tei_rail_message *m = NULL;
	struct staging_sender *s;

	tei_mutex_lock(&rs->part.lock);
	if (!tei_list_empty(&rs->senders)) {
		s = tei_list_first(&rs->senders, struct staging_sender, link);
		m = tei_list_first(&s->messages, struct tei_rail_message, link);
		tei_list_del(&m->link);
		tei_list_del(&s->link); /* if the sender has more messages, it
					 * moves to the end of the list */
		if (--s->n)
			tei_list_add_tail(&rs->senders, &s->link);
		else
			free(s);
	}
	tei_mutex_unlock(&rs->part.lock);
	return m;
}

/* Reads and handles messages. If unread messages are left, makes the next
 * iteration follow at once. */
static void remote_messages(struct staging_remote *rs)
{
	struct tei_rail_message *m;
	uint32_t turns = 0;

	while (turns++ < STAGING_BURST && (m = remote_next(rs))) {
		remote_read(rs, m);
		tei_rail_message_free(m);
	}
	tei_mutex_lock(&rs->part.lock);
	rs->part.notified |= !tei_list_empty(&rs->senders);
	tei_mutex_unlock(&rs->part.lock);
}

/* Executes one iteration of the thread. Handles the ends of transfers and
 * copies first, because they free slots. */
static void remote_round(struct staging_remote *rs)
{
	struct tei_list *n;

	rs->now = tei_now_ns();
	rs->due = rs->now + STAGING_IDLE_NS;
	while ((n = remote_take(rs, &rs->moved)))
		staging_request_moved(
			rs, tei_container_of(n, struct staging_request, node));
	while ((n = remote_take(rs, &rs->copied)))
		staging_grant_copied(
			rs, tei_container_of(n, struct staging_remote_slot,
					     slot.node));
	remote_messages(rs);
	while ((n = remote_take(rs, &rs->started)))
		staging_request_started(
			rs, tei_container_of(n, struct tei_staging_remote_task,
					     started));
	while ((n = remote_take(rs, &rs->stopping)))
		staging_request_stopped(
			rs, tei_container_of(n, struct tei_staging_remote_task,
					     stop));
	staging_request_poll(rs);
	staging_grant_poll(rs);
}

static void *remote_main(void *arg)
{
	struct staging_remote *rs = arg;
	bool on = true;

	while (on) {
		remote_round(rs);
		tei_mutex_lock(&rs->part.lock);
		if (!rs->part.notified)
			tei_mutex_wait(&rs->part.work, &rs->part.lock,
				       tei_ns_left(rs->due));
		rs->part.notified = false;
		on = !rs->part.closing || !tei_list_empty(&rs->live);
		tei_mutex_unlock(&rs->part.lock);
		on = on || staging_grant_busy(rs);
	}
	return NULL;
}

/* --- creation and end ----------------------------------------------------- */

static const struct staging_pool_kind remote_kind = {
	.name = "remote bounce slots",
	.slots = STAGING_REMOTE_SLOTS,
	.together = 1,
	.slot_size = sizeof(struct staging_remote_slot),
	.access = TEI_RAIL_REMOTE,
	.prepare = staging_quarantine_prepare,
	.retire = staging_quarantine_retire,
	.fini = staging_quarantine_fini,
};

static struct staging_remote *remote_new(struct tei_staging *s)
{
	struct staging_remote *rs = calloc(1, sizeof(*rs));

	if (!rs)
		return NULL;
	tei_list_init(&rs->senders);
	tei_list_init(&rs->live);
	tei_list_init(&rs->started);
	tei_list_init(&rs->stopping);
	tei_list_init(&rs->moved);
	tei_list_init(&rs->copied);
	tei_list_init(&rs->quarantine);
	tei_list_init(&rs->targets);
	tei_list_init(&rs->clients);
	tei_list_init(&rs->waiting);
	if (staging_part_open(&rs->part, s, &remote_kind, remote_main, rs,
			      "tei-remote"))
		return rs;
	free(rs);
	return NULL;
}

struct staging_remote *staging_remote_get(struct tei_staging *s)
{
	struct staging_remote *rs = staging_remote(s);

	if (rs)
		return rs;
	tei_mutex_lock(&s->lock);
	rs = s->remote;
	if (!rs) {
		rs = remote_new(s);
		if (rs)
			__atomic_store_n(&s->remote, rs, __ATOMIC_RELEASE);
	}
	tei_mutex_unlock(&s->lock);
	return rs;
}

bool tei_staging_remote_on(struct tei_staging *s)
{
	return staging_remote_get(s) != NULL;
}

bool tei_staging_remote_ready(struct tei_staging *s)
{
	return staging_remote(s) != NULL;
}

void staging_remote_close(struct tei_staging *s)
{
	struct staging_remote *rs = staging_remote(s);
	struct tei_rail_message *m;
	struct tei_staging_remote_task *task;

	if (!rs)
		return;
	tei_mutex_lock(&rs->part.lock);
	rs->part.closing = true;
	tei_list_foreach(task, &rs->live, struct tei_staging_remote_task,
			 live) {
		tei_list_del(&task->stop);
		tei_list_add_tail(&rs->stopping, &task->stop);
	}
	staging_part_notify(&rs->part);
	tei_mutex_unlock(&rs->part.lock);
	staging_part_join(&rs->part);
	while ((m = remote_next(rs)))
		tei_rail_message_free(m);
	staging_request_forget(rs);
	staging_grant_forget(rs);
}

void staging_remote_free(struct tei_staging *s)
{
	struct staging_remote *rs = staging_remote(s);

	if (!rs)
		return;
	staging_part_fini(&rs->part);
	free(rs->regions);
	free(rs);
}
