/* SPDX-License-Identifier: BSD-2-Clause */
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/rail_shim.h"
#include "util/list.h"

#define SHIM_MAGIC	UINT64_C(0x7368696d6b657931)

/* The content of a raw key that the shim issues. */
struct shim_key {
	uint64_t magic, base, key;
};

static pthread_mutex_t shim_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rail_shim *shims;		/* list of all installed shims; guarded
					 * by shim_lock */

static struct rail_shim *shim_of_domain(const struct fid *fid)
{
	struct rail_shim *s;

	pthread_mutex_lock(&shim_lock);
	for (s = shims; s; s = s->next)
		if (&s->domain == fid->ops)
			break;
	pthread_mutex_unlock(&shim_lock);
	if (!s)
		abort();
	return s;
}

static struct rail_shim *shim_of_mr(const struct fid *fid)
{
	struct rail_shim *s;

	pthread_mutex_lock(&shim_lock);
	for (s = shims; s; s = s->next)
		if (&s->mr == fid->ops)
			break;
	pthread_mutex_unlock(&shim_lock);
	if (!s)
		abort();
	return s;
}

static int shim_mr_close(struct fid *fid)
{
	struct rail_shim *s = shim_of_mr(fid);

	s->live--;
	if (s->rail->fab.mr_mode & FI_MR_ENDPOINT && !s->rail->rx_lane.ep)
		s->late++;
	fid->ops = s->real_mr;
	return fi_close(fid);
}

static int shim_mr_bind(struct fid *fid, struct fid *to, uint64_t flags)
{
	struct rail_shim *s = shim_of_mr(fid);

	if (to == &s->rail->rx_lane.ep->fid && !flags)
		s->bound++;
	return 0;
}

static int shim_mr_control(struct fid *fid, int command, void *arg)
{
	struct rail_shim *s = shim_of_mr(fid);
	struct fi_mr_raw_attr *raw = arg;
	struct shim_key key = { .magic = SHIM_MAGIC };

	switch (command) {
	case FI_ENABLE:
		s->enabled++;
		return 0;
	case FI_GET_RAW_MR:
		if (*raw->key_size < sizeof(key))
			return -FI_ETOOSMALL;
		key.key = tei_container_of(fid, struct fid_mr, fid)->key;
		key.base = (uintptr_t)tei_container_of(fid, struct fid_mr, fid)
				   ->fid.context;
		memcpy(raw->raw_key, &key, sizeof(key));
		*raw->key_size = sizeof(key);
		return 0;
	default:
		return -FI_ENOSYS;
	}
}

static int shim_domain_control(struct fid *fid, int command, void *arg)
{
	struct rail_shim *s = shim_of_domain(fid);
	struct fi_mr_map_raw *map = arg;
	struct shim_key key;

	switch (command) {
	case FI_MAP_RAW_MR:
		memcpy(&key, map->raw_key, sizeof(key));
		if (map->key_size != sizeof(key) || key.magic != SHIM_MAGIC ||
		    key.base != map->base_addr) {
			s->bad_maps++;
			return -FI_EINVAL;
		}
		*map->key = key.key;
		s->mapped++;
		s->maps++;
		return 0;
	case FI_UNMAP_KEY:
		s->mapped--;
		return 0;
	default:
		return s->real_domain->control(fid, command, arg);
	}
}

static bool shim_refuses(struct rail_shim *s, size_t len)
{
	if ((!s->max_len || len <= s->max_len) &&
	    (!s->max_live || s->live < s->max_live))
		return false;
	s->refused++;
	return true;
}

static int shim_reg(struct fid *fid, const void *buf, size_t len,
		    uint64_t access, uint64_t offset, uint64_t key,
		    uint64_t flags, struct fid_mr **mr, void *context)
{
	struct rail_shim *s = shim_of_domain(fid);
	int ret;

	(void)context;
	if (shim_refuses(s, len))
		return s->refusal;
	/* shim_mr_control reads the address of the memory from the context */
	ret = s->real_reg->reg(fid, buf, len, access, offset, key, flags, mr,
			       (void *)(uintptr_t)buf);
	if (ret)
		return ret;
	if (!s->real_mr) {
		s->real_mr = (*mr)->fid.ops;
		s->mr = *s->real_mr;
		s->mr.close = shim_mr_close;
		s->mr.bind = shim_mr_bind;
		s->mr.control = shim_mr_control;
	}
	(*mr)->fid.context = (void *)(uintptr_t)buf;
	(*mr)->fid.ops = &s->mr;
	s->live++;
	s->made++;
	return 0;
}

/* Replaces fi_mr_regattr, which the rails call for GPU memory; in these tests
 * GPU memory is host memory. */
static int shim_regattr(struct fid *fid, const struct fi_mr_attr *attr,
			uint64_t flags, struct fid_mr **mr)
{
	return shim_reg(fid, attr->mr_iov->iov_base, attr->mr_iov->iov_len,
			attr->access, 0, attr->requested_key, flags, mr,
			attr->context);
}

void rail_shim_install(struct rail_shim *s, struct rail *rail, uint64_t mode)
{
	s->rail = rail;
	rail->fab.mr_mode |= mode;
	s->real_reg = rail->fab.rx_domain->mr;
	s->reg = *s->real_reg;
	s->reg.reg = shim_reg;
	s->reg.regattr = shim_regattr;
	rail->fab.rx_domain->mr = &s->reg;
	/* memory is registered in the rx domain, and the raw keys of peers are
	 * mapped in the tx domain */
	s->real_domain = rail->fab.tx_domain->fid.ops;
	s->domain = *s->real_domain;
	s->domain.control = shim_domain_control;
	rail->fab.tx_domain->fid.ops = &s->domain;
	if (rail->fab.tx_domain != rail->fab.rx_domain)
		rail->fab.rx_domain->fid.ops = &s->domain;
	pthread_mutex_lock(&shim_lock);
	s->next = shims;
	shims = s;
	pthread_mutex_unlock(&shim_lock);
}

void rail_shim_remove(struct rail_shim *s)
{
	struct rail_shim **at;

	pthread_mutex_lock(&shim_lock);
	for (at = &shims; *at && *at != s; at = &(*at)->next)
		;
	if (*at)
		*at = s->next;
	pthread_mutex_unlock(&shim_lock);
}
