/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GPU memory of this process and memory of another one, where no rail takes a
 * GPU's: by way of host memory, piece by piece, each in a slot. A slot's copy
 * to or from the GPU and its transfer by rail come one after the other; those
 * of several slots go on at the same time.
 *
 * A task (struct engine_stage) waits in the queue while it has pieces to begin,
 * and ends, once, when it has none and no slot works for it. Until then its
 * batch is not freed, so a slot's stage is there. A slot is given to another
 * piece only when nobody looks at its tasks any more (held).
 */
#include "api/engine_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STAGE_SLOTS	16u
#define STAGE_PIECE	(1u << 20)
#define STAGE_BYTES	((size_t)STAGE_SLOTS * STAGE_PIECE)
#define STAGE_CLOSED	"the engine is being destroyed"

enum stage_by_rail {
	STAGE_NOT_BY_RAIL,
	STAGE_SUBMITTING,
	STAGE_BY_RAIL,
	STAGE_ENDED_BY_RAIL,
};

/* A task: made when it is prepared, freed with its batch. */
struct engine_stage {
	/* fixed */
	struct engine_task *task;
	struct tei_rail_peer *peer;	/* a reference until it ends */
	uint64_t gpu, remote, length;
	bool read;

	/* staging lock */
	struct tei_list node;		/* in the queue, or alone */
	uint64_t next;			/* bytes given to slots */
	uint32_t running;		/* slots */
	bool queued, ended;
	int status;			/* of the first failure, or 0 */
	struct tei_err err;

	uint64_t moved;			/* atomic */
};

struct stage_slot {
	struct engine_staging *staging;	/* fixed */
	char *mem;			/* fixed; STAGE_PIECE bytes */

	/* of whoever does the present step */
	struct tei_gpu_op copy;
	struct tei_rail_task rail;
	uint64_t at, length;		/* of the piece in the task */

	/* staging lock */
	struct engine_stage *stage;	/* NULL: idle */
	enum stage_by_rail by_rail;
	uint32_t held;			/* who looks at rail or copy */
	bool lost;			/* the GPU may touch it: never used again */
};

/* One per engine with GPU memory; freed with the engine. */
struct engine_staging {
	struct engine *engine;
	char *mem;
	struct tei_mutex lock;		/* leaf; guards what follows */
	pthread_cond_t steps_over;
	struct tei_list queue;		/* engine_stage.node */
	uint32_t steps;			/* being begun just now */
	uint32_t lost;			/* slots */
	bool pumping, again;		/* see stage_pump */
	bool closing;
	struct stage_slot slot[STAGE_SLOTS];
};

static void stage_pump(struct engine_staging *s);

/* --- ends ---------------------------------------------------------------- */

static void stage_err(struct tei_err *err, int code, const char *text)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->when_ns = tei_now_ns();
	snprintf(err->provider, sizeof(err->provider), "cuda");
	snprintf(err->text, sizeof(err->text), "%s", text);
}

/* Begins no more pieces. */
static void stage_fail(struct engine_staging *s, struct engine_stage *stage,
		       int status, const struct tei_err *err)
	TEI_REQUIRES(s->lock)
{
	(void)s;
	/* what may still land is what a caller must know first */
	if (!stage->status || (status == STATUS_TIMEOUT &&
			       stage->status != STATUS_TIMEOUT)) {
		stage->status = status;
		stage->err = *err;
	}
	tei_list_del(&stage->node);
	stage->queued = false;
}

/* True once, when nothing of it is under way: stage_end is to be called. */
static bool stage_over(struct engine_staging *s, struct engine_stage *stage)
	TEI_REQUIRES(s->lock)
{
	(void)s;
	if (stage->running || stage->queued || stage->ended)
		return false;
	stage->ended = true;
	return true;
}

static void stage_end(struct engine_stage *stage)
{
	tei_rail_peer_put(stage->peer);
	engine_task_end(stage->task, stage->status ? stage->status :
						     STATUS_COMPLETED,
			stage->status ? &stage->err : NULL);
}

/*
 * A piece has timed out: its peer does not answer. Tasks for it that wait would
 * each wait as long in turn. One that is over, or NULL.
 */
