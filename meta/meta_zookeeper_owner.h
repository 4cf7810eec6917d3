/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ZOOKEEPER_OWNER_H
#define TEI_META_META_ZOOKEEPER_OWNER_H

/* Functions that read the owner of a name, and find out whether it is alive. */

#include "meta/meta_zookeeper_int.h"

struct zk_owner {
	uint64_t incarnation;		      /* incarnation of the owner; 0:
					       * the owner is not a moonrail
					       * process */
	char endpoint[TEI_META_ENDPOINT_MAX]; /* address of the owner's control
					       * channel, or "" if it is not
					       * known */
	char since[32];
	int32_t ram_version, rpc_version; /* versions of the nodes ram and
					   * rpc_meta; -1: the node does not
					   * exist */
	int64_t ram_czxid, rpc_czxid;	  /* numbers of the transactions that
					   * have created the two nodes (czxid);
					   * 0: the node does not exist */
	bool folder;		       /* the ram node is a folder: its children
					* are nodes of names with a slash */
	bool ownership;		       /* the ownership node exists */
	int64_t ram_owner, rpc_owner;  /* sessions to which the two nodes
					* belong; 0: the node is persistent or
					* does not exist */
	bool ram_damaged, rpc_damaged; /* the content cannot be read or
					* decoded */
	/*
	 * path of a node that belongs to a live session and does not contain a
	 * valid address, so that this process cannot take the name over; NULL:
	 * there is no such node; the text belongs to the entry
	 */
	const char *blocks;
	int64_t session; /* session to which the node "blocks" belongs */
};

/* Reads the nodes of e's name and sets *out to its owner. Returns ZBADVERSION
 * if the nodes were replaced meanwhile. */
int zk_owner_read(struct zk *zk, const struct zk_entry *e, uint64_t deadline_ns,
		  struct zk_owner *out);
/* Returns ZOK if the nodes are still those that were read as the owner h, and
 * ZBADVERSION if one was replaced. */
int zk_owner_same(struct zk *zk, const struct zk_entry *e,
		  const struct zk_owner *h, uint64_t deadline_ns);
/* Writes a description of the owner h to out, for log lines and error texts. */
void zk_owner_text(const struct zk_owner *h, char *out, size_t len);
/*
 * Returns true if the owner is alive. Sends a PING to the owner's published
 * address. If this process (incarnation "own") or a third process answers
 * there, the owner is not alive. An owner that is busy or has another secret is
 * alive. If no address of the owner is known, the owner is alive as long as a
 * session owns one of its nodes.
 */
bool zk_owner_alive(const struct zk_owner *h, uint64_t own,
		    const struct tei_secret *secret, uint64_t deadline_ns);

#endif /* TEI_META_META_ZOOKEEPER_OWNER_H */
