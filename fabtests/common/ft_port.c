/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_port.h"

#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PORT_FIRST 20000	/* above the ports of engines */
#define PORT_LAST 65535

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

/* Reads the range from which the kernel chooses ports for sockets that are
 * bound without a port. */
static void port_range(int *low, int *high)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

	if (!f || fscanf(f, "%d %d", low, high) != 2) {
		*low = 32768;
		*high = 60999;
	}
	if (f)
		fclose(f);
}

/* Returns true if another test has taken the port. Otherwise takes it and
 * returns false. To take a port, a test binds an abstract socket name, which
 * belongs to the network namespace like the port, and keeps the socket open
 * until the process ends. */
static bool port_taken(int port)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), len;

	len = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1,
		       "moonrail_test_port_%d", port);
	if (fd >= 0 && !bind(fd, (const struct sockaddr *)&un,
			     (socklen_t)(offsetof(struct sockaddr_un,
						  sun_path) + 1) +
				     (socklen_t)len))
		return false;
	if (fd >= 0)
		close(fd);
	return true;
}

int ft_port(const char *address)
{
	static unsigned int next;
	int low, high, below, above;

	if (!next)
		next = (unsigned int)getpid() * 37;
	port_range(&low, &high);
	below = low > PORT_FIRST ? low - PORT_FIRST : 0;
	above = high < PORT_LAST ? PORT_LAST - high : 0;
	if (below + above == 0)
		below = 12000;	/* The kernel may assign every port: try the
				 * first 12000. */
	for (int i = 0; i < 10000; i++) {
		int n = (int)(next++ % (unsigned int)(below + above));
		int port = n < below ? PORT_FIRST + n : high + 1 + n - below;
		int fd = ft_port_socket(address, port, true);

		if (fd < 0)
			continue;
		close(fd);
		if (!port_taken(port))
			return port;
	}
	return 0;
}
