/* SPDX-License-Identifier: BSD-2-Clause */

/* Memory of te_alloc, which other processes of this host map: copies, processes
 * that are stopped or killed during a copy, cancelling, and fork. */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/functional/ft_local.h"
#include "fabtests/functional/fx.h"

#define MAPPED_SIZE (8 * FX_MIB)
#define MAPPED_TASKS 64
#define MAPPED_SEG 65536u

/* --- commands of the peer ------------------------------------------------ */

/* Command "forbid": all threads of the peer lose the calls for kernel copies.
 * Answers 0 on success. */
static int obey_forbid(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0,
			 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
		       SECCOMP_FILTER_FLAG_TSYNC, &prog);
}

/* Command "alloc SIZE": the peer allocates memory. Answers with its address. */
static int obey_alloc(transfer_engine_t engine, const char *args, char *text)
{
	struct te_memory m = { .addr = 0 };
	int ret = te_alloc(engine, strtoull(args, NULL, 10), NULL, 0, &m,
			   sizeof(m));

	snprintf(text, 32, "%llu", (unsigned long long)m.addr);
	return ret;
}

/* Command "cancel SEG ADDR LEN": submits MAPPED_TASKS writes of LEN bytes to the
 * same address and cancels them. Answers 0 when all of them are terminal. */
static int obey_cancel(transfer_engine_t engine, struct fx_buf *mem,
		       const char *args, char *text)
{
	struct fx_job job = { .engine = engine, .op = OPCODE_WRITE };
	unsigned long long addr, len;
	int ret;

	if (sscanf(args, "%d %llu %llu", &job.seg, &addr, &len) != 3)
		return FX_NO_ANSWER;
	job.local = mem->p;
	job.remote = addr;
	job.len = len;
	job.block = len / MAPPED_TASKS;
	ret = fx_job_start(&job);
	if (ret)
		return ret;
	te_cancel_batch(engine, job.id);
	ret = fx_job_wait(&job, FX_LONG_MS) ? 0 : 1;
	snprintf(text, 128, "%s", fx_job_text(&job));
	return fx_job_free(&job) ? ret : 1;
}

int mapped_obey(transfer_engine_t engine, struct fx_buf *mem, const char *verb,
		const char *args, char *text)
{
	if (!strcmp(verb, "forbid"))
		return obey_forbid();
	if (!strcmp(verb, "alloc"))
		return obey_alloc(engine, args, text);
	if (!strcmp(verb, "cancel"))
		return obey_cancel(engine, mem, args, text);
	return FX_NO_ANSWER;
}

/* --- memory of this process ---------------------------------------------- */

/* An engine with memory that a peer maps. */
struct mapped {
	transfer_engine_t engine;
	struct te_memory m;
	struct fx_peer peer;
	int seg;		/* segment of the engine, at the peer */
};

static unsigned char *mapped_ptr(const struct te_memory *m)
{
	return (unsigned char *)(uintptr_t)m->addr;
}

static bool mapped_start(struct mapped *x, const char *transport,
			 uint64_t flags)
{
	char name[128], option[64];

	memset(x, 0, sizeof(*x));
	snprintf(option, sizeof(option), "transport=%s", transport);
	x->engine = fx_engine("auto");
	if (!x->engine ||
	    te_alloc(x->engine, MAPPED_SIZE, NULL, flags, &x->m, sizeof(x->m)) ||
	    !fx_engine_name(x->engine, name, sizeof(name)) ||
	    !fx_peer_start(&x->peer, MAPPED_SIZE, option, FX_HASTY, NULL) ||
	    fx_ask(&x->peer, "reg 0 %llu 1", MAPPED_SIZE))
		return ft_ok(false, "an_engine_and_a_peer_start");
	x->seg = fx_ask(&x->peer, "open %s", name);
	ft_diag("pages of %llu bytes, kind %u",
		(unsigned long long)x->m.page_size, x->m.pages);
	return x->seg > 0 || ft_ok(false, "peer_opens_the_engine");
}

static void mapped_stop(struct mapped *x)
{
	fx_peer_stop(&x->peer);
	destroyTransferEngine(x->engine);
}

/* Lets the peer write all of its memory to `at`, or read it from there, in
 * blocks. Returns true if all of them completed. */
static bool mapped_move(struct mapped *x, int op, const unsigned char *at,
			unsigned int block)
{
	char all[32];

	snprintf(all, sizeof(all), "%llu completed",
		 (MAPPED_SIZE + block - 1) / block);
	return !fx_ask(&x->peer, "start %d %d 0 %llu %llu %u 1 -", x->seg, op,
		       (unsigned long long)(uintptr_t)at, MAPPED_SIZE, block) &&
	       !fx_ask(&x->peer, "wait") && strstr(x->peer.text, all);
}

