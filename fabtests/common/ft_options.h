/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_OPTIONS_H
#define TEI_FABTESTS_COMMON_FT_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

/* Reads a command line with a table of options. --name=value, --name value and
 * -name value are accepted; "-" and "_" in a name are equivalent. There is no
 * global state; any thread may call these functions. */

enum ft_option_kind {
	FT_TEXT,	/* const char * into argv, not empty */
	FT_CHOICE,	/* int: index into choices */
	FT_WORD,	/* const char *: one of choices */
	FT_SIZE,	/* uint64_t: 4096, 64K, 1M, from min to max */
	FT_COUNT,	/* uint64_t, from min to max */
	FT_SECONDS,	/* double: above 0, at most max, or at most a week if
			 * max is 0 */
	FT_FLAG,	/* bool: alone, or =true, =false, =1, =0 */
};

struct ft_option {
	const char *name;
	enum ft_option_kind kind;
	size_t field;			/* offset of the variable in `into` */
	uint64_t min, max;
	const char *const *choices;	/* ends with NULL */
	const char *arg;		/* value as the help shows it; NULL: the
					 * option is not shown */
	const char *help;		/* lines separated by '\n' */
};

struct ft_options {
	const char *program;
	const struct ft_option *rows;
	size_t n;
	int width;			/* columns of the left part of the
					 * help */
};

/* Sets the variables in `into` whose options occur in argv; the others keep
 * their values. Returns 0, or -1 after printing a line on stderr that names the
 * argument and its fault. */
int ft_options_read(const struct ft_options *options, int argc, char **argv,
		    void *into);

/* Prints the help of all rows to stdout. */
void ft_options_help(const struct ft_options *options);

#endif /* TEI_FABTESTS_COMMON_FT_OPTIONS_H */
