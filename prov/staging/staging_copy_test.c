/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of copies inside this host between the memory of an initiator and remote
 * bounce slots. A gate holds back the copies of the initiator "user".
 */
#include <string.h>

#include "api/engine_host_copy.h"
#include "prov/local/local_int.h"
#include "prov/local/tei_local_stats.h"
#include "prov/staging/staging_rig_test.h"

#define COPY_MARK 0x5a

/* --- the gate ------------------------------------------------------------- */

static struct {
	uint32_t inside;		/* atomic: number of copies that have
					 * reached the gate */
	bool open;			/* atomic */
	bool passes;			/* atomic: later copies need not wait */
} gate;

static void gate_hook(void *arg)
{
	(void)arg;
	if (__atomic_load_n(&gate.passes, __ATOMIC_RELAXED))
		return;
	__atomic_add_fetch(&gate.inside, 1, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&gate.open, __ATOMIC_ACQUIRE))
		rig_sleep();
}

static struct tei_local *copy_local(transfer_engine_t e)
{
	return ((struct engine *)e)->local;
}

/* Opens engines that copy inside this host. */
static struct remote_rig copy_open(const char *timeout)
{
	struct remote_rig r = rig_open(timeout);
	char name[256];

	CU_ASSERT_FATAL(installTransport(r.target, "local", NULL) != NULL);
	CU_ASSERT_FATAL(installTransport(r.user, "local", NULL) != NULL);
	CU_ASSERT_FATAL(!getLocalIpAndPort(r.target, name, sizeof(name)));
	r.seg = openSegmentNoCache(r.user, name);
	CU_ASSERT_FATAL(r.seg > 0);
	return r;
}

/* Returns the number of bytes that the user has copied inside this host. */
static uint64_t copy_bytes(const struct remote_rig *r)
{
	struct tei_local_counters c;

	tei_local_stats(copy_local(r->user), &c);
	return c.tx_bytes + c.rx_bytes;
}

/* Starts a request for at most one piece and waits until its copy is at the
 * gate. */
static batch_id_t copy_start(struct remote_rig *r, int op, uint64_t len)
{
	struct transfer_request rq = { op, r->host, r->seg, r->gpu,
				       len };
	batch_id_t id = allocateBatchID(r->user, 1);
	uint64_t end = tei_now_ns() + RIG_WAIT;

	memset(r->host, COPY_MARK, RIG_SIZE);
	__atomic_store_n(&gate.open, false, __ATOMIC_RELAXED);
	__atomic_store_n(&gate.passes, false, __ATOMIC_RELAXED);
	__atomic_store_n(&gate.inside, 0, __ATOMIC_RELAXED);
	copy_local(r->user)->before_copy = gate_hook;
	CU_ASSERT_FATAL(!submitTransfer(r->user, id, &rq, 1));
	while (!__atomic_load_n(&gate.inside, __ATOMIC_RELAXED) &&
	       tei_now_ns() < end)
		rig_sleep();
	CU_ASSERT(__atomic_load_n(&gate.inside, __ATOMIC_RELAXED));
	return id;
}

static int copy_status(struct remote_rig *r, batch_id_t id)
{
	struct transfer_status st = { STATUS_WAITING, 0 };

	getTransferStatus(r->user, id, 0, &st);
	return st.status;
}

/* Opens the gate and returns the final status of the task. */
static int copy_finish(struct remote_rig *r, batch_id_t id)
{
	uint64_t end = tei_now_ns() + RIG_WAIT;
	int status;

	__atomic_store_n(&gate.open, true, __ATOMIC_RELEASE);
	do
		status = copy_status(r, id);
	while (status == STATUS_WAITING && tei_now_ns() < end);
	copy_local(r->user)->before_copy = NULL;
	freeBatchID(r->user, id);
	return status;
}

/* Returns true if a byte of the GPU memory was written by copy_start. */
static bool copy_landed(const struct remote_rig *r)
{
	static char mem[TEI_STAGING_PIECE];

	memset(mem, 0, sizeof(mem));
	CU_ASSERT(!rig_driver.to_host(mem, r->gpu, sizeof(mem)));
	return memchr(mem, COPY_MARK, sizeof(mem)) != NULL;
}

static bool slot_stale(const struct staging_remote_slot *slot)
{
	return slot->slot.must_renew;
}

static void copy_pause(uint64_t ns)
{
	uint64_t end = tei_now_ns() + ns;

	while (tei_now_ns() < end)
		rig_sleep();
}

/* --- cases ---------------------------------------------------------------- */

