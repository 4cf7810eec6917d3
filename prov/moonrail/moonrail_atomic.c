/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * There are no atomics yet: every call says so.
 */
#include "prov/moonrail/moonrail_int.h"

static ssize_t atomic_write(struct fid_ep *ep, const void *buf, size_t count,
			    void *desc, fi_addr_t to, uint64_t addr,
			    uint64_t key, enum fi_datatype type, enum fi_op op,
			    void *context)
{
	(void)ep, (void)buf, (void)count, (void)desc, (void)to, (void)addr;
	(void)key, (void)type, (void)op, (void)context;
	return -FI_ENOSYS;
}

static ssize_t atomic_writev(struct fid_ep *ep, const struct fi_ioc *iov,
			     void **desc, size_t count, fi_addr_t to,
			     uint64_t addr, uint64_t key,
			     enum fi_datatype type, enum fi_op op,
			     void *context)
{
	(void)ep, (void)iov, (void)count, (void)desc, (void)to, (void)addr;
	(void)key, (void)type, (void)op, (void)context;
	return -FI_ENOSYS;
}

static ssize_t atomic_writemsg(struct fid_ep *ep,
			       const struct fi_msg_atomic *msg, uint64_t flags)
{
	(void)ep, (void)msg, (void)flags;
	return -FI_ENOSYS;
}

static ssize_t atomic_inject(struct fid_ep *ep, const void *buf, size_t count,
			     fi_addr_t to, uint64_t addr, uint64_t key,
			     enum fi_datatype type, enum fi_op op)
{
	(void)ep, (void)buf, (void)count, (void)to, (void)addr, (void)key;
	(void)type, (void)op;
	return -FI_ENOSYS;
}

static ssize_t atomic_readwrite(struct fid_ep *ep, const void *buf,
				size_t count, void *desc, void *result,
				void *result_desc, fi_addr_t to, uint64_t addr,
				uint64_t key, enum fi_datatype type,
				enum fi_op op, void *context)
{
	(void)ep, (void)buf, (void)count, (void)desc, (void)to, (void)addr;
	(void)key, (void)type, (void)op, (void)context, (void)result;
	(void)result_desc;
	return -FI_ENOSYS;
}

static ssize_t atomic_readwritev(struct fid_ep *ep, const struct fi_ioc *iov,
				 void **desc, size_t count,
				 struct fi_ioc *resultv, void **result_desc,
				 size_t result_count, fi_addr_t to,
				 uint64_t addr, uint64_t key,
				 enum fi_datatype type, enum fi_op op,
				 void *context)
{
	(void)ep, (void)iov, (void)count, (void)desc, (void)to, (void)addr;
	(void)key, (void)type, (void)op, (void)context, (void)resultv;
	(void)result_desc, (void)result_count;
	return -FI_ENOSYS;
}

static ssize_t atomic_readwritemsg(struct fid_ep *ep,
				   const struct fi_msg_atomic *msg,
				   struct fi_ioc *resultv, void **result_desc,
				   size_t result_count, uint64_t flags)
{
	(void)ep, (void)msg, (void)flags, (void)resultv, (void)result_desc;
	(void)result_count;
	return -FI_ENOSYS;
}

static ssize_t atomic_compwrite(struct fid_ep *ep, const void *buf,
				size_t count, void *desc, const void *compare,
				void *compare_desc, void *result,
				void *result_desc, fi_addr_t to, uint64_t addr,
				uint64_t key, enum fi_datatype type,
				enum fi_op op, void *context)
{
	(void)ep, (void)buf, (void)count, (void)desc, (void)to, (void)addr;
	(void)key, (void)type, (void)op, (void)context, (void)result;
	(void)result_desc, (void)compare, (void)compare_desc;
	return -FI_ENOSYS;
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
	(void)ep, (void)iov, (void)count, (void)desc, (void)to, (void)addr;
	(void)key, (void)type, (void)op, (void)context, (void)resultv;
	(void)result_desc, (void)result_count, (void)comparev;
	(void)compare_desc, (void)compare_count;
	return -FI_ENOSYS;
}

static ssize_t atomic_compwritemsg(struct fid_ep *ep,
				   const struct fi_msg_atomic *msg,
				   const struct fi_ioc *comparev,
				   void **compare_desc, size_t compare_count,
				   struct fi_ioc *resultv, void **result_desc,
				   size_t result_count, uint64_t flags)
{
	(void)ep, (void)msg, (void)flags, (void)resultv, (void)result_desc;
	(void)result_count, (void)comparev, (void)compare_desc;
	(void)compare_count;
	return -FI_ENOSYS;
}

static int atomic_valid(struct fid_ep *ep, enum fi_datatype type,
			enum fi_op op, size_t *count)
{
	(void)ep, (void)type, (void)op, (void)count;
	return -FI_EOPNOTSUPP;
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
	.writevalid = atomic_valid,
	.readwritevalid = atomic_valid,
	.compwritevalid = atomic_valid,
};
