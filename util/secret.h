/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_SECRET_H
#define TEI_UTIL_SECRET_H

/*
 * The secret that the processes of a cluster share. With keys derived from it
 * and keyed hashes (HMAC-SHA-256), a process proves that it knows the secret.
 * Nothing is encrypted here. All functions may be called from any thread,
 * because a secret never changes after its creation.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"

#define TEI_SECRET_MIN	16	/* smallest length of a secret, bytes, without
				 * trailing line ends */
#define TEI_SECRET_MAX	4096
#define TEI_MAC_SIZE	32	/* length of a keyed hash or digest, bytes */

/* A secret. Contains the key from which all other keys are derived, not the
 * text of the secret. */
struct tei_secret;

/*
 * Reads the secret from the file path, without trailing line ends. Returns
 * TEI_ERR_INVALID if path is not a regular file, if its owner is a user other
 * than this one and root, if group or others may access it, or if its content
 * is shorter than TEI_SECRET_MIN or longer than TEI_SECRET_MAX. The error text
 * names the reason, never the content. The caller frees *out with
 * tei_secret_free.
 */
int tei_secret_load(const char *path, struct tei_secret **out,
		    struct tei_err *err);

/*
 * Makes a secret from len bytes of memory. Returns 0, TEI_ERR_INVALID if len is
 * below TEI_SECRET_MIN or above TEI_SECRET_MAX, or TEI_ERR_MEMORY. Logs
 * nothing.
 */
int tei_secret_make(const void *bytes, size_t len, struct tei_secret **out);

/* Wipes and frees the secret. NULL is ignored. */
void tei_secret_free(struct tei_secret *secret);

/* A derived key. Must be erased with tei_wipe after use. */
struct tei_mac_key {
	uint8_t bytes[TEI_MAC_SIZE];
};

struct tei_mac_part {
	const void *bytes;
	size_t len;
};

/* Derives the key for one purpose, which label names. All processes with the
 * same secret derive the same key. */
void tei_secret_key(const struct tei_secret *secret, const char *label,
		    struct tei_mac_key *out);

/* Computes HMAC-SHA-256 over a list of parts: over their number, and over the
 * length and the bytes of each part. So the hashed bytes of two different lists
 * always differ. */
void tei_mac(const struct tei_mac_key *key, const struct tei_mac_part *parts,
	     size_t count, uint8_t out[TEI_MAC_SIZE]);

/* Returns true if the len bytes at a and b are equal. The time of the
 * comparison does not depend on the bytes. */
bool tei_mac_equal(const void *a, const void *b, size_t len);

/* Computes the SHA-256 hash of bytes. Used for texts that are too long to be
 * hashed with each message. */
void tei_digest(const void *bytes, size_t len, uint8_t out[TEI_MAC_SIZE]);

/* Fills memory with zeros; the compiler does not remove the call. */
void tei_wipe(void *p, size_t len);

/* Fills memory with random bytes of the current world; the real world takes
 * them from the kernel. Returns false on failure. */
bool tei_random(void *p, size_t len);

/*
 * Returns a random time between 3/4 and 5/4 of ns, so that processes that
 * failed together do not retry together.
 */
uint64_t tei_jitter(uint64_t ns);

#endif /* TEI_UTIL_SECRET_H */
