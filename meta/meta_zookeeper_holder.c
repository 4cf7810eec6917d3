/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who has a name that this process wants to publish, as found in ZooKeeper.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "meta/meta_zookeeper_int.h"

static void zk_since(int64_t ms, char *out, size_t len)
{
	time_t t = (time_t)(ms / 1000);
	struct tm tm;

	if (!gmtime_r(&t, &tm) ||
	    !strftime(out, len, "%Y-%m-%dT%H:%M:%SZ", &tm))
		snprintf(out, len, "?");
}

/* One that holds others: names that go on after a slash. */
static bool zk_is_folder(const struct Stat *stat)
{
	return !stat->ephemeralOwner && stat->numChildren;
}

/* A folder that held such and holds none any more. */
static bool zk_is_left(const struct Stat *stat)
{
	return !stat->ephemeralOwner && !stat->numChildren &&
	       !stat->dataLength;
}

static int zk_holder_rpc(struct zk *zk, const struct zk_entry *e,
			 uint64_t deadline_ns, struct zk_holder *out)
{
	struct zk_reply r;
	uint64_t inc;
	int rc;

	out->rpc_version = -1;
	out->rpc_czxid = 0;
	out->endpoint[0] = 0;
	rc = zk_get(zk, e->rpc, ZK_WATCH_NONE, deadline_ns, &r);
	if (rc != ZOK)
		return rc == ZNONODE ? ZOK : rc;
	out->rpc_version = r.stat.version;
	out->rpc_czxid = r.stat.czxid;
	out->folder = out->folder || zk_is_folder(&r.stat);
	out->left = out->left && zk_is_left(&r.stat);
	if (!zk_rpc_decode(r.data, r.len, out->endpoint, &inc))
		out->endpoint[0] = 0;
	else if (out->ram_version < 0)
		out->incarnation = inc;
	if (out->ram_version < 0)
		zk_since(r.stat.ctime, out->since, sizeof(out->since));
	free(r.data);
	return ZOK;
}

static int zk_holder_ram(struct zk *zk, const struct zk_entry *e,
			 uint64_t deadline_ns, struct zk_holder *out)
{
	char at[TEI_META_ENDPOINT_MAX];
	struct zk_reply r;
	int rc;

	memset(out, 0, sizeof(*out));
	out->ram_version = -1;
	out->left = true;
	rc = zk_get(zk, e->ram, ZK_WATCH_NONE, deadline_ns, &r);
	if (rc != ZOK)
		return rc == ZNONODE ? ZOK : rc;
	if (!zk_head_decode(r.data, r.len, &out->incarnation, at))
		out->incarnation = 0;
	out->ram_version = r.stat.version;
	out->ram_czxid = r.stat.czxid;
	out->folder = zk_is_folder(&r.stat);
	out->left = zk_is_left(&r.stat);
	zk_since(r.stat.ctime, out->since, sizeof(out->since));
	free(r.data);
	return ZOK;
}

/* ZBADVERSION: another one is there by now, or none, or one where none was. */
static int zk_holder_node_same(struct zk *zk, const char *path, int64_t czxid,
			       uint64_t deadline_ns)
{
	struct Stat stat = { 0 };
	int rc = zk_exists(zk, path, ZK_WATCH_NONE, deadline_ns, &stat);

	if (rc != ZOK && rc != ZNONODE)
		return rc;
	return (rc == ZOK ? stat.czxid : 0) == czxid ? ZOK : ZBADVERSION;
}

int zk_holder_same(struct zk *zk, const struct zk_entry *e,
		   const struct zk_holder *h, uint64_t deadline_ns)
{
	int rc = zk_holder_node_same(zk, e->ram, h->ram_czxid, deadline_ns);

	return rc != ZOK ? rc :
	       zk_holder_node_same(zk, e->rpc, h->rpc_czxid, deadline_ns);
}

/*
 * The nodes are read one after the other, and meanwhile a holder may withdraw
 * and the next one come, so that what is read is of both: then his guard is
 * missed, and what stands between a third and him. So it is looked whether the
 * first ones are there still when the last was seen.
 */
int zk_holder_read(struct zk *zk, const struct zk_entry *e,
		   uint64_t deadline_ns, struct zk_holder *out)
{
	int rc = zk_holder_ram(zk, e, deadline_ns, out);
	char *guard;

	if (rc == ZOK)
		rc = zk_holder_rpc(zk, e, deadline_ns, out);
	if (rc != ZOK)
		return rc;
	if (out->ram_version < 0 && out->rpc_version < 0)
		out->incarnation =
			tei_meta_server_incarnation(zk->store->server);
	guard = zk_path_guard(zk, e->name, out->incarnation);
	if (!guard)
		return ZSYSTEMERROR;
	rc = zk_exists(zk, guard, ZK_WATCH_NONE, deadline_ns, NULL);
	free(guard);
	if (rc != ZOK && rc != ZNONODE)
		return rc;
	out->guard = rc == ZOK;
	return zk_holder_same(zk, e, out, deadline_ns);
}

void zk_holder_text(const struct zk_holder *h, char *out, size_t len)
{
	snprintf(out, len, "%.60s, incarnation %016" PRIx64 ", since %s",
		 *h->endpoint ? h->endpoint : "an unknown address",
		 h->incarnation, h->since);
}

bool zk_holder_alive(const struct zk_holder *h, uint64_t own,
		     const struct tei_secret *secret, uint64_t deadline_ns)
{
	uint64_t until = tei_now_ns() + ZK_PING_NS, inc;
	struct tei_err err;
	int rc;

	if (h->folder || !*h->endpoint)
		return h->folder || !h->left;
	if (until > deadline_ns)
		until = deadline_ns;
	rc = tei_meta_ping(h->endpoint, secret, until, &inc, &err);
	if (rc == TEI_ERR_REJECTED)
		return !h->incarnation || err.prov_errno == TEI_META_DENIED ||
		       err.prov_errno == TEI_ERR_TOO_MANY;
	return !rc && inc != own &&
	       (!h->incarnation || inc == h->incarnation);
}
