/* SPDX-License-Identifier: BSD-2-Clause */
#include "topo/topo_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/err.h"

static const char json_sample[] =
	"{\"cpu:0\":[[\"a\",\"b\"],[\"c\"]],\"cpu:2\":[[\"c\"],[\"b\",\"a\"]],"
	"\"cpu:10\":[[],[\"a\"]],\"cuda:0\":[[\"b\"],[\"a\",\"c\"]]}";

static struct tei_topo *json_good(const char *text,
				  const struct tei_topo *base)
{
	struct tei_topo *topo = NULL;

	CU_ASSERT_EQUAL_FATAL(tei_topo_parse(text, base, 0, &topo, NULL), 0);
	return topo;
}

/* Parses the text, writes the matrix as JSON again, and compares it with
 * expected. */
static void json_expect(const char *text, const struct tei_topo *base,
			const char *expected)
{
	struct tei_topo *topo = json_good(text, base);
	char *out = NULL;

	CU_ASSERT_EQUAL_FATAL(tei_topo_json(topo, &out), 0);
	CU_ASSERT_STRING_EQUAL(out, expected);
	free(out);
	tei_topo_free(topo);
}

static void test_round_trip(void)
{
	struct tei_topo *base = topo_test_letters(3);

	json_expect(json_sample, NULL, json_sample);
	json_expect(json_sample, base, json_sample);
	json_expect("{\"q\\\"\\\\\\u00e9%1\":[[\"\\/x \xff\"],[]]}", NULL,
		    "{\"q\\\"\\\\\xc3\xa9%1\":[[\"/x \xff\"],[]]}");
	tei_topo_free(base);
}

static void test_order_is_stable(void)
{
	json_expect(" {\n\"cuda:1\" : [ [\"b\"], [] ],\t\"cpu:10\":[[\"a\"],[]"
		    "],\"cuda:0\":[[],[\"b\"]],\"cpu:9\":[[\"b\",\"a\"],[]]}\n",
		    NULL,
		    "{\"cpu:9\":[[\"b\",\"a\"],[]],\"cpu:10\":[[\"a\"],[]],"
		    "\"cuda:0\":[[],[\"b\"]],\"cuda:1\":[[\"b\"],[]]}");
}

static void test_builds_the_nic_list_from_the_names(void)
{
	struct tei_topo *topo = json_good(
		"{\"cuda:0\":[[\"n1\"],[\"n0\"]],\"cpu:0\":[[\"n2\",\"n1\"],"
		"[]],\"*\":[[\"n3\"],[]]}", NULL);

	CU_ASSERT_EQUAL(tei_topo_nic_count(topo), 4);
	CU_ASSERT_EQUAL(tei_topo_find_nic(topo, "n1"), 0);
	CU_ASSERT_EQUAL(tei_topo_find_nic(topo, "n0"), 1);
	CU_ASSERT_EQUAL(tei_topo_find_nic(topo, "n2"), 2);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "*"), "n1 n0 n2 n3|");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cuda:0"), "n1|n0");
	tei_topo_free(topo);
}

static void test_nics_without_a_place_are_under_any(void)
{
	struct tei_topo *base = topo_test_letters(2);

	json_expect("{}", base, "{\"*\":[[\"a\",\"b\"],[]]}");
	json_expect("{}", NULL, "{}");
	json_expect("{\"*\":[[\"b\"],[]],\"cpu:0\":[[\"a\"],[]]}", base,
		    "{\"cpu:0\":[[\"a\"],[]],\"*\":[[\"a\",\"b\"],[]]}");
	tei_topo_free(base);
}

static void test_nics_never_named_are_off(void)
{
	struct tei_topo *base = topo_test_letters(4), *topo;

	topo = json_good(json_sample, base);
	CU_ASSERT(!tei_topo_nic(topo, 0)->off);
	CU_ASSERT(tei_topo_nic(topo, 3)->off);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "*"), "a b c|");
	tei_topo_free(topo);
	/* a matrix that names no NIC switches no NIC off */
	topo = json_good("{\"cpu:0\":[[],[]]}", base);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:0"), "a b c d|");
	tei_topo_free(topo);
	tei_topo_free(base);
}

