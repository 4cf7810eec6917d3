/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls that send and receive messages, tagged or untagged.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_av.h"
#include "prov/moonrail/moonrail_bounce.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/moonrail/moonrail_msg.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_policy.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/list.h"

#define MSG_PEEK_FLAGS	(FI_PEEK | FI_CLAIM | FI_DISCARD)

/* The arguments of a call that sends or receives. */
struct msg_call {
	const struct iovec *iov;
	size_t niov;
	fi_addr_t addr;
	uint64_t tag, ignore, data, flags;
	void *context;
	bool tagged, silent;
};

static struct moonrail_ep *msg_ep(struct fid_ep *fid)
{
	return tei_container_of(fid, struct moonrail_ep, fid);
}

static uint64_t msg_total(const struct msg_call *c)
{
	uint64_t total = 0;
	size_t i;

	for (i = 0; i < c->niov; i++)
		total += c->iov[i].iov_len;
	return total;
}

static void msg_gather(const struct msg_call *c, uint8_t *to)
{
	size_t i;

	for (i = 0; i < c->niov; i++) {
		if (c->iov[i].iov_len)
			memcpy(to, c->iov[i].iov_base, c->iov[i].iov_len);
		to += c->iov[i].iov_len;
	}
}

/* --- sending ------------------------------------------------------------- */

static void msg_fill_wire(struct moonrail_wire *w, const struct moonrail_op *op,
			  const struct msg_call *c, uint32_t dst_ep)
{
	if (c->tagged)
		w->flags |= MOONRAIL_WIRE_TAGGED;
	if (c->flags & FI_REMOTE_CQ_DATA)
		w->flags |= MOONRAIL_WIRE_HAS_DATA;
	w->src_ep = op->ep->id;
	w->dst_ep = dst_ep;
	w->tag = c->tag;
	w->data = c->data;
	w->len = op->total;
	w->id = op->id;
}

/*
 * Sends a message of the application that fits into one message of the stream.
 * The bytes are copied. So the operation completes at once, unless its flags
 * request an acknowledgement of the peer.
 */
static int msg_send_eager(struct moonrail_op *op, const struct msg_call *c,
			  uint32_t dst_ep) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_out *o = moonrail_out_new(MOONRAIL_WIRE_DATA,
						  (uint32_t)op->total);
	struct moonrail_peer *p = op->peer;
	bool over = false;
	int ret;

	if (!o)
		return -FI_ENOMEM;
	o->policy = moonrail_policy(op->ep->domain, op->total);
	msg_fill_wire(&o->wire, op, c, dst_ep);
	msg_gather(c, moonrail_out_payload(o));
	if (c->flags & MOONRAIL_DELIVERED) {
		o->wire.flags |= MOONRAIL_WIRE_WANT_FIN;
		tei_list_add_tail(&p->ops.waiting, &op->link);
	} else if (c->flags & FI_TRANSMIT_COMPLETE) {
		o->wire.flags |= MOONRAIL_WIRE_WANT_ACK;
		o->op = op;
	} else {
		over = true;
	}
	ret = moonrail_stream_send(p, o);
	if (ret)
		tei_list_del(&op->link);
	if (ret || !over)
		return ret;
	op->err = p->err;
	moonrail_op_done(op);
	return 0;
}

/* Pins the buffers of an announced message. moonrail_op_free unpins them. */
static int msg_pin(struct moonrail_op *op, const struct msg_call *c)
	TEI_REQUIRES(moonrail_held)
{
	size_t i;
	int ret;

	if (c->niov > MOONRAIL_IOV)
		return -FI_EINVAL;
	for (i = 0; i < c->niov; i++) {
		if (!c->iov[i].iov_len)
			continue;
		ret = moonrail_pin(op->ep->domain, c->iov[i].iov_base,
				   c->iov[i].iov_len, false);
		if (ret)
			return ret;
		op->iov[op->npin++] = c->iov[i];
	}
	return 0;
}

/* Announces a message. The peer reads its bytes when a receive matches the
 * message. */
