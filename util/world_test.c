/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/util_test.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/lock.h"
#include "util/secret.h"
#include "util/thread.h"
#include "util/world.h"

#define WORLD_MANY 1000

/* --- a world of the test ------------------------------------------------- */

static uint64_t world_time;
static uint32_t world_contended, world_slept_ns;
/* result of tei_mutex_wanted while a thread waited for the mutex */
static bool world_wanted;

static uint64_t world_now(void)
{
	return world_time;
}

static bool world_random(void *p, size_t len)
{
	memset(p, 0xff, len);
	return true;
}

static void world_sleep(uint64_t ns)
{
	world_slept_ns += (uint32_t)ns;
	world_time += ns;
}

/* Replaces lock_contended. Acts as the thread that holds the mutex: releases
 * it, so that the caller can lock it. */
static void world_contend(struct tei_mutex *l)
{
	world_wanted = tei_mutex_wanted(l);
	world_contended++;
	pthread_mutex_unlock(&l->m);
	pthread_mutex_lock(&l->m);
}

/* Replaces cond_wait. Does not wait, but advances the time of the test's world
 * by timeout_ns. */
static void world_cond_wait(pthread_cond_t *cond, struct tei_mutex *l,
			    uint64_t timeout_ns) TEI_NO_TSA
{
	(void)cond;
	tei_mutex_unlock(l);
	world_time += timeout_ns;
	tei_mutex_lock(l);
}

/* Makes tei_world point to w, a copy of the real table in which the functions
 * above replace the real ones. */
static void world_enter(struct tei_world *w)
{
	*w = tei_world_real;
	w->now_ns = world_now;
	w->now_about_ns = world_now;
	w->wall_ns = world_now;
	w->random = world_random;
	w->sleep_ns = world_sleep;
	w->lock_contended = world_contend;
	w->cond_wait = world_cond_wait;
	world_time = 1000;
	world_contended = world_slept_ns = 0;
	tei_world = w;
}

static void world_leave(void)
{
	tei_world = &tei_world_real;
}

static void test_time_and_random_numbers_come_from_the_world(void)
{
	struct tei_world w;
	uint32_t r = 0;

	CU_ASSERT(tei_now_ns() > 1000);
	world_enter(&w);
	CU_ASSERT_EQUAL(tei_now_ns(), 1000);
	CU_ASSERT_EQUAL(tei_now_about_ns(), 1000);
	CU_ASSERT_EQUAL(tei_wall_ns(), 1000);
	tei_sleep_ns(500);
	CU_ASSERT_EQUAL(world_slept_ns, 500);
	CU_ASSERT_EQUAL(tei_now_ns(), 1500);
	CU_ASSERT_EQUAL(tei_ns_left(1600), 100);
	CU_ASSERT_TRUE(tei_random(&r, sizeof(r)));
	CU_ASSERT_EQUAL(r, UINT32_MAX);
	CU_ASSERT_EQUAL(tei_jitter(1000), 1250);
	world_leave();
	CU_ASSERT(tei_now_ns() > 1500);
}

static void test_mutex_that_is_held_is_locked_by_the_world(void) TEI_NO_TSA
{
	struct tei_world w;
	struct tei_mutex l;

	world_enter(&w);
	tei_mutex_init(&l);
	tei_mutex_lock(&l);
	CU_ASSERT_EQUAL(world_contended, 0);
	tei_mutex_lock(&l);
	CU_ASSERT_EQUAL(world_contended, 1);
	tei_mutex_unlock(&l);
	CU_ASSERT_TRUE(world_wanted);
	CU_ASSERT_FALSE(tei_mutex_wanted(&l));
	tei_mutex_fini(&l);
	world_leave();
}

static void test_wait_for_a_condition_takes_the_time_of_the_world(void)
{
	struct tei_world w;
	struct tei_mutex l;
	pthread_cond_t cond;

	world_enter(&w);
	tei_mutex_init(&l);
	tei_cond_init(&cond);
	tei_mutex_lock(&l);
	tei_mutex_wait(&cond, &l, 3600 * TEI_NS_PER_SEC);
	tei_mutex_unlock(&l);
	CU_ASSERT_EQUAL(tei_now_ns(), 1000 + 3600 * TEI_NS_PER_SEC);
	pthread_cond_destroy(&cond);
	tei_mutex_fini(&l);
	world_leave();
}

/* --- loops of the real world --------------------------------------------- */

struct world_loop {
	struct tei_loop loop;
	struct pollfd fds[2];
	uint64_t ns;	       /* length of the sleep that each step requests */
	uint32_t steps, wakes; /* atomic; number of steps, and of sleeps that a
				* wake-up has ended */
	uint32_t ready;	       /* atomic; number of sleeps that a file
				* descriptor has ended */
	bool stop;	       /* atomic; set to true to end the loop */
};

