/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of remote bounce slots, with engines of one process over tcp and the
 * stand-in for the CUDA driver. One initiator is "manual": the test itself sends
 * the messages of this initiator, in any order.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "prov/staging/staging_rig_test.h"

static void rig_send(struct remote_rig *r, enum staging_msg_type type,
		     uint64_t id)
{
	struct staging_msg m = {
		.type = (uint8_t)type, .id = id, .at = r->gpu, .base = r->gpu,
		.extent = RIG_SIZE, .length = 4096,
	};

	staging_remote_post(r->peer, &r->prefer, &m);
}

/* --- the source of a task is unregistered -------------------------------- */

struct source_leaver {
	struct remote_rig *rig;
	bool back;			/* atomic */
	int ret;
};

static void *source_leave(void *arg)
{
	struct source_leaver *v = arg;

	v->ret = unregisterLocalMemory(v->rig->user, v->rig->host);
	__atomic_store_n(&v->back, true, __ATOMIC_RELEASE);
	return NULL;
}

/* unregisterLocalMemory of a task's source must return only after the end of
 * the task is published. The test delays that end by holding the lock that the
 * task's notification needs. */
static void test_unregister_of_source_waits_for_published_end(void)
{
	struct remote_rig r = rig_open("30");
	struct engine *e = r.user;
	struct transfer_request rq[] = {
		{ OPCODE_WRITE, r.host, LOCAL_SEGMENT,
		  (uintptr_t)r.host + 64, 64 },
		{ OPCODE_WRITE, r.host, r.seg, r.gpu, RIG_SIZE },
	};
	notify_msg_t note = { .name = "a", .msg = "b" };
	struct timespec nap = { .tv_nsec = 100 * (long)TEI_NS_PER_MS };
	struct transfer_status st = { STATUS_WAITING, 0 };
	struct source_leaver v = { .rig = &r };
	batch_id_t id = allocateBatchID(r.user, 2);
	pthread_t thread;

	tei_mutex_lock(&e->notes.lock);
	CU_ASSERT_FATAL(!submitTransferWithNotify(r.user, id, rq, 2, note));
	CU_ASSERT_FATAL(!pthread_create(&thread, NULL, source_leave, &v));
	while (st.transferred_bytes < RIG_SIZE)
		getTransferStatus(r.user, id, 1, &st);
	CU_ASSERT_EQUAL(st.status, STATUS_WAITING);
	nanosleep(&nap, NULL);
	CU_ASSERT(!__atomic_load_n(&v.back, __ATOMIC_ACQUIRE));
	tei_mutex_unlock(&e->notes.lock);
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL(v.ret, 0);
	CU_ASSERT(!getTransferStatus(r.user, id, 1, &st) &&
		  st.status == STATUS_COMPLETED);
	CU_ASSERT_EQUAL(freeBatchID(r.user, id), 0);
	rig_close(&r);
}

/* Requests n slots for the manual initiator, and waits until it has them. The
 * initiator then stays silent. Repeats the requests, because messages may be
 * lost. Returns true on success. */
static bool rig_hold_slots(struct remote_rig *r, uint32_t n)
{
	uint64_t end = tei_now_ns() + RIG_WAIT, again = 0;
	uint32_t i;

	while (rig_slots(r, slot_granted) != n && tei_now_ns() < end) {
		for (i = 0; i < n && tei_now_ns() >= again; i++)
			rig_send(r, STAGING_ASK, r->id + i);
		if (i)
			again = tei_now_ns() + 100 * TEI_NS_PER_MS;
		rig_sleep();
	}
	r->id += n - 1;
	return rig_slots(r, slot_granted) == n;
}

/* --- cases --------------------------------------------------------------- */

static void test_slot_without_memory_gets_memory_later(void)
{
	struct remote_rig r = rig_open("1");

	CU_ASSERT(rig_hold_slots(&r, 1));
	rig_driver.fail("cuMemHostRegister", 0, 2);
	CU_ASSERT(rig_await_slots(&r, slot_without_memory, 1));
	CU_ASSERT(rig_await_slots(&r, slot_ready, STAGING_REMOTE_SLOTS));
	CU_ASSERT(rig_transfer(&r, OPCODE_READ, RIG_SIZE));
	rig_close(&r);
}

