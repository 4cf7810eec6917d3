/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/sim/sim_load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim_check.h"
#include "fabtests/sim/sim_cluster.h"
#include "util/atomic.h"

/* Number of lives of an initiator that have slots of their own. Life n uses the
 * slots of life n % LOAD_LIVES. */
#define LOAD_LIVES	4
/* size of the largest transfer, bytes */
#define LOAD_MAX	(64u << 10)
/* Distance between two slots, bytes: the largest transfer, the guards and
 * padding. It is a multiple of 64. */
#define LOAD_STRIDE	(LOAD_MAX + 2 * 64)
/* Time after the last effect of a fault in which tasks may still fail, ns. */
#define LOAD_CALM_NS	(30 * SIM_SEC)
#define LOAD_NOTIFY_NS	(3 * SIM_SEC)
/* maximum number of iov entries at one side of a transfer */
#define LOAD_IOV	5
/* mean time between two unregistrations of memory by one process, as a multiple
 * of a worker's mean pause */
#define LOAD_REGISTRAR	50

enum load_kind {
	LOAD_WRITE,
	LOAD_READ,
	LOAD_ATOMIC,
	LOAD_NOTE,
};

/* A slot: a range of a target's memory that only one worker of one life of an
 * initiator uses. */
struct load_slot {
	char *at;
	struct sim_tomb tomb;		/* tombstone of the last transfer;
					 * checked while no transfer uses the
					 * slot */
	/* if a transfer in this slot ended UNFENCED: incarnation of its target,
	 * for which the slot is not used again; otherwise 0 */
	uint64_t unfenced;
};

/* A counter in a target's memory that only one worker of one life of an
 * initiator changes, by atomics. */
struct load_counter {
	uint64_t *value;
	uint64_t done, unknown;		/* `done`: number of additions that were
					 * certainly executed; `unknown`: number
					 * of additions that may have been
					 * executed */
};

/* The iov entries of one side of a transfer. Together they cover one contiguous
 * range of memory, but they are in a random order. */
struct load_iov {
	uint32_t n;
	struct {
		char *at;
		size_t len;
	} entry[LOAD_IOV];
};

/* The operation that a worker is doing or has done last. */
struct load_op {
	struct tei_rail_task task;	/* not submitted if the worker divides
					 * the operation into parts */
	struct load_part {
		struct tei_rail_task task;
		bool posted;		/* the task was submitted and has not
					 * ended */
		enum tei_rail_end end;
		struct tei_err err;	/* error record if end is not
					 * COMPLETED */
	} part;				/* the part that was submitted last */
	enum load_kind kind;
	uint64_t id;
	uint32_t to;			/* number of the target host */
	uint32_t chunk;
	uint64_t incarnation;		/* incarnation of the target */
	struct load_slot *slot;
	struct load_counter *counter;
	size_t off;			/* offset in the slot, bytes */
	struct load_iov local, remote;	/* memory of a transfer at both sides */
	uint64_t compare;		/* value with which a compare-and-swap
					 * compares */
	enum tei_atomic_op atomic;
	uint64_t seed;			/* seed of the pattern that the transfer
					 * moves */
	uint64_t start_ns;
	bool posted;			/* the operation was submitted and has
					 * not ended */
	bool early;			/* the worker has cancelled or expired
					 * the task */
	bool revoked;			/* the target range of the operation was
					 * unregistered while the operation was
					 * posted, and is not registered
					 * again */
	bool in_place;			/* the operation is a write, and all its
					 * bytes had landed when the target
					 * range was last unregistered, or when
					 * it was unregistered before that */
	enum tei_rail_end end;
};

struct load_worker {
	struct sim_proc *proc;
	uint32_t index;
	struct sim_rng rng;
	char *local;			/* local memory, LOAD_STRIDE bytes */
	struct sim_tomb *tomb;		/* tombstone of `local`; the worker of
					 * the host's next life uses it too */
	char *old;			/* 8 bytes of local memory for the
					 * result of an atomic, which is the old
					 * value of the counter */
	uint64_t notes;			/* number of notifications sent */
	struct load_op op;
};

/* The notifications that a host has received from one worker of another
 * host. */
struct load_inbox {
	uint64_t incarnation;		/* incarnation of the sender */
	uint64_t last;			/* highest number of a notification
					 * received */
	uint64_t lost;			/* number of the last notification that
					 * has failed; it must not arrive
					 * afterwards */
};

static struct {
	const struct sim_conf *conf;
	struct load_slot *slots;	/* array indexed by target, then by
					 * registered region (chunk), initiator,
					 * life of the initiator, worker */
	struct load_counter *counters;	/* array indexed by target, then by
					 * initiator, life of the initiator,
					 * worker */
	struct load_inbox *inboxes;	/* array indexed by target, then by
					 * sender, worker */
	char **local;			/* indexed by host: local memory of all
					 * its workers */
	uint64_t **counts;		/* indexed by host: memory of its
					 * counters */
	struct sim_tomb *tombs;		/* array indexed by host, then by
					 * worker */
	uint64_t ids;
	struct sim_load_stats stats;
} load;

