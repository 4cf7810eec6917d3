/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads the owner of a name that this process wants to publish, and finds out
 * whether that owner is alive. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "meta/meta_record.h"
#include "meta/meta_zookeeper_call.h"
#include "meta/meta_zookeeper_int.h"
#include "meta/meta_zookeeper_owner.h"
#include "meta/meta_zookeeper_record.h"
#include "meta/tei_meta_client.h"
#include "meta/tei_meta_server.h"

static void zk_since(int64_t ms, char *out, size_t len)
{
	time_t t = (time_t)(ms / 1000);
	struct tm tm;

	if (!gmtime_r(&t, &tm) ||
	    !strftime(out, len, "%Y-%m-%dT%H:%M:%SZ", &tm))
		snprintf(out, len, "?");
}

/* Returns true if the node is a folder: persistent, with children. Its children
 * are nodes of names with a slash. */
static bool zk_is_folder(const struct Stat *stat)
{
	return !stat->ephemeralOwner && stat->numChildren;
}

/* A node as it was read from the server. */
struct zk_found {
	bool there;
	char *data; /* content; NULL: there is no node, or this user may not
		     * read the content */
	size_t len;
	struct Stat stat;
};

/* Reads a node. The caller frees out->data. If this user may not read the
 * content, reads only the state (Stat), which all users may read. */
static int zk_found_read(struct zk *zk, const char *path, uint64_t deadline_ns,
			 struct zk_found *out)
{
	struct zk_reply r;
	int rc = zk_get(zk, path, ZK_WATCH_NONE, deadline_ns, &r);

	memset(out, 0, sizeof(*out));
	if (rc == ZOK) {
		out->data = r.data;
		out->len = r.len;
		out->stat = r.stat;
	} else if (rc == ZNOAUTH) {
		rc = zk_exists(zk, path, ZK_WATCH_NONE, deadline_ns,
			       &out->stat);
	}
	out->there = rc == ZOK;
	return rc == ZNONODE ? ZOK : rc;
}

static int zk_owner_read_rpc(struct zk *zk, const struct zk_entry *e,
			 uint64_t deadline_ns, struct zk_owner *out)
{
	struct zk_found f;
	uint64_t inc = 0;
	int rc;

	out->rpc_version = -1;
	out->endpoint[0] = 0;
	rc = zk_found_read(zk, e->rpc, deadline_ns, &f);
	if (rc != ZOK || !f.there)
		return rc;
	out->rpc_version = f.stat.version;
	out->rpc_czxid = f.stat.czxid;
	out->rpc_owner = f.stat.ephemeralOwner;
	out->folder = out->folder || zk_is_folder(&f.stat);
	out->rpc_damaged =
		!f.data || !meta_rpc_decode(f.data, f.len, out->endpoint, &inc);
	if (out->rpc_damaged)
		out->endpoint[0] = 0;
	else if (out->ram_version < 0 || out->ram_damaged)
		out->incarnation = inc;
	if (out->ram_version < 0)
		zk_since(f.stat.ctime, out->since, sizeof(out->since));
	free(f.data);
	return ZOK;
}

static int zk_owner_read_ram(struct zk *zk, const struct zk_entry *e,
			 uint64_t deadline_ns, struct zk_owner *out)
{
	char at[TEI_META_ENDPOINT_MAX];
	struct zk_found f;
	int rc;

	memset(out, 0, sizeof(*out));
	out->ram_version = -1;
	rc = zk_found_read(zk, e->ram, deadline_ns, &f);
	if (rc != ZOK || !f.there)
		return rc;
	out->ram_damaged = !f.data || !meta_head_decode(f.data, f.len,
							&out->incarnation, at);
	if (out->ram_damaged)
		out->incarnation = 0;
	out->ram_version = f.stat.version;
	out->ram_czxid = f.stat.czxid;
	out->ram_owner = f.stat.ephemeralOwner;
	out->folder = zk_is_folder(&f.stat);
	zk_since(f.stat.ctime, out->since, sizeof(out->since));
	free(f.data);
	return ZOK;
}

/*
 * Sets out->blocks to a node that belongs to a live session and contains no
 * address at which its owner could be queried, if there is such a node. A
 * persistent node belongs to no session, so it never blocks. "ownership" is the
 * session of this process's ownership node, or 0. A damaged node of that
 * session belongs to this process, and another user has overwritten its
 * content; so it does not block either.
 */
