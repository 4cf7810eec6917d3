/* SPDX-License-Identifier: BSD-2-Clause */
/* Batches of writes and reads of the workload of engines, and their checks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim_engine_int.h"

/* The statuses from the best one to the worst one. */
static const int batch_order[] = {
	STATUS_COMPLETED, STATUS_CANCELED, STATUS_FAILED, STATUS_TIMEOUT,
};

static struct {
	const struct sim_conf *conf;
	struct engine_slot *slots;	/* array indexed by target, then by
					 * registered region (chunk), initiator,
					 * life of the initiator, worker */
	char **local;			/* indexed by host: local memory of all
					 * its workers */
	struct sim_tomb *tombs;		/* array indexed by host, then by
					 * worker */
} batches;

/* --- memory --- */

char *engine_batch_local(uint32_t host, size_t *size)
{
	*size = batches.conf->workers * (size_t)ENGINE_STRIDE;
	return batches.local[host];
}

void engine_batch_worker(struct engine_worker *w)
{
	uint32_t id = w->proc->node->id;

	w->local = batches.local[id] + (size_t)w->index * ENGINE_STRIDE + 64;
	w->tomb = &batches.tombs[(size_t)id * batches.conf->workers + w->index];
	w->old = (uint64_t *)(void *)(w->local + ENGINE_MAX + 48);
}

void engine_batch_begin(const struct sim_conf *conf)
{
	size_t lanes = engine_lanes(conf), i, j, k;
	struct engine_slot *slot;

	batches.conf = conf;
	batches.slots = calloc(conf->hosts * SIM_CHUNKS * lanes,
			       sizeof(*batches.slots));
	batches.local = calloc(conf->hosts, sizeof(*batches.local));
	batches.tombs = calloc((size_t)conf->hosts * conf->workers,
			       sizeof(*batches.tombs));
	if (!batches.slots || !batches.local || !batches.tombs)
		sim_fail("no memory for the workload");
	for (i = 0; i < conf->hosts; i++) {
		batches.local[i] = sim_arena(conf->workers *
						     (size_t)ENGINE_STRIDE,
					     4096);
		for (k = 0; k < SIM_CHUNKS; k++)
			for (j = 0; j < lanes; j++) {
				slot = &batches.slots[(i * SIM_CHUNKS + k) *
							      lanes + j];
				slot->at = sim_cluster_node((uint32_t)i)
						   ->chunk[k] +
					   j * ENGINE_STRIDE + 64;
			}
	}
}

void engine_batch_end(void)
{
	free(batches.slots);
	free(batches.local);
	free(batches.tombs);
}

void engine_batch_verify(void)
{
	size_t lanes = engine_lanes(batches.conf), i;

	for (i = 0; i < batches.conf->hosts * SIM_CHUNKS * lanes; i++)
		sim_tomb_verify(&batches.slots[i].tomb,
				"a slot that no batch uses");
	for (i = 0; i < (size_t)batches.conf->hosts * batches.conf->workers;
	     i++)
		sim_tomb_verify(&batches.tombs[i],
				"local memory of an ended batch");
}

static char *part_local(const struct engine_worker *w,
			const struct engine_part *p)
{
	return w->local + p->off;
}

static char *part_remote(const struct engine_worker *w,
			 const struct engine_part *p)
{
	return w->slot->at + w->off + p->off;
}

/* Returns true if the memory has the pattern that the checker wrote at the end
 * of the task. */
static bool part_buried(const struct engine_part *p, const char *at)
{
	return sim_pattern_differs(at, p->len, p->buried) == p->len;
}

/* --- the end of a task --- */

