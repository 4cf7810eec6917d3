/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Notifications. Received notifications are queued until getNotifsFromEngine or
 * te_notify_fetch fetches them. The data plane limits their number and their
 * bytes.
 */
#include "api/engine_int.h"

#include <stdlib.h>
#include <string.h>

void engine_note_arrived(void *arg, struct tei_rail_notification *note)
{
	struct engine *e = arg;

	tei_mutex_lock(&e->notes.lock);
	if (note->binary) {
		tei_list_add_tail(&e->notes.binary, &note->link);
		__atomic_store_n(&e->notes.binary_n, e->notes.binary_n + 1,
				 __ATOMIC_SEQ_CST);
	} else {
		tei_list_add_tail(&e->notes.list, &note->link);
		__atomic_store_n(&e->notes.n, e->notes.n + 1, __ATOMIC_SEQ_CST);
	}
	tei_mutex_unlock(&e->notes.lock);
	engine_event_notes(e);
}

/* Logs an error of a notification, at a limited rate. The caller has set the
 * thread's last error already. Returns the code. */
static int note_refused(struct engine *e, const struct tei_err *err)
{
	TEI_LOG_LIMITED(&e->notes.limit, TEI_LOG_WARN, "engine", "%s%s%s",
			err->peer, *err->peer ? ": " : "", err->text);
	return err->code;
}

struct tei_rail_notification *engine_note_own(struct engine *e,
					      const struct tei_rail_note *what,
					      struct tei_err *err)
{
	size_t len = strlen(what->name) + what->msg_len;
	struct tei_rail_notification *note;

	if (len > TEI_RAIL_NOTIFY_MAX || len < what->msg_len) {
		tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
			     "notification of %zu bytes (at most %d)", len,
			     TEI_RAIL_NOTIFY_MAX);
		return NULL;
	}
	note = tei_rail_notification_new(what);
	if (!note) {
		tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
			     "no memory for a notification of %zu bytes", len);
		return NULL;
	}
	if (!tei_rail_notification_reserve(e->dp, note->bytes))
		return note;
	tei_err_note(
		err, TEI_ERR_TOO_MANY, "engine",
		"fetch the notifications with getNotifsFromEngine",
		"notification refused: the queue has MOONRAIL_MAX_NOTIFIES=%u "
		"notifications or MOONRAIL_NOTIFY_BYTES=%llu bytes",
		e->settings.limits.max_notifies,
		(unsigned long long)e->settings.limits.notify_bytes);
	note_refused(e, err);
	tei_rail_notification_free(note);
	return NULL;
}

void engine_note_discard(struct engine *e, struct tei_rail_notification *note)
{
	tei_rail_notification_release(e->dp, 1, note->bytes);
	tei_rail_notification_free(note);
}

void engine_note_free_all(struct engine *e)
{
	struct tei_rail_notification *n, *tmp;

	tei_list_foreach_safe (n, tmp, &e->notes.list,
			       struct tei_rail_notification, link)
		tei_rail_notification_free(n);
	tei_list_foreach_safe (n, tmp, &e->notes.binary,
			       struct tei_rail_notification, link)
		tei_rail_notification_free(n);
}

notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size)
{
	struct engine *e = engine_from(engine);
	struct tei_rail_notification *n;
	uint64_t bytes = 0;
	notify_msg_t *out;
	uint32_t i, count;

	if (size)
		*size = 0;
	if (!e || !size) {
		engine_bad(e, __func__, NULL);
		return NULL;
	}
	tei_mutex_lock(&e->notes.lock);
	count = e->notes.n;
	out = count ? calloc(count, sizeof(*out)) : NULL;
	for (i = 0; out && i < count; i++) {
		n = tei_list_first(&e->notes.list, struct tei_rail_notification,
				   link);
		tei_list_del(&n->link);
		/* the application owns the strings from now on; the rest of the
		 * notification is freed below */
		out[i].name = n->name;
		out[i].msg = n->msg;
		n->name = n->msg = NULL;
		bytes += n->bytes;
		tei_rail_notification_free(n);
	}
	if (out) {
		__atomic_store_n(&e->notes.n, 0, __ATOMIC_SEQ_CST);
		*size = (int)count;
	}
	tei_mutex_unlock(&e->notes.lock);
	if (out)
		tei_rail_notification_release(e->dp, count, bytes);
	engine_event_notes(e);
	return out;
}

int freeNotifsMsgBuf(notify_msg_t *msg, int size)
{
	int i;

	if (!msg)
		return 0;
	for (i = 0; i < size; i++) {
		free(msg[i].name);
		free(msg[i].msg);
	}
	free(msg);
	return 0;
}