static int msg_send_large(struct moonrail_op *op, const struct msg_call *c,
			  uint32_t dst_ep) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_wire_range at[MOONRAIL_IOV];
	const struct iovec *from = op->iov;
	struct moonrail_out *o;
	struct iovec bounce;
	uint32_t n = 1, i;
	int ret;

	ret = moonrail_bounce_send(op, c->iov, c->niov, &bounce);
	if (ret < 0)
		return ret;
	if (ret) {
		from = &bounce;
	} else {
		ret = msg_pin(op, c);
		if (ret)
			return ret;
		n = op->npin;
	}
	o = moonrail_out_new(MOONRAIL_WIRE_RTS, n * (uint32_t)sizeof(at[0]));
	if (!o)
		return -FI_ENOMEM;
	msg_fill_wire(&o->wire, op, c, dst_ep);
	for (i = 0; i < n; i++) {
		at[i].addr = htole64((uintptr_t)from[i].iov_base);
		at[i].len = htole64(from[i].iov_len);
	}
	memcpy(moonrail_out_payload(o), at, n * sizeof(at[0]));
	tei_list_add_tail(&op->peer->ops.waiting, &op->link);
	ret = moonrail_stream_send(op->peer, o);
	if (!ret)
		return 0;
	tei_list_del(&op->link);
	op->released = true;		/* the announcement was not sent, so the
					 * peer does not read the bytes */
	return ret;
}

static ssize_t msg_post(struct moonrail_ep *ep, const struct msg_call *c)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_av_entry *to = moonrail_av_get(ep->av, c->addr);
	struct moonrail_op *op;
	int ret = 0;

	if (!to)
		return -FI_EINVAL;
	if (ep->ntx >= MOONRAIL_QUEUE ||
	    moonrail_flow_waiting(to->peer, to->ep) >= MOONRAIL_QUEUE ||
	    moonrail_fenced(to->peer, c->flags) ||
	    moonrail_order_waits(ep, to->peer, MOONRAIL_CLASS_SEND))
		return -FI_EAGAIN;
	op = moonrail_op_to(ep, &moonrail_send_type, to->peer, c->context,
			    c->flags, c->silent);
	if (!op)
		return -FI_ENOMEM;
	op->flags = FI_SEND | (c->tagged ? FI_TAGGED : FI_MSG);
	op->total = msg_total(c);
	op->id = ++ep->domain->next_id;
	moonrail_op_begin(op);
	if (c->flags & FI_INJECT && op->total > MOONRAIL_INJECT)
		ret = -FI_EINVAL;
	else if (moonrail_av_err(to))
		moonrail_op_end(op, moonrail_av_err(to));
	else if (to->refused)
		moonrail_op_end(op, FI_ECONNREFUSED);
	else if (op->total <= MOONRAIL_EAGER)
		ret = msg_send_eager(op, c, to->ep);
	else
		ret = msg_send_large(op, c, to->ep);
	if (ret) {
		moonrail_op_undo(op);
		moonrail_op_free(op);
	}
	return ret;
}

static ssize_t msg_send_call(struct fid_ep *fid, const struct msg_call *c)
{
	struct moonrail_ep *ep = msg_ep(fid);
	ssize_t ret;

	if (c->flags & MOONRAIL_REFUSED)
		return -FI_ENOSYS;
	if (c->niov > MOONRAIL_IOV)
		return -FI_EINVAL;
	if (moonrail_iov_too_long(c->iov, c->niov))
		return -FI_EMSGSIZE;
	ret = moonrail_ep_ready(ep, false);
	if (ret)
		return ret;
	moonrail_enter(ep->domain);
	ret = msg_post(ep, c);
	moonrail_leave(ep->domain);
	if (!ret && msg_total(c) > MOONRAIL_EAGER)
		moonrail_pin_trim(ep->domain);
	if (ret == -FI_EAGAIN)
		moonrail_progress(ep->domain);
	return ret;
}

static ssize_t msg_simple(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t addr, struct msg_call *c)
{
	struct iovec iov = {
		.iov_base = (void *)(uintptr_t)buf, .iov_len = len,
	};

	c->iov = &iov;
	c->niov = 1;
	c->addr = addr;
	if (c->silent)
		c->flags |= FI_INJECT;
	else
		c->flags |= msg_ep(fid)->tx_flags;
	return msg_send_call(fid, c);
}

const struct moonrail_op_type moonrail_send_type = {
	.kind = MOONRAIL_SEND,
	.answered = moonrail_op_end,
};

/* --- receiving ----------------------------------------------------------- */

