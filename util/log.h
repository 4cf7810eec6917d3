/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_LOG_H
#define TEI_UTIL_LOG_H

/*
 * Log lines go to stderr, one write(2) per line, never to stdout, or to the
 * program's callback (tei_log_set). A line on stderr begins with the time of
 * day in UTC and the process id:
 *
 *	2026-11-27T01:39:31.123456Z moonrail[4711] warn rail: eth0: ...
 *
 * The level is read once per process from MC_LOG_LEVEL (error, warn, info,
 * debug or 0..3; default warn) and MC_VERBOSE (any value but 0 means debug).
 * Any thread; errno is preserved; no allocation.
 *
 * Rule: the first function that detects an error logs it, once, with its
 * cause; its callers return the code without a log line.
 */

#include <stdbool.h>
#include <stdint.h>

enum tei_log_level {
	TEI_LOG_ERROR,		/* a request was not carried out */
	TEI_LOG_WARN,		/* a request was carried out, but differently or
				 * at a cost */
	TEI_LOG_INFO,		/* what the library uses: routes, providers,
				 * addresses */
	TEI_LOG_DEBUG,		/* changes of internal states */
};

bool tei_log_enabled(enum tei_log_level level);

/*
 * Returns true if text is a value of MC_LOG_LEVEL: a name, any case, or 0 to 3.
 */
bool tei_log_level_valid(const char *text);

/* Logs a line. subsys is the name of the module: "rail", "meta", … */
void tei_log(enum tei_log_level level, const char *subsys, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Receives each line that is logged: its level (enum tei_log_level), module and
 * text without a line end. See te_set_log in moonrail.h for its contract.
 */
typedef void (*tei_log_fn)(int level, const char *subsys, const char *text,
			   void *arg);

/*
 * Passes later log lines to fn, or to stderr if fn is NULL. When this function
 * returns, the previous callback is not running and will not be called again.
 * Returns 0, or -1 if a callback calls this function.
 */
int tei_log_set(tei_log_fn fn, void *arg);

/*
 * Rate limit for one place in the code or for one object: at most 8 lines per
 * second, then one line that states how many were left out. A structure filled
 * with zeros is a valid initial state. Any thread.
 */
struct tei_log_limit {
	uint64_t window_start_ns;	/* start of the current second,
					 * atomic */
	uint32_t lines;			/* lines since window_start_ns,
					 * atomic */
	uint32_t left_out;		/* lines suppressed since the last line
					 * written, atomic */
};

/*
 * Returns true if a line may be written now (8 lines a second). Then *left_out
 * gets the number of lines left out since the last line written.
 */
bool tei_log_permit(struct tei_log_limit *limit, uint32_t *left_out);

/*
 * Logs a line if its limit permits. If lines were left out before it, the line
 * ends with their number.
 */
void tei_log_limited(struct tei_log_limit *limit, enum tei_log_level level,
		     const char *subsys, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#define TEI_LOG_TEXTS	4	/* different lines that a tei_log_repeat
				 * remembers */

/*
 * Limits the lines of one object that may repeat while a fault lasts, such as
 * refused connections to a peer that has ended. The object remembers its last
 * few different lines, so alternating lines are recognised too. A structure
 * filled with zeros is a valid initial state. Any thread.
 */
struct tei_log_repeat {
	bool busy;			/* spin lock that guards the other
					 * members; atomic */
	struct tei_log_limit limit;	/* limit of different lines per
					 * second */
	uint64_t pause_max_ns;		/* longest pause between two identical
					 * lines; 0 means 10 minutes; atomic */
	struct tei_log_text {
		uint64_t text;		/* hash of the line */
		uint64_t next_ns;	/* earliest time of the next identical
					 * line; 0 if the entry is unused */
		uint64_t pause_ns;	/* pause between two identical lines */
		uint32_t repeated;	/* identical lines left out since the
					 * line was last logged */
	} texts[TEI_LOG_TEXTS];
};

/*
 * Logs a line, unless the object has logged the same line shortly before. The
 * pause before the same line is logged again is 10 seconds at first and doubles
 * each time, up to pause_max_ns. A line that is logged again ends with the
 * number of repetitions that were left out. At most 8 different lines per
 * second are logged, as with tei_log_limited. If repeat is NULL, every line is
 * logged.
 */
void tei_log_repeated(struct tei_log_repeat *repeat, enum tei_log_level level,
		      const char *subsys, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#define TEI_LOG(level, subsys, ...)				\
	do {							\
		if (tei_log_enabled(level))			\
			tei_log((level), (subsys), __VA_ARGS__);	\
	} while (0)
#define TEI_LOG_LIMITED(limit, level, subsys, ...)		\
	do {							\
		if (tei_log_enabled(level))			\
			tei_log_limited((limit), (level), (subsys),	\
					__VA_ARGS__);		\
	} while (0)
#define TEI_ERROR(subsys, ...)	TEI_LOG(TEI_LOG_ERROR, subsys, __VA_ARGS__)
#define TEI_WARN(subsys, ...)	TEI_LOG(TEI_LOG_WARN, subsys, __VA_ARGS__)
#define TEI_INFO(subsys, ...)	TEI_LOG(TEI_LOG_INFO, subsys, __VA_ARGS__)
#define TEI_DEBUG_LOG(subsys, ...) TEI_LOG(TEI_LOG_DEBUG, subsys, __VA_ARGS__)

#endif /* TEI_UTIL_LOG_H */