static struct engine_stage *stage_purge(struct engine_staging *s,
					const struct tei_rail_peer *peer,
					const struct tei_err *err)
	TEI_REQUIRES(s->lock)
{
	struct engine_stage *stage;
	bool any = true;

	while (any) {
		any = false;
		tei_list_foreach(stage, &s->queue, struct engine_stage, node) {
			if (stage->peer != peer)
				continue;
			any = true;
			stage_fail(s, stage, STATUS_FAILED, err);
			if (stage_over(s, stage))
				return stage;
			break;
		}
	}
	return NULL;
}

static void stage_purge_all(struct engine_staging *s,
			    struct tei_rail_peer *peer,
			    const struct tei_err *err)
{
	struct engine_stage *over;

	do {
		tei_mutex_lock(&s->lock);
		over = stage_purge(s, peer, err);
		tei_mutex_unlock(&s->lock);
		if (over)
			stage_end(over);
	} while (over);
}

/* The slot's piece is over: status 0, or why it failed. */
static void stage_piece_end(struct stage_slot *slot, int status,
			    const struct tei_err *err)
{
	struct engine_staging *s = slot->staging;
	struct engine_stage *stage;
	bool over;

	tei_mutex_lock(&s->lock);
	stage = slot->stage;
	slot->stage = NULL;
	stage->running--;
	if (status)
		stage_fail(s, stage, status, err);
	else
		__atomic_store_n(&stage->moved, stage->moved + slot->length,
				 __ATOMIC_RELAXED);
	over = stage_over(s, stage);
	tei_mutex_unlock(&s->lock);
	if (over)
		stage_end(stage);
	stage_pump(s);
}

/* --- steps --------------------------------------------------------------- */

/* False: the task is to end, or the engine; the piece has ended with it. */
static bool stage_step_begin(struct stage_slot *slot, bool by_rail)
{
	struct engine_staging *s = slot->staging;
	struct tei_err err;
	int status;

	stage_err(&err, TEI_ERR_CONTEXT, STAGE_CLOSED);
	tei_mutex_lock(&s->lock);
	status = slot->stage->status;
	if (status)
		err = slot->stage->err;
	else if (s->closing)
		status = STATUS_FAILED;
	if (!status) {
		s->steps++;
		slot->held++;
		slot->by_rail = by_rail ? STAGE_SUBMITTING : STAGE_NOT_BY_RAIL;
	}
	tei_mutex_unlock(&s->lock);
	if (status)
		stage_piece_end(slot, status, &err);
	return !status;
}

static void stage_release(struct stage_slot *slot)
{
	struct engine_staging *s = slot->staging;
	bool idle;

	tei_mutex_lock(&s->lock);
	idle = !--slot->held && !slot->stage;
	tei_mutex_unlock(&s->lock);
	if (idle)
		stage_pump(s);
}

/* Whether the rail's part was asked to end while it was being submitted. */
static bool stage_step_end(struct stage_slot *slot)
{
	struct engine_staging *s = slot->staging;
	bool unwanted = false;

	tei_mutex_lock(&s->lock);
	if (slot->by_rail == STAGE_SUBMITTING) {
		slot->by_rail = STAGE_BY_RAIL;
		unwanted = slot->stage->status != 0;
	}
	if (!--s->steps)
		pthread_cond_broadcast(&s->steps_over);
	tei_mutex_unlock(&s->lock);
	return unwanted;
}

static void stage_by_rail(struct stage_slot *slot)
{
	struct tei_rail_task *list = &slot->rail;
	struct tei_rail_dp *dp = slot->staging->engine->dp;
	struct engine_stage *stage = slot->stage;
	struct tei_err err;
	int ret;

	if (!stage_step_begin(slot, true))
		return;
	memset(&slot->rail, 0, sizeof(slot->rail));
	slot->rail.peer = stage->peer;
	slot->rail.remote = stage->remote + slot->at;
	slot->rail.length = slot->length;
	slot->rail.local = slot->mem;
	slot->rail.read = stage->read;
	slot->rail.done = engine_stage_rail_done;
	ret = tei_rail_submit(dp, &list, 1);
	if (ret) {
		tei_mutex_lock(&slot->staging->lock);
		slot->by_rail = STAGE_ENDED_BY_RAIL;
		tei_mutex_unlock(&slot->staging->lock);
	}
	if (stage_step_end(slot))
		tei_rail_cancel(dp, &list, 1);
	if (ret) {
		stage_err(&err, ret, tei_err_name(ret));
		stage_piece_end(slot, STATUS_FAILED, &err);
	}
	stage_release(slot);
}

