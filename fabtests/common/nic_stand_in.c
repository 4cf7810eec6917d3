/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The dynamic linker resolves fi_getinfo and fi_fabric to the functions of this
 * file instead of those of libfabric. Each object that they create gets a copy
 * of its table of functions, in which some functions are replaced. The copies
 * stay in lists until the process ends.
 */
#include "fabtests/common/nic_stand_in.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>

#ifdef FI_MR_DMABUF
#define NIC_DMABUF FI_MR_DMABUF
#else
#define NIC_DMABUF 0
#endif

#define NIC_IOV 16
#define EXPORT __attribute__((visibility("default")))

struct nic_stand_in nic_stand_in;

/* Copied tables of functions. The object points to the first member of one of
 * these structs, so the struct is found through the object. */
struct nic_fabric {
	struct fi_ops_fabric ops;
	struct fi_ops_fabric *real;
	struct nic_fabric *next;
};

struct nic_domain {
	struct fi_ops_mr mr;
	struct fi_ops_domain ops;
	struct fi_ops_mr *real_mr;
	struct fi_ops_domain *real;
	struct nic_domain *next;
};

struct nic_ep {
	struct fi_ops_rma rma;
	struct fi_ops_rma *real;
	struct nic_ep *next;
};

/* A registration. The library posts with the address of this struct as
 * descriptor. */
struct nic_mr {
	uint64_t base, len;
	char *alias;
	void *real;			/* descriptor that the provider
					 * returned */
	struct fi_ops ops, *real_ops;
	const struct fid *fid;		/* NULL after it was closed; guarded by
					 * lock */
	struct nic_mr *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nic_fabric *fabrics;
static struct nic_domain *domains;
static struct nic_ep *eps;
static struct nic_mr *mrs;

#define NIC_KEEP(list, object) do { \
	pthread_mutex_lock(&lock); \
	(object)->next = (list); \
	(list) = (object); \
	pthread_mutex_unlock(&lock); \
} while (0)

bool nic_stand_in_has_dmabuf(void)
{
	return NIC_DMABUF && FI_VERSION_GE(fi_version(), FI_VERSION(1, 20));
}

static void *nic_real(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		abort();
	return f;
}

/* --- posts --------------------------------------------------------------- */

static struct nic_mr *nic_find(const void *desc, bool *closed)
{
	struct nic_mr *m;

	pthread_mutex_lock(&lock);
	for (m = mrs; m && m != desc; m = m->next)
		;
	*closed = m && !m->fid;
	pthread_mutex_unlock(&lock);
	return m;
}

/* Copies the post `msg` to `seen`, with the addresses and descriptors that the
 * provider knows in place of those of GPU memory. Returns 1 if the post has
 * such memory and 0 if not. Returns -FI_EINVAL if a registration of it was
 * closed. */
static int nic_see(const struct fi_msg_rma *msg, struct fi_msg_rma *seen,
		   struct iovec *iov, void **desc)
{
	const struct nic_mr *m;
	bool any = false, closed;
	size_t i;

	if (!msg->desc || msg->iov_count > NIC_IOV)
		return 0;
	*seen = *msg;
	seen->msg_iov = iov;
	seen->desc = desc;
	for (i = 0; i < msg->iov_count; i++) {
		iov[i] = msg->msg_iov[i];
		desc[i] = msg->desc[i];
		m = desc[i] ? nic_find(desc[i], &closed) : NULL;
		if (!m)
			continue;
		if (closed) {
			nic_stand_in.stale++;
			return -FI_EINVAL;
		}
		any = true;
		desc[i] = m->real;
		iov[i].iov_base = m->alias + ((uintptr_t)iov[i].iov_base -
					      m->base);
	}
	if (any)
		nic_stand_in.posts++;
	return any;
}

static ssize_t nic_writemsg(struct fid_ep *ep, const struct fi_msg_rma *msg,
			    uint64_t flags)
{
	struct nic_ep *n = (struct nic_ep *)(void *)ep->rma;
	struct iovec iov[NIC_IOV];
	void *desc[NIC_IOV];
	struct fi_msg_rma seen;
	int ret = nic_see(msg, &seen, iov, desc);

	return ret < 0 ? ret : n->real->writemsg(ep, ret ? &seen : msg, flags);
}

