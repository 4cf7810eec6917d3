/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests memory that peers can map: its files, and the mappings of a second
 * process, the agent.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prov/local/local_memfd.h"
#include "prov/local/local_test.h"
#include "util/clock.h"

#define VIEW_MEM	(1u << 20)
#define VIEW_PAGE	65536u
#define VIEW_WINDOW	(UINT64_C(4) << 30)	/* size of a window */
#define VIEW_GRANULE	(UINT64_C(2) << 20)	/* size of a granule */
#define VIEW_MANY	220	/* more windows than one process maps */

/* This process owns the memory; the agent writes to it. */
struct view_fixture {
	struct tei_local *ctx;
	struct test_agent agent;
	unsigned char *mem;
};

static void view_setup(struct view_fixture *f)
{
	char text[TEI_LOCAL_ID_TEXT];
	struct tei_local_id id;

	memset(f, 0, sizeof(*f));
	test_mapped = true;
	f->ctx = test_ctx(1);
	f->mem = test_memory(f->ctx, VIEW_MEM);
	CU_ASSERT_FATAL(f->mem != NULL);
	CU_ASSERT(!tei_local_identity(f->ctx, &id));
	CU_ASSERT(!tei_local_id_format(&id, text, sizeof(text)));
	CU_ASSERT_FATAL(test_agent_start(&f->agent));
	test_agent_ask(&f->agent, "alloc %u 1 1", VIEW_MEM);
	test_agent_ask(&f->agent, "fill 7");
	CU_ASSERT(!atoi(test_agent_ask(&f->agent, "open %s", text)));
}

static void view_teardown(struct view_fixture *f)
{
	test_agent_stop(&f->agent);
	tei_local_fini(f->ctx);
	test_memory_free(NULL, f->mem, VIEW_MEM);
	test_mapped = false;
}

static int view_write(struct view_fixture *f, const void *at, unsigned int len)
{
	return atoi(test_agent_ask(&f->agent, "write %llx %u",
				   (unsigned long long)test_addr(at), len));
}

static int view_mapped(struct view_fixture *f)
{
	return atoi(test_agent_ask(&f->agent, "mapped"));
}

/* Returns the bytes of memory that the file of ordinary pages has. */
static uint64_t view_used(const struct tei_local *ctx)
{
	struct stat st;

	return fstat(ctx->memory.fd[0], &st) ? UINT64_MAX :
					       512 * (uint64_t)st.st_blocks;
}

/* Returns true if this process maps a part of a peer's file. The file of ctx is
 * not counted. */
static bool view_maps_others(const struct tei_local *ctx)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long long inode;
	char line[512];
	bool found = false;
	struct stat st = { 0 };

	if (ctx->memory.fd[0] >= 0)
		CU_ASSERT(!fstat(ctx->memory.fd[0], &st));
	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, "moonrail-memory") &&
			 sscanf(line, "%*s %*s %*s %*s %llu", &inode) == 1 &&
			 inode != st.st_ino;
	if (f)
		fclose(f);
	return found;
}

static void test_freed_memory_is_released(void)
{
	struct tei_local *ctx = test_ctx(1);
	unsigned char *p, *q;

	test_mapped = true;
	p = test_memory(ctx, VIEW_MEM);
	CU_ASSERT_FATAL(p != NULL);
	test_fill(p, VIEW_MEM, 1);
	CU_ASSERT(view_used(ctx) == VIEW_MEM);
	q = test_memory(ctx, VIEW_MEM);
	CU_ASSERT_FATAL(q != NULL);
	test_fill(q, VIEW_MEM, 2);
	CU_ASSERT(view_used(ctx) == 2 * VIEW_MEM);
	tei_local_memory_free(ctx, p + VIEW_PAGE); /* ignored */
	CU_ASSERT(view_used(ctx) == 2 * VIEW_MEM);
	tei_local_memory_free(ctx, p);
	CU_ASSERT(view_used(ctx) == VIEW_MEM);
	CU_ASSERT(!p[0] && q[0]);
	munmap(p, VIEW_MEM);
	/* a part of the file is used only once */
	p = test_memory(ctx, VIEW_MEM);
	CU_ASSERT_FATAL(p != NULL);
	CU_ASSERT(ctx->memory.next[0] == 3 * (uint64_t)VIEW_MEM);
	tei_local_fini(ctx);
	test_memory_free(NULL, p, VIEW_MEM);
	test_memory_free(NULL, q, VIEW_MEM);
	test_mapped = false;
}

