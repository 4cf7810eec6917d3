/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/functional/ft_zookeeper.h"

/* Creates the initiator. Returns false if this fails; ft_wait_until() then
 * calls the function again. A server that has just started may be slower than
 * the timeout of a hasty initiator. */
static bool zk_initiator(void *arg)
{
	struct zk_rig *rig = arg;

	rig->engine =
		createTransferEngine(rig->conn, rig->name, "127.0.0.1", 0, 0);
	if (!rig->engine)
		return false;
	if (installTransport(rig->engine, "tcp", NULL) &&
	    fx_register(rig->engine, &rig->mem))
		return true;
	destroyTransferEngine(rig->engine);
	rig->engine = NULL;
	return false;
}

unsigned int zk_hasty_ms(void)
{
	unsigned int ms = fx_ms(2000);

	return ms < 8000 ? ms : 8000;
}

static void zk_set_patience(unsigned int s)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", s);
	setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", text, 1);
}

bool zk_rig_open(struct zk_rig *rig, int servers, bool hasty)
{
	bool good;

	memset(rig, 0, sizeof(*rig));
	rig->name = "initiator";
	if (!ft_zk_start(&rig->zk, servers))
		return false;
	snprintf(rig->conn, sizeof(rig->conn), "zookeeper://%s/moon/rail",
		 rig->zk.hosts);
	setenv("FX_META", rig->conn, 1);
	rig->mem = fx_buf_map(ZK_MEM, -1);
	zk_set_patience(hasty ? zk_hasty_ms() / 1000 : ZK_PATIENT_S);
	good = rig->mem.p && ft_wait_until(zk_initiator, rig, FX_LONG_MS);
	zk_set_patience(ZK_PATIENT_S);
	return good;
}

bool zk_rig_join(struct zk_rig *own, const struct zk_rig *rig, const char *name)
{
	bool good;

	memset(own, 0, sizeof(*own));
	own->name = name;
	memcpy(own->conn, rig->conn, sizeof(own->conn));
	own->mem = fx_buf_map(ZK_MEM, -1);
	zk_set_patience(zk_hasty_ms() / 1000);
	good = own->mem.p && ft_wait_until(zk_initiator, own, FX_LONG_MS);
	zk_set_patience(ZK_PATIENT_S);
	return good;
}

void zk_rig_leave(struct zk_rig *own)
{
	if (own->engine)
		destroyTransferEngine(own->engine);
	fx_buf_unmap(&own->mem);
}

void zk_rig_close(struct zk_rig *rig)
{
	zk_rig_leave(rig);
	ft_zk_stop(&rig->zk);
}

bool zk_target_for(struct fx_peer *peer, const char *name,
		   unsigned int session_ms)
{
	char own[64], session[64];

	snprintf(own, sizeof(own), "FX_NAME=%s", name);
	snprintf(session, sizeof(session), "MOONRAIL_ZK_SESSION_MS=%u",
		 session_ms);
	return fx_peer_start(peer, ZK_MEM, own, session, NULL) &&
	       !fx_ask(peer, "reg 0 %llu 1", (unsigned long long)ZK_MEM);
}

bool zk_target(struct zk_rig *rig, struct fx_peer *peer, const char *name)
{
	(void)rig;
	return zk_target_for(peer, name, ZK_SESSION_MS);
}

bool zk_move(struct zk_rig *rig, segment_id_t seg, struct fx_peer *peer)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, 0, ZK_MEM, seq);
	return fx_move(rig->engine, seg, OPCODE_WRITE, rig->mem.p,
		       peer->mem.addr, ZK_MEM, FX_MIB) &&
	       fx_buf_check(&peer->mem, 0, ZK_MEM, seq);
}

/* --- transfers in the background ------------------------------------------ */

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
	ft_diag("%u writes, the longest took %llu ms", m->moves,
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

static bool zk_unanswered(void)
{
	return strstr(zk_said(), "no answer from ZooKeeper") != NULL;
}

static bool zk_open_is(void *arg)
{
	const struct zk_open_wait *w = arg;
	uint64_t from = ft_now_ns(), ns;
	segment_id_t seg = openSegmentNoCache(w->rig->engine, w->name);

	ns = ft_now_ns() - from;
	if (ns > w->rig->slowest_ns)
		w->rig->slowest_ns = ns;
	if (seg < 0)
		return !w->there && !zk_unanswered();
	closeSegment(w->rig->engine, seg);
	return w->there;
}

bool zk_open_until(struct zk_rig *rig, const char *name, bool there,
		   unsigned int ms)
{
	struct zk_open_wait w = { rig, name, there };

	rig->slowest_ns = 0;
	return ft_wait_until(zk_open_is, &w, ms);
}

struct zk_opening {
	struct zk_rig *rig;
	const char *name;
	segment_id_t seg;
};

static bool zk_opened(void *arg)
{
	struct zk_opening *o = arg;

	o->seg = openSegment(o->rig->engine, o->name);
	return o->seg >= 0 || !zk_unanswered();
}

segment_id_t zk_open(struct zk_rig *rig, const char *name)
{
	struct zk_opening o = { rig, name, -1 };

	ft_wait_until(zk_opened, &o, FX_LONG_MS);
	return o.seg;
}

struct zk_publishing {
	struct zk_rig *rig;
	void *addr;
	size_t len;
	int ret;
};

static bool zk_published(void *arg)
{
	struct zk_publishing *p = arg;

	p->ret = registerLocalMemory(p->rig->engine, p->addr, p->len, "*", 1);
	return !p->ret || !zk_unanswered();
}

bool zk_publish(struct zk_rig *rig, void *addr, size_t len)
{
	struct zk_publishing p = { rig, addr, len, -1 };

	ft_wait_until(zk_published, &p, FX_LONG_MS);
	return !p.ret;
}

const char *zk_said(void)
{
	static struct te_error err;

	memset(&err, 0, sizeof(err));
	te_last_error(&err, sizeof(err));
	return err.text;
}
