/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/sim/sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/sim/sim_test.h"
#include "util/clock.h"
#include "util/world.h"

/* The letters of the events that have run, in their order. */
static char order[64];

static void note(void *arg)
{
	size_t n = strlen(order);

	order[n] = *(const char *)arg;
	order[n + 1] = '\0';
}

static void core_begin(uint64_t seed, uint32_t hosts)
{
	order[0] = '\0';
	sim_begin(seed, hosts);
}

static void test_events_run_by_time_and_order(void)
{
	core_begin(1, 1);
	sim_at(SIM_START_NS + 20, note, "c");
	sim_at(SIM_START_NS + 10, note, "a");
	sim_at(SIM_START_NS + 10, note, "b");
	sim_at(SIM_START_NS + 30, note, "d");
	sim_run(SIM_START_NS + 20);
	CU_ASSERT_STRING_EQUAL(order, "abc");
	CU_ASSERT_EQUAL(sim_now(), SIM_START_NS + 20);
	CU_ASSERT_EQUAL(sim_events(), 3);
	sim_run(SIM_START_NS + 100);
	CU_ASSERT_STRING_EQUAL(order, "abcd");
	CU_ASSERT_EQUAL(sim_now(), SIM_START_NS + 100);
	sim_end();
}

static void test_event_of_the_past_runs_now(void)
{
	core_begin(1, 1);
	sim_run(SIM_START_NS + 100);
	sim_at(SIM_START_NS, note, "a");
	sim_run(SIM_START_NS + 100);
	CU_ASSERT_STRING_EQUAL(order, "a");
	sim_end();
}

static void test_cancelled_event_does_not_run(void)
{
	sim_event_id ids[100];
	unsigned int i, ran = 0;
	struct sim_rng rng;

	core_begin(1, 1);
	sim_rng_init(&rng, "test", 0);
	for (i = 0; i < 100; i++)
		ids[i] = sim_at(SIM_START_NS + sim_rng_below(&rng, 50), note,
				i % 2 ? "x" : "y");
	for (i = 0; i < 100; i += 2)
		CU_ASSERT(sim_cancel(ids[i]));
	for (i = 0; i < 100; i += 2)
		CU_ASSERT(!sim_cancel(ids[i]));
	sim_run(SIM_START_NS + 100);
	for (i = 0; order[i]; i++)
		ran += order[i] == 'x';
	CU_ASSERT_EQUAL(ran, 50);
	CU_ASSERT_EQUAL(strlen(order), 50);
	CU_ASSERT(!sim_cancel(ids[1]));
	CU_ASSERT(!sim_cancel(0));
	sim_end();
}

/* --- random streams --- */

static void test_stream_depends_on_seed_subject_and_number(void)
{
	struct sim_rng a, b, c, d;
	uint64_t first;

	core_begin(1, 1);
	sim_rng_init(&a, "link", 0);
	sim_rng_init(&b, "link", 1);
	sim_rng_init(&c, "host", 0);
	first = sim_rng_next(&a);
	CU_ASSERT_NOT_EQUAL(first, sim_rng_next(&b));
	CU_ASSERT_NOT_EQUAL(first, sim_rng_next(&c));
	/* The numbers of a stream are the same although others have been
	 * used. */
	sim_rng_init(&d, "link", 0);
	CU_ASSERT_EQUAL(first, sim_rng_next(&d));
	CU_ASSERT_EQUAL(sim_rng_next(&a), sim_rng_next(&d));
	sim_end();
	core_begin(2, 1);
	sim_rng_init(&a, "link", 0);
	CU_ASSERT_NOT_EQUAL(first, sim_rng_next(&a));
	sim_end();
}

static void test_random_number_is_in_range(void)
{
	struct sim_rng rng;
	unsigned int i, yes = 0;

	core_begin(7, 1);
	sim_rng_init(&rng, "range", 0);
	for (i = 0; i < 10000; i++) {
		uint64_t x = sim_rng_range(&rng, 5, 7);

		CU_ASSERT(x >= 5 && x <= 7);
		yes += sim_rng_chance(&rng, 250000);
	}
	CU_ASSERT(yes > 2300 && yes < 2700);
	sim_end();
}

