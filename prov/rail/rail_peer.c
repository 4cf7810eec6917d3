/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Peers and their control state machines, run by the progress thread. Every
 * machine is "send again with back-off until answered"; each step returns when
 * it wants to run again, 0 for never.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/rail_int.h"
#include "prov/rail/rail_wire.h"

#define PEER_RETRY_NS		TEI_NS_PER_MS		/* -FI_EAGAIN */
#define PEER_RESEND_MIN_NS	(20 * TEI_NS_PER_MS)
#define PEER_RESEND_MAX_NS	TEI_NS_PER_SEC
#define PEER_DEADLINE_NS	(50 * TEI_NS_PER_MS)
#define PEER_UNANSWERED_NS	(200 * TEI_NS_PER_MS)
#define PEER_RESOLVE_NS		TEI_NS_PER_SEC
#define PEER_SILENT_TRIES	30
#define PEER_ALIVE_NS		(5 * TEI_NS_PER_MS)
#define PEER_NOTE_PATIENCE_NS	(300 * TEI_NS_PER_MS)

static struct tei_list *peer_bucket(struct tei_rail_dp *dp, uint64_t inc)
{
	return &dp->hash[(inc ^ (inc >> 32)) % RAIL_PEER_HASH];
}

struct tei_rail_peer *rail_peer_find(struct tei_rail_dp *dp, uint64_t inc)
{
	struct tei_rail_peer *p;

	tei_list_foreach(p, peer_bucket(dp, inc), struct tei_rail_peer,
			 hash_link)
		if (p->incarnation == inc)
			return p;
	return NULL;
}

