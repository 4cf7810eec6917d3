/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks the machine and its kernel: memory, clock, control groups, and access
 * between processes. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "tools/te_info.h"

#define HOST_MIB (1024.0 * 1024)

/* Returns the number in a line "Name: N kB" of /proc/meminfo, or -1 if there is
 * no such line. */
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
		info_what(f, "none of the %.0f huge pages is free; transparent huge pages: %s",
			  total, thp);
	else
		info_what(f, "no huge pages are reserved; transparent huge pages: %s",
			  thp);
	info_why(f, "with small pages, a NIC needs 512 times as many translation entries for a large buffer");
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
			  "%.0f huge pages of %.0f MiB, %.0f free; transparent huge pages: %s",
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
		info_why(f, "each read of the clock is a slow device access, and the data path reads the clock often");
		info_cure(f, "echo tsc >/sys/devices/system/clocksource/clocksource0/current_clocksource, or tsc=reliable on the kernel's command line if the TSC is reliable");
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
	long long scope = info_sysctl(info, "ptrace",
				      "kernel/yama/ptrace_scope");
	cJSON *f;

	if (scope == INFO_UNSEEN)
		return;
	/* a kernel without Yama does not restrict access between processes */
	if (scope == 0 || scope == INFO_ABSENT) {
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
		  scope == 3 ? " after a reboot, because the value 3 cannot be lowered" :
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
	info_what(f, "the size of /dev/shm is %s", size);
	info_why(f, "libfabric's shm provider keeps its queues there; if it is full, the process ends with SIGBUS");
	info_cure(f, "mount -o remount,size=1G /dev/shm, or --shm-size=1g for containers");
}

/* --- control groups ------------------------------------------------------ */

/* The smallest memory limit found so far. */
struct host_limit {
	double bytes;		/* the limit, bytes; negative if no limit was
				 * found */
	char where[512];	/* control group that sets this limit */
	const char *file;	/* file of the control group that contains the
				 * limit */
	bool seen;		/* true if at least one file could be read, even
				 * if it contains no limit */
	int err;		/* errno if a file exists but could not be read,
				 * otherwise 0 */
};

/* In version 1, a limit of at least this value means "no limit": the kernel
 * then reports the largest multiple of a page. */
#define HOST_NO_LIMIT 0x1p62

static void host_limit_read(struct info *info, struct host_limit *l,
			    const char *base, const char *dir,
			    const char *file)
{
	char text[64], *end;
	double value;

	if (!info_read(info, text, sizeof(text), "%s%s/%s", base, dir, file)) {
		if (errno != ENOENT)
			l->err = errno;
		return;
	}
	value = strtod(text, &end);
	if (end == text && strcmp(text, "max")) {
		l->err = EINVAL;
		return;
	}
	l->seen = true;
	if (!(value > 0) || value >= HOST_NO_LIMIT ||
	    (l->bytes >= 0 && value >= l->bytes))
		return;
	l->bytes = value;
	l->file = file;
	snprintf(l->where, sizeof(l->where), "%s", *dir ? dir : "/");
}

/* Reads the limits of the control group at path and of all groups above it. All
 * of these limits apply. */
static void host_limit_walk(struct info *info, struct host_limit *l,
			    const char *base, const char *path,
			    const char *file)
{
	char dir[512], *slash;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = dir + strlen(dir);
	while (slash > dir && slash[-1] == '/')
		*--slash = '\0';
	do {
		host_limit_read(info, l, base, dir, file);
		slash = strrchr(dir, '/');
		if (slash)
			*slash = '\0';
	} while (slash);
}

/* Returns true if list, whose elements are separated by sep, contains the
 * element word. */
static bool host_word(const char *list, const char *word, const char *sep)
{
	size_t len = strlen(word), n;

	for (;; list += n + 1) {
		n = strcspn(list, sep);
		if (n == len && !strncmp(list, word, len))
			return true;
		if (!list[n])
			return false;
	}
}

/* Returns true if version 2 of control groups controls memory. Reads the
 * controllers of the root group, which has no limit file even then. */
static bool host_cgroup_v2(struct info *info)
{
	char text[512];

	return info_read(info, text, sizeof(text),
			 "/sys/fs/cgroup/cgroup.controllers") &&
	       host_word(text, "memory", " ");
}

/* Handles a line of /proc/PID/cgroup. "4:cpu,memory:/a/b" names a group of
 * version 1, and "0::/a/b" a group of version 2. */
static void host_cgroup_line(struct info *info, struct host_limit *l,
			     char *line)
{
	char *list = strchr(line, ':');
	char *path = list ? strchr(list + 1, ':') : NULL;

	if (!path || path[1] != '/')
		return;
	*list++ = '\0';
	*path++ = '\0';
	if (host_word(list, "memory", ",")) {
		host_limit_walk(info, l, "/sys/fs/cgroup/memory", path,
				"memory.limit_in_bytes");
	} else if (!*list && !strcmp(line, "0")) {
		l->seen |= host_cgroup_v2(info);
		host_limit_walk(info, l, "/sys/fs/cgroup", path, "memory.max");
	}
}

static void host_cgroup_tell(struct info *info, const struct host_limit *l)
{
	double memory = info_get_num(info->doc, "memory_bytes");
	char size[32];
	cJSON *f;

	if (l->bytes < 0 || (memory > 0 && l->bytes >= memory)) {
		info_fine(info, "cgroup", "memory",
			  "no control group limits memory");
		return;
	}
	f = info_find(info, l->bytes < 1024 * HOST_MIB ? INFO_WARN : INFO_NOTE,
		      "cgroup", "memory");
	info_what(f, "control group %s is limited to %s", l->where,
		  info_bytes_text(l->bytes, size, sizeof(size)));
	info_why(f, "buffers and socket memory count towards the limit; above it, the kernel kills processes");
	info_cure(f, "raise %s there, MemoryMax= of the unit, or --memory of the container",
		  l->file);
}

static void host_cgroup(struct info *info)
{
	struct host_limit l = { .bytes = -1 };
	char path[64] = "/proc/self/cgroup", *text, *line, *save = NULL;

	if (info->opts.pid)
		snprintf(path, sizeof(path), "/proc/%llu/cgroup",
			 (unsigned long long)info->opts.pid);
	text = info_slurp(info, "%s", path);
	if (!text) {
		info_unseen(info, "cgroup", "%s: %s", path, strerror(errno));
		return;
	}
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		host_cgroup_line(info, &l, line);
	free(text);
	if (l.bytes < 0 && (l.err || !l.seen))
		info_unseen(info, "cgroup", "limits of the control groups in %s, below /sys/fs/cgroup: %s",
			    path, strerror(l.err ? l.err : ENOENT));
	else
		host_cgroup_tell(info, &l);
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
		info_fine(info, "iommu", "host", "the IOMMU is in pass-through mode");
		return;
	}
	f = info_find(info, INFO_NOTE, "iommu", "host");
	info_what(f, "an IOMMU translates the memory accesses of devices");
	info_why(f, "fast NICs lose throughput, and transfers between a GPU and a NIC pass through the root complex");
	info_cure(f, "iommu=pt on the kernel's command line");
}

static void host_numa_balancing(struct info *info)
{
	cJSON *f;

	if (info_sysctl(info, "numa_balancing", "kernel/numa_balancing") <= 0)
		return;
	f = info_find(info, INFO_NOTE, "numa_balancing", "host");
	info_what(f, "the kernel moves pages between NUMA nodes automatically");
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
