/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_hist.h"

void ft_hist_merge(struct ft_hist *into, const struct ft_hist *from)
{
	for (int i = 0; i < FT_HIST_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
	into->count += from->count;
	if (from->max > into->max)
		into->max = from->max;
}

/* Returns the value in the middle of a bucket, ns. */
static uint64_t hist_value(unsigned int index)
{
	unsigned int shift;

	if (index < 2 * FT_HIST_SUB)
		return index;
	shift = index / FT_HIST_SUB - 1;
	return ((uint64_t)(index - shift * FT_HIST_SUB) << shift) +
	       (UINT64_C(1) << shift) / 2;
}

uint64_t ft_hist_quantile(const struct ft_hist *hist, double part)
{
	uint64_t rank = (uint64_t)(part * (double)hist->count);
	uint64_t seen = 0;

	if (!hist->count)
		return 0;
	for (unsigned int i = 0; i < FT_HIST_BUCKETS; i++) {
		seen += hist->buckets[i];
		if (seen > rank) {
			uint64_t value = hist_value(i);

			return value < hist->max ? value : hist->max;
		}
	}
	return hist->max;
}