/* The addresses that a silent client was granted must stay in quarantine as
 * long as the client may still use them. */
static void test_addresses_of_unacknowledged_grant_stay_quarantined(void)
{
	struct remote_rig r = rig_open("1");

	CU_ASSERT(rig_hold_slots(&r, 4));
	CU_ASSERT(rig_await_quarantined(&r, 4));
	CU_ASSERT(rig_await_slots(&r, slot_ready, STAGING_REMOTE_SLOTS));
	/* ASK does not acknowledge the grant */
	rig_send(&r, STAGING_ASK, r.id);
	rig_send(&r, STAGING_FREE, r.id - 1);
	CU_ASSERT(rig_await_quarantined(&r, 3));
	/* FREE of this number acknowledges all earlier grants, because a client
	 * never begins this number while it still waits for them */
	rig_send(&r, STAGING_FREE, r.id + STAGING_NUMBERS);
	CU_ASSERT(rig_await_quarantined(&r, 0));
	CU_ASSERT(rig_transfer(&r, OPCODE_READ, RIG_SIZE));
	rig_close(&r);
}

static void test_addresses_of_gone_client_are_freed(void)
{
	struct remote_rig r = rig_open("1");

	CU_ASSERT(rig_hold_slots(&r, 4));
	CU_ASSERT(rig_await_quarantined(&r, 4));
	destroyTransferEngine(r.hand);
	r.hand = NULL;
	CU_ASSERT(rig_await_quarantined(&r, 0));
	rig_close(&r);
}

/* State of a thread that delivers messages of a peer faster than they are
 * read. */
struct flood {
	struct remote_rig *rig;
	struct tei_rail_peer *from;
	bool stop;			/* atomic */
};

static void *flood_main(void *arg)
{
	struct flood *f = arg;
	struct staging_msg ask = {
		.magic = STAGING_MAGIC, .version = 1, .type = STAGING_ASK,
		.id = f->rig->id, .at = f->rig->gpu, .base = f->rig->gpu,
		.extent = RIG_SIZE, .length = 4096,
	};
	struct engine *to = f->rig->target;
	struct tei_rail_message *m;

	staging_msg_swap(&ask);
	while (!__atomic_load_n(&f->stop, __ATOMIC_RELAXED)) {
		m = malloc(sizeof(*m) + sizeof(ask));
		if (!m)
			continue;
		tei_rail_peer_hold(f->from);
		m->peer = f->from;
		m->len = sizeof(ask);
		memcpy(m->data, &ask, sizeof(ask));
		tei_staging_message(to->staging, m);
	}
	return NULL;
}

static void deliver_empty(struct tei_staging *s, struct tei_rail_peer *from)
{
	struct tei_rail_message *m = calloc(1, sizeof(*m));

	CU_ASSERT_FATAL(m != NULL);
	tei_rail_peer_hold(from);
	m->peer = from;
	tei_staging_message(s, m);
}

/* Frees the unread messages of a peer and returns their number. */
static uint32_t unread_messages(struct staging_remote *rs,
			      const struct tei_rail_peer *from)
{
	struct staging_sender *s, *tmp;
	struct tei_rail_message *m;
	uint32_t n = 0;

	tei_list_foreach_safe(s, tmp, &rs->senders, struct staging_sender,
			      link) {
		if (s->peer != from)
			continue;
		for (; !tei_list_empty(&s->messages); n++) {
			m = tei_list_first(&s->messages,
					   struct tei_rail_message, link);
			tei_list_del(&m->link);
			tei_rail_message_free(m);
		}
		tei_list_del(&s->link);
		free(s);
	}
	return n;
}

/* A peer whose number of unread messages has reached its limit must not prevent
 * the messages of other peers from being kept. No thread reads the messages in
 * this test. */
static void test_flooding_peer_leaves_room_for_others(void)
{
	struct remote_rig r = rig_open("10");
	struct tei_rail_peer *other;
	struct staging_remote rs = { .part = { .notified = false } };
	struct tei_staging s = { .remote = &rs };
	uint32_t i;

	tei_mutex_init(&rs.part.lock);
	tei_cond_init(&rs.part.work);
	tei_list_init(&rs.senders);
	other = rig_peer(r.user, r.seg);
	for (i = 0; i < 100 * STAGING_INBOX; i++)
		deliver_empty(&s, r.peer);
	deliver_empty(&s, other);
	CU_ASSERT_EQUAL(unread_messages(&rs, other), 1);
	CU_ASSERT_EQUAL(unread_messages(&rs, r.peer), STAGING_INBOX);
	CU_ASSERT(tei_list_empty(&rs.senders));
	pthread_cond_destroy(&rs.part.work);
	tei_mutex_fini(&rs.part.lock);
	rig_close(&r);
}

