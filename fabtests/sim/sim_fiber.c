/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fabtests/sim/sim_int.h"

/* On x86-64, a function of this file switches between two stacks. On other
 * processors, swapcontext does; it calls the kernel twice to exchange the
 * signal mask, which is the same for all fibers. */
#if !defined(__x86_64__)
#include <ucontext.h>
#define FIBER_UCONTEXT 1
#endif

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
#include <sanitizer/lsan_interface.h>
#endif
#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/*
 * A fiber consists of a stack and of the saved registers of code that waits.
 * sim_run executes on the stack of the program. Each fiber that is to be
 * resumed has an event; when it runs, sim_run switches to the fiber, and the
 * fiber switches back when it waits or ends. A fiber never switches to another
 * fiber.
 *
 * Stacks are reused for later fibers. The lowest page of each stack is not
 * accessible.
 *
 * A killed process frees nothing. A program with AddressSanitizer keeps the
 * fibers of killed processes and their stacks until it ends, so that its leak
 * check treats these processes as running: it reports only memory that a
 * process had already lost when it was killed.
 *
 * Fibers that wait for a key are in one of many lists, which a hash of the key
 * selects, so that sim_wake need not examine all waiting fibers. The hash does
 * not change the order of events, because fibers that wait for the same key are
 * in the same list.
 */
#define FIBER_STACK	(256 * 1024)
#define FIBER_GUARD	4096
#define FIBER_LISTS	1024

/* The saved registers of code that waits. On x86-64 they are on the stack of
 * the code. */
struct fiber_context {
#ifdef FIBER_UCONTEXT
	ucontext_t uc;
#else
	void *sp;
#endif
};

/* A fiber. sim_fiber_start creates it. sim_fiber_join frees it. A detached
 * fiber is freed when it ends. If a process is killed, all its fibers are
 * freed. */
struct sim_fiber {
	struct tei_list link;		/* entry of fibers.all */
	struct tei_list waiting;	/* entry of a list in fibers.waiting
					 * while `key` is not NULL */
	struct sim_host *host;
	const char *name;
	void *(*fn)(void *);
	void *arg;
	void *result;
	const void *key;		/* key for which the fiber waits in
					 * sim_wait, or NULL */
	bool woken;			/* true if sim_wake has resumed the
					 * fiber, false if its time limit has */
	bool ended;
	bool detached;
	sim_event_id event;		/* pending event that resumes the fiber;
					 * 0 if there is none */
	struct fiber_context context;
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
	struct tei_list waiting[FIBER_LISTS]; /* lists of sim_fiber.waiting;
					       * each list is in the order in
					       * which the fibers began to
					       * wait */
	struct sim_fiber *current;
	struct fiber_context main;	/* saved registers of sim_run while a
					 * fiber runs */
	char **stacks;			/* array of the stacks that no fiber
					 * uses at present */
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

static void fiber_main(void);

#ifdef FIBER_UCONTEXT
static void fiber_switch(struct fiber_context *from, struct fiber_context *to)
{
	if (swapcontext(&from->uc, &to->uc))
		sim_fail("swapcontext failed");
}

static void fiber_prepare(struct fiber_context *context, char *stack)
{
	if (getcontext(&context->uc))
		sim_fail("getcontext failed");
	context->uc.uc_stack.ss_sp = stack;
	context->uc.uc_stack.ss_size = FIBER_STACK;
	context->uc.uc_link = NULL;
	makecontext(&context->uc, fiber_main, 0);
}
#else
/*
 * Saves on the present stack the registers that a called function must
 * preserve, and writes the stack pointer to *from. Then switches to the stack
 * pointer `to`, loads the registers that are saved there and returns to that
 * code.
 */
void sim_fiber_switch(void **from, void *to)
	__attribute__((visibility("hidden")));

__asm__(".pushsection .text\n"
	".globl sim_fiber_switch\n"
	".hidden sim_fiber_switch\n"
	".type sim_fiber_switch, @function\n"
	"sim_fiber_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size sim_fiber_switch, . - sim_fiber_switch\n"
	".popsection\n");

static void fiber_switch(struct fiber_context *from, struct fiber_context *to)
{
	sim_fiber_switch(&from->sp, to->sp);
}

/* Makes the first switch to the context call fiber_main. For this purpose,
 * writes to the top of the stack what a switch expects there: six registers and
 * the address of fiber_main, followed by a return address of 0. */
static void fiber_prepare(struct fiber_context *context, char *stack)
{
	uint64_t *top = (uint64_t *)(void *)(stack + FIBER_STACK) - 8;

	memset(top, 0, 8 * sizeof(*top));
	top[6] = (uint64_t)(uintptr_t)fiber_main;
	context->sp = top;
}
#endif

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
	fiber_switch(&fibers.main, &fiber->context);
#ifdef FIBER_ASAN
	__sanitizer_finish_switch_fiber(fibers.fake_stack, NULL, NULL);
#endif
	fibers.current = NULL;
}

