/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_HTTP_TEST_H
#define TEI_META_META_HTTP_TEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define HTTP_STUB_CLIENTS 8
#define HTTP_STUB_REQUEST 65536

/*
 * An HTTP server for tests, on a free port of 127.0.0.1, with a thread of its
 * own. It sends the bytes of its table, whatever the request is. The test's
 * thread may read the members below after it has received the response.
 */
struct http_stub {
	/* set by the test before start: the bytes for each request in turn; the
	 * last is repeated. NULL ends the table. */
	const char *const *replies;
	const char *tail; /* sent again and again after the reply, until the
			   * client closes; NULL: nothing */
	bool close;	  /* the server closes the connection after a reply */
	/* results */
	char url[64]; /* "http://127.0.0.1:PORT" */
	unsigned int requests, connections;
	char request[HTTP_STUB_REQUEST]; /* the last one, terminated */
	/* private */
	pthread_t thread;
	int listener, wake[2];
	struct http_stub_client {
		int fd;
		size_t len;
		char text[HTTP_STUB_REQUEST];
	} clients[HTTP_STUB_CLIENTS];
};

/* An element of replies that makes the server send nothing and keep the
 * connection open. */
extern const char http_stub_silent[];

/* Starts the server; stub is zero except for the members of the test. Fails the
 * case on error. */
void http_stub_start(struct http_stub *stub);
void http_stub_stop(struct http_stub *stub);

#endif /* TEI_META_META_HTTP_TEST_H */
