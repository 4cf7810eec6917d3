/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registers memory on one rail, as its mr_mode requires:
 *
 *  FI_MR_LOCAL		tx lanes and the rx lane share one domain, and posts
 *			carry a memory descriptor (fi_mr_desc)
 *  FI_MR_PROV_KEY	the provider chooses the key; otherwise it is random
 *  FI_MR_RAW		the key is a string, which each initiator maps
 *  FI_MR_VIRT_ADDR	the hello reports this mode to the peers
 *  FI_MR_ENDPOINT	a registration is bound to the rx lane, so it is made
 *			again for each lane generation, and peers request the
 *			new keys; GPU memory is not registered then
 *  FI_MR_RMA_EVENT	registrations are enabled by hand if remote operations
 *			are counted
 *  FI_MR_ALLOCATED	the provider pins the memory, so the pages exist
 *  FI_MR_HMEM		rail_hmem.c registers GPU memory, and posts carry its
 *			descriptor, whether or not this mode is set
 *  FI_MR_COLLECTIVE	no effect, because moonrail uses no collectives
 *
 * libfabric does not report how much a device can register at once. So if the
 * first registration of a region is refused, the size is halved, down to
 * REG_SHIFT_MIN. If the first one succeeds and a later one is refused, the size
 * is not the cause.
 */

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/tei_rail.h"
#include "util/err.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/settings.h"

#define REG_KEY_TRIES	16
#define REG_SHIFT_MIN	20		/* log2 of the smallest size, bytes, to
					 * which a refused registration is
					 * halved */
#define REG_SHIFT_SET	12		/* log2 of the smallest size, bytes, to
					 * which MC_MAX_MR_SIZE can limit a
					 * registration */

static int reg_random_key(const struct rail *rail, uint64_t *key)
{
	size_t size = rail->fab.info->domain_attr->mr_key_size;
	uint64_t max = UINT64_MAX;

	if (!tei_random(key, sizeof(*key)))
		return -FI_EIO;
	if (size && size < sizeof(*key))
		max = (UINT64_C(1) << (8 * size)) - 1;
	*key &= max;
	/* some providers use the two largest values for "no key" */
	if (*key >= max - 1)
		*key -= 2;
	return 0;
}

/* Returns the flags of a registration. A registration with flag FI_RMA_EVENT is
 * disabled until reg_enable is called. */
static uint64_t reg_flags(const struct rail *rail)
{
	return rail->fab.mr_mode & FI_MR_RMA_EVENT &&
			       rail->fab.info->caps & FI_RMA_EVENT
		       ? FI_RMA_EVENT
		       : 0;
}

/* Binds the registration to the rx lane if mr_mode requires that, and enables
 * the registration. */
static int reg_enable(struct rail *rail, struct fid_mr *mr)
{
	int ret = 0;

	if (rail->fab.mr_mode & FI_MR_ENDPOINT)
		ret = fi_mr_bind(mr, &rail->rx_lane.ep->fid, 0);
	if (!ret && (rail->fab.mr_mode & FI_MR_ENDPOINT || reg_flags(rail)))
		ret = fi_mr_enable(mr);
	return ret;
}

/* Registers one range. gpu: the region if it is GPU memory, otherwise NULL. */
static int reg_one(struct rail *rail, struct fid_domain *domain,
		   const struct tei_rail_mr *gpu, enum tei_rail_way way,
		   void *addr, size_t len, uint64_t access, struct fid_mr **out)
{
	int i, ret = -FI_ENOKEY;
	struct fid_mr *mr;
	uint64_t key = 0;

	if (rail->fab.mr_mode & FI_MR_ENDPOINT && !rail->rx_lane.ep)
		return -FI_EOPBADSTATE;
	for (i = 0; i < REG_KEY_TRIES && ret == -FI_ENOKEY; i++) {
		if (!(rail->fab.mr_mode & FI_MR_PROV_KEY)) {
			ret = reg_random_key(rail, &key);
			if (ret)
				return ret;
		}
		ret = gpu ? rail_hmem_reg(domain, gpu, way, addr, len, access,
					  key, reg_flags(rail), &mr) :
			    fi_mr_reg(domain, addr, len, access, 0, key,
				      reg_flags(rail), &mr, NULL);
	}
	if (ret)
		return ret;
	ret = reg_enable(rail, mr);
	if (ret) {
		fi_close(&mr->fid);
		return ret;
	}
	*out = mr;
	return 0;
}

