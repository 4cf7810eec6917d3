/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The machine and its kernel: memory, clock, cgroups, what processes may do
 * to each other.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "tools/te_info.h"

#define HOST_MIB (1024.0 * 1024)

/* A "Name:  N kB" line of /proc/meminfo, or -1. */
static double host_meminfo(const char *text, const char *name)
{
	size_t len = strlen(name);
	const char *at;

	for (at = text; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (!strncmp(at, name, len) && at[len] == ':')
			return strtod(at + len + 1, NULL);
	}
	return -1;
}

static void host_few_pages(struct info *info, double total, const char *thp)
{
	cJSON *f = info_find(info, INFO_NOTE, "huge_pages", "host");

	if (total > 0)
		info_what(f, "none of the %.0f huge pages is free; transparent: %s",
			  total, thp);
	else
		info_what(f, "no huge pages are reserved; transparent: %s",
			  thp);
	info_why(f, "a NIC's translation of large buffers takes 512 times as many entries with small pages");
	info_cure(f, "sysctl vm.nr_hugepages=N%s, or echo madvise >/sys/kernel/mm/transparent_hugepage/enabled and madvise(MADV_HUGEPAGE) for the buffers",
		  total > 0 ? " with a larger N" : "");
}

static void host_huge_pages(struct info *info)
{
	char *text = info_slurp(info, "/proc/meminfo"), thp[128];
	double total, free_pages, kb;

	if (!text) {
		info_unseen(info, "huge_pages", "/proc/meminfo: %s",
			    strerror(errno));
		return;
	}
	total = host_meminfo(text, "HugePages_Total");
	free_pages = host_meminfo(text, "HugePages_Free");
	kb = host_meminfo(text, "Hugepagesize");
	free(text);
	if (!info_read(info, thp, sizeof(thp),
		       "/sys/kernel/mm/transparent_hugepage/enabled"))
		snprintf(thp, sizeof(thp), "unknown");
	if (total > 0 && free_pages > 0)
		info_fine(info, "huge_pages", "host",
			  "%.0f huge pages of %.0f MiB, %.0f free; transparent: %s",
			  total, kb / 1024, free_pages, thp);
	else
		host_few_pages(info, total, thp);
}

static void host_clock(struct info *info)
{
	static const char *const slow[] = { "hpet", "acpi_pm", "jiffies",
					    "refined-jiffies", "pit" };
	char name[64];
	cJSON *f;

	if (!info_read(info, name, sizeof(name),
		       "/sys/devices/system/clocksource/clocksource0/current_clocksource")) {
		info_unseen(info, "clock", "clocksource0: %s",
			    strerror(errno));
		return;
	}
	for (size_t i = 0; i < sizeof(slow) / sizeof(*slow); i++) {
		if (strcmp(name, slow[i]))
			continue;
		f = info_find(info, INFO_WARN, "clock", "host");
		info_what(f, "the clock source is %s", name);
		info_why(f, "each look at the clock is a slow device access, and the data path looks often");
		info_cure(f, "echo tsc >/sys/devices/system/clocksource/clocksource0/current_clocksource, or tsc=reliable on the kernel's command line where the TSC is sound");
		return;
	}
	info_fine(info, "clock", "host", "the clock source is %s", name);
}

static void host_governor(struct info *info)
{
	char name[64], other[64] = "";
	long long cpus = info_get_num(info->doc, "cpus"), i;
	unsigned int seen = 0, slow = 0;
	cJSON *f;

	for (i = 0; i < cpus && i < 4096; i++) {
		if (!info_read(info, name, sizeof(name),
			       "/sys/devices/system/cpu/cpu%lld/cpufreq/scaling_governor",
			       i))
			continue;
		seen++;
		if (!strcmp(name, "performance"))
			continue;
		slow++;
		snprintf(other, sizeof(other), "%s", name);
	}
	if (!seen) {
		info_unseen(info, "governor", "no cpufreq in /sys; the hypervisor or firmware sets the clock");
		return;
	}
	if (!slow) {
		info_fine(info, "governor", "host",
			  "all CPUs run the performance governor");
		return;
	}
	f = info_find(info, INFO_NOTE, "governor", "host");
	info_what(f, "%u of %u CPUs run the %s governor", slow, seen, other);
	info_why(f, "an idle CPU wakes at a low clock: small transfers take longer and vary");
	info_cure(f, "cpupower frequency-set -g performance");
}

static void host_ptrace(struct info *info)
{
	long long scope = info_read_num(info,
					"/proc/sys/kernel/yama/ptrace_scope");
	cJSON *f;

	if (scope <= 0) {
		info_fine(info, "ptrace", "local",
			  "processes of one user may copy from each other");
		return;
	}
	f = info_find(info, scope == 1 ? INFO_NOTE : INFO_WARN, "ptrace",
		      "local");
	info_what(f, "kernel.yama.ptrace_scope is %lld", scope);
	info_why(f, "process_vm_readv is refused between unrelated processes%s; they use the network instead",
		 scope == 1 ? " without CAP_SYS_PTRACE" : "");
	info_cure(f, "sysctl kernel.yama.ptrace_scope=0%s",
		  scope == 3 ? " after a reboot; 3 can't be lowered" :
			       "; in containers --cap-add SYS_PTRACE");
}

