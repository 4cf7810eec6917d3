/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The entry point of the provider, and fi_getinfo.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_fabric.h"
#include "prov/moonrail/moonrail_info.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_name.h"
#include "prov/moonrail/moonrail_policy.h"
#include "util/settings.h"

static void init_cleanup(void)
{
}

struct fi_provider moonrail_provider = {
	.version = MOONRAIL_VERSION,
	.fi_version = MOONRAIL_API,
	.name = "moonrail",
	.getinfo = moonrail_getinfo,
	.fabric = moonrail_fabric_open,
	.cleanup = init_cleanup,
};

/* Sets an address in the caller's address format. Frees the address that it
 * replaces. */
static int init_set_addr(const struct fi_info *info, const void *addr,
			 size_t len, void **out, size_t *outlen)
{
	uint8_t encoded[MOONRAIL_NAME_LEN];
	struct moonrail_name n;
	size_t size = sizeof(encoded);
	const void *from = encoded;

	if (!moonrail_name_from(addr, len, &n))
		return -FI_EINVAL;
	moonrail_name_put(&n, encoded);
	if (info->addr_format != MOONRAIL_FORMAT) {
		from = n.address;
		size = n.len;
	}
	free(*out);
	*out = malloc(size);
	if (!*out)
		return -FI_ENOMEM;
	memcpy(*out, from, size);
	*outlen = size;
	return 0;
}

/* If there is no source address, sets one with any port: the loopback address
 * if the destination is a loopback address, otherwise the unspecified
 * address. */
static int init_any_source(struct fi_info *info)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in in = { .sin_family = AF_INET };
	bool six = info->addr_format == FI_SOCKADDR_IN6;
	struct moonrail_name dest;
	const struct sockaddr_in *to = (const void *)dest.address;
	const struct sockaddr_in6 *to6 = (const void *)dest.address;

	if (info->src_addr)
		return 0;
	if (info->dest_addr &&
	    moonrail_name_from(info->dest_addr, info->dest_addrlen, &dest)) {
		six = moonrail_name_family(&dest) == AF_INET6;
		if (six && IN6_IS_ADDR_LOOPBACK(&to6->sin6_addr))
			in6.sin6_addr = in6addr_loopback;
		else if (moonrail_name_family(&dest) == AF_INET &&
			 ntohl(to->sin_addr.s_addr) >> 24 == 127)
			in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	}
	return six ? init_set_addr(info, &in6, sizeof(in6), &info->src_addr,
				   &info->src_addrlen) :
		     init_set_addr(info, &in, sizeof(in), &info->src_addr,
				   &info->src_addrlen);
}

static int init_resolve(const char *node, const char *service, uint64_t flags,
			uint32_t format, struct addrinfo **out)
{
	struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_family = format == FI_SOCKADDR_IN ? AF_INET :
			     format == FI_SOCKADDR_IN6 ? AF_INET6 : AF_UNSPEC,
	};

	if (flags & FI_SOURCE)
		hints.ai_flags |= AI_PASSIVE;
	if (flags & FI_NUMERICHOST)
		hints.ai_flags |= AI_NUMERICHOST;
	if (!node && format != FI_SOCKADDR_IN6)
		hints.ai_family = AF_INET;
	return getaddrinfo(node, service, &hints, out) ? -FI_ENODATA : 0;
}

/* Resolves node and service. Sets the result as the source if flags have
 * FI_SOURCE, otherwise as the destination. */
static int init_add_node(struct fi_info *info, const char *node,
			 const char *service, uint64_t flags)
{
	struct addrinfo *ai;
	int ret;

	if (!node && !service)
		return 0;
	if (!node && !(flags & FI_SOURCE))
		return 0;
	ret = init_resolve(node, service, flags, info->addr_format, &ai);
	if (ret)
		return ret;
	if (flags & FI_SOURCE)
		ret = init_set_addr(info, ai->ai_addr, ai->ai_addrlen,
				    &info->src_addr, &info->src_addrlen);
	else
		ret = init_set_addr(info, ai->ai_addr, ai->ai_addrlen,
				    &info->dest_addr, &info->dest_addrlen);
	freeaddrinfo(ai);
	return ret;
}

/* Returns -FI_ENODATA if the source is not an address of this host, because
 * then no rail could listen at it. Otherwise returns 0. */
