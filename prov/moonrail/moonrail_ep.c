/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Endpoints.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_av.h"
#include "prov/moonrail/moonrail_cq.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_fabric.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/moonrail/moonrail_msg.h"
#include "prov/moonrail/moonrail_name.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_rma.h"
#include "prov/moonrail/moonrail_stream.h"
#include "util/clock.h"
#include "util/list.h"

#define EP_FLUSH_NS	(2 * TEI_NS_PER_SEC)	/* longest wait in fi_close for
						 * acknowledgements of
						 * messages */

static struct moonrail_ep *ep_of(struct fid *fid)
{
	return tei_container_of(fid, struct moonrail_ep, fid.fid);
}

/* --- options ------------------------------------------------------------- */

static ssize_t ep_cancel(struct fid *fid, void *context)
{
	struct moonrail_ep *ep = ep_of(fid);
	int ret;

	moonrail_enter(ep->domain);
	ret = moonrail_recv_cancel(ep, context);
	moonrail_leave(ep->domain);
	return ret;
}

static int ep_getopt(struct fid *fid, int level, int name, void *value,
		     size_t *len)
{
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (*len < sizeof(size_t))
		return -FI_ETOOSMALL;
	*(size_t *)value = ep_of(fid)->min_multi;
	*len = sizeof(size_t);
	return 0;
}

static int ep_setopt(struct fid *fid, int level, int name, const void *value,
		     size_t len)
{
	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (len < sizeof(size_t))
		return -FI_EINVAL;
	ep_of(fid)->min_multi = *(const size_t *)value;
	return 0;
}

static int ep_no_tx(struct fid_ep *sep, int index, struct fi_tx_attr *attr,
		    struct fid_ep **out, void *context)
{
	(void)sep, (void)index, (void)attr, (void)out, (void)context;
	return -FI_ENOSYS;
}

static int ep_no_rx(struct fid_ep *sep, int index, struct fi_rx_attr *attr,
		    struct fid_ep **out, void *context)
{
	(void)sep, (void)index, (void)attr, (void)out, (void)context;
	return -FI_ENOSYS;
}

static ssize_t ep_left(const struct moonrail_ep *ep, uint32_t most,
		       uint32_t used)
{
	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	return used < most ? (ssize_t)(most - used) : 0;
}

static ssize_t ep_rx_left(struct fid_ep *fid)
{
	struct moonrail_ep *ep = tei_container_of(fid, struct moonrail_ep, fid);
	ssize_t left;

	moonrail_enter(ep->domain);
	left = ep_left(ep, MOONRAIL_RECVS, ep->nrx);
	moonrail_leave(ep->domain);
	return left;
}

/* Returns the number of operations that the endpoint accepts now, even if all
 * of them are for the address with the most waiting messages. */
static ssize_t ep_tx_left(struct fid_ep *fid)
{
	struct moonrail_ep *ep = tei_container_of(fid, struct moonrail_ep, fid);
	struct moonrail_av_entry *e;
	fi_addr_t a;
	uint32_t used, waiting;
	ssize_t left;

	moonrail_enter(ep->domain);
	used = ep->ntx;
	for (a = 0; ep->av && a < ep->av->n; a++) {
		e = moonrail_av_get(ep->av, a);
		if (!e)
			continue;
		waiting = moonrail_flow_refuses(e->peer, e->ep) ?
			MOONRAIL_QUEUE : moonrail_flow_waiting(e->peer, e->ep);
		if (waiting > used)
			used = waiting;
	}
	left = ep_left(ep, MOONRAIL_QUEUE, used);
	moonrail_leave(ep->domain);
	return left;
}

static struct fi_ops_ep ep_ops = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = ep_cancel,
	.getopt = ep_getopt,
	.setopt = ep_setopt,
	.tx_ctx = ep_no_tx,
	.rx_ctx = ep_no_rx,
	.rx_size_left = ep_rx_left,
	.tx_size_left = ep_tx_left,
};

/* --- names --------------------------------------------------------------- */

static int ep_getname(struct fid *fid, void *addr, size_t *len)
{
	struct moonrail_ep *ep = ep_of(fid);
	uint8_t encoded[MOONRAIL_NAME_LEN];
	struct moonrail_name n;
	size_t size = sizeof(encoded), room = *len;
	const void *from = encoded;
	int ret;

	ret = moonrail_name_of(ep->domain, ep->id, &n);
	if (ret)
		return ret;
	if (ep->domain->format != MOONRAIL_FORMAT) {
		from = n.address;
		size = n.len;
	}
	moonrail_name_put(&n, encoded);
	*len = size;
	memcpy(addr, from, room < size ? room : size);
	return room < size ? -FI_ETOOSMALL : 0;
}

