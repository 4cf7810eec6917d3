/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_ERR_H
#define TEI_UTIL_ERR_H

/*
 * Error codes and error records. The values of enum tei_code are the negative
 * codes that the set-up calls of the Mooncake API return. The transfer calls
 * return the same numbers as positive values. "Not implemented" is an
 * exception: it is -303 in set-up calls and 999 in transfer calls.
 * tei_err_transfer_code converts a code.
 */

#include <stdbool.h>
#include <stdint.h>

enum tei_code {
	TEI_OK = 0,
	TEI_ERR_INVALID = -1,		/* invalid argument */
	TEI_ERR_TOO_MANY = -2,		/* limit of requests or objects
					 * reached */
	TEI_ERR_NOT_REGISTERED = -3,	/* the address is not registered */
	TEI_ERR_BUSY = -4,		/* a batch or memory is in use */
	TEI_ERR_NO_DEVICE = -6,		/* no such device */
	TEI_ERR_OVERLAP = -7,		/* the range overlaps a registered
					 * range */
	TEI_ERR_UNSUPPORTED = -8,	/* the transport does not support the
					 * request */
	TEI_ERR_TIMED_OUT = -9,		/* the caller's deadline has passed */
	TEI_ERR_CANCELED = -10,		/* the caller has cancelled the
					 * request */
	TEI_ERR_DNS = -101,
	TEI_ERR_SOCKET = -102,
	TEI_ERR_JSON = -103,		/* malformed JSON */
	TEI_ERR_REJECTED = -104,	/* the peer has refused the handshake */
	TEI_ERR_METADATA = -200,
	TEI_ERR_ENDPOINT = -201,
	TEI_ERR_CONTEXT = -202,		/* a rail has failed or could not be
					 * opened */
	TEI_ERR_NUMA = -300,
	TEI_ERR_CLOCK = -301,
	TEI_ERR_MEMORY = -302,
	TEI_ERR_NOT_IMPLEMENTED = -303,
};

#define TEI_ERR_TEXT	160

/* An error record. It contains no pointers and may be copied. All strings are
 * terminated. */
struct tei_err {
	int code;			/* code of the error, enum tei_code; 0
					 * if there is none */
	int prov_errno;			/* error number of the libfabric
					 * provider, or 0 */
	uint64_t when_ns;		/* time of the error, CLOCK_MONOTONIC */
	char rail[64];			/* name of the rail, or "" if the error
					 * concerns no rail */
	char peer[96];			/* name of the peer, or "" if the error
					 * concerns no peer */
	char provider[32];		/* name of the provider, or "" if the
					 * error concerns no provider */
	char text[TEI_ERR_TEXT];	/* what happened, with the error text
					 * of the libfabric provider */
	bool unknown;			/* true if the atomic operation, or the
					 * notification, may have been executed
					 * or delivered */
	bool unfenced;			/* the bytes may still land at the
					 * target; set only by blocking calls */
	bool stale;			/* the cached descriptor of the peer
					 * still lists the range in the member
					 * `absent` */
	struct {			/* range to which "stale" and the error
					 * refer; length 0 means that there is
					 * none */
		uint64_t addr, length;
	} absent;			/* range of the peer's memory that the
					 * peer has not registered */
	char hint[TEI_ERR_TEXT];	/* what the user can do, or "" */
};

/* Returns the positive code that submitTransfer and similar calls return. */
int tei_err_transfer_code(int code);

/* Returns the short English name of a code, never NULL. */
const char *tei_err_name(int code);

/*
 * Each thread has a record of its last error. tei_err_set_last copies err to
 * the record of the calling thread. tei_err_last returns this record; its code
 * is 0 if the thread had no error. The record is valid until the thread calls
 * tei_err_set_last again.
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

/* Does what tei_err_fail does, but logs with tei_log_repeated, so that the
 * lines for a condition that lasts while the caller tries again are limited.
 * repeat: argument of tei_log_repeated. */
struct tei_log_repeat;
int tei_err_fail_repeated(struct tei_log_repeat *repeat, struct tei_err *err,
			  int code, const char *subsys, const char *hint,
			  const char *fmt, ...)
	__attribute__((format(printf, 6, 7)));

/* Does what tei_err_fail does, but logs at level info. Used for errors that the
 * caller expects. */
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
