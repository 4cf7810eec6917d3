/* SPDX-License-Identifier: BSD-2-Clause */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "fabtests/sim/sim_int.h"

/*
 * Pending events are in a binary heap, which is ordered by time and then by
 * sequence number. A second table, `slots`, finds the event of an id: the low
 * half of an id is the index in this table, the high half is the generation of
 * the entry. The generation grows each time the entry is used for a new
 * event.
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
	struct sim_event **heap;
	size_t used, room;
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
	return sim.used ? sim.heap[0]->host : NULL;
}

void sim_break_at(uint64_t n)
{
	sim.break_at = n;
}

/* --- the heap --- */

static bool event_before(const struct sim_event *a, const struct sim_event *b)
{
	return a->when_ns != b->when_ns ? a->when_ns < b->when_ns :
					  a->seq < b->seq;
}

static void event_place(size_t place, struct sim_event *event)
{
	sim.heap[place] = event;
	event->place = place;
}

static void event_up(size_t place, struct sim_event *event)
{
	while (place > 0) {
		size_t parent = (place - 1) / 2;

		if (!event_before(event, sim.heap[parent]))
			break;
		event_place(place, sim.heap[parent]);
		place = parent;
	}
	event_place(place, event);
}

static void event_down(size_t place, struct sim_event *event)
{
	for (;;) {
		size_t child = 2 * place + 1;

		if (child >= sim.used)
			break;
		if (child + 1 < sim.used &&
		    event_before(sim.heap[child + 1], sim.heap[child]))
			child++;
		if (!event_before(sim.heap[child], event))
			break;
		event_place(place, sim.heap[child]);
		place = child;
	}
	event_place(place, event);
}

static void event_push(struct sim_event *event)
{
	if (sim.used == sim.room) {
		sim.room = sim.room ? 2 * sim.room : 1024;
		sim.heap = realloc(sim.heap, sim.room * sizeof(*sim.heap));
		if (!sim.heap)
			sim_fail("no memory for events");
	}
	event_up(sim.used++, event);
}

static void event_remove(struct sim_event *event)
{
	struct sim_event *last = sim.heap[--sim.used];

	if (last == event)
		return;
	if (event_before(last, event))
		event_up(event->place, last);
	else
		event_down(event->place, last);
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
	if (event->place == SIZE_MAX)
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
		event->place = SIZE_MAX;
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
		if (sim.used == 0 || sim.heap[0]->when_ns > until_ns)
			break;
		event_run(sim.heap[0]);
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
	while (sim.used > 0)
		free(sim.heap[--sim.used]);
	free(sim.heap);
	free(sim.slots);
	free(sim.free_slots);
	sim.heap = NULL;
	sim.slots = NULL;
	sim.free_slots = NULL;
	sim.room = 0;
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
