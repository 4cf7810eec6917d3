/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/util_test.h"

struct settings_try {
	struct tei_settings s;
	struct tei_err err;
	int code;
};

static void settings_load_body(void *arg)
{
	struct settings_try *t = arg;

	t->code = tei_settings_load(&t->s, &t->err);
}

/* Loads the settings from the environment, without printing log lines. Returns
 * the result of tei_settings_load. */
static int settings_load(struct settings_try *t)
{
	char log[1024];

	memset(t, 0, sizeof(*t));
	memset(&t->s, 0x5a, sizeof(t->s));
	util_test_capture(STDERR_FILENO, settings_load_body, t, log,
			  sizeof(log));
	return t->code;
}

static int settings_load_with(const char *name, const char *value,
			      struct settings_try *t)
{
	int code;

	setenv(name, value, 1);
	code = settings_load(t);
	unsetenv(name);
	return code;
}

static void settings_clear_environment(void)
{
	const struct tei_setting_row *rows;
	size_t i, n;

	rows = tei_settings_table(&n);
	for (i = 0; i < n; i++)
		unsetenv(rows[i].name);
}

static bool settings_untouched(const struct tei_settings *s)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t i;

	for (i = 0; i < sizeof(*s); i++)
		if (p[i] != 0x5a)
			return false;
	return true;
}

static void test_defaults_are_valid(void)
{
	const struct tei_setting_row *rows;
	struct settings_try t;
	char text[TEI_SETTING_TEXT];
	size_t i, n;

	settings_clear_environment();
	CU_ASSERT_EQUAL_FATAL(settings_load(&t), 0);
	rows = tei_settings_table(&n);
	CU_ASSERT(n > 0);
	for (i = 0; i < n; i++) {
		CU_ASSERT_FALSE(tei_settings_value(&t.s, &rows[i], text,
						   sizeof(text)));
		CU_ASSERT_STRING_EQUAL(text, rows[i].def);
	}
}

static void test_rows_are_complete_and_distinct(void)
{
	const struct tei_setting_row *rows;
	size_t i, j, n;

	rows = tei_settings_table(&n);
	for (i = 0; i < n; i++) {
		CU_ASSERT(!strncmp(rows[i].name, "MC_", 3) ||
			  !strncmp(rows[i].name, "MOONRAIL_", 9));
		CU_ASSERT(rows[i].help && *rows[i].help);
		CU_ASSERT(rows[i].min <= rows[i].max);
		CU_ASSERT(rows[i].offset < sizeof(struct tei_settings));
		for (j = 0; j < i; j++) {
			CU_ASSERT(strcmp(rows[i].name, rows[j].name));
			CU_ASSERT(rows[i].offset != rows[j].offset);
		}
	}
}

/* Returns true if the valid range of the setting depends on the value of
 * another setting. */
static bool settings_row_depends(const struct tei_setting_row *row)
{
	return strstr(row->name, "RPC_PORT") != NULL;
}

static void test_numbers_are_checked_against_their_range(void)
{
	const struct tei_setting_row *rows;
	struct settings_try t;
	char text[64], shown[64];
	size_t i, n;

	settings_clear_environment();
	rows = tei_settings_table(&n);
	for (i = 0; i < n; i++) {
		if (rows[i].type > TEI_SETTING_INT ||
		    settings_row_depends(&rows[i]))
			continue;
		snprintf(text, sizeof(text), "%lld", (long long)rows[i].min);
		CU_ASSERT_EQUAL(settings_load_with(rows[i].name, text, &t), 0);
		snprintf(text, sizeof(text), "%lld", (long long)rows[i].max);
		CU_ASSERT_EQUAL(settings_load_with(rows[i].name, text, &t), 0);
		tei_settings_value(&t.s, &rows[i], shown, sizeof(shown));
		if (strcmp(rows[i].name, "MOONRAIL_SLICE_MAX"))
			CU_ASSERT_STRING_EQUAL(shown, text);
		snprintf(text, sizeof(text), "%lld",
			 (long long)rows[i].min - 1);
		CU_ASSERT_EQUAL(settings_load_with(rows[i].name, text, &t),
				TEI_ERR_INVALID);
		snprintf(text, sizeof(text), "%lld",
			 (long long)rows[i].max + 1);
		CU_ASSERT_EQUAL(settings_load_with(rows[i].name, text, &t),
				TEI_ERR_INVALID);
		CU_ASSERT(settings_untouched(&t.s));
		CU_ASSERT_EQUAL(t.err.code, TEI_ERR_INVALID);
		CU_ASSERT_PTR_NOT_NULL(strstr(t.err.text, rows[i].name));
		CU_ASSERT_PTR_NOT_NULL(strstr(t.err.text, text));
		snprintf(text, sizeof(text), "from %lld to %lld",
			 (long long)rows[i].min, (long long)rows[i].max);
		CU_ASSERT_PTR_NOT_NULL(strstr(t.err.text, text));
	}
}

