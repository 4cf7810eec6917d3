/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/functional/fx.h"

#define PEER_OPTIONS 32

static bool peer_ready(struct fx_peer *peer)
{
	char line[256];
	unsigned long long addr;

	if (ft_proc_line(&peer->proc, line, sizeof(line), FX_LONG_MS) ||
	    sscanf(line, "ready %127s %llx", peer->name, &addr) != 2)
		return false;
	peer->mem.addr = addr;
	return true;
}

/* Creates the memfd for the peer's memory and maps it. The child inherits *fd.
 * The caller then closes it, so that no other child inherits it. */
static bool peer_memory(struct fx_peer *peer, size_t mem, int *fd)
{
	*fd = memfd_create("fx_peer", 0);
	if (*fd < 0 || ftruncate(*fd, (off_t)(mem + 2 * FX_GUARD)))
		return false;
	peer->mem = fx_buf_map(mem, *fd);
	return peer->mem.p != NULL;
}

static bool peer_start(struct fx_peer *peer, size_t mem, va_list args)
{
	char *argv[PEER_OPTIONS + 4], arg_mem[64];
	int fd = -1, n = 0;
	bool good;

	memset(peer, 0, sizeof(*peer));
	argv[n++] = (char *)"/proc/self/exe";
	argv[n++] = (char *)"--peer";
	argv[n++] = arg_mem;
	do
		argv[n] = va_arg(args, char *);
	while (argv[n++] && n < PEER_OPTIONS + 3);
	argv[n - 1] = NULL;
	good = peer_memory(peer, mem, &fd);
	snprintf(arg_mem, sizeof(arg_mem), "mem=%d:%zu", fd, mem);
	good = good && !ft_proc_start(&peer->proc, argv) && peer_ready(peer);
	if (fd >= 0)
		close(fd);
	if (!good)
		ft_diag("the peer did not start");
	if (!good && peer->proc.pid)
		fx_peer_drop(peer);
	return good;
}

bool fx_peer_start(struct fx_peer *peer, size_t mem, ...)
{
	va_list args;
	bool good;

	va_start(args, mem);
	good = peer_start(peer, mem, args);
	va_end(args);
	return good;
}

bool fx_target_start(struct fx_peer *peer, size_t mem)
{
	return fx_peer_start(peer, mem, NULL) &&
	       !fx_ask(peer, "reg 0 %zu 1", mem);
}

void fx_peer_drop(struct fx_peer *peer)
{
	ft_proc_kill(&peer->proc);
	fx_buf_unmap(&peer->mem);
}

bool fx_peer_stop(struct fx_peer *peer)
{
	int code;

	fx_peer_resume(peer);
	code = ft_proc_stop(&peer->proc, FX_LONG_MS);
	if (code)
		ft_ok(false, "a peer ends with 0, not %d", code);
	fx_buf_unmap(&peer->mem);
	return !code;
}

void fx_peer_kill(struct fx_peer *peer)
{
	ft_proc_kill(&peer->proc);
}

bool fx_peer_pause(struct fx_peer *peer)
{
	int status = 0;

	if (!peer->proc.pid || kill(peer->proc.pid, SIGSTOP))
		return false;
	peer->stopped = true;
	return waitpid(peer->proc.pid, &status, WUNTRACED) == peer->proc.pid &&
	       WIFSTOPPED(status);
}

void fx_peer_resume(struct fx_peer *peer)
{
	if (peer->stopped && peer->proc.pid)
		kill(peer->proc.pid, SIGCONT);
	peer->stopped = false;
}

/* Writes a line to the peer. If the peer is gone, the process receives no
 * SIGPIPE. The handler of that signal stays as it is. */
static bool peer_write(struct fx_peer *peer, const char *line)
{
	struct timespec none = { 0 };
	sigset_t pipe, old;
	bool good;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, &old);
	good = !ft_proc_send(&peer->proc, line);
	while (!good && sigtimedwait(&pipe, NULL, &none) > 0)
		;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return good;
}

static bool peer_command(struct fx_peer *peer, const char *format, va_list args)
{
	char line[8192];
	int n = vsnprintf(line, sizeof(line) - 1, format, args);

	if (n < 0 || (size_t)n >= sizeof(line) - 1)
		return false;
	line[n] = '\n';
	line[n + 1] = '\0';
	return peer->proc.pid && peer_write(peer, line);
}

bool fx_send(struct fx_peer *peer, const char *format, ...)
{
	va_list args;
	bool good;

	va_start(args, format);
	good = peer_command(peer, format, args);
	va_end(args);
	return good;
}

int fx_answer(struct fx_peer *peer, unsigned int ms)
{
	char line[sizeof(peer->text)];
	int code, at = 0;

	peer->text[0] = '\0';
	if (ft_proc_line(&peer->proc, line, sizeof(line), ms) ||
	    sscanf(line, "r %d%n", &code, &at) != 1) {
		ft_diag("the peer %s gave no answer", peer->name);
		return FX_NO_ANSWER;
	}
	while (line[at] == ' ')
		at++;
	snprintf(peer->text, sizeof(peer->text), "%s", line + at);
	return code;
}

int fx_ask(struct fx_peer *peer, const char *format, ...)
{
	va_list args;
	bool good;

	va_start(args, format);
	good = peer_command(peer, format, args);
	va_end(args);
	return good ? fx_answer(peer, FX_LONG_MS) : FX_NO_ANSWER;
}

/* --- log of a peer -------------------------------------------------------- */

char *fx_heard(int fd)
{
	off_t len = lseek(fd, 0, SEEK_END);
	char *text = calloc(1, (size_t)len + 1);

	if (text && pread(fd, text, (size_t)len, 0) < 0)
		text[0] = '\0';
	return text;
}

unsigned int fx_lines(const char *text, const char *a, const char *b)
{
	unsigned int n = 0;
	char line[2048];

	while (text && *text) {
		size_t len = strcspn(text, "\n");

		snprintf(line, sizeof(line), "%.*s", (int)len, text);
		n += strstr(line, a) && strstr(line, b);
		text += len + (text[len] == '\n');
	}
	return n;
}

int fx_log(char *option, size_t len)
{
	int fd = memfd_create("log", 0);

	snprintf(option, len, "log=%d", fd);
	return fd;
}
