/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/api_test.h"

int main(int argc, char **argv)
{
	static const struct tei_test_suite suites[] = {
		/* this suite runs first because it forks; the other suites use
		 * much memory */
		{ "shutdown", shutdown_cases },
		{ "status", status_cases },
		{ "alloc", alloc_cases },
		{ "create", create_cases },
		{ "files", files_cases },
		{ "flush", flush_cases },
		{ "local", local_cases },
		{ "memory", memory_cases },
		{ "pages", pages_cases },
		{ "provider", provider_cases },
		{ "segment", segment_cases },
		{ "settings", settings_cases },
		{ "transport", transport_cases },
		{ NULL, NULL },
	};

	return tei_test_run(argc, argv, suites);
}