static void test_value_that_is_no_number_is_refused(void)
{
	static const char *const bad[] = {
		"x", "1x", "1 ", " 1", "+1", "1.0", "0x10", "1e3", "-", "--1",
		"99999999999999999999", "-99999999999999999999", "1k", "\n",
	};
	struct settings_try t;
	size_t i;

	settings_clear_environment();
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(settings_load_with("MC_SLICE_TIMEOUT", bad[i],
						   &t), TEI_ERR_INVALID);
		CU_ASSERT(settings_untouched(&t.s));
	}
	CU_ASSERT_EQUAL(settings_load_with("MC_SLICE_TIMEOUT", "007", &t), 0);
	CU_ASSERT_EQUAL(t.s.failure.slice_timeout_s, 7);
}

static void test_data_ports_are_a_range(void)
{
	static const char *const bad[] = {
		"4000", "4000-", "-4000", "4000-3999", "0-10", "1-65536",
		"1-2x", "1 - 2", "a-b", "1--2",
	};
	struct settings_try t;
	size_t i;

	settings_clear_environment();
	CU_ASSERT_EQUAL(settings_load_with("MOONRAIL_DATA_PORTS",
					   "4000-65535", &t), 0);
	CU_ASSERT_EQUAL(t.s.rails.data_port_low, 4000);
	CU_ASSERT_EQUAL(t.s.rails.data_port_high, 65535);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(settings_load_with("MOONRAIL_DATA_PORTS",
						   bad[i], &t),
				TEI_ERR_INVALID);
		CU_ASSERT_PTR_NOT_NULL(strstr(t.err.text, bad[i]));
		CU_ASSERT(settings_untouched(&t.s));
	}
}

static void test_sizes_have_suffixes(void)
{
	static const struct {
		const char *text;
		uint32_t size;
	} good[] = {
		{ "64K", 65536 }, { "64k", 65536 }, { "64KiB", 65536 },
		{ "1M", 1048576 }, { "4MiB", 4194304 }, { "65536", 65536 },
	};
	static const char *const bad[] = {
		"64KB", "64Kib", "64 K", "K", "64KK", "1G", "1K", "-64K",
		"9223372036854775807K", "64iB",
	};
	struct settings_try t;
	size_t i;

	settings_clear_environment();
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CU_ASSERT_EQUAL(settings_load_with("MC_SLICE_SIZE",
						   good[i].text, &t), 0);
		CU_ASSERT_EQUAL(t.s.sched.slice_size, good[i].size);
	}
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(settings_load_with("MC_SLICE_SIZE", bad[i],
						   &t), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(settings_load_with("MC_MAX_MR_SIZE", "2G", &t), 0);
	CU_ASSERT_EQUAL(t.s.memory.max_mr_size, UINT64_C(2) << 30);
	CU_ASSERT_EQUAL(settings_load_with("MC_RETRY_CNT", "0K", &t),
			TEI_ERR_INVALID);
}

static void test_booleans_have_eight_spellings(void)
{
	static const char *const yes[] = { "1", "true", "YES", "On" };
	static const char *const no[] = { "0", "False", "no", "OFF" };
	static const char *const bad[] = { "2", "-1", "y", "enable", "01" };
	struct settings_try t;
	size_t i;

	settings_clear_environment();
	for (i = 0; i < 4; i++) {
		CU_ASSERT_EQUAL(settings_load_with("MC_FORCE_TCP", yes[i], &t),
				0);
		CU_ASSERT(t.s.rails.force_tcp);
		CU_ASSERT_EQUAL(settings_load_with("MOONRAIL_LOCAL", no[i],
						   &t), 0);
		CU_ASSERT_FALSE(t.s.copies.enabled);
	}
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(settings_load_with("MC_FORCE_TCP", bad[i], &t),
				TEI_ERR_INVALID);
}

static void test_strings_are_bounded(void)
{
	const struct tei_setting_row *rows;
	struct settings_try t;
	char text[2 * TEI_SETTING_TEXT], shown[2 * TEI_SETTING_TEXT];
	size_t i, n;

	settings_clear_environment();
	rows = tei_settings_table(&n);
	for (i = 0; i < n; i++) {
		if (rows[i].type != TEI_SETTING_STRING)
			continue;
		memset(text, 'a', sizeof(text));
		text[rows[i].max] = '\0';
		if (!strcmp(rows[i].name, "MC_LOG_LEVEL") ||
		    !strcmp(rows[i].name, "MOONRAIL_DATA_PORTS"))
			continue;	/* any other text is invalid for these
					 * two settings */
		CU_ASSERT_EQUAL(settings_load_with(rows[i].name, text, &t), 0);
		tei_settings_value(&t.s, &rows[i], shown, sizeof(shown));
		CU_ASSERT_STRING_EQUAL(shown, text);
		text[rows[i].max] = 'a';
		text[rows[i].max + 1] = '\0';
		CU_ASSERT_EQUAL(settings_load_with(rows[i].name, text, &t),
				TEI_ERR_INVALID);
		CU_ASSERT(settings_untouched(&t.s));
	}
}

