/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests calls that run while the descriptor or the targets of a segment change,
 * and te_probe_peer. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "api/api_test.h"
#include "api/engine_int.h"

/* Engine in which this thread closes the segment segment_closing at the next
 * time that it locks engine->segments for writing; or NULL. */
static _Thread_local struct engine *segment_closer;
static segment_id_t segment_closing;

/* Replaces the function of the C library, so that a segment can be closed
 * during a refresh (segment_closer). */
int pthread_rwlock_trywrlock(pthread_rwlock_t *lock)
{
	static int (*next)(pthread_rwlock_t *lock);	/* atomic */
	int (*real)(pthread_rwlock_t *lock);
	struct engine *e = segment_closer;
	void *symbol;

	__atomic_load(&next, &real, __ATOMIC_RELAXED);
	if (!real) {
		symbol = dlsym(RTLD_NEXT, "pthread_rwlock_trywrlock");
		memcpy(&real, &symbol, sizeof(real));
		__atomic_store(&next, &real, __ATOMIC_RELAXED);
	}
	if (e && lock == &e->segments.rw) {
		segment_closer = NULL;
		CU_ASSERT(!closeSegment(e, segment_closing));
	}
	return real(lock);
}

/* atomic; 0: probes of local processes do not wait; 1: the next probe waits; 2:
 * a probe is waiting; 3: that probe may continue */
static int segment_probe_held;

