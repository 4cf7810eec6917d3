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

/* --- transfers beside everything else ------------------------------------- */

static void *zk_mover_main(void *arg)
{
	struct zk_mover *m = arg;
	uint64_t from, ns, seq = 0;

	while (!__atomic_load_n(&m->stop, __ATOMIC_RELAXED)) {
		fx_buf_fill(&m->buf, 0, m->buf.len, ++seq);
		__atomic_store_n(&m->moving, true, __ATOMIC_RELAXED);
		from = ft_now_ns();
		if (!fx_move(m->rig->engine, m->seg, OPCODE_WRITE, m->buf.p,
			     m->peer->mem.addr, m->buf.len, 0))
			__atomic_store_n(&m->bad, true, __ATOMIC_RELAXED);
		ns = ft_now_ns() - from;
		__atomic_store_n(&m->moving, false, __ATOMIC_RELAXED);
		if (!fx_buf_check(&m->peer->mem, 0, m->buf.len, seq))
			__atomic_store_n(&m->bad, true, __ATOMIC_RELAXED);
		if (ns > m->longest_ns)
			m->longest_ns = ns;
		__atomic_add_fetch(&m->moves, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

bool zk_mover_start(struct zk_mover *m, struct zk_rig *rig, segment_id_t seg,
		    struct fx_peer *peer, size_t len)
{
	*m = (struct zk_mover){ .rig = rig, .seg = seg, .peer = peer,
				.buf = fx_buf_map(len, -1) };
	return m->buf.p &&
	       !registerLocalMemory(rig->engine, m->buf.p, len, "*", 0) &&
	       !pthread_create(&m->thread, NULL, zk_mover_main, m);
}

uint32_t zk_mover_moves(struct zk_mover *m)
{
	return __atomic_load_n(&m->moves, __ATOMIC_RELAXED);
}

struct zk_mover_wait {
	struct zk_mover *m;
	uint32_t until;
};

static bool zk_mover_there(void *arg)
{
	const struct zk_mover_wait *w = arg;

	return zk_mover_moves(w->m) >= w->until ||
	       __atomic_load_n(&w->m->bad, __ATOMIC_RELAXED);
}

bool zk_mover_more(struct zk_mover *m, uint32_t n)
{
	struct zk_mover_wait w = { m, zk_mover_moves(m) + n };

	return ft_wait_until(zk_mover_there, &w, FX_LONG_MS) &&
	       !__atomic_load_n(&m->bad, __ATOMIC_RELAXED);
}

void zk_mover_catch(struct zk_mover *m)
{
	uint64_t deadline = ft_now_ns() + FX_LONG_MS * UINT64_C(1000000);

	while (!__atomic_load_n(&m->moving, __ATOMIC_RELAXED) &&
	       ft_now_ns() < deadline)
		;
}

bool zk_mover_stop(struct zk_mover *m)
{
	__atomic_store_n(&m->stop, true, __ATOMIC_RELAXED);
	pthread_join(m->thread, NULL);
	ft_diag("%u moves, the longest took %llu ms", m->moves,
		(unsigned long long)(m->longest_ns / 1000000));
	unregisterLocalMemory(m->rig->engine, m->buf.p);
	fx_buf_unmap(&m->buf);
	return !m->bad;
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
