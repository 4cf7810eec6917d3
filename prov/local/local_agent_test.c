/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests with a second process, the agent: effects of copies on the agent, and
 * attacks by the agent.
 */
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prov/local/local_test.h"
#include "util/clock.h"

#define AGENT_MEM	(4u << 20)

struct agent_fixture {
	struct tei_local *ctx;
	struct test_agent agent;
	struct tei_local_peer *peer;
	struct tei_local_id id;		/* identity of the agent */
	uint64_t remote;		/* address of the agent's memory */
	unsigned char *mem;		/* memory of this process, registered
					 * for the agent */
	char own_id[TEI_LOCAL_ID_TEXT];
};

static void agent_setup_own(struct agent_fixture *f)
{
	struct tei_local_id id;

	f->ctx = test_ctx(2);
	f->mem = test_memory(f->ctx, AGENT_MEM);
	CU_ASSERT_FATAL(f->mem != NULL);
	memset(f->mem, 0, AGENT_MEM);
	CU_ASSERT(!tei_local_region_add(f->ctx, f->mem, AGENT_MEM, TEI_LOCAL_REMOTE));
	CU_ASSERT(!tei_local_identity(f->ctx, &id));
	CU_ASSERT(!tei_local_id_format(&id, f->own_id, sizeof(f->own_id)));
}

static enum tei_local_reason agent_setup(struct agent_fixture *f,
					 bool accessible)
{
	char text[TEI_LOCAL_ID_TEXT];
	unsigned long long addr = 0;

	memset(f, 0, sizeof(*f));
	agent_setup_own(f);
	CU_ASSERT_FATAL(test_agent_start(&f->agent));
	CU_ASSERT_FATAL(sscanf(test_agent_ask(&f->agent, "alloc %u %d %d",
					      AGENT_MEM, accessible,
					      test_mapped),
			       "%llx %191s", &addr, text) == 2);
	if (test_unheld)
		test_agent_ask(&f->agent, "unhold");
	f->remote = addr;
	CU_ASSERT_FATAL(!tei_local_id_parse(text, &f->id));
	return tei_local_peer_open(f->ctx, &f->id, NULL, &f->peer);
}

static void agent_teardown(struct agent_fixture *f)
{
	tei_local_peer_close(f->ctx, f->peer);
	test_agent_stop(&f->agent);
	tei_local_fini(f->ctx);
	test_memory_free(NULL, f->mem, AGENT_MEM);
}

static int agent_ask_int(struct agent_fixture *f, const char *line)
{
	return atoi(test_agent_ask(&f->agent, "%s", line));
}

static bool agent_hash_is(struct agent_fixture *f, const void *p)
{
	char text[32];

	snprintf(text, sizeof(text), "%llx",
		 (unsigned long long)test_hash(p, AGENT_MEM));
	return !strcmp(test_agent_ask(&f->agent, "hash"), text);
}

/* Makes one random transfer, on this thread or on a copy thread. Makes the same
 * change in the array "shadow". */
static int agent_random_transfer(struct agent_fixture *f, unsigned char *shadow,
				 uint64_t *state)
{
	uint64_t r = test_random(state), off, len, at;
	bool write = r & 1, small = r & 2;
	enum tei_local_opcode op = write ? TEI_LOCAL_WRITE : TEI_LOCAL_READ;
	int rc;

	len = test_random(state) % (small ? 9000 : AGENT_MEM / 2);
	off = test_random(state) % (AGENT_MEM - len);
	at = test_random(state) % (AGENT_MEM - len);
	if (small)
		rc = test_copy(f->ctx, f->peer, op, f->mem + at,
			       f->remote + off, len);
	else
		rc = test_run_op(f->ctx, f->peer, op, f->mem + at,
				 f->remote + off, len);
	if (write)
		memcpy(shadow + off, f->mem + at, len);
	else
		rc |= memcmp(shadow + off, f->mem + at, len);
	return rc;
}

