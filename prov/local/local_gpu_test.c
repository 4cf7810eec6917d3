/* SPDX-License-Identifier: BSD-2-Clause */
/* Published GPU memory. No byte of it is accessed, so the tests use addresses at
 * which there is no memory. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "prov/local/local_test.h"
#include "util/clock.h"

#define GPU_ADDR UINT64_C(0x7f0000000000)
#define GPU_LEN	 65536u
#define GPU_SOON (50 * TEI_NS_PER_MS)

struct gpu_fixture {
	struct tei_local *ctx;
	struct test_agent agent;
	struct tei_local_peer *peer;
};

static void *gpu_at(uint64_t i)
{
	return (void *)(uintptr_t)(GPU_ADDR + i * GPU_LEN);
}

static void gpu_open(struct gpu_fixture *f)
{
	char text[TEI_LOCAL_ID_TEXT], own[TEI_LOCAL_ID_TEXT];
	struct tei_local_id id;

	f->ctx = test_ctx(1);
	CU_ASSERT_FATAL(test_agent_start(&f->agent));
	CU_ASSERT_FATAL(sscanf(test_agent_ask(&f->agent, "alloc 4096 1 0"),
			       "%*x %191s", text) == 1);
	CU_ASSERT_FATAL(!tei_local_id_parse(text, &id));
	CU_ASSERT_FATAL(tei_local_peer_open(f->ctx, &id, NULL, &f->peer) ==
			TEI_LOCAL_OK);
	CU_ASSERT(!tei_local_identity(f->ctx, &id));
	CU_ASSERT(!tei_local_id_format(&id, own, sizeof(own)));
	CU_ASSERT(!strcmp(test_agent_ask(&f->agent, "open %s", own), "0"));
}

static void gpu_close(struct gpu_fixture *f)
{
	tei_local_peer_close(f->ctx, f->peer);
	test_agent_stop(&f->agent);
	tei_local_fini(f->ctx);
}

/* Sends a command about the GPU memory i to the agent. Returns its answer. */
static int gpu_ask(struct gpu_fixture *f, const char *verb, uint64_t i)
{
	return atoi(test_agent_ask(&f->agent, "%s %llx %u", verb,
				   (unsigned long long)(uintptr_t)gpu_at(i),
				   GPU_LEN));
}

