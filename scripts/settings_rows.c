/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Prints the table of the settings for check_man, one row per line, with tabs
 * between the fields: name, type (n: number, b: boolean, s: string), minimum,
 * maximum, default. One line for each ignored variable of Mooncake follows,
 * with its name and type i.
 */

#include <stdio.h>

#include "util/settings_int.h"

static char rows_type(enum tei_setting_type type)
{
	switch (type) {
	case TEI_SETTING_UINT:
	case TEI_SETTING_SIZE:
	case TEI_SETTING_INT:
		return 'n';
	case TEI_SETTING_BOOL:
		return 'b';
	case TEI_SETTING_STRING:
		return 's';
	}
	return '?';
}

int main(void)
{
	const struct tei_setting_row *rows;
	size_t i, n;

	rows = tei_settings_table(&n);
	for (i = 0; i < n; i++)
		printf("%s\t%c\t%lld\t%lld\t%s\n", rows[i].name,
		       rows_type(rows[i].type), (long long)rows[i].min,
		       (long long)rows[i].max, rows[i].def);
	for (i = 0; settings_ignored(i); i++)
		printf("%s\ti\n", settings_ignored(i));
	return 0;
}
