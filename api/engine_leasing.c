/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote bounce slots: the thread of both sides, and how it is notified.
 */
#include "api/engine_lease_int.h"

#include <stdlib.h>
#include <string.h>

#include "util/thread.h"

#define LEASING_IDLE_NS	(60 * TEI_NS_PER_SEC)

/* --- messages ------------------------------------------------------------ */

int leasing_post(struct tei_rail_peer *peer, uint32_t *prefer,
		 const struct lease_msg *m)
{
	uint8_t buf[TEI_RAIL_MESSAGE_HEAD + sizeof(*m)];
	struct lease_msg wire = *m;

	wire.magic = LEASE_MAGIC;
	wire.version = 1;
	lease_msg_swap(&wire);
	memcpy(buf + TEI_RAIL_MESSAGE_HEAD, &wire, sizeof(wire));
	return tei_rail_send(peer, buf, sizeof(buf), false, prefer);
}

bool leasing_send(struct engine_leasing *l, struct tei_rail_peer *peer,
		  uint32_t *prefer, struct lease_trying *trying,
		  const struct lease_msg *m)
{
	if (l->now >= trying->until_ns) {
		if (!leasing_post(peer, prefer, m)) {
			leasing_try_now(trying);
			return true;
		}
		trying->until_ns = l->now + (LEASE_TRY_NS << trying->refused);
		if (trying->refused < LEASE_TRIES)
			trying->refused++;
	}
	leasing_due(l, trying->until_ns);
	return false;
}

static void leasing_read(struct engine_leasing *l,
			 const struct tei_rail_message *message)
{
	struct lease_msg m;

	if (message->len != sizeof(m))
		return;
	memcpy(&m, message->data, sizeof(m));
	lease_msg_swap(&m);
	if (m.magic != LEASE_MAGIC || m.version != 1)
		return;
	if (m.type == LEASE_READY || m.type == LEASE_DONE)
		lease_heard(l, message->peer, &m);
	else
		lend_heard(l, message->peer, &m);
}

/* Returns the record of a sender, created if necessary, or NULL if memory is
 * short. */
static struct leasing_sender *leasing_sender(struct engine_leasing *l,
					     const struct tei_rail_peer *peer)
	TEI_REQUIRES(l->lock)
{
	struct leasing_sender *s;

	tei_list_foreach(s, &l->senders, struct leasing_sender, link)
		if (s->peer == peer)
			return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->peer = peer;
	tei_list_init(&s->messages);
	tei_list_add_tail(&l->senders, &s->link);
	return s;
}

void engine_lease_message(void *arg, struct tei_rail_message *message)
{
	struct engine_leasing *l = engine_leasing(arg);
	struct leasing_sender *s;
	bool taken = false;

	if (l) {
		tei_mutex_lock(&l->lock);
		s = l->closing ? NULL : leasing_sender(l, message->peer);
		taken = s && s->n < LEASE_INBOX;
		if (taken) {
			s->n++;
			tei_list_add_tail(&s->messages, &message->link);
			leasing_word(l);
		}
		tei_mutex_unlock(&l->lock);
	}
	if (!taken)
		tei_rail_message_free(message);
}

/* --- the thread ---------------------------------------------------------- */

void leasing_word(struct engine_leasing *l)
{
	l->word = true;
	pthread_cond_signal(&l->work);
}

/* Removes the first element of a list and returns it, or NULL. */
static struct tei_list *leasing_take(struct engine_leasing *l,
				     struct tei_list *list)
{
	struct tei_list *first = NULL;

	tei_mutex_lock(&l->lock);
	if (!tei_list_empty(list)) {
		first = list->next;
		tei_list_del(first);
	}
	tei_mutex_unlock(&l->lock);
	return first;
}

/* Returns a message of the sender whose turn it is, or NULL. */
static struct tei_rail_message *leasing_next(struct engine_leasing *l)
{
	struct tei_rail_message *m = NULL;
	struct leasing_sender *s;

	tei_mutex_lock(&l->lock);
	if (!tei_list_empty(&l->senders)) {
		s = tei_list_first(&l->senders, struct leasing_sender, link);
		m = tei_list_first(&s->messages, struct tei_rail_message, link);
		tei_list_del(&m->link);
		tei_list_del(&s->link);	/* back to the end if more are left */
		if (--s->n)
			tei_list_add_tail(&l->senders, &s->link);
		else
			free(s);
	}
	tei_mutex_unlock(&l->lock);
	return m;
}

