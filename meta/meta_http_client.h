/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_HTTP_CLIENT_H
#define TEI_META_META_HTTP_CLIENT_H

/*
 * Makes single HTTP requests with a time limit, by libcurl. Redirects are not
 * followed. The proxy settings in the environment are ignored.
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

/* Files in PEM form for https. If a file is "" or NULL, the system's
 * certificate authorities are used, and the client has no certificate. */
struct meta_http_tls {
	const char *ca_file;
	const char *cert_file;
	const char *key_file;
};

struct meta_http_request {
	const char *method;	    /* "GET" */
	const char *url;	    /* http:// or https:// */
	const char *const *headers; /* lines "Name: value", ended by NULL; or
				     * NULL */
	const char *body;	    /* body of the request, or NULL; not
				     * copied */
	size_t body_len;
	size_t limit;	      /* greatest length of a response body */
	uint64_t deadline_ns; /* for the whole request */
	uint64_t connect_ns;  /* time limit of the connection set-up, ns; 0:
			       * only the deadline applies */
	/*
	 * Callbacks for a response that arrives in parts; each may be NULL.
	 * piece gets each part of the body if the status is 200; limit does not
	 * apply then. idle is called at least every 250 ms. Both run on the
	 * calling thread, without a lock. If one returns false, the request
	 * ends.
	 */
	bool (*piece)(void *arg, const char *bytes, size_t len);
	bool (*idle)(void *arg);
	void *arg;
};

struct meta_http_response {
	int status; /* HTTP status, or 0 if no complete header has arrived */
	char *body; /* terminated; the caller frees it; NULL after an error */
	size_t len;
	char why[META_HTTP_WHY]; /* cause of an error */
};

/* Creates a client, or returns NULL if memory is short. tls may be NULL; its
 * strings must stay valid until meta_http_free. */
struct meta_http *meta_http_new(const struct meta_http_tls *tls);
void meta_http_free(struct meta_http *http); /* Frees the client. NULL is
					      * ignored. */

/* Ends all requests of the client with TEI_ERR_CANCELED. Every later request
 * ends in the same way at once. */
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
