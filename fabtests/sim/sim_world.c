/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The simulated world: the functions of the table to which tei_world points.
 * Each thread and each progress loop of the library is a fiber of the host that
 * has started it.
 *
 * Code that runs takes no virtual time. A call that is repeated until something
 * happens (tei_relax, tei_yield, the acquisition of a lock that another fiber
 * holds, a loop that does not sleep) therefore lets a little virtual time pass;
 * otherwise the repetition would not end.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim_int.h"
#include "fabtests/sim/sim_net.h"
#include "util/lock.h"
#include "util/world.h"

/* virtual time that one tei_relax or tei_yield takes */
#define WORLD_ROUND_NS	SIM_US
/* virtual time that one step of a progress loop takes */
#define WORLD_STEP_NS	SIM_US
/* time after which a lock that another fiber holds counts as a deadlock */
#define WORLD_LOCK_NS	(600 * SIM_SEC)
/* number of processors of a host */
#define WORLD_CPUS	4
/* time of day when a host's clock is 0, ns since 1970 */
#define WORLD_WALL_NS	(UINT64_C(1700000000) * SIM_SEC)

static uint64_t world_now_ns(void)
{
	struct sim_host *host = sim_host_current();

	return host ? sim_host_now(host) : sim_now();
}

static uint64_t world_wall_ns(void)
{
	return WORLD_WALL_NS + world_now_ns();
}

static bool world_random(void *p, size_t len)
{
	struct sim_rng *rng = sim_host_random();
	uint8_t *at = p;
	uint64_t x;
	size_t n;

	for (; len > 0; at += n, len -= n) {
		x = sim_rng_next(rng);
		n = len < sizeof(x) ? len : sizeof(x);
		memcpy(at, &x, n);
	}
	return true;
}

/* --- waiting --- */

static void world_sleep_ns(uint64_t ns)
{
	sim_sleep_until(sim_now() + ns);
}

static void world_relax(void)
{
	sim_sleep_until(sim_now() + WORLD_ROUND_NS);
}

static void world_lock_contended(struct tei_mutex *l)
{
	uint64_t end = sim_now() + WORLD_LOCK_NS;

	while (pthread_mutex_trylock(&l->m)) {
		if (sim_now() > end)
			sim_fail("a lock was held for %llu s",
				 (unsigned long long)(WORLD_LOCK_NS / SIM_SEC));
		world_relax();
	}
}

static void world_rwlock_contended(struct tei_rwlock *l, bool write)
{
	uint64_t end = sim_now() + WORLD_LOCK_NS;

	while (write ? pthread_rwlock_trywrlock(&l->rw) :
		       pthread_rwlock_tryrdlock(&l->rw)) {
		if (sim_now() > end)
			sim_fail("a reader-writer lock was held for %llu s",
				 (unsigned long long)(WORLD_LOCK_NS / SIM_SEC));
		world_relax();
	}
}

/* The caller holds l. The compiler's thread-safety analysis cannot know that,
 * because the function pointers in struct tei_world have no lock
 * annotations. */
static void world_cond_wait(pthread_cond_t *cond, struct tei_mutex *l,
			    uint64_t timeout_ns) TEI_NO_TSA
{
	uint64_t now = sim_now();

	tei_mutex_unlock(l);
	sim_wait(cond, timeout_ns < SIM_NEVER - now ? now + timeout_ns :
						      SIM_NEVER);
	if (pthread_mutex_trylock(&l->m))
		world_lock_contended(l);
}

static void world_cond_wake(pthread_cond_t *cond, bool all)
{
	sim_wake(cond, all);
}

/* Waits until *word differs from `seen`, the fiber is woken, or the host's
 * clock reaches until_ns. */
static void world_word_wait(uint32_t *word, uint32_t seen, uint64_t until_ns,
			    uint32_t bits)
{
	uint64_t now = world_now_ns();

	(void)bits;
	if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != seen || now >= until_ns)
		return;
	sim_wait(word, until_ns == UINT64_MAX ? SIM_NEVER :
						sim_now() + (until_ns - now));
}

/* Wakes all threads that wait for the word. Ignores `bits`, so threads that
 * wait for other bits return early. */
static void world_word_wake(uint32_t *word, uint32_t bits)
{
	(void)bits;
	sim_wake(word, true);
}

/* --- threads --- */

static int world_thread_start(pthread_t *thread, bool detached,
			      void *(*fn)(void *), void *arg)
{
	struct sim_fiber *fiber = sim_fiber_start(sim_host_current(), "thread",
						  fn, arg);

	*thread = (pthread_t)(uintptr_t)fiber;
	if (detached)
		sim_fiber_detach(fiber);
	return 0;
}

static void world_thread_join(pthread_t thread)
{
	sim_fiber_join((struct sim_fiber *)(uintptr_t)thread);
}

static void world_thread_name(pthread_t thread, const char *name)
{
	(void)thread;
	(void)name;
}

static uint32_t world_cpus(void)
{
	return WORLD_CPUS;
}

/* --- loops --- */