/* Sends a notification to a peer and waits for the acknowledgment. */
static int note_send(struct engine *e, struct tei_rail_peer *peer,
		     const struct tei_rail_note *what)
{
	struct tei_err err;
	int ret;

	/* keeps the engine from being freed: destroyTransferEngine ends the
	 * wait, and then waits for engine_wait_leave */
	engine_wait_enter(e);
	ret = tei_rail_notify(
		peer, what,
		e->settings.control.connect_timeout_s * TEI_NS_PER_SEC, &err);
	engine_wait_leave(e);
	/* TEI_ERR_INVALID: the notification is too long; the data plane has
	 * logged that already */
	return ret && ret != TEI_ERR_INVALID ? note_refused(e, &err) : ret;
}

static int note_peer_ended(struct engine *e, struct tei_rail_peer *peer)
{
	struct tei_err err;

	tei_err_note(&err, TEI_ERR_ENDPOINT, "engine", "open the segment again",
		     "%s: notification refused: the process has ended",
		     tei_rail_peer_name(peer));
	return note_refused(e, &err);
}

/* Sends a notification to the process of an open segment and waits until it is
 * acknowledged. A notification to this engine itself is delivered at once. */
static int note_to(struct engine *e, const char *call, segment_id_t id,
		   const struct tei_rail_note *what)
{
	struct tei_rail_peer *peer = NULL;
	struct tei_rail_notification *note;
	struct engine_segment *s;
	bool ended = false;
	struct tei_err err;
	int ret;

	if (id == LOCAL_SEGMENT) {
		note = engine_note_own(e, what, &err);
		if (!note)
			return err.code;
		engine_note_arrived(e, note);
		return 0;
	}
	tei_rwlock_read(&e->segments);
	s = engine_segment_find(e, id);
	if (s && s->peer) {
		peer = s->peer;
		tei_rail_peer_hold(peer);
		ended = s->local && engine_segment_ended(e, s->id, s->local);
	}
	tei_rwlock_unlock(&e->segments);
	if (!peer)
		return engine_bad(e, call, "no such segment, or no rail reaches the segment");
	ret = ended ? note_peer_ended(e, peer) : note_send(e, peer, what);
	tei_rail_peer_put(peer);
	return ret;
}

int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id,
		      notify_msg_t notify_msg)
{
	struct engine *e = engine_from(engine);
	struct tei_rail_note what = {
		.name = notify_msg.name,
		.msg = notify_msg.msg,
	};

	if (!e || !what.name || !what.msg || target_id > INT32_MAX)
		return engine_bad(e, __func__, NULL);
	what.msg_len = strlen(notify_msg.msg);
	return note_to(e, __func__, (segment_id_t)target_id, &what);
}

/* --- binary notifications ------------------------------------------------ */

int te_notify(transfer_engine_t engine, segment_id_t segment_id,
	      const char *name, const void *data, uint64_t length)
{
	struct engine *e = engine_from(engine);
	struct tei_rail_note what = {
		.name = name,
		.msg = data,
		.msg_len = length,
		.binary = true,
	};

	if (!e || !name || (length && !data))
		return engine_bad(e, __func__, NULL);
	return note_to(e, __func__, segment_id, &what);
}

/* Removes the oldest binary notification from the list and returns it, or
 * returns NULL. */
static struct tei_rail_notification *note_take_binary(struct engine *e)
{
	struct tei_rail_notification *n = NULL;

	tei_mutex_lock(&e->notes.lock);
	if (!tei_list_empty(&e->notes.binary)) {
		n = tei_list_first(&e->notes.binary,
				   struct tei_rail_notification, link);
		tei_list_del(&n->link);
		__atomic_store_n(&e->notes.binary_n, e->notes.binary_n - 1,
				 __ATOMIC_SEQ_CST);
	}
	tei_mutex_unlock(&e->notes.lock);
	return n;
}

int te_notify_fetch(transfer_engine_t engine, struct te_notification *notes,
		    size_t elem_size, size_t *count)
{
	struct engine *e = engine_from(engine);
	struct tei_rail_notification *n;
	struct te_notification one;
	uint64_t bytes = 0;
	size_t i;

	if (!e || !count || elem_size < sizeof(one) || (*count && !notes))
		return engine_bad(e, __func__, NULL);
	__atomic_store_n(&e->notes.binary_on, true, __ATOMIC_SEQ_CST);
	for (i = 0; i < *count && (n = note_take_binary(e)); i++) {
		/* the application owns name and data from now on */
		one.name = n->name;
		one.data = n->msg;
		one.length = n->msg_len;
		bytes += n->bytes;
		n->name = n->msg = NULL;
		tei_rail_notification_free(n);
		engine_out((char *)notes + i * elem_size, elem_size, &one,
			   sizeof(one));
	}
	*count = i;
	if (i)
		tei_rail_notification_release(e->dp, (uint32_t)i, bytes);
	engine_event_notes(e);
	return 0;
}

void te_notify_release(struct te_notification *notes, size_t elem_size,
		       size_t count)
{
	struct te_notification *n;
	size_t i;

	for (i = 0; notes && elem_size >= sizeof(*n) && i < count; i++) {
		n = (void *)((char *)notes + i * elem_size);
		free(n->name);
		free(n->data);
		n->name = NULL;
		n->data = NULL;
		n->length = 0;
	}
}