int rail_reg_own(struct rail *rail, struct fid_domain *domain, void *mem,
		 size_t len, uint64_t access, struct fid_mr **out)
{
	return reg_one(rail, domain, NULL, TEI_RAIL_WAY_HOST, mem, len, access,
		       out);
}

static int reg_read_key(const struct rail *rail, struct rail_mr_piece *piece)
{
	size_t len = sizeof(piece->key);
	uint64_t base, key;
	int ret;

	if (!(rail->fab.mr_mode & FI_MR_RAW)) {
		key = fi_mr_key(piece->mr);
		memcpy(piece->key, &key, sizeof(key));
		piece->key_len = sizeof(key);
		return key == FI_KEY_NOTAVAIL ? -FI_ENOKEY : 0;
	}
	ret = fi_mr_raw_attr(piece->mr, &base, piece->key, &len, 0);
	piece->key_len = ret ? 0 : (uint8_t)len;
	return ret;
}

static void reg_close_part(const struct rail *rail, struct rail_mr_part *part)
{
	uint32_t i;
	int ret;

	for (i = 0; i < part->n; i++) {
		ret = part->piece[i].mr ? fi_close(&part->piece[i].mr->fid) : 0;
		if (ret)
			TEI_WARN("rail", "%s: a registration cannot be closed: %s",
				 rail->name, fi_strerror(-ret));
	}
	free(part->piece);
	free(part->desc);
	memset(part, 0, sizeof(*part));
}

static bool reg_shared(const struct rail *rail)
{
	return rail->fab.tx_domain == rail->fab.rx_domain;
}

/*
 * Returns the access bits with which the region is registered, or 0 if no
 * registration is needed on this rail. Memory that the process itself cannot
 * write is registered without write access, because devices refuse write access
 * to such memory.
 */
static uint64_t reg_access(const struct tei_rail_mr *mr,
			   const struct rail *rail)
{
	uint64_t access = 0;

	if (mr->remote)
		access |= FI_REMOTE_READ;
	if (reg_shared(rail))
		access |= FI_WRITE;
	if (mr->read_only)
		return access;
	if (mr->remote)
		access |= FI_REMOTE_WRITE;
	if (reg_shared(rail))
		access |= FI_READ;
	return access;
}

static int reg_piece(const struct tei_rail_mr *mr, struct rail *rail,
		     struct rail_mr_part *part, uint32_t i)
{
	uint64_t off = (uint64_t)i << part->shift;
	uint64_t left = mr->len - off, len = UINT64_C(1) << part->shift;
	struct rail_mr_piece *piece = &part->piece[i];
	int ret;

	ret = reg_one(rail, rail->fab.rx_domain, mr->gpu ? mr : NULL, part->way,
		      mr->addr + off, left < len ? left : len,
		      reg_access(mr, rail), &piece->mr);
	if (!ret && mr->remote)
		ret = reg_read_key(rail, piece);
	if (!ret && part->desc)
		part->desc[i] = fi_mr_desc(piece->mr);
	return ret;
}

/* Registers the region in parts of 1 << shift bytes. Sets *done to the number
 * of registered parts, even on failure. */
static int reg_try(const struct tei_rail_mr *mr, struct rail *rail,
		   enum tei_rail_way way, uint8_t shift,
		   struct rail_mr_part *part, uint32_t *done)
{
	bool desc = mr->gpu || rail->fab.mr_mode & FI_MR_LOCAL;
	int ret = 0;

	memset(part, 0, sizeof(*part));
	*done = 0;
	part->shift = shift;
	part->way = (uint8_t)way;
	part->n = (uint32_t)(((mr->len - 1) >> shift) + 1);
	part->piece = calloc(part->n, sizeof(*part->piece));
	if (desc)
		part->desc = calloc(part->n, sizeof(*part->desc));
	if (!part->piece || (desc && !part->desc)) {
		part->n = 0;
		*done = 1;
		ret = -FI_ENOMEM;
	}
	for (; !ret && *done < part->n; (*done)++) {
		ret = reg_piece(mr, rail, part, *done);
		if (ret)
			break;
	}
	if (ret)
		reg_close_part(rail, part);
	return ret;
}

static uint8_t reg_log2(uint64_t v)
{
	return (uint8_t)(63 - __builtin_clzll(v));
}