static void stage_copy_done(struct tei_gpu_op *op, int code,
			    const struct tei_err *err)
{
	struct stage_slot *slot = tei_container_of(op, struct stage_slot, copy);
	struct engine_staging *s = slot->staging;
	struct tei_err closed;

	if (code == TEI_ERR_TIMED_OUT) {
		tei_mutex_lock(&s->lock);
		slot->lost = true;
		s->lost++;
		tei_mutex_unlock(&s->lock);
	}
	stage_err(&closed, TEI_ERR_CONTEXT, STAGE_CLOSED);
	if (code == TEI_GPU_CANCELLED)
		stage_piece_end(slot, STATUS_FAILED, &closed);
	else if (code)
		stage_piece_end(slot, code == TEI_ERR_TIMED_OUT ?
				STATUS_TIMEOUT : STATUS_FAILED, err);
	else if (slot->stage->read)
		stage_piece_end(slot, 0, NULL);
	else
		stage_by_rail(slot);
}

static void stage_by_copy(struct stage_slot *slot)
{
	struct engine_stage *stage = slot->stage;
	uint64_t gpu = stage->gpu + slot->at, mem = (uintptr_t)slot->mem;
	struct tei_err err;
	int ret;

	if (!stage_step_begin(slot, false))
		return;
	memset(&slot->copy, 0, sizeof(slot->copy));
	slot->copy.dst = stage->read ? gpu : mem;
	slot->copy.src = stage->read ? mem : gpu;
	slot->copy.length = slot->length;
	slot->copy.done = stage_copy_done;
	ret = tei_gpu_submit(slot->staging->engine->gpu, &slot->copy);
	stage_step_end(slot);
	if (ret) {
		stage_err(&err, ret, tei_err_name(ret));
		stage_piece_end(slot, STATUS_FAILED, &err);
	}
	stage_release(slot);
}

void engine_stage_rail_done(struct tei_rail_task *task, enum tei_rail_end end,
			    const struct tei_err *err)
{
	static const int status[] = {
		[TEI_RAIL_END_COMPLETED] = 0,
		[TEI_RAIL_END_FAILED] = STATUS_FAILED,
		[TEI_RAIL_END_UNFENCED] = STATUS_TIMEOUT,
		[TEI_RAIL_END_CANCELED] = STATUS_CANCELED,
	};
	struct stage_slot *slot = tei_container_of(task, struct stage_slot,
						   rail);
	struct engine_staging *s = slot->staging;
	struct tei_err none;

	tei_mutex_lock(&s->lock);
	slot->by_rail = STAGE_ENDED_BY_RAIL;
	tei_mutex_unlock(&s->lock);
	stage_err(&none, TEI_ERR_CONTEXT, "its transfer by rail failed");
	/* while this piece refers to the peer */
	if (status[end] == STATUS_TIMEOUT ||
	    (err && err->code == TEI_ERR_ENDPOINT))
		stage_purge_all(s, slot->stage->peer, err ? err : &none);
	if (status[end] || !slot->stage->read)
		stage_piece_end(slot, status[end], err ? err : &none);
	else
		stage_by_copy(slot);
}

/* --- slots --------------------------------------------------------------- */

static struct stage_slot *stage_idle_slot(struct engine_staging *s)
	TEI_REQUIRES(s->lock)
{
	uint32_t i;

	for (i = 0; i < STAGE_SLOTS; i++)
		if (!s->slot[i].stage && !s->slot[i].held && !s->slot[i].lost)
			return &s->slot[i];
	return NULL;
}

