/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "meta/meta_etcd_json.h"
#include "meta/meta_http_test.h"
#include "meta/meta_kv.h"
#include "meta/meta_test.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/settings.h"

/* Tests the parser with texts that etcd's JSON gateway sends, and the driver
 * with a server that sends faulty texts. */

#define REPLY_200 "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
#define HEADER                                                  \
	"{\"header\":{\"cluster_id\":\"13455796455940752355\"," \
	"\"revision\":\"7\",\"raft_term\":\"2\"}"

/* --- texts ---------------------------------------------------------------- */

struct pairs {
	int count;
	char key[32], value[32];
	int64_t version;
};

static bool pairs_add(void *arg, const struct etcd_pair *pair)
{
	struct pairs *p = arg;

	p->count++;
	snprintf(p->key, sizeof(p->key), "%s", pair->key);
	snprintf(p->value, sizeof(p->value), "%s", pair->value);
	p->version = pair->version;
	return true;
}

static bool parse(const char *text, struct etcd_response *r, struct pairs *p)
{
	memset(r, 0, sizeof(*r));
	memset(p, 0, sizeof(*p));
	r->pair = pairs_add;
	r->arg = p;
	return etcd_response_parse(text, strlen(text), r);
}

static void test_responses_are_read(void)
{
	struct etcd_response r;
	struct pairs p;

	CU_ASSERT(parse(HEADER ",\"kvs\":[{\"key\":\"Zm9v\",\"version\":\"1\","
			       "\"mod_revision\":\"5\",\"value\":\"YmFy\"}],"
			       "\"more\":true,\"count\":\"1\"}",
			&r, &p));
	CU_ASSERT_EQUAL(r.revision, 7);
	CU_ASSERT_EQUAL(p.count, 1);
	CU_ASSERT_STRING_EQUAL(p.key, "foo");
	CU_ASSERT_STRING_EQUAL(p.value, "bar");
	CU_ASSERT_EQUAL(p.version, 5);
	CU_ASSERT(r.more && !r.succeeded);
	CU_ASSERT(parse("{\"result\":" HEADER
			",\"events\":[{\"type\":\"DELETE\","
			"\"kv\":{\"key\":\"Zm9v\",\"mod_revision\":\"6\"}},"
			"{\"kv\":{\"key\":\"Zg==\",\"mod_revision\":\"7\"}}]}}",
			&r, &p));
	CU_ASSERT_EQUAL(p.count, 2);
	CU_ASSERT_STRING_EQUAL(p.key, "f");
	CU_ASSERT_STRING_EQUAL(p.value, "");
	CU_ASSERT_EQUAL(p.version, 7);
	CU_ASSERT(parse("{\"error\":\"a\",\"message\":\"b\",\"code\":5}", &r,
			&p));
	CU_ASSERT_EQUAL(r.code, 5);
	CU_ASSERT_STRING_EQUAL(r.message, "b");
	CU_ASSERT(parse("{\"error\":{\"grpc_code\":14,\"http_code\":503,"
			"\"message\":\"no leader\",\"http_status\":\"x\"}}",
			&r, &p));
	CU_ASSERT_EQUAL(r.code, 14);
	CU_ASSERT(parse("{\"result\":" HEADER ",\"watch_id\":\"-1\","
			"\"created\":true,\"canceled\":true,"
			"\"compact_revision\":\"3\"}}",
			&r, &p));
	CU_ASSERT(r.created && r.canceled);
	CU_ASSERT_EQUAL(r.compacted, 3);
	CU_ASSERT(parse(HEADER ",\"ID\":\"9223372036854775807\",\"TTL\":\"2\","
			       "\"token\":\"a.1\"}",
			&r, &p));
	CU_ASSERT_EQUAL(r.lease, INT64_MAX);
	CU_ASSERT_EQUAL(r.ttl, 2);
	CU_ASSERT_STRING_EQUAL(r.token, "a.1");
}

static void test_malformed_responses_are_refused(void)
{
	static const char *const bad[] = {
		"",
		"[]",
		"null",
		"\"\"",
		"{} {}",
		"<html></html>",
		"{\"header\":[]}",
		"{\"header\":{\"revision\":true}}",
		"{\"header\":{\"revision\":\"-1\"}}",
		"{\"header\":{\"revision\":\"9223372036854775808\"}}",
		"{\"header\":{\"revision\":1.5}}",
		"{\"kvs\":{}}",
		"{\"kvs\":[1]}",
		"{\"kvs\":[{\"key\":1}]}",
		"{\"kvs\":[{\"key\":\"#\"}]}",
		"{\"kvs\":[{\"key\":\"Zm9\"}]}",
		"{\"kvs\":[{\"key\":\"Zm9v=\"}]}",
		"{\"succeeded\":1}",
		"{\"more\":\"true\"}",
		"{\"token\":{}}",
		"{\"ID\":\"x\"}",
		"{\"TTL\":[]}",
		"{\"code\":\"a\"}",
		"{\"result\":[]}",
		"{\"result\":{\"result\":{\"result\":{}}}}",
		"{\"error\":[]}",
		"{\"events\":[{\"kv\":[]}]}",
	};
	static const char whole[] = HEADER
		",\"kvs\":[{\"key\":\"Zm9v\","
		"\"mod_revision\":\"5\",\"value\":\"YmFy\"}],\"count\":\"1\"}";
	struct etcd_response r;
	struct pairs p;
	char text[256];
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (parse(bad[i], &r, &p))
			CU_FAIL(bad[i]);
	}
	CU_ASSERT(parse(whole, &r, &p));
	for (i = 0; i < sizeof(whole) - 1; i++) {
		memcpy(text, whole, i);
		text[i] = 0;
		CU_ASSERT_FALSE(parse(text, &r, &p));
	}
}

