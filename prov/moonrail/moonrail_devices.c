/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The devices that become rails because the environment names them, or because
 * the domain is named after one.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "prov/moonrail/moonrail_info.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_name.h"
#include "prov/rail/tei_rail.h"
#include "util/settings.h"

/* Returns the list of rails in the environment, or NULL if it has none. */
static const char *devices_text(void)
{
	static const char *const env[] = {
		"FI_OFI_MRAIL_ADDR", "FI_OFI_MRAIL_ADDR_STRC",
	};
	char *text = NULL;
	size_t i;

	if (!fi_param_get(&moonrail_provider, "addr", &text) && text && *text)
		return text;
	for (i = 0; i < sizeof(env) / sizeof(env[0]); i++) {
		text = getenv(env[i]);
		if (text && *text)
			return text;
	}
	return NULL;
}

/* Writes one entry of a list of devices to "out". Reduces an address in
 * libfabric's text form to the IP address: "fi_sockaddr_in://10.0.0.1:0"
 * becomes 10.0.0.1, "fi_sockaddr_in6://[::1]:0" becomes ::1. Copies any other
 * text. Returns the length of out, 0 if it does not fit. */
static size_t devices_one(const char *text, size_t len, char *out, size_t cap)
{
	const char *p = memmem(text, len, "://", 3), *end = text + len;
	const char *stop;

	if (!p || strncmp(text, "fi_sockaddr", 11)) {
		p = text;
		stop = end;
	} else if (p + 3 < end && p[3] == '[') {
		p += 4;
		stop = memchr(p, ']', (size_t)(end - p));
	} else {
		p += 3;
		stop = memchr(p, ':', (size_t)(end - p));
	}
	len = (size_t)((stop ? stop : end) - p);
	if (len >= cap)
		len = 0;
	memcpy(out, p, len);
	out[len] = '\0';
	return len;
}

/* Returns true if a list of devices, separated by commas, contains the name. */
static bool devices_listed(const char *list, const char *name)
{
	size_t len;

	for (;;) {
		len = strcspn(list, ",");
		if (len == strlen(name) && !strncmp(list, name, len))
			return true;
		if (!list[len])
			return false;
		list += len + 1;
	}
}

const char *moonrail_devices(char *out, size_t cap)
{
	const char *text = devices_text();
	size_t n = 0, len;

	if (!text)
		return NULL;
	for (;;) {
		len = strcspn(text, ", ");
		n += devices_one(text, len, out + n, cap - n);
		text += len;
		if (!*text++ || n + 2 > cap)
			return out;
		out[n++] = ',';
		out[n] = '\0';
	}
}

/* Returns true if an interface of that name is up and has an IP address. If
 * "listed" is not NULL, the interface must also be in this list of names and
 * addresses. */
static bool devices_interface(const char *name, const char *listed)
{
	bool found = false, allowed = !listed;
	char text[INET6_ADDRSTRLEN];
	struct ifaddrs *all, *i;

	if (getifaddrs(&all))
		return false;
	for (i = all; i; i = i->ifa_next) {
		if (strcmp(i->ifa_name, name) || !(i->ifa_flags & IFF_UP) ||
		    !i->ifa_addr || (i->ifa_addr->sa_family != AF_INET &&
				     i->ifa_addr->sa_family != AF_INET6))
			continue;
		found = true;
		if (!allowed && !getnameinfo(i->ifa_addr,
				(socklen_t)moonrail_sockaddr_len(i->ifa_addr),
				text, sizeof(text), NULL, 0, NI_NUMERICHOST))
			allowed = devices_listed(listed, text);
	}
	freeifaddrs(all);
	return found && (allowed || devices_listed(listed, name));
}

int moonrail_devices_check(const struct fi_info *info,
			   const struct tei_settings *s)
{
	const char *name = info->domain_attr->name, *listed;
	char list[TEI_SETTING_TEXT];

	if (!moonrail_domain_device(name))
		return 0;
	/* the name becomes a list of devices, so it must be a single entry */
	if (!*name || strpbrk(name, ", "))
		return -FI_ENODATA;
	listed = moonrail_devices(list, sizeof(list));
	if (devices_interface(name, listed))
		return 0;
	if (listed && !devices_listed(listed, name))
		return -FI_ENODATA;
	return tei_rail_transport_present(s, "rdma", name, MOONRAIL_INFO_FLAGS)
		       ? 0
		       : -FI_ENODATA;
}
