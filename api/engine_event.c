/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Event file descriptors, for poll and epoll. Each one is an eventfd. It is
 * readable exactly while the program can fetch the end of a batch or a
 * notification.
 *
 * A submission arms its batch: the end of the batch is to be reported once. The
 * thread that lowers pending to zero unfinished tasks calls engine_event_ended.
 * This function checks pending again under events.lock, because a submission
 * may have raised it meanwhile; submissions to batches with an event file
 * descriptor raise pending under the same lock. Therefore two things hold. When
 * a file descriptor becomes readable because a batch has ended, the batch still
 * has no unfinished task. And a submission makes the file descriptor unreadable
 * before one of its tasks can end. If such a submission is refused after that,
 * the earlier state is restored: an end that was already reported is not
 * reported again, and an end that was not fetched yet can still be fetched.
 *
 * events.lock is a leaf. It is held while an eventfd is read or written, which
 * does not block. It is also held while an eventfd is closed, so that no thread
 * writes to a number that has been reused for another file.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/engine_int.h"
#include "api/engine_transport.h"

static void event_raise(int fd)
{
	uint64_t one = 1;
	ssize_t ret = write(fd, &one, sizeof(one));

	/* an error is ignored: the write fails only if the counter of the
	 * eventfd is full, and then the file descriptor is readable */
	(void)ret;
}

/* Makes the file descriptor unreadable. Returns false if it was unreadable
 * already, because the program has read it. */
static bool event_lower(int fd)
{
	uint64_t junk;

	return read(fd, &junk, sizeof(junk)) == sizeof(junk);
}

/* Makes the engine's file descriptor readable if there is an ended batch or a
 * notification to fetch, otherwise unreadable. If "again" is true, writes to
 * the file descriptor even if it was made readable before, because the program
 * may have read it. */
static void event_settle(struct engine *e, bool again)
	TEI_REQUIRES(e->events.lock)
{
	struct engine_events *ev = &e->events;
	bool up = !tei_list_empty(&ev->ended) || engine_note_ready(&e->notes);

	if (ev->fd < 0 || (up == ev->level && !(up && again)))
		return;
	ev->level = up;
	if (up)
		event_raise(ev->fd);
	else
		event_lower(ev->fd);
}

static void event_batch_raise(struct engine_batch *b)
{
	if (b->event_fd < 0 || b->event_level)
		return;
	b->event_level = true;
	event_raise(b->event_fd);
}

static bool event_has_ended(const struct engine_batch *b)
{
	return !(__atomic_load_n(&b->pending, __ATOMIC_SEQ_CST) &
		 ENGINE_PENDING_LEFT);
}

/* Reports the end of the batch if all its tasks have ended and their end was
 * not reported yet. */
static void event_notify(struct engine *e, struct engine_batch *b)
	TEI_REQUIRES(e->events.lock)
{
	if (!b->event_armed || !event_has_ended(b))
		return;
	b->event_armed = false;
	event_batch_raise(b);
	if (e->events.on && tei_list_empty(&b->event_link)) {
		tei_list_add_tail(&e->events.ended, &b->event_link);
		b->event_adopted = true;
	}
	event_settle(e, false);
}

static void event_watched(struct engine_batch *b)
{
	__atomic_fetch_or(&b->pending, ENGINE_PENDING_WATCHED,
			  __ATOMIC_SEQ_CST);
	b->event_id = engine_batch_id(b);
}

/* Saves the fields of a batch that a submission changes, for event_restore. */
static void event_keep(struct engine_batch *b)
{
	b->event_was = (struct engine_event_was){
		.armed = b->event_armed,
		.adopted = b->event_adopted,
		.listed = !tei_list_empty(&b->event_link),
		.level = b->event_level,
		.readable = b->event_level && event_lower(b->event_fd),
	};
}

static void event_restore(struct engine *e, struct engine_batch *b)
	TEI_REQUIRES(e->events.lock)
{
	const struct engine_event_was *was = &b->event_was;

	b->event_armed = was->armed;
	b->event_adopted = was->adopted;
	if (was->listed)
		tei_list_add_tail(&e->events.ended, &b->event_link);
	b->event_level = was->level;
	if (was->readable)
		event_raise(b->event_fd);
	event_settle(e, false);
}

/* --- calls for batches ---------------------------------------------------- */