static void test_disabled_nic_stays_disabled(void)
{
	const struct tei_topo_nic_desc nics[] = {
		{ .name = "a", .off = true }, { .name = "b", .speed = 7 },
	};
	struct tei_topo *topo, *base;

	CU_ASSERT_EQUAL_FATAL(tei_topo_create(nics, 2, &base, NULL), 0);
	topo = json_good("{\"cpu:0\":[[\"a\"],[\"b\"]],"
			 "\"cpu:1\":[[\"a\"],[]]}", base);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:0"), "b|");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:1"), "b|");
	CU_ASSERT_EQUAL(tei_topo_nic(topo, 1)->speed, 7);
	tei_topo_free(topo);
	tei_topo_free(base);
}

static void test_unknown_names_are_left_out(void)
{
	static const char some[] = "{\"cpu:0\":[[\"x\",\"a\"],[\"y\"]]}";
	static const char none[] = "{\"cpu:0\":[[\"x\"],[\"y\"]]}";
	struct tei_topo *base = topo_test_letters(2), *topo = NULL;
	struct tei_err err;

	json_expect(some, base, "{\"cpu:0\":[[\"a\"],[]]}");
	CU_ASSERT_EQUAL(tei_topo_parse(some, base, TEI_TOPO_STRICT, &topo,
				       &err), TEI_ERR_NO_DEVICE);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "x is not a NIC"));
	CU_ASSERT_EQUAL(tei_topo_parse(none, base, 0, &topo, &err),
			TEI_ERR_NO_DEVICE);
	CU_ASSERT_PTR_NULL(topo);
	tei_topo_free(base);
}

static void test_a_name_twice_counts_once(void)
{
	json_expect("{\"cpu:0\":[[\"a\",\"b\",\"a\"],[\"b\",\"c\",\"c\"]]}",
		    NULL, "{\"cpu:0\":[[\"a\",\"b\"],[\"c\"]]}");
}

static void test_malformed_text_is_refused(void)
{
	static const struct {
		const char *text, *says;
	} rows[] = {
		{ "", "line 1, column 1" },
		{ "  ", "syntax error" },
		{ "null", "not an object" },
		{ "[]", "not an object" },
		{ "\"cpu:0\"", "not an object" },
		{ "{", "syntax error" },
		{ "{}}", "syntax error at line 1, column 3" },
		{ "{} x", "syntax error" },
		{ "{\n \"cpu:0\": [[\"a\"], [}\n", "line 2" },
		{ "{\"cpu:0\":[[\"a\"],[]],}", "syntax error" },
		{ "{\"cpu:0\":[[\"a\"]]}", "\"cpu:0\": not a pair" },
		{ "{\"cpu:0\":[[\"a\"],[],[]]}", "not a pair" },
		{ "{\"cpu:0\":[\"a\",\"b\"]}", "not a pair" },
		{ "{\"cpu:0\":[[],{}]}", "not a pair" },
		{ "{\"cpu:0\":{\"a\":[],\"b\":[]}}", "not a pair" },
		{ "{\"cpu:0\":7}", "not a pair" },
		{ "{\"cpu:0\":null}", "not a pair" },
		{ "{\"cpu:0\":[[7],[]]}", "not a string" },
		{ "{\"cpu:0\":[[null],[]]}", "not a string" },
		{ "{\"cpu:0\":[[\"\"],[]]}", "empty name" },
		{ "{\"\":[[],[]]}", "empty name" },
		{ "{\"cpu:0\":[[\"a\\n\"],[]]}", "control character" },
		{ "{\"cpu:0\":[[\"a\\u0000b\"],[]]}", "NUL" },
		{ "{\"cpu:0\\u0000\":[[],[]]}", "NUL" },
		{ "{\"cpu\\n\":[[],[]]}", "\"cpu?\": control character" },
		{ "{\"cpu:0\":[[\"a\"],[]],\"cpu:0\":[[],[]]}", "given twice" },
		{ "{\"cpu:0\":[[[\"a\"]],[]]}", "nested too deeply" },
		{ "{\"cpu:0\":[[\"a\",],[]]}", "syntax error" },
		{ "{\"cpu:0\":[[\"a],[]]}", "syntax error" },
		{ "{\"cpu:0\":[[\"\\", "syntax error" },
		{ "{\"cpu:0\":[[\"\\ud800\"],[]]}", "syntax error" },
		{ "{'cpu:0':[[],[]]}", "syntax error" },
		{ "{\"cpu:0\":[[012],[]]}", "not a string" },
		{ "]]]]]]{{{{{{", "syntax error" },
	};
	struct tei_topo *topo = NULL;
	struct tei_err err;
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		err.text[0] = '\0';
		CU_ASSERT_EQUAL(tei_topo_parse(rows[i].text, NULL, 0, &topo,
					       &err), TEI_ERR_JSON);
		CU_ASSERT_PTR_NULL(topo);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text, rows[i].says));
		if (!strstr(err.text, rows[i].says))
			printf("# row %zu: %s\n", i, err.text);
	}
	CU_ASSERT_EQUAL(tei_topo_parse(NULL, NULL, 0, &topo, &err),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_topo_parse("{}", NULL, 0, NULL, &err),
			TEI_ERR_INVALID);
}

