/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls for remote memory access, and the keys of peers.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_av.h"
#include "prov/moonrail/moonrail_cq.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/moonrail/moonrail_msg.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_rma.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/list.h"

/* --- keys ---------------------------------------------------------------- */

/* Returns the object of the peer's key. If the key is new, creates the object
 * and requests the key's description from the peer. Returns NULL if memory is
 * short. */
static struct moonrail_key *rma_get_key(struct moonrail_peer *p, uint64_t key)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_key *k = moonrail_key_find(p, key);
	struct moonrail_out *o;

	if (k)
		return k;
	k = calloc(1, sizeof(*k));
	o = moonrail_out_new(MOONRAIL_WIRE_KEY, 0);
	if (!k || !o) {
		free(k);
		free(o);
		return NULL;
	}
	k->key = key;
	moonrail_key_add(p, k);
	o->wire.id = key;
	moonrail_stream_send(p, o);
	return k;
}

/* Returns true if the operation need not wait for keys: all keys are known, or
 * one is void, so that the operation will fail. Sets *bad to true if memory is
 * short. */
static bool rma_keys_known(struct moonrail_op *op, bool *bad)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_key *k;
	uint32_t i;
	bool known = true;

	*bad = false;
	if (!op->peer->rail || op->peer->err)
		return true;
	for (i = 0; i < op->nrma; i++) {
		k = rma_get_key(op->peer, op->rma[i].key);
		if (!k)
			*bad = true;
		else if (k->known && !k->access)
			return true;
		else
			known = known && k->known;
	}
	return known;
}

/* Copies a known key of the peer to *out. If the peer is this domain itself,
 * fills *out from the domain's registration with that key. */
static bool rma_know_key(struct moonrail_op *op, uint64_t key,
			 struct moonrail_key *out) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_domain *d = op->ep->domain;
	const struct moonrail_key *k;
	const struct moonrail_mr *mr;

	if (op->peer->rail) {
		k = moonrail_key_find(op->peer, key);
		if (k)
			*out = *k;
		return k;
	}
	mr = moonrail_mr_find(d, key);
	if (!mr)
		return false;
	out->base = (uintptr_t)mr->addr;
	out->len = mr->len;
	out->access = (uint32_t)(mr->access &
				 (FI_REMOTE_READ | FI_REMOTE_WRITE));
	out->virt_addr = d->virt_addr;
	out->events = d->counts;
	return true;
}

/* Checks remote range i against its key, and writes the address of the range in
 * the peer's memory to *at. Returns 0 or FI_E*. */
static int rma_place(struct moonrail_op *op, uint32_t i,
		     struct moonrail_wire_range *at)
	TEI_REQUIRES(moonrail_held)
{
	uint32_t want = op->write ? FI_REMOTE_WRITE : FI_REMOTE_READ;
	uint64_t off = op->rma[i].addr;
	struct moonrail_key k;

	if (!rma_know_key(op, op->rma[i].key, &k))
		return FI_EKEYREJECTED;
	if (k.virt_addr)
		off -= k.base;
	if (!(k.access & want) || off > k.len || op->rma[i].len > k.len - off)
		return FI_EACCES;
	at->addr = k.base + off;
	at->len = op->rma[i].len;
	op->event |= k.events;
	return 0;
}

/* Starts the move of an operation whose keys are known. */
static void rma_start(struct moonrail_op *op) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_wire_range at[MOONRAIL_IOV];
	uint32_t i;

	for (i = 0; i < op->nrma && !op->err; i++)
		op->err = rma_place(op, i, &at[i]);
	if (op->err)
		moonrail_op_done(op);
	else
		moonrail_move(op, at, op->nrma, !op->write);
}

/* Starts an operation now, or when the keys that it needs are known. */
static void rma_start_or_wait(struct moonrail_op *op)
	TEI_REQUIRES(moonrail_held)
{
	bool bad, known;

	moonrail_op_with(op, moonrail_peer_real(op->peer));
	/* read op->peer->err after rma_keys_known: its request for a key may
	 * have shown that the peer cannot be reached */
	known = rma_keys_known(op, &bad);
	if (bad || op->peer->err) {
		op->err = bad ? FI_ENOMEM : op->peer->err;
		moonrail_op_done(op);
	} else if (known) {
		rma_start(op);
	} else {
		tei_list_add_tail(&op->peer->ops.waiting_for_key, &op->link);
	}
}

