/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/te_info.h"

#define FILE_MAX (4u << 20)

static int file_open(const struct info *info, const char *fmt, va_list ap)
{
	char path[1024];
	int n, m;

	n = snprintf(path, sizeof(path), "%s", info->opts.root);
	if (n < 0 || (size_t)n >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	m = vsnprintf(path + n, sizeof(path) - (size_t)n, fmt, ap);
	if (m < 0 || (size_t)(n + m) >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	/* O_NONBLOCK, because opening a FIFO must not block */
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Reads at most len - 1 bytes from fd and closes fd. Returns the number of
 * bytes, or -1 with errno set. */
static ssize_t file_read(int fd, char *buf, size_t len)
{
	size_t used = 0;
	ssize_t n = 1;
	int err;

	while (used < len - 1 && n > 0) {
		n = read(fd, buf + used, len - 1 - used);
		if (n > 0)
			used += (size_t)n;
		else if (n < 0 && errno == EINTR)
			n = 1;
	}
	err = errno;
	close(fd);
	errno = err;
	if (n < 0)
		return -1;
	buf[used] = '\0';
	return (ssize_t)used;
}

static bool file_vread(const struct info *info, char *buf, size_t len,
		       const char *fmt, va_list ap)
{
	int fd = file_open(info, fmt, ap);
	ssize_t n;

	*buf = '\0';
	if (fd < 0)
		return false;
	n = file_read(fd, buf, len);
	while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == ' '))
		buf[--n] = '\0';
	return n >= 0;
}

bool info_read(const struct info *info, char *buf, size_t len, const char *fmt,
	       ...)
{
	va_list ap;
	bool ok;

	va_start(ap, fmt);
	ok = file_vread(info, buf, len, fmt, ap);
	va_end(ap);
	return ok;
}

char *info_slurp(const struct info *info, const char *fmt, ...)
{
	char *buf, *less;
	va_list ap;
	ssize_t n;
	int fd;

	va_start(ap, fmt);
	fd = file_open(info, fmt, ap);
	va_end(ap);
	if (fd < 0)
		return NULL;
	buf = malloc(FILE_MAX);
	if (!buf) {
		close(fd);
		return NULL;
	}
	n = file_read(fd, buf, FILE_MAX);
	if (n < 0) {
		free(buf);
		return NULL;
	}
	less = realloc(buf, (size_t)n + 1);
	return less ? less : buf;
}

long long info_read_num(const struct info *info, const char *fmt, ...)
{
	char text[64], *end;
	long long value;
	va_list ap;
	bool ok;

	va_start(ap, fmt);
	ok = file_vread(info, text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!ok)
		return -1;
	errno = 0;
	value = strtoll(text, &end, 10);
	if (end != text && !errno && value >= 0)
		return value;
	errno = EINVAL;
	return -1;
}

long long info_sysctl(struct info *info, const char *id, const char *name)
{
	long long value = info_read_num(info, "/proc/sys/%s", name);
	int err = errno;

	if (value >= 0)
		return value;
	/* The file "ostype" exists in each kernel. If this process sees it,
	 * /proc/sys can be read, so the kernel has no setting "name". */
	if (err == ENOENT && info_exists(info, "/proc/sys/kernel/ostype"))
		return INFO_ABSENT;
	info_unseen(info, id, "/proc/sys/%s: %s", name, strerror(err));
	return INFO_UNSEEN;
}

bool info_exists(const struct info *info, const char *fmt, ...)
{
	va_list ap;
	int fd;

	va_start(ap, fmt);
	fd = file_open(info, fmt, ap);
	va_end(ap);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}