/* The next piece of the next task in a slot, or NULL. */
static struct stage_slot *stage_next(struct engine_staging *s)
	TEI_REQUIRES(s->lock)
{
	struct engine_stage *stage;
	struct stage_slot *slot;
	uint64_t left;

	slot = tei_list_empty(&s->queue) ? NULL : stage_idle_slot(s);
	if (!slot)
		return NULL;
	stage = tei_list_first(&s->queue, struct engine_stage, node);
	tei_list_del(&stage->node);	/* its turn; to the end if more */
	left = stage->length - stage->next;
	slot->stage = stage;
	slot->by_rail = STAGE_NOT_BY_RAIL;
	slot->at = stage->next;
	slot->length = left < STAGE_PIECE ? left : STAGE_PIECE;
	stage->next += slot->length;
	stage->running++;
	stage->queued = stage->next < stage->length;
	if (stage->queued)
		tei_list_add_tail(&s->queue, &stage->node);
	return slot;
}

/* A task that waits for slots which the GPU will never give back. */
static struct engine_stage *stage_hopeless(struct engine_staging *s)
	TEI_REQUIRES(s->lock)
{
	struct engine_stage *stage;
	struct tei_err err;

	if (s->lost < STAGE_SLOTS || tei_list_empty(&s->queue))
		return NULL;
	stage_err(&err, TEI_ERR_CONTEXT,
		  "the GPU has not ended its copies: no room for others");
	stage = tei_list_first(&s->queue, struct engine_stage, node);
	stage_fail(s, stage, STATUS_FAILED, &err);
	return stage_over(s, stage) ? stage : NULL;
}

static void stage_begin(struct stage_slot *slot)
{
	if (slot->stage->read)
		stage_by_rail(slot);
	else
		stage_by_copy(slot);
}

/*
 * What is begun here may end before it returns, and come here again: one thread
 * at a time goes through the queue, however long it is.
 */
static void stage_pump(struct engine_staging *s)
{
	struct engine_stage *over = NULL;
	struct stage_slot *slot = NULL;

	tei_mutex_lock(&s->lock);
	s->again = true;
	while (s->again && !s->pumping) {
		slot = stage_next(s);
		over = slot ? NULL : stage_hopeless(s);
		s->again = slot || over;
		if (!s->again)
			break;
		s->pumping = true;
		tei_mutex_unlock(&s->lock);
		if (slot)
			stage_begin(slot);
		else
			stage_end(over);
		tei_mutex_lock(&s->lock);
		s->pumping = false;
	}
	tei_mutex_unlock(&s->lock);
}

/* --- tasks --------------------------------------------------------------- */

int engine_stage_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 struct tei_rail_peer *peer)
{
	struct engine_stage *stage;

	if (!peer || !__atomic_load_n(&e->staging, __ATOMIC_ACQUIRE))
		return 8;
	stage = calloc(1, sizeof(*stage));
	if (!stage)
		return 302;
	memset(t, 0, sizeof(*t));
	t->engine = e;
	t->target = r->target_id;
	t->length = r->length;
	t->by = ENGINE_BY_STAGE;
	t->read = r->opcode == OPCODE_READ;
	t->u.stage = stage;
	stage->task = t;
	stage->peer = peer;
	stage->gpu = (uintptr_t)r->source;
	stage->remote = r->target_offset;
	stage->length = r->length;
	stage->read = t->read;
	tei_list_init(&stage->node);
	return 0;
}

void engine_stage_start(struct engine *e, struct engine_task *t)
{
	struct engine_staging *s = e->staging;
	struct engine_stage *stage = t->u.stage;

	tei_rail_peer_hold(stage->peer);
	tei_mutex_lock(&s->lock);
	stage->queued = true;
	tei_list_add_tail(&s->queue, &stage->node);
	tei_mutex_unlock(&s->lock);
	stage_pump(s);
}

uint64_t engine_stage_moved(const struct engine_task *t)
{
	return __atomic_load_n(&t->u.stage->moved, __ATOMIC_RELAXED);
}

/* Its slots that are on their way by rail, held. */
static uint32_t stage_hold(struct engine_staging *s,
			   const struct engine_stage *stage,
			   struct stage_slot *slots[STAGE_SLOTS])
	TEI_REQUIRES(s->lock)
{
	uint32_t i, n = 0;

	for (i = 0; i < STAGE_SLOTS; i++) {
		if (s->slot[i].stage != stage ||
		    s->slot[i].by_rail != STAGE_BY_RAIL)
			continue;
		s->slot[i].held++;
		slots[n++] = &s->slot[i];
	}
	return n;
}