static int ep_setname(struct fid *fid, void *addr, size_t len)
{
	(void)fid, (void)addr, (void)len;
	return -FI_ENOSYS;
}

static int ep_getpeer(struct fid_ep *ep, void *addr, size_t *len)
{
	(void)ep, (void)addr, (void)len;
	return -FI_ENOSYS;
}

static int ep_connect(struct fid_ep *ep, const void *addr, const void *param,
		      size_t len)
{
	(void)ep, (void)addr, (void)param, (void)len;
	return -FI_ENOSYS;
}

static int ep_listen(struct fid_pep *pep)
{
	(void)pep;
	return -FI_ENOSYS;
}

static int ep_accept(struct fid_ep *ep, const void *param, size_t len)
{
	(void)ep, (void)param, (void)len;
	return -FI_ENOSYS;
}

static int ep_reject(struct fid_pep *pep, fid_t handle, const void *param,
		     size_t len)
{
	(void)pep, (void)handle, (void)param, (void)len;
	return -FI_ENOSYS;
}

static int ep_shutdown(struct fid_ep *ep, uint64_t flags)
{
	(void)ep, (void)flags;
	return -FI_ENOSYS;
}

static int ep_join(struct fid_ep *ep, const void *addr, uint64_t flags,
		   struct fid_mc **mc, void *context)
{
	(void)ep, (void)addr, (void)flags, (void)mc, (void)context;
	return -FI_ENOSYS;
}

static struct fi_ops_cm ep_cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.setname = ep_setname,
	.getname = ep_getname,
	.getpeer = ep_getpeer,
	.connect = ep_connect,
	.listen = ep_listen,
	.accept = ep_accept,
	.reject = ep_reject,
	.shutdown = ep_shutdown,
	.join = ep_join,
};

/* --- binding, enabling and closing --------------------------------------- */

static int ep_bind_cq(struct moonrail_ep *ep, struct moonrail_cq *cq,
		      uint64_t flags)
{
	if (cq->domain != ep->domain ||
	    flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
		return -FI_EINVAL;
	if ((flags & FI_TRANSMIT && ep->tx_cq) || (flags & FI_RECV && ep->rx_cq))
		return -FI_EINVAL;
	if (flags & FI_TRANSMIT) {
		ep->tx_cq = cq;
		ep->tx_selective = flags & FI_SELECTIVE_COMPLETION;
		cq->refs++;
	}
	if (flags & FI_RECV) {
		ep->rx_cq = cq;
		ep->rx_selective = flags & FI_SELECTIVE_COMPLETION;
		cq->refs++;
	}
	return 0;
}

static int ep_bind_cntr(struct moonrail_ep *ep, struct moonrail_cntr *c,
			uint64_t flags) TEI_REQUIRES(moonrail_held)
{
	static const uint64_t bit[MOONRAIL_CNTRS] = {
		FI_SEND, FI_RECV, FI_READ, FI_WRITE,
		FI_REMOTE_READ, FI_REMOTE_WRITE,
	};
	const uint64_t remote = FI_REMOTE_READ | FI_REMOTE_WRITE;
	int i;

	if (c->domain != ep->domain || !flags ||
	    flags & ~(FI_SEND | FI_RECV | FI_READ | FI_WRITE | remote))
		return -FI_EINVAL;
	for (i = 0; i < MOONRAIL_CNTRS; i++)
		if (flags & bit[i] && ep->cntr[i])
			return -FI_EINVAL;
	for (i = 0; i < MOONRAIL_CNTRS; i++) {
		if (!(flags & bit[i]))
			continue;
		ep->cntr[i] = c;
		c->refs++;
	}
	/* without FI_RMA_EVENT, peers need not report their accesses, because
	 * the counter never changes */
	if (flags & remote && ep->caps & FI_RMA_EVENT)
		moonrail_mr_want_events(ep->domain);
	return 0;
}

static int ep_bind_av(struct moonrail_ep *ep, struct moonrail_av *av)
{
	if (av->domain != ep->domain || ep->av)
		return -FI_EINVAL;
	ep->av = av;
	av->refs++;
	return 0;
}

/* Binds an event queue. The endpoint never writes an event to it. */
static int ep_bind_eq(struct moonrail_ep *ep, struct moonrail_eq *eq)
{
	if (eq->fabric != ep->domain->fabric || ep->eq)
		return -FI_EINVAL;
	ep->eq = eq;
	__atomic_fetch_add(&eq->refs, 1, __ATOMIC_RELAXED);
	return 0;
}

static int ep_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct moonrail_ep *ep = ep_of(fid);
	int ret = 0;

	moonrail_enter(ep->domain);
	switch (bfid->fclass) {
	case FI_CLASS_CQ:
		ret = ep_bind_cq(ep, tei_container_of(bfid, struct moonrail_cq,
						      fid.fid), flags);
		break;
	case FI_CLASS_CNTR:
		ret = ep_bind_cntr(ep, tei_container_of(bfid,
							struct moonrail_cntr,
							fid.fid), flags);
		break;
	case FI_CLASS_AV:
		ret = ep_bind_av(ep, tei_container_of(bfid, struct moonrail_av,
						      fid.fid));
		break;
	case FI_CLASS_EQ:
		ret = ep_bind_eq(ep, tei_container_of(bfid, struct moonrail_eq,
						      fid.fid));
		break;
	default:
		ret = -FI_EINVAL;
		break;
	}
	moonrail_leave(ep->domain);
	return ret;
}

