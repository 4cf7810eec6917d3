/* SPDX-License-Identifier: BSD-2-Clause */
/* Prints the report as text, from the JSON document that --json prints. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/te_info.h"

/* Formats a number with at most three digits and a unit. Each unit is the
 * previous one multiplied by base. */
static const char *text_scaled(double v, double base, const char *const *units,
			       char *buf, size_t len)
{
	int i = 0;

	while (v >= base && units[i + 1]) {
		v /= base;
		i++;
	}
	snprintf(buf, len, "%.*f %s", v < 10 && i ? 1 : 0, v, units[i]);
	return buf;
}

const char *info_bits_text(double bps, char *buf, size_t len)
{
	static const char *const units[] = { "bit/s", "kbit/s", "Mbit/s",
					     "Gbit/s", "Tbit/s", NULL };

	snprintf(buf, len, "-");
	return bps > 0 ? text_scaled(bps, 1000, units, buf, len) : buf;
}

const char *info_rate_text(double bytes, char *buf, size_t len)
{
	static const char *const units[] = { "B/s", "kB/s", "MB/s", "GB/s",
					     "TB/s", NULL };

	snprintf(buf, len, "-");
	return bytes > 0 ? text_scaled(bytes, 1000, units, buf, len) : buf;
}

const char *info_bytes_text(double bytes, char *buf, size_t len)
{
	static const char *const units[] = { "bytes", "KiB", "MiB", "GiB",
					     "TiB", "PiB", NULL };

	return text_scaled(bytes, 1024, units, buf, len);
}

void info_heading(const char *fmt, ...)
{
	va_list ap;

	putchar('\n');
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static const cJSON *text_list(const struct info *info, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(info->doc, key);
}

static const char *text_or(const char *text, const char *other)
{
	return *text ? text : other;
}

static void text_head(const struct info *info)
{
	const cJSON *lib = text_list(info, "libfabric");
	char memory[32];

	printf("moonrail %s, libfabric %s, on %s: %s %s, %.0f CPUs, %s\n",
	       info_get(info->doc, "version"),
	       text_or(info_get(lib, "version"), "?"),
	       text_or(info_get(info->doc, "host"), "?"),
	       info_get(info->doc, "kernel"), info_get(info->doc, "machine"),
	       info_get_num(info->doc, "cpus"),
	       info_bytes_text(info_get_num(info->doc, "memory_bytes"),
			       memory, sizeof(memory)));
}

static void text_node(const cJSON *o, char *buf, size_t len)
{
	const cJSON *n = cJSON_GetObjectItemCaseSensitive(o, "numa_node");

	if (cJSON_IsNumber(n) && n->valuedouble >= 0)
		snprintf(buf, len, "%.0f", n->valuedouble);
	else
		snprintf(buf, len, "-");
}

static void text_rails(const struct info *info)
{
	const cJSON *o;
	char node[16], speed[32];

	info_heading("Rails");
	if (!info->n_rails) {
		puts("  none");
		return;
	}
	printf("  %-16s %-9s %-15s %-8s %-4s %-11s %s\n", "NAME", "TRANSPORT",
	       "PROVIDER", "STATE", "NUMA", "SPEED", "ADDRESS");
	cJSON_ArrayForEach(o, text_list(info, "rails")) {
		text_node(o, node, sizeof(node));
		printf("  %-16s %-9s %-15s %-8s %-4s %-11s %s\n",
		       info_get(o, "name"), info_get(o, "transport"),
		       info_get(o, "provider"), info_get(o, "state"), node,
		       info_bits_text(info_get_num(o, "speed_bps"), speed,
				      sizeof(speed)),
		       text_or(info_get(o, "address"), "-"));
	}
}

/* Prints at most max strings of the array, each after a blank. Returns the
 * number of strings that were not printed. */
static int text_words(const cJSON *list, int max)
{
	const cJSON *o;
	int n = 0;

	cJSON_ArrayForEach(o, list)
		if (cJSON_IsString(o) && n++ < max)
			printf(" %s", o->valuestring);
	return n > max ? n - max : 0;
}

static void text_matrix(const struct info *info)
{
	const cJSON *row, *matrix = text_list(info, "priority_matrix");

	if (!matrix || !matrix->child)
		return;
	info_heading("Topology: which rails a location prefers");
	cJSON_ArrayForEach(row, matrix) {
		printf("  %-10s near:", row->string);
		if (!cJSON_GetArraySize(cJSON_GetArrayItem(row, 0)))
			printf(" -");
		text_words(cJSON_GetArrayItem(row, 0), 1000);
		if (cJSON_GetArraySize(cJSON_GetArrayItem(row, 1)))
			printf("  other:");
		text_words(cJSON_GetArrayItem(row, 1), 1000);
		putchar('\n');
	}
}

static void text_providers(const struct info *info)
{
	const cJSON *o, *fabric = cJSON_GetObjectItemCaseSensitive(info->doc,
								   "libfabric");
	char inject[32];

	info_heading("Providers");
	printf("  %-16s %-9s %-6s %-9s %-7s %s\n", "NAME", "VERSION",
	       "TYPE", "INJECT", "DOMAINS", "CAPABILITIES");
	cJSON_ArrayForEach(o, text_list(info, "providers")) {
		printf("  %-16s %-9s %-6s %-9s %-7d", info_get(o, "name"),
		       info_get(o, "version"), info_get(o, "endpoint"),
		       info_bytes_text(info_get_num(o, "inject_bytes"),
				       inject, sizeof(inject)),
		       cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(
			       o, "domains")));
		text_words(cJSON_GetObjectItemCaseSensitive(o, "capabilities"),
			   32);
		putchar('\n');
	}
	if (fabric)
		printf("  GPU memory: through %s\n",
		       info_get(fabric, "gpu_memory"));
}

