/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens and closes one rail: its fabric, domains, lanes and send buffers. */

#include <rdma/fi_domain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_cache.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_handler.h"
#include "prov/rail/core/rail_info.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_window.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/peer/rail_reverse.h"
#include "prov/rail/rail_dispatch.h"
#include "prov/rail/rail_open.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

/* Bits of mr_mode of which at least one is set if the NIC creates a key or a
 * memory descriptor (fi_mr_desc) for a registration. Without them a
 * registration costs little, so rx and tx lanes have separate domains. */
#define RAIL_COSTLY_MR	(FI_MR_LOCAL | FI_MR_PROV_KEY | FI_MR_RAW | \
			 FI_MR_ENDPOINT | FI_MR_ALLOCATED)

static void rail_read_nic(struct rail *rail)
{
	const struct fid_nic *nic = rail->fab.info->nic;
	const struct fi_pci_attr *pci;

	if (!nic)
		return;
	if (nic->link_attr)
		rail->nic.speed_bps = nic->link_attr->speed;
	if (nic->bus_attr && nic->bus_attr->bus_type == FI_BUS_PCI) {
		pci = &nic->bus_attr->attr.pci;
		snprintf(rail->nic.pci, sizeof(rail->nic.pci),
			 "%04x:%02x:%02x.%x", pci->domain_id, pci->bus_id,
			 pci->device_id, pci->function_id);
	}
}

static int rail_open_domains(struct rail *rail, struct tei_err *err)
{
	int ret;

	ret = fi_fabric(rail->fab.info->fabric_attr, &rail->fab.fabric, NULL);
	if (ret)
		return rail_open_err_fn(rail)(err, TEI_ERR_CONTEXT, "rail",
					      NULL, "%s: fi_fabric: %s",
					      rail->name, fi_strerror(-ret));
	ret = fi_domain(rail->fab.fabric, rail->fab.info, &rail->fab.rx_domain,
			NULL);
	if (ret)
		goto err_domain;
	rail->fab.tx_domain = rail->fab.rx_domain;
	/* a second domain for the tx lanes is opened only if registering memory
	 * twice costs little, and not for GPU memory: posts from GPU memory
	 * carry a memory descriptor (fi_mr_desc), which is valid in one
	 * domain */
	if (!(rail->fab.mr_mode & RAIL_COSTLY_MR) && !rail->caps.hmem) {
		ret = fi_domain(rail->fab.fabric, rail->fab.info,
				&rail->fab.tx_domain, NULL);
		if (ret)
			goto err_domain;
	}
	return 0;
err_domain:
	return rail_open_err_fn(rail)(err, TEI_ERR_CONTEXT, "rail", NULL,
				      "%s: fi_domain: %s", rail->name,
				      fi_strerror(-ret));
}

/* Returns an error if the provider would need local memory to be bound to every
 * tx lane, which is not supported. */
static int rail_check_mode(const struct rail *rail, struct tei_err *err)
{
	const uint64_t both = FI_MR_LOCAL | FI_MR_ENDPOINT;

	if ((rail->fab.mr_mode & both) != both)
		return 0;
	return rail_open_err_fn(rail)(err, TEI_ERR_UNSUPPORTED, "rail", NULL,
				      "%s: %s requires both FI_MR_LOCAL and "
				      "FI_MR_ENDPOINT, which is not supported",
				      rail->name, rail->nic.provider);
}

static int rail_open_tx(struct rail *rail, struct tei_err *err)
{
	size_t size = RAIL_TX_SIZE;
	char hint[TEI_ERR_TEXT];
	int i, ret;

	rail->send.mem = rail_numa_alloc(rail, size);
	if (!rail->send.mem)
		return tei_err_fail(err, TEI_ERR_MEMORY, "rail", NULL,
				    "%s: no memory for send buffers",
				    rail->name);
	if (rail->fab.mr_mode & FI_MR_LOCAL) {
		ret = rail_reg_own(rail, rail->fab.tx_domain, rail->send.mem,
				   size, FI_SEND, &rail->send.mr);
		if (ret) {
			rail_limits_memory(ret, hint, sizeof(hint));
			return rail_open_err_fn(rail)(
				err, TEI_ERR_CONTEXT, "rail",
				*hint ? hint : NULL,
				"%s: fi_mr_reg of send buffers: %s", rail->name,
				fi_strerror(-ret));
		}
	}
	for (i = 0; i < RAIL_TX_MSGS; i++) {
		rail->send.bufs[i].rail = rail;
		rail->send.bufs[i].buf =
			(uint8_t *)rail->send.mem + (size_t)i * RAIL_MSG_MAX;
		tei_list_add_tail(&rail->send.free, &rail->send.bufs[i].link);
	}
	rail->send.left = RAIL_TX_MSGS;
	return 0;
}