struct tei_rail_peer *rail_peer_new(struct tei_rail_dp *dp, const char *name,
				    uint64_t inc)
{
	struct tei_rail_peer *p;
	uint32_t left;
	int i;

	if (dp->npeers >= dp->settings->max_peers) {
		if (tei_log_permit(&dp->peer_limit, &left))
			TEI_WARN("rail", "peer refused: MOONRAIL_MAX_PEERS=%u reached",
				 dp->settings->max_peers);
		return NULL;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->dp = dp;
	p->incarnation = inc;
	snprintf(p->name, sizeof(p->name), "%s", name);
	for (i = 0; i < TEI_RAIL_MAX; i++)
		p->route[i] = -1;
	tei_list_init(&p->attn_link);
	tei_list_init(&p->active_link);
	tei_list_init(&p->queue);
	tei_list_init(&p->live);
	tei_list_init(&p->retry);
	tei_list_init(&p->limbo);
	tei_list_init(&p->notes);
	tei_list_init(&p->keys);
	tei_list_add_tail(&dp->peers, &p->link);
	tei_list_add_tail(peer_bucket(dp, inc), &p->hash_link);
	dp->npeers++;
	return p;
}

static void peer_free(struct tei_rail_peer *p)
{
	struct rail_note *n, *tmp;

	tei_list_foreach_safe(n, tmp, &p->notes, struct rail_note, link)
		free(n);
	rail_key_free_all(p);
	rail_path_free_all(p);
	free(p->rkeys);
	free(p->draining);
	free(p->owed);
	free(p->revokes);
	free(p->remotes);
	free(p);
}

/* Gone, unused and nothing of it under way: forgotten. */
static bool peer_idle(const struct tei_rail_peer *p)
{
	return !p->refs && p->state == RAIL_PEER_GONE &&
	       tei_list_empty(&p->live) && tei_list_empty(&p->limbo) &&
	       tei_list_empty(&p->retry) && !p->posted && !p->nrevokes &&
	       !p->refuse;
}

void rail_peer_maybe_free(struct tei_rail_peer *p)
{
	if (!peer_idle(p))
		return;
	if (!tei_list_empty(&p->active_link))
		__atomic_fetch_sub(&p->dp->nactive, 1, __ATOMIC_RELAXED);
	tei_list_del(&p->active_link);
	tei_list_del(&p->attn_link);
	tei_list_del(&p->hash_link);
	tei_list_del(&p->link);
	p->dp->npeers--;
	peer_free(p);
}

void rail_peer_free_all(struct tei_rail_dp *dp)
{
	struct tei_rail_peer *p, *tmp;

	tei_list_foreach_safe(p, tmp, &dp->peers, struct tei_rail_peer, link)
		peer_free(p);
	tei_list_init(&dp->peers);
}

void rail_peer_attend(struct tei_rail_peer *p)
{
	p->due_ns = 0;
	if (tei_list_empty(&p->attn_link))
		tei_list_add_tail(&p->dp->attn, &p->attn_link);
	__atomic_store_n(&p->dp->attn_next_ns, 1, __ATOMIC_RELAXED);
	rail_progress_wake(p->dp);
}

void rail_peer_ready(struct tei_rail_peer *p)
{
	struct rail *rail;
	uint32_t i;

	p->state = RAIL_PEER_READY;
	p->want_hello = false;
	p->hello_tries = 0;
	for (i = 0; i < rail_count(p->dp); i++) {
		rail = rail_at(p->dp, i);
		if (p->route[i] >= 0)
			TEI_INFO("rail", "peer %s: %s (%s, %s) to its %s",
				 p->name, rail->name, rail->transport,
				 rail->provider,
				 p->remotes[p->route[i]].name);
	}
}

void rail_peer_set_gone(struct tei_rail_peer *p, const char *why,
			struct rail_done *done)
{
	struct tei_rail_dp *dp = p->dp;
	struct tei_rail_task *t, *tmp;
	struct tei_err err;
	uint16_t i;

	if (p->state == RAIL_PEER_GONE)
		return;
	TEI_INFO("rail", "peer %s has gone: %s", p->name, why);
	p->state = RAIL_PEER_GONE;
	memset(&err, 0, sizeof(err));
	err.code = TEI_ERR_CONTEXT;
	err.when_ns = tei_now_ns();
	snprintf(err.peer, sizeof(err.peer), "%.95s", p->name);
	snprintf(err.text, sizeof(err.text), "stale incarnation: %.128s", why);
	snprintf(err.hint, sizeof(err.hint), "open the segment again");
	tei_list_foreach_safe(t, tmp, &p->live, struct tei_rail_task, live_link)
		rail_task_end(dp, t, TEI_RAIL_END_FAILED, &err, done);
	/* a process that is gone writes nothing more */
	for (i = 0; i < p->nremotes; i++)
		rail_sched_fenced(p, i, UINT32_MAX, done);
	p->unfenced = 0;
	while (p->nrevokes)
		rail_key_drained(p, p->revokes[0]);
	rail_key_drop_all(p);
	p->key_want.active = false;
	rail_peer_attend(p);
	rail_progress_signal(dp);
}

void rail_peer_announce(struct tei_rail_dp *dp)
{
	struct tei_rail_peer *p;

	rail_sched_enter(dp);
	__atomic_store_n(&dp->table, dp->table + 1, __ATOMIC_RELAXED);
	tei_list_foreach(p, &dp->peers, struct tei_rail_peer, link) {
		if (p->state == RAIL_PEER_GONE)
			continue;
		rail_path_table(p);
		p->announce = true;
		rail_peer_attend(p);
		rail_peer_activate(p);
	}
	rail_sched_leave(dp);
	if (!__atomic_load_n(&dp->quiet, __ATOMIC_ACQUIRE))
		dp->ops->rails_changed(dp->arg);
}

/* --- state machines ------------------------------------------------------ */

static uint64_t peer_resend(uint64_t now, uint32_t tries)
{
	uint64_t wait = PEER_RESEND_MIN_NS << (tries < 6 ? tries : 6);

	return now + (wait < PEER_RESEND_MAX_NS ? wait : PEER_RESEND_MAX_NS);
}

static uint64_t peer_sooner(uint64_t a, uint64_t b)
{
	if (!a || !b)
		return a ? a : b;
	return a < b ? a : b;
}

/* The result of a send, as the time to come again; *tries counts. */
static uint64_t peer_sent(int ret, uint64_t now, uint32_t *tries)
{
	if (ret == -FI_EAGAIN && *tries == 0)
		return now + PEER_RETRY_NS;
	if (ret == -FI_EAGAIN)
		return now + 5 * PEER_RETRY_NS;
	(*tries)++;
	return peer_resend(now, *tries);
}

static void peer_resolve(struct tei_rail_peer *p, uint64_t now)
{
	struct tei_rail_dp *dp = p->dp;
	bool ask;

	rail_sched_enter(dp);
	ask = p->refs && p->state != RAIL_PEER_GONE &&
	      now >= p->resolve_next_ns &&
	      !__atomic_load_n(&dp->quiet, __ATOMIC_ACQUIRE);
	if (ask) {
		p->resolve_next_ns = now + PEER_RESOLVE_NS;
		p->refs++;
	}
	rail_sched_leave(dp);
	if (!ask)
		return;
	TEI_DEBUG_LOG("rail", "peer %s: looked up again", p->name);
	dp->ops->resolve(dp->arg, p);
}

/* A request has had no answer for a while: is it still the same process? */
static void peer_unanswered(struct tei_rail_peer *p, uint64_t now,
			    uint64_t since)
{
	if (now - since < PEER_UNANSWERED_NS)
		return;
	p->rehello = true;
	peer_resolve(p, now);
}

/* A process that once said hello but does not answer, and nobody here uses. */
static bool peer_forget_silent(struct tei_rail_peer *p)
{
	struct rail_done done;
	bool forget;

	rail_done_init(&done);
	rail_sched_enter(p->dp);
	forget = !p->refs && p->hello_tries > PEER_SILENT_TRIES;
	if (forget)
		rail_peer_set_gone(p, "it does not answer", &done);
	rail_sched_leave(p->dp);
	rail_done_run(p->dp, &done);
	return forget;
}

/* Not one rail of ours fits the peer's first address: no use in waiting. */
static void peer_no_route(struct tei_rail_peer *p)
{
	struct tei_rail_task *t, *tmp;
	struct rail_done done;
	struct tei_err err;

	memset(&err, 0, sizeof(err));
	err.code = TEI_ERR_NO_DEVICE;
	err.when_ns = tei_now_ns();
	snprintf(err.peer, sizeof(err.peer), "%.95s", p->name);
	snprintf(err.text, sizeof(err.text),
		 "no rail here fits the peer's provider and address");
	snprintf(err.hint, sizeof(err.hint),
		 "install the same transport on both sides");
	rail_done_init(&done);
	rail_sched_enter(p->dp);
	if (!tei_list_empty(&p->live))
		TEI_ERROR("rail", "%s: %s", p->name, err.text);
	tei_list_foreach_safe(t, tmp, &p->live, struct tei_rail_task, live_link)
		rail_task_end(p->dp, t, TEI_RAIL_END_FAILED, &err, &done);
	rail_sched_leave(p->dp);
	rail_done_run(p->dp, &done);
}

static uint64_t peer_run_hello(struct tei_rail_peer *p, uint64_t now,
			       uint8_t *buf)
{
	struct tei_rail_dp *dp = p->dp;
	bool reply, ask, announce;
	size_t len;
	int ret;

	rail_sched_enter(dp);
	if (p->announce) {
		p->announce = false;
		p->hello_tries = 0;
		p->hello_next_ns = 0;
	}
	reply = p->reply_hello;
	if (p->stuck) {
		TEI_DEBUG_LOG("rail", "peer %s: a path does not connect",
			      p->name);
		p->stuck = false;
		p->rehello = true;
	}
	ask = (p->want_hello && p->state == RAIL_PEER_NEW) || p->rehello;
	announce = p->state == RAIL_PEER_READY && p->known_us &&
		   p->table_acked < dp->table;
	p->reply_hello = false;
	rail_sched_leave(dp);
	if (!ask)
		p->asked_ns = 0;
	else if (!p->asked_ns)
		p->asked_ns = now;
	if (!reply && !ask && !announce)
		return 0;
	if (!reply && now < p->hello_next_ns)
		return p->hello_next_ns;
	if (announce && !ask && peer_forget_silent(p))
		return 0;
	len = rail_msg_hello(p, ask || announce, buf);
	ret = rail_msg_send(p, buf, len, p->attempt);
	if (ret && reply) {
		rail_sched_enter(dp);
		p->reply_hello = true;
		rail_sched_leave(dp);
	}
	if (ask)
		peer_unanswered(p, now, p->asked_ns);
	if (ask && ret == -FI_EHOSTUNREACH)
		peer_no_route(p);
	p->hello_next_ns = peer_sent(ret, now, &p->hello_tries);
	return p->hello_next_ns;
}

static uint64_t peer_run_refuse(struct tei_rail_peer *p, uint64_t now,
				uint8_t *buf)
{
	static const char why[] =
		"another process answers at this address: stale incarnation";
	struct rail_wire w;
	uint32_t tries = 1;
	size_t len;
	int ret;

	if (!p->refuse)
		return 0;
	rail_msg_begin(p, &w, buf, RAIL_MSG_REFUSE, 0);
	rail_wire_put(&w, p->refuse, 8);
	rail_wire_put_bytes(&w, why, sizeof(why) - 1);
	len = rail_msg_end(&w);
	ret = rail_msg_send(p, buf, len, p->attempt);
	if (ret == -FI_EAGAIN)
		return peer_sent(ret, now, &tries);
	p->refuse = 0;
	return 0;
}

/* Appends one region with its keys; false if it did not fit. */
static bool peer_put_region(struct rail_wire *w, struct tei_rail_dp *dp,
			    const struct tei_rail_mr *mr)
{
	uint32_t i, n = 0;
	size_t start = w->pos;

	for (i = 0; i < rail_count(dp); i++)
		n += mr->part[i].key_len != 0;
	rail_wire_put(w, (uintptr_t)mr->addr, 8);
	rail_wire_put(w, mr->len, 8);
	rail_wire_put(w, mr->id, 8);
	rail_wire_put(w, n, 2);
	for (i = 0; i < rail_count(dp); i++) {
		if (!mr->part[i].key_len)
			continue;
		rail_wire_put(w, i, 2);
		rail_wire_put_bytes(w, mr->part[i].key, mr->part[i].key_len);
	}
	if (!w->bad)
		return true;
	w->bad = false;
	w->pos = start;
	return false;
}

/*
 * The regions that cover [addr, addr + len), all of them or a refusal. What
 * does not fit in one message is asked for again when it is needed.
 */
static int peer_put_regions(struct tei_rail_peer *p, struct rail_wire *w,
			    uint64_t addr, uint64_t len, uint16_t *count)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_dp *dp = p->dp;
	struct tei_rail_mr *mr;
	uint64_t have;
	bool room = true;

	if (!len || addr + (len - 1) < addr)
		return TEI_ERR_NOT_REGISTERED;
	while (len) {
		mr = rail_mr_find(dp, (void *)(uintptr_t)addr, 1);
		if (!mr || !mr->remote)
			return TEI_ERR_NOT_REGISTERED;
		if (room && rail_key_note_holder(mr, p->incarnation))
			return TEI_ERR_MEMORY;
		room = room && peer_put_region(w, dp, mr);
		*count = (uint16_t)(*count + room);
		have = mr->len - (addr - (uintptr_t)mr->addr);
		addr += have < len ? have : len;
		len -= have < len ? have : len;
	}
	return 0;
}