void engine_event_expect(struct engine_batch *b, uint32_t n)
{
	struct engine *e = b->engine;

	tei_mutex_lock(&e->events.lock);
	__atomic_fetch_add(&b->pending, n, __ATOMIC_SEQ_CST);
	event_keep(b);
	event_watched(b);
	b->event_armed = true;
	b->event_adopted = e->events.on;
	tei_list_del(&b->event_link);
	b->event_level = false;
	event_settle(e, false);
	tei_mutex_unlock(&e->events.lock);
}

void engine_event_unexpect(struct engine_batch *b, uint32_t n)
{
	struct engine *e = b->engine;

	tei_mutex_lock(&e->events.lock);
	__atomic_fetch_sub(&b->pending, n, __ATOMIC_SEQ_CST);
	event_restore(e, b);
	event_notify(e, b);
	tei_mutex_unlock(&e->events.lock);
}

void engine_event_ended(struct engine_batch *b)
{
	struct engine *e = b->engine;

	tei_mutex_lock(&e->events.lock);
	event_notify(e, b);
	tei_mutex_unlock(&e->events.lock);
}

void engine_event_freed(struct engine_batch *b)
{
	struct engine *e = b->engine;

	if (!(__atomic_load_n(&b->pending, __ATOMIC_RELAXED) &
	      ENGINE_PENDING_WATCHED))
		return;
	tei_mutex_lock(&e->events.lock);
	__atomic_fetch_and(&b->pending, ~ENGINE_PENDING_WATCHED,
			   __ATOMIC_SEQ_CST);
	b->event_armed = false;
	b->event_adopted = false;
	tei_list_del(&b->event_link);
	if (b->event_fd >= 0) {
		close(b->event_fd);
		b->event_fd = -1;
		engine_transports_waiter(e, ENGINE_WAITER_WAKES);
	}
	b->event_level = false;
	event_settle(e, false);
	tei_mutex_unlock(&e->events.lock);
}

void engine_event_reset(struct engine_batch *b)
{
	struct engine *e = b->engine;

	if (!(__atomic_load_n(&b->pending, __ATOMIC_RELAXED) &
	      ENGINE_PENDING_WATCHED))
		return;
	tei_mutex_lock(&e->events.lock);
	b->event_armed = false;
	b->event_adopted = false;
	tei_list_del(&b->event_link);
	if (b->event_level)
		event_lower(b->event_fd);
	b->event_level = false;
	event_settle(e, false);
	tei_mutex_unlock(&e->events.lock);
}

void engine_event_notes(struct engine *e)
{
	if (!__atomic_load_n(&e->events.on, __ATOMIC_SEQ_CST))
		return;
	tei_mutex_lock(&e->events.lock);
	event_settle(e, true);
	tei_mutex_unlock(&e->events.lock);
}

/* --- the engine's part ---------------------------------------------------- */

void engine_event_init(struct engine *e)
{
	tei_mutex_init(&e->events.lock);
	tei_list_init(&e->events.ended);
	e->events.fd = -1;
}

static void event_close(struct engine_batch *b, void *arg)
{
	(void)arg;
	if (b->event_fd >= 0)
		close(b->event_fd);
}

void engine_event_fini(struct engine *e)
{
	engine_batch_each(e, event_close, NULL);
	if (e->events.fd >= 0)
		close(e->events.fd);
}

/* --- the calls ----------------------------------------------------------- */

static int event_open(int *fd)
{
	*fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (*fd >= 0)
		return 0;
	return tei_err_fail(NULL, TEI_ERR_CONTEXT, "engine",
			    "check the open-file limit (ulimit -n)",
			    "eventfd: %s", strerror(errno));
}

/* Arms a batch whose tasks were submitted before the engine's file descriptor
 * was opened, so that their end is reported, too. */
static void event_adopt(struct engine_batch *b, void *arg)
{
	struct engine *e = arg;

	tei_mutex_lock(&b->lock);
	if (b->gen & 1 && b->count && !b->internal) {
		tei_mutex_lock(&e->events.lock);
		if (!b->event_adopted) {
			event_watched(b);
			b->event_armed = true;
			b->event_adopted = true;
			event_notify(e, b);
		}
		tei_mutex_unlock(&e->events.lock);
	}
	tei_mutex_unlock(&b->lock);
}

