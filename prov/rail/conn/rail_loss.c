/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The log line about lost connections to a peer.
 *
 * When a process is killed, the connections of all its rails break, and every
 * slice and message posted on them fails. These failures are one event, so one
 * line names the rails and the first error. The progress thread logs this line
 * LOSS_GATHER_NS after the first error. Further losses of the same peer are
 * logged at most once in LOSS_AGAIN_NS.
 *
 * Two cases are not logged here: the peer has sent BYE, or is presumed dead
 * (rail_presume.c logs the latter).
 */

#include <stdio.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_loss.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_failure.h"
#include "prov/rail/core/rail_handler.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/log.h"

#define LOSS_GATHER_NS	(50 * TEI_NS_PER_MS)
#define LOSS_AGAIN_NS	TEI_NS_PER_SEC
/* Size of the buffer for the names of the rails, bytes. */
#define LOSS_NAMES 400

void rail_loss_add(struct tei_rail_peer *p, const struct rail *rail, int err,
		   int prov, const char *text)
{
	struct rail_loss *l = &p->log.loss;
	uint64_t due;

	if (p->state == RAIL_PEER_GONE ||
	    __atomic_load_n(&p->dp->thread.stop, __ATOMIC_ACQUIRE))
		return;
	l->rails |= UINT64_C(1) << rail->index;
	if (l->due_ns)
		return;
	due = tei_now_ns() + LOSS_GATHER_NS;
	l->due_ns = due > l->next_ns ? due : l->next_ns;
	l->err = err;
	l->prov = prov;
	snprintf(l->text, sizeof(l->text), "%s", text);
	rail_peer_attend(p);
}

bool rail_loss_noted(const struct tei_rail_peer *p, const struct rail *rail)
{
	return p->log.loss.due_ns && p->log.loss.rails >> rail->index & 1;
}

void rail_loss_log(struct rail_lane *lane, const struct fi_cq_err_entry *e,
		   const char *what, struct tei_rail_peer *peer,
		   const char *text)
{
	enum tei_log_level level = TEI_LOG_WARN;
	struct rail *rail = lane->rail;

	if (peer && rail_err_ends_conn(e->err)) {
		level = TEI_LOG_INFO;
		rail_sched_enter(rail->dp);
		rail_loss_add(peer, rail, e->err, e->prov_errno, text);
		rail_sched_leave(rail->dp);
	}
	rail_lane_log_error(lane, e, level, what, peer, text);
}

/* Lists the names of the rails whose bits are set. */
static void loss_names(struct tei_rail_dp *dp, uint64_t rails, char *out,
		       size_t len)
{
	size_t used = 0;
	uint32_t i;

	for (i = 0; i < TEI_RAIL_MAX && used < len; i++)
		if (rails >> i & 1)
			used += (size_t)snprintf(out + used, len - used,
						 "%s%s", used ? ", " : "",
						 rail_at(dp, i)->name);
}

static void loss_log(struct tei_rail_peer *p, const struct rail_loss *l)
{
	char names[LOSS_NAMES] = "", prov[128] = "";

	loss_names(p->dp, l->rails, names, sizeof(names));
	if (l->text[0])
		snprintf(prov, sizeof(prov), " (provider: %d, %s)", l->prov,
			 l->text);
	tei_log_repeated(&p->log.err_repeat, TEI_LOG_WARN, "rail",
			 "peer %s: no connection over %s: %s%s", p->name, names,
			 fi_strerror(l->err), prov);
}

uint64_t rail_ctl_loss(struct tei_rail_peer *p, uint64_t now)
{
	struct rail_loss l;
	bool known, due;

	rail_sched_enter(p->dp);
	l = p->log.loss;
	known = rail_presumed(p) || p->gone == RAIL_GONE_LEFT;
	due = l.due_ns && (now >= l.due_ns || p->state == RAIL_PEER_GONE);
	if (due) {
		p->log.loss.rails = 0;
		p->log.loss.due_ns = 0;
		p->log.loss.next_ns = now + LOSS_AGAIN_NS;
	}
	rail_sched_leave(p->dp);
	if (!due)
		return l.due_ns;
	if (!known)
		loss_log(p, &l);
	return 0;
}
