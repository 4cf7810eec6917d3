/* SPDX-License-Identifier: BSD-2-Clause */
/* Computes when a message is sent again, after -FI_EAGAIN or for lack of an
 * answer. */

#include <rdma/fi_errno.h>

#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/wire/rail_resend.h"
#include "util/channel.h"
#include "util/clock.h"

#define RESEND_MAX_NS	(250 * TEI_NS_PER_MS)
#define RESEND_AGAIN_MAX_NS	(50 * TEI_NS_PER_MS)
#define RESEND_RARELY_MAX_NS	(5 * TEI_NS_PER_SEC)

/* The first and the longest interval after which an unanswered request is sent
 * again. */
static const struct tei_channel_pace resend_pace = { RAIL_CTL_RESEND_NS,
						     RESEND_MAX_NS };

uint64_t rail_ctl_sooner(uint64_t a, uint64_t b)
{
	if (!a || !b)
		return a ? a : b;
	return a < b ? a : b;
}

/*
 * The interval of the attempts grows with the time for which no message could
 * be sent, so that an attempt is late by at most a quarter of this time. If
 * hundreds of processes connect to one process, more frequent attempts would
 * take the CPU time that this process needs. "now" may be earlier than
 * p->life.again_ns.
 */
uint64_t rail_ctl_again(const struct tei_rail_peer *p, uint64_t now)
{
	uint64_t since = p->life.again_ns;
	uint64_t wait = since && now > since ? (now - since) / 4 : 0;

	if (wait < RAIL_CTL_RETRY_NS)
		wait = RAIL_CTL_RETRY_NS;
	return now + (wait < RESEND_AGAIN_MAX_NS ? wait : RESEND_AGAIN_MAX_NS);
}

uint64_t rail_ctl_sent(const struct tei_rail_peer *p, int ret, uint64_t now,
		       uint32_t *tries)
{
	if (ret == -FI_EAGAIN)
		return rail_ctl_again(p, now);
	(*tries)++;
	return now + tei_channel_pause(&resend_pace, *tries);
}

bool rail_ctl_left(const struct tei_rail_peer *p)
{
	return p->life.probing && p->state == RAIL_PEER_READY &&
	       rail_peer_unused(p);
}

uint64_t rail_ctl_rarely(const struct tei_rail_peer *p, uint64_t now)
{
	uint64_t wait =
		now > p->life.probe_ns ? (now - p->life.probe_ns) / 16 : 0;

	if (wait < RAIL_CTL_RARELY_NS)
		wait = RAIL_CTL_RARELY_NS;
	return now + (wait < RESEND_RARELY_MAX_NS ? wait : RESEND_RARELY_MAX_NS);
}
