/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_HINT_H
#define TEI_UTIL_HINT_H

/* The table of hints. A hint tells the user what to do about an error. It is
 * shown after the text of the error, and fits into struct tei_err. The
 * functions may be called from any thread. */

enum tei_hint_place {
	TEI_HINT_CONTROL,	/* connecting to a peer's control port */
	TEI_HINT_DATA,		/* connecting to a peer over a rail; the errno
				 * comes from libfabric */
	TEI_HINT_BIND,		/* binding a listening socket */
	TEI_HINT_THREAD,	/* creating a thread */
	TEI_HINT_OBJECT,	/* creating a file descriptor, an endpoint or
				 * a similar resource */
};

/* Used in place of an errno: the peer accepted a connection and did not
 * answer. */
#define TEI_HINT_SILENT		(-1)
/* Used in place of an errno: the address is link-local and has no interface. */
#define TEI_HINT_NO_ZONE	(-2)
/* Used in place of an errno: small messages arrive, but large requests
 * stall. */
#define TEI_HINT_LARGE_STALL	(-3)
/* Used in place of an errno: a peer's data port has never answered. */
#define TEI_HINT_NO_ANSWER	(-4)
/* Used in place of an errno: the peer has answered before, but no longer
 * does. */
#define TEI_HINT_FELL_SILENT	(-5)

/* Returns the hint for an error at a place, or NULL if there is none. error: an
 * errno, or one of the negative values above. */
const char *tei_hint(enum tei_hint_place place, int error);

#endif /* TEI_UTIL_HINT_H */
