/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of registered memory in every mr_mode. Data plane "from" submits
 * requests, data plane "to" owns the remote memory. Some cases use the modes of
 * real providers. Others put a shim over a provider, which requires further
 * modes or refuses registrations.
 */
#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_info.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/rail_open.h"
#include "prov/rail/rail_shim.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "topo/tei_topo.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/lock.h"
#include "util/settings.h"

#define MR_LEN		(8u << 20)
#define MR_PIECE	(64u << 10)

struct mr_rig {
	struct test_plane from, to;
	struct rail_shim from_shim, to_shim;
	struct tei_rail_peer *peer;
	char *src, *dst;
};

/* Selects provider sockets, which implements every mr_mode with which it is
 * opened. */
static void mr_use_sockets(struct mr_rig *rig)
{
	snprintf(rig->from.settings.rails.provider,
		 sizeof(rig->from.settings.rails.provider), "sockets");
	snprintf(rig->to.settings.rails.provider,
		 sizeof(rig->to.settings.rails.provider), "sockets");
}

/* Adds rails for the devices "address" to the data plane. mode: FI_MR_… bits
 * with which the provider is opened, as if the provider required them; -1 means
 * the provider's own mode. */
static int mr_open(struct test_plane *p, const char *address, int mode)
{
	struct rail_found *list, *f;
	struct tei_err err;
	int ret;

	test_plane_open(p, NULL);
	ret = rail_info_find(&p->settings, "tcp", address, 0, &err, &list);
	if (ret)
		return ret;
	tei_mutex_lock(&p->dp->admin);
	for (f = list; f && !ret; f = f->next) {
		if (mode >= 0)
			f->info->domain_attr->mr_mode = mode;
		ret = rail_dp_add(p->dp, f, "tcp", &err);
	}
	tei_mutex_unlock(&p->dp->admin);
	rail_info_free(list);
	return ret;
}

static void mr_tx(struct mr_rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	test_plane_init(&rig->from);
	test_plane_init(&rig->to);
	rig->from.settings.failure.retry_cnt = 3;
	rig->from.settings.failure.slice_timeout_s = 10;
	rig->from.settings.failure.fence_ms = 2000;
	rig->to.settings.failure.fence_ms = 2000;
	rig->src = aligned_alloc(4096, MR_LEN);
	rig->dst = aligned_alloc(4096, MR_LEN);
	CU_ASSERT_FATAL(rig->src && rig->dst);
	test_fill(rig->src, MR_LEN, 5);
	memset(rig->dst, 0, MR_LEN);
}

static int mr_reg(struct test_plane *p, void *mem, uint64_t len)
{
	struct tei_rail_mr *mr;
	struct tei_err err;

	return tei_rail_mr_reg(p->dp, mem, len, "*", TEI_RAIL_REMOTE, &err, &mr);
}

static void mr_begin(struct mr_rig *rig, int mode)
{
	CU_ASSERT_EQUAL_FATAL(mr_open(&rig->from, "127.0.0.1", mode), 0);
	CU_ASSERT_EQUAL_FATAL(mr_open(&rig->to, "127.0.0.2", mode), 0);
}

static void mr_shims(struct mr_rig *rig, uint64_t mode)
{
	rail_shim_install(&rig->from_shim, rail_at(rig->from.dp, 0), mode);
	rail_shim_install(&rig->to_shim, rail_at(rig->to.dp, 0), mode);
}

static void mr_reg_both(struct mr_rig *rig)
{
	CU_ASSERT_EQUAL_FATAL(mr_reg(&rig->from, rig->src, MR_LEN), 0);
	CU_ASSERT_EQUAL_FATAL(mr_reg(&rig->to, rig->dst, MR_LEN), 0);
	rig->peer = test_plane_peer(&rig->from, &rig->to);
}

static void mr_end(struct mr_rig *rig)
{
	if (rig->peer)
		tei_rail_peer_put(rig->peer);
	test_plane_close(&rig->from);
	test_plane_close(&rig->to);
	rail_shim_remove(&rig->from_shim);
	rail_shim_remove(&rig->to_shim);
	free(rig->src);
	free(rig->dst);
}

static void mr_run(struct mr_rig *rig, bool read, uint64_t off, uint64_t len)
{
	CU_ASSERT_EQUAL(test_run(rig->from.dp, rig->peer, read, rig->src + off,
				 rig->dst + off, len),
			TEI_RAIL_END_COMPLETED);
}

/* Writes all of the memory, then ranges that cross boundaries between
 * registrations, and reads all of the memory back. */
static void mr_check(struct mr_rig *rig)
{
	uint64_t off;

	mr_run(rig, false, 0, MR_LEN);
	CU_ASSERT_EQUAL(memcmp(rig->src, rig->dst, MR_LEN), 0);
	test_fill(rig->src, MR_LEN, 6);
	for (off = MR_LEN / 2 - 1000; off < MR_LEN - 3000; off += MR_LEN / 7)
		mr_run(rig, false, off, 2000);
	mr_run(rig, false, MR_LEN - 1, 1);
	for (off = MR_LEN / 2 - 1000; off < MR_LEN - 3000; off += MR_LEN / 7)
		CU_ASSERT_EQUAL(memcmp(rig->src + off, rig->dst + off, 2000),
				0);
	CU_ASSERT_EQUAL(rig->src[MR_LEN - 1], rig->dst[MR_LEN - 1]);
	test_fill(rig->dst, MR_LEN, 7);
	mr_run(rig, true, 0, MR_LEN);
	CU_ASSERT_EQUAL(memcmp(rig->src, rig->dst, MR_LEN), 0);
}

