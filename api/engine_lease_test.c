/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remote bounce slots, with engines of one process over tcp and the stand-in
 * for the CUDA driver. One initiator is "manual": the test sends its messages,
 * in any order.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/api_test.h"
#include "api/engine_lease_int.h"
#include "api/transfer_engine_c.h"
#include "fabtests/common/cuda_stand_in.h"

#define LEASE_TEST_SIZE	(4u << 20)
#define LEASE_TEST_WAIT	(30 * TEI_NS_PER_SEC)

static struct cuda_stand_in driver;

/* A target with GPU memory, an ordinary initiator (user) and a manual one
 * (hand). */
struct lease_rig {
	transfer_engine_t target, user;
	struct engine *hand;
	uint64_t gpu;
	void *context;
	char *host;
	segment_id_t seg;
	struct tei_rail_peer *peer;	/* the target, as a peer of hand */
	uint32_t prefer;
	uint64_t id;
};

static transfer_engine_t lease_engine(void)
{
	transfer_engine_t e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1",
						   "127.0.0.1", 0, 0);

	CU_ASSERT_FATAL(e != NULL);
	CU_ASSERT_FATAL(installTransport(e, "tcp", NULL) != NULL);
	return e;
}

/* Registers the memory that the user moves to and from the target. */
static bool lease_source(struct lease_rig *r, void *mem)
{
	return !registerLocalMemory(r->user, mem, LEASE_TEST_SIZE, "*", 1);
}

static bool lease_move(struct lease_rig *r, int op, uint64_t len)
{
	struct transfer_request rq = { op, r->host, r->seg, r->gpu, len };
	batch_id_t id = allocateBatchID(r->user, 1);
	struct transfer_status st = { STATUS_WAITING, 0 };
	uint64_t end = tei_now_ns() + LEASE_TEST_WAIT;

	if (!submitTransfer(r->user, id, &rq, 1))
		while (st.status == STATUS_WAITING && tei_now_ns() < end)
			getTransferStatus(r->user, id, 0, &st);
	freeBatchID(r->user, id);
	return st.status == STATUS_COMPLETED;
}

/* Returns the target as a peer of an engine; valid while the segment is
 * open. */
static struct tei_rail_peer *lease_peer(struct engine *e, segment_id_t id)
{
	struct tei_rail_peer *peer;

	pthread_rwlock_rdlock(&e->segments);
	peer = engine_segment_find(e, id)->peer;
	pthread_rwlock_unlock(&e->segments);
	return peer;
}

/* timeout: MC_SLICE_TIMEOUT of the target. */
static struct lease_rig lease_open(const char *timeout)
{
	struct lease_rig r = { .id = 1000 };
	segment_id_t seg;
	char name[256];

	if (!driver.init)
		CU_ASSERT_FATAL(cuda_stand_in_load(&driver));
	setenv("MC_SLICE_TIMEOUT", timeout, 1);
	r.target = lease_engine();
	unsetenv("MC_SLICE_TIMEOUT");
	r.user = lease_engine();
	r.hand = lease_engine();
	r.gpu = cuda_stand_in_memory(&driver, 0, LEASE_TEST_SIZE, &r.context);
	r.host = calloc(1, LEASE_TEST_SIZE);
	CU_ASSERT_FATAL(r.gpu && r.host);
	CU_ASSERT_FATAL(!registerLocalMemory(r.target,
					     (void *)(uintptr_t)r.gpu,
					     LEASE_TEST_SIZE, "*", 1));
	CU_ASSERT_FATAL(lease_source(&r, r.host));
	CU_ASSERT_FATAL(!getLocalIpAndPort(r.target, name, sizeof(name)));
	r.seg = openSegment(r.user, name);
	seg = openSegment(r.hand, name);
	CU_ASSERT_FATAL(r.seg > 0 && seg > 0);
	CU_ASSERT_FATAL(lease_move(&r, OPCODE_WRITE, LEASE_TEST_SIZE));
	r.peer = lease_peer(r.hand, seg);
	return r;
}

static void lease_close(struct lease_rig *r)
{
	destroyTransferEngine(r->user);
	if (r->hand)
		destroyTransferEngine(r->hand);
	destroyTransferEngine(r->target);
	CU_ASSERT(!driver.free(r->gpu));
	CU_ASSERT(!driver.ctx_destroy(r->context));
	CU_ASSERT_EQUAL(driver.left(), 0);
	free(r->host);
}

