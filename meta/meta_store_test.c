/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "meta/meta_test.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"
#include "util/settings.h"

#ifdef TEI_HAVE_ETCD
#define STORE_ETCD_RC TEI_ERR_SOCKET /* no server answers */
#else
#define STORE_ETCD_RC TEI_ERR_NOT_IMPLEMENTED
#endif

static void test_connection_strings_open_or_say_why(void)
{
	static const struct {
		const char *text;
		int rc;
	} cases[] = {
		{ "", TEI_ERR_INVALID },
		{ NULL, TEI_ERR_INVALID },
		{ "etcd://127.0.0.1:1", STORE_ETCD_RC },
		{ "ETCD://127.0.0.1:1,127.0.0.1:2/", STORE_ETCD_RC },
		{ "127.0.0.1:1", STORE_ETCD_RC },
		{ "127.0.0.1:1;[::1]:1,127.0.0.1:2", STORE_ETCD_RC },
#ifndef TEI_HAVE_HTTP
		{ "http://h:1/x", TEI_ERR_NOT_IMPLEMENTED },
		{ "https://h:1/x", TEI_ERR_NOT_IMPLEMENTED },
#else
		{ "http://", TEI_ERR_INVALID },
		{ "http://:80/x", TEI_ERR_INVALID },
		{ "http://user:word@h/x", TEI_ERR_INVALID },
		{ "https://h:99999/x", TEI_ERR_INVALID },
		{ "http://h/x?key=y", TEI_ERR_INVALID },
#endif
		{ "gopher://h", TEI_ERR_METADATA },
		{ "://", TEI_ERR_METADATA },
		{ "P2PHANDSHAKE://", TEI_ERR_METADATA },
	};
	static const char *const unresolved[] = {
		"127.0.0.1",	 "127.0.0.1:1,h",  "h:1,",
		"zookeeper:h:1", "zookeeper:/h:1", "h",
		"p2phandshake",
	};
	struct tei_meta_store *store;
	struct tei_err err;
	size_t i;

	for (i = 0; i < sizeof(unresolved) / sizeof(unresolved[0]); i++) {
		CU_ASSERT_EQUAL(tei_meta_store_open(unresolved[i],
						    meta_test_settings(),
						    &store, &err),
				TEI_ERR_NOT_IMPLEMENTED);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "no scheme"));
		CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "zookeeper://host"));
	}
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CU_ASSERT_EQUAL(tei_meta_store_open(cases[i].text,
						    meta_test_settings(),
						    &store, &err),
				cases[i].rc);
		if (cases[i].rc != TEI_ERR_INVALID &&
		    cases[i].rc != TEI_ERR_SOCKET)
			CU_ASSERT_PTR_NOT_NULL(strstr(err.text,
				"built in: P2PHANDSHAKE"));
	}
	CU_ASSERT_EQUAL_FATAL(tei_meta_store_open("P2PHANDSHAKE",
						  meta_test_settings(), &store,
						  NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_store_caps(store), TEI_META_ADDRESSES);
	CU_ASSERT_STRING_EQUAL(tei_meta_store_scheme(store), "P2PHANDSHAKE");
	tei_meta_store_close(store);
	tei_meta_store_close(NULL);
}

