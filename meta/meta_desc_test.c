/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_test.h"
#include "meta/tei_meta_desc.h"
#include "util/clock.h"

static int desc_decode(const char *text, struct tei_meta_desc **out,
		       struct tei_err *err)
{
	return tei_meta_desc_decode(text, strlen(text), out, err);
}

static void test_round_trip_keeps_everything(void)
{
	struct tei_meta_desc *a, *b;
	char *json;
	size_t len;

	a = meta_test_desc("10.0.0.1:15001", UINT64_MAX - 5, 3, 4);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_encode(a, &json, &len, NULL), 0);
	CU_ASSERT_EQUAL(strlen(json), len);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_decode(json, len, &b, NULL), 0);
	CU_ASSERT(tei_meta_desc_equal(a, b));
	CU_ASSERT_STRING_EQUAL(b->name, "10.0.0.1:15001");
	CU_ASSERT_EQUAL(b->incarnation, UINT64_MAX - 5);
	CU_ASSERT_EQUAL(b->version, TEI_META_VERSION);
	CU_ASSERT_EQUAL(b->rail_count, 3);
	CU_ASSERT_EQUAL(b->buffer_count, 4);
	CU_ASSERT_EQUAL(b->buffers[3].rkey[2], UINT64_MAX - 3002);
	CU_ASSERT_EQUAL(memcmp(&a->first, &b->first, sizeof(a->first)), 0);
	CU_ASSERT_STRING_EQUAL(b->local, "an identity");
	CU_ASSERT_EQUAL(b->rails[1].mr_mode, UINT64_C(1) << 40);
	CU_ASSERT_STRING_EQUAL(b->priority_matrix, "{\"*\": [[], []]}");
	CU_ASSERT_EQUAL(b->size, 4 * 0x8000);
	free(json);
	tei_meta_desc_unref(a);
	tei_meta_desc_unref(b);
}

