/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Atomics: requests are messages of the stream. The target executes them in the
 * order of the stream, and each only once. The answers are messages of the
 * stream too.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_amo.h"
#include "prov/moonrail/moonrail_av.h"
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

/* A range of elements at the target, in the format of the message. The operands
 * follow after the last range, then the compare values. */
struct atomic_place {
	uint64_t addr, count, key;
};
_Static_assert(sizeof(struct atomic_place) == 24, "wire");
_Static_assert(MOONRAIL_IOV * sizeof(struct atomic_place) +
	       2 * MOONRAIL_AMO_MAX <= MOONRAIL_EAGER, "wire");

/* --- target -------------------------------------------------------------- */

/* A request that is being executed. */
struct atomic_in {
	struct moonrail_domain *domain;
	struct atomic_place place[MOONRAIL_IOV];
	char *at[MOONRAIL_IOV];
	uint32_t n;
	enum moonrail_amo_kind kind;
	enum fi_datatype type;
	enum fi_op op;
	size_t size;
	uint64_t total;			/* number of elements of the
					 * operation */
	const uint8_t *operand, *compare;
};

/* Finds the memory of range i and checks the access. Returns 0, or FI_E* if the
 * access is refused. */
static int atomic_find(struct atomic_in *in, uint32_t i)
	TEI_REQUIRES(moonrail_held)
{
	const struct atomic_place *p = &in->place[i];
	const struct moonrail_mr *mr = moonrail_mr_find(in->domain, p->key);
	uint64_t need = 0, off = p->addr, len = p->count * in->size;

	if (in->op != FI_ATOMIC_READ)
		need |= FI_REMOTE_WRITE;
	if (in->kind != MOONRAIL_AMO_BASE)
		need |= FI_REMOTE_READ;
	if (!mr)
		return FI_EKEYREJECTED;
	if (in->domain->virt_addr)
		off -= (uintptr_t)mr->addr;
	if ((mr->access & need) != need || off > mr->len || len > mr->len - off)
		return FI_EACCES;
	in->at[i] = mr->addr + off;
	return 0;
}

/* Parses a request into *in. Returns false if it is malformed. */
static bool atomic_parse(struct atomic_in *in, const struct moonrail_wire *w,
			 const uint8_t *payload, uint32_t len)
{
	uint64_t bytes, heads = w->n * sizeof(struct atomic_place);
	uint32_t i;

	in->kind = (enum moonrail_amo_kind)(w->tag >> 32);
	in->type = (enum fi_datatype)(w->tag >> 16 & 0xffff);
	in->op = (enum fi_op)(w->tag & 0xffff);
	in->size = w->tag >> 32 > MOONRAIL_AMO_COMPARE ? 0 :
		   moonrail_amo_size(in->kind, in->type, in->op);
	in->n = w->n;
	if (!in->size || w->n > MOONRAIL_IOV || heads > len)
		return false;
	memcpy(in->place, payload, heads);
	for (i = 0; i < w->n; i++) {
		in->place[i].addr = le64toh(in->place[i].addr);
		in->place[i].count = le64toh(in->place[i].count);
		in->place[i].key = le64toh(in->place[i].key);
		if (in->place[i].count > MOONRAIL_AMO_MAX)
			return false;
		in->total += in->place[i].count;
	}
	bytes = in->total * in->size;
	in->operand = payload + heads;
	in->compare = in->operand + bytes;
	if (bytes > MOONRAIL_AMO_MAX)
		return false;
	if (in->op == FI_ATOMIC_READ)
		return len == heads;
	return len == heads + bytes *
			(in->kind == MOONRAIL_AMO_COMPARE ? 2 : 1);
}

static int atomic_execute(struct atomic_in *in, uint8_t *old)
	TEI_REQUIRES(moonrail_held)
{
	uint64_t done = 0, k;
	uint32_t i;
	int err = 0;

	for (i = 0; i < in->n && !err; i++)
		err = atomic_find(in, i);
	for (i = 0; i < in->n && !err; i++) {
		for (k = 0; k < in->place[i].count; k++, done += in->size)
			moonrail_amo_run(in->type, in->op,
					 in->at[i] + k * in->size,
					 in->operand + done,
					 in->compare + done, old + done);
	}
	return err;
}