static void mr_dereg_both(struct mr_rig *rig)
{
	struct tei_err err;

	CU_ASSERT_EQUAL(tei_rail_mr_dereg(rig->to.dp, rig->dst, 0, &err), 0);
	CU_ASSERT_EQUAL(tei_rail_mr_dereg(rig->from.dp, rig->src, 0, &err), 0);
}

/* --- modes of real providers --------------------------------------------- */

static void mr_check_mode(const char *provider, int mode)
{
	struct rail_found *list = NULL;
	struct tei_err err;
	struct mr_rig rig;
	bool usable;

	mr_tx(&rig);
	snprintf(rig.from.settings.rails.provider,
		 sizeof(rig.from.settings.rails.provider), "%s", provider);
	rig.to.settings = rig.from.settings;
	/* ofi_rxm does not pass FI_MR_VIRT_ADDR on to the provider below it, so
	 * this mode is not usable with it */
	usable = !rail_info_find(&rig.from.settings, "tcp", "127.0.0.1", 0, &err,
				 &list) &&
		 !(mode > 0 && mode & FI_MR_VIRT_ADDR &&
		   strstr(list->info->fabric_attr->prov_name, "rxm"));
	rail_info_free(list);
	if (!usable) {
		test_plane_open(&rig.from, NULL);
		test_plane_open(&rig.to, NULL);
		mr_end(&rig);
		return;
	}
	mr_begin(&rig, mode);
	mr_reg_both(&rig);
	mr_check(&rig);
	mr_dereg_both(&rig);
	mr_end(&rig);
}

static const char *const mr_providers[] = {
	"tcp", "tcp;ofi_rxm", "net", "sockets", "udp;ofi_rxd",
};

static void mr_check_mode_everywhere(int mode)
{
	size_t i;

	for (i = 0; i < sizeof(mr_providers) / sizeof(mr_providers[0]); i++)
		mr_check_mode(mr_providers[i], mode);
}

static void test_memory_works_in_the_mode_of_each_provider(void)
{
	mr_check_mode_everywhere(-1);
}

static void test_memory_works_with_keys_of_the_provider(void)
{
	mr_check_mode_everywhere(FI_MR_PROV_KEY);
}

static void test_memory_works_with_virtual_addresses(void)
{
	mr_check_mode_everywhere(FI_MR_VIRT_ADDR);
}

static void test_memory_works_in_the_mode_of_verbs(void)
{
	mr_check_mode_everywhere(FI_MR_VIRT_ADDR | FI_MR_PROV_KEY |
				 FI_MR_ALLOCATED);
}

/* Checks posts with memory descriptors. With FI_MR_LOCAL, tx lanes and the rx
 * lane share one domain, and moonrail's message buffers are registered too. */
static void test_memory_works_with_local_descriptors(void)
{
	mr_check_mode_everywhere(FI_MR_LOCAL);
}

/* --- regions larger than one registration -------------------------------- */

static void mr_check_split(int mode)
{
	struct mr_rig rig;

	mr_tx(&rig);
	rig.from.settings.memory.max_mr_size = MR_PIECE + 4096;
	rig.to.settings.memory.max_mr_size = 2 * MR_PIECE;
	if (mode > 0)
		mr_use_sockets(&rig);
	mr_begin(&rig, mode);
	mr_shims(&rig, 0);
	mr_reg_both(&rig);
	CU_ASSERT_EQUAL(rig.from_shim.live, MR_LEN / MR_PIECE);
	CU_ASSERT_EQUAL(rig.to_shim.live, MR_LEN / MR_PIECE / 2);
	CU_ASSERT_EQUAL(tei_rail_mr_piece(rig.to.dp, rig.dst), 2 * MR_PIECE);
	CU_ASSERT_EQUAL(tei_rail_mr_piece(rig.to.dp, rig.dst + MR_LEN - 1), 1);
	mr_check(&rig);
	mr_dereg_both(&rig);
	CU_ASSERT_EQUAL(rig.from_shim.live, 0);
	CU_ASSERT_EQUAL(rig.to_shim.live, 0);
	CU_ASSERT_EQUAL(tei_rail_mr_piece(rig.to.dp, rig.dst), 0);
	mr_end(&rig);
}

static void test_a_large_region_is_registered_in_pieces(void)
{
	mr_check_split(-1);
}

static void test_a_split_region_works_with_addresses_and_descriptors(void)
{
	mr_check_split(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY |
		       FI_MR_ALLOCATED);
}

static void test_a_split_region_works_with_offsets_and_descriptors(void)
{
	mr_check_split(FI_MR_LOCAL);
}

static void test_small_tasks_across_pieces_complete(void)
{
	struct test_task t[64];
	struct mr_rig rig;
	uint32_t i;

	mr_tx(&rig);
	rig.from.settings.memory.max_mr_size = 4096;
	mr_begin(&rig, FI_MR_LOCAL);
	mr_reg_both(&rig);
	/* establish the connection first, so that the requests are merged */
	mr_run(&rig, false, 0, 1);
	for (i = 0; i < 64; i++)
		test_task_init(&t[i], rig.peer, false, rig.src + i * 1000,
			       rig.dst + i * 1000, 1000);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.from.dp, t, 64), 0);
	CU_ASSERT_FATAL(test_wait(t, 64));
	CU_ASSERT_EQUAL(memcmp(rig.src, rig.dst, 64000), 0);
	mr_end(&rig);
}

/* Checks a region with so many registrations that their keys do not fit into
 * one KEY_REP. */
