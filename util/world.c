/* SPDX-License-Identifier: BSD-2-Clause */
/* The real world: reads the time, creates random numbers, waits, and runs
 * threads and loops. */

#include "util/world.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/lock.h"
#include "util/world_net.h"

#define LOOP_FDS	1024		/* largest number of file descriptors of
					 * one sleep, including wake_fd */

const struct tei_world *tei_world = &tei_world_real;

/* --- time and random numbers --------------------------------------------- */

static uint64_t world_clock(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * TEI_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static uint64_t real_now_ns(void)
{
	return world_clock(CLOCK_MONOTONIC);
}

static uint64_t real_now_about_ns(void)
{
	return world_clock(CLOCK_MONOTONIC_COARSE);
}

static uint64_t real_wall_ns(void)
{
	return world_clock(CLOCK_REALTIME);
}

static bool real_random(void *p, size_t len)
{
	uint8_t *at = p;
	ssize_t n;

	while (len) {
		n = getrandom(at, len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		len -= (size_t)n;
	}
	return true;
}

/* --- waiting ------------------------------------------------------------- */

static struct timespec world_timespec(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / TEI_NS_PER_SEC),
		.tv_nsec = (long)(ns % TEI_NS_PER_SEC),
	};
}

static void real_sleep_ns(uint64_t ns)
{
	struct timespec nap = world_timespec(ns);

	nanosleep(&nap, NULL);
}

static void real_relax(void)
{
}

static void real_yield(void)
{
	sched_yield();
}

static void real_lock_contended(struct tei_mutex *l)
{
	pthread_mutex_lock(&l->m);
}

static void real_rwlock_contended(struct tei_rwlock *l, bool write)
{
	if (write)
		pthread_rwlock_wrlock(&l->rw);
	else
		pthread_rwlock_rdlock(&l->rw);
}

static void real_cond_wait(pthread_cond_t *cond, struct tei_mutex *l,
			   uint64_t timeout_ns)
{
	uint64_t now = real_now_ns();
	struct timespec ts;

	if (timeout_ns > UINT64_MAX - now) {
		pthread_cond_wait(cond, &l->m);
		return;
	}
	ts = world_timespec(now + timeout_ns);
	pthread_cond_timedwait(cond, &l->m, &ts);
}

static void real_cond_wake(pthread_cond_t *cond, bool all)
{
	if (all)
		pthread_cond_broadcast(cond);
	else
		pthread_cond_signal(cond);
}

static void real_word_wait(uint32_t *word, uint32_t seen, uint64_t until_ns,
			   uint32_t bits)
{
	struct timespec ts = world_timespec(until_ns);

	syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen,
		until_ns == UINT64_MAX ? NULL : &ts, NULL, bits);
}

static void real_word_wake(uint32_t *word, uint32_t bits)
{
	syscall(SYS_futex, word, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, NULL, NULL,
		bits);
}

/* --- threads ------------------------------------------------------------- */

static int real_thread_start(pthread_t *thread, bool detached,
			     void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int rc;

	pthread_attr_init(&attr);
	if (detached)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, &attr, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	return rc;
}

static void real_thread_join(pthread_t thread)
{
	pthread_join(thread, NULL);
}

static void real_thread_name(pthread_t thread, const char *name)
{
	pthread_setname_np(thread, name);
}

static uint32_t real_cpus(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return (uint32_t)CPU_COUNT(&set);
}

/* --- loops --------------------------------------------------------------- */

/* Clears a pending wake-up: first the counter of the eventfd, then the flag. In
 * the opposite order a wake-up could be lost. */
static void loop_clear(struct tei_loop *loop)
{
	uint64_t junk;
	ssize_t ret = read(loop->wake_fd, &junk, sizeof(junk));

	(void)ret;
	(void)__atomic_exchange_n(&loop->wake_pending, false, __ATOMIC_SEQ_CST);
}

/* Lets the loop sleep as its last step has requested, and writes the result of
 * the sleep. */