static uint64_t peer_run_key_reply(struct tei_rail_peer *p, uint64_t now,
				   uint8_t *buf)
{
	struct tei_rail_dp *dp = p->dp;
	size_t code_at, count_at, start, len;
	uint64_t addr, want;
	struct rail_wire w;
	uint16_t count = 0;
	uint32_t tries = 1;
	int code, ret;

	rail_sched_enter(dp);
	if (!p->key_reply.owed) {
		rail_sched_leave(dp);
		return 0;
	}
	addr = p->key_reply.addr;
	want = p->key_reply.len;
	p->key_reply.owed = false;
	rail_msg_begin(p, &w, buf, RAIL_MSG_KEY_REP, 0);
	rail_wire_put(&w, addr, 8);
	rail_wire_put(&w, want, 8);
	code_at = w.pos;
	rail_wire_put(&w, 0, 4);
	rail_wire_put(&w, dp->key_epoch, 4);
	count_at = w.pos;
	rail_wire_put(&w, 0, 2);
	start = w.pos;
	code = peer_put_regions(p, &w, addr, want, &count);
	rail_sched_leave(dp);
	if (code) {
		w.pos = start;
		count = 0;
	}
	len = w.pos;
	w.pos = code_at;
	rail_wire_put(&w, (uint32_t)code, 4);
	w.pos = count_at;
	rail_wire_put(&w, count, 2);
	w.pos = len;
	len = rail_msg_end(&w);
	ret = rail_msg_send(p, buf, len, p->attempt);
	if (ret != -FI_EAGAIN)
		return 0;
	rail_sched_enter(dp);
	if (!p->key_reply.owed) {
		p->key_reply.addr = addr;
		p->key_reply.len = want;
		p->key_reply.owed = true;
	}
	rail_sched_leave(dp);
	return peer_sent(ret, now, &tries);
}

