/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/world.h"

/*
 * The lock of a domain, and the inbox. The callbacks of the data plane put
 * events into the inbox, and the thread that holds the lock passes the events
 * to their handlers (struct moonrail_inbox_ops).
 */

/* Takes one event from the inbox. Stores a message in *m and returns NULL, or
 * returns a task. Takes messages first. */
static struct moonrail_task *inbox_take(struct moonrail_domain *d,
					struct tei_rail_message **m)
{
	struct moonrail_task *t = NULL;

	*m = NULL;
	if (!__atomic_load_n(&d->inbox.n, __ATOMIC_SEQ_CST))
		return NULL;
	tei_mutex_lock(&d->inbox.lock);
	if (!tei_list_empty(&d->inbox.messages)) {
		*m = tei_list_first(&d->inbox.messages,
				    struct tei_rail_message, link);
		tei_list_del(&(*m)->link);
		__atomic_fetch_sub(&d->inbox.n, 1, __ATOMIC_SEQ_CST);
	} else if (!tei_list_empty(&d->inbox.tasks)) {
		t = tei_list_first(&d->inbox.tasks, struct moonrail_task, link);
		tei_list_del(&t->link);
		__atomic_fetch_sub(&d->inbox.n, 1, __ATOMIC_SEQ_CST);
	}
	tei_mutex_unlock(&d->inbox.lock);
	return t;
}

void moonrail_drain(struct moonrail_domain *d)
{
	struct tei_rail_message *m;
	struct moonrail_task *t;

	for (;;) {
		t = inbox_take(d, &m);
		if (m)
			d->inbox.ops->message(d, m);
		else if (t)
			d->inbox.ops->task_done(t);
		else
			return;
	}
}

void moonrail_enter(struct moonrail_domain *d) TEI_NO_TSA
{
	tei_mutex_lock(&d->lock);
}

/*
 * A callback that adds an event between the last moonrail_drain and the unlock
 * finds the lock taken and leaves the event in the inbox. So the inbox is
 * checked again after the unlock. The check is an atomic addition of 0, which
 * also writes inbox.n. If the callback's addition comes first, the check sees
 * it. If the check comes first, the callback's addition reads what the check
 * wrote, so the unlock happens before the callback tries the lock. A plain load
 * does not suffice: it could be executed before the unlock, and a failed
 * attempt to take the lock does not order memory accesses.
 */
void moonrail_leave(struct moonrail_domain *d) TEI_NO_TSA
{
	do {
		moonrail_drain(d);
		d->inbox.ops->free_unused(d);
		tei_mutex_unlock(&d->lock);
	} while (__atomic_fetch_add(&d->inbox.n, 0, __ATOMIC_SEQ_CST) &&
		 tei_mutex_trylock(&d->lock));
}

bool moonrail_try_enter(struct moonrail_domain *d) TEI_NO_TSA
{
	return tei_mutex_trylock(&d->lock);
}

void moonrail_notify(struct moonrail_domain *d)
{
	__atomic_fetch_add(&d->inbox.events, 1, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&d->inbox.sleepers, __ATOMIC_SEQ_CST))
		return;
	tei_mutex_lock(&d->inbox.lock);
	tei_cond_broadcast(&d->inbox.cond);
	tei_mutex_unlock(&d->inbox.lock);
}

void moonrail_sleep(struct moonrail_domain *d, uint64_t seen, uint64_t ns)
{
	tei_rail_sleep_begin(d->dp);
	tei_mutex_lock(&d->inbox.lock);
	__atomic_fetch_add(&d->inbox.sleepers, 1, __ATOMIC_SEQ_CST);
	if (moonrail_events(d) == seen)
		tei_mutex_wait(&d->inbox.cond, &d->inbox.lock, ns);
	__atomic_fetch_sub(&d->inbox.sleepers, 1, __ATOMIC_SEQ_CST);
	tei_mutex_unlock(&d->inbox.lock);
	tei_rail_sleep_end(d->dp);
}

void moonrail_progress(struct moonrail_domain *d)
{
	tei_rail_progress_all(d->dp);
}

/* Handles the inbox if the lock is free. */
static void inbox_try_drain(struct moonrail_domain *d)
{
	if (moonrail_try_enter(d))
		moonrail_leave(d);
}

void moonrail_inbox_add_message(struct moonrail_domain *d,
				struct tei_rail_message *m)
{
	tei_mutex_lock(&d->inbox.lock);
	tei_list_add_tail(&d->inbox.messages, &m->link);
	__atomic_fetch_add(&d->inbox.n, 1, __ATOMIC_SEQ_CST);
	tei_mutex_unlock(&d->inbox.lock);
	inbox_try_drain(d);
}

void moonrail_inbox_add_task(struct moonrail_domain *d, struct moonrail_task *t)
{
	tei_mutex_lock(&d->inbox.lock);
	tei_list_add_tail(&d->inbox.tasks, &t->link);
	__atomic_fetch_add(&d->inbox.n, 1, __ATOMIC_SEQ_CST);
	tei_mutex_unlock(&d->inbox.lock);
	inbox_try_drain(d);
}

void moonrail_inbox_init(struct moonrail_domain *d,
			 const struct moonrail_inbox_ops *ops)
{
	tei_mutex_init(&d->lock);
	tei_mutex_init(&d->inbox.lock);
	tei_cond_init(&d->inbox.cond);
	tei_list_init(&d->inbox.messages);
	tei_list_init(&d->inbox.tasks);
	d->inbox.ops = ops;
}

void moonrail_inbox_fini(struct moonrail_domain *d)
{
	pthread_cond_destroy(&d->inbox.cond);
	tei_mutex_fini(&d->inbox.lock);
	tei_mutex_fini(&d->lock);
}
