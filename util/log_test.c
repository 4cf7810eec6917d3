/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/log.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/util_test.h"

static void log_one(void *arg)
{
	errno = EXDEV;
	tei_log(TEI_LOG_WARN, "test", "%s %d", (const char *)arg, 42);
	CU_ASSERT_EQUAL(errno, EXDEV);
}

static void test_one_line_to_stderr(void)
{
	char out[256];

	util_test_capture(STDERR_FILENO, log_one, "answer", out, sizeof(out));
	CU_ASSERT_STRING_EQUAL(util_test_log_text(out),
			       "warn test: answer 42\n");
}

/* Returns the time with which a log line begins. */
static time_t log_time_of(const char *out)
{
	struct tm tm;

	memset(&tm, 0, sizeof(tm));
	CU_ASSERT_PTR_NOT_NULL_FATAL(strptime(out, "%Y-%m-%dT%H:%M:%S.", &tm));
	return timegm(&tm);
}

static void test_line_has_the_time_and_the_process(void)
{
	struct timespec after;
	char out[256], prefix[64];
	time_t before = time(NULL), said;

	util_test_capture(STDERR_FILENO, log_one, "answer", out, sizeof(out));
	said = log_time_of(out);
	/* time(NULL) may lag behind the clock of the log by some milliseconds */
	clock_gettime(CLOCK_REALTIME, &after);
	CU_ASSERT(said >= before && said <= after.tv_sec);
	CU_ASSERT_EQUAL(out[19], '.');
	snprintf(prefix, sizeof(prefix), "Z moonrail[%d] warn test: ",
		 (int)getpid());
	CU_ASSERT_EQUAL(strncmp(out + 26, prefix, strlen(prefix)), 0);
}

/* --- the program's callback ----------------------------------------------- */

struct log_seen {
	int level, lines, refused;	/* lines is atomic */
	char text[256];
	bool nest;			/* true if the callback must log a line
					 * itself */
	bool over;			/* atomic; true when tei_log_set has
					 * removed the callback */
	bool late;			/* atomic; true if the callback was
					 * called although over was true */
};

static void log_take(int level, const char *subsys, const char *text, void *arg)
{
	struct log_seen *s = arg;

	if (__atomic_load_n(&s->over, __ATOMIC_SEQ_CST))
		__atomic_store_n(&s->late, true, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&s->lines, 1, __ATOMIC_SEQ_CST);
	if (!s->nest)
		return;
	s->level = level;
	snprintf(s->text, sizeof(s->text), "%s|%s", subsys, text);
	tei_log(TEI_LOG_ERROR, "nested", "second");
	s->refused = tei_log_set(NULL, NULL);
}

static void test_callback_gets_the_line_and_stderr_does_not(void)
{
	struct log_seen s = { .nest = true };
	char out[256];

	CU_ASSERT_EQUAL(tei_log_set(log_take, &s), 0);
	util_test_capture(STDERR_FILENO, log_one, "answer", out, sizeof(out));
	CU_ASSERT_EQUAL(s.lines, 1);
	CU_ASSERT_EQUAL(s.level, TEI_LOG_WARN);
	CU_ASSERT_STRING_EQUAL(s.text, "test|answer 42");
	/* a line that the callback itself logs goes to stderr */
	CU_ASSERT_STRING_EQUAL(util_test_log_text(out),
			       "error nested: second\n");
	CU_ASSERT_EQUAL(s.refused, -1);
	CU_ASSERT_EQUAL(tei_log_set(NULL, NULL), 0);
	util_test_capture(STDERR_FILENO, log_one, "answer", out, sizeof(out));
	CU_ASSERT_EQUAL(s.lines, 1);
	CU_ASSERT_STRING_EQUAL(util_test_log_text(out),
			       "warn test: answer 42\n");
}

static bool log_stop;			/* atomic; set to true to end the
					 * logging threads */

static void *log_lines(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&log_stop, __ATOMIC_RELAXED))
		tei_log(TEI_LOG_WARN, "test", "line");
	return NULL;
}

