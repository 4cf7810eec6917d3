/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists the rails of an engine on this machine, with their devices and NUMA
 * nodes. */
#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/te_info.h"
#include "topo/tei_topo.h"

#define RAILS_MS 30000

static void rails_add(struct info *info, cJSON *o)
{
	struct info_rail *r;
	const char *address;
	uint8_t bin[16];
	char *colon;

	if (info->n_rails == INFO_RAILS)
		return;
	r = &info->rails[info->n_rails++];
	snprintf(r->name, sizeof(r->name), "%s", info_get(o, "name"));
	snprintf(r->provider, sizeof(r->provider), "%s",
		 info_get(o, "provider"));
	snprintf(r->transport, sizeof(r->transport), "%s",
		 info_get(o, "transport"));
	address = info_get(o, "address");
	/* the address has the form "10.0.0.1:4" or "[fd00::1]:4" */
	snprintf(r->host, sizeof(r->host), "%.63s",
		 address + (*address == '['));
	colon = *address == '[' ? strchr(r->host, ']') :
				     strrchr(r->host, ':');
	if (colon)
		*colon = '\0';
	if (!colon || (inet_pton(AF_INET, r->host, bin) != 1 &&
		       inet_pton(AF_INET6, r->host, bin) != 1))
		*r->host = '\0';
	/* if the rail's name is an address with a zone, uses this address */
	if (*r->host && strchr(r->name, '%'))
		snprintf(r->host, sizeof(r->host), "%.63s",
			 info_get(o, "name"));
	r->doc = o;
}

static void rails_line(struct info *info, const char *kind, cJSON *value,
		       void *arg)
{
	static const struct {
		const char *kind, *key;
		bool list;
	} rows[] = {
		{ "engine", "engine", false },
		{ "error", "engine_error", false },
		{ "fabric", "libfabric", false },
		{ "library", "libraries", true },
		{ "matrix", "priority_matrix", false },
		{ "provider", "providers", true },
		{ "rail", "rails", true },
		{ "setting", "settings", true },
	};
	cJSON *copy = cJSON_Duplicate(value, 1), *list;

	(void)arg;
	for (size_t i = 0; copy && i < sizeof(rows) / sizeof(*rows); i++) {
		if (strcmp(rows[i].kind, kind))
			continue;
		list = cJSON_GetObjectItemCaseSensitive(info->doc, rows[i].key);
		if (rows[i].list && cJSON_AddItemToArray(list, copy)) {
			if (!strcmp(kind, "rail"))
				rails_add(info, copy);
			return;
		}
		if (!rows[i].list && !list &&
		    cJSON_AddItemToObject(info->doc, rows[i].key, copy))
			return;
	}
	cJSON_Delete(copy);
}

/* Adds the interface, the NUMA node, the PCI address and the speed of each rail
 * to the report. */
static void rails_place(struct info *info)
{
	struct tei_topo_nic_desc descs[INFO_RAILS];
	const struct tei_topo_nic *nic;
	const struct info_net *net;
	struct tei_topo *topo;
	size_t n = 0, i;
	cJSON *o;

	memset(descs, 0, sizeof(descs));
	for (i = 0; i < info->n_rails; i++) {
		struct info_rail *r = &info->rails[i];

		net = info_rail_net(info, r);
		if (net)
			info->nets[net - info->nets].rail = true;
		snprintf(r->device, sizeof(r->device), "%s",
			 net ? net->name : r->name);
		descs[n].name = r->name;
		descs[n++].device = r->device;
	}
	if (!n || tei_topo_discover(descs, n, NULL, &topo, NULL))
		return;
	for (i = 0; i < n; i++) {
		nic = tei_topo_nic(topo, i);
		o = info->rails[i].doc;
		info_text(o, "device", "%s", info->rails[i].device);
		if (nic->numa_node >= 0)
			info_num(o, "numa_node", nic->numa_node);
		if (*nic->pci)
			info_text(o, "pci", "%s", nic->pci);
		if (nic->speed)
			info_num(o, "speed_bps", (double)nic->speed);
	}
	tei_topo_free(topo);
}

static bool rails_any_address(const struct info *info)
{
	for (size_t i = 0; i < info->n_nets; i++)
		if (info->nets[i].family && (info->nets[i].flags & IFF_UP))
			return true;
	return false;
}

static void rails_error(struct info *info, const char *why)
{
	const cJSON *err;
	cJSON *f, *e;

	err = cJSON_GetObjectItemCaseSensitive(info->doc, "engine_error");
	if (!err) {
		e = info_object(info->doc, "engine_error");
		info_text(e, "text", "%s", why);
		err = e;
	}
	f = info_find(info, INFO_BAD, "engine", "engine");
	info_what(f, "no engine could be created: %s", info_get(err, "text"));
	info_why(f, "no program can transfer anything here");
	info_cure(f, "%s", !rails_any_address(info) ?
		  "no interface is up and has an address; ip link set lo up is enough for tests on one host" :
		  *info_get(err, "hint") ? info_get(err, "hint") :
		  "MC_LOG_LEVEL=debug te_info logs more");
}

/* Runs an engine in a child. Returns 0, or -1 with the reason in the report or
 * in why. */
static int rails_engine(struct info *info, const char *const *extra, char *why,
			size_t len)
{
	cJSON *log = cJSON_GetObjectItemCaseSensitive(info->doc, "log");
	int ret;

	snprintf(why, len, "the child process ended without stating a reason");
	ret = info_child_run(info, "engine", extra, RAILS_MS, rails_line, NULL,
			     log, why, len);
	return ret || !cJSON_HasObjectItem(info->doc, "engine") ? -1 : 0;
}

static void rails_empty(struct info *info)
{
	static const char *const lists[] = { "rails", "providers", "settings",
					     "libraries" };

	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
		cJSON_DeleteItemFromObjectCaseSensitive(info->doc, lists[i]);
		info_array(info->doc, lists[i]);
	}
	cJSON_DeleteItemFromObjectCaseSensitive(info->doc, "libfabric");
	info->n_rails = 0;
}

/* Reports that the metadata server cannot be used. Then runs an engine without
 * the server, because the rails do not depend on it. */
static int rails_without_server(struct info *info, char *why, size_t len)
{
	static const char *const extra[] = { "--metadata_server=P2PHANDSHAKE",
					     NULL };
	cJSON *err = cJSON_DetachItemFromObjectCaseSensitive(info->doc,
							     "engine_error");

	cJSON *f;

	if (!err || !cJSON_AddItemToObject(info->doc, "metadata_error", err))
		return -1;
	f = info_find(info, INFO_BAD, "metadata", info->opts.metadata_server);
	info_what(f, "an engine cannot use this server: %s", info_get(err, "text"));
	info_why(f, "no segment can be published or found");
	info_cure(f, "%s", *info_get(err, "hint") ? info_get(err, "hint") :
		  "start the servers, or correct --metadata_server; if they accept connections, check chroot, authentication and their logs");
	rails_empty(info);
	return rails_engine(info, extra, why, len);
}

void info_look_rails(struct info *info)
{
	bool p2p = !strcmp(info->opts.metadata_server, "P2PHANDSHAKE");
	char why[160];
	int ret;

	info_array(info->doc, "log");
	rails_empty(info);
	ret = rails_engine(info, NULL, why, sizeof(why));
	if (ret && !p2p)
		ret = rails_without_server(info, why, sizeof(why));
	if (ret)
		rails_error(info, why);
	rails_place(info);
}