static const struct rail_lane_ops open_tx_ops = {
	.received = rail_msg_received,
	.polled = rail_cache_close,
	.feed = rail_sched_pull,
};

/* Functions for rx lanes, contact lanes and the lanes of probes. */
static const struct rail_lane_ops open_rx_ops = {
	.received = rail_msg_received,
};

static void open_init_lane(struct rail_lane *lane, struct rail *rail,
			   bool is_rx, uint16_t index,
			   const struct rail_lane_ops *ops)
{
	rail_lane_init(lane, rail, is_rx, index);
	lane->ops = ops;
}

static int rail_open_lanes(struct rail *rail, struct tei_err *err)
{
	uint32_t i;
	int ret;

	rail->tx_lanes = calloc((size_t)rail->ntx * RAIL_LANE_SLOTS,
				sizeof(*rail->tx_lanes));
	rail->next_tx = calloc(rail->ntx, sizeof(*rail->next_tx));
	rail->cache = calloc(rail->ntx, sizeof(*rail->cache));
	if (!rail->tx_lanes || !rail->next_tx || !rail->cache) {
		free(rail->tx_lanes);
		free(rail->next_tx);
		free(rail->cache);
		rail->tx_lanes = NULL;
		rail->next_tx = NULL;
		rail->cache = NULL;
		return tei_err_fail(err, TEI_ERR_MEMORY, "rail", NULL,
				    "%s: no memory for lanes", rail->name);
	}
	rail_cache_init_all(rail);
	for (i = 0; i < rail->ntx * RAIL_LANE_SLOTS; i++)
		open_init_lane(&rail->tx_lanes[i], rail, false,
			       (uint16_t)(i / RAIL_LANE_SLOTS), &open_tx_ops);
	for (i = 0; i < rail->ntx; i++)
		open_init_lane(&rail->next_tx[i].lane, rail, false, (uint16_t)i,
			       &open_tx_ops);
	/* a tx lane is opened when a peer is contacted over it (rail_use.c) */
	tei_mutex_lock(&rail->rx_lane.lock);
	ret = rail_lane_open(&rail->rx_lane, err);
	tei_mutex_unlock(&rail->rx_lane.lock);
	return ret;
}

static uint64_t rail_max_slice(const struct rail *rail)
{
	uint64_t max = rail->fab.info->ep_attr->max_msg_size;

	return max ? max : UINT64_MAX;
}

/* Returns the largest number of iov entries that one operation of the rail may
 * have. provider: the provider's own limit. */
static uint32_t rail_iov_limit(const struct rail *rail, size_t provider)
{
	uint32_t max = rail->dp->settings->lanes.max_sge;

	if (max > RAIL_IOV_MAX)
		max = RAIL_IOV_MAX;
	if (provider < max)
		max = (uint32_t)provider;
	return max ? max : 1;
}

/* Warns about a bug in libfabric 1.17: when a connection ends, ofi_rxm returns
 * receive buffers to a queue pair that is already freed. This does not happen
 * if all connections share one receive queue (FI_OFI_RXM_USE_SRX). */
static void rail_warn_rxm(const struct rail *rail)
{
	if (FI_VERSION_GE(fi_version(), FI_VERSION(2, 0)) ||
	    !(rail->fab.info->domain_attr->mr_mode & FI_MR_LOCAL) ||
	    !strstr(rail->nic.provider, "ofi_rxm") ||
	    getenv("FI_OFI_RXM_USE_SRX"))
		return;
	TEI_WARN("rail", "%s: this libfabric may crash when a peer leaves; FI_OFI_RXM_USE_SRX=1 in the environment prevents it",
		 rail->name);
}

/* Allocates a rail without opening it. If a later step fails, the caller frees
 * the rail with rail_free. */
static int rail_make(struct tei_rail_dp *dp, const struct rail_found *found,
		     const char *transport, bool unlogged, struct tei_err *err,
		     struct rail **out)
{
	struct rail *rail = calloc(1, sizeof(*rail));

