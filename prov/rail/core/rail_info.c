/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Finds the devices that can be rails: one fi_info per local NIC, selected by
 * capability.
 */

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "prov/rail/core/rail_info.h"
#include "prov/rail/tei_rail.h"
#include "util/err.h"
#include "util/log.h"
#include "util/settings.h"
#include "util/text.h"
#include "util/world.h"

/*
 * Providers of each transport in order of preference. For tcp: the RDM
 * endpoints of libfabric 2.x, then those of libfabric 1.17, then two providers
 * that serve only as a last resort.
 */
static const struct {
	const char *transport;
	const char *provider;
} info_providers[] = {
	{ "tcp", "tcp" },
	{ "tcp", "tcp;ofi_rxm" },
	{ "tcp", "net" },
	{ "tcp", "sockets" },
	{ "rdma", "efa" },
	{ "rdma", "cxi" },
	{ "rdma", "verbs;ofi_rxm" },
	{ "rdma", "psm3" },
	{ "rdma", "opx" },
	{ "efa", "efa" },
	{ "cxi", "cxi" },
	{ "shm", "shm" },
};

/* Returns the hints for fi_getinfo, or NULL if memory is short. The caller
 * frees them. */
static struct fi_info *info_hints(const char *provider)
{
	struct fi_info *h = fi_allocinfo();

	if (!h)
		return NULL;
	h->caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ |
		  FI_REMOTE_WRITE | FI_SEND | FI_RECV;
	h->mode = FI_CONTEXT | FI_CONTEXT2;
	h->ep_attr->type = FI_EP_RDM;
	h->domain_attr->threading = FI_THREAD_SAFE;
	h->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	h->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	h->domain_attr->resource_mgmt = FI_RM_ENABLED;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR |
				  FI_MR_ALLOCATED | FI_MR_PROV_KEY |
				  FI_MR_ENDPOINT | FI_MR_RMA_EVENT |
				  FI_MR_HMEM | FI_MR_COLLECTIVE;
	h->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	h->fabric_attr->prov_name = strdup(provider);
	if (!h->fabric_attr->prov_name) {
		fi_freeinfo(h);
		return NULL;
	}
	return h;
}

/*
 * Removes the entries of layered providers from the list if the list has an
 * entry of the provider itself. (If hidden devices are requested, libfabric 2.x
 * puts layered providers into the same list, even at its head.) Returns the
 * remaining list.
 */
static struct fi_info *info_own(struct fi_info *list, const char *provider)
{
	struct fi_info **at, *i;
	bool any = false;

	for (i = list; i; i = i->next)
		any |= !strcmp(i->fabric_attr->prov_name, provider);
	for (at = &list; any && *at;) {
		i = *at;
		if (!strcmp(i->fabric_attr->prov_name, provider)) {
			at = &i->next;
			continue;
		}
		*at = i->next;
		i->next = NULL;
		fi_freeinfo(i);
	}
	return list;
}

/* Returns the list of endpoints that a provider offers, or NULL. If "node" is
 * not NULL, the list has only endpoints with this address. The caller frees the
 * list. */
static struct fi_info *info_query(const char *provider, const char *node,
				  uint64_t flags)
{
	struct fi_info *hints = info_hints(provider), *list = NULL;
	int ret;

	if (!hints)
		return NULL;
	if (node)
		flags |= FI_SOURCE;
	/* shm has no file descriptor to sleep on, so rail_lane.c counts remote
	 * operations */
	if (!strcmp(provider, "shm"))
		hints->caps |= FI_RMA_EVENT;
	ret = fi_getinfo(RAIL_API_VERSION, node, NULL, flags, hints, &list);
	if (ret == -FI_ENODATA || ret == -FI_EINVAL) {
		/* some providers only offer automatic progress */
		hints->domain_attr->control_progress = FI_PROGRESS_UNSPEC;
		hints->domain_attr->data_progress = FI_PROGRESS_UNSPEC;
		ret = fi_getinfo(RAIL_API_VERSION, node, NULL, flags, hints,
				 &list);
	}
	fi_freeinfo(hints);
	return ret ? NULL : info_own(list, provider);
}

