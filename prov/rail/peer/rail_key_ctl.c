/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sends the messages about keys: KEY_REQ, KEY_REP, REVOKE and REVOKED.
 */

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_send.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_recv.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_resend.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/lock.h"

/* Returns the registration of the rail that contains the byte at offset off of
 * the region, or NULL if there is none. */
static const struct rail_mr_piece *key_piece(const struct tei_rail_mr *mr,
					     uint32_t rail, uint64_t off)
{
	const struct rail_mr_part *part = &mr->part[rail];
	const struct rail_mr_piece *piece;

	if (!part->n)
		return NULL;
	piece = &part->piece[off >> part->shift];
	return piece->key_len ? piece : NULL;
}

/* Appends to the message the keys for len bytes of the region, from offset off
 * on. A registration may extend beyond these bytes. Returns false if the keys
 * do not fit into the message. */
static bool key_put_piece(struct rail_wire *w, struct tei_rail_dp *dp,
			  const struct tei_rail_mr *mr, uint64_t off,
			  uint64_t len) TEI_REQUIRES(rail_sched_held)
{
	const uint8_t *ranks = rail_mr_ranks(mr, mr->addr + off);
	const struct rail_mr_piece *piece;
	uint32_t i, n = 0;
	size_t start = w->pos;

	for (i = 0; i < rail_count(dp); i++)
		n += key_piece(mr, i, off) != NULL;
	rail_wire_put(w, (uintptr_t)mr->addr + off, 8);
	rail_wire_put(w, len, 8);
	rail_wire_put(w, mr->id, 8);
	rail_wire_put(w, mr->read_only ? RAIL_WIRE_READ_ONLY : 0, 1);
	rail_wire_put(w, n, 2);
	for (i = 0; i < rail_count(dp); i++) {
		piece = key_piece(mr, i, off);
		if (!piece)
			continue;
		rail_wire_put(w, i, 1);
		rail_wire_put(w, ranks[i], 1);
		rail_wire_put(w, off & ((UINT64_C(1) << mr->part[i].shift) - 1),
			      8);
		rail_wire_put_bytes(w, piece->key, piece->key_len);
	}
	if (!w->bad)
		return true;
	w->bad = false;
	w->pos = start;
	return false;
}

/* Appends keys of the region to the message, from offset off on, as many as
 * fit. Returns true if the keys of the rest of the region fitted. */
static bool key_put_region(struct rail_wire *w, struct tei_rail_dp *dp,
			   const struct tei_rail_mr *mr, uint64_t off,
			   uint16_t *count) TEI_REQUIRES(rail_sched_held)
{
	uint8_t shift = rail_mr_shift(dp, mr);
	uint64_t len;

	for (off = off >> shift << shift; off < mr->len; off += len) {
		len = UINT64_C(1) << shift;
		if (len > mr->len - off)
			len = mr->len - off;
		if (*count == UINT16_MAX ||
		    !key_put_piece(w, dp, mr, off, len))
			return false;
		(*count)++;
	}
	return true;
}

/* Appends the keys for the regions that cover [addr, addr + len) to the
 * message. The peer later requests keys that did not fit. Returns 0, or an
 * error code if a byte is in no region. */
static int key_put_regions(struct tei_rail_peer *p, struct rail_wire *w,
			   uint64_t addr, uint64_t len, uint16_t *count)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_dp *dp = p->dp;
	struct tei_rail_mr *mr;
	uint64_t have, off;
	bool room = true;

	if (!len || addr + (len - 1) < addr)
		return TEI_ERR_NOT_REGISTERED;
	while (len) {
		mr = rail_mr_find(dp, (void *)(uintptr_t)addr, 1);
		if (!mr || !mr->remote)
			return TEI_ERR_NOT_REGISTERED;
		if (room && rail_key_add_holder(mr, p->incarnation))
			return TEI_ERR_MEMORY;
		off = addr - (uintptr_t)mr->addr;
		room = room && key_put_region(w, dp, mr, off, count);
		have = mr->len - off;
		addr += have < len ? have : len;
		len -= have < len ? have : len;
	}
	return 0;
}