static void test_keys_that_need_several_replies_are_fetched(void)
{
	struct mr_rig rig;

	mr_tx(&rig);
	rig.to.settings.memory.max_mr_size = 1; /* is rounded up to 4096 */
	mr_begin(&rig, -1);
	mr_shims(&rig, 0);
	mr_reg_both(&rig);
	CU_ASSERT_EQUAL(rig.to_shim.live, MR_LEN / 4096);
	mr_check(&rig);
	rail_sched_enter(rig.from.dp);
	CU_ASSERT_EQUAL(rig.peer->keys.rkeys.n, MR_LEN / 4096);
	rail_sched_leave(rig.from.dp);
	mr_dereg_both(&rig);
	rail_sched_enter(rig.from.dp);
	CU_ASSERT_EQUAL(rig.peer->keys.rkeys.n, 0);
	rail_sched_leave(rig.from.dp);
	mr_end(&rig);
}

/* Uses two rails on each side. The two target rails accept registrations of
 * different sizes. */
static void mr_check_uneven(int mode)
{
	struct rail_shim second;
	struct mr_rig rig;

	memset(&second, 0, sizeof(second));
	mr_tx(&rig);
	rig.to.settings.sched.slice_max = rig.from.settings.sched.slice_max =
		65536;
	if (mode > 0)
		mr_use_sockets(&rig);
	CU_ASSERT_EQUAL_FATAL(mr_open(&rig.from, "127.0.0.1,127.0.0.4", mode),
			      0);
	CU_ASSERT_EQUAL_FATAL(mr_open(&rig.to, "127.0.0.2,127.0.0.3", mode),
			      0);
	mr_shims(&rig, 0);
	rail_shim_install(&second, rail_at(rig.to.dp, 1), 0);
	rig.to_shim.max_len = 3u << 20;
	second.max_len = 1u << 20;
	rig.to_shim.refusal = second.refusal = -FI_E2BIG;
	mr_reg_both(&rig);
	CU_ASSERT_EQUAL(rig.to_shim.live, 4);
	CU_ASSERT_EQUAL(second.live, 8);
	mr_check(&rig);
	mr_dereg_both(&rig);
	CU_ASSERT_EQUAL(rig.to_shim.live, 0);
	CU_ASSERT_EQUAL(second.live, 0);
	mr_end(&rig);
	rail_shim_remove(&second);
}

static void test_rails_may_split_a_region_into_different_sizes(void)
{
	mr_check_uneven(-1);
	mr_check_uneven(FI_MR_VIRT_ADDR);
}

static void mr_check_refusal(int refusal)
{
	struct mr_rig rig;

	mr_tx(&rig);
	mr_begin(&rig, -1);
	mr_shims(&rig, 0);
	rig.to_shim.max_len = (2u << 20) + 4096;
	rig.to_shim.refusal = refusal;
	mr_reg_both(&rig);
	CU_ASSERT_EQUAL(rig.to_shim.live, 4);
	mr_check(&rig);
	mr_dereg_both(&rig);
	mr_end(&rig);
}

static void test_a_refused_size_is_halved(void)
{
	mr_check_refusal(-FI_E2BIG);
	mr_check_refusal(-FI_ENOMEM);
	mr_check_refusal(-FI_EINVAL);
}

static void test_a_device_refuses_a_size_once(void)
{
	uint32_t refused;
	struct mr_rig rig;

	mr_tx(&rig);
	mr_begin(&rig, -1);
	mr_shims(&rig, 0);
	rig.to_shim.max_len = 2u << 20;
	rig.to_shim.refusal = -FI_E2BIG;
	CU_ASSERT_EQUAL_FATAL(mr_reg(&rig.to, rig.dst, MR_LEN), 0);
	refused = rig.to_shim.refused;
	CU_ASSERT(refused > 0);
	CU_ASSERT_EQUAL_FATAL(mr_reg(&rig.to, rig.src, MR_LEN), 0);
	CU_ASSERT_EQUAL(rig.to_shim.refused, refused);
	CU_ASSERT_EQUAL(rig.to_shim.live, 8);
	mr_end(&rig);
}

/* Checks that a size limit which was found for GPU memory is not applied to
 * host memory. */
static void test_a_refused_size_of_gpu_memory_does_not_limit_host_memory(void)
{
	const struct tei_rail_device device = { .dmabuf = -1 };
	struct tei_rail_mr *mr;
	struct tei_err err;
	struct mr_rig rig;

	mr_tx(&rig);
	mr_begin(&rig, -1);
	mr_shims(&rig, 0);
	rail_at(rig.to.dp, 0)->caps.hmem = true;
	rig.to_shim.max_len = 2u << 20;
	rig.to_shim.refusal = -FI_EINVAL;
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg_gpu(rig.to.dp, rig.src, MR_LEN,
						  "cuda:0", TEI_RAIL_REMOTE,
						  &device, &err, &mr), 0);
	CU_ASSERT_EQUAL(rig.to_shim.live, 4);
	rig.to_shim.max_len = 0;
	CU_ASSERT_EQUAL_FATAL(mr_reg(&rig.to, rig.dst, MR_LEN), 0);
	CU_ASSERT_EQUAL(rig.to_shim.live, 5);
	mr_end(&rig);
}

