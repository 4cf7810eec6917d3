/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "api/api_test.h"
#include "api/engine_int.h"
#include "api/engine_transport.h"

static transfer_engine_t status_engine(const char *setting)
{
	struct te_engine_options options = {
		.metadata = "P2PHANDSHAKE", .server_name = "127.0.0.1",
		.settings = &setting, .settings_count = 1,
	};
	transfer_engine_t e = NULL;

	CU_ASSERT_FATAL(!te_engine_create(&options, sizeof(options), &e));
	return e;
}

/* Creates a batch whose only task has ended with that status. */
static batch_id_t status_batch(transfer_engine_t engine, int status)
{
	batch_id_t id = allocateBatchID(engine, 1);
	struct engine_batch *b = engine_batch_lock(engine, id);

	CU_ASSERT_FATAL(b != NULL);
	memset(b->tasks, 0, sizeof(*b->tasks));
	b->tasks->engine = engine;
	b->tasks->batch = b;
	b->tasks->by = &transport_local;
	b->tasks->status = status;
	if (status != STATUS_COMPLETED) {
		b->tasks->err = calloc(1, sizeof(*b->tasks->err));
		CU_ASSERT_FATAL(b->tasks->err != NULL);
		b->tasks->err->code = TEI_ERR_ENDPOINT;
	}
	b->count = 1;
	engine_batch_unlock(b);
	return id;
}

/* Creates an engine with that setting, and a task with that status. Returns the
 * status that getTransferStatus reports. Checks that the other calls report the
 * status of the task. */
static int status_reported(const char *setting, int status)
{
	transfer_engine_t e = status_engine(setting);
	batch_id_t id = status_batch(e, status);
	struct transfer_status st, other;
	struct te_error err;

	CU_ASSERT(!getTransferStatus(e, id, 0, &st));
	CU_ASSERT(!te_batch_status(e, id, &other) && other.status == status);
	CU_ASSERT(!te_wait_batch(e, id, 0, &other) && other.status == status);
	CU_ASSERT(!te_wait_task(e, id, 0, 0, &other) && other.status == status);
	CU_ASSERT(!te_task_error(e, id, 0, &err, sizeof(err)));
	CU_ASSERT_EQUAL(err.flags, status == STATUS_TIMEOUT ? TE_ERROR_UNFENCED :
							     0u);
	CU_ASSERT_EQUAL(freeBatchID(e, id), 0);
	destroyTransferEngine(e);
	return st.status;
}

static void test_unfenced_task_is_failed_by_default(void)
{
	/* the empty value sets the default, whatever the environment
	 * contains */
	CU_ASSERT_EQUAL(status_reported("MC_SLICE_TIMEOUT=", STATUS_TIMEOUT),
			STATUS_FAILED);
}

static void test_unfenced_task_is_timeout_if_slice_timeout_is_set(void)
{
	CU_ASSERT_EQUAL(status_reported("MC_SLICE_TIMEOUT=10", STATUS_TIMEOUT),
			STATUS_TIMEOUT);
}

static void test_other_statuses_are_reported_as_they_are(void)
{
	CU_ASSERT_EQUAL(status_reported("MC_SLICE_TIMEOUT=", STATUS_FAILED),
			STATUS_FAILED);
	CU_ASSERT_EQUAL(status_reported("MC_SLICE_TIMEOUT=", STATUS_CANCELED),
			STATUS_CANCELED);
	CU_ASSERT_EQUAL(status_reported("MC_SLICE_TIMEOUT=", STATUS_COMPLETED),
			STATUS_COMPLETED);
}

const struct tei_test_case status_cases[] = {
	{ "unfenced_task_is_failed_by_default",
	  test_unfenced_task_is_failed_by_default },
	{ "unfenced_task_is_timeout_if_slice_timeout_is_set",
	  test_unfenced_task_is_timeout_if_slice_timeout_is_set },
	{ "other_statuses_are_reported_as_they_are",
	  test_other_statuses_are_reported_as_they_are },
	{ NULL, NULL },
};