static void part_check_write(struct engine_worker *w, struct engine_part *p)
{
	const char *at = part_remote(w, p);

	if (sim_pattern_differs(part_local(w, p), p->len, p->seed) != p->len)
		sim_found("%s: the source has changed", engine_worker_name(w));
	if (p->revoked && !part_buried(p, at))
		sim_found("%s: memory has changed after it was unregistered",
			  engine_worker_name(w));
	if (p->status != STATUS_COMPLETED ||
	    (p->in_place && part_buried(p, at)))
		return;
	if (p->revoked)
		sim_found("%s: COMPLETED after its memory was unregistered",
			  engine_worker_name(w));
	if (sim_pattern_differs(at, p->len, p->seed) != p->len)
		sim_found("%s: COMPLETED, but byte %zu is not in place",
			  engine_worker_name(w),
			  p->off + sim_pattern_differs(at, p->len, p->seed));
}

static void part_check_read(struct engine_worker *w, struct engine_part *p)
{
	const char *at = part_remote(w, p);

	if (sim_pattern_differs(at, p->len,
				p->revoked ? p->buried : p->seed) != p->len)
		sim_found("%s: the source has changed", engine_worker_name(w));
	if (p->status == STATUS_COMPLETED &&
	    sim_pattern_differs(part_local(w, p), p->len, p->seed) != p->len)
		sim_found("%s: COMPLETED, but byte %zu is not in place",
			  engine_worker_name(w),
			  p->off + sim_pattern_differs(part_local(w, p), p->len,
						       p->seed));
}

/* Returns true if the task has ended, but its target could not be fenced. */
static bool part_unfenced(const struct engine_part *p)
{
	return p->ended && p->status == STATUS_TIMEOUT;
}

/* Handles the terminal status of a task: checks its bytes, and writes another
 * pattern to its ranges, which must not change any more. */
static void part_end(struct engine_worker *w, struct engine_part *p,
		     const struct transfer_status *s)
{
	struct sim_load_stats *stats = engine_stats();
	size_t i = (size_t)(p - w->parts), k;
	struct te_error err;

	p->ended = true;
	p->status = s->status;
	for (k = 0; batch_order[k] != s->status; k++)
		if (k == 3)
			sim_found("%s: task %zu has status %d",
				  engine_worker_name(w), i, s->status);
	memset(&err, 0, sizeof(err));
	if (te_task_error(engine_of(w), w->batch, i, &err, sizeof(err)))
		sim_found("%s: task %zu has no error record",
			  engine_worker_name(w), i);
	SIM_TRACE(w->proc->node->id, "ended", w->id, i, (uint64_t)s->status,
		  (uint64_t)-err.code);
	stats->ops++;
	stats->ends[k == 1 ? 3 : k == 2 ? 1 : k == 3 ? 2 : 0]++;
	if (stats->slowest_ns < sim_now() - w->start_ns)
		stats->slowest_ns = sim_now() - w->start_ns;
	if (s->status == STATUS_COMPLETED && s->transferred_bytes != p->len)
		sim_found("%s: COMPLETED, but %" PRIu64 " bytes of %zu are counted",
			  engine_worker_name(w), s->transferred_bytes, p->len);
	if ((s->status != STATUS_COMPLETED) != (err.code != 0))
		sim_found("%s: task %zu has status %d and error code %d",
			  engine_worker_name(w), i, s->status, err.code);
	if (s->status != STATUS_COMPLETED && !engine_excused(w))
		sim_found("%s: task %zu ended with %d (%s) although nothing was disturbed since %.3f s",
			  engine_worker_name(w), i, s->status, err.text,
			  (double)(sim_cluster_calm_since() - SIM_START_NS) /
				  1e9);
	if (p->read)
		part_check_read(w, p);
	else
		part_check_write(w, p);
	if (s->status == STATUS_COMPLETED)
		stats->bytes += p->len;
	sim_pattern_fill(part_local(w, p), p->len, p->buried);
	if (!part_unfenced(p))
		sim_pattern_fill(part_remote(w, p), p->len, p->buried);
}

/* Checks that neither the status nor the bytes of an ended task have
 * changed. */
