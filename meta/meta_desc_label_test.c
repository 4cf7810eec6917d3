/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_test.h"
#include "meta/tei_meta_desc.h"
#include "util/clock.h"

#define LABEL_HEAD "{\"name\":\"n\",\"protocol\":\"tcp\","
/* descriptor with three buffers; the first two are adjacent and belong to one
 * registration */
#define LABEL_BUFFERS LABEL_HEAD                                             \
	"\"buffers\":[{\"addr\":4096,\"length\":4096},"                      \
	"{\"addr\":8192,\"length\":4096},{\"addr\":65536,\"length\":4096}]"

static int label_decode(const char *labels, struct tei_meta_desc **out,
			struct tei_err *err)
{
	char text[1024];

	snprintf(text, sizeof(text), "%s,\"labels\":%s}", LABEL_BUFFERS,
		 labels);
	return tei_meta_desc_decode(text, strlen(text), out, err);
}

/* Encodes the descriptor a and decodes the text. Checks that the result is
 * equal to a, frees a and returns the result. */
static struct tei_meta_desc *label_again(struct tei_meta_desc *a)
{
	struct tei_meta_desc *b = NULL;
	char *json;
	size_t len;

	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_encode(a, &json, &len, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_decode(json, len, &b, NULL), 0);
	CU_ASSERT(tei_meta_desc_equal(a, b));
	free(json);
	tei_meta_desc_unref(a);
	return b;
}

static void test_label_of_a_registration_is_that_of_its_buffers(void)
{
	const struct tei_meta_label *const *at;
	struct tei_meta_desc *d = NULL;

	CU_ASSERT_EQUAL_FATAL(label_decode(
		"[{\"label\":\"in\",\"addr\":8000,\"length\":500,"
		"\"nested\":1},"
		"{\"length\":8192,\"addr\":4096,\"label\":\"whole \xc3\xa4\","
		"\"later\":[1]}]", &d, NULL), 0);
	d = label_again(d);
	CU_ASSERT_STRING_EQUAL(d->buffers[0].label, "whole \xc3\xa4");
	CU_ASSERT_STRING_EQUAL(d->buffers[1].label, "whole \xc3\xa4");
	CU_ASSERT_PTR_NULL(d->buffers[2].label);
	CU_ASSERT_EQUAL(d->label_count, 2);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_find_label(d, "in", &at), 1);
	CU_ASSERT_EQUAL(at[0]->addr, 8000);
	CU_ASSERT_EQUAL(at[0]->length, 500);
	CU_ASSERT(at[0]->nested);
	CU_ASSERT_EQUAL_FATAL(
		tei_meta_desc_find_label(d, "whole \xc3\xa4", &at), 1);
	CU_ASSERT_EQUAL(at[0]->length, 8192);
	CU_ASSERT(!at[0]->nested);
	CU_ASSERT_EQUAL(tei_meta_desc_find_label(d, "i", &at), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_find_label(d, "ina", &at), 0);
	tei_meta_desc_unref(d);
}

static void test_same_label_twice_gives_both_in_order_of_address(void)
{
	const struct tei_meta_label *const *at;
	struct tei_meta_desc *d = NULL;

	CU_ASSERT_EQUAL_FATAL(label_decode(
		"[{\"label\":\"x\",\"addr\":65536,\"length\":4096},"
		"{\"label\":\"x\",\"addr\":4096,\"length\":10,\"nested\":1},"
		"{\"label\":\"a\",\"addr\":4096,\"length\":1,\"nested\":1},"
		"{\"label\":\"x\",\"addr\":4096,\"length\":20,\"nested\":1}]",
		&d, NULL), 0);
	d = label_again(d);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_find_label(d, "x", &at), 3);
	CU_ASSERT_EQUAL(at[0]->length, 20);
	CU_ASSERT_EQUAL(at[1]->length, 10);
	CU_ASSERT_EQUAL(at[2]->addr, 65536);
	tei_meta_desc_unref(d);
}

static void test_bad_labels_are_refused(void)
{
	static const struct {
		int code;
		const char *labels;
	} bad[] = {
		{ TEI_ERR_JSON, "{}" },
		{ TEI_ERR_JSON, "[{\"label\":1}]" },
		{ TEI_ERR_JSON, "[{\"label\":\"a\",\"label\":\"a\"}]" },
		{ TEI_ERR_REJECTED, "[{}]" },
		{ TEI_ERR_REJECTED,
		  "[{\"label\":\"\",\"addr\":4096,\"length\":1}]" },
		{ TEI_ERR_REJECTED,
		  "[{\"label\":\"a\\nb\",\"addr\":4096,\"length\":1}]" },
		{ TEI_ERR_REJECTED,
		  "[{\"label\":\"a\",\"addr\":0,\"length\":1}]" },
		{ TEI_ERR_REJECTED,
		  "[{\"label\":\"a\",\"addr\":4096,\"length\":0}]" },
		{ TEI_ERR_REJECTED, "[{\"label\":\"a\",\"addr\":4096,"
				    "\"length\":18446744073709551615}]" },
		/* the range begins before the first buffer, or ends after the
		 * last buffer of its run */
		{ TEI_ERR_REJECTED, "[{\"label\":\"a\",\"addr\":4095,"
				    "\"length\":2,\"nested\":1}]" },
		{ TEI_ERR_REJECTED, "[{\"label\":\"a\",\"addr\":4096,"
				    "\"length\":8193,\"nested\":1}]" },
		{ TEI_ERR_REJECTED, "[{\"label\":\"a\",\"addr\":12288,"
				    "\"length\":1,\"nested\":1}]" },
		{ TEI_ERR_REJECTED, "[{\"label\":\"a\",\"addr\":69632,"
				    "\"length\":1,\"nested\":1}]" },
		/* the ranges of two registrations overlap */
		{ TEI_ERR_REJECTED,
		  "[{\"label\":\"a\",\"addr\":4096,\"length\":8192},"
		  "{\"label\":\"b\",\"addr\":8192,\"length\":4096}]" },
		/* the registration does not end at the end of a buffer */
		{ TEI_ERR_REJECTED,
		  "[{\"label\":\"a\",\"addr\":4096,\"length\":4097}]" },
	};
	struct tei_meta_desc *d = NULL;
	struct tei_err err;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(label_decode(bad[i].labels, &d, &err),
				bad[i].code);
		CU_ASSERT_PTR_NULL(d);
		CU_ASSERT(err.text[0] != 0);
	}
}