static void test_callback_that_was_replaced_is_not_called(void)
{
	struct log_seen seen[64];
	pthread_t threads[3];
	int i;

	memset(seen, 0, sizeof(seen));
	log_stop = false;
	CU_ASSERT_EQUAL(tei_log_set(log_take, &seen[0]), 0);
	for (i = 0; i < 3; i++)
		CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL,
						     log_lines, NULL), 0);
	for (i = 1; i < 64; i++) {
		while (!__atomic_load_n(&seen[i - 1].lines, __ATOMIC_SEQ_CST))
			sched_yield();
		CU_ASSERT_EQUAL(tei_log_set(log_take, &seen[i]), 0);
		__atomic_store_n(&seen[i - 1].over, true, __ATOMIC_SEQ_CST);
	}
	__atomic_store_n(&log_stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	CU_ASSERT_EQUAL(tei_log_set(NULL, NULL), 0);
	for (i = 0; i < 64; i++)
		CU_ASSERT_FALSE(seen[i].late);
}

static void log_set_held(int level, const char *subsys, const char *text,
			 void *arg)
{
	bool *held = arg;

	(void)level, (void)subsys, (void)text;
	__atomic_store_n(held, true, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(held, __ATOMIC_SEQ_CST))
		sched_yield();
}

/* Tests that a child process can remove the callback although a thread of the
 * parent was running it during the fork. This thread does not exist in the
 * child. */
static void test_callback_can_be_removed_in_a_child(void)
{
	pthread_t thread;
	bool held = false;
	int status = 0;
	pid_t pid;

	log_stop = false;
	CU_ASSERT_EQUAL(tei_log_set(log_set_held, &held), 0);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, log_lines, NULL),
			      0);
	while (!__atomic_load_n(&held, __ATOMIC_SEQ_CST))
		sched_yield();
	fflush(NULL);
	pid = fork();
	if (!pid) {
		alarm(30);
		_exit(tei_log_set(NULL, NULL) ? 1 : 0);
	}
	CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
	CU_ASSERT(WIFEXITED(status) && !WEXITSTATUS(status));
	__atomic_store_n(&log_stop, true, __ATOMIC_SEQ_CST);
	__atomic_store_n(&held, false, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL(tei_log_set(NULL, NULL), 0);
}

/* --- levels --------------------------------------------------------------- */

static void test_log_writes_nothing_to_stdout(void)
{
	char out[256];

	util_test_capture(STDOUT_FILENO, log_one, "answer", out, sizeof(out));
	CU_ASSERT_STRING_EQUAL(out, "");
}

static void test_long_line_is_cut(void)
{
	char text[4096], out[8192];

	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	util_test_capture(STDERR_FILENO, log_one, text, out, sizeof(out));
	CU_ASSERT(strlen(out) < 2048);
	CU_ASSERT_PTR_EQUAL(strchr(out, '\n'), out + strlen(out) - 1);
}

/* Runs a child process with the given values of MC_LOG_LEVEL and MC_VERBOSE,
 * and returns its log level. A child is needed because the level is read once
 * per process. */
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

static void test_level_comes_from_environment(void)
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

/* Calls tei_log_permit n times and returns how often it permitted a line. */
static int log_permitted(struct tei_log_limit *limit, int n, uint32_t *left_out)
{
	int yes = 0;

	while (n--)
		yes += tei_log_permit(limit, left_out);
	return yes;
}

static void test_flood_is_limited_and_counted(void)
{
	struct tei_log_limit limit = { 0 };
	uint32_t left_out = 1234;

	CU_ASSERT_EQUAL(log_permitted(&limit, 1000, &left_out), 8);
	CU_ASSERT_EQUAL(left_out, 0);
	/* moves the start of the window back instead of waiting for its end */
	limit.window_start_ns -= 2 * TEI_NS_PER_SEC;
	CU_ASSERT(tei_log_permit(&limit, &left_out));
	CU_ASSERT_EQUAL(left_out, 992);
	CU_ASSERT(tei_log_permit(&limit, &left_out));
	CU_ASSERT_EQUAL(left_out, 0);
}

static void log_flood_line(void *arg)
{
	tei_log_limited(arg, TEI_LOG_WARN, "test", "line");
}

