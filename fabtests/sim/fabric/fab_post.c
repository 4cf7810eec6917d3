/* SPDX-License-Identifier: BSD-2-Clause */
/* Posting of operations and receives, and the end of operations. */

#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

#define POST_ACKED \
	(FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE | FI_COMMIT_COMPLETE)

/* The parameters of an operation that the caller posts. */
struct post {
	enum fab_msg_kind kind;
	const struct iovec *iov;
	size_t niov;
	void **desc; /* NULL, or one descriptor (fi_mr_desc) per entry */
	const struct fi_rma_iov *rma;
	size_t nrma;
	fi_addr_t addr;
	uint64_t flags;
	void *context;
	bool tagged;
	uint64_t tag, data;
	bool inject; /* the bytes are copied at once, and a success is not
		      * reported as a completion */
};

static struct fab_ep *post_ep(struct fid_ep *fid)
{
	return tei_container_of(fid, struct fab_ep, fid);
}

static uint64_t post_len(const struct iovec *iov, size_t n)
{
	uint64_t len = 0;
	size_t i;

	for (i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len;
}

/* Checks the parameters of an operation. Returns 0 or -FI_E*. */
static ssize_t post_check(const struct fab_ep *ep, const struct post *p)
{
	uint64_t access = p->kind == FAB_READ ? FI_READ : FI_WRITE;
	uint64_t len = post_len(p->iov, p->niov), there = 0;
	size_t i;

	if (!ep->enabled || ep->dead || !ep->tx_cq)
		return -FI_EOPBADSTATE;
	if (p->niov > fab_net->conf.iov_limit ||
	    p->nrma > fab_net->conf.rma_iov_limit ||
	    len > fab_net->conf.max_msg_size ||
	    (p->flags & FI_INJECT && len > fab_net->conf.inject_size))
		return -FI_EINVAL;
	for (i = 0; i < p->nrma; i++)
		there += p->rma[i].len;
	if (p->kind != FAB_SEND && there != len)
		return -FI_EINVAL;
	if (p->kind == FAB_SEND)
		access = FI_SEND;
	for (i = 0; i < p->niov && !(p->flags & FI_INJECT); i++)
		if (!fab_mr_local(ep->domain, p->desc ? p->desc[i] : NULL,
				  p->iov[i].iov_base, p->iov[i].iov_len,
				  access))
			return -FI_EINVAL;
	if (p->addr >= ep->av->n || !ep->av->addrs[p->addr].port)
		return -FI_EINVAL;
	return 0;
}

/* Returns true if a fault of the NIC makes the post fail with -FI_EAGAIN. */
static bool post_again(struct fab_nic *nic)
{
	return nic->fault.again_ns > sim_now() &&
	       sim_rng_chance(&nic->fault_rng, nic->fault.again_ppm);
}

/* Returns the endpoint's side of the connection to an address. If there is no
 * connection, starts to connect. */
static struct fab_side *post_side(struct fab_ep *ep, fi_addr_t addr)
{
	const struct fab_addr *to = &ep->av->addrs[addr];
	struct fab_side *s;

	if (addr < ep->nby_addr && ep->by_addr[addr])
		return ep->by_addr[addr];
	s = fab_conn_find(ep, to);
	if (!s)
		s = fab_conn_start(ep, to);
	fab_ep_remember(ep, addr, s);
	return s;
}

static struct fab_msg *post_msg(struct fab_side *s, const struct post *p)
{
	struct fab_msg *m = fab_alloc(sizeof(*m));
	uint64_t off = 0;
	size_t i;

	m->refs = 2; /* one reference of the operation, one of the queue */
	m->kind = p->kind;
	m->number = ++s->next_msg;
	m->len = post_len(p->iov, p->niov);
	m->niov = p->niov;
	m->nrma = p->nrma;
	m->tagged = p->tagged;
	m->tag = p->tag;
	m->has_data = p->flags & FI_REMOTE_CQ_DATA;
	m->data = p->data;
	m->acked = p->flags & POST_ACKED || fab_net->conf.auto_progress;
	for (i = 0; i < p->niov; i++)
		m->iov[i] = p->iov[i];
	for (i = 0; i < p->nrma; i++)
		m->rma[i] = p->rma[i];
	if (p->flags & FI_INJECT && m->len) {
		m->copy = fab_alloc(m->len);
		for (i = 0; i < p->niov; off += p->iov[i++].iov_len)
			memcpy(m->copy + off, p->iov[i].iov_base,
			       p->iov[i].iov_len);
		m->iov[0].iov_base = m->copy;
		m->iov[0].iov_len = m->len;
		m->niov = 1;
	}
	tei_list_init(&m->link);
	tei_list_init(&m->coming);
	tei_list_init(&m->waiting);
	return m;
}

static uint64_t post_comp_flags(const struct post *p)
{
	if (p->kind == FAB_SEND)
		return FI_SEND | (p->tagged ? FI_TAGGED : FI_MSG);
	return FI_RMA | (p->kind == FAB_READ ? FI_READ : FI_WRITE);
}

static ssize_t post(struct fid_ep *fid, const struct post *p)
{
	struct fab_ep *ep = post_ep(fid);
	ssize_t ret = post_check(ep, p);
	struct fab_side *s;
	struct fab_op *op;

	if (ret)
		return ret;
	if (post_again(ep->nic) || ep->tx_used >= fab_net->conf.tx_size)
		return -FI_EAGAIN;
	s = post_side(ep, p->addr);
	if (s->shut ||
	    (s->state == FAB_SIDE_CONNECTING && !fab_net->conf.post_connects))
		return -FI_EAGAIN;
	op = fab_alloc(sizeof(*op));
	op->ep = ep;
	op->side = s;
	op->context = p->context;
	op->flags = post_comp_flags(p);
	op->quiet =
		p->inject || (ep->tx_selective && !(p->flags & FI_COMPLETION));
	op->msg = post_msg(s, p);
	op->msg->op = op;
	ep->tx_used++;
	fab_net->stats.operations++;
	tei_list_add_tail(&s->ops, &op->link);
	tei_list_add_tail(&s->queue, &op->msg->link);
	SIM_TRACE(ep->addr.at.host, "post", s->conn->id, op->msg->number,
		  p->kind, op->msg->len);
	fab_wire_want(s);
	return 0;
}

/* --- the end of operations --- */

/* Applies the faults of the NIC to the completion of a sent operation. Returns
 * false if the completion is lost. Sets *err if the completion becomes an
 * error. Sets *late_ns if it is delayed. */
static bool post_fault(struct fab_nic *nic, bool rma, int *err,
		       uint64_t *late_ns)
{
	struct sim_net_fault *f = &nic->fault;

	if (f->late_ns && sim_rng_chance(&nic->fault_rng, f->late_ppm))
		*late_ns = f->late_ns;
	if (f->lose) {
		f->lose--;
		return false;
	}
	if (f->flush && !*err) {
		f->flush--;
		*err = fab_conn_error();
	}
	if (rma && fab_net->conf.error_ppm && !*err &&
	    sim_rng_chance(&nic->fault_rng, fab_net->conf.error_ppm))
		*err = fab_conn_error();
	return true;
}

void fab_op_end(struct fab_op *op, int err, bool report)
{
	struct fi_cq_err_entry e = {
		.op_context = op->context,
		.flags = op->flags,
		.len = op->msg->len,
	};
	struct fab_ep *ep = op->ep;
	struct fab_side *s = op->side;
	struct fab_conn *c = s->conn;
	uint64_t late_ns = 0;
	bool broken;

	SIM_TRACE(ep->addr.at.host, "end", c->id, op->msg->number, err, report);
	e.err = err;
	tei_list_del(&op->link);
	ep->tx_used--;
	fab_net->stats.operations--;
	if (op->quiet && !err)
		report = false;
	if (report &&
	    !post_fault(ep->nic, op->flags & FI_RMA, &e.err, &late_ns))
		report = false;
	broken = report && e.err && !err;
	if (report) {
		e.prov_errno = e.err;
		if (e.err)
			e.len = 0;
		fab_cq_add(ep->tx_cq, &e, late_ns);
	}
	op->msg->op = NULL;
	fab_msg_put(op->msg);
	free(op);
	if (broken)
		fab_side_close(s, e.err, true);
}

/* --- receives --- */

static ssize_t post_recv(struct fid_ep *fid, const struct iovec *iov, size_t n,
			 void **desc, void *context, bool tagged, uint64_t tag,
			 uint64_t ignore)
{
	struct fab_ep *ep = post_ep(fid);
	struct fab_recv *r;
	size_t i;

	if (!ep->enabled || ep->dead || !ep->rx_cq)
		return -FI_EOPBADSTATE;
	if (n > fab_net->conf.iov_limit)
		return -FI_EINVAL;
	for (i = 0; i < n; i++)
		if (!fab_mr_local(ep->domain, desc ? desc[i] : NULL,
				  iov[i].iov_base, iov[i].iov_len, FI_RECV))
			return -FI_EINVAL;
	if (ep->rx_used >= fab_net->conf.rx_size)
		return -FI_EAGAIN;
	r = fab_alloc(sizeof(*r));
	for (i = 0; i < n; i++)
		r->iov[i] = iov[i];
	r->niov = n;
	r->len = post_len(iov, n);
	r->context = context;
	r->tagged = tagged;
	r->tag = tag;
	r->ignore = ignore;
	ep->rx_used++;
	tei_list_add_tail(&ep->recvs, &r->link);
	fab_recv_start(ep);
	return 0;
}

static ssize_t msg_recv(struct fid_ep *ep, void *buf, size_t len, void *desc,
			fi_addr_t src, void *context)
{
	struct iovec iov = { buf, len };

	(void)src;
	return post_recv(ep, &iov, 1, &desc, context, false, 0, 0);
}

static ssize_t msg_recvv(struct fid_ep *ep, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t src,
			 void *context)
{
	(void)src;
	return post_recv(ep, iov, count, desc, context, false, 0, 0);
}

static ssize_t msg_recvmsg(struct fid_ep *ep, const struct fi_msg *msg,
			   uint64_t flags)
{
	(void)flags;
	return post_recv(ep, msg->msg_iov, msg->iov_count, msg->desc,
			 msg->context, false, 0, 0);
}

static ssize_t tagged_recv(struct fid_ep *ep, void *buf, size_t len, void *desc,
			   fi_addr_t src, uint64_t tag, uint64_t ignore,
			   void *context)
{
	struct iovec iov = { buf, len };

	(void)src;
	return post_recv(ep, &iov, 1, &desc, context, true, tag, ignore);
}

/* --- sends --- */

static ssize_t post_send(struct fid_ep *ep, const void *buf, size_t len,
			 void *desc, uint64_t data, fi_addr_t dest,
			 void *context, uint64_t flags, bool inject)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct post p = {
		.kind = FAB_SEND,
		.iov = &iov,
		.niov = 1,
		.desc = &desc,
		.addr = dest,
		.flags = flags,
		.context = context,
		.data = data,
		.inject = inject,
	};

	return post(ep, &p);
}

