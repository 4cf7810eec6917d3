/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_TEXT_H
#define TEI_UTIL_TEXT_H

/* Text that goes to others: what is UTF-8, and what may be published. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the end of a noun after the number n: "%u rail%s". */
static inline const char *tei_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* Length of the UTF-8 sequence at at, before end; 0 if it is none. */
size_t tei_utf8_length(const char *at, const char *end);

/* Valid UTF-8 without control characters, at most max bytes. */
bool tei_text_valid(const char *text, size_t max);

/* For people: what isn't valid becomes \xNN. Cut to what fits into size. */
void tei_text_escape(const char *text, char *out, size_t size);

#endif /* TEI_UTIL_TEXT_H */
