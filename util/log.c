/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "util/clock.h"

#define LOG_LINE_MAX	1024
#define LOG_BURST	8

static const char *const log_names[] = { "error", "warn", "info", "debug" };

/* -1: not a level. */
static int log_level_parse(const char *text)
{
	int i;

	for (i = TEI_LOG_ERROR; i <= TEI_LOG_DEBUG; i++)
		if (!strcasecmp(text, log_names[i]))
			return i;
	if (!strcasecmp(text, "warning"))
		return TEI_LOG_WARN;
	if (!strcasecmp(text, "trace"))
		return TEI_LOG_DEBUG;
	if (text[0] >= '0' && text[0] <= '3' && !text[1])
		return text[0] - '0';
	return -1;
}

bool tei_log_level_valid(const char *text)
{
	return log_level_parse(text) >= 0;
}

static int log_level_from_env(void)
{
	const char *verbose = getenv("MC_VERBOSE");
	const char *level = getenv("MC_LOG_LEVEL");
	int parsed;

	if (verbose && *verbose && strcmp(verbose, "0"))
		return TEI_LOG_DEBUG;
	parsed = level && *level ? log_level_parse(level) : TEI_LOG_WARN;
	return parsed < 0 ? TEI_LOG_WARN : parsed;
}

bool tei_log_enabled(enum tei_log_level level)
{
	static int cached = -1;	/* atomic; the same for the process's life */
	int now = __atomic_load_n(&cached, __ATOMIC_RELAXED);

	if (now < 0) {
		now = log_level_from_env();
		__atomic_store_n(&cached, now, __ATOMIC_RELAXED);
	}
	return (int)level <= now;
}

void tei_log(enum tei_log_level level, const char *subsys, const char *fmt, ...)
{
	char line[LOG_LINE_MAX];
	int saved = errno;
	int used, more;
	va_list ap;
	ssize_t done;

	used = snprintf(line, sizeof(line), "moonrail %s %s: ",
			log_names[level], subsys);
	va_start(ap, fmt);
	more = vsnprintf(line + used, sizeof(line) - (size_t)used, fmt, ap);
	va_end(ap);
	if (more > 0)
		used += more;
	if (used > LOG_LINE_MAX - 2)
		used = LOG_LINE_MAX - 2;
	line[used++] = '\n';
	done = write(STDERR_FILENO, line, (size_t)used);
	(void)done;
	errno = saved;
}

bool tei_log_permit(struct tei_log_limit *limit, uint32_t *left_out)
{
	uint64_t now = tei_now_ns();
	uint64_t start = __atomic_load_n(&limit->window_start_ns,
					 __ATOMIC_RELAXED);

	if (now - start >= TEI_NS_PER_SEC &&
	    __atomic_compare_exchange_n(&limit->window_start_ns, &start, now,
					false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED))
		__atomic_store_n(&limit->lines, 0, __ATOMIC_RELAXED);
	if (__atomic_fetch_add(&limit->lines, 1, __ATOMIC_RELAXED) >= LOG_BURST) {
		__atomic_fetch_add(&limit->left_out, 1, __ATOMIC_RELAXED);
		return false;
	}
	*left_out = __atomic_exchange_n(&limit->left_out, 0, __ATOMIC_RELAXED);
	return true;
}
