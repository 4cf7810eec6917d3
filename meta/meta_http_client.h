/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_HTTP_CLIENT_H
#define TEI_META_META_HTTP_CLIENT_H

/* Functions that make HTTP requests with a time limit, by libcurl. Redirects
 * are not followed. The proxy settings in the environment are ignored. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define META_HTTP_WHY 128

/*
 * An HTTP client. It keeps a few connections open for further requests. Any
 * number of threads may make requests at once. meta_http_new creates a client.
 * Its owner frees it with meta_http_free after all requests have returned.
 */
struct meta_http;

/*
 * Files in PEM form for https. If ca_file is "" or NULL, the system's
 * certificate authorities are used. If cert_file or key_file is "" or NULL, the
 * client presents no certificate.
 */
struct meta_http_tls {
	const char *ca_file;
	const char *cert_file;
	const char *key_file;
};

struct meta_http_request {
	const char *method;	    /* HTTP method, such as "GET" */
	const char *url;	    /* URL that begins with http:// or
				     * https:// */
	const char *const *headers; /* array of lines "Name: value", which ends
				     * with NULL; or NULL */
	const char *body;	    /* body of the request, or NULL; not
				     * copied */
	size_t body_len;
	size_t limit;	      /* greatest length of a response body, bytes */
	uint64_t deadline_ns; /* deadline of the whole request */
	uint64_t connect_ns;  /* time limit for setting up a connection, ns; 0:
			       * only the deadline applies */
	/*
	 * Callbacks, each of which may be NULL. They run on the calling thread,
	 * without a lock. If one of them returns false, the request ends.
	 * "piece" receives the body of a response with status 200 in parts, as
	 * they arrive; limit does not apply then. "idle" is called at least
	 * every 250 ms while the request is in progress.
	 */
	bool (*piece)(void *arg, const char *bytes, size_t len);
	bool (*idle)(void *arg);
	void *arg;
};

struct meta_http_response {
	int status; /* HTTP status, or 0 if no complete header has arrived */
	char *body; /* body, terminated, which the caller frees; NULL after an
		     * error */
	size_t len;
	char why[META_HTTP_WHY]; /* text that states the cause of an error */
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
 * response, whatever its HTTP status is. Otherwise logs nothing and returns one
 * of:
 * - TEI_ERR_SOCKET: no complete response has arrived
 * - TEI_ERR_REJECTED: a certificate is not valid, or a file in tls is not
 *   readable
 * - TEI_ERR_CANCELED: meta_http_cancel, "piece" or "idle" has ended the request
 * - TEI_ERR_INVALID: the URL does not begin with http:// or https://
 * - TEI_ERR_METADATA: the body is longer than the limit, or the answer is not
 *   HTTP
 * - TEI_ERR_MEMORY: memory is short
 */
int meta_http_run(struct meta_http *http,
		  const struct meta_http_request *request,
		  struct meta_http_response *out);

#endif /* TEI_META_META_HTTP_CLIENT_H */