static void atomic_count_in(const struct atomic_in *in, uint32_t dst_ep)
	TEI_REQUIRES(moonrail_held)
{
	uint64_t keys[MOONRAIL_IOV];
	uint32_t i;

	for (i = 0; i < in->n; i++)
		keys[i] = in->place[i].key;
	moonrail_mr_count(in->domain, moonrail_ep_find(in->domain, dst_ep),
			  keys, in->n, in->kind != MOONRAIL_AMO_BASE,
			  in->op != FI_ATOMIC_READ);
}

/* Executes a request. The answer is allocated first, because an atomic that was
 * executed must be answered. */
bool moonrail_atomic_in(struct moonrail_peer *p, const struct moonrail_wire *w,
			const uint8_t *payload, uint32_t len)
{
	struct atomic_in in = { .domain = p->domain };
	uint8_t old[MOONRAIL_AMO_MAX];
	struct moonrail_out *o;
	bool good = atomic_parse(&in, w, payload, len);
	uint32_t back = good && in.kind != MOONRAIL_AMO_BASE ?
				(uint32_t)(in.total * in.size) : 0;

	o = moonrail_out_new(MOONRAIL_WIRE_ATOMIC_REP, back);
	if (!o)
		return false;
	o->wire.id = w->id;
	o->wire.n = good ? (uint32_t)atomic_execute(&in, old) : FI_EINVAL;
	if (o->wire.n)
		memset(old, 0, back);
	else
		atomic_count_in(&in, w->dst_ep);
	memcpy(moonrail_out_payload(o), old, back);
	moonrail_stream_send(p, o);
	return true;
}

/* --- initiator ----------------------------------------------------------- */

bool moonrail_atomic_answer(struct moonrail_peer *p,
			    const struct moonrail_wire *w,
			    const uint8_t *payload, uint32_t len)
{
	struct moonrail_op *op;
	uint32_t i;

	tei_list_foreach(op, &p->ops.waiting, struct moonrail_op, link) {
		if (op->kind != MOONRAIL_ATOMIC || op->id != w->id)
			continue;
		tei_list_del(&op->link);
		op->err = moonrail_wire_err(w->n);
		if (!op->err && len != op->total)
			op->err = FI_EIO;
		for (i = 0; i < op->niov && !op->err; i++) {
			if (op->iov[i].iov_len)
				memcpy(op->iov[i].iov_base, payload,
				       op->iov[i].iov_len);
			payload += op->iov[i].iov_len;
		}
		moonrail_op_done(op);
		break;
	}
	return true;
}

static const struct moonrail_op_type atomic_type = {
	.kind = MOONRAIL_ATOMIC,
	.answered = moonrail_op_end,
};

/* The arguments of an atomic call of the application. */
struct atomic_call {
	enum moonrail_amo_kind kind;
	enum fi_datatype type;
	enum fi_op op;
	const struct fi_ioc *iov, *compare;
	const struct fi_ioc *result;
	size_t niov, ncompare, nresult;
	const struct fi_rma_ioc *rma;
	size_t nrma;
	fi_addr_t to;
	uint64_t flags;
	void *context;
	bool silent;
};

/* Returns true if the iov entries hold exactly total elements. Subtracts each
 * count from total instead of adding the counts, because their sum could
 * overflow. */
static bool atomic_hold(const struct fi_ioc *iov, size_t n, uint64_t total)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (iov[i].count > total)
			return false;
		total -= iov[i].count;
	}
	return !total;
}

/* Copies the elements of the iov entries to "to". Returns the address after the
 * last copied byte. */
static uint8_t *atomic_gather(uint8_t *to, const struct fi_ioc *iov, size_t n,
			      size_t size)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (iov[i].count)
			memcpy(to, iov[i].addr, iov[i].count * size);
		to += iov[i].count * size;
	}
	return to;
}

