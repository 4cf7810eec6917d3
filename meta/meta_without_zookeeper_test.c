/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "meta/meta_test.h"
#include "meta/tei_meta_store.h"
#include "util/err.h"

/* Replaces the tests of the ZooKeeper back end in a build that was configured
 * with --disable-zookeeper. */

static void test_connection_string_is_refused_with_the_option(void)
{
	struct tei_meta_store *store;
	struct tei_err err;

	CU_ASSERT_EQUAL(tei_meta_store_open("zookeeper://127.0.0.1:1/a",
					    meta_test_settings(), &store, &err),
			TEI_ERR_NOT_IMPLEMENTED);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "zookeeper://127.0.0.1:1/a"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "--disable-zookeeper"));
	CU_ASSERT_PTR_NOT_NULL(err.hint);
}

static void test_skip(void)
{
	tei_test_skip("built with --disable-zookeeper");
}

const struct tei_test_case zookeeper_cases[] = {
	{ "connection_string_is_refused_with_the_option",
	  test_connection_string_is_refused_with_the_option },
	{ "all", test_skip },
	{ NULL, NULL },
};

const struct tei_test_case zookeeper_registration_cases[] = {
	{ "all", test_skip },
	{ NULL, NULL },
};

const struct tei_test_case zookeeper_loss_cases[] = {
	{ "all", test_skip },
	{ NULL, NULL },
};

const struct tei_test_case zookeeper_acl_cases[] = {
	{ "all", test_skip },
	{ NULL, NULL },
};
