/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_test.h"

extern char **environ;

static void proc_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static int proc_pipes(int down[2], int up[2])
{
	if (pipe2(down, O_CLOEXEC))
		return -1;
	if (!pipe2(up, O_CLOEXEC))
		return 0;
	close(down[0]);
	close(down[1]);
	return -1;
}

static int proc_spawn(pid_t *pid, char *const argv[], int in, int out)
{
	posix_spawn_file_actions_t acts;
	posix_spawnattr_t attr;
	sigset_t defaults, none;
	int ret;

	sigemptyset(&none);
	sigemptyset(&defaults);
	sigaddset(&defaults, SIGINT);
	sigaddset(&defaults, SIGTERM);
	sigaddset(&defaults, SIGPIPE);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigdefault(&attr, &defaults);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF |
					POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_init(&acts);
	posix_spawn_file_actions_adddup2(&acts, in, STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&acts, out, STDOUT_FILENO);
	ret = posix_spawnp(pid, argv[0], &acts, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&acts);
	posix_spawnattr_destroy(&attr);
	return ret;
}

int ft_proc_start(struct ft_proc *proc, char *const argv[])
{
	int down[2], up[2], ret;

	proc->pid = 0;
	proc->to = -1;
	proc->from = -1;
	proc->held = 0;
	if (proc_pipes(down, up)) {
		fprintf(stderr, "pipe: %s\n", strerror(errno));
		return -1;
	}
	ret = proc_spawn(&proc->pid, argv, down[0], up[1]);
	close(down[0]);
	close(up[1]);
	proc->to = down[1];
	proc->from = up[0];
	if (!ret)
		return 0;
	fprintf(stderr, "cannot start %s: %s\n", argv[0], strerror(ret));
	proc->pid = 0;
	proc_close(&proc->to);
	proc_close(&proc->from);
	return -1;
}

/* Copies the first buffered line to buf, without its newline. Returns 0 if
 * there was a line, 1 if no line is complete, or -1 if the line is too long. */
static int proc_take_line(struct ft_proc *proc, char *buf, size_t len)
{
	char *end = memchr(proc->line, '\n', proc->held);
	size_t size;

	if (!end)
		return proc->held == sizeof(proc->line) ? -1 : 1;
	size = (size_t)(end - proc->line);
	if (size >= len)
		return -1;
	memcpy(buf, proc->line, size);
	buf[size] = '\0';
	proc->held -= size + 1;
	memmove(proc->line, end + 1, proc->held);
	return 0;
}

/* Waits up to `ms` for output and appends it to the buffer. Returns 0 after
 * data or a signal. Returns -1 on a timeout, at the end of the stream or on an
 * error. */
static int proc_fill(struct ft_proc *proc, int ms)
{
	struct pollfd pfd = { .fd = proc->from, .events = POLLIN };
	ssize_t got;

	if (poll(&pfd, 1, ms) <= 0)
		return errno == EINTR ? 0 : -1;
	got = read(proc->from, proc->line + proc->held,
		   sizeof(proc->line) - proc->held);
	if (got <= 0)
		return got < 0 && errno == EINTR ? 0 : -1;
	proc->held += (size_t)got;
	return 0;
}

int ft_proc_line(struct ft_proc *proc, char *buf, size_t len, unsigned int ms)
{
	uint64_t deadline = ft_now_ns() + (uint64_t)ms * 1000000;
	int ret;

	while ((ret = proc_take_line(proc, buf, len)) == 1) {
		uint64_t now = ft_now_ns();

		errno = 0;
		if (now >= deadline ||
		    proc_fill(proc, (int)((deadline - now) / 1000000) + 1))
			return -1;
	}
	return ret;
}

int ft_proc_send(struct ft_proc *proc, const char *text)
{
	size_t left = strlen(text);

	while (left) {
		ssize_t put = write(proc->to, text, left);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return -1;
		text += put;
		left -= (size_t)put;
	}
	return 0;
}

void ft_proc_close_stdin(struct ft_proc *proc)
{
	proc_close(&proc->to);
}

struct proc_end {
	pid_t pid;
	int status;
};

static bool proc_ended(void *arg)
{
	struct proc_end *end = arg;

	return waitpid(end->pid, &end->status, WNOHANG) == end->pid;
}

int ft_proc_wait(struct ft_proc *proc, unsigned int ms)
{
	struct proc_end end = { .pid = proc->pid };

	if (!proc->pid || !ft_wait_until(proc_ended, &end, ms))
		return -1;
	proc->pid = 0;
	if (WIFSIGNALED(end.status))
		return 128 + WTERMSIG(end.status);
	return WEXITSTATUS(end.status);
}

int ft_proc_stop(struct ft_proc *proc, unsigned int ms)
{
	int code;

	proc_close(&proc->to);
	code = ft_proc_wait(proc, ms);
	ft_proc_kill(proc);
	return code;
}

void ft_proc_kill(struct ft_proc *proc)
{
	if (proc->pid > 0) {
		kill(proc->pid, SIGKILL);
		waitpid(proc->pid, NULL, 0);
	}
	proc->pid = 0;
	proc_close(&proc->to);
	proc_close(&proc->from);
}
