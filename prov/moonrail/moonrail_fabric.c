/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fabrics.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_cq.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_fabric.h"

static int fabric_no_pep(struct fid_fabric *fabric, struct fi_info *info,
			 struct fid_pep **pep, void *context)
{
	(void)fabric, (void)info, (void)pep, (void)context;
	return -FI_ENOSYS;
}

static int fabric_no_wait(struct fid_fabric *fabric, struct fi_wait_attr *attr,
			  struct fid_wait **wait)
{
	(void)fabric, (void)attr, (void)wait;
	return -FI_ENOSYS;
}

static int fabric_try_one(struct fid *fid)
{
	switch (fid->fclass) {
	case FI_CLASS_CQ:
		return moonrail_cq_trywait(
			tei_container_of(fid, struct moonrail_cq, fid.fid));
	case FI_CLASS_EQ:
		return moonrail_eq_trywait(
			tei_container_of(fid, struct moonrail_eq, fid.fid));
	default:
		return -FI_ENOSYS;
	}
}

static int fabric_trywait(struct fid_fabric *fabric, struct fid **fids,
			  int count)
{
	int i, ret = 0;

	(void)fabric;
	for (i = 0; i < count && !ret; i++)
		ret = fabric_try_one(fids[i]);
	return ret;
}

static int fabric_close(struct fid *fid)
{
	struct moonrail_fabric *f =
		tei_container_of(fid, struct moonrail_fabric, fid.fid);

	if (__atomic_load_n(&f->refs, __ATOMIC_ACQUIRE))
		return -FI_EBUSY;
	free(f);
	return 0;
}

static struct fi_ops fabric_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = fabric_close,
	.bind = moonrail_no_bind,
	.control = moonrail_no_control,
	.ops_open = moonrail_no_ops,
};

static struct fi_ops_fabric fabric_ops = {
	.size = sizeof(struct fi_ops_fabric),
	.domain = moonrail_domain_open,
	.passive_ep = fabric_no_pep,
	.eq_open = moonrail_eq_open,
	.wait_open = fabric_no_wait,
	.trywait = fabric_trywait,
};

int moonrail_fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **out,
			 void *context)
{
	struct moonrail_fabric *f;

	if (attr->name && strcmp(attr->name, "moonrail"))
		return -FI_ENODATA;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -FI_ENOMEM;
	f->fid.fid.fclass = FI_CLASS_FABRIC;
	f->fid.fid.context = context;
	f->fid.fid.ops = &fabric_fi_ops;
	f->fid.ops = &fabric_ops;
	f->fid.api_version = attr->api_version;
	*out = &f->fid;
	return 0;
}
