/* SPDX-License-Identifier: BSD-2-Clause */

/* Tests memory from te_alloc, and te_register. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabtests/functional/ft_objects.h"
#include "fabtests/functional/fx.h"

static unsigned char *alloc_ptr(const struct te_memory *m)
{
	return (unsigned char *)(uintptr_t)m->addr;
}

static bool alloc_mapped(const struct te_memory *m)
{
	unsigned char vec;

	return !mincore(alloc_ptr(m), 1, &vec);
}

static void alloc_sizes(transfer_engine_t e)
{
	static const size_t sizes[] = { 1, 4096, 4097, 2 * FX_MIB - 1,
					2 * FX_MIB, 9 * FX_MIB };
	struct te_memory m;
	bool good = true;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int ret = te_alloc(e, sizes[i], "cpu:0", 0, &m, sizeof(m));

		good = good && !ret && m.size == sizes[i] &&
		       m.mapped >= m.size && !(m.addr % m.page_size) &&
		       !(m.mapped % m.page_size) && !alloc_ptr(&m)[0] &&
		       !alloc_ptr(&m)[m.size - 1] && m.pages <= TE_PAGES_HUGE;
		if (ret)
			continue;
		ft_diag("%zu: pages of %" PRIu64 " (kind %u) on node %d, %s",
			sizes[i], m.page_size, m.pages, m.numa_node,
			m.location);
		memset(alloc_ptr(&m), 1, m.size);
		good = good && registerLocalMemory(e, alloc_ptr(&m), 1, "*",
						   1) == -7 &&
		       !te_free(e, alloc_ptr(&m)) && !alloc_mapped(&m);
	}
	ft_ok(good, "memory_of_any_size_is_had_registered_and_given_back");
}

static void alloc_flags(transfer_engine_t e)
{
	struct te_memory m;
	int ret;

	ft_ok(!te_alloc(e, 4 * FX_MIB, NULL, TE_ALLOC_SMALL_PAGES, &m,
			sizeof(m)) &&
		      m.pages == TE_PAGES_SMALL &&
		      m.page_size == (uint64_t)sysconf(_SC_PAGESIZE) &&
		      !te_free(e, alloc_ptr(&m)),
	      "small_pages_are_used_if_requested");
	ret = te_alloc(e, FX_MIB, "cpu:0", TE_ALLOC_STRICT, &m, sizeof(m));
	ft_ok(!ret && m.numa_node == 0 && !strcmp(m.location, "cpu:0") &&
		      !te_free(e, alloc_ptr(&m)),
	      "requested_node_is_used");
}

/* --- huge pages ---------------------------------------------------------- */

#define ALLOC_POOL "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define ALLOC_POOL_PAGES 4

/* Returns the number in the file "what" of the kernel's pool of 2 MiB pages, or
 * -1 if the file cannot be read. */
static long alloc_pool(const char *what)
{
	char path[128], line[32];
	long n = -1;
	FILE *f;

	snprintf(path, sizeof(path), ALLOC_POOL "%s", what);
	f = fopen(path, "re");
	if (f && fgets(line, sizeof(line), f))
		n = strtol(line, NULL, 10);
	if (f)
		fclose(f);
	return n;
}

/* Adds pages to the pool, or removes them if the number is negative. Changes
 * the present number, because other processes may change the pool, too. Returns
 * false if this process may not change the pool or the kernel has too few free
 * pages. */
static bool alloc_pool_add(long pages)
{
	long want = alloc_pool("nr_hugepages") + pages;
	FILE *f = fopen(ALLOC_POOL "nr_hugepages", "we");
	bool good = f && fprintf(f, "%ld", want) > 0;

	if (f && fclose(f))
		good = false;
	return good && alloc_pool("nr_hugepages") == want;
}

/* Returns the page size of the mapping in KiB, as the kernel reports it in
 * /proc/self/smaps. */
static unsigned long alloc_smaps(const struct te_memory *m)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long from, to, kib = 0;
	bool here = false;
	char line[512];

	while (f && !kib && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = m->addr >= from && m->addr < to;
		else if (here)
			sscanf(line, "KernelPageSize: %lu", &kib);
	}
	if (f)
		fclose(f);
	return kib;
}

static bool alloc_is_huge(transfer_engine_t e, size_t size, uint64_t flags)
{
	struct te_memory m = { .addr = 0 };
	int ret = te_alloc(e, size, NULL, flags, &m, sizeof(m));
	unsigned long kib = ret ? 0 : alloc_smaps(&m);

	ft_diag("te_alloc of %zu bytes, flags %u: returned %d, page kind %u, "
		"pages of %lu KiB",
		size, (unsigned int)flags, ret, m.pages, kib);
	return !ret && kib == 2048 && m.pages == TE_PAGES_HUGE &&
	       m.page_size == 2 * FX_MIB && m.mapped % m.page_size == 0 &&
	       m.mapped >= m.size && !te_free(e, alloc_ptr(&m));
}