static void test_levels_have_names_and_numbers(void)
{
	static const char *const good[] = { "error", "WARN", "Info", "debug",
					    "warning", "trace", "0", "3" };
	static const char *const bad[] = { "4", "-1", "00", "err", "loud",
					   "warn ", "debug,info" };
	struct settings_try t;
	size_t i;

	settings_clear_environment();
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CU_ASSERT_EQUAL(settings_load_with("MC_LOG_LEVEL", good[i],
						   &t), 0);
		CU_ASSERT_STRING_EQUAL(t.s.log.level, good[i]);
	}
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(settings_load_with("MC_LOG_LEVEL", bad[i], &t),
				TEI_ERR_INVALID);
		CU_ASSERT(settings_untouched(&t.s));
		CU_ASSERT_PTR_NOT_NULL(strstr(t.err.text, "MC_LOG_LEVEL"));
		CU_ASSERT_PTR_NOT_NULL(strstr(t.err.text, "from 0 to 3"));
	}
}

static void test_empty_counts_as_unset(void)
{
	const struct tei_setting_row *rows;
	struct settings_try t;
	char text[TEI_SETTING_TEXT];
	size_t i, n;

	settings_clear_environment();
	rows = tei_settings_table(&n);
	for (i = 0; i < n; i++) {
		CU_ASSERT_EQUAL(settings_load_with(rows[i].name, "", &t), 0);
		setenv(rows[i].name, "", 1);
		CU_ASSERT_FALSE(tei_settings_value(&t.s, &rows[i], text,
						   sizeof(text)));
		unsetenv(rows[i].name);
	}
}

static void test_source_of_a_value_is_reported(void)
{
	const struct tei_setting_row *rows;
	struct settings_try t;
	char text[64];
	size_t n;

	settings_clear_environment();
	rows = tei_settings_table(&n);
	setenv(rows[0].name, rows[0].def, 1);
	CU_ASSERT_EQUAL(settings_load(&t), 0);
	unsetenv(rows[0].name);
	CU_ASSERT(tei_settings_value(&t.s, &rows[0], text, sizeof(text)));
	CU_ASSERT(tei_settings_given(&t.s, rows[0].name));
	CU_ASSERT_FALSE(tei_settings_given(&t.s, rows[1].name));
	CU_ASSERT_FALSE(tei_settings_given(&t.s, "MC_NO_SUCH_SETTING"));
	CU_ASSERT_EQUAL(tei_settings_source(&t.s, &rows[0]),
			TEI_SETTING_ENVIRONMENT);
}

static void test_values_are_checked_against_each_other(void)
{
	struct settings_try t;

	settings_clear_environment();
	setenv("MC_MIN_RPC_PORT", "2000", 1);
	CU_ASSERT_EQUAL(settings_load_with("MC_MAX_RPC_PORT", "1999", &t),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(settings_load_with("MC_MAX_RPC_PORT", "2000", &t), 0);
	unsetenv("MC_MIN_RPC_PORT");
	CU_ASSERT_EQUAL(settings_load_with("MC_SLICE_SIZE", "8388608", &t), 0);
	CU_ASSERT(t.s.sched.slice_max >= t.s.sched.slice_size);
}

const struct tei_test_case settings_cases[] = {
	{ "defaults_are_valid", test_defaults_are_valid },
	{ "rows_are_complete_and_distinct",
	  test_rows_are_complete_and_distinct },
	{ "numbers_are_checked_against_their_range",
	  test_numbers_are_checked_against_their_range },
	{ "value_that_is_no_number_is_refused",
	  test_value_that_is_no_number_is_refused },
	{ "data_ports_are_a_range", test_data_ports_are_a_range },
	{ "sizes_have_suffixes", test_sizes_have_suffixes },
	{ "booleans_have_eight_spellings", test_booleans_have_eight_spellings },
	{ "strings_are_bounded", test_strings_are_bounded },
	{ "levels_have_names_and_numbers", test_levels_have_names_and_numbers },
	{ "empty_counts_as_unset", test_empty_counts_as_unset },
	{ "source_of_a_value_is_reported", test_source_of_a_value_is_reported },
	{ "values_are_checked_against_each_other",
	  test_values_are_checked_against_each_other },
	{ NULL, NULL },
};