static void part_verify(struct engine_worker *w, const struct engine_part *p)
{
	size_t i = (size_t)(p - w->parts);
	struct transfer_status s;

	if (getTransferStatus(engine_of(w), w->batch, i, &s) ||
	    s.status != p->status)
		sim_found("%s: the status of task %zu has changed from %d to %d",
			  engine_worker_name(w), i, p->status, s.status);
	if (!part_buried(p, part_local(w, p)))
		sim_found("%s: local memory of task %zu has changed after its end",
			  engine_worker_name(w), i);
	if (!part_unfenced(p) && !part_buried(p, part_remote(w, p)))
		sim_found("%s: memory of the target of task %zu has changed after its end",
			  engine_worker_name(w), i);
}

/* --- unregistered memory --- */

void engine_batch_revoke(struct engine_worker *w)
{
	struct engine_part *p;
	char *at;

	for (p = w->parts; p < w->parts + w->nparts; p++) {
		at = part_remote(w, p);
		if (p->ended)
			continue;
		p->in_place = !p->read &&
			      (sim_pattern_differs(at, p->len, p->seed) ==
				       p->len ||
			       (p->in_place && part_buried(p, at)));
		p->revoked = true;
		sim_pattern_fill(at, p->len, p->buried);
	}
}

void engine_batch_restore(struct engine_worker *w)
{
	struct engine_part *p;

	for (p = w->parts; p < w->parts + w->nparts; p++) {
		if (p->ended || !p->revoked)
			continue;
		if (!part_buried(p, part_remote(w, p)))
			sim_found("%s: memory has changed after it was unregistered",
				  engine_worker_name(w));
		p->revoked = false;
		if (p->read)
			sim_pattern_fill(part_remote(w, p), p->len, p->seed);
	}
}

/* --- a batch --- */

static size_t batch_length(struct engine_worker *w)
{
	switch (sim_rng_below(&w->rng, 4)) {
	case 0:
		return sim_rng_range(&w->rng, ENGINE_TASKS, 64);
	case 1:
	case 2:
		return sim_rng_range(&w->rng, ENGINE_TASKS, 8192);
	default:
		return sim_rng_range(&w->rng, ENGINE_TASKS, ENGINE_MAX);
	}
}

/* Divides the range of the batch into the ranges of its tasks, and writes the
 * pattern of each task to its source. */
static void batch_divide(struct engine_worker *w)
{
	size_t off = 0, left;
	struct engine_part *p;
	uint32_t i;

	w->nparts = (uint32_t)sim_rng_range(&w->rng, 1, ENGINE_TASKS);
	for (i = 0; i < w->nparts; i++) {
		p = &w->parts[i];
		memset(p, 0, sizeof(*p));
		left = w->len - off - (w->nparts - 1 - i);
		p->off = off;
		p->len = i == w->nparts - 1 ? left :
					      sim_rng_range(&w->rng, 1, left);
		p->read = sim_rng_below(&w->rng, 2);
		p->seed = (w->id * ENGINE_TASKS + i) << 20;
		p->buried = p->seed + (UINT64_C(1) << 50);
		off += p->len;
		sim_pattern_fill(p->read ? part_remote(w, p) : part_local(w, p),
				 p->len, p->seed);
	}
}

/* Chooses a chunk of the target's memory, and the range of the batch in the
 * worker's slot of this chunk. Returns false if the batch cannot be submitted,
 * because bytes of an earlier unfenced task may still land in the slot. */
static bool batch_prepare(struct engine_worker *w)
{
	struct engine_slot *slot;

	w->chunk = (uint32_t)sim_rng_below(&w->rng, SIM_CHUNKS);
	slot = &batches.slots[((size_t)w->to * SIM_CHUNKS + w->chunk) *
				      engine_lanes(batches.conf) +
			      engine_lane(w)];
	if (slot->unfenced == w->incarnation)
		return false;
	slot->unfenced = 0;
	w->slot = slot;
	w->len = batch_length(w);
	w->off = sim_rng_below(&w->rng, ENGINE_MAX - w->len + 1);
	sim_tomb_verify(&slot->tomb, "a slot that no batch uses");
	sim_tomb_verify(w->tomb, "local memory of an ended batch");
	sim_tomb_set(w->tomb, w->local, w->len);
	sim_tomb_set(&slot->tomb, slot->at + w->off, w->len);
	batch_divide(w);
	return true;
}

