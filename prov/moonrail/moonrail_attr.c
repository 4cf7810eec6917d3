/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The attributes that the provider offers, and the check of an application's
 * hints.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_amo.h"
#include "prov/moonrail/moonrail_info.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_name.h"
#include "prov/moonrail/moonrail_wire.h"

#define ATTR_TAG_FORMAT	UINT64_C(0xaaaaaaaaaaaaaaaa)	/* the application may
							 * use all bits of a
							 * tag */
#define ATTR_PROGRESS	3	/* largest progress mode:
				 * FI_PROGRESS_CONTROL_UNIFIED of libfabric
				 * 2.x */
#define ATTR_ORDERS	(MOONRAIL_ORDER_FREE | MOONRAIL_ORDER_ASKED)
#define ATTR_ONE_SIDED	(FI_READ | FI_WRITE | FI_REMOTE_READ | \
			 FI_REMOTE_WRITE)

/* Returns the capabilities that are offered. Hints without a modifier (FI_SEND,
 * FI_READ, …) request all modifiers of their capabilities. */
static uint64_t attr_caps(uint64_t caps)
{
	/* FI_RMA_EVENT is offered only on request, because it costs a message
	 * per operation */
	if (!caps)
		return MOONRAIL_CAPS & ~FI_RMA_EVENT;
	if (caps & (FI_MSG | FI_TAGGED) && !(caps & (FI_SEND | FI_RECV)))
		caps |= FI_SEND | FI_RECV;
	if (caps & (FI_RMA | FI_ATOMIC) &&
	    !(caps & (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)))
		caps |= ATTR_ONE_SIDED;
	return caps | MOONRAIL_DOMAIN_CAPS;
}

/* Returns the message orders that the hints request, for both directions. */
static uint64_t attr_order(const struct fi_info *h)
{
	return (h && h->tx_attr ? h->tx_attr->msg_order : 0) |
	       (h && h->rx_attr ? h->rx_attr->msg_order : 0);
}

/* Returns the largest transfer, in bytes, for which the data order is
 * guaranteed. rma: the flags of this order that cover reads and writes; atomic:
 * the flag of this order that covers atomics. */
static size_t attr_order_size(uint64_t order, uint64_t rma, uint64_t atomic)
{
	return order & rma    ? MOONRAIL_MESSAGE :
	       order & atomic ? MOONRAIL_AMO_MAX :
				0;
}

static size_t attr_raw_size(uint64_t order)
{
	return attr_order_size(order, FI_ORDER_RAW | FI_ORDER_RMA_RAW,
			       FI_ORDER_ATOMIC_RAW);
}

static size_t attr_waw_size(uint64_t order)
{
	return attr_order_size(order, FI_ORDER_WAW | FI_ORDER_RMA_WAW,
			       FI_ORDER_ATOMIC_WAW);
}

static size_t attr_war_size(uint64_t order)
{
	return attr_order_size(order, 0, FI_ORDER_ATOMIC_WAR);
}

static bool attr_ep_fits(const struct fi_ep_attr *a, uint64_t order)
{
	if (a->type != FI_EP_UNSPEC && a->type != FI_EP_RDM)
		return false;
	if (a->protocol != FI_PROTO_UNSPEC &&
	    ((a->protocol != MOONRAIL_PROTO &&
	      a->protocol != MOONRAIL_PROTO_010) ||
	     a->protocol_version > MOONRAIL_WIRE_VERSION))
		return false;
	if (a->max_order_raw_size > attr_raw_size(order) ||
	    a->max_order_war_size > attr_war_size(order) ||
	    a->max_order_waw_size > attr_waw_size(order))
		return false;
	return !a->auth_key_size && a->tx_ctx_cnt <= 1 && a->rx_ctx_cnt <= 1 &&
	       !a->msg_prefix_size && a->max_msg_size <= MOONRAIL_MESSAGE;
}

static bool attr_tx_fits(const struct fi_tx_attr *a)
{
	return !(a->caps & ~(MOONRAIL_TX_CAPS | MOONRAIL_DOMAIN_CAPS)) &&
	       !(a->op_flags & ~MOONRAIL_TX_FLAGS) &&
	       !(a->msg_order & ~ATTR_ORDERS) && !a->comp_order &&
	       a->inject_size <= MOONRAIL_INJECT && a->size <= MOONRAIL_QUEUE &&
	       a->iov_limit <= MOONRAIL_IOV && a->rma_iov_limit <= MOONRAIL_IOV;
}