/* Reads messages. If some are left, the next iteration follows at once. */
static void leasing_messages(struct engine_leasing *l)
{
	struct tei_rail_message *m;
	uint32_t turns = 0;

	while (turns++ < LEASE_TURNS && (m = leasing_next(l))) {
		leasing_read(l, m);
		tei_rail_message_free(m);
	}
	tei_mutex_lock(&l->lock);
	l->word |= !tei_list_empty(&l->senders);
	tei_mutex_unlock(&l->lock);
}

/* Handles all events of an iteration: ends first, because they free slots. */
static void leasing_round(struct engine_leasing *l)
{
	struct tei_list *n;

	l->now = tei_now_ns();
	l->due = l->now + LEASING_IDLE_NS;
	while ((n = leasing_take(l, &l->railed)))
		lease_railed(l, tei_container_of(n, struct lease_piece, node));
	while ((n = leasing_take(l, &l->copied)))
		lend_copied(l, tei_container_of(n, struct lend_slot, node));
	leasing_messages(l);
	while ((n = leasing_take(l, &l->fresh)))
		lease_fresh(l, tei_container_of(n, struct engine_lease, fresh));
	while ((n = leasing_take(l, &l->stopping)))
		lease_stopped(l, tei_container_of(n, struct engine_lease,
						  stop));
	lease_tick(l);
	lend_tick(l);
}

static void *leasing_main(void *arg)
{
	struct engine_leasing *l = arg;
	bool on = true;

	while (on) {
		leasing_round(l);
		tei_mutex_lock(&l->lock);
		if (!l->word)
			tei_mutex_wait(&l->work, &l->lock,
				       tei_ns_left(l->due));
		l->word = false;
		on = !l->closing || !tei_list_empty(&l->live);
		tei_mutex_unlock(&l->lock);
		on = on || lend_busy(l);
	}
	return NULL;
}

/* --- creation and end ----------------------------------------------------- */

static void leasing_free(struct engine_leasing *l) TEI_NO_TSA
{
	pthread_cond_destroy(&l->work);
	pthread_cond_destroy(&l->idle);
	tei_mutex_fini(&l->lock);
	tei_mutex_fini(&l->admin);
	free(l->regions);
	free(l);
}

static struct engine_leasing *leasing_new(struct engine *e) TEI_NO_TSA
{
	struct engine_leasing *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->engine = e;
	tei_mutex_init(&l->admin);
	tei_mutex_init(&l->lock);
	tei_cond_init(&l->work);
	tei_cond_init(&l->idle);
	tei_list_init(&l->senders);
	tei_list_init(&l->live);
	tei_list_init(&l->fresh);
	tei_list_init(&l->stopping);
	tei_list_init(&l->railed);
	tei_list_init(&l->copied);
	tei_list_init(&l->graves);
	tei_list_init(&l->targets);
	tei_list_init(&l->borrowers);
	tei_list_init(&l->asks);
	if (!tei_thread_start(&l->thread, false, leasing_main, l)) {
		pthread_setname_np(l->thread, "tei-lease");
		return l;
	}
	leasing_free(l);
	return NULL;
}

struct engine_leasing *engine_leasing_get(struct engine *e)
{
	struct engine_leasing *l = engine_leasing(e);

	if (l)
		return l;
	tei_mutex_lock(&e->leasing_lock);
	l = e->leasing;
	if (!l) {
		l = leasing_new(e);
		if (l)
			__atomic_store_n(&e->leasing, l, __ATOMIC_RELEASE);
	}
	tei_mutex_unlock(&e->leasing_lock);
	return l;
}

bool engine_lease_on(struct engine *e)
{
	return engine_leasing_get(e) != NULL;
}

void engine_lease_close(struct engine *e)
{
	struct engine_leasing *l = engine_leasing(e);
	struct tei_rail_message *m;
	struct engine_lease *lease;

	if (!l)
		return;
	tei_mutex_lock(&l->lock);
	l->closing = true;
	tei_list_foreach(lease, &l->live, struct engine_lease, live) {
		tei_list_del(&lease->stop);
		tei_list_add_tail(&l->stopping, &lease->stop);
	}
	leasing_word(l);
	tei_mutex_unlock(&l->lock);
	pthread_join(l->thread, NULL);
	while ((m = leasing_next(l)))
		tei_rail_message_free(m);
	lease_forget(l);
	lend_forget(l);
}

void engine_lease_free(struct engine *e)
{
	struct engine_leasing *l = engine_leasing(e);

	if (!l)
		return;
	lend_pools_free(l);
	leasing_free(l);
}