/* Returns the shift (log2 of the bytes per registration) of the first attempt
 * to register the region. */
static uint8_t reg_first_shift(const struct tei_rail_mr *mr,
			       const struct rail *rail)
{
	uint64_t limit = rail->dp->settings->memory.max_mr_size;
	uint8_t shift = RAIL_MR_WHOLE;

	if (limit && mr->len > limit) {
		shift = reg_log2(limit);
		if (shift < REG_SHIFT_SET)
			shift = REG_SHIFT_SET;
	}
	if (rail->caps.mr_shift &&
	    mr->len > UINT64_C(1) << rail->caps.mr_shift &&
	    rail->caps.mr_shift < shift)
		shift = rail->caps.mr_shift;
	return shift;
}

/* Returns true if the error "ret" may mean that the registration is too large.
 * For a dma-buf, FI_EINVAL usually has another cause, whatever the size is. */
static bool reg_too_large(enum tei_rail_way way, int ret)
{
	return ret == -FI_E2BIG || ret == -FI_ENOMEM ||
	       (ret == -FI_EINVAL && way != TEI_RAIL_WAY_DMABUF);
}

/* Records in *tried that an attempt is made to register the region in parts of
 * 1 << shift bytes. */
static void reg_note(const struct tei_rail_mr *mr, uint8_t shift,
		     struct rail_reg_tried *tried)
{
	uint64_t size = UINT64_C(1) << shift;

	tried->least = size < mr->len ? size : mr->len;
	if (!tried->most)
		tried->most = tried->least;
	tried->pieces = (uint32_t)(((mr->len - 1) >> shift) + 1);
}

/* Registers the region in parts that are as large as the device accepts. */
static int reg_pieces(const struct tei_rail_mr *mr, struct rail *rail,
		      enum tei_rail_way way, struct rail_mr_part *part,
		      struct rail_reg_tried *tried)
{
	uint8_t first = reg_first_shift(mr, rail), shift = first;
	int ret, why = 0;

	memset(tried, 0, sizeof(*tried));
	for (;;) {
		reg_note(mr, shift, tried);
		ret = reg_try(mr, rail, way, shift, part, &tried->done);
		if (!ret || tried->done || !reg_too_large(way, ret))
			break;
		why = ret;
		if (shift == RAIL_MR_WHOLE)
			shift = mr->len > 1 ? reg_log2(mr->len - 1) : 0;
		else
			shift--;
		if (shift < REG_SHIFT_MIN)
			break;
	}
	if (ret || shift == first)
		return ret;
	/* If the system lacks memory to pin, the size is not remembered,
	 * because the next region may succeed. A limit of GPU memory is not
	 * remembered for host memory. */
	if (why != -FI_ENOMEM && !mr->gpu)
		rail->caps.mr_shift = shift;
	TEI_INFO("rail", "%s: %p, %llu bytes: registered in parts of %llu bytes: %s",
		 rail->name, (void *)mr->addr, (unsigned long long)mr->len,
		 1ull << shift, fi_strerror(-why));
	return 0;
}

/* Registers GPU memory. On failure fills err with the reason, without logging
 * it. */
static int reg_gpu(const struct tei_rail_mr *mr, struct rail *rail,
		   struct rail_mr_part *part, struct tei_err *err)
{
	const char *no = rail_hmem_no_dmabuf(mr);
	struct rail_reg_tried tried;
	enum tei_rail_way way = TEI_RAIL_WAY_DMABUF;
	int ret = -FI_ENOSYS;

	if (!rail->caps.hmem)
		return rail_hmem_refuse(rail, err);
	if (!no) {
		ret = reg_pieces(mr, rail, way, part, &tried);
		no = ret ? fi_strerror(-ret) : NULL;
	}
	if (ret) {
		way = TEI_RAIL_WAY_PEER;
		ret = reg_pieces(mr, rail, way, part, &tried);
	}
	if (!ret) {
		TEI_INFO("rail",
			 "%s: %p, %llu bytes of cuda:%d: registered by %s%s%s%s",
			 rail->name, (void *)mr->addr,
			 (unsigned long long)mr->len, mr->device.cuda,
			 tei_rail_way_name(way), no ? ", no dma-buf (" : "",
			 no ? no : "", no ? ")" : "");
		return 0;
	}
	memset(err, 0, sizeof(*err));
	err->code = TEI_ERR_UNSUPPORTED;
	snprintf(err->rail, sizeof(err->rail), "%s", rail->name);
	snprintf(err->text, sizeof(err->text),
		 "%.32s: cannot register GPU memory: dma-buf: %.36s; peer memory: %.36s",
		 rail->name, no, fi_strerror(-ret));
	return err->code;
}