/* Enables the endpoint. Does not check that completion queues are bound,
 * because an endpoint may never send, or never receive. The operations check
 * this (moonrail_ep_ready). */
static int ep_enable(struct moonrail_ep *ep)
{
	if (!ep->av)
		return -FI_ENOAV;
	ep->enabled = true;
	return 0;
}

static int ep_flags(struct moonrail_ep *ep, uint64_t *arg, bool set)
{
	uint64_t flags = *arg & ~(FI_TRANSMIT | FI_RECV), *at;

	if (!(*arg & FI_TRANSMIT) == !(*arg & FI_RECV))
		return -FI_EINVAL;
	at = *arg & FI_TRANSMIT ? &ep->tx_flags : &ep->rx_flags;
	if (set && flags & ~(*arg & FI_TRANSMIT ? MOONRAIL_TX_FLAGS :
						  MOONRAIL_RX_FLAGS))
		return -FI_EINVAL;
	if (set)
		*at = flags;
	else
		*arg = *at;
	return 0;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct moonrail_ep *ep = ep_of(fid);
	int ret;

	moonrail_enter(ep->domain);
	switch (command) {
	case FI_ENABLE:
		ret = ep_enable(ep);
		break;
	case FI_GETOPSFLAG:
		ret = ep_flags(ep, arg, false);
		break;
	case FI_SETOPSFLAG:
		ret = ep_flags(ep, arg, true);
		break;
	default:
		ret = -FI_ENOSYS;
		break;
	}
	moonrail_leave(ep->domain);
	return ret;
}

/* Ends an operation of an endpoint that is being closed, and moves its pinned
 * ranges to the list "gone". */
static void ep_forget(struct moonrail_op *op, struct tei_list *gone)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_peer *p = moonrail_peer_real(op->peer);

	if (op->kind == MOONRAIL_SEND && !p->rail)
		moonrail_recv_withdraw(p, op->id);
	for (; op->npin; op->npin--)
		moonrail_unpin(op->ep->domain, op->iov[op->npin - 1].iov_base,
			       op->iov[op->npin - 1].iov_len, gone);
	moonrail_op_done(op);
}

static void ep_drop_outs(const struct moonrail_ep *ep, struct tei_list *l)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_out *o;

	tei_list_foreach(o, l, struct moonrail_out, link) {
		if (o->op && o->op->ep == ep) {
			moonrail_op_done(o->op);
			o->op = NULL;
		}
	}
}

/* Ends the operations of the endpoint that wait for a FIN, an ATOMIC_REP, a key
 * or an acknowledgement. */
static void ep_drop_waiting(struct moonrail_ep *ep, struct tei_list *gone)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_op *op, *tmp;
	struct moonrail_peer *p;

	tei_list_foreach(p, &ep->domain->peers, struct moonrail_peer, link) {
		tei_list_splice_tail(&p->ops.waiting, &p->ops.waiting_for_key);
		tei_list_foreach_safe(op, tmp, &p->ops.waiting,
				       struct moonrail_op, link) {
			if (op->ep != ep) {
				if (op->kind == MOONRAIL_RMA) {
					tei_list_del(&op->link);
					tei_list_add_tail(
						&p->ops.waiting_for_key,
						&op->link);
				}
				continue;
			}
			tei_list_del(&op->link);
			ep_forget(op, gone);
		}
		ep_drop_outs(ep, &p->out.sent);
		ep_drop_outs(ep, &p->out.queue);
		ep_drop_outs(ep, &p->flow.blocked);
	}
}

