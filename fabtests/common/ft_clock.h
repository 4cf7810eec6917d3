/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_CLOCK_H
#define TEI_FABTESTS_COMMON_FT_CLOCK_H

#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

#define FT_NS_PER_SEC UINT64_C(1000000000)

/* Returns the time of CLOCK_MONOTONIC in ns. */
static inline uint64_t ft_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * FT_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

/* Returns the user and system time that this process has used, in seconds. */
static inline double ft_cpu_seconds(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
	       (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

#endif /* TEI_FABTESTS_COMMON_FT_CLOCK_H */
