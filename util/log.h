/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_LOG_H
#define TEI_UTIL_LOG_H

/*
 * Log lines go to stderr, one write(2) per line, never to stdout. The level
 * is read once per process from MC_LOG_LEVEL (error, warn, info, debug or
 * 0..3; default warn) and MC_VERBOSE (any value but 0 means debug). Any
 * thread; errno is preserved; no allocation.
 *
 * Rule: the first function that detects an error logs it, once, with its
 * cause; callers pass the code up in silence.
 */

#include <stdbool.h>
#include <stdint.h>

enum tei_log_level {
	TEI_LOG_ERROR,		/* something asked for was not done */
	TEI_LOG_WARN,		/* done, but not as asked, or will hurt */
	TEI_LOG_INFO,		/* which path, which provider, which address */
	TEI_LOG_DEBUG,		/* state changes */
};

bool tei_log_enabled(enum tei_log_level level);

/* Whether text is a value of MC_LOG_LEVEL: a name, any case, or 0 to 3. */
bool tei_log_level_valid(const char *text);

/* subsys: short module word, "rail", "meta", … */
void tei_log(enum tei_log_level level, const char *subsys, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * A budget for one place in the code or one object: at most burst lines per
 * period, then one line that says how many were left out. Zero-initialised is
 * ready to use. Any thread.
 */
struct tei_log_limit {
	uint64_t window_start_ns;	/* atomic */
	uint32_t lines;			/* atomic, in this window */
	uint32_t left_out;		/* atomic */
};

/*
 * True when a line may be written now (8 lines a second). *left_out gets the
 * number swallowed since the last line written.
 */
bool tei_log_permit(struct tei_log_limit *limit, uint32_t *left_out);

#define TEI_LOG(level, subsys, ...)				\
	do {							\
		if (tei_log_enabled(level))			\
			tei_log((level), (subsys), __VA_ARGS__);	\
	} while (0)
#define TEI_ERROR(subsys, ...)	TEI_LOG(TEI_LOG_ERROR, subsys, __VA_ARGS__)
#define TEI_WARN(subsys, ...)	TEI_LOG(TEI_LOG_WARN, subsys, __VA_ARGS__)
#define TEI_INFO(subsys, ...)	TEI_LOG(TEI_LOG_INFO, subsys, __VA_ARGS__)
#define TEI_DEBUG_LOG(subsys, ...) TEI_LOG(TEI_LOG_DEBUG, subsys, __VA_ARGS__)

#endif /* TEI_UTIL_LOG_H */