/* Checks the arguments of a call. Returns the number of elements of the call,
 * or -FI_E*. */
static ssize_t atomic_check(const struct atomic_call *c, size_t *size)
{
	uint64_t total = 0;
	size_t i;

	if (c->flags & MOONRAIL_REFUSED)
		return -FI_ENOSYS;
	*size = moonrail_amo_size(c->kind, c->type, c->op);
	if (!*size)
		return -FI_EOPNOTSUPP;
	if (c->niov > MOONRAIL_IOV || c->ncompare > MOONRAIL_IOV ||
	    c->nresult > MOONRAIL_IOV || c->nrma > MOONRAIL_IOV ||
	    c->flags & FI_REMOTE_CQ_DATA)
		return -FI_EINVAL;
	for (i = 0; i < c->nrma; i++) {
		if (c->rma[i].count > MOONRAIL_AMO_MAX)
			return -FI_EMSGSIZE;
		total += c->rma[i].count;
	}
	if (total * *size > MOONRAIL_AMO_MAX)
		return -FI_EMSGSIZE;
	if ((c->op != FI_ATOMIC_READ && !atomic_hold(c->iov, c->niov, total)) ||
	    (c->kind == MOONRAIL_AMO_COMPARE &&
	     !atomic_hold(c->compare, c->ncompare, total)) ||
	    (c->kind != MOONRAIL_AMO_BASE &&
	     !atomic_hold(c->result, c->nresult, total)))
		return -FI_EINVAL;
	if (c->flags & FI_INJECT && total * *size > MOONRAIL_INJECT)
		return -FI_EINVAL;
	return (ssize_t)total;
}

static struct moonrail_out *atomic_message(const struct atomic_call *c,
					   uint64_t bytes, size_t size)
{
	uint32_t heads = (uint32_t)(c->nrma * sizeof(struct atomic_place));
	uint64_t len = heads;
	struct atomic_place p;
	struct moonrail_out *o;
	uint8_t *to;
	size_t i;

	if (c->op != FI_ATOMIC_READ)
		len += c->kind == MOONRAIL_AMO_COMPARE ? 2 * bytes : bytes;
	o = moonrail_out_new(MOONRAIL_WIRE_ATOMIC, (uint32_t)len);
	if (!o)
		return NULL;
	o->wire.n = (uint32_t)c->nrma;
	o->wire.tag = (uint64_t)c->kind << 32 | (uint64_t)c->type << 16 |
		      (uint64_t)c->op;
	to = moonrail_out_payload(o);
	for (i = 0; i < c->nrma; i++, to += sizeof(p)) {
		p.addr = htole64(c->rma[i].addr);
		p.count = htole64(c->rma[i].count);
		p.key = htole64(c->rma[i].key);
		memcpy(to, &p, sizeof(p));
	}
	if (c->op == FI_ATOMIC_READ)
		return o;
	to = atomic_gather(to, c->iov, c->niov, size);
	if (c->kind == MOONRAIL_AMO_COMPARE)
		atomic_gather(to, c->compare, c->ncompare, size);
	return o;
}

static void atomic_fill(struct moonrail_op *op, const struct atomic_call *c,
			size_t size)
{
	bool base = c->kind == MOONRAIL_AMO_BASE;
	size_t i;

	op->flags = FI_ATOMIC | (base ? FI_WRITE : FI_READ);
	op->write = base;
	op->id = ++op->ep->domain->next_id;
	for (i = 0; i < c->nresult; i++) {
		op->iov[i].iov_base = c->result[i].addr;
		op->iov[i].iov_len = c->result[i].count * size;
		op->total += op->iov[i].iov_len;
	}
	op->niov = (uint32_t)c->nresult;
}

