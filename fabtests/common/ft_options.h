/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_OPTIONS_H
#define TEI_FABTESTS_COMMON_FT_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

/*
 * A program's command line by a table: --name=value, --name value, -name value;
 * "-" and "_" in a name are the same. No state: any thread.
 */

enum ft_option_kind {
	FT_TEXT,	/* const char *, not empty, of argv */
	FT_CHOICE,	/* index into choices, an int */
	FT_WORD,	/* one of choices, a const char * */
	FT_SIZE,	/* uint64_t: 4096, 64K, 1M, from min to max */
	FT_COUNT,	/* uint64_t, from min to max */
	FT_SECONDS,	/* double: above 0, at most max, or a week if that is 0 */
	FT_FLAG,	/* bool: alone, or =true, =false, =1, =0 */
};

struct ft_option {
	const char *name;
	enum ft_option_kind kind;
	size_t field;			/* its offset in what is filled */
	uint64_t min, max;
	const char *const *choices;	/* NULL at their end */
	const char *arg;		/* as the help shows it; NULL: hidden */
	const char *help;		/* lines, '\n' between */
};

struct ft_options {
	const char *program;
	const struct ft_option *rows;
	size_t n;
	int width;			/* of the help's left column */
};

/*
 * Fills the fields in into that argv names and leaves the others. 0, or -1 with
 * a line on stderr that names the argument and what is wrong with it.
 */
int ft_options_read(const struct ft_options *options, int argc, char **argv,
		    void *into);

/* One row after the other, to stdout. */
void ft_options_help(const struct ft_options *options);

#endif /* TEI_FABTESTS_COMMON_FT_OPTIONS_H */