/* Copies of short and of long pieces, in both directions. */
static void test_bytes_are_copied_inside_the_host(void)
{
	static const uint64_t lengths[] = { 1, TEI_LOCAL_INLINE,
					    TEI_LOCAL_INLINE + 1, RIG_SIZE };
	struct remote_rig r = copy_open("30");
	uint64_t before, len;
	size_t i;

	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		len = lengths[i];
		before = copy_bytes(&r);
		memset(r.host, (int)i + 1, len);
		CU_ASSERT(rig_transfer(&r, OPCODE_WRITE, len));
		memset(r.host, 0, len);
		CU_ASSERT(rig_transfer(&r, OPCODE_READ, len));
		CU_ASSERT(r.host[0] == (char)(i + 1) &&
			  !memcmp(r.host, r.host + 1, len - 1));
		CU_ASSERT_EQUAL(copy_bytes(&r) - before, 2 * len);
	}
	rig_close(&r);
}

/* A slot for which the target permits no copies is reached over the rails. */
static void test_slots_without_copies_use_the_rails(void)
{
	struct remote_rig r = copy_open("30");
	struct staging_remote *rs = rig_remote(r.target);
	uint64_t before = copy_bytes(&r);
	struct staging_slot *slot;
	uint32_t i;

	tei_mutex_lock(&rs->part.lock);
	for (i = 0; i < STAGING_REMOTE_SLOTS; i++) {
		slot = staging_slot_at(rs->part.pool[0], i);
		slot->share = 0;
	}
	tei_mutex_unlock(&rs->part.lock);
	CU_ASSERT(rig_transfer(&r, OPCODE_WRITE, RIG_SIZE));
	CU_ASSERT(rig_transfer(&r, OPCODE_READ, RIG_SIZE));
	CU_ASSERT_EQUAL(copy_bytes(&r), before);
	rig_close(&r);
}

/* The target has withdrawn the slots that it grants. Neither copies nor rails
 * access their addresses. */
static void test_withdrawn_slots_are_not_accessed(void)
{
	struct remote_rig r = copy_open("30");
	struct staging_remote *rs = rig_remote(r.target);
	struct staging_slot *slot;
	uint32_t i;

	for (i = 0; i < STAGING_REMOTE_SLOTS; i++) {
		slot = staging_slot_at(rs->part.pool[0], i);
		CU_ASSERT(!tei_local_region_remove(copy_local(r.target),
						   slot->mem, 0, 0));
		memset(slot->mem, 0, TEI_STAGING_PIECE);
	}
	memset(r.host, COPY_MARK, RIG_SIZE);
	CU_ASSERT(!rig_transfer(&r, OPCODE_WRITE, RIG_SIZE));
	CU_ASSERT(!copy_landed(&r));
	for (i = 0; i < STAGING_REMOTE_SLOTS; i++) {
		slot = staging_slot_at(rs->part.pool[0], i);
		CU_ASSERT(!memchr(slot->mem, COPY_MARK, TEI_STAGING_PIECE));
	}
	rig_close(&r);
}

/* The initiator has the serial of an earlier registration of the slot's
 * addresses, which belong to other memory now. */