static void test_memory_that_cannot_be_shared_is_unchanged(void)
{
	struct tei_local *ctx = test_ctx(1);
	struct rlimit was, limit;
	unsigned char *p = test_memory(ctx, VIEW_MEM);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	CU_ASSERT_FATAL(p != NULL);
	p[0] = 5;
	CU_ASSERT(tei_local_memory_map(ctx, p, VIEW_MEM, 12345) == ENOTSUP);
	CU_ASSERT(tei_local_memory_map(ctx, p + 1, VIEW_MEM, page) == ENOTSUP);
	CU_ASSERT(tei_local_memory_map(ctx, p, 0, page) == ENOTSUP);
	CU_ASSERT(!getrlimit(RLIMIT_FSIZE, &was));
	limit = was;
	limit.rlim_cur = 1 << 20;
	CU_ASSERT(!setrlimit(RLIMIT_FSIZE, &limit));
	CU_ASSERT(tei_local_memory_map(ctx, p, VIEW_MEM, page) == ENOTSUP);
	CU_ASSERT(!setrlimit(RLIMIT_FSIZE, &was));
	CU_ASSERT(p[0] == 5);
	CU_ASSERT(!tei_local_memory_map(ctx, p, VIEW_MEM, page));
	CU_ASSERT(p[0] == 0);
	test_memory_free(ctx, p, VIEW_MEM);
	tei_local_fini(ctx);
}

static void test_child_does_not_inherit_memory(void)
{
	struct view_fixture f;
	unsigned char vec[1];
	int status = 0;
	pid_t pid;

	view_setup(&f);
	f.mem[0] = 1;
	pid = fork();
	if (!pid)
		_exit(!(mincore(f.mem, 1, vec) && errno == ENOMEM &&
			tei_local_memory_map(f.ctx, f.mem, VIEW_PAGE,
					     VIEW_PAGE) == ENOTSUP));
	CU_ASSERT(waitpid(pid, &status, 0) == pid);
	CU_ASSERT(WIFEXITED(status) && !WEXITSTATUS(status));
	CU_ASSERT(f.mem[0] == 1);
	view_teardown(&f);
}