/* maximum number of steps of a loop in one second; 0 means no limit */
static uint64_t loop_limit;

void sim_loop_limit(uint64_t steps)
{
	loop_limit = steps;
}

/* Called by the network when a file descriptor on which the loop `arg` sleeps
 * has become readable. */
static void loop_ready(void *arg)
{
	sim_wake(arg, true);
}

/* Sets revents of all file descriptors of the loop. Returns the number of
 * readable ones. */
static uint32_t loop_poll(struct tei_loop_sleep *s)
{
	uint32_t i, n = 0;

	for (i = 1; i < s->nfds; i++) {
		s->fds[i].revents = 0;
		if (s->fds[i].fd >= 0 && sim_net_fd_ready(s->fds[i].fd)) {
			s->fds[i].revents = POLLIN;
			n++;
		}
	}
	return n;
}

static void loop_watch(struct tei_loop *loop, void (*fn)(void *))
{
	struct tei_loop_sleep *s = &loop->sleep;
	uint32_t i;

	for (i = 1; i < s->nfds; i++)
		if (s->fds[i].fd >= 0)
			sim_net_fd_notify(s->fds[i].fd, fn, loop);
}

static void loop_sleep(struct tei_loop *loop)
{
	struct tei_loop_sleep *s = &loop->sleep;
	uint64_t now = sim_now();

	s->from_ns = world_now_ns();
	s->nready = loop_poll(s);
	if (s->nready == 0 && s->ns > 0 &&
	    !__atomic_load_n(&loop->wake_pending, __ATOMIC_RELAXED)) {
		loop_watch(loop, loop_ready);
		sim_wait(loop, s->ns < SIM_NEVER - now ? now + s->ns :
							 SIM_NEVER);
		loop_watch(loop, NULL);
		s->nready = loop_poll(s);
	}
	s->woken = __atomic_exchange_n(&loop->wake_pending, false,
				       __ATOMIC_RELAXED);
	s->until_ns = world_now_ns();
}

/* The number of steps of a loop in one second of virtual time. */
struct loop_pace {
	uint64_t second;	/* the second, counted from time 0 */
	uint64_t steps;		/* number of steps in this second so far */
};

/* Counts a step of a loop. If the loop has run more steps in this second than
 * the limit, fails the simulation. */
static void loop_count(struct loop_pace *pace)
{
	uint64_t second = sim_now() / SIM_SEC;

	if (pace->second != second) {
		pace->second = second;
		pace->steps = 0;
	}
	pace->steps++;
	if (loop_limit && pace->steps > loop_limit)
		sim_fail("a progress loop of host %u has run %llu steps in one second, so it hardly sleeps",
			 sim_host_id(sim_host_current()),
			 (unsigned long long)pace->steps);
}

static void *loop_main(void *arg)
{
	struct loop_pace pace = { .steps = 0 };
	struct tei_loop *loop = arg;

	loop->sleep.sleep = false;
	while (loop->step(loop->arg, &loop->sleep) == TEI_LOOP_CONTINUE) {
		loop_count(&pace);
		sim_sleep_until(sim_now() + WORLD_STEP_NS);
		if (!loop->sleep.sleep)
			continue;
		loop_sleep(loop);
		loop->sleep.sleep = false;
	}
	return NULL;
}

static int world_loop_start(struct tei_loop *loop)
{
	__atomic_store_n(&loop->open, true, __ATOMIC_RELEASE);
	loop->world = sim_fiber_start(sim_host_current(), "loop", loop_main,
				      loop);
	return 0;
}

static void world_loop_wake(struct tei_loop *loop)
{
	sim_wake(loop, true);
}

static void world_loop_join(struct tei_loop *loop)
{
	sim_fiber_join(loop->world);
	loop->world = NULL;
}

static void world_loop_close(struct tei_loop *loop)
{
	__atomic_store_n(&loop->open, false, __ATOMIC_RELEASE);
}

static int world_loop_bind(struct tei_loop *loop, const cpu_set_t *cpus)
{
	(void)loop;
	(void)cpus;
	return 0;
}

void sim_world_install(void)
{
	static struct tei_world table = {
		.now_ns = world_now_ns,
		.now_about_ns = world_now_ns,
		.wall_ns = world_wall_ns,
		.random = world_random,
		.sleep_ns = world_sleep_ns,
		.relax = world_relax,
		.yield = world_relax,
		.lock_contended = world_lock_contended,
		.rwlock_contended = world_rwlock_contended,
		.cond_wait = world_cond_wait,
		.cond_wake = world_cond_wake,
		.word_wait = world_word_wait,
		.word_wake = world_word_wake,
		.thread_start = world_thread_start,
		.thread_join = world_thread_join,
		.thread_name = world_thread_name,
		.cpus = world_cpus,
		.loop_start = world_loop_start,
		.loop_wake = world_loop_wake,
		.loop_join = world_loop_join,
		.loop_close = world_loop_close,
		.loop_bind = world_loop_bind,
	};

	table.net = sim_net_world;
	tei_world = &table;
}