static uint64_t peer_run_key_want(struct tei_rail_peer *p, uint64_t now,
				  uint8_t *buf)
{
	struct rail_key_want want;
	struct rail_wire w;
	size_t len;
	int ret;

	rail_sched_enter(p->dp);
	want = p->key_want;
	if (p->state != RAIL_PEER_READY)
		want.active = false;
	rail_sched_leave(p->dp);
	if (!want.active)
		return 0;
	if (now < want.next_ns)
		return want.next_ns;
	rail_msg_begin(p, &w, buf, RAIL_MSG_KEY_REQ, 0);
	rail_wire_put(&w, want.addr, 8);
	rail_wire_put(&w, want.len, 8);
	len = rail_msg_end(&w);
	ret = rail_msg_send(p, buf, len, p->attempt + want.tries);
	want.next_ns = peer_sent(ret, now, &want.tries);
	want.since_ns = want.since_ns ? want.since_ns : now;
	peer_unanswered(p, now, want.since_ns);
	rail_sched_enter(p->dp);
	if (p->key_want.addr == want.addr && p->key_want.len == want.len) {
		p->key_want.next_ns = want.next_ns;
		p->key_want.tries = want.tries;
		p->key_want.since_ns = want.since_ns;
	}
	rail_sched_leave(p->dp);
	return want.next_ns;
}

static uint64_t peer_run_fence_one(struct tei_rail_peer *p, uint16_t r,
				   uint64_t now, uint8_t *buf)
{
	struct rail_fence f;
	struct rail_wire w;
	uint16_t id;
	size_t len;
	int ret;

	rail_sched_enter(p->dp);
	f = p->remotes[r].fence;
	id = p->remotes[r].id;
	rail_sched_leave(p->dp);
	if (!f.wanted)
		return 0;
	if (now < f.next_ns)
		return f.next_ns;
	rail_msg_begin(p, &w, buf, RAIL_MSG_FENCE, 0);
	rail_wire_put(&w, id, 2);
	rail_wire_put(&w, f.gen, 4);
	len = rail_msg_end(&w);
	ret = rail_msg_send(p, buf, len, p->attempt + f.tries);
	f.next_ns = peer_sent(ret, now, &f.tries);
	f.since_ns = f.since_ns ? f.since_ns : now;
	peer_unanswered(p, now, f.since_ns);
	rail_sched_enter(p->dp);
	p->remotes[r].fence.next_ns = f.next_ns;
	p->remotes[r].fence.tries = f.tries;
	p->remotes[r].fence.since_ns = f.since_ns;
	rail_sched_leave(p->dp);
	return f.next_ns;
}

