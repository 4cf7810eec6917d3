/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registers memory of GPUs with the rails whose provider has FI_HMEM. A region
 * is registered by its dma-buf file descriptor if libfabric supports that, both
 * when moonrail was built and at run time, and if the driver has supplied a
 * file descriptor. Otherwise it is registered by its address, which needs peer
 * memory support in the kernel. A refusal by a provider is not an error: the
 * next way is tried, and the last one is GPU staging (bounce buffers in host
 * memory).
 */

#include <rdma/fi_domain.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_info.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/tei_rail.h"
#include "util/cuda.h"
#include "util/err.h"
#include "util/log.h"
#include "util/settings.h"

/* libfabric has FI_MR_DMABUF since version 1.20. An older libfabric would read
 * the attribute as an iovec. */
#ifdef FI_MR_DMABUF
#define HMEM_BUILT_DMABUF	true
#else
#define HMEM_BUILT_DMABUF	false
#endif

static const char hmem_left[] = "it cannot be opened with FI_HMEM";

const char *tei_rail_way_name(enum tei_rail_way way)
{
	switch (way) {
	case TEI_RAIL_WAY_DMABUF:
		return "dma-buf";
	case TEI_RAIL_WAY_PEER:
		return "peer memory";
	case TEI_RAIL_WAY_HOST:
		break;
	}
	return "host memory";
}

/* --- the rail ------------------------------------------------------------ */

/* Returns the reason why this process cannot use GPU memory on the rail at all,
 * or NULL. */
static const char *hmem_pointless(const struct rail *rail)
{
	if (!rail->dp->settings->memory.gpu_direct)
		return "MOONRAIL_GPU_DIRECT is 0";
	if (rail->dp->placeholder)
		return "its data plane registers no application memory";
	if (!tei_cuda_present())
		return "no CUDA driver was loaded when the rail was opened";
	return NULL;
}

void rail_hmem_ask(struct rail *rail)
{
	struct fi_info *info;

	rail->caps.no_hmem = hmem_pointless(rail);
	if (rail->caps.no_hmem)
		return;
	info = rail_info_hmem(rail->fab.info, rail->dp->conf.info_flags);
	if (!info) {
		rail->caps.no_hmem = "its provider offers no FI_HMEM";
		TEI_INFO("rail",
			 "%s: %s offers no FI_HMEM: GPU memory is copied "
			 "through host memory",
			 rail->name, rail->nic.provider);
		return;
	}
	/* with FI_MR_ENDPOINT, renewing the rx lane would free registrations
	 * that tx lanes still use */
	if (info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
		rail->caps.no_hmem =
			"its registrations are bound to an endpoint";
		fi_freeinfo(info);
		return;
	}
	fi_freeinfo(rail->fab.info);
	rail->fab.info = info;
	rail->caps.hmem = true;
}

/* Fills err without logging. rail_hmem_without or rail_hmem_neither logs the
 * error. */
__attribute__((format(printf, 5, 6)))
static int hmem_keep(struct tei_err *err, int code, const char *subsys,
		     const char *hint, const char *fmt, ...)
{
	va_list ap;

	(void)subsys;
	memset(err, 0, sizeof(*err));
	err->code = code;
	if (hint)
		snprintf(err->hint, sizeof(err->hint), "%s", hint);
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return code;
}

rail_err_fn rail_open_err_fn(const struct rail *rail)
{
	return (rail->nic.unlogged || rail->caps.hmem ||
		rail->caps.no_hmem == hmem_left) &&
			       !__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE)
		       ? hmem_keep
		       : tei_err_fail;
}

void rail_hmem_leave(struct rail *rail)
{
	rail->caps.no_hmem = hmem_left;
}

void rail_hmem_neither(const struct tei_err *why, struct tei_err *err)
{
	struct tei_err e = *err;

	/* an error without a time has not been logged yet */
	if (!e.when_ns)
		tei_err_fail(err, e.code, "rail", e.hint[0] ? e.hint : NULL,
			     "%s; with FI_HMEM: %s", e.text, why->text);
}

void rail_hmem_without(struct rail *rail, const struct tei_err *why)
{
	TEI_WARN("rail", "%s: opened without FI_HMEM, GPU memory is copied through host memory: %s",
		 rail->name, why->text);
}

/* --- regions ------------------------------------------------------------- */

/* Returns true if the region can be registered by its dma-buf file
 * descriptor. */
static bool hmem_dmabuf(const struct tei_rail_mr *mr)
{
	return HMEM_BUILT_DMABUF && mr->device.dmabuf >= 0 &&
	       FI_VERSION_GE(fi_version(), FI_VERSION(1, 20));
}

const char *rail_hmem_no_dmabuf(const struct tei_rail_mr *mr)
{
	if (!HMEM_BUILT_DMABUF)
		return "moonrail was built without dma-buf";
	if (mr->device.dmabuf < 0)
		return "the driver gave no file descriptor";
	return hmem_dmabuf(mr) ? NULL : "libfabric is older than 1.20";
}

int rail_hmem_reg(struct fid_domain *domain, const struct tei_rail_mr *mr,
		  enum tei_rail_way way, void *addr, size_t len,
		  uint64_t access, uint64_t key, uint64_t flags,
		  struct fid_mr **out)
{
	struct iovec iov = { .iov_base = addr, .iov_len = len };
	struct fi_mr_attr attr;
#ifdef FI_MR_DMABUF
	/* the memory of the dma-buf begins at base_addr */
	char *base = mr->addr - mr->device.offset;
	struct fi_mr_dmabuf buf = {
		.fd = mr->device.dmabuf,
		.offset = (uint64_t)((char *)addr - base),
		.len = len,
		.base_addr = base,
	};
#endif

	memset(&attr, 0, sizeof(attr));
	attr.mr_iov = &iov;
	attr.iov_count = 1;
	attr.access = access;
	attr.requested_key = key;
	attr.iface = FI_HMEM_CUDA;
	attr.device.cuda = mr->device.cuda;
#ifdef FI_MR_DMABUF
	if (way == TEI_RAIL_WAY_DMABUF) {
		attr.dmabuf = &buf;
		flags |= FI_MR_DMABUF;
	}
#else
	(void)way;
#endif
	return fi_mr_regattr(domain, &attr, flags, out);
}

int rail_hmem_refuse(const struct rail *rail, struct tei_err *err)
{
	memset(err, 0, sizeof(*err));
	err->code = TEI_ERR_UNSUPPORTED;
	snprintf(err->rail, sizeof(err->rail), "%s", rail->name);
	snprintf(err->text, sizeof(err->text),
		 "%.32s registers no GPU memory: %.80s", rail->name,
		 rail->caps.no_hmem);
	return err->code;
}

bool tei_rail_may_gpu(struct tei_rail_dp *dp, struct tei_err *err)
{
	const struct rail *rail;
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		if (!__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE) ||
		    rail->caps.hmem)
			continue;
		rail_hmem_refuse(rail, err);
		return false;
	}
	return true;
}

bool tei_rail_mr_direct(struct tei_rail_dp *dp, const void *addr, uint64_t len)
{
	const struct tei_rail_mr *mr;
	bool any = false, all = true;
	uint32_t i;

	rail_sched_enter(dp);
	mr = rail_mr_find(dp, addr, len);
	for (i = 0; mr && mr->gpu && all && i < rail_count(dp); i++) {
		if (!__atomic_load_n(&rail_at(dp, i)->open, __ATOMIC_ACQUIRE))
			continue;
		any = true;
		all = mr->part[i].n;
	}
	rail_sched_leave(dp);
	return any && all;
}
