/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_TEXT_H
#define TEI_UTIL_TEXT_H

/* Checks of text that leaves the process: valid UTF-8, fit for publication. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the plural ending of a noun after the number n: "%u rail%s". */
static inline const char *tei_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/*
 * Returns the length of the UTF-8 sequence that begins at at and ends before
 * end, or 0 if it is invalid.
 */
size_t tei_utf8_length(const char *at, const char *end);

/*
 * Returns true if text is valid UTF-8 without control characters and has at
 * most max bytes.
 */
bool tei_text_valid(const char *text, size_t max);

/*
 * Copies text for display, with each invalid byte as \xNN. The copy is
 * terminated and cut at a character so that it fits into size bytes.
 */
void tei_text_escape(const char *text, char *out, size_t size);

#endif /* TEI_UTIL_TEXT_H */
