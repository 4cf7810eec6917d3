/* SPDX-License-Identifier: BSD-2-Clause */
/* Published GPU memory. No byte of it is accessed, so the tests use addresses at
 * which there is no memory. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
	CU_ASSERT(!tei_local_gpu_add(f.ctx, gpu_at(0), GPU_LEN, data,
					    NULL, 0));
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

static int gpu_files(struct gpu_fixture *f, uint64_t i, unsigned int n)
{
	return atoi(test_agent_ask(&f->agent, "files %llx %u %u",
				   (unsigned long long)(uintptr_t)gpu_at(i),
				   GPU_LEN, n));
}

static int gpu_fds(struct gpu_fixture *f)
{
	return atoi(test_agent_ask(&f->agent, "fds"));
}

static void gpu_files_close(struct tei_local_gpu_file *files, uint32_t n)
{
	while (n)
		close(files[--n].fd);
}

/* Returns true if the files are those that the agent has published. */
static bool gpu_files_right(const struct tei_local_gpu_file *files, uint32_t n)
{
	char byte;
	uint32_t i;

	for (i = 0; i < n; i++)
		if (pread(files[i].fd, &byte, 1, 0) != 1 || byte != (char)i ||
		    files[i].number != 1000 + i ||
		    !(fcntl(files[i].fd, F_GETFD) & FD_CLOEXEC))
			return false;
	return true;
}

/* A peer cannot make this process read more files than there is room for, or
 * files outside the table. */
static void test_law8_files_outside_the_table_are_refused(void)
{
	static const struct { uint32_t first, n; } forged[] = {
		{ 0, TEI_LOCAL_GPU_FILES + 1 },
		{ LOCAL_GPU_FILES - 2, 3 },
		{ LOCAL_GPU_FILES, 1 },
		{ UINT32_MAX, 1 },
		{ 1, UINT32_MAX },
	};
	struct tei_local_gpu g;
	struct gpu_fixture f;
	size_t i;

	gpu_open(&f);
	CU_ASSERT_EQUAL(gpu_files(&f, 0, 3), 0);
	CU_ASSERT(tei_local_gpu_find(f.peer, GPU_ADDR, 1, &g));
	for (i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
		test_agent_ask(&f.agent, "forge %u %u", forged[i].first,
			       forged[i].n);
		CU_ASSERT(!tei_local_gpu_find(f.peer, GPU_ADDR, 1, &g));
	}
	gpu_close(&f);
}

