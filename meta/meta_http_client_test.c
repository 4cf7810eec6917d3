/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "meta/meta_http_client.h"
#include "meta/meta_http_test.h"
#include "meta/meta_test.h"
#include "util/clock.h"
#include "util/err.h"

#define OK_HEADER "HTTP/1.1 200 OK\r\nContent-Length: "

/* The server, the client, a request and its response of one test case. */
struct http_rig {
	struct http_stub stub;
	struct meta_http *http;
	struct meta_http_request request;
	struct meta_http_response got;
};

static struct http_rig *rig_open(const char *const *replies)
{
	static struct http_rig rig;

	memset(&rig, 0, sizeof(rig));
	rig.stub.replies = replies;
	rig.http = meta_http_new(NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rig.http);
	http_stub_start(&rig.stub);
	rig.request.method = "GET";
	rig.request.url = rig.stub.url;
	rig.request.limit = 4096;
	rig.request.deadline_ns = meta_test_deadline();
	return &rig;
}

static int rig_run(struct http_rig *rig)
{
	free(rig->got.body);
	return meta_http_run(rig->http, &rig->request, &rig->got);
}

static void rig_close(struct http_rig *rig)
{
	free(rig->got.body);
	meta_http_free(rig->http);
	http_stub_stop(&rig->stub);
}

static void test_request_and_response_are_complete(void)
{
	static const char *const replies[] = {
		OK_HEADER "5\r\n\r\nhello",
		"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", NULL
	};
	static const char *const headers[] = { "X-One: 1", NULL };
	struct http_rig *rig = rig_open(replies);

	rig->request.method = "PUT";
	rig->request.headers = headers;
	rig->request.body = "text\"";
	rig->request.body_len = 5;
	CU_ASSERT_EQUAL_FATAL(rig_run(rig), 0);
	CU_ASSERT_EQUAL(rig->got.status, 200);
	CU_ASSERT_EQUAL(rig->got.len, 5);
	CU_ASSERT_STRING_EQUAL(rig->got.body, "hello");
	CU_ASSERT_PTR_EQUAL(strstr(rig->stub.request, "PUT / HTTP/1.1\r\n"),
			    rig->stub.request);
	CU_ASSERT_PTR_NOT_NULL(strstr(rig->stub.request, "\r\nX-One: 1\r\n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(rig->stub.request, "\r\n\r\ntext\""));
	CU_ASSERT_PTR_NULL(strstr(rig->stub.request, "Expect"));
	rig->request.method = "DELETE";
	rig->request.body = NULL;
	CU_ASSERT_EQUAL_FATAL(rig_run(rig), 0);
	CU_ASSERT_EQUAL(rig->got.status, 404);
	CU_ASSERT_STRING_EQUAL(rig->got.body, "none");
	CU_ASSERT_PTR_EQUAL(strstr(rig->stub.request, "DELETE "),
			    rig->stub.request);
	CU_ASSERT_EQUAL_FATAL(rig_run(rig), 0);
	CU_ASSERT_STRING_EQUAL(rig->got.body, "");
	CU_ASSERT_EQUAL(rig->stub.requests, 3);
	CU_ASSERT_EQUAL(rig->stub.connections, 1);
	rig_close(rig);
}

/* Tests that a client survives if the server closes each connection after the
 * reply: the next request uses a new connection. */
static void test_closed_connection_is_replaced(void)
{
	static const char *const replies[] = { OK_HEADER "2\r\n\r\nok", NULL };
	struct http_rig *rig = rig_open(replies);
	int i;

	rig->stub.close = true;
	for (i = 0; i < 5; i++)
		CU_ASSERT_EQUAL(rig_run(rig), 0);
	CU_ASSERT_EQUAL(rig->stub.connections, 5);
	rig_close(rig);
}

static void test_bad_responses_are_errors(void)
{
	static const struct {
		const char *reply;
		int rc;
	} cases[] = {
		{ OK_HEADER "50\r\n\r\nshort", TEI_ERR_SOCKET },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "5\r\nhel",
		  TEI_ERR_SOCKET },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		  "zz\r\n",
		  TEI_ERR_SOCKET },
		{ "HTTP/1.1 2", TEI_ERR_SOCKET },
		{ "\x15\x03\x01 no HTTP", TEI_ERR_METADATA },
		{ " ", TEI_ERR_METADATA },
	};
	const char *replies[] = { NULL, NULL };
	struct http_rig *rig;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		replies[0] = cases[i].reply;
		rig = rig_open(replies);
		rig->stub.close = true;
		rc = rig_run(rig);
		CU_ASSERT_EQUAL(rc, cases[i].rc);
		if (rc != cases[i].rc)
			fprintf(stderr, "case %zu: %d %s\n", i, rc,
				rig->got.why);
		CU_ASSERT(*rig->got.why != 0);
		CU_ASSERT_PTR_NULL(rig->got.body);
		rig_close(rig);
	}
}

static void test_body_above_the_limit_is_refused(void)
{
	static const char *const replies[] = {
		"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", NULL
	};
	struct http_rig *rig = rig_open(replies);

	rig->stub.tail = "0123456789abcdef"; /* the server sends this text
					      * repeatedly */
	CU_ASSERT_EQUAL(rig_run(rig), TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(rig->got.why, "4096"));
	rig_close(rig);
}

static void test_header_without_end_is_refused(void)
{
	static const char *const replies[] = { "HTTP/1.1 200 OK\r\n", NULL };
	struct http_rig *rig = rig_open(replies);

	rig->stub.tail = "X-Header: 0123456789abcdef0123456789abcdef\r\n";
	CU_ASSERT(rig_run(rig) != 0);
	rig_close(rig);
}

