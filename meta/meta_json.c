/* SPDX-License-Identifier: BSD-2-Clause */
#include "meta/meta_json.h"

#include <stdlib.h>
#include <string.h>

#include "util/text.h"

void meta_json_init(struct meta_json *j, const char *text, size_t len)
{
	memset(j, 0, sizeof(*j));
	j->start = text;
	j->p = text;
	j->end = text + len;
}

void meta_json_fini(struct meta_json *j)
{
	free(j->text);
	j->text = NULL;
}

bool meta_json_fail(struct meta_json *j, const char *why)
{
	if (!j->why)
		j->why = why;
	return false;
}

char meta_json_peek(struct meta_json *j)
{
	if (j->why)
		return 0;
	while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' ||
				 *j->p == '\n' || *j->p == '\r'))
		j->p++;
	return j->p < j->end ? *j->p : 0;
}

static bool json_open(struct meta_json *j, char bracket, const char *why)
{
	if (meta_json_peek(j) != bracket)
		return meta_json_fail(j, why);
	if (j->depth == META_JSON_DEPTH)
		return meta_json_fail(j, "nested too deeply");
	j->p++;
	j->depth++;
	j->first |= UINT64_C(1) << j->depth;
	return true;
}

bool meta_json_object(struct meta_json *j)
{
	return json_open(j, '{', "not an object");
}

bool meta_json_array(struct meta_json *j)
{
	return json_open(j, '[', "not an array");
}

/*
 * Consumes the closing bracket of an object or array, or the comma before the
 * next element. Returns true if another element follows. Returns false after
 * the closing bracket and after an error.
 */
static bool json_more(struct meta_json *j, char closing)
{
	uint64_t bit = UINT64_C(1) << j->depth;
	char c = meta_json_peek(j);

	if (c == closing) {
		j->p++;
		j->depth--;
		return false;
	}
	if (j->first & bit) {
		j->first &= ~bit;
		return !j->why;
	}
	if (c != ',')
		return meta_json_fail(j, c ? "comma or bracket expected" :
				      "ends too early");
	j->p++;
	return true;
}

bool meta_json_element(struct meta_json *j)
{
	return json_more(j, ']');
}

bool meta_json_member(struct meta_json *j)
{
	if (!json_more(j, '}') || !meta_json_string(j))
		return false;
	if (meta_json_peek(j) != ':')
		return meta_json_fail(j, "colon expected");
	j->p++;
	return true;
}

static bool json_put(struct meta_json *j, const char *bytes, size_t len)
{
	size_t size;
	char *text;

	if (j->text_len + len + 1 > j->text_size) {
		size = 2 * (j->text_len + len) + 64;
		text = realloc(j->text, size);
		if (!text) {
			j->no_memory = true;
			return meta_json_fail(j, "no memory");
		}
		j->text = text;
		j->text_size = size;
	}
	memcpy(j->text + j->text_len, bytes, len);
	j->text_len += len;
	j->text[j->text_len] = 0;
	return true;
}

static int json_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Returns the value of the four hex digits at j->p, or -1 if there are not
 * four. */
static int32_t json_unit(const struct meta_json *j)
{
	int32_t v = 0;
	int i, d;

	if (j->end - j->p < 4)
		return -1;
	for (i = 0; i < 4; i++) {
		d = json_hex_digit(j->p[i]);
		if (d < 0)
			return -1;
		v = v * 16 + d;
	}
	return v;
}

static size_t json_utf8_encode(uint32_t c, char out[4])
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* Parses the hex digits after "\u", and the second escape of a surrogate pair.
 * Appends the code point as UTF-8 to the decoded string. */
static bool json_code_point(struct meta_json *j)
{
	int32_t hi = json_unit(j), lo;
	uint32_t c;
	char out[4];

	if (hi <= 0 || (hi >= 0xdc00 && hi < 0xe000))
		return meta_json_fail(j, "bad \\u escape");
	j->p += 4;
	c = (uint32_t)hi;
	if (hi >= 0xd800 && hi < 0xdc00) {
		if (j->end - j->p < 6 || j->p[0] != '\\' || j->p[1] != 'u')
			return meta_json_fail(j, "bad \\u escape");
		j->p += 2;
		lo = json_unit(j);
		if (lo < 0xdc00 || lo >= 0xe000)
			return meta_json_fail(j, "bad \\u escape");
		j->p += 4;
		c = 0x10000 + (((uint32_t)hi & 0x3ff) << 10) +
		    ((uint32_t)lo & 0x3ff);
	}
	return json_put(j, out, json_utf8_encode(c, out));
}