static void test_raw_keys_and_files_survive(void)
{
	static const uint8_t key[32] = { 1, 2, 3, [31] = 0xff };
	static const struct tei_meta_file_path local[] = {
		{ "node1", "/mnt/a" }, { "node2", "/mnt/\"b\"" },
	};
	struct tei_meta_key raw = { key, sizeof(key) };
	struct tei_meta_rail rail = { .name = "eth0" };
	struct tei_meta_desc *a, *b;
	uint64_t rkey = 0;
	char *json;
	size_t len;

	tei_meta_desc_create("m", "rdma", 1, &a, NULL);
	tei_meta_desc_add_rail(a, &rail, NULL);
	CU_ASSERT_EQUAL(tei_meta_desc_add_buffer(a, NULL, 4096, 1, &rkey, &raw,
						 NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_freeze(a, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_encode(a, &json, &len, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_decode(json, len, &b, NULL), 0);
	CU_ASSERT_EQUAL(b->buffers[0].raw[0].len, sizeof(key));
	CU_ASSERT_EQUAL(memcmp(b->buffers[0].raw[0].bytes, key, sizeof(key)),
			0);
	CU_ASSERT_STRING_EQUAL(b->buffers[0].location, "*");
	free(json);
	tei_meta_desc_unref(a);
	tei_meta_desc_unref(b);

	tei_meta_desc_create("nvmeof/f", "nvmeof", 1, &a, NULL);
	CU_ASSERT_EQUAL(tei_meta_desc_add_file(a, "/a", 100, local, 2, NULL),
			0);
	CU_ASSERT_EQUAL(tei_meta_desc_add_file(a, "/b", 50, NULL, 0, NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_freeze(a, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_encode(a, &json, &len, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_decode(json, len, &b, NULL), 0);
	CU_ASSERT_EQUAL(b->file_count, 2);
	CU_ASSERT_EQUAL(b->files[1].offset, 100);
	CU_ASSERT_EQUAL(b->size, 150);
	CU_ASSERT_STRING_EQUAL(b->files[0].local[1].path, "/mnt/\"b\"");
	free(json);
	tei_meta_desc_unref(a);
	tei_meta_desc_unref(b);
}

static void test_descriptors_of_mooncake_are_read(void)
{
	static const char text[] =
		"{ \"name\" : \"node1\", \"protocol\" : \"rdma\","
		"  \"timestamp\" : \"2026\", \"tcp_data_port\" : 0,"
		"  \"buffers\" : [ { \"addr\" : 140737353000000, \"length\" : "
		"4096, \"lkey\" : [ 1 ], \"name\" : \"cpu:0\", \"rkey\" : "
		"[ 18446744073709551557 ] } ],"
		"  \"devices\" : [ { \"gid\" : \"00:01\", \"lid\" : 7, \"name\""
		" : \"mlx5_0\" } ], \"priority_matrix\" : { \"cpu:0\" : "
		"[ [ \"mlx5_0\" ], [] ] } }";
	struct tei_meta_desc *d;

	CU_ASSERT_EQUAL_FATAL(desc_decode(text, &d, NULL), 0);
	CU_ASSERT_EQUAL(d->version, 0);
	CU_ASSERT_EQUAL(d->incarnation, 0);
	CU_ASSERT_EQUAL(d->buffers[0].rkey[0],
			UINT64_C(18446744073709551557));
	CU_ASSERT_EQUAL(d->rails[0].lid, 7);
	CU_ASSERT_EQUAL(d->first.provider[0], 0);
	tei_meta_desc_unref(d);
}

#define DESC_HEAD "{\"name\":\"n\",\"protocol\":\"tcp\","
#define DESC_BUFFERS DESC_HEAD "\"devices\":[{\"name\":\"e\"}],\"buffers\":["

static void test_bad_descriptors_are_refused(void)
{
	static const struct {
		int code;
		const char *text;
	} bad[] = {
		{ TEI_ERR_JSON, "" },
		{ TEI_ERR_JSON, "[]" },
		{ TEI_ERR_JSON, DESC_HEAD },
		{ TEI_ERR_JSON, DESC_HEAD "\"name\":\"n\"}" },
		{ TEI_ERR_JSON, DESC_HEAD "\"buffers\":{}}" },
		{ TEI_ERR_JSON, DESC_HEAD "\"priority_matrix\":[]}" },
		{ TEI_ERR_JSON, DESC_HEAD "\"version\":4294967296}" },
		{ TEI_ERR_JSON, DESC_BUFFERS "{\"addr\":1.5}]}" },
		{ TEI_ERR_JSON, DESC_BUFFERS "{\"addr\":1,\"addr\":1}]}" },
		{ TEI_ERR_JSON, DESC_BUFFERS "{\"addr\":-1}]}" },
		{ TEI_ERR_REJECTED, "{\"protocol\":\"tcp\"}" },
		{ TEI_ERR_REJECTED, "{\"name\":\"\",\"protocol\":\"tcp\"}" },
		{ TEI_ERR_REJECTED, "{\"name\":\"n\"}" },
		{ TEI_ERR_REJECTED, "{\"name\":\"a\\nb\",\"protocol\":\"tcp\"}" },
		{ TEI_ERR_REJECTED, DESC_HEAD "\"server_name\":\"m\"}" },
		{ TEI_ERR_REJECTED, DESC_HEAD "\"devices\":[{\"name\":\"\"}]}" },
		{ TEI_ERR_REJECTED, DESC_HEAD
		  "\"devices\":[{\"name\":\"e\",\"address\":\"0\"}]}" },
		{ TEI_ERR_REJECTED, DESC_HEAD
		  "\"first\":{\"provider\":\"tcp\"}}" },
		{ TEI_ERR_REJECTED, DESC_BUFFERS
		  "{\"addr\":0,\"length\":1,\"rkey\":[1]}]}" },
		{ TEI_ERR_REJECTED, DESC_BUFFERS
		  "{\"addr\":1,\"length\":0,\"rkey\":[1]}]}" },
		{ TEI_ERR_REJECTED, DESC_BUFFERS
		  "{\"addr\":1,\"length\":1,\"rkey\":[]}]}" },
		{ TEI_ERR_REJECTED, DESC_BUFFERS
		  "{\"addr\":1,\"length\":1,\"rkey\":[1,2]}]}" },
		{ TEI_ERR_REJECTED, DESC_BUFFERS "{\"addr\":1,\"length\":1}]}" },
		{ TEI_ERR_REJECTED, DESC_BUFFERS
		  "{\"addr\":1,\"length\":1,\"rkey\":[1],\"raw_key\":[]}]}" },
		{ TEI_ERR_REJECTED, DESC_BUFFERS
		  "{\"addr\":2,\"length\":18446744073709551615,\"rkey\":[1]}]}" },
		{ TEI_ERR_REJECTED, DESC_BUFFERS
		  "{\"addr\":10,\"length\":5,\"rkey\":[1]},"
		  "{\"addr\":14,\"length\":5,\"rkey\":[1]}]}" },
		{ TEI_ERR_REJECTED, DESC_HEAD
		  "\"buffers\":[{\"file_path\":\"/a\",\"length\":1}]}" },
		{ TEI_ERR_REJECTED, "{\"name\":\"n\",\"protocol\":\"nvmeof\","
		  "\"buffers\":[{\"file_path\":\"/a\",\"length\":0}]}" },
	};
	struct tei_meta_desc *d = NULL;
	struct tei_err err;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(desc_decode(bad[i].text, &d, &err),
				bad[i].code);
		CU_ASSERT_PTR_NULL(d);
		CU_ASSERT(err.text[0] != 0);
	}
}

static void test_order_of_fields_is_free(void)
{
	struct tei_meta_desc *d;

	CU_ASSERT_EQUAL_FATAL(desc_decode(
		"{\"buffers\":[{\"rkey\":[1,2],\"length\":1,\"addr\":"
		"18446744073709551615},{\"addr\":9,\"length\":1,\"rkey\":"
		"[\"3\",4]}],\"devices\":[{\"name\":\"a\"},{\"name\":\"b\"}],"
		"\"protocol\":\"tcp\",\"server_name\":\"n\"}", &d, NULL), 0);
	CU_ASSERT_EQUAL(d->buffers[0].addr, 9);
	CU_ASSERT_EQUAL(d->buffers[0].rkey[0], 3);
	CU_ASSERT_EQUAL(d->buffers[1].addr, UINT64_MAX);
	CU_ASSERT_STRING_EQUAL(d->name, "n");
	CU_ASSERT(tei_meta_desc_covers(d, UINT64_MAX, 1));
	CU_ASSERT_FALSE(tei_meta_desc_covers(d, UINT64_MAX, 2));
	tei_meta_desc_unref(d);
}

static void test_descriptor_above_a_limit_is_refused(void)
{
	size_t len = TEI_META_TEXT_MAX + 1;
	char *text = malloc(len);
	struct tei_meta_desc *d;
	uint32_t i;
	int n;

	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	memset(text, ' ', len);
	CU_ASSERT_EQUAL(tei_meta_desc_decode(text, len, &d, NULL),
			TEI_ERR_JSON);
	n = sprintf(text, DESC_HEAD "\"devices\":[{\"name\":\"e\"}");
	for (i = 0; i < TEI_META_RAILS_MAX; i++)
		n += sprintf(text + n, ",{\"name\":\"e\"}");
	sprintf(text + n, "]}");
	CU_ASSERT_EQUAL(desc_decode(text, &d, NULL), TEI_ERR_REJECTED);
	n = sprintf(text, DESC_HEAD "\"x\":");
	memset(text + n, '[', 1000000);
	text[n + 1000000] = 0;
	CU_ASSERT_EQUAL(desc_decode(text, &d, NULL), TEI_ERR_JSON);
	free(text);
}

static void test_buffer_is_found_by_address(void)
{
	struct tei_meta_desc *d;

	tei_meta_desc_create("n", "tcp", 1, &d, NULL);
	tei_meta_desc_add_buffer(d, "b", 0x3000, 0x1000, NULL, NULL, NULL);
	tei_meta_desc_add_buffer(d, "a", 0x1000, 0x1000, NULL, NULL, NULL);
	tei_meta_desc_add_buffer(d, "c", 0x4000, 0x1000, NULL, NULL, NULL);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_freeze(d, NULL), 0);
	CU_ASSERT_STRING_EQUAL(tei_meta_desc_find(d, 0x1000, 0x1000)->location,
			       "a");
	CU_ASSERT_STRING_EQUAL(tei_meta_desc_find(d, 0x3fff, 1)->location,
			       "b");
	CU_ASSERT_PTR_NULL(tei_meta_desc_find(d, 0xfff, 1));
	CU_ASSERT_PTR_NULL(tei_meta_desc_find(d, 0x2000, 1));
	CU_ASSERT_PTR_NULL(tei_meta_desc_find(d, 0x3fff, 2));
	CU_ASSERT_PTR_NULL(tei_meta_desc_find(d, 0x1001, UINT64_MAX));
	CU_ASSERT_PTR_NULL(tei_meta_desc_find(d, UINT64_MAX, 1));
	CU_ASSERT_PTR_NULL(tei_meta_desc_find(d, 0, 0));
	CU_ASSERT(tei_meta_desc_covers(d, 0x3800, 0x1800));
	CU_ASSERT_FALSE(tei_meta_desc_covers(d, 0x3800, 0x1801));
	CU_ASSERT_FALSE(tei_meta_desc_covers(d, 0x1800, 0x2000));
	tei_meta_desc_unref(d);
}

static void test_builder_refuses_bad_values(void)
{
	struct tei_meta_desc *d;
	struct tei_meta_rail rail = { .name = "" };
	uint64_t key = 1;
	struct tei_err err;

	CU_ASSERT_EQUAL(tei_meta_desc_create("", "tcp", 1, &d, NULL),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_desc_create("\xff", "tcp", 1, &d, NULL),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_desc_create("n", "", 1, &d, NULL),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_create("n", "tcp", 1, &d, NULL),
			      0);
	CU_ASSERT_EQUAL(tei_meta_desc_add_rail(d, &rail, NULL),
			TEI_ERR_INVALID);
	strcpy(rail.name, "x\xff");
	CU_ASSERT_EQUAL(tei_meta_desc_add_rail(d, &rail, &err),
			TEI_ERR_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "x\\xff: bad device"));
	CU_ASSERT_EQUAL(tei_meta_desc_set_matrix(d, "[]", NULL), TEI_ERR_JSON);
	CU_ASSERT_EQUAL(tei_meta_desc_set_matrix(d, "{", NULL), TEI_ERR_JSON);
	strcpy(rail.name, "eth0");
	CU_ASSERT_EQUAL(tei_meta_desc_add_rail(d, &rail, NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_add_buffer(d, "*", 0, 1, &key, NULL,
						 NULL), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_desc_add_buffer(d, "*", 1, 1, NULL, NULL,
						 NULL), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_desc_add_buffer(d, "*", 1, 9, &key, NULL,
						 NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_add_rail(d, &rail, NULL),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_desc_add_buffer(d, "*", 9, 1, &key, NULL,
						 NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_freeze(d, NULL), TEI_ERR_OVERLAP);
	tei_meta_desc_unref(d);
	d = meta_test_desc("n", 1, 1, 1);
	CU_ASSERT_EQUAL(tei_meta_desc_add_buffer(d, "*", 9, 1, &key, NULL,
						 NULL), TEI_ERR_INVALID);
	tei_meta_desc_unref(d);
}

/* Encodes and decodes a descriptor. Checks that the result is equal, and returns
 * the duration, ns. */
static uint64_t desc_coding_ns(const struct tei_meta_desc *a)
{
	uint64_t start = tei_now_ns(), took;
	struct tei_meta_desc *b;
	char *json;
	size_t len;

	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_encode(a, &json, &len, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_decode(json, len, &b, NULL), 0);
	took = tei_now_ns() - start;
	printf("# %zu bytes encoded and decoded in %.1f ms\n", len,
	       (double)took / 1e6);
	CU_ASSERT(tei_meta_desc_equal(a, b));
	free(json);
	tei_meta_desc_unref(b);
	return took;
}

/* Tests the duration, at most five times, because the machine may be busy. */
static void test_ten_thousand_buffers_take_no_time(void)
{
	struct tei_meta_desc *a = meta_test_desc("n", 1, 8, 10000);
	uint64_t most = meta_test_slowness() * TEI_NS_PER_SEC / 2;
	uint64_t took = UINT64_MAX;
	int i;

	for (i = 0; i < 5 && took >= most; i++)
		took = desc_coding_ns(a);
	CU_ASSERT(took < most);
	tei_meta_desc_unref(a);
}

/* Makes one to four random changes to the text: replaces a byte, truncates the
 * text or repeats a part of it. Returns the new length. */
static size_t desc_mutate(char *text, size_t len, struct tei_fuzz *f)
{
	static const char likely[] = "{}[],:\"\\0129eE-.ntf \x80";
	size_t n = 1 + tei_fuzz_random(f) % 4, at;

	while (n--) {
		at = tei_fuzz_random(f) % len;
		switch (tei_fuzz_random(f) % 4) {
		case 0:
			text[at] = (char)tei_fuzz_random(f);
			break;
		case 1:
			memmove(text + at, text + at / 2, len - at);
			break;
		case 2:
			if (at)
				len = at;
			break;
		default:
			text[at] = likely[tei_fuzz_random(f) %
					  (sizeof(likely) - 1)];
		}
	}
	return len;
}

/* Adds two labels to the JSON text of a descriptor that meta_test_desc has
 * created. Frees json and returns the new text. */
static char *desc_add_labels(char *json, size_t *len)
{
	char *text = NULL;
	int n;

	n = asprintf(&text,
		     "%.*s,\"labels\":[{\"label\":\"a\",\"addr\":%llu,"
		     "\"length\":32768},{\"label\":\"b\",\"addr\":%llu,"
		     "\"length\":5,\"nested\":1}]}",
		     (int)*len - 1, json, 0x7f0000000000ULL, 0x7f0000010004ULL);
	CU_ASSERT_FATAL(n > 0);
	free(json);
	*len = (size_t)n;
	return text;
}

static void test_fuzzed_text_never_hurts(void)
{
	struct tei_meta_desc *d = meta_test_desc("n", 1, 2, 3), *got;
	struct tei_fuzz f;
	struct tei_err err;
	char *json, *text, *again;
	size_t len, n, m;
	int rc;

	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_encode(d, &json, &len, NULL), 0);
	json = desc_add_labels(json, &len);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_decode(json, len, &got, NULL), 0);
	CU_ASSERT_EQUAL(got->label_count, 2);
	tei_meta_desc_unref(got);
	meta_test_hush(true);
	for (tei_fuzz_begin(&f, "descriptors"); tei_fuzz_next(&f, 20000);) {
		/* the memory has exactly len bytes, so that a sanitizer detects
		 * reads beyond them */
		text = malloc(len);
		memcpy(text, json, len);
		n = desc_mutate(text, len, &f);
		rc = tei_meta_desc_decode(text, n, &got, &err);
		/* every error text contains a reason */
		CU_ASSERT(!rc || !strstr(err.text, "(null)"));
		if (!rc) {
			CU_ASSERT_EQUAL(tei_meta_desc_encode(got, &again, &m,
							     NULL), 0);
			free(again);
			tei_meta_desc_unref(got);
		} else {
			CU_ASSERT(rc == TEI_ERR_JSON || rc == TEI_ERR_REJECTED);
		}
		free(text);
	}
	meta_test_hush(false);
	free(json);
	tei_meta_desc_unref(d);
}

const struct tei_test_case desc_cases[] = {
	{ "round_trip_keeps_everything", test_round_trip_keeps_everything },
	{ "raw_keys_and_files_survive", test_raw_keys_and_files_survive },
	{ "descriptors_of_mooncake_are_read",
	  test_descriptors_of_mooncake_are_read },
	{ "bad_descriptors_are_refused", test_bad_descriptors_are_refused },
	{ "order_of_fields_is_free", test_order_of_fields_is_free },
	{ "descriptor_above_a_limit_is_refused",
	  test_descriptor_above_a_limit_is_refused },
	{ "buffer_is_found_by_address", test_buffer_is_found_by_address },
	{ "builder_refuses_bad_values", test_builder_refuses_bad_values },
	{ "ten_thousand_buffers_take_no_time",
	  test_ten_thousand_buffers_take_no_time },
	{ "fuzzed_text_never_hurts", test_fuzzed_text_never_hurts },
	{ NULL, NULL },
};
