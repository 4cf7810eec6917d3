/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * local_test [PATTERN]	runs the tests
 * local_test --bench	prints rates of copies compared with memcpy
 * local_test --bench-huge	these rates with memory in huge pages
 * local_test --bench-runs	prints rates of small copies that are made together
 * local_test --agent N	the second process of the tests; uses descriptor N
 */
#include <stdlib.h>
#include <string.h>

#include "prov/local/local_test.h"

int main(int argc, char **argv)
{
	static const struct tei_test_suite suites[] = {
		{ "local_id", local_id_cases },
		{ "local_region", local_region_cases },
		{ "local_run", local_run_cases },
		{ "local_pool", local_pool_cases },
		{ "local_peer", local_peer_cases },
		{ "local_agent", local_agent_cases },
		{ "local_agent_mapped", local_agent_mapped_cases },
		{ "local_view", local_view_cases },
		{ "local_gpu", local_gpu_cases },
		{ NULL, NULL },
	};

	if (argc == 3 && !strcmp(argv[1], "--agent"))
		return test_agent_main(atoi(argv[2]));
	if (argc == 2 && !strcmp(argv[1], "--bench"))
		return test_bench_main(false, false);
	if (argc == 2 && !strcmp(argv[1], "--bench-runs"))
		return test_bench_main(false, true);
	if (argc == 2 && !strcmp(argv[1], "--bench-huge"))
		return test_bench_main(true, false);
	return tei_test_run(argc, argv, suites);
}