static void zk_owner_sessions(struct zk *zk, const struct zk_entry *e,
			       int64_t ownership, struct zk_owner *out)
{
	bool ram = out->ram_owner && out->ram_owner != ownership;
	bool rpc = out->rpc_owner && out->rpc_owner != ownership;

	if (*out->endpoint) {
		/* the address in one node is not that of the other node's
		 * owner, because the nodes belong to different sessions */
		if (ram && out->ram_damaged && out->ram_owner != out->rpc_owner)
			out->blocks = e->ram;
	} else if (rpc) {
		out->blocks = e->rpc;
	} else if (ram) {
		out->blocks = e->ram;
	} else if (ownership && (out->ram_damaged || out->rpc_damaged) &&
		   !out->incarnation) {
		out->incarnation =
			tei_meta_server_incarnation(zk->store->server);
	}
	if (out->blocks)
		out->session = out->blocks == e->ram ? out->ram_owner :
						       out->rpc_owner;
}

/* Sets *owner to the session that owns this process's ownership node for the
 * name, or to 0 if that node does not exist. */
static int zk_owner_own_node(struct zk *zk, const struct zk_entry *e,
			       uint64_t deadline_ns, int64_t *owner)
{
	struct Stat stat = { 0 };
	int rc = zk_exists(zk, e->ownership, ZK_WATCH_NONE, deadline_ns, &stat);

	*owner = rc == ZOK ? stat.ephemeralOwner : 0;
	return rc == ZNONODE ? ZOK : rc;
}

/*
 * Returns ZOK if the node at path is still the one with the creation number
 * czxid, where 0 means that it does not exist. Returns ZBADVERSION if it was
 * deleted, created or replaced.
 */
static int zk_owner_node_same(struct zk *zk, const char *path, int64_t czxid,
			       uint64_t deadline_ns)
{
	struct Stat stat = { 0 };
	int rc = zk_exists(zk, path, ZK_WATCH_NONE, deadline_ns, &stat);

	if (rc != ZOK && rc != ZNONODE)
		return rc;
	return (rc == ZOK ? stat.czxid : 0) == czxid ? ZOK : ZBADVERSION;
}

int zk_owner_same(struct zk *zk, const struct zk_entry *e,
		   const struct zk_owner *h, uint64_t deadline_ns)
{
	int rc = zk_owner_node_same(zk, e->ram, h->ram_czxid, deadline_ns);

	return rc != ZOK ? rc :
	       zk_owner_node_same(zk, e->rpc, h->rpc_czxid, deadline_ns);
}

/*
 * Reads the nodes of the name one after the other. Between two reads, the owner
 * may withdraw the name and another process may register it. The nodes would
 * then belong to different owners, and this process could replace the new
 * owner, because it would look for the ownership node of the old one. Therefore
 * the nodes that were read first are checked again after the last one was read.
 */
int zk_owner_read(struct zk *zk, const struct zk_entry *e,
		   uint64_t deadline_ns, struct zk_owner *out)
{
	int rc = zk_owner_read_ram(zk, e, deadline_ns, out);
	int64_t owner = 0;
	char *ownership;

	if (rc == ZOK)
		rc = zk_owner_read_rpc(zk, e, deadline_ns, out);
	if (rc != ZOK)
		return rc;
	if (out->ram_damaged || out->rpc_damaged)
		rc = zk_owner_own_node(zk, e, deadline_ns, &owner);
	if (rc != ZOK)
		return rc;
	zk_owner_sessions(zk, e, owner, out);
	if (out->ram_version < 0 && out->rpc_version < 0)
		out->incarnation =
			tei_meta_server_incarnation(zk->store->server);
	ownership = zk_path_ownership(zk, e->name, out->incarnation);
	if (!ownership)
		return ZSYSTEMERROR;
	rc = zk_exists(zk, ownership, ZK_WATCH_NONE, deadline_ns, NULL);
	free(ownership);
	if (rc != ZOK && rc != ZNONODE)
		return rc;
	out->ownership = rc == ZOK;
	return zk_owner_same(zk, e, out, deadline_ns);
}

void zk_owner_text(const struct zk_owner *h, char *out, size_t len)
{
	if (h->blocks) {
		snprintf(out, len,
			 "session 0x%" PRIx64 ", which owns the node %s",
			 (uint64_t)h->session, h->blocks);
		return;
	}
	snprintf(out, len, "%.60s, incarnation %016" PRIx64 ", since %s",
		 *h->endpoint ? h->endpoint : "an unknown address",
		 h->incarnation, h->since);
}

bool zk_owner_alive(const struct zk_owner *h, uint64_t own,
		     const struct tei_secret *secret, uint64_t deadline_ns)
{
	uint64_t until = tei_now_ns() + ZK_PING_NS, inc;
	struct tei_err err;
	int rc;

	if (h->folder || h->blocks)
		return true;
	if (!*h->endpoint)
		return false;
	if (until > deadline_ns)
		until = deadline_ns;
	rc = tei_meta_ping(h->endpoint, secret, until, &inc, &err);
	if (rc == TEI_ERR_REJECTED)
		return !h->incarnation || err.prov_errno == TEI_META_DENIED ||
		       err.prov_errno == TEI_ERR_TOO_MANY;
	return !rc && inc != own &&
	       (!h->incarnation || inc == h->incarnation);
}
