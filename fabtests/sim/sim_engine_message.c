/* SPDX-License-Identifier: BSD-2-Clause */
/* Atomics and notifications of the workload of engines, and their checks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim_engine_int.h"

/* The notifications that a host has received from one worker of another
 * host. */
struct engine_inbox {
	uint64_t sender;		/* incarnation of the sender */
	uint64_t last;			/* highest number of a notification
					 * received */
	uint64_t acked;			/* highest number of a notification
					 * whose sender got the
					 * acknowledgement */
	uint64_t acked_by;		/* incarnation of the process that has
					 * acknowledged it; 0 if it is
					 * unknown */
	uint64_t lost;			/* number of the last notification that
					 * has failed; it must not arrive
					 * afterwards */
};

static struct {
	const struct sim_conf *conf;
	struct engine_counter *counters; /* array indexed by target, then by
					  * initiator, life of the initiator,
					  * worker */
	uint64_t **counts;		/* indexed by host: memory of its
					 * counters */
	struct engine_inbox *inboxes;	/* array indexed by target, then by
					 * sender, worker */
} messages;

void *engine_message_counts(uint32_t host, size_t *size)
{
	*size = engine_lanes(messages.conf) * sizeof(uint64_t);
	return messages.counts[host];
}

void engine_message_begin(const struct sim_conf *conf)
{
	size_t lanes = engine_lanes(conf), i, j;

	messages.conf = conf;
	messages.counters = calloc(conf->hosts * lanes,
				   sizeof(*messages.counters));
	messages.counts = calloc(conf->hosts, sizeof(*messages.counts));
	messages.inboxes = calloc((size_t)conf->hosts * conf->hosts *
					  conf->workers,
				  sizeof(*messages.inboxes));
	if (!messages.counters || !messages.counts || !messages.inboxes)
		sim_fail("no memory for the workload");
	for (i = 0; i < conf->hosts; i++) {
		messages.counts[i] = sim_arena(lanes * 8, 4096);
		for (j = 0; j < lanes; j++)
			messages.counters[i * lanes + j].value =
				messages.counts[i] + j;
	}
}

void engine_message_end(void)
{
	free(messages.counters);
	free(messages.counts);
	free(messages.inboxes);
}

/* --- atomics --- */

static void counter_check(const struct engine_counter *c, const char *what)
{
	if (*c->value < c->done || *c->value > c->done + c->unknown)
		sim_found("%s: the counter is %" PRIu64 " after %" PRIu64 " additions and %" PRIu64 " unknown ones",
			  what, *c->value, c->done, c->unknown);
}

void engine_message_verify(void)
{
	size_t i;

	for (i = 0; i < messages.conf->hosts * engine_lanes(messages.conf); i++)
		counter_check(&messages.counters[i], "at the end");
}

void engine_message_gone(struct engine_worker *w)
{
	w->counter->unknown++;
}

/*
 * Handles the end of an atomic. Earlier additions that were not COMPLETED may
 * have been executed or not. The old value that a COMPLETED atomic returns shows
 * how many of them were. A target executes the atomics of one worker in their
 * order, so the other ones will not be executed any more.
 */
static void atomic_end(struct engine_worker *w,
		       const struct transfer_status *s)
{
	struct engine_counter *c = w->counter;
	struct sim_load_stats *stats = engine_stats();
	struct te_error err;

	memset(&err, 0, sizeof(err));
	te_task_error(engine_of(w), w->batch, 0, &err, sizeof(err));
	SIM_TRACE(w->proc->node->id, "ended", w->id, (uint64_t)s->status,
		  (uint64_t)-err.code);
	w->posted = false;
	stats->ops++;
	if (s->status == STATUS_COMPLETED) {
		stats->ends[0]++;
		stats->atomics++;
		if (*w->old < c->done || *w->old > c->done + c->unknown)
			sim_found("%s: old value %" PRIu64 " after %" PRIu64 " additions and %" PRIu64 " unknown ones",
				  engine_worker_name(w), *w->old, c->done,
				  c->unknown);
		c->unknown -= *w->old - c->done;
		c->done = *w->old + (!w->swap || *w->old == w->compare);
	} else {
		stats->ends[s->status == STATUS_TIMEOUT ? 2 : 1]++;
		c->unknown += s->status == STATUS_TIMEOUT ||
			      err.flags & TE_ERROR_UNKNOWN;
		if (!engine_excused(w))
			sim_found("%s: ended with %d (%s) although nothing was disturbed",
				  engine_worker_name(w), s->status, err.text);
	}
	counter_check(c, engine_worker_name(w));
}