static struct fi_info *info_hints_hmem(const struct fi_info *info)
{
	struct fi_info *h = info_hints(info->fabric_attr->prov_name);

	if (!h)
		return NULL;
	h->caps |= FI_HMEM | (info->caps & FI_RMA_EVENT);
	h->domain_attr->control_progress = info->domain_attr->control_progress;
	h->domain_attr->data_progress = info->domain_attr->data_progress;
	h->domain_attr->name = strdup(info->domain_attr->name);
	h->fabric_attr->name = strdup(info->fabric_attr->name);
	if (info->src_addr) {
		h->addr_format = info->addr_format;
		h->src_addrlen = info->src_addrlen;
		h->src_addr = malloc(info->src_addrlen);
		if (h->src_addr)
			memcpy(h->src_addr, info->src_addr, info->src_addrlen);
	}
	if (h->domain_attr->name && h->fabric_attr->name &&
	    (h->src_addr || !info->src_addr))
		return h;
	fi_freeinfo(h);
	return NULL;
}

struct fi_info *rail_info_hmem(const struct fi_info *info, uint64_t flags)
{
	struct fi_info *hints = info_hints_hmem(info), *list = NULL;
	struct fi_info *found = NULL;

	if (!hints)
		return NULL;
	if (!fi_getinfo(RAIL_API_VERSION, NULL, NULL, flags, hints, &list) &&
	    list->caps & FI_HMEM &&
	    !strcmp(list->fabric_attr->prov_name, info->fabric_attr->prov_name))
		found = fi_dupinfo(list);
	fi_freeinfo(list);
	fi_freeinfo(hints);
	return found;
}

static bool info_is_ip(const struct fi_info *info)
{
	return (info->addr_format == FI_SOCKADDR_IN ||
		info->addr_format == FI_SOCKADDR_IN6 ||
		info->addr_format == FI_SOCKADDR) && info->src_addr;
}

static bool info_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return (ntohl(((const struct sockaddr_in *)(const void *)sa)
			      ->sin_addr.s_addr) >> 24) == 127;
	if (sa->sa_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)
					      (const void *)sa)->sin6_addr);
	return false;
}

static bool info_link_local(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return (ntohl(((const struct sockaddr_in *)(const void *)sa)
			      ->sin_addr.s_addr) >> 16) == 0xa9fe;
	return sa->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)
				       (const void *)sa)->sin6_addr);
}

bool rail_info_same_ip(const struct sockaddr *a, const struct sockaddr *b)
{
	if (!a || !b || a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)(const void *)a)
			       ->sin_addr.s_addr ==
		       ((const struct sockaddr_in *)(const void *)b)
			       ->sin_addr.s_addr;
	if (a->sa_family == AF_INET6)
		return !memcmp(&((const struct sockaddr_in6 *)(const void *)a)
					->sin6_addr,
			       &((const struct sockaddr_in6 *)(const void *)b)
					->sin6_addr, 16);
	return false;
}

static uint8_t info_prefix(const struct sockaddr *mask)
{
	const uint8_t *p;
	size_t i, n;
	uint8_t bits = 0;

	if (!mask)
		return 0;
	if (mask->sa_family == AF_INET) {
		p = (const uint8_t *)&((const struct sockaddr_in *)
				       (const void *)mask)->sin_addr;
		n = 4;
	} else {
		p = (const uint8_t *)&((const struct sockaddr_in6 *)
				       (const void *)mask)->sin6_addr;
		n = 16;
	}
	for (i = 0; i < n; i++)
		bits = (uint8_t)(bits + __builtin_popcount(p[i]));
	return bits;
}

/* Returns the interface that has the info's source address, or NULL. */
static const struct ifaddrs *info_interface(const struct ifaddrs *ifs,
					    const struct fi_info *info)
{
	const struct ifaddrs *i, *loop = NULL;

	if (!info_is_ip(info))
		return NULL;
	for (i = ifs; i; i = i->ifa_next) {
		if (rail_info_same_ip(i->ifa_addr, info->src_addr))
			return i;
		/* every address of 127/8 belongs to the loopback interface */
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
		    (i->ifa_flags & IFF_LOOPBACK))
			loop = i;
	}
	return info_loopback(info->src_addr) ? loop : NULL;
}

