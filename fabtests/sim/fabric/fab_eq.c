/* SPDX-License-Identifier: BSD-2-Clause */
/* Event queues, which never report an event, and counters. */

#include <stdlib.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

/* --- event queues --- */

static ssize_t eq_read(struct fid_eq *fid, uint32_t *event, void *buf,
		       size_t len, uint64_t flags)
{
	(void)fid, (void)event, (void)buf, (void)len, (void)flags;
	return -FI_EAGAIN;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf,
			  uint64_t flags)
{
	(void)fid, (void)buf, (void)flags;
	return -FI_EAGAIN;
}

static struct fi_ops_eq eq_ops = {
	.size = sizeof(struct fi_ops_eq),
	.read = eq_read,
	.readerr = eq_readerr,
};

static void eq_drop(struct fab_obj *obj)
{
	fab_obj_del(obj);
	free(tei_container_of(obj, struct fab_eq, obj));
}

static int eq_close(struct fid *fid)
{
	eq_drop(&tei_container_of(fid, struct fab_eq, fid.fid)->obj);
	return 0;
}

static struct fi_ops eq_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = eq_close,
};

int fab_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
		struct fid_eq **out, void *context)
{
	struct fab_eq *eq;

	(void)fabric, (void)attr;
	if (!fab_net->conf.eq)
		return -FI_ENOSYS;
	eq = fab_alloc(sizeof(*eq));
	eq->fid.fid.fclass = FI_CLASS_EQ;
	eq->fid.fid.context = context;
	eq->fid.fid.ops = &eq_fid_ops;
	eq->fid.ops = &eq_ops;
	fab_obj_add(&eq->obj, FAB_EQ, eq_drop);
	*out = &eq->fid;
	return 0;
}

/* --- counters --- */

static struct fab_cntr *cntr_of(struct fid_cntr *fid)
{
	return tei_container_of(fid, struct fab_cntr, fid);
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	return cntr_of(fid)->value;
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	return cntr_of(fid)->errors;
}

static int cntr_add(struct fid_cntr *fid, uint64_t value)
{
	cntr_of(fid)->value += value;
	return 0;
}

static int cntr_set(struct fid_cntr *fid, uint64_t value)
{
	cntr_of(fid)->value = value;
	return 0;
}

static struct fi_ops_cntr cntr_ops = {
	.size = sizeof(struct fi_ops_cntr),
	.read = cntr_read,
	.readerr = cntr_readerr,
	.add = cntr_add,
	.set = cntr_set,
};

static void cntr_drop(struct fab_obj *obj)
{
	fab_obj_del(obj);
	free(tei_container_of(obj, struct fab_cntr, obj));
}

static int cntr_close(struct fid *fid)
{
	struct fab_cntr *cntr = tei_container_of(fid, struct fab_cntr, fid.fid);
	struct fab_obj *obj;

	tei_list_foreach (obj, &fab_net->objs, struct fab_obj, link)
		if (obj->kind == FAB_EP &&
		    tei_container_of(obj, struct fab_ep, obj)->remote == cntr)
			return -FI_EBUSY;
	cntr_drop(&cntr->obj);
	return 0;
}

static struct fi_ops cntr_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = cntr_close,
};

int fab_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		  struct fid_cntr **out, void *context)
{
	struct fab_cntr *cntr = fab_alloc(sizeof(*cntr));

	(void)domain, (void)attr;
	cntr->fid.fid.fclass = FI_CLASS_CNTR;
	cntr->fid.fid.context = context;
	cntr->fid.fid.ops = &cntr_fid_ops;
	cntr->fid.ops = &cntr_ops;
	fab_obj_add(&cntr->obj, FAB_CNTR, cntr_drop);
	*out = &cntr->fid;
	return 0;
}
