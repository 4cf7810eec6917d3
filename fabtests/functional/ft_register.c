/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Measures how long the registration and unregistration of one buffer take
 * while many others are registered. The time must not grow with their number.
 * The test runs with P2PHANDSHAKE and with ZooKeeper, with all buffers in one
 * mapping and with a mapping for each buffer.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fabtests/common/ft_zk.h"
#include "fabtests/functional/fx.h"

#define REG_COUNT 10000
#define REG_FIRST 100		/* number of calls in a group */
/* number of calls that count as made while many buffers are registered */
#define REG_LAST 1000
/* maximum ratio of the times of a registration with many and with few
 * buffers */
#define REG_RATIO 1.5
/* maximum of the same ratio for an unregistration; a linear search would exceed
 * it by far */
#define REG_GONE_RATIO 3
#define REG_LEN 4096
/* distance of two buffers, so that none are adjacent */
#define REG_STEP (2 * REG_LEN)
/* maximum number of rounds; the best one counts, because other processes use
 * the CPUs, too */
#define REG_ROUNDS 10

/*
 * Measured at the first call of each group of REG_FIRST calls: the time, and
 * how long this thread had waited for a CPU until then, both in ns. The last
 * element is measured after all calls.
 */
struct reg_times {
	uint64_t at[REG_COUNT / REG_FIRST + 1];
	uint64_t waited[REG_COUNT / REG_FIRST + 1];
};

static struct reg_times reg_took, reg_gone;

/*
 * Returns for how long the calling thread has been ready to run and waited for
 * a CPU, in ns. Returns 0 if the kernel does not report it. Other processes and
 * threads use the CPUs, for example the thread that publishes the descriptor.
 */
static uint64_t reg_waited(void)
{
	FILE *f = fopen("/proc/thread-self/schedstat", "r");
	unsigned long long waited = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%*u %llu", &waited) != 1)
		waited = 0;
	fclose(f);
	return waited;
}

/* If a group begins with call i, stores the time before the call. */
static void reg_note(struct reg_times *t, size_t i)
{
	if (i % REG_FIRST)
		return;
	t->waited[i / REG_FIRST] = reg_waited();
	t->at[i / REG_FIRST] = ft_now_ns();
}

/*
 * Returns the mean duration of a call in the fastest group, in µs, without the
 * time for which the thread waited for a CPU. The groups are those of `count`
 * calls from call `from` on, both multiples of REG_FIRST. Other processes slow
 * down some groups; a cost that grows with the number of buffers slows down all
 * of them.
 */
static double reg_fastest(const struct reg_times *t, size_t from, size_t count)
{
	size_t i = from / REG_FIRST, end = (from + count) / REG_FIRST;
	uint64_t ns, waited, best = UINT64_MAX;

	for (; i < end; i++) {
		ns = t->at[i + 1] - t->at[i];
		waited = t->waited[i + 1] - t->waited[i];
		ns -= waited < ns ? waited : 0;
		if (ns < best)
			best = ns;
	}
	return (double)best / 1e3 / REG_FIRST;
}

static char *reg_addr(char *mem, size_t i)
{
	return mem + i * REG_STEP;
}

/* Maps the memory for all buffers. If `apart` is true, each buffer has a
 * mapping of its own, which is followed by a hole. Returns NULL on failure. */
