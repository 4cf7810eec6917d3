/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of runs: several operations that one system call copies. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "prov/local/local_test.h"
#include "util/clock.h"

#define RUN_MEM (4u << 20)
#define RUN_OPS 3000

struct run_rig {
	struct tei_local *ctx;
	struct test_agent agent;
	struct tei_local_peer *peer;
	uint64_t remote;       /* memory of the agent, RUN_MEM bytes */
	unsigned char *mem;    /* registered memory of this process */
	unsigned char *shadow; /* expected content of the agent's memory */
	struct tei_local_op op[RUN_OPS];
	struct tei_local_op *list[RUN_OPS];
};

/* Opens the rig. The agent, which is the second process of the test, registers
 * its memory with the given access. */
static struct run_rig *run_open_as(unsigned int access)
{
	struct run_rig *r = calloc(1, sizeof(*r));
	char text[TEI_LOCAL_ID_TEXT];
	unsigned long long addr;
	struct tei_local_id id;

	CU_ASSERT_FATAL(r != NULL);
	r->ctx = test_ctx(2);
	r->mem = malloc(RUN_MEM + 4096); /* the bytes after RUN_MEM are in
					  * another region */
	r->shadow = malloc(RUN_MEM);
	test_fill(r->mem, RUN_MEM, 1);
	test_fill(r->shadow, RUN_MEM, 2);
	CU_ASSERT_FATAL(!tei_local_region_add(r->ctx, r->mem, RUN_MEM,
					      TEI_LOCAL_REMOTE));
	CU_ASSERT_FATAL(test_agent_start(&r->agent));
	CU_ASSERT_FATAL(sscanf(test_agent_ask(&r->agent, "alloc %u %u", RUN_MEM,
					      access),
			       "%llx %191s", &addr, text) == 2);
	test_agent_ask(&r->agent, "fill 2");
	r->remote = addr;
	CU_ASSERT_FATAL(!tei_local_id_parse(text, &id));
	CU_ASSERT_FATAL(!tei_local_peer_open(r->ctx, &id, NULL, &r->peer));
	return r;
}

static struct run_rig *run_open(void)
{
	return run_open_as(TEI_LOCAL_REMOTE);
}

static void run_close(struct run_rig *r)
{
	tei_local_peer_close(r->ctx, r->peer);
	test_agent_stop(&r->agent);
	tei_local_fini(r->ctx);
	free(r->mem);
	free(r->shadow);
	free(r);
}

static bool run_target_right(struct run_rig *r)
{
	char text[32];

	snprintf(text, sizeof(text), "%llx",
		 (unsigned long long)test_hash(r->shadow, RUN_MEM));
	return !strcmp(test_agent_ask(&r->agent, "hash"), text);
}

/* Sets operation i of the run. "at" is its offset, both in the agent's memory
 * and in mem. */
static void run_set(struct run_rig *r, size_t i, enum tei_local_opcode opcode,
		    uint64_t at, uint64_t length)
{
	struct tei_local_op *op = &r->op[i];

	memset(op, 0, sizeof(*op));
	op->peer = r->peer;
	op->opcode = opcode;
	op->registered = true;
	op->local = r->mem + at;
	op->remote = r->remote + at;
	op->length = length;
	r->list[i] = op;
}

/* Copies the n operations in runs, as few as possible. Returns true if all of
 * them were copied. */
static bool run_all(struct run_rig *r, size_t n)
{
	size_t at = 0, did = 1;

	while (at < n && did) {
		did = tei_local_copy_run(r->ctx, r->list + at, n - at);
		at += did;
	}
	return at == n;
}

static void test_run_copies_every_byte(void)
{
	struct run_rig *r = run_open();
	uint64_t state = 7, len, at, total = 0;
	size_t i;

	for (i = 0; i < RUN_OPS; i++) {
		len = 1 + test_random(&state) % 3000;
		at = test_random(&state) % (RUN_MEM - len);
		run_set(r, i, TEI_LOCAL_WRITE, at, len);
		memcpy(r->shadow + at, r->mem + at, len);
		total += len;
	}
	CU_ASSERT(total > 2 * TEI_LOCAL_PIECE);
	CU_ASSERT(run_all(r, RUN_OPS));
	CU_ASSERT(run_target_right(r));
	for (i = 0; i < RUN_OPS; i++)
		r->op[i].opcode = TEI_LOCAL_READ;
	test_fill(r->mem, RUN_MEM, 3);
	CU_ASSERT(run_all(r, RUN_OPS));
	for (i = 0; i < RUN_OPS; i++) {
		at = r->op[i].remote - r->remote;
		CU_ASSERT(
			!memcmp(r->mem + at, r->shadow + at, r->op[i].length));
	}
	run_close(r);
}