static void test_copies_both_ways(void)
{
	unsigned char *shadow = malloc(AGENT_MEM);
	struct agent_fixture f;
	uint64_t state = 99;
	struct tei_local_counters c;
	int i, bad = 0;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	CU_ASSERT(!tei_local_peer_is_self(f.peer));
	test_fill(shadow, AGENT_MEM, 5);
	test_agent_ask(&f.agent, "fill 5");
	test_fill(f.mem, AGENT_MEM, 6);
	for (i = 0; i < 300; i++)
		bad += agent_random_transfer(&f, shadow, &state) != 0;
	CU_ASSERT(bad == 0);
	CU_ASSERT(agent_hash_is(&f, shadow));
	CU_ASSERT(!test_run_op(f.ctx, f.peer, TEI_LOCAL_READ, f.mem, f.remote,
			       AGENT_MEM));
	CU_ASSERT(!memcmp(f.mem, shadow, AGENT_MEM));
	tei_local_stats(f.ctx, &c);
	/* an operation of length 0 is not copied through the mapping */
	CU_ASSERT(test_mapped ? c.mapped + 3 >= c.pieces : !c.mapped);
	agent_teardown(&f);
	free(shadow);
}

static int agent_write_at(struct agent_fixture *f, uint64_t remote,
			  uint64_t len)
{
	int inl = 0, queued;

	queued = test_run_op(f->ctx, f->peer, TEI_LOCAL_WRITE, f->mem, remote,
			     len);
	if (len <= TEI_LOCAL_COPY_MAX) {
		inl = test_copy(f->ctx, f->peer, TEI_LOCAL_WRITE, f->mem,
				remote, len);
		CU_ASSERT(inl == queued);
	}
	return queued;
}

