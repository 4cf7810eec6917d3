/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_SERVERS_H
#define TEI_META_META_ZOOKEEPER_SERVERS_H

/*
 * Connection strings, the addresses of the servers, and the credentials.
 */

#include "meta/meta_zookeeper_int.h"

/* Splits "zookeeper://…" into the servers and the chroot. The caller frees both
 * texts. */
int zk_servers_split(const char *conn, char **servers, char **chroot,
		     struct tei_err *err);

/* Writes the first servers for log lines and error texts. If some servers are
 * left out, "..." follows. */
void zk_servers_where(const char *servers, char out[ZK_WHERE]);

/*
 * Resolves the servers to numeric addresses for the client library, in random
 * order, so that clients spread over the servers. The caller frees *out. Gives
 * up if the store is being closed.
 */
int zk_servers_resolve(struct zk *zk, uint64_t deadline_ns, char **out,
		       struct tei_err *err);

/* Moves the first address of a list to its end. */
void zk_servers_rotate(char *addresses);

/* Returns true if the list contains an address that is not in known. */
bool zk_servers_changed(const char *addresses, const char *known);

#endif /* TEI_META_META_ZOOKEEPER_SERVERS_H */
