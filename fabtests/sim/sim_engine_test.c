/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of engines (api) in the simulated world and over the simulated fabric.
 * All engines run in one thread and in virtual time. */

#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_net.h"
#include "fabtests/sim/sim_test.h"
#include "meta/tei_meta_inside.h"
#include "moonrail.h"
#include "transfer_engine_c.h"

#define ENGINE_HOSTS	2
#define ENGINE_NICS	2
#define ENGINE_BYTES	(4u << 20)
#define ENGINE_TASKS	16
#define ENGINE_PART	(ENGINE_BYTES / ENGINE_TASKS)
/* virtual time after which a step of a test has failed, ns */
#define ENGINE_WAIT_NS	(120 * SIM_SEC)

/* The engine of one host. */
struct test_engine {
	struct sim_host *host;
	transfer_engine_t handle;
	char *mem;			/* registered memory, ENGINE_BYTES */
	void *blob;			/* exported descriptor, blob_len
					 * bytes */
	size_t blob_len;
};

static struct test_engine engines[ENGINE_HOSTS];
static bool engines_verbs;

/* The tasks of host 0, and their result. */
static struct test_run {
	batch_id_t batch;
	int64_t timeout_us;		/* deadline of the batch; 0: none */
	bool by_name;			/* open the segment by its name, not by
					 * its blob */
	int waited;			/* result of te_wait_batch */
	struct transfer_status status;
	uint64_t took_ns;		/* time from the submission to the end
					 * of the wait */
} run;

/* --- code of a host --- */

static void *engine_open(void *arg)
{
	static const char *const settings[] = {
		"MOONRAIL_PROVIDER=sim",
		"MOONRAIL_LOCAL=0",
		"MC_WORKERS_PER_CTX=1",
		"MC_SLICE_TIMEOUT=20",
	};
	struct test_engine *t = arg;
	struct te_engine_options options = {
		.metadata = "inside://",
		.server_name = sim_host_id(t->host) ? "host1" : "host0",
		.settings = settings,
		.settings_count = sizeof(settings) / sizeof(settings[0]),
	};
	size_t i;

	CU_ASSERT_EQUAL_FATAL(
		te_engine_create(&options, sizeof(options), &t->handle), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(installTransport(
		t->handle, engines_verbs ? "rdma" : "tcp", NULL));
	CU_ASSERT_EQUAL_FATAL(registerLocalMemory(t->handle, t->mem,
						  ENGINE_BYTES, "cpu:0", 1),
			      0);
	CU_ASSERT_EQUAL_FATAL(
		te_segment_export(t->handle, 0, NULL, &t->blob_len), 0);
	t->blob = malloc(t->blob_len);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t->blob);
	CU_ASSERT_EQUAL_FATAL(
		te_segment_export(t->handle, 0, t->blob, &t->blob_len), 0);
	for (i = 0; i < ENGINE_BYTES; i++)
		t->mem[i] = (char)(i * 13 + (i >> 9) + sim_host_id(t->host));
	return NULL;
}

static void *engine_close(void *arg)
{
	struct test_engine *t = arg;

	CU_ASSERT_EQUAL(unregisterLocalMemory(t->handle, t->mem), 0);
	destroyTransferEngine(t->handle);
	free(t->blob);
	t->blob = NULL;
	return NULL;
}

static segment_id_t engine_segment(struct test_engine *t)
{
	segment_id_t id = -1;

	if (run.by_name)
		return openSegment(t->handle, "host1");
	CU_ASSERT_EQUAL(te_segment_import(t->handle, engines[1].blob,
					  engines[1].blob_len, 0, &id),
			0);
	return id;
}

/* Submits twelve writes and four reads in one batch, and waits for the batch.
 * Each task moves another part of the memory, except the last five bytes of the
 * part. */
static void *engine_move(void *arg)
{
	struct transfer_request requests[ENGINE_TASKS];
	struct test_engine *t = arg;
	segment_id_t id = engine_segment(t);
	uint64_t start = sim_now();
	uint32_t i;

	CU_ASSERT_FATAL(id > 0);
	run.batch = allocateBatchID(t->handle, ENGINE_TASKS);
	if (run.timeout_us)
		CU_ASSERT_EQUAL(te_batch_timeout(t->handle, run.batch,
						 run.timeout_us),
				0);
	memset(requests, 0, sizeof(requests));
	for (i = 0; i < ENGINE_TASKS; i++) {
		requests[i].opcode = i % 4 == 3 ? OPCODE_READ : OPCODE_WRITE;
		requests[i].source = t->mem + i * ENGINE_PART;
		requests[i].target_id = id;
		requests[i].target_offset =
			(uintptr_t)engines[1].mem + i * ENGINE_PART;
		requests[i].length = ENGINE_PART - 5;
	}
	CU_ASSERT_EQUAL(submitTransfer(t->handle, run.batch, requests,
				       ENGINE_TASKS),
			0);
	run.waited = te_wait_batch(t->handle, run.batch, -1, &run.status);
	run.took_ns = sim_now() - start;
	CU_ASSERT_EQUAL(freeBatchID(t->handle, run.batch), 0);
	CU_ASSERT_EQUAL(closeSegment(t->handle, id), 0);
	return NULL;
}