static void test_files_of_a_peer_are_duplicated(void)
{
	struct tei_local_gpu_file files[TEI_LOCAL_GPU_FILES];
	struct tei_local_gpu g, other;
	struct gpu_fixture f;
	struct tei_err err;
	int here, there;
	void *claim;

	gpu_open(&f);
	/* the first region starts a thread, which has files of its own */
	CU_ASSERT_EQUAL(gpu_ask(&f, "gpu", 3), 0);
	there = gpu_fds(&f);
	here = test_fds();
	CU_ASSERT_EQUAL(gpu_files(&f, 0, 3), 0);
	CU_ASSERT_EQUAL(gpu_files(&f, 1, 70), 0);
	CU_ASSERT_EQUAL(gpu_files(&f, 2, 0), 0);
	CU_ASSERT_EQUAL(gpu_fds(&f), there + 73);
	CU_ASSERT_FATAL(tei_local_gpu_find(f.peer, GPU_ADDR + 2 * GPU_LEN, 1,
					   &other));
	CU_ASSERT_EQUAL(other.files, 0);
	CU_ASSERT_FATAL(tei_local_gpu_find(f.peer, GPU_ADDR + GPU_LEN, 1, &g));
	CU_ASSERT_EQUAL_FATAL(g.files, 70);
	CU_ASSERT_EQUAL(tei_local_gpu_files(f.peer, &g, files, &err), 0);
	CU_ASSERT(gpu_files_right(files, 70));
	gpu_files_close(files, 70);
	/* a region that stays published keeps its files */
	CU_ASSERT_FATAL(!gpu_enter(&f, &g, &claim));
	CU_ASSERT_EQUAL(gpu_ask(&f, "ungpu", 1), TEI_ERR_BUSY);
	CU_ASSERT_EQUAL(tei_local_gpu_files(f.peer, &g, files, &err), 0);
	CU_ASSERT(gpu_files_right(files, 70));
	gpu_files_close(files, 70);
	tei_local_gpu_leave(claim);
	CU_ASSERT_EQUAL(gpu_ask(&f, "ungpu", 1), 0);
	CU_ASSERT_EQUAL(gpu_fds(&f), there + 3);
	/* the numbers of the file descriptors may be in use again */
	CU_ASSERT_EQUAL(gpu_files(&f, 1, 70), 0);
	CU_ASSERT_EQUAL(tei_local_gpu_files(f.peer, &g, files, &err),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(gpu_ask(&f, "ungpu", 1), 0);
	CU_ASSERT_EQUAL(tei_local_gpu_files(f.peer, &g, files, &err),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(gpu_ask(&f, "ungpu", 0), 0);
	CU_ASSERT_EQUAL(gpu_fds(&f), there);
	CU_ASSERT_EQUAL(test_fds(), here);
	gpu_close(&f);
}

static void test_wrong_files_are_refused(void)
{
	struct tei_local_gpu_file files[TEI_LOCAL_GPU_FILES];
	struct local_gpu_file *shared;
	struct gpu_fixture f;
	struct tei_local_gpu g;
	struct tei_err err;
	int here, fd;

	gpu_open(&f);
	CU_ASSERT_EQUAL(gpu_files(&f, 0, 3), 0);
	here = test_fds();
	CU_ASSERT_FATAL(tei_local_gpu_find(f.peer, GPU_ADDR, 1, &g));
	shared = &f.peer->shared_table->gpu_files[g.first + 1];
	fd = (int)atomic_load(&shared->fd);
	/* the program has closed the file, and then has opened another one */
	CU_ASSERT(!strcmp(test_agent_ask(&f.agent, "unfile %d", fd), "0"));
	CU_ASSERT_EQUAL(tei_local_gpu_files(f.peer, &g, files, &err),
			TEI_ERR_UNSUPPORTED);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "pidfd_getfd"));
	CU_ASSERT_EQUAL(test_fds(), here);
	CU_ASSERT_EQUAL(gpu_files(&f, 1, 1), 0);
	CU_ASSERT_EQUAL(tei_local_gpu_files(f.peer, &g, files, &err),
			TEI_ERR_UNSUPPORTED);
	CU_ASSERT_EQUAL(test_fds(), here);
	gpu_close(&f);
}

static void test_files_of_a_peer_that_ended_are_refused(void)
{
	struct tei_local_gpu_file files[TEI_LOCAL_GPU_FILES];
	struct timespec nap = { .tv_nsec = 1000000 };
	struct gpu_fixture f;
	struct tei_local_gpu g;
	struct tei_err err;
	int here, i;

	for (i = 0; i < 2; i++) {
		gpu_open(&f);
		CU_ASSERT_EQUAL(gpu_files(&f, 0, 3), 0);
		CU_ASSERT_FATAL(tei_local_gpu_find(f.peer, GPU_ADDR, 1, &g));
		here = test_fds();
		if (i)
			test_agent_ask(&f.agent, "exec");
		else
			kill(f.agent.pid, SIGKILL);
		while (!i && !tei_local_peer_ended(f.peer))
			nanosleep(&nap, NULL);
		CU_ASSERT_EQUAL(tei_local_gpu_files(f.peer, &g, files, &err),
				TEI_ERR_CONTEXT);
		CU_ASSERT_EQUAL(test_fds(), here);
		gpu_close(&f);
	}
}