static ssize_t msg_post_recv(struct moonrail_ep *ep, const struct msg_call *c)
	TEI_REQUIRES(moonrail_held)
{
	const struct moonrail_av_entry *from = NULL;
	struct moonrail_op *op;
	size_t i;
	int ret = 0;

	if (c->addr != FI_ADDR_UNSPEC && ep->caps & FI_DIRECTED_RECV) {
		from = moonrail_av_get(ep->av, c->addr);
		if (!from)
			return -FI_EINVAL;
	}
	if (ep->nrx >= MOONRAIL_RECVS)
		return -FI_EAGAIN;
	op = moonrail_op_new(ep, &moonrail_recv_type, c->context);
	if (!op)
		return -FI_ENOMEM;
	op->unsignaled = ep->rx_selective && !(c->flags & FI_COMPLETION);
	op->flags = FI_RECV | (c->tagged ? FI_TAGGED : FI_MSG) |
		    (c->flags & FI_MULTI_RECV);
	/* take the peer from the address now, because the address may be
	 * removed and reused later */
	if (from) {
		op->from = from->peer;
		moonrail_peer_use(op->from);
		op->from_ep = from->ep;
	}
	op->tag = c->tag;
	op->ignore = c->ignore;
	op->niov = (uint32_t)c->niov;
	for (i = 0; i < c->niov; i++)
		op->iov[i] = c->iov[i];
	op->total = msg_total(c);
	ep->nrx++;
	if (c->flags & MSG_PEEK_FLAGS)
		ret = moonrail_recv_peek(op, c->tagged, c->flags);
	else
		moonrail_recv_post(op, c->tagged);
	if (ret) {
		ep->nrx--;
		moonrail_op_free(op);
	}
	return ret;
}

static ssize_t msg_recv_call(struct fid_ep *fid, const struct msg_call *c)
{
	struct moonrail_ep *ep = msg_ep(fid);
	ssize_t ret;

	if (c->flags & MOONRAIL_REFUSED)
		return -FI_ENOSYS;
	if (c->niov > MOONRAIL_IOV)
		return -FI_EINVAL;
	if (c->flags & FI_MULTI_RECV &&
	    (c->niov != 1 || c->tagged || c->flags & MSG_PEEK_FLAGS))
		return -FI_EINVAL;
	ret = moonrail_ep_ready(ep, true);
	if (ret)
		return ret;
	moonrail_enter(ep->domain);
	ret = msg_post_recv(ep, c);
	moonrail_leave(ep->domain);
	return ret;
}

static ssize_t msg_simple_recv(struct fid_ep *fid, void *buf, size_t len,
			       fi_addr_t addr, struct msg_call *c)
{
	struct iovec iov = { .iov_base = buf, .iov_len = len };

	c->iov = &iov;
	c->niov = 1;
	c->addr = addr;
	c->flags |= msg_ep(fid)->rx_flags;
	if (c->tagged)
		c->flags &= ~FI_MULTI_RECV;
	return msg_recv_call(fid, c);
}

/* --- fi_msg -------------------------------------------------------------- */

static ssize_t msg_recv(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t addr, void *context)
{
	struct msg_call c = { .context = context };

	(void)desc;
	return msg_simple_recv(fid, buf, len, addr, &c);
}

static ssize_t msg_recvv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t addr,
			 void *context)
{
	struct msg_call c = {
		.iov = iov, .niov = count, .addr = addr, .context = context,
		.flags = msg_ep(fid)->rx_flags,
	};

	(void)desc;
	return msg_recv_call(fid, &c);
}

static ssize_t msg_recvmsg(struct fid_ep *fid, const struct fi_msg *msg,
			   uint64_t flags)
{
	struct msg_call c = {
		.iov = msg->msg_iov, .niov = msg->iov_count, .addr = msg->addr,
		.context = msg->context, .flags = flags,
	};

	return msg_recv_call(fid, &c);
}

static ssize_t msg_send(struct fid_ep *fid, const void *buf, size_t len,
			void *desc, fi_addr_t addr, void *context)
{
	struct msg_call c = { .context = context };

	(void)desc;
	return msg_simple(fid, buf, len, addr, &c);
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t addr,
			 void *context)
{
	struct msg_call c = {
		.iov = iov, .niov = count, .addr = addr, .context = context,
		.flags = msg_ep(fid)->tx_flags,
	};

	(void)desc;
	return msg_send_call(fid, &c);
}

static ssize_t msg_sendmsg(struct fid_ep *fid, const struct fi_msg *msg,
			   uint64_t flags)
{
	struct msg_call c = {
		.iov = msg->msg_iov, .niov = msg->iov_count, .addr = msg->addr,
		.context = msg->context, .flags = flags, .data = msg->data,
	};

	return msg_send_call(fid, &c);
}

static ssize_t msg_inject(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t addr)
{
	struct msg_call c = { .silent = true };

	return msg_simple(fid, buf, len, addr, &c);
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *buf, size_t len,
			    void *desc, uint64_t data, fi_addr_t addr,
			    void *context)
{
	struct msg_call c = {
		.context = context, .data = data, .flags = FI_REMOTE_CQ_DATA,
	};

	(void)desc;
	return msg_simple(fid, buf, len, addr, &c);
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *buf, size_t len,
			      uint64_t data, fi_addr_t addr)
{
	struct msg_call c = {
		.silent = true, .data = data, .flags = FI_REMOTE_CQ_DATA,
	};

	return msg_simple(fid, buf, len, addr, &c);
}