static uint64_t peer_run_fences(struct tei_rail_peer *p, uint64_t now,
				uint8_t *buf)
{
	uint64_t next = 0;
	uint16_t r;

	for (r = 0; r < p->nremotes; r++)
		next = peer_sooner(next, peer_run_fence_one(p, r, now, buf));
	return next;
}

/* Target: closes what the peer asked to be closed, then answers. */
static uint64_t peer_run_fence_reply(struct tei_rail_peer *p, uint64_t now,
				     uint8_t *buf)
{
	struct tei_rail_dp *dp = p->dp;
	struct rail_fence_reply reply[TEI_RAIL_MAX];
	uint32_t i, gen, tries = 1;
	const struct tei_rail_addr *a;
	struct rail_wire w;
	uint64_t next = 0;
	size_t len;
	int ret;

	rail_sched_enter(dp);
	if (!p->fences_owed) {
		rail_sched_leave(dp);
		return 0;
	}
	memcpy(reply, p->fence_reply, sizeof(reply));
	p->fences_owed = false;
	rail_sched_leave(dp);
	for (i = 0; i < rail_count(dp); i++) {
		if (!reply[i].owed)
			continue;
		gen = rail_fence_target(rail_at(dp, i), reply[i].gen);
		a = &rail_at(dp, i)->target.addr;
		rail_msg_begin(p, &w, buf, RAIL_MSG_FENCED, 0);
		rail_wire_put(&w, i, 2);
		rail_wire_put(&w, reply[i].gen, 4);
		rail_wire_put(&w, gen, 4);
		rail_wire_put(&w, a->addr_format, 4);
		rail_wire_put(&w, a->protocol, 4);
		rail_wire_put(&w, a->protocol_version, 4);
		rail_wire_put_bytes(&w, a->bytes,
				    rail_at(dp, i)->target.ep ? a->len : 0);
		len = rail_msg_end(&w);
		ret = rail_msg_send(p, buf, len, p->attempt);
		rail_sched_enter(dp);
		if (ret == -FI_EAGAIN) {
			p->fences_owed = true;
			next = peer_sent(ret, now, &tries);
		} else if (p->fence_reply[i].gen == reply[i].gen) {
			p->fence_reply[i].owed = false;
		}
		rail_sched_leave(dp);
	}
	return next;
}

/* Sends region ids of a list; type REVOKE or REVOKED. */
static int peer_send_ids(struct tei_rail_peer *p, enum rail_msg_type type,
			 const uint64_t *ids, uint32_t n, uint8_t *buf)
{
	struct rail_wire w;
	uint32_t i;

	rail_msg_begin(p, &w, buf, type, 0);
	if (type == RAIL_MSG_REVOKE)
		rail_wire_put(&w, p->dp->key_epoch, 4);
	rail_wire_put(&w, n, 2);
	for (i = 0; i < n; i++)
		rail_wire_put(&w, ids[i], 8);
	return rail_msg_send(p, buf, rail_msg_end(&w), p->attempt);
}

#define PEER_IDS	512

static uint64_t peer_run_revoked(struct tei_rail_peer *p, uint64_t now,
				 uint8_t *buf)
{
	uint64_t ids[PEER_IDS];
	uint32_t n, tries = 1;
	bool more;
	int ret;

	rail_sched_enter(p->dp);
	n = p->nowed < PEER_IDS ? p->nowed : PEER_IDS;
	if (n)
		memcpy(ids, p->owed + p->nowed - n, n * sizeof(*ids));
	p->nowed -= n;
	more = p->nowed != 0;
	rail_sched_leave(p->dp);
	if (!n)
		return 0;
	ret = peer_send_ids(p, RAIL_MSG_REVOKED, ids, n, buf);
	if (ret != -FI_EAGAIN)
		return more ? now : 0;
	rail_sched_enter(p->dp);
	while (n--)
		rail_key_owe(p, ids[n]);
	rail_sched_leave(p->dp);
	return peer_sent(ret, now, &tries);
}

static uint64_t peer_run_revokes(struct tei_rail_peer *p, uint64_t now,
				 uint8_t *buf)
{
	uint64_t ids[PEER_IDS], next;
	uint32_t n;
	int ret;

	rail_sched_enter(p->dp);
	n = p->nrevokes < PEER_IDS ? p->nrevokes : PEER_IDS;
	if (n)
		memcpy(ids, p->revokes, n * sizeof(*ids));
	next = p->revoke_next_ns;
	rail_sched_leave(p->dp);
	if (!n)
		return 0;
	if (now < next)
		return next;
	ret = peer_send_ids(p, RAIL_MSG_REVOKE, ids, n, buf);
	next = now + (ret == -FI_EAGAIN ? PEER_RETRY_NS : PEER_RESEND_MIN_NS);
	rail_sched_enter(p->dp);
	p->revoke_next_ns = next;
	rail_sched_leave(p->dp);
	return next;
}