static ssize_t msg_send(struct fid_ep *ep, const void *buf, size_t len,
			void *desc, fi_addr_t dest, void *context)
{
	return post_send(ep, buf, len, desc, 0, dest, context,
			 post_ep(ep)->tx_flags, false);
}

static ssize_t msg_senddata(struct fid_ep *ep, const void *buf, size_t len,
			    void *desc, uint64_t data, fi_addr_t dest,
			    void *context)
{
	return post_send(ep, buf, len, desc, data, dest, context,
			 post_ep(ep)->tx_flags | FI_REMOTE_CQ_DATA, false);
}

static ssize_t msg_inject(struct fid_ep *ep, const void *buf, size_t len,
			  fi_addr_t dest)
{
	return post_send(ep, buf, len, NULL, 0, dest, NULL, FI_INJECT, true);
}

static ssize_t msg_sendv(struct fid_ep *ep, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t dest,
			 void *context)
{
	struct post p = {
		.kind = FAB_SEND,
		.iov = iov,
		.niov = count,
		.desc = desc,
		.addr = dest,
		.flags = post_ep(ep)->tx_flags,
		.context = context,
	};

	return post(ep, &p);
}

static ssize_t msg_sendmsg(struct fid_ep *ep, const struct fi_msg *msg,
			   uint64_t flags)
{
	struct post p = {
		.kind = FAB_SEND,
		.iov = msg->msg_iov,
		.niov = msg->iov_count,
		.desc = msg->desc,
		.addr = msg->addr,
		.flags = flags,
		.context = msg->context,
		.data = msg->data,
	};

	return post(ep, &p);
}

