/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/util_test.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void util_test_capture(int fd, void (*fn)(void *), void *arg, char *buf,
		       size_t len)
{
	FILE *file = tmpfile();
	int saved;
	size_t n;

	buf[0] = '\0';
	CU_ASSERT_PTR_NOT_NULL_FATAL(file);
	fflush(NULL);
	saved = dup(fd);
	CU_ASSERT_FATAL(saved >= 0);
	dup2(fileno(file), fd);
	fn(arg);
	fflush(NULL);
	dup2(saved, fd);
	close(saved);
	rewind(file);
	n = fread(buf, 1, len - 1, file);
	buf[n] = '\0';
	fclose(file);
}

const char *util_test_log_text(const char *out)
{
	const char *end = strstr(out, "] ");

	return end ? end + 2 : out;
}

int main(int argc, char **argv)
{
	static const struct tei_test_suite suites[] = {
		{ "atomic", atomic_cases },
		{ "channel", channel_cases },
		{ "err", err_cases },
		{ "heap", heap_cases },
		{ "list", list_cases },
		{ "lock", lock_cases },
		{ "log", log_cases },
		{ "range", range_cases },
		{ "secret", secret_cases },
		{ "settings", settings_cases },
		{ "settings_names", settings_names_cases },
		{ "sieve", sieve_cases },
		{ "text", text_cases },
		{ "thread", thread_cases },
		{ "world", world_cases },
		{ NULL, NULL },
	};

	if (argc == 2 && !strcmp(argv[1], "--log-level"))
		return log_test_level();
	return tei_test_run(argc, argv, suites);
}
