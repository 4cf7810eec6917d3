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
 * own. It answers each request with the bytes in its table "replies" and
 * ignores what the request says. After the test's thread has received a
 * response, it may read the members that are marked as results.
 */
struct http_stub {
	/*
	 * The test sets these members before http_stub_start. replies[i]
	 * contains the bytes of the answer to request i. A NULL ends the table;
	 * all further requests get the last answer.
	 */
	const char *const *replies;
	/* text that the server sends repeatedly after the reply, until the
	 * client closes the connection; NULL: there is no such text */
	const char *tail;
	bool close;	  /* true: the server closes the connection after each
			   * reply */
	/* results, which the test reads */
	char url[64]; /* URL of the server, "http://127.0.0.1:PORT" */
	unsigned int requests, connections;
	char request[HTTP_STUB_REQUEST]; /* last request that was received,
					  * terminated */
	/* used by the stub only */
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

/* Starts the server. All members that the test does not set must be zero. After
 * an error, the test case has failed. */
void http_stub_start(struct http_stub *stub);
void http_stub_stop(struct http_stub *stub);

#endif /* TEI_META_META_HTTP_TEST_H */
