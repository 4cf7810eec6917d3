/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests the choice between huge pages and memory that other processes map, if
 * the kernel provides transparent huge pages only for private memory. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "api/api_test.h"
#include "api/engine_int.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGES_SIZE (4u << 20)

static bool pages_refused; /* the kernel refuses MADV_COLLAPSE */
static uint32_t pages_wants; /* bits that tei_rail_wants returns, too */

int __real_madvise(void *addr, size_t len, int advice);
uint32_t __real_tei_rail_wants(struct tei_rail_dp *dp);
int __wrap_madvise(void *addr, size_t len, int advice);
uint32_t __wrap_tei_rail_wants(struct tei_rail_dp *dp);

int __wrap_madvise(void *addr, size_t len, int advice)
{
	if (!pages_refused || advice != MADV_COLLAPSE)
		return __real_madvise(addr, len, advice);
	errno = EINVAL;
	return -1;
}

uint32_t __wrap_tei_rail_wants(struct tei_rail_dp *dp)
{
	return __real_tei_rail_wants(dp) | pages_wants;
}

static transfer_engine_t pages_engine(bool local)
{
	const char *const settings[] = { "MOONRAIL_DEVICES=127.0.0.1" };
	const struct te_engine_options o = {
		.metadata = "P2PHANDSHAKE", .server_name = "127.0.0.1",
		.settings = settings, .settings_count = 1,
	};
	transfer_engine_t e = NULL;

	CU_ASSERT_EQUAL_FATAL(te_engine_create(&o, sizeof(o), &e), 0);
	if (local)
		CU_ASSERT_PTR_NOT_NULL_FATAL(installTransport(e, "local",
							      NULL));
	return e;
}

/* Returns true if other processes can map the memory. */
static bool pages_shared(const struct te_memory *m)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long long from, to;
	bool shared = false;
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		shared |= sscanf(line, "%llx-%llx", &from, &to) == 2 &&
			  m->addr >= from && m->addr < to &&
			  strstr(line, "moonrail-memory");
	if (f)
		fclose(f);
	return shared;
}

/* Allocates memory, frees it, and returns true if it was shared. */
static bool pages_allocated(transfer_engine_t e, uint64_t flags,
			    struct te_memory *m)
{
	bool shared;

	CU_ASSERT_EQUAL_FATAL(te_alloc(e, PAGES_SIZE, NULL, flags, m,
				       sizeof(*m)), 0);
	shared = pages_shared(m);
	memset((void *)(uintptr_t)m->addr, 1, PAGES_SIZE);
	CU_ASSERT_EQUAL(te_free(e, (void *)(uintptr_t)m->addr), 0);
	return shared;
}

static void test_huge_pages_or_shared_memory(void)
{
	transfer_engine_t e = pages_engine(true);
	struct te_memory m;

	CU_ASSERT(pages_allocated(e, 0, &m));
	CU_ASSERT(!pages_allocated(e, TE_ALLOC_PRIVATE, &m));
	pages_refused = true;
	CU_ASSERT(pages_allocated(e, 0, &m));
	CU_ASSERT_EQUAL(m.pages, TE_PAGES_SMALL);
	/* a NIC gains more from huge pages than a process from a mapping */
	pages_wants = TEI_RAIL_WANTS_PINNED;
	CU_ASSERT(!pages_allocated(e, 0, &m));
	CU_ASSERT(pages_allocated(e, TE_ALLOC_SMALL_PAGES, &m));
	CU_ASSERT_EQUAL(m.pages, TE_PAGES_SMALL);
	pages_refused = false;
	pages_wants = 0;
	destroyTransferEngine(e);
}

static void test_memory_without_local_copies_is_private(void)
{
	transfer_engine_t e = pages_engine(false);
	struct te_memory m;

	CU_ASSERT(!pages_allocated(e, 0, &m));
	CU_ASSERT(!pages_allocated(e, TE_ALLOC_SMALL_PAGES, &m));
	destroyTransferEngine(e);
}

const struct tei_test_case pages_cases[] = {
	{ "huge_pages_or_shared_memory_are_chosen_by_their_use",
	  test_huge_pages_or_shared_memory },
	{ "memory_without_local_copies_is_private",
	  test_memory_without_local_copies_is_private },
	{ NULL, NULL },
};