static void loop_sleep(struct tei_loop *loop)
{
	struct tei_loop_sleep *s = &loop->sleep;
	struct timespec ts = world_timespec(s->ns);
	int n;

	s->fds[0].fd = loop->wake_fd;
	s->fds[0].events = POLLIN;
	s->from_ns = real_now_ns();
	n = ppoll(s->fds, (nfds_t)s->nfds, &ts, NULL);
	s->until_ns = real_now_ns();
	s->woken = n > 0 && s->fds[0].revents & POLLIN;
	s->nready = n > 0 ? (uint32_t)n - (s->fds[0].revents != 0) : 0;
	if (s->woken)
		loop_clear(loop);
}

static void *loop_main(void *arg)
{
	struct tei_loop *loop = arg;

	while (loop->step(loop->arg, &loop->sleep) == TEI_LOOP_CONTINUE) {
		if (!loop->sleep.sleep)
			continue;
		loop_sleep(loop);
		loop->sleep.sleep = false;
	}
	return NULL;
}

static void real_loop_close(struct tei_loop *loop)
{
	__atomic_store_n(&loop->open, false, __ATOMIC_RELEASE);
	close(loop->wake_fd);
}

static int real_loop_start(struct tei_loop *loop)
{
	int ret;

	loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (loop->wake_fd < 0)
		return errno;
	__atomic_store_n(&loop->open, true, __ATOMIC_RELEASE);
	ret = real_thread_start(&loop->thread, false, loop_main, loop);
	if (ret)
		real_loop_close(loop);
	else if (loop->name)
		pthread_setname_np(loop->thread, loop->name);
	return ret;
}

static void real_loop_wake(struct tei_loop *loop)
{
	uint64_t one = 1;
	ssize_t ret = write(loop->wake_fd, &one, sizeof(one));

	(void)ret;	/* The write fails only if the counter of the eventfd is
			 * full. In this case a wake-up is already pending. */
}

static void real_loop_join(struct tei_loop *loop)
{
	pthread_join(loop->thread, NULL);
}

static int real_loop_bind(struct tei_loop *loop, const cpu_set_t *cpus)
{
	return pthread_setaffinity_np(loop->thread, sizeof(*cpus), cpus);
}

int tei_loop_start(struct tei_loop *loop, tei_loop_step *step, void *arg)
{
	int ret;

	loop->step = step;
	loop->arg = arg;
	ret = tei_world->loop_start(loop);
	loop->started = !ret;
	return ret;
}

void tei_loop_stop(struct tei_loop *loop)
{
	if (!loop->started)
		return;
	tei_loop_wake(loop);
	tei_world->loop_join(loop);
	loop->started = false;
}

void tei_loop_close(struct tei_loop *loop)
{
	if (__atomic_load_n(&loop->open, __ATOMIC_ACQUIRE))
		tei_world->loop_close(loop);
}

/* --- the table ----------------------------------------------------------- */

const struct tei_world tei_world_real = {
	.now_ns = real_now_ns,
	.now_about_ns = real_now_about_ns,
	.wall_ns = real_wall_ns,
	.random = real_random,
	.sleep_ns = real_sleep_ns,
	.relax = real_relax,
	.yield = real_yield,
	.lock_contended = real_lock_contended,
	.rwlock_contended = real_rwlock_contended,
	.cond_wait = real_cond_wait,
	.cond_wake = real_cond_wake,
	.word_wait = real_word_wait,
	.word_wake = real_word_wake,
	.thread_start = real_thread_start,
	.thread_join = real_thread_join,
	.thread_name = real_thread_name,
	.cpus = real_cpus,
	.loop_start = real_loop_start,
	.loop_wake = real_loop_wake,
	.loop_join = real_loop_join,
	.loop_close = real_loop_close,
	.loop_bind = real_loop_bind,
	.net = {
		.kernel_fds = true,
		.sockets = world_net_sockets,
		.same = world_net_same,
		.own_addr = world_net_own_addr,
		.peer_addr = world_net_peer_addr,
		.listens = world_net_listens,
		.tcp_state = world_net_tcp_state,
		.cut = world_net_cut,
		.dup = world_net_dup,
		.close = world_net_close,
		.connect = world_net_connect,
		.bindable = world_net_bindable,
		.interfaces = world_net_interfaces,
		.interfaces_free = world_net_interfaces_free,
		.interface_index = world_net_interface_index,
		.interface_name = world_net_interface_name,
		.interface_up = world_net_interface_up,
		.changes_open = world_net_changes_open,
		.changes_read = world_net_changes_read,
	},
};