static bool json_escape(struct meta_json *j)
{
	static const char from[] = "\"\\/bfnrt";
	static const char to[] = "\"\\/\b\f\n\r\t";
	const char *at;
	char c;

	if (j->p == j->end)
		return meta_json_fail(j, "ends too early");
	c = *j->p++;
	if (c == 'u')
		return json_code_point(j);
	at = c ? strchr(from, c) : NULL;
	if (!at)
		return meta_json_fail(j, "bad escape");
	return json_put(j, &to[at - from], 1);
}

/* Returns the end of the sequence of characters at j->p that need no decoding.
 * Returns NULL after an error. */
static const char *json_plain(struct meta_json *j)
{
	const char *p = j->p;
	size_t n;

	while (p < j->end && *p != '"' && *p != '\\') {
		n = tei_utf8_length(p, j->end);
		if (!n || (unsigned char)*p < 0x20) {
			meta_json_fail(j, n ? "control character in a string" :
				       "not UTF-8");
			return NULL;
		}
		p += n;
	}
	return p;
}

bool meta_json_string(struct meta_json *j)
{
	const char *stop;

	if (meta_json_peek(j) != '"')
		return meta_json_fail(j, "not a string");
	j->p++;
	j->text_len = 0;
	for (;;) {
		stop = json_plain(j);
		if (!stop || !json_put(j, j->p, (size_t)(stop - j->p)))
			return false;
		j->p = stop;
		if (j->p == j->end)
			return meta_json_fail(j, "ends too early");
		if (*j->p++ == '"')
			return true;
		if (!json_escape(j))
			return false;
	}
}

static bool json_digits(const char **p, const char *end, uint64_t *out)
{
	const char *start = *p;
	uint64_t v = 0;

	while (*p < end && **p >= '0' && **p <= '9') {
		if (__builtin_mul_overflow(v, UINT64_C(10), &v) ||
		    __builtin_add_overflow(v, (uint64_t)(**p - '0'), &v))
			return false;
		(*p)++;
	}
	*out = v;
	return *p > start && (*start != '0' || *p == start + 1);
}

bool meta_json_u64(struct meta_json *j, uint64_t *out)
{
	static const char why[] = "not a whole number of 64 bits";
	const char *p, *end;
	bool quoted = meta_json_peek(j) == '"';

	if (quoted && !meta_json_string(j))
		return false;
	if (j->why)
		return false;
	p = quoted ? j->text : j->p;
	end = quoted ? j->text + j->text_len : j->end;
	if (!json_digits(&p, end, out))
		return meta_json_fail(j, why);
	if (quoted && p != end)
		return meta_json_fail(j, why);
	if (!quoted && p < end && (*p == '.' || *p == 'e' || *p == 'E'))
		return meta_json_fail(j, why);
	if (!quoted)
		j->p = p;
	return true;
}

static const char *json_run(const char *p, const char *end)
{
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p;
}

/* Checks and skips a number. */
static bool json_skip_number(struct meta_json *j)
{
	const char *p = j->p, *q;

	if (p < j->end && *p == '-')
		p++;
	q = json_run(p, j->end);
	if (q == p || (*p == '0' && q > p + 1))
		return meta_json_fail(j, "not a value");
	p = q;
	if (p < j->end && *p == '.') {
		q = json_run(p + 1, j->end);
		if (q == p + 1)
			return meta_json_fail(j, "not a number");
		p = q;
	}
	if (p < j->end && (*p == 'e' || *p == 'E')) {
		p++;
		if (p < j->end && (*p == '+' || *p == '-'))
			p++;
		q = json_run(p, j->end);
		if (q == p)
			return meta_json_fail(j, "not a number");
		p = q;
	}
	j->p = p;
	return true;
}