/*
 * Notifications keep their order, so they all take one rail; another one only
 * after that did not take any for a while.
 */
static int peer_send_note(struct tei_rail_peer *p, const uint8_t *buf,
			  size_t len, uint64_t now)
{
	uint32_t i, n = rail_count(p->dp);
	int ret = -FI_EHOSTUNREACH;

	for (i = 0; i < n; i++) {
		ret = rail_msg_send_on(p, rail_at(p->dp,
						  (p->note_rail + i) % n),
				       0, buf, len);
		if (ret != -FI_EHOSTUNREACH)
			break;
	}
	if (ret != -FI_EAGAIN) {
		p->note_since_ns = 0;
	} else if (!p->note_since_ns) {
		p->note_since_ns = now;
	} else if (now - p->note_since_ns > PEER_NOTE_PATIENCE_NS) {
		p->note_rail++;
		p->note_since_ns = now;
	}
	return ret;
}

static uint64_t peer_run_notes(struct tei_rail_peer *p, uint64_t now,
			       uint8_t *buf)
{
	struct rail_note *n;
	struct rail_wire w;
	uint32_t tries = 1;
	int ret;

	for (;;) {
		rail_sched_enter(p->dp);
		n = NULL;
		if (p->state == RAIL_PEER_READY && !tei_list_empty(&p->notes))
			n = tei_list_first(&p->notes, struct rail_note, link);
		rail_sched_leave(p->dp);
		if (!n)
			return 0;
		rail_msg_begin(p, &w, buf, RAIL_MSG_NOTIFY, 0);
		rail_wire_put_bytes(&w, n->text, n->name_len);
		rail_wire_put_bytes(&w, n->text + n->name_len, n->msg_len);
		ret = peer_send_note(p, buf, rail_msg_end(&w), now);
		if (ret == -FI_EAGAIN)
			return peer_sent(ret, now, &tries);
		rail_sched_enter(p->dp);
		tei_list_del(&n->link);
		p->nnotes--;
		rail_sched_leave(p->dp);
		free(n);
	}
}

static uint64_t peer_run_warm(struct tei_rail_peer *p, uint64_t now,
			      uint8_t *buf)
{
	struct tei_rail_dp *dp = p->dp;
	uint32_t i, l, L = dp->settings->lanes_per_rail;
	size_t len;
	bool left = false;

	rail_sched_enter(dp);
	left = p->warm_wanted && p->state == RAIL_PEER_READY;
	rail_sched_leave(dp);
	if (!left)
		return 0;
	left = false;
	len = rail_msg_hello(p, false, buf);
	for (i = 0; i < rail_count(dp); i++) {
		if (!(p->warm_left & (UINT64_C(1) << i)))
			continue;
		for (l = 0; l < L; l++) {
			if (rail_msg_send_on(p, rail_at(dp, i), l, buf, len) ==
			    -FI_EAGAIN)
				break;
		}
		if (l == L)
			p->warm_left &= ~(UINT64_C(1) << i);
		left |= l < L;
	}
	if (left)
		return now + PEER_RETRY_NS;
	rail_sched_enter(dp);
	p->warm_wanted = false;
	rail_sched_leave(dp);
	rail_progress_signal(dp);
	return 0;
}

/* --- deadlines ----------------------------------------------------------- */

static void peer_timeout_err(const struct tei_rail_peer *p, struct tei_err *err)
{
	const struct tei_rail_dp *dp = p->dp;
	size_t used;
	uint32_t i;

	memset(err, 0, sizeof(*err));
	err->code = TEI_ERR_ENDPOINT;
	err->when_ns = tei_now_ns();
	snprintf(err->peer, sizeof(err->peer), "%.95s", p->name);
	snprintf(err->text, sizeof(err->text),
		 "no progress for MC_SLICE_TIMEOUT=%u s%s; rails:",
		 dp->settings->slice_timeout_s,
		 p->state == RAIL_PEER_NEW ? ", the peer never answered" : "");
	for (i = 0; i < dp->nrails; i++) {
		used = strlen(err->text);
		if (p->route[i] >= 0)
			snprintf(err->text + used, sizeof(err->text) - used,
				 " %s", dp->rails[i]->name);
	}
}

/*
 * A task ends when neither it nor what is ahead of it has progressed for
 * MC_SLICE_TIMEOUT. Ended tasks first have their lanes retired, then their
 * fence given up, one fence time each.
 */
