/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "fabtests/sim/sim_int.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBER_TSAN 1
#endif

#ifdef FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/*
 * A fiber is a context with a stack. sim_run, in the context of the program,
 * switches to a fiber in the fiber's event, and the fiber switches back when it
 * waits or ends. A fiber never switches to another one. A fiber that waits has
 * at most one event, which resumes it.
 *
 * Stacks are kept for later fibers. The lowest page of each is not accessible.
 */
#define FIBER_STACK	(256 * 1024)
#define FIBER_GUARD	4096

/* A fiber. sim_fiber_start makes it. sim_fiber_join frees it. A detached fiber
 * is freed when it ends, and all fibers of a process when the process is
 * killed. */
struct sim_fiber {
	struct tei_list link;		/* in fibers.all */
	struct tei_list waiting;	/* in fibers.waiting while key is not
					 * NULL */
	struct sim_host *host;
	const char *name;
	void *(*fn)(void *);
	void *arg;
	void *result;
	const void *key;		/* key of sim_wait, or NULL */
	bool woken;			/* sim_wake has resumed the fiber, not
					 * the time limit */
	bool ended;
	bool detached;
	sim_event_id event;		/* event that resumes the fiber, or 0 */
	ucontext_t context;
	char *stack;
#ifdef FIBER_ASAN
	void *fake_stack;
#endif
#ifdef FIBER_TSAN
	void *tsan;
#endif
};

static struct {
	struct tei_list all;		/* list of sim_fiber.link */
	struct tei_list waiting;	/* list of sim_fiber.waiting, in the
					 * order in which the fibers began to
					 * wait */
	struct sim_fiber *current;
	ucontext_t main;		/* the context of sim_run */
	char **stacks;			/* stacks that no fiber uses */
	size_t stacks_used, stacks_room;
#ifdef FIBER_ASAN
	void *fake_stack;
	const void *main_stack;
	size_t main_size;
#endif
#ifdef FIBER_TSAN
	void *tsan;
#endif
} fibers;

/* --- stacks --- */

static char *stack_get(void)
{
	char *p;

	if (fibers.stacks_used > 0)
		return fibers.stacks[--fibers.stacks_used];
	p = mmap(NULL, FIBER_GUARD + FIBER_STACK, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED || mprotect(p, FIBER_GUARD, PROT_NONE))
		sim_fail("no memory for a stack");
	return p;
}

static void stack_put(char *stack)
{
	if (fibers.stacks_used == fibers.stacks_room) {
		fibers.stacks_room = fibers.stacks_room ?
					     2 * fibers.stacks_room : 64;
		fibers.stacks = realloc(fibers.stacks,
					fibers.stacks_room *
						sizeof(*fibers.stacks));
		if (!fibers.stacks)
			sim_fail("no memory for a list of stacks");
	}
	fibers.stacks[fibers.stacks_used++] = stack;
}

/* --- switching --- */

/* Switches from sim_run to the fiber. Returns when the fiber waits or ends. */
static void fiber_enter(struct sim_fiber *fiber)
{
	fibers.current = fiber;
#ifdef FIBER_ASAN
	__sanitizer_start_switch_fiber(&fibers.fake_stack,
				       fiber->stack + FIBER_GUARD, FIBER_STACK);
#endif
#ifdef FIBER_TSAN
	fibers.tsan = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(fiber->tsan, 0);
#endif
	if (swapcontext(&fibers.main, &fiber->context))
		sim_fail("swapcontext failed");
#ifdef FIBER_ASAN
	__sanitizer_finish_switch_fiber(fibers.fake_stack, NULL, NULL);
#endif
	fibers.current = NULL;
}

/* Switches from the fiber to sim_run. Returns when the fiber is resumed. If the
 * fiber has ended, does not return. */
static void fiber_leave(struct sim_fiber *fiber)
{
#ifdef FIBER_ASAN
	__sanitizer_start_switch_fiber(fiber->ended ? NULL : &fiber->fake_stack,
				       fibers.main_stack, fibers.main_size);
#endif
#ifdef FIBER_TSAN
	__tsan_switch_to_fiber(fibers.tsan, 0);
#endif
	if (swapcontext(&fiber->context, &fibers.main))
		sim_fail("swapcontext failed");
#ifdef FIBER_ASAN
	__sanitizer_finish_switch_fiber(fiber->fake_stack, &fibers.main_stack,
					&fibers.main_size);
#endif
}

static void fiber_main(void)
{
	struct sim_fiber *fiber = fibers.current;

#ifdef FIBER_ASAN
	__sanitizer_finish_switch_fiber(NULL, &fibers.main_stack,
					&fibers.main_size);
#endif
	fiber->result = fiber->fn(fiber->arg);
	fiber->ended = true;
	sim_wake(fiber, true);
	fiber_leave(fiber);
	sim_fail("fiber %s resumed after its end", fiber->name);
}

