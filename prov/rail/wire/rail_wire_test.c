/* SPDX-License-Identifier: BSD-2-Clause */

#include <stdlib.h>
#include <string.h>

#include "prov/rail/rail_test.h"
#include "prov/rail/wire/rail_wire.h"


/* Returns a cursor over a buffer of exactly "len" bytes, so that a sanitizer
 * detects an access beyond its end. */
static struct rail_wire wire_new(const void *src, size_t len)
{
	struct rail_wire w = { .p = malloc(len ? len : 1), .cap = len };

	CU_ASSERT_PTR_NOT_NULL_FATAL(w.p);
	if (src)
		memcpy(w.p, src, len);
	return w;
}

static void test_numbers_are_little_endian(void)
{
	static const uint8_t want[] = { 0x12, 0x56, 0x34, 1, 2, 3, 4,
					8, 7, 6, 5, 4, 3, 2, 1 };
	struct rail_wire w = wire_new(NULL, sizeof(want));

	rail_wire_put(&w, 0x12, 1);
	rail_wire_put(&w, 0x3456, 2);
	rail_wire_put(&w, 0x04030201, 4);
	rail_wire_put(&w, UINT64_C(0x0102030405060708), 8);
	CU_ASSERT(!w.bad);
	CU_ASSERT_EQUAL(w.pos, sizeof(want));
	CU_ASSERT_EQUAL(memcmp(w.p, want, sizeof(want)), 0);
	w.pos = 0;
	CU_ASSERT_EQUAL(rail_wire_get(&w, 1), 0x12);
	CU_ASSERT_EQUAL(rail_wire_get(&w, 2), 0x3456);
	CU_ASSERT_EQUAL(rail_wire_get(&w, 4), 0x04030201);
	CU_ASSERT_EQUAL(rail_wire_get(&w, 8), UINT64_C(0x0102030405060708));
	CU_ASSERT(!w.bad);
	free(w.p);
}

static void test_write_beyond_end_is_refused(void)
{
	static const uint8_t bytes[4] = { 1, 2, 3, 4 };
	struct rail_wire w = wire_new(NULL, 9);

	memset(w.p, 0xee, 9);
	rail_wire_put(&w, 0, 8);
	rail_wire_put(&w, 0, 2);
	CU_ASSERT(w.bad);
	CU_ASSERT_EQUAL(w.pos, 8);
	CU_ASSERT_EQUAL(w.p[8], 0xee);
	/* "bad" stays true, even if a number would fit */
	rail_wire_put(&w, 0, 1);
	CU_ASSERT_EQUAL(w.p[8], 0xee);
	w.bad = false;
	w.pos = 4;
	rail_wire_put_bytes(&w, bytes, sizeof(bytes));
	CU_ASSERT(w.bad);
	CU_ASSERT_EQUAL(w.p[8], 0xee);
	free(w.p);
}

static void test_write_of_65536_bytes_is_refused(void)
{
	struct rail_wire w = wire_new(NULL, 70000);
	uint8_t *src = calloc(1, 65536);

	CU_ASSERT_PTR_NOT_NULL_FATAL(src);
	rail_wire_put_bytes(&w, src, 65535);
	CU_ASSERT(!w.bad);
	CU_ASSERT_EQUAL(w.pos, 65537);
	w.pos = 0;
	rail_wire_put_bytes(&w, src, 65536);
	CU_ASSERT(w.bad);
	free(src);
	free(w.p);
}

static void test_read_beyond_end_is_refused(void)
{
	struct rail_wire w = wire_new("\1\2\3", 3);

	CU_ASSERT_EQUAL(rail_wire_get(&w, 4), 0);
	CU_ASSERT(w.bad);
	CU_ASSERT_EQUAL(w.pos, 0);
	CU_ASSERT_EQUAL(rail_wire_get(&w, 1), 0);
	free(w.p);
}

static void test_text_in_empty_message_is_refused(void)
{
	struct rail_wire w = wire_new(NULL, 0);
	char text[4] = "abc";

	rail_wire_get_text(&w, text, sizeof(text));
	CU_ASSERT(w.bad);
	CU_ASSERT_STRING_EQUAL(text, "");
	free(w.p);
}