static void peer_check_deadlines(struct tei_rail_peer *p, uint64_t now,
				 struct rail_done *done, bool *retire,
				 bool *give_up) TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_dp *dp = p->dp;
	uint64_t limit = dp->settings->slice_timeout_s * TEI_NS_PER_SEC;
	uint64_t fence = dp->settings->fence_ms * TEI_NS_PER_MS;
	struct tei_rail_task *t, *tmp;
	uint64_t newest = 0;
	struct tei_err err;
	uint32_t left;

	tei_list_foreach_safe(t, tmp, &p->live, struct tei_rail_task,
			      live_link) {
		if (t->progress_ns > newest)
			newest = t->progress_ns;
		if (!t->end_wanted) {
			if (now < newest + limit)
				continue;
			peer_timeout_err(p, &err);
			if (tei_log_permit(&p->err_limit, &left))
				TEI_WARN("rail", "%s: %s", p->name, err.text);
			t->end_stage = 1;
			t->end_ns = now;
			*retire = true;
			rail_task_end(dp, t, TEI_RAIL_END_FAILED, &err, done);
		} else if (!t->end_ns) {
			t->end_ns = now;
		} else if (now >= t->end_ns + fence && !t->end_stage) {
			t->end_stage = 1;
			t->end_ns = now;
			*retire = true;
		} else if (now >= t->end_ns + fence) {
			*give_up = true;
		}
	}
}

static uint64_t peer_run_deadlines(struct tei_rail_peer *p, uint64_t now)
{
	bool retire = false, give_up = false, live;
	struct rail_done done;

	rail_done_init(&done);
	rail_sched_enter(p->dp);
	peer_check_deadlines(p, now, &done, &retire, &give_up);
	if (give_up)
		rail_sched_give_up(p, &done);
	live = !tei_list_empty(&p->live);
	rail_sched_leave(p->dp);
	rail_done_run(p->dp, &done);
	if (retire)
		rail_fence_retire_peer(p);
	return live ? now + PEER_DEADLINE_NS : 0;
}

uint64_t rail_peer_run(struct tei_rail_peer *p, uint64_t now)
{
	uint8_t buf[RAIL_MSG_MAX];
	uint64_t next;

	next = peer_run_fence_reply(p, now, buf);
	next = peer_sooner(next, peer_run_hello(p, now, buf));
	next = peer_sooner(next, peer_run_refuse(p, now, buf));
	next = peer_sooner(next, peer_run_fences(p, now, buf));
	next = peer_sooner(next, peer_run_revoked(p, now, buf));
	next = peer_sooner(next, peer_run_revokes(p, now, buf));
	next = peer_sooner(next, peer_run_key_reply(p, now, buf));
	next = peer_sooner(next, peer_run_key_want(p, now, buf));
	next = peer_sooner(next, peer_run_warm(p, now, buf));
	next = peer_sooner(next, peer_run_notes(p, now, buf));
	return peer_sooner(next, peer_run_deadlines(p, now));
}

/* Tells every peer that knows us; for tear-down. True when all are told. */
bool rail_peer_bye(struct tei_rail_dp *dp)
{
	uint8_t buf[RAIL_MSG_MAX];
	struct tei_rail_peer *p;
	struct rail_wire w;
	bool all = true;

	tei_list_foreach(p, &dp->peers, struct tei_rail_peer, link) {
		if (p->state != RAIL_PEER_READY || !p->known_us || p->bye_sent)
			continue;
		rail_msg_begin(p, &w, buf, RAIL_MSG_BYE, 0);
		if (rail_msg_send(p, buf, rail_msg_end(&w), 0) == -FI_EAGAIN)
			all = false;
		else
			p->bye_sent = true;
	}
	return all;
}

/* --- the calls ----------------------------------------------------------- */

int tei_rail_peer_get(struct tei_rail_dp *dp, const char *name, uint64_t inc,
		      const struct tei_rail_addr *first, struct tei_err *err,
		      struct tei_rail_peer **out)
{
	struct tei_rail_peer *p;

	if (!inc || !first->len || first->len > sizeof(first->bytes))
		return tei_err_fail(err, TEI_ERR_METADATA, "rail", NULL,
				    "%s: its descriptor has no first address",
				    name);
	rail_sched_enter(dp);
	p = rail_peer_find(dp, inc);
	if (!p)
		p = rail_peer_new(dp, name, inc);
	if (p) {
		p->refs++;
		if (!*p->name)
			snprintf(p->name, sizeof(p->name), "%s", name);
		rail_peer_set_first(p, first);
	}
	rail_sched_leave(dp);
	if (!p)
		return tei_err_fail(err, TEI_ERR_TOO_MANY, "rail",
				    "raise MOONRAIL_MAX_PEERS",
				    "%s: no room for another peer", name);
	*out = p;
	return 0;
}

