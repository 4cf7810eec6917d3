/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/thread.h"

#include <stdlib.h>

#include "util/err.h"

static bool cpu_number(const char **p, long *out)
{
	char *end;

	if (**p < '0' || **p > '9')
		return false;
	*out = strtol(*p, &end, 10);
	*p = end;
	return *out < CPU_SETSIZE;
}

int tei_cpus_parse(const char *text, cpu_set_t *out)
{
	const char *p = text;
	long first, last;
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	for (;; p++) {
		if (!cpu_number(&p, &first))
			return TEI_ERR_INVALID;
		last = first;
		if (*p == '-' && (p++, !cpu_number(&p, &last)))
			return TEI_ERR_INVALID;
		if (last < first)
			return TEI_ERR_INVALID;
		for (; first <= last; first++)
			CPU_SET((size_t)first, &cpus);
		if (*p != ',')
			break;
	}
	if (*p && *p != '\n')
		return TEI_ERR_INVALID;
	*out = cpus;
	return 0;
}