static bool info_is_bridge(const char *ifname)
{
	char conn[128];
	struct stat st;

	snprintf(conn, sizeof(conn), "/sys/class/net/%.32s/bridge", ifname);
	return !stat(conn, &st);
}

/* Returns true if the list, separated by commas or spaces, contains the
 * name. */
static bool info_listed(const char *list, const char *name)
{
	size_t n = strlen(name);
	const char *p = list;

	while (p && *p) {
		while (*p == ',' || *p == ' ')
			p++;
		if (!strncmp(p, name, n) &&
		    (p[n] == ',' || !p[n] || p[n] == ' '))
			return true;
		p = strchr(p, ',');
	}
	return false;
}

/* Devices that a search has found, each name once. */
struct info_lists {
	struct rail_found *fit;		/* devices that become rails */
	struct rail_found *unfit;	/* devices whose names cannot be
					 * published */
};

/* Adds a device unless the lists have its name. Returns 0 or TEI_ERR_MEMORY. */
static int info_add(struct info_lists *lists, const char *name,
		    const struct fi_info *info, const struct ifaddrs *ifa,
		    bool fallback)
{
	struct rail_found *f, **tail;

	tail = tei_text_valid(name, sizeof(f->name) - 1) ? &lists->fit :
							   &lists->unfit;
	while (*tail) {
		if (!strcmp((*tail)->name, name))
			return 0;
		tail = &(*tail)->next;
	}
	f = calloc(1, sizeof(*f));
	if (!f)
		return TEI_ERR_MEMORY;
	snprintf(f->name, sizeof(f->name), "%s", name);
	if (ifa) {
		snprintf(f->ifname, sizeof(f->ifname), "%s", ifa->ifa_name);
		f->prefix = info_prefix(ifa->ifa_netmask);
	}
	f->fallback = fallback;
	f->info = fi_dupinfo(info);
	if (!f->info) {
		free(f);
		return TEI_ERR_MEMORY;
	}
	*tail = f;
	return 0;
}

void rail_info_free(struct rail_found *list)
{
	struct rail_found *next;

	for (; list; list = next) {
		next = list->next;
		fi_freeinfo(list->info);
		free(list);
	}
}

enum info_pass {
	INFO_NO_LOOPBACK,
	INFO_LOOPBACK,
};

/* Writes the name of a NIC that is not an IP interface: the device's name, or
 * else the domain's. */
static void info_nic_name(const struct fi_info *info, char name[64])
{
	if (info->nic && info->nic->device_attr && info->nic->device_attr->name)
		snprintf(name, 64, "%s", info->nic->device_attr->name);
	else
		snprintf(name, 64, "%s", info->domain_attr->name);
}

/* Returns true if the list names the interface or the RDMA device that belongs
 * to it. */
static bool info_names(const char *list, const struct fi_info *info,
		       const struct ifaddrs *ifa)
{
	char name[64];

	if (info_listed(list, ifa->ifa_name))
		return true;
	if (!info->nic || !(info->domain_attr->mr_mode & FI_MR_LOCAL))
		return false;
	info_nic_name(info, name);
	return info_listed(list, name);
}

/* Returns true if the address is a GID on Ethernet, which is a second name of
 * an IP address. */
static bool info_is_gid(const struct fi_info *info)
{
	const struct fid_nic *nic = info->nic;

	return info->addr_format == FI_SOCKADDR_IB && nic && nic->link_attr &&
	       nic->link_attr->network_type &&
	       !strcmp(nic->link_attr->network_type, "Ethernet");
}

/* Returns true if MC_TE_FILTERS_EXCLUDE applies: it is set, and MC_TE_FILTERS
 * is not set. */
static bool info_excludes(const struct tei_settings *s)
{
	return !*s->rails.filters && *s->rails.filters_exclude;
}

/* Returns true if the settings and the state of the interface let the device
 * become a rail in this pass of info_try. Devices that the user has named are
 * not filtered. */
