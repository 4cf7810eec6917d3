/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/err.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "util/clock.h"
#include "util/hint.h"
#include "util/util_test.h"

static void test_transfer_codes_are_positive(void)
{
	CU_ASSERT_EQUAL(tei_err_transfer_code(TEI_OK), 0);
	CU_ASSERT_EQUAL(tei_err_transfer_code(TEI_ERR_INVALID), 1);
	CU_ASSERT_EQUAL(tei_err_transfer_code(TEI_ERR_UNSUPPORTED), 8);
	CU_ASSERT_EQUAL(tei_err_transfer_code(TEI_ERR_REJECTED), 104);
	CU_ASSERT_EQUAL(tei_err_transfer_code(TEI_ERR_MEMORY), 302);
	CU_ASSERT_EQUAL(tei_err_transfer_code(TEI_ERR_NOT_IMPLEMENTED), 999);
}

static void test_every_code_has_a_name(void)
{
	CU_ASSERT_STRING_EQUAL(tei_err_name(TEI_OK), "success");
	CU_ASSERT_STRING_EQUAL(tei_err_name(TEI_ERR_BUSY), "busy");
	CU_ASSERT_STRING_EQUAL(tei_err_name(-12345), "unknown error");
	CU_ASSERT_STRING_EQUAL(tei_err_name(1), "unknown error");
}

static void fail_out(void *arg)
{
	struct tei_err *err = arg;

	CU_ASSERT_EQUAL(tei_err_fail(err, TEI_ERR_SOCKET, "test", "try again",
				     "port %d", 7), TEI_ERR_SOCKET);
}

static void test_fail_fills_logs_and_remembers(void)
{
	struct tei_err err;
	uint64_t before = tei_now_ns();
	char out[1024];

	memset(&err, 0xff, sizeof(err));
	util_test_capture(2, fail_out, &err, out, sizeof(out));
	CU_ASSERT_STRING_EQUAL(util_test_log_text(out), "error test: port 7 "
			       "(socket error); try again\n");
	CU_ASSERT_EQUAL(err.code, TEI_ERR_SOCKET);
	CU_ASSERT_EQUAL(err.prov_errno, 0);
	CU_ASSERT(err.when_ns >= before && err.when_ns <= tei_now_ns());
	CU_ASSERT_STRING_EQUAL(err.text, "port 7");
	CU_ASSERT_STRING_EQUAL(err.hint, "try again");
	CU_ASSERT_STRING_EQUAL(err.rail, "");
	CU_ASSERT_STRING_EQUAL(err.peer, "");
	CU_ASSERT_STRING_EQUAL(err.provider, "");
	CU_ASSERT_EQUAL(memcmp(tei_err_last(), &err, sizeof(err)), 0);
}

static void fail_long(void *arg)
{
	char text[4 * TEI_ERR_TEXT];

	(void)arg;
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	tei_err_fail(NULL, TEI_ERR_JSON, "test", text, "%s", text);
}

static void test_long_texts_are_cut(void)
{
	char out[4096];

	util_test_capture(2, fail_long, NULL, out, sizeof(out));
	CU_ASSERT_EQUAL(strlen(tei_err_last()->text), TEI_ERR_TEXT - 1);
	CU_ASSERT_EQUAL(strlen(tei_err_last()->hint), TEI_ERR_TEXT - 1);
	CU_ASSERT_PTR_EQUAL(strchr(out, '\n'), out + strlen(out) - 1);
}

static void *err_read_last(void *arg)
{
	*(int *)arg = tei_err_last()->code;
	return NULL;
}

static void test_last_error_belongs_to_the_thread(void)
{
	struct tei_err err = { .code = TEI_ERR_NUMA };
	pthread_t thread;
	int other = 1;

	tei_err_set_last(&err);
	tei_err_set_last(tei_err_last());
	CU_ASSERT_EQUAL(tei_err_last()->code, TEI_ERR_NUMA);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, err_read_last,
					     &other), 0);
	pthread_join(thread, NULL);
	CU_ASSERT_EQUAL(other, 0);
}

static void test_prefix_precedes_the_text_and_cuts_its_end(void)
{
	char name[TEI_ERR_TEXT];
	struct tei_err err = { .code = TEI_ERR_SOCKET, .prov_errno = 5,
			       .text = "refused", .hint = "is it running?" };

	CU_ASSERT_EQUAL(tei_err_prefix(&err, "segment '%s'", "x"),
			TEI_ERR_SOCKET);
	CU_ASSERT_STRING_EQUAL(err.text, "segment 'x': refused");
	CU_ASSERT_STRING_EQUAL(err.hint, "is it running?");
	CU_ASSERT_EQUAL(err.prov_errno, 5);
	CU_ASSERT_STRING_EQUAL(tei_err_last()->text, err.text);
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	tei_err_prefix(&err, "%s", name);
	CU_ASSERT_EQUAL(strlen(err.text), sizeof(err.text) - 1);
	CU_ASSERT_EQUAL(strncmp(err.text, name, sizeof(err.text) - 1), 0);
}

static void test_hints_fit_into_the_record(void)
{
	int place, e;
	const char *hint;

	for (place = TEI_HINT_CONTROL; place <= TEI_HINT_OBJECT; place++)
		for (e = TEI_HINT_FELL_SILENT; e < 200; e++) {
			hint = tei_hint((enum tei_hint_place)place, e);
			CU_ASSERT(!hint || strlen(hint) < TEI_ERR_TEXT);
		}
	CU_ASSERT_PTR_NOT_NULL(strstr(tei_hint(TEI_HINT_OBJECT, EMFILE),
				      "ulimit -n"));
	CU_ASSERT_PTR_NOT_NULL(strstr(tei_hint(TEI_HINT_THREAD, EAGAIN),
				      "ulimit -u"));
	CU_ASSERT_PTR_NULL(tei_hint(TEI_HINT_THREAD, 0));
}

const struct tei_test_case err_cases[] = {
	{ "hints_fit_into_the_record", test_hints_fit_into_the_record },
	{ "transfer_codes_are_positive", test_transfer_codes_are_positive },
	{ "every_code_has_a_name", test_every_code_has_a_name },
	{ "fail_fills_logs_and_remembers", test_fail_fills_logs_and_remembers },
	{ "long_texts_are_cut", test_long_texts_are_cut },
	{ "prefix_precedes_the_text_and_cuts_its_end",
	  test_prefix_precedes_the_text_and_cuts_its_end },
	{ "last_error_belongs_to_the_thread",
	  test_last_error_belongs_to_the_thread },
	{ NULL, NULL },
};
