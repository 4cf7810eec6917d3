/* SPDX-License-Identifier: BSD-2-Clause */
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prov/local/local_test.h"
#include "util/clock.h"
#include "util/settings.h"

bool test_mapped;
bool test_unheld;

int test_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

unsigned char *test_memory(struct tei_local *ctx, size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (test_mapped &&
	    tei_local_memory_map(ctx, p, len, (uint64_t)sysconf(_SC_PAGESIZE))) {
		munmap(p, len);
		return NULL;
	}
	return p;
}

void test_memory_free(struct tei_local *ctx, void *p, size_t len)
{
	if (ctx)
		tei_local_memory_free(ctx, p);
	munmap(p, len);
}

struct tei_local *test_ctx(uint32_t workers)
{
	struct tei_settings s;
	struct tei_local *ctx = NULL;

	memset(&s, 0, sizeof(s));
	s.copies.threads = workers;
	s.sched.spin_us = 50;
	s.failure.slice_timeout_s = 10;
	/* no CUnit assertion, because the agent has no suite */
	if (tei_local_init(&s, NULL, &ctx))
		abort();
	return ctx;
}

static void test_op_done(struct tei_local_op *op, int code, uint64_t bytes)
{
	struct test_op *t = tei_container_of(op, struct test_op, op);

	pthread_mutex_lock(&t->lock);
	t->calls++;
	t->code = code;
	t->bytes = bytes;
	pthread_cond_broadcast(&t->cond);
	pthread_mutex_unlock(&t->lock);
}

void test_op_init(struct test_op *t, struct tei_local_peer *peer,
		  enum tei_local_opcode opcode, void *local, uint64_t remote,
		  uint64_t length)
{
	memset(t, 0, sizeof(*t));
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->cond, NULL);
	t->op.peer = peer;
	t->op.opcode = opcode;
	t->op.local = local;
	t->op.remote = remote;
	t->op.length = length;
	t->op.registered = test_mapped;
	t->op.done = test_op_done;
	t->op.err = &t->err;
}

int test_op_wait(struct test_op *t)
{
	int code;

	pthread_mutex_lock(&t->lock);
	while (!t->calls)
		pthread_cond_wait(&t->cond, &t->lock);
	code = t->code;
	pthread_mutex_unlock(&t->lock);
	return code;
}

void test_op_fini(struct test_op *t)
{
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->cond);
}

int test_run_op(struct tei_local *ctx, struct tei_local_peer *peer,
		enum tei_local_opcode opcode, void *local, uint64_t remote,
		uint64_t length)
{
	struct test_op t;
	int rc;

	test_op_init(&t, peer, opcode, local, remote, length);
	rc = tei_local_submit(ctx, &t.op);
	if (!rc)
		rc = test_op_wait(&t);
	/* done has been called; wait until it has returned before t is freed */
	tei_local_cancel(ctx, &t.op);
	test_op_fini(&t);
	return rc;
}

int test_copy(struct tei_local *ctx, struct tei_local_peer *peer,
	      enum tei_local_opcode opcode, void *local, uint64_t remote,
	      uint64_t length)
{
	struct tei_local_op op = { .peer = peer, .opcode = opcode,
				   .local = local, .remote = remote,
				   .length = length,
				   .registered = test_mapped };

	return tei_local_copy_op(ctx, &op, NULL);
}

uint64_t test_random(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	*state = x;
	return x;
}

void test_fill(void *p, size_t len, uint64_t seed)
{
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
	unsigned char *b = p;
	size_t i;

	for (i = 0; i < len; i++) {
		if (i % 8 == 0)
			test_random(&state);
		b[i] = (unsigned char)(state >> (i % 8 * 8));
	}
}

uint64_t test_hash(const void *p, size_t len)
{
	const unsigned char *b = p;
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	size_t i;

	for (i = 0; i < len; i++)
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* ---- this process's side of the agent ----------------------------------- */

bool test_agent_start(struct test_agent *a)
{
	char number[16];
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv))
		return false;
	snprintf(number, sizeof(number), "%d", sv[1]);
	a->pid = fork();
	if (!a->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(sv[0]);
		execl("/proc/self/exe", "local_test", "--agent", number, NULL);
		_exit(1);
	}
	close(sv[1]);
	a->fd = sv[0];
	a->answer[0] = '\0';
	return a->pid > 0 && test_agent_wait(a);
}

static void agent_vsend(struct test_agent *a, const char *fmt, va_list ap)
{
	char line[512];
	int n = vsnprintf(line, sizeof(line) - 1, fmt, ap);

	line[n] = '\n';
	/* no error is reported here: after a failure, the caller reads an empty
	 * answer */
	if (send(a->fd, line, (size_t)n + 1, MSG_NOSIGNAL) < 0)
		return;
}