/* Submits the tasks, with one call or with two. Returns false if the engine has
 * refused them. */
static bool batch_submit(struct engine_worker *w)
{
	struct transfer_request r[ENGINE_TASKS];
	uint32_t i, first;
	int ret;

	memset(r, 0, sizeof(r));
	for (i = 0; i < w->nparts; i++) {
		r[i].opcode = w->parts[i].read ? OPCODE_READ : OPCODE_WRITE;
		r[i].source = part_local(w, &w->parts[i]);
		r[i].target_id = w->segment;
		r[i].target_offset = (uintptr_t)part_remote(w, &w->parts[i]);
		r[i].length = w->parts[i].len;
	}
	first = (uint32_t)sim_rng_range(&w->rng, 1, w->nparts);
	w->posted = true;
	ret = submitTransfer(engine_of(w), w->batch, r, first);
	if (!ret && first < w->nparts &&
	    submitTransfer(engine_of(w), w->batch, r + first,
			   w->nparts - first)) {
		SIM_TRACE(w->proc->node->id, "refused", w->id, first);
		w->nparts = first;
	}
	if (ret) {
		SIM_TRACE(w->proc->node->id, "refused", w->id, 0);
		w->nparts = 0;
	}
	if (ret && !engine_excused(w))
		sim_found("%s: refused with %d", engine_worker_name(w), ret);
	return !ret;
}

/* Cancels a task or the batch of a few operations, which are chosen at random,
 * after a short time. */
static void batch_cancel(struct engine_worker *w)
{
	uint32_t one = (uint32_t)sim_rng_below(&w->rng, 2 * w->nparts);
	uint64_t ns = sim_rng_below(&w->rng, 10 * SIM_MS);
	int ret;

	if (!sim_rng_chance(&w->rng, 50000))
		return;
	/* a random number below another one, because most batches end soon */
	sim_sleep_until(sim_now() + sim_rng_below(&w->rng, ns + 1));
	w->early = true;
	SIM_TRACE(w->proc->node->id, "cancel", w->id, one);
	ret = one < w->nparts ? te_cancel_task(engine_of(w), w->batch, one) :
				te_cancel_batch(engine_of(w), w->batch);
	if (ret)
		sim_found("%s: not cancelled: %d", engine_worker_name(w), ret);
}

/* Gives a few batches, which are chosen at random, a short deadline. */
static void batch_deadline(struct engine_worker *w)
{
	int64_t us = (int64_t)sim_rng_range(
		&w->rng, 1, sim_rng_range(&w->rng, 1, 20000));

	if (!sim_rng_chance(&w->rng, 50000))
		return;
	w->early = true;
	SIM_TRACE(w->proc->node->id, "deadline", w->id, (uint64_t)us);
	if (te_batch_timeout(engine_of(w), w->batch, us))
		sim_found("%s: no deadline", engine_worker_name(w));
}

/* Reads the status of all tasks, and handles those that have ended since the
 * last call. Returns true if all have ended. */
static bool batch_poll(struct engine_worker *w)
{
	struct transfer_status s;
	bool all = true;
	uint32_t i;

	for (i = 0; i < w->nparts; i++) {
		if (w->parts[i].ended)
			continue;
		if (getTransferStatus(engine_of(w), w->batch, i, &s))
			sim_found("%s: no status of task %u",
				  engine_worker_name(w), i);
		if (s.status == STATUS_WAITING)
			all = false;
		else
			part_end(w, &w->parts[i], &s);
	}
	return all;
}

/* Waits for the batch, one of its tasks, or any of two batches, for up to 1 s.
 * If `how` is 3, sleeps instead. */