static bool info_usable_ip(const struct tei_settings *s,
			   const struct fi_info *info,
			   const struct ifaddrs *ifa, const char *devices,
			   enum info_pass pass)
{
	const struct sockaddr *sa = info->src_addr;
	bool named = ifa && info_names(devices, info, ifa);

	if (!ifa || info_link_local(sa))
		return false;
	if (!(ifa->ifa_flags & IFF_UP) || !(ifa->ifa_flags & IFF_RUNNING))
		return false;
	if (*devices && !named)
		return false;
	if (!named && *s->rails.filters &&
	    !info_names(s->rails.filters, info, ifa))
		return false;
	if (!named && info_excludes(s) &&
	    info_names(s->rails.filters_exclude, info, ifa))
		return false;
	if (!named && info_is_bridge(ifa->ifa_name))
		return false;
	if (!named && (pass == INFO_LOOPBACK) != info_loopback(sa))
		return false;
	return true;
}

/* Adds the usable devices of the list. family: the IP version of the addresses
 * that are accepted. Returns 0 or TEI_ERR_MEMORY. */
static int info_take(const struct tei_settings *s, const struct fi_info *list,
		     const struct ifaddrs *ifs, const char *devices,
		     int family, enum info_pass pass,
		     struct info_lists *lists)
{
	const int preferred = s->control.use_ipv6 ? AF_INET6 : AF_INET;
	const struct fi_info *i;
	const struct ifaddrs *ifa;
	char name[64];
	int ret;

	for (i = list; i; i = i->next) {
		if (info_is_ip(i)) {
			ifa = info_interface(ifs, i);
			if (((struct sockaddr *)i->src_addr)->sa_family !=
			    family ||
			    !info_usable_ip(s, i, ifa, devices, pass))
				continue;
			if (i->nic && i->nic->device_attr &&
			    i->nic->device_attr->name &&
			    (i->domain_attr->mr_mode & FI_MR_LOCAL))
				info_nic_name(i, name);
			else
				snprintf(name, sizeof(name), "%s",
					 ifa->ifa_name);
			ret = info_add(lists, name, i, ifa,
				       pass == INFO_LOOPBACK ||
					       family != preferred);
		} else {
			info_nic_name(i, name);
			if (info_is_gid(i) ||
			    (*devices && !info_listed(devices, name)) ||
			    (*s->rails.filters &&
			     !info_listed(s->rails.filters, name)) ||
			    (!*devices && info_excludes(s) &&
			     info_listed(s->rails.filters_exclude, name)))
				continue;
			ret = info_add(lists, name, i, NULL, false);
		}
		if (ret)
			return ret;
	}
	return 0;
}

/* Returns true if text is an IP address; an IPv6 address may have a zone. */
static bool info_is_address(const char *text)
{
	char plain[INET6_ADDRSTRLEN];
	size_t len = strcspn(text, "%");
	uint8_t bin[16];

	if (len >= sizeof(plain))
		return false;
	memcpy(plain, text, len);
	plain[len] = '\0';
	return (!text[len] && inet_pton(AF_INET, plain, bin) == 1) ||
	       inet_pton(AF_INET6, plain, bin) == 1;
}

/* Adds the devices that "devices" names by their addresses. An address is
 * accepted even if no interface of this host has it. */
static int info_take_addresses(const char *provider, const char *devices,
			       uint64_t flags, const struct ifaddrs *ifs,
			       struct info_lists *lists)
{
	char text[TEI_SETTING_TEXT], *save = NULL, *tok;
	const struct ifaddrs *ifa;
	struct fi_info *list;
	int ret = 0;

	snprintf(text, sizeof(text), "%s", devices);
	for (tok = strtok_r(text, ", ", &save); tok && !ret;
	     tok = strtok_r(NULL, ", ", &save)) {
		if (!info_is_address(tok))
			continue;
		list = info_query(provider, tok, flags);
		if (!list)
			continue;
		ifa = info_interface(ifs, list);
		ret = info_add(lists, tok, list, ifa, false);
		fi_freeinfo(list);
	}
	return ret;
}

/* Returns true if the interface is excluded whatever its state is: it is
 * loopback or a bridge, or the settings exclude it. */
