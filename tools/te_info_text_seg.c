/* SPDX-License-Identifier: BSD-2-Clause */
/* Prints parts of the report as text: the segment, the probes and the
 * findings. */
#include <stdio.h>
#include <string.h>

#include "tools/te_info.h"
#include "util/text.h"

#define SEG_PARTS 16		/* most buffers or files that are printed;
				 * --json lists up to 1000 */

static const cJSON *seg_item(const cJSON *o, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(o, key);
}

static void seg_owner(const cJSON *seg)
{
	const cJSON *owner = seg_item(seg, "owner");
	const char *at = info_get(owner, "control_channel");

	if (!owner)
		return;
	printf("  owner         %s", *at ? at : "unknown");
	if (cJSON_IsTrue(seg_item(owner, "answers")))
		printf(", answers in %.0f us", info_get_num(owner, "answer_us"));
	else if (*at)
		printf(", %s", cJSON_IsTrue(seg_item(owner, "refuses")) ?
			       "refuses access" : "does not answer");
	putchar('\n');
}

static void seg_devices(const cJSON *seg)
{
	const cJSON *d;

	cJSON_ArrayForEach(d, seg_item(seg, "devices"))
		printf("  rail          %-16s %-15s %s\n", info_get(d, "name"),
		       info_get(d, "provider"), info_get(d, "address"));
}

static void seg_buffer(const cJSON *b, const char *size)
{
	const cJSON *by = seg_item(b, "reached_by");
	const cJSON *label = seg_item(b, "label");

	printf("                %-18s %-10s %s%s%s%s%s\n",
	       info_get(b, "address"), size, info_get(b, "location"),
	       by ? ", reached by " : "",
	       by ? info_get(b, "reached_by") : "", label ? ", label " : "",
	       label ? info_get(b, "label") : "");
}

static void seg_file(const cJSON *f, const char *size)
{
	const cJSON *m;

	printf("                %-10s %s\n", size, info_get(f, "path"));
	cJSON_ArrayForEach(m, seg_item(f, "mounts"))
		printf("                           at %s: %s\n",
		       info_get(m, "server"), info_get(m, "path"));
}

/* Prints the number of buffers or files, and the first SEG_PARTS of them. kind:
 * "buffer" or "file". */
static void seg_parts(const cJSON *seg, const char *kind,
		      void (*show)(const cJSON *part, const char *size))
{
	char list[16], count[16], bytes[16], size[32];
	const cJSON *part;
	int n = 0;

	snprintf(list, sizeof(list), "%ss", kind);
	snprintf(count, sizeof(count), "%s_count", kind);
	snprintf(bytes, sizeof(bytes), "%s_bytes", kind);
	printf("  %-13s %.0f, %s\n", list, info_get_num(seg, count),
	       info_bytes_text(info_get_num(seg, bytes), size, sizeof(size)));
	cJSON_ArrayForEach(part, seg_item(seg, list)) {
		if (n++ == SEG_PARTS) {
			printf("                and %.0f more\n",
			       info_get_num(seg, count) - SEG_PARTS);
			break;
		}
		show(part, info_bytes_text(info_get_num(part, "bytes"), size,
					   sizeof(size)));
	}
}

static void seg_pairs(const cJSON *seg)
{
	const cJSON *p, *list = seg_item(seg, "pairs");

	if (!cJSON_GetArraySize(list))
		return;
	printf("\n  %-16s %-16s %-10s %-12s %s\n", "FROM RAIL", "TO RAIL",
	       "ANSWERS", "CONNECT", "LATENCY");
	cJSON_ArrayForEach(p, list) {
		printf("  %-16s %-16s ", info_get(p, "local"),
		       info_get(p, "remote"));
		if (cJSON_IsTrue(seg_item(p, "answers")))
			printf("%-10s %-7.0f us   %.1f us\n", "yes",
			       info_get_num(p, "connect_us"),
			       info_get_num(p, "latency_us"));
		else
			printf("%-10s %s\n", "no", info_get(p, "error"));
	}
}

void info_print_segment(const struct info *info)
{
	const cJSON *seg = seg_item(info->doc, "segment");

	if (!seg)
		return;
	info_heading("Segment %s", info_get(seg, "name"));
	if (!*info_get(seg, "protocol"))
		return;
	printf("  transport     %s\n", info_get(seg, "protocol"));
	if (seg_item(seg, "files")) {
		seg_parts(seg, "file", seg_file);
		return;
	}
	printf("  incarnation   %s\n", info_get(seg, "incarnation"));
	seg_owner(seg);
	seg_devices(seg);
	seg_parts(seg, "buffer", seg_buffer);
	seg_pairs(seg);
}

void info_print_probes(const struct info *info)
{
	const cJSON *p, *list = seg_item(info->doc, "probes");
	char rate[32], moved[32];

	if (!cJSON_GetArraySize(list))
		return;
	info_heading("A transfer over each rail, inside this host");
	printf("  %-16s %-9s %-8s %-11s %-11s %s\n", "RAIL", "RESULT",
	       "LATENCY", "RATE", "MOVED", "TIME");
	cJSON_ArrayForEach(p, list) {
		bool ok = cJSON_IsTrue(seg_item(p, "ok")) &&
			  cJSON_IsTrue(seg_item(p, "verified"));

		printf("  %-16s %-9s ", info_get(p, "rail"),
		       ok ? "verified" : "failed");
		if (ok)
			printf("%5.0f us %-11s %-11s %.2f s\n",
			       info_get_num(p, "latency_us"),
			       info_rate_text(info_get_num(p,
						"bytes_per_second"),
					      rate, sizeof(rate)),
			       info_bytes_text(info_get_num(p, "bytes"),
					       moved, sizeof(moved)),
			       info_get_num(p, "seconds"));
		else
			printf("%s\n", info_get(p, "error"));
	}
}

static void seg_finding(const cJSON *f)
{
	const char *what = info_get(f, "what");

	printf("  %-4s  %-15s %s: %s\n", info_get(f, "grade"),
	       info_get(f, "id"), info_get(f, "subject"), what);
	if (*info_get(f, "why"))
		printf("        %-15s why: %s\n", "", info_get(f, "why"));
	if (*info_get(f, "cure"))
		printf("        %-15s cure: %s\n", "", info_get(f, "cure"));
}

/* Prints the findings, the worst first. */
void info_print_findings(const struct info *info)
{
	static const enum info_grade order[] = { INFO_BAD, INFO_WARN,
						 INFO_NOTE, INFO_OK };
	const cJSON *f;
	int count[4] = { 0, 0, 0, 0 };
	size_t i;

	if (cJSON_GetArraySize(info->findings))
		info_heading("Findings");
	for (i = 0; i < sizeof(order) / sizeof(*order); i++)
		cJSON_ArrayForEach(f, info->findings) {
			if (strcmp(info_get(f, "grade"),
				   info_grade_name(order[i])))
				continue;
			count[order[i]]++;
			seg_finding(f);
		}
	if (cJSON_GetArraySize(info->unseen)) {
		info_heading("Not looked at");
		cJSON_ArrayForEach(f, info->unseen)
			printf("  %-15s %s\n", info_get(f, "id"),
			       info_get(f, "reason"));
	}
	if (info->opts.check)
		printf("\n%d bad, %d warning%s, %d note%s, %d ok\n",
		       count[INFO_BAD], count[INFO_WARN],
		       tei_plural((uint64_t)count[INFO_WARN]), count[INFO_NOTE],
		       tei_plural((uint64_t)count[INFO_NOTE]), count[INFO_OK]);
}