	if (!rail)
		return tei_err_fail(err, TEI_ERR_MEMORY, "rail", NULL,
				    "%s: out of memory", found->name);
	rail->fab.info = fi_dupinfo(found->info);
	if (!rail->fab.info) {
		free(rail);
		return tei_err_fail(err, TEI_ERR_MEMORY, "rail", NULL,
				    "%s: out of memory", found->name);
	}
	rail->dp = dp;
	tei_list_init(&rail->send.free);
	tei_list_init(&rail->reverse_left);
	open_init_lane(&rail->rx_lane, rail, true, 0,
		       &open_rx_ops);
	open_init_lane(&rail->next_rx.lane, rail, true, 0,
		       &open_rx_ops);
	open_init_lane(&rail->probe.opening.lane, rail, false, 0,
		       &open_rx_ops);
	open_init_lane(&rail->contact.opening.lane, rail, true, 0,
		       &open_rx_ops);
	rail->contact.opening.lane.contact = true;
	snprintf(rail->name, sizeof(rail->name), "%s", found->name);
	snprintf(rail->nic.provider, sizeof(rail->nic.provider), "%s",
		 found->info->fabric_attr->prov_name);
	snprintf(rail->nic.transport, sizeof(rail->nic.transport), "%s",
		 transport);
	rail->nic.prefix = found->prefix;
	rail->nic.fallback = found->fallback;
	rail->nic.unlogged = unlogged;
	*out = rail;
	return 0;
}

/* Opens the rail's domains, send buffers and lanes, with the attributes in
 * rail->fab.info. */
static int rail_start(struct rail *rail, struct tei_err *err)
{
	const struct tei_settings *s = rail->dp->settings;
	size_t depth = rail->fab.info->tx_attr->size;
	int ret;

	rail->fab.mr_mode = (uint64_t)rail->fab.info->domain_attr->mr_mode;
	if (s->memory.mr_local)
		rail->fab.mr_mode |= FI_MR_LOCAL;
	rail->caps.max_slice = rail_max_slice(rail);
	rail->caps.tx_depth = s->lanes.max_wr;
	if (depth && depth < rail->caps.tx_depth)
		rail->caps.tx_depth = (uint32_t)depth;
	rail->caps.iov_limit =
		rail_iov_limit(rail, rail->fab.info->tx_attr->iov_limit);
	rail->caps.rma_limit =
		rail_iov_limit(rail, rail->fab.info->tx_attr->rma_iov_limit);
	rail_window_init(rail, RAIL_WINDOW_MAX);
	rail->nbase = s->lanes.per_rail;
	rail->ntx = rail_width_fits(rail) ? rail->dp->conf.lanes : rail->nbase;
	rail->load.lanes = rail->nbase;
	rail_read_nic(rail);
	rail->nic.numa = rail_numa_node(rail);
	rail_warn_rxm(rail);
	rail->caps.back = rail_reverse_fits(rail);
	ret = rail_check_mode(rail, err);
	if (!ret)
		ret = rail_open_domains(rail, err);
	if (!ret)
		ret = rail_open_tx(rail, err);
	return ret ? ret : rail_open_lanes(rail, err);
}

int rail_open(struct tei_rail_dp *dp, const struct rail_found *found,
	      const char *transport, bool unlogged, struct tei_err *err,
	      struct rail **out)
{
	struct tei_err last = *tei_err_last(), why;
	struct rail *rail;
	int ret = rail_make(dp, found, transport, unlogged, err, &rail);

	if (ret)
		return ret;
	rail_hmem_ask(rail);
	ret = rail_start(rail, rail->caps.hmem ? &why : err);
	if (ret && rail->caps.hmem) {
		/* opening the rail for GPU memory has failed; most programs do
		 * not use GPU memory, so the rail is opened again without
		 * FI_HMEM */
		rail_close(rail);
		rail_free(rail);
		tei_err_set_last(&last);
		ret = rail_make(dp, found, transport, unlogged, err, &rail);
		if (ret)
			return ret;
		rail_hmem_leave(rail);
		ret = rail_start(rail, err);
		if (ret && !unlogged)
			rail_hmem_neither(&why, err);
		else if (!ret)
			rail_hmem_without(rail, &why);
	}
	if (ret)
		goto err_rail;
	rail->nic.own = rail->rx_lane.addr;
	rail_contact_lane_init(rail);
	rail_link_find(rail);
	if (rail->link.down)
		rail->link.state = TEI_RAIL_DOWN;
	rail->open = true;
	*out = rail;
	return 0;
err_rail:
	rail_close(rail);
	rail_free(rail);
	return ret;
}

/* Cuts the connections of the lane and closes it. Slices that are still posted
 * are aborted, and from then on wait for a fence. */
static void rail_close_lane(struct rail_lane *lane)
{
	struct tei_list aborted;
	struct rail_done done;

	tei_list_init(&aborted);
	rail_done_init(&done);
	tei_mutex_lock(&lane->lock);
	/* in this state no new operation is posted on the lane */
	__atomic_store_n(&lane->state, RAIL_LANE_RETIRING, __ATOMIC_RELEASE);
	/* messages that still arrive are deferred to the progress thread */
	lane->recv.visited = lane->is_rx;
	rail_disconnect(lane, &done);
	rail_lane_close(lane, &aborted);
	lane->recv.visited = false;
	tei_mutex_unlock(&lane->lock);
	rail_done_run(lane->rail->dp, &done);
	/* abort the slices that are still posted */
	rail_op_abort_all(lane->rail->dp, &aborted);
}