static ssize_t nic_readmsg(struct fid_ep *ep, const struct fi_msg_rma *msg,
			   uint64_t flags)
{
	struct nic_ep *n = (struct nic_ep *)(void *)ep->rma;
	struct iovec iov[NIC_IOV];
	void *desc[NIC_IOV];
	struct fi_msg_rma seen;
	int ret = nic_see(msg, &seen, iov, desc);

	return ret < 0 ? ret : n->real->readmsg(ep, ret ? &seen : msg, flags);
}

/* --- registrations ------------------------------------------------------- */

static struct nic_domain *nic_of(const struct fid_domain *domain)
{
	return (struct nic_domain *)(void *)domain->mr;
}

/* Returns the range that attr describes. The return value is false if the
 * registration is to be refused. */
static bool nic_range(const struct fi_mr_attr *attr, uint64_t flags,
		      uint64_t *addr, size_t *len)
{
#ifdef FI_MR_DMABUF
	if (flags & FI_MR_DMABUF) {
		if (nic_stand_in.no_dmabuf || fcntl(attr->dmabuf->fd, F_GETFD) < 0)
			return false;
		*addr = (uintptr_t)attr->dmabuf->base_addr +
			attr->dmabuf->offset;
		*len = attr->dmabuf->len;
		nic_stand_in.dmabufs++;
		return true;
	}
#else
	(void)flags;
#endif
	if (nic_stand_in.no_peer || attr->iov_count != 1)
		return false;
	*addr = (uintptr_t)attr->mr_iov->iov_base;
	*len = attr->mr_iov->iov_len;
	nic_stand_in.peers++;
	return true;
}

static int nic_close(struct fid *fid)
{
	struct fi_ops *real = NULL;
	struct nic_mr *m;

	pthread_mutex_lock(&lock);
	for (m = mrs; m && m->fid != fid; m = m->next)
		;
	if (m) {
		real = m->real_ops;
		m->fid = NULL;
	}
	pthread_mutex_unlock(&lock);
	if (!real)
		abort();
	fid->ops = real;
	return real->close(fid);
}

static int nic_regattr(struct fid *fid, const struct fi_mr_attr *attr,
		       uint64_t flags, struct fid_mr **out)
{
	struct fid_domain *domain = (struct fid_domain *)(void *)fid;
	struct nic_domain *n = nic_of(domain);
	uint64_t addr = 0;
	struct nic_mr *m;
	size_t len = 0;
	int ret;

	if (attr->iface != FI_HMEM_CUDA)
		return n->real_mr->regattr(fid, attr, flags, out);
	if (!nic_range(attr, flags, &addr, &len)) {
		nic_stand_in.refused++;
		return -FI_EOPNOTSUPP;
	}
	m = calloc(1, sizeof(*m));
	if (!m)
		return -FI_ENOMEM;
	m->base = addr;
	m->len = len;
	m->alias = nic_stand_in.cuda->alias(addr, len);
	ret = m->alias ? n->real_mr->reg(fid, m->alias, len, attr->access, 0,
					 attr->requested_key,
					 flags & ~(uint64_t)NIC_DMABUF, out,
					 attr->context) :
			 -FI_EFAULT;
	if (ret) {
		free(m);
		return ret;
	}
	m->real = (*out)->mem_desc;
	(*out)->mem_desc = m;
	m->real_ops = (*out)->fid.ops;
	m->ops = *m->real_ops;
	m->ops.close = nic_close;
	(*out)->fid.ops = &m->ops;
	m->fid = &(*out)->fid;
	NIC_KEEP(mrs, m);
	return 0;
}

/* --- objects ------------------------------------------------------------- */

/* Returns true if the environment variable NIC_HMEM equals "what".
 * nic_stand_in.h explains its values. */
static bool nic_is(const char *what)
{
	const char *said = getenv("NIC_HMEM");

	return said && !strcmp(said, what);
}

/* Returns a copy of info without FI_HMEM and FI_MR_HMEM, which the real
 * provider does not support. */
static struct fi_info *nic_plain(const struct fi_info *info)
{
	struct fi_info *plain = fi_dupinfo(info);

	if (!plain)
		abort();
	plain->caps &= ~FI_HMEM;
	if (plain->domain_attr)
		plain->domain_attr->mr_mode &= ~FI_MR_HMEM;
	return plain;
}

