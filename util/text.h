/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_TEXT_H
#define TEI_UTIL_TEXT_H

/* Checks and escapes text (UTF-8) before it leaves the process, and computes
 * hashes of text. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns "s" or "": the plural ending of a noun after the number n, as in "%u
 * rail%s". */
static inline const char *tei_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/*
 * Returns the length of the UTF-8 sequence that begins at `at`, or 0 if the
 * sequence is invalid or continues beyond `end`.
 */
size_t tei_utf8_length(const char *at, const char *end);

/*
 * Returns true if text is valid UTF-8 without control characters and has at
 * most max bytes.
 */
bool tei_text_valid(const char *text, size_t max);

/* Copies text for display and replaces each invalid byte with \xNN. If the copy
 * does not fit into size bytes, cuts it at the end of a character. The copy is
 * terminated. */
void tei_text_escape(const char *text, char *out, size_t size);

/*
 * FNV-1a hash with 64 bits (Fowler, Noll, Vo). Returns the hash of the earlier
 * bytes and of len further bytes. The first call passes TEI_HASH_INIT as the
 * hash of the earlier bytes. An attacker can construct input with a given hash.
 */
#define TEI_HASH_INIT UINT64_C(0xcbf29ce484222325)
uint64_t tei_hash_add(uint64_t hash, const void *data, size_t len);

/* Returns the FNV-1a hash of a string. */
uint64_t tei_text_hash(const char *text);

#endif /* TEI_UTIL_TEXT_H */
