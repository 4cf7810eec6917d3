/* SPDX-License-Identifier: BSD-2-Clause */
/* Queues the tasks of atomic operations, and ends those whose answer is not
 * needed any longer or can no longer arrive. rail_atomic_ctl.c sends the
 * atomics. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/sched/rail_atomic.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/channel.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"

void rail_atomic_init(struct tei_rail_peer *peer)
{
	struct rail_atomics *a = &peer->atomics;

	tei_list_init(&a->tasks);
	a->own_session = ++peer->dp->peers.sessions;
	/* the session number is in the upper bits, so that the numbers are
	 * higher than those of an earlier object of the same peer */
	tei_channel_out_start(&a->out, a->own_session << 40 | 1);
}

/* Fills in an error record that names the peer and the first rail with a route
 * to the peer. */
void rail_atomic_err(const struct tei_rail_peer *peer, int code,
		     struct tei_err *err)
{
	const struct tei_rail_dp *dp = peer->dp;
	uint32_t i;

	memset(err, 0, sizeof(*err));
	err->code = code;
	err->when_ns = tei_now_ns();
	snprintf(err->peer, sizeof(err->peer), "%.95s", peer->name);
	for (i = 0; i < dp->nrails; i++) {
		if (peer->routes.route[i] < 0)
			continue;
		snprintf(err->rail, sizeof(err->rail), "%s",
			 dp->rails[i]->name);
		snprintf(err->provider, sizeof(err->provider), "%s",
			 dp->rails[i]->nic.provider);
		return;
	}
}

/* Removes a task from the list of unanswered atomics. */
void rail_atomic_take(struct tei_rail_task *t) TEI_REQUIRES(rail_sched_held)
{
	tei_list_del(&t->queue_link);
	t->peer->tasks.queued--;
	t->peer->atomics.fresh = true; /* a later atomic may be sent now */
	t->slices = 0;
}

void rail_atomic_enqueue(struct tei_rail_task *t)
{
	struct tei_rail_peer *peer = t->peer;

	t->cut = t->length; /* an atomic counts as completely cut from the
			     * start, because no slices are cut for it */
	tei_list_add_tail(&peer->atomics.tasks, &t->queue_link);
	peer->atomics.fresh = true;
	if (peer->state == RAIL_PEER_NEW)
		peer->hello.wanted = true;
	rail_peer_attend(peer);
}

void rail_atomic_end(struct tei_rail_task *t)
{
	if (!t->ext->sent)
		rail_atomic_take(t);
}

/* Fails a task whose atomic was sent and whose outcome can no longer be found
 * out. */
static void atomic_unknown(struct tei_rail_task *t, enum tei_rail_end end,
			   const char *why, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *peer = t->peer;
	struct tei_err err, *kept = t->err;

	rail_atomic_err(peer, TEI_ERR_CONTEXT, &err);
	if (kept)
		err.code = kept->code;
	err.unknown = true;
	snprintf(err.text, sizeof(err.text), "outcome unknown: %.140s",
		 kept ? kept->text : why);
	snprintf(err.hint, sizeof(err.hint),
		 "the atomic was executed once or not at all");
	if (!kept)
		t->err = malloc(sizeof(*t->err));
	if (t->err)
		*t->err = err;
	rail_atomic_take(t);
	t->unfenced = end == TEI_RAIL_END_UNFENCED;
	t->complete_wanted = (uint8_t)(end + 1);
	rail_task_finish(peer->dp, t, done);
}

void rail_atomic_unknown(struct tei_rail_peer *peer, const char *why,
			 struct rail_done *done) TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t, *tmp;

	tei_list_foreach_safe (t, tmp, &peer->atomics.tasks,
			       struct tei_rail_task, queue_link)
		if (t->ext->sent)
			atomic_unknown(t, TEI_RAIL_END_FAILED, why, done);
}

void rail_atomic_gone(struct tei_rail_peer *peer, const char *why,
		      struct rail_done *done)
{
	rail_atomic_unknown(peer, why, done);
}

void rail_atomic_give_up(struct tei_rail_peer *peer, struct rail_done *done)
{
	struct tei_rail_task *t, *tmp;

	tei_list_foreach_safe (t, tmp, &peer->atomics.tasks,
			       struct tei_rail_task, queue_link)
		if (t->ext->sent && t->complete_wanted)
			atomic_unknown(t, TEI_RAIL_END_UNFENCED,
				       "the target does not answer", done);
}

void rail_atomic_drop(struct tei_rail_task *t)
{
	if (t->ext->sent && t->err) {
		t->err->unknown = true;
		snprintf(t->err->text, sizeof(t->err->text),
			 "outcome unknown: the engine was closed");
	}
}