static bool attr_rx_fits(const struct fi_rx_attr *a)
{
	return !(a->caps & ~(MOONRAIL_RX_CAPS | MOONRAIL_DOMAIN_CAPS)) &&
	       !(a->op_flags & ~MOONRAIL_RX_FLAGS) &&
	       !(a->msg_order & ~ATTR_ORDERS) && !a->comp_order &&
	       a->size <= MOONRAIL_QUEUE && a->iov_limit <= MOONRAIL_IOV &&
	       !a->total_buffered_recv;
}

/* Returns the mr_mode to offer: that of the hints if it is FI_MR_BASIC or
 * FI_MR_SCALABLE, the two values that existed before version 1.5. Since 1.5,
 * mr_mode is a set of flags, and the provider requires none of them. */
static int attr_mr_mode(uint32_t version, const struct fi_info *hints)
{
	int mode = hints && hints->domain_attr ? hints->domain_attr->mr_mode :
						 0;

	if (mode == MOONRAIL_MR_BASIC || mode == MOONRAIL_MR_SCALABLE)
		return mode;
	return FI_VERSION_LT(version, FI_VERSION(1, 5)) ? MOONRAIL_MR_SCALABLE : 0;
}

/* Returns true if the threading, progress and resource modes and the type of
 * address vector are values that libfabric defines. */
static bool attr_ways_fit(const struct fi_domain_attr *a)
{
	return (unsigned int)a->threading <= FI_THREAD_ENDPOINT &&
	       (unsigned int)a->control_progress <= ATTR_PROGRESS &&
	       (unsigned int)a->data_progress <= ATTR_PROGRESS &&
	       (unsigned int)a->resource_mgmt <= FI_RM_ENABLED &&
	       (unsigned int)a->av_type <= FI_AV_TABLE;
}

static bool attr_domain_fits(const struct fi_domain_attr *a)
{
	if (!attr_ways_fit(a))
		return false;
	return a->cq_data_size <= sizeof(uint64_t) && !a->auth_key_size &&
	       a->mr_key_size <= sizeof(uint64_t) && a->max_ep_tx_ctx <= 1 &&
	       a->max_ep_rx_ctx <= 1 && !a->max_ep_stx_ctx &&
	       !a->max_err_data && !a->max_ep_srx_ctx && a->mr_iov_limit <= 1 &&
	       !(a->caps & ~MOONRAIL_DOMAIN_CAPS);
}

static bool attr_fabric_fits(const struct fi_fabric_attr *a)
{
	return (!a->name || !strcmp(a->name, "moonrail")) &&
	       (!a->prov_name || !strcasecmp(a->prov_name, "moonrail"));
}

static bool attr_format_fits(uint32_t format)
{
	return format == FI_FORMAT_UNSPEC || format == MOONRAIL_FORMAT ||
	       format == FI_SOCKADDR || format == FI_SOCKADDR_IN ||
	       format == FI_SOCKADDR_IN6;
}

static bool attr_fits(const struct fi_info *h)
{
	return !(h->caps & ~MOONRAIL_CAPS) && attr_format_fits(h->addr_format) &&
	       (!h->ep_attr || attr_ep_fits(h->ep_attr, attr_order(h))) &&
	       (!h->tx_attr || attr_tx_fits(h->tx_attr)) &&
	       (!h->rx_attr || attr_rx_fits(h->rx_attr)) &&
	       (!h->domain_attr || attr_domain_fits(h->domain_attr)) &&
	       (!h->fabric_attr || attr_fabric_fits(h->fabric_attr));
}

static void attr_set_ep(struct fi_info *i, uint64_t order)
{
	i->ep_attr->type = FI_EP_RDM;
	i->ep_attr->protocol = MOONRAIL_PROTO;
	i->ep_attr->protocol_version = MOONRAIL_WIRE_VERSION;
	i->ep_attr->max_msg_size = MOONRAIL_MESSAGE;
	i->ep_attr->max_order_raw_size = attr_raw_size(order);
	i->ep_attr->max_order_war_size = attr_war_size(order);
	i->ep_attr->max_order_waw_size = attr_waw_size(order);
	i->ep_attr->mem_tag_format = ATTR_TAG_FORMAT;
	i->ep_attr->tx_ctx_cnt = 1;
	i->ep_attr->rx_ctx_cnt = 1;
}