static bool json_skip_word(struct meta_json *j)
{
	static const char *const words[] = { "true", "false", "null" };
	size_t i, n;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		n = strlen(words[i]);
		if ((size_t)(j->end - j->p) >= n &&
		    !memcmp(j->p, words[i], n)) {
			j->p += n;
			return true;
		}
	}
	return json_skip_number(j);
}

/* Calls itself for nested values, at most META_JSON_DEPTH times deep. */
bool meta_json_skip(struct meta_json *j)
{
	switch (meta_json_peek(j)) {
	case '{':
		if (!meta_json_object(j))
			return false;
		while (meta_json_member(j))
			if (!meta_json_skip(j))
				return false;
		return !j->why;
	case '[':
		if (!meta_json_array(j))
			return false;
		while (meta_json_element(j))
			if (!meta_json_skip(j))
				return false;
		return !j->why;
	case '"':
		return meta_json_string(j);
	case 0:
		return meta_json_fail(j, "ends too early");
	default:
		return json_skip_word(j);
	}
}

bool meta_json_raw(struct meta_json *j, const char **text, size_t *len)
{
	meta_json_peek(j);
	*text = j->p;
	if (!meta_json_skip(j))
		return false;
	*len = (size_t)(j->p - *text);
	return true;
}

bool meta_json_done(struct meta_json *j)
{
	meta_json_peek(j);
	if (!j->why && j->p != j->end)
		meta_json_fail(j, "unexpected text after the value");
	return !j->why;
}

static char *buf_room(struct meta_buf *b, size_t len)
{
	size_t size;
	char *text;

	if (b->failed)
		return NULL;
	if (b->len + len + 1 > b->size) {
		size = 2 * (b->len + len) + 256;
		text = realloc(b->text, size);
		if (!text) {
			b->failed = true;
			return NULL;
		}
		b->text = text;
		b->size = size;
	}
	text = b->text + b->len;
	b->len += len;
	b->text[b->len] = 0;
	return text;
}

void meta_buf_bytes(struct meta_buf *b, const char *text, size_t len)
{
	char *to = buf_room(b, len);

	if (to)
		memcpy(to, text, len);
}

void meta_buf_text(struct meta_buf *b, const char *text)
{
	meta_buf_bytes(b, text, strlen(text));
}

void meta_buf_u64(struct meta_buf *b, uint64_t v)
{
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	meta_buf_bytes(b, digits + at, sizeof(digits) - at);
}

void meta_buf_string(struct meta_buf *b, const char *text)
{
	static const char hex[] = "0123456789abcdef";
	const char *run = text;
	char escape[6] = { '\\', 'u', '0', '0', 0, 0 };

	meta_buf_bytes(b, "\"", 1);
	for (; *text; text++) {
		if ((unsigned char)*text >= 0x20 && *text != '"' &&
		    *text != '\\')
			continue;
		meta_buf_bytes(b, run, (size_t)(text - run));
		escape[4] = hex[*text >> 4 & 15];
		escape[5] = hex[*text & 15];
		meta_buf_bytes(b, escape, sizeof(escape));
		run = text + 1;
	}
	meta_buf_bytes(b, run, (size_t)(text - run));
	meta_buf_bytes(b, "\"", 1);
}

void meta_buf_hex(struct meta_buf *b, const uint8_t *bytes, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	char *to = buf_room(b, 2 * len + 2);
	size_t i;

	if (!to)
		return;
	*to++ = '"';
	for (i = 0; i < len; i++) {
		*to++ = hex[bytes[i] >> 4];
		*to++ = hex[bytes[i] & 15];
	}
	*to = '"';
}

bool meta_hex_parse(const char *text, uint8_t *out, size_t max, uint32_t *len)
{
	size_t n = strlen(text), i;
	int hi, lo;

	if (n % 2 || n / 2 > max)
		return false;
	for (i = 0; i < n / 2; i++) {
		hi = json_hex_digit(text[2 * i]);
		lo = json_hex_digit(text[2 * i + 1]);
		if (hi < 0 || lo < 0)
			return false;
		out[i] = (uint8_t)(hi << 4 | lo);
	}
	*len = (uint32_t)n / 2;
	return true;
}
