/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_CLOCK_H
#define TEI_UTIL_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "util/world.h"

#define TEI_NS_PER_US	UINT64_C(1000)
#define TEI_NS_PER_MS	UINT64_C(1000000)
#define TEI_NS_PER_SEC	UINT64_C(1000000000)

/*
 * Returns the monotonic time in ns. The time never goes back and is never 0.
 * Any thread.
 */
static inline uint64_t tei_now_ns(void)
{
	return tei_world->now_ns();
}

/* Returns the monotonic time of the last tick of the kernel's clock, ns. The
 * tick was at most a few ms ago. Faster than tei_now_ns. */
static inline uint64_t tei_now_about_ns(void)
{
	return tei_world->now_about_ns();
}

/* Returns the time of day, in ns since 1970. */
static inline uint64_t tei_wall_ns(void)
{
	return tei_world->wall_ns();
}

/* Returns the CPU time that the calling thread has used, ns. Even in a
 * simulated world this is real CPU time, so it may be used for statistics
 * only. */
static inline uint64_t tei_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * TEI_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* Returns the time from now to until_ns, in ns, or 0 if until_ns has passed. */
static inline uint64_t tei_ns_left(uint64_t until_ns)
{
	uint64_t now = tei_now_ns();

	return now < until_ns ? until_ns - now : 0;
}

#endif /* TEI_UTIL_CLOCK_H */