static void test_lines_left_out_are_in_the_next_line(void)
{
	struct tei_log_limit limit = { 0 };
	char out[2048];
	int i;

	util_test_capture(STDERR_FILENO, log_flood_line, &limit, out,
			  sizeof(out));
	CU_ASSERT_STRING_EQUAL(util_test_log_text(out), "warn test: line\n");
	for (i = 0; i < 20; i++)
		util_test_capture(STDERR_FILENO, log_flood_line, &limit, out,
				  sizeof(out));
	limit.window_start_ns -= 2 * TEI_NS_PER_SEC;
	limit.left_out = 13;
	util_test_capture(STDERR_FILENO, log_flood_line, &limit, out,
			  sizeof(out));
	CU_ASSERT_STRING_EQUAL(util_test_log_text(out),
			       "warn test: line (13 similar lines left out)\n");
}

struct log_again {
	struct tei_log_repeat repeat;
	const char *text;
	int times;
};

static void log_repeat_lines(void *arg)
{
	struct log_again *a = arg;
	int i;

	for (i = 0; i < a->times; i++)
		tei_log_repeated(&a->repeat, TEI_LOG_WARN, "test", "%s",
				 a->text);
}

static void test_same_line_is_logged_once_with_a_count_later(void)
{
	struct log_again a = { .text = "refused", .times = 100 };
	char out[4096];

	util_test_capture(STDERR_FILENO, log_repeat_lines, &a, out,
			  sizeof(out));
	CU_ASSERT_STRING_EQUAL(util_test_log_text(out),
			       "warn test: refused\n");
	/* makes the pause end now, instead of waiting */
	a.repeat.texts[0].next_ns -= a.repeat.texts[0].pause_ns;
	a.times = 50;
	util_test_capture(STDERR_FILENO, log_repeat_lines, &a, out,
			  sizeof(out));
	CU_ASSERT_STRING_EQUAL(util_test_log_text(out),
			       "warn test: refused (99 times more since the last such line)\n");
	CU_ASSERT(a.repeat.texts[0].pause_ns > 10 * TEI_NS_PER_SEC);
	/* after a long time without the line, its pause is short again; the
	 * repetitions are still counted */
	a.repeat.texts[0].next_ns = 1;
	util_test_capture(STDERR_FILENO, log_repeat_lines, &a, out,
			  sizeof(out));
	CU_ASSERT_STRING_EQUAL(util_test_log_text(out),
			       "warn test: refused (49 times more since the last such line)\n");
	CU_ASSERT_EQUAL(a.repeat.texts[0].pause_ns, 10 * TEI_NS_PER_SEC);
	a.text = "reset";
	a.times = 2;
	util_test_capture(STDERR_FILENO, log_repeat_lines, &a, out,
			  sizeof(out));
	CU_ASSERT_STRING_EQUAL(util_test_log_text(out), "warn test: reset\n");
	CU_ASSERT_EQUAL(a.repeat.texts[1].pause_ns, 10 * TEI_NS_PER_SEC);
}

static void test_pause_between_equal_lines_is_at_most_the_longest_pause(void)
{
	struct log_again a = { .text = "refused", .times = 1,
			       .repeat.pause_max_ns = 30 * TEI_NS_PER_SEC };
	static const uint64_t pauses[] = { 10, 20, 30, 30 };
	char out[4096];
	size_t i;

	for (i = 0; i < sizeof(pauses) / sizeof(pauses[0]); i++) {
		util_test_capture(STDERR_FILENO, log_repeat_lines, &a, out,
				  sizeof(out));
		CU_ASSERT_STRING_EQUAL(util_test_log_text(out),
				       "warn test: refused\n");
		CU_ASSERT_EQUAL(a.repeat.texts[0].pause_ns,
				pauses[i] * TEI_NS_PER_SEC);
		/* makes the pause end now, instead of waiting */
		a.repeat.texts[0].next_ns -= a.repeat.texts[0].pause_ns;
	}
}

static void log_alternate_lines(void *arg)
{
	struct tei_log_repeat *repeat = arg;
	int i;

	for (i = 0; i < 400; i++)
		tei_log_repeated(repeat, TEI_LOG_WARN, "test", "rail %d",
				 i % TEI_LOG_TEXTS);
}

static size_t log_count(const char *out)
{
	size_t n = 0;

	for (; (out = strchr(out, '\n')); out++)
		n++;
	return n;
}

