/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_JSON_H
#define TEI_META_META_JSON_H

/*
 * A strict pull reader and a writer for JSON text. There is no tree: a
 * tree of cJSON nodes costs 40 times the text, which a stranger could ask for
 * at 64 MiB, and keeps numbers as doubles, which rounds 64-bit keys. Reader
 * and writer belong to one thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define META_JSON_DEPTH	32

/*
 * Errors stick: after the first one every call returns false and why says
 * what it was, p where. Call meta_json_fini at the end.
 */
struct meta_json {
	const char *start, *p, *end;
	const char *why;		/* NULL: no error so far */
	char *text;			/* last string, decoded; grows */
	size_t text_size, text_len;
	uint64_t first;			/* bit per depth: no element yet */
	unsigned int depth;
	bool no_memory;
};

void meta_json_init(struct meta_json *j, const char *text, size_t len);
void meta_json_fini(struct meta_json *j);

/* Records an error of the caller's at the current place; returns false. */
bool meta_json_fail(struct meta_json *j, const char *why);

/* First character of the next value, 0 at the end or after an error. */
char meta_json_peek(struct meta_json *j);

/*
 * begin consumes the bracket. member leaves the next key in j->text, element
 * stands before the next value; both give false after the closing bracket
 * (consumed) or on an error.
 */
bool meta_json_object(struct meta_json *j);
bool meta_json_member(struct meta_json *j);
bool meta_json_array(struct meta_json *j);
bool meta_json_element(struct meta_json *j);

/*
 * The next value. string: into j->text, terminated, valid until the next
 * call, valid UTF-8 without NUL. u64: an integer literal or a string of
 * decimal digits, exact. raw: the value's own text, checked.
 */
bool meta_json_string(struct meta_json *j);
bool meta_json_u64(struct meta_json *j, uint64_t *out);
bool meta_json_skip(struct meta_json *j);
bool meta_json_raw(struct meta_json *j, const char **text, size_t *len);

/* Nothing but white space is left. */
bool meta_json_done(struct meta_json *j);

/* Text under construction; failed sticks when memory runs out. */
struct meta_buf {
	char *text;
	size_t len, size;
	bool failed;
};

void meta_buf_bytes(struct meta_buf *b, const char *text, size_t len);
void meta_buf_text(struct meta_buf *b, const char *text);
void meta_buf_u64(struct meta_buf *b, uint64_t v);

/* Quoted, escaped. */
void meta_buf_string(struct meta_buf *b, const char *text);
void meta_buf_hex(struct meta_buf *b, const uint8_t *bytes, size_t len);

/*
 * Hex text to bytes; false for an odd count, another character or more than
 * max bytes.
 */
bool meta_hex_parse(const char *text, uint8_t *out, size_t max, uint32_t *len);

#endif /* TEI_META_META_JSON_H */