static bool info_unwanted(const struct tei_settings *s, const struct ifaddrs *ifa)
{
	return ifa->ifa_flags & IFF_LOOPBACK || info_is_bridge(ifa->ifa_name) ||
	       (*s->rails.filters &&
		!info_listed(s->rails.filters, ifa->ifa_name)) ||
	       (info_excludes(s) &&
		info_listed(s->rails.filters_exclude, ifa->ifa_name));
}

/* Returns true if a rail can have this address: an IP address that is not
 * loopback and not link-local. */
static bool info_fit_address(const struct sockaddr *sa)
{
	return sa && (sa->sa_family == AF_INET || sa->sa_family == AF_INET6) &&
	       !info_loopback(sa) && !info_link_local(sa);
}

static bool info_has_address(const struct ifaddrs *ifs, const char *ifname)
{
	for (; ifs; ifs = ifs->ifa_next)
		if (!strcmp(ifs->ifa_name, ifname) &&
		    info_fit_address(ifs->ifa_addr))
			return true;
	return false;
}

/*
 * Returns what the interface lacks to be a rail, or NULL. An interface without
 * an address is usual (a part of a bond, for example), so the missing address
 * is reported only if all rails are fallback rails.
 */
static const char *info_lacks(const struct tei_settings *s,
			      const struct ifaddrs *ifs,
			      const struct ifaddrs *ifa, bool fallback)
{
	const unsigned int both = IFF_UP | IFF_RUNNING;
	const struct sockaddr *sa = ifa->ifa_addr;

	if (info_unwanted(s, ifa))
		return NULL;
	if ((ifa->ifa_flags & both) == both)
		return fallback && !(ifa->ifa_flags & (IFF_SLAVE |
						       IFF_POINTOPOINT)) &&
		       !info_has_address(ifs, ifa->ifa_name) ?
			       "it has no usable address" : NULL;
	if (!info_fit_address(sa) ||
	    sa->sa_family != (s->control.use_ipv6 ? AF_INET6 : AF_INET))
		return NULL;
	return ifa->ifa_flags & IFF_UP ? "there is no carrier" : "it is down";
}

static bool info_on_loopback(const struct rail_found *f)
{
	return f && f->fallback && info_loopback(f->info->src_addr);
}

void rail_info_warn_lacking(const struct tei_settings *s,
			    const struct rail_found *list, bool follow)
{
	struct ifaddrs *ifs = NULL, *ifa;
	const char *said = "", *why;
	char name[4 * IFNAMSIZ];

	if (tei_world->net.interfaces(&ifs))
		return;
	for (ifa = ifs; ifa; ifa = ifa->ifa_next) {
		why = info_lacks(s, ifs, ifa, info_on_loopback(list));
		if (!why || !strcmp(ifa->ifa_name, said))
			continue;
		said = ifa->ifa_name;
		tei_text_escape(said, name, sizeof(name));
		TEI_WARN("rail", "%s: %s, so the interface is not used; %s",
			 name, why, follow ?
			 "it is added as soon as that changes" :
			 "restart the program once that has changed");
	}
	if (*said && info_on_loopback(list))
		TEI_WARN("rail", "no network interface can be used: loopback is used%s, and other hosts cannot reach this process",
			 follow ? " until one can" : "");
	tei_world->net.interfaces_free(ifs);
}

/* Searches for the devices of one provider: first those that "devices" names by
 * their addresses, then those of the preferred IP version, then those of the
 * other IP version, then loopback. */
static int info_try(const struct tei_settings *s, const char *provider,
		    const char *devices, uint64_t flags,
		    struct info_lists *lists)
{
	int family = s->control.use_ipv6 ? AF_INET6 : AF_INET;
	struct ifaddrs *ifs = NULL;
	struct fi_info *list;
	int pass, ret = 0;