static void test_lines_that_alternate_are_each_logged_once(void)
{
	struct tei_log_repeat repeat = { 0 };
	char out[4096];

	util_test_capture(STDERR_FILENO, log_alternate_lines, &repeat, out,
			  sizeof(out));
	CU_ASSERT_EQUAL(log_count(out), TEI_LOG_TEXTS);
}

static void log_different_lines(void *arg)
{
	int i;

	for (i = 0; i < 1000; i++)
		tei_log_repeated(arg, TEI_LOG_WARN, "test", "address %d", i);
}

/* Tests the limit of lines per second. On a busy machine the test takes several
 * seconds, so more lines are allowed. */
static void test_flood_of_different_lines_is_limited(void)
{
	struct tei_log_repeat repeat = { 0 };
	uint64_t start = tei_now_ns();
	char out[65536];

	util_test_capture(STDERR_FILENO, log_different_lines, &repeat, out,
			  sizeof(out));
	CU_ASSERT(log_count(out) >= 8);
	CU_ASSERT(log_count(out) <=
		  8 * (2 + (tei_now_ns() - start) / TEI_NS_PER_SEC));
	repeat.limit.window_start_ns -= 2 * TEI_NS_PER_SEC;
	util_test_capture(STDERR_FILENO, log_alternate_lines, &repeat, out,
			  sizeof(out));
	CU_ASSERT_PTR_NOT_NULL(strstr(out, "similar lines left out)\n"));
}

static void log_info(void *arg)
{
	tei_log_repeated(arg, TEI_LOG_INFO, "test", "detail");
}

static void test_repeated_line_below_the_level_is_not_logged(void)
{
	struct tei_log_repeat repeat = { 0 };
	char out[256];

	util_test_capture(STDERR_FILENO, log_info, &repeat, out, sizeof(out));
	CU_ASSERT_STRING_EQUAL(out, "");
}

struct log_flood {
	struct tei_log_limit limit;
	int permitted;			/* atomic; number of permitted lines */
};

static void *log_flood_run(void *arg)
{
	struct log_flood *f = arg;
	uint32_t left_out;
	int yes = log_permitted(&f->limit, 1000, &left_out);

	__atomic_fetch_add(&f->permitted, yes, __ATOMIC_RELAXED);
	return NULL;
}

static void test_flood_of_threads_is_limited(void)
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
	/* at the start of each window, threads that run at the same time may
	 * log one line each above the limit */
	CU_ASSERT(f.permitted >= 8 && f.permitted <= windows * (8 + 4));
}

const struct tei_test_case log_cases[] = {
	{ "one_line_to_stderr", test_one_line_to_stderr },
	{ "line_has_the_time_and_the_process",
	  test_line_has_the_time_and_the_process },
	{ "callback_gets_the_line_and_stderr_does_not",
	  test_callback_gets_the_line_and_stderr_does_not },
	{ "callback_that_was_replaced_is_not_called",
	  test_callback_that_was_replaced_is_not_called },
	{ "callback_can_be_removed_in_a_child",
	  test_callback_can_be_removed_in_a_child },
	{ "lines_left_out_are_in_the_next_line",
	  test_lines_left_out_are_in_the_next_line },
	{ "lines_that_alternate_are_each_logged_once",
	  test_lines_that_alternate_are_each_logged_once },
	{ "flood_of_different_lines_is_limited",
	  test_flood_of_different_lines_is_limited },
	{ "repeated_line_below_the_level_is_not_logged",
	  test_repeated_line_below_the_level_is_not_logged },
	{ "pause_between_equal_lines_is_at_most_the_longest_pause",
	  test_pause_between_equal_lines_is_at_most_the_longest_pause },
	{ "same_line_is_logged_once_with_a_count_later",
	  test_same_line_is_logged_once_with_a_count_later },
	{ "log_writes_nothing_to_stdout", test_log_writes_nothing_to_stdout },
	{ "long_line_is_cut", test_long_line_is_cut },
	{ "level_comes_from_environment", test_level_comes_from_environment },
	{ "flood_is_limited_and_counted", test_flood_is_limited_and_counted },
	{ "flood_of_threads_is_limited", test_flood_of_threads_is_limited },
	{ NULL, NULL },
};
