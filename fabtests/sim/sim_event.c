/* SPDX-License-Identifier: BSD-2-Clause */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "fabtests/sim/sim_int.h"

/*
 * Pending events are in a pairing heap, which is ordered by time and then by
 * sequence number. With this kind of heap, adding and running an event costs the
 * same whether or not thousands of later events are pending.
 *
 * A table, `slots`, finds the event of an id: the low half of an id is the
 * index in this table, the high half is the generation of the entry. The
 * generation grows each time the entry is used for a new event.
 */
struct slot {
	struct sim_event *event;
	uint32_t generation;
};

static struct {
	uint64_t seed;
	uint64_t now_ns;
	uint64_t seq;
	uint64_t ran;
	uint64_t break_at;
	struct sim_event *first;	/* root of the heap: the event that runs
					 * next; NULL if there is none */
	struct slot *slots;
	uint32_t slots_used, slots_room;
	uint32_t *free_slots;
	uint32_t free_used;
} sim;

void sim_fail(const char *format, ...)
{
	va_list ap;

	fprintf(stderr, "simulation: seed %llu, event %llu, %.9f s: ",
		(unsigned long long)sim.seed, (unsigned long long)sim.ran,
		(double)(sim.now_ns - SIM_START_NS) / 1e9);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	abort();
}

uint64_t sim_now(void)
{
	return sim.now_ns;
}

uint64_t sim_seed(void)
{
	return sim.seed;
}

uint64_t sim_events(void)
{
	return sim.ran;
}

struct sim_host *sim_next_host(void)
{
	return sim.first ? sim.first->host : NULL;
}

void sim_break_at(uint64_t n)
{
	sim.break_at = n;
}

/* --- the queue --- */

static bool event_before(const struct sim_event *a, const struct sim_event *b)
{
	return a->when_ns != b->when_ns ? a->when_ns < b->when_ns :
					  a->seq < b->seq;
}

/* Makes the later one of two roots the first child of the other one, and
 * returns the root of the new tree. Each root may be NULL. */
static struct sim_event *event_meld(struct sim_event *a, struct sim_event *b)
{
	struct sim_event *root, *child;

	if (!a || !b)
		return a ? a : b;
	root = event_before(a, b) ? a : b;
	child = root == a ? b : a;
	child->next = root->child;
	if (child->next)
		child->next->prev = child;
	child->prev = root;
	root->child = child;
	return root;
}

/* Takes the first event off a list of siblings. Returns NULL if the list is
 * empty. */
static struct sim_event *event_take(struct sim_event **list)
{
	struct sim_event *event = *list;

	if (event) {
		*list = event->next;
		event->next = event->prev = NULL;
	}
	return event;
}

/* Makes one tree of the children of an event, and returns its root: melds
 * neighbours in pairs, then the trees of these pairs from the last one to the
 * first one. */
static struct sim_event *event_children(struct sim_event *event)
{
	struct sim_event *list = event->child, *pairs = NULL, *a, *b;
	struct sim_event *root = NULL;

	event->child = NULL;
	while ((a = event_take(&list))) {
		b = event_take(&list);
		a = event_meld(a, b);
		a->next = pairs;
		pairs = a;
	}
	while ((a = event_take(&pairs)))
		root = event_meld(root, a);
	return root;
}

static void event_push(struct sim_event *event)
{
	event->child = event->next = event->prev = NULL;
	sim.first = event_meld(sim.first, event);
}

static void event_remove(struct sim_event *event)
{
	struct sim_event *children = event_children(event);

	if (event == sim.first) {
		sim.first = children;
		return;
	}
	if (event->prev->child == event)
		event->prev->child = event->next;
	else
		event->prev->next = event->next;
	if (event->next)
		event->next->prev = event->prev;
	sim.first = event_meld(sim.first, children);
}

/* --- ids --- */

static sim_event_id event_name(struct sim_event *event)
{
	uint32_t slot;

	if (sim.free_used > 0) {
		slot = sim.free_slots[--sim.free_used];
	} else {
		if (sim.slots_used == sim.slots_room) {
			sim.slots_room = sim.slots_room ? 2 * sim.slots_room :
							  1024;
			sim.slots = realloc(sim.slots, sim.slots_room *
							       sizeof(*sim.slots));
			sim.free_slots = realloc(sim.free_slots,
						 sim.slots_room *
							 sizeof(*sim.free_slots));
			if (!sim.slots || !sim.free_slots)
				sim_fail("no memory for events");
		}
		slot = sim.slots_used++;
		sim.slots[slot].generation = 0;
	}
	sim.slots[slot].event = event;
	event->slot = slot;
	return (uint64_t)++sim.slots[slot].generation << 32 | slot;
}