static ssize_t atomic_post(struct moonrail_ep *ep, const struct atomic_call *c,
			   uint64_t total, size_t size)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_av_entry *to = moonrail_av_get(ep->av, c->to);
	struct moonrail_out *o;
	struct moonrail_op *op;
	int ret;

	if (!to)
		return -FI_EINVAL;
	if (ep->ntx >= MOONRAIL_QUEUE ||
	    tei_channel_out_unsent(&to->peer->out.channel) >= MOONRAIL_QUEUE ||
	    moonrail_fenced(to->peer, c->flags) ||
	    moonrail_order_waits(ep, to->peer, MOONRAIL_CLASS_ATOMIC))
		return -FI_EAGAIN;
	op = moonrail_op_to(ep, &atomic_type, to->peer, c->context,
			    c->flags, c->silent);
	o = op ? atomic_message(c, total * size, size) : NULL;
	if (!o) {
		if (op)
			moonrail_op_free(op);
		return -FI_ENOMEM;
	}
	atomic_fill(op, c, size);
	o->wire.id = op->id;
	o->wire.src_ep = ep->id;
	o->wire.dst_ep = to->ep;
	moonrail_op_begin(op);
	op->err = moonrail_av_err(to);
	if (op->err) {
		free(o);
		moonrail_op_done(op);
		return 0;
	}
	tei_list_add_tail(&op->peer->ops.waiting, &op->link);
	ret = moonrail_stream_send(op->peer, o);
	if (ret) {
		tei_list_del(&op->link);
		moonrail_op_undo(op);
		moonrail_op_free(op);
	}
	return ret;
}

static ssize_t atomic_call(struct fid_ep *fid, const struct atomic_call *c)
{
	struct moonrail_ep *ep = tei_container_of(fid, struct moonrail_ep, fid);
	ssize_t total, ret;
	size_t size;

	total = atomic_check(c, &size);
	if (total < 0)
		return total;
	ret = moonrail_ep_ready(ep, false);
	if (ret)
		return ret;
	moonrail_enter(ep->domain);
	ret = atomic_post(ep, c, (uint64_t)total, size);
	moonrail_leave(ep->domain);
	if (ret == -FI_EAGAIN)
		moonrail_progress(ep->domain);
	return ret;
}

/* --- the calls ----------------------------------------------------------- */

static uint64_t atomic_flags(struct fid_ep *fid)
{
	return tei_container_of(fid, struct moonrail_ep, fid)->tx_flags;
}

/* Returns the number of elements. The sum may overflow, so atomic_check checks
 * each entry. */
static uint64_t atomic_sum(const struct fi_ioc *iov, size_t n)
{
	uint64_t total = 0;
	size_t i;

	for (i = 0; i < n; i++)
		total += iov[i].count;
	return total;
}

/* Executes a call with one remote range, which has as many elements as the
 * local ranges. */
static ssize_t atomic_at(struct fid_ep *fid, struct atomic_call *c,
			 uint64_t addr, uint64_t key)
{
	struct fi_rma_ioc rma = { .addr = addr, .key = key };

	rma.count = c->op == FI_ATOMIC_READ ?
			    atomic_sum(c->result, c->nresult) :
			    atomic_sum(c->iov, c->niov);
	c->rma = &rma;
	c->nrma = 1;
	c->flags = c->silent ? FI_INJECT : atomic_flags(fid);
	return atomic_call(fid, c);
}

static ssize_t atomic_writev(struct fid_ep *ep, const struct fi_ioc *iov,
			     void **desc, size_t count, fi_addr_t to,
			     uint64_t addr, uint64_t key,
			     enum fi_datatype type, enum fi_op op,
			     void *context)
{
	struct atomic_call c = {
		.type = type, .op = op, .iov = iov, .niov = count, .to = to,
		.context = context,
	};

	(void)desc;
	return atomic_at(ep, &c, addr, key);
}

static ssize_t atomic_write(struct fid_ep *ep, const void *buf, size_t count,
			    void *desc, fi_addr_t to, uint64_t addr,
			    uint64_t key, enum fi_datatype type, enum fi_op op,
			    void *context)
{
	struct fi_ioc iov = {
		.addr = (void *)(uintptr_t)buf, .count = count,
	};

	(void)desc;
	return atomic_writev(ep, &iov, NULL, 1, to, addr, key, type, op,
			     context);
}