static const struct sim_load_stats *load_stats(void)
{
	return &load.stats;
}

static size_t load_lanes(const struct sim_conf *conf)
{
	return (size_t)conf->hosts * LOAD_LIVES * conf->workers;
}

/* Returns the index of a worker of one life among all those for which a target
 * has slots. */
static size_t load_lane(const struct load_worker *w)
{
	uint32_t life = sim_host_life(w->proc->node->host) % LOAD_LIVES;

	return ((size_t)w->proc->node->id * LOAD_LIVES + life) *
		       load.conf->workers + w->index;
}

static size_t load_local_size(void)
{
	return load.conf->workers * (size_t)LOAD_STRIDE;
}

static void load_size(struct sim_conf *conf)
{
	conf->chunk = load_lanes(conf) * LOAD_STRIDE;
}

/* --- checks of one operation --- */

static const char *op_name(const struct load_worker *w)
{
	static const char *const kinds[] = { "write", "read", "atomic", "note" };
	static char text[96];

	snprintf(text, sizeof(text),
		 "%s %" PRIu64 " of host %u to host %u (%" PRIu64 " bytes)",
		 kinds[w->op.kind], w->op.id, w->proc->node->id, w->op.to,
		 w->op.task.length);
	return text;
}

/* Returns true if the operation may fail without a defect: the worker has ended
 * it early, the target process or the target range is not available, or the
 * last fault is too recent. */
static bool op_excused(const struct load_worker *w)
{
	const struct load_op *op = &w->op;
	const struct sim_node *to = sim_cluster_node(op->to);

	return op->early || w->proc->leaving || !sim_cluster_up(to) ||
	       to->proc->incarnation != op->incarnation ||
	       (op->kind != LOAD_ATOMIC &&
		(!to->registered[op->chunk] ||
		 to->since_ns[op->chunk] + SIM_SEC > op->start_ns)) ||
	       sim_cluster_calm_since() + LOAD_CALM_NS > op->start_ns;
}

/* Divides the range into `n` entries of random lengths, in a random order. */
static void iov_divide(struct load_iov *iov, struct sim_rng *rng, char *at,
		       size_t len, uint32_t n)
{
	size_t left = len, part;
	uint32_t i, j;

	iov->n = n;
	for (i = 0; i < n; i++) {
		part = i == n - 1 ? left :
				    sim_rng_range(rng, 1, left - (n - 1 - i));
		j = (uint32_t)sim_rng_below(rng, i + 1);
		iov->entry[i] = iov->entry[j];
		iov->entry[j].at = at + (len - left);
		iov->entry[j].len = part;
		left -= part;
	}
}

/* Fills the memory of the entries with the pattern of the transfer. */
static void iov_fill(const struct load_iov *iov, uint64_t seed)
{
	static char all[LOAD_MAX];
	size_t off = 0;
	uint32_t i;

	for (i = 0; i < iov->n; i++)
		off += iov->entry[i].len;
	sim_pattern_fill(all, off, seed);
	for (i = 0, off = 0; i < iov->n; off += iov->entry[i++].len)
		memcpy(iov->entry[i].at, all + off, iov->entry[i].len);
}

/* Compares the memory of the entries with the pattern of the transfer. Returns
 * the offset of the first byte that differs, or the length of the transfer if
 * none differs. */
static size_t iov_differs(const struct load_iov *iov, uint64_t seed)
{
	static char all[LOAD_MAX];
	size_t off = 0;
	uint32_t i;

	if (iov->n == 1)
		return sim_pattern_differs(iov->entry[0].at, iov->entry[0].len,
					   seed);
	for (i = 0; i < iov->n; off += iov->entry[i++].len)
		memcpy(all + off, iov->entry[i].at, iov->entry[i].len);
	return sim_pattern_differs(all, off, seed);
}

/* Returns true if all bytes of the write had landed when its target range was
 * unregistered, and none has landed since the range was registered again. */
static bool op_landed_before(const struct load_op *op)
{
	return op->in_place && sim_tomb_intact(&op->slot->tomb);
}

static void op_check_write(struct load_worker *w)
{
	struct load_op *op = &w->op;
	size_t len = op->task.length, bad;

	if (op->revoked) {
		sim_tomb_verify(&op->slot->tomb, op_name(w));
		if (op->end == TEI_RAIL_END_COMPLETED && !op->in_place)
			sim_found("%s: COMPLETED after its memory was unregistered",
				  op_name(w));
		return;
	}
	sim_tomb_verify_guards(&op->slot->tomb, op_name(w));
	if (op->end != TEI_RAIL_END_COMPLETED)
		return;
	bad = iov_differs(&op->remote, op->seed);
	if (bad != len && !op_landed_before(op))
		sim_found("%s: COMPLETED, but byte %zu is not in place",
			  op_name(w), bad);
}