	/* "devices" does not apply to shm: all shm endpoints of this host have
	 * the name of the same device */
	if (!strcmp(provider, "shm"))
		devices = "";
	if (tei_world->net.interfaces(&ifs))
		ifs = NULL;
	if (*devices)
		ret = info_take_addresses(provider, devices, flags, ifs, lists);
	list = ret ? NULL : info_query(provider, NULL, flags);
	for (pass = INFO_NO_LOOPBACK;
	     list && !ret && pass <= INFO_LOOPBACK && !lists->fit; pass++) {
		ret = info_take(s, list, ifs, devices, family, pass, lists);
		if (!ret && !lists->fit)
			ret = info_take(s, list, ifs, devices,
					family == AF_INET ? AF_INET6 : AF_INET,
					pass, lists);
	}
	/* "devices" may name interfaces in addition to addresses */
	if (list && !ret && *devices && lists->fit)
		ret = info_take(s, list, ifs, devices, family,
				INFO_NO_LOOPBACK, lists);
	fi_freeinfo(list);
	if (ifs)
		tei_world->net.interfaces_free(ifs);
	return ret;
}

/* Returns true if the list has a device with this name, or on the interface
 * with this name. */
static bool info_found(const struct rail_found *list, const char *name)
{
	for (; list; list = list->next)
		if (!strcmp(list->name, name) || !strcmp(list->ifname, name))
			return true;
	return false;
}

/* Logs one line for each entry of "devices" that was not found. */
static void info_warn_missing(const char *devices,
			      const struct info_lists *lists)
{
	char text[TEI_SETTING_TEXT], *save = NULL, *tok;

	snprintf(text, sizeof(text), "%s", devices);
	for (tok = strtok_r(text, ", ", &save); tok;
	     tok = strtok_r(NULL, ", ", &save))
		if (!info_found(lists->fit, tok) &&
		    !info_found(lists->unfit, tok))
			TEI_WARN("rail", "%s: the device does not exist or is down",
				 tok);
}

/* Logs one line for each device whose name cannot be part of a descriptor. */
static void info_warn_unfit(const struct rail_found *list)
{
	char name[4 * sizeof(list->name)];

	for (; list; list = list->next) {
		tei_text_escape(list->name, name, sizeof(name));
		TEI_WARN("rail", "%s: name is not UTF-8 or has control characters, so it cannot be published and the device is not used; rename it",
			 name);
	}
}

/* Returns true if the transport has the name of its only provider. */
static bool info_names_provider(const char *transport)
{
	return !strcmp(transport, "efa") || !strcmp(transport, "cxi");
}

const char *tei_rail_transport_of(const char *name)
{
	return info_names_provider(name) ? "rdma" : name;
}

/* Returns true if the entry `row` of info_providers belongs to the transport
 * and the settings require no other provider. pinned: the provider that the
 * settings require, or "". */
static bool info_wanted(const char *transport, const char *pinned, size_t row)
{
	if (strcmp(info_providers[row].transport, transport))
		return false;
	return !*pinned || !strcmp(info_providers[row].provider, pinned);
}

/*
 * Returns the hint for the case that no device is left. The hint names the
 * settings that may have excluded all devices, with their values.
 * MOONRAIL_PROVIDER comes first, because an unknown provider leaves no device
 * whatever the filters say.
 */
static const char *info_excluded(const struct tei_settings *s,
				 const char *devices, char out[TEI_ERR_TEXT])
{
	size_t n = 0;

	if (*s->rails.provider)
		n += (size_t)snprintf(out, TEI_ERR_TEXT,
				      "MOONRAIL_PROVIDER=%.20s: see fi_info -l",
				      s->rails.provider);
	if (*devices)
		n += (size_t)snprintf(
			out + n, TEI_ERR_TEXT - n, "%s%s=%.24s", n ? "; " : "",
			devices == s->rails.devices ? "MOONRAIL_DEVICES"
						    : "devices",
			devices);
	if (*s->rails.filters)
		n += (size_t)snprintf(out + n, TEI_ERR_TEXT - n,
				      "%sMC_TE_FILTERS=%.24s", n ? "; " : "",
				      s->rails.filters);
	if (info_excludes(s))
		n += (size_t)snprintf(out + n, TEI_ERR_TEXT - n,
				      "%sMC_TE_FILTERS_EXCLUDE=%.24s",
				      n ? "; " : "", s->rails.filters_exclude);
	if (!n)
		return "te_info lists what libfabric and the kernel offer: is the interface up, is the provider installed?";
	return out;
}

