/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/util_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util/secret.h"

static const char secret_text[] = "0123456789abcdef";

/* Derives the key named label, and computes the keyed hash of the parts "one",
 * "" and "two" with it. */
static void secret_sample(const struct tei_secret *s, const char *label,
			  uint8_t out[TEI_MAC_SIZE])
{
	const struct tei_mac_part parts[] = {
		{ "one", 3 }, { "", 0 }, { "two", 3 },
	};
	struct tei_mac_key key;

	tei_secret_key(s, label, &key);
	tei_mac(&key, parts, 3, out);
	tei_wipe(&key, sizeof(key));
}

/* Writes bytes to a file with the permissions "mode", and loads it with
 * tei_secret_load. Returns the result of tei_secret_load. */
static int secret_of_file(const void *bytes, size_t len, mode_t mode,
			  uint8_t out[TEI_MAC_SIZE], struct tei_err *err)
{
	char path[] = "/tmp/secret_test.XXXXXX";
	struct tei_secret *s = NULL;
	int fd = mkstemp(path), rc;

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(write(fd, bytes, len), (ssize_t)len);
	fchmod(fd, mode);
	close(fd);
	memset(err, 0, sizeof(*err));
	rc = tei_secret_load(path, &s, err);
	if (!rc)
		secret_sample(s, "purpose", out);
	tei_secret_free(s);
	unlink(path);
	return rc;
}

/* Tests that the keyed hashes never change, because peers of different versions
 * must compute the same ones. The expected value was computed by another
 * implementation. */
static void test_keyed_hashes_are_what_they_were(void)
{
	static const char want[] =
		"31bed3ed1476679e7f0f07c8462039f46e38b1a398ca78af7d71879f8133aabd";
	char got[2 * TEI_MAC_SIZE + 1];
	struct tei_secret *s = NULL;
	uint8_t mac[TEI_MAC_SIZE];
	int i;

	CU_ASSERT_EQUAL_FATAL(tei_secret_make(secret_text, 16, &s), 0);
	secret_sample(s, "purpose", mac);
	for (i = 0; i < TEI_MAC_SIZE; i++)
		sprintf(got + 2 * i, "%02x", mac[i]);
	CU_ASSERT_STRING_EQUAL(got, want);
	tei_secret_free(s);
}

static void test_keys_differ_by_secret_label_and_cut(void)
{
	const struct tei_mac_part a[] = { { "ab", 2 }, { "c", 1 } };
	const struct tei_mac_part b[] = { { "a", 1 }, { "bc", 2 } };
	uint8_t mac[3][TEI_MAC_SIZE], cut[2][TEI_MAC_SIZE];
	struct tei_secret *s = NULL, *other = NULL;
	struct tei_mac_key key;

	CU_ASSERT_EQUAL_FATAL(tei_secret_make(secret_text, 16, &s), 0);
	CU_ASSERT_EQUAL_FATAL(tei_secret_make("0123456789abcdeF", 16, &other),
			      0);
	secret_sample(s, "purpose", mac[0]);
	secret_sample(s, "another", mac[1]);
	secret_sample(other, "purpose", mac[2]);
	CU_ASSERT_FALSE(tei_mac_equal(mac[0], mac[1], TEI_MAC_SIZE));
	CU_ASSERT_FALSE(tei_mac_equal(mac[0], mac[2], TEI_MAC_SIZE));
	tei_secret_key(s, "purpose", &key);
	tei_mac(&key, a, 2, cut[0]);
	tei_mac(&key, b, 2, cut[1]);
	CU_ASSERT_FALSE(tei_mac_equal(cut[0], cut[1], TEI_MAC_SIZE));
	tei_mac(&key, a, 2, cut[1]);
	CU_ASSERT(tei_mac_equal(cut[0], cut[1], TEI_MAC_SIZE));
	tei_secret_free(s);
	tei_secret_free(other);
}

static void test_a_line_end_is_no_part_of_it(void)
{
	uint8_t plain[TEI_MAC_SIZE], line[TEI_MAC_SIZE];
	struct tei_err err;

	CU_ASSERT_EQUAL_FATAL(secret_of_file(secret_text, 16, 0600, plain,
					     &err), 0);
	CU_ASSERT_EQUAL_FATAL(secret_of_file("0123456789abcdef\r\n", 18, 0400,
					     line, &err), 0);
	CU_ASSERT(tei_mac_equal(plain, line, TEI_MAC_SIZE));
	CU_ASSERT_EQUAL_FATAL(secret_of_file(" 0123456789abcdef", 17, 0600,
					     line, &err), 0);
	CU_ASSERT_FALSE(tei_mac_equal(plain, line, TEI_MAC_SIZE));
}

static void test_a_file_that_others_may_read_is_refused(void)
{
	static const mode_t bad[] = { 0640, 0604, 0620, 0602, 0610, 0601 };
	uint8_t mac[TEI_MAC_SIZE];
	struct tei_err err;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(secret_of_file(secret_text, 16, bad[i], mac,
					       &err), TEI_ERR_INVALID);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "group or others"));
		CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "chmod"));
		CU_ASSERT_PTR_NULL(strstr(err.text, secret_text));
	}
}

static void test_length_of_a_secret_has_limits(void)
{
	char *text = malloc(TEI_SECRET_MAX + 100);
	uint8_t mac[TEI_MAC_SIZE];
	struct tei_err err;

	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	memset(text, 'x', TEI_SECRET_MAX + 100);
	CU_ASSERT_EQUAL(secret_of_file("", 0, 0600, mac, &err),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(secret_of_file("0123456789abcde\n", 16, 0600, mac,
				       &err), TEI_ERR_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "16"));
	CU_ASSERT_EQUAL(secret_of_file(text, TEI_SECRET_MAX, 0600, mac, &err),
			0);
	CU_ASSERT_EQUAL(secret_of_file(text, TEI_SECRET_MAX + 1, 0600, mac,
				       &err), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(secret_of_file(text, TEI_SECRET_MAX + 100, 0600, mac,
				       &err), TEI_ERR_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "4096"));
	free(text);
}

static void test_path_without_a_regular_file_is_refused(void)
{
	char path[] = "/tmp/secret_test.XXXXXX", fifo[64];
	struct tei_secret *s = NULL;
	struct tei_err err;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(path));
	CU_ASSERT_EQUAL(tei_secret_load(path, &s, &err), TEI_ERR_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "regular"));
	snprintf(fifo, sizeof(fifo), "%s/fifo", path);
	CU_ASSERT_EQUAL(mkfifo(fifo, 0600), 0);
	/* loading a FIFO must fail and must not wait for a writer */
	CU_ASSERT_EQUAL(tei_secret_load(fifo, &s, &err), TEI_ERR_INVALID);
	unlink(fifo);
	CU_ASSERT_EQUAL(tei_secret_load(fifo, &s, &err), TEI_ERR_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, fifo));
	CU_ASSERT_PTR_NULL(s);
	rmdir(path);
}

const struct tei_test_case secret_cases[] = {
	{ "keyed_hashes_are_what_they_were",
	  test_keyed_hashes_are_what_they_were },
	{ "keys_differ_by_secret_label_and_cut",
	  test_keys_differ_by_secret_label_and_cut },
	{ "a_line_end_is_no_part_of_it", test_a_line_end_is_no_part_of_it },
	{ "a_file_that_others_may_read_is_refused",
	  test_a_file_that_others_may_read_is_refused },
	{ "length_of_a_secret_has_limits", test_length_of_a_secret_has_limits },
	{ "path_without_a_regular_file_is_refused",
	  test_path_without_a_regular_file_is_refused },
	{ NULL, NULL },
};
