/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <string.h>

#include "prov/local/local_test.h"

static void test_identity_survives_its_text_form(void)
{
	struct tei_local *ctx = test_ctx(1);
	struct tei_local_id id, back;
	char text[TEI_LOCAL_ID_TEXT];

	CU_ASSERT_FATAL(!tei_local_identity(ctx, &id));
	CU_ASSERT_FATAL(!tei_local_id_format(&id, text, sizeof(text)));
	memset(&back, 0, sizeof(back));
	CU_ASSERT(!tei_local_id_parse(text, &back));
	CU_ASSERT(!memcmp(&id, &back, sizeof(id)));
	CU_ASSERT(tei_local_id_format(&id, text, 20) == TEI_ERR_INVALID);
	tei_local_fini(ctx);
}

static void test_bad_identity_text_is_refused(void)
{
	static const char *const bad[] = {
		"", "local1:", "local1:ab", "local2:ab:1:1:1:1:1:1",
		"local1:ab:1:1:1:1:1", "local1:ab:1:1:1:1:1:1:1",
		"local1:ab:1:1:1:1:1:1 ", "local1:ab:1:ffffffff:1:1:1:1",
		"local1:ab:1:-1:1:1:1:1", "local1:ab:1::1:1:1:1",
		"local1:AB:1:1:1:1:1:1", "local1::1:1:1:1:1:1",
		"local1:ab:1:1:1:1:1:11111111111111111",
		"local1:0123456789012345678901234567890123456789:1:1:1:1:1:1",
	};
	struct tei_local_id id;
	size_t i;

	CU_ASSERT(tei_local_id_parse(NULL, &id) == TEI_ERR_INVALID);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT(tei_local_id_parse(bad[i], &id) == TEI_ERR_INVALID);
	CU_ASSERT(!tei_local_id_parse("local1:ab:1:2:3:4:5:6", &id));
	CU_ASSERT(id.pid == 2 && id.magic_fd == 3 && id.incarnation == 6);
}

static void test_identity_differs_between_contexts(void)
{
	struct tei_local *a = test_ctx(1), *b = test_ctx(1);
	struct tei_local_id x, y;

	CU_ASSERT_FATAL(!tei_local_identity(a, &x));
	CU_ASSERT_FATAL(!tei_local_identity(b, &y));
	CU_ASSERT(x.incarnation != y.incarnation);
	CU_ASSERT(x.magic_addr != y.magic_addr);
	CU_ASSERT(x.start_time == y.start_time);
	tei_local_fini(a);
	tei_local_fini(b);
}

static void test_every_reason_has_text(void)
{
	int i;

	for (i = -1; i <= TEI_LOCAL_FORKED + 1; i++)
		CU_ASSERT(strlen(tei_local_reason_text(
				(enum tei_local_reason)i)) > 0);
}

const struct tei_test_case local_id_cases[] = {
	{ "identity_survives_its_text_form",
	  test_identity_survives_its_text_form },
	{ "bad_identity_text_is_refused", test_bad_identity_text_is_refused },
	{ "identity_differs_between_contexts",
	  test_identity_differs_between_contexts },
	{ "every_reason_has_text", test_every_reason_has_text },
	{ NULL, NULL },
};
