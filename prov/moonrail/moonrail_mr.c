/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory registrations of the application. Peers refer to them by key.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_cq.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_fabric.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/moonrail/moonrail_wire.h"
#include "topo/tei_topo.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/log.h"
#include "util/secret.h"

#define MR_ACK_NS	(2 * TEI_NS_PER_SEC)	/* longest wait for
						 * acknowledgements of messages
						 * about keys */
#define MR_OVERLAP_NS	(TEI_NS_PER_MS / 5)	/* interval of retries while an
						 * overlapping range is being
						 * unregistered */

struct moonrail_mr *moonrail_mr_find(struct moonrail_domain *d, uint64_t key)
{
	struct moonrail_mr *mr;

	tei_list_foreach(mr, moonrail_bucket(d->mrs, key), struct moonrail_mr, link)
		if (mr->key == key)
			return mr;
	return NULL;
}

bool moonrail_mr_send_key(struct moonrail_peer *p, uint64_t key)
{
	struct moonrail_mr *mr = moonrail_mr_find(p->domain, key);
	struct moonrail_out *o = moonrail_out_new(MOONRAIL_WIRE_KEY_IS, 0);

	if (!o)
		return false;
	o->wire.id = key;
	if (mr) {
		o->wire.n = (uint32_t)(mr->access & (FI_REMOTE_READ |
						     FI_REMOTE_WRITE));
		o->wire.tag = (uintptr_t)mr->addr;
		o->wire.len = mr->len;
		if (p->domain->virt_addr)
			o->wire.flags |= MOONRAIL_WIRE_VIRTUAL;
		if (p->domain->counts)
			o->wire.flags |= MOONRAIL_WIRE_EVENTS;
		mr->known_to++;
	}
	moonrail_stream_send(p, o);
	return true;
}

bool moonrail_mr_query(struct moonrail_peer *p, const struct moonrail_wire *w,
		       const uint8_t *payload, uint32_t len)
{
	(void)payload, (void)len;
	return moonrail_mr_send_key(p, w->id);
}

/* Returns true if the peer may know keys of this domain and receives
 * messages. */
static bool mr_reaches(const struct moonrail_peer *p)
{
	return !p->replaced_by && (!p->err || p->resumes) && p->incarnation &&
	       p->rail;
}

/* Counts one operation in the counters of a registration. If one counter is
 * bound for both reads and writes, an operation that reads and writes is
 * counted once. */
static void mr_count_one(const struct moonrail_mr *mr, bool reads, bool writes)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_cntr *of_reads = reads ? mr->cntr[0] : NULL;
	struct moonrail_cntr *of_writes = writes ? mr->cntr[1] : NULL;

	if (of_reads)
		moonrail_cntr_add(of_reads, true);
	if (of_writes && of_writes != of_reads)
		moonrail_cntr_add(of_writes, true);
}

void moonrail_mr_count(struct moonrail_domain *d, const struct moonrail_ep *ep,
		       const uint64_t *keys, uint32_t n, bool reads,
		       bool writes)
{
	struct moonrail_cntr *c = ep && !ep->closing ?
		ep->cntr[reads ? MOONRAIL_CNTR_REMOTE_READ :
				 MOONRAIL_CNTR_REMOTE_WRITE] : NULL;
	struct moonrail_mr *mr;
	uint32_t i, k;

	if (c)
		moonrail_cntr_add(c, true);
	for (i = 0; i < n; i++) {
		for (k = 0; k < i && keys[k] != keys[i]; k++)
			;
		mr = k == i ? moonrail_mr_find(d, keys[i]) : NULL;
		if (mr)
			mr_count_one(mr, reads, writes);
	}
}

/* Revokes the key at all peers that may know it. */
static void mr_withdraw(struct moonrail_mr *mr) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_peer *p;
	struct moonrail_out *o;

	if (!mr->known_to)
		return;
	tei_list_foreach(p, &mr->domain->peers, struct moonrail_peer, link) {
		if (!mr_reaches(p))
			continue;
		o = moonrail_out_new(MOONRAIL_WIRE_KEY_NOT, 0);
		if (!o)
			continue;
		o->wire.id = mr->key;
		o->wire.flags = MOONRAIL_WIRE_WANT_ACK;
		p->out.key_seq = p->out.channel.next;
		moonrail_stream_send(p, o);
	}
}

/* Returns true if all peers have acknowledged the messages about keys that were
 * sent last. */
static bool mr_all_know(struct moonrail_domain *d) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_peer *p;

	tei_list_foreach(p, &d->peers, struct moonrail_peer, link)
		if (!p->replaced_by && moonrail_peer_receives(p) &&
		    p->out.key_seq >= p->out.channel.acked)
			return false;
	return true;
}

/* Waits until peers have acknowledged the last messages about keys, so that no
 * peer mistakes a new registration for an old one with the same key. Releases
 * the lock meanwhile. Waits MR_ACK_NS at most. */