static int reg_fail(const struct tei_rail_mr *mr, const struct rail *rail,
		    const struct rail_reg_tried *tried, int ret,
		    struct tei_err *err)
{
	struct rail_limits limits;
	char hint[TEI_ERR_TEXT];

	rail_limits_get(rail, ret, &limits);
	rail_limits_text(&limits, tried, ret, hint, sizeof(hint));
	return tei_err_fail(err, TEI_ERR_CONTEXT, "rail", *hint ? hint : NULL,
			    "%s: registering %p, %llu bytes: %s", rail->name,
			    (void *)mr->addr, (unsigned long long)mr->len,
			    fi_strerror(-ret));
}

/* Exchanges *part with the region's registration on the rail: *part becomes the
 * current registration, and the old one is returned in *part. */
static void reg_publish(struct tei_rail_mr *mr, struct rail *rail,
			struct rail_mr_part *part)
{
	struct rail_mr_part old;

	rail_sched_enter(rail->dp);
	old = mr->part[rail->index];
	mr->part[rail->index] = *part;
	rail_sched_leave(rail->dp);
	*part = old;
}

int rail_mr_open_on(struct tei_rail_mr *mr, struct rail *rail,
		    struct tei_err *err)
{
	struct rail_reg_tried tried;
	struct rail_mr_part part;
	int ret;

	if (mr->gpu) {
		ret = reg_gpu(mr, rail, &part, err);
		if (ret)
			return ret;
		reg_publish(mr, rail, &part);
		return 0;
	}
	if (!reg_access(mr, rail))
		return 0;
	ret = reg_pieces(mr, rail, TEI_RAIL_WAY_HOST, &part, &tried);
	if (ret)
		return reg_fail(mr, rail, &tried, ret, err);
	reg_publish(mr, rail, &part);
	return 0;
}

void rail_mr_close_on(struct tei_rail_mr *mr, struct rail *rail)
{
	struct rail_mr_part none;

	memset(&none, 0, sizeof(none));
	reg_publish(mr, rail, &none);
	reg_close_part(rail, &none);
}

/*
 * Closes the registrations of the rail, but keeps their rail_mr_part objects,
 * so that rail_mr_rebind can register the same parts again. In between, the
 * regions have no keys on this rail.
 */
void rail_mr_unbind(struct rail *rail)
{
	struct tei_rail_dp *dp = rail->dp;
	struct rail_mr_part *part;
	uint32_t i, j;

	rail_sched_enter(dp);
	for (i = 0; i < dp->memory.mrs.n; i++) {
		part = &rail_mr_at(dp, i)->part[rail->index];
		for (j = 0; j < part->n; j++)
			part->piece[j].key_len = 0;
	}
	rail_sched_leave(dp);
	/* the table and the parts do not change, because dp->admin is held */
	for (i = 0; i < dp->memory.mrs.n; i++) {
		part = &rail_mr_at(dp, i)->part[rail->index];
		for (j = 0; j < part->n; j++) {
			if (part->piece[j].mr)
				fi_close(&part->piece[j].mr->fid);
			part->piece[j].mr = NULL;
		}
	}
}

void rail_mr_rebind(struct rail *rail)
{
	struct tei_rail_dp *dp = rail->dp;
	struct rail_reg_tried tried;
	struct rail_mr_part part;
	uint32_t i, refused = 0;
	struct tei_rail_mr *mr;
	struct tei_err err;
	int ret;

	for (i = 0; i < dp->memory.mrs.n; i++) {
		mr = rail_mr_at(dp, i);
		if (!mr->part[rail->index].n)
			continue;
		ret = reg_pieces(mr, rail, mr->part[rail->index].way, &part,
				 &tried);
		if (ret) {
			if (!refused++)
				reg_fail(mr, rail, &tried, ret, &err);
			continue;
		}
		reg_publish(mr, rail, &part);
		reg_close_part(rail, &part);
	}
	if (refused > 1)
		TEI_WARN("rail", "%s: %u regions are no longer registered",
			 rail->name, refused);
}
