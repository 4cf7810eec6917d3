/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_PROGRESS_H
#define TEI_FABTESTS_COMMON_FT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * A progress bar on stderr. On a terminal it is redrawn in place, at most ten
 * times a second; elsewhere `steps` gives a line each quarter, or nothing.
 * One thread.
 */
struct ft_progress {
	bool tty;
	bool steps;
	bool drawn;
	unsigned int quarter;	/* next to be told, of 4 */
	uint64_t next_ns;
};

void ft_progress_start(struct ft_progress *bar, bool steps);

/* part is 0 to 1; what is a short text behind the bar. */
void ft_progress_show(struct ft_progress *bar, double part, const char *what);

/* Clears the line. */
void ft_progress_end(struct ft_progress *bar);

#endif /* TEI_FABTESTS_COMMON_FT_PROGRESS_H */
