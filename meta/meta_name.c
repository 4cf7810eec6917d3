/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <ctype.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "meta/meta_int.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/settings.h"

static bool name_port(const char *text, uint16_t *port)
{
	unsigned long v = 0;
	size_t i;

	for (i = 0; text[i]; i++) {
		if (!isdigit((unsigned char)text[i]) || i == 5)
			return false;
		v = v * 10 + (unsigned long)(text[i] - '0');
	}
	if (!i || v > UINT16_MAX)
		return false;
	*port = (uint16_t)v;
	return true;
}

int tei_meta_split(const char *text, char host[TEI_META_HOST_MAX],
		   uint16_t *port)
{
	const char *start = text, *end, *colon = text ? strchr(text, ':') : NULL;
	uint16_t p = 0;
	size_t len;

	if (!text)
		return TEI_ERR_INVALID;
	if (*text == '[') {
		start = text + 1;
		end = strchr(start, ']');
		if (!end || (end[1] && end[1] != ':'))
			return TEI_ERR_INVALID;
		colon = end[1] ? end + 1 : NULL;
	} else if (colon && strchr(colon + 1, ':')) {
		colon = NULL; /* an IPv6 address without brackets, to which no
			       * port can belong */
		end = text + strlen(text);
	} else {
		end = colon ? colon : text + strlen(text);
	}
	len = (size_t)(end - start);
	if (!len || len >= TEI_META_HOST_MAX || (colon &&
						 !name_port(colon + 1, &p)))
		return TEI_ERR_INVALID;
	memcpy(host, start, len);
	host[len] = 0;
	*port = p;
	return 0;
}

void tei_meta_conn_shown(const char *text, char out[TEI_META_SHOWN])
{
	const char *sep = strstr(text, "://"), *at = strrchr(text, '@');

	if (!at)
		snprintf(out, TEI_META_SHOWN, "%.48s", text);
	else if (sep && sep < at && sep - text <= 12)
		snprintf(out, TEI_META_SHOWN, "%.*s://(hidden)@%.30s",
			 (int)(sep - text), text, at + 1);
	else
		snprintf(out, TEI_META_SHOWN, "(hidden)@%.38s", at + 1);
}

const char *tei_meta_split_why(const char *text)
{
	const char *port = text ? strrchr(text, ':') : NULL;

	if (port && port[1] && !port[1 + strspn(port + 1, "0123456789")])
		return strtoul(port + 1, NULL, 10) - 1 < UINT16_MAX ?
			       "not host:port or [v6]:port" :
			       "the port is out of range (1 to 65535)";
	return "not host:port or [v6]:port";
}

void tei_meta_join(const char *host, uint16_t port,
		   char out[TEI_META_ENDPOINT_MAX])
{
	bool v6 = strchr(host, ':') != NULL;

	snprintf(out, TEI_META_ENDPOINT_MAX, "%s%.*s%s:%u", v6 ? "[" : "",
		 TEI_META_HOST_MAX - 1, host, v6 ? "]" : "", port);
}

static int name_key(const char *cluster, const char *kind, const char *name,
		    char *out, size_t len)
{
	bool with = cluster && *cluster;
	int n;

	if (!name || !*name)
		return TEI_ERR_INVALID;
	n = snprintf(out, len, "mooncake/%s%s%s%s", with ? cluster : "",
		     with ? "/" : "", kind, name);
	return n < 0 || (size_t)n >= len ? TEI_ERR_INVALID : 0;
}

int tei_meta_rpc_key(const char *cluster, const char *server, char *out,
		     size_t len)
{
	return name_key(cluster, "rpc_meta/", server, out, len);
}

int tei_meta_segment_key(const char *cluster, const char *segment, char *out,
			 size_t len)
{
	bool plain = segment && !strchr(segment, '/');

	return name_key(cluster, plain ? "ram/" : "", segment, out, len);
}

bool meta_address_loopback(const struct sockaddr *sa)
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;

	if (sa->sa_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	return sa->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

bool meta_address_wildcard(const struct sockaddr *sa)
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;

	if (sa->sa_family == AF_INET)
		return v4->sin_addr.s_addr == htonl(INADDR_ANY);
	return sa->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
}