bool moonrail_rma_key(struct moonrail_peer *p, const struct moonrail_wire *w,
		      const uint8_t *payload, uint32_t len)
{
	struct moonrail_key *k = moonrail_key_find(p, w->id);
	struct moonrail_op *op;
	struct tei_list todo;

	(void)payload, (void)len;
	if (!k)
		return true;
	if (w->op == MOONRAIL_WIRE_KEY_NOT || !w->n) {
		/* the void key is dropped below, and the next operation
		 * requests it again */
		k->access = 0;
		k->known = true;
	} else {
		k->access = w->n;
		k->base = w->tag;
		k->len = w->len;
		k->virt_addr = w->flags & MOONRAIL_WIRE_VIRTUAL;
		k->events = w->flags & MOONRAIL_WIRE_EVENTS;
		k->known = true;
	}
	tei_list_init(&todo);
	tei_list_splice_tail(&todo, &p->ops.waiting_for_key);
	while (!tei_list_empty(&todo)) {
		op = tei_list_first(&todo, struct moonrail_op, link);
		tei_list_del(&op->link);
		rma_start_or_wait(op);
	}
	if (!k->access)
		moonrail_key_drop(k);
	return true;
}

/* --- the end of an operation --------------------------------------------- */

static void rma_put_keys(const struct moonrail_op *op, uint8_t *to)
{
	uint64_t key;
	uint32_t i;

	for (i = 0; i < op->nrma; i++, to += sizeof(key)) {
		key = htole64(op->rma[i].key);
		memcpy(to, &key, sizeof(key));
	}
}

/* Sends DONE for an operation whose bytes are in place, if the peer needs DONE.
 * Returns true if the operation completes only when DONE is acknowledged. */
static bool rma_send_done(struct moonrail_op *op) TEI_REQUIRES(moonrail_held)
{
	bool waits = op->waits_for_done;
	struct moonrail_out *o;

	if (op->err || !(op->has_data || op->event))
		return false;
	o = moonrail_out_new(MOONRAIL_WIRE_DONE,
			     op->event ? op->nrma * 8 : 0);
	if (!o) {
		op->err = FI_ENOMEM;
		return false;
	}
	if (waits) {
		o->wire.flags |= MOONRAIL_WIRE_WANT_ACK;
		o->op = op;
	}
	if (op->event)
		rma_put_keys(op, moonrail_out_payload(o));
	if (op->has_data)
		o->wire.flags |= MOONRAIL_WIRE_HAS_DATA;
	if (!op->write)
		o->wire.flags |= MOONRAIL_WIRE_READ;
	o->wire.src_ep = op->ep->id;
	o->wire.dst_ep = op->src_ep;
	o->wire.data = op->data;
	o->wire.len = op->total;
	moonrail_stream_send(op->peer, o);
	return waits;
}

static void rma_moved(struct moonrail_op *op) TEI_REQUIRES(moonrail_held)
{
	if (!rma_send_done(op))
		moonrail_op_done(op);
}

/* Finds the remote ranges again, because keys may have been revoked while the
 * move waited for a bounce buffer. */
static void rma_restart(struct moonrail_op *op,
			const struct moonrail_wire_range *at, uint32_t n)
	TEI_REQUIRES(moonrail_held)
{
	(void)at, (void)n;
	rma_start_or_wait(op);
}

static const struct moonrail_op_type rma_type = {
	.kind = MOONRAIL_RMA,
	.moved = rma_moved,
	.restart = rma_restart,
	.answered = moonrail_op_end,
};

/* --- the target ----------------------------------------------------------- */

/* Writes a completion with the remote CQ data of a peer's write. */
static void rma_report_data(struct moonrail_ep *ep, struct moonrail_peer *p,
			    const struct moonrail_wire *w)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_entry e;

	if (!ep || ep->closing || !ep->rx_cq)
		return;
	memset(&e, 0, sizeof(e));
	e.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
	e.data = w->data;
	e.len = w->len;
	e.src = moonrail_av_find(ep->av, p, w->src_ep);
	moonrail_cq_add(ep->rx_cq, &e);
}

bool moonrail_rma_done(struct moonrail_peer *p, const struct moonrail_wire *w,
		       const uint8_t *payload, uint32_t len)
{
	struct moonrail_domain *d = p->domain;
	struct moonrail_ep *ep = moonrail_ep_find(d, w->dst_ep);
	uint32_t n = len / sizeof(uint64_t), i;
	uint64_t keys[MOONRAIL_IOV];
	bool read;

	if (moonrail_recv_too_soon(p, w, ep) &&
	    w->flags & MOONRAIL_WIRE_HAS_DATA)
		return false;
	if (w->flags & MOONRAIL_WIRE_HAS_DATA)
		rma_report_data(ep, p, w);
	if (!n || n > MOONRAIL_IOV)
		return true;
	memcpy(keys, payload, n * sizeof(keys[0]));
	for (i = 0; i < n; i++)
		keys[i] = le64toh(keys[i]);
	read = w->flags & MOONRAIL_WIRE_READ;
	moonrail_mr_count(d, ep, keys, n, read, !read);
	return true;
}

