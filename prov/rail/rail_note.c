/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Notifications: queued by any thread, sent in order by the progress thread.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/rail/rail_ctl.h"
#include "prov/rail/rail_wire.h"

#define NOTE_PATIENCE_NS (300 * TEI_NS_PER_MS)

/*
 * Notifications keep their order, so they all take one rail; another one only
 * after that did not take any for a while.
 */
static int note_send(struct tei_rail_peer *p, const uint8_t *buf, size_t len,
		     uint64_t now)
{
	uint32_t i, n = rail_count(p->dp);
	int ret = -FI_EHOSTUNREACH;

	for (i = 0; i < n; i++) {
		ret = rail_msg_send_on(
			p, rail_at(p->dp, (p->note_rail + i) % n), 0, buf, len);
		if (ret != -FI_EHOSTUNREACH)
			break;
	}
	ret = rail_msg_verdict(p, ret);
	if (ret != -FI_EAGAIN) {
		p->note_since_ns = 0;
	} else if (!p->note_since_ns) {
		p->note_since_ns = now;
	} else if (now - p->note_since_ns > NOTE_PATIENCE_NS) {
		p->note_rail++;
		p->note_since_ns = now;
	}
	return ret;
}

uint64_t rail_ctl_notes(struct tei_rail_peer *p, uint64_t now, uint8_t *buf)
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
		ret = note_send(p, buf, rail_msg_end(&w), now);
		if (ret == -FI_EAGAIN)
			return rail_ctl_sent(p, ret, now, &tries);
		rail_sched_enter(p->dp);
		tei_list_del(&n->link);
		p->nnotes--;
		rail_sched_leave(p->dp);
		free(n);
	}
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