/* Checks the error of a rail that cannot be opened, with or without FI_HMEM. */
static void test_a_rail_that_fails_to_open_names_both_errors(void)
{
	struct tei_err with, without;
	struct test_plane plane;
	struct rail *rail;

	test_plane_init(&plane);
	test_plane_open(&plane, "127.0.0.1");
	rail = rail_at(plane.dp, 0);
	tei_err_set_last(&(struct tei_err){ .code = TEI_ERR_CANCELED });
	__atomic_store_n(&rail->open, false, __ATOMIC_RELEASE);
	rail->caps.hmem = true;
	CU_ASSERT_EQUAL(rail_open_err_fn(rail)(&with, TEI_ERR_CONTEXT, "rail",
					       NULL, "lo: no domain"),
			TEI_ERR_CONTEXT);
	rail->caps.hmem = false;
	rail_hmem_leave(rail);
	CU_ASSERT_EQUAL(rail_open_err_fn(rail)(&without, TEI_ERR_MEMORY, "rail",
					       "buy some", "lo: no memory"),
			TEI_ERR_MEMORY);
	CU_ASSERT_EQUAL(tei_err_last()->code, TEI_ERR_CANCELED);
	rail_hmem_neither(&with, &without);
	CU_ASSERT_EQUAL(without.code, TEI_ERR_MEMORY);
	CU_ASSERT_STRING_EQUAL(without.text,
			       "lo: no memory; with FI_HMEM: lo: no domain");
	CU_ASSERT_STRING_EQUAL(without.hint, "buy some");
	CU_ASSERT_EQUAL(tei_err_last()->when_ns, without.when_ns);
	/* an error that has been logged is not changed or logged again */
	rail_hmem_neither(&with, &without);
	CU_ASSERT_STRING_EQUAL(without.text,
			       "lo: no memory; with FI_HMEM: lo: no domain");
	__atomic_store_n(&rail->open, true, __ATOMIC_RELEASE);
	test_plane_close(&plane);
}

static void mr_check_hopeless(struct rail_shim *shim, struct test_plane *p,
			      void *mem, uint32_t most)
{
	CU_ASSERT_EQUAL(mr_reg(p, mem, MR_LEN), TEI_ERR_CONTEXT);
	CU_ASSERT_EQUAL(shim->live, 0);
	CU_ASSERT(shim->refused <= most);
	rail_sched_enter(p->dp);
	CU_ASSERT_EQUAL(p->dp->memory.mrs.n, 0);
	rail_sched_leave(p->dp);
	shim->refused = 0;
}

static void test_a_registration_that_cannot_succeed_fails_soon(void)
{
	struct mr_rig rig;

	mr_tx(&rig);
	mr_begin(&rig, -1);
	mr_shims(&rig, 0);
	/* the device refuses every size that is tried */
	rig.to_shim.max_len = 4096;
	rig.to_shim.refusal = -FI_EINVAL;
	mr_check_hopeless(&rig.to_shim, &rig.to, rig.dst, 4);
	CU_ASSERT_PTR_NOT_NULL(strstr(tei_err_last()->hint,
				      "refused from 8 MiB down to 1 MiB"));
	/* the error is not caused by the size */
	rig.to_shim.refusal = -FI_EACCES;
	mr_check_hopeless(&rig.to_shim, &rig.to, rig.dst, 1);
	/* the device has room for three registrations only, so halving the size
	 * would not help */
	rig.to_shim.max_len = 2u << 20;
	rig.to_shim.max_live = 3;
	rig.to_shim.refusal = -FI_ENOMEM;
	mr_check_hopeless(&rig.to_shim, &rig.to, rig.dst, 3);
	rig.to_shim.refusal = -FI_EINVAL;
	mr_check_hopeless(&rig.to_shim, &rig.to, rig.dst, 3);
	CU_ASSERT_PTR_NOT_NULL(strstr(tei_err_last()->hint,
				      "3 of 4 parts were registered"));
	rig.to_shim.refusal = -FI_ENOMEM;
	rig.to_shim.max_live = 4;
	CU_ASSERT_EQUAL(mr_reg(&rig.to, rig.dst, MR_LEN), 0);
	mr_end(&rig);
}

/* --- registrations that are bound to an endpoint; raw keys --------------- */

static void mr_fence(struct mr_rig *rig)
{
	/* "lost" says that a process whose peer object has been freed may hold
	 * a key of this region; so unregistering it fences the rx lane */
	static char mem[4096];
	struct tei_rail_mr *mr;
	struct tei_err err;

	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig->to.dp, mem, sizeof(mem),
					      "*", TEI_RAIL_REMOTE, &err, &mr), 0);
	rail_sched_enter(rig->to.dp);
	mr->lost = true;
	rail_sched_leave(rig->to.dp);
	CU_ASSERT_EQUAL(tei_rail_mr_dereg(rig->to.dp, mem, 0, &err), 0);
}

static uint32_t mr_target_gen(struct test_plane *p)
{
	return __atomic_load_n(&rail_at(p->dp, 0)->rx_lane.gen,
			       __ATOMIC_ACQUIRE);
}

/* Waits until "from" knows the new generation. A slice that is posted earlier
 * would fail and have to be posted again. */
static void mr_await_gen(struct mr_rig *rig, uint32_t gen)
{
	struct timespec nap = { .tv_nsec = 200000 };
	uint64_t end = tei_now_ns() + 60 * TEI_NS_PER_SEC;
	bool known = false;

	while (!known && tei_now_ns() < end) {
		rail_sched_enter(rig->from.dp);
		known = rig->peer->nremotes &&
			rig->peer->remotes[0].gen == gen;
		rail_sched_leave(rig->from.dp);
		if (!known)
			nanosleep(&nap, NULL);
	}
	CU_ASSERT(known);
}