/* --- fibers --- */

static const char gate;

static void *fiber_waits(void *arg)
{
	CU_ASSERT_PTR_NOT_NULL(sim_fiber_current());
	note(arg);
	CU_ASSERT(sim_wait(&gate, SIM_NEVER));
	note(arg);
	return arg;
}

static void *fiber_wakes(void *arg)
{
	struct sim_fiber *a, *b;

	(void)arg;
	a = sim_fiber_start(NULL, "a", fiber_waits, "a");
	b = sim_fiber_start(NULL, "b", fiber_waits, "b");
	note("1");
	sim_yield();
	note("2");
	sim_wake(&gate, false);
	sim_yield();
	note("3");
	CU_ASSERT(sim_fiber_ended(a));
	CU_ASSERT(!sim_fiber_ended(b));
	sim_wake(&gate, true);
	CU_ASSERT_STRING_EQUAL(sim_fiber_join(a), "a");
	CU_ASSERT_STRING_EQUAL(sim_fiber_join(b), "b");
	return NULL;
}

static void test_woken_fibers_run_in_their_order(void)
{
	core_begin(1, 1);
	sim_fiber_detach(sim_fiber_start(NULL, "main", fiber_wakes, NULL));
	sim_run(SIM_START_NS);
	CU_ASSERT_STRING_EQUAL(order, "1ab2a3b");
	sim_end();
}

static void *fiber_times_out(void *arg)
{
	(void)arg;
	CU_ASSERT(!sim_wait(&gate, SIM_START_NS + 5));
	CU_ASSERT_EQUAL(sim_now(), SIM_START_NS + 5);
	sim_sleep_until(SIM_START_NS + 9);
	CU_ASSERT_EQUAL(sim_now(), SIM_START_NS + 9);
	note("e");
	return NULL;
}

static void test_wait_ends_at_its_time(void)
{
	core_begin(1, 1);
	sim_fiber_detach(sim_fiber_start(NULL, "f", fiber_times_out, NULL));
	sim_run(SIM_START_NS + 10);
	CU_ASSERT_STRING_EQUAL(order, "e");
	sim_end();
}

/* --- hosts --- */

static void *fiber_ticks(void *arg)
{
	for (;;) {
		CU_ASSERT_PTR_EQUAL(sim_host_current(), sim_host_get(0));
		note(arg);
		sim_sleep_until(sim_now() + 10);
	}
	return NULL;
}

static void test_stopped_host_waits_and_killed_host_is_dropped(void)
{
	struct sim_host *host;

	core_begin(1, 2);
	host = sim_host_get(0);
	sim_fiber_detach(sim_fiber_start(host, "t", fiber_ticks, "t"));
	sim_run(SIM_START_NS + 15);
	CU_ASSERT_STRING_EQUAL(order, "tt");
	sim_host_stop(host);
	sim_run(SIM_START_NS + 100);
	CU_ASSERT_STRING_EQUAL(order, "tt");
	sim_host_resume(host);
	sim_run(SIM_START_NS + 100);
	CU_ASSERT_STRING_EQUAL(order, "ttt");
	sim_at_host(host, SIM_START_NS + 500, note, "x");
	sim_at_host(sim_host_get(1), SIM_START_NS + 500, note, "y");
	sim_host_kill(host);
	CU_ASSERT(sim_host_killed(host));
	sim_run(SIM_START_NS + 200);
	CU_ASSERT_STRING_EQUAL(order, "ttt");
	/* An event of the killed process does not run in the new one. */
	sim_host_restart(host);
	CU_ASSERT_EQUAL(sim_host_life(host), 1);
	sim_run(SIM_START_NS + 600);
	CU_ASSERT_STRING_EQUAL(order, "ttty");
	sim_end();
}

