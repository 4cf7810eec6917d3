/* SPDX-License-Identifier: BSD-2-Clause */
/* te_info: shows the resources that an engine finds on this machine, and faults
 * that make it slow or make it fail. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "tools/te_info.h"

static void main_head(struct info *info)
{
	cJSON *doc = info->doc;
	struct utsname uts;
	char when[32];
	time_t now = time(NULL);
	struct tm tm;

	info_num(doc, "schema", INFO_SCHEMA);
	info_text(doc, "version", "%s", te_version());
	if (gmtime_r(&now, &tm) &&
	    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm))
		info_text(doc, "time", "%s", when);
	if (!uname(&uts)) {
		info_text(doc, "host", "%s", uts.nodename);
		info_text(doc, "kernel", "%s %s", uts.sysname, uts.release);
		info_text(doc, "machine", "%s", uts.machine);
	}
	info_num(doc, "cpus", (double)sysconf(_SC_NPROCESSORS_ONLN));
	info_num(doc, "memory_bytes", (double)sysconf(_SC_PHYS_PAGES) *
				      (double)sysconf(_SC_PAGESIZE));
	info->findings = info_array(doc, "findings");
	info->unseen = info_array(doc, "not_looked_at");
}

static int main_exit(const struct info *info)
{
	switch (info->worst) {
	case INFO_WARN: return INFO_EXIT_WARN;
	case INFO_BAD: return INFO_EXIT_BAD;
	default: return INFO_EXIT_OK;
	}
}

static void main_output(const struct info *info)
{
	char *text;

	if (!info->opts.json) {
		info_print(info);
		return;
	}
	text = cJSON_Print(info->doc);
	puts(text ? text : "{}");
	cJSON_free(text);
}

static void main_machine(struct info *info)
{
	static struct info_machine m;
	char why[256];

	if (info_machine_open(info, &m, why, sizeof(why)))
		info_unseen(info, "machine_topology", "%s", why);
	else
		info_machine_doc(info, &m);
	info_machine_close(&m);
}

void info_progress(const struct info *info, const char *what)
{
	if (info->opts.check && isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K%s%s", what, *what ? " …" : "");
}

static int main_report(struct info *info)
{
	info->doc = cJSON_CreateObject();
	main_head(info);
	info_progress(info, "reading the interfaces and RDMA ports");
	info_look_net(info);
	info_look_verbs(info);
	info_progress(info, "starting an engine to list its rails");
	info_look_rails(info);
	main_machine(info);
	if (info->opts.check)
		info_check(info);
	if (info->opts.segment) {
		info_progress(info, "testing the segment's rails");
		info_look_segment(info);
	}
	info_progress(info, "");
	info_text(info->doc, "worst", "%s", info_grade_name(info->worst));
	main_output(info);
	cJSON_Delete(info->doc);
	free(info->nets);
	return main_exit(info);
}

/* Flushes stdout. Returns ret, or INFO_EXIT_USAGE if the output could not be
 * written. */
static int main_flush(int ret)
{
	if (!fflush(stdout) && !ferror(stdout))
		return ret;
	fprintf(stderr, "te_info: can't write: %s\n", strerror(errno));
	return INFO_EXIT_USAGE;
}

int main(int argc, char **argv)
{
	static struct info info;
	int ret;

	ret = info_parse(argc, argv, &info.opts);
	if (ret)
		return ret;
	if (info.opts.help || info.opts.version) {
		if (info.opts.help)
			info_help();
		else
			printf("moonrail %s, libfabric %s\n", te_version(),
			       te_fabric_version());
		return main_flush(0);
	}
	signal(SIGPIPE, SIG_IGN);
	if (info.opts.child)
		return info_child_main(&info.opts);
	if (info.opts.output && !freopen(info.opts.output, "w", stdout)) {
		fprintf(stderr, "te_info: %s: %s\n", info.opts.output,
			strerror(errno));
		return INFO_EXIT_USAGE;
	}
	if (info.opts.watch)
		return main_flush(info_watch(&info.opts));
	return main_flush(info.opts.svg ? info_svg(&info) : main_report(&info));
}
