/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_PROC_H
#define TEI_FABTESTS_COMMON_FT_PROC_H

#include <stddef.h>
#include <sys/types.h>

/*
 * A peer process with its stdin and stdout as pipes to the caller and its
 * stderr shared. When the caller dies the peer reads the end of its stdin.
 * One thread per process. Times are milliseconds.
 */
struct ft_proc {
	pid_t pid;		/* 0 once it was waited for */
	int to;			/* its stdin, -1 when closed */
	int from;		/* its stdout */
	size_t held;		/* bytes in line */
	char line[65536];	/* read and not yet given out */
};

/*
 * Starts argv[0], looked up in PATH unless it has a slash, "/proc/self/exe"
 * being the caller's own program. 0 or -1 with a line on stderr.
 */
int ft_proc_start(struct ft_proc *proc, char *const argv[]);

/*
 * The next line of its stdout, without the newline. 0, or -1 at its end, after
 * ms without a whole line or for a line longer than len.
 */
int ft_proc_line(struct ft_proc *proc, char *buf, size_t len, unsigned int ms);

/* Writes text to its stdin. 0 or -1. */
int ft_proc_send(struct ft_proc *proc, const char *text);

/* Closes its stdin. */
void ft_proc_close_stdin(struct ft_proc *proc);

/*
 * Waits for its end: its exit code, 128 + signal if one ended it, or -1 after
 * ms milliseconds, with the process still there.
 */
int ft_proc_wait(struct ft_proc *proc, unsigned int ms);

/* Closes its stdin, waits, kills it after ms; frees what is held. As above. */
int ft_proc_stop(struct ft_proc *proc, unsigned int ms);

/* kill -9, waits, frees. */
void ft_proc_kill(struct ft_proc *proc);

#endif /* TEI_FABTESTS_COMMON_FT_PROC_H */