uint64_t rail_ctl_key_reply(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	struct tei_rail_dp *dp = p->dp;
	size_t code_at, count_at, start, len;
	uint64_t addr, want;
	struct rail_wire w;
	uint16_t count = 0;
	uint32_t tries = 1;
	int code, ret;

	rail_sched_enter(dp);
	if (!p->keys.reply.answer_pending) {
		rail_sched_leave(dp);
		return 0;
	}
	addr = p->keys.reply.addr;
	want = p->keys.reply.len;
	p->keys.reply.answer_pending = false;
	rail_msg_begin(p, &w, buf, RAIL_MSG_KEY_REP, 0);
	rail_wire_put(&w, addr, 8);
	rail_wire_put(&w, want, 8);
	code_at = w.pos;
	rail_wire_put(&w, 0, 4);
	rail_wire_put(&w, dp->memory.key_epoch, 4);
	count_at = w.pos;
	rail_wire_put(&w, 0, 2);
	start = w.pos;
	code = key_put_regions(p, &w, addr, want, &count);
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
	ret = rail_msg_send(p, buf, len, 0);
	if (ret != -FI_EAGAIN)
		return 0;
	rail_sched_enter(dp);
	if (!p->keys.reply.answer_pending) {
		p->keys.reply.addr = addr;
		p->keys.reply.len = want;
		p->keys.reply.answer_pending = true;
	}
	rail_sched_leave(dp);
	return rail_ctl_sent(p, ret, now, &tries);
}

uint64_t rail_ctl_key_want(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	struct rail_key_want want;
	struct rail_wire w;
	size_t len;
	int ret;

	rail_sched_enter(p->dp);
	want = p->keys.want;
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
	ret = rail_msg_send(p, buf, len, want.tries);
	want.next_ns = rail_ctl_sent(p, ret, now, &want.tries);
	want.since_ns = want.since_ns ? want.since_ns : now;
	rail_ctl_unanswered(p, now, want.since_ns);
	rail_sched_enter(p->dp);
	p->keys.want.next_ns = want.next_ns;
	if (p->keys.want.addr == want.addr && p->keys.want.len == want.len)
		p->keys.want.tries = want.tries;
	if (!p->keys.want.since_ns)
		p->keys.want.since_ns = want.since_ns;
	rail_sched_leave(p->dp);
	return want.next_ns;
}

/* Sends a message with n region ids. type: REVOKE, which also contains the
 * epoch, or REVOKED. */
static int key_send_ids(struct tei_rail_peer *p, enum rail_msg_type type,
			uint32_t epoch, const uint64_t *ids, uint32_t n,
			uint8_t *buf, uint32_t attempt)
{
	struct rail_wire w;
	uint32_t i;

	rail_msg_begin(p, &w, buf, type, 0);
	if (type == RAIL_MSG_REVOKE)
		rail_wire_put(&w, epoch, 4);
	rail_wire_put(&w, n, 2);
	for (i = 0; i < n; i++)
		rail_wire_put(&w, ids[i], 8);
	return rail_msg_send(p, buf, rail_msg_end(&w), attempt);
}

#define KEY_IDS 512
/* REVOKE is sent KEY_EAGER times at the short interval (about one second), then
 * every KEY_RARELY_NS. This interval is doubled after each KEY_RARELY_TIMES
 * further tries, at most KEY_RARELY_HALVES times. */
#define KEY_EAGER	  50
#define KEY_RARELY_NS (250 * TEI_NS_PER_MS)
#define KEY_RARELY_TIMES  8
#define KEY_RARELY_HALVES 4

/* Returns the time at which REVOKE is sent again. The interval is long for a
 * peer that has been silent for a long time. */
