/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

static struct fab_cq *cq_of(struct fid_cq *fid)
{
	return tei_container_of(fid, struct fab_cq, fid);
}

void fab_cq_notify(struct fab_cq *cq)
{
	if (cq->fd >= 0)
		fab_fd_fire(cq->fd);
}

bool fab_cq_ready(const struct fab_cq *cq)
{
	const struct fab_ep *ep;

	if (!tei_list_empty(&cq->comps))
		return true;
	tei_list_foreach (ep, &cq->tx_eps, struct fab_ep, in_tx)
		if (!tei_list_empty(&ep->inbox))
			return true;
	tei_list_foreach (ep, &cq->rx_eps, struct fab_ep, in_rx)
		if (!tei_list_empty(&ep->inbox))
			return true;
	return false;
}

static void cq_late(void *arg)
{
	struct fab_comp *c = arg;

	c->due = 0;
	tei_list_del(&c->link);
	tei_list_add_tail(&c->cq->comps, &c->link);
	fab_cq_notify(c->cq);
}

void fab_cq_add(struct fab_cq *cq, const struct fi_cq_err_entry *e,
		uint64_t delay_ns)
{
	struct fab_comp *c = fab_alloc(sizeof(*c));

	c->cq = cq;
	c->e = *e;
	fab_net->stats.completions++;
	fab_net->stats.errors += e->err != 0;
	if (delay_ns) {
		tei_list_add_tail(&cq->late, &c->link);
		c->due = sim_at(sim_now() + delay_ns, cq_late, c);
		return;
	}
	tei_list_add_tail(&cq->comps, &c->link);
	fab_cq_notify(cq);
}

static void cq_write(const struct fab_cq *cq, const struct fi_cq_err_entry *e,
		     void *buf, size_t i)
{
	const struct fi_cq_tagged_entry entry = {
		.op_context = e->op_context,
		.flags = e->flags,
		.len = e->len,
		.buf = e->buf,
		.data = e->data,
		.tag = e->tag,
	};
	/* the structs of all formats begin with the same members, so a shorter
	 * one is a part of the longest one */
	static const size_t size[] = {
		[FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry),
		[FI_CQ_FORMAT_MSG] = sizeof(struct fi_cq_msg_entry),
		[FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry),
		[FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry),
	};

	memcpy((char *)buf + i * size[cq->format], &entry, size[cq->format]);
}

static void cq_progress(struct fab_cq *cq)
{
	struct fab_ep *ep;

	tei_list_foreach (ep, &cq->tx_eps, struct fab_ep, in_tx)
		fab_wire_progress(ep);
	tei_list_foreach (ep, &cq->rx_eps, struct fab_ep, in_rx)
		fab_wire_progress(ep);
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	struct fab_cq *cq = cq_of(fid);
	struct fab_comp *c;
	size_t n = 0;

	cq_progress(cq);
	while (n < count && !tei_list_empty(&cq->comps)) {
		c = tei_list_first(&cq->comps, struct fab_comp, link);
		if (c->e.err)
			break;
		cq_write(cq, &c->e, buf, n++);
		tei_list_del(&c->link);
		free(c);
	}
	if (n)
		return (ssize_t)n;
	return tei_list_empty(&cq->comps) ? -FI_EAGAIN : -FI_EAVAIL;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count,
			   fi_addr_t *src)
{
	size_t i;

	for (i = 0; i < count; i++)
		src[i] = FI_ADDR_NOTAVAIL;
	return cq_read(fid, buf, count);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf,
			  uint64_t flags)
{
	struct fab_cq *cq = cq_of(fid);
	struct fab_comp *c;

	(void)flags;
	if (tei_list_empty(&cq->comps))
		return -FI_EAGAIN;
	c = tei_list_first(&cq->comps, struct fab_comp, link);
	if (!c->e.err)
		return -FI_EAGAIN;
	*buf = c->e;
	tei_list_del(&c->link);
	free(c);
	return 1;
}

/* Returns at once, because no call of the simulated fabric sleeps. */
static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count,
			const void *cond, int timeout)
{
	(void)cond, (void)timeout;
	return cq_read(fid, buf, count);
}

static int cq_signal(struct fid_cq *fid)
{
	fab_cq_notify(cq_of(fid));
	return 0;
}

static const char *cq_strerror(struct fid_cq *fid, int prov_errno,
			       const void *data, char *buf, size_t len)
{
	(void)fid, (void)data;
	snprintf(buf, len, "%s", fi_strerror(prov_errno));
	return buf;
}

static struct fi_ops_cq cq_ops = {
	.size = sizeof(struct fi_ops_cq),
	.read = cq_read,
	.readfrom = cq_readfrom,
	.readerr = cq_readerr,
	.sread = cq_sread,
	.signal = cq_signal,
	.strerror = cq_strerror,
};

static void cq_free_list(struct tei_list *list)
{
	struct fab_comp *c, *tmp;

	tei_list_foreach_safe (c, tmp, list, struct fab_comp, link) {
		if (c->due)
			sim_cancel(c->due);
		free(c);
	}
}

static void cq_drop(struct fab_obj *obj)
{
	struct fab_cq *cq = tei_container_of(obj, struct fab_cq, obj);

	fab_obj_del(obj);
	if (cq->fd >= 0)
		fab_fd_close(cq->fd);
	cq_free_list(&cq->comps);
	cq_free_list(&cq->late);
	free(cq);
}

static int cq_close(struct fid *fid)
{
	struct fab_cq *cq = tei_container_of(fid, struct fab_cq, fid.fid);

	if (!tei_list_empty(&cq->tx_eps) || !tei_list_empty(&cq->rx_eps))
		return -FI_EBUSY;
	cq_drop(&cq->obj);
	return 0;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	struct fab_cq *cq = tei_container_of(fid, struct fab_cq, fid.fid);

	if (command != FI_GETWAIT || cq->fd < 0)
		return -FI_ENOSYS;
	*(int *)arg = cq->fd;
	return 0;
}

static struct fi_ops cq_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = cq_close,
	.control = cq_control,
};

int fab_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
		struct fid_cq **out, void *context)
{
	struct fab_cq *cq;

	(void)domain;
	if (attr->wait_obj != FI_WAIT_NONE &&
	    attr->wait_obj != FI_WAIT_UNSPEC &&
	    (attr->wait_obj != FI_WAIT_FD || !fab_net->conf.wait_fd))
		return -FI_ENOSYS;
	cq = fab_alloc(sizeof(*cq));
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = &cq_fid_ops;
	cq->fid.ops = &cq_ops;
	cq->format = attr->format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_CONTEXT
							 : attr->format;
	tei_list_init(&cq->comps);
	tei_list_init(&cq->late);
	tei_list_init(&cq->tx_eps);
	tei_list_init(&cq->rx_eps);
	cq->fd = attr->wait_obj == FI_WAIT_FD ? fab_fd_new(FAB_FD_CQ, cq) : -1;
	fab_obj_add(&cq->obj, FAB_CQ, cq_drop);
	*out = &cq->fid;
	return 0;
}

int fab_trywait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	int i;

	(void)fabric;
	for (i = 0; i < count; i++)
		if (fids[i]->fclass == FI_CLASS_CQ &&
		    fab_cq_ready(
			    tei_container_of(fids[i], struct fab_cq, fid.fid)))
			return -FI_EAGAIN;
	return 0;
}