static void fiber_free(struct sim_fiber *fiber)
{
	sim_cancel(fiber->event);
	tei_list_del(&fiber->link);
	tei_list_del(&fiber->waiting);
#ifdef FIBER_ASAN
	__asan_unpoison_memory_region(fiber->stack + FIBER_GUARD, FIBER_STACK);
#endif
	stack_put(fiber->stack);
#ifdef FIBER_TSAN
	__tsan_destroy_fiber(fiber->tsan);
#endif
	free(fiber);
}

/* Runs in the event of a fiber: switches to the fiber, and frees it if it has
 * ended and is detached. */
static void fiber_resume(void *arg)
{
	struct sim_fiber *fiber = arg;

	fiber->event = 0;
	fiber->key = NULL;
	tei_list_del(&fiber->waiting);
	fiber_enter(fiber);
	if (fiber->ended && fiber->detached)
		fiber_free(fiber);
}

/* --- the interface --- */

struct sim_fiber *sim_fiber_start(struct sim_host *host, const char *name,
				  void *(*fn)(void *), void *arg)
{
	struct sim_fiber *fiber = calloc(1, sizeof(*fiber));

	if (!fiber || getcontext(&fiber->context))
		sim_fail("no memory for a fiber");
	fiber->host = host;
	fiber->name = name;
	fiber->fn = fn;
	fiber->arg = arg;
	fiber->stack = stack_get();
	fiber->context.uc_stack.ss_sp = fiber->stack + FIBER_GUARD;
	fiber->context.uc_stack.ss_size = FIBER_STACK;
	fiber->context.uc_link = NULL;
	makecontext(&fiber->context, fiber_main, 0);
#ifdef FIBER_TSAN
	fiber->tsan = __tsan_create_fiber(0);
#endif
	tei_list_add_tail(&fibers.all, &fiber->link);
	tei_list_init(&fiber->waiting);
	fiber->event = sim_at_host(host, sim_now(), fiber_resume, fiber);
	return fiber;
}

struct sim_fiber *sim_fiber_current(void)
{
	return fibers.current;
}

bool sim_fiber_ended(const struct sim_fiber *fiber)
{
	return fiber->ended;
}

static struct sim_fiber *fiber_self(const char *call)
{
	if (!fibers.current)
		sim_fail("%s called outside of a fiber", call);
	return fibers.current;
}

void sim_sleep_until(uint64_t when_ns)
{
	struct sim_fiber *fiber = fiber_self("sim_sleep_until");

	fiber->event = sim_at_host(fiber->host, when_ns, fiber_resume, fiber);
	fiber_leave(fiber);
}

void sim_yield(void)
{
	sim_sleep_until(sim_now());
}

bool sim_wait(const void *key, uint64_t until_ns)
{
	struct sim_fiber *fiber = fiber_self("sim_wait");

	fiber->key = key;
	fiber->woken = false;
	tei_list_add_tail(&fibers.waiting, &fiber->waiting);
	if (until_ns != SIM_NEVER)
		fiber->event = sim_at_host(fiber->host, until_ns, fiber_resume,
					   fiber);
	fiber_leave(fiber);
	return fiber->woken;
}

void sim_wake(const void *key, bool all)
{
	struct sim_fiber *fiber, *next;

	tei_list_foreach_safe(fiber, next, &fibers.waiting, struct sim_fiber,
			      waiting) {
		if (fiber->key != key)
			continue;
		sim_cancel(fiber->event);
		tei_list_del(&fiber->waiting);
		fiber->key = NULL;
		fiber->woken = true;
		fiber->event = sim_at_host(fiber->host, sim_now(), fiber_resume,
					   fiber);
		if (!all)
			return;
	}
}

void *sim_fiber_join(struct sim_fiber *fiber)
{
	void *result;

	while (!fiber->ended)
		sim_wait(fiber, SIM_NEVER);
	result = fiber->result;
	fiber_free(fiber);
	return result;
}

void sim_fiber_detach(struct sim_fiber *fiber)
{
	fiber->detached = true;
	if (fiber->ended)
		fiber_free(fiber);
}

/* --- begin and end --- */

void sim_fiber_drop(struct sim_host *host)
{
	struct sim_fiber *fiber, *next;

	tei_list_foreach_safe(fiber, next, &fibers.all, struct sim_fiber, link) {
		if (fiber->host != host)
			continue;
		if (fiber == fibers.current)
			sim_fail("host %u killed by its own fiber", host->id);
		fiber_free(fiber);
	}
}

void sim_fiber_begin(void)
{
	tei_list_init(&fibers.all);
	tei_list_init(&fibers.waiting);
	fibers.current = NULL;
}

void sim_fiber_end(void)
{
	struct sim_fiber *fiber, *next;

	tei_list_foreach_safe(fiber, next, &fibers.all, struct sim_fiber, link)
		fiber_free(fiber);
	while (fibers.stacks_used > 0)
		munmap(fibers.stacks[--fibers.stacks_used],
		       FIBER_GUARD + FIBER_STACK);
	free(fibers.stacks);
	fibers.stacks = NULL;
	fibers.stacks_room = 0;
}