/* Waits until the tasks of the endpoint have ended. Then waits until the
 * endpoint's messages are acknowledged, but at most until EP_FLUSH_NS after the
 * call. Returns with the lock held. */
static void ep_settle(struct moonrail_ep *ep) TEI_ACQUIRE(moonrail_held)
{
	struct moonrail_domain *d = ep->domain;
	uint64_t end = tei_now_ns() + EP_FLUSH_NS, seen;

	for (;;) {
		moonrail_progress(d);
		seen = moonrail_events(d);
		moonrail_enter(d);
		moonrail_drain(d);
		if (!ep->busy &&
		    (moonrail_peer_flushed(d) || tei_now_ns() > end))
			return;
		moonrail_leave(d);
		moonrail_sleep(d, seen, TEI_NS_PER_MS / 5);
	}
}

static int ep_close(struct fid *fid)
{
	struct moonrail_ep *ep = ep_of(fid);
	struct moonrail_domain *d = ep->domain;
	struct tei_list gone;
	int i;

	tei_list_init(&gone);
	ep_settle(ep);
	ep->closing = true;
	moonrail_recv_free_all(ep);
	ep_drop_waiting(ep, &gone);
	tei_list_del(&ep->link);
	moonrail_flow_closed(d);
	if (ep->tx_cq)
		ep->tx_cq->refs--;
	if (ep->rx_cq)
		ep->rx_cq->refs--;
	for (i = 0; i < MOONRAIL_CNTRS; i++)
		if (ep->cntr[i])
			ep->cntr[i]->refs--;
	if (ep->av)
		ep->av->refs--;
	if (ep->eq)
		__atomic_fetch_sub(&ep->eq->refs, 1, __ATOMIC_RELEASE);
	moonrail_leave(d);
	moonrail_pin_drop(d, &gone);
	moonrail_domain_unref(d);
	free(ep);
	return 0;
}

static struct fi_ops ep_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = ep_close,
	.bind = ep_bind,
	.control = ep_control,
	.ops_open = moonrail_no_ops,
};

int moonrail_ep_open(struct fid_domain *domain, struct fi_info *info,
		     struct fid_ep **out, void *context)
{
	struct moonrail_ep *ep;
	int i;

	if (!info || (info->ep_attr && info->ep_attr->type != FI_EP_RDM &&
		      info->ep_attr->type != FI_EP_UNSPEC))
		return -FI_EINVAL;
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return -FI_ENOMEM;
	ep->domain = tei_container_of(domain, struct moonrail_domain, fid);
	ep->caps = info->caps;
	ep->tx_flags = info->tx_attr ? info->tx_attr->op_flags : 0;
	ep->rx_flags = info->rx_attr ? info->rx_attr->op_flags : 0;
	/* The initiator enforces the message order for both sides. It therefore
	 * also honours the order that its own rx_attr requests, and assumes
	 * that the peer was opened with the same hints. */
	ep->order = MOONRAIL_ORDER_ASKED &
		    ((info->tx_attr ? info->tx_attr->msg_order : 0) |
		     (info->rx_attr ? info->rx_attr->msg_order : 0));
	ep->min_multi = 64;
	for (i = 0; i < 2; i++) {
		tei_list_init(&ep->recvs[i]);
		tei_list_init(&ep->unexpected[i]);
	}
	tei_list_init(&ep->claimed);
	ep->fid.fid.fclass = FI_CLASS_EP;
	ep->fid.fid.context = context;
	ep->fid.fid.ops = &ep_fi_ops;
	ep->fid.ops = &ep_ops;
	ep->fid.cm = &ep_cm_ops;
	ep->fid.msg = &moonrail_msg_ops;
	ep->fid.rma = &moonrail_rma_ops;
	ep->fid.tagged = &moonrail_tagged_ops;
	ep->fid.atomic = &moonrail_atomic_ops;
	ep->fid.collective = &moonrail_coll_ops;
	moonrail_domain_ref(ep->domain);
	moonrail_enter(ep->domain);
	ep->id = ++ep->domain->next_ep;
	tei_list_add_tail(&ep->domain->eps, &ep->link);
	moonrail_leave(ep->domain);
	*out = &ep->fid;
	return 0;
}