static void op_check_read(struct load_worker *w)
{
	struct load_op *op = &w->op;
	size_t len = op->task.length, bad;

	sim_tomb_verify_guards(w->tomb, op_name(w));
	if (!op->revoked && iov_differs(&op->remote, op->seed) != len)
		sim_found("%s: the source has changed", op_name(w));
	if (op->end != TEI_RAIL_END_COMPLETED)
		return;
	bad = iov_differs(&op->local, op->seed);
	if (bad != len)
		sim_found("%s: COMPLETED, but byte %zu is not in place",
			  op_name(w), bad);
}

/* Returns the old value of the counter that the atomic has written to local
 * memory. Fails the simulation if an atomic of 4 bytes has written more than 4
 * bytes. */
static uint64_t op_old(const struct load_worker *w)
{
	uint64_t old, rest = UINT64_MAX;
	uint32_t half;

	memcpy(&old, w->old, sizeof(old));
	if (w->op.task.length == sizeof(old))
		return old;
	memcpy(&half, w->old, sizeof(half));
	if (memcmp(w->old + sizeof(half), &rest, sizeof(half)))
		sim_found("%s: more than %zu bytes of the old value were written",
			  op_name(w), sizeof(half));
	return half;
}

/* Checks the result of an atomic. Each atomic that takes effect increments the
 * counter by 1. A compare-and-swap takes effect only if the counter has the
 * value op->compare. */
static void op_check_atomic(struct load_worker *w, bool unknown)
{
	struct load_counter *c = w->op.counter;
	uint64_t old;

	if (w->op.end == TEI_RAIL_END_COMPLETED) {
		old = op_old(w);
		if (old < c->done || old > c->done + c->unknown)
			sim_found("%s: old value %" PRIu64 " after %" PRIu64 " additions and %" PRIu64 " unknown ones",
				  op_name(w), old, c->done, c->unknown);
		/* The old value shows how many of the unknown additions were
		 * executed before this atomic; the others never will be. */
		c->unknown -= old - c->done;
		c->done = old;
		if (w->op.atomic != TEI_ATOMIC_CAS ||
		    old == w->op.compare)
			c->done++;
		load.stats.atomics++;
	} else if (unknown || w->op.end == TEI_RAIL_END_UNFENCED) {
		c->unknown++;
	}
	if (*c->value < c->done || *c->value > c->done + c->unknown)
		sim_found("%s: the counter is %" PRIu64 " after %" PRIu64 " additions and %" PRIu64 " unknown ones",
			  op_name(w), *c->value, c->done, c->unknown);
}

/* Called when the operation has ended: writes tombstones to its local memory
 * and to its slot. If it ended UNFENCED, the slot gets no tombstone. */
static void op_bury(struct load_worker *w)
{
	struct load_op *op = &w->op;

	if (op->kind == LOAD_ATOMIC)
		return;
	sim_tomb_set(w->tomb, w->local, op->task.length);
	if (op->end == TEI_RAIL_END_UNFENCED) {
		op->slot->unfenced = op->incarnation;
		op->slot->tomb.len = 0;
	} else if (!op->revoked) {
		sim_tomb_set(&op->slot->tomb, op->slot->at + op->off,
			     op->task.length);
	}
}

void sim_load_done(struct tei_rail_task *task, enum tei_rail_end end,
		   const struct tei_err *err)
{
	struct load_worker *w = tei_container_of(task, struct load_worker,
						 op.task);
	struct load_op *op = &w->op;
	uint64_t took = sim_now() - op->start_ns;

	if (!op->posted)
		sim_found("%s: ended a second time", op_name(w));
	op->posted = false;
	op->end = end;
	SIM_TRACE(w->proc->node->id, "ended", op->id, end,
		  err ? (uint64_t)-err->code : 0);
	load.stats.ops++;
	load.stats.ends[end]++;
	if (load.stats.slowest_ns < took)
		load.stats.slowest_ns = took;
	if (end != TEI_RAIL_END_COMPLETED && !op_excused(w))
		sim_found("%s: ended with %u (%s) although nothing was disturbed since %.3f s",
			  op_name(w), end, err ? err->text : "",
			  (double)(sim_cluster_calm_since() - SIM_START_NS) /
				  1e9);
	switch (op->kind) {
	case LOAD_WRITE:
		op_check_write(w);
		break;
	case LOAD_READ:
		op_check_read(w);
		break;
	default:
		op_check_atomic(w, err && err->unknown);
		break;
	}
	if (end == TEI_RAIL_END_COMPLETED)
		load.stats.bytes += op->task.length;
	op_bury(w);
	sim_wake(op, true);
}

/* --- transfers --- */