static uint64_t key_again(const struct tei_rail_peer *p, uint64_t now)
{
	uint32_t halves;

	if (p->keys.revoke_tries < KEY_EAGER)
		return now + RAIL_CTL_RESEND_NS;
	halves = (p->keys.revoke_tries - KEY_EAGER) / KEY_RARELY_TIMES;
	return now + (KEY_RARELY_NS << (halves < KEY_RARELY_HALVES ?
					halves : KEY_RARELY_HALVES));
}

uint64_t rail_ctl_revoked(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	uint64_t ids[KEY_IDS];
	uint32_t n, tries = 1;
	bool more;
	int ret;

	rail_sched_enter(p->dp);
	n = p->keys.nowed < KEY_IDS ? p->keys.nowed : KEY_IDS;
	if (n)
		memcpy(ids, p->keys.answer_pending + p->keys.nowed - n,
		       n * sizeof(*ids));
	p->keys.nowed -= n;
	more = p->keys.nowed != 0;
	rail_sched_leave(p->dp);
	if (!n)
		return 0;
	ret = key_send_ids(p, RAIL_MSG_REVOKED, 0, ids, n, buf, 0);
	if (ret != -FI_EAGAIN)
		return more ? now : 0;
	rail_sched_enter(p->dp);
	while (n--)
		rail_key_owe_again(p, ids[n]);
	rail_sched_leave(p->dp);
	return rail_ctl_sent(p, ret, now, &tries);
}