static void test_keys_with_any_bytes_are_read(void)
{
	struct etcd_response r;
	struct pairs p;

	/* the key is "a", NUL, "b", and the value is 0xff 0xfe, both in
	 * base64 */
	CU_ASSERT(parse("{\"kvs\":[{\"key\":\"YQBi\",\"value\":\"//4=\"}]}", &r,
			&p));
	CU_ASSERT_STRING_EQUAL(p.key, "a");
	CU_ASSERT_STRING_EQUAL(p.value, "\xff\xfe");
}

static void test_commit_is_one_transaction(void)
{
	static const struct meta_kv_change c[] = {
		{ .key = "a",
		  .expected = META_ABSENT,
		  .what = META_KV_PUT,
		  .text = "x",
		  .len = 1,
		  .leased = true },
		{ .key = "b", .expected = 9, .what = META_KV_CHECK },
		{ .key = "c", .expected = META_KV_ANY, .what = META_KV_REMOVE },
	};
	struct meta_buf b = { 0 };

	etcd_put_commit(&b, c, 3, 77);
	CU_ASSERT_FATAL(!b.failed);
	meta_buf_bytes(&b, "", 1);
	CU_ASSERT_STRING_EQUAL(
		b.text,
		"{\"compare\":[{\"target\":\"MOD\",\"result\":\"EQUAL\","
		"\"key\":\"YQ==\",\"mod_revision\":\"0\"},"
		"{\"target\":\"MOD\",\"result\":\"EQUAL\",\"key\":\"Yg==\","
		"\"mod_revision\":\"9\"}],\"success\":["
		"{\"request_put\":{\"key\":\"YQ==\",\"value\":\"eA==\","
		"\"lease\":\"77\"}},"
		"{\"request_delete_range\":{\"key\":\"Yw==\"}}]}");
	free(b.text);
}

static void test_end_of_a_prefix_is_the_next_key(void)
{
	struct meta_buf b = { 0 };

	etcd_put_range_end(&b, "a/");
	etcd_put_range_end(&b, "a\xff\xff");
	meta_buf_bytes(&b, "", 1);
	/* the ends of the two ranges, "a0" and "b", in base64 */
	CU_ASSERT_STRING_EQUAL(b.text, "\"YTA=\"\"Yg==\"");
	free(b.text);
}

/* --- servers -------------------------------------------------------------- */

static struct http_stub stub;

static int stub_open(const char *const *replies, const char *tail,
		     const struct tei_settings *settings,
		     struct tei_meta_store **store, struct tei_err *err)
{
	char conn[64];

	memset(&stub, 0, sizeof(stub));
	stub.replies = replies;
	stub.tail = tail;
	stub.close = true;
	http_stub_start(&stub);
	snprintf(conn, sizeof(conn), "etcd%s", strchr(stub.url, ':'));
	return tei_meta_store_open(conn, settings, store, err);
}

static void test_servers_with_bad_answers_are_refused(void)
{
	static const struct {
		const char *reply, *tail;
		int rc;
		const char *text;
	} cases[] = {
		{ REPLY_200 "<html>", NULL, TEI_ERR_METADATA, "malformed" },
		{ REPLY_200 "{\"kvs\":[{", NULL, TEI_ERR_METADATA,
		  "malformed" },
		{ REPLY_200,
		  "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
		  "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
		  "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
		  TEI_ERR_METADATA, "longer than" },
		{ "HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n404",
		  NULL, TEI_ERR_METADATA, "404" },
		{ "HTTP/1.1 401 No\r\nConnection: close\r\n\r\n{\"error\":"
		  "\"invalid auth token\",\"code\":16}",
		  NULL, TEI_ERR_REJECTED, "auth token" },
		{ "HTTP/1.1 403 No\r\nConnection: close\r\n\r\n{\"error\":"
		  "\"permission denied\",\"code\":7}",
		  NULL, TEI_ERR_REJECTED, "permission" },
		{ "HTTP/1.1 503 No\r\nConnection: close\r\n\r\n{\"error\":"
		  "\"no leader\",\"code\":14}",
		  NULL, TEI_ERR_SOCKET, "no leader" },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", NULL,
		  TEI_ERR_SOCKET, "" },
		{ http_stub_silent, NULL, TEI_ERR_SOCKET, "" },
	};
	const char *replies[] = { NULL, NULL };
	struct tei_settings settings = *meta_test_settings();
	struct tei_meta_store *store;
	struct tei_err err;
	size_t i;
	int rc;

	settings.control.connect_timeout_s = 1;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		replies[0] = cases[i].reply;
		if (cases[i].tail)
			settings.control.connect_timeout_s = 60;
		rc = stub_open(replies, cases[i].tail, &settings, &store, &err);
		settings.control.connect_timeout_s = 1;
		if (rc != cases[i].rc || !strstr(err.text, cases[i].text))
			fprintf(stderr, "case %zu: %d %s\n", i, rc, err.text);
		CU_ASSERT_EQUAL(rc, cases[i].rc);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text, cases[i].text));
		if (!rc)
			tei_meta_store_close(store);
		http_stub_stop(&stub);
	}
}

