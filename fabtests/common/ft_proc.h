/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_PROC_H
#define TEI_FABTESTS_COMMON_FT_PROC_H

#include <stddef.h>
#include <sys/types.h>

/* A child process. Its stdin and stdout are pipes to the caller; its stderr is
 * shared. When the caller dies, the child reads the end of its stdin. Each
 * object is used by one thread. Times are in milliseconds. */
struct ft_proc {
	pid_t pid;		/* 0 after it was waited for */
	int to;			/* write end of the process's stdin, -1 if
				 * closed */
	int from;		/* read end of the process's stdout */
	size_t held;		/* number of bytes in `line` */
	char line[65536];	/* read and not yet returned */
};

/* Starts argv[0], which is looked up in PATH unless it contains a slash;
 * "/proc/self/exe" is the caller's own program. Returns 0, or -1 after printing
 * a line on stderr. */
int ft_proc_start(struct ft_proc *proc, char *const argv[]);

/* Reads the next line of its stdout, without the newline. Returns 0, or -1 at
 * the end of the stream, if no line is complete within ms, or if the line does
 * not fit into len bytes. */
int ft_proc_line(struct ft_proc *proc, char *buf, size_t len, unsigned int ms);

/* Writes text to its stdin. Returns 0 or -1. */
int ft_proc_send(struct ft_proc *proc, const char *text);

/* Closes its stdin. */
void ft_proc_close_stdin(struct ft_proc *proc);

/* Waits until the process ends. Returns its exit code, 128 + the signal that
 * ended it, or -1 if it still runs after ms. */
int ft_proc_wait(struct ft_proc *proc, unsigned int ms);

/* Closes its stdin, waits up to ms, kills the process if it still runs, and
 * closes the pipes. Returns the same as ft_proc_wait. */
int ft_proc_stop(struct ft_proc *proc, unsigned int ms);

/* Kills the process with SIGKILL, waits for it and closes the pipes. */
void ft_proc_kill(struct ft_proc *proc);

#endif /* TEI_FABTESTS_COMMON_FT_PROC_H */
