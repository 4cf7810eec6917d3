/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_WIRE_RAIL_RESEND_H
#define TEI_PROV_RAIL_WIRE_RAIL_RESEND_H

/* The times at which messages are sent again. */

#include <stdbool.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "util/clock.h"
#include "util/lock.h"

/* First intervals of repetitions, which grow. RAIL_CTL_RETRY_NS: after
 * -FI_EAGAIN. RAIL_CTL_RESEND_NS: of an unanswered request. RAIL_CTL_RARELY_NS:
 * of requests to a silent and unused peer. */
#define RAIL_CTL_RETRY_NS	TEI_NS_PER_MS
#define RAIL_CTL_RESEND_NS	(20 * TEI_NS_PER_MS)
#define RAIL_CTL_RARELY_NS	(250 * TEI_NS_PER_MS)

/* Returns the earlier of two times; 0 stands for never. */
uint64_t rail_ctl_sooner(uint64_t a, uint64_t b);
/* Returns the time at which a send that returned -FI_EAGAIN is tried again. */
uint64_t rail_ctl_again(const struct tei_rail_peer *peer, uint64_t now);
/* Returns the time of the next attempt after a send that returned "ret".
 * Increments *tries unless ret is -FI_EAGAIN. */
uint64_t rail_ctl_sent(const struct tei_rail_peer *peer, int ret, uint64_t now,
		       uint32_t *tries);
/* Returns true if the peer is silent and unused. Such a peer is pinged, but
 * nothing waits for its answer. */
bool rail_ctl_left(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);
/* Returns the time at which a silent and unused peer is pinged again, ns. The
 * interval grows with the duration of the silence. */
uint64_t rail_ctl_rarely(const struct tei_rail_peer *peer, uint64_t now);

#endif /* TEI_PROV_RAIL_WIRE_RAIL_RESEND_H */
