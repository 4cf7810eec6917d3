/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_OPTIONS_H
#define TEI_FABTESTS_COMMON_FT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Reads command lines with getopt_long_only(3) and tables of options: the tools,
 * the benchmarks and the test programs all use these functions. --name=value,
 * --name value and -name value are accepted; "-" and "_" in a name are
 * equivalent, and a name may be abbreviated as long as it is unique. Options and
 * operands may stand in any order.
 *
 * A wrong argument is reported in one line on stderr, which names the option or
 * operand, the value and the allowed range. getopt's variables are global: only
 * the main thread may call these functions.
 */

enum ft_option_kind {
	FT_TEXT,	/* const char *, points into argv; an empty text is
			 * refused */
	FT_CHOICE,	/* int: index of the text in `choices` */
	FT_WORD,	/* const char *: points to one of the texts in
			 * `choices` */
	FT_SIZE,	/* uint64_t: a size (4096, 64K, 1M) from min to max */
	FT_COUNT,	/* uint64_t: a whole number from min to max */
	FT_SECONDS,	/* double: above 0, at most max, or at most a week if
			 * max is 0 */
	FT_FLAG,	/* bool: true without a value; else =true, =false, =1 or
			 * =0 */
};

/* An option or an operand. */
struct ft_option {
	const char *name;		/* name of the option; for an operand,
					 * its name in the help */
	enum ft_option_kind kind;
	size_t field;			/* offset of the variable in the struct
					 * `into` */
	uint64_t min, max;
	const char *const *choices;	/* accepted texts, ends with NULL */
	const char *arg;		/* name of the value in the help; if
					 * NULL, the help omits the option */
	const char *help;		/* description in the help, lines
					 * separated by '\n' */
};

enum { FT_OPTIONS_MAX = 64 };		/* maximum number of rows in a table */

/* Describes the command line of one program. --help needs no row. */
struct ft_options {
	const char *program;
	const char *usage;		/* usage line of the help after the
					 * program's name */
	const char *about;		/* paragraph below the usage line, or
					 * NULL */
	const struct ft_option *rows;	/* n options */
	size_t n;
	/* operands in the order of the command line; none is required */
	const struct ft_option *operands;
	size_t operand_count;
	bool more;			/* true: operands without a row may
					 * follow */
	int width;			/* width of the left column of the help,
					 * in characters */
	const char *notes;		/* last lines of the help, or NULL */
};

/*
 * Sets the variables in `into` whose options or operands occur in argv; the
 * others keep their values. Moves the operands to the end of argv. Returns the
 * index of the first operand without a row, or argc if all have rows. Returns 0
 * if --help occurs, and -1 after an error.
 */
int ft_options_read(const struct ft_options *options, int argc, char **argv,
		    void *into);

/* Does the same as ft_options_read, for programs that have nothing to clean up:
 * exits with status 2 after an error, and with status 0 after printing the
 * help. */
int ft_options_take(const struct ft_options *options, int argc, char **argv,
		    void *into);

/* Reads the command line of a program that has no options and at most one
 * operand. Returns the operand, or NULL if it is missing. */
const char *ft_options_word(int argc, char **argv, const char *operand,
			    const char *help);

/* Sets the variable of the operand `row` to `value`. Returns 0, or -1 after an
 * error. */
int ft_options_operand(const char *program, const struct ft_option *row,
		       const char *value, void *into);

/* Prints the help text to stdout. */
void ft_options_help(const struct ft_options *options);

#endif /* TEI_FABTESTS_COMMON_FT_OPTIONS_H */