static void test_law8_ranges_outside_are_refused(void)
{
	struct agent_fixture f;
	unsigned char *zero = calloc(1, AGENT_MEM);
	uint64_t end;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	end = f.remote + AGENT_MEM;
	memset(f.mem, 1, AGENT_MEM);
	CU_ASSERT(agent_write_at(&f, f.remote - 1, 2) ==
		  TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(agent_write_at(&f, end - 1, 2) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(agent_write_at(&f, end, 1) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(agent_write_at(&f, 0, 1) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(agent_write_at(&f, f.id.magic_addr, 8) ==
		  TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(agent_write_at(&f, UINT64_MAX - 1, 2) == TEI_ERR_INVALID);
	/* a transfer of several pieces, one of which is outside the registered
	 * range, must copy nothing */
	CU_ASSERT(agent_write_at(&f, f.remote + 1, AGENT_MEM) ==
		  TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(agent_write_at(&f, f.remote - 1, AGENT_MEM) ==
		  TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(agent_hash_is(&f, zero));
	CU_ASSERT(agent_write_at(&f, end - 1, 1) == 0);
	agent_teardown(&f);
	free(zero);
}

static void test_inaccessible_region_is_refused(void)
{
	struct agent_fixture f;
	unsigned char *zero = calloc(1, AGENT_MEM);

	CU_ASSERT_FATAL(agent_setup(&f, false) == TEI_LOCAL_OK);
	memset(f.mem, 1, AGENT_MEM);
	CU_ASSERT(agent_write_at(&f, f.remote, 64) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(test_run_op(f.ctx, f.peer, TEI_LOCAL_READ, f.mem, f.remote,
			      64) == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(f.mem[0] == 1);
	CU_ASSERT(agent_hash_is(&f, zero));
	agent_teardown(&f);
	free(zero);
}

/* ---- death, stop, exec -------------------------------------------------- */

static void agent_wait_bytes(struct tei_local *ctx)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct tei_local_counters c;

	do {
		sched_yield();
		tei_local_stats(ctx, &c);
	} while (!c.tx_bytes && tei_now_ns() < end);
	CU_ASSERT(c.tx_bytes > 0);
}

static void test_killed_in_mid_copy(void)
{
	enum { N = 2000 };
	struct test_op *t = calloc(N, sizeof(*t));
	struct agent_fixture f;
	int i, code, failed = 0;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	for (i = 0; i < N; i++) {
		test_op_init(&t[i], f.peer, TEI_LOCAL_WRITE, f.mem, f.remote,
			     AGENT_MEM);
		CU_ASSERT(!tei_local_submit(f.ctx, &t[i].op));
	}
	agent_wait_bytes(f.ctx);
	CU_ASSERT(!tei_local_peer_ended(f.peer));
	kill(f.agent.pid, SIGKILL);
	for (i = 0; i < N; i++) {
		code = test_op_wait(&t[i]);
		CU_ASSERT(code == 0 || code == TEI_ERR_CONTEXT);
		CU_ASSERT(!code || t[i].err.text[0]);
		failed += code != 0;
	}
	CU_ASSERT(failed > 0);
	while (waitpid(f.agent.pid, NULL, 0) < 0 && errno == EINTR)
		;
	f.agent.pid = 0;
	CU_ASSERT(!tei_local_peer_alive(f.peer));
	CU_ASSERT(tei_local_peer_ended(f.peer));
	CU_ASSERT(agent_write_at(&f, f.remote, 1) == TEI_ERR_CONTEXT);
	tei_local_peer_close(f.ctx, f.peer);
	f.peer = NULL;
	CU_ASSERT(tei_local_peer_open(f.ctx, &f.id, NULL, &f.peer) ==
		  TEI_LOCAL_GONE);
	agent_teardown(&f);
	for (i = 0; i < N; i++)
		test_op_fini(&t[i]);
	free(t);
}

/* A copy that begins when the parent of the target can know that the target has
 * ended must fail. */
static void test_killed_target_is_noticed_at_once(void)
{
	enum { ROUNDS = 10 };
	struct agent_fixture f;
	siginfo_t info;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
		CU_ASSERT(agent_write_at(&f, f.remote, 64) == 0);
		CU_ASSERT(local_peer_holds(f.peer) == (test_mapped && !test_unheld));
		kill(f.agent.pid, SIGKILL);
		CU_ASSERT(!waitid(P_PID, (id_t)f.agent.pid, &info,
				  WEXITED | WNOWAIT));
		CU_ASSERT(!local_peer_holds(f.peer));
		CU_ASSERT(test_copy(f.ctx, f.peer, TEI_LOCAL_WRITE, f.mem,
				    f.remote, 64) == TEI_ERR_CONTEXT);
		agent_teardown(&f);
	}
}

static void test_restart_is_noticed(void)
{
	struct tei_local_peer *peer = NULL;
	struct agent_fixture f;
	struct tei_local_id id;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	id = f.id;
	id.start_time--;
	CU_ASSERT(tei_local_peer_open(f.ctx, &id, NULL, &peer) ==
		  TEI_LOCAL_RESTARTED);
	id = f.id;
	id.incarnation ^= 1;
	CU_ASSERT(tei_local_peer_open(f.ctx, &id, NULL, &peer) ==
		  TEI_LOCAL_RESTARTED);
	id = f.id;
	id.magic_addr = f.remote;
	CU_ASSERT(tei_local_peer_open(f.ctx, &id, NULL, &peer) ==
		  TEI_LOCAL_BAD_MAGIC);
	id.magic_addr = 4096;
	CU_ASSERT(tei_local_peer_open(f.ctx, &id, NULL, &peer) ==
		  TEI_LOCAL_BAD_MAGIC);
	agent_teardown(&f);
}

/*
 * An exec of the peer must be noticed: its pid, its start time and the mapped
 * registration table stay the same, but its memory is replaced.
 */
static void test_exec_is_noticed(void)
{
	struct agent_fixture f;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	CU_ASSERT(agent_write_at(&f, f.remote, 64) == 0);
	CU_ASSERT(!strcmp(test_agent_ask(&f.agent, "exec"), "ready"));
	CU_ASSERT(agent_write_at(&f, f.remote, 64) == TEI_ERR_CONTEXT);
	CU_ASSERT(test_run_op(f.ctx, f.peer, TEI_LOCAL_READ, f.mem, f.remote,
			      64) == TEI_ERR_CONTEXT);
	CU_ASSERT(!tei_local_peer_alive(f.peer));
	CU_ASSERT(!tei_local_peer_ended(f.peer));
	agent_teardown(&f);
}

/*
 * A change of the incarnation in the process's memory must be noticed. It
 * changes after an exec that maps other memory at the same address.
 */
static void test_replaced_memory_is_noticed(void)
{
	unsigned char *zero = calloc(1, AGENT_MEM);
	struct agent_fixture f;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	CU_ASSERT(agent_ask_int(&f, "cover") == 0);
	memset(f.mem, 1, AGENT_MEM);
	CU_ASSERT(agent_write_at(&f, f.remote, 64) == TEI_ERR_CONTEXT);
	CU_ASSERT(test_run_op(f.ctx, f.peer, TEI_LOCAL_READ, f.mem, f.remote,
			      64) == TEI_ERR_CONTEXT);
	CU_ASSERT(agent_hash_is(&f, zero));
	agent_teardown(&f);
	free(zero);
}

static void test_stopped_target_takes_bytes(void)
{
	struct agent_fixture f;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	kill(f.agent.pid, SIGSTOP);
	CU_ASSERT_FATAL(test_agent_stopped(&f.agent));
	test_fill(f.mem, AGENT_MEM, 3);
	CU_ASSERT(!test_run_op(f.ctx, f.peer, TEI_LOCAL_WRITE, f.mem, f.remote,
			       AGENT_MEM));
	CU_ASSERT(tei_local_peer_alive(f.peer));
	kill(f.agent.pid, SIGCONT);
	CU_ASSERT(agent_hash_is(&f, f.mem));
	agent_teardown(&f);
}

static void test_unmapped_memory_is_an_error(void)
{
	struct agent_fixture f;
	struct tei_err err;
	char *gone;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	CU_ASSERT(agent_ask_int(&f, "unmap") == 0);
	CU_ASSERT(agent_write_at(&f, f.remote, AGENT_MEM / 2) == 0);
	CU_ASSERT(agent_write_at(&f, f.remote, AGENT_MEM) == TEI_ERR_CONTEXT);
	CU_ASSERT(agent_write_at(&f, f.remote + AGENT_MEM / 2 - 8, 16) ==
		  TEI_ERR_CONTEXT);
	CU_ASSERT(tei_local_copy(f.ctx, f.peer, TEI_LOCAL_READ, f.mem,
				 f.remote + AGENT_MEM / 2, 8, &err) ==
		  TEI_ERR_CONTEXT);
	CU_ASSERT(err.prov_errno == EFAULT);
	gone = mmap(NULL, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CU_ASSERT(test_run_op(f.ctx, f.peer, TEI_LOCAL_READ, gone, f.remote,
			      65536) == TEI_ERR_INVALID);
	munmap(gone, 65536);
	agent_teardown(&f);
}

static void test_copy_without_permission_fails(void)
{
	struct agent_fixture f;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	if (geteuid()) {
		tei_local_peer_close(f.ctx, f.peer);
		f.peer = NULL;
		CU_ASSERT(agent_ask_int(&f, "nodump") == 0);
		CU_ASSERT(tei_local_peer_open(f.ctx, &f.id, NULL, &f.peer) ==
			  TEI_LOCAL_NO_PERMISSION);
	} else {
		CU_ASSERT(agent_ask_int(&f, "drop") == 0);
		CU_ASSERT(atoi(test_agent_ask(&f.agent, "open %s",
					      f.own_id)) ==
			  TEI_LOCAL_NO_PERMISSION);
	}
	agent_teardown(&f);
}

/* ---- removal against the other process ---------------------------------- */

static void test_remove_waits_for_a_stopped_initiator(void)
{
	unsigned char *before = malloc(AGENT_MEM);
	struct agent_fixture f;
	int rc;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	CU_ASSERT(atoi(test_agent_ask(&f.agent, "open %s", f.own_id)) == 0);
	test_agent_ask(&f.agent, "fill 8");
	test_agent_ask(&f.agent, "hook");
	test_agent_send(&f.agent, "write %llx %u",
			(unsigned long long)test_addr(f.mem), 65536);
	CU_ASSERT_FATAL(test_agent_stopped(&f.agent));
	rc = tei_local_region_remove(f.ctx, f.mem, 0,
				     tei_now_ns() + 20 * TEI_NS_PER_MS);
	CU_ASSERT(rc == TEI_ERR_BUSY);
	CU_ASSERT(!tei_local_region_check(f.ctx, f.mem, AGENT_MEM, false));
	kill(f.agent.pid, SIGCONT);
	CU_ASSERT(!tei_local_region_remove(f.ctx, f.mem, 0,
					   tei_now_ns() + TEST_WAIT_NS));
	/* only the piece in progress may be copied, and no further piece */
	memcpy(before, f.mem, AGENT_MEM);
	CU_ASSERT(before[0] || before[1] || before[2]);
	CU_ASSERT(test_agent_wait(&f.agent));
	CU_ASSERT(atoi(f.agent.answer) == 0);
	CU_ASSERT(!memcmp(before, f.mem, AGENT_MEM));
	agent_teardown(&f);
	free(before);
}

static void test_remove_outlives_a_dead_initiator(void)
{
	struct agent_fixture f;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	CU_ASSERT(atoi(test_agent_ask(&f.agent, "open %s", f.own_id)) == 0);
	test_agent_ask(&f.agent, "hook");
	test_agent_send(&f.agent, "write %llx %u",
			(unsigned long long)test_addr(f.mem), 65536);
	CU_ASSERT_FATAL(test_agent_stopped(&f.agent));
	kill(f.agent.pid, SIGKILL);
	CU_ASSERT(!tei_local_region_remove(f.ctx, f.mem, 0,
					   tei_now_ns() + TEST_WAIT_NS));
	CU_ASSERT(f.mem[0] == 0);
	agent_teardown(&f);
}

static void test_remove_during_a_storm(void)
{
	unsigned char *before = malloc(AGENT_MEM);
	volatile unsigned char *mem;
	struct agent_fixture f;
	uint64_t end;
	int i;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	mem = f.mem;
	CU_ASSERT(atoi(test_agent_ask(&f.agent, "open %s", f.own_id)) == 0);
	for (i = 0; i < 10; i++) {
		test_agent_send(&f.agent, "storm %llx %u",
				(unsigned long long)test_addr(f.mem),
				AGENT_MEM);
		end = tei_now_ns() + TEST_WAIT_NS;
		while (!mem[0] && tei_now_ns() < end)
			sched_yield();
		CU_ASSERT(!tei_local_region_remove(f.ctx, f.mem, 0,
				tei_now_ns() + TEST_WAIT_NS));
		memcpy(before, f.mem, AGENT_MEM);
		CU_ASSERT(test_agent_wait(&f.agent));
		CU_ASSERT(atoi(f.agent.answer) == TEI_ERR_NOT_REGISTERED);
		CU_ASSERT(!memcmp(before, f.mem, AGENT_MEM));
		memset(f.mem, 0, AGENT_MEM);
		CU_ASSERT(!tei_local_region_add(f.ctx, f.mem, AGENT_MEM, TEI_LOCAL_REMOTE));
	}
	agent_teardown(&f);
	free(before);
}

/* Copy threads wait in this hook; the thread of the test does not. */
struct agent_gate {
	pthread_t test;
	sem_t inside, go;
};

static void agent_gate_hook(void *arg)
{
	struct agent_gate *g = arg;

	if (pthread_equal(pthread_self(), g->test))
		return;
	sem_post(&g->inside);
	while (sem_wait(&g->go))
		;
}

/* Keeps both copy threads in the hook, with one copy inside this process each,
 * which changes nothing. So only tei_local_progress copies. */
static void agent_gate_close(struct agent_fixture *f, struct agent_gate *g,
			     struct test_op held[2])
{
	int i;

	g->test = pthread_self();
	sem_init(&g->inside, 0, 0);
	sem_init(&g->go, 0, 0);
	f->ctx->before_copy = agent_gate_hook;
	f->ctx->before_copy_arg = g;
	for (i = 0; i < 2; i++) {
		test_op_init(&held[i], NULL, TEI_LOCAL_WRITE, f->mem + i,
			     test_addr(f->mem + i), 1);
		CU_ASSERT_FATAL(!tei_local_submit(f->ctx, &held[i].op));
		while (sem_wait(&g->inside))
			;
	}
}

static void agent_gate_open(struct agent_fixture *f, struct agent_gate *g,
			    struct test_op held[2])
{
	int i;

	sem_post(&g->go);
	sem_post(&g->go);
	for (i = 0; i < 2; i++) {
		CU_ASSERT(!test_op_wait(&held[i]));
		tei_local_cancel(f->ctx, &held[i].op);
		test_op_fini(&held[i]);
	}
	f->ctx->before_copy = NULL;
}

/* The target unregisters its memory and registers it again. */
static void agent_renew(struct agent_fixture *f)
{
	CU_ASSERT(!agent_ask_int(f, "remove"));
	CU_ASSERT(!agent_ask_int(f, "add"));
}

/* A request that has several pieces must not be COMPLETED if they are in two
 * registrations. */
static void test_law1_pieces_are_in_one_registration(void)
{
	struct test_op held[2], t;
	struct agent_fixture f;
	struct agent_gate g;
	int i;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	for (i = 0; i < 2; i++) {
		agent_gate_close(&f, &g, held);
		test_op_init(&t, f.peer, i ? TEI_LOCAL_READ : TEI_LOCAL_WRITE,
			     f.mem, f.remote, AGENT_MEM);
		CU_ASSERT_FATAL(!tei_local_submit(f.ctx, &t.op));
		CU_ASSERT(tei_local_progress(f.ctx));
		CU_ASSERT(t.op.moved == TEI_LOCAL_PIECE && !t.calls);
		agent_renew(&f);
		while (tei_local_progress(f.ctx))
			;
		CU_ASSERT(test_op_wait(&t) == TEI_ERR_NOT_REGISTERED);
		CU_ASSERT(t.bytes == TEI_LOCAL_PIECE);
		CU_ASSERT(strstr(t.err.text, "registered again") != NULL);
		agent_gate_open(&f, &g, held);
		tei_local_cancel(f.ctx, &t.op);
		test_op_fini(&t);
		CU_ASSERT(!test_run_op(f.ctx, f.peer, TEI_LOCAL_WRITE, f.mem,
				       f.remote, AGENT_MEM));
	}
	agent_teardown(&f);
}

/* Copies two blocks as a run, then one of them alone, with this serial number.
 * Returns true if they were copied, and false if all of them were refused. */
static bool agent_copy_serial(struct agent_fixture *f,
			      struct tei_local_peer *peer, uint64_t remote,
			      uint64_t serial)
{
	struct tei_local_op op[2] = { { 0 } }, *list[2] = { &op[0], &op[1] };
	size_t i, run;
	int code;

	for (i = 0; i < 2; i++)
		op[i] = (struct tei_local_op){ .peer = peer,
					       .opcode = TEI_LOCAL_WRITE,
					       .local = f->mem + i * 8192,
					       .registered = test_mapped,
					       .remote = remote + i * 8192,
					       .length = 4096,
					       .serial = serial };
	run = peer ? tei_local_copy_run(f->ctx, list, 2) : 2;
	code = tei_local_copy_op(f->ctx, &op[1], NULL);
	CU_ASSERT(!code || code == TEI_ERR_NOT_REGISTERED);
	CU_ASSERT(!peer || run == (code ? 0 : 2));
	return !code;
}

static void test_serial_changes_with_the_registration(void)
{
	uint64_t was, now, own;
	struct agent_fixture f;

	CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
	was = tei_local_serial(f.ctx, f.peer, f.remote + 1, 8, true);
	CU_ASSERT(was != 0);
	CU_ASSERT(tei_local_serial(f.ctx, f.peer, f.remote, AGENT_MEM, false) ==
		  was);
	CU_ASSERT(!tei_local_serial(f.ctx, f.peer, f.remote, AGENT_MEM + 1,
				    false));
	CU_ASSERT(agent_copy_serial(&f, f.peer, f.remote, was));
	CU_ASSERT(agent_copy_serial(&f, f.peer, f.remote, 0));
	agent_renew(&f);
	now = tei_local_serial(f.ctx, f.peer, f.remote, AGENT_MEM, true);
	CU_ASSERT(now && now != was);
	CU_ASSERT(!agent_copy_serial(&f, f.peer, f.remote, was));
	CU_ASSERT(agent_copy_serial(&f, f.peer, f.remote, now));
	/* memory of this process */
	own = tei_local_serial(f.ctx, NULL, test_addr(f.mem), AGENT_MEM, true);
	CU_ASSERT(own && agent_copy_serial(&f, NULL, test_addr(f.mem), own));
	CU_ASSERT(!tei_local_region_remove(f.ctx, f.mem, 0,
					   tei_now_ns() + TEST_WAIT_NS));
	CU_ASSERT(!tei_local_serial(f.ctx, NULL, test_addr(f.mem), 1, false));
	CU_ASSERT(!tei_local_region_add(f.ctx, f.mem, AGENT_MEM,
					TEI_LOCAL_REMOTE));
	CU_ASSERT(!agent_copy_serial(&f, NULL, test_addr(f.mem), own));
	agent_teardown(&f);
}

static void test_overwritten_magic_is_survived(void)
{
	struct agent_fixture f;
	int i;

	for (i = 0; i < 8; i++) {
		CU_ASSERT_FATAL(agent_setup(&f, true) == TEI_LOCAL_OK);
		f.ctx->stall_ns = TEI_NS_PER_MS;
		test_agent_ask(&f.agent, "scribble %d", i);
		CU_ASSERT(agent_write_at(&f, f.remote, 64) != 0);
		CU_ASSERT(test_run_op(f.ctx, f.peer, TEI_LOCAL_READ, f.mem,
				      f.remote, AGENT_MEM) != 0);
		CU_ASSERT(!tei_local_peer_alive(f.peer));
		agent_teardown(&f);
	}
}

const struct tei_test_case local_agent_cases[] = {
	{ "copies_both_ways", test_copies_both_ways },
	{ "law8_ranges_outside_are_refused",
	  test_law8_ranges_outside_are_refused },
	{ "inaccessible_region_is_refused",
	  test_inaccessible_region_is_refused },
	{ "killed_in_mid_copy", test_killed_in_mid_copy },
	{ "killed_target_is_noticed_at_once",
	  test_killed_target_is_noticed_at_once },
	{ "restart_is_noticed", test_restart_is_noticed },
	{ "exec_is_noticed", test_exec_is_noticed },
	{ "replaced_memory_is_noticed", test_replaced_memory_is_noticed },
	{ "stopped_target_takes_bytes", test_stopped_target_takes_bytes },
	{ "unmapped_memory_is_an_error", test_unmapped_memory_is_an_error },
	{ "copy_without_permission_fails", test_copy_without_permission_fails },
	{ "remove_waits_for_a_stopped_initiator",
	  test_remove_waits_for_a_stopped_initiator },
	{ "remove_outlives_a_dead_initiator",
	  test_remove_outlives_a_dead_initiator },
	{ "remove_during_a_storm", test_remove_during_a_storm },
	{ "law1_pieces_are_in_one_registration",
	  test_law1_pieces_are_in_one_registration },
	{ "serial_changes_with_the_registration",
	  test_serial_changes_with_the_registration },
	{ "overwritten_magic_is_survived", test_overwritten_magic_is_survived },
	{ NULL, NULL },
};

/* Only the kernel knows whether the agent lives: no thread of the agent holds
 * the futex word. */
#define AGENT_UNHELD(test)                                               \
	static void unheld_##test(void)                                   \
	{                                                                \
		test_mapped = test_unheld = true;                        \
		test();                                                  \
		test_mapped = test_unheld = false;                       \
	}

AGENT_UNHELD(test_copies_both_ways)
AGENT_UNHELD(test_killed_target_is_noticed_at_once)
AGENT_UNHELD(test_exec_is_noticed)
AGENT_UNHELD(test_replaced_memory_is_noticed)

/* The same tests with memory that both processes can map. */
#define AGENT_MAPPED(test)                                               \
	static void mapped_##test(void)                                   \
	{                                                                \
		test_mapped = true;                                      \
		test();                                                  \
		test_mapped = false;                                     \
	}

AGENT_MAPPED(test_copies_both_ways)
AGENT_MAPPED(test_law8_ranges_outside_are_refused)
AGENT_MAPPED(test_inaccessible_region_is_refused)
AGENT_MAPPED(test_killed_in_mid_copy)
AGENT_MAPPED(test_exec_is_noticed)
AGENT_MAPPED(test_killed_target_is_noticed_at_once)
AGENT_MAPPED(test_stopped_target_takes_bytes)
AGENT_MAPPED(test_remove_waits_for_a_stopped_initiator)
AGENT_MAPPED(test_remove_outlives_a_dead_initiator)
AGENT_MAPPED(test_remove_during_a_storm)
AGENT_MAPPED(test_law1_pieces_are_in_one_registration)
AGENT_MAPPED(test_serial_changes_with_the_registration)
AGENT_MAPPED(test_overwritten_magic_is_survived)

const struct tei_test_case local_agent_mapped_cases[] = {
	{ "mapped_copies_both_ways", mapped_test_copies_both_ways },
	{ "law8_mapped_ranges_outside_are_refused",
	  mapped_test_law8_ranges_outside_are_refused },
	{ "mapped_inaccessible_region_is_refused",
	  mapped_test_inaccessible_region_is_refused },
	{ "mapped_killed_in_mid_copy", mapped_test_killed_in_mid_copy },
	{ "mapped_exec_is_noticed", mapped_test_exec_is_noticed },
	{ "mapped_killed_target_is_noticed_at_once",
	  mapped_test_killed_target_is_noticed_at_once },
	{ "unheld_copies_both_ways", unheld_test_copies_both_ways },
	{ "unheld_killed_target_is_noticed_at_once",
	  unheld_test_killed_target_is_noticed_at_once },
	{ "unheld_exec_is_noticed", unheld_test_exec_is_noticed },
	{ "unheld_replaced_memory_is_noticed",
	  unheld_test_replaced_memory_is_noticed },
	{ "mapped_stopped_target_takes_bytes",
	  mapped_test_stopped_target_takes_bytes },
	{ "mapped_remove_waits_for_a_stopped_initiator",
	  mapped_test_remove_waits_for_a_stopped_initiator },
	{ "mapped_remove_outlives_a_dead_initiator",
	  mapped_test_remove_outlives_a_dead_initiator },
	{ "mapped_remove_during_a_storm", mapped_test_remove_during_a_storm },
	{ "law1_mapped_pieces_are_in_one_registration",
	  mapped_test_law1_pieces_are_in_one_registration },
	{ "mapped_serial_changes_with_the_registration",
	  mapped_test_serial_changes_with_the_registration },
	{ "mapped_overwritten_magic_is_survived",
	  mapped_test_overwritten_magic_is_survived },
	{ NULL, NULL },
};