static void test_bytes_longer_than_buffer_are_refused(void)
{
	struct rail_wire w = wire_new("\4\0abcd", 6);
	uint8_t dst[5] = { 0, 0, 0, 0x77, 0x77 };

	CU_ASSERT_EQUAL(rail_wire_get_bytes(&w, dst, 3), 0);
	CU_ASSERT(w.bad);
	CU_ASSERT_EQUAL(dst[0], 0);
	CU_ASSERT_EQUAL(dst[3], 0x77);
	w.bad = false;
	w.pos = 0;
	CU_ASSERT_EQUAL(rail_wire_get_bytes(&w, dst, 4), 4);
	CU_ASSERT(!w.bad);
	CU_ASSERT_EQUAL(memcmp(dst, "abcd\x77", 5), 0);
	free(w.p);
}

static void test_text_without_room_for_terminator_is_refused(void)
{
	struct rail_wire w = wire_new("\4\0abcd", 6);
	char dst[5];

	memset(dst, 'x', sizeof(dst));
	rail_wire_get_text(&w, dst, 4);
	CU_ASSERT(w.bad);
	CU_ASSERT_STRING_EQUAL(dst, "");
	CU_ASSERT_EQUAL(dst[4], 'x');
	w.bad = false;
	w.pos = 0;
	rail_wire_get_text(&w, dst, 5);
	CU_ASSERT(!w.bad);
	CU_ASSERT_STRING_EQUAL(dst, "abcd");
	free(w.p);
}

static void test_text_with_null_byte_is_refused(void)
{
	static const char *const texts[] = {
		"\3\0\0bc", "\3\0a\0c", "\3\0ab\0",
	};
	struct rail_wire w;
	char dst[8];
	size_t i;

	for (i = 0; i < 3; i++) {
		w = wire_new(texts[i], 5);
		rail_wire_get_text(&w, dst, sizeof(dst));
		CU_ASSERT(w.bad);
		free(w.p);
	}
}

static void test_length_beyond_message_is_refused(void)
{
	struct rail_wire w = wire_new("\377\377ab", 4);
	static char dst[70000];

	rail_wire_get_text(&w, dst, sizeof(dst));
	CU_ASSERT(w.bad);
	CU_ASSERT_STRING_EQUAL(dst, "");
	free(w.p);
}

/* Reads the fields that the message in the next test has. Returns true if no
 * field was cut off. */
static bool wire_read_all(struct rail_wire *w)
{
	char text[16], bytes[16];

	rail_wire_get(w, 4);
	rail_wire_get_text(w, text, sizeof(text));
	rail_wire_get(w, 1);
	rail_wire_get_bytes(w, bytes, sizeof(bytes));
	rail_wire_get(w, 8);
	return !w->bad;
}

static void test_message_truncated_at_any_byte_is_refused(void)
{
	struct rail_wire whole = wire_new(NULL, 64), cut;
	size_t len, n;

	rail_wire_put(&whole, 1, 4);
	rail_wire_put_bytes(&whole, "text", 4);
	rail_wire_put(&whole, 2, 1);
	rail_wire_put_bytes(&whole, "\0\1\2", 3);
	rail_wire_put(&whole, 3, 8);
	len = whole.pos;
	CU_ASSERT(!whole.bad);
	for (n = 0; n <= len; n++) {
		cut = wire_new(whole.p, n);
		CU_ASSERT_EQUAL(wire_read_all(&cut), n == len);
		free(cut.p);
	}
	free(whole.p);
}

const struct tei_test_case rail_wire_cases[] = {
	{ "numbers_are_little_endian", test_numbers_are_little_endian },
	{ "write_beyond_end_is_refused", test_write_beyond_end_is_refused },
	{ "write_of_65536_bytes_is_refused",
	  test_write_of_65536_bytes_is_refused },
	{ "read_beyond_end_is_refused", test_read_beyond_end_is_refused },
	{ "text_in_empty_message_is_refused",
	  test_text_in_empty_message_is_refused },
	{ "bytes_longer_than_buffer_are_refused",
	  test_bytes_longer_than_buffer_are_refused },
	{ "text_without_room_for_terminator_is_refused",
	  test_text_without_room_for_terminator_is_refused },
	{ "text_with_null_byte_is_refused",
	  test_text_with_null_byte_is_refused },
	{ "length_beyond_message_is_refused",
	  test_length_beyond_message_is_refused },
	{ "message_truncated_at_any_byte_is_refused",
	  test_message_truncated_at_any_byte_is_refused },
	{ NULL, NULL },
};