static void test_number_of_files_is_limited(void)
{
	struct tei_local_gpu_file files[TEI_LOCAL_GPU_FILES + 1];
	uint64_t data[TEI_LOCAL_GPU_DATA / 8] = { 1 };
	struct tei_local *ctx = test_ctx(1);
	uint64_t i;
	int before, fd;

	for (i = 0; i <= TEI_LOCAL_GPU_FILES; i++)
		files[i] = (struct tei_local_gpu_file){ .fd = 1000000 };
	CU_ASSERT_EQUAL(tei_local_gpu_add(ctx, gpu_at(0), GPU_LEN, data, files,
					  TEI_LOCAL_GPU_FILES + 1),
			TEI_ERR_TOO_MANY);
	for (i = 0; i < LOCAL_GPU_FILES / TEI_LOCAL_GPU_FILES; i++)
		CU_ASSERT_FATAL(!tei_local_gpu_add(ctx, gpu_at(i), GPU_LEN,
						   data, files,
						   TEI_LOCAL_GPU_FILES));
	CU_ASSERT_EQUAL(tei_local_gpu_add(ctx, gpu_at(i), GPU_LEN, data, files,
					  1), TEI_ERR_TOO_MANY);
	/* a gap that is too small, and one that is large enough */
	CU_ASSERT_EQUAL(tei_local_gpu_remove(ctx, gpu_at(3), 0), 0);
	CU_ASSERT_EQUAL(tei_local_gpu_add(ctx, gpu_at(3), GPU_LEN, data, files,
					  1), 0);
	CU_ASSERT_EQUAL(tei_local_gpu_add(ctx, gpu_at(i), GPU_LEN, data, files,
					  TEI_LOCAL_GPU_FILES),
			TEI_ERR_TOO_MANY);
	before = test_fds();
	fd = memfd_create("file", MFD_CLOEXEC);
	files[TEI_LOCAL_GPU_FILES - 2].fd = fd;
	CU_ASSERT_EQUAL(tei_local_gpu_add(ctx, gpu_at(i), GPU_LEN, data, files,
					  TEI_LOCAL_GPU_FILES - 1), 0);
	CU_ASSERT_EQUAL(test_fds(), before + 1);
	/* the context closes the files of memory that is still published */
	tei_local_fini(ctx);
	CU_ASSERT_EQUAL(fcntl(fd, F_GETFD), -1);
}

static void test_number_of_regions_is_limited(void)
{
	uint64_t data[TEI_LOCAL_GPU_DATA / 8] = { 1 };
	struct tei_local *ctx = test_ctx(1);
	uint64_t i;

	for (i = 0; i < LOCAL_GPU; i++)
		CU_ASSERT_FATAL(!tei_local_gpu_add(ctx, gpu_at(i), GPU_LEN,
						   data, NULL, 0));
	CU_ASSERT_EQUAL(tei_local_gpu_add(ctx, gpu_at(i), GPU_LEN, data, NULL,
					  0),
			TEI_ERR_TOO_MANY);
	CU_ASSERT_EQUAL(tei_local_gpu_remove(ctx, gpu_at(5), 0), 0);
	CU_ASSERT(!tei_local_gpu_add(ctx, gpu_at(i), GPU_LEN, data,
					    NULL, 0));
	CU_ASSERT(tei_local_gpu_clear(ctx, tei_now_ns()));
	CU_ASSERT_EQUAL(tei_local_gpu_remove(ctx, gpu_at(6), 0), 0);
	CU_ASSERT_EQUAL(tei_local_gpu_add(ctx, gpu_at(6), GPU_LEN, data, NULL,
					  0),
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
	{ "law8_files_outside_the_table_are_refused",
	  test_law8_files_outside_the_table_are_refused },
	{ "files_of_a_peer_are_duplicated",
	  test_files_of_a_peer_are_duplicated },
	{ "wrong_files_are_refused", test_wrong_files_are_refused },
	{ "files_of_a_peer_that_ended_are_refused",
	  test_files_of_a_peer_that_ended_are_refused },
	{ "number_of_files_is_limited", test_number_of_files_is_limited },
	{ "number_of_regions_is_limited", test_number_of_regions_is_limited },
	{ NULL, NULL },
};
