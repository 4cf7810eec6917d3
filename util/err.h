/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_ERR_H
#define TEI_UTIL_ERR_H

/*
 * Error codes and error records. The codes are the negative codes that the
 * set-up calls of the Mooncake API return. The transfer calls return the same
 * numbers without the sign, except for "not implemented", which is -303 or 999.
 * tei_err_transfer_code converts a code.
 */

#include <stdbool.h>
#include <stdint.h>

enum tei_code {
	TEI_OK = 0,
	TEI_ERR_INVALID = -1,		/* invalid argument */
	TEI_ERR_TOO_MANY = -2,		/* too many requests */
	TEI_ERR_NOT_REGISTERED = -3,	/* address not registered */
	TEI_ERR_BUSY = -4,		/* batch or memory busy */
	TEI_ERR_NO_DEVICE = -6,		/* device not found */
	TEI_ERR_OVERLAP = -7,		/* overlaps a registered range */
	TEI_ERR_UNSUPPORTED = -8,	/* unsupported transport */
	TEI_ERR_TIMED_OUT = -9,		/* the caller's deadline passed */
	TEI_ERR_CANCELED = -10,		/* cancelled by the caller */
	TEI_ERR_DNS = -101,
	TEI_ERR_SOCKET = -102,
	TEI_ERR_JSON = -103,		/* malformed JSON */
	TEI_ERR_REJECTED = -104,	/* handshake rejected */
	TEI_ERR_METADATA = -200,
	TEI_ERR_ENDPOINT = -201,
	TEI_ERR_CONTEXT = -202,		/* rail failed, or could not be
					 * opened */
	TEI_ERR_NUMA = -300,
	TEI_ERR_CLOCK = -301,
	TEI_ERR_MEMORY = -302,
	TEI_ERR_NOT_IMPLEMENTED = -303,
};

#define TEI_ERR_TEXT	160

/* Plain data, copied by value; strings are always terminated. */
struct tei_err {
	int code;			/* enum tei_code */
	int prov_errno;			/* error number of the libfabric
					 * provider, or 0 */
	uint64_t when_ns;		/* time of the error, CLOCK_MONOTONIC */
	char rail[64];			/* "" if no rail is concerned */
	char peer[96];			/* "" if no peer is concerned */
	char provider[32];		/* "" if no provider is concerned */
	char text[TEI_ERR_TEXT];	/* what happened, with the error text
					 * of the libfabric provider */
	bool unknown;			/* it is unknown whether the atomic
					 * operation was executed */
	bool unfenced;			/* the bytes may still land at the
					 * target; set only by blocking calls */
	bool stale;			/* the cached descriptor of the peer
					 * still lists the range in the member
					 * `absent` */
	struct {			/* length is 0 if there is no range */
		uint64_t addr, length;
	} absent;			/* range that the peer has not
					 * registered */
	char hint[TEI_ERR_TEXT];	/* what the user can do, or "" */
};

/* Returns the positive code that submitTransfer and similar calls return. */
int tei_err_transfer_code(int code);

/* Returns the short English name of a code, never NULL. */
const char *tei_err_name(int code);

/*
 * The last error record of the calling thread. tei_err_set_last copies err.
 * tei_err_last returns the thread's own record, with code 0 if there was no
 * error. The record is valid until the thread's next tei_err_set_last.
 */
void tei_err_set_last(const struct tei_err *err);
const struct tei_err *tei_err_last(void);

/*
 * Fills err with code and the formatted text, clears its other members, sets it
 * as the thread's last error and logs it at level error under subsys. Returns
 * code, so that callers can write "return tei_err_fail(...)". err and hint may
 * be NULL.
 */
int tei_err_fail(struct tei_err *err, int code, const char *subsys,
		 const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/*
 * Does the same as tei_err_fail, but repeat limits the number of lines in the
 * log (tei_log_repeated). Used for conditions that last while the caller tries
 * again.
 */
struct tei_log_repeat;
int tei_err_fail_repeated(struct tei_log_repeat *repeat, struct tei_err *err,
			  int code, const char *subsys, const char *hint,
			  const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));

/*
 * Does the same as tei_err_fail, but logs at level info. Used for conditions
 * that the caller expects.
 */
int tei_err_note(struct tei_err *err, int code, const char *subsys,
		 const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/*
 * Puts the formatted text and ": " before the text of err, which a called
 * function has filled, and makes err the thread's last error again. Cuts the
 * end of the text if it becomes too long. Logs nothing. Returns err->code.
 */
int tei_err_prefix(struct tei_err *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif /* TEI_UTIL_ERR_H */
