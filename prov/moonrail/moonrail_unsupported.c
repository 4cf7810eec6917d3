/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/moonrail/moonrail_fabric.h"

/*
 * Calls that the provider does not support: some calls of each object, and
 * collective operations. The tables are filled because libfabric calls these
 * functions without a check for a missing table.
 */

int moonrail_no_bind(struct fid *fid, struct fid *bfid, uint64_t flags)
{
	(void)fid, (void)bfid, (void)flags;
	return -FI_ENOSYS;
}

int moonrail_no_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)command, (void)arg;
	return -FI_ENOSYS;
}

int moonrail_no_ops(struct fid *fid, const char *name, uint64_t flags,
		    void **ops, void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}

static ssize_t coll_barrier(struct fid_ep *ep, fi_addr_t to, void *context)
{
	(void)ep, (void)to, (void)context;
	return -FI_ENOSYS;
}

static ssize_t coll_barrier2(struct fid_ep *ep, fi_addr_t to, uint64_t flags,
			     void *context)
{
	(void)ep, (void)to, (void)flags, (void)context;
	return -FI_ENOSYS;
}

static ssize_t coll_broadcast(struct fid_ep *ep, void *buf, size_t count,
			      void *desc, fi_addr_t to, fi_addr_t root,
			      enum fi_datatype type, uint64_t flags,
			      void *context)
{
	(void)ep, (void)buf, (void)count, (void)desc, (void)to, (void)root;
	(void)type, (void)flags, (void)context;
	return -FI_ENOSYS;
}

/* The function for fi_alltoall and fi_allgather. */
static ssize_t coll_all(struct fid_ep *ep, const void *buf, size_t count,
			void *desc, void *result, void *result_desc,
			fi_addr_t to, enum fi_datatype type, uint64_t flags,
			void *context)
{
	(void)ep, (void)buf, (void)count, (void)desc, (void)result;
	(void)result_desc, (void)to, (void)type, (void)flags, (void)context;
	return -FI_ENOSYS;
}

/* The function for fi_allreduce and fi_reduce_scatter. */
static ssize_t coll_all_of(struct fid_ep *ep, const void *buf, size_t count,
			   void *desc, void *result, void *result_desc,
			   fi_addr_t to, enum fi_datatype type, enum fi_op op,
			   uint64_t flags, void *context)
{
	(void)op;
	return coll_all(ep, buf, count, desc, result, result_desc, to, type,
			flags, context);
}

/* The function for fi_scatter and fi_gather. */
static ssize_t coll_root(struct fid_ep *ep, const void *buf, size_t count,
			 void *desc, void *result, void *result_desc,
			 fi_addr_t to, fi_addr_t root, enum fi_datatype type,
			 uint64_t flags, void *context)
{
	(void)root;
	return coll_all(ep, buf, count, desc, result, result_desc, to, type,
			flags, context);
}

static ssize_t coll_reduce(struct fid_ep *ep, const void *buf, size_t count,
			   void *desc, void *result, void *result_desc,
			   fi_addr_t to, fi_addr_t root, enum fi_datatype type,
			   enum fi_op op, uint64_t flags, void *context)
{
	(void)root, (void)op;
	return coll_all(ep, buf, count, desc, result, result_desc, to, type,
			flags, context);
}

static ssize_t coll_msg(struct fid_ep *ep, const struct fi_msg_collective *msg,
			struct fi_ioc *result, void **result_desc, size_t n,
			uint64_t flags)
{
	(void)ep, (void)msg, (void)result, (void)result_desc, (void)n;
	(void)flags;
	return -FI_ENOSYS;
}

struct fi_ops_collective moonrail_coll_ops = {
	.size = sizeof(struct fi_ops_collective),
	.barrier = coll_barrier,
	.broadcast = coll_broadcast,
	.alltoall = coll_all,
	.allreduce = coll_all_of,
	.allgather = coll_all,
	.reduce_scatter = coll_all_of,
	.reduce = coll_reduce,
	.scatter = coll_root,
	.gather = coll_root,
	.msg = coll_msg,
	.barrier2 = coll_barrier2,
};
