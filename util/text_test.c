/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/util_test.h"

#include "util/text.h"

static void test_text_of_any_language_is_accepted(void)
{
	CU_ASSERT_TRUE(tei_text_valid("", 0));
	CU_ASSERT_TRUE(tei_text_valid("eth0", 4));
	CU_ASSERT_TRUE(tei_text_valid("\xc3\xa9\xe2\x82\xac\xf0\x9f\x9a\x9d", 63));
}

static void test_bytes_that_are_no_text_are_refused(void)
{
	CU_ASSERT_FALSE(tei_text_valid("eth0", 3));
	CU_ASSERT_FALSE(tei_text_valid("x\xff", 63));
	CU_ASSERT_FALSE(tei_text_valid("x\x1f", 63));
	CU_ASSERT_FALSE(tei_text_valid("x\x7f", 63));
	/* a truncated sequence, an overlong sequence, and half of a surrogate
	 * pair */
	CU_ASSERT_FALSE(tei_text_valid("x\xe2\x82", 63));
	CU_ASSERT_FALSE(tei_text_valid("\xc0\xaf", 63));
	CU_ASSERT_FALSE(tei_text_valid("\xed\xa0\x80", 63));
}

static void test_bytes_that_are_no_text_are_escaped(void)
{
	char out[16];

	tei_text_escape("x\xff\n\xc3\xa9", out, sizeof(out));
	CU_ASSERT_STRING_EQUAL(out, "x\\xff\\x0a\xc3\xa9");
	/* the copy is not cut within an escape or within a character */
	tei_text_escape("x\xff\xff", out, 9);
	CU_ASSERT_STRING_EQUAL(out, "x\\xff");
	tei_text_escape("x\xc3\xa9", out, 3);
	CU_ASSERT_STRING_EQUAL(out, "x");
}

/* Tests the hash with values that the authors of FNV-1a have published. */
static void test_hash_equals_published_values(void)
{
	CU_ASSERT_EQUAL(tei_text_hash(""), UINT64_C(0xcbf29ce484222325));
	CU_ASSERT_EQUAL(tei_text_hash("a"), UINT64_C(0xaf63dc4c8601ec8c));
	CU_ASSERT_EQUAL(tei_text_hash("foobar"), UINT64_C(0x85944171f73967e8));
	CU_ASSERT_EQUAL(tei_hash_add(tei_text_hash("foo"), "bar", 3),
			tei_text_hash("foobar"));
}

const struct tei_test_case text_cases[] = {
	{ "text_of_any_language_is_accepted",
	  test_text_of_any_language_is_accepted },
	{ "bytes_that_are_no_text_are_refused",
	  test_bytes_that_are_no_text_are_refused },
	{ "bytes_that_are_no_text_are_escaped",
	  test_bytes_that_are_no_text_are_escaped },
	{ "hash_equals_published_values", test_hash_equals_published_values },
	{ NULL, NULL },
};