/* --- code of a test --- */

static bool engine_ended(void *arg)
{
	return sim_fiber_ended(arg);
}

static void engine_run(struct test_engine *t, void *(*fn)(void *))
{
	struct sim_fiber *fiber = sim_fiber_start(t->host, "test", fn, t);

	CU_ASSERT_FATAL(sim_run_while(engine_ended, fiber,
				      sim_now() + ENGINE_WAIT_NS));
	sim_fiber_join(fiber);
}

static void engines_begin(uint64_t seed, bool verbs)
{
	struct sim_net_conf net;
	uint32_t i;

	sim_net_provider(NULL);
	sim_world_install();
	if (verbs)
		sim_net_conf_verbs(&net);
	else
		sim_net_conf_tcp(&net);
	engines_verbs = verbs;
	memset(engines, 0, sizeof(engines));
	memset(&run, 0, sizeof(run));
	sim_begin(seed, ENGINE_HOSTS);
	sim_net_begin(&net, ENGINE_NICS);
	for (i = 0; i < ENGINE_HOSTS; i++) {
		engines[i].host = sim_host_get(i);
		engines[i].mem = sim_arena(ENGINE_BYTES, 4096);
		engine_run(&engines[i], engine_open);
	}
}

static void engines_end(void)
{
	struct sim_net_stats stats;
	uint32_t i;

	for (i = 0; i < ENGINE_HOSTS; i++)
		engine_run(&engines[i], engine_close);
	sim_net_stats_get(SIM_NO_HOST, &stats);
	CU_ASSERT_EQUAL(stats.domains + stats.endpoints + stats.mrs +
				stats.queues + stats.avs + stats.counters,
			0);
	sim_net_end();
	sim_end();
	tei_meta_inside_clear();
}

/* Checks that the bytes of all tasks are in place, and that the bytes between
 * them differ as before. */
static void engines_check(void)
{
	unsigned int i;

	CU_ASSERT_EQUAL(run.waited, 0);
	CU_ASSERT_EQUAL(run.status.status, STATUS_COMPLETED);
	CU_ASSERT_EQUAL(run.status.transferred_bytes,
			(uint64_t)ENGINE_TASKS * (ENGINE_PART - 5));
	for (i = 0; i < ENGINE_TASKS; i++) {
		CU_ASSERT(!memcmp(engines[0].mem + i * ENGINE_PART,
				  engines[1].mem + i * ENGINE_PART,
				  ENGINE_PART - 5));
		CU_ASSERT(memcmp(engines[0].mem + (i + 1) * ENGINE_PART - 5,
				 engines[1].mem + (i + 1) * ENGINE_PART - 5,
				 5));
	}
}

static uint64_t engines_move(uint64_t seed, bool verbs, bool by_name)
{
	unsigned int before = sim_test_threads();
	uint64_t hash;

	engines_begin(seed, verbs);
	run.by_name = by_name;
	engine_run(&engines[0], engine_move);
	engines_check();
	CU_ASSERT_EQUAL(sim_test_threads(), before);
	hash = sim_trace_hash();
	engines_end();
	return hash;
}

static void test_bytes_move_between_engines_over_tcp(void)
{
	engines_move(1, false, false);
	engines_move(2, false, true);
}

static void test_bytes_move_between_engines_over_verbs(void)
{
	engines_move(1, true, false);
	engines_move(2, true, true);
}

static void test_same_seed_gives_same_trace(void)
{
	CU_ASSERT_EQUAL(engines_move(5, false, true),
			engines_move(5, false, true));
	CU_ASSERT_NOT_EQUAL(engines_move(5, false, true),
			    engines_move(6, false, true));
}

static void engines_block(void)
{
	unsigned int i, j;

	for (i = 0; i < ENGINE_NICS; i++)
		for (j = 0; j < ENGINE_NICS; j++) {
			sim_net_path_block((struct sim_net_nic){ 0, i },
					   (struct sim_net_nic){ 1, j }, true);
			sim_net_path_block((struct sim_net_nic){ 1, i },
					   (struct sim_net_nic){ 0, j }, true);
		}
}

/* No packet reaches the target, so nothing was posted there, and all tasks end
 * as FAILED when the deadline of the batch passes. */
static void test_deadline_ends_the_tasks_of_a_silent_target(void)
{
	engines_begin(3, false);
	run.timeout_us = 700000;
	engines_block();
	engine_run(&engines[0], engine_move);
	CU_ASSERT_EQUAL(run.waited, 0);
	CU_ASSERT_EQUAL(run.status.status, STATUS_FAILED);
	CU_ASSERT(run.took_ns >= 700 * SIM_MS);
	CU_ASSERT(run.took_ns < 710 * SIM_MS);
	engines_end();
}

const struct tei_test_case sim_engine_cases[] = {
	{ "bytes_move_between_engines_over_tcp",
	  test_bytes_move_between_engines_over_tcp },
	{ "bytes_move_between_engines_over_verbs",
	  test_bytes_move_between_engines_over_verbs },
	{ "same_seed_gives_same_trace", test_same_seed_gives_same_trace },
	{ "deadline_ends_the_tasks_of_a_silent_target",
	  test_deadline_ends_the_tasks_of_a_silent_target },
	{ NULL, NULL },
};
