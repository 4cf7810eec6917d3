/* SPDX-License-Identifier: BSD-2-Clause */
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "meta/meta_http_test.h"
#include "util/tei_test.h"

const char http_stub_silent[] = "";

static void stub_drop(struct http_stub_client *c)
{
	close(c->fd);
	c->fd = -1;
	c->len = 0;
}

static bool stub_send(int fd, const char *text)
{
	size_t len = strlen(text), sent = 0;
	ssize_t n = 1;

	while (sent < len && n > 0) {
		n = send(fd, text + sent, len - sent, MSG_NOSIGNAL);
		sent += n > 0 ? (size_t)n : 0;
	}
	return sent == len;
}

/* Returns the length of the first request in c->text, header and body, or 0 if
 * it is not complete yet. */
static size_t stub_request_len(const struct http_stub_client *c)
{
	const char *end = strstr(c->text, "\r\n\r\n"), *field;
	size_t body = 0, head;

	if (!end)
		return 0;
	head = (size_t)(end - c->text) + 4;
	field = strcasestr(c->text, "\r\nContent-Length:");
	if (field && field < end)
		body = strtoul(field + 17, NULL, 10);
	return c->len >= head + body ? head + body : 0;
}

static void stub_reply(struct http_stub *s, struct http_stub_client *c,
		       size_t len)
{
	const char *reply = s->replies[0], *tail;
	unsigned int i;
	bool open;

	for (i = 0; i <= s->requests && s->replies[i]; i++)
		reply = s->replies[i];
	memcpy(s->request, c->text, len);
	s->request[len] = 0;
	__atomic_fetch_add(&s->requests, 1, __ATOMIC_RELAXED);
	memmove(c->text, c->text + len, c->len - len + 1);
	c->len -= len;
	open = stub_send(c->fd, reply);
	while (open && (tail = __atomic_load_n(&s->tail, __ATOMIC_RELAXED)))
		open = stub_send(c->fd, tail);
	if (!open || (s->close && reply != http_stub_silent))
		stub_drop(c);
}

static void stub_read(struct http_stub *s, struct http_stub_client *c)
{
	ssize_t n =
		recv(c->fd, c->text + c->len, sizeof(c->text) - 1 - c->len, 0);
	size_t len;

	if (n <= 0) {
		stub_drop(c);
		return;
	}
	c->len += (size_t)n;
	c->text[c->len] = 0;
	while (c->fd >= 0 && (len = stub_request_len(c)) > 0)
		stub_reply(s, c, len);
}

static void stub_accept(struct http_stub *s)
{
	struct timeval limit = { .tv_sec = 30 };
	int fd = accept(s->listener, NULL, NULL), i;

	for (i = 0; i < HTTP_STUB_CLIENTS && fd >= 0; i++) {
		if (s->clients[i].fd >= 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
		s->clients[i].fd = fd;
		__atomic_fetch_add(&s->connections, 1, __ATOMIC_RELAXED);
		return;
	}
	if (fd >= 0)
		close(fd);
}

static void *stub_main(void *arg)
{
	struct http_stub *s = arg;
	struct pollfd p[HTTP_STUB_CLIENTS + 2] = { 0 };
	int i;

	for (;;) {
		for (i = 0; i < HTTP_STUB_CLIENTS; i++)
			p[i].fd = s->clients[i].fd;
		p[i].fd = s->listener;
		p[i + 1].fd = s->wake[0];
		for (i = 0; i < HTTP_STUB_CLIENTS + 2; i++)
			p[i].events = POLLIN;
		if (poll(p, HTTP_STUB_CLIENTS + 2, -1) < 0)
			continue;
		if (p[HTTP_STUB_CLIENTS + 1].revents)
			return NULL;
		for (i = 0; i < HTTP_STUB_CLIENTS; i++)
			if (p[i].revents)
				stub_read(s, &s->clients[i]);
		if (p[HTTP_STUB_CLIENTS].revents)
			stub_accept(s);
	}
}

void http_stub_start(struct http_stub *s)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(sa);
	int i;

	for (i = 0; i < HTTP_STUB_CLIENTS; i++)
		s->clients[i].fd = -1;
	s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CU_ASSERT_FATAL(s->listener >= 0 && !pipe(s->wake));
	CU_ASSERT_FATAL(
		!bind(s->listener, (struct sockaddr *)&sa, len) &&
		!listen(s->listener, HTTP_STUB_CLIENTS) &&
		!getsockname(s->listener, (struct sockaddr *)&sa, &len));
	snprintf(s->url, sizeof(s->url), "http://127.0.0.1:%u",
		 ntohs(sa.sin_port));
	CU_ASSERT_FATAL(!pthread_create(&s->thread, NULL, stub_main, s));
}

void http_stub_stop(struct http_stub *s)
{
	int i;

	CU_ASSERT(write(s->wake[1], "", 1) == 1);
	pthread_join(s->thread, NULL);
	for (i = 0; i < HTTP_STUB_CLIENTS; i++)
		if (s->clients[i].fd >= 0)
			stub_drop(&s->clients[i]);
	close(s->listener);
	close(s->wake[0]);
	close(s->wake[1]);
}
