/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/functional/ft_zookeeper.h"

bool zk_rig_open(struct zk_rig *rig, int servers)
{
	memset(rig, 0, sizeof(*rig));
	if (!ft_zk_start(&rig->zk, servers))
		return false;
	snprintf(rig->conn, sizeof(rig->conn), "zookeeper://%s/moon/rail",
		 rig->zk.hosts);
	setenv("FX_META", rig->conn, 1);
	rig->mem = fx_buf_map(ZK_MEM, -1);
	rig->engine = createTransferEngine(rig->conn, "initiator",
					   "127.0.0.1", 0, 0);
	return rig->mem.p && rig->engine &&
	       installTransport(rig->engine, "tcp", NULL) &&
	       fx_register(rig->engine, &rig->mem);
}

void zk_rig_close(struct zk_rig *rig)
{
	if (rig->engine)
		destroyTransferEngine(rig->engine);
	fx_buf_unmap(&rig->mem);
	ft_zk_stop(&rig->zk);
}

bool zk_target(struct zk_rig *rig, struct fx_peer *peer, const char *name)
{
	char own[64];

	(void)rig;
	snprintf(own, sizeof(own), "FX_NAME=%s", name);
	return fx_peer_start(peer, ZK_MEM, own, NULL) &&
	       !fx_ask(peer, "reg 0 %llu 1", (unsigned long long)ZK_MEM);
}

bool zk_move(struct zk_rig *rig, segment_id_t seg, struct fx_peer *peer)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, 0, ZK_MEM, seq);
	return fx_move(rig->engine, seg, OPCODE_WRITE, rig->mem.p,
		       peer->mem.addr, ZK_MEM, FX_MIB) &&
	       fx_buf_check(&peer->mem, 0, ZK_MEM, seq);
}

struct zk_open_wait {
	struct zk_rig *rig;
	const char *name;
	bool there;
};

static bool zk_open_is(void *arg)
{
	const struct zk_open_wait *w = arg;
	segment_id_t seg = openSegmentNoCache(w->rig->engine, w->name);

	if (seg >= 0)
		closeSegment(w->rig->engine, seg);
	return (seg >= 0) == w->there;
}

bool zk_open_until(struct zk_rig *rig, const char *name, bool there,
		   unsigned int ms)
{
	struct zk_open_wait w = { rig, name, there };

	return ft_wait_until(zk_open_is, &w, ms);
}

const char *zk_said(void)
{
	static struct te_error err;

	memset(&err, 0, sizeof(err));
	te_last_error(&err, sizeof(err));
	return err.text;
}