static size_t worker_length(struct load_worker *w)
{
	switch (sim_rng_below(&w->rng, 4)) {
	case 0:
		return sim_rng_range(&w->rng, 1, 64);
	case 1:
	case 2:
		return sim_rng_range(&w->rng, 1, 8192);
	default:
		return sim_rng_range(&w->rng, 1, LOAD_MAX);
	}
}

/* Chooses a region of the target and returns the worker's slot in it. Returns
 * NULL if late bytes of an unfenced transfer may still land in the slot. */
static struct load_slot *worker_slot(struct load_worker *w)
{
	struct load_op *op = &w->op;
	struct load_slot *slot;

	op->chunk = (uint32_t)sim_rng_below(&w->rng, SIM_CHUNKS);
	slot = &load.slots[((size_t)op->to * SIM_CHUNKS + op->chunk) *
				   load_lanes(load.conf) + load_lane(w)];
	if (slot->unfenced == op->incarnation)
		return NULL;
	slot->unfenced = 0;
	return slot;
}

/* Divides the memory of the transfer at both sides into iov entries, and gives
 * the task an extension with these entries. */
static void worker_scatter(struct load_worker *w)
{
	struct load_op *op = &w->op;
	struct tei_rail_task *task = &op->task;
	uint32_t most = task->length < LOAD_IOV ? (uint32_t)task->length :
						  LOAD_IOV;
	uint32_t i, n, m;
	struct tei_rail_task_ext *ext;

	n = (uint32_t)sim_rng_range(&w->rng, 1, most);
	m = (uint32_t)sim_rng_range(&w->rng, 1, most);
	ext = tei_rail_task_ext_new(n, m);
	if (!ext)
		sim_fail("no memory for iov entries");
	iov_divide(&op->local, &w->rng, w->local, task->length, n);
	iov_divide(&op->remote, &w->rng, op->slot->at + op->off, task->length,
		   m);
	for (i = 0; i < n; i++) {
		ext->piece[i].addr = (uintptr_t)op->local.entry[i].at;
		ext->piece[i].len = op->local.entry[i].len;
	}
	for (i = 0; i < m; i++) {
		ext->piece[n + i].addr = (uintptr_t)op->remote.entry[i].at;
		ext->piece[n + i].len = op->remote.entry[i].len;
	}
	tei_rail_task_ext_lay(ext->piece, n);
	tei_rail_task_ext_lay(ext->piece + n, m);
	task->ext = ext;
}

/* Prepares a write or a read. Returns false if its slot must not be used. */
static bool worker_transfer(struct load_worker *w)
{
	struct load_op *op = &w->op;
	struct tei_rail_task *task = &op->task;
	size_t len = worker_length(w);
	char *at;

	op->slot = worker_slot(w);
	if (!op->slot)
		return false;
	op->off = sim_rng_below(&w->rng, LOAD_MAX - len + 1);
	at = op->slot->at + op->off;
	sim_tomb_verify(&op->slot->tomb, "a slot that no transfer uses");
	sim_tomb_verify(w->tomb, "local memory of an ended transfer");
	sim_tomb_set(w->tomb, w->local, len);
	sim_tomb_set(&op->slot->tomb, at, len);
	task->length = len;
	task->read = op->kind == LOAD_READ;
	if (sim_rng_chance(&w->rng, 200000)) {
		worker_scatter(w);
	} else {
		iov_divide(&op->local, &w->rng, w->local, len, 1);
		iov_divide(&op->remote, &w->rng, at, len, 1);
	}
	task->local = op->local.entry[0].at;
	task->remote = (uintptr_t)op->remote.entry[0].at;
	if (sim_rng_chance(&w->rng, 100000))
		task->rail = (uint8_t)sim_rng_range(&w->rng, 1,
						    load.conf->rails);
	iov_fill(task->read ? &op->remote : &op->local, op->seed);
	return true;
}

/* Prepares an atomic that increments a counter. Returns true. */
static bool worker_atomic(struct load_worker *w)
{
	static const enum tei_atomic_op ops[] = {
		TEI_ATOMIC_ADD, TEI_ATOMIC_CAS, TEI_ATOMIC_SWAP,
	};
	struct load_op *op = &w->op;
	struct load_counter *c =
		&load.counters[(size_t)op->to * load_lanes(load.conf) +
			       load_lane(w)];
	struct tei_rail_task_ext *ext = tei_rail_task_ext_new(0, 0);

	if (!ext)
		sim_fail("no memory for an atomic");
	op->counter = c;
	op->atomic = ops[sim_rng_below(&w->rng, 3)];
	/* A swap writes a fixed value, so it would undo unknown additions that
	 * are executed before it. */
	if (op->atomic == TEI_ATOMIC_SWAP && c->unknown)
		op->atomic = TEI_ATOMIC_ADD;
	ext->atomic = op->atomic;
	/* Half of the compare-and-swaps expect a wrong value and must have no
	 * effect. */
	op->compare = c->done;
	if (op->atomic == TEI_ATOMIC_CAS)
		op->compare += sim_rng_below(&w->rng, 2);
	ext->compare = op->compare;
	ext->operand = op->atomic == TEI_ATOMIC_ADD ? 1 : op->compare + 1;
	memset(w->old, 0xff, sizeof(uint64_t));
	op->task.ext = ext;
	op->task.local = w->old;
	op->task.remote = (uintptr_t)c->value;
	/* An atomic of 4 bytes works on the lower half of the counter, because
	 * the counters are little-endian and stay below 2^32. */
	op->task.length = sim_rng_below(&w->rng, 4) ? 8 : 4;
	return true;
}