/* --- the calls ----------------------------------------------------------- */

struct rma_call {
	const struct iovec *iov;
	size_t niov;
	const struct fi_rma_iov *rma;
	size_t nrma;
	fi_addr_t addr;
	uint64_t data, flags;
	void *context;
	bool write, silent;
};

static int rma_fill(struct moonrail_op *op, const struct rma_call *c)
{
	uint64_t far = 0, off = 0;
	size_t i;

	for (i = 0; i < c->niov; i++) {
		op->iov[i] = c->iov[i];
		op->total += c->iov[i].iov_len;
	}
	for (i = 0; i < c->nrma; i++) {
		op->rma[i] = c->rma[i];
		if (c->rma[i].len > op->total - far)
			return -FI_EINVAL;	/* far + len would overflow or
						 * exceed the local length */
		far += c->rma[i].len;
	}
	if (far != op->total)
		return -FI_EINVAL;
	op->niov = (uint32_t)c->niov;
	op->nrma = (uint32_t)c->nrma;
	if (!c->write || !(c->flags & FI_INJECT))
		return 0;
	if (op->total > MOONRAIL_INJECT)
		return -FI_EINVAL;
	op->copy = malloc(op->total + 1);
	if (!op->copy)
		return -FI_ENOMEM;
	for (i = 0; i < c->niov; i++) {
		if (op->iov[i].iov_len)
			memcpy((char *)op->copy + off, op->iov[i].iov_base,
			       op->iov[i].iov_len);
		off += op->iov[i].iov_len;
	}
	op->niov = 1;
	op->iov[0].iov_base = op->copy;
	op->iov[0].iov_len = op->total;
	return 0;
}

static ssize_t rma_post(struct moonrail_ep *ep, const struct rma_call *c)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_av_entry *to = moonrail_av_get(ep->av, c->addr);
	struct moonrail_op *op;
	int ret;

	if (!to)
		return -FI_EINVAL;
	if (ep->ntx >= MOONRAIL_QUEUE || moonrail_fenced(to->peer, c->flags) ||
	    moonrail_order_waits(ep, to->peer, c->write ? MOONRAIL_CLASS_WRITE :
							 MOONRAIL_CLASS_READ))
		return -FI_EAGAIN;
	op = moonrail_op_to(ep, &rma_type, to->peer, c->context, c->flags,
			    c->silent);
	if (!op)
		return -FI_ENOMEM;
	op->write = c->write;
	op->flags = FI_RMA | (c->write ? FI_WRITE : FI_READ);
	op->has_data = c->write && c->flags & FI_REMOTE_CQ_DATA;
	op->waits_for_done =
		c->flags & (FI_TRANSMIT_COMPLETE | MOONRAIL_DELIVERED);
	op->data = c->data;
	op->src_ep = to->ep;
	ret = rma_fill(op, c);
	if (ret) {
		moonrail_op_free(op);
		return ret;
	}
	moonrail_op_begin(op);
	op->err = moonrail_av_err(to);
	if (op->err)
		moonrail_op_done(op);
	else
		rma_start_or_wait(op);
	return 0;
}

static ssize_t rma_call(struct fid_ep *fid, const struct rma_call *c)
{
	struct moonrail_ep *ep = tei_container_of(fid, struct moonrail_ep, fid);
	ssize_t ret;

	if (c->flags & MOONRAIL_REFUSED)
		return -FI_ENOSYS;
	if (c->niov > MOONRAIL_IOV || c->nrma > MOONRAIL_IOV)
		return -FI_EINVAL;
	if (moonrail_iov_too_long(c->iov, c->niov))
		return -FI_EMSGSIZE;
	ret = moonrail_ep_ready(ep, false);
	if (ret)
		return ret;
	moonrail_enter(ep->domain);
	ret = rma_post(ep, c);
	moonrail_leave(ep->domain);
	if (ret == -FI_EAGAIN)
		moonrail_progress(ep->domain);
	return ret;
}

