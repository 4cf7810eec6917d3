/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_EP_H
#define TEI_PROV_MOONRAIL_MOONRAIL_EP_H

/*
 * Endpoints.
 */

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/list.h"

struct moonrail_av;
struct moonrail_cntr;
struct moonrail_cq;
struct moonrail_eq;
struct moonrail_peer;

/* The events that an endpoint's counters count. */
enum moonrail_cntr_of {
	MOONRAIL_CNTR_SEND,
	MOONRAIL_CNTR_RECV,
	MOONRAIL_CNTR_READ,
	MOONRAIL_CNTR_WRITE,
	MOONRAIL_CNTR_REMOTE_READ,
	MOONRAIL_CNTR_REMOTE_WRITE,
	MOONRAIL_CNTRS,
};

/* Created by fi_endpoint, freed by fi_close. domain->lock guards all fields. */
struct moonrail_ep {
	struct fid_ep fid;
	struct tei_list link;		/* in domain->eps */
	struct moonrail_domain *domain;
	uint32_t id;
	struct moonrail_av *av;
	struct moonrail_eq *eq;
	struct moonrail_cq *tx_cq, *rx_cq;
	bool tx_selective, rx_selective;
	struct moonrail_cntr *cntr[MOONRAIL_CNTRS];
	uint64_t tx_flags, rx_flags, caps;
	uint64_t order;			/* the orders of MOONRAIL_ORDER_ASKED
					 * that the hints request; constant */
	bool enabled, closing;
	size_t min_multi;
	uint32_t ntx, nrx;		/* ntx: number of operations under way
					 * that are not receives; nrx: number of
					 * receives under way */
	uint32_t busy;			/* number of operations that cannot
					 * complete yet, because they wait for a
					 * task, a bounce buffer or a read-back
					 * check */
	struct tei_list recvs[2];	/* posted receives: [0] untagged, [1]
					 * tagged */
	struct tei_list unexpected[2];	/* unexpected messages: [0] untagged,
					 * [1] tagged */
	struct tei_list claimed;	/* list of moonrail_unexpected.link:
					 * messages that the application has
					 * claimed with FI_CLAIM */
	uint64_t unexpected_bytes;	/* bytes of the unexpected messages */
	uint32_t backpressured_peers;	/* number of peers for which the
					 * endpoint is backpressured */
};

/* --- moonrail_ep.c ------------------------------------------------------- */
int moonrail_ep_open(struct fid_domain *domain, struct fi_info *info,
		     struct fid_ep **ep, void *context);
/* Returns the endpoint with that number, or NULL. MOONRAIL_EP_ANY: the oldest
 * endpoint that is not being closed. */
static inline struct moonrail_ep *moonrail_ep_find(struct moonrail_domain *d,
						   uint32_t id)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_ep *ep;

	tei_list_foreach(ep, &d->eps, struct moonrail_ep, link)
		if (id == MOONRAIL_EP_ANY ? !ep->closing : ep->id == id)
			return ep;
	return NULL;
}
/* Returns 0 if the endpoint accepts operations of that direction,
 * -FI_EOPBADSTATE before it is enabled, or -FI_ENOCQ if no completion queue and
 * no counter for that direction is bound. */
static inline int moonrail_ep_ready(const struct moonrail_ep *ep, bool recv)
{
	struct moonrail_cntr *const *c = ep->cntr;

	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	if (recv)
		return ep->rx_cq || c[MOONRAIL_CNTR_RECV] ? 0 : -FI_ENOCQ;
	return ep->tx_cq || c[MOONRAIL_CNTR_SEND] || c[MOONRAIL_CNTR_READ] ||
	       c[MOONRAIL_CNTR_WRITE] ? 0 : -FI_ENOCQ;
}

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_EP_H */