/* Switches from the fiber to sim_run. Returns when the fiber is resumed. Does
 * not return if the fiber has ended. */
static void fiber_leave(struct sim_fiber *fiber)
{
#ifdef FIBER_ASAN
	__sanitizer_start_switch_fiber(fiber->ended ? NULL : &fiber->fake_stack,
				       fibers.main_stack, fibers.main_size);
#endif
#ifdef FIBER_TSAN
	__tsan_switch_to_fiber(fibers.tsan, 0);
#endif
	fiber_switch(&fiber->context, &fibers.main);
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

/* Makes sure that the fiber is not resumed. */
static void fiber_withdraw(struct sim_fiber *fiber)
{
	sim_cancel(fiber->event);
	tei_list_del(&fiber->link);
	tei_list_del(&fiber->waiting);
}

static void fiber_free(struct sim_fiber *fiber)
{
	fiber_withdraw(fiber);
#ifdef FIBER_ASAN
	__asan_unpoison_memory_region(fiber->stack + FIBER_GUARD, FIBER_STACK);
#endif
	stack_put(fiber->stack);
#ifdef FIBER_TSAN
	__tsan_destroy_fiber(fiber->tsan);
#endif
	free(fiber);
}

#ifdef FIBER_ASAN
/* The variables of a function must be on the stack, where the leak check
 * searches for pointers, and not in AddressSanitizer's own memory. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_stack_use_after_return=0";
}

/* list of sim_fiber.link: the fibers of killed processes of all simulations */
static struct tei_list fibers_killed = { &fibers_killed, &fibers_killed };

/* Keeps the fiber of a killed process for the leak check. */
static void fiber_keep(struct sim_fiber *fiber)
{
	char *from = fiber->stack + FIBER_GUARD;
	size_t used = FIBER_STACK;

#ifndef FIBER_UCONTEXT
	used -= (size_t)((char *)fiber->context.sp - from);
	from = fiber->context.sp;
#endif
	__lsan_register_root_region(from, used);
	tei_list_add_tail(&fibers_killed, &fiber->link);
}
#endif

/* Frees the fiber of a killed process, or keeps it for the leak check. */
static void fiber_kill(struct sim_fiber *fiber)
{
#ifdef FIBER_ASAN
	fiber_withdraw(fiber);
	fiber_keep(fiber);
#else
	fiber_free(fiber);
#endif
}

/* The function of a fiber's event: switches to the fiber, and frees it if it
 * has then ended and is detached. */
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

	if (!fiber)
		sim_fail("no memory for a fiber");
	fiber->host = host;
	fiber->name = name;
	fiber->fn = fn;
	fiber->arg = arg;
	fiber->stack = stack_get();
	fiber_prepare(&fiber->context, fiber->stack + FIBER_GUARD);
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

/* Returns the list of the fibers that wait for the key. The list may also
 * contain fibers that wait for other keys. */
static struct tei_list *fiber_list(const void *key)
{
	uint64_t x = (uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15);

	return &fibers.waiting[x >> 32 & (FIBER_LISTS - 1)];
}

bool sim_wait(const void *key, uint64_t until_ns)
{
	struct sim_fiber *fiber = fiber_self("sim_wait");

	fiber->key = key;
	fiber->woken = false;
	tei_list_add_tail(fiber_list(key), &fiber->waiting);
	if (until_ns != SIM_NEVER)
		fiber->event = sim_at_host(fiber->host, until_ns, fiber_resume,
					   fiber);
	fiber_leave(fiber);
	return fiber->woken;
}

void sim_wake(const void *key, bool all)
{
	struct sim_fiber *fiber, *next;

	tei_list_foreach_safe(fiber, next, fiber_list(key), struct sim_fiber,
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
		fiber_kill(fiber);
	}
}

void sim_fiber_begin(void)
{
	uint32_t i;

	tei_list_init(&fibers.all);
	for (i = 0; i < FIBER_LISTS; i++)
		tei_list_init(&fibers.waiting[i]);
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
