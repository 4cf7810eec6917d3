/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Local memory: registered on every rail, kept in a table sorted by address,
 * and given up again only when no peer can touch it any more.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "prov/rail/rail_int.h"
#include "topo/tei_topo.h"

#define MR_KEY_TRIES	16

static int mr_random_key(const struct rail *rail, uint64_t *key)
{
	size_t size = rail->info->domain_attr->mr_key_size;

	if (getrandom(key, sizeof(*key), 0) != sizeof(*key))
		return -FI_EIO;
	if (size && size < sizeof(*key))
		*key &= (UINT64_C(1) << (8 * size)) - 1;
	/* the two largest values mean "none" to some providers */
	if (*key >= UINT64_MAX - 1)
		*key -= 2;
	return 0;
}

static int mr_reg_one(struct rail *rail, struct fid_domain *domain,
		      const struct tei_rail_mr *mr, uint64_t access,
		      struct fid_mr **out)
{
	uint64_t key = 0;
	int i, ret = -FI_ENOKEY;

	for (i = 0; i < MR_KEY_TRIES && ret == -FI_ENOKEY; i++) {
		if (!(rail->mr_mode & FI_MR_PROV_KEY)) {
			ret = mr_random_key(rail, &key);
			if (ret)
				return ret;
		}
		ret = fi_mr_reg(domain, mr->addr, mr->len, access, 0, key, 0,
				out, NULL);
	}
	if (ret || !(rail->mr_mode & FI_MR_ENDPOINT))
		return ret;
	ret = fi_mr_bind(*out, &rail->target.ep->fid, 0);
	if (!ret)
		ret = fi_mr_enable(*out);
	if (ret) {
		fi_close(&(*out)->fid);
		*out = NULL;
	}
	return ret;
}

static int mr_read_key(const struct rail *rail, struct rail_mr_part *part)
{
	size_t len = sizeof(part->key);
	uint64_t base, key;
	int ret;

	if (!(rail->mr_mode & FI_MR_RAW)) {
		key = fi_mr_key(part->mr_target);
		memcpy(part->key, &key, sizeof(key));
		part->key_len = sizeof(key);
		return key == FI_KEY_NOTAVAIL ? -FI_ENOKEY : 0;
	}
	ret = fi_mr_raw_attr(part->mr_target, &base, part->key, &len, 0);
	part->key_len = ret ? 0 : (uint8_t)len;
	return ret;
}

static int mr_fail(const struct tei_rail_mr *mr, const struct rail *rail,
		   int ret, struct tei_err *err)
{
	const char *hint = NULL;

	if (ret == -FI_ENOMEM || ret == -FI_EAGAIN)
		hint = "check the memlock limit (ulimit -l)";
	if (ret == -FI_ENOSPC || ret == -FI_ENOKEY)
		hint = "the device's number of registrations is used up";
	return tei_err_fail(err, TEI_ERR_CONTEXT, "rail", hint,
			    "%s: registering %p, %llu bytes: %s", rail->name,
			    (void *)mr->addr, (unsigned long long)mr->len,
			    fi_strerror(-ret));
}

int rail_mr_open_on(struct tei_rail_mr *mr, struct rail *rail,
		    struct tei_err *err)
{
	struct rail_mr_part *part = &mr->part[rail->index];
	bool shared = rail->init_domain == rail->target_domain;
	uint64_t local = FI_READ | FI_WRITE;
	uint64_t remote = mr->remote ? FI_REMOTE_READ | FI_REMOTE_WRITE : 0;
	int ret = 0;

	if (shared) {
		ret = mr_reg_one(rail, rail->target_domain, mr, local | remote,
				 &part->mr_target);
		if (rail->mr_mode & FI_MR_LOCAL)
			part->mr_local = part->mr_target;
	} else if (remote) {
		ret = mr_reg_one(rail, rail->target_domain, mr, remote,
				 &part->mr_target);
	}
	if (!ret && mr->remote)
		ret = mr_read_key(rail, part);
	if (!ret)
		return 0;
	rail_mr_close_on(mr, rail);
	return mr_fail(mr, rail, ret, err);
}

void rail_mr_close_on(struct tei_rail_mr *mr, struct rail *rail)
{
	struct rail_mr_part *part = &mr->part[rail->index];
	int ret;

	if (part->mr_target) {
		ret = fi_close(&part->mr_target->fid);
		if (ret)
			TEI_WARN("rail", "%s: closing a registration: %s",
				 rail->name, fi_strerror(-ret));
	}
	part->mr_target = NULL;
	part->mr_local = NULL;
	part->key_len = 0;
}

