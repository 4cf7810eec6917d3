/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_HIST_H
#define TEI_FABTESTS_COMMON_FT_HIST_H

#include <stdint.h>

/*
 * Histogram of nanoseconds in log-linear buckets. Values below 256 ns are
 * exact, larger values are within 0.4 %. The size is fixed and nothing is
 * allocated. One thread at a time may write. A struct of zeroes is an empty
 * histogram.
 */

enum {
	FT_HIST_SUB_BITS = 7,
	FT_HIST_SUB = 1 << FT_HIST_SUB_BITS,
	FT_HIST_BUCKETS = (65 - FT_HIST_SUB_BITS) * FT_HIST_SUB,
};

struct ft_hist {
	uint64_t count;
	uint64_t max;
	uint64_t buckets[FT_HIST_BUCKETS];
};

static inline unsigned int ft_hist_index(uint64_t value)
{
	unsigned int shift;

	if (value < 2 * FT_HIST_SUB)
		return (unsigned int)value;
	shift = 63u - (unsigned int)__builtin_clzll(value) - FT_HIST_SUB_BITS;
	return shift * FT_HIST_SUB + (unsigned int)(value >> shift);
}

static inline void ft_hist_add(struct ft_hist *hist, uint64_t ns)
{
	hist->buckets[ft_hist_index(ns)]++;
	hist->count++;
	if (ns > hist->max)
		hist->max = ns;
}

/* Adds all values of the histogram `from` to the histogram `into`. */
void ft_hist_merge(struct ft_hist *into, const struct ft_hist *from);

/* Returns a quantile of the values in ns: for part = 0.99, the time below which
 * 99 % of them lie. Returns 0 if the histogram is empty. */
uint64_t ft_hist_quantile(const struct ft_hist *hist, double part);

#endif /* TEI_FABTESTS_COMMON_FT_HIST_H */
