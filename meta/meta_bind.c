/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "meta/meta_server_int.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_server.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/hint.h"

static void bind_set_port(struct sockaddr *sa, uint16_t port)
{
	if (sa->sa_family == AF_INET6)
		((struct sockaddr_in6 *)(void *)sa)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)(void *)sa)->sin_port = htons(port);
}

/* Binds one address. Returns a listening socket, or a negative errno. */
static int bind_one(const struct sockaddr *sa, socklen_t len, uint32_t backlog)
{
	const int one = 1;
	int fd, rc;

	fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
		    0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (sa->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, sa, len) || listen(fd, (int)backlog)) {
		rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

/*
 * Binds a port at the address sa. Tries the port "first", unless it is 0, and
 * then each port of the range once, beginning with a random one. Returns a
 * listening socket, or a negative errno.
 */
static int bind_range(const struct tei_meta_server_config *config,
		      uint16_t first, struct sockaddr *sa, socklen_t len)
{
	uint32_t backlog = config->backlog ? config->backlog : SOMAXCONN;
	uint16_t min = config->min_port;
	uint32_t count = (uint32_t)config->max_port - min + 1, i, start;
	int fd = -EADDRINUSE;

	if (first) {
		bind_set_port(sa, first);
		fd = bind_one(sa, len, backlog);
		if (fd != -EADDRINUSE)
			return fd;
	}
	start = (uint32_t)(tei_meta_incarnation() % count);
	for (i = 0; i < count; i++) {
		bind_set_port(sa, (uint16_t)(min + (start + i) % count));
		fd = bind_one(sa, len, backlog);
		if (fd != -EADDRINUSE && fd != -EACCES)
			break;
	}
	return fd;
}

/* Returns the rank of an address, 0 to 3. The address with the lowest rank is
 * used. */
static int bind_rank(const struct addrinfo *a, bool ipv6)
{
	return (meta_address_loopback(a->ai_addr) ? 2 : 0) +
	       ((a->ai_family == AF_INET6) == ipv6 ? 0 : 1);
}

/* Binds the address with the lowest rank that belongs to this host. Returns a
 * listening socket, or a negative errno. */
static int bind_best(const struct tei_meta_server_config *config, uint16_t port,
		     struct addrinfo *list)
{
	struct addrinfo *a;
	int rank, fd = -EADDRNOTAVAIL;

	for (rank = 0; rank < 4; rank++) {
		for (a = list; a; a = a->ai_next) {
			if (bind_rank(a, config->ipv6) != rank)
				continue;
			fd = bind_range(config, port, a->ai_addr,
					a->ai_addrlen);
			if (fd != -EADDRNOTAVAIL && fd != -EAFNOSUPPORT)
				return fd;
		}
	}
	return fd;
}

static int bind_learn(int fd, const char *host, struct meta_bound *out)
{
	struct sockaddr_storage ss;
	struct sockaddr *sa = (struct sockaddr *)&ss;
	socklen_t len = sizeof(ss);

	if (getsockname(fd, sa, &len))
		return -errno;
	out->port = ntohs(sa->sa_family == AF_INET6 ?
			  ((struct sockaddr_in6 *)(void *)sa)->sin6_port :
			  ((struct sockaddr_in *)(void *)sa)->sin_port);
	meta_address_host(sa, len, out->host);
	meta_address_text(sa, len, out->address);
	tei_meta_join(host, out->port, out->name);
	return 0;
}

int meta_server_bind(const struct tei_meta_server_config *config, uint16_t port,
		     struct meta_bound *out, struct tei_err *err)
{
	const char *host = config->host, *why = "";
	struct addrinfo *list;
	int rc, fd;

	rc = tei_meta_resolve(host, 0, tei_now_ns() + config->frame_timeout_ns,
			      &list, &why);
	if (rc)
		return tei_err_fail(err, rc, "meta", NULL,
				    "control channel host '%.64s': %s", host,
				    why);
	if (meta_address_wildcard(list->ai_addr)) {
		freeaddrinfo(list);
		return tei_err_fail(
			err, TEI_ERR_INVALID, "meta", NULL,
			"control channel host '%.64s' is not a single address",
			host);
	}
	fd = bind_best(config, port, list);
	freeaddrinfo(list);
	if (fd < 0)
		return tei_err_fail(err, TEI_ERR_SOCKET, "meta",
				    tei_hint(TEI_HINT_BIND, -fd),
				    "control channel: no port of %.64s from %u to %u can be bound: %s",
				    host, config->min_port, config->max_port,
				    strerror(-fd));
	rc = bind_learn(fd, host, out);
	if (rc) {
		close(fd);
		return tei_err_fail(err, TEI_ERR_SOCKET, "meta", NULL,
				    "control channel: cannot read the bound address: %s",
				    strerror(-rc));
	}
	return fd;
}