/* Searches for leaks. Returns 0 if there are none. Does not exist in programs
 * without AddressSanitizer. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

/* bitwise complement of the address of the memory that was lost last, in which
 * the leak check sees no pointer */
static uintptr_t lost;

__attribute__((noinline)) static void lose_memory(void)
{
	lost = ~(uintptr_t)malloc(64);
}

/* Allocates memory to which a variable of this function points. If the argument
 * is not NULL, also loses memory. */
static void *fiber_allocates(void *arg)
{
	char *volatile kept = malloc(64);
	int i;

	/* the stack may have a copy of the last address */
	for (i = 0; arg && i < 16; i++)
		lose_memory();
	sim_wait(&lost, SIM_NEVER);
	free(kept);
	return NULL;
}

/* Kills a process that has allocated memory. Returns what the leak check then
 * returns. Runs in a child process, because the check finds the lost memory
 * again at the end of the process. */
static int core_killed_leaks(void *lose)
{
	int status = -1, null;
	pid_t pid = fork();

	if (pid == 0) {
		null = open("/dev/null", O_WRONLY);
		dup2(null, STDERR_FILENO);
		core_begin(1, 1);
		sim_fiber_detach(sim_fiber_start(sim_host_get(0), "t",
						 fiber_allocates, lose));
		sim_run(SIM_START_NS + 10);
		sim_host_kill(sim_host_get(0));
		sim_end();
		_exit(__lsan_do_recoverable_leak_check() != 0);
	}
	CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
	CU_ASSERT(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_memory_of_killed_process_is_a_leak_only_if_lost(void)
{
	int lose = 0;

	if (!__lsan_do_recoverable_leak_check) {
		tei_test_skip("this build cannot check for leaks");
		return;
	}
	CU_ASSERT_EQUAL(core_killed_leaks(NULL), 0);
	CU_ASSERT_EQUAL(core_killed_leaks(&lose), 1);
}

static void test_host_clock_jumps_alone(void)
{
	core_begin(1, 2);
	sim_host_jump(sim_host_get(0), 500);
	CU_ASSERT_EQUAL(sim_host_now(sim_host_get(0)), SIM_START_NS + 500);
	CU_ASSERT_EQUAL(sim_host_now(sim_host_get(1)), SIM_START_NS);
	CU_ASSERT_EQUAL(sim_now(), SIM_START_NS);
	sim_end();
}

/* --- the trace --- */

static void *fiber_random(void *arg)
{
	struct sim_rng rng;
	unsigned int i;

	sim_rng_init(&rng, "fiber", *(const char *)arg);
	for (i = 0; i < 20; i++) {
		uint64_t n = sim_rng_below(&rng, 1000);

		SIM_TRACE(0, "tick", n, i);
		sim_sleep_until(sim_now() + n);
		if (n % 3 == 0)
			sim_wake(&gate, n % 2);
		else if (n % 5 == 0)
			sim_wait(&gate, sim_now() + n);
	}
	return NULL;
}

/* A word, and the virtual times since the start at which the three waits of
 * fiber_word ended, ns. */
struct word_test {
	uint32_t word;
	uint64_t ended_ns[3];
};

static void *fiber_word(void *arg)
{
	struct word_test *t = arg;
	uint64_t end = tei_now_ns() + 5 * SIM_SEC;

	tei_world->word_wait(&t->word, 1, end, 1);
	t->ended_ns[0] = sim_now() - SIM_START_NS;
	tei_world->word_wait(&t->word, 0, UINT64_MAX, 1);
	t->ended_ns[1] = sim_now() - SIM_START_NS;
	tei_world->word_wait(&t->word, 1, end, 1);
	t->ended_ns[2] = sim_now() - SIM_START_NS;
	return NULL;
}

static void wake_word(void *arg)
{
	struct word_test *t = arg;

	t->word = 1;
	tei_world->word_wake(&t->word, 1);
}

static void test_word_wait_ends_when_woken_and_at_its_time(void)
{
	struct word_test t = { 0 };

	core_begin(1, 1);
	sim_world_install();
	/* The time limit of a wait is a time of the host's clock, so a clock
	 * that has jumped must not end the wait too early. */
	sim_host_jump(sim_host_get(0), 7 * SIM_SEC);
	sim_fiber_detach(sim_fiber_start(sim_host_get(0), "word", fiber_word,
					 &t));
	sim_at(SIM_START_NS + SIM_SEC, wake_word, &t);
	sim_run(SIM_START_NS + 100 * SIM_SEC);
	CU_ASSERT_EQUAL(t.ended_ns[0], 0);
	CU_ASSERT_EQUAL(t.ended_ns[1], SIM_SEC);
	CU_ASSERT_EQUAL(t.ended_ns[2], 5 * SIM_SEC);
	sim_end();
	tei_world = &tei_world_real;
}

static uint64_t trace_hash(uint64_t seed)
{
	uint64_t hash;

	core_begin(seed, 1);
	sim_fiber_detach(sim_fiber_start(NULL, "a", fiber_random, "a"));
	sim_fiber_detach(sim_fiber_start(NULL, "b", fiber_random, "b"));
	sim_fiber_detach(sim_fiber_start(NULL, "c", fiber_random, "c"));
	sim_run(SIM_NEVER);
	hash = sim_trace_hash();
	sim_end();
	return hash;
}

static void test_trace_depends_on_the_seed_only(void)
{
	CU_ASSERT_EQUAL(trace_hash(1), trace_hash(1));
	CU_ASSERT_NOT_EQUAL(trace_hash(1), trace_hash(2));
	/* The expected hash is the same for all compilers and sanitizers. */
	CU_ASSERT_EQUAL(trace_hash(1), UINT64_C(0x7bdaa976eafcc7ef));
}

static void test_arena_has_the_same_address_in_each_run(void)
{
	char *first, *second;

	core_begin(1, 1);
	first = sim_arena(100, 64);
	memset(first, 1, 100);
	CU_ASSERT_PTR_NOT_EQUAL(sim_arena(1, 1), first);
	sim_end();
	core_begin(1, 1);
	second = sim_arena(100, 64);
	CU_ASSERT_PTR_EQUAL(first, second);
	CU_ASSERT_EQUAL(second[0], 0);
	CU_ASSERT_EQUAL((uintptr_t)sim_arena(1, 4096) % 4096, 0);
	sim_end();
}

const struct tei_test_case sim_core_cases[] = {
	{ "events_run_by_time_and_order", test_events_run_by_time_and_order },
	{ "event_of_the_past_runs_now", test_event_of_the_past_runs_now },
	{ "cancelled_event_does_not_run", test_cancelled_event_does_not_run },
	{ "stream_depends_on_seed_subject_and_number",
	  test_stream_depends_on_seed_subject_and_number },
	{ "random_number_is_in_range", test_random_number_is_in_range },
	{ "woken_fibers_run_in_their_order",
	  test_woken_fibers_run_in_their_order },
	{ "wait_ends_at_its_time", test_wait_ends_at_its_time },
	{ "stopped_host_waits_and_killed_host_is_dropped",
	  test_stopped_host_waits_and_killed_host_is_dropped },
	{ "memory_of_killed_process_is_a_leak_only_if_lost",
	  test_memory_of_killed_process_is_a_leak_only_if_lost },
	{ "host_clock_jumps_alone", test_host_clock_jumps_alone },
	{ "word_wait_ends_when_woken_and_at_its_time",
	  test_word_wait_ends_when_woken_and_at_its_time },
	{ "trace_depends_on_the_seed_only",
	  test_trace_depends_on_the_seed_only },
	{ "arena_has_the_same_address_in_each_run",
	  test_arena_has_the_same_address_in_each_run },
	{ NULL, NULL },
};
