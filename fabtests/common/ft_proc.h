/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_PROC_H
#define TEI_FABTESTS_COMMON_FT_PROC_H

#include <stddef.h>
#include <sys/types.h>

/* A child process. Its stdin and stdout are pipes to the caller; its stderr is
 * the caller's. If the caller dies, the child reads end-of-file from stdin. An
 * object may be used by one thread only. Times are in milliseconds. */
struct ft_proc {
	pid_t pid;		/* 0 after the process was waited for */
	int to;			/* write end of the process's stdin, -1 if
				 * closed */
	int from;		/* read end of the process's stdout */
	size_t held;		/* number of bytes in `line` */
	char line[65536];	/* bytes read and not yet returned as lines */
};

/* Starts the program argv[0], which is looked up in PATH if it contains no
 * slash. "/proc/self/exe" is the caller's own program. Returns 0, or -1 after
 * printing a line on stderr. */
int ft_proc_start(struct ft_proc *proc, char *const argv[]);

/* Reads the next line of the child's stdout, without the newline. Returns 0 if
 * a line was read. Returns -1 at the end of the stream, if no line is complete
 * within `ms`, or if the line does not fit into len bytes. */
int ft_proc_line(struct ft_proc *proc, char *buf, size_t len, unsigned int ms);

/* Writes `text` to the child's stdin. Returns 0, or -1 on failure. */
int ft_proc_send(struct ft_proc *proc, const char *text);

/* Closes the child's stdin. */
void ft_proc_close_stdin(struct ft_proc *proc);

/* Waits until the child ends. Returns its exit code, or 128 plus the signal
 * that killed it. Returns -1 if it still runs after `ms`. */
int ft_proc_wait(struct ft_proc *proc, unsigned int ms);

/* Closes the child's stdin and waits up to `ms`. Then kills the child if it
 * still runs, and closes the pipes. Returns the same value as ft_proc_wait. */
int ft_proc_stop(struct ft_proc *proc, unsigned int ms);

/* Kills the child with SIGKILL, waits for it and closes the pipes. */
void ft_proc_kill(struct ft_proc *proc);

#endif /* TEI_FABTESTS_COMMON_FT_PROC_H */
