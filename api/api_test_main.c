/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

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
		{ "ipc", ipc_cases },
		{ "local", local_cases },
		{ "memory", memory_cases },
		{ "pages", pages_cases },
		{ "provider", provider_cases },
		{ "segment", segment_cases },
		{ "settings", settings_cases },
		{ "transport", transport_cases },
		{ NULL, NULL },
	};

	if (argc == 3 && !strcmp(argv[1], "--ipc-owner"))
		return engine_ipc_test_owner(atoi(argv[2]));
	return tei_test_run(argc, argv, suites);
}
