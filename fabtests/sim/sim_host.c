/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <sys/mman.h>

#include "fabtests/sim/sim_int.h"

/*
 * Address of the memory that sim_arena returns. It lies below the first address
 * at which Linux loads a program on x86-64, and in a range that the sanitizers
 * leave to programs.
 */
#define ARENA_AT	((void *)UINT64_C(0x550000000000))
#define ARENA_SIZE	(UINT64_C(64) << 30)

static struct {
	struct sim_host *hosts;
	uint32_t count;
	struct sim_host *current;
	struct {
		sim_host_fn fn;
		void *arg;
	} watchers[SIM_WATCHERS];
	uint32_t watched;
	struct sim_rng random;		/* random stream of the library outside
					 * of hosts */
	char *arena;
	size_t arena_used;
} world;

/* Starts a new random stream for the host's present life. */
static void host_seed(struct sim_host *host)
{
	sim_rng_init(&host->random, "library",
		     (uint64_t)host->id << 32 | host->life);
}

void sim_host_begin(uint32_t hosts)
{
	uint32_t i;

	world.hosts = calloc(hosts ? hosts : 1, sizeof(*world.hosts));
	if (!world.hosts)
		sim_fail("no memory for %u hosts", hosts);
	for (i = 0; i < hosts; i++) {
		world.hosts[i].id = i;
		tei_list_init(&world.hosts[i].held);
		host_seed(&world.hosts[i]);
	}
	sim_rng_init(&world.random, "library", UINT64_MAX);
	world.count = hosts;
	world.current = NULL;
	world.watched = 0;
	world.arena_used = 0;
}

void sim_host_end(void)
{
	uint32_t i;

	for (i = 0; i < world.count; i++)
		sim_event_drop(&world.hosts[i]);
	free(world.hosts);
	world.hosts = NULL;
	world.count = 0;
	if (world.arena)
		munmap(world.arena, ARENA_SIZE);
	world.arena = NULL;
}

struct sim_host *sim_host_get(uint32_t id)
{
	if (id >= world.count)
		sim_fail("there is no host %u", id);
	return &world.hosts[id];
}

uint32_t sim_host_count(void)
{
	return world.count;
}

uint32_t sim_host_id(const struct sim_host *host)
{
	return host->id;
}

struct sim_host *sim_host_current(void)
{
	return world.current;
}

struct sim_host *sim_host_enter(struct sim_host *host)
{
	struct sim_host *before = world.current;

	world.current = host;
	return before;
}

uint32_t sim_host_life(const struct sim_host *host)
{
	return host->life;
}

bool sim_host_running(const struct sim_host *host)
{
	return !host->stopped && !host->killed;
}

bool sim_host_killed(const struct sim_host *host)
{
	return host->killed;
}

static void host_changed(struct sim_host *host)
{
	uint32_t i;

	for (i = 0; i < world.watched; i++)
		world.watchers[i].fn(world.watchers[i].arg, host);
}

void sim_host_stop(struct sim_host *host)
{
	if (host->stopped || host->killed)
		return;
	host->stopped = true;
	SIM_TRACE(host->id, "stop", host->life);
	host_changed(host);
}

void sim_host_resume(struct sim_host *host)
{
	if (!host->stopped)
		return;
	host->stopped = false;
	SIM_TRACE(host->id, "resume", host->life);
	sim_event_release(host);
	host_changed(host);
}

void sim_host_kill(struct sim_host *host)
{
	if (host->killed)
		return;
	host->killed = true;
	host->stopped = false;
	SIM_TRACE(host->id, "kill", host->life);
	sim_event_drop(host);
	sim_fiber_drop(host);
	host_changed(host);
}

void sim_host_restart(struct sim_host *host)
{
	if (!host->killed)
		return;
	host->killed = false;
	host->life++;
	host_seed(host);
	SIM_TRACE(host->id, "restart", host->life);
	host_changed(host);
}

uint64_t sim_host_now(const struct sim_host *host)
{
	return sim_now() + host->jumped_ns;
}

struct sim_rng *sim_host_random(void)
{
	return world.current ? &world.current->random : &world.random;
}

void sim_host_jump(struct sim_host *host, uint64_t ns)
{
	host->jumped_ns += ns;
	SIM_TRACE(host->id, "jump", ns);
}

void sim_host_watch(sim_host_fn fn, void *arg)
{
	if (world.watched == SIM_WATCHERS)
		sim_fail("more than %d functions watch the hosts",
			 SIM_WATCHERS);
	world.watchers[world.watched].fn = fn;
	world.watchers[world.watched++].arg = arg;
}

void *sim_arena(size_t size, size_t align)
{
	size_t at = (world.arena_used + align - 1) / align * align;

	if (!world.arena) {
		void *p = mmap(ARENA_AT, ARENA_SIZE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
				       MAP_FIXED_NOREPLACE,
			       -1, 0);

		if (p != ARENA_AT)
			sim_fail("no memory at %p", ARENA_AT);
		world.arena = p;
	}
	if (size > ARENA_SIZE || at > ARENA_SIZE - size)
		sim_fail("arena: no memory for %zu bytes", size);
	world.arena_used = at + size;
	return world.arena + at;
}