static void mr_wait_known(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held)
{
	uint64_t end = tei_now_ns() + MR_ACK_NS, seen;

	while (!mr_all_know(d) && tei_now_ns() < end) {
		moonrail_leave(d);
		moonrail_progress(d);
		seen = moonrail_events(d);
		moonrail_sleep(d, seen, TEI_NS_PER_MS / 5);
		moonrail_enter(d);
		moonrail_drain(d);
	}
}

/* Sends KEY_IS for a key to all peers that may know the key. */
static void mr_send_key_to_all(struct moonrail_mr *mr)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_peer *p;

	tei_list_foreach(p, &mr->domain->peers, struct moonrail_peer, link) {
		if (!mr_reaches(p))
			continue;
		p->out.key_seq = p->out.channel.next;
		moonrail_mr_send_key(p, mr->key);
	}
}

/* For all keys that peers know, sends KEY_IS again, now with the flag that
 * requests DONE, and waits until the peers have received the messages. */
void moonrail_mr_want_events(struct moonrail_domain *d)
{
	struct moonrail_mr *mr;
	uint32_t i;

	if (d->counts)
		return;
	d->counts = true;
	for (i = 0; i < MOONRAIL_HASH; i++)
		tei_list_foreach(mr, &d->mrs[i], struct moonrail_mr, link)
			if (mr->known_to)
				mr_send_key_to_all(mr);
	mr_wait_known(d);
}

static int mr_close(struct fid *fid)
{
	struct moonrail_mr *mr =
		tei_container_of(fid, struct moonrail_mr, fid.fid);
	struct moonrail_domain *d = mr->domain;
	struct tei_list gone;
	int i;

	tei_list_init(&gone);
	moonrail_enter(d);
	tei_list_del(&mr->link);
	for (i = 0; i < 2; i++)
		if (mr->cntr[i])
			mr->cntr[i]->refs--;
	mr_withdraw(mr);
	if (mr->known_to)
		mr_wait_known(d);
	if (mr->len) {
		moonrail_pin_closed(d, mr->addr, mr->len);
		moonrail_unpin(d, mr->addr, mr->len, &gone);
	}
	moonrail_leave(d);
	moonrail_pin_drop(d, &gone);
	moonrail_domain_unref(d);
	free(mr);
	return 0;
}

static int mr_bind_cntr(struct moonrail_mr *mr, struct moonrail_cntr *c,
			uint64_t flags) TEI_REQUIRES(moonrail_held)
{
	static const uint64_t bit[2] = { FI_REMOTE_READ, FI_REMOTE_WRITE };
	int i;

	if (c->domain != mr->domain || !flags ||
	    flags & ~(FI_REMOTE_READ | FI_REMOTE_WRITE))
		return -FI_EINVAL;
	for (i = 0; i < 2; i++)
		if (flags & bit[i] && mr->cntr[i])
			return -FI_EINVAL;
	for (i = 0; i < 2; i++) {
		if (!(flags & bit[i]))
			continue;
		mr->cntr[i] = c;
		c->refs++;
	}
	moonrail_mr_want_events(mr->domain);
	return 0;
}

static int mr_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	struct moonrail_mr *mr =
		tei_container_of(fid, struct moonrail_mr, fid.fid);
	int ret;

	if (bfid->fclass == FI_CLASS_EP)
		return 0;
	if (bfid->fclass != FI_CLASS_CNTR)
		return -FI_EINVAL;
	moonrail_enter(mr->domain);
	ret = mr_bind_cntr(mr, tei_container_of(bfid, struct moonrail_cntr,
						fid.fid), flags);
	moonrail_leave(mr->domain);
	return ret;
}

static int mr_raw(const struct moonrail_mr *mr, struct fi_mr_raw_attr *raw)
{
	uint64_t key = htole64(mr->key);
	size_t room = *raw->key_size;

	*raw->key_size = sizeof(key);
	if (room < sizeof(key))
		return -FI_ETOOSMALL;
	if (raw->base_addr)
		*raw->base_addr = mr->domain->virt_addr ? (uintptr_t)mr->addr :
							  0;
	memcpy(raw->raw_key, &key, sizeof(key));
	return 0;
}

static int mr_control(struct fid *fid, int command, void *arg)
{
	switch (command) {
	case FI_ENABLE:
		return 0;
	case FI_GET_RAW_MR:
		return mr_raw(tei_container_of(fid, struct moonrail_mr,
					       fid.fid), arg);
	default:
		return -FI_ENOSYS;
	}
}

static struct fi_ops mr_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = mr_close,
	.bind = mr_bind,
	.control = mr_control,
	.ops_open = moonrail_no_ops,
};

/* Chooses a key for a registration: an unused random key, or the requested one
 * if the application chooses keys. Returns 0, or -FI_E* if the requested key is
 * in use. */
static int mr_choose_key(struct moonrail_domain *d, uint64_t requested,
			 uint64_t *key) TEI_REQUIRES(moonrail_held)
{
	while (d->prov_key) {
		if (!tei_random(key, sizeof(*key)))
			return -FI_EIO;
		if (!moonrail_mr_find(d, *key))
			return 0;
	}
	if (moonrail_mr_find(d, requested))
		return -FI_ENOKEY;
	*key = requested;
	return 0;
}