static void test_refused_and_silent_servers_are_reported(void)
{
	const char *const replies[] = { http_stub_silent, NULL };
	struct http_rig *rig = rig_open(replies);
	uint64_t start = tei_now_ns();

	rig->request.deadline_ns = start + 200 * TEI_NS_PER_MS;
	CU_ASSERT_EQUAL(rig_run(rig), TEI_ERR_SOCKET);
	CU_ASSERT(*rig->got.why != 0);
	CU_ASSERT(tei_now_ns() - start >= 200 * TEI_NS_PER_MS);
	http_stub_stop(&rig->stub);
	rig->request.deadline_ns = meta_test_deadline();
	CU_ASSERT_EQUAL(rig_run(rig), TEI_ERR_SOCKET);
	CU_ASSERT(tei_now_ns() < rig->request.deadline_ns);
	rig->request.url = "http://no-such-host.invalid:1/";
	CU_ASSERT_EQUAL(rig_run(rig), TEI_ERR_SOCKET);
	CU_ASSERT_PTR_NOT_NULL(strstr(rig->got.why, "no-such-host.invalid"));
	rig->request.url = "file:///etc/passwd";
	CU_ASSERT_EQUAL(rig_run(rig), TEI_ERR_INVALID);
	meta_http_free(rig->http);
}

static void test_host_name_is_resolved(void)
{
	static const char *const replies[] = { OK_HEADER "2\r\n\r\nok", NULL };
	struct http_rig *rig = rig_open(replies);
	char url[64];

	snprintf(url, sizeof(url), "http://localhost%s",
		 strrchr(rig->stub.url, ':'));
	rig->request.url = url;
	CU_ASSERT_EQUAL(rig_run(rig), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(rig->stub.request, "Host: localhost:"));
	CU_ASSERT_EQUAL(rig_run(rig), 0);
	CU_ASSERT_EQUAL(rig->stub.connections, 1);
	rig_close(rig);
}

static void *cancel_main(void *arg)
{
	struct http_rig *rig = arg;

	while (!__atomic_load_n(&rig->stub.requests, __ATOMIC_RELAXED))
		usleep(1000);
	meta_http_cancel(rig->http);
	return NULL;
}

static void test_cancel_ends_a_request_at_once(void)
{
	const char *const replies[] = { http_stub_silent, NULL };
	struct http_rig *rig = rig_open(replies);
	pthread_t thread;

	CU_ASSERT_FATAL(!pthread_create(&thread, NULL, cancel_main, rig));
	CU_ASSERT_EQUAL(rig_run(rig), TEI_ERR_CANCELED);
	CU_ASSERT(tei_now_ns() < rig->request.deadline_ns);
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL(rig_run(rig), TEI_ERR_CANCELED);
	rig_close(rig);
}

struct parts {
	char text[64];
	size_t len, wanted;
	unsigned int idle;
};

static bool parts_piece(void *arg, const char *bytes, size_t len)
{
	struct parts *p = arg;

	CU_ASSERT_FATAL(len < sizeof(p->text) - p->len);
	memcpy(p->text + p->len, bytes, len);
	p->len += len;
	return p->len < p->wanted;
}

static bool parts_idle(void *arg)
{
	struct parts *p = arg;

	return ++p->idle < 3;
}

static void test_parts_arrive_before_the_end(void)
{
	static const char *const replies[] = {
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		"3\r\none\r\n4\r\n two\r\n",
		"HTTP/1.1 500 Bad\r\nContent-Length: 3\r\n\r\nbad", NULL
	};
	struct http_rig *rig = rig_open(replies);
	struct parts parts = { .wanted = 7 };

	rig->request.piece = parts_piece;
	rig->request.arg = &parts;
	CU_ASSERT_EQUAL(rig_run(rig), TEI_ERR_CANCELED);
	CU_ASSERT_STRING_EQUAL(parts.text, "one two");
	CU_ASSERT_EQUAL(rig->got.status, 200);
	CU_ASSERT_EQUAL(rig_run(rig), 0);
	CU_ASSERT_EQUAL(rig->got.status, 500);
	CU_ASSERT_STRING_EQUAL(rig->got.body, "bad");
	CU_ASSERT_EQUAL(parts.len, 7);
	rig_close(rig);
}

static void test_idle_function_ends_a_request(void)
{
	const char *const replies[] = { http_stub_silent, NULL };
	struct http_rig *rig = rig_open(replies);
	struct parts parts = { .wanted = 7 };

	rig->request.idle = parts_idle;
	rig->request.arg = &parts;
	CU_ASSERT_EQUAL(rig_run(rig), TEI_ERR_CANCELED);
	CU_ASSERT_EQUAL(parts.idle, 3);
	rig_close(rig);
}

const struct tei_test_case http_client_cases[] = {
	{ "request_and_response_are_complete",
	  test_request_and_response_are_complete },
	{ "closed_connection_is_replaced", test_closed_connection_is_replaced },
	{ "bad_responses_are_errors", test_bad_responses_are_errors },
	{ "body_above_the_limit_is_refused",
	  test_body_above_the_limit_is_refused },
	{ "header_without_end_is_refused", test_header_without_end_is_refused },
	{ "refused_and_silent_servers_are_reported",
	  test_refused_and_silent_servers_are_reported },
	{ "host_name_is_resolved", test_host_name_is_resolved },
	{ "cancel_ends_a_request_at_once", test_cancel_ends_a_request_at_once },
	{ "parts_arrive_before_the_end", test_parts_arrive_before_the_end },
	{ "idle_function_ends_a_request", test_idle_function_ends_a_request },
	{ NULL, NULL },
};
