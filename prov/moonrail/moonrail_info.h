/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_INFO_H
#define TEI_PROV_MOONRAIL_MOONRAIL_INFO_H

/*
 * The provider, fi_getinfo, and the devices that the environment chooses.
 */

#include <rdma/fabric.h>
#include <rdma/providers/fi_prov.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct tei_settings;

/* --- moonrail_attr.c, moonrail_init.c ------------------------------------ */
extern struct fi_provider moonrail_provider;
int moonrail_getinfo(uint32_t version, const char *node, const char *service,
		     uint64_t flags, const struct fi_info *hints,
		     struct fi_info **info);
/* Creates one fi_info; the caller frees it. Returns -FI_ENODATA if the hints
 * cannot be met, or -FI_ENOMEM. */
int moonrail_attr_info(uint32_t version, const struct fi_info *hints,
		       struct fi_info **info);

/* --- moonrail_devices.c -------------------------------------------------- */
/* Returns true if a domain's name is the name of a device, which is then the
 * only rail of the domain. Returns false for the name "moonrail". */
static inline bool moonrail_domain_device(const char *name)
{
	return name && strcmp(name, "moonrail");
}
/* Writes the rails that the environment names to "out", separated by commas.
 * Returns out, or NULL if the environment names none. */
const char *moonrail_devices(char *out, size_t cap);
/* Returns 0 if the domain of the info has the name "moonrail", or the name of
 * one interface or RDMA device that can be a rail. Otherwise returns
 * -FI_ENODATA. */
int moonrail_devices_check(const struct fi_info *info,
			   const struct tei_settings *s);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_INFO_H */