static int mr_add(struct moonrail_mr *mr, uint64_t requested, bool events)
{
	struct moonrail_domain *d = mr->domain;
	struct tei_list gone;
	int ret;

	tei_list_init(&gone);
	moonrail_enter(d);
	ret = mr_choose_key(d, requested, &mr->key);
	while (!ret && mr->len) {
		ret = moonrail_pin(d, mr->addr, mr->len, true);
		if (ret != -FI_EAGAIN)
			break;
		moonrail_leave(d);
		moonrail_sleep(d, moonrail_events(d), MR_OVERLAP_NS);
		moonrail_enter(d);
		ret = 0;
	}
	if (ret)
		goto out;
	/* choose again: the lock was released in the meantime, so another
	 * registration may have taken the key */
	ret = mr_choose_key(d, requested, &mr->key);
	if (ret && mr->len) {
		moonrail_pin_closed(d, mr->addr, mr->len);
		moonrail_unpin(d, mr->addr, mr->len, &gone);
	}
	if (ret)
		goto out;
	tei_list_add_tail(moonrail_bucket(d->mrs, mr->key), &mr->link);
	moonrail_domain_ref(d);
	if (events)
		moonrail_mr_want_events(d);
out:
	moonrail_leave(d);
	moonrail_pin_drop(d, &gone);
	return ret;
}

/*
 * Refuses memory that is not mapped, or is mapped with PROT_NONE: an access of
 * a peer to it would kill this process, or break a connection that other
 * registrations use too.
 */
static int mr_check_mapped(const char *addr, size_t len)
{
	struct tei_topo_maps *maps = NULL;
	enum tei_topo_access access;
	uint64_t base, end;

	if (!len)
		return 0;
	if ((uintptr_t)addr + (len - 1) < (uintptr_t)addr)
		return -FI_EINVAL;
	tei_topo_maps_read((uintptr_t)addr + (len - 1), &maps);
	access = tei_topo_maps_check(maps, addr, len, &base, &end);
	tei_topo_maps_free(maps);
	if (access != TEI_TOPO_UNMAPPED && access != TEI_TOPO_CLOSED)
		return 0;
	TEI_WARN("prov", "memory at %p, %zu bytes: cannot be registered: %s at %#llx",
		 (const void *)addr, len,
		 access == TEI_TOPO_UNMAPPED ? "nothing is mapped" :
					       "mapped with PROT_NONE",
		 (unsigned long long)base);
	return -FI_EFAULT;
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr,
		      uint64_t flags, struct fid_mr **out)
{
	struct moonrail_mr *mr;
	int ret;

	if (flags & (MOONRAIL_DMABUF | FI_HMEM_DEVICE_ONLY))
		return -FI_EOPNOTSUPP;
	if (fid->fclass != FI_CLASS_DOMAIN || attr->iov_count != 1 ||
	    attr->offset || attr->auth_key_size)
		return -FI_EINVAL;
	ret = mr_check_mapped(attr->mr_iov[0].iov_base,
			      attr->mr_iov[0].iov_len);
	if (ret)
		return ret;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -FI_ENOMEM;
	mr->domain = tei_container_of(fid, struct moonrail_domain, fid.fid);
	mr->addr = attr->mr_iov[0].iov_base;
	mr->len = attr->mr_iov[0].iov_len;
	mr->access = attr->access;
	tei_list_init(&mr->link);
	ret = mr_add(mr, attr->requested_key, flags & FI_RMA_EVENT);
	if (ret) {
		free(mr);
		return ret;
	}
	mr->fid.fid.fclass = FI_CLASS_MR;
	mr->fid.fid.context = attr->context;
	mr->fid.fid.ops = &mr_fi_ops;
	mr->fid.mem_desc = mr;
	mr->fid.key = mr->key;
	*out = &mr->fid;
	return 0;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count,
		   uint64_t access, uint64_t offset, uint64_t requested,
		   uint64_t flags, struct fid_mr **out, void *context)
{
	struct fi_mr_attr attr = {
		.mr_iov = iov, .iov_count = count, .access = access,
		.offset = offset, .requested_key = requested,
		.context = context,
	};

	return mr_regattr(fid, &attr, flags, out);
}

static int mr_reg(struct fid *fid, const void *buf, size_t len,
		  uint64_t access, uint64_t offset, uint64_t requested,
		  uint64_t flags, struct fid_mr **out, void *context)
{
	struct iovec iov = {
		.iov_base = (void *)(uintptr_t)buf, .iov_len = len,
	};

	return mr_regv(fid, &iov, 1, access, offset, requested, flags, out,
		       context);
}

struct fi_ops_mr moonrail_mr_ops = {
	.size = sizeof(struct fi_ops_mr),
	.reg = mr_reg,
	.regv = mr_regv,
	.regattr = mr_regattr,
};
