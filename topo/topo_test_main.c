/* SPDX-License-Identifier: BSD-2-Clause */
#include "topo/topo_test.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *topo_test_data(const char *file)
{
	static char path[4096];
	char self[] = __FILE__;
	const char *src = getenv("SRC");

	if (src)
		snprintf(path, sizeof(path), "%s/topo/testdata/%s", src, file);
	else
		snprintf(path, sizeof(path), "%s/testdata/%s", dirname(self),
			 file);
	return path;
}

const char *topo_test_row(const struct tei_topo *topo, const char *location)
{
	static char text[4096];
	const uint32_t *near, *other;
	size_t n_near, n_other, i;
	FILE *f = fmemopen(text, sizeof(text), "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	tei_topo_lookup(topo, location, &near, &n_near, &other, &n_other);
	for (i = 0; i < n_near; i++)
		fprintf(f, "%s%s", i ? " " : "",
			tei_topo_nic(topo, near[i])->name);
	fputc('|', f);
	for (i = 0; i < n_other; i++)
		fprintf(f, "%s%s", i ? " " : "",
			tei_topo_nic(topo, other[i])->name);
	fputc('\0', f);
	fclose(f);
	return text;
}

struct tei_topo *topo_test_letters(unsigned int count)
{
	static const char *const names[] = {
		"a", "b", "c", "d", "e", "f", "g", "h",
	};
	struct tei_topo_nic_desc descs[8];
	struct tei_topo *topo = NULL;
	unsigned int i;

	memset(descs, 0, sizeof(descs));
	for (i = 0; i < count && i < 8; i++)
		descs[i].name = names[i];
	CU_ASSERT_EQUAL_FATAL(tei_topo_create(descs, count, &topo, NULL), 0);
	return topo;
}

int main(int argc, char **argv)
{
	static const struct tei_test_suite suites[] = {
		{ "topo_discover", discover_cases },
		{ "topo_json", json_cases },
		{ "topo_locate", locate_cases },
		{ "topo_map", map_cases },
		{ "topo_maps", maps_cases },
		{ "topo_table", table_cases },
		{ "topo_text", text_cases },
		{ NULL, NULL },
	};

	return tei_test_run(argc, argv, suites);
}
