/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests each rail with a transfer between two child processes that have only
 * this rail. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_proc.h"
#include "tools/te_info.h"

#define PROBE_MS 20000

struct probe_args {
	char device[128], provider[128], protocol[32], remote[192];
	const char *extra[6];
};

/* Writes the command-line options that make an engine use only this rail. */
static void probe_args(const struct info_rail *r, struct probe_args *a)
{
	bool tcp = !strcmp(r->transport, "tcp");
	int n = 0;

	snprintf(a->protocol, sizeof(a->protocol), "--protocol=%s",
		 r->transport);
	a->extra[n++] = a->protocol;
	if (tcp || !strcmp(r->transport, "rdma")) {
		snprintf(a->device, sizeof(a->device), "--device_name=%s",
			 tcp && *r->host ? r->host : r->name);
		snprintf(a->provider, sizeof(a->provider), "--provider=%s",
			 r->provider);
		a->extra[n++] = a->device;
		a->extra[n++] = a->provider;
	}
	if (*a->remote)
		a->extra[n++] = a->remote;
	a->extra[n] = NULL;
}

static void probe_line(struct info *info, const char *kind, cJSON *value,
		       void *arg)
{
	cJSON *item, *doc = arg;

	(void)info;
	if (!strcmp(kind, "error"))
		info_text(doc, "error", "%s: %s", info_get(value, "call"),
			  info_get(value, "text"));
	else if (!strcmp(kind, "result"))
		while ((item = cJSON_DetachItemFromArray(value, 0)))
			if (!cJSON_AddItemToObject(doc, item->string, item))
				cJSON_Delete(item);
}

/* Runs the transfer over one rail. Fills doc with "ok" and either "error" or
 * the results. */
static void probe_one(struct info *info, const struct info_rail *r, cJSON *doc)
{
	cJSON *log = cJSON_GetObjectItemCaseSensitive(info->doc, "log");
	struct ft_proc *target = malloc(sizeof(*target));
	struct probe_args a = { .remote = "" };
	char why[160] = "out of memory";
	cJSON *hello = NULL;

	probe_args(r, &a);
	if (!target || info_child_start(info, target, "target", a.extra,
					PROBE_MS, &hello, log, why,
					sizeof(why))) {
		info_bool(doc, "ok", false);
		info_text(doc, "error", "the target: %s", why);
		goto out;
	}
	snprintf(a.remote, sizeof(a.remote), "--remote=%s",
		 info_get(hello, "segment"));
	probe_args(r, &a);
	if (info_child_run(info, "initiator", a.extra, PROBE_MS, probe_line,
			   doc, log, why, sizeof(why)))
		info_text(doc, "error", "the initiator: %s", why);
	if (!cJSON_HasObjectItem(doc, "ok"))
		info_bool(doc, "ok", false);
	cJSON_Delete(hello);
	ft_proc_stop(target, 5000);
out:
	free(target);
}

static void probe_judge(struct info *info, const struct info_rail *r,
			const cJSON *doc)
{
	bool ok = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(doc, "ok"));
	bool verified =
		cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(doc, "verified"));
	char rate[32];
	cJSON *f;

	if (ok && verified) {
		info_fine(info, "probe", r->name,
			  "%.0f bytes written, read back and compared; %s, %.0f us for 64 bytes",
			  info_get_num(doc, "verified_bytes"),
			  info_rate_text(info_get_num(doc, "bytes_per_second"),
					 rate, sizeof(rate)),
			  info_get_num(doc, "latency_us"));
		return;
	}
	f = info_find(info, INFO_BAD, "probe", r->name);
	if (ok)
		info_what(f, "byte %.0f differs after it was read back",
			  info_get_num(doc, "verified_bytes"));
	else
		info_what(f, "a transfer over this rail alone failed: %s",
			  *info_get(doc, "error") ? info_get(doc, "error") :
						    "no reason given");
	info_why(f, "an engine uses this rail, and transfers over it fail or corrupt data");
	info_cure(f, "leave it out: list the other rails in MOONRAIL_DEVICES; MC_LOG_LEVEL=debug te_info --check --device_name=%s logs more",
		  r->name);
}

void info_probe_rails(struct info *info)
{
	cJSON *list = info_array(info->doc, "probes"), *doc;

	for (size_t i = 0; i < info->n_rails; i++) {
		doc = info_object(list, NULL);
		info_text(doc, "rail", "%s", info->rails[i].name);
		info_text(doc, "transport", "%s", info->rails[i].transport);
		probe_one(info, &info->rails[i], doc);
		probe_judge(info, &info->rails[i], doc);
	}
}
