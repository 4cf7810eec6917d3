/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_INFO_H
#define TEI_PROV_RAIL_CORE_RAIL_INFO_H

/* Discovery of devices, and the NUMA nodes of the rails. */

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "prov/rail/tei_rail.h"

struct rail;
struct tei_err;
struct tei_loop;

#define RAIL_API_VERSION	FI_VERSION(1, 17)

struct rail_found {
	char name[64];
	char ifname[64];		/* network interface of the device, or
					 * "" */
	struct fi_info *info;		/* a list with one entry: the device;
					 * owned by this object */
	uint8_t prefix;
	bool fallback;			/* opened only if nothing better is
					 * found: the address is loopback, or
					 * not of the preferred IP version */
	struct rail_found *next;
};

/*
 * Searches for the devices of a transport. devices: names or addresses,
 * separated by commas; "" stands for the value of MOONRAIL_DEVICES, or for all
 * devices if that is not set. flags: flags of the call of fi_getinfo. Returns 0
 * and a list in *out, which the caller frees with rail_info_free, or an error
 * code.
 */
int rail_info_find(const struct tei_settings *s, const char *transport,
		   const char *devices, uint64_t flags, struct tei_err *err,
		   struct rail_found **out);

/* Like rail_info_find, but without error records and log lines, for repeated
 * searches. Returns NULL if nothing was found. */
struct rail_found *rail_info_find_again(const struct tei_settings *s,
					const char *transport,
					const char *devices, uint64_t flags);

/* Logs a warning for each interface that could be a rail but lacks a link (or,
 * if the rails in list are fallback rails, an address). follow: whether the log
 * line says that the interface will be used as soon as it has a link (or an
 * address). */
void rail_info_warn_lacking(const struct tei_settings *s,
			    const struct rail_found *list, bool follow);
void rail_info_free(struct rail_found *list);

/* Returns an fi_info of the same device that also supports GPU memory, or NULL
 * if the provider does not offer this. The caller frees it. */
struct fi_info *rail_info_hmem(const struct fi_info *info, uint64_t flags);

/* Returns true if a and b contain the same IP address. Returns false if one of
 * them is NULL. */
bool rail_info_same_ip(const struct sockaddr *a, const struct sockaddr *b);

/* Writes to ranks[i] how near rail i is to the location (enum tei_topo_rank); 0
 * if unknown. */
void rail_report_ranks(struct tei_rail_dp *dp, const char *location,
		       uint8_t ranks[TEI_RAIL_MAX]);

/* Returns the NUMA node of the rail's NIC, -1 if unknown. */
int rail_numa_node(const struct rail *rail);

/* Allocates zeroed pages, on the NUMA node of the rail's NIC if that node has
 * free memory. Returns NULL if memory is short. rail_numa_free releases
 * them. */
void *rail_numa_alloc(const struct rail *rail, size_t size);
void rail_numa_free(void *mem, size_t size); /* NULL is allowed */

/* Checks MOONRAIL_PROGRESS_CPUS before the progress thread is started. Returns
 * 0 or TEI_ERR_INVALID. */
int rail_numa_check(struct tei_rail_dp *dp, struct tei_err *err);

/* Returns the number of CPUs on which progress threads may run. Must be called
 * after rail_numa_check. */
uint32_t rail_numa_cpus(const struct tei_rail_dp *dp);

/* Binds the progress thread and the lane threads to the CPUs that
 * MOONRAIL_PROGRESS_CPUS selects. Must be called again after rails were added,
 * because "near" may then select other CPUs. */
void rail_numa_bind(struct tei_rail_dp *dp);

/* Binds the thread of one progress loop to these CPUs. */
void rail_numa_bind_loop(struct tei_rail_dp *dp, struct tei_loop *loop);

#endif /* TEI_PROV_RAIL_CORE_RAIL_INFO_H */
