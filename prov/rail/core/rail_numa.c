/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Placement near the NICs. The message buffers of a rail are on the NUMA node
 * of its NIC, host memory for GPU copies is on the node of a NIC near the GPU,
 * and the progress thread runs on the CPUs that MOONRAIL_PROGRESS_CPUS names.
 */

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_info.h"
#include "prov/rail/core/rail_lane_threads.h"
#include "prov/rail/tei_rail.h"
#include "topo/tei_topo.h"
#include "util/err.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"
#include "util/thread.h"

/* --- memory -------------------------------------------------------------- */

int rail_numa_node(const struct rail *rail)
{
	int node = tei_topo_nic_node(rail->name, rail->nic.pci);

	if (node < 0 && rail->fab.info->domain_attr->name)
		node = tei_topo_nic_node(rail->fab.info->domain_attr->name,
					 NULL);
	return node;
}

void *rail_numa_alloc(const struct rail *rail, size_t size)
{
	return tei_topo_map(rail->nic.numa, size);
}

int tei_rail_node_near(struct tei_rail_dp *dp, const char *location)
{
	uint8_t ranks[TEI_RAIL_MAX], best = TEI_TOPO_OFF;
	const struct rail *rail;
	int node = -1;
	uint32_t i;

	rail_report_ranks(dp, location, ranks);
	rail_sched_enter(dp);
	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		if (!rail->open || rail->nic.numa < 0 || ranks[i] >= best)
			continue;
		best = ranks[i];
		node = rail->nic.numa;
	}
	rail_sched_leave(dp);
	return node;
}

void rail_numa_free(void *mem, size_t size)
{
	if (mem)
		munmap(mem, size);
}

/* --- the progress threads ------------------------------------------------ */

static int near_fail(const struct tei_rail_dp *dp, const char *why,
		     struct tei_err *err)
{
	return tei_err_fail(err, TEI_ERR_INVALID, "rail",
			    "\"near\", or CPUs such as 0-3,8",
			    "MOONRAIL_PROGRESS_CPUS=%.64s: %s",
			    dp->settings->sched.progress_cpus, why);
}

int rail_numa_check(struct tei_rail_dp *dp, struct tei_err *err)
{
	const char *text = dp->settings->sched.progress_cpus;
	cpu_set_t may;

	if (!*text)
		return 0;
	if (sched_getaffinity(0, sizeof(dp->thread.cpus), &dp->thread.cpus))
		return near_fail(dp, "this process's CPUs are unknown", err);
	if (!strcmp(text, "near"))
		return 0;
	if (tei_cpus_parse(text, &may))
		return near_fail(dp, "not a list of CPUs", err);
	CPU_AND(&dp->thread.cpus, &dp->thread.cpus, &may);
	if (!CPU_COUNT(&dp->thread.cpus))
		return near_fail(dp, "this process may use none of these CPUs",
				 err);
	return 0;
}

uint32_t rail_numa_cpus(const struct tei_rail_dp *dp)
{
	if (*dp->settings->sched.progress_cpus)
		return (uint32_t)CPU_COUNT(&dp->thread.cpus);
	return tei_cpus();
}

/* Sets *out to the CPUs of the rails' NUMA nodes, or to all CPUs of the process
 * if no node is known. */
static void near_cpus(struct tei_rail_dp *dp, cpu_set_t *out)
{
	cpu_set_t node, near;
	uint32_t i;

	CPU_ZERO(&near);
	for (i = 0; i < rail_count(dp); i++)
		if (__atomic_load_n(&rail_at(dp, i)->open, __ATOMIC_ACQUIRE) &&
		    rail_at(dp, i)->nic.numa >= 0 &&
		    tei_topo_node_cpus(rail_at(dp, i)->nic.numa, &node))
			CPU_OR(&near, &near, &node);
	CPU_AND(&near, &near, &dp->thread.cpus);
	*out = CPU_COUNT(&near) ? near : dp->thread.cpus;
}

void rail_numa_bind_loop(struct tei_rail_dp *dp, struct tei_loop *loop)
{
	cpu_set_t cpus = dp->thread.cpus;
	int ret;

	if (!*dp->settings->sched.progress_cpus)
		return;
	if (!strcmp(dp->settings->sched.progress_cpus, "near"))
		near_cpus(dp, &cpus);
	ret = tei_world->loop_bind(loop, &cpus);
	if (ret)
		TEI_WARN("rail", "MOONRAIL_PROGRESS_CPUS=%.64s: %s",
			 dp->settings->sched.progress_cpus, strerror(ret));
	else
		TEI_INFO("rail", "a progress thread is bound to %d CPUs",
			 CPU_COUNT(&cpus));
}

void rail_numa_bind(struct tei_rail_dp *dp)
{
	struct rail_lane_threads *all = dp->lane_threads;
	uint32_t i;

	rail_numa_bind_loop(dp, &dp->thread.loop);
	for (i = 0; all && i < all->room; i++)
		if (__atomic_load_n(&all->list[i].running, __ATOMIC_ACQUIRE))
			rail_numa_bind_loop(dp, &all->list[i].loop);
}

void rail_report_ranks(struct tei_rail_dp *dp, const char *location,
		       uint8_t ranks[TEI_RAIL_MAX])
{
	uint8_t nics[TEI_RAIL_MAX];
	uint32_t i;
	int nic;

	memset(ranks, 0, TEI_RAIL_MAX);
	tei_mutex_lock(&dp->admin);
	if (dp->topo) {
		tei_topo_ranks(dp->topo, location, nics, TEI_RAIL_MAX);
		for (i = 0; i < rail_count(dp); i++) {
			nic = tei_topo_find_nic(dp->topo, rail_at(dp, i)->name);
			if (nic >= 0 && nic < TEI_RAIL_MAX)
				ranks[i] = nics[nic];
		}
	}
	tei_mutex_unlock(&dp->admin);
}
