/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/settings_int.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/util_test.h"

static void names_log(void *arg)
{
	(void)arg;
	tei_settings_log_unknown();
}

/* Calls tei_settings_log_unknown while a variable of that name is set. Copies
 * the logged lines to log. */
static void names_check(const char *name, char log[1024])
{
	setenv(name, "1", 1);
	util_test_capture(STDERR_FILENO, names_log, NULL, log, 1024);
	unsetenv(name);
}

static void test_unknown_variable_gives_a_warning_with_the_closest_name(void)
{
	static const char *const rows[][2] = {
		{ "MC_SLICE_SISE", "MC_SLICE_SIZE" },
		{ "MC_SLICETIMEOUT", "MC_SLICE_TIMEOUT" },
		{ "MOONRAIL_DEVICE", "MOONRAIL_DEVICES" },
		{ "MOONRAIL_FENCE", "MOONRAIL_FENCE_MS" },
	};
	char log[1024], *first;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		names_check(rows[i][0], log);
		first = strstr(log, "warn settings: ");
		CU_ASSERT_PTR_NOT_NULL(first);
		CU_ASSERT_PTR_NOT_NULL(strstr(log, rows[i][0]));
		CU_ASSERT_PTR_NOT_NULL(strstr(log, rows[i][1]));
		CU_ASSERT(!first ||
			  !strstr(first + 1, "warn settings: "));
	}
}

static void test_known_variable_gives_no_warning(void)
{
	static const char *const names[] = {
		"MC_SLICE_SIZE", "MC_MIN_PRC_PORT", "MC_IB_TC", "MC_STORE_ANY",
		"MC_USE_TENT", "MC_HOST_play", "MC_SID", "OTHER_SETTING",
	};
	char log[1024];
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		names_check(names[i], log);
		CU_ASSERT_STRING_EQUAL(log, "");
	}
}

static void test_closest_name_of_a_long_text_is_a_setting(void)
{
	char text[4096];

	memset(text, 'x', sizeof(text));
	CU_ASSERT_PTR_NOT_NULL(settings_closest(text, sizeof(text)));
	CU_ASSERT_PTR_NOT_NULL(settings_closest("", 0));
}

/* Tests that no ignored variable is also in the table of settings. */
static void test_ignored_names_are_not_in_the_table(void)
{
	const struct tei_setting_row *rows;
	size_t i, n;

	rows = tei_settings_table(&n);
	for (i = 0; i < n; i++)
		CU_ASSERT_PTR_NULL(settings_why_ignored(rows[i].name,
							strlen(rows[i].name)));
	CU_ASSERT_PTR_NOT_NULL(settings_why_ignored("MC_IB_SL", 8));
	CU_ASSERT_PTR_NULL(settings_why_ignored("MC_IB_SLX", 9));
}

/* Tests that the help text "accepted for compatibility" and the flag "unused"
 * agree, because the manual page is checked against the help text. */
static void test_unused_settings_are_flagged(void)
{
	static const char says[] = "accepted for compatibility; ";
	const struct tei_setting_row *rows;
	size_t i, n, unused = 0;

	rows = tei_settings_table(&n);
	for (i = 0; i < n; i++) {
		CU_ASSERT_EQUAL(rows[i].unused,
				!strncmp(rows[i].help, says, sizeof(says) - 1));
		unused += rows[i].unused;
	}
	CU_ASSERT_EQUAL(unused, 6);
}

const struct tei_test_case settings_names_cases[] = {
	{ "unknown_variable_gives_a_warning_with_the_closest_name",
	  test_unknown_variable_gives_a_warning_with_the_closest_name },
	{ "known_variable_gives_no_warning",
	  test_known_variable_gives_no_warning },
	{ "closest_name_of_a_long_text_is_a_setting",
	  test_closest_name_of_a_long_text_is_a_setting },
	{ "ignored_names_are_not_in_the_table",
	  test_ignored_names_are_not_in_the_table },
	{ "unused_settings_are_flagged", test_unused_settings_are_flagged },
	{ NULL, NULL },
};