/* Waits until the task of the operation has ended, which sets *posted to false.
 * Before that, cancels or expires a few tasks, which are chosen at random. */
static void worker_wait(struct load_worker *w, struct tei_rail_task *task,
			const bool *posted)
{
	struct load_op *op = &w->op;
	uint64_t early = sim_now() + sim_rng_below(&w->rng, 20 * SIM_MS);
	bool cancel = sim_rng_chance(&w->rng, 30000);
	bool expire = sim_rng_chance(&w->rng, 30000);
	uint32_t i;

	if (cancel || expire) {
		sim_wait(op, early);
		if (*posted) {
			op->early = true;
			SIM_TRACE(w->proc->node->id,
				  cancel ? "cancel" : "expire", op->id);
			if (cancel)
				tei_rail_cancel(w->proc->dp, &task, 1);
			else
				tei_rail_expire(w->proc->dp, &task, 1);
		}
	}
	/* The worker sleeps in steps of 1 s and counts them: if the host is
	 * stopped for a long time, only one step passes. */
	for (i = 0; *posted && i < SIM_LOAD_LIMIT; i++)
		sim_wait(op, sim_now() + SIM_SEC);
	if (*posted)
		sim_found("%s: not ended after %u s", op_name(w),
			  SIM_LOAD_LIMIT);
}

/* Handles the end of a part (tei_rail_task.done). */
static void part_done(struct tei_rail_task *task, enum tei_rail_end end,
		      const struct tei_err *err)
{
	struct load_part *part = tei_container_of(task, struct load_part, task);
	struct load_op *op = tei_container_of(part, struct load_op, part);

	part->posted = false;
	part->end = end;
	if (err)
		part->err = *err;
	sim_wake(op, true);
}

/* Moves len bytes of the operation from offset off on. Returns false if the part
 * was refused. */
static bool worker_part(struct load_worker *w, struct tei_rail_group *group,
			uint64_t off, uint64_t len)
{
	struct load_part *part = &w->op.part;
	struct tei_rail_task *task = &part->task;

	memset(part, 0, sizeof(*part));
	*task = w->op.task;
	task->whole = task->remote;
	task->whole_length = task->length;
	task->local += off;
	task->remote += off;
	task->length = len;
	task->done = part_done;
	part->posted = true;
	SIM_TRACE(w->proc->node->id, "part", w->op.id, off, len);
	if (tei_rail_submit_group(w->proc->dp, group, &task, 1))
		return false;
	worker_wait(w, task, &part->posted);
	return true;
}

/* Moves the data of the operation in parts, one after the other, as an engine
 * does with bounce buffers. After a part that is not COMPLETED, no further part
 * begins. Waits before some of the parts, so that the target may unregister its
 * memory and register it again meanwhile. */
static void worker_divide(struct load_worker *w)
{
	struct load_op *op = &w->op;
	struct load_part *part = &op->part;
	struct tei_rail_task *all = &op->task;
	struct tei_rail_group *group = tei_rail_group_new(all->peer);
	uint64_t off = 0, len;

	if (!group)
		sim_fail("no memory for a group of tasks");
	do {
		len = sim_rng_range(&w->rng, 1, all->length - off);
		if (!worker_part(w, group, off, len)) {
			part->end = TEI_RAIL_END_FAILED;
			snprintf(part->err.text, sizeof(part->err.text),
				 "refused");
		}
		off += len;
		if (sim_rng_chance(&w->rng, 30000))
			sim_wait(op, sim_now() +
					     sim_rng_below(&w->rng, 3 * SIM_SEC));
	} while (off < all->length && part->end == TEI_RAIL_END_COMPLETED);
	tei_rail_group_free(group);
	sim_load_done(all, part->end,
		      part->end == TEI_RAIL_END_COMPLETED ? NULL : &part->err);
}

