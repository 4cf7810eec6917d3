/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_http.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "fabtests/common/ft_port.h"
#include "fabtests/common/ft_test.h"

#define HTTP_WAIT_S 20

static bool http_write(int fd, const char *text, size_t len)
{
	ssize_t n;

	for (; len; text += n, len -= (size_t)n) {
		n = send(fd, text, len, MSG_NOSIGNAL);
		if (n <= 0)
			return false;
	}
	return true;
}

int ft_http_send_raw(int port, const void *text, size_t len)
{
	struct timeval limit = { .tv_sec = HTTP_WAIT_S * (time_t)ft_load() };
	int fd = ft_port_socket("127.0.0.1", port, false);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	/* A failed write is ignored: a server that refuses a body may have
	 * answered and closed the connection already. */
	http_write(fd, text, len);
	return fd;
}

int ft_http_send(int port, const char *method, const char *target,
		 const void *body, size_t len)
{
	size_t head = strlen(target) + 256;
	char *text = malloc(head + len);
	int fd, n;

	if (!text)
		return -1;
	n = snprintf(
		text, head,
		"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
		"Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
		method, target, len);
	if (len)
		memcpy(text + n, body, len);
	fd = ft_http_send_raw(port, text, (size_t)n + len);
	free(text);
	return fd;
}

int ft_http_receive(int fd, struct ft_http_answer *answer)
{
	char text[sizeof(answer->text) + 1024], *body;
	size_t len = 0;
	ssize_t n = 1;

	memset(answer, 0, sizeof(*answer));
	if (fd < 0)
		return 0;
	while (n > 0 && len < sizeof(text) - 1) {
		n = recv(fd, text + len, sizeof(text) - 1 - len, 0);
		if (n > 0)
			len += (size_t)n;
	}
	close(fd);
	text[len] = 0;
	body = strstr(text, "\r\n\r\n");
	if (!body || sscanf(text, "HTTP/1.1 %d", &answer->status) != 1)
		return 0;
	snprintf(answer->text, sizeof(answer->text), "%s", body + 4);
	return answer->status;
}

int ft_http(int port, const char *method, const char *target, const char *body,
	    struct ft_http_answer *answer)
{
	return ft_http_receive(ft_http_send(port, method, target, body,
					    body ? strlen(body) : 0),
			       answer);
}