static void alloc_huge(transfer_engine_t e)
{
	long was = alloc_pool("nr_hugepages");
	struct te_memory m;
	bool good;

	if (!alloc_pool("free_hugepages"))
		ft_ok(te_alloc(e, 4 * FX_MIB, NULL, TE_ALLOC_HUGE_PAGES, &m,
			       sizeof(m)) == -302,
		      "huge_pages_or_an_error_where_asked_for");
	if (!alloc_pool_add(ALLOC_POOL_PAGES)) {
		alloc_pool_add(was - alloc_pool("nr_hugepages"));
		ft_skip("huge pages: " ALLOC_POOL "nr_hugepages cannot be raised by %d here",
			ALLOC_POOL_PAGES);
		return;
	}
	good = alloc_is_huge(e, 4 * FX_MIB, TE_ALLOC_HUGE_PAGES) &&
	       alloc_is_huge(e, 1, TE_ALLOC_HUGE_PAGES) &&
	       alloc_is_huge(e, 3 * FX_MIB, 0);
	good = alloc_pool_add(-ALLOC_POOL_PAGES) && good;
	ft_ok(good, "pages_of_the_pool_are_taken_and_given_back");
}

static void alloc_bad(transfer_engine_t e)
{
	struct te_memory m = { .addr = 7 };
	struct te_error err = { 0 };
	unsigned char *p;

	ft_ok(te_alloc(e, 4096, "cpu:999", 0, &m, sizeof(m)) == -300 &&
		      !te_last_error(&err, sizeof(err)) &&
		      strstr(err.text, "999"),
	      "te_alloc_on_an_absent_node_is_300");
	ft_ok(te_alloc(e, SIZE_MAX, NULL, 0, &m, sizeof(m)) == -302 &&
		      te_alloc(e, SIZE_MAX / 2, NULL, 0, &m, sizeof(m)) ==
			      -302 &&
		      te_alloc(e, UINT64_C(1) << 45, NULL, 0, &m, sizeof(m)) ==
			      -302 &&
		      te_alloc(e, UINT64_C(1) << 45, NULL, TE_ALLOC_HUGE_PAGES,
			       &m, sizeof(m)) == -302 &&
		      !te_last_error(&err, sizeof(err)) && err.text[0],
	      "te_alloc_of_too_much_memory_is_302");
	ft_ok(te_alloc(e, 4096, "segments:4096:0", 0, &m, sizeof(m)) == -303,
	      "te_alloc_at_a_place_without_node_is_303");
	ft_ok(te_alloc(e, 4096, "cuda:0", 0, &m, sizeof(m)) == -6,
	      "a_gpu_without_a_driver_is_6");
	ft_ok(te_alloc(e, 0, NULL, 0, &m, sizeof(m)) == -1 &&
	      te_alloc(e, 64, NULL, 16, &m, sizeof(m)) == -1 &&
	      te_alloc(e, 64, NULL, UINT64_C(1) << 63, &m, sizeof(m)) == -1 &&
	      te_alloc(e, 64, NULL, TE_ALLOC_HUGE_PAGES | TE_ALLOC_SMALL_PAGES,
		       &m, sizeof(m)) == -1 &&
	      te_alloc(e, 64, "cpu:x", 0, &m, sizeof(m)) == -1 &&
	      te_alloc(e, 64, NULL, 0, NULL, sizeof(m)) == -1 &&
	      te_alloc(e, 64, NULL, 0, &m, 4) == -1 &&
	      te_alloc(NULL, 64, NULL, 0, &m, sizeof(m)) == -1 && m.addr == 7,
	      "bad_arguments_of_alloc");
	ft_ok(!te_alloc(e, 8192, NULL, 0, &m, sizeof(m.addr)),
	      "the_address_alone_will_do");
	p = alloc_ptr(&m);
	ft_ok(te_free(e, NULL) == -3 && te_free(e, p + 4096) == -3 &&
	      te_free(NULL, p) == -1 && te_free(e, &m) == -3 &&
	      !te_free(e, p) && te_free(e, p) == -3, "bad_arguments_of_free");
	ft_ok(!te_alloc(e, 8192, NULL, 0, &m, sizeof(m)) &&
		      !unregisterLocalMemory(e, alloc_ptr(&m)) &&
		      alloc_mapped(&m) && !te_free(e, alloc_ptr(&m)) &&
		      !alloc_mapped(&m),
	      "unregistered_memory_is_freed");
}

/* Another process writes to memory from te_alloc, also while that memory is
 * freed. Private memory must refuse the writes. */
