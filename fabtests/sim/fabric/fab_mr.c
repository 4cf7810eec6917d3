/* SPDX-License-Identifier: BSD-2-Clause */
/* Registered memory. Each domain has a table of its registrations, by key. */

#include <stdlib.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

static struct tei_list *mr_bucket(struct fab_domain *domain, uint64_t key)
{
	return &domain->keys[(key * UINT64_C(0x9e3779b97f4a7c15)) >> 56];
}

static struct fab_mr *mr_find(struct fab_domain *domain, uint64_t key)
{
	struct fab_mr *mr;

	tei_list_foreach (mr, mr_bucket(domain, key), struct fab_mr, link)
		if (mr->key == key)
			return mr;
	return NULL;
}

struct fab_mr *fab_mr_check(struct fab_ep *ep, uint64_t key, uint64_t addr,
			    uint64_t len, uint64_t access, char **at)
{
	bool virt = fab_net->conf.mr_mode & FI_MR_VIRT_ADDR;
	struct fab_mr *mr = mr_find(ep->domain, key);
	uint64_t off;

	if (!mr || !mr->enabled || !(mr->access & access) ||
	    ((fab_net->conf.mr_mode & FI_MR_ENDPOINT) && mr->ep != ep))
		return NULL;
	off = virt ? addr - (uintptr_t)mr->base : addr;
	if (off > mr->len || len > mr->len - off)
		return NULL;
	*at = mr->base + off;
	return mr;
}

bool fab_mr_local(const struct fab_domain *domain, void *desc, const void *addr,
		  size_t len, uint64_t access)
{
	const struct fab_mr *mr = desc;
	const char *a = addr;

	if (!(fab_net->conf.mr_mode & FI_MR_LOCAL) || !len)
		return true;
	return mr && mr->domain == domain && mr->enabled &&
	       (mr->access & access) && a >= mr->base &&
	       a + len <= mr->base + mr->len;
}

static void mr_drop(struct fab_obj *obj)
{
	struct fab_mr *mr = tei_container_of(obj, struct fab_mr, obj);

	tei_list_del(&mr->link);
	mr->domain->nmrs--;
	fab_obj_del(obj);
	free(mr);
}

static int mr_close(struct fid *fid)
{
	mr_drop(&tei_container_of(fid, struct fab_mr, fid.fid)->obj);
	return 0;
}

static int mr_bind(struct fid *fid, struct fid *to, uint64_t flags)
{
	struct fab_mr *mr = tei_container_of(fid, struct fab_mr, fid.fid);

	(void)flags;
	if (to->fclass == FI_CLASS_EP)
		mr->ep = tei_container_of(to, struct fab_ep, fid.fid);
	return 0;
}

void fab_mr_unbind(struct fab_ep *ep)
{
	struct fab_obj *obj;
	struct fab_mr *mr;

	if (!(fab_net->conf.mr_mode & FI_MR_ENDPOINT))
		return;
	tei_list_foreach (obj, &fab_net->objs, struct fab_obj, link) {
		if (obj->kind != FAB_MR)
			continue;
		mr = tei_container_of(obj, struct fab_mr, obj);
		if (mr->ep == ep)
			mr->ep = NULL;
	}
}

static int mr_control(struct fid *fid, int command, void *arg)
{
	struct fab_mr *mr = tei_container_of(fid, struct fab_mr, fid.fid);

	(void)arg;
	if (command != FI_ENABLE)
		return -FI_ENOSYS;
	mr->enabled = true;
	return 0;
}

static struct fi_ops mr_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = mr_close,
	.bind = mr_bind,
	.control = mr_control,
};

static int mr_refused(const struct fab_domain *domain)
{
	if (domain->nic->fault.mr_refuse)
		return domain->nic->fault.mr_refuse;
	return fab_net->conf.mrs && domain->nmrs >= fab_net->conf.mrs
		       ? -FI_ENOMEM
		       : 0;
}

static int mr_reg(struct fid *fid, const void *buf, size_t len, uint64_t access,
		  uint64_t offset, uint64_t key, uint64_t flags,
		  struct fid_mr **out, void *context)
{
	struct fab_domain *domain =
		tei_container_of(fid, struct fab_domain, fid.fid);
	bool chosen = fab_net->conf.mr_mode & FI_MR_PROV_KEY;
	int ret = mr_refused(domain);
	struct fab_mr *mr;

	(void)offset;
	if (ret)
		return ret;
	if (!chosen && mr_find(domain, key))
		return -FI_ENOKEY;
	mr = fab_alloc(sizeof(*mr));
	mr->fid.fid.fclass = FI_CLASS_MR;
	mr->fid.fid.context = context;
	mr->fid.fid.ops = &mr_fid_ops;
	mr->domain = domain;
	mr->base = (char *)(uintptr_t)buf;
	mr->len = len;
	mr->access = access;
	mr->key = chosen ? ++fab_net->next_key : key;
	mr->enabled = !(fab_net->conf.mr_mode & FI_MR_ENDPOINT) &&
		      !(fab_net->conf.mr_mode & FI_MR_RMA_EVENT &&
			flags & FI_RMA_EVENT);
	mr->fid.key = mr->key;
	mr->fid.mem_desc = mr;
	domain->nmrs++;
	tei_list_add_tail(mr_bucket(domain, mr->key), &mr->link);
	fab_obj_add(&mr->obj, FAB_MR, mr_drop);
	*out = &mr->fid;
	return 0;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count,
		   uint64_t access, uint64_t offset, uint64_t key,
		   uint64_t flags, struct fid_mr **out, void *context)
{
	if (count != 1)
		return -FI_EINVAL;
	return mr_reg(fid, iov->iov_base, iov->iov_len, access, offset, key,
		      flags, out, context);
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr,
		      uint64_t flags, struct fid_mr **out)
{
	if (attr->iov_count != 1 || attr->iface != FI_HMEM_SYSTEM)
		return -FI_EINVAL;
	return mr_reg(fid, attr->mr_iov->iov_base, attr->mr_iov->iov_len,
		      attr->access, attr->offset, attr->requested_key, flags,
		      out, attr->context);
}

struct fi_ops_mr fab_mr_domain_ops = {
	.size = sizeof(struct fi_ops_mr),
	.reg = mr_reg,
	.regv = mr_regv,
	.regattr = mr_regattr,
};
