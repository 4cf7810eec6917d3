/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/common/ft_num.h"
#include "tools/te_info.h"

enum option_kind { KIND_TEXT, KIND_COUNT, KIND_SECONDS, KIND_FLAG };

struct option_row {
	const char *name;
	enum option_kind kind;
	size_t field;			/* offset in struct info_opts */
	uint64_t min, max;		/* counts */
	const char *arg;		/* as --help shows it; NULL: hidden */
	const char *help;
};

#define FIELD(f) offsetof(struct info_opts, f)

static const struct option_row option_table[] = {
	{ "check", KIND_FLAG, FIELD(check), 0, 0, "",
	  "try each rail and name what would hurt" },
	{ "segment", KIND_TEXT, FIELD(segment), 0, 0, "NAME",
	  "show a published segment and try each of its rails" },
	{ "watch", KIND_FLAG, FIELD(watch), 0, 0, "",
	  "with --segment: its process's rails and peers, live" },
	{ "interval", KIND_SECONDS, FIELD(interval), 0, 0, "SECONDS",
	  "with --watch: between two turns; 1" },
	{ "count", KIND_COUNT, FIELD(count), 1, 1000000000, "N",
	  "with --watch: turns; until it is interrupted" },
	{ "svg", KIND_FLAG, FIELD(svg), 0, 0, "",
	  "draw sockets, NUMA nodes, NICs, GPUs and who is near whom" },
	{ "json", KIND_FLAG, FIELD(json), 0, 0, "",
	  "the whole report as one JSON object" },
	{ "output", KIND_TEXT, FIELD(output), 0, 0, "FILE",
	  "write there instead of to standard output" },
	{ "metadata_server", KIND_TEXT, FIELD(metadata_server), 0, 0, "TEXT",
	  "P2PHANDSHAKE or zookeeper://host:port; P2PHANDSHAKE" },
	{ "protocol", KIND_TEXT, FIELD(protocol), 0, 0, "NAME",
	  "auto, tcp, rdma, shm or local; auto" },
	{ "device_name", KIND_TEXT, FIELD(device_name), 0, 0, "LIST",
	  "interfaces, RDMA devices or addresses, comma between; all" },
	{ "provider", KIND_TEXT, FIELD(provider), 0, 0, "NAME",
	  "pins the libfabric provider" },
	{ "peer", KIND_TEXT, FIELD(peers), 0, 0, "LIST",
	  "with --check: addresses that the rails have to reach" },
	{ "peers", KIND_COUNT, FIELD(expected_peers), 1, 1000000, "N",
	  "with --check: processes to talk to, for the limits; 64" },
	{ "pid", KIND_COUNT, FIELD(pid), 1, 1u << 30, "N",
	  "with --check: look at that process's limits and libraries" },
	{ "probe_time", KIND_SECONDS, FIELD(probe_time), 0, 0, "SECONDS",
	  "how long each rail is tried; 0.2" },
	{ "no_probe", KIND_FLAG, FIELD(no_probe), 0, 0, "",
	  "with --check: move no data" },
	{ "topology", KIND_TEXT, FIELD(topology), 0, 0, "FILE",
	  "hwloc XML of another machine, for --svg" },
	{ "root", KIND_TEXT, FIELD(root), 0, 0, "DIR",
	  "read DIR/proc and DIR/sys, a copy of another machine's" },
	{ "child", KIND_TEXT, FIELD(child), 0, 0, NULL, NULL },
	{ "rail", KIND_TEXT, FIELD(rail), 0, 0, NULL, NULL },
	{ "remote", KIND_TEXT, FIELD(remote), 0, 0, NULL, NULL },
	{ "help", KIND_FLAG, FIELD(help), 0, 0, "", "this text" },
	{ "version", KIND_FLAG, FIELD(version), 0, 0, "",
	  "versions of moonrail and libfabric" },
};

enum { N_OPTIONS = sizeof(option_table) / sizeof(option_table[0]) };

void info_help(void)
{
	char head[64];

	puts("usage: te_info [--OPTION[=VALUE] ...]\n"
	     "\n"
	     "Shows the rails, providers, topology and settings that an engine\n"
	     "would use here. The last word of an option's text is its default.\n");
	for (int i = 0; i < N_OPTIONS; i++) {
		const struct option_row *row = &option_table[i];

		if (!row->arg)
			continue;
		snprintf(head, sizeof(head), "--%s%s%s", row->name,
			 *row->arg ? "=" : "", row->arg);
		printf("  %-24s %s\n", head, row->help);
	}
	puts("\n"
	     "Exit status: 0 all is well, notes included; 1 a warning; 2 something\n"
	     "bad; 3 wrong options or output that can't be written.");
}

