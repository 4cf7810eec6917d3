/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_SERVERS_H
#define TEI_META_META_ZOOKEEPER_SERVERS_H

/* Functions for connection strings and for the addresses of the servers. */

#include "meta/meta_zookeeper_int.h"

/* Splits the connection string "zookeeper://…" into the list of servers and the
 * chroot. The caller frees both texts. */
int zk_servers_split(const char *conn, char **servers, char **chroot,
		     struct tei_err *err);

/* Writes the first servers of the list to out, for log lines and error texts.
 * If out is too short for all servers, it ends with "...". */
void zk_servers_where(const char *servers, char out[ZK_WHERE]);

/*
 * Resolves the names of the servers. Sets *out to a list of their numeric
 * addresses for the client library, in random order, so that the clients spread
 * over the servers. The caller frees *out. Fails early if the store is being
 * closed.
 */
int zk_servers_resolve(struct zk *zk, uint64_t deadline_ns, char **out,
		       struct tei_err *err);

/* Moves the first address of the list to its end. */
void zk_servers_rotate(char *addresses);

/* Returns true if the list "addresses" contains an address that the list
 * "known" does not contain. */
bool zk_servers_changed(const char *addresses, const char *known);

#endif /* TEI_META_META_ZOOKEEPER_SERVERS_H */
