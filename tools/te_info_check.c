/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs all checks. Contains the checks of the process's limits. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tools/te_info.h"

#define CHECK_MIB	(1024.0 * 1024)
#define CHECK_NO_LIMIT	1e19

struct check_limit {
	const char *name;	/* name of the limit, as in /proc/PID/limits */
	int resource;
	double soft, hard;	/* the two values of the limit; CHECK_NO_LIMIT
				 * if there is no limit, negative if it is
				 * unknown */
};

static double limit_number(const char *text)
{
	return strncmp(text, "unlimited", 9) ? strtod(text, NULL) :
					       CHECK_NO_LIMIT;
}

/* Reads a limit of the process --pid from a line such as "Max locked memory
 * 8388608 8388608 bytes". */
static void limit_of_pid(struct info *info, struct check_limit *l)
{
	char *text = info_slurp(info, "/proc/%llu/limits",
				(unsigned long long)info->opts.pid);
	char *at = text ? strstr(text, l->name) : NULL;
	char soft[32], hard[32];

	l->soft = l->hard = -1;
	if (!at)
		info_unseen(info, "limits", "/proc/%llu/limits: %s",
			    (unsigned long long)info->opts.pid,
			    text ? "a limit is missing in this file" : strerror(errno));
	else if (sscanf(at + strlen(l->name), "%31s %31s", soft, hard) == 2) {
		l->soft = limit_number(soft);
		l->hard = limit_number(hard);
	}
	free(text);
}

static struct check_limit limit_get(struct info *info, const char *name,
				    int resource)
{
	struct check_limit l = { .name = name, .soft = -1, .hard = -1 };
	struct rlimit r;

	if (info->opts.pid) {
		limit_of_pid(info, &l);
	} else if (!getrlimit(resource, &r)) {
		l.soft = r.rlim_cur == RLIM_INFINITY ? CHECK_NO_LIMIT :
						       (double)r.rlim_cur;
		l.hard = r.rlim_max == RLIM_INFINITY ? CHECK_NO_LIMIT :
						       (double)r.rlim_max;
	}
	return l;
}

static const char *limit_subject(const struct info *info, char *buf, size_t len)
{
	if (info->opts.pid)
		snprintf(buf, len, "pid %llu",
			 (unsigned long long)info->opts.pid);
	else
		snprintf(buf, len, "this shell");
	return buf;
}

static bool check_has_rdma(const struct info *info)
{
	return cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(
		       info->doc, "rdma_devices")) > 0;
}

static void check_memlock(struct info *info)
{
	struct check_limit l = limit_get(info, "Max locked memory",
					 RLIMIT_MEMLOCK);
	bool rdma = check_has_rdma(info);
	enum info_grade grade;
	char who[32], size[32];
	cJSON *f;

	if (l.soft < 0)
		return;
	limit_subject(info, who, sizeof(who));
	if (l.soft >= CHECK_NO_LIMIT) {
		info_fine(info, "memlock", who, "locked memory is not limited");
		return;
	}
	grade = rdma ? (l.soft < 64 * CHECK_MIB ? INFO_BAD : INFO_WARN) :
		       (l.soft < 8 * CHECK_MIB ? INFO_WARN : INFO_NOTE);
	f = info_find(info, grade, "memlock", who);
	info_what(f, "at most %s of memory may be locked (ulimit -l)",
		  info_bytes_text(l.soft, size, sizeof(size)));
	info_why(f, rdma ? "RDMA registration locks memory, and fails above this limit" :
		 "tcp does not lock memory, but registration with an RDMA NIC would fail above this limit");
	info_cure(f, "ulimit -l unlimited; permanently: \"* - memlock unlimited\" in /etc/security/limits.d/, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for containers");
}

static void check_files(struct info *info)
{
	struct check_limit l = limit_get(info, "Max open files", RLIMIT_NOFILE);
	double peers = (double)info->opts.expected_peers, need;
	double rails = 0;
	char who[32];
	cJSON *f;

	if (l.soft < 0)
		return;
	limit_subject(info, who, sizeof(who));
	for (size_t i = 0; i < info->n_rails; i++)
		rails += strcmp(info->rails[i].transport, "local") != 0;
	rails = rails ? rails : 1;
	/* estimate: each rail needs file descriptors for its queues and
	 * listening sockets, and for two connections per peer */
	need = 128 + rails * (32 + 2 * peers);
	if (l.soft >= need) {
		info_fine(info, "open_files", who,
			  "%.0f files may be open, about %.0f are needed for %.0f rails and %.0f peers",
			  l.soft, need, rails, peers);
		return;
	}
	f = info_find(info, l.hard < need ? INFO_BAD : INFO_WARN, "open_files",
		      who);
	info_what(f, "%.0f files may be open (hard limit %.0f); %.0f rails and %.0f peers need about %.0f",
		  l.soft, l.hard, rails, peers, need);
	info_why(f, "a connection without a file descriptor fails, and so do the transfers with its peer");
	info_cure(f, "ulimit -n %.0f; permanently: \"* - nofile %.0f\" in /etc/security/limits.d/ or LimitNOFILE= in a systemd unit",
		  need * 2, need * 2);
}

static void check_address_space(struct info *info)
{
	struct check_limit l = limit_get(info, "Max address space", RLIMIT_AS);
	char who[32], size[32];
	cJSON *f;

	if (l.soft < 0 || l.soft >= CHECK_NO_LIMIT)
		return;
	f = info_find(info, INFO_WARN, "address_space",
		      limit_subject(info, who, sizeof(who)));
	info_what(f, "the address space is limited to %s (ulimit -v)",
		  info_bytes_text(l.soft, size, sizeof(size)));
	info_why(f, "thread stacks, mapped queues and large buffers count towards the limit, even if they are not used");
	info_cure(f, "ulimit -v unlimited");
}

void info_check_limits(struct info *info)
{
	check_memlock(info);
	check_files(info);
	check_address_space(info);
}

void info_check(struct info *info)
{
	info_progress(info, "checking limits, host and routes");
	info_check_limits(info);
	info_check_host(info);
	info_check_net(info);
	info_check_routes(info);
	info_check_fabric(info);
	info_progress(info, "testing the metadata server");
	info_check_metadata(info);
	if (info->opts.no_probe)
		return;
	info_progress(info, "testing each rail");
	info_probe_rails(info);
}