static void test_p2p_publishes_and_fetches(void)
{
	struct tei_meta_server *server = meta_test_server("127.0.0.1", 5, 0,
							  0);
	char endpoint[TEI_META_ENDPOINT_MAX];
	struct tei_meta_desc *desc, *got;
	struct tei_meta_store *store;
	const char *name;

	if (!server)
		return;
	name = tei_meta_server_name(server);
	desc = meta_test_desc(name, 5, 2, 2);
	tei_meta_store_open("P2PHANDSHAKE", meta_test_settings(), &store,
			    NULL);
	CU_ASSERT_EQUAL(tei_meta_store_publish(store, desc,
					       meta_test_deadline(), NULL),
			TEI_ERR_INVALID);
	tei_meta_store_attach(store, server);
	CU_ASSERT_EQUAL(tei_meta_store_publish(store, desc,
					       meta_test_deadline(), NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_meta_store_fetch(store, name,
						   meta_test_deadline(), &got,
						   NULL), 0);
	CU_ASSERT(tei_meta_desc_equal(desc, got));
	tei_meta_desc_unref(got);
	CU_ASSERT_EQUAL(tei_meta_store_resolve(store, name,
					       meta_test_deadline(), endpoint,
					       NULL), 0);
	CU_ASSERT_STRING_EQUAL(endpoint, name);
	CU_ASSERT_EQUAL(tei_meta_store_fetch(store, "no-port",
					     meta_test_deadline(), &got, NULL),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_store_fetch(store, "", meta_test_deadline(),
					     &got, NULL), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_store_withdraw(store, name,
						meta_test_deadline(), NULL),
			0);
	CU_ASSERT_EQUAL(tei_meta_store_withdraw(store, name,
						meta_test_deadline(), NULL),
			TEI_ERR_METADATA);
	CU_ASSERT_EQUAL(tei_meta_store_fetch(store, name, meta_test_deadline(),
					     &got, NULL), TEI_ERR_REJECTED);
	tei_meta_store_publish(store, desc, meta_test_deadline(), NULL);
	tei_meta_store_close(store);
	CU_ASSERT_EQUAL(tei_meta_server_withdraw(server, name),
			TEI_ERR_METADATA);
	tei_meta_desc_unref(desc);
	tei_meta_server_stop(server);
}

static void test_bad_text_from_a_peer_is_refused(void)
{
	struct tei_meta_server *server = meta_test_server("127.0.0.1", 5, 0,
							  0);
	struct tei_meta_store *store;
	struct tei_meta_desc *got;

	if (!server)
		return;
	tei_meta_store_open("P2PHANDSHAKE", meta_test_settings(), &store,
			    NULL);
	tei_meta_server_publish(server, "x", "[[[[", 4, NULL);
	CU_ASSERT_EQUAL(tei_meta_store_fetch(store,
					     tei_meta_server_name(server),
					     meta_test_deadline(), &got, NULL),
			TEI_ERR_JSON);
	tei_meta_server_publish(server, "x", "{\"name\":\"\"}", 11, NULL);
	CU_ASSERT_EQUAL(tei_meta_store_fetch(store,
					     tei_meta_server_name(server),
					     meta_test_deadline(), &got, NULL),
			TEI_ERR_REJECTED);
	tei_meta_store_close(store);
	tei_meta_server_stop(server);
}

#ifdef TEI_HAVE_REDIS
static void test_redis_address_that_is_wrong_is_refused(void)
{
	static const char *const bad[] = {
		"redis://", "redis://h:99999", "redis://h:1,h:2",
		"redis://user:secret@h:1", "redis://h:1/x",
	};
	struct tei_meta_store *store;
	struct tei_err err;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(tei_meta_store_open(bad[i],
						    meta_test_settings(),
						    &store, &err),
				TEI_ERR_INVALID);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "redis://host:port"));
	}
}
#else
static void test_redis_address_that_is_wrong_is_refused(void)
{
	tei_test_skip("built with --disable-redis");
}
#endif

#ifdef TEI_HAVE_ETCD
static void test_etcd_address_that_is_wrong_is_refused(void)
{
	static const char *const bad[] = {
		"etcd://",
		"etcd://h:99999",
		"etcd://h:1,",
		"etcd://h:1/x",
		"etcd://user:secret@h:1",
		"etcd://http://h:1",
		"etcd://h?",
		"etcd://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q",
	};
	struct tei_meta_store *store;
	struct tei_err err;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(tei_meta_store_open(bad[i],
						    meta_test_settings(),
						    &store, &err),
				TEI_ERR_INVALID);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "etcd://host:port"));
	}
}
#else
static void test_etcd_address_that_is_wrong_is_refused(void)
{
	tei_test_skip("built with --disable-etcd");
}
#endif

static void test_passwords_in_connection_strings_are_not_repeated(void)
{
	static const char *const bad[] = {
		"etcd://user:geheim@h:1", "user:geheim@h:1",
		"zookeeper://user:geheim@h:1", "redis://:gehe@geheim@h:1",
		"zookeeper://user:geheim@h:1,h:99999/x", "odd://geheim@",
	};
	struct tei_meta_store *store;
	struct tei_err err;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		memset(&err, 0, sizeof(err));
		CU_ASSERT_FATAL(tei_meta_store_open(bad[i],
						    meta_test_settings(),
						    &store, &err) != 0);
		CU_ASSERT_PTR_NULL(strstr(err.text, "geh"));
		CU_ASSERT_PTR_NULL(strstr(err.hint, "geh"));
	}
}

const struct tei_test_case store_cases[] = {
	{ "passwords_in_connection_strings_are_not_repeated",
	  test_passwords_in_connection_strings_are_not_repeated },
	{ "connection_strings_open_or_say_why",
	  test_connection_strings_open_or_say_why },
	{ "etcd_address_that_is_wrong_is_refused",
	  test_etcd_address_that_is_wrong_is_refused },
	{ "redis_address_that_is_wrong_is_refused",
	  test_redis_address_that_is_wrong_is_refused },
	{ "p2p_publishes_and_fetches", test_p2p_publishes_and_fetches },
	{ "bad_text_from_a_peer_is_refused",
	  test_bad_text_from_a_peer_is_refused },
	{ NULL, NULL },
};
