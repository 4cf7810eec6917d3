/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_PROGRESS_H
#define TEI_FABTESTS_COMMON_FT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* A progress bar on stderr. On a terminal it is redrawn in place, at most ten
 * times a second. Elsewhere it prints a line at each quarter of the work if
 * `steps` is set, and otherwise nothing. A bar may be used by one thread
 * only. */
struct ft_progress {
	bool tty;
	bool steps;
	bool drawn;
	unsigned int quarter;	/* number (1 to 4) of the next quarter to
				 * print */
	uint64_t next_ns;
};

void ft_progress_start(struct ft_progress *bar, bool steps);

/* Draws the bar for `part` of the work, from 0 to 1. "what" is a short text
 * that is printed after the bar. */
void ft_progress_show(struct ft_progress *bar, double part, const char *what);

/* Clears the bar from the terminal. */
void ft_progress_end(struct ft_progress *bar);

#endif /* TEI_FABTESTS_COMMON_FT_PROGRESS_H */