static void event_free(struct sim_event *event)
{
	sim.slots[event->slot].event = NULL;
	sim.free_slots[sim.free_used++] = event->slot;
	free(event);
}

/* --- the interface --- */

sim_event_id sim_at_host(struct sim_host *host, uint64_t when_ns,
			 sim_event_fn fn, void *arg)
{
	struct sim_event *event = malloc(sizeof(*event));

	if (!event)
		sim_fail("no memory for an event");
	event->when_ns = when_ns > sim.now_ns ? when_ns : sim.now_ns;
	event->seq = sim.seq++;
	event->fn = fn;
	event->arg = arg;
	event->host = host;
	event->life = host ? host->life : 0;
	tei_list_init(&event->link);
	event_push(event);
	return event_name(event);
}

sim_event_id sim_at(uint64_t when_ns, sim_event_fn fn, void *arg)
{
	return sim_at_host(NULL, when_ns, fn, arg);
}

bool sim_cancel(sim_event_id id)
{
	uint32_t slot = (uint32_t)id;
	struct sim_event *event;

	if (id == 0 || slot >= sim.slots_used ||
	    sim.slots[slot].generation != id >> 32)
		return false;
	event = sim.slots[slot].event;
	if (!event)
		return false;
	if (!tei_list_empty(&event->link))
		tei_list_del(&event->link);
	else
		event_remove(event);
	event_free(event);
	return true;
}

void sim_event_release(struct sim_host *host)
{
	while (!tei_list_empty(&host->held)) {
		struct sim_event *event = tei_list_first(
			&host->held, struct sim_event, link);

		tei_list_del(&event->link);
		event->when_ns = sim.now_ns;
		event->seq = sim.seq++;
		event_push(event);
	}
}

void sim_event_drop(struct sim_host *host)
{
	while (!tei_list_empty(&host->held)) {
		struct sim_event *event = tei_list_first(
			&host->held, struct sim_event, link);

		tei_list_del(&event->link);
		event_free(event);
	}
}

/* Takes one event off the heap. Runs it if its host runs. Moves it to the list
 * `held` of the host if the host is stopped. Frees it if the process to which
 * it belongs was killed. */
static void event_run(struct sim_event *event)
{
	struct sim_host *host = event->host, *before;
	sim_event_fn fn = event->fn;
	void *arg = event->arg;

	event_remove(event);
	sim.now_ns = event->when_ns;
	if (host && (host->killed || host->life != event->life)) {
		event_free(event);
		return;
	}
	if (host && host->stopped) {
		tei_list_add_tail(&host->held, &event->link);
		return;
	}
	event_free(event);
	if (++sim.ran == sim.break_at)
		raise(SIGTRAP);
	before = sim_host_enter(host);
	fn(arg);
	sim_host_enter(before);
}

bool sim_run_while(bool (*done)(void *arg), void *arg, uint64_t until_ns)
{
	if (sim_fiber_current())
		sim_fail("sim_run called by a fiber");
	for (;;) {
		if (done && done(arg))
			return true;
		if (!sim.first || sim.first->when_ns > until_ns)
			break;
		event_run(sim.first);
	}
	if (until_ns != SIM_NEVER && until_ns > sim.now_ns)
		sim.now_ns = until_ns;
	return false;
}

void sim_run(uint64_t until_ns)
{
	sim_run_while(NULL, NULL, until_ns);
}

void sim_event_begin(void)
{
	sim.now_ns = SIM_START_NS;
	sim.seq = 0;
	sim.ran = 0;
	sim.break_at = 0;
}

void sim_event_end(void)
{
	struct sim_event *event;

	while ((event = sim.first)) {
		event_remove(event);
		free(event);
	}
	free(sim.slots);
	free(sim.free_slots);
	sim.slots = NULL;
	sim.free_slots = NULL;
	sim.slots_used = sim.slots_room = sim.free_used = 0;
}

void sim_begin(uint64_t seed, uint32_t hosts)
{
	sim.seed = seed;
	sim_event_begin();
	sim_trace_begin();
	sim_fiber_begin();
	sim_host_begin(hosts);
}

/* Ends the hosts before the events, because sim_host_end frees the events in
 * `held` of each host. The trace needs no end. */
void sim_end(void)
{
	sim_fiber_end();
	sim_host_end();
	sim_event_end();
}