static void alloc_remote(transfer_engine_t e)
{
	struct te_memory m, mine;
	struct fx_peer peer;
	char name[128];
	int seg;

	fx_engine_name(e, name, sizeof(name));
	if (!fx_target_start(&peer, 4 * FX_MIB))
		return;
	ft_ok(!te_alloc(e, 4 * FX_MIB, NULL, 0, &m, sizeof(m)) &&
	      !te_alloc(e, 4096, NULL, TE_ALLOC_PRIVATE, &mine, sizeof(mine)),
	      "memory_for_others_and_for_ourselves");
	memset(peer.mem.p, 0x77, 4 * FX_MIB);
	seg = fx_ask(&peer, "open %s", name);
	ft_ok(seg > 0 &&
		      !fx_ask(&peer, "start %d 1 0 %llu %llu 65536 1 -", seg,
			      (unsigned long long)m.addr, 4 * FX_MIB) &&
		      !fx_ask(&peer, "wait") &&
		      strstr(peer.text, "64 completed") &&
		      alloc_ptr(&m)[0] == 0x77 &&
		      alloc_ptr(&m)[m.size - 1] == 0x77,
	      "another_process_writes_to_allocated_memory");
	ft_ok(!fx_ask(&peer, "start %d 1 0 %llu 4096 4096 1 -", seg,
		      (unsigned long long)mine.addr) &&
		      !fx_ask(&peer, "wait") && strstr(peer.text, "1 failed") &&
		      !alloc_ptr(&mine)[0],
	      "another_process_cannot_write_to_private_memory");
	ft_ok(!fx_ask(&peer, "start %d 1 0 %llu %llu 65536 20 -", seg,
		      (unsigned long long)m.addr, 4 * FX_MIB) &&
		      !te_free(e, alloc_ptr(&m)) && !alloc_mapped(&m) &&
		      !fx_ask(&peer, "wait"),
	      "memory_is_freed_during_a_transfer");
	ft_diag("%s", peer.text);
	fx_peer_stop(&peer);
	/* the engine frees `mine` when it is destroyed */
}

/* Makes the peer write or read 4 KiB at the address `at` of this process.
 * Returns true if the task completes. */
static bool alloc_peer_moves(struct fx_peer *peer, int seg, int op,
			     const unsigned char *at)
{
	return !fx_ask(peer, "start %d %d 0 %llu 4096 4096 1 -", seg, op,
		       (unsigned long long)(uintptr_t)at) &&
	       !fx_ask(peer, "wait") && strstr(peer->text, "1 completed");
}

/* Registers three buffers with one call, each with another kind of access, and
 * checks what a peer may do. */
static void alloc_register(transfer_engine_t e)
{
	struct fx_buf mem = fx_buf_map(64 * FX_KIB, -1);
	unsigned char *shared = mem.p, *private = mem.p + 16 * FX_KIB;
	unsigned char *constant = mem.p + 32 * FX_KIB;
	struct te_registration list[] = {
		{ shared, 8192, "cpu:0", 0, NULL },
		{ private, 4096, NULL, TE_REG_PRIVATE, NULL },
		{ constant, 4096, "*", TE_REG_READ_ONLY, NULL },
	};
	struct fx_peer peer;
	char name[128];
	int seg;

	if (!ft_ok(fx_engine_name(e, name, sizeof(name)) &&
			   fx_target_start(&peer, FX_MIB),
		   "a_peer_for_registrations"))
		return;
	list[2].flags = 1u << 31;
	ft_ok(te_register(e, list, sizeof(*list), 3) == -1 &&
		      unregisterLocalMemory(e, shared) == -3,
	      "registration_with_an_unknown_flag_registers_nothing");
	list[2].flags = TE_REG_READ_ONLY;
	ft_ok(!te_register(e, list, sizeof(*list), 3), "three_buffers_at_once");
	seg = fx_ask(&peer, "open %s", name);
	ft_ok(seg > 0 && alloc_peer_moves(&peer, seg, OPCODE_WRITE, shared) &&
		      alloc_peer_moves(&peer, seg, OPCODE_READ, constant),
	      "shared_buffer_is_written_and_constant_buffer_is_read");
	ft_ok(!alloc_peer_moves(&peer, seg, OPCODE_WRITE, constant) &&
		      !alloc_peer_moves(&peer, seg, OPCODE_READ, private),
	      "law8_constant_and_private_buffers_are_protected");
	ft_ok(te_read(e, LOCAL_SEGMENT, constant, (uint64_t)(uintptr_t)shared,
		      64, -1) == 3 &&
		      !te_write(e, LOCAL_SEGMENT, constant,
				(uint64_t)(uintptr_t)shared, 64, -1),
	      "no_transfer_of_the_own_engine_writes_a_constant_buffer");
	ft_ok(!unregisterLocalMemory(e, shared) &&
		      !unregisterLocalMemory(e, private) &&
		      !unregisterLocalMemory(e, constant),
	      "te_register_buffers_are_unregistered");
	fx_peer_stop(&peer);
	fx_buf_unmap(&mem);
}

void objects_alloc(void)
{
	transfer_engine_t e = fx_engine("tcp");
	struct te_memory m;

	if (!ft_ok(e != NULL, "an_engine_starts"))
		return;
	alloc_sizes(e);
	alloc_flags(e);
	alloc_huge(e);
	alloc_bad(e);
	alloc_remote(e);
	alloc_register(e);
	ft_ok(!te_alloc(e, FX_MIB, NULL, 0, &m, sizeof(m)),
	      "memory_for_the_engine_to_free_is_allocated");
	destroyTransferEngine(e);
	ft_ok(!alloc_mapped(&m), "allocated_memory_is_freed_with_the_engine");
}
