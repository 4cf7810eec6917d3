/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/staging/staging_rig_test.h"

#include <stdlib.h>
#include <time.h>

struct cuda_stand_in rig_driver;

transfer_engine_t rig_engine(void)
{
	transfer_engine_t e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1",
						   "127.0.0.1", 0, 0);

	CU_ASSERT_FATAL(e != NULL);
	CU_ASSERT_FATAL(installTransport(e, "tcp", NULL) != NULL);
	return e;
}

bool rig_register(struct remote_rig *r, void *mem)
{
	return !registerLocalMemory(r->user, mem, RIG_SIZE, "*", 1);
}

bool rig_transfer(struct remote_rig *r, int op, uint64_t len)
{
	struct transfer_request rq = { op, r->host, r->seg, r->gpu, len };
	batch_id_t id = allocateBatchID(r->user, 1);
	struct transfer_status st = { STATUS_WAITING, 0 };
	uint64_t end = tei_now_ns() + RIG_WAIT;

	if (!submitTransfer(r->user, id, &rq, 1))
		while (st.status == STATUS_WAITING && tei_now_ns() < end)
			getTransferStatus(r->user, id, 0, &st);
	freeBatchID(r->user, id);
	return st.status == STATUS_COMPLETED;
}

struct tei_rail_peer *rig_peer(struct engine *e, segment_id_t id)
{
	struct tei_rail_peer *peer;

	tei_rwlock_read(&e->segments);
	peer = engine_segment_find(e, id)->peer;
	tei_rwlock_unlock(&e->segments);
	return peer;
}

struct staging_remote *rig_remote(struct engine *e)
{
	return staging_remote(e->staging);
}

struct remote_rig rig_open(const char *timeout)
{
	struct remote_rig r = { .id = 1000 };
	segment_id_t seg;
	char name[256];

	if (!rig_driver.init)
		CU_ASSERT_FATAL(cuda_stand_in_load(&rig_driver));
	setenv("MC_SLICE_TIMEOUT", timeout, 1);
	r.target = rig_engine();
	unsetenv("MC_SLICE_TIMEOUT");
	r.user = rig_engine();
	r.hand = rig_engine();
	r.gpu = cuda_stand_in_memory(&rig_driver, 0, RIG_SIZE + RIG_MORE,
				     &r.context);
	r.host = calloc(1, RIG_SIZE);
	CU_ASSERT_FATAL(r.gpu && r.host);
	CU_ASSERT_FATAL(!registerLocalMemory(r.target,
					     (void *)(uintptr_t)r.gpu, RIG_SIZE,
					     "*", 1));
	CU_ASSERT_FATAL(rig_register(&r, r.host));
	CU_ASSERT_FATAL(!getLocalIpAndPort(r.target, name, sizeof(name)));
	r.seg = openSegment(r.user, name);
	seg = openSegment(r.hand, name);
	CU_ASSERT_FATAL(r.seg > 0 && seg > 0);
	CU_ASSERT_FATAL(rig_transfer(&r, OPCODE_WRITE, RIG_SIZE));
	r.peer = rig_peer(r.hand, seg);
	return r;
}

void rig_close(struct remote_rig *r)
{
	destroyTransferEngine(r->user);
	if (r->hand)
		destroyTransferEngine(r->hand);
	destroyTransferEngine(r->target);
	CU_ASSERT(!rig_driver.free(r->gpu));
	CU_ASSERT(!rig_driver.ctx_destroy(r->context));
	CU_ASSERT_EQUAL(rig_driver.left(), 0);
	free(r->host);
}

uint32_t rig_slots(const struct remote_rig *r,
		   bool (*is)(const struct staging_remote_slot *))
{
	struct staging_remote *rs = rig_remote(r->target);
	uint32_t i, k, n = 0;

	tei_mutex_lock(&rs->part.lock);
	for (i = 0; i < TEI_GPU_CONTEXTS; i++)
		for (k = 0; rs->part.pool[i] && k < STAGING_REMOTE_SLOTS; k++)
			n += is(staging_slot_at(rs->part.pool[i], k));
	tei_mutex_unlock(&rs->part.lock);
	return n;
}

bool slot_granted(const struct staging_remote_slot *slot)
{
	return slot->grant != NULL;
}

bool slot_ready(const struct staging_remote_slot *slot)
{
	return slot->slot.mem && !slot->slot.must_renew;
}

bool slot_without_memory(const struct staging_remote_slot *slot)
{
	return !slot->slot.mem;
}

uint32_t rig_quarantined(const struct remote_rig *r)
{
	struct staging_remote *rs = rig_remote(r->target);
	struct tei_list *g;
	uint32_t n = 0;

	tei_mutex_lock(&rs->part.lock);
	for (g = rs->quarantine.next; g != &rs->quarantine; g = g->next)
		n++;
	tei_mutex_unlock(&rs->part.lock);
	return n;
}

void rig_sleep(void)
{
	struct timespec nap = { .tv_nsec = 5000000 };

	nanosleep(&nap, NULL);
}

bool rig_await_slots(const struct remote_rig *r,
		     bool (*is)(const struct staging_remote_slot *), uint32_t n)
{
	uint64_t end = tei_now_ns() + RIG_WAIT;

	while (rig_slots(r, is) != n && tei_now_ns() < end)
		rig_sleep();
	return rig_slots(r, is) == n;
}

bool rig_await_quarantined(const struct remote_rig *r, uint32_t n)
{
	uint64_t end = tei_now_ns() + RIG_WAIT;

	while (rig_quarantined(r) != n && tei_now_ns() < end)
		rig_sleep();
	return rig_quarantined(r) == n;
}
