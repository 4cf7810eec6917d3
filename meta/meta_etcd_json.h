/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ETCD_JSON_H
#define TEI_META_META_ETCD_JSON_H

/*
 * The JSON texts of etcd's gateway: keys and values are encoded in base64,
 * 64-bit numbers are written as strings, and members with the value 0 or false
 * are left out.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/meta_json.h"

struct meta_kv_change;

#define ETCD_MESSAGE 128

/* A key of a response, valid during a call of etcd_response.pair. */
struct etcd_pair {
	const char *key; /* terminated text; the key may also contain NUL
			  * characters before the terminator */
	size_t key_len;
	const char *value;
	size_t value_len;
	int64_t version; /* modification revision ("mod_revision") */
};

/* All members of responses that the driver uses; each kind of response has some
 * of them. A member that is not in the JSON text is 0, false or "". */
struct etcd_response {
	int64_t revision; /* revision of the whole store */
	uint64_t lease;	  /* ID of the granted lease */
	int64_t ttl;	  /* remaining time of the lease, s */
	bool succeeded, more, created, canceled;
	int64_t compacted;	    /* oldest revision that the server still
				     * has */
	int code;		    /* gRPC code of an error, or 0 */
	char message[ETCD_MESSAGE]; /* text of an error or a cancellation */
	char token[512];
	/*
	 * Set by the caller: a function that the parser calls for each key in
	 * the response, in order, or NULL. If the function returns false, the
	 * parser stops with an error.
	 */
	bool (*pair)(void *arg, const struct etcd_pair *pair);
	void *arg;
};

/* Parses text and sets the members of *out. Returns false if text is not valid
 * JSON or a member has a wrong type. */
bool etcd_response_parse(const char *text, size_t len,
			 struct etcd_response *out);

/*
 * etcd_put_bytes appends the bytes as a JSON string in base64.
 * etcd_put_range_end appends the end of the range of all keys that start with
 * prefix. etcd expects as the end the prefix with its last byte incremented,
 * where bytes of 255 at the end are left out.
 */
void etcd_put_bytes(struct meta_buf *b, const char *bytes, size_t len);
void etcd_put_range_end(struct meta_buf *b, const char *prefix);

/* Appends the JSON text of a transaction that makes the changes. lease is the
 * ID of the lease to which the leased keys are to belong. */
void etcd_put_commit(struct meta_buf *b, const struct meta_kv_change *changes,
		     size_t count, uint64_t lease);

#endif /* TEI_META_META_ETCD_JSON_H */
