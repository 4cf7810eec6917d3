/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"

enum { BAR_WIDTH = 32 };

void ft_progress_start(struct ft_progress *bar, bool steps)
{
	memset(bar, 0, sizeof(*bar));
	bar->tty = isatty(STDERR_FILENO);
	bar->steps = steps;
	bar->quarter = 1;
}

static void progress_draw(struct ft_progress *bar, double part,
			  const char *what)
{
	static const char full[] = "################################";
	uint64_t now = ft_now_ns();
	int filled = (int)(part * BAR_WIDTH);

	if (now < bar->next_ns && part < 1)
		return;
	bar->next_ns = now + FT_NS_PER_SEC / 10;
	bar->drawn = true;
	fprintf(stderr, "\r[%.*s%*s] %3d %%  %s\033[K", filled, full,
		BAR_WIDTH - filled, "", (int)(part * 100), what);
	fflush(stderr);
}

static void progress_step(struct ft_progress *bar, double part,
			  const char *what)
{
	if (part * 4 < bar->quarter)
		return;
	bar->quarter = (unsigned int)(part * 4) + 1;
	fprintf(stderr, "%3d %%  %s\n", (int)(part * 100), what);
}

void ft_progress_show(struct ft_progress *bar, double part, const char *what)
{
	if (part < 0)
		part = 0;
	if (part > 1)
		part = 1;
	if (bar->tty)
		progress_draw(bar, part, what);
	else if (bar->steps)
		progress_step(bar, part, what);
}

void ft_progress_end(struct ft_progress *bar)
{
	if (bar->drawn)
		fputs("\r\033[K", stderr);
	fflush(stderr);
	bar->drawn = false;
}
