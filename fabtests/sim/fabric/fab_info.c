/* SPDX-License-Identifier: BSD-2-Clause */
/* The provider: fi_getinfo, fabrics and domains. */

#include <arpa/inet.h>
#include <rdma/providers/fi_prov.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

#define INFO_CAPS                                                             \
	(FI_MSG | FI_TAGGED | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ |  \
	 FI_REMOTE_WRITE | FI_SEND | FI_RECV | FI_RMA_EVENT | FI_LOCAL_COMM | \
	 FI_REMOTE_COMM)
#define INFO_PROTOCOL UINT32_C(0x80000051) /* protocol number of this provider,
					    * in place of a FI_PROTO_… */

/* --- fi_getinfo --- */

static void info_fill_queues(struct fi_info *info, const struct fi_info *hints)
{
	const struct sim_net_conf *conf = &fab_net->conf;

	info->tx_attr->caps = info->caps & (INFO_CAPS & ~(uint64_t)FI_RECV);
	info->tx_attr->op_flags =
		hints && hints->tx_attr ? hints->tx_attr->op_flags : 0;
	info->tx_attr->msg_order = conf->msg_order;
	info->tx_attr->inject_size = conf->inject_size;
	info->tx_attr->size = conf->tx_size;
	info->tx_attr->iov_limit = conf->iov_limit;
	info->tx_attr->rma_iov_limit = conf->rma_iov_limit;
	info->rx_attr->caps =
		info->caps & (FI_MSG | FI_TAGGED | FI_RMA | FI_REMOTE_READ |
			      FI_REMOTE_WRITE | FI_RECV);
	info->rx_attr->msg_order = conf->msg_order;
	info->rx_attr->size = conf->rx_size;
	info->rx_attr->iov_limit = conf->iov_limit;
	info->ep_attr->type = FI_EP_RDM;
	info->ep_attr->protocol = INFO_PROTOCOL;
	info->ep_attr->protocol_version = 1;
	info->ep_attr->max_msg_size = conf->max_msg_size;
	info->ep_attr->tx_ctx_cnt = 1;
	info->ep_attr->rx_ctx_cnt = 1;
}

static void info_fill_domain(struct fi_info *info, uint32_t nic)
{
	enum fi_progress progress = fab_net->conf.auto_progress
					    ? FI_PROGRESS_AUTO
					    : FI_PROGRESS_MANUAL;
	struct fi_domain_attr *d = info->domain_attr;
	char name[16];

	snprintf(name, sizeof(name), "sim%u", nic);
	d->name = strdup(name);
	d->threading = FI_THREAD_SAFE;
	d->control_progress = progress;
	d->data_progress = progress;
	d->resource_mgmt = FI_RM_ENABLED;
	d->av_type = FI_AV_TABLE;
	d->mr_mode = (int)fab_net->conf.mr_mode;
	d->mr_key_size = 8;
	d->cq_data_size = 8;
	d->cq_cnt = 65536;
	d->ep_cnt = 65536;
	d->tx_ctx_cnt = 65536;
	d->rx_ctx_cnt = 65536;
	d->max_ep_tx_ctx = 1;
	d->max_ep_rx_ctx = 1;
	d->cntr_cnt = 65536;
	d->mr_iov_limit = 1;
	d->caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
	d->mr_cnt = fab_net->conf.mrs ? fab_net->conf.mrs : 65536;
}

static struct fi_info *info_make(const struct fi_info *hints, uint32_t host,
				 uint32_t nic)
{
	struct fab_addr addr = { .at = { host, nic } };
	struct fi_info *info = fi_allocinfo();

	if (!info)
		sim_fail("network: no memory");
	info->caps = hints && hints->caps
			     ? hints->caps | FI_LOCAL_COMM | FI_REMOTE_COMM
			     : INFO_CAPS;
	info->addr_format = fab_net->conf.ip ? FI_SOCKADDR_IN : FI_ADDR_STR;
	info->src_addr = fab_alloc(FAB_ADDR_MAX);
	info->src_addrlen = fab_addr_write(&addr, info->src_addr);
	info_fill_queues(info, hints);
	info_fill_domain(info, nic);
	info->fabric_attr->name = strdup("sim");
	info->fabric_attr->prov_version = FI_VERSION(1, 0);
	info->fabric_attr->api_version = fi_version();
	return info;
}

/* Returns true if the provider supports what the hints request. */
static bool info_fits(const struct fi_info *hints)
{
	const uint64_t modes = fab_net->conf.mr_mode;

	if (!hints)
		return true;
	if (hints->caps & ~INFO_CAPS)
		return false;
	if (hints->ep_attr && hints->ep_attr->type != FI_EP_UNSPEC &&
	    hints->ep_attr->type != FI_EP_RDM)
		return false;
	if (hints->addr_format != FI_FORMAT_UNSPEC &&
	    hints->addr_format != FI_SOCKADDR &&
	    hints->addr_format !=
		    (fab_net->conf.ip ? FI_SOCKADDR_IN : FI_ADDR_STR))
		return false;
	return !hints->domain_attr ||
	       !(modes & ~(uint64_t)hints->domain_attr->mr_mode);
}

/* Returns true if neither the hints nor the source address exclude the NIC. */
static bool info_names(const struct fi_info *hints, const struct fab_addr *src,
		       uint32_t host, uint32_t nic)
{
	char name[16];

	snprintf(name, sizeof(name), "sim%u", nic);
	if (src && (src->at.host != host || src->at.nic != nic))
		return false;
	return !hints || !hints->domain_attr || !hints->domain_attr->name ||
	       !strcmp(hints->domain_attr->name, name);
}

