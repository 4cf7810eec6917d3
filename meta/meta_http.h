/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_HTTP_H
#define TEI_META_META_HTTP_H

/*
 * Declarations for the two parts of the HTTP driver: meta_http.c for the server
 * te_meta serve, meta_http_plain.c for servers that support only Mooncake's
 * protocol. Any thread may call these functions.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/meta_http_client.h"
#include "meta/meta_kv.h"

/* State of the driver, to which kv->state points. It does not change after
 * open, except for the member "since". */
struct http {
	struct meta_http *client;
	bool plain;	  /* the server supports only Mooncake's protocol */
	char url[512];	  /* URL from the connection string */
	char prefix[512]; /* text with which all keys of this cluster start */
	char lease[33];
	int64_t since; /* used by the watcher thread only: version of the server
			* up to which changes were reported */
};

#define HTTP_TARGET_MAX (3 * META_KV_KEY_MAX + 128)

/* A request to the server. */
struct http_call {
	const char *method;
	const char *query; /* text that follows the '?' in the URL */
	const char *body;  /* body of the request, or NULL */
	size_t len;
	uint64_t deadline_ns;
	bool (*idle)(void *arg);	  /* the callback "idle" of struct
					   * meta_http_request */
	struct meta_http_response answer; /* set by http_run; the caller frees
					   * answer.body, which is NULL after an
					   * error */
};

/*
 * Makes the request. Returns 0 if the HTTP status is 200 or equal to "also" or
 * "or_also"; a parameter that is 0 stands for no further status. Otherwise
 * returns an error code.
 */
int http_run(struct meta_kv *kv, struct http_call *call, int also, int or_also,
	     struct tei_err *err);

/* Writes "key=" and the key in URL encoding to out. */
void http_key_query(const char *key, char out[HTTP_TARGET_MAX]);

/* The functions of struct meta_kv_ops for a plain server. */
int http_plain_get(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
		   struct meta_kv_value *out, struct tei_err *err);
int http_plain_commit(struct meta_kv *kv, struct meta_kv_change *changes,
		      size_t count, uint64_t deadline_ns, struct tei_err *err);

#endif /* TEI_META_META_HTTP_H */