static bool mapped_move_all(struct mapped *x, const struct te_memory *m)
{
	static const unsigned int blocks[] = { 4096, 65536, 3000000 };
	struct fx_buf *mem = &x->peer.mem;
	unsigned char *p = mapped_ptr(m);
	bool good = true;

	for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
		fx_buf_fill(mem, 0, MAPPED_SIZE, 20 + i);
		memset(p, 0, MAPPED_SIZE);
		good = good && mapped_move(x, OPCODE_WRITE, p, blocks[i]) &&
		       !memcmp(p, mem->p, MAPPED_SIZE);
		fx_buf_poison(mem, 0, MAPPED_SIZE);
		good = good && mapped_move(x, OPCODE_READ, p, blocks[i]) &&
		       !memcmp(p, mem->p, MAPPED_SIZE);
	}
	return good;
}

/* The peer may no longer make kernel copies: memory of te_alloc is reached, and
 * other memory is not. */
static void mapped_without_kernel(uint64_t flags, const char *pages)
{
	struct fx_buf other = fx_buf_map(MAPPED_SIZE, -1);
	struct mapped x;

	if (!mapped_start(&x, "local", flags))
		return;
	ft_ok(fx_register(x.engine, &other) &&
		      mapped_move(&x, OPCODE_WRITE, other.p, FX_MIB) &&
		      mapped_move_all(&x, &x.m),
	      "memory_of_%s_pages_is_written_and_read", pages);
	ft_ok(fx_ask(&x.peer, "paths %d", x.seg) > 0 &&
		      strstr(x.peer.text, " memcpy,process_vm "),
	      "path_to_memory_of_%s_pages_is_memcpy: %s", pages,
	      x.peer.text);
	if (fx_ask(&x.peer, "forbid"))
		ft_skip("copies without the kernel: no seccomp filter can be set");
	else
		ft_ok(mapped_move_all(&x, &x.m) &&
			      !mapped_move(&x, OPCODE_WRITE, other.p, FX_MIB),
		      "only_memory_of_%s_pages_is_reached_without_the_kernel",
		      pages);
	mapped_stop(&x);
	fx_buf_unmap(&other);
}

/* The peer is stopped while it writes, and memory is freed meanwhile. Afterwards
 * it uses memory that was allocated later. */
static void mapped_stopped(void)
{
	struct te_memory next = { .addr = 0 };
	bool written = false;
	struct mapped x;
	int freed;

	if (!mapped_start(&x, "auto", TE_ALLOC_SMALL_PAGES))
		return;
	ft_ok(mapped_move(&x, OPCODE_WRITE, mapped_ptr(&x.m), MAPPED_SEG) &&
		      !fx_ask(&x.peer, "start %d %d 0 %llu %llu %u 50 -", x.seg,
			      OPCODE_WRITE, (unsigned long long)x.m.addr,
			      MAPPED_SIZE, MAPPED_SEG) &&
		      fx_peer_pause(&x.peer),
	      "peer_is_stopped_while_it_writes_to_mapped_memory");
	freed = te_free(x.engine, mapped_ptr(&x.m));
	ft_ok(freed == 0 || freed == -4,
	      "te_free_while_the_peer_is_stopped_is_0_or_4");
	ft_diag("te_free: %d", freed);
	ft_ok(!te_alloc(x.engine, MAPPED_SIZE, NULL, TE_ALLOC_SMALL_PAGES, &next,
			sizeof(next)),
	      "new_memory_is_allocated");
	fx_peer_resume(&x.peer);
	fx_ask(&x.peer, "wait");
	if (freed)
		ft_ok(!te_free(x.engine, mapped_ptr(&x.m)),
		      "memory_is_freed_when_the_copy_has_ended");
	for (size_t i = 0; i < MAPPED_SIZE; i++)
		written |= mapped_ptr(&next)[i] != 0;
	ft_ok(!written, "law2_new_memory_is_not_written_by_the_old_transfer");
	ft_ok(mapped_move_all(&x, &next),
	      "new_memory_is_reached");
	ft_ok(!fx_ask(&x.peer, "start %d %d 0 %llu %llu %u 50 -", x.seg,
		      OPCODE_WRITE, (unsigned long long)next.addr, MAPPED_SIZE,
		      MAPPED_SEG),
	      "peer_writes_to_mapped_memory_when_it_is_killed");
	fx_peer_kill(&x.peer);
	ft_ok(!te_free(x.engine, mapped_ptr(&next)),
	      "memory_is_freed_after_the_peer_was_killed");
	fx_peer_drop(&x.peer);
	destroyTransferEngine(x.engine);
}