static void worker_task(struct load_worker *w)
{
	struct load_op *op = &w->op;
	struct tei_rail_task *task = &op->task;
	bool ready;

	op->kind = sim_rng_chance(&w->rng, 200000) ? LOAD_ATOMIC :
		   sim_rng_below(&w->rng, 2) ? LOAD_WRITE : LOAD_READ;
	ready = op->kind == LOAD_ATOMIC ? worker_atomic(w) : worker_transfer(w);
	if (!ready)
		return;
	op->posted = true;
	SIM_TRACE(w->proc->node->id, "submit", op->id, op->kind, op->to,
		  op->task.remote, op->task.length);
	if (op->kind != LOAD_ATOMIC && !task->ext &&
	    sim_rng_chance(&w->rng, 100000)) {
		worker_divide(w);
		return;
	}
	if (tei_rail_submit(w->proc->dp, &task, 1)) {
		SIM_TRACE(w->proc->node->id, "refused", op->id);
		op->posted = false;
		op->end = TEI_RAIL_END_FAILED;
		free(op->task.ext);
		op_bury(w);
		return;
	}
	worker_wait(w, task, &op->posted);
}

/* --- notifications --- */

static struct load_inbox *load_inbox(uint32_t to, uint32_t from,
				     uint32_t worker)
{
	return &load.inboxes[((size_t)to * load.conf->hosts + from) *
				     load.conf->workers + worker];
}

static void load_notified(struct sim_proc *proc, const char *name,
			  const char *msg)
{
	uint64_t sender, receiver, number;
	struct load_inbox *inbox;
	unsigned int from, worker;

	if (strcmp(name, "sim") ||
	    sscanf(msg, "%u %u %" SCNu64 " %" SCNu64 " %" SCNu64, &from, &worker,
		   &sender, &receiver, &number) != 5)
		sim_found("a notification was damaged: %s", msg);
	SIM_TRACE(proc->node->id, "notified", from, worker, sender, number);
	if (receiver != proc->incarnation)
		sim_found("a notification for incarnation %" PRIu64 " reached %" PRIu64,
			  receiver, proc->incarnation);
	inbox = load_inbox(proc->node->id, from, worker);
	if (inbox->incarnation != sender) {
		memset(inbox, 0, sizeof(*inbox));
		inbox->incarnation = sender;
	}
	if (number <= inbox->last)
		sim_found("notification %" PRIu64 " of host %u came after %" PRIu64,
			  number, from, inbox->last);
	if (number == inbox->lost)
		sim_found("notification %" PRIu64 " of host %u was delivered after it had failed",
			  number, from);
	inbox->last = number;
}

static void worker_note(struct load_worker *w, struct tei_rail_peer *peer)
{
	struct sim_proc *proc = w->proc;
	struct load_inbox *inbox;
	struct tei_rail_note note = { .name = "sim" };
	struct tei_err err;
	char msg[128];
	int ret;

	w->op.kind = LOAD_NOTE;
	snprintf(msg, sizeof(msg), "%u %u %" PRIu64 " %" PRIu64 " %" PRIu64,
		 proc->node->id, w->index, proc->incarnation, w->op.incarnation,
		 ++w->notes);
	note.msg = msg;
	note.msg_len = strlen(msg);
	SIM_TRACE(proc->node->id, "notify", w->op.to, w->notes);
	ret = tei_rail_notify(peer, &note, LOAD_NOTIFY_NS, &err);
	SIM_TRACE(proc->node->id, "answer", w->op.to, w->notes,
		  (uint64_t)-ret);
	load.stats.ops++;
	inbox = load_inbox(w->op.to, proc->node->id, w->index);
	if (!ret) {
		load.stats.notes++;
		if (inbox->incarnation != proc->incarnation ||
		    inbox->last != w->notes)
			sim_found("%s: acknowledged, but not delivered",
				  op_name(w));
		return;
	}
	if (!err.unknown) {
		if (inbox->incarnation == proc->incarnation &&
		    inbox->last == w->notes)
			sim_found("%s: failed, but delivered", op_name(w));
		if (inbox->incarnation != proc->incarnation) {
			memset(inbox, 0, sizeof(*inbox));
			inbox->incarnation = proc->incarnation;
		}
		inbox->lost = w->notes;
	}
	if (!op_excused(w))
		sim_found("%s: ended with %d (%s) although nothing was disturbed",
			  op_name(w), ret, err.text);
}

/* --- workers --- */

/* Does one random operation with a random target. */
static void worker_turn(struct load_worker *w)
{
	struct load_op *op = &w->op;
	struct tei_rail_peer *peer;

	memset(op, 0, sizeof(*op));
	op->id = ++load.ids;
	op->seed = op->id << 20;
	op->start_ns = sim_now();
	op->to = (uint32_t)sim_rng_below(&w->rng, load.conf->hosts - 1);
	op->to += op->to >= w->proc->node->id;
	peer = sim_cluster_peer(w->proc, op->to);
	if (!peer)
		return;
	op->task.peer = peer;
	op->incarnation = tei_rail_peer_incarnation(peer);
	/* Hold the peer object during the operation, because another worker may
	 * release the process's reference to it. */
	tei_rail_peer_hold(peer);
	if (sim_rng_chance(&w->rng, 100000))
		worker_note(w, peer);
	else
		worker_task(w);
	tei_rail_peer_put(peer);
}

/* Waits for a random time with the given mean. Returns false if the process is
 * leaving or the workload is over. */
