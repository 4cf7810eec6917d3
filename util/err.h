/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_ERR_H
#define TEI_UTIL_ERR_H

/*
 * One error is one record. Codes are the set-up family of the Mooncake API
 * (negative); the transfer family is the same number without its sign, but
 * for "not implemented" (-303 against 999): tei_err_transfer_code().
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
	TEI_ERR_TIMED_OUT = -9,		/* the caller's time ran out */
	TEI_ERR_CANCELED = -10,		/* cancelled by the caller */
	TEI_ERR_DNS = -101,
	TEI_ERR_SOCKET = -102,
	TEI_ERR_JSON = -103,		/* malformed JSON */
	TEI_ERR_REJECTED = -104,	/* handshake rejected */
	TEI_ERR_METADATA = -200,
	TEI_ERR_ENDPOINT = -201,
	TEI_ERR_CONTEXT = -202,		/* rail could not be opened or died */
	TEI_ERR_NUMA = -300,
	TEI_ERR_CLOCK = -301,
	TEI_ERR_MEMORY = -302,
	TEI_ERR_NOT_IMPLEMENTED = -303,
};

#define TEI_ERR_TEXT	160

/* Plain data, copied by value; strings are always terminated. */
struct tei_err {
	int code;			/* enum tei_code */
	int prov_errno;			/* provider's own, 0 if none */
	uint64_t when_ns;		/* CLOCK_MONOTONIC */
	char rail[64];			/* "" if not tied to a rail */
	char peer[96];			/* "" if not tied to a peer */
	char provider[32];		/* "" if not tied to a provider */
	char text[TEI_ERR_TEXT];	/* what happened, provider's text included */
	bool unknown;			/* an atomic that may be executed */
	bool stale;			/* absent, though its descriptor that
					   we have has it */
	struct {			/* length 0: nothing of the kind */
		uint64_t addr, length;
	} absent;			/* what the peer says it has not got */
	char hint[TEI_ERR_TEXT];	/* what to do about it, or "" */
};

/* Positive code for submitTransfer and friends. */
int tei_err_transfer_code(int code);

/* Short English name of a code, never NULL. */
const char *tei_err_name(int code);

/*
 * The calling thread's last error record. set copies; get returns the
 * thread's own record (code 0 if there was none), valid until the next set.
 */
void tei_err_set_last(const struct tei_err *err);
const struct tei_err *tei_err_last(void);

/*
 * Fills err with code and text (printf), everything else empty, sets it as the
 * thread's last error and logs it at level error under subsys. Returns code,
 * so that "return tei_err_fail(...)" reads well. err may be NULL.
 */
int tei_err_fail(struct tei_err *err, int code, const char *subsys,
		 const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/*
 * The same for what is in order, and expected by who asks: logged at level
 * info.
 */
int tei_err_note(struct tei_err *err, int code, const char *subsys,
		 const char *hint, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

#endif /* TEI_UTIL_ERR_H */
