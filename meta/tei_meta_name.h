/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_TEI_META_NAME_H
#define TEI_META_TEI_META_NAME_H

/*
 * Names of hosts and segments, addresses, and keys of the store. The rules of
 * tei_meta.h apply.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/tei_meta.h"

/*
 * Does what getaddrinfo does for stream sockets, with a time limit. Numeric
 * hosts are resolved at once. Names are resolved by a detached thread, which
 * continues after the caller has stopped waiting. Returns 0, or a code with
 * *why, a static text. The caller frees *out with freeaddrinfo.
 */
int tei_meta_resolve(const char *host, uint16_t port, uint64_t deadline_ns,
		     struct addrinfo **out, const char **why);

/*
 * Splits "host", "host:port", "v6", "[v6]" or "[v6]:port". *port is 0 if the
 * text has no port. host has no brackets. Returns TEI_ERR_INVALID without a log
 * line.
 */
int tei_meta_split(const char *text, char host[TEI_META_HOST_MAX],
		   uint16_t *port);

/*
 * Writes a connection string so that it can be shown to a person. The text in
 * front of the last '@', which may contain a user's name and password, is
 * replaced.
 */
#define TEI_META_SHOWN	64
void tei_meta_conn_shown(const char *text, char out[TEI_META_SHOWN]);

/* Returns what is wrong with a text that tei_meta_split refuses, or whose port
 * is 0. */
const char *tei_meta_split_why(const char *text);

/* Writes "host:port", with brackets around a host that contains colons. */
void tei_meta_join(const char *host, uint16_t port,
		   char out[TEI_META_ENDPOINT_MAX]);

/*
 * Chooses the address that the control channel binds, as numeric text or the
 * given host name. The first of these that applies: MC_TCP_BIND_ADDRESS; the
 * host part of local_server_name if named is true; the first address of a
 * running interface that is neither loopback, bridge nor container link (IPv4
 * first, or IPv6 first with MC_USE_IPV6); loopback. Ignores a wildcard, and,
 * with a warning, a host name other than localhost that resolves only to
 * loopback. Sets *given, unless given is NULL, to true if the address comes
 * from a name or an address that the user has given. Returns TEI_ERR_INVALID or
 * TEI_ERR_DNS on failure. Blocks in the resolver.
 */
int tei_meta_local_host(const struct tei_settings *settings,
			const char *local_server_name, bool named,
			char out[TEI_META_HOST_MAX], bool *given,
			struct tei_err *err);

/*
 * Returns true if a control channel that is bound to host should be bound to
 * another address. This is the case if the user has not given the address, and
 * one of two conditions is true: host is loopback and an interface has an
 * address that other hosts may reach; or no interface has the address host any
 * longer. Writes the new address to out. host and out are numeric.
 */
bool tei_meta_host_outdated(const struct tei_settings *settings,
			    const char *host, char out[TEI_META_HOST_MAX]);

/*
 * Writes keys of the store: "mooncake/[cluster/]rpc_meta/<server>" and
 * "mooncake/[cluster/]ram/<segment>". The latter has no "ram/" if the segment's
 * name contains a slash. Returns TEI_ERR_INVALID if the key does not fit.
 */
int tei_meta_rpc_key(const char *cluster, const char *server, char *out,
		     size_t len);
int tei_meta_segment_key(const char *cluster, const char *segment, char *out,
			 size_t len);

#endif /* TEI_META_TEI_META_NAME_H */