static int option_wrong(const struct option_row *row, const char *value,
			const char *why)
{
	fprintf(stderr, "te_info: --%s=%s: %s\n", row->name, value, why);
	return INFO_EXIT_USAGE;
}

static int option_flag(const struct option_row *row, const char *value,
		       bool *out)
{
	if (!value || !strcmp(value, "true") || !strcmp(value, "1"))
		*out = true;
	else if (!strcmp(value, "false") || !strcmp(value, "0"))
		*out = false;
	else
		return option_wrong(row, value, "must be true or false");
	return 0;
}

static int option_set(const struct option_row *row, const char *value,
		      struct info_opts *opts)
{
	void *field = (char *)opts + row->field;

	switch (row->kind) {
	case KIND_TEXT:
		if (!*value)
			return option_wrong(row, value, "is empty");
		*(const char **)field = value;
		return 0;
	case KIND_COUNT:
		if (!ft_parse_uint(value, row->min, row->max, field))
			return 0;
		return option_wrong(row, value, "is no number in its range");
	case KIND_SECONDS:
		if (!ft_parse_seconds(value, field) && *(double *)field <= 60)
			return 0;
		return option_wrong(row, value, "must be seconds, above 0, "
				    "at most 60, like 1, 0.5 or 500ms");
	case KIND_FLAG:
		return option_flag(row, value, field);
	}
	return INFO_EXIT_USAGE;
}

/* The row that an argument's name means; "-" and "_" are the same. */
static const struct option_row *option_find(const char *name, size_t len)
{
	for (int i = 0; i < N_OPTIONS; i++) {
		const char *want = option_table[i].name;
		size_t at = 0;

		while (at < len && want[at] &&
		       (name[at] == want[at] ||
			(name[at] == '-' && want[at] == '_')))
			at++;
		if (at == len && !want[at])
			return &option_table[i];
	}
	return NULL;
}

static int options_read(int argc, char **argv, struct info_opts *opts)
{
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i] + strspn(argv[i], "-");
		size_t dashes = (size_t)(name - argv[i]);
		size_t len = strcspn(name, "=");
		const struct option_row *row = option_find(name, len);
		const char *value = name[len] ? name + len + 1 : NULL;

		if (!dashes || dashes > 2 || !row) {
			fprintf(stderr, "te_info: unknown argument %s; see "
				"te_info --help\n", argv[i]);
			return INFO_EXIT_USAGE;
		}
		if (!value && row->kind != KIND_FLAG)
			value = argv[++i];
		if (!value && row->kind != KIND_FLAG) {
			fprintf(stderr, "te_info: --%s needs a value\n",
				row->name);
			return INFO_EXIT_USAGE;
		}
		if (option_set(row, value, opts))
			return INFO_EXIT_USAGE;
	}
	return 0;
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
		return options_refuse("no memory for the addresses of --peer");
	for (peer = strtok_r(list, ", ", &save); peer && !ret;
	     peer = strtok_r(NULL, ", ", &save), n++)
		if (!info_address(peer, bytes)) {
			fprintf(stderr, "te_info: --peer=%s: no IP address\n",
				peer);
			ret = INFO_EXIT_USAGE;
		}
	free(list);
	return ret || n ? ret : options_refuse("--peer names no address");
}

/* What is named has to be there: a slip is no finding. */
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
		return options_refuse("--protocol takes auto, tcp, rdma, shm "
				      "or local");
	if (opts->svg && (opts->json || opts->check || opts->segment))
		return options_refuse("--svg goes alone");
	if (opts->watch && (!opts->segment || opts->check))
		return options_refuse("--watch goes with --segment, without "
				      "--check");
	if (!opts->watch && (opts->interval || opts->count))
		return options_refuse("--interval and --count go with "
				      "--watch");
	if (opts->topology && !opts->svg)
		return options_refuse("--topology goes with --svg");
	if (!opts->check && (opts->peers || opts->pid || opts->no_probe))
		return options_refuse("--peer, --pid and --no_probe go with "
				      "--check");
	return options_check_there(opts);
}

int info_parse(int argc, char **argv, struct info_opts *opts)
{
	memset(opts, 0, sizeof(*opts));
	opts->metadata_server = "P2PHANDSHAKE";
	opts->protocol = "auto";
	opts->root = "";
	opts->expected_peers = 64;
	opts->probe_time = 0.2;
	if (options_read(argc, argv, opts))
		return INFO_EXIT_USAGE;
	if (opts->help || opts->version || opts->child)
		return 0;
	return options_check(opts);
}