void test_agent_send(struct test_agent *a, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	agent_vsend(a, fmt, ap);
	va_end(ap);
}

/* Reads one line. Reads byte by byte, because two answers may be pending. */
static bool agent_read_line(int fd, char *buf, size_t len)
{
	size_t n = 0;
	ssize_t rc;

	for (;;) {
		rc = read(fd, buf + n, 1);
		if (rc < 0 && errno == EINTR)
			continue;
		if (rc <= 0 || n == len - 1) {
			buf[0] = '\0';
			return false;
		}
		if (buf[n] == '\n') {
			buf[n] = '\0';
			return true;
		}
		n++;
	}
}

bool test_agent_wait(struct test_agent *a)
{
	return agent_read_line(a->fd, a->answer, sizeof(a->answer));
}

const char *test_agent_ask(struct test_agent *a, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	agent_vsend(a, fmt, ap);
	va_end(ap);
	test_agent_wait(a);
	return a->answer;
}

bool test_agent_stopped(struct test_agent *a)
{
	int status = 0;

	while (waitpid(a->pid, &status, WUNTRACED) < 0 && errno == EINTR)
		;
	return WIFSTOPPED(status);
}

void test_agent_stop(struct test_agent *a)
{
	if (a->pid > 0) {
		kill(a->pid, SIGKILL);
		while (waitpid(a->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	close(a->fd);
	a->pid = 0;
}

/* ---- the agent's side --------------------------------------------------- */

struct agent {
	struct tei_local *ctx;
	struct tei_local_peer *peer;
	unsigned char *mem;
	size_t len;
	int fd;
};

static void agent_answer(struct agent *g, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void agent_answer(struct agent *g, const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	line[n] = '\n';
	if (send(g->fd, line, (size_t)n + 1, MSG_NOSIGNAL) < 0)
		exit(0);
}

/* Command "alloc LEN ACCESS MAPPED": allocates and registers memory, which peers
 * can map if MAPPED is 1. Answers with its address and the identity. */
static void agent_alloc(struct agent *g, const char *args)
{
	char text[TEI_LOCAL_ID_TEXT];
	struct tei_local_id id;
	int accessible = 0, mapped = 0;

	sscanf(args, "%zu %d %d", &g->len, &accessible, &mapped);
	test_mapped = mapped;
	g->mem = test_memory(g->ctx, g->len);
	if (!g->mem || tei_local_identity(g->ctx, &id) ||
	    tei_local_id_format(&id, text, sizeof(text)) ||
	    tei_local_region_add(g->ctx, g->mem, g->len, accessible))
		agent_answer(g, "failed");
	else
		agent_answer(g, "%llx %s", (unsigned long long)test_addr(g->mem),
			     text);
}

/* Command "open ID": opens a peer. Answers with the reason, as a number. */
static void agent_open(struct agent *g, const char *args)
{
	struct tei_local_id id;

	if (tei_local_id_parse(args, &id))
		agent_answer(g, "unparsable");
	else
		agent_answer(g, "%d", (int)tei_local_peer_open(g->ctx, &id,
							       NULL, &g->peer));
}

/* Commands "write REMOTE LENGTH" and "read REMOTE LENGTH": make a transfer with
 * the peer. The answer is its code. */
static void agent_transfer(struct agent *g, enum tei_local_opcode opcode,
			   const char *args)
{
	unsigned long long remote, length;

	sscanf(args, "%llx %llu", &remote, &length);
	agent_answer(g, "%d", test_run_op(g->ctx, g->peer, opcode, g->mem,
					  remote, length));
}

/* Command "run REMOTE STEP N LENGTH": writes N blocks of the memory, which are
 * STEP bytes apart, with one system call. Answers with the number of complete
 * blocks. */
static void agent_run(struct agent *g, const char *args)
{
	struct tei_local_op op[64], *list[64];
	unsigned long long remote, step;
	unsigned int n, length, i;

	sscanf(args, "%llx %llu %u %u", &remote, &step, &n, &length);
	memset(op, 0, sizeof(op));
	for (i = 0; i < n && i < 64; i++) {
		op[i].peer = g->peer;
		op[i].opcode = TEI_LOCAL_WRITE;
		op[i].local = g->mem + i * step;
		op[i].remote = remote + i * step;
		op[i].length = length;
		op[i].registered = test_mapped;
		list[i] = &op[i];
	}
	agent_answer(g, "%zu", tei_local_copy_run(g->ctx, list, i));
}

/* Command "storm REMOTE LENGTH": writes again and again, other bytes each time,
 * until an error occurs. Answers with its code. */
static void agent_storm(struct agent *g, const char *args)
{
	unsigned long long remote, length;
	int code = 0, round = 0;

	sscanf(args, "%llx %llu", &remote, &length);
	while (!code) {
		memset(g->mem, ++round, g->len);
		code = test_run_op(g->ctx, g->peer, TEI_LOCAL_WRITE, g->mem,
				   remote, length);
	}
	agent_answer(g, "%d", code);
}

static void agent_hook_stop(void *arg)
{
	(void)arg;
	raise(SIGSTOP);
}

/* Command "unhold": clears the robust futex word. */
static void agent_unhold(struct agent *g)
{
	atomic_store(&g->ctx->shared->head.holder, 0);
	agent_answer(g, "done");
}

/* Command "refuse": forbids set_robust_list by a seccomp filter, so no thread
 * can hold the robust futex word. Must come before "alloc". */
static void agent_refuse(struct agent *g)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_set_robust_list, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	agent_answer(g, "%d", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		     prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
}

/* Command "scribble SEED": overwrites the agent's own registration table with
 * zeros (SEED 0), with bytes of value 255 (1) or with random words. */
static void agent_scribble(struct agent *g, const char *args)
{
	uint64_t seed = strtoull(args, NULL, 10);

	if (seed < 2)
		memset(g->ctx->shared, seed ? 255 : 0, sizeof(*g->ctx->shared));
	else
		test_fill(g->ctx->shared, sizeof(*g->ctx->shared), seed);
	agent_answer(g, "done");
}

/* Command "exec": replaces the agent by a new agent in the same process, with
 * exec. */
static void agent_exec(struct agent *g)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", g->fd);
	execl("/proc/self/exe", "local_test", "--agent", number, NULL);
	agent_answer(g, "failed");
}

static void agent_drop(struct agent *g)
{
	agent_answer(g, "%d", setresgid(65534, 65534, 65534) ||
		     setresuid(65534, 65534, 65534));
}

/* Command "files ADDR LEN N": publishes GPU memory with N files, whose content is
 * one byte, the position of the file, and whose number is 1000 more. The answer
 * is the code. */
static void agent_files(struct agent *g, const char *args)
{
	struct tei_local_gpu_file files[TEI_LOCAL_GPU_FILES];
	uint64_t data[TEI_LOCAL_GPU_DATA / 8] = { 1 };
	unsigned long long addr = 0, len = 0;
	uint32_t n = 0, i;
	int ret;

	sscanf(args, "%llx %llu %u", &addr, &len, &n);
	for (i = 0; i < n; i++) {
		files[i].fd = memfd_create("file", MFD_CLOEXEC);
		files[i].number = 1000 + i;
		if (write(files[i].fd, &(char){ (char)i }, 1) != 1)
			break;
	}
	ret = i < n ? -1 :
		      tei_local_gpu_add(g->ctx, (void *)(uintptr_t)addr, len,
					data, files, n);
	for (i = 0; ret && i < n; i++)
		close(files[i].fd);
	agent_answer(g, "%d", ret);
}

/* Command "forge FIRST N": changes the first published GPU memory: it claims to
 * have the N files from FIRST on. */
static void agent_forge(struct agent *g, const char *args)
{
	unsigned int first = 0, n = 0;

	sscanf(args, "%u %u", &first, &n);
	atomic_store(&g->ctx->shared->gpu[0].files, (uint64_t)n << 32 | first);
	agent_answer(g, "done");
}

/* Command "fds": the answer is the number of open file descriptors. */
static void agent_fds(struct agent *g)
{
	agent_answer(g, "%d", test_fds());
}

/* Command "unfile FD": closes a file descriptor. */
static void agent_unfile(struct agent *g, const char *args)
{
	agent_answer(g, "%d", close(atoi(args)));
}

/* Commands "gpu ADDR LEN" and "ungpu ADDR LEN": publish and withdraw GPU memory,
 * with the numbers from ADDR on as its handle. Command "claim ADDR LEN": enters
 * the range at the peer, for ever. The answer is the code. */
static void agent_gpu(struct agent *g, const char *word, const char *args)
{
	unsigned long long addr = 0, len = 0;
	uint64_t data[TEI_LOCAL_GPU_DATA / 8], i;
	struct tei_local_gpu_range range;
	struct tei_local_gpu found;
	void *claim, *at;
	struct tei_err err;
	int ret = TEI_ERR_NOT_REGISTERED;

	sscanf(args, "%llx %llu", &addr, &len);
	at = (void *)(uintptr_t)addr;
	for (i = 0; i < TEI_LOCAL_GPU_DATA / 8; i++)
		data[i] = addr + i;
	if (!strcmp(word, "gpu")) {
		ret = tei_local_gpu_add(g->ctx, at, len, data, NULL, 0);
	} else if (!strcmp(word, "ungpu")) {
		ret = tei_local_gpu_remove(g->ctx, at,
					   tei_now_ns() + 50 * TEI_NS_PER_MS);
	} else if (tei_local_gpu_find(g->peer, addr, len, &found)) {
		range = (struct tei_local_gpu_range){ .addr = addr, .len = len,
						      .place = found.place,
						      .serial = found.serial };
		ret = tei_local_gpu_enter(g->ctx, g->peer, &range, &claim,
					  &err);
	}
	agent_answer(g, "%d", ret);
}

static void agent_line(struct agent *g, const char *line)
{
	struct tei_local_counters c;
	char word[16] = "";
	int at = 0;
	const char *args;

	sscanf(line, "%15s %n", word, &at);
	args = line + at;
	if (!strcmp(word, "alloc"))
		agent_alloc(g, args);
	else if (!strcmp(word, "open"))
		agent_open(g, args);
	else if (!strcmp(word, "write"))
		agent_transfer(g, TEI_LOCAL_WRITE, args);
	else if (!strcmp(word, "read"))
		agent_transfer(g, TEI_LOCAL_READ, args);
	else if (!strcmp(word, "run"))
		agent_run(g, args);
	else if (!strcmp(word, "storm"))
		agent_storm(g, args);
	else if (!strcmp(word, "forge"))
		agent_forge(g, args);
	else if (!strcmp(word, "scribble"))
		agent_scribble(g, args);
	else if (!strcmp(word, "exec"))
		agent_exec(g);
	else if (!strcmp(word, "drop"))
		agent_drop(g);
	else if (!strcmp(word, "nodump"))
		agent_answer(g, "%d", prctl(PR_SET_DUMPABLE, 0));
	else if (!strcmp(word, "huge"))
		agent_answer(g, "%d", madvise(g->mem, g->len, MADV_HUGEPAGE));
	else if (!strcmp(word, "cover"))
		agent_answer(g, "%d", mmap(g->ctx->shared, LOCAL_SECTION,
					   PROT_READ | PROT_WRITE, MAP_PRIVATE |
					   MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
			     MAP_FAILED);
	else if (!strcmp(word, "unmap"))
		agent_answer(g, "%d", munmap(g->mem + g->len / 2, g->len / 2));
	else if (!strcmp(word, "fill"))
		test_fill(g->mem, g->len, strtoull(args, NULL, 10)),
			agent_answer(g, "done");
	else if (!strcmp(word, "hash"))
		agent_answer(g, "%llx", (unsigned long long)
			     test_hash(g->mem, g->len));
	else if (!strcmp(word, "hook"))
		g->ctx->before_copy = agent_hook_stop, agent_answer(g, "done");
	else if (!strcmp(word, "unhold"))
		agent_unhold(g);
	else if (!strcmp(word, "refuse"))
		agent_refuse(g);
	else if (!strcmp(word, "lock"))
		agent_answer(g, "%d", mlockall(atoi(args)));
	else if (!strcmp(word, "mapped"))
		tei_local_stats(g->ctx, &c),
			agent_answer(g, "%llu", (unsigned long long)c.mapped);
	else if (!strcmp(word, "add"))
		agent_answer(g, "%d", tei_local_region_add(g->ctx, g->mem,
				g->len, TEI_LOCAL_REMOTE));
	else if (!strcmp(word, "gpu") || !strcmp(word, "ungpu") ||
		 !strcmp(word, "claim"))
		agent_gpu(g, word, args);
	else if (!strcmp(word, "files"))
		agent_files(g, args);
	else if (!strcmp(word, "unfile"))
		agent_unfile(g, args);
	else if (!strcmp(word, "fds"))
		agent_fds(g);
	else if (!strcmp(word, "remove"))
		agent_answer(g, "%d", tei_local_region_remove(g->ctx, g->mem, 0,
				tei_now_ns() + TEST_WAIT_NS));
	else
		agent_answer(g, "what?");
}

int test_agent_main(int fd)
{
	struct agent g = { .fd = fd };
	char line[512];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	g.ctx = test_ctx(1);
	agent_answer(&g, "ready");
	while (agent_read_line(fd, line, sizeof(line)))
		agent_line(&g, line);
	return 0;
}