/* Returns a text: head, then unit repeated count times, then tail. The caller
 * frees the text. */
static char *json_repeat(const char *head, const char *unit, size_t count,
			 const char *tail)
{
	size_t n = strlen(unit), i;
	char *text = malloc(strlen(head) + n * count + strlen(tail) + 1), *p;

	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	p = stpcpy(text, head);
	for (i = 0; i < count; i++, p += n)
		memcpy(p, unit, n);
	strcpy(p, tail);
	return text;
}

static void json_refused(char *text)
{
	struct tei_topo *topo = NULL;

	CU_ASSERT_EQUAL(tei_topo_parse(text, NULL, 0, &topo, NULL),
			TEI_ERR_JSON);
	tei_topo_free(topo);
	free(text);
}

static void test_bounds_hold(void)
{
	struct tei_topo *topo = NULL;
	char *text;

	json_refused(json_repeat("", "[", 1000000, ""));
	json_refused(json_repeat("", "{\"a\":", 100000, ""));
	json_refused(json_repeat("{\"a\":[[\"", "x", 64, "\"],[]]}"));
	json_refused(json_repeat("{\"", "x", 64, "\":[[],[]]}"));
	json_refused(json_repeat("{}", " ", TEI_TOPO_MAX_TEXT, ""));
	text = json_repeat("{}", " ", TEI_TOPO_MAX_TEXT - 2, "");
	CU_ASSERT_EQUAL(tei_topo_parse(text, NULL, 0, &topo, NULL), 0);
	tei_topo_free(topo);
	free(text);
	/* brackets within a string do not count as nesting */
	text = json_repeat("{\"a\":[[\"", "[", 63, "\"],[]]}");
	CU_ASSERT_EQUAL(tei_topo_parse(text, NULL, 0, &topo, NULL), 0);
	tei_topo_free(topo);
	free(text);
	/* the same NIC may be named many times */
	text = json_repeat("{\"a\":[[\"b\"", ",\"a\"", 250000, "],[]]}");
	CU_ASSERT_EQUAL(tei_topo_parse(text, NULL, 0, &topo, NULL), 0);
	CU_ASSERT_EQUAL(tei_topo_nic_count(topo), 2);
	tei_topo_free(topo);
	free(text);
}

/* Returns a matrix with the given numbers of locations and NICs: {"n0":
 * [["n0"], []], …}. The caller frees it. */
static char *json_numbered(unsigned int locations, unsigned int nics)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	unsigned int i;

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputc('{', f);
	for (i = 0; i < locations; i++)
		fprintf(f, "%s\"l%u\":[[\"n%u\"],[]]", i ? "," : "", i,
			i % nics);
	fputc('}', f);
	fclose(f);
	return text;
}