static void test_bound_regions_are_registered_again_with_their_lane(void)
{
	uint32_t gen, made;
	struct mr_rig rig;

	mr_tx(&rig);
	rig.to.settings.memory.max_mr_size = 1u << 20;
	mr_begin(&rig, -1);
	mr_shims(&rig, FI_MR_ENDPOINT);
	mr_reg_both(&rig);
	CU_ASSERT_EQUAL(rig.to_shim.live, 8);
	CU_ASSERT_EQUAL(rig.to_shim.bound, rig.to_shim.made);
	CU_ASSERT_EQUAL(rig.to_shim.enabled, rig.to_shim.made);
	mr_check(&rig);
	gen = mr_target_gen(&rig.to);
	made = rig.to_shim.made;
	mr_fence(&rig);
	CU_ASSERT_EQUAL(mr_target_gen(&rig.to), gen + 1);
	CU_ASSERT_EQUAL(rig.to_shim.live, 8);
	CU_ASSERT_EQUAL(rig.to_shim.made, made + 1 + 8);
	/* the keys that the peer holds are void now, so it requests new ones */
	mr_await_gen(&rig, gen + 1);
	mr_check(&rig);
	CU_ASSERT_EQUAL(rig.to_shim.bound, rig.to_shim.made);
	CU_ASSERT_EQUAL(rig.to_shim.enabled, rig.to_shim.made);
	CU_ASSERT_EQUAL(rig.to_shim.late, 0);
	CU_ASSERT_EQUAL(rail_at(rig.from.dp, 0)->errors.retries, 0);
	mr_dereg_both(&rig);
	CU_ASSERT_EQUAL(rig.to_shim.live, 0);
	mr_end(&rig);
}

static void test_a_device_that_binds_local_memory_is_refused(void)
{
	struct mr_rig rig;

	mr_tx(&rig);
	CU_ASSERT_EQUAL(mr_open(&rig.to, "127.0.0.2",
				FI_MR_LOCAL | FI_MR_ENDPOINT),
			TEI_ERR_UNSUPPORTED);
	test_plane_open(&rig.from, NULL);
	mr_end(&rig);
}

static void test_counted_regions_are_enabled(void)
{
	struct mr_rig rig;

	mr_tx(&rig);
	mr_begin(&rig, -1);
	mr_shims(&rig, FI_MR_RMA_EVENT);
	mr_reg_both(&rig);
	CU_ASSERT_EQUAL(
		rig.to_shim.enabled,
		rail_at(rig.to.dp, 0)->fab.info->caps & FI_RMA_EVENT ? 1 : 0);
	CU_ASSERT_EQUAL(rig.to_shim.bound, 0);
	mr_check(&rig);
	mr_end(&rig);
}

static void test_raw_keys_are_mapped_and_unmapped(void)
{
	struct mr_rig rig;

	mr_tx(&rig);
	rig.to.settings.memory.max_mr_size = 1u << 20;
	mr_begin(&rig, -1);
	mr_shims(&rig, FI_MR_RAW);
	mr_reg_both(&rig);
	mr_check(&rig);
	CU_ASSERT_EQUAL(rig.from_shim.bad_maps, 0);
	CU_ASSERT_EQUAL(rig.from_shim.maps, 8);
	CU_ASSERT_EQUAL(rig.from_shim.mapped, 8);
	mr_dereg_both(&rig);
	CU_ASSERT_EQUAL(rig.from_shim.mapped, 0);
	/* keys are mapped again, and are still mapped when the data plane
	 * closes */
	mr_reg(&rig.from, rig.src, MR_LEN);
	mr_reg(&rig.to, rig.dst, MR_LEN);
	mr_run(&rig, false, 0, MR_LEN);
	CU_ASSERT_EQUAL(rig.from_shim.mapped, 8);
	mr_end(&rig);
	CU_ASSERT_EQUAL(rig.from_shim.mapped, 0);
}

/* Checks that two local rails which use the same remote rail each have a
 * mapping of its key. */
static void test_raw_keys_are_mapped_for_each_pair_of_rails(void)
{
	struct rail_shim second;
	struct mr_rig rig;

	memset(&second, 0, sizeof(second));
	mr_tx(&rig);
	CU_ASSERT_EQUAL_FATAL(mr_open(&rig.from, "127.0.0.1,127.0.0.4", -1),
			      0);
	CU_ASSERT_EQUAL_FATAL(mr_open(&rig.to, "127.0.0.2", -1), 0);
	mr_shims(&rig, FI_MR_RAW);
	rail_shim_install(&second, rail_at(rig.from.dp, 1), FI_MR_RAW);
	mr_reg_both(&rig);
	mr_check(&rig);
	CU_ASSERT_EQUAL(rig.from_shim.mapped, 1);
	CU_ASSERT_EQUAL(second.mapped, 1);
	mr_end(&rig);
	CU_ASSERT_EQUAL(rig.from_shim.mapped, 0);
	CU_ASSERT_EQUAL(second.mapped, 0);
	rail_shim_remove(&second);
}

/* --- NUMA ranges --------------------------------------------------------- */

static struct tei_topo *mr_topo(void)
{
	static const struct tei_topo_nic_desc nics[] = {
		{ .name = "127.0.0.1" }, { .name = "127.0.0.4" },
	};
	struct tei_topo *base, *topo;

