/* SPDX-License-Identifier: BSD-2-Clause */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/te_info.h"

#define DOC_TEXT 4096

/* Returns the length of the UTF-8 sequence at p, or 0 if it is invalid. */
static size_t doc_utf8(const unsigned char *p)
{
	size_t n = *p < 0x80 ? 1 : *p >= 0xc2 && *p < 0xe0 ? 2 :
		   (*p & 0xf0) == 0xe0 ? 3 : *p >= 0xf0 && *p < 0xf5 ? 4 : 0;
	size_t i;

	for (i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if (n == 3 && ((*p == 0xe0 && p[1] < 0xa0) ||
		       (*p == 0xed && p[1] > 0x9f)))
		return 0;
	if (n == 4 && ((*p == 0xf0 && p[1] < 0x90) ||
		       (*p == 0xf4 && p[1] > 0x8f)))
		return 0;
	return n;
}

/* Replaces invalid UTF-8 and control characters in text with '?', because a
 * terminal could take them for an escape sequence. U+0080 to U+009F count as
 * control characters too. If one_line is true, newlines are replaced as
 * well. */
static void doc_clean(char *text, bool one_line)
{
	unsigned char *p = (unsigned char *)text;
	size_t n;

	while (*p) {
		n = doc_utf8(p);
		if (!n || (*p < 0x20 && (one_line || *p != '\n')) ||
		    *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0)) {
			*p = '?';
			n = 1;
		}
		p += n;
	}
}

static cJSON *doc_add(cJSON *parent, const char *key, cJSON *item)
{
	bool ok = false;

	if (parent && item)
		ok = key ? cJSON_AddItemToObject(parent, key, item) :
			   cJSON_AddItemToArray(parent, item);
	if (ok)
		return item;
	cJSON_Delete(item);
	return NULL;
}

cJSON *info_object(cJSON *parent, const char *key)
{
	return doc_add(parent, key, cJSON_CreateObject());
}

cJSON *info_array(cJSON *parent, const char *key)
{
	return doc_add(parent, key, cJSON_CreateArray());
}

static void doc_vtext(cJSON *parent, const char *key, const char *fmt,
		      va_list ap)
{
	char text[DOC_TEXT];

	vsnprintf(text, sizeof(text), fmt, ap);
	doc_clean(text, false);
	doc_add(parent, key, cJSON_CreateString(text));
}

void info_text(cJSON *parent, const char *key, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	doc_vtext(parent, key, fmt, ap);
	va_end(ap);
}

void info_num(cJSON *parent, const char *key, double value)
{
	doc_add(parent, key, cJSON_CreateNumber(isfinite(value) ? value : 0));
}

void info_bool(cJSON *parent, const char *key, bool value)
{
	doc_add(parent, key, cJSON_CreateBool(value));
}

void info_clean(cJSON *item)
{
	for (; item; item = item->next) {
		if (item->string)
			doc_clean(item->string, true);
		if (item->valuestring)
			doc_clean(item->valuestring, true);
		if (cJSON_IsNumber(item) && !isfinite(item->valuedouble))
			cJSON_SetNumberValue(item, 0);
		info_clean(item->child);
	}
}

const char *info_get(const cJSON *object, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsString(item) ? item->valuestring : "";
}

double info_get_num(const cJSON *object, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

	return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

const char *info_state_name(uint32_t state)
{
	static const char *const names[] = { "up", "suspect", "down",
					     "probing" };

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

/* --- findings ------------------------------------------------------------ */

const char *info_grade_name(enum info_grade grade)
{
	static const char *const names[] = { "ok", "note", "warn", "bad" };

	return names[grade];
}

cJSON *info_find(struct info *info, enum info_grade grade, const char *id,
		 const char *subject)
{
	cJSON *f = info_object(info->findings, NULL);

	if (grade > info->worst)
		info->worst = grade;
	info_text(f, "grade", "%s", info_grade_name(grade));
	info_text(f, "id", "%s", id);
	info_text(f, "subject", "%s", subject);
	return f;
}

void info_what(cJSON *finding, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	doc_vtext(finding, "what", fmt, ap);
	va_end(ap);
}

void info_why(cJSON *finding, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	doc_vtext(finding, "why", fmt, ap);
	va_end(ap);
}

void info_cure(cJSON *finding, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	doc_vtext(finding, "cure", fmt, ap);
	va_end(ap);
}

void info_fine(struct info *info, const char *id, const char *subject,
	       const char *fmt, ...)
{
	cJSON *f = info_find(info, INFO_OK, id, subject);
	va_list ap;

	va_start(ap, fmt);
	doc_vtext(f, "what", fmt, ap);
	va_end(ap);
}

void info_unseen(struct info *info, const char *id, const char *fmt, ...)
{
	cJSON *u = info_object(info->unseen, NULL);
	va_list ap;

	info_text(u, "id", "%s", id);
	va_start(ap, fmt);
	doc_vtext(u, "reason", fmt, ap);
	va_end(ap);
}
