/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/util_test.h"

static void log_one(void *arg)
{
	errno = EXDEV;
	tei_log(TEI_LOG_WARN, "test", "%s %d", (const char *)arg, 42);
	CU_ASSERT_EQUAL(errno, EXDEV);
}

static void one_line_to_stderr(void)
{
	char out[256];

	util_test_capture(STDERR_FILENO, log_one, "answer", out, sizeof(out));
	CU_ASSERT_STRING_EQUAL(out, "moonrail warn test: answer 42\n");
}

static void nothing_to_stdout(void)
{
	char out[256];

	util_test_capture(STDOUT_FILENO, log_one, "answer", out, sizeof(out));
	CU_ASSERT_STRING_EQUAL(out, "");
}

static void long_line_is_cut(void)
{
	char text[4096], out[8192];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	util_test_capture(STDERR_FILENO, log_one, text, out, sizeof(out));
	CU_ASSERT(strlen(out) < 2048);
	CU_ASSERT_PTR_EQUAL(strchr(out, '\n'), out + strlen(out) - 1);
}

/* The level is read once per process, hence a child for each setting. */
static int log_level_with(const char *level, const char *verbose)
{
	int status = 0, shown;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	CU_ASSERT_FATAL(pid >= 0);
	if (!pid) {
		execle("/proc/self/exe", "util_test", "--log-level", NULL,
		       (char *[]){ (char *)level, (char *)verbose, NULL });
		_exit(99);
	}
	CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
	shown = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	return shown;
}

int log_test_level(void)
{
	int level = TEI_LOG_DEBUG;

	while (level >= 0 && !tei_log_enabled((enum tei_log_level)level))
		level--;
	return level;
}

static void level_comes_from_environment(void)
{
	static const struct {
		const char *level, *verbose;
		int shown;
	} rows[] = {
		{ "X=", "Y=", TEI_LOG_WARN },
		{ "MC_LOG_LEVEL=", "Y=", TEI_LOG_WARN },
		{ "MC_LOG_LEVEL=error", "Y=", TEI_LOG_ERROR },
		{ "MC_LOG_LEVEL=WARNING", "Y=", TEI_LOG_WARN },
		{ "MC_LOG_LEVEL=Info", "Y=", TEI_LOG_INFO },
		{ "MC_LOG_LEVEL=3", "Y=", TEI_LOG_DEBUG },
		{ "MC_LOG_LEVEL=0", "Y=", TEI_LOG_ERROR },
		{ "MC_LOG_LEVEL=4", "Y=", TEI_LOG_WARN },
		{ "MC_LOG_LEVEL=loud", "Y=", TEI_LOG_WARN },
		{ "MC_LOG_LEVEL=error", "MC_VERBOSE=1", TEI_LOG_DEBUG },
		{ "MC_LOG_LEVEL=error", "MC_VERBOSE=0", TEI_LOG_ERROR },
		{ "MC_LOG_LEVEL=error", "MC_VERBOSE=", TEI_LOG_ERROR },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		CU_ASSERT_EQUAL(log_level_with(rows[i].level, rows[i].verbose),
				rows[i].shown);
}

/* How many of n calls were permitted. */
static int log_permitted(struct tei_log_limit *limit, int n, uint32_t *left_out)
{
	int yes = 0;

	while (n--)
		yes += tei_log_permit(limit, left_out);
	return yes;
}

static void flood_is_limited_and_counted(void)
{
	struct tei_log_limit limit = { 0 };
	uint32_t left_out = 1234;

	CU_ASSERT_EQUAL(log_permitted(&limit, 1000, &left_out), 8);
	CU_ASSERT_EQUAL(left_out, 0);
	/* The window is moved back instead of waiting for its end. */
	limit.window_start_ns -= 2 * TEI_NS_PER_SEC;
	CU_ASSERT(tei_log_permit(&limit, &left_out));
	CU_ASSERT_EQUAL(left_out, 992);
	CU_ASSERT(tei_log_permit(&limit, &left_out));
	CU_ASSERT_EQUAL(left_out, 0);
}

struct log_flood {
	struct tei_log_limit limit;
	int permitted;			/* atomic */
};

static void *log_flood_run(void *arg)
{
	struct log_flood *f = arg;
	uint32_t left_out;
	int yes = log_permitted(&f->limit, 1000, &left_out);

	__atomic_fetch_add(&f->permitted, yes, __ATOMIC_RELAXED);
	return NULL;
}

static void flood_of_threads_is_limited(void)
{
	struct log_flood f = { .permitted = 0 };
	pthread_t threads[4];
	uint64_t start = tei_now_ns();
	int i, windows;

	for (i = 0; i < 4; i++)
		CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL,
						     log_flood_run, &f), 0);
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	windows = 1 + (int)((tei_now_ns() - start) / TEI_NS_PER_SEC);
	/* At a window's start a racing line or two may slip in. */
	CU_ASSERT(f.permitted >= 8 && f.permitted <= windows * (8 + 4));
}

const struct tei_test_case log_cases[] = {
	{ "one_line_to_stderr", one_line_to_stderr },
	{ "nothing_to_stdout", nothing_to_stdout },
	{ "long_line_is_cut", long_line_is_cut },
	{ "level_comes_from_environment", level_comes_from_environment },
	{ "flood_is_limited_and_counted", flood_is_limited_and_counted },
	{ "flood_of_threads_is_limited", flood_of_threads_is_limited },
	{ NULL, NULL },
};
