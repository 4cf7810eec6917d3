/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_JSON_H
#define TEI_META_META_JSON_H

/*
 * A strict pull parser and a writer for JSON text. cJSON is not used here for
 * two reasons. Its tree of nodes needs 40 times the memory of the text, and a
 * malicious peer could send 64 MiB of text. And it stores numbers as doubles,
 * which would round 64-bit keys. A parser or writer belongs to one thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define META_JSON_DEPTH	32

/*
 * A parser. After the first error, every call returns false. The member "why"
 * then contains the text of the error, and p points to its position. Call
 * meta_json_fini at the end.
 */
struct meta_json {
	const char *start, *p, *end;
	const char *why; /* text of the first error, or NULL */
	char *text;	 /* the last string that was read, decoded; the memory
			  * grows as needed */
	size_t text_size, text_len;
	uint64_t first; /* one bit for each nesting depth: no element was read
			 * at that depth yet */
	unsigned int depth;
	bool no_memory;
};

void meta_json_init(struct meta_json *j, const char *text, size_t len);
void meta_json_fini(struct meta_json *j);

/* Records an error that the caller has found at the current position. Returns
 * false. */
bool meta_json_fail(struct meta_json *j, const char *why);

/* Returns the first character of the next value without consuming it. Returns 0
 * at the end of the text and after an error. */
char meta_json_peek(struct meta_json *j);

/*
 * meta_json_object and meta_json_array consume the opening bracket.
 * meta_json_member reads the next key into j->text and stops before its value.
 * meta_json_element stops before the next element. If there is no further
 * member or element, these two functions consume the closing bracket and return
 * false. They also return false after an error.
 */
bool meta_json_object(struct meta_json *j);
bool meta_json_member(struct meta_json *j);
bool meta_json_array(struct meta_json *j);
bool meta_json_element(struct meta_json *j);

/*
 * Each of these functions reads the next value. meta_json_string stores the
 * decoded string in j->text, terminated, as valid UTF-8 without NUL; that text
 * is valid until the next call. meta_json_u64 reads an integer literal or a
 * string of decimal digits without rounding. meta_json_skip checks and ignores
 * the value. meta_json_raw checks the value and sets *text to its JSON text.
 */
bool meta_json_string(struct meta_json *j);
bool meta_json_u64(struct meta_json *j, uint64_t *out);
bool meta_json_skip(struct meta_json *j);
bool meta_json_raw(struct meta_json *j, const char **text, size_t *len);

/* Returns true if the rest of the text is only white space. */
bool meta_json_done(struct meta_json *j);

/* Text under construction. If memory is short, "failed" becomes true and stays
 * true. */
struct meta_buf {
	char *text;
	size_t len, size;
	bool failed;
};

void meta_buf_bytes(struct meta_buf *b, const char *text, size_t len);
void meta_buf_text(struct meta_buf *b, const char *text);
void meta_buf_u64(struct meta_buf *b, uint64_t v);

/* Appends text as a JSON string, with quotes and escapes. */
void meta_buf_string(struct meta_buf *b, const char *text);
void meta_buf_hex(struct meta_buf *b, const uint8_t *bytes, size_t len);

/*
 * Converts hex digits to bytes, and sets *len to their number. Returns false if
 * the number of digits is odd, if text contains another character, or if there
 * are more than max bytes.
 */
bool meta_hex_parse(const char *text, uint8_t *out, size_t max, uint32_t *len);

#endif /* TEI_META_META_JSON_H */