static bool load_pause(struct sim_proc *proc, struct sim_rng *rng, uint64_t mean)
{
	if (!proc->leaving)
		sim_wait(proc, sim_now() + sim_rng_below(rng, 2 * mean));
	return !proc->leaving && sim_now() < load.conf->until_ns;
}

static void load_finished(struct sim_proc *proc)
{
	proc->busy--;
	sim_wake(&proc->busy, true);
}

static void *worker_main(void *arg)
{
	struct load_worker *w = arg;

	while (load_pause(w->proc, &w->rng, load.conf->pause_ns))
		worker_turn(w);
	load_finished(w->proc);
	return NULL;
}

/* Calls fn for each posted operation of any process that accesses the chunk of
 * the node. */
static void load_each(struct sim_node *node, uint32_t chunk,
		      void (*fn)(struct load_worker *))
{
	struct load_worker *w;
	struct sim_proc *proc;
	uint32_t i, j;

	for (i = 0; i < load.conf->hosts; i++) {
		proc = sim_cluster_node(i)->proc;
		if (!proc || !proc->dp || !proc->work)
			continue;
		for (j = 0; j < load.conf->workers; j++) {
			w = (struct load_worker *)proc->work + j;
			if (w->op.posted && w->op.slot &&
			    w->op.to == node->id && w->op.chunk == chunk)
				fn(w);
		}
	}
}

/* Called when the target range of the operation was unregistered. Writes a
 * tombstone there, because from now on the bytes must not change. */
static void op_revoke(struct load_worker *w)
{
	struct load_op *op = &w->op;
	char *at = op->slot->at + op->off;
	size_t len = op->task.length;

	op->revoked = true;
	op->in_place = op->kind == LOAD_WRITE &&
		       (iov_differs(&op->remote, op->seed) == len ||
			op_landed_before(op));
	sim_tomb_set(&op->slot->tomb, at, len);
}

/* Called before the target range of the operation is registered again, because
 * the operation may access it afterwards. Checks that no byte there has changed
 * since op_revoke. */
static void op_restore(struct load_worker *w)
{
	struct load_op *op = &w->op;

	if (!op->revoked)
		return;
	sim_tomb_verify(&op->slot->tomb, op_name(w));
	op->revoked = false;
	if (op->kind == LOAD_READ)
		iov_fill(&op->remote, op->seed);
}

static bool registrar_revoke(struct sim_proc *proc, uint32_t chunk)
{
	struct sim_node *node = proc->node;
	struct tei_err err;
	int ret;

	node->registered[chunk] = false;
	node->since_ns[chunk] = sim_now();
	SIM_TRACE(node->id, "unregister", chunk);
	ret = tei_rail_mr_dereg(proc->dp, node->chunk[chunk], SIM_SEC, &err);
	SIM_TRACE(node->id, "unregistered", chunk, (uint64_t)-ret);
	if (ret) {
		node->registered[chunk] = true;
		node->since_ns[chunk] = sim_now();
		return false;
	}
	load.stats.revoked++;
	load_each(node, chunk, op_revoke);
	return true;
}

static void registrar_restore(struct sim_proc *proc, uint32_t chunk)
{
	struct sim_node *node = proc->node;
	struct tei_rail_mr *mr;
	struct tei_err err;

	load_each(node, chunk, op_restore);
	if (tei_rail_mr_reg(proc->dp, node->chunk[chunk], load.conf->chunk, "*",
			    TEI_RAIL_REMOTE, &err, &mr)) {
		SIM_TRACE(node->id, "unregisterable", chunk);
		return;
	}
	node->registered[chunk] = true;
	node->since_ns[chunk] = sim_now();
	SIM_TRACE(node->id, "register", chunk);
}

/* Runs in a fiber of the process. Unregisters a random chunk from time to time,
 * and registers it again after a while. */
static void *registrar_main(void *arg)
{
	struct sim_proc *proc = arg;
	struct sim_rng rng;
	uint32_t chunk;

	sim_rng_init(&rng, "registrar", proc->incarnation);
	while (load_pause(proc, &rng, LOAD_REGISTRAR * load.conf->pause_ns)) {
		chunk = (uint32_t)sim_rng_below(&rng, SIM_CHUNKS);
		if (!proc->node->registered[chunk])
			registrar_restore(proc, chunk);
		else if (registrar_revoke(proc, chunk)) {
			load_pause(proc, &rng, sim_rng_below(&rng, 2) ?
						SIM_SEC :
						SIM_MS);
			if (!proc->leaving)
				registrar_restore(proc, chunk);
		}
	}
	load_finished(proc);
	return NULL;
}

static void load_register(struct sim_proc *proc, void *at, size_t len,
			  uint32_t access)
{
	struct tei_rail_mr *mr;
	struct tei_err err;

	if (tei_rail_mr_reg(proc->dp, at, len, "*", access, &err, &mr))
		sim_fail("memory of the workload: %s", err.text);
}