static enum tei_loop_next world_step(void *arg, struct tei_loop_sleep *s)
{
	struct world_loop *l = arg;
	char junk;

	if (l->steps && s->woken)
		__atomic_fetch_add(&l->wakes, 1, __ATOMIC_SEQ_CST);
	if (l->steps && s->nready && l->fds[1].revents & POLLIN &&
	    read(l->fds[1].fd, &junk, 1) == 1)
		__atomic_fetch_add(&l->ready, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&l->stop, __ATOMIC_SEQ_CST))
		return TEI_LOOP_END;
	s->fds = l->fds;
	s->nfds = 2;
	s->ns = l->ns;
	s->sleep = true;
	__atomic_fetch_add(&l->steps, 1, __ATOMIC_SEQ_CST);
	return TEI_LOOP_CONTINUE;
}

static void world_loop_start(struct world_loop *l, int fd, uint64_t ns)
{
	memset(l, 0, sizeof(*l));
	l->fds[1].fd = fd;
	l->fds[1].events = POLLIN;
	l->ns = ns;
	l->loop.name = "world-loop";
	tei_loop_wake(&l->loop); /* does nothing, because the loop is not
				  * open */
	CU_ASSERT_EQUAL_FATAL(tei_loop_start(&l->loop, world_step, l), 0);
}

static void world_loop_stop(struct world_loop *l)
{
	__atomic_store_n(&l->stop, true, __ATOMIC_SEQ_CST);
	tei_loop_stop(&l->loop);
	tei_loop_wake(&l->loop);
	tei_loop_close(&l->loop);
	tei_loop_wake(&l->loop);
}

/* Waits until the counter has reached n. Returns false after 60 seconds. */
static bool world_reaches(const uint32_t *counter, uint32_t n)
{
	uint64_t end = tei_now_ns() + 60 * TEI_NS_PER_SEC;

	while (__atomic_load_n(counter, __ATOMIC_SEQ_CST) < n) {
		if (tei_now_ns() > end)
			return false;
		tei_sleep_ns(TEI_NS_PER_MS / 10);
	}
	return true;
}

static void test_thread_of_a_loop_has_the_name_of_the_loop(void)
{
	struct world_loop l;
	char name[16] = "";

	world_loop_start(&l, -1, 3600 * TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(pthread_getname_np(l.loop.thread, name, sizeof(name)),
			0);
	CU_ASSERT_STRING_EQUAL(name, "world-loop");
	world_loop_stop(&l);
}

static void test_wake_up_ends_the_sleep_of_a_loop(void)
{
	struct world_loop l;
	uint32_t i;

	world_loop_start(&l, -1, 3600 * TEI_NS_PER_SEC);
	for (i = 1; i <= WORLD_MANY && world_reaches(&l.steps, i); i++) {
		tei_loop_wake(&l.loop);
		if (!world_reaches(&l.wakes, i))
			break;
	}
	CU_ASSERT_EQUAL(i, WORLD_MANY + 1);
	world_loop_stop(&l);
}

static void test_readable_descriptor_ends_the_sleep_of_a_loop(void)
{
	struct world_loop l;
	int fd[2];

	CU_ASSERT_EQUAL_FATAL(pipe(fd), 0);
	world_loop_start(&l, fd[0], 3600 * TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(write(fd[1], "x", 1), 1);
	CU_ASSERT_TRUE(world_reaches(&l.ready, 1));
	CU_ASSERT_EQUAL(__atomic_load_n(&l.wakes, __ATOMIC_SEQ_CST), 0);
	world_loop_stop(&l);
	close(fd[0]);
	close(fd[1]);
}

static void test_loop_takes_a_step_after_the_requested_time(void)
{
	struct world_loop l;

	world_loop_start(&l, -1, TEI_NS_PER_MS);
	CU_ASSERT_TRUE(world_reaches(&l.steps, 5));
	world_loop_stop(&l);
	CU_ASSERT_EQUAL(l.ready, 0);
}

const struct tei_test_case world_cases[] = {
	{ "time_and_random_numbers_come_from_the_world",
	  test_time_and_random_numbers_come_from_the_world },
	{ "mutex_that_is_held_is_locked_by_the_world",
	  test_mutex_that_is_held_is_locked_by_the_world },
	{ "wait_for_a_condition_takes_the_time_of_the_world",
	  test_wait_for_a_condition_takes_the_time_of_the_world },
	{ "thread_of_a_loop_has_the_name_of_the_loop",
	  test_thread_of_a_loop_has_the_name_of_the_loop },
	{ "wake_up_ends_the_sleep_of_a_loop",
	  test_wake_up_ends_the_sleep_of_a_loop },
	{ "readable_descriptor_ends_the_sleep_of_a_loop",
	  test_readable_descriptor_ends_the_sleep_of_a_loop },
	{ "loop_takes_a_step_after_the_requested_time",
	  test_loop_takes_a_step_after_the_requested_time },
	{ NULL, NULL },
};