	CU_ASSERT_EQUAL_FATAL(tei_topo_create(nics, 2, &base, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(
		tei_topo_parse("{\"cpu:0\":[[\"127.0.0.1\"],[\"127.0.0.4\"]],"
			       "\"cpu:1\":[[\"127.0.0.4\"],[\"127.0.0.1\"]]}",
			       base, 0, &topo, NULL), 0);
	tei_topo_free(base);
	return topo;
}

static uint64_t mr_sent(struct test_plane *p, size_t rail)
{
	struct tei_rail_stats s;

	CU_ASSERT_EQUAL_FATAL(tei_rail_get_stats(p->dp, rail, &s), 0);
	return s.tx_bytes;
}

static void test_rails_are_ranked_for_each_numa_range_of_a_region(void)
{
	struct tei_topo *topo = mr_topo();
	struct tei_rail_mr *mr = NULL;
	const uint8_t *ranks;
	struct tei_err err;
	struct mr_rig rig;

	mr_tx(&rig);
	CU_ASSERT_EQUAL_FATAL(mr_open(&rig.from, "127.0.0.1,127.0.0.4", -1),
			      0);
	CU_ASSERT_EQUAL_FATAL(mr_open(&rig.to, "127.0.0.2", -1), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig.from.dp, rig.src, MR_LEN,
					      "segments:4096:0,1", TEI_RAIL_REMOTE, &err,
					      &mr), 0);
	CU_ASSERT_EQUAL_FATAL(mr_reg(&rig.to, rig.dst, MR_LEN), 0);
	tei_rail_dp_set_topo(rig.from.dp, topo);
	rail_sched_enter(rig.from.dp);
	ranks = rail_mr_ranks(mr, rig.src + MR_LEN / 2 - 1);
	CU_ASSERT_EQUAL(ranks[0], TEI_TOPO_PREFERRED);
	CU_ASSERT_EQUAL(ranks[1], TEI_TOPO_ACCESSIBLE);
	ranks = rail_mr_ranks(mr, rig.src + MR_LEN / 2);
	CU_ASSERT_EQUAL(ranks[0], TEI_TOPO_ACCESSIBLE);
	CU_ASSERT_EQUAL(ranks[1], TEI_TOPO_PREFERRED);
	rail_sched_leave(rig.from.dp);
	rig.peer = test_plane_peer(&rig.from, &rig.to);
	/* the request is too small to use a far rail */
	mr_run(&rig, false, 0, 65536);
	CU_ASSERT_EQUAL(mr_sent(&rig.from, 0), 65536);
	CU_ASSERT_EQUAL(mr_sent(&rig.from, 1), 0);
	mr_run(&rig, false, MR_LEN / 2, 65536);
	CU_ASSERT_EQUAL(mr_sent(&rig.from, 0), 65536);
	CU_ASSERT_EQUAL(mr_sent(&rig.from, 1), 65536);
	mr_end(&rig);
	tei_topo_free(topo);
}

/* Registers a region at "from" whose first half is near rail 0 and far from
 * rail 1. */
static void mr_far_begin(struct mr_rig *rig, struct tei_topo *topo)
{
	struct tei_rail_mr *mr;
	struct tei_err err;

	mr_tx(rig);
	/* the requests have many slices, so that some are left for the far
	 * rail */
	rig->from.settings.sched.slice_size = MR_PIECE;
	rig->from.settings.sched.slice_max = MR_PIECE;
	CU_ASSERT_EQUAL_FATAL(mr_open(&rig->from, "127.0.0.1,127.0.0.4", -1),
			      0);
	CU_ASSERT_EQUAL_FATAL(mr_open(&rig->to, "127.0.0.2", -1), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig->from.dp, rig->src, MR_LEN,
					      "segments:4096:0,1",
					      TEI_RAIL_REMOTE, &err,
					      &mr), 0);
	CU_ASSERT_EQUAL_FATAL(mr_reg(&rig->to, rig->dst, MR_LEN), 0);
	tei_rail_dp_set_topo(rig->from.dp, topo);
	rig->peer = test_plane_peer(&rig->from, &rig->to);
	/* the first transfers fetch the keys and connect the rails */
	mr_run(rig, false, 0, 4096);
	mr_run(rig, false, MR_LEN / 2, 4096);
}

/* Writes "len" bytes from memory near rail 0, after setting the window of rail
 * 0 to "window" bytes. Returns how many bytes were sent over the far rail 1. */
static uint64_t mr_far_share(struct mr_rig *rig, uint64_t window, uint64_t len)
{
	struct rail *near = rail_at(rig->from.dp, 0);
	uint64_t was[2] = { mr_sent(&rig->from, 0), mr_sent(&rig->from, 1) };

	tei_mutex_lock(&near->tx_lanes[0].lock);
	near->load.window_max = window;
	__atomic_store_n(&near->load.window, window, __ATOMIC_RELAXED);
	/* the rate is so large that measurements do not change the window
	 * meanwhile */
	__atomic_store_n(&near->load.rate_bps, UINT64_C(1) << 40,
			 __ATOMIC_RELAXED);
	tei_mutex_unlock(&near->tx_lanes[0].lock);
	mr_run(rig, false, 0, len);
	CU_ASSERT_EQUAL(mr_sent(&rig->from, 0) - was[0] +
			mr_sent(&rig->from, 1) - was[1], len);
	return mr_sent(&rig->from, 1) - was[1];
}

static void test_far_rails_help_when_near_ones_are_full(void)
{
	struct tei_topo *topo = mr_topo();
	uint64_t helped = 0;
	struct mr_rig rig;
	int i;

	mr_far_begin(&rig, topo);
	for (i = 0; i < 5; i++)
		helped += mr_far_share(&rig, 2 * MR_PIECE, MR_LEN / 2);
	CU_ASSERT(helped > 0);
	/* a request below the minimum size never uses a far rail, even if the
	 * near rails have no room */
	for (i = 0; i < 5; i++)
		CU_ASSERT_EQUAL(mr_far_share(&rig, 1, (256u << 10) - 1), 0);
	mr_end(&rig);
	tei_topo_free(topo);
}

static void test_far_rails_are_unused_while_near_ones_have_room(void)
{
	struct tei_topo *topo = mr_topo();
	struct mr_rig rig;
	int i;

	mr_far_begin(&rig, topo);
	for (i = 0; i < 5; i++)
		CU_ASSERT_EQUAL(mr_far_share(&rig, 1u << 30, MR_LEN / 2), 0);
	mr_end(&rig);
	tei_topo_free(topo);
}

/* Does what mr_far_share does while rail 0 is down. The progress thread sets
 * link.down back when it reads the state of all links, which it does when any
 * interface changes; in that case this function tries again. */
