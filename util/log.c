/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/log.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/text.h"

#define LOG_LINE_MAX	1024
#define LOG_PREFIX_MAX	96	/* largest length of what precedes the text of a
				 * line (time, process id, level, module),
				 * bytes */
#define LOG_BURST	8	/* number of lines per second that a
				 * tei_log_limit permits */
#define LOG_PAUSE_MIN	(10 * TEI_NS_PER_SEC)
#define LOG_PAUSE_MAX	(600 * TEI_NS_PER_SEC)

static const char *const log_names[] = { "error", "warn", "info", "debug" };

/* Parses the name or the number of a level. Returns the level, or -1 if text is
 * not valid. */
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
	static int cached = -1;	/* the level, or -1 before it has been read;
				 * atomic */
	int now = __atomic_load_n(&cached, __ATOMIC_RELAXED);

	if (now < 0) {
		now = log_level_from_env();
		__atomic_store_n(&cached, now, __ATOMIC_RELAXED);
	}
	return (int)level <= now;
}

/* --- the program's callback ----------------------------------------------- */

/*
 * There are two sinks, each with a counter of the threads that are using it.
 * log_phase is the index of the current sink. tei_log_set writes the new
 * callback to the other sink, makes that sink the current one, and waits until
 * the counter of the old sink is 0. Lines that are logged meanwhile use the new
 * sink, so tei_log_set does not wait for them.
 */
static pthread_mutex_t log_changing = PTHREAD_MUTEX_INITIALIZER;
static struct log_sink {
	tei_log_fn fn;
	void *arg;
} log_sinks[2];				/* log_sinks[i] is written only while
					 * log_users[i] is 0 */
static uint32_t log_phase;		/* index of the sink that new lines
					 * use, atomic */
static uint32_t log_users[2];		/* number of threads that use
					 * log_sinks[i], atomic */
static bool log_redirected;		/* true if tei_log_set was called;
					 * atomic */
static _Thread_local bool log_inside;	/* true while this thread runs the
					 * callback */

/* Runs in the child after a fork. Clears the counters, because the parent's
 * threads that were logging do not exist in the child. */
static void log_forked(void)
{
	pthread_mutex_init(&log_changing, NULL);
	memset(log_users, 0, sizeof(log_users));
}

static void log_watch_forks(void)
{
	pthread_atfork(NULL, NULL, log_forked);
}

/* Returns the index of the current sink. Until log_leave is called, this sink
 * does not change. */
static uint32_t log_enter(void)
{
	uint32_t phase;

	for (;;) {
		phase = __atomic_load_n(&log_phase, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&log_users[phase], 1, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&log_phase, __ATOMIC_SEQ_CST) == phase)
			return phase;
		__atomic_fetch_sub(&log_users[phase], 1, __ATOMIC_SEQ_CST);
	}
}

static void log_leave(uint32_t phase)
{
	__atomic_fetch_sub(&log_users[phase], 1, __ATOMIC_SEQ_CST);
}

static void log_wait_unused(uint32_t phase)
{
	const struct timespec nap = { .tv_nsec = (long)TEI_NS_PER_MS };

	while (__atomic_load_n(&log_users[phase], __ATOMIC_SEQ_CST))
		nanosleep(&nap, NULL);
}

int tei_log_set(tei_log_fn fn, void *arg)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint32_t old;

	if (log_inside)
		return -1;
	pthread_once(&once, log_watch_forks);
	__atomic_store_n(&log_redirected, true, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&log_changing);
	old = __atomic_load_n(&log_phase, __ATOMIC_SEQ_CST);
	/* The unused sink may be counted as used for a moment by a thread that
	 * read log_phase before its last change. This thread leaves the sink at
	 * once. */
	log_wait_unused(!old);
	log_sinks[!old].fn = fn;
	log_sinks[!old].arg = arg;
	__atomic_store_n(&log_phase, !old, __ATOMIC_SEQ_CST);
	log_wait_unused(old);
	pthread_mutex_unlock(&log_changing);
	return 0;
}

/* Passes the line to the program's callback. Returns false if there is no
 * callback or this thread is already in it. */
static bool log_pass(enum tei_log_level level, const char *subsys,
		     const char *text)
{
	struct log_sink sink;
	uint32_t phase;

	if (log_inside || !__atomic_load_n(&log_redirected, __ATOMIC_SEQ_CST))
		return false;
	phase = log_enter();
	sink = log_sinks[phase];
	if (sink.fn) {
		log_inside = true;
		sink.fn(level, subsys, text, sink.arg);
		log_inside = false;
	}
	log_leave(phase);
	return sink.fn != NULL;
}

/* --- lines --------------------------------------------------------------- */

/*
 * Writes the time of day as UTC text. Does not call gmtime_r, which takes a
 * lock of the C library; in the child of a fork, this lock may be held forever.
 * Computes the date in the Gregorian calendar, with years that begin in March.
 */
