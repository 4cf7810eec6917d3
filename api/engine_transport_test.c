/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests the table of transports, with a transport that stores bytes in files
 * (transport_store.c). */
#include <stdlib.h>
#include <string.h>

#include "api/api_test.h"
#include "api/engine_int.h"
#include "api/transport_store.h"

#define STORE_SIZE	4096

struct store_rig {
	transfer_engine_t engine, target;
	char *mem, *there; /* STORE_SIZE bytes each; `mem` is memory of the
			    * engine, `there` memory of the target */
	segment_id_t segment;
	batch_id_t batch;
};

static transfer_engine_t store_engine(void)
{
	static const char *const settings[] = { "MC_SLICE_TIMEOUT=1" };
	struct te_engine_options options = {
		.metadata = "P2PHANDSHAKE", .server_name = "127.0.0.1",
		.settings = settings, .settings_count = 1,
	};
	transfer_engine_t e = NULL;

	CU_ASSERT_FATAL(!te_engine_create(&options, sizeof(options), &e));
	return e;
}

/* Creates two engines. Only transport_store can move bytes between them. */
static struct store_rig store_open(void)
{
	struct store_rig r = { .engine = store_engine(),
			       .target = store_engine() };
	char name[256];

	r.mem = calloc(1, STORE_SIZE);
	r.there = calloc(1, STORE_SIZE);
	CU_ASSERT_FATAL(r.mem && r.there);
	CU_ASSERT_FATAL(!registerLocalMemory(r.engine, r.mem, STORE_SIZE, "*",
					     1) &&
			!registerLocalMemory(r.target, r.there, STORE_SIZE, "*",
					     1));
	CU_ASSERT_FATAL(installTransport(r.engine, "store", NULL) != NULL);
	CU_ASSERT_FATAL(!getLocalIpAndPort(r.target, name, sizeof(name)));
	r.segment = openSegment(r.engine, name);
	CU_ASSERT_FATAL(r.segment > 0);
	r.batch = allocateBatchID(r.engine, 8);
	return r;
}

static void store_close(struct store_rig *r)
{
	CU_ASSERT(!freeBatchID(r->engine, r->batch));
	destroyTransferEngine(r->engine);
	destroyTransferEngine(r->target);
	free(r->mem);
	free(r->there);
}

static int store_submit(struct store_rig *r, int opcode, size_t from,
			size_t length)
{
	struct transfer_request request = {
		.opcode = opcode, .source = r->mem + from,
		.target_id = r->segment,
		.target_offset = (uintptr_t)r->there + 64, .length = length,
	};

	return submitTransfer(r->engine, r->batch, &request, 1);
}

static int store_wait(struct store_rig *r)
{
	struct transfer_status st = { .status = -1 };

	CU_ASSERT(!te_wait_batch(r->engine, r->batch, -1, &st));
	return st.status;
}

static bool store_failed(struct store_rig *r, size_t task, int code)
{
	struct te_error err = { .code = 0 };

	return !te_task_error(r->engine, r->batch, task, &err, sizeof(err)) &&
	       err.code == code && !strcmp(err.rail, "store");
}

static void test_write_and_read_go_through_the_installed_transport(void)
{
	struct store_rig r = store_open();

	memset(r.mem, 7, 100);
	CU_ASSERT(!store_submit(&r, OPCODE_WRITE, 0, 100));
	CU_ASSERT_EQUAL(store_wait(&r), STATUS_COMPLETED);
	CU_ASSERT(!store_submit(&r, OPCODE_READ, 1000, 100));
	CU_ASSERT_EQUAL(store_wait(&r), STATUS_COMPLETED);
	CU_ASSERT(!memcmp(r.mem, r.mem + 1000, 100));
	/* the transport has written to a file, not to the memory of the
	 * target */
	CU_ASSERT_EQUAL(r.there[64], 0);
	store_close(&r);
}

static void test_requests_that_transport_cannot_take_are_refused(void)
{
	struct store_rig r = store_open();
	static char unregistered[8];
	struct te_local from[2] = { { r.mem, 8 }, { r.mem + 8, 8 } };
	struct te_remote to = { (uintptr_t)r.there, 16 };
	struct te_request ranges = {
		.opcode = TE_WRITE, .target_id = r.segment, .local = from,
		.local_count = 2, .remote = &to, .remote_count = 1,
	};
	struct transfer_request request = {
		.opcode = OPCODE_WRITE, .source = unregistered,
		.target_id = r.segment, .target_offset = (uintptr_t)r.there,
		.length = 8,
	};

	CU_ASSERT_EQUAL(store_submit(&r, OPCODE_WRITE, 0, STORE_SIZE), 1);
	CU_ASSERT_EQUAL(submitTransfer(r.engine, r.batch, &request, 1), 3);
	CU_ASSERT_EQUAL(te_submit(r.engine, r.batch, &ranges, sizeof(ranges), 1,
				  0), 8);
	store_close(&r);
}