void rail_close_initiating(struct rail *rail)
{
	uint32_t i;

	rail_reopen_stop(rail, false);
	for (i = 0; rail->tx_lanes && i < rail->ntx * RAIL_LANE_SLOTS; i++)
		rail_close_lane(&rail->tx_lanes[i]);
}

void rail_close_target(struct rail *rail)
{
	rail_reopen_stop(rail, true);
	rail_close_lane(&rail->rx_lane);
}

static void rail_close_caches(struct rail *rail)
{
	uint32_t i;

	rail_sched_enter(rail->dp);
	for (i = 0; rail->cache && i < rail->ntx; i++)
		rail_cache_fini(&rail->cache[i]);
	rail_sched_leave(rail->dp);
}

/* Closes the contact lane. Must not be called while another thread may open the
 * contact lane. */
static void rail_close_first(struct rail *rail)
{
	struct rail_lane *lane = &rail->contact.opening.lane;

	rail_close_lane(lane);
	tei_mutex_lock(&lane->lock);
	if (lane->recv.mr)
		fi_close(&lane->recv.mr->fid);
	lane->recv.mr = NULL;
	if (rail->fab.contact_domain)
		fi_close(&rail->fab.contact_domain->fid);
	rail->fab.contact_domain = NULL;
	if (rail->fab.contact_fabric)
		fi_close(&rail->fab.contact_fabric->fid);
	rail->fab.contact_fabric = NULL;
	tei_mutex_unlock(&lane->lock);
}

/* Closes the lanes of the rail first, then the objects that the lanes use. The
 * caller has already closed the memory registrations. */
void rail_close(struct rail *rail)
{
	__atomic_store_n(&rail->open, false, __ATOMIC_RELEASE);
	rail_close_initiating(rail);
	rail_close_lane(&rail->probe.opening.lane);
	rail_close_target(rail);
	rail_close_first(rail);
	rail_close_caches(rail);
	if (rail->rx_lane.recv.mr)
		fi_close(&rail->rx_lane.recv.mr->fid);
	rail->rx_lane.recv.mr = NULL;
	if (rail->send.mr)
		fi_close(&rail->send.mr->fid);
	rail->send.mr = NULL;
	rail_key_unmap(rail);
	if (rail->fab.tx_domain && rail->fab.tx_domain != rail->fab.rx_domain)
		fi_close(&rail->fab.tx_domain->fid);
	if (rail->fab.rx_domain)
		fi_close(&rail->fab.rx_domain->fid);
	rail->fab.tx_domain = NULL;
	rail->fab.rx_domain = NULL;
	if (rail->fab.fabric)
		fi_close(&rail->fab.fabric->fid);
	rail->fab.fabric = NULL;
}

static void rail_free_lane(struct rail_lane *lane)
{
	tei_mutex_fini(&lane->lock);
	free(lane->recv.bufs);
	rail_numa_free(lane->recv.mem, RAIL_RX_SIZE);
}

void rail_free(struct rail *rail)
{
	uint32_t i;

	for (i = 0; rail->tx_lanes && i < rail->ntx * RAIL_LANE_SLOTS; i++)
		rail_free_lane(&rail->tx_lanes[i]);
	tei_mutex_fini(&rail->rx_lane.lock);
	rail_lane_drop_deferred(&rail->rx_lane);
	for (i = 0; rail->next_tx && i < rail->ntx; i++)
		rail_free_lane(&rail->next_tx[i].lane);
	tei_mutex_fini(&rail->next_rx.lane.lock);
	tei_mutex_fini(&rail->probe.opening.lane.lock);
	tei_mutex_fini(&rail->contact.opening.lane.lock);
	rail_lane_drop_deferred(&rail->contact.opening.lane);
	free(rail->tx_lanes);
	free(rail->next_tx);
	free(rail->cache);
	free(rail->rx_lane.recv.bufs);
	rail_numa_free(rail->rx_lane.recv.mem, RAIL_RX_SIZE);
	free(rail->contact.opening.lane.recv.bufs);
	rail_numa_free(rail->contact.opening.lane.recv.mem, RAIL_RX_SIZE);
	rail_numa_free(rail->send.mem, RAIL_TX_SIZE);
	rail_reverse_fini(rail);
	fi_freeinfo(rail->fab.info);
	free(rail);
}