static ssize_t atomic_inject(struct fid_ep *ep, const void *buf, size_t count,
			     fi_addr_t to, uint64_t addr, uint64_t key,
			     enum fi_datatype type, enum fi_op op)
{
	struct fi_ioc iov = {
		.addr = (void *)(uintptr_t)buf, .count = count,
	};
	struct atomic_call c = {
		.type = type, .op = op, .iov = &iov, .niov = 1, .to = to,
		.silent = true,
	};

	return atomic_at(ep, &c, addr, key);
}

static void atomic_from_msg(struct atomic_call *c,
			    const struct fi_msg_atomic *msg, uint64_t flags)
{
	c->type = msg->datatype;
	c->op = msg->op;
	c->iov = msg->msg_iov;
	c->niov = msg->op == FI_ATOMIC_READ ? 0 : msg->iov_count;
	c->rma = msg->rma_iov;
	c->nrma = msg->rma_iov_count;
	c->to = msg->addr;
	c->context = msg->context;
	c->flags = flags;
}

static ssize_t atomic_writemsg(struct fid_ep *ep,
			       const struct fi_msg_atomic *msg, uint64_t flags)
{
	struct atomic_call c = { .kind = MOONRAIL_AMO_BASE };

	atomic_from_msg(&c, msg, flags);
	return atomic_call(ep, &c);
}

static ssize_t atomic_readwritev(struct fid_ep *ep, const struct fi_ioc *iov,
				 void **desc, size_t count,
				 struct fi_ioc *resultv, void **result_desc,
				 size_t result_count, fi_addr_t to,
				 uint64_t addr, uint64_t key,
				 enum fi_datatype type, enum fi_op op,
				 void *context)
{
	struct atomic_call c = {
		.kind = MOONRAIL_AMO_FETCH, .type = type, .op = op, .iov = iov,
		.niov = op == FI_ATOMIC_READ ? 0 : count, .result = resultv,
		.nresult = result_count, .to = to, .context = context,
	};

	(void)desc, (void)result_desc;
	return atomic_at(ep, &c, addr, key);
}

static ssize_t atomic_readwrite(struct fid_ep *ep, const void *buf,
				size_t count, void *desc, void *result,
				void *result_desc, fi_addr_t to, uint64_t addr,
				uint64_t key, enum fi_datatype type,
				enum fi_op op, void *context)
{
	struct fi_ioc iov = {
		.addr = (void *)(uintptr_t)buf, .count = count,
	};
	struct fi_ioc back = { .addr = result, .count = count };

	(void)desc, (void)result_desc;
	return atomic_readwritev(ep, &iov, NULL, 1, &back, NULL, 1, to, addr,
				 key, type, op, context);
}

static ssize_t atomic_readwritemsg(struct fid_ep *ep,
				   const struct fi_msg_atomic *msg,
				   struct fi_ioc *resultv, void **result_desc,
				   size_t result_count, uint64_t flags)
{
	struct atomic_call c = {
		.kind = MOONRAIL_AMO_FETCH, .result = resultv,
		.nresult = result_count,
	};

	(void)result_desc;
	atomic_from_msg(&c, msg, flags);
	return atomic_call(ep, &c);
}

static ssize_t atomic_compwritev(struct fid_ep *ep, const struct fi_ioc *iov,
				 void **desc, size_t count,
				 const struct fi_ioc *comparev,
				 void **compare_desc, size_t compare_count,
				 struct fi_ioc *resultv, void **result_desc,
				 size_t result_count, fi_addr_t to,
				 uint64_t addr, uint64_t key,
				 enum fi_datatype type, enum fi_op op,
				 void *context)
{
	struct atomic_call c = {
		.kind = MOONRAIL_AMO_COMPARE, .type = type, .op = op,
		.iov = iov, .niov = count, .compare = comparev,
		.ncompare = compare_count, .result = resultv,
		.nresult = result_count, .to = to, .context = context,
	};

	(void)desc, (void)compare_desc, (void)result_desc;
	return atomic_at(ep, &c, addr, key);
}

