/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_NUM_H
#define TEI_FABTESTS_COMMON_FT_NUM_H

#include <stddef.h>
#include <stdint.h>

/* Strict parsing: the number must fill the whole text, without sign or blanks,
 * and must not overflow. On success, the functions return 0. Otherwise they
 * return -1 and leave *out unchanged. */

/* Parses a size such as "4096", "64K", "64KiB", "1M", "2G" or "1T"; the
 * suffixes are powers of 1024. */
int ft_parse_size(const char *text, uint64_t *out);

/* Parses a whole number in the range from `min` to `max`. */
int ft_parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* Parses seconds such as "10", "0.5", "10s" or "500ms". The value must be above
 * 0 and at most a week. */
int ft_parse_seconds(const char *text, double *out);

/* Sorts the values in ascending order. */
void ft_sort(double *values, size_t n);

/* Sorts the values, and returns their median: of an even number of values, the
 * higher one of the two in the middle. n must be above 0. */
double ft_median(double *values, size_t n);

/* Writes a size such as "64 KiB" or "1.5 GiB" into buf and returns buf. */
const char *ft_size_text(uint64_t bytes, char *buf, size_t len);

#endif /* TEI_FABTESTS_COMMON_FT_NUM_H */