int te_event_fd(transfer_engine_t engine)
{
	struct engine *e = engine_from(engine);
	bool first;
	int fd, ret = 0;

	if (!e)
		return TEI_ERR_INVALID;
	tei_mutex_lock(&e->events.lock);
	first = e->events.fd < 0;
	if (first)
		ret = event_open(&e->events.fd);
	fd = e->events.fd;
	if (fd >= 0)
		__atomic_store_n(&e->events.on, true, __ATOMIC_SEQ_CST);
	tei_mutex_unlock(&e->events.lock);
	if (ret || !first)
		return ret ? ret : fd;
	/* reports a sleeping thread, because a program that polls the file
	 * descriptor does not drive progress */
	engine_transports_waiter(e, ENGINE_WAITER_SLEEPS);
	engine_batch_each(e, event_adopt, e);
	engine_event_notes(e);
	return fd;
}

static int event_watch(struct engine_batch *b)
{
	struct engine *e = b->engine;
	int ret;

	tei_mutex_lock(&e->events.lock);
	ret = b->event_fd >= 0 ? 0 : event_open(&b->event_fd);
	if (!ret && !(__atomic_load_n(&b->pending, __ATOMIC_RELAXED) &
		      ENGINE_PENDING_WATCHED)) {
		event_watched(b);
		b->event_armed = b->count > 0;
	}
	if (!ret && b->count && event_has_ended(b) && !b->event_armed)
		event_batch_raise(b); /* the end of the batch was reported
				       * before, but not through this file
				       * descriptor */
	event_notify(e, b);
	if (!ret)
		ret = b->event_fd;
	tei_mutex_unlock(&e->events.lock);
	return ret;
}

int te_batch_event_fd(transfer_engine_t engine, batch_id_t batch_id)
{
	struct engine *e = engine_from(engine);
	struct engine_batch *b;
	bool first;
	int ret;

	if (!e)
		return TEI_ERR_INVALID;
	b = engine_batch_lock(e, batch_id);
	if (!b)
		return TEI_ERR_INVALID;
	first = b->event_fd < 0;
	ret = event_watch(b);
	if (first && ret >= 0)
		engine_transports_waiter(e, ENGINE_WAITER_SLEEPS);
	engine_batch_unlock(b);
	return ret;
}

/* Removes up to n batches from the list of ended batches and writes their ids
 * to ids[]. Returns their number. */
static size_t event_take(struct engine *e, batch_id_t *ids, size_t n)
{
	struct engine_batch *b;
	size_t i = 0;

	tei_mutex_lock(&e->events.lock);
	while (i < n && !tei_list_empty(&e->events.ended)) {
		b = tei_list_first(&e->events.ended, struct engine_batch,
				   event_link);
		tei_list_del(&b->event_link);
		ids[i++] = b->event_id;
	}
	event_settle(e, true);
	tei_mutex_unlock(&e->events.lock);
	return i;
}

/* Fills in *out for an ended batch. Returns false if the batch was freed, or
 * more tasks were submitted to it, since it was removed from the list. */
static bool event_fill(struct engine *e, batch_id_t id, struct te_ended *out)
{
	struct engine_batch *b = engine_batch_lock(e, id);
	struct transfer_status status;
	bool ended;

	if (!b)
		return false;
	ended = b->count && event_has_ended(b);
	if (ended) {
		engine_batch_sum(b, &status);
		memset(out, 0, sizeof(*out));
		out->batch_id = id;
		out->status = status.status;
		out->transferred_bytes = status.transferred_bytes;
		out->cookie = b->tasks->cookie;
		out->tasks = b->count;
	}
	engine_batch_unlock(b);
	return ended;
}

int te_ended_batches(transfer_engine_t engine, struct te_ended *ended,
		     size_t elem_size, size_t *count)
{
	struct engine *e = engine_from(engine);
	batch_id_t ids[64];
	struct te_ended one;
	size_t i, n, used = 0;

	if (!e || !count || !elem_size || (*count && !ended))
		return engine_bad(e, __func__, NULL);
	do {
		n = *count - used < 64 ? *count - used : 64;
		n = event_take(e, ids, n);
		for (i = 0; i < n; i++) {
			if (!event_fill(e, ids[i], &one))
				continue;
			engine_out((char *)ended + used++ * elem_size,
				   elem_size, &one, sizeof(one));
		}
	} while (n && used < *count);
	*count = used;
	return 0;
}
