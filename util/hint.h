/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_HINT_H
#define TEI_UTIL_HINT_H

/*
 * The table of hints: what a user can do about an error. A hint is shown after
 * the text of the error and fits into struct tei_err. Any thread.
 */

enum tei_hint_place {
	TEI_HINT_CONTROL,	/* connecting to a peer's control port */
	TEI_HINT_DATA,		/* a connection of a rail; the errno is that
				 * of libfabric */
	TEI_HINT_BIND,		/* binding a listening socket */
	TEI_HINT_THREAD,	/* creating a thread */
	TEI_HINT_OBJECT,	/* creating a file descriptor, an endpoint or
				 * a similar resource */
};

/* In place of an errno: the peer accepted a connection and did not answer. */
#define TEI_HINT_SILENT		(-1)
/* In place of an errno: a link-local address without an interface. */
#define TEI_HINT_NO_ZONE	(-2)
/* In place of an errno: small messages arrive and large requests stall. */
#define TEI_HINT_LARGE_STALL	(-3)
/* In place of an errno: a peer's data port has never answered. */
#define TEI_HINT_NO_ANSWER	(-4)
/* In place of an errno: the peer answered before, and no longer answers. */
#define TEI_HINT_FELL_SILENT	(-5)

/* Returns the hint for an error at a place, or NULL if there is none. error is
 * an errno or one of the values above. */
const char *tei_hint(enum tei_hint_place place, int error);

#endif /* TEI_UTIL_HINT_H */
