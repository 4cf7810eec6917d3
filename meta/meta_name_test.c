/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "meta/meta_test.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "util/settings.h"

static void test_names_are_split_and_joined(void)
{
	static const struct {
		const char *text, *host;
		int rc, port;
	} cases[] = {
		{ "h", "h", 0, 0 },
		{ "h:1", "h", 0, 1 },
		{ "127.0.0.1:65535", "127.0.0.1", 0, 65535 },
		{ "::1", "::1", 0, 0 },
		{ "[::1]", "::1", 0, 0 },
		{ "[fe80::1%eth0]:15000", "fe80::1%eth0", 0, 15000 },
		{ "", NULL, TEI_ERR_INVALID, 0 },
		{ ":1", NULL, TEI_ERR_INVALID, 0 },
		{ "h:", NULL, TEI_ERR_INVALID, 0 },
		{ "h:65536", NULL, TEI_ERR_INVALID, 0 },
		{ "h:999999999999", NULL, TEI_ERR_INVALID, 0 },
		{ "h:1x", NULL, TEI_ERR_INVALID, 0 },
		{ "h:-1", NULL, TEI_ERR_INVALID, 0 },
		{ "[::1", NULL, TEI_ERR_INVALID, 0 },
		{ "[::1]x", NULL, TEI_ERR_INVALID, 0 },
		{ "[::1]:", NULL, TEI_ERR_INVALID, 0 },
		{ "[]:1", NULL, TEI_ERR_INVALID, 0 },
	};
	char host[TEI_META_HOST_MAX], text[TEI_META_ENDPOINT_MAX], big[400];
	uint16_t port;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CU_ASSERT_EQUAL(tei_meta_split(cases[i].text, host, &port),
				cases[i].rc);
		if (cases[i].rc)
			continue;
		CU_ASSERT_STRING_EQUAL(host, cases[i].host);
		CU_ASSERT_EQUAL(port, cases[i].port);
	}
	CU_ASSERT_EQUAL(tei_meta_split(NULL, host, &port), TEI_ERR_INVALID);
	memset(big, 'h', sizeof(big));
	big[sizeof(big) - 1] = 0;
	CU_ASSERT_EQUAL(tei_meta_split(big, host, &port), TEI_ERR_INVALID);
	tei_meta_join("::1", 7, text);
	CU_ASSERT_STRING_EQUAL(text, "[::1]:7");
	tei_meta_join("h", 65535, text);
	CU_ASSERT_STRING_EQUAL(text, "h:65535");
}

static void test_keys_follow_mooncake(void)
{
	char key[64];

	CU_ASSERT_EQUAL(tei_meta_segment_key("", "s", key, sizeof(key)), 0);
	CU_ASSERT_STRING_EQUAL(key, "mooncake/ram/s");
	CU_ASSERT_EQUAL(tei_meta_segment_key("c1", "nvmeof/f", key,
					     sizeof(key)), 0);
	CU_ASSERT_STRING_EQUAL(key, "mooncake/c1/nvmeof/f");
	CU_ASSERT_EQUAL(tei_meta_rpc_key(NULL, "n", key, sizeof(key)), 0);
	CU_ASSERT_STRING_EQUAL(key, "mooncake/rpc_meta/n");
	CU_ASSERT_EQUAL(tei_meta_segment_key("", "s", key, 14),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_rpc_key("", "", key, sizeof(key)),
			TEI_ERR_INVALID);
}

static void test_own_host_follows_the_rules(void)
{
	struct tei_settings s = *meta_test_settings();
	char host[TEI_META_HOST_MAX], chosen[TEI_META_HOST_MAX];
	bool given;

	s.control.bind_address[0] = 0;
	CU_ASSERT_EQUAL(tei_meta_local_host(&s, NULL, true, chosen, &given,
					    NULL), 0);
	CU_ASSERT(!given);
	CU_ASSERT(chosen[0] != 0 && strcmp(chosen, "0.0.0.0"));
	CU_ASSERT_EQUAL(tei_meta_local_host(&s, "127.0.0.1:12345", true, host,
					    &given, NULL), 0);
	CU_ASSERT(given);
	CU_ASSERT_STRING_EQUAL(host, "127.0.0.1");
	CU_ASSERT_EQUAL(tei_meta_local_host(&s, "[::1]:12345", true, host,
					    &given, NULL), 0);
	CU_ASSERT(given);
	CU_ASSERT_STRING_EQUAL(host, "::1");
	CU_ASSERT_EQUAL(tei_meta_local_host(&s, "0.0.0.0", true, host, &given,
					    NULL), 0);
	CU_ASSERT(!given);
	CU_ASSERT_STRING_EQUAL(host, chosen);
	CU_ASSERT_EQUAL(tei_meta_local_host(&s, "127.0.0.1", false, host,
					    &given, NULL), 0);
	CU_ASSERT(!given);
	CU_ASSERT_STRING_EQUAL(host, chosen);
	s.control.legacy_binding = true;
	CU_ASSERT_EQUAL(tei_meta_local_host(&s, "127.0.0.3:12345", false, host,
					    &given, NULL), 0);
	CU_ASSERT(given);
	CU_ASSERT_STRING_EQUAL(host, "127.0.0.3");
	s.control.legacy_binding = false;
	CU_ASSERT_EQUAL(tei_meta_local_host(&s, "a:b", true, host, NULL,
					    NULL), TEI_ERR_INVALID);
	strcpy(s.control.bind_address, "127.0.0.2");
	CU_ASSERT_EQUAL(tei_meta_local_host(&s, "127.0.0.1", true, host, &given,
					    NULL), 0);
	CU_ASSERT(given);
	CU_ASSERT_STRING_EQUAL(host, "127.0.0.2");
}

static void test_incarnations_differ(void)
{
	CU_ASSERT(tei_meta_incarnation() != tei_meta_incarnation());
}

const struct tei_test_case name_cases[] = {
	{ "names_are_split_and_joined", test_names_are_split_and_joined },
	{ "keys_follow_mooncake", test_keys_follow_mooncake },
	{ "own_host_follows_the_rules", test_own_host_follows_the_rules },
	{ "incarnations_differ", test_incarnations_differ },
	{ NULL, NULL },
};
