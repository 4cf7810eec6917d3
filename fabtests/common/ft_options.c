/* SPDX-License-Identifier: BSD-2-Clause */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_num.h"
#include "fabtests/common/ft_options.h"

/* The option or operand that is being read. */
struct option_at {
	const char *program;
	const char *dashes;		/* text before the name in error lines:
					 * "--", or "" before an operand */
	const struct ft_option *row;
	const char *value;
};

/* Prints the name, the value and the reason for which the value is refused.
 * Returns -1. */
static int option_wrong(const struct option_at *at, const char *why)
{
	fprintf(stderr, "%s: %s%s=%s: %s\n", at->program, at->dashes,
		at->row->name, at->value, why);
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

/* --- getopt ---------------------------------------------------------------- */

/* value that getopt returns for the first row; values below it are
 * characters */
#define OPTION_FIRST	256
/* maximum length of an option's name, with the zero byte */
#define OPTION_NAME	48

/* The table for getopt. It contains each row twice if its name contains "_"
 * (also with "-" instead), then --help and the end. */
struct option_table {
	struct option rows[2 * FT_OPTIONS_MAX + 2];
	char dashed[FT_OPTIONS_MAX][OPTION_NAME];
};

static void option_table_fill(struct option_table *t,
			      const struct ft_options *options)
{
	size_t used = 0;

	memset(t, 0, sizeof(*t));
	for (size_t i = 0; i < options->n && i < FT_OPTIONS_MAX; i++) {
		const struct ft_option *row = &options->rows[i];
		struct option *o = &t->rows[used++];
		char *at = t->dashed[i];

		o->name = row->name;
		o->has_arg = row->kind == FT_FLAG ? optional_argument :
						    required_argument;
		o->val = OPTION_FIRST + (int)i;
		if (!strchr(row->name, '_'))
			continue;
		snprintf(at, OPTION_NAME, "%s", row->name);
		while ((at = strchr(at, '_')))
			*at = '-';
		t->rows[used] = *o;
		t->rows[used++].name = t->dashed[i];
	}
	t->rows[used] = (struct option){ "help", no_argument, NULL, 'h' };
}

/* Reports an argument that getopt refuses, and returns -1. */
static int option_refused(const struct ft_options *options, int c,
			  const char *arg)
{
	if (c == ':')
		fprintf(stderr, "%s: %s needs a value\n", options->program, arg);
	else
		fprintf(stderr, "%s: unknown argument %s; see %s --help\n",
			options->program, arg, options->program);
	return -1;
}

/* Reads the operands that have rows. Returns the same values as
 * ft_options_read. */
static int option_operands(const struct ft_options *options, int argc,
			   char **argv, void *into)
{
	size_t i;

	for (i = 0; i < options->operand_count && optind < argc; i++)
		if (ft_options_operand(options->program, &options->operands[i],
				       argv[optind++], into))
			return -1;
	if (optind < argc && !options->more)
		return option_refused(options, '?', argv[optind]);
	return optind;
}

int ft_options_read(const struct ft_options *options, int argc, char **argv,
		    void *into)
{
	struct option_at at = { .program = options->program, .dashes = "--" };
	struct option_table table;
	int c;

	option_table_fill(&table, options);
	opterr = 0;
	optind = 0;		/* value 0 makes getopt start again */
	while ((c = getopt_long_only(argc, argv, ":", table.rows, NULL)) >= 0) {
		if (c == 'h')
			return 0;
		if (c < OPTION_FIRST)
			return option_refused(options, c, argv[optind - 1]);
		at.row = &options->rows[c - OPTION_FIRST];
		at.value = optarg;
		if (option_set(&at, (char *)into + at.row->field))
			return -1;
	}
	return option_operands(options, argc, argv, into);
}

int ft_options_operand(const char *program, const struct ft_option *row,
		       const char *value, void *into)
{
	const struct option_at at = { program, "", row, value };

	return option_set(&at, (char *)into + row->field);
}

int ft_options_take(const struct ft_options *options, int argc, char **argv,
		    void *into)
{
	int first = ft_options_read(options, argc, argv, into);

	if (first < 0)
		exit(2);
	if (!first) {
		ft_options_help(options);
		exit(fflush(stdout) ? 2 : 0);
	}
	return first;
}

const char *ft_options_word(int argc, char **argv, const char *operand,
			    const char *help)
{
	const struct ft_option row = { operand, FT_TEXT, 0, 0, 0, NULL, "", help };
	const char *slash = strrchr(argv[0], '/'), *word = NULL;
	char usage[64];
	const struct ft_options options = {
		.program = slash ? slash + 1 : argv[0], .usage = usage,
		.operands = &row, .operand_count = 1, .width = 12,
	};

	snprintf(usage, sizeof(usage), "[%s]", operand);
	ft_options_take(&options, argc, argv, &word);
	return word;
}

/* --- help ------------------------------------------------------------------ */

/* Prints `head` in the left column, and the lines of `text` in the right
 * column. */
static void option_help(int width, const char *head, const char *text)
{
	const char *end;

	for (; (end = strchr(text, '\n')); text = end + 1, head = "")
		printf("  %-*s %.*s\n", width, head, (int)(end - text), text);
	printf("  %-*s %s\n", width, head, text);
}

void ft_options_help(const struct ft_options *options)
{
	char head[64];

	printf("usage: %s %s\n\n", options->program, options->usage);
	if (options->about)
		printf("%s\n\n", options->about);
	for (size_t i = 0; i < options->operand_count; i++)
		option_help(options->width, options->operands[i].name,
			    options->operands[i].help);
	for (size_t i = 0; i < options->n; i++) {
		const struct ft_option *row = &options->rows[i];

		if (!row->arg)
			continue;
		snprintf(head, sizeof(head), "--%s%s%s", row->name,
			 *row->arg ? "=" : "", row->arg);
		option_help(options->width, head, row->help);
	}
	option_help(options->width, "--help", "this text");
	if (options->notes)
		printf("\n%s\n", options->notes);
}