static void test_length_of_a_label_is_limited(void)
{
	char text[TEI_META_LABEL_MAX + 1];
	struct tei_meta_label l = { .addr = 4096, .length = 1, .text = text };
	struct tei_meta_desc *d;

	memset(text, 'x', sizeof(text));
	text[TEI_META_LABEL_MAX] = 0;
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_create("n", "tcp", 1, &d, NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_add_label(d, &l, NULL), TEI_ERR_INVALID);
	text[TEI_META_LABEL_MAX - 1] = 0;
	CU_ASSERT_EQUAL(tei_meta_desc_add_label(d, &l, NULL), 0);
	/* no buffer contains the range of the label */
	CU_ASSERT_EQUAL(tei_meta_desc_freeze(d, NULL), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_desc_add_buffer(d, "*", 4096, 1, NULL, NULL,
						 NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_freeze(d, NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_desc_add_label(d, &l, NULL), TEI_ERR_INVALID);
	CU_ASSERT_STRING_EQUAL(d->buffers[0].label, text);
	tei_meta_desc_unref(d);
}

/* Freezes a descriptor with n labelled registrations and n labelled nested
 * ones, and looks up each label. Returns the duration divided by n, ns. */
static double label_time(uint32_t n)
{
	const struct tei_meta_label *const *at;
	struct tei_meta_label l = { .length = 4096 };
	uint64_t start, addr, took;
	struct tei_meta_desc *d;
	uint32_t i, found = 0;
	char text[32];

	tei_meta_desc_create("n", "tcp", 1, &d, NULL);
	for (i = 0; i < n; i++) {
		/* neither the addresses nor the labels are sorted */
		addr = (1 + UINT64_C(7919) * i % n) * 4096;
		snprintf(text, sizeof(text), "layers.%u.weight", i);
		l = (struct tei_meta_label){ .addr = addr, .length = 4096,
					     .text = text };
		tei_meta_desc_add_buffer(d, "*", addr, 4096, NULL, NULL, NULL);
		tei_meta_desc_add_label(d, &l, NULL);
		/* each nested registration spans all buffers */
		snprintf(text, sizeof(text), "nested.%u", i);
		l = (struct tei_meta_label){ .addr = 4096, .text = text,
					     .length = UINT64_C(4096) * n,
					     .nested = true };
		tei_meta_desc_add_label(d, &l, NULL);
	}
	start = tei_now_ns();
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_freeze(d, NULL), 0);
	for (i = 0; i < n; i++) {
		snprintf(text, sizeof(text), "layers.%u.weight", i);
		found += tei_meta_desc_find_label(d, text, &at) == 1;
		snprintf(text, sizeof(text), "nested.%u", i);
		found += tei_meta_desc_find_label(d, text, &at) == 1;
	}
	took = tei_now_ns() - start;
	CU_ASSERT_EQUAL(found, 2 * n);
	d = label_again(d);
	CU_ASSERT_EQUAL(d->label_count, 2 * n);
	tei_meta_desc_unref(d);
	return (double)took / n;
}

/*
 * Tests that the time per label is about the same for 1 000 and for 16 000
 * registrations. If the whole time grew with the square of the number, the time
 * per label would be 16 times as long.
 */
static void test_cost_of_a_label_does_not_grow_with_their_number(void)
{
	double few, many, best = 1000;
	int round;

	for (round = 0; round < 5 && best > 3; round++) {
		few = label_time(1000);
		many = label_time(16000);
		best = many / few < best ? many / few : best;
		printf("# %.0f ns per label of 1000, %.0f of 16000\n", few,
		       many);
	}
	CU_ASSERT(best < 8);
}

const struct tei_test_case label_cases[] = {
	{ "label_of_a_registration_is_that_of_its_buffers",
	  test_label_of_a_registration_is_that_of_its_buffers },
	{ "same_label_twice_gives_both_in_order_of_address",
	  test_same_label_twice_gives_both_in_order_of_address },
	{ "bad_labels_are_refused", test_bad_labels_are_refused },
	{ "length_of_a_label_is_limited", test_length_of_a_label_is_limited },
	{ "cost_of_a_label_does_not_grow_with_their_number",
	  test_cost_of_a_label_does_not_grow_with_their_number },
	{ NULL, NULL },
};