/* Reads the source address that the caller requests, in `node` or in the hints.
 * Returns 1 if there is one, 0 if there is none, and -1 if it is not an address
 * of this network. */
static int info_source(const char *node, uint64_t flags,
		       const struct fi_info *hints, struct fab_addr *out)
{
	struct sockaddr_in in = { .sin_family = AF_INET };

	if (node && flags & FI_SOURCE) {
		if (!fab_net->conf.ip)
			return fab_addr_read(node, strlen(node) + 1, out) ? 1
									  : -1;
		if (inet_pton(AF_INET, node, &in.sin_addr) != 1)
			return -1;
		return fab_addr_read(&in, sizeof(in), out) ? 1 : -1;
	}
	if (!hints || !hints->src_addr)
		return 0;
	return fab_addr_read(hints->src_addr, hints->src_addrlen, out) ? 1 : -1;
}

int fab_getinfo(uint32_t version, const char *node, const char *service,
		uint64_t flags, const struct fi_info *hints,
		struct fi_info **out)
{
	struct fi_info *first = NULL, **tail = &first;
	struct fab_addr src;
	uint32_t host, i;
	int named;

	(void)version, (void)service;
	if (!fab_net || !sim_host_current() || !info_fits(hints))
		return -FI_ENODATA;
	host = sim_host_id(sim_host_current());
	named = info_source(node, flags, hints, &src);
	for (i = 0; i < fab_net->nnics && named >= 0; i++) {
		if (!info_names(hints, named ? &src : NULL, host, i))
			continue;
		*tail = info_make(hints, host, i);
		tail = &(*tail)->next;
	}
	if (!first)
		return -FI_ENODATA;
	*out = first;
	return 0;
}

/* --- domains --- */

static struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain),
	.av_open = fab_av_open,
	.cq_open = fab_cq_open,
	.endpoint = fab_ep_open,
	.cntr_open = fab_cntr_open,
};

static void domain_drop(struct fab_obj *obj)
{
	fab_obj_del(obj);
	free(tei_container_of(obj, struct fab_domain, obj));
}

static int domain_close(struct fid *fid)
{
	struct fab_domain *domain =
		tei_container_of(fid, struct fab_domain, fid.fid);

	if (domain->nmrs || domain->neps)
		return -FI_EBUSY;
	domain_drop(&domain->obj);
	return 0;
}

static int domain_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)command, (void)arg;
	return -FI_ENOSYS;
}

static struct fi_ops domain_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = domain_close,
	.control = domain_control,
};

int fab_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		    struct fid_domain **out, void *context)
{
	struct fab_domain *domain;
	struct fab_addr addr;
	int i;

	(void)fabric;
	if (!fab_addr_read(info->src_addr, info->src_addrlen, &addr))
		return -FI_EINVAL;
	domain = fab_alloc(sizeof(*domain));
	domain->fid.fid.fclass = FI_CLASS_DOMAIN;
	domain->fid.fid.context = context;
	domain->fid.fid.ops = &domain_fid_ops;
	domain->fid.ops = &domain_ops;
	domain->fid.mr = &fab_mr_domain_ops;
	domain->nic = fab_nic_get(addr.at);
	for (i = 0; i < FAB_KEYS; i++)
		tei_list_init(&domain->keys[i]);
	fab_obj_add(&domain->obj, FAB_DOMAIN, domain_drop);
	*out = &domain->fid;
	return 0;
}

/* --- fabrics --- */

static int fabric_wait_open(struct fid_fabric *fabric,
			    struct fi_wait_attr *attr, struct fid_wait **out)
{
	(void)fabric, (void)attr, (void)out;
	return -FI_ENOSYS;
}

static struct fi_ops_fabric fabric_ops = {
	.size = sizeof(struct fi_ops_fabric),
	.domain = fab_domain_open,
	.eq_open = fab_eq_open,
	.wait_open = fabric_wait_open,
	.trywait = fab_trywait,
};

static void fabric_drop(struct fab_obj *obj)
{
	fab_obj_del(obj);
	free(tei_container_of(obj, struct fab_fabric, obj));
}

static int fabric_close(struct fid *fid)
{
	fabric_drop(&tei_container_of(fid, struct fab_fabric, fid.fid)->obj);
	return 0;
}

static struct fi_ops fabric_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = fabric_close,
};

static int info_fabric(struct fi_fabric_attr *attr, struct fid_fabric **out,
		       void *context)
{
	struct fab_fabric *fabric;

	(void)attr;
	if (!fab_net)
		return -FI_ENODATA;
	fabric = fab_alloc(sizeof(*fabric));
	fabric->fid.fid.fclass = FI_CLASS_FABRIC;
	fabric->fid.fid.context = context;
	fabric->fid.fid.ops = &fabric_fid_ops;
	fabric->fid.ops = &fabric_ops;
	fab_obj_add(&fabric->obj, FAB_FABRIC, fabric_drop);
	*out = &fabric->fid;
	return 0;
}

/* --- the provider --- */

static void info_cleanup(void)
{
}

static struct fi_provider info_provider = {
	.version = FI_VERSION(1, 0),
	.fi_version = FAB_API,
	.name = "sim",
	.getinfo = fab_getinfo,
	.fabric = info_fabric,
	.cleanup = info_cleanup,
};

struct fi_provider *sim_fabric_provider(void)
{
	/* libfabric ignores a provider whose version is lower than its own */
	if (FI_VERSION_LT(FAB_API, fi_version()))
		info_provider.fi_version = fi_version();
	return &info_provider;
}