struct fi_ops_msg fab_msg_ops = {
	.size = sizeof(struct fi_ops_msg),
	.recv = msg_recv,
	.recvv = msg_recvv,
	.recvmsg = msg_recvmsg,
	.send = msg_send,
	.sendv = msg_sendv,
	.sendmsg = msg_sendmsg,
	.inject = msg_inject,
	.senddata = msg_senddata,
};

static ssize_t tagged_send(struct fid_ep *ep, const void *buf, size_t len,
			   void *desc, fi_addr_t dest, uint64_t tag,
			   void *context)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct post p = {
		.kind = FAB_SEND,
		.iov = &iov,
		.niov = 1,
		.desc = &desc,
		.addr = dest,
		.flags = post_ep(ep)->tx_flags,
		.context = context,
		.tagged = true,
		.tag = tag,
	};

	return post(ep, &p);
}

struct fi_ops_tagged fab_tagged_ops = {
	.size = sizeof(struct fi_ops_tagged),
	.recv = tagged_recv,
	.send = tagged_send,
};

/* --- reads and writes --- */

static ssize_t post_rma(struct fid_ep *ep, enum fab_msg_kind kind,
			const struct fi_msg_rma *msg, uint64_t flags,
			bool inject)
{
	struct post p = {
		.kind = kind,
		.iov = msg->msg_iov,
		.niov = msg->iov_count,
		.desc = msg->desc,
		.rma = msg->rma_iov,
		.nrma = msg->rma_iov_count,
		.addr = msg->addr,
		.flags = flags,
		.context = msg->context,
		.data = msg->data,
		.inject = inject,
	};

	return post(ep, &p);
}