static void batch_wait(struct engine_worker *w, uint32_t how)
{
	const batch_id_t ids[2] = { INVALID_BATCH, w->batch };
	struct transfer_status s;
	size_t at = 0;
	uint32_t i;
	int ret = TE_TIMED_OUT;

	for (i = 0; i < w->nparts - 1 && w->parts[i].ended; i++)
		;
	if (how == 0)
		ret = te_wait_batch(engine_of(w), w->batch, 1000000, &s);
	else if (how == 1)
		ret = te_wait_task(engine_of(w), w->batch, i, 1000000, &s);
	else if (how == 2)
		ret = te_wait_any(engine_of(w), ids, 2, 1000000, &at, NULL);
	else
		sim_sleep_until(sim_now() +
				sim_rng_range(&w->rng, 100 * SIM_US, SIM_SEC));
	if (ret && ret != TE_TIMED_OUT)
		sim_found("%s: a wait returned %d", engine_worker_name(w), ret);
}

/* Waits until all tasks have ended, and reports a defect if that takes longer
 * than SIM_LOAD_LIMIT. The worker waits in steps of up to 1 s and counts them. It
 * does not read the clock, because a host that was stopped for a long time would
 * then exceed the limit at once; its stop counts as one step. */
static void batch_await(struct engine_worker *w)
{
	uint32_t how = (uint32_t)sim_rng_below(&w->rng, 4), i = 0;

	while (!batch_poll(w)) {
		if (freeBatchID(engine_of(w), w->batch) == 0)
			sim_found("%s: freed before its end",
				  engine_worker_name(w));
		if (i++ == SIM_LOAD_LIMIT + ENGINE_TASKS)
			sim_found("%s: not ended after %u s",
				  engine_worker_name(w), SIM_LOAD_LIMIT);
		batch_wait(w, how);
	}
}

/* Checks the status of the batch, which must be the worst one of its tasks. */
static void batch_check_sum(struct engine_worker *w)
{
	struct transfer_status s;
	size_t worst = 0, k;
	uint32_t i;

	for (i = 0; i < w->nparts; i++) {
		for (k = 0; batch_order[k] != w->parts[i].status; k++)
			;
		worst = k > worst ? k : worst;
	}
	if (te_batch_status(engine_of(w), w->batch, &s) ||
	    s.status != batch_order[worst])
		sim_found("%s: the status of the batch is %d, and the worst one of its tasks is %d",
			  engine_worker_name(w), s.status, batch_order[worst]);
}

/* Called when all tasks have ended. Checks them once more, and replaces their
 * patterns by tombstones. */
static void batch_bury(struct engine_worker *w)
{
	bool unfenced = false;
	uint32_t i;

	for (i = 0; i < w->nparts; i++) {
		part_verify(w, &w->parts[i]);
		unfenced |= part_unfenced(&w->parts[i]);
	}
	sim_tomb_verify_guards(w->tomb, engine_worker_name(w));
	if (!unfenced)
		sim_tomb_verify_guards(&w->slot->tomb, engine_worker_name(w));
	sim_tomb_set(w->tomb, w->local, w->len);
	if (unfenced) {
		w->slot->unfenced = sim_cluster_node(w->to)->proc->incarnation;
		w->slot->tomb.len = 0;
	} else {
		sim_tomb_set(&w->slot->tomb, w->slot->at + w->off, w->len);
	}
}

void engine_batch_run(struct engine_worker *w)
{
	if (!batch_prepare(w))
		return;
	w->batch = allocateBatchID(engine_of(w), w->nparts);
	if (w->batch == INVALID_BATCH)
		sim_found("%s: no batch", engine_worker_name(w));
	SIM_TRACE(w->proc->node->id, "submit", w->id, w->to, w->nparts,
		  (uintptr_t)w->slot->at + w->off, w->len);
	batch_deadline(w);
	if (batch_submit(w)) {
		batch_cancel(w);
		batch_await(w);
		batch_check_sum(w);
	}
	batch_bury(w);
	w->posted = false;
	if (freeBatchID(engine_of(w), w->batch))
		sim_found("%s: not freed after its end", engine_worker_name(w));
	if (freeBatchID(engine_of(w), w->batch) != 1)
		sim_found("%s: freed a second time", engine_worker_name(w));
}

void engine_batch_gone(struct engine_worker *w)
{
	w->tomb->len = 0;
	w->slot->tomb.len = 0;
}
