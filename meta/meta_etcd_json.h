/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ETCD_JSON_H
#define TEI_META_META_ETCD_JSON_H

/*
 * The JSON texts of etcd's gateway: keys and values are in base64, 64-bit
 * numbers are texts, and members with the value 0 or false are left out.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/meta_json.h"

struct meta_kv_change;

#define ETCD_MESSAGE 128

/* A key of a response, valid during a call of etcd_response.pair. */
struct etcd_pair {
	const char *key; /* terminated; the key itself may contain NUL */
	size_t key_len;
	const char *value;
	size_t value_len;
	int64_t version; /* mod_revision */
};

/* The members of a response that the driver uses, whatever the request was. A
 * member that is not in the text is 0 or "". */
struct etcd_response {
	int64_t revision; /* revision of the whole store */
	uint64_t lease;	  /* ID of the lease in the response */
	int64_t ttl;	  /* s */
	bool succeeded, more, created, canceled;
	int64_t compacted;	    /* oldest revision that exists */
	int code;		    /* gRPC code of an error, or 0 */
	char message[ETCD_MESSAGE]; /* text of an error or a cancellation */
	char token[512];
	/* Set by the caller, or NULL. The parser calls it for each key, in
	 * order. If it returns false, the parser stops with an error. */
	bool (*pair)(void *arg, const struct etcd_pair *pair);
	void *arg;
};

/* Sets the members from the text. Returns false if the text is not valid JSON,
 * or a member has a wrong type. */
bool etcd_response_parse(const char *text, size_t len,
			 struct etcd_response *out);

/*
 * etcd_put_bytes appends the bytes as a JSON string in base64.
 * etcd_put_range_end first increments the last byte that is not 255; the result
 * is the end of the range of all keys with that prefix.
 */
void etcd_put_bytes(struct meta_buf *b, const char *bytes, size_t len);
void etcd_put_range_end(struct meta_buf *b, const char *prefix);

/* Appends the request of a transaction. lease is the ID of the lease to which
 * the leased changes belong. */
void etcd_put_commit(struct meta_buf *b, const struct meta_kv_change *changes,
		     size_t count, uint64_t lease);

#endif /* TEI_META_META_ETCD_JSON_H */