static ssize_t post_rma_one(struct fid_ep *ep, enum fab_msg_kind kind,
			    const void *buf, size_t len, void *desc,
			    fi_addr_t dest, uint64_t addr, uint64_t key,
			    void *context, uint64_t flags, bool inject)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct fi_rma_iov rma = { addr, len, key };
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.addr = dest,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = context,
	};

	return post_rma(ep, kind, &msg, flags, inject);
}

static ssize_t rma_read(struct fid_ep *ep, void *buf, size_t len, void *desc,
			fi_addr_t src, uint64_t addr, uint64_t key,
			void *context)
{
	return post_rma_one(ep, FAB_READ, buf, len, desc, src, addr, key,
			    context, post_ep(ep)->tx_flags, false);
}

static ssize_t rma_write(struct fid_ep *ep, const void *buf, size_t len,
			 void *desc, fi_addr_t dest, uint64_t addr,
			 uint64_t key, void *context)
{
	return post_rma_one(ep, FAB_WRITE, buf, len, desc, dest, addr, key,
			    context, post_ep(ep)->tx_flags, false);
}

static ssize_t rma_inject(struct fid_ep *ep, const void *buf, size_t len,
			  fi_addr_t dest, uint64_t addr, uint64_t key)
{
	return post_rma_one(ep, FAB_WRITE, buf, len, NULL, dest, addr, key,
			    NULL, FI_INJECT, true);
}

static ssize_t rma_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg,
			   uint64_t flags)
{
	return post_rma(ep, FAB_READ, msg, flags, false);
}

static ssize_t rma_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg,
			    uint64_t flags)
{
	return post_rma(ep, FAB_WRITE, msg, flags, false);
}

struct fi_ops_rma fab_rma_ops = {
	.size = sizeof(struct fi_ops_rma),
	.read = rma_read,
	.readmsg = rma_readmsg,
	.write = rma_write,
	.writemsg = rma_writemsg,
	.inject = rma_inject,
};