static void test_transfers_continue_while_peer_floods(void)
{
	struct remote_rig r = rig_open("10");
	struct staging_remote *rs = rig_remote(r.target);
	struct flood f = { .rig = &r };
	struct staging_remote_slot *slot;
	pthread_t thread;
	uint32_t i;

	CU_ASSERT(rig_hold_slots(&r, 1));
	tei_mutex_lock(&rs->part.lock);
	for (i = 0; i < STAGING_REMOTE_SLOTS; i++) {
		slot = staging_slot_at(rs->part.pool[0], i);
		if (slot->grant)
			f.from = slot->grant->client->peer;
	}
	tei_mutex_unlock(&rs->part.lock);
	CU_ASSERT_FATAL(f.from != NULL);
	CU_ASSERT_FATAL(!pthread_create(&thread, NULL, flood_main, &f));
	CU_ASSERT(rig_transfer(&r, OPCODE_WRITE, RIG_SIZE));
	CU_ASSERT(rig_transfer(&r, OPCODE_READ, RIG_SIZE));
	__atomic_store_n(&f.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	rig_close(&r);
}

/* --- time ---------------------------------------------------------------- */

/* Ends the target's thread, so that the target no longer answers. */
static void rig_silence_target(const struct remote_rig *r)
{
	struct staging_remote *rs = rig_remote(r->target);

	tei_mutex_lock(&rs->part.lock);
	rs->part.closing = true;
	staging_part_notify(&rs->part);
	tei_mutex_unlock(&rs->part.lock);
}

#define REMOTE_TIMEOUT_S	"4"	/* MC_SLICE_TIMEOUT of the test, s */
#define REMOTE_TIMEOUT_NS	(4 * TEI_NS_PER_SEC)

/* Replaces the engine user of the rig by one whose MC_SLICE_TIMEOUT is
 * REMOTE_TIMEOUT_S. */
static void rig_short_timeout(struct remote_rig *r)
{
	char name[256];

	destroyTransferEngine(r->user);
	setenv("MC_SLICE_TIMEOUT", REMOTE_TIMEOUT_S, 1);
	r->user = rig_engine();
	unsetenv("MC_SLICE_TIMEOUT");
	CU_ASSERT_FATAL(rig_register(r, r->host));
	CU_ASSERT_FATAL(!getLocalIpAndPort(r->target, name, sizeof(name)));
	r->seg = openSegment(r->user, name);
	CU_ASSERT_FATAL(r->seg > 0);
	CU_ASSERT_FATAL(rig_transfer(r, OPCODE_READ, RIG_SIZE));
}

static batch_id_t rig_submit(struct remote_rig *r, void *mem, size_t n)
{
	struct transfer_request rq[2] = {
		{ OPCODE_WRITE, mem, r->seg, r->gpu, RIG_SIZE },
		{ OPCODE_WRITE, mem, r->seg, r->gpu, RIG_SIZE },
	};
	batch_id_t id = allocateBatchID(r->user, n);

	CU_ASSERT_FATAL(!submitTransfer(r->user, id, rq, n));
	return id;
}

/* Waits for n tasks. Returns the time at which the last of them failed, or 0 if
 * one has not failed. */
static uint64_t rig_await_failed(struct remote_rig *r, batch_id_t id, size_t n)
{
	uint64_t end = tei_now_ns() + RIG_WAIT;
	struct transfer_status st;
	bool failed = true;
	size_t i;

	for (i = 0; i < n; i++) {
		st.status = STATUS_WAITING;
		while (st.status == STATUS_WAITING && tei_now_ns() < end)
			getTransferStatus(r->user, id, i, &st);
		failed &= st.status == STATUS_FAILED;
	}
	end = tei_now_ns();
	freeBatchID(r->user, id);
	return failed ? end : 0;
}

/* Starts n tasks, which use all slots, and another task half a second later.
 * Checks that the other task does not wait for a second MC_SLICE_TIMEOUT. */
static void test_queued_behind(struct remote_rig *r, void *mem, size_t n)
{
	batch_id_t first = rig_submit(r, mem, n), second;
	uint64_t later = tei_now_ns() + TEI_NS_PER_SEC / 2, ended, last;

	while (tei_now_ns() < later)
		rig_sleep();
	second = rig_submit(r, mem, 1);
	ended = rig_await_failed(r, first, n);
	last = rig_await_failed(r, second, 1);
	CU_ASSERT(ended && last);
	/* the last task must not wait for another MC_SLICE_TIMEOUT: the time
	 * that it waited for its turn counts */
	CU_ASSERT(last - ended < REMOTE_TIMEOUT_NS / 4 * 3);
}

static void test_task_behind_silent_target_waits_only_once(void)
{
	struct remote_rig r = rig_open("10");

	rig_short_timeout(&r);
	rig_silence_target(&r);
	test_queued_behind(&r, r.host, 2);
	rig_close(&r);
}

static void test_gpu_task_behind_silent_target_waits_only_once(void)
{
	struct remote_rig r = rig_open("10");
	void *context;
	uint64_t gpu = cuda_stand_in_memory(&rig_driver, 1, RIG_SIZE,
					    &context);

	rig_short_timeout(&r);
	CU_ASSERT_FATAL(gpu && rig_register(&r, (void *)(uintptr_t)gpu));
	rig_silence_target(&r);
	test_queued_behind(&r, (void *)(uintptr_t)gpu, 2);
	rig_close(&r);
	CU_ASSERT(!rig_driver.free(gpu) && !rig_driver.ctx_destroy(context));
}

/* --- records of a peer --------------------------------------------------- */

/* Requests that a client repeats after a long silence must not be granted
 * again. */
static void test_repeated_request_after_silence_is_not_granted(void)
{
	struct remote_rig r = rig_open("1");
	uint64_t later;
	uint32_t i;

	CU_ASSERT(rig_hold_slots(&r, 4));
	CU_ASSERT(rig_await_quarantined(&r, 4));
	/* wait for longer than the target keeps the record of a client */
	later = tei_now_ns() + 4 * TEI_NS_PER_SEC;
	while (tei_now_ns() < later)
		rig_sleep();
	for (i = 0; i < 4; i++)
		rig_send(&r, STAGING_ASK, r.id - i);
	r.id++;
	CU_ASSERT(rig_hold_slots(&r, 1));
	CU_ASSERT(rig_await_slots(&r, slot_granted, 0));
	CU_ASSERT(rig_await_slots(&r, slot_ready, STAGING_REMOTE_SLOTS));
	CU_ASSERT_EQUAL(rig_quarantined(&r), 5);
	rig_close(&r);
}

/* Tests DONE for a piece whose READY the client has not read, because the
 * target has ended the piece. The client must answer DONE with FREE, which ends
 * the quarantine. */
static void test_done_before_ready_is_answered_by_free(void)
{
	struct remote_rig r = rig_open("1");
	struct staging_remote rs = { .part.staging = r.hand->staging };
	/* the second piece keeps the task from ending */
	struct tei_staging_remote_task task = { .peer = r.peer, .read = true,
				      .length = 2, .running = 2 };
	struct staging_target *t = calloc(1, sizeof(*t));
	struct staging_msg done = { .type = STAGING_DONE,
				  .code = TEI_ERR_TIMED_OUT };
	struct staging_request *p;
	uint64_t end = tei_now_ns() + RIG_WAIT;

	CU_ASSERT_FATAL(t != NULL);
	CU_ASSERT(rig_hold_slots(&r, 1));
	CU_ASSERT(rig_await_quarantined(&r, 1));
	tei_list_init(&rs.targets);
	tei_list_init(&t->queue);
	tei_list_add_tail(&rs.targets, &t->link);
	rs.now = t->received_ns = tei_now_ns();
	t->peer = r.peer;
	/* the second number (used is 2) prevents the release of the target
	 * record */
	t->used = 2;
	t->running = 1;
	p = &t->request[r.id % STAGING_NUMBERS];
	*p = (struct staging_request){ .remote = &rs, .target = t, .id = r.id,
				   .state = REQUEST_SENT, .task = &task };
	task.target = t;
	done.id = r.id;
	staging_request_message(&rs, r.peer, &done);
	CU_ASSERT_EQUAL(task.status, TEI_RAIL_END_FAILED);
	while (rig_quarantined(&r) && tei_now_ns() < end) {
		rs.now = tei_now_ns();
		staging_request_poll(&rs);
		rig_sleep();
	}
	CU_ASSERT_EQUAL(rig_quarantined(&r), 0);
	CU_ASSERT_EQUAL(p->state, REQUEST_RETURNED);
	staging_request_message(&rs, r.peer, &done);
	CU_ASSERT_EQUAL(p->state, REQUEST_NONE);
	CU_ASSERT_EQUAL(t->used, 1);
	free(task.err);
	free(t);
	rig_close(&r);
}

/* --- memory that is registered again --------------------------------------- */

#define AGAIN_TRIES 20

/* A request that the target interrupts, because it registers its memory
 * again. */
struct again {
	transfer_engine_t target;
	void *there;	/* the target's memory of RIG_MORE bytes */
	transfer_engine_t user;
	void *here;	/* the user's memory of the same size */
	int op;
	segment_id_t seg;
	/* The part of the user's staging that moves the pieces. NULL: the part
	 * for GPU memory of the user; it is created when the user registers
	 * that memory, so again_check sets the member then. */
	struct staging_part *part;
};

/* Sets *moved to the number of bytes of complete pieces. Returns true if the task
 * has not ended. Unlike getTransferStatus, copies nothing in the calling thread:
 * the end of such a copy needs part->lock. */
static bool again_state(const struct again *a, batch_id_t id, uint64_t *moved)
{
	const struct engine_task *t = &engine_batch_slot(a->user, id)->tasks[0];

	*moved = t->by->moved(t);
	return __atomic_load_n(&t->status, __ATOMIC_ACQUIRE) == STATUS_WAITING;
}

/* Stops the thread that begins the pieces, when some pieces of the task have
 * been moved, and pieces remain that are not begun. Returns true if this
 * succeeded; part->lock is locked then. Returns false if the task was faster. */
static bool again_stop(const struct again *a, batch_id_t id)
	TEI_TRY_ACQUIRE(true, a->part->lock)
{
	uint64_t last = RIG_MORE -
			(STAGING_WINDOW + 2) * (uint64_t)TEI_STAGING_PIECE;
	uint64_t end = tei_now_ns() + RIG_WAIT;
	struct transfer_status st = { STATUS_WAITING, 0 };
	uint64_t moved;

	while (!st.transferred_bytes && st.status == STATUS_WAITING &&
	       tei_now_ns() < end)
		getTransferStatus(a->user, id, 0, &st);
	tei_mutex_lock(&a->part->lock);
	if (again_state(a, id, &moved) && moved && moved < last)
		return true;
	tei_mutex_unlock(&a->part->lock);
	return false;
}

/* Starts a request. When some of its bytes have been moved, but not all, the
 * target unregisters its memory and registers it again. Returns the final status
 * of the request, or STATUS_WAITING if the request has ended before the target
 * could do this, so that the caller must try again. */
static int again_move(const struct again *a)
{
	struct transfer_request rq = { a->op, a->here, a->seg,
				       (uintptr_t)a->there, RIG_MORE };
	uint64_t end = tei_now_ns() + RIG_WAIT, moved;
	struct transfer_status st = { STATUS_WAITING, 0 };
	batch_id_t id = allocateBatchID(a->user, 1);
	bool stopped = false;

	CU_ASSERT_FATAL(!submitTransfer(a->user, id, &rq, 1));
	if (again_stop(a, id)) {
		stopped = true;
		/* pieces that were begun before must end before the memory is
		 * unregistered */
		moved = tei_now_ns() + 200 * TEI_NS_PER_MS;
		while (tei_now_ns() < moved)
			rig_sleep();
		CU_ASSERT(!unregisterLocalMemory(a->target, a->there));
		CU_ASSERT(!registerLocalMemory(a->target, a->there,
					       RIG_MORE, "*", 1));
		tei_mutex_unlock(&a->part->lock);
	}
	while (st.status == STATUS_WAITING && tei_now_ns() < end)
		getTransferStatus(a->user, id, 0, &st);
	freeBatchID(a->user, id);
	return stopped ? st.status : STATUS_WAITING;
}

/* Registers the memory of both sides and repeats the request until the target
 * was fast enough to interrupt it. The request must fail. */
static void again_check(struct again *a)
{
	struct tei_staging *staging = ((struct engine *)a->user)->staging;
	int status = STATUS_WAITING, i;

	CU_ASSERT_FATAL(!registerLocalMemory(a->target, a->there,
					     RIG_MORE, "*", 1));
	CU_ASSERT_FATAL(!registerLocalMemory(a->user, a->here,
					     RIG_MORE, "*", 1));
	if (!a->part)
		a->part = &staging_local(staging)->part;
	for (i = 0; i < AGAIN_TRIES && status == STATUS_WAITING; i++)
		status = again_move(a);
	CU_ASSERT_EQUAL(status, STATUS_FAILED);
	CU_ASSERT(!unregisterLocalMemory(a->target, a->there));
	CU_ASSERT(!unregisterLocalMemory(a->user, a->here));
}

/* A request must not be COMPLETED if a part of it was read before the target
 * unregistered its GPU memory and registered it again, and the rest
 * afterwards. The first registration of the rig keeps the slots. */
static void test_memory_registered_again_fails_the_request(void)
{
	struct remote_rig r = rig_open("30");
	struct again a = {
		.target = r.target,
		.there = (void *)(uintptr_t)(r.gpu + RIG_SIZE),
		.user = r.user,
		.here = calloc(1, RIG_MORE),
		.op = OPCODE_READ,
		.seg = r.seg,
		.part = &rig_remote(r.user)->part,
	};

	CU_ASSERT_FATAL(a.here != NULL);
	again_check(&a);
	CU_ASSERT(rig_transfer(&r, OPCODE_READ, RIG_SIZE));
	rig_close(&r);
	free(a.here);
}

/* The same for a write from GPU memory to host memory of a process of this
 * host, whose pieces are moved by copies inside this host. */
static void test_host_memory_registered_again_fails_the_request(void)
{
	struct remote_rig r = rig_open("30");
	struct again a = {
		.target = r.target,
		.there = calloc(1, RIG_MORE),
		.user = r.user,
		.here = (void *)(uintptr_t)(r.gpu + RIG_SIZE),
		.op = OPCODE_WRITE,
	};
	char name[256];

	CU_ASSERT_FATAL(a.there != NULL);
	CU_ASSERT_FATAL(installTransport(r.user, "local", NULL) != NULL);
	CU_ASSERT_FATAL(installTransport(r.target, "local", NULL) != NULL);
	CU_ASSERT_FATAL(!getLocalIpAndPort(r.target, name, sizeof(name)));
	a.seg = openSegmentNoCache(r.user, name);
	CU_ASSERT_FATAL(a.seg > 0);
	again_check(&a);
	rig_close(&r);
	free(a.there);
}

const struct tei_test_case remote_cases[] = {
	{ "memory_registered_again_fails_the_request",
	  test_memory_registered_again_fails_the_request },
	{ "host_memory_registered_again_fails_the_request",
	  test_host_memory_registered_again_fails_the_request },
	{ "task_behind_silent_target_waits_only_once",
	  test_task_behind_silent_target_waits_only_once },
	{ "gpu_task_behind_silent_target_waits_only_once",
	  test_gpu_task_behind_silent_target_waits_only_once },
	{ "unregister_of_source_waits_for_published_end",
	  test_unregister_of_source_waits_for_published_end },
	{ "repeated_request_after_silence_is_not_granted",
	  test_repeated_request_after_silence_is_not_granted },
	{ "done_before_ready_is_answered_by_free",
	  test_done_before_ready_is_answered_by_free },
	{ "slot_without_memory_gets_memory_later",
	  test_slot_without_memory_gets_memory_later },
	{ "addresses_of_unacknowledged_grant_stay_quarantined",
	  test_addresses_of_unacknowledged_grant_stay_quarantined },
	{ "addresses_of_gone_client_are_freed",
	  test_addresses_of_gone_client_are_freed },
	{ "flooding_peer_leaves_room_for_others",
	  test_flooding_peer_leaves_room_for_others },
	{ "transfers_continue_while_peer_floods",
	  test_transfers_continue_while_peer_floods },
	{ NULL, NULL },
};