static void host_shm(struct info *info)
{
	char path[512], size[32];
	struct statvfs fs;
	double bytes;
	cJSON *f;

	snprintf(path, sizeof(path), "%s/dev/shm", info->opts.root);
	if (statvfs(path, &fs)) {
		info_unseen(info, "shm", "%s: %s", path, strerror(errno));
		return;
	}
	bytes = (double)fs.f_blocks * (double)fs.f_frsize;
	info_bytes_text(bytes, size, sizeof(size));
	if (bytes >= 256 * HOST_MIB || !fs.f_blocks) {
		info_fine(info, "shm", "/dev/shm", "%s", size);
		return;
	}
	f = info_find(info, INFO_NOTE, "shm", "/dev/shm");
	info_what(f, "it holds %s", size);
	info_why(f, "libfabric's shm provider keeps its queues there; a write beyond its end is a bus error");
	info_cure(f, "mount -o remount,size=1G /dev/shm, or --shm-size=1g for containers");
}

/* --- cgroups ------------------------------------------------------------- */

/* The smallest memory.max from dir up to the root, or -1. */
static double host_cgroup_max(struct info *info, char *dir, char *where,
			      size_t len)
{
	double best = -1, value;
	char text[64], *slash;

	for (;;) {
		if (info_read(info, text, sizeof(text),
			      "/sys/fs/cgroup%s/memory.max", dir) &&
		    strcmp(text, "max")) {
			value = strtod(text, NULL);
			if (value > 0 && (best < 0 || value < best)) {
				best = value;
				snprintf(where, len, "%s", *dir ? dir : "/");
			}
		}
		slash = strrchr(dir, '/');
		if (!slash)
			return best;
		*slash = '\0';
	}
}

static void host_cgroup(struct info *info)
{
	char *text, *v2, dir[512], where[512] = "", size[32];
	double max = -1;
	cJSON *f;

	text = info->opts.pid ?
		       info_slurp(info, "/proc/%llu/cgroup",
				  (unsigned long long)info->opts.pid) :
		       info_slurp(info, "/proc/self/cgroup");
	if (!text) {
		info_unseen(info, "cgroup", "/proc/self/cgroup: %s",
			    strerror(errno));
		return;
	}
	v2 = strstr(text, "0::/");
	if (v2) {
		snprintf(dir, sizeof(dir), "%.*s",
			 (int)strcspn(v2 + 3, "\n"), v2 + 3);
		if (!strcmp(dir, "/"))
			*dir = '\0';
		max = host_cgroup_max(info, dir, where, sizeof(where));
	}
	free(text);
	if (max < 0 || max >= info_get_num(info->doc, "memory_bytes")) {
		info_fine(info, "cgroup", "memory",
			  "no control group limits memory");
		return;
	}
	f = info_find(info, max < 1024 * HOST_MIB ? INFO_WARN : INFO_NOTE,
		      "cgroup", "memory");
	info_what(f, "control group %s is limited to %s", where,
		  info_bytes_text(max, size, sizeof(size)));
	info_why(f, "buffers and socket memory count; beyond it the kernel kills");
	info_cure(f, "raise memory.max there, MemoryMax= of the unit, or --memory of the container");
}

/* --- IOMMU --------------------------------------------------------------- */

static bool host_has_iommu(const struct info *info)
{
	char path[512];
	struct dirent *e;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/sys/class/iommu", info->opts.root);
	dir = opendir(path);
	while (dir && (e = readdir(dir)))
		found |= *e->d_name != '.';
	if (dir)
		closedir(dir);
	return found;
}

static void host_iommu(struct info *info)
{
	char cmdline[4096];
	cJSON *f;

	if (!host_has_iommu(info))
		return;
	info_read(info, cmdline, sizeof(cmdline), "/proc/cmdline");
	if (strstr(cmdline, "iommu=pt") ||
	    strstr(cmdline, "iommu.passthrough=1")) {
		info_fine(info, "iommu", "host", "the IOMMU passes through");
		return;
	}
	f = info_find(info, INFO_NOTE, "iommu", "host");
	info_what(f, "an IOMMU translates what devices access");
	info_why(f, "it costs fast NICs throughput, and transfers between GPU and NIC go by way of the root complex");
	info_cure(f, "iommu=pt on the kernel's command line");
}

static void host_numa_balancing(struct info *info)
{
	cJSON *f;

	if (info_read_num(info, "/proc/sys/kernel/numa_balancing") <= 0)
		return;
	f = info_find(info, INFO_NOTE, "numa_balancing", "host");
	info_what(f, "the kernel moves pages between NUMA nodes by itself");
	info_why(f, "its page faults disturb transfers, and a buffer may leave the node of its NIC");
	info_cure(f, "sysctl kernel.numa_balancing=0");
}

void info_check_host(struct info *info)
{
	host_huge_pages(info);
	host_clock(info);
	host_governor(info);
	host_ptrace(info);
	host_shm(info);
	host_cgroup(info);
	host_iommu(info);
	host_numa_balancing(info);
}
