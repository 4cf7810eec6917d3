/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_NOTIFY_H
#define TEI_API_ENGINE_NOTIFY_H

/*
 * Notifications that an engine has received.
 */

#include <stdbool.h>
#include <stdint.h>

#include "moonrail.h"
#include "transfer_engine_c.h"

#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

struct engine;
struct tei_err;
struct tei_rail_note;
struct tei_rail_notification;

/* Notifications that the program has not fetched yet. */
struct engine_notes {
	struct tei_mutex lock;		/* leaf; guards the members below */
	struct tei_list list;		/* notifications with text, for
					 * getNotifsFromEngine */
	uint32_t n;			/* number of elements of list; atomic,
					 * because it is also read without the
					 * lock */
	struct tei_list binary;		/* notifications with bytes, for
					 * te_notify_fetch */
	uint32_t binary_n;		/* number of elements of binary; atomic,
					 * because it is also read without the
					 * lock */
	bool binary_on;			/* atomic: the program has called
					 * te_notify_fetch */
	struct tei_log_limit limit;
};

/*
 * Returns true if a notification makes the engine's event file descriptor
 * readable. Binary notifications do so only if the program has called
 * te_notify_fetch. A program that does not call this function could not make
 * the file descriptor unreadable again.
 */
static inline bool engine_note_ready(const struct engine_notes *n)
{
	return __atomic_load_n(&n->n, __ATOMIC_SEQ_CST) ||
	       (__atomic_load_n(&n->binary_on, __ATOMIC_SEQ_CST) &&
		__atomic_load_n(&n->binary_n, __ATOMIC_SEQ_CST));
}

/* --- engine_notify.c ----------------------------------------------------- */
/*
 * Creates a notification from the engine to itself and reserves a place for it
 * in the queue. Returns NULL if the notification is too long, if the queue is
 * full, or if memory is short; then err and the thread's last error are set.
 */
struct tei_rail_notification *engine_note_own(struct engine *e,
					      const struct tei_rail_note *what,
					      struct tei_err *err);
/* Frees a notification that was not delivered, and releases its place in the
 * queue. */
void engine_note_discard(struct engine *e, struct tei_rail_notification *note);
/* Delivers a notification that has a place in the queue, and takes ownership of
 * it. arg is the engine. */
void engine_note_arrived(void *arg, struct tei_rail_notification *note);
/* Frees the notifications that were not fetched. */
void engine_note_free_all(struct engine *e);

#endif /* TEI_API_ENGINE_NOTIFY_H */