static void test_copy_to_a_slot_that_was_registered_again_is_refused(void)
{
	struct remote_rig r = copy_open("30");
	struct engine *e = r.user;
	struct staging_slot *slot =
		staging_slot_at(rig_remote(r.target)->part.pool[0], 0);
	struct tei_staging_copy copy = { .near = e->processes.list,
					 .local = r.host,
					 .slot = (uintptr_t)slot->mem,
					 .serial = slot->share,
					 .read = true };
	struct tei_local *local = copy_local(r.target);
	uint64_t before = copy_bytes(&r);

	CU_ASSERT_FATAL(copy.near && copy.serial);
	CU_ASSERT(!tei_local_region_remove(local, slot->mem, 0, 0));
	CU_ASSERT(!tei_local_region_add(local, slot->mem, TEI_STAGING_PIECE,
					TEI_LOCAL_REMOTE));
	copy.length = TEI_LOCAL_INLINE;
	CU_ASSERT_EQUAL(engine_host_copy(e, &copy), TEI_ERR_NOT_REGISTERED);
	copy.length = TEI_STAGING_PIECE;
	CU_ASSERT_EQUAL(engine_host_copy(e, &copy), TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(copy_bytes(&r), before);
	rig_close(&r);
}

/* A copy finds no free copy slot of the target. The rails move the piece. */
static void test_piece_whose_copy_fails_uses_the_rails(void)
{
	struct remote_rig r = copy_open("30");
	struct tei_local *local = copy_local(r.target);
	struct local_slot *slot[LOCAL_SLOTS];
	const uint64_t base[2] = { 1, 0 }, end[2] = { 2, 0 };
	uint64_t before = copy_bytes(&r);
	uint32_t i;

	for (i = 0; i < LOCAL_SLOTS; i++)
		slot[i] = local_slot_enter(local->shared, local->owner, base,
					   end);
	copy_local(r.user)->stall_ns = TEI_NS_PER_MS;
	memset(r.host, 1, RIG_SIZE);
	CU_ASSERT(rig_transfer(&r, OPCODE_WRITE, RIG_SIZE));
	memset(r.host, 0, RIG_SIZE);
	CU_ASSERT(rig_transfer(&r, OPCODE_READ, RIG_SIZE));
	CU_ASSERT(r.host[0] == 1 &&
		  !memcmp(r.host, r.host + 1, RIG_SIZE - 1));
	CU_ASSERT_EQUAL(copy_bytes(&r), before);
	for (i = 0; i < LOCAL_SLOTS; i++)
		if (slot[i])
			local_slot_leave(slot[i]);
	rig_close(&r);
}

/* A task is cancelled during its copy. It must not end before the copy, and the
 * other tasks of the initiator continue. */
static void test_cancelled_task_waits_for_its_copy_only(void)
{
	struct remote_rig r = copy_open("1");
	batch_id_t id = copy_start(&r, OPCODE_WRITE, TEI_STAGING_PIECE);

	CU_ASSERT(!te_cancel_batch(r.user, id));
	copy_pause(TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(copy_status(&r, id), STATUS_WAITING);
	__atomic_store_n(&gate.passes, true, __ATOMIC_RELAXED);
	CU_ASSERT(rig_transfer(&r, OPCODE_READ, TEI_LOCAL_INLINE));
	CU_ASSERT_EQUAL(copy_status(&r, id), STATUS_WAITING);
	CU_ASSERT_EQUAL(copy_finish(&r, id), STATUS_CANCELED);
	CU_ASSERT(!copy_landed(&r));
	rig_close(&r);
}

/* The copy of a cancelled task stops the thread of the initiator. While the copy
 * is in progress, the target must not take the slot away, although the initiator
 * is silent for longer than the target's MC_SLICE_TIMEOUT. */
static void test_slot_stays_while_a_cancelled_copy_is_in_progress(void)
{
	struct remote_rig r = copy_open("1");
	batch_id_t id = copy_start(&r, OPCODE_WRITE, TEI_LOCAL_INLINE);

	CU_ASSERT(!te_cancel_batch(r.user, id));
	CU_ASSERT(rig_await_slots(&r, slot_stale, 1));
	copy_pause(TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(rig_slots(&r, slot_stale), 1);
	CU_ASSERT_EQUAL(copy_status(&r, id), STATUS_WAITING);
	CU_ASSERT_EQUAL(copy_finish(&r, id), STATUS_CANCELED);
	CU_ASSERT(rig_await_slots(&r, slot_ready, STAGING_REMOTE_SLOTS));
	CU_ASSERT(rig_await_quarantined(&r, 0));
	CU_ASSERT(!copy_landed(&r));
	CU_ASSERT(rig_transfer(&r, OPCODE_WRITE, RIG_SIZE) && copy_landed(&r));
	rig_close(&r);
}

/* The target unregisters its memory during a copy to or from a slot. The call
 * does not wait for the copy longer than for a fence, because a write cannot reach
 * the GPU memory any longer, and a read fails. */
static void copy_unregistered(int op)
{
	struct remote_rig r = copy_open("30");
	batch_id_t id = copy_start(&r, op, TEI_STAGING_PIECE);
	uint64_t start = tei_now_ns();

	CU_ASSERT(!unregisterLocalMemory(r.target, (void *)(uintptr_t)r.gpu));
	CU_ASSERT(tei_now_ns() - start < 10 * TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(copy_status(&r, id), STATUS_WAITING);
	CU_ASSERT_EQUAL(copy_finish(&r, id), STATUS_FAILED);
	copy_pause(100 * TEI_NS_PER_MS);
	CU_ASSERT(!copy_landed(&r));
	rig_close(&r);
}

static void test_unregistration_during_a_copy_fails_the_task(void)
{
	copy_unregistered(OPCODE_WRITE);
	copy_unregistered(OPCODE_READ);
}

const struct tei_test_case copy_cases[] = {
	{ "bytes_are_copied_inside_the_host",
	  test_bytes_are_copied_inside_the_host },
	{ "slots_without_copies_use_the_rails",
	  test_slots_without_copies_use_the_rails },
	{ "withdrawn_slots_are_not_accessed",
	  test_withdrawn_slots_are_not_accessed },
	{ "copy_to_a_slot_that_was_registered_again_is_refused",
	  test_copy_to_a_slot_that_was_registered_again_is_refused },
	{ "piece_whose_copy_fails_uses_the_rails",
	  test_piece_whose_copy_fails_uses_the_rails },
	{ "cancelled_task_waits_for_its_copy_only",
	  test_cancelled_task_waits_for_its_copy_only },
	{ "slot_stays_while_a_cancelled_copy_is_in_progress",
	  test_slot_stays_while_a_cancelled_copy_is_in_progress },
	{ "unregistration_during_a_copy_fails_the_task",
	  test_unregistration_during_a_copy_fails_the_task },
	{ NULL, NULL },
};
