/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_port.h"

#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

int ft_port_socket(const char *address, int port, bool bound)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_NUMERICHOST }, *ai;
	struct timeval limit = { .tv_sec = 2 };
	int fd, on = 1, rc;
	char service[16];

	snprintf(service, sizeof(service), "%d", port);
	if (getaddrinfo(address, service, &hints, &ai))
		return -1;
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	rc = bound ? bind(fd, ai->ai_addr, ai->ai_addrlen) :
		     connect(fd, ai->ai_addr, ai->ai_addrlen);
	freeaddrinfo(ai);
	if (!rc)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

int ft_port(const char *address)
{
	static unsigned int next;

	if (!next)
		next = (unsigned int)getpid() * 37;
	for (int i = 0; i < 10000; i++) {
		int port = 20000 + (int)(next++ % 12000);
		int fd = ft_port_socket(address, port, true);

		if (fd < 0)
			continue;
		close(fd);
		return port;
	}
	return 0;
}
