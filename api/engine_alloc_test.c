/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests that a segment can be opened, or opening it fails cleanly, if any one
 * of its memory allocations fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_test.h"
#include "api/engine_int.h"

/* greatest number of allocations of one openSegment */
#define ALLOC_MOST	400
#define ALLOC_LEN	64u

/* the allocation of this thread that fails, counted from now: 1 is the next
 * one; 0: none fails */
static _Thread_local int alloc_left;

void *__real_malloc(size_t len);
void *__real_calloc(size_t n, size_t len);
void *__real_realloc(void *p, size_t len);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t len);
void *__wrap_calloc(size_t n, size_t len);
void *__wrap_realloc(void *p, size_t len);
char *__wrap_strdup(const char *text);

static bool alloc_fails(void)
{
	return alloc_left > 0 && !--alloc_left;
}

void *__wrap_malloc(size_t len)
{
	return alloc_fails() ? NULL : __real_malloc(len);
}

void *__wrap_calloc(size_t n, size_t len)
{
	return alloc_fails() ? NULL : __real_calloc(n, len);
}

void *__wrap_realloc(void *p, size_t len)
{
	return alloc_fails() ? NULL : __real_realloc(p, len);
}

char *__wrap_strdup(const char *text)
{
	return alloc_fails() ? NULL : __real_strdup(text);
}

static transfer_engine_t alloc_engine(void)
{
	const char *const settings[] = { "MOONRAIL_DEVICES=127.0.0.1" };
	const struct te_engine_options o = {
		.metadata = "P2PHANDSHAKE", .server_name = "127.0.0.1",
		.settings = settings, .settings_count = 1,
	};
	transfer_engine_t e = NULL;

	CU_ASSERT_EQUAL_FATAL(te_engine_create(&o, sizeof(o), &e), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(installTransport(e, "tcp", NULL));
	return e;
}

static int alloc_write(transfer_engine_t e, segment_id_t seg, char *from,
		       char *to)
{
	transfer_request_t req = { .opcode = OPCODE_WRITE, .source = from,
				   .target_id = seg,
				   .target_offset = (uintptr_t)to,
				   .length = ALLOC_LEN };
	transfer_status_t status = { .status = STATUS_WAITING };
	batch_id_t id = allocateBatchID(e, 1);

	CU_ASSERT_EQUAL(submitTransfer(e, id, &req, 1), 0);
	CU_ASSERT_EQUAL(te_wait_batch(e, id, -1, &status), 0);
	CU_ASSERT_EQUAL(freeBatchID(e, id), 0);
	return status.status;
}

/*
 * Opens the segment while the n-th allocation fails. Checks that the segment
 * works if openSegment succeeds. Otherwise checks that there is an error record
 * and that the next openSegment succeeds. Returns false if openSegment made
 * fewer than n allocations.
 */
static bool alloc_open(transfer_engine_t e, const char *name, int n, char *from,
		       char *to)
{
	struct te_error err;
	segment_id_t seg;
	bool failed;

	/* sets another last error, so that the error of an earlier call is not
	 * taken for that of the call below */
	CU_ASSERT_EQUAL(openSegment(e, ""), -1);
	alloc_left = n;
	seg = openSegment(e, name);
	failed = !alloc_left;
	alloc_left = 0;
	if (seg < 0) {
		CU_ASSERT(failed);
		CU_ASSERT_EQUAL(te_last_error(&err, sizeof(err)), 0);
		CU_ASSERT_EQUAL(err.code, TEI_ERR_MEMORY);
		seg = openSegment(e, name);
	}
	CU_ASSERT_FATAL(seg > 0);
	memset(from, n, ALLOC_LEN);
	CU_ASSERT_EQUAL(alloc_write(e, seg, from, to), STATUS_COMPLETED);
	CU_ASSERT_EQUAL(memcmp(from, to, ALLOC_LEN), 0);
	CU_ASSERT_EQUAL(closeSegment(e, seg), 0);
	return failed;
}

static void test_failed_allocation_leaves_an_error_or_a_working_segment(void)
{
	transfer_engine_t target = alloc_engine(), e;
	static char from[ALLOC_LEN], to[ALLOC_LEN];
	bool failed = true;
	char name[256];
	int n;

	CU_ASSERT_EQUAL(registerLocalMemory(target, to, sizeof(to), "*", 1), 0);
	CU_ASSERT_FATAL(!getLocalIpAndPort(target, name, sizeof(name)));
	/* uses a new engine in each round, because the engine must not know the
	 * peer before */
	for (n = 1; failed && n < ALLOC_MOST; n++) {
		e = alloc_engine();
		CU_ASSERT_EQUAL(registerLocalMemory(e, from, sizeof(from), "*",
						    0), 0);
		failed = alloc_open(e, name, n, from, to);
		destroyTransferEngine(e);
	}
	fprintf(stderr, "# %d allocations were made to fail\n", n - 2);
	CU_ASSERT(n > 10);
	CU_ASSERT(!failed);
	destroyTransferEngine(target);
}

const struct tei_test_case alloc_cases[] = {
	{ "failed_allocation_leaves_an_error_or_a_working_segment",
	  test_failed_allocation_leaves_an_error_or_a_working_segment },
	{ NULL, NULL },
};
