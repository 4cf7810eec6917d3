/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/sim/scale.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"
#include "fabtests/sim/sim.h"

/* bytes that the allocator uses in addition to each allocation */
#define MEMORY_OVERHEAD 8
#define MEMORY_CALLERS	4096
/* upper limit of the size of fab_alloc's code, bytes */
#define MEMORY_FAB_CODE	256

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void __real_free(void *p);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void __wrap_free(void *p);

/* A hash table of the addresses of all counted allocations, with linear
 * probing. */
static struct {
	void **at;
	size_t used, room;		/* used entries; size of the table, a
					 * power of two or 0 */
	uint64_t bytes;
} memory;

/* A cache of return addresses: `simulator` is true if the address is in the
 * simulator or in the simulated network, so that the allocation does not
 * count. */
static struct {
	const void *at;
	bool simulator;
} callers[MEMORY_CALLERS];

uint64_t scale_memory(void)
{
	return memory.bytes;
}

static size_t memory_hash(const void *p)
{
	return (uintptr_t)p * UINT64_C(0x9e3779b97f4a7c15) >> 24;
}

static bool caller_simulator(const void *at)
{
	size_t i = memory_hash(at) % MEMORY_CALLERS;
	Dl_info info;

	if (callers[i].at != at) {
		callers[i].at = at;
		callers[i].simulator =
			(uintptr_t)at - (uintptr_t)fab_alloc <
				MEMORY_FAB_CODE ||
			(dladdr(at, &info) && info.dli_sname &&
			 !strncmp(info.dli_sname, "sim_", 4));
	}
	return callers[i].simulator;
}

/* Returns the index of `p` in the table, or the index at which it must be
 * inserted. */
static size_t memory_find(const void *p)
{
	size_t i = memory_hash(p) & (memory.room - 1);

	while (memory.at[i] && memory.at[i] != p)
		i = (i + 1) & (memory.room - 1);
	return i;
}

static void memory_grow(void)
{
	void **old = memory.at;
	size_t n = memory.room, i;

	memory.room = n ? 2 * n : 1 << 16;
	memory.at = __real_calloc(memory.room, sizeof(*memory.at));
	if (!memory.at)
		sim_fail("no memory for the table of allocations");
	for (i = 0; i < n; i++)
		if (old[i])
			memory.at[memory_find(old[i])] = old[i];
	__real_free(old);
}

static void *memory_add(void *p, const void *caller)
{
	struct sim_host *host = sim_host_current();

	if (!p || !host || sim_host_id(host) != 0 || caller_simulator(caller))
		return p;
	if (2 * memory.used >= memory.room)
		memory_grow();
	memory.at[memory_find(p)] = p;
	memory.used++;
	memory.bytes += malloc_usable_size(p) + MEMORY_OVERHEAD;
	return p;
}

/* Removes `p` from the table if it is there. Moves later entries forward that
 * memory_find could no longer find because of the gap. */
static void memory_remove(void *p)
{
	size_t i, j, home, mask = memory.room - 1;

	if (!p || !memory.room)
		return;
	i = memory_find(p);
	if (!memory.at[i])
		return;
	memory.bytes -= malloc_usable_size(p) + MEMORY_OVERHEAD;
	memory.used--;
	memory.at[i] = NULL;
	for (j = (i + 1) & mask; memory.at[j]; j = (j + 1) & mask) {
		home = memory_hash(memory.at[j]) & mask;
		if (((j - home) & mask) >= ((j - i) & mask)) {
			memory.at[i] = memory.at[j];
			memory.at[j] = NULL;
			i = j;
		}
	}
}

void *__wrap_malloc(size_t size)
{
	return memory_add(__real_malloc(size), __builtin_return_address(0));
}

void *__wrap_calloc(size_t n, size_t size)
{
	return memory_add(__real_calloc(n, size), __builtin_return_address(0));
}

void *__wrap_realloc(void *p, size_t size)
{
	void *old;

	memory_remove(p);
	old = p;
	p = __real_realloc(p, size);
	return memory_add(p ? p : old, __builtin_return_address(0)) == p ? p :
									 NULL;
}

void __wrap_free(void *p)
{
	memory_remove(p);
	__real_free(p);
}
