/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_HTTP_H
#define TEI_FABTESTS_COMMON_FT_HTTP_H

#include <stddef.h>

/* HTTP requests to a server on 127.0.0.1. Each request uses a connection of its
 * own. Any thread may call these functions. */

struct ft_http_answer {
	int status; /* HTTP status; 0 if there was no valid answer */
	char text[8192]; /* body, terminated by a zero byte; truncated if it is
			  * too long */
};

/* Connects and sends a request with a body of len bytes. Returns the socket, or
 * -1 on failure. */
int ft_http_send(int port, const char *method, const char *target,
		 const void *body, size_t len);
/* Connects and sends `text` without an HTTP header. Returns the socket, or -1
 * on failure. */
int ft_http_send_raw(int port, const void *text, size_t len);
/* Reads an answer until the server closes the connection, and closes the
 * socket. Returns the HTTP status, or 0 if the answer is not valid. */
int ft_http_receive(int fd, struct ft_http_answer *answer);

/* Sends a request and reads the answer. Returns the HTTP status, or 0 on
 * failure. `body` ends with a zero byte; NULL means no body. */
int ft_http(int port, const char *method, const char *target, const char *body,
	    struct ft_http_answer *answer);

#endif /* TEI_FABTESTS_COMMON_FT_HTTP_H */