static uint64_t mr_far_alone(struct mr_rig *rig, uint64_t len)
{
	bool *down = &rail_at(rig->from.dp, 0)->link.down;
	uint64_t share;
	int i;

	for (i = 0; i < 100; i++) {
		__atomic_store_n(down, true, __ATOMIC_RELAXED);
		share = mr_far_share(rig, 1u << 30, len);
		if (__atomic_exchange_n(down, false, __ATOMIC_RELAXED))
			return share;
	}
	return 0;
}

static void test_far_rails_replace_near_ones_that_are_down(void)
{
	struct tei_topo *topo = mr_topo();
	struct mr_rig rig;

	mr_far_begin(&rig, topo);
	CU_ASSERT_EQUAL(mr_far_share(&rig, 1u << 30, MR_PIECE), 0);
	/* with rail 0 down, the far rail carries a request of any size */
	CU_ASSERT_EQUAL(mr_far_alone(&rig, MR_PIECE), MR_PIECE);
	CU_ASSERT_EQUAL(mr_far_alone(&rig, 1), 1);
	CU_ASSERT_EQUAL(mr_far_share(&rig, 1u << 30, MR_PIECE), 0);
	mr_end(&rig);
	tei_topo_free(topo);
}

/* --- on all rails or on none --------------------------------------------- */

/* Opens two rails at "from", of which the second one is near cpu:1, and one
 * rail at "to". */
static void mr_two_begin(struct mr_rig *rig, struct rail_shim *second,
			 struct tei_topo *topo)
{
	memset(second, 0, sizeof(*second));
	mr_tx(rig);
	CU_ASSERT_EQUAL_FATAL(mr_open(&rig->from, "127.0.0.1,127.0.0.4", -1),
			      0);
	CU_ASSERT_EQUAL_FATAL(mr_open(&rig->to, "127.0.0.2", -1), 0);
	tei_rail_dp_set_topo(rig->from.dp, topo);
	mr_shims(rig, 0);
	rail_shim_install(second, rail_at(rig->from.dp, 1), 0);
}

static void mr_two_end(struct mr_rig *rig, struct rail_shim *second,
		       struct tei_topo *topo)
{
	mr_end(rig);
	rail_shim_remove(second);
	tei_topo_free(topo);
}

static void test_a_region_is_registered_on_near_rails_first(void)
{
	struct tei_topo *topo = mr_topo();
	struct rail_shim second;
	struct tei_rail_mr *mr;
	struct tei_err err;
	struct mr_rig rig;

	mr_two_begin(&rig, &second, topo);
	second.max_len = 1;
	second.refusal = -FI_EACCES;
	CU_ASSERT_EQUAL(tei_rail_mr_reg(rig.from.dp, rig.src, MR_LEN, "cpu:1",
					TEI_RAIL_REMOTE, &err, &mr), TEI_ERR_CONTEXT);
	CU_ASSERT_EQUAL(rig.from_shim.made, 0);
	CU_ASSERT_EQUAL(tei_rail_mr_reg(rig.from.dp, rig.src, MR_LEN, "cpu:0",
					TEI_RAIL_REMOTE, &err, &mr), TEI_ERR_CONTEXT);
	CU_ASSERT_EQUAL(rig.from_shim.made, 1);
	CU_ASSERT_EQUAL(rig.from_shim.live, 0);
	mr_two_end(&rig, &second, topo);
}

/* Checks a region that is so large that each rail has a thread of its own to
 * register it. The pages of the region are never touched. */
static void test_a_large_region_is_registered_on_all_rails_or_none(void)
{
	struct tei_topo *topo = mr_topo();
	struct rail_shim second;
	struct tei_rail_mr *mr;
	struct tei_err err;
	struct mr_rig rig;
	size_t len = 256u << 20;
	char *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CU_ASSERT_FATAL(mem != MAP_FAILED);
	mr_two_begin(&rig, &second, topo);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig.from.dp, mem, len, "*",
					      TEI_RAIL_REMOTE,
					      &err, &mr), 0);
	CU_ASSERT_EQUAL(rig.from_shim.live, 1);
	CU_ASSERT_EQUAL(second.live, 1);
	CU_ASSERT_EQUAL(tei_rail_mr_dereg(rig.from.dp, mem, TEI_NS_PER_SEC,
					  NULL), 0);
	second.max_live = 1;
	second.live++;
	second.refusal = -FI_ENOSPC;
	CU_ASSERT_EQUAL(tei_rail_mr_reg(rig.from.dp, mem, len, "*",
					TEI_RAIL_REMOTE, &err,
					&mr), TEI_ERR_CONTEXT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "there are 0 registrations"));
	CU_ASSERT_PTR_NOT_NULL(strstr(tei_err_last()->text,
				      rail_at(rig.from.dp, 1)->name));
	second.live--;
	CU_ASSERT_EQUAL(rig.from_shim.live, 0);
	mr_two_end(&rig, &second, topo);
	munmap(mem, len);
}

static void test_a_refused_registration_names_the_limit_and_its_value(void)
{
	struct tei_rail_mr *mr;
	struct rlimit limit;
	struct tei_err err;
	struct mr_rig rig;
	char value[64];

	mr_tx(&rig);
	mr_begin(&rig, -1);
	mr_shims(&rig, 0);
	rig.from_shim.max_len = 1;
	rig.from_shim.refusal = -FI_ENOMEM;
	CU_ASSERT_EQUAL(tei_rail_mr_reg(rig.from.dp, rig.src, MR_LEN, "*",
					TEI_RAIL_REMOTE,
					&err, &mr), TEI_ERR_CONTEXT);
	CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	if (limit.rlim_cur == RLIM_INFINITY)
		snprintf(value, sizeof(value), "memlock is not limited");
	else
		snprintf(value, sizeof(value), "memlock limit is %llu KiB",
			 (unsigned long long)limit.rlim_cur >> 10);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, value));
	CU_ASSERT_EQUAL(rig.from_shim.live, 0);
	mr_end(&rig);
}

