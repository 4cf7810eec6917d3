/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_TEST_H
#define TEI_PROV_LOCAL_TEST_H

/* Shared by the module's unit tests; the agent is a second process. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "prov/local/local_int.h"
#include "util/tei_test.h"

#define TEST_WAIT_NS	(UINT64_C(60) * 1000000000)

extern const struct tei_test_case local_agent_cases[];
extern const struct tei_test_case local_id_cases[];
extern const struct tei_test_case local_peer_cases[];
extern const struct tei_test_case local_pool_cases[];
extern const struct tei_test_case local_region_cases[];

/* A context with so many copy threads; freed by tei_local_fini. */
struct tei_local *test_ctx(uint32_t workers);

/* An operation and a way to wait for it. */
struct test_op {
	struct tei_local_op op;
	struct tei_err err;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int calls;			/* under lock, like what follows */
	int code;
	uint64_t bytes;
};

void test_op_init(struct test_op *t, struct tei_local_peer *peer,
		  enum tei_local_opcode opcode, void *local, uint64_t remote,
		  uint64_t length);
/* The code, once done was called. */
int test_op_wait(struct test_op *t);
void test_op_fini(struct test_op *t);
/* Submits and waits. */
int test_run_op(struct tei_local *ctx, struct tei_local_peer *peer,
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
 * The agent: this program again, with a context of its own, that executes
 * one line at a time and answers with one line.
 */
struct test_agent {
	pid_t pid;
	int fd;
	char answer[512];
};

/* False where it could not be started. */
bool test_agent_start(struct test_agent *a);
/* Sends without waiting for the answer. */
void test_agent_send(struct test_agent *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Waits for an answer: it is in a->answer. False at end of file. */
bool test_agent_wait(struct test_agent *a);
/* Both. The answer's text, "" at end of file. */
const char *test_agent_ask(struct test_agent *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Waits until a signal has stopped it. */
bool test_agent_stopped(struct test_agent *a);
/* Ends and reaps it. */
void test_agent_stop(struct test_agent *a);

/* What the second process does; its exit code. */
int test_agent_main(int fd);
/* Prints rates against memcpy. An exit code. */
int test_bench_main(bool huge);

#endif /* TEI_PROV_LOCAL_TEST_H */
