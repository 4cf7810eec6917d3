/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "fabtests/common/ft_num.h"
#include "fabtests/common/ft_options.h"

/* The option being read: the program, its row and the text of its value. */
struct option_at {
	const char *program;
	const struct ft_option *row;
	const char *value;
};

/* Prints why the value is refused and returns -1. */
static int option_wrong(const struct option_at *at, const char *why)
{
	fprintf(stderr, "%s: --%s=%s: %s\n", at->program, at->row->name,
		at->value, why);
	return -1;
}

static int option_choice(const struct option_at *at, int *out)
{
	const char *const *choices = at->row->choices;
	char why[128] = "must be one of";

	for (int i = 0; choices[i]; i++) {
		if (!strcmp(choices[i], at->value)) {
			*out = i;
			return 0;
		}
		strncat(why, " ", sizeof(why) - strlen(why) - 1);
		strncat(why, choices[i], sizeof(why) - strlen(why) - 1);
	}
	return option_wrong(at, why);
}

static int option_number(const struct option_at *at, uint64_t *out)
{
	const struct ft_option *row = at->row;
	char why[128];
	uint64_t number;
	int bad;

	if (row->kind == FT_SIZE)
		bad = ft_parse_size(at->value, &number);
	else
		bad = ft_parse_uint(at->value, 0, UINT64_MAX, &number);
	if (!bad && number >= row->min && number <= row->max) {
		*out = number;
		return 0;
	}
	snprintf(why, sizeof(why), "must be a %s from %llu to %llu",
		 row->kind == FT_SIZE ? "size like 4096, 64K or 1M" : "number",
		 (unsigned long long)row->min, (unsigned long long)row->max);
	return option_wrong(at, why);
}

static int option_seconds(const struct option_at *at, double *out)
{
	uint64_t max = at->row->max;
	char most[32] = "a week", why[96];
	double seconds;

	if (!ft_parse_seconds(at->value, &seconds) &&
	    (!max || seconds <= (double)max)) {
		*out = seconds;
		return 0;
	}
	if (max)
		snprintf(most, sizeof(most), "%llu", (unsigned long long)max);
	snprintf(why, sizeof(why), "must be seconds, above 0, at most %s, like "
		 "1, 0.5 or 500ms", most);
	return option_wrong(at, why);
}

static int option_flag(const struct option_at *at, bool *out)
{
	const char *value = at->value;

	if (!value || !strcmp(value, "true") || !strcmp(value, "1"))
		*out = true;
	else if (!strcmp(value, "false") || !strcmp(value, "0"))
		*out = false;
	else
		return option_wrong(at, "must be true or false");
	return 0;
}

static int option_set(const struct option_at *at, void *field)
{
	int index;

	switch (at->row->kind) {
	case FT_TEXT:
		if (!*at->value)
			return option_wrong(at, "is empty");
		*(const char **)field = at->value;
		return 0;
	case FT_CHOICE:
		return option_choice(at, field);
	case FT_WORD:
		if (option_choice(at, &index))
			return -1;
		*(const char **)field = at->row->choices[index];
		return 0;
	case FT_SIZE:
	case FT_COUNT:
		return option_number(at, field);
	case FT_SECONDS:
		return option_seconds(at, field);
	case FT_FLAG:
		return option_flag(at, field);
	}
	return -1;
}

static const struct ft_option *option_find(const struct ft_options *options,
					   const char *name, size_t len)
{
	for (size_t i = 0; i < options->n; i++) {
		const char *want = options->rows[i].name;
		size_t at = 0;

		while (at < len && want[at] &&
		       (name[at] == want[at] ||
			(name[at] == '-' && want[at] == '_')))
			at++;
		if (at == len && !want[at])
			return &options->rows[i];
	}
	return NULL;
}

int ft_options_read(const struct ft_options *options, int argc, char **argv,
		    void *into)
{
	struct option_at at = { .program = options->program };

	for (int i = 1; i < argc; i++) {
		const char *name = argv[i] + strspn(argv[i], "-");
		size_t dashes = (size_t)(name - argv[i]);
		size_t len = strcspn(name, "=");

		at.row = option_find(options, name, len);
		at.value = name[len] ? name + len + 1 : NULL;
		if (!dashes || dashes > 2 || !at.row) {
			fprintf(stderr, "%s: unknown argument %s; see "
				"%s --help\n", at.program, argv[i], at.program);
			return -1;
		}
		if (!at.value && at.row->kind != FT_FLAG)
			at.value = argv[++i];
		if (!at.value && at.row->kind != FT_FLAG) {
			fprintf(stderr, "%s: --%s needs a value\n", at.program,
				at.row->name);
			return -1;
		}
		if (option_set(&at, (char *)into + at.row->field))
			return -1;
	}
	return 0;
}

void ft_options_help(const struct ft_options *options)
{
	for (size_t i = 0; i < options->n; i++) {
		const struct ft_option *row = &options->rows[i];
		const char *text = row->help, *end;
		char head[64];

		if (!row->arg)
			continue;
		snprintf(head, sizeof(head), "--%s%s%s", row->name,
			 *row->arg ? "=" : "", row->arg);
		for (; (end = strchr(text, '\n')); text = end + 1, *head = '\0')
			printf("  %-*s %.*s\n", options->width, head,
			       (int)(end - text), text);
		printf("  %-*s %s\n", options->width, head, text);
	}
}
