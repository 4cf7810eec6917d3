/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_JSON_H
#define TEI_FABTESTS_COMMON_FT_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Writes one JSON value on one line to a stream. key is NULL inside an array
 * and for the outermost object. The caller is responsible for correct
 * nesting. */
struct ft_json {
	FILE *out;
	bool comma;	/* the next member is preceded by a comma */
};

/* Writes a quoted string without a key. */
void ft_json_text(FILE *out, const char *text);
void ft_json_open(struct ft_json *json, const char *key, char bracket);
void ft_json_close(struct ft_json *json, char bracket);
void ft_json_str(struct ft_json *json, const char *key, const char *value);
void ft_json_u64(struct ft_json *json, const char *key, uint64_t value);
void ft_json_num(struct ft_json *json, const char *key, double value);

#endif /* TEI_FABTESTS_COMMON_FT_JSON_H */