/* The peer cancels writes to the first half of the memory. No byte may arrive
 * after the tasks are terminal. */
static void mapped_cancel(struct mapped *x)
{
	unsigned char *p = mapped_ptr(&x->m), *zero = calloc(1, MAPPED_SIZE);
	bool good = zero && mapped_move(x, OPCODE_WRITE, p, FX_MIB);

	for (int i = 0; i < 5 && good; i++) {
		good = !fx_ask(&x->peer, "cancel %d %llu %llu", x->seg,
			       (unsigned long long)x->m.addr, MAPPED_SIZE / 2);
		ft_diag("%s", x->peer.text);
		memset(p, 0, MAPPED_SIZE);
		good = good &&
		       !fx_ask(&x->peer, "start %d %d 0 %llu 4096 4096 1 -",
			       x->seg, OPCODE_WRITE,
			       (unsigned long long)x->m.addr +
				       MAPPED_SIZE / 2) &&
		       !fx_ask(&x->peer, "wait") &&
		       !memcmp(p, zero, MAPPED_SIZE / 2);
	}
	ft_ok(good, "law2_cancelled_writes_to_mapped_memory_are_final");
	free(zero);
}

/* A child does not have the memory, and its end changes nothing. */
static void mapped_fork(struct mapped *x)
{
	unsigned char *p = mapped_ptr(&x->m), vec[1];
	int status = 0;
	pid_t pid;

	p[0] = 3;
	pid = fork();
	if (!pid)
		_exit(!(mincore(p, 1, vec) && errno == ENOMEM));
	ft_ok(pid > 0 && waitpid(pid, &status, 0) == pid &&
		      WIFEXITED(status) && !WEXITSTATUS(status) && p[0] == 3,
	      "child_does_not_inherit_mapped_memory");
	ft_ok(mapped_move_all(x, &x->m),
	      "mapped_memory_is_reached_after_a_fork");
}

/* --- memory of the peer -------------------------------------------------- */

/* The peer is killed while this process writes to its memory. */
static void mapped_owner_killed(void)
{
	struct fx_job job = { .op = OPCODE_WRITE, .len = MAPPED_SIZE,
			      .block = 4 * FX_KIB };
	struct te_memory m = { .addr = 0 };
	struct fx_peer peer;
	bool good;

	job.engine = fx_engine_hasty("auto");
	if (!ft_ok(job.engine && fx_peer_start(&peer, FX_MIB, "transport=auto",
					       NULL) &&
			   !fx_ask(&peer, "alloc %llu", MAPPED_SIZE) &&
			   !te_alloc(job.engine, MAPPED_SIZE, NULL,
				     TE_ALLOC_PRIVATE, &m, sizeof(m)),
		   "an_engine_and_a_peer_with_memory"))
		return;
	job.remote = strtoull(peer.text, NULL, 10);
	job.local = mapped_ptr(&m);
	job.seg = openSegment(job.engine, peer.name);
	ft_ok(fx_move(job.engine, job.seg, job.op, job.local, job.remote,
		      job.len, job.block) && !fx_job_start(&job),
	      "memory_of_the_peer_is_written");
	fx_peer_kill(&peer);
	good = fx_job_wait(&job, fx_soon_ms(8000));
	ft_diag("%s", fx_job_text(&job));
	ft_ok(good, "law3_every_copy_to_memory_of_a_killed_owner_ends");
	fx_job_wait(&job, FX_LONG_MS);
	fx_job_free(&job);
	ft_ok(!fx_move(job.engine, job.seg, job.op, job.local, job.remote, 4096,
		       0),
	      "copy_to_memory_of_a_killed_owner_fails");
	fx_peer_drop(&peer);
	destroyTransferEngine(job.engine);
}

void mapped_tests(void)
{
	struct mapped x;

	mapped_without_kernel(0, "any");
	mapped_without_kernel(TE_ALLOC_SMALL_PAGES, "small");
	mapped_stopped();
	if (mapped_start(&x, "auto", 0)) {
		mapped_cancel(&x);
		mapped_fork(&x);
		mapped_stop(&x);
	}
	for (int i = 0; i < 3; i++)
		mapped_owner_killed();
}
