/* SPDX-License-Identifier: BSD-2-Clause */
/* Endpoints and their addresses. */

#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

static struct fab_ep *ep_of(struct fid *fid)
{
	return tei_container_of(fid, struct fab_ep, fid.fid);
}

struct fab_ep *fab_ep_at(const struct fab_addr *a)
{
	struct fab_nic *nic = fab_nic_get(a->at);
	struct fab_ep *ep;

	tei_list_foreach (ep, &nic->eps, struct fab_ep, link)
		if (ep->addr.port == a->port)
			return ep;
	return NULL;
}

void fab_ep_notify(struct fab_ep *ep)
{
	if (ep->tx_cq)
		fab_cq_notify(ep->tx_cq);
	if (ep->rx_cq && ep->rx_cq != ep->tx_cq)
		fab_cq_notify(ep->rx_cq);
}

void fab_ep_remember(struct fab_ep *ep, fi_addr_t addr, struct fab_side *s)
{
	size_t n = ep->nby_addr ? ep->nby_addr : 8;
	struct fab_side **more;

	if (addr >= ep->nby_addr) {
		while (n <= addr)
			n *= 2;
		more = fab_alloc(n * sizeof(*more));
		if (ep->nby_addr)
			memcpy(more, ep->by_addr, ep->nby_addr * sizeof(*more));
		free(ep->by_addr);
		ep->by_addr = more;
		ep->nby_addr = n;
	}
	ep->by_addr[addr] = s;
	s->addr = addr;
	s->naddrs++;
}

void fab_ep_forget_addr(struct fab_ep *ep, fi_addr_t addr)
{
	if (addr >= ep->nby_addr || !ep->by_addr[addr])
		return;
	ep->by_addr[addr]->naddrs--;
	ep->by_addr[addr] = NULL;
}

void fab_ep_forget(struct fab_ep *ep, struct fab_side *s)
{
	size_t i;

	if (s->naddrs && ep->by_addr[s->addr] == s)
		fab_ep_forget_addr(ep, s->addr);
	for (i = 0; s->naddrs && i < ep->nby_addr; i++)
		if (ep->by_addr[i] == s)
			fab_ep_forget_addr(ep, i);
}

/* --- enabling --- */

/* Returns the next port of the NIC. Begins again after the last one. */
static uint16_t ep_next_port(struct fab_nic *nic)
{
	uint32_t ports = fab_net->conf.ports;
	uint16_t port = nic->next_port++;

	if (ports && nic->next_port >= FAB_PORT + ports)
		nic->next_port = FAB_PORT;
	if (nic->next_port < 1024)
		nic->next_port = 1024;
	return port;
}

/* Takes the port in the endpoint's address, or a free port if that is 0.
 * Returns 0 or -FI_EADDRINUSE. */
static int ep_take_port(struct fab_ep *ep)
{
	struct fab_addr a = ep->addr;
	int i;

	if (a.port)
		return fab_ep_at(&a) ? -FI_EADDRINUSE : 0;
	for (i = 0; i < UINT16_MAX; i++) {
		a.port = ep_next_port(ep->nic);
		if (a.port && !fab_ep_at(&a)) {
			ep->addr = a;
			return 0;
		}
	}
	return -FI_EADDRINUSE;
}

static int ep_enable(struct fab_ep *ep)
{
	int ret;

	if (ep->enabled)
		return 0;
	if (!ep->av || (!ep->tx_cq && !ep->rx_cq))
		return -FI_ENOAV;
	if (ep->nic->fault.ep_refuse)
		return ep->nic->fault.ep_refuse;
	ret = ep_take_port(ep);
	if (ret)
		return ret;
	ep->enabled = true;
	tei_list_add_tail(&ep->nic->eps, &ep->link);
	SIM_TRACE(ep->addr.at.host, "endpoint", ep->id, ep->addr.at.nic,
		  ep->addr.port);
	return 0;
}

static void ep_bind_cq(struct fab_ep *ep, struct fab_cq *cq, uint64_t flags)
{
	if (flags & FI_TRANSMIT) {
		ep->tx_cq = cq;
		ep->tx_selective = flags & FI_SELECTIVE_COMPLETION;
		tei_list_add_tail(&cq->tx_eps, &ep->in_tx);
	}
	if (flags & FI_RECV) {
		ep->rx_cq = cq;
		ep->rx_selective = flags & FI_SELECTIVE_COMPLETION;
		if (ep->tx_cq != cq)
			tei_list_add_tail(&cq->rx_eps, &ep->in_rx);
	}
}

static int ep_bind(struct fid *fid, struct fid *to, uint64_t flags)
{
	struct fab_ep *ep = ep_of(fid);

	switch (to->fclass) {
	case FI_CLASS_AV:
		ep->av = tei_container_of(to, struct fab_av, fid.fid);
		tei_list_add_tail(&ep->av->eps, &ep->in_av);
		return 0;
	case FI_CLASS_CQ:
		ep_bind_cq(ep, tei_container_of(to, struct fab_cq, fid.fid),
			   flags);
		return 0;
	case FI_CLASS_EQ:
		return 0;
	case FI_CLASS_CNTR:
		if (flags & (FI_REMOTE_READ | FI_REMOTE_WRITE))
			ep->remote =
				tei_container_of(to, struct fab_cntr, fid.fid);
		return 0;
	default:
		return -FI_EINVAL;
	}
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	(void)arg;
	return command == FI_ENABLE ? ep_enable(ep_of(fid)) : -FI_ENOSYS;
}

/* --- closing --- */