static void load_start(struct sim_proc *proc)
{
	uint32_t i, id = proc->node->id, n = load.conf->workers;
	struct load_worker *w = calloc(n, sizeof(*w));

	if (!w)
		sim_fail("no memory for workers");
	load_register(proc, load.local[id], load_local_size(), 0);
	load_register(proc, load.counts[id], load_lanes(load.conf) * 8,
		      TEI_RAIL_REMOTE);
	proc->work = w;
	for (i = 0; i < n; i++) {
		w[i].proc = proc;
		w[i].index = i;
		w[i].local = load.local[id] + (size_t)i * LOAD_STRIDE + 64;
		w[i].tomb = &load.tombs[(size_t)id * n + i];
		w[i].old = w[i].local + LOAD_MAX + 48;
		sim_rng_init(&w[i].rng, "worker",
			     (uint64_t)sim_host_life(proc->node->host) << 32 |
				     id << 16 | i);
		proc->busy++;
		sim_fiber_detach(sim_fiber_start(proc->node->host, "worker",
						 worker_main, &w[i]));
	}
	proc->busy++;
	sim_fiber_detach(sim_fiber_start(proc->node->host, "registrar",
					 registrar_main, proc));
}

/* Called when the process was killed or has left. Removes the tombstones of its
 * unfinished transfers, because their bytes may still land. */
static void load_gone(struct sim_proc *proc)
{
	struct load_worker *w = proc->work;
	uint32_t i;

	for (i = 0; w && i < load.conf->workers; i++) {
		if (!w[i].op.posted)
			continue;
		w[i].op.posted = false;
		w[i].tomb->len = 0;
		if (w[i].op.slot)
			w[i].op.slot->tomb.len = 0;
		else
			w[i].op.counter->unknown++;
	}
}

static const struct sim_work_ops load_ops = {
	.start = load_start,
	.gone = load_gone,
	.notified = load_notified,
};

/* --- begin and end --- */

static void load_begin(void)
{
	const struct sim_conf *conf = sim_cluster_conf();
	size_t lanes = load_lanes(conf), i, j, k;
	struct load_slot *slot;

	memset(&load, 0, sizeof(load));
	load.conf = conf;
	load.slots = calloc(conf->hosts * SIM_CHUNKS * lanes,
			    sizeof(*load.slots));
	load.counters = calloc(conf->hosts * lanes, sizeof(*load.counters));
	load.inboxes = calloc((size_t)conf->hosts * conf->hosts * conf->workers,
			      sizeof(*load.inboxes));
	load.local = calloc(conf->hosts, sizeof(*load.local));
	load.counts = calloc(conf->hosts, sizeof(*load.counts));
	load.tombs = calloc((size_t)conf->hosts * conf->workers,
			    sizeof(*load.tombs));
	if (!load.slots || !load.counters || !load.inboxes || !load.local ||
	    !load.counts || !load.tombs)
		sim_fail("no memory for the workload");
	for (i = 0; i < conf->hosts; i++) {
		load.local[i] = sim_arena(load_local_size(), 4096);
		load.counts[i] = sim_arena(lanes * 8, 4096);
		for (j = 0; j < lanes; j++)
			load.counters[i * lanes + j].value =
				load.counts[i] + j;
		for (k = 0; k < SIM_CHUNKS; k++)
			for (j = 0; j < lanes; j++) {
				slot = &load.slots[(i * SIM_CHUNKS + k) *
							   lanes + j];
				slot->at = sim_cluster_node((uint32_t)i)
						   ->chunk[k] +
					   j * LOAD_STRIDE + 64;
			}
	}
}

static void load_verify(void)
{
	size_t lanes = load_lanes(load.conf), i;
	const struct load_counter *c;

	for (i = 0; i < load.conf->hosts * SIM_CHUNKS * lanes; i++)
		sim_tomb_verify(&load.slots[i].tomb,
				"a slot that no transfer uses");
	for (i = 0; i < (size_t)load.conf->hosts * load.conf->workers; i++)
		sim_tomb_verify(&load.tombs[i],
				"local memory of an ended transfer");
	for (i = 0; i < load.conf->hosts * lanes; i++) {
		c = &load.counters[i];
		if (*c->value < c->done || *c->value > c->done + c->unknown)
			sim_found("a counter is %" PRIu64 " after %" PRIu64 " additions and %" PRIu64 " unknown ones",
				  *c->value, c->done, c->unknown);
	}
}

static void load_end(void)
{
	free(load.slots);
	free(load.counters);
	free(load.inboxes);
	free(load.local);
	free(load.counts);
	free(load.tombs);
}

const struct sim_workload sim_load_workload = {
	.name = "rail",
	.ops = &load_ops,
	.size = load_size,
	.begin = load_begin,
	.verify = load_verify,
	.end = load_end,
	.stats = load_stats,
};