void engine_stage_cancel(struct engine *e, struct engine_task *t, bool deadline)
{
	struct engine_staging *s = e->staging;
	struct engine_stage *stage = t->u.stage;
	struct stage_slot *slots[STAGE_SLOTS];
	struct tei_rail_task *list;
	struct tei_err err;
	uint32_t i, n = 0;
	bool over = false;

	stage_err(&err, deadline ? TEI_ERR_TIMED_OUT : TEI_ERR_CANCELED,
		  deadline ? "the batch's deadline has passed" :
			     "cancelled by the caller");
	tei_mutex_lock(&s->lock);
	if (!stage->ended) {
		stage_fail(s, stage, deadline ? STATUS_FAILED : STATUS_CANCELED,
			   &err);
		n = stage_hold(s, stage, slots);
		over = stage_over(s, stage);
	}
	tei_mutex_unlock(&s->lock);
	for (i = 0; i < n; i++) {
		list = &slots[i]->rail;
		if (deadline)
			tei_rail_expire(e->dp, &list, 1);
		else
			tei_rail_cancel(e->dp, &list, 1);
		stage_release(slots[i]);
	}
	if (over)
		stage_end(stage);
}

/* --- its memory ---------------------------------------------------------- */

static void staging_free(struct engine_staging *s) TEI_NO_TSA
{
	if (!s->lost)		/* else the GPU may still write there */
		munmap(s->mem, STAGE_BYTES);
	pthread_cond_destroy(&s->steps_over);
	tei_mutex_fini(&s->lock);
	free(s);
}

static struct engine_staging *staging_new(struct engine *e) TEI_NO_TSA
{
	struct engine_staging *s = calloc(1, sizeof(*s));
	uint32_t i;

	if (!s)
		return NULL;
	s->mem = mmap(NULL, STAGE_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->mem == MAP_FAILED) {
		free(s);
		return NULL;
	}
	s->engine = e;
	tei_mutex_init(&s->lock);
	tei_cond_init(&s->steps_over);
	tei_list_init(&s->queue);
	for (i = 0; i < STAGE_SLOTS; i++) {
		s->slot[i].staging = s;
		s->slot[i].mem = s->mem + (size_t)i * STAGE_PIECE;
	}
	return s;
}

int engine_stage_on(struct engine *e, struct tei_err *err)
{
	struct engine_staging *s;
	struct tei_rail_mr *mr;
	int ret;

	if (e->staging)
		return 0;
	s = staging_new(e);
	if (!s)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory to stage GPU memory in");
	ret = tei_rail_mr_reg(e->dp, s->mem, STAGE_BYTES, "*", false, err,
			      &mr);
	if (ret)
		goto err_staging;
	ret = tei_gpu_mem_add(e->gpu, s->mem, STAGE_BYTES, err);
	if (ret)
		goto err_rail;
	__atomic_store_n(&e->staging, s, __ATOMIC_RELEASE);
	TEI_INFO("engine", "GPU memory to and from other segments: by way of %u MiB of host memory",
		 (unsigned int)(STAGE_BYTES >> 20));
	return 0;
err_rail:
	tei_rail_mr_dereg(e->dp, s->mem, 0, NULL);
err_staging:
	staging_free(s);
	return ret;
}

void engine_stage_close(struct engine *e)
{
	struct engine_staging *s = e->staging;
	struct engine_stage *stage;
	struct tei_err err;
	bool over;

	if (!s)
		return;
	stage_err(&err, TEI_ERR_CONTEXT, STAGE_CLOSED);
	tei_mutex_lock(&s->lock);
	s->closing = true;
	while (!tei_list_empty(&s->queue)) {
		stage = tei_list_first(&s->queue, struct engine_stage, node);
		stage_fail(s, stage, STATUS_FAILED, &err);
		over = stage_over(s, stage);
		tei_mutex_unlock(&s->lock);
		if (over)
			stage_end(stage);
		tei_mutex_lock(&s->lock);
	}
	while (s->steps)
		tei_mutex_wait(&s->steps_over, &s->lock, TEI_NS_PER_SEC);
	tei_mutex_unlock(&s->lock);
}

void engine_stage_free(struct engine *e)
{
	if (e->staging)
		staging_free(e->staging);
}
