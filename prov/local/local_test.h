/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_TEST_H
#define TEI_PROV_LOCAL_TEST_H

/* Shared by the unit tests of this module. The agent is a second process. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "prov/local/local_int.h"
#include "prov/local/tei_local_memory.h"
#include "prov/local/tei_local_stats.h"
#include "util/tei_test.h"

#define TEST_WAIT_NS	(UINT64_C(60) * 1000000000)

extern const struct tei_test_case local_agent_cases[];
extern const struct tei_test_case local_agent_mapped_cases[];
extern const struct tei_test_case local_gpu_cases[];
extern const struct tei_test_case local_id_cases[];
extern const struct tei_test_case local_peer_cases[];
extern const struct tei_test_case local_pool_cases[];
extern const struct tei_test_case local_region_cases[];
extern const struct tei_test_case local_run_cases[];
extern const struct tei_test_case local_view_cases[];

/* If true, the memory of test_memory can be mapped by peers, and operations
 * require registered local memory, so that they use mappings. */
extern bool test_mapped;
/* If true, no thread of the agent holds the robust futex word of the agent, as
 * on a system without such words. */
extern bool test_unheld;

/* Maps zeroed memory, which peers can map if test_mapped is true. Returns NULL
 * on failure. The caller frees it with test_memory_free. */
unsigned char *test_memory(struct tei_local *ctx, size_t len);
void test_memory_free(struct tei_local *ctx, void *p, size_t len);

/*
 * Creates a context with that many copy threads. The caller frees it with
 * tei_local_fini.
 */
struct tei_local *test_ctx(uint32_t workers);

/* An operation for whose end a test can wait. */
struct test_op {
	struct tei_local_op op;
	struct tei_err err;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int calls; /* number of calls of done; this and the following members
		    * are guarded by "lock" */
	int code;
	uint64_t bytes;
};

void test_op_init(struct test_op *t, struct tei_local_peer *peer,
		  enum tei_local_opcode opcode, void *local, uint64_t remote,
		  uint64_t length);
/* Waits for done and returns its code. */
int test_op_wait(struct test_op *t);
void test_op_fini(struct test_op *t);
/* Submits an operation, waits for its end and returns its code. */
int test_run_op(struct tei_local *ctx, struct tei_local_peer *peer,
		enum tei_local_opcode opcode, void *local, uint64_t remote,
		uint64_t length);

/* Copies on this thread. */
int test_copy(struct tei_local *ctx, struct tei_local_peer *peer,
	      enum tei_local_opcode opcode, void *local, uint64_t remote,
	      uint64_t length);

uint64_t test_random(uint64_t *state);
void test_fill(void *p, size_t len, uint64_t seed);
uint64_t test_hash(const void *p, size_t len);
static inline uint64_t test_addr(const void *p)
{
	return (uint64_t)(uintptr_t)p;
}

/*
 * The agent: a second process of this program with its own context. It executes
 * one command line at a time and answers with one line.
 */
struct test_agent {
	pid_t pid;
	int fd;
	char answer[512];
};

/* Returns a number that grows by one with each file descriptor that this process
 * opens. */
int test_fds(void);

/* Starts the agent. Returns false if this fails. */
bool test_agent_start(struct test_agent *a);
/* Sends a command without waiting for the answer. */
void test_agent_send(struct test_agent *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Waits for an answer and stores it in a->answer. Returns false at end of
 * file. */
bool test_agent_wait(struct test_agent *a);
/* Sends a command and waits for the answer. Returns the answer, or "" at end of
 * file. */
const char *test_agent_ask(struct test_agent *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Waits until a signal has stopped the agent. */
bool test_agent_stopped(struct test_agent *a);
/* Ends and reaps the agent. */
void test_agent_stop(struct test_agent *a);

/* Runs the agent. Returns the exit code. */
int test_agent_main(int fd);
/* Prints the rates of copies, as multiples of the rate of memcpy; if "runs" is
 * true, those of runs only. Returns the exit code. */
int test_bench_main(bool huge, bool runs);

#endif /* TEI_PROV_LOCAL_TEST_H */