void meta_address_host(const struct sockaddr *sa, socklen_t len,
		       char out[TEI_META_HOST_MAX])
{
	if (getnameinfo(sa, len, out, TEI_META_HOST_MAX, NULL, 0,
			NI_NUMERICHOST))
		strcpy(out, "?");
}

void meta_address_text(const struct sockaddr *sa, socklen_t len,
		       char out[TEI_META_ENDPOINT_MAX])
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;
	char host[TEI_META_HOST_MAX];

	meta_address_host(sa, len, host);
	tei_meta_join(host, ntohs(sa->sa_family == AF_INET6 ? v6->sin6_port :
				  v4->sin_port), out);
}

/* --- the own address ----------------------------------------------------- */

static bool name_has_prefix(const char *name, const char *const *prefixes)
{
	for (; *prefixes; prefixes++)
		if (!strncmp(name, *prefixes, strlen(*prefixes)))
			return true;
	return false;
}

/*
 * Returns true if the interface is a bridge or the host side of a container's
 * link. The address of such an interface cannot be reached from other machines.
 */
static bool name_is_bridge(const char *interface)
{
	static const char *const prefixes[] = {
		"br-", "cali", "cni", "docker", "flannel", "lxc", "podman",
		"veth", "virbr", NULL,
	};
	char path[64 + IF_NAMESIZE];

	snprintf(path, sizeof(path), "/sys/class/net/%s/bridge", interface);
	return name_has_prefix(interface, prefixes) || !access(path, F_OK);
}

