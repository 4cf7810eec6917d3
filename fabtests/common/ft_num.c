/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_num.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int num_digits(const char *text, uint64_t *value, const char **end)
{
	char *stop;

	if (!text || !isdigit((unsigned char)text[0]))
		return -1;
	errno = 0;
	*value = strtoull(text, &stop, 10);
	*end = stop;
	return errno ? -1 : 0;
}

/* Returns the exponent of 2 that a suffix stands for (10 for "K"), or -1 if the
 * suffix is not known. */
static int num_shift(const char *suffix)
{
	static const char letters[] = "KMGT";
	const char *at;

	if (!suffix[0])
		return 0;
	at = strchr(letters, toupper((unsigned char)suffix[0]));
	if (!at || (suffix[1] && strcmp(suffix + 1, "iB")))
		return -1;
	return 10 * (int)(at - letters + 1);
}

int ft_parse_size(const char *text, uint64_t *out)
{
	const char *end;
	uint64_t value;
	int shift;

	if (num_digits(text, &value, &end))
		return -1;
	shift = num_shift(end);
	if (shift < 0 || value > UINT64_MAX >> shift)
		return -1;
	*out = value << shift;
	return 0;
}

int ft_parse_uint(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	const char *end;
	uint64_t value;

	if (num_digits(text, &value, &end) || *end)
		return -1;
	if (value < min || value > max)
		return -1;
	*out = value;
	return 0;
}

int ft_parse_seconds(const char *text, double *out)
{
	double value;
	char *end;

	if (!text || !isdigit((unsigned char)text[0]))
		return -1;
	if (text[strspn(text, "0123456789.ms")])
		return -1;
	value = strtod(text, &end);
	if (!strcmp(end, "ms"))
		value /= 1000;
	else if (*end && strcmp(end, "s"))
		return -1;
	if (!(value > 0) || value > 7 * 86400.0)
		return -1;
	*out = value;
	return 0;
}

static int num_order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void ft_sort(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), num_order);
}

double ft_median(double *values, size_t n)
{
	ft_sort(values, n);
	return values[n / 2];
}

const char *ft_size_text(uint64_t bytes, char *buf, size_t len)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1024 && unit < sizeof(units) / sizeof(*units) - 1) {
		value /= 1024;
		unit++;
	}
	snprintf(buf, len, "%.4g %s", value, units[unit]);
	return buf;
}
