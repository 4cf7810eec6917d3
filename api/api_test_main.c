/* SPDX-License-Identifier: BSD-2-Clause */
#include "api/api_test.h"

int main(int argc, char **argv)
{
	static const struct tei_test_suite suites[] = {
		{ "files", files_cases },
		{ "flush", flush_cases },
		{ "lease", lease_cases },
		{ "local", local_cases },
		{ "memory", memory_cases },
		{ "segment", segment_cases },
		{ "shutdown", shutdown_cases },
		{ NULL, NULL },
	};

	return tei_test_run(argc, argv, suites);
}