static int init_check_source(const struct fi_info *info)
{
	struct moonrail_name n;
	struct sockaddr_in *in = (void *)n.address;
	bool away;
	int fd;

	if (!info->src_addr || !moonrail_name_from(info->src_addr,
						   info->src_addrlen, &n) ||
	    moonrail_name_family(&n) == AF_UNSPEC)
		return 0;
	fd = socket(in->sin_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	/* for IPv6 this clears sin6_port, which has the same offset */
	in->sin_port = 0;
	away = bind(fd, (const void *)n.address, n.len) &&
	       errno == EADDRNOTAVAIL;
	close(fd);
	return away ? -FI_ENODATA : 0;
}

static int init_add_hints(struct fi_info *info, const struct fi_info *h,
			  bool dest)
{
	int ret = 0;

	if (!h)
		return 0;
	if (h->src_addr)
		ret = init_set_addr(info, h->src_addr, h->src_addrlen,
				    &info->src_addr, &info->src_addrlen);
	if (!ret && h->dest_addr && dest)
		ret = init_set_addr(info, h->dest_addr, h->dest_addrlen,
				    &info->dest_addr, &info->dest_addrlen);
	if (h->handle)
		return -FI_ENODATA;
	return ret;
}

/* Returns true if a list of providers, as in FI_PROVIDER or in hints, names
 * moonrail. Returns false for a list that begins with ^, because it names the
 * providers that are excluded. */
static bool init_names_moonrail(const char *list)
{
	size_t len;

	if (!list || *list == '^')
		return false;
	while (*list) {
		len = strcspn(list, ",; ");
		if (len == strlen(moonrail_provider.name) &&
		    !strncasecmp(list, moonrail_provider.name, len))
			return true;
		list += len + (list[len] != '\0');
	}
	return false;
}

/* Returns true if the caller's hints, or the user's environment, name this
 * provider. */
static bool init_asked(const struct fi_info *hints)
{
	const struct fi_fabric_attr *f = hints ? hints->fabric_attr : NULL;
	int enabled = 0;

	if (f && (init_names_moonrail(f->prov_name) ||
		  init_names_moonrail(f->name)))
		return true;
	if (init_names_moonrail(getenv("FI_PROVIDER")))
		return true;
	return !fi_param_get_bool(&moonrail_provider, "enable", &enabled) &&
	       enabled;
}

int moonrail_getinfo(uint32_t version, const char *node, const char *service,
		     uint64_t flags, const struct fi_info *hints,
		     struct fi_info **out)
{
	struct moonrail_policies policies;
	struct tei_settings settings;
	struct fi_info *info;
	int ret;

	if (flags & FI_PROV_ATTR_ONLY) {
		ret = moonrail_attr_info(version, hints, out);
		return ret;
	}
	ret = moonrail_attr_info(version, hints, &info);
	if (ret)
		return ret;
	ret = init_add_hints(info, hints, !node || flags & FI_SOURCE);
	if (!ret)
		ret = init_add_node(info, node, service, flags);
	if (!ret)
		ret = init_check_source(info);
	if (!ret)
		ret = init_any_source(info);
	if (!ret && (tei_settings_load(&settings, NULL) ||
		     moonrail_policies(&policies)))
		ret = -FI_ENODATA;
	if (!ret)
		ret = moonrail_devices_check(info, &settings);
	/* A program may take the first provider that is offered. If moonrail
	 * has only IP interfaces, another provider, such as shm between
	 * processes of one host, may suit this program better. */
	if (!ret && !init_asked(hints) && !moonrail_domain_rdma(&settings, info))
		ret = -FI_ENODATA;
	if (ret) {
		fi_freeinfo(info);
		return ret;
	}
	*out = info;
	return 0;
}

struct fi_provider *fi_prov_ini(void);

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void)
{
	fi_param_define(&moonrail_provider, "addr", FI_PARAM_STRING,
			"Interfaces or addresses to use as rails, separated by commas (default: all that are usable)");
	fi_param_define(&moonrail_provider, "enable", FI_PARAM_BOOL,
			"Whether moonrail is also offered to programs that do not name a provider, if all rails are IP interfaces (default: no)");
	fi_param_define(&moonrail_provider, "config", FI_PARAM_STRING,
			"How rails share operations, by size: pairs <max_size>:<policy>, separated by commas, in ascending order of size; the policies are fixed, round-robin, striping and adaptive (default: adaptive for all sizes)");
	/* report libfabric's own version if it is higher, because libfabric
	 * skips a provider with a lower version */
	if (FI_VERSION_LT(MOONRAIL_API, fi_version()))
		moonrail_provider.fi_version = fi_version();
	return &moonrail_provider;
}