#define TEXT_INTERFACES 24	/* most interfaces that are printed; --json
				 * lists all */

static void text_interfaces(const struct info *info)
{
	const cJSON *o, *list = text_list(info, "interfaces");
	int shown = 0, more = cJSON_GetArraySize(list) - TEXT_INTERFACES;
	char speed[32];

	info_heading("Interfaces");
	printf("  %-16s %-9s %-8s %-6s %-11s %-12s %s\n", "NAME", "KIND",
	       "STATE", "MTU", "SPEED", "DRIVER", "ADDRESSES");
	cJSON_ArrayForEach(o, list) {
		if (shown++ == TEXT_INTERFACES)
			break;
		printf("  %-16s %-9s %-8s %-6.0f %-11s %-12s",
		       info_get(o, "name"), info_get(o, "kind"),
		       !cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(
			       o, "up")) ? "down" :
		       cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(
			       o, "running")) ? "up" : "no link",
		       info_get_num(o, "mtu"),
		       info_bits_text(info_get_num(o, "speed_bps"), speed,
				      sizeof(speed)),
		       text_or(info_get(o, "driver"), "-"));
		text_words(cJSON_GetObjectItemCaseSensitive(o, "addresses"),
			   4);
		putchar('\n');
	}
	if (more > 0)
		printf("  and %d more; --json has all\n", more);
}

static void text_rdma(const struct info *info)
{
	const cJSON *d, *p;
	char speed[32];

	if (!cJSON_GetArraySize(text_list(info, "rdma_devices")))
		return;
	info_heading("RDMA ports");
	cJSON_ArrayForEach(d, text_list(info, "rdma_devices"))
		cJSON_ArrayForEach(p, cJSON_GetObjectItemCaseSensitive(
					      d, "ports"))
			printf("  %-16s port %.0f  %-14s %-11s %-11s MTU %-5.0f %d GIDs\n",
			       info_get(d, "name"), info_get_num(p, "port"),
			       info_get(p, "state"), info_get(p, "link_layer"),
			       info_bits_text(info_get_num(p, "speed_bps"),
					      speed, sizeof(speed)),
			       info_get_num(p, "mtu"),
			       cJSON_GetArraySize(
				       cJSON_GetObjectItemCaseSensitive(
					       p, "gids")));
}

static void text_settings(const struct info *info)
{
	const cJSON *o, *list = text_list(info, "settings");

	if (!cJSON_GetArraySize(list))
		return;
	info_heading("Settings in force");
	cJSON_ArrayForEach(o, list)
		printf("  %-30s %-20s %s\n", info_get(o, "name"),
		       text_or(info_get(o, "value"), "-"),
		       info_get(o, "source"));
}

static void text_log(const struct info *info)
{
	const cJSON *o, *list = text_list(info, "log");

	if (!cJSON_GetArraySize(list))
		return;
	info_heading("Log of the engines of this report");
	cJSON_ArrayForEach(o, list)
		if (cJSON_IsString(o))
			printf("  %s\n", o->valuestring);
}

void info_print(const struct info *info)
{
	text_head(info);
	if (!info->opts.check && !info->opts.segment) {
		text_rails(info);
		text_matrix(info);
		text_interfaces(info);
		text_rdma(info);
		text_providers(info);
		text_settings(info);
	} else {
		text_rails(info);
	}
	info_print_segment(info);
	info_print_probes(info);
	info_print_findings(info);
	text_log(info);
}
