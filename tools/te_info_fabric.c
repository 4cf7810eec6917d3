/* SPDX-License-Identifier: BSD-2-Clause */
/* Child process that lists the providers of libfabric. It prints one line for
 * each combination of provider and endpoint type. */
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/te_info.h"

#define FABRIC_API FI_VERSION(1, 17)

static const struct {
	uint64_t bit;
	const char *name;
} fabric_caps[] = {
	{ FI_MSG, "msg" },
	{ FI_TAGGED, "tagged" },
	{ FI_RMA, "rma" },
	{ FI_ATOMIC, "atomic" },
	{ FI_HMEM, "hmem" },
	{ FI_RMA_EVENT, "rma_event" },
	{ FI_MULTI_RECV, "multi_recv" },
	{ FI_REMOTE_COMM, "remote_comm" },
	{ FI_LOCAL_COMM, "local_comm" },
};

static const char *fabric_ep_name(enum fi_ep_type type)
{
	switch (type) {
	case FI_EP_MSG: return "msg";
	case FI_EP_DGRAM: return "dgram";
	case FI_EP_RDM: return "rdm";
	default: return "unspec";
	}
}

/* Adds the attributes of a domain's NIC. */
static void fabric_nic(cJSON *domain, const struct fi_info *i)
{
	const struct fid_nic *nic = i->nic;

	if (nic && nic->device_attr && nic->device_attr->name)
		info_text(domain, "device", "%s", nic->device_attr->name);
	if (nic && nic->device_attr && nic->device_attr->firmware)
		info_text(domain, "firmware", "%s",
			  nic->device_attr->firmware);
	if (nic && nic->link_attr && nic->link_attr->speed)
		info_num(domain, "speed_bps", (double)nic->link_attr->speed);
	if (nic && nic->bus_attr && nic->bus_attr->bus_type == FI_BUS_PCI)
		info_text(domain, "pci", "%04x:%02x:%02x.%x",
			  nic->bus_attr->attr.pci.domain_id,
			  nic->bus_attr->attr.pci.bus_id,
			  nic->bus_attr->attr.pci.device_id,
			  nic->bus_attr->attr.pci.function_id);
}

static cJSON *fabric_new(const struct fi_info *i)
{
	cJSON *o = cJSON_CreateObject(), *caps;
	uint32_t v = i->fabric_attr->prov_version;

	info_text(o, "name", "%s", i->fabric_attr->prov_name);
	info_text(o, "version", "%u.%u", FI_MAJOR(v), FI_MINOR(v));
	info_text(o, "endpoint", "%s", fabric_ep_name(i->ep_attr->type));
	info_num(o, "inject_bytes", (double)i->tx_attr->inject_size);
	info_num(o, "queue", (double)i->tx_attr->size);
	info_num(o, "max_msg_bytes", (double)i->ep_attr->max_msg_size);
	info_bool(o, "auto_progress",
		  i->domain_attr->data_progress == FI_PROGRESS_AUTO);
	caps = info_array(o, "capabilities");
	for (size_t c = 0; c < sizeof(fabric_caps) / sizeof(*fabric_caps); c++)
		if (i->caps & fabric_caps[c].bit)
			info_text(caps, NULL, "%s", fabric_caps[c].name);
	info_array(o, "domains");
	return o;
}

/* Returns the object in the list for the provider and endpoint type of i.
 * Creates the object if the list does not have it. */
static cJSON *fabric_find(cJSON *list, const struct fi_info *i)
{
	cJSON *o;

	cJSON_ArrayForEach(o, list)
		if (!strcmp(info_get(o, "name"), i->fabric_attr->prov_name) &&
		    !strcmp(info_get(o, "endpoint"),
			    fabric_ep_name(i->ep_attr->type)))
			return o;
	o = fabric_new(i);
	if (!cJSON_AddItemToArray(list, o)) {
		cJSON_Delete(o);
		return NULL;
	}
	return o;
}