/* Fills err with the error that no device was found. Returns the error code. */
static int info_none(const struct tei_settings *s, const char *transport,
		     const char *devices, struct tei_err *err)
{
	char hint[TEI_ERR_TEXT];
	const char *cure = info_excluded(s, devices, hint);

	if (!info_names_provider(transport))
		return tei_err_fail(err, TEI_ERR_NO_DEVICE, "rail", cure,
				    "no device for transport %s%s%.64s",
				    transport, *devices ? " among " : "",
				    devices);
	if (cure != hint)
		cure = "is this provider part of the libfabric in use (fi_info -l), is the device's driver loaded?";
	return tei_err_fail(err, TEI_ERR_NO_DEVICE, "rail", cure,
			    "transport %s: libfabric's provider %s offers no device%s%.64s",
			    transport, transport, *devices ? " among " : "",
			    devices);
}

/* Finds the devices of a transport. Returns 0, even if there are none, or an
 * error code. */
static int info_find_all(const struct tei_settings *s, const char *transport,
			 const char *devices, uint64_t flags,
			 struct info_lists *lists)
{
	size_t i, n = sizeof(info_providers) / sizeof(info_providers[0]);
	bool pinned_known = false;
	int ret = 0;

	for (i = 0; i < n && !ret && !lists->fit; i++) {
		if (!info_wanted(transport, s->rails.provider, i))
			continue;
		pinned_known = true;
		ret = info_try(s, info_providers[i].provider, devices, flags,
			       lists);
	}
	if (!ret && !lists->fit && *s->rails.provider && !pinned_known &&
	    strcmp(transport, "shm") && !info_names_provider(transport))
		ret = info_try(s, s->rails.provider, devices, flags, lists);
	return ret;
}

struct rail_found *rail_info_find_again(const struct tei_settings *s,
					const char *transport,
					const char *devices, uint64_t flags)
{
	struct info_lists lists = { NULL, NULL };

	if (!devices || !*devices)
		devices = s->rails.devices;
	/* if memory runs out, the devices found so far are used */
	(void)info_find_all(s, transport, devices, flags, &lists);
	rail_info_free(lists.unfit);
	return lists.fit;
}

int rail_info_find(const struct tei_settings *s, const char *transport,
		   const char *devices, uint64_t flags, struct tei_err *err,
		   struct rail_found **out)
{
	size_t i, n = sizeof(info_providers) / sizeof(info_providers[0]);
	struct info_lists lists = { NULL, NULL };
	bool known = false;
	int ret;

	if (!devices || !*devices)
		devices = s->rails.devices;
	for (i = 0; i < n; i++)
		known |= !strcmp(info_providers[i].transport, transport);
	if (!known)
		return tei_err_fail(err, TEI_ERR_UNSUPPORTED, "rail",
				    "transports with rails: tcp, rdma, efa, cxi, shm",
				    "no transport named \"%.32s\"", transport);
	ret = info_find_all(s, transport, devices, flags, &lists);
	info_warn_unfit(lists.unfit);
	if (!ret && !lists.fit)
		ret = info_none(s, transport, devices, err);
	if (!ret && strcmp(transport, "shm"))
		info_warn_missing(devices, &lists);
	rail_info_free(lists.unfit);
	if (ret)
		rail_info_free(lists.fit);
	else
		*out = lists.fit;
	return ret;
}

bool tei_rail_transport_present(const struct tei_settings *settings,
				const char *transport, const char *devices,
				uint64_t info_flags)
{
	size_t i, n = sizeof(info_providers) / sizeof(info_providers[0]);
	struct info_lists lists = { NULL, NULL };
	bool present;

	if (!*devices)
		devices = settings->rails.devices;
	for (i = 0; i < n && !lists.fit; i++)
		if (info_wanted(transport, settings->rails.provider, i))
			info_try(settings, info_providers[i].provider, devices,
				 info_flags, &lists);
	present = lists.fit != NULL;
	rail_info_free(lists.fit);
	rail_info_free(lists.unfit);
	return present;
}