static ssize_t rma_simple(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t addr, uint64_t at, uint64_t key,
			  uint64_t data, uint64_t flags, bool write,
			  bool silent, void *context)
{
	struct moonrail_ep *ep = tei_container_of(fid, struct moonrail_ep, fid);
	struct iovec iov = {
		.iov_base = (void *)(uintptr_t)buf, .iov_len = len,
	};
	struct fi_rma_iov rma = { .addr = at, .len = len, .key = key };
	struct rma_call c = {
		.iov = &iov, .niov = 1, .rma = &rma, .nrma = 1, .addr = addr,
		.data = data, .context = context, .write = write,
		.flags = flags | (silent ? FI_INJECT : ep->tx_flags),
		.silent = silent,
	};

	return rma_call(fid, &c);
}

static ssize_t rma_vector(struct fid_ep *fid, const struct iovec *iov,
			  size_t count, fi_addr_t addr, uint64_t at,
			  uint64_t key, bool write, void *context)
{
	struct moonrail_ep *ep = tei_container_of(fid, struct moonrail_ep, fid);
	struct fi_rma_iov rma = { .addr = at, .key = key };
	struct rma_call c = {
		.iov = iov, .niov = count, .rma = &rma, .nrma = 1,
		.addr = addr, .context = context, .write = write,
		.flags = ep->tx_flags,
	};
	size_t i;

	for (i = 0; i < count && i < MOONRAIL_IOV; i++)
		rma.len += iov[i].iov_len;
	return rma_call(fid, &c);
}

static ssize_t rma_read(struct fid_ep *fid, void *buf, size_t len, void *desc,
			fi_addr_t addr, uint64_t at, uint64_t key,
			void *context)
{
	(void)desc;
	return rma_simple(fid, buf, len, addr, at, key, 0, 0, false, false,
			  context);
}

static ssize_t rma_readv(struct fid_ep *fid, const struct iovec *iov,
			 void **desc, size_t count, fi_addr_t addr, uint64_t at,
			 uint64_t key, void *context)
{
	(void)desc;
	return rma_vector(fid, iov, count, addr, at, key, false, context);
}

static ssize_t rma_msg(struct fid_ep *fid, const struct fi_msg_rma *msg,
		       uint64_t flags, bool write)
{
	struct rma_call c = {
		.iov = msg->msg_iov, .niov = msg->iov_count,
		.rma = msg->rma_iov, .nrma = msg->rma_iov_count,
		.addr = msg->addr, .data = msg->data, .context = msg->context,
		.write = write,
		.flags = flags,
	};

	return rma_call(fid, &c);
}

static ssize_t rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			   uint64_t flags)
{
	return rma_msg(fid, msg, flags, false);
}

static ssize_t rma_write(struct fid_ep *fid, const void *buf, size_t len,
			 void *desc, fi_addr_t addr, uint64_t at, uint64_t key,
			 void *context)
{
	(void)desc;
	return rma_simple(fid, buf, len, addr, at, key, 0, 0, true, false,
			  context);
}

static ssize_t rma_writev(struct fid_ep *fid, const struct iovec *iov,
			  void **desc, size_t count, fi_addr_t addr,
			  uint64_t at, uint64_t key, void *context)
{
	(void)desc;
	return rma_vector(fid, iov, count, addr, at, key, true, context);
}

static ssize_t rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg,
			    uint64_t flags)
{
	return rma_msg(fid, msg, flags, true);
}

static ssize_t rma_inject(struct fid_ep *fid, const void *buf, size_t len,
			  fi_addr_t addr, uint64_t at, uint64_t key)
{
	return rma_simple(fid, buf, len, addr, at, key, 0, 0, true, true, NULL);
}

static ssize_t rma_writedata(struct fid_ep *fid, const void *buf, size_t len,
			     void *desc, uint64_t data, fi_addr_t addr,
			     uint64_t at, uint64_t key, void *context)
{
	(void)desc;
	return rma_simple(fid, buf, len, addr, at, key, data,
			  FI_REMOTE_CQ_DATA, true, false, context);
}

static ssize_t rma_injectdata(struct fid_ep *fid, const void *buf, size_t len,
			      uint64_t data, fi_addr_t addr, uint64_t at,
			      uint64_t key)
{
	return rma_simple(fid, buf, len, addr, at, key, data,
			  FI_REMOTE_CQ_DATA, true, true, NULL);
}

struct fi_ops_rma moonrail_rma_ops = {
	.size = sizeof(struct fi_ops_rma),
	.read = rma_read,
	.readv = rma_readv,
	.readmsg = rma_readmsg,
	.write = rma_write,
	.writev = rma_writev,
	.writemsg = rma_writemsg,
	.inject = rma_inject,
	.writedata = rma_writedata,
	.injectdata = rma_injectdata,
};
