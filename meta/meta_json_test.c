/* SPDX-License-Identifier: BSD-2-Clause */
#include "meta/meta_json.h"

#include <stdlib.h>
#include <string.h>

#include "meta/meta_test.h"

static bool json_good(const char *text)
{
	struct meta_json j;
	bool good;

	meta_json_init(&j, text, strlen(text));
	good = meta_json_skip(&j) && meta_json_done(&j);
	meta_json_fini(&j);
	return good;
}

static bool json_number(const char *text, uint64_t *v)
{
	struct meta_json j;
	bool good;

	meta_json_init(&j, text, strlen(text));
	good = meta_json_u64(&j, v) && meta_json_done(&j);
	meta_json_fini(&j);
	return good;
}

static void test_integers_are_exact(void)
{
	static const struct {
		const char *text;
		uint64_t value;
	} good[] = {
		{ "0", 0 },
		{ "9007199254740993", UINT64_C(9007199254740993) },
		{ "18446744073709551615", UINT64_MAX },
		{ "\"18446744073709551614\"", UINT64_MAX - 1 },
		{ " 7 ", 7 },
	};
	static const char *const bad[] = {
		"18446744073709551616", "99999999999999999999999", "-1", "1.0",
		"1e3", "01", "\"\"", "\"1 \"", "\"0x10\"", "true", "", "null",
		"\"-1\"", "\"1\\u0030", "[1]",
	};
	uint64_t v;
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		v = 1;
		CU_ASSERT(json_number(good[i].text, &v));
		CU_ASSERT_EQUAL(v, good[i].value);
	}
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_FALSE(json_number(bad[i], &v));
}

static void test_grammar_is_strict(void)
{
	static const char *const good[] = {
		"{}", "[]", " [ ] ", "{\"a\":[1,-2.5e+7,true,false,null,\"x\"]}",
		"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\"",
		"\"\xc3\xa9\xf0\x9f\x98\x80\"", "0.1", "-0",
	};
	static const char *const bad[] = {
		"", " ", "{", "[", "[1", "[1,", "[1,]", "{,}", "{\"a\"}",
		"{\"a\":}", "{\"a\":1,}", "{a:1}", "[1 2]", "[1}", "{\"a\":1]",
		"\"", "\"a", "\"\n\"", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"",
		"\"\\udc00\"", "\"\\ud800\\u0041\"", "\"\\u0000\"",
		"\"\xc3\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xff\"",
		"tru", "nul", "+1", ".5", "1.", "1e", "--1", "[] []", "{} x",
		"'a'", "\"\xf4\x90\x80\x80\"",
	};
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		CU_ASSERT(json_good(good[i]));
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_FALSE(json_good(bad[i]));
}

static void test_depth_is_limited(void)
{
	char text[2 * 100000 + 1];
	size_t i;

	for (i = 0; i < META_JSON_DEPTH; i++) {
		text[i] = '[';
		text[META_JSON_DEPTH + i] = ']';
	}
	text[2 * META_JSON_DEPTH] = 0;
	CU_ASSERT(json_good(text));
	memset(text, '[', 100000);
	memset(text + 100000, ']', 100000);
	text[200000] = 0;
	CU_ASSERT_FALSE(json_good(text));
}

static void test_strings_survive(void)
{
	static const char text[] = "a\"b\\c\n\x01\x7f \xc3\xa9";
	struct meta_buf b = { 0 };
	struct meta_json j;

	meta_buf_string(&b, text);
	CU_ASSERT_FATAL(!b.failed);
	meta_json_init(&j, b.text, b.len);
	CU_ASSERT(meta_json_string(&j));
	CU_ASSERT_STRING_EQUAL(j.text, text);
	meta_json_fini(&j);
	free(b.text);
}

static void test_hex_is_checked(void)
{
	uint8_t out[2];
	uint32_t len = 9;

	CU_ASSERT(meta_hex_parse("00fF", out, 2, &len));
	CU_ASSERT_EQUAL(len, 2);
	CU_ASSERT_EQUAL(out[1], 0xff);
	CU_ASSERT(meta_hex_parse("", out, 2, &len));
	CU_ASSERT_EQUAL(len, 0);
	CU_ASSERT_FALSE(meta_hex_parse("0", out, 2, &len));
	CU_ASSERT_FALSE(meta_hex_parse("0g", out, 2, &len));
	CU_ASSERT_FALSE(meta_hex_parse("000000", out, 2, &len));
}

const struct tei_test_case json_cases[] = {
	{ "integers_are_exact", test_integers_are_exact },
	{ "grammar_is_strict", test_grammar_is_strict },
	{ "depth_is_limited", test_depth_is_limited },
	{ "strings_survive", test_strings_survive },
	{ "hex_is_checked", test_hex_is_checked },
	{ NULL, NULL },
};
