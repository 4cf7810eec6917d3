/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/common/ft_options.h"
#include "tools/te_info.h"

#define FIELD(f) offsetof(struct info_opts, f)

static const struct ft_option option_table[] = {
	{ "check", FT_FLAG, FIELD(check), 0, 0, NULL, "",
	  "test each rail and report faults" },
	{ "segment", FT_TEXT, FIELD(segment), 0, 0, NULL, "NAME",
	  "show a published segment and test each of its rails" },
	{ "watch", FT_FLAG, FIELD(watch), 0, 0, NULL, "",
	  "with --segment: show rails and peers of its process, live" },
	{ "interval", FT_SECONDS, FIELD(interval), 0, 60, NULL, "SECONDS",
	  "with --watch: time between two outputs; 1" },
	{ "count", FT_COUNT, FIELD(count), 1, 1000000000, NULL, "N",
	  "with --watch: number of outputs; no limit" },
	{ "svg", FT_FLAG, FIELD(svg), 0, 0, NULL, "",
	  "draw sockets, NUMA nodes, NICs and GPUs" },
	{ "json", FT_FLAG, FIELD(json), 0, 0, NULL, "",
	  "print the whole report as one JSON object" },
	{ "prometheus", FT_FLAG, FIELD(prometheus), 0, 0, NULL, "",
	  "with --watch: print in Prometheus's text format" },
	{ "output", FT_TEXT, FIELD(output), 0, 0, NULL, "FILE",
	  "write to FILE instead of standard output" },
	{ "metadata_server", FT_TEXT, FIELD(metadata_server), 0, 0, NULL, "TEXT",
	  "P2PHANDSHAKE or zookeeper://host:port; P2PHANDSHAKE" },
	{ "protocol", FT_TEXT, FIELD(protocol), 0, 0, NULL, "NAME",
	  "auto, tcp, rdma, shm or local; auto" },
	{ "device_name", FT_TEXT, FIELD(device_name), 0, 0, NULL, "LIST",
	  "interfaces, RDMA devices or addresses, with commas; all" },
	{ "provider", FT_TEXT, FIELD(provider), 0, 0, NULL, "NAME",
	  "libfabric provider to use" },
	{ "peer", FT_TEXT, FIELD(peers), 0, 0, NULL, "LIST",
	  "with --check: addresses that the rails must reach" },
	{ "peers", FT_COUNT, FIELD(expected_peers), 1, 1000000, NULL, "N",
	  "with --check: number of peers, to check limits; 64" },
	{ "pid", FT_COUNT, FIELD(pid), 1, 1u << 30, NULL, "N",
	  "with --check: check limits and libraries of process N" },
	{ "probe_time", FT_SECONDS, FIELD(probe_time), 0, 60, NULL, "SECONDS",
	  "time for the test of each rail; 0.2" },
	{ "no_probe", FT_FLAG, FIELD(no_probe), 0, 0, NULL, "",
	  "with --check: transfer no data" },
	{ "topology", FT_TEXT, FIELD(topology), 0, 0, NULL, "FILE",
	  "hwloc XML of another machine, for --svg" },
	{ "root", FT_TEXT, FIELD(root), 0, 0, NULL, "DIR",
	  "read DIR/proc and DIR/sys, a copy of another machine's" },
	{ "child", FT_TEXT, FIELD(child), 0, 0, NULL, NULL, NULL },
	{ "rail", FT_TEXT, FIELD(rail), 0, 0, NULL, NULL, NULL },
	{ "remote", FT_TEXT, FIELD(remote), 0, 0, NULL, NULL, NULL },
	{ "version", FT_FLAG, FIELD(version), 0, 0, NULL, "",
	  "versions of moonrail and libfabric" },
};

