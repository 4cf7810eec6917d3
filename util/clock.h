/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_CLOCK_H
#define TEI_UTIL_CLOCK_H

#include <stdint.h>
#include <time.h>

#define TEI_NS_PER_US	UINT64_C(1000)
#define TEI_NS_PER_MS	UINT64_C(1000000)
#define TEI_NS_PER_SEC	UINT64_C(1000000000)

/* Monotonic time in nanoseconds; never goes back, never 0. Any thread. */
static inline uint64_t tei_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * TEI_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

#endif /* TEI_UTIL_CLOCK_H */