static void test_run_ends_before_other_operations(void)
{
	struct run_rig *r = run_open();
	struct tei_local_op *op = &r->op[5];
	char stray[64];
	size_t i;

	for (i = 0; i < 10; i++)
		run_set(r, i, TEI_LOCAL_READ, 4096 * i, 64);
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 10) == 10);
	op->opcode = TEI_LOCAL_WRITE;
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 10) == 5);
	run_set(r, 5, TEI_LOCAL_READ, 0, TEI_LOCAL_INLINE + 1);
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 10) == 5);
	run_set(r, 5, TEI_LOCAL_READ, 0, 64);
	op->local = stray; /* memory that is not registered */
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 10) == 5);
	op->registered = false;
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 10) == 10);
	op->peer = NULL;
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 10) == 5);
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 1) == 0);
	for (i = 0; i < 10; i++)
		run_set(r, i, TEI_LOCAL_READ, 0, TEI_LOCAL_INLINE);
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 10) == 4);
	run_close(r);
}

static void test_law8_run_outside_the_region_is_refused(void)
{
	struct run_rig *r = run_open();
	size_t i;

	for (i = 0; i < 10; i++)
		run_set(r, i, TEI_LOCAL_WRITE, 4096 * i, 64);
	for (i = 0; i < 5; i++)
		memcpy(r->shadow + 4096 * i, r->mem + 4096 * i, 64);
	r->op[5].remote = r->remote - 1;
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 10) == 5);
	r->op[5].remote = r->remote + RUN_MEM - 63;
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 10) == 5);
	r->op[5].remote = UINT64_MAX - 8;
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 10) == 5);
	r->op[0].remote = r->remote - 1;
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 10) == 0);
	CU_ASSERT(run_target_right(r));
	CU_ASSERT(!strcmp(test_agent_ask(&r->agent, "remove"), "0"));
	run_set(r, 0, TEI_LOCAL_WRITE, 0, 64);
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 5) == 0);
	CU_ASSERT(run_target_right(r));
	run_close(r);
}

static void test_law8_run_without_access_is_refused(void)
{
	struct run_rig *r = run_open_as(TEI_LOCAL_REMOTE | TEI_LOCAL_READ_ONLY);
	size_t i;

	for (i = 0; i < 8; i++)
		run_set(r, i, TEI_LOCAL_WRITE, 4096 * i, 64);
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 8) == 0);
	CU_ASSERT(run_target_right(r));
	for (i = 0; i < 8; i++)
		r->op[i].opcode = TEI_LOCAL_READ;
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 8) == 8);
	run_close(r);
	r = run_open_as(0);
	for (i = 0; i < 8; i++)
		run_set(r, i, TEI_LOCAL_READ, 4096 * i, 64);
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 8) == 0);
	run_close(r);
}

static void test_run_counts_complete_operations_before_a_fault(void)
{
	struct run_rig *r = run_open();
	size_t i;

	CU_ASSERT(!strcmp(test_agent_ask(&r->agent, "unmap"), "0"));
	for (i = 0; i < 8; i++) /* the targets of operations 4 to 7 are not
				 * mapped */
		run_set(r, i, TEI_LOCAL_WRITE, RUN_MEM / 8 * i, 4096);
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 8) == 4);
	CU_ASSERT(tei_local_copy_op(r->ctx, r->list[3], NULL) == 0);
	CU_ASSERT(tei_local_copy_op(r->ctx, r->list[4], NULL) ==
		  TEI_ERR_CONTEXT);
	run_close(r);
}

static void test_run_to_a_replaced_process_copies_nothing(void)
{
	struct run_rig *r = run_open();
	size_t i;

	for (i = 0; i < 8; i++)
		run_set(r, i, TEI_LOCAL_WRITE, 4096 * i, 4096);
	CU_ASSERT(!strcmp(test_agent_ask(&r->agent, "cover"), "0"));
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 8) == 0);
	for (i = 0; i < 8; i++)
		r->op[i].opcode = TEI_LOCAL_READ;
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 8) == 0);
	CU_ASSERT(run_target_right(r));
	test_agent_stop(&r->agent);
	CU_ASSERT(tei_local_copy_run(r->ctx, r->list, 8) == 0);
	run_close(r);
}

/* ---- queued operations --------------------------------------------------- */

/* Submits n small operations and checks the code of each. One in "bad"
 * operations is outside the region and must be refused; if "bad" is 0, none
 * is. */
static void run_queue(struct run_rig *r, struct test_op *t, size_t n,
		      size_t bad)
{
	size_t i, wrong = 0;
	uint64_t at;
	int code;

	for (i = 0; i < n; i++) {
		at = RUN_MEM / n * i;
		test_op_init(&t[i], r->peer, TEI_LOCAL_WRITE, r->mem + at,
			     r->remote + (bad && i % bad == 1 ? RUN_MEM : at),
			     1000);
		if (!bad || i % bad != 1)
			memcpy(r->shadow + at, r->mem + at, 1000);
		CU_ASSERT(!tei_local_submit(r->ctx, &t[i].op));
	}
	for (i = 0; i < n; i++) {
		code = test_op_wait(&t[i]);
		wrong += code != (bad && i % bad == 1 ? TEI_ERR_NOT_REGISTERED
						      : 0) ||
			 t[i].calls != 1 || (!code && t[i].bytes != 1000);
	}
	CU_ASSERT_EQUAL(wrong, 0);
	CU_ASSERT(tei_local_drain(r->ctx, tei_now_ns() + TEST_WAIT_NS));
	for (i = 0; i < n; i++)
		test_op_fini(&t[i]);
	CU_ASSERT(run_target_right(r));
}