/* Until the hello is answered the first address stands for all rails. */
void rail_peer_set_first(struct tei_rail_peer *p,
			 const struct tei_rail_addr *first)
{
	struct rail_remote *r;

	if (p->state != RAIL_PEER_NEW)
		return;
	if (!p->remotes) {
		p->remotes = calloc(1, sizeof(*p->remotes));
		if (!p->remotes)
			return;
		p->nremotes = 1;
	}
	r = &p->remotes[0];
	if (r->serial && !memcmp(&r->addr, first, sizeof(*first)))
		return;
	memset(r, 0, sizeof(*r));
	r->id = UINT16_MAX;
	r->addr = *first;
	r->serial = ++p->serial;
	rail_path_table(p);
}

void tei_rail_peer_hold(struct tei_rail_peer *p)
{
	rail_sched_enter(p->dp);
	p->refs++;
	rail_sched_leave(p->dp);
}

void tei_rail_peer_put(struct tei_rail_peer *p)
{
	struct tei_rail_dp *dp = p->dp;

	rail_sched_enter(dp);
	if (!--p->refs)
		rail_peer_attend(p);
	rail_sched_leave(dp);
}

const char *tei_rail_peer_name(const struct tei_rail_peer *p)
{
	return p->name;
}

uint64_t tei_rail_peer_incarnation(const struct tei_rail_peer *p)
{
	return p->incarnation;
}

bool tei_rail_addr_fits(struct tei_rail_dp *dp,
			const struct tei_rail_addr *addr)
{
	return rail_path_fit_any(dp, addr) >= 0;
}

bool tei_rail_peer_healthy(struct tei_rail_peer *p)
{
	bool ok;
	uint16_t i;

	rail_sched_enter(p->dp);
	ok = p->state == RAIL_PEER_READY && !p->unfenced &&
	     tei_now_ns() - p->alive_ns < PEER_ALIVE_NS;
	for (i = 0; i < p->nremotes; i++)
		ok = ok && !p->remotes[i].fence.wanted;
	rail_sched_leave(p->dp);
	return ok;
}

bool tei_rail_peer_gone(struct tei_rail_peer *p)
{
	bool gone;

	rail_sched_enter(p->dp);
	gone = p->state == RAIL_PEER_GONE;
	rail_sched_leave(p->dp);
	return gone;
}

void tei_rail_peer_resolved(struct tei_rail_peer *p, uint64_t inc,
			    const struct tei_rail_addr *first)
{
	struct tei_rail_dp *dp = p->dp;
	struct rail_done done;

	rail_done_init(&done);
	rail_sched_enter(dp);
	if (inc != p->incarnation) {
		rail_peer_set_gone(p, "its name now belongs to a new process",
				   &done);
	} else {
		rail_peer_set_first(p, first);
		rail_peer_attend(p);
	}
	rail_sched_leave(dp);
	rail_done_run(dp, &done);
}

int tei_rail_peer_warmup(struct tei_rail_peer *p, uint64_t timeout_ns,
			 struct tei_err *err)
{
	struct tei_rail_dp *dp = p->dp;
	uint64_t end = tei_now_ns() + timeout_ns, now;
	bool warm;

	rail_sched_enter(dp);
	p->want_hello = true;
	p->warm_wanted = true;
	p->warm_left = UINT64_MAX;
	rail_peer_attend(p);
	for (;;) {
		now = tei_now_ns();
		warm = !p->warm_wanted;
		if (warm || now >= end || p->state == RAIL_PEER_GONE)
			break;
		rail_sched_wait(dp, end - now);
	}
	rail_sched_leave(dp);
	if (warm)
		return 0;
	return tei_err_fail(err, TEI_ERR_ENDPOINT, "rail", NULL,
			    "%s: not all rails could be connected in time",
			    p->name);
}

int tei_rail_notify(struct tei_rail_peer *p, const char *name, const char *msg)
{
	size_t a = strlen(name), b = strlen(msg);
	struct tei_rail_dp *dp = p->dp;
	struct rail_note *n;
	int ret = 0;

	if (a + b > TEI_RAIL_NOTIFY_MAX)
		return tei_err_fail(NULL, TEI_ERR_INVALID, "rail", NULL,
				    "notification of %zu bytes: at most %u",
				    a + b, TEI_RAIL_NOTIFY_MAX);
	n = malloc(sizeof(*n) + a + b);
	if (!n)
		return TEI_ERR_MEMORY;
	n->name_len = (uint16_t)a;
	n->msg_len = (uint16_t)b;
	memcpy(n->text, name, a);
	memcpy(n->text + a, msg, b);
	rail_sched_enter(dp);
	if (p->state == RAIL_PEER_GONE)
		ret = TEI_ERR_ENDPOINT;
	else if (p->nnotes >= dp->settings->max_notifies)
		ret = TEI_ERR_TOO_MANY;
	if (!ret) {
		tei_list_add_tail(&p->notes, &n->link);
		p->nnotes++;
		p->want_hello = true;
		rail_peer_attend(p);
	}
	rail_sched_leave(dp);
	if (ret)
		free(n);
	return ret;
}
