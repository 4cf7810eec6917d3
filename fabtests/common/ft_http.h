/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_FT_HTTP_H
#define TEI_FABTESTS_COMMON_FT_HTTP_H

#include <stddef.h>

/* HTTP requests to a server on 127.0.0.1, each on a connection of its own. Any
 * thread. */

struct ft_http_answer {
	int status; /* HTTP status; 0 if there was no valid answer */
	char text[8192]; /* body, terminated; truncated if it is too long */
};

/* Sends a request with a body of len bytes. Returns the socket, or -1. */
int ft_http_send(int port, const char *method, const char *target,
		 const void *body, size_t len);
/* Sends text as it is. Returns the socket, or -1. */
int ft_http_send_raw(int port, const void *text, size_t len);
/* Reads the answer until the server closes the connection, and closes it.
 * Returns the status. */
int ft_http_receive(int fd, struct ft_http_answer *answer);

/* Sends a request and reads the answer. body is terminated by a zero byte; NULL
 * means no body. */
int ft_http(int port, const char *method, const char *target, const char *body,
	    struct ft_http_answer *answer);

#endif /* TEI_FABTESTS_COMMON_FT_HTTP_H */