uint64_t rail_ctl_revokes(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
{
	uint64_t ids[KEY_IDS], next;
	uint32_t n, epoch;
	int ret;

	rail_sched_enter(p->dp);
	n = p->keys.nrevokes < KEY_IDS ? p->keys.nrevokes : KEY_IDS;
	if (n)
		memcpy(ids, p->keys.revokes, n * sizeof(*ids));
	epoch = p->dp->memory.key_epoch;
	next = p->keys.revoke_next_ns;
	rail_sched_leave(p->dp);
	if (!n)
		return 0;
	if (now < next)
		return next;
	if (!next)
		p->keys.revoke_tries = 0;
	ret = key_send_ids(p, RAIL_MSG_REVOKE, epoch, ids, n, buf,
			   p->keys.revoke_tries);
	next = ret == -FI_EAGAIN ? rail_ctl_again(p, now) : key_again(p, now);
	/* the next attempt uses another rail, because the rail that accepted
	 * the message may be broken */
	p->keys.revoke_tries += !ret;
	rail_sched_enter(p->dp);
	p->keys.revoke_next_ns = next;
	rail_sched_leave(p->dp);
	return next;
}

static bool key_get(struct rail_wire *w, uint64_t base,
		    struct rail_rkey_part *part)
{
	memset(part, 0, sizeof(*part));
	part->rail_id = (uint16_t)rail_wire_get(w, 1);
	part->rank = (uint8_t)rail_wire_get(w, 1);
	part->offset = rail_wire_get(w, 8);
	part->key_len =
		(uint8_t)rail_wire_get_bytes(w, part->key, sizeof(part->key));
	if (w->bad || part->key_len < sizeof(part->key64) ||
	    part->offset > base)
		return false;
	memcpy(&part->key64, part->key, sizeof(part->key64));
	return true;
}

static struct rail_rkey *key_get_region(struct rail_wire *w)
{
	uint64_t base = rail_wire_get(w, 8), len = rail_wire_get(w, 8);
	uint64_t id = rail_wire_get(w, 8);
	uint8_t access = (uint8_t)rail_wire_get(w, 1);
	uint16_t i, n = (uint16_t)rail_wire_get(w, 2);
	struct rail_rkey *k;

	if (w->bad || !len || base + len <= base || n > TEI_RAIL_MAX)
		return NULL;
	k = calloc(1, sizeof(*k) + n * sizeof(k->part[0]));
	if (!k)
		return NULL;
	k->range.base = base;
	k->range.end = base + len;
	k->id = id;
	k->read_only = access & RAIL_WIRE_READ_ONLY;
	k->nparts = n;
	for (i = 0; i < n; i++) {
		if (!key_get(w, base, &k->part[i])) {
			free(k);
			return NULL;
		}
	}
	return k;
}

/* Returns true if the peer's rails do not all have the same rank for the
 * region. */
static bool key_is_ranked(const struct rail_rkey *k)
{
	uint16_t i;

	for (i = 1; i < k->nparts; i++)
		if (k->part[i].rank != k->part[0].rank)
			return true;
	return false;
}

void rail_key_on_reply(struct tei_rail_peer *peer, struct rail_wire *w,
		       uint32_t table, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t addr = rail_wire_get(w, 8), len = rail_wire_get(w, 8);
	int32_t code = (int32_t)rail_wire_get(w, 4);
	uint32_t epoch = (uint32_t)rail_wire_get(w, 4);
	uint16_t i, n = (uint16_t)rail_wire_get(w, 2);
	struct rail_rkey *k;

	/* A reply is void if it is older than a revocation that has been
	 * answered, or older than the peer's rail table. The KEY_REQ is then
	 * repeated. */
	if (w->bad || epoch < peer->keys.epoch ||
	    table < peer->hello.table_seen)
		return;
	peer->keys.epoch = epoch;
	for (i = 0; i < n; i++) {
		k = key_get_region(w);
		if (!k)
			return;
		if (key_is_ranked(k) && !peer->routes.ranked) {
			peer->routes.ranked = true;
			rail_select_table(peer);
		}
		if (rail_key_replaces(peer, k))
			rail_sched_unregistered(peer, done);
		if (!rail_key_add(peer, k))
			return;
	}
	peer->keys.want.since_ns = 0;
	if (peer->keys.want.addr == addr && peer->keys.want.len == len)
		peer->keys.want.active = false;
	/* If a later request has replaced the one that is answered now, the
	 * later request is sent at once. */
	peer->keys.want.next_ns = 0;
	if (peer->keys.want.active)
		rail_peer_attend(peer);
	if (code)
		rail_sched_no_key(peer, addr, len, code, done);
	k = rail_key_find(peer, addr);
	if (!code && k && k->read_only)
		rail_sched_read_only(peer, addr, len, done);
	rail_peer_activate(peer);
}

void rail_key_on_request(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held)
{
	uint64_t addr = rail_wire_get(w, 8), len = rail_wire_get(w, 8);

	if (w->bad)
		return;
	peer->keys.reply.addr = addr;
	peer->keys.reply.len = len;
	peer->keys.reply.answer_pending = true;
	rail_peer_attend(peer);
}

void rail_key_on_revoke(struct tei_rail_peer *peer, struct rail_wire *w,
			struct rail_done *done) TEI_REQUIRES(rail_sched_held)
{
	uint32_t epoch = (uint32_t)rail_wire_get(w, 4);
	uint16_t i, n = (uint16_t)rail_wire_get(w, 2);
	size_t ids = w->pos;
	bool used = false;

	if (w->bad || (w->cap - ids) / 8 < n)
		return;
	if (epoch > peer->keys.epoch)
		peer->keys.epoch = epoch;
	/* the tasks are examined once for all regions */
	for (i = 0; i < n; i++)
		used |= rail_key_unregistered(peer, rail_wire_get(w, 8));
	if (used)
		rail_sched_unregistered(peer, done);
	w->pos = ids;
	for (i = 0; i < n; i++)
		rail_key_revoked(peer, rail_wire_get(w, 8));
}

void rail_key_on_revoked(struct tei_rail_peer *peer, struct rail_wire *w)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t i, n = (uint16_t)rail_wire_get(w, 2);
	uint64_t id;

	for (i = 0; i < n; i++) {
		id = rail_wire_get(w, 8);
		if (w->bad)
			return;
		rail_key_drained(peer, id);
	}
}
