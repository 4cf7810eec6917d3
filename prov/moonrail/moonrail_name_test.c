/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the encoding of the names of endpoints. */
#include "prov/moonrail/moonrail_test.h"

#include <netinet/in.h>
#include <string.h>

#include "prov/moonrail/moonrail_name.h"

enum { NAME_LENGTH_AT = 28, NAME_FUZZ = 100000 };

static void name_fill(struct moonrail_name *n, uint32_t len)
{
	memset(n, 0, sizeof(*n));
	n->incarnation = UINT64_C(0x1122334455667788);
	n->ep = 7;
	n->protocol = 0x01020304;
	n->protocol_version = 5;
	n->format = 6;
	n->len = len;
	memset(n->address, 0x5a, len);
}

static void test_name_encoding_has_the_documented_bytes(void)
{
	static const uint8_t want[MOONRAIL_NAME_LEN] = {
		0x72, 0x6d, 2, 0, 7, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44,
		0x33, 0x22, 0x11, 4, 3, 2, 1, 5, 0, 0, 0, 6, 0, 0, 0, 2, 0,
		0x5a, 0x5a,
	};
	uint8_t out[MOONRAIL_NAME_LEN];
	struct moonrail_name n;

	name_fill(&n, 2);
	moonrail_name_put(&n, out);
	CU_ASSERT(!memcmp(out, want, sizeof(want)));
}

static void test_name_is_read_as_written(void)
{
	uint8_t out[MOONRAIL_NAME_LEN];
	struct moonrail_name n, back;
	uint32_t len;

	for (len = 1; len <= MOONRAIL_NAME_ADDR; len++) {
		name_fill(&n, len);
		moonrail_name_put(&n, out);
		CU_ASSERT(moonrail_name_from(out, sizeof(out), &back));
		CU_ASSERT(!memcmp(&n, &back, sizeof(n)));
	}
}

static void test_malformed_name_is_refused(void)
{
	uint8_t out[MOONRAIL_NAME_LEN];
	struct moonrail_name n;

	name_fill(&n, MOONRAIL_NAME_ADDR);
	moonrail_name_put(&n, out);
	CU_ASSERT(!moonrail_name_from(out, sizeof(out) - 1, &n));
	CU_ASSERT(!moonrail_name_from(out, 1, &n));
	out[2] = 1;			/* the version of an older release */
	CU_ASSERT(!moonrail_name_from(out, sizeof(out), &n));
	out[2] = MOONRAIL_NAME_VERSION;
	out[NAME_LENGTH_AT] = MOONRAIL_NAME_ADDR + 1;
	CU_ASSERT(!moonrail_name_from(out, sizeof(out), &n));
	out[NAME_LENGTH_AT] = 0;
	CU_ASSERT(!moonrail_name_from(out, sizeof(out), &n));
	out[NAME_LENGTH_AT] = 4;
	CU_ASSERT(moonrail_name_from(out, sizeof(out), &n));
}

static void test_socket_address_becomes_a_name(void)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = 9 };
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = 9 };
	struct moonrail_name n;

	CU_ASSERT(moonrail_name_from(&in, sizeof(in), &n));
	CU_ASSERT_EQUAL(moonrail_name_family(&n), AF_INET);
	CU_ASSERT_EQUAL(n.incarnation, 0);
	CU_ASSERT(!memcmp(n.address, &in, sizeof(in)));
	CU_ASSERT(moonrail_name_from(&in6, sizeof(in6), &n));
	CU_ASSERT_EQUAL(moonrail_name_family(&n), AF_INET6);
	CU_ASSERT(!moonrail_name_from(&in6, sizeof(in), &n));
}

static void test_fuzzed_names_do_no_harm(void)
{
	uint8_t buf[MOONRAIL_NAME_LEN], again[MOONRAIL_NAME_LEN];
	struct moonrail_name n, back;
	struct tei_fuzz f;
	size_t i;

	for (tei_fuzz_begin(&f, "names"); tei_fuzz_next(&f, NAME_FUZZ);) {
		name_fill(&n, MOONRAIL_NAME_ADDR);
		moonrail_name_put(&n, buf);
		for (i = tei_fuzz_random(&f) % 8; i; i--)
			buf[tei_fuzz_random(&f) % sizeof(buf)] =
				(uint8_t)tei_fuzz_random(&f);
		if (tei_fuzz_random(&f) % 2)
			buf[NAME_LENGTH_AT] %= 40;
		if (!moonrail_name_from(buf,
					tei_fuzz_random(&f) % (sizeof(buf) + 1),
					&n) &&
		    !moonrail_name_from(buf, sizeof(buf), &n))
			continue;
		CU_ASSERT(n.len && n.len <= MOONRAIL_NAME_ADDR);
		moonrail_name_put(&n, again);
		CU_ASSERT(moonrail_name_from(again, sizeof(again), &back));
		CU_ASSERT(!memcmp(&n, &back, sizeof(n)));
	}
}

const struct tei_test_case moonrail_name_cases[] = {
	{ "name_encoding_has_the_documented_bytes",
	  test_name_encoding_has_the_documented_bytes },
	{ "name_is_read_as_written", test_name_is_read_as_written },
	{ "malformed_name_is_refused", test_malformed_name_is_refused },
	{ "socket_address_becomes_a_name",
	  test_socket_address_becomes_a_name },
	{ "fuzzed_names_do_no_harm", test_fuzzed_names_do_no_harm },
	{ NULL, NULL },
};