static char *reg_map(bool apart)
{
	char *mem = mmap(NULL, (size_t)REG_COUNT * REG_STEP,
			 PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	size_t i;

	if (mem == MAP_FAILED)
		return NULL;
	for (i = 0; apart && i < REG_COUNT; i++)
		munmap(reg_addr(mem, i) + REG_LEN, REG_STEP - REG_LEN);
	return mem;
}

static bool reg_round(transfer_engine_t engine, char *mem)
{
	size_t i;

	for (i = 0; i < REG_COUNT; i++) {
		reg_note(&reg_took, i);
		if (registerLocalMemory(engine, reg_addr(mem, i), REG_LEN, "*",
					1))
			return false;
	}
	reg_note(&reg_took, i);
	/* Unregister the oldest buffer first. */
	for (i = 0; i < REG_COUNT; i++) {
		reg_note(&reg_gone, i);
		if (unregisterLocalMemory(engine, reg_addr(mem, i)))
			return false;
	}
	reg_note(&reg_gone, i);
	return true;
}

struct reg_ratios {
	double reg, unreg;	/* lowest ratio of all rounds so far; 0 before
				 * the first */
};

/* Compares the duration of calls with many registered buffers to that of calls
 * with few, and stores the ratios if they are lower than *best. */
static void reg_compare(struct reg_ratios *best)
{
	/* Two groups, because in later rounds the first group also pays for
	 * cleaning up the heap. */
	double few = reg_fastest(&reg_took, 0, 2 * REG_FIRST);
	double many = reg_fastest(&reg_took, REG_COUNT - REG_LAST, REG_LAST);
	double full = reg_fastest(&reg_gone, 0, REG_LAST);
	double unresolved =
		reg_fastest(&reg_gone, REG_COUNT - REG_LAST, REG_LAST);

	ft_diag("register: %.1f us with few buffers, %.1f us with many; "
		"unregister: %.1f us with many, %.1f us with few",
		few, many, full, unresolved);
	if (!best->reg || many / few < best->reg)
		best->reg = many / few;
	if (!best->unreg || full / unresolved < best->unreg)
		best->unreg = full / unresolved;
}

static void reg_layout(const char *store, transfer_engine_t engine, bool apart)
{
	const char *how = apart ? "in_mappings_of_their_own" : "in_one_mapping";
	struct reg_ratios best = { 0, 0 };
	char *mem = reg_map(apart);
	bool good = mem != NULL;
	int i;

	for (i = 0; i < REG_ROUNDS && good; i++) {
		good = reg_round(engine, mem);
		if (good)
			reg_compare(&best);
		if (best.reg <= REG_RATIO && best.unreg <= REG_GONE_RATIO)
			break;
	}
	ft_ok(good, "%s: %d_buffers_%s_are_registered_and_unregistered", store,
	      REG_COUNT, how);
	ft_ok(good && best.reg <= REG_RATIO,
	      "%s: registering_one_buffer_%s_costs_as_much_when_many_are (%.2f)",
	      store, how, best.reg);
	ft_ok(good && best.unreg <= REG_GONE_RATIO,
	      "%s: unregistering_one_buffer_%s_costs_as_much_when_many_are (%.2f)",
	      store, how, best.unreg);
	if (mem)
		munmap(mem, (size_t)REG_COUNT * REG_STEP);
}

static void reg_store(const char *store, const char *conn)
{
	transfer_engine_t engine;

	engine = createTransferEngine(conn, "registrar", "127.0.0.1", 0, 0);
	if (!ft_ok(engine && installTransport(engine, "tcp", NULL),
		   "%s: an_engine_is_there", store))
		goto out;
	reg_layout(store, engine, false);
	reg_layout(store, engine, true);
out:
	destroyTransferEngine(engine);
}

static void reg_zookeeper(void)
{
	struct ft_zk zk;
	char conn[160];

	if (ft_zk_missing()) {
		printf("skip - register_with_zookeeper: %s\n",
		       ft_zk_missing());
		return;
	}
	if (ft_ok(ft_zk_start(&zk, 1), "zookeeper_server_starts")) {
		snprintf(conn, sizeof(conn), "zookeeper://%s/moon/rail",
			 zk.hosts);
		reg_store("zookeeper", conn);
	}
	ft_zk_stop(&zk);
}

int main(int argc, char **argv)
{
	fx_init(argc, argv);
	setenv("MC_TCP_BIND_ADDRESS", "127.0.0.1", 1);
	reg_store("p2p", "P2PHANDSHAKE");
	reg_zookeeper();
	return ft_result();
}