static void (*ep_on_close)(const struct fid_ep *ep);

void sim_net_on_close(void (*fn)(const struct fid_ep *ep))
{
	ep_on_close = fn;
}

void fab_ep_stop(struct fab_ep *ep, bool inform)
{
	struct fab_recv *r, *next_r;
	struct fab_msg *m, *next_m;

	if (ep->dead)
		return;
	ep->dead = true;
	tei_list_del(&ep->link);
	while (!tei_list_empty(&ep->sides))
		fab_side_close(
			tei_list_first(&ep->sides, struct fab_side, link), 0,
			inform);
	fab_wire_clear(ep);
	tei_list_foreach_safe (m, next_m, &ep->unexpected, struct fab_msg,
			       waiting) {
		tei_list_del(&m->waiting);
		fab_msg_put(m);
	}
	tei_list_foreach_safe (r, next_r, &ep->recvs, struct fab_recv, link)
		free(r);
	tei_list_init(&ep->recvs);
	if (ep_on_close)
		ep_on_close(&ep->fid);
}

static void ep_drop(struct fab_obj *obj)
{
	struct fab_ep *ep = tei_container_of(obj, struct fab_ep, obj);

	fab_ep_stop(ep, true);
	fab_mr_unbind(ep);
	tei_list_del(&ep->in_tx);
	tei_list_del(&ep->in_rx);
	tei_list_del(&ep->in_av);
	if (ep->fd >= 0)
		fab_fd_close(ep->fd);
	ep->domain->neps--;
	fab_obj_del(obj);
	free(ep->by_peer);
	free(ep->by_addr);
	free(ep);
}

/* Waits for conf.close_ns before it closes the endpoint, because closing takes
 * time in reality. Until then, packets still arrive. */
static int ep_close(struct fid *fid)
{
	if (fab_net->conf.close_ns)
		sim_sleep_until(sim_now() + fab_net->conf.close_ns);
	ep_drop(&ep_of(fid)->obj);
	return 0;
}

static struct fi_ops ep_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = ep_close,
	.bind = ep_bind,
	.control = ep_control,
};

/* --- other calls --- */

static int ep_getname(struct fid *fid, void *addr, size_t *len)
{
	char text[FAB_ADDR_MAX];
	size_t n = fab_addr_write(&ep_of(fid)->addr, text), room = *len;

	memcpy(addr, text, n < room ? n : room);
	*len = n;
	return n > room ? -FI_ETOOSMALL : 0;
}

static struct fi_ops_cm ep_cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.getname = ep_getname,
};

/* Cancels a posted receive. Operations cannot be cancelled. */
static ssize_t ep_cancel(struct fid *fid, void *context)
{
	struct fab_ep *ep = ep_of(fid);
	struct fab_recv *r;

	tei_list_foreach (r, &ep->recvs, struct fab_recv, link) {
		if (r->context != context)
			continue;
		tei_list_del(&r->link);
		fab_recv_fail(ep, r, FI_ECANCELED);
		return 0;
	}
	return -FI_ENOENT;
}

static int ep_getopt(struct fid *fid, int level, int name, void *value,
		     size_t *len)
{
	(void)fid, (void)level, (void)name, (void)value, (void)len;
	return -FI_ENOPROTOOPT;
}

static int ep_setopt(struct fid *fid, int level, int name, const void *value,
		     size_t len)
{
	(void)fid, (void)level, (void)name, (void)value, (void)len;
	return -FI_ENOPROTOOPT;
}

static struct fi_ops_ep ep_ops = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = ep_cancel,
	.getopt = ep_getopt,
	.setopt = ep_setopt,
};

static void ep_init(struct fab_ep *ep, const struct fi_info *info,
		    void *context)
{
	ep->fid.fid.fclass = FI_CLASS_EP;
	ep->fid.fid.context = context;
	ep->fid.fid.ops = &ep_fid_ops;
	ep->fid.ops = &ep_ops;
	ep->fid.cm = &ep_cm_ops;
	ep->fid.msg = &fab_msg_ops;
	ep->fid.rma = &fab_rma_ops;
	ep->fid.tagged = &fab_tagged_ops;
	ep->tx_flags = info->tx_attr ? info->tx_attr->op_flags : 0;
	ep->rx_flags = info->rx_attr ? info->rx_attr->op_flags : 0;
	ep->fd = -1;
	tei_list_init(&ep->link);
	tei_list_init(&ep->in_tx);
	tei_list_init(&ep->in_rx);
	tei_list_init(&ep->in_av);
	tei_list_init(&ep->sides);
	tei_list_init(&ep->recvs);
	tei_list_init(&ep->unexpected);
	tei_list_init(&ep->inbox);
}

int fab_ep_open(struct fid_domain *domain, struct fi_info *info,
		struct fid_ep **out, void *context)
{
	struct fab_domain *d = tei_container_of(domain, struct fab_domain, fid);
	struct fab_addr addr = { .at = d->nic->at };
	struct fab_ep *ep;

	if (info->src_addr &&
	    (!fab_addr_read(info->src_addr, info->src_addrlen, &addr) ||
	     fab_nic_get(addr.at) != d->nic))
		return -FI_EADDRNOTAVAIL;
	ep = fab_alloc(sizeof(*ep));
	ep_init(ep, info, context);
	ep->domain = d;
	ep->nic = d->nic;
	ep->addr = addr;
	ep->id = ++fab_net->next_ep;
	d->neps++;
	fab_obj_add(&ep->obj, FAB_EP, ep_drop);
	*out = &ep->fid;
	return 0;
}
