/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_NUM_H
#define TEI_FABTESTS_COMMON_FT_NUM_H

#include <stddef.h>
#include <stdint.h>

/*
 * Strict parsing: the whole text must be the number, no sign, no blanks, no
 * overflow. 0, or -1 with *out untouched.
 */

/* "4096", "64K", "64KiB", "1M", "2G", "1T"; powers of 1024. */
int ft_parse_size(const char *text, uint64_t *out);

int ft_parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* "10", "0.5", "10s", "500ms"; above 0, at most a week. */
int ft_parse_seconds(const char *text, double *out);

/* Ascending. */
void ft_sort(double *values, size_t n);

/* "64 KiB", "1.5 GiB"; returns buf. */
const char *ft_size_text(uint64_t bytes, char *buf, size_t len);

#endif /* TEI_FABTESTS_COMMON_FT_NUM_H */
