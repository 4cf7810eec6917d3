/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t tei_utf8_length(const char *at, const char *end)
{
	const unsigned char *p = (const unsigned char *)at;
	size_t n, i, left = (size_t)(end - at);
	uint32_t c;

	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (left < n)
		return 0;
	c = p[0] & (0xffu >> (n + 1));
	for (i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if ((n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) ||
	    (n == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 0;
	return n;
}

/* Returns the length of the UTF-8 character that begins at `at`, bytes. Returns
 * 0 if it is invalid or a control character. */
static size_t text_plain(const char *at, const char *end)
{
	return (unsigned char)*at < 0x20 || *at == 0x7f ?
		0 : tei_utf8_length(at, end);
}

bool tei_text_valid(const char *text, size_t max)
{
	size_t len = strnlen(text, max + 1), n, at;

	if (len > max)
		return false;
	for (at = 0; at < len; at += n) {
		n = text_plain(text + at, text + len);
		if (!n)
			return false;
	}
	return true;
}

void tei_text_escape(const char *text, char *out, size_t size)
{
	const char *end = text + strlen(text);
	size_t n, used = 0;

	for (; text < end; text += n ? n : 1) {
		n = text_plain(text, end);
		if (used + (n ? n : 4) >= size)
			break;
		if (n)
			memcpy(out + used, text, n);
		else
			snprintf(out + used, 5, "\\x%02x",
				 (unsigned char)*text);
		used += n ? n : 4;
	}
	out[used] = '\0';
}

uint64_t tei_hash_add(uint64_t hash, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len--)
		hash = (hash ^ *p++) * UINT64_C(0x100000001b3);
	return hash;
}

uint64_t tei_text_hash(const char *text)
{
	return tei_hash_add(TEI_HASH_INIT, text, strlen(text));
}