static void fabric_add(cJSON *list, const struct fi_info *i)
{
	cJSON *o, *domains, *d;

	if (!i->fabric_attr || !i->fabric_attr->prov_name || !i->ep_attr ||
	    !i->domain_attr || !i->domain_attr->name || !i->tx_attr)
		return;
	o = fabric_find(list, i);
	domains = cJSON_GetObjectItemCaseSensitive(o, "domains");
	cJSON_ArrayForEach(d, domains)
		if (!strcmp(info_get(d, "name"), i->domain_attr->name))
			return;
	/* limits the report: a host with hundreds of interfaces has hundreds of
	 * domains */
	if (cJSON_GetArraySize(domains) >= 256)
		return;
	d = info_object(domains, NULL);
	info_text(d, "name", "%s", i->domain_attr->name);
	if (i->fabric_attr->name)
		info_text(d, "fabric", "%s", i->fabric_attr->name);
	fabric_nic(d, i);
}

#define FABRIC_MR_ALL	(FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR | \
			 FI_MR_ALLOCATED | FI_MR_PROV_KEY | \
			 FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT | \
			 FI_MR_ENDPOINT | FI_MR_HMEM | FI_MR_COLLECTIVE)

static bool fabric_has(const cJSON *caps, const char *name)
{
	const cJSON *o;

	cJSON_ArrayForEach(o, caps)
		if (cJSON_IsString(o) && !strcmp(o->valuestring, name))
			return true;
	return false;
}

/* Adds "hmem" to the capabilities of each provider in the list that supports
 * device memory. Calls fi_getinfo once more with FI_HMEM in the hints, because
 * libfabric reports FI_HMEM only then. */
static void fabric_hmem(cJSON *list)
{
	struct fi_info *hints = fi_allocinfo(), *found = NULL, *i;
	cJSON *o, *caps;

	if (!hints)
		return;
	hints->caps = FI_HMEM;
	hints->mode = ~UINT64_C(0);
	hints->domain_attr->mr_mode = FABRIC_MR_ALL;
	if (fi_getinfo(FABRIC_API, NULL, NULL, 0, hints, &found))
		found = NULL;
	for (i = found; i; i = i->next) {
		if (!i->fabric_attr || !i->fabric_attr->prov_name ||
		    !i->ep_attr || !i->tx_attr || !i->domain_attr ||
		    !i->domain_attr->name)
			continue;
		o = fabric_find(list, i);
		caps = cJSON_GetObjectItemCaseSensitive(o, "capabilities");
		if (!fabric_has(caps, "hmem"))
			info_text(caps, NULL, "hmem");
	}
	fi_freeinfo(found);
	fi_freeinfo(hints);
}

/* Adds an environment variable of libfabric: whether this libfabric knows it,
 * and its value. */
static void fabric_variable(cJSON *o, const char *key, const char *name)
{
	const char *set = getenv(name);
	struct fi_param *params = NULL;
	char known_key[64];
	int n = 0, i;
	bool known = false;

	if (fi_getparams(&params, &n))
		n = 0;
	for (i = 0; i < n; i++)
		known |= !strcasecmp(params[i].name, name);
	if (params)
		fi_freeparams(params);
	snprintf(known_key, sizeof(known_key), "%s_known", key);
	info_bool(o, known_key, known);
	info_text(o, key, "%s", set ? set : "");
}

void info_fabric_say(const struct info_opts *opts)
{
	struct fi_info *list = NULL, *i;
	cJSON *found = cJSON_CreateArray(), *o = cJSON_CreateObject();
	int ret;

	(void)opts;
	ret = fi_getinfo(FABRIC_API, NULL, NULL, 0, NULL, &list);
	for (i = ret ? NULL : list; i; i = i->next)
		fabric_add(found, i);
	fi_freeinfo(list);
	fabric_hmem(found);
	info_text(o, "version", "%s", te_fabric_version());
	fabric_variable(o, "av_remove_cleanup", "FI_AV_REMOVE_CLEANUP");
	fabric_variable(o, "cm_progress_interval",
			"FI_OFI_RXM_CM_PROGRESS_INTERVAL");
	fabric_variable(o, "msg_rx_size", "FI_OFI_RXM_MSG_RX_SIZE");
	/* a provider may claim to support GPU memory that its devices do not
	 * support; the engine then logs this for each region */
	info_text(o, "gpu_memory", "pinned host memory, unless every rail supports GPU memory directly (hmem)");
	if (ret)
		info_text(o, "error", "fi_getinfo: %s", fi_strerror(-ret));
	info_say("fabric", o);
	while ((o = cJSON_DetachItemFromArray(found, 0)))
		info_say("provider", o);
	cJSON_Delete(found);
}
