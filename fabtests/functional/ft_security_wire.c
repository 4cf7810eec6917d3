/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabtests/functional/ft_security.h"

void sec_frame(uint8_t *out, uint8_t version, uint8_t type, uint32_t length)
{
	memset(out, 0, SEC_HEAD);
	memcpy(out, "MRcc", 4);
	out[4] = version;
	out[5] = type;
	length = htonl(length);
	memcpy(out + 12, &length, sizeof(length));
}

int sec_connect(const char *name, const char *from)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	const char *colon = strrchr(name, ':');
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, from, &sa.sin_addr);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)))
		goto err_close;
	inet_pton(AF_INET, "127.0.0.1", &sa.sin_addr);
	sa.sin_port = htons((uint16_t)atoi(colon + 1));
	if (!connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
		return fd;
err_close:
	close(fd);
	return -1;
}

int sec_listen(char *name, size_t len)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t size = sizeof(sa);

	if (fd >= 0 && !bind(fd, (struct sockaddr *)&sa, sizeof(sa)) &&
	    !listen(fd, SOMAXCONN) &&
	    !getsockname(fd, (struct sockaddr *)&sa, &size) &&
	    snprintf(name, len, "127.0.0.1:%u", ntohs(sa.sin_port)) < (int)len)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

bool sec_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	if (!f)
		return false;
	fprintf(f, "%s\n", text);
	fchmod(fileno(f), 0600);
	return !fclose(f);
}
