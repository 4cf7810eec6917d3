/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/staging/staging_test.h"

int main(int argc, char **argv)
{
	static const struct tei_test_suite suites[] = {
		{ "copy", copy_cases },
		{ "remote", remote_cases },
		{ NULL, NULL },
	};

	return tei_test_run(argc, argv, suites);
}
