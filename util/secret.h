/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_SECRET_H
#define TEI_UTIL_SECRET_H

/*
 * The secret that the processes of a cluster share, and what proves that one
 * has it: keys derived from it and keyed hashes (HMAC-SHA-256). Nothing here
 * encrypts. Everything is thread-safe: a secret is constant once made.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"

#define TEI_SECRET_MIN	16	/* bytes, without the line's end */
#define TEI_SECRET_MAX	4096
#define TEI_MAC_SIZE	32	/* bytes of a keyed hash, of a digest */

/* Opaque; holds what keys are derived from, not the text itself. */
struct tei_secret;

/*
 * Reads path, whose bytes up to the line ends that close it are the secret.
 * TEI_ERR_INVALID where it is not a regular file, is not owned by this user or
 * root, may be read or written by group or others, or is shorter or longer
 * than the limits; the text says which, never what it holds. The caller frees
 * *out.
 */
int tei_secret_load(const char *path, struct tei_secret **out,
		    struct tei_err *err);

/* The same from memory. TEI_ERR_INVALID, TEI_ERR_MEMORY; nothing logged. */
int tei_secret_make(const void *bytes, size_t len, struct tei_secret **out);

/* Wipes it. NULL is ignored. */
void tei_secret_free(struct tei_secret *secret);

/* Plain data; wipe it with tei_wipe when it is done with. */
struct tei_mac_key {
	uint8_t bytes[TEI_MAC_SIZE];
};

struct tei_mac_part {
	const void *bytes;
	size_t len;
};

/* The key for one purpose, named by label; the same in every process. */
void tei_secret_key(const struct tei_secret *secret, const char *label,
		    struct tei_mac_key *out);

/*
 * HMAC-SHA-256 over the parts, each preceded by its length, so that no two
 * lists of parts give the same bytes.
 */
void tei_mac(const struct tei_mac_key *key, const struct tei_mac_part *parts,
	     size_t count, uint8_t out[TEI_MAC_SIZE]);

/* In a time that does not depend on the bytes. */
bool tei_mac_equal(const void *a, const void *b, size_t len);

/* SHA-256 of a text that is too long to be hashed again per message. */
void tei_digest(const void *bytes, size_t len, uint8_t out[TEI_MAC_SIZE]);

/* Zeros that no compiler leaves out. */
void tei_wipe(void *p, size_t len);

/* From the kernel's generator; false where it gives none. */
bool tei_random(void *p, size_t len);

/* Between 3/4 and 5/4 of it: for who would else come back with all others. */
uint64_t tei_jitter(uint64_t ns);

#endif /* TEI_UTIL_SECRET_H */