static void segment_hold_probe(void)
{
	uint64_t end = tei_now_ns() + 60 * TEI_NS_PER_SEC;
	int next = 1;

	if (!__atomic_compare_exchange_n(&segment_probe_held, &next, 2, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return;
	while (__atomic_load_n(&segment_probe_held, __ATOMIC_ACQUIRE) != 3 &&
	       tei_now_ns() < end)
		usleep(1000);
}

/* Engine for which each probe of a local process by this thread checks that
 * engine->segments is not held for writing; or NULL. segment_probes counts the
 * probes without the lock, segment_probes_locked those with it. */
static _Thread_local struct engine *segment_prober;
static uint32_t segment_probes, segment_probes_locked;

/* Replaces the function of the C library, because each probe of a local process
 * calls it. The library also probes another engine of the same process in this
 * way. */
int mprotect(void *addr, size_t len, int prot)
{
	struct engine *e = segment_prober;

	if (e && !pthread_rwlock_tryrdlock(&e->segments.rw)) {
		tei_rwlock_unlock(&e->segments);
		segment_probes++;
	} else if (e) {
		segment_probes_locked++;
	}
	segment_hold_probe();
	return (int)syscall(SYS_mprotect, addr, len, prot);
}

static transfer_engine_t segment_engine(const char *transport)
{
	transfer_engine_t e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1",
						   "127.0.0.1", 0, 0);

	CU_ASSERT_FATAL(e != NULL);
	if (transport)
		CU_ASSERT_FATAL(installTransport(e, transport, NULL) != NULL);
	return e;
}

static segment_id_t segment_open_name(transfer_engine_t e,
				      transfer_engine_t target)
{
	char name[256];

	CU_ASSERT_FATAL(!getLocalIpAndPort(target, name, sizeof(name)));
	return openSegmentNoCache(e, name);
}

/* Returns true if the segment is open and has a peer. Sets *there to whether it
 * is open. */
static bool segment_leads(transfer_engine_t engine, segment_id_t id,
			  bool *there)
{
	struct engine *e = engine;
	struct engine_segment *s;
	bool leads;

	tei_rwlock_read(&e->segments);
	s = engine_segment_find(e, id);
	*there = s;
	leads = s && s->peer;
	tei_rwlock_unlock(&e->segments);
	return leads;
}

/* Tests that engine->segments is not held while a local process is probed. The
 * probe may take long, and submissions need this lock. */
static void test_probe_of_local_process_holds_no_segments_lock(void)
{
	transfer_engine_t target = segment_engine("local");
	transfer_engine_t e = segment_engine("local");
	segment_id_t seg;
	bool there;

	segment_probes = segment_probes_locked = 0;
	segment_prober = e;
	seg = segment_open_name(e, target);
	CU_ASSERT(seg > 0);
	CU_ASSERT_EQUAL(segment_probes, 1);
	/* a second probe: local copies are switched off and on again */
	CU_ASSERT(!uninstallTransport(e, "local"));
	CU_ASSERT(installTransport(e, "local", NULL) != NULL);
	CU_ASSERT_EQUAL(segment_probes, 2);
	segment_prober = NULL;
	CU_ASSERT_EQUAL(segment_probes_locked, 0);
	segment_leads(e, seg, &there);
	CU_ASSERT(there);
	CU_ASSERT(!closeSegment(e, seg));
	destroyTransferEngine(e);
	destroyTransferEngine(target);
}

/* Copies a few bytes. Sets *ns to the time from the submission to the end.
 * Returns the status of the copy. */
static int segment_copy(transfer_engine_t e, segment_id_t seg, char *from,
			char *to, uint64_t *ns)
{
	transfer_request_t req = { .opcode = OPCODE_WRITE, .source = from,
				   .target_id = seg,
				   .target_offset = (uintptr_t)to,
				   .length = 8 };
	transfer_status_t status = { .status = STATUS_WAITING };
	batch_id_t id = allocateBatchID(e, 1);
	uint64_t begin = tei_now_ns();

	CU_ASSERT_EQUAL(submitTransfer(e, id, &req, 1), 0);
	CU_ASSERT_EQUAL(te_wait_batch(e, id, -1, &status), 0);
	*ns = tei_now_ns() - begin;
	CU_ASSERT_EQUAL(freeBatchID(e, id), 0);
	return status.status;
}

struct segment_opening {
	transfer_engine_t engine, target;
	segment_id_t seg;
};

static void *segment_opener(void *arg)
{
	struct segment_opening *o = arg;

	o->seg = segment_open_name(o->engine, o->target);
	return NULL;
}

/* Tests that a local process which answers slowly delays only the opening of
 * its own segment. */
static void test_transfers_continue_while_local_process_is_probed(void)
{
	transfer_engine_t near = segment_engine("local");
	struct segment_opening o = { .engine = segment_engine("local"),
				     .target = segment_engine("local") };
	uint64_t end = tei_now_ns() + 60 * TEI_NS_PER_SEC, ns;
	static char from[8] = "moving", to[8];
	segment_id_t seg;
	pthread_t thread;

	CU_ASSERT(!registerLocalMemory(near, to, sizeof(to), "cpu:0", 1));
	CU_ASSERT(!registerLocalMemory(o.engine, from, sizeof(from), "cpu:0",
				       0));
	seg = segment_open_name(o.engine, near);
	CU_ASSERT_FATAL(seg > 0);
	__atomic_store_n(&segment_probe_held, 1, __ATOMIC_RELEASE);
	CU_ASSERT_FATAL(!pthread_create(&thread, NULL, segment_opener, &o));
	while (__atomic_load_n(&segment_probe_held, __ATOMIC_ACQUIRE) != 2 &&
	       tei_now_ns() < end)
		usleep(1000);
	CU_ASSERT_EQUAL(segment_copy(o.engine, seg, from, to, &ns),
			STATUS_COMPLETED);
	CU_ASSERT_EQUAL(__atomic_load_n(&segment_probe_held, __ATOMIC_ACQUIRE),
			2);
	/* if engine->segments were held, the copy would have to wait until the
	 * probe ends after 60 s */
	CU_ASSERT(ns < 30 * TEI_NS_PER_SEC);
	__atomic_store_n(&segment_probe_held, 3, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	CU_ASSERT(o.seg > 0);
	CU_ASSERT_EQUAL(memcmp(from, to, sizeof(to)), 0);
	destroyTransferEngine(o.engine);
	destroyTransferEngine(o.target);
	destroyTransferEngine(near);
}

/* Tests a segment that gets no peer, because MOONRAIL_MAX_PEERS allows only one
 * and another segment uses it. When that segment is closed, the first one must
 * get its peer. */
static void test_segment_without_room_for_its_peer_gets_it_later(void)
{
	transfer_engine_t unresolved = segment_engine(NULL);
	transfer_engine_t other = segment_engine("tcp"), e;
	segment_id_t seg, place;
	bool there;

	setenv("MOONRAIL_MAX_PEERS", "1", 1);
	e = segment_engine("tcp");
	unsetenv("MOONRAIL_MAX_PEERS");
	seg = segment_open_name(e, unresolved);
	place = segment_open_name(e, other);
	CU_ASSERT_FATAL(seg > 0 && place > 0);
	CU_ASSERT(!segment_leads(e, seg, &there) && there);
	CU_ASSERT_FATAL(installTransport(unresolved, "tcp", NULL) != NULL);
	CU_ASSERT_EQUAL(segment_open_name(e, unresolved), -1);
	CU_ASSERT(!segment_leads(e, seg, &there) && there);
	CU_ASSERT(!closeSegment(e, place));
	CU_ASSERT_EQUAL(segment_open_name(e, unresolved), seg);
	CU_ASSERT(segment_leads(e, seg, &there));
	destroyTransferEngine(e);
	destroyTransferEngine(other);
	destroyTransferEngine(unresolved);
}

static void test_segment_closed_during_refresh_stays_closed(void)
{
	transfer_engine_t target = segment_engine("tcp");
	transfer_engine_t e = segment_engine("tcp");
	static char mem[64];
	bool there;

	segment_closing = segment_open_name(e, target);
	CU_ASSERT_FATAL(segment_closing > 0);
	/* changes the target's descriptor, so that the refresh replaces it */
	CU_ASSERT(!registerLocalMemory(target, mem, sizeof(mem), "*", 1));
	segment_closer = e;
	syncSegmentCache(e);
	CU_ASSERT(!segment_closer);
	segment_leads(e, segment_closing, &there);
	CU_ASSERT(!there);
	destroyTransferEngine(e);
	destroyTransferEngine(target);
}

static void test_probe_peer_returns_whether_it_answers(void)
{
	transfer_engine_t target = segment_engine("tcp");
	transfer_engine_t e = segment_engine("tcp");
	char name[128], slashed[130];
	struct te_error err;

	CU_ASSERT_FATAL(!getLocalIpAndPort(target, name, sizeof(name)));
	snprintf(slashed, sizeof(slashed), "/%s", name);
	CU_ASSERT_EQUAL(te_probe_peer(e, name, -1), 0);
	CU_ASSERT_EQUAL(te_probe_peer(e, slashed, 60 * 1000000), 0);
	CU_ASSERT_EQUAL(te_probe_peer(e, "not an address", -1), -1);
	destroyTransferEngine(target);
	CU_ASSERT_EQUAL(te_probe_peer(e, name, -1), -102);
	CU_ASSERT(!te_last_error(&err, sizeof(err)) && err.code == -102 &&
		  strstr(err.text, name));
	CU_ASSERT_EQUAL(te_probe_peer(e, NULL, -1), -1);
	CU_ASSERT_EQUAL(te_probe_peer(NULL, name, -1), -1);
	destroyTransferEngine(e);
}

const struct tei_test_case segment_cases[] = {
	{ "segment_without_room_for_its_peer_gets_it_later",
	  test_segment_without_room_for_its_peer_gets_it_later },
	{ "segment_closed_during_refresh_stays_closed",
	  test_segment_closed_during_refresh_stays_closed },
	{ "probe_of_local_process_holds_no_segments_lock",
	  test_probe_of_local_process_holds_no_segments_lock },
	{ "transfers_continue_while_local_process_is_probed",
	  test_transfers_continue_while_local_process_is_probed },
	{ "probe_peer_returns_whether_it_answers",
	  test_probe_peer_returns_whether_it_answers },
	{ NULL, NULL },
};