static void attr_set_tx(struct fi_info *i, const struct fi_tx_attr *h)
{
	i->tx_attr->caps = i->caps & MOONRAIL_TX_CAPS;
	i->tx_attr->msg_order = MOONRAIL_ORDER_FREE | (h ? h->msg_order : 0);
	i->tx_attr->inject_size = MOONRAIL_INJECT;
	i->tx_attr->size = MOONRAIL_QUEUE;
	i->tx_attr->iov_limit = MOONRAIL_IOV;
	i->tx_attr->rma_iov_limit = MOONRAIL_IOV;
	if (!h)
		return;
	i->tx_attr->op_flags = h->op_flags;
	if (h->caps)
		i->tx_attr->caps = h->caps;
	if (h->size)
		i->tx_attr->size = h->size;
}

static void attr_set_rx(struct fi_info *i, const struct fi_rx_attr *h)
{
	i->rx_attr->caps = i->caps & MOONRAIL_RX_CAPS;
	i->rx_attr->msg_order = MOONRAIL_ORDER_FREE | (h ? h->msg_order : 0);
	i->rx_attr->size = MOONRAIL_QUEUE;
	i->rx_attr->iov_limit = MOONRAIL_IOV;
	if (!h)
		return;
	i->rx_attr->op_flags = h->op_flags;
	if (h->caps)
		i->rx_attr->caps = h->caps;
	if (h->size)
		i->rx_attr->size = h->size;
}

static int attr_set_domain(struct fi_info *i, uint32_t version,
			   const struct fi_info *hints)
{
	const struct fi_domain_attr *h = hints ? hints->domain_attr : NULL;
	struct fi_domain_attr *a = i->domain_attr;

	a->name = strdup(h && h->name ? h->name : "moonrail");
	a->threading = h && h->threading ? h->threading : FI_THREAD_SAFE;
	a->control_progress = FI_PROGRESS_AUTO;
	a->data_progress = FI_PROGRESS_AUTO;
	if (h && h->control_progress)
		a->control_progress = h->control_progress;
	if (h && h->data_progress)
		a->data_progress = h->data_progress;
	a->resource_mgmt = FI_RM_ENABLED;
	a->av_type = h && h->av_type ? h->av_type : FI_AV_MAP;
	a->mr_mode = attr_mr_mode(version, hints);
	a->mr_key_size = sizeof(uint64_t);
	a->cq_data_size = sizeof(uint64_t);
	a->cq_cnt = a->ep_cnt = a->cntr_cnt = a->mr_cnt = MOONRAIL_OBJECTS;
	a->tx_ctx_cnt = a->rx_ctx_cnt = MOONRAIL_OBJECTS;
	a->max_ep_tx_ctx = a->max_ep_rx_ctx = 1;
	a->mr_iov_limit = 1;
	a->caps = i->caps & MOONRAIL_DOMAIN_CAPS;
	return a->name ? 0 : -FI_ENOMEM;
}

static int attr_set_fabric(struct fi_info *i, uint32_t version)
{
	i->fabric_attr->name = strdup("moonrail");
	i->fabric_attr->prov_version = MOONRAIL_VERSION;
	i->fabric_attr->api_version = version;
	/* prov_name stays NULL, because libfabric sets it */
	return i->fabric_attr->name ? 0 : -FI_ENOMEM;
}

int moonrail_attr_info(uint32_t version, const struct fi_info *hints,
		       struct fi_info **out)
{
	struct fi_info *i;
	int ret;

	if (hints && !attr_fits(hints))
		return -FI_ENODATA;
	i = fi_allocinfo();
	if (!i)
		return -FI_ENOMEM;
	i->caps = attr_caps(hints ? hints->caps : 0);
	i->addr_format = hints && hints->addr_format ? hints->addr_format :
						       MOONRAIL_FORMAT;
	attr_set_ep(i, attr_order(hints));
	attr_set_tx(i, hints ? hints->tx_attr : NULL);
	attr_set_rx(i, hints ? hints->rx_attr : NULL);
	ret = attr_set_domain(i, version, hints);
	if (!ret)
		ret = attr_set_fabric(i, version);
	if (ret) {
		fi_freeinfo(i);
		return ret;
	}
	*out = i;
	return 0;
}
