/* SPDX-License-Identifier: BSD-2-Clause */
/* Compares addresses of endpoints, and writes them as text. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <stdio.h>
#include <string.h>

#include "prov/rail/core/rail_addr.h"
#include "prov/rail/tei_rail.h"

bool rail_addr_is_ip(const struct tei_rail_addr *a)
{
	const struct sockaddr_in *in = (const void *)a->bytes;

	return (in->sin_family == AF_INET && a->len == sizeof(*in)) ||
	       (in->sin_family == AF_INET6 &&
		a->len == sizeof(struct sockaddr_in6));
}

bool rail_addr_same(const struct tei_rail_addr *a,
		    const struct tei_rail_addr *b)
{
	const struct sockaddr_in *x = (const void *)a->bytes;
	const struct sockaddr_in *y = (const void *)b->bytes;
	const struct sockaddr_in6 *x6 = (const void *)a->bytes;
	const struct sockaddr_in6 *y6 = (const void *)b->bytes;

	if (a->addr_format != b->addr_format || a->len != b->len)
		return false;
	if (x->sin_family != y->sin_family)
		return false;
	if (x->sin_family == AF_INET)
		return x->sin_port == y->sin_port &&
		       x->sin_addr.s_addr == y->sin_addr.s_addr;
	if (x->sin_family == AF_INET6)
		return x6->sin6_port == y6->sin6_port &&
		       !memcmp(&x6->sin6_addr, &y6->sin6_addr, 16);
	return !memcmp(a->bytes, b->bytes, a->len);
}

void rail_addr_text(const struct tei_rail_addr *a, char *buf, size_t len)
{
	const struct sockaddr *sa = (const void *)a->bytes;
	char ip[INET6_ADDRSTRLEN] = "?";
	size_t i, used = 0;

	*buf = '\0';
	if ((a->addr_format == FI_SOCKADDR_IN ||
	     a->addr_format == FI_SOCKADDR) && sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)sa;

		inet_ntop(AF_INET, &in->sin_addr, ip, sizeof(ip));
		snprintf(buf, len, "%s:%u", ip, ntohs(in->sin_port));
	} else if (a->addr_format == FI_SOCKADDR_IN6) {
		const struct sockaddr_in6 *in6 = (const void *)sa;

		inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof(ip));
		snprintf(buf, len, "[%s]:%u", ip, ntohs(in6->sin6_port));
	} else if (a->addr_format == FI_ADDR_STR) {
		snprintf(buf, len, "%.*s", (int)a->len, (const char *)a->bytes);
	} else {
		for (i = 0; i < a->len && used + 3 < len; i++)
			used += (size_t)snprintf(buf + used, len - used,
						 "%02x", a->bytes[i]);
	}
}
