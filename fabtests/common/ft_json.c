/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_json.h"

#include <inttypes.h>
#include <math.h>

void ft_json_text(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20)
			fprintf(out, "\\u%04x", c);
		else
			fputc(c, out);
	}
	fputc('"', out);
}

static void json_member(struct ft_json *json, const char *key)
{
	if (json->comma)
		fputc(',', json->out);
	json->comma = true;
	if (key) {
		ft_json_text(json->out, key);
		fputc(':', json->out);
	}
}

void ft_json_open(struct ft_json *json, const char *key, char bracket)
{
	json_member(json, key);
	fputc(bracket, json->out);
	json->comma = false;
}

void ft_json_close(struct ft_json *json, char bracket)
{
	fputc(bracket, json->out);
	json->comma = true;
}

void ft_json_str(struct ft_json *json, const char *key, const char *value)
{
	json_member(json, key);
	ft_json_text(json->out, value);
}

void ft_json_u64(struct ft_json *json, const char *key, uint64_t value)
{
	json_member(json, key);
	fprintf(json->out, "%" PRIu64, value);
}

void ft_json_num(struct ft_json *json, const char *key, double value)
{
	json_member(json, key);
	fprintf(json->out, "%.6g", isfinite(value) ? value : 0.0);
}