static bool name_is_link_local(const struct sockaddr *sa)
{
	const struct sockaddr_in *v4 = (const void *)sa;
	const struct sockaddr_in6 *v6 = (const void *)sa;

	if (sa->sa_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 16 == 0xa9fe;
	return IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

/* Returns the rank of the interface's address: 0 if peers cannot use it,
 * otherwise 1 or, for the preferred IP version, 2. */
static int name_rank(const struct ifaddrs *i, bool ipv6)
{
	const unsigned int want = IFF_UP | IFF_RUNNING;
	sa_family_t family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;

	if (family != AF_INET && family != AF_INET6)
		return 0;
	if ((i->ifa_flags & want) != want || i->ifa_flags & IFF_LOOPBACK)
		return 0;
	if (name_is_bridge(i->ifa_name) || name_is_link_local(i->ifa_addr))
		return 0;
	return (family == AF_INET6) == ipv6 ? 2 : 1;
}

static void name_host(const struct sockaddr *sa, char out[TEI_META_HOST_MAX])
{
	meta_address_host(sa, sa->sa_family == AF_INET6 ?
			  sizeof(struct sockaddr_in6) :
			  sizeof(struct sockaddr_in), out);
}

/* Writes the first of the addresses with the highest rank to out. Returns false
 * if peers cannot use any of the addresses. */
static bool name_best(const struct ifaddrs *list, bool ipv6,
		      char out[TEI_META_HOST_MAX])
{
	const struct ifaddrs *i, *best = NULL;
	int rank, best_rank = 0;

	for (i = list; i; i = i->ifa_next) {
		rank = name_rank(i, ipv6);
		if (rank > best_rank) {
			best = i;
			best_rank = rank;
		}
	}
	if (best)
		name_host(best->ifa_addr, out);
	return best;
}

/* Writes the first of the addresses with the highest rank to out, or the
 * loopback address if peers cannot use any. */
static void name_own_address(bool ipv6, char out[TEI_META_HOST_MAX])
{
	struct ifaddrs *list;

	strcpy(out, ipv6 ? "::1" : "127.0.0.1");
	if (getifaddrs(&list))
		return;
	name_best(list, ipv6, out);
	freeifaddrs(list);
}

/* Returns true if an interface other than a loopback interface has the numeric
 * address "host". */
static bool name_present(const struct ifaddrs *i, const char *host)
{
	char text[TEI_META_HOST_MAX];

	for (; i; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_flags & IFF_LOOPBACK ||
		    (i->ifa_addr->sa_family != AF_INET &&
		     i->ifa_addr->sa_family != AF_INET6))
			continue;
		name_host(i->ifa_addr, text);
		if (!strcmp(text, host))
			return true;
	}
	return false;
}

bool tei_meta_host_outdated(const struct tei_settings *settings,
			    const char *host, char out[TEI_META_HOST_MAX])
{
	struct ifaddrs *list;
	bool outdated;

	if (getifaddrs(&list))
		return false;
	outdated = !name_present(list, host) &&
		   name_best(list, settings->control.use_ipv6, out);
	freeifaddrs(list);
	return outdated;
}

enum name_kind {
	NAME_USABLE,
	NAME_WILDCARD, /* the address is a wildcard address */
	NAME_HIDDEN,   /* the host name resolves to loopback addresses only */
};

static enum name_kind name_classify(const char *host, const struct addrinfo *a)
{
	unsigned char bytes[sizeof(struct in6_addr)];
	bool loopback = true;

	if (meta_address_wildcard(a->ai_addr))
		return NAME_WILDCARD;
	for (; a; a = a->ai_next)
		loopback = loopback && meta_address_loopback(a->ai_addr);
	if (!loopback || !strcasecmp(host, "localhost") ||
	    inet_pton(AF_INET, host, bytes) == 1 ||
	    inet_pton(AF_INET6, host, bytes) == 1)
		return NAME_USABLE;
	return NAME_HIDDEN;
}

/*
 * Returns true if every address is 127.0.1.1. Debian writes this address for
 * the host's own name into /etc/hosts, so the user has made no mistake.
 */
static bool name_of_debian(const struct addrinfo *a)
{
	for (; a; a = a->ai_next)
		if (a->ai_addr->sa_family != AF_INET ||
		    ((const struct sockaddr_in *)(const void *)a->ai_addr)
				    ->sin_addr.s_addr != htonl(0x7f000101))
			return false;
	return true;
}

static int name_given(const struct tei_settings *settings, const char *host,
		      char out[TEI_META_HOST_MAX], bool *usable,
		      struct tei_err *err)
{
	uint64_t deadline = tei_now_ns() + settings->control.connect_timeout_s *
						   TEI_NS_PER_SEC;
	struct addrinfo *list;
	enum name_kind kind;
	const char *why;
	bool debian;
	int rc;

	rc = tei_meta_resolve(host, 0, deadline, &list, &why);
	if (rc)
		return tei_err_fail(err, rc, "meta",
				    "give the address of an interface of this host",
				    "own host '%.64s': %s", host, why);
	kind = name_classify(host, list);
	debian = name_of_debian(list);
	freeaddrinfo(list);
	*usable = kind == NAME_USABLE;
	if (*usable) {
		snprintf(out, TEI_META_HOST_MAX, "%s", host);
		return 0;
	}
	name_own_address(settings->control.use_ipv6, out);
	if (kind == NAME_HIDDEN)
		tei_log(debian ? TEI_LOG_INFO : TEI_LOG_WARN, "meta",
			"own host %s resolves to loopback addresses only: using %s instead",
			host, out);
	return 0;
}

int tei_meta_local_host(const struct tei_settings *settings,
			const char *local_server_name, bool named,
			char out[TEI_META_HOST_MAX], bool *given,
			struct tei_err *err)
{
	const char *from = settings->control.bind_address;
	char host[TEI_META_HOST_MAX];
	bool usable = false;
	uint16_t port;
	int rc = 0;

	if (!*from && (named || settings->control.legacy_binding) &&
	    local_server_name)
		from = local_server_name;
	if (!*from)
		name_own_address(settings->control.use_ipv6, out);
	else if (tei_meta_split(from, host, &port))
		rc = tei_err_fail(err, TEI_ERR_INVALID, "meta",
				  "write host, host:port or [v6]:port",
				  "'%.64s' is not a host: %s", from,
				  tei_meta_split_why(from));
	else
		rc = name_given(settings, host, out, &usable, err);
	if (given)
		*given = usable;
	return rc;
}

/* --- incarnation --------------------------------------------------------- */

uint64_t tei_meta_incarnation(void)
{
	uint64_t v = 0;

	if (!tei_random(&v, sizeof(v)))
		v = tei_now_ns() * UINT64_C(0x9e3779b97f4a7c15) ^
		    (uint64_t)getpid();
	return v ? v : 1;
}