static void test_memory_of_a_peer_is_found(void)
{
	struct tei_local_gpu g;
	struct gpu_fixture f;
	uint64_t serial, i;

	gpu_open(&f);
	CU_ASSERT(!tei_local_gpu_find(f.peer, GPU_ADDR, 1, &g));
	for (i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(gpu_ask(&f, "gpu", i), 0);
	CU_ASSERT_FATAL(tei_local_gpu_find(f.peer, GPU_ADDR + GPU_LEN + 7,
					   GPU_LEN - 7, &g));
	CU_ASSERT_EQUAL(g.base, GPU_ADDR + GPU_LEN);
	CU_ASSERT_EQUAL(g.len, GPU_LEN);
	for (i = 0; i < TEI_LOCAL_GPU_DATA / 8; i++)
		CU_ASSERT_EQUAL(g.data[i], g.base + i);
	CU_ASSERT(tei_local_gpu_valid(f.peer, g.place, g.serial));
	CU_ASSERT(!tei_local_gpu_valid(f.peer, g.place, g.serial + 1));
	CU_ASSERT(!tei_local_gpu_valid(f.peer, UINT32_MAX, g.serial));
	serial = g.serial;
	CU_ASSERT(!tei_local_gpu_find(f.peer, GPU_ADDR + GPU_LEN + 7,
				      GPU_LEN - 6, &g));
	CU_ASSERT(!tei_local_gpu_find(f.peer, GPU_ADDR + 7, UINT64_MAX - 3,
				      &g));
	CU_ASSERT(!tei_local_gpu_find(f.peer, GPU_ADDR - 1, 2, &g));
	CU_ASSERT_EQUAL(gpu_ask(&f, "ungpu", 1), 0);
	CU_ASSERT_EQUAL(gpu_ask(&f, "ungpu", 1), TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(!tei_local_gpu_valid(f.peer, 1, serial));
	CU_ASSERT(!tei_local_gpu_valid(f.peer, 1, 0));
	CU_ASSERT(!tei_local_gpu_find(f.peer, GPU_ADDR + GPU_LEN, 1, &g));
	CU_ASSERT_EQUAL(gpu_ask(&f, "gpu", 1), 0);
	CU_ASSERT_FATAL(tei_local_gpu_find(f.peer, GPU_ADDR + GPU_LEN, 1, &g));
	CU_ASSERT(g.serial != serial);
	gpu_close(&f);
}

static int gpu_enter(struct gpu_fixture *f, const struct tei_local_gpu *g,
		     void **claim)
{
	struct tei_local_gpu_range range = { .addr = g->base, .len = g->len,
					     .place = g->place,
					     .serial = g->serial };
	struct tei_err err;
	int ret = tei_local_gpu_enter(f->ctx, f->peer, &range, claim, &err);

	CU_ASSERT(!ret || err.code == ret);
	return ret;
}

static void test_memory_stays_while_a_claim_is_held(void)
{
	struct tei_local_gpu g;
	struct gpu_fixture f;
	void *claim;

	gpu_open(&f);
	CU_ASSERT_EQUAL(gpu_ask(&f, "gpu", 0), 0);
	CU_ASSERT_EQUAL(gpu_ask(&f, "gpu", 1), 0);
	CU_ASSERT_FATAL(tei_local_gpu_find(f.peer, GPU_ADDR, 1, &g));
	CU_ASSERT_FATAL(!gpu_enter(&f, &g, &claim));
	CU_ASSERT_EQUAL(gpu_ask(&f, "ungpu", 0), TEI_ERR_BUSY);
	/* other memory is not delayed, and this memory is still there */
	CU_ASSERT_EQUAL(gpu_ask(&f, "ungpu", 1), 0);
	CU_ASSERT(tei_local_gpu_valid(f.peer, g.place, g.serial));
	tei_local_gpu_leave(claim);
	CU_ASSERT_FATAL(!gpu_enter(&f, &g, &claim));
	tei_local_gpu_leave(claim);
	CU_ASSERT_EQUAL(gpu_ask(&f, "ungpu", 0), 0);
	CU_ASSERT_EQUAL(gpu_enter(&f, &g, &claim), TEI_ERR_NOT_REGISTERED);
	/* the same memory is registered again */
	CU_ASSERT_EQUAL(gpu_ask(&f, "gpu", 0), 0);
	CU_ASSERT_EQUAL(gpu_enter(&f, &g, &claim), TEI_ERR_NOT_REGISTERED);
	/* the refused claims are not held */
	CU_ASSERT_EQUAL(gpu_ask(&f, "ungpu", 0), 0);
	gpu_close(&f);
}

static void test_claims_are_limited(void)
{
	void *claim[LOCAL_SLOTS], *more;
	struct tei_local_gpu g;
	struct gpu_fixture f;
	uint32_t i;

	gpu_open(&f);
	CU_ASSERT_EQUAL(gpu_ask(&f, "gpu", 0), 0);
	CU_ASSERT_FATAL(tei_local_gpu_find(f.peer, GPU_ADDR, 1, &g));
	for (i = 0; i < LOCAL_SLOTS; i++)
		CU_ASSERT_FATAL(!gpu_enter(&f, &g, &claim[i]));
	CU_ASSERT_EQUAL(gpu_enter(&f, &g, &more), TEI_ERR_TOO_MANY);
	for (i = 0; i < LOCAL_SLOTS; i++)
		tei_local_gpu_leave(claim[i]);
	CU_ASSERT_EQUAL(gpu_ask(&f, "ungpu", 0), 0);
	gpu_close(&f);
}

static int gpu_remove(struct gpu_fixture *f)
{
	return tei_local_gpu_remove(f->ctx, gpu_at(0), tei_now_ns() + GPU_SOON);
}

static void test_claim_of_a_stopped_process_is_held(void)
{
	uint64_t data[TEI_LOCAL_GPU_DATA / 8] = { 1 };
	struct gpu_fixture f;

	gpu_open(&f);
	CU_ASSERT(!tei_local_gpu_add(f.ctx, gpu_at(0), GPU_LEN, data));
	CU_ASSERT_EQUAL(gpu_ask(&f, "claim", 0), 0);
	CU_ASSERT_EQUAL(gpu_remove(&f), TEI_ERR_BUSY);
	kill(f.agent.pid, SIGSTOP);
	CU_ASSERT(test_agent_stopped(&f.agent));
	CU_ASSERT_EQUAL(gpu_remove(&f), TEI_ERR_BUSY);
	CU_ASSERT(!tei_local_gpu_clear(f.ctx, tei_now_ns() + GPU_SOON));
	kill(f.agent.pid, SIGKILL);
	CU_ASSERT_EQUAL(tei_local_gpu_remove(f.ctx, gpu_at(0),
					     tei_now_ns() + TEST_WAIT_NS), 0);
	CU_ASSERT_EQUAL(gpu_remove(&f), TEI_ERR_NOT_REGISTERED);
	gpu_close(&f);
}

static void test_memory_of_a_peer_that_ended_is_refused(void)
{
	struct timespec nap = { .tv_nsec = 1000000 };
	struct tei_local_gpu g;
	struct gpu_fixture f;
	void *claim;
	int i;

	for (i = 0; i < 2; i++) {
		gpu_open(&f);
		CU_ASSERT_EQUAL(gpu_ask(&f, "gpu", 0), 0);
		CU_ASSERT_FATAL(tei_local_gpu_find(f.peer, GPU_ADDR, 1, &g));
		CU_ASSERT(tei_local_peer_sound(f.peer));
		if (i) {
			test_agent_ask(&f.agent, "exec");
		} else {
			kill(f.agent.pid, SIGKILL);
			while (!tei_local_peer_ended(f.peer))
				nanosleep(&nap, NULL);
			CU_ASSERT(!tei_local_gpu_valid(f.peer, g.place,
						       g.serial));
		}
		CU_ASSERT(!tei_local_peer_sound(f.peer));
		CU_ASSERT_EQUAL(gpu_enter(&f, &g, &claim), TEI_ERR_CONTEXT);
		gpu_close(&f);
	}
}

static void test_table_that_is_overwritten_does_no_harm(void)
{
	struct tei_local_gpu g = { .base = GPU_ADDR, .len = GPU_LEN };
	struct gpu_fixture f;
	void *claim;
	int i;

	gpu_open(&f);
	for (i = 0; i < 6; i++) {
		CU_ASSERT(!strcmp(test_agent_ask(&f.agent, "scribble %d", i),
				  "done"));
		if (tei_local_gpu_find(f.peer, GPU_ADDR, 1, &g))
			CU_ASSERT(g.base <= GPU_ADDR &&
				  g.len > GPU_ADDR - g.base);
		CU_ASSERT(gpu_enter(&f, &g, &claim));
	}
	gpu_close(&f);
}

static void test_number_of_regions_is_limited(void)
{
	uint64_t data[TEI_LOCAL_GPU_DATA / 8] = { 1 };
	struct tei_local *ctx = test_ctx(1);
	uint64_t i;

	for (i = 0; i < LOCAL_GPU; i++)
		CU_ASSERT_FATAL(!tei_local_gpu_add(ctx, gpu_at(i), GPU_LEN,
						   data));
	CU_ASSERT_EQUAL(tei_local_gpu_add(ctx, gpu_at(i), GPU_LEN, data),
			TEI_ERR_TOO_MANY);
	CU_ASSERT_EQUAL(tei_local_gpu_remove(ctx, gpu_at(5), 0), 0);
	CU_ASSERT(!tei_local_gpu_add(ctx, gpu_at(i), GPU_LEN, data));
	CU_ASSERT(tei_local_gpu_clear(ctx, tei_now_ns()));
	CU_ASSERT_EQUAL(tei_local_gpu_remove(ctx, gpu_at(6), 0), 0);
	CU_ASSERT_EQUAL(tei_local_gpu_add(ctx, gpu_at(6), GPU_LEN, data),
			TEI_ERR_CONTEXT);
	tei_local_fini(ctx);
}

const struct tei_test_case local_gpu_cases[] = {
	{ "memory_of_a_peer_is_found", test_memory_of_a_peer_is_found },
	{ "memory_stays_while_a_claim_is_held",
	  test_memory_stays_while_a_claim_is_held },
	{ "claims_are_limited", test_claims_are_limited },
	{ "claim_of_a_stopped_process_is_held",
	  test_claim_of_a_stopped_process_is_held },
	{ "memory_of_a_peer_that_ended_is_refused",
	  test_memory_of_a_peer_that_ended_is_refused },
	{ "table_that_is_overwritten_does_no_harm",
	  test_table_that_is_overwritten_does_no_harm },
	{ "number_of_regions_is_limited", test_number_of_regions_is_limited },
	{ NULL, NULL },
};
