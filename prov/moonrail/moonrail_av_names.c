/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Insertion of addresses by host and service names.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_av.h"

#define NAMES_MAX	256	/* longest name, bytes */

/* Resolves a name and inserts its first address. Returns the number of inserted
 * addresses or -FI_E*. */
static int names_insert(struct fid_av *fid, const char *node,
			const char *service, fi_addr_t *out, uint64_t flags,
			void *context)
{
	struct moonrail_av *av = tei_container_of(fid, struct moonrail_av, fid);
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *ai;
	int ret;

	if (av->domain->format == FI_SOCKADDR_IN)
		hints.ai_family = AF_INET;
	else if (av->domain->format == FI_SOCKADDR_IN6)
		hints.ai_family = AF_INET6;
	if (getaddrinfo(node, service, &hints, &ai))
		return -FI_ENODATA;
	ret = fi_av_insert(fid, ai->ai_addr, 1, out, flags, context);
	freeaddrinfo(ai);
	return ret;
}

int moonrail_av_insertsvc(struct fid_av *fid, const char *node,
			  const char *service, fi_addr_t *out, uint64_t flags,
			  void *context)
{
	if (!node || !service)
		return -FI_EINVAL;
	return names_insert(fid, node, service, out, flags, context);
}

/* Writes the n-th successor of "name" to out: adds n to an IPv4 address, or to
 * the number at the end of any other name. Returns false if the name ends
 * without a number or the result is too long. */
static bool names_next(const char *name, size_t n, char out[NAMES_MAX])
{
	size_t len = strlen(name), digits = 0;
	struct in_addr in;
	uint64_t number;
	int width;

	if (inet_pton(AF_INET, name, &in) == 1) {
		in.s_addr = htonl(ntohl(in.s_addr) + (uint32_t)n);
		return inet_ntop(AF_INET, &in, out, NAMES_MAX);
	}
	while (digits < len && digits < 18 && name[len - digits - 1] >= '0' &&
	       name[len - digits - 1] <= '9')
		digits++;
	if (!n || !digits)
		return !n && snprintf(out, NAMES_MAX, "%s", name) < NAMES_MAX;
	number = strtoull(name + len - digits, NULL, 10) + n;
	width = (int)digits;
	return snprintf(out, NAMES_MAX, "%.*s%0*llu", (int)(len - digits), name,
			width, (unsigned long long)number) < NAMES_MAX;
}

int moonrail_av_insertsym(struct fid_av *fid, const char *node, size_t nodes,
			  const char *service, size_t services, fi_addr_t *out,
			  uint64_t flags, void *context)
{
	struct moonrail_av *av = tei_container_of(fid, struct moonrail_av, fid);
	char host[NAMES_MAX], port[NAMES_MAX];
	fi_addr_t got;
	size_t i, k;
	int good = 0;

	if (!node || !service || !nodes || !services)
		return -FI_EINVAL;
	if (flags & FI_SYNC_ERR || av->flags & FI_EVENT)
		return -FI_ENOSYS;
	for (i = 0; i < nodes; i++) {
		for (k = 0; k < services; k++) {
			got = FI_ADDR_NOTAVAIL;
			if (names_next(node, i, host) &&
			    names_next(service, k, port))
				good += names_insert(fid, host, port, &got,
						     flags, context) == 1;
			if (out)
				out[i * services + k] = got;
		}
	}
	return good;
}