static void test_queued_run_fails_only_the_bad_operation(void)
{
	struct test_op *t = calloc(1000, sizeof(*t));
	struct run_rig *r = run_open();

	run_queue(r, t, 1000, 0);
	run_queue(r, t, 1000, 7);
	run_queue(r, t, 1000, 2);
	run_close(r);
	free(t);
}

/* ---- removal ------------------------------------------------------------- */

static void test_remove_waits_for_a_stopped_run(void)
{
	struct run_rig *r = run_open();
	unsigned char *other = r->mem + RUN_MEM, *before = malloc(RUN_MEM);
	char text[TEI_LOCAL_ID_TEXT];
	struct tei_local_id id;

	CU_ASSERT(!tei_local_identity(r->ctx, &id));
	CU_ASSERT(!tei_local_id_format(&id, text, sizeof(text)));
	CU_ASSERT(!tei_local_region_add(r->ctx, other, 4096, TEI_LOCAL_REMOTE));
	CU_ASSERT(!strcmp(test_agent_ask(&r->agent, "open %s", text), "0"));
	test_agent_ask(&r->agent, "hook");
	/* 64 operations of 1000 bytes, distributed over the whole region */
	test_agent_send(&r->agent, "run %llx %u 64 1000",
			(unsigned long long)test_addr(r->mem), RUN_MEM / 64);
	CU_ASSERT_FATAL(test_agent_stopped(&r->agent));
	CU_ASSERT(tei_local_region_remove(r->ctx, r->mem, 0,
					  tei_now_ns() + 20 * TEI_NS_PER_MS) ==
		  TEI_ERR_BUSY);
	/* the removal of another region must not be delayed */
	CU_ASSERT(!tei_local_region_remove(r->ctx, other, 0,
					   tei_now_ns() + TEST_WAIT_NS));
	kill(r->agent.pid, SIGCONT);
	CU_ASSERT(!tei_local_region_remove(r->ctx, r->mem, 0,
					   tei_now_ns() + TEST_WAIT_NS));
	memcpy(before, r->mem, RUN_MEM);
	CU_ASSERT(test_agent_wait(&r->agent));
	CU_ASSERT(!strcmp(r->agent.answer, "64"));
	CU_ASSERT(!memcmp(before, r->mem, RUN_MEM));
	CU_ASSERT(!strcmp(test_agent_ask(&r->agent, "run %llx 4096 64 1000",
					 (unsigned long long)test_addr(r->mem)),
			  "0"));
	CU_ASSERT(!memcmp(before, r->mem, RUN_MEM));
	run_close(r);
	free(before);
}

static void test_remove_outlives_a_killed_run(void)
{
	struct run_rig *r = run_open();
	char text[TEI_LOCAL_ID_TEXT];
	struct tei_local_id id;

	CU_ASSERT(!tei_local_identity(r->ctx, &id));
	CU_ASSERT(!tei_local_id_format(&id, text, sizeof(text)));
	CU_ASSERT(!strcmp(test_agent_ask(&r->agent, "open %s", text), "0"));
	test_agent_ask(&r->agent, "hook");
	test_agent_send(&r->agent, "run %llx 4096 64 1000",
			(unsigned long long)test_addr(r->mem));
	CU_ASSERT_FATAL(test_agent_stopped(&r->agent));
	kill(r->agent.pid, SIGKILL);
	CU_ASSERT(!tei_local_region_remove(r->ctx, r->mem, 0,
					   tei_now_ns() + TEST_WAIT_NS));
	run_close(r);
}

const struct tei_test_case local_run_cases[] = {
	{ "run_copies_every_byte", test_run_copies_every_byte },
	{ "run_ends_before_other_operations",
	  test_run_ends_before_other_operations },
	{ "law8_run_outside_the_region_is_refused",
	  test_law8_run_outside_the_region_is_refused },
	{ "law8_run_without_access_is_refused",
	  test_law8_run_without_access_is_refused },
	{ "run_counts_complete_operations_before_a_fault",
	  test_run_counts_complete_operations_before_a_fault },
	{ "run_to_a_replaced_process_copies_nothing",
	  test_run_to_a_replaced_process_copies_nothing },
	{ "queued_run_fails_only_the_bad_operation",
	  test_queued_run_fails_only_the_bad_operation },
	{ "remove_waits_for_a_stopped_run",
	  test_remove_waits_for_a_stopped_run },
	{ "remove_outlives_a_killed_run", test_remove_outlives_a_killed_run },
	{ NULL, NULL },
};