/* Number of keys that are drawn. The probability that a given bit of a random
 * key is the same in all of them is 2^-127. */
#define MR_DRAWS 128

/* Registers a region MR_DRAWS times and stores its key each time. Returns the
 * length of the rail's keys, bytes. */
static size_t mr_draw_keys(struct mr_rig *rig, uint64_t key[MR_DRAWS])
{
	struct tei_rail_dp *dp = rig->from.dp;
	size_t i;

	for (i = 0; i < MR_DRAWS; i++) {
		CU_ASSERT_EQUAL_FATAL(mr_reg(&rig->from, rig->src, 4096), 0);
		CU_ASSERT_EQUAL(tei_rail_mr_key(dp, rig->src, 0, &key[i]), 0);
		CU_ASSERT_EQUAL(tei_rail_mr_dereg(dp, rig->src, 0, NULL), 0);
	}
	return rail_at(dp, 0)->fab.info->domain_attr->mr_key_size;
}

/* Checks that keys are random. Keys that were counted up, or drawn close to
 * each other, would have constant bits. */
static void test_every_bit_of_a_key_changes(void)
{
	uint64_t key[MR_DRAWS], ones = 0, zeros = 0, all = UINT64_MAX;
	struct mr_rig rig;
	size_t size, i;

	mr_tx(&rig);
	mr_use_sockets(&rig);
	mr_begin(&rig, 0);
	CU_ASSERT_FALSE(rail_at(rig.from.dp, 0)->fab.mr_mode & FI_MR_PROV_KEY);
	size = mr_draw_keys(&rig, key);
	if (size && size < sizeof(all))
		all = (UINT64_C(1) << (8 * size)) - 1;
	for (i = 0; i < MR_DRAWS; i++) {
		ones |= key[i];
		zeros |= ~key[i];
	}
	CU_ASSERT_EQUAL(ones, all);
	CU_ASSERT_EQUAL(zeros & all, all);
	mr_end(&rig);
}

const struct tei_test_case rail_mr_cases[] = {
	{ "far_rails_help_when_near_ones_are_full",
	  test_far_rails_help_when_near_ones_are_full },
	{ "far_rails_are_unused_while_near_ones_have_room",
	  test_far_rails_are_unused_while_near_ones_have_room },
	{ "far_rails_replace_near_ones_that_are_down",
	  test_far_rails_replace_near_ones_that_are_down },
	{ "every_bit_of_a_key_changes", test_every_bit_of_a_key_changes },
	{ "a_region_is_registered_on_near_rails_first",
	  test_a_region_is_registered_on_near_rails_first },
	{ "a_large_region_is_registered_on_all_rails_or_none",
	  test_a_large_region_is_registered_on_all_rails_or_none },
	{ "a_refused_registration_names_the_limit_and_its_value",
	  test_a_refused_registration_names_the_limit_and_its_value },
	{ "memory_works_in_the_mode_of_each_provider",
	  test_memory_works_in_the_mode_of_each_provider },
	{ "memory_works_with_keys_of_the_provider",
	  test_memory_works_with_keys_of_the_provider },
	{ "memory_works_with_virtual_addresses",
	  test_memory_works_with_virtual_addresses },
	{ "memory_works_in_the_mode_of_verbs",
	  test_memory_works_in_the_mode_of_verbs },
	{ "memory_works_with_local_descriptors",
	  test_memory_works_with_local_descriptors },
	{ "a_refused_size_of_gpu_memory_does_not_limit_host_memory",
	  test_a_refused_size_of_gpu_memory_does_not_limit_host_memory },
	{ "a_rail_that_fails_to_open_names_both_errors",
	  test_a_rail_that_fails_to_open_names_both_errors },
	{ "a_large_region_is_registered_in_pieces",
	  test_a_large_region_is_registered_in_pieces },
	{ "a_split_region_works_with_addresses_and_descriptors",
	  test_a_split_region_works_with_addresses_and_descriptors },
	{ "a_split_region_works_with_offsets_and_descriptors",
	  test_a_split_region_works_with_offsets_and_descriptors },
	{ "small_tasks_across_pieces_complete",
	  test_small_tasks_across_pieces_complete },
	{ "keys_that_need_several_replies_are_fetched",
	  test_keys_that_need_several_replies_are_fetched },
	{ "rails_may_split_a_region_into_different_sizes",
	  test_rails_may_split_a_region_into_different_sizes },
	{ "a_refused_size_is_halved", test_a_refused_size_is_halved },
	{ "a_device_refuses_a_size_once", test_a_device_refuses_a_size_once },
	{ "a_registration_that_cannot_succeed_fails_soon",
	  test_a_registration_that_cannot_succeed_fails_soon },
	{ "bound_regions_are_registered_again_with_their_lane",
	  test_bound_regions_are_registered_again_with_their_lane },
	{ "a_device_that_binds_local_memory_is_refused",
	  test_a_device_that_binds_local_memory_is_refused },
	{ "counted_regions_are_enabled", test_counted_regions_are_enabled },
	{ "raw_keys_are_mapped_and_unmapped",
	  test_raw_keys_are_mapped_and_unmapped },
	{ "raw_keys_are_mapped_for_each_pair_of_rails",
	  test_raw_keys_are_mapped_for_each_pair_of_rails },
	{ "rails_are_ranked_for_each_numa_range_of_a_region",
	  test_rails_are_ranked_for_each_numa_range_of_a_region },
	{ NULL, NULL },
};