static int nic_endpoint(struct fid_domain *domain, struct fi_info *info,
			struct fid_ep **out, void *context)
{
	struct nic_domain *n = nic_of(domain);
	struct fi_info *plain;
	struct nic_ep *e;
	int ret;

	if (nic_is("no-endpoint"))
		return -FI_ENOSYS;
	plain = nic_plain(info);
	e = calloc(1, sizeof(*e));
	ret = e ? n->real->endpoint(domain, plain, out, context) : -FI_ENOMEM;
	fi_freeinfo(plain);
	if (ret) {
		free(e);
		return ret;
	}
	e->real = (*out)->rma;
	e->rma = *e->real;
	e->rma.writemsg = nic_writemsg;
	e->rma.readmsg = nic_readmsg;
	(*out)->rma = &e->rma;
	NIC_KEEP(eps, e);
	return 0;
}

static int nic_domain(struct fid_fabric *fabric, struct fi_info *info,
		      struct fid_domain **out, void *context)
{
	struct nic_fabric *f = (struct nic_fabric *)(void *)fabric->ops;
	struct fi_info *plain;
	struct nic_domain *n;
	int ret;

	if (!(info->caps & FI_HMEM))
		return f->real->domain(fabric, info, out, context);
	if (nic_is("no-domain"))
		return -FI_ENOSYS;
	n = calloc(1, sizeof(*n));
	plain = nic_plain(info);
	ret = n ? f->real->domain(fabric, plain, out, context) : -FI_ENOMEM;
	fi_freeinfo(plain);
	if (ret) {
		free(n);
		return ret;
	}
	n->real_mr = (*out)->mr;
	n->mr = *n->real_mr;
	n->mr.regattr = nic_regattr;
	(*out)->mr = &n->mr;
	n->real = (*out)->ops;
	n->ops = *n->real;
	n->ops.endpoint = nic_endpoint;
	(*out)->ops = &n->ops;
	NIC_KEEP(domains, n);
	return 0;
}

EXPORT int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **out,
		     void *context)
{
	int (*real)(struct fi_fabric_attr *, struct fid_fabric **, void *);
	struct nic_fabric *f = calloc(1, sizeof(*f));
	void *found = nic_real("fi_fabric");
	int ret;

	memcpy(&real, &found, sizeof(real));
	ret = f ? real(attr, out, context) : -FI_ENOMEM;
	if (ret) {
		free(f);
		return ret;
	}
	f->real = (*out)->ops;
	f->ops = *f->real;
	f->ops.domain = nic_domain;
	(*out)->ops = &f->ops;
	NIC_KEEP(fabrics, f);
	return 0;
}

/* Returns true if the NIC of the rail that `hints` describes cannot access GPU
 * memory. */
static bool nic_without(const struct fi_info *hints)
{
	const struct sockaddr_in *sin = hints->src_addr;
	const char *without = nic_stand_in.without;
	char text[INET_ADDRSTRLEN];

	if (!nic_stand_in.cuda)
		return true;
	if (!without)
		without = getenv("NIC_WITHOUT");
	if (!without)
		return false;
	return !strcmp(hints->fabric_attr->prov_name, without) ||
	       (sin && sin->sin_family == AF_INET &&
		inet_ntop(AF_INET, &sin->sin_addr, text, sizeof(text)) &&
		!strcmp(text, without));
}

EXPORT int fi_getinfo(uint32_t version, const char *node, const char *service,
		      uint64_t flags, const struct fi_info *hints,
		      struct fi_info **out)
{
	int (*real)(uint32_t, const char *, const char *, uint64_t,
		    const struct fi_info *, struct fi_info **);
	void *found = nic_real("fi_getinfo");
	struct fi_info *plain, *i;
	int ret;

	memcpy(&real, &found, sizeof(real));
	if (!hints || !(hints->caps & FI_HMEM))
		return real(version, node, service, flags, hints, out);
	if (nic_without(hints))
		return -FI_ENODATA;
	plain = nic_plain(hints);
	ret = real(version, node, service, flags, plain, out);
	fi_freeinfo(plain);
	for (i = ret ? NULL : *out; i; i = i->next) {
		i->caps |= FI_HMEM;
		i->domain_attr->mr_mode |= FI_MR_HMEM;
		if (nic_is("mr-endpoint"))
			i->domain_attr->mr_mode |= FI_MR_ENDPOINT;
	}
	return ret;
}
