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
 * Does what getaddrinfo does for stream sockets, with a time limit. Resolves a
 * numeric host at once. A detached thread resolves a name, and continues if the
 * caller stops waiting. Returns 0, or an error code after it has set *why to a
 * static text that says what is wrong. The caller frees *out with freeaddrinfo.
 */
int tei_meta_resolve(const char *host, uint16_t port, uint64_t deadline_ns,
		     struct addrinfo **out, const char **why);

/*
 * Splits "host", "host:port", "v6", "[v6]" or "[v6]:port". *port becomes 0 if
 * the text has no port. host becomes the host without brackets. Returns
 * TEI_ERR_INVALID, without a log line, if the text has none of these forms.
 */
int tei_meta_split(const char *text, char host[TEI_META_HOST_MAX],
		   uint16_t *port);

/*
 * Writes the connection string "text" to out in a form that may be shown in
 * logs. The part before the last '@' may contain a user's name and password, so
 * another text replaces it.
 */
#define TEI_META_SHOWN	64
void tei_meta_conn_shown(const char *text, char out[TEI_META_SHOWN]);

/* Returns a static text that says what is wrong with "text", which
 * tei_meta_split has refused or found to have no port. */
const char *tei_meta_split_why(const char *text);

/* Writes "host:port", with brackets around a host that contains colons. */
void tei_meta_join(const char *host, uint16_t port,
		   char out[TEI_META_ENDPOINT_MAX]);

/*
 * Chooses the address that the control channel binds, and writes it to out as a
 * numeric text or as the host name that the user has given. Takes the first of
 * these that exists: MC_TCP_BIND_ADDRESS; if "named" is true, the host part of
 * local_server_name; the first address of a running interface that is not a
 * loopback, bridge or container interface (IPv4 addresses come first, or IPv6
 * addresses with MC_USE_IPV6); the loopback address. Ignores a wildcard
 * address. Also ignores, with a warning, a host name other than localhost that
 * resolves only to loopback. Sets *given, unless given is NULL, to true if the
 * address comes from a name or an address that the user has given. Returns
 * TEI_ERR_INVALID or TEI_ERR_DNS on failure. Blocks in the resolver.
 */
int tei_meta_local_host(const struct tei_settings *settings,
			const char *local_server_name, bool named,
			char out[TEI_META_HOST_MAX], bool *given,
			struct tei_err *err);

/*
 * Returns true if a control channel that is bound to host should be bound to
 * another address. This is the case if the user has not given the address, and
 * one of two conditions is true: host is loopback and an interface has an
 * address that other hosts may reach; or no interface has the address "host"
 * any longer. Writes the new address to out. host and out are numeric.
 */
bool tei_meta_host_outdated(const struct tei_settings *settings,
			    const char *host, char out[TEI_META_HOST_MAX]);

/*
 * tei_meta_rpc_key writes the key "mooncake/[cluster/]rpc_meta/<server>" of the
 * store to out, tei_meta_segment_key the key
 * "mooncake/[cluster/]ram/<segment>". If the segment's name contains a slash,
 * its key has no "ram/". Both return TEI_ERR_INVALID if the key does not fit
 * into len bytes.
 */
int tei_meta_rpc_key(const char *cluster, const char *server, char *out,
		     size_t len);
int tei_meta_segment_key(const char *cluster, const char *segment, char *out,
			 size_t len);

#endif /* TEI_META_TEI_META_NAME_H */