static void test_older_path_is_used(void)
{
	static const char *const replies[] = {
		"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\n404",
		REPLY_200 HEADER "}", http_stub_silent, NULL
	};
	struct tei_meta_store *store;

	CU_ASSERT_EQUAL_FATAL(
		stub_open(replies, NULL, meta_test_settings(), &store, NULL),
		0);
	tei_meta_store_close(store);
	http_stub_stop(&stub);
	CU_ASSERT(stub.requests >= 2);
	CU_ASSERT_PTR_NOT_NULL(strstr(stub.request, "/v3beta/"));
}

/*
 * Tests that the driver survives faulty reports of a watch. The server ends
 * each watch after one such report, and the driver starts the next one after a
 * pause.
 */
static void test_bad_reports_are_survived(void)
{
	static const char *const reports[] = {
		"no JSON\n",
		"{\"result\":[]}\n",
		"{\"result\":{\"created\":true}}\n{\"result\":{\"events\":1}}"
		"\n",
		"{\"result\":{\"created\":true}}\n"
		"{\"result\":{\"canceled\":true,\"compact_revision\":\"9\"}}\n",
		"{\"result\":{\"created\":true,\"canceled\":true,"
		"\"cancel_reason\":\"etcdserver: permission denied\"}}\n",
		"{\"error\":{\"grpc_code\":14,\"message\":\"no leader\"}}\n",
	};
	const char *replies[] = { REPLY_200 HEADER "}", NULL, NULL };
	char reply[512];
	struct tei_meta_store *store;
	struct tei_err err;
	uint64_t until;
	size_t i;

	for (i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
		snprintf(reply, sizeof(reply), REPLY_200 "%s", reports[i]);
		replies[1] = reply;
		CU_ASSERT_EQUAL_FATAL(stub_open(replies, NULL,
						meta_test_settings(), &store,
						&err),
				      0);
		until = meta_test_deadline();
		while (__atomic_load_n(&stub.requests, __ATOMIC_RELAXED) < 3 &&
		       tei_ns_left(until))
			usleep(1000);
		CU_ASSERT(tei_ns_left(until));
		tei_meta_store_close(store);
		http_stub_stop(&stub);
		CU_ASSERT(stub.requests >= 3 && stub.requests < 50);
	}
}

static void test_report_without_end_is_dropped(void)
{
	static const char *const replies[] = { REPLY_200 HEADER "}", REPLY_200,
					       NULL };
	static char tail[65536];
	struct tei_meta_store *store;
	uint64_t until = meta_test_deadline();

	memset(tail, 'a', sizeof(tail) - 1);
	CU_ASSERT_EQUAL_FATAL(
		stub_open(replies, NULL, meta_test_settings(), &store, NULL),
		0);
	__atomic_store_n(&stub.tail, tail, __ATOMIC_RELAXED);
	while (__atomic_load_n(&stub.connections, __ATOMIC_RELAXED) < 4 &&
	       tei_ns_left(until))
		usleep(1000);
	tei_meta_store_close(store);
	http_stub_stop(&stub);
	CU_ASSERT(stub.connections >= 4);
}

const struct tei_test_case etcd_cases[] = {
	{ "responses_are_read", test_responses_are_read },
	{ "malformed_responses_are_refused",
	  test_malformed_responses_are_refused },
	{ "keys_with_any_bytes_are_read", test_keys_with_any_bytes_are_read },
	{ "commit_is_one_transaction", test_commit_is_one_transaction },
	{ "end_of_a_prefix_is_the_next_key",
	  test_end_of_a_prefix_is_the_next_key },
	{ "servers_with_bad_answers_are_refused",
	  test_servers_with_bad_answers_are_refused },
	{ "older_path_is_used", test_older_path_is_used },
	{ "bad_reports_are_survived", test_bad_reports_are_survived },
	{ "report_without_end_is_dropped", test_report_without_end_is_dropped },
	{ NULL, NULL },
};
