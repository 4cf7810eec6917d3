/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Notifications: held until getNotifsFromEngine drains them, bounded.
 */
#include "api/engine_int.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void note_free(struct engine_note *n)
{
	free(n->name);
	free(n->msg);
	free(n);
}

static struct engine_note *note_make(const char *name, const char *msg)
{
	struct engine_note *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->name = strdup(name);
	n->msg = strdup(msg);
	if (n->name && n->msg)
		return n;
	note_free(n);
	return NULL;
}

static int note_hold(struct engine *e, struct engine_note *n)
{
	bool full;

	tei_mutex_lock(&e->notes_lock);
	full = e->nnotes >= e->settings.max_notifies;
	if (!full) {
		tei_list_add_tail(&e->notes, &n->link);
		__atomic_store_n(&e->nnotes, e->nnotes + 1, __ATOMIC_SEQ_CST);
	}
	tei_mutex_unlock(&e->notes_lock);
	if (full)
		return TEI_ERR_TOO_MANY;
	engine_event_notes(e);
	return 0;
}

/* The thread's last error tells each of them, the log a few. */
static int note_refuse(struct engine *e, int code)
{
	struct tei_err err = { .code = code, .when_ns = tei_now_ns() };

	if (code == TEI_ERR_TOO_MANY)
		snprintf(err.text, sizeof(err.text),
			 "notification refused: MOONRAIL_MAX_NOTIFIES=%u are held",
			 e->settings.max_notifies);
	else
		snprintf(err.text, sizeof(err.text),
			 "notification refused: %s", tei_err_name(code));
	tei_err_set_last(&err);
	TEI_LOG_LIMITED(&e->notes_limit, TEI_LOG_WARN, "engine", "%s", err.text);
	return code;
}

int engine_note_add(struct engine *e, const char *name, const char *msg)
{
	struct engine_note *n = note_make(name, msg);
	int ret = n ? note_hold(e, n) : TEI_ERR_MEMORY;

	if (!ret)
		return 0;
	if (n)
		note_free(n);
	return note_refuse(e, ret);
}

void engine_note_arrived(void *arg, const char *peer, const char *name,
			 const char *msg)
{
	(void)peer;
	engine_note_add(arg, name, msg);
}

void engine_note_free_all(struct engine *e)
{
	struct engine_note *n, *tmp;

	tei_list_foreach_safe(n, tmp, &e->notes, struct engine_note, link)
		note_free(n);
}

notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size)
{
	struct engine *e = engine_from(engine);
	struct engine_note *n;
	notify_msg_t *out;
	uint32_t i, count;

	if (size)
		*size = 0;
	if (!e || !size) {
		engine_bad(e, __func__, NULL);
		return NULL;
	}
	tei_mutex_lock(&e->notes_lock);
	count = e->nnotes;
	out = count ? calloc(count, sizeof(*out)) : NULL;
	for (i = 0; out && i < count; i++) {
		n = tei_list_first(&e->notes, struct engine_note, link);
		tei_list_del(&n->link);
		/* the strings go to the caller, the node stays ours */
		out[i].name = n->name;
		out[i].msg = n->msg;
		free(n);
	}
	if (out) {
		__atomic_store_n(&e->nnotes, 0, __ATOMIC_SEQ_CST);
		*size = (int)count;
	}
	tei_mutex_unlock(&e->notes_lock);
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

/* The limit is one to a peer's. */
static bool engine_note_too_long(const struct notify_msg *msg)
{
	size_t len = strlen(msg->name) + strlen(msg->msg);
	struct tei_err err;

	return len > TEI_RAIL_NOTIFY_MAX &&
	       tei_err_fail(&err, TEI_ERR_INVALID, "engine", NULL,
			    "a notification of %zu bytes, at most %d can be "
			    "sent", len, TEI_RAIL_NOTIFY_MAX);
}

int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id,
		      notify_msg_t notify_msg)
{
	struct engine *e = engine_from(engine);
	struct tei_rail_peer *peer = NULL;
	struct engine_segment *s;
	bool ended = false;
	int ret;

	if (!e || !notify_msg.name || !notify_msg.msg || target_id > INT32_MAX)
		return engine_bad(e, __func__, NULL);
	if (target_id == LOCAL_SEGMENT) {
		if (engine_note_too_long(&notify_msg))
			return TEI_ERR_INVALID;
		return engine_note_add(e, notify_msg.name, notify_msg.msg);
	}
	pthread_rwlock_rdlock(&e->segments);
	s = engine_segment_find(e, (segment_id_t)target_id);
	if (s && s->peer) {
		peer = s->peer;
		tei_rail_peer_hold(peer);
		ended = s->local && engine_segment_ended(e, s->id, s->local);
	}
	pthread_rwlock_unlock(&e->segments);
	if (!peer)
		return engine_bad(e, __func__, "no such segment, or no rail");
	ret = ended ? TEI_ERR_ENDPOINT :
		      tei_rail_notify(peer, notify_msg.name, notify_msg.msg);
	tei_rail_peer_put(peer);
	/* one that is too long has been told */
	return ret && ret != TEI_ERR_INVALID ? note_refuse(e, ret) : ret;
}