static void test_counts_are_bounded(void)
{
	struct tei_topo *topo = NULL;
	char *text, *out;

	json_refused(json_numbered(TEI_TOPO_MAX_LOCATIONS + 1, 1));
	json_refused(json_numbered(TEI_TOPO_MAX_LOCATIONS,
				   TEI_TOPO_MAX_NICS + 1));
	text = json_numbered(TEI_TOPO_MAX_LOCATIONS, TEI_TOPO_MAX_NICS);
	CU_ASSERT_EQUAL_FATAL(tei_topo_parse(text, NULL, 0, &topo, NULL), 0);
	CU_ASSERT_EQUAL(tei_topo_nic_count(topo), TEI_TOPO_MAX_NICS);
	CU_ASSERT_EQUAL(tei_topo_location_count(topo), TEI_TOPO_MAX_LOCATIONS);
	CU_ASSERT_EQUAL_FATAL(tei_topo_json(topo, &out), 0);
	CU_ASSERT_STRING_EQUAL(out, text);
	free(out);
	free(text);
	tei_topo_free(topo);
}

static unsigned int json_random(unsigned int *state)
{
	*state = *state * 1103515245u + 12345u;
	return *state >> 8;
}

/* Changes the text at random: replaces, removes or duplicates one byte, or
 * moves a part of the text. */
static void json_mutate(char *text, size_t *len, unsigned int *state)
{
	static const char bytes[] = "{}[]\",:\\u0 \n\x01\xff" "cn*";
	size_t at = json_random(state) % *len;

	switch (json_random(state) % 4) {
	case 0:
		text[at] = bytes[json_random(state) % (sizeof(bytes) - 1)];
		break;
	case 1:
		memmove(text + at, text + at + 1, *len - at);
		*len -= *len > 1;
		break;
	case 2:
		memmove(text + at + 1, text + at, *len - at + 1);
		*len += 1;
		break;
	default:
		text[at] = text[json_random(state) % *len];
	}
}

/* Returns false if the text can be parsed, but the JSON that is written for it
 * does not result in the same matrix. */
static bool json_fixpoint(const char *text)
{
	struct tei_topo *topo = NULL, *again = NULL;
	char *one = NULL, *two = NULL;
	bool good;

	if (tei_topo_parse(text, NULL, 0, &topo, NULL))
		return false;
	CU_ASSERT_EQUAL_FATAL(tei_topo_json(topo, &one), 0);
	good = !tei_topo_parse(one, NULL, 0, &again, NULL) &&
	       !tei_topo_json(again, &two) && !strcmp(one, two);
	CU_ASSERT(good);
	if (!good)
		printf("# %s -> %s\n", text, one);
	free(one);
	free(two);
	tei_topo_free(topo);
	tei_topo_free(again);
	return true;
}

static void test_random_mutations_are_refused_or_read(void)
{
	char text[2 * sizeof(json_sample)];
	unsigned int state = 42, parsed = 0, i, k;
	size_t len;

	for (i = 0; i < 5000; i++) {
		memcpy(text, json_sample, sizeof(json_sample));
		len = sizeof(json_sample) - 1;
		for (k = 1 + i % 4; k && len > 1; k--)
			json_mutate(text, &len, &state);
		text[len] = '\0';
		parsed += json_fixpoint(text);
	}
	CU_ASSERT(parsed > 100);
	CU_ASSERT(parsed < 4900);
}

const struct tei_test_case json_cases[] = {
	{ "round_trip", test_round_trip },
	{ "order_is_stable", test_order_is_stable },
	{ "builds_the_nic_list_from_the_names",
	  test_builds_the_nic_list_from_the_names },
	{ "nics_without_a_place_are_under_any",
	  test_nics_without_a_place_are_under_any },
	{ "nics_never_named_are_off", test_nics_never_named_are_off },
	{ "disabled_nic_stays_disabled", test_disabled_nic_stays_disabled },
	{ "unknown_names_are_left_out", test_unknown_names_are_left_out },
	{ "a_name_twice_counts_once", test_a_name_twice_counts_once },
	{ "malformed_text_is_refused", test_malformed_text_is_refused },
	{ "bounds_hold", test_bounds_hold },
	{ "counts_are_bounded", test_counts_are_bounded },
	{ "random_mutations_are_refused_or_read",
	  test_random_mutations_are_refused_or_read },
	{ NULL, NULL },
};