static void lease_say(struct lease_rig *r, enum lease_type type, uint64_t id)
{
	struct lease_msg m = {
		.type = (uint8_t)type, .id = id, .at = r->gpu, .base = r->gpu,
		.extent = LEASE_TEST_SIZE, .length = 4096,
	};

	leasing_post(r->peer, &r->prefer, &m);
}

/* --- its source is unregistered ------------------------------------------ */

struct source_leaver {
	struct lease_rig *rig;
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

/* unregisterLocalMemory of a task's source returns only after the end of the
 * task is published. The test delays that end by holding the lock that the
 * task's notification needs; the copy before it makes this engine the
 * receiver. */
static void test_unregister_of_source_waits_for_published_end(void)
{
	struct lease_rig r = lease_open("30");
	struct engine *e = r.user;
	struct transfer_request rq[] = {
		{ OPCODE_WRITE, r.host, LOCAL_SEGMENT,
		  (uintptr_t)r.host + 64, 64 },
		{ OPCODE_WRITE, r.host, r.seg, r.gpu, LEASE_TEST_SIZE },
	};
	notify_msg_t note = { .name = "a", .msg = "b" };
	struct timespec nap = { .tv_nsec = 100 * (long)TEI_NS_PER_MS };
	struct transfer_status st = { STATUS_WAITING, 0 };
	struct source_leaver v = { .rig = &r };
	batch_id_t id = allocateBatchID(r.user, 2);
	pthread_t thread;

	tei_mutex_lock(&e->notes_lock);
	CU_ASSERT_FATAL(!submitTransferWithNotify(r.user, id, rq, 2, note));
	CU_ASSERT_FATAL(!pthread_create(&thread, NULL, source_leave, &v));
	while (st.transferred_bytes < LEASE_TEST_SIZE)
		getTransferStatus(r.user, id, 1, &st);
	CU_ASSERT_EQUAL(st.status, STATUS_WAITING);
	nanosleep(&nap, NULL);
	CU_ASSERT(!__atomic_load_n(&v.back, __ATOMIC_ACQUIRE));
	tei_mutex_unlock(&e->notes_lock);
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL(v.ret, 0);
	CU_ASSERT(!getTransferStatus(r.user, id, 1, &st) &&
		  st.status == STATUS_COMPLETED);
	CU_ASSERT_EQUAL(freeBatchID(r.user, id), 0);
	lease_close(&r);
}

/* Returns the number of the target's slots of a kind. */
static uint32_t lease_slots(const struct lease_rig *r,
			    bool (*is)(const struct lend_slot *))
{
	struct engine_leasing *l = engine_leasing(r->target);
	uint32_t i, k, n = 0;

	tei_mutex_lock(&l->lock);
	for (i = 0; i < TEI_GPU_CONTEXTS; i++)
		for (k = 0; l->pool[i] && k < LEASE_SLOTS; k++)
			n += is(&l->pool[i]->slot[k]);
	tei_mutex_unlock(&l->lock);
	return n;
}

static bool slot_lent(const struct lend_slot *slot)
{
	return slot->piece != NULL;
}

static bool slot_ready(const struct lend_slot *slot)
{
	return slot->mem && !slot->doubtful;
}

static bool slot_unresolved(const struct lend_slot *slot)
{
	return !slot->mem;
}

static uint32_t lease_graves(const struct lease_rig *r)
{
	struct engine_leasing *l = engine_leasing(r->target);
	struct tei_list *g;
	uint32_t n = 0;

	tei_mutex_lock(&l->lock);
	for (g = l->graves.next; g != &l->graves; g = g->next)
		n++;
	tei_mutex_unlock(&l->lock);
	return n;
}

static void lease_nap(void)
{
	struct timespec nap = { .tv_nsec = 5000000 };

	nanosleep(&nap, NULL);
}

static bool lease_until(const struct lease_rig *r,
			bool (*is)(const struct lend_slot *), uint32_t n)
{
	uint64_t end = tei_now_ns() + LEASE_TEST_WAIT;

	while (lease_slots(r, is) != n && tei_now_ns() < end)
		lease_nap();
	return lease_slots(r, is) == n;
}

static bool lease_until_graves(const struct lease_rig *r, uint32_t n)
{
	uint64_t end = tei_now_ns() + LEASE_TEST_WAIT;

	while (lease_graves(r) != n && tei_now_ns() < end)
		lease_nap();
	return lease_graves(r) == n;
}

/* Requests n slots for the manual initiator, which then stays silent. Repeats
 * the requests, because messages may be lost. */
static bool lease_keep(struct lease_rig *r, uint32_t n)
{
	uint64_t end = tei_now_ns() + LEASE_TEST_WAIT, again = 0;
	uint32_t i;

	while (lease_slots(r, slot_lent) != n && tei_now_ns() < end) {
		for (i = 0; i < n && tei_now_ns() >= again; i++)
			lease_say(r, LEASE_ASK, r->id + i);
		if (i)
			again = tei_now_ns() + 100 * TEI_NS_PER_MS;
		lease_nap();
	}
	r->id += n - 1;
	return lease_slots(r, slot_lent) == n;
}

/* --- cases --------------------------------------------------------------- */

static void test_slot_without_memory_gets_memory_later(void)
{
	struct lease_rig r = lease_open("1");

	CU_ASSERT(lease_keep(&r, 1));
	driver.fail("cuMemHostRegister", 0, 2);
	CU_ASSERT(lease_until(&r, slot_unresolved, 1));
	CU_ASSERT(lease_until(&r, slot_ready, LEASE_SLOTS));
	CU_ASSERT(lease_move(&r, OPCODE_READ, LEASE_TEST_SIZE));
	lease_close(&r);
}

/* The addresses that a silent client was granted stay in quarantine while it
 * may still use them. */
static void test_addresses_of_unacknowledged_grant_stay_quarantined(void)
{
	struct lease_rig r = lease_open("1");

	CU_ASSERT(lease_keep(&r, 4));
	CU_ASSERT(lease_until_graves(&r, 4));
	CU_ASSERT(lease_until(&r, slot_ready, LEASE_SLOTS));
	lease_say(&r, LEASE_ASK, r.id);	/* does not acknowledge the grant */
	lease_say(&r, LEASE_FREE, r.id - 1);
	CU_ASSERT(lease_until_graves(&r, 3));
	/* a client that begins this number waits for none of the others */
	lease_say(&r, LEASE_FREE, r.id + LEASE_PIECES);
	CU_ASSERT(lease_until_graves(&r, 0));
	CU_ASSERT(lease_move(&r, OPCODE_READ, LEASE_TEST_SIZE));
	lease_close(&r);
}

static void test_addresses_of_gone_client_are_freed(void)
{
	struct lease_rig r = lease_open("1");

	CU_ASSERT(lease_keep(&r, 4));
	CU_ASSERT(lease_until_graves(&r, 4));
	destroyTransferEngine(r.hand);
	r.hand = NULL;
	CU_ASSERT(lease_until_graves(&r, 0));
	lease_close(&r);
}

/* A thread that delivers messages of a peer faster than they are read. */
struct lease_flood {
	struct lease_rig *rig;
	struct tei_rail_peer *from;
	bool stop;			/* atomic */
};

static void *lease_flooding(void *arg)
{
	struct lease_flood *f = arg;
	struct lease_msg ask = {
		.magic = LEASE_MAGIC, .version = 1, .type = LEASE_ASK,
		.id = f->rig->id, .at = f->rig->gpu, .base = f->rig->gpu,
		.extent = LEASE_TEST_SIZE, .length = 4096,
	};
	struct tei_rail_message *m;

	lease_msg_swap(&ask);
	while (!__atomic_load_n(&f->stop, __ATOMIC_RELAXED)) {
		m = malloc(sizeof(*m) + sizeof(ask));
		if (!m)
			continue;
		tei_rail_peer_hold(f->from);
		m->peer = f->from;
		m->len = sizeof(ask);
		memcpy(m->data, &ask, sizeof(ask));
		engine_lease_message(f->rig->target, m);
	}
	return NULL;
}

static void lease_leave(struct engine *e, struct tei_rail_peer *from)
{
	struct tei_rail_message *m = calloc(1, sizeof(*m));

	CU_ASSERT_FATAL(m != NULL);
	tei_rail_peer_hold(from);
	m->peer = from;
	engine_lease_message(e, m);
}

/* Frees the unread messages of a peer and returns their number. */
static uint32_t lease_waiting(struct engine_leasing *l,
			      const struct tei_rail_peer *from)
{
	struct leasing_sender *s, *tmp;
	struct tei_rail_message *m;
	uint32_t n = 0;

	tei_list_foreach_safe(s, tmp, &l->senders, struct leasing_sender,
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

/* No thread reads here. Each peer has its own room for messages. */
static void test_flooding_peer_leaves_room_for_others(void)
{
	struct lease_rig r = lease_open("10");
	struct tei_rail_peer *other;
	struct engine_leasing l = { .word = false };
	struct engine *e = calloc(1, sizeof(*e));
	uint32_t i;

	CU_ASSERT_FATAL(e != NULL);
	e->leasing = &l;
	tei_mutex_init(&l.lock);
	tei_cond_init(&l.work);
	tei_list_init(&l.senders);
	other = lease_peer(r.user, r.seg);
	for (i = 0; i < 100 * LEASE_INBOX; i++)
		lease_leave(e, r.peer);
	lease_leave(e, other);
	CU_ASSERT_EQUAL(lease_waiting(&l, other), 1);
	CU_ASSERT_EQUAL(lease_waiting(&l, r.peer), LEASE_INBOX);
	CU_ASSERT(tei_list_empty(&l.senders));
	pthread_cond_destroy(&l.work);
	tei_mutex_fini(&l.lock);
	free(e);
	lease_close(&r);
}

static void test_transfers_continue_while_peer_floods(void)
{
	struct lease_rig r = lease_open("10");
	struct engine_leasing *l = engine_leasing(r.target);
	struct lease_flood f = { .rig = &r };
	struct lend_slot *slot;
	pthread_t thread;
	uint32_t i;

	CU_ASSERT(lease_keep(&r, 1));
	tei_mutex_lock(&l->lock);
	for (i = 0; i < LEASE_SLOTS; i++) {
		slot = &l->pool[0]->slot[i];
		if (slot->piece)
			f.from = slot->piece->peer->peer;
	}
	tei_mutex_unlock(&l->lock);
	CU_ASSERT_FATAL(f.from != NULL);
	CU_ASSERT_FATAL(!pthread_create(&thread, NULL, lease_flooding, &f));
	CU_ASSERT(lease_move(&r, OPCODE_WRITE, LEASE_TEST_SIZE));
	CU_ASSERT(lease_move(&r, OPCODE_READ, LEASE_TEST_SIZE));
	__atomic_store_n(&f.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	lease_close(&r);
}

/* --- time ---------------------------------------------------------------- */

/* Silences the target. */
static void lease_silence(const struct lease_rig *r)
{
	struct engine_leasing *l = engine_leasing(r->target);

	tei_mutex_lock(&l->lock);
	l->closing = true;
	leasing_word(l);
	tei_mutex_unlock(&l->lock);
}

#define LEASE_HASTY_S	"4"		/* MC_SLICE_TIMEOUT of the test */
#define LEASE_HASTY_NS	(4 * TEI_NS_PER_SEC)

/* Gives the user another engine, with that timeout. */
static void lease_hasty(struct lease_rig *r)
{
	char name[256];

	destroyTransferEngine(r->user);
	setenv("MC_SLICE_TIMEOUT", LEASE_HASTY_S, 1);
	r->user = lease_engine();
	unsetenv("MC_SLICE_TIMEOUT");
	CU_ASSERT_FATAL(lease_source(r, r->host));
	CU_ASSERT_FATAL(!getLocalIpAndPort(r->target, name, sizeof(name)));
	r->seg = openSegment(r->user, name);
	CU_ASSERT_FATAL(r->seg > 0);
	CU_ASSERT_FATAL(lease_move(r, OPCODE_READ, LEASE_TEST_SIZE));
}

static batch_id_t lease_start(struct lease_rig *r, void *mem, size_t n)
{
	struct transfer_request rq[2] = {
		{ OPCODE_WRITE, mem, r->seg, r->gpu, LEASE_TEST_SIZE },
		{ OPCODE_WRITE, mem, r->seg, r->gpu, LEASE_TEST_SIZE },
	};
	batch_id_t id = allocateBatchID(r->user, n);

	CU_ASSERT_FATAL(!submitTransfer(r->user, id, rq, n));
	return id;
}

/* Returns the time at which the last of n tasks failed, or 0 if one did not. */
static uint64_t lease_failed(struct lease_rig *r, batch_id_t id, size_t n)
{
	uint64_t end = tei_now_ns() + LEASE_TEST_WAIT;
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

/* Starts n tasks, which use all slots, and another one half a second later. */
static void lease_behind(struct lease_rig *r, void *mem, size_t n)
{
	batch_id_t first = lease_start(r, mem, n), second;
	uint64_t later = tei_now_ns() + TEI_NS_PER_SEC / 2, ended, last;

	while (tei_now_ns() < later)
		lease_nap();
	second = lease_start(r, mem, 1);
	ended = lease_failed(r, first, n);
	last = lease_failed(r, second, 1);
	CU_ASSERT(ended && last);
	/* the time that it waited for its turn counts */
	CU_ASSERT(last - ended < LEASE_HASTY_NS / 4 * 3);
}

static void test_task_behind_silent_target_waits_only_once(void)
{
	struct lease_rig r = lease_open("10");

	lease_hasty(&r);
	lease_silence(&r);
	lease_behind(&r, r.host, 2);
	lease_close(&r);
}

static void test_gpu_task_behind_silent_target_waits_only_once(void)
{
	struct lease_rig r = lease_open("10");
	void *context;
	uint64_t gpu = cuda_stand_in_memory(&driver, 1, LEASE_TEST_SIZE,
					    &context);

	lease_hasty(&r);
	CU_ASSERT_FATAL(gpu && lease_source(&r, (void *)(uintptr_t)gpu));
	lease_silence(&r);
	lease_behind(&r, (void *)(uintptr_t)gpu, 2);
	lease_close(&r);
	CU_ASSERT(!driver.free(gpu) && !driver.ctx_destroy(context));
}

/* --- records of a peer --------------------------------------------------- */

/* Requests that a client repeats after a long silence are not granted again. */
static void test_repeated_request_after_silence_is_not_granted(void)
{
	struct lease_rig r = lease_open("1");
	uint64_t later;
	uint32_t i;

	CU_ASSERT(lease_keep(&r, 4));
	CU_ASSERT(lease_until_graves(&r, 4));
	/* longer than the record of a peer is kept */
	later = tei_now_ns() + 4 * TEI_NS_PER_SEC;
	while (tei_now_ns() < later)
		lease_nap();
	for (i = 0; i < 4; i++)
		lease_say(&r, LEASE_ASK, r.id - i);
	r.id++;
	CU_ASSERT(lease_keep(&r, 1));
	CU_ASSERT(lease_until(&r, slot_lent, 0));
	CU_ASSERT(lease_until(&r, slot_ready, LEASE_SLOTS));
	CU_ASSERT_EQUAL(lease_graves(&r), 5);
	lease_close(&r);
}

/* The target has ended a piece whose READY the client has not read. The client
 * answers DONE with FREE, which ends the quarantine. */
static void test_done_before_ready_is_answered_by_free(void)
{
	struct lease_rig r = lease_open("1");
	struct engine_leasing l = { .engine = r.hand };
	/* the second piece keeps the task from ending */
	struct engine_lease lease = { .peer = r.peer, .read = true,
				      .length = 2, .running = 2 };
	struct lease_target *t = calloc(1, sizeof(*t));
	struct lease_msg done = { .type = LEASE_DONE,
				  .code = TEI_ERR_TIMED_OUT };
	struct lease_piece *p;
	uint64_t end = tei_now_ns() + LEASE_TEST_WAIT;

	CU_ASSERT_FATAL(t != NULL);
	CU_ASSERT(lease_keep(&r, 1));
	CU_ASSERT(lease_until_graves(&r, 1));
	tei_list_init(&l.targets);
	tei_list_init(&t->queue);
	tei_list_add_tail(&l.targets, &t->link);
	l.now = t->heard_ns = tei_now_ns();
	t->peer = r.peer;
	/* the second number keeps the target record from being freed */
	t->used = 2;
	t->running = 1;
	p = &t->piece[r.id % LEASE_PIECES];
	*p = (struct lease_piece){ .leasing = &l, .target = t, .id = r.id,
				   .state = LEASE_ASKING, .lease = &lease };
	lease.target = t;
	done.id = r.id;
	lease_heard(&l, r.peer, &done);
	CU_ASSERT_EQUAL(lease.status, STATUS_FAILED);
	while (lease_graves(&r) && tei_now_ns() < end) {
		l.now = tei_now_ns();
		lease_tick(&l);
		lease_nap();
	}
	CU_ASSERT_EQUAL(lease_graves(&r), 0);
	CU_ASSERT_EQUAL(p->state, LEASE_RETURNING);
	lease_heard(&l, r.peer, &done);
	CU_ASSERT_EQUAL(p->state, LEASE_NONE);
	CU_ASSERT_EQUAL(t->used, 1);
	free(lease.err);
	free(t);
	lease_close(&r);
}

const struct tei_test_case lease_cases[] = {
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