static int log_time(char *buf, size_t len)
{
	struct timespec ts;
	int64_t days, era, day_of_era, year, day, month;
	int seconds;

	clock_gettime(CLOCK_REALTIME, &ts);
	days = (int64_t)ts.tv_sec / 86400 + 719468;
	seconds = (int)((int64_t)ts.tv_sec % 86400);
	era = days / 146097;
	day_of_era = days % 146097;
	year = (day_of_era - day_of_era / 1460 + day_of_era / 36524 -
		day_of_era / 146096) / 365;
	day = day_of_era - (365 * year + year / 4 - year / 100);
	month = (5 * day + 2) / 153;
	day -= (153 * month + 2) / 5 - 1;
	month += month < 10 ? 3 : -9;
	year += era * 400 + (month <= 2);
	return snprintf(buf, len,
			"%04lld-%02lld-%02lldT%02d:%02d:%02d.%06ldZ",
			(long long)year, (long long)month, (long long)day,
			seconds / 3600, seconds / 60 % 60, seconds % 60,
			ts.tv_nsec / 1000);
}

static void log_write(enum tei_log_level level, const char *subsys,
		      const char *text)
{
	char line[LOG_LINE_MAX + LOG_PREFIX_MAX];
	ssize_t done;
	int used;

	used = log_time(line, sizeof(line));
	used += snprintf(line + used, sizeof(line) - (size_t)used,
			 " moonrail[%d] %s %s: %s", (int)getpid(),
			 log_names[level], subsys, text);
	if (used > (int)sizeof(line) - 2)
		used = (int)sizeof(line) - 2;
	line[used++] = '\n';
	done = write(STDERR_FILENO, line, (size_t)used);
	(void)done;
}

static void log_line(enum tei_log_level level, const char *subsys,
		     const char *text)
{
	int saved = errno;

	if (!log_pass(level, subsys, text))
		log_write(level, subsys, text);
	errno = saved;
}

void tei_log(enum tei_log_level level, const char *subsys, const char *fmt, ...)
{
	char text[LOG_LINE_MAX];
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	errno = saved;
	log_line(level, subsys, text);
}

/* If n is not 0, appends " (n what)" to text. */
static void log_append(char text[LOG_LINE_MAX], uint32_t n, const char *what)
{
	char tail[64];
	size_t used = strlen(text), len;

	if (!n)
		return;
	len = (size_t)snprintf(tail, sizeof(tail), " (%u %s)", n, what);
	if (used + len >= LOG_LINE_MAX)
		used = LOG_LINE_MAX - 1 - len;
	memcpy(text + used, tail, len + 1);
}

void tei_log_limited(struct tei_log_limit *limit, enum tei_log_level level,
		     const char *subsys, const char *fmt, ...)
{
	char text[LOG_LINE_MAX];
	int saved = errno;
	uint32_t left_out;
	va_list ap;

	if (!tei_log_permit(limit, &left_out))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_append(text, left_out, "similar lines left out");
	errno = saved;
	log_line(level, subsys, text);
}

/* Returns the entry of the line with the hash "text". If there is none, returns
 * the oldest entry, which the caller replaces. */
static struct tei_log_text *log_repeat_find(struct tei_log_repeat *repeat,
					    uint64_t text)
{
	struct tei_log_text *oldest = &repeat->texts[0], *r;

	for (r = repeat->texts; r < repeat->texts + TEI_LOG_TEXTS; r++) {
		if (r->next_ns && r->text == text)
			return r;
		if (r->next_ns < oldest->next_ns)
			oldest = r;
	}
	return oldest;
}

/* Returns true if the line may be logged now. *repeated gets the number of its
 * repetitions that were not logged, and *left_out the number of other lines
 * that the rate limit has suppressed. */
static bool log_repeat_due(struct tei_log_repeat *repeat, uint64_t text,
			   uint32_t *repeated, uint32_t *left_out)
{
	struct tei_log_text *r = log_repeat_find(repeat, text);
	uint64_t most = __atomic_load_n(&repeat->pause_max_ns,
					__ATOMIC_RELAXED);
	bool known = r->next_ns && r->text == text;
	uint64_t now = tei_now_ns();

	if (known && now < r->next_ns) {
		r->repeated++;
		return false;
	}
	if (!tei_log_permit(&repeat->limit, left_out))
		return false;
	*repeated = known ? r->repeated : 0;
	r->pause_ns = known && now < r->next_ns + r->pause_ns ?
			      2 * r->pause_ns : LOG_PAUSE_MIN;
	if (r->pause_ns > (most ? most : LOG_PAUSE_MAX))
		r->pause_ns = most ? most : LOG_PAUSE_MAX;
	r->text = text;
	r->repeated = 0;
	r->next_ns = now + r->pause_ns;
	return true;
}

void tei_log_repeated(struct tei_log_repeat *repeat, enum tei_log_level level,
		      const char *subsys, const char *fmt, ...)
{
	uint32_t repeated = 0, left_out = 0;
	char text[LOG_LINE_MAX];
	int saved = errno;
	va_list ap;
	bool due;

	if (!tei_log_enabled(level))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	errno = saved;
	if (!repeat) {
		log_line(level, subsys, text);
		return;
	}
	while (__atomic_exchange_n(&repeat->busy, true, __ATOMIC_ACQUIRE))
		sched_yield();
	due = log_repeat_due(repeat, tei_text_hash(text), &repeated, &left_out);
	__atomic_store_n(&repeat->busy, false, __ATOMIC_RELEASE);
	if (!due)
		return;
	log_append(text, repeated, "times more since the last such line");
	log_append(text, left_out, "similar lines left out");
	log_line(level, subsys, text);
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