static const struct ft_options option_all = {
	.program = "te_info",
	.usage = "[--OPTION[=VALUE] ...]",
	.about = "Shows the rails, providers, topology and settings that an engine\n"
		 "would use here. A semicolon precedes the default of an option.",
	.rows = option_table,
	.n = sizeof(option_table) / sizeof(*option_table),
	.width = 24,
	.notes = "Exit status: 0 no finding, or notes only; 1 a warning; 2 a fault;\n"
		 "3 wrong options, or the output cannot be written.",
};

void info_help(void)
{
	ft_options_help(&option_all);
}

static int options_refuse(const char *why)
{
	fprintf(stderr, "te_info: %s\n", why);
	return INFO_EXIT_USAGE;
}

int info_address(const char *text, uint8_t bytes[16])
{
	return inet_pton(AF_INET, text, bytes) == 1 ? AF_INET :
	       inet_pton(AF_INET6, text, bytes) == 1 ? AF_INET6 : 0;
}

static int options_check_peers(const char *peers)
{
	char *list = strdup(peers), *save = NULL, *peer;
	uint8_t bytes[16];
	int ret = 0, n = 0;

	if (!list)
		return options_refuse("out of memory for the addresses of --peer");
	for (peer = strtok_r(list, ", ", &save); peer && !ret;
	     peer = strtok_r(NULL, ", ", &save), n++)
		if (!info_address(peer, bytes)) {
			fprintf(stderr, "te_info: --peer=%s: not an IP address\n",
				peer);
			ret = INFO_EXIT_USAGE;
		}
	free(list);
	return ret || n ? ret : options_refuse("--peer names no address");
}

/* Checks that the process of --pid and the folder of --root exist. If they do
 * not, this is an error in the command line and not a finding. */
static int options_check_there(const struct info_opts *opts)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/proc", opts->root);
	if (*opts->root && access(path, X_OK)) {
		fprintf(stderr, "te_info: --root=%s: %s: %s\n", opts->root,
			path, strerror(errno));
		return INFO_EXIT_USAGE;
	}
	snprintf(path, sizeof(path), "%s/proc/%llu", opts->root,
		 (unsigned long long)opts->pid);
	if (opts->pid && access(path, F_OK)) {
		fprintf(stderr, "te_info: --pid=%llu: no such process\n",
			(unsigned long long)opts->pid);
		return INFO_EXIT_USAGE;
	}
	return opts->peers ? options_check_peers(opts->peers) : 0;
}

static int options_check(const struct info_opts *opts)
{
	static const char *const protocols[] = { "auto", "tcp", "rdma", "shm",
						 "local" };
	bool known = false;

	for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++)
		known |= !strcmp(opts->protocol, protocols[i]);
	if (!known)
		return options_refuse("--protocol must be auto, tcp, rdma, shm "
				      "or local");
	if (opts->svg && (opts->json || opts->check || opts->segment))
		return options_refuse("--svg excludes --json, --check and --segment");
	if (opts->watch && (!opts->segment || opts->check))
		return options_refuse("--watch needs --segment and excludes "
				      "--check");
	if (!opts->watch && (opts->interval || opts->count))
		return options_refuse("--interval and --count need "
				      "--watch");
	if (opts->prometheus && (!opts->watch || opts->json))
		return options_refuse("--prometheus needs --watch and excludes "
				      "--json");
	if (opts->topology && !opts->svg)
		return options_refuse("--topology needs --svg");
	if (!opts->check && (opts->peers || opts->pid || opts->no_probe))
		return options_refuse("--peer, --pid and --no_probe need "
				      "--check");
	return options_check_there(opts);
}

int info_parse(int argc, char **argv, struct info_opts *opts)
{
	int first;

	memset(opts, 0, sizeof(*opts));
	opts->metadata_server = "P2PHANDSHAKE";
	opts->protocol = "auto";
	opts->root = "";
	opts->expected_peers = 64;
	opts->probe_time = 0.2;
	first = ft_options_read(&option_all, argc, argv, opts);
	if (first < 0)
		return INFO_EXIT_USAGE;
	opts->help = !first;
	if (opts->help || opts->version || opts->child)
		return 0;
	return options_check(opts);
}
