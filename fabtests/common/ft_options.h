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
	FT_TEXT,	/* const char * into argv, not empty */
	FT_CHOICE,	/* int: index into choices */
	FT_WORD,	/* const char *: one of choices */
	FT_SIZE,	/* uint64_t: 4096, 64K, 1M, from min to max */
	FT_COUNT,	/* uint64_t, from min to max */
	FT_SECONDS,	/* double: above 0, at most max, or at most a week if
			 * max is 0 */
	FT_FLAG,	/* bool: alone, or =true, =false, =1, =0 */
};

/* An option or an operand. */
struct ft_option {
	const char *name;		/* of an operand: as the help shows it */
	enum ft_option_kind kind;
	size_t field;			/* offset of the variable in `into` */
	uint64_t min, max;
	const char *const *choices;	/* ends with NULL */
	const char *arg;		/* value as the help shows it; if NULL,
					 * the option is not shown */
	const char *help;		/* lines separated by '\n' */
};

enum { FT_OPTIONS_MAX = 64 };		/* rows of one table */

/* The command line of one program. --help needs no row. */
struct ft_options {
	const char *program;
	const char *usage;		/* follows "usage: " and the name */
	const char *about;		/* paragraph below the usage line, or
					 * NULL */
	const struct ft_option *rows;	/* options */
	size_t n;
	const struct ft_option *operands;	/* in this order; none is
						 * required */
	size_t operand_count;
	bool more;			/* more operands may follow */
	int width;			/* columns of the left part of the
					 * help */
	const char *notes;		/* last lines of the help, or NULL */
};

/*
 * Sets the variables in `into` whose options or operands occur in argv; the
 * others keep their values. Operands are moved to the end of argv. Returns the
 * index of the first operand without a row (argc if there is none), or 0 if
 * --help occurs, or -1 after an error.
 */
int ft_options_read(const struct ft_options *options, int argc, char **argv,
		    void *into);

/* Does the same as ft_options_read, for programs that have nothing to clean up:
 * exits with status 2 after an error, and with status 0 after printing the
 * help. */
int ft_options_take(const struct ft_options *options, int argc, char **argv,
		    void *into);

/* Takes the command line of a program with at most one operand. Returns it, or
 * NULL. */
const char *ft_options_word(int argc, char **argv, const char *operand,
			    const char *help);

/* Sets the variable of one operand. Returns 0, or -1 after an error. */
int ft_options_operand(const char *program, const struct ft_option *row,
		       const char *value, void *into);

/* Prints the help to stdout. */
void ft_options_help(const struct ft_options *options);

#endif /* TEI_FABTESTS_COMMON_FT_OPTIONS_H */