static void test_error_of_transport_is_error_of_task(void)
{
	struct store_rig r = store_open();

	/* reads a range of a file that does not exist, because nothing was
	 * written to it */
	CU_ASSERT(!store_submit(&r, OPCODE_READ, 0, 8));
	CU_ASSERT_EQUAL(store_wait(&r), STATUS_FAILED);
	CU_ASSERT(store_failed(&r, 0, TEI_ERR_CONTEXT));
	store_close(&r);
}

static void test_cancelled_task_in_queue_of_transport_is_canceled(void)
{
	struct store_rig r = store_open();

	transport_store_pause(true);
	CU_ASSERT(!store_submit(&r, OPCODE_WRITE, 0, 8));
	CU_ASSERT(!te_cancel_batch(r.engine, r.batch));
	CU_ASSERT_EQUAL(store_wait(&r), STATUS_CANCELED);
	CU_ASSERT(store_failed(&r, 0, TEI_ERR_CANCELED));
	store_close(&r);
}

static void test_deadline_ends_task_in_queue_of_transport(void)
{
	struct store_rig r = store_open();

	transport_store_pause(true);
	CU_ASSERT(!store_submit(&r, OPCODE_WRITE, 0, 8));
	CU_ASSERT(!te_batch_deadline(r.engine, r.batch,
				     tei_now_ns() + 20 * TEI_NS_PER_MS));
	CU_ASSERT_EQUAL(store_wait(&r), STATUS_FAILED);
	CU_ASSERT(store_failed(&r, 0, TEI_ERR_TIMED_OUT));
	store_close(&r);
}

static void test_wait_for_task_of_transport_times_out(void)
{
	struct store_rig r = store_open();
	struct transfer_status st;

	transport_store_pause(true);
	CU_ASSERT(!store_submit(&r, OPCODE_WRITE, 0, 8));
	CU_ASSERT_EQUAL(te_wait_batch(r.engine, r.batch, 1000, &st),
			TE_TIMED_OUT);
	CU_ASSERT(!getTransferStatus(r.engine, r.batch, 0, &st));
	CU_ASSERT_EQUAL(st.status, STATUS_WAITING);
	transport_store_pause(false);
	CU_ASSERT_EQUAL(store_wait(&r), STATUS_COMPLETED);
	store_close(&r);
}

static void test_batch_may_use_several_transports(void)
{
	struct store_rig r = store_open();
	struct transfer_request own = {
		.opcode = OPCODE_WRITE, .source = r.mem,
		.target_id = LOCAL_SEGMENT,
		.target_offset = (uintptr_t)r.mem + 2000, .length = 8,
	};

	r.mem[0] = 9;
	CU_ASSERT(!store_submit(&r, OPCODE_WRITE, 0, 8));
	CU_ASSERT(!submitTransfer(r.engine, r.batch, &own, 1));
	CU_ASSERT_EQUAL(store_wait(&r), STATUS_COMPLETED);
	CU_ASSERT_EQUAL(r.mem[2000], 9);
	store_close(&r);
}

static void test_uninstallation_waits_for_tasks_of_transport(void)
{
	struct store_rig r = store_open();

	transport_store_pause(true);
	CU_ASSERT(!store_submit(&r, OPCODE_WRITE, 0, 8));
	CU_ASSERT_EQUAL(uninstallTransport(r.engine, "store"), TEI_ERR_BUSY);
	transport_store_pause(false);
	CU_ASSERT_EQUAL(store_wait(&r), STATUS_COMPLETED);
	CU_ASSERT(!uninstallTransport(r.engine, "store"));
	CU_ASSERT_EQUAL(store_submit(&r, OPCODE_WRITE, 0, 8), 8);
	store_close(&r);
}

const struct tei_test_case transport_cases[] = {
	{ "write_and_read_go_through_the_installed_transport",
	  test_write_and_read_go_through_the_installed_transport },
	{ "requests_that_transport_cannot_take_are_refused",
	  test_requests_that_transport_cannot_take_are_refused },
	{ "error_of_transport_is_error_of_task",
	  test_error_of_transport_is_error_of_task },
	{ "cancelled_task_in_queue_of_transport_is_canceled",
	  test_cancelled_task_in_queue_of_transport_is_canceled },
	{ "deadline_ends_task_in_queue_of_transport",
	  test_deadline_ends_task_in_queue_of_transport },
	{ "wait_for_task_of_transport_times_out",
	  test_wait_for_task_of_transport_times_out },
	{ "batch_may_use_several_transports",
	  test_batch_may_use_several_transports },
	{ "uninstallation_waits_for_tasks_of_transport",
	  test_uninstallation_waits_for_tasks_of_transport },
	{ NULL, NULL },
};
