/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_LOG_H
#define TEI_UTIL_LOG_H

/*
 * Log lines go to the program's callback (tei_log_set) or, if there is none, to
 * stderr, with one write(2) per line. A line on stderr begins with the time of
 * day in UTC and the process id:
 *
 *	2026-11-27T01:39:31.123456Z moonrail[4711] warn rail: eth0: ...
 *
 * The level is read once per process from MC_LOG_LEVEL (error, warn, info,
 * debug or 0..3; default warn) and MC_VERBOSE (any value but 0 means debug).
 * The functions may be called from any thread, preserve errno and allocate no
 * memory.
 *
 * Rule: the first function that detects an error logs it, once, with its
 * cause; its callers return the code without a log line.
 */

#include <stdbool.h>
#include <stdint.h>

enum tei_log_level {
	TEI_LOG_ERROR,		/* a request or another operation has failed */
	TEI_LOG_WARN,		/* a request was carried out, but differently or
				 * at a cost */
	TEI_LOG_INFO,		/* facts about the routes, providers and
				 * addresses in use */
	TEI_LOG_DEBUG,		/* changes of the states of objects */
};

bool tei_log_enabled(enum tei_log_level level);

/* Returns true if text is a valid value of MC_LOG_LEVEL: the name of a level in
 * upper or lower case, or 0 to 3. */
bool tei_log_level_valid(const char *text);

/* Logs a line. subsys is the name of the module: "rail", "meta", … */
void tei_log(enum tei_log_level level, const char *subsys, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A function that receives each log line: its level (enum tei_log_level),
 * module, and text without a line end. te_set_log in moonrail.h states what the
 * function may do. */
typedef void (*tei_log_fn)(int level, const char *subsys, const char *text,
			   void *arg);

/*
 * Passes later log lines to fn, or to stderr if fn is NULL. When this function
 * returns, the previous callback is not running and will not be called again.
 * Returns 0, or -1 if a callback calls this function.
 */
int tei_log_set(tei_log_fn fn, void *arg);

/*
 * Limits the log lines of one place in the code or of one object: at most 8
 * lines per second are logged, and the next line states how many were left out.
 * A structure filled with zeros is a valid initial state. Any thread may use
 * it.
 */
struct tei_log_limit {
	uint64_t window_start_ns;	/* time at which the current second
					 * began, ns, atomic */
	uint32_t lines;			/* number of lines since
					 * window_start_ns, atomic */
	uint32_t left_out;		/* number of lines left out since the
					 * last line was logged, atomic */
};

/* Returns true if a line may be logged now. *left_out is then the number of
 * lines that were left out since the last one. Otherwise counts the line as
 * left out. */
bool tei_log_permit(struct tei_log_limit *limit, uint32_t *left_out);

/*
 * Logs a line if its limit permits. If lines were left out before it, the line
 * ends with their number.
 */
void tei_log_limited(struct tei_log_limit *limit, enum tei_log_level level,
		     const char *subsys, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#define TEI_LOG_TEXTS	4	/* number of different lines that a
				 * tei_log_repeat remembers */

/*
 * Limits the lines of one object that may repeat while a fault lasts, such as
 * refused connections to a peer that has ended. The object remembers its last
 * few different lines, so alternating lines are recognised too. A structure
 * filled with zeros is a valid initial state. Any thread.
 */
struct tei_log_repeat {
	bool busy;			/* spin lock that guards the other
					 * members; atomic */
	struct tei_log_limit limit;	/* limit for the number of different
					 * lines per second */
	uint64_t pause_max_ns;		/* longest pause between two identical
					 * lines; 0 means 10 minutes; atomic */
	struct tei_log_text {
		uint64_t text;		/* hash of the text of the line */
		uint64_t next_ns;	/* earliest time at which an identical
					 * line is logged again; 0 if the entry
					 * is unused */
		uint64_t pause_ns;	/* time between this line and the next
					 * identical one, ns */
		uint32_t repeated;	/* number of identical lines left out
					 * since the line was last logged */
	} texts[TEI_LOG_TEXTS];
};

/*
 * Logs a line if its object has not logged an identical line shortly before. An
 * identical line is logged again after a pause, which is 10 seconds at first
 * and doubles each time, up to pause_max_ns. A line that is logged again ends
 * with the number of repetitions that were left out. At most 8 different lines
 * per second are logged, as with tei_log_limited. If repeat is NULL, every line
 * is logged.
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
