/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_HTTP_CLIENT_H
#define TEI_META_META_HTTP_CLIENT_H

/*
 * Single HTTP requests with a time limit, by libcurl. Redirects are not
 * followed, and the proxies of the environment are not used.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define META_HTTP_WHY 128

/*
 * A client keeps a few connections for further requests. Any number of threads
 * make requests at once. Created by meta_http_new, freed by its owner with
 * meta_http_free after all requests have returned.
 */
struct meta_http;

/* Files in PEM form for https. "" or NULL: the system's authorities, and no
 * client certificate. */
struct meta_http_tls {
	const char *ca_file;
	const char *cert_file;
	const char *key_file;
};

struct meta_http_request {
	const char *method;	    /* "GET" */
	const char *url;	    /* http:// or https:// */
	const char *const *headers; /* "Name: value", then NULL; or NULL */
	const char *body;	    /* NULL: none; not copied */
	size_t body_len;
	size_t limit;	      /* greatest length of a response body */
	uint64_t deadline_ns; /* for the whole request */
	uint64_t connect_ns;  /* limit of the connection set-up;
			       * 0: only the deadline */
	/*
	 * For a response that arrives in parts. piece gets each part of the
	 * body of a response with status 200 (limit does not apply). idle is
	 * called at least every 250 ms. Both run on the calling thread, without
	 * a lock, and end the request by returning false. NULL: not needed.
	 */
	bool (*piece)(void *arg, const char *bytes, size_t len);
	bool (*idle)(void *arg);
	void *arg;
};

struct meta_http_response {
	int status; /* 0: no complete response header */
	char *body; /* terminated; the caller frees it;
		     * NULL after an error */
	size_t len;
	char why[META_HTTP_WHY]; /* cause of an error */
};

/* Returns NULL if memory is short. tls may be NULL; its strings must stay valid
 * until meta_http_free. */
struct meta_http *meta_http_new(const struct meta_http_tls *tls);
void meta_http_free(struct meta_http *http);	/* NULL: does nothing */

/* Ends all requests, and each later request at once, with TEI_ERR_CANCELED. */
void meta_http_cancel(struct meta_http *http);

/*
 * Makes a request; blocks until deadline_ns at most. Returns 0 for a complete
 * response, whatever its status. Otherwise logs nothing and returns one of:
 * - TEI_ERR_SOCKET: no complete response
 * - TEI_ERR_REJECTED: a certificate is not valid, or a file in tls is not
 *   readable
 * - TEI_ERR_CANCELED: meta_http_cancel, piece or idle ended the request
 * - TEI_ERR_INVALID: not an http URL
 * - TEI_ERR_METADATA: a body above the limit, or no HTTP
 * - TEI_ERR_MEMORY
 */
int meta_http_run(struct meta_http *http,
		  const struct meta_http_request *request,
		  struct meta_http_response *out);

#endif /* TEI_META_META_HTTP_CLIENT_H */
