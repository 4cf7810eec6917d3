/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the encoding of fabric addresses. */
#include "prov/rail/rail_test.h"

#include <string.h>

#include "prov/rail/wire/rail_wire.h"

enum { ADDR_HEAD = 14, ADDR_FUZZ = 100000 };

static void addr_fill(struct tei_rail_addr *a, uint32_t len)
{
	uint32_t i;

	memset(a, 0, sizeof(*a));
	a->protocol = 0x01020304;
	a->protocol_version = 0x05060708;
	a->addr_format = 0x090a0b0c;
	a->len = len;
	for (i = 0; i < len; i++)
		a->bytes[i] = (uint8_t)(0xf0 + i);
}

static void test_address_encoding_has_the_documented_bytes(void)
{
	static const uint8_t want[] = { 4, 3, 2, 1, 8, 7, 6, 5, 12, 11, 10, 9,
					3, 0, 0xf0, 0xf1, 0xf2 };
	uint8_t buf[32];
	struct tei_rail_addr a;

	addr_fill(&a, 3);
	CU_ASSERT_EQUAL(tei_rail_addr_put(&a, buf, sizeof(buf)), sizeof(want));
	CU_ASSERT(!memcmp(buf, want, sizeof(want)));
}

static void test_address_is_read_as_written(void)
{
	uint8_t buf[ADDR_HEAD + TEI_RAIL_ADDR_MAX];
	struct tei_rail_addr a, b;
	uint32_t len;

	for (len = 1; len <= TEI_RAIL_ADDR_MAX; len++) {
		addr_fill(&a, len);
		CU_ASSERT_EQUAL(tei_rail_addr_put(&a, buf, sizeof(buf)),
				ADDR_HEAD + len);
		CU_ASSERT(tei_rail_addr_get(buf, ADDR_HEAD + len, &b));
		CU_ASSERT(!memcmp(&a, &b, sizeof(a)));
		CU_ASSERT_EQUAL(tei_rail_addr_put(&a, buf, ADDR_HEAD + len - 1),
				0);
	}
}

static void test_address_truncated_at_any_byte_is_refused(void)
{
	uint8_t buf[ADDR_HEAD + 28];
	struct tei_rail_addr a;
	size_t n;

	addr_fill(&a, 28);
	CU_ASSERT_EQUAL(tei_rail_addr_put(&a, buf, sizeof(buf)), sizeof(buf));
	for (n = 0; n < sizeof(buf); n++)
		CU_ASSERT(!tei_rail_addr_get(buf, n, &a));
}

static void test_address_of_257_bytes_is_refused(void)
{
	uint8_t buf[512] = { 0 };
	struct tei_rail_addr a;

	buf[12] = 1;
	buf[13] = 1;
	CU_ASSERT(!tei_rail_addr_get(buf, sizeof(buf), &a));
	CU_ASSERT_EQUAL(a.len, 0);
}

static void test_address_without_bytes_is_refused(void)
{
	uint8_t buf[ADDR_HEAD] = { 1 };
	struct tei_rail_addr a;
	struct rail_wire w = { .p = buf, .cap = sizeof(buf) };

	CU_ASSERT(!tei_rail_addr_get(buf, sizeof(buf), &a));
	/* an address of length 0 is well-formed, because FENCED may contain
	 * one */
	CU_ASSERT(!rail_addr_get(&w, &a));
	CU_ASSERT(!w.bad);
}

static void test_fuzzed_addresses_do_no_harm(void)
{
	uint8_t buf[ADDR_HEAD + 300], again[ADDR_HEAD + 300];
	struct tei_rail_addr a;
	struct tei_fuzz f;
	size_t len, n;

	for (tei_fuzz_begin(&f, "addresses"); tei_fuzz_next(&f, ADDR_FUZZ);) {
		for (n = 0; n < sizeof(buf); n++)
			buf[n] = (uint8_t)tei_fuzz_random(&f);
		if (tei_fuzz_random(&f) % 4)
			buf[13] = 0;
		len = tei_fuzz_random(&f) % (sizeof(buf) + 1);
		if (!tei_rail_addr_get(buf, len, &a))
			continue;
		n = tei_rail_addr_put(&a, again, sizeof(again));
		CU_ASSERT(n > ADDR_HEAD && n <= len);
		CU_ASSERT(!memcmp(buf, again, n));
	}
}

const struct tei_test_case rail_addr_cases[] = {
	{ "address_encoding_has_the_documented_bytes",
	  test_address_encoding_has_the_documented_bytes },
	{ "address_is_read_as_written", test_address_is_read_as_written },
	{ "address_truncated_at_any_byte_is_refused",
	  test_address_truncated_at_any_byte_is_refused },
	{ "address_of_257_bytes_is_refused",
	  test_address_of_257_bytes_is_refused },
	{ "address_without_bytes_is_refused",
	  test_address_without_bytes_is_refused },
	{ "fuzzed_addresses_do_no_harm", test_fuzzed_addresses_do_no_harm },
	{ NULL, NULL },
};
