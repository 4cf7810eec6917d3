/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/sim/sim_test.h"

#include <dirent.h>

unsigned int sim_test_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned int n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2; /* without "." and ".." */
}

int main(int argc, char **argv)
{
	static const struct tei_test_suite suites[] = {
		{ "sim_core", sim_core_cases },
		{ "sim_engine", sim_engine_cases },
		{ "sim_fabric", sim_fabric_cases },
		{ "sim_fence", sim_fence_cases },
		{ "sim_health", sim_health_cases },
		{ "sim_overtake", sim_overtake_cases },
		{ "sim_plane", sim_plane_cases },
		{ NULL, NULL },
	};

	return tei_test_run(argc, argv, suites);
}
