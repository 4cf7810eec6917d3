/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cuts and posts scatter/gather requests. The bytes of such a task are numbered
 * across all its iov entries, so that "byte off" is the byte at offset off of
 * the task. A slice is a range of these bytes in one region of the peer. It
 * spans at most as many local and remote entries as the rail accepts in one
 * operation.
 */

#include <rdma/fi_rma.h>
#include <stdlib.h>

#include "prov/rail/conn/rail_key.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/err.h"

struct tei_rail_task_ext *tei_rail_task_ext_new(uint32_t nlocal,
						uint32_t nremote)
{
	struct tei_rail_task_ext *x;

	x = calloc(1, sizeof(*x) +
			      ((size_t)nlocal + nremote) * sizeof(x->piece[0]));
	if (!x)
		return NULL;
	x->nlocal = nlocal;
	x->nremote = nremote;
	return x;
}

uint64_t tei_rail_task_ext_lay(struct tei_rail_iov *piece, uint32_t n)
{
	uint64_t off = 0;
	uint32_t i;

	for (i = 0; i < n; i++) {
		piece[i].off = off;
		off += piece[i].len;
	}
	return off;
}

int rail_iov_check(struct tei_rail_dp *dp, struct tei_rail_task_ext *x,
		   bool read)
{
	struct tei_rail_mr *mr;
	uint32_t i;

	for (i = 0; i < x->nlocal; i++) {
		mr = rail_mr_find(dp, (void *)(uintptr_t)x->piece[i].addr,
				  x->piece[i].len);
		if (!mr || mr->gpu || (read && mr->read_only))
			return TEI_ERR_NOT_REGISTERED;
		x->piece[i].mr = mr;
	}
	return 0;
}

void rail_iov_hold(struct tei_rail_task_ext *x)
{
	uint32_t i;

	/* begins with the second entry, because the task itself holds the
	 * region of the first one */
	for (i = 1; i < x->nlocal; i++)
		x->piece[i].mr->tasks++;
}

/* Returns the index of the entry that contains the byte at offset off of the
 * task. */
static uint32_t piece_at(const struct tei_rail_iov *piece, uint32_t n,
			 uint64_t off)
{
	uint32_t lo = 0, hi = n - 1, mid;

	while (lo < hi) {
		mid = (lo + hi + 1) / 2;
		if (piece[mid].off <= off)
			lo = mid;
		else
			hi = mid - 1;
	}
	return lo;
}

static struct tei_rail_iov *piece_remotes(const struct tei_rail_task_ext *x)
{
	return (struct tei_rail_iov *)&x->piece[x->nlocal];
}

const uint8_t *rail_iov_ranks(const struct tei_rail_task_ext *x, uint64_t off)
{
	const struct tei_rail_iov *p;

	p = &x->piece[piece_at(x->piece, x->nlocal, off)];
	return rail_mr_ranks(p->mr, (char *)(uintptr_t)(p->addr +
							(off - p->off)));
}

void rail_iov_select(const struct tei_rail_task_ext *x, uint64_t off,
		     char **local, uint64_t *remote)
{
	const struct tei_rail_iov *p;

	p = &x->piece[piece_at(x->piece, x->nlocal, off)];
	*local = (char *)(uintptr_t)(p->addr + (off - p->off));
	p = piece_remotes(x);
	p += piece_at(p, x->nremote, off);
	*remote = p->addr + (off - p->off);
}

bool rail_iov_keys(struct tei_rail_peer *peer,
		   const struct tei_rail_task_ext *x, uint64_t off,
		   uint64_t len, bool read)
{
	const struct tei_rail_iov *p = piece_remotes(x);
	uint32_t i;

	for (i = piece_at(p, x->nremote, off);
	     i < x->nremote && p[i].off < off + len; i++)
		if (!rail_key_covers_or_want(peer, p[i].addr, p[i].len, read))
			return false;
	return true;
}

bool rail_iov_names(const struct tei_rail_task_ext *x, uint64_t off,
		    uint64_t len, uint64_t addr, uint64_t alen)
{
	const struct tei_rail_iov *p = piece_remotes(x);
	uint32_t i;

	for (i = piece_at(p, x->nremote, off);
	     i < x->nremote && p[i].off < off + len; i++)
		if (p[i].addr <= addr &&
		    p[i].addr + (p[i].len - 1) >= addr + (alen - 1))
			return true;
	return false;
}

/* Returns the number of bytes, counted from byte off, that the next "limit"
 * entries cover. Stops earlier at a local entry that extends beyond one
 * registration of the rail. */