static void test_law8_only_the_registered_part_is_reached(void)
{
	unsigned char *zero = calloc(1, VIEW_MEM), *part;
	struct view_fixture f;

	view_setup(&f);
	part = f.mem + VIEW_PAGE + 100;
	CU_ASSERT(view_write(&f, part, 64) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(!tei_local_region_add(f.ctx, part, 1000, TEI_LOCAL_REMOTE));
	CU_ASSERT(view_write(&f, part - 1, 64) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(view_write(&f, part + 990, 11) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(view_write(&f, part + 1000, 1) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(view_write(&f, f.mem, VIEW_MEM) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(!memcmp(f.mem, zero, VIEW_MEM));
	CU_ASSERT(!view_mapped(&f));
	CU_ASSERT(!view_write(&f, part, 1000));
	CU_ASSERT(view_mapped(&f) == 1);
	CU_ASSERT(memcmp(part, zero, 1000));
	CU_ASSERT(!memcmp(f.mem, zero, VIEW_PAGE + 100));
	CU_ASSERT(!memcmp(part + 1000, zero, VIEW_MEM - VIEW_PAGE - 1100));
	CU_ASSERT(!tei_local_region_remove(f.ctx, part, 0,
					   tei_now_ns() + TEST_WAIT_NS));
	CU_ASSERT(view_write(&f, part, 64) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(!tei_local_region_add(f.ctx, part, 1000,
					TEI_LOCAL_REMOTE |
						TEI_LOCAL_READ_ONLY));
	CU_ASSERT(view_write(&f, part, 64) == TEI_ERR_NOT_REGISTERED);
	view_teardown(&f);
	free(zero);
}

/* A region that is only in part in mappable memory is copied by the kernel. */
static void test_region_beyond_mappable_memory(void)
{
	struct view_fixture f;

	view_setup(&f);
	CU_ASSERT(mmap(f.mem + VIEW_MEM / 2, VIEW_MEM / 2,
		       PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		       0) != MAP_FAILED);
	f.ctx->memory.extents[0].end -= VIEW_MEM / 2;
	CU_ASSERT(!tei_local_region_add(f.ctx, f.mem, VIEW_MEM,
					TEI_LOCAL_REMOTE));
	CU_ASSERT(!view_write(&f, f.mem, VIEW_MEM));
	CU_ASSERT(f.mem[0] && f.mem[VIEW_MEM - 1]);
	CU_ASSERT(!view_mapped(&f));
	view_teardown(&f);
}

/* The same addresses get other memory. */
static void test_new_memory_at_old_addresses(void)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	unsigned char *seen = malloc(VIEW_MEM);
	struct view_fixture f;
	int i;

	view_setup(&f);
	for (i = 0; i < 20; i++) {
		CU_ASSERT(!tei_local_region_add(f.ctx, f.mem, VIEW_MEM,
						TEI_LOCAL_REMOTE));
		CU_ASSERT(f.mem[0] == 0);
		test_agent_ask(&f.agent, "fill %d", i + 10);
		test_fill(seen, VIEW_MEM, (uint64_t)i + 10);
		CU_ASSERT(!view_write(&f, f.mem, VIEW_MEM));
		CU_ASSERT(!memcmp(f.mem, seen, VIEW_MEM));
		CU_ASSERT(!tei_local_region_remove(
			f.ctx, f.mem, 0, tei_now_ns() + TEST_WAIT_NS));
		tei_local_memory_free(f.ctx, f.mem);
		CU_ASSERT(view_used(f.ctx) == 0);
		CU_ASSERT(!tei_local_memory_map(f.ctx, f.mem, VIEW_MEM, page));
	}
	CU_ASSERT(view_mapped(&f) >= 20);
	view_teardown(&f);
	free(seen);
}

static void test_many_windows(void)
{
	unsigned char *seen = malloc(VIEW_MEM), *p[VIEW_MANY];
	struct view_fixture f;
	int i, wrong = 0;

	view_setup(&f);
	test_fill(seen, VIEW_MEM, 7);
	for (i = 0; i < VIEW_MANY; i++) {
		/* each piece of memory crosses the end of a window */
		f.ctx->memory.next[0] = (uint64_t)(i + 1) * VIEW_WINDOW -
					VIEW_PAGE;
		p[i] = test_memory(f.ctx, 2 * VIEW_PAGE);
		CU_ASSERT_FATAL(p[i] != NULL);
		wrong += tei_local_region_add(f.ctx, p[i], 2 * VIEW_PAGE,
					      TEI_LOCAL_REMOTE) != 0;
		wrong += view_write(&f, p[i] + 1, 2 * VIEW_PAGE - 1) != 0;
		wrong += memcmp(p[i] + 1, seen, 2 * VIEW_PAGE - 1) != 0;
	}
	for (i = 0; i < VIEW_MANY; i++) {
		memset(p[i], 0, 2 * VIEW_PAGE);
		wrong += view_write(&f, p[i], 2 * VIEW_PAGE) != 0;
		wrong += memcmp(p[i], seen, 2 * VIEW_PAGE) != 0;
	}
	CU_ASSERT(!wrong);
	CU_ASSERT(view_mapped(&f) >= 2 * VIEW_MANY);
	view_teardown(&f);
	for (i = 0; i < VIEW_MANY; i++)
		munmap(p[i], 2 * VIEW_PAGE);
	free(seen);
}

/* Returns true if a write to the peer's memory at addr would be made through a
 * mapping. */
static bool view_op_mapped(struct view_fixture *f, struct tei_local_peer *peer,
			   uint64_t addr, bool registered)
{
	struct tei_local_op op = { .peer = peer,
				   .opcode = TEI_LOCAL_WRITE,
				   .local = f->mem,
				   .registered = registered,
				   .remote = addr,
				   .length = 4096 };

	return tei_local_op_mapped(&op);
}

/* Opens the agent and writes once to its memory. */
static struct tei_local_peer *view_open(struct view_fixture *f, uint64_t *addr)
{
	struct tei_local_peer *peer = NULL;
	char text[TEI_LOCAL_ID_TEXT];
	struct tei_local_id id;
	unsigned long long at = 0;

	CU_ASSERT_FATAL(sscanf(test_agent_ask(&f->agent, "alloc %u 1 1",
					      VIEW_MEM),
			       "%llx %191s", &at, text) == 2);
	CU_ASSERT(!tei_local_id_parse(text, &id));
	CU_ASSERT_FATAL(!tei_local_peer_open(f->ctx, &id, NULL, &peer));
	CU_ASSERT(tei_local_peer_maps(peer));
	CU_ASSERT(view_op_mapped(f, peer, at, true));
	CU_ASSERT(!view_op_mapped(f, peer, at, false));
	CU_ASSERT(!view_op_mapped(f, peer, at + VIEW_MEM, true));
	CU_ASSERT(!view_op_mapped(f, NULL, at, true));
	CU_ASSERT(!tei_local_region_add(f->ctx, f->mem, VIEW_MEM, 0));
	CU_ASSERT(!test_copy(f->ctx, peer, TEI_LOCAL_WRITE, f->mem, at, 4096));
	*addr = at;
	return peer;
}

static void test_mapping_ends_with_the_process(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS, addr;
	struct tei_local_peer *peer;
	struct view_fixture f;

	view_setup(&f);
	CU_ASSERT(!view_maps_others(f.ctx));
	peer = view_open(&f, &addr);
	CU_ASSERT(view_maps_others(f.ctx));
	kill(f.agent.pid, SIGKILL);
	while (view_maps_others(f.ctx) && tei_now_ns() < end)
		sched_yield();
	CU_ASSERT(!view_maps_others(f.ctx));
	CU_ASSERT(test_copy(f.ctx, peer, TEI_LOCAL_WRITE, f.mem, addr, 4096) ==
		  TEI_ERR_CONTEXT);
	tei_local_peer_close(f.ctx, peer);
	view_teardown(&f);
}

static void test_mapping_ends_with_the_peer(void)
{
	struct tei_local_peer *peer;
	struct view_fixture f;
	uint64_t addr;

	view_setup(&f);
	peer = view_open(&f, &addr);
	CU_ASSERT(view_maps_others(f.ctx));
	tei_local_peer_close(f.ctx, peer);
	CU_ASSERT(!view_maps_others(f.ctx));
	view_teardown(&f);
}

/* The memory of another user is not mapped; the kernel copies. */
static void test_memory_of_another_user_is_not_mapped(void)
{
	struct tei_local_counters c;
	struct tei_local_peer *peer;
	struct view_fixture f;
	uint64_t addr;

	if (geteuid()) {
		printf("skipped: only root can access the processes of other users\n");
		return;
	}
	view_setup(&f);
	test_agent_stop(&f.agent);
	CU_ASSERT_FATAL(test_agent_start(&f.agent));
	CU_ASSERT(!atoi(test_agent_ask(&f.agent, "drop")));
	peer = view_open(&f, &addr);
	tei_local_stats(f.ctx, &c);
	CU_ASSERT(c.pieces == 1 && !c.mapped);
	CU_ASSERT(!view_maps_others(f.ctx));
	CU_ASSERT(!tei_local_peer_maps(peer));
	CU_ASSERT(!view_op_mapped(&f, peer, addr, true));
	tei_local_peer_close(f.ctx, peer);
	view_teardown(&f);
}

/* The published words of a file have any value: the kernel copies. */
static void test_wrong_file_is_not_mapped(void)
{
	static const uint64_t numbers[] = { 0, 1, 3, UINT64_MAX,
					    UINT64_C(1) << 31 };
	struct view_fixture f;
	uint64_t was;
	size_t i;

	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		view_setup(&f);
		CU_ASSERT(!tei_local_region_add(f.ctx, f.mem, VIEW_MEM,
						TEI_LOCAL_REMOTE));
		was = atomic_exchange(&f.ctx->shared->head.files[0].number,
				      numbers[i]);
		CU_ASSERT(was == (uint64_t)f.ctx->memory.fd[0] + 1);
		CU_ASSERT(!view_write(&f, f.mem, 4096));
		CU_ASSERT(f.mem[0] && !view_mapped(&f));
		view_teardown(&f);
	}
	view_setup(&f);
	CU_ASSERT(!tei_local_region_add(f.ctx, f.mem, VIEW_MEM,
					TEI_LOCAL_REMOTE));
	atomic_fetch_add(&f.ctx->shared->head.files[0].inode, 1);
	CU_ASSERT(!view_write(&f, f.mem, 4096));
	CU_ASSERT(f.mem[0] && !view_mapped(&f));
	view_teardown(&f);
}

/* Publishes a new file with these seals as the file of ordinary pages. Returns
 * its descriptor. */
static int view_publish(struct view_fixture *f, int seals)
{
	int fd = memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	struct local_file *file = &f->ctx->shared->head.files[0];

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT(!ftruncate(fd, (off_t)LOCAL_FILE_SIZE));
	CU_ASSERT(!seals || !fcntl(fd, F_ADD_SEALS, seals));
	atomic_store(&file->inode, local_memfd_inode(fd));
	atomic_store(&file->number, (uint64_t)fd + 1);
	return fd;
}

/* An access to a mapping beyond the end of its file raises SIGBUS, so a file
 * that its owner can truncate is not mapped; the kernel copies. */
static void test_file_that_can_shrink_is_not_mapped(void)
{
	static const int seals[] = { 0, F_SEAL_GROW, F_SEAL_SHRINK };
	struct view_fixture f;
	size_t i;
	int fd;

	for (i = 0; i < sizeof(seals) / sizeof(seals[0]); i++) {
		view_setup(&f);
		CU_ASSERT(!tei_local_region_add(f.ctx, f.mem, VIEW_MEM,
						TEI_LOCAL_REMOTE));
		fd = view_publish(&f, seals[i]);
		CU_ASSERT(!view_write(&f, f.mem, 4096));
		CU_ASSERT(f.mem[0] && !view_mapped(&f));
		CU_ASSERT(!ftruncate(fd, 0) == !(seals[i] & F_SEAL_SHRINK));
		f.mem[0] = 0;
		CU_ASSERT(!view_write(&f, f.mem, 4096));
		CU_ASSERT(f.mem[0] && !view_mapped(&f));
		close(fd);
		view_teardown(&f);
	}
}

/* The owner of a mapped file can neither truncate it nor remove its seals. If
 * the owner removes its pages, an access gets a new page. */
static void test_mapped_file_cannot_shrink(void)
{
	struct view_fixture f;
	int fd;

	view_setup(&f);
	fd = f.ctx->memory.fd[0];
	CU_ASSERT(!tei_local_region_add(f.ctx, f.mem, VIEW_MEM,
					TEI_LOCAL_REMOTE));
	CU_ASSERT(!view_write(&f, f.mem, VIEW_MEM));
	CU_ASSERT(view_mapped(&f) == 1);
	CU_ASSERT(ftruncate(fd, 0) && errno == EPERM);
	CU_ASSERT(fcntl(fd, F_ADD_SEALS, 0) && errno == EPERM);
	CU_ASSERT(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			     VIEW_MEM));
	CU_ASSERT(!f.mem[0]);
	CU_ASSERT(!view_write(&f, f.mem, VIEW_MEM));
	CU_ASSERT(view_mapped(&f) == 2);
	CU_ASSERT(f.mem[0] && f.mem[VIEW_MEM - 1]);
	view_teardown(&f);
}

/* If the program locks all of its memory, the kernel allocates no pages for
 * parts of the peer's file that were never used. */
static void view_lock(int when, bool before)
{
	struct view_fixture f;

	view_setup(&f);
	CU_ASSERT(!tei_local_region_add(f.ctx, f.mem, VIEW_MEM,
					TEI_LOCAL_REMOTE));
	test_fill(f.mem, VIEW_MEM, 1);
	if (!before)
		CU_ASSERT(!view_write(&f, f.mem, VIEW_MEM));
	if (atoi(test_agent_ask(&f.agent, "lock %d", when))) {
		printf("skipped: this process may not lock memory\n");
		view_teardown(&f);
		return;
	}
	CU_ASSERT(!view_write(&f, f.mem, VIEW_MEM));
	CU_ASSERT(view_mapped(&f) == (before ? 1 : 2));
	CU_ASSERT(view_used(f.ctx) <= VIEW_GRANULE);
	view_teardown(&f);
}

static void test_locked_memory_gets_no_pages(void)
{
	view_lock(MCL_CURRENT, false);
	view_lock(MCL_FUTURE, true);
	view_lock(MCL_CURRENT | MCL_FUTURE, false);
}

/* No thread of the target holds the robust futex word, because a seccomp filter
 * forbids set_robust_list: the kernel is queried before each copy. */
static void test_word_is_refused(void)
{
	struct tei_local_counters c;
	struct tei_local_peer *peer;
	struct view_fixture f;
	siginfo_t info;
	uint64_t addr;

	view_setup(&f);
	test_agent_stop(&f.agent);
	CU_ASSERT_FATAL(test_agent_start(&f.agent));
	if (atoi(test_agent_ask(&f.agent, "refuse"))) {
		printf("skipped: no seccomp filter can be set\n");
		view_teardown(&f);
		return;
	}
	peer = view_open(&f, &addr);
	CU_ASSERT(!local_peer_holds(peer));
	tei_local_stats(f.ctx, &c);
	CU_ASSERT(c.mapped == 1);
	kill(f.agent.pid, SIGKILL);
	CU_ASSERT(!waitid(P_PID, (id_t)f.agent.pid, &info, WEXITED | WNOWAIT));
	CU_ASSERT(test_copy(f.ctx, peer, TEI_LOCAL_WRITE, f.mem, addr, 4096) ==
		  TEI_ERR_CONTEXT);
	tei_local_peer_close(f.ctx, peer);
	view_teardown(&f);
}

/* Without a free file descriptor nothing is mapped, and the kernel copies. */
static void test_no_descriptor_is_left(void)
{
	struct rlimit was, none;
	struct tei_local_counters c;
	struct tei_local_peer *peer = NULL;
	char text[TEI_LOCAL_ID_TEXT];
	struct tei_local_id id;
	struct view_fixture f;
	unsigned long long at = 0;
	int i;

	view_setup(&f);
	CU_ASSERT_FATAL(sscanf(test_agent_ask(&f.agent, "alloc %u 1 1",
					      VIEW_MEM),
			       "%llx %191s", &at, text) == 2);
	CU_ASSERT(!tei_local_id_parse(text, &id));
	CU_ASSERT_FATAL(!tei_local_peer_open(f.ctx, &id, NULL, &peer));
	CU_ASSERT(!tei_local_region_add(f.ctx, f.mem, VIEW_MEM, 0));
	CU_ASSERT(!getrlimit(RLIMIT_NOFILE, &was));
	none = was;
	none.rlim_cur = 3; /* 0, 1 and 2 are in use */
	CU_ASSERT(!setrlimit(RLIMIT_NOFILE, &none));
	for (i = 0; i < 3; i++)
		CU_ASSERT(!test_copy(f.ctx, peer, TEI_LOCAL_WRITE, f.mem, at,
				     4096));
	CU_ASSERT(!setrlimit(RLIMIT_NOFILE, &was));
	tei_local_stats(f.ctx, &c);
	CU_ASSERT(c.pieces == 3 && !c.mapped);
	CU_ASSERT(!tei_local_peer_maps(peer));
	tei_local_peer_close(f.ctx, peer);
	view_teardown(&f);
}

static void test_mapped_run(void)
{
	unsigned char *seen = malloc(VIEW_MEM);
	struct view_fixture f;

	view_setup(&f);
	test_fill(seen, VIEW_MEM, 7);
	CU_ASSERT(!tei_local_region_add(f.ctx, f.mem, VIEW_MEM,
					TEI_LOCAL_REMOTE));
	CU_ASSERT(atoi(test_agent_ask(&f.agent, "run %llx 4096 64 4096",
				      (unsigned long long)test_addr(f.mem))) ==
		  64);
	CU_ASSERT(view_mapped(&f) == 64);
	CU_ASSERT(!memcmp(f.mem, seen, 64 * 4096));
	CU_ASSERT(!f.mem[64 * 4096]);
	view_teardown(&f);
	free(seen);
}

const struct tei_test_case local_view_cases[] = {
	{ "freed_memory_is_released", test_freed_memory_is_released },
	{ "memory_that_cannot_be_shared_is_unchanged",
	  test_memory_that_cannot_be_shared_is_unchanged },
	{ "child_does_not_inherit_memory",
	  test_child_does_not_inherit_memory },
	{ "law8_only_the_registered_part_is_reached",
	  test_law8_only_the_registered_part_is_reached },
	{ "region_beyond_mappable_memory_is_copied_by_the_kernel",
	  test_region_beyond_mappable_memory },
	{ "new_memory_at_old_addresses_is_reached",
	  test_new_memory_at_old_addresses },
	{ "many_windows_are_mapped_and_unmapped", test_many_windows },
	{ "mapping_ends_with_the_process",
	  test_mapping_ends_with_the_process },
	{ "mapping_ends_with_the_peer", test_mapping_ends_with_the_peer },
	{ "memory_of_another_user_is_not_mapped",
	  test_memory_of_another_user_is_not_mapped },
	{ "wrong_file_is_not_mapped", test_wrong_file_is_not_mapped },
	{ "file_that_can_shrink_is_not_mapped",
	  test_file_that_can_shrink_is_not_mapped },
	{ "mapped_file_cannot_shrink", test_mapped_file_cannot_shrink },
	{ "locked_memory_gets_no_pages_of_unused_parts",
	  test_locked_memory_gets_no_pages },
	{ "refused_futex_word_is_replaced_by_kernel_queries",
	  test_word_is_refused },
	{ "copy_without_a_free_descriptor_is_made_by_the_kernel",
	  test_no_descriptor_is_left },
	{ "run_is_copied_through_mappings", test_mapped_run },
	{ NULL, NULL },
};
