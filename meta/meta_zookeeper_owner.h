/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_OWNER_H
#define TEI_META_META_ZOOKEEPER_OWNER_H

/*
 * The owner of a name.
 */

#include "meta/meta_zookeeper_int.h"

struct zk_owner {
	uint64_t incarnation;		      /* incarnation of the owner; 0:
					       * not a moonrail process */
	char endpoint[TEI_META_ENDPOINT_MAX]; /* address at which the owner can
					       * be queried, or "" */
	char since[32];
	int32_t ram_version, rpc_version; /* versions of the two nodes; -1: no
					   * such node */
	int64_t ram_czxid, rpc_czxid;	  /* creation numbers of the two nodes;
					   * 0: no such node */
	bool folder;		       /* the node is a folder of other names */
	bool ownership;		       /* the ownership node exists */
	int64_t ram_owner, rpc_owner;  /* sessions of the two nodes; 0:
					* persistent, or no node */
	bool ram_damaged, rpc_damaged; /* the content cannot be read or
					* decoded */
	/*
	 * path of a node that belongs to a live session and shows no address,
	 * or NULL; the entry owns it
	 */
	const char *blocks;
	int64_t session; /* session of the node in blocks */
};

/* Reads the owner of e's name. Returns ZBADVERSION if it changed meanwhile. */
int zk_owner_read(struct zk *zk, const struct zk_entry *e, uint64_t deadline_ns,
		  struct zk_owner *out);
/* Returns ZOK if the nodes are still those that were read, otherwise
 * ZBADVERSION. */
int zk_owner_same(struct zk *zk, const struct zk_entry *e,
		  const struct zk_owner *h, uint64_t deadline_ns);
/* Writes a description of the owner for log lines and error texts. */
void zk_owner_text(const struct zk_owner *h, char *out, size_t len);
/*
 * Returns true if the owner is alive. Queries the owner at its published
 * address. If another process answers there, or this process, whose incarnation
 * is own, the owner is not alive. If the owner cannot be queried, it is alive
 * as long as its session is; persistent nodes have no session. An owner that is
 * busy or has another secret is alive.
 */
bool zk_owner_alive(const struct zk_owner *h, uint64_t own,
		    const struct tei_secret *secret, uint64_t deadline_ns);

#endif /* TEI_META_META_ZOOKEEPER_OWNER_H */