void rail_mr_rank(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
{
	uint8_t ranks[TEI_RAIL_MAX];
	uint32_t i;
	int nic;

	memset(ranks, 0, sizeof(ranks));
	if (dp->topo)
		tei_topo_ranks(dp->topo, mr->location, ranks, TEI_RAIL_MAX);
	for (i = 0; i < rail_count(dp); i++) {
		nic = dp->topo ? tei_topo_find_nic(dp->topo,
						   rail_at(dp, i)->name) : -1;
		mr->rank[i] = nic >= 0 && nic < TEI_RAIL_MAX ? ranks[nic] : 0;
	}
}

/* Index of the first region that ends above addr. */
static uint32_t mr_index(const struct tei_rail_dp *dp, const char *addr)
{
	uint32_t lo = 0, hi = dp->nmrs, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (dp->mrs[mid]->addr + dp->mrs[mid]->len <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct tei_rail_mr *rail_mr_find(struct tei_rail_dp *dp, const void *addr,
				 uint64_t len)
{
	const char *a = addr;
	uint32_t i = mr_index(dp, a);
	struct tei_rail_mr *mr;

	if (i >= dp->nmrs)
		return NULL;
	mr = dp->mrs[i];
	if (mr->state != RAIL_MR_READY || a < mr->addr ||
	    len > mr->len - (uint64_t)(a - mr->addr))
		return NULL;
	return mr;
}

static int mr_insert(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held)
{
	uint32_t i = mr_index(dp, mr->addr);
	struct tei_rail_mr **grown;

	if (i < dp->nmrs && dp->mrs[i]->addr < mr->addr + mr->len)
		return TEI_ERR_OVERLAP;
	if (dp->nmrs == dp->mrs_cap) {
		grown = realloc(dp->mrs, (dp->mrs_cap * 2 + 16) *
						 sizeof(*grown));
		if (!grown)
			return TEI_ERR_MEMORY;
		dp->mrs = grown;
		dp->mrs_cap = dp->mrs_cap * 2 + 16;
	}
	memmove(&dp->mrs[i + 1], &dp->mrs[i],
		(dp->nmrs - i) * sizeof(*dp->mrs));
	dp->mrs[i] = mr;
	dp->nmrs++;
	mr->id = ++dp->mr_next_id;
	return 0;
}

static void mr_remove(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held)
{
	uint32_t i = mr_index(dp, mr->addr);

	memmove(&dp->mrs[i], &dp->mrs[i + 1],
		(dp->nmrs - i - 1) * sizeof(*dp->mrs));
	dp->nmrs--;
}

static int mr_open_all(struct tei_rail_dp *dp, struct tei_rail_mr *mr,
		       struct tei_err *err)
{
	uint32_t i, n = rail_count(dp);
	int ret = 0;

	for (i = 0; i < n && !ret; i++)
		if (rail_at(dp, i)->open)
			ret = rail_mr_open_on(mr, rail_at(dp, i), err);
	while (ret && i--)
		rail_mr_close_on(mr, rail_at(dp, i));
	return ret;
}

int tei_rail_mr_reg(struct tei_rail_dp *dp, void *addr, uint64_t len,
		    const char *location, bool remote, struct tei_err *err,
		    struct tei_rail_mr **out)
{
	struct tei_rail_mr *mr;
	int ret;

	if (!addr || !len || (uintptr_t)addr + len < (uintptr_t)addr)
		return tei_err_fail(err, TEI_ERR_INVALID, "rail", NULL,
				    "%p, %llu bytes is no memory range", addr,
				    (unsigned long long)len);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return tei_err_fail(err, TEI_ERR_MEMORY, "rail", NULL,
				    "no memory for a region");
	mr->addr = addr;
	mr->len = len;
	mr->remote = remote;
	snprintf(mr->location, sizeof(mr->location), "%s",
		 location ? location : "*");
	tei_mutex_lock(&dp->admin);
	rail_sched_enter(dp);
	ret = mr_insert(dp, mr);
	rail_sched_leave(dp);
	if (ret) {
		ret = tei_err_fail(err, ret, "rail", NULL,
				   "%p, %llu bytes", addr,
				   (unsigned long long)len);
		goto err_mr;
	}
	rail_mr_rank(dp, mr);
	ret = mr_open_all(dp, mr, err);
	rail_sched_enter(dp);
	if (ret)
		mr_remove(dp, mr);
	else
		mr->state = RAIL_MR_READY;
	rail_sched_leave(dp);
	if (ret)
		goto err_mr;
	tei_mutex_unlock(&dp->admin);
	*out = mr;
	return 0;
err_mr:
	tei_mutex_unlock(&dp->admin);
	free(mr);
	return ret;
}

static void mr_free(struct tei_rail_mr *mr)
{
	free(mr->holders);
	free(mr);
}

void rail_mr_free_all(struct tei_rail_dp *dp)
{
	uint32_t i, r;

	for (i = 0; i < dp->nmrs; i++) {
		for (r = 0; r < rail_count(dp); r++)
			rail_mr_close_on(dp->mrs[i], rail_at(dp, r));
		mr_free(dp->mrs[i]);
	}
	free(dp->mrs);
	dp->mrs = NULL;
	dp->nmrs = 0;
}

int tei_rail_mr_key(struct tei_rail_dp *dp, const void *addr, size_t rail,
		    uint64_t *key)
{
	struct tei_rail_mr *mr;
	int ret = TEI_ERR_NOT_REGISTERED;

	tei_mutex_lock(&dp->admin);
	rail_sched_enter(dp);
	mr = rail_mr_find(dp, addr, 1);
	rail_sched_leave(dp);
	if (mr && rail < rail_count(dp) && mr->part[rail].key_len >= 8) {
		memcpy(key, mr->part[rail].key, sizeof(*key));
		ret = 0;
	}
	tei_mutex_unlock(&dp->admin);
	return ret;
}

/* --- unregistering ------------------------------------------------------- */

/* Waits on dp->cond until *what is 0 or the time is over; sched is held. */
static bool mr_wait_zero(struct tei_rail_dp *dp, const uint32_t *what,
			 uint64_t timeout_ns) TEI_REQUIRES(rail_sched_held)
{
	uint64_t end = tei_now_ns() + timeout_ns, now;

	while (*what) {
		now = tei_now_ns();
		if (now >= end)
			return false;
		rail_sched_wait(dp, end - now);
	}
	return true;
}

/* Tells every holder, through the thread, that the region goes away. */
static void mr_revoke(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *peer;
	uint32_t i;

	dp->key_epoch++;
	mr->holders_left = 0;
	for (i = 0; i < mr->nholders; i++) {
		peer = rail_peer_find(dp, mr->holders[i]);
		if (!peer || peer->state == RAIL_PEER_GONE)
			continue;
		if (rail_key_revoke(peer, mr->id))
			continue;
		mr->holders_left++;
	}
	if (mr->holders_left)
		rail_progress_wake(dp);
}

/*
 * Writes that were started under the key go on at the provider even when the
 * registration is closed, so the lanes that carry them are closed.
 */
static void mr_fence_lanes(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held)
{
	mr->fence_wanted = 1;
	__atomic_fetch_add(&dp->nfencing, 1, __ATOMIC_RELEASE);
	rail_progress_wake(dp);
	/* unbounded on purpose: the thread serves it without waiting for any
	 * peer, and returning early would break the promise */
	while (mr->fence_wanted)
		rail_sched_wait(dp, TEI_NS_PER_SEC);
	__atomic_fetch_sub(&dp->nfencing, 1, __ATOMIC_RELEASE);
}

int tei_rail_mr_dereg(struct tei_rail_dp *dp, void *addr, uint64_t local_ns,
		      struct tei_err *err)
{
	struct tei_rail_mr *mr;
	bool answered;
	uint32_t i;

	rail_sched_enter(dp);
	mr = rail_mr_find(dp, addr, 1);
	if (!mr || mr->addr != (char *)addr) {
		rail_sched_leave(dp);
		return tei_err_fail(err, TEI_ERR_NOT_REGISTERED, "rail", NULL,
				    "%p is not the start of a registered region",
				    addr);
	}
	mr->state = RAIL_MR_REVOKING;
	if (!mr_wait_zero(dp, &mr->tasks, local_ns)) {
		mr->state = RAIL_MR_READY;
		rail_sched_leave(dp);
		return tei_err_fail(err, TEI_ERR_BUSY, "rail", NULL,
				    "%p: transfers of this process still use it",
				    addr);
	}
	mr_revoke(dp, mr);
	answered = mr_wait_zero(dp, &mr->holders_left,
				dp->settings->fence_ms * TEI_NS_PER_MS);
	rail_sched_leave(dp);

	tei_mutex_lock(&dp->admin);
	for (i = 0; i < rail_count(dp); i++)
		rail_mr_close_on(mr, rail_at(dp, i));
	tei_mutex_unlock(&dp->admin);

	rail_sched_enter(dp);
	if (!answered) {
		TEI_INFO("rail", "%p: %u peers did not answer, fencing", addr,
			 mr->holders_left);
		mr_fence_lanes(dp, mr);
	}
	rail_key_forget(dp, mr->id);
	mr_remove(dp, mr);
	rail_sched_leave(dp);
	mr_free(mr);
	return 0;
}