struct fi_ops_msg moonrail_msg_ops = {
	.size = sizeof(struct fi_ops_msg),
	.recv = msg_recv,
	.recvv = msg_recvv,
	.recvmsg = msg_recvmsg,
	.send = msg_send,
	.sendv = msg_sendv,
	.sendmsg = msg_sendmsg,
	.inject = msg_inject,
	.senddata = msg_senddata,
	.injectdata = msg_injectdata,
};

/* --- fi_tagged ----------------------------------------------------------- */

static ssize_t msg_trecv(struct fid_ep *fid, void *buf, size_t len, void *desc,
			 fi_addr_t addr, uint64_t tag, uint64_t ignore,
			 void *context)
{
	struct msg_call c = {
		.context = context, .tag = tag, .ignore = ignore,
		.tagged = true,
	};

	(void)desc;
	return msg_simple_recv(fid, buf, len, addr, &c);
}

static ssize_t msg_trecvv(struct fid_ep *fid, const struct iovec *iov,
			  void **desc, size_t count, fi_addr_t addr,
			  uint64_t tag, uint64_t ignore, void *context)
{
	struct msg_call c = {
		.iov = iov, .niov = count, .addr = addr, .context = context,
		.tag = tag, .ignore = ignore, .tagged = true,
		.flags = msg_ep(fid)->rx_flags & ~FI_MULTI_RECV,
	};

	(void)desc;
	return msg_recv_call(fid, &c);
}

static ssize_t msg_trecvmsg(struct fid_ep *fid,
			    const struct fi_msg_tagged *msg, uint64_t flags)
{
	struct msg_call c = {
		.iov = msg->msg_iov, .niov = msg->iov_count, .addr = msg->addr,
		.context = msg->context, .flags = flags, .tag = msg->tag,
		.ignore = msg->ignore, .tagged = true,
	};

	return msg_recv_call(fid, &c);
}

static ssize_t msg_tsend(struct fid_ep *fid, const void *buf, size_t len,
			 void *desc, fi_addr_t addr, uint64_t tag,
			 void *context)
{
	struct msg_call c = {
		.context = context, .tag = tag, .tagged = true,
	};

	(void)desc;
	return msg_simple(fid, buf, len, addr, &c);
}

static ssize_t msg_tsendv(struct fid_ep *fid, const struct iovec *iov,
			  void **desc, size_t count, fi_addr_t addr,
			  uint64_t tag, void *context)
{
	struct msg_call c = {
		.iov = iov, .niov = count, .addr = addr, .context = context,
		.tag = tag, .tagged = true, .flags = msg_ep(fid)->tx_flags,
	};

	(void)desc;
	return msg_send_call(fid, &c);
}

static ssize_t msg_tsendmsg(struct fid_ep *fid,
			    const struct fi_msg_tagged *msg, uint64_t flags)
{
	struct msg_call c = {
		.iov = msg->msg_iov, .niov = msg->iov_count, .addr = msg->addr,
		.context = msg->context, .flags = flags, .data = msg->data,
		.tag = msg->tag, .tagged = true,
	};

	return msg_send_call(fid, &c);
}

static ssize_t msg_tinject(struct fid_ep *fid, const void *buf, size_t len,
			   fi_addr_t addr, uint64_t tag)
{
	struct msg_call c = { .silent = true, .tag = tag, .tagged = true };

	return msg_simple(fid, buf, len, addr, &c);
}

static ssize_t msg_tsenddata(struct fid_ep *fid, const void *buf, size_t len,
			     void *desc, uint64_t data, fi_addr_t addr,
			     uint64_t tag, void *context)
{
	struct msg_call c = {
		.context = context, .data = data, .flags = FI_REMOTE_CQ_DATA,
		.tag = tag, .tagged = true,
	};

	(void)desc;
	return msg_simple(fid, buf, len, addr, &c);
}

static ssize_t msg_tinjectdata(struct fid_ep *fid, const void *buf, size_t len,
			       uint64_t data, fi_addr_t addr, uint64_t tag)
{
	struct msg_call c = {
		.silent = true, .data = data, .flags = FI_REMOTE_CQ_DATA,
		.tag = tag, .tagged = true,
	};

	return msg_simple(fid, buf, len, addr, &c);
}

struct fi_ops_tagged moonrail_tagged_ops = {
	.size = sizeof(struct fi_ops_tagged),
	.recv = msg_trecv,
	.recvv = msg_trecvv,
	.recvmsg = msg_trecvmsg,
	.send = msg_tsend,
	.sendv = msg_tsendv,
	.sendmsg = msg_tsendmsg,
	.inject = msg_tinject,
	.senddata = msg_tsenddata,
	.injectdata = msg_tinjectdata,
};