static uint64_t piece_run(const struct tei_rail_iov *p, uint32_t n,
			  uint32_t limit, uint64_t off, const struct rail *rail)
{
	uint32_t i = piece_at(p, n, off), end = i + limit < n ? i + limit : n;
	uint64_t skip = off - p[i].off, run = 0, len, room;
	const struct rail_mr_part *part;

	for (; i < end; i++, skip = 0) {
		len = p[i].len - skip;
		run += len;
		if (!p[i].mr)
			continue;
		part = &p[i].mr->part[rail->index];
		room = part->desc ? rail_mr_room(p[i].mr, part,
						 (char *)(uintptr_t)(p[i].addr +
								     skip)) :
				    len;
		if (room < len)
			return run - len + room;
	}
	return run;
}

/* Returns the number of bytes, counted from byte off, whose remote entries lie
 * in the region of the key. Stops examining entries when the number has reached
 * "most". */
static uint64_t piece_in_region(const struct tei_rail_iov *p, uint32_t n,
				uint64_t off, uint64_t most,
				const struct rail_rkey *k)
{
	uint32_t i = piece_at(p, n, off);
	uint64_t skip = off - p[i].off, run = 0, addr, len, room;

	for (; i < n && run < most; i++, skip = 0) {
		addr = p[i].addr + skip;
		len = p[i].len - skip;
		if (addr < k->range.base || addr >= k->range.end)
			break;
		room = k->range.end - addr;
		run += len < room ? len : room;
		if (len > room)
			break;
	}
	return run;
}

uint64_t rail_iov_fit(const struct tei_rail_task_ext *x, uint64_t off,
		      const struct rail_rkey *key, const struct rail *rail)
{
	uint64_t len, max;

	len = piece_run(x->piece, x->nlocal, rail->caps.iov_limit, off, rail);
	max = piece_run(piece_remotes(x), x->nremote, rail->caps.rma_limit, off,
			rail);
	if (len > max)
		len = max;
	max = piece_in_region(piece_remotes(x), x->nremote, off, len, key);
	return len < max ? len : max;
}

/* Fills iov and desc with the local entries of the slice. Returns their
 * number. */
static size_t piece_local(const struct rail_slice *s, const struct rail *rail,
			  struct iovec *iov, void **desc)
{
	const struct tei_rail_iov *p = s->ext->piece;
	uint64_t off = s->off, left = s->len, len;
	uint32_t i = piece_at(p, s->ext->nlocal, off);
	const struct rail_mr_part *part;
	char *addr;
	size_t n;

	for (n = 0; left; n++, i++, off += len, left -= len) {
		len = p[i].off + p[i].len - off;
		len = len < left ? len : left;
		addr = (char *)(uintptr_t)(p[i].addr + (off - p[i].off));
		iov[n].iov_base = addr;
		iov[n].iov_len = len;
		part = &p[i].mr->part[rail->index];
		desc[n] = part->desc ? part->desc[(uint64_t)(addr -
							     p[i].mr->addr) >>
						  part->shift] :
				       NULL;
	}
	return n;
}

/* Fills rma with the remote entries of the slice. Returns their number. */
static size_t piece_remote(const struct rail_slice *s, struct fi_rma_iov *rma)
{
	const struct tei_rail_iov *p = piece_remotes(s->ext);
	uint64_t off = s->off, left = s->len, len;
	uint32_t i = piece_at(p, s->ext->nremote, off);
	/* difference between an address in the peer's memory and the address or
	 * offset that the provider expects for it; the difference is the same
	 * for all bytes of the slice */
	uint64_t bias = s->remote - s->rma_addr;
	size_t n;

	for (n = 0; left; n++, i++, off += len, left -= len) {
		len = p[i].off + p[i].len - off;
		len = len < left ? len : left;
		rma[n].addr = p[i].addr + (off - p[i].off) - bias;
		rma[n].len = len;
		rma[n].key = s->rma_key;
	}
	return n;
}

ssize_t rail_iov_post(struct rail_lane *lane, struct rail_slice *s)
{
	struct iovec iov[RAIL_IOV_MAX];
	struct fi_rma_iov rma[RAIL_IOV_MAX];
	void *desc[RAIL_IOV_MAX];
	struct fi_msg_rma msg = {
		.msg_iov = iov,
		.desc = desc,
		.iov_count = piece_local(s, lane->rail, iov, desc),
		.addr = s->conn->fi_addr,
		.rma_iov = rma,
		.rma_iov_count = piece_remote(s, rma),
		.context = &s->op.ctx,
	};

	if (s->read)
		return fi_readmsg(lane->ep, &msg, FI_COMPLETION);
	return fi_writemsg(lane->ep, &msg,
			   FI_COMPLETION | FI_DELIVERY_COMPLETE);
}
