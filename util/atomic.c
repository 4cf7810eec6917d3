/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/atomic.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/err.h"

/* Since Linux 5.14. Defined here because the C library's headers may be older
 * than the kernel. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

int tei_atomic_check(unsigned int op, unsigned int width, uint64_t addr)
{
	if (op < TEI_ATOMIC_ADD || op > TEI_ATOMIC_CAS)
		return TEI_ERR_INVALID;
	if ((width != 4 && width != 8) || addr % width)
		return TEI_ERR_INVALID;
	return 0;
}

static int atomic_populate(uint64_t addr)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	int ret;

	do
		ret = madvise((void *)(uintptr_t)(addr & ~(page - 1)), page,
			      MADV_POPULATE_WRITE);
	while (ret && errno == EINTR);
	return ret ? errno : 0;
}

/*
 * Makes the page of addr present and writable, so that a bad address from a
 * peer results in an error and not in a fault of this process. Returns 0 or
 * TEI_ERR_NOT_REGISTERED. If the kernel has no MADV_POPULATE_WRITE, returns 0
 * without a check.
 */
static int atomic_touch(uint64_t addr)
{
	int err = atomic_populate(addr), good;

	/* EINVAL has two causes: the page is not writable, or the kernel lacks
	 * MADV_POPULATE_WRITE; in the second case the call fails for "good",
	 * too */
	if (err == EINVAL &&
	    atomic_populate((uint64_t)(uintptr_t)&good) == EINVAL)
		return 0;
	return err ? TEI_ERR_NOT_REGISTERED : 0;
}

static uint64_t atomic_run32(unsigned int op, uint32_t *p, uint32_t operand,
			     uint32_t compare)
{
	switch (op) {
	case TEI_ATOMIC_ADD:
		return __atomic_fetch_add(p, operand, __ATOMIC_SEQ_CST);
	case TEI_ATOMIC_SWAP:
		return __atomic_exchange_n(p, operand, __ATOMIC_SEQ_CST);
	default:
		__atomic_compare_exchange_n(p, &compare, operand, 0,
					    __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
		return compare;
	}
}

static uint64_t atomic_run64(unsigned int op, uint64_t *p, uint64_t operand,
			     uint64_t compare)
{
	switch (op) {
	case TEI_ATOMIC_ADD:
		return __atomic_fetch_add(p, operand, __ATOMIC_SEQ_CST);
	case TEI_ATOMIC_SWAP:
		return __atomic_exchange_n(p, operand, __ATOMIC_SEQ_CST);
	default:
		__atomic_compare_exchange_n(p, &compare, operand, 0,
					    __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
		return compare;
	}
}

int tei_atomic_run(unsigned int op, unsigned int width, uint64_t addr,
		   uint64_t operand, uint64_t compare, uint64_t *old)
{
	void *p = (void *)(uintptr_t)addr;
	int ret = tei_atomic_check(op, width, addr);

	if (!ret)
		ret = atomic_touch(addr);
	if (ret)
		return ret;
	*old = width == 4 ? atomic_run32(op, p, (uint32_t)operand,
					 (uint32_t)compare) :
			    atomic_run64(op, p, operand, compare);
	return 0;
}