static ssize_t atomic_compwrite(struct fid_ep *ep, const void *buf,
				size_t count, void *desc, const void *compare,
				void *compare_desc, void *result,
				void *result_desc, fi_addr_t to, uint64_t addr,
				uint64_t key, enum fi_datatype type,
				enum fi_op op, void *context)
{
	struct fi_ioc iov = {
		.addr = (void *)(uintptr_t)buf, .count = count,
	};
	struct fi_ioc with = {
		.addr = (void *)(uintptr_t)compare, .count = count,
	};
	struct fi_ioc back = { .addr = result, .count = count };

	(void)desc, (void)compare_desc, (void)result_desc;
	return atomic_compwritev(ep, &iov, NULL, 1, &with, NULL, 1, &back,
				 NULL, 1, to, addr, key, type, op, context);
}

static ssize_t atomic_compwritemsg(struct fid_ep *ep,
				   const struct fi_msg_atomic *msg,
				   const struct fi_ioc *comparev,
				   void **compare_desc, size_t compare_count,
				   struct fi_ioc *resultv, void **result_desc,
				   size_t result_count, uint64_t flags)
{
	struct atomic_call c = {
		.kind = MOONRAIL_AMO_COMPARE, .compare = comparev,
		.ncompare = compare_count, .result = resultv,
		.nresult = result_count,
	};

	(void)compare_desc, (void)result_desc;
	atomic_from_msg(&c, msg, flags);
	return atomic_call(ep, &c);
}

/* --- valid operations ---------------------------------------------------- */

static int atomic_valid(enum moonrail_amo_kind kind, enum fi_datatype type,
			enum fi_op op, size_t *count)
{
	size_t size = moonrail_amo_size(kind, type, op);

	if (!size)
		return -FI_EOPNOTSUPP;
	*count = MOONRAIL_AMO_MAX / size;
	return 0;
}

static int atomic_write_valid(struct fid_ep *ep, enum fi_datatype type,
			      enum fi_op op, size_t *count)
{
	(void)ep;
	return atomic_valid(MOONRAIL_AMO_BASE, type, op, count);
}

static int atomic_fetch_valid(struct fid_ep *ep, enum fi_datatype type,
			      enum fi_op op, size_t *count)
{
	(void)ep;
	return atomic_valid(MOONRAIL_AMO_FETCH, type, op, count);
}

static int atomic_compare_valid(struct fid_ep *ep, enum fi_datatype type,
				enum fi_op op, size_t *count)
{
	(void)ep;
	return atomic_valid(MOONRAIL_AMO_COMPARE, type, op, count);
}

int moonrail_atomic_query(struct fid_domain *domain, enum fi_datatype type,
			  enum fi_op op, struct fi_atomic_attr *attr,
			  uint64_t flags)
{
	enum moonrail_amo_kind kind = flags & FI_COMPARE_ATOMIC ?
			MOONRAIL_AMO_COMPARE : flags & FI_FETCH_ATOMIC ?
			MOONRAIL_AMO_FETCH : MOONRAIL_AMO_BASE;

	(void)domain;
	if (flags & ~(FI_COMPARE_ATOMIC | FI_FETCH_ATOMIC))
		return -FI_EOPNOTSUPP;
	if (flags == (FI_COMPARE_ATOMIC | FI_FETCH_ATOMIC))
		return -FI_EINVAL;
	attr->size = moonrail_amo_size(kind, type, op);
	return atomic_valid(kind, type, op, &attr->count);
}

struct fi_ops_atomic moonrail_atomic_ops = {
	.size = sizeof(struct fi_ops_atomic),
	.write = atomic_write,
	.writev = atomic_writev,
	.writemsg = atomic_writemsg,
	.inject = atomic_inject,
	.readwrite = atomic_readwrite,
	.readwritev = atomic_readwritev,
	.readwritemsg = atomic_readwritemsg,
	.compwrite = atomic_compwrite,
	.compwritev = atomic_compwritev,
	.compwritemsg = atomic_compwritemsg,
	.writevalid = atomic_write_valid,
	.readwritevalid = atomic_fetch_valid,
	.compwritevalid = atomic_compare_valid,
};