void engine_message_atomic(struct engine_worker *w)
{
	struct te_local local = { w->old, sizeof(*w->old) };
	struct te_request r = { .target_id = w->segment, .local = &local,
				.local_count = 1, .remote_count = 1 };
	struct transfer_status s;
	struct te_remote remote;
	uint32_t i = 0;
	int ret;

	w->counter = &messages.counters[(size_t)w->to *
						engine_lanes(messages.conf) +
					engine_lane(w)];
	/* half of the compare-and-swaps expect a wrong value and must have no
	 * effect */
	w->swap = sim_rng_below(&w->rng, 2);
	w->compare = w->counter->done + sim_rng_below(&w->rng, 2);
	remote.addr = (uintptr_t)w->counter->value;
	remote.length = sizeof(*w->old);
	r.remote = &remote;
	r.opcode = w->swap ? TE_ATOMIC_CAS : TE_ATOMIC_FETCH_ADD;
	r.operand = w->swap ? w->compare + 1 : 1;
	r.compare = w->swap ? w->compare : 0;
	w->batch = allocateBatchID(engine_of(w), 1);
	SIM_TRACE(w->proc->node->id, "atomic", w->id, w->to, r.opcode);
	w->posted = true;
	ret = te_submit(engine_of(w), w->batch, &r, sizeof(r), 1, 0);
	if (ret && !engine_excused(w))
		sim_found("%s: refused with %d", engine_worker_name(w), ret);
	while (!ret &&
	       te_wait_batch(engine_of(w), w->batch, 1000000, &s))
		if (i++ == SIM_LOAD_LIMIT)
			sim_found("%s: not ended after %u s",
				  engine_worker_name(w), SIM_LOAD_LIMIT);
	if (!ret)
		atomic_end(w, &s);
	w->posted = false;
	freeBatchID(engine_of(w), w->batch);
}

/* --- notifications --- */

static struct engine_inbox *note_inbox(uint32_t to, uint32_t from,
				       uint32_t worker, uint64_t sender)
{
	struct engine_inbox *box =
		&messages.inboxes[((size_t)to * messages.conf->hosts + from) *
					  messages.conf->workers + worker];

	if (box->sender != sender) {
		memset(box, 0, sizeof(*box));
		box->sender = sender;
	}
	return box;
}

static void note_check(struct sim_proc *proc, const struct notify_msg *note)
{
	uint64_t sender, number;
	unsigned int from, worker;
	struct engine_inbox *box;

	if (strcmp(note->name, "sim") ||
	    sscanf(note->msg, "%u %u %" SCNu64 " %" SCNu64, &from, &worker,
		   &sender, &number) != 4)
		sim_found("a notification was damaged: %s", note->msg);
	SIM_TRACE(proc->node->id, "notified", from, worker, sender, number);
	box = note_inbox(proc->node->id, from, worker, sender);
	if (number <= box->last)
		sim_found("notification %" PRIu64 " of host %u came after %" PRIu64,
			  number, from, box->last);
	if (number > box->acked && box->acked > box->last &&
	    box->acked_by == proc->incarnation)
		sim_found("notification %" PRIu64 " of host %u was acknowledged, but is lost",
			  box->acked, from);
	if (number == box->lost)
		sim_found("notification %" PRIu64 " of host %u arrived after it had failed",
			  number, from);
	box->last = number;
}

void engine_message_fetch(struct sim_proc *proc)
{
	struct engine_proc *ep = proc->work;
	struct notify_msg *list;
	int n = 0, i;

	list = getNotifsFromEngine(ep->engine, &n);
	for (i = 0; i < n; i++)
		note_check(proc, &list[i]);
	freeNotifsMsgBuf(list, n);
}

void engine_message_note(struct engine_worker *w)
{
	struct sim_proc *proc = w->proc;
	struct notify_msg note = { .name = (char *)(uintptr_t)"sim" };
	struct engine_inbox *box;
	struct te_error err;
	char msg[128];
	int ret;

	snprintf(msg, sizeof(msg), "%u %u %" PRIu64 " %" PRIu64,
		 proc->node->id, w->index, proc->incarnation, ++w->notes);
	note.msg = msg;
	SIM_TRACE(proc->node->id, "notify", w->to, w->notes);
	ret = genNotifyInEngine(engine_of(w), (uint64_t)w->segment, note);
	te_last_error(&err, sizeof(err));
	SIM_TRACE(proc->node->id, "answer", w->to, w->notes, (uint64_t)-ret);
	engine_stats()->ops++;
	box = note_inbox(w->to, proc->node->id, w->index, proc->incarnation);
	if (!ret) {
		engine_stats()->notes++;
		box->acked = w->notes;
		/* a process that was started meanwhile may not be the one that
		 * has acknowledged the notification */
		box->acked_by = sim_cluster_node(w->to)->proc->incarnation ==
						w->incarnation ?
					w->incarnation : 0;
		return;
	}
	/* all fibers have the same last error, so another fiber may have
	 * replaced it */
	if (err.code == ret && !(err.flags & TE_ERROR_UNKNOWN)) {
		if (box->last == w->notes)
			sim_found("%s: failed, but delivered",
				  engine_worker_name(w));
		box->lost = w->notes;
	}
	if (!engine_excused(w))
		sim_found("%s: ended with %d (%s) although nothing was disturbed",
			  engine_worker_name(w), ret, err.text);
}
